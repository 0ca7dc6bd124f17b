//! What one server of a mounted file system leaves to the next: what the kernel remembers of it.
//!
//! The kernel goes on with the numbers of nodes that it has, and with the files that are open, and tells nobody of them again. So the references
//! that lookups gave it are handed on: without them a file that is open and loses its last name would be deleted under whoever reads it. They
//! are few numbers for each node, and no node is read because of them before somebody asks for it.

use crate::kernel::{KernelView, Remembered};
use exec::Mutex;
use ondisk::ObjectId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Nodes that the kernel had from the server before, and nobody asked for since.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    nodes: Mutex<HashMap<u64, Remembered>>,
    has_any: AtomicBool,
}

impl Inherited {
    /// Notes nodes; to be called before anybody asks for one.
    pub(crate) fn note(&self, nodes: &[Remembered]) {
        self.nodes.lock().extend(nodes.iter().map(|node| (node.object, *node)));
        self.has_any.store(true, Ordering::Release);
    }

    /// Takes what is remembered of a node that comes into memory; returns the number of references.
    pub(crate) fn take(&self, object: ObjectId, view: &KernelView) -> u64 {
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
    }
}
