//! What the leaves' schedulers go by: the parameters, and the pool's dirty data. Changed rarely, looked at with every decision.

use crate::extended::LeafTiming;
use crate::queue::QueueState;
use crate::{LeafStats, Zio};
use exec::Mutex;
use ondisk::Guid;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vdev_queue::{Dirty, Tunables};

/// Events of slow I/Os unless told otherwise (OpenZFS: `zfs_slow_io_events_per_second`).
const DELAY_EVENTS_PER_SECOND: u32 = 20;
/// Events of hung I/Os unless told otherwise (OpenZFS: `zfs_deadman_events_per_second`).
const DEADMAN_EVENTS_PER_SECOND: u32 = 1;
/// Events of wrong checksums unless told otherwise (OpenZFS: `zfs_checksum_events_per_second`).
const CHECKSUM_EVENTS_PER_SECOND: u32 = 20;

/// Says how much of the pool's data is dirty.
pub type DirtySource = Box<dyn Fn() -> Dirty + Send + Sync>;

#[derive(Default)]
pub(crate) struct Tuning {
    tunables: Mutex<Tunables>,
    /// Grows with every change of `tunables`.
    generation: AtomicU64,
    slow_ns: AtomicU64,
    /// An I/O that takes longer hangs.
    hung_ns: AtomicU64,
    /// When somebody last looked for those that hang.
    looked_ns: AtomicU64,
    /// Events per second.
    pub(crate) delay_rate: AtomicU32,
    pub(crate) deadman_rate: AtomicU32,
    pub(crate) checksum_rate: AtomicU32,
    dirty: OnceLock<DirtySource>,
    /// Blocks of so many bytes and more are written as gangs …
    gang_bytes: AtomicU64,
    /// … so often, in percent.
    gang_percent: AtomicU32,
}

impl Tuning {
    pub(crate) fn new() -> Tuning {
        let tuning = Tuning::default();
        tuning.set_times(&Tunables::default());
        tuning.gang_bytes.store(u64::MAX, Ordering::Relaxed);
        tuning.delay_rate.store(DELAY_EVENTS_PER_SECOND, Ordering::Relaxed);
        tuning.deadman_rate.store(DEADMAN_EVENTS_PER_SECOND, Ordering::Relaxed);
        tuning.checksum_rate.store(CHECKSUM_EVENTS_PER_SECOND, Ordering::Relaxed);
        tuning
    }
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    pub(crate) fn tunables(&self) -> Tunables {
        self.tunables.lock().clone()
    }
    /// An I/O that takes this long counts as slow.
    pub(crate) fn slow_ns(&self) -> u64 {
        self.slow_ns.load(Ordering::Relaxed)
    }
    /// An I/O that came back hung, and nobody looked meanwhile (OpenZFS: `zio_wait`, which looks itself).
    pub(crate) fn was_overlooked(&self, io: &LeafTiming) -> bool {
        let hung_ns = self.hung_ns.load(Ordering::Relaxed);
        io.disk_ns > hung_ns && io.issued_ns.saturating_add(hung_ns) >= self.looked_ns.load(Ordering::Relaxed)
    }
    fn set_times(&self, tunables: &Tunables) {
        self.slow_ns.store(slow_ns(tunables), Ordering::Relaxed);
        let hung_ns = if tunables.deadman_enabled { tunables.deadman_ziotime_ms.saturating_mul(1_000_000) } else { u64::MAX };
        self.hung_ns.store(hung_ns, Ordering::Relaxed);
    }
    /// True when a block is to be a gang although there may be room for it in one piece.
    pub(crate) fn forces_gang(&self, psize: u64, random: impl FnOnce() -> u64) -> bool {
        psize >= self.gang_bytes.load(Ordering::Relaxed) && random() % 100 < u64::from(self.gang_percent.load(Ordering::Relaxed))
    }
    pub(crate) fn dirty(&self) -> Dirty {
        self.dirty.get().map_or_else(Dirty::default, |source| source())
    }
}

/// OpenZFS: `zio_slow_io_ms`; 0 counts nothing.
fn slow_ns(tunables: &Tunables) -> u64 {
    match tunables.slow_io_ms {
        0 => u64::MAX,
        ms => ms.saturating_mul(1_000_000),
    }
}

