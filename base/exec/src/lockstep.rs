//! Real threads, one baton: finds races between operations that block, and replays them by their seed.
//!
//! Every thread of a program is a *participant*; only the one with the baton runs. It passes the baton when it waits, when
//! a lock is taken by another, and, by the seed's choice, at locks that are free: there it is preempted. A waiting
//! participant looks at its condition again only after some other one has run, so "everybody waits" is noticed and
//! panics with the seed. Jobs run on two participants of their own.
//!
//! ```text
//! runs ──preempt──► may run ──chosen──► runs          (give_up without a condition)
//! runs ──block────► waits ──chosen, condition holds──► runs   (give_up with one)
//! runs ──end──────► gone                                (leave)
//! ```

use crate::random::SplitMix;
use crate::{Exec, Executor, Job, OperationHandle, TaskClass};
use parking_lot::{Condvar, Mutex};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A participant at a free lock is preempted once in this many times.
const PREEMPT_ONE_IN: usize = 3;
/// Virtual time of one stretch with the baton, in nanoseconds.
const STRETCH_NS: u64 = 1000;
/// Participants that run jobs.
const JOB_RUNNERS: usize = 2;

/// Number of lockstep programs that run in this process now.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PARTICIPANT: RefCell<Option<Participant>> = const { RefCell::new(None) };
    /// True while a condition is evaluated: that is no progress, and no place to preempt.
    static PROBING: Cell<bool> = const { Cell::new(false) };
}

/// True while some lockstep program runs in this process.
#[inline]
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed) > 0
}

/// Part of this thread in a lockstep program, if it has one (and is not unwinding).
#[inline]
pub(crate) fn participant() -> Option<Participant> {
    if is_active() { current() } else { None }
}

#[cold]
fn current() -> Option<Participant> {
    if std::thread::panicking() {
        return None;
    }
    PARTICIPANT.try_with(|own| own.borrow().clone()).ok().flatten()
}

/// A place where a lockstep program may switch threads; elsewhere nothing. For code that races without locks.
pub fn yield_point() {
    if let Some(participant) = participant() {
        participant.preempt();
    }
}

/// Waits, as a participant, for another to end.
pub(crate) fn wait_for_end(number: usize) {
    if let Some(own) = participant() {
        let baton = own.baton.clone();
        own.block(&|| !baton.state.lock().threads.contains_key(&number));
    }
}

/// State of a participant.
struct Thread {
    turn: Arc<Condvar>,
    /// Progress at the last look at its condition, for one that waits.
    looked_at: Option<u64>,
    /// True for those that the program must end itself.
    is_operation: bool,
}

struct State {
    random: SplitMix,
    /// True when participants are preempted at free locks.
    preempts: bool,
    jobs: Vec<Job>,
    /// Jobs by due time, then by the order of their start; without a job a timer only moves the clock.
    timers: BTreeMap<(u64, u64), Option<Job>>,
    timers_started: u64,
    threads: BTreeMap<usize, Thread>,
    threads_started: usize,
    /// Number of the participant that has the baton.
    holder: usize,
    /// Number of stretches run.
    progress: u64,
    stopping: bool,
    failure: Option<&'static str>,
}

struct Baton {
    seed: u64,
    state: Mutex<State>,
    now_ns: AtomicU64,
}

impl State {
    fn add_thread(&mut self, is_operation: bool) -> usize {
        let number = self.threads_started;
        self.threads_started += 1;
        self.threads.insert(number, Thread { turn: Arc::new(Condvar::new()), looked_at: None, is_operation });
        number
    }

    fn fail(&mut self, why: &'static str) {
        self.failure.get_or_insert(why);
        self.threads.values().for_each(|thread| {
            thread.turn.notify_all();
        });
    }
}

impl Baton {
    /// Chooses who runs next among those that can; without any, lets time pass until the next timer.
    fn choose(&self, state: &mut State) -> Option<usize> {
        loop {
            let progress = state.progress;
            let can_run = |thread: &Thread| thread.looked_at.is_none_or(|looked| looked < progress);
            let candidates: Vec<usize> = state.threads.iter().filter(|(_, thread)| can_run(thread)).map(|(number, _)| *number).collect();
            if !candidates.is_empty() {
                let pick = state.random.below(candidates.len());
                return Some(candidates[pick]);
            }
            let ((due, _), job) = state.timers.pop_first()?;
            self.now_ns.fetch_max(due, Ordering::Relaxed);
            state.jobs.extend(job);
            state.progress += 1;
        }
    }

    /// Gives the baton to whom the seed chooses; everybody fails when nobody can run.
    fn pass(&self, state: &mut State) {
        match self.choose(state) {
            Some(next) => {
                state.holder = next;
                state.threads[&next].turn.notify_all();
            }
            None if state.threads.is_empty() => {}
            None => state.fail("deadlock: every thread waits"),
        }
    }

