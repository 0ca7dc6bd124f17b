//! What a provider can do: algorithm × level × size × alignment, one entry per thing that is tested and switched off by itself.
//!
//! There is one truth: an operation is offered when an entry covers it. DPUSM has two, bit masks and function pointers, which its
//! users mix up, and one bit per compression level, of which none are left.

use ondisk::{ByteOrder, Checksum, Compression};
use std::fmt;

/// The kinds of operations: what breakers and counters tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OpKind {
    /// Host memory to device memory.
    CopyIn,
    /// Device memory to host memory.
    CopyOut,
    /// Zeros into device memory.
    ZeroFill,
    /// Are all bytes zero?
    ZeroTest,
    /// Compression.
    Compress,
    /// Decompression.
    Decompress,
    /// Checksum.
    Checksum,
    /// RAID-Z parity of a row.
    RaidGenerate,
    /// Missing columns of a row.
    RaidReconstruct,
    /// Do two buffers differ?
    Compare,
    /// A write to a file or disk.
    Store,
    /// A flush of a file or disk.
    Flush,
    /// A read of a file or disk.
    Load,
    /// Allocation of device memory.
    Alloc,
}

impl OpKind {
    /// Every kind, in order.
    pub const ALL: [OpKind; 14] = [
        OpKind::CopyIn,
        OpKind::CopyOut,
        OpKind::ZeroFill,
        OpKind::ZeroTest,
        OpKind::Compress,
        OpKind::Decompress,
        OpKind::Checksum,
        OpKind::RaidGenerate,
        OpKind::RaidReconstruct,
        OpKind::Compare,
        OpKind::Store,
        OpKind::Flush,
        OpKind::Load,
        OpKind::Alloc,
    ];

    /// The kind of a name, as [`OpKind::name`] gives it.
    pub fn from_name(name: &str) -> Option<OpKind> {
        OpKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name in counters.
    pub fn name(self) -> &'static str {
        match self {
            OpKind::CopyIn => "copy_in",
            OpKind::CopyOut => "copy_out",
            OpKind::ZeroFill => "zero_fill",
            OpKind::ZeroTest => "zero_test",
            OpKind::Compress => "compress",
            OpKind::Decompress => "decompress",
            OpKind::Checksum => "checksum",
            OpKind::RaidGenerate => "raidz_gen",
            OpKind::RaidReconstruct => "raidz_rec",
            OpKind::Compare => "compare",
            OpKind::Store => "store",
            OpKind::Flush => "flush",
            OpKind::Load => "load",
            OpKind::Alloc => "alloc",
        }
    }
}

/// Kind of store that writes of a provider go to, and its reads come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// A file of a file system.
    File,
    /// A whole block device.
    Disk,
}

/// One thing that a provider can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Copies host memory in; `scatter`: also from several pieces at once (otherwise from one).
    CopyIn {
        /// True when it takes scatter lists.
        scatter: bool,
    },
    /// Copies device memory out; `scatter`: also to several pieces at once.
    CopyOut {
        /// True when it takes scatter lists.
        scatter: bool,
    },
    /// Writes zeros.
    ZeroFill,
    /// Looks for bytes that are not zero.
    ZeroTest,
    /// Compares two buffers.
    Compare,
    /// Compresses in the form that OpenZFS stores (`kernels::compress`), with zstd levels in their on-disk numbers; kinds
    /// without levels ignore them.
    Compress {
        /// Compression algorithm; each gzip level is one.
        kind: Compression,
        /// Lowest level of the algorithm.
        level_min: u8,
        /// Highest level of the algorithm.
        level_max: u8,
    },
    /// Decompresses what OpenZFS stores, at any level.
    Decompress {
        /// Compression algorithm.
        kind: Compression,
    },
    /// Computes a checksum as it stands in a block pointer.
    Checksum {
        /// Checksum algorithm.
        kind: Checksum,
        /// The byte order in which the data is read.
        order: ByteOrder,
    },
    /// Computes the parity columns of a row.
    RaidGenerate {
        /// Number of parity columns, 1 to 3.
        parity: u8,
        /// Most data columns.
        data_columns_max: u16,
    },
    /// Computes missing columns of a row.
    RaidReconstruct {
        /// Number of parity columns of the row, 1 to 3.
        parity: u8,
        /// Most data columns.
        data_columns_max: u16,
    },
    /// Writes to files or disks, and flushes them.
    Store {
        /// Kind of store.
        kind: StoreKind,
    },
    /// Reads from files or disks that it writes to, too.
    Load {
        /// Kind of store.
        kind: StoreKind,
    },
}

