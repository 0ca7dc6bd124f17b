//! Window of direct reads below a record: what a sequential reader takes in parts is read once, and kept for the parts that follow.
//!
//! A part of a record costs a read of the whole of it, for the checksum. Who goes forward in small steps would have a device read
//! each record as often as it has parts. So a record that was read for a *sequential* reader stays here for its neighbours: not in the
//! cache, and not for long. It goes when as many bytes were taken as it has (one device read never gives more than it brought), when
//! something changes its block, after two seconds, or when the object or the process keeps enough others. Random readers keep nothing.
//!
//! Invariant: a record is found by the pointer of its block, which the reader looked up before as for any other read. Bytes that a newer
//! write replaced are never found, however long they stay; that they go with the write is for their memory.

use crate::memory::Room;
use abd::Abd;
use exec::Mutex;
use ondisk::BlockPtr;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Readers of an object that are told apart; the one that rested longest makes room for another.
const STREAMS: usize = 8;
/// Requests by which those of a reader may be out of order.
const REORDER: u64 = 64;
/// Records that an object keeps at most.
const RECORDS: usize = 32;
/// Time for which a record is kept, in nanoseconds.
const KEPT_NS: u64 = 2_000_000_000;
/// Windows that the objects of a process may fill together.
const FULL_WINDOWS: u64 = 16;

static WINDOW: AtomicU64 = AtomicU64::new(8 << 20);

/// Sets the bytes of records that direct reads of one object may keep for the neighbours of what they read (`zirconia_direct_read_window`); all objects
/// of the process keep at most 16 times as many. 0 keeps none.
pub fn set_direct_read_window(bytes: u64) {
    WINDOW.store(bytes, Ordering::Relaxed);
}

/// Bytes that may be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of one object.
    pub object: u64,
    /// Bytes of all objects of the process.
    pub process: u64,
}

/// Bytes that may be kept now.
pub(super) fn limits() -> Limits {
    let object = WINDOW.load(Ordering::Relaxed);
    Limits { object, process: object.saturating_mul(FULL_WINDOWS) }
}

/// Reader that goes forward, perhaps not quite in order: how much of what lies behind it was read.
#[derive(Debug)]
struct Stream {
    start: u64,
    /// End of what was read furthest.
    next: u64,
    /// Bytes read between the two.
    bytes: u64,
    used_ns: u64,
}

impl Stream {
    /// Takes a read in; false when it is too far away to belong here.
    fn take(&mut self, range: &Range<u64>, now_ns: u64) -> bool {
        let length = range.end - range.start;
        let reach = length.saturating_mul(REORDER);
        if range.start > self.next.saturating_add(reach) || range.end.saturating_add(reach) < self.next {
            return false;
        }
        self.start = self.start.min(range.start);
        self.next = self.next.max(range.end);
        let span = self.next - self.start;
        self.bytes = (self.bytes + length).min(span);
        self.used_ns = now_ns;
        // What lies far behind counts less and less.
        if span > reach {
            self.start = self.next - span / 2;
            self.bytes /= 2;
        }
        true
    }

    /// True when most of the way was read, and more than the last request.
    fn is_sequential(&self, last: u64) -> bool {
        let span = self.next - self.start;
        span > last && self.bytes.saturating_mul(2) >= span
    }
}

/// A record kept.
#[derive(Debug)]
struct Kept {
    block: u64,
    bp: BlockPtr,
    data: Abd,
    /// Bytes that may still be taken.
    left: u64,
    until_ns: u64,
    _room: Room,
}

/// True for pointers of the same bytes. A clone's has another birth.
fn is_same(one: &BlockPtr, other: &BlockPtr) -> bool {
    one.dva(0) == other.dva(0) && one.physical_birth() == other.physical_birth() && one.checksum() == other.checksum()
}

#[derive(Debug, Default)]
struct Inner {
    streams: Vec<Stream>,
    /// Oldest first.
    kept: VecDeque<Kept>,
    /// True while somebody is to look after what is kept.
    is_watched: bool,
}

/// Records that an object keeps because parts of them were read.
#[derive(Debug, Default)]
pub(super) struct Window {
    inner: Mutex<Option<Box<Inner>>>,
    /// Number of records kept, to be looked at without the lock.
    count: AtomicUsize,
}

impl Window {
    /// Notes a direct read below a record; true when the records that it is read from are to be kept: its reader goes forward.
    pub(super) fn note(&self, range: &Range<u64>, now_ns: u64) -> bool {
        let mut inner = self.inner.lock();
        let streams = &mut inner.get_or_insert_default().streams;
        if let Some(stream) = streams.iter_mut().find_map(|stream| stream.take(range, now_ns).then_some(stream)) {
            return stream.is_sequential(range.end - range.start);
        }
        let stream = Stream { start: range.start, next: range.end, bytes: range.end - range.start, used_ns: now_ns };
        if streams.len() < STREAMS {
            streams.push(stream);
        } else if let Some(oldest) = streams.iter_mut().min_by_key(|stream| stream.used_ns) {
            *oldest = stream;
        }
        false
    }

