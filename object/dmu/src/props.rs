//! The properties of an object set that decide how its blocks are written, and the policy itself.
//!
//! OpenZFS: `dmu_write_policy` (`dmu.c`), `zio_checksum_select`, `zio_compress_select`.

use crate::{Dedup, Keep};
use ondisk::names::spa_version;
use ondisk::{Checksum, Compression, OBJSET_BYTES, OBJSET_BYTES_V1, ObjectType};

/// Extent to which metadata gets an extra copy (OpenZFS: `zfs_redundant_metadata_type_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedundantMetadata {
    /// All metadata.
    #[default]
    All,
    /// All but the lowest indirect blocks.
    Most,
    /// Critical metadata only.
    Some,
    /// No metadata.
    None,
}

/// The `sync` property (OpenZFS: `zfs_sync_type_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Operations are synchronous as the application asks.
    #[default]
    Standard,
    /// Every operation is synchronous.
    Always,
    /// No operation is.
    Disabled,
}

/// The `primarycache` property (OpenZFS: `zfs_cache_type_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrimaryCache {
    /// Data and metadata.
    #[default]
    All,
    /// Metadata only.
    Metadata,
    /// Neither data nor metadata.
    None,
}

impl PrimaryCache {
    /// Time that a block may stay (OpenZFS: `DBUF_IS_CACHEABLE`). Data is let go of by those who read it in parts.
    pub fn keep(self, is_metadata: bool) -> Keep {
        match (self, is_metadata) {
            (PrimaryCache::All, _) | (PrimaryCache::Metadata, true) => Keep::Kept,
            (PrimaryCache::Metadata | PrimaryCache::None, false) => Keep::Lingers,
            (PrimaryCache::None, true) => Keep::Once,
        }
    }
    /// True when data may stay.
    pub fn keeps_data(self) -> bool {
        self == PrimaryCache::All
    }
}

/// The values of one object set; replaced as a whole with [`crate::Objset::set_props`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjsetProps {
    /// Checksum of data.
    pub checksum: Checksum,
    /// Compression of data.
    pub compression: Compression,
    /// Level of zstd as on disk; 0 takes the default.
    pub zstd_level: u8,
    /// Copies of data: 1–3.
    pub copies: u8,
    /// Most copies of any block: 3, or 1 on pools that don't replicate metadata (OpenZFS: `spa_max_replication`).
    pub copies_max: u8,
    /// Stored bytes up to which blocks of files lie where metadata does, 0 for none: the `special_small_blocks` property.
    pub small_bytes: usize,
    /// Extent to which equal blocks of data are stored once, and the checksum of data then; `OFF` where they are not: the `dedup` property.
    pub dedup: (Dedup, Checksum),
    /// Extra copies of metadata.
    pub redundant_metadata: RedundantMetadata,
    /// Block size of new files in bytes.
    pub record_size: usize,
    /// Bytes of new dnodes, 0 for the legacy 512.
    pub dnode_size: usize,
    /// True when the pool's `hole_birth` feature is active: freed blocks leave a hole with its birth.
    pub hole_birth: bool,
    /// Compression of metadata: lz4, or lzjb on pools without the feature.
    pub metadata_compression: Compression,
    /// The `sync` property.
    pub sync: SyncMode,
    /// True when the intent log leaves log devices to others: `logbias=throughput`.
    pub spares_log_devices: bool,
    /// Blocks that may stay in the cache: the `primarycache` property.
    pub primary_cache: PrimaryCache,
    /// True when micro ZAPs may have more than 128 KiB: the pool has the feature `large_microzap`.
    pub large_micro_zaps: bool,
    /// Bytes of the block of an object set: those of old pools have no room for accounts (OpenZFS: `OBJSET_PHYS_SIZE_V1`).
    pub objset_bytes: usize,
    /// True when dnodes of the pool count their space in sectors, not in bytes: before version 3 (OpenZFS: `SPA_VERSION_DNODE_BYTES`).
    pub counts_sectors: bool,
}

impl Default for ObjsetProps {
    /// A new file system's: fletcher4, lz4, one copy, 128 KiB records.
    fn default() -> Self {
        ObjsetProps {
            checksum: Checksum::FLETCHER_4,
            compression: Compression::LZ4,
            zstd_level: 0,
            copies: 1,
            copies_max: 3,
            small_bytes: 0,
            dedup: (Dedup::Off, Checksum::OFF),
            redundant_metadata: RedundantMetadata::All,
            record_size: 128 << 10,
            dnode_size: 0,
            hole_birth: true,
            metadata_compression: Compression::LZ4,
            sync: SyncMode::Standard,
            spares_log_devices: false,
            primary_cache: PrimaryCache::All,
            large_micro_zaps: false,
            objset_bytes: OBJSET_BYTES,
            counts_sectors: false,
        }
    }
}