    /// Panics when the program failed.
    fn check(&self, failure: Option<&'static str>) {
        if let Some(why) = failure {
            panic!("{why} (lockstep seed {})", self.seed);
        }
    }
}

/// Looks at a condition, which is no progress.
fn probe(ready: &dyn Fn() -> bool) -> bool {
    let before = PROBING.replace(true);
    let holds = ready();
    PROBING.set(before);
    holds
}

/// A thread's part in a program.
#[derive(Clone)]
pub(crate) struct Participant {
    baton: Arc<Baton>,
    number: usize,
}

impl Participant {
    /// Lets another run here, sometimes.
    pub(crate) fn preempt(&self) {
        let is_chosen = || {
            let mut state = self.baton.state.lock();
            state.preempts && state.random.chance(PREEMPT_ONE_IN)
        };
        if !PROBING.get() && is_chosen() {
            self.give_up(None);
        }
    }

    /// Lets others run until `ready` holds; returns at once when it does.
    pub(crate) fn block(&self, ready: &dyn Fn() -> bool) {
        if !probe(ready) {
            self.give_up(Some(ready));
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.baton.now_ns.load(Ordering::Relaxed)
    }

    /// Makes sure that the clock reaches now + `delay_ns`; returns that time.
    pub(crate) fn start_timer(&self, delay_ns: u64) -> u64 {
        self.add_timer(delay_ns, None)
    }

    fn add_timer(&self, delay_ns: u64, job: Option<Job>) -> u64 {
        let due = self.now_ns().saturating_add(delay_ns);
        let mut state = self.baton.state.lock();
        state.timers_started += 1;
        let key = (due, state.timers_started);
        state.timers.insert(key, job);
        due
    }

    fn give_up(&self, ready: Option<&dyn Fn() -> bool>) {
        let baton = &self.baton;
        let probing = PROBING.get();
        let mut state = baton.state.lock();
        if !probing {
            state.progress += 1;
            baton.now_ns.fetch_add(STRETCH_NS, Ordering::Relaxed);
        }
        loop {
            let progress = state.progress;
            let Some(own) = state.threads.get_mut(&self.number) else { return };
            own.looked_at = ready.map(|_| progress);
            let turn = own.turn.clone();
            baton.pass(&mut state);
            while state.holder != self.number && state.failure.is_none() {
                turn.wait(&mut state);
            }
            let failure = state.failure;
            let Some(ready) = ready else {
                drop(state);
                return baton.check(failure);
            };
            drop(state);
            baton.check(failure);
            let holds = probe(ready);
            state = baton.state.lock();
            if holds {
                if let Some(own) = state.threads.get_mut(&self.number) {
                    own.looked_at = None;
                }
                return;
            }
        }
    }

    /// Runs `body` as this participant on the current thread, from its first turn on, and leaves the program.
    fn run(self, body: impl FnOnce()) {
        let baton = self.baton.clone();
        let number = self.number;
        PARTICIPANT.with(|own| *own.borrow_mut() = Some(self));
        {
            let mut state = baton.state.lock();
            let turn = state.threads.get(&number).map(|thread| thread.turn.clone());
            while let (Some(turn), true) = (&turn, state.holder != number && state.failure.is_none()) {
                turn.wait(&mut state);
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(body));
        PARTICIPANT.with(|own| *own.borrow_mut() = None);
        let mut state = baton.state.lock();
        state.threads.remove(&number);
        state.progress += 1;
        if outcome.is_err() {
            state.fail("a thread panicked");
        }
        if state.failure.is_none() {
            baton.pass(&mut state);
        }
        // The one that waits for all to end has no condition variable of its own turn when the program failed.
        let threads: Vec<_> = state.threads.values().map(|thread| thread.turn.clone()).collect();
        drop(state);
        threads.iter().for_each(|turn| {
            turn.notify_all();
        });
    }
}

/// Runs programs of several blocking operations on real threads, one at a time, in an order chosen by the seed.
#[derive(Clone)]
pub struct Lockstep {
    baton: Arc<Baton>,
}

impl std::fmt::Debug for Lockstep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lockstep {{ seed: {} }}", self.baton.seed)
    }
}

impl Lockstep {
    /// Runs `program` under `seed` on this thread, with the operations it starts on others, until all have ended.
    ///
    /// Panics with the seed on deadlock, when an operation does not end once the program did and nothing else runs, and
    /// when a thread panics. The value is what `program` returned.
    pub fn run<T>(seed: u64, program: impl FnOnce(&Exec) -> T) -> T {
        Lockstep::run_as(seed, true, program)
    }

