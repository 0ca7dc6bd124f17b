//! What all connections share: devices, limits, budget; and what is known of each of them.

use crate::budget::Budget;
use exec::{Exec, Mutex};
use osd::Device;
use rustix::io::Errno;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Port: device that is open, and whatever goes with it, as long as somebody has it.
pub trait Opened: Send + Sync {
    /// Device.
    fn device(&self) -> &Arc<Device>;
}

/// Port: devices by the names of their datasets. Everybody who asks for one dataset gets the same device, as long as somebody has it.
pub trait Devices: Send + Sync {
    /// Opens a device, or gives the one that is open.
    ///
    /// # Errors
    /// Why not, for the client.
    fn open(&self, dataset: &str) -> Result<Arc<dyn Opened>, Errno>;
}

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections at the same time.
    pub connections_max: usize,
    /// Bytes of memory that one connection shares.
    pub memory_bytes_max: u64,
    /// Bytes of objects that one request moves.
    pub request_bytes_max: u64,
    /// Bytes of the blocks that one transaction writes parts of, or all of: a few bytes in each of many blocks make all of them dirty.
    pub touched_bytes_max: u64,
    /// Bytes of objects that the requests of all connections move at the same time.
    pub budget_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections_max: 64,
            memory_bytes_max: 1 << 30,
            request_bytes_max: 64 << 20,
            touched_bytes_max: 1 << 30,
            budget_bytes: 256 << 20,
        }
    }
}

/// Place of a connection.
pub(crate) struct Seat {
    /// Number of the connection; what is granted is granted to it.
    pub(crate) number: u64,
    /// Dataset that it has open, or is about to.
    pub(crate) dataset: Mutex<Option<String>>,
    /// Socket, to end it.
    pub(crate) stream: UnixStream,
}

/// Things that all connections share.
pub(crate) struct Context {
    pub(crate) exec: Exec,
    pub(crate) devices: Arc<dyn Devices>,
    pub(crate) options: Options,
    pub(crate) budget: Arc<Budget>,
}
