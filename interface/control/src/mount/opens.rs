//! Settings and questions that a file system is opened with when it is to be served.

use std::sync::Arc;
use zil::Arena;
use zpl::direct::Tunables;
use zpl::{Settings, Zfs};

/// Notes that a snapshot was entered.
type Entered = Box<dyn Fn() + Send + Sync>;

/// Settings and questions that a file system is opened with, to be served.
pub struct Opens {
    /// Behaviour that follows properties.
    pub settings: Settings,
    /// Accounts that the pool keeps, by flags of object sets.
    pub accounts: u64,
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

impl Opens {
    /// Tells a file system that can be changed what its pool accounts for. What it lacks of that is counted in the background: from now on, or, mounted
    /// read-only, from its first change on.
    pub(crate) fn account(&self, zfs: &Zfs) {
        zfs.want_accounts(self.accounts);
        if !self.settings.read_only {
            zfs.begin_accounts();
        }
    }
}
