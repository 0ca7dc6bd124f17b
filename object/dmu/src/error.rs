//! Errors of the crate: what failed, in terms that the layer above can act on; no strings.

use std::fmt;

/// Why a block could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockError {
    /// The devices failed.
    Io,
    /// No copy of the block matched its checksum (OpenZFS: `ECKSUM`).
    Checksum,
    /// The payload could not be decompressed or decoded.
    Corrupt,
    /// The block needs a feature, key or algorithm that is not there.
    Unsupported,
    /// The pool has no room for the block.
    NoSpace,
    /// The pool does not do I/O now.
    Suspended,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockError::Io => "the devices failed",
            BlockError::Checksum => "checksum mismatch in every copy of a block",
            BlockError::Corrupt => "a block's payload is malformed",
            BlockError::Unsupported => "a block needs something that this build or pool does not support",
            BlockError::NoSpace => "no space for a block",
            BlockError::Suspended => "pool I/O is suspended",
        })
    }
}
impl std::error::Error for BlockError {}

/// Why an operation on an object set or object failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DmuError {
    /// There is no such object (OpenZFS: `ENOENT`).
    NoSuchObject,
    /// The object number is in use (OpenZFS: `EEXIST`).
    ObjectExists,
    /// An argument is outside what the format can represent (OpenZFS: `EINVAL`).
    Invalid,
    /// The object is not in a state that allows it, e.g. a new block size for many blocks (OpenZFS: `ENOTSUP`).
    NotSupported,
    /// What was read does not decode.
    Corrupt,
    /// A block failed.
    Block(BlockError),
    /// The object set can't be modified (a snapshot).
    ReadOnly,
    /// A modification came with a txg older than one that already modified the object.
    TxgOrder,
    /// Txgs no longer sync: the pool failed or is being closed.
    Stopped,
}

impl fmt::Display for DmuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DmuError::NoSuchObject => "no such object",
            DmuError::ObjectExists => "the object number is in use",
            DmuError::Invalid => "argument out of range",
            DmuError::NotSupported => "not possible in the object's present state",
            DmuError::Corrupt => "an object's metadata is malformed",
            DmuError::Block(error) => return fmt::Display::fmt(error, f),
            DmuError::ReadOnly => "the object set is read-only",
            DmuError::TxgOrder => "modification with an older transaction group",
            DmuError::Stopped => "transaction groups no longer sync",
        })
    }
}
impl std::error::Error for DmuError {}

impl From<BlockError> for DmuError {
    fn from(error: BlockError) -> Self {
        DmuError::Block(error)
    }
}

/// Why a txg could not be synced; nothing of it is referenced from the pool's uberblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncError {
    /// An object set could not be written.
    Dmu(DmuError),
    /// The pool's own records could not be written.
    Pool,
    /// The sync was given up because the pool is being closed.
    Stopped,
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncError::Dmu(error) => write!(f, "sync failed: {error}"),
            SyncError::Pool => f.write_str("sync failed: the pool's records could not be written"),
            SyncError::Stopped => f.write_str("sync was stopped"),
        }
    }
}
impl std::error::Error for SyncError {}

impl From<DmuError> for SyncError {
    fn from(error: DmuError) -> Self {
        SyncError::Dmu(error)
    }
}

impl From<BlockError> for SyncError {
    fn from(error: BlockError) -> Self {
        SyncError::Dmu(DmuError::Block(error))
    }
}
