//! `zfs load-key` and `unload-key`, and the keys that `zfs mount -l` loads: where they come from, and which datasets they are for.

use crate::args::{LoadKey, UnloadKey};
use cli::{Client, Stop, done};
use control_api::{DatasetQuery, DatasetReport, ErrorKind, Failure, KeyLoad, KeyUnload, Request, Response, UserKey};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{BufRead, IsTerminal, Read, Write};

/// Bytes of a key of `keyformat=raw`.
const RAW_BYTES: usize = 32;
/// Most bytes that are read of a file with a key.
const FILE_BYTES_MAX: u64 = 4096;
const ERROR: &str = "Key load error";

/// An encrypted dataset, or one that is not.
struct Dataset {
    name: String,
    /// Encryption root; `-` for what is not encrypted.
    root: String,
    is_loaded: bool,
    format: String,
    location: String,
}

impl Dataset {
    fn of(report: &DatasetReport) -> Dataset {
        let text = |name: &str| cli::find(&report.properties, name).map_or_else(String::new, |property| cli::show(&property.value, true));
        Dataset {
            name: report.name.clone(),
            root: text("encryptionroot"),
            is_loaded: text("keystatus") == "available",
            format: text("keyformat"),
            location: text("keylocation"),
        }
    }
    fn is_root(&self) -> bool {
        self.root == self.name
    }
}

fn refused(kind: ErrorKind, why: impl Into<String>) -> Failure {
    Failure::new(kind, ERROR, why)
}

/// File systems and volumes: one, those at and below it, or all.
fn datasets(client: &Client, name: Option<&String>, recursive: bool) -> Result<Vec<Dataset>, Failure> {
    let types = vec!["filesystem".to_string(), "volume".to_string()];
    let depth = if recursive { None } else { Some(0) };
    let query = DatasetQuery { names: name.into_iter().cloned().collect(), depth, types, asked: Vec::new() };
    match client.call(&Request::DatasetQuery(query))? {
        Response::Datasets(reports) => Ok(reports.iter().map(Dataset::of).collect()),
        other => Err(cli::unexpected(ERROR, other)),
    }
}

/// `zfs load-key`.
pub fn load(client: &Client, arguments: &LoadKey) -> Result<u8, Stop> {
    let recursive = arguments.recursive || arguments.all;
    check_names(arguments.all, arguments.name.as_ref())?;
    if recursive && arguments.location.as_deref().is_some_and(|location| location != "prompt") {
        return Err(Stop::usage("alternate keylocation may only be 'prompt' with -r or -a"));
    }
    let mut found = datasets(client, arguments.name.as_ref(), recursive)?;
    if recursive {
        found.retain(|dataset| dataset.is_root() && (arguments.dry_run || !dataset.is_loaded));
    }
    let load = |dataset: &Dataset| load_one(client, dataset, arguments.location.as_deref(), arguments.dry_run);
    let verb = if arguments.dry_run { "verified" } else { "loaded" };
    Ok(each(&found, (recursive || arguments.dry_run).then_some(verb), load))
}

/// `zfs unload-key`.
pub fn unload(client: &Client, arguments: &UnloadKey) -> Result<u8, Stop> {
    let recursive = arguments.recursive || arguments.all;
    check_names(arguments.all, arguments.name.as_ref())?;
    let mut found = datasets(client, arguments.name.as_ref(), recursive)?;
    if recursive {
        found.retain(|dataset| dataset.is_root() && dataset.is_loaded);
    }
    let unload = |dataset: &Dataset| done(client, &Request::KeyUnload(KeyUnload { name: dataset.name.clone() })).map(drop);
    Ok(each(&found, recursive.then_some("unloaded"), unload))
}

fn check_names(all: bool, name: Option<&String>) -> Result<(), Stop> {
    match (all, name) {
        (true, Some(_)) => Err(Stop::usage("cannot specify dataset with -a option")),
        (false, None) => Err(Stop::usage("missing dataset argument(s)")),
        _ => Ok(()),
    }
}

/// Goes on with the next dataset when one fails, and says in the end how many keys were `verb`, if anything; the exit code says that one failed.
fn each(datasets: &[Dataset], verb: Option<&str>, work: impl Fn(&Dataset) -> Result<(), Failure>) -> u8 {
    let mut failed = 0;
    for dataset in datasets {
        if let Err(failure) = work(dataset) {
            cli::errln!("{failure}");
            failed += 1;
        }
    }
    if let Some(verb) = verb.filter(|_| !datasets.is_empty()) {
        cli::outln!("{} / {} key(s) successfully {verb}", datasets.len() - failed, datasets.len());
    }
    if failed == 0 { 0 } else { cli::EXIT_FAILURE }
}

/// Loads the keys that file systems need to be mounted: that of the one with this name, or of all.
pub fn load_to_mount(client: &Client, name: Option<&String>) -> Result<u8, Failure> {
    let found = datasets(client, name, name.is_none())?;
    let mut roots: Vec<String> = found.into_iter().filter(|dataset| !dataset.is_loaded).map(|dataset| dataset.root).collect();
    roots.retain(|root| !matches!(root.as_str(), "" | "-"));
    roots.sort();
    roots.dedup();
    let mut code = 0;
    for root in roots {
        let root = datasets(client, Some(&root), false)?;
        code = code.max(each(&root, None, |dataset| load_one(client, dataset, None, false)));
    }
    Ok(code)
}

