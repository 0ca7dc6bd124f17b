//! Reading ahead of readers that go forward, in order or nearly so.
//!
//! OpenZFS: `dmu_zfetch.c`. A few streams per object; a stream is the block where the next access is expected, and the ranges
//! beyond it that were read already: several threads or a network reorder requests, and some readers leave gaps. Once the gaps are
//! a small enough part, the stream goes on behind them. A hit doubles a stream's distance, from 4 MiB up to 64 MiB; new reads are
//! started when half of the distance has been used up.
//!
//! ```text
//!                 past        next          future ranges
//!   ────────────────┼───────────┼──────────▓▓▓▓──▓▓▓────────────┼──────►
//!    miss: new      │  nothing  │ hit at next, or future: kept  │  miss: new stream
//!    stream         ◄─ reorder ─┴─────────── reorder ───────────►
//! ```

use kstat::Counter;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranges that a stream remembers beyond its position (OpenZFS: `ZFETCH_RANGES`).
const RANGES: usize = 9;
/// A stream that was hit is not given up sooner than this (OpenZFS: `zfetch_min_sec_reap`).
const REAP_NS_MIN: u64 = 1_000_000_000;
/// An older stream knows no past, and is given up first (OpenZFS: `zfetch_max_sec_reap`).
const REAP_NS_MAX: u64 = 2_000_000_000;
/// From this shift on gaps are never skipped.
const HOLE_SHIFT_MAX: u64 = 16;

/// Distances and limits of reading ahead: OpenZFS's parameters of these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZfetchTunables {
    /// First distance in bytes (`zfetch_min_distance`).
    pub min_distance: u64,
    /// Largest distance in bytes (`zfetch_max_distance`).
    pub max_distance: u64,
    /// An access this many bytes from a stream's position still belongs to it (`zfetch_max_reorder`).
    pub max_reorder: u64,
    /// The part of what a stream passed that may be gaps, as a shift; from 16 on none (`zfetch_hole_shift`).
    pub hole_shift: u64,
    /// Streams per object (`zfetch_max_streams`).
    pub max_streams: u64,
    /// True to read nothing ahead (`zfs_prefetch_disable`).
    pub disable: bool,
}

impl Default for ZfetchTunables {
    fn default() -> ZfetchTunables {
        ZfetchTunables {
            min_distance: 4 << 20,
            max_distance: 64 << 20,
            max_reorder: 16 << 20,
            hole_shift: 2,
            max_streams: 8,
            disable: false,
        }
    }
}

static TUNABLES: [AtomicU64; 6] =
    [AtomicU64::new(4 << 20), AtomicU64::new(64 << 20), AtomicU64::new(16 << 20), AtomicU64::new(2), AtomicU64::new(8), AtomicU64::new(0)];

/// Changes the tunables of this process; streams go by them from their next access on.
pub fn set_zfetch_tunables(tunables: ZfetchTunables) {
    let ZfetchTunables { min_distance, max_distance, max_reorder, hole_shift, max_streams, disable } = tunables;
    let values = [min_distance, max_distance, max_reorder, hole_shift, max_streams, u64::from(disable)];
    TUNABLES.iter().zip(values).for_each(|(cell, value)| cell.store(value, Ordering::Relaxed));
}

fn tunables() -> ZfetchTunables {
    let [min_distance, max_distance, max_reorder, hole_shift, max_streams, disable] =
        [0, 1, 2, 3, 4, 5].map(|index: usize| TUNABLES[index].load(Ordering::Relaxed));
    ZfetchTunables { min_distance, max_distance, max_reorder, hole_shift, max_streams, disable: disable != 0 }
}

#[derive(Default)]
struct Counters {
    hits: Counter,
    future: Counter,
    stride: Counter,
    past: Counter,
    misses: Counter,
    max_streams: Counter,
    io_issued: Counter,
}

static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::default);

/// Counters of reading ahead in this process (OpenZFS: `zfetchstats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZfetchStats {
    /// Accesses that continued a stream.
    pub hits: u64,
    /// Accesses ahead of a stream that left gaps too large to skip.
    pub future: u64,
    /// Accesses ahead of a stream that made it go on behind the gaps.
    pub stride: u64,
    /// Accesses to what a stream has passed.
    pub past: u64,
    /// Accesses that belonged to no stream.
    pub misses: u64,
    /// Accesses, of those, that began no stream because others were busy.
    pub max_streams: u64,
    /// Blocks whose reads were asked for ahead of their readers.
    pub io_issued: u64,
}

