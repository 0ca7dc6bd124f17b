//! [`DatasetHandle`]: an owned hold on a dataset, as a mount or a command has it.

use crate::dataset::Dataset;
use crate::prop::table::{self, Kind, Prop, PropDesc};
use crate::space::{TxSpace, ratio};
use crate::{
    DslError, DslPool, PropEntry, PropSource, PropValue, RawStream, ReceivedValue, ResumePoint, SnapshotEntry, changed, features, keys,
    redaction, volume,
};
use dmu::{BlockLedger, Objset, Tx};
use ondisk::{BlockPtr, DD_FLAG_USED_BREAKDOWN, ObjectId, ObjsetType, dd_used, ds_flags};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use zap::{Value, Zap};
use zil::{Log, LogSource};

/// Value of `keystatus` while the key is not here (OpenZFS: `ZFS_KEYSTATUS_UNAVAILABLE`).
const KEY_UNAVAILABLE: u64 = 1;
/// Value of `keystatus` once it is (OpenZFS: `ZFS_KEYSTATUS_AVAILABLE`).
const KEY_AVAILABLE: u64 = 2;
/// Object of the MOS that leads to all others (OpenZFS: `DMU_POOL_DIRECTORY_OBJECT`).
const POOL_DIRECTORY: u64 = 1;

/// Space of a dataset, in bytes (OpenZFS: `dsl_dir_stats`, `dsl_dataset_space`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatasetSpace {
    /// Bytes used by the dataset with its snapshots and children, reservations included (of a snapshot: its unique space).
    pub used: u64,
    /// Bytes that can still be written.
    pub available: u64,
    /// Bytes reachable in the dataset.
    pub referenced: u64,
    /// Bytes used by the dataset itself.
    pub used_by_dataset: u64,
    /// Bytes used by snapshots alone.
    pub used_by_snapshots: u64,
    /// Bytes used by children.
    pub used_by_children: u64,
    /// Bytes kept by the refreservation.
    pub used_by_refreservation: u64,
    /// Bytes written since the last snapshot.
    pub written: u64,
    /// `used` before compression.
    pub logical_used: u64,
    /// `referenced` before compression.
    pub logical_referenced: u64,
    /// Ratio of compression of all that is used, in hundredths.
    pub compress_ratio: u64,
    /// Ratio of compression of what is referenced, in hundredths.
    pub ref_compress_ratio: u64,
}

/// A hold on a dataset: it cannot be destroyed while one exists.
pub struct DatasetHandle {
    pool: Arc<DslPool>,
    dataset: Arc<Dataset>,
    /// Holder replays the dataset's intent log, for which everybody else has to wait.
    is_replayer: bool,
}

impl std::fmt::Debug for DatasetHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetHandle {{ object: {} }}", self.dataset.object)
    }
}

impl Clone for DatasetHandle {
    fn clone(&self) -> DatasetHandle {
        let mut copy = DatasetHandle::new(self.pool.clone(), self.dataset.clone());
        copy.is_replayer = self.is_replayer;
        copy
    }
}

impl Drop for DatasetHandle {
    fn drop(&mut self) {
        self.dataset.holds.fetch_sub(1, Ordering::Release);
    }
}

impl DatasetHandle {
    pub(crate) fn new(pool: Arc<DslPool>, dataset: Arc<Dataset>) -> DatasetHandle {
        dataset.holds.fetch_add(1, Ordering::Acquire);
        DatasetHandle { pool, dataset, is_replayer: false }
    }

    /// The hold as one of who replays the dataset's intent log.
    pub(crate) fn replaying(mut self) -> DatasetHandle {
        self.is_replayer = true;
        self
    }

