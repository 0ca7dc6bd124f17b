//! What a caller asks of the pipeline: read and write requests with their options.

use crate::dedup::Dedup;
use crate::{Priority, ZioError};
use abd::Abd;
use crypt::Seal;
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, ObjectType, Txg};

/// Options of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFlags {
    /// True to deliver the physical bytes (still compressed) after they were verified (OpenZFS: `ZIO_FLAG_RAW_COMPRESS`).
    pub raw: bool,
    /// True to read and verify every copy and all parity, and repair what is wrong (OpenZFS: `ZIO_FLAG_SCRUB`).
    pub scrub: bool,
    /// True to also rewrite copies on leaves whose DTL lacks this txg (OpenZFS: `ZIO_FLAG_RESILVER`).
    pub resilver: bool,
    /// True when a failure is expected: count no error, post no event, never suspend (OpenZFS: `ZIO_FLAG_SPECULATIVE`).
    pub speculative: bool,
}

/// Receives the bytes of a block, or why there are none. Runs once, on any thread, and must not wait.
pub type ReadThen = Box<dyn FnOnce(Result<Abd, ZioError>) + Send>;

/// Place at which the bytes of [`crate::Zio::read_into`] ended up.
#[derive(Clone, Debug)]
pub enum Landed {
    /// Bytes in the caller's memory, as a buffer over it.
    InPlace(Abd),
    /// Bytes in a buffer of their own; the caller's memory holds anything.
    Elsewhere(Abd),
}

impl Landed {
    /// The block's logical bytes, wherever they are.
    pub fn into_abd(self) -> Abd {
        match self {
            Landed::InPlace(data) | Landed::Elsewhere(data) => data,
        }
    }
}

/// Receives a block that was read into the caller's memory, or near it. Runs once, on any thread, and must not wait.
pub type LandedThen = Box<dyn FnOnce(Result<Landed, ZioError>) + Send>;

/// Receives the outcome of something without a value. Runs once, on any thread, and must not wait.
pub type UnitThen = Box<dyn FnOnce(Result<(), ZioError>) + Send>;

/// Receives the block pointer of what was written. Runs once, on any thread, and must not wait.
pub type WriteThen = Box<dyn FnOnce(Result<BlockPtr, ZioError>) + Send>;

/// A read of one block.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// Pointer to the block: where it is, and what it must hash to.
    pub bp: BlockPtr,
    /// Bookmark of the block, for errors and events.
    pub bookmark: Bookmark,
    /// Urgency of the read.
    pub priority: Priority,
    /// Options of the read.
    pub flags: ReadFlags,
}

impl ReadRequest {
    /// A plain read that somebody waits for.
    pub fn new(bp: BlockPtr, bookmark: Bookmark) -> ReadRequest {
        ReadRequest { bp, bookmark, priority: Priority::SyncRead, flags: ReadFlags::default() }
    }
}

/// A write of one logical block (OpenZFS: `zio_write` with its `zio_prop_t`).
///
/// Policy is the caller's: which checksum, compression and how many copies (`dmu_write_policy`). Mechanism is here: holes,
/// embedding, rounding, allocation, gangs, rewriting in place.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The transaction group that the block is born in.
    pub txg: Txg,
    /// The logical bytes, little-endian where they have an order; a multiple of 512 bytes, at most 16 MiB.
    pub data: Abd,
    /// Bookmark of the block.
    pub bookmark: Bookmark,
    /// Type stored in the pointer.
    pub object_type: ObjectType,
    /// Level stored in the pointer.
    pub level: u8,
    /// Fill count stored in the pointer: non-hole blocks below, 1 for a data block, allocated dnodes for a block of dnodes.
    pub fill: u64,
    /// Checksum algorithm; never `on` or `inherit`.
    pub checksum: Checksum,
    /// Compression algorithm; `off` also turns hole detection off; never `on` or `inherit`.
    pub compression: Compression,
    /// Level for zstd as stored on disk (0 = the algorithm's default).
    pub zstd_level: u8,
    /// Number of copies wanted, 1–3.
    pub copies: u8,
    /// Stored bytes up to which a block of a file lies where metadata does, 0 for none (the property `special_small_blocks`).
    pub small_bytes: usize,
    /// Pointer that the parent holds now. Used to rewrite in place what was born in this same txg (see `pass`) and to decide
    /// whether a new hole gets a birth. The caller frees it when the result differs.
    pub previous: BlockPtr,
    /// Pass of the sync loop, from 1: from pass 2 on a block of this txg is rewritten in place when its size stays
    /// (OpenZFS: `zfs_sync_pass_rewrite`), from pass 8 on it is not compressed any more (`zfs_sync_pass_dont_compress`).
    pub pass: u32,
    /// Protection of a block of an encrypted dataset: no bytes of it leave the host, and none are in the pointer. With [`Seal::Stored`] `data` is what is
    /// stored, compressed with `compression`, whatever its bytes are.
    pub seal: Option<Seal>,
    /// Extent to which an equal block that is stored already may take this one's place. Blocks of encrypted datasets, and gangs, are their own.
    pub dedup: Dedup,
    /// Urgency of the write.
    pub priority: Priority,
    /// True to return the error when the pool cannot take the block, instead of holding the write until devices come back
    /// (OpenZFS: `ZIO_FLAG_CANFAIL`): somebody waits for it who can be told.
    pub can_fail: bool,
}

impl WriteRequest {
    /// A write of file data with fletcher4 and no compression, one copy; change what differs.
    pub fn new(txg: Txg, data: Abd, bookmark: Bookmark, object_type: ObjectType) -> WriteRequest {
        WriteRequest {
            txg,
            data,
            bookmark,
            object_type,
            level: bookmark.level.0,
            fill: 1,
            checksum: Checksum::FLETCHER_4,
            compression: Compression::OFF,
            zstd_level: 0,
            copies: 1,
            small_bytes: 0,
            previous: BlockPtr::HOLE,
            pass: 1,
            seal: None,
            dedup: Dedup::Off,
            priority: Priority::AsyncWrite,
            can_fail: false,
        }
    }

    /// Logical bytes of the block.
    pub(crate) fn lsize(&self) -> usize {
        let given = self.data.len();
        self.seal.as_ref().map_or(given, |seal| seal.logical_bytes(given))
    }
}
