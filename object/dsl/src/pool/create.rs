//! Making datasets, empty ones and clones of snapshots (OpenZFS: `dsl_dataset_create_sync`, `dmu_objset_create_sync`,
//! `dmu_objset_clone_sync`).

use super::encryption::{Encryption, NewKeys};
use super::limits::Limits;
use super::logs;
use super::settings::{Setting, Settings};
use super::snapshot::ORIGIN_DIR;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::{Dir, NewDir};
use crate::prop::table;
use crate::raw::RawStream;
use crate::space::Space;
use crate::{DslError, features, keys, names};
use dmu::{Objset, Tx};
use ondisk::names::spa_version;
use ondisk::{DslDatasetPhys, ObjectType, ObjsetType, ds_flags, objset_flags};
use std::sync::Arc;
use zap::{CreateOptions, NormFlags};

/// See [`CreateDataset::init`].
pub type DatasetInit = Box<dyn FnOnce(&Arc<Objset>, &Tx) -> Result<(), DslError> + Send>;

/// Kind, properties and contents of a dataset to be created.
pub struct CreateDataset {
    /// File system or volume.
    pub kind: ObjsetType,
    /// Properties to set locally, by name, as the user gave them.
    pub properties: Vec<(String, String)>,
    /// Fills the new object set, in syncing context (OpenZFS: `zfs_create_fs`).
    pub init: DatasetInit,
}

/// Flags that a dataset is born with.
pub(super) fn creation_flags(properties: &[(String, String)]) -> u64 {
    let insensitive = properties.iter().any(|(name, value)| name == "casesensitivity" && matches!(value.as_str(), "insensitive" | "mixed"));
    if insensitive { ds_flags::CI_DATASET } else { 0 }
}

/// A dataset that can be made.
pub(super) struct Wanted {
    parent: Arc<Dir>,
    last: String,
    origin: Option<Arc<Dataset>>,
    checked: Vec<Setting>,
    /// Keys of what is to be encrypted.
    keys: Option<NewKeys>,
}

/// Creation of datasets, with the parts of the pool that it needs.
pub(crate) struct Creation {
    tree: Arc<Tree>,
    limits: Arc<Limits>,
    space: Arc<Space>,
    settings: Arc<Settings>,
}

impl Creation {
    pub(super) fn new(tree: Arc<Tree>, limits: Arc<Limits>, space: Arc<Space>, settings: Arc<Settings>) -> Creation {
        Creation { tree, limits, space, settings }
    }

    /// Makes the head of the root directory.
    pub(super) fn create_root(&self, options: CreateDataset, encryption: &Encryption, tx: &Tx) -> Result<(), DslError> {
        let keys = encryption.keys(&self.tree, None)?;
        let checked = self.settings.check_props(&options.properties, options.kind, true)?;
        let object = self.create_head(&self.tree.root_dir, None, creation_flags(&options.properties), tx)?;
        self.fill(object, (options.kind, keys.as_ref()), &checked, options.init, tx)
    }

    /// Makes the pool's empty dataset, without an object set; gives its object.
    pub(super) fn create_origin(&self, tx: &Tx) -> Result<u64, DslError> {
        self.create_record(&self.tree.root_dir, ORIGIN_DIR, None, 0, tx)
    }

    /// A look that an empty dataset of this name is possible.
    pub(super) fn check_create(
        &self,
        name: &str,
        kind: ObjsetType,
        properties: &[(String, String)],
        encryption: &Encryption,
    ) -> Result<Wanted, DslError> {
        let checked = self.settings.check_props(properties, kind, true)?;
        let (parent, last) = names::split_parent(name)?;
        let parent = self.tree.check_new(parent, last)?;
        let keys = encryption.keys(&self.tree, Some(&parent))?;
        let most = keys.as_ref().map_or(u64::MAX, NewKeys::block_bytes_max);
        let is_too_large = |text: &str| table::size(text).is_ok_and(|bytes| bytes > most);
        if properties.iter().any(|(name, text)| name == "volblocksize" && is_too_large(text)) {
            return Err(DslError::BadValue);
        }
        self.space.check_room()?;
        self.settings.check_reserved(&parent, &checked)?;
        Ok(Wanted { parent, last: last.to_string(), origin: None, checked, keys })
    }

    /// Makes an empty dataset.
    pub(super) fn create(&self, wanted: &Wanted, kind: ObjsetType, flags: u64, init: DatasetInit, tx: &Tx) -> Result<(), DslError> {
        let object = self.create_record(&wanted.parent, &wanted.last, None, flags, tx)?;
        self.fill(object, (kind, wanted.keys.as_ref()), &wanted.checked, init, tx)?;
        self.tree.log("create", object, String::new(), tx)
    }

