//! Intent logs that OpenZFS left: what waits in them, and which of their blocks the space maps know.
//!
//! A log is a chain of blocks, each with the pointer of the next. Its end is always a block that was allocated and never written,
//! so a checksum that does not match is its ordinary end (OpenZFS: `zil_parse`). A block that was born after the last synced txg is in
//! no space map until an import claims it (OpenZFS: `zil_claim`).

use dmu::{BlockError, BlockIo};
use ondisk::zil::{LogRecords, LrWrite, TX_CI, TxType, ZIL_ZC_OBJSET, ZIL_ZC_SEQ};
use ondisk::{BlockId, BlockPtr, Bookmark, ByteOrder, Checksum, Level, ObjectId, ObjsetId, Txg, ZilChain, ZilHeader, ZioEck};
use std::collections::BTreeSet;

/// Level of log blocks in bookmarks (OpenZFS: `ZB_ZIL_LEVEL`, -2).
const LOG_LEVEL: Level = Level(u8::MAX - 1);

/// Contents of a dataset's intent log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentLog {
    /// Allocated blocks that belong to the log alone.
    pub blocks: Vec<BlockPtr>,
    /// True when the log has records that were not replayed, or may have: part of it could not be read.
    pub is_pending: bool,
}

/// One block of the chain, read.
struct LogBlock {
    next: BlockPtr,
    order: ByteOrder,
    /// Range of the records in the block, in bytes.
    records: std::ops::Range<usize>,
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

impl IntentLog {
    /// Reads the log of the object set with this number; `synced` is the last txg on disk when the pool was opened.
    pub fn read(io: &dyn BlockIo, header: &ZilHeader, objset: u64, synced: Txg) -> IntentLog {
        // A clone made of a snapshot may have the header of its origin, whose blocks are not its own.
        if header.zh_log.is_hole() || header.zh_log.checksum()[ZIL_ZC_OBJSET] != objset {
            return IntentLog::default();
        }
        let is_claimed = header.zh_claim_txg != 0;
        let scope = Scope {
            first_txg: if is_claimed { header.zh_claim_txg } else { synced.0.saturating_add(1) },
            is_claimed,
            replayed: header.zh_replay_seq,
            last_block: if is_claimed { header.zh_claim_blk_seq } else { u64::MAX },
            last_record: if is_claimed && header.zh_flags & ZilHeader::CLAIM_LR_SEQ_VALID != 0 { header.zh_claim_lr_seq } else { u64::MAX },
        };
        let (mut log, mut written) = (IntentLog::default(), BTreeSet::new());
        let (mut bp, mut last_record) = (header.zh_log, 0);
        while !bp.is_hole() && bp.checksum()[ZIL_ZC_SEQ] <= scope.last_block {
            if scope.is_allocated(&bp) {
                log.blocks.push(bp);
            }
            // The last claimed block was never written.
            if scope.is_claimed && last_record == scope.last_record && bp.checksum()[ZIL_ZC_SEQ] == scope.last_block {
                break;
            }
            let block = match read_block(io, &bp, objset) {
                Ok(block) => block,
                Err(unreadable) => {
                    log.is_pending |= unreadable;
                    break;
                }
            };
            match log.take_records(&block, &scope, &mut written) {
                Some(last) => last_record = last_record.max(last),
                None => break,
            }
            bp = block.next;
        }
        log
    }

    /// Looks at the records of one block; gives the number of the last, None where the log ends.
    fn take_records(&mut self, block: &LogBlock, scope: &Scope, written: &mut BTreeSet<[u64; 2]>) -> Option<u64> {
        let mut records = LogRecords::new(block.bytes.get(block.records.clone())?, block.order);
        let mut last = 0;
        for (common, record) in records.by_ref() {
            if common.lrc_seq > scope.last_record {
                return None;
            }
            last = common.lrc_seq;
            self.is_pending |= common.lrc_txg >= scope.first_txg && common.lrc_seq > scope.replayed;
            if !scope.is_claimed || common.lrc_txtype & !TX_CI != TxType::WRITE.0 {
                continue;
            }
            // What an import claimed with the log is the log's own.
            let Ok(write) = LrWrite::decode_order(record, block.order) else { return None };
            let bp = write.lr_blkptr;
            let own = !bp.is_hole() && !bp.is_embedded() && bp.birth().0 >= scope.first_txg;
            if own && written.insert([bp.0[0], bp.0[1]]) {
                self.blocks.push(bp);
            }
        }
        records.remaining().is_empty().then_some(last)
    }
}

/// Limits of the records of a log that count.
struct Scope {
    /// Records of this txg and later ones are to be replayed.
    first_txg: u64,
    /// An import put the log's blocks into the space maps.
    is_claimed: bool,
    /// Records up to this one were replayed.
    replayed: u64,
    last_block: u64,
    last_record: u64,
}

impl Scope {
    fn is_allocated(&self, bp: &BlockPtr) -> bool {
        self.is_claimed || bp.birth().0 < self.first_txg
    }
}

/// One block of the chain. An error says whether nobody knows what it held: a block that does not verify was never written.
fn read_block(io: &dyn BlockIo, bp: &BlockPtr, objset: u64) -> Result<LogBlock, bool> {
    let is_log_kind = matches!(bp.checksum_kind(), Checksum::ZILOG | Checksum::ZILOG2);
    if !is_log_kind || bp.is_gang() || bp.is_embedded() || bp.lsize() != bp.psize() {
        return Err(false);
    }
    let block = BlockId(bp.checksum()[ZIL_ZC_SEQ]);
    let at = Bookmark { objset: ObjsetId(objset), object: ObjectId(0), level: LOG_LEVEL, block };
    match io.read_log(bp, &at) {
        Ok(bytes) => LogBlock::decode(bp, bytes.to_vec()).ok_or(false),
        Err(BlockError::Checksum | BlockError::Corrupt) => Err(false),
        Err(_) => Err(true),
    }
}
