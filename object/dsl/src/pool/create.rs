//! Making datasets (OpenZFS: `dsl_dataset_create_sync`, `dmu_objset_create_sync`).

use super::{DslPool, ORIGIN_DIR};
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::{Dir, NewDir};
use crate::prop::table::Prop;
use crate::{DslError, HistoryEvent, features, names};
use dmu::{NewObject, Objset, Tx};
use ondisk::{DslDatasetPhys, ObjectType, ObjsetType, ds_flags, objset_flags};
use std::sync::Arc;
use zap::{CreateOptions, NormFlags};

/// See [`CreateDataset::init`].
pub type DatasetInit = Box<dyn FnOnce(&Arc<Objset>, &Tx) -> Result<(), DslError> + Send>;

/// How to make a dataset.
pub struct CreateDataset {
    /// File system or volume.
    pub kind: ObjsetType,
    /// Properties to set locally, by name, as the user gave them.
    pub properties: Vec<(String, String)>,
    /// Fills the new object set, in syncing context (OpenZFS: `zfs_create_fs`).
    pub init: DatasetInit,
}

/// Flags that a dataset is born with.
fn creation_flags(properties: &[(String, String)]) -> u64 {
    let insensitive = properties.iter().any(|(name, value)| name == "casesensitivity" && matches!(value.as_str(), "insensitive" | "mixed"));
    if insensitive { ds_flags::CI_DATASET } else { 0 }
}

impl DslPool {
    /// Makes the root dataset, in syncing context, after the pool made its feature objects.
    pub fn create_root(self: &Arc<Self>, options: CreateDataset, tx: &Tx) -> Result<(), DslError> {
        let checked = self.check_props(&options.properties, options.kind, true)?;
        let object = self.create_head(&self.root_dir, None, creation_flags(&options.properties), tx)?;
        self.fill(object, options.kind, &checked, options.init, tx)
    }

