//! What can go wrong with the contents of a volume.

use dmu::{BlockError, DmuError, SyncError};
use dsl::DslError;
use std::fmt;

/// Reason why a request for a volume's contents failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// Range ends behind the volume.
    OutOfRange,
    /// Volume, snapshot or pool that cannot be changed.
    ReadOnly,
    /// No space left in the pool.
    NoSpace,
    /// Quota is exceeded.
    OverQuota,
    /// Devices failed, or no copy of a block matched its checksum.
    Io,
    /// Records of the volume do not decode.
    Corrupt,
    /// Pool is suspended or being closed.
    Stopped,
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VolumeError::OutOfRange => "the range ends behind the volume",
            VolumeError::ReadOnly => "the volume is read-only",
            VolumeError::NoSpace => "no space left",
            VolumeError::OverQuota => "quota exceeded",
            VolumeError::Io => "input/output error",
            VolumeError::Corrupt => "damaged metadata",
            VolumeError::Stopped => "the pool no longer takes changes",
        })
    }
}

impl std::error::Error for VolumeError {}

impl From<DmuError> for VolumeError {
    fn from(error: DmuError) -> VolumeError {
        match error {
            DmuError::ReadOnly => VolumeError::ReadOnly,
            DmuError::Block(BlockError::NoSpace, _) => VolumeError::NoSpace,
            DmuError::Block(BlockError::Suspended, _) | DmuError::TxgOrder | DmuError::Stopped => VolumeError::Stopped,
            DmuError::Block(..) => VolumeError::Io,
            DmuError::NoSuchObject
            | DmuError::ObjectExists
            | DmuError::Invalid
            | DmuError::NotSupported
            | DmuError::Corrupt
            | DmuError::Record(_) => VolumeError::Corrupt,
        }
    }
}

impl From<SyncError> for VolumeError {
    fn from(error: SyncError) -> VolumeError {
        match error {
            SyncError::Dmu(error) => error.into(),
            SyncError::Block(error, _) => DmuError::from(error).into(),
            SyncError::Pool(_) | SyncError::Damaged(_) | SyncError::Stopped | SyncError::NoThread => VolumeError::Stopped,
        }
    }
}

impl From<DslError> for VolumeError {
    fn from(error: DslError) -> VolumeError {
        match error {
            DslError::Quota => VolumeError::OverQuota,
            DslError::NoSpace => VolumeError::NoSpace,
            DslError::ReadOnly => VolumeError::ReadOnly,
            DslError::Dmu(error) => error.into(),
            DslError::Sync(error) => error.into(),
            _ => VolumeError::Stopped,
        }
    }
}
