//! Why a configuration can't be used. What goes wrong with a device's I/O is none of this crate's.

use std::fmt;

/// Reason why a configuration can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// A required entry is missing or has another type.
    Entry(&'static str),
    /// A vdev of a type that this release doesn't support.
    Unsupported(&'static str),
    /// Numbers that contradict each other.
    Geometry(&'static str),
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::Entry(name) => write!(f, "the vdev configuration has no valid entry '{name}'"),
            TreeError::Unsupported(kind) => write!(f, "a vdev is of type '{kind}', which is not supported"),
            TreeError::Geometry(what) => write!(f, "the vdev configuration contradicts itself: {what}"),
        }
    }
}
impl std::error::Error for TreeError {}
