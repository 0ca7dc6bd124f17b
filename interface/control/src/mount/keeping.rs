//! What the process that watches the daemon, the keeper, has of it for the next one (docs/adr/0018).

use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::path::Path;

/// Notes that one daemon leaves to the next.
#[derive(Debug, Default)]
pub struct Heritage {
    /// Connections to the kernel, by their numbers.
    pub connections: BTreeMap<u32, OwnedFd>,
    /// Notes on them.
    pub notes: Vec<u8>,
    /// Things that a daemon which died had the keeper hold, by their numbers.
    pub held: BTreeMap<u32, Heirloom>,
}

/// Something that a daemon which died had the keeper hold.
#[derive(Debug)]
pub struct Heirloom {
    /// Notes on it.
    pub notes: Vec<u8>,
    /// Connection of a mount, or arena of a pool.
    pub descriptor: OwnedFd,
}

/// Process that has the connections between two daemons, and starts the next.
pub trait Keeper: Send + Sync {
    /// Gives everything to the keeper; `program` is to be the next daemon.
    ///
    /// # Errors
    /// Those of the system; the keeper has nothing then.
    fn keep(&self, heritage: Heritage, program: &Path) -> std::io::Result<()>;
    /// Has the keeper let go of a connection: it is served from now on.
    fn taken(&self, number: u32);
    /// Has the keeper let go of all that nobody went on with: nothing is left to be given.
    fn done(&self);
    /// True when it can hold things from their beginning.
    fn can_hold(&self) -> bool;
    /// Has the keeper hold something for the next daemon, should this one die; what it had by this number goes.
    ///
    /// # Errors
    /// Those of the system.
    fn hold(&self, number: u32, notes: &[u8], descriptor: BorrowedFd<'_>) -> std::io::Result<()>;
    /// Has the keeper let go of something that has ended.
    fn let_go(&self, number: u32);
}
