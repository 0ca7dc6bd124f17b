//! A leaf on its device, and the I/O scheduler at work: one [`VdevQueue`] per leaf behind a lock of its own, fed with what cannot go straight
//! to the device.
//!
//! ```text
//!   submit ──► route ─ straight ──────────────────────────────► plug ──► device
//!                 └─── queued ──► enqueue ──► VdevQueue ──► start ─────► device
//!                                                ▲ timer        └─ finished ─┘ (what is next starts in a job)
//! ```
//! Straight goes what somebody may wait for (reads, writes of users and transaction groups) on a device that is not rotational, as long as
//! no background work has used it in the last second: that costs one relaxed load of a word that nobody writes, no lock and no allocation.
//! While background work is there the queue sees everything, so that it can keep the latency promise (docs/adr/0005), but still lets
//! what somebody may wait for through at once; what went straight before tells it what the idle device does (`idle`). Background work, and
//! everything on a rotational device, waits for its turn; who writes durably on his own thread has it where nothing waits, and no other way.
//! Flushes are never queued: they follow what was written.
//!
//! Invariants: the lock is held for decisions only, never while a device or a continuation runs; whoever frees a place starts what is next,
//! in a job of its own, because the thread of a completion may not be able to submit and a device may do its work in `submit`.

use crate::extended::LeafTiming;
use crate::idle::IdleLatencies;
use crate::inject::kind_of;
use crate::priority::io_priority;
use crate::shared::Shared;
use crate::stats::LeafStats;
use crate::tuning::Tuning;
use crate::{merged, plug};
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp, DeviceReply};
use exec::{Mutex, TaskClass};
use ondisk::Guid;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use vdev_queue::{Admitted, CLASSES, Class, Device, Io, IoId, IoKind, Issue, PromiseState, Roam, Scheduler, Tunables, VdevQueue};

/// Flag that everything is queued: the device is rotational, or a parameter says so.
const ALWAYS: u8 = 1;
/// Flag that everything is seen: background work is about.
const WATCHED: u8 = 2;
/// Time in ns without background work after which nobody is watched any more.
const QUIET_NS: u64 = 1_000_000_000;

/// Route of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Straight to the device.
    Straight,
    /// Through the queue.
    Queued,
}

/// State of one leaf's scheduler now.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// I/Os that wait, by [`Class`].
    pub queued: [usize; CLASSES],
    /// I/Os that the scheduler gave to the device, by [`Class`]; those that went straight are not among them.
    pub active: [u32; CLASSES],
    /// State of the latency promise, with its reason.
    pub promise: PromiseState,
}

/// An I/O to be done.
#[derive(Debug)]
pub struct Submission {
    /// Operation to do.
    pub op: DeviceOp,
    /// First byte on the device.
    pub offset: u64,
    /// Urgency of the I/O.
    pub class: Class,
    /// Time at which it was planned, in nanoseconds, for the statistics.
    pub planned_ns: u64,
}

/// A waiter for an I/O, who holds the leaf until then: what goes straight touches no reference count that others do.
pub trait Waiter: Send + 'static {
    /// The leaf that the I/O was given to, if it is still held.
    fn leaf(&self) -> Option<&LeafDevice>;
    /// The I/O came back.
    fn done(self, reply: DeviceReply);
}

/// A leaf on its device.
pub struct LeafDevice {
    guid: Guid,
    device: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
    stats: Arc<LeafStats>,
    flags: AtomicU8,
    idle: IdleLatencies,
    state: Mutex<State>,
}

impl std::fmt::Debug for LeafDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeafDevice").field("guid", &self.guid).finish_non_exhaustive()
    }
}

struct State {
    queue: VdevQueue,
    waiting: BTreeMap<IoId, DeviceIo>,
    /// Generation of the parameters that `queue` has.
    generation: u64,
    timer_at: Option<u64>,
    background_at: u64,
    /// True when whoever asked ([`LeafDevice::roam`]) was told to wait.
    turned_away: bool,
}

/// I/Os that go to the device now, as one.
struct Ready {
    /// Number of its parts that were waiting.
    waited: usize,
    timing: LeafTiming,
    issue: Issue,
    ios: Vec<DeviceIo>,
}

impl State {
    /// Brings what the queue goes by up to date.
    fn refresh(&mut self, tuning: &Tuning) {
        let generation = tuning.generation();
        if self.generation != generation {
            self.generation = generation;
            self.queue.set_tunables(tuning.tunables());
        }
        if self.queue.queued(Class::AsyncWrite) > 0 {
            self.queue.set_dirty(tuning.dirty());
        }
    }

