//! What can go wrong in the file system, and the errno that says it.

use dmu::{BlockError, DamagedRecord, DmuError, RecordError, SyncError};
use std::error::Error;
use std::fmt;
use zap::ZapError;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident $(($why:ty))? = $errno:ident, $text:literal;)*) => {
        /// Error of a file-system operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ZplError { $($(#[$doc])* $name $(($why))?,)* }
        impl fmt::Display for ZplError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(ZplError::$name { .. } => $text,)* })
            }
        }
        impl From<ZplError> for fuse::Errno {
            fn from(error: ZplError) -> fuse::Errno {
                match error { $(ZplError::$name { .. } => fuse::Errno::$errno,)* }
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
    Corrupt(Why) = EIO, "damaged metadata";
    /// Devices failed or a checksum did not match.
    Io(Why) = EIO, "input/output error";
    /// Pool is suspended or being closed.
    Stopped(Why) = EIO, "the pool no longer takes changes";
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Dmu(DmuError),
    Record(DamagedRecord),
}

/// Cause of an error, as far as it is known. Errors are equal when the same went wrong, whatever for.
#[derive(Clone, Copy, Debug)]
pub struct Why(Option<Known>);

impl Why {
    /// No cause: the error says it all.
    pub const UNKNOWN: Why = Why(None);
}

impl PartialEq for Why {
    fn eq(&self, _: &Why) -> bool {
        true
    }
}
impl Eq for Why {}

impl From<DmuError> for Why {
    fn from(error: DmuError) -> Why {
        Why(Some(Known::Dmu(error)))
    }
}

impl From<DamagedRecord> for Why {
    fn from(record: DamagedRecord) -> Why {
        Why(Some(Known::Record(record)))
    }
}

impl ZplError {
    /// Damaged metadata of which there is no more to say.
    pub const CORRUPT: ZplError = ZplError::Corrupt(Why::UNKNOWN);
    /// Failure of devices of which there is no more to say.
    pub const IO: ZplError = ZplError::Io(Why::UNKNOWN);
    /// End of the pool of which there is no more to say.
    pub const STOPPED: ZplError = ZplError::Stopped(Why::UNKNOWN);
}

impl Error for ZplError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let (ZplError::Corrupt(why) | ZplError::Io(why) | ZplError::Stopped(why)) = self else { return None };
        match why.0.as_ref()? {
            Known::Dmu(error) => Some(error),
            Known::Record(record) => Some(record),
        }
    }
}

impl From<DmuError> for ZplError {
    fn from(error: DmuError) -> Self {
        match error {
            DmuError::NoSuchObject => ZplError::NotFound,
            DmuError::ObjectExists => ZplError::Exists,
            DmuError::Invalid => ZplError::Invalid,
            DmuError::NotSupported => ZplError::NotSupported,
            DmuError::Corrupt | DmuError::Record(_) => ZplError::Corrupt(error.into()),
            DmuError::ReadOnly => ZplError::ReadOnly,
            DmuError::TxgOrder | DmuError::Stopped => ZplError::Stopped(error.into()),
            DmuError::Block(BlockError::NoSpace, _) => ZplError::NoSpace,
            DmuError::Block(..) => ZplError::Io(error.into()),
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
            ZapError::WrongType | ZapError::NotSupported => ZplError::CORRUPT,
            ZapError::Corrupt { object, what, .. } => DmuError::Record(RecordError::Table { object, what }).into(),
            ZapError::Dmu(error) => error.into(),
        }
    }
}

impl From<SyncError> for ZplError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Dmu(error) => error.into(),
            SyncError::Block(error, _) => DmuError::from(error).into(),
            SyncError::Damaged(record) => ZplError::Stopped(record.into()),
            SyncError::Pool(_) | SyncError::Stopped | SyncError::NoThread => ZplError::STOPPED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmu::with_causes;
    use ondisk::{Bookmark, ObjectId};

    /// If this fails, nobody learns which block or record of a file system is lost: all that is left of it is "input/output error".
    #[test]
    fn causes_are_kept_and_said_behind_the_words_that_users_know() {
        let at = Bookmark { object: ObjectId(7), ..Bookmark::default() };
        let damaged = ZapError::Corrupt { object: ObjectId(9), block: 0, what: "no header" };
        let record = DamagedRecord { object: ObjectId(5), what: "its bonus is short" };
        let errors: [(ZplError, ZplError, &str); 5] = [
            (DmuError::of_block(BlockError::Checksum, at).into(), ZplError::IO, "object 7 level 0 block 0"),
            (damaged.into(), ZplError::CORRUPT, "object 9 is damaged: no header"),
            (SyncError::Damaged(record).into(), ZplError::STOPPED, "object 5 is damaged: its bonus is short"),
            (DmuError::Stopped.into(), ZplError::STOPPED, "transaction groups no longer sync"),
            (ZapError::Dmu(DmuError::from(BlockError::Io)).into(), ZplError::IO, "the devices failed"),
        ];
        for (error, plain, cause) in errors {
            assert_eq!((error, error.to_string()), (plain, plain.to_string()), "users read what they always read");
            let said = with_causes(&error);
            assert!(said.starts_with(&plain.to_string()) && said.ends_with(cause), "{said}");
            assert!(plain.source().is_none(), "there is no more to say");
        }
        assert_eq!(ZplError::from(DmuError::from(BlockError::NoSpace)), ZplError::NoSpace);
        assert!(ZplError::NoSpace.source().is_none());
    }
}
