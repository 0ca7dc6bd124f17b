//! What is checked centrally, so that neither users nor providers have to: operands before a graph is submitted, and the form of
//! every answer after. A short, overlong or foreign answer is `BadResult`, and a user never sees it.

use crate::capability::level_is_in;
use crate::graph::{Compress, Graph, NodeId, Op, Operand, Outcome, Payload};
use crate::handle::Owner;
use crate::program::{reads, writes};
use crate::{Capability, Feature, OpError, OpKind, Sizes, View};
use std::sync::Arc;

/// Errno of a short write: EIO.
const EIO: i32 = 5;

/// Bytes of an operand, some of which are known only when a compression has run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    Fixed(usize),
    Result { node: usize, how: Compress, source_bytes: usize },
    Padding { node: usize, how: Compress },
}

impl Amount {
    /// Bytes of an operand, given what its graph's compressions made.
    pub(crate) fn bytes(&self, outcomes: &[Result<Outcome, OpError>]) -> usize {
        let compressed = |node: usize| match outcomes.get(node) {
            Some(Ok(Outcome::Compressed(length))) => *length,
            _ => None,
        };
        match self {
            Amount::Fixed(bytes) => *bytes,
            Amount::Result { node, how, source_bytes } => compressed(*node).map_or(*source_bytes, |length| how.stored_bytes(length)),
            Amount::Padding { node, how, .. } => compressed(*node).map_or(0, |length| how.stored_bytes(length) - length),
        }
    }
}

/// The form that a node's answer must have.
#[derive(Clone, Copy, Debug)]
enum Form {
    Done,
    Compressed {
        how: Compress,
    },
    Checksum,
    Flag,
    /// Room of all parts together.
    Copied {
        room_bytes: usize,
    },
    Stored,
}

/// Facts about a node by which its answer is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) kind: OpKind,
    form: Form,
    reads: Amount,
    writes_bytes: usize,
}

impl Expected {
    /// Most bytes that the node can be about, for the limits of the queue.
    pub(crate) fn bytes_max(&self) -> usize {
        match self.reads {
            Amount::Fixed(bytes) => bytes.max(self.writes_bytes),
            Amount::Result { source_bytes, .. } => source_bytes,
            Amount::Padding { how, .. } => how.round_to_bytes,
        }
    }

    /// Bytes that went in and came out.
    pub(crate) fn moved(&self, outcome: &Outcome, outcomes: &[Result<Outcome, OpError>]) -> (usize, usize) {
        let read = self.reads.bytes(outcomes);
        match (self.kind, outcome) {
            (_, Outcome::Compressed(length)) => (read, length.unwrap_or(read)),
            (_, Outcome::Copied { bytes, .. }) => (*bytes, *bytes),
            (OpKind::ZeroFill, _) => (0, read),
            _ => (read, self.writes_bytes),
        }
    }
}

/// Checks one node of a graph for the provider that owns its operands and offers these capabilities.
pub(crate) fn node(owner: &Arc<dyn Owner>, offers: &[Capability], graph: &Graph, node: usize) -> Result<Expected, OpError> {
    let op = &graph.nodes[node];
    for view in reads(&graph.nodes, op).into_iter().chain(writes(&graph.nodes, op)) {
        view.check(owner)?;
    }
    shape(graph, node)?;
    offered(owner, offers, graph, node)?;
    Ok(expected(graph, node))
}

/// The compression that an operand names; None for a view.
fn compression<'a>(graph: &'a Graph, node: usize, operand: &Operand) -> Result<Option<(&'a View, &'a View, &'a Compress)>, OpError> {
    let (Operand::Result(NodeId(id)) | Operand::Padding(NodeId(id))) = operand else { return Ok(None) };
    match graph.nodes.get(*id as usize) {
        Some(Op::Compress { source, target, how }) if (*id as usize) < node => Ok(Some((source, target, how))),
        _ => Err(OpError::Invalid),
    }
}

/// Bytes of an operand at most.
fn bytes_max(graph: &Graph, node: usize, operand: &Operand) -> Result<usize, OpError> {
    Ok(match (operand, compression(graph, node, operand)?) {
        (Operand::View(view), _) => view.len(),
        (Operand::Padding(_), Some((_, _, how))) => how.round_to_bytes,
        (_, Some((source, _, _))) => source.len(),
        (_, None) => return Err(OpError::Invalid),
    })
}

