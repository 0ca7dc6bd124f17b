//! Exports of NBD: volumes that a property shares, for clients of this machine at a socket in the state directory, and for others at a port where the
//! daemon is told one.
//!
//! Nothing is kept ready: a volume is looked for and lent when a client asks for it, and is in use as long as that has it. After requests that change
//! datasets those who have one that is not to be seen any more are sent away.

use super::export::VolumeExport;
use super::running::{DRAIN, Running, stopped};
use crate::pool::Pools;
use crate::volume::there::{self, Found, SHARE_NBD};
use control_api::{NbdExport, NbdReport, Response, StateDir};
use exec::{Exec, Hands, Mutex};
use nbd::{Export, Exports, Guests, Listed, Listener, Opened, Options, Refusal};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use zpl::direct::Tunables;

/// Pause between looks whether the socket is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Volumes that clients may have.
#[derive(Clone)]
pub(super) struct VolumeExports {
    exec: Exec,
    pools: Arc<Pools>,
    tunables: Arc<Tunables>,
    hands: Arc<Hands>,
}

impl VolumeExports {
    pub(super) fn new(exec: &Exec, pools: &Arc<Pools>, tunables: &Arc<Tunables>) -> VolumeExports {
        VolumeExports {
            exec: exec.clone(),
            pools: pools.clone(),
            tunables: tunables.clone(),
            hands: Hands::new(exec, "z-nbd-ask", super::THREADS_MAX),
        }
    }

    /// Names of all of them, but for those of pools that nobody can look at now.
    fn names(&self) -> Vec<String> {
        let pools = self.pools.all().into_iter().filter(|pool| !pool.pool().zio().is_suspended());
        pools.flat_map(|pool| there::shared(&pool, SHARE_NBD)).map(|volume| volume.name()).collect()
    }

    /// True for the name of a volume in a pool that nobody can look at now.
    fn is_suspended(&self, name: &str) -> bool {
        let pool = name.split(['/', '@']).next().and_then(|pool| self.pools.get(pool));
        pool.is_some_and(|pool| pool.pool().zio().is_suspended())
    }

    /// Volume of this name, or snapshot of one, if it is shared.
    fn find(&self, name: &str) -> Option<Found> {
        there::find(&self.pools, name).filter(|found| matches!(found, Found::Volume(_, volume) if there::is_shared(volume, SHARE_NBD)))
    }

    /// True when who has this export may go on with it.
    fn may_stay(&self, name: &str) -> bool {
        self.is_suspended(name) || self.find(name).is_some()
    }

    fn lend(&self, name: &str) -> Result<Arc<dyn Export>, Refusal> {
        if self.pools.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if self.is_suspended(name) {
            return Err(Refusal::Unavailable);
        }
        let Some(Found::Volume(pool, volume)) = self.find(name) else { return Err(Refusal::Unknown) };
        let loan = pool.volumes.lend(volume, &self.tunables, &pool.mounts).map_err(|error| {
            tracing::warn!("the volume '{name}' is not served: {error}");
            Refusal::Unavailable
        })?;
        let export = VolumeExport::new(&self.exec, loan).ok_or(Refusal::Unavailable)?;
        Ok(Arc::new(export))
    }
}

impl Exports for VolumeExports {
    fn list(&self, then: Listed) {
        let own = self.clone();
        self.hands.give(Box::new(move || then(own.names())));
    }

    fn open(&self, name: &str, then: Opened) {
        let (own, name) = (self.clone(), name.to_string());
        self.hands.give(Box::new(move || then(own.lend(&name))));
    }
}

/// Door of volumes to clients of NBD.
pub(crate) struct NbdDoor {
    exports: VolumeExports,
    socket: PathBuf,
    guests: Arc<Guests>,
    running: Mutex<Option<Running>>,
    /// Port of other machines, if there is one.
    address: Mutex<Option<SocketAddr>>,
}

/// Opens the socket in the state directory, for its owner alone, in place of what a daemon that died left there.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves at the socket until it is told to stop; one that somebody removed is opened again, beside those who came through the old one.
async fn keep(socket: PathBuf, first: UnixListener, (exports, guests): (Arc<dyn Exports>, Arc<Guests>), mut stop: watch::Receiver<bool>) {
    let mut served = JoinSet::new();
    let mut next = Some(first);
    loop {
        if let Some(listener) = next.take() {
            served.spawn(nbd::serve(Listener::Unix(listener), exports.clone(), guests.clone(), options(), stop.clone()));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => next = if socket.exists() { None } else { listen(&socket).ok() },
            () = stopped(&mut stop) => break,
        }
    }
    while served.join_next().await.is_some() {}
}

