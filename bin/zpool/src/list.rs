//! `zpool list`: pools with their space and health, their vdevs with `-v`.

use crate::args;
use crate::names::Names;
use cli::number::nice_count;
use cli::options::Output;
use cli::property::{self, POOL};
use cli::repeat::{Repeat, timestamp};
use cli::table::{Align, Column, Table};
use cli::{Client, Stop, find, json, show};
use control_api::{ErrorKind, Failure, PoolQuery, PoolReport, Property, Request, Response, VDEV_CLASSES, Value, VdevReport};
use serde_json::{Map, json};

const DEFAULT: [&str; 11] =
    ["name", "size", "allocated", "free", "checkpoint", "expandsize", "fragmentation", "capacity", "dedupratio", "health", "altroot"];

/// Names of the values that `-v` shows of a vdev, in this order and whatever `-o` says (OpenZFS: `collect_list_stats`).
const OF_VDEVS: [&str; 9] = ["size", "allocated", "free", "checkpoint", "expandsize", "fragmentation", "capacity", "dedupratio", "health"];

/// Asks for pools.
pub fn reports(client: &Client, pools: Vec<String>, errors: bool) -> Result<Vec<PoolReport>, Failure> {
    match client.call(&Request::PoolQuery(PoolQuery { pools, errors }))? {
        Response::Pools(reports) => Ok(reports),
        other => Err(cli::unexpected("cannot list pools", other)),
    }
}

/// Asks for each pool that is named, or for all; complains of those that are not there, and tells the exit code.
pub fn each(client: &Client, pools: &[String], errors: bool) -> Result<(Vec<PoolReport>, u8), Failure> {
    if pools.is_empty() {
        return Ok((reports(client, Vec::new(), errors)?, 0));
    }
    let (mut found, mut code) = (Vec::new(), 0);
    let mut seen = std::collections::BTreeSet::new();
    for pool in pools.iter().filter(|pool| seen.insert(*pool)) {
        match reports(client, vec![pool.clone()], errors) {
            Ok(more) => found.extend(more),
            Err(failure) if failure.kind == ErrorKind::NotFound => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((found, code))
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::List) -> Result<u8, Stop> {
    arguments.output.json.check()?;
    if !arguments.output.json.json && arguments.key_guid {
        return Err(Stop::usage("'json-pool-key-guid' only works with '-j' option"));
    }
    let (pools, repeat) = Repeat::split(&arguments.words)?;
    let columns: Vec<String> = match arguments.properties.as_slice() {
        [] => DEFAULT.map(String::from).to_vec(),
        [all] if all == "all" => POOL.iter().map(|property| property.name.to_string()).collect(),
        named => named.iter().map(|name| property::canonical(POOL, name)).collect::<Result<_, _>>()?,
    };
    let mut is_first = true;
    repeat.run(|| {
        let headings = std::mem::take(&mut is_first) || arguments.verbose;
        let (found, code) = each(client, &pools, false)?;
        print(&found, pools.is_empty(), &columns, arguments, (headings, code))
    })
}

fn print(reports: &[PoolReport], all: bool, columns: &[String], arguments: &args::List, (headings, code): (bool, u8)) -> Result<u8, Stop> {
    let stamp = timestamp(arguments.timestamp.as_deref())?;
    if arguments.output.json.json {
        let entries = reports.iter().map(|report| (key(report, arguments.key_guid), as_json(report, columns, arguments)));
        if code == 0 {
            cli::outln!("{}", stamped("zpool list", entries.collect(), stamp));
        }
        return Ok(code);
    }
    if let Some(stamp) = stamp {
        cli::outln!("{stamp}");
    }
    if reports.is_empty() {
        if all && !arguments.output.scripted {
            cli::outln!("no pools available");
        }
        return Ok(code);
    }
    let text = table(reports, columns, arguments).render(arguments.output.scripted);
    let skipped = if headings || arguments.output.scripted { 0 } else { 1 };
    text.lines().skip(skipped).for_each(|line| cli::outln!("{line}"));
    Ok(code)
}

fn table(reports: &[PoolReport], columns: &[String], arguments: &args::List) -> Table {
    let names = Names::new(arguments.full_paths, arguments.guids, arguments.follow_links);
    let shown: Vec<Column> = columns.iter().map(|name| property::column(POOL, name)).collect();
    // A vdev's line has its own columns, which `-o` does not choose; where they differ they stand beside those of the pool.
    let extra = (1 + OF_VDEVS.len()).saturating_sub(shown.len());
    let more = (0..if arguments.verbose { extra } else { 0 }).map(|_| Column::new("", Align::Left));
    let mut table = Table::new(shown.into_iter().chain(more));
    for report in reports {
        table.row(cells(report, columns, &arguments.output));
        if arguments.verbose {
            for_all_blocks(report).into_iter().for_each(|child| vdev_rows(child, 1, names, arguments, &mut table));
            for (class, list) in sections(report, ["cache", "spare"]) {
                if !list.is_empty() {
                    let dashes = OF_VDEVS.iter().map(|_| "-".to_string());
                    table.row(std::iter::once(class.to_string()).chain(dashes).collect());
                    list.into_iter().for_each(|vdev| vdev_rows(vdev, 1, names, arguments, &mut table));
                }
            }
        }
    }
    table
}

/// Top-level vdevs of a class, or those for all blocks.
fn of_class<'a>(report: &'a PoolReport, class: Option<&str>) -> Vec<&'a VdevReport> {
    report.vdevs.children.iter().filter(|top| top.class() == class).collect()
}

