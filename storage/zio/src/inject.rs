//! Simulated faults (OpenZFS: `zio_inject.c`, the program `zinject`): what handlers of a pool make of its I/O, at the boundary to the
//! devices, at its labels, and where blocks are verified. Without handlers all of it costs one relaxed load.
//!
//! As in OpenZFS, device faults spare the labels, which have faults of their own, and faults of blocks are faults of reads.

use crate::Zio;
use crate::engine::Core;
use crate::queue::LeafQueue;
use device::{DeviceError, DeviceIo, DeviceOp, DeviceReply};
use exec::{Exec, Mutex, RwLock, TaskClass};
use ondisk::{Bookmark, Guid, ObjectId, ObjectType, ObjsetId};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::{LABEL_END_BYTES, LABEL_START_BYTES};
use vdev_queue::IoKind;

/// What an injected I/O suffers.
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
    /// What is right by its checksum cannot be decompressed.
    Decompress,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// I/Os of a device.
    Device {
        /// Whose.
        leaf: Guid,
        /// How.
        error: FaultError,
        /// Only I/Os of this kind; all if None.
        kind: Option<IoKind>,
    },
    /// What tells whether a device works says that it does not.
    Probe {
        /// Whose.
        leaf: Guid,
    },
    /// I/Os of a device to a part of each of its labels.
    Label {
        /// Whose.
        leaf: Guid,
        /// Which bytes of a label.
        bytes: RangeInclusive<u64>,
    },
    /// I/Os of a device take time, and only so many are served at once.
    Delay {
        /// Whose.
        leaf: Guid,
        /// How long each takes at least.
        delay_ns: u64,
        /// How many are served at once.
        lanes: usize,
        /// Only I/Os of this kind; all if None.
        kind: Option<IoKind>,
    },
    /// Reads of blocks of one object.
    Blocks {
        /// The object set.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// The level.
        level: i64,
        /// The blocks.
        blocks: RangeInclusive<u64>,
        /// Only these copies, as bits; all if 0.
        copies: u32,
        /// How.
        error: FaultError,
    },
    /// Reads of the meta object set: of objects of one type, or all.
    Meta {
        /// The type.
        object_type: Option<ObjectType>,
        /// How.
        error: FaultError,
    },
    /// Most writes are lost, and success reported.
    LostWrites,
}

/// Of a hundred writes of [`Fault::LostWrites`] so many are lost.
const LOST_PERCENT: u64 = 60;

#[derive(Debug)]
struct Handler {
    id: u64,
    fault: Fault,
    /// How often, of 2^32; 0 is always.
    frequency: u32,
    /// When each lane of a delay is free, and which is next.
    lanes: Mutex<(Vec<u64>, usize)>,
}

