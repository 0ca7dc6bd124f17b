//! A log that is being written: its blocks from the oldest that is needed to the one that waits for the next records.

use super::pack::Packed;
use crate::chain::log_pointer;
use crate::stats::LogCounts;
use dmu::{BlockError, BlockIo, LogIo, LogOwner};
use exec::{Completion, completion};
use ondisk::zil::{ZIL_ZC_OBJSET, ZIL_ZC_SEQ};
use ondisk::{BlockPtr, Checksum, Field, ObjsetId, Txg, ZilChain, ZilHeader, ZioEck};
use std::collections::VecDeque;

/// One block of the chain.
#[derive(Clone, Debug)]
struct LiveBlock {
    bp: BlockPtr,
    is_separate: bool,
    /// Newest txg of the records in it.
    newest: Txg,
    /// True once it was written and flushed.
    is_stable: bool,
}

/// Block that is to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    bp: BlockPtr,
    is_separate: bool,
    used: usize,
    bytes: Vec<u8>,
}

/// The chain. Its last block was never written: the one before points to it.
#[derive(Debug)]
pub(super) struct LiveChain {
    objset: u64,
    /// Blocks that are allocated from now on lie where data does.
    pub spares_log_devices: bool,
    /// Random words that all blocks have.
    identity: [u64; 2],
    blocks: VecDeque<LiveBlock>,
    /// Number of the last block.
    block_seq: u64,
    /// Number of the last record.
    record_seq: u64,
}

impl LiveChain {
    /// A chain of one block of so many bytes, allocated in `txg`, which the caller holds.
    pub(super) fn begin(io: &dyn BlockIo, owner: LogOwner, bytes: usize, txg: Txg) -> Result<LiveChain, BlockError> {
        let identity = [io.exec().random_u64(), io.exec().random_u64()];
        let LogOwner { objset: ObjsetId(objset), spares_log_devices } = owner;
        let mut chain = LiveChain { objset, spares_log_devices, identity, blocks: VecDeque::new(), block_seq: 0, record_seq: 0 };
        chain.allocate(log_of(io)?, bytes, txg)?;
        Ok(chain)
    }

    /// Puts an unwritten block at the end.
    fn allocate(&mut self, log: &dyn LogIo, bytes: usize, txg: Txg) -> Result<(), BlockError> {
        let room = log.allocate(txg, bytes, LogOwner { objset: ObjsetId(self.objset), spares_log_devices: self.spares_log_devices })?;
        self.block_seq += 1;
        let mut words = [self.identity[0], self.identity[1], 0, 0];
        (words[ZIL_ZC_OBJSET], words[ZIL_ZC_SEQ]) = (self.objset, self.block_seq);
        let mut bp = log_pointer(room.dva, bytes, words, txg);
        if !log.is_slim() {
            bp.set_checksum_kind(Checksum::ZILOG);
        }
        if let Some((salt, iv)) = room.salt_and_iv {
            bp.set_uses_crypt(true);
            bp.set_salt_and_iv(salt, iv);
        }
        self.blocks.push_back(LiveBlock { bp, is_separate: room.is_separate, newest: Txg::ZERO, is_stable: false });
        Ok(())
    }

