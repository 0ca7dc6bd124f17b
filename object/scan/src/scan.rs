//! [`Scan`]: the one scan that a pool can have, and what the sync, the loop and those who ask share of it.
//!
//! ```text
//!  start ─► (requested) ──sync──► scanning ──run(): walk, read──► complete ──sync──► finished
//!                                  │   ▲ pause/start: sync                 stop: sync ──► canceled
//!                                  └───┘
//! ```
//! Who does what: requests wait for a txg; the sync ([`Scan::sync`]) alone changes the persistent state, and gives the walk a
//! new [`View`]; [`Scan::run`], on the scan's own thread or driven by a test, walks and reads.
//!
//! Nothing here holds a lock across a wait.

use crate::ScanError;
use crate::cursor::Cursor;
use crate::datasets::{Item, Root};
use crate::errlog::LogEntry;
use crate::errorscrub::{ErrorScrub, ErrorScrubRequest};
use crate::feed::{Fed, Feeder};
use crate::frees::FreeLog;
use crate::gate::Gate;
use crate::lookup::Lookup;
use crate::lost::LostBlocks;
use crate::ports::ScanHost;
use crate::progress::{Counters, Pass, Progress};
use crate::record::{self, Queued};
use crate::sort::{ENTRY_BYTES, Entry, SortQueue};
use arc::Cache;
use dmu::{Objset, TxgManager};
use exec::{Crew, Exec, Mutex, WaitQueue};
use ondisk::{BlockPtr, Bookmark, DslScanPhys, Guid, Txg, scan_flags, scan_func, scan_state};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use zio::Zio;

/// Bytes in flight until something is read that the tree has a say in.
const FLIGHT_BYTES: u64 = 32 << 20;
/// Memory for blocks that were found and not read yet: this part of what the cache may hold …
const MEMORY_PART: u64 = 4;
/// … but at least this (OpenZFS: `zfs_scan_mem_lim_min` is 16 MiB).
const MEMORY_MIN: u64 = 64 << 20;
/// Nanoseconds that a scan that must not go on waits before it looks again.
const SUSPENDED_STEP_NS: u64 = 50_000_000;

/// Nanoseconds after which a sync that leaves a resilver its time looks again whether it needs it.
const LEFT_STEP_NS: u64 = 2_000_000;

/// Blocks that are found before some are read, when they are not to be sorted.
const UNSORTED_BLOCKS: usize = 128;

/// Tunables of scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanTunables {
    /// Bytes of memory for blocks that were found and not read yet; 0 is the larger of 64 MiB and a quarter of what the cache may hold.
    pub memory_max: u64,
    /// Seconds after which everything found is read, so that a restart can go on from there (OpenZFS: `zfs_scan_checkpoint_intval`).
    pub checkpoint_seconds: u64,
    /// True when scans make no progress (OpenZFS: `zfs_scan_suspend_progress`).
    pub suspended: bool,
    /// A resilver that has come this far, in percent, is not begun again for devices that come later (OpenZFS:
    /// `zfs_resilver_defer_percent`); None begins it again at any time (`zfs_resilver_disable_defer`).
    pub defer_percent: Option<u64>,
    /// Blocks are read about in the order in which they are found, instead of that of their addresses (OpenZFS: `zfs_scan_legacy`).
    pub in_tree_order: bool,
    /// Bytes that are being read per device at a time (OpenZFS: `zfs_scan_vdev_limit`), one sector at least: as of four devices where there are
    /// fewer, and 256 MiB of all at most. A block with more than that, or than 512 KiB, per device counts as so many. A scan that runs follows with
    /// the next txg.
    pub vdev_limit: u64,
    /// Entries of the error log that an error scrub looks at in one txg (OpenZFS: `zfs_scrub_error_blocks_per_txg`), at least one …
    pub error_blocks_per_txg: u64,
    /// … and the time in milliseconds after which it leaves the rest to the next one (OpenZFS: `zfs_scrub_min_time_ms`). Scans that walk do so beside
    /// the txgs.
    pub scrub_min_time_ms: u64,
    /// Time in milliseconds that a resilver gets between the syncs of two txgs at least: they close its gate, and what it walks by is out of date
    /// afterwards (OpenZFS: `zfs_resilver_min_time_ms`, there 3000). Nobody waits for one that has nothing to do.
    pub resilver_min_time_ms: u64,
}

impl Default for ScanTunables {
    fn default() -> ScanTunables {
        ScanTunables {
            memory_max: 0,
            checkpoint_seconds: 7200,
            suspended: false,
            defer_percent: Some(10),
            in_tree_order: false,
            // OpenZFS: 16 MiB; ours are enough for a device of 6 GB/s.
            vdev_limit: 4 << 20,
            error_blocks_per_txg: 4096,
            scrub_min_time_ms: 750,
            resilver_min_time_ms: 0,
        }
    }
}

