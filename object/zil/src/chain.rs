//! The walk along a log's chain: which blocks and records count, and where it ends.

use dmu::{BlockError, BlockIo};
use ondisk::zil::{LogRecords, LrCommon, ZIL_ZC_OBJSET, ZIL_ZC_SEQ};
use ondisk::{
    BlockId, BlockPtr, Bookmark, ByteOrder, Checksum, Compression, Dva, Level, ObjectId, ObjectType, ObjsetId, Txg, ZilChain, ZilHeader,
    ZioEck,
};
use std::ops::{ControlFlow, Range};

/// Level of log blocks in bookmarks (OpenZFS: `ZB_ZIL_LEVEL`, -2).
const LOG_LEVEL: Level = Level(u8::MAX - 1);

/// Pointer of a log block of so many bytes at an address: `words` say which log it is of, and its number, in the place of a checksum.
pub(crate) fn log_pointer(dva: Dva, bytes: usize, words: [u64; 4], txg: Txg) -> BlockPtr {
    let mut bp = BlockPtr::HOLE;
    bp.set_dva(0, dva);
    bp.set_lsize(bytes);
    bp.set_psize(bytes);
    bp.set_compression(Compression::OFF);
    bp.set_checksum_kind(Checksum::ZILOG2);
    bp.set_object_type(ObjectType::INTENT_LOG);
    bp.set_little_endian(true);
    bp.set_birth(txg, txg);
    bp.set_checksum(words);
    bp
}

/// One block of the chain, read.
struct LogBlock {
    next: BlockPtr,
    order: ByteOrder,
    /// Range of the records in the block, in bytes.
    records: Range<usize>,
    bytes: Vec<u8>,
}

impl LogBlock {
    /// The chain link of a block that verified, None when it is not the one that `bp` was to be (OpenZFS: `zil_read_log_block`).
    fn decode(bp: &BlockPtr, bytes: Vec<u8>) -> Option<LogBlock> {
        let is_new = bp.checksum_kind() == Checksum::ZILOG2;
        let link_at = if is_new { 0 } else { bytes.len().checked_sub(ZilChain::SIZE)? };
        let link = bytes.get(link_at..)?;
        let orders = [ByteOrder::Little, ByteOrder::Big];
        let (order, link) = orders.into_iter().find_map(|order| {
            let link = ZilChain::decode_order(link, order).ok()?;
            (link.zc_eck.zec_magic == ZioEck::MAGIC).then_some((order, link))
        })?;
        let mut expected = bp.checksum();
        expected[ZIL_ZC_SEQ] = expected[ZIL_ZC_SEQ].wrapping_add(1);
        let used = usize::try_from(link.zc_nused).ok()?;
        let records = if is_new { ZilChain::SIZE..used } else { 0..used };
        let is_sound = link.zc_next_blk.checksum() == expected
            && records.start <= records.end
            && records.end <= if is_new { bytes.len() } else { link_at };
        is_sound.then_some(LogBlock { next: link.zc_next_blk, order, records, bytes })
    }
}

/// Limits of the blocks and records of a log that count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Records of this txg and later ones are to be replayed.
    pub first_txg: u64,
    /// An import put the log's blocks into the space maps.
    pub is_claimed: bool,
    /// Records up to this one were replayed.
    pub replayed: u64,
    last_block: u64,
    last_record: u64,
}

impl Limits {
    /// Limits of a log with this header; `synced` is the last txg on disk when the pool was opened.
    pub(crate) fn of(header: &ZilHeader, synced: Txg) -> Limits {
        let is_claimed = header.zh_claim_txg != 0;
        let has_last_record = is_claimed && header.zh_flags & ZilHeader::CLAIM_LR_SEQ_VALID != 0;
        Limits {
            first_txg: if is_claimed { header.zh_claim_txg } else { synced.0.saturating_add(1) },
            is_claimed,
            replayed: header.zh_replay_seq,
            last_block: if is_claimed { header.zh_claim_blk_seq } else { u64::MAX },
            last_record: if has_last_record { header.zh_claim_lr_seq } else { u64::MAX },
        }
    }

    /// True for a record that is to be replayed.
    pub(crate) fn wants(&self, common: &LrCommon) -> bool {
        common.lrc_txg >= self.first_txg && common.lrc_seq > self.replayed
    }

    /// True for a block that the space maps know.
    pub(crate) fn is_allocated(&self, bp: &BlockPtr) -> bool {
        self.is_claimed || bp.birth().0 < self.first_txg
    }
}

