//! `zfs diff`: what changed between snapshots, a line for each file.

use crate::args;
use cli::color::{Color, around};
use cli::print::Output;
use cli::{Client, Stop};
use control_api::{DiffEntry, DiffQuery, Request, Response, bytes_of_text};
use std::io::Write;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Diff) -> Result<u8, Stop> {
    let from = arguments.names.first().ok_or_else(|| Stop::usage("must provide at least one snapshot name"))?;
    if arguments.names.len() > 2 {
        return Err(Stop::usage("too many arguments"));
    }
    let to = arguments.names.get(1).cloned();
    if from.starts_with('@') && to.is_none() {
        return Err(Stop::usage("must provide the dataset of the snapshot"));
    }
    let report = match client.call(&Request::Diff(DiffQuery { from: from.clone(), to }))? {
        Response::Diff(report) => report,
        other => return Err(cli::unexpected("zfs diff failed", other).into()),
    };
    let mountpoint = bytes_of_text(&report.mountpoint);
    for entry in &report.entries {
        let (before, after) = around(color(entry.kind));
        cli::out!("{before}");
        // What fails here ends the program.
        let _ = Output.write_all(&line(entry, &mountpoint, arguments));
        cli::out!("{after}\n");
    }
    Ok(0)
}

/// Colour of a kind of difference (OpenZFS: `type_to_color`).
fn color(kind: char) -> Option<Color> {
    match kind {
        '+' => Some(Color::Green),
        '-' => Some(Color::Red),
        'M' => Some(Color::Yellow),
        'R' => Some(Color::BoldBlue),
        _ => None,
    }
}

/// Line of a difference without its end, which may have any bytes.
fn line(entry: &DiffEntry, mountpoint: &[u8], how: &args::Diff) -> Vec<u8> {
    let path = |below: &str| {
        let path = [mountpoint, bytes_of_text(below).as_slice()].concat();
        if how.raw { path } else { path.into_iter().flat_map(mangled).collect() }
    };
    let mut line = Vec::new();
    if how.times {
        line.extend(format!("{:>10}.{:09}\t", entry.ctime_seconds, entry.ctime_nanoseconds).into_bytes());
    }
    line.extend(format!("{}\t", entry.kind).into_bytes());
    if how.types {
        line.extend(format!("{}\t", kind(entry.mode)).into_bytes());
    }
    line.extend(path(&entry.path));
    if let Some(new_path) = &entry.new_path {
        let between = if how.scripted { "\t" } else { " -> " };
        line.extend_from_slice(between.as_bytes());
        line.extend(path(new_path));
    }
    if entry.links != 0 {
        line.extend(format!("\t({:+})", entry.links).into_bytes());
    }
    line
}

/// Byte of a path as OpenZFS shows it: one that is not printable, a blank or a backslash in four octal digits.
fn mangled(byte: u8) -> Vec<u8> {
    if byte.is_ascii_graphic() && byte != b'\\' { vec![byte] } else { format!("\\{byte:04o}").into_bytes() }
}

/// Letter of a file's type (OpenZFS: `get_what`).
fn kind(mode: u64) -> char {
    match mode & 0o170_000 {
        0o060_000 => 'B',
        0o020_000 => 'C',
        0o040_000 => '/',
        0o010_000 => '|',
        0o120_000 => '@',
        0o140_000 => '=',
        0o100_000 => 'F',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::text_of_bytes;

    fn shown(entry: &DiffEntry, scripted: bool, types: bool, times: bool, raw: bool) -> Vec<u8> {
        line(entry, b"/tank/a b", &args::Diff { types, scripted, times, raw, names: Vec::new() })
    }

    /// If this fails, scripts that read `zfs diff` take one column for another, or a name for two.
    #[test]
    fn lines_are_those_that_openzfs_prints() {
        let entry = DiffEntry {
            kind: 'R',
            path: text_of_bytes(b"/x\xe9"),
            new_path: Some(text_of_bytes(b"/y\\")),
            mode: 0o100_644,
            ctime_seconds: 1_795_298_460,
            ctime_nanoseconds: 7,
            ..DiffEntry::default()
        };
        assert_eq!(shown(&entry, false, false, false, false), b"R\t/tank/a\\0040b/x\\0351 -> /tank/a\\0040b/y\\0134");
        assert_eq!(shown(&entry, true, true, true, true), b"1795298460.000000007\tR\tF\t/tank/a b/x\xe9\t/tank/a b/y\\");
        let linked = DiffEntry { kind: 'M', new_path: None, path: "/f".into(), links: -2, ..entry };
        assert_eq!(shown(&linked, false, false, false, true), b"M\t/tank/a b/f\t(-2)");
    }

    /// If this fails, `-F` says of a directory that it is a file.
    #[test]
    fn every_type_has_its_letter() {
        let modes = [0o060_000, 0o020_000, 0o040_755, 0o010_000, 0o120_777, 0o140_000, 0o100_644, 0];
        assert_eq!(modes.map(kind).into_iter().collect::<String>(), "BC/|@=F?");
    }
}
