//! Values of properties as commands print and sort them. It does not know which properties there are (`property`), nor how columns are laid out.

use crate::{number, time};
use control_api::{Property, Source, Value};

/// Text of a value as a command prints it.
pub fn show(value: &Value, parsable: bool) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Bytes(bytes) | Value::Count(bytes) if parsable => bytes.to_string(),
        Value::Bytes(bytes) => number::nice_bytes(*bytes),
        Value::Limit(0) | Value::LimitCount(0) => if parsable { "0" } else { "none" }.to_string(),
        Value::Limit(number) | Value::LimitCount(number) if parsable => number.to_string(),
        Value::Limit(bytes) => number::nice_bytes(*bytes),
        Value::LimitCount(count) => number::nice_count(*count),
        Value::Count(count) => number::nice_count(*count),
        Value::Number(number) => number.to_string(),
        Value::Ratio(hundredths) if parsable => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        Value::Ratio(hundredths) => format!("{}.{:02}x", hundredths / 100, hundredths % 100),
        Value::Percent(percent) if parsable => percent.to_string(),
        Value::Percent(percent) => format!("{percent}%"),
        Value::Time(seconds) if parsable => seconds.to_string(),
        Value::Time(seconds) => time::short(*seconds),
        Value::None => "-".to_string(),
    }
}

/// Text of a value of a pool or vdev as `zpool` prints it: without the B that `zfs` puts behind small sizes (OpenZFS: `zpool_get_prop`).
pub fn show_of_pool(value: &Value, parsable: bool) -> String {
    match value {
        Value::Bytes(bytes) if !parsable => number::nice_count(*bytes),
        other => show(other, parsable),
    }
}

/// Text of a source as the SOURCE column prints it.
pub fn show_source(source: &Source) -> String {
    match source {
        Source::None => "-".to_string(),
        Source::Default => "default".to_string(),
        Source::Local => "local".to_string(),
        Source::Inherited(from) => format!("inherited from {from}"),
        Source::Received => "received".to_string(),
        Source::Temporary => "temporary".to_string(),
    }
}

/// Property of this name.
pub fn find<'a>(properties: &'a [Property], name: &str) -> Option<&'a Property> {
    properties.iter().find(|property| property.name == name)
}

/// Key by which values of one property sort; text sorts by itself.
pub fn sort_key(value: &Value) -> (u8, i128, String) {
    match value {
        Value::Bytes(n)
        | Value::Limit(n)
        | Value::Count(n)
        | Value::LimitCount(n)
        | Value::Number(n)
        | Value::Ratio(n)
        | Value::Percent(n) => (1, i128::from(*n), String::new()),
        Value::Time(seconds) => (1, i128::from(*seconds), String::new()),
        Value::Text(text) => (0, 0, text.clone()),
        Value::None => (2, 0, String::new()),
    }
}
