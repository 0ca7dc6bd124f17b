//! Graphs that ended for their user while the provider may still be at work on them: who must not use what they write to waits here.
//!
//! ```text
//! given up, or lost by a provider that lingers ──► at work ──the provider lets go, and its time is over──► over: everybody goes on
//! ```

use exec::Mutex;
use std::fmt;
use std::sync::Arc;

/// Step of somebody who waited. Must not wait.
pub type Onward = Box<dyn FnOnce() + Send>;

enum State {
    AtWork(Vec<Onward>),
    Over,
}

/// A graph that may still write to files and disks, though its report is there.
#[derive(Clone)]
pub struct Straggler(Arc<Mutex<State>>);

impl fmt::Debug for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(*self.0.lock(), State::Over) { "Straggler(over)" } else { "Straggler" })
    }
}

impl Straggler {
    /// One that is at work.
    pub(crate) fn new() -> Straggler {
        Straggler(Arc::new(Mutex::new(State::AtWork(Vec::new()))))
    }

    /// Has `onward` run once nothing of the graph can write any more: in a job, or now when that is so already.
    pub fn then(&self, onward: Onward) {
        let mut state = self.0.lock();
        if let State::AtWork(waiting) = &mut *state {
            waiting.push(onward);
            return;
        }
        drop(state);
        onward();
    }

    /// Ends it; gives those who waited.
    pub(crate) fn end(&self) -> Vec<Onward> {
        match std::mem::replace(&mut *self.0.lock(), State::Over) {
            State::AtWork(waiting) => waiting,
            State::Over => Vec::new(),
        }
    }
}
