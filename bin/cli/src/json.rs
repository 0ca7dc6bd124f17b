//! The JSON shape of OpenZFS 2.3: `output_version` first, properties as `{value, source: {type, data}}`.

use crate::show;
use control_api::{Property, Source, Value as PropertyValue};
use serde_json::{Map, Value, json};

/// `{"output_version": {...}, KEY: entries}` printed on one line.
pub fn envelope(command: &str, key: &str, entries: Map<String, Value>) -> String {
    let mut top = Map::new();
    top.insert("output_version".into(), json!({"command": command, "vers_major": 0, "vers_minor": 1}));
    top.insert(key.into(), Value::Object(entries));
    Value::Object(top).to_string()
}

/// A number as text, or as a number with `--json-int`.
pub fn number(value: u64, as_integer: bool) -> Value {
    if as_integer { json!(value) } else { json!(value.to_string()) }
}

/// One property with its source.
pub fn property(property: &Property, parsable: bool, as_integer: bool) -> Value {
    let value = match (&property.value, as_integer) {
        (PropertyValue::Bytes(n) | PropertyValue::Count(n) | PropertyValue::Number(n), true) => json!(n),
        (PropertyValue::Time(seconds), true) => json!(seconds),
        (value, _) => json!(show(value, parsable || as_integer)),
    };
    let (kind, data) = match &property.source {
        Source::None => ("NONE", "-".to_string()),
        Source::Default => ("DEFAULT", "-".to_string()),
        Source::Local => ("LOCAL", "-".to_string()),
        Source::Inherited(from) => ("INHERITED", from.clone()),
        Source::Received => ("RECEIVED", "-".to_string()),
        Source::Temporary => ("TEMPORARY", "-".to_string()),
    };
    json!({"value": value, "source": {"type": kind, "data": data}})
}
