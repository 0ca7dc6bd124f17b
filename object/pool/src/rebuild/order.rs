//! What a rebuild does next. The groups of a dRAID lie on different children, by permutations that spread them evenly over many slices
//! only: of few of them, taken as they come, one child has half as much again as the mean, and all others wait for it. So what comes
//! next is chosen among the groups of a window: one whose devices have little to do now and much left. Of the columns that a
//! part could be read from, more than it needs, those are spared whose devices have the most to do.
//!
//! Pure: no I/O, no clock. Addresses before [`Order::first`] have all been taken, whatever the order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use vdev::{LeafId, RebuildNeed, Spared};

/// A byte written keeps a device busy as long as so many bytes read.
const WRITE_COST: u64 = 2;
/// Weight of the work that a device is doing now beside the work left for it.
const FLIGHT_WEIGHT: u64 = 10;

/// Work of each leaf by its number, in bytes read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loads(Vec<u64>);

impl Loads {
    fn of(&self, leaf: LeafId) -> u64 {
        self.0.get(leaf.0 as usize).copied().unwrap_or(0)
    }
    fn add(&mut self, leaf: LeafId, cost: u64) {
        let index = leaf.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] += cost;
    }
    fn sub(&mut self, leaf: LeafId, cost: u64) {
        if let Some(load) = self.0.get_mut(leaf.0 as usize) {
            *load = load.saturating_sub(cost);
        }
    }
    /// Adds the work of a part that was begun.
    pub(super) fn begin(&mut self, work: &Work) {
        work.each(|leaf, cost| self.add(leaf, cost));
    }
    /// Takes off the work of a part that ended.
    pub(super) fn end(&mut self, work: &Work) {
        work.each(|leaf, cost| self.sub(leaf, cost));
    }
}

/// Expected work of the leaves for `column` bytes of each column, as long as nobody knows whom they spare.
fn each_expected(need: &RebuildNeed, column: u64, mut each: impl FnMut(LeafId, u64)) {
    let (wanted, sources) = (need.wanted.min(need.sources.len()) as u64, need.sources.len().max(1) as u64);
    need.sources.iter().for_each(|leaf| each(*leaf, column * wanted / sources));
    need.targets.iter().for_each(|leaf| each(*leaf, column * WRITE_COST));
}

/// Leaves that a part reads and writes, and the bytes of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    reads: Vec<LeafId>,
    writes: Vec<LeafId>,
    /// Bytes of a column.
    column: u64,
}

impl Work {
    fn new(need: &RebuildNeed, spared: &[Option<LeafId>], column: u64) -> Work {
        let reads = need.sources.iter().copied().filter(|leaf| !spared.contains(&Some(*leaf))).take(need.wanted);
        Work { reads: reads.collect(), writes: need.targets.clone(), column }
    }
    fn each(&self, mut each: impl FnMut(LeafId, u64)) {
        self.reads.iter().for_each(|leaf| each(*leaf, self.column));
        self.writes.iter().for_each(|leaf| each(*leaf, self.column * WRITE_COST));
    }
}

/// Ranges that the same leaves rebuild, in order of their addresses, each with what keeps it as it is.
#[derive(Debug)]
struct Lane<H> {
    ranges: VecDeque<(Range<u64>, H)>,
    /// Bytes of them.
    bytes: u64,
    /// None: nobody lacks them.
    need: Option<RebuildNeed>,
}

/// Lane that has its turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    lane: u64,
    spared: Spared,
    /// Bytes until another lane may have the turn.
    bytes: u64,
}

/// A part to begin.
#[derive(Clone, Debug)]
pub(super) struct Next<H> {
    pub(super) part: Range<u64>,
    pub(super) hold: H,
    /// Leaves to be read only if others do not do.
    pub(super) spared: Spared,
    pub(super) work: Work,
}

/// The window of a sweep.
#[derive(Debug)]
pub(super) struct Order<H> {
    /// Allocated bytes for each byte of a column.
    width: u64,
    lanes: BTreeMap<u64, Lane<H>>,
    left: Loads,
    turn: Option<Turn>,
    ranges: usize,
}

impl<H: Clone> Order<H> {
    /// An empty one.
    pub(super) fn new(width: usize) -> Order<H> {
        Order { width: width.max(1) as u64, lanes: BTreeMap::new(), left: Loads::default(), turn: None, ranges: 0 }
    }

