//! One metaslab: its free segments and what each txg in flight did to it.

use crate::{BROKEN_ACTION, TXG_DEFER, TXG_SLOTS, fragmentation};
use exec::Mutex;
use ondisk::{Txg, VdevId};
use range_tree::RangeTree;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vdev::{DraidLayout, TopKind, TopVdev};

/// Below this share of free space the smallest segment that fits is taken, as in OpenZFS (`metaslab_df_free_pct`).
const BEST_FIT_PERCENT: u64 = 4;

/// Bytes that are allocated in one lane before the next one has its turn.
const TURN_BYTES: u64 = 1 << 20;

/// Regions of a vdev that lie on different children, taken in turns (dRAID's groups): one after the other they would keep the
/// children of one group busy, and the others idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Bytes of a region.
    pub(crate) region: u64,
    /// Region n belongs to lane n modulo this.
    pub(crate) count: u64,
}

impl Lanes {
    /// Lanes of a metaslab of a vdev; None of a vdev without regions.
    pub(crate) fn of(top: &TopVdev, range: &Range<u64>) -> Option<Lanes> {
        let TopKind::Draid(config) = top.kind else { return None };
        let region = config.group_bytes();
        let touched = range.end.div_ceil(region).saturating_sub(range.start / region);
        Some(Lanes { region, count: touched.clamp(1, config.groups() as u64) })
    }

    /// Offset in bytes at which the next region of `lane` begins behind `offset`.
    fn next(self, lane: u64, offset: u64) -> u64 {
        let region = offset / self.region + 1;
        (region + (lane + self.count - region % self.count) % self.count) * self.region
    }

    /// True when the bytes lie in one region, of this lane.
    fn holds(self, lane: u64, offset: u64, asize: u64) -> bool {
        let region = offset / self.region;
        region % self.count == lane && (offset + asize - 1) / self.region == region
    }
}

/// Bytes that a child may have been given less than another one and still get them before the others get more.
const ARREARS_BYTES_MAX: u64 = 8 << 20;

/// Weights of children that write alike, and of children that read alike: reading does without parity, and has time to spare.
const WEIGHT: [u64; 2] = [2, 1];

/// Bytes that each child of a dRAID was given, by all shards together. Every group lies on other children, so that turns alone do not keep
/// them busy alike: what several shards write at the same time may lie on the same ones.
#[derive(Debug)]
pub(crate) struct Balance {
    layout: Arc<DraidLayout>,
    /// Bytes given to each child: of all columns, which are written, and of data columns, which will be read.
    given: Vec<[AtomicU64; 2]>,
}

/// The most that any child was given of all columns, and of data.
type Most = [u64; 2];

impl Balance {
    /// Balance of a vdev; None without groups.
    pub(crate) fn of(top: &TopVdev) -> Option<Balance> {
        let layout = top.draid.clone()?;
        Some(Balance { given: (0..layout.config.children()).map(|_| Default::default()).collect(), layout })
    }

    /// As [`Balance::behind`], now.
    pub(crate) fn behind_now(&self) -> Behind {
        self.behind(self.most())
    }

    fn most(&self) -> Most {
        [0, 1].map(|kind| self.given.iter().map(|given| given[kind].load(Ordering::Relaxed)).max().unwrap_or(0))
    }

