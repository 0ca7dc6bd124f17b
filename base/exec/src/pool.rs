//! The production executor: worker threads, a queue per worker and class, stealing, and as few wake-ups as possible.
//!
//! A job spawned by a worker goes to that worker's queue, any other to the queue of the spawning thread's shard. A worker
//! prefers its own queue and the lowest class there; every few jobs it looks whether another queue holds a more urgent one.
//!
//! No wake-up is lost: a spawner publishes its job, then looks for a searching or sleeping worker; a worker stops
//! searching and enters the list of sleepers, then looks at every queue once more (sequentially consistent fences between
//! the two steps on both sides). At most one worker at a time is woken to search; when it finds work it passes the
//! search on, so a burst wakes workers one by one instead of all at once.

use crate::threads::{NoThread, Start, Threads, of_the_system};
use crate::timers::Timers;
use crate::{Executor, Job, OperationHandle, TaskClass};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CLASSES: usize = 5;
/// A worker looks at the other queues for something more urgent once in this many jobs.
const LOOK_AROUND: u32 = 8;

thread_local! {
    /// The pool (by address) and index of the worker that this thread is.
    static WORKER: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// A number of this thread, to spread outside spawners over queues.
    static OUTSIDER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// One queue, alone on its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Queue {
    jobs: Mutex<[VecDeque<Job>; CLASSES]>,
    /// Bit `c` is set while class `c` has jobs; written under the lock.
    classes: AtomicU8,
}

impl Queue {
    fn push(&self, class: TaskClass, job: Job) {
        let mut jobs = self.jobs.lock();
        jobs[class as usize].push_back(job);
        self.classes.fetch_or(1 << class as u8, Ordering::Relaxed);
    }

    /// The oldest job of the most urgent class.
    fn pop(&self) -> Option<Job> {
        if self.classes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut jobs = self.jobs.lock();
        let class = jobs.iter().position(|queue| !queue.is_empty())?;
        let job = jobs[class].pop_front();
        if jobs[class].is_empty() {
            self.classes.fetch_and(!(1 << class), Ordering::Relaxed);
        }
        job
    }

    /// Number of the most urgent class with jobs; [`CLASSES`] or more when there are none.
    fn urgency(&self) -> u32 {
        self.classes.load(Ordering::Relaxed).trailing_zeros()
    }
}

struct Shared {
    queues: Box<[Queue]>,
    /// Workers that are awake but have no job yet.
    searching: AtomicUsize,
    /// Number of entries of `sleepers`.
    asleep: AtomicUsize,
    sleepers: Mutex<Vec<usize>>,
    /// Thread of each worker, known before the worker first sleeps.
    threads: Box<[OnceLock<Thread>]>,
    /// True for a worker that somebody woke, set by who did.
    woken: Box<[AtomicBool]>,
    stopping: AtomicBool,
    /// Operations that compute on threads of their own.
    computing: AtomicIsize,
}

/// The system's wall clock, for what has no executor: seconds and nanoseconds since the epoch.
pub fn system_clock() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(_) => (0, 0),
    }
}

/// Threads that run jobs by priority of their [`TaskClass`].
pub struct Pool {
    shared: Arc<Shared>,
    timers: Timers,
    threads: Threads,
    started: Instant,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool {{ threads: {} }}", self.shared.queues.len())
    }
}

impl Pool {
    /// A pool of `threads` workers (at least one), which keeps no threads for operations.
    ///
    /// # Panics
    /// When the system starts no thread: for tests and tools that have nothing to lose.
    pub fn new(threads: usize) -> Self {
        Pool::start(threads, 0).expect("the system can start the threads of a pool")
    }

    /// A pool of `threads` workers (at least one) that keeps `kept` threads for operations which the system starts none for.
    ///
    /// # Errors
    /// Those of the system; no thread is left then.
    pub fn start(threads: usize, kept: usize) -> std::io::Result<Pool> {
        Pool::by(of_the_system(), threads, kept)
    }

