//! Reasons why a stream is not made, or ends before its end.

use dsl::DslError;
use std::fmt;
use std::io;

/// Reason why a snapshot was not sent.
#[derive(Debug)]
pub enum SendError {
    /// The sink takes no more: who read the stream went away, or its disk is full.
    Sink(io::Error),
    /// The snapshot cannot be read.
    Source(DslError),
    /// The base is no earlier point of what is sent (OpenZFS: `EXDEV`).
    NotEarlier,
    /// The name does not fit into a stream.
    NameTooLong,
    /// The dataset has directories in blocks that only a stream with large blocks can have (OpenZFS: `ZFS_ERR_STREAM_LARGE_MICROZAP`).
    LargeMicrozap,
    /// Raw streams of keys of the first version are received nowhere (OpenZFS: `dsl_crypto_populate_key_nvlist`).
    OldKeys,
    /// The dataset was redacted: what it lacks cannot be redacted once more (OpenZFS: `EALREADY`).
    Redacted,
    /// The bookmark by which a stream is to be redacted has no redaction list, or the stream is not of its dataset.
    NoRedactionList,
    /// The redaction list was not finished.
    UnfinishedList,
    /// A raw stream cannot be redacted.
    RawRedacted,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Sink(error) => write!(f, "the stream cannot be written: {error}"),
            SendError::Source(error) => fmt::Display::fmt(error, f),
            SendError::NotEarlier => f.write_str("not an earlier snapshot from the same fs"),
            SendError::NameTooLong => f.write_str("dataset name is too long"),
            SendError::LargeMicrozap => {
                f.write_str("source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to generate stream")
            }
            SendError::OldKeys => f.write_str("its keys are of the first version (errata 3 of OpenZFS): send it without '-w'"),
            SendError::Redacted => f.write_str("attempted to redact redacted dataset or with respect to redacted dataset"),
            SendError::NoRedactionList => f.write_str("not a redaction bookmark"),
            SendError::UnfinishedList => f.write_str("incomplete redaction bookmark provided"),
            SendError::RawRedacted => f.write_str("raw sends may not be redacted"),
        }
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SendError::Sink(error) => Some(error),
            SendError::Source(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DslError> for SendError {
    fn from(error: DslError) -> SendError {
        SendError::Source(error)
    }
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> SendError {
        SendError::Sink(error)
    }
}
