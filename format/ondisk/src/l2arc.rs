//! Records of a cache device by which its blocks are found again (OpenZFS: persistent L2ARC, `arc_impl.h`): a header behind the first labels, and log
//! blocks between the blocks, each with the places of as many as the header says, in two chains that take turns, from the newest back.

use crate::label::ZioEck;
use crate::record::{ByteOrder, Field, Record, record};
use crate::{Checksum, Compression, SECTOR_SHIFT};

record! {
    /// Place of a log block of a cache device (OpenZFS: `l2arc_log_blkptr_t`).
    L2arcLogPtr = "l2arc_log_blkptr_t", 64 {
        0 => lbp_daddr: u64,
        /// Bytes of the blocks that it lists, with the rests of their sectors.
        8 => lbp_payload_asize: u64,
        /// Offset of the first of them.
        16 => lbp_payload_start: u64,
        24 => lbp_prop: u64,
        /// Checksum of its bytes as they are stored.
        32 => lbp_cksum: [u64; 4],
    }
    /// The header of a cache device, after its first labels (OpenZFS: `l2arc_dev_hdr_phys_t`). Where a sector is larger, the trailer is at its end.
    L2arcHeader = "l2arc_dev_hdr_phys_t", 512 {
        0 => dh_magic: u64,
        8 => dh_version: u64,
        16 => dh_spa_guid: u64,
        24 => dh_vdev_guid: u64,
        /// Number of entries of each log block; 0 where there are none.
        32 => dh_log_entries: u64,
        /// Offset up to which everything from the newest log block on is gone.
        40 => dh_evict: u64,
        48 => dh_flags: u64,
        56 => dh_start: u64,
        64 => dh_end: u64,
        /// Newest log blocks, the newest first.
        72 => dh_start_lbps: [L2arcLogPtr; 2],
        200 => dh_lb_asize: u64,
        208 => dh_lb_count: u64,
        216 => dh_trim_action_time: u64,
        224 => dh_trim_state: u64,
        232 => dh_pad: [u64; 30],
        472 => dh_tail: ZioEck,
    }
    /// A block on a cache device, in a log block (OpenZFS: `l2arc_log_ent_phys_t`).
    L2arcLogEntry = "l2arc_log_ent_phys_t", 64 {
        0 => le_dva: [u64; 2],
        16 => le_birth: u64,
        24 => le_prop: u64,
        32 => le_daddr: u64,
        40 => le_complevel: u64,
        48 => le_pad: [u64; 2],
    }
    /// The start of a log block, before its entries (OpenZFS: `l2arc_log_blk_phys_t`).
    L2arcLogHead = "l2arc_log_blk_phys_t", 128 {
        0 => lb_magic: u64,
        /// Log block before the one before this.
        8 => lb_prev_lbp: L2arcLogPtr,
        72 => lb_pad: [u64; 7],
    }
}

/// Number of entries that a log block has room for (OpenZFS: `L2ARC_LOG_BLK_MAX_ENTRIES`).
pub const L2ARC_LOG_ENTRIES_MAX: usize = 1022;
/// Bytes of a log block before it is compressed.
pub const L2ARC_LOG_BLOCK_BYTES: usize = L2arcLogHead::SIZE + L2ARC_LOG_ENTRIES_MAX * L2arcLogEntry::SIZE;

/// Bits of a word: `count` from `low` on.
fn field(word: u64, low: u32, count: u32) -> u64 {
    word >> low & ((1 << count) - 1)
}
/// Word with a length in bytes in the 16 bits from `low` on, as whole sectors less one.
fn sectors(bytes: u64, low: u32) -> u64 {
    ((bytes >> SECTOR_SHIFT).wrapping_sub(1) & 0xFFFF) << low
}
/// Length in bytes that [`sectors`] wrote.
fn bytes_of(word: u64, low: u32) -> u64 {
    (field(word, low, 16) + 1) << SECTOR_SHIFT
}

impl L2arcHeader {
    /// Magic of the header: "ZFSCACHE".
    pub const MAGIC: u64 = 0x5a46_5343_4143_4845;
    /// Version of the format (OpenZFS: `L2ARC_PERSISTENT_VERSION`).
    pub const VERSION: u64 = 1;
    /// Flag of a device that was not yet written up to its end (OpenZFS: `L2ARC_DEV_HDR_EVICT_FIRST`).
    pub const EVICT_FIRST: u64 = 1;
    /// State of a device that was trimmed as a whole (OpenZFS: `VDEV_TRIM_COMPLETE`).
    pub const TRIM_COMPLETE: u64 = 4;

