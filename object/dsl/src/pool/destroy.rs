//! Destroying snapshots and datasets (OpenZFS: `dsl_destroy.c`).
//!
//! A snapshot's blocks that nobody else has are on the next snapshot's deadlist; they move to the pool's list of blocks to
//! free, which [`DslPool::sync_frees`] drains in bounded steps. A dataset's own blocks are queued by its root pointer.

use super::DslPool;
use crate::bpobj::Bpobj;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::meta::{Usage, bump};
use crate::traverse::Walk;
use crate::{DslError, features, names};
use dmu::Tx;
use ondisk::{BlockPtr, dd_used, ds_flags};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl DslPool {
    /// Destroys snapshots (full names), all in one txg or none; `defer` marks those that are in use. A snapshot that is
    /// not there counts as destroyed.
    pub fn destroy_snapshots(self: &Arc<Self>, names: &[String], defer: bool) -> Result<(), DslError> {
        let names = names.to_vec();
        let check = move |pool: &Arc<DslPool>, _: &Tx| {
            let mut found = Vec::new();
            for name in &names {
                if names::split(name)?.1.is_none() {
                    return Err(DslError::NotSnapshot);
                }
                match pool.find(name) {
                    Ok(snapshot) => {
                        pool.check_destroy_snapshot(&snapshot, defer)?;
                        found.push(snapshot);
                    }
                    Err(DslError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        };
        self.sync_task(check, move |pool, found, tx| found.iter().try_for_each(|snapshot| pool.destroy_snapshot(snapshot, defer, tx)))
    }

    fn user_holds(&self, snapshot: &Dataset) -> Result<u64, DslError> {
        match snapshot.phys().ds_userrefs_obj {
            0 => Ok(0),
            object => Ok(self.meta.zap(object)?.count()),
        }
    }

    fn check_destroy_snapshot(&self, snapshot: &Dataset, defer: bool) -> Result<(), DslError> {
        if snapshot.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        if !defer && (self.user_holds(snapshot)? > 0 || snapshot.phys().ds_num_children > 1) {
            return Err(DslError::HasClones);
        }
        let head = self.head(&snapshot.dir)?;
        self.check_no_bookmarks(&head)?;
        // A list that can't be read is found here, where it is the caller's error: in the sync it would be the pool's.
        let next = self.dataset(snapshot.phys().ds_next_snap_obj)?;
        for list in [snapshot.phys().ds_deadlist_obj, next.phys().ds_deadlist_obj, head.phys().ds_deadlist_obj] {
            Deadlist::open(&self.meta, list)?.usage_between(0, u64::MAX)?;
        }
        Bpobj::open(&self.meta, self.free_bpobj)?;
        Ok(())
    }

    /// A bookmark keeps keys of deadlists alive that destroying would merge, which this does not do yet.
    fn check_no_bookmarks(&self, head: &Dataset) -> Result<(), DslError> {
        match head.zap(&self.meta)? {
            Some(zap) if zap.contains("com.delphix:bookmarks")? => Err(DslError::Unsupported),
            _ => Ok(()),
        }
    }

    fn destroy_snapshot(self: &Arc<Self>, snapshot: &Arc<Dataset>, defer: bool, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        if defer && (self.user_holds(snapshot)? > 0 || phys.ds_num_children > 1) {
            snapshot.update(tx, |phys| phys.ds_flags |= ds_flags::DEFER_DESTROY)?;
            return self.log("defer_destroy", snapshot.object, String::new(), tx);
        }
        self.log("destroy", snapshot.object, String::new(), tx)?;
        self.meta.services.dataset_destroyed(self.mos(), snapshot.object, tx)?;
        snapshot.deactivate_all(&self.meta, tx)?;
        let prev = match phys.ds_prev_snap_obj {
            0 => None,
            object => Some(self.dataset(object)?),
        };
        let after_branch = match &prev {
            Some(prev) => self.unlink_from_prev(snapshot, prev, tx)?,
            None => false,
        };
        let next = self.dataset(phys.ds_next_snap_obj)?;
        let old_unique = next.unique();
        next.update(tx, |next| {
            next.ds_prev_snap_obj = phys.ds_prev_snap_obj;
            next.ds_prev_snap_txg = phys.ds_prev_snap_txg;
        })?;
        self.settle_deadlists(snapshot, prev.as_ref().filter(|_| !after_branch), &next, tx)?;
        self.remove_clone_keys(&snapshot.dir, phys.ds_creation_txg, tx)?;
        if next.is_snapshot {
            self.settle_next_snapshot(snapshot, &next, tx)?;
        } else {
            next.recalculate_unique(self, tx)?;
            self.settle_reservation(&next, old_unique, tx)?;
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
            let clones = self.meta.zap(prev_phys.ds_next_clones_obj)?;
            clones.remove_int(snapshot.object, tx)?;
            if next != 0 {
                clones.add_int(next, tx)?;
            }
        }
        Ok(true)
    }

    /// Moves what only the snapshot had to the pool's list of blocks to free, and merges its deadlist into the next one's.
    fn settle_deadlists(&self, snapshot: &Dataset, prev: Option<&Arc<Dataset>>, next: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        let mut dead = Deadlist::open(&self.meta, next.phys().ds_deadlist_obj)?;
        if let Some(prev) = prev {
            let gained = dead.usage_between(prev.phys().ds_prev_snap_txg, phys.ds_prev_snap_txg)?;
            prev.update(tx, |phys| bump(&mut phys.ds_unique_bytes, gained.used))?;
        }
        let freed = dead.usage_between(phys.ds_prev_snap_txg, u64::MAX)?;
        snapshot.dir.charge(dd_used::SNAP, -freed, tx)?;
        dead.move_to(self.free_bpobj, phys.ds_prev_snap_txg, tx)?;
        self.charge_free(freed, tx)?;
        let mut own = Deadlist::open(&self.meta, phys.ds_deadlist_obj)?;
        dead.merge(&mut own, tx)?;
        own.free(tx)?;
        snapshot.update(tx, |phys| phys.ds_deadlist_obj = 0)
    }

    /// Removes a snapshot's key from the deadlists of all clones that were made after it
    /// (OpenZFS: `dsl_dir_remove_clones_key`).
    fn remove_clone_keys(&self, dir: &Arc<Dir>, mintxg: u64, tx: &Tx) -> Result<(), DslError> {
        let mut waiting = vec![dir.clone()];
        while let Some(dir) = waiting.pop() {
            let clones = dir.phys().dd_clones;
            if clones == 0 {
                continue;
            }
            let mut objects = Vec::new();
            self.meta.zap(clones)?.for_each(|entry| {
                objects.push(entry.first_integer);
                Ok(())
            })?;
            for object in objects {
                let clone = self.dataset(object)?;
                if self.origin_txg(&clone.dir)? > mintxg {
                    Deadlist::open(&self.meta, clone.phys().ds_deadlist_obj)?.remove_key(mintxg, tx)?;
                    waiting.push(clone.dir.clone());
                }
            }
        }
        Ok(())
    }

    /// The next snapshot gains what it shared with the destroyed one only.
    fn settle_next_snapshot(&self, snapshot: &Dataset, next: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let phys = snapshot.phys();
        let after_next = self.dataset(next.phys().ds_next_snap_obj)?;
        let gained =
            Deadlist::open(&self.meta, after_next.phys().ds_deadlist_obj)?.usage_between(phys.ds_prev_snap_txg, phys.ds_creation_txg)?;
        next.update(tx, |phys| bump(&mut phys.ds_unique_bytes, gained.used))?;
        let head = self.head(&snapshot.dir)?;
        Deadlist::open(&self.meta, head.phys().ds_deadlist_obj)?.remove_key(phys.ds_creation_txg, tx)
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
        let name = self.snapshot_name(snapshot)?;
        let head = self.head(&snapshot.dir)?;
        self.meta.zap(head.phys().ds_snapnames_zapobj)?.remove(&name, tx)?;
        self.count_snapshots(&snapshot.dir, -1, tx)?;
        self.note_snapshots_changed(&snapshot.dir, tx)?;
        for object in [phys.ds_next_clones_obj, phys.ds_props_obj, phys.ds_userrefs_obj] {
            if object != 0 {
                self.meta.free_object(object, tx)?;
            }
        }
        self.forget(snapshot);
        snapshot.free_record(&self.meta, tx)
    }

    // ---- datasets ----

    /// Destroys a file system or volume without children and snapshots.
    pub fn destroy_dataset(self: &Arc<Self>, name: &str) -> Result<(), DslError> {
        let name = name.to_string();
        let check = move |pool: &Arc<DslPool>, _: &Tx| {
            let (name, snapshot) = names::split(&name)?;
            if snapshot.is_some() {
                return Err(DslError::IsSnapshot);
            }
            let head = pool.find(name)?;
            pool.check_destroy_head(&head)?;
            Ok(head)
        };
        self.sync_task(check, |pool, head, tx| pool.destroy_head(&head, tx))
    }

    fn check_destroy_head(&self, head: &Dataset) -> Result<(), DslError> {
        if head.dir.object == self.root_dir.object {
            return Err(DslError::BadName);
        }
        if head.holds.load(Ordering::Acquire) > 0 {
            return Err(DslError::Busy);
        }
        let phys = head.phys();
        if phys.ds_prev_snap_obj != 0 && self.dataset(phys.ds_prev_snap_obj)?.phys().ds_next_snap_obj == head.object {
            return Err(DslError::HasSnapshots);
        }
        if self.meta.zap(head.dir.phys().dd_child_dir_zapobj)?.count() > 0 {
            return Err(DslError::HasChildren);
        }
        self.check_no_bookmarks(head)
    }

    fn destroy_head(self: &Arc<Self>, head: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        let phys = head.phys();
        let dir = head.dir.clone();
        self.log("destroy", head.object, format!("(bptree, mintxg={})", phys.ds_prev_snap_txg), tx)?;
        self.meta.services.dataset_destroyed(self.mos(), head.object, tx)?;
        self.set_refreservation(head, 0, tx)?;
        head.deactivate_all(&self.meta, tx)?;
        let origin = self.unlink_clone(head, tx)?;
        Deadlist::open(&self.meta, phys.ds_deadlist_obj)?.free(tx)?;
        head.set_objset(None);
        let own = dir.phys();
        let usage = Usage::new(own.dd_used_bytes, own.dd_compressed_bytes, own.dd_uncompressed_bytes);
        dir.charge(dd_used::HEAD, -usage, tx)?;
        if self.meta.services.feature_enabled(features::ASYNC_DESTROY) {
            self.bptree_add(&phys.ds_bp, phys.ds_prev_snap_txg, usage, tx)?;
        } else {
            self.free_now(head.object, &phys.ds_bp, phys.ds_prev_snap_txg, tx)?;
        }
        dir.update(tx, |phys| phys.dd_head_dataset_obj = 0)?;
        self.meta.free_object(phys.ds_snapnames_zapobj, tx)?;
        self.forget(head);
        head.free_record(&self.meta, tx)?;
        self.remove_dir(&dir, tx)?;
        match origin {
            Some(origin) if self.is_deferred_and_unused(&origin)? => self.destroy_snapshot(&origin, false, tx),
            _ => Ok(()),
        }
    }

    /// Frees all blocks of a dataset in this txg, for pools without the feature to do it in steps.
    fn free_now(&self, object: u64, root: &BlockPtr, after: u64, tx: &Tx) -> Result<(), DslError> {
        let io = &*self.meta.io;
        let walk = Walk { skip_unreadable: true, ..Walk::all(io, object, root, after) };
        walk.run(&mut |bp| {
            if !bp.is_embedded() {
                io.free(tx.txg(), bp);
            }
            Ok(())
        })?;
        Ok(())
    }

    fn is_deferred_and_unused(&self, snapshot: &Dataset) -> Result<bool, DslError> {
        let phys = snapshot.phys();
        Ok(phys.ds_flags & ds_flags::DEFER_DESTROY != 0 && phys.ds_num_children == 1 && self.user_holds(snapshot)? == 0)
    }

    /// Takes a head out of its origin's links.
    fn unlink_clone(&self, head: &Dataset, tx: &Tx) -> Result<Option<Arc<Dataset>>, DslError> {
        let origin = head.phys().ds_prev_snap_obj;
        if origin == 0 {
            return Ok(None);
        }
        let origin = self.dataset(origin)?;
        let phys = origin.phys();
        if phys.ds_next_clones_obj != 0 {
            self.meta.zap(phys.ds_next_clones_obj)?.remove_int(head.object, tx)?;
        }
        origin.update(tx, |phys| phys.ds_num_children = phys.ds_num_children.saturating_sub(1))?;
        let clones = origin.dir.phys().dd_clones;
        if clones != 0 {
            self.meta.zap(clones)?.remove_int(head.object, tx)?;
        }
        Ok(Some(origin))
    }

    /// Removes an empty directory (OpenZFS: `dsl_dir_destroy_sync`).
    fn remove_dir(&self, dir: &Arc<Dir>, tx: &Tx) -> Result<(), DslError> {
        dir.set_reservation(0, tx)?;
        let phys = dir.phys();
        for object in [phys.dd_child_dir_zapobj, phys.dd_props_zapobj, phys.dd_clones] {
            if object != 0 {
                self.meta.free_object(object, tx)?;
            }
        }
        self.free_delegations(phys.dd_deleg_zapobj, tx)?;
        if let Some(parent) = dir.parent() {
            self.meta.zap(parent.phys().dd_child_dir_zapobj)?.remove(dir.name(), tx)?;
            self.count_filesystems(&parent, -1, tx)?;
        }
        self.dirs.lock().remove(&dir.object);
        if self.meta.hold(dir.object)?.info()?.kind == ondisk::ObjectType::OTN_ZAP_METADATA {
            self.meta.services.feature_add(features::EXTENSIBLE_DATASET, -1, tx)?;
        }
        self.meta.free_object(dir.object, tx)
    }

    /// Frees a directory's table of delegated permissions (OpenZFS: `dsl_deleg_destroy`).
    fn free_delegations(&self, table: u64, tx: &Tx) -> Result<(), DslError> {
        if table == 0 {
            return Ok(());
        }
        let mut sets = Vec::new();
        self.meta.zap(table)?.for_each(|entry| {
            sets.push(entry.first_integer);
            Ok(())
        })?;
        for set in sets {
            self.meta.free_object(set, tx)?;
        }
        self.meta.free_object(table, tx)
    }
}
