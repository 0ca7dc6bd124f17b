//! Threads of operations: a new one for each, and where the system starts none, those that are there already.
//!
//! The system may refuse a thread at any time (`RLIMIT_NPROC`, `pids.max` of a control group). An operation that gets none runs on one that is kept
//! for this, or on that of another operation once that has ended, or of whoever joins it. Work that comes from outside is refused instead when none
//! of the kept ones is free, and has only some of them: so what it starts in its turn finds one.

use crate::{Job, OperationHandle};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Pieces of work from outside that kept threads are at, at most: each may start some more that it waits for.
const ENTRANTS_MAX: usize = 2;

/// Port that starts a thread of a name, or fails as the system does.
pub(crate) type Start = Arc<dyn Fn(&str, Job) -> io::Result<JoinHandle<()>> + Send + Sync>;

/// Threads of the system.
pub(crate) fn of_the_system() -> Start {
    Arc::new(|name: &str, job: Job| std::thread::Builder::new().name(name.to_string()).spawn(job))
}

/// Refusal of the system to start a thread, where no other can do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoThread;

impl std::fmt::Display for NoThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the system starts no more threads: as many as the user's processes ('ulimit -u') or the control group ('pids.max') may have are there")
    }
}

impl std::error::Error for NoThread {}

enum Stage {
    Waiting(Job),
    Running,
    Ended,
}

/// Operation that whoever comes first runs, once.
pub(crate) struct Task {
    stage: Mutex<Stage>,
    /// True for one that got no thread of its own: it may run on that of whoever joins it.
    is_left: AtomicBool,
    ended: Condvar,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

impl Task {
    fn new(job: Job) -> Arc<Task> {
        Arc::new(Task { stage: Mutex::new(Stage::Waiting(job)), is_left: AtomicBool::new(false), ended: Condvar::new() })
    }

    /// Takes what is to be done, if nobody did.
    fn take(&self) -> Option<Job> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Running) {
            Stage::Waiting(job) => Some(job),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Does it, if nobody did. A panic ends the operation, not the thread: others wait for that.
    fn run(&self) {
        let Some(job) = self.take() else { return };
        let _ = catch_unwind(AssertUnwindSafe(job));
        *self.stage.lock() = Stage::Ended;
        self.ended.notify_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Ended)
    }

    /// Waits for its end; does it where nobody has begun, and it got no thread.
    pub(crate) fn join(&self) {
        if self.is_left.load(Ordering::Acquire) {
            self.run();
        }
        let mut stage = self.stage.lock();
        while !matches!(*stage, Stage::Ended) {
            self.ended.wait(&mut stage);
        }
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Task>>,
    /// Kept threads that have nothing to do.
    idle: usize,
    /// Pieces of work from outside that kept threads are at, or begin soon.
    entrants: usize,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// Does what waits, on a thread that has nothing else to do.
    fn help(&self) {
        loop {
            let next = self.state.lock().waiting.pop_front();
            let Some(task) = next else { return };
            task.run();
        }
    }

    /// Does what waits and will wait, until the end.
    fn keep(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.waiting.pop_front() {
                MutexGuard::unlocked(&mut state, || task.run());
                continue;
            }
            if state.is_over {
                return;
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }

    fn push(&self, mut state: MutexGuard<'_, State>, task: Arc<Task>) {
        state.waiting.push_back(task);
        drop(state);
        self.changed.notify_one();
    }
}

/// Guard: a piece of work from outside counts for as long as it lives.
struct Entrant(Arc<Shared>);

impl Drop for Entrant {
    fn drop(&mut self) {
        self.0.state.lock().entrants -= 1;
    }
}

/// Threads that operations run on.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    start: Start,
}

impl Threads {
    /// Threads with so many that are kept.
    ///
    /// # Errors
    /// Those of the system; none is left then.
    pub(crate) fn new(start: Start, kept: usize) -> io::Result<Threads> {
        let threads = Threads { shared: Arc::default(), start };
        for number in 0..kept {
            let shared = threads.shared.clone();
            (threads.start)(&format!("z-kept-{number}"), Box::new(move || shared.keep()))?;
        }
        Ok(threads)
    }

