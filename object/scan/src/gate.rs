//! The gate that every read of a scan passes: it bounds the bytes in flight, and the sync closes it to be alone.
//!
//! While it is closed nothing of the scan is in flight. So a block that was freed while it was being read cannot have been
//! given away again before the read ended: a txg's sync passes the closed gate, and freed space rests for longer than that.

use exec::{Exec, Mutex, WaitQueue};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct State {
    closed: bool,
    reads: u64,
    bytes: u64,
    waiting: u64,
}

/// The answer of [`Gate::try_enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The read may begin; [`Gate::leave`] when it ended.
    Granted,
    /// Too much is in flight: a read that ends goes on.
    Full,
    /// The sync wants to be alone.
    Closed,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: WaitQueue,
    bytes_max: AtomicU64,
}

impl Gate {
    pub(crate) fn new(bytes_max: u64) -> Gate {
        Gate { state: Mutex::default(), changed: WaitQueue::new(), bytes_max: AtomicU64::new(bytes_max) }
    }

    /// Bounds what begins from now on.
    pub(crate) fn set_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    fn has_room(&self, state: &State, bytes: u64) -> bool {
        state.reads == 0 || state.bytes + bytes <= self.bytes_max.load(Ordering::Relaxed)
    }

    /// Asks for a read of `bytes`, from a job.
    pub(crate) fn try_enter(&self, bytes: u64) -> Entry {
        let mut state = self.state.lock();
        if state.closed {
            return Entry::Closed;
        }
        if !self.has_room(&state, bytes) {
            return Entry::Full;
        }
        state.reads += 1;
        state.bytes += bytes;
        Entry::Granted
    }

    /// A read that was granted needs fewer bytes: these go back.
    pub(crate) fn give_back(&self, bytes: u64) {
        let wake = {
            let mut state = self.state.lock();
            state.bytes -= bytes;
            state.waiting > 0
        };
        if wake {
            self.changed.notify_all();
        }
    }

    /// Waits until a read of `bytes` may begin.
    pub(crate) fn enter(&self, exec: &Exec, bytes: u64) {
        while self.try_enter(bytes) != Entry::Granted {
            self.state.lock().waiting += 1;
            self.changed.wait_until(exec, &|| {
                let state = self.state.lock();
                !state.closed && self.has_room(&state, bytes)
            });
            self.state.lock().waiting -= 1;
        }
    }

    /// A read of `bytes` ended.
    pub(crate) fn leave(&self, bytes: u64) {
        let wake = {
            let mut state = self.state.lock();
            state.reads -= 1;
            state.bytes -= bytes;
            state.waiting > 0 || (state.closed && state.reads == 0)
        };
        if wake {
            self.changed.notify_all();
        }
    }

    /// Lets no read begin any more, and waits until none is in flight.
    pub(crate) fn close(&self, exec: &Exec) {
        self.state.lock().closed = true;
        self.changed.wait_until(exec, &|| self.state.lock().reads == 0);
    }

    /// Lets reads begin again.
    pub(crate) fn open(&self) {
        self.state.lock().closed = false;
        self.changed.notify_all();
    }

    /// Waits until the gate is open.
    pub(crate) fn wait_open(&self, exec: &Exec) {
        self.state.lock().waiting += 1;
        self.changed.wait_until(exec, &|| !self.state.lock().closed);
        self.state.lock().waiting -= 1;
    }
}
