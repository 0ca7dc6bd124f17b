//! Sweeps over free space: initializing writes a pattern to it, trimming tells devices that it is free (OpenZFS:
//! `vdev_initialize.c`, `vdev_trim.c`).
//!
//! ```text
//!  start ─► active ──work: borrow what is free of a window, write or trim it, give it back──► complete
//!             │ ▲ suspend, start           cancel ─► canceled
//! ```
//! Who does what: requests change the state in memory, the sync writes it to the leaf's ZAP, and the loop of each top-level vdev
//! ([`Sweeps::run`]) does the work of all its leaves at once. It goes on after an export or a crash, here or in OpenZFS; a removal of the vdev ends it.
//!
//! # Invariants
//! 1. Only space is touched that is free on disk, was so two txgs ago, and is lent to the sweep ([`metaslab::Loan`]): nobody gets it
//!    meanwhile.
//! 2. The place on disk never claims what was not done.

mod auto;
pub(crate) mod sync;
mod work;

use crate::PoolError;
use crate::spa::Spa;
use crate::spa::props;
use crate::spa::services::Services;
use dmu::{Objset, TxgManager};
use exec::{Crew, Exec, Mutex, WaitQueue};
use ondisk::{Guid, ObjectId, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vdev::{Leaf, LeafId, LeafKind, TopVdev, VdevTree};
use zio::Zio;

/// Treatment of free space by a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SweepKind {
    /// Writes a pattern to free space.
    Initialize,
    /// Gives free space back to the device.
    Trim,
}

/// State of a sweep of a leaf (OpenZFS: `vdev_initializing_state_t`, `vdev_trim_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepState {
    /// Sweep runs, or goes on after the next import.
    Active,
    /// Sweep was ended.
    Canceled,
    /// Sweep was stopped, and goes on when it is asked for again.
    Suspended,
    /// Sweep saw everything.
    Complete,
}

impl SweepState {
    const ALL: [SweepState; 4] = [SweepState::Active, SweepState::Canceled, SweepState::Suspended, SweepState::Complete];

    fn number(self) -> u64 {
        1 + SweepState::ALL.iter().position(|state| *state == self).unwrap_or(0) as u64
    }
    fn from_number(number: u64) -> Option<SweepState> {
        SweepState::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }
}

/// Request for a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepAction {
    /// Begin, or go on.
    Start {
        /// Bytes per second at most, of each leaf; 0 for no limit. Of a trim.
        rate: u64,
        /// True when trimmed bytes must not be readable any more. Of a trim.
        secure: bool,
    },
    /// End the sweep.
    Cancel,
    /// Stop the sweep for a while.
    Suspend,
    /// Forget the sweep and its state.
    Forget,
}

/// The last or current sweep of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepStatus {
    /// Kind of the sweep.
    pub kind: SweepKind,
    /// Guid of the leaf.
    pub leaf: Guid,
    /// State of the sweep.
    pub state: SweepState,
    /// Seconds since the epoch of the last change of the state.
    pub action_time: u64,
    /// Bytes of the leaf that are done, about.
    pub bytes_done: u64,
    /// Bytes of the leaf that are free, about.
    pub bytes_estimated: u64,
    /// I/Os that failed since the import.
    pub errors: u64,
}

/// Knobs, by OpenZFS's names.
#[derive(Debug)]
pub struct SweepParameters {
    /// Word of 8 bytes that free space is filled with (`zfs_initialize_value`).
    pub initialize_value: AtomicU64,
    /// Bytes of a write (`zfs_initialize_chunk_size`).
    pub initialize_chunk: AtomicU64,
    /// Bytes of a trim at most (`zfs_trim_extent_bytes_max`).
    pub trim_max: AtomicU64,
    /// Bytes below which a free extent is not trimmed (`zfs_trim_extent_bytes_min`).
    pub trim_min: AtomicU64,
    /// Not 0 when trims that begin leave out metaslabs where nothing was ever allocated: they have no space map (`zfs_trim_metaslab_skip`).
    pub trim_metaslab_skip: AtomicU64,
    /// Number of txgs in which an automatic trim comes to each metaslab once (`zfs_trim_txg_batch`).
    pub trim_txg_batch: AtomicU64,
}

