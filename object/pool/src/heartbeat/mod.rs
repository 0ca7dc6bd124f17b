//! Heartbeats: while the property `multihost` is on, the uberblock that was synced last is written anew all the time, to one label of one leaf
//! after the other, so that a host that is about to import the pool sees that this one has it (OpenZFS: `mmp.c`).
//!
//! # Invariants
//! 1. No heartbeat is written while the pool is suspended: another host may take it over then.
//! 2. A pool that is behind with its heartbeats, or suspended, is fenced: nothing of it is written until [`make_sure`] found that its devices are as
//!    this host left them.

pub(crate) mod claim;

use crate::PoolError;
use crate::label::{Device, heartbeat_write};
use crate::open::activity::{newest, watch};
use crate::spa::Spa;
use crate::spa::multihost::Due;
use device::{DeviceError, DeviceIo, DeviceOp, IoPriority};
use exec::{Crew, TaskClass};
use ondisk::Guid;
use ondisk::label::LABELS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::{LeafKind, VdevTree};
use zio::FaultError;

const MS_NS: u64 = 1_000_000;
/// Longest time, in nanoseconds, until a pool that is closed is noticed.
const SLICE_NS: u64 = 50 * MS_NS;
/// Name of the engine whose writes stay in this host's memory until they are flushed.
const BUFFERED: &str = "psync";
/// Numbers that errors have in the statistic (`EIO`, `ENXIO`).
const EIO: i32 = 5;
const ENXIO: i32 = 6;

/// Advice about a pool that is suspended for want of heartbeats, in OpenZFS's words.
const ACTION: &str =
    "Make sure the pool's devices are connected, then reboot your system and import the pool or run 'zpool clear' to resume the pool.";

/// Leaf that takes heartbeats.
struct Target {
    guid: Guid,
    path: String,
    ashift: u32,
    device: Device,
}

/// Leaves of `tree` that take heartbeats.
fn targets(tree: &VdevTree, devices: &[Option<Device>]) -> Vec<Target> {
    let target = |(leaf, device): (&vdev::Leaf, &Option<Device>)| {
        let device = device.clone().filter(|_| leaf.state.is_usable() && leaf.kind != LeafKind::DraidSpare)?;
        let ashift = tree.tops[leaf.top.0 as usize].ashift;
        Some(Target { guid: leaf.guid, path: leaf.path.clone(), ashift, device })
    };
    tree.leaves.iter().zip(devices).filter_map(target).collect()
}

/// Number of an error in the statistic.
fn number(error: DeviceError) -> i32 {
    if error == DeviceError::Gone { ENXIO } else { EIO }
}

/// Suspends a pool whose heartbeats are overdue, such that nothing more is written; true when that is so.
pub(crate) fn stop_if_overdue(spa: &Spa) -> bool {
    let Some(without_ns) = spa.multihost.overdue_ns(spa.exec().now_ns()) else { return false };
    if spa.zio().fence() {
        spa.multihost.note_missed();
        let ms = without_ns / MS_NS;
        tracing::error!("MMP writes to pool '{}' have not succeeded in over {ms} ms; suspending pool. {ACTION}", spa.name());
        let event = spa.services.event("ereport.fs.zfs.io_failure").with("action", ACTION);
        spa.services.events.event(event.with("why", "multihost writes failed or were delayed"));
    }
    true
}

/// Looks, before a fenced pool goes on, whether its devices are as this host left them and nobody else writes to them; lifts the fence then. Waits as
/// an import does (OpenZFS: `spa_mmp_remote_host_activity`).
///
/// # Errors
/// [`PoolError::ActiveElsewhere`] when they are not.
pub(crate) fn make_sure(spa: &Spa) -> Result<(), PoolError> {
    if !spa.zio().is_fenced() {
        return Ok(());
    }
    let (devices, synced, hostid) = {
        let config = spa.config.lock();
        let targets = targets(&config.tree, &config.devices);
        let devices: Vec<Device> = targets.into_iter().map(|target| target.device).collect();
        (devices, config.uberblock.clone(), config.facts.host.id)
    };
    let found = newest(spa.exec(), &devices).ok_or(PoolError::ActiveElsewhere)?;
    let (txg, timestamp) = spa.multihost.handed();
    let ub = &found.uberblock;
    // A write that failed may have reached a device all the same.
    let is_ours = [synced.ub_txg, txg].contains(&ub.ub_txg) && ub.ub_timestamp <= timestamp.max(synced.ub_timestamp);
    if !is_ours
        || found.host.id != hostid
        || watch(spa.exec(), (&spa.name(), spa.guid()), &devices, ub, &spa.multihost.tunables()).is_some()
    {
        tracing::error!("pool '{}' stays suspended: its devices are not as this host left them", spa.name());
        return Err(PoolError::ActiveElsewhere);
    }
    spa.multihost.begin_anew(spa.exec().now_ns());
    spa.zio().lift_fence();
    Ok(())
}

