//! The daemon's state, and what becomes of a request: its parts do the work, and the control only routes.

use crate::attached::Attached;
use crate::dataset::datasets::Datasets;
use crate::device::devices::Devices;
use crate::device::reserved::Reserved;
use crate::device::served::Served;
use crate::events::Events;
use crate::failure::{no_thread, suspended};
use crate::inject::Injections;
use crate::mount::handing::Handing;
use crate::mount::holding::Holding;
use crate::mount::keeping::{Heritage, Keeper};
use crate::mount::mounting::Mounter;
use crate::mount::returning::{Returning, STAGE};
use crate::mount::unmounting::Unmounter;
use crate::objects::ObjectsDoor;
use crate::pool::cache_file::PoolsFile;
use crate::pool::closing::{Closer, SUSPENDED_NS};
use crate::pool::intake::Intake;
use crate::pool::opening::Opening;
use crate::pool::reopening::Reopening;
use crate::pool::vdevs::Vdevs;
use crate::pool::{OpenPool, Pools, stopping};
use crate::portal::{NbdDoor, Portal, Ports, changes_volumes};
use crate::requests::{About, THREADS, about, changed_pool, changes_pools, needs_threads};
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::volume::door::Door;
use crate::watch::policy::Care;
use crate::watch::rounds::Rounds;
use crate::watch::watcher::Watcher;
use control_api::{DaemonInfo, Failure, Remark, Request, Response, StateDir};
use dsl::Subject;
use exec::Exec;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// State of the daemon: its parts, each with what is its own.
pub struct Control {
    pub(crate) exec: Exec,
    pub(crate) state: StateDir,
    pub(crate) started_ns: u64,
    pub(crate) pools: Arc<Pools>,
    pub(crate) opening: Arc<Opening>,
    pub(crate) file: Arc<PoolsFile>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) mounter: Arc<Mounter>,
    pub(crate) unmounter: Arc<Unmounter>,
    pub(crate) returning: Arc<Returning>,
    pub(crate) handing: Arc<Handing>,
    pub(crate) datasets: Datasets,
    pub(crate) settings: Arc<Settings>,
    pub(crate) events: Arc<Events>,
    pub(crate) injections: Arc<Injections>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) closer: Arc<Closer>,
    pub(crate) reopening: Arc<Reopening>,
    pub(crate) vdevs: Vdevs,
    pub(crate) statistics: Statistics,
    pub(crate) door: Door,
    pub(crate) portal: Arc<Portal>,
    pub(crate) nbd: NbdDoor,
    pub(crate) objects: ObjectsDoor,
    pub(crate) ports: Ports,
    pub(crate) watcher: Arc<Watcher>,
    pub(crate) rounds: Arc<Rounds>,
}

/// Sender of a request, for the pool's history, and what it sent along.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Command line of the sender.
    pub command: Option<String>,
    /// User id of the sender.
    pub uid: u32,
    /// Sender, where that is not the daemon's owner: only what was delegated is done then.
    pub user: Option<Subject>,
    /// Descriptor that came with the request.
    pub attached: Option<Attached>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Control {{ state: {} }}", self.state.path().display())
    }
}

/// Parts that the other parts of the daemon stand on.
struct Ground {
    pools: Arc<Pools>,
    opening: Arc<Opening>,
    file: Arc<PoolsFile>,
    devices: Arc<Devices>,
    mounter: Arc<Mounter>,
    unmounter: Arc<Unmounter>,
    returning: Arc<Returning>,
    holding: Arc<Holding>,
    settings: Arc<Settings>,
    events: Arc<Events>,
    injections: Arc<Injections>,
    closer: Arc<Closer>,
}

