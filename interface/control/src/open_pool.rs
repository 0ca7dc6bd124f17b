//! A pool in the daemon's care: the engine's pool, its mounts, its scan.

use crate::mounts::Mounts;
use crate::served::Workers;
use dmu::TxgManager;
use dsl::DslPool;
use exec::Mutex;
use pool::Pool;
use std::sync::{Arc, Weak};

/// See the file's header.
pub struct OpenPool {
    pub(crate) mounts: Arc<Mounts>,
    pool: Pool,
    altroot: Option<String>,
    /// As `cachefile=` has it: a path, `none`, or what is the default.
    cachefile: Mutex<Option<String>>,
    opened_ns: u64,
    load_guid: u64,
    /// Who works on files of it that are devices of other pools.
    workers: Mutex<Weak<Workers>>,
}

impl OpenPool {
    /// Takes over a pool that was just made or imported.
    pub fn new(pool: Pool, altroot: Option<String>) -> OpenPool {
        let (opened_ns, load_guid) = (pool.exec().now_ns(), pool.exec().random_u64());
        OpenPool { mounts: Arc::default(), pool, altroot, cachefile: Mutex::default(), opened_ns, load_guid, workers: Mutex::default() }
    }
    /// The engine's pool, when this was the last holder.
    pub fn into_pool(self) -> Pool {
        let OpenPool { mounts, pool, .. } = self;
        if !mounts.all().is_empty() {
            // Mounts that were forced to leave and whose requests do not end: they wait for a device, not we for them.
            drop(pool.exec().spawn_operation("z-unmount", Box::new(move || drop(mounts))));
        }
        pool
    }
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
    /// Another number for each time that the pool is opened.
    pub fn load_guid(&self) -> u64 {
        self.load_guid
    }
    /// Nanoseconds since it was opened.
    pub fn age_ns(&self) -> u64 {
        self.pool.exec().now_ns().saturating_sub(self.opened_ns)
    }
    pub fn name(&self) -> String {
        self.pool.name()
    }
    /// True when this file or device is one of the pool's.
    pub fn uses(&self, path: &str) -> bool {
        let wanted = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let same = |leaf: &vdev::Leaf| std::fs::canonicalize(&leaf.path).is_ok_and(|own| own == wanted);
        self.pool.tree().leaves.iter().any(same)
    }
    pub fn altroot(&self) -> Option<&str> {
        self.altroot.as_deref()
    }
    /// The property `cachefile`, when it was set.
    pub fn cachefile(&self) -> Option<String> {
        self.cachefile.lock().clone()
    }
    /// Who works on files of this pool that are devices of other pools.
    pub(crate) fn workers(&self, start: impl FnOnce() -> Arc<Workers>) -> Arc<Workers> {
        let mut workers = self.workers.lock();
        workers.upgrade().unwrap_or_else(|| {
            let started = start();
            *workers = Arc::downgrade(&started);
            started
        })
    }
    pub(crate) fn set_cachefile(&self, value: Option<String>) {
        *self.cachefile.lock() = value;
    }
    pub fn dsl(&self) -> &Arc<DslPool> {
        self.pool.dsl()
    }
    pub fn is_read_only(&self) -> bool {
        !self.pool.is_writeable()
    }
    /// The transaction groups; None when nothing may be written.
    pub fn txgs(&self) -> Option<Arc<TxgManager>> {
        self.pool.is_writeable().then(|| self.pool.txgs().clone())
    }
    /// True when new nodes get a project number.
    pub fn counts_projects(&self) -> bool {
        self.pool.features().iter().any(|(name, _, references)| name == "project_quota" && references.is_some())
    }
}
