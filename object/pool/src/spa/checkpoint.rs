//! The checkpoint of a pool: the uberblock in the MOS that can be gone back to, and what is known of it while the pool is open (OpenZFS:
//! `spa_checkpoint_txg`, `spa_checkpoint_info_t`).

use super::features::{DIRECTORY, Features};
use crate::PoolError;
use dmu::Objset;
use exec::Mutex;
use ondisk::names::mos::ZPOOL_CHECKPOINT;
use ondisk::{Txg, Uberblock, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::{Value, Zap};

/// Feature that is active from the making of a checkpoint until the end of discarding it.
pub(crate) const FEATURE: &str = "com.delphix:zpool_checkpoint";

/// Checkpoint of an open pool (OpenZFS: `pool_checkpoint_stat_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// True when it cannot be gone back to any more, and some of its space is not free yet.
    pub is_discarding: bool,
    /// Time of its state, in seconds since 1970; 0 when it was being discarded before the pool was opened.
    pub timestamp: u64,
    /// Bytes that are allocated for its sake only, by top-level vdev; those without any are left out.
    pub vdev_bytes: BTreeMap<VdevId, u64>,
}

impl CheckpointStatus {
    /// Bytes that are allocated for its sake only, parity among them.
    pub fn bytes(&self) -> u64 {
        self.vdev_bytes.values().sum()
    }

    /// The error of whoever must not have it.
    fn in_the_way(&self) -> PoolError {
        if self.is_discarding { PoolError::DiscardingCheckpoint } else { PoolError::CheckpointExists }
    }
}

/// The checkpoint of a pool, if there is one, as of the txg that is being synced.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint(Mutex<Option<CheckpointStatus>>);

impl Checkpoint {
    /// Picture of it.
    pub fn status(&self) -> Option<CheckpointStatus> {
        self.0.lock().clone()
    }

    /// True while it can be gone back to.
    pub fn exists(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|known| !known.is_discarding)
    }

    /// True while it is being discarded.
    pub fn is_discarding(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|known| known.is_discarding)
    }

    /// Refuses what must not happen while there is one, or some of one.
    pub fn check_none(&self) -> Result<(), PoolError> {
        self.0.lock().as_ref().map_or(Ok(()), |known| Err(known.in_the_way()))
    }

    /// Bytes that are allocated for its sake on a top-level vdev.
    pub fn bytes_on(&self, vdev: VdevId) -> u64 {
        self.0.lock().as_ref().and_then(|known| known.vdev_bytes.get(&vdev).copied()).unwrap_or(0)
    }

    /// Takes what is known of it from now on; None when nothing of it is left.
    pub fn set(&self, known: Option<CheckpointStatus>) {
        *self.0.lock() = known;
    }

    /// Notes that it is being discarded.
    pub fn discard(&self) {
        self.0.lock().iter_mut().for_each(|known| known.is_discarding = true);
    }

    /// Notes the bytes that are allocated for its sake on a top-level vdev.
    pub fn set_bytes(&self, vdev: VdevId, bytes: u64) {
        let mut known = self.0.lock();
        let Some(known) = known.as_mut() else { return };
        if bytes == 0 {
            known.vdev_bytes.remove(&vdev);
        } else {
            known.vdev_bytes.insert(vdev, bytes);
        }
    }
}

/// The words of an uberblock as the MOS has it (OpenZFS: `spa_checkpoint_sync`).
pub(crate) fn words_of(ub: &Uberblock) -> Value {
    let word = |raw: &[u8]| raw.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Value::U64(ub.encode().chunks_exact(8).map(word).collect())
}

/// The uberblock that can be gone back to; None without a checkpoint, and of one that is being discarded.
///
/// # Errors
/// [`PoolError::Corrupt`] of one that is none.
pub(crate) fn read(mos: &Arc<Objset>) -> Result<Option<Uberblock>, PoolError> {
    let Some(value) = Zap::hold(mos, DIRECTORY)?.try_lookup(ZPOOL_CHECKPOINT)? else { return Ok(None) };
    let bytes: Vec<u8> = value.to_u64s().iter().flat_map(|word| word.to_le_bytes()).collect();
    let damaged = PoolError::Corrupt("the checkpoint's uberblock");
    let ub = Uberblock::decode(&bytes).map_err(|_| damaged.clone())?;
    let is_sound = ub.ub_magic == Uberblock::MAGIC && ub.ub_txg != 0 && ub.ub_txg == ub.ub_checkpoint_txg;
    if is_sound { Ok(Some(ub)) } else { Err(damaged) }
}

/// Checkpoint of a pool that is being opened, without its space; with the txg of one that can be gone back to.
///
/// # Errors
/// Those of [`read`].
pub(crate) fn load(mos: &Arc<Objset>, features: &Features) -> Result<Option<(CheckpointStatus, Txg)>, PoolError> {
    if features.refs(FEATURE) == 0 {
        return Ok(None);
    }
    Ok(Some(match read(mos)? {
        Some(ub) => (CheckpointStatus { timestamp: ub.ub_timestamp, ..CheckpointStatus::default() }, ub.txg()),
        None => (CheckpointStatus { is_discarding: true, ..CheckpointStatus::default() }, Txg::ZERO),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, OpenZFS goes back to another state than the one that was kept, or refuses the pool.
    #[test]
    fn an_uberblock_is_stored_as_its_words() {
        let ub = Uberblock { ub_magic: Uberblock::MAGIC, ub_txg: 0x0102_0304_0506_0708, ub_checkpoint_txg: 9, ..Uberblock::default() };
        let Value::U64(words) = words_of(&ub) else { panic!("words") };
        assert_eq!((words.len(), words[0], words[2], words[25]), (27, Uberblock::MAGIC, 0x0102_0304_0506_0708, 9));
    }
}
