//! What is just imported and encrypted: its keys loaded, and what wants to be mounted (OpenZFS: `zfs_crypto_attempt_load_keys`,
//! `zpool_enable_datasets`).

use crate::keys::{self, KeyWanted};
use crate::{Client, EXIT_FAILURE, done};
use control_api::{DatasetQuery, DatasetReport, Failure, KeyLoad, MountRequest, Request, Response};

const ERROR: &str = "Key load error";

/// Reports of datasets of some types, at and below these names; without names of every pool's.
fn reports(client: &Client, names: &[String], depth: Option<u32>, types: &[&str]) -> Result<Vec<DatasetReport>, Failure> {
    let types = types.iter().map(|kind| (*kind).to_string()).collect();
    match client.call(&Request::DatasetQuery(DatasetQuery { names: names.to_vec(), depth, types, asked: Vec::new() }))? {
        Response::Datasets(reports) => Ok(reports),
        other => Err(crate::unexpected("cannot list datasets", other)),
    }
}

fn text(report: &DatasetReport, name: &str) -> String {
    crate::find(&report.properties, name).map(|property| crate::show(&property.value, true)).unwrap_or_default()
}

/// Names of the pools that are open.
///
/// # Errors
/// Those of asking the daemon.
pub fn pools(client: &Client) -> Result<Vec<String>, Failure> {
    Ok(reports(client, &[], Some(0), &["filesystem"])?.into_iter().map(|report| report.name).collect())
}

/// Names of the file systems at and below a name that are not mounted and want to be, parents first.
///
/// # Errors
/// Those of asking the daemon.
pub fn mountable(client: &Client, name: &str) -> Result<Vec<String>, Failure> {
    let wants = |report: &DatasetReport| {
        text(report, "mounted") == "no" && text(report, "canmount") == "on" && text(report, "mountpoint").starts_with('/')
    };
    Ok(reports(client, &[name.to_string()], None, &["filesystem"])?.into_iter().filter(wants).map(|report| report.name).collect())
}

/// Loads the keys of the encryption roots at and below a name that are not loaded yet, and says how many; those that could not be are said, too.
/// Returns the exit code.
///
/// # Errors
/// Those of asking the daemon for the datasets.
pub fn load_keys(client: &Client, name: &str) -> Result<u8, Failure> {
    let mut roots = reports(client, &[name.to_string()], None, &["filesystem", "volume"])?;
    roots.retain(|report| text(report, "encryptionroot") == report.name && text(report, "keystatus") != "available");
    let mut loaded = 0;
    for root in &roots {
        let (format, location) = (text(root, "keyformat"), text(root, "keylocation"));
        let wanted = KeyWanted { what: ERROR, format: &format, location: &location, name: Some(&root.name), is_new: false };
        let load = |key| done(client, &Request::KeyLoad(KeyLoad { name: root.name.clone(), key, dry_run: false }));
        match keys::read(&wanted).and_then(load) {
            Ok(_) => loaded += 1,
            Err(failure) => crate::errln!("{failure}"),
        }
    }
    if !roots.is_empty() {
        crate::outln!("{loaded} / {} keys successfully loaded", roots.len());
    }
    Ok(if loaded == roots.len() { 0 } else { EXIT_FAILURE })
}

/// Loads the keys of a pool that was just imported, as [`load_keys`], and mounts what it has that wants to be, with these options of mounts.
/// Returns the exit code.
///
/// # Errors
/// Those of asking the daemon for the datasets.
pub fn open(client: &Client, pool: &str, options: &[String]) -> Result<u8, Failure> {
    let mut code = load_keys(client, pool)?;
    for name in mountable(client, pool)? {
        let request = MountRequest { name: Some(name), options: options.to_vec(), ..MountRequest::default() };
        if let Err(failure) = done(client, &Request::Mount(request)) {
            crate::errln!("{failure}");
            code = EXIT_FAILURE;
        }
    }
    Ok(code)
}
