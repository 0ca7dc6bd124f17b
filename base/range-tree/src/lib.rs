//! Sets of disjoint ranges of `u64`s: free space, pending frees, dirty extents (OpenZFS: `range_tree.c`).
//!
//! The unit is the caller's (bytes, sectors, block ids); a tree never mixes units. Ranges that touch are merged, so a set
//! has one representation. Sorted chunks of a few hundred ranges instead of a node per range: updates shift within one
//! chunk, searches by size skip a chunk by its longest range. The index by exact size is built at the first
//! [`RangeTree::best_fit`] and kept up from then on, because most sets never ask for it.
#![forbid(unsafe_code)]

mod chunk;
mod search;
#[cfg(test)]
mod tests;

use chunk::{Chunk, RANGES_MAX};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// The range to add has something in common with the set, or ends beyond `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap;

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the range to add overlaps the set")
    }
}

impl std::error::Error for Overlap {}

/// The range to remove is not completely in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotContained;

impl fmt::Display for NotContained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the range to remove is not in the set")
    }
}

impl std::error::Error for NotContained {}

/// Position of a range: chunk, and index in it.
type Position = (usize, usize);

/// A set of disjoint, non-touching, non-empty ranges.
#[derive(Clone, Debug)]
pub struct RangeTree {
    /// Non-empty chunks in ascending order.
    chunks: Vec<Chunk>,
    total: u64,
    count: usize,
    /// Number of ranges that have a length in `2^i .. 2^(i+1)`.
    histogram: [u64; 64],
    /// (length, start) of every range, once somebody asked for a best fit.
    by_size: Option<BTreeSet<(u64, u64)>>,
}

impl Default for RangeTree {
    fn default() -> Self {
        RangeTree { chunks: Vec::new(), total: 0, count: 0, histogram: [0; 64], by_size: None }
    }
}

impl RangeTree {
    /// Makes an empty set.
    pub fn new() -> RangeTree {
        RangeTree::default()
    }

    /// Adds `start .. start + len`; an empty range changes nothing.
    pub fn add(&mut self, start: u64, len: u64) -> Result<(), Overlap> {
        let end = start.checked_add(len).ok_or(Overlap)?;
        if len == 0 {
            return Ok(());
        }
        let before = self.last_started_by(start);
        let after = self.following(before);
        let left = before.map(|at| self.at(at));
        let right = after.map(|at| self.at(at));
        if left.is_some_and(|left| left.1 > start) || right.is_some_and(|right| right.0 < end) {
            return Err(Overlap);
        }
        let touches_left = left.filter(|left| left.1 == start);
        let touches_right = right.filter(|right| right.0 == end);
        match (before.zip(touches_left), after.zip(touches_right)) {
            (Some((at, left)), Some((next, right))) => {
                self.remove_at(next);
                self.set_at(at, left.0, right.1);
            }
            (Some((at, left)), None) => self.set_at(at, left.0, end),
            (None, Some((next, right))) => self.set_at(next, start, right.1),
            (None, None) => self.insert_after(before, start, end),
        }
        Ok(())
    }

    /// Removes `start .. start + len`, all of which must be in the set; an empty range changes nothing.
    pub fn remove(&mut self, start: u64, len: u64) -> Result<(), NotContained> {
        let end = start.checked_add(len).ok_or(NotContained)?;
        if len == 0 {
            return Ok(());
        }
        let at = self.last_started_by(start).ok_or(NotContained)?;
        let (first, last) = self.at(at);
        if last < end {
            return Err(NotContained);
        }
        match (first == start, last == end) {
            (true, true) => self.remove_at(at),
            (true, false) => self.set_at(at, end, last),
            (false, true) => self.set_at(at, first, start),
            (false, false) => {
                self.set_at(at, first, start);
                self.insert_after(Some(at), end, last);
            }
        }
        Ok(())
    }

    /// Removes whatever of `range` is in the set; returns how much that was (OpenZFS: `zfs_range_tree_clear`).
    pub fn clear_range(&mut self, range: Range<u64>) -> u64 {
        let mut cleared = 0;
        while let Some(part) = self.first_overlap(range.clone()) {
            let length = part.end - part.start;
            self.remove(part.start, length).expect("an overlap with the set is in the set");
            cleared += length;
        }
        cleared
    }

    /// Adds what of `range` is not yet in the set; returns how much that was.
    pub fn cover(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let length = range.end - range.start;
        let cleared = self.clear_range(range.clone());
        self.add(range.start, length).expect("the range was cleared");
        length - cleared
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        *self = RangeTree::default();
    }

