//! The deterministic executor: one thread, seeded order, virtual clock. Same seed, same trace.

use crate::random::SplitMix;
use crate::{Executor, Job, Mutex, OperationHandle, TaskClass};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Virtual time that one job takes, in nanoseconds.
const JOB_NS: u64 = 1000;

/// Runs jobs on the thread that waits, in an order chosen by the seed. Panics with the seed on deadlock.
///
/// When nothing is runnable, the clock jumps to the next timer ([`Executor::spawn_after`]); a timer that starts itself
/// anew for ever therefore hides deadlocks.
#[derive(Debug)]
pub struct Inline {
    seed: u64,
    state: Mutex<State>,
    now_ns: AtomicU64,
}

struct State {
    random: SplitMix,
    jobs: Vec<Job>,
    /// Jobs by due time, then by the order of their start.
    timers: BTreeMap<(u64, u64), Job>,
    timers_started: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State {{ jobs: {}, timers: {} }}", self.jobs.len(), self.timers.len())
    }
}

impl Inline {
    /// An executor whose every choice follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let state = State { random: SplitMix::new(seed), jobs: Vec::new(), timers: BTreeMap::new(), timers_started: 0 };
        Inline { seed, state: Mutex::new(state), now_ns: AtomicU64::new(1) }
    }

    /// Seed of the random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Runs one job, chosen by the seed from those that are runnable; without any, waits (in virtual time) for the next
    /// timer. False when there is neither.
    pub fn step(&self) -> bool {
        let Some(job) = self.next_job(true) else { return false };
        self.run(job);
        true
    }

    /// Runs everything that is runnable now; timers that are not due stay. For drivers that advance the clock themselves.
    pub fn run_ready(&self) {
        while let Some(job) = self.next_job(false) {
            self.run(job);
        }
    }

    fn run(&self, job: Job) {
        self.now_ns.fetch_add(JOB_NS, Ordering::Relaxed);
        job();
    }

    fn next_job(&self, may_wait: bool) -> Option<Job> {
        let mut state = self.state.lock();
        if may_wait && state.jobs.is_empty() {
            let (due, _) = *state.timers.first_key_value()?.0;
            self.now_ns.fetch_max(due, Ordering::Relaxed);
        }
        let now = self.now_ns();
        while let Some(timer) = state.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            let job = timer.remove();
            state.jobs.push(job);
        }
        let count = state.jobs.len();
        if count == 0 {
            return None;
        }
        let pick = state.random.below(count);
        Some(state.jobs.swap_remove(pick))
    }
}

impl Executor for Inline {
    fn spawn(&self, _class: TaskClass, job: Job) {
        self.state.lock().jobs.push(job);
    }

    fn spawn_after(&self, delay_ns: u64, _class: TaskClass, job: Job) {
        let mut state = self.state.lock();
        state.timers_started += 1;
        let key = (self.now_ns().saturating_add(delay_ns), state.timers_started);
        state.timers.insert(key, job);
    }

    fn wait(&self, ready: &dyn Fn() -> bool, _park: &dyn Fn()) {
        while !ready() {
            assert!(self.step(), "deadlock: nothing is runnable (seed {})", self.seed);
        }
    }

    fn spawn_operation(&self, name: &str, _operation: Job) -> OperationHandle {
        panic!("operation {name} cannot run in the background of an inline executor (seed {})", self.seed)
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn wall_clock(&self) -> (i64, u32) {
        let now = self.now_ns();
        (1_700_000_000 + (now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.now_ns.fetch_add(duration_ns, Ordering::Relaxed);
    }

    fn random_u64(&self) -> u64 {
        self.state.lock().random.next_u64()
    }

    fn parallelism(&self) -> usize {
        1
    }
}
