//! Logs as OpenZFS writes them, for tests: records, blocks of records, pointers of blocks. Checksums are for whoever has them.

use ondisk::zil::{LrCommon, TxType, ZIL_ZC_OBJSET, ZIL_ZC_SEQ};
use ondisk::{BlockPtr, ByteOrder, Dva, Field, Txg, ZilChain, ZioEck};

/// Bytes of a log block.
pub const LOG_BYTES: usize = 4096;
/// Words of the chain's identity.
const IDENTITY: [u64; 2] = [0x1234, 0x5678];

/// Pointer of the log block with this number at an address.
pub fn log_pointer(objset: u64, seq: u64, dva: Dva, txg: Txg) -> BlockPtr {
    let mut words = [IDENTITY[0], IDENTITY[1], 0, 0];
    (words[ZIL_ZC_OBJSET], words[ZIL_ZC_SEQ]) = (objset, seq);
    crate::chain::log_pointer(dva, LOG_BYTES, words, txg)
}

/// Bytes of a log block with these records, which are as long as they are, before its checksum is put in.
pub fn log_block(records: &[Vec<u8>], next: BlockPtr, order: ByteOrder) -> Vec<u8> {
    let records = records.concat();
    let mut chain: ZilChain = Field::ZERO;
    chain.zc_next_blk = next;
    chain.zc_nused = (ZilChain::SIZE + records.len()) as u64;
    chain.zc_eck.zec_magic = ZioEck::MAGIC;
    let mut block = vec![0; LOG_BYTES.max((ZilChain::SIZE + records.len()).next_multiple_of(LOG_BYTES))];
    chain.put(&mut block[..ZilChain::SIZE], order);
    block[ZilChain::SIZE..ZilChain::SIZE + records.len()].copy_from_slice(&records);
    block
}

/// Record of this operation, txg and number: its fixed part, whose common part is filled in, and what follows.
pub fn record<R: Field>(kind: TxType, (txg, seq): (u64, u64), fixed: &R, tail: &[u8], order: ByteOrder) -> Vec<u8> {
    let mut bytes = vec![0; R::BYTES];
    fixed.put(&mut bytes, order);
    bytes.extend_from_slice(tail);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let common = LrCommon { lrc_txtype: kind.0, lrc_reclen: bytes.len() as u64, lrc_txg: txg, lrc_seq: seq };
    common.put(&mut bytes[..LrCommon::SIZE], order);
    bytes
}
