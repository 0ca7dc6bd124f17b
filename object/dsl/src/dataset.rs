//! A dataset in memory: its record, its object set, and the settlement of its ledger (OpenZFS: `dsl_dataset.c`).

use crate::bpobj::passes;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::ledger::{DirtySets, Ledger, Settlement};
use crate::livelist::Changes;
use crate::meta::{Meta, Usage, bump, damaged};
use crate::resume::Reached;
use crate::unlocked::UnlockedIo;
use crate::{DslError, features, livelist, marks};
use crypt::{DataKey, KEY_VERSION};
use dmu::{Dnode, MetaForm, NewObject, Objset, ObjsetEnv, ObjsetProps, Tx};
use exec::{Mutex, RwLock};
use ondisk::{BlockPtr, DslDatasetPhys, ObjectType, ObjsetId, ObjsetType, dd_used, objset_flags};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zap::{CreateOptions, Value, Zap};

/// A dataset in memory; there is one per object.
pub(crate) struct Dataset {
    pub(crate) object: u64,
    pub(crate) dir: Arc<Dir>,
    pub(crate) is_snapshot: bool,
    pub(crate) ledger: Arc<Ledger>,
    dnode: Arc<Dnode>,
    phys: Mutex<DslDatasetPhys>,
    /// Held while the object set is being opened: nothing that this waits for takes it.
    objset: Mutex<Option<Arc<Objset>>>,
    /// Object set of an encrypted dataset with its contents; held while it is being opened, as that one. While it can be written there is no other one.
    unlocked: Mutex<Option<Arc<Objset>>>,
    /// Handles of users.
    pub(crate) holds: AtomicUsize,
    /// Per-dataset features that are counted, by [`features::bit`].
    features: AtomicU32,
    /// The part behind `@`, once looked up.
    pub(crate) snapname: RwLock<Option<String>>,
    pub(crate) refquota: AtomicU64,
    pub(crate) refreservation: AtomicU64,
    referenced: AtomicU64,
    unique: AtomicU64,
    /// Object of the livelist; 0 without one.
    livelist: AtomicU64,
    /// The last txg whose blocks are on it, as far as it was seen.
    listed_txg: AtomicU64,
    /// Places that a receive into it came to.
    pub(crate) reached: Mutex<Reached>,
}

impl Dataset {
    /// Makes an object for a dataset, with a ZAP from the start when the pool has the feature.
    pub(crate) fn allocate(meta: &Meta, tx: &Tx) -> Result<u64, DslError> {
        let zapified = meta.services.feature_enabled(features::EXTENSIBLE_DATASET);
        let kind = if zapified { ObjectType::OTN_ZAP_METADATA } else { ObjectType::DSL_DATASET };
        if !zapified {
            let new = NewObject { bonus_type: ObjectType::DSL_DATASET, bonus_len: DslDatasetPhys::SIZE, ..NewObject::new(kind) };
            return Ok(meta.allocate(new, tx)?.object().0);
        }
        let options = CreateOptions { bonus_type: ObjectType::DSL_DATASET, bonus_len: DslDatasetPhys::SIZE, ..CreateOptions::new(kind) };
        let object = zap::create_with(&meta.objset, options, tx)?.0;
        meta.services.feature_add(features::EXTENSIBLE_DATASET, 1, tx)?;
        Ok(object)
    }

    /// The fields that every new dataset has.
    pub(crate) fn new_record(meta: &Meta, dir: &Dir, tx: &Tx) -> DslDatasetPhys {
        let exec = meta.io.exec();
        let mut phys: DslDatasetPhys = ondisk::Field::ZERO;
        phys.ds_dir_obj = dir.object;
        // 56 bits, never 0 (OpenZFS: unique_create).
        phys.ds_fsid_guid = (exec.random_u64() >> 8).max(1);
        phys.ds_guid = exec.random_u64().max(1);
        phys.ds_creation_time = exec.wall_clock().0 as u64;
        phys.ds_creation_txg = tx.txg().0;
        phys
    }

