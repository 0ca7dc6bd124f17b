//! Errors of the crate: why a scan could not be started, paused or stopped.

use dmu::{DmuError, SyncError};
use std::fmt;
use zap::ZapError;

/// Reason why a request about a scan failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// A scan runs already.
    Running,
    /// A resilver runs; it can neither be stopped nor be paused.
    Resilvering,
    /// No scan runs.
    NotRunning,
    /// The scrub is paused already.
    Paused,
    /// A scrub is paused: it must go on or be ended first.
    PausedToCancel,
    /// An error scrub runs.
    ErrorScrubbing,
    /// An error scrub is paused.
    ErrorScrubPaused,
    /// An error scrub needs the feature `head_errlog`.
    NoHeadErrlog,
    /// The request's txg could not be synced.
    Sync(SyncError),
    /// An object of the MOS failed.
    Dmu(DmuError),
    /// A name table of the MOS failed.
    Zap(ZapError),
    /// A record of the MOS is damaged.
    Corrupt,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScanError::Running => f.write_str("currently scrubbing; use 'zpool scrub -s' to cancel scrub"),
            ScanError::Resilvering => f.write_str("currently resilvering"),
            ScanError::NotRunning => f.write_str("there is no active scrub"),
            ScanError::Paused => f.write_str("scrub is paused; use 'zpool scrub' to resume scrub"),
            ScanError::PausedToCancel => f.write_str("scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub"),
            ScanError::ErrorScrubbing => f.write_str("currently error scrubbing; use 'zpool scrub -s' to cancel error scrub"),
            ScanError::ErrorScrubPaused => f.write_str("error scrub is paused; use 'zpool scrub -e' to resume error scrub"),
            ScanError::NoHeadErrlog => f.write_str("operation not supported on this type of pool"),
            ScanError::Sync(error) => fmt::Display::fmt(error, f),
            ScanError::Dmu(error) => fmt::Display::fmt(error, f),
            ScanError::Zap(error) => fmt::Display::fmt(error, f),
            ScanError::Corrupt => f.write_str("a record about scans is damaged"),
        }
    }
}
impl std::error::Error for ScanError {}

macro_rules! from {
    ($($error:ty => $variant:ident),*) => {$(
        impl From<$error> for ScanError {
            fn from(error: $error) -> Self {
                ScanError::$variant(error)
            }
        }
    )*};
}
from!(SyncError => Sync, DmuError => Dmu, ZapError => Zap);

impl ScanError {
    /// Makes an error of a txg's sync of it.
    pub(crate) fn into_sync(self) -> SyncError {
        match self {
            ScanError::Sync(error) => error,
            ScanError::Dmu(error) | ScanError::Zap(ZapError::Dmu(error)) => SyncError::Dmu(error),
            _ => SyncError::Pool,
        }
    }
}
