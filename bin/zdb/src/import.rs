//! Finding and opening the pool that `zdb` shows: read-only, without the daemon, whether or not it is in use.
//!
//! With `-e` devices are looked for in folders; without, the pools that the daemon has open are known from its state directory.

use crate::label;
use control_api::StateDir;
use device::{BlockDevice, OpenOptions};
use exec::Exec;
use ondisk::Guid;
use pool::{ImportOptions, Pool, PoolError, Rewind, Runtime};
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reason why a pool cannot be shown.
#[derive(Debug)]
pub enum OpenError {
    /// No pool of this name.
    NotFound,
    /// Pool cannot be opened.
    Pool(PoolError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotFound | OpenError::Pool(PoolError::NotFound) => f.write_str("No such file or directory"),
            OpenError::Pool(error) => write!(f, "{error}"),
        }
    }
}

/// Pool that the daemon has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Name of the pool.
    pub name: String,
    /// Paths of its devices.
    pub paths: Vec<PathBuf>,
}

/// Path of the file in which the daemon says which pools are open.
pub fn cache_file() -> Option<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    StateDir::from_environment(is_root).ok().map(|state| state.cache_file())
}

/// Bytes of the largest cache file that is read.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// Pools in a cache file: the daemon's (JSON), or OpenZFS's `zpool.cache` (a packed list).
pub fn known(file: &Path) -> std::io::Result<Vec<Known>> {
    let bytes = service::given::read(file, CACHE_BYTES_MAX)?;
    if let Ok(list) = nvlist::NvList::decode(&bytes) {
        let paths = |config: &nvlist::NvList| config.get_nvlist("vdev_tree").map(leaf_paths).unwrap_or_default();
        let pools = list.iter().filter_map(|(name, _)| Some((name.to_str()?.to_string(), list.get_nvlist(name.as_bytes())?)));
        return Ok(pools.map(|(name, config)| Known { name, paths: paths(config) }).collect());
    }
    let invalid = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(invalid)?;
    let pools = json.as_array().cloned().unwrap_or_default();
    Ok(pools
        .iter()
        .filter_map(|pool| {
            let paths = pool.get("paths")?.as_array()?.iter().filter_map(|path| Some(PathBuf::from(path.as_str()?)));
            Some(Known { name: pool.get("name")?.as_str()?.to_string(), paths: paths.collect() })
        })
        .collect())
}

fn leaf_paths(tree: &nvlist::NvList) -> Vec<PathBuf> {
    let below = tree.get_nvlist_array("children").unwrap_or_default().iter().flat_map(leaf_paths);
    tree.get_str("path").map(PathBuf::from).into_iter().chain(below).collect()
}

/// Paths of what lies in folders and at paths: regular files and block devices; in `/dev` block devices only.
pub fn candidates(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for place in places {
        if !place.is_dir() {
            found.push(place.clone());
            continue;
        }
        let devices_only = place.starts_with("/dev") && !place.starts_with("/dev/shm");
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        found.extend(entries.filter(|path| {
            let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
            kind.is_ok_and(|kind| kind.is_block_device() || (!devices_only && kind.is_file()))
        }));
    }
    found.sort();
    found.dedup();
    found
}

/// End of the name of a pool in the state that its checkpoint keeps (OpenZFS: `BOGUS_SUFFIX`).
pub const CHECKPOINTED: &str = "_CHECKPOINTED_UNIVERSE";

/// Opens the pool of this name or guid; with `checkpointed` in the state that its checkpoint keeps.
pub fn open(exec: &Exec, name: &str, paths: &[PathBuf], checkpointed: bool) -> Result<Pool, OpenError> {
    let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
    let devices: Vec<Arc<dyn BlockDevice>> = paths.iter().filter_map(|path| device::open(path, &options).ok()).collect();
    let found = pool::find_pools(exec, devices);
    let by_name = found.iter().find(|pool| pool.name() == name);
    let by_guid = || found.iter().find(|pool| name.parse() == Ok(pool.guid().0));
    let chosen = by_name.or_else(by_guid).ok_or(OpenError::NotFound)?;
    let guid = Some(Guid(chosen.guid().0));
    let mut wanted = ImportOptions { guid, read_only: true, force: true, skip_activity: true, ..ImportOptions::default() };
    if checkpointed {
        (wanted.rewind, wanted.missing_log, wanted.temporary) = (Rewind::Checkpoint, true, true);
        wanted.new_name = Some(format!("{}{CHECKPOINTED}", chosen.name()));
    }
    Pool::open(exec, chosen, &wanted, &Runtime::new()).map_err(OpenError::Pool)
}

/// Configuration in the labels of a pool's devices, the first that can be read.
pub fn label_config(known: &Known) -> Option<nvlist::NvList> {
    known.paths.iter().find_map(|path| label::config(path))
}
