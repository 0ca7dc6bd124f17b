//! `zpool get`: properties of pools with their sources, as a table or JSON.

use crate::{args, list};
use cli::property::{self, POOL};
use cli::table::{Align, Column, Table};
use cli::{Client, Stop, find, json, show, show_source};
use control_api::{PoolReport, Property};
use serde_json::Map;

const FIELDS: [&str; 4] = ["name", "property", "value", "source"];

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Get) -> Result<u8, Stop> {
    arguments.output.json.check()?;
    if !arguments.output.json.json && arguments.key_guid {
        return Err(Stop::usage("'json-pool-key-guid' only works with '-j' option"));
    }
    let fields: Vec<&str> = match arguments.fields.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["all"] => FIELDS.to_vec(),
        named => named.to_vec(),
    };
    if let Some(unknown) = fields.iter().find(|field| !FIELDS.contains(field)) {
        return Err(Stop::usage(format!("invalid column name '{unknown}'")));
    }
    let wanted = match arguments.properties.as_str() {
        "all" => None,
        list => Some(list.split(',').map(|name| property::canonical(POOL, name)).collect::<Result<Vec<_>, _>>()?),
    };
    let reports = list::reports(client, arguments.pools.clone(), false)?;
    let mut table = Table::new(fields.iter().map(|field| Column::new(field.to_uppercase(), Align::Left)));
    let mut pools = Map::new();
    let mut code = 0;
    for report in &reports {
        if let Some(reason) = &report.properties_unavailable {
            eprintln!("cannot get properties of '{}': {reason}", report.name);
            code = cli::EXIT_FAILURE;
        }
        let properties = select(report, wanted.as_deref());
        for property in &properties {
            table.row(fields.iter().map(|field| cell(field, &report.name, property, arguments.output.is_exact())).collect());
        }
        if !properties.is_empty() {
            let mut entry = list::head(report, true, &arguments.output);
            entry.insert("properties".into(), json::properties(&properties, &arguments.output));
            pools.insert(list::key(report, arguments.key_guid), entry.into());
        }
    }
    if arguments.output.json.json {
        println!("{}", json::envelope("zpool get", "pools", pools));
    } else if !table.is_empty() {
        print!("{}", table.render(arguments.output.scripted));
    }
    Ok(code)
}

/// All properties, or those named; a feature that the pool never heard of has no line.
fn select(report: &PoolReport, wanted: Option<&[String]>) -> Vec<Property> {
    let Some(names) = wanted else {
        return report.properties.clone();
    };
    let name_of_pool = || Property::fact("name", control_api::Value::Text(report.name.clone()));
    names
        .iter()
        .filter_map(|name| match find(&report.properties, name) {
            Some(property) => Some(property.clone()),
            None if name == "name" => Some(name_of_pool()),
            // What cannot be read was complained of; it is not absent.
            None if name.contains([':', '@']) || report.properties_unavailable.is_some() => None,
            None => Some(Property::fact(name, control_api::Value::None)),
        })
        .collect()
}

fn cell(field: &str, pool: &str, property: &Property, exact: bool) -> String {
    match field {
        "name" => pool.to_string(),
        "property" => property.name.clone(),
        "value" => show(&property.value, exact),
        _ => show_source(&property.source),
    }
}
