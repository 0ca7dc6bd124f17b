//! What one server of a mounted file system leaves to the next: what the kernel remembers of it.
//!
//! The kernel goes on with the numbers of nodes that it has, and with the files that are open, and tells nobody of them again. So the references
//! that lookups gave it are handed on: without them a file that is open and loses its last name would be deleted under whoever reads it. They
//! are few numbers for each node, and no node is read because of them before somebody asks for it.
//!
//! A server that was killed left nothing: then any node that was there before may be remembered, with pages and mappings, and one without names
//! stays until the kernel forgets it.

use crate::kernel::{KernelView, Remembered};
use exec::Mutex;
use ondisk::ObjectId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Nodes of which nobody knows whether the kernel remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// None.
    None,
    /// Nodes that the server before served.
    Old,
    /// All: what is made now was made before, and is made again.
    All,
}

/// Number of descriptors through which a node may be mapped, where nobody knows: more than are ever closed.
const WRITABLE_UNKNOWN: u32 = u32::MAX / 2;

/// Nodes that the kernel had from the server before, and nobody asked for since.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    nodes: Mutex<HashMap<u64, Remembered>>,
    has_any: AtomicBool,
    /// Nodes without any known reference that may have some: see [`Unknown`].
    unknown: AtomicU8,
}

impl Inherited {
    /// Notes nodes; to be called before anybody asks for one.
    pub(crate) fn note(&self, nodes: &[Remembered]) {
        self.nodes.lock().extend(nodes.iter().map(|node| (node.object, *node)));
        self.has_any.store(true, Ordering::Release);
    }

    /// Says of which nodes nobody knows whether they are remembered.
    pub(crate) fn set_unknown(&self, unknown: Unknown) {
        self.unknown.store(unknown as u8, Ordering::Release);
    }

    /// True when nobody knows whether a node is remembered that was there before, or is made now.
    pub(crate) fn is_unknown(&self, is_new: bool) -> bool {
        self.unknown.load(Ordering::Acquire) >= if is_new { Unknown::All } else { Unknown::Old } as u8
    }

    /// Takes what is remembered of a node that comes into memory; returns the number of references.
    pub(crate) fn take(&self, object: ObjectId, view: &KernelView) -> u64 {
        if self.is_unknown(false) {
            view.restore(&Remembered { object: object.0, references: 0, writable: WRITABLE_UNKNOWN, has_pages: true, has_stored: true });
        }
        if !self.has_any.load(Ordering::Acquire) {
            return 0;
        }
        let taken = self.nodes.lock().remove(&object.0);
        taken.inspect(|node| view.restore(node)).map_or(0, |node| node.references)
    }

    /// Gives references of a node back that is not in memory.
    pub(crate) fn forget(&self, object: ObjectId, count: u64) {
        if self.has_any.load(Ordering::Acquire) {
            let mut nodes = self.nodes.lock();
            if let Some(node) = nodes.get_mut(&object.0) {
                node.references = node.references.saturating_sub(count);
                if node.references == 0 {
                    nodes.remove(&object.0);
                }
            }
        }
    }

    /// Nodes that nobody asked for.
    pub(crate) fn all(&self) -> Vec<Remembered> {
        self.nodes.lock().values().copied().collect()
    }

    /// Forgets all of them: the end of a mount.
    pub(crate) fn clear(&self) {
        self.nodes.lock().clear();
        self.set_unknown(Unknown::None);
    }
}
