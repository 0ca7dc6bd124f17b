//! Sequential rebuild: devices that were attached or stand in for others are filled by the space maps, without
//! looking at a block pointer (OpenZFS: `vdev_rebuild.c`).
//!
//! ```text
//!  attach ─► (wanted) ──sync──► active ──sweep: hold, read, write──► (outcome) ──sync──► complete | canceled ─► scrub
//!                                 │  ▲
//!                                 └──┘ another device came: begins again
//! ```
//! Who does what: the sync ([`Rebuilds::sync`]) alone changes the state in the MOS; [`Rebuilds::run`], on a thread for each vdev or
//! driven by a test, does the work. The state is written with every txg, so that a rebuild goes on after an export or a crash, here
//! or in OpenZFS.
//!
//! # Invariants
//! 1. What is rebuilt is on disk and stays where it is: a metaslab is held ([`metaslab::Hold`]) until the last write into it ended.
//! 2. The sweep begins when every txg that a leaf lacks is synced: what is born later is written to that leaf as to all others.
//! 3. The place on disk never claims what was not written: all addresses before it are, in whatever order ([`order`]) the rest comes.

mod order;
mod sweep;
pub(crate) mod sync;

use crate::spa::Spa;
use crate::spa::services::Services;
use dmu::{Objset, TxgManager};
use exec::{Crew, Exec, Mutex, WaitQueue};
use ondisk::names::top_zap;
use ondisk::{RebuildPhys, VdevId, from_words};
use scan::Scan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zap::{Value, Zap};
use zio::Zio;

/// State of a rebuild (OpenZFS: `vdev_rebuild_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebuildState {
    /// Rebuild runs, or goes on after the next import.
    Active,
    /// Rebuild ended early: nothing needed it any more.
    Canceled,
    /// Rebuild saw everything.
    Complete,
}

impl RebuildState {
    const fn number(self) -> u64 {
        match self {
            RebuildState::Active => 1,
            RebuildState::Canceled => 2,
            RebuildState::Complete => 3,
        }
    }
    fn from_number(number: u64) -> Option<RebuildState> {
        [RebuildState::Active, RebuildState::Canceled, RebuildState::Complete].into_iter().find(|state| state.number() == number)
    }
}

/// The last or current rebuild of a top-level vdev (OpenZFS: `vdev_rebuild_stat_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildStatus {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// State of the rebuild.
    pub state: RebuildState,
    /// Seconds since the epoch when the rebuild began.
    pub start_time: u64,
    /// Seconds since the epoch when the rebuild ended; 0 while it runs.
    pub end_time: u64,
    /// Milliseconds that the rebuild ran, over all imports.
    pub scan_time_ms: u64,
    /// Allocated bytes that were looked at.
    pub scanned: u64,
    /// Allocated bytes that were read.
    pub issued: u64,
    /// Bytes written to the devices that lacked them.
    pub rebuilt: u64,
    /// Estimate of the allocated bytes to look at.
    pub estimated: u64,
    /// Number of parts that could not be rebuilt.
    pub errors: u64,
    /// Milliseconds since the import or the beginning.
    pub pass_time_ms: u64,
    /// Allocated bytes looked at in that time.
    pub pass_scanned: u64,
    /// Allocated bytes read in that time.
    pub pass_issued: u64,
    /// Allocated bytes that no device lacked.
    pub pass_skipped: u64,
}

/// Knobs, by OpenZFS's names.
#[derive(Debug)]
pub struct RebuildParameters {
    /// Bytes read of a device at once (`zfs_rebuild_max_segment`).
    pub max_segment: AtomicU64,
    /// Bytes in flight per child of a vdev (`zfs_rebuild_vdev_limit`).
    pub vdev_limit: AtomicU64,
    /// A scrub follows (`zfs_rebuild_scrub_enabled`): 0 or 1.
    pub scrub_enabled: AtomicU64,
    /// No rebuild makes progress (`zfs_scan_suspend_progress`): 0 or 1. See [`crate::Pool::suspend_rebuilds`].
    suspended: AtomicU64,
}