    /// Decodes in the byte order that the magic shows; None without a magic.
    pub fn detect(bytes: &[u8]) -> Option<L2arcHeader> {
        in_either_order(bytes, |header: &L2arcHeader| header.dh_magic == L2arcHeader::MAGIC).map(|(header, _)| header)
    }
}

/// A record in the byte order in which it is right, and that.
fn in_either_order<T: Record>(bytes: &[u8], is_right: impl Fn(&T) -> bool) -> Option<(T, ByteOrder)> {
    let bytes = bytes.get(..T::BYTES)?;
    let orders = [ByteOrder::Little, ByteOrder::Big];
    orders.into_iter().map(|order| (T::get(bytes, order), order)).find(|(record, _)| is_right(record))
}

impl L2arcLogPtr {
    /// Pointer to a log block of so many bytes as stored, at an offset; the start and the sum of the lengths of what it lists, and its checksum, which is
    /// fletcher4.
    pub fn new((daddr, asize): (u64, u64), compression: Compression, payload: (u64, u64), checksum: [u64; 4]) -> L2arcLogPtr {
        let lengths = sectors(L2ARC_LOG_BLOCK_BYTES as u64, 0) | sectors(asize, 16);
        L2arcLogPtr {
            lbp_daddr: daddr,
            lbp_payload_asize: payload.1,
            lbp_payload_start: payload.0,
            lbp_prop: lengths | u64::from(compression.0) << 32 | u64::from(Checksum::FLETCHER_4.0) << 40,
            lbp_cksum: checksum,
        }
    }
    /// Bytes as stored.
    pub fn asize(&self) -> u64 {
        bytes_of(self.lbp_prop, 16)
    }
    /// Bytes before compression.
    pub fn lsize(&self) -> u64 {
        bytes_of(self.lbp_prop, 0)
    }
    /// Compression of the log block.
    pub fn compression(&self) -> Compression {
        Compression(field(self.lbp_prop, 32, 7) as u8)
    }
    /// Algorithm of the checksum.
    pub fn checksum_kind(&self) -> Checksum {
        Checksum(field(self.lbp_prop, 40, 8) as u8)
    }
    /// True for a pointer to nothing.
    pub fn is_empty(&self) -> bool {
        self.lbp_daddr == 0
    }
}

/// Properties of a block on a cache device, as they are in one word of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2arcBlock {
    /// Length in bytes as it is read.
    pub logical_bytes: u64,
    /// Length in bytes as in the pool.
    pub physical_bytes: u64,
    /// Compression of the block.
    pub compression: Compression,
    /// True for metadata.
    pub is_metadata: bool,
    /// True for a block that has a MAC.
    pub is_protected: bool,
    /// True for one that was read ahead and not used.
    pub is_prefetched: bool,
    /// List of the cache on which it was (OpenZFS: `arc_state_type_t`).
    pub list: u8,
}

impl L2arcBlock {
    /// Number of the list of recently used blocks (OpenZFS: `ARC_STATE_MRU`).
    pub const RECENT: u8 = 1;
    /// Number of the list of frequently used blocks (OpenZFS: `ARC_STATE_MFU`).
    pub const FREQUENT: u8 = 3;

    /// The word.
    pub fn to_word(self) -> u64 {
        let kind = 1 + u64::from(self.is_metadata);
        let marks = u64::from(self.is_prefetched) << 39 | u64::from(self.is_protected) << 56 | u64::from(self.list & 0xF) << 57;
        sectors(self.logical_bytes, 0) | sectors(self.physical_bytes, 16) | u64::from(self.compression.0 & 0x7F) << 32 | kind << 48 | marks
    }

    /// Properties that a word tells.
    pub fn from_word(word: u64) -> L2arcBlock {
        L2arcBlock {
            logical_bytes: bytes_of(word, 0),
            physical_bytes: bytes_of(word, 16),
            compression: Compression(field(word, 32, 7) as u8),
            is_metadata: field(word, 48, 8) == 2,
            is_protected: field(word, 56, 1) != 0,
            is_prefetched: field(word, 39, 1) != 0,
            list: field(word, 57, 4) as u8,
        }
    }
}

