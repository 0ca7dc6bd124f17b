//! What the kernels are told: the structs of `kernels.cu`, field by field in the same order, and how many threads each kernel gets.
//!
//! All fields are 64-bit words, so there is no padding; addresses are those of device memory.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of an answer: four words.
pub const ANSWER_BYTES: usize = 32;
/// Bytes of a block that the threads of one block look through for matches together (LZ4_SEGMENT).
pub const LZ4_SEGMENT: usize = 8192;
/// Scratch memory of each segment, in bytes (LZ4_SCRATCH).
pub const LZ4_SCRATCH: usize = 64 + 8384;
/// Bytes that a stream may grow by when it is made ready for a library.
pub const UNWRAP_BYTES: usize = 16;
/// Most targets of a [`CombineJob`].
pub const TARGETS_MAX: usize = 3;

/// A checksum: fletcher2, fletcher4, sha256, and the sums of Adler-32.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct SumJob {
    /// Address of the bytes.
    pub data: u64,
    /// Number of bytes.
    pub length: u64,
    /// Byte order of the words; 1: big-endian.
    pub swap: u64,
    /// Address for the four words, which are zero before.
    pub answer: u64,
}

/// A comparison, or a test for zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct DifferJob {
    /// Address of the one's bytes.
    pub left: u64,
    /// Address of the other's bytes; 0: zeros.
    pub right: u64,
    /// Number of bytes.
    pub length: u64,
    /// Address of one word: 1 when they differ, else as it was.
    pub answer: u64,
}

/// A column of a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct Column {
    /// Address of the bytes.
    pub address: u64,
    /// Number of bytes; beyond them it counts as zeros.
    pub length: u64,
}

/// Parity of a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct RaidJob {
    /// Table of [`Column`], parity first.
    pub columns: u64,
    /// Number of columns.
    pub count: u64,
    /// Number of those that are parity.
    pub parities: u64,
    /// Bytes of each parity column.
    pub length: u64,
}

/// Sums of products over GF(2⁸): columns of a row from others, over a range of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct CombineJob {
    /// Table of [`Column`].
    pub sources: u64,
    /// Number of sources.
    pub source_count: u64,
    /// Table of 32-bit words, one for each source: its coefficient for each target, in bytes from the lowest.
    pub coefficients: u64,
    /// Addresses of the targets; 0 for none.
    pub targets: [u64; TARGETS_MAX],
    /// First byte of the range.
    pub start: u64,
    /// End of the range: after the last byte.
    pub end: u64,
}

/// Compression with LZ4, in three launches.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct PackJob {
    /// Address of the block.
    pub source: u64,
    /// Number of bytes of the block.
    pub length: u64,
    /// Address for the result.
    pub target: u64,
    /// Most bytes of the result.
    pub limit: u64,
    /// [`LZ4_SCRATCH`] bytes for each segment.
    pub scratch: u64,
    /// Address of one word: bytes of the result; 0: more than the limit.
    pub answer: u64,
}

/// Decompression of LZ4.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct UnpackJob {
    /// Address of what is stored.
    pub source: u64,
    /// Number of its bytes, padding included.
    pub length: u64,
    /// Address for the block.
    pub target: u64,
    /// Number of bytes of the block.
    pub target_length: u64,
    /// Address of one word: 1 when the block is there, 0 before.
    pub answer: u64,
}

/// Block that a library compressed, put into the form in which ZFS stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct WrapJob {
    /// Address of what the library made.
    pub body: u64,
    /// Address of its length.
    pub made: u64,
    /// Address of its status, in 32 bits: 0 when it is good.
    pub status: u64,
    /// Address of the sums of Adler-32 of the block; 0: this is zstd.
    pub sums: u64,
    /// Bytes of the block.
    pub length: u64,
    /// First word: for zlib the header; for zstd level and version.
    pub word: u64,
    /// Address for the result.
    pub target: u64,
    /// Most bytes of the result, at most as many as the block has.
    pub limit: u64,
    /// Address of two words: bytes of the result, 0: more than the limit; 1 when the library failed.
    pub answer: u64,
}

/// Stored block, made ready for a library's decompression, and what that gave looked at: two launches.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct UnwrapJob {
    /// Address of what is stored.
    pub source: u64,
    /// Number of its bytes, padding included.
    pub length: u64,
    /// Bytes of the block.
    pub target_length: u64,
    /// Room for what the library takes: as long as the source, and [`UNWRAP_BYTES`] more.
    pub body: u64,
    /// Address for the length of `body`.
    pub body_length: u64,
    /// Address for the number of bytes of the source that count; 0: it is malformed.
    pub end: u64,
    /// Address of the length that the library made.
    pub made: u64,
    /// Address of its status, in 32 bits: 0 when it is good.
    pub status: u64,
    /// Address of the sums of Adler-32 of the result; 0: this is zstd.
    pub sums: u64,
    /// Address of one word: 1 when the block is there, 0 before.
    pub answer: u64,
}

