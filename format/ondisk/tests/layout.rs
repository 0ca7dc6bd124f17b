//! The layout of every record as one text: whoever moves a field must change `layout.txt` in the same commit and say why.

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

#[test]
fn no_record_moved() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layout.txt");
    if std::env::var_os("UPDATE_LAYOUT").is_some() {
        std::fs::write(path, layout()).expect("layout.txt is writable");
    }
    assert_eq!(layout(), std::fs::read_to_string(path).expect("layout.txt"), "run with UPDATE_LAYOUT=1 if the format really changed");
}

#[test]
fn every_record_is_in_the_catalog() {
    let mut declared = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("sources") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
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
