//! The engine object: what all I/O of one pool shares, and the public operations.

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::direct::{DirectParameters, VerifyErrors};
use crate::events;
use crate::extended::LeafTiming;
use crate::feed::ResilverFeed;
use crate::flights::Flights;
use crate::inject::{self, Injection};
use crate::queue::{LeafQueue, LeafQueues};
use crate::reports::{Retention, Trouble};
use crate::roam::Roaming;
use crate::stats::{LeafStats, LeafStatsByGuid, ZioStats};
use crate::suspend::Suspension;
use crate::tuning::Tuning;
use crate::view::{PoolView, ViewCell};
use crate::zia::Zia;
use crate::{ErrorKind, LandedThen, Priority, ReadRequest, ReadThen, WriteRequest, WriteThen, ZioError, free, plug, read, write};
use abd::{Abd, AbdPart};
use device::{DeviceError, DeviceIo, DeviceOp};
use exec::{Exec, Mutex, TaskClass, WaitQueue, completion};
use kstat::{EventSink, IoStats};
use ondisk::{BlockPtr, Bookmark, Guid, Txg};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vdev::{LeafId, TopVdev};
use vdev_queue::{Class, IoKind};

/// Receives the outcome of something without a value. Runs once, on any thread, and must not wait.
pub type UnitThen = Box<dyn FnOnce(Result<(), ZioError>) + Send>;

/// A view with what the pipeline hangs on it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) view: PoolView,
    pub(crate) stats: Arc<[Arc<LeafStats>]>,
    /// None for a leaf whose device is not open.
    queues: Arc<[Option<Arc<LeafQueue>>]>,
}

impl Snapshot {
    /// Counters of a leaf of this view.
    pub(crate) fn stats(&self, leaf: LeafId) -> &LeafStats {
        &self.stats[leaf.0 as usize]
    }
    /// The scheduler of a leaf of this view.
    pub(crate) fn queue(&self, leaf: LeafId) -> Option<&Arc<LeafQueue>> {
        self.queues.get(leaf.0 as usize)?.as_ref()
    }
    /// The leaves in use whose devices are open.
    pub(crate) fn open_leaves(&self) -> Vec<LeafId> {
        let leaves = (0..self.view.tree.leaves.len() as u32).map(LeafId);
        leaves.filter(|&leaf| self.view.tree.leaf(leaf).state.is_usable() && self.view.device(leaf).is_some()).collect()
    }
    /// True when a top-level vdev that has one of the `bad` leaves cannot do without these and those that are not in use. Logs have no blocks
    /// of the pool: it can do without them.
    pub(crate) fn is_lost_without(&self, bad: &BTreeSet<LeafId>) -> bool {
        let tree = &self.view.tree;
        tree.tops.iter().filter(|top| !top.is_log).any(|top| {
            let out = |leaf: &LeafId| bad.contains(leaf) || !tree.leaf(*leaf).state.is_usable();
            let dead = top.slots.iter().filter(|slot| !slot.is_empty() && slot.iter().all(out)).count();
            dead > top.parity() && top.slots.iter().flatten().any(|leaf| bad.contains(leaf))
        })
    }
    /// The leaf's guid.
    pub(crate) fn guid(&self, leaf: LeafId) -> Guid {
        self.view.tree.leaf(leaf).guid
    }
}

/// A leaf I/O that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedIo {
    pub(crate) kind: IoKind,
    pub(crate) class: Class,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Frees of gang blocks whose headers are still being read.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    pub(crate) count: AtomicUsize,
    pub(crate) changed: WaitQueue,
}

/// Everything shared by the I/Os of a pool.
pub(crate) struct Core {
    pub(crate) exec: Exec,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) stats: ZioStats,
    pub(crate) suspension: Suspension,
    pub(crate) pending_frees: PendingFrees,
    pub(crate) direct: DirectParameters,
    pub(crate) verify_errors: VerifyErrors,
    pub(crate) iostats: Arc<IoStats>,
    pub(crate) tuning: Tuning,
    pub(crate) injection: Injection,
    pub(crate) retention: Retention,
    pub(crate) flights: Flights,
    pub(crate) zia: Zia,
    /// Those of the current view.
    pub(crate) queues: Mutex<LeafQueues>,
    /// Who is fed by degraded reads, once there is somebody.
    pub(crate) feed: OnceLock<Arc<dyn ResilverFeed>>,
    /// Who has background work that can go on anywhere.
    pub(crate) roaming: Mutex<Option<Weak<dyn Roaming>>>,
    cell: ViewCell<Snapshot>,
    leaf_stats: Mutex<LeafStatsByGuid>,
    missing: Mutex<BTreeSet<(Guid, Txg)>>,
    unflushed: Mutex<BTreeSet<Guid>>,
}

