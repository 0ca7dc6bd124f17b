//! A program on the link: an op graph over numbered buffers and stores, with the buffers that it needs and those that are free again.
//!
//! Buffers are made by the first program that names them, and their release travels with a later one, so neither is a round trip.
//! The source bytes of copies are the frame's payload, in the order of their operations.

use crate::bytes::{Decoder, Encoder, Malformed};
use dpusm::{Compress, DATA_COLUMNS_MAX, PARITY_MAX, StoreKind};
use ondisk::{ByteOrder, Checksum, Compression};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A buffer of the session: a memory range of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef {
    /// Number of the buffer: never used for another one.
    pub number: u64,
    /// Length of the buffer in bytes.
    pub bytes: u64,
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewRef {
    /// The buffer's number.
    pub buffer: u64,
    /// Offset of the part in the buffer, in bytes.
    pub offset: u64,
    /// Length of the part in bytes.
    pub bytes: u64,
}

/// Bytes that an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandRef {
    /// Bytes of a buffer.
    View(ViewRef),
    /// Bytes that the compression of this number made, with its padding.
    Result(u32),
    /// Padding that the compression of this number made.
    Padding(u32),
}

/// A store to open: files and disks of the target, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStore {
    /// Number of the store from now on.
    pub number: u64,
    /// File or disk.
    pub kind: StoreKind,
    /// Path of the store on the target.
    pub path: PathBuf,
}

/// An operation: [`dpusm::Op`] with numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireOp {
    /// Memory Write: the next `target.bytes` bytes of the payload.
    CopyIn {
        /// Bytes to write to.
        target: ViewRef,
    },
    /// Memory Read: into the completion's payload.
    CopyOut {
        /// Bytes to read.
        source: OperandRef,
    },
    /// Zeros into memory.
    ZeroFill {
        /// Bytes to write to.
        target: OperandRef,
    },
    /// Are all bytes zero?
    ZeroTest {
        /// Bytes to look at.
        source: OperandRef,
    },
    /// Compression.
    Compress {
        /// Bytes of the block.
        source: ViewRef,
        /// Bytes to write to.
        target: ViewRef,
        /// Way in which it is compressed.
        how: Compress,
    },
    /// Decompression.
    Decompress {
        /// The stored bytes.
        source: ViewRef,
        /// Bytes to write to.
        target: ViewRef,
        /// Compression algorithm.
        kind: Compression,
    },
    /// A checksum.
    Checksum {
        /// Bytes to sum up.
        source: OperandRef,
        /// Checksum algorithm.
        kind: Checksum,
        /// Byte order in which the bytes are read as words.
        order: ByteOrder,
    },
    /// The parity columns of a row.
    RaidGenerate {
        /// Parity columns.
        parity: Vec<ViewRef>,
        /// Data columns.
        data: Vec<ViewRef>,
    },
    /// Missing columns of a row.
    RaidReconstruct {
        /// Parity columns.
        parity: Vec<ViewRef>,
        /// Data columns.
        data: Vec<ViewRef>,
        /// Indices of the columns that are missing, parity first.
        targets: Vec<u32>,
    },
    /// Do the two differ?
    Compare {
        /// One of the two.
        left: ViewRef,
        /// The other one.
        right: ViewRef,
    },
    /// A write to a store.
    Store {
        /// Bytes to read.
        source: OperandRef,
        /// The store's number.
        store: u64,
        /// Offset in the store, in bytes.
        offset: u64,
    },
    /// Flush of a store: what was written to it becomes durable.
    Flush {
        /// The store's number.
        store: u64,
    },
    /// A read of a store.
    Load {
        /// Bytes to write to.
        target: ViewRef,
        /// The store's number.
        store: u64,
        /// Offset in the store, in bytes.
        offset: u64,
    },
}

/// Contents of an *Execute*, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireProgram {
    /// Buffers that nothing names any more.
    pub frees: Vec<u64>,
    /// Stores that nothing names any more.
    pub closes: Vec<u64>,
    /// Stores to open.
    pub opens: Vec<OpenStore>,
    /// Every buffer that the operations name; those that are not there yet are made.
    pub buffers: Vec<BufferRef>,
    /// The operations.
    pub ops: Vec<WireOp>,
}

fn put_view(to: &mut Encoder, view: &ViewRef) {
    [view.buffer, view.offset, view.bytes].into_iter().for_each(|number| to.number(number));
}

fn view(from: &mut Decoder<'_>) -> Result<ViewRef, Malformed> {
    Ok(ViewRef { buffer: from.number()?, offset: from.number()?, bytes: from.number()? })
}

fn put_operand(to: &mut Encoder, operand: &OperandRef) {
    match operand {
        OperandRef::View(view) => {
            to.byte(0);
            put_view(to, view);
        }
        OperandRef::Result(node) => {
            to.byte(1);
            to.number(u64::from(*node));
        }
        OperandRef::Padding(node) => {
            to.byte(2);
            to.number(u64::from(*node));
        }
    }
}

fn operand(from: &mut Decoder<'_>) -> Result<OperandRef, Malformed> {
    Ok(match from.byte()? {
        0 => OperandRef::View(view(from)?),
        1 => OperandRef::Result(from.small()?),
        2 => OperandRef::Padding(from.small()?),
        tag => return Err(Malformed::Tag(tag)),
    })
}

fn put_row(to: &mut Encoder, parity: &[ViewRef], data: &[ViewRef]) {
    to.list(parity, put_view);
    to.list(data, put_view);
}

fn row(from: &mut Decoder<'_>) -> Result<(Vec<ViewRef>, Vec<ViewRef>), Malformed> {
    let (parity, data) = (from.list(view)?, from.list(view)?);
    if parity.len() > PARITY_MAX || data.len() > DATA_COLUMNS_MAX {
        return Err(Malformed::Number);
    }
    Ok((parity, data))
}

