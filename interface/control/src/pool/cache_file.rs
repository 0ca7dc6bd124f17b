//! What the daemon remembers across restarts: the pools that are to be open, in `pools.json` of the state directory.

use crate::device::reserved::Reserved;
use crate::events::Events;
use crate::failure::{because, believable};
use crate::pool::remembered::Remembered;
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure, Remark, os_error};
use exec::Mutex;
use nvlist::{Encoding, NvList, Value};
use ondisk::Guid;
use service::{given, trust};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdev::VdevTree;

/// Path of OpenZFS's own cache file: a property that names it is shown as the default. It is written where the property names it only.
pub(crate) const DEFAULT: &str = "/etc/zfs/zpool.cache";

/// Bytes of the largest cache file that is read.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// Contents of a cache file of OpenZFS.
pub(crate) struct Cached {
    pub guids: Vec<Guid>,
    paths: Vec<String>,
}

impl Cached {
    /// Paths at which to look for devices: those that the file names, and what is beside them, since they may have other names by now, and the
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
    let bytes =
        given::read(Path::new(path), CACHE_BYTES_MAX).map_err(|error| failed(format!("failed to open cache file '{path}': {error}")))?;
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

/// Number of damaged files that are kept at most; the last one makes room.
const DAMAGED_MAX: u32 = 99;

/// Path at which a damaged file is kept: beside it, and not in the place of another that was.
fn kept_as(path: &Path) -> PathBuf {
    let first = path.with_extension("json.damaged");
    let more = (1..=DAMAGED_MAX).map(|number| path.with_extension(format!("json.damaged.{number}")));
    let is_free = |kept: &PathBuf| std::fs::symlink_metadata(kept).is_err();
    let last = path.with_extension(format!("json.damaged.{DAMAGED_MAX}"));
    std::iter::once(first).chain(more).find(is_free).unwrap_or(last)
}

/// File of the pools that are to be open, and its only writer.
pub(crate) struct PoolsFile {
    path: PathBuf,
    pools: Arc<Pools>,
    reserved: Arc<Reserved>,
    events: Arc<Events>,
    /// Contents of the file as this process wrote it; None before that.
    written: Mutex<Option<Vec<Remembered>>>,
    /// Reason why the file is not what it should be; None while it is.
    trouble: Mutex<Option<String>>,
    /// Cache files that are not what they should be, by their paths, and the reasons.
    unwritten: Mutex<BTreeMap<String, String>>,
}

impl PoolsFile {
    /// Makes the writer of the file at a path, which it does not look at yet.
    pub(crate) fn new(path: PathBuf, (pools, reserved): (&Arc<Pools>, &Arc<Reserved>), events: &Arc<Events>) -> PoolsFile {
        PoolsFile {
            path,
            pools: pools.clone(),
            reserved: reserved.clone(),
            events: events.clone(),
            written: Mutex::default(),
            trouble: Mutex::default(),
            unwritten: Mutex::default(),
        }
    }

    /// Writes down which pools are to be open: those that are, and those that could not be opened. A file that cannot be written costs
    /// only the reopening, so it is reported, not failed; the rounds try again.
    pub(crate) fn remember(&self) {
        self.reserved.hold_spares(&self.pools);
        // One after the other, and each with what is so when it writes.
        let mut written = self.written.lock();
        if self.pools.is_stopping() {
            return;
        }
        let mut pools: Vec<Remembered> = self.pools.all().iter().map(|open| Remembered::of(open)).collect();
        pools.extend(self.pools.absent.entries());
        // A daemon that ends lets go of its pools, which it is to have again.
        if self.pools.is_stopping() {
            return;
        }
        let is_written = written.as_ref() == Some(&pools) && self.path.exists();
        if !is_written || !self.unwritten.lock().is_empty() {
            self.write_caches(written.as_deref().unwrap_or_default());
        }
        if is_written {
            *self.trouble.lock() = None;
            return;
        }
        match trust::replace(&self.path, &serde_json::to_vec_pretty(&pools).unwrap_or_default()) {
            Ok(()) => {
                *written = Some(pools);
                if self.trouble.lock().take().is_some() {
                    tracing::info!("{} is written again", self.path.display());
                }
            }
            Err(error) => self.failed(os_error(&error)),
        }
    }

