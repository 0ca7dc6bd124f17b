//! The helper's side: a process that loads one library and lends it to whoever has the other end of its standard input.

use crate::SECRET;
use crate::hello::Hello;
use dpusm::{HostStore, NoHost, QueueLimits, Registry, StoreKind};
use exec::{Exec, Pool};
use provider_c::CProvider;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use target_server::{Stores, Target, TargetSetup};
use target_wire::{Connection, Secret};

/// The session outlives everything that is no end of one of the two processes.
const LEASE_NS: u64 = 3_600_000_000_000;
/// Memory is the library's to refuse.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// Programs at a time, if the library says more.
const GRAPHS_MAX: usize = 1024;

/// Libraries open files and disks themselves, or not at all.
struct OwnStores;

impl Stores for OwnStores {
    fn open(&self, _kind: StoreKind, _path: &Path) -> Result<Arc<dyn HostStore>, i32> {
        Ok(Arc::new(NoHost))
    }
}

/// Ends this process, whatever its threads do, once nobody is at the other end.
fn end_with(connection: &UnixStream) -> io::Result<()> {
    let connection = connection.try_clone()?;
    let wait = move || {
        let mut watched = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::empty())];
        loop {
            // Nothing is asked for but what is always told: that the other end is closed.
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => break,
                _ => {}
            }
        }
        // The library's own ways to end may not end.
        let _ = kill_process(getpid(), Signal::KILL);
    };
    std::thread::Builder::new().name("z-provider-end".into()).spawn(wait).map(drop)
}

/// Loads the library and serves it until nobody is at the other end.
///
/// # Errors
/// Those of the connection; that the system starts no threads.
pub fn serve(library: &Path) -> io::Result<()> {
    let connection = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    end_with(&connection)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let exec: Exec = Arc::new(Pool::start(cores.max(2), 0)?);
    let provider = match CProvider::load(&exec, library) {
        Ok(provider) => provider,
        Err(error) => return Hello::Failed { why: error.to_string() }.write(&mut &connection),
    };
    let hello =
        Hello::Loaded { name: dpusm::Provider::name(&*provider).to_string(), about: dpusm::Provider::version(&*provider).to_string() };
    // Whoever uses it judges it.
    let device = Registry::new(&exec).unjudged(provider);
    let Ok(secret) = Secret::new(SECRET) else { return Ok(()) };
    let setup = TargetSetup {
        lease_ns: LEASE_NS,
        memory_bytes_max: MEMORY_BYTES_MAX,
        sessions_max: 1,
        submits_in_jobs: true,
        queue: QueueLimits { graphs_max: GRAPHS_MAX, bytes_max: u64::MAX },
        ..TargetSetup::new(secret)
    };
    let target = Target::new(&exec, device, setup, Arc::new(OwnStores));
    hello.write(&mut &connection)?;
    target.serve(Connection::Unix(connection));
    Ok(())
}
