//! The pool's version: what old ones lack, and going to newer ones (OpenZFS: `spa_sync_version`, `spa_sync_upgrades`).
//!
//! An upgrade is one sync task: uberblock and labels have the new version with the txg that has all that it needs.

use super::Spa;
use super::config::{VERSION, is_version};
use super::services::dsl_error;
use crate::PoolError;
use dmu::{ObjsetProps, Tx};
use dsl::{DslError, DslPool, PoolServices, Upgraded};
use ondisk::names::spa_version;
use std::sync::Arc;
use vdev::{TopKind, VdevTree};

/// Ratio of a vdev whose allocated bytes count as they are.
const RAW_RATIO: u64 = 512;

/// Has all that is allocated on the vdevs count, parity too: so do pools that were made before version 3, whatever they become.
pub(crate) fn count_parity(tree: &mut VdevTree) {
    tree.tops.iter_mut().for_each(|top| top.deflate_ratio = RAW_RATIO);
}

/// Refuses vdevs with more parity than pools of this version have (OpenZFS: `vdev_raidz_init`).
pub(crate) fn check_parity(kinds: impl Iterator<Item = TopKind>, version: u64) -> Result<(), PoolError> {
    let needed = |kind: TopKind| match kind {
        TopKind::Raidz(2) => spa_version::RAIDZ2,
        TopKind::Raidz(3) => spa_version::RAIDZ3,
        _ => spa_version::INITIAL,
    };
    match kinds.map(needed).find(|needed| *needed > version) {
        Some(_) => Err(PoolError::Invalid("pool must be upgraded to add these vdevs")),
        None => Ok(()),
    }
}

impl Spa {
    /// Version of the pool.
    pub fn version(&self) -> u64 {
        self.services.version()
    }

    /// Refuses what pools before a version lack, for this reason.
    pub fn check_version(&self, needed: u64, why: &'static str) -> Result<(), PoolError> {
        if self.version() < needed { Err(PoolError::Invalid(why)) } else { Ok(()) }
    }

    /// Goes to a later version, and waits until that is on disk; the version that the pool has is none to go to, and no error.
    ///
    /// # Errors
    /// `BadValue` for a number that is no version, or an earlier one; `ReadOnly` for a pool that was imported so; those of reading the MOS.
    pub fn upgrade(self: &Arc<Spa>, to: u64) -> Result<(), PoolError> {
        self.check_writeable()?;
        if !is_version(to) {
            return Err(PoolError::BadValue);
        }
        let (look, spa) = (self.clone(), self.clone());
        let check = move |dsl: &Arc<DslPool>, _: &Tx| {
            let from = look.version();
            if to < from { Err(DslError::BadValue) } else { Ok((from, dsl.check_upgrade(from, to)?)) }
        };
        let change = move |dsl: &Arc<DslPool>, (from, found): (u64, Upgraded), tx: &Tx| {
            if from == to {
                return Ok(());
            }
            dsl.upgrade(from, to, &found, tx)?;
            spa.enter((from, to), tx).map_err(dsl_error)?;
            dsl.features_changed()
        };
        self.dsl.sync_task(check, change).map_err(|error| match error {
            DslError::BadValue => PoolError::BadValue,
            other => other.into(),
        })
    }

    /// Makes the pool's own objects of a version, and has it count from this txg on.
    fn enter(&self, (from, to): (u64, u64), tx: &Tx) -> Result<(), PoolError> {
        let services = &self.services;
        if to >= spa_version::ZPOOL_HISTORY && !services.history.exists() {
            services.history.begin(&self.mos, services.allocator.class_space().deflated_capacity, tx)?;
        }
        if from < VERSION && to >= VERSION && !services.features.exist() {
            services.features.begin(tx)?;
        }
        {
            let mut config = self.config.lock();
            (config.facts.version, config.dirty) = (to, true);
            self.publish(&config);
        }
        self.mos.set_props(ObjsetProps::mos().of_version(to));
        services.log_internal("set", &format!("version={to}"), tx);
        Ok(())
    }
}
