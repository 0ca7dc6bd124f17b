//! Spares that wait are held open, so that nobody makes a file system on a disk that seems to be free (OpenZFS: `spa_load_spares`). Pools that
//! share a spare share its device too. Files are not held: nothing but a pool would take one for a disk.

use crate::pool::Pools;
use device::{BlockDevice, OpenOptions};
use exec::Mutex;
use pool::LeafSpec;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use vdev::LeafKind;

/// Devices of spares that are held, by device number.
#[derive(Default)]
pub(crate) struct Reserved(Mutex<BTreeMap<u64, Arc<dyn BlockDevice>>>);

/// Device number of the block device that a path leads to.
fn number_of(path: &str) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| metadata.rdev())
}

impl Reserved {
    /// Device at a path, when it is held as a spare: nobody else can open it, the pools here neither.
    pub(crate) fn at(&self, path: &str) -> Option<Arc<dyn BlockDevice>> {
        self.0.lock().get(&number_of(path)?).cloned()
    }

    /// Goes on to hold the devices of new spares, which are open already.
    pub(crate) fn reserve(&self, spares: &[LeafSpec]) {
        let mut held = self.0.lock();
        for spare in spares.iter().filter(|spare| spare.kind == LeafKind::Disk) {
            held.extend(number_of(&spare.path).map(|number| (number, spare.device.clone())));
        }
    }

    /// Holds the spares of all pools that are open, and lets go of what is none any more. One that stands in for a device is held by its
    /// pool.
    pub(crate) fn hold_spares(&self, pools: &Pools) {
        let pools: Vec<_> = pools.all().into_iter().filter(|open| !open.is_read_only()).collect();
        let spares = pools.iter().flat_map(|open| open.pool().spares()).filter(|spare| !spare.is_distributed());
        let wanted: BTreeMap<u64, String> = spares.filter_map(|spare| Some((number_of(&spare.path)?, spare.path))).collect();
        let missing: Vec<(u64, String)> = {
            let mut held = self.0.lock();
            held.retain(|number, _| wanted.contains_key(number));
            wanted.into_iter().filter(|(number, _)| !held.contains_key(number)).collect()
        };
        for (number, path) in missing {
            let options = OpenOptions { exclusive: true, ..OpenOptions::default() };
            if let Ok(device) = device::open(Path::new(&path), &options) {
                self.0.lock().insert(number, device);
            }
        }
    }
}
