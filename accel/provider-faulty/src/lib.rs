//! A provider that misbehaves on command, around any other: for proving that no failure of a provider costs data.
//!
//! Operations are counted, allocations too, in the order in which they begin; a [`Fault`] strikes at one of them, or at every one
//! of a kind from there on. Each node of a program goes to the inner provider as a program of its own, so a fault strikes between
//! two nodes as it would in a device.
#![forbid(unsafe_code)]

use abd::Abd;
use dpusm::{
    Capabilities, DeviceHandle, Graph, MemoryStats, NodeResult, Onward, Op, OpError, OpKind, Outcome, Program, Provider, Run, StoreTarget,
    View,
};
use exec::{Exec, Mutex, TaskClass};
use std::sync::Arc;

/// Way in which an operation goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The operation fails, and did nothing.
    Fail(OpError),
    /// The operation is carried out, says so, and wrote wrong bytes or a wrong answer.
    Lie,
    /// The operation is carried out, and changed bytes that it was only to read.
    Spoil,
    /// The operation gives less than it should: too small a length, fewer bytes.
    Short,
    /// The operation never answers (until the provider is shut down).
    Stall,
    /// The operation answers this many nanoseconds late.
    Slow(u64),
    /// The operation answers this many nanoseconds late, and a store is carried out then whether or not somebody still waits for it, of wrong bytes.
    Stray(u64),
    /// The provider dies: this operation and all after it are lost.
    Die,
}

/// Operations that are struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The one with this number, counted from 0 at the last [`Faulty::inject`].
    At(u64),
    /// Every one from this number on.
    From(u64),
    /// Every one of this kind, from the `skip`th of the kind on.
    Kind {
        /// Kind of the operations.
        kind: OpKind,
        /// Number of the kind that are spared.
        skip: u64,
    },
    /// One in so many of this kind, now and then: the last of each `period`.
    Every {
        /// Kind of the operations.
        kind: OpKind,
        /// Number of the kind of which one is struck (at least one).
        period: u64,
    },
    /// One of this kind.
    KindAt {
        /// Kind of the operation.
        kind: OpKind,
        /// Number of the kind that are before it.
        skip: u64,
    },
}

/// A fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Harm that is done.
    pub harm: Harm,
    /// Operations that it is done to.
    pub when: When,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    counted: u64,
    of_kind: u64,
    struck: u64,
    is_dead: bool,
    /// Programs that never end.
    stalled: Vec<Run>,
}

impl State {
    /// The number, among those of its kind, of one more operation of the kind that is waited for.
    fn next_of_kind(&mut self) -> u64 {
        self.of_kind += 1;
        self.of_kind - 1
    }
}

struct Shared {
    exec: Exec,
    inner: Arc<dyn Provider>,
    state: Mutex<State>,
}

/// See the module.
pub struct Faulty {
    name: String,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faulty({})", self.name)
    }
}

impl Faulty {
    /// A well-behaved provider called `name`, until a fault is injected.
    pub fn new(exec: &Exec, name: &str, inner: Arc<dyn Provider>) -> Arc<Faulty> {
        let shared = Shared { exec: exec.clone(), inner, state: Mutex::default() };
        Arc::new(Faulty { name: name.to_string(), shared: Arc::new(shared) })
    }

    /// Counts operations anew from now on, and has `fault` strike; None: none does. A dead provider lives again.
    pub fn inject(&self, fault: Option<Fault>) {
        let mut state = self.shared.state.lock();
        (state.fault, state.counted, state.of_kind, state.struck, state.is_dead) = (fault, 0, 0, 0, false);
    }

    /// Number of operations since the last [`Faulty::inject`].
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().counted
    }

    /// Number of operations that were struck since then.
    pub fn struck(&self) -> u64 {
        self.shared.state.lock().struck
    }

    /// Lets what stalls go on, as lost work.
    pub fn release_stalled(&self) {
        let stalled = std::mem::take(&mut self.shared.state.lock().stalled);
        drop(stalled);
    }
}

impl Shared {
    /// Counts an operation, and returns what happens to it.
    fn count(&self, kind: OpKind) -> Option<Harm> {
        let mut state = self.state.lock();
        if state.is_dead {
            return Some(Harm::Die);
        }
        let number = state.counted;
        state.counted += 1;
        let fault = state.fault?;
        let is_struck = match fault.when {
            When::At(at) => number == at,
            When::From(from) => number >= from,
            When::Kind { kind: wanted, skip } => kind == wanted && state.next_of_kind() >= skip,
            When::Every { kind: wanted, period } => kind == wanted && (state.next_of_kind() + 1).is_multiple_of(period.max(1)),
            When::KindAt { kind: wanted, skip } => kind == wanted && state.next_of_kind() == skip,
        };
        if !is_struck {
            return None;
        }
        state.struck += 1;
        state.is_dead |= fault.harm == Harm::Die;
        Some(fault.harm)
    }
}

