//! The I/O scheduler at work: one [`VdevQueue`] per leaf behind a lock of its own, fed with what cannot go straight to the device.
//!
//! ```text
//!   batch ──► route ─ straight ──────────────────────────────► plug ──► device
//!                └─── queued ──► enqueue ──► VdevQueue ──► start ─────► device
//!                                               ▲ timer        └─ finished ─┘ (what is next starts in a job)
//! ```
//! Straight goes what somebody may wait for (reads, writes of users and transaction groups) on a device that is not rotational, as long as
//! no background work has used it in the last second: that costs one relaxed load of a word that nobody writes, no lock and no allocation.
//! While background work is there the queue sees everything, so that it can keep the latency promise (docs/adr/0005), but still lets
//! what somebody may wait for through at once; what went straight before tells it what the idle device does (`idle`). Background work, and everything on a rotational device, waits for its turn. Flushes
//! are never queued: they follow what was written.
//!
//! Invariants: the lock is held for decisions only, never while a device or a continuation runs; whoever frees a place starts what is next,
//! in a job of its own, because the thread of a completion may not be able to submit and a device may do its work in `submit`.

use crate::engine::Core;
use crate::extended::LeafTiming;
use crate::idle::IdleLatencies;
use crate::merged;
use crate::stats::LeafStats;
use crate::tuning::Tuning;
use device::{BlockDevice, DeviceIo, DeviceReply};
use exec::{Mutex, TaskClass};
use ondisk::Guid;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use vdev_queue::{Admitted, CLASSES, Class, Device, Io, IoId, IoKind, Issue, PromiseState, Roam, Scheduler, Tunables, VdevQueue};

/// Everything is queued: the device is rotational, or a parameter says so.
const ALWAYS: u8 = 1;
/// Everything is seen: background work is about.
const WATCHED: u8 = 2;
/// After so long without background work nobody is watched any more.
const QUIET_NS: u64 = 1_000_000_000;

/// The schedulers of a view by leaf.
pub(crate) type LeafQueues = BTreeMap<Guid, Arc<LeafQueue>>;

/// Where an I/O goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To the device.
    Straight,
    /// To the queue.
    Queued,
}

/// What one leaf's scheduler does now.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// I/Os that wait, by [`Class`].
    pub queued: [usize; CLASSES],
    /// I/Os that the scheduler gave to the device, by [`Class`]; those that went straight are not among them.
    pub active: [u32; CLASSES],
    /// What the latency promise does, and why.
    pub promise: PromiseState,
}

/// The scheduler of one leaf on one device.
pub(crate) struct LeafQueue {
    guid: Guid,
    device: Arc<dyn BlockDevice>,
    stats: Arc<LeafStats>,
    flags: AtomicU8,
    idle: IdleLatencies,
    state: Mutex<State>,
}

impl std::fmt::Debug for LeafQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeafQueue").field("guid", &self.guid).finish_non_exhaustive()
    }
}

struct State {
    queue: VdevQueue,
    waiting: BTreeMap<IoId, DeviceIo>,
    /// Which parameters `queue` has.
    generation: u64,
    timer_at: Option<u64>,
    background_at: u64,
    /// Whoever asked ([`LeafQueue::roam`]) was told to wait.
    turned_away: bool,
}

/// What goes to the device now.
struct Ready {
    /// How many of its parts were waiting.
    waited: usize,
    timing: LeafTiming,
    issue: Issue,
    ios: Vec<DeviceIo>,
}