impl Ground {
    fn lay(exec: &Exec, state: &StateDir) -> Ground {
        let events = Arc::new(Events::new(exec));
        let settings = Arc::new(Settings::new(exec, state, &events.log));
        let (pools, opening, reserved) = (Arc::<Pools>::default(), Arc::<Opening>::default(), Arc::<Reserved>::default());
        let weak = Arc::downgrade(&pools);
        settings.accelerators.when_changed(move || weak.upgrade().iter().for_each(|pools| pools.follow_providers()));
        let file = Arc::new(PoolsFile::new(state.cache_file(), (&pools, &reserved), &events));
        let served = Arc::new(Served::new(exec, &pools));
        let devices = Arc::new(Devices { exec: exec.clone(), pools: pools.clone(), served: served.clone(), reserved });
        let injections = Arc::new(Injections::new(exec, &pools));
        let stage = state.path().join(STAGE);
        let holding = Arc::<Holding>::default();
        let mounter = Arc::new(Mounter::new(exec, &pools, (&settings.parameters, &settings.direct), &holding, stage));
        let unmounter = Arc::new(Unmounter { exec: exec.clone(), pools: pools.clone(), mounter: mounter.clone(), served });
        let returning = Arc::new(Returning::new(state.mounts_list(), &pools, &opening, &mounter));
        let closer = Arc::new(Closer {
            exec: exec.clone(),
            pools: pools.clone(),
            file: file.clone(),
            mounter: mounter.clone(),
            unmounter: unmounter.clone(),
            returning: returning.clone(),
            served: devices.served.clone(),
            events: events.clone(),
            injections: injections.clone(),
        });
        Ground { pools, opening, file, devices, mounter, unmounter, returning, holding, settings, events, injections, closer }
    }
}

/// Makes what looks after devices that fail.
fn care(exec: &Exec, (pools, devices): (&Arc<Pools>, &Arc<Devices>), settings: &Settings, closer: &Arc<Closer>) -> Arc<Care> {
    let (pools, devices, closer) = (pools.clone(), devices.clone(), closer.clone());
    Arc::new(Care { exec: exec.clone(), pools, devices, parameters: settings.parameters.clone(), closer })
}

impl Control {
    /// Makes a daemon without pools; [`Control::open_pools`] opens those that the state directory remembers.
    pub fn start(exec: Exec, state: StateDir) -> Arc<Control> {
        let Ground { pools, opening, file, devices, mounter, unmounter, returning, holding, settings, events, injections, closer } =
            Ground::lay(&exec, &state);
        let intake = Arc::new(Intake {
            exec: exec.clone(),
            pools: pools.clone(),
            file: file.clone(),
            devices: devices.clone(),
            mounter: mounter.clone(),
            settings: settings.clone(),
            events: events.clone(),
            injections: injections.clone(),
            closer: closer.clone(),
            care: care(&exec, (&pools, &devices), &settings, &closer),
            holding: holding.clone(),
            parameters: settings.parameters.clone(),
        });
        let handing = Arc::new(Handing::new(&exec, (&pools, &opening), &mounter, &returning, (&devices.served, &holding, &settings)));
        let reopening = Arc::new(Reopening {
            exec: exec.clone(),
            pools: pools.clone(),
            opening: opening.clone(),
            devices: devices.clone(),
            intake: intake.clone(),
            returning: returning.clone(),
            handing: handing.clone(),
            accelerators: settings.accelerators.clone(),
        });
        Arc::new(Control {
            started_ns: exec.now_ns(),
            datasets: Datasets { pools: pools.clone(), mounter: mounter.clone(), unmounter: unmounter.clone() },
            vdevs: Vdevs { exec: exec.clone(), pools: pools.clone(), devices: devices.clone(), file: file.clone(), events: events.clone() },
            statistics: Statistics::new(&exec, &state, &pools, &settings),
            door: Door::new(&exec, &state, &pools, &settings.direct),
            portal: Portal::new(&exec, &state, (&pools, &opening), &settings.direct),
            nbd: NbdDoor::new(&exec, &state, &pools, &settings.direct),
            objects: ObjectsDoor::new(&exec, &state, (&pools, &opening), &settings.direct),
            ports: Ports::default(),
            watcher: Arc::default(),
            rounds: Arc::new(Rounds {
                exec: exec.clone(),
                pools: pools.clone(),
                parameters: settings.parameters.clone(),
                events: events.clone(),
                injections: injections.clone(),
                file: file.clone(),
                returning: returning.clone(),
                handing: handing.clone(),
                reopening: reopening.clone(),
            }),
            exec,
            state,
            pools,
            opening,
            file,
            devices,
            mounter,
            unmounter,
            returning,
            handing,
            settings,
            events,
            injections,
            intake,
            closer,
            reopening,
        })
    }

