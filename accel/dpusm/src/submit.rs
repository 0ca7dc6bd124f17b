//! From a graph to its report: checks, admission, the ticket that ends exactly once, and what is made of a provider's answers.
//!
//! ```text
//! waiting ──Ticket::settle (the provider finished or dropped the program)──► ended, operands free again
//! waiting ──Ticket::give_up (deadline, cancel, provider down)──► ended, operands abandoned; a later settle counts as late, and ends the straggler
//! waiting ──Ticket::withdraw (the provider did not take the program)──► never was; the graph goes back to its user
//! ```

use crate::check::{self, Expected};
use crate::generation::Generation;
use crate::graph::{Graph, NodeId, Outcome, Report};
use crate::handle::{Memory, Owner};
use crate::program::{NodeResult, Program, Watch, reads, writes};
use crate::stats::Tally;
use crate::straggler::Straggler;
use crate::{OpError, OpKind};
use exec::{Mutex, TaskClass};
use std::sync::{Arc, Weak};

/// Part of a graph's deadline after which a right answer is slow.
const SLOW_PART: u64 = 5;

/// Takes the report of a graph.
pub type ReportFn = Box<dyn FnOnce(Report) + Send>;

/// A graph that was not taken, to be had back.
#[derive(Debug)]
pub struct Refused {
    /// Reason of the refusal.
    pub error: OpError,
    /// Node because of which it was refused, if it was one.
    pub node: Option<NodeId>,
    /// The graph, unchanged.
    pub graph: Graph,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}
impl std::error::Error for Refused {}

/// A graph that was taken on. Dropping it changes nothing.
#[derive(Clone)]
pub struct Submission(Arc<Ticket>);

impl Submission {
    /// Waits no longer: the report comes now, with `Cancelled` for every node, unless it is on its way.
    pub fn cancel(&self) {
        self.0.give_up(OpError::Cancelled);
    }
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Submission({})", self.0.id)
    }
}

/// A graph in flight.
pub(crate) struct Ticket {
    generation: Arc<Generation>,
    id: u64,
    bytes: u64,
    submitted_ns: u64,
    due_ns: u64,
    expected: Vec<Expected>,
    probes: Vec<OpKind>,
    operands: Vec<Weak<Memory>>,
    watch: Arc<Watch>,
    straggler: Straggler,
    done: Mutex<Option<ReportFn>>,
}

/// One graph after its checks.
struct Plan {
    expected: Vec<Expected>,
    kinds: Vec<OpKind>,
    operands: Vec<Weak<Memory>>,
    bytes: u64,
}

fn plan(generation: &Arc<Generation>, graph: &Graph) -> Result<Plan, (OpError, Option<NodeId>)> {
    if graph.nodes.is_empty() {
        return Err((OpError::Invalid, None));
    }
    let owner: Arc<dyn Owner> = generation.clone();
    let mut plan = Plan { expected: Vec::with_capacity(graph.nodes.len()), kinds: Vec::new(), operands: Vec::new(), bytes: 0 };
    for node in 0..graph.nodes.len() {
        let expected = check::node(&owner, &generation.usable, graph, node).map_err(|error| (error, Some(NodeId(node as u32))))?;
        plan.bytes += expected.bytes_max() as u64;
        plan.expected.push(expected);
        let op = &graph.nodes[node];
        if !plan.kinds.contains(&op.kind()) {
            plan.kinds.push(op.kind());
        }
        let touched = reads(&graph.nodes, op).into_iter().chain(writes(&graph.nodes, op));
        plan.operands.extend(touched.map(|view| Arc::downgrade(&view.memory)));
    }
    Ok(plan)
}

/// Submits graphs with one call to the provider; one outcome each, in order.
pub(crate) fn submit(generation: &Arc<Generation>, batch: Vec<(Graph, ReportFn)>, deadline_ns: u64) -> Vec<Result<Submission, Refused>> {
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut programs = Vec::with_capacity(batch.len());
    for (graph, done) in batch {
        match prepare(generation, &graph, deadline_ns, done) {
            Ok(ticket) => {
                ticket.watch.fill(graph.payloads);
                let own = ticket.clone();
                let settle = Box::new(move |results| own.settle(results));
                programs.push(Program::watched(graph.nodes, ticket.watch.clone(), settle));
                outcomes.push(Ok(Submission(ticket)));
            }
            Err((error, node)) => {
                note_refusal(generation, &graph, node, error);
                outcomes.push(Err(Refused { error, node, graph }));
            }
        }
    }
    if programs.is_empty() {
        return outcomes;
    }
    // Those that were not taken are the last ones.
    let refused = generation.provider.submit(programs).err().unwrap_or_default();
    for (program, outcome) in refused.into_iter().rev().zip(outcomes.iter_mut().rev().filter(|outcome| outcome.is_ok())) {
        let Ok(Submission(ticket)) = outcome else { continue };
        if ticket.clone().withdraw() {
            let graph = program.into_graph();
            let error = if generation.is_down() { OpError::Down } else { OpError::Full };
            note_refusal(generation, &graph, None, error);
            *outcome = Err(Refused { error, node: None, graph });
        }
    }
    outcomes
}

