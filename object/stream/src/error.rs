//! Reasons why a stream cannot be read on: what ended early, what is damaged, and what never was one.

use std::fmt;
use std::io;

/// Reason why [`crate::Reader`] cannot go on. Offsets are bytes from where the reader began.
#[derive(Debug)]
pub enum StreamError {
    /// The source failed.
    Io(io::Error),
    /// The stream ends inside a record, a payload or before its END (OpenZFS: `ZFS_ERR_STREAM_TRUNCATED`).
    Truncated {
        /// Offset of its end.
        offset: u64,
    },
    /// The first record is no BEGIN: the bytes are not a stream.
    NotAStream {
        /// Offset of the record.
        offset: u64,
    },
    /// A checksum does not agree with what was read (OpenZFS: `ECKSUM`).
    Checksum {
        /// Offset of the record whose checksum was wrong.
        offset: u64,
        /// Name of the record.
        record: &'static str,
    },
    /// A record contradicts the format (OpenZFS: `EINVAL`).
    Malformed {
        /// Offset of the record.
        offset: u64,
        /// Description of what is wrong with it.
        what: &'static str,
    },
    /// A payload is longer than any of its kind.
    TooLong {
        /// Offset of the record.
        offset: u64,
        /// Name of the record.
        record: &'static str,
        /// Length that it claims, in bytes.
        bytes: u64,
    },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Io(error) => write!(f, "the stream cannot be read: {error}"),
            StreamError::Truncated { offset } => write!(f, "the stream ends early, after {offset} bytes"),
            StreamError::NotAStream { offset } => write!(f, "there is no stream at byte {offset}: its magic number is missing"),
            StreamError::Checksum { offset, record } => {
                write!(f, "the stream is damaged: the checksum of the {record} record at byte {offset} is wrong")
            }
            StreamError::Malformed { offset, what } => write!(f, "the stream is invalid at byte {offset}: {what}"),
            StreamError::TooLong { offset, record, bytes } => {
                write!(f, "the stream is invalid at byte {offset}: a {record} record claims {bytes} bytes of payload")
            }
        }
    }
}

impl std::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StreamError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> StreamError {
        StreamError::Io(error)
    }
}
