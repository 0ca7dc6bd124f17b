//! Blocks that were found and not read yet, by top-level vdev and address (OpenZFS: `dsl_scan_io_queue_t`).
//!
//! The walk fills the queue in the order of the tree; it is read in the order of addresses. While there is memory for it everything is
//! found before anything is read. When there is none left, the best *extents* are read to make room: runs of blocks without large gaps,
//! the longest and fullest first (OpenZFS: `scan_io_queue_fetch_ext`, `zfs_scan_fill_weight`).
//!
//! What is chosen is read in the order of addresses, from wherever [`SortQueue::go_near`] said last, and from the lowest on behind the
//! highest. All of it is read before anything else is chosen: nothing is passed over for ever.
//!
//! A pure structure: it knows no I/O, no clock and no lock, and holds each place once.

use ondisk::{BlockPtr, Bookmark, VdevId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Memory of a queued block, in bytes, with what the tree around it takes.
pub(crate) const ENTRY_BYTES: u64 = 208;
/// Blocks with no larger gap between them are one extent, in bytes (OpenZFS: `zfs_scan_max_ext_gap`).
const EXTENT_GAP_MAX: u64 = 2 << 20;
/// Weight of a byte of a block beside a byte of the extent (OpenZFS: `zfs_scan_fill_weight`).
const FILL_WEIGHT: u64 = 3;
/// An extent is begun in its middle only where its ends are farther away than this, in bytes of the extent: what lies before it is left
/// for a seek of its own.
const MIDDLE_MIN: u64 = 128 << 20;

/// A block to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) bp: BlockPtr,
    pub(crate) at: Bookmark,
}

impl Entry {
    /// Place in the queue: top-level vdev and offset in bytes of the first copy.
    fn place(&self) -> (VdevId, u64) {
        let dva = self.bp.dva(0);
        (dva.vdev, dva.offset)
    }
}

#[derive(Debug, Default)]
struct TopQueue {
    blocks: BTreeMap<u64, Entry>,
    /// Extents to be read now, by begin and end in bytes. Those whose blocks were freed meanwhile may have none.
    chosen: BTreeMap<u64, u64>,
    /// Offset in bytes at which reading goes on, or behind it.
    at: u64,
}

/// A run of blocks.
#[derive(Clone, Debug)]
struct Extent {
    top: VdevId,
    range: Range<u64>,
    filled: u64,
    blocks: usize,
}