    /// Pool's datasets that the dataset is one of.
    pub fn pool(&self) -> &Arc<DslPool> {
        &self.pool
    }
    /// The full name now.
    pub fn name(&self) -> String {
        self.pool.tree.full_name(&self.dataset).unwrap_or_else(|_| self.dataset.dir.full_name())
    }
    /// Object of the dataset in the MOS: the object set's number.
    pub fn object(&self) -> u64 {
        self.dataset.object
    }
    /// True for a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.dataset.is_snapshot
    }
    /// The globally unique id.
    pub fn guid(&self) -> u64 {
        self.dataset.phys().ds_guid
    }
    /// The 56-bit id that file handles carry.
    pub fn fsid_guid(&self) -> u64 {
        self.dataset.phys().ds_fsid_guid
    }
    /// Creation in seconds since the epoch.
    pub fn creation_time(&self) -> u64 {
        self.dataset.phys().ds_creation_time
    }
    /// The txg of the creation.
    pub fn creation_txg(&self) -> u64 {
        self.dataset.phys().ds_creation_txg
    }
    /// True for what was not received to its end, or is just being received: nobody can use it.
    pub fn is_inconsistent(&self) -> bool {
        self.dataset.is_inconsistent()
    }
    /// Notes how far a receive came in a transaction, so that it can be resumed there.
    pub fn note_received(&self, point: ResumePoint, tx: &Tx) {
        self.dataset.reached.lock().note(tx.txg(), point);
        self.dataset.ledger.dirtied(tx.txg());
    }
    /// The object set; of a snapshot, and of what is encrypted with keys of the first version, it cannot be modified.
    ///
    /// # Errors
    /// [`DslError::NoKey`] for what is locked; [`DslError::LogWaits`] for what lacks what its intent log has; those of reading it.
    pub fn objset(&self) -> Result<Arc<Objset>, DslError> {
        let tree = &self.pool.tree;
        let objset = tree.contents(&self.dataset)?;
        let waits = !self.is_replayer && !objset.is_read_only() && tree.waiting.has(self.dataset.object);
        if waits { Err(DslError::LogWaits) } else { Ok(objset) }
    }
    /// The object set as it is stored: of what is encrypted neither contents nor bonuses can be read, only what says how they lie.
    pub fn stored(&self) -> Result<Arc<Objset>, DslError> {
        self.pool.tree.objset(&self.dataset)
    }
    /// Looks whether a raw stream has the keys of the dataset.
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`], [`DslError::OtherKeys`]; those of reading the MOS.
    pub fn check_raw(&self, raw: &RawStream) -> Result<(), DslError> {
        keys::check_keys(&self.pool.tree.meta, &self.dataset.dir, raw)
    }
    /// The object set that a raw stream comes into: nobody reads its contents, and what is written to it is encrypted already.
    ///
    /// # Errors
    /// [`DslError::Busy`] while somebody has it with its contents; those of reading it.
    pub fn sealed(&self) -> Result<Arc<Objset>, DslError> {
        let tree = &self.pool.tree;
        self.dataset.sealed(&tree.meta, || tree.objset_props(&self.dataset))
    }
    /// Kind of the object set, which takes no key.
    pub fn kind(&self) -> Result<ObjsetType, DslError> {
        Ok(self.stored()?.kind())
    }
    /// True for what is encrypted.
    pub fn is_encrypted(&self) -> Result<bool, DslError> {
        Ok(keys::object_of(&self.pool.tree.meta, &self.dataset.dir)?.is_some())
    }
    /// Most bytes of a block of the dataset: some suites encrypt no more at once, and a txg with a larger one could not be written.
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn block_bytes_max(&self) -> Result<usize, DslError> {
        let facts = keys::facts_of(&self.pool.tree.meta, &self.dataset.dir)?;
        Ok(facts.map_or(ondisk::BLOCK_BYTES_MAX, |facts| facts.record_bytes_max()))
    }
    /// True for what is encrypted and can only be read, also with its key: a snapshot, or what has keys of the first version.
    pub fn is_encrypted_for_good(&self) -> Result<bool, DslError> {
        Ok(self.is_encrypted()? && self.pool.tree.contents(&self.dataset).map_or(true, |objset| objset.is_read_only()))
    }
    /// True for what is encrypted with keys of the first version, which is read and not written (OpenZFS: errata 3).
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn has_old_keys(&self) -> Result<bool, DslError> {
        keys::are_old(&self.pool.tree.meta, &self.dataset.dir)
    }
    /// Facts of the keys of an encrypted snapshot that a raw stream has.
    ///
    /// # Errors
    /// [`DslError::NotEncrypted`]; those of reading the MOS.
    pub fn raw_keys(&self) -> Result<keys::RawKeys, DslError> {
        keys::raw_of(&self.pool.tree.meta, &self.dataset)
    }
    /// True for what is encrypted with a key that is not loaded.
    pub fn is_locked(&self) -> Result<bool, DslError> {
        let tree = &self.pool.tree;
        Ok(keys::facts_of(&tree.meta, &self.dataset.dir)?.is_some_and(|facts| !tree.keystore.has(facts.root)))
    }
    /// Intent log of the dataset, which is held for as long as somebody has it; `source` knows the bytes of its objects.
    ///
    /// # Errors
    /// [`DslError::ReadOnly`] for a snapshot, or a pool that is not written; those of opening the object set.
    pub fn intent_log(&self, source: Weak<dyn LogSource>) -> Result<Arc<dyn Log>, DslError> {
        let objset = self.objset()?;
        if objset.is_read_only() {
            return Err(DslError::ReadOnly);
        }
        let (logs, hold) = (&self.pool.live_logs, Box::new(self.clone()));
        Ok(logs.open(hold, (self.dataset.clone(), objset, self.is_encrypted()?), source))
    }
    /// True when a log that is opened from now on may tell of extended attributes in system attributes: the pool has the feature `zilsaxattr`,
    /// and the dataset is counted among its users while it has a log. Ask before [`DatasetHandle::intent_log`].
    pub fn logs_xattrs(&self) -> bool {
        self.pool.tree.meta.services.feature_enabled(features::ZILSAXATTR)
    }
    /// A transaction, after a look at quotas and at the pool's space. May wait.
    pub fn assign(&self, space: TxSpace) -> Result<Tx, DslError> {
        self.pool.space.assign_for(&self.dataset, space)
    }

    /// Syncs the open txg, for who found no room although a transaction was to be had, so that what was freed in earlier ones
    /// comes nearer to being used again. False when nothing rests, and waiting again will not help.
    pub fn wait_for_freed(&self) -> Result<bool, DslError> {
        self.pool.space.wait_for_freed()
    }

    /// Space of the dataset now, in bytes.
    pub fn space(&self) -> DatasetSpace {
        let (phys, dir) = (self.dataset.phys(), self.dataset.dir.phys());
        let written = self.written(phys.ds_prev_snap_obj, phys.ds_referenced_bytes);
        let own = DatasetSpace {
            referenced: phys.ds_referenced_bytes,
            written,
            logical_referenced: phys.ds_uncompressed_bytes,
            ref_compress_ratio: ratio(phys.ds_uncompressed_bytes, phys.ds_compressed_bytes),
            ..DatasetSpace::default()
        };
        if self.dataset.is_snapshot {
            return DatasetSpace { used: phys.ds_unique_bytes, compress_ratio: own.ref_compress_ratio, ..own };
        }
        let kinds = dir.dd_used_breakdown;
        DatasetSpace {
            used: dir.dd_used_bytes,
            available: self.available(),
            used_by_dataset: kinds[dd_used::HEAD],
            used_by_snapshots: kinds[dd_used::SNAP],
            used_by_children: kinds[dd_used::CHILD] + kinds[dd_used::CHILD_RSRV],
            used_by_refreservation: kinds[dd_used::REFRSRV],
            logical_used: dir.dd_uncompressed_bytes,
            compress_ratio: ratio(dir.dd_uncompressed_bytes, dir.dd_compressed_bytes),
            ..own
        }
    }

    /// True where it is told what kinds of space a dataset uses: its directory was made in a pool of version 13 or later.
    fn has_breakdown(&self) -> bool {
        self.dataset.is_snapshot || self.dataset.dir.phys().dd_flags & DD_FLAG_USED_BREAKDOWN != 0
    }

    /// Bytes referenced that the previous snapshot had not (OpenZFS: `dsl_get_written`, close enough without a deadlist:
    /// what was freed since is added by the caller's snapshot arithmetic).
    fn written(&self, prev: u64, referenced: u64) -> u64 {
        if prev == 0 {
            return referenced;
        }
        self.pool.tree.written_since(&self.dataset, prev).unwrap_or(0)
    }

    /// Bytes written since a snapshot of the same file system, by the part behind `@` or its full name (OpenZFS: `written@SNAPSHOT`).
    pub fn written_since(&self, snapshot: &str) -> Result<u64, DslError> {
        let _config = self.pool.config();
        let own = self.pool.tree.full_name(&self.dataset)?;
        let filesystem = own.split_once('@').map_or(own.as_str(), |(filesystem, _)| filesystem);
        let name = if snapshot.contains('@') { snapshot.to_string() } else { format!("{filesystem}@{snapshot}") };
        let old = self.pool.tree.find(&name)?;
        self.pool.tree.written_since_snapshot(&self.dataset, &old)
    }

    /// Bytes written since a bookmark of the same file system, by the part behind `#` or its full name (OpenZFS: `written#BOOKMARK`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] for none of an earlier time; [`DslError::Unsupported`] for one that does not count what is freed.
    pub fn written_since_bookmark(&self, bookmark: &str) -> Result<u64, DslError> {
        let _config = self.pool.config();
        let name = if bookmark.contains('#') { bookmark.to_string() } else { format!("{}#{bookmark}", self.dataset.dir.full_name()) };
        self.pool.bookmarks.written_since(&self.dataset, &name)
    }

    /// Bytes that the dataset has and `old`, a snapshot before it, had not; of all that it has without `old`. As they lie in the pool, as they
    /// were compressed, and before that (OpenZFS: `dsl_dataset_space_written`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] for a snapshot that is not one of those before it.
    pub fn sizes_since(&self, old: Option<&DatasetHandle>) -> Result<[u64; 3], DslError> {
        let _config = self.pool.config();
        match old {
            Some(old) => self.pool.tree.usage_since_snapshot(&self.dataset, &old.dataset),
            None => {
                let phys = self.dataset.phys();
                Ok([phys.ds_referenced_bytes, phys.ds_compressed_bytes, phys.ds_uncompressed_bytes])
            }
        }
    }

    /// True when what `dataset` (the name of a file system or volume) was in a txg is an earlier point of this one, or of what it was cloned
    /// from (OpenZFS: `dsl_dataset_is_before`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] without such a dataset, those of reading the MOS.
    pub fn is_after(&self, dataset: &str, txg: u64) -> Result<bool, DslError> {
        Ok(!(self.is_snapshot() && txg >= self.creation_txg()) && self.pool.is_before(&self.dataset.dir, dataset, txg)?)
    }

    /// Root block of its object set, as of the last txg that is on disk; of a snapshot it stays the same.
    pub fn root_block(&self) -> BlockPtr {
        self.dataset.phys().ds_bp
    }

    /// True when the dataset is counted among the users of a feature (see [`crate::features::PER_DATASET`]).
    pub fn has_feature(&self, guid: &str) -> bool {
        self.dataset.features() & features::bit(guid) != 0
    }

    /// Guids of the snapshots by which the dataset was redacted, and lacks what all of them have replaced; None for one that lacks nothing.
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn redacted_by(&self) -> Result<Option<Vec<u64>>, DslError> {
        self.dataset.redacted_by(&self.pool.tree.meta)
    }

    /// True for what lacks what was redacted, unless such may be used: programs would take the holes for what was there (OpenZFS: `dsl_dataset_tryown`).
    pub fn is_withheld(&self) -> bool {
        self.has_feature(features::REDACTED_DATASETS) && !redaction::allows_redacted()
    }

    /// True when anything in the pool uses a feature.
    pub fn is_active_in_pool(&self, guid: &str) -> bool {
        self.pool.tree.meta.services.feature_refs(guid) != 0
    }

    /// Txg in which a feature was enabled in the pool; None where nobody noted that (OpenZFS: `spa_feature_enabled_txg`).
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn feature_enabled_txg(&self, guid: &str) -> Result<Option<u64>, DslError> {
        let meta = &self.pool.tree.meta;
        match meta.zap(POOL_DIRECTORY)?.try_lookup_u64("feature_enabled_txg")? {
            Some(object) => Ok(meta.zap(object)?.try_lookup_u64(guid)?),
            None => Ok(None),
        }
    }

    /// True when names in it are compared without case.
    pub fn ignores_case(&self) -> bool {
        self.dataset.phys().ds_flags & ds_flags::CI_DATASET != 0
    }

    /// Bytes that can be written here (OpenZFS: `dsl_dataset_space`).
    fn available(&self) -> u64 {
        let dataset = &self.dataset;
        let mut available = dataset.dir.available(self.pool.space.pool_bytes(false), None);
        available = available.saturating_add(dataset.reserved().saturating_sub(dataset.unique()));
        match dataset.refquota.load(Ordering::Relaxed) {
            0 => available,
            quota => available.min(quota.saturating_sub(dataset.referenced())),
        }
    }

    /// A property's number (index properties by value) and source.
    pub fn prop_u64(&self, name: &str) -> Result<(u64, PropSource), DslError> {
        if table::in_object_set(name) {
            return self.object_set_number(name);
        }
        self.pool.tree.stored.number(&self.dataset, name)
    }

    /// A property's text (of properties that are text) and source.
    pub fn prop_text(&self, name: &str) -> Result<(String, PropSource), DslError> {
        let prop = table::find(name)?;
        let default = match &prop {
            Prop::Native(PropDesc { kind: Kind::Text(default), .. }) => *default,
            Prop::Native(_) => return Err(DslError::BadProperty),
            Prop::User(_) => "",
        };
        match self.pool.tree.stored.find(&self.dataset, &prop)? {
            Some((value, source)) => Ok((self.inherited_text(name, &value, &source)?, source)),
            None if matches!(prop, Prop::User(_)) => Err(DslError::NotFound),
            None if name == "mountpoint" => Ok((format!("/{}", self.name()), PropSource::Default)),
            None => Ok((default.to_string(), PropSource::Default)),
        }
    }

    /// A mount point that is inherited goes on below the dataset that has it.
    fn inherited_text(&self, name: &str, value: &Value, source: &PropSource) -> Result<String, DslError> {
        let text = value.as_text().ok_or(DslError::BadValue)?;
        match source {
            PropSource::Inherited(from) if name == "mountpoint" && !matches!(text, "none" | "legacy") => {
                let own = self.name();
                let below = own.strip_prefix(from.as_str()).unwrap_or("");
                Ok(format!("{}{below}", text.trim_end_matches('/')))
            }
            _ => Ok(text.to_string()),
        }
    }

    /// A number from the file system's master node, or the volume's objects, with the source that OpenZFS shows (`get_numeric_property`).
    /// What was not received to its end has none yet: its contents are not looked at.
    fn object_set_number(&self, name: &str) -> Result<(u64, PropSource), DslError> {
        if self.is_inconsistent() {
            return Err(DslError::BadProperty);
        }
        let objset = self.stored()?;
        match (objset.kind(), name) {
            (_, "volsize") => Ok((volume::size(&objset)?, PropSource::Local)),
            (_, "volblocksize") => {
                let bytes = volume::block_size(&objset)?;
                let source = if bytes == volume::DEFAULT_BLOCK_BYTES { PropSource::Default } else { PropSource::None };
                Ok((bytes, source))
            }
            (ObjsetType::ZFS, name) => {
                let entry = if name == "version" { "VERSION" } else { name };
                Ok((Zap::hold(&objset, ObjectId(1))?.try_lookup_u64(entry)?.unwrap_or(0), PropSource::None))
            }
            _ => Err(DslError::BadProperty),
        }
    }

    /// One property as `zfs get` shows it.
    pub fn prop(&self, name: &str) -> Result<PropEntry, DslError> {
        self.entry(&table::find(name)?, &self.pool.tree.stored.received(&self.dataset)?)
    }

    /// One property, with its value among those that were received.
    fn entry(&self, prop: &Prop, received: &BTreeMap<String, Value>) -> Result<PropEntry, DslError> {
        let (value, source) = match prop {
            Prop::User(name) => self.prop_text(name).map(|(text, source)| (PropValue::Text(text), source))?,
            Prop::Native(desc) => self.native(desc)?,
        };
        let received = received.get(prop.name()).and_then(|value| match prop {
            Prop::Native(desc) if !desc.kind.is_text() => value.as_u64().map(|number| shown(desc, number)),
            _ => value.as_text().map(|text| PropValue::Text(text.to_string())),
        });
        Ok(PropEntry { name: prop.name().to_string(), value, source, received })
    }

    fn native(&self, desc: &PropDesc) -> Result<(PropValue, PropSource), DslError> {
        if let Some(value) = self.computed(desc)? {
            return Ok((value, PropSource::None));
        }
        if desc.kind.is_text() {
            return self.prop_text(desc.name).map(|(text, source)| (PropValue::Text(text), source));
        }
        self.prop_u64(desc.name).map(|(number, source)| (shown(desc, number), source))
    }

    /// Values that are not stored; None for a stored property.
    fn computed(&self, desc: &PropDesc) -> Result<Option<PropValue>, DslError> {
        let phys = self.dataset.phys();
        let space = || self.space();
        let text = |text: &str| PropValue::Text(text.to_string());
        Ok(Some(match desc.name {
            "type" if self.dataset.is_snapshot => text("snapshot"),
            "type" => text(if self.kind()? == ObjsetType::ZVOL { "volume" } else { "filesystem" }),
            "creation" => PropValue::Time(phys.ds_creation_time),
            "used" => PropValue::Bytes(space().used),
            "available" => PropValue::Bytes(space().available),
            "referenced" => PropValue::Bytes(phys.ds_referenced_bytes),
            "compressratio" => PropValue::Ratio(space().compress_ratio),
            "refcompressratio" => PropValue::Ratio(space().ref_compress_ratio),
            "usedbysnapshots" | "usedbydataset" | "usedbychildren" | "usedbyrefreservation" if !self.has_breakdown() => PropValue::None,
            "usedbysnapshots" => PropValue::Bytes(space().used_by_snapshots),
            "usedbydataset" => PropValue::Bytes(space().used_by_dataset),
            "usedbychildren" => PropValue::Bytes(space().used_by_children),
            "usedbyrefreservation" => PropValue::Bytes(space().used_by_refreservation),
            "written" => PropValue::Bytes(space().written),
            "logicalused" => PropValue::Bytes(space().logical_used),
            "logicalreferenced" => PropValue::Bytes(phys.ds_uncompressed_bytes),
            "createtxg" => PropValue::Number(phys.ds_creation_txg),
            "guid" => PropValue::Number(phys.ds_guid),
            "objsetid" => PropValue::Number(self.dataset.object),
            "ivsetguid" => match keys::ivs_of(&self.pool.tree.meta, &self.dataset)? {
                0 => PropValue::None,
                ivs => PropValue::Number(ivs),
            },
            "defer_destroy" => text(if phys.ds_flags & ds_flags::DEFER_DESTROY != 0 { "on" } else { "off" }),
            "userrefs" => PropValue::Number(self.dataset.user_refs(&self.pool.tree.meta)?),
            "origin" => match self.pool.tree.origin_name(&self.dataset)? {
                Some(name) => PropValue::Text(name),
                None => PropValue::None,
            },
            "clones" => text(&self.pool.tree.clone_names(&self.dataset)?.join(",")),
            "mounted" => text("no"),
            "receive_resume_token" => match self.pool.resume_state(&self.name()) {
                Ok(Some(state)) => PropValue::Text(state.token()),
                _ => PropValue::None,
            },
            "redact_snaps" => match self.redacted_by()? {
                Some(guids) => text(&redaction::words_of(&guids)),
                None => PropValue::None,
            },
            "encryption" | "keyformat" | "pbkdf2iters" | "keystatus" | "encryptionroot" => return self.of_keys(desc),
            "snapshots_changed" => match self.snapshots_changed()? {
                Some((seconds, _)) => PropValue::Time(seconds),
                None => PropValue::None,
            },
            "filesystem_count" | "snapshot_count" => match self.pool.limits.counts_of(&self.dataset.dir)? {
                Some((filesystems, snapshots)) => PropValue::Count(if desc.name == "filesystem_count" { filesystems } else { snapshots }),
                None => text("none"),
            },
            _ => return Ok(None),
        }))
    }

    /// Value of a property that the keys of an encrypted dataset have; of what is not encrypted some are stored, the others are none (OpenZFS:
    /// `dsl_dataset_crypt_stats`).
    fn of_keys(&self, desc: &PropDesc) -> Result<Option<PropValue>, DslError> {
        let tree = &self.pool.tree;
        let Some(facts) = keys::facts_of(&tree.meta, &self.dataset.dir)? else {
            return Ok(matches!(desc.name, "keystatus" | "encryptionroot").then_some(PropValue::None));
        };
        let number = match desc.name {
            "encryption" => facts.suite,
            "keyformat" => facts.format,
            "keystatus" if tree.keystore.has(facts.root) => KEY_AVAILABLE,
            "keystatus" => KEY_UNAVAILABLE,
            "pbkdf2iters" => return Ok(Some(PropValue::Number(facts.iterations))),
            _ => return Ok(Some(PropValue::Text(tree.dir(facts.root)?.full_name()))),
        };
        Ok(Some(PropValue::Text(desc.word(number).map_or_else(|| number.to_string(), str::to_string))))
    }

    /// All properties that apply to this kind of dataset, in `zfs get all` order, user properties last. Properties
    /// without a value are left out.
    ///
    /// # Errors
    /// The first of those of [`DatasetHandle::known_props`].
    pub fn props(&self) -> Result<Vec<PropEntry>, DslError> {
        match self.known_props() {
            (entries, None) => Ok(entries),
            (_, Some(error)) => Err(error),
        }
    }

    /// Properties as [`DatasetHandle::props`] has them, as far as they can be read, with the first error of the others. Contents that were not
    /// received to their end are nothing to read yet, and no error. What has no readable object set counts as a file system.
    pub fn known_props(&self) -> (Vec<PropEntry>, Option<DslError>) {
        let (head, mut failed) = match self.kind() {
            Ok(ObjsetType::ZVOL) => (table::VOLUME, None),
            Ok(_) => (table::FILESYSTEM, None),
            Err(error) => (table::FILESYSTEM, Some(error)),
        };
        // What applies to a snapshot must apply to what it is of too (OpenZFS: `zprop_valid_for_type` with `headcheck`).
        let applies = |desc: &PropDesc| match self.dataset.is_snapshot {
            true => desc.applies == table::SNAPSHOT || desc.applies & table::SNAPSHOT != 0 && desc.applies & head != 0,
            false => desc.applies & head != 0,
        };
        let received = self.pool.tree.stored.received(&self.dataset).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            Default::default()
        });
        let mut entries = Vec::new();
        for desc in table::TABLE.iter().filter(|desc| applies(desc)) {
            match self.entry(&Prop::Native(desc), &received) {
                Ok(PropEntry { value: PropValue::None, .. }) | Err(DslError::BadProperty) => {}
                Ok(entry) => entries.push(entry),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match self.pool.tree.stored.user_names(&self.dataset) {
            Ok(names) => entries.extend(names.into_iter().filter_map(|name| self.entry(&Prop::User(name), &received).ok())),
            Err(error) => failed = failed.or(Some(error)),
        }
        (entries, failed.filter(|_| !self.is_inconsistent()))
    }

    /// Sets properties locally, all or none.
    pub fn set_props(&self, properties: &[(String, String)]) -> Result<(), DslError> {
        self.pool.set_props_of(self.dataset.object, properties.to_vec())
    }
    /// Removes a local value, so that the property is inherited.
    pub fn inherit_prop(&self, name: &str) -> Result<(), DslError> {
        self.pool.inherit_prop_of(self.dataset.object, name, false)
    }
    /// Removes a local value, so that the received one counts, if there is one.
    pub fn revert_prop(&self, name: &str) -> Result<(), DslError> {
        self.pool.inherit_prop_of(self.dataset.object, name, true)
    }
    /// Replaces all received values; gives those that this pool or dataset cannot have, with the reasons. Properties of the names `inherited`
    /// are inherited from now on where nothing is set here, and [`DatasetHandle::revert_prop`] goes back to what was received.
    pub fn receive_props(
        &self,
        properties: Vec<(String, ReceivedValue)>,
        inherited: Vec<String>,
    ) -> Result<Vec<(String, DslError)>, DslError> {
        self.receive_props_beside(properties, inherited, Vec::new())
    }
    /// As [`DatasetHandle::receive_props`], but values of the names `kept` that were received before stay, as whoever receives may not change them
    /// (OpenZFS: `zfs_check_clearable`).
    ///
    /// # Errors
    /// Those of the transaction.
    pub fn receive_props_beside(
        &self,
        properties: Vec<(String, ReceivedValue)>,
        inherited: Vec<String>,
        kept: Vec<String>,
    ) -> Result<Vec<(String, DslError)>, DslError> {
        self.pool.receive_props_of(self.dataset.object, properties, (inherited, kept))
    }
    /// Values that came with a receive, by property, also those that a setting covers, as streams have them (OpenZFS: `zfs_get_recvd_props`).
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn received_props(&self) -> Result<Vec<(String, ReceivedValue)>, DslError> {
        let values = self.pool.tree.stored.received(&self.dataset)?;
        let of_stream = |value: &Value| match value.as_u64() {
            Some(number) => Some(ReceivedValue::Number(number)),
            None => value.as_text().map(|text| ReceivedValue::Text(text.to_string())),
        };
        Ok(values.into_iter().filter_map(|(name, value)| Some((name, of_stream(&value)?))).collect())
    }
    /// Counts the dataset among the users of a feature (see [`crate::features::PER_DATASET`]) from this txg on.
    pub fn activate_feature(&self, guid: &'static str, tx: &Tx) {
        self.dataset.ledger.want_features(features::bit(guid));
        self.dataset.ledger.dirtied(tx.txg());
    }
    /// Time at which a snapshot of the dataset was last taken, destroyed or renamed, in seconds and nanoseconds since 1970.
    pub fn snapshots_changed(&self) -> Result<Option<(u64, u32)>, DslError> {
        changed::when(&self.pool.tree.meta, &self.dataset.dir)
    }

    /// Snapshots of the dataset, oldest first.
    pub fn snapshots(&self) -> Result<Vec<SnapshotEntry>, DslError> {
        let _config = self.pool.config();
        self.pool.tree.snapshots_of(&self.dataset)
    }
    /// Full names of the clones of the snapshot, sorted.
    pub fn clones(&self) -> Result<Vec<String>, DslError> {
        let _config = self.pool.config();
        self.pool.tree.clone_names(&self.dataset)
    }
    /// Full name of the snapshot that the dataset is a clone of; None for what is no clone.
    pub fn origin(&self) -> Result<Option<String>, DslError> {
        let _config = self.pool.config();
        self.pool.tree.origin_name(&self.dataset)
    }
    /// Holds one of its snapshots by the part behind `@`.
    pub fn hold_snapshot(&self, name: &str) -> Result<DatasetHandle, DslError> {
        let _config = self.pool.config();
        let snapshot = self.pool.tree.find_snapshot(&self.dataset, name)?;
        Ok(DatasetHandle::new(self.pool.clone(), snapshot))
    }

    /// Makes a volume larger or smaller, in bytes; it is on disk when this returns. What is beyond the smaller of both sizes is freed in the txg of the
    /// new one (OpenZFS, `zvol_update_volsize`, in a later one): bytes that were given up are not there again, whenever the power goes off.
    ///
    /// # Errors
    /// [`DslError::ReadOnly`] with `readonly=on`, [`DslError::BadValue`] for a size that is no multiple of the block size, those of
    /// the transaction.
    pub fn resize_volume(&self, bytes: u64) -> Result<(), DslError> {
        if self.prop_u64("readonly")?.0 != 0 {
            return Err(DslError::ReadOnly);
        }
        let objset = self.objset()?;
        volume::check_size(bytes, volume::block_size(&objset)?)?;
        let (properties, data) = volume::objects(&objset)?;
        let freed_from = bytes.min(volume::size(&objset)?);
        data.prepare_free(freed_from, u64::MAX)?;
        let tx = self.assign(TxSpace::Frees)?;
        // What can fail for want of a block comes first.
        data.free_range(freed_from, u64::MAX, &tx)?;
        volume::set_size(&properties, bytes, &tx)?;
        let txg = tx.txg();
        drop(tx);
        Ok(self.pool().txgs().wait_synced(txg)?)
    }
}

/// A stored number as `zfs get` shows it.
fn shown(desc: &PropDesc, number: u64) -> PropValue {
    match desc.kind {
        Kind::Index(_) => PropValue::Text(desc.word(number).map_or_else(|| number.to_string(), str::to_string)),
        Kind::CountOrNone if number == u64::MAX => PropValue::Text("none".to_string()),
        Kind::BytesOrNone => PropValue::Limit(number),
        Kind::Bytes => PropValue::Bytes(number),
        Kind::CountOrNone => PropValue::Count(number),
        Kind::Ratio => PropValue::Ratio(number),
        Kind::Time => PropValue::Time(number),
        _ => PropValue::Number(number),
    }
}
