//! A view of the pool with what the pipeline hangs on it: each leaf's counters and device.

use crate::view::PoolView;
use leaf::{LeafDevice, LeafStats, Leaves, Seat, Wanted};
use ondisk::Guid;
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::{LeafId, TopVdev};

/// A view with what the pipeline hangs on it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) view: PoolView,
    /// Seat of each leaf of the view.
    seats: Arc<[Seat]>,
}

impl Snapshot {
    /// Takes a view over: counters of leaves seen before go on, and so do the queues of devices that stay. `taken` runs before the next view is.
    pub(crate) fn take<R>(view: PoolView, leaves: &Leaves, taken: impl FnOnce(Snapshot) -> R) -> R {
        let tree = view.tree.clone();
        let wanted: Vec<Wanted<'_>> = (tree.leaves.iter().enumerate())
            .map(|(index, leaf)| Wanted {
                guid: leaf.guid,
                device: view.device(LeafId(index as u32)),
                width: tree.tops.get(leaf.top.0 as usize).map_or(1, TopVdev::read_width),
            })
            .collect();
        leaves.replace(&wanted, |seats| taken(Snapshot { view: view.clone(), seats: seats.into() }))
    }
    /// Counters of a leaf of this view.
    pub(crate) fn stats(&self, leaf: LeafId) -> &LeafStats {
        &self.seats[leaf.0 as usize].stats
    }
    /// Counters of a leaf, to be kept; None for a number that this view does not have.
    pub(crate) fn stats_of(&self, leaf: LeafId) -> Option<Arc<LeafStats>> {
        self.seats.get(leaf.0 as usize).map(|seat| seat.stats.clone())
    }
    /// Counters of every leaf, with its guid.
    pub(crate) fn all_stats(&self) -> impl Iterator<Item = (Guid, &Arc<LeafStats>)> {
        self.view.tree.leaves.iter().map(|leaf| leaf.guid).zip(self.seats.iter().map(|seat| &seat.stats))
    }
    /// A leaf of this view on its device; None when that is not open.
    pub(crate) fn leaf(&self, leaf: LeafId) -> Option<&Arc<LeafDevice>> {
        self.seats.get(leaf.0 as usize)?.device.as_ref()
    }
    /// The number of the leaf with this guid.
    pub(crate) fn find(&self, guid: Guid) -> Option<LeafId> {
        self.view.tree.leaves.iter().position(|leaf| leaf.guid == guid).map(|index| LeafId(index as u32))
    }
    /// The leaves in use whose devices are open.
    pub(crate) fn open_leaves(&self) -> Vec<LeafId> {
        let leaves = (0..self.view.tree.leaves.len() as u32).map(LeafId);
        leaves.filter(|&leaf| self.view.tree.leaf(leaf).state.is_usable() && self.view.device(leaf).is_some()).collect()
    }
    /// True when a top-level vdev that has one of the `bad` leaves cannot do without these and those that are not in use. Logs have no blocks
    /// of the pool: it can do without them.
    pub(crate) fn is_lost_without(&self, bad: &BTreeSet<LeafId>) -> bool {
        let tree = &self.view.tree;
        tree.tops.iter().filter(|top| !top.is_log).any(|top| {
            let out = |leaf: &LeafId| bad.contains(leaf) || !tree.leaf(*leaf).state.is_usable();
            let dead = top.slots.iter().filter(|slot| !slot.is_empty() && slot.iter().all(out)).count();
            dead > top.parity() && top.slots.iter().flatten().any(|leaf| bad.contains(leaf))
        })
    }
    /// The leaf's guid.
    pub(crate) fn guid(&self, leaf: LeafId) -> Guid {
        self.view.tree.leaf(leaf).guid
    }
}
