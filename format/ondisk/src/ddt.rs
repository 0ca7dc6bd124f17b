//! Dedup tables and the block reference table (OpenZFS: `ddt.h`, `ddt_impl.h`, `brt_impl.h`).
//!
//! Dedup entries are ZAP values: one byte (bits 0–6 compression, bit 7 little-endian) and the entry, compressed with ZLE.

use crate::record::{ByteOrder, record};
use crate::{BlockPtr, Checksum, Compression, Dva, ObjectType, SECTOR_BYTES, Txg};

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

/// Algorithms whose blocks have traditional tables, with their names in those of the tables. Others come from pools of long ago.
pub const DDT_CHECKSUMS: [(Checksum, &str); 5] = [
    (Checksum::SHA256, "sha256"),
    (Checksum::SHA512, "sha512"),
    (Checksum::SKEIN, "skein"),
    (Checksum::EDONR, "edonr"),
    (Checksum::BLAKE3, "blake3"),
];

/// Name in the pool's directory of a traditional table's object; None for an algorithm without tables (OpenZFS: `ddt_object_name`).
pub fn ddt_object_name(checksum: Checksum, class: u8) -> Option<String> {
    let (_, name) = DDT_CHECKSUMS.iter().find(|(known, _)| *known == checksum)?;
    let class = ddt_class::NAMES.get(usize::from(class))?;
    Some(format!("DDT-{name}-zap-{class}"))
}

/// Bit of the first byte of a stored entry that says little-endian.
pub const DDT_VALUE_LITTLE_ENDIAN: u8 = 0x80;

impl DdtPhysTrad {
    /// The addresses; an empty one is none.
    pub fn dvas(&self) -> [Dva; 3] {
        let dva = |copy: usize| Dva::from_words([self.ddp_dva[2 * copy], self.ddp_dva[2 * copy + 1]]);
        [dva(0), dva(1), dva(2)]
    }
    /// Number of copies; the third address of an encrypted block is none (OpenZFS: `ddt_phys_dva_count`).
    pub fn copies(&self, is_encrypted: bool) -> usize {
        self.dvas().iter().take(if is_encrypted { 2 } else { 3 }).filter(|dva| !dva.is_empty()).count()
    }
    /// Variant of a block that was just written: its addresses and its birth, referenced once (OpenZFS: `ddt_phys_extend`).
    pub fn of(bp: &BlockPtr) -> DdtPhysTrad {
        let mut ddp_dva = [0; 6];
        for (copy, words) in ddp_dva.chunks_exact_mut(2).enumerate() {
            words.copy_from_slice(&bp.dva(copy).to_words());
        }
        DdtPhysTrad { ddp_dva, ddp_refcnt: 1, ddp_phys_birth: bp.physical_birth().0 }
    }
}

impl DdtTradEntry {
    /// Index of the variant that a pointer refers to, by address and birth; None when it refers to no variant (OpenZFS: `ddt_phys_select`).
    pub fn variant_of(&self, bp: &BlockPtr) -> Option<usize> {
        let birth = bp.physical_birth().0;
        self.ddp_trad.iter().position(|phys| phys.ddp_phys_birth == birth && birth != 0 && phys.dvas()[0] == bp.dva(0))
    }
    /// References of all variants but the obsolete one (OpenZFS: `ddt_phys_total_refcnt`).
    pub fn references(&self) -> u64 {
        self.ddp_trad.iter().skip(1).fold(0, |sum, phys| sum.saturating_add(phys.ddp_refcnt))
    }
    /// Decodes an entry whose bytes were decompressed, in the order that the first byte of its value says.
    ///
    /// # Errors
    /// [`crate::record::ShortRecord`] for too few bytes.
    pub fn decode_stored(bytes: &[u8], version: u8) -> Result<DdtTradEntry, crate::record::ShortRecord> {
        DdtTradEntry::decode_order(bytes, ByteOrder::from_little(version & DDT_VALUE_LITTLE_ENDIAN != 0))
    }
}

