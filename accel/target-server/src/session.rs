//! A session: a host's buffers, stores and operations, over any number of connections, one at a time.
//!
//! ```text
//! Execute of a new op id ──► running ──report──► answered (kept, sent) ──floor of a later frame above it──► forgotten
//! Execute of a running one: nothing · of an answered one: the answer again · of a forgotten one: nothing
//! ```

use crate::graph::{Answer, Built, Forms, build};
use crate::lease::{Lease, LeasedStore};
use crate::outlet::{Outgoing, Outlet, Room};
use crate::setup::{Stores, TargetSetup};
use crate::stats::Counters;
use abd::Abd;
use dpusm::{Buffer, Device, OpError, Report, Store, StoreTarget};
use exec::{Exec, Mutex, TaskClass};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use target_wire::{BufferRef, Frame, Header, Kind, OpenStore, WireCompletion, WireOp, WireProgram};

/// Most operations that are running, or whose answers are kept.
const OPERATIONS_MAX: usize = 4096;
/// Time that a program may take here, in nanoseconds: the host's deadline ends it for the host.
const DEADLINE_NS: u64 = 3_600_000_000_000;

/// Act of a host that no host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// An operation that runs, or ran.
#[derive(Default)]
struct Operation {
    answer: Option<Answer>,
    /// Bytes that its answer may have.
    room_bytes: u64,
    /// Place at which the host wants their first sending.
    room: Option<Room>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) buffers: BTreeMap<u64, Buffer>,
    pub(crate) stores: BTreeMap<u64, Store>,
    buffer_bytes: u64,
    room_bytes: u64,
    operations: BTreeMap<u64, Operation>,
    floor: u64,
    outlet: Option<Arc<Outlet>>,
    has_ended: bool,
}

/// Parts that a session is made of: its names, its lease, and what its target gives it.
pub(crate) struct Parts<'a> {
    pub(crate) number: u64,
    pub(crate) epoch: u64,
    pub(crate) lease: Arc<Lease>,
    pub(crate) exec: Exec,
    pub(crate) device: Device,
    pub(crate) stores: Arc<dyn Stores>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) setup: &'a TargetSetup,
}

/// See the module.
pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) epoch: u64,
    pub(crate) lease: Arc<Lease>,
    exec: Exec,
    device: Device,
    stores: Arc<dyn Stores>,
    counters: Arc<Counters>,
    memory_bytes_max: u64,
    submits_in_jobs: bool,
    state: Mutex<State>,
}

impl Session {
    pub(crate) fn new(parts: Parts) -> Session {
        let Parts { number, epoch, lease, exec, device, stores, counters, setup } = parts;
        Session {
            number,
            epoch,
            lease,
            exec,
            device,
            stores,
            counters,
            memory_bytes_max: setup.memory_bytes_max,
            submits_in_jobs: setup.submits_in_jobs,
            state: Mutex::default(),
        }
    }

    /// From now on answers go out here; another connection of the session ends.
    pub(crate) fn attach(&self, outlet: &Arc<Outlet>) {
        let mut state = self.state.lock();
        let old = if state.has_ended { Some(outlet.clone()) } else { state.outlet.replace(outlet.clone()) };
        drop(state);
        old.into_iter().for_each(|old| old.cut());
    }

    /// The connection has ended.
    pub(crate) fn detach(&self, outlet: &Arc<Outlet>) {
        let mut state = self.state.lock();
        if state.outlet.as_ref().is_some_and(|own| Arc::ptr_eq(own, outlet)) {
            state.outlet = None;
        }
    }

    /// Breaks its connection.
    pub(crate) fn disconnect(&self) {
        let outlet = self.state.lock().outlet.take();
        outlet.into_iter().for_each(|outlet| outlet.cut());
    }

    /// Frees all that it has. What runs goes on to its end, but writes nothing more.
    pub(crate) fn end(&self) {
        self.lease.end();
        let left = std::mem::replace(&mut *self.state.lock(), State { has_ended: true, ..State::default() });
        if let Some(outlet) = &left.outlet {
            outlet.close();
        }
        drop(left);
    }

