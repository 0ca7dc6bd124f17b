//! The table of feature flags of OpenZFS 2.3 (`zfeature_common.c`): identity, dependencies and what an active feature means for others.
//!
//! A pool names features by guid; guids that are not in this table stay strings and are the pool's to refuse.

/// Reading works without knowing the feature.
pub const READONLY_COMPAT: u8 = 1 << 0;
/// Must be known to read even the MOS: also listed in the label.
pub const MOS: u8 = 1 << 1;
/// Active as soon as it is enabled.
pub const ACTIVATE_ON_ENABLE: u8 = 1 << 2;
/// Active when some dataset uses it; that dataset's ZAP names it too.
pub const PER_DATASET: u8 = 1 << 3;
/// Value in a dataset's ZAP that is an array of u64, not a mark.
pub const U64_ARRAY: u8 = 1 << 4;

/// Description of a feature.
#[derive(Clone, Copy, Debug)]
pub struct FeatureInfo {
    /// Name for users: `feature@NAME`.
    pub name: &'static str,
    /// Name in the pool.
    pub guid: &'static str,
    /// One line for users.
    pub description: &'static str,
    flags: u8,
    /// Features that are enabled with it.
    pub depends: &'static [Feature],
}
impl FeatureInfo {
    /// True when a pool that has it active can be read by software that does not know it.
    pub fn readonly_compat(&self) -> bool {
        self.flags & READONLY_COMPAT != 0
    }
    /// True when it is needed to read the MOS.
    pub fn mos(&self) -> bool {
        self.flags & MOS != 0
    }
    /// True when it is active as soon as it is enabled.
    pub fn activate_on_enable(&self) -> bool {
        self.flags & ACTIVATE_ON_ENABLE != 0
    }
    /// True when it is counted per dataset.
    pub fn per_dataset(&self) -> bool {
        self.flags & PER_DATASET != 0
    }
    /// True when its per-dataset value is an array of u64.
    pub fn is_u64_array(&self) -> bool {
        self.flags & U64_ARRAY != 0
    }
}

