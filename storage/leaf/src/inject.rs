//! Simulated faults of devices (OpenZFS: `zio_inject.c`, the program `zinject`): what handlers of a pool make of its I/O at the boundary to
//! the devices and at its labels. Without handlers all of it costs one relaxed load.
//!
//! As in OpenZFS, device faults spare the labels, which have faults of their own.

use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp, DeviceReply};
use exec::{Exec, Mutex, RwLock, TaskClass};
use ondisk::Guid;
use ondisk::label::{LABEL_END_BYTES, LABEL_START_BYTES};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev_queue::IoKind;

/// Error that an injected I/O suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// The device reports an error.
    Io,
    /// The device is gone: I/O fails, and it cannot be opened again.
    Gone,
    /// A bit of what was read is flipped.
    Corrupt,
    /// Nothing is done, and success reported.
    Noop,
    /// The device is needed: its peers count as lacking something.
    Needed,
    /// The checksum is wrong.
    Checksum,
    /// Bytes that are right by their checksum cannot be decompressed.
    Decompress,
    /// They cannot be decrypted.
    Decrypt,
}

/// I/Os of a device that go wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafFault {
    /// I/Os of a device.
    Device {
        /// Guid of the leaf.
        leaf: Guid,
        /// Error that they suffer.
        error: FaultError,
        /// Only I/Os of this kind; all if None.
        kind: Option<IoKind>,
    },
    /// I/Os that tell whether a device works say that it does not.
    Probe {
        /// Guid of the leaf.
        leaf: Guid,
    },
    /// I/Os of a device to a part of each of its labels.
    Label {
        /// Guid of the leaf.
        leaf: Guid,
        /// Bytes of a label.
        bytes: RangeInclusive<u64>,
    },
    /// I/Os of a device take time, and only so many are served at once.
    Delay {
        /// Guid of the leaf.
        leaf: Guid,
        /// Nanoseconds that each takes at least.
        delay_ns: u64,
        /// I/Os that are served at once.
        lanes: usize,
        /// Only I/Os of this kind; all if None.
        kind: Option<IoKind>,
    },
    /// Most writes are lost, and success reported.
    LostWrites,
}

/// Number of a hundred writes of [`LeafFault::LostWrites`] that are lost.
const LOST_PERCENT: u64 = 60;

#[derive(Debug)]
struct Handler {
    id: u64,
    fault: LeafFault,
    /// Chance that it strikes, of 2^32; 0 is always.
    frequency: u32,
    /// Times in ns at which each lane of a delay is free, and the lane that is next.
    lanes: Mutex<(Vec<u64>, usize)>,
}

/// The handlers of a pool's devices.
#[derive(Default)]
pub struct Injection {
    count: AtomicUsize,
    handlers: RwLock<Vec<Arc<Handler>>>,
}

/// An I/O at the boundary.
struct Target<'a> {
    guid: Guid,
    kind: IoKind,
    in_labels: bool,
    exec: &'a Exec,
}

impl Handler {
    fn strikes(&self, exec: &Exec) -> bool {
        self.frequency == 0 || (exec.random_u64() >> 32) < u64::from(self.frequency)
    }
}

