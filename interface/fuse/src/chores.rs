//! Work that must not be done by a thread that answers requests: telling the kernel to forget pages (it waits for requests that
//! have them locked), waiting for a whole pool.
//!
//! Invariants: threads begin when there is work and end when there was none for a while; work is begun in the order in which
//! it came.

use exec::{Condvar, Exec, Job, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Time without work after which a thread ends.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// Threads for one kind of work.
pub(crate) struct Chores {
    exec: Exec,
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    wanted: Condvar,
}

impl Chores {
    pub fn new(exec: &Exec, name: &'static str, threads_max: usize) -> Arc<Chores> {
        Arc::new(Chores { exec: exec.clone(), name, threads_max, state: Mutex::default(), wanted: Condvar::new() })
    }

    /// Does `job` soon; returns at once.
    pub fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() || state.threads >= self.threads_max {
            self.wanted.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let own = self.clone();
        // Detached: it ends when there is nothing to do.
        if self.exec.spawn_alone(self.name, Box::new(move || own.run())).is_err() {
            self.go_on_without();
        }
    }

    /// Leaves the work to those who are there, or to whoever has time, where the system starts no thread.
    fn go_on_without(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.threads > 1 {
            state.threads -= 1;
            drop(state);
            return self.wanted.notify_one();
        }
        drop(state);
        let own = self.clone();
        drop(self.exec.spawn_operation(self.name, Box::new(move || own.run())));
    }

    /// True when there is no work, and nobody is at any.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && state.idle == state.threads
    }

    fn run(&self) {
        loop {
            let job = {
                let mut state = self.state.lock();
                loop {
                    if let Some(job) = state.queue.pop_front() {
                        break job;
                    }
                    state.idle += 1;
                    let waited = self.wanted.wait_for(&mut state, LINGER);
                    state.idle -= 1;
                    if waited.timed_out() && state.queue.is_empty() {
                        state.threads -= 1;
                        return;
                    }
                }
            };
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Chores;
    use std::sync::{Arc, mpsc};

    /// A notice that waits for a reader must not keep others of its kind when there may be more threads, and nothing is lost when
    /// there may not.
    #[test]
    fn work_is_done_by_as_many_threads_as_allowed() {
        let exec: exec::Exec = Arc::new(exec::Pool::new(1));
        let chores = Chores::new(&exec, "chores", 2);
        let (go, wait) = mpsc::channel::<()>();
        let (done, told) = mpsc::channel();
        chores.add(Box::new(move || {
            let _ = wait.recv();
        }));
        for number in 0..100 {
            let done = done.clone();
            chores.add(Box::new(move || {
                let _ = done.send(number);
            }));
        }
        assert_eq!(told.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>(), "one waits, the other works in order");
        drop(go);
        assert!(chores.state.lock().threads <= 2);
    }
}