/// Loads one key, from `location` or from where the dataset's property says.
fn load_one(client: &Client, dataset: &Dataset, location: Option<&str>, dry_run: bool) -> Result<(), Failure> {
    let name = &dataset.name;
    if dataset.root.is_empty() || dataset.root == "-" {
        return Err(refused(ErrorKind::Invalid, format!("'{name}' is not encrypted.")));
    }
    if !dataset.is_root() {
        let why = format!("Keys must be loaded for encryption root of '{name}' ({}).", dataset.root);
        return Err(refused(ErrorKind::Invalid, why));
    }
    if dataset.is_loaded && !dry_run {
        return Err(refused(ErrorKind::Exists, format!("Key already loaded for '{name}'.")));
    }
    let given = given(dataset, location.unwrap_or(&dataset.location))?;
    let key = UserKey::new(&checked(&dataset.format, given)?);
    done(client, &Request::KeyLoad(KeyLoad { name: name.clone(), key, dry_run })).map(drop)
}

/// Bytes that somebody gives for a key, a line with its end where it is no raw key.
fn given(dataset: &Dataset, location: &str) -> Result<Vec<u8>, Failure> {
    let unreadable = |error: std::io::Error| refused(ErrorKind::Io, format!("the key cannot be read: {}", control_api::os_error(&error)));
    if location == "prompt" {
        return asked(dataset).map_err(unreadable);
    }
    let Some(path) = location.strip_prefix("file://") else {
        return Err(refused(ErrorKind::Unsupported, format!("keylocation '{location}' is not supported: 'prompt' and 'file://' are.")));
    };
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| refused(ErrorKind::Io, format!("Failed to open key material file: {}", control_api::os_error(&error))))?;
    Ok(bytes)
}

/// Bytes that somebody types, which are not shown, or that come from another program.
fn asked(dataset: &Dataset) -> std::io::Result<Vec<u8>> {
    let (stdin, mut bytes) = (std::io::stdin(), Vec::new());
    if !stdin.is_terminal() {
        match dataset.format.as_str() {
            "raw" => stdin.lock().take(RAW_BYTES as u64 + 1).read_to_end(&mut bytes)?,
            _ => stdin.lock().read_until(b'\n', &mut bytes)?,
        };
        return Ok(bytes);
    }
    let what = if dataset.format == "passphrase" { "passphrase".to_string() } else { format!("{} key", dataset.format) };
    cli::out!("Enter {what} for '{}': ", dataset.name);
    std::io::stdout().flush()?;
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let read = stdin.lock().read_until(b'\n', &mut bytes);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    cli::outln!();
    read.map(|_| bytes)
}

/// The key in what was given: a raw key whole, of the others the first line without its end. Says in OpenZFS's words what is wrong with its length.
fn checked(format: &str, mut given: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let (what, least, most) = match format {
        "raw" => ("Raw key", RAW_BYTES, RAW_BYTES),
        "hex" => ("Hex key", 2 * RAW_BYTES, 2 * RAW_BYTES),
        "passphrase" => ("Passphrase", 8, 512),
        other => return Err(refused(ErrorKind::Unsupported, format!("keyformat '{other}' is not supported."))),
    };
    if format != "raw" {
        given.truncate(given.iter().position(|byte| *byte == b'\n').unwrap_or(given.len()));
    }
    let limit = |word: &str, bytes: usize| {
        let bound = if least == most { "expected" } else { word };
        format!("({bound} {bytes}).")
    };
    if given.len() < least {
        return Err(refused(ErrorKind::Invalid, format!("{what} too short {}", limit("min", least))));
    }
    if given.len() > most {
        return Err(refused(ErrorKind::Invalid, format!("{what} too long {}", limit("max", most))));
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a key from an editor, with the end of its line, is another one than the same key typed in; or half a key is taken for one.
    #[test]
    fn keys_are_taken_as_openzfs_takes_them() {
        let taken = |format: &str, given: &[u8]| checked(format, given.to_vec()).map_err(|failure| failure.why);
        assert_eq!(taken("passphrase", b"correct horse\nbattery"), Ok(b"correct horse".to_vec()));
        assert_eq!(taken("passphrase", b"correct horse"), Ok(b"correct horse".to_vec()));
        assert_eq!(taken("raw", &[b'\n'; 32]), Ok(vec![b'\n'; 32]));
        assert_eq!(taken("passphrase", b"short\n"), Err("Passphrase too short (min 8).".to_string()));
        assert_eq!(taken("passphrase", &[b'x'; 513]), Err("Passphrase too long (max 512).".to_string()));
        assert_eq!(taken("raw", &[1; 33]), Err("Raw key too long (expected 32).".to_string()));
        assert_eq!(taken("hex", b"00ff\n"), Err("Hex key too short (expected 64).".to_string()));
    }
}
