//! `zfs get`: properties of datasets with their sources, as a table or JSON.

use crate::{args, columns, list};
use cli::table::{Align, Table};
use cli::{Client, find, json, show, show_source};
use control_api::{DatasetReport, ErrorKind, Failure, Property, Source, Value};
use serde_json::{Map, json};

const FIELDS: [&str; 5] = ["name", "property", "value", "received", "source"];

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Get) -> Result<u8, Failure> {
    let reports = list::reports(client, &arguments.names, &arguments.output)?;
    let fields: Vec<&str> = match arguments.fields.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => vec!["name", "property", "value", "source"],
        ["all"] => FIELDS.to_vec(),
        named => named.to_vec(),
    };
    if let Some(unknown) = fields.iter().find(|field| !FIELDS.contains(field)) {
        return Err(Failure::new(ErrorKind::Invalid, "bad -o list", format!("invalid column name '{unknown}'")));
    }
    let mut table = Table::new(fields.iter().map(|field| (field.to_uppercase(), Align::Left)));
    let mut datasets = Map::new();
    for report in &reports {
        let wanted: Vec<Property> =
            select(report, &arguments.properties)?.into_iter().filter(|property| is_wanted(&property.source, &arguments.sources)).collect();
        for property in &wanted {
            table.row(fields.iter().map(|field| cell(field, &report.name, property, arguments.output.parsable)).collect());
        }
        let mut entry = list::head(report, arguments.output.json_int);
        let properties: Map<String, serde_json::Value> =
            wanted.iter().map(|p| (p.name.clone(), json::property(p, arguments.output.parsable, arguments.output.json_int))).collect();
        entry.insert("properties".into(), json!(properties));
        datasets.insert(report.name.clone(), json!(entry));
    }
    if arguments.output.json {
        println!("{}", json::envelope("zfs get", "datasets", datasets));
    } else {
        print!("{}", table.render(arguments.output.scripted));
    }
    Ok(0)
}

fn select(report: &DatasetReport, wanted: &str) -> Result<Vec<Property>, Failure> {
    if wanted == "all" {
        return Ok(report.properties.clone());
    }
    let mut found = Vec::new();
    for name in wanted.split(',') {
        let name = columns::canonical(name);
        match find(&report.properties, name) {
            Some(property) => found.push(property.clone()),
            None if name == "name" => found.push(Property::fact("name", Value::Text(report.name.clone()))),
            None if name.contains(':') || list::is_known(name) => found.push(Property::fact(name, Value::None)),
            None => return Err(Failure::new(ErrorKind::Invalid, "bad property list", format!("invalid property '{name}'"))),
        }
    }
    Ok(found)
}

fn is_wanted(source: &Source, sources: &[String]) -> bool {
    let name = match source {
        Source::None => "none",
        Source::Default => "default",
        Source::Local => "local",
        Source::Inherited(_) => "inherited",
        Source::Received => "received",
        Source::Temporary => "temporary",
    };
    sources.is_empty() || sources.iter().any(|wanted| wanted == name)
}

fn cell(field: &str, dataset: &str, property: &Property, parsable: bool) -> String {
    match field {
        "name" => dataset.to_string(),
        "property" => property.name.clone(),
        "value" => show(&property.value, parsable),
        "received" => "-".to_string(),
        _ => show_source(&property.source),
    }
}
