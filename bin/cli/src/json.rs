//! The JSON shape of OpenZFS 2.3: `output_version` first, properties as `{value, source: {type, data}}`.

use crate::number::{nice_bytes, nice_count};
use crate::options::Output;
use crate::show;
#[cfg(test)]
use control_api::Value as PropertyValue;
use control_api::{Property, Source};
use serde_json::{Map, Value, json};

/// JSON of a command on one line: `{"output_version": {...}, KEY: entries}`.
pub fn envelope(command: &str, key: &str, entries: Map<String, Value>) -> String {
    envelope_with(command, key, entries, [])
}

/// JSON as [`envelope`] has it with more fields after the entries.
pub fn envelope_with(command: &str, key: &str, entries: Map<String, Value>, more: impl IntoIterator<Item = (String, Value)>) -> String {
    let mut top = output_version(command);
    top.insert(key.into(), Value::Object(entries));
    top.extend(more);
    Value::Object(top).to_string()
}

/// JSON of a number: as text, or as a number with `--json-int`.
pub fn number(value: u64, as_integer: bool) -> Value {
    if as_integer { json!(value) } else { json!(value.to_string()) }
}

/// JSON of a size in bytes: for people, exact, or as a number.
pub fn size(bytes: u64, output: &Output) -> Value {
    if output.is_exact() { number(bytes, output.json.json_int) } else { json!(nice_bytes(bytes)) }
}

/// JSON of a count: for people, exact, or as a number.
pub fn count(count: u64, output: &Output) -> Value {
    if output.is_exact() { number(count, output.json.json_int) } else { json!(nice_count(count)) }
}

/// JSON of properties: `{NAME: {value, source}, …}` in the order given; `name` itself is left out, since every entry has it.
pub fn properties<'a>(list: impl IntoIterator<Item = &'a Property>, output: &Output) -> Value {
    let entries = list.into_iter().filter(|property| property.name != "name");
    Value::Object(entries.map(|entry| (entry.name.clone(), property(entry, output))).collect())
}

/// JSON of one property with its source; with `--json-int` a value of digits only is a number.
fn property(property: &Property, output: &Output) -> Value {
    let text = show(&property.value, output.is_exact());
    let value = match text.parse::<u64>() {
        Ok(number) if output.json.json_int && text.bytes().all(|byte| byte.is_ascii_digit()) => json!(number),
        _ => json!(text),
    };
    let (kind, data) = match &property.source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
    };
    json!({"value": value, "source": {"type": kind, "data": data}})
}

/// JSON for `version -j` of a program: there is no kernel module.
pub fn version(program: &str, version: &str) -> String {
    let mut text = output_version(&format!("{program} version"));
    text.insert("zfs_version".into(), json!({"userland": format!("zirconia-{version}"), "kernel": "none"}));
    Value::Object(text).to_string()
}

fn output_version(command: &str) -> Map<String, Value> {
    let mut top = Map::new();
    top.insert("output_version".into(), json!({"command": command, "vers_major": 0, "vers_minor": 1}));
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Json;

    #[test]
    fn the_order_and_the_types_are_those_that_scripts_for_openzfs_read() {
        let list = [
            Property::fact("used", PropertyValue::Bytes(98304)),
            Property::of("atime", PropertyValue::Text("off".into()), Source::Inherited("tank".into())),
        ];
        let entries = |output: &Output| Map::from_iter([("tank/a".to_string(), json!({"properties": properties(&list, output)}))]);
        let plain = Output::default();
        assert_eq!(
            envelope("zfs get", "datasets", entries(&plain)),
            concat!(
                r#"{"output_version":{"command":"zfs get","vers_major":0,"vers_minor":1},"datasets":{"tank/a":{"properties":{"#,
                r#""used":{"value":"96K","source":{"type":"NONE","data":"-"}},"#,
                r#""atime":{"value":"off","source":{"type":"INHERITED","data":"tank"}}}}}}"#
            )
        );
        let numbers = Output { json: Json { json: true, json_int: true }, ..Output::default() };
        assert!(envelope("zfs get", "datasets", entries(&numbers)).contains(r#""used":{"value":98304,"#));
    }
}
