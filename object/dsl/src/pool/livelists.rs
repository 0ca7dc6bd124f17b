//! The queue of livelists of destroyed clones: their live blocks are freed one sublist at a time, over many txgs (OpenZFS:
//! `spa_livelist_delete_cb`).
//!
//! A sublist and what it holds go in one txg, so that a crash repeats nothing and loses nothing. One that cannot be read, or that frees what it
//! does not have, costs the space of its blocks: no more can be told of them. The queue is a set of objects that exists while there are some.

use crate::DslError;
use crate::bpobj::passes;
use crate::deadlist::Deadlist;
use crate::livelist;
use crate::meta::{Meta, Usage};
use dmu::Tx;
use ondisk::{BlockPtr, ObjectType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the queue in the pool directory (OpenZFS: `DMU_POOL_DELETED_CLONES`).
const QUEUE_NAME: &str = "com.delphix:deleted_clones";

/// The queue of livelists of destroyed clones.
pub(super) struct Livelists {
    meta: Arc<Meta>,
    /// Object of the queue; 0 when there is none.
    object: AtomicU64,
}

impl Livelists {
    /// Reads which object is the queue.
    pub(super) fn load(meta: Arc<Meta>) -> Result<Livelists, DslError> {
        let object = meta.directory()?.try_lookup_u64(QUEUE_NAME)?.unwrap_or(0);
        Ok(Livelists { meta, object: AtomicU64::new(object) })
    }

    /// True when nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.object.load(Ordering::Relaxed) == 0
    }

    /// Livelists that wait.
    fn waiting(&self) -> Result<Vec<u64>, DslError> {
        match self.object.load(Ordering::Relaxed) {
            0 => Ok(Vec::new()),
            object => self.meta.integers(object),
        }
    }

    /// Queues a livelist, which stays counted.
    pub(super) fn add(&self, list: u64, tx: &Tx) -> Result<(), DslError> {
        if self.is_empty() {
            let object = self.meta.create_zap(ObjectType::OTN_ZAP_METADATA, tx)?;
            self.meta.directory()?.add_u64(QUEUE_NAME, object, tx)?;
            self.object.store(object, Ordering::Relaxed);
        }
        Ok(self.meta.zap(self.object.load(Ordering::Relaxed))?.add_int(list, tx)?)
    }

    /// Frees about so many blocks, in whole sublists, or until then; gives how many there were, and their space.
    pub(super) fn drain(&self, (most, until_ns): (u64, u64), tx: &Tx) -> Result<(u64, Usage), DslError> {
        let (mut blocks, mut freed) = (0, Usage::default());
        if self.is_empty() {
            return Ok((blocks, freed));
        }
        let waiting = match self.waiting() {
            Ok(waiting) => waiting,
            Err(error) => {
                passes(error)?;
                self.end(tx)?;
                return Ok((blocks, freed));
            }
        };
        for list in waiting {
            loop {
                if blocks >= most || (blocks > 0 && self.meta.io.exec().now_ns() >= until_ns) {
                    return Ok((blocks, freed));
                }
                let Some(live) = self.take_sublist(list, tx)? else { break };
                for bp in &live {
                    freed += self.meta.usage(bp);
                    self.meta.io.free(tx.txg(), bp);
                }
                blocks += live.len() as u64;
            }
            self.remove(list, tx)?;
        }
        self.end(tx)?;
        Ok((blocks, freed))
    }

    /// Takes the first sublist off a livelist and gives its live blocks, none of one that cannot be told; None when there is no sublist left.
    fn take_sublist(&self, list: u64, tx: &Tx) -> Result<Option<Vec<BlockPtr>>, DslError> {
        let mut open = match Deadlist::open_keyed(&self.meta, list) {
            Ok(open) => open,
            Err(error) => return passes(error).map(|()| None),
        };
        let Some((key, sublist)) = open.entries().first().copied() else { return Ok(None) };
        let live = match livelist::live_blocks(&self.meta, sublist) {
            Ok(live) => live,
            Err(error) => {
                passes(error)?;
                Vec::new()
            }
        };
        open.remove_entry(key, tx)?;
        Ok(Some(live))
    }

    /// Removes a livelist that has no sublists any more.
    fn remove(&self, list: u64, tx: &Tx) -> Result<(), DslError> {
        // A damaged queue may have it under another name.
        let queue = self.meta.zap(self.object.load(Ordering::Relaxed))?;
        queue.remove_int(list, tx).map_err(DslError::from).or_else(passes)?;
        livelist::free(&self.meta, list, tx)
    }

    /// Nothing waits, or nobody can read what does: the queue goes.
    fn end(&self, tx: &Tx) -> Result<(), DslError> {
        self.meta.directory()?.remove(QUEUE_NAME, tx)?;
        let object = self.object.swap(0, Ordering::Relaxed);
        self.meta.free_object(object, tx).or_else(passes)
    }

    /// Calls `visit` on every block that waits to be freed.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&BlockPtr) -> Result<(), DslError>) -> Result<(), DslError> {
        for list in self.waiting()? {
            for (_, sublist) in Deadlist::open_keyed(&self.meta, list)?.entries() {
                livelist::live_blocks(&self.meta, sublist)?.iter().try_for_each(&mut *visit)?;
            }
        }
        Ok(())
    }
}
