//! Who wants to know about the memory that buffers are cut from: an I/O engine that registers it with the kernel.
//!
//! Invariants: a watcher hears of a mapping before any buffer lies in it and of its end before the memory is given back, so
//! an address belongs to the mapping announced last; announcements of one address come in order (one lock, taken once per
//! mapping, never per buffer).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Port: told of mappings. Called with a lock of this crate held: it must not wait, nor allocate or drop buffers.
pub trait MappingWatcher: Send + Sync {
    /// `size_bytes` at `start` now hold buffers; both are multiples of 2 MiB. Their contents are initialized.
    fn mapped(&self, start: usize, size_bytes: usize);
    /// The mapping at `start` goes away when this returns; no buffer lies in it any more.
    fn unmapping(&self, start: usize);
}

#[derive(Default)]
struct Known {
    /// Size of each mapping by its start.
    live: BTreeMap<usize, usize>,
    watchers: Vec<Arc<dyn MappingWatcher>>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Tells `watcher` of every mapping that is, and from now on of every change, for the life of the process.
pub fn watch_mappings(watcher: Arc<dyn MappingWatcher>) {
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    known.live.iter().for_each(|(start, size_bytes)| watcher.mapped(*start, *size_bytes));
    known.watchers.push(watcher);
}

/// A mapping was made.
pub(crate) fn mapped(start: usize, size_bytes: usize) {
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    known.live.insert(start, size_bytes);
    known.watchers.iter().for_each(|watcher| watcher.mapped(start, size_bytes));
}

/// A mapping is about to be given back.
pub(crate) fn unmapping(start: usize) {
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    known.live.remove(&start);
    known.watchers.iter().for_each(|watcher| watcher.unmapping(start));
}