impl Default for RebuildParameters {
    fn default() -> Self {
        RebuildParameters {
            max_segment: AtomicU64::new(1 << 20),
            vdev_limit: AtomicU64::new(64 << 20),
            scrub_enabled: AtomicU64::new(1),
            suspended: AtomicU64::new(0),
        }
    }
}

/// One top-level vdev's rebuild.
#[derive(Debug, Default)]
struct Top {
    phys: RebuildPhys,
    /// Begin, or begin again, with the next sync.
    wanted: bool,
    /// End of the sweep; the next sync records it.
    outcome: Option<Outcome>,
    pass: Pass,
}

/// Work of this import on a rebuild.
#[derive(Clone, Debug, Default)]
struct Pass {
    start_ns: u64,
    /// Milliseconds of earlier imports.
    earlier_ms: u64,
    scanned: u64,
    issued: u64,
    skipped: u64,
    /// Offset in bytes up to which every part was begun.
    cursor: u64,
    /// Parts that are being rebuilt, by their beginning.
    in_flight: BTreeSet<u64>,
    in_flight_bytes: u64,
    /// Work of the leaves for the parts in flight.
    flight: order::Loads,
}

/// End of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Complete,
    Cancel,
}

#[derive(Debug, Default)]
struct Shared {
    tops: BTreeMap<VdevId, Top>,
    /// The pool is being closed.
    halted: bool,
    /// Number of threads at work: in [`Rebuilds::run`], or on operations of their own.
    workers: usize,
    /// The scan that follows is about to begin: whoever waits for the end of all this must not find a moment without work.
    following: bool,
    /// The vdevs that are being swept.
    sweeping: BTreeSet<VdevId>,
    /// A vdev was rebuilt since nobody worked.
    completed: bool,
    /// Parts that may still be begun before the sweep pauses.
    budget: Option<usize>,
}

/// See the module's header.
pub(crate) struct Rebuilds {
    pub parameters: RebuildParameters,
    mos: Arc<Objset>,
    services: Arc<Services>,
    zio: Zio,
    txgs: Arc<TxgManager>,
    scan: Arc<Scan>,
    /// Bytes that the cache may hold: at most half of it is in flight.
    memory_bytes: u64,
    shared: Mutex<Shared>,
    changed: WaitQueue,
    crew: Crew,
}

impl Rebuilds {
    /// Opens the rebuilds of a pool as its MOS tells. What cannot be read is taken for none: it must not keep a pool from being opened.
    pub fn open(spa: &Spa, scan: &Arc<Scan>, memory_bytes: u64) -> Arc<Rebuilds> {
        let (mos, zio) = (spa.mos.clone(), spa.zio().clone());
        let (services, txgs, scan) = (spa.services.clone(), spa.txgs.clone(), scan.clone());
        let tree = zio.view().tree;
        let mut shared = Shared::default();
        for top in tree.tops.iter().filter(|top| top.is_concrete() && top.zap.0 != 0) {
            let found = Zap::hold(&mos, top.zap).and_then(|zap| zap.try_lookup(top_zap::VDEV_REBUILD_PHYS));
            if let Ok(Some(Value::U64(words))) = found {
                let phys: RebuildPhys = from_words(&words);
                shared.tops.insert(top.id, Top { phys, ..Top::default() });
            }
        }
        Arc::new(Rebuilds {
            parameters: RebuildParameters::default(),
            mos,
            services,
            zio,
            txgs,
            scan,
            memory_bytes,
            shared: Mutex::new(shared),
            changed: WaitQueue::new(),
            crew: Crew::default(),
        })
    }

    fn exec(&self) -> &Exec {
        &self.services.exec
    }