    /// Starts a thread for a task, which then does what waits.
    fn start(&self, name: &str, task: &Arc<Task>) -> io::Result<()> {
        let (task, shared) = (task.clone(), self.shared.clone());
        let run = move || {
            task.run();
            // Its waiters may have let go of it meanwhile.
            drop(task);
            shared.help();
        };
        (self.start)(name, Box::new(run)).map(drop)
    }

    /// Starts threads for what still waits, as far as the system does again.
    fn catch_up(&self) {
        let count = self.shared.state.lock().waiting.len();
        for _ in 0..count {
            let shared = self.shared.clone();
            if (self.start)("z-operation", Box::new(move || shared.help())).is_err() {
                return;
            }
        }
    }

    /// Has an operation run: at once, or where the system starts no thread, when one is free.
    pub(crate) fn spawn(&self, name: &str, operation: Job) -> OperationHandle {
        let task = Task::new(operation);
        match self.start(name, &task) {
            Ok(()) => self.catch_up(),
            Err(_) => {
                task.is_left.store(true, Ordering::Release);
                self.shared.push(self.shared.state.lock(), task.clone());
            }
        }
        OperationHandle::of_task(task)
    }

    /// Has an operation run on a thread of its own, which ends with it.
    pub(crate) fn spawn_alone(&self, name: &str, operation: Job) -> Result<OperationHandle, NoThread> {
        let task = Task::new(operation);
        let own = task.clone();
        (self.start)(name, Box::new(move || own.run())).map_err(|_| NoThread)?;
        Ok(OperationHandle::of_task(task))
    }

    /// Has work from outside done: on a new thread, or on a kept one that has nothing to do, if there are not too many such pieces.
    pub(crate) fn enter(&self, name: &str, work: Job) -> Result<OperationHandle, NoThread> {
        let task = Task::new(work);
        if self.start(name, &task).is_ok() {
            self.catch_up();
            return Ok(OperationHandle::of_task(task));
        }
        let work = task.take().ok_or(NoThread)?;
        let mut state = self.shared.state.lock();
        if state.entrants >= ENTRANTS_MAX || state.idle <= state.waiting.len() {
            drop(state);
            // Now, with nothing locked: it may hold anything.
            drop(work);
            return Err(NoThread);
        }
        state.entrants += 1;
        let entrant = Entrant(self.shared.clone());
        let task = Task::new(Box::new(move || {
            let _entrant = entrant;
            work();
        }));
        self.shared.push(state, task.clone());
        Ok(OperationHandle::of_task(task))
    }

    /// True when the system would not start so many threads at this moment.
    pub(crate) fn lacks(&self, count: usize) -> bool {
        missing(&self.start, count) > 0
    }
}

/// True when the system would not start so many threads more at this moment, of this process: they are started, and end.
pub fn lacks_threads(count: usize) -> bool {
    missing_threads(count) > 0
}

/// Number of those of `count` threads more that the system would not start at this moment, of this process: they are started, and end.
pub fn missing_threads(count: usize) -> usize {
    missing(&of_the_system(), count)
}

/// Number of those of `count` threads that are not started; the first refusal ends it.
pub(crate) fn missing(start: &Start, count: usize) -> usize {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let mut started = Vec::new();
    for _ in 0..count {
        let gate = gate.clone();
        match start("z-try", Box::new(move || drop(gate.lock()))) {
            Ok(thread) => started.push(thread),
            Err(_) => break,
        }
    }
    drop(closed);
    let missing = count - started.len();
    started.into_iter().for_each(|thread| drop(thread.join()));
    missing
}

impl Drop for Threads {
    /// Kept threads do what waits, then end.
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}
