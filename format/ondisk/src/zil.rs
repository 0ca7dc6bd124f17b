//! The intent log (OpenZFS: `zil.h`): its header in the object set, the chain of log blocks, and the records of each operation.
//!
//! Log blocks keep the writer's byte order; names, data and lists follow the fixed part of a record, within `lrc_reclen` bytes.

use crate::label::ZioEck;
use crate::record::{ByteOrder, record};
use crate::{BlockPtr, ObjectId};

record! {
    /// The head of an object set's intent log (OpenZFS: `zil_header_t`).
    ZilHeader = "zil_header_t", 192 {
        /// Txg in which the log's blocks were claimed at import; 0 when unclaimed.
        0 => zh_claim_txg: u64,
        /// Highest record that was replayed.
        8 => zh_replay_seq: u64,
        /// First block of the chain.
        16 => zh_log: BlockPtr,
        /// Number of the highest claimed block.
        144 => zh_claim_blk_seq: u64,
        /// See [`ZilHeader::REPLAY_NEEDED`] and [`ZilHeader::CLAIM_LR_SEQ_VALID`].
        152 => zh_flags: u64,
        /// Number of the highest claimed record.
        160 => zh_claim_lr_seq: u64,
        168 => zh_pad: [u64; 3],
    }
    /// The link of a log block: at the end of a `zilog` block, at the start of a `zilog2` block (OpenZFS: `zil_chain_t`).
    ZilChain = "zil_chain_t", 184 {
        0 => zc_pad: u64,
        8 => zc_next_blk: BlockPtr,
        /// Bytes of the block that hold the link (in `zilog2`) and records.
        136 => zc_nused: u64,
        144 => zc_eck: ZioEck,
    }
    /// Header that every record starts with (OpenZFS: `lr_t`).
    LrCommon = "lr_t", 32 {
        /// Operation; bit 63 asks for case-insensitive names.
        0 => lrc_txtype: u64,
        /// Bytes of the record, a multiple of 8.
        8 => lrc_reclen: u64,
        16 => lrc_txg: u64,
        24 => lrc_seq: u64,
    }
    /// `TX_CREATE`, `TX_MKDIR`, `TX_MKXATTR`, `TX_SYMLINK` and their `_ATTR` kinds (OpenZFS: `_lr_create_t`); the name follows.
    LrCreate = "lr_create_t", 104 {
        0 => lr_common: LrCommon,
        32 => lr_doid: u64,
        /// Slots and object: see [`foid`].
        40 => lr_foid: u64,
        48 => lr_mode: u64,
        56 => lr_uid: u64,
        64 => lr_gid: u64,
        72 => lr_gen: u64,
        80 => lr_crtime: [u64; 2],
        96 => lr_rdev: u64,
    }
    /// The `_ACL` kinds of creation (OpenZFS: `lr_acl_create_t`): attributes, ACEs, FUIDs, domains and name follow.
    LrAclCreate = "lr_acl_create_t", 144 {
        0 => lr_create: LrCreate,
        104 => lr_aclcnt: u64,
        112 => lr_domcnt: u64,
        120 => lr_fuidcnt: u64,
        128 => lr_acl_bytes: u64,
        136 => lr_acl_flags: u64,
    }
    /// `TX_REMOVE` and `TX_RMDIR`; the name follows.
    LrRemove = "lr_remove_t", 40 {
        0 => lr_common: LrCommon,
        32 => lr_doid: u64,
    }
    /// `TX_LINK`; the name follows.
    LrLink = "lr_link_t", 48 {
        0 => lr_common: LrCommon,
        32 => lr_doid: u64,
        40 => lr_link_obj: u64,
    }
    /// `TX_RENAME` and `TX_RENAME_EXCHANGE`; the old and the new name follow.
    LrRename = "lr_rename_t", 48 {
        0 => lr_common: LrCommon,
        32 => lr_sdoid: u64,
        40 => lr_tdoid: u64,
    }
    /// `TX_RENAME_WHITEOUT`; the old and the new name follow.
    LrRenameWhiteout = "lr_rename_whiteout_t", 112 {
        0 => lr_rename: LrRename,
        48 => lr_wfoid: u64,
        56 => lr_wmode: u64,
        64 => lr_wuid: u64,
        72 => lr_wgid: u64,
        80 => lr_wgen: u64,
        88 => lr_wcrtime: [u64; 2],
        104 => lr_wrdev: u64,
    }
    /// `TX_WRITE` and `TX_WRITE2`; data follow unless `lr_blkptr` points to them.
    LrWrite = "lr_write_t", 192 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        40 => lr_offset: u64,
        48 => lr_length: u64,
        56 => lr_blkoff: u64,
        64 => lr_blkptr: BlockPtr,
    }
    /// Record of `TX_TRUNCATE`.
    LrTruncate = "lr_truncate_t", 56 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        40 => lr_offset: u64,
        48 => lr_length: u64,
    }
    /// `TX_SETATTR`; optional attributes follow.
    LrSetattr = "lr_setattr_t", 112 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        40 => lr_mask: u64,
        48 => lr_mode: u64,
        56 => lr_uid: u64,
        64 => lr_gid: u64,
        72 => lr_size: u64,
        80 => lr_atime: [u64; 2],
        96 => lr_mtime: [u64; 2],
    }
    /// `TX_SETSAXATTR`; name (with NUL) and value follow.
    LrSetSaXattr = "lr_setsaxattr_t", 48 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        /// Bytes of the value; 0 removes the attribute.
        40 => lr_size: u64,
    }
    /// `TX_ACL_V0`; old ACEs follow.
    LrAclV0 = "lr_acl_v0_t", 48 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        40 => lr_aclcnt: u64,
    }
    /// `TX_ACL`; ACEs, FUIDs and domains follow.
    LrAcl = "lr_acl_t", 80 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        40 => lr_aclcnt: u64,
        48 => lr_domcnt: u64,
        56 => lr_fuidcnt: u64,
        64 => lr_acl_bytes: u64,
        72 => lr_acl_flags: u64,
    }
    /// `TX_CLONE_RANGE`; `lr_nbps` block pointers follow.
    LrCloneRange = "lr_clone_range_t", 72 {
        0 => lr_common: LrCommon,
        32 => lr_foid: u64,
        40 => lr_offset: u64,
        48 => lr_length: u64,
        56 => lr_blksz: u64,
        64 => lr_nbps: u64,
    }
    /// Start of the optional attributes of a record (OpenZFS: `lr_attr_t`); more bitmap words follow.
    LrAttr = "lr_attr_t", 8 {
        /// Number of bitmap words.
        0 => lr_attr_masksize: u32,
        4 => lr_attr_bitmap: u32,
    }
    /// End of the optional attributes of a record (OpenZFS: `lr_attr_end_t`).
    LrAttrEnd = "lr_attr_end_t", 56 {
        0 => lr_attr_attrs: u64,
        8 => lr_attr_crtime: [u64; 2],
        24 => lr_attr_scanstamp: [u8; 32],
    }
}

