//! `zfs load-key`, `unload-key` and `change-key`, and the keys that `zfs mount -l` loads and `zfs unmount -u` forgets: which datasets they are for.

use crate::args::{ChangeKey, LoadKey, UnloadKey};
use cli::keys::KeyWanted;
use cli::property::DATASET;
use cli::{Client, Stop, done};
use control_api::{
    DatasetQuery, DatasetReport, ErrorKind, Failure, KeyChange, KeyLoad, KeyUnload, MountRequest, Request, Response, UserKey,
};
use std::collections::BTreeMap;

const ERROR: &str = "Key load error";
const CHANGE: &str = "Key change error";

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

/// True for the name of a dataset, which need not be there, below one that is encrypted.
pub fn is_below_encrypted(client: &Client, name: &str) -> bool {
    let mut above = std::iter::successors(name.rsplit_once('/'), |(above, _)| above.rsplit_once('/')).map(|(above, _)| above.to_string());
    // The nearest one that is there.
    let found = above.find_map(|above| datasets(client, Some(&above), false).ok());
    found.is_some_and(|found| found.iter().any(|dataset| !matches!(dataset.root.as_str(), "" | "-")))
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
    Ok(each(&found, recursive.then_some("unloaded"), |dataset| unload_one(client, dataset)))
}

fn unload_one(client: &Client, dataset: &Dataset) -> Result<(), Failure> {
    done(client, &Request::KeyUnload(KeyUnload { name: dataset.name.clone() })).map(drop)
}

/// Forgets the key of a file system that is mounted no longer, where it is an encryption root and its key is loaded. One whose key others
/// still have is mounted again.
pub fn unload_unmounted(client: &Client, name: &str) -> Result<u8, Failure> {
    // What was a snapshot is none.
    if name.contains('@') {
        return Ok(0);
    }
    let mut found = datasets(client, Some(&name.to_string()), false)?;
    found.retain(|dataset| dataset.is_root() && dataset.is_loaded);
    let unload = |dataset: &Dataset| {
        let kept = unload_one(client, dataset);
        if kept.is_err() {
            let again = MountRequest { name: Some(name.to_string()), ..MountRequest::default() };
            let _ = done(client, &Request::Mount(again)).map_err(|failure| cli::errln!("{failure}"));
        }
        kept
    };
    Ok(each(&found, None, unload))
}

/// `zfs change-key`.
pub fn change(client: &Client, arguments: &ChangeKey) -> Result<u8, Stop> {
    let refused = |why: &str| Failure::new(ErrorKind::Invalid, CHANGE, why);
    let properties = cli::properties(DATASET, &arguments.properties)?;
    if properties.keys().any(|name| !matches!(name.as_str(), "keyformat" | "keylocation" | "pbkdf2iters")) {
        return Err(refused("only 'keyformat', 'keylocation' and 'pbkdf2iters' can be set with 'change-key'").into());
    }
    let Some(dataset) = datasets(client, Some(&arguments.name), false)?.into_iter().next() else {
        return Err(refused("Dataset not encrypted.").into());
    };
    if matches!(dataset.root.as_str(), "" | "-") {
        return Err(refused("Dataset not encrypted.").into());
    }
    if arguments.load && load_to_mount(client, Some(&arguments.name))? != 0 {
        return Ok(cli::EXIT_FAILURE);
    }
    if !dataset.is_loaded && !arguments.load {
        return Err(Failure::new(ErrorKind::Permission, CHANGE, "Key must be loaded.").into());
    }
    let key = if arguments.inherit { None } else { Some(new_key(&dataset, &properties)?) };
    Ok(done(client, &Request::KeyChange(KeyChange { name: dataset.name, properties, key }))?)
}

/// The new key of a dataset that is encrypted; what its properties do not say stays as it is.
fn new_key(dataset: &Dataset, properties: &BTreeMap<String, String>) -> Result<UserKey, Failure> {
    let text = |name: &str, had: &str| properties.get(name).cloned().or_else(|| dataset.is_root().then(|| had.to_string()));
    let format = text("keyformat", &dataset.format);
    let format = format.ok_or_else(|| Failure::new(ErrorKind::Invalid, CHANGE, "Keyformat required for new encryption root."))?;
    let location = text("keylocation", &dataset.location).unwrap_or_else(|| "prompt".to_string());
    cli::keys::read(&KeyWanted { what: CHANGE, format: &format, location: &location, name: Some(&dataset.name), is_new: true })
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
    let location = location.unwrap_or(&dataset.location);
    let key = cli::keys::read(&KeyWanted { what: ERROR, format: &dataset.format, location, name: Some(name), is_new: false })?;
    done(client, &Request::KeyLoad(KeyLoad { name: name.clone(), key, dry_run })).map(drop)
}