/// A log block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct L2arcLogBlock {
    /// Log block before the one before this, if there is one.
    pub previous: L2arcLogPtr,
    /// Entries, the oldest first.
    pub entries: Vec<L2arcLogEntry>,
}

impl L2arcLogBlock {
    /// Magic of a log block: "LOGBLKHD".
    pub const MAGIC: u64 = 0x4c4f_4742_4c4b_4844;

    /// Bytes of the log block before it is compressed, [`L2ARC_LOG_BLOCK_BYTES`] of them; entries that have no room are left out.
    pub fn encode(&self) -> Vec<u8> {
        let head = L2arcLogHead { lb_magic: L2arcLogBlock::MAGIC, lb_prev_lbp: self.previous.clone(), ..L2arcLogHead::default() };
        let mut out = vec![0; L2ARC_LOG_BLOCK_BYTES];
        out[..L2arcLogHead::SIZE].copy_from_slice(&head.encode());
        for (raw, entry) in out[L2arcLogHead::SIZE..].chunks_exact_mut(L2arcLogEntry::SIZE).zip(&self.entries) {
            entry.put(raw, ByteOrder::Little);
        }
        out
    }

    /// Log block with so many entries, of either byte order; None for bytes that are none.
    pub fn decode(bytes: &[u8], entries: usize) -> Option<L2arcLogBlock> {
        let (head, order) = in_either_order(bytes, |head: &L2arcLogHead| head.lb_magic == L2arcLogBlock::MAGIC)?;
        let raw = bytes[L2arcLogHead::SIZE..].chunks_exact(L2arcLogEntry::SIZE).take(entries);
        Some(L2arcLogBlock { previous: head.lb_prev_lbp, entries: raw.map(|raw| L2arcLogEntry::get(raw, order)).collect() })
    }
}

/// Part of a cache device that was written, which is written from its start to its end again and again: nothing is left between the hand, at which it is
/// written next, and the offset up to which room was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2arcSweep {
    /// First byte for blocks.
    pub start: u64,
    /// First byte behind them.
    pub end: u64,
    /// Offset that is written next.
    pub hand: u64,
    /// Offset up to which room was made.
    pub evict: u64,
    /// True until the hand came to the end once: nothing was written over then.
    pub is_first: bool,
}

impl L2arcSweep {
    /// Sweep that a header tells, on a device with this start: the hand is behind the newest log block.
    pub fn of(header: &L2arcHeader, start: u64) -> L2arcSweep {
        let newest = &header.dh_start_lbps[0];
        L2arcSweep {
            start,
            end: header.dh_end,
            hand: newest.lbp_daddr.saturating_add(newest.asize()).max(start),
            evict: header.dh_evict.max(start),
            is_first: header.dh_flags & L2arcHeader::EVICT_FIRST != 0,
        }
    }

    /// True for a log block that is there, with everything that it lists (OpenZFS: `l2arc_log_blkptr_valid`).
    pub fn holds(&self, pointer: &L2arcLogPtr) -> bool {
        let (first, asize) = (pointer.lbp_payload_start, pointer.asize());
        let Some(last) = pointer.lbp_daddr.checked_add(asize - 1) else { return false };
        let is_gone = is_between(first, last, self.hand)
            || is_between(first, last, self.evict)
            || is_between(self.hand, self.evict, first)
            || is_between(self.hand, self.evict, last);
        let is_inside = first >= self.start && pointer.lbp_daddr >= self.start && last <= self.end;
        is_inside && asize <= L2ARC_LOG_BLOCK_BYTES as u64 && (!is_gone || self.is_first)
    }

    /// True when the log block before this one was written a round earlier, and over since: where the chain ends (OpenZFS: `l2arc_rebuild`).
    pub fn is_round(&self, this: &L2arcLogPtr, before: &L2arcLogPtr) -> bool {
        !self.is_first && is_between(before.lbp_payload_start, this.lbp_payload_start, self.evict)
    }
}

