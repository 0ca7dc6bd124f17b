//! Degraded reads feed the resilver: what was read because somebody wanted it need not be read again.
//!
//! A feed passes the gate like every read of the scan. So nothing is written to a place that was given to another block meanwhile: the
//! read must have begun after the sync before last, and the block must not be among what was freed since.
//!
//! What was fed is remembered until the scan ends, not across imports: then it is read again, and found right.

use crate::gate::Entry as Pass;
use crate::scan::Scan;
use exec::Mutex;
use ondisk::{BlockPtr, Txg, VdevId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use zio::ResilverFeed;

/// Blocks remembered; the scan reads the others again.
const REMEMBERED_MAX: usize = 1 << 20;

/// The blocks that feeds brought to all that lacked them.
#[derive(Debug, Default)]
pub(crate) struct Fed {
    active: AtomicBool,
    any: AtomicBool,
    /// Births by place.
    blocks: Mutex<HashMap<(VdevId, u64), Txg>>,
}

impl Fed {
    /// A resilver begins, goes on after an import, or ends: what was remembered is forgotten.
    pub(crate) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
        self.any.store(false, Ordering::Release);
        self.blocks.lock().clear();
    }

    /// True when nobody lacks the block any more.
    pub(crate) fn contains(&self, bp: &BlockPtr) -> bool {
        let place = bp.dva(0);
        self.any.load(Ordering::Acquire) && self.blocks.lock().get(&(place.vdev, place.offset)) == Some(&bp.physical_birth())
    }

    fn remember(&self, bp: &BlockPtr) {
        let mut blocks = self.blocks.lock();
        // Only the copy that was read was fed; a gang's members lie elsewhere.
        if bp.dvas().count() == 1 && !bp.is_gang() && blocks.len() < REMEMBERED_MAX {
            let place = bp.dva(0);
            blocks.insert((place.vdev, place.offset), bp.physical_birth());
            self.any.store(true, Ordering::Release);
        }
    }
}

/// The scan, as long as it is there.
pub(crate) struct Feeder {
    pub(crate) fed: Arc<Fed>,
    pub(crate) scan: Weak<Scan>,
}

impl ResilverFeed for Feeder {
    fn mark(&self) -> Option<u64> {
        // Every read of the pool comes by here: no more than a load when nothing is being resilvered.
        if !self.fed.active.load(Ordering::Acquire) {
            return None;
        }
        self.scan.upgrade().map(|scan| scan.generation.load(Ordering::Acquire))
    }

    fn begin(&self, bp: &BlockPtr, mark: u64) -> bool {
        let Some(scan) = self.scan.upgrade() else { return false };
        if scan.gate.try_enter(bp.asize()) != Pass::Granted {
            return false;
        }
        let recent = scan.generation.load(Ordering::Acquire) <= mark + 1;
        let granted = recent && scan.fed.active.load(Ordering::Acquire) && !scan.frees.contains(bp);
        if !granted {
            scan.gate.leave(bp.asize());
        }
        granted
    }

    fn end(&self, bp: &BlockPtr, written: bool) {
        let Some(scan) = self.scan.upgrade() else { return };
        if written {
            scan.fed.remember(bp);
        }
        scan.gate.leave(bp.asize());
    }
}
