//! Facts about datasets that commands ask for: origin, clones, holds, what was written since a snapshot.

use super::DslPool;
use crate::DslError;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::prop::table;
use std::collections::BTreeSet;

impl DslPool {
    /// The name of the snapshot that a clone started from.
    pub(crate) fn origin_name(&self, dataset: &Dataset) -> Result<Option<String>, DslError> {
        if !self.is_clone(&dataset.dir) {
            return Ok(None);
        }
        let origin = self.dataset(dataset.dir.phys().dd_origin_obj)?;
        Ok(Some(self.full_name(&origin)?))
    }

    /// Names of the clones of a snapshot, sorted.
    pub(crate) fn clone_names(&self, snapshot: &Dataset) -> Result<Vec<String>, DslError> {
        let mut objects = Vec::new();
        let table = snapshot.phys().ds_next_clones_obj;
        if table != 0 {
            self.meta.zap(table)?.for_each(|entry| {
                objects.push(entry.first_integer);
                Ok(())
            })?;
        }
        let mut names =
            objects.into_iter().map(|object| Ok(self.dataset(object)?.dir.full_name())).collect::<Result<Vec<String>, DslError>>()?;
        names.sort();
        Ok(names)
    }

    /// Holds of users on a snapshot.
    pub(crate) fn user_refs(&self, snapshot: &Dataset) -> Result<u64, DslError> {
        match snapshot.phys().ds_userrefs_obj {
            0 => Ok(0),
            object => Ok(self.meta.zap(object)?.count()),
        }
    }

    /// Bytes that `dataset` has and its previous snapshot `prev` had not (OpenZFS: `dsl_dataset_space_written`).
    pub(crate) fn written_since(&self, dataset: &Dataset, prev: u64) -> Result<u64, DslError> {
        let phys = dataset.phys();
        let dead = Deadlist::usage_of(&self.meta, phys.ds_deadlist_obj)?;
        let before = self.dataset(prev)?.phys().ds_referenced_bytes;
        Ok(phys.ds_referenced_bytes.saturating_add(dead.used as u64).saturating_sub(before))
    }

    /// Bytes that `dataset` has and the snapshot `old`, one of those before it, had not (OpenZFS: `dsl_dataset_space_written`).
    pub(crate) fn written_since_snapshot(&self, dataset: &Dataset, old: &Dataset) -> Result<u64, DslError> {
        let (own, from) = (dataset.phys(), old.phys());
        let mut written = i128::from(own.ds_referenced_bytes) - i128::from(from.ds_referenced_bytes);
        let (mut object, mut at) = (dataset.object, own);
        while object != old.object {
            // What died since and was born before counts as there then; a list that begins at the snapshot has nothing else.
            let died = if at.ds_prev_snap_txg == from.ds_creation_txg {
                Deadlist::usage_of(&self.meta, at.ds_deadlist_obj)?
            } else {
                Deadlist::open(&self.meta, at.ds_deadlist_obj)?.usage_between(0, from.ds_creation_txg)?
            };
            written += i128::from(died.used);
            object = at.ds_prev_snap_obj;
            if object == 0 {
                return Err(DslError::NotFound);
            }
            at = self.dataset(object)?.phys();
        }
        Ok(u64::try_from(written).unwrap_or(0))
    }

    /// Names of user properties set on the dataset or above.
    pub(crate) fn user_prop_names(&self, dataset: &Dataset) -> Result<BTreeSet<String>, DslError> {
        let mut names = BTreeSet::new();
        let mut tables = vec![dataset.phys().ds_props_obj];
        let mut walk = Some(dataset.dir.clone());
        while let Some(dir) = walk {
            tables.push(dir.phys().dd_props_zapobj);
            walk = dir.parent();
        }
        for table in tables.into_iter().filter(|table| *table != 0) {
            self.meta.zap(table)?.for_each(|entry| {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                if matches!(table::find(&name), Ok(table::Prop::User(_))) {
                    names.insert(name);
                }
                Ok(())
            })?;
        }
        Ok(names)
    }
}