impl Injection {
    /// True when there is any handler.
    pub fn is_set(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Handler>>)) {
        let mut handlers = self.handlers.write();
        change(&mut handlers);
        self.count.store(handlers.len(), Ordering::Relaxed);
    }

    fn find<T>(&self, found: impl FnMut(&Arc<Handler>) -> Option<T>) -> Option<T> {
        self.handlers.read().iter().find_map(found)
    }

    /// Error that a device fault gives an I/O.
    fn device_fault(&self, target: &Target<'_>) -> Option<FaultError> {
        self.find(|handler| match &handler.fault {
            LeafFault::Device { error: FaultError::Needed, .. } => None,
            LeafFault::Device { leaf, error, kind } => {
                let meant = *leaf == target.guid && kind.is_none_or(|kind| kind == target.kind) && !target.in_labels;
                (meant && handler.strikes(target.exec)).then_some(*error)
            }
            LeafFault::LostWrites if target.kind == IoKind::Write => {
                (target.exec.random_u64() % 100 < LOST_PERCENT).then_some(FaultError::Noop)
            }
            _ => None,
        })
    }

    /// Time in ns at which a delayed I/O may complete, if it is delayed: on the lane, of all handlers, that is free first.
    fn delayed_until(&self, target: &Target<'_>) -> Option<u64> {
        let now = target.exec.now_ns();
        let mut best: Option<(u64, Arc<Handler>)> = None;
        for handler in self.handlers.read().iter() {
            let LeafFault::Delay { leaf, delay_ns, kind, .. } = &handler.fault else { continue };
            if *leaf != target.guid || kind.is_some_and(|kind| kind != target.kind) || !handler.strikes(target.exec) {
                continue;
            }
            let lanes = handler.lanes.lock();
            let free = lanes.0.get(lanes.1).copied().unwrap_or(0);
            let until = free.max(now).saturating_add(*delay_ns);
            drop(lanes);
            if best.as_ref().is_none_or(|(other, _)| until < *other) {
                best = Some((until, handler.clone()));
            }
        }
        let (until, handler) = best?;
        let mut lanes = handler.lanes.lock();
        let (index, count) = (lanes.1, lanes.0.len().max(1));
        if let Some(lane) = lanes.0.get_mut(index) {
            *lane = until;
        }
        lanes.1 = (index + 1) % count;
        Some(until)
    }

    /// Gives an I/O of a leaf to its `device` as the handlers want it.
    pub(crate) fn hand_over(&self, exec: &Exec, (guid, device): (Guid, &dyn BlockDevice), io: DeviceIo, onward: impl FnOnce(DeviceIo)) {
        let kind = kind_of(&io.op);
        let end = device.size_bytes().saturating_sub(LABEL_END_BYTES);
        let in_labels = kind != IoKind::Flush && (io.offset < LABEL_START_BYTES || io.offset >= end);
        let target = Target { guid, kind, in_labels, exec };
        let fault = self.device_fault(&target);
        let io = match self.delayed_until(&target) {
            Some(until) => delayed(exec, io, until),
            None => io,
        };
        match fault {
            // Devices do not decompress or decrypt: handlers that never match (OpenZFS: `zio_handle_device_injection_impl`).
            None | Some(FaultError::Decompress | FaultError::Decrypt) => onward(io),
            Some(FaultError::Noop) => {
                let DeviceIo { op, then, .. } = io;
                let parts = if let DeviceOp::Read(parts) = op { parts } else { Vec::new() };
                then(DeviceReply { outcome: Ok(()), parts });
            }
            Some(FaultError::Corrupt) => onward(corrupted(exec.random_u64(), io)),
            Some(FaultError::Gone) => io.fail(DeviceError::Gone),
            Some(_) => io.fail(DeviceError::Io),
        }
    }

    /// Adds a handler under a number of the caller's; `frequency` is how often it strikes, of 2^32, and 0 always.
    pub fn add(&self, id: u64, fault: LeafFault, frequency: u32) {
        let lanes = if let LeafFault::Delay { lanes, .. } = &fault { *lanes } else { 0 };
        let handler = Handler { id, fault, frequency, lanes: Mutex::new((vec![0; lanes], 0)) };
        self.change(|handlers| handlers.push(Arc::new(handler)));
    }

    /// Removes a handler; false when there is none of that number.
    pub fn remove(&self, id: u64) -> bool {
        let mut found = false;
        self.change(|handlers| {
            handlers.retain(|handler| {
                found |= handler.id == id;
                handler.id != id
            });
        });
        found
    }

    /// True when a handler makes what tells whether the leaf's device works say that it does not.
    pub fn hits_probe(&self, exec: &Exec, leaf: Guid) -> bool {
        let strikes = |handler: &Arc<Handler>| {
            let meant = matches!(handler.fault, LeafFault::Probe { leaf: own } if own == leaf);
            (meant && handler.strikes(exec)).then_some(())
        };
        self.is_set() && self.find(strikes).is_some()
    }

    /// True when a handler says of all I/O of the leaf's device that it suffers `wanted`.
    pub fn has_device_fault(&self, leaf: Guid, wanted: FaultError) -> bool {
        let matches = |handler: &Arc<Handler>| match handler.fault {
            LeafFault::Device { leaf: own, error, kind: None } if own == leaf && error == wanted => Some(()),
            _ => None,
        };
        self.is_set() && self.find(matches).is_some()
    }

    /// Nanoseconds for which a handler keeps back what is written to a label of the leaf now; 0 if none does.
    pub fn label_delay_ns(&self, exec: &Exec, leaf: Guid) -> u64 {
        if !self.is_set() {
            return 0;
        }
        let target = Target { guid: leaf, kind: IoKind::Write, in_labels: true, exec };
        self.delayed_until(&target).map_or(0, |until| until.saturating_sub(exec.now_ns()))
    }

    /// Fault of a handler that makes the write of these bytes of a label of the leaf fail, or get lost; the offset is within the label.
    pub fn label_fault(&self, exec: &Exec, leaf: Guid, offset: u64) -> Option<FaultError> {
        if !self.is_set() {
            return None;
        }
        self.find(|handler| match &handler.fault {
            LeafFault::Label { leaf: own, bytes } if *own == leaf && bytes.contains(&offset) => Some(FaultError::Io),
            LeafFault::LostWrites => (exec.random_u64() % 100 < LOST_PERCENT).then_some(FaultError::Noop),
            _ => None,
        })
    }
}

/// The kind of an operation.
pub(crate) fn kind_of(op: &DeviceOp) -> IoKind {
    match op {
        DeviceOp::Read(_) => IoKind::Read,
        DeviceOp::Write(_) => IoKind::Write,
        DeviceOp::Flush => IoKind::Flush,
        DeviceOp::Trim { .. } => IoKind::Trim,
    }
}

/// The I/O, whose reply comes no sooner than that.
fn delayed(exec: &Exec, io: DeviceIo, until: u64) -> DeviceIo {
    let DeviceIo { op, offset, then, priority } = io;
    let exec = exec.clone();
    let later = move |reply: DeviceReply| {
        let left = until.saturating_sub(exec.now_ns());
        exec.spawn_after(left, TaskClass::Interrupt, Box::new(move || then(reply)));
    };
    DeviceIo::new(op, offset, later).with_priority(priority)
}

/// The I/O, with one bit of what it reads flipped.
fn corrupted(random: u64, io: DeviceIo) -> DeviceIo {
    let DeviceIo { op, offset, then, priority } = io;
    let flip = move |mut reply: DeviceReply| {
        if let Some(part) = reply.parts.iter_mut().find(|part| !part.is_unstable() && !part.is_empty()) {
            let place = (random >> 3) as usize % part.len();
            part[place] ^= 1 << (random & 7);
        }
        then(reply);
    };
    DeviceIo::new(op, offset, flip).with_priority(priority)
}
