//! What the provider's callers and the threads of its link share: operations on their way, numbers of buffers, what is free again.
//!
//! ```text
//! submit ──► unsent ──writer──► sent ──completion──► gone         sent ──damaged, connection lost──► unsent, same number
//! given up by its user before it is sent (again): it becomes a question without operations, so that what it frees still arrives; one that was
//! sent, and may be writing to disks, ends with the answer
//! slots in shared memory: taken with the first sending, had until the answer is taken; sent again: everything in the frame
//! nobody can be reached where the target was: all ends with Down but what was sent and may be writing to disks, and so does what comes
//! lease over, session refused, closed: everything ends with Down
//! ```

use crate::encode::{Encoded, RemoteBuffer, RemoteStore, all, encode};
use crate::options::TargetOptions;
use crate::slots::{Run, Slots};
use crate::stats::{Counters, add};
use abd::Abd;
use dpusm::{MemoryStats, Op, OpError, Program, StoreTarget};
use exec::{Completer, Condvar, Exec, Mutex, completion};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use target_wire::{Header, Kind, OpenStore, Place, Welcome, WireProgram};

/// Freed bytes and buffers that are told even when there is nothing else to say.
const FREED_BYTES_MAX: u64 = 64 << 20;
const FREED_MAX: usize = 4096;

/// Work of an operation.
pub(crate) enum Work {
    /// A program of a user.
    Program(Program),
    /// A store to open.
    Open(OpenStore, Completer<Result<(), OpError>>),
    /// Nothing but a sign of life, and what is free.
    Renew,
}

struct Pending {
    work: Work,
    since_ns: u64,
    frees: Vec<u64>,
    closes: Vec<u64>,
    was_sent: bool,
    /// Slots that the target may still read and write.
    payload: Option<Run>,
    room: Option<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Up,
    /// No user needs the session any more.
    Closed,
    /// The session is lost.
    Down,
}

struct State {
    phase: Phase,
    next_number: u64,
    next_op: u64,
    pending: BTreeMap<u64, Pending>,
    unsent: BTreeSet<u64>,
    freed: Vec<u64>,
    freed_bytes: u64,
    closed: Vec<u64>,
    memory: MemoryStats,
    /// True when the connection has failed.
    is_broken: bool,
    /// True when there is none, and nobody can be reached where the target was.
    is_away: bool,
    /// Time in ns at which the target may last have renewed the lease, at the latest.
    sent_ns: u64,
    /// Time in ns at which it was last heard.
    heard_ns: u64,
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) exec: Exec,
    pub(crate) options: TargetOptions,
    pub(crate) welcome: Welcome,
    pub(crate) counters: Counters,
    state: Mutex<State>,
    changed: Condvar,
    /// The phase is not `Up` any more. Of its own: what wakes one writer must not wake somebody else instead.
    ended: Condvar,
}

/// A program to send.
pub(crate) struct Outgoing {
    pub(crate) header: Header,
    pub(crate) program: WireProgram,
    pub(crate) payload: Abd,
    /// Place that the payload may be put in instead of into the frame.
    pub(crate) place: Option<Place>,
    /// Place that the payload of the answer may be put in.
    pub(crate) room: Option<Place>,
}

/// Step that the writer does next.
pub(crate) enum Next {
    /// Send this frame.
    Frame(Box<Outgoing>),
    /// The connection is of no use.
    Broken,
    /// Say goodbye.
    Closed,
}

impl Shared {
    pub(crate) fn new(exec: &Exec, options: &TargetOptions, welcome: Welcome) -> Arc<Shared> {
        let now = exec.now_ns();
        let state = State {
            phase: Phase::Up,
            next_number: 1,
            next_op: 1,
            pending: BTreeMap::new(),
            unsent: BTreeSet::new(),
            freed: Vec::new(),
            freed_bytes: 0,
            closed: Vec::new(),
            memory: MemoryStats::default(),
            is_broken: false,
            is_away: false,
            sent_ns: now,
            heard_ns: now,
        };
        let (exec, options, counters) = (exec.clone(), options.clone(), Counters::default());
        Arc::new(Shared { exec, options, welcome, counters, state: Mutex::new(state), changed: Condvar::new(), ended: Condvar::new() })
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state.lock().phase != Phase::Up
    }

