//! What whoever changes objects has in common, be it a file system or a volume: operations of writes, and the bytes and blocks that their records
//! get (OpenZFS: `zfs_log_write`, `zvol_log_write`; `zfs_get_data`, `zvol_get_data`).

use crate::{Filled, Payload, Range};
use dmu::{DmuError, Dnode};
use ondisk::{BlockPtr, ObjectId};

/// Write that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Bytes of the object that were written.
    pub range: std::ops::Range<u64>,
    /// Part of them that was written directly, in whole blocks; empty at the end of the others when none was.
    pub direct: std::ops::Range<u64>,
    /// Bytes of the object's blocks.
    pub block_size: u64,
}

impl Wrote {
    /// Hands out the parts that a log is to hear of ([`crate::Log::note_write`]), in the order of their bytes: one for each block that was written
    /// directly, one for what lies before and behind these. Their bytes are asked for when somebody wants them durable.
    pub fn each(&self, (object, generation): (ObjectId, u64), tell: &mut dyn FnMut(Payload)) {
        let mut note = |range: std::ops::Range<u64>, payload: fn(Range) -> Payload| {
            if range.start < range.end {
                tell(payload(Range { object, generation, offset: range.start, length: range.end - range.start }));
            }
        };
        note(self.range.start..self.direct.start, Payload::Copied);
        let mut at = self.direct.start;
        while at < self.direct.end {
            let end = at.saturating_add(self.block_size.max(1)).min(self.direct.end);
            note(at..end, Payload::Block);
            at = end;
        }
        note(self.direct.end..self.range.end, Payload::Copied);
    }
}

/// Bytes of a range of an object that has `size` bytes, zeros behind them; nothing when the range lies behind them. Nobody may change the range
/// meanwhile.
///
/// # Errors
/// Those of reading.
pub fn fill_bytes(dnode: &Dnode, range: &Range, size: u64) -> Result<Filled, DmuError> {
    if range.offset >= size {
        return Ok(Filled::Nothing);
    }
    let length = usize::try_from(range.length).map_err(|_| DmuError::Invalid)?;
    let have = (size - range.offset).min(range.length) as usize;
    let mut bytes = vec![0; length];
    dnode.read(range.offset, &mut bytes[..have])?;
    Ok(Filled::Bytes(bytes))
}

/// Bytes of the object's blocks that hold a range: nobody may change them during [`fill_block`].
///
/// # Errors
/// Those of the object.
pub fn blocks_around(dnode: &Dnode, range: &Range) -> Result<std::ops::Range<u64>, DmuError> {
    let block = (dnode.info()?.block_size as u64).max(1);
    let start = range.offset - range.offset % block;
    Ok(start..start.saturating_add(block).max(range.offset.saturating_add(range.length)))
}

/// Block of a direct write of a range of an object that has `size` bytes, if it is still there; else what is there now, as [`fill_bytes`].
///
/// # Errors
/// Those of the object, and of reading.
pub fn fill_block(dnode: &Dnode, range: &Range, size: u64) -> Result<Filled, DmuError> {
    if range.offset >= size {
        return Ok(Filled::Nothing);
    }
    let block = (dnode.info()?.block_size as u64).max(1);
    let start = range.offset - range.offset % block;
    let is_one_block = range.offset + range.length <= start + block;
    match dnode.unsynced_direct_block(range.offset).filter(|bp| is_one_block && can_be_named(bp)) {
        Some(bp) if bp.is_hole() => {
            let mut hole = BlockPtr::HOLE;
            hole.set_lsize(block as usize);
            Ok(Filled::Block(hole))
        }
        Some(bp) => Ok(Filled::Block(bp)),
        None => fill_bytes(dnode, range, size),
    }
}

/// True for blocks that a record can name: they are the object's alone, and lie in one piece.
fn can_be_named(bp: &BlockPtr) -> bool {
    !bp.is_embedded() && !bp.is_dedup() && !bp.is_gang()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, bytes of a durable write are in no record, or a block's record has those of its neighbour.
    #[test]
    fn operations_of_a_write_tile_it() {
        let told = |range: std::ops::Range<u64>, direct: std::ops::Range<u64>| {
            let mut told = Vec::new();
            Wrote { range, direct, block_size: 4096 }.each((ObjectId(1), 7), &mut |payload| {
                told.push(match payload {
                    Payload::Copied(range) => ('c', range.offset, range.length),
                    Payload::Block(range) => ('b', range.offset, range.length),
                    Payload::None => ('n', 0, 0),
                });
            });
            told
        };
        assert_eq!(told(100..300, 300..300), [('c', 100, 200)]);
        assert_eq!(told(4000..13_000, 4096..12_288), [('c', 4000, 96), ('b', 4096, 4096), ('b', 8192, 4096), ('c', 12_288, 712)]);
        assert_eq!(told(8192..12_288, 8192..12_288), [('b', 8192, 4096)]);
        assert!(told(5..5, 5..5).is_empty());
    }
}
