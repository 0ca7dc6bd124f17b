//! What a pool gets with newer versions: the empty snapshot that all datasets come from, tables of clones, and the list of blocks to free
//! (OpenZFS: `spa_sync_upgrades`, `dsl_pool_upgrade_clones`, `dsl_pool_upgrade_dir_clones`).
//!
//! Deadlists stay as they are: see [`crate::deadlist`].

use super::DslPool;
use super::snapshot::ORIGIN_DIR;
use crate::DslError;
use crate::dataset::Dataset;
use crate::meta::damaged;
use dmu::Tx;
use ondisk::names::spa_version;
use std::sync::Arc;

/// Datasets that an upgrade has something to note of, as they were looked at.
#[derive(Default)]
pub struct Upgraded {
    /// Oldest dataset of each directory, and the snapshot before it.
    firsts: Vec<(Arc<Dataset>, Option<Arc<Dataset>>)>,
    /// Heads of all directories, with what they are clones of.
    heads: Vec<(Arc<Dataset>, Option<Arc<Dataset>>)>,
}

impl std::fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upgraded {{ heads: {} }}", self.heads.len())
    }
}

impl DslPool {
    /// Makes the pool's empty dataset and its snapshot (OpenZFS: `dsl_pool_create_origin`).
    pub(super) fn make_origin(&self, tx: &Tx) -> Result<(), DslError> {
        let origin = self.creation.create_origin(tx)?;
        self.snapshots.take(&self.tree.dataset(origin)?, ORIGIN_DIR, tx)?;
        self.tree.set_origin(origin)
    }

    /// A look that all datasets can be upgraded that an upgrade from a version to another one changes; part of the check of a sync task.
    ///
    /// # Errors
    /// Those of reading the MOS, also of records that are damaged.
    pub fn check_upgrade(&self, from: u64, to: u64) -> Result<Upgraded, DslError> {
        let mut found = Upgraded::default();
        let crosses = |version: u64| from < version && to >= version;
        if !crosses(spa_version::NEXT_CLONES) && !crosses(spa_version::DIR_CLONES) {
            return Ok(found);
        }
        let mut waiting = vec![self.tree.root_dir.clone()];
        while let Some(dir) = waiting.pop() {
            for child in self.tree.children_of(&dir)? {
                waiting.push(self.tree.dir(child)?);
            }
            let phys = dir.phys();
            if phys.dd_head_dataset_obj == 0 {
                continue;
            }
            let head = self.tree.head(&dir)?;
            let origin = if phys.dd_origin_obj == 0 { None } else { Some(self.tree.dataset(phys.dd_origin_obj)?) };
            found.firsts.push(self.first_of(&head)?);
            found.heads.push((head, origin));
        }
        Ok(found)
    }

    /// Oldest dataset of a head's directory, and the snapshot before it, which is another directory's.
    fn first_of(&self, head: &Arc<Dataset>) -> Result<(Arc<Dataset>, Option<Arc<Dataset>>), DslError> {
        let (mut at, mut created) = (head.clone(), u64::MAX);
        loop {
            let phys = at.phys();
            if phys.ds_prev_snap_obj == 0 {
                return Ok((at, None));
            }
            let before = self.tree.dataset(phys.ds_prev_snap_obj)?;
            let older = before.phys();
            if older.ds_next_snap_obj != at.object {
                return Ok((at, Some(before)));
            }
            // Snapshots of a damaged pool may lead in a circle.
            if older.ds_creation_txg >= created {
                return Err(damaged(before.object, "a snapshot is no older than the one after it"));
            }
            (at, created) = (before, older.ds_creation_txg);
        }
    }

    /// Makes what pools of version `to` have and those of version `from` lack, in syncing context; who calls it sets the version with the same txg,
    /// afterwards.
    ///
    /// # Errors
    /// Those of changing the MOS.
    pub fn upgrade(&self, from: u64, to: u64, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
        let crosses = |version: u64| from < version && to >= version;
        if crosses(spa_version::ORIGIN) {
            self.make_origin(tx)?;
            self.note_next_clones(found, tx)?;
        }
        if crosses(spa_version::DIR_CLONES) {
            self.freeing.begin(tx)?;
            self.note_clones(from, found, tx)?;
        }
        Ok(())
    }

    /// Has what comes from nothing come from the empty snapshot, and snapshots name what begins where they are (OpenZFS: `upgrade_clones_cb`).
    fn note_next_clones(&self, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
        let origin = self.tree.origin_snap().ok_or(DslError::NotFound)??;
        for (first, before) in &found.firsts {
            if let Some(before) = before {
                self.tree.add_next_clone(before, first.object, tx)?;
                continue;
            }
            let created = origin.phys().ds_creation_txg;
            first.update(tx, |phys| (phys.ds_prev_snap_obj, phys.ds_prev_snap_txg) = (origin.object, created))?;
            first.dir.update(tx, |phys| phys.dd_origin_obj = origin.object)?;
            origin.update(tx, |phys| phys.ds_num_children += 1)?;
            self.tree.add_next_clone(&origin, first.object, tx)?;
        }
        Ok(())
    }

    /// Has directories name the clones of their snapshots (OpenZFS: `upgrade_dir_clones_cb`).
    fn note_clones(&self, from: u64, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
        let empty = self.tree.origin_snap().ok_or(DslError::NotFound)??;
        for (head, origin) in &found.heads {
            match origin {
                Some(origin) => self.tree.add_clone(&origin.dir, head.object, tx)?,
                // It came from nothing until this txg.
                None if from < spa_version::ORIGIN => self.tree.add_clone(&empty.dir, head.object, tx)?,
                // The empty dataset itself.
                None => {}
            }
        }
        Ok(())
    }
}