impl Core {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.cell.get()
    }
    /// A leaf I/O failed for good: counts it and says so, unless that was told of late (OpenZFS: `zio_done`, which counts no error whose
    /// report is a duplicate). So what `zpool status` counts is what `zpool events` has.
    pub(crate) fn leaf_failed(&self, snapshot: &Snapshot, leaf: LeafId, io: &FailedIo, error: DeviceError) {
        let stats = snapshot.stats(leaf);
        if error == DeviceError::Gone || io.kind == IoKind::Flush {
            stats.failed(io.kind, error);
            // Flushes have no place that could be the same.
            stats.reports.io.fetch_add(u64::from(error != DeviceError::Gone), Ordering::Relaxed);
            return;
        }
        let place = Trouble::Io(io.kind, io.class, io.offset, io.bytes);
        if stats.reports.is_news(place, self.exec.now_ns(), &self.retention) {
            stats.failed(io.kind, error);
            stats.reports.io.fetch_add(1, Ordering::Relaxed);
            self.events.event(events::leaf_io(snapshot, leaf, io));
        }
    }
    /// Gives an I/O to its device, now or at the end of a plug.
    pub(crate) fn hand_over(self: &Arc<Self>, queue: &LeafQueue, io: DeviceIo) {
        let io = self.noted(queue.guid(), io);
        let onward = |io| plug::submit(&self.exec, queue.device(), io);
        if self.injection.is_set() { inject::hand_over(self, queue, io, onward) } else { onward(io) }
    }
    /// An I/O came back from the device of a leaf: counts it, and tells when it was slow. Gives what the device took, in nanoseconds.
    pub(crate) fn leaf_returned(&self, guid: Guid, stats: &LeafStats, timing: LeafTiming, outcome: &Result<(), DeviceError>) -> u64 {
        let timing = LeafTiming { disk_ns: self.exec.now_ns().saturating_sub(timing.issued_ns), ..timing };
        stats.returned(&timing);
        if outcome.is_ok() {
            stats.done(&timing);
        }
        if timing.disk_ns >= self.tuning.slow_ns() && *outcome != Err(DeviceError::Gone) {
            stats.slow();
            if stats.reports.delays.allows(self.exec.now_ns(), self.tuning.delay_rate.load(Ordering::Relaxed)) {
                stats.reports.slow.fetch_add(1, Ordering::Relaxed);
                self.events.event(events::delay(&self.snapshot(), guid, &timing));
            }
        }
        if self.tuning.was_overlooked(&timing) && !self.suspension.is_on() {
            self.tell_deadman(guid, stats, timing.disk_ns);
        }
        timing.disk_ns
    }
    /// Says that a device has had an I/O for too long.
    pub(crate) fn tell_deadman(&self, guid: Guid, stats: &LeafStats, age_ns: u64) {
        if stats.reports.deadmen.allows(self.exec.now_ns(), self.tuning.deadman_rate.load(Ordering::Relaxed)) {
            self.events.event(events::deadman(&self.snapshot(), guid, age_ns));
        }
    }
    /// A leaf lacks what was born in `txg`.
    pub(crate) fn note_missing(&self, snapshot: &Snapshot, leaf: LeafId, txg: Txg) {
        self.missing.lock().insert((snapshot.guid(leaf), txg));
    }
}

/// Builds a snapshot; counters of leaves seen before go on, and so do the schedulers of devices that stay.
fn snapshot_of(view: PoolView, known: &mut LeafStatsByGuid, schedulers: (&mut LeafQueues, &Tuning)) -> Snapshot {
    let stats: Arc<[Arc<LeafStats>]> = view.tree.leaves.iter().map(|leaf| known.entry(leaf.guid).or_default().clone()).collect();
    let (before, tuning) = schedulers;
    let mut now = LeafQueues::new();
    for (index, leaf) in view.tree.leaves.iter().enumerate() {
        let Some(device) = view.device(LeafId(index as u32)) else { continue };
        let kept = before.get(&leaf.guid).filter(|queue| queue.is_on(device)).cloned();
        let width = view.tree.tops.get(leaf.top.0 as usize).map_or(1, TopVdev::read_width);
        now.insert(leaf.guid, kept.unwrap_or_else(|| Arc::new(LeafQueue::new(leaf.guid, (device, width), &stats[index], tuning))));
    }
    let queues = view.tree.leaves.iter().map(|leaf| now.get(&leaf.guid).cloned()).collect();
    *before = now;
    Snapshot { view, stats, queues }
}

