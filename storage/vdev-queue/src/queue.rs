//! The queue of one leaf: what waits, what the device has, and what goes next (OpenZFS: `vdev_queue_class_to_issue`,
//! `vdev_queue_io_to_issue`, `vdev_queue_pending_add`).
//!
//! Classes below their minimum are served round robin, then the others in their order up to their maximum. Classes for which somebody
//! waits, and trims, are served by age; the others by offset, upwards from the last I/O, within half a second of age.

use crate::flight::Flight;
use crate::gather::{Callers, Gather};
use crate::io::{Finished, Io, IoId, Issue, IssueId, Overdue, Part};
use crate::merge;
use crate::promise::{Crowd, Promise, PromiseState, Reason, Room, Seen};
use crate::roam::{Moment, Roam, Roamer};
use crate::tunables::{ActiveLimits, Dirty, MERGED_BYTES_MAX, Scheduler, Tunables};
use crate::{CLASSES, Class, Device, IoKind, LatencyTarget};
use std::collections::{BTreeMap, BTreeSet};

/// I/Os of an age within 2^29 ns are served by offset.
const AGE_SHIFT: u32 = 29;
/// Number of I/Os for which background work of one class goes on, on a rotational device that somebody uses, before another class has its
/// turn; it is so many fewer if the head comes back from an excursion: then it has to seek anyway.
const TURN_IOS: u32 = 512;
const TURN_EARLY_IOS: u32 = 384;
/// Background I/O that begins so near to the end of the one before needs no seek.
const STREAM_GAP_BYTES: u64 = 1 << 20;
/// Most by which scattered I/Os outnumber others, as it is remembered; with half of it background work counts as scattered.
const SCATTERED_MOST: u32 = 32;

/// Background work alone on a device that does not rotate may have so many times its maximum there, as long as more is faster.
const ALONE_TIMES: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    io: Io,
    arrival: Arrival,
}

/// Arrival of an I/O, and of background work whether any was in the device then.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at_ns: u64,
    /// Number of background I/Os issued before, if the device had none.
    alone_at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    class: Class,
    kind: IoKind,
    offset: u64,
    size_bytes: u64,
    parts: u32,
    issued_ns: u64,
    arrival: Arrival,
    /// Bytes that had come back when it was issued, by [`Flight::launched`].
    delivered_before: u64,
    /// True when the time that it takes says something of the device.
    is_seen: bool,
}

/// Result of [`VdevQueue::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The I/O waits; [`VdevQueue::next`] will bring it.
    Queued(IoId),
    /// The I/O goes to the device at once.
    Issued(Issue),
}

/// The I/O scheduler of one leaf.
#[derive(Clone, Debug)]
pub struct VdevQueue {
    device: Device,
    tunables: Tunables,
    dirty: Dirty,
    promise: Promise,
    waiting: BTreeMap<IoId, Waiting>,
    order: [BTreeSet<(u64, u64, IoId)>; CLASSES],
    /// Reads and writes that may be merged, by class and offset.
    places: [[BTreeSet<(u64, IoId)>; 2]; CLASSES],
    active: BTreeMap<IssueId, Active>,
    active_of: [u32; CLASSES],
    interactive_active: u32,
    background_active: u32,
    background_issued: u64,
    /// Bytes of background work that wait.
    background_bytes: u64,
    credit: u32,
    /// Background class that has the turn, and the number of I/Os that it has left.
    turn: (Class, u32),
    /// True when something else was issued since the last background I/O.
    away: bool,
    /// Offset at which the last background I/O of each class ended, and how many more of late began elsewhere than there.
    background_ends: [u64; CLASSES],
    scattered: u32,
    gather: Gather,
    roamer: Roamer,
    flight: Flight,
    last_class: usize,
    last_offset: u64,
    next_io: u64,
    next_issue: u64,
    slow_ios: u64,
}

