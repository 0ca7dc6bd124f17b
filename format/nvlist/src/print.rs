//! Lists as text in the shape of `zdb -l` and `zdb -C` (OpenZFS: `dump_nvlist` in `libnvpair.c`).

use crate::value::{Byte, Bytes, HrTime, NvList, Value};
use std::fmt::{Display, Write};

/// Appends `list` with every line indented by `indent` spaces.
fn dump(list: &NvList, indent: usize, out: &mut String) {
    for (name, value) in list.iter() {
        let name: &dyn Display = name;
        match value {
            Value::Boolean => line(out, indent, format_args!("{name}")),
            Value::BooleanValue(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Byte(Byte(v)) => line(out, indent, format_args!("{name}: {v}")),
            Value::Int8(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Uint8(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Int16(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Uint16(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Int32(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Uint32(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Int64(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::Uint64(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::HrTime(HrTime(v)) => line(out, indent, format_args!("{name}: {v}")),
            Value::Double(v) => line(out, indent, format_args!("{name}: {v}")),
            Value::String(v) => line(out, indent, format_args!("{name}: '{v}'")),
            Value::ByteArray(Bytes(v)) | Value::Uint8Array(v) => array(out, indent, name, v),
            Value::Int8Array(v) => array(out, indent, name, v),
            Value::Int16Array(v) => array(out, indent, name, v),
            Value::Uint16Array(v) => array(out, indent, name, v),
            Value::Int32Array(v) => array(out, indent, name, v),
            Value::Uint32Array(v) => array(out, indent, name, v),
            Value::Int64Array(v) => array(out, indent, name, v),
            Value::Uint64Array(v) => array(out, indent, name, v),
            Value::BooleanArray(v) => array(out, indent, name, v),
            Value::StringArray(v) => {
                for (index, item) in v.iter().enumerate() {
                    line(out, indent, format_args!("{name}[{index}]: '{item}'"));
                }
            }
            Value::NvList(v) => {
                line(out, indent, format_args!("{name}:"));
                dump(v, indent + 4, out);
            }
            Value::NvListArray(v) => {
                for (index, item) in v.iter().enumerate() {
                    line(out, indent, format_args!("{name}[{index}]:"));
                    dump(item, indent + 4, out);
                }
            }
        }
    }
}

/// Appends `list` as a list of lists is printed, `depth` tabs deep (OpenZFS: `nvlist_print`).
fn print(list: &NvList, depth: usize, out: &mut String) {
    let tabs = "\t".repeat(depth);
    let _ = writeln!(out, "{tabs}nvlist version: 0");
    for (name, value) in list.iter() {
        let text = match value {
            Value::Boolean => "1".to_string(),
            Value::BooleanValue(v) => u8::from(*v).to_string(),
            Value::Uint64(v) => format!("{v:#x}"),
            Value::String(v) => v.to_string(),
            Value::Uint64Array(v) => v.iter().map(|v| format!("{v:#x}")).collect::<Vec<_>>().join(" "),
            Value::NvList(v) => {
                let mut below = "(embedded nvlist)\n".to_string();
                print(v, depth + 1, &mut below);
                below + &format!("{tabs}\t(end {name})\n")
            }
            other => format!("{other:?}"),
        };
        let _ = writeln!(out, "{tabs}\t{name} = {text}");
    }
}

fn line(out: &mut String, indent: usize, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:indent$}{text}", "");
}

fn array<T: Display>(out: &mut String, indent: usize, name: &dyn Display, values: &[T]) {
    for (index, item) in values.iter().enumerate() {
        line(out, indent, format_args!("{name}[{index}]: {item}"));
    }
}

impl NvList {
    /// The list as `zdb` shows it: one pair a line, nested lists indented by four more spaces.
    pub fn dump(&self, indent: usize) -> String {
        let mut out = String::new();
        dump(self, indent, &mut out);
        out
    }

    /// The list as OpenZFS's commands print it: `\tname = value` a line, numbers in hexadecimal, below a line with the version.
    pub fn listing(&self) -> String {
        let mut out = String::new();
        print(self, 0, &mut out);
        out
    }
}
impl std::fmt::Display for NvList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.dump(0))
    }
}
