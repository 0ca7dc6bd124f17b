//! Executes typed requests for the daemon: owns the open pools and the mounts, and formats no text for people.
//!
//! Invariant: no lock of this crate is held while a request waits for a transaction group, except the mounts' own while
//! they are looked up.
#![forbid(unsafe_code)]

mod absent;
mod asked;
mod beneath;
mod cache_file;
mod candidate;
mod closing;
mod compatibility;
mod datasets;
mod devices;
mod diagnosis;
mod direct;
mod effects;
mod enclosed;
mod events;
mod failure;
mod following;
mod hooks;
mod inject;
mod inuse;
mod iostat;
mod lifecycle;
mod lifting;
mod memory;
mod mount_options;
mod mounting;
mod mounts;
mod offload;
mod open_pool;
mod opening;
mod owners;
mod policy;
mod pools;
mod providers;
mod reguid;
mod report;
mod reserved;
mod returning;
mod scrub;
mod served;
mod statistics;
mod status;
mod stopping;
mod sweeps;
mod taken;
mod targets;
mod turns;
mod unmounting;
mod vdev_props;
mod vdevs;
mod volumes;
mod watch;
mod working;

pub(crate) use open_pool::OpenPool;

use control_api::{DaemonInfo, Failure, Request, Response, StateDir};
use exec::{Exec, RwLock, WaitQueue};
use kstat::EventLog;
use metrics::Parameters;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that the cache of each pool may hold, from the environment: `zfs_arc_max` before any pool is opened.
const ARC_MAX: &str = "ZIRCONIA_ARC_MAX";

/// However little memory there is: so much dirty data is one large write and what goes with it (the least of `zfs_dirty_data_max`).
const DIRTY_DATA_MIN: u64 = 64 << 20;

/// The daemon's state: pools and mounts.
pub struct Control {
    exec: Exec,
    state: StateDir,
    started_ns: u64,
    pools: RwLock<BTreeMap<String, Arc<OpenPool>>>,
    absent: absent::Absents,
    served: served::Served,
    reserved: reserved::Reserved,
    opening: opening::Opening,
    returning: returning::Returning,
    turns: turns::Turns,
    /// What `pools.json` has.
    written: exec::Mutex<Option<Vec<cache_file::Remembered>>>,
    direct: Arc<zpl::direct::Tunables>,
    parameters: Arc<Parameters>,
    events: Arc<EventLog>,
    /// Told of every event.
    news: Arc<WaitQueue>,
    injections: inject::Injections,
    watcher: Arc<watch::Watcher>,
    mounted_tree: statistics::Mounted,
    accelerators: Arc<providers::Accelerators>,
    /// Bytes that the cache of each pool may hold where nobody says another number.
    arc_max: u64,
    stopping: AtomicBool,
}

/// Who sent a request, for the pool's history.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The command line.
    pub command: Option<String>,
    /// User id.
    pub uid: u32,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Control {{ state: {} }}", self.state.path().display())
    }
}

impl Control {
    /// A daemon without pools; [`Control::open_pools`] opens those that the state directory remembers.
    pub fn start(exec: Exec, state: StateDir) -> Arc<Control> {
        let started_ns = exec.now_ns();
        // Buffers of dirty data come and go in bursts; faulting them in anew each time costs more than all checksums.
        let (room, usual) = (memory::Places::own().look(), pool::Runtime::new());
        abd::set_cache_bytes_max(room.spare_max(usual.txg.dirty_data_max));
        let parameters = Arc::new(Parameters::default());
        let dirty_data_max = room.dirty_data_max(DIRTY_DATA_MIN, usual.txg.dirty_data_max);
        // Within the parameter's range, so it is taken.
        let _ = parameters.set("zfs_dirty_data_max", &dirty_data_max.to_string());
        if let Ok(bytes) = std::env::var(ARC_MAX) {
            // What makes no sense leaves the default.
            let _ = parameters.set("zfs_arc_max", &bytes);
        }
        let (events, news) = events::log(&exec);
        let direct = direct::tunables_from_environment(&parameters);
        let mounted_tree = statistics::Mounted::default();
        let injections = inject::Injections::default();
        let (pools, watcher, stopping) = (RwLock::default(), Arc::default(), AtomicBool::new(false));
        let accelerators = providers::Accelerators::new(&exec, &state, events.clone(), parameters.clone());
        let control = Control {
            exec,
            state,
            started_ns,
            pools,
            absent: absent::Absents::default(),
            served: served::Served::default(),
            reserved: reserved::Reserved::default(),
            opening: opening::Opening::default(),
            returning: returning::Returning::default(),
            turns: turns::Turns::default(),
            written: exec::Mutex::default(),
            parameters,
            events,
            news,
            injections,
            watcher,
            mounted_tree,
            direct,
            accelerators,
            arc_max: room.arc_max(usual.arc_max),
            stopping,
        };
        let control = Arc::new(control);
        let weak = Arc::downgrade(&control);
        control.accelerators.when_changed(move || weak.upgrade().iter().for_each(|control| control.providers_changed()));
        control
    }