impl VdevQueue {
    /// An empty queue.
    pub fn new(device: Device, tunables: Tunables) -> VdevQueue {
        VdevQueue {
            device,
            tunables,
            dirty: Dirty::default(),
            promise: Promise::new(device),
            waiting: BTreeMap::new(),
            order: Default::default(),
            places: Default::default(),
            active: BTreeMap::new(),
            active_of: [0; CLASSES],
            interactive_active: 0,
            background_active: 0,
            background_issued: 0,
            background_bytes: 0,
            credit: 0,
            turn: (Class::Rebuild, 0),
            away: false,
            background_ends: [0; CLASSES],
            scattered: 0,
            gather: Gather::new(),
            roamer: Roamer::default(),
            flight: Flight::new(),
            last_class: CLASSES - 1,
            last_offset: 0,
            next_io: 0,
            next_issue: 0,
            slow_ios: 0,
        }
    }

    /// Learns how long I/Os that somebody waited for took lately while the device had no background work and they went past the queue, in
    /// nanoseconds.
    pub fn learned(&mut self, latencies_ns: &[u64], now_ns: u64) {
        self.promise.learned(self.tunables.latency_target, latencies_ns, now_ns);
    }

    /// Queues an I/O.
    pub fn add(&mut self, io: Io, now_ns: u64) -> IoId {
        let io = Io { class: io.class.for_kind(io.kind), ..io };
        let id = self.name_io();
        let arrival = self.arrival(io.class, now_ns);
        self.enqueue(id, Waiting { io, arrival });
        id
    }

    /// Queues an I/O, or hands it out at once where `Scheduler` says that it needs no queue. [`VdevQueue::next`] is to be asked in
    /// either case.
    pub fn admit(&mut self, io: Io, now_ns: u64) -> Admitted {
        let class = io.class.for_kind(io.kind);
        let at_once = match self.tunables.scheduler {
            Scheduler::On => false,
            Scheduler::Off => class.is_promised(),
            Scheduler::Auto => !self.device.rotational && !class.is_background(),
        };
        if !at_once || io.optional {
            return Admitted::Queued(self.add(io, now_ns));
        }
        let io = Io { class, ..io };
        let id = self.name_io();
        let arrival = self.arrival(class, now_ns);
        Admitted::Issued(self.issue(vec![(id, io)], arrival, now_ns))
    }

    /// Hands out at once an I/O that its caller does on his own thread, where `add` and `next` would do so, too: nothing waits, the device has room,
    /// and no background work is about. It is one of the I/Os that the device has until [`VdevQueue::done`], and as it may take longer than one (a
    /// flush goes with it), the promise learns nothing from it.
    pub fn admit_alone(&mut self, io: Io, now_ns: u64) -> Option<Issue> {
        let class = io.class.for_kind(io.kind);
        let has_room = self.active.len() < self.tunables.max_active as usize && self.active(class) < self.tunables.limits(class).max;
        if !has_room || !self.waiting.is_empty() || self.background_active > 0 || self.roamer.is_about() {
            return None;
        }
        let id = self.name_io();
        self.last_class = class as usize;
        let arrival = Arrival { at_ns: now_ns, alone_at: None };
        let issue = self.issue(vec![(id, Io { class, ..io })], arrival, now_ns);
        self.active.entry(issue.id).and_modify(|active| active.is_seen = false);
        Some(issue)
    }

    /// Returns the next I/O for the device; to be asked until there is none after every `add`, `admit`, `done` and at [`VdevQueue::wake_at`].
    pub fn next(&mut self, now_ns: u64) -> Option<Issue> {
        let class = self.class_to_issue(now_ns)?;
        let head = self.head(class)?;
        let waiting = *self.waiting.get(&head)?;
        let merged = merge::neighbours(self, head, waiting.io);
        if let Some(id) = merged.now_mandatory
            && let Some(waiting) = self.waiting.get_mut(&id)
        {
            waiting.io.optional = false;
        }
        let mut arrival = waiting.arrival;
        let mut parts = Vec::with_capacity(merged.ids.len());
        for id in merged.ids {
            let Some(part) = self.dequeue(id) else { continue };
            if part.arrival.at_ns < arrival.at_ns {
                arrival = part.arrival;
            }
            parts.push((id, part.io));
        }
        self.last_class = class as usize;
        Some(self.issue(parts, arrival, now_ns))
    }

