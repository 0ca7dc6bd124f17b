//! The header of a fat ZAP (block 0) and where its pointer table lies (OpenZFS: `zap_phys_t`, `zap_table_phys_t`).
//!
//! The pointer table maps the top `shift` bits of a hash to a leaf's block. It lies in the second half of block 0 until
//! it outgrows it, then in blocks of its own; while it doubles, `next_block` and `blocks_copied` describe the new copy.

use crate::ZapError;
use crate::name::{KeyRules, NormFlags};
use ondisk::ObjectId;

/// First word of block 0 of a fat ZAP (OpenZFS: `ZBT_HEADER`).
pub(crate) const BLOCK_TYPE_HEADER: u64 = (1 << 63) + 1;
/// Second word of block 0 of a fat ZAP (OpenZFS: `ZAP_MAGIC`).
pub(crate) const ZAP_MAGIC: u64 = 0x2_F52A_B2AB;
/// log2 of the block size of a fat ZAP made from a micro ZAP (OpenZFS: `fzap_default_block_shift`).
pub(crate) const FAT_BLOCK_SHIFT: u32 = 14;
const WORDS: usize = 13;

/// Flags of a fat ZAP (OpenZFS: `zap_flags_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZapFlags(pub u64);

impl ZapFlags {
    /// No flags: string keys, 28 bits of hash.
    pub const NONE: ZapFlags = ZapFlags(0);
    /// 48 bits of hash.
    pub const HASH64: ZapFlags = ZapFlags(1);
    /// Keys are arrays of 64-bit words.
    pub const UINT64_KEY: ZapFlags = ZapFlags(2);
    /// The first word of the key is its hash.
    pub const PRE_HASHED_KEY: ZapFlags = ZapFlags(4);

    /// Both sets of flags.
    #[must_use]
    pub fn with(self, other: ZapFlags) -> ZapFlags {
        ZapFlags(self.0 | other.0)
    }
    fn has(self, other: ZapFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Place of the pointer table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Number of the first block; 0 while embedded in block 0.
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    /// Bits of the hash that index it.
    pub(crate) shift: u32,
    /// First block of the copy twice as large that is being made; 0 when none is.
    pub(crate) next_block: u64,
    pub(crate) blocks_copied: u64,
}

/// Header of a fat ZAP as it is kept in memory, without the embedded table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) table: Table,
    pub(crate) free_block: u64,
    pub(crate) leaves: u64,
    pub(crate) entries: u64,
    pub(crate) salt: u64,
    pub(crate) norm: NormFlags,
    pub(crate) flags: ZapFlags,
    pub(crate) block_shift: u32,
}

impl Header {
    /// The header of a fat ZAP with one leaf in block 1.
    pub(crate) fn new(salt: u64, norm: NormFlags, flags: ZapFlags, block_shift: u32) -> Header {
        let table = Table { shift: block_shift - 4, ..Table::default() };
        Header { table, free_block: 2, leaves: 1, entries: 0, salt, norm, flags, block_shift }
    }

    /// Decodes and checks block 0.
    pub(crate) fn decode(object: ObjectId, bytes: &[u8]) -> Result<Header, ZapError> {
        let damaged = |what| Err(ZapError::Corrupt { object, block: 0, what });
        if !bytes.len().is_power_of_two() || !(512..=16 << 20).contains(&bytes.len()) {
            return damaged("a fat ZAP's block size is not a power of two");
        }
        let mut words = [0u64; WORDS];
        for (word, raw) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = raw.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        }
        if words[0] != BLOCK_TYPE_HEADER || words[1] != ZAP_MAGIC {
            return damaged("not a ZAP header");
        }
        let header = Header {
            table: Table {
                block: words[2],
                blocks: words[3],
                shift: words[4].min(64) as u32,
                next_block: words[5],
                blocks_copied: words[6],
            },
            free_block: words[7],
            leaves: words[8],
            entries: words[9],
            salt: words[10],
            norm: NormFlags(words[11]),
            flags: ZapFlags(words[12]),
            block_shift: bytes.len().trailing_zeros(),
        };
        let table = &header.table;
        let shift_wanted = if table.blocks == 0 {
            header.embedded_shift()
        } else if table.blocks.is_power_of_two() && table.blocks < 1 << 44 {
            header.block_shift - 3 + table.blocks.trailing_zeros()
        } else {
            return damaged("the pointer table has an impossible size");
        };
        if table.shift != shift_wanted || table.shift > header.hash_bits() || (table.block == 0) != (table.blocks == 0) {
            return damaged("the pointer table is not consistent");
        }
        let limit = 1u64 << (63 - header.block_shift);
        if header.free_block >= limit || table.block >= limit || table.next_block >= limit || table.blocks_copied > table.blocks {
            return damaged("a block number in the header is out of range");
        }
        Ok(header)
    }

    /// Writes the fields over the start of block 0; the embedded table is left alone.
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        let table = &self.table;
        let words = [
            BLOCK_TYPE_HEADER,
            ZAP_MAGIC,
            table.block,
            table.blocks,
            u64::from(table.shift),
            table.next_block,
            table.blocks_copied,
            self.free_block,
            self.leaves,
            self.entries,
            self.salt,
            self.norm.0,
            self.flags.0,
        ];
        for (raw, word) in bytes.chunks_exact_mut(8).zip(words) {
            raw.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Bits that index the table while it is embedded (OpenZFS: `ZAP_EMBEDDED_PTRTBL_SHIFT`).
    pub(crate) fn embedded_shift(&self) -> u32 {
        self.block_shift - 4
    }
    /// Byte offset in block 0 of the embedded table.
    pub(crate) fn embedded_at(&self) -> usize {
        1 << (self.block_shift - 1)
    }
    /// Bits of hash that are kept (OpenZFS: `zap_hashbits`).
    pub(crate) fn hash_bits(&self) -> u32 {
        if self.flags.has(ZapFlags::HASH64) { 48 } else { 28 }
    }
    /// Rules by which keys hash in this ZAP.
    pub(crate) fn rules(&self) -> KeyRules {
        KeyRules {
            salt: self.salt,
            norm: self.norm,
            hash_bits: self.hash_bits(),
            words: self.flags.has(ZapFlags::UINT64_KEY),
            prehashed: self.flags.has(ZapFlags::PRE_HASHED_KEY),
        }
    }
    /// Size of every block, in bytes.
    pub(crate) fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }
}
