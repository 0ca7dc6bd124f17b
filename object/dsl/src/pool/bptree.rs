//! The queue of destroyed datasets: their root pointers, freed in bounded steps over many txgs (OpenZFS: `bptree.c`).
//!
//! An entry remembers where its walk paused, so a crash repeats nothing and loses nothing. The queue's object exists, and
//! the feature is active, only while there are entries. What space means to directories, who queues and drains decides.

use crate::DslError;
use crate::features::ASYNC_DESTROY;
use crate::meta::{LIST_BLOCK_BYTES, Meta, Usage, bump, damaged};
use crate::traverse::{Position, Walk};
use dmu::{Dnode, NewObject, Tx};
use ondisk::{BlockPtr, BookmarkPhys, BptreeEntry, BptreePhys, ObjectType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const QUEUE_NAME: &str = "bptree_obj";
/// The object set number of what has no object set any more (OpenZFS: `ZB_DESTROYED_OBJSET`).
const DESTROYED_OBJSET: u64 = u64::MAX;
/// A txg is held up by the freeing of what was destroyed for so long: its reads give way to everybody else's (OpenZFS:
/// `zfs_free_min_time_ms`).
pub(super) const FREE_TIME_NS: u64 = 1_000_000_000;

struct Queue {
    dnode: Arc<Dnode>,
    phys: BptreePhys,
}

impl Queue {
    fn open(meta: &Meta, object: u64) -> Result<Queue, DslError> {
        let dnode = meta.hold(object)?;
        let phys =
            BptreePhys::decode(&dnode.bonus()?).map_err(|_| damaged(object, "the bonus of the queue of destroyed datasets is short"))?;
        if phys.bt_begin > phys.bt_end || phys.bt_end > 1 << 40 {
            return Err(damaged(object, "the queue of destroyed datasets has an impossible length"));
        }
        Ok(Queue { dnode, phys })
    }
    fn store(&self, tx: &Tx) -> Result<(), DslError> {
        Ok(self.dnode.set_bonus(&self.phys.encode(), tx)?)
    }
    fn place(index: u64) -> u64 {
        index * BptreeEntry::SIZE as u64
    }
    fn entry(&self, index: u64) -> Result<BptreeEntry, DslError> {
        let mut raw = [0; BptreeEntry::SIZE];
        self.dnode.read(Queue::place(index), &mut raw)?;
        BptreeEntry::decode(&raw).map_err(|_| damaged(self.dnode.object().0, "an entry of the queue of destroyed datasets is short"))
    }
}

/// Place at which the walk of an entry goes on; `None` for the beginning.
fn resume_of(entry: &BptreeEntry) -> Option<Position> {
    let zb = &entry.be_zb;
    (zb.zb_objset != 0).then_some(Position { object: zb.zb_object, block: zb.zb_blkid })
}

/// Result of draining the queue.
pub(super) struct Drained {
    /// Blocks freed, or found gone.
    pub(super) blocks: u64,
    pub(super) freed: Usage,
    /// The queue is empty and still counts this: the caller charges it and calls [`Bptree::remove`].
    pub(super) left: Option<Usage>,
}

/// The queue of destroyed datasets.
pub(super) struct Bptree {
    meta: Arc<Meta>,
    /// Object of the queue; 0 when there is none.
    object: AtomicU64,
}

impl Bptree {
    /// Reads which object is the queue.
    pub(super) fn load(meta: Arc<Meta>) -> Result<Bptree, DslError> {
        let object = meta.directory()?.try_lookup_u64(QUEUE_NAME)?.unwrap_or(0);
        Ok(Bptree { meta, object: AtomicU64::new(object) })
    }

    /// True when nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.object.load(Ordering::Relaxed) == 0
    }

    fn open(&self) -> Result<Option<Queue>, DslError> {
        match self.object.load(Ordering::Relaxed) {
            0 => Ok(None),
            object => Queue::open(&self.meta, object).map(Some),
        }
    }

    /// Makes the queue.
    fn create(&self, tx: &Tx) -> Result<Queue, DslError> {
        let new = NewObject {
            block_size: LIST_BLOCK_BYTES,
            bonus_type: ObjectType::OTN_UINT64_METADATA,
            bonus_len: BptreePhys::SIZE,
            ..NewObject::new(ObjectType::OTN_UINT64_METADATA)
        };
        let object = self.meta.allocate(new, tx)?.object().0;
        self.meta.directory()?.add_u64(QUEUE_NAME, object, tx)?;
        self.meta.services.feature_add(ASYNC_DESTROY, 1, tx)?;
        self.object.store(object, Ordering::Relaxed);
        Queue::open(&self.meta, object)
    }

    /// Queues the blocks at `root` born after `mintxg`, which sum up to `usage`.
    pub(super) fn add(&self, root: &BlockPtr, mintxg: u64, usage: Usage, tx: &Tx) -> Result<(), DslError> {
        let mut queue = match self.open()? {
            Some(queue) => queue,
            None => self.create(tx)?,
        };
        let mut entry: BptreeEntry = ondisk::Field::ZERO;
        entry.be_bp = *root;
        entry.be_birth_txg = mintxg;
        queue.dnode.write(Queue::place(queue.phys.bt_end), &entry.encode(), tx)?;
        queue.phys.bt_end += 1;
        bump(&mut queue.phys.bt_bytes, usage.used);
        bump(&mut queue.phys.bt_comp, usage.comp);
        bump(&mut queue.phys.bt_uncomp, usage.uncomp);
        queue.store(tx)
    }

    /// Frees up to about `most` blocks of queued datasets.
    pub(super) fn drain(&self, most: u64, tx: &Tx) -> Result<Drained, DslError> {
        let mut drained = Drained { blocks: 0, freed: Usage::default(), left: None };
        let Some(mut queue) = self.open()? else { return Ok(drained) };
        let until_ns = self.meta.io.exec().now_ns().saturating_add(FREE_TIME_NS);
        let is_in_time = |blocks| blocks == 0 || self.meta.io.exec().now_ns() < until_ns;
        while queue.phys.bt_begin < queue.phys.bt_end && drained.blocks < most && is_in_time(drained.blocks) {
            let index = queue.phys.bt_begin;
            let mut entry = queue.entry(index)?;
            let (paused, freed, visited) = self.free_some(&entry, (most - drained.blocks, until_ns), tx)?;
            drained.blocks += visited;
            drained.freed += freed;
            bump(&mut queue.phys.bt_bytes, -freed.used);
            bump(&mut queue.phys.bt_comp, -freed.comp);
            bump(&mut queue.phys.bt_uncomp, -freed.uncomp);
            match paused {
                Some(at) => {
                    entry.be_zb = BookmarkPhys { zb_objset: DESTROYED_OBJSET, zb_object: at.object, zb_level: 0, zb_blkid: at.block };
                    queue.dnode.write(Queue::place(index), &entry.encode(), tx)?;
                }
                None => {
                    queue.phys.bt_begin += 1;
                    queue.dnode.free_range(Queue::place(index), BptreeEntry::SIZE as u64, tx)?;
                }
            }
            queue.store(tx)?;
        }
        if queue.phys.bt_begin == queue.phys.bt_end {
            drained.left = Some(Usage::new(queue.phys.bt_bytes, queue.phys.bt_comp, queue.phys.bt_uncomp));
        }
        Ok(drained)
    }

    /// Calls `visit` on every block that waits to be freed.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&BlockPtr) -> Result<(), DslError>) -> Result<(), DslError> {
        let Some(queue) = self.open()? else { return Ok(()) };
        for index in queue.phys.bt_begin..queue.phys.bt_end {
            let entry = queue.entry(index)?;
            let walk = Walk { resume: resume_of(&entry), ..Walk::all(&*self.meta.io, DESTROYED_OBJSET, &entry.be_bp, entry.be_birth_txg) };
            walk.run(visit)?;
        }
        Ok(())
    }

    /// Frees so many blocks of one entry, until then: where it paused, what was freed, how many.
    fn free_some(&self, entry: &BptreeEntry, (most, until_ns): (u64, u64), tx: &Tx) -> Result<(Option<Position>, Usage, u64), DslError> {
        let io = &*self.meta.io;
        let all = Walk::all(io, DESTROYED_OBJSET, &entry.be_bp, entry.be_birth_txg);
        let walk = Walk { resume: resume_of(entry), most, skip_unreadable: true, destroyed: true, until_ns, ..all };
        let (mut freed, mut visited) = (Usage::default(), 0);
        let paused = walk.run(&mut |bp| {
            freed += self.meta.usage(bp);
            visited += 1;
            if !bp.is_embedded() {
                io.free(tx.txg(), bp);
            }
            Ok(())
        })?;
        Ok((paused, freed, visited))
    }

    /// The queue is empty: it goes.
    pub(super) fn remove(&self, tx: &Tx) -> Result<(), DslError> {
        self.meta.directory()?.remove(QUEUE_NAME, tx)?;
        self.meta.services.feature_add(ASYNC_DESTROY, -1, tx)?;
        let object = self.object.swap(0, Ordering::Relaxed);
        self.meta.free_object(object, tx)
    }
}
