//! Synchronous writes that nobody waits for: those who may wait commit their own, a few at a time; an operation commits all others that came
//! meanwhile at once, and answers them.

use super::WriteThen;
use crate::store::Store;
use exec::Mutex;
use ondisk::{ObjectId, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that commit their own writes at a time, at most: those that serve a pool's requests are few, and others want them too.
const OWN_MAX: usize = 4;

/// Write that is done and not durable yet.
pub(super) struct Unstable {
    pub object: ObjectId,
    /// Txg of the write.
    pub txg: Txg,
    /// Number of bytes that were written.
    pub length: u64,
    pub then: WriteThen,
}

/// Committer of the synchronous writes of a file system.
pub(super) struct Stable {
    store: Arc<Store>,
    waiting: Mutex<Vec<Unstable>>,
    /// Threads that commit their own writes now.
    own: AtomicUsize,
}

impl Stable {
    pub(super) fn new(store: Arc<Store>) -> Stable {
        Stable { store, waiting: Mutex::default(), own: AtomicUsize::new(0) }
    }

    /// Commits a write on this thread, which may wait, and answers it; without waiting where enough others do that.
    pub(super) fn commit_or_answer(self: &Arc<Self>, write: Unstable) {
        if self.own.fetch_add(1, Ordering::AcqRel) < OWN_MAX {
            let result = self.store.commit(&[write.object], write.txg);
            self.own.fetch_sub(1, Ordering::AcqRel);
            return (write.then)(result.map(|()| write.length));
        }
        self.own.fetch_sub(1, Ordering::AcqRel);
        self.answer(write);
    }

    /// Answers a write when it is durable, without waiting for that. Not under an executor without threads.
    pub(super) fn answer(self: &Arc<Self>, write: Unstable) {
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.push(write);
            waiting.len() == 1
        };
        if is_first {
            let own = self.clone();
            // Detached: it ends when it has answered.
            drop(self.store.exec.spawn_operation("z-write-sync", Box::new(move || own.commit())));
        }
    }

    fn commit(&self) {
        // Who comes from now on starts an operation of his own, whose commit goes with others that are under way.
        let writes = std::mem::take(&mut *self.waiting.lock());
        let mut objects: Vec<ObjectId> = writes.iter().map(|write| write.object).collect();
        objects.sort_unstable();
        objects.dedup();
        let newest = writes.iter().map(|write| write.txg).max().unwrap_or(Txg(0));
        let result = self.store.commit(&objects, newest);
        for Unstable { length, then, .. } in writes {
            then(result.map(|()| length));
        }
    }
}
