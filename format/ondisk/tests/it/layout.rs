//! The layout of every record as one text, `layout.txt`: name, size, and offset, width, name and type of each field. Whoever moves a field must
//! change it in the same commit and say why.

use ondisk::RECORDS;
use std::fmt::Write;

fn layout() -> String {
    let mut out = String::new();
    for record in RECORDS {
        writeln!(out, "{} ({}), {} bytes", record.name, record.standard, record.bytes).expect("a string");
        for field in record.fields {
            writeln!(out, "  {:5} {:5} {}: {}", field.offset, field.bytes, field.name, field.kind).expect("a string");
        }
    }
    out
}

/// Advice on a change.
const ADVICE: &str = "These records lie otherwise on disk than layout.txt says. Pools that exist have the old layout: with another one they cannot be read, and \
                      OpenZFS cannot read what is written here. Right only for a record that is new, or that the standard has so; then \
                      `UPDATE_LAYOUT=1 cargo test -p ondisk --test it layout`, and commit layout.txt with the reason.";

/// The lines of a layout, each with the record that it is of.
fn lines(layout: &str) -> Vec<String> {
    let mut record = "";
    let mut lines = Vec::new();
    for line in layout.lines() {
        if !line.starts_with(' ') {
            record = line.split(' ').next().unwrap_or_default();
        }
        lines.push(format!("{record}: {}", line.trim()));
    }
    lines
}

/// Lines that are gone from a layout and that came.
fn changes(before: &str, after: &str) -> Vec<String> {
    let (before, after) = (lines(before), lines(after));
    let gone = before.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}"));
    let come = after.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(come).collect()
}

/// If this fails, pools that exist cannot be read any more, or OpenZFS cannot read ours.
#[test]
fn no_record_moved() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layout.txt");
    if std::env::var_os("UPDATE_LAYOUT").is_some() {
        std::fs::write(path, layout()).expect("layout.txt is writable");
    }
    let known = std::fs::read_to_string(path).expect("layout.txt");
    let changes = changes(&known, &layout());
    assert!(changes.is_empty(), "{ADVICE}\n{}", changes.join("\n"));
    assert_eq!(layout(), known, "the order of the catalog changed, and no record: renew layout.txt as above");
}

#[test]
fn a_field_that_moved_is_named() {
    let before = "A (a_t), 16 bytes\n      0     8 a_one: u64\n      8     8 a_two: u64\nB (b_t), 8 bytes\n      0     8 b_one: u64\n";
    let after = before.replace("      8     8 a_two: u64", "      8     4 a_two: u32\n     12     4 a_pad: u32");
    assert_eq!(changes(before, before), [""; 0]);
    assert_eq!(changes(before, &after), ["- A: 8     8 a_two: u64", "+ A: 8     4 a_two: u32", "+ A: 12     4 a_pad: u32"]);
}

#[test]
fn every_record_is_in_the_catalog() {
    let mut declared = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("sources") {
        let path = file.expect("a file").path();
        // Folders hold tests.
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("text");
        for block in text.split("record! {").skip(1) {
            let rows = block.lines().take_while(|line| *line != "}");
            declared.extend(rows.filter(|line| line.ends_with(" {")).filter_map(|line| line.trim().split(" = ").next().map(str::to_owned)));
        }
    }
    let known: Vec<&str> = RECORDS.iter().map(|record| record.name).collect();
    assert!(declared.len() > 40, "the sources were searched");
    for name in declared {
        assert!(known.contains(&name.as_str()), "{name} is missing in the catalog: its layout is not watched");
    }
}
