//! [`Scan`]: the one scan that a pool can have, its requests, and the loop that does its work.
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

use crate::datasets::{self, Item, Root};
use crate::errlog::ErrorLog;
use crate::frees::FreeLog;
use crate::gate::Gate;
use crate::lost::LostBlocks;
use crate::ports::ScanHost;
use crate::progress::Progress;
use crate::queue::{self, Entry};
use crate::record::{self, Queued};
use crate::walk::{Position, Scope, Walk};
use crate::{Damaged, ScanError, ScanState, ScanStatus};
use abd::Abd;
use arc::Cache;
use dmu::{Objset, TxgManager};
use exec::{Exec, Mutex, OperationHandle, WaitQueue};
use ondisk::{BlockPtr, Bookmark, DslScanPhys, ObjsetId, Txg, scan_flags, scan_func, scan_state};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use zio::{ErrorKind, Zio, ZioError};

/// Bytes in flight at most.
const FLIGHT_BYTES_MAX: u64 = 32 << 20;
/// Blocks collected and sorted before they are read (160 bytes each).
const QUEUE_MAX: usize = 100_000;

/// What a user asked for; the next sync does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Start,
    Pause,
    Resume,
    Stop,
}

/// How far the walk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Index in [`Shared::list`]; None while the MOS is visited.
    pub(crate) dataset: Option<usize>,
    pub(crate) position: Position,
}

/// The roots to walk from, as of a txg; valid until the sync of the next one.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) txg: Txg,
    pub(crate) generation: u64,
    pub(crate) mos_root: BlockPtr,
    /// By dataset object; None for those that are gone. Only what comes next is in it.
    pub(crate) roots: HashMap<u64, Option<Root>>,
}

/// What the sync and the loop share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) phys: DslScanPhys,
    pub(crate) request: Option<Request>,
    /// The pool is being closed.
    pub(crate) halted: bool,
    /// Somebody is in [`Scan::run`].
    pub(crate) running: bool,
    /// Everything was read: the next sync finishes the scan.
    pub(crate) complete: bool,
    pub(crate) paused_since: Option<u64>,
    pub(crate) view: Option<Arc<View>>,
    /// The datasets to visit; made when the MOS was visited.
    pub(crate) list: Arc<Vec<Item>>,
    /// The part of it that is on disk.
    pub(crate) queued: Queued,
    pub(crate) cursor: Cursor,
    /// The last cursor at which nothing was queued, and the bytes examined and skipped there: what a restart goes on from.
    pub(crate) checkpoint: (Cursor, (u64, u64)),
    /// Leaves are to be resilvered: the sync begins it as soon as no other scan is in its way.
    pub(crate) resilver_wanted: bool,
    /// Births of what the scan could not read; None when it began in another life of the pool and had errors.
    pub(crate) failed: Option<BTreeSet<Txg>>,
    /// Damaged blocks that are not in the log yet.
    pub(crate) damaged: Vec<(Bookmark, Txg)>,
    /// What the leaves had repaired when the scan began, less what it had repaired before.
    pub(crate) repaired_base: i128,
    /// What was collected and not read when the scrub was paused.
    pub(crate) queue: Vec<Entry>,
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
    /// There is work for [`Scan::run`].
    fn is_active(&self) -> bool {
        self.is_scanning() && !self.is_paused() && !self.halted && !self.complete
    }
}

