//! What can go wrong with a ZAP: one small enum, each variant saying what failed and where.

use dmu::DmuError;
use ondisk::ObjectId;
use std::error::Error;
use std::fmt;

/// An error of a ZAP operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZapError {
    /// No entry has this name.
    NotFound,
    /// An entry with this name is there already.
    Exists,
    /// The name is longer than the object's type allows (OpenZFS: `ZAP_MAXNAMELEN`, `ZAP_MAXNAMELEN_NEW`).
    NameTooLong,
    /// The name is empty or holds a zero byte, which the format cannot store.
    BadName,
    /// The value is larger than `ZAP_MAXVALUELEN` or than a leaf holds.
    ValueTooBig,
    /// The entry's integers have another size or number than the caller asked for.
    WrongType,
    /// The request does not fit this ZAP: a normalizing lookup in a ZAP without normalization, a string in a ZAP of integer keys.
    NotSupported,
    /// The names that share a hash are so many that the pointer table cannot tell them apart any more.
    Full,
    /// The object on disk is not a valid ZAP.
    Corrupt {
        /// The object.
        object: ObjectId,
        /// The block within the object.
        block: u64,
        /// Description of what is wrong with it.
        what: &'static str,
    },
    /// The object layer failed.
    Dmu(DmuError),
}

impl fmt::Display for ZapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZapError::NotFound => f.write_str("no entry with this name"),
            ZapError::Exists => f.write_str("an entry with this name exists"),
            ZapError::NameTooLong => f.write_str("the name is too long"),
            ZapError::BadName => f.write_str("the name is empty or holds a zero byte"),
            ZapError::ValueTooBig => f.write_str("the value is too large for a ZAP entry"),
            ZapError::WrongType => f.write_str("the entry holds integers of another size or number"),
            ZapError::NotSupported => f.write_str("this ZAP does not support the kind of key or lookup"),
            ZapError::Full => f.write_str("too many names with the same hash"),
            ZapError::Corrupt { object, block, what } => write!(f, "ZAP object {object} block {block} is damaged: {what}"),
            ZapError::Dmu(error) => write!(f, "{error}"),
        }
    }
}

impl Error for ZapError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Its words are this error's own.
            ZapError::Dmu(error) => error.source(),
            _ => None,
        }
    }
}

impl From<DmuError> for ZapError {
    fn from(error: DmuError) -> Self {
        ZapError::Dmu(error)
    }
}