    /// Reads the record; `dir_of` gives the directory of an object.
    pub(crate) fn load(
        meta: &Meta,
        object: u64,
        dirty: &Arc<DirtySets>,
        dir_of: impl FnOnce(u64) -> Result<Arc<Dir>, DslError>,
    ) -> Result<Arc<Dataset>, DslError> {
        let dnode = meta.hold(object)?;
        if dnode.info()?.bonus_type != ObjectType::DSL_DATASET {
            return Err(damaged(object, "not a DSL dataset"));
        }
        let phys = DslDatasetPhys::decode(&dnode.bonus()?).map_err(|_| damaged(object, "the record of a DSL dataset is short"))?;
        let dir = dir_of(phys.ds_dir_obj)?;
        let ledger = Arc::new(Ledger::new(meta.io.clone(), object, dirty.clone(), phys.ds_prev_snap_txg));
        let is_snapshot = phys.ds_num_children != 0;
        let is_written = !is_snapshot && meta.services.is_writeable();
        let livelist = if is_written { livelist::of(meta, &dir)? } else { None };
        if livelist.is_some() {
            ledger.list_after(livelist::origin_txg(meta, &dir)?);
        }
        if is_written {
            // A table that cannot be read is found where somebody asks for bookmarks.
            let from = marks::counted_from(meta, object, phys.ds_prev_snap_txg);
            ledger.mark(&from.or_else(|error| passes(error).map(|()| BTreeSet::new()))?);
        }
        let dataset = Dataset {
            object,
            dir,
            is_snapshot,
            ledger,
            features: AtomicU32::new(load_features(meta, &dnode)?),
            dnode,
            objset: Mutex::new(None),
            unlocked: Mutex::new(None),
            holds: AtomicUsize::new(0),
            snapname: RwLock::new(None),
            refquota: AtomicU64::new(0),
            refreservation: AtomicU64::new(0),
            referenced: AtomicU64::new(phys.ds_referenced_bytes),
            unique: AtomicU64::new(phys.ds_unique_bytes),
            livelist: AtomicU64::new(livelist.unwrap_or(0)),
            listed_txg: AtomicU64::new(0),
            reached: Mutex::default(),
            phys: Mutex::new(phys),
        };
        Ok(Arc::new(dataset))
    }

    /// Record of the dataset, as in its bonus.
    pub(crate) fn phys(&self) -> DslDatasetPhys {
        self.phys.lock().clone()
    }

    /// Changes the record and writes it through.
    pub(crate) fn update<R>(&self, tx: &Tx, change: impl FnOnce(&mut DslDatasetPhys) -> R) -> Result<R, DslError> {
        let mut phys = self.phys.lock();
        let result = change(&mut phys);
        self.referenced.store(phys.ds_referenced_bytes, Ordering::Relaxed);
        self.unique.store(phys.ds_unique_bytes, Ordering::Relaxed);
        self.ledger.set_prev_snap_txg(phys.ds_prev_snap_txg);
        self.dnode.set_bonus(&phys.encode(), tx)?;
        Ok(result)
    }

    pub(crate) fn referenced(&self) -> u64 {
        self.referenced.load(Ordering::Relaxed)
    }
    /// Space of all that it refers to.
    pub(crate) fn contents(&self) -> Usage {
        let phys = self.phys.lock();
        Usage::new(phys.ds_referenced_bytes, phys.ds_compressed_bytes, phys.ds_uncompressed_bytes)
    }
    pub(crate) fn unique(&self) -> u64 {
        self.unique.load(Ordering::Relaxed)
    }
    pub(crate) fn reserved(&self) -> u64 {
        self.refreservation.load(Ordering::Relaxed)
    }

    /// True for a dataset that was not received to its end, or is just being received.
    pub(crate) fn is_inconsistent(&self) -> bool {
        self.phys.lock().ds_flags & ondisk::ds_flags::INCONSISTENT != 0
    }

