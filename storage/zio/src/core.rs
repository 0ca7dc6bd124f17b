//! What all I/O of one pool shares: the view, the leaves, and the state of each part. Below everything that reads and writes blocks.

use crate::dedup::DedupTables;
use crate::direct::{DirectParameters, VerifyErrors};
use crate::error::{SUSPENDED_ACTION, ZioError};
use crate::events::{self, Check};
use crate::faults::BlockFaults;
use crate::feed::ResilverFeed;
use crate::ganging::ForcedGanging;
use crate::placing::Placing;
use crate::snapshot::Snapshot;
use crate::stages::Stages;
use crate::stats::ZioStats;
use crate::suspend::{Held, Hold, Resumes, Suspension};
use crate::view::{PoolView, ViewCell};
use device::DeviceError;
use exec::{Exec, Mutex, WaitQueue};
use kstat::{EventSink, IoStats};
use leaf::{FailedIo, LeafTiming, Leaves, Watcher, WrongBytes};
use ondisk::{BlockPtr, Bookmark, Guid, ObjsetId, Txg, VdevId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vdev::LeafId;

/// Frees of gang blocks whose headers are still being read.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    count: AtomicUsize,
    changed: WaitQueue,
}

impl PendingFrees {
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }
    pub(crate) fn end(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_all();
    }
    /// Waits until there is none.
    pub(crate) fn wait(&self, exec: &Exec) {
        self.changed.wait_until(exec, &|| self.count.load(Ordering::Acquire) == 0);
    }
}

/// Txgs and flushes that leaves lack, until somebody who writes them down asks.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    missing: Mutex<BTreeSet<(Guid, Txg)>>,
    unflushed: Mutex<BTreeSet<Guid>>,
}

impl Lacking {
    /// A leaf lacks what was born in `txg`.
    pub(crate) fn note(&self, leaf: Guid, txg: Txg) {
        self.missing.lock().insert((leaf, txg));
    }
    /// Leaves failed to flush.
    pub(crate) fn note_unflushed(&self, leaves: impl Iterator<Item = Guid>) {
        self.unflushed.lock().extend(leaves);
    }
    /// True when a leaf was noted to lack something since then.
    pub(crate) fn is_noted(&self, leaf: Guid) -> bool {
        self.missing.lock().iter().any(|(noted, _)| *noted == leaf) || self.unflushed.lock().contains(&leaf)
    }
    pub(crate) fn take(&self) -> Vec<(Guid, Txg)> {
        std::mem::take(&mut *self.missing.lock()).into_iter().collect()
    }
    pub(crate) fn take_unflushed(&self) -> Vec<Guid> {
        std::mem::take(&mut *self.unflushed.lock()).into_iter().collect()
    }
}

/// Ranges of vdevs that were removed, or are being removed, to which no block pointer leads any more, until somebody who writes them down asks.
#[derive(Debug, Default)]
pub(crate) struct Obsolete {
    ranges: Mutex<Vec<(VdevId, Range<u64>)>>,
    /// Bytes that were freed on the vdev that is being removed before they were copied.
    uncopied: AtomicU64,
}

