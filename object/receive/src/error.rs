//! Reasons why a stream is not received.

use dmu::DmuError;
use dsl::DslError;
use std::fmt;
use stream::StreamError;

/// Reason why a stream is not received.
#[derive(Debug)]
pub enum ReceiveError {
    /// The stream ends early, is damaged, or cannot be read.
    Stream(StreamError),
    /// The stream contradicts itself, or what it goes on from (OpenZFS: `EINVAL`).
    Invalid(&'static str),
    /// The stream is of a kind that is not received, or has features that nobody here knows.
    Unsupported(&'static str),
    /// The stream goes on with another receive than the one that was interrupted.
    NotResumed(&'static str),
    /// The datasets, or the pool, do not take it.
    Dsl(DslError),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Stream(error) => fmt::Display::fmt(error, f),
            ReceiveError::Invalid(what) => write!(f, "invalid stream: {what}"),
            ReceiveError::Unsupported(what) => write!(f, "{what} are not supported"),
            ReceiveError::NotResumed(what) => write!(f, "the stream does not go on with the receive that was interrupted: {what}"),
            ReceiveError::Dsl(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Their words are this error's own.
            ReceiveError::Stream(error) => error.source(),
            ReceiveError::Dsl(error) => error.source(),
            _ => None,
        }
    }
}

impl From<StreamError> for ReceiveError {
    fn from(error: StreamError) -> ReceiveError {
        ReceiveError::Stream(error)
    }
}
impl From<DslError> for ReceiveError {
    fn from(error: DslError) -> ReceiveError {
        ReceiveError::Dsl(error)
    }
}
impl From<DmuError> for ReceiveError {
    /// Reason behind an error of the object layer: things that it refuses as impossible are the stream's fault.
    fn from(error: DmuError) -> ReceiveError {
        match error {
            DmuError::NoSuchObject => ReceiveError::Invalid("a record is about an object that is not there"),
            DmuError::ObjectExists => ReceiveError::Invalid("an object lies where another one is"),
            DmuError::Invalid | DmuError::NotSupported => ReceiveError::Invalid("a record asks for what an object cannot have"),
            error => ReceiveError::Dsl(error.into()),
        }
    }
}
