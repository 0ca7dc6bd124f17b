//! Removed top-level vdevs: how they are emptied, where their contents are, and what of these nobody needs any more (OpenZFS: `vdev_removal.c`,
//! `vdev_indirect.c`; docs/adr/0030).
//!
//! ```text
//!  remove ─► nothing is allocated there, logs begin elsewhere ──sync──► leaving ──each sync: copy a part──► removed ──sync, when it pays──► condensed
//!                                                                          └──cancel, a device fails──► allocating again
//! ```
//! Who does what: the sync ([`step::RemovalStep`]) alone copies, and changes the state in the MOS; [`run::Removals::drive`] has one txg synced after the other.
//!
//! # Invariants
//! 1. To find out where the contents of the vdev that was removed last are, no block is read that lies on a removed vdev; for one that was removed before,
//!    none that lies on that one or on one that was removed earlier ([`load`]).
//! 2. A range to which no block leads any more is noted with the txg that frees it there.
//! 3. What is before the end of a mapping, and allocated, has a copy; what is behind it has none. Both are of the same txg as the mapping.

mod chunks;
pub(crate) mod condense;
pub(crate) mod objects;
pub(crate) mod obsolete;
pub(crate) mod run;
pub(crate) mod step;
mod transfer;

use crate::PoolError;
use crate::spa::features::DIRECTORY;
use dmu::{Objset, Tx};
use objects::read_mapping;
use ondisk::names::mos as directory;
use ondisk::scan_state;
use ondisk::{RemovingPhys, VdevId, from_words, to_words};
use std::sync::Arc;
use vdev::VdevTree;
use zap::{Value, Zap};

/// Number in the place of a vdev where there is none.
pub(crate) const NO_VDEV: u64 = u64::MAX;

/// Reason why vdevs of a pool stay (OpenZFS: `zpool_vdev_remove`).
pub(crate) const INVALID: &str = "invalid config; all top-level vdevs must have the same sector size and not be raidz.";

/// Writes down the state of a removal (OpenZFS: `spa_sync_removing_state`).
fn write_state(mos: &Arc<Objset>, phys: &RemovingPhys, tx: &Tx) -> Result<(), PoolError> {
    Ok(Zap::hold(mos, DIRECTORY)?.update(directory::REMOVING, &Value::U64(to_words(phys)), tx)?)
}

/// State of the last removal of a pool; None of one that never had any.
pub(crate) fn read_state(mos: &Arc<Objset>) -> Result<Option<RemovingPhys>, PoolError> {
    match Zap::hold(mos, DIRECTORY)?.try_lookup(directory::REMOVING)? {
        None => Ok(None),
        Some(Value::U64(words)) => Ok(Some(from_words(&words))),
        Some(_) => Err(PoolError::Object(DIRECTORY, "the state of removals")),
    }
}

/// Reads where the contents of removed vdevs are, and of the one that is being removed as far as it is copied. Each is read with the help of those that
/// were removed after it, so that `publish` must have others know them at once (OpenZFS: `spa_remove_init`).
///
/// # Errors
/// [`PoolError::Corrupt`] when the vdevs do not name each other as they should, else those of reading.
pub(crate) fn load(
    mos: &Arc<Objset>,
    state: &RemovingPhys,
    tree: &mut VdevTree,
    publish: &mut dyn FnMut(&VdevTree),
) -> Result<(), PoolError> {
    if state.sr_state == scan_state::SCANNING {
        let id = number(state.sr_removing_vdev)?;
        let leaving = tree.tops.get(id).filter(|top| top.is_leaving && top.objects.mapping.0 != 0);
        let objects = leaving.ok_or(PoolError::Corrupt("the vdev that is being removed"))?.objects;
        tree.tops[id].mapping = Some(read_mapping(mos, &objects)?);
    }
    let mut next = Some(state.sr_prev_indirect_vdev).filter(|id| *id != NO_VDEV).map(number).transpose()?;
    while let Some(id) = next {
        let removed = tree.tops.get(id).filter(|top| top.is_removed() && top.mapping.is_none());
        let objects = removed.ok_or(PoolError::Corrupt("the list of removed vdevs"))?.objects;
        tree.tops[id].mapping = Some(read_mapping(mos, &objects)?);
        publish(tree);
        next = objects.previous.map(|VdevId(id)| id as usize);
    }
    match tree.tops.iter().any(|top| top.is_removed() && top.mapping.is_none()) {
        true => Err(PoolError::Corrupt("a removed vdev that is on no list")),
        false => Ok(()),
    }
}

fn number(id: u64) -> Result<usize, PoolError> {
    usize::try_from(id).map_err(|_| PoolError::Corrupt("the number of a removed vdev"))
}
