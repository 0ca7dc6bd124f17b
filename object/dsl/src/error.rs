//! Errors of the crate: what the caller asked for and why it cannot be, or what failed underneath.

use dmu::{Cause, DamagedRecord, DmuError, SyncError};
use ondisk::ObjectId;
use std::error::Error;
use std::fmt;
use zap::ZapError;

/// Reason why an operation on datasets failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DslError {
    /// There is no such dataset, snapshot or property.
    NotFound,
    /// The name is taken.
    Exists,
    /// The name is not a valid dataset or snapshot name.
    BadName,
    /// The name, with its parents, is longer than 255 bytes (OpenZFS: `ZFS_MAX_DATASET_NAME_LEN`).
    NameTooLong,
    /// The dataset is used by somebody.
    Busy,
    /// The dataset that would be the parent is not a file system.
    ParentNotFilesystem,
    /// The dataset has children.
    HasChildren,
    /// The file system has snapshots.
    HasSnapshots,
    /// The snapshot has clones.
    HasClones,
    /// Users hold the snapshot.
    Held,
    /// The snapshot has a hold of this tag already.
    TagExists,
    /// The snapshot has no hold of this tag.
    NoSuchTag,
    /// The tag of a hold is longer than 255 bytes (OpenZFS: `MAXNAMELEN`).
    TagTooLong,
    /// The bookmark's source is no earlier point of what the dataset was.
    NotAncestor,
    /// The bookmark has a list of what was redacted, of other snapshots.
    OtherRedaction,
    /// A list of what was redacted has no room for so many snapshots.
    TooManySnapshots,
    /// The dataset lacks what was redacted from it.
    Redacted,
    /// The dataset is no clone.
    NotClone,
    /// A snapshot or bookmark of this name would be there twice.
    Conflict {
        /// Name that both have.
        name: String,
    },
    /// The dataset lacks the snapshot that a stream goes on from, or cannot go back to it.
    NotIncremental,
    /// The dataset was changed since the snapshot that a stream goes on from.
    Modified,
    /// The dataset has blocks above 128 KiB, and a stream that goes on from it has not (OpenZFS: `ZFS_ERR_STREAM_LARGE_BLOCK_MISMATCH`).
    LargeBlocks,
    /// Not possible in this txg, but in the next.
    Again,
    /// A snapshot was given where a file system or volume is wanted.
    IsSnapshot,
    /// A file system was given where a snapshot is wanted.
    NotSnapshot,
    /// The two names are in different pools.
    CrossPool,
    /// The dataset or pool cannot be modified.
    ReadOnly,
    /// The pool is suspended, and its `failmode` lets nobody wait for that to end.
    Suspended,
    /// A quota of the dataset or of a parent is exceeded.
    Quota,
    /// The pool has no space left.
    NoSpace,
    /// There is no property of this name.
    BadProperty,
    /// The value is not possible for the property.
    BadValue,
    /// The property cannot be set (any more).
    ReadOnlyProperty,
    /// The property is the dataset's own: it cannot be inherited, or has no received value to go back to.
    NotInherited,
    /// The pool lacks a feature that this needs, or this build does.
    Unsupported,
    /// The value of a property needs the feature with this guid, which is not enabled.
    NeedsFeature(&'static str),
    /// The pool's version is before this one, which has what was asked for (OpenZFS: `ENOTSUP`, "pool must be upgraded").
    OldVersion(u64),
    /// The dataset is encrypted, and its key is not here.
    NoKey,
    /// The dataset lacks what its intent log has, which could not be replayed when its key was loaded.
    LogWaits,
    /// The dataset is encrypted, and this release cannot do that with it.
    Encrypted,
    /// The dataset is not encrypted.
    NotEncrypted,
    /// The dataset's key is that of one above it.
    NotEncryptionRoot {
        /// Name of the encryption root.
        root: String,
    },
    /// The key is loaded already.
    KeyLoaded,
    /// The key is not loaded.
    KeyUnloaded,
    /// The key is not the one that the dataset's keys are wrapped with.
    WrongKey,
    /// No key of the dataset's `keyformat` was given.
    BadKey,
    /// The system gives no random bytes for keys.
    NoRandom,
    /// The dataset's key is wrapped by that of a dataset above it, which it would not be below any more.
    OtherRoot,
    /// A raw stream has other keys than the dataset that it goes on from.
    OtherKeys,
    /// A raw stream, or the snapshot that it goes on from, does not name its set of IVs (OpenZFS: `ZFS_ERR_FROM_IVSET_GUID_MISSING`).
    NoIvSet,
    /// A raw stream goes on from a snapshot whose blocks were encrypted elsewhere than those here (OpenZFS: `ZFS_ERR_FROM_IVSET_GUID_MISMATCH`).
    OtherIvSet,
    /// A record of the MOS is damaged.
    Corrupt {
        /// The object.
        object: ObjectId,
        /// Description of what is wrong with it.
        what: &'static str,
    },
    /// The object layer failed.
    Dmu(DmuError),
    /// A name table failed.
    Zap(ZapError),
    /// The transaction group failed.
    Sync(SyncError),
}