impl Extent {
    fn score(&self) -> u64 {
        (self.range.end - self.range.start).saturating_add(FILL_WEIGHT.saturating_mul(self.filled))
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct SortQueue {
    tops: BTreeMap<VdevId, TopQueue>,
    count: usize,
}

impl SortQueue {
    /// Blocks in the queue.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a block; false when its place is queued already.
    pub(crate) fn insert(&mut self, entry: Entry) -> bool {
        let (top, offset) = entry.place();
        let blocks = &mut self.tops.entry(top).or_default().blocks;
        let new = !blocks.contains_key(&offset);
        if new {
            blocks.insert(offset, entry);
            self.count += 1;
        }
        new
    }

    /// Takes the block at a place out of the queue.
    pub(crate) fn remove(&mut self, (top, offset): (VdevId, u64)) -> Option<Entry> {
        let removed = self.tops.get_mut(&top)?.blocks.remove(&offset);
        self.count -= usize::from(removed.is_some());
        removed
    }

    /// Empties the queue.
    pub(crate) fn clear(&mut self) {
        *self = SortQueue::default();
    }

    /// Chooses what to read next so that at most `keep` blocks stay: the best extents; everything when `keep` is 0, then `by_extent` or,
    /// for less, as if it were one.
    pub(crate) fn choose(&mut self, keep: usize, by_extent: bool) {
        self.tops.values_mut().for_each(|top| (top.chosen, top.at) = (BTreeMap::new(), 0));
        if keep == 0 && !by_extent {
            self.tops.values_mut().for_each(|top| top.chosen = BTreeMap::from([(0, u64::MAX)]));
            return;
        }
        let mut wanted = self.count.saturating_sub(keep);
        let mut extents = self.extents();
        if keep > 0 {
            extents.sort_by_key(|extent| std::cmp::Reverse(extent.score()));
        }
        for extent in extents {
            if wanted == 0 {
                break;
            }
            let end = self.end_after(&extent, wanted);
            wanted = wanted.saturating_sub(extent.blocks);
            if let Some(top) = self.tops.get_mut(&extent.top) {
                top.chosen.insert(extent.range.start, end);
            }
        }
    }

    /// Offset in bytes at which the first `blocks` blocks of an extent end.
    fn end_after(&self, extent: &Extent, blocks: usize) -> u64 {
        let next = self.tops.get(&extent.top).and_then(|top| top.blocks.range(extent.range.clone()).nth(blocks));
        next.map_or(extent.range.end, |(offset, _)| *offset)
    }

    fn extents(&self) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for (id, top) in &self.tops {
            let mut current: Option<Extent> = None;
            for (&offset, entry) in &top.blocks {
                let asize = entry.bp.dva(0).asize.max(1);
                let end = offset.saturating_add(asize);
                match &mut current {
                    Some(extent) if offset.saturating_sub(extent.range.end) <= EXTENT_GAP_MAX => {
                        extent.range.end = extent.range.end.max(end);
                        extent.filled = extent.filled.saturating_add(asize);
                        extent.blocks += 1;
                    }
                    _ => extents.extend(current.replace(Extent { top: *id, range: offset..end, filled: asize, blocks: 1 })),
                }
            }
            extents.extend(current);
        }
        extents
    }

    /// The vdevs that have chosen blocks left.
    pub(crate) fn busy_tops(&self) -> impl Iterator<Item = VdevId> + '_ {
        self.tops.iter().filter(|(_, top)| top.next_block().is_some()).map(|(id, _)| *id)
    }

    /// Bytes from the next block of a vdev to the end of its extent, and whether that goes on where the last one taken ended.
    pub(crate) fn next_run(&self, id: VdevId) -> Option<(u64, bool)> {
        let top = self.tops.get(&id)?;
        let (offset, extent) = top.next_block()?;
        Some((extent.end - offset, extent.contains(&top.at)))
    }

    /// Reading goes on near this address: where an extent begins, or in the middle of a long one.
    pub(crate) fn go_near(&mut self, id: VdevId, address: u64) {
        if let Some(top) = self.tops.get_mut(&id) {
            top.at = top.begin_near(address);
        }
    }

    /// Takes the next chosen blocks of a vdev, in the order of addresses: at most `blocks` of at most `bytes` allocated bytes in sum, but
    /// one at least; `within` one extent or not.
    pub(crate) fn take(&mut self, id: VdevId, (blocks, bytes): (usize, u64), within: bool) -> Vec<Entry> {
        let mut taken = Vec::new();
        let Some(top) = self.tops.get_mut(&id) else { return taken };
        let mut left = (blocks.max(1), bytes);
        while left.0 > 0
            && let Some((offset, extent)) = top.next_block()
        {
            let before = taken.len();
            top.take_from(offset, &extent, &mut left, &mut taken);
            let is_cut = top.at < extent.end;
            if within || is_cut || taken.len() == before {
                break;
            }
        }
        self.count -= taken.len();
        taken
    }
}

impl TopQueue {
    fn extent_at(&self, address: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.chosen.range(..=address).next_back()?;
        (end > address).then_some(start..end)
    }

    /// The next chosen block and its extent: at `at` or behind it, else the first of all.
    fn next_block(&self) -> Option<(u64, Range<u64>)> {
        let first = |extent: Range<u64>, from: u64| {
            let (offset, _) = self.blocks.range(extent.start.max(from)..extent.end).next()?;
            Some((*offset, extent))
        };
        let here = self.extent_at(self.at).and_then(|extent| first(extent, self.at));
        let behind = || self.chosen.range(self.at..).find_map(|(start, end)| first(*start..*end, 0));
        here.or_else(behind).or_else(|| self.chosen.iter().find_map(|(start, end)| first(*start..*end, 0)))
    }

