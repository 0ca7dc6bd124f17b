//! The name space: directories and datasets in memory, one of each object, and lookup by name.

use super::keystore::Keystore;
use super::waiting::WaitingLogs;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::ledger::DirtySets;
use crate::meta::{Meta, damaged};
use crate::prop::Stored;
use crate::{DslError, HistoryEvent, keys, names};
use dmu::{Objset, ObjsetProps, Tx};
use exec::Mutex;
use ondisk::{ObjectType, ObjsetType, ds_flags};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zap::{Match, ZapError};

/// Directories and datasets of a pool, in memory once they were looked at.
pub(crate) struct Tree {
    pub(crate) meta: Arc<Meta>,
    pub(crate) stored: Stored,
    pub(crate) keystore: Keystore,
    /// Logs of encrypted datasets that wait for their keys.
    pub(crate) waiting: Arc<WaitingLogs>,
    pub(super) root_dir: Arc<Dir>,
    dirs: Mutex<HashMap<u64, Arc<Dir>>>,
    datasets: Mutex<HashMap<u64, Arc<Dataset>>>,
    dirty: Arc<DirtySets>,
    /// The pool's empty snapshot that new datasets start from; 0 in pools that have none.
    origin_snap: AtomicU64,
    /// Number of the erratum that a dataset was found to have; 0 without one.
    erratum: AtomicU64,
}

impl Tree {
    /// A name space in which nothing but the root was looked at.
    pub(super) fn new(meta: Arc<Meta>, root_dir: Arc<Dir>) -> Tree {
        Tree {
            stored: Stored::new(meta.clone()),
            keystore: Keystore::default(),
            waiting: Arc::default(),
            dirs: Mutex::new(HashMap::from([(root_dir.object, root_dir.clone())])),
            datasets: Mutex::default(),
            dirty: Arc::default(),
            origin_snap: AtomicU64::new(0),
            erratum: AtomicU64::new(0),
            root_dir,
            meta,
        }
    }

    /// Datasets that are dirty, by txg slot.
    pub(super) fn dirty(&self) -> &DirtySets {
        &self.dirty
    }

    /// Sets the snapshot that new datasets start from: the one of this head.
    pub(super) fn set_origin(&self, head: u64) -> Result<(), DslError> {
        let snap = self.dataset(head)?.phys().ds_prev_snap_obj;
        self.origin_snap.store(snap, Ordering::Relaxed);
        Ok(())
    }

    /// A directory of the pool's own (`$FREE`) by its name.
    pub(super) fn special_dir(&self, name: &str) -> Result<Option<Arc<Dir>>, DslError> {
        let children = self.meta.zap(self.root_dir.phys().dd_child_dir_zapobj)?;
        children.try_lookup_u64(name)?.map(|object| self.dir_known(object, self.root_dir.clone(), name.to_string())).transpose()
    }

    /// The txg of this slot is on disk: what its transactions announced is counted.
    pub(super) fn clear_inflight(&self, slot: usize) {
        for dir in self.dirs.lock().values() {
            dir.clear_inflight(slot);
        }
    }

    // ---- objects in memory ----

    pub(crate) fn dir(&self, object: u64) -> Result<Arc<Dir>, DslError> {
        if let Some(dir) = self.dirs.lock().get(&object) {
            return Ok(dir.clone());
        }
        let bonus = self.meta.hold(object)?.bonus()?;
        let phys = ondisk::DslDirPhys::decode(&bonus).map_err(|_| damaged(object, "the record of a DSL directory is short"))?;
        if phys.dd_parent_obj == 0 || phys.dd_parent_obj == object {
            return Err(damaged(object, "a DSL directory has no parent"));
        }
        let parent = self.dir(phys.dd_parent_obj)?;
        let name = self.meta.zap(parent.phys().dd_child_dir_zapobj)?.value_search(object, 0)?;
        self.dir_known(object, parent, String::from_utf8_lossy(&name).into_owned())
    }