    /// The object set when it is open; of what is encrypted the one that can be written.
    pub(crate) fn open_objset(&self) -> Option<Arc<Objset>> {
        self.written().or_else(|| self.objset.lock().clone())
    }
    pub(crate) fn set_objset(&self, objset: Option<Arc<Objset>>) {
        *self.unlocked.lock() = None;
        *self.objset.lock() = objset;
    }
    /// The object set with the contents of an encrypted dataset, where they can be written.
    fn written(&self) -> Option<Arc<Objset>> {
        self.unlocked.lock().clone().filter(|objset| !objset.is_read_only())
    }

    /// Environment of an object set of this dataset.
    pub(crate) fn env(&self, meta: &Meta) -> ObjsetEnv {
        let ledger: Option<Arc<dyn dmu::BlockLedger>> =
            if self.is_snapshot || !meta.services.is_writeable() { None } else { Some(self.ledger.clone()) };
        ObjsetEnv { io: meta.io.clone(), ledger, id: ObjsetId(self.object) }
    }

    /// Environment of an object set of this dataset with its contents, by its key.
    fn env_with(&self, meta: &Meta, key: Arc<DataKey>) -> ObjsetEnv {
        let env = self.env(meta);
        // What keys of the first version authenticate is less, and is not written any more.
        let ledger = env.ledger.filter(|_| key.version() == KEY_VERSION);
        ObjsetEnv { io: Arc::new(UnlockedIo::new(env.io, key)), ledger, id: env.id }
    }

    /// The object set, opened when it isn't.
    pub(crate) fn objset(&self, meta: &Meta, props: impl FnOnce() -> Result<ObjsetProps, DslError>) -> Result<Arc<Objset>, DslError> {
        if let Some(objset) = self.written() {
            return Ok(objset);
        }
        let mut slot = self.objset.lock();
        if let Some(objset) = &*slot {
            return Ok(objset.clone());
        }
        let root = self.phys.lock().ds_bp;
        if root.is_hole() {
            return Err(damaged(self.object, "the dataset has no object set"));
        }
        let objset = Objset::open(self.env(meta), root, props()?)?;
        *slot = Some(objset.clone());
        Ok(objset)
    }

    /// The object set with its contents, opened when it isn't, with the key that `key` gives. Error: [`DslError::Busy`] while what was changed without
    /// the key is not on disk.
    pub(crate) fn unlocked(
        &self,
        meta: &Meta,
        key: impl FnOnce() -> Result<Arc<DataKey>, DslError>,
        props: impl FnOnce() -> Result<ObjsetProps, DslError>,
    ) -> Result<Arc<Objset>, DslError> {
        let mut slot = self.unlocked.lock();
        if let Some(objset) = &*slot {
            return Ok(objset.clone());
        }
        let env = self.env_with(meta, key()?);
        let mut stored = self.objset.lock();
        // What comes raw is written without the key until all of it is there.
        let comes = |objset: &Arc<Objset>| objset.is_sealed() && self.is_inconsistent();
        if stored.as_ref().is_some_and(|objset| objset.has_changes() || comes(objset)) {
            return Err(DslError::Busy);
        }
        let objset = Objset::open(env, self.phys().ds_bp, props()?)?;
        if !objset.is_read_only() {
            *stored = None;
        }
        *slot = Some(objset.clone());
        Ok(objset)
    }
    /// Makes an empty object set with this key: the dataset's contents from now on.
    pub(crate) fn create_unlocked(
        &self,
        meta: &Meta,
        key: Arc<DataKey>,
        (kind, props): (ObjsetType, ObjsetProps),
        tx: &Tx,
    ) -> Result<Arc<Objset>, DslError> {
        let objset = Objset::create(self.env_with(meta, key), kind, props, tx)?;
        *self.objset.lock() = None;
        *self.unlocked.lock() = Some(objset.clone());
        Ok(objset)
    }
    /// Makes an empty object set that comes raw: the dataset's contents from now on.
    pub(crate) fn create_sealed(
        &self,
        meta: &Meta,
        (kind, props): (ObjsetType, ObjsetProps),
        sealed: (&MetaForm, [u8; 32]),
        tx: &Tx,
    ) -> Result<Arc<Objset>, DslError> {
        let objset = Objset::create_sealed(self.env(meta), (kind, props), sealed, tx)?;
        *self.objset.lock() = Some(objset.clone());
        Ok(objset)
    }
    /// The object set to go on with what comes raw, opened when it isn't. Error: [`DslError::Busy`] while it is open with its contents, or has changes of
    /// another kind.
    pub(crate) fn sealed(&self, meta: &Meta, props: impl FnOnce() -> Result<ObjsetProps, DslError>) -> Result<Arc<Objset>, DslError> {
        if self.is_unlocked() {
            return Err(DslError::Busy);
        }
        let mut slot = self.objset.lock();
        match &*slot {
            Some(objset) if objset.is_sealed() => return Ok(objset.clone()),
            Some(objset) if objset.has_changes() => return Err(DslError::Busy),
            _ => {}
        }
        let objset = Objset::open_sealed(self.env(meta), self.phys().ds_bp, props()?)?;
        *slot = Some(objset.clone());
        Ok(objset)
    }
    pub(crate) fn is_unlocked(&self) -> bool {
        self.unlocked.lock().is_some()
    }
    /// True while somebody has the contents, or what was changed of them is not on disk.
    pub(crate) fn is_used_unlocked(&self) -> bool {
        self.unlocked.lock().as_ref().is_some_and(is_used)
    }
    /// Closes the contents; false, and they stay open, while they are used ([`Dataset::is_used_unlocked`]).
    pub(crate) fn lock(&self) -> bool {
        let mut slot = self.unlocked.lock();
        if slot.as_ref().is_some_and(is_used) {
            return false;
        }
        *slot = None;
        *self.objset.lock() = None;
        true
    }

