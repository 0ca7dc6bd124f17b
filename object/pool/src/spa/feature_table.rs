//! Every feature flag of OpenZFS 2.3 with its traits, and what this release can do with it (OpenZFS: `zfeature_common.c`).

/// Extent to which an active feature is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Pools that use it can be read and written.
    Full,
    /// Pools that use it can be imported read-only.
    Read,
    /// Pools that use it can't be imported.
    None,
}

/// One feature flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Guid of the feature, as pools record it.
    pub guid: &'static str,
    /// Short name of the feature, as `feature@` properties have it.
    pub name: &'static str,
    /// Purpose of the feature, as pools record it.
    pub description: &'static str,
    /// Software that doesn't know it may still import the pool read-only.
    pub read_only_compatible: bool,
    /// True when software must know the active feature to read the MOS, so that labels name it.
    pub needed_for_mos: bool,
    /// True when enabling the feature activates it.
    pub activate_on_enable: bool,
    /// True when new pools get the feature.
    pub on_new_pools: bool,
    /// Extent to which this release supports the active feature.
    pub support: Support,
    /// Guids of features that must be enabled with it.
    pub depends: &'static [&'static str],
}

const RO: u8 = 1;
const MOS: u8 = 2;
const ACT: u8 = 4;
const NEW: u8 = 8;

const fn row(
    guid: &'static str,
    name: &'static str,
    description: &'static str,
    traits: u8,
    support: Support,
    depends: &'static [&'static str],
) -> Feature {
    Feature {
        guid,
        name,
        description,
        read_only_compatible: traits & RO != 0,
        needed_for_mos: traits & MOS != 0,
        activate_on_enable: traits & ACT != 0,
        on_new_pools: traits & NEW != 0,
        support,
        depends,
    }
}