impl Default for SweepParameters {
    fn default() -> Self {
        SweepParameters {
            initialize_value: AtomicU64::new(0xdead_beef_dead_beee),
            initialize_chunk: AtomicU64::new(1 << 20),
            trim_max: AtomicU64::new(128 << 20),
            trim_min: AtomicU64::new(32 << 10),
            trim_metaslab_skip: AtomicU64::new(0),
            trim_txg_batch: AtomicU64::new(32),
        }
    }
}

/// One leaf's sweep.
#[derive(Clone, Debug, Default)]
struct LeafSweep {
    /// The leaf's ZAP, which stays its own when its guid becomes another one; 0 before it is known.
    zap: ObjectId,
    state: Option<SweepState>,
    /// Everything of the leaf's allocatable space before this is done.
    last_offset: u64,
    action_time: u64,
    rate: u64,
    secure: bool,
    /// True when metaslabs that were never used are left out, as the parameter was when the trim began; None after an import: as it is now.
    skips_unused: Option<bool>,
    errors: u64,
    /// The state on disk is another one.
    dirty: bool,
}

#[derive(Debug, Default)]
struct Shared {
    leaves: BTreeMap<(SweepKind, Guid), LeafSweep>,
    /// Loops that run.
    running: BTreeSet<(SweepKind, VdevId)>,
    /// The pool is being closed.
    halted: bool,
    /// Windows that may still be begun before the work pauses.
    budget: Option<usize>,
    /// Txgs that an automatic trim has not looked at yet.
    auto_txgs: BTreeSet<u64>,
}

/// See the module's header.
pub(crate) struct Sweeps {
    pub parameters: SweepParameters,
    mos: Arc<Objset>,
    services: Arc<Services>,
    zio: Zio,
    txgs: Arc<TxgManager>,
    shared: Mutex<Shared>,
    autotrim: AtomicBool,
    /// The thread of the automatic trim runs.
    auto_runs: AtomicBool,
    changed: WaitQueue,
    crew: Crew,
}

/// Opens the sweeps of a pool as its MOS tells.
pub(crate) fn open(spa: &Spa) -> Arc<Sweeps> {
    let zio = spa.zio().clone();
    let sweeps = Arc::new(Sweeps {
        parameters: SweepParameters::default(),
        mos: spa.mos.clone(),
        services: spa.services.clone(),
        txgs: spa.txgs.clone(),
        shared: Mutex::new(sync::load(&spa.mos, &zio.view().tree)),
        zio,
        autotrim: AtomicBool::new(false),
        auto_runs: AtomicBool::new(false),
        changed: WaitQueue::new(),
        crew: Crew::default(),
    });
    sweeps.set_autotrim(props::is_on(&spa.mos, "autotrim"));
    sweeps
}

impl Sweeps {
    fn exec(&self) -> &Exec {
        &self.services.exec
    }

    /// Changes the state of a leaf's sweep; the next sync writes it.
    pub fn act(&self, kind: SweepKind, guid: Guid, action: SweepAction) -> Result<(), PoolError> {
        let view = self.zio.view();
        let id = view.tree.leaf_by_guid(guid).ok_or(PoolError::NoSuchDevice)?;
        let leaf = view.tree.leaf(id);
        let device = view.devices.get(id.0 as usize).cloned().flatten();
        let Some(device) = device.filter(|_| leaf.state.is_usable() && leaf.kind != LeafKind::DraidSpare) else {
            return Err(PoolError::Target("invalid device"));
        };
        if matches!(action, SweepAction::Start { .. }) && view.tree.top(leaf.top).is_some_and(|top| top.is_leaving) {
            return Err(PoolError::Target("device removal is in progress"));
        }
        if matches!(action, SweepAction::Start { .. }) && view.tree.top(leaf.top).is_some_and(TopVdev::is_expanding) {
            return Err(PoolError::Expanding);
        }
        if let (SweepKind::Trim, SweepAction::Start { secure, .. }) = (kind, action) {
            // Holes in files read as zeros; of a disk nobody knows.
            let facts = device.facts();
            // No device is known to erase what is trimmed; a hole in a file leaves its bytes to the file system below.
            if !facts.can_trim || secure {
                return Err(PoolError::TrimUnsupported);
            }
        }
        let mut shared = self.shared.lock();
        let sweep = shared.leaves.entry((kind, guid)).or_default();
        sweep.zap = leaf.zap;
        let before = sweep.state;
        let next = next_state(kind, before, action)?;
        if before != Some(SweepState::Suspended) {
            sweep.action_time = self.exec().wall_clock().0 as u64;
        }
        if let SweepAction::Start { rate, secure } = action {
            if kind == SweepKind::Trim && matches!(before, Some(SweepState::Complete | SweepState::Canceled)) {
                (sweep.last_offset, sweep.rate, sweep.secure) = (0, 0, false);
            }
            sweep.rate = if rate > 0 { rate } else { sweep.rate };
            sweep.secure |= secure;
            sweep.skips_unused = Some(self.skips_unused(kind));
        }
        if next.is_none() {
            *sweep = LeafSweep { zap: leaf.zap, ..LeafSweep::default() };
        }
        (sweep.state, sweep.dirty) = (next, true);
        drop(shared);
        self.log(kind, leaf, before, next);
        self.changed.notify_all();
        Ok(())
    }

