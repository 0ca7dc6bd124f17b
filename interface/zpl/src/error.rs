//! What can go wrong in the file system, and the errno that says it.

use dmu::{BlockError, DmuError, SyncError};
use std::fmt;
use zap::ZapError;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $errno:ident, $text:literal;)*) => {
        /// Error of a file-system operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ZplError { $($(#[$doc])* $name,)* }
        impl fmt::Display for ZplError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(ZplError::$name => $text,)* })
            }
        }
        impl From<ZplError> for fuse::Errno {
            fn from(error: ZplError) -> fuse::Errno {
                match error { $(ZplError::$name => fuse::Errno::$errno,)* }
            }
        }
    };
}

errors! {
    /// No such name or object.
    NotFound = ENOENT, "no such file or directory";
    /// Node was freed or belongs to another generation.
    Stale = ESTALE, "the file no longer exists";
    /// Name is taken.
    Exists = EEXIST, "the name exists";
    /// Directory was needed.
    NotDirectory = ENOTDIR, "not a directory";
    /// Anything but a directory was needed.
    IsDirectory = EISDIR, "is a directory";
    /// Directory has entries.
    NotEmpty = ENOTEMPTY, "the directory is not empty";
    /// Argument makes no sense.
    Invalid = EINVAL, "invalid argument";
    /// Name has more than 255 bytes.
    NameTooLong = ENAMETOOLONG, "the name is too long";
    /// Name is not UTF-8 and `utf8only` is on.
    NotUtf8 = EILSEQ, "the name is not valid UTF-8";
    /// Offset, size or value is beyond the largest.
    TooBig = EFBIG, "too large";
    /// Extended attribute is larger than one can be.
    ValueTooBig = E2BIG, "the value is too large";
    /// No space left in the pool or quota.
    NoSpace = ENOSPC, "no space left";
    /// Quota is exceeded.
    OverQuota = EDQUOT, "quota exceeded";
    /// Snapshot, or a file system mounted read-only.
    ReadOnly = EROFS, "read-only file system";
    /// Flags of the node forbid it (immutable, append-only).
    NotPermitted = EPERM, "operation not permitted";
    /// Number of links is the largest already.
    TooManyLinks = EMLINK, "too many links";
    /// No such extended attribute.
    NoAttribute = ENODATA, "no such attribute";
    /// SEEK_DATA or SEEK_HOLE beyond the end.
    PastEnd = ENXIO, "offset past the end of the file";
    /// Caller may not do this here unless a parameter says so.
    AccessDenied = EACCES, "permission denied";
    /// Snapshot has open files, a hold or clones.
    Busy = EBUSY, "in use";
    /// Operation is not possible on this kind of node or this version of the file system.
    NotSupported = EOPNOTSUPP, "operation not supported";
    /// Namespace of extended attributes that nobody handles.
    CrossDevice = EXDEV, "not within one file system";
    /// Record that was read does not decode.
    Corrupt = EIO, "damaged metadata";
    /// Devices failed or a checksum did not match.
    Io = EIO, "input/output error";
    /// Pool is suspended or being closed.
    Stopped = EIO, "the pool no longer takes changes";
}

impl std::error::Error for ZplError {}

impl From<DmuError> for ZplError {
    fn from(error: DmuError) -> Self {
        match error {
            DmuError::NoSuchObject => ZplError::NotFound,
            DmuError::ObjectExists => ZplError::Exists,
            DmuError::Invalid => ZplError::Invalid,
            DmuError::NotSupported => ZplError::NotSupported,
            DmuError::Corrupt | DmuError::Record(_) => ZplError::Corrupt,
            DmuError::ReadOnly => ZplError::ReadOnly,
            DmuError::TxgOrder | DmuError::Stopped => ZplError::Stopped,
            DmuError::Block(BlockError::NoSpace, _) => ZplError::NoSpace,
            DmuError::Block(..) => ZplError::Io,
        }
    }
}

impl From<ZapError> for ZplError {
    fn from(error: ZapError) -> Self {
        match error {
            ZapError::NotFound => ZplError::NotFound,
            ZapError::Exists => ZplError::Exists,
            ZapError::NameTooLong => ZplError::NameTooLong,
            ZapError::BadName => ZplError::Invalid,
            ZapError::ValueTooBig => ZplError::ValueTooBig,
            ZapError::Full => ZplError::NoSpace,
            ZapError::WrongType | ZapError::NotSupported | ZapError::Corrupt { .. } => ZplError::Corrupt,
            ZapError::Dmu(error) => error.into(),
        }
    }
}

impl From<SyncError> for ZplError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Dmu(error) => error.into(),
            SyncError::Block(error, _) => DmuError::from(error).into(),
            SyncError::Pool(_) | SyncError::Damaged(_) | SyncError::Stopped => ZplError::Stopped,
        }
    }
}
