//! Guids of the pool features that datasets take part in (OpenZFS: `zfeature_common.c`).

use ondisk::{BlockPtr, Checksum, Compression};

/// Destroyed datasets are freed in the background.
pub const ASYNC_DESTROY: &str = "com.delphix:async_destroy";
/// Empty lists of block pointers share one object.
pub const EMPTY_BPOBJ: &str = "com.delphix:empty_bpobj";
/// Dataset and directory objects may carry a ZAP.
pub const EXTENSIBLE_DATASET: &str = "com.delphix:extensible_dataset";
/// Blocks above 128 KiB.
pub const LARGE_BLOCKS: &str = "org.open-zfs:large_blocks";
/// Dnodes above 512 bytes.
pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
/// SHA-512/256 checksums.
pub const SHA512: &str = "org.illumos:sha512";
/// Skein checksums.
pub const SKEIN: &str = "org.illumos:skein";
/// Edon-R checksums.
pub const EDONR: &str = "org.illumos:edonr";
/// BLAKE3 checksums.
pub const BLAKE3: &str = "org.openzfs:blake3";
/// lz4 compression.
pub const LZ4_COMPRESS: &str = "org.illumos:lz4_compress";
/// zstd compression.
pub const ZSTD_COMPRESS: &str = "org.freebsd:zstd_compress";
/// Objects are counted per user and group.
pub const USEROBJ_ACCOUNTING: &str = "org.zfsonlinux:userobj_accounting";
/// Space and objects are counted per project.
pub const PROJECT_QUOTA: &str = "org.zfsonlinux:project_quota";
/// Encrypted datasets.
pub const ENCRYPTION: &str = "com.datto:encryption";
/// Redacted datasets.
pub const REDACTED_DATASETS: &str = "com.delphix:redacted_datasets";
/// Micro ZAPs above 128 KiB.
pub const LARGE_MICROZAP: &str = "com.klarasystems:large_microzap";
/// The intent log records extended attributes kept as system attributes.
pub const ZILSAXATTR: &str = "org.openzfs:zilsaxattr";
/// Names of files above 255 bytes.
pub const LONGNAME: &str = "org.zfsonlinux:longname";
/// Bookmarks; active once for each dataset that has some.
pub const BOOKMARKS: &str = "com.delphix:bookmarks";
/// Bookmarks whose record is longer than the first version's; active once for each of them.
pub const BOOKMARK_V2: &str = "com.datto:bookmark_v2";
/// Bookmarks that count what is freed behind them; active once for each of them.
pub const BOOKMARK_WRITTEN: &str = "com.delphix:bookmark_written";
/// Bookmarks that have a list of what was redacted; active once for each of them.
pub const REDACTION_BOOKMARKS: &str = "com.delphix:redaction_bookmarks";
/// Such lists of more snapshots than a bonus has room for; active once for each of them.
pub const REDACTION_LIST_SPILL: &str = "com.delphix:redaction_list_spill";
/// Livelists of clones; active once for each of them.
pub const LIVELIST: &str = "com.delphix:livelist";
/// Limits on the number of file systems and snapshots.
pub const FS_SS_LIMIT: &str = "com.joyent:filesystem_limits";

/// Features that a dataset's ZAP may list (OpenZFS: `ZFEATURE_FLAG_PER_DATASET`); a dataset's place in the pool's count.
pub const PER_DATASET: &[&str] = &[
    LARGE_BLOCKS,
    LARGE_DNODE,
    SHA512,
    SKEIN,
    EDONR,
    BLAKE3,
    ZSTD_COMPRESS,
    USEROBJ_ACCOUNTING,
    PROJECT_QUOTA,
    ENCRYPTION,
    REDACTED_DATASETS,
    LARGE_MICROZAP,
    LONGNAME,
    ZILSAXATTR,
];

/// Index of `guid` in [`PER_DATASET`] as a bit.
pub(crate) fn bit(guid: &str) -> u32 {
    PER_DATASET.iter().position(|known| *known == guid).map_or(0, |index| 1 << index)
}

/// The features that a dataset needs once it has this block, as bits.
pub(crate) fn bits_of_block(bp: &BlockPtr) -> u32 {
    const LARGE: u32 = 1;
    let mut bits = 0;
    if bp.lsize() > 128 << 10 {
        bits |= LARGE;
    }
    if !bp.is_embedded() {
        bits |= match bp.checksum_kind() {
            Checksum::SHA512 => 1 << 2,
            Checksum::SKEIN => 1 << 3,
            Checksum::EDONR => 1 << 4,
            Checksum::BLAKE3 => 1 << 5,
            _ => 0,
        };
    }
    if bp.compression() == Compression::ZSTD {
        bits |= 1 << 6;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong bit activates the wrong feature: the pool would be refused, or opened by code that cannot read it.
    #[test]
    fn bits_match_the_table() {
        assert_eq!((bit(LARGE_BLOCKS), bit(SHA512), bit(SKEIN), bit(EDONR)), (1, 1 << 2, 1 << 3, 1 << 4));
        assert_eq!((bit(BLAKE3), bit(ZSTD_COMPRESS), bit("unknown")), (1 << 5, 1 << 6, 0));
    }
}
