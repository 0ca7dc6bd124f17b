//! Property values with their kind and source.

use serde::{Deserialize, Serialize};

/// A value; the kind says how commands print it (`-p` prints it raw).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "value", rename_all = "kebab-case")]
pub enum Value {
    /// Printed as it is.
    Text(String),
    /// A size in bytes.
    Bytes(u64),
    /// A size in bytes that is not to be exceeded; 0 is no limit.
    Limit(u64),
    /// A count.
    Count(u64),
    /// A count that is not to be exceeded; 0 is no limit.
    LimitCount(u64),
    /// A number that is never abbreviated (guid, txg).
    Number(u64),
    /// Hundredths: 123 is `1.23x`.
    Ratio(u64),
    /// Whole percent.
    Percent(u64),
    /// Seconds since the epoch.
    Time(i64),
    /// No value: printed as `-`.
    None,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "from", content = "name", rename_all = "kebab-case")]
pub enum Source {
    /// Read-only or not applicable: `-`.
    None,
    /// `default`.
    Default,
    /// `local`.
    Local,
    /// `inherited from NAME`.
    Inherited(String),
    /// `received`.
    Received,
    /// `temporary` (mount option).
    Temporary,
}

/// One property of a pool or dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Property {
    /// Name as in `zfs get`.
    pub name: String,
    /// Value.
    pub value: Value,
    /// Source.
    pub source: Source,
}

impl Property {
    /// A property without a source.
    pub fn fact(name: &str, value: Value) -> Property {
        Property { name: name.to_string(), value, source: Source::None }
    }
}