    /// The device is done with an I/O. None if it does not have it.
    pub fn done(&mut self, id: IssueId, now_ns: u64) -> Option<Finished> {
        let ended = self.active.remove(&id)?;
        self.active_of[ended.class as usize] -= 1;
        let device_ns = now_ns.saturating_sub(ended.issued_ns);
        if ended.class.is_background() {
            self.background_active -= 1;
            if ended.kind.merges() {
                self.flight.landed(ended.size_bytes, ended.delivered_before, device_ns);
            }
            if self.background_active == 0 {
                self.gather.background_gone(now_ns);
            }
        }
        if ended.class.is_interactive() {
            self.interactive_active -= 1;
            self.credit = if self.interactive_active == 0 { 0 } else { self.tunables.nia_credit };
        } else if self.interactive_active == 0 {
            self.credit = self.credit.saturating_add(1);
        }
        let slow = device_ns >= self.tunables.slow_io_ms.saturating_mul(1_000_000);
        self.slow_ios += u64::from(slow);
        if ended.class.is_promised() && !self.serves() {
            self.roamer.left(ended.offset.saturating_add(ended.size_bytes));
        }
        if ended.class.is_promised() && ended.is_seen {
            self.gather.ended();
            let alone = self.background_active == 0 && ended.arrival.alone_at == Some(self.background_issued);
            let latency_ns = now_ns.saturating_sub(ended.arrival.at_ns);
            let seen = Seen { arrived_ns: ended.arrival.at_ns, latency_ns, alone, background: self.background_active };
            self.promise.observe(self.tunables.latency_target, seen);
        }
        let queued_ns = ended.issued_ns.saturating_sub(ended.arrival.at_ns);
        Some(Finished { class: ended.class, parts: ended.parts, queued_ns, device_ns, slow })
    }

    /// Time in ns at which `next` is to be asked again although nothing happened: background work waits for it. None: it waits for an event.
    pub fn wake_at(&self, now_ns: u64) -> Option<u64> {
        if !self.has_more() || self.tunables.latency_target == LatencyTarget::Off {
            return None;
        }
        let due = if self.device.rotational { self.gather.due_ns(&self.callers(self.budget_ns())) } else { None };
        let gathered = due.filter(|at_ns| *at_ns > now_ns);
        [self.promise.wake_at(now_ns), gathered].into_iter().flatten().min()
    }

    /// Times in ns at which the promised I/Os that wait came, the oldest first.
    fn arrivals(&self) -> impl Iterator<Item = u64> {
        let mut reads = self.order[Class::SyncRead as usize].iter().peekable();
        let mut writes = self.order[Class::SyncWrite as usize].iter().peekable();
        std::iter::from_fn(move || {
            let reads_first = writes.peek().is_none_or(|write| reads.peek().is_some_and(|read| read < write));
            let (_, _, id) = if reads_first { reads.next() } else { writes.next() }?;
            self.waiting.get(id).map(|waiting| waiting.arrival.at_ns)
        })
    }

    fn callers(&self, budget_ns: u64) -> Callers {
        let promised = self.active.values().filter(|active| active.class.is_promised());
        Callers {
            oldest_ns: self.arrivals().next(),
            latest_ns: self.gather.latest_ns(budget_ns, self.arrivals()),
            active: u64::from(self.active(Class::SyncRead) + self.active(Class::SyncWrite)),
            oldest_active_ns: promised.map(|active| active.arrival.at_ns).min(),
            is_away: self.active(Class::AsyncRead) + self.active(Class::AsyncWrite) > 0,
        }
    }

    /// Within what time promised I/Os that wait for others are to be served; 0: they do not wait.
    fn budget_ns(&self) -> u64 {
        if self.has_more() && self.streams() { self.promise.budget_ns(self.tunables.latency_target) } else { 0 }
    }

