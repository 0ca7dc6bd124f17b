//! `mount.zfs`, the helper of mount(8): legacy mountpoints, snapshots, fstab, and `remount`. The program is `zfs` under that name.

use cli::Client;
use control_api::{DatasetQuery, ErrorKind, Failure, MountRequest, PoolQuery, Request, Response, VdevReport};
use std::path::Path;
use std::process::ExitCode;

/// Exit codes of mount(8)'s helpers.
const USAGE: u8 = 1;
const SYSTEM: u8 = 2;
const BUSY: u8 = 0xff;
/// Names under which mount(8) looks for a helper of our mounts.
const NAMES: [&str; 2] = ["mount.zfs", "mount.fuse.zfs"];

/// True when this program was called by the name of the helper.
pub fn is_called() -> bool {
    cli::is_called(&NAMES)
}

/// Options and words of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    sloppy: bool,
    fake: bool,
    verbose: bool,
    options: Vec<String>,
    words: Vec<String>,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut asked = Asked::default();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                asked.words.push(word);
                continue;
            };
            let mut letters = letters.chars();
            while let Some(letter) = letters.next() {
                match letter {
                    's' => asked.sloppy = true,
                    'f' => asked.fake = true,
                    'v' => asked.verbose = true,
                    'n' => {}
                    'o' | 't' => {
                        let rest: String = letters.by_ref().collect();
                        let value = if rest.is_empty() { words.next().unwrap_or_default() } else { rest };
                        if letter == 'o' {
                            asked.options.extend(value.split(',').filter(|option| !option.is_empty()).map(String::from));
                        }
                    }
                    other => {
                        return Err(format!("Invalid option '{other}'\nUsage: mount.zfs [-sfnvh] [-o options] <dataset> <mountpoint>"));
                    }
                }
            }
        }
        Ok(asked)
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    /// Options that are passed on. mount(8) says `rw` of its own accord; that must not lift `readonly=on`.
    fn passed_on(&self) -> Vec<String> {
        let keeps = |option: &&String| *option != "rw" || self.has("remount");
        self.options.iter().filter(keeps).cloned().collect()
    }
}

/// Runs the helper.
pub fn main() -> ExitCode {
    let asked = cli::words().and_then(|words| Asked::read(words.into_iter().skip(1)));
    let outcome = asked.map_err(|why| (USAGE, why)).and_then(|asked| run(&asked));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            cli::errln!("{why}");
            ExitCode::from(code)
        }
    }
}

fn run(asked: &Asked) -> Result<(), (u8, String)> {
    let usage = |why: &str| Err((USAGE, format!("{why}\nusage: mount <dataset> <mountpoint>")));
    let [dataset, mountpoint] = asked.words.as_slice() else {
        return usage(match asked.words.len() {
            0 => "missing dataset argument",
            1 => "missing mountpoint argument",
            _ => "too many arguments",
        });
    };
    let client = Client::from_environment().map_err(|failure| (SYSTEM, failure.to_string()))?;
    let dataset = pool_on(&client, dataset).unwrap_or_else(|| dataset_of(dataset));
    let place = std::fs::canonicalize(mountpoint).map_err(|error| {
        let why = cli::os_error(&error);
        (SYSTEM, format!("filesystem '{dataset}' cannot be mounted at '{mountpoint}' due to canonicalization error: {why}"))
    })?;
    let is_legacy = dataset.contains('@') || mountpoint_of(&client, &dataset)? == "legacy";
    if is_legacy && asked.has("zfsutil") {
        return Err((
            USAGE,
            format!(
                "filesystem '{dataset}' cannot be mounted using 'zfs mount'.\nUse 'zfs set mountpoint={0}' or 'mount -t zfs {dataset} {0}'.\n\
                 See zfs(8) for more information.",
                place.display()
            ),
        ));
    }
    let is_remount = asked.has("remount");
    if !is_legacy && !asked.has("zfsutil") && !is_remount && !asked.fake {
        return Err((
            USAGE,
            format!(
                "filesystem '{dataset}' cannot be mounted using 'mount'.\nUse 'zfs set mountpoint=legacy' or 'zfs mount {dataset}'.\n\
                 See zfs(8) for more information."
            ),
        ));
    }
    if asked.verbose {
        cli::outln!(
            "mount.zfs:\n  dataset:    \"{dataset}\"\n  mountpoint: \"{}\"\n  mountopts:  \"{}\"",
            place.display(),
            asked.options.join(",")
        );
    }
    if asked.fake {
        return Ok(());
    }
    let request = MountRequest {
        name: Some(dataset.clone()),
        options: asked.passed_on(),
        place: (!is_remount).then(|| place.to_string_lossy().into_owned()),
        sloppy: asked.sloppy,
        ..MountRequest::default()
    };
    cli::done(&client, &Request::Mount(request)).map(drop).map_err(|failure| explain(&dataset, &failure))
}