fn put_order(to: &mut Encoder, order: ByteOrder) {
    to.byte(u8::from(!order.is_little()));
}

fn put_op(to: &mut Encoder, op: &WireOp) {
    to.byte(tag(op));
    match op {
        WireOp::CopyIn { target } => put_view(to, target),
        WireOp::CopyOut { source } | WireOp::ZeroTest { source } => put_operand(to, source),
        WireOp::ZeroFill { target } => put_operand(to, target),
        WireOp::Compress { source, target, how } => {
            put_view(to, source);
            put_view(to, target);
            to.byte(how.kind.0);
            to.byte(how.level);
            to.number(how.limit_bytes as u64);
            to.number(how.round_to_bytes as u64);
        }
        WireOp::Decompress { source, target, kind } => {
            put_view(to, source);
            put_view(to, target);
            to.byte(kind.0);
        }
        WireOp::Checksum { source, kind, order } => {
            put_operand(to, source);
            to.byte(kind.0);
            put_order(to, *order);
        }
        WireOp::RaidGenerate { parity, data } => put_row(to, parity, data),
        WireOp::RaidReconstruct { parity, data, targets } => {
            put_row(to, parity, data);
            to.list(targets, |to, target| to.number(u64::from(*target)));
        }
        WireOp::Compare { left, right } => {
            put_view(to, left);
            put_view(to, right);
        }
        WireOp::Store { source, store, offset } => {
            put_operand(to, source);
            to.number(*store);
            to.number(*offset);
        }
        WireOp::Flush { store } => to.number(*store),
        WireOp::Load { target, store, offset } => {
            put_view(to, target);
            to.number(*store);
            to.number(*offset);
        }
    }
}

/// The number of an operation; bits 1 and 0 say which way bytes go, as in an NVMe opcode (1: to the target, 2: to the host).
fn tag(op: &WireOp) -> u8 {
    match op {
        WireOp::CopyIn { .. } => 0x81,
        WireOp::CopyOut { .. } => 0x82,
        WireOp::ZeroFill { .. } => 0x84,
        WireOp::ZeroTest { .. } => 0x88,
        WireOp::Compress { .. } => 0x8C,
        WireOp::Decompress { .. } => 0x90,
        WireOp::Checksum { .. } => 0x94,
        WireOp::RaidGenerate { .. } => 0x98,
        WireOp::RaidReconstruct { .. } => 0x9C,
        WireOp::Compare { .. } => 0xA0,
        WireOp::Store { .. } => 0xA4,
        WireOp::Flush { .. } => 0xA8,
        WireOp::Load { .. } => 0xAC,
    }
}

fn op(from: &mut Decoder<'_>) -> Result<WireOp, Malformed> {
    Ok(match from.byte()? {
        0x81 => WireOp::CopyIn { target: view(from)? },
        0x82 => WireOp::CopyOut { source: operand(from)? },
        0x84 => WireOp::ZeroFill { target: operand(from)? },
        0x88 => WireOp::ZeroTest { source: operand(from)? },
        0x8C => {
            let (source, target) = (view(from)?, view(from)?);
            let (kind, level) = (Compression(from.byte()?), from.byte()?);
            WireOp::Compress { source, target, how: Compress { kind, level, limit_bytes: from.small()?, round_to_bytes: from.small()? } }
        }
        0x90 => WireOp::Decompress { source: view(from)?, target: view(from)?, kind: Compression(from.byte()?) },
        0x94 => WireOp::Checksum { source: operand(from)?, kind: Checksum(from.byte()?), order: ByteOrder::from_little(!from.flag()?) },
        0x98 => {
            let (parity, data) = row(from)?;
            WireOp::RaidGenerate { parity, data }
        }
        0x9C => {
            let (parity, data) = row(from)?;
            WireOp::RaidReconstruct { parity, data, targets: from.list(|from| from.small())? }
        }
        0xA0 => WireOp::Compare { left: view(from)?, right: view(from)? },
        0xA4 => WireOp::Store { source: operand(from)?, store: from.number()?, offset: from.number()? },
        0xA8 => WireOp::Flush { store: from.number()? },
        0xAC => WireOp::Load { target: view(from)?, store: from.number()?, offset: from.number()? },
        tag => return Err(Malformed::Tag(tag)),
    })
}

impl WireProgram {
    /// The message of an *Execute*.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.list(&self.frees, |to, number| to.number(*number));
        to.list(&self.closes, |to, number| to.number(*number));
        to.list(&self.opens, |to, open| {
            to.number(open.number);
            to.byte(u8::from(open.kind == StoreKind::Disk));
            to.text(open.path.as_os_str().as_bytes());
        });
        to.list(&self.buffers, |to, buffer| {
            to.number(buffer.number);
            to.number(buffer.bytes);
        });
        to.list(&self.ops, put_op);
        to.done()
    }

    /// The program of a message.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn decode(message: &[u8]) -> Result<WireProgram, Malformed> {
        let mut from = Decoder::new(message);
        let program = WireProgram {
            frees: from.list(|from| from.number())?,
            closes: from.list(|from| from.number())?,
            opens: from.list(|from| {
                let number = from.number()?;
                let kind = if from.flag()? { StoreKind::Disk } else { StoreKind::File };
                let path = PathBuf::from(std::ffi::OsString::from_vec(from.text()?.to_vec()));
                Ok(OpenStore { number, kind, path })
            })?,
            buffers: from.list(|from| Ok(BufferRef { number: from.number()?, bytes: from.number()? }))?,
            ops: from.list(op)?,
        };
        from.end()?;
        Ok(program)
    }
}