/// The counters of reading ahead, over all objects of this process.
pub fn zfetch_stats() -> ZfetchStats {
    let Counters { hits, future, stride, past, misses, max_streams, io_issued } = &*COUNTERS;
    ZfetchStats {
        hits: hits.get(),
        future: future.get(),
        stride: stride.get(),
        past: past.get(),
        misses: misses.get(),
        max_streams: max_streams.get(),
        io_issued: io_issued.get(),
    }
}

/// A read of some blocks of an object, as the prefetcher sees it.
pub(super) struct Access {
    pub blocks: Range<u64>,
    /// Block size in bytes.
    pub block_size: u64,
    /// Last block of the object.
    pub max_block: u64,
    pub now_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    /// Block at which the next access is expected.
    next: u64,
    /// Block ranges beyond `next` that were read already, in order; no two touch.
    ranges: Vec<Range<u64>>,
    /// Blocks before this one were started.
    ahead: u64,
    /// Distance to read ahead, in blocks.
    distance: u64,
    /// Time of the last hit in nanoseconds; None before the first hit.
    hit_ns: Option<u64>,
}

/// Relation of an access to a stream.
enum Relation {
    Continues,
    Ahead,
    Behind,
    None,
}

impl Stream {
    fn relation(&self, access: &Access, tunables: &ZfetchTunables) -> Relation {
        let reorder = (tunables.max_reorder / access.block_size + 1).min(u64::from(u16::MAX));
        let Range { start, end } = access.blocks;
        if start <= self.next && end >= self.next {
            Relation::Continues
        } else if start > self.next {
            if end <= self.next + reorder { Relation::Ahead } else { Relation::None }
        } else if end + reorder > self.next && self.hit_ns.is_some_and(|hit| access.now_ns.saturating_sub(hit) <= REAP_NS_MAX) {
            Relation::Behind
        } else {
            Relation::None
        }
    }

    /// Goes on to `end`, and over what was read there already.
    fn advance(&mut self, end: u64) {
        self.next = end;
        let passed = self.ranges.iter().take_while(|range| range.start <= end).count();
        if let Some(last) = self.ranges.drain(..passed).next_back() {
            self.next = end.max(last.end);
        }
    }

    /// Remembers an access ahead. True when the gaps are few enough by now: then the stream went on behind them.
    fn note_ahead(&mut self, blocks: &Range<u64>, hole_shift: u64) -> bool {
        let from = self.ranges.iter().take_while(|range| range.end < blocks.start).count();
        let touching = self.ranges[from..].iter().take_while(|range| range.start <= blocks.end).count();
        if touching > 0 {
            let start = blocks.start.min(self.ranges[from].start);
            let end = blocks.end.max(self.ranges[from + touching - 1].end);
            self.ranges.splice(from..from + touching, std::iter::once(start..end));
        } else if self.ranges.len() < RANGES {
            self.ranges.insert(from, blocks.clone());
        } else {
            return false;
        }
        if hole_shift >= HOLE_SHIFT_MAX {
            return false;
        }
        let (mut at, mut gaps, mut reached) = (self.next, 0, None);
        for range in &self.ranges {
            gaps += range.start - at;
            at = range.end;
            if gaps <= (at - self.next) >> hole_shift {
                reached = Some(at);
            }
        }
        reached.inspect(|&end| self.advance(end)).is_some()
    }

    /// The blocks to start now that the stream went on.
    fn read_ahead(&mut self, access: &Access, tunables: &ZfetchTunables) -> Range<u64> {
        let blocks = |bytes: u64| (bytes / access.block_size).max(1);
        let max = blocks(tunables.max_distance);
        self.distance = (self.distance * 2).clamp(blocks(tunables.min_distance).min(max), max);
        let start = self.ahead.max(self.next);
        let end = (self.next + self.distance).min(access.max_block + 1);
        if start - self.next > self.distance / 2 || start >= end {
            return 0..0;
        }
        self.ahead = end;
        start..end
    }
}

/// The streams of one object.
#[derive(Debug, Default)]
pub(super) struct Prefetcher {
    streams: Vec<Stream>,
}