    /// The counters of the children of the group at `offset`: of all columns, then of data.
    fn counters(&self, offset: u64) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let parity = self.layout.config.parity();
        let columns = move |kind: usize| self.layout.group_children(offset).skip(kind * parity).map(move |child| (kind, child));
        columns(0).chain(columns(1)).filter_map(|(kind, child)| Some((kind, self.given.get(child)?.get(kind)?)))
    }

    /// Bytes that each child is to be given before others, where those that got the most have `most`: of all columns, of data, weighted.
    fn behind(&self, most: Most) -> Behind {
        let each = |given: &[AtomicU64; 2]| {
            [0, 1].map(|kind| most[kind].saturating_sub(given[kind].load(Ordering::Relaxed)).min(ARREARS_BYTES_MAX) * WEIGHT[kind])
        };
        Behind(self.given.iter().map(each).collect())
    }

    /// Weighted bytes that the children of the group at `offset` are to be given before others, together.
    fn arrears(&self, offset: u64, behind: &Behind) -> u64 {
        let parity = self.layout.config.parity();
        let columns = self.layout.group_children(offset).enumerate();
        columns.filter_map(|(column, child)| behind.0.get(child).map(|[all, data]| if column < parity { *all } else { all + data })).sum()
    }

    /// The most that a child is to be given before others which is not in the group at `offset`.
    fn left_out(&self, offset: u64, behind: &Behind) -> u64 {
        let inside: Vec<usize> = self.layout.group_children(offset).collect();
        let outside = behind.0.iter().enumerate().filter(|(child, _)| !inside.contains(child));
        outside.map(|(_, [all, _])| all / WEIGHT[0]).max().unwrap_or(0)
    }

    /// The children of the group at `offset` are given `asize` bytes together.
    fn give(&self, offset: u64, asize: u64, most: Most) {
        let share = asize / self.layout.config.width() as u64;
        for (kind, given) in self.counters(offset) {
            given.fetch_max(most[kind].saturating_sub(ARREARS_BYTES_MAX), Ordering::Relaxed);
            given.fetch_add(share, Ordering::Relaxed);
        }
    }
}

/// Weighted bytes that each child of a dRAID is to be given before others.
#[derive(Debug)]
pub(crate) struct Behind(Vec<Most>);

/// A metaslab's next turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Weighted bytes that its children are to be given before others, together.
    pub(crate) arrears: u64,
    /// The most of any child that it leaves out.
    pub(crate) left_out: u64,
}

/// Offsets at which the searches in the lanes begin, and the lane whose turn it is.
#[derive(Debug, Default)]
struct Turn {
    cursors: Vec<u64>,
    lane: u64,
    /// Bytes that it may still allocate.
    left: u64,
}

impl Turn {
    /// The first free space in a lane behind its cursor, else before it.
    fn search(&self, lanes: Lanes, lane: u64, free: &RangeTree, range: &Range<u64>, asize: u64) -> Option<u64> {
        let cursor = self.cursors.get(lane as usize).copied().unwrap_or(range.start);
        let ahead = fit(lanes, lane, free, cursor, asize);
        ahead.or_else(|| fit(lanes, lane, free, range.start, asize))
    }

    /// The lane whose children have the least to do: their arrears, the lane, the free space.
    fn best(
        &self,
        lanes: Lanes,
        (balance, behind): (&Balance, &Behind),
        free: &RangeTree,
        range: &Range<u64>,
        asize: u64,
    ) -> Option<(u64, u64, u64)> {
        let places = (0..lanes.count).filter_map(|lane| Some((lane, self.search(lanes, lane, free, range, asize)?)));
        // Of equals the first.
        let arrears = places.rev().map(|(lane, offset)| (balance.arrears(offset, behind), lane, offset));
        arrears.max_by_key(|(arrears, ..)| *arrears)
    }

    /// Has the searches in the lanes that `segment` touches begin behind it.
    fn go_on_behind(&mut self, lanes: Lanes, segment: &Range<u64>, first: u64) {
        self.cursors.resize(lanes.count as usize, first);
        for region in segment.start / lanes.region..segment.end.div_ceil(lanes.region) {
            self.cursors[(region % lanes.count) as usize] = segment.end.min((region + 1) * lanes.region);
        }
    }

