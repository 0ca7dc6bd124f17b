//! Destroying snapshots and datasets (OpenZFS: `dsl_destroy.c`).
//!
//! A snapshot's blocks that nobody else has are on the next snapshot's deadlist; they move to the pool's list of blocks to
//! free, which [`Freeing::drain`] drains in bounded steps; in pools from before version 26 they are freed with the snapshot. A dataset's own
//! blocks are queued by its root pointer.

use super::bookmarks::Bookmarks;
use super::freeing::Freeing;
use super::intent::LiveLogs;
use super::limits::Limits;
use super::list_keys;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::meta::{Usage, bump};
use crate::{DslError, changed, features, keys, names};
use dmu::Tx;
use ondisk::names::spa_version;
use ondisk::{dd_used, ds_flags};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Destruction of datasets, with the parts of the pool that it needs.
pub(crate) struct Destruction {
    tree: Arc<Tree>,
    limits: Arc<Limits>,
    freeing: Arc<Freeing>,
    live_logs: Arc<LiveLogs>,
    bookmarks: Arc<Bookmarks>,
}

impl Destruction {
    pub(super) fn new(
        tree: Arc<Tree>,
        limits: Arc<Limits>,
        freeing: Arc<Freeing>,
        live_logs: Arc<LiveLogs>,
        bookmarks: Arc<Bookmarks>,
    ) -> Destruction {
        Destruction { tree, limits, freeing, live_logs, bookmarks }
    }

    /// The snapshots of these full names that are there, after a look that they can be destroyed.
    pub(super) fn check_snapshots(&self, names: &[String], defer: bool) -> Result<Vec<Arc<Dataset>>, DslError> {
        if defer {
            self.tree.meta.check_version(spa_version::USERREFS)?;
        }
        let found = self.tree.snapshots_named(names)?;
        found.iter().try_for_each(|snapshot| self.check_destroy_snapshot(snapshot, defer))?;
        Ok(found)
    }

    /// A look that a snapshot can be destroyed.
    pub(super) fn check_destroy_snapshot(&self, snapshot: &Dataset, defer: bool) -> Result<(), DslError> {
        if snapshot.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        if !defer && snapshot.user_refs(&self.tree.meta)? > 0 {
            return Err(DslError::Held);
        }
        if !defer && snapshot.phys().ds_num_children > 1 {
            return Err(DslError::HasClones);
        }
        let head = self.tree.head(&snapshot.dir)?;
        self.bookmarks.check_all(&head)?;
        // A list that can't be read is found here, where it is the caller's error: in the sync it would be the pool's.
        let next = self.tree.dataset(snapshot.phys().ds_next_snap_obj)?;
        for list in [snapshot.phys().ds_deadlist_obj, next.phys().ds_deadlist_obj, head.phys().ds_deadlist_obj] {
            Deadlist::open(&self.tree.meta, list)?.usage_between(0, u64::MAX)?;
        }
        self.freeing.check_list()
    }

    /// Destroys a snapshot, or marks it when it is in use and `defer` says so.
    pub(super) fn destroy_snapshot(&self, snapshot: &Arc<Dataset>, defer: bool, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        if defer && (snapshot.user_refs(&self.tree.meta)? > 0 || phys.ds_num_children > 1) {
            snapshot.update(tx, |phys| phys.ds_flags |= ds_flags::DEFER_DESTROY)?;
            return self.tree.log("defer_destroy", snapshot.object, String::new(), tx);
        }
        self.tree.log("destroy", snapshot.object, String::new(), tx)?;
        self.tree.meta.services.dataset_destroyed(&self.tree.meta.objset, snapshot.object, tx)?;
        snapshot.deactivate_all(&self.tree.meta, tx)?;
        let prev = match phys.ds_prev_snap_obj {
            0 => None,
            object => Some(self.tree.dataset(object)?),
        };
        let is_marked = self.bookmarks.snapshot_destroyed(snapshot, tx)?;
        let after_branch = match &prev {
            Some(prev) => self.unlink_from_prev(snapshot, prev, tx)?,
            None => false,
        };
        let next = self.tree.dataset(phys.ds_next_snap_obj)?;
        let old_unique = next.unique();
        next.update(tx, |next| {
            next.ds_prev_snap_obj = phys.ds_prev_snap_obj;
            next.ds_prev_snap_txg = phys.ds_prev_snap_txg;
        })?;
        self.settle_deadlists(snapshot, prev.as_ref().filter(|_| !after_branch), &next, tx)?;
        if !is_marked {
            list_keys::remove_from_clones(&self.tree, &snapshot.dir, phys.ds_creation_txg, tx)?;
        }
        if next.is_snapshot {
            self.settle_next_snapshot(snapshot, &next, is_marked, tx)?;
        } else {
            let before = next.phys().ds_prev_snap_obj;
            let before = if before == 0 { 0 } else { self.tree.dataset(before)?.phys().ds_referenced_bytes };
            next.recalculate_unique(&self.tree.meta, before, tx)?;
            self.settle_reservation(&next, old_unique, tx)?;
            next.follow_bookmarks(&self.tree.meta)?;
        }
        self.remove_snapshot_record(snapshot, tx)
    }

