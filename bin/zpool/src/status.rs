//! `zpool status`: health, scan line, the vdev tree with its error counts, damaged files.

use crate::names::{Names, former_path, tree};
use crate::{args, checkpoint, expansion, list, power, rebuild, removal, scripts, sweeps};
use cli::color::{Color, paint};
use cli::number::{duration, nice_bytes, nice_count, nice_time_ns};
use cli::options::Output;
use cli::repeat::{Repeat, timestamp};
use cli::{Client, Stop, json, time};
use control_api::{AcceleratorReport, ErrorScrubReport, PoolReport, ScanReport, Throttled, UnservedProperty, VDEV_CLASSES, VdevReport};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Width of the narrowest column of names in characters (OpenZFS: `status_callback`).
const NAME_WIDTH_MIN: usize = 10;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Status) -> Result<u8, Stop> {
    arguments.json.check()?;
    if !arguments.json.json && arguments.flat_vdevs {
        return Err(Stop::usage("'--json-flat-vdevs' only works with '-j' option"));
    }
    if !arguments.json.json && arguments.key_guid {
        return Err(Stop::usage("'json-pool-key-guid' only works with '-j' option"));
    }
    if let Some(names) = &arguments.scripts {
        scripts::allow(names)?;
        if names.is_empty() {
            scripts::list("status");
            return Ok(0);
        }
    }
    let (pools, repeat) = Repeat::split(&arguments.words)?;
    repeat.run(|| show(client, arguments, &pools))
}

fn show(client: &Client, arguments: &args::Status, pools: &[String]) -> Result<u8, Stop> {
    let stamp = timestamp(arguments.timestamp.as_deref())?;
    let (all, code) = list::each(client, pools, arguments.verbose)?;
    let (reports, healthy): (Vec<_>, Vec<_>) = all.into_iter().partition(|report| !arguments.only_unhealthy || has_problem(report));
    if arguments.json.json {
        let entries = reports.iter().map(|report| (list::key(report, arguments.key_guid), as_json(report, arguments)));
        if code == 0 {
            cli::outln!("{}", list::stamped("zpool status", entries.collect(), stamp));
        }
        return Ok(code);
    }
    if let Some(stamp) = stamp {
        cli::outln!("{stamp}");
    }
    if reports.is_empty() && healthy.is_empty() && pools.is_empty() {
        cli::errln!("no pools available");
    } else if reports.is_empty() && pools.is_empty() {
        cli::outln!("all pools are healthy");
    }
    if !pools.is_empty() {
        healthy.iter().for_each(|report| cli::outln!("pool '{}' is healthy", report.name));
    }
    let columns = arguments.scripts.as_ref().map(|names| {
        let devices: Vec<_> = reports.iter().flat_map(|report| scripts::devices(&report.name, &report.vdevs)).collect();
        scripts::Columns::ask(names, &devices)
    });
    let blocks: Vec<String> = reports.iter().map(|report| describe(report, arguments, columns.as_ref())).collect();
    cli::out!("{}", blocks.join("\n"));
    Ok(code)
}

fn has_problem(report: &PoolReport) -> bool {
    (report.status.is_some() && !report.only_remarks) || report.errors_unavailable.is_some()
}

fn names(arguments: &args::Status) -> Names {
    Names::new(arguments.full_paths, arguments.guids, arguments.follow_links)
}

/// True when the vdev or something below it is not as it should be (`-e`).
fn is_unhealthy(vdev: &VdevReport, slow: bool) -> bool {
    let errors = vdev.read_errors + vdev.write_errors + vdev.checksum_errors + if slow { vdev.slow_ios } else { 0 };
    vdev.state != "ONLINE" || errors > 0 || vdev.children.iter().any(|child| is_unhealthy(child, slow))
}