impl fmt::Display for DslError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DslError::NotFound => "dataset does not exist",
            DslError::Exists => "dataset already exists",
            DslError::BadName => "invalid dataset name",
            DslError::NameTooLong => "dataset name is too long",
            DslError::Busy => "dataset is busy",
            DslError::ParentNotFilesystem => "parent is not a filesystem",
            DslError::HasChildren => "filesystem has children",
            DslError::HasSnapshots => "filesystem has snapshots",
            DslError::HasClones => "snapshot has dependent clones",
            DslError::Held => "dataset is busy",
            DslError::TagExists => "tag already exists on this dataset",
            DslError::NoSuchTag => "no such tag on this dataset",
            DslError::TagTooLong => "tag too long",
            DslError::NotAncestor => "source is not an ancestor of the new bookmark's dataset",
            DslError::OtherRedaction => "the bookmark's redaction list is of other snapshots",
            DslError::TooManySnapshots => "too many redaction snapshots specified",
            DslError::Redacted => "dataset is redacted",
            DslError::NotClone => "not a cloned filesystem",
            DslError::Conflict { name } => return write!(f, "conflicting snapshot '{name}'"),
            DslError::NotIncremental => "the most recent snapshot does not match the incremental source",
            DslError::Modified => "the dataset has been modified since its most recent snapshot",
            DslError::LargeBlocks => "the incremental stream lacks large blocks, which the dataset has",
            DslError::Again => "try again in the next transaction group",
            DslError::IsSnapshot => "operation not applicable to snapshots",
            DslError::NotSnapshot => "operation applicable to snapshots only",
            DslError::CrossPool => "datasets are in different pools",
            DslError::ReadOnly => "dataset is read-only",
            DslError::Suspended => "pool I/O is currently suspended",
            DslError::Quota => "quota exceeded",
            DslError::NoSpace => "out of space",
            DslError::BadProperty => "invalid property",
            DslError::BadValue => "invalid value for the property",
            DslError::ReadOnlyProperty => "property is readonly",
            DslError::NotInherited => "property cannot be inherited",
            DslError::Unsupported => "not supported by the pool's features or by this version",
            DslError::NeedsFeature(guid) => {
                let name = guid.split_once(':').map_or(*guid, |(_, name)| name);
                return write!(f, "the value needs feature@{name}, which is not enabled on the pool");
            }
            DslError::OldVersion(_) => "pool must be upgraded to set this property or value",
            DslError::NoKey => "encryption key not loaded",
            DslError::LogWaits => "its intent log is not replayed",
            DslError::Encrypted => "that is not possible with encrypted datasets in this version",
            DslError::NotEncrypted => "dataset is not encrypted",
            DslError::NotEncryptionRoot { root } => return write!(f, "the key belongs to the encryption root '{root}'"),
            DslError::KeyLoaded => "key already loaded",
            DslError::KeyUnloaded => "key already unloaded",
            DslError::WrongKey => "incorrect key provided",
            DslError::BadKey => "not a key of the dataset's keyformat",
            DslError::NoRandom => "the system gives no random bytes",
            DslError::OtherRoot => "cannot move encrypted child outside of its encryption root",
            DslError::OtherKeys => "the stream's keys are not those of the dataset",
            DslError::NoIvSet => "IV set guid missing",
            DslError::OtherIvSet => "IV set guid mismatch",
            DslError::Corrupt { object, what } => return write!(f, "MOS object {object} is damaged: {what}"),
            DslError::Dmu(error) => return fmt::Display::fmt(error, f),
            DslError::Zap(error) => return fmt::Display::fmt(error, f),
            DslError::Sync(error) => return fmt::Display::fmt(error, f),
        })
    }
}

impl Error for DslError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Their words are this error's own.
            DslError::Dmu(error) => error.source(),
            DslError::Zap(error) => error.source(),
            DslError::Sync(error) => error.source(),
            _ => None,
        }
    }
}

impl From<DmuError> for DslError {
    fn from(error: DmuError) -> Self {
        DslError::Dmu(error)
    }
}
impl From<SyncError> for DslError {
    fn from(error: SyncError) -> Self {
        DslError::Sync(error)
    }
}
impl From<ZapError> for DslError {
    fn from(error: ZapError) -> Self {
        match error {
            ZapError::Dmu(error) => DslError::Dmu(error),
            error => DslError::Zap(error),
        }
    }
}

/// The sync of a txg cannot go on after this error.
pub(crate) fn fatal(error: DslError) -> SyncError {
    match error {
        DslError::Dmu(error) => SyncError::Dmu(error),
        DslError::Sync(error) => error,
        DslError::Corrupt { object, what } | DslError::Zap(ZapError::Corrupt { object, what, .. }) => {
            SyncError::Damaged(DamagedRecord { object, what })
        }
        error => SyncError::Pool(Cause::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, nobody learns which record of the pool stops its syncs.
    #[test]
    fn a_damaged_record_stays_the_cause_of_a_failed_sync() {
        let (object, what) = (ObjectId(7), "its bonus is short");
        let record = DamagedRecord { object, what };
        let other = DslError::Sync(fatal(DslError::NoSpace));
        for error in [DslError::Corrupt { object, what }, DslError::Zap(ZapError::Corrupt { object, block: 3, what })] {
            let stopped = DslError::Sync(fatal(error));
            assert_eq!(stopped.to_string(), other.to_string(), "users read what they always read");
            assert_eq!(stopped.source().and_then(|cause| cause.downcast_ref()), Some(&record));
        }
        assert_eq!(other.source().and_then(|cause| cause.downcast_ref()), Some(&DslError::NoSpace));
    }
}