    pub(super) fn dir_known(&self, object: u64, parent: Arc<Dir>, name: String) -> Result<Arc<Dir>, DslError> {
        if let Some(dir) = self.dirs.lock().get(&object) {
            return Ok(dir.clone());
        }
        let dir = Dir::load(&self.meta, object, Some(parent), name)?;
        Ok(self.dirs.lock().entry(object).or_insert(dir).clone())
    }

    pub(crate) fn dataset(&self, object: u64) -> Result<Arc<Dataset>, DslError> {
        if let Some(dataset) = self.datasets.lock().get(&object) {
            return Ok(dataset.clone());
        }
        let dataset = Dataset::load(&self.meta, object, &self.dirty, |dir| self.dir(dir))?;
        if !dataset.is_snapshot {
            let (quota, reservation) = self.stored.ref_limits(&dataset)?;
            dataset.refquota.store(quota, Ordering::Relaxed);
            dataset.refreservation.store(reservation, Ordering::Relaxed);
        }
        // Keys that cannot be read are found where somebody asks for them.
        if let Ok(number @ 1..) = keys::erratum_of(&self.meta, &dataset) {
            self.note_erratum(number);
        }
        Ok(self.datasets.lock().entry(object).or_insert(dataset).clone())
    }

    /// Erratum of the pool, as far as its datasets were looked at since it was opened.
    pub(super) fn erratum(&self) -> u64 {
        self.erratum.load(Ordering::Relaxed)
    }

    /// Remembers an erratum until the pool is opened again; that of keys counts before others, since it keeps datasets from being written.
    fn note_erratum(&self, number: u64) {
        if number == keys::ERRATUM_KEYS || self.erratum() == 0 {
            self.erratum.store(number, Ordering::Relaxed);
        }
    }

    /// The full name of a dataset that is in memory; of a snapshot as far as that is.
    pub(super) fn known_name(&self, object: u64) -> Option<String> {
        let dataset = self.datasets.lock().get(&object).cloned()?;
        let name = dataset.dir.full_name();
        Some(if dataset.is_snapshot { format!("{name}@") } else { name })
    }

    /// Encrypted datasets of which somebody read the contents since their keys were loaded.
    pub(super) fn unlocked_datasets(&self) -> Vec<Arc<Dataset>> {
        // Asking waits for who is just opening one, and he may look for others.
        let all: Vec<Arc<Dataset>> = self.datasets.lock().values().cloned().collect();
        all.into_iter().filter(|dataset| dataset.is_unlocked()).collect()
    }

    /// Drops a dataset from memory that was destroyed, or whose record is to be read anew.
    pub(super) fn forget(&self, dataset: &Dataset) {
        self.forget_contents(dataset);
        self.datasets.lock().remove(&dataset.object);
    }

    /// Drops the contents of a dataset from memory. It may be dirty in the open txg too: that dirt is gone with them.
    pub(super) fn forget_contents(&self, dataset: &Dataset) {
        dataset.set_objset(None);
        self.dirty.remove(dataset.object);
    }

    /// The head dataset of a directory.
    pub(crate) fn head(&self, dir: &Dir) -> Result<Arc<Dataset>, DslError> {
        self.dataset(dir.phys().dd_head_dataset_obj)
    }

    pub(super) fn origin_snap(&self) -> Option<Result<Arc<Dataset>, DslError>> {
        match self.origin_snap.load(Ordering::Relaxed) {
            0 => None,
            object => Some(self.dataset(object)),
        }
    }

    /// Notes that a dataset begins where a snapshot is (OpenZFS: `ds_next_clones_obj`).
    pub(super) fn add_next_clone(&self, snapshot: &Dataset, object: u64, tx: &Tx) -> Result<(), DslError> {
        let table = match snapshot.phys().ds_next_clones_obj {
            0 => {
                let table = self.meta.create_zap(ObjectType::NEXT_CLONES, tx)?;
                snapshot.update(tx, |phys| phys.ds_next_clones_obj = table)?;
                table
            }
            table => table,
        };
        Ok(self.meta.zap(table)?.add_int(object, tx)?)
    }