fn describe(report: &PoolReport, arguments: &args::Status, columns: Option<&scripts::Columns>) -> String {
    let bold = |text: &'static str| paint(Some(Color::Bold), text);
    let state = paint(Color::of_state(&report.state), &report.state);
    let mut text = format!("  {} {}\n {}{state}\n", bold("pool:"), report.name, bold("state: "));
    for (heading, paragraph) in [("status: ", &report.status), ("action: ", &report.action)] {
        if let Some(paragraph) = paragraph {
            text.push_str(&format!("{}{}", bold(heading), paint(Some(Color::Yellow), &format!("{paragraph}\n"))));
        }
    }
    if let Some(id) = &report.message_id {
        text.push_str(&format!("   {} https://openzfs.github.io/openzfs-docs/msg/{id}\n", bold("see:")));
    }
    let shown = rebuild::shown(report.scan.as_ref(), &report.rebuilds);
    // An error scrub is told of in the place of the scrub before it, never in that of a resilver.
    let scan = report.scan.as_ref().filter(|_| shown.scan);
    match &report.error_scrub {
        Some(error_scrub) => {
            text.push_str(&error_scrub_lines(error_scrub));
            scan.filter(|scan| scan.function == "resilver").into_iter().for_each(|scan| text.push_str(&scan_lines(scan)));
        }
        None => scan.into_iter().for_each(|scan| text.push_str(&scan_lines(scan))),
    }
    if shown.rebuilds {
        text.extend(report.rebuilds.iter().map(rebuild::lines));
    }
    let now = cli::time::now();
    report.removal.iter().for_each(|one| text.push_str(&format!("{}{}", bold("remove: "), removal::lines(one, now))));
    if let Some(known) = &report.checkpoint {
        report.scan.iter().for_each(|scan| text.push_str(checkpoint::scan_warning(known, scan)));
        text.push_str(&checkpoint::line(known));
    }
    report.expansion.iter().for_each(|one| text.push_str(&format!("{}{}", bold("expand: "), expansion::lines(one, now))));
    report.throttled.iter().for_each(|one| text.push_str(&throttle_line(one)));
    report.accelerator.iter().for_each(|one| text.push_str(&accelerator_lines(one)));
    let (mut rows, mut classes) = class_rows(&report.vdevs, names(arguments));
    let beside = |list: &'_ [VdevReport]| -> Vec<(String, VdevReport)> {
        list.iter().map(|vdev| (format!("  {}", names(arguments).of(vdev)), vdev.clone())).collect()
    };
    let (spares, caches) = (beside(&report.spares), beside(&report.caches));
    let all = rows
        .iter()
        .chain(classes.iter().flat_map(|(_, rows)| rows))
        .map(|(name, _)| name)
        .chain(spares.iter().chain(&caches).map(|(name, _)| name));
    let width = all.map(|name| name.chars().count()).max().unwrap_or(0).max(NAME_WIDTH_MIN);
    let shown = |vdev: &VdevReport| !arguments.only_unhealthy_vdevs || vdev.kind == "root" || is_unhealthy(vdev, arguments.slow);
    rows.retain(|(_, vdev)| shown(vdev));
    classes.iter_mut().for_each(|(_, rows)| rows.retain(|(_, vdev)| shown(vdev)));
    let line = |row: &Row<'_>| {
        let cells = columns.zip(row.1.path.as_ref()).map(|(columns, path)| columns.cells(&report.name, path)).unwrap_or_default();
        vdev_line(row, width, arguments, &cells)
    };
    text.push_str(&headings(width, arguments, columns));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    for (class, rows) in classes.iter().filter(|(_, rows)| !rows.is_empty()) {
        text.push_str(&format!("\t{class}\t\n"));
        rows.iter().for_each(|row| text.push_str(&line(row)));
    }
    if !caches.is_empty() {
        text.push_str("\tcache\n");
        caches.iter().for_each(|(name, vdev)| text.push_str(&line(&(name.clone(), vdev))));
    }
    text.push_str(&spare_lines(&spares, width));
    text.push_str(&error_lines(report, arguments.verbose));
    if arguments.dedup > 0 {
        text.push_str(&dedup_lines(report, arguments));
    }
    text
}

/// Vdev with its name as it stands in the tree.
type Row<'a> = (String, &'a VdevReport);

/// Rows of the vdevs for all blocks with the pool's own, and those of each class of others under its word.
fn class_rows(root: &VdevReport, names: Names) -> (Vec<Row<'_>>, [(&'static str, Vec<Row<'_>>); VDEV_CLASSES.len()]) {
    let below = |class: Option<&str>| -> Vec<Row<'_>> {
        let tops = root.children.iter().filter(|top| top.class() == class);
        tops.flat_map(|top| tree(top, names)).map(|(name, vdev)| (format!("  {name}"), vdev)).collect()
    };
    let mut rows = vec![(names.of(root), root)];
    rows.extend(below(None));
    (rows, VDEV_CLASSES.map(|class| (class, below(Some(class)))))
}

/// Line above the vdevs.
fn headings(width: usize, arguments: &args::Status, columns: Option<&scripts::Columns>) -> String {
    let bold = |text: &str| paint(Some(Color::Bold), text).into_owned();
    let names = format!("config:\n\n\t{:width$}  {:8} {:>5} {:>5} {:>5}", "NAME", "STATE", "READ", "WRITE", "CKSUM");
    let slow = if arguments.slow { bold(&format!(" {:>5}", "SLOW")) } else { String::new() };
    let power = if arguments.power { bold(&format!(" {:>5}", "POWER")) } else { String::new() };
    let direct = if arguments.direct { bold(&format!(" {:>5}", "DIO")) } else { String::new() };
    format!("{}{slow}{power}{direct}{}\n", bold(&names), columns.map(|columns| columns.heading(false)).unwrap_or_default())
}

