//! What the kernel holds of a file beside us: pages, of which it forgets none unless told, and stores through mappings, of which
//! it tells nobody before it writes them.
//!
//! Pages come into being with a read for the kernel's cache or a write through it, both of which pass here. A write that passes
//! the cache by is answered after the kernel forgot the pages of its range: it does that by itself only for writes that somebody
//! waits for in the system call, not for those of libaio and io_uring. The order is: the bytes are in place, the pages are
//! forgotten, the write is answered; whoever reads for the cache in between reads the new bytes.

use fuse::{Answer, NodeId, Notifier, Reply};
use ondisk::{ObjectId, Txg};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const O_ACCMODE: u32 = 3;
const O_RDWR: u32 = 2;

/// Node as the kernel remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Object of the node.
    pub object: u64,
    /// Number of references that lookups gave.
    pub references: u64,
    /// Number of descriptors through which it may be mapped for writing.
    pub writable: u32,
    /// True when it may have pages of it.
    pub has_pages: bool,
    /// True when something was stored through a mapping.
    pub has_stored: bool,
}

/// View of the kernel's pages of a node while it is in memory.
#[derive(Debug, Default)]
pub(crate) struct KernelView {
    pages: AtomicBool,
    /// True when something was stored through a mapping.
    stored: AtomicBool,
    /// True when the kernel may keep what write(2) wrote, and the end of the file with it.
    keeps: AtomicBool,
    /// Number of descriptors through which it may be mapped for writing, or written where the kernel keeps that.
    writable: AtomicU32,
    /// True when the kernel was shown attributes.
    shown: AtomicBool,
    /// Txg after which the kernel forgets attributes that it was shown last, 0 at first.
    noted: AtomicU64,
    /// Time in nanoseconds at which a directory was last listed with attributes, 0 at first.
    listed_ns: AtomicU64,
}

impl KernelView {
    /// Notes that the kernel keeps what it reads now, or has what it writes now.
    pub fn note_pages(&self) {
        // Looked at first: a line that all threads read stays theirs.
        if !self.pages.load(Ordering::Relaxed) {
            self.pages.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that the kernel is shown attributes.
    pub fn note_shown(&self) {
        if !self.shown.load(Ordering::Relaxed) {
            self.shown.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that the kernel will be told to forget attributes when this txg is written.
    pub fn note_in(&self, txg: Txg) {
        self.noted.store(txg.0, Ordering::Release);
    }

    /// True when [`KernelView::note_in`] was told of this txg last.
    pub fn is_noted_in(&self, txg: Txg) -> bool {
        self.noted.load(Ordering::Acquire) == txg.0
    }

    /// True when [`KernelView::note_in`] was told of any.
    pub fn was_noted(&self) -> bool {
        self.noted.load(Ordering::Acquire) != 0
    }

    /// Notes that the kernel is given a listing of the directory, with attributes, from its beginning on; None when some of them hold for less
    /// time than that.
    pub fn note_listed(&self, now_ns: Option<u64>) {
        self.listed_ns.store(now_ns.map_or(0, |now_ns| now_ns.max(1)), Ordering::Relaxed);
    }

    /// True when it was given one less than so many nanoseconds ago.
    pub fn was_listed_within(&self, ttl_ns: u64, now_ns: u64) -> bool {
        let listed_ns = self.listed_ns.load(Ordering::Relaxed);
        listed_ns != 0 && now_ns.saturating_sub(listed_ns) < ttl_ns
    }

    /// True when the kernel may keep what write(2) wrote.
    pub fn keeps_writes(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Notes that the kernel wrote what was stored through a mapping.
    pub fn note_stored(&self) {
        if !self.stored.load(Ordering::Relaxed) {
            self.stored.store(true, Ordering::Relaxed);
        }
    }

    /// True when something was stored through a mapping.
    pub fn has_stored(&self) -> bool {
        self.stored.load(Ordering::Relaxed)
    }

    /// Counts a file that was opened so that it may be mapped for writing; or be written, when the kernel `keeps` what write(2) writes, in pages
    /// that come into being without a word.
    pub fn opened(&self, keeps: bool) {
        if keeps {
            self.note_pages();
            self.keeps.store(true, Ordering::Relaxed);
        }
        self.writable.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the close of what [`KernelView::opened`] was told of.
    pub fn released(&self) {
        let _ = self.writable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_sub(1)));
    }

    /// Returns what the kernel remembers of the node.
    pub fn remembered(&self, object: ObjectId, references: u64) -> Remembered {
        let (has_pages, has_stored) = (self.has_pages(), self.has_stored());
        Remembered { object: object.0, references, writable: self.writable.load(Ordering::Relaxed), has_pages, has_stored }
    }

    /// Sets what another server knew.
    pub fn restore(&self, node: &Remembered) {
        self.pages.store(node.has_pages, Ordering::SeqCst);
        self.stored.store(node.has_stored, Ordering::Relaxed);
        self.writable.store(node.writable, Ordering::Relaxed);
    }

    fn has_pages(&self) -> bool {
        self.pages.load(Ordering::SeqCst)
    }

    /// True when the kernel may have what was stored and was not written.
    pub fn may_hide_stores(&self) -> bool {
        self.has_pages() && self.writable.load(Ordering::Relaxed) > 0
    }
}

/// True for flags of open(2) that allow changes.
pub(crate) fn may_change(flags: u32) -> bool {
    flags & O_ACCMODE != 0
}

/// True for flags of open(2) that allow a mapping that can be stored to.
pub(crate) fn may_map(flags: u32) -> bool {
    flags & O_ACCMODE == O_RDWR
}

/// Change of bytes that passed the kernel's cache by.
pub(crate) struct PastCache {
    pub view: Arc<KernelView>,
    pub notifier: Notifier,
    pub id: NodeId,
    pub range: Range<u64>,
}

impl PastCache {
    /// Answers once no page of the range shows what was there before. The write is done, and nothing is locked any more.
    pub fn answer<T: Send + 'static>(self, answer: Answer<T>, reply: Reply<T>) {
        self.forget(move || answer.send(reply));
    }

    /// Runs `then` once no page of the range and no attribute shows what was there before; of a change that the kernel knows nothing of.
    pub fn forget_all(self, then: impl FnOnce() + Send + 'static) {
        if self.view.has_pages() || !self.view.shown.load(Ordering::SeqCst) {
            return self.forget(then);
        }
        let PastCache { notifier, id, .. } = self;
        notifier.later(move |kernel| {
            kernel.forget_attributes(id);
            then();
        });
    }

    /// Runs `then` once no page of the range shows what was there before.
    pub fn forget(self, then: impl FnOnce() + Send + 'static) {
        if !self.view.has_pages() {
            return then();
        }
        let PastCache { notifier, id, range, .. } = self;
        notifier.later(move |kernel| {
            kernel.forget_pages(id, range);
            then();
        });
    }
}
