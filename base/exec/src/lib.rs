//! Where and when work runs: executors, one-shot completions, the clock, randomness and locks.
//!
//! Rules of the road:
//! 1. a *job* runs to completion and never waits;
//! 2. only *operations* (threads of users, the txg sync) wait, through [`Completion::wait`] or [`WaitQueue::wait_until`];
//! 3. no engine lock is held across a wait, except those named in the header of the crate that does so;
//! 4. time, randomness, threads and locks come from here, so that [`Inline`] replays a seed exactly.
#![forbid(unsafe_code)]

mod completion;
mod crew;
mod hands;
mod inline;
mod locks;
mod lockstep;
mod pool;
mod random;
#[cfg(test)]
mod tests;
mod threads;
mod timers;

pub use completion::{Completer, Completion, WaitQueue, completion};
pub use crew::Crew;
pub use hands::Hands;
pub use inline::Inline;
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
pub use lockstep::{Lockstep, yield_point};
pub use pool::{Pool, system_clock};
pub use random::SplitMix;
pub use threads::{NoThread, lacks_threads, missing_threads};

use std::sync::Arc;

/// A unit of work that runs to completion and never waits.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Purpose of a job; executors may give each class its own queue and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskClass {
    /// Completion of a device I/O that somebody may wait for, and anything else an interactive operation waits for.
    Interrupt,
    /// Reads issued on behalf of users.
    Read,
    /// Work of writes: compress, checksum, parity, allocate, issue; the ends of those of transaction groups.
    Write,
    /// Frees and other deferred work.
    Free,
    /// Work of scrub, resilver, trim: yields to everything else.
    Background,
}

/// The seam between the engine and the threads that run it.
pub trait Executor: Send + Sync {
    /// Queues `job`; it runs later on any thread of the executor.
    fn spawn(&self, class: TaskClass, job: Job);
    /// Queues `job` once `delay_ns` nanoseconds have passed: virtual ones under [`Inline`], where the clock jumps to the
    /// next timer when nothing else is runnable.
    fn spawn_after(&self, delay_ns: u64, class: TaskClass, job: Job);
    /// Runs queued jobs on this thread until `ready` is true, or parks in `park` when other threads do the work.
    /// `park` returns when the state behind `ready` may have changed.
    fn wait(&self, ready: &dyn Fn() -> bool, park: &dyn Fn());
    /// Starts a long-running operation (one that may wait). Where the system starts no thread it runs on one that is there already, once that is free,
    /// or on that of whoever joins it: it changes nothing of its thread. Under [`Inline`] it panics: drivers call such work themselves.
    fn spawn_operation(&self, name: &str, operation: Job) -> OperationHandle;
    /// Starts an operation on a thread that is its own from beginning to end: one that changes the thread, or that others can do without.
    ///
    /// # Errors
    /// That the system starts no thread; `operation` is dropped then.
    fn spawn_alone(&self, name: &str, operation: Job) -> Result<OperationHandle, NoThread> {
        Ok(self.spawn_operation(name, operation))
    }
    /// Starts work that somebody outside asks for, and that may start operations in its turn. Where the system starts no thread some at a time run on
    /// threads that are kept for this.
    ///
    /// # Errors
    /// That there is no thread for it; `work` is dropped then.
    fn enter(&self, name: &str, work: Job) -> Result<OperationHandle, NoThread> {
        Ok(self.spawn_operation(name, work))
    }
    /// True when the system would not start `count` threads more at this moment.
    fn lacks_threads(&self, count: usize) -> bool {
        let _ = count;
        false
    }
    /// True when nothing runs except on the thread that waits (so loops that need a background thread must be driven).
    fn is_inline(&self) -> bool;
    /// Monotonic time in nanoseconds: real under [`Pool`], virtual otherwise.
    fn now_ns(&self) -> u64;
    /// Wall-clock seconds and nanoseconds since the epoch.
    fn wall_clock(&self) -> (i64, u32);
    /// Advances the virtual clock, or sleeps.
    fn sleep_ns(&self, duration_ns: u64);
    /// A random number: seeded under [`Inline`].
    fn random_u64(&self) -> u64;
    /// Number of jobs that can run at the same time.
    fn parallelism(&self) -> usize;
    /// Number of jobs that could run at this moment beside what already runs: what a large request is worth being split for.
    fn spare(&self) -> usize {
        self.parallelism().saturating_sub(1)
    }
    /// Adds `change` to the number of operations that compute on threads of their own: they keep processors from the jobs.
    fn note_computing(&self, change: isize) {
        let _ = change;
    }
}

/// Guard: while it lives, the thread's computing counts in [`Executor::spare`].
#[must_use]
pub struct Computing<'a>(&'a dyn Executor);

impl<'a> Computing<'a> {
    /// Notes that this thread computes now, for as long as the value lives.
    pub fn begin(exec: &'a dyn Executor) -> Computing<'a> {
        exec.note_computing(1);
        Computing(exec)
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.note_computing(-1);
    }
}

impl std::fmt::Debug for Computing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Computing")
    }
}

/// A started operation; dropping it detaches.
#[derive(Debug)]
pub struct OperationHandle(Started);

#[derive(Debug)]
enum Started {
    /// Operation of a pool.
    Task(Arc<threads::Task>),
    /// Thread under [`Lockstep`], with the number of the operation.
    Thread(std::thread::JoinHandle<()>, usize),
}

impl OperationHandle {
    pub(crate) fn of_thread(thread: std::thread::JoinHandle<()>, participant: usize) -> OperationHandle {
        OperationHandle(Started::Thread(thread, participant))
    }

    pub(crate) fn of_task(task: Arc<threads::Task>) -> OperationHandle {
        OperationHandle(Started::Task(task))
    }

    /// True when the operation has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Started::Task(task) => task.has_ended(),
            Started::Thread(thread, _) => thread.is_finished(),
        }
    }

    /// Waits for the operation to end; runs it here, where it got no thread and nobody has begun with it.
    pub fn join(self) {
        match self.0 {
            Started::Task(task) => task.join(),
            Started::Thread(thread, participant) => {
                lockstep::wait_for_end(participant);
                let _ = thread.join();
            }
        }
    }
}

/// A shared executor.
pub type Exec = Arc<dyn Executor>;