macro_rules! features {
    ($($name:ident, $guid:literal, $text:literal, [$($flag:ident),*], [$($depends:ident),*], $description:literal;)*) => {
        /// A feature flag that OpenZFS 2.3 knows, in its order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "described in the table")]
        pub enum Feature { $($name,)* }
        impl Feature {
            /// Every feature.
            pub const ALL: &'static [Feature] = &[$(Feature::$name),*];
            /// Row of the table.
            pub fn info(self) -> &'static FeatureInfo {
                const TABLE: &[FeatureInfo] = &[$(FeatureInfo {
                    name: $text,
                    guid: $guid,
                    description: $description,
                    flags: 0 $(| $flag)*,
                    depends: &[$(Feature::$depends),*],
                }),*];
                &TABLE[self as usize]
            }
        }
    };
}
features! {
    AsyncDestroy, "com.delphix:async_destroy", "async_destroy", [READONLY_COMPAT], [],
        "Datasets are destroyed in the background";
    EmptyBpobj, "com.delphix:empty_bpobj", "empty_bpobj", [READONLY_COMPAT], [],
        "Empty lists of blocks share one object";
    Lz4Compress, "org.illumos:lz4_compress", "lz4_compress", [ACTIVATE_ON_ENABLE], [],
        "LZ4 compression";
    MultiVdevCrashDump, "com.joyent:multi_vdev_crash_dump", "multi_vdev_crash_dump", [], [],
        "Crash dumps over several vdevs";
    SpacemapHistogram, "com.delphix:spacemap_histogram", "spacemap_histogram", [READONLY_COMPAT], [],
        "Space maps carry a histogram of free space";
    EnabledTxg, "com.delphix:enabled_txg", "enabled_txg", [READONLY_COMPAT], [],
        "The txg in which each feature was enabled is recorded";
    HoleBirth, "com.delphix:hole_birth", "hole_birth", [MOS, ACTIVATE_ON_ENABLE], [EnabledTxg],
        "Holes remember when they were made";
    ExtensibleDataset, "com.delphix:extensible_dataset", "extensible_dataset", [], [],
        "Datasets can carry further fields";
    EmbeddedData, "com.delphix:embedded_data", "embedded_data", [MOS, ACTIVATE_ON_ENABLE], [],
        "Very small blocks live in their block pointer";
    Bookmarks, "com.delphix:bookmarks", "bookmarks", [READONLY_COMPAT], [ExtensibleDataset],
        "Bookmarks of snapshots";
    FilesystemLimits, "com.joyent:filesystem_limits", "filesystem_limits", [READONLY_COMPAT], [ExtensibleDataset],
        "Limits on the number of file systems and snapshots";
    LargeBlocks, "org.open-zfs:large_blocks", "large_blocks", [PER_DATASET], [ExtensibleDataset],
        "Blocks of more than 128 KiB";
    LargeDnode, "org.zfsonlinux:large_dnode", "large_dnode", [PER_DATASET], [ExtensibleDataset],
        "Dnodes of more than 512 bytes";
    Sha512, "org.illumos:sha512", "sha512", [PER_DATASET], [ExtensibleDataset],
        "SHA-512/256 checksums";
    Skein, "org.illumos:skein", "skein", [PER_DATASET], [ExtensibleDataset],
        "Skein checksums";
    Edonr, "org.illumos:edonr", "edonr", [PER_DATASET], [ExtensibleDataset],
        "Edon-R checksums";
    UserobjAccounting, "org.zfsonlinux:userobj_accounting", "userobj_accounting", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset],
        "Objects are counted by user and group";
    Encryption, "com.datto:encryption", "encryption", [PER_DATASET], [ExtensibleDataset, BookmarkV2],
        "Encrypted datasets";
    ProjectQuota, "org.zfsonlinux:project_quota", "project_quota", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset],
        "Space and objects are accounted by project";
    DeviceRemoval, "com.delphix:device_removal", "device_removal", [MOS], [],
        "Top-level vdevs can be removed";
    ObsoleteCounts, "com.delphix:obsolete_counts", "obsolete_counts", [READONLY_COMPAT], [ExtensibleDataset, DeviceRemoval],
        "Mappings of removed vdevs shrink as blocks are freed";
    ZpoolCheckpoint, "com.delphix:zpool_checkpoint", "zpool_checkpoint", [READONLY_COMPAT], [],
        "A state of the whole pool can be kept to return to";
    SpacemapV2, "com.delphix:spacemap_v2", "spacemap_v2", [READONLY_COMPAT, ACTIVATE_ON_ENABLE], [],
        "Compact space map entries for large runs";
    AllocationClasses, "org.zfsonlinux:allocation_classes", "allocation_classes", [READONLY_COMPAT], [],
        "Vdevs for metadata, small blocks and dedup tables";
    ResilverDefer, "com.datto:resilver_defer", "resilver_defer", [READONLY_COMPAT], [],
        "A new resilver waits for the one that runs";
    BookmarkV2, "com.datto:bookmark_v2", "bookmark_v2", [], [ExtensibleDataset, Bookmarks],
        "Bookmarks with more fields";
    RedactionBookmarks, "com.delphix:redaction_bookmarks", "redaction_bookmarks", [], [BookmarkV2, ExtensibleDataset, Bookmarks],
        "Bookmarks that hold lists of redacted blocks";
    RedactedDatasets, "com.delphix:redacted_datasets", "redacted_datasets", [PER_DATASET, U64_ARRAY], [ExtensibleDataset],
        "Datasets received with parts left out";
    BookmarkWritten, "com.delphix:bookmark_written", "bookmark_written", [], [BookmarkV2, ExtensibleDataset, Bookmarks],
        "Space written since a bookmark is known";
    LogSpacemap, "com.delphix:log_spacemap", "log_spacemap", [READONLY_COMPAT], [SpacemapV2],
        "Metaslab changes go to one log before their space maps";
    Livelist, "com.delphix:livelist", "livelist", [READONLY_COMPAT], [ExtensibleDataset],
        "Clones are destroyed in time proportional to their changes";
    DeviceRebuild, "org.openzfs:device_rebuild", "device_rebuild", [READONLY_COMPAT], [],
        "Sequential rebuild of mirrors and dRAID";
    ZstdCompress, "org.freebsd:zstd_compress", "zstd_compress", [PER_DATASET], [ExtensibleDataset],
        "Zstandard compression";
    Draid, "org.openzfs:draid", "draid", [MOS], [],
        "Distributed-spare RAID";
    Zilsaxattr, "org.openzfs:zilsaxattr", "zilsaxattr", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset],
        "Extended attributes in the intent log";
    HeadErrlog, "com.delphix:head_errlog", "head_errlog", [ACTIVATE_ON_ENABLE], [],
        "Error logs per dataset";
    Blake3, "org.openzfs:blake3", "blake3", [PER_DATASET], [ExtensibleDataset],
        "BLAKE3 checksums";
    BlockCloning, "com.fudosecurity:block_cloning", "block_cloning", [READONLY_COMPAT], [],
        "Blocks shared by several files";
    VdevZapsV2, "com.klarasystems:vdev_zaps_v2", "vdev_zaps_v2", [MOS], [],
        "A ZAP for the root vdev";
    RedactionListSpill, "com.delphix:redaction_list_spill", "redaction_list_spill", [], [RedactionBookmarks],
        "Redaction bookmarks of more snapshots";
    RaidzExpansion, "org.openzfs:raidz_expansion", "raidz_expansion", [MOS], [],
        "RAID-Z vdevs can be widened";
    FastDedup, "com.klarasystems:fast_dedup", "fast_dedup", [READONLY_COMPAT], [],
        "Dedup tables with a log, quota and pruning";
    Longname, "org.zfsonlinux:longname", "longname", [PER_DATASET], [ExtensibleDataset],
        "File names of up to 1023 bytes";
    LargeMicrozap, "com.klarasystems:large_microzap", "large_microzap", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset, LargeBlocks],
        "Micro ZAPs of more than 128 KiB";
}

