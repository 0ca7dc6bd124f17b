//! What the kernel holds of a file beside us: pages, of which it forgets none unless told, and stores through mappings, of which
//! it tells nobody before it writes them.
//!
//! Pages come into being with a read for the kernel's cache or a write through it, both of which pass here. A write that passes
//! the cache by is answered after the kernel forgot the pages of its range: it does that by itself only for writes that somebody
//! waits for in the system call, not for those of libaio and io_uring. The order is: the bytes are in place, the pages are
//! forgotten, the write is answered; whoever reads for the cache in between reads the new bytes.
//!
//! A store through a shared mapping is in a page only. `lseek` with SEEK_DATA or SEEK_HOLE asks us, and a hole that we know of may
//! have been stored to, so the kernel is made to write what it has of the hole before the answer. Nobody can have stored anything
//! unless somebody has the file open for reading and writing.

use crate::ZplError;
use crate::znode::Node;
use fuse::{Answer, Errno, Kernel, NodeId, Notifier, Reply, SeekRequest};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const O_ACCMODE: u32 = 3;
const O_RDWR: u32 = 2;
/// How often a hole is looked at again that turned out to be another one.
const LOOKS_MAX: u32 = 32;

/// What is known of the kernel's pages of a node while it is in memory.
#[derive(Debug, Default)]
pub(crate) struct KernelView {
    pages: AtomicBool,
    /// Something was stored through a mapping.
    stored: AtomicBool,
    /// Descriptors through which it may be mapped for writing.
    writable: AtomicU32,
}

impl KernelView {
    /// The kernel keeps what it reads now, or has what it writes now.
    pub fn note_pages(&self) {
        // Looked at first: a line that all threads read stays theirs.
        if !self.pages.load(Ordering::Relaxed) {
            self.pages.store(true, Ordering::SeqCst);
        }
    }

    /// The kernel wrote what was stored through a mapping.
    pub fn note_stored(&self) {
        if !self.stored.load(Ordering::Relaxed) {
            self.stored.store(true, Ordering::Relaxed);
        }
    }

    /// It was opened so that it may be mapped for writing.
    pub fn opened(&self) {
        self.writable.fetch_add(1, Ordering::Relaxed);
    }

    /// What [`KernelView::opened`] was told of is closed.
    pub fn released(&self) {
        let _ = self.writable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_sub(1)));
    }

    fn has_pages(&self) -> bool {
        self.pages.load(Ordering::SeqCst)
    }

    fn may_hide_stores(&self) -> bool {
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

/// A write that passed the kernel's cache by.
pub(crate) struct PastCache {
    pub view: Arc<KernelView>,
    pub notifier: Notifier,
    pub id: NodeId,
    pub range: Range<u64>,
}

impl PastCache {
    /// Answers once no page of the range shows what was there before. The write is done, and nothing is locked any more.
    pub fn answer<T: Send + 'static>(self, answer: Answer<T>, reply: Reply<T>) {
        if !self.view.has_pages() {
            return answer.send(reply);
        }
        let PastCache { notifier, id, range, .. } = self;
        notifier.later(move |kernel| {
            kernel.forget_pages(id, range);
            answer.send(reply);
        });
    }
}

/// The answer to a seek as far as we know, and the hole that it rests on.
struct Found {
    answer: Result<u64, ZplError>,
    hole: Range<u64>,
}

fn look(node: &Node, request: &SeekRequest) -> Result<Found, ZplError> {
    let data_from = |offset| match node.zfs.seek_data(node, offset) {
        Ok(found) => Ok((Ok(found), found)),
        Err(ZplError::PastEnd) => Ok((Err(ZplError::PastEnd), node.fields().size.max(offset))),
        Err(error) => Err(error),
    };
    if request.hole {
        let found = node.zfs.seek_hole(node, request.offset)?;
        return Ok(Found { answer: Ok(found), hole: found..data_from(found)?.1 });
    }
    let (answer, end) = data_from(request.offset)?;
    Ok(Found { answer, hole: request.offset..end })
}

/// Answers a seek; before that the kernel writes what was stored to the hole that the answer rests on.
pub(crate) fn seek_then(node: Node, request: &SeekRequest, notifier: Option<&Notifier>, answer: Answer<u64>) {
    let plain = |node: &Node| {
        if request.hole { node.zfs.seek_hole(node, request.offset) } else { node.zfs.seek_data(node, request.offset) }
    };
    let Some(notifier) = notifier.filter(|_| node.kernel.may_hide_stores()) else {
        return answer.send(plain(&node).map_err(Errno::from));
    };
    let request = *request;
    notifier.later(move |kernel| {
        let reply = settle(&node, &request, kernel);
        drop(node);
        answer.send(reply.map_err(Errno::from));
    });
}

fn settle(node: &Node, request: &SeekRequest, kernel: &Kernel) -> Result<u64, ZplError> {
    let mut written = 0..0;
    // Of data that zeros were stored over since nothing is known here.
    if node.kernel.stored.load(Ordering::Relaxed) && node.zfs.compresses() {
        written = request.offset..node.fields().size.max(request.offset);
        kernel.forget_pages(request.node, written.clone());
    }
    for _ in 0..LOOKS_MAX {
        let Found { answer, hole } = look(node, request)?;
        if hole.is_empty() || (written.start <= hole.start && hole.end <= written.end) {
            return answer;
        }
        kernel.forget_pages(request.node, hole.clone());
        written = hole;
    }
    // Somebody makes holes all the time: no hole is an answer that loses nothing.
    let size = node.fields().size;
    match request.offset {
        offset if offset >= size => Err(ZplError::PastEnd),
        _ if request.hole => Ok(size),
        offset => Ok(offset),
    }
}
