//! `zpool get`: properties of pools with their sources, as a table or JSON.

use crate::{args, list};
use cli::table::{Align, Table};
use cli::{Client, find, json, show, show_source};
use control_api::{ErrorKind, Failure, PoolReport, Property};
use serde_json::{Map, json};

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Get) -> Result<u8, Failure> {
    let reports = list::reports(client, arguments.pools.clone(), false)?;
    let fields: Vec<&str> = if arguments.fields.is_empty() || arguments.fields == ["all"] {
        vec!["name", "property", "value", "source"]
    } else {
        arguments.fields.iter().map(String::as_str).collect()
    };
    if let Some(unknown) = fields.iter().find(|field| !["name", "property", "value", "source"].contains(field)) {
        return Err(Failure::new(ErrorKind::Invalid, "bad -o list", format!("invalid column name '{unknown}'")));
    }
    let mut table = Table::new(fields.iter().map(|field| (field.to_uppercase(), Align::Left)));
    let mut pools = Map::new();
    let mut code = 0;
    for report in &reports {
        if let Some(reason) = &report.properties_unavailable {
            eprintln!("cannot get properties of '{}': {reason}", report.name);
            code = 1;
        }
        let wanted = select(report, &arguments.properties)?;
        for property in &wanted {
            table.row(fields.iter().map(|field| cell(field, &report.name, property, arguments.output.parsable)).collect());
        }
        let mut entry = list::head(report, arguments.output.json_int);
        let properties: Map<String, serde_json::Value> = wanted
            .iter()
            .map(|property| (property.name.clone(), json::property(property, arguments.output.parsable, arguments.output.json_int)))
            .collect();
        entry.insert("properties".into(), json!(properties));
        pools.insert(report.name.clone(), json!(entry));
    }
    if arguments.output.json {
        println!("{}", json::envelope("zpool get", "pools", pools));
    } else {
        print!("{}", table.render(arguments.output.scripted));
    }
    Ok(code)
}

/// The wanted properties; those that cannot be read are left out (and were complained of).
fn select<'a>(report: &'a PoolReport, list: &str) -> Result<Vec<&'a Property>, Failure> {
    let properties = &report.properties;
    if list == "all" {
        return Ok(properties.iter().collect());
    }
    let mut wanted = Vec::new();
    for name in list.split(',') {
        match find(properties, name) {
            Some(property) => wanted.push(property),
            None if report.properties_unavailable.is_some() => {}
            None => return Err(Failure::new(ErrorKind::Invalid, "bad property list", format!("invalid property '{name}'"))),
        }
    }
    Ok(wanted)
}

fn cell(field: &str, pool: &str, property: &Property, parsable: bool) -> String {
    match field {
        "name" => pool.to_string(),
        "property" => property.name.clone(),
        "value" => show(&property.value, parsable),
        _ => show_source(&property.source),
    }
}
