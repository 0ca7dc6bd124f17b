//! Vdevs that join, leave and change in a pool in use. What such a change makes of the configuration goes to the sync, which writes it.

pub(crate) mod add;
pub(crate) mod allocating;
pub(crate) mod attach;
pub(crate) mod leaves;
pub(crate) mod spares;
pub(crate) mod spec;
pub(crate) mod split;

use crate::PoolError;
use crate::spa::Spa;
use crate::sync::changes::{Changes, Edit, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Adds, attaches, detaches, removes and expands vdevs, and lets spares stand in.
pub(crate) struct VdevOps {
    spa: Arc<Spa>,
    changes: Arc<Changes>,
    /// Devices that are coming and for which nobody has asked for a resilver yet.
    arrivals: AtomicUsize,
}

/// A device that is coming: from before others see it until the resilver that it may need was asked for.
pub(crate) struct Arrival<'a>(&'a AtomicUsize);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl VdevOps {
    /// Makes the operations of a pool whose sync takes `changes`.
    pub fn new(spa: Arc<Spa>, changes: Arc<Changes>) -> VdevOps {
        VdevOps { spa, changes, arrivals: AtomicUsize::new(0) }
    }

    /// A device is coming, until what is given is dropped.
    pub fn arrival(&self) -> Arrival<'_> {
        self.arrivals.fetch_add(1, Ordering::AcqRel);
        Arrival(&self.arrivals)
    }

    /// A device is coming that may need a resilver.
    pub fn has_arrivals(&self) -> bool {
        self.arrivals.load(Ordering::Acquire) > 0
    }

    /// Has `edit` done with the first txg of a pool that is being opened; where its outcome is then.
    pub fn begin_with(&self, edit: Edit) -> Outcome {
        self.changes.queue(edit)
    }

    /// Does `edit` likewise, unless the pool has a checkpoint by then: one that is gone back to needs the leaves that it had, and a blank one has nothing
    /// of it.
    ///
    /// Errors: [`PoolError::CheckpointExists`], [`PoolError::DiscardingCheckpoint`], and those of `edit`.
    pub fn change_leaves(&self, edit: Edit) -> Result<(), PoolError> {
        let spa = self.spa.clone();
        self.change_tree(Box::new(move |config, txg| {
            spa.check_no_checkpoint()?;
            edit(config, txg)
        }))
    }

    /// Does `edit` with the next txg and waits for it.
    pub fn change_tree(&self, edit: Edit) -> Result<(), PoolError> {
        self.changes.submit(&self.spa.txgs, edit)?;
        // A provider that writes devices by itself gets to know those that came.
        self.spa.zio().open_stores();
        Ok(())
    }
}
