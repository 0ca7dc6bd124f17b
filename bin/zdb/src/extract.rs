//! `-r` and `-O`: files of a dataset that is not mounted, by their paths (OpenZFS: `zdb_copy_object`, `dump_path`).

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use zpl::{Node, Settings, Zfs, ZplError};

/// Number of bytes that are copied at a time.
const STEP: u64 = 1 << 20;
const KIND: u64 = 0o170_000;
const REGULAR: u64 = 0o100_000;

fn find(files: &Arc<Zfs>, path: &str) -> Result<Node, ZplError> {
    let mut node = files.node(files.root())?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        node = files.lookup(&node, name.as_bytes())?;
    }
    Ok(node)
}

/// Number of the object at a path of an object set.
///
/// # Errors
/// What to tell the user.
pub fn number(objset: &Arc<dmu::Objset>, path: &str) -> Result<u64, String> {
    let files = Zfs::open(objset, None, Settings::default()).map_err(|error| error.to_string())?;
    let node = find(&files, path).map_err(|error| format!("failed to lookup inode for path '{path}': {error}"))?;
    Ok(node.object().0)
}

/// Copies the file at `path` of an object set to `target`, which is made or replaced.
///
/// # Errors
/// What to tell the user.
pub fn copy(objset: &Arc<dmu::Objset>, path: &str, target: &Path) -> Result<(), String> {
    let files = Zfs::open(objset, None, Settings::default()).map_err(|error| error.to_string())?;
    let node = find(&files, path).map_err(|error| format!("failed to lookup inode for path '{path}': {error}"))?;
    let fields = node.fields();
    if fields.mode & KIND != REGULAR {
        return Err(format!("'{path}' is not a file"));
    }
    let failed = |error: std::io::Error| format!("{}: {}", target.display(), cli::os_error(&error));
    let mut out = std::fs::File::create(target).map_err(failed)?;
    // Holes stay holes, but where bytes can only follow each other.
    let is_sparse = out.metadata().map_err(failed)?.is_file();
    cli::outln!("Copying object {} to file {}", node.object().0, target.display());
    let mut offset = 0;
    while offset < fields.size {
        if is_sparse {
            offset = match files.seek_data(&node, offset) {
                Ok(data) => data.min(fields.size),
                // No data behind this: the rest is a hole.
                Err(ZplError::PastEnd) => fields.size,
                Err(error) => return Err(format!("'{path}' at {offset}: {error}")),
            };
            out.seek(SeekFrom::Start(offset)).map_err(failed)?;
        }
        let hole = files.seek_hole(&node, offset).ok().filter(|hole| is_sparse && *hole > offset);
        let length = STEP.min(hole.unwrap_or(fields.size).min(fields.size) - offset);
        if length > 0 {
            let bytes = files.read(&node, offset, length).map_err(|error| format!("'{path}' at {offset}: {error}"))?;
            out.write_all(&bytes.to_vec()).map_err(failed)?;
            offset += bytes.len() as u64;
        }
    }
    if is_sparse {
        out.set_len(fields.size).map_err(failed)?;
    }
    out.sync_all().map_err(failed)
}