/// Top-level vdevs for all blocks, and what is left of removed ones in its place (OpenZFS: `collect_list_stats`).
fn for_all_blocks(report: &PoolReport) -> Vec<&VdevReport> {
    let mut tops = of_class(report, None);
    tops.extend(report.vdevs.removed.iter().filter(|top| top.class().is_none()));
    tops.sort_by_key(|top| top.id);
    tops
}

/// Vdevs that are listed behind those for all blocks, by the words above them; the last two are for caches and spares.
fn sections<'a>(report: &'a PoolReport, [caches, spares]: [&'static str; 2]) -> Vec<(&'static str, Vec<&'a VdevReport>)> {
    let classes = VDEV_CLASSES.map(|class| (class, of_class(report, Some(class))));
    classes.into_iter().chain([(caches, report.caches.iter().collect()), (spares, report.spares.iter().collect())]).collect()
}

fn value(report: &PoolReport, name: &str, output: &Output) -> String {
    match find(&report.properties, name) {
        _ if name == "name" => report.name.clone(),
        Some(property) => cli::show_of_pool(&property.value, output.is_exact()),
        None => "-".to_string(),
    }
}

fn cells(report: &PoolReport, columns: &[String], output: &Output) -> Vec<String> {
    columns.iter().map(|name| value(report, name, output)).collect()
}

/// Value of a property of a vdev as `-v` shows it; sizes have no unit for bytes here, and capacities have decimals.
fn vdev_value(vdev: &VdevReport, name: &str, exact: bool) -> String {
    let is_top = vdev.size_bytes > 0;
    let size = |bytes: u64| if exact { bytes.to_string() } else { nice_count(bytes) };
    match name {
        // A device has its own size, whatever its top-level vdev offers (OpenZFS: `vs_pspace`).
        "size" if vdev.psize_bytes > 0 && vdev.children.is_empty() => size(vdev.psize_bytes),
        "size" if is_top => size(vdev.size_bytes),
        "allocated" if is_top => size(vdev.allocated_bytes),
        "free" if is_top => size(vdev.size_bytes.saturating_sub(vdev.allocated_bytes)),
        "checkpoint" if vdev.checkpoint_bytes > 0 => size(vdev.checkpoint_bytes),
        "expandsize" if is_top && vdev.expand_bytes > 0 => size(vdev.expand_bytes),
        "fragmentation" if is_top => vdev.fragmentation_percent.map_or("-".into(), |percent| show(&Value::Percent(percent), exact)),
        "capacity" if is_top => {
            let hundredths = u128::from(vdev.allocated_bytes) * 10000 / u128::from(vdev.size_bytes);
            match hundredths {
                _ if exact => (hundredths / 100).to_string(),
                0..1000 => format!("{:.2}%", hundredths as f64 / 100.0),
                1000..10000 => format!("{:.1}%", hundredths as f64 / 100.0),
                _ => format!("{:3.0}%", hundredths as f64 / 100.0),
            }
        }
        "health" => vdev.state.clone(),
        _ => "-".to_string(),
    }
}

fn vdev_rows(vdev: &VdevReport, depth: usize, names: Names, arguments: &args::List, table: &mut Table) {
    let indent = if arguments.output.scripted { "\t".to_string() } else { "  ".repeat(depth) };
    let mut row = vec![format!("{indent}{}", names.of(vdev))];
    row.extend(OF_VDEVS.iter().map(|name| vdev_value(vdev, name, arguments.output.is_exact())));
    table.row(row);
    for child in &vdev.children {
        vdev_rows(child, depth + 1, names, arguments, table);
    }
}