    /// A look that a clone of this name is possible.
    pub(super) fn check_clone(&self, name: &str, origin: &str, properties: &[(String, String)]) -> Result<Wanted, DslError> {
        let (name, snapshot) = names::split(name)?;
        if snapshot.is_some() {
            return Err(DslError::BadName);
        }
        names::check_depth(name)?;
        let (parent, last) = names::split_parent(name)?;
        let parent = self.tree.check_new(parent, last)?;
        self.space.check_room()?;
        let origin = self.tree.find(origin)?;
        if !origin.is_snapshot {
            return Err(DslError::NotSnapshot);
        }
        // It has its origin's keys, and no say in them (OpenZFS: `zfs_crypto_clone_check`).
        let is_of_keys = |name: &str| matches!(name, "encryption" | "keyformat" | "keylocation" | "pbkdf2iters");
        if properties.iter().any(|(name, _)| is_of_keys(name)) {
            return Err(DslError::BadValue);
        }
        let checked = self.settings.check_props(properties, self.tree.kind_of(&origin)?, false)?;
        self.settings.check_reserved(&parent, &checked)?;
        Ok(Wanted { parent, last: last.to_string(), origin: Some(origin), checked, keys: None })
    }

    /// Makes a dataset that starts as its origin.
    pub(super) fn clone_origin(&self, wanted: &Wanted, tx: &Tx) -> Result<(), DslError> {
        let origin = wanted.origin.as_ref().ok_or(DslError::NotSnapshot)?;
        let object = self.create_record(&wanted.parent, &wanted.last, Some(origin), 0, tx)?;
        let clone = self.tree.dataset(object)?;
        keys::share(&self.tree.meta, &origin.dir, &clone.dir, tx)?;
        clone.begin_livelist(&self.tree.meta, tx)?;
        self.settings.store_props(&clone, &wanted.checked, tx)?;
        logs::disown(&self.tree, &clone, tx)?;
        let text = format!("origin={} ({})", self.tree.full_name(origin)?, origin.object);
        self.tree.log("clone", object, text, tx)
    }

    /// A dataset of the pool's own in a directory that has none of this name, after a look that there is room.
    pub(super) fn hidden(&self, parent: &Arc<Dir>, last: &str) -> Result<Wanted, DslError> {
        self.space.check_room()?;
        Ok(Wanted { parent: parent.clone(), last: last.to_string(), origin: None, checked: Vec::new(), keys: None })
    }

    /// Makes a dataset to receive into, empty or with what its origin has; gives its object.
    pub(super) fn create_for_receive(
        &self,
        wanted: &Wanted,
        origin: Option<&Arc<Dataset>>,
        (kind, flags, raw): (ObjsetType, u64, Option<&RawStream>),
        init: DatasetInit,
        tx: &Tx,
    ) -> Result<u64, DslError> {
        let object = self.create_record(&wanted.parent, &wanted.last, origin, flags, tx)?;
        match (origin, raw) {
            (Some(origin), raw) => {
                let clone = self.tree.dataset(object)?;
                keys::share(&self.tree.meta, &origin.dir, &clone.dir, tx)?;
                if let Some(raw) = raw {
                    let objset = clone.sealed(&self.tree.meta, || self.tree.objset_props(&clone))?;
                    objset.seal(&raw.form, raw.portable_mac, tx)?;
                    self.tree.dirty().add(tx.txg(), object);
                }
                logs::disown(&self.tree, &clone, tx)?;
            }
            (None, Some(raw)) => self.fill_raw(object, kind, raw, tx)?,
            (None, None) => self.fill(object, (kind, wanted.keys.as_ref()), &wanted.checked, init, tx)?,
        }
        Ok(object)
    }

    /// Makes directory and dataset, without an object set; gives the dataset's object.
    fn create_record(&self, parent: &Arc<Dir>, last: &str, origin: Option<&Arc<Dataset>>, flags: u64, tx: &Tx) -> Result<u64, DslError> {
        let dir = Dir::create(&self.tree.meta, &NewDir { parent: Some(parent), name: last }, tx)?;
        let dir = self.tree.dir_known(dir, parent.clone(), last.to_string())?;
        if last != ORIGIN_DIR {
            self.limits.count_filesystems(parent, 1, tx)?;
            if self.tree.meta.services.feature_refs(features::FS_SS_LIMIT) != 0 {
                self.limits.begin_counts(&dir, (0, 0), tx)?;
            }
        }
        self.create_head(&dir, origin, flags, tx)
    }