    /// Takes the snapshot out of its previous snapshot's links; true when that one belongs to another branch (the
    /// snapshot is the first of a clone).
    fn unlink_from_prev(&self, snapshot: &Dataset, prev: &Arc<Dataset>, tx: &Tx) -> Result<bool, DslError> {
        let next = snapshot.phys().ds_next_snap_obj;
        let prev_phys = prev.phys();
        if prev_phys.ds_next_snap_obj == snapshot.object {
            prev.update(tx, |phys| phys.ds_next_snap_obj = next)?;
            return Ok(false);
        }
        if prev_phys.ds_next_clones_obj != 0 {
            self.tree.remove_next_clone(prev_phys.ds_next_clones_obj, snapshot.object, tx)?;
            if next != 0 {
                self.tree.meta.zap(prev_phys.ds_next_clones_obj)?.add_int(next, tx)?;
            }
        }
        Ok(true)
    }

    /// Moves what only the snapshot had to the pool's list of blocks to free, and merges its deadlist into the next one's.
    fn settle_deadlists(&self, snapshot: &Dataset, prev: Option<&Arc<Dataset>>, next: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        let mut dead = Deadlist::open(&self.tree.meta, next.phys().ds_deadlist_obj)?;
        if dead.is_old() {
            return self.settle_old_deadlists(snapshot, prev, (next, &dead), tx);
        }
        if let Some(prev) = prev {
            let gained = dead.usage_between(prev.phys().ds_prev_snap_txg, phys.ds_prev_snap_txg)?;
            prev.update(tx, |phys| bump(&mut phys.ds_unique_bytes, gained.used))?;
        }
        let freed = dead.usage_between(phys.ds_prev_snap_txg, u64::MAX)?;
        snapshot.dir.charge(dd_used::SNAP, -freed, tx)?;
        dead.move_to(self.freeing.list(), phys.ds_prev_snap_txg, tx)?;
        self.freeing.charge(freed, tx)?;
        let mut own = Deadlist::open(&self.tree.meta, phys.ds_deadlist_obj)?;
        dead.merge(&mut own, tx)?;
        own.free(tx)?;
        snapshot.update(tx, |phys| phys.ds_deadlist_obj = 0)
    }

