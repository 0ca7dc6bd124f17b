//! `zfs upgrade`: versions of file systems.

use clap::Args;
use cli::{Client, Stop, done, find, show};
use control_api::{DatasetQuery, DatasetReport, DatasetSet, Failure, PoolUpgrade, Request, Response};
use std::collections::BTreeMap;

/// Version of the file systems that are made here.
const NEWEST: u64 = 5;

/// Novelty of each version, from version 1 on (OpenZFS: `zfs upgrade -v`).
const VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

/// Heading of the file systems that are older (OpenZFS's words).
const OLDER: &str = "The following filesystems are out of date, and can be upgraded.  After being
upgraded, these filesystems (and any 'zfs send' streams generated from
subsequent snapshots) will no longer be accessible by older software versions.
";

/// Heading of the file systems that are newer (OpenZFS's words).
const NEWER: &str = "The following filesystems are formatted using a newer software version and
cannot be accessed on the current system.
";

/// `zfs upgrade`.
#[derive(Args, Clone, Debug)]
pub struct Upgrade {
    /// All file systems.
    #[arg(short)]
    pub all: bool,
    /// Descendants too.
    #[arg(short)]
    pub recursive: bool,
    /// Show the versions that there are.
    #[arg(short = 'v')]
    pub versions: bool,
    /// Version to go to: 1 to 5, or current.
    #[arg(short = 'V', value_name = "version")]
    pub version: Option<String>,
    /// File systems.
    #[arg(value_name = "filesystem")]
    pub names: Vec<String>,
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &Upgrade) -> Result<u8, Stop> {
    let &Upgrade { all, recursive, versions, ref version, ref names } = arguments;
    let wanted = match version.as_deref() {
        None | Some("current") => NEWEST,
        Some(word) => version_of(word).ok_or_else(|| Stop::usage(format!("invalid version {word}")))?,
    };
    let changes = all || !names.is_empty();
    if versions && (changes || recursive || version.is_some()) || all && !names.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if !changes && (recursive || version.is_some()) {
        return Err(Stop::usage("missing filesystem argument"));
    }
    if versions {
        return Ok(show_versions());
    }
    let depth = if all || recursive || !changes { None } else { Some(0) };
    let query = DatasetQuery { names: names.clone(), depth, types: vec!["filesystem".to_string()], asked: Vec::new() };
    let reports = match client.call(&Request::DatasetQuery(query))? {
        Response::Datasets(reports) => reports,
        other => return Err(cli::unexpected("cannot list versions", other).into()),
    };
    if changes { Ok(upgrade(client, &reports, wanted)?) } else { Ok(show_old(&reports)) }
}

fn version_of(word: &str) -> Option<u64> {
    word.parse().ok().filter(|version| (1..=NEWEST).contains(version))
}

/// Version of a file system.
fn version(report: &DatasetReport) -> u64 {
    find(&report.properties, "version").and_then(|property| show(&property.value, true).parse().ok()).unwrap_or(NEWEST)
}

fn show_versions() -> u8 {
    cli::outln!("The following filesystem versions are supported:\n\nVER  DESCRIPTION\n---  {}", "-".repeat(56));
    (1..).zip(VERSIONS).for_each(|(number, what)| cli::outln!(" {number:<4}{what}"));
    cli::outln!("\nFor more information on a particular version, including supported releases,\nsee the ZFS Administration Guide.\n");
    0
}

fn show_old(reports: &[DatasetReport]) -> u8 {
    cli::outln!("This system is currently running ZFS filesystem version {NEWEST}.\n");
    let lists = [(OLDER, listed(reports, |version| version < NEWEST)), (NEWER, listed(reports, |version| version > NEWEST))];
    if lists.iter().all(|(_, list)| list.is_empty()) {
        cli::outln!("All filesystems are formatted with the current version.");
    }
    for (heading, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        cli::out!("{heading}\n\nVER  FILESYSTEM\n---  ------------\n{list}");
    }
    0
}

/// Lines of the file systems whose version is so.
fn listed(reports: &[DatasetReport], is_so: impl Fn(u64) -> bool) -> String {
    let those = reports.iter().map(|report| (version(report), &report.name)).filter(|(version, _)| is_so(*version));
    those.map(|(version, name)| format!("{version:2}   {name}\n")).collect()
}

/// Version of a pool.
fn version_of_pool(client: &Client, pool: &str) -> Result<u64, Failure> {
    match client.call(&Request::PoolUpgrade(PoolUpgrade { pool: pool.to_string(), dry_run: true }))? {
        Response::Upgraded(report) => Ok(report.version),
        other => Err(cli::unexpected("cannot upgrade", other)),
    }
}

/// First version of pools that has file systems of this version (OpenZFS: `zfs_spa_version_map`).
fn needed_pool(version: u64) -> u64 {
    match version {
        0..=2 => 1,
        3 => 9,
        4 => 15,
        _ => 24,
    }
}

fn upgrade(client: &Client, reports: &[DatasetReport], wanted: u64) -> Result<u8, Failure> {
    let (mut upgraded, mut same, mut code) = (0, 0, 0);
    let (needed, mut pools) = (needed_pool(wanted), BTreeMap::new());
    for report in reports {
        let pool = match pools.get(&report.pool) {
            Some(known) => *known,
            None => {
                let found = version_of_pool(client, &report.pool)?;
                pools.insert(report.pool.clone(), found);
                found
            }
        };
        match version(report) {
            _ if pool < needed => {
                let name = &report.name;
                cli::outln!("{name}: can not be upgraded; the pool version needs to first be upgraded\nto version {needed}\n");
                code = cli::EXIT_FAILURE;
            }
            now if now == wanted => same += 1,
            now if now > wanted => {
                cli::outln!("{}: can not be downgraded; it is already at version {now}", report.name);
                code = cli::EXIT_FAILURE;
            }
            _ => {
                let properties = [("version".to_string(), wanted.to_string())].into();
                let request = DatasetSet { name: report.name.clone(), properties, no_mount: false };
                match done(client, &Request::DatasetSet(request)) {
                    Ok(_) => upgraded += 1,
                    Err(failure) => {
                        cli::errln!("{failure}");
                        code = cli::EXIT_FAILURE;
                    }
                }
            }
        }
    }
    cli::outln!("{upgraded} filesystems upgraded");
    if same > 0 {
        cli::outln!("{same} filesystems already at this version");
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::{Property, Value};

    /// If this fails, somebody upgrades file systems that older systems are to read, or looks for old ones in vain.
    #[test]
    fn file_systems_are_listed_by_their_versions() {
        let report = |name: &str, version| DatasetReport {
            name: name.to_string(),
            kind: "filesystem".to_string(),
            pool: "tank".to_string(),
            create_txg: 1,
            properties: vec![Property::fact("version", Value::Number(version))],
            unread: None,
        };
        let reports = [report("tank", 5), report("tank/old", 4), report("tank/new", 6)];
        assert_eq!(listed(&reports, |version| version < NEWEST), " 4   tank/old\n");
        assert_eq!(listed(&reports, |version| version > NEWEST), " 6   tank/new\n");
        assert_eq!(["0", "1", "5", "6", "x"].map(version_of), [None, Some(1), Some(5), None, None]);
        assert_eq!([1, 2, 3, 4, 5].map(needed_pool), [1, 1, 9, 15, 24]);
    }
}