    /// Takes what the device gets now.
    fn take_ready(&mut self, now_ns: u64) -> Vec<Ready> {
        let mut ready = Vec::new();
        while let Some(issue) = self.queue.next(now_ns) {
            let ios = issue.parts.iter().filter_map(|part| self.waiting.remove(&part.id)).collect();
            ready.push(Ready::new(issue, ios, true, now_ns));
        }
        ready
    }

    /// True when whoever was told to wait is to be called.
    fn take_call(&mut self, now_ns: u64) -> bool {
        let calls = self.turned_away && self.queue.wants_roamer(now_ns);
        self.turned_away &= !calls;
        calls
    }

    /// Time in ns at which somebody is to look again, if that is sooner than somebody will.
    fn take_timer(&mut self, now_ns: u64) -> Option<u64> {
        let at = self.queue.wake_at(now_ns)?;
        if self.timer_at.is_some_and(|timer| timer <= at) {
            return None;
        }
        self.timer_at = Some(at);
        Some(at)
    }
}

impl Ready {
    fn new(issue: Issue, ios: Vec<DeviceIo>, waited: bool, now_ns: u64) -> Ready {
        let waited = if waited { ios.len() } else { 0 };
        let timing = LeafTiming {
            kind: issue.kind,
            class: issue.class,
            offset: issue.offset,
            bytes: issue.size_bytes,
            merged: ios.len() > 1,
            queued_ns: issue.queued_ns,
            issued_ns: now_ns,
            disk_ns: 0,
        };
        Ready { waited, timing, issue, ios }
    }

    fn task_class(&self) -> TaskClass {
        if self.issue.class.is_background() { TaskClass::Background } else { TaskClass::Interrupt }
    }
}

fn flags_of(device: &dyn BlockDevice, tunables: &Tunables) -> u8 {
    let always = match tunables.scheduler {
        Scheduler::Auto => device.is_rotational(),
        Scheduler::On => true,
        Scheduler::Off => false,
    };
    if always { ALWAYS } else { 0 }
}

