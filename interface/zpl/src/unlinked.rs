//! The set of nodes without names that wait to be deleted (OpenZFS: `DELETE_QUEUE`).

use crate::ZplError;
use ondisk::ObjectId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zap::Zap;

static KEEPS_UNLINKED: AtomicBool = AtomicBool::new(false);

/// Sets whether files without names stay in the unlinked set instead of being deleted (OpenZFS: `zfs_unlink_suspend_progress`). Those kept are
/// deleted at the next mount without it.
pub fn set_unlink_suspended(keeps: bool) {
    KEEPS_UNLINKED.store(keeps, Ordering::Relaxed);
}

pub(crate) fn keeps_unlinked() -> bool {
    KEEPS_UNLINKED.load(Ordering::Relaxed)
}

/// Unlinked set of a file system.
pub(crate) struct UnlinkedSet {
    /// Set on disk; None in damaged file systems, and in old ones that are not changed.
    zap: Option<Zap>,
    /// Number of files without names that were deleted.
    deletions: AtomicU64,
}

impl UnlinkedSet {
    pub(crate) fn new(zap: Option<Zap>) -> UnlinkedSet {
        UnlinkedSet { zap, deletions: AtomicU64::new(0) }
    }

    /// Opens the set on disk.
    pub(crate) fn zap(&self) -> Result<&Zap, ZplError> {
        self.zap.as_ref().ok_or(ZplError::CORRUPT)
    }

    /// Number of nodes that wait.
    pub(crate) fn count(&self) -> u64 {
        self.zap.as_ref().map_or(0, Zap::count)
    }

    /// True when no node waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Objects of the nodes that wait.
    pub(crate) fn objects(&self) -> Result<Vec<ObjectId>, ZplError> {
        let mut objects = Vec::new();
        if let Some(set) = &self.zap {
            set.for_each(|entry| {
                objects.push(ObjectId(entry.first_integer));
                Ok(())
            })?;
        }
        Ok(objects)
    }

    /// Number of nodes that were deleted so far.
    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Acquire)
    }

    /// Counts a node that was deleted.
    pub(crate) fn count_deletion(&self) {
        self.deletions.fetch_add(1, Ordering::Release);
    }
}
