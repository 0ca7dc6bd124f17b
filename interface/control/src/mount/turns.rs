//! One command at a time mounts and unmounts, in all pools, as file systems of one lie in those of another: nothing comes or goes between
//! the look at what is where and the mount that it led to.
//!
//! Whoever serves requests of mounts needs no turn: one who has it may wait for them. A pool that waits for a device does not hold up the
//! others for good: who gets nowhere for a while has had its turn.

use crate::mount::patience::Patience;
use exec::{Condvar, Exec, Mutex};
use std::time::Duration;

/// Pause between two looks at whoever has the turn.
const STEP: Duration = Duration::from_millis(100);
/// Nanoseconds without a mount or unmount after which whoever has the turn may wait for a device for good.
const STALL_NS: u64 = 5_000_000_000;
/// Nanoseconds of the same while a pool is suspended.
const SUSPENDED_NS: u64 = 500_000_000;

#[derive(Default)]
struct State {
    holder: Option<u64>,
    /// Number of turns that there were.
    count: u64,
    /// Number of mounts and unmounts by any of them.
    steps: u64,
}

/// Turns at mounting and unmounting, one at a time.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// Right to mount and unmount.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    /// Patience with all that is unmounted in this turn.
    pub patience: Patience,
}

impl Turn<'_> {
    /// Counts something that was mounted or unmounted.
    pub fn step(&self) {
        self.turns.state.lock().steps += 1;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        // Somebody else may have it: see the header.
        if state.holder == Some(self.number) {
            state.holder = None;
            self.turns.changed.notify_one();
        }
    }
}

impl Turns {
    /// Waits for the turn. Whoever has it does not ask again. `is_suspended` says whether some pool is suspended.
    pub(crate) fn turn(&self, exec: &Exec, is_suspended: &dyn Fn() -> bool) -> Turn<'_> {
        let mut state = self.state.lock();
        let (mut seen, mut since) = ((state.holder, state.steps), exec.now_ns());
        while state.holder.is_some() {
            self.changed.wait_for(&mut state, STEP);
            let now = exec.now_ns();
            if seen != (state.holder, state.steps) {
                (seen, since) = ((state.holder, state.steps), now);
            }
            drop(state);
            let is_stalled = now - since > if is_suspended() { SUSPENDED_NS } else { STALL_NS };
            state = self.state.lock();
            if is_stalled && seen == (state.holder, state.steps) {
                break;
            }
        }
        state.count += 1;
        state.holder = Some(state.count);
        Turn { turns: self, number: state.count, patience: Patience::new(exec) }
    }
}