/// Carries a program on from where it is, as a job.
fn drive(shared: Arc<Shared>, mut run: Run) {
    let Some(node) = run.next_node() else { return run.finish() };
    match shared.count(run.program().nodes()[node].kind()) {
        None => perform(shared, run, node, Spoilt::Nothing),
        Some(Harm::Spoil) => perform(shared, run, node, Spoilt::Source),
        Some(Harm::Fail(error)) => {
            run.record(Err(error).into());
            drive(shared, run);
        }
        Some(harm @ (Harm::Lie | Harm::Short)) => lie(shared, run, node, harm == Harm::Short),
        Some(Harm::Stall) => shared.state.lock().stalled.push(run),
        Some(Harm::Slow(delay_ns)) => {
            let exec = shared.exec.clone();
            exec.spawn_after(delay_ns, TaskClass::Write, Box::new(move || perform(shared, run, node, Spoilt::Nothing)));
        }
        Some(Harm::Stray(delay_ns)) => {
            let exec = shared.exec.clone();
            exec.spawn_after(delay_ns, TaskClass::Write, Box::new(move || stray(shared, run, node)));
        }
        // The program is dropped unfinished.
        Some(Harm::Die) => {}
    }
}

/// Bytes of an operation that are overwritten after it.
#[derive(Clone, Copy)]
enum Spoilt {
    Nothing,
    /// Bytes that it wrote.
    Target,
    /// Bytes that it only read.
    Source,
}

/// Has a node carried out, and some of its bytes overwritten afterwards.
fn perform(shared: Arc<Shared>, run: Run, node: usize, spoilt: Spoilt) {
    let slot: Arc<Mutex<Option<Run>>> = Arc::new(Mutex::new(Some(run)));
    let (own, next) = (slot.clone(), shared.clone());
    let done = Box::new(move |mut results: Vec<NodeResult>| {
        let Some(mut run) = own.lock().take() else { return };
        let result = results.pop().unwrap_or_else(|| Err(OpError::Down).into());
        let spoiled = match spoilt {
            Spoilt::Nothing => None,
            Spoilt::Target => target_of(&run, node, &result),
            Spoilt::Source => source_of(&run, node),
        };
        run.record(result);
        match spoiled {
            Some(view) => overwrite(next, run, &view),
            None => carry_on(next, run),
        }
    });
    let single = {
        let held = slot.lock();
        let Some(run) = held.as_ref() else { return };
        run.program().single(node, run.results(), done)
    };
    match single {
        Ok(program) => {
            let refused = shared.inner.submit(vec![program]);
            drop(refused);
        }
        Err(error) => {
            let Some(mut run) = slot.lock().take() else { return };
            run.record(Err(error).into());
            carry_on(shared, run);
        }
    }
}

fn carry_on(shared: Arc<Shared>, run: Run) {
    let exec = shared.exec.clone();
    exec.spawn(TaskClass::Write, Box::new(move || drive(shared, run)));
}

/// Part of a buffer to which a node wrote its result, if it wrote any.
fn target_of(run: &Run, node: usize, result: &NodeResult) -> Option<View> {
    let view = match &run.program().nodes()[node] {
        Op::CopyIn { target } | Op::Decompress { target, .. } | Op::Load { target, .. } => target.clone(),
        Op::Compress { target, .. } => match result.outcome {
            Ok(Outcome::Compressed(Some(length))) => target.slice(0..length).ok()?,
            _ => return None,
        },
        Op::ZeroFill { target } => run.program().resolve(target, run.results()).ok()?,
        Op::RaidGenerate { row } => row.parity().last()?.clone(),
        Op::RaidReconstruct { row, targets } => row.columns().get(*targets.last()?)?.clone(),
        _ => return None,
    };
    (!view.is_empty()).then_some(view)
}

/// Part of a buffer that a node only reads, if there is one.
fn source_of(run: &Run, node: usize) -> Option<View> {
    let program = run.program();
    let view = match &program.nodes()[node] {
        Op::CopyOut { source } | Op::ZeroTest { source } | Op::Checksum { source, .. } | Op::Store { source, .. } => {
            program.resolve(source, run.results()).ok()?
        }
        Op::Compress { source, .. } | Op::Decompress { source, .. } | Op::Compare { left: source, .. } => source.clone(),
        Op::RaidGenerate { row } => row.data().iter().find(|column| !column.is_empty())?.clone(),
        Op::RaidReconstruct { row, targets } => {
            let is_read = |(index, column): &(usize, &View)| !targets.contains(index) && !column.is_empty();
            row.columns().iter().enumerate().find(is_read)?.1.clone()
        }
        _ => return None,
    };
    (!view.is_empty()).then_some(view)
}