/// Request of a user; the next sync carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A scrub of blocks born after this txg.
    Start(Txg),
    Pause,
    Resume,
    Stop,
    ErrorScrub(ErrorScrubRequest),
}

/// A place to go on from, with what was done up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) cursor: Cursor,
    pub(crate) counters: Counters,
    /// Bytes that a resilver brought.
    pub(crate) repaired: u64,
}

/// The roots to walk from, as of a txg; valid until the sync of the next one.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) generation: u64,
    pub(crate) mos_root: BlockPtr,
    /// Roots by dataset object; None for those that are gone. Only what comes next is in it.
    pub(crate) roots: HashMap<u64, Option<Root>>,
}

/// State that the sync and the loop share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) phys: DslScanPhys,
    pub(crate) request: Option<Request>,
    /// The pool is being closed.
    pub(crate) halted: bool,
    /// True while somebody is in [`Scan::run`].
    pub(crate) running: bool,
    /// True from when a scan began while nobody was there until somebody is.
    pub(crate) unclaimed: bool,
    /// True when everything was read: the next sync finishes the scan.
    pub(crate) complete: bool,
    pub(crate) paused_since: Option<u64>,
    pub(crate) pass: Pass,
    pub(crate) view: Option<Arc<View>>,
    /// The datasets to visit; made when the MOS was visited.
    pub(crate) list: Arc<Vec<Item>>,
    /// The part of it that is on disk.
    pub(crate) queued: Queued,
    pub(crate) cursor: Cursor,
    /// The last place at which nothing was queued: what a restart goes on from.
    pub(crate) checkpoint: Checkpoint,
    /// Leaves are to be resilvered: the sync begins it as soon as no other scan is in its way.
    pub(crate) resilver_wanted: bool,
    pub(crate) errorscrub: ErrorScrub,
    /// The error log may have entries from before the feature `head_errlog`: the next sync changes them.
    pub(crate) upgrade_wanted: bool,
    /// Entries of the error log that were found to be gone.
    pub(crate) gone: Vec<LogEntry>,
    /// Births of what the scan could not read; None when it began in another life of the pool and had errors.
    pub(crate) failed: Option<BTreeSet<Txg>>,
    /// Damaged blocks that are not in the log yet.
    pub(crate) damaged: Vec<(Bookmark, Txg)>,
    /// Bytes that the leaves had repaired when the scan began, less those that the scan had repaired before.
    pub(crate) repaired_base: i128,
    /// Bytes reported as repaired before the scan went on.
    pub(crate) repaired_shown: u64,
    /// Bytes that each leaf in use had repaired when the scan began; none of a scan that went on after an import.
    pub(crate) repaired_before: BTreeMap<Guid, u64>,
}

impl Shared {
    pub(crate) fn is_scanning(&self) -> bool {
        self.phys.scn_state == scan_state::SCANNING && matches!(self.phys.scn_func, scan_func::SCRUB | scan_func::RESILVER)
    }
    pub(crate) fn is_resilvering(&self) -> bool {
        self.is_scanning() && self.phys.scn_func == scan_func::RESILVER
    }
    pub(crate) fn is_paused(&self) -> bool {
        self.phys.scn_flags & scan_flags::SCRUB_PAUSED != 0
    }
    /// True when there is a scan for [`Scan::run`] to work on.
    pub(crate) fn is_active(&self) -> bool {
        self.is_scanning() && !self.is_paused() && !self.halted && !self.complete
    }
    /// True when there is work for [`Scan::run`], or for the syncs that it has follow each other.
    pub(crate) fn has_work(&self) -> bool {
        self.is_active() || (self.errorscrub.is_active() && !self.halted)
    }
    pub(crate) fn is_errorscrubbing(&self) -> bool {
        self.errorscrub.is_scrubbing()
    }
    /// Reason why no scrub of any kind can begin; None when one can.
    pub(crate) fn in_the_way(&self) -> Option<ScanError> {
        let paused = self.is_paused();
        match () {
            () if self.is_resilvering() || self.resilver_wanted => Some(ScanError::Resilvering),
            () if self.phys.scn_state == scan_state::SCANNING && paused => Some(ScanError::PausedToCancel),
            () if self.phys.scn_state == scan_state::SCANNING => Some(ScanError::Running),
            () if self.is_errorscrubbing() && self.errorscrub.is_paused() => Some(ScanError::ErrorScrubPaused),
            () if self.is_errorscrubbing() => Some(ScanError::ErrorScrubbing),
            () => None,
        }
    }
}

