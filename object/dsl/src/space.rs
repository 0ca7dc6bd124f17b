//! Transactions under quotas and the pool's space (OpenZFS: `dsl_dir_tempreserve_space`, simplified to one look up the tree).
//!
//! A transaction announces what it may write; the sum over transactions of unsynced txgs counts against quotas together
//! with what is on disk. Near a limit the writer waits for the txg in flight, which may free space, and looks again.

use crate::dataset::Dataset;
use crate::dir::{Dir, TXG_SLOTS};
use crate::meta::Meta;
use crate::{DslError, PoolSpace, volume};
use dmu::{Announcement, Objset, Tx, TxgManager};
use ondisk::{ObjsetType, SECTOR_BYTES};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of txgs that a transaction waits for before it is refused. With every one what was announced becomes what was written, and
/// what was freed comes nearer to use, so that few are enough unless others are as busy.
const WAITS_MAX: u32 = 32;

/// Bytes that making a dataset or snapshot may take (OpenZFS: five blocks of 16 KiB, three copies each).
const TASK_BYTES: u64 = 3 * 5 * (16 << 10);

/// Effect of a transaction on the space in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxSpace {
    /// May need this many bytes more; refused when a quota or the pool is full.
    Writes(u64),
    /// Frees more than it writes: allowed until the very last reserve is used.
    Frees,
}

/// Ratio of compression, in hundredths.
pub(crate) fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    match compressed {
        0 => 100,
        compressed => (u128::from(uncompressed) * 100 / u128::from(compressed)) as u64,
    }
}

/// Bytes of the blocks that a dataset's data are written in: records of files at most, which have so many, blocks of a volume.
fn block_bytes(objset: &Arc<Objset>, record_bytes: u64) -> u64 {
    let of_volume = if objset.kind() == ObjsetType::ZVOL { volume::block_size(objset).ok() } else { None };
    of_volume.unwrap_or(record_bytes).max(1)
}

/// Bytes of a pool's space that are offered to datasets; `reserve` opens half of the slop too (OpenZFS: `dsl_pool_unreserved_space`).
fn offered(space: &PoolSpace, reserve: bool) -> u64 {
    let slop = if reserve { space.slop_bytes / 2 } else { space.slop_bytes };
    space.usable_bytes.saturating_sub(slop)
}

/// Result of a check of the limits.
enum Verdict {
    Fits,
    /// Wait for the txg in flight and look again; refused for this reason when that does not help.
    Wait(DslError),
    Refused(DslError),
}

/// The room of a pool, and who may have some of it.
pub(crate) struct Space {
    meta: Arc<Meta>,
    txgs: Arc<TxgManager>,
    root_dir: Arc<Dir>,
}

impl Space {
    pub(crate) fn new(meta: Arc<Meta>, txgs: Arc<TxgManager>, root_dir: Arc<Dir>) -> Space {
        Space { meta, txgs, root_dir }
    }

    /// Bytes that the pool offers to datasets; `reserve` opens half of the slop too.
    pub(crate) fn pool_bytes(&self, reserve: bool) -> u64 {
        offered(&self.meta.services.space(), reserve)
    }

    /// Bytes of the pool that may be taken when a block of an intent log is: what datasets announced and the reserve for frees are left to
    /// them. Nobody is charged for logs, so that nothing else would keep these from using up what a txg needs that is on its way.
    pub(crate) fn bytes_with_logs(&self) -> u64 {
        self.pool_bytes(true).saturating_sub(self.root_dir.inflight())
    }

    /// Checks that there is room for something new, which a full pool keeps for what gives some back (OpenZFS: `dsl_sync_task` with
    /// `ZFS_SPACE_CHECK_NORMAL`).
    pub(crate) fn check_room(&self) -> Result<(), DslError> {
        match self.room() {
            Verdict::Fits => Ok(()),
            Verdict::Wait(error) | Verdict::Refused(error) => Err(error),
        }
    }

    /// Waits until there is room for something new, as long as writers would: what was just freed is about to come. Not in syncing context.
    pub(crate) fn wait_for_room(&self) -> Result<(), DslError> {
        let mut waits = 0;
        while waits < WAITS_MAX && self.meta.services.is_writeable() && matches!(self.room(), Verdict::Wait(_)) {
            waits += 1;
            self.txgs.wait_synced(self.txgs.open_txg())?;
        }
        Ok(())
    }

    /// Checks that a refreservation is still possible once nothing is the head's own any more (OpenZFS: `dsl_dataset_snapshot_reserve_space`).
    pub(crate) fn check_promise(&self, head: &Dataset) -> Result<(), DslError> {
        let wanted = head.unique().min(head.reserved());
        if wanted > head.dir.available(self.pool_bytes(false), None) { Err(DslError::NoSpace) } else { Ok(()) }
    }

    /// Checks that there is room at `to` for bytes that are at `from` until then; what is above both has them either way (OpenZFS:
    /// `dsl_dir_transfer_possible`).
    pub(crate) fn check_transfer(&self, from: &Arc<Dir>, to: &Arc<Dir>, bytes: u64) -> Result<(), DslError> {
        let mut ancestor = Some(to.clone());
        while let Some(candidate) = &ancestor
            && !from.is_within(candidate)
        {
            ancestor = candidate.parent();
        }
        let shared = ancestor.map(|ancestor| (ancestor.object, bytes));
        if to.available(self.pool_bytes(false), shared) < bytes { Err(DslError::NoSpace) } else { Ok(()) }
    }

