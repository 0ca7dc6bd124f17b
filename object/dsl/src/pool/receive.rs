//! Receiving a snapshot: the dataset that its contents come into, and that taking its place (OpenZFS: `dmu_recv_begin_sync`,
//! `dmu_recv_end_sync`, `dsl_dataset_clone_swap_sync_impl`).
//!
//! What comes on top of a dataset goes into its hidden child `%recv`, a clone of the snapshot that the stream goes on from; only when all of it
//! is there do the two change places, in one txg, which also takes the snapshot. A new dataset is received into directly. Both are marked
//! inconsistent until then: nobody uses them, and what a crash leaves is destroyed, unless it can be resumed.

use super::bookmarks::Bookmarks;
use super::create::{Creation, DatasetInit, Wanted};
use super::destroy::Destruction;
use super::encryption::Encryption;
use super::intent::LiveLogs;
use super::snapshot::Snapshots;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::meta::{Meta, Usage};
use crate::raw::RawStream;
use crate::resume::ResumeState;
use crate::{DslError, features, keys, names, redaction};
use dmu::{DmuError, Tx};
use ondisk::{BlockId, Bookmark, DnodePhys, Level, META_DNODE_OBJECT, ObjsetId, ObjsetPhys, ObjsetType, dd_used, ds_flags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hidden child that is received into (OpenZFS: `recv_clone_name`).
pub(super) const CHILD: &str = "%recv";

/// Most bytes that one transaction of OpenZFS holds (`DMU_MAX_ACCESS`).
const TRANSACTION_BYTES_MAX: u64 = 64 << 20;
/// Factor by which bytes may become more on devices, unless told otherwise (OpenZFS: `spa_asize_inflation`).
const INFLATION: u64 = 24;

/// Beginning of a stream, as far as datasets are concerned.
pub struct ReceiveBegin {
    /// Full name of the dataset that gets the snapshot.
    pub target: String,
    /// The part behind `@` of the snapshot.
    pub snapshot: String,
    /// File system or volume.
    pub kind: ObjsetType,
    /// Guid of the snapshot that the stream goes on from; 0 of a full stream.
    pub from_guid: u64,
    /// Full name of the snapshot of that guid, for a new dataset that becomes its clone.
    pub origin: Option<String>,
    /// True to take back what changed since that snapshot, or to replace the dataset by a full stream.
    pub force: bool,
    /// True when names of files are the same in any case.
    pub ignores_case: bool,
    /// Guids of features that the dataset is counted for from the beginning, see [`features::PER_DATASET`].
    pub features: Vec<&'static str>,
    /// Guids of features without which a pool does not take what is in the stream (OpenZFS: `recv_begin_check_feature_flags_impl`).
    pub needs: Vec<&'static str>,
    /// Head of a raw stream: what it brings is encrypted already, and no key is asked for.
    pub raw: Option<RawStream>,
    /// Snapshots by which the stream, and what it goes on from, were redacted.
    pub redaction: StreamRedaction,
    /// State to keep, so that the receive can be resumed.
    pub resumable: Option<ResumeState>,
    /// Fills the new object set of a full stream, in syncing context.
    pub init: DatasetInit,
}

/// Redaction of a stream, as its head has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRedaction {
    /// Guid of the snapshot that the stream brings.
    pub to_guid: u64,
    /// Guids of the snapshots by which the stream is redacted; None for one that lacks nothing.
    pub by: Option<Vec<u64>>,
    /// Guids of the snapshots by which that was redacted which the stream goes on from, and so brings what it lacks.
    pub from: Option<Vec<u64>>,
}

impl StreamRedaction {
    /// A look that the dataset can keep it.
    fn check(&self) -> Result<(), DslError> {
        let is_kept = [&self.by, &self.from].into_iter().flatten().all(|guids| guids.len() <= redaction::OF_DATASET_MAX);
        if is_kept { Ok(()) } else { Err(DslError::TooManySnapshots) }
    }

    /// True for a stream that can go on from what was redacted by these snapshots: it brings all that was left out, or was made of one of those that
    /// have replaced it (OpenZFS: `redact_check`).
    fn fits(&self, lacking: &[u64]) -> bool {
        match self.from.as_ref().or(self.by.as_ref()) {
            Some(guids) => guids.len() <= lacking.len() && guids.iter().all(|guid| lacking.contains(guid)),
            None => lacking.contains(&self.to_guid),
        }
    }
}