/// Line of a vdev with its counters, and what scripts say of it.
fn vdev_line((name, vdev): &Row<'_>, width: usize, arguments: &args::Status, cells: &str) -> String {
    let number = |count: u64| if arguments.parsable { count.to_string() } else { nice_count(count) };
    let red = |count: u64| paint((count > 0).then_some(Color::Red), &format!("{:>5}", number(count))).into_owned();
    let slow = match (arguments.slow, vdev.children.is_empty()) {
        (false, _) => String::new(),
        (true, true) => paint((vdev.slow_ios > 0).then_some(Color::Blue), &format!(" {:>5}", number(vdev.slow_ios))).into_owned(),
        (true, false) => format!(" {:>5}", "-"),
    };
    let power = if arguments.power { power_cell(vdev) } else { String::new() };
    let direct = if arguments.direct { format!(" {:>5}", number(vdev.dio_verify_errors)) } else { String::new() };
    let note = vdev.note.as_deref().map_or(String::new(), |note| format!("  {note}"));
    let [reads, writes, sums] = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].map(red);
    let sweeps = sweeps::notes(vdev, arguments);
    let head = format!("\t{name:width$}  {:8}", vdev.state);
    let head = paint(Color::of_state(&vdev.state), &head);
    format!("{head} {reads} {writes} {sums}{slow}{power}{direct}{note}{cells}{sweeps}\n")
}

/// Cell of the power of a device's slot.
fn power_cell(vdev: &VdevReport) -> String {
    let word = power::word(vdev);
    paint((word == "off").then_some(Color::Red), &format!(" {word:>5}")).into_owned()
}

/// Lines of the spares, which have no counters (OpenZFS: `print_spares`).
fn spare_lines(spares: &[(String, VdevReport)], width: usize) -> String {
    if spares.is_empty() {
        return String::new();
    }
    let line = |(name, spare): &(String, VdevReport)| {
        let note = spare.note.as_deref().map_or(String::new(), |note| format!("  {note}"));
        format!("\t{name:width$}  {:8}{note}\n", spare.state)
    };
    format!("\tspares\n{}", spares.iter().map(line).collect::<String>())
}

/// Lines on the tables of deduplication of a pool (OpenZFS: `print_dedup_stats`).
fn dedup_lines(report: &PoolReport, arguments: &args::Status) -> String {
    let Some(dedup) = &report.dedup else {
        // A pool that has tables of other kinds can be read only.
        let is_written = cli::find(&report.properties, "readonly").is_none_or(|property| cli::show(&property.value, true) != "on");
        return format!("\n dedup: no DDT entries{}\n", if is_written { "" } else { " that this version reads" });
    };
    let shown = |bytes: u64| if arguments.parsable { bytes.to_string() } else { nice_bytes(bytes) };
    let (disk, memory) = (shown(dedup.disk_bytes), shown(dedup.memory_bytes));
    let mut first = format!("\n dedup: DDT entries {}, size {disk} on disk, {memory} in core", dedup.entries);
    if arguments.dedup > 1 {
        let cached = dedup.cached_bytes.min(dedup.memory_bytes);
        let percent = cached as f64 / dedup.memory_bytes.max(1) as f64 * 100.0;
        first.push_str(&format!(", {} cached ({percent:.2}%)", shown(cached)));
    }
    first.push('\n');
    first + &cli::dedup::histogram(&dedup.histogram, true)
}

fn error_lines(report: &PoolReport, verbose: bool) -> String {
    if let Some(reason) = &report.errors_unavailable {
        return format!("\nerrors: List of errors unavailable: {reason}\n");
    }
    match (report.error_count, verbose) {
        (0, _) => "\nerrors: No known data errors\n".to_string(),
        (count, false) => {
            let text = format!("errors: {count} data errors, use '-v' for a list\n");
            format!("\n{}", paint(Some(Color::Red), &text))
        }
        // The names of other people's files are not for everybody.
        (_, true) if report.errors.is_empty() => "\nerrors: List of errors unavailable: permission denied\n".to_string(),
        (_, true) => {
            let files: String = report.errors.iter().map(|file| format!("        {file}\n")).collect();
            format!("\nerrors: Permanent errors have been detected in the following files:\n\n{files}")
        }
    }
}

/// Lines `scan:` of a scan.
fn scan_lines(scan: &ScanReport) -> String {
    let verb = if scan.function == "scrub" { "repaired" } else { "resilvered" };
    let ended = if scan.function == "scrub" { "scrub repaired" } else { "resilvered" };
    let elapsed = duration((scan.end_time - scan.start_time).max(0) as u64);
    match scan.state.as_str() {
        "finished" => format!(
            "  scan: {ended} {} in {elapsed} with {} errors on {}\n",
            nice_bytes(scan.repaired_bytes),
            scan.errors,
            time::long(scan.end_time)
        ),
        "canceled" => format!("  scan: {} canceled on {}\n", scan.function, time::long(scan.end_time)),
        _ => running_lines(scan, verb),
    }
}

/// Line on who is held back, and why (OpenZFS has no such line).
fn throttle_line(one: &Throttled) -> String {
    let why = match one.reason.as_str() {
        "share" => format!("{} at a time", one.share_milli.div_ceil(1000)),
        "yield" => "while others wait".to_string(),
        "calibration" => "to measure the device without it".to_string(),
        _ => "by credit".to_string(),
    };
    let time = |name: &str, ns: Option<u64>| ns.map(|ns| format!(", {name} {}", nice_time_ns(ns))).unwrap_or_default();
    let times = [("p99", one.beside_p99_ns), ("alone", one.alone_p99_ns), ("limit", one.limit_ns)].map(|(name, ns)| time(name, ns));
    format!("\tthrottled on {}: {} I/Os wait, {why}{}\n", one.device, one.waiting, times.concat())
}