impl Feature {
    /// Returns the feature of a name in the pool.
    pub fn from_guid(guid: &str) -> Option<Feature> {
        Feature::ALL.iter().copied().find(|feature| feature.info().guid == guid)
    }
    /// Returns the feature of a name for users, without `feature@`.
    pub fn from_name(name: &str) -> Option<Feature> {
        Feature::ALL.iter().copied().find(|feature| feature.info().name == name)
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureSet(u64);
impl FeatureSet {
    /// No feature.
    pub const EMPTY: FeatureSet = FeatureSet(0);
    /// Every feature.
    pub fn all() -> FeatureSet {
        Feature::ALL.iter().copied().collect()
    }
    /// True when it contains `feature`.
    pub fn contains(self, feature: Feature) -> bool {
        self.0 >> (feature as u8) & 1 != 0
    }
    /// Adds `feature`.
    pub fn insert(&mut self, feature: Feature) {
        self.0 |= 1 << (feature as u8);
    }
    /// Removes `feature`.
    pub fn remove(&mut self, feature: Feature) {
        self.0 &= !(1 << (feature as u8));
    }
    /// The features in order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |&feature| self.contains(feature))
    }
    /// Adds everything that its features depend on.
    #[must_use]
    pub fn with_dependencies(mut self) -> FeatureSet {
        loop {
            let more: FeatureSet = self.iter().flat_map(|feature| feature.info().depends.iter().copied()).collect();
            if self.0 | more.0 == self.0 {
                return self;
            }
            self.0 |= more.0;
        }
    }
}
impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> FeatureSet {
        let mut set = FeatureSet::EMPTY;
        features.into_iter().for_each(|feature| set.insert(feature));
        set
    }
}
