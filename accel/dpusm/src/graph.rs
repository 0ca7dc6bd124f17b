//! Op graphs: what a user asks a provider to do with a block, in one go.
//!
//! A graph is a list of operations whose effects are those of running them in order. An operand is a [`View`], or what a
//! compression of the same graph made of its operands: so {copy in, compress, pad, checksum} is one submission, although nobody
//! knows the compressed size before it runs. A failed operation takes those along that need it ([`OpError::Skipped`]), no others.

use crate::straggler::Straggler;
use crate::{OpError, OpKind, RaidContext, Store, View};
use abd::{Abd, AbdPart};
use ondisk::{ByteOrder, Checksum, Compression};

/// Number of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A compression of a graph, whose result later nodes name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed(pub NodeId);

impl Compressed {
    /// Bytes to be stored: the compressed bytes with their padding, or the source when it did not shrink.
    pub fn result(self) -> Operand {
        Operand::Result(self.0)
    }

    /// The padding after the compressed bytes; nothing when the source did not shrink.
    pub fn padding(self) -> Operand {
        Operand::Padding(self.0)
    }
}

/// Bytes that an operation reads or writes.
#[derive(Clone, Debug)]
pub enum Operand {
    /// Bytes of a buffer.
    View(View),
    /// Bytes that [`Compressed::result`] stands for.
    Result(NodeId),
    /// Bytes that [`Compressed::padding`] stands for.
    Padding(NodeId),
}

impl From<&View> for Operand {
    fn from(view: &View) -> Operand {
        Operand::View(view.clone())
    }
}

impl From<View> for Operand {
    fn from(view: View) -> Operand {
        Operand::View(view)
    }
}

/// Way in which a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compress {
    /// Compression algorithm.
    pub kind: Compression,
    /// On-disk zstd level; other kinds ignore it.
    pub level: u8,
    /// Most bytes of a useful result (OpenZFS: seven eighths of the block).
    pub limit_bytes: usize,
    /// The result is padded to a multiple of this; when that is not less than the source, the source did not shrink.
    pub round_to_bytes: usize,
}

impl Compress {
    /// Bytes that are stored for a result of `compressed` bytes.
    pub fn stored_bytes(&self, compressed: usize) -> usize {
        compressed.checked_next_multiple_of(self.round_to_bytes.max(1)).unwrap_or(usize::MAX)
    }

    /// True when `compressed` bytes are worth being stored instead of `source` bytes.
    pub fn is_worth(&self, compressed: usize, source: usize) -> bool {
        compressed > 0 && compressed <= self.limit_bytes && self.stored_bytes(compressed) < source
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Host bytes into device memory.
    CopyIn {
        /// Bytes to write to, as many as are copied.
        target: View,
    },
    /// Device memory into host memory, of which there may be more than is needed.
    CopyOut {
        /// Bytes to read.
        source: Operand,
    },
    /// Zeros into device memory.
    ZeroFill {
        /// Bytes to write to.
        target: Operand,
    },
    /// Are all bytes zero?
    ZeroTest {
        /// Bytes to look at.
        source: Operand,
    },
    /// Compression.
    Compress {
        /// Bytes of the block.
        source: View,
        /// Bytes to write to: room for the limit and its padding.
        target: View,
        /// Way in which it is compressed.
        how: Compress,
    },
    /// Decompression of a block into the whole of `target`.
    Decompress {
        /// The stored bytes, padding included.
        source: View,
        /// Bytes to write to.
        target: View,
        /// Compression algorithm.
        kind: Compression,
    },
    /// A checksum.
    Checksum {
        /// Bytes to sum up.
        source: Operand,
        /// Checksum algorithm.
        kind: Checksum,
        /// Byte order in which the bytes are read as words.
        order: ByteOrder,
    },
    /// The parity columns of a row from its data columns.
    RaidGenerate {
        /// Columns of the row.
        row: RaidContext,
    },
    /// Columns of a row, in place, from the others.
    RaidReconstruct {
        /// Columns of the row.
        row: RaidContext,
        /// Indices of the columns to compute, parity first, ascending.
        targets: Vec<usize>,
    },
    /// Do the two differ?
    Compare {
        /// One of the two.
        left: View,
        /// The other one, as long.
        right: View,
    },
    /// A write of device memory to a file or disk.
    Store {
        /// Bytes to read.
        source: Operand,
        /// Store to write to.
        store: Store,
        /// Offset in the store, in bytes.
        offset: u64,
    },
    /// Flush of a store: everything that was written becomes durable.
    Flush {
        /// Store to flush.
        store: Store,
    },
    /// A read of a file or disk into device memory.
    Load {
        /// Bytes to write to, as many as are read.
        target: View,
        /// Store to read from.
        store: Store,
        /// Offset in the store, in bytes.
        offset: u64,
    },
}

impl Op {
    /// Kind of the operation.
    pub fn kind(&self) -> OpKind {
        match self {
            Op::CopyIn { .. } => OpKind::CopyIn,
            Op::CopyOut { .. } => OpKind::CopyOut,
            Op::ZeroFill { .. } => OpKind::ZeroFill,
            Op::ZeroTest { .. } => OpKind::ZeroTest,
            Op::Compress { .. } => OpKind::Compress,
            Op::Decompress { .. } => OpKind::Decompress,
            Op::Checksum { .. } => OpKind::Checksum,
            Op::RaidGenerate { .. } => OpKind::RaidGenerate,
            Op::RaidReconstruct { .. } => OpKind::RaidReconstruct,
            Op::Compare { .. } => OpKind::Compare,
            Op::Store { .. } => OpKind::Store,
            Op::Flush { .. } => OpKind::Flush,
            Op::Load { .. } => OpKind::Load,
        }
    }
}

/// Host memory that goes with a node.
#[derive(Debug, Default)]
pub enum Payload {
    /// None, or taken already.
    #[default]
    None,
    /// The bytes to copy in.
    Source(Abd),
    /// Parts to copy to.
    Target(Vec<AbdPart>),
}

/// Operations to submit.
#[derive(Debug, Default)]
pub struct Graph {
    pub(crate) nodes: Vec<Op>,
    pub(crate) payloads: Vec<Payload>,
}

impl Graph {
    /// Makes a graph without operations.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True when there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The operations in order.
    pub fn nodes(&self) -> &[Op] {
        &self.nodes
    }