    /// Notes that the file could not be written, and says so where that is news.
    fn failed(&self, why: String) {
        let mut trouble = self.trouble.lock();
        if trouble.as_ref() != Some(&why) {
            tracing::warn!("cannot write {}: {why}; it is tried again", self.path.display());
        }
        *trouble = Some(why);
    }

    /// Warnings for whoever changed which pools are open, or where that is written down, as long as that could not be done.
    pub(crate) fn warnings(&self) -> Vec<Remark> {
        let own = self.trouble.lock().clone().map(|why| {
            format!(
                "warning: which pools are open is not written down: {}: {why}\n\
                 a daemon that starts after a crash opens those of before: make room there, and it is written soon by itself; \
                 'zpool import' brings back what is missing then",
                self.path.display()
            )
        });
        let unwritten = self.unwritten.lock();
        let caches = unwritten.iter().map(|(path, why)| {
            format!(
                "warning: the cache file '{path}' cannot be written: {why}\nit is tried again; 'zpool set cachefile=' names another one"
            )
        });
        own.into_iter().chain(caches).map(Remark::Warning).collect()
    }

    /// Takes a pool out of the table of those that are open. With `keep` its cache file stays as it is: whoever takes the pool next finds it
    /// there.
    pub(crate) fn take_out(&self, pool: &str, keep: bool) -> Option<Arc<OpenPool>> {
        // In one step, or whoever writes the files meanwhile finds that nobody is in this one any more.
        let mut written = self.written.lock();
        let open = self.pools.remove(pool)?;
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
        for open in self.pools.all() {
            let Some(path) = open.cachefile().filter(is_file) else { continue };
            files.entry(path).or_default().add(open.name().as_str(), open.pool().cache_config());
        }
        let mut unwritten = self.unwritten.lock();
        let failed = std::mem::take(&mut *unwritten);
        for (path, list) in &files {
            let place = Path::new(path);
            let done = match list.iter().next() {
                _ if !given::is_replaceable(place) => Err(std::io::Error::other("not a regular file")),
                Some(_) => trust::replace(place, &list.encode(Encoding::NativeLittle)),
                None => std::fs::remove_file(place).or_else(|error| if error.kind() == NotFound { Ok(()) } else { Err(error) }),
            };
            match done {
                Err(error) => {
                    let why = os_error(&error);
                    if !failed.contains_key(path) {
                        self.tell_unwritten(path, &why);
                    }
                    unwritten.insert(path.clone(), why);
                }
                Ok(()) if failed.contains_key(path) => tracing::info!("{path} is written again"),
                Ok(()) => {}
            }
        }
    }

    /// Tells that a cache file cannot be written (OpenZFS: `FM_EREPORT_ZFS_CONFIG_CACHE_WRITE`).
    fn tell_unwritten(&self, path: &str, why: &str) {
        tracing::warn!("cannot write {path}: {why}; it is tried again");
        for open in self.pools.all().iter().filter(|open| open.cachefile().as_deref() == Some(path)) {
            self.events.tell("ereport.fs.zfs.config_cache_write", &open.name(), open.pool().guid());
        }
    }

    /// Entries that the last daemon wrote down. A file that makes no sense is said, and put aside.
    pub(crate) fn remembered(&self) -> Vec<Remembered> {
        let path = &self.path;
        let text = match trust::read(path) {
            Ok(Some(text)) => text,
            Ok(None) => return Vec::new(),
            Err(why) => {
                tracing::warn!("{}; import the pools by name", believable(&why));
                return Vec::new();
            }
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            let kept = kept_as(path);
            tracing::warn!("{}: {error}; it is kept as {}: import the pools by name", path.display(), kept.display());
            let _ = std::fs::rename(path, &kept);
            Vec::new()
        })
    }
}
