//! Finding and opening devices for pools: files, block devices, directories of them.

use crate::device::beneath::{VOLUMES, own_dataset_under};
use crate::device::contents::{kind_of, line_of_active};
use crate::device::reserved::Reserved;
use crate::device::served::Served;
use crate::failure::because;
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure, ImportSearch};
use device::{BlockDevice, DeviceError, OpenOptions};
use exec::Exec;
use ondisk::Guid;
use pool::Pool;
use std::fs::{DirEntry, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders in which devices are looked for when nothing is named.
const DEFAULT_DIRECTORIES: [&str; 3] = ["/dev/disk/by-vdev", "/dev/disk/by-id", "/dev"];

/// Environment variable that, set to 1, leaves the devices of pools to others on this machine, too: only `multihost` keeps two daemons apart then.
const SHARED: &str = "ZIRCONIA_SHARED_DEVICES";

/// Number of times that opening a device is tried: who held it before may still be letting go.
const OPEN_TRIES: u32 = 20;
const OPEN_STEP_NS: u64 = 25_000_000;
/// Number of looks at a device that somebody has, the last of which counts: who had it may be letting go, and who lists pools asks for
/// each for a moment.
const LOOKS: u32 = 4;

/// Opening of devices for pools.
pub(crate) struct Devices {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    /// Files of own file systems that are devices.
    pub served: Arc<Served>,
    /// Devices of spares that are held.
    pub reserved: Arc<Reserved>,
}

impl Devices {
    /// Opens a device for a pool: exclusively, unless the environment wants them shared, and for writing unless `read_only`.
    pub(crate) fn open_device(&self, path: &str, read_only: bool, what: &str) -> Result<Arc<dyn BlockDevice>, Failure> {
        let mut opened = self.try_open(path, read_only, what)?;
        for _ in 1..LOOKS {
            if !matches!(opened, Err(DeviceError::Busy)) {
                break;
            }
            self.exec.sleep_ns(OPEN_STEP_NS);
            opened = self.try_open(path, read_only, what)?;
        }
        opened.map_err(|error| self.not_opened(path, error, what))
    }

    /// Opens a device for a pool, and waits for nobody.
    fn try_open(&self, path: &str, read_only: bool, what: &str) -> Result<Result<Arc<dyn BlockDevice>, DeviceError>, Failure> {
        if let Some(device) = self.reserved.at(path).filter(|_| !read_only) {
            return Ok(Ok(device));
        }
        let options = OpenOptions { read_only, exclusive: keeps_others_off(), ..OpenOptions::default() };
        self.open_at(path, &options, what)
    }

    /// True when somebody else has a device, so that this daemon cannot have it.
    pub(crate) fn is_held(&self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        if !keeps_others_off() || self.reserved.at(&text).is_some() || own_dataset_under(&self.pools, &text).is_some() {
            return false;
        }
        for _ in 1..LOOKS {
            if !device::is_held(path) {
                return false;
            }
            self.exec.sleep_ns(OPEN_STEP_NS);
        }
        device::is_held(path)
    }

    /// Opens what is at a path; a file of the daemon's own file systems without the kernel ([`crate::device::served`]). What rests on one of them in
    /// another way is refused.
    pub(crate) fn open_at(
        &self,
        path: &str,
        options: &OpenOptions,
        what: &str,
    ) -> Result<Result<Arc<dyn BlockDevice>, DeviceError>, Failure> {
        let Some(dataset) = own_dataset_under(&self.pools, path) else { return Ok(device::open(Path::new(path), options)) };
        if dataset == VOLUMES {
            let why = format!("{path} is a volume that this daemon serves, or rests on one: the pool would wait for itself");
            return Err(because(ErrorKind::Invalid, what, why).advise("use a file in a file system, or a volume of another daemon"));
        }
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            match self.served.open(path, &dataset, options) {
                Err(DeviceError::NotADevice | DeviceError::Gone) => {}
                other => return Ok(other),
            }
        }
        let why = format!("{path} rests on the file system '{dataset}', which this daemon serves: the pool would wait for itself");
        Err(because(ErrorKind::Invalid, what, why).advise(
            "use a regular file in it, without a loop device or overlay between, or something outside of the daemon's own file systems",
        ))
    }

    /// Opens a device for writing; tries for a while, if anything is at the path.
    pub(crate) fn reopen_leaf(&self, path: &str) -> Option<Arc<dyn BlockDevice>> {
        for attempt in 0..OPEN_TRIES {
            match self.try_open(path, false, "") {
                Ok(Ok(device)) => return Some(device),
                _ if attempt + 1 < OPEN_TRIES && std::path::Path::new(path).exists() => self.exec.sleep_ns(OPEN_STEP_NS),
                _ => return None,
            }
        }
        None
    }

    /// Opens the cache devices of a pool that are there and not open yet; what is at their places is used when its label says that it is them.
    pub(crate) fn open_caches(&self, open: &OpenPool) {
        open.pool().open_caches(&|guid, path| {
            let is_gone = !Path::new(path).exists() || open.pool().zio().is_injected_gone(guid);
            if is_gone { None } else { self.open_device(path, open.is_read_only(), "").ok() }
        });
    }

    /// Finds the cache devices of a pool that is imported that are not at the paths that it knows them by, but at others where it was searched (OpenZFS:
    /// `fix_paths`). One that is nowhere stays what it is.
    pub(crate) fn find_caches(&self, pool: &Pool, search: &ImportSearch) {
        if !pool.is_writeable() || search.cache_file.is_some() {
            return;
        }
        let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
        let is_it = |guid: Guid, device: &Arc<dyn BlockDevice>| pool::label_guid(&self.exec, device) == Some(guid);
        let is_there = |guid: Guid, path: &str| match self.open_at(path, &options, "") {
            Ok(Ok(device)) => is_it(guid, &device),
            // Whoever has it, or keeps it from us, may let go of it.
            Ok(Err(error)) => error != DeviceError::NotFound,
            Err(_) => true,
        };
        let find = |guid: Guid| {
            let found = self.candidates(search).ok()?.into_iter().find(|device| is_it(guid, device))?;
            Some(found.path().to_string_lossy().into_owned())
        };
        if let Err(error) = pool.move_caches(&is_there, &find) {
            tracing::warn!("pool '{}': the place of a cache device could not be written down: {error}", pool.name());
        }
    }

    /// Opens everything that a search names and that can be read; devices that cannot are passed over.
    pub(crate) fn candidates(&self, search: &ImportSearch) -> Result<Vec<Arc<dyn BlockDevice>>, Failure> {
        let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
        let open = |path: &PathBuf| self.open_at(&path.to_string_lossy(), &options, "").ok()?.ok();
        Ok(paths(search)?.iter().filter_map(open).collect())
    }

    /// Name of the open pool that has a device which cannot be opened for that, as its label says.
    fn own_user(&self, path: &str) -> Option<String> {
        let shared = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
        let device = self.open_at(path, &shared, "").ok()?.ok()?;
        self.pools.user_of(&pool::membership(&self.exec, &device)?)
    }

    /// Failure of a device that can't be opened, in OpenZFS's words where it has some.
    fn not_opened(&self, path: &str, error: DeviceError, what: &str) -> Failure {
        let own = if error == DeviceError::Busy { self.own_user(path) } else { None };
        if let Some(pool) = own {
            return because(ErrorKind::Busy, what, line_of_active(path, &pool));
        }
        match error {
            DeviceError::NotFound => because(ErrorKind::NotFound, what, format!("cannot resolve path '{path}'")),
            DeviceError::NotADevice => {
                because(ErrorKind::Invalid, what, format!("cannot use '{path}': must be a block device or regular file"))
            }
            DeviceError::Busy if is_block_device(path) => {
                // Whoever has it: a mounted file system, swap, a mapping, another daemon.
                let shared = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
                let kind = device::open(Path::new(path), &shared).ok().and_then(|device| kind_of(&self.exec, &device));
                let kind = kind.unwrap_or("unknown");
                because(ErrorKind::Busy, what, format!("{path} is in use and contains a {kind} filesystem"))
            }
            error => {
                let failure = because(ErrorKind::Io, what, format!("cannot use '{path}': {error}"));
                match advice(error) {
                    Some(advice) => failure.advise(advice),
                    None => failure,
                }
            }
        }
    }
}

