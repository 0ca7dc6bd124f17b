//! The property `bootfs`: the dataset that boot loaders take for the root file system, stored as its object (OpenZFS: `spa_bootfs`).

use crate::props::props_zap;
use crate::{Pool, PoolError};
use dmu::{Objset, Tx};
use dsl::DslError;
use ondisk::ObjsetType;
use std::sync::Arc;

/// Name of the property.
pub(crate) const BOOTFS: &str = "bootfs";

fn stored(mos: &Arc<Objset>) -> Result<Option<u64>, PoolError> {
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

impl Pool {
    /// The name of the dataset to boot from, as it is called now; None when none was chosen.
    pub(crate) fn boot_dataset(&self) -> Result<Option<String>, PoolError> {
        let Some(object) = stored(self.mos())? else { return Ok(None) };
        match self.dsl().hold_object(object) {
            Ok(dataset) => Ok(Some(dataset.name())),
            // A number that an older system left behind.
            Err(_) => Ok(None),
        }
    }

    /// Chooses it, or none with an empty name.
    ///
    /// # Errors
    /// `BadValue` for a name that is not this pool's; of a dataset that is not there, or no file system: `Dsl`.
    pub(crate) fn set_boot_dataset(&self, name: &str) -> Result<(), PoolError> {
        if name.is_empty() {
            return self.store_logged(BOOTFS, zap::Value::U8(Vec::new()), format!("{BOOTFS}=0"));
        }
        if name.split(['/', '@']).next() != Some(self.name().as_str()) {
            return Err(PoolError::BadValue);
        }
        // Held until it is stored, so that it is not destroyed meanwhile.
        let dataset = self.dsl().hold(name).map_err(|error| match error {
            DslError::BadName => PoolError::BadValue,
            other => other.into(),
        })?;
        if dataset.objset()?.kind() != ObjsetType::ZFS {
            return Err(DslError::Unsupported.into());
        }
        let object = dataset.object();
        self.store_logged(BOOTFS, zap::Value::U64(vec![object]), format!("{BOOTFS}={object}"))
    }
}
