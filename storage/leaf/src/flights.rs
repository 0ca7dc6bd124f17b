//! I/Os that a device has, so that one that hangs can be given up (OpenZFS: `zfs_deadman_failmode`, `zio_deadman_impl`).
//!
//! Only with `continue` is anything noted: an I/O that was handed over before waits for its device. Who waits for an I/O that is given
//! up gets [`DeviceError::TimedOut`], and goes on as after any other error: reads come from elsewhere, writes are missed. What the device
//! makes of it later is thrown away. Its memory stays its own until then; a write may still reach the medium late, as in OpenZFS,
//! where checksums find it.

use device::{DeviceError, DeviceIo, DeviceReply, DeviceThen};
use exec::{Exec, Mutex, TaskClass};
use ondisk::Guid;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SHARDS: usize = 16;

/// Treatment of I/Os that hang (OpenZFS: `zfs_deadman_failmode`, whose `panic` no process of users should have).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadmanFailMode {
    /// The I/Os are told, and waited for.
    #[default]
    Wait,
    /// The I/Os are told, and given up.
    Continue,
}

/// Callback of who waits for an I/O, until it was called.
type Waiter = Arc<Mutex<Option<DeviceThen>>>;

struct Flight {
    leaf: Guid,
    issued_ns: u64,
    waiter: Waiter,
}

/// The I/Os that devices have.
#[derive(Default)]
pub(crate) struct Flights {
    on: AtomicBool,
    next: AtomicU64,
    shards: [Mutex<BTreeMap<u64, Flight>>; SHARDS],
}

impl Flights {
    fn shard(&self, number: u64) -> &Mutex<BTreeMap<u64, Flight>> {
        &self.shards[number as usize % SHARDS]
    }

    /// Takes out what devices have had for longer than that.
    fn take_older(&self, now_ns: u64, age_ns: u64) -> Vec<Flight> {
        let mut old = Vec::new();
        for shard in &self.shards {
            old.extend(shard.lock().extract_if(.., |_, flight| now_ns.saturating_sub(flight.issued_ns) > age_ns).map(|(_, flight)| flight));
        }
        old
    }
    /// Sets whether I/Os that devices get from now on can be given up.
    pub(crate) fn set_mode(&self, mode: DeadmanFailMode) {
        self.on.store(mode == DeadmanFailMode::Continue, Ordering::Relaxed);
    }

    /// True when I/Os that devices get now can be given up.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The I/O, such that it can be given up.
    pub(crate) fn noted(self: &Arc<Self>, exec: &Exec, leaf: Guid, io: DeviceIo) -> DeviceIo {
        if !self.is_on() {
            return io;
        }
        let DeviceIo { op, offset, then, priority } = io;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let waiter: Waiter = Arc::new(Mutex::new(Some(then)));
        let flight = Flight { leaf, issued_ns: exec.now_ns(), waiter: waiter.clone() };
        self.shard(number).lock().insert(number, flight);
        // One that was given up keeps nothing of the pool, which may be closed meanwhile.
        let owner = Arc::downgrade(self);
        let done = move |reply: DeviceReply| {
            if let Some(owner) = owner.upgrade() {
                owner.shard(number).lock().remove(&number);
            }
            let then = waiter.lock().take();
            if let Some(then) = then {
                then(reply);
            }
        };
        DeviceIo::new(op, offset, done).with_priority(priority)
    }

    /// Gives up what devices have had for longer than `age_ns`; says how many I/Os of which leaves.
    pub(crate) fn give_up_older(&self, exec: &Exec, age_ns: u64) -> BTreeMap<Guid, usize> {
        let mut counts = BTreeMap::new();
        if !self.on.load(Ordering::Relaxed) {
            return counts;
        }
        for flight in self.take_older(exec.now_ns(), age_ns) {
            let then = flight.waiter.lock().take();
            let Some(then) = then else { continue };
            *counts.entry(flight.leaf).or_default() += 1;
            let reply = DeviceReply::of(Err(DeviceError::TimedOut));
            exec.spawn(TaskClass::Interrupt, Box::new(move || then(reply)));
        }
        counts
    }
}
