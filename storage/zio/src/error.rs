//! What can go wrong with a block, with the context that names it: kind, bookmark and the address that was tried last.

use ondisk::{Bookmark, Dva};
use std::fmt;

/// Reason why a block could not be read, written or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No copy matched the checksum (OpenZFS: `ECKSUM`).
    Checksum,
    /// Devices reported errors on every copy (OpenZFS: `EIO`).
    Io,
    /// Every device that holds the data is missing or closed (OpenZFS: `ENXIO`).
    NoDevice,
    /// No space, not even for a gang block (OpenZFS: `ENOSPC`).
    NoSpace,
    /// The pool or device is not writeable (OpenZFS: `EROFS`).
    ReadOnly,
    /// The block pointer, or the payload behind a right checksum, makes no sense.
    Corrupt,
    /// The block uses an algorithm or feature that this build cannot handle.
    Unsupported,
    /// The pool is suspended after a failure of too many devices (OpenZFS: `EIO` with `failmode=continue`).
    Suspended,
}

/// An error with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZioError {
    /// Kind of failure.
    pub kind: ErrorKind,
    /// Bookmark of the block: which block of which object.
    pub bookmark: Bookmark,
    /// The address tried last; empty when the error is not about one.
    pub dva: Dva,
}

impl ZioError {
    /// An error about the block at `bookmark`.
    pub fn new(kind: ErrorKind, bookmark: Bookmark) -> ZioError {
        ZioError { kind, bookmark, dva: Dva::default() }
    }
    /// Makes the same error, naming the address.
    #[must_use]
    pub fn at(self, dva: Dva) -> ZioError {
        ZioError { dva, ..self }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Checksum => "checksum mismatch on every copy",
            ErrorKind::Io => "device I/O failed on every copy",
            ErrorKind::NoDevice => "no device holds the data",
            ErrorKind::NoSpace => "no space left in the pool",
            ErrorKind::ReadOnly => "the pool is not writeable",
            ErrorKind::Corrupt => "the block pointer or its payload is corrupt",
            ErrorKind::Unsupported => "an algorithm or feature of the block is not supported",
            ErrorKind::Suspended => "the pool is suspended",
        })
    }
}

impl fmt::Display for ZioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.bookmark;
        write!(f, "{} (objset {} object {} level {} block {}", self.kind, b.objset, b.object, b.level, b.block)?;
        if !self.dva.is_empty() {
            write!(f, ", DVA {}:{:x}:{:x}", self.dva.vdev, self.dva.offset, self.dva.asize)?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for ZioError {}
