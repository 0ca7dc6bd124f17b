//! The production executor: worker threads over prioritized queues.

use crate::{Condvar, Executor, Job, Mutex, OperationHandle, TaskClass};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const CLASSES: usize = 5;

#[derive(Default)]
struct Queues {
    jobs: [VecDeque<Job>; CLASSES],
    idle: usize,
    stopping: bool,
}

struct Shared {
    queues: Mutex<Queues>,
    work: Condvar,
}

/// Threads that run jobs by priority of their [`TaskClass`].
pub struct Pool {
    shared: Arc<Shared>,
    threads: usize,
    started: Instant,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool {{ threads: {} }}", self.threads)
    }
}

impl Pool {
    /// A pool of `threads` workers (at least one).
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared { queues: Mutex::new(Queues::default()), work: Condvar::new() });
        let threads = threads.max(1);
        for index in 0..threads {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(format!("z-worker-{index}"))
                .spawn(move || worker(&shared))
                .expect("the system can start a worker thread");
        }
        Pool { shared, threads, started: Instant::now() }
    }
}

fn worker(shared: &Shared) {
    let mut queues = shared.queues.lock();
    loop {
        if let Some(job) = queues.jobs.iter_mut().find_map(VecDeque::pop_front) {
            drop(queues);
            job();
            queues = shared.queues.lock();
        } else if queues.stopping {
            return;
        } else {
            queues.idle += 1;
            shared.work.wait(&mut queues);
            queues.idle -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queues.lock().stopping = true;
        self.shared.work.notify_all();
    }
}

impl Executor for Pool {
    fn spawn(&self, class: TaskClass, job: Job) {
        let mut queues = self.shared.queues.lock();
        queues.jobs[class as usize].push_back(job);
        let wake = queues.idle > 0;
        drop(queues);
        if wake {
            self.shared.work.notify_one();
        }
    }

    fn wait(&self, ready: &dyn Fn() -> bool, park: &dyn Fn()) {
        while !ready() {
            park();
        }
    }

    fn spawn_operation(&self, name: &str, operation: Job) -> OperationHandle {
        let handle =
            std::thread::Builder::new().name(name.to_string()).spawn(operation).expect("the system can start an operation's thread");
        OperationHandle(Some(handle))
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn wall_clock(&self) -> (i64, u32) {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
            Err(_) => (0, 0),
        }
    }

    fn sleep_ns(&self, duration_ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(duration_ns));
    }

    fn random_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    fn parallelism(&self) -> usize {
        self.threads
    }
}