impl LeafDevice {
    /// A leaf on this device, whose vdev reads a large block from so many leaves.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        guid: Guid,
        (device, width): (&Arc<dyn BlockDevice>, usize),
        stats: &Arc<LeafStats>,
    ) -> LeafDevice {
        let generation = shared.tuning.generation();
        let tunables = shared.tuning.tunables();
        let flags = AtomicU8::new(flags_of(device.as_ref(), &tunables));
        let width = u32::try_from(width).unwrap_or(u32::MAX);
        let queue = VdevQueue::new(Device { rotational: device.is_rotational(), width }, tunables);
        let state = State { queue, waiting: BTreeMap::new(), generation, timer_at: None, background_at: 0, turned_away: false };
        let (device, shared, stats) = (device.clone(), shared.clone(), stats.clone());
        LeafDevice { guid, device, shared, stats, flags, idle: IdleLatencies::default(), state: Mutex::new(state) }
    }

    /// True for a device with heads that move.
    pub fn is_rotational(&self) -> bool {
        self.device.is_rotational()
    }

    pub(crate) fn is_on(&self, device: &Arc<dyn BlockDevice>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Does an I/O, now or when its turn comes; `waiter` holds this leaf and gets the reply.
    pub fn submit(self: &Arc<Self>, io: Submission, waiter: impl Waiter) {
        let Submission { op, offset, class, planned_ns } = io;
        let kind = kind_of(&op);
        match self.route(class, kind) {
            Route::Straight => self.straight((class, kind, planned_ns), (op, offset), waiter),
            Route::Queued => {
                let io = DeviceIo::new(op, offset, move |reply| waiter.done(reply));
                self.enqueue((class, kind), io.with_priority(io_priority(class)));
            }
        }
    }

    /// Writes bytes that are durable when it returns, on this thread, which waits for the device. None where an I/O would not go to the device now,
    /// or background work is about, or the device has no such way: then it is written and flushed as everything else.
    pub fn write_durably(self: &Arc<Self>, offset: u64, data: &Abd, planned_ns: u64) -> Option<Result<(), DeviceError>> {
        let (shared, class, kind) = (&self.shared, Class::SyncWrite, IoKind::Write);
        let is_meddled_with = shared.injection.is_set() || shared.flights.is_on();
        if is_meddled_with || !self.device.can_write_durably() {
            return None;
        }
        let issue = match self.route(class, kind) {
            Route::Straight => None,
            Route::Queued => Some(self.admit_alone(Io::new(class, kind, offset, data.len() as u64))?),
        };
        let issued_ns = shared.exec.now_ns();
        let queued_ns = issued_ns.saturating_sub(planned_ns);
        let timing = LeafTiming { kind, class, offset, bytes: data.len() as u64, merged: false, queued_ns, issued_ns, disk_ns: 0 };
        self.stats.issued(&timing);
        let outcome = self.device.write_durably(offset, data);
        match issue {
            None => drop(self.returned(timing, &outcome)),
            Some(issue) => self.finished(&issue, timing, &outcome),
        }
        Some(outcome)
    }

    /// Has the queue let an I/O through that is done on this thread, where the device is free for it and nobody is watched.
    fn admit_alone(&self, io: Io) -> Option<Issue> {
        if self.flags.load(Ordering::Relaxed) & WATCHED != 0 {
            return None;
        }
        let mut state = self.state.lock();
        state.refresh(&self.shared.tuning);
        state.queue.admit_alone(io, self.shared.exec.now_ns())
    }

    /// Hands an I/O to its device past the queue.
    fn straight(&self, (class, kind, planned_ns): (Class, IoKind, u64), (op, offset): (DeviceOp, u64), waiter: impl Waiter) {
        let issued_ns = self.shared.exec.now_ns();
        let queued_ns = issued_ns.saturating_sub(planned_ns);
        let timing = LeafTiming { kind, class, offset, bytes: op.length_bytes(), merged: false, queued_ns, issued_ns, disk_ns: 0 };
        self.stats.issued(&timing);
        let done = move |reply: DeviceReply| {
            if let Some(leaf) = waiter.leaf() {
                let took_ns = leaf.returned(timing, &reply.outcome);
                leaf.went_straight(&timing, took_ns);
            }
            waiter.done(reply);
        };
        self.hand_over(DeviceIo::new(op, offset, done).with_priority(io_priority(class)));
    }

    /// Gives an I/O to the device, now or at the end of a plug.
    fn hand_over(&self, io: DeviceIo) {
        let shared = &self.shared;
        let io = shared.flights.noted(&shared.exec, self.guid, io);
        let onward = |io| plug::submit(&shared.exec, &self.device, io);
        if shared.injection.is_set() {
            shared.injection.hand_over(&shared.exec, (self.guid, self.device.as_ref()), io, onward);
        } else {
            onward(io);
        }
    }

    /// An I/O came back from the device: counts it, and tells when it was slow. Gives what the device took, in nanoseconds.
    fn returned(&self, timing: LeafTiming, outcome: &Result<(), DeviceError>) -> u64 {
        let (shared, stats) = (&self.shared, &self.stats);
        let timing = LeafTiming { disk_ns: shared.exec.now_ns().saturating_sub(timing.issued_ns), ..timing };
        stats.returned(&timing);
        if outcome.is_ok() {
            stats.done(&timing);
        }
        if timing.disk_ns >= shared.tuning.slow_ns()
            && *outcome != Err(DeviceError::Gone)
            && stats.slow(shared.exec.now_ns(), shared.tuning.delay_rate.load(Ordering::Relaxed))
            && let Some(watcher) = shared.watcher.upgrade()
        {
            watcher.slow(self.guid, &timing);
        }
        if shared.tuning.was_overlooked(&timing)
            && let Some(watcher) = shared.watcher.upgrade()
        {
            watcher.overlooked(self.guid, timing.disk_ns);
        }
        timing.disk_ns
    }

    /// Follows a change of the parameters.
    pub(crate) fn retuned(&self, tunables: &Tunables) {
        if flags_of(self.device.as_ref(), tunables) == ALWAYS {
            self.flags.fetch_or(ALWAYS, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!ALWAYS, Ordering::Relaxed);
        }
    }

    fn route(&self, class: Class, kind: IoKind) -> Route {
        let queued = kind != IoKind::Flush && (self.flags.load(Ordering::Relaxed) != 0 || class.is_background());
        if queued { Route::Queued } else { Route::Straight }
    }

    /// An I/O that was not queued came back after so long.
    fn went_straight(&self, timing: &LeafTiming, took_ns: u64) {
        if timing.class.is_promised() {
            self.idle.note(timing.issued_ns, took_ns);
        }
    }

    pub(crate) fn state(&self, now_ns: u64) -> QueueState {
        let queue = &self.state.lock().queue;
        QueueState {
            queued: Class::ALL.map(|class| queue.queued(class)),
            active: Class::ALL.map(|class| queue.active(class)),
            promise: queue.promise(now_ns),
        }
    }

    /// Queues an I/O, or starts it at once where that is right.
    fn enqueue(self: &Arc<Self>, (class, kind): (Class, IoKind), io: DeviceIo) {
        let now = self.shared.exec.now_ns();
        let queued = Io::new(class, kind, io.offset, io.op.length_bytes());
        let (ready, timer) = {
            let mut state = self.state.lock();
            if class.is_background() {
                state.background_at = now;
                if self.flags.fetch_or(WATCHED, Ordering::Relaxed) & WATCHED == 0 {
                    state.queue.learned(&self.idle.recent(now), now);
                }
            }
            state.refresh(&self.shared.tuning);
            let mut ready = Vec::new();
            match state.queue.admit(queued, now) {
                Admitted::Issued(issue) => ready.push(Ready::new(issue, vec![io], false, now)),
                Admitted::Queued(id) => {
                    state.waiting.insert(id, io);
                    self.stats.queued(class);
                }
            }
            ready.extend(state.take_ready(now));
            let timer = state.take_timer(now);
            (ready, timer)
        };
        self.arm(now, timer);
        // Its own I/O starts on this thread, which waits for nothing else; the rest is nobody's.
        let mut own = true;
        for one in ready {
            if std::mem::take(&mut own) && one.issue.class.is_background() == class.is_background() {
                self.start(one);
            } else {
                self.start_later(one);
            }
        }
    }

    fn start_later(self: &Arc<Self>, ready: Ready) {
        let leaf = self.clone();
        self.shared.exec.spawn(ready.task_class(), Box::new(move || leaf.start(ready)));
    }

    fn start(self: &Arc<Self>, ready: Ready) {
        let Ready { waited, timing, issue, ios } = ready;
        self.stats.dequeued(timing.class, waited);
        self.stats.issued(&timing);
        let Some(DeviceIo { op, offset, then, priority }) = merged::join(&self.shared.exec, &self.device, ios) else { return };
        let leaf = self.clone();
        let done = move |reply: DeviceReply| {
            leaf.finished(&issue, timing, &reply.outcome);
            then(reply);
        };
        self.hand_over(DeviceIo::new(op, offset, done).with_priority(priority));
    }

    fn finished(self: &Arc<Self>, issue: &Issue, timing: LeafTiming, outcome: &Result<(), DeviceError>) {
        let now = self.shared.exec.now_ns();
        self.returned(timing, outcome);
        let (ready, timer, calls) = {
            let mut state = self.state.lock();
            state.queue.done(issue.id, now);
            if issue.class.is_background() {
                state.background_at = now;
            } else if !state.queue.has_background() && now.saturating_sub(state.background_at) > QUIET_NS {
                self.flags.fetch_and(!WATCHED, Ordering::Relaxed);
            }
            state.refresh(&self.shared.tuning);
            (state.take_ready(now), state.take_timer(now), state.take_call(now))
        };
        self.arm(now, timer);
        ready.into_iter().for_each(|one| self.start_later(one));
        if calls {
            self.shared.call_roaming();
        }
    }

    /// Says what background work that can go on anywhere may queue, with so many bytes in sequence next (`run_bytes`), which follow what was
    /// queued last or not; starts what it is to give way to.
    pub fn roam(self: &Arc<Self>, (run_bytes, follows): (u64, bool)) -> Roam {
        self.decide(|state, now| {
            state.queue.set_roaming(true);
            let answer = state.queue.roam(run_bytes, now);
            state.turned_away = answer == Roam::Wait || answer == Roam::Onward && !follows;
            answer
        })
    }

    /// Takes back what was granted: it will not be used.
    pub fn give_way(self: &Arc<Self>) {
        self.decide(|state, _| state.queue.give_way());
    }

    /// Notes that no such work is left.
    pub fn end_roaming(self: &Arc<Self>) {
        self.decide(|state, _| {
            state.queue.set_roaming(false);
            state.turned_away = false;
        });
    }

    /// Changes what the scheduler goes by, and starts what it lets go then.
    fn decide<R>(self: &Arc<Self>, change: impl FnOnce(&mut State, u64) -> R) -> R {
        let now = self.shared.exec.now_ns();
        let (answer, ready, timer) = {
            let mut state = self.state.lock();
            state.refresh(&self.shared.tuning);
            let answer = change(&mut state, now);
            (answer, state.take_ready(now), state.take_timer(now))
        };
        self.arm(now, timer);
        ready.into_iter().for_each(|one| self.start_later(one));
        answer
    }

    fn arm(self: &Arc<Self>, now_ns: u64, timer: Option<u64>) {
        let Some(at) = timer else { return };
        let leaf = Arc::downgrade(self);
        self.shared.exec.spawn_after(at.saturating_sub(now_ns), TaskClass::Interrupt, Box::new(move || LeafDevice::woken(&leaf, at)));
    }

    /// A timer is due.
    fn woken(leaf: &Weak<LeafDevice>, at: u64) {
        let Some(leaf) = leaf.upgrade() else { return };
        let now = leaf.shared.exec.now_ns();
        let (ready, timer, calls) = {
            let mut state = leaf.state.lock();
            if state.timer_at == Some(at) {
                state.timer_at = None;
            }
            state.refresh(&leaf.shared.tuning);
            (state.take_ready(now), state.take_timer(now), state.take_call(now))
        };
        leaf.arm(now, timer);
        ready.into_iter().for_each(|one| leaf.start_later(one));
        if calls {
            leaf.shared.call_roaming();
        }
    }
}
