//! The queue of destroyed datasets: their root pointers, freed in bounded steps over many txgs (OpenZFS: `bptree.c`).
//!
//! An entry remembers where its walk paused, so a crash repeats nothing and loses nothing. The queue's object exists, and
//! the feature is active, only while there are entries. Space of what waits is charged to `$FREE`.

use super::DslPool;
use crate::DslError;
use crate::features::ASYNC_DESTROY;
use crate::meta::{LIST_BLOCK_BYTES, Usage, bump, damaged};
use crate::traverse::{Position, Walk};
use dmu::{Dnode, NewObject, Tx};
use ondisk::{BlockPtr, BookmarkPhys, BptreeEntry, BptreePhys, ObjectType};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const QUEUE_NAME: &str = "bptree_obj";
/// The object set number of what has no object set any more (OpenZFS: `ZB_DESTROYED_OBJSET`).
const DESTROYED_OBJSET: u64 = u64::MAX;
/// A txg is held up by the freeing of what was destroyed for so long: its reads give way to everybody else's (OpenZFS:
/// `zfs_free_min_time_ms`).
const FREE_TIME_NS: u64 = 1_000_000_000;

struct Queue {
    dnode: Arc<Dnode>,
    phys: BptreePhys,
}

impl Queue {
    fn open(pool: &DslPool, object: u64) -> Result<Queue, DslError> {
        let dnode = pool.meta.hold(object)?;
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

/// Where the walk of an entry goes on.
fn resume_of(entry: &BptreeEntry) -> Option<Position> {
    let zb = &entry.be_zb;
    (zb.zb_objset != 0).then_some(Position { object: zb.zb_object, block: zb.zb_blkid })
}

impl DslPool {
    /// Reads which object is the queue.
    pub(super) fn load_bptree(&self) -> Result<(), DslError> {
        let object = self.meta.directory()?.try_lookup_u64(QUEUE_NAME)?.unwrap_or(0);
        self.bptree.store(object, Ordering::Relaxed);
        Ok(())
    }

    /// Queues the blocks at `root` born after `mintxg`, which sum up to `usage`, and charges them to `$FREE`.
    pub(super) fn bptree_add(&self, root: &BlockPtr, mintxg: u64, usage: Usage, tx: &Tx) -> Result<(), DslError> {
        if self.bptree.load(Ordering::Relaxed) == 0 {
            let new = NewObject {
                block_size: LIST_BLOCK_BYTES,
                bonus_type: ObjectType::OTN_UINT64_METADATA,
                bonus_len: BptreePhys::SIZE,
                ..NewObject::new(ObjectType::OTN_UINT64_METADATA)
            };
            let object = self.meta.allocate(new, tx)?.object().0;
            self.meta.directory()?.add_u64(QUEUE_NAME, object, tx)?;
            self.meta.services.feature_add(ASYNC_DESTROY, 1, tx)?;
            self.bptree.store(object, Ordering::Relaxed);
        }
        let mut queue = Queue::open(self, self.bptree.load(Ordering::Relaxed))?;
        let mut entry: BptreeEntry = ondisk::Field::ZERO;
        entry.be_bp = *root;
        entry.be_birth_txg = mintxg;
        queue.dnode.write(Queue::place(queue.phys.bt_end), &entry.encode(), tx)?;
        queue.phys.bt_end += 1;
        bump(&mut queue.phys.bt_bytes, usage.used);
        bump(&mut queue.phys.bt_comp, usage.comp);
        bump(&mut queue.phys.bt_uncomp, usage.uncomp);
        queue.store(tx)?;
        self.charge_free(usage, tx)
    }

    /// Frees up to about `most` blocks of queued datasets and says how many.
    pub(super) fn bptree_drain(&self, most: u64, tx: &Tx) -> Result<u64, DslError> {
        let object = self.bptree.load(Ordering::Relaxed);
        if object == 0 {
            return Ok(0);
        }
        let mut queue = Queue::open(self, object)?;
        let mut count = 0;
        let until_ns = self.meta.io.exec().now_ns().saturating_add(FREE_TIME_NS);
        while queue.phys.bt_begin < queue.phys.bt_end && count < most && (count == 0 || self.meta.io.exec().now_ns() < until_ns) {
            let index = queue.phys.bt_begin;
            let mut entry = queue.entry(index)?;
            let (paused, freed, visited) = self.free_some(&entry, (most - count, until_ns), tx)?;
            count += visited;
            bump(&mut queue.phys.bt_bytes, -freed.used);
            bump(&mut queue.phys.bt_comp, -freed.comp);
            bump(&mut queue.phys.bt_uncomp, -freed.uncomp);
            self.charge_free(-freed, tx)?;
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
            self.remove_bptree(&queue, tx)?;
        }
        Ok(count)
    }

    /// Calls `visit` on every block of destroyed datasets that waits to be freed, for checks of space.
    pub fn for_each_queued(&self, visit: &mut dyn FnMut(&BlockPtr) -> Result<(), DslError>) -> Result<(), DslError> {
        let object = self.bptree.load(Ordering::Relaxed);
        if object == 0 {
            return Ok(());
        }
        let queue = Queue::open(self, object)?;
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

    /// The queue is empty: it goes. What unreadable blocks left charged moves to `$LEAK` (OpenZFS: with `zfs_free_leak_on_eio`).
    fn remove_bptree(&self, queue: &Queue, tx: &Tx) -> Result<(), DslError> {
        let left = Usage::new(queue.phys.bt_bytes, queue.phys.bt_comp, queue.phys.bt_uncomp);
        self.charge_free(-left, tx)?;
        self.charge_leak(left, tx)?;
        self.meta.directory()?.remove(QUEUE_NAME, tx)?;
        self.meta.services.feature_add(ASYNC_DESTROY, -1, tx)?;
        let object = self.bptree.swap(0, Ordering::Relaxed);
        self.meta.free_object(object, tx)
    }
}