impl Zio {
    /// Writes blocks of `bytes` and more as gangs, in `percent` of the cases, to try out what is rare otherwise (OpenZFS:
    /// `metaslab_force_ganging`, `metaslab_force_ganging_pct`).
    pub fn set_forced_ganging(&self, bytes: u64, percent: u32) {
        self.core.tuning.gang_bytes.store(bytes, Ordering::Relaxed);
        self.core.tuning.gang_percent.store(percent, Ordering::Relaxed);
    }

    /// Changes the parameters of every leaf's I/O scheduler; they count from its next decision on.
    pub fn tune_queues(&self, change: impl FnOnce(&mut Tunables)) {
        let tuning = &self.core.tuning;
        let tunables = {
            let mut tunables = tuning.tunables.lock();
            let before = tunables.clone();
            change(&mut tunables);
            if *tunables == before {
                return;
            }
            tunables.clone()
        };
        tuning.set_times(&tunables);
        tuning.generation.fetch_add(1, Ordering::AcqRel);
        self.core.queues.lock().values().for_each(|queue| queue.retuned(&tunables));
    }

    /// The parameters of the leaves' I/O schedulers.
    pub fn queue_tunables(&self) -> Tunables {
        self.core.tuning.tunables()
    }

    /// Changes how many errors are remembered, and for how many seconds, so that they are not told again (OpenZFS:
    /// `zfs_zevent_retain_max`, `zfs_zevent_retain_expire_secs`).
    pub fn set_event_retention(&self, most: u32, seconds: u32) {
        self.core.retention.most.store(most, Ordering::Relaxed);
        self.core.retention.seconds.store(seconds, Ordering::Relaxed);
    }

    /// Changes how many events of slow I/Os, of hung I/Os and of wrong checksums are posted in a second, of each leaf.
    pub fn set_event_rates(&self, delay: u32, deadman: u32, checksum: u32) {
        self.core.tuning.checksum_rate.store(checksum, Ordering::Relaxed);
        self.core.tuning.delay_rate.store(delay, Ordering::Relaxed);
        self.core.tuning.deadman_rate.store(deadman, Ordering::Relaxed);
    }

    /// Posts an event for every leaf whose device has had an I/O for longer than `zfs_deadman_ziotime_ms`, and says how many there are;
    /// to be called every `zfs_deadman_checktime_ms`. I/Os are given up where [`crate::DeadmanFailMode`] says so. Of a suspended pool
    /// nothing is told (OpenZFS: `vdev_deadman`, `zio_deadman`).
    pub fn check_deadman(&self) -> usize {
        self.check_deadman_of(self.queue_tunables().deadman_ziotime_ms)
    }

    /// The same for I/Os that take longer than `limit_ms` milliseconds.
    pub fn check_deadman_of(&self, limit_ms: u64) -> usize {
        let tunables = self.queue_tunables();
        let (now, limit) = (self.core.exec.now_ns(), limit_ms.saturating_mul(1_000_000));
        if !tunables.deadman_enabled {
            return 0;
        }
        self.core.tuning.looked_ns.store(now, Ordering::Relaxed);
        if self.is_suspended() {
            // Told enough; but what hangs would keep the pool from being resumed, or given up.
            return self.give_up_older(limit).len();
        }
        let mut hung = 0;
        for (leaf, stats) in self.leaves() {
            let Some(age_ns) = stats.oldest_io_ns(now).filter(|age| *age > limit) else { continue };
            hung += 1;
            self.core.tell_deadman(leaf, &stats, age_ns);
        }
        hung.max(self.give_up_older(limit).len())
    }

    /// Where the schedulers learn how much data is dirty; the first source counts. It is asked often and must not wait.
    pub fn set_dirty_source(&self, source: DirtySource) {
        let _ = self.core.tuning.dirty.set(source);
    }

    /// What the scheduler of the leaf with this guid does; None for one without a device.
    pub fn queue_state(&self, leaf: Guid) -> Option<QueueState> {
        let queue = self.core.queues.lock().get(&leaf).cloned()?;
        Some(queue.state(self.core.exec.now_ns()))
    }

    /// Counters of every leaf of the current view, with its guid.
    fn leaves(&self) -> Vec<(Guid, Arc<LeafStats>)> {
        let snapshot = self.core.snapshot();
        snapshot.view.tree.leaves.iter().map(|leaf| leaf.guid).zip(snapshot.stats.iter().cloned()).collect()
    }
}