/// See the module's header.
pub struct Scan {
    pub(crate) mos: Arc<Objset>,
    pub(crate) host: Arc<dyn ScanHost>,
    pub(crate) frees: Arc<FreeLog>,
    pub(crate) lost: Arc<LostBlocks>,
    pub(crate) gate: Gate,
    pub(crate) fed: Arc<Fed>,
    pub(crate) progress: Progress,
    /// Blocks that were found and not read yet.
    pub(crate) queue: Mutex<SortQueue>,
    /// Number of blocks in the queue.
    queued: AtomicUsize,
    /// Number of blocks that the queue may hold; 0 means what memory allows.
    pub(crate) queue_max: AtomicUsize,
    tunables: Mutex<ScanTunables>,
    /// The loop ends after it read all that fits into the queue once.
    pub(crate) one_batch: AtomicBool,
    /// Blocks that may be read before the loop ends.
    pub(crate) reads_left: AtomicUsize,
    /// Time in nanoseconds at which a sync opened the gate last.
    opened_ns: AtomicU64,
    /// Last txg that the loop waited for.
    awaited: AtomicU64,
    /// Time of the last checkpoint in nanoseconds.
    pub(crate) checkpoint_ns: AtomicU64,
    pub(crate) shared: Mutex<Shared>,
    pub(crate) generation: AtomicU64,
    /// The loop is to end soon.
    pub(crate) stopping: AtomicBool,
    pub(crate) changed: WaitQueue,
    cache: Cache,
    pub(crate) txgs: Arc<TxgManager>,
    pub(crate) crew: Crew,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// Parts that a scan is built on.
pub struct ScanParts {
    /// The meta object set.
    pub mos: Arc<Objset>,
    /// Cache that the scan reads blocks through.
    pub cache: Cache,
    /// Transaction groups.
    pub txgs: Arc<TxgManager>,
    /// Log to which the pool reports the blocks that it frees.
    pub frees: Arc<FreeLog>,
    /// List to which the pool reports the blocks that it could not read.
    pub lost: Arc<LostBlocks>,
    /// Pool that is scanned.
    pub host: Arc<dyn ScanHost>,
}

impl Scan {
    /// The pool's scan as its MOS tells; a scrub that was not finished goes on with [`Scan::spawn`].
    pub fn open(parts: ScanParts) -> Result<Arc<Scan>, ScanError> {
        let ScanParts { mos, cache, txgs, frees, lost, host } = parts;
        let phys = record::load(&mos)?;
        let exec = cache.exec().clone();
        let errorscrub = ErrorScrub::load(&mos, exec.wall_clock().0 as u64)?;
        let mut shared = Shared { phys, errorscrub, ..Shared::default() };
        if shared.is_scanning() {
            frees.set_active(true);
            // Without a list the scrub begins again: it must not keep the pool from being opened.
            if let Ok((list, cursor)) = record::restore(&mos, &shared.phys) {
                (shared.list, shared.cursor) = (Arc::new(list), cursor);
            }
            shared.failed = (shared.phys.scn_errors == 0).then(BTreeSet::new);
            shared.paused_since = shared.is_paused().then(|| exec.wall_clock().0 as u64);
        }
        let progress = Progress::default();
        let counters = Counters {
            examined: shared.phys.scn_examined,
            issued: shared.phys.scn_examined.saturating_sub(shared.phys.scn_skipped),
            skipped: shared.phys.scn_skipped,
            errors: shared.phys.scn_errors,
        };
        let repaired = shared.phys.scn_processed;
        shared.checkpoint = Checkpoint { cursor: shared.cursor, counters, repaired };
        shared.pass = Pass { start: exec.wall_clock().0 as u64, before: counters, spent_paused: 0 };
        let (shown, shown_repaired) = record::load_shown(&mos, &shared.phys);
        progress.set(counters, shown, exec.now_ns());
        (shared.repaired_base, shared.repaired_shown) = (-i128::from(repaired), shown_repaired);
        let resilvers = shared.is_resilvering();
        let scan = Arc::new(Scan {
            mos,
            host,
            frees,
            lost,
            gate: Gate::new(FLIGHT_BYTES),
            fed: Arc::default(),
            progress,
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            queue_max: AtomicUsize::new(0),
            tunables: Mutex::default(),
            one_batch: AtomicBool::new(false),
            reads_left: AtomicUsize::new(usize::MAX),
            opened_ns: AtomicU64::new(exec.now_ns()),
            awaited: AtomicU64::new(0),
            checkpoint_ns: AtomicU64::new(exec.now_ns()),
            shared: Mutex::new(shared),
            generation: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            changed: WaitQueue::new(),
            cache,
            txgs,
            crew: Crew::default(),
        });
        scan.fed.set_active(resilvers);
        scan.zio().set_feed(Arc::new(Feeder { fed: scan.fed.clone(), scan: Arc::downgrade(&scan) }));
        Ok(scan)
    }

