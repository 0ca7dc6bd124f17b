//! A graph on its way through a provider: what is to do, the host memory that goes with it, and where the results go.
//!
//! A provider gets [`Program`]s by value and owes each one [`Program::finish`]; one that it drops instead counts as lost, so a
//! completion can be late but never missing. A program keeps its operands alive until then. When its user gives up
//! (time-out, cancellation, death of the provider), the host memory that nobody copies at that moment is let go of at once, and
//! what the provider says later is ignored. [`Run`] goes through a program in order and skips what cannot be done.

use crate::graph::{Graph, Op, Operand, Outcome, Payload};
use crate::{OpError, View};
use abd::{Abd, AbdPart};
use exec::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Answer of a provider about one node.
#[derive(Debug)]
pub struct NodeResult {
    /// Outcome of the node.
    pub outcome: Result<Outcome, OpError>,
    /// Time that the device worked on it, in nanoseconds.
    pub device_ns: u64,
}

impl From<Result<Outcome, OpError>> for NodeResult {
    fn from(outcome: Result<Outcome, OpError>) -> NodeResult {
        NodeResult { outcome, device_ns: 0 }
    }
}

/// Takes the results of a program, one per node.
pub type Done = Box<dyn FnOnce(Vec<NodeResult>) + Send>;

/// State that user and provider see of each other while a program runs.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) payloads: Mutex<Vec<Payload>>,
    given_up: AtomicBool,
    started_ns: AtomicU64,
    /// The node at work, or [`NOWHERE`].
    current: AtomicU32,
}

const NOWHERE: u32 = u32::MAX;

impl Watch {
    pub(crate) fn new(payloads: Vec<Payload>) -> Watch {
        let payloads = Mutex::new(payloads);
        Watch { payloads, given_up: AtomicBool::new(false), started_ns: AtomicU64::new(0), current: AtomicU32::new(NOWHERE) }
    }

    /// Takes the host memory of the nodes in, unless the user gave up already.
    pub(crate) fn fill(&self, payloads: Vec<Payload>) {
        let mut own = self.payloads.lock();
        if !self.given_up.load(Ordering::Acquire) {
            *own = payloads;
        }
    }

    /// The user waits no longer: host memory is let go of.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.let_go();
    }

    /// Drops the host memory that is left.
    pub(crate) fn let_go(&self) {
        let payloads = std::mem::take(&mut *self.payloads.lock());
        drop(payloads);
    }

    /// Time in ns at which the provider began, 0 if it has not.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    /// The node at work, as far as the provider told.
    pub(crate) fn current(&self) -> Option<usize> {
        let current = self.current.load(Ordering::Relaxed);
        (current != NOWHERE).then_some(current as usize)
    }
}

