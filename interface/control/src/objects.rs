//! Door of objects to other processes: datasets as object storage devices, at a socket in the state directory (docs/osd-protocol.md).
//!
//! A dataset is opened when a program asks for it, and is in use as long as one has it. The list of those that are open is locked while one is opened,
//! so that there are never two devices of one dataset.

use crate::mount::stored::{Cut, Storing};
use crate::pool::opening::Opening;
use crate::pool::{OpenPool, Pools};
use control_api::StateDir;
use dsl::{DatasetHandle, DslError};
use exec::{Exec, Mutex};
use ondisk::ObjsetType;
use osd::Device;
use osd_server::{Devices, Listening, Opened, Options, Server, errno_of};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use zpl::direct::{Direct, Tunables};

/// Nanoseconds that programs which are cut off have for what they do at that moment.
const CUT_NS: u64 = 5_000_000_000;
/// Number of looks whether a dataset that its last program just left can be opened again …
const LOOKS: u32 = 50;
/// … and nanoseconds between two.
const LOOK_NS: u64 = 10_000_000;

/// Device that programs have, and the entry of its dataset, which ends after it.
struct Kept {
    device: Arc<Device>,
    _entry: Storing,
}

impl Opened for Kept {
    fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

/// Datasets as devices.
struct StoredDevices {
    exec: Exec,
    pools: Arc<Pools>,
    opening: Arc<Opening>,
    tunables: Arc<Tunables>,
    server: OnceLock<Weak<Server>>,
    /// Devices that are open, by the number of their pool's opening and their dataset's object.
    open: Mutex<BTreeMap<(u64, u64), Weak<Kept>>>,
}

fn dataset_errno(error: DslError) -> Errno {
    match error {
        DslError::NotFound => Errno::NOENT,
        DslError::NoKey => Errno::ACCESS,
        error => errno_of(error.into()),
    }
}

impl StoredDevices {
    /// Way to end the programs that have this dataset.
    fn cut(&self, name: &str) -> Cut {
        let (server, name) = (self.server.get().cloned().unwrap_or_default(), name.to_string());
        Arc::new(move || {
            if let Some(server) = server.upgrade() {
                server.cut(CUT_NS, |dataset| dataset == name);
            }
        })
    }

    /// Enters a dataset in what is in use of its pool.
    fn enter(&self, pool: &OpenPool, name: &str) -> Result<Storing, Errno> {
        for _ in 0..LOOKS {
            if let Some(entry) = pool.mounts.stored.enter(name, self.cut(name)) {
                return if pool.mounts.is_taken(name) { Err(Errno::BUSY) } else { Ok(entry) };
            }
            self.exec.sleep_ns(LOOK_NS);
        }
        Err(Errno::BUSY)
    }

    /// Dataset that can be a device, and its pool.
    fn find(&self, name: &str) -> Result<(Arc<OpenPool>, DatasetHandle), Errno> {
        if self.pools.is_stopping() {
            return Err(Errno::SHUTDOWN);
        }
        let pool = name.split('/').next().and_then(|pool| self.pools.get(pool)).ok_or(Errno::NOENT)?;
        // What the daemon before had mounted comes back first: who took it meanwhile would end those mounts.
        if self.opening.is_running() || pool.pool().zio().is_suspended() {
            return Err(Errno::AGAIN);
        }
        let handle = pool.dsl().hold(name).map_err(dataset_errno)?;
        let is_whole = !handle.is_inconsistent() && !handle.is_withheld();
        let is_fit = !handle.is_snapshot() && is_whole && handle.kind().map_err(dataset_errno)? == ObjsetType::ZFS;
        if is_fit { Ok((pool, handle)) } else { Err(Errno::INVAL) }
    }
}

impl Devices for StoredDevices {
    fn open(&self, dataset: &str) -> Result<Arc<dyn Opened>, Errno> {
        let (pool, handle) = self.find(dataset)?;
        let place = (pool.load_guid(), handle.object());
        let mut open = self.open.lock();
        if let Some(kept) = open.get(&place).and_then(Weak::upgrade) {
            return Ok(kept);
        }
        open.retain(|_, kept| kept.strong_count() > 0);
        let entry = self.enter(&pool, dataset)?;
        let direct = Direct { tunables: self.tunables.clone(), stats: pool.mounts.direct_of(dataset) };
        let device = Device::open(handle, direct).map_err(errno_of)?;
        let kept = Arc::new(Kept { device, _entry: entry });
        open.insert(place, Arc::downgrade(&kept));
        Ok(kept)
    }
}

/// See the module.
pub(crate) struct ObjectsDoor {
    socket: PathBuf,
    server: Arc<Server>,
    listening: Mutex<Option<Listening>>,
}

impl ObjectsDoor {
    /// Makes it, with nothing served yet.
    pub(crate) fn new(
        exec: &Exec,
        state: &StateDir,
        (pools, opening): (&Arc<Pools>, &Arc<Opening>),
        tunables: &Arc<Tunables>,
    ) -> ObjectsDoor {
        let devices = Arc::new(StoredDevices {
            exec: exec.clone(),
            pools: pools.clone(),
            opening: opening.clone(),
            tunables: tunables.clone(),
            server: OnceLock::new(),
            open: Mutex::default(),
        });
        let server = Server::new(exec, devices.clone(), Options::default());
        // It is set once.
        let _ = devices.server.set(Arc::downgrade(&server));
        ObjectsDoor { socket: state.osd_socket(), server, listening: Mutex::default() }
    }

    /// Serves programs that connect from now on. Where the socket cannot be opened the daemon does without.
    pub(crate) fn serve(&self) {
        match self.server.listen(&self.socket) {
            Ok(listening) => *self.listening.lock() = Some(listening),
            Err(error) => tracing::warn!("no objects at {}: {error}", self.socket.display()),
        }
    }

    /// Ends the programs, after what they do at this moment.
    pub(crate) fn end(&self) {
        let listening = self.listening.lock().take();
        drop(listening);
        self.server.end(CUT_NS);
    }
}