    /// Makes a dataset; its parent must exist.
    pub fn create_dataset(self: &Arc<Self>, name: &str, options: CreateDataset) -> Result<(), DslError> {
        let (name, snapshot) = names::split(name)?;
        if snapshot.is_some() {
            return Err(DslError::BadName);
        }
        names::check_depth(name)?;
        let name = name.to_string();
        let CreateDataset { kind, properties, init } = options;
        let flags = creation_flags(&properties);
        let check = move |pool: &Arc<DslPool>, _: &Tx| {
            let checked = pool.check_props(&properties, kind, true)?;
            let (parent, last) = names::split_parent(&name)?;
            let parent = pool.check_new(parent, last)?;
            pool.check_room()?;
            pool.check_reserved(&parent, &checked)?;
            Ok((parent, last.to_string(), checked))
        };
        self.sync_task(check, move |pool, (parent, last, checked), tx| {
            let object = pool.create_record(&parent, &last, None, flags, tx)?;
            pool.fill(object, kind, &checked, init, tx)?;
            pool.log("create", object, String::new(), tx)
        })
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

    /// What a dataset is: file system or volume.
    pub(crate) fn kind_of(&self, dataset: &Dataset) -> Result<ObjsetType, DslError> {
        Ok(dataset.objset(&self.meta, || self.objset_props(dataset))?.kind())
    }

    /// Makes directory and dataset, without an object set; gives the dataset's object.
    pub(super) fn create_record(
        &self,
        parent: &Arc<Dir>,
        last: &str,
        origin: Option<&Arc<Dataset>>,
        flags: u64,
        tx: &Tx,
    ) -> Result<u64, DslError> {
        let dir = Dir::create(&self.meta, &NewDir { parent: Some(parent), name: last }, tx)?;
        let dir = self.dir_known(dir, parent.clone(), last.to_string())?;
        if last != ORIGIN_DIR {
            self.count_filesystems(parent, 1, tx)?;
            if self.meta.services.feature_refs(features::FS_SS_LIMIT) != 0 {
                self.begin_counts(&dir, (0, 0), tx)?;
            }
        }
        self.create_head(&dir, origin, flags, tx)
    }

    /// Makes the head dataset of a directory (OpenZFS: `dsl_dataset_create_sync_dd`).
    fn create_head(&self, dir: &Arc<Dir>, origin: Option<&Arc<Dataset>>, flags: u64, tx: &Tx) -> Result<u64, DslError> {
        let object = self.new_dataset_object(tx)?;
        let mut phys = self.new_record(dir, tx);
        phys.ds_flags = flags | ds_flags::UNIQUE_ACCURATE;
        if tx.txg() == ondisk::Txg::INITIAL {
            phys.ds_creation_txg = 1;
        }
        let snapnames = CreateOptions { norm: NormFlags::TOUPPER, ..CreateOptions::new(ObjectType::DSL_DS_SNAP_MAP) };
        phys.ds_snapnames_zapobj = zap::create_with(&self.meta.objset, snapnames, tx)?.0;
        let origin = match origin {
            Some(origin) => Some(origin.clone()),
            None => self.origin_snap().transpose()?,
        };
        match &origin {
            None => phys.ds_deadlist_obj = Deadlist::alloc(&self.meta, tx)?,
            Some(origin) => self.descend(&mut phys, object, dir, origin, tx)?,
        }
        self.meta.hold(object)?.set_bonus(&phys.encode(), tx)?;
        dir.update(tx, |phys| phys.dd_head_dataset_obj = object)?;
        if let Some(origin) = origin {
            self.dataset(object)?.activate(&self.meta, origin.features(), tx)?;
        }
        Ok(object)
    }

    /// A dataset object, with a ZAP from the start when the pool has the feature.
    pub(super) fn new_dataset_object(&self, tx: &Tx) -> Result<u64, DslError> {
        let zapified = self.meta.services.feature_enabled(features::EXTENSIBLE_DATASET);
        let kind = if zapified { ObjectType::OTN_ZAP_METADATA } else { ObjectType::DSL_DATASET };
        if !zapified {
            let new = NewObject { bonus_type: ObjectType::DSL_DATASET, bonus_len: DslDatasetPhys::SIZE, ..NewObject::new(kind) };
            return Ok(self.meta.allocate(new, tx)?.object().0);
        }
        let options = CreateOptions { bonus_type: ObjectType::DSL_DATASET, bonus_len: DslDatasetPhys::SIZE, ..CreateOptions::new(kind) };
        let object = zap::create_with(&self.meta.objset, options, tx)?.0;
        self.meta.services.feature_add(features::EXTENSIBLE_DATASET, 1, tx)?;
        Ok(object)
    }

    /// The fields that every new dataset has.
    pub(super) fn new_record(&self, dir: &Dir, tx: &Tx) -> DslDatasetPhys {
        let exec = self.meta.io.exec();
        let mut phys: DslDatasetPhys = ondisk::Field::ZERO;
        phys.ds_dir_obj = dir.object;
        // 56 bits, never 0 (OpenZFS: unique_create).
        phys.ds_fsid_guid = (exec.random_u64() >> 8).max(1);
        phys.ds_guid = exec.random_u64().max(1);
        phys.ds_creation_time = exec.wall_clock().0 as u64;
        phys.ds_creation_txg = tx.txg().0;
        phys
    }

    /// Makes the record start where `origin` is.
    fn descend(&self, phys: &mut DslDatasetPhys, object: u64, dir: &Arc<Dir>, origin: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        let from = origin.phys();
        phys.ds_prev_snap_obj = origin.object;
        phys.ds_prev_snap_txg = from.ds_creation_txg;
        phys.ds_referenced_bytes = from.ds_referenced_bytes;
        phys.ds_compressed_bytes = from.ds_compressed_bytes;
        phys.ds_uncompressed_bytes = from.ds_uncompressed_bytes;
        phys.ds_bp = from.ds_bp;
        phys.ds_flags |= from.ds_flags & (ds_flags::INCONSISTENT | ds_flags::CI_DATASET);
        let origin_head = self.head(&origin.dir)?;
        let deadlist = Deadlist::open(&self.meta, origin_head.phys().ds_deadlist_obj)?;
        phys.ds_deadlist_obj = deadlist.clone_keys(phys.ds_prev_snap_txg, tx)?;
        let next_clones = match from.ds_next_clones_obj {
            0 => self.meta.create_zap(ObjectType::NEXT_CLONES, tx)?,
            object => object,
        };
        self.meta.zap(next_clones)?.add_int(object, tx)?;
        origin.update(tx, |phys| {
            phys.ds_num_children += 1;
            phys.ds_next_clones_obj = next_clones;
        })?;
        let clones = match origin.dir.phys().dd_clones {
            0 => {
                let clones = self.meta.create_zap(ObjectType::DSL_CLONES, tx)?;
                origin.dir.update(tx, |phys| phys.dd_clones = clones)?;
                clones
            }
            clones => clones,
        };
        self.meta.zap(clones)?.add_int(object, tx)?;
        dir.update(tx, |phys| phys.dd_origin_obj = origin.object)
    }

    /// Makes the object set of a new dataset and lets the caller fill it.
    fn fill(
        self: &Arc<Self>,
        object: u64,
        kind: ObjsetType,
        checked: &[(Prop, String)],
        init: DatasetInit,
        tx: &Tx,
    ) -> Result<(), DslError> {
        let dataset = self.dataset(object)?;
        self.store_props(&dataset, checked, tx)?;
        let props = self.objset_props(&dataset)?;
        let objset = Objset::create(dataset.env(&self.meta), kind, props, tx)?;
        dataset.set_objset(Some(objset.clone()));
        self.dirty.add(tx.txg(), object);
        if kind == ObjsetType::ZFS {
            self.count_more(&dataset, &objset, tx)?;
        }
        init(&objset, tx)
    }

    /// A new file system counts objects and projects from the start, where the pool has the features (OpenZFS: `dmu_objset_create_impl_dnstats`).
    fn count_more(&self, dataset: &Dataset, objset: &Arc<Objset>, tx: &Tx) -> Result<(), DslError> {
        let counted = [
            (features::USEROBJ_ACCOUNTING, objset_flags::USEROBJACCOUNTING_COMPLETE),
            (features::PROJECT_QUOTA, objset_flags::PROJECTQUOTA_COMPLETE),
        ];
        for (feature, flag) in counted.into_iter().filter(|(feature, _)| self.meta.services.feature_enabled(feature)) {
            objset.set_flags(objset.flags() | flag, tx)?;
            dataset.activate(&self.meta, features::bit(feature), tx)?;
        }
        Ok(())
    }

    /// Writes a line of history about a dataset.
    pub(super) fn log(&self, name: &'static str, object: u64, text: String, tx: &Tx) -> Result<(), DslError> {
        let dataset = self.full_name(&*self.dataset(object)?)?;
        self.meta.services.history(HistoryEvent { name, dataset, dataset_object: object, text }, tx);
        Ok(())
    }
}
