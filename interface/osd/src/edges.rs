//! Edges: blocks of which parts were written that wait in memory for the rest.
//!
//! What is noted here only says when a block is complete. Its bytes are the DMU's: where a note is lost the block is written with its txg.

use std::collections::BTreeMap;
use std::ops::Range;

/// Number of blocks of an object that are noted at a time, at most.
const EDGES_MAX: usize = 4096;

/// Block of which parts were written.
#[derive(Debug, Default)]
struct Parts {
    /// Ranges of bytes that came, in their order, with gaps between them.
    ranges: Vec<Range<usize>>,
    /// Bytes that were to be written, those that were replaced since too.
    bytes: u64,
}

impl Parts {
    fn add(&mut self, range: Range<usize>) {
        self.bytes += range.len() as u64;
        self.ranges.push(range);
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, one| {
            let touches = next.start <= one.end;
            if touches {
                one.end = one.end.max(next.end);
            }
            touches
        });
    }
}

/// Edges of an object, by the numbers of their blocks.
#[derive(Debug, Default)]
pub(crate) struct Edges(BTreeMap<u64, Parts>);

impl Edges {
    /// Notes that a range within a block was written. Bytes that had been waiting there, when the block is complete now.
    pub(crate) fn cover(&mut self, block: u64, range: Range<usize>, block_size: usize) -> Option<u64> {
        let parts = self.0.entry(block).or_default();
        let waiting = parts.bytes;
        parts.add(range);
        if parts.ranges.first() == Some(&(0..block_size)) {
            self.0.remove(&block);
            return Some(waiting);
        }
        if self.0.len() > EDGES_MAX {
            self.0.pop_first();
        }
        None
    }

    /// Forgets blocks whose bytes changed otherwise.
    pub(crate) fn forget(&mut self, blocks: Range<u64>) {
        if !self.0.is_empty() {
            self.0.retain(|block, _| !blocks.contains(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Edges;

    /// If this fails, blocks go to the devices before all of their bytes came, or requests in sequence are never direct.
    #[test]
    fn a_block_is_complete_when_its_parts_meet() {
        let mut edges = Edges::default();
        assert_eq!(edges.cover(7, 4096..8192, 16384), None);
        assert_eq!(edges.cover(7, 0..4096, 16384), None, "in any order");
        assert_eq!(edges.cover(8, 8192..16384, 16384), None, "another block");
        assert_eq!(edges.cover(7, 8192..16384, 16384), Some(8192));
        assert_eq!(edges.cover(7, 8192..16384, 16384), None, "it begins anew");
        assert_eq!(edges.cover(7, 0..4096, 16384), None, "there is a gap");
        assert_eq!(edges.cover(7, 4096..16384, 16384), Some(12288));
        edges.forget(8..9);
        assert_eq!(edges.cover(8, 0..8192, 16384), None, "what was there is another now");
    }
}
