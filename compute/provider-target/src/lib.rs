//! The provider of disaggregated storage: device memory, operations and disks are a target's, at the other end of a socket.
//!
//! A program is one frame, its answer another: with the two programs of a record (docs/adr/0006), two round trips. Buffers are numbers;
//! they are made on the target by the first program that names them, and their release travels with a later one. So a
//! record's bytes cross the link once, and what is computed from them, compressed data and parity, never does.
//!
//! On one machine, over a Unix socket, a record's bytes go through memory that both share, in both directions, as long as slots of it are free;
//! else, and over TCP, they are in the frames. What is sent again always is, so nothing depends on that memory.
//!
//! A connection that fails is made again, the session goes on, and what was not answered is sent again under its old number: the
//! target knows what it did. When that does not succeed within the session's lease, or the target has forgotten the session, the provider is
//! down for good: every program ends with [`OpError::Down`], and somebody connects anew and replaces it in the registry.
//!
//! Invariants: nothing here waits but [`TargetProvider::connect`] and opening a store; threads of operations read and write the link, so an
//! executor with threads is needed; no lock is held while a program ends or the link is used.
#![forbid(unsafe_code)]

mod connect;
mod encode;
mod link;
mod location;
mod slots;
mod state;
mod stats;

pub use connect::ConnectError;
pub use location::{Location, LocationError};
pub use stats::LinkStats;
pub use target_wire::Address;

use connect::{Link, open_link, shake_hands};
use dpusm::{Capabilities, DeviceHandle, MemoryStats, OpError, Program, Provider, StoreTarget};
use encode::{RemoteBuffer, RemoteStore};
use exec::Exec;
use state::Shared;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use target_wire::{Connection, Secret, Welcome};

/// Most attempts of the first connection: a damaged handshake is tried again.
const ATTEMPTS: usize = 5;

/// Which target, and how it is called here.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// The provider's name.
    pub name: String,
    /// Where the target listens.
    pub address: Address,
    /// What both know.
    pub secret: Secret,
    /// How long connecting and each step of the handshake may take.
    pub timeout: Duration,
    /// Bytes of memory to share with a target on this machine, over a Unix socket; 0 for none.
    pub shared_bytes: u64,
    /// A connection that failed is made again.
    pub reconnects: bool,
}

impl TargetOptions {
    /// Memory to share, where nobody says otherwise: 32 records of 1 MiB.
    pub const SHARED_BYTES: u64 = 32 << 20;

    /// A target at `address`, with five seconds for each step.
    pub fn new(name: &str, address: Address, secret: Secret) -> TargetOptions {
        TargetOptions {
            name: name.to_string(),
            address,
            secret,
            timeout: Duration::from_secs(5),
            shared_bytes: TargetOptions::SHARED_BYTES,
            reconnects: true,
        }
    }

    /// A target at the other end of a pair of sockets, for [`TargetProvider::over`]: there is one connection, and no other.
    pub fn private(name: &str, secret: Secret) -> TargetOptions {
        TargetOptions { reconnects: false, ..TargetOptions::new(name, Address::Unix("-".into()), secret) }
    }
}

/// See the module.
pub struct TargetProvider {
    name: String,
    shared: Arc<Shared>,
}

impl fmt::Debug for TargetProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetProvider({} at {})", self.name, self.shared.options.address)
    }
}

impl TargetProvider {
    /// Connects to a target and begins a session. Waits: for operations only.
    ///
    /// # Errors
    /// Why there is no session.
    pub fn connect(exec: &Exec, options: &TargetOptions) -> Result<Arc<TargetProvider>, ConnectError> {
        if exec.is_inline() {
            return Err(ConnectError::NoThreads);
        }
        let mut attempt = 1;
        let (link, welcome): (Link, _) = loop {
            match open_link(options, None, options.timeout, &mut || {}) {
                Ok(opened) => break opened,
                Err(ConnectError::Broken(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        Ok(TargetProvider::begin(exec, options, link, welcome))
    }

    /// Begins a session over a connection that is there. Waits: for operations only.
    ///
    /// # Errors
    /// Why there is no session.
    pub fn over(exec: &Exec, options: &TargetOptions, connection: Connection) -> Result<Arc<TargetProvider>, ConnectError> {
        if exec.is_inline() {
            return Err(ConnectError::NoThreads);
        }
        let (link, welcome) = shake_hands(options, connection, None, options.timeout, &mut || {})?;
        Ok(TargetProvider::begin(exec, options, link, welcome))
    }

    fn begin(exec: &Exec, options: &TargetOptions, link: Link, welcome: Welcome) -> Arc<TargetProvider> {
        let shared = Shared::new(exec, options, welcome);
        let own = shared.clone();
        // It ends by itself, when the provider is dropped or shut down.
        drop(exec.spawn_operation("z-target-link", Box::new(move || link::run(&own, link))));
        Arc::new(TargetProvider { name: options.name.clone(), shared })
    }

    /// What crossed the link so far, and what went through shared memory instead.
    pub fn stats(&self) -> LinkStats {
        self.shared.counters.read()
    }

    /// True when the session is lost: every program ends with `Down` from then on.
    pub fn is_down(&self) -> bool {
        self.shared.is_down()
    }

    /// Nanoseconds for which it has owed its oldest answer; 0 when it owes none.
    pub fn owes_ns(&self) -> u64 {
        self.shared.owes_ns()
    }

    /// Takes the session for lost.
    pub fn give_up(&self) {
        self.shared.go_down();
    }

    /// True when the session is lost, or the provider was shut down; waits for that, up to `time`. For operations only.
    pub fn ended_within(&self, time: Duration) -> bool {
        self.shared.ended_within(time)
    }

    /// Waits until the session is lost, or the provider was shut down. For operations only.
    pub fn wait_for_end(&self) {
        self.shared.wait_for_end();
    }
}

impl Drop for TargetProvider {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Provider for TargetProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.shared.welcome.about
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.welcome.capabilities.clone()
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.shared.alloc(bytes).map(DeviceHandle::new)
    }

    fn free(&self, handle: DeviceHandle) {
        if let Some(buffer) = handle.into_own::<RemoteBuffer>() {
            self.shared.free(&buffer);
        }
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        self.shared.submit(programs);
        Ok(())
    }

    /// Asks the target: it has to be there, and one that hosts may write. Waits for the answer, up to the lease.
    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.shared.open(target).map(DeviceHandle::new)
    }

    fn close(&self, handle: DeviceHandle) {
        if let Some(store) = handle.into_own::<RemoteStore>() {
            self.shared.close_store(&store);
        }
    }

    fn memory(&self) -> Option<MemoryStats> {
        Some(self.shared.memory())
    }

    fn shut_down(&self) {
        self.shared.close();
    }
}