/// The features in OpenZFS's order.
pub const FEATURES: &[Feature] = &[
    row("com.delphix:async_destroy", "async_destroy", "Destroy filesystems asynchronously.", RO | NEW, Support::Full, &[]),
    row("com.delphix:empty_bpobj", "empty_bpobj", "Snapshots use less space.", RO | NEW, Support::Full, &[]),
    row("org.illumos:lz4_compress", "lz4_compress", "LZ4 compression algorithm support.", ACT | NEW, Support::Full, &[]),
    row("com.joyent:multi_vdev_crash_dump", "multi_vdev_crash_dump", "Crash dumps to multiple vdev pools.", NEW, Support::Full, &[]),
    row("com.delphix:spacemap_histogram", "spacemap_histogram", "Spacemaps maintain space histograms.", RO | NEW, Support::Full, &[]),
    row("com.delphix:enabled_txg", "enabled_txg", "Record txg at which a feature is enabled", RO | NEW, Support::Full, &[]),
    row(
        "com.delphix:hole_birth",
        "hole_birth",
        "Retain hole birth txg for more precise zfs send",
        MOS | ACT | NEW,
        Support::Full,
        &["com.delphix:enabled_txg"],
    ),
    row(
        "com.delphix:extensible_dataset",
        "extensible_dataset",
        "Enhanced dataset functionality, used by other features.",
        NEW,
        Support::Full,
        &[],
    ),
    row(
        "com.delphix:embedded_data",
        "embedded_data",
        "Blocks which compress very well use even less space.",
        MOS | ACT | NEW,
        Support::Full,
        &[],
    ),
    row("com.delphix:bookmarks", "bookmarks", "\"zfs bookmark\" command", RO | NEW, Support::Full, &["com.delphix:extensible_dataset"]),
    row(
        "com.joyent:filesystem_limits",
        "filesystem_limits",
        "Filesystem and snapshot limits.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "org.open-zfs:large_blocks",
        "large_blocks",
        "Support for blocks larger than 128KB.",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "org.zfsonlinux:large_dnode",
        "large_dnode",
        "Variable on-disk size of dnodes.",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row("org.illumos:sha512", "sha512", "SHA-512/256 hash algorithm.", NEW, Support::Full, &["com.delphix:extensible_dataset"]),
    row("org.illumos:skein", "skein", "Skein hash algorithm.", NEW, Support::Full, &["com.delphix:extensible_dataset"]),
    row("org.illumos:edonr", "edonr", "Edon-R hash algorithm.", NEW, Support::Full, &["com.delphix:extensible_dataset"]),
    row(
        "org.zfsonlinux:userobj_accounting",
        "userobj_accounting",
        "User/Group object accounting.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "com.datto:encryption",
        "encryption",
        "Support for dataset level encryption",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset", "com.datto:bookmark_v2"],
    ),
    row(
        "org.zfsonlinux:project_quota",
        "project_quota",
        "space/object accounting based on project ID.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "com.delphix:device_removal",
        "device_removal",
        "Top-level vdevs can be removed, reducing logical pool size.",
        MOS | NEW,
        Support::Full,
        &[],
    ),
    row(
        "com.delphix:obsolete_counts",
        "obsolete_counts",
        "Reduce memory used by removed devices when their blocks are freed or remapped.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset", "com.delphix:device_removal"],
    ),
    row(
        "com.delphix:zpool_checkpoint",
        "zpool_checkpoint",
        "Pool state can be checkpointed, allowing rewind later.",
        RO | NEW,
        Support::Full,
        &[],
    ),
    row(
        "com.delphix:spacemap_v2",
        "spacemap_v2",
        "Space maps representing large segments are more efficient.",
        RO | ACT | NEW,
        Support::Full,
        &[],
    ),
    row(
        "org.zfsonlinux:allocation_classes",
        "allocation_classes",
        "Support for separate allocation classes.",
        RO | NEW,
        Support::Full,
        &[],
    ),
    row(
        "com.datto:resilver_defer",
        "resilver_defer",
        "Support for deferring new resilvers when one is already running.",
        RO | NEW,
        Support::Full,
        &[],
    ),
    row(
        "com.datto:bookmark_v2",
        "bookmark_v2",
        "Support for larger bookmarks",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset", "com.delphix:bookmarks"],
    ),
    row(
        "com.delphix:redaction_bookmarks",
        "redaction_bookmarks",
        "Support for bookmarks which store redaction lists for zfs redacted send/recv.",
        NEW,
        Support::Full,
        &["com.datto:bookmark_v2", "com.delphix:extensible_dataset", "com.delphix:bookmarks"],
    ),
    row(
        "com.delphix:redacted_datasets",
        "redacted_datasets",
        "Support for redacted datasets, produced by receiving a redacted zfs send stream.",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "com.delphix:bookmark_written",
        "bookmark_written",
        "Additional accounting, enabling the written#<bookmark> property (space written since a bookmark), and estimates of send stream sizes for incrementals from bookmarks.",
        NEW,
        Support::Full,
        &["com.datto:bookmark_v2", "com.delphix:extensible_dataset", "com.delphix:bookmarks"],
    ),
    row(
        "com.delphix:log_spacemap",
        "log_spacemap",
        "Log metaslab changes on a single spacemap and flush them periodically.",
        RO,
        Support::Full,
        &["com.delphix:spacemap_v2"],
    ),
    row(
        "com.delphix:livelist",
        "livelist",
        "Improved clone deletion performance.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "org.openzfs:device_rebuild",
        "device_rebuild",
        "Support for sequential mirror/dRAID device rebuilds",
        RO | NEW,
        Support::Full,
        &[],
    ),
    row(
        "org.freebsd:zstd_compress",
        "zstd_compress",
        "zstd compression algorithm support.",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row("org.openzfs:draid", "draid", "Support for distributed spare RAID", MOS | NEW, Support::Full, &[]),
    row(
        "org.openzfs:zilsaxattr",
        "zilsaxattr",
        "Support for xattr=sa extended attribute logging in ZIL.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row("com.delphix:head_errlog", "head_errlog", "Support for per-dataset on-disk error logs.", ACT | NEW, Support::Full, &[]),
    row("org.openzfs:blake3", "blake3", "BLAKE3 hash algorithm.", NEW, Support::Full, &["com.delphix:extensible_dataset"]),
    row(
        "com.fudosecurity:block_cloning",
        "block_cloning",
        "Support for block cloning via Block Reference Table.",
        RO | NEW,
        Support::Full,
        &[],
    ),
    row("com.klarasystems:vdev_zaps_v2", "vdev_zaps_v2", "Support for root vdev ZAP.", MOS | NEW, Support::Full, &[]),
    row(
        "com.delphix:redaction_list_spill",
        "redaction_list_spill",
        "Support for increased number of redaction_snapshot arguments in zfs redact.",
        NEW,
        Support::Full,
        &["com.delphix:redaction_bookmarks"],
    ),
    row("org.openzfs:raidz_expansion", "raidz_expansion", "Support for raidz expansion", MOS | NEW, Support::Full, &[]),
    row("com.klarasystems:fast_dedup", "fast_dedup", "Support for advanced deduplication", RO, Support::Read, &[]),
    row(
        "org.zfsonlinux:longname",
        "longname",
        "support filename up to 1024 bytes",
        NEW,
        Support::Full,
        &["com.delphix:extensible_dataset"],
    ),
    row(
        "com.klarasystems:large_microzap",
        "large_microzap",
        "Support for microzaps larger than 128KB.",
        RO | NEW,
        Support::Full,
        &["com.delphix:extensible_dataset", "org.open-zfs:large_blocks"],
    ),
];

/// The feature with this guid.
pub fn feature_by_guid(guid: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.guid == guid)
}

/// The feature with this short name.
pub fn feature_by_name(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name == name)
}
