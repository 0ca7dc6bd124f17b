//! The property `bootfs`: the dataset that boot loaders take for the root file system, stored as its object (OpenZFS: `spa_bootfs`).

use super::props::{BOOTFS, props_zap};
use crate::PoolError;
use dmu::{Objset, Tx};
use std::sync::Arc;

/// The object of the dataset that was chosen.
pub(crate) fn stored(mos: &Arc<Objset>) -> Result<Option<u64>, PoolError> {
    match props_zap(mos)? {
        Some(zap) => Ok(zap.try_lookup_u64(BOOTFS)?.filter(|object| *object != 0)),
        None => Ok(None),
    }
}

/// A dataset goes: its number may be another's soon (OpenZFS: `spa_prop_clear_bootfs`).
pub(crate) fn forget(mos: &Arc<Objset>, object: u64, tx: &Tx) -> Result<(), PoolError> {
    let Some(zap) = props_zap(mos)? else { return Ok(()) };
    if zap.try_lookup_u64(BOOTFS)? == Some(object) { Ok(zap.remove(BOOTFS, tx)?) } else { Ok(()) }
}