impl Obsolete {
    /// Nothing leads to this range of a vdev any more.
    pub(crate) fn note(&self, vdev: VdevId, range: Range<u64>) {
        self.ranges.lock().push((vdev, range));
    }
    pub(crate) fn take(&self) -> Vec<(VdevId, Range<u64>)> {
        std::mem::take(&mut *self.ranges.lock())
    }
    /// Counts bytes that are not going to be copied.
    pub(crate) fn skip(&self, bytes: u64) {
        self.uncopied.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn take_uncopied(&self) -> u64 {
        self.uncopied.swap(0, Ordering::Relaxed)
    }
}

/// Most ranges that are kept apart.
const SHADOWED_MAX: usize = 1 << 16;

/// Ranges of a vdev that is being expanded of which something was written to more than one place, or is about to be, until the one who moves
/// sectors asks: he may have read what was there before.
#[derive(Debug, Default)]
pub(crate) struct Shadowed {
    ranges: Mutex<Vec<(VdevId, Range<u64>)>>,
}

impl Shadowed {
    /// Something of this range is about to be written.
    pub(crate) fn note(&self, vdev: VdevId, range: Range<u64>) {
        let mut ranges = self.ranges.lock();
        let ranges_are_many = ranges.len() >= SHADOWED_MAX;
        match ranges.last_mut() {
            // Neighbours are often written one after the other.
            Some((of, last)) if *of == vdev && last.end == range.start => last.end = range.end,
            // Whoever asks for them does not come: he has much to do when he does.
            Some((of, last)) if *of == vdev && ranges_are_many => *last = last.start.min(range.start)..last.end.max(range.end),
            _ => ranges.push((vdev, range)),
        }
    }
    pub(crate) fn take(&self) -> Vec<(VdevId, Range<u64>)> {
        std::mem::take(&mut *self.ranges.lock())
    }
}

/// The I/Os that began before some moment, by the views that they use, which were replaced. The sync does not wait for them, as one may be held back, or be
/// for the sync to go on: it looks, and looks again with the next txg.
#[derive(Debug)]
pub struct Earlier(Vec<Weak<Snapshot>>);

impl Earlier {
    /// True when all of them are done.
    pub fn are_done(&self) -> bool {
        self.0.iter().all(|view| view.strong_count() == 0)
    }
}

/// Everything shared by the I/Os of a pool.
pub(crate) struct Core {
    pub(crate) exec: Exec,
    pub(crate) leaves: Leaves,
    pub(crate) stats: ZioStats,
    pub(crate) iostats: Arc<IoStats>,
    pub(crate) suspension: Suspension,
    pub(crate) pending_frees: PendingFrees,
    pub(crate) lacking: Lacking,
    pub(crate) obsolete: Obsolete,
    pub(crate) shadowed: Shadowed,
    pub(crate) direct: DirectParameters,
    pub(crate) verify_errors: VerifyErrors,
    pub(crate) ganging: ForcedGanging,
    pub(crate) placing: Placing,
    pub(crate) faults: BlockFaults,
    pub(crate) stages: Stages,
    /// Resilver that is fed by degraded reads, once there is one.
    pub(crate) feed: OnceLock<Arc<dyn ResilverFeed>>,
    /// Tables of deduplication, once there is somebody who has them.
    pub(crate) dedup: OnceLock<Arc<dyn DedupTables>>,
    /// Names of object sets, once somebody knows them.
    pub(crate) names: OnceLock<ObjsetNames>,
    events: Arc<dyn EventSink>,
    cell: ViewCell<Snapshot>,
    /// Views that were replaced and that I/Os still use.
    retired: Mutex<Vec<Weak<Snapshot>>>,
}

/// The name of an object set's dataset, from memory: neither reads nor waits.
pub type ObjsetNames = Box<dyn Fn(ObjsetId) -> Option<String> + Send + Sync>;

impl Core {
    /// True when nothing may be written now: somebody said so, or the time has come when another host may have the pool.
    pub(crate) fn keeps_writes_back(&self) -> bool {
        self.suspension.is_fenced() || self.suspension.is_late(|| self.exec.now_ns())
    }

    /// Makes what the I/Os over the devices of `view` share; it tells `events` what goes wrong.
    pub(crate) fn new(exec: Exec, view: PoolView, events: Arc<dyn EventSink>) -> Arc<Core> {
        Arc::new_cyclic(|core: &Weak<Core>| {
            let leaves = Leaves::new(exec.clone(), core.clone());
            let cell = Snapshot::take(view, &leaves, |snapshot| ViewCell::new(&snapshot));
            Core {
                exec,
                leaves,
                stats: ZioStats::default(),
                iostats: Arc::default(),
                suspension: Suspension::default(),
                pending_frees: PendingFrees::default(),
                lacking: Lacking::default(),
                obsolete: Obsolete::default(),
                shadowed: Shadowed::default(),
                direct: DirectParameters::default(),
                verify_errors: VerifyErrors::default(),
                ganging: ForcedGanging::default(),
                placing: Placing::default(),
                faults: BlockFaults::default(),
                stages: Stages::default(),
                feed: OnceLock::new(),
                dedup: OnceLock::new(),
                names: OnceLock::new(),
                events,
                cell,
                retired: Mutex::default(),
            }
        })
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.cell.get()
    }

    /// Replaces the view; I/Os in flight finish with the one they began with.
    pub(crate) fn set_view(&self, view: PoolView) {
        Snapshot::take(view, &self.leaves, |snapshot| {
            let before = self.cell.set(&snapshot);
            let mut retired = self.retired.lock();
            retired.retain(|view| view.strong_count() > 0);
            retired.extend(before.into_iter().filter(|view| view.strong_count() > 0));
        });
    }

    /// The views that were replaced before this and that I/Os still use.
    pub(crate) fn earlier(&self) -> Earlier {
        Earlier(self.retired.lock().clone())
    }

