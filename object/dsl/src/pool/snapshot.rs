//! Snapshots: taking and listing them (OpenZFS: `dsl_dataset_snapshot_sync_impl`).

use super::{DslPool, ORIGIN_DIR};
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::meta::Usage;
use crate::{DslError, names};
use dmu::Tx;
use ondisk::{dd_used, ds_flags};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A snapshot in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The part behind `@`.
    pub name: String,
    /// Its object set number.
    pub object: u64,
    /// The txg that it was taken in.
    pub creation_txg: u64,
    /// Seconds since the epoch.
    pub creation_time: u64,
}

impl DslPool {
    /// Takes snapshots (full names), all in one txg or none.
    pub fn snapshot(self: &Arc<Self>, names: &[String], properties: Vec<(String, String)>) -> Result<(), DslError> {
        loop {
            match self.try_snapshot(names.to_vec(), properties.clone()) {
                // Another snapshot of the same dataset was taken in that txg.
                Err(DslError::Again) => {}
                result => return result,
            }
        }
    }

    fn try_snapshot(self: &Arc<Self>, names: Vec<String>, properties: Vec<(String, String)>) -> Result<(), DslError> {
        let check = move |pool: &Arc<DslPool>, tx: &Tx| {
            let checked = pool.check_snapshot_props(&properties)?;
            pool.check_room()?;
            let mut seen = BTreeSet::new();
            let mut heads = Vec::new();
            for name in &names {
                let (dataset, snapshot) = names::split(name)?;
                let snapshot = snapshot.ok_or(DslError::BadName)?;
                let head = pool.find(dataset)?;
                if !seen.insert((head.object, snapshot.to_string())) {
                    return Err(DslError::Exists);
                }
                match pool.find_snapshot(&head, snapshot) {
                    Ok(_) => return Err(DslError::Exists),
                    Err(DslError::NotFound) => {}
                    Err(error) => return Err(error),
                }
                pool.check_snapshot_space(&head, tx)?;
                heads.push((head, snapshot.to_string()));
            }
            // One snapshot of a dataset a txg: a second would be born in the same txg as the first.
            let datasets: BTreeSet<u64> = heads.iter().map(|(head, _)| head.object).collect();
            if datasets.len() != heads.len() { Err(DslError::BadName) } else { Ok((heads, checked)) }
        };
        self.sync_task(check, |pool, (heads, checked), tx| {
            for (head, name) in heads {
                let snapshot = pool.take_snapshot(&head, &name, tx)?;
                pool.store_snapshot_props(&snapshot, &checked, tx)?;
                pool.log("snapshot", snapshot.object, String::new(), tx)?;
            }
            Ok(())
        })
    }

    /// A refreservation must still be possible once the snapshot holds what is unique now
    /// (OpenZFS: `dsl_dataset_snapshot_reserve_space`).
    fn check_snapshot_space(&self, head: &Arc<Dataset>, tx: &Tx) -> Result<(), DslError> {
        if head.phys().ds_prev_snap_txg >= tx.txg().0 {
            return Err(DslError::Again);
        }
        let wanted = head.unique().min(head.reserved());
        if wanted > head.dir.available(self.pool_bytes(false), None) { Err(DslError::NoSpace) } else { Ok(()) }
    }

    /// Takes a snapshot of a dataset that is not dirty.
    pub(super) fn take_snapshot(&self, head: &Arc<Dataset>, name: &str, tx: &Tx) -> Result<Arc<Dataset>, DslError> {
        let old = head.phys();
        let creation_txg = if name == ORIGIN_DIR { 1 } else { tx.txg().0 };
        self.count_snapshots(&head.dir, 1, tx)?;
        let object = self.new_dataset_object(tx)?;
        let mut phys = self.new_record(&head.dir, tx);
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
        self.meta.hold(object)?.set_bonus(&phys.encode(), tx)?;
        let snapshot = self.dataset(object)?;
        *snapshot.snapname.write() = Some(name.to_string());
        snapshot.activate(&self.meta, head.features(), tx)?;
        self.link_snapshot(head, object, tx)?;
        let reserved = old.ds_unique_bytes.min(head.reserved()) as i64;
        head.dir.charge(dd_used::REFRSRV, Usage { used: reserved, comp: 0, uncomp: 0 }, tx)?;
        let fresh = Deadlist::open(&self.meta, old.ds_deadlist_obj)?.clone_keys(u64::MAX, tx)?;
        Deadlist::open(&self.meta, fresh)?.add_key(old.ds_prev_snap_txg, tx)?;
        head.update(tx, |phys| {
            phys.ds_deadlist_obj = fresh;
            phys.ds_prev_snap_obj = object;
            phys.ds_prev_snap_txg = creation_txg;
            phys.ds_unique_bytes = 0;
            phys.ds_flags |= ds_flags::UNIQUE_ACCURATE;
        })?;
        self.meta.zap(old.ds_snapnames_zapobj)?.add_u64(name, object, tx)?;
        if name != ORIGIN_DIR {
            self.note_snapshots_changed(&head.dir, tx)?;
        }
        Ok(snapshot)
    }

    /// Makes the previous snapshot point to the new one instead of to the head.
    fn link_snapshot(&self, head: &Dataset, object: u64, tx: &Tx) -> Result<(), DslError> {
        let prev = head.phys().ds_prev_snap_obj;
        if prev == 0 {
            return Ok(());
        }
        let prev = self.dataset(prev)?;
        let phys = prev.phys();
        if phys.ds_next_snap_obj == head.object {
            prev.update(tx, |phys| phys.ds_next_snap_obj = object)?;
        } else if phys.ds_next_clones_obj != 0 {
            let clones = self.meta.zap(phys.ds_next_clones_obj)?;
            clones.remove_int(head.object, tx)?;
            clones.add_int(object, tx)?;
        }
        Ok(())
    }

    /// The snapshots of a dataset, oldest first.
    pub fn snapshots(&self, name: &str) -> Result<Vec<SnapshotEntry>, DslError> {
        let _config = self.config();
        let head = self.head(&*self.find_dir(name)?)?;
        self.snapshots_of(&head)
    }

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
