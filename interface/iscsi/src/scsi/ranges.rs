//! Ranges of blocks that are being written: COMPARE AND WRITE and ORWRITE have theirs alone, plain writes share.
//!
//! Plain writes take the lock of one shard, which each session has nearly for itself; who wants a range alone stands in all of them.

use exec::Mutex;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

const SHARDS: usize = 16;

#[derive(Debug)]
struct Entry {
    id: u64,
    range: Range<u64>,
    is_exclusive: bool,
}

/// Ranges of one unit.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    shards: [Mutex<Vec<Entry>>; SHARDS],
    next: AtomicU64,
    waiters: Mutex<Vec<Waker>>,
    waiting: AtomicUsize,
}

/// A range that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    ranges: &'a Ranges,
    id: u64,
    shards: Range<usize>,
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Ranges {
    fn note(&self, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        waiters.push(waker.clone());
        self.waiting.store(waiters.len(), Ordering::SeqCst);
    }

    /// Holds `range` together with other shared holders; `session` chooses the shard.
    pub(crate) async fn shared(&self, session: u64, range: Range<u64>) -> Held<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let shard = (session % SHARDS as u64) as usize;
        let try_hold = || {
            let mut entries = self.shards[shard].lock();
            let is_free = !entries.iter().any(|entry| entry.is_exclusive && overlaps(&entry.range, &range));
            if is_free {
                entries.push(Entry { id, range: range.clone(), is_exclusive: false });
            }
            is_free
        };
        self.until(try_hold).await;
        Held { ranges: self, id, shards: shard..shard + 1 }
    }

    /// Holds `range` alone.
    pub(crate) async fn exclusive(&self, range: Range<u64>) -> Held<'_> {
        let id = {
            // The order of numbers is the order in the first shard: whoever comes later sees this one there.
            let mut first = self.shards[0].lock();
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            first.push(Entry { id, range: range.clone(), is_exclusive: true });
            id
        };
        for shard in &self.shards[1..] {
            shard.lock().push(Entry { id, range: range.clone(), is_exclusive: true });
        }
        let held = Held { ranges: self, id, shards: 0..SHARDS };
        let is_alone = || {
            let is_before = |entry: &Entry| overlaps(&entry.range, &range) && if entry.is_exclusive { entry.id < id } else { true };
            !self.shards.iter().any(|shard| shard.lock().iter().any(is_before))
        };
        self.until(is_alone).await;
        held
    }

    async fn until(&self, mut ready: impl FnMut() -> bool) {
        if ready() {
            return;
        }
        poll_fn(|context| {
            self.note(context.waker());
            if ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for shard in &self.ranges.shards[self.shards.clone()] {
            shard.lock().retain(|entry| entry.id != self.id);
        }
        if self.ranges.waiting.load(Ordering::SeqCst) > 0 {
            let woken = {
                let mut waiters = self.ranges.waiters.lock();
                self.ranges.waiting.store(0, Ordering::SeqCst);
                std::mem::take(&mut *waiters)
            };
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    /// If a plain write gets in between a compare and its write, a lock on disk of a cluster is held by two.
    #[test]
    fn an_exclusive_range_waits_for_the_others_and_keeps_them_out() {
        let ranges = Ranges::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(ranges.shared(1, 0..8)).poll(&mut context) else { panic!("nobody holds it") };
        let mut alone = pin!(ranges.exclusive(4..5));
        assert!(alone.as_mut().poll(&mut context).is_pending());
        let mut late = pin!(ranges.shared(2, 4..6));
        assert!(late.as_mut().poll(&mut context).is_pending(), "who waits to be alone is not overtaken");
        assert!(pin!(ranges.shared(2, 8..9)).poll(&mut context).is_ready(), "others are left alone");
        let mut second = pin!(ranges.exclusive(0..5));
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        let Poll::Ready(held) = alone.as_mut().poll(&mut context) else { panic!("it is alone") };
        assert!(late.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        drop(held);
        let Poll::Ready(held) = second.as_mut().poll(&mut context) else { panic!("it is alone") };
        drop(held);
        assert!(late.as_mut().poll(&mut context).is_ready());
    }
}