    /// Takes blocks of an extent from this one on, as many as are `left` to be taken.
    fn take_from(&mut self, offset: u64, extent: &Range<u64>, left: &mut (usize, u64), taken: &mut Vec<Entry>) {
        let mut next = Some(offset);
        while left.0 > 0
            && let Some(offset) = next
        {
            let Some(asize) = self.blocks.get(&offset).map(|entry| entry.bp.asize()) else { break };
            if !taken.is_empty() && asize > left.1 {
                *left = (0, 0);
                break;
            }
            *left = (left.0 - 1, left.1.saturating_sub(asize));
            taken.extend(self.blocks.remove(&offset));
            next = self.blocks.range(offset..extent.end).next().map(|(offset, _)| *offset);
        }
        // What is left of the extent on either side are extents.
        self.chosen.remove(&extent.start);
        if self.blocks.range(extent.start..offset).next().is_some() {
            self.chosen.insert(extent.start, offset);
        }
        if let Some(rest) = next {
            self.chosen.insert(rest, extent.end);
        }
        self.at = next.unwrap_or(extent.end);
    }

    /// Offset in bytes to go on at, nearest to this address.
    fn begin_near(&self, address: u64) -> u64 {
        let around = self.extent_at(address);
        let before = self.chosen.range(..address).next_back().map(|(start, end)| *start..*end);
        let before = before.filter(|extent| extent.end.min(address) - extent.start <= MIDDLE_MIN).map(|extent| extent.start);
        let after = self.chosen.range(address..).next().map(|(start, _)| *start);
        let after = after.filter(|_| around.is_none_or(|extent| extent.end - address <= MIDDLE_MIN));
        before.into_iter().chain(after).min_by_key(|start| start.abs_diff(address)).unwrap_or(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::Dva;

    fn entry(top: u32, offset: u64, asize: u64) -> Entry {
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, Dva { vdev: VdevId(top), offset, asize, gang: false });
        Entry { bp, at: Bookmark::default() }
    }

    fn drain(queue: &mut SortQueue, limit: (usize, u64)) -> Vec<(u32, u64)> {
        let mut read = Vec::new();
        loop {
            let Some(top) = queue.busy_tops().next() else { break };
            let taken = queue.take(top, limit, false);
            assert!(!taken.is_empty());
            read.extend(taken.iter().map(|entry| (entry.place().0.0, entry.place().1)));
        }
        read
    }

    /// If this fails, a scan leaves blocks out, or reads them in an order that makes disks seek.
    #[test]
    fn everything_comes_out_once_and_in_the_order_of_addresses() {
        let mut queue = SortQueue::default();
        let mut expected = Vec::new();
        for index in 0..1000u64 {
            let (top, offset) = ((index % 3) as u32, (index * 7919 % 1000) * (64 << 10));
            assert!(queue.insert(entry(top, offset, 64 << 10)));
            assert!(!queue.insert(entry(top, offset, 64 << 10)), "once");
            expected.push((top, offset));
        }
        expected.sort_unstable();
        assert_eq!(queue.remove((VdevId(expected[5].0), expected[5].1)).map(|entry| entry.place().1), Some(expected[5].1));
        expected.remove(5);
        queue.choose(0, false);
        assert_eq!(drain(&mut queue, (16, 1 << 20)), expected);
        assert_eq!(queue.len(), 0);
    }

    /// If this fails, a scan that runs short of memory reads scattered blocks first, which a fuller queue would have made neighbours.
    #[test]
    fn room_is_made_with_the_longest_and_fullest_extents() {
        let mut queue = SortQueue::default();
        let far = 1u64 << 32;
        (0..100u64).for_each(|index| assert!(queue.insert(entry(0, index * far, 64 << 10))));
        (0..50u64).for_each(|index| assert!(queue.insert(entry(0, far / 2 + index * (64 << 10), 64 << 10))));
        (0..20u64).for_each(|index| assert!(queue.insert(entry(1, far / 2 + index * (64 << 10), 64 << 10))));
        queue.choose(110, false);
        let read = drain(&mut queue, (7, u64::MAX));
        let run = |top: u32, count: u64| (0..count).map(move |index| (top, far / 2 + index * (64 << 10)));
        assert_eq!(read, run(0, 50).chain(run(1, 10)).collect::<Vec<_>>());
        assert_eq!(queue.len(), 110);
        queue.choose(0, true);
        assert_eq!(drain(&mut queue, (7, u64::MAX)).len(), 110);
    }

    /// If this fails, a scan leaves out what it passed when it went where a head was, reads it twice, or never gets to an end.
    #[test]
    fn everything_comes_out_once_wherever_reading_goes_on() {
        let mut random = exec::SplitMix::new(17);
        let mut queue = SortQueue::default();
        let mut expected = Vec::new();
        for extent in 0..40u64 {
            let (start, blocks) = (extent << 32, 1 + random.below(60) as u64);
            for block in 0..blocks {
                let offset = start + block * (128 << 10);
                assert!(queue.insert(entry(0, offset, 128 << 10)));
                expected.push(offset);
            }
        }
        for keep in [expected.len() / 2, 0] {
            queue.choose(keep, true);
            let mut read = Vec::new();
            while let Some((run_bytes, _)) = queue.next_run(VdevId(0)) {
                if random.below(3) == 0 {
                    queue.go_near(VdevId(0), (random.below(41 << 10) as u64) << 22);
                }
                let taken = queue.take(VdevId(0), (1 + random.below(16), u64::MAX), true);
                assert!(run_bytes > 0 && !taken.is_empty());
                let places: Vec<u64> = taken.iter().map(|entry| entry.place().1).collect();
                assert!(places.windows(2).all(|pair| pair[0] < pair[1] && pair[0] >> 32 == pair[1] >> 32), "one extent");
                read.extend(places);
                // What is freed meanwhile is not read.
                if random.below(5) == 0 {
                    let freed = expected[random.below(expected.len())];
                    read.extend(queue.remove((VdevId(0), freed)).map(|entry| entry.place().1));
                }
            }
            read.sort_unstable();
            let chosen = read.len();
            read.dedup();
            assert_eq!(read.len(), chosen, "once");
            expected.retain(|offset| read.binary_search(offset).is_err());
            assert!(queue.len() <= keep && queue.len() == expected.len());
        }
    }

    /// If this fails, a disk's head crosses the disk for nothing after each read of a user.
    #[test]
    fn reading_goes_on_where_an_extent_begins_near_the_head() {
        const STEP: u64 = 128 << 10;
        let mut queue = SortQueue::default();
        (0..8000u64).for_each(|block| assert!(queue.insert(entry(0, block * STEP, STEP))));
        (0..10u64).for_each(|block| assert!(queue.insert(entry(0, (1 << 40) + block * STEP, STEP))));
        queue.choose(0, true);
        let mut next = |address: u64| {
            queue.go_near(VdevId(0), address);
            let (run, follows) = queue.next_run(VdevId(0)).expect("something is left");
            let taken = queue.take(VdevId(0), (1, u64::MAX), true)[0].place().1;
            (taken, run / STEP, follows, queue.next_run(VdevId(0)).expect("something is left").1)
        };
        assert_eq!(next(100 * STEP), (0, 8000, true, true), "the begin is near");
        assert_eq!(next((1 << 40) + 5 * STEP), (1 << 40, 10, true, true));
        assert_eq!(next(4000 * STEP), (4000 * STEP, 4000, true, true), "the middle of a long extent");
        assert_eq!(next(2 << 40).0, (1 << 40) + STEP, "behind everything");
    }

    #[test]
    fn a_group_is_bounded_in_blocks_and_bytes() {
        let mut queue = SortQueue::default();
        (0..10u64).for_each(|index| assert!(queue.insert(entry(0, index << 20, 1 << 20))));
        queue.choose(0, false);
        assert_eq!(queue.take(VdevId(0), (3, u64::MAX), false).len(), 3);
        assert_eq!(queue.take(VdevId(0), (usize::MAX, 5 << 19), false).len(), 2);
        assert_eq!(queue.take(VdevId(0), (0, 0), false).len(), 1, "never nothing");
        assert_eq!(queue.len(), 4);
        queue.clear();
        assert_eq!(queue.busy_tops().count(), 0);
    }
}