    /// Adds a range behind all others of its lane, which `need` says the leaves of.
    pub(super) fn add(&mut self, lane: u64, (range, hold): (Range<u64>, H), need: impl FnOnce() -> Option<RebuildNeed>) {
        let bytes = range.end - range.start;
        let lane = self.lanes.entry(lane).or_insert_with(|| Lane { ranges: VecDeque::new(), bytes: 0, need: need() });
        lane.ranges.push_back((range, hold));
        self.ranges += 1;
        lane.change(self.width, &mut self.left, lane.bytes + bytes);
    }

    /// Offset in bytes of the first range that was not taken.
    pub(super) fn first(&self) -> Option<u64> {
        self.lanes.values().next().and_then(|lane| lane.ranges.front()).map(|(range, _)| range.start)
    }

    /// Ranges that are waiting.
    pub(super) fn len(&self) -> usize {
        self.ranges
    }

    /// Takes what is best done beside `flight`: at most `segment` bytes of each column, cut to a part of the vdev by `cut`, which is
    /// given a beginning and a length.
    pub(super) fn take(&mut self, flight: &Loads, segment: u64, cut: impl FnOnce(u64, u64) -> u64) -> Option<Next<H>> {
        let turn = match self.turn.take().filter(|turn| self.lanes.contains_key(&turn.lane)) {
            Some(turn) => turn,
            None => self.choose(flight, segment * self.width)?,
        };
        let lane = self.lanes.get_mut(&turn.lane)?;
        let (range, hold) = lane.ranges.pop_front()?;
        let length = cut(range.start, range.end - range.start).min(range.end - range.start);
        let part = range.start..range.start + length;
        let work = lane.need.as_ref().map(|need| Work::new(need, &turn.spared, length / self.width)).unwrap_or_default();
        lane.change(self.width, &mut self.left, lane.bytes - length);
        if part.end < range.end {
            lane.ranges.push_front((part.end..range.end, hold.clone()));
        } else {
            self.ranges -= 1;
        }
        if lane.ranges.is_empty() {
            self.lanes.remove(&turn.lane);
        }
        if turn.bytes > length {
            self.turn = Some(Turn { bytes: turn.bytes - length, ..turn });
        }
        Some(Next { part, hold, spared: turn.spared, work })
    }

    fn choose(&self, flight: &Loads, bytes: u64) -> Option<Turn> {
        let mut best: Option<(i128, Turn)> = None;
        for (number, lane) in &self.lanes {
            // What nobody lacks is done at once.
            let (score, spared) = lane.need.as_ref().map_or((i128::MIN, Spared::default()), |need| self.judge(need, flight));
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, Turn { lane: *number, spared, bytes }));
            }
        }
        best.map(|(_, turn)| turn)
    }

    /// The less the better; and whom to spare.
    fn judge(&self, need: &RebuildNeed, flight: &Loads) -> (i128, Spared) {
        let mut spared = Spared::default();
        let enough = need.sources.len().saturating_sub(need.wanted).min(spared.len());
        for place in 0..enough {
            let others = need.sources.iter().copied().filter(|leaf| !spared[..place].contains(&Some(*leaf)));
            // Of equals the last: parity.
            spared[place] = others.max_by_key(|leaf| self.left.of(*leaf) + flight.of(*leaf));
        }
        let read = need.sources.iter().filter(|leaf| !spared.contains(&Some(**leaf)));
        let each = |leaf: &LeafId| i128::from(flight.of(*leaf) * FLIGHT_WEIGHT) - i128::from(self.left.of(*leaf));
        (read.chain(&need.targets).map(each).sum(), spared)
    }
}

