//! The set of pools: those that are open, those that are to be, and the names of those that are just being made.

use crate::dataset::names::check_name;
use crate::device::identity::same_file;
use crate::failure::because;
use crate::pool::OpenPool;
use crate::pool::absent::Absents;
use crate::pool::leaving::Leaving;
use control_api::{ErrorKind, Failure, pool_name_objection};
use exec::{Mutex, RwLock};
use ondisk::Guid;
use pool::{Membership, Spare};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use vdev::LeafState;

/// Pools of the daemon: those that are open, by name, and those that are to be.
#[derive(Default)]
pub(crate) struct Pools {
    open: RwLock<BTreeMap<String, Arc<OpenPool>>>,
    /// Pools that are to be open and are not.
    pub(crate) absent: Absents,
    claims: Arc<Mutex<BTreeSet<String>>>,
    stopping: AtomicBool,
    /// Pools that are being closed.
    pub(crate) leaving: Arc<Leaving>,
    /// Counters of the caches of those that were.
    pub(crate) past: metrics::Past,
    /// Place at which the files of volumes are mounted, as the table of mounts has it; nothing where they are not.
    pub(crate) volumes_at: OnceLock<String>,
}

/// Name that nobody else gets for a pool as long as this is there.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.name);
    }
}

impl Pools {
    /// Open pool of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.open.read().get(name).cloned()
    }

    /// True when the pool of this name is open.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.open.read().contains_key(name)
    }

    /// Pools that are open, by name.
    pub(crate) fn all(&self) -> Vec<Arc<OpenPool>> {
        self.open.read().values().cloned().collect()
    }

    /// Names of the open pools.
    pub(crate) fn names(&self) -> Vec<String> {
        self.open.read().keys().cloned().collect()
    }

    /// First open pool for which `is_it` holds. That may wait, also for file systems and volumes of ours, which ask for pools: nobody waits for it here.
    pub(crate) fn find(&self, is_it: impl Fn(&Arc<OpenPool>) -> bool) -> Option<Arc<OpenPool>> {
        self.all().into_iter().find(is_it)
    }

    /// True when `is_it`, which may wait, holds for an open pool.
    pub(crate) fn any(&self, is_it: impl Fn(&Arc<OpenPool>) -> bool) -> bool {
        self.all().iter().any(is_it)
    }

    /// Mounted file systems of all pools: dataset and place.
    pub(crate) fn mounts(&self) -> Vec<(String, String)> {
        self.all().iter().flat_map(|open| open.mounts.list()).collect()
    }

    /// Adds an open pool to the list.
    pub(crate) fn insert(&self, open: Arc<OpenPool>) {
        self.open.write().insert(open.name(), open);
    }

    /// Adds an open pool to the list, unless `is_unwanted` when nobody else takes or adds one.
    pub(crate) fn insert_unless(&self, name: &str, open: Arc<OpenPool>, is_unwanted: impl FnOnce() -> bool) {
        let mut pools = self.open.write();
        if !is_unwanted() {
            pools.insert(name.to_string(), open);
        }
    }

    /// Takes a pool off the list of those that are open.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.open.write().remove(name)
    }

    /// Takes a pool off the list, after `first` when nobody else takes or adds one.
    pub(crate) fn remove_after(&self, name: &str, first: impl FnOnce()) -> Option<Arc<OpenPool>> {
        let mut pools = self.open.write();
        first();
        pools.remove(name)
    }

    /// True once the daemon is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Notes that the daemon is to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// True while an open pool is suspended.
    pub(crate) fn has_suspended(&self) -> bool {
        self.any(|open| open.pool().zio().is_suspended())
    }

    /// Number of open pools that name a provider.
    pub(crate) fn naming(&self, provider: &str) -> usize {
        self.all().iter().filter(|open| open.pool().provider().as_deref() == Some(provider)).count()
    }

    /// Has pools follow the providers that came and went.
    pub(crate) fn follow_providers(&self) {
        for open in self.all() {
            if let Err(error) = open.pool().follow_providers() {
                tracing::warn!("cannot read the zia properties of '{}': {error}", open.name());
            }
        }
    }

    /// Open pool of this name, or why there is none.
    pub(crate) fn open_pool(&self, name: &str) -> Result<Arc<OpenPool>, Failure> {
        let open = self.get(name);
        open.ok_or_else(|| {
            let why = || pool_name_objection(name).unwrap_or_else(|| "no such pool".to_string());
            let unknown = || because(ErrorKind::NotFound, format!("cannot open '{name}'"), why());
            self.absent.failure(name).unwrap_or_else(unknown)
        })
    }

    /// Open pools of these names; all where none is named.
    pub(crate) fn selected(&self, names: &[String]) -> Result<Vec<Arc<OpenPool>>, Failure> {
        if names.is_empty() {
            return Ok(self.all());
        }
        names.iter().map(|name| self.open_pool(name)).collect()
    }

    /// Open pool that a dataset or snapshot is in; refuses what can be no name.
    pub(crate) fn pool_of(&self, name: &str, verb: &str) -> Result<Arc<OpenPool>, Failure> {
        check_name(name, verb)?;
        let pool = name.split(['/', '@']).next().unwrap_or_default();
        self.get(pool).ok_or_else(|| {
            let what = format!("cannot {verb} '{name}'");
            self.absent.failure_within(pool, what.clone()).unwrap_or_else(|| {
                let why = if verb == "create" { format!("no such pool '{pool}'") } else { "dataset does not exist".to_string() };
                because(ErrorKind::NotFound, what, why).advise("is its pool imported? see 'zpool list'")
            })
        })
    }

    /// Name of the dataset that is mounted at a path.
    pub(crate) fn by_mountpoint(&self, path: &str) -> Result<String, Failure> {
        self.all()
            .iter()
            .find_map(|pool| pool.mounts.find(path))
            .ok_or_else(|| because(ErrorKind::NotFound, format!("cannot open '{path}'"), "no file system of these pools is mounted there"))
    }

    /// Name of the open pool that has a device among its leaves, whatever their state, as the device's label says.
    pub(crate) fn user_of(&self, member: &Membership) -> Option<String> {
        let is_user = |open: &Arc<OpenPool>| open.pool().guid() == member.guid && open.pool().tree().leaf_by_guid(member.leaf).is_some();
        self.find(is_user).map(|open| open.name())
    }

    /// Open pool of which the device is a spare.
    pub(crate) fn reserving_pool(&self, path: &str) -> Option<(Arc<OpenPool>, Spare)> {
        self.all().into_iter().find_map(|open| {
            let spare = open.pool().spares().into_iter().find(|spare| !spare.is_distributed() && same_file(&spare.path, path))?;
            Some((open, spare))
        })
    }

    /// Open pool of which the device is a cache, in use or taken offline.
    pub(crate) fn caching_pool(&self, path: &str) -> Option<Arc<OpenPool>> {
        let is_held = |state: LeafState| state.is_usable() || state == LeafState::Offline;
        self.find(|open| open.pool().caches().iter().any(|cache| is_held(cache.state) && same_file(&cache.path, path)))
    }

    /// Name of the open pool in which a spare stands in for a device.
    pub(crate) fn pool_using(&self, spare: Guid) -> Option<String> {
        self.find(|open| open.pool().tree().leaf_by_guid(spare).is_some()).map(|open| open.name())
    }

    /// Keeps the name for a pool that is being made or imported. `guid` is that of a pool that is imported: the one that is
    /// remembered under this name may be it.
    pub(crate) fn claim(&self, name: &str, guid: Option<Guid>) -> Option<Claim> {
        let mut claims = self.claims.lock();
        let is_open = self.contains(name);
        let is_taken = is_open || self.absent.guid(name).is_some_and(|other| guid != Some(other));
        if is_taken || !claims.insert(name.to_string()) {
            return None;
        }
        Some(Claim { claims: self.claims.clone(), name: name.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::remembered::Remembered;

    /// If this fails, whoever asks for datasets of a pool that could not be opened reads that there are none, and makes them anew elsewhere.
    #[test]
    fn datasets_of_a_pool_that_is_not_open_are_not_said_to_be_gone() {
        let (pools, paths) = (Pools::default(), vec!["/srv/a".to_string()]);
        let entry = Remembered { name: "tank".into(), guid: 7, altroot: None, read_only: false, paths, cachefile: None, temporary: false };
        pools.absent.note(vec![entry]);
        pools.absent.failed("tank", &because(ErrorKind::NotFound, "", "no such pool available"), None, Vec::new());
        for verb in ["open", "create"] {
            let failure = pools.pool_of("tank/a", verb).map(drop).expect_err("it is not open");
            assert_eq!(failure.what, format!("cannot {verb} 'tank/a'"));
            assert_eq!(failure.why, "pool 'tank' is not open: no such pool available");
        }
        let unknown = pools.pool_of("other/a", "open").map(drop).expect_err("nobody knows it");
        assert_eq!(unknown.why, "dataset does not exist");
    }

    /// If this fails, a look at the devices of pools that waits for a volume or a file system of ours keeps the list of pools, which these ask for, from
    /// whoever changes it next, and then from everybody: no command and no request is answered any more.
    #[test]
    fn the_list_is_free_while_somebody_looks_at_a_pool() {
        let pools = Pools::default();
        pools.insert(Arc::new(OpenPool::in_memory()));
        let is_free = |_: &Arc<OpenPool>| pools.open.try_write().is_some();
        assert!(pools.find(is_free).is_some() && pools.any(is_free));
    }
}
