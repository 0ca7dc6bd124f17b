//! The end of a session: who waits for it.

use exec::{Condvar, Exec, Mutex};
use std::time::Duration;

/// Between looks at the clock of somebody who waits.
const STEP: Duration = Duration::from_millis(50);

/// Whether every request was answered and the handler was told.
#[derive(Default)]
pub(crate) struct Ended {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    pub fn is_over(&self) -> bool {
        *self.is_over.lock()
    }

    pub fn tell(&self) {
        *self.is_over.lock() = true;
        self.changed.notify_all();
    }

    /// Waits as long as `patience_ns`; false when it is not over by then.
    pub fn wait(&self, exec: &Exec, patience_ns: u64) -> bool {
        let until = exec.now_ns().saturating_add(patience_ns);
        let mut is_over = self.is_over.lock();
        while !*is_over && exec.now_ns() < until {
            self.changed.wait_for(&mut is_over, STEP.min(Duration::from_nanos(patience_ns)));
        }
        *is_over
    }
}
