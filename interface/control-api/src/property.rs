//! Property values with their kind and source.

use serde::{Deserialize, Serialize};

/// Value of a property; the kind says how commands print it (`-p` prints it raw).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "value", rename_all = "kebab-case")]
pub enum Value {
    /// Text, printed as it is.
    Text(String),
    /// Size in bytes.
    Bytes(u64),
    /// Size in bytes that is not to be exceeded; 0 is no limit.
    Limit(u64),
    /// Number of things.
    Count(u64),
    /// Number of things that is not to be exceeded; 0 is no limit.
    LimitCount(u64),
    /// Number that is never abbreviated (guid, txg).
    Number(u64),
    /// Ratio in hundredths: 123 is `1.23x`.
    Ratio(u64),
    /// Share in whole percent.
    Percent(u64),
    /// Time in seconds since the epoch.
    Time(i64),
    /// No value: printed as `-`.
    None,
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "from", content = "name", rename_all = "kebab-case")]
pub enum Source {
    /// Read-only or not applicable: `-`.
    None,
    /// Default value: `default`.
    Default,
    /// Set here: `local`.
    Local,
    /// Inherited from a dataset above: `inherited from NAME`.
    Inherited(String),
    /// Set by a receive: `received`.
    Received,
    /// Set by an option of the mount: `temporary`.
    Temporary,
}

/// Property of a pool or dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Property {
    /// Name as in `zfs get`.
    pub name: String,
    /// Value of the property.
    pub value: Value,
    /// Source of the value.
    pub source: Source,
    /// Value that came with a receive of the dataset itself, also when another one covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Value>,
}

impl Property {
    /// Makes a property without a source.
    pub fn fact(name: &str, value: Value) -> Property {
        Property::of(name, value, Source::None)
    }

    /// Makes a property that was not received.
    pub fn of(name: &str, value: Value, source: Source) -> Property {
        Property { name: name.to_string(), value, source, received: None }
    }
}
