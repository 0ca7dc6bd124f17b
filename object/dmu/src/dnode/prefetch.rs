//! Reading ahead of sequential readers.
//!
//! OpenZFS: `dmu_zfetch.c`. A few streams per object; a stream is the block where the next access is expected. A hit doubles
//! its distance, from 4 MiB up to 64 MiB; new reads are started when half of the distance has been used up.

use super::Dnode;
use crate::state::{Found, Tree};
use kstat::Counter;
use std::sync::LazyLock;

/// Streams per object (OpenZFS: `zfetch_max_streams`).
const STREAMS: usize = 8;
/// First distance in bytes (OpenZFS: `zfetch_min_distance`).
const DISTANCE_BYTES_MIN: u64 = 4 << 20;
/// Largest distance in bytes (OpenZFS: `zfetch_max_distance`).
const DISTANCE_BYTES_MAX: u64 = 64 << 20;

struct Counters {
    hits: Counter,
    misses: Counter,
    max_streams: Counter,
    io_issued: Counter,
}

static COUNTERS: LazyLock<Counters> =
    LazyLock::new(|| Counters { hits: Counter::new(), misses: Counter::new(), max_streams: Counter::new(), io_issued: Counter::new() });

/// What reading ahead did in this process (OpenZFS: `zfetchstats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZfetchStats {
    /// Accesses that continued a stream.
    pub hits: u64,
    /// Accesses that began one.
    pub misses: u64,
    /// Of those, accesses that took the place of another stream.
    pub max_streams: u64,
    /// Blocks whose reads were asked for ahead of their readers.
    pub io_issued: u64,
}

/// The counters of reading ahead, over all objects of this process.
pub fn zfetch_stats() -> ZfetchStats {
    let Counters { hits, misses, max_streams, io_issued } = &*COUNTERS;
    ZfetchStats { hits: hits.get(), misses: misses.get(), max_streams: max_streams.get(), io_issued: io_issued.get() }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// First block of the access that continues the stream.
    next: u64,
    /// Blocks before this one were started.
    ahead: u64,
    /// Blocks.
    distance: u64,
    used: u64,
}

/// The streams of one object.
#[derive(Debug, Default)]
pub(super) struct Prefetcher {
    streams: Vec<Stream>,
    clock: u64,
}

impl Prefetcher {
    /// Notes an access to `first ..= last`; gives the blocks to start now.
    fn access(&mut self, first: u64, last: u64, block_size: usize, max_block: u64) -> std::ops::Range<u64> {
        self.clock += 1;
        let clock = self.clock;
        let size = block_size as u64;
        if let Some(stream) = self.streams.iter_mut().find(|stream| first <= stream.next && stream.next <= last + 1) {
            stream.used = clock;
            COUNTERS.hits.bump();
            if last < stream.next {
                return 0..0;
            }
            stream.next = last + 1;
            stream.distance = (stream.distance * 2).clamp((DISTANCE_BYTES_MIN / size).max(1), (DISTANCE_BYTES_MAX / size).max(1));
            let start = stream.ahead.max(stream.next);
            let end = (stream.next + stream.distance).min(max_block + 1);
            if start - stream.next > stream.distance / 2 || start >= end {
                return 0..0;
            }
            stream.ahead = end;
            return start..end;
        }
        let stream = Stream { next: last + 1, ahead: last + 1, distance: 0, used: clock };
        COUNTERS.misses.bump();
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            COUNTERS.max_streams.bump();
            *oldest = stream;
        }
        0..0
    }
}

impl Dnode {
    /// Starts to read a range that will be wanted.
    pub fn prefetch(&self, offset: u64, length: u64) {
        let (block_size, max_block) = {
            let state = self.state.read();
            (state.core.block_size as u64, state.core.max_block)
        };
        if length > 0 {
            let last = (offset.saturating_add(length) - 1) / block_size;
            self.prefetch_blocks(offset / block_size..last.min(max_block) + 1);
        }
    }

    /// Starts the reads ahead of a stream.
    pub(super) fn read_ahead(&self, first: u64, last: u64, block_size: usize, max_block: u64) {
        // Somebody else being in here is reading the same object: one of the two is enough.
        let ahead = match self.prefetcher.try_lock() {
            Some(mut prefetcher) => prefetcher.access(first, last, block_size, max_block),
            None => return,
        };
        COUNTERS.io_issued.add(ahead.end - ahead.start);
        self.prefetch_blocks(ahead);
    }

    /// Starts the reads of level-1 blocks of a tree, as far as their pointers are known without waiting.
    pub(crate) fn prefetch_indirects(&self, tree: &Tree, ids: std::ops::Range<u64>) {
        for id in ids {
            let Some(bp) = self.pointer_now(tree, 1, id) else { continue };
            if !bp.is_hole() {
                self.context.env.io.prefetch_kept(&bp, &self.context.bookmark(self.object, 1, id), self.keep(&bp));
            }
        }
    }

    /// Starts the reads of a range's clean blocks, as far as their pointers are known without waiting.
    pub(super) fn prefetch_blocks(&self, blocks: std::ops::Range<u64>) {
        let io = &self.context.env.io;
        for block in blocks {
            let found = self.state.read().find(block);
            let bp = match found {
                Found::Clean(tree) => self.pointer_now(&tree, 0, block),
                Found::Written(written) => Some(written.bp),
                Found::Dirty(..) | Found::Freed => continue,
            };
            let Some(bp) = bp else { return };
            if !bp.is_hole() && !bp.is_embedded() {
                io.prefetch_kept(&bp, &self.context.bookmark(self.object, 0, block), self.keep(&bp));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, sequential readers wait for every block, or random readers read what nobody wants.
    #[test]
    fn a_sequential_reader_gets_every_block_started_once_and_a_random_one_none() {
        let mut prefetcher = Prefetcher::default();
        let size = 128 << 10;
        let mut started = vec![0u32; 2000];
        for block in 0..1000u64 {
            for ahead in prefetcher.access(block, block, size, 1999) {
                assert!(ahead > block, "what was already asked for is not started again");
                started[ahead as usize] += 1;
            }
        }
        let counted = zfetch_stats();
        assert!(counted.hits >= 999 && counted.misses >= 1, "what users see as zfetchstats: {counted:?}");
        assert!(started[2..1000].iter().all(|&count| count == 1));
        assert!(started[1000..].iter().filter(|&&count| count > 0).count() as u64 <= DISTANCE_BYTES_MAX / size as u64);

        let mut random = Prefetcher::default();
        for block in (0..1000u64).map(|step| step * 7919 % 1999) {
            assert!(random.access(block, block, size, 1999).is_empty());
        }
    }

    /// If this fails, small reads inside one block are taken for a new stream each and nothing is read ahead.
    #[test]
    fn small_reads_within_a_block_continue_the_stream() {
        let mut prefetcher = Prefetcher::default();
        let mut started = 0;
        for read in 0..256u64 {
            started += prefetcher.access(read / 32, read / 32, 128 << 10, 10_000).count();
        }
        assert!(started >= 32);
        assert_eq!(prefetcher.streams.len(), 1);
    }
}
