//! `zpool get`: properties of pools or vdevs with their sources, as a table or JSON.

use crate::{args, list, vdev_get};
use cli::property::{self, POOL, VDEV};
use cli::table::{Align, Column, Table};
use cli::{Client, Stop, find, json, show_source};
use control_api::{ErrorKind, Failure, PoolReport, Property};
use serde_json::Map;

/// Number of bytes below which the names of user properties stay.
const USER_NAME_BYTES: usize = 256;

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
    let subject = subject(client, &arguments.pools)?;
    let known = if matches!(subject, Subject::Vdevs(..)) { VDEV } else { POOL };
    let wanted = match arguments.properties.as_str() {
        "all" => None,
        list => Some(list.split(',').map(|name| property_name(known, name)).collect::<Result<Vec<_>, _>>()?),
    };
    match subject {
        Subject::Pools(reports) => Ok(pools(&reports, wanted.as_deref(), &fields, arguments)),
        Subject::Vdevs(report, words) => vdevs(&report, &words, wanted.as_deref(), (&fields, arguments)),
        Subject::Nothing(name) => {
            cli::errln!("Cannot get properties of {name}: no such pool available.");
            Ok(cli::EXIT_FAILURE)
        }
    }
}

/// Name of a property as it was asked for; no user property can be longer (OpenZFS: `ZAP_MAXNAMELEN`).
fn property_name(known: &'static [property::Described], word: &str) -> Result<String, Stop> {
    if word.contains(':') && word.len() >= USER_NAME_BYTES {
        return Err(Stop::usage(format!("bad property list: invalid property '{word}'")));
    }
    property::canonical(known, word)
}

/// Subject whose properties are asked for.
enum Subject {
    Pools(Vec<PoolReport>),
    /// Vdevs of one pool, by the words that name them.
    Vdevs(Box<PoolReport>, Vec<String>),
    /// Word that names no pool.
    Nothing(String),
}

/// Subject of the words: pools, if all words are names of pools; else a pool and its vdevs.
fn subject(client: &Client, words: &[String]) -> Result<Subject, Failure> {
    fn missing<T>(failure: Failure) -> Result<Option<T>, Failure> {
        if failure.kind == ErrorKind::NotFound { Ok(None) } else { Err(failure) }
    }
    if let Some(reports) = list::reports(client, words.to_vec(), false).map(Some).or_else(missing)? {
        return Ok(Subject::Pools(reports));
    }
    let Some((first, rest)) = words.split_first() else { return Ok(Subject::Pools(Vec::new())) };
    let report = list::reports(client, vec![first.clone()], false).map(|reports| reports.into_iter().next()).or_else(missing)?;
    Ok(match report {
        Some(report) if !rest.is_empty() => Subject::Vdevs(Box::new(report), rest.to_vec()),
        _ => Subject::Nothing(first.clone()),
    })
}

fn new_table(fields: &[&str]) -> Table {
    Table::new(fields.iter().map(|field| Column::new(field.to_uppercase(), Align::Left)))
}

fn pools(reports: &[PoolReport], wanted: Option<&[String]>, fields: &[&str], arguments: &args::Get) -> u8 {
    let mut table = new_table(fields);
    let mut pools = Map::new();
    let mut code = 0;
    for report in reports {
        if let Some(reason) = &report.properties_unavailable {
            cli::errln!("cannot get properties of '{}': {reason}", report.name);
            code = cli::EXIT_FAILURE;
        }
        let properties = select(report, wanted);
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
        cli::outln!("{}", json::envelope("zpool get", "pools", pools));
    } else if !table.is_empty() {
        cli::out!("{}", table.render(arguments.output.scripted));
    }
    code
}

/// Shows properties of vdevs (OpenZFS: `get_callback_vdev`).
fn vdevs(report: &PoolReport, words: &[String], wanted: Option<&[String]>, (fields, arguments): (&[&str], &args::Get)) -> Result<u8, Stop> {
    let places = vdev_get::places(report, words).map_err(|unknown| {
        let lines: String = unknown.iter().map(|word| format!("\t{word} (unknown)\n")).collect();
        Stop::usage(format!("Expected a list of vdevs in \"{}\", but got:\n{lines}", report.name))
    })?;
    let (output, mut table, mut entries) = (&arguments.output, new_table(fields), Map::new());
    for place in &places {
        let properties = vdev_get::select(place, wanted, output.is_exact());
        for property in &properties {
            table.row(fields.iter().map(|field| cell(field, &place.name, property, output.is_exact())).collect());
        }
        let mut entry = list::vdev_head(place.vdev, &place.name, None, output.json.json_int);
        entry.insert("type".into(), "VDEV".into());
        entry.insert("properties".into(), json::properties(&properties, output));
        entries.insert(place.name.clone(), entry.into());
    }
    if output.json.json {
        let pool = list::head(report, false, output);
        cli::outln!("{}", json::envelope_with("zpool get", "vdevs", entries, [("pool".to_string(), pool.into())]));
    } else if !table.is_empty() {
        cli::out!("{}", table.render(output.scripted));
    }
    Ok(0)
}

/// Properties of a pool: all, or those named; a feature that the pool never heard of has no line.
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
            // A property that nobody made up stands there as what it would be.
            None if name.contains(':') && report.properties_unavailable.is_none() && name.len() < USER_NAME_BYTES => {
                Some(Property { source: control_api::Source::Default, ..Property::fact(name, control_api::Value::None) })
            }
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
        "value" => cli::show_of_pool(&property.value, exact),
        _ => show_source(&property.source),
    }
}
