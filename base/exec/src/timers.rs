//! Timers of the production executor: one thread that sleeps until the next is due, started with the executor.

use crate::threads::Start;
use crate::{Job, TaskClass};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Port that due jobs go to; false when nobody takes them any more.
pub(crate) type Deliver = Box<dyn Fn(TaskClass, Job) -> bool + Send>;

#[derive(Default)]
struct State {
    /// Jobs by due time, then by the order of their start.
    waiting: BTreeMap<(Instant, u64), (TaskClass, Job)>,
    started: u64,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Jobs that run later.
pub(crate) struct Timers(Arc<Shared>);

impl Timers {
    /// Timers that hand their jobs to `deliver`.
    ///
    /// # Errors
    /// Those of the system, which starts no thread.
    pub(crate) fn new(start: &Start, deliver: Deliver) -> std::io::Result<Timers> {
        let timers = Timers(Arc::default());
        let shared = timers.0.clone();
        start("z-timer", Box::new(move || run(&shared, &deliver)))?;
        Ok(timers)
    }

    /// Hands `job` on after `delay`.
    pub(crate) fn start(&self, delay: Duration, class: TaskClass, job: Job) {
        let now = Instant::now();
        let due = now.checked_add(delay).unwrap_or(now + Duration::from_secs(1 << 30));
        let mut state = self.0.state.lock();
        state.started += 1;
        let key = (due, state.started);
        state.waiting.insert(key, (class, job));
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.0.state.lock().stopping = true;
        self.0.changed.notify_one();
    }
}

fn run(shared: &Shared, deliver: &Deliver) {
    let mut state = shared.state.lock();
    while !state.stopping {
        let Some((due, _)) = state.waiting.first_key_value().map(|(key, _)| *key) else {
            shared.changed.wait(&mut state);
            continue;
        };
        if due > Instant::now() {
            shared.changed.wait_until(&mut state, due);
            continue;
        }
        let Some((_, (class, job))) = state.waiting.pop_first() else { continue };
        drop(state);
        if !deliver(class, job) {
            return;
        }
        state = shared.state.lock();
    }
    let left = std::mem::take(&mut state.waiting);
    drop(state);
    drop(left);
}