/// A graph that a provider is to carry out.
pub struct Program {
    nodes: Vec<Op>,
    watch: Arc<Watch>,
    /// Number of the first node in the graph that was submitted.
    first: usize,
    done: Option<Done>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Program {
    /// A program of a provider's own, for what it asks of another one below it. Nothing is checked.
    pub fn new(graph: Graph, done: Done) -> Program {
        Program { nodes: graph.nodes, watch: Arc::new(Watch::new(graph.payloads)), first: 0, done: Some(done) }
    }

    pub(crate) fn watched(nodes: Vec<Op>, watch: Arc<Watch>, done: Done) -> Program {
        Program { nodes, watch, first: 0, done: Some(done) }
    }

    /// The operations in order.
    pub fn nodes(&self) -> &[Op] {
        &self.nodes
    }

    /// True when nobody waits for the results any more: what is left to do may be left out.
    pub fn is_given_up(&self) -> bool {
        self.watch.given_up.load(Ordering::Acquire)
    }

    /// Says that the provider begins to work, for the queue time.
    pub fn start(&self, now_ns: u64) {
        let _ = self.watch.started_ns.compare_exchange(0, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Says that a node is at work: it is to blame when the time runs out.
    pub fn begin(&self, node: usize) {
        self.watch.current.store((self.first + node) as u32, Ordering::Relaxed);
    }

    /// The host bytes of a [`Op::CopyIn`]. Hold them no longer than the copy takes.
    ///
    /// # Errors
    /// `Cancelled` when the user gave up; `Invalid` when the node has none.
    pub fn source(&self, node: usize) -> Result<Abd, OpError> {
        let payloads = self.watch.payloads.lock();
        match payloads.get(self.first + node) {
            Some(Payload::Source(source)) => Ok(source.clone()),
            _ if self.is_given_up() => Err(OpError::Cancelled),
            _ => Err(OpError::Invalid),
        }
    }

    /// The host memory of a [`Op::CopyOut`], which goes back in [`Outcome::Copied`].
    ///
    /// # Errors
    /// `Cancelled` when the user gave up; `Invalid` when the node has none, or it was taken.
    pub fn take_target(&self, node: usize) -> Result<Vec<AbdPart>, OpError> {
        let mut payloads = self.watch.payloads.lock();
        match payloads.get_mut(self.first + node).map(std::mem::take) {
            Some(Payload::Target(parts)) => Ok(parts),
            _ if self.is_given_up() => Err(OpError::Cancelled),
            _ => Err(OpError::Invalid),
        }
    }

    /// Puts host memory back that was taken, because the program is refused.
    pub fn restore_target(&self, node: usize, parts: Vec<AbdPart>) {
        if let Some(payload) = self.watch.payloads.lock().get_mut(self.first + node) {
            *payload = Payload::Target(parts);
        }
    }

    /// The bytes that an operand stands for, given the results of the nodes before.
    ///
    /// # Errors
    /// `Invalid` when it names no compression; `Skipped` when that one failed; `BadResult` when its length cannot be.
    pub fn resolve(&self, operand: &Operand, results: &[NodeResult]) -> Result<View, OpError> {
        let (node, is_padding) = match operand {
            Operand::View(view) => return Ok(view.clone()),
            Operand::Result(node) => (node.0 as usize, false),
            Operand::Padding(node) => (node.0 as usize, true),
        };
        let Some(Op::Compress { source, target, how }) = self.nodes.get(node) else { return Err(OpError::Invalid) };
        match results.get(node).map(|result| &result.outcome) {
            Some(Ok(Outcome::Compressed(Some(length)))) => {
                let stored = how.stored_bytes(*length);
                target.slice(if is_padding { *length..stored } else { 0..stored }).map_err(|_| OpError::BadResult)
            }
            Some(Ok(Outcome::Compressed(None))) if is_padding => target.slice(0..0),
            Some(Ok(Outcome::Compressed(None))) => Ok(source.clone()),
            Some(Err(_)) => Err(OpError::Skipped),
            _ => Err(OpError::Invalid),
        }
    }

    /// One node as a program of its own, with its operands resolved and its host memory; for providers that carry out each
    /// node by another one. `done` gets its single result.
    ///
    /// # Errors
    /// As [`Program::resolve`].
    pub fn single(&self, node: usize, results: &[NodeResult], done: Done) -> Result<Program, OpError> {
        let fixed = |operand: &Operand| self.resolve(operand, results).map(Operand::View);
        let op = match &self.nodes[node] {
            Op::CopyOut { source } => Op::CopyOut { source: fixed(source)? },
            Op::ZeroFill { target } => Op::ZeroFill { target: fixed(target)? },
            Op::ZeroTest { source } => Op::ZeroTest { source: fixed(source)? },
            Op::Checksum { source, kind, order } => Op::Checksum { source: fixed(source)?, kind: *kind, order: *order },
            Op::Store { source, store, offset } => Op::Store { source: fixed(source)?, store: store.clone(), offset: *offset },
            other => other.clone(),
        };
        Ok(Program { nodes: vec![op], watch: self.watch.clone(), first: self.first + node, done: Some(done) })
    }

    /// Delivers the results, one per node, and lets go of the operands.
    pub fn finish(mut self, results: Vec<NodeResult>) {
        let done = self.done.take();
        self.nodes.clear();
        if let Some(done) = done {
            done(results);
        }
    }

    /// Takes the program apart again because nobody took it; nobody is told.
    pub(crate) fn into_graph(mut self) -> Graph {
        self.done = None;
        let payloads = std::mem::take(&mut *self.watch.payloads.lock());
        Graph { nodes: std::mem::take(&mut self.nodes), payloads }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            let results = self.nodes.iter().map(|_| Err(OpError::Down).into()).collect();
            self.nodes.clear();
            done(results);
        }
    }
}

/// A program that is carried out node by node, in order.
#[derive(Debug)]
pub struct Run {
    program: Program,
    results: Vec<NodeResult>,
}

impl Run {
    /// Makes a run of which nothing is done yet.
    pub fn new(program: Program) -> Run {
        let results = Vec::with_capacity(program.nodes.len());
        Run { program, results }
    }

    /// Program that runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Results of the nodes that are done.
    pub fn results(&self) -> &[NodeResult] {
        &self.results
    }

    /// The next node to carry out; those that need a failed one are passed by. None when all are done. A program that was given
    /// up has no next node.
    pub fn next_node(&mut self) -> Option<usize> {
        while self.results.len() < self.program.nodes.len() {
            let node = self.results.len();
            let error = if self.program.is_given_up() {
                OpError::Cancelled
            } else if self.needs_failed(node) {
                OpError::Skipped
            } else {
                self.program.begin(node);
                return Some(node);
            };
            self.record(Err(error).into());
        }
        None
    }

    /// Takes the result of the node that [`Run::next_node`] gave.
    pub fn record(&mut self, result: NodeResult) {
        self.results.push(result);
    }

    /// Delivers all results.
    pub fn finish(self) {
        self.program.finish(self.results);
    }

    fn needs_failed(&self, node: usize) -> bool {
        let failed = self.results.iter().enumerate().filter(|(_, result)| result.outcome.is_err());
        failed.into_iter().any(|(earlier, _)| needs(&self.program.nodes, node, earlier))
    }
}

/// True when `node` cannot be done without the effect of `earlier`.
pub fn needs(nodes: &[Op], node: usize, earlier: usize) -> bool {
    let (later, op) = (&nodes[node], &nodes[earlier]);
    if let (Op::Store { store: written, .. }, Op::Flush { store }) = (op, later) {
        return written.is_same(store);
    }
    if let (Op::Store { store: written, .. }, Op::Load { store, .. }) = (op, later)
        && written.is_same(store)
    {
        return true;
    }
    // What a compression made lies in its source or target, so operands that name it need no rule of their own.
    let written = writes(nodes, op);
    let touched = reads(nodes, later).into_iter().chain(writes(nodes, later));
    touched.into_iter().any(|view| written.iter().any(|other| other.overlaps(&view)))
}

/// The bytes that an operand can stand for at most.
fn reach(nodes: &[Op], operand: &Operand) -> Vec<View> {
    match operand {
        Operand::View(view) => vec![view.clone()],
        Operand::Result(node) | Operand::Padding(node) => match nodes.get(node.0 as usize) {
            Some(Op::Compress { source, target, .. }) => vec![source.clone(), target.clone()],
            _ => Vec::new(),
        },
    }
}

/// Parts of buffers that an operation may write to.
pub(crate) fn writes(nodes: &[Op], op: &Op) -> Vec<View> {
    match op {
        Op::CopyIn { target } | Op::Compress { target, .. } | Op::Decompress { target, .. } | Op::Load { target, .. } => {
            vec![target.clone()]
        }
        // Padding lies in the target of the compression.
        Op::ZeroFill { target: Operand::Padding(node) } => match nodes.get(node.0 as usize) {
            Some(Op::Compress { target, .. }) => vec![target.clone()],
            _ => Vec::new(),
        },
        Op::ZeroFill { target } => reach(nodes, target),
        Op::RaidGenerate { row } => row.parity().to_vec(),
        Op::RaidReconstruct { row, targets } => targets.iter().filter_map(|index| row.columns().get(*index).cloned()).collect(),
        _ => Vec::new(),
    }
}

/// Parts of buffers that an operation may read.
pub(crate) fn reads(nodes: &[Op], op: &Op) -> Vec<View> {
    match op {
        Op::CopyOut { source } | Op::ZeroTest { source } | Op::Checksum { source, .. } | Op::Store { source, .. } => reach(nodes, source),
        Op::Compress { source, .. } | Op::Decompress { source, .. } => vec![source.clone()],
        Op::Compare { left, right } => vec![left.clone(), right.clone()],
        Op::RaidGenerate { row } => row.data().to_vec(),
        Op::RaidReconstruct { row, targets } => {
            row.columns().iter().enumerate().filter(|(index, _)| !targets.contains(index)).map(|(_, column)| column.clone()).collect()
        }
        _ => Vec::new(),
    }
}