impl DdtStat {
    /// Adds what another has.
    pub fn add(&mut self, other: &DdtStat) {
        self.combine(other, u64::saturating_add);
    }
    /// Takes away what another has; sums of a damaged table stay at 0.
    pub fn sub(&mut self, other: &DdtStat) {
        self.combine(other, u64::saturating_sub);
    }
    fn combine(&mut self, other: &DdtStat, with: fn(u64, u64) -> u64) {
        let words = self.words().into_iter().zip(other.words()).map(|(left, right)| with(left, right));
        let mut all = [0; 8];
        all.iter_mut().zip(words).for_each(|(word, sum)| *word = sum);
        *self = DdtStat::of_words(&all);
    }
    /// The fields in their order, as histograms have them.
    pub fn words(&self) -> [u64; 8] {
        [
            self.dds_blocks,
            self.dds_lsize,
            self.dds_psize,
            self.dds_dsize,
            self.dds_ref_blocks,
            self.dds_ref_lsize,
            self.dds_ref_psize,
            self.dds_ref_dsize,
        ]
    }
    /// The sums of these fields.
    pub fn of_words(words: &[u64; 8]) -> DdtStat {
        let [dds_blocks, dds_lsize, dds_psize, dds_dsize, dds_ref_blocks, dds_ref_lsize, dds_ref_psize, dds_ref_dsize] = *words;
        DdtStat { dds_blocks, dds_lsize, dds_psize, dds_dsize, dds_ref_blocks, dds_ref_lsize, dds_ref_psize, dds_ref_dsize }
    }
}

impl DdtKey {
    /// Key of a block with this checksum, these logical and physical bytes and this compression (OpenZFS: `ddt_key_fill`).
    pub fn new(ddk_cksum: [u64; 4], (lsize, psize): (usize, usize), compression: Compression) -> DdtKey {
        let sectors = |bytes: usize| ((bytes / SECTOR_BYTES) as u64).saturating_sub(1) & 0xFFFF;
        DdtKey { ddk_cksum, ddk_prop: sectors(lsize) | sectors(psize) << 16 | u64::from(compression.0 & 0x7F) << 32 }
    }
    /// Key of the block that a pointer leads to.
    pub fn of(bp: &BlockPtr) -> DdtKey {
        let mut key = DdtKey::new(bp.checksum(), (bp.lsize(), bp.psize()), bp.compression());
        key.ddk_prop |= u64::from(bp.uses_crypt()) << 39;
        key
    }
    /// Key that a table has in these words; None for another number of them.
    pub fn of_words(words: &[u64]) -> Option<DdtKey> {
        let [a, b, c, d, ddk_prop] = *<&[u64; 5]>::try_from(words).ok()?;
        Some(DdtKey { ddk_cksum: [a, b, c, d], ddk_prop })
    }
    /// Words by which tables have the key.
    pub fn words(&self) -> [u64; 5] {
        let [a, b, c, d] = self.ddk_cksum;
        [a, b, c, d, self.ddk_prop]
    }
    /// Pointer to the block, without the mark of dedup: whoever frees it frees the space (OpenZFS: `ddt_bp_create`, `ddt_phys_free`).
    pub fn pointer(&self, checksum: Checksum, phys: &DdtPhysTrad) -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_lsize(self.lsize());
        bp.set_psize(self.psize());
        bp.set_compression(self.compression());
        bp.set_checksum_kind(checksum);
        bp.set_object_type(ObjectType::DEDUP);
        bp.set_uses_crypt(self.is_encrypted());
        bp.set_little_endian(true);
        bp.set_birth(Txg(phys.ddp_phys_birth), Txg(phys.ddp_phys_birth));
        bp.set_fill(1);
        bp.set_checksum(self.ddk_cksum);
        for (copy, dva) in phys.dvas().into_iter().enumerate() {
            bp.set_dva(copy, dva);
        }
        bp
    }
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

#[cfg(test)]
mod tests;
