//! Properties: values with their source, as `zfs get` shows them.

mod share;
mod stored;
pub mod table;
mod words;

pub(crate) use stored::{RECEIVED, Stored, received_names};

/// Source of a value (OpenZFS: `zprop_source_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropSource {
    /// Computed, or not applicable.
    None,
    /// The property's default.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Set on this dataset above.
    Inherited(String),
    /// Came with a receive.
    Received,
}

/// Value of a property with its type, so that commands print it right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropValue {
    /// Text or the word of an index property.
    Text(String),
    /// Number of bytes.
    Bytes(u64),
    /// Number of bytes not to be exceeded, or kept back; 0 is none.
    Limit(u64),
    /// Number of things.
    Count(u64),
    /// A number that is never abbreviated.
    Number(u64),
    /// Ratio in hundredths.
    Ratio(u64),
    /// Time in seconds since the epoch.
    Time(u64),
    /// No value at all.
    None,
}

/// A property of a dataset with value and source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropEntry {
    /// Name as in `zfs get`.
    pub name: String,
    /// Value of the property.
    pub value: PropValue,
    /// Source of the value.
    pub source: PropSource,
    /// Value that came with a receive of the dataset itself, also when another one covers it.
    pub received: Option<PropValue>,
}
