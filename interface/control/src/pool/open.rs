//! A pool in the daemon's care: the engine's pool, its mounts, its scan.

use crate::device::identity::identity;
use crate::device::workers::Workers;
use crate::mount::mounts::Mounts;
use crate::pool::streams::Streams;
use crate::volume::Shelf;
use dmu::TxgManager;
use dsl::DslPool;
use exec::{Mutex, MutexGuard};
use ondisk::{Guid, objset_flags};
use pool::{Pool, PoolError, VdevProps};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use zpl::Settings;

/// Pool that is open, with its mounts and what the daemon knows of it.
pub struct OpenPool {
    pub(crate) mounts: Arc<Mounts>,
    /// Volumes that somebody has open.
    pub(crate) volumes: Arc<Shelf>,
    /// Streams that are sent and received.
    pub(crate) streams: Arc<Streams>,
    pool: Pool,
    altroot: Option<String>,
    /// Value of `cachefile=`: a path, `none`, or what is the default.
    cachefile: Mutex<Option<String>>,
    opened_ns: u64,
    load_guid: u64,
    /// Threads that work on files of the pool that are devices of other pools.
    workers: Mutex<Weak<Workers>>,
    /// Times in nanoseconds at which a person declared a leaf faulted, by the leaf's guid.
    by_hand: Mutex<BTreeMap<Guid, u64>>,
    /// Properties of vdevs that are set; None until somebody asks.
    vdev_props: Mutex<Option<Arc<VdevProps>>>,
    /// Taken by whoever does what was delegated to a user.
    delegated: Mutex<()>,
}