fn options() -> Options {
    Options { drain: DRAIN, ..Options::default() }
}

impl NbdDoor {
    /// Makes it, with nothing served yet.
    pub(crate) fn new(exec: &Exec, state: &StateDir, pools: &Arc<Pools>, tunables: &Arc<Tunables>) -> NbdDoor {
        NbdDoor {
            exports: VolumeExports::new(exec, pools, tunables),
            socket: state.nbd_socket(),
            guests: Arc::default(),
            running: Mutex::default(),
            address: Mutex::default(),
        }
    }

    /// Serves volumes to whoever connects from now on at the socket. Where that cannot be opened the daemon does without.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn serve(&self) -> io::Result<()> {
        let mut running = Running::new("z-nbd")?;
        let handle = running.handle().clone();
        let _inside = handle.enter();
        let exports: Arc<dyn Exports> = Arc::new(self.exports.clone());
        match listen(&self.socket) {
            Ok(listener) => {
                let stop = running.stop();
                running.serve(keep(self.socket.clone(), listener, (exports, self.guests.clone()), stop));
            }
            Err(error) => tracing::warn!("no volumes at {}: {error}", self.socket.display()),
        }
        *self.running.lock() = Some(running);
        Ok(())
    }

    /// Serves volumes to whoever connects from now on at a port, besides the socket; after [`NbdDoor::serve`] and before the end only.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn serve_at(&self, port: std::net::TcpListener) -> io::Result<()> {
        let mut running = self.running.lock();
        let Some(running) = running.as_mut() else { return Ok(()) };
        port.set_nonblocking(true)?;
        let address = port.local_addr()?;
        let handle = running.handle().clone();
        let _inside = handle.enter();
        let listener = Listener::Tcp(TcpListener::from_std(port)?);
        let exports: Arc<dyn Exports> = Arc::new(self.exports.clone());
        let stop = running.stop();
        running.serve(nbd::serve(listener, exports, self.guests.clone(), options(), stop));
        *self.address.lock() = Some(address);
        tracing::info!("volumes are served at {address} (NBD)");
        if !address.ip().is_loopback() {
            tracing::warn!("NBD knows no rights: whoever reaches {address} can read and write volumes that are shared");
        }
        Ok(())
    }

    /// Ends the listeners: what clients asked for is done first.
    pub(crate) fn end(&self) {
        if let Some(running) = self.stop() {
            running.end("clients of NBD");
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    /// Ends the listeners at once, and leaves their place to the next daemon.
    pub(crate) fn cut(&self) {
        if let Some(running) = self.stop() {
            running.cut();
        }
    }

    fn stop(&self) -> Option<Running> {
        *self.address.lock() = None;
        self.running.lock().take()
    }

    /// Sends clients away whose volume is not to be seen any more, after a request that changed some. Does not wait until they have gone.
    pub(crate) fn follow(&self) {
        let mut names: Vec<String> = self.guests.list().into_iter().map(|guest| guest.export).collect();
        names.sort();
        names.dedup();
        names.iter().filter(|name| !self.exports.may_stay(name)).for_each(|name| self.guests.end(name));
    }

    /// Does `zirconia target list` and `sessions`, as far as they are about NBD.
    pub(crate) fn report(&self) -> Response {
        let is_served = self.running.lock().is_some();
        let names = if is_served { self.exports.names() } else { Vec::new() };
        let mut exports: BTreeMap<String, Vec<String>> = names.into_iter().map(|name| (name, Vec::new())).collect();
        for guest in self.guests.list() {
            exports.entry(guest.export).or_default().push(guest.client);
        }
        let exports = exports.into_iter().map(|(volume, clients)| NbdExport { volume, clients }).collect();
        let socket = (is_served && self.socket.exists()).then(|| self.socket.to_string_lossy().into_owned());
        Response::Nbd(NbdReport { socket, address: self.address.lock().map(|address| address.to_string()), exports })
    }
}