impl Prefetcher {
    /// Notes an access by the tunables in effect; gives the blocks to start now.
    pub(super) fn note(&mut self, access: Access) -> Range<u64> {
        let ahead = self.access(access, &tunables());
        if !ahead.is_empty() {
            COUNTERS.io_issued.add(ahead.end - ahead.start);
        }
        ahead
    }

    /// Notes an access; gives the blocks to start now.
    fn access(&mut self, access: Access, tunables: &ZfetchTunables) -> Range<u64> {
        if tunables.disable || tunables.max_distance == 0 {
            return 0..0;
        }
        // The stream that expects just this comes first; small reads touch a block several times.
        let Range { start, end } = access.blocks;
        let exact = self.streams.iter().position(|stream| start == stream.next || start + 1 == stream.next);
        let found = match exact {
            Some(index) => Some((index, Relation::Continues)),
            None => {
                let mut related = self.streams.iter().map(|stream| stream.relation(&access, tunables)).enumerate();
                related.find(|(_, relation)| !matches!(relation, Relation::None))
            }
        };
        let Some((index, relation)) = found else {
            COUNTERS.misses.bump();
            if end < access.max_block {
                self.begin(end, &access, tunables);
            }
            return 0..0;
        };
        let stream = &mut self.streams[index];
        stream.hit_ns = Some(access.now_ns);
        let went_on = match relation {
            Relation::Ahead if stream.note_ahead(&access.blocks, tunables.hole_shift) => {
                COUNTERS.stride.bump();
                true
            }
            Relation::Ahead => {
                COUNTERS.future.bump();
                false
            }
            Relation::Continues => {
                COUNTERS.hits.bump();
                let is_new = end > stream.next;
                if is_new {
                    stream.advance(end);
                }
                is_new
            }
            Relation::Behind | Relation::None => {
                COUNTERS.past.bump();
                false
            }
        };
        if !went_on {
            return 0..0;
        }
        let ahead = stream.read_ahead(&access, tunables);
        if stream.next > access.max_block {
            self.streams.swap_remove(index);
        }
        ahead
    }

