//! Snapshots: taking and listing them (OpenZFS: `dsl_dataset_snapshot_sync_impl`).

use super::limits::Limits;
use super::settings::{Setting, Settings};
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::meta::Usage;
use crate::space::Space;
use crate::{DslError, changed, keys, marks, names};
use dmu::Tx;
use ondisk::dd_used;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The dataset whose snapshot is the empty one that new datasets start from.
pub(super) const ORIGIN_DIR: &str = "$ORIGIN";

/// Heads, the names that their snapshots get, and the snapshots' properties.
pub(super) type Wanted = (Vec<(Arc<Dataset>, String)>, Vec<Setting>);

/// Taking of snapshots, with the parts of the pool that it needs.
pub(crate) struct Snapshots {
    tree: Arc<Tree>,
    limits: Arc<Limits>,
    space: Arc<Space>,
    settings: Arc<Settings>,
}

impl Snapshots {
    pub(super) fn new(tree: Arc<Tree>, limits: Arc<Limits>, space: Arc<Space>, settings: Arc<Settings>) -> Snapshots {
        Snapshots { tree, limits, space, settings }
    }

    /// A look that snapshots (full names) are possible in this txg.
    pub(super) fn check(&self, names: &[String], properties: &[(String, String)], tx: &Tx) -> Result<Wanted, DslError> {
        let checked = self.settings.check_snapshot_props(properties)?;
        self.space.check_room()?;
        let mut seen = BTreeSet::new();
        let mut heads = Vec::new();
        for name in names {
            let (dataset, snapshot) = names::split(name)?;
            let snapshot = snapshot.ok_or(DslError::BadName)?;
            let head = self.tree.find(dataset)?;
            // What is just being received is nothing yet.
            if head.is_inconsistent() {
                return Err(DslError::Busy);
            }
            if !seen.insert((head.object, snapshot.to_string())) {
                return Err(DslError::Exists);
            }
            match self.tree.find_snapshot(&head, snapshot) {
                Ok(_) => return Err(DslError::Exists),
                Err(DslError::NotFound) => {}
                Err(error) => return Err(error),
            }
            self.check_snapshot_space(&head, tx)?;
            // Bookmarks that can't be read are found here, where they are the caller's error: in the sync they would be the pool's.
            marks::counted_from(&self.tree.meta, head.object, 0)?;
            heads.push((head, snapshot.to_string()));
        }
        // One snapshot of a dataset a txg: a second would be born in the same txg as the first.
        let datasets: BTreeSet<u64> = heads.iter().map(|(head, _)| head.object).collect();
        if datasets.len() != heads.len() { Err(DslError::BadName) } else { Ok((heads, checked)) }
    }

    /// Takes the snapshots.
    pub(super) fn take_all(&self, (heads, checked): &Wanted, tx: &Tx) -> Result<(), DslError> {
        for (head, name) in heads {
            let snapshot = self.take(head, name, tx)?;
            self.settings.store_snapshot_props(&snapshot, checked, tx)?;
            self.tree.log("snapshot", snapshot.object, String::new(), tx)?;
        }
        Ok(())
    }

    /// A refreservation must still be possible once the snapshot holds what is unique now.
    fn check_snapshot_space(&self, head: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        if head.phys().ds_prev_snap_txg >= tx.txg().0 {
            return Err(DslError::Again);
        }
        self.space.check_promise(head)
    }

    /// Takes a snapshot of a dataset that is not dirty.
    pub(super) fn take(&self, head: &Arc<Dataset>, name: &str, tx: &Tx) -> Result<Arc<Dataset>, DslError> {
        let old = head.phys();
        let creation_txg = if name == ORIGIN_DIR { 1 } else { tx.txg().0 };
        self.limits.count_snapshots(&head.dir, 1, tx)?;
        let object = Dataset::allocate(&self.tree.meta, tx)?;
        let mut phys = Dataset::new_record(&self.tree.meta, &head.dir, tx);
        phys.ds_prev_snap_obj = old.ds_prev_snap_obj;
        phys.ds_prev_snap_txg = old.ds_prev_snap_txg;
        phys.ds_next_snap_obj = head.object;
        phys.ds_num_children = 1;
        phys.ds_creation_txg = creation_txg;
        phys.ds_deadlist_obj = old.ds_deadlist_obj;
        phys.ds_referenced_bytes = old.ds_referenced_bytes;
        phys.ds_compressed_bytes = old.ds_compressed_bytes;
        phys.ds_uncompressed_bytes = old.ds_uncompressed_bytes;
        phys.ds_unique_bytes = 0;
        phys.ds_flags = old.ds_flags;
        phys.ds_bp = old.ds_bp;
        self.tree.meta.hold(object)?.set_bonus(&phys.encode(), tx)?;
        // Who looks at it from here on finds the name.
        keys::name_ivs(&self.tree.meta, &head.dir, object, tx)?;
        let snapshot = self.tree.dataset(object)?;
        *snapshot.snapname.write() = Some(name.to_string());
        snapshot.inherit_features(&self.tree.meta, head, tx)?;
        self.link_snapshot(head, object, tx)?;
        let reserved = old.ds_unique_bytes.min(head.reserved()) as i64;
        head.dir.charge(dd_used::REFRSRV, Usage { used: reserved, comp: 0, uncomp: 0 }, tx)?;
        let dead = Deadlist::open(&self.tree.meta, old.ds_deadlist_obj)?;
        let fresh = dead.clone_keys(u64::MAX, old.ds_prev_snap_obj, tx)?;
        let mut list = Deadlist::open(&self.tree.meta, fresh)?;
        list.add_key(old.ds_prev_snap_txg, tx)?;
        // The last snapshot was before them until now, so that nothing could be on the list that they would have to tell.
        // A list without keys had none for older ones either, whose snapshots may be gone.
        let since = if dead.is_old() { 0 } else { old.ds_prev_snap_txg.saturating_add(1) };
        for txg in marks::counted_from(&self.tree.meta, head.object, since)? {
            if !list.has_key(txg) {
                list.add_key(txg, tx)?;
            }
        }
        head.update(tx, |phys| {
            phys.ds_deadlist_obj = fresh;
            phys.ds_prev_snap_obj = object;
            phys.ds_prev_snap_txg = creation_txg;
            phys.ds_unique_bytes = 0;
            phys.ds_flags |= self.tree.meta.accurate_flag();
        })?;
        head.follow_bookmarks(&self.tree.meta)?;
        self.tree.meta.zap(old.ds_snapnames_zapobj)?.add_u64(name, object, tx)?;
        if name != ORIGIN_DIR {
            changed::note(&self.tree.meta, &head.dir, tx)?;
        }
        Ok(snapshot)
    }

    /// Makes the previous snapshot point to the new one instead of to the head.
    fn link_snapshot(&self, head: &Dataset, object: u64, tx: &Tx) -> Result<(), DslError> {
        let prev = head.phys().ds_prev_snap_obj;
        if prev == 0 {
            return Ok(());
        }
        let prev = self.tree.dataset(prev)?;
        let phys = prev.phys();
        if phys.ds_next_snap_obj == head.object {
            prev.update(tx, |phys| phys.ds_next_snap_obj = object)?;
        } else if phys.ds_next_clones_obj != 0 {
            self.tree.remove_next_clone(phys.ds_next_clones_obj, head.object, tx)?;
            self.tree.meta.zap(phys.ds_next_clones_obj)?.add_int(object, tx)?;
        }
        Ok(())
    }
}
