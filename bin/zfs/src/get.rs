//! `zfs get`: properties of datasets with their sources, as a table or JSON.

use crate::{args, columns, list};
use cli::property::{self, DATASET};
use cli::table::{Align, Column, Table};
use cli::{Client, Stop, find, json, show, show_source};
use control_api::{DatasetReport, Property, Source, Value};
use serde_json::{Map, json};

const FIELDS: [&str; 5] = ["name", "property", "value", "received", "source"];
const SOURCES: [&str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Get) -> Result<u8, Stop> {
    let output = &arguments.select.output;
    let fields = fields(&arguments.fields)?;
    if let Some(unknown) = arguments.sources.iter().find(|source| !SOURCES.contains(&source.as_str())) {
        return Err(Stop::usage(format!("invalid source '{unknown}'")));
    }
    let wanted = match arguments.properties.as_str() {
        "all" => None,
        list => Some(list.split(',').map(|name| property::canonical(DATASET, name)).collect::<Result<Vec<_>, _>>()?),
    };
    let (reports, code) =
        list::reports(client, &arguments.names, &arguments.select, columns::Default::All, wanted.as_deref().unwrap_or_default())?;
    let mut table = Table::new(fields.iter().map(|field| Column::new(field.to_uppercase(), Align::Left)));
    let mut datasets = Map::new();
    for report in &reports {
        let mut properties = select(report, wanted.as_deref());
        properties.retain(|property| is_wanted(&property.source, &arguments.sources));
        for property in &properties {
            table.row(fields.iter().map(|field| cell(field, &report.name, property, output.is_exact())).collect());
        }
        if !properties.is_empty() {
            let mut entry = list::head(report, output.json.json_int);
            entry.insert("properties".into(), json::properties(&properties, output));
            datasets.insert(report.name.clone(), json!(entry));
        }
    }
    if output.json.json {
        if code == 0 {
            cli::outln!("{}", json::envelope("zfs get", "datasets", datasets));
        }
    } else if !table.is_empty() {
        cli::out!("{}", table.render(output.scripted));
    }
    Ok(code)
}

fn fields(words: &[String]) -> Result<Vec<&str>, Stop> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => return Ok(vec!["name", "property", "value", "source"]),
        ["all"] => return Ok(FIELDS.to_vec()),
        _ => {}
    }
    if words.contains(&"all") {
        return Err(Stop::usage("\"all\" conflicts with specific fields given to -o option"));
    }
    match words.iter().find(|field| !FIELDS.contains(field)) {
        Some(unknown) => Err(Stop::usage(format!("invalid column name '{unknown}'"))),
        None if words.len() > FIELDS.len() => Err(Stop::usage("too many fields given to -o option")),
        None => Ok(words),
    }
}

/// Properties of a dataset: all, or those named in that order; what the dataset lacks has the value `-`.
fn select(report: &DatasetReport, wanted: Option<&[String]>) -> Vec<Property> {
    let Some(names) = wanted else {
        return report.properties.iter().filter(|property| !property::HIDDEN.contains(&property.name.as_str())).cloned().collect();
    };
    names
        .iter()
        .map(|name| match find(&report.properties, name) {
            Some(property) => property.clone(),
            None if name == "name" => Property::fact("name", Value::Text(report.name.clone())),
            None => Property::fact(name, Value::None),
        })
        .collect()
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

fn cell(field: &str, dataset: &str, property: &Property, exact: bool) -> String {
    match field {
        "name" => dataset.to_string(),
        "property" => property.name.clone(),
        "value" => show(&property.value, exact),
        "received" => property.received.as_ref().map_or_else(|| "-".to_string(), |value| show(value, exact)),
        _ => show_source(&property.source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_checked() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        assert_eq!(fields(&words(&["value"])).expect("a field"), ["value"]);
        assert_eq!(fields(&words(&["all"])).expect("all").len(), 5);
        assert!(matches!(fields(&words(&["value", "colour"])), Err(Stop::Usage(why)) if why == "invalid column name 'colour'"));
        assert!(fields(&words(&["name", "all"])).is_err());
    }

    /// Who looks for what a backup had would take a value that was set here for it.
    #[test]
    fn received_values_have_a_column_of_their_own() {
        let set = Property::of("atime", Value::Text("on".into()), Source::Local);
        assert_eq!(cell("received", "tank", &set, false), "-");
        let covered = Property { received: Some(Value::Text("off".into())), ..set };
        assert_eq!(["value", "received", "source"].map(|field| cell(field, "tank", &covered, false)), ["on", "off", "local"]);
    }

    #[test]
    fn a_source_selects_what_was_set_there() {
        let local = ["local".to_string()];
        assert!(is_wanted(&Source::Local, &local));
        assert!(!is_wanted(&Source::Inherited("tank".into()), &local));
        assert!(is_wanted(&Source::None, &[]));
    }
}
