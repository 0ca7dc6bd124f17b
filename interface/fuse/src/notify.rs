//! What the server tells the kernel without being asked: to forget pages that are not what the file says any more.
//!
//! The kernel waits in such a call for requests that have the pages locked, and writes what was stored in them through a mapping.
//! So no thread that answers requests may make it, and nobody may make it while he has a lock that a READ or WRITE needs:
//! [`Notifier::later`] does the work on threads of its own. A buffered WRITE has its pages locked until it is answered; only the
//! answer of one that passed the cache by ([`crate::WriteRequest::past_cache`]) may wait for a notice of the same range.

use crate::abi;
use crate::node::NodeId;
use exec::Hands;
use rustix::fd::OwnedFd;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Worker for what involves the kernel's pages, on threads that answer no requests.
#[derive(Clone)]
pub struct Notifier {
    kernel: Kernel,
    hands: Arc<Hands>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notifier")
    }
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>, hands: Arc<Hands>) -> Notifier {
        Notifier { kernel: Kernel { device }, hands }
    }

    /// Makes the kernel ask for the attributes again of a node that is in use there (a root, an open file). Waits for nothing: it has no
    /// pages to do with.
    pub fn forget_attributes(&self, node: NodeId) {
        self.kernel.forget_attributes(node);
    }

    /// Runs `work` soon, on a thread that may talk to the kernel.
    pub fn later(&self, work: impl FnOnce(&Kernel) + Send + 'static) {
        let kernel = self.kernel.clone();
        self.hands.give(Box::new(move || work(&kernel)));
    }
}

/// Side of a mount that is the kernel's, for those who may wait for it.
#[derive(Clone, Debug)]
pub struct Kernel {
    device: Arc<OwnedFd>,
}

impl Kernel {
    /// Makes the kernel write what was stored in these pages through a mapping, and forget them and the attributes. Waits for
    /// requests under way that have one of them. Errors mean that there is nothing to forget.
    pub fn forget_pages(&self, node: NodeId, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let length = (range.end - range.start).min(i64::MAX as u64) as i64;
        self.forget(node, range.start as i64, length);
    }

    /// Makes the kernel ask for a node's attributes again. Waits while it is about to forget the node itself.
    pub fn forget_attributes(&self, node: NodeId) {
        self.forget(node, -1, 0);
    }

    /// Forgets pages and attributes; with an offset below zero attributes only.
    fn forget(&self, node: NodeId, offset: i64, length: i64) {
        let notice = abi::NotifyInvalInodeOut { ino: node.0, off: offset, len: length };
        let bytes = size_of::<abi::OutHeader>() + size_of::<abi::NotifyInvalInodeOut>();
        let head = abi::OutHeader { len: bytes as u32, error: abi::NOTIFY_INVAL_INODE, unique: 0 };
        let _ = rustix::io::writev(&self.device, &[IoSlice::new(head.as_bytes()), IoSlice::new(notice.as_bytes())]);
    }
}