    /// True when background work reads or writes in sequence, or chooses where it goes: then each excursion of the head costs it time.
    fn streams(&self) -> bool {
        self.roamer.is_about() || self.scattered < SCATTERED_MOST / 2
    }

    /// True when promised I/Os wait for others, so that one excursion of a rotational device's head serves several (docs/adr/0005).
    fn gathers(&mut self, now_ns: u64) -> bool {
        if !self.device.rotational {
            return false;
        }
        let budget_ns = self.budget_ns();
        let callers = self.callers(budget_ns);
        if self.roamer.is_about() && self.is_drained() {
            let due_ns = self.gather.due_ns(&callers);
            if self.roamer.gives_way(due_ns.map(|due_ns| due_ns.saturating_sub(now_ns))) {
                self.gather.interrupt(&callers, now_ns);
            }
        }
        self.gather.step(budget_ns, &callers, now_ns)
    }

    /// Notes whether background work is about that can go on anywhere and has more to do than it queues: [`VdevQueue::roam`] tells it what to
    /// queue, and when.
    pub fn set_roaming(&mut self, roaming: bool) {
        self.roamer.set_about(roaming);
    }

    /// Says what background work that can go on anywhere may queue now. `run_bytes` is how much lies in sequence where it would go next.
    /// To be asked when an I/O ended or [`VdevQueue::wake_at`] came, before each that is queued; [`VdevQueue::next`] is to be asked after it.
    pub fn roam(&mut self, run_bytes: u64, now_ns: u64) -> Roam {
        let moment = self.moment(run_bytes, now_ns);
        self.roamer.answer(&moment)
    }

    /// True when [`VdevQueue::roam`] would have such work queue something, if what comes next is short enough.
    pub fn wants_roamer(&self, now_ns: u64) -> bool {
        self.roamer.is_about() && self.roamer.judge(&self.moment(0, now_ns)) != Roam::Wait
    }

    /// Takes back what [`VdevQueue::roam`] granted: another leaf serves somebody. This one does, too, as soon as it has nothing else
    /// to do.
    pub fn give_way(&mut self) {
        self.roamer.give_way();
    }

    fn moment(&self, run_bytes: u64, now_ns: u64) -> Moment {
        let held_bytes = self.background_bytes + self.flight.bytes();
        let promises = self.tunables.latency_target != LatencyTarget::Off;
        let is_held = self.device.rotational && self.gather.has_arm() && promises && self.promise.is_bound(now_ns);
        let due_ns = if is_held { self.gather.due_ns(&self.callers(self.budget_ns())) } else { None };
        Moment {
            is_held,
            serves: self.serves(),
            is_drained: self.is_drained(),
            held_bytes,
            left_ns: due_ns.map(|due_ns| due_ns.saturating_sub(now_ns)),
            drain_ns: self.flight.takes_ns(held_bytes),
            run_ns: self.flight.takes_ns(run_bytes),
        }
    }

    /// True when the device has I/Os that somebody waits for.
    fn serves(&self) -> bool {
        self.active(Class::SyncRead) + self.active(Class::SyncWrite) > 0
    }

    /// True when no background work waits, and the device has none.
    fn is_drained(&self) -> bool {
        self.background_active == 0 && !self.background_queued()
    }

    /// True when background work waits, or can be had.
    fn has_more(&self) -> bool {
        self.roamer.is_about() || self.background_queued()
    }

    /// Moves a queued I/O to another class (somebody waits for it now). False: it is not queued any more.
    pub fn change_class(&mut self, id: IoId, class: Class) -> bool {
        let Some(mut waiting) = self.dequeue(id) else { return false };
        waiting.io.class = class.for_kind(waiting.io.kind);
        if waiting.io.class.is_promised() {
            self.promise.arrived(waiting.arrival.at_ns);
        }
        self.enqueue(id, waiting);
        true
    }

    /// The pool's dirty data changed.
    pub fn set_dirty(&mut self, dirty: Dirty) {
        self.dirty = dirty;
    }

