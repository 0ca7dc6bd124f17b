//! Claiming: what a log needs of the space that no space map knows (OpenZFS: `zil_claim`). Of the log of an encrypted dataset it takes no key: what is
//! looked at here is plain.

use crate::chain::{End, Limits, Visit, has_log, walk};
use crate::record::shared_blocks;
use dmu::{BlockError, BlockIo};
use ondisk::zil::{LrCommon, LrWrite, TX_CI, TxType};
use ondisk::{BlockPtr, Bookmark, ByteOrder, ObjectId, ObjsetId, Txg, ZilHeader};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Txgs that a crash can have lost, at most: a block that claims to be younger belongs to no log. Pools that are frozen for tests go on
/// for long, others lose three, or as many as passed while nothing was written.
pub const LOST_TXGS_MAX: u64 = 1_000_000;

/// Result of claiming a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Header that the log has from the first txg on.
    pub header: ZilHeader,
    /// Blocks that are the log's own from then on, as [`crate::IntentLog::blocks`] of that header.
    pub blocks: Vec<BlockPtr>,
    /// Newest block of the log: no txg up to this one may look like the future when the log is replayed.
    pub newest: Txg,
    /// Description of what ended the log before its end; None when nothing did.
    pub cut: Option<String>,
    /// True when a device failed: the log's end is not known.
    pub is_unreadable: bool,
}

/// Claimer of one log.
struct Claimer<'a> {
    io: &'a dyn BlockIo,
    objset: u64,
    limits: Limits,
    blocks: Vec<BlockPtr>,
    newest: Txg,
    written: BTreeSet<[u64; 2]>,
    cut: Option<String>,
    is_unreadable: bool,
    take: &'a mut dyn FnMut(&BlockPtr) -> Result<(), BlockError>,
}

/// Claims the log of the object set with this number, by `take` block for block, in the first txg after `synced`. Of one that was claimed
/// by an earlier import nothing is taken. The data of a write must be readable, or the log ends before it: nobody was ever told that
/// such a write is safe.
pub fn claim(
    io: &dyn BlockIo,
    header: &ZilHeader,
    objset: u64,
    synced: Txg,
    take: &mut dyn FnMut(&BlockPtr) -> Result<(), BlockError>,
) -> Claim {
    let limits = Limits::of(header, synced);
    let (blocks, written) = (Vec::new(), BTreeSet::new());
    let mut claimer = Claimer { io, objset, limits, blocks, newest: synced, written, cut: None, is_unreadable: false, take };
    let walked = walk(io, header, objset, synced, &mut claimer);
    let Claimer { blocks, newest, mut cut, is_unreadable, .. } = claimer;
    if walked.end == End::Malformed {
        cut = Some(format!("block {} has a record of a wrong length or number", walked.last_block));
    }
    let mut header = header.clone();
    if !limits.is_claimed && has_log(&header, objset) {
        header.zh_claim_txg = limits.first_txg;
        (header.zh_claim_blk_seq, header.zh_claim_lr_seq) = (walked.last_block, walked.last_record);
        header.zh_flags |= ZilHeader::CLAIM_LR_SEQ_VALID;
        if walked.records > 0 || walked.blocks > 1 {
            header.zh_flags |= ZilHeader::REPLAY_NEEDED;
        }
    }
    Claim { header, blocks, newest, cut, is_unreadable: is_unreadable || walked.end == End::Unreadable }
}

impl Claimer<'_> {
    /// Takes a block's space, unless the space maps have it; ends the log where that cannot be.
    fn take(&mut self, bp: &BlockPtr, what: &str) -> ControlFlow<()> {
        let born = bp.birth().0;
        if self.limits.is_claimed || born < self.limits.first_txg {
            self.newest = self.newest.max(Txg(born.min(self.limits.first_txg.saturating_add(LOST_TXGS_MAX))));
            return ControlFlow::Continue(());
        }
        if born - self.limits.first_txg > LOST_TXGS_MAX {
            self.cut = Some(format!("{what} is of txg {born}, which never was"));
            return ControlFlow::Break(());
        }
        match (self.take)(bp) {
            Ok(()) => {
                self.newest = self.newest.max(Txg(born));
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.cut = Some(format!("the place of {what} cannot be had: {error}"));
                ControlFlow::Break(())
            }
        }
    }
}

impl Claimer<'_> {
    /// Adds a reference to each block that a record shares, so that it is there when the record is replayed, whatever else is; they go with the log
    /// (OpenZFS: `zil_claim_clone_range`). Blocks that were not on disk end the log: nobody has them.
    fn share(&mut self, common: &LrCommon, record: &[u8], order: ByteOrder) -> ControlFlow<()> {
        if self.limits.is_claimed {
            self.blocks.extend(shared_blocks(record, order).into_iter().flatten());
            return ControlFlow::Continue(());
        }
        let (Ok(shared), Some(clones)) = (shared_blocks(record, order), self.io.clones()) else {
            self.cut = Some(format!("record {} (TX_CLONE_RANGE) is damaged, or blocks cannot be shared here", common.lrc_seq));
            return ControlFlow::Break(());
        };
        let shared: Vec<BlockPtr> = shared.collect();
        if shared.iter().any(|bp| bp.birth().0 >= self.limits.first_txg) {
            self.cut = Some(format!("record {} (TX_CLONE_RANGE) shares blocks of a txg that was lost", common.lrc_seq));
            return ControlFlow::Break(());
        }
        shared.iter().for_each(|bp| clones.add(Txg(self.limits.first_txg), bp));
        self.blocks.extend(shared);
        ControlFlow::Continue(())
    }
}

impl Visit for Claimer<'_> {
    fn block(&mut self, bp: &BlockPtr) -> ControlFlow<()> {
        self.take(bp, "a block of the log")?;
        self.blocks.push(*bp);
        ControlFlow::Continue(())
    }

    fn record(&mut self, common: &LrCommon, record: &[u8], order: ByteOrder, _: bool) -> ControlFlow<()> {
        match TxType(common.lrc_txtype & !TX_CI) {
            TxType::WRITE => {}
            TxType::CLONE_RANGE => return self.share(common, record, order),
            _ => return ControlFlow::Continue(()),
        }
        let Ok(write) = LrWrite::decode_order(record, order) else {
            self.cut = Some(format!("record {} (TX_WRITE) is too short", common.lrc_seq));
            return ControlFlow::Break(());
        };
        let bp = write.lr_blkptr;
        let is_own = !bp.is_hole() && !bp.is_embedded() && bp.birth().0 >= self.limits.first_txg;
        if !is_own || !self.written.insert([bp.0[0], bp.0[1]]) {
            return ControlFlow::Continue(());
        }
        if !self.limits.is_claimed {
            let at = Bookmark { objset: ObjsetId(self.objset), object: ObjectId(write.lr_foid), ..Bookmark::default() };
            match self.io.read_log(&bp, &at) {
                Ok(_) => {}
                Err(BlockError::Checksum | BlockError::Corrupt) => return ControlFlow::Break(()),
                Err(_) => {
                    self.is_unreadable = true;
                    return ControlFlow::Break(());
                }
            }
        }
        self.take(&bp, "the data of a write")?;
        self.blocks.push(bp);
        ControlFlow::Continue(())
    }
}