    /// Length of the block that waits in bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.blocks.back().map_or(0, |block| block.bp.psize())
    }

    /// Number of the last record.
    pub(super) fn record_seq(&self) -> u64 {
        self.record_seq
    }

    /// Makes blocks of the records, the first of them the one that waits, and allocates the others and one of `next_bytes` behind them in `txg`, which the
    /// caller holds.
    ///
    /// # Errors
    /// No room: what was allocated is the chain's, and nothing may be written to it.
    pub(super) fn extend(
        &mut self,
        io: &dyn BlockIo,
        (packed, record_seq): (Vec<Packed>, u64),
        next_bytes: usize,
        txg: Txg,
    ) -> Result<Vec<Outgoing>, BlockError> {
        let first = self.blocks.len() - 1;
        let log = log_of(io)?;
        for following in packed.iter().skip(1) {
            self.allocate(log, following.block_bytes(), txg)?;
        }
        self.allocate(log, next_bytes, txg)?;
        self.record_seq = record_seq;
        let mut outgoing = Vec::with_capacity(packed.len());
        for (index, packed) in packed.into_iter().enumerate() {
            let next = self.blocks[first + index + 1].bp;
            let block = &mut self.blocks[first + index];
            block.newest = packed.newest;
            let (used, bytes) = contents(&block.bp, &packed, next);
            outgoing.push(Outgoing { bp: block.bp, is_separate: block.is_separate, used, bytes });
        }
        Ok(outgoing)
    }

    /// Everything but the block that waits is on disk and flushed.
    pub(super) fn settle(&mut self) {
        let written = self.blocks.len().saturating_sub(1);
        self.blocks.iter_mut().take(written).for_each(|block| block.is_stable = true);
    }

    /// Takes blocks off the front that nobody needs once `txg` is on disk: with `all` also those that were never written.
    pub(super) fn take_done(&mut self, txg: Txg, all: bool) -> Vec<BlockPtr> {
        let is_done = |block: &LiveBlock| (block.is_stable || all) && block.newest <= txg && block.bp.birth() <= txg;
        let count = self.blocks.iter().take_while(|block| is_done(block)).count();
        self.blocks.drain(..count).map(|block| block.bp).collect()
    }

    /// Takes every block.
    pub(super) fn take_all(&mut self) -> Vec<BlockPtr> {
        self.blocks.drain(..).map(|block| block.bp).collect()
    }

    /// True when no block is left.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Header that names the oldest block.
    pub(super) fn header(&self) -> ZilHeader {
        self.blocks.front().map_or_else(ZilHeader::default, |block| ZilHeader { zh_log: block.bp, ..ZilHeader::default() })
    }
}

/// Bytes of a block with these records and the link to the next one, and how many of them are to be written: in the old form, where the link is at the
/// end, all (OpenZFS: `zil_lwb_write_issue`).
fn contents(bp: &BlockPtr, packed: &Packed, next: BlockPtr) -> (usize, Vec<u8>) {
    let mut link: ZilChain = Field::ZERO;
    link.zc_next_blk = next;
    link.zc_eck.zec_magic = ZioEck::MAGIC;
    let mut bytes = Vec::with_capacity(bp.psize());
    if bp.checksum_kind() == Checksum::ZILOG2 {
        link.zc_nused = packed.used() as u64;
        bytes.extend_from_slice(&link.encode());
        bytes.extend_from_slice(&packed.records);
        bytes.resize(bp.psize(), 0);
        return (packed.used(), bytes);
    }
    link.zc_nused = packed.records.len() as u64;
    bytes.extend_from_slice(&packed.records);
    bytes.resize(bp.psize().saturating_sub(ZilChain::SIZE), 0);
    bytes.extend_from_slice(&link.encode());
    (bp.psize(), bytes)
}

/// Store of log blocks.
fn log_of(io: &dyn BlockIo) -> Result<&dyn LogIo, BlockError> {
    io.log().ok_or(BlockError::Unsupported)
}

/// Writes blocks, and flushes their devices and those of `others` once all are written. Waits. One block alone goes to its device from this thread,
/// where it can be durable in one step.
pub(super) fn write_out(
    io: &dyn BlockIo,
    mut outgoing: Vec<Outgoing>,
    others: Vec<BlockPtr>,
    counts: &LogCounts,
) -> Result<(), BlockError> {
    let log = log_of(io)?;
    for block in &mut outgoing {
        log.seal(&block.bp, &mut block.bytes)?;
    }
    if let ([block], true) = (&mut outgoing[..], others.is_empty())
        && let Some((written, outcome)) = log.write_durably(&block.bp, &mut block.bytes, block.used)
    {
        counts.add_block(block.is_separate, [block.used, written, block.bytes.len()].map(|bytes| bytes as u64));
        return outcome;
    }
    let mut blocks = others;
    blocks.extend(outgoing.iter().map(|block| block.bp));
    let mut waits: Vec<Completion<Result<(), BlockError>>> = Vec::with_capacity(outgoing.len());
    let mut outgoing = outgoing.into_iter();
    // Neighbours on a device go as one.
    io.plugged(&mut || {
        for block in outgoing.by_ref() {
            let (done, wait) = completion();
            let allocated = block.bytes.len();
            let written = log.write(&block.bp, block.bytes, block.used, Box::new(move |result| done.complete(result)));
            counts.add_block(block.is_separate, [block.used, written, allocated].map(|bytes| bytes as u64));
            waits.push(wait);
        }
    });
    let mut result = Ok(());
    for wait in waits {
        result = result.and(wait.wait(io.exec()));
    }
    result?;
    let (done, wait) = completion();
    log.flush(&blocks, Box::new(move |result| done.complete(result)));
    wait.wait(io.exec())
}
