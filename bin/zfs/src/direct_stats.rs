//! `zfs direct-stats`: how much of a file's or a file system's I/O was direct, and why the rest was not.

use crate::args;
use cli::{Client, Stop};
use control_api::{DirectQuery, DirectTarget, ErrorKind, Failure, Request};
use std::os::unix::fs::MetadataExt;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::DirectStats) -> Result<u8, Stop> {
    arguments.output.json.check()?;
    let targets = arguments.targets.iter().map(|word| target(client, word)).collect::<Result<Vec<_>, Failure>>()?;
    Ok(cli::direct::print(client, targets, &arguments.output, "zfs direct-stats", "datasets")?)
}

/// Target that a word means. A path means a file (or, when it is a mount point, its file system). A word that is no path by its first character means a
/// dataset when there is one of that name.
fn target(client: &Client, word: &str) -> Result<DirectTarget, Failure> {
    let dataset = DirectTarget::Dataset { name: word.to_string() };
    if !word.starts_with(['/', '.']) {
        let query = DirectQuery { targets: vec![dataset.clone()] };
        match client.call(&Request::Direct(query)) {
            Err(failure) if failure.kind == ErrorKind::NotFound && std::fs::metadata(word).is_ok() => {}
            _ => return Ok(dataset),
        }
    }
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Failure::new(kind, format!("cannot open '{word}'"), error.to_string())
    };
    let path = std::fs::canonicalize(word).map_err(failed)?;
    let inode = std::fs::metadata(&path).map_err(failed)?.ino();
    Ok(DirectTarget::File { path: path.to_string_lossy().into_owned(), inode })
}
