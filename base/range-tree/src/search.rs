//! Looking through a set: in order, and by size.

use crate::RangeTree;
use std::ops::Range;

impl RangeTree {
    /// The ranges in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(start, end)| start..end)
    }

    /// The ranges that end after `at`, in ascending order; the first may start before it.
    pub fn iter_from(&self, at: u64) -> impl Iterator<Item = Range<u64>> {
        let position = match self.last_started_by(at) {
            Some(position) if self.at(position).1 > at => Some(position),
            before => self.following(before),
        };
        let (chunk, index) = position.unwrap_or((self.chunks.len(), 0));
        self.chunks[chunk..].iter().flat_map(|chunk| chunk.iter()).skip(index).map(|(start, end)| start..end)
    }

    /// The lowest multiple of `align` that is not below `cursor` and begins `size` units of the set.
    ///
    /// Does not wrap around: try again with cursor 0. `align` 0 counts as 1.
    pub fn first_fit_from(&self, cursor: u64, size: u64, align: u64) -> Option<u64> {
        let least = size.checked_ilog2().unwrap_or(0) as usize;
        if self.histogram[least..].iter().all(|count| *count == 0) {
            return None;
        }
        let first = self.last_started_by(cursor).map_or(0, |(chunk, _)| chunk);
        for chunk in self.chunks[first..].iter().filter(|chunk| chunk.longest() >= size) {
            let skip = chunk.started_by(cursor).saturating_sub(1);
            let mut rest = chunk.iter().skip(skip).filter(|(start, end)| end - start >= size);
            if let Some(start) = rest.find_map(|(start, end)| fit(start.max(cursor)..end, size, align)) {
                return Some(start);
            }
        }
        None
    }

    /// The start of the smallest range of at least `size` units, the lowest of equals.
    pub fn best_fit(&mut self, size: u64) -> Option<u64> {
        self.size_index().range((size, 0)..).next().map(|(_, start)| *start)
    }

    /// The lowest aligned start in the smallest range that has `size` units from there on.
    pub fn best_fit_aligned(&mut self, size: u64, align: u64) -> Option<u64> {
        self.size_index().range((size, 0)..).find_map(|(length, start)| fit(*start..start + length, size, align))
    }

    /// Length of the longest range; 0 when the set is empty.
    pub fn largest(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.longest()).max().unwrap_or(0)
    }

    fn size_index(&mut self) -> &std::collections::BTreeSet<(u64, u64)> {
        if self.by_size.is_none() {
            self.by_size = Some(self.iter().map(|range| (range.end - range.start, range.start)).collect());
        }
        self.by_size.get_or_insert_default()
    }
}

/// The lowest multiple of `align` in `range` that leaves `size` units.
fn fit(range: Range<u64>, size: u64, align: u64) -> Option<u64> {
    let start = range.start.checked_next_multiple_of(align.max(1))?;
    (start.checked_add(size)? <= range.end).then_some(start)
}
