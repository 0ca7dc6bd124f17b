//! Errors of the crate: why a scan could not be started, paused or stopped.

use dmu::{Cause, DmuError, SyncError};
use std::error::Error;
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

impl Error for ScanError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Their words are this error's own.
            ScanError::Sync(error) => error.source(),
            ScanError::Dmu(error) => error.source(),
            ScanError::Zap(error) => error.source(),
            _ => None,
        }
    }
}

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
    pub fn into_sync(self) -> SyncError {
        match self {
            ScanError::Sync(error) => error,
            ScanError::Dmu(error) | ScanError::Zap(ZapError::Dmu(error)) => SyncError::Dmu(error),
            error => SyncError::Pool(Cause::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmu::BlockError;
    use ondisk::{Bookmark, ObjectId};
    use zio::{ErrorKind, ZioError};

    /// If this fails, nobody learns which block or record stopped a pool during a scan.
    #[test]
    fn causes_are_kept_and_reach_the_block() {
        let lost = ZioError::new(ErrorKind::Checksum, Bookmark::default());
        let error = ScanError::Sync(SyncError::Block(BlockError::Checksum, Cause::new(lost)));
        assert_eq!(error.source().and_then(|cause| cause.downcast_ref()), Some(&lost), "of what is asked for");
        let sync = error.into_sync();
        assert_eq!(sync.source().and_then(|cause| cause.downcast_ref()), Some(&lost), "of the sync");
        let damaged = ScanError::Zap(ZapError::Corrupt { object: ObjectId(7), block: 3, what: "no header" });
        let words = damaged.to_string();
        let sync = damaged.clone().into_sync();
        assert_eq!(sync.source().and_then(|cause| cause.downcast_ref()), Some(&damaged));
        assert!(dmu::with_causes(&sync).ends_with(&words), "{}", dmu::with_causes(&sync));
        assert!(ScanError::Running.source().is_none());
    }
}
