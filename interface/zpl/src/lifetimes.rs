//! How long the kernel may keep names and attributes, and what it is told when attributes change without its doing.
//!
//! The mount is the only way in, and the kernel asks again by itself for what its own requests change. What is left is the number of
//! blocks, which a sync settles: nodes whose attributes were shown before that are noted, and the kernel is told to forget them when their
//! txg was written, before anybody who waits for it hears of it. It is told on a thread of its own: the kernel waits for a node that it
//! is about to forget, and that may wait for a txg. Should it, the sync goes on after a moment.

use crate::kernel::{KernelView, may_change};
use crate::nodes::Node;
use exec::{Condvar, Mutex};
use fuse::{Entry, FileAttr, NodeId, Notifier, Opened};
use ondisk::Txg;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time that the kernel may keep names, also of what is not there.
const NAME_TTL: Duration = Duration::from_secs(60);
/// Time that the kernel may keep attributes that nothing changes but its own requests.
const ATTR_TTL: Duration = Duration::from_secs(60);
/// Time that the kernel may keep attributes that the next sync changes; it is told of that, but an answer may be on its way meanwhile.
const UNSETTLED_TTL: Duration = Duration::from_secs(1);
/// Time that a sync waits for the kernel to forget.
const PATIENCE: Duration = Duration::from_millis(50);

/// Time in nanoseconds for which the kernel may list a directory from what it kept of the last listing: shorter than names and attributes hold that
/// came with it, else each would be asked for alone.
const LISTING_TTL_NS: u64 = 30_000_000_000;

/// Nodes whose attributes were shown, by the txg that changes them.
type Shown = Arc<Mutex<BTreeMap<Txg, Vec<NodeId>>>>;

/// Lifetimes of what the kernel knows of a mount's nodes.
#[derive(Default)]
pub(crate) struct Lifetimes {
    /// Way to the kernel; what waits for a txg holds no connection open.
    notifier: OnceLock<Arc<Notifier>>,
    shown: Shown,
}

impl Lifetimes {
    /// Names the way to the kernel.
    pub fn attach(&self, notifier: Notifier) {
        let _ = self.notifier.set(Arc::new(notifier));
    }

    /// Way to the kernel, while there is one.
    pub fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get().map(|notifier| &**notifier)
    }

    /// Time that attributes hold which are read after this call.
    pub fn begin(&self, node: &Node, id: NodeId) -> Duration {
        node.kernel.note_shown();
        match node.dnode.blocks_change_in() {
            None => ATTR_TTL,
            // Nobody counts the blocks of directories; and paths through a mount whose server died lead on as long as its attributes hold.
            Some(_) if node.fields().is_directory() => UNSETTLED_TTL,
            Some(txg) if self.note(node, id, txg) => UNSETTLED_TTL,
            Some(_) => Duration::ZERO,
        }
    }

    /// Has the kernel forget the node's attributes once the txg is written; false when that cannot be.
    fn note(&self, node: &Node, id: NodeId, txg: Txg) -> bool {
        let Some(notifier) = self.notifier.get() else { return false };
        if node.kernel.is_noted_in(txg) {
            return true;
        }
        let is_first = {
            let mut shown = self.shown.lock();
            let nodes = shown.entry(txg).or_default();
            nodes.push(id);
            nodes.len() == 1
        };
        let (shown, notifier) = (self.shown.clone(), Arc::downgrade(notifier));
        let settles = move || settle(&shown, notifier.upgrade().as_deref(), txg);
        if is_first && !node.store().room.before_told(txg, Box::new(settles)) {
            self.shown.lock().remove(&txg);
            return false;
        }
        node.kernel.note_in(txg);
        true
    }

    /// Has the kernel forget attributes of a node that a request changed which it takes for one that does not. Its file is open.
    pub fn changed(&self, id: NodeId) {
        if let Some(notifier) = self.notifier.get() {
            notifier.forget_attributes(id);
        }
    }

    /// Has the kernel forget how many blocks a node had before it was synced. Its file is open.
    pub fn synced(&self, view: &KernelView, id: NodeId) {
        if view.was_noted() {
            self.changed(id);
        }
    }
}

/// Time that attributes hold, which would be `ttl`: requests that take setuid or setgid away (the server does that) carry no attributes back, so
/// the kernel asks each time for those of files that have them.
pub(crate) fn of_attributes(attr: &FileAttr, ttl: Duration) -> Duration {
    let is_regular = attr.mode & 0o170_000 == 0o100_000;
    if is_regular && attr.mode & 0o6000 != 0 { Duration::ZERO } else { ttl }
}

/// Time that names in a directory hold; none where one name finds several spellings.
pub(crate) fn name_ttl(directory: &Node) -> Duration {
    if directory.store().rules.norm.is_none() { NAME_TTL } else { Duration::ZERO }
}

/// True for who can only read, an empty file, where each read is to leave its time: the kernel answers such reads by itself, and nobody hears of them,
/// but those that go past its cache.
pub(crate) fn reads_nothing(node: &Node, flags: u32) -> bool {
    !may_change(flags) && node.store().settings().leaves_each_time() && node.fields().size == 0
}

/// Answer to who opens a directory of the live file system: whether the kernel may list it from what it kept, which it drops by itself when names
/// come or go. Where each look is to leave its time each is a request, and so it is where names hold for no time.
pub(crate) fn opened_directory(directory: &Node) -> Opened {
    let store = directory.store();
    let cache_dir = !store.settings().leaves_each_time() && !name_ttl(directory).is_zero();
    let keep_cache = cache_dir && directory.kernel.was_listed_within(LISTING_TTL_NS, store.exec.now_ns());
    Opened { keep_cache, cache_dir, ..Opened::default() }
}

/// True for what holds at least as long as the kernel may list what came with it: else a listing that is kept would have it asked for alone. What is
/// asked for each time does not count.
pub(crate) fn outlives_listing(found: &Entry) -> bool {
    let is_always_asked_for = found.attr_ttl.is_zero() && of_attributes(&found.attr, ATTR_TTL).is_zero();
    is_always_asked_for || found.attr_ttl.as_nanos() >= u128::from(LISTING_TTL_NS)
}

/// Answer that says that a name is not there, and for how long.
pub(crate) fn no_entry(ttl: Duration) -> Entry {
    Entry { node: NodeId(0), generation: 0, attr: FileAttr::default(), attr_ttl: Duration::ZERO, entry_ttl: ttl }
}

/// Has the kernel forget what was shown before the txg was written.
fn settle(shown: &Shown, notifier: Option<&Notifier>, txg: Txg) {
    let Some((nodes, notifier)) = shown.lock().remove(&txg).zip(notifier) else { return };
    let told = Arc::new((Mutex::new(false), Condvar::new()));
    let done = told.clone();
    notifier.later(move |kernel| {
        nodes.into_iter().for_each(|id| kernel.forget_attributes(id));
        *done.0.lock() = true;
        done.1.notify_all();
    });
    let mut is_told = told.0.lock();
    while !*is_told {
        if told.1.wait_for(&mut is_told, PATIENCE).timed_out() {
            return;
        }
    }
}
