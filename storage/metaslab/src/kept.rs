//! Space of a checkpoint: blocks that it has stay allocated when they are freed, until it goes (OpenZFS: `ms_checkpointing`).

use exec::Mutex;
use ondisk::{Txg, VdevId};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Freed segments of a metaslab that a checkpoint keeps: vdev offsets, sorted, disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSpace {
    /// Vdev that the metaslab is of.
    pub vdev: VdevId,
    /// Index of the metaslab.
    pub metaslab: u32,
    /// The segments.
    pub segments: Vec<Range<u64>>,
}

/// Freed segments that the checkpoint keeps and that nobody took yet.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Txg of the checkpoint; 0 without one.
    checkpoint: AtomicU64,
    segments: Mutex<BTreeMap<(VdevId, u32), RangeTree>>,
}

impl Kept {
    pub(crate) fn set_checkpoint(&self, txg: Txg) {
        self.checkpoint.store(txg.0, Ordering::Release);
    }

    /// True for a block that the checkpoint has; what is freed in its own txg, or before, it lacks.
    pub(crate) fn has(&self, born: Txg, freed: Txg) -> bool {
        let checkpoint = self.checkpoint.load(Ordering::Acquire);
        checkpoint != 0 && born.0 <= checkpoint && freed.0 > checkpoint
    }

    /// Keeps a segment; false when it is kept already.
    pub(crate) fn add(&self, place: (VdevId, u32), offset: u64, asize: u64) -> bool {
        self.segments.lock().entry(place).or_default().add(offset, asize).is_ok()
    }

    /// Segments that were kept since the last call.
    pub(crate) fn take(&self) -> Vec<KeptSpace> {
        let taken = std::mem::take(&mut *self.segments.lock());
        let kept =
            |((vdev, metaslab), segments): ((VdevId, u32), RangeTree)| KeptSpace { vdev, metaslab, segments: segments.iter().collect() };
        taken.into_iter().map(kept).collect()
    }
}