fn as_json(report: &PoolReport, columns: &[String], arguments: &args::List) -> serde_json::Value {
    let output = &arguments.output;
    let none = |name: &String| Property::fact(name, Value::None);
    let properties: Vec<Property> =
        columns.iter().map(|name| find(&report.properties, name).cloned().unwrap_or_else(|| none(name))).collect();
    let mut entry = head(report, true, output);
    entry.insert("properties".into(), json::properties(&properties, output));
    if arguments.verbose {
        let names = Names::new(arguments.full_paths, arguments.guids, arguments.follow_links);
        let vdevs: Map<String, serde_json::Value> =
            for_all_blocks(report).into_iter().map(|child| (names.of(child), vdev_json(child, None, names, output))).collect();
        entry.insert("vdevs".into(), json!(vdevs));
        for (key, list) in sections(report, ["l2cache", "spares"]) {
            if !list.is_empty() {
                let picture = |vdev| vdev_json(vdev, class_beside(key), names, output);
                let below: Map<String, serde_json::Value> = list.into_iter().map(|vdev| (names.of(vdev), picture(vdev))).collect();
                entry.insert(key.into(), json!(below));
            }
        }
    }
    json!(entry)
}

fn vdev_json(vdev: &VdevReport, beside: Option<&str>, names: Names, output: &Output) -> serde_json::Value {
    let mut entry = vdev_head(vdev, &names.of(vdev), beside, output.json.json_int);
    let properties: Vec<Property> =
        OF_VDEVS.iter().map(|name| Property::fact(name, Value::Text(vdev_value(vdev, name, output.is_exact())))).collect();
    entry.insert("properties".into(), json::properties(&properties, output));
    if !vdev.children.is_empty() {
        let children: Map<String, serde_json::Value> =
            vdev.children.iter().map(|child| (names.of(child), vdev_json(child, beside, names, output))).collect();
        entry.insert("vdevs".into(), json!(children));
    }
    json!(entry)
}

/// Key that a pool is filed under in JSON.
pub fn key(report: &PoolReport, by_guid: bool) -> String {
    if by_guid { report.guid.to_string() } else { report.name.clone() }
}

/// JSON of all pools, with the time stamp that `-T` asked for.
pub fn stamped(command: &str, pools: Map<String, serde_json::Value>, stamp: Option<String>) -> String {
    match stamp {
        None => json::envelope(command, "pools", pools),
        Some(stamp) => json::envelope_with(command, "pools", pools, [("time".to_string(), json!(stamp))]),
    }
}

/// Fields that every JSON entry of a pool starts with (OpenZFS: `fill_pool_info`).
pub fn head(report: &PoolReport, with_type: bool, output: &Output) -> Map<String, serde_json::Value> {
    let int = output.json.json_int;
    let mut entry = Map::new();
    entry.insert("name".into(), json!(report.name));
    if with_type {
        entry.insert("type".into(), json!("POOL"));
    }
    entry.insert("state".into(), json!(report.state));
    entry.insert("pool_guid".into(), json::number(report.guid, int));
    entry.insert("txg".into(), json::number(report.txg, int));
    entry.insert("spa_version".into(), json::number(5000, int));
    entry.insert("zpl_version".into(), json::number(5, int));
    entry
}

/// Class of what is beside the vdevs of a pool, by the key that JSON lists it under (OpenZFS: `VDEV_TYPE_L2CACHE`, `VDEV_TYPE_SPARE`); None for other keys.
pub fn class_beside(key: &str) -> Option<&'static str> {
    match key {
        "l2cache" => Some("l2cache"),
        "spares" => Some("spare"),
        _ => None,
    }
}

