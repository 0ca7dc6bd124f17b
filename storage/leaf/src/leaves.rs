//! The leaves of one pool: their counters, which outlive every change of the tree, and those with an open device.

use crate::device::{LeafDevice, QueueState};
use crate::flights::DeadmanFailMode;
use crate::inject::Injection;
use crate::reports::{FailedIo, Retention, WrongBytes};
use crate::shared::{Roaming, Shared, Watcher};
use crate::sitting::Spell;
use crate::stats::LeafStats;
use crate::tuning::DirtySource;
use device::{BlockDevice, DeviceError, DeviceIo};
use exec::{Exec, Mutex};
use ondisk::Guid;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vdev_queue::Tunables;

/// A leaf that is to be there.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The leaf's guid.
    pub guid: Guid,
    /// Device of the leaf, if that is open.
    pub device: Option<&'a Arc<dyn BlockDevice>>,
    /// Leaves from which its vdev reads a large block.
    pub width: usize,
}

/// A leaf that is there.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Counters of the leaf, those of its guid.
    pub stats: Arc<LeafStats>,
    /// Device of the leaf; None where that is not open.
    pub device: Option<Arc<LeafDevice>>,
}

/// The leaves of one pool.
pub struct Leaves {
    shared: Arc<Shared>,
    retention: Retention,
    stats: Mutex<BTreeMap<Guid, Arc<LeafStats>>>,
    devices: Mutex<BTreeMap<Guid, Arc<LeafDevice>>>,
    /// Devices beside the leaves.
    beside: Mutex<BTreeMap<Guid, Arc<LeafDevice>>>,
}

impl Leaves {
    /// Makes leaves, none yet; what they do that may be worth an event is told to `watcher`.
    pub fn new(exec: Exec, watcher: Weak<dyn Watcher>) -> Leaves {
        let shared = Arc::new(Shared::new(exec, watcher));
        let (retention, stats) = (Retention::default(), Mutex::default());
        Leaves { shared, retention, stats, devices: Mutex::default(), beside: Mutex::default() }
    }

    /// Replaces the leaves, one change after the other: counters of those seen before go on, and so does the queue of a device that stays.
    pub fn replace<R>(&self, wanted: &[Wanted<'_>], seated: impl FnOnce(Vec<Seat>) -> R) -> R {
        let mut known = self.stats.lock();
        let mut before = self.devices.lock();
        let mut now = BTreeMap::new();
        let seat = |leaf: &Wanted<'_>| {
            let stats = known.entry(leaf.guid).or_default().clone();
            let device = leaf.device.map(|device| {
                let kept = before.get(&leaf.guid).filter(|kept| kept.is_on(device)).cloned();
                kept.unwrap_or_else(|| Arc::new(LeafDevice::new(&self.shared, leaf.guid, (device, leaf.width), &stats)))
            });
            now.extend(device.clone().map(|device| (leaf.guid, device)));
            Seat { stats, device }
        };
        let seats = wanted.iter().map(seat).collect();
        *before = now;
        seated(seats)
    }

    /// Opens a device beside the leaves, such as a cache, or lets go of the one with this guid: its I/O is queued, counted and made to suffer as that of
    /// leaves is.
    pub fn set_beside(&self, guid: Guid, device: Option<&Arc<dyn BlockDevice>>) {
        let stats = self.stats_of(guid);
        let opened = device.map(|device| Arc::new(LeafDevice::new(&self.shared, guid, (device, 1), &stats)));
        let before = {
            let mut beside = self.beside.lock();
            match opened {
                Some(opened) => beside.insert(guid, opened),
                None => beside.remove(&guid),
            }
        };
        // Closing a device may take a while.
        drop(before);
    }

    /// Device beside the leaves with this guid.
    pub fn beside(&self, guid: Guid) -> Option<Arc<LeafDevice>> {
        self.beside.lock().get(&guid).cloned()
    }

    /// Counters of the leaf with this guid, whether it is there or not.
    pub fn stats_of(&self, guid: Guid) -> Arc<LeafStats> {
        self.stats.lock().entry(guid).or_default().clone()
    }

    /// Bytes repaired on any leaf so far, those that are gone included.
    pub fn repaired_bytes(&self) -> u64 {
        self.stats.lock().values().map(|stats| stats.counts().repaired_bytes).sum()
    }

    /// State of the queue of the leaf with this guid; None for one without a device.
    pub fn queue_state(&self, guid: Guid) -> Option<QueueState> {
        let device = self.devices.lock().get(&guid).cloned()?;
        Some(device.state(self.shared.exec.now_ns()))
    }

    /// An I/O of a leaf failed for good: counts it with its counters, and says whether it is to be told.
    pub fn failed(&self, stats: &LeafStats, io: &FailedIo, error: DeviceError) -> bool {
        stats.failed(io, error, self.shared.exec.now_ns(), &self.retention)
    }

