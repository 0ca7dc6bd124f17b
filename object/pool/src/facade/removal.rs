//! Top-level vdevs that leave the pool, as commands see them.

use super::Pool;
use crate::PoolError;
use crate::removal::INVALID;
use crate::removal::run::{RemovalParameters, RemovalStatus};
use crate::spa::state::Config;
use crate::sync::changes::{Edit, Edited};
use crate::vdev_ops::add::EMPTYING_TXGS;
use ondisk::Guid;
use vdev::{TopVdev, VdevTree};

impl Pool {
    /// Takes a top-level vdev out of the pool. A log leaves at once, with a hole in its place. What lies on others is copied elsewhere first, from now on and
    /// across imports, and the vdev leaves when that is done: see [`Pool::removal_status`].
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Unremovable`] with the reason, [`PoolError::LogsWait`], and [`PoolError::NoReplicas`] while something
    /// is in a log.
    pub fn remove_top(&self, guid: Guid) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        let tree = self.tree();
        let Some(top) = tree.tops.iter().find(|top| top.is_concrete() && !top.is_log && top.guid == guid) else {
            return self.vdevs.remove_top(guid);
        };
        self.removals.check(guid)?;
        let waiting = self.dsl().waiting_logs_on(top.id);
        if !waiting.is_empty() {
            return Err(PoolError::LogsWait(waiting));
        }
        let was_allocating = !top.nonallocating;
        if was_allocating {
            self.vdevs.change_tree(allocate(guid, false))?;
        }
        // Logs begin anew elsewhere, and whatever is allocated there is on disk then.
        self.dsl().close_logs();
        let settled = (0..EMPTYING_TXGS).try_for_each(|_| self.sync());
        let begun = settled.and_then(|()| self.removals.check(guid)).and_then(|()| self.vdevs.change_tree(leave(guid)));
        self.dsl().reopen_logs();
        if begun.is_err() && was_allocating {
            self.vdevs.change_tree(allocate(guid, true))?;
        }
        begun?;
        self.removals.spawn();
        Ok(())
    }

    /// Ends the removal that runs: the vdev stays. Waits until that is on disk.
    ///
    /// # Errors
    /// [`PoolError::NotRemoving`] when none runs.
    pub fn remove_cancel(&self) -> Result<(), PoolError> {
        self.removals.cancel()
    }

    /// The last or current removal; None of a pool that never had one.
    pub fn removal_status(&self) -> Option<RemovalStatus> {
        self.removals.status()
    }

    /// Bytes of memory that where the contents of a top-level vdev are would take, were it removed, about.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDevice`].
    pub fn removal_memory(&self, guid: Guid) -> Result<u64, PoolError> {
        self.removals.memory_estimate(guid)
    }

    /// True while a vdev is being removed.
    pub fn is_removing(&self) -> bool {
        self.removals.is_active()
    }

    /// The knobs of removals.
    pub fn removal_parameters(&self) -> &RemovalParameters {
        &self.removals.parameters
    }

    /// Waits until nothing is removed any more. Does the work where there is no thread for it.
    pub fn removal_wait(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.removals.run(None);
        self.removals.wait();
        Ok(())
    }

    /// Does a part of the work on this thread: that of so many txgs.
    pub fn removal_drive_part(&self, txgs: usize) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.removals.run(Some(txgs));
        Ok(())
    }
}

/// The change by which a vdev that is to leave is not allocated from any more, or that takes that back.
fn allocate(guid: Guid, is_on: bool) -> Edit {
    Box::new(move |config: &Config, _| {
        let mut tree = VdevTree::clone(&config.tree);
        let takes_blocks = |top: &TopVdev| top.is_normal() && !top.nonallocating && top.guid != guid;
        if !is_on && !tree.tops.iter().any(takes_blocks) {
            return Err(PoolError::Unremovable(INVALID));
        }
        let top = tree.tops.iter_mut().find(|top| top.is_concrete() && top.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        top.nonallocating = !is_on;
        Ok(Edited { tree: tree.into(), ..Edited::default() })
    })
}

/// The change by which a vdev begins to leave: the removal begins with the same txg.
fn leave(guid: Guid) -> Edit {
    Box::new(move |config: &Config, _| {
        let mut tree = VdevTree::clone(&config.tree);
        if tree.tops.iter().any(|top| top.is_leaving) {
            return Err(PoolError::Unremovable("Pool busy; removal may already be in progress"));
        }
        let top = tree.tops.iter_mut().find(|top| top.is_concrete() && top.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        top.is_leaving = true;
        Ok(Edited { tree: tree.into(), ..Edited::default() })
    })
}
