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

/// Makes the pool's empty dataset and its snapshot (OpenZFS: `dsl_pool_create_origin`).
pub(super) fn make_origin(pool: &DslPool, tx: &Tx) -> Result<(), DslError> {
    let origin = pool.creation.create_origin(tx)?;
    pool.snapshots.take(&pool.tree.dataset(origin)?, ORIGIN_DIR, tx)?;
    pool.tree.set_origin(origin)
}

/// Does [`DslPool::check_upgrade`].
pub(super) fn check(pool: &DslPool, from: u64, to: u64) -> Result<Upgraded, DslError> {
    let mut found = Upgraded::default();
    let crosses = |version: u64| from < version && to >= version;
    if !crosses(spa_version::NEXT_CLONES) && !crosses(spa_version::DIR_CLONES) {
        return Ok(found);
    }
    let mut waiting = vec![pool.tree.root_dir.clone()];
    while let Some(dir) = waiting.pop() {
        for child in pool.tree.children_of(&dir)? {
            waiting.push(pool.tree.dir(child)?);
        }
        let phys = dir.phys();
        if phys.dd_head_dataset_obj == 0 {
            continue;
        }
        let head = pool.tree.head(&dir)?;
        let origin = if phys.dd_origin_obj == 0 { None } else { Some(pool.tree.dataset(phys.dd_origin_obj)?) };
        found.firsts.push(first_of(pool, &head)?);
        found.heads.push((head, origin));
    }
    Ok(found)
}

/// Oldest dataset of a head's directory, and the snapshot before it, which is another directory's.
fn first_of(pool: &DslPool, head: &Arc<Dataset>) -> Result<(Arc<Dataset>, Option<Arc<Dataset>>), DslError> {
    let (mut at, mut created) = (head.clone(), u64::MAX);
    loop {
        let phys = at.phys();
        if phys.ds_prev_snap_obj == 0 {
            return Ok((at, None));
        }
        let before = pool.tree.dataset(phys.ds_prev_snap_obj)?;
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

/// Does [`DslPool::upgrade`].
pub(super) fn carry_out(pool: &DslPool, from: u64, to: u64, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
    let crosses = |version: u64| from < version && to >= version;
    if crosses(spa_version::ORIGIN) {
        make_origin(pool, tx)?;
        note_next_clones(pool, found, tx)?;
    }
    if crosses(spa_version::DIR_CLONES) {
        pool.freeing.begin(tx)?;
        note_clones(pool, from, found, tx)?;
    }
    Ok(())
}

/// Has what comes from nothing come from the empty snapshot, and snapshots name what begins where they are (OpenZFS: `upgrade_clones_cb`).
fn note_next_clones(pool: &DslPool, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
    let origin = pool.tree.origin_snap().ok_or(DslError::NotFound)??;
    for (first, before) in &found.firsts {
        if let Some(before) = before {
            pool.tree.add_next_clone(before, first.object, tx)?;
            continue;
        }
        let created = origin.phys().ds_creation_txg;
        first.update(tx, |phys| (phys.ds_prev_snap_obj, phys.ds_prev_snap_txg) = (origin.object, created))?;
        first.dir.update(tx, |phys| phys.dd_origin_obj = origin.object)?;
        origin.update(tx, |phys| phys.ds_num_children += 1)?;
        pool.tree.add_next_clone(&origin, first.object, tx)?;
    }
    Ok(())
}

/// Has directories name the clones of their snapshots (OpenZFS: `upgrade_dir_clones_cb`).
fn note_clones(pool: &DslPool, from: u64, found: &Upgraded, tx: &Tx) -> Result<(), DslError> {
    let empty = pool.tree.origin_snap().ok_or(DslError::NotFound)??;
    for (head, origin) in &found.heads {
        match origin {
            Some(origin) => pool.tree.add_clone(&origin.dir, head.object, tx)?,
            // It came from nothing until this txg.
            None if from < spa_version::ORIGIN => pool.tree.add_clone(&empty.dir, head.object, tx)?,
            // The empty dataset itpool.
            None => {}
        }
    }
    Ok(())
}