    /// True when all of `start .. start + len` is in the set (the empty range always is).
    pub fn contains(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        len == 0 || self.last_started_by(start).is_some_and(|at| self.at(at).1 >= end)
    }

    /// True when some of `start .. start + len` is in the set.
    pub fn overlaps(&self, start: u64, len: u64) -> bool {
        self.first_overlap(start..start.saturating_add(len)).is_some()
    }

    /// The first part of `range` that is in the set.
    pub fn first_overlap(&self, range: Range<u64>) -> Option<Range<u64>> {
        if range.start >= range.end {
            return None;
        }
        let (first, last) = self.iter_from(range.start).next().map(|found| (found.start, found.end))?;
        (first < range.end).then(|| first.max(range.start)..last.min(range.end))
    }

    /// Sum of the lengths.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory that the set takes, about.
    pub fn memory_bytes(&self) -> u64 {
        let own = size_of::<RangeTree>() + self.chunks.capacity() * size_of::<Chunk>();
        let ranges: usize = self.chunks.iter().map(Chunk::memory_bytes).sum();
        // A B-tree node is between half and completely full.
        let by_size = self.by_size.as_ref().map_or(0, |index| index.len() * size_of::<(u64, u64)>() * 4 / 3);
        (own + ranges + by_size) as u64
    }

    /// True when the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of ranges with a length in `2^i .. 2^(i+1)`, for each `i`.
    pub fn histogram(&self) -> &[u64; 64] {
        &self.histogram
    }

    /// Smallest start and largest end, unless the set is empty.
    pub fn span(&self) -> Option<Range<u64>> {
        let first = self.chunks.first()?.first();
        let chunk = self.chunks.last()?;
        Some(first..chunk.get(chunk.count() - 1).1)
    }

    /// The last range that starts at or before `at`.
    fn last_started_by(&self, at: u64) -> Option<Position> {
        let chunk = self.chunks.partition_point(|chunk| chunk.first() <= at).checked_sub(1)?;
        Some((chunk, self.chunks[chunk].started_by(at) - 1))
    }

    /// The range after `position`, or the first one.
    fn following(&self, position: Option<Position>) -> Option<Position> {
        let (chunk, index) = match position {
            None => (0, 0),
            Some((chunk, index)) if index + 1 < self.chunks[chunk].count() => (chunk, index + 1),
            Some((chunk, _)) => (chunk + 1, 0),
        };
        (chunk < self.chunks.len()).then_some((chunk, index))
    }

    fn at(&self, (chunk, index): Position) -> (u64, u64) {
        self.chunks[chunk].get(index)
    }

    fn insert_after(&mut self, position: Option<Position>, start: u64, end: u64) {
        self.account(start, end);
        let (chunk, index) = position.map_or((0, 0), |(chunk, index)| (chunk, index + 1));
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::one(start, end));
            return;
        }
        let leaf = &mut self.chunks[chunk];
        leaf.insert(index, start, end);
        if leaf.count() > RANGES_MAX {
            let upper = leaf.split();
            self.chunks.insert(chunk + 1, upper);
        }
    }

    fn remove_at(&mut self, (chunk, index): Position) {
        let (start, end) = self.at((chunk, index));
        self.forget(start, end);
        self.chunks[chunk].remove(index);
        if self.chunks[chunk].count() == 0 {
            self.chunks.remove(chunk);
        }
    }

    fn set_at(&mut self, (chunk, index): Position, start: u64, end: u64) {
        let (old_start, old_end) = self.at((chunk, index));
        self.forget(old_start, old_end);
        self.account(start, end);
        self.chunks[chunk].set(index, start, end);
    }

    fn account(&mut self, start: u64, end: u64) {
        let length = end - start;
        self.total += length;
        self.count += 1;
        self.histogram[length.ilog2() as usize] += 1;
        if let Some(index) = &mut self.by_size {
            index.insert((length, start));
        }
    }

    fn forget(&mut self, start: u64, end: u64) {
        let length = end - start;
        self.total -= length;
        self.count -= 1;
        self.histogram[length.ilog2() as usize] -= 1;
        if let Some(index) = &mut self.by_size {
            index.remove(&(length, start));
        }
    }
}

impl PartialEq for RangeTree {
    fn eq(&self, other: &RangeTree) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl Eq for RangeTree {}
