//! What goes wrong, and when: a plan of faults over the operations of all devices.

use crate::record::DeviceIndex;
use device::{DeviceError, DeviceOp};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush of the device's cache.
    Flush,
    /// A trim.
    Trim,
}

impl OpKind {
    /// The kind of `op`.
    pub fn of(op: &DeviceOp) -> OpKind {
        match op {
            DeviceOp::Read(_) => OpKind::Read,
            DeviceOp::Write(_) => OpKind::Write,
            DeviceOp::Flush => OpKind::Flush,
            DeviceOp::Trim { .. } => OpKind::Trim,
        }
    }
}

/// Fate of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation fails; a write that fails may still have changed the bytes it was for.
    Error(DeviceError),
    /// The operation never completes, until [`crate::Sim::release_hung`].
    Hang,
    /// A read succeeds with wrong bytes (one bit per 512).
    CorruptRead,
    /// A write or flush is acknowledged and not done.
    Lie,
    /// The operation takes this much longer, in nanoseconds of virtual time.
    Delay(u64),
}

/// A fault and the operations it befalls: those that match every condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Fate of the operations that it befalls.
    pub kind: FaultKind,
    /// Number of the first matching operation it befalls, counted from 0 over the operations that match the rest.
    pub skip: u64,
    /// Number of operations that it befalls, from there on.
    pub count: u64,
    /// Device that is meant, if only one is.
    pub device: Option<DeviceIndex>,
    /// Kind of operation that is meant, if only one is.
    pub op: Option<OpKind>,
    /// Range of bytes in which operations that are meant start, if only some are.
    pub offsets: Option<(u64, u64)>,
}

impl Fault {
    /// Befalls the operation numbered `k` (from 0) of all operations on all devices, once.
    pub fn at(k: u64, kind: FaultKind) -> Fault {
        Fault { kind, skip: k, count: 1, device: None, op: None, offsets: None }
    }

    /// Makes a fault that befalls every operation.
    pub fn always(kind: FaultKind) -> Fault {
        Fault { count: u64::MAX, ..Fault::at(0, kind) }
    }

    /// Confines the fault to one device.
    pub fn on(self, device: DeviceIndex) -> Fault {
        Fault { device: Some(device), ..self }
    }

    /// Confines the fault to operations of one kind.
    pub fn only(self, op: OpKind) -> Fault {
        Fault { op: Some(op), ..self }
    }

    /// Confines the fault to operations whose offset is in `start .. end`.
    pub fn within(self, start: u64, end: u64) -> Fault {
        Fault { offsets: Some((start, end)), ..self }
    }
}

/// A fault with its count of matches.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    pub(crate) fault: Fault,
    matched: u64,
}

impl Armed {
    pub(crate) fn new(fault: Fault) -> Armed {
        Armed { fault, matched: 0 }
    }

    /// True when the fault befalls this operation; counts it when it matches.
    pub(crate) fn befalls(&mut self, device: DeviceIndex, op: OpKind, offset: u64) -> bool {
        let fault = &self.fault;
        let matches = fault.device.is_none_or(|wanted| wanted == device)
            && fault.op.is_none_or(|wanted| wanted == op)
            && fault.offsets.is_none_or(|(start, end)| (start..end).contains(&offset));
        if !matches {
            return false;
        }
        let number = self.matched;
        self.matched += 1;
        number >= fault.skip && number - fault.skip < fault.count
    }
}
