//! Requests and replies of the transmission phase: what a request may ask for, and how its outcome is said. No I/O.

use crate::export::{ExportError, Piece, Run, Shape};
use crate::outbox::Outbox;
use crate::proto::{
    ALLOCATION_ID, PAYLOAD_BYTES_MAX, REQUEST_BYTES, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, STATE_HOLE_ZERO, STRUCTURED_REPLY_MAGIC, chunk,
    command, command_flag, error, field,
};
use abd::Abd;
use std::ops::Range;

/// Runs of one answer about what is stored, at most; a client asks again from the end of the last one.
const RUNS_MAX: usize = 4096;

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    flags: u16,
    /// Number of the command.
    pub(crate) kind: u16,
    cookie: u64,
    /// First byte.
    pub(crate) at: u64,
    /// Length in bytes.
    pub(crate) bytes: u32,
}

impl Request {
    /// Reads a header; None where it is none.
    pub(crate) fn decode(header: &[u8; REQUEST_BYTES]) -> Option<Request> {
        (field(header, 0, 4) == u64::from(REQUEST_MAGIC)).then(|| Request {
            flags: field(header, 4, 2) as u16,
            kind: field(header, 6, 2) as u16,
            cookie: field(header, 8, 8),
            at: field(header, 16, 8),
            bytes: field(header, 24, 4) as u32,
        })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// True when what it changes is to be on stable storage before it is answered.
    pub(crate) fn is_durable(&self) -> bool {
        self.has(command_flag::FUA)
    }

    /// Bytes that it is about.
    pub(crate) fn range(&self) -> Range<u64> {
        self.at..self.at.saturating_add(u64::from(self.bytes))
    }

    /// Bytes of data that it brings or gets.
    pub(crate) fn payload_bytes(&self) -> u64 {
        if matches!(self.kind, command::READ | command::WRITE) { u64::from(self.bytes) } else { 0 }
    }

    fn changes(&self) -> bool {
        matches!(self.kind, command::WRITE | command::TRIM | command::WRITE_ZEROES)
    }

    /// Error for what goes beyond the end.
    fn beyond(&self) -> u32 {
        if matches!(self.kind, command::WRITE | command::WRITE_ZEROES) { error::NOSPC } else { error::INVAL }
    }

    /// Number of an error of the export.
    fn number(&self, why: ExportError) -> u32 {
        match why {
            ExportError::Io => error::IO,
            ExportError::NoSpace => error::NOSPC,
            ExportError::OutOfRange => self.beyond(),
            ExportError::ReadOnly => error::PERM,
            ExportError::Gone => error::SHUTDOWN,
        }
    }
}

/// Work that a request asks for, beside its range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read { is_whole: bool },
    Write(Abd),
    Trim,
    WriteZeroes { keeps_space: bool },
    Cache,
    Flush,
    Status { runs_max: usize },
}

/// Fruit of work that was done.
#[derive(Debug)]
pub(crate) enum Got {
    Nothing,
    Pieces(Vec<Piece>),
    Runs(Vec<Run>),
}

/// Request whose work has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) request: Request,
    pub(crate) result: Result<Got, ExportError>,
}

/// Terms of a connection: what was agreed upon before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// True when replies are structured.
    pub(crate) is_structured: bool,
    /// True when the client may ask for the status of blocks.
    pub(crate) has_status: bool,
}

impl Terms {
    /// Flags that a command may have; None for commands that there are not.
    fn flags(&self, kind: u16) -> Option<u16> {
        let more = match kind {
            command::READ if self.is_structured => command_flag::DF,
            command::READ | command::WRITE | command::FLUSH | command::TRIM | command::CACHE => 0,
            command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            command::BLOCK_STATUS if self.has_status => command_flag::REQ_ONE,
            _ => return None,
        };
        Some(command_flag::FUA | more)
    }

    /// Work of a request to an export of this shape, none for one about no bytes; `data` is what came with it.
    ///
    /// # Errors
    /// Number of the error that refuses it.
    pub(crate) fn plan(&self, request: &Request, data: Abd, shape: &Shape) -> Result<Option<Work>, u32> {
        let flags = self.flags(request.kind).ok_or(error::INVAL)?;
        if request.flags & !flags != 0 {
            return Err(error::INVAL);
        }
        if request.changes() && shape.is_read_only {
            return Err(error::PERM);
        }
        let end = request.at.checked_add(u64::from(request.bytes)).filter(|end| *end <= shape.bytes).ok_or_else(|| request.beyond())?;
        let (is_empty, is_large) = (request.bytes == 0, request.bytes > PAYLOAD_BYTES_MAX);
        let is_whole = !self.is_structured || request.has(command_flag::DF);
        let (keeps_space, block) = (request.has(command_flag::NO_HOLE), u64::from(shape.block_bytes.max(1)));
        // Whole blocks are let go; all else is written.
        let is_fast = !keeps_space && request.at.is_multiple_of(block) && end.is_multiple_of(block);
        Ok(Some(match request.kind {
            command::FLUSH if end > 0 => return Err(error::INVAL),
            command::FLUSH => Work::Flush,
            command::BLOCK_STATUS if is_empty => return Err(error::INVAL),
            _ if is_empty => return Ok(None),
            command::READ if is_large => return Err(if self.is_structured { error::OVERFLOW } else { error::INVAL }),
            command::READ => Work::Read { is_whole },
            command::WRITE => Work::Write(data),
            command::TRIM => Work::Trim,
            command::WRITE_ZEROES if request.has(command_flag::FAST_ZERO) && !is_fast => return Err(error::NOTSUP),
            command::WRITE_ZEROES => Work::WriteZeroes { keeps_space },
            command::CACHE => Work::Cache,
            _ => Work::Status { runs_max: if request.has(command_flag::REQ_ONE) { 1 } else { RUNS_MAX } },
        }))
    }