/// The handlers of a pool.
#[derive(Default)]
pub(crate) struct Injection {
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
    /// Whether there is any handler.
    pub(crate) fn is_set(&self) -> bool {
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

    /// What a device fault makes of an I/O.
    fn device_fault(&self, target: &Target<'_>) -> Option<FaultError> {
        self.find(|handler| match &handler.fault {
            Fault::Device { error: FaultError::Needed, .. } => None,
            Fault::Device { leaf, error, kind } => {
                let meant = *leaf == target.guid && kind.is_none_or(|kind| kind == target.kind) && !target.in_labels;
                (meant && handler.strikes(target.exec)).then_some(*error)
            }
            Fault::LostWrites if target.kind == IoKind::Write => {
                (target.exec.random_u64() % 100 < LOST_PERCENT).then_some(FaultError::Noop)
            }
            _ => None,
        })
    }

    /// When a delayed I/O may complete, if it is delayed: on the lane, of all handlers, that is free first.
    fn delayed_until(&self, target: &Target<'_>) -> Option<u64> {
        let now = target.exec.now_ns();
        let mut best: Option<(u64, Arc<Handler>)> = None;
        for handler in self.handlers.read().iter() {
            let Fault::Delay { leaf, delay_ns, kind, .. } = &handler.fault else { continue };
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

    /// What a fault of blocks makes of the reading of a copy (None: of a block, whichever copy it came from).
    pub(crate) fn block_fault(&self, exec: &Exec, bookmark: &Bookmark, kind: ObjectType, copy: Option<usize>) -> Option<FaultError> {
        if !self.is_set() {
            return None;
        }
        self.find(|handler| {
            let error = match &handler.fault {
                Fault::Blocks { objset, object, level, blocks, copies, error } => {
                    let same = *objset == bookmark.objset && *object == bookmark.object && *level == i64::from(bookmark.level.0);
                    let of_copy = *copies == 0 || copy.is_some_and(|copy| copies & (1 << copy) != 0);
                    (same && of_copy && blocks.contains(&bookmark.block.0)).then_some(*error)
                }
                Fault::Meta { object_type, error } => {
                    (bookmark.objset == ObjsetId(0) && object_type.is_none_or(|wanted| wanted == kind)).then_some(*error)
                }
                _ => None,
            }?;
            let is_after_copies = error == FaultError::Decompress;
            (is_after_copies == copy.is_none() && handler.strikes(exec)).then_some(error)
        })
    }
}

/// Gives an I/O to its device as the handlers want it.
pub(crate) fn hand_over(core: &Core, queue: &LeafQueue, io: DeviceIo, onward: impl FnOnce(DeviceIo)) {
    let kind = match &io.op {
        DeviceOp::Read(_) => IoKind::Read,
        DeviceOp::Write(_) => IoKind::Write,
        DeviceOp::Flush => IoKind::Flush,
        DeviceOp::Trim { .. } => IoKind::Trim,
    };
    let end = queue.device().size_bytes().saturating_sub(LABEL_END_BYTES);
    let in_labels = kind != IoKind::Flush && (io.offset < LABEL_START_BYTES || io.offset >= end);
    let target = Target { guid: queue.guid(), kind, in_labels, exec: &core.exec };
    let fault = core.injection.device_fault(&target);
    let io = match core.injection.delayed_until(&target) {
        Some(until) => delayed(&core.exec, io, until),
        None => io,
    };
    match fault {
        // Devices do not decompress: a handler that never matches (OpenZFS: `zio_handle_device_injection_impl`).
        None | Some(FaultError::Decompress) => onward(io),
        Some(FaultError::Noop) => {
            let DeviceIo { op, then, .. } = io;
            let parts = if let DeviceOp::Read(parts) = op { parts } else { Vec::new() };
            then(DeviceReply { outcome: Ok(()), parts });
        }
        Some(FaultError::Corrupt) => onward(corrupted(core.exec.random_u64(), io)),
        Some(FaultError::Gone) => io.fail(DeviceError::Gone),
        Some(_) => io.fail(DeviceError::Io),
    }
}

/// The I/O, whose reply comes no sooner than that.
fn delayed(exec: &Exec, io: DeviceIo, until: u64) -> DeviceIo {
    let DeviceIo { op, offset, then } = io;
    let exec = exec.clone();
    DeviceIo::new(op, offset, move |reply| {
        let left = until.saturating_sub(exec.now_ns());
        exec.spawn_after(left, TaskClass::Interrupt, Box::new(move || then(reply)));
    })
}

/// The I/O, with one bit of what it reads flipped.
fn corrupted(random: u64, io: DeviceIo) -> DeviceIo {
    let DeviceIo { op, offset, then } = io;
    DeviceIo::new(op, offset, move |mut reply| {
        if let Some(part) = reply.parts.iter_mut().find(|part| !part.is_unstable() && !part.is_empty()) {
            let place = (random >> 3) as usize % part.len();
            part[place] ^= 1 << (random & 7);
        }
        then(reply);
    })
}

impl Zio {
    /// Adds a handler under a number of the caller's; `frequency` is how often it strikes, of 2^32, and 0 always.
    pub fn inject(&self, id: u64, fault: Fault, frequency: u32) {
        let lanes = if let Fault::Delay { lanes, .. } = &fault { *lanes } else { 0 };
        let handler = Handler { id, fault, frequency, lanes: Mutex::new((vec![0; lanes], 0)) };
        self.core.injection.change(|handlers| handlers.push(Arc::new(handler)));
    }

    /// Removes a handler; false when there is none of that number.
    pub fn clear_injection(&self, id: u64) -> bool {
        let mut found = false;
        self.core.injection.change(|handlers| {
            handlers.retain(|handler| {
                found |= handler.id == id;
                handler.id != id
            });
        });
        found
    }

    /// Whether a handler says that the leaf's device is gone, so that it must not be opened.
    pub fn is_injected_gone(&self, leaf: Guid) -> bool {
        self.has_device_fault(leaf, FaultError::Gone)
    }

    /// Whether a handler says that the pool cannot do without the leaf.
    pub fn is_injected_needed(&self, leaf: Guid) -> bool {
        self.has_device_fault(leaf, FaultError::Needed)
    }

    /// Whether a handler makes what tells whether the leaf's device works say that it does not.
    pub fn is_probe_injected(&self, leaf: Guid) -> bool {
        let strikes = |handler: &Arc<Handler>| {
            let meant = matches!(handler.fault, Fault::Probe { leaf: own } if own == leaf);
            (meant && handler.strikes(&self.core.exec)).then_some(())
        };
        self.core.injection.is_set() && self.core.injection.find(strikes).is_some()
    }

    fn has_device_fault(&self, wanted: Guid, how: FaultError) -> bool {
        let matches = |handler: &Arc<Handler>| match handler.fault {
            Fault::Device { leaf, error, kind: None } if leaf == wanted && error == how => Some(()),
            _ => None,
        };
        self.core.injection.is_set() && self.core.injection.find(matches).is_some()
    }

    /// Whether a handler makes the write of these bytes of a label of the leaf fail, or get lost; the offset is within the label.
    pub fn label_fault(&self, leaf: Guid, offset: u64) -> Option<FaultError> {
        if !self.core.injection.is_set() {
            return None;
        }
        let exec = &self.core.exec;
        self.core.injection.find(|handler| match &handler.fault {
            Fault::Label { leaf: own, bytes } if *own == leaf && bytes.contains(&offset) => Some(FaultError::Io),
            Fault::LostWrites => (exec.random_u64() % 100 < LOST_PERCENT).then_some(FaultError::Noop),
            _ => None,
        })
    }
}