    /// Takes a dataset out of the table of those that begin where a snapshot is; upgrades by old systems could leave it out there (OpenZFS:
    /// `dsl_dataset_remove_from_next_clones`).
    pub(super) fn remove_next_clone(&self, table: u64, object: u64, tx: &Tx) -> Result<(), DslError> {
        match self.meta.zap(table)?.remove_int(object, tx) {
            Err(ZapError::NotFound) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Notes that a head is a clone of a snapshot of this directory (OpenZFS: `dd_clones`).
    pub(super) fn add_clone(&self, origin: &Dir, head: u64, tx: &Tx) -> Result<(), DslError> {
        let table = origin.clones_table(&self.meta, tx)?;
        Ok(self.meta.zap(table)?.add_int(head, tx)?)
    }

    /// True when the directory is a real clone: its origin is not the pool's empty one (OpenZFS: `dsl_dir_is_clone`).
    pub(crate) fn is_clone(&self, dir: &Dir) -> bool {
        let origin = dir.phys().dd_origin_obj;
        origin != 0 && origin != self.origin_snap.load(Ordering::Relaxed)
    }

    /// The txg of the snapshot that a clone starts from; 0 for what is not a clone.
    pub(crate) fn origin_txg(&self, dir: &Dir) -> Result<u64, DslError> {
        if self.is_clone(dir) { Ok(self.dataset(dir.phys().dd_origin_obj)?.phys().ds_creation_txg) } else { Ok(0) }
    }

    // ---- lookup by name ----

    /// The directory of a dataset by its full name.
    pub(crate) fn find_dir(&self, name: &str) -> Result<Arc<Dir>, DslError> {
        let mut components = name.split('/');
        if components.next() != Some(self.root_dir.name().as_str()) {
            return Err(DslError::NotFound);
        }
        let mut dir = self.root_dir.clone();
        for component in components {
            let children = self.meta.zap(dir.phys().dd_child_dir_zapobj)?;
            let object = children.try_lookup_u64(component)?.ok_or(DslError::NotFound)?;
            dir = self.dir_known(object, dir, component.to_string())?;
        }
        Ok(dir)
    }

    /// The dataset of this full name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Dataset>, DslError> {
        let (name, snapshot) = names::split(name)?;
        let dir = self.find_dir(name)?;
        let head = self.head(&dir)?;
        match snapshot {
            None => Ok(head),
            Some(snapshot) => self.find_snapshot(&head, snapshot),
        }
    }

    /// A snapshot of `head` by the part behind `@` (OpenZFS: `dsl_dataset_snap_lookup`).
    pub(crate) fn find_snapshot(&self, head: &Dataset, name: &str) -> Result<Arc<Dataset>, DslError> {
        let phys = head.phys();
        let table = self.meta.zap(phys.ds_snapnames_zapobj)?;
        let object = if phys.ds_flags & ds_flags::CI_DATASET != 0 {
            match table.lookup_norm(name, Match::Normalize) {
                Ok(found) => found.value.as_u64(),
                Err(zap::ZapError::NotFound) => None,
                Err(error) => return Err(error.into()),
            }
        } else {
            table.try_lookup_u64(name)?
        };
        let snapshot = self.dataset(object.ok_or(DslError::NotFound)?)?;
        *snapshot.snapname.write() = Some(name.to_string());
        Ok(snapshot)
    }

    /// The part behind `@` of a snapshot.
    pub(crate) fn snapshot_name(&self, snapshot: &Dataset) -> Result<String, DslError> {
        if let Some(name) = snapshot.snapname.read().clone() {
            return Ok(name);
        }
        let head = self.head(&snapshot.dir)?;
        let name = self.meta.zap(head.phys().ds_snapnames_zapobj)?.value_search(snapshot.object, 0)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        *snapshot.snapname.write() = Some(name.clone());
        Ok(name)
    }

    /// The full name of a dataset.
    pub(crate) fn full_name(&self, dataset: &Dataset) -> Result<String, DslError> {
        let name = dataset.dir.full_name();
        if dataset.is_snapshot { Ok(format!("{name}@{}", self.snapshot_name(dataset)?)) } else { Ok(name) }
    }

    /// Last components of the names of a dataset's children, sorted. Names that no dataset may have come from hostile or damaged pools: no
    /// verb could take them, and they are left out.
    pub(super) fn child_names(&self, name: &str) -> Result<Vec<String>, DslError> {
        let dir = self.find_dir(name)?;
        let mut names = Vec::new();
        self.meta.zap(dir.phys().dd_child_dir_zapobj)?.for_each(|entry| {
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            Ok(())
        })?;
        names.retain(|name| !name.starts_with('$') && !name.starts_with('%'));
        names.retain(|child| {
            let is_valid = names::check_component(child).is_ok();
            if !is_valid {
                tracing::debug!("dataset '{name}': a child called '{}' is left out: no dataset may have this name", child.escape_debug());
            }
            is_valid
        });
        names.sort();
        Ok(names)
    }

    // ---- what datasets are ----

    /// The object set of a dataset, opened with the properties that it has.
    pub(crate) fn objset(&self, dataset: &Dataset) -> Result<Arc<Objset>, DslError> {
        dataset.objset(&self.meta, || self.objset_props(dataset))
    }

    /// Properties that a dataset's object set follows.
    pub(crate) fn objset_props(&self, dataset: &Dataset) -> Result<ObjsetProps, DslError> {
        let props = self.stored.objset_props(dataset)?;
        let facts = keys::facts_of(&self.meta, &dataset.dir).unwrap_or(None);
        let most = facts.map_or(usize::MAX, |facts| facts.record_bytes_max());
        Ok(ObjsetProps { record_size: props.record_size.min(most), ..props })
    }

    /// Kind of a dataset: file system or volume.
    pub(super) fn kind_of(&self, dataset: &Dataset) -> Result<ObjsetType, DslError> {
        Ok(self.objset(dataset)?.kind())
    }

    /// The parent directory of a new dataset, after a look that the name is free.
    pub(super) fn check_new(&self, parent: &str, last: &str) -> Result<Arc<Dir>, DslError> {
        let parent = self.find_dir(parent)?;
        if self.meta.zap(parent.phys().dd_child_dir_zapobj)?.contains(last)? {
            return Err(DslError::Exists);
        }
        let head = self.head(&parent)?;
        if self.kind_of(&head)? == ObjsetType::ZVOL {
            return Err(DslError::ParentNotFilesystem);
        }
        Ok(parent)
    }

    /// Objects of the directories below one, those of the pool itself among them.
    pub(super) fn children_of(&self, dir: &Dir) -> Result<Vec<u64>, DslError> {
        self.meta.integers(dir.phys().dd_child_dir_zapobj)
    }

    /// Drops a destroyed directory from memory.
    pub(super) fn forget_dir(&self, dir: &Dir) {
        self.dirs.lock().remove(&dir.object);
    }

    /// Gives the object sets at and below a directory their properties anew.
    pub(super) fn refresh_props(&self, dir: &Arc<Dir>) -> Result<(), DslError> {
        let open: Vec<Arc<Dataset>> =
            self.datasets.lock().values().filter(|dataset| !dataset.is_snapshot && dataset.open_objset().is_some()).cloned().collect();
        for dataset in open {
            if let Some(objset) = dataset.open_objset()
                && dataset.dir.is_within(dir)
            {
                objset.set_props(self.objset_props(&dataset)?);
            }
        }
        Ok(())
    }

    /// Writes a line of history about a dataset.
    pub(super) fn log(&self, name: &'static str, object: u64, text: String, tx: &Tx) -> Result<(), DslError> {
        let dataset = self.full_name(&*self.dataset(object)?)?;
        self.log_of(name, (dataset, object), text, tx);
        Ok(())
    }

    /// Writes a line of history about a dataset under a name that it does not have, or not any more.
    pub(super) fn log_of(&self, name: &'static str, (dataset, object): (String, u64), text: String, tx: &Tx) {
        self.meta.services.history(HistoryEvent { name, dataset, dataset_object: object, text }, tx);
    }
}
