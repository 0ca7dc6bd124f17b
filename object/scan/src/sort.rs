//! Blocks that were found and not read yet, by top-level vdev and address (OpenZFS: `dsl_scan_io_queue_t`).
//!
//! The walk fills the queue in the order of the tree; it is read in the order of addresses. While there is memory for it everything is
//! found before anything is read. When there is none left, the best *extents* are read to make room: runs of blocks without large gaps,
//! the longest and fullest first (OpenZFS: `scan_io_queue_fetch_ext`, `zfs_scan_fill_weight`).
//!
//! A pure structure: it knows no I/O, no clock and no lock, and holds each place once.

use ondisk::{BlockPtr, Bookmark, VdevId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Memory of a queued block, in bytes, with what the tree around it takes.
pub(crate) const ENTRY_BYTES: u64 = 208;
/// Blocks with no larger gap between them are one extent, in bytes (OpenZFS: `zfs_scan_max_ext_gap`).
const EXTENT_GAP_MAX: u64 = 2 << 20;
/// What a byte of a block counts for beside a byte of the extent (OpenZFS: `zfs_scan_fill_weight`).
const FILL_WEIGHT: u64 = 3;

/// A block to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) bp: BlockPtr,
    pub(crate) at: Bookmark,
}

impl Entry {
    /// Where it is queued: the place of its first copy.
    fn place(&self) -> (VdevId, u64) {
        let dva = self.bp.dva(0);
        (dva.vdev, dva.offset)
    }
}

#[derive(Debug, Default)]
struct TopQueue {
    blocks: BTreeMap<u64, Entry>,
    /// What is to be read now: ranges of addresses, ascending.
    chosen: VecDeque<Range<u64>>,
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

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = SortQueue::default();
    }

    /// Chooses what to read next so that at most `keep` blocks stay: the best extents; everything when `keep` is 0.
    pub(crate) fn choose(&mut self, keep: usize) {
        self.tops.values_mut().for_each(|top| top.chosen.clear());
        let mut wanted = self.count.saturating_sub(keep);
        if keep == 0 {
            self.tops.values_mut().filter(|top| !top.blocks.is_empty()).for_each(|top| top.chosen.push_back(0..u64::MAX));
            return;
        }
        let mut extents = self.extents();
        extents.sort_by_key(|extent| std::cmp::Reverse(extent.score()));
        let mut chosen: BTreeMap<VdevId, Vec<Range<u64>>> = BTreeMap::new();
        for extent in extents {
            if wanted == 0 {
                break;
            }
            let end = self.end_after(&extent, wanted);
            wanted = wanted.saturating_sub(extent.blocks);
            chosen.entry(extent.top).or_default().push(extent.range.start..end);
        }
        for (id, mut ranges) in chosen {
            ranges.sort_unstable_by_key(|range| range.start);
            if let Some(top) = self.tops.get_mut(&id) {
                top.chosen = ranges.into();
            }
        }
    }

    /// Where the first `blocks` blocks of an extent end.
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
        self.tops.iter().filter(|(_, top)| top.next_offset().is_some()).map(|(id, _)| *id)
    }

    /// Takes the next chosen blocks of a vdev, in the order of addresses: at most `blocks` of at most `bytes` allocated bytes in sum, but
    /// one at least.
    pub(crate) fn take(&mut self, id: VdevId, (blocks, bytes): (usize, u64)) -> Vec<Entry> {
        let mut taken = Vec::new();
        let Some(top) = self.tops.get_mut(&id) else { return taken };
        let mut sum = 0u64;
        while taken.len() < blocks.max(1) {
            let Some(offset) = top.next_offset() else {
                top.chosen.clear();
                break;
            };
            // Ranges before it are empty.
            while top.chosen.front().is_some_and(|range| range.end <= offset) {
                top.chosen.pop_front();
            }
            let Some(asize) = top.blocks.get(&offset).map(|entry| entry.bp.asize()) else { break };
            if !taken.is_empty() && sum.saturating_add(asize) > bytes {
                break;
            }
            sum = sum.saturating_add(asize);
            taken.extend(top.blocks.remove(&offset));
        }
        self.count -= taken.len();
        taken
    }
}

impl TopQueue {
    /// The address of the next chosen block.
    fn next_offset(&self) -> Option<u64> {
        self.chosen.iter().find_map(|range| self.blocks.range(range.clone()).next().map(|(offset, _)| *offset))
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
            let taken = queue.take(top, limit);
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
        queue.choose(0);
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
        queue.choose(110);
        let read = drain(&mut queue, (7, u64::MAX));
        let run = |top: u32, count: u64| (0..count).map(move |index| (top, far / 2 + index * (64 << 10)));
        assert_eq!(read, run(0, 50).chain(run(1, 10)).collect::<Vec<_>>());
        assert_eq!(queue.len(), 110);
        queue.choose(0);
        assert_eq!(drain(&mut queue, (7, u64::MAX)).len(), 110);
    }

    #[test]
    fn a_group_is_bounded_in_blocks_and_bytes() {
        let mut queue = SortQueue::default();
        (0..10u64).for_each(|index| assert!(queue.insert(entry(0, index << 20, 1 << 20))));
        queue.choose(0);
        assert_eq!(queue.take(VdevId(0), (3, u64::MAX)).len(), 3);
        assert_eq!(queue.take(VdevId(0), (usize::MAX, 5 << 19)).len(), 2);
        assert_eq!(queue.take(VdevId(0), (0, 0)).len(), 1, "never nothing");
        assert_eq!(queue.len(), 4);
        queue.clear();
        assert_eq!(queue.busy_tops().count(), 0);
    }
}