    /// Adds any operation; those with host memory need their payload.
    pub fn push(&mut self, op: Op, payload: Payload) -> NodeId {
        self.nodes.push(op);
        self.payloads.push(payload);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Copies `source` (one run or a scatter list) to `target`, which must be as long.
    pub fn copy_in(&mut self, source: &Abd, target: &View) -> NodeId {
        self.push(Op::CopyIn { target: target.clone() }, Payload::Source(source.clone()))
    }

    /// Copies to `parts` in order; [`Report::take_bytes`] has them. There may be more room than bytes.
    pub fn copy_out(&mut self, source: impl Into<Operand>, parts: Vec<AbdPart>) -> NodeId {
        self.push(Op::CopyOut { source: source.into() }, Payload::Target(parts))
    }

    /// Writes zeros.
    pub fn zero_fill(&mut self, target: impl Into<Operand>) -> NodeId {
        self.push(Op::ZeroFill { target: target.into() }, Payload::None)
    }

    /// Asks whether all bytes are zero: [`Report::flag`] is true if so.
    pub fn zero_test(&mut self, source: impl Into<Operand>) -> NodeId {
        self.push(Op::ZeroTest { source: source.into() }, Payload::None)
    }

    /// Compresses; the padding is not written by this ([`Graph::zero_fill`] of [`Compressed::padding`] does).
    pub fn compress(&mut self, source: &View, target: &View, how: Compress) -> Compressed {
        Compressed(self.push(Op::Compress { source: source.clone(), target: target.clone(), how }, Payload::None))
    }

    /// Decompresses `source`, which may be padded, into the whole of `target`.
    pub fn decompress(&mut self, source: &View, target: &View, kind: Compression) -> NodeId {
        self.push(Op::Decompress { source: source.clone(), target: target.clone(), kind }, Payload::None)
    }

    /// Computes a checksum.
    pub fn checksum(&mut self, source: impl Into<Operand>, kind: Checksum, order: ByteOrder) -> NodeId {
        self.push(Op::Checksum { source: source.into(), kind, order }, Payload::None)
    }

    /// Computes the parity of a row.
    pub fn raid_generate(&mut self, row: &RaidContext) -> NodeId {
        self.push(Op::RaidGenerate { row: row.clone() }, Payload::None)
    }

    /// Computes the columns `targets` of a row (parity first) from the others.
    pub fn raid_reconstruct(&mut self, row: &RaidContext, targets: &[usize]) -> NodeId {
        self.push(Op::RaidReconstruct { row: row.clone(), targets: targets.to_vec() }, Payload::None)
    }

    /// Compares two buffers of one length: [`Report::flag`] is true when they differ.
    pub fn compare(&mut self, left: &View, right: &View) -> NodeId {
        self.push(Op::Compare { left: left.clone(), right: right.clone() }, Payload::None)
    }

    /// Writes to a file or disk at byte `offset`.
    pub fn store(&mut self, source: impl Into<Operand>, store: &Store, offset: u64) -> NodeId {
        self.push(Op::Store { source: source.into(), store: store.clone(), offset }, Payload::None)
    }

    /// Reads from a file or disk, from byte `offset` on, into the whole of `target`.
    pub fn load(&mut self, target: &View, store: &Store, offset: u64) -> NodeId {
        self.push(Op::Load { target: target.clone(), store: store.clone(), offset }, Payload::None)
    }

    /// Makes everything durable that was written to a store, by earlier nodes too.
    pub fn flush(&mut self, store: &Store) -> NodeId {
        self.push(Op::Flush { store: store.clone() }, Payload::None)
    }
}

/// Answer of an operation: a status and a small result, never the data (that stays where it is), but for copies to the host.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing more to say.
    Done,
    /// Length of the compressed bytes without padding; None when the source did not shrink.
    Compressed(Option<usize>),
    /// The words of a block pointer's checksum.
    Checksum([u64; 4]),
    /// True when all bytes are zero, or the two differ.
    Flag(bool),
    /// The parts with `bytes` bytes in them, from the start.
    Copied {
        /// All parts that were given.
        parts: Vec<AbdPart>,
        /// Number of bytes.
        bytes: usize,
    },
    /// Bytes written to a store.
    Stored(u64),
}

/// Outcome of a graph.
#[derive(Debug)]
pub struct Report {
    pub(crate) outcomes: Vec<Result<Outcome, OpError>>,
    /// Nanoseconds by node, as far as the provider told.
    pub(crate) times: Vec<u64>,
    /// False when the graph was given up and the provider may still use its operands: they can only be dropped.
    pub settled: bool,
    /// Work that the provider may still be at.
    pub(crate) straggler: Option<Straggler>,
    /// True when it was let through to see whether an operation works again: whatever came of it is to be checked.
    pub is_probe: bool,
    /// Nanoseconds from submission to the provider's start.
    pub queue_ns: u64,
    /// Nanoseconds that the provider says it worked.
    pub device_ns: u64,
}

impl Report {
    fn outcome(&self, node: NodeId) -> Result<&Outcome, OpError> {
        self.outcomes.get(node.0 as usize).ok_or(OpError::Invalid)?.as_ref().map_err(|error| *error)
    }