/// See the module's header.
pub struct Scan {
    pub(crate) mos: Arc<Objset>,
    pub(crate) host: Arc<dyn ScanHost>,
    pub(crate) frees: Arc<FreeLog>,
    pub(crate) lost: Arc<LostBlocks>,
    pub(crate) gate: Gate,
    pub(crate) progress: Progress,
    /// Blocks collected before they are read.
    pub(crate) queue_max: AtomicUsize,
    /// The loop ends after it read one batch.
    one_batch: AtomicBool,
    pub(crate) shared: Mutex<Shared>,
    pub(crate) generation: AtomicU64,
    /// The loop is to end soon.
    pub(crate) stopping: AtomicBool,
    pub(crate) changed: WaitQueue,
    cache: Cache,
    txgs: Arc<TxgManager>,
    thread: Mutex<Option<OperationHandle>>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// What a scan is built on.
pub struct ScanParts {
    /// The meta object set.
    pub mos: Arc<Objset>,
    /// Blocks.
    pub cache: Cache,
    /// Transaction groups.
    pub txgs: Arc<TxgManager>,
    /// Where the pool reports the blocks that it frees.
    pub frees: Arc<FreeLog>,
    /// Where the pool reports the blocks that it could not read.
    pub lost: Arc<LostBlocks>,
    /// The pool.
    pub host: Arc<dyn ScanHost>,
}

impl Scan {
    /// The pool's scan as its MOS tells; a scrub that was not finished goes on with [`Scan::spawn`].
    pub fn open(parts: ScanParts) -> Result<Arc<Scan>, ScanError> {
        let ScanParts { mos, cache, txgs, frees, lost, host } = parts;
        let phys = record::load(&mos)?;
        let exec = cache.exec().clone();
        let mut shared = Shared { phys, ..Shared::default() };
        if shared.is_scanning() {
            frees.set_active(true);
            // Without a list the scrub begins again: it must not keep the pool from being opened.
            if let Ok((list, cursor)) = record::restore(&mos, &shared.phys) {
                (shared.list, shared.cursor) = (Arc::new(list), cursor);
            }
            shared.checkpoint = (shared.cursor, (shared.phys.scn_examined, shared.phys.scn_skipped));
            shared.failed = (shared.phys.scn_errors == 0).then(BTreeSet::new);
            shared.paused_since = shared.is_paused().then(|| exec.wall_clock().0 as u64);
        }
        let progress = Progress::default();
        progress.set((shared.phys.scn_examined, shared.phys.scn_skipped), shared.phys.scn_errors, exec.now_ns());
        shared.repaired_base = -i128::from(shared.phys.scn_processed);
        Ok(Arc::new(Scan {
            mos,
            host,
            frees,
            lost,
            gate: Gate::new(FLIGHT_BYTES_MAX),
            progress,
            queue_max: AtomicUsize::new(QUEUE_MAX),
            one_batch: AtomicBool::new(false),
            shared: Mutex::new(shared),
            generation: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            changed: WaitQueue::new(),
            cache,
            txgs,
            thread: Mutex::new(None),
        }))
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
    /// The scan that runs is a resilver.
    pub(crate) fn is_resilver(&self) -> bool {
        self.shared.lock().is_resilvering()
    }
    pub(crate) fn queue_room(&self) -> usize {
        self.queue_max.load(Ordering::Relaxed)
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
    /// True while the view of this generation may be read by.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Acquire) == generation
    }

    // ---- requests ----

    /// Begins a resilver of everything that leaves in use lack, in place of the scan that runs; waits until it began. Nothing
    /// happens when nothing is lacking.
    pub fn resilver(self: &Arc<Self>) -> Result<(), ScanError> {
        self.shared.lock().resilver_wanted = true;
        // A loop that reads for another scan ends first: the sync after that begins.
        while self.shared.lock().resilver_wanted {
            self.txgs.wait_synced(self.txgs.open_txg())?;
        }
        self.spawn();
        Ok(())
    }

    /// True when a resilver that began with what the leaves lack now goes on: none has to be begun for them.
    pub fn is_resilvering(&self, range: (Txg, Txg)) -> bool {
        let shared = self.shared.lock();
        shared.is_resilvering() && shared.phys.scn_min_txg <= range.0.0 && range.1.0 <= shared.phys.scn_max_txg
    }

    /// Begins a scrub, or goes on with a paused one; waits for the txg. Errors: [`ScanError::Running`], [`ScanError::Resilvering`].
    pub fn start(self: &Arc<Self>) -> Result<(), ScanError> {
        self.ask(|shared| match (shared.phys.scn_state == scan_state::SCANNING, shared.is_paused()) {
            _ if shared.is_resilvering() || shared.resilver_wanted => Err(ScanError::Resilvering),
            (true, true) => Ok(Request::Resume),
            (true, false) => Err(ScanError::Running),
            (false, _) => Ok(Request::Start),
        })?;
        self.spawn();
        Ok(())
    }

    /// Pauses the scrub that runs; waits for the txg. Errors: [`ScanError::NotRunning`], [`ScanError::Paused`].
    pub fn pause(&self) -> Result<(), ScanError> {
        self.ask(|shared| match (shared.is_scanning() && !shared.is_resilvering(), shared.is_paused()) {
            (true, false) => Ok(Request::Pause),
            (true, true) => Err(ScanError::Paused),
            (false, _) => Err(ScanError::NotRunning),
        })
    }

    /// Ends the scrub that runs or is paused; waits for the txg. Errors: [`ScanError::NotRunning`], [`ScanError::Resilvering`].
    pub fn stop(&self) -> Result<(), ScanError> {
        self.ask(|shared| match (shared.is_scanning(), shared.is_resilvering()) {
            (_, true) => Err(ScanError::Resilvering),
            (true, false) => Ok(Request::Stop),
            (false, _) => Err(ScanError::NotRunning),
        })
    }

    fn ask(&self, choose: impl Fn(&Shared) -> Result<Request, ScanError>) -> Result<(), ScanError> {
        choose(&self.shared.lock())?;
        // A loop that was told to stop still knows what the next one begins with.
        self.changed.wait_until(self.exec(), &|| !self.shared.lock().running || !self.is_stopping());
        {
            let mut shared = self.shared.lock();
            let request = choose(&shared)?;
            shared.request = Some(request);
        }
        Ok(self.txgs.wait_synced(self.txgs.open_txg())?)
    }

    /// Has the loop run on a thread of its own when there is work for it; under an inline executor [`Scan::run`] must be called.
    pub fn spawn(self: &Arc<Self>) {
        if self.exec().is_inline() {
            return;
        }
        let mut thread = self.thread.lock();
        {
            let mut shared = self.shared.lock();
            if shared.running || !shared.is_active() {
                return;
            }
            shared.running = true;
            self.stopping.store(false, Ordering::Release);
        }
        if let Some(ended) = thread.take() {
            ended.join();
        }
        let scan = self.clone();
        *thread = Some(self.exec().spawn_operation("z-scan", Box::new(move || scan.work())));
    }

    /// Ends the loop, which can go on after the next import. Nothing is started any more.
    pub fn halt(&self) {
        self.shared.lock().halted = true;
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    /// Waits until no scrub makes progress any more: it ended, was paused, or the pool is being closed.
    pub fn wait(&self) {
        self.changed.wait_until(self.exec(), &|| {
            let shared = self.shared.lock();
            !shared.is_scanning() || shared.is_paused() || shared.halted
        });
    }

    /// Does the work of the scan on this thread until there is none.
    pub fn run(self: &Arc<Self>) {
        {
            let mut shared = self.shared.lock();
            if shared.running || !shared.is_active() {
                return;
            }
            shared.running = true;
            self.stopping.store(false, Ordering::Release);
        }
        self.work();
    }

    /// Does a part of the scan's work on this thread: collects and reads about `blocks` blocks of data.
    pub fn run_part(self: &Arc<Self>, blocks: usize) {
        self.queue_max.store(blocks.max(1), Ordering::Relaxed);
        self.one_batch.store(true, Ordering::Relaxed);
        self.run();
        self.one_batch.store(false, Ordering::Relaxed);
        self.queue_max.store(QUEUE_MAX, Ordering::Relaxed);
    }

    // ---- what is known ----

    /// The scan as of now; None when the pool never had one.
    pub fn status(&self) -> Option<ScanStatus> {
        let (phys, paused_since, base) = {
            let shared = self.shared.lock();
            (shared.phys.clone(), shared.paused_since, shared.repaired_base)
        };
        let status = ScanStatus::from_phys(&phys)?;
        if status.state != ScanState::Scanning {
            return Some(status);
        }
        let (examined, issued, errors) = self.progress.get();
        let repaired = self.repaired_since(base);
        let rate = if paused_since.is_some() { 0 } else { self.progress.rate(self.exec().now_ns()) };
        let skipped = self.progress.get_skipped();
        Some(ScanStatus { examined, issued, skipped, errors, repaired, rate, paused_since, ..status })
    }

    /// Bytes that the leaves have repaired so far.
    pub(crate) fn repaired_total(&self) -> u64 {
        self.zio().repaired_bytes()
    }
    pub(crate) fn repaired_since(&self, base: i128) -> u64 {
        u64::try_from(i128::from(self.repaired_total()) - base).unwrap_or(0)
    }

    /// The blocks known to be damaged for good: of the scan that runs and of the last one (OpenZFS: `spa_get_errlog`).
    pub fn damaged_blocks(&self) -> Result<Vec<Damaged>, ScanError> {
        let mut blocks = ErrorLog::new(&self.mos).list()?;
        let mut waiting = self.shared.lock().damaged.clone();
        waiting.extend(self.lost.list());
        blocks.extend(waiting.into_iter().map(|(at, _)| Damaged {
            objset: at.objset,
            object: at.object,
            level: at.level,
            block: at.block,
        }));
        blocks.sort_unstable();
        blocks.dedup();
        Ok(blocks)
    }

    /// A block is damaged for good.
    pub(crate) fn damaged(&self, bp: &BlockPtr, at: &Bookmark) {
        self.progress.error();
        let mut shared = self.shared.lock();
        shared.damaged.push((*at, bp.birth()));
        if let Some(failed) = &mut shared.failed {
            failed.insert(bp.physical_birth());
        }
    }

    /// The outcome of reading a queued block.
    pub(crate) fn block_read(&self, bp: &BlockPtr, at: &Bookmark, result: Result<Abd, ZioError>) {
        let bytes = bp.asize();
        match result {
            Err(error) if error.kind != ErrorKind::Unsupported && !self.frees.contains(bp) => self.damaged(bp, at),
            _ => {}
        }
        self.progress.issued(bytes);
        self.gate.leave(bytes);
    }

    // ---- the loop ----

    fn work(self: &Arc<Self>) {
        let mut queue = std::mem::take(&mut self.shared.lock().queue);
        while let Some(view) = self.next_view(&mut queue) {
            if queue.is_empty() {
                self.frees.forget_before(view.txg);
            }
            let walked = self.walk(&view, &mut queue);
            // A view that went out of date ended the walk early: collect more from the next one before reading.
            let stale = walked == Walked::Part && !self.is_current(view.generation);
            if self.is_stopping() || (stale && queue.len() < self.queue_room()) || !queue::read_all(self, &mut queue) {
                continue;
            }
            let wanted = {
                let mut shared = self.shared.lock();
                shared.checkpoint = (shared.cursor, (self.progress.get().0, self.progress.get_skipped()));
                shared.complete = walked == Walked::All;
                shared.complete || walked == Walked::NoRoot
            };
            if wanted {
                self.next_txg();
            }
            if self.one_batch.load(Ordering::Relaxed) {
                self.stopping.store(true, Ordering::Release);
            }
        }
        self.changed.notify_all();
    }

    /// Waits for the next sync.
    fn next_txg(&self) {
        if self.txgs.wait_synced(self.txgs.open_txg()).is_err() {
            // The pool failed or is being closed: nothing more can be done.
            self.shared.lock().halted = true;
            self.stopping.store(true, Ordering::Release);
        }
    }

    /// The view to walk by; None when there is nothing to do any more.
    fn next_view(&self, queue: &mut Vec<Entry>) -> Option<Arc<View>> {
        loop {
            {
                let mut shared = self.shared.lock();
                if self.is_stopping() || !shared.is_active() {
                    shared.running = false;
                    if shared.is_scanning() {
                        shared.queue = std::mem::take(queue);
                    }
                    return None;
                }
                if let Some(view) = &shared.view {
                    return Some(view.clone());
                }
            }
            self.next_txg();
        }
    }

    /// Walks on from the cursor.
    fn walk(self: &Arc<Self>, view: &View, queue: &mut Vec<Entry>) -> Walked {
        loop {
            let (mut cursor, item, (above, until)) = {
                let shared = self.shared.lock();
                if !self.is_current(view.generation) {
                    return Walked::Part;
                }
                let item = shared.cursor.dataset.map(|index| shared.list.get(index).copied());
                (shared.cursor, item, (Txg(shared.phys.scn_min_txg), Txg(shared.phys.scn_max_txg)))
            };
            let scope = match item {
                None => Scope { objset: ObjsetId(0), root: view.mos_root, after: above, until },
                Some(None) => return Walked::All,
                Some(Some(item)) => match view.roots.get(&item.object) {
                    None => return Walked::NoRoot,
                    Some(None) => Scope { objset: ObjsetId(item.object), root: BlockPtr::HOLE, after: until, until },
                    Some(Some(root)) => Scope { objset: ObjsetId(item.object), root: root.bp, after: root.after.max(above), until },
                },
            };
            let done = Walk::run(self, view.generation, scope, &mut cursor.position, queue).is_ok();
            let list = if done && item.is_none() { Some(self.list_datasets(until)) } else { None };
            let mut shared = self.shared.lock();
            if let Some(list) = list {
                shared.list = Arc::new(list);
            }
            if !done {
                // A snapshot that the sync put in front of its head meanwhile goes on where the head was.
                shared.cursor.position = cursor.position;
                return Walked::Part;
            }
            let next = item.flatten().and_then(|item| shared.list.iter().position(|listed| *listed == item)).map_or(0, |index| index + 1);
            shared.cursor = Cursor { dataset: Some(next), position: Position::default() };
        }
    }

    fn list_datasets(&self, until: Txg) -> Vec<Item> {
        datasets::list(&self.mos, until).unwrap_or_else(|_| {
            self.progress.error();
            Vec::new()
        })
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walked {
    /// Everything was visited.
    All,
    /// The queue is full, or the view is out of date.
    Part,
    /// The view does not have the next dataset's root.
    NoRoot,
}
