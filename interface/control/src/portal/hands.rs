//! Threads that carry out the requests of one disk: what goes through the cache, or waits for a transaction, may not hold up a connection.
//!
//! Each disk has its own, so that requests that wait for a suspended pool hold up nobody else's. They come with the work, up to a bound, and go
//! when there is none for a while.

use exec::{Condvar, Exec, Job, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Number of threads of a disk, at most.
const THREADS_MAX: usize = 16;
/// Time for which a thread waits for more to do.
const LINGER: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// Work of a disk, and those who do it.
pub(super) struct Hands {
    exec: Exec,
    /// Name of the threads.
    name: &'static str,
    state: Mutex<State>,
    changed: Condvar,
}

impl Hands {
    pub(super) fn new(exec: &Exec, name: &'static str) -> Arc<Hands> {
        Arc::new(Hands { exec: exec.clone(), name, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Has a job done that may wait; at once, where nothing runs in the background.
    pub(super) fn give(self: &Arc<Self>, job: Job) {
        if self.exec.is_inline() {
            return job();
        }
        let mut state = self.state.lock();
        state.waiting.push_back(job);
        if state.idle >= state.waiting.len() {
            drop(state);
            return self.changed.notify_one();
        }
        if state.threads == THREADS_MAX {
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
            return self.changed.notify_one();
        }
        drop(state);
        let own = self.clone();
        drop(self.exec.spawn_operation(self.name, Box::new(move || own.work())));
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
            let is_over = self.changed.wait_for(&mut state, LINGER).timed_out();
            state.idle -= 1;
            if is_over && state.waiting.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// If this fails, a disk stands still after a burst of requests, or while some of them wait.
    #[test]
    fn all_work_is_done_also_while_some_of_it_waits() {
        let exec: Exec = Arc::new(exec::Pool::new(2));
        let hands = Hands::new(&exec, "z-test");
        let (done, results) = mpsc::channel();
        let (go, held) = mpsc::channel::<()>();
        hands.give(Box::new(move || {
            let _ = held.recv();
        }));
        for round in 0..100u32 {
            for number in 0..4 {
                let done = done.clone();
                hands.give(Box::new(move || done.send(round * 4 + number).expect("somebody listens")));
            }
            for _ in 0..4 {
                results.recv_timeout(Duration::from_secs(30)).expect("it is done");
            }
        }
        assert!(hands.state.lock().threads <= THREADS_MAX);
        drop(go);
    }
}
