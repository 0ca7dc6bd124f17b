//! Feature flags of one pool: enabled or not, and how many things use each (OpenZFS: `zfeature.c`).
//!
//! Invariant: the counts in memory equal those in the MOS as of the syncing txg; they change in syncing context only.

use super::config::VERSION;
use super::feature_table::{FEATURES, Feature, Support, feature_by_guid};
use crate::PoolError;
use dmu::{Objset, Tx};
use dsl::DslError;
use exec::{Mutex, RwLock};
use ondisk::{ObjectId, ObjectType};
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::{Value, Zap};

/// The MOS object directory (OpenZFS: `DMU_POOL_DIRECTORY_OBJECT`).
pub(crate) const DIRECTORY: ObjectId = ObjectId(1);

/// Counts vdevs with a table of shared blocks.
pub(crate) const BLOCK_CLONING: &str = "com.fudosecurity:block_cloning";
/// Counts vdevs that are for some blocks only.
pub(crate) const ALLOCATION_CLASSES: &str = "org.zfsonlinux:allocation_classes";
/// Counts dRAID vdevs.
pub(crate) const DRAID: &str = "org.openzfs:draid";
/// The error log is kept by head dataset.
pub(crate) const HEAD_ERRLOG: &str = "com.delphix:head_errlog";
/// Active while a leaf waits for the resilver after the one that goes on.
pub(crate) const RESILVER_DEFER: &str = "com.datto:resilver_defer";
/// Counts rebuilds that run.
pub(crate) const DEVICE_REBUILD: &str = "org.openzfs:device_rebuild";
/// Counts expansions of RAID-Z vdevs that began.
pub(crate) const RAIDZ_EXPANSION: &str = "org.openzfs:raidz_expansion";

const ENABLED_TXG: &str = "com.delphix:enabled_txg";

/// The feature flags of a pool.
pub(crate) struct Features {
    mos: Arc<Objset>,
    lists: RwLock<Lists>,
    state: Mutex<State>,
}

/// Objects that name the features; 0 in a pool from before feature flags.
#[derive(Clone, Copy, Debug, Default)]
struct Lists {
    for_read: ObjectId,
    for_write: ObjectId,
    descriptions: ObjectId,
}

#[derive(Debug, Default)]
struct State {
    /// Reference counts of enabled features by guid, unknown ones included.
    counts: BTreeMap<String, u64>,
    enabled_txg: Option<ObjectId>,
    /// Features needed for the MOS changed since somebody asked.
    labels_stale: bool,
}

/// Makes a ZAP and links it into the object directory (OpenZFS: `zap_create_link`).
pub(crate) fn create_linked_zap(mos: &Arc<Objset>, name: &str, kind: ObjectType, tx: &Tx) -> Result<ObjectId, PoolError> {
    let object = zap::create(mos, kind, tx)?;
    Zap::hold(mos, DIRECTORY)?.add_u64(name, object.0, tx)?;
    Ok(object)
}

impl Features {
    /// Makes the feature objects of a new pool (OpenZFS: `spa_feature_create_zap_objects`).
    pub fn create(mos: &Arc<Objset>, tx: &Tx) -> Result<Features, PoolError> {
        let features = Features { mos: mos.clone(), lists: RwLock::default(), state: Mutex::default() };
        features.begin(tx)?;
        Ok(features)
    }

    /// Makes the feature objects of a pool from before feature flags; none is enabled yet.
    pub fn begin(&self, tx: &Tx) -> Result<(), PoolError> {
        let link = |name| create_linked_zap(&self.mos, name, ObjectType::OTN_ZAP_METADATA, tx);
        *self.lists.write() = Lists {
            for_read: link("features_for_read")?,
            for_write: link("features_for_write")?,
            descriptions: link("feature_descriptions")?,
        };
        Ok(())
    }

    fn lists(&self) -> Lists {
        *self.lists.read()
    }

    /// Reads the features of a pool; a pool from before feature flags has none.
    pub fn open(mos: &Arc<Objset>) -> Result<Features, PoolError> {
        let directory = Zap::hold(mos, DIRECTORY)?;
        let object = |name| directory.try_lookup_u64(name).map(|found| ObjectId(found.unwrap_or(0)));
        let mut state = State { enabled_txg: directory.try_lookup_u64("feature_enabled_txg")?.map(ObjectId), ..State::default() };
        let (for_read, for_write) = (object("features_for_read")?, object("features_for_write")?);
        for list in [for_read, for_write].into_iter().filter(|list| list.0 != 0) {
            Zap::hold(mos, list)?.for_each(|entry| {
                state.counts.insert(String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer);
                Ok(())
            })?;
        }
        let lists = Lists { for_read, for_write, descriptions: object("feature_descriptions")? };
        Ok(Features { mos: mos.clone(), lists: RwLock::new(lists), state: Mutex::new(state) })
    }