    /// True when any simulated fault is about.
    pub(crate) fn has_faults(&self) -> bool {
        self.faults.is_set() || self.leaves.injection().is_set()
    }

    /// A leaf I/O failed for good: counts it and says so, unless that was told of late.
    pub(crate) fn leaf_failed(&self, snapshot: &Snapshot, leaf: LeafId, io: &FailedIo, error: DeviceError) {
        if self.leaves.failed(snapshot.stats(leaf), io, error) {
            self.events.event(events::leaf_io(snapshot, leaf, io));
        }
    }

    /// An I/O of a device beside the leaves failed: counts it and says so, unless that was told of late.
    pub(crate) fn beside_failed(&self, guid: Guid, io: &FailedIo, error: DeviceError) {
        if self.leaves.failed(&self.leaves.stats_of(guid), io, error) {
            self.events.event(events::beside_io(&self.snapshot(), guid, io));
        }
    }

    /// A leaf returned wrong bytes of a block: counts it and says so, unless that was told of late. It is `counted` against the device unless a scrub
    /// or a resilver found it.
    pub(crate) fn leaf_lied(&self, snapshot: &Snapshot, leaf: LeafId, (place, bookmark): (WrongBytes, &Bookmark), counted: bool) {
        if self.leaves.wrong_bytes(snapshot.stats(leaf), place, counted) {
            self.events.event(events::checksum(snapshot, leaf, bookmark));
        }
    }

    /// A block is lost, or its pointer was wrong.
    pub(crate) fn block_lost(&self, snapshot: &Snapshot, bookmark: &Bookmark, dva: ondisk::Dva) {
        self.events.event(events::data(snapshot, bookmark, dva));
    }

    /// No key authenticates a block, whose checksum is right.
    pub(crate) fn not_authentic(&self, bookmark: &Bookmark) {
        self.events.event(events::not_authentic(&self.snapshot(), bookmark));
    }

    /// Counts and reports that somebody changed the buffer of direct I/O underneath it.
    pub(crate) fn buffer_changed(&self, snapshot: &Snapshot, bp: &BlockPtr, bookmark: &Bookmark, check: Check) {
        let limit = self.direct.events_per_second.load(Ordering::Relaxed);
        for (dva, errors) in self.verify_errors.note(bp, bookmark, check, (self.exec.now_ns(), limit)) {
            self.events.event(events::dio_verify(snapshot, dva, bookmark, check, errors));
        }
    }

    /// Says that a device has had an I/O for too long, unless that was told often.
    pub(crate) fn tell_hung(&self, leaf: Guid, age_ns: u64) {
        if self.leaves.hangs(&self.leaves.stats_of(leaf)) {
            self.events.event(events::deadman(&self.snapshot(), leaf, age_ns));
        }
    }

    /// A leaf lacks what was born in `txg`.
    pub(crate) fn note_missing(&self, snapshot: &Snapshot, leaf: LeafId, txg: Txg) {
        self.lacking.note(snapshot.guid(leaf), txg);
    }

    /// Keeps the I/O, which failed with `why`, until the pool is resumed when its `failmode` says so, else gives it back; also when the pool was
    /// resumed `since` it began.
    pub(crate) fn hold(&self, snapshot: &Snapshot, held: Held, since: Resumes, why: Option<ZioError>) -> Hold {
        let hold = self.suspension.hold(snapshot.view.facts.fail_mode, held, since, why);
        if matches!(hold, Hold::Kept { is_first: true }) {
            self.tell_suspended(snapshot, why);
        }
        hold
    }

    /// Says that the pool is suspended: for which block of what, why, and what to do.
    fn tell_suspended(&self, snapshot: &Snapshot, why: Option<ZioError>) {
        let name = &snapshot.view.facts.name;
        let dataset = why.and_then(|error| self.names.get()?(error.bookmark.objset));
        let about = why.map_or_else(String::new, |error| format!(": {}", error.of(dataset.as_deref())));
        tracing::error!("pool '{name}' is suspended: I/O that it cannot do without failed{about}. {SUSPENDED_ACTION}");
        self.events.event(events::suspended(snapshot, why.as_ref(), dataset));
    }
}

impl Watcher for Core {
    fn slow(&self, leaf: Guid, io: &LeafTiming) {
        self.events.event(events::delay(&self.snapshot(), leaf, io));
    }

    /// Tells that a leaf hung, but nothing of a suspended pool.
    fn overlooked(&self, leaf: Guid, age_ns: u64) {
        if !self.suspension.is_on() {
            self.tell_hung(leaf, age_ns);
        }
    }
}