    pub(crate) fn exec(&self) -> &Exec {
        self.cache.exec()
    }
    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }
    pub(crate) fn zio(&self) -> &Zio {
        self.cache.zio()
    }
    /// Finds blocks by their places.
    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup { mos: &self.mos, cache: &self.cache }
    }
    /// The scan that runs is a resilver.
    pub(crate) fn is_resilver(&self) -> bool {
        self.shared.lock().is_resilvering()
    }
    /// Blocks that the queue may hold.
    pub(crate) fn queue_room(&self) -> usize {
        match self.queue_max.load(Ordering::Relaxed) {
            0 if self.tunables.lock().in_tree_order => UNSORTED_BLOCKS,
            0 => (self.memory_max() / ENTRY_BYTES).max(1) as usize,
            blocks => blocks,
        }
    }
    fn memory_max(&self) -> u64 {
        match self.tunables.lock().memory_max {
            0 => (self.cache.max() / MEMORY_PART).max(MEMORY_MIN),
            bytes => bytes,
        }
    }
    /// Changes how scans behave, the one that runs too.
    pub fn set_tunables(&self, tunables: ScanTunables) {
        *self.tunables.lock() = tunables;
    }
    /// Tunables of scans, as set.
    pub fn tunables(&self) -> ScanTunables {
        *self.tunables.lock()
    }
    pub(crate) fn is_suspended(&self) -> bool {
        self.tunables.lock().suspended
    }
    /// Waits while no scan is to make progress.
    pub(crate) fn wait_while_suspended(&self) {
        while self.is_suspended() && !self.is_stopping() {
            self.exec().sleep_ns(SUSPENDED_STEP_NS);
        }
    }
    /// Leaves a resilver that is at work the time between two syncs that it is to have; called by the sync of `txg` before it closes the gate.
    pub(crate) fn leave_its_time(&self, txg: Txg) {
        let least_ns = self.tunables().resilver_min_time_ms.saturating_mul(1_000_000);
        let until_ns = self.opened_ns.load(Ordering::Relaxed).saturating_add(least_ns);
        let is_at_work = || {
            let shared = self.shared.lock();
            let is_asked = shared.request.is_some() || shared.resilver_wanted;
            shared.is_resilvering() && shared.is_active() && shared.running && !is_asked
        };
        let goes_on = || self.awaited.load(Ordering::Acquire) < txg.0 && !self.is_suspended() && !self.is_stopping() && is_at_work();
        while self.exec().now_ns() < until_ns && goes_on() {
            self.exec().sleep_ns(LEFT_STEP_NS);
        }
    }
    /// Opens the gate that a sync closed.
    pub(crate) fn open_gate(&self) {
        self.opened_ns.store(self.exec().now_ns(), Ordering::Relaxed);
        self.gate.open();
    }
    /// Waits for the sync of this txg, which need not wait for the scan.
    pub(crate) fn await_synced(&self, txg: Txg) -> bool {
        self.awaited.store(txg.0, Ordering::Release);
        self.txgs.wait_synced(txg).is_ok()
    }
    pub(crate) fn is_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= self.queue_room()
    }
    /// Queues a block that the walk of a view found; false when the view is out of date: the block may be gone.
    pub(crate) fn enqueue(&self, generation: u64, entry: Entry) -> bool {
        let mut queue = self.queue.lock();
        if !self.is_current(generation) {
            return false;
        }
        if queue.insert(entry) {
            self.queued.store(queue.len(), Ordering::Relaxed);
        } else {
            // It is shared, and will be read for the other one who has it.
            self.progress.issued(entry.bp.asize());
        }
        true
    }
    /// Takes out of the queue what was freed. Called by the sync when no walk can find it any more.
    pub(crate) fn drop_freed(&self) {
        let freed = self.frees.places();
        let mut queue = self.queue.lock();
        for place in freed {
            if let Some(entry) = queue.remove(place) {
                self.progress.issued(entry.bp.asize());
            }
        }
        self.queued.store(queue.len(), Ordering::Relaxed);
    }
    /// Forgets what was found.
    pub(crate) fn clear_queue(&self) {
        self.queue.lock().clear();
        self.queued.store(0, Ordering::Relaxed);
    }
    /// Number of blocks that may still be read.
    pub(crate) fn reads_allowed(&self) -> usize {
        self.reads_left.load(Ordering::Relaxed)
    }
    /// Counts so many that are being read; `left` are in the queue.
    pub(crate) fn reads_taken(&self, count: usize, left: usize) {
        self.queued.store(left, Ordering::Relaxed);
        if self.reads_allowed() == usize::MAX {
            return;
        }
        let before = self.reads_left.fetch_sub(count.min(self.reads_allowed()), Ordering::Relaxed);
        if before <= count {
            self.stopping.store(true, Ordering::Release);
        }
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
    /// True while the view of this generation may be read by.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Acquire) == generation
    }
}
