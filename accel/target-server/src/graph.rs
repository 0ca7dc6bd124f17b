//! From a program on the link to an op graph over the session's buffers, and from its report to a completion.
//!
//! Nothing is believed: every number is looked up, every range is one of the buffer's, and `dpusm` checks the graph as any other.

use crate::session::State;
use abd::{Abd, AbdPart};
use dpusm::{Compressed, Graph, NodeId, Op, OpError, Operand, Payload, RaidContext, Report, Store, View};
use std::sync::Arc;
use target_wire::{OperandRef, ViewRef, WireCompletion, WireOp, WireOutcome, WireResult};

/// A graph to run, and the bytes that its copies to the host can be.
pub(crate) struct Built {
    pub(crate) graph: Graph,
    pub(crate) room_bytes: u64,
}

struct Builder<'a> {
    state: &'a State,
    payload: &'a Abd,
    taken: usize,
    room_bytes: u64,
    room_bytes_max: u64,
    graph: Graph,
}

/// Makes the graph; copies to the host get at most `room_bytes_max` bytes.
pub(crate) fn build(state: &State, ops: &[WireOp], payload: &Abd, room_bytes_max: u64) -> Result<Built, OpError> {
    let mut builder = Builder { state, payload, taken: 0, room_bytes: 0, room_bytes_max, graph: Graph::new() };
    for op in ops {
        builder.add(op)?;
    }
    if builder.taken != payload.len() {
        return Err(OpError::Invalid);
    }
    Ok(Built { graph: builder.graph, room_bytes: builder.room_bytes })
}

fn place(number: u64) -> Result<usize, OpError> {
    usize::try_from(number).map_err(|_| OpError::Invalid)
}

impl Builder<'_> {
    fn view(&self, wanted: &ViewRef) -> Result<View, OpError> {
        let buffer = self.state.buffers.get(&wanted.buffer).ok_or(OpError::Invalid)?;
        let (start, bytes) = (place(wanted.offset)?, place(wanted.bytes)?);
        buffer.view(start..start.checked_add(bytes).ok_or(OpError::Invalid)?)
    }

    fn views(&self, wanted: &[ViewRef]) -> Result<Vec<View>, OpError> {
        wanted.iter().map(|view| self.view(view)).collect()
    }

    /// The compression of a number.
    fn compression(&self, node: u32) -> Result<(Compressed, usize), OpError> {
        match self.graph.nodes().get(node as usize) {
            Some(Op::Compress { source, .. }) => Ok((Compressed(NodeId(node)), source.len())),
            _ => Err(OpError::Invalid),
        }
    }

    /// An operand, and the most bytes that it can be.
    fn operand(&self, wanted: &OperandRef) -> Result<(Operand, usize), OpError> {
        Ok(match wanted {
            OperandRef::View(view) => {
                let view = self.view(view)?;
                let bytes = view.len();
                (view.into(), bytes)
            }
            OperandRef::Result(node) => {
                let (packed, bytes) = self.compression(*node)?;
                (packed.result(), bytes)
            }
            OperandRef::Padding(node) => {
                let (packed, bytes) = self.compression(*node)?;
                (packed.padding(), bytes)
            }
        })
    }

    fn store(&self, number: u64) -> Result<Store, OpError> {
        self.state.stores.get(&number).cloned().ok_or(OpError::Invalid)
    }

    fn row(&self, parity: &[ViewRef], data: &[ViewRef]) -> Result<RaidContext, OpError> {
        RaidContext::new(self.views(parity)?, self.views(data)?)
    }

    fn add(&mut self, op: &WireOp) -> Result<(), OpError> {
        let mut payload = Payload::None;
        let made = match op {
            WireOp::CopyIn { target } => {
                let target = self.view(target)?;
                let end = self.taken.checked_add(target.len()).filter(|end| *end <= self.payload.len()).ok_or(OpError::Invalid)?;
                payload = Payload::Source(self.payload.slice(self.taken..end));
                self.taken = end;
                Op::CopyIn { target }
            }
            WireOp::CopyOut { source } => {
                let (source, bytes) = self.operand(source)?;
                self.room_bytes += bytes as u64;
                if self.room_bytes > self.room_bytes_max {
                    return Err(OpError::NoMemory);
                }
                payload = Payload::Target(vec![AbdPart::scratch(bytes)]);
                Op::CopyOut { source }
            }
            WireOp::ZeroFill { target } => Op::ZeroFill { target: self.operand(target)?.0 },
            WireOp::ZeroTest { source } => Op::ZeroTest { source: self.operand(source)?.0 },
            WireOp::Compress { source, target, how } => Op::Compress { source: self.view(source)?, target: self.view(target)?, how: *how },
            WireOp::Decompress { source, target, kind } => {
                Op::Decompress { source: self.view(source)?, target: self.view(target)?, kind: *kind }
            }
            WireOp::Checksum { source, kind, order } => Op::Checksum { source: self.operand(source)?.0, kind: *kind, order: *order },
            WireOp::RaidGenerate { parity, data } => Op::RaidGenerate { row: self.row(parity, data)? },
            WireOp::RaidReconstruct { parity, data, targets } => {
                Op::RaidReconstruct { row: self.row(parity, data)?, targets: targets.iter().map(|index| *index as usize).collect() }
            }
            WireOp::Compare { left, right } => Op::Compare { left: self.view(left)?, right: self.view(right)? },
            WireOp::Store { source, store, offset } => {
                Op::Store { source: self.operand(source)?.0, store: self.store(*store)?, offset: *offset }
            }
            WireOp::Flush { store } => Op::Flush { store: self.store(*store)? },
            WireOp::Load { target, store, offset } => Op::Load { target: self.view(target)?, store: self.store(*store)?, offset: *offset },
        };
        self.graph.push(made, payload);
        Ok(())
    }
}