/// The pipeline of one pool; a cheap handle.
#[derive(Clone)]
pub struct Zio {
    pub(crate) core: Arc<Core>,
}

impl std::fmt::Debug for Zio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zio").field("pool", &self.core.snapshot().view.facts.name).finish_non_exhaustive()
    }
}

impl Zio {
    /// A pipeline over the devices of `view`, telling `events` what goes wrong.
    pub fn new(exec: Exec, view: PoolView, events: Arc<dyn EventSink>) -> Zio {
        let mut known = LeafStatsByGuid::new();
        let (tuning, mut queues) = (Tuning::new(), LeafQueues::new());
        let snapshot = snapshot_of(view, &mut known, (&mut queues, &tuning));
        let core = Core {
            exec,
            events,
            stats: ZioStats::default(),
            suspension: Suspension::default(),
            pending_frees: PendingFrees::default(),
            direct: DirectParameters::default(),
            verify_errors: VerifyErrors::default(),
            iostats: Arc::default(),
            tuning,
            injection: Injection::default(),
            retention: Retention::default(),
            flights: Flights::default(),
            zia: Zia::default(),
            queues: Mutex::new(queues),
            feed: OnceLock::new(),
            roaming: Mutex::default(),
            cell: ViewCell::new(&snapshot),
            leaf_stats: Mutex::new(known),
            missing: Mutex::default(),
            unflushed: Mutex::default(),
        };
        Zio { core: Arc::new(core) }
    }

    /// The executor that the pipeline runs on.
    pub fn exec(&self) -> &Exec {
        &self.core.exec
    }

    /// Has degraded reads feed a resilver, for good; false when they feed one already.
    pub fn set_feed(&self, feed: Arc<dyn ResilverFeed>) -> bool {
        self.core.feed.set(feed).is_ok()
    }

    /// The view that new I/Os use.
    pub fn view(&self) -> PoolView {
        self.core.snapshot().view.clone()
    }

    /// Replaces the view; I/Os in flight finish with the one they began with.
    pub fn set_view(&self, view: PoolView) {
        let mut known = self.core.leaf_stats.lock();
        let mut queues = self.core.queues.lock();
        let snapshot = snapshot_of(view, &mut known, (&mut queues, &self.core.tuning));
        self.core.cell.set(&snapshot);
    }

    /// Totals of the pool.
    pub fn stats(&self) -> &ZioStats {
        &self.core.stats
    }

    /// How the pool's data is read and written; bumped by the layers that know.
    pub fn iostats(&self) -> &Arc<IoStats> {
        &self.core.iostats
    }

    /// Counters of a leaf of the current view; empty ones for a number that it does not have.
    pub fn leaf_stats(&self, leaf: LeafId) -> Arc<LeafStats> {
        self.core.snapshot().stats.get(leaf.0 as usize).cloned().unwrap_or_default()
    }

    /// Counters of the leaf with this guid, whichever view it belongs to.
    pub fn leaf_stats_of(&self, guid: Guid) -> Arc<LeafStats> {
        self.core.leaf_stats.lock().entry(guid).or_default().clone()
    }

    /// Bytes repaired on any leaf since the pool was opened, those that left it included.
    pub fn repaired_bytes(&self) -> u64 {
        self.core.leaf_stats.lock().values().map(|stats| stats.counts().repaired_bytes).sum()
    }

    /// Says that a leaf lacks what was born in `txg`: its dirty time log grows with the next sync.
    pub fn note_missing(&self, leaf: Guid, txg: Txg) {
        self.core.missing.lock().insert((leaf, txg));
    }

    /// Which leaves (by guid) missed writes of which txgs since the last call: the growth of their dirty time logs.
    pub fn take_missing(&self) -> Vec<(Guid, Txg)> {
        std::mem::take(&mut *self.core.missing.lock()).into_iter().collect()
    }

    /// Reads one block; `then` gets its logical bytes (or the physical ones with [`crate::ReadFlags::raw`]).
    ///
    /// Errors: `Checksum`, `Io` or `NoDevice` when no copy can be had, `Corrupt` and `Unsupported` for what cannot be decoded.
    /// With [`crate::FailMode::Wait`] a read that failed because devices are gone is held until [`Zio::resume`].
    pub fn read(&self, request: ReadRequest, then: ReadThen) {
        read::read(&self.core, request, then);
    }

    /// Reads blocks that are neighbours on their devices: their I/Os go out in one go, and then what their verification found to be
    /// repaired. Each `then` runs when its block was verified and repaired. Nobody may wait in between.
    pub fn read_together(&self, reads: Vec<(ReadRequest, ReadThen)>) {
        read::read_together(&self.core, reads);
    }

