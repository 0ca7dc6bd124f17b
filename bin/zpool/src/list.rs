//! `zpool list`: pools with their space and health, their vdevs with `-v`.

use crate::args;
use cli::table::{Align, Table};
use cli::{Client, find, json, show};
use control_api::{ErrorKind, Failure, PoolQuery, PoolReport, Request, Response, Value, VdevReport};
use serde_json::{Map, json};

const DEFAULT: [&str; 11] =
    ["name", "size", "allocated", "free", "checkpoint", "expandsize", "fragmentation", "capacity", "dedupratio", "health", "altroot"];

/// Asks for pools.
pub fn reports(client: &Client, pools: Vec<String>, errors: bool) -> Result<Vec<PoolReport>, Failure> {
    match client.call(&Request::PoolQuery(PoolQuery { pools, errors }))? {
        Response::Pools(reports) => Ok(reports),
        other => Err(cli::unexpected("cannot list pools", other)),
    }
}

/// The property that a user means: OpenZFS accepts the column names too.
fn canonical(name: &str) -> &str {
    match name {
        "alloc" => "allocated",
        "cap" => "capacity",
        "frag" => "fragmentation",
        "dedup" => "dedupratio",
        "expandsz" => "expandsize",
        "ckpoint" => "checkpoint",
        "rdonly" => "readonly",
        other => other,
    }
}

fn heading(name: &str) -> String {
    match name {
        "allocated" => "ALLOC".to_string(),
        "capacity" => "CAP".to_string(),
        "fragmentation" => "FRAG".to_string(),
        "dedupratio" => "DEDUP".to_string(),
        "expandsize" => "EXPANDSZ".to_string(),
        "checkpoint" => "CKPOINT".to_string(),
        other => other.to_uppercase(),
    }
}

fn align(name: &str) -> Align {
    const NUMBERS: [&str; 11] =
        ["size", "allocated", "free", "checkpoint", "expandsize", "fragmentation", "capacity", "dedupratio", "freeing", "leaked", "guid"];
    if NUMBERS.contains(&name) { Align::Right } else { Align::Left }
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::List) -> Result<u8, Failure> {
    let reports = reports(client, arguments.pools.clone(), false)?;
    let columns: Vec<String> = if arguments.properties.is_empty() {
        DEFAULT.map(String::from).to_vec()
    } else {
        arguments.properties.iter().map(|name| canonical(name).to_string()).collect()
    };
    if arguments.output.json {
        println!("{}", as_json(&reports, &columns, &arguments.output));
        return Ok(0);
    }
    if reports.is_empty() {
        if !arguments.output.scripted {
            println!("no pools available");
        }
        return Ok(0);
    }
    let mut table = Table::new(columns.iter().map(|name| (heading(name), align(name))));
    for report in &reports {
        table.row(cells(report, &columns, arguments.output.parsable)?);
        if arguments.verbose {
            for child in &report.vdevs.children {
                vdev_rows(child, 1, &columns, arguments, &mut table);
            }
        }
    }
    print!("{}", table.render(arguments.output.scripted));
    Ok(0)
}

fn cells(report: &PoolReport, columns: &[String], parsable: bool) -> Result<Vec<String>, Failure> {
    columns
        .iter()
        .map(|name| match (name.as_str(), find(&report.properties, name)) {
            ("name", _) => Ok(report.name.clone()),
            (_, Some(property)) => Ok(show(&property.value, parsable)),
            (_, None) => Err(Failure::new(ErrorKind::Invalid, "bad property list", format!("invalid property '{name}'"))),
        })
        .collect()
}

fn vdev_rows(vdev: &VdevReport, depth: usize, columns: &[String], arguments: &args::List, table: &mut Table) {
    let is_top = depth == 1;
    let parsable = arguments.output.parsable;
    let cell = |name: &String| match name.as_str() {
        "name" => format!("{}{}", "  ".repeat(depth), crate::status::display_name(vdev, arguments.full_paths)),
        "size" if vdev.size_bytes > 0 => show(&Value::Bytes(vdev.size_bytes), parsable),
        "allocated" if is_top => show(&Value::Bytes(vdev.allocated_bytes), parsable),
        "free" if is_top => show(&Value::Bytes(vdev.size_bytes.saturating_sub(vdev.allocated_bytes)), parsable),
        "fragmentation" if is_top => vdev.fragmentation_percent.map_or("-".into(), |percent| show(&Value::Percent(percent), parsable)),
        "capacity" if is_top && vdev.size_bytes > 0 => {
            format!("{:.1}%", vdev.allocated_bytes as f64 * 100.0 / vdev.size_bytes as f64)
        }
        "health" => vdev.state.clone(),
        _ => "-".to_string(),
    };
    table.row(columns.iter().map(cell).collect());
    for child in &vdev.children {
        vdev_rows(child, depth + 1, columns, arguments, table);
    }
}

fn as_json(reports: &[PoolReport], columns: &[String], output: &args::Output) -> String {
    let mut pools = Map::new();
    for report in reports {
        let properties: Map<String, serde_json::Value> = columns
            .iter()
            .filter_map(|name| find(&report.properties, name))
            .map(|property| (property.name.clone(), json::property(property, output.parsable, output.json_int)))
            .collect();
        let mut entry = head(report, output.json_int);
        entry.insert("properties".into(), json!(properties));
        pools.insert(report.name.clone(), json!(entry));
    }
    json::envelope("zpool list", "pools", pools)
}

/// The fields that every JSON entry of a pool starts with.
pub fn head(report: &PoolReport, json_int: bool) -> Map<String, serde_json::Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(report.name));
    entry.insert("type".into(), json!("POOL"));
    entry.insert("state".into(), json!(report.state));
    entry.insert("pool_guid".into(), json::number(report.guid, json_int));
    entry.insert("txg".into(), json::number(report.txg, json_int));
    entry.insert("spa_version".into(), json::number(5000, json_int));
    entry.insert("zpl_version".into(), json::number(5, json_int));
    entry
}