/// Smallest log block (OpenZFS: `ZIL_MIN_BLKSZ`).
pub const ZIL_BLOCK_BYTES_MIN: usize = 4096;
/// Word of a log block pointer's checksum that holds the object set; words 0 and 1 are the chain's random identity.
pub const ZIL_ZC_OBJSET: usize = 2;
/// Word of a log block pointer's checksum that holds the block's sequence number.
pub const ZIL_ZC_SEQ: usize = 3;
/// Flag in `lrc_txtype`: names are matched without case (OpenZFS: `TX_CI`).
pub const TX_CI: u64 = 1 << 63;

impl ZilHeader {
    /// Records are to be replayed.
    pub const REPLAY_NEEDED: u64 = 1;
    /// Flag that `zh_claim_lr_seq` is meant.
    pub const CLAIM_LR_SEQ_VALID: u64 = 2;
}

/// An object in a record: its number and, for a new one, its slots (OpenZFS: `LR_FOID_*`).
pub mod foid {
    use super::ObjectId;
    /// Number of slots of the dnode.
    pub fn slots(raw: u64) -> usize {
        (raw >> 56) as usize + 1
    }
    /// Object number.
    pub fn object(raw: u64) -> ObjectId {
        ObjectId(raw & ((1 << 48) - 1))
    }
    /// Encodes the raw word.
    pub fn encode(object: ObjectId, slots: usize) -> u64 {
        object.0 & ((1 << 48) - 1) | ((slots as u64).saturating_sub(1) & 0xFF) << 56
    }
}

/// Operation of a record (OpenZFS: `TX_*`), without [`TX_CI`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxType(pub u64);
#[allow(missing_docs, reason = "the standard's names")]
impl TxType {
    pub const COMMIT: TxType = TxType(0);
    pub const CREATE: TxType = TxType(1);
    pub const MKDIR: TxType = TxType(2);
    pub const MKXATTR: TxType = TxType(3);
    pub const SYMLINK: TxType = TxType(4);
    pub const REMOVE: TxType = TxType(5);
    pub const RMDIR: TxType = TxType(6);
    pub const LINK: TxType = TxType(7);
    pub const RENAME: TxType = TxType(8);
    pub const WRITE: TxType = TxType(9);
    pub const TRUNCATE: TxType = TxType(10);
    pub const SETATTR: TxType = TxType(11);
    pub const ACL_V0: TxType = TxType(12);
    pub const ACL: TxType = TxType(13);
    pub const CREATE_ACL: TxType = TxType(14);
    pub const CREATE_ATTR: TxType = TxType(15);
    pub const CREATE_ACL_ATTR: TxType = TxType(16);
    pub const MKDIR_ACL: TxType = TxType(17);
    pub const MKDIR_ATTR: TxType = TxType(18);
    pub const MKDIR_ACL_ATTR: TxType = TxType(19);
    pub const WRITE2: TxType = TxType(20);
    pub const SETSAXATTR: TxType = TxType(21);
    pub const RENAME_EXCHANGE: TxType = TxType(22);
    pub const RENAME_WHITEOUT: TxType = TxType(23);
    pub const CLONE_RANGE: TxType = TxType(24);
}

/// The records of a log block's used part: each item is the common header and the whole record's bytes.
///
/// Ends at the first record whose length is not a multiple of 8, smaller than its header or past the end: the rest cannot be trusted.
#[derive(Clone, Debug)]
pub struct LogRecords<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}
impl<'a> LogRecords<'a> {
    /// Iterates `used`: the block's records without chain link, `zc_nused` already applied.
    pub fn new(used: &'a [u8], order: ByteOrder) -> LogRecords<'a> {
        LogRecords { rest: used, order }
    }
    /// Bytes that were not consumed; not empty after the iteration means a bad record.
    pub fn remaining(&self) -> &'a [u8] {
        self.rest
    }
}
impl<'a> Iterator for LogRecords<'a> {
    type Item = (LrCommon, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        let common = LrCommon::decode_order(self.rest, self.order).ok()?;
        let bytes = usize::try_from(common.lrc_reclen).ok()?;
        if bytes < LrCommon::SIZE || bytes % 8 != 0 {
            return None;
        }
        let (record, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some((common, record))
    }
}
