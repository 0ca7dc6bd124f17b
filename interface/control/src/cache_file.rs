//! What the daemon remembers across restarts: the pools that are to be open, in `pools.json` of the state directory.

use crate::failure::because;
use crate::{Control, OpenPool};
use control_api::{ErrorKind, Failure};
use nvlist::{Encoding, NvList, Value};
use ondisk::Guid;
use serde::{Deserialize, Serialize};
use service::trust;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::NotFound;
use std::path::Path;
use std::sync::Arc;
use vdev::{Leaf, LeafKind, VdevTree};

/// OpenZFS's own cache file: a property that names it is shown as the default. It is written where the property names it only.
pub(crate) const DEFAULT: &str = "/etc/zfs/zpool.cache";

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub name: String,
    pub guid: u64,
    pub altroot: Option<String>,
    pub read_only: bool,
    pub paths: Vec<String>,
    /// The property `cachefile`, when it was set.
    #[serde(default)]
    pub cachefile: Option<String>,
    /// The name is for this import only.
    #[serde(default)]
    pub temporary: bool,
}

/// What a cache file of OpenZFS tells.
pub(crate) struct Cached {
    pub guids: Vec<Guid>,
    paths: Vec<String>,
}

impl Cached {
    /// Where to look for devices: those that the file names, and what is beside them, since they may have other names by now, and the
    /// pool other devices (OpenZFS: `discover_cached_paths`).
    pub fn places(&self) -> Vec<String> {
        let beside: BTreeSet<String> = self.paths.iter().filter_map(|path| Some(Path::new(path).parent()?.to_str()?.to_string())).collect();
        // None at all would mean to look everywhere.
        let nowhere = std::iter::once("/dev/null".to_string());
        self.paths.iter().cloned().chain(beside).filter(|path| Path::new(path).exists()).chain(nowhere).collect()
    }
}

/// Reads a cache file (OpenZFS: `zpool_find_import_cached`).
pub(crate) fn read_cache(path: &str) -> Result<Cached, Failure> {
    let failed = |why: String| because(ErrorKind::Invalid, "cannot import", why);
    let bytes = std::fs::read(path).map_err(|error| failed(format!("failed to open cache file '{path}': {error}")))?;
    let list = NvList::decode(&bytes).map_err(|_| failed(format!("invalid or corrupt cache file contents: '{path}'")))?;
    let mut cached = Cached { guids: Vec::new(), paths: Vec::new() };
    for (_, value) in list.iter() {
        let Value::NvList(config) = value else { continue };
        cached.guids.extend(config.get_u64("pool_guid").map(Guid));
        let tree = config.get_nvlist("vdev_tree").and_then(|root| VdevTree::from_config(root).ok());
        cached.paths.extend(tree.iter().flat_map(|tree| &tree.leaves).map(|leaf| leaf.path.clone()));
    }
    Ok(cached)
}

impl Control {
    /// Writes down which pools are to be open: those that are, and those that could not be opened. A file that cannot be written costs
    /// only the reopening, so it is reported, not failed.
    pub(crate) fn remember(&self) {
        self.hold_spares();
        // One after the other, and each with what is so when it writes.
        let mut written = self.written.lock();
        if self.is_stopping() {
            return;
        }
        let mut pools: Vec<Remembered> = self.pools.read().values().map(|open| remembered(open)).collect();
        pools.extend(self.absent_entries());
        // A daemon that ends lets go of its pools, which it is to have again.
        if self.is_stopping() || written.as_ref() == Some(&pools) {
            return;
        }
        let path = self.state.cache_file();
        self.write_caches(written.as_deref().unwrap_or_default());
        match trust::replace(&path, &serde_json::to_vec_pretty(&pools).unwrap_or_default()) {
            Ok(()) => *written = Some(pools),
            Err(error) => eprintln!("cannot write {}: {error}", path.display()),
        }
    }

    /// Takes a pool out of the table of those that are open. With `keep` its cache file stays as it is: whoever takes the pool next finds it
    /// there.
    pub(crate) fn take_out(&self, pool: &str, keep: bool) -> Option<Arc<OpenPool>> {
        // In one step, or whoever writes the files meanwhile finds that nobody is in this one any more.
        let mut written = self.written.lock();
        let open = self.pools.write().remove(pool)?;
        let entries = written.iter_mut().flatten().filter(|entry| keep && entry.name == pool);
        entries.for_each(|entry| entry.cachefile = None);
        Some(open)
    }

    /// Writes the cache files that properties of open pools name, as OpenZFS has them, and removes those that no pool is in any more
    /// (OpenZFS: `spa_write_cachefile`).
    fn write_caches(&self, before: &[Remembered]) {
        let is_file = |path: &String| path != "none";
        let mut files: BTreeMap<String, NvList> = BTreeMap::new();
        for path in before.iter().filter_map(|pool| pool.cachefile.clone()).filter(is_file) {
            files.insert(path, NvList::new());
        }
        for open in self.pools.read().values() {
            let Some(path) = open.cachefile().filter(is_file) else { continue };
            files.entry(path).or_default().add(open.name().as_str(), open.pool().cache_config());
        }
        for (path, list) in &files {
            let path = Path::new(path);
            let done = match list.iter().next() {
                Some(_) => trust::replace(path, &list.encode(Encoding::NativeLittle)),
                None => std::fs::remove_file(path),
            };
            if let Err(error) = done.or_else(|error| if error.kind() == NotFound { Ok(()) } else { Err(error) }) {
                eprintln!("cannot write {}: {error}", path.display());
            }
        }
    }

    pub(crate) fn remembered(&self) -> Vec<Remembered> {
        let path = self.state.cache_file();
        let text = match trust::read(&path) {
            Ok(Some(text)) => text,
            Ok(None) => return Vec::new(),
            Err(why) => {
                eprintln!("{}; import the pools by name", crate::failure::believable(&why));
                return Vec::new();
            }
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            let kept = path.with_extension("json.damaged");
            eprintln!("{}: {error}; it is kept as {}: import the pools by name", path.display(), kept.display());
            let _ = std::fs::rename(&path, &kept);
            Vec::new()
        })
    }
}

/// A pool with all of its devices, also those that are missing now.
fn remembered(open: &crate::OpenPool) -> Remembered {
    let (devices, tree) = (open.pool().devices(), open.pool().tree());
    let mut paths: Vec<String> = devices.iter().flatten().map(|device| device.path().to_string_lossy().into_owned()).collect();
    let is_elsewhere = |leaf: &&Leaf| leaf.kind != LeafKind::DraidSpare && leaf.path.starts_with('/');
    for leaf in tree.leaves.iter().filter(is_elsewhere) {
        if !paths.contains(&leaf.path) {
            paths.push(leaf.path.clone());
        }
    }
    Remembered {
        name: open.name(),
        guid: open.pool().guid().0,
        altroot: open.altroot().map(String::from),
        read_only: open.is_read_only(),
        paths,
        cachefile: open.cachefile(),
        temporary: open.pool().has_temporary_name(),
    }
}