    pub(crate) fn memory(&self) -> MemoryStats {
        self.state.lock().memory
    }

    /// A number for a buffer; the target hears of it with the first program.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<RemoteBuffer, OpError> {
        let bytes = bytes as u64;
        let mut state = self.state.lock();
        if !state.is_usable() {
            return Err(OpError::Down);
        }
        let after = state.memory.active.requested_bytes.checked_add(bytes);
        if after.is_none_or(|after| after > self.welcome.memory_bytes_max) {
            return Err(OpError::NoMemory);
        }
        let memory = &mut state.memory;
        for count in [&mut memory.active, &mut memory.total] {
            count.buffers += 1;
            count.requested_bytes += bytes;
            count.actual_bytes += bytes;
        }
        let number = state.take_number();
        Ok(RemoteBuffer { number, bytes })
    }

    pub(crate) fn free(&self, buffer: &RemoteBuffer) {
        let mut state = self.state.lock();
        let active = &mut state.memory.active;
        active.buffers -= 1;
        active.requested_bytes -= buffer.bytes;
        active.actual_bytes -= buffer.bytes;
        if state.phase != Phase::Up {
            return;
        }
        state.freed.push(buffer.number);
        state.freed_bytes += buffer.bytes;
        let is_much = state.is_much_freed();
        drop(state);
        if is_much {
            self.changed.notify_one();
        }
    }

    pub(crate) fn close_store(&self, store: &RemoteStore) {
        self.state.lock().closed.push(store.number);
    }

    /// Queues programs. Those of a provider that is down end at once.
    pub(crate) fn submit(&self, programs: Vec<Program>) {
        let now = self.exec.now_ns();
        let mut state = self.state.lock();
        if !state.is_usable() {
            drop(state);
            return drop(programs);
        }
        for program in programs {
            state.add(Work::Program(program), now);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Has a store opened, and waits for the answer.
    pub(crate) fn open(&self, target: &StoreTarget) -> Result<RemoteStore, OpError> {
        let (completer, opened) = completion();
        let mut state = self.state.lock();
        if !state.is_usable() {
            return Err(OpError::Down);
        }
        let number = state.take_number();
        state.add(Work::Open(OpenStore { number, kind: target.kind, path: target.path.clone() }, completer), self.exec.now_ns());
        drop(state);
        self.changed.notify_one();
        opened.wait(&self.exec).map(|()| RemoteStore { number })
    }

    /// Next step for the writer of a connection, with its slots: waits for it, keeps the lease, and notices a silent target.
    pub(crate) fn next(&self, slots: Option<&Arc<Slots>>) -> Next {
        let third = self.welcome.lease_ns / 3;
        loop {
            let mut state = self.state.lock();
            let refused = loop {
                if state.phase == Phase::Closed {
                    return Next::Closed;
                }
                if state.is_broken || state.phase == Phase::Down {
                    return Next::Broken;
                }
                if let Some(op) = state.unsent.pop_first() {
                    match state.encode(op) {
                        Some(Ok((program, encoded))) => return self.frame(state, op, program, encoded, slots),
                        Some(Err(refused)) => break refused,
                        None => continue,
                    }
                }
                let now = self.exec.now_ns();
                let due = state.sent_ns.saturating_add(third);
                let is_waiting = !state.pending.is_empty();
                if is_waiting && now.saturating_sub(state.heard_ns) > 2 * third {
                    return Next::Broken;
                }
                if now >= due || state.is_much_freed() {
                    state.add(Work::Renew, now);
                    continue;
                }
                self.changed.wait_for(&mut state, Duration::from_nanos(due - now).max(Duration::from_millis(1)));
            };
            drop(state);
            let (program, error) = refused;
            let results = all(&program, error);
            program.finish(results);
        }
    }

    fn frame(
        &self,
        mut state: exec::MutexGuard<'_, State>,
        op: u64,
        program: WireProgram,
        Encoded { payload, room_bytes, .. }: Encoded,
        slots: Option<&Arc<Slots>>,
    ) -> Next {
        let floor = state.pending.first_key_value().map_or(state.next_op, |(first, _)| *first);
        let now = self.exec.now_ns();
        let (mut place, mut room) = (None, None);
        state.sent_ns = now;
        if let Some(pending) = state.pending.get_mut(&op) {
            if std::mem::replace(&mut pending.was_sent, true) {
                // Its slots stay where they are: the target may be about to answer the first one.
                add(&self.counters.resent, 1);
            } else if let Some(slots) = slots {
                pending.payload = self.take(slots, payload.len() as u64);
                pending.room = self.take(slots, room_bytes);
                place = pending.payload.as_ref().map(Run::place);
                room = pending.room.as_ref().map(Run::place);
            }
            if let Work::Program(program) = &pending.work {
                program.start(now);
            }
        }
        // When nothing was on its way, there was nothing to be heard.
        if state.pending.len() == 1 {
            state.heard_ns = now;
        }
        drop(state);
        let header = Header { kind: Kind::Execute, epoch: self.welcome.epoch, op, floor };
        Next::Frame(Box::new(Outgoing { header, program, payload, place, room }))
    }

    fn take(&self, slots: &Arc<Slots>, bytes: u64) -> Option<Run> {
        if !Slots::is_worth(bytes) {
            return None;
        }
        let run = slots.take(bytes);
        if run.is_none() {
            add(&self.counters.shared_full, 1);
        }
        run
    }

    /// Place in shared memory for the answer to an operation: none when it was answered, or was never given room there.
    pub(crate) fn room(&self, op: u64, slots: &Arc<Slots>) -> Option<Place> {
        let state = self.state.lock();
        state.pending.get(&op)?.room.as_ref().filter(|room| room.is_of(slots)).map(Run::place)
    }

    /// True for an operation that is not answered yet.
    pub(crate) fn is_pending(&self, op: u64) -> bool {
        self.state.lock().pending.contains_key(&op)
    }

    /// Notes that something was heard.
    pub(crate) fn note_heard(&self) {
        self.state.lock().heard_ns = self.exec.now_ns();
    }

    /// Notes that something was sent that may have renewed the lease.
    pub(crate) fn note_sent(&self) {
        self.state.lock().sent_ns = self.exec.now_ns();
    }

    /// Sends an operation again, if it was not answered.
    pub(crate) fn again(&self, op: u64) {
        let mut state = self.state.lock();
        if state.pending.contains_key(&op) {
            state.unsent.insert(op);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The operation that was answered.
    pub(crate) fn answered(&self, op: u64) -> Option<Work> {
        let mut state = self.state.lock();
        state.unsent.remove(&op);
        let pending = state.pending.remove(&op)?;
        add(&self.counters.round_trips, 1);
        Some(pending.work)
    }

    /// Notes that the connection failed.
    pub(crate) fn note_broken(&self) {
        self.state.lock().is_broken = true;
        self.changed.notify_one();
    }

    /// Notes that nobody can be reached where the target was, which is dead or cut off: nobody waits for what it was to compute. What may be
    /// writing to disks is waited for until the end of the lease, so that it does not write after its user did.
    pub(crate) fn note_away(&self) {
        let mut state = self.state.lock();
        state.is_away = true;
        let ended = state.let_go();
        drop(state);
        // Programs that are dropped end with `Down`.
        drop(ended);
    }

    /// There is a new connection: everything that was not answered is sent again.
    pub(crate) fn note_connected(&self) {
        let mut state = self.state.lock();
        (state.is_broken, state.is_away) = (false, false);
        state.unsent = state.pending.keys().copied().collect();
        (state.sent_ns, state.heard_ns) = (self.exec.now_ns(), self.exec.now_ns());
        add(&self.counters.reconnects, 1);
    }

    /// False once no attempt to connect makes sense any more: nobody wants it, or the session's lease is over, with a quarter of it for
    /// what was on its way.
    pub(crate) fn may_reconnect(&self) -> bool {
        let state = self.state.lock();
        self.options.reconnects && state.phase == Phase::Up && self.exec.now_ns() < state.sent_ns.saturating_add(self.lingers_ns())
    }

    /// Nanoseconds after which nothing of the session is written any more, once nothing is sent: its lease, and a quarter for what was on its way.
    pub(crate) fn lingers_ns(&self) -> u64 {
        self.welcome.lease_ns.saturating_add(self.welcome.lease_ns / 4)
    }

    /// The session is lost.
    pub(crate) fn go_down(&self) {
        self.finish(Phase::Down);
    }

    /// Ends the session: nobody needs it any more.
    pub(crate) fn close(&self) {
        self.finish(Phase::Closed);
    }

    /// Waits for the end of the session.
    pub(crate) fn wait_for_end(&self) {
        let mut state = self.state.lock();
        while state.phase == Phase::Up {
            self.ended.wait(&mut state);
        }
    }

    /// True when that is so, or becomes so within `time`.
    pub(crate) fn ended_within(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if state.phase == Phase::Up {
            self.ended.wait_for(&mut state, time);
        }
        state.phase != Phase::Up
    }

    /// Nanoseconds since the oldest operation was begun that is not answered.
    pub(crate) fn owes_ns(&self) -> u64 {
        let now = self.exec.now_ns();
        self.state.lock().pending.first_key_value().map_or(0, |(_, oldest)| now.saturating_sub(oldest.since_ns))
    }

    fn finish(&self, phase: Phase) {
        let mut state = self.state.lock();
        if state.phase != Phase::Up {
            return;
        }
        state.phase = phase;
        state.unsent.clear();
        let left = std::mem::take(&mut state.pending);
        drop(state);
        self.changed.notify_all();
        self.ended.notify_all();
        for pending in left.into_values() {
            // Programs that are dropped end with `Down`.
            if let Work::Open(_, completer) = pending.work {
                completer.complete(Err(OpError::Down));
            }
        }
    }
}

impl State {
    /// False when whatever is asked for ends with `Down`.
    fn is_usable(&self) -> bool {
        self.phase == Phase::Up && !self.is_away
    }

    /// Takes the programs that are not waited for when nobody can be reached: all but those that were sent and write to disks. A sign of life
    /// has the place of each, so that what it frees still arrives.
    fn let_go(&mut self) -> Vec<Program> {
        let mut ended = Vec::new();
        for pending in self.pending.values_mut() {
            let is_free = matches!(&pending.work, Work::Program(program) if !(pending.was_sent && writes(program)));
            if is_free && let Work::Program(program) = std::mem::replace(&mut pending.work, Work::Renew) {
                ended.push(program);
            }
        }
        ended
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn add(&mut self, work: Work, now_ns: u64) {
        let op = self.next_op;
        self.next_op += 1;
        self.pending.insert(
            op,
            Pending { work, since_ns: now_ns, frees: Vec::new(), closes: Vec::new(), was_sent: false, payload: None, room: None },
        );
        self.unsent.insert(op);
    }

    fn is_much_freed(&self) -> bool {
        self.freed_bytes > FREED_BYTES_MAX || self.freed.len() > FREED_MAX
    }

    /// An operation as it is sent; a program that can't be, to be ended with the reason, becomes a sign of life that goes next, or is asked after
    /// where it was sent before and may be writing. None when it was answered meanwhile.
    fn encode(&mut self, op: u64) -> Option<Result<(WireProgram, Encoded), (Program, OpError)>> {
        let pending = self.pending.get_mut(&op)?;
        let (opens, mut encoded) = match &pending.work {
            Work::Program(program) => match encode(program) {
                Ok(encoded) => (Vec::new(), encoded),
                // The target may have had it: that it is done with it only the answer says.
                Err(_) if pending.was_sent && writes(program) => (Vec::new(), Encoded::default()),
                Err(error) => {
                    self.unsent.insert(op);
                    let Work::Program(program) = std::mem::replace(&mut pending.work, Work::Renew) else { return None };
                    return Some(Err((program, error)));
                }
            },
            Work::Open(open, _) => (vec![open.clone()], Encoded::default()),
            Work::Renew => (Vec::new(), Encoded::default()),
        };
        if !pending.was_sent {
            pending.frees = std::mem::take(&mut self.freed);
            pending.closes = std::mem::take(&mut self.closed);
            self.freed_bytes = 0;
        }
        let (frees, closes) = (pending.frees.clone(), pending.closes.clone());
        let (buffers, ops) = (std::mem::take(&mut encoded.buffers), std::mem::take(&mut encoded.ops));
        Some(Ok((WireProgram { frees, closes, opens, buffers, ops }, encoded)))
    }
}

/// True for a program that puts something on disks.
fn writes(program: &Program) -> bool {
    program.nodes().iter().any(|op| matches!(op, Op::Store { .. } | Op::Flush { .. }))
}