    /// Number and bytes of its buffers.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.buffers.len() as u64, state.buffer_bytes)
    }

    /// Asks for an operation again.
    pub(crate) fn note_damaged(&self, outlet: &Outlet, op: u64) {
        self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        let header = Header { kind: Kind::Damaged, epoch: self.epoch, op, floor: 0 };
        outlet.send(Outgoing::message(header, Vec::new()));
    }

    fn send(&self, state: &State, op: u64, answer: &Answer, room: Option<Room>) {
        if let Some(outlet) = &state.outlet {
            let header = Header { kind: Kind::Completion, epoch: self.epoch, op, floor: 0 };
            let room = room.filter(|room| outlet.has(room));
            outlet.send(Outgoing { header, message: answer.message.clone(), payload: answer.payload.clone(), room });
        }
    }

    /// Carries an *Execute* out, unless it was before. Its bytes may go into `room` once: an answer that is sent again has them.
    pub(crate) fn execute(self: &Arc<Self>, frame: Frame, room: Option<Room>) -> Result<(), Violation> {
        let op = frame.header.op;
        let program = WireProgram::decode(&frame.message).map_err(|_| Violation)?;
        if !self.begin(&frame.header, &program, room)? {
            return Ok(());
        }
        self.counters.executed.fetch_add(1, Ordering::Relaxed);
        let opens: Vec<Result<(), OpError>> = program.opens.iter().map(|open| self.open(open)).collect();
        let forms = Forms::of(&program.ops);
        let graph = match self.prepare(op, &program, &frame.payload) {
            Ok(built) => built.graph,
            Err(error) => {
                self.answer(op, &forms.refused(opens, None, error), Abd::default());
                return Ok(());
            }
        };
        if graph.is_empty() {
            self.answer(op, &WireCompletion { opens, results: Vec::new() }, Abd::default());
            return Ok(());
        }
        let (own, own_opens, own_forms) = (self.clone(), opens.clone(), Forms::of(&program.ops));
        let writes = program.ops.iter().any(|op| matches!(op, WireOp::Store { .. } | WireOp::Flush { .. }));
        let done = move |report: Report| {
            let straggler = report.straggler().filter(|_| writes);
            let (completion, payload) = own_forms.completion(own_opens, report);
            let answer = move || own.answer(op, &completion, payload);
            match straggler {
                // The host takes an answer to mean that nothing of it is written any more.
                Some(straggler) => straggler.then(Box::new(answer)),
                None => answer(),
            }
        };
        let own = self.clone();
        let submit = move || {
            if let Err(refused) = own.device.submit(graph, DEADLINE_NS, done) {
                own.answer(op, &forms.refused(opens, refused.node, refused.error), Abd::default());
            }
        };
        if self.submits_in_jobs {
            self.exec.spawn(TaskClass::Write, Box::new(submit));
        } else {
            submit();
        }
        Ok(())
    }

    /// Takes an operation in, with what it frees; false when it came before.
    fn begin(&self, header: &Header, program: &WireProgram, room: Option<Room>) -> Result<bool, Violation> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(Violation);
        }
        let forgotten = state.forget_below(header.floor);
        let known = header.op < state.floor || state.operations.contains_key(&header.op);
        if known {
            self.counters.repeated.fetch_add(1, Ordering::Relaxed);
            if let Some(answer) = state.operations.get(&header.op).and_then(|operation| operation.answer.as_ref()) {
                self.send(&state, header.op, answer, None);
            }
            return Ok(false);
        }
        if state.operations.len() >= OPERATIONS_MAX {
            return Err(Violation);
        }
        state.operations.insert(header.op, Operation { room, ..Operation::default() });
        let freed: Vec<Buffer> = program.frees.iter().filter_map(|number| state.buffers.remove(number)).collect();
        state.buffer_bytes -= freed.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        let closed: Vec<Store> = program.closes.iter().filter_map(|number| state.stores.remove(number)).collect();
        drop(state);
        drop((forgotten, freed, closed));
        Ok(true)
    }

    fn open(&self, wanted: &OpenStore) -> Result<(), OpError> {
        let inner = self.stores.open(wanted.kind, &wanted.path).map_err(OpError::Io)?;
        let host = Arc::new(LeasedStore { exec: self.exec.clone(), lease: self.lease.clone(), inner });
        let store = self.device.open(&StoreTarget { kind: wanted.kind, path: wanted.path.clone(), host })?;
        let mut state = self.state.lock();
        let old = if state.has_ended { Some(store) } else { state.stores.insert(wanted.number, store) };
        drop(state);
        drop(old);
        Ok(())
    }

    /// Makes the buffers that a program needs, and its graph.
    fn prepare(&self, op: u64, program: &WireProgram, payload: &Abd) -> Result<Built, OpError> {
        let mut state = self.state.lock();
        for wanted in &program.buffers {
            self.make(&mut state, wanted)?;
        }
        let room_bytes_max = self.memory_bytes_max.saturating_sub(state.room_bytes);
        let built = build(&state, &program.ops, payload, room_bytes_max)?;
        state.room_bytes += built.room_bytes;
        if let Some(operation) = state.operations.get_mut(&op) {
            operation.room_bytes = built.room_bytes;
        }
        Ok(built)
    }

    fn make(&self, state: &mut State, wanted: &BufferRef) -> Result<(), OpError> {
        let bytes = usize::try_from(wanted.bytes).map_err(|_| OpError::NoMemory)?;
        if let Some(there) = state.buffers.get(&wanted.number) {
            return if there.len() == bytes { Ok(()) } else { Err(OpError::Invalid) };
        }
        let after = state.buffer_bytes.checked_add(wanted.bytes).filter(|after| *after <= self.memory_bytes_max);
        let after = after.ok_or(OpError::NoMemory)?;
        let buffer = self.device.alloc(bytes)?;
        state.buffers.insert(wanted.number, buffer);
        state.buffer_bytes = after;
        Ok(())
    }

    /// Keeps an answer, and sends it if there is a connection.
    fn answer(&self, op: u64, completion: &WireCompletion, payload: Abd) {
        let answer = Answer::of(completion, payload);
        let mut state = self.state.lock();
        if let Some(operation) = state.operations.get_mut(&op) {
            operation.answer = Some(answer.clone());
            let room = operation.room.take();
            self.send(&state, op, &answer, room);
        }
    }
}

impl State {
    /// Lets go of the answers that the host has.
    fn forget_below(&mut self, floor: u64) -> BTreeMap<u64, Operation> {
        if floor <= self.floor {
            return BTreeMap::new();
        }
        self.floor = floor;
        let kept = self.operations.split_off(&floor);
        let forgotten = std::mem::replace(&mut self.operations, kept);
        self.room_bytes -= forgotten.values().map(|operation| operation.room_bytes).sum::<u64>();
        forgotten
    }
}
