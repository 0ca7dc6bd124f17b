//! `zpool status`: health, scan line, the vdev tree with its error counts, damaged files.

use crate::{args, list};
use cli::number::{duration, nice_bytes, nice_count};
use cli::{Client, json, time};
use control_api::{Failure, PoolReport, ScanReport, VdevReport};
use serde_json::{Map, Value, json};

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Status) -> Result<u8, Failure> {
    let mut reports = list::reports(client, arguments.pools.clone(), arguments.verbose)?;
    let any = !reports.is_empty();
    if arguments.only_unhealthy {
        reports.retain(|report| {
            report.state != "ONLINE" || report.status.is_some() || report.error_count > 0 || report.errors_unavailable.is_some()
        });
    }
    if arguments.json {
        let pools: Map<String, Value> = reports.iter().map(|report| (report.name.clone(), as_json(report, arguments))).collect();
        println!("{}", json::envelope("zpool status", "pools", pools));
        return Ok(0);
    }
    if reports.is_empty() {
        println!("{}", if any { "all pools are healthy" } else { "no pools available" });
        return Ok(0);
    }
    let blocks: Vec<String> = reports.iter().map(|report| describe(report, arguments)).collect();
    print!("{}", blocks.join("\n"));
    Ok(0)
}

/// Breaks a paragraph into tab-indented lines, as status and action paragraphs stand.
pub fn wrap(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.len() + word.len() + 1 > 70 {
            lines.push(word.to_string());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n\t")
}

/// The name in the tree: the last part of a path, unless full paths are wanted or it is a file.
pub fn display_name(vdev: &VdevReport, full_paths: bool) -> String {
    match (&vdev.path, vdev.kind.as_str()) {
        (Some(path), "disk") if !full_paths => path.rsplit('/').next().unwrap_or(path).to_string(),
        (Some(path), _) => path.clone(),
        (None, _) => vdev.name.clone(),
    }
}

/// The tree as indented names, depth first.
pub fn tree(vdev: &VdevReport, full_paths: bool) -> Vec<(String, &VdevReport)> {
    fn walk<'a>(vdev: &'a VdevReport, depth: usize, full_paths: bool, rows: &mut Vec<(String, &'a VdevReport)>) {
        rows.push((format!("{}{}", "  ".repeat(depth), display_name(vdev, full_paths)), vdev));
        for child in &vdev.children {
            walk(child, depth + 1, full_paths, rows);
        }
    }
    let mut rows = Vec::new();
    walk(vdev, 0, full_paths, &mut rows);
    rows
}

fn describe(report: &PoolReport, arguments: &args::Status) -> String {
    let mut text = format!("  pool: {}\n state: {}\n", report.name, report.state);
    if let Some(status) = &report.status {
        text.push_str(&format!("status: {}\n", wrap(status)));
    }
    if let Some(action) = &report.action {
        text.push_str(&format!("action: {}\n", wrap(action)));
    }
    if let Some(id) = &report.message_id {
        text.push_str(&format!("   see: https://openzfs.github.io/openzfs-docs/msg/{id}\n"));
    }
    if let Some(scan) = &report.scan {
        text.push_str(&scan_lines(scan));
    }
    text.push_str("config:\n\n");
    let rows = tree(&report.vdevs, arguments.full_paths);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(4);
    let slow = if arguments.slow { format!(" {:>5}", "SLOW") } else { String::new() };
    text.push_str(&format!("\t{:width$}  {:8} {:>5} {:>5} {:>5}{slow}\n", "NAME", "STATE", "READ", "WRITE", "CKSUM"));
    let number = |count: u64| if arguments.parsable { count.to_string() } else { nice_count(count) };
    for (name, vdev) in rows {
        let slow = match (arguments.slow, vdev.children.is_empty()) {
            (false, _) => String::new(),
            (true, true) => format!(" {:>5}", number(vdev.slow_ios)),
            (true, false) => format!(" {:>5}", "-"),
        };
        let note = vdev.note.as_deref().map_or(String::new(), |note| format!("  {note}"));
        let counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].map(number);
        text.push_str(&format!("\t{name:width$}  {:8} {:>5} {:>5} {:>5}{slow}{note}\n", vdev.state, counts[0], counts[1], counts[2]));
    }
    text.push_str(&error_lines(report, arguments.verbose));
    text
}

fn error_lines(report: &PoolReport, verbose: bool) -> String {
    if let Some(reason) = &report.errors_unavailable {
        return format!("\nerrors: List of errors unavailable: {reason}\n");
    }
    match (report.error_count, verbose) {
        (0, _) => "\nerrors: No known data errors\n".to_string(),
        (count, false) => format!("\nerrors: {count} data errors, use '-v' for a list\n"),
        (_, true) => {
            let files: String = report.errors.iter().map(|file| format!("        {file}\n")).collect();
            format!("\nerrors: Permanent errors have been detected in the following files:\n\n{files}")
        }
    }
}