/// Form of the answer of a kind of operation.
#[derive(Clone, Copy)]
enum Form {
    Done,
    Compressed,
    Checksum,
    Flag,
    Copied,
    Stored,
}

/// Forms of the answers of a program's operations.
pub(crate) struct Forms(Vec<Form>);

impl Forms {
    pub(crate) fn of(ops: &[WireOp]) -> Forms {
        let form = |op: &WireOp| match op {
            WireOp::CopyOut { .. } => Form::Copied,
            WireOp::ZeroTest { .. } | WireOp::Compare { .. } => Form::Flag,
            WireOp::Compress { .. } => Form::Compressed,
            WireOp::Checksum { .. } => Form::Checksum,
            WireOp::Store { .. } => Form::Stored,
            _ => Form::Done,
        };
        Forms(ops.iter().map(form).collect())
    }

    /// The completion of a program that was refused because of one of its nodes, or as a whole.
    pub(crate) fn refused(&self, opens: Vec<Result<(), OpError>>, node: Option<NodeId>, error: OpError) -> WireCompletion {
        let of = |index: usize| if node.is_none_or(|node| node.0 as usize == index) { error } else { OpError::Skipped };
        WireCompletion { opens, results: (0..self.0.len()).map(|index| Err(of(index)).into()).collect() }
    }

    /// The completion of a program that ran, and the bytes that go with it.
    pub(crate) fn completion(&self, opens: Vec<Result<(), OpError>>, mut report: Report) -> (WireCompletion, Abd) {
        let mut copied = Vec::new();
        let results = self.0.iter().enumerate().map(|(index, form)| {
            let node = NodeId(index as u32);
            let outcome = match form {
                Form::Done => report.status(node).map(|()| WireOutcome::Done),
                Form::Compressed => {
                    report.compressed(Compressed(node)).map(|bytes| WireOutcome::Compressed(bytes.map(|bytes| bytes as u64)))
                }
                Form::Checksum => report.checksum(node).map(WireOutcome::Checksum),
                Form::Flag => report.flag(node).map(WireOutcome::Flag),
                Form::Stored => report.stored(node).map(WireOutcome::Stored),
                Form::Copied => report.take_bytes(node).map(|bytes| {
                    let count = bytes.len() as u64;
                    copied.push(bytes);
                    WireOutcome::Copied(count)
                }),
            };
            WireResult { outcome, device_ns: report.device_ns_of(node) }
        });
        let results = results.collect();
        (WireCompletion { opens, results }, Abd::gang(&copied))
    }
}

/// An answer, kept until the host has it.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) message: Arc<Vec<u8>>,
    pub(crate) payload: Abd,
}

impl Answer {
    pub(crate) fn of(completion: &WireCompletion, payload: Abd) -> Answer {
        Answer { message: Arc::new(completion.encode()), payload }
    }
}
