//! Renaming datasets and snapshots (OpenZFS: `dsl_dir_rename_sync`, `dsl_dataset_rename_snapshot_sync_impl`).

use super::limits::Limits;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::meta::Usage;
use crate::space::Space;
use crate::{DslError, changed, keys, names};
use dmu::Tx;
use ondisk::dd_used;
use std::sync::Arc;

/// A dataset, where it is and where it is to go.
pub(super) struct Move {
    dir: Arc<Dir>,
    from: Arc<Dir>,
    to: Arc<Dir>,
    last: String,
}

/// A head and one of its snapshots.
pub(super) type Named = (Arc<Dataset>, Arc<Dataset>);

/// Renaming of datasets, with the parts of the pool that it needs.
pub(crate) struct Renaming {
    tree: Arc<Tree>,
    limits: Arc<Limits>,
    space: Arc<Space>,
}

/// Names of snapshots that no dataset is too long for.
pub(super) fn check_snapshot_names(datasets: &[String], old: &str, new: &str) -> Result<(), DslError> {
    names::check_component(old)?;
    names::check_component(new)?;
    match datasets.iter().map(String::len).max() {
        Some(longest) if longest + 1 + new.len() >= names::NAME_BYTES_MAX => Err(DslError::NameTooLong),
        _ => Ok(()),
    }
}

impl Renaming {
    pub(super) fn new(tree: Arc<Tree>, limits: Arc<Limits>, space: Arc<Space>) -> Renaming {
        Renaming { tree, limits, space }
    }

    /// Heads and their snapshots of the old name, after a look that none has one of the new name.
    pub(super) fn check_snapshots(&self, datasets: &[String], old: &str, new: &str) -> Result<Vec<Named>, DslError> {
        let mut found = Vec::new();
        for (index, dataset) in datasets.iter().enumerate() {
            let head = self.tree.find(dataset)?;
            let snapshot = match self.tree.find_snapshot(&head, old) {
                Err(DslError::NotFound) if index > 0 => continue,
                other => other?,
            };
            match self.tree.find_snapshot(&head, new) {
                Err(DslError::NotFound) => found.push((head, snapshot)),
                Ok(_) => return Err(DslError::Exists),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Renames a snapshot of `head`.
    pub(super) fn rename_snapshot(&self, head: &Dataset, snapshot: &Dataset, (old, new): (&str, &str), tx: &Tx) -> Result<(), DslError> {
        let table = self.tree.meta.zap(head.phys().ds_snapnames_zapobj)?;
        table.remove(old, tx)?;
        table.add_u64(new, snapshot.object, tx)?;
        changed::note(&self.tree.meta, &head.dir, tx)?;
        *snapshot.snapname.write() = Some(new.to_string());
        self.tree.log("rename", head.object, format!("@{old} -> @{new}"), tx)
    }

    /// A look that a dataset can be renamed.
    pub(super) fn check_dataset(&self, from: &str, to: &str) -> Result<Move, DslError> {
        let dir = self.tree.find_dir(from)?;
        // What is too deep already may be renamed where it gets no deeper (OpenZFS: `dsl_valid_rename`).
        if to.matches('/').count() > from.matches('/').count() {
            names::check_depth_of(to.matches('/').count() + self.depth_below(&dir)?)?;
        }
        let old_parent = dir.parent().ok_or(DslError::BadName)?;
        if to.split('/').next() != Some(self.tree.root_dir.name().as_str()) {
            return Err(DslError::CrossPool);
        }
        let (parent, last) = names::split_parent(to)?;
        let parent = self.tree.check_new(parent, last)?;
        if parent.is_within(&dir) {
            return Err(DslError::BadName);
        }
        keys::check_move(&self.tree.meta, &dir, &parent)?;
        let longer = to.len().saturating_sub(from.len());
        if longer > 0 && self.longest_name(&dir)? + longer >= names::NAME_BYTES_MAX {
            return Err(DslError::NameTooLong);
        }
        // Where nothing moves, a full pool has the room.
        if parent.object != old_parent.object {
            self.space.check_transfer(&old_parent, &parent, dir.used().max(dir.reserved()))?;
        }
        Ok(Move { dir, from: old_parent, to: parent, last: last.to_string() })
    }

    /// Renames a dataset.
    pub(super) fn rename_dataset(&self, Move { dir, from, to, last }: Move, old_name: &str, tx: &Tx) -> Result<(), DslError> {
        if to.object != from.object {
            self.move_space(&dir, &from, &to, tx)?;
        }
        self.tree.meta.zap(from.phys().dd_child_dir_zapobj)?.remove(dir.name(), tx)?;
        self.tree.meta.zap(to.phys().dd_child_dir_zapobj)?.add_u64(&last, dir.object, tx)?;
        dir.update(tx, |phys| phys.dd_parent_obj = to.object)?;
        dir.rename(Some(to), &last);
        self.tree.refresh_props(&dir)?;
        self.tree.log("rename", dir.phys().dd_head_dataset_obj, format!("{old_name} -> {}", dir.full_name()), tx)
    }

    /// Levels of directories below `dir`.
    fn depth_below(&self, dir: &Arc<Dir>) -> Result<usize, DslError> {
        let (mut deepest, mut waiting) = (0, vec![(dir.clone(), 0)]);
        while let Some((dir, depth)) = waiting.pop() {
            deepest = deepest.max(depth);
            for child in self.tree.children_of(&dir)? {
                waiting.push((self.tree.dir(child)?, depth + 1));
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
                self.tree.meta.zap(self.tree.dataset(head)?.phys().ds_snapnames_zapobj)?.for_each(|entry| {
                    longest = longest.max(own + 1 + entry.name.len());
                    Ok(())
                })?;
            }
            for child in self.tree.children_of(&dir)? {
                waiting.push(self.tree.dir(child)?);
            }
        }
        Ok(longest)
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
        self.limits.move_counts(dir, from, to, tx)
    }
}