fn note_refusal(generation: &Arc<Generation>, graph: &Graph, node: Option<NodeId>, error: OpError) {
    let to_blame = graph.nodes.get(node.map_or(0, |node| node.0 as usize));
    let kind = to_blame.map_or(OpKind::Alloc, |op| op.kind());
    generation.stats.add(kind, Tally::Error(error), 1);
}

fn prepare(
    generation: &Arc<Generation>,
    graph: &Graph,
    deadline_ns: u64,
    done: ReportFn,
) -> Result<Arc<Ticket>, (OpError, Option<NodeId>)> {
    if generation.is_down() {
        return Err((OpError::Down, None));
    }
    let Plan { expected, kinds, operands, bytes } = plan(generation, graph)?;
    let probes = generation.admit(&kinds).map_err(|kind| {
        let node = graph.nodes.iter().position(|op| op.kind() == kind);
        (OpError::Tripped, node.map(|node| NodeId(node as u32)))
    })?;
    let submitted_ns = generation.exec.now_ns();
    let due_ns = submitted_ns.saturating_add(deadline_ns);
    let own_probes = probes.clone();
    let make = |id| {
        let generation = generation.clone();
        let (watch, done) = (Arc::new(Watch::new(Vec::new())), Mutex::new(Some(done)));
        let straggler = Straggler::new();
        Arc::new(Ticket { generation, id, bytes, submitted_ns, due_ns, expected, probes, operands, watch, straggler, done })
    };
    generation.in_flight.add(generation, bytes, due_ns, make).map_err(|error| {
        own_probes.into_iter().for_each(|kind| generation.learn(kind, true, None));
        (error, None)
    })
}

impl Ticket {
    fn take_done(&self) -> Option<ReportFn> {
        let done = self.done.lock().take();
        if done.is_some() {
            self.generation.in_flight.remove(self.id, self.bytes, self.due_ns);
        }
        done
    }

    /// Ends a ticket whose program the provider did not take; false when it has ended otherwise.
    fn withdraw(&self) -> bool {
        let was_waiting = self.take_done().is_some();
        if was_waiting {
            self.probes.iter().for_each(|kind| self.generation.learn(*kind, true, None));
        }
        was_waiting
    }

    /// Ends it without the provider: its user gets `error` for every node, and the operands can't be used any more.
    pub(crate) fn give_up(&self, error: OpError) {
        let Some(done) = self.take_done() else { return };
        self.operands.iter().filter_map(Weak::upgrade).for_each(|memory| memory.abandon());
        self.watch.give_up();
        let current = self.watch.current();
        let is_to_blame = |node: usize| error == OpError::Timeout && current.is_none_or(|current| current == node);
        let mut failed: Vec<OpKind> = Vec::new();
        for (node, expected) in self.expected.iter().enumerate() {
            self.generation.stats.add(expected.kind, Tally::Error(error), 1);
            if is_to_blame(node) && !failed.contains(&expected.kind) {
                failed.push(expected.kind);
            }
        }
        for kind in self.kinds() {
            self.generation.learn(kind, self.probes.contains(&kind), failed.contains(&kind).then_some(false));
        }
        let outcomes = self.expected.iter().map(|_| Err(error)).collect();
        let (straggler, is_probe, queue_ns) = (Some(self.straggler.clone()), self.is_probe(), self.queue_ns());
        self.deliver(done, Report { outcomes, times: Vec::new(), settled: false, straggler, is_probe, queue_ns, device_ns: 0 });
    }