impl OpenPool {
    /// Takes over a pool that was just made or imported.
    pub fn new(pool: Pool, altroot: Option<String>) -> OpenPool {
        let (opened_ns, load_guid) = (pool.exec().now_ns(), pool.exec().random_u64());
        OpenPool {
            mounts: Arc::default(),
            volumes: Arc::default(),
            streams: Arc::default(),
            pool,
            altroot,
            cachefile: Mutex::default(),
            opened_ns,
            load_guid,
            workers: Mutex::default(),
            by_hand: Mutex::default(),
            vdev_props: Mutex::default(),
            delegated: Mutex::default(),
        }
    }
    /// Returns the engine's pool, when this was the last holder.
    pub fn into_pool(self) -> Pool {
        let OpenPool { mounts, volumes, pool, .. } = self;
        volumes.close();
        if !mounts.all().is_empty() {
            // Mounts that were forced to leave and whose requests do not end: they wait for a device, not we for them.
            drop(pool.exec().spawn_operation("z-unmount", Box::new(move || drop(mounts))));
        }
        pool
    }
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
    /// Number that is another one each time that the pool is opened.
    pub fn load_guid(&self) -> u64 {
        self.load_guid
    }
    /// Properties of vdevs that are set; none where they cannot be read.
    pub fn vdev_props(&self) -> Arc<VdevProps> {
        let mut known = self.vdev_props.lock();
        if let Some(props) = &*known {
            return props.clone();
        }
        match self.pool.vdev_props() {
            Ok(props) => known.insert(Arc::new(props)).clone(),
            Err(_) => Arc::default(),
        }
    }
    /// Sets a property of a vdev.
    pub fn set_vdev_prop(&self, guid: Guid, name: &str, value: &str) -> Result<(), PoolError> {
        let outcome = self.pool.set_vdev_prop(guid, name, value);
        *self.vdev_props.lock() = None;
        outcome
    }
    /// Keeps other users from what was delegated to them while this lives: a name means the same dataset when something is done to it as when it was
    /// looked at who may do that.
    pub(crate) fn delegated(&self) -> MutexGuard<'_, ()> {
        self.delegated.lock()
    }
    /// Nanoseconds since the pool was opened.
    pub fn age_ns(&self) -> u64 {
        self.pool.exec().now_ns().saturating_sub(self.opened_ns)
    }
    pub fn name(&self) -> String {
        self.pool.name()
    }
    /// True when this file or device is the one of a leaf that `counts` picks.
    pub fn uses(&self, path: &str, counts: &dyn Fn(&vdev::Leaf) -> bool) -> bool {
        let Some(wanted) = identity(path) else { return false };
        self.pool.tree().leaves.iter().filter(|leaf| counts(leaf)).any(|leaf| identity(&leaf.path) == Some(wanted))
    }
    pub fn altroot(&self) -> Option<&str> {
        self.altroot.as_deref()
    }
    /// Value of the property `cachefile`, when it was set.
    pub fn cachefile(&self) -> Option<String> {
        self.cachefile.lock().clone()
    }
    /// Threads that work on files of this pool that are devices of other pools.
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
    /// Notes that a person declares the leaf faulted, and may be about to say what is to come in its place.
    pub(crate) fn hold_spares(&self, leaf: Guid) {
        self.by_hand.lock().insert(leaf, self.pool.exec().now_ns());
    }
    /// Guids of leaves that a person declared faulted, and when (ns); those no longer `wanting` since a look `step_ns` ago are forgotten.
    pub(crate) fn by_hand(&self, wanting: &[Guid], step_ns: u64) -> BTreeMap<Guid, u64> {
        let mut by_hand = self.by_hand.lock();
        let now_ns = self.pool.exec().now_ns();
        // One that was written down just now is not faulted yet.
        by_hand.retain(|guid, at| wanting.contains(guid) || now_ns.saturating_sub(*at) < step_ns);
        by_hand.clone()
    }
    pub fn dsl(&self) -> &Arc<DslPool> {
        self.pool.dsl()
    }
    pub fn is_read_only(&self) -> bool {
        !self.pool.is_writeable()
    }
    /// Transaction groups of the pool; None when nothing may be written.
    pub fn txgs(&self) -> Option<Arc<TxgManager>> {
        self.pool.is_writeable().then(|| self.pool.txgs().clone())
    }
    fn has_enabled(&self, feature: &str) -> bool {
        self.pool.features().iter().any(|(name, _, references)| name == feature && references.is_some())
    }
    /// True when new nodes get a project number.
    pub fn counts_projects(&self) -> bool {
        self.has_enabled("project_quota")
    }
    /// Flags of object sets that have accounts of all that the pool counts (see `ondisk::objset_flags`).
    pub(crate) fn accounts(&self) -> u64 {
        let objects = if self.has_enabled("userobj_accounting") { objset_flags::USEROBJACCOUNTING_COMPLETE } else { 0 };
        let projects = if self.counts_projects() { objset_flags::PROJECTQUOTA_COMPLETE } else { 0 };
        objset_flags::USERACCOUNTING_COMPLETE | objects | projects
    }
    /// Has mounted file systems go by the features that are enabled now: those that lack accounts of objects or projects make them with their next
    /// change, as in OpenZFS.
    pub(crate) fn follow_features(&self) {
        for mounted in self.mounts.all() {
            let zfs = mounted.zfs();
            zfs.set_settings(Settings { project_quota: self.counts_projects(), ..zfs.settings() });
            zfs.want_accounts(self.accounts());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OpenPool;
    use device::MemDevice;
    use dsl::CreateDataset;
    use exec::{Exec, Inline};
    use ondisk::ObjsetType;
    use pool::{Host, LeafSpec, Pool, PoolSpec, TopSpec};
    use std::sync::Arc;
    use vdev::{LeafKind, TopKind};

    impl OpenPool {
        /// Makes a pool in memory.
        pub(crate) fn in_memory() -> OpenPool {
            let device = Arc::new(MemDevice::new("d0", 96 << 20));
            let leaf = LeafSpec { path: "d0".into(), kind: LeafKind::File, device };
            let root = CreateDataset { kind: ObjsetType::OTHER, properties: Vec::new(), init: Box::new(|_, _| Ok(())) };
            let spec = PoolSpec {
                stored_name: None,
                name: "tank".into(),
                tops: vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }],
                classes: pool::ClassSpec::default(),
                ashift: None,
                features: None,
                comment: None,
                host: Host { id: 1, name: "test".into() },
                force: false,
                version: pool::VERSION_WITH_FEATURES,
                root,
                key: None,
            };
            let exec: Exec = Arc::new(Inline::new(3));
            OpenPool::new(Pool::create(&exec, spec, &pool::Runtime::new()).expect("created"), None)
        }
    }
}
