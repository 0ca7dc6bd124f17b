//! Datasets whose objects programs have (docs/osd-protocol.md): while they do, nothing mounts, renames or destroys them.
//!
//! Who takes a dataset enters it here first, and looks at mounts and bars then; who mounts or bars has noted that before it looks here.

use exec::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Way to end the programs that have a dataset.
pub(crate) type Cut = Arc<dyn Fn() + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct Stored(Mutex<BTreeMap<String, Cut>>);

/// Entry of a dataset, which ends with this.
pub(crate) struct Storing {
    stored: Arc<Stored>,
    name: String,
}

impl Stored {
    /// Enters a dataset; none while it is entered.
    pub(crate) fn enter(self: &Arc<Self>, name: &str, cut: Cut) -> Option<Storing> {
        let mut stored = self.0.lock();
        if stored.contains_key(name) {
            return None;
        }
        stored.insert(name.to_string(), cut);
        Some(Storing { stored: self.clone(), name: name.to_string() })
    }

    /// Name of an entered dataset that is meant.
    pub(crate) fn find(&self, is_meant: &dyn Fn(&str) -> bool) -> Option<String> {
        self.0.lock().keys().find(|name| is_meant(name)).cloned()
    }

    /// Ends all programs that have datasets, and waits a while for their ends.
    pub(crate) fn cut_all(&self) {
        let cuts: Vec<Cut> = self.0.lock().values().cloned().collect();
        cuts.iter().for_each(|cut| cut());
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.stored.0.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// If this fails, a dataset is mounted beside a program that has its objects, or is busy for ever after one.
    #[test]
    fn a_dataset_is_entered_once_and_as_long_as_somebody_has_it() {
        let (stored, ends) = (Arc::<Stored>::default(), Arc::<AtomicU32>::default());
        let cut = |ends: &Arc<AtomicU32>| -> Cut {
            let ends = ends.clone();
            Arc::new(move || {
                ends.fetch_add(1, Ordering::Relaxed);
            })
        };
        let first = stored.enter("tank/a", cut(&ends)).expect("entered");
        assert!(stored.enter("tank/a", cut(&ends)).is_none() && stored.find(&|name| name == "tank/b").is_none());
        assert_eq!(stored.find(&|name| name.starts_with("tank/")), Some("tank/a".to_string()));
        stored.cut_all();
        assert_eq!(ends.load(Ordering::Relaxed), 1);
        drop(first);
        assert!(stored.enter("tank/a", cut(&ends)).is_some());
    }
}
