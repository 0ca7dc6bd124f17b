//! I/O of devices that belong to the pool and are no leaves of its tree: caches. What fails there costs nothing of the pool, so nothing waits for it, and
//! no view names them.

use crate::batch::kind_of;
use crate::core::Core;
use crate::operate::{LeafRequest, LeafThen};
use device::{DeviceError, DeviceOp, DeviceReply};
use exec::TaskClass;
use leaf::{FailedIo, LeafDevice, Submission, Waiter};
use ondisk::Guid;
use std::sync::Arc;

/// An I/O under way.
struct Single {
    core: Arc<Core>,
    leaf: Arc<LeafDevice>,
    guid: Guid,
    /// Description of the I/O, for the report if it fails.
    io: FailedIo,
    speculative: bool,
    class: TaskClass,
    then: LeafThen,
}

/// Does one I/O. What would change devices to which nothing may be written is as if they were gone.
pub(crate) fn issue(core: &Arc<Core>, request: LeafRequest, then: LeafThen) {
    let LeafRequest { leaf: guid, offset, op, priority, speculative } = request;
    let is_kept_back = matches!(op, DeviceOp::Write(_) | DeviceOp::Trim { .. }) && core.keeps_writes_back();
    let Some(leaf) = core.leaves.beside(guid).filter(|_| !is_kept_back) else { return then(Err(DeviceError::Gone)) };
    let kind = kind_of(&op);
    let io = FailedIo { kind, class: priority.class(kind), offset, bytes: op.length_bytes() };
    let class = if priority.is_background() { TaskClass::Background } else { TaskClass::Interrupt };
    let waiter = Single { core: core.clone(), leaf: leaf.clone(), guid, io, speculative, class, then };
    leaf.submit(Submission { op, offset, class: io.class, planned_ns: core.exec.now_ns() }, waiter);
}

impl Waiter for Single {
    fn leaf(&self) -> Option<&LeafDevice> {
        Some(&self.leaf)
    }

    fn done(self, reply: DeviceReply) {
        let Single { core, guid, io, speculative, class, then, .. } = self;
        let result = reply.into_abd();
        if let Err(error) = &result
            && !speculative
        {
            core.beside_failed(guid, &io, *error);
        }
        // Whoever asked may verify and decompress: not on the thread of a device.
        core.exec.spawn(class, Box::new(move || then(result)));
    }
}
