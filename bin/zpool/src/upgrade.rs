//! `zpool upgrade`: which pools are of old versions or lack features, and what is done about it.

use crate::list;
use clap::Args;
use cli::{Client, Stop};
use control_api::{Failure, FeatureReport, PoolSet, PoolUpgrade, PoolUpgradeReport, Request, Response};

/// Version of pools with feature flags.
const WITH_FEATURES: u64 = 5000;
/// Versions before feature flags.
const LEGACY: std::ops::RangeInclusive<u64> = 1..=28;

/// Novelty of each version, from version 1 on (OpenZFS: `zpool upgrade -v`).
const VERSIONS: [&str; 28] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

/// `zpool upgrade`.
#[derive(Args, Clone, Debug)]
pub struct Upgrade {
    /// All pools.
    #[arg(short)]
    pub all: bool,
    /// Show the features and versions that there are.
    #[arg(short = 'v')]
    pub versions: bool,
    /// Version to go to: 1 to 28, or 5000 with feature flags.
    #[arg(short = 'V', value_name = "version")]
    pub to: Option<String>,
    /// Pools.
    #[arg(value_name = "pool")]
    pub pools: Vec<String>,
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &Upgrade) -> Result<u8, Stop> {
    let &Upgrade { all, versions, to: ref version, ref pools } = arguments;
    let wanted = match version {
        None => WITH_FEATURES,
        Some(word) => version_of(word).ok_or_else(|| Stop::usage(format!("invalid version '{word}'")))?,
    };
    if version.is_some() && !all && pools.is_empty() {
        return Err(Stop::usage("-V option is incompatible with other arguments"));
    }
    if versions && (all || !pools.is_empty()) {
        return Err(Stop::usage("-v option is incompatible with other arguments"));
    }
    if all && !pools.is_empty() {
        return Err(Stop::usage("-a option should not be used along with a pool name"));
    }
    cli::outln!("This system supports ZFS pool feature flags.\n");
    match (versions, all || !pools.is_empty()) {
        (true, _) => Ok(show_versions(client)?),
        (false, false) => Ok(show_pools(client)?),
        (false, true) => Ok(upgrade(client, wanted, pools)?),
    }
}

fn version_of(word: &str) -> Option<u64> {
    word.parse().ok().filter(|version| LEGACY.contains(version) || *version == WITH_FEATURES)
}

fn show_versions(client: &Client) -> Result<u8, Failure> {
    let features = match client.call(&Request::FeatureList)? {
        Response::Features(features) => features,
        other => return Err(cli::unexpected("cannot list features", other)),
    };
    cli::outln!("The following features are supported:\n\nFEAT DESCRIPTION\n{}", "-".repeat(61));
    for FeatureReport { name, description, read_only_compatible } in features {
        let compatible = if read_only_compatible { " (read-only compatible)" } else { "" };
        cli::outln!("{name:<37}{compatible}\n     {description}");
    }
    cli::outln!("\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n---  {}", "-".repeat(56));
    for (number, what) in LEGACY.zip(VERSIONS) {
        cli::outln!(" {number:<4}{what}");
    }
    cli::outln!("\nFor more information on a particular version, including supported releases,\nsee the ZFS Administration Guide.\n");
    Ok(0)
}

fn ask(client: &Client, pool: &str, dry_run: bool) -> Result<PoolUpgradeReport, Failure> {
    match client.call(&Request::PoolUpgrade(PoolUpgrade { pool: pool.to_string(), dry_run }))? {
        Response::Upgraded(report) => Ok(report),
        other => Err(cli::unexpected("cannot upgrade", other)),
    }
}

fn names(client: &Client) -> Result<Vec<String>, Failure> {
    Ok(list::reports(client, Vec::new(), false)?.into_iter().map(|report| report.name).collect())
}

/// Heading of the pools from before feature flags (OpenZFS's words).
const OLDER: &str = "The following pools are formatted with legacy version numbers and can
be upgraded to use feature flags.  After being upgraded, these pools
will no longer be accessible by software that does not support feature
flags.

Note that setting a pool's 'compatibility' feature to 'legacy' will
inhibit upgrades.

VER  POOL
---  ------------";

/// Heading of the pools that lack features (OpenZFS's words).
const LACKING: &str = "
Some supported features are not enabled on the following pools. Once a
feature is enabled the pool may become incompatible with software
that does not support the feature. See zpool-features(7) for details.

Note that the pool 'compatibility' feature can be used to inhibit
feature upgrades.

POOL  FEATURE
---------------";

/// Lists the pools that could be upgraded.
fn show_pools(client: &Client) -> Result<u8, Failure> {
    let (mut reports, mut code) = (Vec::new(), 0);
    for pool in names(client)? {
        match ask(client, &pool, true) {
            Ok(report) => reports.push(report),
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
        }
    }
    cli::out!("{}", listed(&reports));
    Ok(code)
}

