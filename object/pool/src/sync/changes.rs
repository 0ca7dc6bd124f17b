//! Changes of the vdev tree on their way to the sync: whoever asks for one says what it makes of the configuration, and waits.
//!
//! Invariant: which leaves there are changes only in the sync, before anything of the txg is written, so that labels, configuration and
//! the sum of guids in the uberblock always speak of the same tree.

use crate::PoolError;
use crate::label::Device;
use crate::spa::aux_devices::AuxDevices;
use crate::spa::state::Config;
use dmu::TxgManager;
use exec::Mutex;
use nvlist::NvList;
use ondisk::{Guid, Txg, Uberblock};
use std::sync::Arc;
use vdev::{LeafId, NodeKind, VdevTree};

/// Suffix of the path of a device that is replaced by another one at the same place (OpenZFS: `spa_vdev_attach`).
pub(crate) const OLD: &str = "/old";

/// Result of a change to the pool.
#[derive(Default)]
pub(crate) struct Edited {
    pub tree: Arc<VdevTree>,
    /// Devices of leaves that are new.
    pub devices: Vec<(Guid, Device)>,
    /// The lists of spares and caches, when they change.
    pub aux: Option<AuxDevices>,
    /// Labels for devices that are on no list any more.
    pub labels: Vec<Detached>,
    /// A line for the pool's history.
    pub log: Option<(&'static str, String)>,
    /// Leaves may have become dispensable by it.
    pub hunt: bool,
}

/// Change to tree and devices; the txg is the one that is being synced.
pub(crate) type Edit = Box<dyn FnOnce(&Config, Txg) -> Result<Edited, PoolError> + Send>;

/// Outcome of a change, once it was tried.
pub(crate) type Outcome = Arc<Mutex<Option<Result<(), PoolError>>>>;

/// A change of the tree that waits for the next sync, and where its outcome goes.
pub(super) struct Change {
    pub edit: Edit,
    pub outcome: Outcome,
}

/// A device that left, the label that says so, and the pool's uberblock as of then, if it had a part in the pool's data.
pub(crate) type Detached = (Device, NvList, Option<Uberblock>);

/// Waits for the sync that brings an outcome.
pub(super) fn wait_for(outcome: &Outcome, txgs: &TxgManager) -> Result<(), PoolError> {
    while outcome.lock().is_none() {
        txgs.wait_synced(txgs.open_txg())?;
    }
    let result = outcome.lock().take();
    result.unwrap_or(Ok(()))
}

/// The changes that wait for the next sync.
#[derive(Default)]
pub(crate) struct Changes(Mutex<Vec<Change>>);

impl Changes {
    /// Has `edit` done with the next txg and waits for it.
    pub fn submit(&self, txgs: &TxgManager, edit: Edit) -> Result<(), PoolError> {
        wait_for(&self.queue(edit), txgs)
    }

    /// Has `edit` done with the next txg, whoever waits for that.
    pub fn queue(&self, edit: Edit) -> Outcome {
        let outcome = Outcome::default();
        self.0.lock().push(Change { edit, outcome: outcome.clone() });
        outcome
    }

    /// Takes the changes that were asked for since the last time.
    pub(super) fn take(&self) -> Vec<Change> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The tree without a leaf; a path that was marked as old because of it is as it was. The last spare beside a device that
/// leaves is a device itself from then on: then it is on the list of spares no longer.
pub(crate) fn detached(tree: &VdevTree, id: LeafId, aux: &AuxDevices) -> Result<(VdevTree, Option<AuxDevices>), PoolError> {
    let marked = format!("{}{OLD}", tree.leaf(id).path);
    let successor = tree.successor(id).filter(|&last| tree.leaf(last).is_spare && tree.leaf(last).draid_spare.is_none());
    let mut next = VdevTree::clone(tree);
    let lists = successor.map(|last| {
        let spare = &mut next.leaves[last.0 as usize];
        // While others are beside it, it still has to outlast them.
        (spare.is_spare, spare.unspare) = (false, tree.siblings(id).len() > 2);
        aux.without(spare.guid)
    });
    let mut next = next.detach(id)?;
    if let Some(other) = next.leaves.iter_mut().find(|other| other.path == marked) {
        other.path.truncate(marked.len() - OLD.len());
    }
    // Nothing is beside a leaf that hangs elsewhere now.
    for index in 0..next.leaves.len() {
        let alone = !matches!(next.parent_kind(LeafId(index as u32)), Some(NodeKind::Spare));
        next.leaves[index].unspare &= !alone;
    }
    Ok((next, lists))
}
