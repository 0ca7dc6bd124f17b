//! What the leaves' schedulers go by: the parameters, and the pool's dirty data. Changed rarely, looked at with every decision.

use crate::extended::LeafTiming;
use exec::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vdev_queue::{Dirty, Tunables};

/// Events of slow I/Os unless told otherwise (OpenZFS: `zfs_slow_io_events_per_second`).
const DELAY_EVENTS_PER_SECOND: u32 = 20;
/// Events of hung I/Os unless told otherwise (OpenZFS: `zfs_deadman_events_per_second`).
const DEADMAN_EVENTS_PER_SECOND: u32 = 1;
/// Events of wrong checksums unless told otherwise (OpenZFS: `zfs_checksum_events_per_second`).
const CHECKSUM_EVENTS_PER_SECOND: u32 = 20;

/// Seconds for which a slow leaf sits out unless told otherwise (OpenZFS: `vdev_read_sit_out_secs`).
const SIT_OUT_SECONDS: u64 = 600;

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
    /// Time in ns at which somebody last looked for those that hang.
    looked_ns: AtomicU64,
    /// Most events per second.
    pub(crate) delay_rate: AtomicU32,
    pub(crate) deadman_rate: AtomicU32,
    pub(crate) checksum_rate: AtomicU32,
    /// Seconds for which a slow leaf sits out; with 0 none does.
    pub(crate) sit_out_seconds: AtomicU64,
    dirty: OnceLock<DirtySource>,
}

impl Tuning {
    pub(crate) fn new() -> Tuning {
        let tuning = Tuning::default();
        tuning.set_times(&Tunables::default());
        tuning.delay_rate.store(DELAY_EVENTS_PER_SECOND, Ordering::Relaxed);
        tuning.deadman_rate.store(DEADMAN_EVENTS_PER_SECOND, Ordering::Relaxed);
        tuning.checksum_rate.store(CHECKSUM_EVENTS_PER_SECOND, Ordering::Relaxed);
        tuning.sit_out_seconds.store(SIT_OUT_SECONDS, Ordering::Relaxed);
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
    /// True when an I/O that came back had hung, and nobody looked meanwhile (OpenZFS: `zio_wait`, which looks itself).
    pub(crate) fn was_overlooked(&self, io: &LeafTiming) -> bool {
        let hung_ns = self.hung_ns.load(Ordering::Relaxed);
        io.disk_ns > hung_ns && io.issued_ns.saturating_add(hung_ns) >= self.looked_ns.load(Ordering::Relaxed)
    }
    fn set_times(&self, tunables: &Tunables) {
        self.slow_ns.store(slow_ns(tunables), Ordering::Relaxed);
        let hung_ns = if tunables.deadman_enabled { tunables.deadman_ziotime_ms.saturating_mul(1_000_000) } else { u64::MAX };
        self.hung_ns.store(hung_ns, Ordering::Relaxed);
    }
    /// Changes the parameters; gives the new ones where they are new.
    pub(crate) fn tune(&self, change: impl FnOnce(&mut Tunables)) -> Option<Tunables> {
        let tunables = {
            let mut tunables = self.tunables.lock();
            let before = tunables.clone();
            change(&mut tunables);
            if *tunables == before {
                return None;
            }
            tunables.clone()
        };
        self.set_times(&tunables);
        self.generation.fetch_add(1, Ordering::AcqRel);
        Some(tunables)
    }
    /// Notes that somebody looks for those that hang.
    pub(crate) fn looks(&self, now_ns: u64) {
        self.looked_ns.store(now_ns, Ordering::Relaxed);
    }
    /// The first source counts.
    pub(crate) fn set_dirty_source(&self, source: DirtySource) {
        let _ = self.dirty.set(source);
    }
    pub(crate) fn dirty(&self) -> Dirty {
        self.dirty.get().map_or_else(Dirty::default, |source| source())
    }
}

/// Time in ns of OpenZFS's `zio_slow_io_ms`; 0 counts nothing.
fn slow_ns(tunables: &Tunables) -> u64 {
    match tunables.slow_io_ms {
        0 => u64::MAX,
        ms => ms.saturating_mul(1_000_000),
    }
}
