//! Renaming datasets and snapshots (OpenZFS: `dsl_dir_rename_sync`, `dsl_dataset_rename_snapshot_sync_impl`).

use super::DslPool;
use crate::dir::Dir;
use crate::meta::Usage;
use crate::{DslError, names};
use dmu::Tx;
use ondisk::dd_used;
use std::sync::Arc;

impl DslPool {
    /// Renames a dataset (with all below it) or a snapshot.
    pub fn rename(self: &Arc<Self>, from: &str, to: &str) -> Result<(), DslError> {
        let ((from_dataset, from_snapshot), (to_dataset, to_snapshot)) = (names::split(from)?, names::split(to)?);
        match (from_snapshot, to_snapshot) {
            (None, None) => self.rename_dataset(from_dataset.to_string(), to_dataset.to_string()),
            (Some(old), Some(new)) if from_dataset == to_dataset => self.rename_snapshots(&[from_dataset.to_string()], old, new),
            _ => Err(DslError::BadName),
        }
    }

    /// Renames the snapshots of one name of several datasets, all or none; those that have none, but for the first, are passed over
    /// (OpenZFS: `dsl_dataset_rename_snapshot`).
    ///
    /// # Errors
    /// [`DslError::NotFound`] when the first has none, [`DslError::Exists`] when one has another snapshot of the new name.
    pub fn rename_snapshots(self: &Arc<Self>, datasets: &[String], old: &str, new: &str) -> Result<(), DslError> {
        names::check_component(old)?;
        names::check_component(new)?;
        if let Some(longest) = datasets.iter().map(String::len).max()
            && longest + 1 + new.len() >= names::NAME_BYTES_MAX
        {
            return Err(DslError::NameTooLong);
        }
        let (datasets, old, new) = (datasets.to_vec(), old.to_string(), new.to_string());
        let check = move |pool: &Arc<DslPool>, _: &Tx| {
            let mut found = Vec::new();
            for (index, dataset) in datasets.iter().enumerate() {
                let head = pool.find(dataset)?;
                let snapshot = match pool.find_snapshot(&head, &old) {
                    Err(DslError::NotFound) if index > 0 => continue,
                    other => other?,
                };
                match pool.find_snapshot(&head, &new) {
                    Err(DslError::NotFound) => found.push((head, snapshot)),
                    Ok(_) => return Err(DslError::Exists),
                    Err(error) => return Err(error),
                }
            }
            Ok((found, old, new))
        };
        self.sync_task(check, |pool, (found, old, new), tx| {
            for (head, snapshot) in found {
                let table = pool.meta.zap(head.phys().ds_snapnames_zapobj)?;
                table.remove(&old, tx)?;
                table.add_u64(&new, snapshot.object, tx)?;
                pool.note_snapshots_changed(&head.dir, tx)?;
                *snapshot.snapname.write() = Some(new.clone());
                pool.log("rename", head.object, format!("@{old} -> @{new}"), tx)?;
            }
            Ok(())
        })
    }