/// Text about the pools that could be upgraded.
fn listed(reports: &[PoolUpgradeReport]) -> String {
    let older: Vec<_> = reports.iter().filter(|report| report.version < WITH_FEATURES).collect();
    let lacking: Vec<_> = reports.iter().filter(|report| !report.features.is_empty()).collect();
    let mut text = String::new();
    if older.is_empty() {
        text += "All pools are formatted using feature flags.\n\n";
    } else {
        let line = |report: &&PoolUpgradeReport| format!("{:2}   {}\n", report.version, report.pool);
        text += &format!("{OLDER}\n{}", older.iter().map(line).collect::<String>());
        text += "\nUse 'zpool upgrade -v' for a list of available legacy versions.\n";
    }
    if lacking.is_empty() {
        return text + "Every feature flags pool has all supported and requested features enabled.\n";
    }
    text += &format!("{LACKING}\n");
    for report in lacking {
        text += &format!("{}\n{}", report.pool, indented(&report.features, 6));
    }
    text + "\n"
}

/// Lines of names, so many blanks from the edge.
fn indented(names: &[String], blanks: usize) -> String {
    names.iter().map(|name| format!("{:blanks$}{name}\n", "")).collect()
}

/// Upgrades pools, or all where none is named.
fn upgrade(client: &Client, wanted: u64, pools: &[String]) -> Result<u8, Failure> {
    let is_all = pools.is_empty();
    let (mut code, mut changed) = (0, false);
    for pool in if is_all { names(client)? } else { pools.to_vec() } {
        match one(client, &pool, wanted, is_all) {
            Ok(did) => changed |= did,
            Err(failure) => {
                cli::errln!("{failure}");
                code = cli::EXIT_FAILURE;
            }
        }
    }
    if is_all && !changed && code == 0 {
        if wanted == WITH_FEATURES {
            cli::outln!("All pools are already formatted using feature flags.\n");
            cli::outln!("Every feature flags pool already has all supported and requested features enabled.");
        } else {
            cli::outln!("All pools are already formatted with version {wanted} or higher.");
        }
    }
    Ok(code)
}

/// Upgrades a pool; true when that changed it. Of one that is as it should be something is said only where it was named.
fn one(client: &Client, pool: &str, wanted: u64, is_all: bool) -> Result<bool, Failure> {
    let PoolUpgradeReport { version, features: lacking, .. } = ask(client, pool, true)?;
    if version > wanted || version == wanted && wanted != WITH_FEATURES {
        if !is_all {
            let which = if version > wanted { format!("more current version '{version}'") } else { format!("version {version}") };
            cli::outln!("Pool '{pool}' is already formatted using {which}.\n");
        }
        return Ok(false);
    }
    if wanted < WITH_FEATURES {
        let (property, value) = ("version".to_string(), wanted.to_string());
        let request = PoolSet { pool: pool.to_string(), property, value, vdev: None };
        match client.call(&Request::PoolSet(request))? {
            Response::Done { .. } => cli::outln!("Successfully upgraded '{pool}' from version {version} to version {wanted}.\n"),
            other => return Err(cli::unexpected("cannot upgrade", other)),
        }
        return Ok(true);
    }
    // Who may not change pools is refused only where there is something to change, as in OpenZFS.
    let has_all = version == WITH_FEATURES && lacking.is_empty();
    let enabled = if has_all { Vec::new() } else { ask(client, pool, false)?.features };
    let is_newer = version < WITH_FEATURES;
    if is_newer {
        cli::outln!("Successfully upgraded '{pool}' from version {version} to feature flags.");
    }
    if !enabled.is_empty() {
        cli::outln!("Enabled the following features on '{pool}':\n{}", indented(&enabled, 2));
    } else if is_newer {
        cli::outln!();
    } else if !is_all {
        cli::outln!("Pool '{pool}' already has all supported and requested features enabled.");
    }
    Ok(is_newer || !enabled.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, scripts that look for a pool's name below the headings find none, or another one's features.
    #[test]
    fn pools_are_listed_with_what_they_lack() {
        let report = |pool: &str, version, features: &[&str]| PoolUpgradeReport {
            pool: pool.to_string(),
            version,
            features: features.iter().map(|name| name.to_string()).collect(),
        };
        let whole = listed(&[report("tank", 5000, &[])]);
        assert!(whole.starts_with("All pools are formatted using feature flags.\n\nEvery feature flags pool has all supported"), "{whole}");
        let text = listed(&[report("old", 28, &[]), report("tank", 5000, &["draid", "sha512"])]);
        assert!(text.contains("VER  POOL\n---  ------------\n28   old\n\nUse 'zpool upgrade -v'"), "{text}");
        assert!(text.ends_with("POOL  FEATURE\n---------------\ntank\n      draid\n      sha512\n\n"), "{text}");
    }

    #[test]
    fn versions_are_those_that_openzfs_knows() {
        assert_eq!(["0", "1", "28", "29", "5000", "999", "x"].map(version_of), [None, Some(1), Some(28), None, Some(5000), None, None]);
    }
}
