//! Timers of the production executor: one thread that sleeps until the next is due, started with the first timer.

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
    running: bool,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Jobs that run later.
#[derive(Default)]
pub(crate) struct Timers(Arc<Shared>);

impl Timers {
    /// Hands `job` to `deliver` after `delay`; `deliver` is made when the timer thread starts.
    pub(crate) fn start(&self, delay: Duration, class: TaskClass, job: Job, deliver: impl FnOnce() -> Deliver) {
        let now = Instant::now();
        let due = now.checked_add(delay).unwrap_or(now + Duration::from_secs(1 << 30));
        let mut state = self.0.state.lock();
        state.started += 1;
        let key = (due, state.started);
        state.waiting.insert(key, (class, job));
        if !state.running {
            state.running = true;
            let (shared, deliver) = (self.0.clone(), deliver());
            std::thread::Builder::new()
                .name("z-timer".to_string())
                .spawn(move || run(&shared, &deliver))
                .expect("the system can start the timer thread");
        }
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
