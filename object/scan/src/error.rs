//! Errors of the crate: why a scan could not be started, paused or stopped.

use dmu::{DmuError, SyncError};
use std::fmt;
use zap::ZapError;

/// Why a request about a scan failed.
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
            ScanError::Running => f.write_str("a scan is in progress"),
            ScanError::Resilvering => f.write_str("currently resilvering"),
            ScanError::NotRunning => f.write_str("there is no active scrub"),
            ScanError::Paused => f.write_str("the scrub is paused already"),
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
    /// The same as an error of a txg's sync.
    pub(crate) fn into_sync(self) -> SyncError {
        match self {
            ScanError::Sync(error) => error,
            ScanError::Dmu(error) | ScanError::Zap(ZapError::Dmu(error)) => SyncError::Dmu(error),
            _ => SyncError::Pool,
        }
    }
}
