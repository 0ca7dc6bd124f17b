//! A session with a target as a [`Provider`]: begun here, run by the threads of its `link`, whose state (`state`) it asks and changes. It knows
//! no frame.

use crate::connect::{ConnectError, Link, open_link, shake_hands};
use crate::encode::{RemoteBuffer, RemoteStore};
use crate::link;
use crate::options::TargetOptions;
use crate::state::Shared;
use crate::stats::LinkStats;
use dpusm::{Capabilities, DeviceHandle, MemoryStats, OpError, Program, Provider, StoreTarget};
use exec::Exec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use target_wire::{Connection, Welcome};

/// Most attempts of the first connection: a damaged handshake is tried again.
const ATTEMPTS: u32 = 5;

/// See the crate.
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
                Err(ConnectError::Broken(_) | ConnectError::Silent(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(ConnectError::Silent(time)) => return Err(ConnectError::Silent(time * attempt)),
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

    /// Counts of what crossed the link so far, and of what went through shared memory instead.
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

    /// Opens a store by asking the target: it has to be there, and one that hosts may write. Waits for the answer, up to the lease.
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

    /// A target whose connection is gone goes on until the lease is over.
    fn lingers_ns(&self) -> u64 {
        self.shared.lingers_ns()
    }

    fn shut_down(&self) {
        self.shared.close();
    }
}