/// Bytes per second below which OpenZFS gives no estimate (`print_scan_scrub_resilver_status`).
const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// Lines on what the pool's provider does; only pools that name one have these lines.
fn accelerator_lines(one: &AcceleratorReport) -> String {
    let list = |counts: &BTreeMap<String, u64>| counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ");
    let fallbacks: u64 = one.fallbacks.values().sum();
    let mut text = format!("   zia: provider {} is {}\n", one.provider, one.state);
    one.problem.iter().for_each(|why| text.push_str(&format!("\t{why}\n")));
    if let Some(operation) = &one.lied_at {
        text.push_str(&format!("\ta result of {operation} was wrong: nothing goes there until 'zirconia provider load' brings it back\n"));
    }
    for UnservedProperty { property, reason } in &one.unserved {
        text.push_str(&format!("\t{property} is on, and the provider does not do that: {reason}\n"));
    }
    if !one.operations.is_empty() {
        text.push_str(&format!("\t{} operations: {}\n", one.operations.values().sum::<u64>(), list(&one.operations)));
    }
    if fallbacks > 0 {
        text.push_str(&format!("\t{fallbacks} in software instead: {}\n", list(&one.fallbacks)));
    }
    if one.restarts > 0 {
        text.push_str(&format!("\t{} blocks began again from the original\n", one.restarts));
    }
    if one.verify_failures > 0 {
        text.push_str(&format!("\t{} of {} verified results were wrong\n", one.verify_failures, one.verified));
    }
    if !one.breakers_open.is_empty() {
        text.push_str(&format!("\tswitched off for now: {}\n", one.breakers_open.join(", ")));
    }
    text
}

/// Lines of a running scan: never above 100 %, and an estimate only when there is a rate.
fn running_lines(scan: &ScanReport, verb: &str) -> String {
    let head = if scan.pause_time != 0 {
        format!("  scan: scrub paused since {}\n\tscrub started on {}\n", time::long(scan.pause_time), time::long(scan.start_time))
    } else {
        format!("  scan: {} in progress since {}\n", scan.function, time::long(scan.start_time))
    };
    let (seen, total) = (scan.to_examine_bytes, scan.to_examine_bytes.saturating_sub(scan.skipped_bytes));
    let percent = if total == 0 { 0.0 } else { (scan.issued_bytes.min(total) as f64) * 100.0 / total as f64 };
    let rate = if scan.pause_time == 0 { scan.rate_bytes_per_second } else { 0 };
    let begun = if scan.function == "scrub" { scan.issued_bytes } else { scan.repaired_bytes };
    let left = match rate {
        _ if scan.pause_time != 0 => String::new(),
        ESTIMATE_RATE_MIN.. if begun > 0 => {
            let seconds = scan.seconds_left.unwrap_or(total.saturating_sub(scan.issued_bytes) / rate);
            format!(", {} to go", duration(seconds))
        }
        _ => ", no estimated completion time".to_string(),
    };
    let at = |rate: u64| match (rate, scan.pause_time) {
        (0, _) => String::new(),
        (rate, 0) => format!(" at {}/s", nice_bytes(rate)),
        _ => String::new(),
    };
    format!(
        "{head}\t{} / {} scanned{}, {} / {} issued{}\n\t{} {verb}, {percent:.2}% done{left}\n",
        nice_bytes(scan.examined_bytes.min(seen)),
        nice_bytes(seen),
        at(scan.examined_bytes_per_second),
        nice_bytes(scan.issued_bytes.min(total)),
        nice_bytes(total),
        at(scan.rate_bytes_per_second),
        nice_bytes(scan.repaired_bytes)
    )
}

/// Lines `scrub:` of an error scrub (OpenZFS: `print_err_scrub_status`).
fn error_scrub_lines(scrub: &ErrorScrubReport) -> String {
    let seconds = (scrub.end_time - scrub.start_time).max(0);
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let head = match scrub.state.as_str() {
        "finished" => {
            return format!(
                " scrub: scrubbed {} error blocks in {days} days {:02}:{:02}:{:02} on {}\n",
                scrub.examined,
                clock / 3600,
                clock / 60 % 60,
                clock % 60,
                time::long(scrub.end_time)
            );
        }
        "canceled" => return format!(" scrub: error scrub canceled on {}\n", time::long(scrub.end_time)),
        "paused" => format!(
            " scrub: error scrub paused since {}\n\terror scrub started on {}\n",
            time::long(scrub.pause_time),
            time::long(scrub.start_time)
        ),
        _ => format!(" scrub: error scrub in progress since {}\n", time::long(scrub.start_time)),
    };
    let all = scrub.examined + scrub.to_examine;
    let percent = if all == 0 { 100.0 } else { scrub.examined as f64 * 100.0 / all as f64 };
    format!("{head}\t{percent:.2}% done, issued I/O for {} error blocks\n", scrub.examined)
}

