//! `zfs direct-stats`: how much of a file's or a file system's I/O was direct, and why the rest was not.

use crate::args;
use cli::{Client, Stop};
use control_api::{DirectTarget, ErrorKind, Failure};
use std::os::unix::fs::MetadataExt;

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::DirectStats) -> Result<u8, Stop> {
    arguments.output.json.check()?;
    let targets = arguments.targets.iter().map(|word| target(word)).collect::<Result<Vec<_>, Failure>>()?;
    Ok(cli::direct::print(client, targets, &arguments.output, "zfs direct-stats", "datasets")?)
}

/// A path means a file (or, when it is a mount point, its file system), anything else a dataset.
fn target(word: &str) -> Result<DirectTarget, Failure> {
    if !word.starts_with(['/', '.']) {
        return Ok(DirectTarget::Dataset { name: word.to_string() });
    }
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Failure::new(kind, format!("cannot open '{word}'"), error.to_string())
    };
    let path = std::fs::canonicalize(word).map_err(failed)?;
    let inode = std::fs::metadata(&path).map_err(failed)?.ino();
    Ok(DirectTarget::File { path: path.to_string_lossy().into_owned(), inode })
}