/// True for an offset between two, of which the upper one was written later: perhaps from the start again (OpenZFS: `l2arc_range_check_overlap`).
pub fn is_between(bottom: u64, top: u64, offset: u64) -> bool {
    match bottom.cmp(&top) {
        std::cmp::Ordering::Less => bottom <= offset && offset <= top,
        std::cmp::Ordering::Greater => offset <= top || bottom <= offset,
        std::cmp::Ordering::Equal => offset == top,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, OpenZFS reads other properties of blocks than were written (`arc_impl.h`: `L2BLK_SET_*`), or we of its blocks.
    #[test]
    fn words_of_blocks_are_openzfss() {
        let block = L2arcBlock {
            logical_bytes: 128 << 10,
            physical_bytes: 4608,
            compression: Compression::LZ4,
            is_metadata: true,
            is_protected: true,
            is_prefetched: true,
            list: L2arcBlock::FREQUENT,
        };
        let word = 255 | 8 << 16 | 15 << 32 | 1 << 39 | 2 << 48 | 1 << 56 | 3 << 57;
        assert_eq!((block.to_word(), L2arcBlock::from_word(word)), (word, block));
        let plain = L2arcBlock { is_metadata: false, is_protected: false, is_prefetched: false, list: L2arcBlock::RECENT, ..block };
        let word = 255 | 8 << 16 | 15 << 32 | 1 << 48 | 1 << 57;
        assert_eq!((plain.to_word(), L2arcBlock::from_word(word)), (word, plain));
        let pointer = L2arcLogPtr::new((5 << 20, 3 << 10), Compression::LZ4, (4 << 20, 1 << 20), [1, 2, 3, 4]);
        assert_eq!(pointer.lbp_prop, 127 | 5 << 16 | 15 << 32 | 7 << 40);
        assert_eq!((pointer.asize(), pointer.lsize(), pointer.compression()), (3 << 10, 64 << 10, Compression::LZ4));
        assert_eq!(pointer.checksum_kind(), Checksum::FLETCHER_4);
    }

    /// If this fails, a log block that another machine wrote is taken for none, or one of ours has another length than 64 KiB.
    #[test]
    fn log_blocks_come_back_in_either_byte_order() {
        let entry = |n: u64| L2arcLogEntry { le_dva: [n, n + 1], le_birth: 7, le_prop: n << 16, le_daddr: n << 20, ..Default::default() };
        let previous = L2arcLogPtr::new((9 << 20, 512), Compression::OFF, (8 << 20, 512), [5; 4]);
        let block = L2arcLogBlock { previous, entries: (0..1022).map(entry).collect() };
        let bytes = block.encode();
        assert_eq!((bytes.len(), L2arcLogBlock::decode(&bytes, 1022)), (64 << 10, Some(block.clone())));
        let mut swapped = bytes.clone();
        swapped.chunks_exact_mut(8).for_each(<[u8]>::reverse);
        assert_eq!(L2arcLogBlock::decode(&swapped, 1022), Some(block));
        assert_eq!(L2arcLogBlock::decode(&bytes, 3).map(|block| block.entries.len()), Some(3));
        assert_eq!((L2arcLogBlock::decode(&bytes[8..], 3), L2arcLogBlock::decode(&bytes[..100], 3)), (None, None));
    }

    /// If this fails, what was written over is looked for at each import, or what is there is not.
    #[test]
    fn a_sweep_knows_what_is_left() {
        const M: u64 = 1 << 20;
        let sweep = L2arcSweep { start: 5 * M, end: 100 * M, hand: 40 * M, evict: 50 * M, is_first: false };
        let at = |first: u64, last: u64| L2arcLogPtr::new((last * M, 512), Compression::LZ4, (first * M, M), [0; 4]);
        assert!(
            sweep.holds(&at(30, 39)) && sweep.holds(&at(51, 60)) && sweep.holds(&at(95, 10)),
            "before the hand, and behind what was made room of"
        );
        let gone = [at(30, 40), at(45, 47), at(49, 51), at(39, 60), at(30, 45), at(4, 10), at(60, 100), at(96, 50)];
        assert_eq!(gone.iter().position(|pointer| sweep.holds(pointer)), None);
        let first = L2arcSweep { evict: 5 * M, is_first: true, ..sweep };
        assert!(first.holds(&at(30, 39)) && first.holds(&at(5, 6)) && !first.holds(&at(4, 6)));
        assert!(
            sweep.is_round(&at(20, 30), &at(45, 60))
                && sweep.is_round(&at(60, 70), &at(45, 48))
                && !sweep.is_round(&at(20, 30), &at(6, 19))
        );
        assert!(!first.is_round(&at(20, 30), &at(45, 60)));
        let around = L2arcSweep { hand: 90 * M, evict: 20 * M, ..sweep };
        assert!(
            around.holds(&at(30, 39)) && !around.holds(&at(91, 95)) && !around.holds(&at(6, 8)),
            "the hand is at the end, room at the start"
        );
    }
}