    /// Opens the pools that were open when the last daemon of this state directory ended. Does not wait for that.
    pub fn open_pools(&self) {
        self.reopening.open_pools();
    }

    /// Starts the rounds: what the daemon does unasked.
    pub fn watch(&self) {
        self.rounds.start(&self.watcher);
    }

    /// Mounts the tree of statistics and parameters, and the files of volumes, in the state directory, in place of what a killed daemon left there.
    pub fn mount_tree(&self) {
        self.statistics.mount_tree();
        self.door.mount();
    }

    /// Serves volumes to initiators of iSCSI that connect from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn serve_iscsi(&self, listener: std::net::TcpListener) -> std::io::Result<()> {
        self.portal.serve(listener)
    }

    /// Serves volumes to clients of NBD that connect from now on at the socket in the state directory.
    ///
    /// # Errors
    /// Those of the system.
    pub fn serve_nbd(&self) -> std::io::Result<()> {
        self.nbd.serve()
    }

    /// Serves volumes to clients of NBD that connect from now on at a port, too; after [`Control::serve_nbd`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn serve_nbd_at(&self, port: std::net::TcpListener) -> std::io::Result<()> {
        self.nbd.serve_at(port)
    }

    /// Serves objects of datasets to programs that connect from now on at the socket in the state directory.
    pub fn serve_objects(&self) {
        self.objects.serve();
    }

    /// Notes that the port of a service could not be opened, and is tried again: whoever asks is told.
    pub fn port_closed(&self, service: &'static str, address: SocketAddr, error: &std::io::Error) {
        self.ports.closed(&self.events, (service, address), error);
    }

    /// Notes that the port of a service is open.
    pub fn port_opened(&self, service: &'static str, address: SocketAddr) {
        self.ports.opened(&self.events, (service, address));
    }

    /// Returns the metrics of the daemon in OpenMetrics text.
    pub fn metrics(&self) -> String {
        self.statistics.metrics()
    }

    /// Waits for the end of pools that a request names and that are being closed; who forces their end does not wait for it.
    fn await_departures(&self, request: &Request) {
        let is_forced = matches!(request, Request::PoolExport(target) | Request::PoolDestroy(target) if target.force);
        if let (false, About::Pools(names)) = (is_forced, about(request)) {
            self.pools.leaving.wait(&self.exec, &names, || self.pools.has_suspended());
        }
    }

    /// Executes one request; it may take as long as its transaction group.
    pub fn execute(&self, request: &Request, caller: &Caller) -> Response {
        let ready = self.check_threads(request).and_then(|()| self.opening.await_pools(&self.exec, request));
        if let Err(failure) = ready {
            return Response::Failed(failure);
        }
        self.await_departures(request);
        let pool = changed_pool(request);
        // A destroyed or exported pool cannot be written to afterwards.
        let before = matches!(request, Request::PoolDestroy(_) | Request::PoolExport(_));
        if before {
            self.log(pool, caller);
        }
        let performed =
            self.refuse_suspended(request).and_then(|()| self.perform_for(request, caller)).map(|response| self.warned(request, response));
        if request.changes() {
            self.returning.note_mounts();
            self.handing.hold();
        }
        if changes_volumes(request) {
            self.portal.follow();
            self.nbd.follow();
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

    /// Refuses what may need threads that the system does not start: it would stop in the middle.
    fn check_threads(&self, request: &Request) -> Result<(), Failure> {
        if needs_threads(request) && self.exec.lacks_threads(THREADS) {
            return Err(no_thread(request.refusal().what));
        }
        Ok(())
    }

    /// Executor that the daemon's work runs on.
    pub fn exec(&self) -> &Exec {
        &self.exec
    }

    /// Answer with a warning where what was done could not be written down for the next daemon.
    fn warned(&self, request: &Request, mut response: Response) -> Response {
        if let (Response::Done { remarks }, true) = (&mut response, changes_pools(request)) {
            remarks.extend(self.file.warnings());
        }
        response
    }

    fn log(&self, pool: Option<&str>, caller: &Caller) {
        let (Some(name), Some(command)) = (pool, &caller.command) else { return };
        if let Some(open) = self.pools.get(name).filter(|open| open.pool().is_writeable()) {
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
        let Some(open) = changed_pool(request).filter(|_| waits).and_then(|name| self.pools.get(name)) else {
            return Ok(());
        };
        if !open.pool().zio().is_suspended() {
            return Ok(());
        }
        Err(suspended(format!("cannot change '{}'", open.name()))
            .advise("make sure that its devices are connected, then run 'zpool clear'"))
    }

    /// Answer to a request that is not done because its pool, or one that it asks about, is suspended; None while it
    /// has other reasons, or looks after that itself. Whoever waits for the answer gives up after [`Control::PATIENCE`].
    pub fn waits_in_vain(&self, request: &Request) -> Option<Failure> {
        let own = match request {
            Request::PoolExport(_) | Request::PoolDestroy(_) | Request::PoolWait(_) | Request::PoolImport(_) => return None,
            other => changed_pool(other),
        };
        // Whoever clears a pool with `multihost` waits until it is sure that no other host has it.
        let makes_sure = |open: &Arc<OpenPool>| matches!(request, Request::PoolClear(_)) && open.pool().zio().is_fenced();
        let is_suspended = |open: &Arc<OpenPool>| open.pool().zio().is_suspended() && !makes_sure(open);
        let open = match own {
            Some(name) => self.pools.get(name).filter(is_suspended),
            None => self.pools.find(is_suspended),
        }?;
        Some(
            suspended(format!("no answer for '{}'", open.name()))
                .advise("make sure that its devices are connected, then run 'zpool clear'; what was asked for may still be done then"),
        )
    }

    /// Longest time that a request waits for a suspended pool.
    pub const PATIENCE: std::time::Duration = std::time::Duration::from_nanos(SUSPENDED_NS);

    pub(crate) fn info(&self) -> DaemonInfo {
        DaemonInfo {
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            uptime_seconds: self.exec.now_ns().saturating_sub(self.started_ns) / 1_000_000_000,
            pools: self.pools.names(),
            is_opening: self.opening.is_running(),
            program: std::env::current_exe().map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned()),
            closed_ports: self.ports.sentences(),
        }
    }

    /// Writes down once more which pools are to be open, when somebody removed that.
    pub fn remember(&self) {
        self.file.remember();
    }

    /// Takes what the daemon before left, and names the process that keeps mounts between two daemons; before [`Control::open_pools`].
    pub fn inherit(&self, keeper: Arc<dyn Keeper>, heritage: Heritage) {
        self.handing.inherit(keeper, heritage);
    }

    /// Leaves all mounts to the next daemon, which runs `program`, with everything on disk. Nothing is served any more then, and the daemon has
    /// to end at once, without [`Control::shutdown`].
    ///
    /// # Errors
    /// Why that cannot be; the daemon goes on then.
    pub fn hand_over(&self, program: &Path) -> Result<(), Failure> {
        self.handing.hand_over(program)?;
        self.portal.cut();
        self.nbd.cut();
        self.objects.end();
        self.watcher.stop();
        self.statistics.end();
        self.door.end();
        Ok(())
    }

    /// Lets the daemon end: from now on no other one replaces it. One that is just doing so is waited for; false when the mounts are left to it, and the
    /// daemon has to end as after [`Control::hand_over`].
    pub fn end(&self) -> bool {
        self.handing.phases.end(&self.exec)
    }

    /// Unmounts, syncs and lets go of everything; the pools open again with the next daemon. The daemon ends, whatever has files open: what a
    /// suspended pool, or one whose devices do not answer, has not written is left as after a crash.
    pub fn shutdown(&self) {
        self.watcher.stop();
        self.pools.stop();
        self.opening.wait_for_end(&self.exec);
        self.statistics.end();
        self.portal.end();
        self.nbd.end();
        self.objects.end();
        self.door.end();
        // Files in one are the devices of another.
        for layer in self.devices.served.in_layers(self.pools.all()) {
            let names: Vec<String> = layer.iter().map(|open| open.name()).collect();
            names.iter().for_each(|name| drop(self.pools.remove(name)));
            stopping::let_go(&self.exec, &self.returning, layer);
        }
    }

    /// Data that ending now gives up: a sentence for each pool that cannot write what it was given.
    pub fn unwritten(&self) -> Vec<Remark> {
        stopping::unwritten(&self.pools.all())
    }
}
