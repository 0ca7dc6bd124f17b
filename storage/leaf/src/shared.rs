//! What all leaves of a pool share: the executor, the parameters, and who is told.

use crate::extended::LeafTiming;
use crate::flights::Flights;
use crate::inject::Injection;
use crate::tuning::Tuning;
use exec::{Exec, Mutex, TaskClass};
use ondisk::Guid;
use std::sync::{Arc, Weak};

/// Port: told what devices do that may be worth an event. Implemented above.
pub trait Watcher: Send + Sync {
    /// An I/O of the leaf took so long that it is to be told.
    fn slow(&self, leaf: Guid, io: &LeafTiming);
    /// An I/O of the leaf came back after it had hung for this many nanoseconds, and nobody looked meanwhile.
    fn overlooked(&self, leaf: Guid, age_ns: u64);
}

/// Port: background work that can go on anywhere. Implemented above.
pub trait Roaming: Send + Sync {
    /// A leaf that had nothing for him to do may have something now. Called in a job; must not wait.
    fn go_on(self: Arc<Self>);
}

/// Things that the leaves of one pool share.
pub(crate) struct Shared {
    pub(crate) exec: Exec,
    pub(crate) tuning: Tuning,
    pub(crate) injection: Injection,
    pub(crate) flights: Arc<Flights>,
    pub(crate) watcher: Weak<dyn Watcher>,
    /// Background work that can go on anywhere, if there is some.
    roaming: Mutex<Option<Weak<dyn Roaming>>>,
}

impl Shared {
    pub(crate) fn new(exec: Exec, watcher: Weak<dyn Watcher>) -> Shared {
        let (tuning, injection, flights) = (Tuning::new(), Injection::default(), Arc::default());
        Shared { exec, tuning, injection, flights, watcher, roaming: Mutex::default() }
    }

    pub(crate) fn set_roaming(&self, roaming: Option<Weak<dyn Roaming>>) {
        *self.roaming.lock() = roaming;
    }

    /// A leaf may have something to do for whoever was turned away.
    pub(crate) fn call_roaming(&self) {
        let Some(roaming) = self.roaming.lock().as_ref().and_then(Weak::upgrade) else { return };
        self.exec.spawn(TaskClass::Background, Box::new(move || roaming.go_on()));
    }
}