    /// Executes one request; it may take as long as its transaction group.
    pub fn execute(self: &Arc<Self>, request: &Request, caller: &Caller) -> Response {
        if let Err(failure) = self.await_opening(request) {
            return Response::Failed(failure);
        }
        let pool = changed_pool(request);
        // A destroyed or exported pool cannot be written to afterwards.
        let before = matches!(request, Request::PoolDestroy(_) | Request::PoolExport(_));
        if before {
            self.log(pool, caller);
        }
        let performed = self.refuse_suspended(request).and_then(|()| self.perform(request));
        if request.changes() {
            self.note_mounts();
        }
        match performed {
            Ok(response) => {
                if !before {
                    self.log(pool, caller);
                }
                response
            }
            Err(failure) => {
                if failure.kind == control_api::ErrorKind::NotMounted {
                    self.log(pool, caller);
                }
                Response::Failed(failure)
            }
        }
    }

    fn log(&self, pool: Option<&str>, caller: &Caller) {
        let (Some(name), Some(command)) = (pool, &caller.command) else { return };
        if let Some(open) = self.pools.read().get(name).filter(|open| open.pool().is_writeable()) {
            open.pool().log_command(command, caller.uid);
        }
    }

    /// Refuses what would wait for a suspended pool (OpenZFS: `POOL_CHECK_SUSPENDED`): questions are answered, and devices can be
    /// brought back, cleared and let go.
    fn refuse_suspended(&self, request: &Request) -> Result<(), Failure> {
        let waits = match request {
            Request::PoolClear(_) | Request::PoolExport(_) | Request::PoolDestroy(_) | Request::PoolReopen(_) => false,
            Request::VdevChange(request) => !matches!(request.change, control_api::VdevVerb::Online { .. }),
            other => other.changes(),
        };
        let Some(open) = changed_pool(request).filter(|_| waits).and_then(|name| self.pools.read().get(name).cloned()) else {
            return Ok(());
        };
        if !open.pool().zio().is_suspended() {
            return Ok(());
        }
        Err(closing::suspended(format!("cannot change '{}'", open.name()))
            .advise("make sure that its devices are connected, then run 'zpool clear'"))
    }

    /// What to answer to a request that is not done because its pool, or one that it asks about, is suspended; None while it
    /// has other reasons, or looks after that itself. Whoever waits for the answer gives up after [`Control::PATIENCE`].
    pub fn waits_in_vain(&self, request: &Request) -> Option<Failure> {
        let own = match request {
            Request::PoolExport(_) | Request::PoolDestroy(_) | Request::PoolWait(_) | Request::PoolImport(_) => return None,
            other => changed_pool(other),
        };
        let pools = self.pools.read();
        let suspended = |open: &&Arc<OpenPool>| open.pool().zio().is_suspended();
        let open = match own {
            Some(name) => pools.get(name).filter(suspended),
            None => pools.values().find(suspended),
        }?;
        Some(
            closing::suspended(format!("no answer for '{}'", open.name()))
                .advise("make sure that its devices are connected, then run 'zpool clear'; what was asked for may still be done then"),
        )
    }

    /// How long a request waits for a suspended pool.
    pub const PATIENCE: std::time::Duration = std::time::Duration::from_nanos(closing::SUSPENDED_NS);

