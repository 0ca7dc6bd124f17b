//! `zfs allow`: permissions that were delegated to users, as OpenZFS shows them (`print_fs_perms`).

use crate::userspace::names;
use cli::{Client, Stop};
use control_api::{AllowEntry, AllowQuery, AllowReport, ErrorKind, Failure, OwnerReport, Request, Response};
use std::collections::BTreeMap;

/// Characters of the line above the permissions of a dataset.
const HEADING_WIDTH: usize = 70;

/// Names of users and groups, by kind and number.
type Names = BTreeMap<(String, u64), String>;

/// Runs the verb.
pub fn run(client: &Client, words: &[String]) -> Result<u8, Stop> {
    let name = words.first().cloned().ok_or_else(|| Stop::usage("missing dataset name"))?;
    if words.len() > 1 {
        let why = "delegating permissions is not available in this version";
        return Err(Failure::new(ErrorKind::Unsupported, "cannot allow", why).into());
    }
    let reports = match client.call(&Request::Allow(AllowQuery { name }))? {
        Response::Allowed(reports) => reports,
        other => return Err(cli::unexpected("cannot get permissions", other).into()),
    };
    let owner = |entry: &AllowEntry| {
        let (who, id) = (kind_of(entry)?.to_string(), name_of(entry).parse().ok()?);
        Some(OwnerReport { who, id, ..OwnerReport::default() })
    };
    let owners: Vec<OwnerReport> = reports.iter().flat_map(|report| report.entries.iter().filter_map(owner)).collect();
    let names = names(&owners);
    reports.iter().for_each(|report| cli::out!("{}", text(report, &names)));
    Ok(0)
}

/// Kind of whom permissions were delegated to; None for sets and creators.
fn kind_of(entry: &AllowEntry) -> Option<&'static str> {
    match entry.who.chars().next()?.to_ascii_lowercase() {
        'u' => Some("user"),
        'g' => Some("group"),
        'e' => Some("everyone"),
        _ => None,
    }
}

/// Number or name behind the `$`.
fn name_of(entry: &AllowEntry) -> &str {
    entry.who.split_once('$').map_or("", |(_, name)| name)
}

/// Text about one dataset.
fn text(report: &AllowReport, names: &Names) -> String {
    let heading = format!("---- Permissions on {} ", report.name);
    let mut text = format!("{heading:-<HEADING_WIDTH$}\n");
    for (letter, title) in [('s', "Permission sets"), ('c', "Create time permissions")] {
        let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for entry in report.entries.iter().filter(|entry| entry.who.to_ascii_lowercase().starts_with(letter)) {
            sets.entry(name_of(entry)).or_default().extend(entry.permissions.iter().map(String::as_str));
        }
        if !sets.is_empty() {
            text += &format!("{title}:\n");
        }
        for (name, mut permissions) in sets {
            permissions.sort_unstable();
            let name = if name.is_empty() { String::new() } else { format!("{name} ") };
            text += &format!("\t{name}{}\n", permissions.join(","));
        }
    }
    for (title, is_local, is_below) in
        [("Local permissions", true, false), ("Descendent permissions", false, true), ("Local+Descendent permissions", true, true)]
    {
        let lines = lines(report, names, (is_local, is_below));
        if !lines.is_empty() {
            text += &format!("{title}:\n{lines}");
        }
    }
    text
}

/// Permissions, each with whether it holds at a dataset and below it.
type Held<'a> = BTreeMap<&'a str, (bool, bool)>;

/// Lines of the permissions that hold at just these places: at the dataset, below it.
fn lines(report: &AllowReport, names: &Names, places: (bool, bool)) -> String {
    // By kind and number or name, in OpenZFS's order; each permission with the places where it holds.
    let mut found: BTreeMap<(usize, &str), Held> = BTreeMap::new();
    for entry in &report.entries {
        let Some(kind) = kind_of(entry) else { continue };
        let order = ["user", "group", "everyone"].iter().position(|known| *known == kind).unwrap_or_default();
        let permissions = found.entry((order, name_of(entry))).or_default();
        for permission in &entry.permissions {
            let held = permissions.entry(permission.as_str()).or_default();
            match entry.who.as_bytes().get(1) {
                Some(b'l') => held.0 = true,
                Some(b'd') => held.1 = true,
                _ => {}
            }
        }
    }
    let mut text = String::new();
    for ((order, number), permissions) in found {
        let these: Vec<&str> = permissions.into_iter().filter(|(_, held)| *held == places).map(|(permission, _)| permission).collect();
        if these.is_empty() {
            continue;
        }
        let known = |kind: &str| number.parse().ok().and_then(|id| names.get(&(kind.to_string(), id)).cloned());
        let somebody = |kind: &str| format!("{kind} {}", known(kind).unwrap_or_else(|| format!("(unknown: {number})")));
        let who = match order {
            0 => somebody("user"),
            1 => somebody("group"),
            _ => "everyone".to_string(),
        };
        text += &format!("\t{who} {}\n", these.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, an administrator believes that somebody may do less, or more, than a pool's owner allowed.
    #[test]
    fn permissions_are_shown_by_the_places_where_they_hold() {
        let entry = |who: &str, permissions: &[&str]| AllowEntry {
            who: who.to_string(),
            permissions: permissions.iter().map(|word| word.to_string()).collect(),
        };
        let entries = vec![
            entry("s-$@backup", &["hold", "send"]),
            entry("c-$", &["destroy"]),
            entry("ul$1000", &["create", "mount"]),
            entry("ud$1000", &["mount", "snapshot"]),
            entry("Ul$1000", &["@backup"]),
            entry("gd$7", &["clone"]),
            entry("el$", &["diff"]),
        ];
        let names = Names::from([(("user".to_string(), 1000), "ann".to_string())]);
        let shown = text(&AllowReport { name: "tank/fs".to_string(), entries }, &names);
        let expected = "---- Permissions on tank/fs ------------------------------------------\n\
                        Permission sets:\n\t@backup hold,send\n\
                        Create time permissions:\n\tdestroy\n\
                        Local permissions:\n\tuser ann @backup,create\n\teveryone diff\n\
                        Descendent permissions:\n\tuser ann snapshot\n\tgroup (unknown: 7) clone\n\
                        Local+Descendent permissions:\n\tuser ann mount\n";
        assert_eq!(shown, expected);
        assert_eq!(shown.lines().next().map(str::len), Some(HEADING_WIDTH));
    }
}
