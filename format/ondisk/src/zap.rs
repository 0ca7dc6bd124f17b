//! Layouts of ZAP blocks (OpenZFS: `zap_impl.h`, `zap_leaf.h`): micro ZAP, fat ZAP header, leaf. The algorithms live in `object/zap`.
//!
//! Block types are the first word of a block. Values and names in leaf arrays are big-endian whatever the block's byte order.

use crate::record::record;

/// First word of a leaf (OpenZFS: `ZBT_LEAF`).
pub const ZBT_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's header block (OpenZFS: `ZBT_HEADER`).
pub const ZBT_HEADER: u64 = (1 << 63) + 1;
/// First word of a micro ZAP (OpenZFS: `ZBT_MICRO`).
pub const ZBT_MICRO: u64 = (1 << 63) + 3;
/// Magic of a fat ZAP's header.
pub const ZAP_MAGIC: u64 = 0x2_F52A_B2AB;
/// Magic of a leaf.
pub const ZAP_LEAF_MAGIC: u32 = 0x02AB_1EAF;
/// Longest name in a micro ZAP, with its NUL.
pub const MZAP_NAME_BYTES: usize = 50;
/// Bytes of a micro ZAP's entry, and of its header.
pub const MZAP_ENTRY_BYTES: usize = 64;
/// Longest name in a ZAP, with its NUL (OpenZFS: `ZAP_MAXNAMELEN`).
pub const ZAP_NAME_BYTES_MAX: usize = 256;
/// Longest name with the feature `longname`, with its NUL (OpenZFS: `ZAP_MAXNAMELEN_NEW`).
pub const ZAP_LONG_NAME_BYTES_MAX: usize = 1024;
/// Longest value in a ZAP (OpenZFS: `ZAP_MAXVALUELEN`).
pub const ZAP_VALUE_BYTES_MAX: usize = 1024 * 8;
/// Bytes of a chunk of a leaf.
pub const LEAF_CHUNK_BYTES: usize = 24;
/// Bytes of payload in an array chunk.
pub const LEAF_ARRAY_BYTES: usize = 21;
/// End of a chain of chunks.
pub const LEAF_CHAIN_END: u16 = 0xFFFF;
/// Type of a free chunk.
pub const LEAF_CHUNK_FREE: u8 = 253;
/// Type of an entry chunk.
pub const LEAF_CHUNK_ENTRY: u8 = 252;
/// Type of an array chunk.
pub const LEAF_CHUNK_ARRAY: u8 = 251;

/// Flags of a ZAP (OpenZFS: `zap_flags_t`).
pub mod zap_flags {
    /// Flag that all 64 bits of the hash are used, not 28 and a 32-bit differentiator.
    pub const HASH64: u64 = 1 << 0;
    /// Keys are arrays of u64.
    pub const UINT64_KEY: u64 = 1 << 1;
    /// The first word of the key is its hash.
    pub const PRE_HASHED_KEY: u64 = 1 << 2;
}

record! {
    /// Header of a micro ZAP's only block (OpenZFS: `mzap_phys_t`); entries follow.
    MzapHeader = "mzap_phys_t", 64 {
        0 => mz_block_type: u64,
        8 => mz_salt: u64,
        16 => mz_normflags: u64,
        24 => mz_pad: [u64; 5],
    }
    /// An entry of a micro ZAP; free when the name is empty (OpenZFS: `mzap_ent_phys_t`).
    MzapEntry = "mzap_ent_phys_t", 64 {
        0 => mze_value: u64,
        8 => mze_cd: u32,
        12 => mze_pad: u16,
        14 => mze_name: [u8; 50],
    }
    /// Place of the pointer table (OpenZFS: `zap_table_phys_t`).
    ZapTable = "zap_table_phys_t", 40 {
        /// First block; 0 when the table is the header block's second half.
        0 => zt_blk: u64,
        8 => zt_numblks: u64,
        16 => zt_shift: u64,
        24 => zt_nextblk: u64,
        32 => zt_blks_copied: u64,
    }
    /// Header of a fat ZAP's first block (OpenZFS: `zap_phys_t`).
    ZapHeader = "zap_phys_t", 104 {
        0 => zap_block_type: u64,
        8 => zap_magic: u64,
        16 => zap_ptrtbl: ZapTable,
        56 => zap_freeblk: u64,
        64 => zap_num_leafs: u64,
        72 => zap_num_entries: u64,
        80 => zap_salt: u64,
        88 => zap_normflags: u64,
        /// See [`zap_flags`].
        96 => zap_flags: u64,
    }
    /// Header of a leaf; the hash table and the chunks follow (OpenZFS: `zap_leaf_phys_t`).
    LeafHeader = "zap_leaf_phys_t", 48 {
        0 => lh_block_type: u64,
        8 => lh_pad1: u64,
        16 => lh_prefix: u64,
        24 => lh_magic: u32,
        28 => lh_nfree: u16,
        30 => lh_nentries: u16,
        32 => lh_prefix_len: u16,
        34 => lh_freelist: u16,
        /// Flags; bit 0: entries of a hash are in order of their differentiator.
        36 => lh_flags: u8,
        37 => lh_pad2: [u8; 11],
    }
    /// An entry chunk of a leaf (OpenZFS: `zap_leaf_entry`).
    LeafEntry = "zap_leaf_entry", 24 {
        0 => le_type: u8,
        1 => le_value_intlen: u8,
        2 => le_next: u16,
        4 => le_name_chunk: u16,
        /// Integers of the name, its NUL counted.
        6 => le_name_numints: u16,
        8 => le_value_chunk: u16,
        10 => le_value_numints: u16,
        12 => le_cd: u32,
        16 => le_hash: u64,
    }
    /// An array chunk of a leaf (OpenZFS: `zap_leaf_array`); a free chunk has the same shape.
    LeafArray = "zap_leaf_array", 24 {
        0 => la_type: u8,
        1 => la_array: [u8; 21],
        22 => la_next: u16,
    }
}

/// Entries of a leaf's hash table, for a block of 2^`block_shift` bytes (OpenZFS: `ZAP_LEAF_HASH_NUMENTRIES_BS`).
pub const fn leaf_hash_entries(block_shift: u32) -> usize {
    1 << (block_shift - 5)
}
/// Chunks of a leaf, for a block of 2^`block_shift` bytes (OpenZFS: `ZAP_LEAF_NUMCHUNKS_BS`).
pub const fn leaf_chunks(block_shift: u32) -> usize {
    ((1 << block_shift) - 2 * leaf_hash_entries(block_shift)) / LEAF_CHUNK_BYTES - 2
}
/// Offset of chunk `index` in a leaf of 2^`block_shift` bytes.
pub const fn leaf_chunk_offset(block_shift: u32, index: usize) -> usize {
    LeafHeader::SIZE + 2 * leaf_hash_entries(block_shift) + index * LEAF_CHUNK_BYTES
}