impl<H> Lane<H> {
    /// Sets the bytes of the lane.
    fn change(&mut self, width: u64, left: &mut Loads, bytes: u64) {
        if let Some(need) = &self.need {
            each_expected(need, self.bytes / width, |leaf, cost| left.sub(leaf, cost));
            each_expected(need, bytes / width, |leaf, cost| left.add(leaf, cost));
        }
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::{Guid, Txg};
    use std::collections::BinaryHeap;
    use vdev::{DraidConfig, DraidSpare, Leaf, LeafKind, LeafState, Pairing, TopKind, VdevTree};

    const SECTOR: u64 = 4096;

    /// A dRAID without its first child, for which the spare stands in that has nothing yet.
    fn tree(config: DraidConfig) -> VdevTree {
        let mut whole = VdevTree::simple(&[(TopKind::Draid(config), config.children())], 12, 8 << 30).expect("a shape");
        whole.leaves[0].state = LeafState::Faulted;
        let spare = Leaf {
            kind: LeafKind::DraidSpare,
            draid_spare: Some(DraidSpare { top: whole.tops[0].guid, id: 0 }),
            missing_txgs: vec![(Txg::INITIAL, Txg(50))],
            is_spare: true,
            ..Leaf::default()
        };
        whole.attach(LeafId(0), spare, Pairing::Spare, Guid(7), Txg(50)).expect("in the tree")
    }

    fn window(config: DraidConfig, slices: u64) -> Order<()> {
        let tree = tree(config);
        let (top, mut order) = (&tree.tops[0], Order::new(config.width()));
        for group in 0..slices * config.groups() as u64 {
            let start = group * config.group_bytes();
            order.add(group, (start..start + config.group_bytes(), ()), || top.rebuild_need(&tree, start));
        }
        order
    }

    /// Time that devices doing one thing after the other, at the speeds of NVMe devices, take for `slices` full slices, in reads of a
    /// MiB from one of them; and the part of that time in which the mean device does something.
    fn rebuild_time(config: DraidConfig, slices: u64) -> (u64, f64) {
        const SEGMENT: u64 = 1 << 20;
        let mut order = window(config, slices);
        let (mut flight, mut free, mut busy) = (Loads::default(), BTreeMap::<LeafId, u64>::new(), 0);
        let mut events = BinaryHeap::new();
        let (mut parts, mut now, mut works) = (0, 0, Vec::<Work>::new());
        let mut work_on = |leaf: LeafId, now: u64, cost: u64| {
            let until = free.entry(leaf).or_default();
            *until = now.max(*until) + cost;
            busy += cost;
            *until
        };
        loop {
            while parts < 46
                && let Some(next) = order.take(&flight, SEGMENT, |_, left| left.min(SEGMENT * config.width() as u64))
            {
                parts += 1;
                flight.begin(&next.work);
                let read = next.work.reads.iter().map(|leaf| work_on(*leaf, now, next.work.column)).max().unwrap_or(now);
                events.push(std::cmp::Reverse((read, false, works.len())));
                works.push(next.work);
            }
            let Some(std::cmp::Reverse((at, is_written, index))) = events.pop() else { break };
            now = at;
            let work = &works[index];
            if is_written {
                parts -= 1;
                flight.end(work);
            } else {
                let written = work.writes.iter().map(|leaf| work_on(*leaf, now, work.column * WRITE_COST)).max().unwrap_or(now);
                events.push(std::cmp::Reverse((written, true, index)));
            }
        }
        assert_eq!((flight.0.iter().max(), order.len(), order.left.0.iter().max()), (Some(&0), 0, Some(&0)), "nothing is left");
        (now, busy as f64 / (now * (config.children() as u64 - 1)) as f64)
    }

    /// A dRAID is made of many children so that less of it is unprotected for less time after a failure. If this fails, twice the
    /// children are paid for and do not help: one of them has to do more than its part, and the rebuild waits for it.
    #[test]
    fn twice_the_children_rebuild_nearly_twice_as_fast() {
        let shape = |children, spares| DraidConfig::new(2, 9, spares, children).expect("a shape");
        for (slices, least) in [(36, 1.8), (72, 1.85)] {
            let ((few, used_of_few), (many, used_of_many)) = (rebuild_time(shape(12, 1), slices), rebuild_time(shape(24, 2), slices));
            let faster = few as f64 / many as f64;
            assert!(faster >= least, "{slices} slices: {faster:.2} × as fast; {used_of_few:.2} and {used_of_many:.2} of the devices' time");
            assert!(used_of_few >= 0.9 && used_of_many >= 0.8, "{slices} slices: {used_of_few:.2}, {used_of_many:.2}");
        }
    }

    /// A rebuild that is interrupted goes on at [`Order::first`]: what lies before and was not taken would never be rebuilt.
    #[test]
    fn nothing_before_the_first_is_left_and_everything_is_taken_once() {
        let config = DraidConfig::new(1, 2, 1, 7).expect("a shape");
        let mut order = window(config, 12);
        let end = 12 * config.slice_bytes();
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        let mut skipped = false;
        while let Some(next) = order.take(&Loads::default(), 5 << 20, |_, left| left.min(3 * 5 * 1000 * SECTOR)) {
            assert_eq!(taken.insert(next.part.start, next.part.end), None);
            let first = order.first().unwrap_or(end);
            let mut at = 0;
            while let Some(stop) = taken.get(&at) {
                at = *stop;
            }
            assert!(at >= first, "{first} is said, {at} is done");
            skipped |= next.part.start > at;
        }
        assert!(skipped, "it went by the addresses alone");
        let lengths: u64 = taken.iter().map(|(start, stop)| stop - start).sum();
        assert_eq!((lengths, order.len()), (end, 0));
    }
}
