//! Finding and opening devices for pools: files, block devices, directories of them.

use crate::Control;
use crate::failure::because;
use control_api::{ErrorKind, Failure, ImportSearch};
use device::{BlockDevice, DeviceError, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where devices are looked for when nothing is named.
const DEFAULT_DIRECTORIES: [&str; 3] = ["/dev/disk/by-vdev", "/dev/disk/by-id", "/dev"];

impl Control {
    /// Opens a device for a pool: exclusively, for writing unless `read_only`.
    pub(crate) fn open_device(&self, path: &str, read_only: bool, what: &str) -> Result<Arc<dyn BlockDevice>, Failure> {
        if let Some(device) = self.reserved(path).filter(|_| !read_only) {
            return Ok(device);
        }
        let options = OpenOptions { read_only, exclusive: true, ..OpenOptions::default() };
        self.open_at(path, &options, what)?.map_err(|error| self.not_opened(path, error, what))
    }

    /// Opens everything that a search names and that can be read; devices that cannot are passed over.
    pub(crate) fn candidates(&self, search: &ImportSearch) -> Result<Vec<Arc<dyn BlockDevice>>, Failure> {
        let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
        let open = |path: &PathBuf| self.open_at(&path.to_string_lossy(), &options, "").ok()?.ok();
        Ok(paths(search)?.iter().filter_map(open).collect())
    }

    /// Why a device can't be opened, in OpenZFS's words where it has some.
    fn not_opened(&self, path: &str, error: DeviceError, what: &str) -> Failure {
        match error {
            DeviceError::NotFound => because(ErrorKind::NotFound, what, format!("cannot resolve path '{path}'")),
            DeviceError::NotADevice => {
                because(ErrorKind::Invalid, what, format!("cannot use '{path}': must be a block device or regular file"))
            }
            DeviceError::Busy if is_block_device(path) => {
                // Whoever has it: a mounted file system, swap, a mapping, another daemon.
                let shared = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
                let kind = device::open(Path::new(path), &shared).ok().and_then(|device| crate::inuse::kind_of(&self.exec, &device));
                let kind = kind.unwrap_or("unknown");
                because(ErrorKind::Busy, what, format!("{path} is in use and contains a {kind} filesystem"))
            }
            error => because(ErrorKind::Io, what, format!("cannot use '{path}': {error}"))
                .advise("is it there, of at least 64 MiB, writable, and free of other users?"),
        }
    }
}

/// How large what a path leads to is now.
pub(crate) fn bytes_now(path: &str) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() {
        return Some(metadata.len());
    }
    let number = metadata.rdev();
    let node = format!("/sys/dev/block/{}:{}/size", rustix::fs::major(number), rustix::fs::minor(number));
    let sectors: u64 = std::fs::read_to_string(node).ok()?.trim().parse().ok()?;
    sectors.checked_mul(512)
}

fn is_block_device(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn paths(search: &ImportSearch) -> Result<Vec<PathBuf>, Failure> {
    if search.paths.is_empty() {
        let mut found: Vec<PathBuf> = DEFAULT_DIRECTORIES.iter().flat_map(|folder| entries(Path::new(folder), true)).collect();
        found.sort();
        found.dedup();
        return Ok(found);
    }
    // What is named first is a device's path, where it has several.
    let mut found = Vec::new();
    for path in &search.paths {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            // Somewhere else may have what is looked for (OpenZFS: `zpool_find_import_scan_dir`).
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(because(ErrorKind::NotFound, "cannot search for pools", format!("cannot open '{path}': {error}")));
            }
        };
        if metadata.is_dir() {
            // Character devices and sockets are never opened; regular files are, also below /dev (think of /dev/shm).
            let mut inside = entries(Path::new(path), false);
            inside.sort();
            inside.retain(|path| !found.contains(path));
            found.extend(inside);
        } else {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// Devices in a folder; regular files too unless `devices_only`.
fn entries(folder: &Path, devices_only: bool) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed
        .map(|entry| entry.path())
        .filter(|path| {
            std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device() || (!devices_only && metadata.is_file()))
        })
        .collect()
}