/// Kernels that jobs are launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kernel {
    /// Fletcher4 of a [`SumJob`].
    Fletcher4,
    /// Fletcher2 of a [`SumJob`].
    Fletcher2,
    /// SHA-256 of a [`SumJob`].
    Sha256,
    /// Comparison of a [`DifferJob`].
    Differ,
    /// Parity of a [`RaidJob`].
    RaidGenerate,
    /// Columns of a [`CombineJob`].
    RaidCombine,
    /// First launch of a [`PackJob`].
    Lz4Find,
    /// Second launch of a [`PackJob`].
    Lz4Layout,
    /// Third launch of a [`PackJob`].
    Lz4Emit,
    /// Decompression of an [`UnpackJob`].
    Lz4Decode,
    /// Sums of Adler-32 of a [`SumJob`].
    Adler32,
    /// Stored form of a [`WrapJob`].
    StreamWrap,
    /// Launch of an [`UnwrapJob`] before the library.
    StreamUnwrap,
    /// Launch of an [`UnwrapJob`] after the library.
    StreamConfirm,
}

/// Division of the threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x and y.
    pub blocks: [u32; 2],
    /// Threads of each block.
    pub threads: u32,
}

impl Kernel {
    /// Every kernel, in order.
    pub const ALL: [Kernel; 14] = [
        Kernel::Fletcher4,
        Kernel::Fletcher2,
        Kernel::Sha256,
        Kernel::Differ,
        Kernel::RaidGenerate,
        Kernel::RaidCombine,
        Kernel::Lz4Find,
        Kernel::Lz4Layout,
        Kernel::Lz4Emit,
        Kernel::Lz4Decode,
        Kernel::Adler32,
        Kernel::StreamWrap,
        Kernel::StreamUnwrap,
        Kernel::StreamConfirm,
    ];

    /// Name of the kernel in `kernels.cu`.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Fletcher4 => "fletcher4",
            Kernel::Fletcher2 => "fletcher2",
            Kernel::Sha256 => "sha256",
            Kernel::Differ => "differ",
            Kernel::RaidGenerate => "raid_generate",
            Kernel::RaidCombine => "raid_combine",
            Kernel::Lz4Find => "lz4_find",
            Kernel::Lz4Layout => "lz4_layout",
            Kernel::Lz4Emit => "lz4_emit",
            Kernel::Lz4Decode => "lz4_decode",
            Kernel::Adler32 => "adler32",
            Kernel::StreamWrap => "stream_wrap",
            Kernel::StreamUnwrap => "stream_unwrap",
            Kernel::StreamConfirm => "stream_confirm",
        }
    }

    /// The threads for `count` jobs, the longest of which is about `bytes` bytes.
    pub fn grid(self, count: usize, bytes: usize) -> Grid {
        let parts = |share: usize, most: usize| bytes.div_ceil(share).clamp(1, most) as u32;
        let jobs = |share: usize, most: usize| count.div_ceil(share).clamp(1, most) as u32;
        let (blocks, threads) = match self {
            // A thread sums some hundred bytes; more blocks than these would overflow the sums' factors.
            Kernel::Fletcher4 | Kernel::Fletcher2 | Kernel::Adler32 => ([parts(64 << 10, 64), jobs(1, 4096)], 256),
            Kernel::Differ | Kernel::RaidGenerate | Kernel::RaidCombine | Kernel::StreamWrap => ([parts(8 << 10, 256), jobs(1, 4096)], 256),
            // One thread for each job: few of them in a block, so that they are on all processors.
            Kernel::Sha256 | Kernel::Lz4Layout | Kernel::StreamConfirm => ([jobs(32, 4096), 1], 32),
            Kernel::Lz4Find => ([parts(LZ4_SEGMENT, 1024), jobs(1, 4096)], 32),
            Kernel::Lz4Emit => ([bytes.div_ceil(LZ4_SEGMENT).clamp(1, 1023) as u32 + 1, jobs(1, 4096)], 32),
            Kernel::Lz4Decode | Kernel::StreamUnwrap => ([jobs(1, 4096), 1], 256),
        };
        Grid { blocks, threads }
    }
}