    fn perform(self: &Arc<Self>, request: &Request) -> Result<Response, Failure> {
        match request {
            Request::Info => Ok(Response::Info(self.info())),
            Request::Stop => Ok(Response::Done { remarks: Vec::new() }),
            Request::PoolCreate(request) => {
                let what = || format!("cannot create '{}'", request.pool);
                effects::around(what, effects::of_creation(request), || self.pool_create(request))
            }
            Request::PoolDestroy(target) => self.pool_destroy(target),
            Request::PoolExport(target) => self.pool_export(target),
            Request::PoolImportScan(search) => self.pool_import_scan(search),
            Request::PoolImport(request) => self.pool_import(request),
            Request::PoolQuery(query) => self.pool_query(query),
            Request::PoolSet(request) => {
                let what = || format!("cannot set property for '{}'", request.pool);
                effects::around(what, effects::of_pool([(&request.property, &request.value)]), || self.pool_set(request))
            }
            Request::PoolReguid(request) => self.pool_reguid(request),
            Request::PoolScrub(request) => self.pool_scrub(request),
            Request::PoolSweep(request) => self.pool_sweep(request),
            Request::VdevChange(request) => self.vdev_change(request),
            Request::PoolAdd(request) => {
                let warnings = (!request.logs.is_empty()).then(effects::of_logs).into_iter().collect();
                effects::around(String::new, Ok(warnings), || self.pool_add(request))
            }
            Request::VdevRemove(request) => self.vdev_remove(request),
            Request::VdevRemoveStop(request) => self.vdev_remove_stop(request),
            Request::PoolReopen(request) => self.pool_reopen(request),
            Request::PoolClear(request) => self.pool_clear(request),
            Request::PoolSync(names) => self.pool_sync(names),
            Request::PoolHistory(request) => self.pool_history(request),
            Request::PoolIostat(names) => self.pool_iostat(names),
            Request::PoolWait(request) => self.pool_wait(request),
            Request::PoolEvents(request) => Ok(self.pool_events(request)),
            Request::InjectList => Ok(Response::Injections(self.handlers())),
            Request::InjectAdd(request) => self.inject(request),
            Request::InjectClear { id } => self.inject_clear(*id),
            Request::LabelClear(request) => self.label_clear(request),
            Request::DatasetCreate(request) => {
                let what = || format!("cannot create '{}'", request.name);
                effects::around(what, effects::of_dataset(&request.properties), || self.dataset_create(request))
            }
            Request::DatasetDestroy(request) => self.dataset_destroy(request),
            Request::DatasetQuery(query) => self.dataset_query(query),
            Request::Userspace(query) => self.userspace(query),
            Request::DatasetSet(request) => {
                let what = || format!("cannot set property for '{}'", request.name);
                effects::around(what, effects::of_dataset(&request.properties), || self.dataset_set(request))
            }
            Request::DatasetInherit(request) => self.dataset_inherit(request),
            Request::Snapshot(request) => self.snapshot(request),
            Request::DatasetRename(request) => self.dataset_rename(request),
            Request::Mount(request) => self.mount(request),
            Request::Unmount(request) => self.unmount(request),
            Request::Direct(query) => self.direct_counts(query),
            Request::ProviderList => Ok(self.provider_list()),
            Request::ProviderLoad(request) => self.provider_load(request),
            Request::ProviderUnload(request) => self.provider_unload(request),
        }
    }

    fn info(&self) -> DaemonInfo {
        DaemonInfo {
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            uptime_seconds: self.exec.now_ns().saturating_sub(self.started_ns) / 1_000_000_000,
            pools: self.pools.read().keys().cloned().collect(),
        }
    }

    /// True once the daemon is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// The pool that a request changes, for its history.
fn changed_pool(request: &Request) -> Option<&str> {
    let name = match request {
        Request::PoolCreate(request) if !request.dry_run => request.temporary_name.as_ref().unwrap_or(&request.pool),
        Request::PoolDestroy(target) | Request::PoolExport(target) => &target.pool,
        Request::PoolImport(request) => request.new_name.as_ref().or(request.pool.as_ref())?,
        Request::PoolSet(request) => &request.pool,
        Request::PoolReguid(request) => &request.pool,
        Request::PoolScrub(request) => &request.pool,
        Request::PoolSweep(request) => &request.pool,
        Request::VdevChange(request) => &request.pool,
        Request::PoolAdd(request) if !request.dry_run => &request.pool,
        Request::VdevRemove(request) if !request.dry_run => &request.pool,
        Request::PoolClear(request) => &request.pool,
        Request::DatasetCreate(request) if !request.dry_run => &request.name,
        Request::DatasetDestroy(request) if !request.dry_run => &request.name,
        Request::DatasetSet(request) => &request.name,
        Request::DatasetInherit(request) => &request.name,
        Request::Snapshot(request) => request.names.first()?,
        Request::DatasetRename(request) => &request.from,
        _ => return None,
    };
    name.split(['/', '@']).next()
}
