//! Operations ready for the log: their bytes, or the pointers of their blocks, asked of whoever knows the objects.

use super::noted::Noted;
use crate::stats::{LogCounts, ZilEvent};
use crate::{Filled, LogSource, Payload};
use dmu::DmuError;
use ondisk::zil::{LrCommon, LrWrite, TX_CI, TxType};
use ondisk::{BlockPtr, ByteOrder, Field, Txg};

/// Body of a record.
#[derive(Debug)]
pub(super) enum Body {
    /// The record as it is.
    Record(Vec<u8>),
    /// Bytes of a write, which may be divided.
    Write(Vec<u8>),
}

/// Operation that can be written.
#[derive(Debug)]
pub(super) struct Ready {
    /// Txg of the operation.
    pub txg: Txg,
    pub body: Body,
    /// Record of a write, for its pieces; nothing of other operations.
    pub fixed: LrWrite,
}

impl Ready {
    /// Bytes of the record, about, as long as nobody knows how a write is divided.
    pub(super) fn bytes(&self) -> usize {
        match &self.body {
            Body::Record(record) => record.len(),
            Body::Write(data) => LrWrite::SIZE + data.len().next_multiple_of(8),
        }
    }
}

/// Bytes that an operation's record will have, about.
pub(super) fn expected_bytes(noted: &Noted) -> usize {
    let data = match &noted.itx.payload {
        Payload::Copied(range) => range.length as usize,
        Payload::None | Payload::Block(_) => 0,
    };
    noted.itx.record.len() + data.next_multiple_of(8)
}

/// Makes an operation ready; None when nothing of it is to be written. Blocks that it names, and that are to be stable with it, go to `blocks`.
///
/// # Errors
/// Those of reading, and [`DmuError::Invalid`] for what is no record.
pub(super) fn fill(
    noted: Noted,
    source: Option<&dyn LogSource>,
    (blocks, counts): (&mut Vec<BlockPtr>, &LogCounts),
) -> Result<Option<Ready>, DmuError> {
    let Noted { txg, itx, .. } = noted;
    let bytes = itx.record.len();
    if bytes < LrCommon::SIZE || !bytes.is_multiple_of(8) {
        return Err(DmuError::Invalid);
    }
    let record = |record: Vec<u8>| Ready { txg, body: Body::Record(record), fixed: LrWrite::ZERO };
    if itx.payload == Payload::None {
        let common = LrCommon::decode_order(&itx.record, ByteOrder::Little).map_err(|_| DmuError::Invalid)?;
        if TxType(common.lrc_txtype & !TX_CI) == TxType::WRITE {
            counts.add(ZilEvent::CopiedCount, 1);
            counts.add(ZilEvent::CopiedBytes, (bytes - LrWrite::SIZE.min(bytes)) as u64);
        }
        return Ok(Some(record(itx.record)));
    }
    let mut fixed = LrWrite::decode_order(&itx.record, ByteOrder::Little).map_err(|_| DmuError::Invalid)?;
    if let Payload::Copied(range) | Payload::Block(range) = &itx.payload {
        // Writes that went on from it made it longer since.
        fixed.lr_length = range.length;
    }
    match source.ok_or(DmuError::NotSupported)?.fill(&itx.payload, txg)? {
        Filled::Nothing => Ok(None),
        Filled::Bytes(data) => {
            counts.add(ZilEvent::NeedCopyCount, 1);
            counts.add(ZilEvent::NeedCopyBytes, data.len() as u64);
            Ok((!data.is_empty()).then_some(Ready { txg, body: Body::Write(data), fixed }))
        }
        Filled::Block(bp) => {
            counts.add(ZilEvent::IndirectCount, 1);
            counts.add(ZilEvent::IndirectBytes, fixed.lr_length);
            if !bp.is_hole() && !bp.is_embedded() {
                blocks.push(bp);
            }
            fixed.lr_blkptr = bp;
            fixed.lr_common.lrc_reclen = LrWrite::SIZE as u64;
            Ok(Some(record(fixed.encode().to_vec())))
        }
    }
}