    /// Reads one block and waits.
    pub fn read_wait(&self, request: ReadRequest) -> Result<Abd, ZioError> {
        let (done, wait) = completion();
        self.read(request, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }

    /// Reads one block into the caller's memory, without a copy where that is possible: an uncompressed block whose every
    /// data column comes back right. `target` are consecutive parts, as long as the block in sum; parts that nobody wants may
    /// be scratch. Errors are those of [`Zio::read`].
    ///
    /// When the target is memory that others write to and its bytes do not match the checksum, nothing is concluded about the
    /// devices: it is counted ([`Zio::dio_verify_errors`]) and the block is read again into a buffer of its own.
    pub fn read_into(&self, request: ReadRequest, target: Vec<AbdPart>, then: LandedThen) {
        read::read_into(&self.core, request, target, then);
    }

    /// Writes one block; `then` gets its pointer. Nothing is freed: that is up to the caller.
    ///
    /// Compression, checksum, parity and device I/O happen in a job. Errors: `NoSpace`, `ReadOnly`, `Unsupported`, and `Io` or
    /// `NoDevice` when no copy could be written (with [`crate::FailMode::Wait`] such a write is held until [`Zio::resume`]).
    pub fn write(&self, request: WriteRequest, then: WriteThen) {
        write::write(&self.core, request, then);
    }

    /// As [`Zio::write`], starting on this thread: for somebody who would wait for a job anyway.
    pub fn write_here(&self, request: WriteRequest, then: WriteThen) {
        write::write_here(&self.core, request, then);
    }

    /// Runs `work`, which must not wait: device I/Os that it starts on this thread go out when it is done, neighbours on a
    /// device as one.
    pub fn plugged(&self, work: impl FnOnce()) {
        plug::plugged(work);
    }

    /// Writes one block and waits.
    pub fn write_wait(&self, request: WriteRequest) -> Result<BlockPtr, ZioError> {
        let (done, wait) = completion();
        self.write(request, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }

    /// Gives the block's space back in `txg`; a gang's members too. Holes and embedded pointers cost nothing.
    ///
    /// A gang's headers are read first: [`Zio::wait_frees`] before the txg's space is counted.
    pub fn free(&self, txg: Txg, bp: &BlockPtr) {
        free::free(&self.core, txg, bp);
    }

    /// Takes the space of a block found at import that no space map knows yet (intent log; OpenZFS: `zio_claim`).
    ///
    /// Errors: `Corrupt` when the space is taken or does not exist, and those of reading a gang's headers.
    pub fn claim(&self, txg: Txg, bp: &BlockPtr, then: UnitThen) {
        free::claim(&self.core, txg, bp, then);
    }

    /// Waits until the space of every block freed so far has reached the allocator.
    pub fn wait_frees(&self) {
        free::wait(&self.core);
    }

    /// Makes everything written so far durable on every leaf; `then` gets an error when a top-level vdev has more leaves
    /// that did not flush than it can lose.
    pub fn flush_all(&self, then: UnitThen) {
        let snapshot = self.core.snapshot();
        let leaves = snapshot.open_leaves();
        let ops = leaves.iter().map(|&leaf| LeafOp { leaf, offset: 0, op: DeviceOp::Flush }).collect();
        let options = BatchOptions { class: TaskClass::Interrupt, priority: Priority::SyncWrite, speculative: false };
        let (owner, view) = (self.core.clone(), snapshot.clone());
        batch::issue(&self.core, &snapshot, options, ops, move |results| {
            let failed = |result: &LeafResult| matches!(result, Err(error) if *error != DeviceError::Unsupported);
            let bad: BTreeSet<LeafId> =
                leaves.into_iter().zip(results).filter(|(_, result)| failed(result)).map(|(leaf, _)| leaf).collect();
            owner.unflushed.lock().extend(bad.iter().map(|&leaf| view.guid(leaf)));
            then(if view.is_lost_without(&bad) { Err(ZioError::new(ErrorKind::Io, Bookmark::default())) } else { Ok(()) });
        });
    }

    /// Leaves that failed to flush since the last call: what was written to them meanwhile may be lost.
    pub fn take_unflushed(&self) -> Vec<Guid> {
        std::mem::take(&mut *self.core.unflushed.lock()).into_iter().collect()
    }

    /// Makes everything written so far durable, and waits.
    pub fn flush_wait(&self) -> Result<(), ZioError> {
        let (done, wait) = completion();
        self.flush_all(Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }
}
