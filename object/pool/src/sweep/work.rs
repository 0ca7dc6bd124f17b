//! The work of sweeps: window by window of a top-level vdev's space, the free part of it on all leaves that are swept at once.

use super::{LeafSweep, Shared, SweepKind, SweepState, Sweeps, load, span_of};
use crate::spa::mos_objects::space_map_objects;
use abd::Abd;
use device::DeviceOp;
use exec::TaskClass;
use kstat::{CountBytes, IoStats, TrimCounts};
use metaslab::Loan;
use ondisk::{Guid, ObjectId, VdevId};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::{LABEL_START_BYTES, LeafId, TopVdev, VdevTree};
use zio::{LeafRequest, Priority};

/// Bytes of each leaf that are borrowed at once.
const WINDOW_LEAF_BYTES: u64 = 8 << 20;
/// A window is this part of a metaslab at most, so that small pools keep room.
const WINDOW_SHARE: u64 = 4;
/// I/Os in flight per leaf (OpenZFS: `zfs_trim_queue_limit`; there 1 for initializing).
const IN_FLIGHT_MAX: usize = 4;
const RATE_STEP_NS: u64 = 10_000_000;
/// Number of txgs that freed space rests before it is trimmed (OpenZFS: `TXG_DEFER_SIZE`).
const REST_TXGS: u64 = 2;
const REST_STEP_NS: u64 = 5_000_000;

/// A leaf that is being swept.
#[derive(Clone, Copy, Debug)]
struct Member {
    id: LeafId,
    guid: Guid,
    last_offset: u64,
    rate: u64,
    /// Metaslabs where nothing was ever allocated are left out.
    skips_unused: bool,
}

/// Start and bytes of a loop's present pass, to keep within rates.
struct Pass {
    start_ns: u64,
    bytes: u64,
}

/// A piece of a leaf: a range of its allocatable space.
type Piece = (Guid, Range<u64>);

/// Counters that pieces of a trim go to.
type Counts = fn(&IoStats) -> &TrimCounts;

/// The windows of a metaslab.
fn windows(top: &TopVdev, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let unit = top.extent_unit() * if top.draid.is_some() { 1 } else { top.columns().max(1) as u64 };
    let most = (WINDOW_LEAF_BYTES * top.disks().max(1) as u64).min((range.end - range.start) / WINDOW_SHARE);
    let step = (most / unit).max(1) * unit;
    let count = (range.end - range.start).div_ceil(step);
    (0..count).map(move |index| range.start + index * step..(range.start + (index + 1) * step).min(range.end))
}

impl Sweeps {
    /// Sweeps the leaves of a vdev until none is to be swept any more.
    pub(super) fn work(self: &Arc<Self>, kind: SweepKind, vdev: VdevId) {
        if kind == SweepKind::Trim {
            self.let_frees_rest();
        }
        loop {
            let members = self.members(kind, vdev);
            if members.is_empty() || !self.pass(kind, vdev, members) {
                let mut shared = self.shared.lock();
                let more = !shared.halted && shared.budget != Some(0) && !self.members_of(&shared, kind, vdev).is_empty();
                if !more {
                    shared.running.remove(&(kind, vdev));
                    break;
                }
            }
        }
        self.changed.notify_all();
    }

    /// Waits until what was freed before is free: who removes files and trims then means those. Under an executor without threads nobody
    /// syncs meanwhile.
    fn let_frees_rest(&self) {
        let until = self.txgs.open_txg().0 + REST_TXGS;
        let may_wait = || !self.exec().is_inline() && !self.shared.lock().halted && !self.zio.is_suspended();
        while self.txgs.synced_txg().0 < until && may_wait() {
            self.txgs.kick();
            self.exec().sleep_ns(REST_STEP_NS);
        }
    }

    fn members(&self, kind: SweepKind, vdev: VdevId) -> Vec<Member> {
        self.members_of(&self.shared.lock(), kind, vdev)
    }

    fn members_of(&self, shared: &Shared, kind: SweepKind, vdev: VdevId) -> Vec<Member> {
        let view = self.zio.view();
        // Of one that is being expanded nobody knows where its free space is: they go on afterwards (OpenZFS: `vdev_trim_should_stop`).
        let Some(top) = view.tree.top(vdev).filter(|top| !top.is_expanding()) else { return Vec::new() };
        let member = |id: LeafId| {
            let leaf = view.tree.leaf(id);
            let sweep = shared.leaves.get(&(kind, leaf.guid)).filter(|sweep| sweep.state == Some(SweepState::Active))?;
            let is_there = leaf.state.is_usable() && view.devices.get(id.0 as usize).is_some_and(Option::is_some);
            let skips_unused = sweep.skips_unused.unwrap_or_else(|| self.skips_unused(kind));
            is_there.then_some(Member { id, guid: leaf.guid, last_offset: sweep.last_offset, rate: sweep.rate, skips_unused })
        };
        top.leaves().filter_map(member).collect()
    }

    /// Takes one step of the budget; false when the work is to stop.
    fn may_go_on(&self) -> bool {
        let mut shared = self.shared.lock();
        if shared.halted || shared.budget == Some(0) {
            return false;
        }
        if let Some(budget) = &mut shared.budget {
            *budget -= 1;
        }
        true
    }

