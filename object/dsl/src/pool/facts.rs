//! Facts about datasets that commands ask for: origin, clones, snapshots, what was written since one.

use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::meta::damaged;
use crate::{DslError, names};
use ondisk::{DslBookmarkPhys, DslDatasetPhys};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A snapshot in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The part behind `@`.
    pub name: String,
    /// Object set number of the snapshot.
    pub object: u64,
    /// Txg in which the snapshot was taken.
    pub creation_txg: u64,
    /// Seconds since the epoch.
    pub creation_time: u64,
}

impl Tree {
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
        let phys = snapshot.phys();
        let objects = match phys.ds_next_clones_obj {
            0 if phys.ds_num_children < 2 => Vec::new(),
            0 => self.heads_of_origin(snapshot.object)?,
            table => self.meta.integers(table)?,
        };
        let mut names =
            objects.into_iter().map(|object| Ok(self.dataset(object)?.dir.full_name())).collect::<Result<Vec<String>, DslError>>()?;
        names.sort();
        Ok(names)
    }

    /// Heads of all directories that begin where a snapshot is: nothing else tells that before version 11.
    fn heads_of_origin(&self, snapshot: u64) -> Result<Vec<u64>, DslError> {
        let (mut found, mut waiting) = (Vec::new(), vec![self.root_dir.clone()]);
        while let Some(dir) = waiting.pop() {
            let phys = dir.phys();
            if phys.dd_origin_obj == snapshot {
                found.push(phys.dd_head_dataset_obj);
            }
            for child in self.children_of(&dir)? {
                waiting.push(self.dir(child)?);
            }
        }
        Ok(found)
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
        Ok(self.usage_since_snapshot(dataset, old)?[0])
    }

    /// As [`Tree::written_since_snapshot`], also as they were compressed and before that.
    pub(crate) fn usage_since_snapshot(&self, dataset: &Dataset, old: &Dataset) -> Result<[u64; 3], DslError> {
        let (own, from) = (dataset.phys(), old.phys());
        let sizes =
            |phys: &DslDatasetPhys| [phys.ds_referenced_bytes, phys.ds_compressed_bytes, phys.ds_uncompressed_bytes].map(i128::from);
        let (mut written, before) = (sizes(&own), sizes(&from));
        written.iter_mut().zip(before).for_each(|(written, before)| *written -= before);
        let (mut object, mut at) = (dataset.object, own);
        while object != old.object {
            // What died since and was born before counts as there then; a list that begins at the snapshot has nothing else.
            let died = if at.ds_prev_snap_txg == from.ds_creation_txg {
                Deadlist::usage_of(&self.meta, at.ds_deadlist_obj)?
            } else {
                Deadlist::open(&self.meta, at.ds_deadlist_obj)?.usage_between(0, from.ds_creation_txg)?
            };
            let died = [died.used, died.comp, died.uncomp].map(i128::from);
            written.iter_mut().zip(died).for_each(|(written, died)| *written += died);
            object = at.ds_prev_snap_obj;
            if object == 0 {
                return Err(DslError::NotFound);
            }
            at = self.dataset(object)?.phys();
        }
        Ok(written.map(|bytes| u64::try_from(bytes).unwrap_or(0)))
    }

    /// Bytes that `dataset` has and that were not there at a bookmark which counts what is freed (OpenZFS:
    /// `dsl_dataset_space_written_bookmark`).
    pub(super) fn written_since_bookmark(&self, dataset: &Dataset, mark: &DslBookmarkPhys) -> Result<u64, DslError> {
        let (mut at, txg) = (dataset.phys(), mark.zbm_creation_txg);
        if dataset.is_snapshot && at.ds_creation_txg <= txg {
            return Err(DslError::NotFound);
        }
        let mut written = i128::from(at.ds_referenced_bytes) - i128::from(mark.zbm_referenced_bytes_refd);
        written += i128::from(mark.zbm_referenced_freed_before_next_snap);
        while at.ds_prev_snap_txg > txg {
            written += i128::from(Deadlist::open(&self.meta, at.ds_deadlist_obj)?.usage_between(0, txg)?.used);
            let (object, before) = (at.ds_prev_snap_obj, at.ds_prev_snap_txg);
            at = self.dataset(object)?.phys();
            if at.ds_prev_snap_txg >= before {
                return Err(damaged(object, "a snapshot is no younger than the one before it"));
            }
        }
        Ok(u64::try_from(written).unwrap_or(0))
    }

    /// The snapshots of these full names that are there, each once.
    pub(crate) fn snapshots_named(&self, names: &[String]) -> Result<Vec<Arc<Dataset>>, DslError> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        for name in names {
            if names::split(name)?.1.is_none() {
                return Err(DslError::NotSnapshot);
            }
            match self.find(name) {
                Ok(snapshot) if seen.insert(snapshot.object) => found.push(snapshot),
                Ok(_) | Err(DslError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The snapshots of a head, oldest first.
    pub(crate) fn snapshots_of(&self, head: &Dataset) -> Result<Vec<SnapshotEntry>, DslError> {
        let mut found = Vec::new();
        self.meta.zap(head.phys().ds_snapnames_zapobj)?.for_each(|entry| {
            found.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.first_integer));
            Ok(())
        })?;
        let mut entries = Vec::with_capacity(found.len());
        for (name, object) in found {
            let phys = self.dataset(object)?.phys();
            entries.push(SnapshotEntry { name, object, creation_txg: phys.ds_creation_txg, creation_time: phys.ds_creation_time });
        }
        entries.sort_by(|a, b| (a.creation_txg, &a.name).cmp(&(b.creation_txg, &b.name)));
        Ok(entries)
    }
}