/// Refuses graphs that make no sense.
fn shape(graph: &Graph, node: usize) -> Result<(), OpError> {
    let good = match &graph.nodes[node] {
        Op::CopyIn { target } => matches!(&graph.payloads[node], Payload::Source(source) if source.len() == target.len()),
        Op::CopyOut { source } => match &graph.payloads[node] {
            Payload::Target(parts) => parts.iter().map(|part| part.len()).sum::<usize>() >= bytes_max(graph, node, source)?,
            _ => false,
        },
        Op::ZeroFill { target } => bytes_max(graph, node, target).is_ok(),
        Op::ZeroTest { source } | Op::Checksum { source, .. } | Op::Store { source, .. } => bytes_max(graph, node, source).is_ok(),
        Op::Compress { source, target, how } => {
            let room = how.stored_bytes(how.limit_bytes).min(source.len());
            how.round_to_bytes > 0 && !source.is_empty() && target.len() >= room && !source.overlaps(target)
        }
        Op::Decompress { source, target, .. } => !source.is_empty() && !target.is_empty() && !source.overlaps(target),
        Op::RaidGenerate { .. } | Op::Flush { .. } => true,
        Op::Load { target, .. } => !target.is_empty(),
        Op::RaidReconstruct { row, targets } => {
            let ascending = targets.windows(2).all(|pair| pair[0] < pair[1]);
            let inside = targets.last().is_some_and(|last| *last < row.columns().len());
            ascending && inside && targets.len() <= row.parities()
        }
        Op::Compare { left, right } => left.len() == right.len(),
    };
    if good { Ok(()) } else { Err(OpError::Invalid) }
}

/// Refuses what the provider does not offer: `NotImplemented` when it never does, `NotSupported` when not for these operands.
fn offered(owner: &Arc<dyn Owner>, offers: &[Capability], graph: &Graph, node: usize) -> Result<(), OpError> {
    let op = &graph.nodes[node];
    if let Op::Store { store, .. } | Op::Flush { store } | Op::Load { store, .. } = op {
        store.check(owner)?;
    }
    let mut error = OpError::NotImplemented;
    for capability in offers {
        match covers(&capability.feature, op, &graph.payloads[node]) {
            Cover::No => {}
            Cover::NotThis => error = OpError::NotSupported,
            Cover::Yes if fits(&capability.sizes, graph, op) => return Ok(()),
            Cover::Yes => error = OpError::NotSupported,
        }
    }
    Err(error)
}

enum Cover {
    No,
    /// The feature, but not for this level, number of columns or pieces.
    NotThis,
    Yes,
}

fn covers(feature: &Feature, op: &Op, payload: &Payload) -> Cover {
    let when = |good: bool| if good { Cover::Yes } else { Cover::NotThis };
    match (feature, op) {
        (Feature::CopyIn { scatter }, Op::CopyIn { .. }) => {
            when(*scatter || matches!(payload, Payload::Source(source) if source.extents().count() <= 1))
        }
        (Feature::CopyOut { scatter }, Op::CopyOut { .. }) => {
            when(*scatter || matches!(payload, Payload::Target(parts) if parts.len() <= 1))
        }
        (Feature::ZeroFill, Op::ZeroFill { .. }) | (Feature::ZeroTest, Op::ZeroTest { .. }) | (Feature::Compare, Op::Compare { .. }) => {
            Cover::Yes
        }
        (Feature::Compress { kind, level_min, level_max }, Op::Compress { how, .. }) if *kind == how.kind => {
            when(level_is_in(how.kind, how.level, *level_min, *level_max))
        }
        (Feature::Decompress { kind }, Op::Decompress { kind: wanted, .. }) if kind == wanted => Cover::Yes,
        (Feature::Checksum { kind, order }, Op::Checksum { kind: wanted, order: wanted_order, .. }) if kind == wanted => {
            when(order == wanted_order)
        }
        (Feature::RaidGenerate { parity, data_columns_max }, Op::RaidGenerate { row })
        | (Feature::RaidReconstruct { parity, data_columns_max }, Op::RaidReconstruct { row, .. })
            if usize::from(*parity) == row.parities() =>
        {
            when(row.data().len() <= usize::from(*data_columns_max))
        }
        (Feature::Store { kind }, Op::Store { store, .. } | Op::Flush { store }) | (Feature::Load { kind }, Op::Load { store, .. })
            if *kind == store.kind() =>
        {
            Cover::Yes
        }
        _ => Cover::No,
    }
}

