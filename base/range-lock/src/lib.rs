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
    fn try_lock(&self, range: &Range<u64>, writer: bool) -> Option<u64> {
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

    /// Locks a range of bytes, shared among readers or for one `writer`; waits until nobody holds a clashing one.
    pub fn lock(self: &Arc<Self>, exec: &Exec, range: Range<u64>, writer: bool) -> RangeGuard {
        if let Some(ticket) = self.try_lock(&range, writer) {
            return RangeGuard { lock: self.clone(), ticket };
        }
        self.state.lock().waiting += 1;
        let got = Mutex::new(None);
        self.freed.wait_until(exec, &|| {
            let mut got = got.lock();
            if got.is_none() {
                *got = self.try_lock(&range, writer);
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
        assert!(lock.try_lock(&(8..9), true).is_none());
        assert!(lock.try_lock(&(20..30), true).is_some());
        drop((first, second));
        assert!(lock.try_lock(&(8..9), true).is_some());
        assert!(lock.try_lock(&(0..100), false).is_none());
    }
}
