//! Threads for one kind of work that may wait, and must not be done by whoever it comes to: a thread that answers requests, a connection.
//!
//! Invariants: threads come with the work, up to a bound, and end when there was none for a while; work is begun in the order in which it came;
//! none is lost where the system starts no thread.

use crate::{Condvar, Exec, Job, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Time without work after which a thread ends.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// Threads for one kind of work.
pub struct Hands {
    exec: Exec,
    /// Name of the threads.
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    wanted: Condvar,
}

impl Hands {
    /// Makes them; there is no thread yet, and there will be so many at most.
    pub fn new(exec: &Exec, name: &'static str, threads_max: usize) -> Arc<Hands> {
        Arc::new(Hands { exec: exec.clone(), name, threads_max, state: Mutex::default(), wanted: Condvar::new() })
    }

    /// Does `job` soon, and returns at once; or does it here, where nothing runs in the background.
    pub fn give(self: &Arc<Self>, job: Job) {
        if self.exec.is_inline() {
            return job();
        }
        let mut state = self.state.lock();
        state.waiting.push_back(job);
        if state.idle >= state.waiting.len() || state.threads >= self.threads_max {
            drop(state);
            self.wanted.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let own = self.clone();
        // Detached: it ends when there is nothing to do.
        if self.exec.spawn_alone(self.name, Box::new(move || own.work())).is_err() {
            self.go_on_without();
        }
    }

    /// Leaves the work to those who are there, or to whoever has time, where the system starts no thread.
    fn go_on_without(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.threads > 1 {
            state.threads -= 1;
            drop(state);
            self.wanted.notify_one();
            return;
        }
        drop(state);
        let own = self.clone();
        drop(self.exec.spawn_operation(self.name, Box::new(move || own.work())));
    }

    /// True when there is no work, and nobody is at any.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.idle == state.threads
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    /// Next job; None when there is none for a while, and the thread does not count any more.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            let is_over = self.wanted.wait_for(&mut state, LINGER).timed_out();
            state.idle -= 1;
            if is_over && state.waiting.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inline, Pool};
    use std::sync::mpsc;

    /// If this fails, work that waits for a reader keeps others of its kind when there may be more threads, or something is lost when there may not.
    #[test]
    fn work_is_done_in_order_by_as_many_threads_as_allowed() {
        let exec: Exec = Arc::new(Pool::new(1));
        let hands = Hands::new(&exec, "z-test", 2);
        let (go, held) = mpsc::channel::<()>();
        let (done, told) = mpsc::channel();
        assert!(hands.is_idle());
        hands.give(Box::new(move || {
            let _ = held.recv();
        }));
        for number in 0..100 {
            let done = done.clone();
            hands.give(Box::new(move || {
                let _ = done.send(number);
            }));
        }
        assert_eq!(told.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>(), "one waits, the other works in order");
        assert!(!hands.is_idle() && hands.state.lock().threads <= 2);
        drop(go);
    }

    /// If this fails, a disk stands still after a burst of requests.
    #[test]
    fn all_work_is_done_also_while_some_of_it_waits() {
        let exec: Exec = Arc::new(Pool::new(2));
        let hands = Hands::new(&exec, "z-test", 16);
        let (done, results) = mpsc::channel();
        for round in 0..100u32 {
            for number in 0..4 {
                let done = done.clone();
                hands.give(Box::new(move || {
                    let _ = done.send(round * 4 + number);
                }));
            }
            for _ in 0..4 {
                results.recv_timeout(Duration::from_secs(30)).expect("it is done");
            }
        }
        assert!(hands.state.lock().threads <= 16);
    }

    /// If this fails, what a seed replays depends on threads.
    #[test]
    fn where_nothing_runs_in_the_background_work_is_done_here() {
        let exec: Exec = Arc::new(Inline::new(1));
        let (done, told) = mpsc::channel();
        Hands::new(&exec, "z-test", 1).give(Box::new(move || {
            let _ = done.send(());
        }));
        assert_eq!(told.try_recv(), Ok(()));
    }
}
