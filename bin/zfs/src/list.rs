//! `zfs list`: datasets in columns, sorted, or as JSON.

use crate::{args, columns};
use cli::color::Color;
use cli::options::Output;
use cli::property::{self, DATASET};
use cli::table::Table;
use cli::{Client, Stop, find, json, show, sort_key};
use control_api::{DatasetReport, PoolQuery, PoolReport, Property, Request, Response, Value};
use serde_json::{Map, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;

const DEFAULT: [&str; 5] = ["name", "used", "available", "referenced", "mountpoint"];

/// Reports of datasets, and the exit code: names that cannot be opened are reported and passed over.
pub fn reports(
    client: &Client,
    names: &[String],
    select: &args::Select,
    default: columns::Default,
    wanted: &[String],
) -> Result<(Vec<DatasetReport>, u8), Stop> {
    select.output.json.check()?;
    let mut code = 0;
    let mut all = Vec::new();
    let asked: Vec<Option<&str>> = if names.is_empty() { vec![None] } else { names.iter().map(|name| Some(name.as_str())).collect() };
    let words: Vec<&String> = wanted.iter().filter(|name| property::is_asked(name)).collect();
    let numbered: Vec<String> = words.iter().map(|word| property::with_number(word)).collect();
    for name in asked {
        let place = name.filter(|name| name.starts_with(['/', '.'])).map(cli::place_of_path).transpose();
        let answer = match place {
            Ok(place) => {
                let query = columns::query(place.as_deref().or(name), select, default)?;
                client.call(&Request::DatasetQuery(control_api::DatasetQuery { asked: numbered.clone(), ..query }))
            }
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(Response::Datasets(mut reports)) => {
                if name.is_none() {
                    warn_of_closed(client);
                }
                reports.iter_mut().for_each(|report| as_named(report, &words, &numbered));
                all.extend(reports);
            }
            Ok(other) => return Err(cli::unexpected("cannot list datasets", other).into()),
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
        }
    }
    // A dataset that two names lead to stands once.
    let mut seen = BTreeSet::new();
    all.retain(|report| seen.insert(report.name.clone()));
    all.sort_by(natural);
    all.iter().filter_map(warning).for_each(|warning| cli::errln!("{warning}"));
    Ok((all, code))
}

/// Says which pools are not open, and why: their datasets are not listed. OpenZFS passes over them, with the same exit code.
fn warn_of_closed(client: &Client) {
    // Whoever is not told of pools is told of datasets all the same.
    if let Ok(Response::Pools(reports)) = client.call(&Request::PoolQuery(PoolQuery { pools: Vec::new(), errors: false })) {
        reports.iter().filter_map(closed).for_each(|warning| cli::errln!("{warning}"));
    }
}

/// Warning of a pool that is not open, on one line; None of one that is.
fn closed(report: &PoolReport) -> Option<String> {
    let is_closed = report.state == "UNAVAIL" && report.txg == 0;
    let why = report.status.as_deref().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    is_closed.then(|| format!("warning: pool '{}' is not open, its datasets are not shown: {why}", report.name))
}

/// Warning of a dataset that is shown without what could not be read of it.
fn warning(report: &DatasetReport) -> Option<String> {
    report.unread.as_ref().map(|why| format!("warning: cannot read all properties of '{}': {why}", report.name))
}

/// Shows users as they were named, also one that was named twice.
fn as_named(report: &mut DatasetReport, words: &[&String], numbered: &[String]) {
    let named = |(word, number): (&&String, &String)| {
        let property = find(&report.properties, number)?;
        Some(Property { name: (*word).clone(), ..property.clone() })
    };
    let shown: Vec<Property> = words.iter().zip(numbered).filter_map(named).collect();
    report.properties.retain(|property| !numbered.contains(&property.name));
    report.properties.extend(shown);
}

/// Orders file systems by name, each followed by its snapshots, oldest first, and its bookmarks, by name (OpenZFS: `zfs_compare`).
fn natural(a: &DatasetReport, b: &DatasetReport) -> Ordering {
    let key = |report: &DatasetReport| match report.name.split_once('@') {
        Some((filesystem, snapshot)) => (filesystem.to_string(), 1, report.create_txg, snapshot.to_string()),
        None => (report.name.clone(), 0, 0, String::new()),
    };
    key(a).cmp(&key(b))
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::List) -> Result<u8, Stop> {
    let wanted = if arguments.columns.is_empty() { DEFAULT.map(String::from).to_vec() } else { columns::expand(&arguments.columns)? };
    let keys = arguments
        .sort
        .keys
        .iter()
        .map(|(name, descending)| match property::canonical(DATASET, name) {
            Ok(name) => Ok((name, *descending)),
            Err(_) => Err(Stop::usage(format!("invalid property '{name}'"))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (mut reports, code) = reports(client, &arguments.names, &arguments.select, columns::Default::Data, &wanted)?;
    sort(&mut reports, &keys);
    let output = &arguments.select.output;
    if output.json.json {
        if code == 0 {
            cli::outln!("{}", as_json(&reports, &wanted, output));
        }
        return Ok(code);
    }
    if reports.is_empty() {
        if !output.scripted && code == 0 {
            cli::errln!("no datasets available");
        }
        return Ok(code);
    }
    cli::out!("{}", table(&reports, &wanted, output).render(output.scripted));
    Ok(code)
}

fn table(reports: &[DatasetReport], wanted: &[String], output: &Output) -> Table {
    let mut table = Table::new(wanted.iter().map(|name| property::column(DATASET, name)));
    table.paint_headings(Color::Bold);
    let room = wanted.iter().position(|name| name == "available");
    for report in reports {
        table.row(wanted.iter().map(|name| show(&value(report, name), output.is_exact())).collect());
        if let (Some(column), Some(color)) = (room, room_color(report)) {
            table.paint(column, color);
        }
    }
    table
}

/// Colour of what is available: yellow where more than four fifths are used, red where nine tenths are (OpenZFS: `zfs_list_avail_color`).
fn room_color(report: &DatasetReport) -> Option<Color> {
    let number = |name: &str| Some(sort_key(&value(report, name))).filter(|(kind, ..)| *kind == 1).map(|(_, number, _)| number);
    let (used, available) = (number("used")?, number("available")?);
    match available * 100 / (available + used).max(1) {
        ..=10 => Some(Color::Red),
        11..=20 => Some(Color::Yellow),
        _ => None,
    }
}

/// Value of a property, `-` where the dataset has none.
fn value(report: &DatasetReport, name: &str) -> Value {
    match find(&report.properties, name) {
        _ if name == "name" => Value::Text(report.name.clone()),
        Some(property) => property.value.clone(),
        None => Value::None,
    }
}

fn sort(reports: &mut [DatasetReport], keys: &[(String, bool)]) {
    // The sort is stable: what is equal stays in its natural order.
    reports.sort_by(|a, b| {
        keys.iter()
            .map(|(name, descending)| compare(&value(a, name), &value(b, name), *descending))
            .find(|order| *order != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    });
}

/// Orders values; what lacks the property goes last, whatever the direction.
fn compare(a: &Value, b: &Value, descending: bool) -> Ordering {
    match (a, b) {
        (Value::None, Value::None) => Ordering::Equal,
        (Value::None, _) => Ordering::Greater,
        (_, Value::None) => Ordering::Less,
        _ if descending => sort_key(b).cmp(&sort_key(a)),
        _ => sort_key(a).cmp(&sort_key(b)),
    }
}

fn as_json(reports: &[DatasetReport], wanted: &[String], output: &Output) -> String {
    let mut datasets = Map::new();
    for report in reports {
        let properties: Vec<Property> = wanted
            .iter()
            .map(|name| find(&report.properties, name).cloned().unwrap_or_else(|| Property::fact(name, Value::None)))
            .collect();
        let mut entry = head(report, output.json.json_int);
        entry.insert("properties".into(), json::properties(&properties, output));
        datasets.insert(report.name.clone(), json!(entry));
    }
    json::envelope("zfs list", "datasets", datasets)
}

/// Fields that every JSON entry of a dataset starts with (OpenZFS: `fill_dataset_info`).
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

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::Source;

    fn report(name: &str, create_txg: u64, used: u64) -> DatasetReport {
        let fact = Property::fact;
        let mut properties = vec![fact("used", Value::Bytes(used)), fact("referenced", Value::Bytes(24576))];
        if !name.contains('@') {
            properties.push(fact("available", Value::Bytes(1 << 30)));
            properties.push(fact("mountpoint", Value::Text(format!("/{name}"))));
        }
        let kind = if name.contains('@') { "snapshot" } else { "filesystem" };
        DatasetReport { name: name.into(), kind: kind.into(), pool: "tank".into(), create_txg, properties, unread: None }
    }

    fn names(reports: &[DatasetReport]) -> Vec<&str> {
        reports.iter().map(|report| report.name.as_str()).collect()
    }

    #[test]
    fn the_table_is_the_one_that_openzfs_prints() {
        let wanted = DEFAULT.map(String::from).to_vec();
        let reports = [report("tank", 1, 98304), report("tank/home", 5, 1_610_612_736), report("tank@a", 9, 0)];
        assert_eq!(
            table(&reports, &wanted, &Output::default()).render(false),
            "NAME        USED  AVAIL  REFER  MOUNTPOINT\n\
             tank         96K     1G    24K  /tank\n\
             tank/home  1.50G     1G    24K  /tank/home\n\
             tank@a        0B      -    24K  -\n"
        );
        let exact = Output { scripted: true, parsable: true, ..Output::default() };
        assert_eq!(table(&reports[..1], &wanted, &exact).render(true), "tank\t98304\t1073741824\t24576\t/tank\n");
    }

    /// Who looks for what is nearly full goes by the colour.
    #[test]
    fn what_is_nearly_full_is_red() {
        const GIB: u64 = 1 << 30;
        let color = |used: u64| room_color(&report("tank", 1, used));
        assert_eq!([0, GIB, 3 * GIB].map(color), [None; 3]);
        assert_eq!([4 * GIB, 8 * GIB, 9 * GIB, 100 * GIB].map(color), [Color::Yellow, Color::Yellow, Color::Red, Color::Red].map(Some));
        assert_eq!(room_color(&report("tank@a", 1, 7)), None, "a snapshot has no room of its own");
    }

    /// If this fails, whoever lists datasets while a pool is away reads that there are none of it.
    #[test]
    fn a_pool_that_is_not_open_is_told_on_one_line() {
        let status = Some("The pool could not be opened:\n\tno such pool.".to_string());
        let away = PoolReport { name: "tank".into(), state: "UNAVAIL".into(), status, ..PoolReport::default() };
        let said = "warning: pool 'tank' is not open, its datasets are not shown: The pool could not be opened: no such pool.";
        assert_eq!(closed(&away).as_deref(), Some(said));
        assert_eq!(closed(&PoolReport { state: "ONLINE".into(), txg: 7, ..away }), None);
    }

    /// Who compares two names of one user would see one of them only.
    #[test]
    fn users_are_shown_as_they_were_named_also_twice() {
        let mut tank = report("tank", 1, 1);
        let words = ["userused@root".to_string(), "userused@0".to_string(), "userused@7".to_string()];
        let numbered = ["userused@0", "userused@0", "userused@7"].map(String::from);
        for (name, bytes) in [("userused@0", 5), ("userused@0", 5), ("userused@7", 6)] {
            tank.properties.push(Property::of(name, Value::Bytes(bytes), Source::Local));
        }
        as_named(&mut tank, &words.iter().collect::<Vec<_>>(), &numbered);
        let shown = words.map(|word| value(&tank, &word));
        assert_eq!(shown, [Value::Bytes(5), Value::Bytes(5), Value::Bytes(6)]);
    }

    #[test]
    fn snapshots_follow_their_file_system_by_age_and_a_sort_keeps_the_rest() {
        let mut reports =
            vec![report("tank/b", 3, 1), report("tank@z", 4, 7), report("tank@a", 8, 7), report("tank", 1, 9), report("tank/a-b", 2, 5)];
        reports.sort_by(natural);
        assert_eq!(names(&reports), ["tank", "tank@z", "tank@a", "tank/a-b", "tank/b"]);
        reports.insert(0, report("tank#b", 4, 0));
        reports.sort_by(natural);
        assert_eq!(names(&reports), ["tank", "tank@z", "tank@a", "tank#b", "tank/a-b", "tank/b"]);
        reports.remove(3);
        sort(&mut reports, &[("used".to_string(), false)]);
        assert_eq!(names(&reports), ["tank/b", "tank/a-b", "tank@z", "tank@a", "tank"]);
        sort(&mut reports, &[("available".to_string(), true)]);
        assert_eq!(&names(&reports)[3..], ["tank@z", "tank@a"], "what has no value is last");
    }

    #[test]
    fn json_entries_have_their_fields_in_order() {
        let text = as_json(&[report("tank@a", 9, 0)], &["name".to_string(), "used".to_string()], &Output::default());
        assert_eq!(
            text,
            concat!(
                r#"{"output_version":{"command":"zfs list","vers_major":0,"vers_minor":1},"datasets":{"tank@a":{"name":"tank@a","#,
                r#""type":"SNAPSHOT","pool":"tank","createtxg":"9","dataset":"tank","snapshot_name":"a","properties":{"#,
                r#""used":{"value":"0B","source":{"type":"NONE","data":"-"}}}}}}"#
            )
        );
    }
}