fn as_json(report: &PoolReport, arguments: &args::Status) -> Value {
    let output = Output { parsable: arguments.parsable, json: arguments.json.clone(), ..Output::default() };
    let mut entry = list::head(report, false, &output);
    for (key, text) in [("status", &report.status), ("action", &report.action)] {
        if let Some(text) = text {
            entry.insert(key.into(), json!(format!("{text}\n")));
        }
    }
    if let Some(id) = &report.message_id {
        entry.insert("msgid".into(), json!(id));
    }
    if let Some(id) = &report.message_id {
        entry.insert("moreinfo".into(), json!(format!("https://openzfs.github.io/openzfs-docs/msg/{id}")));
    }
    let mut scan = report.scan.as_ref().map_or(json!({}), |scan| scan_json(scan, report.error_scrub.as_ref(), &output));
    if !report.rebuilds.is_empty() {
        scan["rebuild_stats"] = rebuild::as_json(&report.rebuilds, &output);
    }
    if scan.as_object().is_some_and(|scan| !scan.is_empty()) {
        entry.insert("scan_stats".into(), scan);
    }
    if let Some(one) = &report.removal {
        entry.insert("removal_stats".into(), removal::as_json(one, &output));
    }
    if let Some(one) = &report.expansion {
        entry.insert("raidz_expand_stats".into(), expansion::as_json(one, &output));
    }
    if let Some(known) = &report.checkpoint {
        let state = if known.is_discarding { "DISCARDING" } else { "EXISTS" };
        let (began, space) = (moment(known.start_time, &output), json::size(known.bytes, &output));
        entry.insert("checkpoint_stats".into(), json!({ "state": state, "start_time": began, "space": space }));
    }
    if !report.throttled.is_empty() {
        entry.insert("throttled".into(), json!(report.throttled));
    }
    if let Some(accelerator) = &report.accelerator {
        entry.insert("zia".into(), json!(accelerator));
    }
    let mut vdevs = Map::new();
    let picture = Picture {
        names: names(arguments),
        flat: arguments.flat_vdevs,
        output: &output,
        unhealthy: arguments.only_unhealthy_vdevs,
        direct: arguments.direct,
        power: arguments.power,
        beside: None,
    };
    let of_class =
        |class: Option<&str>| -> Vec<VdevReport> { report.vdevs.children.iter().filter(|top| top.class() == class).cloned().collect() };
    picture.add(&VdevReport { children: of_class(None), ..report.vdevs.clone() }, None, &mut vdevs);
    entry.insert("vdevs".into(), Value::Object(vdevs));
    let classes = VDEV_CLASSES.map(|class| (class, of_class(Some(class))));
    for (key, list) in classes.into_iter().chain([("l2cache", report.caches.clone()), ("spares", report.spares.clone())]) {
        if !list.is_empty() {
            let (mut below, picture) = (Map::new(), Picture { beside: list::class_beside(key), ..picture });
            list.iter().for_each(|vdev| picture.add(vdev, None, &mut below));
            entry.insert(key.into(), Value::Object(below));
        }
    }
    match &report.errors_unavailable {
        Some(reason) => entry.insert("errors_unavailable".into(), json!(reason)),
        None => entry.insert("error_count".into(), json::count(report.error_count, &output)),
    };
    if arguments.verbose && report.error_count > 0 {
        entry.insert("errlist".into(), json!(report.errors));
    }
    Value::Object(entry)
}

/// JSON of a time in seconds since the epoch, 0 for none.
fn moment(seconds: i64, output: &Output) -> Value {
    match (output.is_exact(), seconds) {
        (true, seconds) => json::number(seconds.max(0) as u64, output.json.json_int),
        (false, 0) => json!("-"),
        (false, seconds) => json!(time::long(seconds)),
    }
}

/// JSON `scan_stats`, in the order of OpenZFS's `scan_status_nvlist`.
fn scan_json(scan: &ScanReport, error_scrub: Option<&ErrorScrubReport>, output: &Output) -> Value {
    let size = |bytes: u64| json::size(bytes, output);
    let date = |seconds: i64| moment(seconds, output);
    let exact = |number: u64| json::number(number, output.json.json_int);
    let state = |state: &str| if state == "paused" { "SCANNING".to_string() } else { state.to_uppercase() };
    let mut stats = json!({
        "function": scan.function.to_uppercase(),
        "state": state(&scan.state),
        "start_time": date(scan.start_time),
        "end_time": date(scan.end_time),
        "to_examine": size(scan.to_examine_bytes),
        "examined": size(scan.examined_bytes),
        "skipped": size(scan.skipped_bytes),
        "processed": size(scan.repaired_bytes),
        "errors": json::count(scan.errors, output),
        "bytes_per_scan": size(scan.pass_examined_bytes),
        "pass_start": exact(scan.pass_start.max(0) as u64),
        "scrub_pause": date(scan.pause_time),
        "scrub_spent_paused": exact(scan.pass_paused_seconds),
        "issued_bytes_per_scan": size(scan.pass_issued_bytes),
        "issued": size(scan.issued_bytes)
    });
    if let (Some(scrub), Some(stats)) = (error_scrub, stats.as_object_mut()) {
        let running = matches!(scrub.state.as_str(), "scanning" | "paused");
        stats.insert("err_scrub_func".into(), json!("ERRORSCRUB"));
        stats.insert("err_scrub_state".into(), if running { json!("ERRORSCRUBBING") } else { json!(state(&scrub.state)) });
        stats.insert("err_scrub_start_time".into(), date(scrub.start_time));
        stats.insert("err_scrub_end_time".into(), date(scrub.end_time));
        stats.insert("err_scrub_examined".into(), json::count(scrub.examined, output));
        stats.insert("err_scrub_to_examine".into(), json::count(scrub.to_examine, output));
        stats.insert("err_scrub_pause".into(), exact(scrub.pause_time.max(0) as u64));
    }
    stats
}

