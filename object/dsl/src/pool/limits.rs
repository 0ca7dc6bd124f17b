//! Counts of file systems and snapshots below a directory, kept from where a limit was first set on
//! (OpenZFS: `dsl_dir_init_fs_ss_count`, `dsl_fs_ss_count_adjust`).
//!
//! A directory that is counted has both numbers in a ZAP of its own, and so has everything below it. Nobody is held to a limit here: OpenZFS
//! exempts whoever administers the pool, and what users were delegated is looked at before it comes here (`control`).

use super::tree::Tree;
use crate::dir::Dir;
use crate::{DslError, features};
use dmu::Tx;
use ondisk::ObjectType;
use std::sync::Arc;

/// Name of the count of file systems in a directory's ZAP (OpenZFS: `DD_FIELD_FILESYSTEM_COUNT`).
const FILESYSTEMS: &str = "com.joyent:filesystem_count";
/// Name of the count of snapshots in a directory's ZAP (OpenZFS: `DD_FIELD_SNAPSHOT_COUNT`).
const SNAPSHOTS: &str = "com.joyent:snapshot_count";

/// File systems below a directory, snapshots at and below it.
type Counts = (u64, u64);

/// The counts of a pool's directories.
pub(crate) struct Limits {
    tree: Arc<Tree>,
}

impl Limits {
    pub(super) fn new(tree: Arc<Tree>) -> Limits {
        Limits { tree }
    }

    /// The counts of a directory that has them.
    pub(crate) fn counts_of(&self, dir: &Dir) -> Result<Option<Counts>, DslError> {
        if self.tree.meta.hold(dir.object)?.info()?.kind != ObjectType::OTN_ZAP_METADATA {
            return Ok(None);
        }
        let zap = self.tree.meta.zap(dir.object)?;
        Ok(match (zap.try_lookup_u64(FILESYSTEMS)?, zap.try_lookup_u64(SNAPSHOTS)?) {
            (Some(filesystems), Some(snapshots)) => Some((filesystems, snapshots)),
            _ => None,
        })
    }

    /// Begins to count at a directory and below it (OpenZFS: `dsl_dir_activate_fs_ss_limit`).
    pub(super) fn count_from(&self, dir: &Arc<Dir>, tx: &Tx) -> Result<(), DslError> {
        // Checked before the value was taken; to fail here would stop the pool.
        if !self.tree.meta.services.feature_enabled(features::FS_SS_LIMIT) {
            return Ok(());
        }
        if self.tree.meta.services.feature_refs(features::FS_SS_LIMIT) == 0 {
            self.tree.meta.services.feature_add(features::FS_SS_LIMIT, 1, tx)?;
        }
        self.count(dir, tx).map(drop)
    }

    /// The counts of a directory, taken and kept from now on when it has none.
    fn count(&self, dir: &Arc<Dir>, tx: &Tx) -> Result<Counts, DslError> {
        if let Some(counts) = self.counts_of(dir)? {
            return Ok(counts);
        }
        let mut children = Vec::new();
        self.tree.meta.zap(dir.phys().dd_child_dir_zapobj)?.for_each(|entry| {
            if !entry.name.starts_with(b"$") {
                children.push(entry.first_integer);
            }
            Ok(())
        })?;
        let (mut filesystems, mut snapshots) = (children.len() as u64, 0);
        for child in children {
            let below = self.count(&self.tree.dir(child)?, tx)?;
            filesystems += below.0;
            snapshots += below.1;
        }
        self.tree.meta.zap(self.tree.head(dir)?.phys().ds_snapnames_zapobj)?.for_each(|entry| {
            // Those whose names begin so are temporary.
            snapshots += u64::from(!entry.name.starts_with(b"%"));
            Ok(())
        })?;
        self.begin_counts(dir, (filesystems, snapshots), tx)?;
        Ok((filesystems, snapshots))
    }

    /// Gives a directory its counts.
    pub(super) fn begin_counts(&self, dir: &Dir, counts: Counts, tx: &Tx) -> Result<(), DslError> {
        self.tree.meta.zapify(&self.tree.meta.hold(dir.object)?, tx)?;
        let zap = self.tree.meta.zap(dir.object)?;
        zap.update_u64(FILESYSTEMS, counts.0, tx)?;
        Ok(zap.update_u64(SNAPSHOTS, counts.1, tx)?)
    }

    /// A directory moves to another parent, with all that is counted in it.
    pub(super) fn move_counts(&self, dir: &Arc<Dir>, from: &Arc<Dir>, to: &Arc<Dir>, tx: &Tx) -> Result<(), DslError> {
        if self.tree.meta.services.feature_refs(features::FS_SS_LIMIT) == 0 {
            return Ok(());
        }
        let (filesystems, snapshots) = self.count(dir, tx)?;
        for (parent, sign) in [(from, -1), (to, 1)] {
            self.count_filesystems(parent, sign * (filesystems as i64 + 1), tx)?;
            self.count_snapshots(parent, sign * snapshots as i64, tx)?;
        }
        Ok(())
    }

    /// File systems came to a directory or went.
    pub(super) fn count_filesystems(&self, dir: &Arc<Dir>, delta: i64, tx: &Tx) -> Result<(), DslError> {
        self.adjust_count(dir, FILESYSTEMS, delta, tx)
    }

    /// Snapshots came to a directory or went.
    pub(super) fn count_snapshots(&self, dir: &Arc<Dir>, delta: i64, tx: &Tx) -> Result<(), DslError> {
        self.adjust_count(dir, SNAPSHOTS, delta, tx)
    }

    /// Changes a count from a directory up, as far as it is kept.
    fn adjust_count(&self, dir: &Arc<Dir>, field: &str, delta: i64, tx: &Tx) -> Result<(), DslError> {
        let mut walk = Some(dir.clone());
        while let Some(dir) = walk.filter(|_| delta != 0) {
            if self.tree.meta.hold(dir.object)?.info()?.kind != ObjectType::OTN_ZAP_METADATA {
                return Ok(());
            }
            let zap = self.tree.meta.zap(dir.object)?;
            let Some(count) = zap.try_lookup_u64(field)? else { return Ok(()) };
            zap.update_u64(field, count.saturating_add_signed(delta), tx)?;
            walk = dir.parent();
        }
        Ok(())
    }
}