    /// A stream that expects `next`, in place of one that was never hit or not for long when there are many.
    fn begin(&mut self, next: u64, access: &Access, tunables: &ZfetchTunables) {
        let stream = Stream { next, ahead: next, ..Stream::default() };
        let age = |stream: &Stream| stream.hit_ns.map_or(u64::MAX, |hit| access.now_ns.saturating_sub(hit));
        if self.streams.len() < tunables.max_streams as usize {
            return self.streams.push(stream);
        }
        match self.streams.iter_mut().max_by_key(|stream| age(stream)) {
            Some(oldest) if age(oldest) > REAP_NS_MIN => *oldest = stream,
            _ => COUNTERS.max_streams.bump(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 128 << 10;

    fn read(prefetcher: &mut Prefetcher, blocks: Range<u64>) -> Range<u64> {
        prefetcher.access(Access { blocks, block_size: SIZE, max_block: 1999, now_ns: 1 }, &ZfetchTunables::default())
    }

    /// If this fails, sequential readers wait for every block, or random readers read what nobody wants.
    #[test]
    fn a_sequential_reader_gets_every_block_started_once_and_a_random_one_none() {
        let mut prefetcher = Prefetcher::default();
        let mut started = vec![0u32; 2000];
        for block in 0..1000u64 {
            for ahead in read(&mut prefetcher, block..block + 1) {
                assert!(ahead > block, "what was already asked for is not started again");
                started[ahead as usize] += 1;
            }
        }
        let counted = zfetch_stats();
        assert!(counted.hits >= 999 && counted.misses >= 1, "what users see as zfetchstats: {counted:?}");
        assert!(started[2..1000].iter().all(|&count| count == 1));
        assert!(started[1000..].iter().filter(|&&count| count > 0).count() as u64 <= ZfetchTunables::default().max_distance / SIZE);

        let mut random = Prefetcher::default();
        for block in (0..1000u64).map(|step| step * 7919 % 1999) {
            assert!(read(&mut random, block..block + 1).is_empty());
        }
    }

    /// If this fails, small reads inside one block are taken for a new stream each and nothing is read ahead.
    #[test]
    fn small_reads_within_a_block_continue_the_stream() {
        let mut prefetcher = Prefetcher::default();
        let started: u64 = (0..256u64).map(|n| read(&mut prefetcher, n / 32..n / 32 + 1)).map(|ahead| ahead.end - ahead.start).sum();
        assert!(started >= 32);
        assert_eq!(prefetcher.streams.len(), 1);
    }

    /// Number of blocks 100..1000 that were started before their turn when reading `order`, and the number read.
    fn in_time(order: impl Iterator<Item = u64>, tunables: &ZfetchTunables) -> (usize, usize) {
        let mut prefetcher = Prefetcher::default();
        let mut started = std::collections::BTreeSet::new();
        let (mut hit, mut all) = (0, 0);
        for block in order.filter(|&block| block < 1000) {
            if block >= 100 {
                all += 1;
                hit += usize::from(started.contains(&block));
            }
            let access = Access { blocks: block..block + 1, block_size: SIZE, max_block: 1999, now_ns: 1 };
            for ahead in prefetcher.access(access, tunables) {
                assert!(started.insert(ahead), "block {ahead} is started twice");
            }
        }
        (hit, all)
    }

    /// If this fails, readers with several threads, over a network, or that skip headers get nothing read ahead.
    #[test]
    fn readers_out_of_order_and_with_gaps_are_streams() {
        let tunables = ZfetchTunables::default();
        let complete = |order: &mut dyn Iterator<Item = u64>| {
            let (hit, all) = in_time(order, &tunables);
            assert!(all > 600 && hit * 100 >= all * 99, "{hit} of {all} in time");
        };
        // Neighbours swapped; groups of eight backwards; groups of sixteen shuffled.
        complete(&mut (0..1000u64).map(|n| n ^ 1));
        complete(&mut (0..1000u64).map(|n| n ^ 7));
        complete(&mut (0..1000u64).map(|n| (n & !15) | ((n * 11) & 15)));
        // Every fourth or eighth block is left out.
        complete(&mut (0..1000u64).filter(|n| n % 4 != 3));
        complete(&mut (0..1000u64).filter(|n| n % 8 != 5));
        // One of eight is read: reading ahead would cost more than it gives.
        assert_eq!(in_time((0..1000u64).filter(|n| n % 8 == 0), &tunables).0, 0);
        // An administrator who wants no gaps filled gets none.
        let strict = ZfetchTunables { hole_shift: 16, ..tunables };
        let (hit, all) = in_time((0..1000u64).filter(|n| n % 4 != 3), &strict);
        assert!(hit * 100 < all * 80, "{hit} of {all} although no gap may be filled");
        let off = ZfetchTunables { disable: true, ..tunables };
        assert_eq!(in_time(0..1000u64, &off).0, 0);
        let counted = zfetch_stats();
        assert!(counted.future > 0 && counted.stride > 0 && counted.past > 0, "{counted:?}");
    }

    /// If this fails, `zfetch_max_distance` does not limit how much memory a reader takes.
    #[test]
    fn distances_follow_the_tunables() {
        let tunables = ZfetchTunables { min_distance: 1 << 20, max_distance: 2 << 20, max_streams: 2, ..ZfetchTunables::default() };
        let mut prefetcher = Prefetcher::default();
        let mut access = |block: u64, now_ns: u64| {
            let ahead = prefetcher.access(Access { blocks: block..block + 1, block_size: SIZE, max_block: 9999, now_ns }, &tunables);
            (ahead, prefetcher.streams.len())
        };
        assert_eq!(access(0, 1).0, 0..0);
        assert_eq!(access(1, 1).0, 2..10);
        for block in 2..200u64 {
            let ahead = access(block, 1).0;
            assert!(ahead.is_empty() || ahead.end <= block + 1 + 16, "{ahead:?} at {block}");
        }
        // Two busy streams; a third reader gets none until one of them rests.
        assert_eq!((access(5000, 1).1, access(5001, 1).1), (2, 2));
        let before = zfetch_stats().max_streams;
        assert_eq!((access(8000, 2).1, access(8001, 2).0), (2, 0..0));
        assert!(zfetch_stats().max_streams > before);
        access(8000, 3_000_000_000);
        assert_eq!(access(8001, 3_000_000_000).0, 8002..8010);
    }
}