    /// A leaf returned wrong bytes: counts it with its counters, among what was told when it is `counted`, and says whether it is to be told.
    pub fn wrong_bytes(&self, stats: &LeafStats, place: WrongBytes, counted: bool) -> bool {
        let rate = self.shared.tuning.checksum_rate.load(Ordering::Relaxed);
        stats.wrong_bytes(place, counted, (self.shared.exec.now_ns(), rate), &self.retention)
    }

    /// An I/O hangs: says whether it is to be told.
    pub fn hangs(&self, stats: &LeafStats) -> bool {
        stats.hangs(self.shared.exec.now_ns(), self.shared.tuning.deadman_rate.load(Ordering::Relaxed))
    }

    /// Simulated faults of the leaves.
    pub fn injection(&self) -> &Injection {
        &self.shared.injection
    }

    /// Changes the parameters of every queue; they count from its next decision on.
    pub fn tune(&self, change: impl FnOnce(&mut Tunables)) {
        if let Some(tunables) = self.shared.tuning.tune(change) {
            self.devices.lock().values().for_each(|device| device.retuned(&tunables));
            self.beside.lock().values().for_each(|device| device.retuned(&tunables));
        }
    }

    /// The parameters of the queues.
    pub fn tunables(&self) -> Tunables {
        self.shared.tuning.tunables()
    }

    /// Sets the source that tells queues how much data is dirty; the first source counts.
    pub fn set_dirty_source(&self, source: DirtySource) {
        self.shared.tuning.set_dirty_source(source);
    }

    /// Changes how many errors are remembered, and for how many seconds, so that they are not told again.
    pub fn set_retention(&self, most: u32, seconds: u32) {
        self.retention.most.store(most, Ordering::Relaxed);
        self.retention.seconds.store(seconds, Ordering::Relaxed);
    }

    /// Changes how many slow I/Os, hung I/Os and wrong checksums are told in a second, of each leaf.
    pub fn set_event_rates(&self, delay: u32, deadman: u32, checksum: u32) {
        let tuning = &self.shared.tuning;
        tuning.checksum_rate.store(checksum, Ordering::Relaxed);
        tuning.delay_rate.store(delay, Ordering::Relaxed);
        tuning.deadman_rate.store(deadman, Ordering::Relaxed);
    }

    /// Has reads pass over the leaf with these counters from now on, while others do.
    pub fn sit_out(&self, stats: &LeafStats, spell: Spell) {
        let seconds = self.shared.tuning.sit_out_seconds.load(Ordering::Relaxed);
        let until_ns = match spell {
            Spell::Usual => self.shared.exec.now_ns().saturating_add(seconds.saturating_mul(1_000_000_000)),
            Spell::Endless => u64::MAX,
        };
        stats.sitting.begin(until_ns);
    }

    /// True while reads are to pass over the leaf with these counters.
    pub fn sits_out(&self, stats: &LeafStats) -> bool {
        stats.sitting.lasts(|| self.shared.exec.now_ns()) && self.may_sit_out()
    }

    /// True unless no leaf is to sit out.
    pub fn may_sit_out(&self) -> bool {
        self.shared.tuning.sit_out_seconds.load(Ordering::Relaxed) != 0
    }

    /// Changes for how many seconds leaves that are found to be slow sit out; with 0 none does, whoever said so.
    pub fn set_sit_out_seconds(&self, seconds: u64) {
        self.shared.tuning.sit_out_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Sets what becomes of I/Os that hang; it counts for those that devices get from now on.
    pub fn set_deadman_fail_mode(&self, mode: DeadmanFailMode) {
        self.shared.flights.set_mode(mode);
    }

    /// Notes that somebody looks for I/Os that hang, now: those that come back later were not overlooked.
    pub fn look_for_hung(&self) {
        self.shared.tuning.looks(self.shared.exec.now_ns());
    }

    /// Gives up what devices have had for longer than `age_ns`; says how many I/Os of which leaves.
    pub fn give_up_older(&self, age_ns: u64) -> BTreeMap<Guid, usize> {
        self.shared.flights.give_up_older(&self.shared.exec, age_ns)
    }

    /// Hands an I/O to a device of the leaf past its queue, such that it is given up as others are: for labels.
    pub fn hand_to(&self, guid: Guid, device: &Arc<dyn BlockDevice>, io: DeviceIo) {
        device.submit(self.shared.flights.noted(&self.shared.exec, guid, io));
    }

    /// Sets who is called when leaves may have something to do for him. One at a time.
    pub fn set_roaming(&self, roaming: Option<Weak<dyn Roaming>>) {
        self.shared.set_roaming(roaming);
    }
}
