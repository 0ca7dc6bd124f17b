//! What can go wrong with objects; errno is for whoever serves them to others.

use dmu::{DmuError, SyncError};
use dsl::DslError;
use std::error::Error;
use std::fmt;
use zap::ZapError;
use zpl::ZplError;

/// Reason why an operation of an object storage device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsdError {
    /// No such object, or no such key.
    NotFound,
    /// Object or key is there already.
    Exists,
    /// FID names no object that can be: of a version, of number 0, of sequence 0.
    BadFid,
    /// Transaction did not declare the operation before it was started.
    Undeclared,
    /// Data was asked of an index, or keys of an object with data.
    WrongKind,
    /// File system that holds the objects says no: no space, a quota, a failure of devices …
    Store(ZplError),
}

impl fmt::Display for OsdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OsdError::NotFound => "no such object or key",
            OsdError::Exists => "the object or key exists",
            OsdError::BadFid => "the FID cannot name an object",
            OsdError::Undeclared => "the transaction did not declare the operation",
            OsdError::WrongKind => "not possible on this kind of object",
            OsdError::Store(error) => return fmt::Display::fmt(error, f),
        })
    }
}

impl Error for OsdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Its words are this error's own.
            OsdError::Store(error) => error.source(),
            _ => None,
        }
    }
}

impl From<ZplError> for OsdError {
    fn from(error: ZplError) -> OsdError {
        match error {
            ZplError::NotFound => OsdError::NotFound,
            ZplError::Exists => OsdError::Exists,
            error => OsdError::Store(error),
        }
    }
}

impl From<DmuError> for OsdError {
    fn from(error: DmuError) -> OsdError {
        ZplError::from(error).into()
    }
}

impl From<ZapError> for OsdError {
    fn from(error: ZapError) -> OsdError {
        ZplError::from(error).into()
    }
}

impl From<SyncError> for OsdError {
    fn from(error: SyncError) -> OsdError {
        ZplError::from(error).into()
    }
}

impl From<DslError> for OsdError {
    fn from(error: DslError) -> OsdError {
        match error {
            DslError::Quota => ZplError::OverQuota.into(),
            DslError::NoSpace => ZplError::NoSpace.into(),
            DslError::ReadOnly => ZplError::ReadOnly.into(),
            DslError::Dmu(error) => error.into(),
            DslError::Zap(error) => error.into(),
            DslError::Sync(error) => error.into(),
            _ => OsdError::Store(ZplError::STOPPED),
        }
    }
}