    /// Free space in the lane whose turn it is, or in the one whose children have the least to do.
    fn find(&mut self, lanes: Lanes, balance: &Balance, free: &RangeTree, range: &Range<u64>, asize: u64) -> Option<u64> {
        self.cursors.resize(lanes.count as usize, range.start);
        let same = if self.left > 0 { self.search(lanes, self.lane, free, range, asize).map(|offset| (self.lane, offset)) } else { None };
        let found = same.or_else(|| {
            let most = balance.most();
            let (_, lane, offset) = self.best(lanes, (balance, &balance.behind(most)), free, range, asize)?;
            self.left = TURN_BYTES;
            balance.give(offset, TURN_BYTES.max(asize), most);
            Some((lane, offset))
        });
        let Some((lane, offset)) = found else {
            // What no region has in one piece may lie over the end of one.
            return free.first_fit_from(range.start, asize, 1);
        };
        self.cursors[lane as usize] = offset + asize;
        (self.lane, self.left) = (lane, self.left.saturating_sub(asize));
        Some(offset)
    }
}

/// The first free space in a lane from `at` on that does not leave its region.
fn fit(lanes: Lanes, lane: u64, free: &RangeTree, mut at: u64, asize: u64) -> Option<u64> {
    loop {
        let offset = free.first_fit_from(at, asize, 1)?;
        if lanes.holds(lane, offset, asize) {
            return Some(offset);
        }
        at = lanes.next(lane, offset);
    }
}

/// A metaslab with its sets of segments.
#[derive(Debug)]
pub(crate) struct Metaslab {
    /// Vdev of the metaslab, and its number there.
    pub(crate) place: (VdevId, u32),
    /// Part of the vdev that the metaslab is, in bytes.
    pub(crate) range: Range<u64>,
    /// Length in bytes that no free segment exceeds; 0 while not loaded.
    pub(crate) largest: AtomicU64,
    /// Free bytes, as of the last change.
    pub(crate) free_bytes: AtomicU64,
    /// Number of shards that allocate from it now.
    pub(crate) owners: AtomicU32,
    /// Fragmentation in percent, as of the last histogram that its space map got; 0 before it has one.
    fragmentation: AtomicU64,
    lanes: Option<(Lanes, Arc<Balance>)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    loaded: bool,
    /// Reason why nothing is handed out any more: the sets contradict each other, or nobody knows them.
    broken: Option<String>,
    /// True when nobody knows what is free on disk: all of it counts as allocated, and stays so when it is freed.
    is_unknown: bool,
    /// Bytes that are free on disk, where that is told and not which they are; `is_unknown` then, too.
    told_free: Option<u64>,
    /// Segments that may be handed out.
    free: RangeTree,
    /// Allocated in the txg of the slot and not yet taken.
    allocating: [RangeTree; TXG_SLOTS],
    /// Freed in the txg of the slot and not yet taken.
    freeing: [RangeTree; TXG_SLOTS],
    /// Freed in the txg of the slot and taken: free on disk once that txg is synced.
    freed: [RangeTree; TXG_SLOTS],
    /// Allocated in the txg of the slot and taken: on disk once that txg is synced.
    unsynced: [RangeTree; TXG_SLOTS],
    /// Free on disk, at rest.
    defer: [RangeTree; TXG_DEFER],
    /// Number of those who hold back what was freed.
    holds: u32,
    /// Free on disk and rested, held back.
    held: RangeTree,
    /// Free, and lent to somebody who writes to it.
    lent: RangeTree,
    /// Became free since the last call of [`Metaslab::take_released`]; None while nobody wants to know.
    released: Option<RangeTree>,
    /// Offset in bytes at which the next search begins.
    cursor: u64,
    /// Offsets at which the next searches begin, with lanes.
    turn: Turn,
}

/// Bytes that changed by the end of a txg's sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Bytes that became reusable.
    pub(crate) released: u64,
    /// Bytes that began their rest.
    pub(crate) deferred: u64,
}

impl State {
    /// Sets of segments that a space map that holds everything taken so far does not say are allocated.
    fn not_allocated(&self) -> impl Iterator<Item = &RangeTree> {
        let idle = [&self.free, &self.held, &self.lent];
        idle.into_iter().chain(&self.allocating).chain(&self.freed).chain(&self.defer)
    }