    /// Says how a request ended.
    pub(crate) fn answer(&self, finished: Finished, out: &mut Outbox) {
        let Finished { request, result } = finished;
        match result {
            Err(why) => self.fail(&request, request.number(why), out),
            Ok(Got::Nothing) => self.done(&request, out),
            Ok(Got::Pieces(pieces)) if self.is_structured && !request.has(command_flag::DF) => self.give(&request, pieces, out),
            Ok(Got::Pieces(pieces)) => self.give_whole(&request, pieces, out),
            Ok(Got::Runs(runs)) => self.give_runs(&request, &runs, out),
        }
    }

    /// Says that a request is done, without more.
    pub(crate) fn done(&self, request: &Request, out: &mut Outbox) {
        match self.is_structured {
            true => push_chunk(out, request, (chunk::NONE, true), &[], None),
            false => push_simple(out, request, 0, None),
        }
    }

    /// Says that a request failed.
    pub(crate) fn fail(&self, request: &Request, number: u32, out: &mut Outbox) {
        match self.is_structured {
            // Without a text.
            true => push_chunk(out, request, (chunk::ERROR, true), &[&number.to_be_bytes()[..], &[0; 2]].concat(), None),
            false => push_simple(out, request, number, None),
        }
    }

    /// Gives what was read, in one piece.
    fn give_whole(&self, request: &Request, pieces: Vec<Piece>, out: &mut Outbox) {
        let mut data = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Data(bytes) => data.push(bytes),
                Piece::Hole(bytes) => data.push(Abd::zeroed(bytes.min(u64::from(PAYLOAD_BYTES_MAX)) as usize)),
                Piece::Lost(_, why) => return self.fail(request, request.number(why), out),
            }
        }
        let data = Abd::gang(&data);
        if data.len() as u64 != u64::from(request.bytes) {
            // It shrank meanwhile.
            return self.fail(request, error::INVAL, out);
        }
        match self.is_structured {
            true => push_chunk(out, request, (chunk::OFFSET_DATA, true), &request.at.to_be_bytes(), Some(data)),
            false => push_simple(out, request, 0, Some(data)),
        }
    }

    /// Gives what was read, piece by piece.
    fn give(&self, request: &Request, pieces: Vec<Piece>, out: &mut Outbox) {
        if pieces.iter().map(Piece::bytes).sum::<u64>() != u64::from(request.bytes) {
            return self.fail(request, error::INVAL, out);
        }
        let mut at = request.at;
        let end = request.range().end;
        for piece in pieces.into_iter().filter(|piece| piece.bytes() > 0) {
            let (place, bytes) = (at.to_be_bytes(), piece.bytes());
            at += bytes;
            let is_last = at == end;
            match piece {
                Piece::Data(data) => push_chunk(out, request, (chunk::OFFSET_DATA, is_last), &place, Some(data)),
                Piece::Hole(_) => {
                    let hole = [&place[..], &(bytes as u32).to_be_bytes()].concat();
                    push_chunk(out, request, (chunk::OFFSET_HOLE, is_last), &hole, None);
                }
                Piece::Lost(_, why) => {
                    let lost = [&request.number(why).to_be_bytes()[..], &[0; 2], &place].concat();
                    push_chunk(out, request, (chunk::ERROR_OFFSET, is_last), &lost, None);
                }
            }
        }
    }

    /// Says what is stored.
    fn give_runs(&self, request: &Request, runs: &[Run], out: &mut Outbox) {
        let mut extents = ALLOCATION_ID.to_be_bytes().to_vec();
        let mut left = u64::from(request.bytes);
        for run in runs {
            let bytes = run.bytes.min(left);
            if bytes == 0 {
                break;
            }
            left -= bytes;
            let state = if run.is_stored { 0 } else { STATE_HOLE_ZERO };
            extents.extend([bytes as u32, state].map(u32::to_be_bytes).concat());
        }
        if left == u64::from(request.bytes) {
            return self.fail(request, error::INVAL, out);
        }
        push_chunk(out, request, (chunk::BLOCK_STATUS, true), &extents, None);
    }
}

fn push_simple(out: &mut Outbox, request: &Request, number: u32, data: Option<Abd>) {
    let head = [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &number.to_be_bytes(), &request.cookie.to_be_bytes()].concat();
    out.push(head, data);
}

/// Sends a chunk of a structured reply, the last one where `kind` says so: `fields`, then data.
fn push_chunk(out: &mut Outbox, request: &Request, kind: (u16, bool), fields: &[u8], data: Option<Abd>) {
    let flags = if kind.1 { chunk::DONE } else { 0 };
    let length = fields.len() + data.as_ref().map_or(0, Abd::len);
    let mut head = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    head.extend([flags, kind.0].map(u16::to_be_bytes).concat());
    head.extend(request.cookie.to_be_bytes());
    head.extend((length as u32).to_be_bytes());
    head.extend(fields);
    out.push(head, data);
}