    /// Lets no rebuild make progress, or all of them again (OpenZFS: `zfs_scan_suspend_progress`).
    pub fn suspend(&self, suspended: bool) {
        self.parameters.suspended.store(u64::from(suspended), Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Asks for a rebuild of a vdev; one that runs begins again. The next sync does it.
    pub fn want(&self, vdev: VdevId) {
        self.shared.lock().tops.entry(vdev).or_default().wanted = true;
        self.changed.notify_all();
    }

    /// True while a vdev is being rebuilt or is about to be, and until the txg of its end is on disk.
    pub fn is_active(&self) -> bool {
        let shared = self.shared.lock();
        shared.workers > 0 || shared.tops.values().any(Top::is_active)
    }

    /// True while a vdev has something left to be rebuilt. Who waited for that may begin a scrub, though the txg of the end is not on
    /// disk yet.
    pub fn is_unfinished(&self) -> bool {
        // What ended is in the dirty time logs only later in the same sync.
        self.shared.lock().tops.values().any(Top::is_active) || !self.services.rebuild_news.lock().is_empty()
    }

    /// As [`Rebuilds::is_active`], and until the scan that follows was begun.
    pub fn is_busy(&self) -> bool {
        self.is_active() || self.shared.lock().following
    }

    /// Vdevs that nobody works on, though there is something to do.
    fn waiting(shared: &Shared) -> usize {
        if shared.halted || shared.budget == Some(0) {
            return 0;
        }
        let waits = |(vdev, top): &(&VdevId, &Top)| (top.is_active() || top.outcome.is_some()) && !shared.sweeping.contains(vdev);
        shared.tops.iter().filter(waits).count()
    }

    /// True when a vdev waits for one who works on it; the caller does now.
    fn claim(&self) -> bool {
        let mut shared = self.shared.lock();
        let idle = shared.workers - shared.sweeping.len();
        let needed = Rebuilds::waiting(&shared) > idle;
        shared.workers += usize::from(needed);
        needed
    }

    /// Has the work done on operations of its own, one a vdev; under an inline executor [`Rebuilds::run`] must be called.
    pub fn spawn(self: &Arc<Self>) {
        let vdevs = Rebuilds::waiting(&self.shared.lock());
        for _ in 0..vdevs {
            let rebuilds = self.clone();
            self.crew.start_if(self.exec(), "z-rebuild", || self.claim(), Box::new(move || rebuilds.work()));
        }
    }

    /// Ends the work, which goes on after the next import.
    pub fn halt(&self) {
        self.shared.lock().halted = true;
        self.changed.notify_all();
        self.crew.join();
    }

    /// Waits until nothing is rebuilt any more.
    pub fn wait(&self) {
        self.changed.wait_until(self.exec(), &|| {
            let shared = self.shared.lock();
            shared.halted || (shared.workers == 0 && !shared.following)
        });
    }

    /// The last or current rebuild of every top-level vdev that had one.
    pub fn status(&self) -> Vec<RebuildStatus> {
        let now_ns = self.exec().now_ns();
        self.shared.lock().tops.iter().filter_map(|(vdev, top)| top.status(*vdev, now_ns)).collect()
    }
}

impl Top {
    fn is_active(&self) -> bool {
        self.wanted || self.phys.vrp_rebuild_state == RebuildState::Active.number()
    }

    fn status(&self, vdev: VdevId, now_ns: u64) -> Option<RebuildStatus> {
        let phys = &self.phys;
        let runs = self.pass.start_ns != 0 && phys.vrp_end_time == 0;
        Some(RebuildStatus {
            vdev,
            state: RebuildState::from_number(phys.vrp_rebuild_state)?,
            start_time: phys.vrp_start_time,
            end_time: phys.vrp_end_time,
            scan_time_ms: phys.vrp_scan_time_ms,
            scanned: phys.vrp_bytes_scanned,
            issued: phys.vrp_bytes_issued,
            rebuilt: phys.vrp_bytes_rebuilt,
            estimated: phys.vrp_bytes_est,
            errors: phys.vrp_errors,
            pass_time_ms: if runs { now_ns.saturating_sub(self.pass.start_ns) / 1_000_000 } else { 0 },
            pass_scanned: self.pass.scanned,
            pass_issued: self.pass.issued,
            pass_skipped: self.pass.skipped,
        })
    }
}

fn load(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}
