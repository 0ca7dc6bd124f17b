//! The step of a sync that makes checkpoints and discards them (OpenZFS: `spa_checkpoint.c`).
//!
//! It is the first of a txg: a checkpoint is the state of the txg before, and nothing that this one frees may be of it and lost. From then on the
//! allocator tells what blocks of it were freed, which `WriteSpace` writes down. To discard it takes its uberblock off the MOS in one txg, and in that
//! one and those after it frees what it kept, a part in each; the feature stays active until nothing is left. Each txg by itself is whole: power may
//! go off between any two.

use super::changes::{Outcome, wait_for};
use super::kept::KeptMaps;
use super::spacemap::SPACEMAP_V2;
use super::step::{SyncStep, Syncing};
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::checkpoint::{CheckpointStatus, FEATURE, words_of};
use crate::spa::features::DIRECTORY;
use crate::spa::mos_objects::create_vdev_zaps;
use dmu::{Tx, TxgManager};
use exec::Mutex;
use ondisk::names::mos::ZPOOL_CHECKPOINT;
use ondisk::{ONE_WORD_OFFSET_END, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{TopVdev, VdevTree};
use zap::Zap;

/// Bytes of a map that a txg looks at while a checkpoint is discarded, unless told otherwise (OpenZFS: `zfs_spa_discard_memory_limit`).
const DISCARD_BYTES: u64 = 16 << 20;
/// Bytes of a segment in a map at most; half of them may be debug entries.
const SEGMENT_BYTES: u64 = 32;

/// Wish of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Make a checkpoint.
    Make,
    /// Discard the one that there is.
    Discard,
}

/// Wishes that wait for the next sync, and how much a txg may discard.
#[derive(Default)]
pub(crate) struct CheckpointControl {
    wishes: Mutex<Vec<(Wish, Outcome)>>,
    /// Bytes of maps that a txg looks at; 0 until somebody says how many.
    discard_bytes: AtomicU64,
}

impl CheckpointControl {
    /// Has it done with the next txg and waits for it.
    pub fn submit(&self, txgs: &TxgManager, wish: Wish) -> Result<(), PoolError> {
        let outcome = Outcome::default();
        self.wishes.lock().push((wish, outcome.clone()));
        wait_for(&outcome, txgs)
    }

    /// Has a txg look at so many bytes of maps while a checkpoint is discarded.
    pub fn limit_discard(&self, bytes: u64) {
        self.discard_bytes.store(bytes, Ordering::Relaxed);
    }

    fn take(&self) -> Vec<(Wish, Outcome)> {
        std::mem::take(&mut *self.wishes.lock())
    }

    /// Number of segments that a txg may free.
    fn segments_max(&self) -> usize {
        let bytes = match self.discard_bytes.load(Ordering::Relaxed) {
            0 => DISCARD_BYTES,
            bytes => bytes,
        };
        usize::try_from(bytes / SEGMENT_BYTES).unwrap_or(usize::MAX).max(1)
    }
}

/// Makes and discards checkpoints, and then begins with what was freed in the txg.
pub(crate) struct CheckpointStep {
    pub spa: Arc<Spa>,
    pub control: Arc<CheckpointControl>,
    pub kept: Arc<Mutex<KeptMaps>>,
}

impl SyncStep for CheckpointStep {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        for (wish, outcome) in self.control.take() {
            let checked = match wish {
                Wish::Make => self.check_make(),
                Wish::Discard => self.check_discard(),
            };
            if checked.is_ok() {
                match wish {
                    Wish::Make => self.make(at.tx)?,
                    Wish::Discard => self.discard(at.tx)?,
                }
            }
            *outcome.lock() = Some(checked);
        }
        self.discard_part(at.tx)?;
        self.spa.io.free_ahead(at.tx.txg());
        Ok(())
    }
}

impl CheckpointStep {
    /// Looks whether a checkpoint can be made (OpenZFS: `spa_checkpoint_check`).
    fn check_make(&self) -> Result<(), PoolError> {
        let features = &self.spa.services.features;
        if !features.is_enabled(FEATURE) {
            return Err(PoolError::NeedsFeature("zpool_checkpoint"));
        }
        let (tree, two_words) = (self.spa.tree(), features.refs(SPACEMAP_V2) != 0);
        if !tree.tops.iter().filter(|top| top.is_concrete()).all(|top| two_words || is_addressable(top)) {
            return Err(PoolError::VdevTooBig);
        }
        // What is copied is freed in two places (OpenZFS: the same).
        if tree.tops.iter().any(|top| top.is_leaving) {
            return Err(PoolError::Target("device removal in progress"));
        }
        self.spa.check_no_checkpoint()
    }

