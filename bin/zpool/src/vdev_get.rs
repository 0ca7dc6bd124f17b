//! Properties of vdevs, as `zpool get` shows them (OpenZFS: `vdev_prop_get`, `zpool_get_vdev_prop_value`).

use crate::names::Names;
use cli::find;
use control_api::{PoolReport, Property, Source, Value, VdevReport};

/// Word for every vdev of the pool.
pub const ALL: &str = "all-vdevs";

/// Vdev and what a name alone does not tell.
pub struct Place<'a> {
    /// Name of the vdev on the command line, or as it is shown.
    pub name: String,
    /// Report of the vdev.
    pub vdev: &'a VdevReport,
    parent: Option<&'a VdevReport>,
    /// log2 of the sector size of the top-level vdev; 0 for the root.
    ashift: u32,
}

/// Vdevs that the words name, or the words that name none.
pub fn places<'a>(report: &'a PoolReport, words: &[String]) -> Result<Vec<Place<'a>>, Vec<String>> {
    let mut every = Vec::new();
    walk(&report.vdevs, None, 0, &mut every);
    if let [word] = words
        && word == ALL
    {
        return Ok(every);
    }
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for word in words {
        match every.iter().find(|place| is_named(place.vdev, word)) {
            // The root is named by the pool whatever it was called.
            Some(place) => found.push(Place { name: if place.parent.is_none() { "root-0".into() } else { word.clone() }, ..*place }),
            None => unknown.push(word.clone()),
        }
    }
    if unknown.is_empty() { Ok(found) } else { Err(unknown) }
}

/// Collects vdevs; children come before their parents (OpenZFS: `for_each_vdev_cb`).
fn walk<'a>(vdev: &'a VdevReport, parent: Option<&'a VdevReport>, ashift: u32, out: &mut Vec<Place<'a>>) {
    let ashift = if vdev.ashift > 0 { vdev.ashift } else { ashift };
    vdev.children.iter().for_each(|child| walk(child, Some(vdev), ashift, out));
    out.push(Place { name: Names::default().of(vdev), vdev, parent, ashift });
}

/// True when the word is the vdev's name, its path, the last part of that, or its guid.
fn is_named(vdev: &VdevReport, word: &str) -> bool {
    let short = Names::default().of(vdev);
    let by_path = vdev.path.as_ref().is_some_and(|path| path == word);
    let is_root = vdev.kind == "root" && (word == "root" || word == "root-0");
    short == word || vdev.name == word || by_path || is_root || word.parse() == Ok(vdev.guid)
}

/// Name that a vdev has in another's properties: a path, or its kind and number (OpenZFS: `vdev_name`).
fn plain_name(vdev: &VdevReport) -> String {
    if let Some(path) = &vdev.path {
        return path.clone();
    }
    match vdev.name.rsplit_once('-') {
        Some((_, number)) if vdev.kind != "root" => format!("{}-{number}", vdev.kind),
        _ => vdev.name.clone(),
    }
}

fn on_off(is_on: bool) -> Value {
    Value::Text(if is_on { "on" } else { "off" }.to_string())
}

fn text_or_default(name: &str, text: Option<String>) -> Property {
    match text {
        Some(text) => Property::fact(name, Value::Text(text)),
        None => by_default(name, Value::None),
    }
}

fn by_default(name: &str, value: Value) -> Property {
    Property::of(name, value, Source::Default)
}

/// Number that `-p` shows for a state (OpenZFS: `vdev_state_t`).
fn state(name: &str, exact: bool) -> Value {
    if !exact {
        return Value::Text(name.to_string());
    }
    Value::Number(match name {
        "OFFLINE" => 2,
        "REMOVED" => 3,
        "UNAVAIL" => 4,
        "FAULTED" => 5,
        "DEGRADED" => 6,
        _ => 7,
    })
}

/// Properties of a vdev that is there, every one, in OpenZFS's order.
pub fn properties(place: &Place<'_>, exact: bool) -> Vec<Property> {
    let mut list = facts(place, exact);
    list.extend(counts(place.vdev));
    list.extend(settings(place.vdev));
    for set in &place.vdev.properties {
        match list.iter_mut().find(|property| property.name == set.name) {
            Some(property) => *property = set.clone(),
            None => list.push(set.clone()),
        }
    }
    list
}