    /// Does [`Lockstep::run`] with threads that run until they wait: for programs whose virtual time is measured, in which each turn takes a
    /// microsecond and what a thread computes takes none.
    pub fn run_calmly<T>(seed: u64, program: impl FnOnce(&Exec) -> T) -> T {
        Lockstep::run_as(seed, false, program)
    }

    fn run_as<T>(seed: u64, preempts: bool, program: impl FnOnce(&Exec) -> T) -> T {
        let state = State {
            random: SplitMix::new(seed),
            preempts,
            jobs: Vec::new(),
            timers: BTreeMap::new(),
            timers_started: 0,
            threads: BTreeMap::new(),
            threads_started: 0,
            holder: 0,
            progress: 0,
            stopping: false,
            failure: None,
        };
        let baton = Arc::new(Baton { seed, state: Mutex::new(state), now_ns: AtomicU64::new(1) });
        let own = Participant { baton: baton.clone(), number: baton.state.lock().add_thread(false) };
        ACTIVE.fetch_add(1, Ordering::SeqCst);
        let lockstep = Lockstep { baton: baton.clone() };
        let runners: Vec<_> = (0..JOB_RUNNERS).map(|_| lockstep.start("z-lockstep", false, lockstep.runner())).collect();
        let exec: Exec = Arc::new(lockstep);
        let mut outcome = None;
        own.clone().run(|| {
            outcome = Some(catch_unwind(AssertUnwindSafe(|| {
                let value = program(&exec);
                own.block(&|| !baton.state.lock().threads.values().any(|thread| thread.is_operation));
                value
            })));
            let mut state = baton.state.lock();
            state.stopping = true;
            if outcome.as_ref().is_some_and(Result::is_err) {
                state.fail("the program panicked");
            }
        });
        runners.into_iter().for_each(|(_, thread)| drop(thread.join()));
        ACTIVE.fetch_sub(1, Ordering::SeqCst);
        let failure = baton.state.lock().failure;
        match outcome {
            Some(Err(panic)) => resume_unwind(panic),
            Some(Ok(value)) if failure.is_none() => value,
            _ => panic!("{} (lockstep seed {seed})", failure.unwrap_or("the program did not run")),
        }
    }

    /// The loop of a participant that runs jobs.
    fn runner(&self) -> impl FnOnce() + Send + 'static {
        let baton = self.baton.clone();
        move || {
            loop {
                let job = {
                    let mut state = baton.state.lock();
                    let pick = state.jobs.len();
                    let pick = state.random.below(pick);
                    if state.jobs.is_empty() { None } else { Some(state.jobs.swap_remove(pick)) }
                };
                match job {
                    Some(job) => job(),
                    None if baton.state.lock().stopping => return,
                    None => {
                        let idle = || {
                            let state = baton.state.lock();
                            !state.jobs.is_empty() || state.stopping
                        };
                        current().into_iter().for_each(|own| own.block(&idle));
                    }
                }
            }
        }
    }

    fn start(&self, name: &str, is_operation: bool, body: impl FnOnce() + Send + 'static) -> (usize, std::thread::JoinHandle<()>) {
        let number = self.baton.state.lock().add_thread(is_operation);
        let own = Participant { baton: self.baton.clone(), number };
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || own.run(body));
        (number, thread.expect("the system can start a thread"))
    }

    fn own(&self) -> Participant {
        current().unwrap_or_else(|| panic!("only threads of the program wait under lockstep (seed {})", self.baton.seed))
    }
}

impl Executor for Lockstep {
    fn spawn(&self, _class: TaskClass, job: Job) {
        self.baton.state.lock().jobs.push(job);
    }

    fn spawn_after(&self, delay_ns: u64, _class: TaskClass, job: Job) {
        Participant { baton: self.baton.clone(), number: usize::MAX }.add_timer(delay_ns, Some(job));
    }

    fn wait(&self, ready: &dyn Fn() -> bool, _park: &dyn Fn()) {
        self.own().block(ready);
    }

    fn spawn_operation(&self, name: &str, operation: Job) -> OperationHandle {
        let (number, thread) = self.start(name, true, operation);
        OperationHandle::of_thread(thread, number)
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn now_ns(&self) -> u64 {
        self.baton.now_ns.load(Ordering::Relaxed)
    }

    fn wall_clock(&self) -> (i64, u32) {
        let now = self.now_ns();
        (1_700_000_000 + (now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        let own = self.own();
        let due = own.start_timer(duration_ns);
        own.block(&|| own.now_ns() >= due);
    }

    fn random_u64(&self) -> u64 {
        self.baton.state.lock().random.next_u64()
    }

    fn parallelism(&self) -> usize {
        JOB_RUNNERS
    }
}