    fn room(&self) -> Verdict {
        let space = self.meta.services.space();
        let deferred = space.deferred_bytes;
        let offered = offered(&space, false).saturating_sub(deferred);
        let lacking = self.root_dir.used().saturating_add(TASK_BYTES).saturating_sub(offered);
        match lacking {
            0 => Verdict::Fits,
            _ if lacking <= deferred || self.root_dir.is_unsettled() => Verdict::Wait(DslError::NoSpace),
            _ => Verdict::Refused(DslError::NoSpace),
        }
    }

    /// A transaction for `dataset`. May wait.
    pub(crate) fn assign_for(&self, dataset: &Arc<Dataset>, space: TxSpace) -> Result<Tx, DslError> {
        if dataset.is_snapshot || !self.meta.services.is_writeable() {
            return Err(DslError::ReadOnly);
        }
        let (bytes, frees) = match space {
            TxSpace::Writes(bytes) => (bytes, false),
            TxSpace::Frees => (0, true),
        };
        // What it may take of the pool (OpenZFS counts 24 times the bytes for everything: `spa_get_worst_case_asize`).
        let (taken, ratio, copies) = dataset.open_objset().map_or((bytes, (1, 1), 1), |objset| {
            let props = objset.props();
            let (block, copies) = (block_bytes(&objset, props.record_size as u64), u64::from(props.copies.max(1)));
            let one = self.meta.services.worst_dsize(block).max(block).saturating_mul(copies);
            (bytes.div_ceil(block).saturating_mul(one).max(bytes), (one, block), copies)
        });
        if self.meta.services.refuses_writes() {
            dmu::TxEvent::Suspended.count();
            return Err(DslError::Suspended);
        }
        let mut waits = 0;
        loop {
            match self.look(dataset, taken, frees) {
                Verdict::Fits => break,
                Verdict::Wait(_) if waits < WAITS_MAX => {
                    waits += 1;
                    self.txgs.wait_synced(self.txgs.open_txg())?;
                }
                Verdict::Wait(error) | Verdict::Refused(error) => {
                    dmu::TxEvent::Quota.count();
                    return Err(error);
                }
            }
        }
        let mut tx = self.txgs.assign(bytes)?;
        let slot = tx.txg().0 as usize % TXG_SLOTS;
        let mut walk = Some(dataset.dir.clone());
        while let Some(dir) = walk {
            if frees {
                dir.add_free(slot);
            } else {
                dir.add_inflight(slot, taken as i64);
            }
            walk = dir.parent();
        }
        if !frees {
            // Most changes are of what is dirty already: a small pool would be announced several times in each txg, and writers wait for syncs.
            // Besides its bytes a block takes a sector's worth in each copy; metadata has one more than data.
            let block_bytes = (copies + 1) * self.meta.services.worst_dsize(SECTOR_BYTES as u64);
            tx.announce(Announcement { to: dataset.dir.clone(), bytes: taken, block_bytes, ratio });
        }
        Ok(tx)
    }

    /// Syncs the open txg; true when freed space rested before or rests afterwards.
    pub(crate) fn wait_for_freed(&self) -> Result<bool, DslError> {
        let resting = || self.meta.services.space().deferred_bytes > 0;
        let rested = resting();
        self.txgs.wait_synced(self.txgs.open_txg())?;
        Ok(rested || resting())
    }

    fn look(&self, dataset: &Arc<Dataset>, bytes: u64, frees: bool) -> Verdict {
        let mut inflight = dataset.dir.inflight();
        let refquota = dataset.refquota.load(Ordering::Relaxed);
        if !frees && refquota != 0 && dataset.referenced() + inflight >= refquota {
            // What is on disk may still be below: others announced more than they will write.
            let may_change = dataset.dir.is_unsettled() || dataset.referenced() < refquota;
            return if may_change { Verdict::Wait(DslError::Quota) } else { Verdict::Refused(DslError::Quota) };
        }
        // Space that the refreservation paid for already.
        let prepaid = dataset.reserved().saturating_sub(dataset.unique());
        let mut asked = bytes.saturating_sub(prepaid);
        let mut walk = Some(dataset.dir.clone());
        let mut used = dataset.dir.used().saturating_sub(prepaid);
        while let Some(dir) = walk {
            let parent = dir.parent();
            let mut limit = if frees || dir.quota() == 0 { u64::MAX } else { dir.quota() };
            let mut refusal = DslError::Quota;
            if parent.is_none() {
                // Asked once: it looks at every vdev.
                let space = self.meta.services.space();
                let deferred = space.deferred_bytes;
                let offered = offered(&space, frees).saturating_sub(deferred);
                if offered < limit {
                    limit = offered;
                    refusal = DslError::NoSpace;
                    if used >= limit && used - limit < deferred {
                        return Verdict::Wait(refusal);
                    }
                }
            }
            if used >= limit {
                return if dir.is_unsettled() { Verdict::Wait(refusal) } else { Verdict::Refused(refusal) };
            }
            // What was announced may take less: the sync tells. OpenZFS waits sooner, it counts what was announced 24 times.
            if limit != u64::MAX && used + inflight >= limit {
                return Verdict::Wait(refusal);
            }
            let above = dir.accounted_above(used + inflight, asked as i64);
            // What frees asks for nothing; the pool's last reserve is for it, not for it to use up.
            if above <= 0 && !frees {
                break;
            }
            asked = above.max(0) as u64;
            walk = parent;
            if let Some(parent) = &walk {
                used = parent.used();
                inflight = parent.inflight();
            }
        }
        Verdict::Fits
    }
}
