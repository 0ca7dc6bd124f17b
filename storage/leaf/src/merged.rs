//! Neighbouring I/Os of one device as one request: their bytes gathered, its reply given out in the pieces.
//!
//! A merged request that fails is issued again in its pieces, so that one bad sector costs only the block that it belongs to; one that
//! took too long is not.

use abd::{Abd, AbdPart};
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp, DeviceReply, DeviceThen, IoPriority};
use exec::{Exec, TaskClass};
use std::sync::Arc;

/// A piece of a merged request: where it is, what it carries, and who waits for it.
struct Piece {
    offset: u64,
    /// Bytes of a write.
    data: Option<Abd>,
    /// True when a part before this piece belongs to nobody.
    gap: bool,
    parts: usize,
    then: DeviceThen,
    priority: IoPriority,
}

/// One request that serves all of `ios`, which are reads or writes, all of one kind, sorted by offset and without overlap; the bytes
/// between two reads are read and thrown away, writes touch each other. None when there is nothing to serve.
pub(crate) fn join(exec: &Exec, device: &Arc<dyn BlockDevice>, mut ios: Vec<DeviceIo>) -> Option<DeviceIo> {
    if ios.len() < 2 {
        return ios.pop();
    }
    let start = ios.first()?.offset;
    let (mut pieces, mut writes, mut reads) = (Vec::with_capacity(ios.len()), Vec::new(), Vec::new());
    let mut end = start;
    for io in ios {
        let bytes = io.op.length_bytes();
        let DeviceIo { op, offset, then, priority } = io;
        let between = usize::try_from(offset.saturating_sub(end)).unwrap_or(0);
        let gap = between > 0 && matches!(op, DeviceOp::Read(_));
        let (data, parts) = match op {
            DeviceOp::Write(data) => {
                writes.push(data.clone());
                (Some(data), 0)
            }
            DeviceOp::Read(parts) => {
                reads.extend(gap.then(|| AbdPart::scratch(between)));
                let count = parts.len();
                reads.extend(parts);
                (None, count)
            }
            DeviceOp::Flush | DeviceOp::Trim { .. } => (None, 0),
        };
        pieces.push(Piece { offset, data, gap, parts, then, priority });
        end = offset + bytes;
    }
    let op = if writes.is_empty() { DeviceOp::Read(reads) } else { DeviceOp::Write(Abd::gang(&writes)) };
    let (exec, again) = (exec.clone(), device.clone());
    // Whoever waits for one of them waits for all.
    let priority = pieces.iter().map(|piece| piece.priority).max().unwrap_or_default();
    Some(DeviceIo::new(op, start, move |reply| give_out(&exec, again, pieces, reply)).with_priority(priority))
}

fn give_out(exec: &Exec, device: Arc<dyn BlockDevice>, pieces: Vec<Piece>, reply: DeviceReply) {
    let DeviceReply { outcome, parts } = reply;
    let mut parts = parts.into_iter();
    let pieces: Vec<(Piece, Vec<AbdPart>)> = pieces
        .into_iter()
        .map(|piece| {
            if piece.gap {
                parts.next();
            }
            let mine = parts.by_ref().take(piece.parts).collect();
            (piece, mine)
        })
        .collect();
    // Given up, because the device hangs: the pieces would hang too.
    if outcome.is_ok() || outcome == Err(DeviceError::TimedOut) {
        pieces.into_iter().for_each(|(piece, parts)| (piece.then)(DeviceReply { outcome, parts }));
        return;
    }
    // On a thread of its own choice: a device's completion thread may not be able to submit.
    let job = move || {
        for (piece, parts) in pieces {
            let op = piece.data.map_or_else(|| DeviceOp::Read(parts), DeviceOp::Write);
            device.submit(DeviceIo { op, offset: piece.offset, then: piece.then, priority: piece.priority });
        }
    };
    exec.spawn(TaskClass::Interrupt, Box::new(job));
}
