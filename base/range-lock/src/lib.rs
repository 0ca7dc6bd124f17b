//! Byte-range locks of one file or volume: any number of readers, or one writer, of overlapping ranges (OpenZFS: `zfs_rlock.c`).
//!
//! Operations wait here; jobs only let go (a direct transfer keeps its range until the disks are done). The list holds one entry per operation in progress on it.
#![forbid(unsafe_code)]

use exec::{Exec, Mutex, WaitQueue};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
struct Held {
    ticket: u64,
    range: Range<u64>,
    writer: bool,
}

#[derive(Debug, Default)]
struct State {
    held: Vec<Held>,
    next: u64,
    waiting: u32,
}

/// Locks of ranges of a file or volume.
#[derive(Debug, Default)]
pub struct RangeLock {
    state: Mutex<State>,
    freed: WaitQueue,
}

/// Lock that is held; dropping it, on any thread, lets the next one in.
#[derive(Debug)]
pub struct RangeGuard {
    lock: Arc<RangeLock>,
    ticket: u64,
}

impl RangeLock {
    /// Ticket of a range that is held from now on; None when somebody holds a clashing one.
    fn enter(&self, range: &Range<u64>, writer: bool) -> Option<u64> {
        let mut state = self.state.lock();
        let clash = |held: &Held| (writer || held.writer) && held.range.start < range.end && range.start < held.range.end;
        if state.held.iter().any(clash) {
            return None;
        }
        let ticket = state.next;
        state.next += 1;
        state.held.push(Held { ticket, range: range.clone(), writer });
        Some(ticket)
    }

    /// Locks a range as [`RangeLock::lock`] does, without waiting: None when somebody holds a clashing one.
    pub fn try_lock(self: &Arc<Self>, range: Range<u64>, writer: bool) -> Option<RangeGuard> {
        let ticket = self.enter(&range, writer)?;
        Some(RangeGuard { lock: self.clone(), ticket })
    }

    /// Locks a range of bytes, shared among readers or for one `writer`; waits until nobody holds a clashing one.
    pub fn lock(self: &Arc<Self>, exec: &Exec, range: Range<u64>, writer: bool) -> RangeGuard {
        if let Some(guard) = self.try_lock(range.clone(), writer) {
            return guard;
        }
        self.state.lock().waiting += 1;
        let got = Mutex::new(None);
        self.freed.wait_until(exec, &|| {
            let mut got = got.lock();
            if got.is_none() {
                *got = self.enter(&range, writer);
            }
            got.is_some()
        });
        self.state.lock().waiting -= 1;
        let ticket = got.into_inner().unwrap_or_default();
        RangeGuard { lock: self.clone(), ticket }
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        state.held.retain(|held| held.ticket != self.ticket);
        let wake = state.waiting > 0;
        drop(state);
        if wake {
            self.lock.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RangeLock;
    use std::sync::Arc;

    /// Two writers in one range would tear each other's records.
    #[test]
    fn writers_exclude_each_other_and_readers_share() {
        let lock: Arc<RangeLock> = Arc::default();
        let exec: exec::Exec = Arc::new(exec::Inline::new(1));
        let first = lock.lock(&exec, 0..10, false);
        let second = lock.lock(&exec, 5..20, false);
        assert!(lock.enter(&(8..9), true).is_none());
        assert!(lock.enter(&(20..30), true).is_some());
        drop((first, second));
        assert!(lock.enter(&(8..9), true).is_some());
        assert!(lock.enter(&(0..100), false).is_none());
    }

    /// If this fails, who must not wait reads what is half written, or keeps a writer out for ever.
    #[test]
    fn who_does_not_wait_gets_only_what_nobody_clashes_with() {
        let lock: Arc<RangeLock> = Arc::default();
        let exec: exec::Exec = Arc::new(exec::Inline::new(1));
        let writer = lock.lock(&exec, 0..10, true);
        assert!(lock.try_lock(9..20, false).is_none());
        let reader = lock.try_lock(10..20, false).expect("nobody clashes");
        assert!(lock.try_lock(15..16, true).is_none() && lock.try_lock(15..16, false).is_some());
        drop((writer, reader));
        assert!(lock.try_lock(0..20, true).is_some(), "it is let go with its guard");
    }
}