    // ---- features ----

    pub(crate) fn features(&self) -> u32 {
        self.features.load(Ordering::Relaxed)
    }

    /// Counts the dataset among the users of the features (bits) that it isn't yet (OpenZFS: `dsl_dataset_activate_feature`).
    pub(crate) fn activate(&self, meta: &Meta, bits: u32, tx: &Tx) -> Result<(), DslError> {
        // What was redacted goes with a list: see `set_redacted_by`.
        let missing = bits & !self.features() & !features::bit(features::REDACTED_DATASETS);
        if missing == 0 {
            return Ok(());
        }
        meta.zapify(&self.dnode, tx)?;
        let zap = meta.zap(self.object)?;
        for (index, guid) in features::PER_DATASET.iter().enumerate() {
            if missing & 1 << index != 0 && meta.services.feature_enabled(guid) {
                zap.update_u64(guid, 0, tx)?;
                meta.services.feature_add(guid, 1, tx)?;
                self.features.fetch_or(1 << index, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Takes the dataset off the count of a feature, if it is in it (OpenZFS: `dsl_dataset_deactivate_feature`).
    pub(crate) fn deactivate(&self, meta: &Meta, guid: &'static str, tx: &Tx) -> Result<(), DslError> {
        let bit = features::bit(guid);
        if self.features.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
            meta.zap(self.object)?.remove(guid, tx)?;
            meta.services.feature_add(guid, -1, tx)?;
        }
        Ok(())
    }

    /// Counts the dataset among the users of exactly those features that `other` is counted for, whose blocks it has from now on.
    pub(crate) fn take_features_of(&self, meta: &Meta, other: &Dataset, tx: &Tx) -> Result<(), DslError> {
        self.take_features(meta, (other.features(), other.redacted_by(meta)?), tx)
    }

    /// Counts the dataset among the users of exactly these features (bits), redacted by these snapshots.
    pub(crate) fn take_features(&self, meta: &Meta, (kept, redacted): (u32, Option<Vec<u64>>), tx: &Tx) -> Result<(), DslError> {
        features::PER_DATASET.iter().filter(|guid| kept & features::bit(guid) == 0).try_for_each(|guid| self.deactivate(meta, guid, tx))?;
        self.activate(meta, kept, tx)?;
        self.set_redacted_by(meta, redacted.as_deref(), tx)
    }

    /// Counts a new dataset among the users of the features of that whose blocks it begins with.
    pub(crate) fn inherit_features(&self, meta: &Meta, other: &Dataset, tx: &Tx) -> Result<(), DslError> {
        self.activate(meta, other.features(), tx)?;
        self.set_redacted_by(meta, other.redacted_by(meta)?.as_deref(), tx)
    }

    /// Guids of the snapshots by which the dataset was redacted; None for one that lacks nothing (OpenZFS: `dsl_dataset_get_uint64_array_feature`).
    pub(crate) fn redacted_by(&self, meta: &Meta) -> Result<Option<Vec<u64>>, DslError> {
        if self.features() & features::bit(features::REDACTED_DATASETS) == 0 {
            return Ok(None);
        }
        guids_of(&meta.zap(self.object)?).map(Some)
    }

    /// Notes by which snapshots the dataset was redacted, in the place of what was noted before (OpenZFS: `dsl_dataset_activate_redaction`).
    pub(crate) fn set_redacted_by(&self, meta: &Meta, guids: Option<&[u64]>, tx: &Tx) -> Result<(), DslError> {
        self.deactivate(meta, features::REDACTED_DATASETS, tx)?;
        let Some(guids) = guids else { return Ok(()) };
        meta.zapify(&self.dnode, tx)?;
        meta.zap(self.object)?.update(features::REDACTED_DATASETS, &Value::U64(guids.to_vec()), tx)?;
        meta.services.feature_add(features::REDACTED_DATASETS, 1, tx)?;
        self.features.fetch_or(features::bit(features::REDACTED_DATASETS), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the dataset off the counts of all its features, before it is freed.
    pub(crate) fn deactivate_all(&self, meta: &Meta, tx: &Tx) -> Result<(), DslError> {
        features::PER_DATASET.iter().try_for_each(|guid| self.deactivate(meta, guid, tx))
    }

    // ---- accounting ----

    /// Change in bytes of the directory's usage by a change of the dataset's unique bytes, given the refreservation
    /// (OpenZFS: `parent_delta` in `dsl_dataset.c`).
    fn dir_delta(&self, unique: u64, delta: i64) -> i64 {
        let reserved = self.reserved();
        unique.saturating_add_signed(delta).max(reserved) as i64 - unique.max(reserved) as i64
    }

    /// Charges what the ledger summed up: to the dataset, its directories, its previous snapshot and its deadlist. `before` gives the
    /// previous snapshot and the txg that the dataset's branch began in, where there are blocks that a snapshot still has.
    pub(crate) fn settle(
        &self,
        meta: &Meta,
        root: Option<BlockPtr>,
        before: impl FnOnce() -> Result<(Arc<Dataset>, u64), DslError>,
        tx: &Tx,
    ) -> Result<(), DslError> {
        let sums = self.ledger.take();
        let mut dead = Usage::default();
        for bp in &sums.dead {
            dead += meta.usage(bp);
        }
        let own = sums.born + -sums.freed;
        let change = own + -dead;
        let delta = self.update(tx, |phys| {
            let delta = self.dir_delta(phys.ds_unique_bytes, own.used);
            bump(&mut phys.ds_unique_bytes, own.used);
            bump(&mut phys.ds_referenced_bytes, change.used);
            bump(&mut phys.ds_compressed_bytes, change.comp);
            bump(&mut phys.ds_uncompressed_bytes, change.uncomp);
            if let Some(root) = root {
                phys.ds_bp = root;
            }
            delta
        })?;
        self.dir.charge_moving(Usage { used: delta, ..own }, own.used, dd_used::REFRSRV, dd_used::HEAD, tx)?;
        if !sums.dead.is_empty() {
            self.bury(meta, &sums.dead, before, tx)?;
        }
        if !sums.marked.is_empty() {
            marks::add_freed(meta, self.object, &sums.marked, tx).or_else(passes)?;
        }
        let noted = self.open_objset().map_or(0, |objset| {
            let used = [
                (objset.has_large_dnodes(), features::LARGE_DNODE),
                (objset.has_long_names(), features::LONGNAME),
                (objset.has_large_micro_zaps(), features::LARGE_MICROZAP),
                (objset.counts() & objset_flags::USEROBJACCOUNTING_COMPLETE != 0, features::USEROBJ_ACCOUNTING),
                (objset.counts() & objset_flags::PROJECTQUOTA_COMPLETE != 0, features::PROJECT_QUOTA),
            ];
            used.iter().filter(|(is_used, _)| *is_used).fold(0, |bits, (_, guid)| bits | features::bit(guid))
        });
        self.activate(meta, sums.features | noted, tx)?;
        self.settle_livelist(meta, &sums, tx)
    }

    /// Puts blocks that a snapshot still has on the deadlist.
    fn bury(
        &self,
        meta: &Meta,
        dead: &[BlockPtr],
        before: impl FnOnce() -> Result<(Arc<Dataset>, u64), DslError>,
        tx: &Tx,
    ) -> Result<(), DslError> {
        let phys = self.phys();
        Deadlist::open(meta, phys.ds_deadlist_obj)?.insert(dead, tx)?;
        let (prev, origin_txg) = before()?;
        let prev_phys = prev.phys();
        let (mut unique, mut to_snap) = (0i64, 0i64);
        for bp in dead {
            let used = meta.io.dsize(bp) as i64;
            if bp.birth().0 > prev_phys.ds_prev_snap_txg {
                unique += used;
            }
            if bp.birth().0 > origin_txg {
                to_snap += used;
            }
        }
        if prev_phys.ds_next_snap_obj == self.object && unique != 0 {
            prev.update(tx, |phys| bump(&mut phys.ds_unique_bytes, unique))?;
        }
        self.dir.transfer(to_snap, dd_used::HEAD, dd_used::SNAP, tx)
    }

    /// Counts from now on what is given up behind the bookmarks that count it and that no snapshot came after.
    pub(crate) fn follow_bookmarks(&self, meta: &Meta) -> Result<(), DslError> {
        self.ledger.mark(&marks::counted_from(meta, self.object, self.phys().ds_prev_snap_txg)?);
        Ok(())
    }

    // ---- the livelist ----

    /// Object of the livelist; 0 without one.
    pub(crate) fn livelist(&self) -> u64 {
        self.livelist.load(Ordering::Relaxed)
    }

    /// Begins a livelist of a clone that was just made, where the pool has the feature.
    pub(crate) fn begin_livelist(&self, meta: &Meta, tx: &Tx) -> Result<(), DslError> {
        if let Some(list) = livelist::create(meta, &self.dir, tx)? {
            self.livelist.store(list, Ordering::Relaxed);
            self.ledger.list_after(livelist::origin_txg(meta, &self.dir)?);
        }
        Ok(())
    }

    /// Notes on the livelist what the sync did, and gives it up where it is not worth it any more, or damaged.
    fn settle_livelist(&self, meta: &Meta, sums: &Settlement, tx: &Tx) -> Result<(), DslError> {
        let list = self.livelist();
        if list == 0 {
            return Ok(());
        }
        let txg = tx.txg().0;
        let is_first = self.listed_txg.swap(txg, Ordering::Relaxed) != txg;
        let is_kept = match livelist::note(meta, list, &Changes { born: &sums.listed, freed: &sums.unlisted, is_first }, tx) {
            Ok(()) => meta.livelists.are_worth_it(self.dir.phys().dd_used_breakdown[dd_used::HEAD], self.referenced()),
            Err(error) => {
                passes(error)?;
                false
            }
        };
        if is_kept { Ok(()) } else { self.drop_livelist(meta, tx) }
    }

    /// Gives the livelist up: what comes from now on, it could not tell (OpenZFS: `dsl_dir_remove_livelist`).
    pub(crate) fn drop_livelist(&self, meta: &Meta, tx: &Tx) -> Result<(), DslError> {
        match self.detach_livelist(meta, tx)? {
            0 => Ok(()),
            list => livelist::free(meta, list, tx),
        }
    }

    /// Takes the livelist off the dataset's directory; gives its object, or 0 without one.
    fn detach_livelist(&self, meta: &Meta, tx: &Tx) -> Result<u64, DslError> {
        let list = self.livelist.swap(0, Ordering::Relaxed);
        if list != 0 {
            self.ledger.list_after(u64::MAX);
            livelist::detach(meta, &self.dir, tx)?;
        }
        Ok(list)
    }

    /// Parts with the livelist of a clone that goes, and that has so much of its own: gives its object, the space of what is on it, and the txg
    /// that it begins after. None without one, or where it cannot be believed.
    pub(crate) fn part_with_livelist(&self, meta: &Meta, own: Usage, tx: &Tx) -> Result<Option<(u64, Usage, u64)>, DslError> {
        let list = self.detach_livelist(meta, tx)?;
        if list == 0 {
            return Ok(None);
        }
        match livelist::believed(meta, list, own) {
            Ok(Some((listed, after))) => return Ok(Some((list, listed, after))),
            Ok(None) => {}
            Err(error) => passes(error)?,
        }
        livelist::free(meta, list, tx)?;
        Ok(None)
    }

    /// Recomputes a head's unique bytes after its previous snapshot changed: what it references less what its previous
    /// snapshot does (`prev` bytes), the dead left out (OpenZFS: `dsl_dataset_recalc_head_uniq`).
    pub(crate) fn recalculate_unique(&self, meta: &Meta, prev: u64, tx: &Tx) -> Result<(), DslError> {
        let dead = Deadlist::usage_of(meta, self.phys().ds_deadlist_obj)?;
        let shared = prev.saturating_sub(dead.used as u64);
        self.update(tx, |phys| {
            phys.ds_unique_bytes = phys.ds_referenced_bytes.saturating_sub(shared);
            phys.ds_flags |= meta.accurate_flag();
        })
    }

    /// Frees the dataset object (OpenZFS: `dmu_object_free_zapified`).
    pub(crate) fn free_record(&self, meta: &Meta, tx: &Tx) -> Result<(), DslError> {
        if self.dnode.info()?.kind == ObjectType::OTN_ZAP_METADATA {
            meta.services.feature_add(features::EXTENSIBLE_DATASET, -1, tx)?;
        }
        meta.free_object(self.object, tx)
    }

    /// Holds of users on a snapshot.
    pub(crate) fn user_refs(&self, meta: &Meta) -> Result<u64, DslError> {
        match self.phys().ds_userrefs_obj {
            0 => Ok(0),
            object => Ok(meta.zap(object)?.count()),
        }
    }

    /// Changes the refreservation and charges the directory (OpenZFS: `dsl_dataset_set_refreservation_sync_impl`).
    pub(crate) fn set_refreservation(&self, bytes: u64, tx: &Tx) -> Result<(), DslError> {
        let unique = self.unique();
        let old = self.refreservation.swap(bytes, Ordering::Relaxed);
        let delta = bytes.saturating_sub(unique) as i64 - old.saturating_sub(unique) as i64;
        self.dir.charge(dd_used::REFRSRV, Usage { used: delta, comp: 0, uncomp: 0 }, tx)
    }
}

/// True for contents that somebody has, or that are changed and not on disk.
fn is_used(objset: &Arc<Objset>) -> bool {
    Arc::strong_count(objset) > 1 || objset.has_changes()
}

fn load_features(meta: &Meta, dnode: &Arc<Dnode>) -> Result<u32, DslError> {
    if dnode.info()?.kind != ObjectType::OTN_ZAP_METADATA {
        return Ok(0);
    }
    let zap = meta.zap(dnode.object().0)?;
    let mut bits = 0;
    for guid in features::PER_DATASET {
        if zap.contains(guid)? {
            bits |= features::bit(guid);
        }
    }
    if bits & features::bit(features::REDACTED_DATASETS) != 0 {
        guids_of(&zap)?;
    }
    Ok(bits)
}

/// Guids that the ZAP of a dataset that was redacted has.
fn guids_of(zap: &Zap) -> Result<Vec<u64>, DslError> {
    match zap.lookup(features::REDACTED_DATASETS)? {
        Value::U64(guids) => Ok(guids),
        _ => Err(damaged(zap.object().0, "a redacted dataset does not say by what")),
    }
}
