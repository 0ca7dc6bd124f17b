//! Settings and questions that a file system is opened with when it is to be served.

use std::sync::Arc;
use zil::Arena;
use zpl::Settings;
use zpl::direct::Tunables;

/// Notes that a snapshot was entered.
type Entered = Box<dyn Fn() + Send + Sync>;

/// Settings and questions that a file system is opened with, to be served.
pub struct Opens {
    /// Behaviour that follows properties.
    pub settings: Settings,
    /// Parameters of direct I/O.
    pub direct: Arc<Tunables>,
    /// True when the kernel keeps what programs write for a while.
    pub writes_back: bool,
    /// True when the kernel keeps to POSIX access control lists.
    pub enforces_lists: bool,
    /// Question whether the pool is suspended.
    pub is_suspended: Box<dyn Fn() -> bool + Send + Sync>,
    /// Question whether a program works in a snapshot of the file system.
    pub works_in: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Arena of the pool, where mounts outlive a daemon that dies, and who notes that a snapshot was entered.
    pub arena: Option<(Arc<Arena>, Entered)>,
}