    /// The block's bytes when they are kept, of which `length` are taken now.
    pub(super) fn take(&self, bp: &BlockPtr, length: u64, now_ns: impl Fn() -> u64) -> Option<Abd> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { self.spend(bp, length, now_ns()) }
    }

    /// Others took so many bytes of a block while it was read.
    pub(super) fn gave(&self, bp: &BlockPtr, bytes: u64) {
        drop(self.spend(bp, bytes, 0));
    }

    fn spend(&self, bp: &BlockPtr, bytes: u64, now_ns: u64) -> Option<Abd> {
        let mut inner = self.inner.lock();
        let kept = &mut inner.as_mut()?.kept;
        let at = kept.iter().rposition(|record| is_same(&record.bp, bp) && now_ns < record.until_ns)?;
        let record = kept.get_mut(at)?;
        let data = record.data.clone();
        record.left = record.left.saturating_sub(bytes);
        let spent = if record.left == 0 { kept.remove(at) } else { None };
        self.count.store(kept.len(), Ordering::Release);
        drop(inner);
        drop(spent);
        Some(data)
    }

    /// Keeps the bytes of a block, of which `given` were taken already, as far as the limits let it. Gives the nanoseconds after which somebody has to
    /// [`Window::expire`] it, unless somebody will.
    pub(super) fn keep(&self, (block, bp): (u64, &BlockPtr), (data, given): (&Abd, u64), limits: Limits, now_ns: u64) -> Option<u64> {
        let bytes = data.len() as u64;
        if given >= bytes || bytes > limits.object {
            return None;
        }
        let mut gone = Vec::new();
        let mut inner = self.inner.lock();
        let Inner { kept, is_watched, .. } = &mut **inner.get_or_insert_default();
        let mut held: u64 = kept.iter().map(|record| record.data.len() as u64).sum();
        while held + bytes > limits.object || kept.len() >= RECORDS {
            let Some(oldest) = kept.pop_front() else { break };
            held -= oldest.data.len() as u64;
            gone.push(oldest);
        }
        let room = Room::take(bytes, limits.process);
        let watch = room.and_then(|room| {
            kept.push_back(Kept { block, bp: *bp, data: data.clone(), left: bytes - given, until_ns: now_ns + KEPT_NS, _room: room });
            (!std::mem::replace(is_watched, true)).then_some(KEPT_NS)
        });
        self.count.store(kept.len(), Ordering::Release);
        drop(inner);
        drop(gone);
        watch
    }

    /// Lets go of records whose block has other bytes by now.
    pub(super) fn retain(&self, is_current: impl Fn(u64, &BlockPtr) -> bool) {
        self.let_go(|record| is_current(record.block, &record.bp));
    }

    /// Lets go of what was kept for long enough. Gives the nanoseconds after which somebody has to look again.
    pub(super) fn expire(&self, now_ns: u64) -> Option<u64> {
        self.let_go(|record| now_ns < record.until_ns);
        let mut inner = self.inner.lock();
        let inner = inner.as_mut()?;
        let next = inner.kept.iter().map(|record| record.until_ns).min();
        inner.is_watched = next.is_some();
        next.map(|until| until.saturating_sub(now_ns).max(1))
    }

    fn let_go(&self, stays: impl Fn(&Kept) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        let Some(kept) = inner.as_mut().map(|inner| &mut inner.kept) else { return };
        let (stay, gone): (VecDeque<Kept>, VecDeque<Kept>) = kept.drain(..).partition(stays);
        *kept = stay;
        self.count.store(kept.len(), Ordering::Release);
        drop(inner);
        drop(gone);
    }

    /// Bytes kept now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.inner.lock().iter().flat_map(|inner| &inner.kept).map(|record| record.data.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::{Dva, Txg, VdevId};

    const BYTES: u64 = 4096;

    fn block_at(offset: u64) -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, Dva { vdev: VdevId(0), offset, asize: BYTES, gang: false });
        bp.set_lsize(BYTES as usize);
        bp.set_birth(Txg(7), Txg(7));
        bp
    }

    fn keep(window: &Window, block: u64, object: u64, now_ns: u64) -> Option<u64> {
        let data = Abd::from_slice(&[block as u8; BYTES as usize]);
        window.keep((block, &block_at(block * BYTES)), (&data, 512), Limits { object, process: u64::MAX }, now_ns)
    }

    /// If this fails, readers of many files, or one that never comes back, take memory that nobody sees an end of.
    #[test]
    fn what_is_kept_is_bounded_by_bytes_number_time_and_use() {
        let window = Window::default();
        assert_eq!(keep(&window, 0, 3 * BYTES, 5), Some(KEPT_NS), "somebody has to look after the first");
        assert!((1..10).all(|block| keep(&window, block, 3 * BYTES, 5 + block).is_none()), "and looks after all");
        assert_eq!(window.bytes(), 3 * BYTES);
        assert!(window.take(&block_at(6 * BYTES), 512, || 20).is_none(), "the oldest went");
        assert_eq!(window.take(&block_at(7 * BYTES), 512, || 20).expect("kept").to_vec(), [7; BYTES as usize]);
        // Of 4096 bytes 512 were taken before it was kept, and 512 now.
        assert!((0..6).all(|_| window.take(&block_at(7 * BYTES), 512, || 20).is_some()));
        assert!(window.take(&block_at(7 * BYTES), 512, || 20).is_none(), "no more is given than was read");
        assert_eq!(window.bytes(), 2 * BYTES);
        window.gave(&block_at(8 * BYTES), BYTES);
        assert_eq!(window.bytes(), BYTES, "what others took while it was read counts");
        assert!(window.take(&block_at(9 * BYTES), 512, || 14 + KEPT_NS).is_none(), "too old, although nobody looked");
        assert_eq!(window.expire(13 + KEPT_NS), Some(1));
        assert_eq!((window.expire(14 + KEPT_NS), window.bytes()), (None, 0));
        assert_eq!(keep(&window, 1, 3 * BYTES, 5), Some(KEPT_NS), "nobody looks after it any more");
        assert_eq!((keep(&window, 2, BYTES - 1, 5), window.bytes()), (None, BYTES), "a record longer than the window");
        let many = Window::default();
        assert_eq!((0..100).filter_map(|block| keep(&many, block, 1 << 20, 5)).count(), 1);
        assert_eq!(many.bytes(), RECORDS as u64 * BYTES);
        let full = Limits { object: 1 << 20, process: BYTES - 1 };
        assert_eq!(many.keep((200, &block_at(200 * BYTES)), (&Abd::zeroed(BYTES as usize), 512), full, 5), None);
        assert!(many.take(&block_at(200 * BYTES), 1, || 6).is_none(), "all objects together have a limit, too");
    }

    /// If this fails, bytes of a block are given for another one that lies at the same place later, or for other bytes of it.
    #[test]
    fn a_record_is_found_by_the_whole_identity_of_its_block() {
        let window = Window::default();
        keep(&window, 3, 1 << 20, 5);
        let own = block_at(3 * BYTES);
        let mut clone = own;
        clone.set_birth(Txg(9), Txg(7));
        assert!(window.take(&clone, 1, || 6).is_some(), "a clone has the same bytes");
        let (mut later, mut other) = (own, own);
        later.set_birth(Txg(8), Txg(8));
        other.set_checksum([1, 2, 3, 4]);
        assert!([later, other, block_at(4 * BYTES)].iter().all(|bp| window.take(bp, 1, || 6).is_none()));
    }

    /// Share of reads, in percent, for which a window keeps what they read.
    fn sequential_percent(order: impl Iterator<Item = u64>, step: u64) -> usize {
        let window = Window::default();
        let kept: Vec<bool> = order.enumerate().map(|(at, part)| window.note(&(part * step..(part + 1) * step), at as u64)).collect();
        kept.iter().filter(|&&kept| kept).count() * 100 / kept.len()
    }

    /// If this fails, readers that go forward pay for each record many times, or random ones fill memory for nothing.
    #[test]
    fn readers_that_go_forward_are_told_from_random_ones() {
        for step in [4096, 32 << 10] {
            assert!(sequential_percent(0..1000, step) >= 99, "in order");
            assert!(sequential_percent((0..1000).map(|part| part ^ 7), step) >= 90, "by eights backwards");
            assert!(sequential_percent((0..1024).map(|part| (part & !31) | ((part * 11) & 31)), step) >= 90, "32 at a time, shuffled");
            // Eight readers of the file by turns.
            assert!(sequential_percent((0..4000).map(|at| at % 8 * 100_000 + at / 8), step) >= 98, "eight readers");
            assert_eq!(sequential_percent((0..4000).map(|at| at * 1009 % 4096), step), 0, "in strides");
            let mut seed = 3u64;
            let random = (0..4000).map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % 65_536
            });
            assert!(sequential_percent(random, step) <= 1, "at random");
        }
        let window = Window::default();
        assert!((0..100).all(|at| !window.note(&(4096..8192), at)), "the same place again and again is no way forward");
    }
}
