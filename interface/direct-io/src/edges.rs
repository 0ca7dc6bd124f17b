//! Edges: blocks of which parts were written that wait in memory for the rest.
//!
//! What is noted here only says when a block is complete. Its bytes are the DMU's: where a note is lost or wrong the block is written with its txg, or
//! early with the bytes that it has.

use std::collections::BTreeMap;
use std::ops::Range;

/// Number of pieces with gaps between them that are noted of a block, at most: writes at random get no further.
const RANGES_MAX: usize = 128;

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
#[derive(Debug)]
pub struct Edges {
    blocks: BTreeMap<u64, Parts>,
    most: usize,
}

impl Edges {
    /// Makes the edges of an object without any; so many blocks are noted at a time, at most.
    pub fn new(most: usize) -> Edges {
        Edges { blocks: BTreeMap::new(), most }
    }

    /// Notes that a range within a block was written. Bytes that had been waiting there, when the block is complete now.
    pub fn cover(&mut self, block: u64, range: Range<usize>, block_size: usize) -> Option<u64> {
        let parts = self.blocks.entry(block).or_default();
        let waiting = parts.bytes;
        parts.add(range);
        if parts.ranges.first() == Some(&(0..block_size)) {
            self.blocks.remove(&block);
            return Some(waiting);
        }
        if parts.ranges.len() > RANGES_MAX {
            self.blocks.remove(&block);
        }
        if self.blocks.len() > self.most {
            // Not the one that grows now.
            if self.blocks.first_key_value().is_some_and(|(first, _)| *first == block) {
                self.blocks.pop_last();
            } else {
                self.blocks.pop_first();
            }
        }
        None
    }

    /// Forgets blocks whose bytes changed otherwise.
    pub fn forget(&mut self, blocks: Range<u64>) {
        if !self.blocks.is_empty() {
            self.blocks.retain(|block, _| !blocks.contains(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Edges, RANGES_MAX};

    /// If this fails, blocks go to the devices before all of their bytes came, or requests in sequence are never direct.
    #[test]
    fn a_block_is_complete_when_its_parts_meet() {
        let mut edges = Edges::new(4);
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

    /// If this fails, writers at random fill memory with notes of blocks that are never complete.
    #[test]
    fn notes_are_bounded() {
        let mut edges = Edges::new(4);
        assert!((0..100).all(|block| edges.cover(block, 0..4096, 8192).is_none()));
        let complete: Vec<u64> = (0..100).filter(|block| edges.cover(*block, 4096..8192, 8192).is_some()).collect();
        assert!(complete.len() <= 4 && complete.contains(&98), "{complete:?}");
        let mut edges = Edges::new(4);
        assert!((0..300).all(|part| edges.cover(0, part * 8192..part * 8192 + 4096, 8 << 20).is_none()));
        assert!(edges.blocks.values().all(|parts| parts.ranges.len() <= RANGES_MAX));
    }
}