impl Feature {
    /// True for compression of this kind at a level.
    fn compresses(&self, kind: Compression, level: u8) -> bool {
        match *self {
            Feature::Compress { kind: own, level_min, level_max } => own == kind && level_is_in(kind, level, level_min, level_max),
            _ => false,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Feature::CopyIn { scatter: false } => f.write_str("copy in"),
            Feature::CopyIn { scatter: true } => f.write_str("copy in (scatter list)"),
            Feature::CopyOut { scatter: false } => f.write_str("copy out"),
            Feature::CopyOut { scatter: true } => f.write_str("copy out (scatter list)"),
            Feature::ZeroFill => f.write_str("zero fill"),
            Feature::ZeroTest => f.write_str("zero test"),
            Feature::Compare => f.write_str("compare"),
            Feature::Compress { kind, level_min, level_max } if *kind == Compression::ZSTD => {
                write!(f, "compress {kind} levels {level_min}-{level_max}")
            }
            Feature::Compress { kind, .. } => write!(f, "compress {kind}"),
            Feature::Decompress { kind } => write!(f, "decompress {kind}"),
            Feature::Checksum { kind, order: ByteOrder::Little } => write!(f, "checksum {kind}"),
            Feature::Checksum { kind, order: ByteOrder::Big } => write!(f, "checksum {kind} (big-endian)"),
            Feature::RaidGenerate { parity, .. } => write!(f, "raidz{parity} generate"),
            Feature::RaidReconstruct { parity, .. } => write!(f, "raidz{parity} reconstruct"),
            Feature::Store { kind: StoreKind::File } => f.write_str("file write"),
            Feature::Store { kind: StoreKind::Disk } => f.write_str("disk write"),
            Feature::Load { kind: StoreKind::File } => f.write_str("file read"),
            Feature::Load { kind: StoreKind::Disk } => f.write_str("disk read"),
        }
    }
}

/// Sizes of the operands that an operation takes, in bytes. Of several operands, each must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Fewest bytes of an operand.
    pub min_bytes: usize,
    /// Most bytes of an operand.
    pub max_bytes: usize,
    /// Bytes of which size and place in the buffer are multiples.
    pub align_bytes: usize,
}

impl Sizes {
    /// Operands of any size at any place.
    pub const ANY: Sizes = Sizes { min_bytes: 0, max_bytes: usize::MAX, align_bytes: 1 };

    /// True when an operand of `bytes` bytes at `offset` of its buffer may be given.
    pub fn admit(&self, offset: usize, bytes: usize) -> bool {
        let align = self.align_bytes.max(1);
        (self.min_bytes..=self.max_bytes).contains(&bytes) && bytes.is_multiple_of(align) && offset.is_multiple_of(align)
    }
}

/// A feature and the operands that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Feature that is offered.
    pub feature: Feature,
    /// Sizes of the operands for which it is.
    pub sizes: Sizes,
}

impl Capability {
    /// A feature for operands of any size.
    pub fn any(feature: Feature) -> Capability {
        Capability { feature, sizes: Sizes::ANY }
    }
}

/// Amount of work that a provider takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most graphs in flight.
    pub graphs_max: usize,
    /// Most bytes of operands of all graphs in flight.
    pub bytes_max: u64,
}

/// Capabilities and limits that a provider tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Capabilities, one for each feature.
    pub list: Vec<Capability>,
    /// Amount of work that it takes at a time.
    pub queue: QueueLimits,
}

impl Capabilities {
    /// Capabilities without those that are there once more.
    pub(crate) fn distinct(self) -> Capabilities {
        let mut list: Vec<Capability> = Vec::with_capacity(self.list.len());
        for capability in self.list {
            if !list.contains(&capability) {
                list.push(capability);
            }
        }
        Capabilities { list, queue: self.queue }
    }

    /// The entry for a feature exactly as given.
    pub fn find(&self, feature: &Feature) -> Option<&Capability> {
        self.list.iter().find(|capability| capability.feature == *feature)
    }

    /// True when blocks can be compressed so by somebody's wish for `kind` at `level`; sizes are looked at with each graph.
    pub fn compresses(&self, kind: Compression, level: u8) -> bool {
        self.list.iter().any(|capability| capability.feature.compresses(kind, level))
    }

    /// True when blocks of `bytes` bytes, at the start of a buffer, can be compressed so.
    pub fn compresses_block(&self, kind: Compression, level: u8, bytes: usize) -> bool {
        self.list.iter().any(|capability| capability.feature.compresses(kind, level) && capability.sizes.admit(0, bytes))
    }

    /// True when a feature is offered, exactly as given, for blocks of `bytes` bytes at the start of a buffer.
    pub fn serves_block(&self, feature: &Feature, bytes: usize) -> bool {
        self.list.iter().any(|capability| capability.feature == *feature && capability.sizes.admit(0, bytes))
    }
}

/// True when a level is in a range; kinds other than zstd have no level.
pub(crate) fn level_is_in(kind: Compression, level: u8, level_min: u8, level_max: u8) -> bool {
    kind != Compression::ZSTD || (level_min..=level_max).contains(&level)
}