    /// True when sweeps that begin now leave out metaslabs where nothing was ever allocated.
    fn skips_unused(&self, kind: SweepKind) -> bool {
        kind == SweepKind::Trim && load(&self.parameters.trim_metaslab_skip) != 0
    }

    /// Has the work done on threads of its own, one a top-level vdev; under an inline executor [`Sweeps::run`] must be called.
    pub fn spawn(self: &Arc<Self>) {
        for (kind, vdev) in self.wanted() {
            let sweeps = self.clone();
            let name = if kind == SweepKind::Trim { "z-trim" } else { "z-initialize" };
            self.crew.start_if(self.exec(), name, || self.claim(kind, vdev), Box::new(move || sweeps.work(kind, vdev)));
        }
        self.spawn_auto();
    }

    /// Does the work on this thread; with `windows` at most so many of them.
    pub fn run(self: &Arc<Self>, windows: Option<usize>) {
        self.shared.lock().budget = windows;
        for (kind, vdev) in self.wanted() {
            if self.claim(kind, vdev) {
                self.work(kind, vdev);
            }
        }
        self.shared.lock().budget = None;
    }

    /// True when nobody sweeps the vdev; the caller does now.
    fn claim(&self, kind: SweepKind, vdev: VdevId) -> bool {
        let mut shared = self.shared.lock();
        !shared.halted && shared.running.insert((kind, vdev))
    }

    /// Top-level vdevs with leaves that are to be swept.
    fn wanted(&self) -> BTreeSet<(SweepKind, VdevId)> {
        let tree = self.zio.view().tree;
        let shared = self.shared.lock();
        let active = shared.leaves.iter().filter(|(_, sweep)| sweep.state == Some(SweepState::Active) && !shared.halted);
        let place = |kind: SweepKind, guid: Guid| Some((kind, tree.leaf(tree.leaf_by_guid(guid)?).top));
        active.filter_map(|((kind, guid), _)| place(*kind, *guid)).collect()
    }

    /// Waits until nothing is swept any more.
    pub fn wait(&self) {
        self.changed.wait_until(self.exec(), &|| {
            let shared = self.shared.lock();
            shared.halted || shared.running.is_empty()
        });
    }

    /// Ends the work, which goes on after the next import.
    pub fn halt(&self) {
        self.shared.lock().halted = true;
        self.changed.notify_all();
        self.crew.join();
    }

    /// Goes on after [`Sweeps::halt`].
    pub fn resume(self: &Arc<Self>) {
        self.shared.lock().halted = false;
        self.spawn();
    }

    /// The last or current sweep of every leaf that had one.
    pub fn status(&self) -> Vec<SweepStatus> {
        let tree = self.zio.view().tree;
        let leaves = self.shared.lock().leaves.clone();
        let status = |((kind, guid), sweep): (&(SweepKind, Guid), &LeafSweep)| {
            let (bytes_done, bytes_estimated) = self.progress(&tree, tree.leaf_by_guid(*guid)?, sweep.last_offset);
            Some(SweepStatus {
                kind: *kind,
                leaf: *guid,
                state: sweep.state?,
                action_time: sweep.action_time,
                bytes_done,
                bytes_estimated,
                errors: sweep.errors,
            })
        };
        leaves.iter().filter_map(status).collect()
    }

