//! `zfs userspace`, `groupspace`, `projectspace`: what users, groups and projects use, and their quotas.

use crate::args;
use cli::table::{Align, Column, Table};
use cli::{Client, Stop, show};
use control_api::{Failure, OwnerReport, Request, Response, UserspaceQuery, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

const FIELDS: [&str; 6] = ["type", "name", "used", "quota", "objused", "objquota"];
/// Words of `-t`, with whom they mean: Windows users are known to other systems only.
const TYPES: [(&str, &[&str]); 5] =
    [("posixuser", &["user"]), ("smbuser", &[]), ("posixgroup", &["group"]), ("smbgroup", &[]), ("all", &["user", "group"])];

/// Number of ids that go onto one command line.
const NAMES_AT_ONCE: usize = 1000;

/// Line of the table.
struct Line {
    report: OwnerReport,
    /// Name of the owner; None when only the number is known or wanted.
    name: Option<String>,
}

/// Runs one of the verbs; `who` is whose it shows unless `-t` says otherwise.
pub fn run(client: &Client, arguments: &args::Userspace, who: &str) -> Result<u8, Stop> {
    let fields = if arguments.select.fields.is_empty() { FIELDS.map(String::from).to_vec() } else { arguments.select.fields.clone() };
    if let Some(unknown) = fields.iter().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(wrong(format!("invalid type '{unknown}' for -o option")));
    }
    for (key, _) in &arguments.select.sort.keys {
        if !["type", "name", "used", "quota"].contains(&key.as_str()) {
            return Err(Stop::usage(format!("invalid field '{key}'")));
        }
    }
    let request = UserspaceQuery { name: dataset(&arguments.name)?, who: whose(&arguments.types, who)? };
    let reports = match client.call(&Request::Userspace(request))? {
        Response::Owners(reports) => reports,
        other => return Err(cli::unexpected("cannot get used/quota", other).into()),
    };
    let names = if arguments.numeric { BTreeMap::new() } else { names(&reports) };
    let name = |report: &OwnerReport| names.get(&(report.who.clone(), report.id)).cloned();
    let mut lines: Vec<Line> = reports.into_iter().map(|report| Line { name: name(&report), report }).collect();
    lines.sort_by(|a, b| order(a, b, &arguments.select.sort.keys));
    let align = |field: &str| if matches!(field, "type" | "name") { Align::Left } else { Align::Right };
    let mut table = Table::new(fields.iter().map(|field| Column::new(field.to_uppercase(), align(field))));
    for line in &lines {
        table.row(fields.iter().map(|field| cell(line, field, arguments.select.parsable)).collect());
    }
    if !table.is_empty() {
        cli::out!("{}", table.render(arguments.select.scripted));
    }
    Ok(0)
}

fn wrong(why: String) -> Stop {
    Stop::Failed(Failure::new(control_api::ErrorKind::Invalid, why, ""))
}

/// Name of the dataset that a word means; a path stands for the file system that it is in.
fn dataset(word: &str) -> Result<String, Failure> {
    if word.starts_with(['/', '.']) { cli::place_of_path(word) } else { Ok(word.to_string()) }
}

fn whose(types: &[String], who: &str) -> Result<Vec<String>, Stop> {
    if types.is_empty() {
        return Ok(vec![who.to_string()]);
    }
    let mut all = Vec::new();
    for word in types {
        let known = TYPES.iter().find(|(name, _)| name == word);
        let (_, meant) = known.ok_or_else(|| wrong(format!("invalid type '{word}' for -t option")))?;
        all.extend(meant.iter().map(|who| who.to_string()).filter(|who| !all.contains(who)).collect::<Vec<_>>());
    }
    Ok(all)
}

