//! Records of datasets and of what pools do with them (OpenZFS: `dsl_dir.h`, `dsl_dataset.h`, `dsl_deadlist.h`, `bpobj.h`, `dsl_scan.h`).
//!
//! All but the scan state (a ZAP value of u64s) are bonuses of MOS objects. Shorter bonuses of old pools read as zeros where allowed.

use crate::record::{ByteOrder, Field, ShortRecord, record};
use crate::{BlockPtr, Bookmark, SECTOR_BYTES};

record! {
    /// A DSL directory: name space, properties and space of a dataset and its children (OpenZFS: `dsl_dir_phys_t`).
    DslDirPhys = "dsl_dir_phys_t", 256 {
        0 => dd_creation_time: u64,
        8 => dd_head_dataset_obj: u64,
        16 => dd_parent_obj: u64,
        24 => dd_origin_obj: u64,
        32 => dd_child_dir_zapobj: u64,
        40 => dd_used_bytes: u64,
        48 => dd_compressed_bytes: u64,
        56 => dd_uncompressed_bytes: u64,
        64 => dd_quota: u64,
        72 => dd_reserved: u64,
        80 => dd_props_zapobj: u64,
        88 => dd_deleg_zapobj: u64,
        96 => dd_flags: u64,
        /// Space used in bytes, by [`dd_used`].
        104 => dd_used_breakdown: [u64; 5],
        144 => dd_clones: u64,
        152 => dd_pad: [u64; 13],
    }
    /// A dataset: an object set in the history of its file system or volume (OpenZFS: `dsl_dataset_phys_t`).
    DslDatasetPhys = "dsl_dataset_phys_t", 320 {
        0 => ds_dir_obj: u64,
        8 => ds_prev_snap_obj: u64,
        16 => ds_prev_snap_txg: u64,
        24 => ds_next_snap_obj: u64,
        /// Names of snapshots; 0 in snapshots.
        32 => ds_snapnames_zapobj: u64,
        40 => ds_num_children: u64,
        48 => ds_creation_time: u64,
        56 => ds_creation_txg: u64,
        64 => ds_deadlist_obj: u64,
        72 => ds_referenced_bytes: u64,
        80 => ds_compressed_bytes: u64,
        88 => ds_uncompressed_bytes: u64,
        96 => ds_unique_bytes: u64,
        104 => ds_fsid_guid: u64,
        112 => ds_guid: u64,
        /// See [`ds_flags`].
        120 => ds_flags: u64,
        128 => ds_bp: BlockPtr,
        256 => ds_next_clones_obj: u64,
        264 => ds_props_obj: u64,
        272 => ds_userrefs_obj: u64,
        280 => ds_pad: [u64; 5],
    }
    /// Sums of a deadlist; its entries are in the object's ZAP (OpenZFS: `dsl_deadlist_phys_t`).
    DeadlistPhys = "dsl_deadlist_phys_t", 320 {
        0 => dl_used: u64,
        8 => dl_comp: u64,
        16 => dl_uncomp: u64,
        24 => dl_pad: [u64; 37],
    }
    /// Sums of a list of block pointers; they are the object's contents (OpenZFS: `bpobj_phys_t`). See [`BpobjPhys::decode_bonus`].
    BpobjPhys = "bpobj_phys_t", 56 {
        0 => bpo_num_blkptrs: u64,
        8 => bpo_bytes: u64,
        16 => bpo_comp: u64,
        24 => bpo_uncomp: u64,
        /// Object with an array of further bpobjs.
        32 => bpo_subobjs: u64,
        40 => bpo_num_subobjs: u64,
        /// Number of the block pointers that are frees, of a livelist.
        48 => bpo_num_freed: u64,
    }
    /// Position of a walk over all dedup tables (OpenZFS: `ddt_bookmark_t`).
    DdtBookmark = "ddt_bookmark_t", 32 {
        0 => ddb_class: u64,
        8 => ddb_type: u64,
        16 => ddb_checksum: u64,
        24 => ddb_cursor: u64,
    }
    /// The address of a block on disk (OpenZFS: `zbookmark_phys_t`).
    BookmarkPhys = "zbookmark_phys_t", 32 {
        0 => zb_objset: u64,
        8 => zb_object: u64,
        16 => zb_level: i64,
        24 => zb_blkid: u64,
    }
    /// State of a scrub or resilver: the value of `scan` in the pool's directory, an array of u64 (OpenZFS: `dsl_scan_phys_t`).
    DslScanPhys = "dsl_scan_phys_t", 192 {
        /// See [`scan_func`].
        0 => scn_func: u64,
        /// See [`scan_state`].
        8 => scn_state: u64,
        16 => scn_queue_obj: u64,
        24 => scn_min_txg: u64,
        32 => scn_max_txg: u64,
        40 => scn_cur_min_txg: u64,
        48 => scn_cur_max_txg: u64,
        56 => scn_start_time: u64,
        64 => scn_end_time: u64,
        72 => scn_to_examine: u64,
        80 => scn_examined: u64,
        88 => scn_skipped: u64,
        96 => scn_processed: u64,
        104 => scn_errors: u64,
        112 => scn_ddt_class_max: u64,
        120 => scn_ddt_bookmark: DdtBookmark,
        152 => scn_bookmark: BookmarkPhys,
        184 => scn_flags: u64,
    }
    /// State of an error scrub: the value of `error_scrub` in the pool's directory, an array of u64 (OpenZFS: `dsl_errorscrub_phys_t`).
    ErrorScrubPhys = "dsl_errorscrub_phys_t", 72 {
        /// See [`scan_func`].
        0 => dep_func: u64,
        /// See [`scan_state`].
        8 => dep_state: u64,
        16 => dep_cursor: u64,
        24 => dep_start_time: u64,
        32 => dep_end_time: u64,
        40 => dep_to_examine: u64,
        48 => dep_examined: u64,
        56 => dep_errors: u64,
        64 => dep_paused_flags: u64,
    }
    /// A snapshot's bookmark: the value in the bookmarks ZAP (OpenZFS: `zfs_bookmark_phys_t`). Old ones end after `zbm_creation_time`.
    DslBookmarkPhys = "zfs_bookmark_phys_t", 96 {
        0 => zbm_guid: u64,
        8 => zbm_creation_txg: u64,
        16 => zbm_creation_time: u64,
        24 => zbm_redaction_obj: u64,
        32 => zbm_flags: u64,
        40 => zbm_referenced_bytes_refd: u64,
        48 => zbm_compressed_bytes_refd: u64,
        56 => zbm_uncompressed_bytes_refd: u64,
        64 => zbm_referenced_freed_before_next_snap: u64,
        72 => zbm_compressed_freed_before_next_snap: u64,
        80 => zbm_uncompressed_freed_before_next_snap: u64,
        88 => zbm_ivset_guid: u64,
    }
    /// Head of a list of what was redacted: a bonus, or a spill block for which that has no room. As many guids of snapshots as it counts
    /// follow (OpenZFS: `redaction_list_phys_t`).
    RedactionListPhys = "redaction_list_phys_t", 32 {
        /// Last place that was looked at; the largest number in both words once the list is whole.
        0 => rlp_last_object: u64,
        8 => rlp_last_blkid: u64,
        /// Number of [`RedactBlockPhys`] that the object's contents are.
        16 => rlp_num_entries: u64,
        24 => rlp_num_snaps: u64,
    }
    /// Neighbouring blocks of an object that were redacted (OpenZFS: `redact_block_phys_t`). See [`RedactBlockPhys::count`].
    RedactBlockPhys = "redact_block_phys_t", 32 {
        0 => rbp_object: u64,
        8 => rbp_blkid: u64,
        16 => rbp_size_count: u64,
        24 => rbp_padding: u64,
    }
}