    /// Makes the head dataset of a directory (OpenZFS: `dsl_dataset_create_sync_dd`).
    fn create_head(&self, dir: &Arc<Dir>, origin: Option<&Arc<Dataset>>, flags: u64, tx: &Tx) -> Result<u64, DslError> {
        let meta = &self.tree.meta;
        let object = Dataset::allocate(meta, tx)?;
        let mut phys = Dataset::new_record(meta, dir, tx);
        phys.ds_flags = flags | meta.accurate_flag();
        if tx.txg() == ondisk::Txg::INITIAL {
            phys.ds_creation_txg = 1;
        }
        let snapnames = CreateOptions { norm: NormFlags::TOUPPER, ..CreateOptions::new(ObjectType::DSL_DS_SNAP_MAP) };
        phys.ds_snapnames_zapobj = zap::create_with(&self.tree.meta.objset, snapnames, tx)?.0;
        let origin = match origin {
            Some(origin) => Some(origin.clone()),
            None => self.tree.origin_snap().transpose()?,
        };
        match &origin {
            None => phys.ds_deadlist_obj = Deadlist::alloc(&self.tree.meta, tx)?,
            Some(origin) => self.descend(&mut phys, object, dir, origin, tx)?,
        }
        self.tree.meta.hold(object)?.set_bonus(&phys.encode(), tx)?;
        dir.update(tx, |phys| phys.dd_head_dataset_obj = object)?;
        if let Some(origin) = origin {
            self.tree.dataset(object)?.inherit_features(&self.tree.meta, &origin, tx)?;
        }
        Ok(object)
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
        let origin_head = self.tree.head(&origin.dir)?;
        let deadlist = Deadlist::open(&self.tree.meta, origin_head.phys().ds_deadlist_obj)?;
        phys.ds_deadlist_obj = deadlist.clone_keys(phys.ds_prev_snap_txg, origin.object, tx)?;
        origin.update(tx, |phys| phys.ds_num_children += 1)?;
        let version = self.tree.meta.services.version();
        if version >= spa_version::NEXT_CLONES {
            self.tree.add_next_clone(origin, object, tx)?;
        }
        if version >= spa_version::DIR_CLONES {
            self.tree.add_clone(&origin.dir, object, tx)?;
        }
        dir.update(tx, |phys| phys.dd_origin_obj = origin.object)
    }

    /// Makes the object set of a new dataset, encrypted where it gets keys, and lets the caller fill it.
    fn fill(
        &self,
        object: u64,
        (kind, keys): (ObjsetType, Option<&NewKeys>),
        checked: &[Setting],
        init: DatasetInit,
        tx: &Tx,
    ) -> Result<(), DslError> {
        let (meta, dataset) = (&self.tree.meta, self.tree.dataset(object)?);
        self.settings.store_props(&dataset, checked, tx)?;
        if let Some(keys) = keys {
            keys.store(&self.tree, &dataset.dir, tx)?;
            dataset.activate(meta, features::bit(features::ENCRYPTION), tx)?;
        }
        let props = self.tree.objset_props(&dataset)?;
        let objset = match keys {
            Some(keys) => dataset.create_unlocked(meta, keys.key(), (kind, props), tx)?,
            None => {
                let objset = Objset::create(dataset.env(meta), kind, props, tx)?;
                dataset.set_objset(Some(objset.clone()));
                objset
            }
        };
        self.tree.dirty().add(tx.txg(), object);
        if kind == ObjsetType::ZFS {
            self.count_more(&dataset, &objset, tx)?;
        }
        init(&objset, tx)
    }

    /// Makes the object set of a new dataset that comes raw, with its keys: it is its own encryption root (OpenZFS: `dsl_crypto_recv_raw_key_sync`).
    fn fill_raw(&self, object: u64, kind: ObjsetType, raw: &RawStream, tx: &Tx) -> Result<(), DslError> {
        let (meta, dataset) = (&self.tree.meta, self.tree.dataset(object)?);
        let location = [("keylocation".to_string(), "prompt".to_string())];
        self.settings.store_props(&dataset, &self.settings.check_props(&location, kind, true)?, tx)?;
        keys::create(meta, &dataset.dir, (&raw.facts(dataset.dir.object), &raw.keys.wrapped), tx)?;
        if let Some(object) = keys::object_of(meta, &dataset.dir)? {
            keys::note_came(meta, object, &raw.keys.wrapped, tx)?;
        }
        dataset.activate(meta, features::bit(features::ENCRYPTION), tx)?;
        dataset.create_sealed(meta, (kind, self.tree.objset_props(&dataset)?), (&raw.form, raw.portable_mac), tx)?;
        self.tree.dirty().add(tx.txg(), object);
        Ok(())
    }

    /// A new file system counts objects and projects from the start, where the pool has the features (OpenZFS: `dmu_objset_create_impl_dnstats`).
    fn count_more(&self, dataset: &Dataset, objset: &Arc<Objset>, tx: &Tx) -> Result<(), DslError> {
        let counted = [
            (features::USEROBJ_ACCOUNTING, objset_flags::USEROBJACCOUNTING_COMPLETE),
            (features::PROJECT_QUOTA, objset_flags::PROJECTQUOTA_COMPLETE),
        ];
        for (feature, flag) in counted.into_iter().filter(|(feature, _)| self.tree.meta.services.feature_enabled(feature)) {
            objset.set_flags(objset.flags() | flag, tx)?;
            dataset.activate(&self.tree.meta, features::bit(feature), tx)?;
        }
        Ok(())
    }
}
