//! Records into blocks: which go into which, how large blocks are, and how large the one is that waits for what comes next.

use super::filled::{Body, Ready};
use dmu::DmuError;
use ondisk::zil::{LrCommon, LrWrite};
use ondisk::{Txg, ZilChain};
use std::collections::VecDeque;

/// Least bytes of a log block, and the unit of its length.
pub(super) const BLOCK_MIN_BYTES: usize = 4096;
/// Most bytes of a log block (OpenZFS: `zil_maxblocksize`).
pub(super) const BLOCK_MAX_BYTES: usize = 128 << 10;
/// Bytes of a write that are worth a record of their own at the end of a block.
const SPLIT_MIN_BYTES: usize = 2048;
/// Bursts that the size of the next block is chosen by (OpenZFS: `ZIL_BURSTS`).
const BURSTS: usize = 8;

/// Contents of one block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    /// Records, one after the other.
    pub records: Vec<u8>,
    /// Newest txg of the records; 0 for none.
    pub newest: Txg,
}

impl Packed {
    /// Bytes of the block that count.
    pub(super) fn used(&self) -> usize {
        ZilChain::SIZE + self.records.len()
    }
    /// Length of a block for these records in bytes.
    pub(super) fn block_bytes(&self) -> usize {
        self.used().next_multiple_of(BLOCK_MIN_BYTES)
    }
}

/// Distribution of records over blocks, the first of which has a length already.
pub(super) struct Packer {
    done: Vec<Packed>,
    now: Packed,
    /// Length of the block that is being filled in bytes.
    limit: usize,
    /// Number of the last record.
    seq: u64,
}

impl Packer {
    /// Packer whose first block has `first_bytes`; the last record of the log has the number `seq`.
    pub(super) fn new(first_bytes: usize, seq: u64) -> Packer {
        Packer { done: Vec::new(), now: Packed::default(), limit: first_bytes, seq }
    }

    fn room(&self) -> usize {
        self.limit - self.now.used()
    }

    fn next_block(&mut self) {
        self.done.push(std::mem::take(&mut self.now));
        self.limit = BLOCK_MAX_BYTES;
    }

    /// Adds an operation's record, or the records of a write's pieces.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] for a record that no block can hold.
    pub(super) fn add(&mut self, ready: &Ready) -> Result<(), DmuError> {
        let data = match &ready.body {
            Body::Record(record) => return self.put_whole(record, ready.txg),
            Body::Write(data) => data,
        };
        let mut written = 0;
        while written < data.len() {
            let rest = data.len() - written;
            let room = self.room().saturating_sub(LrWrite::SIZE) & !7;
            let piece = match rest.next_multiple_of(8) <= room {
                true => rest,
                false if room >= SPLIT_MIN_BYTES => room,
                false => {
                    self.next_block();
                    continue;
                }
            };
            self.put(&write_record(&ready.fixed, written as u64, &data[written..written + piece]), ready.txg);
            written += piece;
        }
        Ok(())
    }

    fn put_whole(&mut self, record: &[u8], txg: Txg) -> Result<(), DmuError> {
        if record.len() > BLOCK_MAX_BYTES - ZilChain::SIZE {
            return Err(DmuError::Invalid);
        }
        if record.len() > self.room() {
            self.next_block();
        }
        self.put(record, txg);
        Ok(())
    }

    /// Puts a record, which fits, behind the others, with its number and txg.
    fn put(&mut self, record: &[u8], txg: Txg) {
        let start = self.now.records.len();
        self.now.records.extend_from_slice(record);
        self.seq += 1;
        let common = &mut self.now.records[start..start + LrCommon::SIZE];
        common[16..24].copy_from_slice(&txg.0.to_le_bytes());
        common[24..32].copy_from_slice(&self.seq.to_le_bytes());
        self.now.newest = self.now.newest.max(txg);
    }

    /// Blocks in their order, and the number of the last record.
    pub(super) fn finish(mut self) -> (Vec<Packed>, u64) {
        self.done.push(self.now);
        (self.done, self.seq)
    }
}

/// Record of a piece of a write, `skipped` bytes behind its beginning.
fn write_record(fixed: &LrWrite, skipped: u64, data: &[u8]) -> Vec<u8> {
    let mut fixed = fixed.clone();
    let bytes = (LrWrite::SIZE + data.len()).next_multiple_of(8);
    fixed.lr_common.lrc_reclen = bytes as u64;
    (fixed.lr_offset, fixed.lr_length) = (fixed.lr_offset + skipped, data.len() as u64);
    let mut record = Vec::with_capacity(bytes);
    record.extend_from_slice(&fixed.encode());
    record.extend_from_slice(data);
    record.resize(bytes, 0);
    record
}

/// Lengths of the last batches, from which the length of the next is guessed.
#[derive(Debug, Default)]
pub(super) struct Bursts(VecDeque<usize>);

impl Bursts {
    /// Notes a batch of so many bytes.
    pub(super) fn note(&mut self, bytes: usize) {
        if self.0.len() == BURSTS {
            self.0.pop_front();
        }
        self.0.push_back(bytes);
    }

    /// Length in bytes of a block that will do for most batches: one that was more than twice as long as all others does not count.
    pub(super) fn predict(&self) -> usize {
        let mut sizes: Vec<usize> = self.0.iter().copied().collect();
        sizes.sort_unstable_by(|left, right| right.cmp(left));
        let largest = match sizes[..] {
            [first, second, ..] if second < first / 2 => second,
            [first, ..] => first,
            [] => 0,
        };
        (largest + ZilChain::SIZE).next_multiple_of(BLOCK_MIN_BYTES).min(BLOCK_MAX_BYTES)
    }
}