    /// Sweeps the members once over all space; false when it was told to stop, or nobody was left.
    fn pass(self: &Arc<Self>, kind: SweepKind, vdev: VdevId, members: Vec<Member>) -> bool {
        let began: Vec<Guid> = members.iter().map(|member| member.guid).collect();
        let mut pass = Pass { start_ns: self.exec().now_ns(), bytes: 0 };
        for metaslab in 0..self.services.allocator.metaslab_count(vdev) {
            let tree = self.zio.view().tree;
            let Some(top) = tree.top(vdev) else { return false };
            let mut is_unused = None;
            for window in windows(top, top.metaslab_range(metaslab)) {
                // Those that came later wait for the next pass: they have not seen what is before.
                let mut now = self.members(kind, vdev);
                now.retain(|member| began.contains(&member.guid));
                if now.is_empty() {
                    return false;
                }
                let ends: Vec<(Member, u64)> = now
                    .into_iter()
                    .filter_map(|member| Some((member, span_of(top, member.id, window.clone())?.end)))
                    .filter(|(member, end)| member.last_offset < *end)
                    .collect();
                if ends.is_empty() {
                    continue;
                }
                if !self.may_go_on() {
                    return false;
                }
                let skips =
                    |(member, _): &(Member, u64)| member.skips_unused && *is_unused.get_or_insert_with(|| self.is_unused(top, metaslab));
                let (skipped, ends): (Vec<_>, Vec<_>) = ends.into_iter().partition(skips);
                self.note_done(kind, &skipped, &BTreeMap::new());
                if !ends.is_empty() {
                    self.window(kind, (&tree, top, metaslab), &window, &ends, &mut pass);
                }
            }
        }
        self.complete(kind, vdev, &began);
        true
    }

    /// True for a metaslab in which nothing was ever allocated. One of which nobody knows may be used.
    fn is_unused(&self, top: &TopVdev, metaslab: u32) -> bool {
        if top.ms_array.0 == 0 {
            return false;
        }
        let array = self.mos.hold(top.ms_array).ok();
        let maps = array.and_then(|array| space_map_objects(&array, metaslab..metaslab + 1).ok());
        maps.is_some_and(|maps| maps == [ObjectId(0)])
    }

    /// Does one window, and notes that it is done.
    fn window(
        self: &Arc<Self>,
        kind: SweepKind,
        (tree, top, metaslab): (&VdevTree, &TopVdev, u32),
        window: &Range<u64>,
        ends: &[(Member, u64)],
        pass: &mut Pass,
    ) {
        let loan = self.services.allocator.lend(top.id, metaslab, window, None);
        let from: BTreeMap<LeafId, u64> = ends.iter().map(|(member, _)| (member.id, member.last_offset)).collect();
        let pieces = pieces(tree, top, &loan, &|id| from.get(&id).copied());
        let counts = (kind == SweepKind::Trim).then_some((|stats| &stats.trim) as Counts);
        let failed = self.do_pieces(kind, counts, pieces, ends.len());
        drop(loan);
        if self.zio.view().tree.top(top.id).is_some_and(TopVdev::is_expanding) {
            // The pipeline left out what came too late.
            return;
        }
        self.note_done(kind, ends, &failed);
        let longest = ends.iter().map(|(member, end)| end.saturating_sub(member.last_offset)).max().unwrap_or(0);
        pass.bytes += longest.min(window.end - window.start);
        self.keep_rate(pass, ends.iter().map(|(member, _)| member.rate).filter(|rate| *rate > 0).min());
    }

    /// Notes how far each leaf's sweep has come, and how many of its I/Os failed.
    fn note_done(&self, kind: SweepKind, ends: &[(Member, u64)], failed: &BTreeMap<Guid, u64>) {
        let mut shared = self.shared.lock();
        for (member, end) in ends {
            let Some(sweep) = shared.leaves.get_mut(&(kind, member.guid)) else { continue };
            sweep.errors += failed.get(&member.guid).copied().unwrap_or(0);
            if sweep.state == Some(SweepState::Active) {
                (sweep.last_offset, sweep.dirty) = (*end, true);
            }
        }
    }

    /// Waits until no more was done than a rate allows.
    fn keep_rate(&self, pass: &Pass, rate: Option<u64>) {
        let Some(rate) = rate else { return };
        let is_too_fast = || {
            let elapsed_ms = self.exec().now_ns().saturating_sub(pass.start_ns) / 1_000_000;
            pass.bytes.saturating_mul(1000) / (elapsed_ms + 1) > rate
        };
        while is_too_fast() && !self.shared.lock().halted {
            self.exec().sleep_ns(RATE_STEP_NS);
        }
    }

