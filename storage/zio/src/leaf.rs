//! I/O to a place of one device, below any block pointer: what initializing, trimming and sequential rebuild do (OpenZFS:
//! `zio_write_phys`, `zio_trim`, `zio_vdev_child_io`). Scheduled and counted as all other I/O is.

use crate::batch::{self, BatchOptions, LeafOp};
use crate::{Priority, Zio};
use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use ondisk::Guid;
use vdev::LeafId;

/// An I/O to one leaf.
#[derive(Debug)]
pub struct LeafRequest {
    /// Whose device.
    pub leaf: Guid,
    /// First byte on the device, counted from its beginning, labels included.
    pub offset: u64,
    /// What to do.
    pub op: DeviceOp,
    /// On whose behalf.
    pub priority: Priority,
    /// A failure is expected: count no error, post no event.
    pub speculative: bool,
}

/// Receives the bytes of a read (nothing for other operations), or why not. Runs once, on any thread, and must not wait.
pub type LeafThen = Box<dyn FnOnce(Result<Abd, DeviceError>) + Send>;

impl Zio {
    /// Does one I/O on the leaf's device.
    ///
    /// Errors: `Gone` for a leaf that the current view does not have, or whose device is not open, and those of the device.
    pub fn leaf_io(&self, request: LeafRequest, then: LeafThen) {
        let snapshot = self.core.snapshot();
        let Some(index) = snapshot.view.tree.leaves.iter().position(|leaf| leaf.guid == request.leaf) else {
            return then(Err(DeviceError::Gone));
        };
        let LeafRequest { offset, op, priority, speculative, .. } = request;
        let class = if priority.is_background() { TaskClass::Background } else { TaskClass::Interrupt };
        let op = LeafOp { leaf: LeafId(index as u32), offset, op };
        batch::issue(&self.core, &snapshot, BatchOptions { class, priority, speculative }, vec![op], move |results| {
            then(results.into_iter().next().unwrap_or(Err(DeviceError::Gone)));
        });
    }
}