impl State {
    /// Brings what the queue goes by up to date.
    fn refresh(&mut self, core: &Core) {
        let generation = core.tuning.generation();
        if self.generation != generation {
            self.generation = generation;
            self.queue.set_tunables(core.tuning.tunables());
        }
        if self.queue.queued(Class::AsyncWrite) > 0 {
            self.queue.set_dirty(core.tuning.dirty());
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

    /// Whether whoever was told to wait is to be called.
    fn take_call(&mut self, now_ns: u64) -> bool {
        let calls = self.turned_away && self.queue.wants_roamer(now_ns);
        self.turned_away &= !calls;
        calls
    }

    /// When somebody is to look again, if that is sooner than somebody will.
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

impl LeafQueue {
    /// The scheduler of a leaf on this device, whose vdev reads a large block from so many leaves.
    pub(crate) fn new(guid: Guid, (device, width): (&Arc<dyn BlockDevice>, usize), stats: &Arc<LeafStats>, tuning: &Tuning) -> LeafQueue {
        let generation = tuning.generation();
        let tunables = tuning.tunables();
        let flags = AtomicU8::new(flags_of(device.as_ref(), &tunables));
        let width = u32::try_from(width).unwrap_or(u32::MAX);
        let queue = VdevQueue::new(Device { rotational: device.is_rotational(), width }, tunables);
        let state = State { queue, waiting: BTreeMap::new(), generation, timer_at: None, background_at: 0, turned_away: false };
        LeafQueue { guid, device: device.clone(), stats: stats.clone(), flags, idle: IdleLatencies::default(), state: Mutex::new(state) }
    }

    pub(crate) fn guid(&self) -> Guid {
        self.guid
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn is_on(&self, device: &Arc<dyn BlockDevice>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// The parameters changed.
    pub(crate) fn retuned(&self, tunables: &Tunables) {
        if flags_of(self.device.as_ref(), tunables) == ALWAYS {
            self.flags.fetch_or(ALWAYS, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!ALWAYS, Ordering::Relaxed);
        }
    }

    pub(crate) fn route(&self, class: Class, kind: IoKind) -> Route {
        let queued = kind != IoKind::Flush && (self.flags.load(Ordering::Relaxed) != 0 || class.is_background());
        if queued { Route::Queued } else { Route::Straight }
    }

    /// An I/O that was not queued came back after so long.
    pub(crate) fn went_straight(&self, timing: &LeafTiming, took_ns: u64) {
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
    pub(crate) fn enqueue(self: &Arc<Self>, core: &Arc<Core>, (class, kind): (Class, IoKind), io: DeviceIo) {
        let now = core.exec.now_ns();
        let queued = Io::new(class, kind, io.offset, io.op.length_bytes());
        let (ready, timer) = {
            let mut state = self.state.lock();
            if class.is_background() {
                state.background_at = now;
                if self.flags.fetch_or(WATCHED, Ordering::Relaxed) & WATCHED == 0 {
                    state.queue.learned(&self.idle.recent(now), now);
                }
            }
            state.refresh(core);
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
        self.arm(core, now, timer);
        // Its own I/O starts on this thread, which waits for nothing else; the rest is nobody's.
        let mut own = true;
        for one in ready {
            if std::mem::take(&mut own) && one.issue.class.is_background() == class.is_background() {
                self.start(core, one);
            } else {
                self.start_later(core, one);
            }
        }
    }

    fn start_later(self: &Arc<Self>, core: &Arc<Core>, ready: Ready) {
        let (queue, owner) = (self.clone(), core.clone());
        core.exec.spawn(ready.task_class(), Box::new(move || queue.start(&owner, ready)));
    }

    fn start(self: &Arc<Self>, core: &Arc<Core>, ready: Ready) {
        let Ready { waited, timing, issue, ios } = ready;
        self.stats.dequeued(timing.class, waited);
        self.stats.issued(&timing);
        let Some(DeviceIo { op, offset, then }) = merged::join(&core.exec, &self.device, ios) else { return };
        let (queue, owner) = (self.clone(), core.clone());
        let done = move |reply: DeviceReply| {
            queue.finished(&owner, &issue, timing, &reply);
            then(reply);
        };
        core.hand_over(self, DeviceIo::new(op, offset, done));
    }

    fn finished(self: &Arc<Self>, core: &Arc<Core>, issue: &Issue, timing: LeafTiming, reply: &DeviceReply) {
        let now = core.exec.now_ns();
        core.leaf_returned(self.guid, &self.stats, timing, &reply.outcome);
        let (ready, timer, calls) = {
            let mut state = self.state.lock();
            state.queue.done(issue.id, now);
            if issue.class.is_background() {
                state.background_at = now;
            } else if !state.queue.has_background() && now.saturating_sub(state.background_at) > QUIET_NS {
                self.flags.fetch_and(!WATCHED, Ordering::Relaxed);
            }
            state.refresh(core);
            (state.take_ready(now), state.take_timer(now), state.take_call(now))
        };
        self.arm(core, now, timer);
        ready.into_iter().for_each(|one| self.start_later(core, one));
        if calls {
            core.call_roaming();
        }
    }

    /// Says what background work that can go on anywhere may queue, with so many bytes in sequence next (`run_bytes`), which follow what was
    /// queued last or not; starts what it is to give way to.
    pub(crate) fn roam(self: &Arc<Self>, core: &Arc<Core>, (run_bytes, follows): (u64, bool)) -> Roam {
        self.decide(core, |state, now| {
            state.queue.set_roaming(true);
            let answer = state.queue.roam(run_bytes, now);
            state.turned_away = answer == Roam::Wait || answer == Roam::Onward && !follows;
            answer
        })
    }

    /// What was granted will not be used.
    pub(crate) fn give_way(self: &Arc<Self>, core: &Arc<Core>) {
        self.decide(core, |state, _| state.queue.give_way());
    }

    /// There is no such work any more.
    pub(crate) fn end_roaming(self: &Arc<Self>, core: &Arc<Core>) {
        self.decide(core, |state, _| {
            state.queue.set_roaming(false);
            state.turned_away = false;
        });
    }

    /// Changes what the scheduler goes by, and starts what it lets go then.
    fn decide<R>(self: &Arc<Self>, core: &Arc<Core>, change: impl FnOnce(&mut State, u64) -> R) -> R {
        let now = core.exec.now_ns();
        let (answer, ready, timer) = {
            let mut state = self.state.lock();
            state.refresh(core);
            let answer = change(&mut state, now);
            (answer, state.take_ready(now), state.take_timer(now))
        };
        self.arm(core, now, timer);
        ready.into_iter().for_each(|one| self.start_later(core, one));
        answer
    }

    fn arm(self: &Arc<Self>, core: &Arc<Core>, now_ns: u64, timer: Option<u64>) {
        let Some(at) = timer else { return };
        let (queue, owner) = (Arc::downgrade(self), Arc::downgrade(core));
        core.exec.spawn_after(at.saturating_sub(now_ns), TaskClass::Interrupt, Box::new(move || LeafQueue::woken(&queue, &owner, at)));
    }

    /// A timer is due.
    fn woken(queue: &Weak<LeafQueue>, core: &Weak<Core>, at: u64) {
        let (Some(queue), Some(core)) = (queue.upgrade(), core.upgrade()) else { return };
        let now = core.exec.now_ns();
        let (ready, timer, calls) = {
            let mut state = queue.state.lock();
            if state.timer_at == Some(at) {
                state.timer_at = None;
            }
            state.refresh(&core);
            (state.take_ready(now), state.take_timer(now), state.take_call(now))
        };
        queue.arm(&core, now, timer);
        ready.into_iter().for_each(|one| queue.start_later(&core, one));
        if calls {
            core.call_roaming();
        }
    }
}
