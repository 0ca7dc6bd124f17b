//! The daemon's start: requests are answered while the pools of the last time are still being opened.
//!
//! A pool that is not open yet is listed as one that cannot be opened now ([`crate::pool::absent`]), with that as the reason. Who asks waits for it a
//! moment, who wants to change it waits longer, and nobody takes its name or devices meanwhile.

use crate::failure::because;
use crate::requests::{About, about};
use control_api::{ErrorKind, Failure, Request};
use exec::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nanoseconds that a request which only looks waits for pools: it is answered within a second.
const LOOK_NS: u64 = 700_000_000;
/// Nanoseconds that a request which changes something waits for the pools that it is about.
const CHANGE_NS: u64 = 30_000_000_000;
/// Nanoseconds that a daemon which is to end waits for the pool that is being opened.
const END_NS: u64 = 30_000_000_000;

#[derive(Debug, Default)]
struct State {
    /// Names of pools that were not tried yet.
    left: BTreeSet<String>,
    is_running: bool,
    has_begun: bool,
}

/// Pools of the last time that are being opened at the daemon's start.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    state: Mutex<State>,
    changed: Condvar,
}

impl Opening {
    /// Waits until `is_done`, up to a time; false when it is not.
    fn wait(&self, exec: &exec::Exec, time_ns: u64, is_done: impl Fn(&State) -> bool) -> bool {
        let until = exec.now_ns().saturating_add(time_ns);
        let mut state = self.state.lock();
        loop {
            if is_done(&state) {
                return true;
            }
            let left = until.saturating_sub(exec.now_ns());
            if left == 0 {
                return false;
            }
            self.changed.wait_for(&mut state, Duration::from_nanos(left));
        }
    }

    /// True for a pool that was not tried yet.
    pub(crate) fn is_left(&self, name: &str) -> bool {
        self.state.lock().left.contains(name)
    }

    /// True while pools of the last time are being opened and mounted.
    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    /// True once all pools of the last time were opened, or tried.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.has_begun && !state.is_running
    }

    /// Waits for the end, up to a while.
    pub(crate) fn wait_for_end(&self, exec: &exec::Exec) {
        self.wait(exec, END_NS, |state| !state.is_running);
    }

    /// Begins the opening of these pools.
    pub(crate) fn begin(&self, names: &[String]) {
        *self.state.lock() = State { left: names.iter().cloned().collect(), is_running: true, has_begun: true };
    }

    /// Ends the opening of all pools.
    pub(crate) fn end(&self) {
        *self.state.lock() = State { has_begun: true, ..State::default() };
        self.changed.notify_all();
    }

    /// Waits for the pools that a request is about and that are being opened.
    pub(crate) fn await_pools(&self, exec: &exec::Exec, request: &Request) -> Result<(), Failure> {
        let about = about(request);
        let is_done = |state: &State| match &about {
            About::Nothing => true,
            About::Pools(names) => !names.iter().any(|name| state.left.contains(*name)),
            About::Everything => state.left.is_empty(),
        };
        let time_ns = if request.changes() { CHANGE_NS } else { LOOK_NS };
        if self.wait(exec, time_ns, is_done) || !request.changes() {
            return Ok(());
        }
        let what = "cannot change anything yet";
        Err(because(ErrorKind::Busy, what, "pools of the last time are still being opened").advise("'zpool list' shows which; try again"))
    }
}
