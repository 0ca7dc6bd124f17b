//! The deterministic executor: one thread, seeded order, virtual clock. Same seed, same trace.

use crate::{Executor, Job, Mutex, OperationHandle, TaskClass};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs jobs on the thread that waits, in an order chosen by the seed. Panics with the seed on deadlock.
#[derive(Debug)]
pub struct Inline {
    seed: u64,
    state: Mutex<State>,
    now_ns: AtomicU64,
}

struct State {
    random: u64,
    jobs: Vec<Job>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State {{ jobs: {} }}", self.jobs.len())
    }
}

impl State {
    /// One step of splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Inline {
    /// An executor whose every choice follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Inline { seed, state: Mutex::new(State { random: seed, jobs: Vec::new() }), now_ns: AtomicU64::new(1) }
    }

    /// Runs one queued job, chosen by the seed; false when there is none.
    pub fn step(&self) -> bool {
        let job = {
            let mut state = self.state.lock();
            if state.jobs.is_empty() {
                return false;
            }
            let pick = (state.next() % state.jobs.len() as u64) as usize;
            state.jobs.swap_remove(pick)
        };
        self.now_ns.fetch_add(1000, Ordering::Relaxed);
        job();
        true
    }
}

impl Executor for Inline {
    fn spawn(&self, _class: TaskClass, job: Job) {
        self.state.lock().jobs.push(job);
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
        self.state.lock().next()
    }

    fn parallelism(&self) -> usize {
        1
    }
}
