//! Properties: values with their source, as `zfs get` shows them.

mod share;
mod stored;
pub mod table;
mod words;

pub(crate) use stored::Stored;

/// Where a value comes from (OpenZFS: `zprop_source_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropSource {
    /// Computed, or not applicable.
    None,
    /// The property's default.
    Default,
    /// Set here.
    Local,
    /// Set on this dataset above.
    Inherited(String),
    /// Came with a receive.
    Received,
}

/// What a value is, so that commands print it right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropValue {
    /// Text or the word of an index property.
    Text(String),
    /// Bytes.
    Bytes(u64),
    /// Bytes that are not to be exceeded, or are kept back; 0 is none.
    Limit(u64),
    /// A count.
    Count(u64),
    /// A number that is never abbreviated.
    Number(u64),
    /// Hundredths.
    Ratio(u64),
    /// Seconds since the epoch.
    Time(u64),
    /// No value.
    None,
}

/// One property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropEntry {
    /// Name as in `zfs get`.
    pub name: String,
    /// Value.
    pub value: PropValue,
    /// Source.
    pub source: PropSource,
}