/// Fragmentation of a vdev; 0 of those that have no space of their own, as in OpenZFS.
fn fragmentation(vdev: &VdevReport) -> Value {
    match vdev.fragmentation_percent {
        Some(percent) => Value::Percent(percent),
        None if vdev.size_bytes > 0 && vdev.kind != "root" => Value::None,
        None => Value::Percent(0),
    }
}

fn facts(place: &Place<'_>, exact: bool) -> Vec<Property> {
    let vdev = place.vdev;
    let free = vdev.size_bytes.saturating_sub(vdev.allocated_bytes);
    let percent = (vdev.allocated_bytes * 100).checked_div(vdev.size_bytes).unwrap_or(0);
    let [devid, physical, enclosure] = vdev.identity.clone();
    let children: Vec<String> = vdev.children.iter().map(plain_name).collect();
    vec![
        Property::fact("capacity", Value::Percent(percent)),
        Property::fact("state", state(&vdev.state, exact)),
        Property::fact("guid", Value::Number(vdev.guid)),
        Property::fact("asize", Value::Count(vdev.asize_bytes)),
        Property::fact("psize", Value::Count(vdev.psize_bytes)),
        Property::fact("ashift", Value::Number(u64::from(place.ashift))),
        Property::fact("size", Value::Count(vdev.size_bytes)),
        Property::fact("free", Value::Count(free)),
        Property::fact("allocated", Value::Count(vdev.allocated_bytes)),
        by_default("comment", Value::None),
        Property::fact("expandsize", if vdev.expand_bytes > 0 { Value::Count(vdev.expand_bytes) } else { Value::None }),
        Property::fact("fragmentation", fragmentation(vdev)),
        by_default("bootsize", Value::Count(0)),
        Property::fact("parity", Value::Number(vdev.parity)),
        text_or_default("path", vdev.path.clone()),
        text_or_default("devid", devid),
        text_or_default("physpath", physical),
        text_or_default("encpath", enclosure),
        by_default("fru", Value::None),
        text_or_default("parent", place.parent.map(plain_name)),
        text_or_default("children", (!children.is_empty()).then(|| children.join(","))),
        Property::fact("numchildren", Value::Number(vdev.children.len() as u64)),
    ]
}

fn counts(vdev: &VdevReport) -> Vec<Property> {
    let errors = vdev.initialize.as_ref().map_or(0, |sweep| sweep.errors);
    let ([reads, writes, trims], [read, written, trimmed]) = (vdev.io_ops, vdev.io_bytes);
    let counts = [
        ("read_errors", vdev.read_errors),
        ("write_errors", vdev.write_errors),
        ("checksum_errors", vdev.checksum_errors),
        ("initialize_errors", errors),
        ("null_ops", 0),
        ("read_ops", reads),
        ("write_ops", writes),
        ("free_ops", 0),
        ("claim_ops", 0),
        ("trim_ops", trims),
        ("null_bytes", 0),
        ("read_bytes", read),
        ("write_bytes", written),
        ("free_bytes", 0),
        ("claim_bytes", 0),
        ("trim_bytes", trimmed),
    ];
    counts.map(|(name, count)| Property::fact(name, Value::Count(count))).to_vec()
}

fn settings(vdev: &VdevReport) -> Vec<Property> {
    let allocating = match vdev.allocating {
        None if vdev.kind == "root" => by_default("allocating", on_off(true)),
        None => Property::fact("allocating", Value::None),
        Some(true) => by_default("allocating", on_off(true)),
        Some(false) => Property { source: Source::Local, ..Property::fact("allocating", on_off(false)) },
    };
    let mut list = vec![Property::fact("removing", on_off(false)), allocating, by_default("failfast", on_off(true))];
    list.extend(["checksum_n", "checksum_t", "io_n", "io_t"].map(|name| by_default(name, Value::None)));
    if vdev.kind == "raidz" {
        list.push(Property::fact("raidz_expanding", on_off(vdev.is_expanding)));
    }
    list.extend(["slow_io_n", "slow_io_t"].map(|name| by_default(name, Value::None)));
    let trims = if vdev.children.is_empty() { on_off(!vdev.trim_unsupported) } else { Value::None };
    list.push(Property::fact("trim_support", trims));
    list.push(Property::fact("trim_errors", Value::Count(vdev.trim.as_ref().map_or(0, |sweep| sweep.errors))));
    list.push(Property::fact("slow_ios", Value::Count(vdev.slow_ios)));
    list
}