/// Looker at a log, who may end the walk.
pub trait Visit {
    /// A block of the chain, before it is read: it may never have been written.
    fn block(&mut self, bp: &BlockPtr) -> ControlFlow<()>;
    /// A record, whole, in the byte order of its writer. `is_wanted` says that it is to be replayed.
    fn record(&mut self, common: &LrCommon, record: &[u8], order: ByteOrder, is_wanted: bool) -> ControlFlow<()>;
}

/// Reason why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The log ends there: at a block that was never written, or at the last one that was claimed.
    Whole,
    /// The visitor ended it.
    Visitor,
    /// A block is what it should be, but a record in it has a wrong length or number.
    Malformed,
    /// A device failed: nobody knows what the block holds.
    Unreadable,
}

/// Extent of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Walked {
    /// Reason of the end.
    pub end: End,
    /// Number of blocks that the visitor let pass.
    pub blocks: u64,
    /// Number of the last of these blocks; 0 for none.
    pub last_block: u64,
    /// Number of records that the visitor let pass.
    pub records: u64,
    /// Number of the last of these records; 0 for none.
    pub last_record: u64,
}

/// True for a header with a log that belongs to this object set: a clone made of a snapshot may have that of its origin.
pub(crate) fn has_log(header: &ZilHeader, objset: u64) -> bool {
    !header.zh_log.is_hole() && header.zh_log.checksum()[ZIL_ZC_OBJSET] == objset
}

/// Walks the log of the object set with this number; `synced` is the last txg on disk when the pool was opened (OpenZFS: `zil_parse`).
pub fn walk(io: &dyn BlockIo, header: &ZilHeader, objset: u64, synced: Txg, visit: &mut dyn Visit) -> Walked {
    let limits = Limits::of(header, synced);
    let mut walked = Walked { end: End::Whole, blocks: 0, last_block: 0, records: 0, last_record: 0 };
    if !has_log(header, objset) {
        return walked;
    }
    let mut bp = header.zh_log;
    while !bp.is_hole() && bp.checksum()[ZIL_ZC_SEQ] <= limits.last_block {
        if visit.block(&bp).is_break() {
            walked.end = End::Visitor;
            return walked;
        }
        (walked.blocks, walked.last_block) = (walked.blocks + 1, bp.checksum()[ZIL_ZC_SEQ]);
        // The last claimed block was never written.
        if limits.is_claimed && walked.last_record == limits.last_record && walked.last_block == limits.last_block {
            return walked;
        }
        let block = match read_block(io, &bp, objset) {
            Ok(block) => block,
            Err(end) => {
                walked.end = end;
                return walked;
            }
        };
        if let Some(end) = walked.take_records(&block, &limits, visit) {
            walked.end = end;
            return walked;
        }
        bp = block.next;
    }
    walked
}

impl Walked {
    /// Shows the records of one block; the reason of the end, where the log ends in it.
    fn take_records(&mut self, block: &LogBlock, limits: &Limits, visit: &mut dyn Visit) -> Option<End> {
        let Some(used) = block.bytes.get(block.records.clone()) else { return Some(End::Malformed) };
        let mut records = LogRecords::new(used, block.order);
        for (common, record) in records.by_ref() {
            if common.lrc_seq > limits.last_record {
                return Some(End::Whole);
            }
            // Numbers rise over the chain: a replay that was cut short goes on by them.
            if common.lrc_seq <= self.last_record {
                return Some(End::Malformed);
            }
            if visit.record(&common, record, block.order, limits.wants(&common)).is_break() {
                return Some(End::Visitor);
            }
            (self.records, self.last_record) = (self.records + 1, common.lrc_seq);
        }
        if records.remaining().is_empty() { None } else { Some(End::Malformed) }
    }
}

/// One block of the chain, or why the walk ends there: a block that does not verify was never written.
fn read_block(io: &dyn BlockIo, bp: &BlockPtr, objset: u64) -> Result<LogBlock, End> {
    let is_log_kind = matches!(bp.checksum_kind(), Checksum::ZILOG | Checksum::ZILOG2);
    if !is_log_kind || bp.is_gang() || bp.is_embedded() || bp.lsize() != bp.psize() {
        return Err(End::Whole);
    }
    let block = BlockId(bp.checksum()[ZIL_ZC_SEQ]);
    let at = Bookmark { objset: ObjsetId(objset), object: ObjectId(0), level: LOG_LEVEL, block };
    match io.read_log(bp, &at) {
        Ok(bytes) => LogBlock::decode(bp, bytes.to_vec()).ok_or(End::Whole),
        Err(BlockError::Checksum | BlockError::Corrupt) => Err(End::Whole),
        Err(_) => Err(End::Unreadable),
    }
}