/// Way in which vdevs are pictured in JSON.
struct Picture<'a> {
    names: Names,
    flat: bool,
    unhealthy: bool,
    direct: bool,
    power: bool,
    /// Class of what is beside the vdevs.
    beside: Option<&'static str>,
    output: &'a Output,
}

impl Picture<'_> {
    /// Adds a vdev under its name, in the order of OpenZFS's `vdev_stats_nvlist`.
    fn add(&self, vdev: &VdevReport, parent: Option<&str>, into: &mut Map<String, Value>) {
        if self.unhealthy && parent.is_some() && !is_unhealthy(vdev, false) {
            return;
        }
        let name = self.names.of(vdev);
        let mut entry = list::vdev_head(vdev, &name, self.beside, self.output.json.json_int);
        if let (true, Some(parent)) = (self.flat, parent) {
            entry.insert("parent".into(), json!(parent));
        }
        for (key, bytes) in [("alloc_space", vdev.allocated_bytes), ("total_space", vdev.size_bytes)] {
            if bytes > 0 {
                entry.insert(key.into(), json::size(bytes, self.output));
            }
        }
        let counts = [("read_errors", vdev.read_errors), ("write_errors", vdev.write_errors), ("checksum_errors", vdev.checksum_errors)];
        entry.extend(counts.map(|(key, count)| (key.to_string(), json::count(count, self.output))));
        if vdev.checkpoint_bytes > 0 {
            entry.insert("checkpoint_space".into(), json::size(vdev.checkpoint_bytes, self.output));
        }
        if vdev.note.as_deref() == Some("(awaiting resilver)") {
            entry.insert("resilver_deferred".into(), json::number(1, self.output.json.json_int));
        }
        if vdev.children.is_empty() {
            entry.insert("slow_ios".into(), json::count(vdev.slow_ios, self.output));
        }
        if self.power && vdev.children.is_empty() {
            entry.insert("power_state".into(), json!(power::word(vdev)));
        }
        if self.direct {
            entry.insert("dio_verify_errors".into(), json::count(vdev.dio_verify_errors, self.output));
        }
        if let Some(was) = former_path(vdev) {
            entry.insert("not_present".into(), json::number(1, self.output.json.json_int));
            entry.insert("was".into(), json!(was));
        }
        let mut children = Map::new();
        for child in &vdev.children {
            self.add(child, Some(&name), if self.flat { &mut *into } else { &mut children });
        }
        if !children.is_empty() {
            entry.insert("vdevs".into(), Value::Object(children));
        }
        into.insert(name, Value::Object(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::DedupReport;

    fn leaf(path: &str, kind: &str) -> VdevReport {
        VdevReport {
            name: path.into(),
            kind: kind.into(),
            guid: 7,
            state: "ONLINE".into(),
            path: Some(path.into()),
            ..VdevReport::default()
        }
    }

    fn scan(state: &str) -> ScanReport {
        ScanReport {
            function: "scrub".into(),
            state: state.into(),
            start_time: 0,
            end_time: 61,
            pause_time: 0,
            to_examine_bytes: 2 << 30,
            examined_bytes: 1 << 30,
            issued_bytes: 1 << 30,
            skipped_bytes: 0,
            repaired_bytes: 0,
            errors: 0,
            rate_bytes_per_second: 0,
            examined_bytes_per_second: 0,
            seconds_left: None,
            pass_start: 0,
            pass_examined_bytes: 0,
            pass_issued_bytes: 0,
            pass_paused_seconds: 0,
        }
    }

    fn report(scan: Option<ScanReport>) -> PoolReport {
        let mirror = VdevReport {
            name: "mirror-0".into(),
            kind: "mirror".into(),
            state: "ONLINE".into(),
            dio_verify_errors: 3,
            children: vec![leaf("/a", "file"), VdevReport { checksum_errors: 1234, ..leaf("/dev/sdb", "disk") }],
            ..VdevReport::default()
        };
        let root = VdevReport {
            name: "tank".into(),
            kind: "root".into(),
            state: "ONLINE".into(),
            children: vec![mirror],
            ..VdevReport::default()
        };
        PoolReport {
            spares: Vec::new(),
            caches: Vec::new(),
            name: "tank".into(),
            guid: 5,
            txg: 9,
            state: "ONLINE".into(),
            status: None,
            action: None,
            message_id: None,
            only_remarks: false,
            scan,
            checkpoint: None,
            throttled: Vec::new(),
            accelerator: None,
            rebuilds: Vec::new(),
            removal: None,
            expansion: None,
            error_scrub: None,
            vdevs: root,
            dedup: None,
            error_count: 0,
            errors: Vec::new(),
            errors_unavailable: None,
            properties: Vec::new(),
            properties_unavailable: None,
        }
    }

    fn arguments(words: &[&str]) -> args::Status {
        use clap::Parser;
        let words = ["zpool", "status"].iter().chain(words);
        match args::Arguments::try_parse_from(words).expect("valid words").verb {
            args::Verb::Status(arguments) => arguments,
            _ => unreachable!("the verb is status"),
        }
    }

    /// If this fails, a program that looks for the cache devices or the spares of a pool takes them for its data.
    #[test]
    fn json_says_which_devices_are_beside_the_data() {
        let (caches, spares) = (vec![leaf("/c", "file")], vec![leaf("/s", "file")]);
        let shown = as_json(&PoolReport { caches, spares, ..report(None) }, &arguments(&["-j"]));
        let classes = [("l2cache", "/c"), ("spares", "/s")].map(|(key, name)| shown[key][name]["class"].as_str());
        assert_eq!(classes, [Some("l2cache"), Some("spare")], "{shown}");
        assert_eq!(shown["vdevs"]["tank"]["vdevs"]["mirror-0"]["class"].as_str(), Some("normal"), "{shown}");
    }

    #[test]
    fn a_healthy_pool_reads_as_openzfs_prints_it() {
        let ended = time::long(61);
        let expected = format!(
            "  pool: tank\n state: ONLINE\n  scan: scrub repaired 0B in 00:01:01 with 0 errors on {ended}\n\
             config:\n\n\tNAME        STATE     READ WRITE CKSUM\n\ttank        ONLINE       0     0     0\n\t  mirror-0  \
             ONLINE       0     0     0\n\t    /a      ONLINE       0     0     0\n\t    sdb     ONLINE       0     0 1.21K\n\n\
             errors: No known data errors\n"
        );
        assert_eq!(describe(&report(Some(scan("finished"))), &arguments(&[]), None), expected);
        let with_direct = describe(&report(None), &arguments(&["-d"]), None);
        assert!(with_direct.contains("WRITE CKSUM   DIO\n") && with_direct.contains("mirror-0  ONLINE       0     0     0     3\n"));
        let in_json = as_json(&report(None), &arguments(&["-d", "-j"])).to_string();
        assert!(in_json.contains(r#""dio_verify_errors":"3""#) && in_json.contains(r#""dio_verify_errors":"0""#), "{in_json}");
        let dedup = DedupReport { entries: 3, disk_bytes: 4096, memory_bytes: 65_536, cached_bytes: 32_768, ..DedupReport::default() };
        let tables = PoolReport { dedup: Some(dedup), ..report(None) };
        let line = "\n dedup: DDT entries 3, size 4096 on disk, 65536 in core, 32768 cached (50.00%)\n";
        assert!(describe(&tables, &arguments(&["-DDp"]), None).contains(line));
        assert!(describe(&tables, &arguments(&["-D"]), None).contains("size 4K on disk, 64K in core\n"));
        let with_dedup = describe(&report(None), &arguments(&["-D"]), None);
        assert!(with_dedup.ends_with("\nerrors: No known data errors\n\n dedup: no DDT entries\n"), "{with_dedup}");
        let with_power = describe(&report(None), &arguments(&["-d", "--power"]), None);
        assert!(with_power.contains("CKSUM POWER   DIO\n") && with_power.contains("mirror-0  ONLINE       0     0     0     -     3\n"));
        let in_json = as_json(&report(None), &arguments(&["--power", "-j"])).to_string();
        assert_eq!(in_json.matches(r#""power_state":"-""#).count(), 2, "{in_json}");
        assert!(describe(&report(None), &arguments(&["-p"]), None).contains("sdb     ONLINE       0     0  1234\n"));
        assert!(describe(&report(None), &arguments(&["-P"]), None).contains("/dev/sdb"));
    }

    /// Nobody would look for the reason of slow writes in a provider that nothing is said of; and a pool without one reads as ever.
    #[test]
    fn what_a_provider_does_is_shown_before_the_vdevs() {
        let counts = |list: &[(&str, u64)]| list.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        let busy = AcceleratorReport {
            provider: "card".into(),
            state: "active".into(),
            operations: counts(&[("checksum", 7), ("compress", 5)]),
            fallbacks: counts(&[("timeout", 2), ("tripped", 1)]),
            restarts: 1,
            verified: 9,
            verify_failures: 2,
            breakers_open: vec!["compress".into()],
            ..AcceleratorReport::default()
        };
        let gone = AcceleratorReport { provider: "card".into(), state: "absent".into(), ..AcceleratorReport::default() };
        assert_eq!(accelerator_lines(&gone), "   zia: provider card is absent\n");
        let down = AcceleratorReport { state: "down".into(), problem: Some("it cannot be reached".into()), ..gone.clone() };
        assert_eq!(accelerator_lines(&down), "   zia: provider card is down\n\tit cannot be reached\n");
        let unserved = vec![UnservedProperty { property: "zia_file_write".into(), reason: "the write failed (errno 13)".into() }];
        let partial = AcceleratorReport { state: "active".into(), unserved, ..gone.clone() };
        let expected = "\tzia_file_write is on, and the provider does not do that: the write failed (errno 13)\n";
        assert_eq!(accelerator_lines(&partial), format!("   zia: provider card is active\n{expected}"));
        let liar = AcceleratorReport { state: "distrusted".into(), lied_at: Some("checksum".into()), ..gone.clone() };
        let expected = "   zia: provider card is distrusted\n\ta result of checksum was wrong: nothing goes there until";
        assert!(accelerator_lines(&liar).starts_with(expected), "{}", accelerator_lines(&liar));
        let text = describe(&PoolReport { accelerator: Some(busy), ..report(None) }, &arguments(&[]), None);
        let expected = "   zia: provider card is active\n\t12 operations: 7 checksum, 5 compress\n\t3 in software instead: 2 timeout, 1 tripped\n\
                        \t1 blocks began again from the original\n\t2 of 9 verified results were wrong\n\tswitched off for now: compress\nconfig:\n\n";
        assert!(text.contains(expected), "{text}");
        let in_json = as_json(&PoolReport { accelerator: Some(gone), ..report(None) }, &arguments(&["-j"])).to_string();
        assert!(in_json.contains(r#""zia":{"provider":"card","state":"absent""#), "{in_json}");
        assert!(!as_json(&report(None), &arguments(&["-j"])).to_string().contains("zia"));
    }

    /// Scripts wait for these words, and nobody may be told of work that is not to be done.
    #[test]
    fn a_resilver_reads_as_openzfs_prints_it() {
        let resilver = ScanReport { function: "resilver".into(), repaired_bytes: 1 << 20, skipped_bytes: 1 << 30, ..scan("finished") };
        let done = format!("  scan: resilvered 1M in 00:01:01 with 0 errors on {}\n", time::long(61));
        assert_eq!(scan_lines(&resilver), done);
        let running = scan_lines(&ScanReport { state: "scanning".into(), issued_bytes: 512 << 20, ..resilver });
        assert!(running.starts_with("  scan: resilver in progress since "), "{running}");
        assert!(running.contains("\t1G / 2G scanned, 512M / 1G issued\n\t1M resilvered, 50.00% done"), "{running}");
    }

    #[test]
    fn an_estimate_needs_a_rate_worth_the_name() {
        let slow = running_lines(&ScanReport { rate_bytes_per_second: 1 << 20, ..scan("scanning") }, "repaired");
        assert!(slow.ends_with("\t0B repaired, 50.00% done, no estimated completion time\n"), "{slow}");
        let fast = running_lines(&ScanReport { rate_bytes_per_second: 64 << 20, ..scan("scanning") }, "repaired");
        assert!(fast.ends_with("50.00% done, 00:00:16 to go\n"), "{fast}");
        let both = ScanReport { rate_bytes_per_second: 64 << 20, examined_bytes_per_second: 1 << 30, ..scan("scanning") };
        assert!(running_lines(&both, "repaired").contains("\t1G / 2G scanned at 1G/s, 1G / 2G issued at 64M/s\n"));
        let paused = running_lines(&ScanReport { pause_time: 5, state: "paused".into(), ..both }, "repaired");
        assert!(paused.ends_with("\t1G / 2G scanned, 1G / 2G issued\n\t0B repaired, 50.00% done\n"), "{paused}");
    }

    #[test]
    fn an_error_scrub_reads_as_openzfs_prints_it() {
        let scrub = ErrorScrubReport { state: "scanning".into(), start_time: 0, end_time: 0, pause_time: 0, to_examine: 3, examined: 1 };
        let running = error_scrub_lines(&scrub);
        assert!(running.starts_with(" scrub: error scrub in progress since "), "{running}");
        assert!(running.ends_with("\t25.00% done, issued I/O for 1 error blocks\n"), "{running}");
        let finished =
            error_scrub_lines(&ErrorScrubReport { state: "finished".into(), end_time: 90_061, examined: 4, to_examine: 0, ..scrub });
        assert!(finished.starts_with(" scrub: scrubbed 4 error blocks in 1 days 01:01:01 on "), "{finished}");
    }

    #[test]
    fn json_nests_vdevs_or_lays_them_flat_with_their_parents() {
        let nested = as_json(&report(None), &arguments(&["-j"]));
        assert_eq!(nested["vdevs"]["tank"]["vdevs"]["mirror-0"]["vdevs"]["/a"]["checksum_errors"], json!("0"));
        let flat = as_json(&report(None), &arguments(&["-j", "--json-flat-vdevs", "--json-int"]));
        assert_eq!(flat["vdevs"]["sdb"]["parent"], json!("mirror-0"));
        assert_eq!(flat["vdevs"]["sdb"]["checksum_errors"], json!(1234));
        let keys: Vec<&String> = nested.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["name", "state", "pool_guid", "txg", "spa_version", "zpl_version", "vdevs", "error_count"]);
    }
}