/// Fields that every JSON entry of a vdev starts with (OpenZFS: `fill_vdev_info`). `beside` is the class of what is beside the vdevs.
pub fn vdev_head(vdev: &VdevReport, name: &str, beside: Option<&str>, int: bool) -> Map<String, serde_json::Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(name));
    entry.insert("vdev_type".into(), json!(vdev.kind));
    entry.insert("guid".into(), json::number(vdev.guid, int));
    if let Some(path) = &vdev.path {
        entry.insert("path".into(), json!(path));
    }
    let among = || if vdev.is_log { "log" } else { vdev.bias.as_deref().unwrap_or("normal") };
    entry.insert("class".into(), json!(beside.unwrap_or_else(among)));
    entry.insert("state".into(), json!(vdev.state));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn arguments(words: &[&str]) -> args::List {
        match args::Arguments::try_parse_from(["zpool", "list"].iter().chain(words)).expect("valid words").verb {
            args::Verb::List(arguments) => arguments,
            _ => unreachable!("the verb is list"),
        }
    }

    fn report() -> PoolReport {
        let leaf = VdevReport {
            name: "/a".into(),
            kind: "file".into(),
            state: "ONLINE".into(),
            path: Some("/a".into()),
            size_bytes: 1 << 30,
            allocated_bytes: 1 << 20,
            fragmentation_percent: Some(0),
            ..VdevReport::default()
        };
        let number = Property::fact;
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
            scan: None,
            checkpoint: None,
            throttled: Vec::new(),
            accelerator: None,
            rebuilds: Vec::new(),
            removal: None,
            expansion: None,
            error_scrub: None,
            vdevs: VdevReport { name: "tank".into(), kind: "root".into(), children: vec![leaf], ..VdevReport::default() },
            dedup: None,
            error_count: 0,
            errors: Vec::new(),
            errors_unavailable: None,
            properties_unavailable: None,
            properties: vec![
                number("size", Value::Bytes(1 << 30)),
                number("allocated", Value::Bytes(1 << 20)),
                number("free", Value::Bytes((1 << 30) - (1 << 20))),
                number("fragmentation", Value::Percent(0)),
                number("capacity", Value::Percent(0)),
                number("dedupratio", Value::Ratio(100)),
                number("health", Value::Text("ONLINE".into())),
            ],
        }
    }

    #[test]
    fn the_columns_stand_where_scripts_and_eyes_expect_them() {
        let columns = DEFAULT.map(String::from).to_vec();
        assert_eq!(
            table(&[report()], &columns, &arguments(&[])).render(false),
            "NAME   SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT\n\
             tank     1G     1M  1023M        -         -     0%     0%  1.00x    ONLINE  -\n"
        );
        assert_eq!(
            table(&[report()], &columns, &arguments(&["-H", "-p"])).render(true),
            "tank\t1073741824\t1048576\t1072693248\t-\t-\t0\t0\t1.00\tONLINE\t-\n"
        );
    }

    #[test]
    fn a_vdev_shows_its_own_capacity_below_its_pool() {
        let columns = DEFAULT.map(String::from).to_vec();
        let text = table(&[report()], &columns, &arguments(&["-v"])).render(false);
        assert_eq!(text.lines().last(), Some("  /a     1G     1M  1023M        -         -     0%  0.09%      -    ONLINE"), "{text}");
    }

    /// If this fails, scripts written for OpenZFS do not find that a device was removed, nor the guid of what is left of it.
    #[test]
    fn what_is_left_of_removed_vdevs_is_in_its_place() {
        let report = report();
        let [leaf] = &report.vdevs.children[..] else { unreachable!("the pool has a device") };
        let removed = VdevReport {
            name: "indirect-1".into(),
            kind: "indirect".into(),
            state: "ONLINE".into(),
            guid: 77,
            id: 1,
            ..VdevReport::default()
        };
        let last = VdevReport { name: "/c".into(), path: Some("/c".into()), id: 2, ..leaf.clone() };
        let vdevs = VdevReport { children: vec![leaf.clone(), last], removed: vec![removed], ..report.vdevs.clone() };
        let report = PoolReport { vdevs, ..report };
        let rows = |words: &[&str]| table(std::slice::from_ref(&report), &["name".to_string()], &arguments(words)).render(true);
        let names = |text: &str| text.lines().skip(1).map(|line| line.split_whitespace().next().map(String::from)).collect::<Vec<_>>();
        assert_eq!(names(&rows(&["-vH"])), ["/a", "indirect-1", "/c"].map(|name| Some(name.to_string())));
        let guids = rows(&["-vgH"]);
        assert_eq!(guids.lines().nth(2), Some("\t77\t-\t-\t-\t-\t-\t-\t-\t-\tONLINE"), "{guids}");
        let shown = as_json(&report, &[], &arguments(&["-v", "-j"]));
        assert_eq!(shown["vdevs"]["indirect-1"]["vdev_type"], "indirect", "{shown}");
    }

    /// If this fails, a program that looks for the cache devices or the spares of a pool takes them for its data.
    #[test]
    fn json_says_which_devices_are_beside_the_data() {
        let report = report();
        let [leaf] = &report.vdevs.children[..] else { unreachable!("the pool has a device") };
        let log = VdevReport { name: "/l".into(), path: Some("/l".into()), is_log: true, ..leaf.clone() };
        let root = VdevReport { children: vec![leaf.clone(), log], ..report.vdevs.clone() };
        let beside = |path: &str| vec![VdevReport { name: path.into(), path: Some(path.into()), ..leaf.clone() }];
        let report = PoolReport { vdevs: root, caches: beside("/c"), spares: beside("/s"), ..report };
        let shown = as_json(&report, &[], &arguments(&["-v", "-j"]));
        let classes =
            [("vdevs", "/a"), ("logs", "/l"), ("l2cache", "/c"), ("spares", "/s")].map(|(key, name)| shown[key][name]["class"].as_str());
        assert_eq!(classes, [Some("normal"), Some("log"), Some("l2cache"), Some("spare")], "{shown}");
    }
}