    /// The graph itself, where the provider may still be at work on it: until that is over, what it stores may land, and what it stores to is nobody
    /// else's. None when it is done with it.
    pub fn straggler(&self) -> Option<Straggler> {
        self.straggler.clone()
    }

    /// Checks that a node was done.
    ///
    /// # Errors
    /// Why it was not.
    pub fn status(&self, node: NodeId) -> Result<(), OpError> {
        self.outcome(node).map(|_| ())
    }

    /// Checks that all were done.
    ///
    /// # Errors
    /// `Down` if any node says so, else the first node's error that is no consequence of another's.
    pub fn all(&self) -> Result<(), OpError> {
        let errors = || self.outcomes.iter().filter_map(|outcome| outcome.as_ref().err().copied());
        match errors().find(|error| *error == OpError::Down).or_else(|| errors().find(|error| *error != OpError::Skipped)) {
            Some(error) => Err(error),
            None => errors().next().map_or(Ok(()), Err),
        }
    }

    /// Length of compressed bytes; None when the source did not shrink.
    ///
    /// # Errors
    /// Why there is none.
    pub fn compressed(&self, node: Compressed) -> Result<Option<usize>, OpError> {
        match self.outcome(node.0)? {
            Outcome::Compressed(length) => Ok(*length),
            _ => Err(OpError::Invalid),
        }
    }

    /// Words of a checksum.
    ///
    /// # Errors
    /// Why there is none.
    pub fn checksum(&self, node: NodeId) -> Result<[u64; 4], OpError> {
        match self.outcome(node)? {
            Outcome::Checksum(words) => Ok(*words),
            _ => Err(OpError::Invalid),
        }
    }

    /// The answer of a zero test (true: all zero) or a comparison (true: they differ).
    ///
    /// # Errors
    /// Why there is none.
    pub fn flag(&self, node: NodeId) -> Result<bool, OpError> {
        match self.outcome(node)? {
            Outcome::Flag(flag) => Ok(*flag),
            _ => Err(OpError::Invalid),
        }
    }

    /// Bytes that were written to a store.
    ///
    /// # Errors
    /// Why there are none.
    pub fn stored(&self, node: NodeId) -> Result<u64, OpError> {
        match self.outcome(node)? {
            Outcome::Stored(bytes) => Ok(*bytes),
            _ => Err(OpError::Invalid),
        }
    }

    /// Nanoseconds that the provider says it worked on a node.
    pub fn device_ns_of(&self, node: NodeId) -> u64 {
        self.times.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// Bytes that were copied out, as one buffer; can be taken once.
    ///
    /// # Errors
    /// Why there are none; `Invalid` the second time.
    pub fn take_bytes(&mut self, node: NodeId) -> Result<Abd, OpError> {
        self.outcome(node)?;
        match std::mem::replace(&mut self.outcomes[node.0 as usize], Err(OpError::Invalid)) {
            Ok(Outcome::Copied { parts, bytes }) => {
                let all = Abd::join(parts);
                Ok(all.slice(0..bytes))
            }
            _ => Err(OpError::Invalid),
        }
    }
}