/// Writes garbage over the last bytes of a part of a buffer.
fn overwrite(shared: Arc<Shared>, run: Run, view: &View) {
    let count = view.len().min(16);
    let Ok(last) = view.slice(view.len() - count..view.len()) else { return carry_on(shared, run) };
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(&[0xA5; 16][..count]), &last);
    let next = shared.clone();
    let program = Program::new(graph, Box::new(move |_| carry_on(next, run)));
    let refused = shared.inner.submit(vec![program]);
    drop(refused);
}

/// Carries out a store for which nobody may wait any more, of wrong bytes.
fn stray(shared: Arc<Shared>, mut run: Run, node: usize) {
    let program = run.program();
    let Op::Store { source, store, offset } = &program.nodes()[node] else { return perform(shared, run, node, Spoilt::Nothing) };
    let source = match program.resolve(source, run.results()) {
        Ok(source) => source,
        Err(error) => {
            run.record(Err(error).into());
            return carry_on(shared, run);
        }
    };
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(&vec![0xA5; source.len()]), &source);
    graph.store(&source, store, *offset);
    let (next, stored) = (shared.clone(), source.len() as u64);
    let done = move |results: Vec<NodeResult>| {
        let outcome = results.into_iter().try_for_each(|result| result.outcome.map(drop));
        run.record(outcome.map(|()| Outcome::Stored(stored)).into());
        carry_on(next, run);
    };
    let refused = shared.inner.submit(vec![Program::new(graph, Box::new(done))]);
    drop(refused);
}

/// A wrong answer, or a right one over wrong bytes.
fn lie(shared: Arc<Shared>, mut run: Run, node: usize, is_short: bool) {
    let program = run.program();
    let answer = match &program.nodes()[node] {
        Op::Checksum { .. } => Ok(Outcome::Checksum([0x5EED; 4])),
        Op::ZeroTest { .. } => Ok(Outcome::Flag(true)),
        Op::Compare { .. } => Ok(Outcome::Flag(false)),
        Op::Compress { .. } if is_short => Ok(Outcome::Compressed(Some(0))),
        Op::Store { .. } if is_short => Ok(Outcome::Stored(1)),
        // A write that never happened: only a checksum finds it when it is read.
        Op::Store { .. } => {
            let stored = match &program.nodes()[node] {
                Op::Store { source, .. } => program.resolve(source, run.results()).map(|view| view.len() as u64),
                _ => Err(OpError::Invalid),
            };
            stored.map(Outcome::Stored)
        }
        Op::Flush { .. } => Ok(Outcome::Done),
        Op::CopyOut { .. } => program.take_target(node).map(|mut parts| {
            parts.iter_mut().for_each(|part| part.fill(0xA5));
            let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
            Outcome::Copied { parts, bytes: if is_short { bytes - 1 } else { bytes } }
        }),
        _ => return perform(shared, run, node, Spoilt::Target),
    };
    run.record(answer.into());
    carry_on(shared, run);
}

impl Provider for Faulty {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        self.shared.inner.version()
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.inner.capabilities()
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        match self.shared.count(OpKind::Alloc) {
            Some(Harm::Fail(error)) => Err(error),
            Some(Harm::Die) => Err(OpError::Down),
            // Allocations have no answer to lie about, and do not wait.
            Some(Harm::Short | Harm::Spoil | Harm::Lie | Harm::Stall) => Err(OpError::NoMemory),
            Some(Harm::Slow(_) | Harm::Stray(_)) | None => self.shared.inner.alloc(bytes),
        }
    }

    fn free(&self, handle: DeviceHandle) {
        self.shared.inner.free(handle);
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        for program in programs {
            program.start(self.shared.exec.now_ns());
            let (shared, run) = (self.shared.clone(), Run::new(program));
            self.shared.exec.spawn(TaskClass::Write, Box::new(move || drive(shared, run)));
        }
        Ok(())
    }

    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.shared.inner.open(target)
    }

    fn close(&self, handle: DeviceHandle) {
        self.shared.inner.close(handle);
    }

    fn memory(&self) -> Option<MemoryStats> {
        self.shared.inner.memory()
    }

    fn lingers_ns(&self) -> u64 {
        self.shared.inner.lingers_ns()
    }

    fn when_gone(&self, onward: Onward) {
        self.shared.inner.when_gone(onward);
    }

    fn shut_down(&self) {
        self.release_stalled();
        self.shared.inner.shut_down();
    }
}