    /// The provider is done with it.
    fn settle(&self, results: Vec<NodeResult>) {
        let lingers_ns = self.lingers_ns(&results);
        self.let_go(lingers_ns);
        let Some(done) = self.take_done() else {
            if let Some(expected) = self.expected.first() {
                self.generation.stats.add(expected.kind, Tally::Late, 1);
            }
            return;
        };
        self.watch.let_go();
        let straggler = (lingers_ns > 0).then(|| self.straggler.clone());
        let device_ns = results.iter().map(|result| result.device_ns).sum();
        let times: Vec<u64> = results.iter().map(|result| result.device_ns).collect();
        let outcomes = check::outcomes(&self.expected, results.into_iter().map(|result| result.outcome));
        self.account(&outcomes, &times);
        let (is_probe, queue_ns) = (self.is_probe(), self.queue_ns());
        self.deliver(done, Report { outcomes, times, settled: true, straggler, is_probe, queue_ns, device_ns });
    }

    /// Nanoseconds for which something of a program may go on whose results these are: a provider that dropped it does not know that it ended.
    fn lingers_ns(&self, results: &[NodeResult]) -> u64 {
        let was_dropped = results.iter().all(|result| matches!(result.outcome, Err(OpError::Down)));
        if was_dropped { self.generation.provider.lingers_ns() } else { 0 }
    }

    /// The provider is done with it; so long after nobody is at work on it any more nothing of it writes, and those go on who waited for that.
    fn let_go(&self, lingers_ns: u64) {
        let exec = &self.generation.exec;
        if lingers_ns > 0 {
            let straggler = self.straggler.clone();
            let end = move || straggler.end().into_iter().for_each(|onward| onward());
            let exec = exec.clone();
            let count = move || exec.spawn_after(lingers_ns, TaskClass::Background, Box::new(end));
            return self.generation.provider.when_gone(Box::new(count));
        }
        let waiting = self.straggler.end();
        if !waiting.is_empty() {
            exec.spawn(TaskClass::Interrupt, Box::new(move || waiting.into_iter().for_each(|onward| onward())));
        }
    }

    /// True when its answer comes so late that the processors had been quicker. What waits for disks is as slow as they are.
    fn is_slow(&self) -> bool {
        let waits_for_disks = self.expected.iter().any(|expected| matches!(expected.kind, OpKind::Store | OpKind::Flush | OpKind::Load));
        let took_ns = self.generation.exec.now_ns().saturating_sub(self.submitted_ns);
        !waits_for_disks && took_ns > self.due_ns.saturating_sub(self.submitted_ns) / SLOW_PART
    }

    fn is_probe(&self) -> bool {
        !self.probes.is_empty()
    }

    fn queue_ns(&self) -> u64 {
        match self.watch.started_ns() {
            0 => 0,
            started => started.saturating_sub(self.submitted_ns),
        }
    }

    /// Every kind of operation in the graph, once.
    fn kinds(&self) -> Vec<OpKind> {
        let mut kinds: Vec<OpKind> = self.expected.iter().map(|expected| expected.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Counts the outcomes, and tells the breakers.
    fn account(&self, outcomes: &[Result<Outcome, OpError>], times: &[u64]) {
        let stats = &self.generation.stats;
        for (node, (expected, outcome)) in self.expected.iter().zip(outcomes).enumerate() {
            let kind = expected.kind;
            match outcome {
                Ok(outcome) => {
                    let (bytes_in, bytes_out) = expected.moved(outcome, outcomes);
                    stats.add(kind, Tally::Blocks, 1);
                    stats.add(kind, Tally::BytesIn, bytes_in as u64);
                    stats.add(kind, Tally::BytesOut, bytes_out as u64);
                    stats.add(kind, Tally::DeviceNs, times.get(node).copied().unwrap_or(0));
                    stats.add(kind, Tally::QueueNs, self.queue_ns());
                }
                Err(error) => stats.add(kind, Tally::Error(*error), 1),
            }
        }
        let is_slow = self.is_slow();
        for kind in self.kinds() {
            let own = || self.expected.iter().zip(outcomes).filter(|(expected, _)| expected.kind == kind).map(|(_, outcome)| outcome);
            let faulty = own().any(|outcome| outcome.as_ref().is_err_and(|error| error.is_fault()));
            let good = own().any(Result::is_ok);
            let probe = self.probes.contains(&kind);
            match (faulty, good) {
                (true, _) => self.generation.learn(kind, probe, Some(false)),
                (false, true) if is_slow => self.generation.learn_slow(kind, probe),
                (false, good) => self.generation.learn(kind, probe, good.then_some(true)),
            }
        }
    }

    /// Tells the user, from a job: never inside a call of the user or of the provider.
    fn deliver(&self, done: ReportFn, report: Report) {
        self.generation.exec.spawn(TaskClass::Interrupt, Box::new(move || done(report)));
    }
}