    /// Parameters of the queue.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Changes the parameters; counts from the next decision on.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        let retarget = tunables.latency_target != self.tunables.latency_target;
        self.tunables = tunables;
        if retarget {
            self.promise.retarget(self.tunables.latency_target);
        }
    }

    /// Number of I/Os of the class that wait.
    pub fn queued(&self, class: Class) -> usize {
        self.order[class as usize].len()
    }

    /// Number of I/Os of the class that the device has.
    pub fn active(&self, class: Class) -> u32 {
        self.active_of[class as usize]
    }

    /// True when background work waits, or the device has some.
    pub fn has_background(&self) -> bool {
        self.background_active > 0 || self.background_queued()
    }

    /// Number of I/Os that took `zio_slow_io_ms` or longer.
    pub fn slow_ios(&self) -> u64 {
        self.slow_ios
    }

    /// I/Os that the device has had for longer than `zfs_deadman_ziotime_ms`, the oldest first.
    pub fn overdue(&self, now_ns: u64) -> impl Iterator<Item = Overdue> {
        let limit = self.tunables.deadman_ziotime_ms.saturating_mul(1_000_000);
        let enabled = self.tunables.deadman_enabled;
        let aged = self.active.iter().map(move |(id, active)| (*id, *active, now_ns.saturating_sub(active.issued_ns)));
        aged.take_while(move |(_, _, age)| enabled && *age > limit).map(|(id, active, device_ns)| Overdue {
            id,
            class: active.class,
            kind: active.kind,
            offset: active.offset,
            size_bytes: active.size_bytes,
            device_ns,
        })
    }

    /// State of the latency promise, with the reason for it.
    pub fn promise(&self, now_ns: u64) -> PromiseState {
        self.promise.state(now_ns)
    }

    pub(crate) fn merge_limit(&self) -> u64 {
        let tunables = &self.tunables;
        let limit = if self.device.rotational { tunables.aggregation_limit } else { tunables.aggregation_limit_non_rotating };
        limit.min(MERGED_BYTES_MAX)
    }

    /// The queued I/O of the same class and kind before this one by offset.
    pub(crate) fn before(&self, id: IoId, io: &Io) -> Option<(IoId, Io)> {
        let (_, id) = self.places(io)?.range(..(io.offset, id)).next_back()?;
        Some((*id, self.waiting.get(id)?.io))
    }

    /// The one after it.
    pub(crate) fn after(&self, id: IoId, io: &Io) -> Option<(IoId, Io)> {
        let (_, id) = self.places(io)?.range((io.offset, IoId(id.0 + 1))..).next()?;
        Some((*id, self.waiting.get(id)?.io))
    }

    fn places(&self, io: &Io) -> Option<&BTreeSet<(u64, IoId)>> {
        io.kind.merges().then(|| &self.places[io.class as usize][io.kind as usize])
    }

    fn name_io(&mut self) -> IoId {
        self.next_io += 1;
        IoId(self.next_io)
    }

    fn arrival(&mut self, class: Class, at_ns: u64) -> Arrival {
        if class.is_promised() {
            self.gather.arrived(at_ns);
            self.promise.arrived(at_ns);
        }
        Arrival { at_ns, alone_at: (self.background_active == 0).then_some(self.background_issued) }
    }

    fn key(id: IoId, waiting: &Waiting) -> (u64, u64, IoId) {
        let io = &waiting.io;
        if io.class.is_fifo() { (id.0, 0, id) } else { (waiting.arrival.at_ns >> AGE_SHIFT, io.offset, id) }
    }

    fn enqueue(&mut self, id: IoId, waiting: Waiting) {
        let io = waiting.io;
        if io.class.is_background() {
            self.background_bytes += io.size_bytes;
            self.roamer.goes_on();
        }
        self.order[io.class as usize].insert(Self::key(id, &waiting));
        if io.merge && io.kind.merges() {
            self.places[io.class as usize][io.kind as usize].insert((io.offset, id));
        }
        self.waiting.insert(id, waiting);
    }

    fn dequeue(&mut self, id: IoId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        let io = waiting.io;
        if io.class.is_background() {
            self.background_bytes -= io.size_bytes;
        }
        self.order[io.class as usize].remove(&Self::key(id, &waiting));
        if io.merge && io.kind.merges() {
            self.places[io.class as usize][io.kind as usize].remove(&(io.offset, id));
        }
        Some(waiting)
    }

    /// Name of the I/O of the class that is next.
    fn head(&self, class: Class) -> Option<IoId> {
        let order = &self.order[class as usize];
        let (age, offset, id) = *order.first()?;
        if class.is_fifo() || offset >= self.last_offset {
            return Some(id);
        }
        let onward = order.range((age, self.last_offset, IoId(0))..).next().filter(|(other, _, _)| *other == age);
        Some(onward.map_or(id, |(_, _, id)| *id))
    }

    fn class_to_issue(&mut self, now_ns: u64) -> Option<Class> {
        if self.active.len() >= self.tunables.max_active as usize {
            return None;
        }
        let gathers = self.gathers(now_ns);
        let room = self.room(now_ns, gathers);
        let turn = if room == Room::Unbound { None } else { self.background_turn(room) };
        let below = |class: &Class, limit: fn(ActiveLimits) -> u32| {
            let index = *class as usize;
            let held = gathers && class.is_promised();
            !held && !self.order[index].is_empty() && self.active_of[index] < limit(self.limits_now(*class, (room, turn)))
        };
        let mut round = (1..=CLASSES).map(|step| Class::ALL[(self.last_class + step) % CLASSES]);
        let chosen = round
            .find(|class| below(class, |limits| limits.min))
            .or_else(|| Class::ALL.into_iter().find(|class| below(class, |limits| limits.max)));
        if room == Room::Unbound && chosen.is_none() && self.background_queued() && self.interactive_active > 0 {
            self.promise.note(Reason::Credit);
        } else if chosen.is_some_and(Class::is_background) || !self.background_queued() {
            self.promise.note(Reason::None);
        }
        chosen
    }

    fn background_queued(&self) -> bool {
        Class::ALL.iter().any(|class| class.is_background() && !self.order[*class as usize].is_empty())
    }

    fn room(&mut self, now_ns: u64, gathers: bool) -> Room {
        if !self.background_queued() {
            return Room::Unbound;
        }
        let queued = if gathers { 0 } else { self.queued(Class::SyncRead) + self.queued(Class::SyncWrite) };
        let promised = self.active(Class::SyncRead) + self.active(Class::SyncWrite) + u32::try_from(queued).unwrap_or(u32::MAX / 2);
        let crowd = Crowd { promised, background: self.background_active, streams: self.streams() };
        self.promise.room(self.tunables.latency_target, crowd, now_ns)
    }

    /// Limits of a class at this moment: fewer async writes with little dirty data, background work as credit and promise allow.
    fn limits_now(&self, class: Class, (room, turn): (Room, Option<Class>)) -> ActiveLimits {
        let mut limits = self.tunables.limits(class);
        if class == Class::AsyncWrite {
            limits.max = self.tunables.async_write_max(self.dirty);
        }
        limits.min = limits.min.min(limits.max);
        if !class.is_background() {
            return limits;
        }
        match room {
            Room::Unbound if self.is_full() => ActiveLimits { min: 0, max: 0 },
            Room::Unbound => self.credited(class, self.alone(class, limits)),
            _ if turn != Some(class) => ActiveLimits { min: 0, max: 0 },
            Room::Starving => limits,
            Room::Upto(most) if self.background_active >= most => ActiveLimits { min: 0, max: 0 },
            Room::Upto(_) if self.device.rotational && self.streams() => self.credited(class, limits),
            Room::Upto(_) => limits,
        }
    }

    /// Limits of background work that has the device to itself. How much of it makes the device faster is known where the device does not
    /// rotate ([`Flight`]), and a few I/Os are not always that much: of a RAID-Z column of 96 KiB three are less than an NVMe device needs.
    /// Nothing is known of trims.
    fn alone(&self, class: Class, limits: ActiveLimits) -> ActiveLimits {
        let times = if self.bounds_flight() && class != Class::Trim { ALONE_TIMES } else { 1 };
        ActiveLimits { max: limits.max.saturating_mul(times), ..limits }
    }

    /// True when more background I/O at a time would only be in the way of whoever comes next.
    fn is_full(&self) -> bool {
        self.bounds_flight() && self.flight.is_enough()
    }

    fn bounds_flight(&self) -> bool {
        self.tunables.latency_target != LatencyTarget::Off && !self.device.rotational
    }

    /// Background class that is next while the promise counts: they take turns, on a rotational device long ones, because between two
    /// sequential streams it would seek for each I/O.
    fn background_turn(&self, room: Room) -> Option<Class> {
        let free = |class: Class| {
            let index = class as usize;
            class.is_background() && !self.order[index].is_empty() && self.active_of[index] < self.tunables.limits(class).max
        };
        let (holder, left) = self.turn;
        let goes_on = left > TURN_EARLY_IOS || left > 0 && !self.away;
        if goes_on && room != Room::Starving && free(holder) {
            return Some(holder);
        }
        (1..=CLASSES).map(|step| Class::ALL[(holder as usize + step) % CLASSES]).find(|class| free(*class))
    }

    /// OpenZFS's throttle of non-interactive classes (`vdev_queue_class_min_active`, `vdev_queue_class_max_active`).
    fn credited(&self, class: Class, limits: ActiveLimits) -> ActiveLimits {
        if class.is_interactive() {
            return limits;
        }
        let ActiveLimits { min, max } = limits;
        if self.interactive_active > 0 {
            let most = self.credit.min(min);
            return ActiveLimits { min: most, max: most };
        }
        let max = if self.credit < self.tunables.nia_delay { min.max(1).min(max) } else { max };
        ActiveLimits { min, max }
    }

    fn turn_ios(&self) -> u32 {
        if self.device.rotational { TURN_IOS } else { 1 }
    }

    fn issue(&mut self, parts: Vec<(IoId, Io)>, arrival: Arrival, now_ns: u64) -> Issue {
        let (first, last) = (parts[0].1, parts[parts.len() - 1].1);
        let (class, kind, offset) = (first.class, first.kind, first.offset);
        let size_bytes = last.end() - offset;
        let needless = parts.len() == 1 && first.optional;
        let part = |(id, io): &(IoId, Io)| Part { id: *id, offset: io.offset, size_bytes: io.size_bytes, optional: io.optional };
        self.next_issue += 1;
        let id = IssueId(self.next_issue);
        let queued_ns = now_ns.saturating_sub(arrival.at_ns);
        let issue = Issue { id, class, kind, offset, size_bytes, queued_ns, parts: parts.iter().map(part).collect(), needless };
        if needless {
            return issue;
        }
        self.active_of[class as usize] += 1;
        let counts = class.is_background() && kind.merges();
        let delivered_before = if counts { self.flight.launched(size_bytes) } else { 0 };
        self.away = !class.is_background();
        if class.is_background() {
            self.background_active += 1;
            self.background_issued += 1;
            self.roamer.goes_on();
            let goes_on = offset.abs_diff(self.background_ends[class as usize]) <= STREAM_GAP_BYTES;
            self.scattered = if goes_on { self.scattered.saturating_sub(1) } else { (self.scattered + 1).min(SCATTERED_MOST) };
            self.background_ends[class as usize] = last.end();
            self.promise.background_issued(now_ns);
            let left = if self.turn.0 == class && self.turn.1 > 0 { self.turn.1 } else { self.turn_ios() };
            self.turn = (class, left - 1);
        }
        if class.is_interactive() {
            self.interactive_active += 1;
            if self.interactive_active == 1 {
                self.credit = 1;
            }
        } else if self.interactive_active > 0 {
            self.credit = self.credit.saturating_sub(1);
        }
        self.last_offset = last.end();
        let parts = issue.parts.len() as u32;
        let active = Active { class, kind, offset, size_bytes, parts, issued_ns: now_ns, arrival, delivered_before, is_seen: true };
        self.active.insert(id, active);
        issue
    }
}