/// Names of users and groups, where they have some.
pub fn names(reports: &[OwnerReport]) -> BTreeMap<(String, u64), String> {
    let mut names = BTreeMap::new();
    for (who, database) in [("user", "passwd"), ("group", "group")] {
        let numbers: Vec<String> = reports.iter().filter(|report| report.who == who).map(|report| report.id.to_string()).collect();
        for numbers in numbers.chunks(NAMES_AT_ONCE) {
            // Names may come from elsewhere than /etc.
            let found = std::process::Command::new("getent").arg(database).args(numbers).output();
            let text = found.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default();
            for line in text.lines() {
                let mut parts = line.split(':');
                if let (Some(name), Some(Ok(id))) = (parts.next(), parts.nth(1).map(str::parse)) {
                    names.entry((who.to_string(), id)).or_insert_with(|| name.to_string());
                }
            }
        }
    }
    names
}

/// Orders lines by the keys that were given, then by type and name (OpenZFS: `us_compare`).
fn order(a: &Line, b: &Line, keys: &[(String, bool)]) -> Ordering {
    let place = |line: &Line| TYPES.iter().position(|(_, whose)| whose.first() == Some(&line.report.who.as_str()));
    let by = |key: &str| match key {
        "type" => place(a).cmp(&place(b)),
        "used" => a.report.used.cmp(&b.report.used),
        "quota" => a.report.quota.cmp(&b.report.quota),
        _ => match (&a.name, &b.name) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => a.report.id.cmp(&b.report.id),
        },
    };
    let given = keys.iter().map(|(key, descending)| if *descending { by(key).reverse() } else { by(key) });
    given.chain([by("type"), by("name")]).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn cell(line: &Line, field: &str, exact: bool) -> String {
    let report = &line.report;
    let value = match field {
        "type" => {
            return match report.who.as_str() {
                "user" => "POSIX User".to_string(),
                "group" => "POSIX Group".to_string(),
                _ => "Project".to_string(),
            };
        }
        "name" => return line.name.clone().unwrap_or_else(|| report.id.to_string()),
        // What has a limit has used something, if nothing, and the other way round.
        "used" => report.used.or(report.quota.map(|_| 0)).map(Value::Bytes),
        "quota" => report.quota.or(report.used.map(|_| 0)).map(Value::Limit),
        "objused" => report.objects_used.or(report.objects_quota.map(|_| 0)).map(Value::Count),
        _ => report.objects_quota.or(report.objects_used.map(|_| 0)).map(Value::LimitCount),
    };
    value.map_or_else(|| "-".to_string(), |value| show(&value, exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: u64, name: Option<&str>, used: u64) -> Line {
        let report = OwnerReport { who: "user".to_string(), id, used: Some(used), ..OwnerReport::default() };
        Line { report, name: name.map(str::to_string) }
    }

    /// If this fails, scripts find a quota in another column, or none where there is one.
    #[test]
    fn what_is_not_limited_is_none_and_what_is_not_counted_a_dash() {
        let ann = line(7, Some("ann"), 2048);
        let cells = |exact| FIELDS.map(|field| cell(&ann, field, exact));
        assert_eq!(cells(false), ["POSIX User", "ann", "2K", "none", "-", "-"]);
        assert_eq!(cells(true), ["POSIX User", "ann", "2048", "0", "-", "-"]);
    }

    /// If this fails, an administrator who sorts by use acts on the wrong user.
    #[test]
    fn lines_are_sorted_by_the_keys_and_then_by_name() {
        let sorted = |keys: &[(&str, bool)]| {
            let keys: Vec<(String, bool)> = keys.iter().map(|(key, descending)| (key.to_string(), *descending)).collect();
            let mut lines = [line(3, Some("eve"), 1), line(1, None, 9), line(2, Some("ann"), 1)];
            lines.sort_by(|a, b| order(a, b, &keys));
            lines.map(|line| line.report.id)
        };
        assert_eq!(sorted(&[("used", true)]), [1, 2, 3]);
        assert_eq!(sorted(&[("used", false), ("name", true)]), [3, 2, 1]);
    }
}