    /// Free bytes of a leaf before `last_offset`, and all of them (OpenZFS: `vdev_initialize_calculate_progress`).
    fn progress(&self, tree: &VdevTree, id: LeafId, last_offset: u64) -> (u64, u64) {
        let Some(top) = tree.top(tree.leaf(id).top) else { return (0, 0) };
        let (mut done, mut all) = (0, 0);
        for metaslab in 0..self.services.allocator.metaslab_count(top.id) {
            let free = self.services.allocator.free_bytes(top.id, metaslab) / top.disks().max(1) as u64;
            // A child of a dRAID vdev has no part in some of them.
            let Some(span) = span_of(top, id, top.metaslab_range(metaslab)) else { continue };
            all += free;
            let covered = last_offset.clamp(span.start, span.end) - span.start;
            done += (u128::from(free) * u128::from(covered) / u128::from((span.end - span.start).max(1))) as u64;
        }
        (done, all)
    }

    fn log(&self, kind: SweepKind, leaf: &Leaf, before: Option<SweepState>, next: Option<SweepState>) {
        let name = match (kind, next) {
            (SweepKind::Initialize, None) => "uninitialize",
            (SweepKind::Initialize, _) => "initialize",
            (SweepKind::Trim, _) => "trim",
        };
        let what = match next {
            Some(SweepState::Active) => " activated",
            Some(SweepState::Suspended) => " suspended",
            Some(SweepState::Canceled) if matches!(before, Some(SweepState::Active | SweepState::Suspended)) => " canceled",
            Some(SweepState::Canceled) => return,
            Some(SweepState::Complete) => " complete",
            None => "",
        };
        if kind == SweepKind::Trim {
            self.services.tell_leaf(trim_event(before, next), leaf);
        }
        self.services.log_now(name, &format!("vdev={}{what}", leaf.path), self.txgs.open_txg());
    }
}

/// Event to post when a trim changes its state; OpenZFS posts none of initializing.
fn trim_event(before: Option<SweepState>, next: Option<SweepState>) -> &'static str {
    match (before, next) {
        (Some(SweepState::Suspended), Some(SweepState::Active)) => "sysevent.fs.zfs.trim_resume",
        (_, Some(SweepState::Active)) => "sysevent.fs.zfs.trim_start",
        (_, Some(SweepState::Suspended)) => "sysevent.fs.zfs.trim_suspend",
        (_, Some(SweepState::Complete)) => "sysevent.fs.zfs.trim_finish",
        (_, Some(SweepState::Canceled) | None) => "sysevent.fs.zfs.trim_cancel",
    }
}

/// The state that an action leads to (OpenZFS: `spa_vdev_initialize_impl`, `spa_vdev_trim_impl`).
fn next_state(kind: SweepKind, before: Option<SweepState>, action: SweepAction) -> Result<Option<SweepState>, PoolError> {
    let (busy, idle) = match kind {
        SweepKind::Initialize => ("currently initializing", "there is no active initialization"),
        SweepKind::Trim => ("currently trimming", "there is no active trim"),
    };
    match (action, before) {
        (SweepAction::Start { .. } | SweepAction::Forget, Some(SweepState::Active)) => Err(PoolError::Target(busy)),
        (SweepAction::Start { .. }, _) => Ok(Some(SweepState::Active)),
        (SweepAction::Forget, _) => Ok(None),
        (SweepAction::Cancel, Some(SweepState::Active | SweepState::Suspended)) => Ok(Some(SweepState::Canceled)),
        (SweepAction::Suspend, Some(SweepState::Active)) => Ok(Some(SweepState::Suspended)),
        (SweepAction::Cancel | SweepAction::Suspend, _) => Err(PoolError::Target(idle)),
    }
}

/// The smallest range of a leaf that holds all of what `range` of its vdev lies on there.
fn span_of(top: &TopVdev, id: LeafId, range: Range<u64>) -> Option<Range<u64>> {
    let mut span: Option<Range<u64>> = None;
    top.each_extent(range, &mut |slot, extent| {
        if top.slots[slot].contains(&id) {
            let known = span.get_or_insert(extent.clone());
            *known = known.start.min(extent.start)..known.end.max(extent.end);
        }
    });
    span
}

fn load(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}
