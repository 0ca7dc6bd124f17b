//! Feature bits of a stream's header, and the flags of its records (OpenZFS: `DMU_BACKUP_FEATURE_*`, `DRR_*` in `zfs_ioctl.h`).

/// Kind of a header (OpenZFS: `drr_headertype`): lowest two bits of `versioninfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderType {
    /// The changes of one dataset (OpenZFS: `DMU_SUBSTREAM`).
    Substream,
    /// A list of what follows, then substreams (OpenZFS: `DMU_COMPOUNDSTREAM`).
    Compound,
}

/// Bits of the header's type in `versioninfo`.
const HEADER_TYPE_BITS: u32 = 2;
/// Bits of features in `versioninfo`.
const FEATURE_BITS: u32 = 56;

/// Set of a stream's features, numbered as OpenZFS numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

#[allow(missing_docs, reason = "the standard's names")]
impl Features {
    pub const DEDUP: Features = Features(1 << 0);
    pub const DEDUP_PROPS: Features = Features(1 << 1);
    pub const SA_SPILL: Features = Features(1 << 2);
    pub const EMBED_DATA: Features = Features(1 << 16);
    pub const LZ4: Features = Features(1 << 17);
    pub const LARGE_BLOCKS: Features = Features(1 << 19);
    pub const RESUMING: Features = Features(1 << 20);
    pub const REDACTED: Features = Features(1 << 21);
    pub const COMPRESSED: Features = Features(1 << 22);
    pub const LARGE_DNODE: Features = Features(1 << 23);
    pub const RAW: Features = Features(1 << 24);
    pub const ZSTD: Features = Features(1 << 25);
    pub const HOLDS: Features = Features(1 << 26);
    pub const SWITCH_TO_LARGE_BLOCKS: Features = Features(1 << 27);
    pub const LONGNAME: Features = Features(1 << 28);
    pub const LARGE_MICROZAP: Features = Features(1 << 29);
}

impl Features {
    /// Names by which the bits are shown, lowest first.
    pub const NAMES: &'static [(Features, &'static str)] = &[
        (Features::DEDUP, "dedup"),
        (Features::DEDUP_PROPS, "dedupprops"),
        (Features::SA_SPILL, "sa_spill"),
        (Features::EMBED_DATA, "embed_data"),
        (Features::LZ4, "lz4"),
        (Features::LARGE_BLOCKS, "large_blocks"),
        (Features::RESUMING, "resuming"),
        (Features::REDACTED, "redacted"),
        (Features::COMPRESSED, "compressed"),
        (Features::LARGE_DNODE, "large_dnode"),
        (Features::RAW, "raw"),
        (Features::ZSTD, "zstd"),
        (Features::HOLDS, "holds"),
        (Features::SWITCH_TO_LARGE_BLOCKS, "switch_to_large_blocks"),
        (Features::LONGNAME, "longname"),
        (Features::LARGE_MICROZAP, "large_microzap"),
    ];

    /// True when every bit of `other` is set.
    pub fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
    /// The set with `other` added.
    #[must_use]
    pub fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
    /// The set with `other` added if `condition` holds.
    #[must_use]
    pub fn with_if(self, condition: bool, other: Features) -> Features {
        if condition { self.with(other) } else { self }
    }
    /// The set without those of `other`.
    #[must_use]
    pub fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }
    /// Bits that stand for no feature that this crate knows.
    pub fn unknown(self) -> u64 {
        Features::NAMES.iter().fold(self.0, |rest, (bit, _)| rest & !bit.0)
    }
    /// The word of a header: its type and these features (OpenZFS: `drr_versioninfo`).
    pub fn versioninfo(self, kind: HeaderType) -> u64 {
        let number = match kind {
            HeaderType::Substream => 1,
            HeaderType::Compound => 2,
        };
        number | (self.0 & ((1 << FEATURE_BITS) - 1)) << HEADER_TYPE_BITS
    }
    /// Features in the word of a header.
    pub fn of_versioninfo(versioninfo: u64) -> Features {
        Features(versioninfo >> HEADER_TYPE_BITS & ((1 << FEATURE_BITS) - 1))
    }
}

impl HeaderType {
    /// Type in the word of a header; None for one that nobody assigned.
    pub fn of_versioninfo(versioninfo: u64) -> Option<HeaderType> {
        match versioninfo & ((1 << HEADER_TYPE_BITS) - 1) {
            1 => Some(HeaderType::Substream),
            2 => Some(HeaderType::Compound),
            _ => None,
        }
    }
}

/// Flags of a [`crate::Begin`].
#[allow(missing_docs, reason = "the standard's names")]
pub mod begin_flags {
    pub const CLONE: u32 = 1;
    pub const CI_DATA: u32 = 2;
    /// FREE records are sent also where the receiver has nothing.
    pub const FREERECORDS: u32 = 4;
    /// Spill blocks are always sent, and marked where nothing changed.
    pub const SPILL_BLOCK: u32 = 8;
}

/// Flags of an [`crate::Object`].
pub mod object_flags {
    /// The object has a spill block (OpenZFS: `DRR_OBJECT_SPILL`).
    pub const SPILL: u8 = 4;
}

/// Flags of a [`crate::Spill`].
pub mod spill_flags {
    /// The receiver has the block already, unless its dnode changed (OpenZFS: `DRR_SPILL_UNMODIFIED`).
    pub const UNMODIFIED: u8 = 4;
}

/// Flags of a [`crate::Write`].
pub mod write_flags {
    /// The checksum tells different blocks apart (OpenZFS: `DRR_CHECKSUM_DEDUP`).
    pub const CHECKSUM_DEDUP: u8 = 1;
    /// The words of a raw block are of the other byte order (OpenZFS: `DRR_RAW_BYTESWAP`).
    pub const RAW_BYTESWAP: u8 = 2;
}