/// Indices of `dd_used_breakdown` (OpenZFS: `dd_used_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod dd_used {
    pub const HEAD: usize = 0;
    pub const SNAP: usize = 1;
    pub const CHILD: usize = 2;
    pub const CHILD_RSRV: usize = 3;
    pub const REFRSRV: usize = 4;
}
/// `dd_flags`: the breakdown of used space is kept (OpenZFS: `DD_FLAG_USED_BREAKDOWN`).
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1;

/// Flags of a dataset (OpenZFS: `DS_FLAG_*`).
pub mod ds_flags {
    /// A receive or destroy is incomplete.
    pub const INCONSISTENT: u64 = 1 << 0;
    /// Flag of a dataset that is not to be promoted.
    pub const NOPROMOTE: u64 = 1 << 1;
    /// Flag of a dataset whose `ds_unique_bytes` is right.
    pub const UNIQUE_ACCURATE: u64 = 1 << 2;
    /// Destroy when the last hold and clone are gone.
    pub const DEFER_DESTROY: u64 = 1 << 3;
    /// Names are matched without case.
    pub const CI_DATASET: u64 = 1 << 16;
}

/// Kinds of scan (OpenZFS: `pool_scan_func_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod scan_func {
    pub const NONE: u64 = 0;
    pub const SCRUB: u64 = 1;
    pub const RESILVER: u64 = 2;
    pub const ERRORSCRUB: u64 = 3;
}
/// States of a scan (OpenZFS: `dsl_scan_state_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod scan_state {
    pub const NONE: u64 = 0;
    pub const SCANNING: u64 = 1;
    pub const FINISHED: u64 = 2;
    pub const CANCELED: u64 = 3;
    pub const ERRORSCRUBBING: u64 = 4;
}
/// Flags of a scan (OpenZFS: `dsl_scan_flags_t`).
pub mod scan_flags {
    /// The dataset being visited must be visited again.
    pub const VISIT_DS_AGAIN: u64 = 1 << 0;
    /// The scrub is paused.
    pub const SCRUB_PAUSED: u64 = 1 << 1;
}

