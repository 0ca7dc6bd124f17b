//! The way through the host to a pool's leaves, for whoever writes to devices by himself; it keeps nothing of the pool.

use crate::Priority;
use crate::batch::{self, BatchOptions, LeafOp};
use crate::core::Core;
use crate::stage::{AnswerThen, LeafPort};
use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use ondisk::Guid;
use std::sync::{Arc, Weak};

const OPTIONS: BatchOptions = BatchOptions { class: TaskClass::Interrupt, priority: Priority::AsyncWrite, speculative: false };

/// The leaves of a pool that may be gone.
pub(crate) struct HostLeaves(Weak<Core>);

impl HostLeaves {
    pub(crate) fn of(core: &Arc<Core>) -> Arc<HostLeaves> {
        Arc::new(HostLeaves(Arc::downgrade(core)))
    }
}

impl LeafPort for HostLeaves {
    fn issue(&self, ios: Vec<(Guid, u64, DeviceOp)>, then: AnswerThen<Vec<Result<Abd, DeviceError>>>) {
        let gone = |count: usize| vec![Err(DeviceError::Gone); count];
        let Some(core) = self.0.upgrade() else { return then(gone(ios.len())) };
        let snapshot = core.snapshot();
        let count = ios.len();
        let op = |(guid, offset, op): (Guid, u64, DeviceOp)| snapshot.find(guid).map(|leaf| LeafOp { leaf, offset, op });
        let Some(ops) = ios.into_iter().map(op).collect::<Option<Vec<LeafOp>>>() else { return then(gone(count)) };
        batch::issue(&core, &snapshot, OPTIONS, ops, then);
    }
}
