//! A leaf: what backs it, whether it can be used, and what it lacks. Where it hangs only the tree knows.

use ondisk::{Guid, ObjectId, Txg, VdevId};

/// The number of a leaf within one [`crate::VdevTree`] (depth-first order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafId(pub u32);

/// State of a leaf: why it can or can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LeafState {
    /// Reads and writes work.
    #[default]
    Online,
    /// Working device, with errors.
    Degraded,
    /// Device taken offline by the administrator.
    Offline,
    /// Device taken out of use because of errors.
    Faulted,
    /// The device can't be opened.
    Missing,
    /// Physically removed device.
    Removed,
}

impl LeafState {
    /// True when I/O may be sent to the leaf.
    pub fn is_usable(self) -> bool {
        matches!(self, LeafState::Online | LeafState::Degraded)
    }
}

/// Backing of a leaf (OpenZFS: the vdev types `file`, `disk`, `missing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LeafKind {
    /// A regular file.
    #[default]
    File,
    /// A block device.
    Disk,
    /// A placeholder for a device whose label was not found.
    Missing,
    /// A distributed spare of a dRAID vdev (`dspare`): no device of its own.
    DraidSpare,
}

/// Identity of a distributed spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DraidSpare {
    /// Guid of the dRAID vdev.
    pub top: Guid,
    /// Number of the spare, from 0.
    pub id: u64,
}

/// A leaf: one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Backing of the leaf.
    pub kind: LeafKind,
    /// Guid of the leaf.
    pub guid: Guid,
    /// Path as the configuration has it.
    pub path: String,
    /// Usable or not, and why.
    pub state: LeafState,
    /// True when the state is not kept: the next import forgets that the leaf was taken offline or faulted.
    pub is_state_temporary: bool,
    /// True when an import did not find its device, and none came since: its path may lead to something else (OpenZFS: `vdev_not_present`).
    pub is_not_present: bool,
    /// Device id, physical path and enclosure path, as the configuration has them.
    pub identity: [Option<String>; 3],
    /// `whole_disk`, when the configuration has it.
    pub whole_disk: Option<bool>,
    /// The leaf's ZAP (`com.delphix:vdev_zap_leaf`), 0 for none.
    pub zap: ObjectId,
    /// The space map of the leaf's dirty time log, 0 for none.
    pub dtl: ObjectId,
    /// Txgs whose blocks the leaf lacks: sorted, disjoint, inclusive ranges.
    pub missing_txgs: Vec<(Txg, Txg)>,
    /// Txg through which a resilver under way brings this leaf everything; 0 when none does.
    pub resilver_txg: Txg,
    /// Txg through which a sequential rebuild under way brings this leaf everything; 0 when none does.
    pub rebuild_txg: Txg,
    /// The top-level vdev that it belongs to.
    pub top: VdevId,
    /// True for a spare, in use or not.
    pub is_spare: bool,
    /// True when whatever stands in for it, or it for another one, is for good: what is beside it goes once it has everything (OpenZFS:
    /// `vdev_unspare`).
    pub unspare: bool,
    /// True when it is out of use because it had too many errors, not because somebody said so (OpenZFS: `VDEV_AUX_ERR_EXCEEDED`).
    pub too_many_errors: bool,
    /// True when the resilver that it needs begins when the one that is under way has ended (OpenZFS: `vdev_resilver_deferred`).
    pub resilver_deferred: bool,
    /// Identity of the distributed spare that it is, if it is one.
    pub draid_spare: Option<DraidSpare>,
}

impl Leaf {
    /// True when the leaf can be used and has nothing of what was in the pool before it came.
    pub fn is_empty(&self) -> bool {
        self.state.is_usable() && self.lacks(Txg::INITIAL)
    }
    /// True when the leaf lacks blocks born in `txg`.
    pub fn lacks(&self, txg: Txg) -> bool {
        self.missing_txgs.iter().any(|&(first, last)| first <= txg && txg <= last)
    }
}
