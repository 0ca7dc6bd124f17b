//! Transactions of clients: everything is looked at and copied first; then the operations are declared, and done from the first to the last.

use crate::context::Options;
use crate::errors::{errno_of, fid};
use crate::memory::Memories;
use abd::Abd;
use osd::{Change, Commit, Device, Loan, NewObject, Object, OsdError, Running, Transaction};
use osd_client::{Fid, Operation, Piece};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the longest name of an extended attribute (Linux: `XATTR_NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// Number of parts of a vector that are written from where they are, at most: so many go into one request of a device.
const PARTS_MAX: usize = 256;

/// Bytes that are to be written, each run with its offset.
enum Bytes {
    /// Copies of what was in the client's memory.
    Lent(Vec<Loan>),
    /// The memory itself, or a copy of what was in the frame.
    There(Vec<(u64, Abd)>),
}

/// Operation that is ready to be done.
struct Step<'a> {
    object: Arc<Object>,
    operation: &'a Operation,
    /// Ranges that it writes, and what.
    ranges: Vec<Range<u64>>,
    bytes: Bytes,
}

/// Ranges of an object in pieces, those that follow each other as one.
fn ranges(pieces: &[Piece]) -> Result<Vec<Range<u64>>, Errno> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        let end = piece.end().ok_or(Errno::INVAL)?;
        match found.last_mut().filter(|last| last.end == piece.offset) {
            Some(last) => last.end = end,
            None => found.push(piece.offset..end),
        }
    }
    Ok(found)
}

/// Buffers with copies of pieces.
fn copied(memories: &Memories, object: &Arc<Object>, pieces: &[Piece]) -> Result<Bytes, Errno> {
    let wanted = pieces.iter().map(|piece| piece.end().map(|end| piece.offset..end).ok_or(Errno::INVAL)).collect::<Result<Vec<_>, _>>()?;
    let mut loans = object.lend(&wanted).map_err(errno_of)?;
    for (loan, piece) in loans.iter_mut().zip(pieces) {
        memories.fetch(&piece.place, loan)?;
    }
    Ok(Bytes::Lent(loans))
}

/// Pieces, those that follow each other in the object and in memory as one.
fn joined(pieces: &[Piece]) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let follows = |last: &Piece| {
            let (own, next) = (&last.place, &piece.place);
            last.end() == Some(piece.offset) && own.memory == next.memory && own.offset + own.bytes == next.offset
        };
        match found.last_mut().filter(|last| follows(last)) {
            Some(last) => last.place.bytes += piece.place.bytes,
            None => found.push(*piece),
        }
    }
    found
}

/// Pieces themselves, those that follow each other in the object as one; None unless all of them may be written from where they are.
fn in_place(memories: &Memories, object: &Arc<Object>, pieces: &[Piece]) -> Result<Option<Bytes>, Errno> {
    let pieces = joined(pieces);
    if pieces.len() > PARTS_MAX {
        return Ok(None);
    }
    let mut runs: Vec<(u64, u64, Vec<Abd>)> = Vec::new();
    for piece in &pieces {
        let end = piece.end().ok_or(Errno::INVAL)?;
        let Some(pages) = memories.pages(piece)? else { return Ok(None) };
        match runs.last_mut().filter(|run| run.1 == piece.offset) {
            Some(run) => {
                run.1 = end;
                run.2.push(pages);
            }
            None => runs.push((piece.offset, end, vec![pages])),
        }
    }
    object.plan(runs.iter().map(|run| run.1).max().unwrap_or(0)).map_err(errno_of)?;
    Ok(Some(Bytes::There(runs.into_iter().map(|(offset, _, parts)| (offset, Abd::gang(&parts))).collect())))
}

/// True for what an extended attribute may be called.
fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0) && std::str::from_utf8(name).is_ok()
}

impl<'a> Step<'a> {
    fn prepare(device: &Arc<Device>, memories: &Memories, object: Fid, operation: &'a Operation) -> Result<Step<'a>, Errno> {
        let object = device.object(fid(object)).map_err(errno_of)?;
        let (ranges, bytes) = match operation {
            Operation::Write(pieces) => {
                let bytes = match in_place(memories, &object, pieces)? {
                    Some(bytes) => bytes,
                    None => copied(memories, &object, pieces)?,
                };
                (ranges(pieces)?, bytes)
            }
            Operation::Put { offset, bytes } => {
                let end = offset.checked_add(bytes.len() as u64).filter(|end| end > offset).ok_or(Errno::INVAL)?;
                object.plan(end).map_err(errno_of)?;
                (std::iter::once(*offset..end).collect(), Bytes::There(vec![(*offset, Abd::from_slice(bytes))]))
            }
            Operation::Punch { start, end } if start >= end => return Err(Errno::INVAL),
            Operation::SetXattr { name, .. } | Operation::RemoveXattr { name } if !is_name(name) => return Err(Errno::INVAL),
            _ => (Vec::new(), Bytes::There(Vec::new())),
        };
        Ok(Step { object, operation, ranges, bytes })
    }

    fn declare(&self, transaction: Transaction) -> Transaction {
        let object = &self.object;
        match self.operation {
            Operation::Create { .. } => transaction.create(object),
            Operation::Destroy => transaction.destroy(object),
            Operation::Write(_) | Operation::Put { .. } => {
                self.ranges.iter().fold(transaction, |transaction, range| transaction.write(object, range.clone()))
            }
            Operation::Punch { start, end } => transaction.punch(object, *start..*end),
            Operation::Change(_) => transaction.attributes(object),
            Operation::SetXattr { value, .. } => transaction.xattr(object, value.len()),
            Operation::RemoveXattr { .. } => transaction.xattr(object, 0),
            Operation::Insert { .. } | Operation::Delete { .. } => transaction.index(object),
        }
    }

    fn perform(self, running: &Running) -> Result<(), OsdError> {
        let object = &self.object;
        match self.operation {
            Operation::Create { mode, uid, gid, is_index } => {
                running.create(object, NewObject { mode: *mode, uid: *uid, gid: *gid, is_index: *is_index })
            }
            Operation::Destroy => running.destroy(object),
            Operation::Write(_) | Operation::Put { .. } => match self.bytes {
                Bytes::Lent(loans) => running.commit(object, loans),
                Bytes::There(runs) => runs.iter().try_for_each(|(offset, data)| running.write(object, *offset, data)),
            },
            Operation::Punch { start, end } => running.punch(object, &(*start..*end)),
            Operation::Change(wanted) => {
                let change = Change { mode: wanted.mode, uid: wanted.uid, gid: wanted.gid, times: wanted.times };
                running.set_attributes(object, &change)
            }
            Operation::SetXattr { name, value } => running.set_xattr(object, name, Some(value)),
            Operation::RemoveXattr { name } => running.set_xattr(object, name, None),
            Operation::Insert { key, record } => running.insert(object, key, record),
            Operation::Delete { key } => running.delete(object, key),
        }
    }
}

/// Bytes of the blocks that writes touch, when all of them are records.
fn touched(operations: &[(Fid, Operation)], record: u64) -> u64 {
    let blocks = |offset: u64, end: u64| {
        let end = end.checked_next_multiple_of(record).unwrap_or(u64::MAX);
        end.saturating_sub(offset - offset % record)
    };
    let of_pieces = |pieces: &[Piece]| {
        let (mut sum, mut before) = (0u64, None);
        for piece in pieces {
            let end = piece.end().unwrap_or(u64::MAX);
            // One that begins in the block in which the last one ended does not count that again.
            let shared = if before == Some(piece.offset / record) { record } else { 0 };
            sum = sum.saturating_add(blocks(piece.offset, end).saturating_sub(shared));
            before = Some(end.saturating_sub(1) / record);
        }
        sum
    };
    let of_operation = |operation: &Operation| match operation {
        Operation::Write(pieces) => of_pieces(pieces),
        Operation::Put { offset, bytes } => blocks(*offset, offset.saturating_add(bytes.len() as u64)),
        _ => 0,
    };
    operations.iter().fold(0, |sum: u64, (_, operation)| sum.saturating_add(of_operation(operation)))
}

/// Bytes that operations write of shared memory.
///
/// # Errors
/// Those of the pieces; `TOOBIG` for more than there may be of them, or of the blocks that are touched, which have up to `record` bytes.
pub(crate) fn bytes(memories: &Memories, operations: &[(Fid, Operation)], record: u64, options: &Options) -> Result<u64, Errno> {
    let bytes_max = options.request_bytes_max;
    let mut sum = 0u64;
    for (_, operation) in operations {
        if let Operation::Write(pieces) = operation {
            sum += memories.check(pieces, bytes_max - sum)?;
        }
    }
    if touched(operations, record.max(1)) > options.touched_bytes_max { Err(Errno::TOOBIG) } else { Ok(sum) }
}

/// Performs operations as one transaction; the number of those that were done, and what kept the next one. `commit` is called in any case.
pub(crate) fn transact<'a>(
    device: &Arc<Device>,
    memories: &Memories,
    client: Option<u64>,
    operations: &'a [(Fid, Operation)],
    commit: Option<Commit>,
) -> (u32, Result<(), Errno>) {
    let prepare = |(object, operation): &'a (Fid, Operation)| Step::prepare(device, memories, *object, operation);
    let steps = match operations.iter().map(prepare).collect::<Result<Vec<Step<'a>>, Errno>>() {
        Ok(steps) => steps,
        Err(errno) => {
            commit.into_iter().for_each(|commit| commit(false));
            return (0, Err(errno));
        }
    };
    let begun = commit.into_iter().fold(device.begin(), Transaction::on_commit);
    let begun = client.into_iter().fold(begun, Transaction::spend);
    let running = match steps.iter().fold(begun, |transaction, step| step.declare(transaction)).start() {
        Ok(running) => running,
        Err(error) => return (0, Err(errno_of(error))),
    };
    let mut done = 0;
    let mut result = Ok(());
    for step in steps {
        result = step.perform(&running).map_err(errno_of);
        if result.is_err() {
            break;
        }
        done += 1;
    }
    running.stop();
    (done, result)
}
