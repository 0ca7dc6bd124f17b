//! `zfs list`: datasets in columns, sorted, or as JSON.

use crate::{args, columns};
use cli::table::{Align, Table};
use cli::{Client, find, json, show, sort_key};
use control_api::{DatasetReport, ErrorKind, Failure, Request, Response, Value};
use serde_json::{Map, json};
use std::cmp::Ordering;

const DEFAULT: [&str; 5] = ["name", "used", "available", "referenced", "mountpoint"];

/// Asks for datasets.
pub fn reports(client: &Client, names: &[String], output: &args::Output) -> Result<Vec<DatasetReport>, Failure> {
    match client.call(&Request::DatasetQuery(columns::query(names, output)?))? {
        Response::Datasets(reports) => Ok(reports),
        other => Err(cli::unexpected("cannot list datasets", other)),
    }
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::List) -> Result<u8, Failure> {
    let mut reports = reports(client, &arguments.names, &arguments.output)?;
    let wanted = if arguments.columns.is_empty() { DEFAULT.map(String::from).to_vec() } else { columns::expand(&arguments.columns) };
    sort(&mut reports, arguments);
    if arguments.output.json {
        println!("{}", as_json(&reports, &wanted, &arguments.output));
        return Ok(0);
    }
    if reports.is_empty() {
        if !arguments.output.scripted {
            println!("no datasets available");
        }
        return Ok(0);
    }
    let mut table =
        Table::new(wanted.iter().map(|name| (columns::heading(name), if name == "name" { Align::Left } else { columns::align(name) })));
    for report in &reports {
        table.row(wanted.iter().map(|name| cell(report, name, arguments.output.parsable)).collect::<Result<_, _>>()?);
    }
    print!("{}", table.render(arguments.output.scripted));
    Ok(0)
}

fn cell(report: &DatasetReport, name: &str, parsable: bool) -> Result<String, Failure> {
    if name == "name" {
        return Ok(report.name.clone());
    }
    match find(&report.properties, name) {
        Some(property) => Ok(show(&property.value, parsable)),
        None if name.contains(':') || is_known(name) => Ok("-".to_string()),
        None => Err(Failure::new(ErrorKind::Invalid, "bad property list", format!("invalid property '{name}'"))),
    }
}

/// Properties that some dataset types lack.
pub fn is_known(name: &str) -> bool {
    const SOMETIMES: [&str; 40] = [
        "type",
        "creation",
        "used",
        "available",
        "referenced",
        "compressratio",
        "mounted",
        "origin",
        "quota",
        "reservation",
        "recordsize",
        "mountpoint",
        "sharenfs",
        "checksum",
        "compression",
        "atime",
        "devices",
        "exec",
        "setuid",
        "readonly",
        "zoned",
        "snapdir",
        "aclmode",
        "aclinherit",
        "canmount",
        "xattr",
        "copies",
        "refquota",
        "refreservation",
        "volsize",
        "volblocksize",
        "usedbysnapshots",
        "usedbydataset",
        "usedbychildren",
        "usedbyrefreservation",
        "written",
        "logicalused",
        "logicalreferenced",
        "clones",
        "defer_destroy",
    ];
    SOMETIMES.contains(&name)
}

fn sort(reports: &mut [DatasetReport], arguments: &args::List) {
    let keys: Vec<(&str, bool)> = arguments
        .ascending
        .iter()
        .map(|name| (columns::canonical(name), false))
        .chain(arguments.descending.iter().map(|name| (columns::canonical(name), true)))
        .collect();
    if keys.is_empty() {
        return;
    }
    reports.sort_by(|a, b| {
        keys.iter()
            .map(|(name, descending)| compare(a, b, name, *descending))
            .find(|order| *order != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    });
}

fn compare(a: &DatasetReport, b: &DatasetReport, name: &str, descending: bool) -> Ordering {
    let key = |report: &DatasetReport| match name {
        "name" => sort_key(&Value::Text(report.name.clone())),
        _ => find(&report.properties, name).map_or_else(|| sort_key(&Value::None), |property| sort_key(&property.value)),
    };
    let order = key(a).cmp(&key(b));
    if descending { order.reverse() } else { order }
}

fn as_json(reports: &[DatasetReport], wanted: &[String], output: &args::Output) -> String {
    let mut datasets = Map::new();
    for report in reports {
        let properties: Map<String, serde_json::Value> = wanted
            .iter()
            .filter_map(|name| find(&report.properties, name))
            .map(|property| (property.name.clone(), json::property(property, output.parsable, output.json_int)))
            .collect();
        let mut entry = head(report, output.json_int);
        entry.insert("properties".into(), json!(properties));
        datasets.insert(report.name.clone(), json!(entry));
    }
    json::envelope("zfs list", "datasets", datasets)
}

/// The fields that every JSON entry of a dataset starts with.
pub fn head(report: &DatasetReport, json_int: bool) -> Map<String, serde_json::Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(report.name));
    entry.insert("type".into(), json!(report.kind.to_uppercase()));
    entry.insert("pool".into(), json!(report.pool));
    entry.insert("createtxg".into(), json::number(report.create_txg, json_int));
    if let Some((dataset, snapshot)) = report.name.split_once('@') {
        entry.insert("dataset".into(), json!(dataset));
        entry.insert("snapshot_name".into(), json!(snapshot));
    }
    entry
}