/// Properties of a vdev: all, or those that are named; one that no user made up has no value.
pub fn select(place: &Place<'_>, wanted: Option<&[String]>, exact: bool) -> Vec<Property> {
    let all = properties(place, exact);
    let Some(names) = wanted else { return all };
    let one = |name: &String| match name.as_str() {
        "name" => Some(Property::fact("name", Value::Text(plain_name(place.vdev)))),
        user if user.contains(':') => Some(find(&all, user).cloned().unwrap_or_else(|| by_default(user, Value::None))),
        known => find(&all, known).cloned(),
    };
    names.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cli::property::{VDEV, canonical};

    fn report() -> PoolReport {
        let leaf = |name: &str, guid| VdevReport {
            name: name.into(),
            kind: "disk".into(),
            guid,
            state: "ONLINE".into(),
            path: Some(name.into()),
            io_ops: [7, 2000, 0],
            ..VdevReport::default()
        };
        let top = VdevReport {
            name: "raidz2-0".into(),
            kind: "raidz".into(),
            guid: 5,
            state: "DEGRADED".into(),
            ashift: 12,
            parity: 2,
            size_bytes: 3 << 30,
            allocated_bytes: 1 << 30,
            allocating: Some(true),
            children: vec![leaf("/dev/sda", 10), leaf("/dev/sdb", 11), leaf("/dev/sdc", 12)],
            ..VdevReport::default()
        };
        let root = VdevReport { name: "tank".into(), kind: "root".into(), guid: 1, children: vec![top], ..VdevReport::default() };
        PoolReport { name: "tank".into(), vdevs: root, ..PoolReport::default() }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    /// Scripts read these values by name.
    #[test]
    fn values_are_openzfs_s() {
        let report = report();
        let places = places(&report, &words(&["raidz2-0", "sdb"])).unwrap_or_default();
        let shown = |index: usize, name: &str, exact| {
            let property = select(&places[index], Some(&words(&[name])), exact).remove(0);
            format!("{} {}", cli::show_of_pool(&property.value, exact), cli::show_source(&property.source))
        };
        let top = ["state", "capacity", "free", "parity", "children", "parent", "path", "allocating", "raidz_expanding", "trim_support"];
        let expected =
            ["DEGRADED -", "33% -", "2G -", "2 -", "/dev/sda,/dev/sdb,/dev/sdc -", "tank -", "- default", "on default", "off -", "- -"];
        assert_eq!(top.map(|name| shown(0, name, false)), expected);
        assert_eq!([shown(0, "state", true), shown(0, "allocated", true), shown(0, "name", true)], ["6 -", "1073741824 -", "raidz-0 -"]);
        let leaf = ["guid", "ashift", "parent", "write_ops", "allocating", "numchildren", "com.example:x", "checksum_n"];
        let expected = ["11 -", "12 -", "raidz-0 -", "1.95K -", "- -", "0 -", "- default", "- default"];
        assert_eq!(leaf.map(|name| shown(1, name, false)), expected);
    }

    /// Every vdev can be named in each of the ways that OpenZFS takes, and what is none is said.
    #[test]
    fn vdevs_are_found_by_name_path_and_guid() {
        let report = report();
        let guids =
            |wanted: &[&str]| places(&report, &words(wanted)).map(|found| found.iter().map(|place| place.vdev.guid).collect::<Vec<_>>());
        assert_eq!(guids(&["/dev/sda", "sdb", "12", "raidz2-0", "root"]), Ok(vec![10, 11, 12, 5, 1]));
        assert_eq!(guids(&["all-vdevs"]), Ok(vec![10, 11, 12, 5, 1]));
        assert_eq!(guids(&["sda", "sdx", "mirror-0"]), Err(words(&["sdx", "mirror-0"])));
    }

    /// A property that is shown can be asked for.
    #[test]
    fn every_property_is_described() {
        let report = report();
        for place in places(&report, &words(&["all-vdevs"])).unwrap_or_default() {
            for property in properties(&place, false) {
                assert_eq!(canonical(VDEV, &property.name).ok(), Some(property.name));
            }
        }
    }
}