    /// As [`Destruction::settle_deadlists`] where all that died is on one list: what only the snapshot had is freed with this txg, and what is left goes to the
    /// snapshot's own list, which is the next one's from now on (OpenZFS: `process_old_deadlist`).
    fn settle_old_deadlists(
        &self,
        snapshot: &Dataset,
        prev: Option<&Arc<Dataset>>,
        (next, dead): (&Dataset, &Deadlist<'_>),
        tx: &Tx,
    ) -> Result<(), DslError> {
        let (meta, phys) = (&self.tree.meta, snapshot.phys());
        let (kept, freed) = dead.split(phys.ds_prev_snap_txg)?;
        if let Some(prev) = prev {
            let since = prev.phys().ds_prev_snap_txg;
            let gained = kept.iter().filter(|bp| bp.birth().0 > since).fold(0, |sum, bp| sum + meta.usage(bp).used);
            prev.update(tx, |phys| bump(&mut phys.ds_unique_bytes, gained))?;
        }
        Deadlist::open(meta, phys.ds_deadlist_obj)?.insert(&kept, tx)?;
        let mut sum = Usage::default();
        for bp in &freed {
            sum += meta.usage(bp);
            if !bp.is_embedded() {
                meta.io.free(tx.txg(), bp);
            }
        }
        snapshot.dir.charge(dd_used::SNAP, -sum, tx)?;
        meta.bpobj_free(next.phys().ds_deadlist_obj, tx)?;
        next.update(tx, |next| next.ds_deadlist_obj = phys.ds_deadlist_obj)?;
        snapshot.update(tx, |phys| phys.ds_deadlist_obj = 0)
    }

    /// The next snapshot gains what it shared with the destroyed one only. The key of one that is `marked` stays: bookmarks need it.
    fn settle_next_snapshot(&self, snapshot: &Dataset, next: &Dataset, marked: bool, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        let after_next = self.tree.dataset(next.phys().ds_next_snap_obj)?;
        let gained = Deadlist::open(&self.tree.meta, after_next.phys().ds_deadlist_obj)?
            .usage_between(phys.ds_prev_snap_txg, phys.ds_creation_txg)?;
        next.update(tx, |phys| bump(&mut phys.ds_unique_bytes, gained.used))?;
        if marked {
            return Ok(());
        }
        let head = self.tree.head(&snapshot.dir)?;
        Deadlist::open(&self.tree.meta, head.phys().ds_deadlist_obj)?.remove_key(phys.ds_creation_txg, tx)
    }

    /// The refreservation needs less once the head has more bytes of its own.
    fn settle_reservation(&self, head: &Dataset, old_unique: u64, tx: &Tx) -> Result<(), DslError> {
        if old_unique >= head.reserved() {
            return Ok(());
        }
        let gained = head.unique().saturating_sub(old_unique).min(head.reserved() - old_unique) as i64;
        head.dir.charge(dd_used::REFRSRV, Usage { used: -gained, comp: 0, uncomp: 0 }, tx)
    }

    fn remove_snapshot_record(&self, snapshot: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        let name = self.tree.snapshot_name(snapshot)?;
        let head = self.tree.head(&snapshot.dir)?;
        self.tree.meta.zap(head.phys().ds_snapnames_zapobj)?.remove(&name, tx)?;
        self.limits.count_snapshots(&snapshot.dir, -1, tx)?;
        changed::note(&self.tree.meta, &snapshot.dir, tx)?;
        for object in [phys.ds_next_clones_obj, phys.ds_props_obj, phys.ds_userrefs_obj] {
            if object != 0 {
                self.tree.meta.free_object(object, tx)?;
            }
        }
        self.tree.forget(snapshot);
        snapshot.free_record(&self.tree.meta, tx)
    }

    // ---- datasets ----

    /// The head of this name, after a look that it can be destroyed: it has neither children nor snapshots.
    pub(super) fn check_dataset(&self, name: &str) -> Result<Arc<Dataset>, DslError> {
        let (name, snapshot) = names::split(name)?;
        if snapshot.is_some() {
            return Err(DslError::IsSnapshot);
        }
        let head = self.tree.find(name)?;
        self.check_destroy_head(&head)?;
        Ok(head)
    }

    /// A look that a head can be destroyed.
    pub(super) fn check_destroy_head(&self, head: &Dataset) -> Result<(), DslError> {
        if head.dir.object == self.tree.root_dir.object {
            return Err(DslError::BadName);
        }
        if head.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        let phys = head.phys();
        if phys.ds_prev_snap_obj != 0 && self.tree.dataset(phys.ds_prev_snap_obj)?.phys().ds_next_snap_obj == head.object {
            return Err(DslError::HasSnapshots);
        }
        if self.tree.meta.zap(head.dir.phys().dd_child_dir_zapobj)?.count() > 0 {
            return Err(DslError::HasChildren);
        }
        self.bookmarks.check_destroy_all(head)?;
        keys::facts_of(&self.tree.meta, &head.dir)?;
        self.check_origin(head)
    }

    /// A look that the origin of a clone that goes can be destroyed, if it goes with that (OpenZFS: `dsl_destroy_head_check_impl`).
    fn check_origin(&self, head: &Dataset) -> Result<(), DslError> {
        if !self.tree.is_clone(&head.dir) {
            return Ok(());
        }
        let origin = self.tree.dataset(head.dir.phys().dd_origin_obj)?;
        if self.is_deferred_with(&origin, 0, 1)? { self.check_destroy_snapshot(&origin, true) } else { Ok(()) }
    }

    /// Destroys a file system or volume.
    pub(super) fn destroy_head(&self, head: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        let phys = head.phys();
        let dir = head.dir.clone();
        head.set_refreservation(0, tx)?;
        let own = dir.phys();
        let usage = Usage::new(own.dd_used_bytes, own.dd_compressed_bytes, own.dd_uncompressed_bytes);
        let livelist = head.part_with_livelist(&self.tree.meta, usage, tx)?;
        let how = match &livelist {
            Some((_, _, after)) => format!("(livelist, mintxg={after})"),
            None => format!("(bptree, mintxg={})", phys.ds_prev_snap_txg),
        };
        self.tree.log("destroy", head.object, how, tx)?;
        self.tree.meta.services.dataset_destroyed(&self.tree.meta.objset, head.object, tx)?;
        head.deactivate_all(&self.tree.meta, tx)?;
        self.bookmarks.destroy_all(head, tx)?;
        let origin = self.unlink_clone(head, tx)?;
        Deadlist::open(&self.tree.meta, phys.ds_deadlist_obj)?.free(tx)?;
        self.live_logs.destroy(head.object, tx);
        head.set_objset(None);
        dir.charge(dd_used::HEAD, -usage, tx)?;
        match livelist {
            Some((list, listed, _)) => self.freeing.give_up_list(list, listed, tx)?,
            None => self.freeing.give_up(head.object, (&phys.ds_bp, phys.ds_prev_snap_txg), usage, tx)?,
        }
        dir.update(tx, |phys| phys.dd_head_dataset_obj = 0)?;
        self.tree.meta.free_object(phys.ds_snapnames_zapobj, tx)?;
        self.tree.forget(head);
        head.free_record(&self.tree.meta, tx)?;
        self.remove_dir(&dir, tx)?;
        match origin {
            Some(origin) if self.is_deferred_and_unused(&origin)? => self.destroy_snapshot(&origin, false, tx),
            _ => Ok(()),
        }
    }

    fn is_deferred_and_unused(&self, snapshot: &Dataset) -> Result<bool, DslError> {
        self.is_deferred_with(snapshot, 0, 0)
    }

    /// True for a snapshot that is marked for destruction and that so many holds and clones keep, and nothing else.
    fn is_deferred_with(&self, snapshot: &Dataset, holds: u64, clones: u64) -> Result<bool, DslError> {
        let phys = snapshot.phys();
        let is_marked = phys.ds_flags & ds_flags::DEFER_DESTROY != 0;
        Ok(is_marked && phys.ds_num_children == 1 + clones && snapshot.user_refs(&self.tree.meta)? == holds)
    }

    /// A look that a snapshot whose hold is released can be destroyed, if it goes with that (OpenZFS: `dsl_dataset_user_release_check_one`).
    pub(super) fn check_released(&self, snapshot: &Dataset) -> Result<(), DslError> {
        if self.is_deferred_with(snapshot, 1, 0)? { self.check_destroy_snapshot(snapshot, true) } else { Ok(()) }
    }

    /// Destroys a snapshot of which a hold was released, if nothing keeps it any more that was marked.
    pub(super) fn destroy_released(&self, snapshot: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        if self.is_deferred_and_unused(snapshot)? { self.destroy_snapshot(snapshot, false, tx) } else { Ok(()) }
    }

    /// Takes a head out of its origin's links.
    fn unlink_clone(&self, head: &Dataset, tx: &Tx) -> Result<Option<Arc<Dataset>>, DslError> {
        let origin = head.phys().ds_prev_snap_obj;
        if origin == 0 {
            return Ok(None);
        }
        let origin = self.tree.dataset(origin)?;
        let phys = origin.phys();
        if phys.ds_next_clones_obj != 0 {
            self.tree.remove_next_clone(phys.ds_next_clones_obj, head.object, tx)?;
        }
        origin.update(tx, |phys| phys.ds_num_children = phys.ds_num_children.saturating_sub(1))?;
        let clones = origin.dir.phys().dd_clones;
        if clones != 0 {
            self.tree.meta.zap(clones)?.remove_int(head.object, tx)?;
        }
        Ok(Some(origin))
    }

    /// Removes an empty directory (OpenZFS: `dsl_dir_destroy_sync`).
    fn remove_dir(&self, dir: &Arc<Dir>, tx: &Tx) -> Result<(), DslError> {
        dir.set_reservation(0, tx)?;
        let phys = dir.phys();
        for object in [phys.dd_child_dir_zapobj, phys.dd_props_zapobj, phys.dd_clones] {
            if object != 0 {
                self.tree.meta.free_object(object, tx)?;
            }
        }
        self.free_delegations(phys.dd_deleg_zapobj, tx)?;
        keys::release(&self.tree.meta, dir, tx)?;
        self.tree.keystore.forget(dir.object);
        if let Some(parent) = dir.parent() {
            self.tree.meta.zap(parent.phys().dd_child_dir_zapobj)?.remove(dir.name(), tx)?;
            self.limits.count_filesystems(&parent, -1, tx)?;
        }
        self.tree.forget_dir(dir);
        if self.tree.meta.hold(dir.object)?.info()?.kind == ondisk::ObjectType::OTN_ZAP_METADATA {
            self.tree.meta.services.feature_add(features::EXTENSIBLE_DATASET, -1, tx)?;
        }
        self.tree.meta.free_object(dir.object, tx)
    }

    /// Frees a directory's table of delegated permissions (OpenZFS: `dsl_deleg_destroy`).
    fn free_delegations(&self, table: u64, tx: &Tx) -> Result<(), DslError> {
        if table == 0 {
            return Ok(());
        }
        for set in self.tree.meta.integers(table)? {
            self.tree.meta.free_object(set, tx)?;
        }
        self.tree.meta.free_object(table, tx)
    }
}