impl ObjsetProps {
    /// The meta object set's: three copies of everything (OpenZFS: `dmu_objset_open_impl` without a dataset).
    pub fn mos() -> Self {
        ObjsetProps { copies: 3, compression: Compression::LZ4, ..Self::default() }
    }

    /// Properties as object sets of pools of a version can have them: older ones have neither copies of metadata, nor lz4 and holes with births, nor accounts.
    pub fn of_version(self, version: u64) -> Self {
        let has_features = version >= spa_version::FEATURES;
        ObjsetProps {
            copies_max: if version < spa_version::DITTO_BLOCKS { 1 } else { self.copies_max },
            hole_birth: has_features && self.hole_birth,
            metadata_compression: if has_features { self.metadata_compression } else { Compression::LZJB },
            objset_bytes: if version < spa_version::USERSPACE { OBJSET_BYTES_V1 } else { self.objset_bytes },
            counts_sectors: version < spa_version::DNODE_BYTES,
            ..self
        }
    }

    /// True when the object set has room for what users and groups use.
    pub fn has_accounts(&self) -> bool {
        self.objset_bytes > OBJSET_BYTES_V1
    }
}

/// Facts of a block that the write policy depends on besides the properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockKind {
    pub object_type: ObjectType,
    pub level: u8,
    pub spill: bool,
    /// The dnode's own choices; `INHERIT` takes the object set's.
    pub checksum: Checksum,
    pub compression: Compression,
}

/// Checksum, compression, copies and place to write one block with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WritePolicy {
    pub checksum: Checksum,
    pub compression: Compression,
    pub zstd_level: u8,
    pub copies: u8,
    pub small_bytes: usize,
    /// Extent to which an equal block may take its place when the block is written by a sync.
    pub dedup: Dedup,
}

/// Algorithms strong enough for metadata (OpenZFS: `ZCHECKSUM_FLAG_METADATA`, `zio_checksum_table`).
fn suits_metadata(checksum: Checksum) -> bool {
    matches!(checksum, Checksum::FLETCHER_4 | Checksum::SHA256 | Checksum::SHA512 | Checksum::SKEIN | Checksum::EDONR | Checksum::BLAKE3)
}

/// Metadata that `redundant_metadata=some` protects (OpenZFS: `DMU_OT_IS_CRITICAL`): what losing would lose the object set.
fn is_critical(kind: ObjectType) -> bool {
    kind.is_metadata() && kind != ObjectType::DNODE && kind != ObjectType::DIRECTORY_CONTENTS && kind != ObjectType::SA
}

fn select_compression(own: Compression, inherited: Compression, on: Compression) -> Compression {
    let chosen = if own == Compression::INHERIT { inherited } else { own };
    if chosen == Compression::ON { on } else { chosen }
}

fn select_checksum(own: Checksum, inherited: Checksum) -> Checksum {
    let chosen = if own == Checksum::INHERIT { inherited } else { own };
    if chosen == Checksum::ON { Checksum::FLETCHER_4 } else { chosen }
}

/// The policy of OpenZFS's `dmu_write_policy` without encryption: blocks that are protected are not looked up, which the store sees to.
pub(crate) fn write_policy(props: &ObjsetProps, block: BlockKind) -> WritePolicy {
    let is_metadata = block.level > 0 || block.object_type.is_metadata() || block.spill;
    let mut copies = props.copies;
    if !is_metadata {
        let (dedup, strong) = props.dedup;
        return WritePolicy {
            checksum: if dedup == Dedup::Off { select_checksum(block.checksum, props.checksum) } else { strong },
            compression: select_compression(block.compression, props.compression, props.metadata_compression),
            zstd_level: props.zstd_level,
            copies: copies.clamp(1, props.copies_max),
            small_bytes: props.small_bytes,
            dedup,
        };
    }
    let inherited = select_checksum(Checksum::INHERIT, props.checksum);
    let extra = match props.redundant_metadata {
        RedundantMetadata::All => true,
        RedundantMetadata::Most => block.level >= 2 || block.object_type.is_metadata() || block.spill,
        RedundantMetadata::Some => is_critical(block.object_type),
        RedundantMetadata::None => false,
    };
    copies += u8::from(extra);
    WritePolicy {
        checksum: if suits_metadata(inherited) { inherited } else { Checksum::FLETCHER_4 },
        compression: props.metadata_compression,
        zstd_level: 0,
        copies: copies.clamp(1, props.copies_max),
        small_bytes: 0,
        dedup: Dedup::Off,
    }
}