    fn complete(&self, kind: SweepKind, vdev: VdevId, began: &[Guid]) {
        let tree = self.zio.view().tree;
        let now = self.exec().wall_clock().0 as u64;
        for member in self.members(kind, vdev).into_iter().filter(|member| began.contains(&member.guid)) {
            if let Some(sweep) = self.shared.lock().leaves.get_mut(&(kind, member.guid)) {
                *sweep = LeafSweep { state: Some(SweepState::Complete), action_time: now, dirty: true, ..sweep.clone() };
            }
            self.log(kind, tree.leaf(member.id), Some(SweepState::Active), Some(SweepState::Complete));
        }
        // The thread ends with it: its state is to be on disk soon.
        self.txgs.kick();
    }

    /// Trims what of `only` is free in a metaslab, on all leaves that can.
    pub(super) fn trim_released(self: &Arc<Self>, top: &TopVdev, metaslab: u32, only: &RangeTree) {
        let view = self.zio.view();
        let can_trim = |id: LeafId| {
            let device = view.devices.get(id.0 as usize).and_then(Option::as_ref);
            view.tree.leaf(id).state.is_usable() && device.is_some_and(|device| device.facts().can_trim)
        };
        for window in windows(top, top.metaslab_range(metaslab)) {
            let loan = self.services.allocator.lend(top.id, metaslab, &window, Some(only));
            let pieces = pieces(&view.tree, top, &loan, &|id| can_trim(id).then_some(0));
            self.do_pieces(SweepKind::Trim, Some(|stats| &stats.autotrim), pieces, top.columns());
        }
    }

    /// Does the I/Os for pieces of leaves, several at a time, and waits for them; how many failed, by leaf.
    fn do_pieces(self: &Arc<Self>, kind: SweepKind, counts: Option<Counts>, pieces: Vec<Piece>, leaves: usize) -> BTreeMap<Guid, u64> {
        let (in_flight, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(exec::Mutex::new(BTreeMap::new())));
        let (least, most) = match kind {
            SweepKind::Initialize => {
                let sector = 1 << self.zio.view().tree.max_ashift();
                (0, load(&self.parameters.initialize_chunk).max(1).next_multiple_of(sector))
            }
            SweepKind::Trim => (load(&self.parameters.trim_min), load(&self.parameters.trim_max).max(4096)),
        };
        let pattern = if kind == SweepKind::Initialize { self.pattern(most as usize) } else { Abd::default() };
        let room = leaves.max(1) * IN_FLIGHT_MAX;
        for (leaf, piece) in pieces {
            if piece.end - piece.start < least {
                self.count(counts, |trims| &trims.skipped, piece.end - piece.start);
                continue;
            }
            for start in (piece.start..piece.end).step_by(most as usize) {
                let length = most.min(piece.end - start);
                let op = match kind {
                    SweepKind::Initialize => DeviceOp::Write(pattern.slice(0..length as usize)),
                    SweepKind::Trim => DeviceOp::Trim { length_bytes: length },
                };
                let priority = if kind == SweepKind::Initialize { Priority::Initializing } else { Priority::Trim };
                let request = LeafRequest { leaf, offset: start + LABEL_START_BYTES, op, priority, speculative: false };
                self.changed.wait_until(self.exec(), &|| in_flight.load(Ordering::Acquire) < room);
                in_flight.fetch_add(1, Ordering::AcqRel);
                let (sweeps, in_flight, failed) = (self.clone(), in_flight.clone(), failed.clone());
                let job = move || {
                    let owner = sweeps.clone();
                    let done = move |result: Result<Abd, device::DeviceError>| {
                        owner.count(counts, |trims| if result.is_ok() { &trims.written } else { &trims.failed }, length);
                        if result.is_err() {
                            *failed.lock().entry(leaf).or_insert(0) += 1;
                        }
                        in_flight.fetch_sub(1, Ordering::AcqRel);
                        owner.changed.notify_all();
                    };
                    sweeps.zio.leaf_io(request, Box::new(done));
                };
                self.exec().spawn(TaskClass::Background, Box::new(job));
            }
        }
        self.changed.wait_until(self.exec(), &|| in_flight.load(Ordering::Acquire) == 0);
        std::mem::take(&mut *failed.lock())
    }

    /// Counts a piece of `bytes` in the pool's `iostats`, when it is a trim's.
    fn count(&self, counts: Option<Counts>, outcome: impl FnOnce(&TrimCounts) -> &CountBytes, bytes: u64) {
        if let Some(counts) = counts {
            outcome(counts(self.zio.iostats())).add(1, bytes);
        }
    }

    fn pattern(&self, length: usize) -> Abd {
        let word = load(&self.parameters.initialize_value).to_le_bytes();
        let bytes: Vec<u8> = word.iter().copied().cycle().take(length).collect();
        Abd::from_slice(&bytes)
    }
}

/// Pieces of the free segments of a loan on leaves for which `from` says where to begin, in bytes.
fn pieces(tree: &VdevTree, top: &TopVdev, loan: &Loan, from: &dyn Fn(LeafId) -> Option<u64>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for segment in loan.segments() {
        top.each_extent(segment.clone(), &mut |slot, extent| {
            for &id in &top.slots[slot] {
                if let Some(from) = from(id).filter(|from| *from < extent.end) {
                    pieces.push((tree.leaf(id).guid, extent.start.max(from)..extent.end));
                }
            }
        });
    }
    pieces
}