/// Name of the pool that a device or file belongs to: what is mounted is its own file system then (OpenZFS reads the label).
fn pool_on(client: &Client, word: &str) -> Option<String> {
    let device = std::fs::canonicalize(word).ok().filter(|path| word.starts_with('/') && !path.is_dir())?;
    let is_it = |path: &str| std::fs::canonicalize(path).is_ok_and(|path| path == device);
    let Ok(Response::Pools(pools)) = client.call(&Request::PoolQuery(PoolQuery::default())) else { return None };
    pools.into_iter().find(|pool| has_leaf(&pool.vdevs, &is_it)).map(|pool| pool.name)
}

fn has_leaf(vdev: &VdevReport, is_it: &impl Fn(&str) -> bool) -> bool {
    vdev.path.as_deref().is_some_and(is_it) || vdev.children.iter().any(|child| has_leaf(child, is_it))
}

/// Name of the dataset that a word means: mount(8) takes one for a path below the folder that it is called in.
fn dataset_of(word: &str) -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    let below = Path::new(word).strip_prefix(folder).map(|rest| rest.to_string_lossy().into_owned());
    below.unwrap_or_else(|_| word.trim_start_matches('/').to_string())
}

fn mountpoint_of(client: &Client, dataset: &str) -> Result<String, (u8, String)> {
    let unknown = || (USAGE, format!("filesystem '{dataset}' cannot be mounted, unable to open the dataset"));
    let query =
        DatasetQuery { names: vec![dataset.to_string()], depth: Some(0), types: vec!["filesystem".to_string()], ..DatasetQuery::default() };
    match client.call(&Request::DatasetQuery(query)) {
        Ok(Response::Datasets(reports)) => {
            let report = reports.first().ok_or_else(unknown)?;
            Ok(cli::find(&report.properties, "mountpoint").map(|property| cli::show(&property.value, true)).unwrap_or_default())
        }
        _ => Err(unknown()),
    }
}

fn explain(dataset: &str, failure: &Failure) -> (u8, String) {
    match (failure.kind, failure.why.as_str()) {
        (ErrorKind::Busy, _) if failure.why.contains("already mounted") => (BUSY, format!("filesystem '{dataset}' is already mounted")),
        (ErrorKind::Invalid, "Invalid argument") => (USAGE, format!("filesystem '{dataset}' cannot be mounted due to invalid option.")),
        _ => (SYSTEM, failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mount(8) writes its options in this form; `rw` in each of them would make `readonly=on` a dead letter.
    #[test]
    fn the_command_line_of_mount_is_understood() {
        let read = |line: &str| Asked::read(line.split(' ').map(String::from));
        let asked = read("tank/fs /mnt -n -o rw,noatime").expect("valid");
        assert_eq!(asked.words, ["tank/fs", "/mnt"]);
        assert_eq!(asked.passed_on(), ["noatime"]);
        assert_eq!(read("-oremount,rw tank/fs /mnt").expect("valid").passed_on(), ["remount", "rw"]);
        assert!(read("-x tank/fs /mnt").is_err());
        assert!(read("-sfv a b").is_ok_and(|asked| asked.sloppy && asked.fake && asked.verbose));
    }
}
