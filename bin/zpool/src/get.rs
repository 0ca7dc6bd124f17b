//! `zpool get`: properties of pools with their sources, as a table or JSON.

use crate::{args, list};
use cli::table::{Align, Table};
use cli::{Client, find, json, show, show_source};
use control_api::{ErrorKind, Failure, Property};
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
    for report in &reports {
        let wanted = select(&report.properties, &arguments.properties)?;
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
    Ok(0)
}

fn select<'a>(properties: &'a [Property], list: &str) -> Result<Vec<&'a Property>, Failure> {
    if list == "all" {
        return Ok(properties.iter().collect());
    }
    list.split(',')
        .map(|name| {
            find(properties, name)
                .ok_or_else(|| Failure::new(ErrorKind::Invalid, "bad property list", format!("invalid property '{name}'")))
        })
        .collect()
}

fn cell(field: &str, pool: &str, property: &Property, parsable: bool) -> String {
    match field {
        "name" => pool.to_string(),
        "property" => property.name.clone(),
        "value" => show(&property.value, parsable),
        _ => show_source(&property.source),
    }
}