    pub(crate) fn by(start: Start, threads: usize, kept: usize) -> std::io::Result<Pool> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            queues: (0..threads).map(|_| Queue::default()).collect(),
            searching: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            threads: (0..threads).map(|_| OnceLock::new()).collect(),
            woken: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            stopping: AtomicBool::new(false),
            computing: AtomicIsize::new(0),
        });
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        let deliver = move |class: TaskClass, job: Job| weak.upgrade().map(|shared| shared.spawn(class, job)).is_some();
        let timers = Timers::new(&start, Box::new(deliver))?;
        let pool = Pool { shared, timers, threads: Threads::new(start.clone(), kept)?, started: Instant::now() };
        for index in 0..threads {
            let own = pool.shared.clone();
            // Those that were started end with the pool.
            start(&format!("z-worker-{index}"), Box::new(move || own.work(index)))?;
        }
        Ok(pool)
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>, class: TaskClass, job: Job) {
        let (pool, index) = WORKER.with(Cell::get);
        let queue = if pool == Arc::as_ptr(self) as usize { index } else { OUTSIDER.with(|number| number % self.queues.len()) };
        self.queues[queue].push(class, job);
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::Relaxed) == 0 && self.asleep.load(Ordering::Relaxed) > 0 {
            self.wake_one();
        }
    }

    /// Wakes the worker that fell asleep last, as a searching one, unless another is searching already.
    fn wake_one(&self) {
        if self.searching.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return;
        }
        let sleeper = {
            let mut sleepers = self.sleepers.lock();
            let sleeper = sleepers.pop();
            self.asleep.store(sleepers.len(), Ordering::SeqCst);
            sleeper
        };
        match sleeper {
            Some(index) => self.wake(index),
            None => {
                self.searching.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn wake(&self, index: usize) {
        self.woken[index].store(true, Ordering::Release);
        if let Some(thread) = self.threads[index].get() {
            thread.unpark();
        }
    }

    fn has_work(&self) -> bool {
        self.queues.iter().any(|queue| (queue.urgency() as usize) < CLASSES)
    }

    fn work(self: Arc<Self>, index: usize) {
        self.threads[index].get_or_init(std::thread::current);
        WORKER.with(|worker| worker.set((Arc::as_ptr(&self) as usize, index)));
        let mut turn = 0u32;
        let mut searched = false;
        loop {
            turn = turn.wrapping_add(1);
            let look_around = turn.is_multiple_of(LOOK_AROUND);
            let own = if look_around { None } else { self.queues[index].pop() };
            match own.or_else(|| self.most_urgent(index)) {
                Some(job) => {
                    if std::mem::take(&mut searched) && self.has_work() && self.asleep.load(Ordering::Relaxed) > 0 {
                        self.wake_one();
                    }
                    job();
                }
                None if self.stopping.load(Ordering::Acquire) => return,
                None => searched = self.sleep(index),
            }
        }
    }

    /// A job of the most urgent class in any queue; own queue first among equals.
    fn most_urgent(&self, index: usize) -> Option<Job> {
        let count = self.queues.len();
        loop {
            let candidates = (0..count).map(|step| (index + step) % count);
            let best = candidates.min_by_key(|candidate| self.queues[*candidate].urgency())?;
            if self.queues[best].urgency() as usize >= CLASSES {
                return None;
            }
            if let Some(job) = self.queues[best].pop() {
                return Some(job);
            }
        }
    }

    /// Sleeps until there may be work again; true when it was woken to search for it.
    fn sleep(&self, index: usize) -> bool {
        {
            let mut sleepers = self.sleepers.lock();
            sleepers.push(index);
            self.asleep.store(sleepers.len(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if (self.has_work() || self.stopping.load(Ordering::SeqCst)) && self.leave_sleepers(index) {
            return false;
        }
        // Either nothing to do, or somebody took this worker off the list and is about to wake it.
        while !self.woken[index].swap(false, Ordering::Acquire) {
            std::thread::park();
        }
        // The search ends before this worker looks, so that a spawner whose job it misses wakes another.
        self.searching.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        true
    }

    /// Takes this worker off the list; false when it is not there any more.
    fn leave_sleepers(&self, index: usize) -> bool {
        let mut sleepers = self.sleepers.lock();
        let Some(position) = sleepers.iter().position(|sleeper| *sleeper == index) else { return false };
        sleepers.swap_remove(position);
        self.asleep.store(sleepers.len(), Ordering::SeqCst);
        true
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let sleepers = {
            let mut sleepers = self.sleepers.lock();
            self.asleep.store(0, Ordering::SeqCst);
            std::mem::take(&mut *sleepers)
        };
        for index in sleepers {
            self.searching.fetch_add(1, Ordering::SeqCst);
            self.wake(index);
        }
    }
}

impl Drop for Pool {
    /// Workers finish what is queued, then end.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Executor for Pool {
    fn spawn(&self, class: TaskClass, job: Job) {
        self.shared.spawn(class, job);
    }

    fn spawn_after(&self, delay_ns: u64, class: TaskClass, job: Job) {
        self.timers.start(Duration::from_nanos(delay_ns), class, job);
    }

    fn wait(&self, ready: &dyn Fn() -> bool, park: &dyn Fn()) {
        while !ready() {
            park();
        }
    }

    fn spawn_operation(&self, name: &str, operation: Job) -> OperationHandle {
        self.threads.spawn(name, operation)
    }

    fn spawn_alone(&self, name: &str, operation: Job) -> Result<OperationHandle, NoThread> {
        self.threads.spawn_alone(name, operation)
    }

    fn enter(&self, name: &str, work: Job) -> Result<OperationHandle, NoThread> {
        self.threads.enter(name, work)
    }

    fn lacks_threads(&self, count: usize) -> bool {
        self.threads.lacks(count)
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn wall_clock(&self) -> (i64, u32) {
        system_clock()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        std::thread::sleep(Duration::from_nanos(duration_ns));
    }

    fn random_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    fn parallelism(&self) -> usize {
        self.shared.queues.len()
    }

    fn spare(&self) -> usize {
        let computing = self.shared.computing.load(Ordering::Relaxed).max(0) as usize;
        self.shared.asleep.load(Ordering::Relaxed).saturating_sub(computing)
    }

    fn note_computing(&self, change: isize) {
        self.shared.computing.fetch_add(change, Ordering::Relaxed);
    }
}