    /// True when some of a segment is free, or was freed.
    fn is_freed(&self, offset: u64, asize: u64) -> bool {
        let freed = self.defer.iter().chain(&self.freed).chain(&self.freeing);
        freed.chain([&self.free, &self.held, &self.lent]).any(|tree| tree.overlaps(offset, asize))
    }
}

fn slot(txg: Txg) -> usize {
    (txg.0 as usize) % TXG_SLOTS
}

/// `total` counts of the set in both directions are kept by the tree itself.
fn ranges(tree: &mut RangeTree) -> Vec<Range<u64>> {
    let taken = std::mem::take(tree);
    taken.iter().collect()
}

impl Metaslab {
    pub(crate) fn new(place: (VdevId, u32), range: Range<u64>, lanes: Option<(Lanes, Arc<Balance>)>) -> Metaslab {
        let cursor = range.start;
        Metaslab {
            place,
            range,
            largest: AtomicU64::new(0),
            free_bytes: AtomicU64::new(0),
            owners: AtomicU32::new(0),
            fragmentation: AtomicU64::new(0),
            lanes,
            state: Mutex::new(State { cursor, ..State::default() }),
        }
    }

    /// A shard allocates from it.
    pub(crate) fn join(&self) {
        self.owners.fetch_add(1, Ordering::Relaxed);
    }

    /// A shard goes on elsewhere.
    pub(crate) fn leave(&self) {
        self.owners.fetch_sub(1, Ordering::Relaxed);
    }

    fn publish(&self, state: &State) {
        let largest = if state.broken.is_some() { 0 } else { state.free.largest() };
        self.largest.store(largest, Ordering::Relaxed);
        self.free_bytes.store(state.told_free.unwrap_or(state.free.total()), Ordering::Relaxed);
    }

    /// Checks what must hold. Where it does not, somebody's block may be handed out again: from then on nothing is (OpenZFS: `VERIFY` in
    /// `range_tree_add_impl` and `range_tree_remove_impl`, which stop the machine). Gives `holds`.
    fn insist(&self, state: &mut State, holds: bool, otherwise: &'static str) -> bool {
        if !holds && state.broken.is_none() {
            self.stop(state, otherwise.to_string());
        }
        holds
    }

    /// Has nothing allocated any more, and says why.
    fn stop(&self, state: &mut State, why: String) {
        let (Range { start, end }, (vdev, metaslab)) = (&self.range, self.place);
        tracing::error!(
            "vdev {vdev}, metaslab {metaslab} ({start:#x}..{end:#x}): {why}: nothing is allocated there any more. {BROKEN_ACTION}"
        );
        state.broken = Some(why);
        self.publish(state);
    }

    /// Takes all of it for allocated, because nobody knows what is free, and says why. Gives the bytes that count as allocated by it; None
    /// when it is loaded.
    pub(crate) fn distrust(&self, why: String) -> Option<u64> {
        let mut state = self.state.lock();
        if state.loaded {
            return None;
        }
        (state.loaded, state.is_unknown) = (true, true);
        self.stop(&mut state, why);
        Some(self.range.end - self.range.start)
    }

    /// Takes over how many bytes are allocated, and not which: nothing is handed out. Gives them; None when there are not so many, or it is loaded.
    pub(crate) fn tell(&self, allocated: u64) -> Option<u64> {
        let free = (self.range.end - self.range.start).checked_sub(allocated)?;
        let mut state = self.state.lock();
        if state.loaded {
            return None;
        }
        (state.loaded, state.is_unknown, state.told_free) = (true, true, Some(free));
        self.publish(&state);
        Some(allocated)
    }

    /// Reason why nothing is allocated here any more, if that is so.
    pub(crate) fn broken(&self) -> Option<String> {
        self.state.lock().broken.clone()
    }

    /// True when nobody knows what is free on disk.
    pub(crate) fn is_unknown(&self) -> bool {
        self.state.lock().is_unknown
    }

