//! Whether a pool that was found could be imported, and why not (OpenZFS: `spa_tryimport`). Reads labels and the MOS, and changes nothing.

use super::base::Runtime;
use super::find::FoundPool;
use super::{ImportOptions, Start, check_dedup, check_label_features, check_version};
use crate::spa::features::Features;
use crate::spa::mos_objects::load_biases;
use crate::{FEATURES, PoolError};
use exec::Exec;
use std::sync::Arc;
use vdev::VdevTree;

/// Findings about a pool that is not open.
#[derive(Debug, Default)]
pub struct Examined {
    /// Vdevs of the pool: as the pool itself has them, or else as far as labels tell.
    pub tree: Option<VdevTree>,
    /// Error that keeps the pool from being imported for writing; None when there is none.
    pub problem: Option<PoolError>,
    /// True when the pool has feature flags, and lacks one that new pools have.
    pub lacks_features: bool,
}

impl FoundPool {
    /// Looks whether the pool can be imported. Whether another host uses it is for the caller to judge.
    pub fn examine(&self, exec: &Exec, runtime: &Runtime) -> Examined {
        let mut examined = Examined { tree: self.tree().ok(), ..Examined::default() };
        examined.problem = examined.look(self, exec, runtime).err();
        // Where devices are now, which an import will use: labels tell where they were when the pool was written.
        if let Some(tree) = &mut examined.tree {
            let devices = self.devices_of(tree);
            for (leaf, device) in tree.leaves.iter_mut().zip(&devices) {
                if let Some(device) = device {
                    leaf.path = device.path().to_string_lossy().into_owned();
                }
            }
        }
        examined
    }
}

impl Examined {
    fn look(&mut self, found: &FoundPool, exec: &Exec, runtime: &Runtime) -> Result<(), PoolError> {
        // What may be missing at a read-only import keeps the pool from being written all the same.
        let runtime = &Runtime { max_missing_tops: 0, ..runtime.clone() };
        let ub = found.best.clone().ok_or(PoolError::NoUberblock)?;
        check_version(ub.ub_version)?;
        check_label_features(found)?;
        let mut start = Start::new(exec, found, (runtime, 0), &ub)?;
        let features = Arc::new(Features::open(start.objset())?);
        let lacks = |guid| !features.is_enabled(guid);
        self.lacks_features = features.exist() && FEATURES.iter().any(|feature| feature.on_new_pools && lacks(feature.guid));
        features.check(true)?;
        start.trust_config(found, &ImportOptions { read_only: true, ..ImportOptions::default() }, runtime)?;
        self.tree = Some(start.tree.clone());
        features.check(false)?;
        check_dedup(start.objset())?;
        start.salt.check(&features)?;
        load_biases(&start.objset().clone(), &mut start.tree)?;
        start.check_intent_logs(&ub, &features, runtime)
    }
}