/// A receive whose stream is through.
#[derive(Clone, Debug)]
pub struct ReceiveEnd {
    /// Full name of the dataset that gets the snapshot.
    pub target: String,
    /// Object of the dataset that was received into.
    pub received: u64,
    /// The part behind `@` of the snapshot.
    pub snapshot: String,
    /// Guid of the snapshot.
    pub guid: u64,
    /// Creation of the snapshot, in seconds since 1970.
    pub creation_time: u64,
    /// True to take back what changed meanwhile, with newer snapshots.
    pub force: bool,
    /// Head of a raw stream.
    pub raw: Option<RawStream>,
}

/// Dataset that can be received into.
pub(super) struct Begun {
    wanted: Wanted,
    /// Snapshot that it starts as; None of a full stream.
    origin: Option<Arc<Dataset>>,
}

/// Datasets of a receive that can end.
pub(super) struct Ended {
    head: Arc<Dataset>,
    /// Clone that takes the head's place; None where the head itself was received into.
    clone: Option<Arc<Dataset>>,
    /// Snapshots of the head that go, the newest first.
    newer: Vec<Arc<Dataset>>,
}

/// Receiving of snapshots, with the parts of the pool that it needs.
pub(crate) struct Receiving {
    tree: Arc<Tree>,
    live_logs: Arc<LiveLogs>,
    bookmarks: Arc<Bookmarks>,
    /// Bytes by which what is received may exceed the limit of what it references: one transaction may where it was written (OpenZFS:
    /// `refquota_slack`).
    excess_bytes: AtomicU64,
}

impl Receiving {
    pub(super) fn new(tree: Arc<Tree>, live_logs: Arc<LiveLogs>, bookmarks: Arc<Bookmarks>) -> Receiving {
        Receiving { tree, live_logs, bookmarks, excess_bytes: AtomicU64::new(INFLATION * TRANSACTION_BYTES_MAX) }
    }

    /// Sets the factor by which bytes may become more on devices.
    pub(super) fn set_inflation(&self, factor: u64) {
        self.excess_bytes.store(factor.saturating_mul(TRANSACTION_BYTES_MAX), Ordering::Relaxed);
    }

    // ---- beginning ----

    /// A look that a stream with this beginning can be received.
    pub(super) fn check_begin(&self, begin: &ReceiveBegin, creation: &Creation, tx: &Tx) -> Result<Begun, DslError> {
        names::split(&format!("{}@{}", begin.target, begin.snapshot))?;
        if begin.features.iter().chain(&begin.needs).any(|guid| !self.tree.meta.services.feature_enabled(guid)) {
            return Err(DslError::Unsupported);
        }
        if begin.raw.is_some() && !self.tree.meta.services.feature_enabled(features::ENCRYPTION) {
            return Err(DslError::NeedsFeature(features::ENCRYPTION));
        }
        begin.redaction.check()?;
        let (wanted, origin) = match self.tree.find(&begin.target) {
            Ok(head) => self.check_existing(&head, begin, creation)?,
            Err(DslError::NotFound) => self.check_new(begin, creation)?,
            Err(error) => return Err(error),
        };
        let has_large = |origin: &Arc<Dataset>| origin.features() & features::bit(features::LARGE_BLOCKS) != 0;
        if begin.from_guid != 0 && origin.as_ref().is_some_and(has_large) && !begin.features.contains(&features::LARGE_BLOCKS) {
            return Err(DslError::LargeBlocks);
        }
        if let (Some(raw), Some(origin)) = (&begin.raw, &origin) {
            self.check_raw(origin, raw)?;
        }
        let lacking =
            origin.as_ref().filter(|_| begin.from_guid != 0).map(|origin| origin.redacted_by(&self.tree.meta)).transpose()?.flatten();
        if lacking.is_some_and(|lacking| !begin.redaction.fits(&lacking)) {
            return Err(DslError::Redacted);
        }
        // What the clone gets in this txg would be born in the snapshot's.
        if origin.as_ref().is_some_and(|origin| origin.phys().ds_creation_txg >= tx.txg().0) {
            return Err(DslError::Again);
        }
        Ok(Begun { wanted, origin })
    }

    /// A look that a raw stream goes on from this snapshot, as it is stored here.
    fn check_raw(&self, origin: &Dataset, raw: &RawStream) -> Result<(), DslError> {
        keys::check_raw(&self.tree.meta, origin, raw)?;
        if self.tree.objset(origin)?.has_form(&raw.form) { Ok(()) } else { Err(DslError::OtherKeys) }
    }

