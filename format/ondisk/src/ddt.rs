//! Dedup tables and the block reference table (OpenZFS: `ddt.h`, `ddt_impl.h`, `brt_impl.h`).
//!
//! Dedup entries are ZAP values: one byte (bits 0–6 compression, bit 7 little-endian) and the entry, compressed with ZLE.

use crate::Compression;
use crate::record::record;

record! {
    /// A block's identity in a dedup table (OpenZFS: `ddt_key_t`).
    DdtKey = "ddt_key_t", 40 {
        0 => ddk_cksum: [u64; 4],
        /// Sizes, compression and encryption: see the accessors.
        32 => ddk_prop: u64,
    }
    /// One of the four copies-variants of a traditional entry (OpenZFS: `ddp_trad`).
    DdtPhysTrad = "ddt_phys_trad", 64 {
        0 => ddp_dva: [u64; 6],
        48 => ddp_refcnt: u64,
        56 => ddp_phys_birth: u64,
    }
    /// A traditional entry: by number of copies, the first for obsolete dittos.
    DdtTradEntry = "ddt_univ_phys_t.ddp_trad", 256 {
        0 => ddp_trad: [DdtPhysTrad; 4],
    }
    /// An entry with the feature `fast_dedup` (OpenZFS: `ddp_flat`).
    DdtFlatEntry = "ddt_univ_phys_t.ddp_flat", 72 {
        0 => ddp_dva: [u64; 6],
        48 => ddp_refcnt: u64,
        56 => ddp_phys_birth: u64,
        64 => ddp_class_start: u64,
    }
    /// Space accounting of dedup, one of 64 histogram buckets in `DDT-statistics` (OpenZFS: `ddt_stat_t`).
    DdtStat = "ddt_stat_t", 64 {
        0 => dds_blocks: u64,
        8 => dds_lsize: u64,
        16 => dds_psize: u64,
        24 => dds_dsize: u64,
        32 => dds_ref_blocks: u64,
        40 => dds_ref_lsize: u64,
        48 => dds_ref_psize: u64,
        56 => dds_ref_dsize: u64,
    }
    /// The bonus of a dedup log (OpenZFS: `ddt_log_header_t`).
    DdtLogHeader = "ddt_log_header_t", 64 {
        /// Bits 0–7 version, 8–15 flags.
        0 => dlh_info: u64,
        8 => dlh_length: u64,
        16 => dlh_first_txg: u64,
        24 => dlh_checkpoint: DdtKey,
    }
    /// A record of a dedup log; key and entry follow (OpenZFS: `ddt_log_record_t`).
    DdtLogRecord = "ddt_log_record_t", 8 {
        /// Bits 0–7 kind (1: entry), 8–23 length, 48–55 storage type, 56–63 storage class.
        0 => dlr_info: u64,
    }
    /// A vdev's block reference table: the bonus of its object (OpenZFS: `brt_vdev_phys_t`).
    BrtVdevPhys = "brt_vdev_phys_t", 56 {
        /// ZAP of reference counts by offset.
        0 => bvp_mos_entries: u64,
        /// Number of 16-bit counters in the object.
        8 => bvp_size: u64,
        /// Byte order of the counters; 0: little-endian.
        16 => bvp_byteorder: u64,
        24 => bvp_totalcount: u64,
        32 => bvp_rangesize: u64,
        40 => bvp_usedspace: u64,
        48 => bvp_savedspace: u64,
    }
}

/// Bytes of a vdev that one counter of the block reference table covers.
pub const BRT_RANGE_BYTES: u64 = 16 << 20;
/// Prefix of the names of the vdevs' block reference tables in the pool's directory.
pub const BRT_OBJECT_PREFIX: &str = "com.fudosecurity:brt:vdev:";

/// Classes of a dedup table's objects, in one of which an entry is (OpenZFS: `ddt_class_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod ddt_class {
    pub const DITTO: u8 = 0;
    pub const DUPLICATE: u8 = 1;
    pub const UNIQUE: u8 = 2;
    /// Names as they occur in object names.
    pub const NAMES: [&str; 3] = ["ditto", "duplicate", "unique"];
}

impl DdtKey {
    /// Logical bytes of the block.
    pub fn lsize(&self) -> usize {
        ((self.ddk_prop & 0xFFFF) as usize + 1) << 9
    }
    /// Physical bytes of the block.
    pub fn psize(&self) -> usize {
        ((self.ddk_prop >> 16 & 0xFFFF) as usize + 1) << 9
    }
    /// Compression of the block.
    pub fn compression(&self) -> Compression {
        Compression((self.ddk_prop >> 32 & 0x7F) as u8)
    }
    /// True for an encrypted block.
    pub fn is_encrypted(&self) -> bool {
        self.ddk_prop >> 39 & 1 != 0
    }
}
impl DdtLogHeader {
    /// Version of the log.
    pub fn version(&self) -> u8 {
        self.dlh_info as u8
    }
    /// Flags of the log.
    pub fn flags(&self) -> u8 {
        (self.dlh_info >> 8) as u8
    }
}
impl DdtLogRecord {
    /// 0 ends a block, 1 is an entry.
    pub fn kind(&self) -> u8 {
        self.dlr_info as u8
    }
    /// Bytes of the record.
    pub fn record_bytes(&self) -> usize {
        (self.dlr_info >> 8 & 0xFFFF) as usize
    }
    /// Storage class of an entry, see [`ddt_class`].
    pub fn class(&self) -> u8 {
        (self.dlr_info >> 56) as u8
    }
}