/// Writer of a pool's heartbeats.
pub(crate) struct Heartbeat {
    spa: Arc<Spa>,
    crew: Crew,
    is_halted: AtomicBool,
    is_running: AtomicBool,
}

impl Heartbeat {
    /// Makes the writer of a pool; nothing is written yet.
    pub fn new(spa: Arc<Spa>) -> Arc<Heartbeat> {
        Arc::new(Heartbeat { spa, crew: Crew::default(), is_halted: AtomicBool::new(false), is_running: AtomicBool::new(false) })
    }

    /// Has heartbeats written on a thread of its own while they are wanted.
    pub fn spawn(self: &Arc<Self>) {
        let is_free = || self.is_wanted() && !self.is_running.swap(true, Ordering::AcqRel);
        let own = self.clone();
        self.crew.start_if(self.spa.exec(), "z-multihost", is_free, Box::new(move || own.run()));
    }

    /// Ends the thread, and waits for it.
    pub fn halt(&self) {
        self.is_halted.store(true, Ordering::Release);
        self.crew.join();
    }

    fn is_wanted(&self) -> bool {
        self.spa.services.writeable && self.spa.multihost.is_on() && !self.is_halted.load(Ordering::Acquire)
    }

    fn run(&self) {
        loop {
            while self.is_wanted() {
                self.wait(self.beat());
            }
            self.is_running.store(false, Ordering::Release);
            // Whoever turned it on again meanwhile found this thread at work.
            if !self.is_wanted() || self.is_running.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    fn wait(&self, pause_ns: u64) {
        let exec = self.spa.exec();
        let until = exec.now_ns().saturating_add(pause_ns);
        while self.is_wanted() {
            match until.saturating_sub(exec.now_ns()) {
                0 => return,
                left => exec.sleep_ns(left.min(SLICE_NS)),
            }
        }
    }

    /// Writes one heartbeat, does not wait for it, and says after how many nanoseconds the next one is due. Suspends the pool when it is behind.
    pub fn beat(&self) -> u64 {
        let (spa, multihost) = (&self.spa, &self.spa.multihost);
        let (targets, are_all, synced) = {
            let config = spa.config.lock();
            let targets = targets(&config.tree, &config.devices);
            // Distributed spares never take any.
            let count = config.tree.leaves.iter().filter(|leaf| leaf.kind != LeafKind::DraidSpare).count();
            let are_all = targets.len() == count;
            (targets, are_all, config.uberblock.clone())
        };
        let pause = multihost.pause_ns(targets.len());
        if !self.is_wanted() || synced.ub_txg == 0 || spa.zio().is_fenced() || stop_if_overdue(spa) {
            return pause;
        }
        if spa.zio().is_suspended() {
            // Another host may take it over from now on.
            spa.zio().fence();
            return pause;
        }
        let leaves: Vec<Guid> = targets.iter().map(|target| target.guid).collect();
        let now = (spa.exec().now_ns(), u64::try_from(spa.exec().wall_clock().0).unwrap_or(0));
        if let Some(due) = multihost.due(&synced, (&leaves, are_all), now) {
            self.write(&targets[due.turn], &due, leaves.len());
        }
        pause
    }

    fn write(&self, target: &Target, due: &Due, leaves: usize) {
        let (exec, zio, begun_ns) = (self.spa.exec(), self.spa.zio(), self.spa.exec().now_ns());
        let label = (exec.random_u64() % LABELS as u64) as usize;
        let write = heartbeat_write(&target.device, &due.uberblock, target.ashift, label);
        self.spa.multihost.remember(due, (target.guid, target.path.as_str()), label);
        // One that hangs keeps nothing of the pool, which may be closed meanwhile.
        let (spa, id, guid) = (Arc::downgrade(&self.spa), due.id, target.guid);
        let done = move |outcome: Result<(), DeviceError>| {
            let Some(spa) = spa.upgrade() else { return };
            spa.multihost.note_done((id, guid), outcome.map_or_else(number, |()| 0), (begun_ns, spa.exec().now_ns()), leaves);
        };
        let (held_ns, later) = (zio.label_delay_ns(guid), exec.clone());
        let done = move |outcome: Result<(), DeviceError>| match held_ns {
            0 => done(outcome),
            _ => later.spawn_after(held_ns, TaskClass::Interrupt, Box::new(move || done(outcome))),
        };
        match zio.label_fault(guid, write.offset_in_label()) {
            Some(FaultError::Noop) => done(Ok(())),
            Some(_) => done(Err(DeviceError::Io)),
            // Others see only what left this host.
            None if target.device.facts().engine == BUFFERED => done(target.device.write_durably(write.offset, &write.data)),
            None => {
                let io = DeviceIo::new(DeviceOp::Write(write.data), write.offset, move |reply| done(reply.outcome));
                zio.hand_to(guid, &target.device, io.with_priority(IoPriority::Awaited));
            }
        }
    }
}