    /// OpenZFS: `recv_begin_check_existing_impl`.
    fn check_existing(
        &self,
        head: &Arc<Dataset>,
        begin: &ReceiveBegin,
        creation: &Creation,
    ) -> Result<(Wanted, Option<Arc<Dataset>>), DslError> {
        // The keys of what is there would go with it, or those that come would be beside them.
        if begin.from_guid == 0 {
            keys::refuse(&self.tree.meta, &head.dir)?;
            if begin.raw.is_some() {
                return Err(DslError::Encrypted);
            }
        }
        if head.is_inconsistent() || self.child(&head.dir)?.is_some() {
            return Err(DslError::Busy);
        }
        match self.tree.find_snapshot(head, &begin.snapshot) {
            Ok(_) => return Err(DslError::Exists),
            Err(DslError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let origin = match begin.from_guid {
            0 if !begin.force => return Err(DslError::Exists),
            // What takes its place has to start where it does.
            0 if self.tree.is_clone(&head.dir) => return Err(DslError::NotIncremental),
            0 if self.previous(head)?.is_some() => return Err(DslError::HasSnapshots),
            0 => None,
            guid => Some(self.source(head, guid, begin)?),
        };
        Ok((creation.hidden(&head.dir, CHILD)?, origin))
    }

    /// The snapshot that a stream which goes on from this guid is received on top of.
    fn source(&self, head: &Arc<Dataset>, guid: u64, begin: &ReceiveBegin) -> Result<Arc<Dataset>, DslError> {
        let newest = self.previous(head)?.ok_or(DslError::NotIncremental)?;
        let mut walk = Some(newest.clone());
        while let Some(snapshot) = walk {
            if snapshot.phys().ds_guid == guid {
                if begin.force {
                    return Ok(snapshot);
                }
                // A later one, of no change, has another set of IVs.
                let is_later = begin.raw.is_some() && snapshot.object != newest.object;
                return if is_later || self.is_modified(head, &snapshot)? { Err(DslError::Modified) } else { Ok(newest) };
            }
            walk = self.previous(&snapshot)?;
        }
        Err(DslError::NotIncremental)
    }

    /// OpenZFS: the part of `dmu_recv_begin_check` for a target that is not there.
    fn check_new(&self, begin: &ReceiveBegin, creation: &Creation) -> Result<(Wanted, Option<Arc<Dataset>>), DslError> {
        names::check_depth(&begin.target)?;
        let origin = match (&begin.origin, begin.from_guid) {
            (None, 0) => None,
            (None, _) => return Err(DslError::NotFound),
            (Some(origin), guid) => {
                let origin = self.tree.find(origin)?;
                if !origin.is_snapshot {
                    return Err(DslError::NotSnapshot);
                }
                if guid != 0 && origin.phys().ds_guid != guid {
                    return Err(DslError::NotIncremental);
                }
                Some(origin)
            }
        };
        if begin.raw.is_some() && begin.from_guid == 0 && origin.is_some() {
            return Err(DslError::Encrypted);
        }
        // A clone has its origin's keys, if that has any, and what comes raw has its own.
        let encryption = if origin.is_some() || begin.raw.is_some() { Encryption::none() } else { Encryption::default() };
        Ok((creation.check_create(&begin.target, begin.kind, &[], &encryption)?, origin))
    }

    /// Makes the dataset that is received into; gives its object.
    pub(super) fn begin(&self, begun: Begun, begin: ReceiveBegin, creation: &Creation, tx: &Tx) -> Result<u64, DslError> {
        let Begun { wanted, origin } = begun;
        let meta = &self.tree.meta;
        let flags = if begin.ignores_case { ds_flags::CI_DATASET } else { 0 };
        let object = creation.create_for_receive(&wanted, origin.as_ref(), (begin.kind, flags, begin.raw.as_ref()), begin.init, tx)?;
        let dataset = self.tree.dataset(object)?;
        dataset.update(tx, |phys| phys.ds_flags |= ds_flags::INCONSISTENT)?;
        let bits = begin.features.iter().fold(0, |bits, guid| bits | features::bit(guid));
        dataset.activate(meta, bits, tx)?;
        dataset.set_redacted_by(meta, begin.redaction.by.as_deref(), tx)?;
        if let Some(state) = &begin.resumable {
            meta.zapify(&meta.hold(object)?, tx)?;
            state.write(&meta.zap(object)?, tx)?;
        }
        self.tree.log("receive", object, String::new(), tx)?;
        Ok(object)
    }

    // ---- end ----

    /// A look that a receive can end in this txg.
    pub(super) fn check_end(&self, end: &ReceiveEnd, destruction: &Destruction, tx: &Tx) -> Result<Ended, DslError> {
        let head = self.tree.find(&end.target)?;
        let received = self.tree.dataset(end.received)?;
        if !received.is_inconsistent() || head.is_snapshot {
            return Err(DslError::NotFound);
        }
        match self.tree.find_snapshot(&head, &end.snapshot) {
            Ok(_) => return Err(DslError::Exists),
            Err(DslError::NotFound) => {}
            Err(error) => return Err(error),
        }
        if head.phys().ds_prev_snap_txg.max(received.phys().ds_prev_snap_txg) >= tx.txg().0 {
            return Err(DslError::Again);
        }
        if received.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        if head.object == received.object {
            return Ok(Ended { head, clone: None, newer: Vec::new() });
        }
        // Another dataset may have the name by now.
        if received.dir.parent().is_none_or(|above| above.object != head.dir.object) {
            return Err(DslError::NotFound);
        }
        let newer = self.check_swap(&head, &received, end.force, destruction)?;
        Ok(Ended { head, clone: Some(received), newer })
    }

    /// A look that a clone can take the place of a head (OpenZFS: `dsl_dataset_clone_swap_check_impl`); gives the snapshots that go.
    fn check_swap(
        &self,
        head: &Arc<Dataset>,
        clone: &Arc<Dataset>,
        force: bool,
        destruction: &Destruction,
    ) -> Result<Vec<Arc<Dataset>>, DslError> {
        if head.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        let origin = clone.phys().ds_prev_snap_obj;
        let mut newer: Vec<Arc<Dataset>> = Vec::new();
        let mut at = head.clone();
        while at.phys().ds_prev_snap_obj != origin {
            at = self.previous(&at)?.ok_or(DslError::NotIncremental)?;
            newer.push(at.clone());
        }
        if !force && (!newer.is_empty() || self.is_modified(head, &*self.tree.dataset(origin)?)?) {
            return Err(DslError::Modified);
        }
        newer.iter().try_for_each(|snapshot| destruction.check_destroy_snapshot(snapshot, false))?;
        self.bookmarks.check_all(head)?;
        let quota = head.refquota.load(Ordering::Relaxed);
        if quota != 0 && clone.referenced() > quota.saturating_add(self.excess_bytes.load(Ordering::Relaxed)) {
            return Err(DslError::Quota);
        }
        // What can't be read is found here, where it is the caller's error: in the sync it would be the pool's.
        for list in [head.phys().ds_deadlist_obj, clone.phys().ds_deadlist_obj] {
            Deadlist::open(&self.tree.meta, list)?.usage_between(0, u64::MAX)?;
        }
        Ok(newer)
    }

    /// Has what was received take its place, and takes the snapshot.
    pub(super) fn end(
        &self,
        ended: &Ended,
        end: &ReceiveEnd,
        (snapshots, destruction): (&Snapshots, &Destruction),
        tx: &Tx,
    ) -> Result<(), DslError> {
        let Ended { head, clone, newer } = ended;
        newer.iter().try_for_each(|snapshot| destruction.destroy_snapshot(snapshot, false, tx))?;
        match clone {
            Some(clone) => self.swap(head, clone, tx)?,
            None => ResumeState::remove(&self.tree.meta, head, tx)?,
        }
        let snapshot = snapshots.take(head, &end.snapshot, tx)?;
        snapshot.update(tx, |phys| {
            phys.ds_guid = end.guid;
            phys.ds_creation_time = end.creation_time;
            phys.ds_flags &= !ds_flags::INCONSISTENT;
        })?;
        head.update(tx, |phys| phys.ds_flags &= !ds_flags::INCONSISTENT)?;
        if let Some(raw) = &end.raw {
            keys::rename_ivs(&self.tree.meta, &snapshot, raw.keys.ivs, tx)?;
            self.rewrap(head, raw, tx)?;
        }
        self.tree.log("finish receiving", snapshot.object, format!("snap={}", end.snapshot), tx)?;
        match clone {
            Some(clone) => destruction.destroy_head(clone, tx),
            None => Ok(()),
        }
    }

    /// Has the keys wrapped as they are where they come from, for the user's key may be another one there by now. Those that somebody gave another key
    /// here stay as they are, and so do those that OpenZFS received below another encryption root whose key is not recognizably the same: nobody could open
    /// them with that key any more (OpenZFS loses them then).
    fn rewrap(&self, head: &Dataset, raw: &RawStream, tx: &Tx) -> Result<(), DslError> {
        let meta = &self.tree.meta;
        let (Some(object), Some(own)) = (keys::object_of(meta, &head.dir)?, keys::facts_of(meta, &head.dir)?) else { return Ok(()) };
        let (is_own, came) = (own.root == head.dir.object, &raw.keys.wrapped);
        let is_theirs = keys::wrapped(meta, object)?.mac == came.mac || keys::are_as_they_came(meta, object)?.unwrap_or(is_own);
        let is_roots =
            || Ok::<bool, DslError>(keys::facts_of(meta, &*self.tree.dir(own.root)?)?.is_some_and(|root| raw.is_wrapped_as(&root)));
        if !is_theirs && (is_own || !is_roots()?) {
            return Ok(());
        }
        keys::rewrap(meta, object, (&raw.facts(own.root), came), tx)?;
        keys::note_came(meta, object, came, tx)?;
        if is_own && self.tree.keystore.get(own.root).is_some_and(|key| came.open(&key).is_err()) {
            self.tree.keystore.forget(own.root);
        }
        Ok(())
    }

    /// Has a clone of the newest snapshot and the head change places (OpenZFS: `dsl_dataset_clone_swap_sync_impl`).
    fn swap(&self, head: &Arc<Dataset>, clone: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        let meta = &self.tree.meta;
        let (own, new) = (head.phys(), clone.phys());
        self.tree.log("clone swap", clone.object, format!("parent={}", head.dir.name()), tx)?;
        self.live_logs.destroy(head.object, tx);
        // They tell of blocks that change hands here.
        head.drop_livelist(meta, tx)?;
        clone.drop_livelist(meta, tx)?;
        self.tree.forget_contents(head);
        self.tree.forget_contents(clone);
        let origin = self.tree.dataset(new.ds_prev_snap_obj)?;
        let branch = self.tree.origin_txg(&head.dir)?;
        let died_before = died_since(meta, own.ds_deadlist_obj, branch)?;
        let died_now = died_since(meta, new.ds_deadlist_obj, branch)?;
        let only_origin = died_since(meta, new.ds_deadlist_obj, origin.phys().ds_prev_snap_txg)?;
        let all_of = |dataset: &Dataset, list: u64| Ok::<Usage, DslError>(dataset.contents() + Deadlist::usage_of(meta, list)?);
        let gained = all_of(clone, new.ds_deadlist_obj)? + -all_of(head, own.ds_deadlist_obj)?;
        let (had, has) = ((head.features(), head.redacted_by(meta)?), (clone.features(), clone.redacted_by(meta)?));
        head.take_features(meta, has, tx)?;
        clone.take_features(meta, had, tx)?;
        origin.update(tx, |phys| phys.ds_unique_bytes = only_origin.max(0) as u64)?;
        exchange(head, &new, tx)?;
        exchange(clone, &own, tx)?;
        self.bookmarks.next_changed(head, &origin, tx)?;
        head.dir.charge(dd_used::HEAD, gained, tx)?;
        clone.dir.charge(dd_used::HEAD, -gained, tx)?;
        head.dir.transfer(died_now - died_before, dd_used::HEAD, dd_used::SNAP, tx)?;
        // The refreservation holds what is the head's own now instead of what was.
        let promised = |unique: u64| unique.min(head.reserved()) as i64;
        let used = promised(own.ds_unique_bytes) - promised(new.ds_unique_bytes);
        head.dir.charge(dd_used::REFRSRV, Usage { used, comp: 0, uncomp: 0 }, tx)
    }

    // ---- what was not received to its end ----

    /// The dataset that a receive into this one, whose name may be one of a dataset that is not whole itself, goes into.
    pub(super) fn partial(&self, name: &str) -> Result<Option<Arc<Dataset>>, DslError> {
        let head = self.tree.find(name)?;
        match head.is_snapshot {
            true => Ok(None),
            false if head.is_inconsistent() => Ok(Some(head)),
            false => self.child(&head.dir),
        }
    }

    /// The hidden child of a directory that is received into.
    fn child(&self, dir: &Arc<Dir>) -> Result<Option<Arc<Dataset>>, DslError> {
        let children = self.tree.meta.zap(dir.phys().dd_child_dir_zapobj)?;
        match children.try_lookup_u64(CHILD)? {
            Some(object) => Ok(Some(self.tree.head(&*self.tree.dir_known(object, dir.clone(), CHILD.to_string())?)?)),
            None => Ok(None),
        }
    }

    /// A look that what was not received to its end can go.
    pub(super) fn check_abort(&self, object: u64, destruction: &Destruction) -> Result<Arc<Dataset>, DslError> {
        let dataset = self.tree.dataset(object)?;
        if !dataset.is_inconsistent() {
            return Err(DslError::NotFound);
        }
        destruction.check_destroy_head(&dataset)?;
        Ok(dataset)
    }

    /// Objects of all datasets that are inconsistent and cannot be resumed; what cannot be read is passed over (OpenZFS: `dsl_destroy_inconsistent`).
    pub(super) fn lost(&self) -> Vec<u64> {
        let (mut lost, mut waiting) = (Vec::new(), vec![self.tree.root_dir.clone()]);
        while let Some(dir) = waiting.pop() {
            let children = self.tree.children_of(&dir).unwrap_or_default();
            waiting.extend(children.into_iter().filter_map(|child| self.tree.dir(child).ok()));
            let Ok(head) = self.tree.head(&dir) else { continue };
            if head.is_inconsistent() && matches!(ResumeState::of(&self.tree.meta, &head), Ok(None)) {
                lost.push(head.object);
            }
        }
        lost
    }

    // ---- looks at datasets ----

    /// The snapshot before a dataset in the same directory.
    fn previous(&self, dataset: &Dataset) -> Result<Option<Arc<Dataset>>, DslError> {
        let previous = match dataset.phys().ds_prev_snap_obj {
            0 => return Ok(None),
            object => self.tree.dataset(object)?,
        };
        // Snapshots of a damaged pool do not lead in a circle.
        let is_before = !dataset.is_snapshot || previous.phys().ds_creation_txg < dataset.phys().ds_creation_txg;
        let is_own = previous.dir.object == dataset.dir.object && is_before;
        Ok(Some(previous).filter(|_| is_own))
    }

    /// True when a head has other contents than a snapshot; its intent log does not count (OpenZFS: `dsl_dataset_modified_since_snap`).
    fn is_modified(&self, head: &Dataset, snapshot: &Dataset) -> Result<bool, DslError> {
        let (own, old) = (head.phys(), snapshot.phys());
        if own.ds_bp.birth().0 <= old.ds_creation_txg {
            return Ok(false);
        }
        Ok(self.meta_dnode(head)? != self.meta_dnode(snapshot)?)
    }

    /// The dnode of dnodes, as it is on disk.
    fn meta_dnode(&self, dataset: &Dataset) -> Result<DnodePhys, DslError> {
        let bookmark = Bookmark { objset: ObjsetId(dataset.object), object: META_DNODE_OBJECT, level: Level(u8::MAX), block: BlockId(0) };
        let block = self.tree.meta.io.read(&dataset.phys().ds_bp, &bookmark).map_err(DmuError::from)?;
        Ok(ObjsetPhys::decode(&block.to_vec()).map_err(DmuError::from)?.meta_dnode)
    }
}

/// Bytes on a deadlist that were born after a txg.
fn died_since(meta: &Meta, list: u64, txg: u64) -> Result<i64, DslError> {
    Ok(Deadlist::open(meta, list)?.usage_between(txg, u64::MAX)?.used)
}

/// Gives a dataset the contents that another one had.
fn exchange(dataset: &Dataset, other: &ondisk::DslDatasetPhys, tx: &Tx) -> Result<(), DslError> {
    dataset.update(tx, |phys| {
        phys.ds_bp = other.ds_bp;
        phys.ds_deadlist_obj = other.ds_deadlist_obj;
        phys.ds_referenced_bytes = other.ds_referenced_bytes;
        phys.ds_compressed_bytes = other.ds_compressed_bytes;
        phys.ds_uncompressed_bytes = other.ds_uncompressed_bytes;
        phys.ds_unique_bytes = other.ds_unique_bytes;
    })
}