/// True when the sizes admit every operand. Those that depend on a compression, padding, and empty columns always fit: they are
/// multiples of what the user rounds to, which is at least as much as the provider's alignment where that matters.
fn fits(sizes: &Sizes, graph: &Graph, op: &Op) -> bool {
    let one = |view: &View| sizes.admit(view.offset(), view.len());
    match op {
        Op::CopyIn { target } | Op::Load { target, .. } => one(target),
        Op::CopyOut { source } | Op::ZeroTest { source } | Op::Checksum { source, .. } | Op::Store { source, .. } => match source {
            Operand::View(view) => one(view),
            Operand::Result(_) => reads(&graph.nodes, op).iter().all(|view| view.len() <= sizes.max_bytes),
            Operand::Padding(_) => true,
        },
        Op::ZeroFill { target: Operand::View(view) } => one(view),
        Op::ZeroFill { .. } | Op::Flush { .. } => true,
        Op::Compress { source, .. } => one(source),
        Op::Decompress { target, .. } => one(target),
        Op::Compare { left, right } => one(left) && one(right),
        Op::RaidGenerate { row } | Op::RaidReconstruct { row, .. } => row.columns().iter().all(|column| column.is_empty() || one(column)),
    }
}

fn expected(graph: &Graph, node: usize) -> Expected {
    let op = &graph.nodes[node];
    let total = |views: Vec<View>| views.iter().map(View::len).sum::<usize>();
    let amount = |operand: &Operand| match operand {
        Operand::View(view) => Amount::Fixed(view.len()),
        Operand::Result(NodeId(id)) | Operand::Padding(NodeId(id)) => match &graph.nodes[*id as usize] {
            Op::Compress { source, how, .. } if matches!(operand, Operand::Result(_)) => {
                Amount::Result { node: *id as usize, how: *how, source_bytes: source.len() }
            }
            Op::Compress { how, .. } => Amount::Padding { node: *id as usize, how: *how },
            _ => Amount::Fixed(0),
        },
    };
    let all_reads = || Amount::Fixed(total(reads(&graph.nodes, op)));
    let (form, reads) = match op {
        Op::CopyIn { target } | Op::Load { target, .. } => (Form::Done, Amount::Fixed(target.len())),
        Op::CopyOut { source } => {
            let room_bytes = match &graph.payloads[node] {
                Payload::Target(parts) => parts.iter().map(|part| part.len()).sum(),
                _ => 0,
            };
            (Form::Copied { room_bytes }, amount(source))
        }
        Op::ZeroFill { target } => (Form::Done, amount(target)),
        Op::ZeroTest { source } => (Form::Flag, amount(source)),
        Op::Compress { source, how, .. } => (Form::Compressed { how: *how }, Amount::Fixed(source.len())),
        Op::Checksum { source, .. } => (Form::Checksum, amount(source)),
        Op::Compare { .. } => (Form::Flag, all_reads()),
        Op::Store { source, .. } => (Form::Stored, amount(source)),
        Op::Decompress { .. } | Op::RaidGenerate { .. } | Op::RaidReconstruct { .. } | Op::Flush { .. } => (Form::Done, all_reads()),
    };
    Expected { kind: op.kind(), form, reads, writes_bytes: total(writes(&graph.nodes, op)) }
}

/// Judges the answers of a provider; there are as many outcomes as nodes.
pub(crate) fn outcomes(expected: &[Expected], answers: impl Iterator<Item = Result<Outcome, OpError>>) -> Vec<Result<Outcome, OpError>> {
    let mut answers = answers;
    let mut judged: Vec<Result<Outcome, OpError>> = Vec::with_capacity(expected.len());
    for node in expected {
        let answer = answers.next().unwrap_or(Err(OpError::BadResult));
        let outcome = answer.and_then(|outcome| judge(node, outcome, &judged));
        judged.push(outcome);
    }
    judged
}

fn judge(node: &Expected, outcome: Outcome, before: &[Result<Outcome, OpError>]) -> Result<Outcome, OpError> {
    if let Amount::Result { node: named, .. } | Amount::Padding { node: named, .. } = node.reads
        && before.get(named).is_none_or(Result::is_err)
    {
        return Err(OpError::Skipped);
    }
    let bytes = node.reads.bytes(before);
    match (node.form, &outcome) {
        (Form::Done, Outcome::Done) | (Form::Checksum, Outcome::Checksum(_)) | (Form::Flag, Outcome::Flag(_)) => Ok(outcome),
        (Form::Compressed { .. }, Outcome::Compressed(None)) => Ok(outcome),
        (Form::Compressed { how }, Outcome::Compressed(Some(length))) if how.is_worth(*length, bytes) => Ok(outcome),
        (Form::Copied { room_bytes }, Outcome::Copied { parts, bytes: copied })
            if *copied == bytes && parts.iter().map(|part| part.len()).sum::<usize>() == room_bytes =>
        {
            Ok(outcome)
        }
        (Form::Stored, Outcome::Stored(written)) if *written == bytes as u64 => Ok(outcome),
        (Form::Stored, Outcome::Stored(_)) => Err(OpError::Io(EIO)),
        _ => Err(OpError::BadResult),
    }
}