    fn rename_dataset(self: &Arc<Self>, from: String, to: String) -> Result<(), DslError> {
        if from == to {
            return Err(DslError::Exists);
        }
        let old_name = from.clone();
        let check = move |pool: &Arc<DslPool>, _: &Tx| {
            let dir = pool.find_dir(&from)?;
            // What is too deep already may be renamed where it gets no deeper (OpenZFS: `dsl_valid_rename`).
            if to.matches('/').count() > from.matches('/').count() {
                names::check_depth_of(to.matches('/').count() + pool.depth_below(&dir)?)?;
            }
            let old_parent = dir.parent().ok_or(DslError::BadName)?;
            if to.split('/').next() != Some(pool.root_dir.name().as_str()) {
                return Err(DslError::CrossPool);
            }
            let (parent, last) = names::split_parent(&to)?;
            let parent = pool.check_new(parent, last)?;
            if parent.is_within(&dir) {
                return Err(DslError::BadName);
            }
            let longer = to.len().saturating_sub(from.len());
            if longer > 0 && pool.longest_name(&dir)? + longer >= names::NAME_BYTES_MAX {
                return Err(DslError::NameTooLong);
            }
            pool.check_move(&dir, &old_parent, &parent)?;
            Ok((dir, old_parent, parent, last.to_string()))
        };
        self.sync_task(check, move |pool, (dir, old_parent, parent, last), tx| {
            if parent.object != old_parent.object {
                pool.move_space(&dir, &old_parent, &parent, tx)?;
            }
            pool.meta.zap(old_parent.phys().dd_child_dir_zapobj)?.remove(dir.name(), tx)?;
            pool.meta.zap(parent.phys().dd_child_dir_zapobj)?.add_u64(&last, dir.object, tx)?;
            dir.update(tx, |phys| phys.dd_parent_obj = parent.object)?;
            dir.rename(Some(parent), &last);
            pool.refresh_props(&dir)?;
            pool.log("rename", dir.phys().dd_head_dataset_obj, format!("{old_name} -> {}", dir.full_name()), tx)
        })
    }

    /// Levels of directories below `dir`.
    fn depth_below(&self, dir: &Arc<Dir>) -> Result<usize, DslError> {
        let (mut deepest, mut waiting) = (0, vec![(dir.clone(), 0)]);
        while let Some((dir, depth)) = waiting.pop() {
            deepest = deepest.max(depth);
            let mut children = Vec::new();
            self.meta.zap(dir.phys().dd_child_dir_zapobj)?.for_each(|entry| {
                children.push(entry.first_integer);
                Ok(())
            })?;
            for child in children {
                waiting.push((self.dir(child)?, depth + 1));
            }
        }
        Ok(deepest)
    }

    /// Bytes of the longest name at or below `dir`, snapshots included.
    fn longest_name(&self, dir: &Arc<Dir>) -> Result<usize, DslError> {
        let mut longest = 0;
        let mut waiting = vec![dir.clone()];
        while let Some(dir) = waiting.pop() {
            let own = dir.full_name().len();
            longest = longest.max(own);
            let head = dir.phys().dd_head_dataset_obj;
            if head != 0 {
                self.meta.zap(self.dataset(head)?.phys().ds_snapnames_zapobj)?.for_each(|entry| {
                    longest = longest.max(own + 1 + entry.name.len());
                    Ok(())
                })?;
            }
            let mut children = Vec::new();
            self.meta.zap(dir.phys().dd_child_dir_zapobj)?.for_each(|entry| {
                children.push(entry.first_integer);
                Ok(())
            })?;
            for child in children {
                waiting.push(self.dir(child)?);
            }
        }
        Ok(longest)
    }

    /// The new parent must have room (OpenZFS: `dsl_dir_transfer_possible`).
    fn check_move(&self, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>) -> Result<(), DslError> {
        let space = dir.used().max(dir.reserved());
        let mut ancestor = Some(to.clone());
        while let Some(candidate) = &ancestor
            && !from.is_within(candidate)
        {
            ancestor = candidate.parent();
        }
        let shared = ancestor.map(|ancestor| (ancestor.object, space));
        if to.available(self.pool_bytes(false), shared) < space { Err(DslError::NoSpace) } else { Ok(()) }
    }

    /// Moves a directory's space from one parent to another.
    fn move_space(&self, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>, tx: &Tx) -> Result<(), DslError> {
        let phys = dir.phys();
        let unused = phys.dd_reserved.saturating_sub(phys.dd_used_bytes);
        let own = Usage::new(phys.dd_used_bytes, phys.dd_compressed_bytes, phys.dd_uncompressed_bytes);
        let kept = Usage::new(unused, 0, 0);
        from.charge(dd_used::CHILD, -own, tx)?;
        to.charge(dd_used::CHILD, own, tx)?;
        from.charge(dd_used::CHILD_RSRV, -kept, tx)?;
        to.charge(dd_used::CHILD_RSRV, kept, tx)?;
        self.move_counts(dir, from, to, tx)
    }
}
