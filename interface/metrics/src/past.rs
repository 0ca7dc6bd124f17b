//! Counters of caches that are gone: those of a process only grow, whichever pools it has open (OpenZFS: `arc_stats`).

use crate::names::is_gauge;
use arc::Cache;
use exec::Mutex;
use kstat::Value;
use std::collections::BTreeMap;

/// Sums of the counters of caches that are gone. Its owner adds a cache when its pool was closed.
#[derive(Debug, Default)]
pub struct Past(Mutex<BTreeMap<String, u64>>);

impl Past {
    /// Adds the counters of a cache that nobody uses any more; not its sizes.
    pub fn add(&self, cache: &Cache) {
        let kstat = cache.kstat();
        let mut sums = self.0.lock();
        for (name, value) in kstat.values() {
            if let Value::U64(value) = value
                && !is_gauge(name)
            {
                let sum = sums.entry(name.to_string()).or_default();
                *sum = sum.wrapping_add(value);
            }
        }
    }

    /// The sums by name.
    pub(crate) fn sums(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}