/// True unless the environment wants devices shared.
fn keeps_others_off() -> bool {
    std::env::var_os(SHARED).is_none_or(|word| word != "1")
}

/// Advice on a device that cannot be opened; none where the reason says enough.
fn advice(error: DeviceError) -> Option<&'static str> {
    match error {
        DeviceError::Busy => Some("another program or daemon has it: have that let it go first"),
        DeviceError::Denied => Some("the daemon's user has to be able to read and to write it"),
        DeviceError::ReadOnly => Some("it, or the file system that it lies in, is write-protected"),
        _ => None,
    }
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

/// Reason why no place of a search can have devices; None where one can, as the pool may be in that one. Who mistyped the only one would believe
/// that there are no pools.
pub(crate) fn no_places(paths: &[String]) -> Option<String> {
    let wrong = |path: &String| match std::fs::metadata(path) {
        Ok(there) if there.is_dir() || there.is_file() || there.file_type().is_block_device() => None,
        Ok(_) => Some(format!("'{path}' is neither a directory nor a block device or regular file")),
        Err(error) => Some(format!("cannot open '{path}': {error}")),
    };
    let wrong: Vec<String> = paths.iter().filter_map(wrong).collect();
    (!paths.is_empty() && wrong.len() == paths.len()).then(|| wrong.join("; "))
}

/// Devices in a folder; regular files too unless `devices_only`. The folder itself says what is a folder in it: a file system that is mounted there is
/// not asked, as whoever serves it may not answer.
fn entries(folder: &Path, devices_only: bool) -> Vec<PathBuf> {
    let is_one = |kind: FileType| kind.is_block_device() || (!devices_only && kind.is_file());
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let may_be = |entry: &DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_symlink() => std::fs::metadata(entry.path()).is_ok_and(|metadata| is_one(metadata.file_type())),
        Ok(kind) => is_one(kind),
        Err(_) => false,
    };
    listed.filter(may_be).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is asked four questions at once looks for the answer to three that are none.
    #[test]
    fn a_device_that_cannot_be_used_is_asked_only_what_fits() {
        let about = |error: DeviceError| advice(error).unwrap_or_default();
        assert!(about(DeviceError::Busy).contains("another program") && about(DeviceError::Denied).contains("daemon's user"));
        assert!(about(DeviceError::ReadOnly).contains("write-protected"));
        assert_eq!(advice(DeviceError::Io), None);
    }
}