/// Bonus bytes of the three ages of a bpobj and of the one with a count of frees.
pub const BPOBJ_BYTES: [usize; 4] = [16, 32, 48, 56];

/// A bonus of `bytes`, of which at least `least` must exist, with zeros where it is shorter than the record.
fn padded<T: Field, const N: usize>(record: &'static str, bytes: &[u8], least: usize) -> Result<T, ShortRecord> {
    if bytes.len() < least {
        return Err(ShortRecord { record, need: least, have: bytes.len() });
    }
    let mut full = [0; N];
    let have = bytes.len().min(N);
    full[..have].copy_from_slice(&bytes[..have]);
    Ok(T::get(&full, ByteOrder::Little))
}

impl BpobjPhys {
    /// Decodes a bonus of any age: fields that it is too short for are 0.
    pub fn decode_bonus(bonus: &[u8]) -> Result<BpobjPhys, ShortRecord> {
        padded::<_, { BpobjPhys::SIZE }>("bpobj_phys_t", bonus, BPOBJ_BYTES[0])
    }
}
impl DslBookmarkPhys {
    /// Bytes of a bookmark of the first version.
    pub const BYTES_V1: usize = 24;
    /// Decodes a value of any age: fields that it is too short for are 0.
    pub fn decode_value(value: &[u8]) -> Result<DslBookmarkPhys, ShortRecord> {
        padded::<_, { DslBookmarkPhys::SIZE }>("zfs_bookmark_phys_t", value, DslBookmarkPhys::BYTES_V1)
    }
}
impl RedactBlockPhys {
    /// Most blocks that one record stands for (OpenZFS: `REDACT_BLOCK_MAX_COUNT`).
    pub const COUNT_MAX: u64 = 1 << Self::COUNT_BITS;
    const COUNT_BITS: u32 = 48;

    /// The record of so many blocks, at least one, of a size in bytes.
    pub fn new(object: u64, block: u64, count: u64, block_bytes: u64) -> RedactBlockPhys {
        let sectors = block_bytes / SECTOR_BYTES as u64;
        let count = count.clamp(1, Self::COUNT_MAX) - 1;
        RedactBlockPhys { rbp_object: object, rbp_blkid: block, rbp_size_count: sectors << Self::COUNT_BITS | count, rbp_padding: 0 }
    }
    /// Number of blocks.
    pub fn count(&self) -> u64 {
        (self.rbp_size_count & (Self::COUNT_MAX - 1)) + 1
    }
    /// Bytes of each of them.
    pub fn block_bytes(&self) -> u64 {
        (self.rbp_size_count >> Self::COUNT_BITS) * SECTOR_BYTES as u64
    }
}
impl DslScanPhys {
    /// Decodes the ZAP value, which older software may have written shorter.
    pub fn from_words(words: &[u64]) -> DslScanPhys {
        let mut raw = [0; DslScanPhys::SIZE];
        for (bytes, word) in raw.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Field::get(&raw, ByteOrder::Little)
    }
    /// The ZAP value.
    pub fn to_words(&self) -> [u64; 24] {
        Field::get(&self.encode(), ByteOrder::Little)
    }
}
impl ErrorScrubPhys {
    /// Decodes the ZAP value.
    pub fn from_words(words: &[u64]) -> ErrorScrubPhys {
        let mut raw = [0; ErrorScrubPhys::SIZE];
        for (bytes, word) in raw.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Field::get(&raw, ByteOrder::Little)
    }
    /// The ZAP value.
    pub fn to_words(&self) -> [u64; 9] {
        Field::get(&self.encode(), ByteOrder::Little)
    }
}
impl From<Bookmark> for BookmarkPhys {
    fn from(bookmark: Bookmark) -> BookmarkPhys {
        BookmarkPhys {
            zb_objset: bookmark.objset.0,
            zb_object: bookmark.object.0,
            zb_level: i64::from(bookmark.level.0),
            zb_blkid: bookmark.block.0,
        }
    }
}