/// The `scan:` lines.
fn scan_lines(scan: &ScanReport) -> String {
    let verb = if scan.function == "scrub" { "repaired" } else { "resilvered" };
    let elapsed = duration((scan.end_time - scan.start_time).max(0) as u64);
    match scan.state.as_str() {
        "finished" => format!(
            "  scan: {} {verb} {} in {elapsed} with {} errors on {}\n",
            if scan.function == "scrub" { "scrub" } else { "resilvered" }.replace("resilvered", "resilver"),
            nice_bytes(scan.repaired_bytes),
            scan.errors,
            time::long(scan.end_time)
        ),
        "canceled" => format!("  scan: {} canceled on {}\n", scan.function, time::long(scan.end_time)),
        _ => running_lines(scan, verb),
    }
}

/// A running scan: never above 100 %, and an estimate only when there is a rate.
fn running_lines(scan: &ScanReport, verb: &str) -> String {
    let head = if scan.pause_time != 0 {
        format!("  scan: scrub paused since {}\n        scrub started on {}\n", time::long(scan.pause_time), time::long(scan.start_time))
    } else {
        format!("  scan: {} in progress since {}\n", scan.function, time::long(scan.start_time))
    };
    let total = scan.to_examine_bytes;
    let percent = if total == 0 { 0.0 } else { (scan.issued_bytes.min(total) as f64) * 100.0 / total as f64 };
    let left = match scan.rate_bytes_per_second {
        _ if scan.pause_time != 0 => String::new(),
        0 => ", no estimated completion time".to_string(),
        rate => format!(", {} to go", duration(total.saturating_sub(scan.issued_bytes) / rate)),
    };
    let rate = if scan.rate_bytes_per_second > 0 { format!(" at {}/s", nice_bytes(scan.rate_bytes_per_second)) } else { String::new() };
    format!(
        "{head}        {} / {} scanned, {} / {} issued{rate}\n        {} {verb}, {percent:.2}% done{left}\n",
        nice_bytes(scan.examined_bytes.min(total)),
        nice_bytes(total),
        nice_bytes(scan.issued_bytes.min(total)),
        nice_bytes(total),
        nice_bytes(scan.repaired_bytes)
    )
}

fn as_json(report: &PoolReport, arguments: &args::Status) -> Value {
    let int = arguments.json_int;
    let mut entry = list::head(report, int);
    entry.remove("type");
    for (key, text) in [("status", &report.status), ("action", &report.action), ("msgid", &report.message_id)] {
        if let Some(text) = text {
            entry.insert(key.into(), json!(text));
        }
    }
    if let Some(scan) = &report.scan {
        let size = |bytes: u64| if arguments.parsable || int { json::number(bytes, int) } else { json!(nice_bytes(bytes)) };
        let date = |seconds: i64| if int { json!(seconds) } else { json!(time::long(seconds)) };
        entry.insert(
            "scan_stats".into(),
            json!({
                "function": scan.function.to_uppercase(), "state": scan.state.to_uppercase(),
                "start_time": date(scan.start_time), "end_time": date(scan.end_time),
                "to_examine": size(scan.to_examine_bytes), "examined": size(scan.examined_bytes),
                "processed": size(scan.repaired_bytes), "errors": json::number(scan.errors, int),
                "issued": size(scan.issued_bytes)
            }),
        );
    }
    let mut root = Map::new();
    root.insert(report.vdevs.name.clone(), vdev_json(&report.vdevs, int));
    entry.insert("vdevs".into(), Value::Object(root));
    match &report.errors_unavailable {
        Some(reason) => entry.insert("errors_unavailable".into(), json!(reason)),
        None => entry.insert("error_count".into(), json::number(report.error_count, int)),
    };
    Value::Object(entry)
}

fn vdev_json(vdev: &VdevReport, int: bool) -> Value {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(vdev.name));
    entry.insert("vdev_type".into(), json!(vdev.kind));
    entry.insert("guid".into(), json::number(vdev.guid, int));
    if let Some(path) = &vdev.path {
        entry.insert("path".into(), json!(path));
    }
    entry.insert("class".into(), json!("normal"));
    entry.insert("state".into(), json!(vdev.state));
    if vdev.size_bytes > 0 {
        entry.insert("alloc_space".into(), if int { json!(vdev.allocated_bytes) } else { json!(nice_bytes(vdev.allocated_bytes)) });
        entry.insert("total_space".into(), if int { json!(vdev.size_bytes) } else { json!(nice_bytes(vdev.size_bytes)) });
    }
    for (key, count) in [("read_errors", vdev.read_errors), ("write_errors", vdev.write_errors), ("checksum_errors", vdev.checksum_errors)]
    {
        entry.insert(key.into(), json::number(count, int));
    }
    if !vdev.children.is_empty() {
        let children: Map<String, Value> = vdev.children.iter().map(|child| (display_name(child, true), vdev_json(child, int))).collect();
        entry.insert("vdevs".into(), Value::Object(children));
    }
    Value::Object(entry)
}