    /// Refuses a pool with active features that it can't be used with.
    pub fn check(&self, read_only: bool) -> Result<(), PoolError> {
        let state = self.state.lock();
        let active = state.counts.iter().filter(|(_, count)| **count != 0).map(|(guid, _)| guid.as_str());
        let (mut refused, mut all_readable) = (Vec::new(), true);
        for guid in active {
            let support = match feature_by_guid(guid) {
                Some(feature) => feature.support,
                None if self.is_listed_for_write(guid) => Support::Read,
                None => Support::None,
            };
            let readable = support != Support::None;
            if !readable || (!read_only && support == Support::Read) {
                refused.push(guid.to_string());
                all_readable &= readable;
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        Err(PoolError::UnsupportedFeatures { features: refused, read_only: all_readable && !read_only })
    }

    fn is_listed_for_write(&self, guid: &str) -> bool {
        let list = self.lists().for_write;
        list.0 != 0 && Zap::hold(&self.mos, list).and_then(|list| list.contains(guid)).unwrap_or(false)
    }

    /// True when pools of this kind of version have features at all.
    pub fn exist(&self) -> bool {
        self.lists().for_read.0 != 0
    }
    /// True when the feature is enabled.
    pub fn is_enabled(&self, guid: &str) -> bool {
        self.state.lock().counts.contains_key(guid)
    }
    /// Reference count of the feature: the number of things that use it.
    pub fn refs(&self, guid: &str) -> u64 {
        self.state.lock().counts.get(guid).copied().unwrap_or(0)
    }
    /// Guid and reference count of every enabled feature.
    pub fn list(&self) -> Vec<(String, u64)> {
        self.state.lock().counts.iter().map(|(guid, count)| (guid.clone(), *count)).collect()
    }
    /// Active features that labels must name, in the table's order.
    pub fn mos_features(&self) -> Vec<String> {
        let state = self.state.lock();
        let needed = FEATURES.iter().filter(|feature| feature.needed_for_mos);
        let active = needed.filter(|feature| state.counts.get(feature.guid).is_some_and(|count| *count != 0));
        active.map(|feature| feature.guid.to_string()).collect()
    }
    /// True once after the set of [`Features::mos_features`] may have changed.
    pub fn take_labels_stale(&self) -> bool {
        std::mem::take(&mut self.state.lock().labels_stale)
    }

    fn write_count(&self, feature: &Feature, count: u64, tx: &Tx) -> Result<(), PoolError> {
        let lists = self.lists();
        let list = if feature.read_only_compatible { lists.for_write } else { lists.for_read };
        Zap::hold(&self.mos, list)?.update_u64(feature.guid, count, tx)?;
        let mut state = self.state.lock();
        let before = state.counts.insert(feature.guid.to_string(), count).unwrap_or(0);
        state.labels_stale |= feature.needed_for_mos && (before == 0) != (count == 0);
        Ok(())
    }

    /// Changes a reference count (OpenZFS: `spa_feature_incr`, `spa_feature_decr`).
    pub fn add(&self, guid: &str, delta: i64, tx: &Tx) -> Result<(), PoolError> {
        let feature = feature_by_guid(guid).ok_or(PoolError::Invalid("no such feature"))?;
        let count = self.state.lock().counts.get(guid).copied().ok_or(PoolError::Invalid("the feature is not enabled"))?;
        let count = count.checked_add_signed(delta).ok_or(PoolError::Corrupt("reference count of a feature"))?;
        self.write_count(feature, count, tx)
    }

    /// Enables a feature and what it depends on (OpenZFS: `feature_enable_sync`).
    pub fn enable(&self, guid: &str, tx: &Tx) -> Result<(), PoolError> {
        if self.is_enabled(guid) {
            return Ok(());
        }
        if !self.exist() {
            return Err(PoolError::Dsl(DslError::OldVersion(VERSION)));
        }
        let feature = feature_by_guid(guid).ok_or(PoolError::Invalid("no such feature"))?;
        for dependency in feature.depends {
            self.enable(dependency, tx)?;
        }
        let descriptions = Zap::hold(&self.mos, self.lists().descriptions)?;
        descriptions.update(guid, &Value::from_str_with_nul(feature.description), tx)?;
        self.write_count(feature, u64::from(feature.activate_on_enable), tx)?;
        if !self.is_enabled(ENABLED_TXG) {
            return Ok(());
        }
        let known = self.state.lock().enabled_txg;
        let object = match known {
            Some(object) => object,
            None => create_linked_zap(&self.mos, "feature_enabled_txg", ObjectType::OTN_ZAP_METADATA, tx)?,
        };
        self.state.lock().enabled_txg = Some(object);
        self.add(ENABLED_TXG, 1, tx)?;
        Zap::hold(&self.mos, object)?.add_u64(guid, tx.txg().0, tx)?;
        Ok(())
    }
}
