//! What a scrub or resilver has in memory: extents of blocks, spread over the disk, which it reads in the order of addresses, or near
//! the head where that was taken elsewhere. All that it has is read before it finds more, so that what is left behind counts.

use super::{DISK_BYTES, KIB, Random};
use std::collections::BTreeMap;

/// Bytes of a block.
pub const BLOCK: u64 = 128 * KIB;
/// Bytes that wait or are under way at most.
pub const FLIGHT: u64 = 4 << 20;
/// The begin of an extent is looked for this far from the head (in bytes of extents).
const LOOK: u64 = 128 << 20;

/// Places of a pool's blocks.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Mean length of extents; their lengths are exponential.
    pub extent: u64,
    /// Bytes that the scan has in memory and reads before it finds more.
    pub batch: u64,
}

/// See the module's header.
pub struct Extents {
    layout: Layout,
    random: Random,
    /// Extents left to be read: begins and ends, in bytes.
    left: BTreeMap<u64, u64>,
    at: u64,
}

impl Extents {
    pub fn new(layout: Layout, seed: u64) -> Extents {
        Extents { layout, random: Random(!seed), left: BTreeMap::new(), at: 0 }
    }

    /// Finds the next blocks; a disk is full where extents touch.
    fn find(&mut self) {
        let mut lengths = Vec::new();
        let mut sum = 0;
        while sum < self.layout.batch {
            let length = (self.random.exponential_ns(1.0) as f64 / 1e9 * self.layout.extent as f64) as u64;
            lengths.push(length.next_multiple_of(BLOCK).max(BLOCK).min(self.layout.batch - sum));
            sum += lengths[lengths.len() - 1];
        }
        let free = (DISK_BYTES - sum) / BLOCK;
        let mut gaps: Vec<u64> = lengths.iter().map(|_| self.random.below(free) * BLOCK).collect();
        gaps.sort_unstable();
        let mut before = 0;
        for (gap, length) in gaps.into_iter().zip(lengths) {
            self.put(gap + before, gap + before + length);
            before += length;
        }
        self.at = 0;
    }

    fn put(&mut self, mut begin: u64, end: u64) {
        if begin == end {
            return;
        }
        if let Some((&before, _)) = self.left.range(..begin).next_back().filter(|(_, end)| **end == begin) {
            begin = before;
        }
        self.left.insert(begin, end);
    }

    /// The extent that the place is in.
    fn around(&self, at: u64) -> Option<(u64, u64)> {
        self.left.range(..=at).next_back().map(|(begin, end)| (*begin, *end)).filter(|(_, end)| *end > at)
    }

    fn after(&self, at: u64) -> Option<(u64, u64)> {
        self.left.range(at..).next().map(|(begin, end)| (*begin, *end))
    }

    /// Bytes that lie in sequence at the next place.
    pub fn run_bytes(&mut self) -> u64 {
        if self.left.is_empty() {
            self.find();
        }
        let next = self.around(self.at).map(|(_, end)| end - self.at);
        next.or_else(|| self.after(self.at).or_else(|| self.after(0)).map(|(begin, end)| end - begin)).unwrap_or(0)
    }

    /// Goes on near this place: where an extent begins, or inside one whose ends are far.
    pub fn go(&mut self, head: u64) {
        let head = head.next_multiple_of(BLOCK);
        let around = self.around(head);
        let behind = around.or_else(|| self.left.range(..head).next_back().map(|(begin, end)| (*begin, *end)));
        let behind = behind.filter(|(begin, end)| (*end).min(head) - begin <= LOOK).map(|(begin, _)| begin);
        let ahead = self.after(head).filter(|_| around.is_none_or(|(_, end)| end - head <= LOOK)).map(|(begin, _)| begin);
        let nearest = [behind, ahead].into_iter().flatten().min_by_key(|begin| begin.abs_diff(head));
        self.at = nearest.unwrap_or(head);
    }

    /// The next block; where `onward`, only if it follows the one before.
    pub fn take(&mut self, onward: bool) -> Option<u64> {
        if self.left.is_empty() && !onward {
            self.find();
        }
        if self.around(self.at).is_none() {
            if onward {
                return None;
            }
            self.at = self.after(self.at).or_else(|| self.after(0))?.0;
        }
        let (begin, end) = self.around(self.at)?;
        let at = self.at;
        self.left.remove(&begin);
        self.put(begin, at);
        self.put(at + BLOCK, end);
        self.at = at + BLOCK;
        Some(at)
    }
}