    /// Starts from `allocated`; false when a segment is outside or twice in it. Returns the allocated bytes.
    pub(crate) fn load(&self, allocated: &[Range<u64>]) -> Option<u64> {
        let mut free = RangeTree::new();
        free.add(self.range.start, self.range.end - self.range.start).ok()?;
        for segment in allocated {
            free.remove(segment.start, segment.end.checked_sub(segment.start)?).ok()?;
        }
        let mut state = self.state.lock();
        if state.loaded {
            return None;
        }
        state.loaded = true;
        let total = free.total();
        state.free = free;
        self.publish(&state);
        Some(self.range.end - self.range.start - total)
    }

    /// Has the searches begin behind what was allocated last: the segments of `trail` are in the order in which that was done.
    pub(crate) fn go_on_behind(&self, trail: impl IntoIterator<Item = Range<u64>>) {
        let mut state = self.state.lock();
        let is_here = |segment: &Range<u64>| segment.start >= self.range.start && segment.end <= self.range.end;
        for segment in trail.into_iter().filter(is_here) {
            if let Some((lanes, _)) = &self.lanes {
                state.turn.go_on_behind(*lanes, &segment, self.range.start);
            }
            state.cursor = segment.end;
        }
    }

    /// Allocates `asize` bytes; the second value is true when the metaslab must be put on the txg's dirty list.
    pub(crate) fn alloc(&self, asize: u64, txg: Txg) -> Option<(u64, bool)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let found = if state.broken.is_some() {
            None
        } else if self.is_scarce(state) {
            state.free.best_fit(asize)
        } else if let Some((lanes, balance)) = &self.lanes {
            state.turn.find(*lanes, balance, &state.free, &self.range, asize)
        } else {
            let ahead = state.free.first_fit_from(state.cursor, asize, 1);
            ahead.or_else(|| state.free.first_fit_from(self.range.start, asize, 1))
        };
        let Some(offset) = found else {
            self.publish(state);
            return None;
        };
        let clean = state.allocating[slot(txg)].is_empty() && state.freeing[slot(txg)].is_empty();
        let is_ours = state.free.remove(offset, asize).is_ok() && state.allocating[slot(txg)].add(offset, asize).is_ok();
        if !self.insist(state, is_ours, "what was found free is allocated") {
            return None;
        }
        state.cursor = offset + asize;
        self.free_bytes.store(state.free.total(), Ordering::Relaxed);
        Some((offset, clean))
    }

    /// Gain of the next turn of this metaslab for the balance of the children; None when no lane has so many bytes.
    pub(crate) fn offer(&self, asize: u64, behind: &Behind) -> Option<Offer> {
        let (lanes, balance) = self.lanes.as_ref()?;
        let state = self.state.lock();
        if self.is_scarce(&state) {
            return None;
        }
        let (arrears, _, offset) = state.turn.best(*lanes, (balance, behind), &state.free, &self.range, asize)?;
        Some(Offer { arrears, left_out: balance.left_out(offset, behind) })
    }

    fn is_scarce(&self, state: &State) -> bool {
        state.free.total() < (self.range.end - self.range.start) / 100 * BEST_FIT_PERCENT
    }

    /// Takes a given segment; None when it is not free (OpenZFS: `metaslab_claim_concrete`).
    pub(crate) fn claim(&self, offset: u64, asize: u64, txg: Txg) -> Option<bool> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.free.remove(offset, asize).ok()?;
        let clean = state.allocating[slot(txg)].is_empty() && state.freeing[slot(txg)].is_empty();
        let is_ours = state.allocating[slot(txg)].add(offset, asize).is_ok();
        if !self.insist(state, is_ours, "what is claimed was free, and allocated") {
            return None;
        }
        self.free_bytes.store(state.free.total(), Ordering::Relaxed);
        Some(clean)
    }

    /// Undoes an allocation that was not yet taken; false when there is none.
    pub(crate) fn unalloc(&self, offset: u64, asize: u64, txg: Txg) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.allocating[slot(txg)].remove(offset, asize).is_err() {
            return false;
        }
        let was_taken = state.free.add(offset, asize).is_ok();
        if self.insist(state, was_taken, "what is given back was free") && state.broken.is_none() {
            self.largest.fetch_max(asize, Ordering::Relaxed);
        }
        self.free_bytes.store(state.free.total(), Ordering::Relaxed);
        true
    }

    /// Undoes an allocation that was not yet taken, and lends its space: nobody gets it until [`Metaslab::give_back`]. False when there is none.
    pub(crate) fn unalloc_lent(&self, offset: u64, asize: u64, txg: Txg) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.allocating[slot(txg)].remove(offset, asize).is_err() {
            return false;
        }
        let is_new = state.lent.add(offset, asize).is_ok();
        self.insist(state, is_new, "what is given back was lent")
    }

    /// Frees a segment in `txg`; where nobody knows what is free, it stays allocated. None when it is free already or outside; else whether the metaslab must be put on the
    /// txg's dirty list.
    pub(crate) fn free(&self, offset: u64, asize: u64, txg: Txg) -> Option<bool> {
        let end = offset.checked_add(asize)?;
        if offset < self.range.start || end > self.range.end {
            return None;
        }
        let mut state = self.state.lock();
        if state.is_unknown {
            return Some(false);
        }
        if state.is_freed(offset, asize) {
            return None;
        }
        let clean = state.allocating[slot(txg)].is_empty() && state.freeing[slot(txg)].is_empty();
        state.freeing[slot(txg)].add(offset, asize).ok()?;
        Some(clean)
    }

    /// Looks at a segment that is to be freed and stays allocated; None when it is free already or outside, false where nobody knows what is free.
    pub(crate) fn is_allocated(&self, offset: u64, asize: u64) -> Option<bool> {
        let end = offset.checked_add(asize)?;
        if offset < self.range.start || end > self.range.end {
            return None;
        }
        let state = self.state.lock();
        match state.is_unknown {
            true => Some(false),
            false => (!state.is_freed(offset, asize)).then_some(true),
        }
    }

    /// Allocations and frees of `txg` that were not yet taken.
    pub(crate) fn take(&self, txg: Txg) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let allocs = ranges(&mut state.allocating[slot(txg)]);
        let frees = ranges(&mut state.freeing[slot(txg)]);
        for segment in &frees {
            let is_new = state.freed[slot(txg)].add(segment.start, segment.end - segment.start).is_ok();
            self.insist(state, is_new, "a segment was freed twice in one txg");
        }
        for segment in &allocs {
            let is_new = state.unsynced[slot(txg)].add(segment.start, segment.end - segment.start).is_ok();
            self.insist(state, is_new, "a segment was allocated twice in one txg");
        }
        (allocs, frees)
    }

    /// Ends the sync of `txg` (OpenZFS: `metaslab_sync_done`).
    pub(crate) fn sync_done(&self, txg: Txg) -> Rest {
        let mut state = self.state.lock();
        let state = &mut *state;
        let place = (txg.0 as usize) % TXG_DEFER;
        let freed = std::mem::take(&mut state.freed[slot(txg)]);
        state.unsynced[slot(txg)].clear();
        let released = std::mem::replace(&mut state.defer[place], freed);
        let deferred = state.defer[place].total();
        if state.holds > 0 {
            for segment in released.iter() {
                let is_new = state.held.add(segment.start, segment.end - segment.start).is_ok();
                self.insist(state, is_new, "what was freed is held back already");
            }
            return Rest { released: 0, deferred };
        }
        self.give(state, &released);
        Rest { released: released.total(), deferred }
    }

    /// Segments may be handed out again.
    fn give(&self, state: &mut State, segments: &RangeTree) {
        if segments.is_empty() {
            return;
        }
        for segment in segments.iter() {
            let was_taken = state.free.add(segment.start, segment.end - segment.start).is_ok();
            self.insist(state, was_taken, "what was freed is free already");
            if let Some(released) = &mut state.released {
                released.cover(segment);
            }
        }
        self.publish(state);
    }

    /// Holds back what is freed from now on, and tells what is allocated on disk: the segments that no block will be written to
    /// before [`Metaslab::release`].
    pub(crate) fn hold(&self) -> Vec<Range<u64>> {
        let mut state = self.state.lock();
        state.holds += 1;
        self.without(state.not_allocated().chain(&state.unsynced))
    }

    /// Ends one [`Metaslab::hold`]; the bytes that became reusable with the last one.
    pub(crate) fn release(&self) -> u64 {
        let mut state = self.state.lock();
        state.holds = state.holds.saturating_sub(1);
        if state.holds > 0 {
            return 0;
        }
        let held = std::mem::take(&mut state.held);
        self.give(&mut state, &held);
        held.total()
    }

    /// Lends what is free of `window`: nobody gets it until [`Metaslab::give_back`]. With `only` just what is in there too.
    pub(crate) fn lend(&self, window: &Range<u64>, only: Option<&RangeTree>) -> Vec<Range<u64>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.broken.is_some() {
            return Vec::new();
        }
        let parts = |set: &RangeTree, window: Range<u64>| {
            let (mut parts, mut at) = (Vec::new(), window.start);
            while let Some(part) = set.first_overlap(at..window.end) {
                at = part.end;
                parts.push(part);
            }
            parts
        };
        let mut found = parts(&state.free, window.clone());
        if let Some(only) = only {
            found = found.into_iter().flat_map(|part| parts(only, part)).collect();
        }
        for segment in &found {
            let length = segment.end - segment.start;
            let is_ours = state.free.remove(segment.start, length).is_ok() && state.lent.add(segment.start, length).is_ok();
            self.insist(state, is_ours, "what is lent was not free");
        }
        if !found.is_empty() {
            self.publish(state);
        }
        found
    }

    /// Takes back what was lent.
    pub(crate) fn give_back(&self, segments: &[Range<u64>]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for segment in segments {
            let length = segment.end - segment.start;
            if state.lent.remove(segment.start, length).is_ok() {
                let was_taken = state.free.add(segment.start, length).is_ok();
                self.insist(state, was_taken, "what was lent is free already");
            }
        }
        self.publish(state);
    }

    /// Notes from now on, or no longer, what becomes free.
    pub(crate) fn note_released(&self, wanted: bool) {
        let mut state = self.state.lock();
        if wanted != state.released.is_some() {
            state.released = wanted.then(RangeTree::new);
        }
    }

    /// Segments that became free since the last call.
    pub(crate) fn take_released(&self) -> RangeTree {
        self.state.lock().released.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Segments that a space map that holds everything taken so far says are allocated (OpenZFS: `metaslab_condense`).
    pub(crate) fn synced_allocated(&self) -> Vec<Range<u64>> {
        let state = self.state.lock();
        self.without(state.not_allocated())
    }

    /// Segments that are neither free nor lent.
    pub(crate) fn occupied(&self) -> Vec<Range<u64>> {
        let state = self.state.lock();
        self.without([&state.free, &state.lent].into_iter())
    }

    /// Segments that are allocated on disk once `txg` is, when nothing more is done in it.
    pub(crate) fn allocated_after(&self, txg: Txg) -> Vec<Range<u64>> {
        let state = self.state.lock();
        self.without(state.not_allocated().chain([&state.freeing[slot(txg)]]))
    }

    /// All of the metaslab but what is in these sets.
    fn without<'a>(&self, sets: impl Iterator<Item = &'a RangeTree>) -> Vec<Range<u64>> {
        let mut left = RangeTree::new();
        left.cover(self.range.clone());
        for set in sets {
            for segment in set.iter() {
                left.clear_range(segment);
            }
        }
        left.iter().collect()
    }

    /// Bytes of memory that its sets of segments take, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let sets = state.allocating.iter().chain(&state.freeing).chain(&state.freed).chain(&state.unsynced).chain(&state.defer);
        sets.chain([&state.free, &state.held, &state.lent]).chain(&state.released).map(RangeTree::memory_bytes).sum()
    }

    /// Notes what the histogram of its space map says.
    pub(crate) fn note_histogram(&self, free: &[u64; 64]) {
        self.fragmentation.store(fragmentation::percent(free), Ordering::Relaxed);
    }

    /// Fragmentation in percent, and bytes that are free on disk; None when nobody knows how much is free.
    pub(crate) fn fragmentation(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let counted = || (state.loaded && !state.is_unknown).then(|| state.not_allocated().map(RangeTree::total).sum::<u64>());
        let free = state.told_free.or_else(counted)?;
        Some((self.fragmentation.load(Ordering::Relaxed), free))
    }

    /// Number of free segments by log2 of their length.
    pub(crate) fn histogram(&self) -> [u64; 64] {
        *self.state.lock().free.histogram()
    }

    /// Number of free segments with those that rest or are about to: what is free on disk (OpenZFS: `metaslab_sync`).
    pub(crate) fn synced_histogram(&self) -> [u64; 64] {
        let state = self.state.lock();
        let mut sum = *state.free.histogram();
        for tree in state.freed.iter().chain(&state.defer).chain([&state.held, &state.lent]) {
            for (total, count) in sum.iter_mut().zip(tree.histogram()) {
                *total += count;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1 << 20;
    const TXG: Txg = Txg(8);
    const PART: Range<u64> = 65536..69632;

    /// After `change` to its sets `step` must find that they contradict each other, and nothing be handed out.
    fn ends_allocation(name: &str, change: fn(&mut State), step: fn(&Metaslab)) {
        let metaslab = Metaslab::new((VdevId(0), 0), 0..BYTES, None);
        assert_eq!(metaslab.load(std::slice::from_ref(&(0..8192))), Some(8192));
        assert!(metaslab.alloc(4096, Txg(TXG.0 + 1)).is_some(), "{name}: nothing is wrong yet");
        change(&mut metaslab.state.lock());
        step(&metaslab);
        assert!(metaslab.state.lock().broken.is_some(), "{name} passes");
        assert!(metaslab.alloc(512, Txg(TXG.0 + 1)).is_none(), "{name}: no more is handed out");
        assert!(metaslab.lend(&(0..BYTES), None).is_empty(), "{name}: nor lent to a sweep, which writes to it");
        assert_eq!(metaslab.largest.load(Ordering::Relaxed), 0, "{name}: nor looked for here");
    }

    fn all_is_allocating(state: &mut State) {
        state.allocating[slot(TXG)].cover(0..BYTES);
    }

    /// If this fails, a contradiction in the sets of free and allocated space passes in silence, and blocks are written over others.
    #[test]
    fn a_contradiction_ends_allocation() {
        ends_allocation("alloc", all_is_allocating, |metaslab| assert!(metaslab.alloc(4096, TXG).is_none()));
        ends_allocation("claim", all_is_allocating, |metaslab| assert!(metaslab.claim(PART.start, 512, TXG).is_none()));
        ends_allocation("unalloc", all_is_allocating, |metaslab| assert!(metaslab.unalloc(PART.start, 4096, TXG), "it is given back"));
        let freed_twice = |state: &mut State| {
            state.freeing[slot(TXG)].cover(PART);
            state.freed[slot(TXG)].cover(PART);
        };
        ends_allocation("take", freed_twice, |metaslab| {
            assert_eq!(metaslab.take(TXG).1.first(), Some(&PART), "what the space map is told stays right");
        });
        let rests = |state: &mut State| {
            state.defer[TXG.0 as usize % TXG_DEFER].cover(PART);
        };
        ends_allocation("sync", rests, |metaslab| {
            metaslab.sync_done(TXG);
        });
        let is_lent = |state: &mut State| {
            state.lent.cover(PART);
        };
        ends_allocation("give back", is_lent, |metaslab| metaslab.give_back(std::slice::from_ref(&PART)));
    }
}