    /// Looks whether there is a checkpoint to be discarded (OpenZFS: `spa_checkpoint_discard_check`).
    fn check_discard(&self) -> Result<(), PoolError> {
        let checkpoint = &self.spa.services.checkpoint;
        if checkpoint.exists() {
            return Ok(());
        }
        Err(if checkpoint.is_discarding() { PoolError::DiscardingCheckpoint } else { PoolError::NoCheckpoint })
    }

    /// Keeps the state of the txg before (OpenZFS: `spa_checkpoint_sync`).
    fn make(&self, tx: &Tx) -> Result<(), PoolError> {
        let (services, mos) = (&self.spa.services, &self.spa.mos);
        let mut ub = self.spa.config.lock().uberblock.clone();
        // Txgs without changes have no uberblock of their own: their state is that of the last one before.
        let txg = Txg(tx.txg().0.saturating_sub(1));
        (ub.ub_txg, ub.ub_checkpoint_txg) = (txg.0, txg.0);
        self.give_zaps(tx)?;
        Zap::hold(mos, DIRECTORY)?.add(ZPOOL_CHECKPOINT, &words_of(&ub), tx)?;
        services.features.add(FEATURE, 1, tx)?;
        services.allocator.set_checkpoint(txg);
        services.checkpoint.set(Some(CheckpointStatus { timestamp: ub.ub_timestamp, ..CheckpointStatus::default() }));
        services.log_internal("spa checkpoint", &format!("checkpointed uberblock txg={txg}"), tx);
        Ok(())
    }

    /// Makes sure that every vdev has a place for its map: those of pools that older software wrote last may lack one.
    fn give_zaps(&self, tx: &Tx) -> Result<(), PoolError> {
        let tree = self.spa.tree();
        if tree.tops.iter().all(|top| !top.is_concrete() || top.zap.0 != 0) {
            return Ok(());
        }
        let mut tree = VdevTree::clone(&tree);
        create_vdev_zaps(&self.spa.mos, &self.spa.services.features, &mut tree, tx)?;
        let mut config = self.spa.config.lock();
        config.take_zaps(&tree);
        config.dirty = true;
        self.spa.publish(&config);
        Ok(())
    }

    /// Takes the way back (OpenZFS: `spa_checkpoint_discard_sync`).
    fn discard(&self, tx: &Tx) -> Result<(), PoolError> {
        let services = &self.spa.services;
        Zap::hold(&self.spa.mos, DIRECTORY)?.remove(ZPOOL_CHECKPOINT, tx)?;
        services.allocator.set_checkpoint(Txg::ZERO);
        services.checkpoint.discard();
        services.log_internal("spa discard checkpoint", "started discarding checkpointed state from the pool", tx);
        Ok(())
    }

    /// Frees a part of what a checkpoint kept that is being discarded, and ends that once nothing is left.
    fn discard_part(&self, tx: &Tx) -> Result<(), PoolError> {
        let services = &self.spa.services;
        if !services.checkpoint.is_discarding() {
            return Ok(());
        }
        let mut kept = self.kept.lock();
        if kept.is_empty() {
            services.features.add(FEATURE, -1, tx)?;
            services.checkpoint.set(None);
            services.log_internal("spa discard checkpoint", "finished discarding checkpointed state from the pool", tx);
            return Ok(());
        }
        let tree = self.spa.tree();
        let freed = kept.take_last(self.control.segments_max(), &tree, (&services.features, tx))?;
        for dva in freed.iter().filter(|dva| !services.allocator.free(tx.txg(), dva)) {
            tracing::error!("vdev {}: {} bytes at {} of a checkpoint are not allocated", dva.vdev, dva.asize, dva.offset);
        }
        let bytes = kept.bytes();
        tree.tops.iter().for_each(|top| services.checkpoint.set_bytes(top.id, bytes.get(&top.id).copied().unwrap_or(0)));
        if !freed.is_empty() || kept.is_empty() {
            self.spa.txgs.kick();
        }
        Ok(())
    }
}

/// True when an entry of one word can name every byte of a vdev (OpenZFS: `vdev_is_spacemap_addressable`).
fn is_addressable(top: &TopVdev) -> bool {
    let bytes = u128::from(ONE_WORD_OFFSET_END) << top.ashift;
    bytes > u128::from(u64::MAX >> 1) || u128::from(top.asize) < bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a checkpoint is made of a vdev whose end no entry of its map can name, and its blocks there are written over.
    #[test]
    fn vdevs_beyond_the_reach_of_old_maps_are_known() {
        let top = |asize: u64, ashift: u32| TopVdev { asize, ashift, ..TopVdev::default() };
        assert!(is_addressable(&top((1 << 56) - 1, 9)) && !is_addressable(&top(1 << 56, 9)));
        assert!(is_addressable(&top(1 << 58, 12)) && is_addressable(&top(u64::MAX, 16)));
    }
}
