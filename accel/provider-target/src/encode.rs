//! Programs as the target takes them, and its answers as results: names instead of memory, one copy of what comes back.

use abd::{Abd, AbdPart};
use dpusm::{NodeResult, Op, OpError, Operand, Outcome, Program, RaidContext, Store, View};
use target_wire::{BufferRef, Limits, OperandRef, ViewRef, WireCompletion, WireOp, WireOutcome};

/// A buffer of the target.
#[derive(Debug)]
pub(crate) struct RemoteBuffer {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// A store of the target.
#[derive(Debug)]
pub(crate) struct RemoteStore {
    pub(crate) number: u64,
}

/// A program without its frees.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) ops: Vec<WireOp>,
    pub(crate) buffers: Vec<BufferRef>,
    pub(crate) payload: Abd,
    /// Most bytes that come back.
    pub(crate) room_bytes: u64,
}

impl Encoded {
    fn view(&mut self, view: &View) -> Result<ViewRef, OpError> {
        let own = view.handle().get::<RemoteBuffer>().ok_or(OpError::Mismatch)?;
        if self.buffers.iter().all(|known| known.number != own.number) {
            self.buffers.push(BufferRef { number: own.number, bytes: own.bytes });
        }
        Ok(ViewRef { buffer: own.number, offset: view.offset() as u64, bytes: view.len() as u64 })
    }

    fn views(&mut self, views: &[View]) -> Result<Vec<ViewRef>, OpError> {
        views.iter().map(|view| self.view(view)).collect()
    }

    fn operand(&mut self, operand: &Operand) -> Result<OperandRef, OpError> {
        Ok(match operand {
            Operand::View(view) => OperandRef::View(self.view(view)?),
            Operand::Result(node) => OperandRef::Result(node.0),
            Operand::Padding(node) => OperandRef::Padding(node.0),
        })
    }

    fn row(&mut self, row: &RaidContext) -> Result<(Vec<ViewRef>, Vec<ViewRef>), OpError> {
        Ok((self.views(row.parity())?, self.views(row.data())?))
    }

    fn op(&mut self, op: &Op) -> Result<WireOp, OpError> {
        Ok(match op {
            Op::CopyIn { target } => WireOp::CopyIn { target: self.view(target)? },
            Op::CopyOut { source } => WireOp::CopyOut { source: self.operand(source)? },
            Op::ZeroFill { target } => WireOp::ZeroFill { target: self.operand(target)? },
            Op::ZeroTest { source } => WireOp::ZeroTest { source: self.operand(source)? },
            Op::Compress { source, target, how } => WireOp::Compress { source: self.view(source)?, target: self.view(target)?, how: *how },
            Op::Decompress { source, target, kind } => {
                WireOp::Decompress { source: self.view(source)?, target: self.view(target)?, kind: *kind }
            }
            Op::Checksum { source, kind, order } => WireOp::Checksum { source: self.operand(source)?, kind: *kind, order: *order },
            Op::RaidGenerate { row } => {
                let (parity, data) = self.row(row)?;
                WireOp::RaidGenerate { parity, data }
            }
            Op::RaidReconstruct { row, targets } => {
                let (parity, data) = self.row(row)?;
                WireOp::RaidReconstruct { parity, data, targets: targets.iter().map(|index| *index as u32).collect() }
            }
            Op::Compare { left, right } => WireOp::Compare { left: self.view(left)?, right: self.view(right)? },
            Op::Store { source, store, offset } => WireOp::Store { source: self.operand(source)?, store: number(store)?, offset: *offset },
            Op::Flush { store } => WireOp::Flush { store: number(store)? },
            Op::Load { target, store, offset } => WireOp::Load { target: self.view(target)?, store: number(store)?, offset: *offset },
        })
    }
}

/// Most bytes that an operand has: what a compression made is no longer than its source.
fn longest(program: &Program, operand: &Operand) -> u64 {
    match operand {
        Operand::View(view) => view.len() as u64,
        Operand::Result(node) | Operand::Padding(node) => match program.nodes().get(node.0 as usize) {
            Some(Op::Compress { source, .. }) => source.len() as u64,
            _ => 0,
        },
    }
}

fn number(store: &Store) -> Result<u64, OpError> {
    store.handle().get::<RemoteStore>().map(|own| own.number).ok_or(OpError::Mismatch)
}

/// Encodes a program for the link. Its source bytes are held, not copied, so this is quick.
pub(crate) fn encode(program: &Program) -> Result<Encoded, OpError> {
    if program.is_given_up() {
        return Err(OpError::Cancelled);
    }
    let mut encoded = Encoded::default();
    let mut sources = Vec::new();
    for (node, op) in program.nodes().iter().enumerate() {
        let op_ref = encoded.op(op)?;
        encoded.ops.push(op_ref);
        if let Op::CopyOut { source } = op {
            encoded.room_bytes = encoded.room_bytes.saturating_add(longest(program, source));
        }
        if matches!(op, Op::CopyIn { .. }) {
            sources.push(program.source(node)?);
        }
    }
    encoded.payload = match sources.len() {
        1 => sources.swap_remove(0),
        _ => Abd::gang(&sources),
    };
    if encoded.payload.len() > Limits::SESSION.payload_bytes_max as usize {
        return Err(OpError::NotSupported);
    }
    Ok(encoded)
}

/// Makes results of all nodes of a program with one error.
pub(crate) fn all(program: &Program, error: OpError) -> Vec<NodeResult> {
    program.nodes().iter().map(|_| Err(error).into()).collect()
}

/// The results in a completion; bytes go where the program wants them.
pub(crate) fn results(program: &Program, completion: &WireCompletion, payload: &Abd) -> Vec<NodeResult> {
    let mut taken: usize = 0;
    let one = |(node, result): (usize, &target_wire::WireResult)| {
        let outcome = result.outcome.and_then(|outcome| match outcome {
            WireOutcome::Done => Ok(Outcome::Done),
            WireOutcome::Compressed(bytes) => match bytes.map(usize::try_from).transpose() {
                Ok(bytes) => Ok(Outcome::Compressed(bytes)),
                Err(_) => Err(OpError::BadResult),
            },
            WireOutcome::Checksum(words) => Ok(Outcome::Checksum(words)),
            WireOutcome::Flag(flag) => Ok(Outcome::Flag(flag)),
            WireOutcome::Stored(bytes) => Ok(Outcome::Stored(bytes)),
            WireOutcome::Copied(bytes) => {
                let bytes = usize::try_from(bytes).map_err(|_| OpError::BadResult)?;
                let end = taken.checked_add(bytes).filter(|end| *end <= payload.len()).ok_or(OpError::BadResult)?;
                let data = payload.slice(taken..end);
                taken = end;
                let mut parts = program.take_target(node)?;
                let bytes = fill(&mut parts, &data);
                Ok(Outcome::Copied { parts, bytes })
            }
        });
        NodeResult { outcome, device_ns: result.device_ns }
    };
    completion.results.iter().enumerate().map(one).collect()
}

/// Copies into the parts in order; how many bytes fitted.
fn fill(parts: &mut [AbdPart], data: &Abd) -> usize {
    let mut at = 0;
    for part in parts {
        let count = part.len().min(data.len() - at);
        let piece = data.slice(at..at + count);
        if count == part.len() {
            part.copy_from_abd(&piece);
        } else {
            part.copy_at(0, &piece.to_vec());
        }
        at += count;
    }
    at
}
