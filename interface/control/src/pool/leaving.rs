//! Pools on their way out: who asks for one by name waits for its end.
//!
//! A script that sees the pool and destroys it must not find it gone in between. OpenZFS waits in `spa_lookup` while a pool has an export
//! thread, without a bound; here a pool whose devices don't answer is shown all the same after a while.

use exec::{Condvar, Exec, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Nanoseconds that a request waits for pools that are being exported or destroyed.
const LEAVE_NS: u64 = 15_000_000_000;

/// Names of pools that are being closed, each with the number of operations that close it.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    names: Mutex<BTreeMap<String, u32>>,
    changed: Condvar,
}

/// Pool that is being closed as long as this is there.
#[derive(Debug)]
pub(crate) struct Departure {
    leaving: Arc<Leaving>,
    name: String,
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut names = self.leaving.names.lock();
        if let Some(count) = names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.name);
            }
        }
        self.leaving.changed.notify_all();
    }
}

impl Leaving {
    /// Notes that a pool is being closed.
    pub(crate) fn begin(self: &Arc<Self>, name: &str) -> Departure {
        *self.names.lock().entry(name.to_string()).or_default() += 1;
        Departure { leaving: self.clone(), name: name.to_string() }
    }

    /// True while a pool is being closed.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.lock().contains_key(name)
    }

    /// Waits until none of these pools is being closed, or `is_vain`, up to a while.
    pub(crate) fn wait(&self, exec: &Exec, pools: &[&str], is_vain: impl Fn() -> bool) {
        const STEP_NS: u64 = 25_000_000;
        let until = exec.now_ns().saturating_add(LEAVE_NS);
        let mut names = self.names.lock();
        while pools.iter().any(|pool| names.contains_key(*pool)) && exec.now_ns() < until && !is_vain() {
            self.changed.wait_for(&mut names, Duration::from_nanos(STEP_NS));
        }
    }
}
