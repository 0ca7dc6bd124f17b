//! Background work that can go on anywhere on a top-level vdev, and on rotational leaves goes where their heads are
//! (docs/adr/0005-latency-promise.md).
//!
//! Who has such work asks [`Zio::may_roam`] before each piece. All rotational leaves of the vdev must agree: while one serves somebody, the
//! others do so too where they have nothing else to do, so that the heads are elsewhere at the same time. Who was turned away is called
//! when a leaf may have changed its mind ([`Roaming::go_on`]); a call may be missed (a leaf that is gone), so that he must also ask again
//! by himself after a while. The leaves' offsets are translated into the vdev's: data lies on its leaves in proportion.

use crate::Zio;
use crate::engine::{Core, Snapshot};
use crate::queue::LeafQueue;
use exec::TaskClass;
use ondisk::VdevId;
use std::sync::{Arc, Weak};
use vdev::{LeafId, TopVdev};
use vdev_queue::Roam;

/// Where a leaf's data begins, behind the labels (OpenZFS: `VDEV_LABEL_START_SIZE`).
const LEAF_START: u64 = 4 << 20;

/// Somebody whose background work can go on anywhere. Implemented above.
pub trait Roaming: Send + Sync {
    /// A leaf that had nothing for him to do may have something now. Called in a job; must not wait.
    fn go_on(self: Arc<Self>);
}

/// What would be queued next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Bytes of the vdev's space that lie in sequence.
    pub run_bytes: u64,
    /// It goes on where what was queued last ended.
    pub follows: bool,
}

/// What may be queued of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayRoam {
    /// Nothing.
    No,
    /// What comes next; if there is an offset into the vdev's space, rather what begins near it.
    Yes(Option<u64>),
}

impl Snapshot {
    /// The schedulers of rotational leaves that are read: those that lack something are written, by others.
    fn rotational<'a>(&'a self, top: &'a TopVdev) -> impl Iterator<Item = &'a Arc<LeafQueue>> {
        let is_read = |leaf: &LeafId| self.view.tree.leaf(*leaf).missing_txgs.is_empty();
        top.leaves().filter(is_read).filter_map(|leaf| self.queue(leaf)).filter(|queue| queue.device().is_rotational())
    }
}

/// `amount × part / whole`.
fn in_proportion(amount: u64, (part, whole): (u64, u64)) -> u64 {
    let product = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

impl Zio {
    /// True when a leaf of the vdev is rotational: whoever has background work that can go on anywhere is to ask [`Zio::may_roam`].
    pub fn has_heads(&self, top: VdevId) -> bool {
        let snapshot = self.core.snapshot();
        snapshot.view.tree.top(top).is_some_and(|top| snapshot.rotational(top).next().is_some())
    }

    /// Who is called when leaves may have something to do for him. One at a time.
    pub fn set_roaming(&self, roaming: Weak<dyn Roaming>) {
        *self.core.roaming.lock() = Some(roaming);
    }

    /// Nobody has more background work than is queued on this vdev; on all, where there is none named.
    pub fn end_roaming(&self, vdev: Option<VdevId>) {
        if vdev.is_none() {
            *self.core.roaming.lock() = None;
        }
        let snapshot = self.core.snapshot();
        let tops = snapshot.view.tree.tops.iter().filter(|top| vdev.is_none_or(|vdev| vdev == top.id));
        tops.flat_map(|top| snapshot.rotational(top)).for_each(|queue| queue.end_roaming(&self.core));
    }

    /// Whether such work may queue what comes next on this vdev.
    pub fn may_roam(&self, vdev: VdevId, next: Next) -> MayRoam {
        let snapshot = self.core.snapshot();
        let Some(top) = snapshot.view.tree.top(vdev) else { return MayRoam::Yes(None) };
        let (leaf_bytes, top_bytes) = (top.min_leaf_asize(), top.asize);
        let run_bytes = in_proportion(next.run_bytes, (leaf_bytes, top_bytes));
        let (mut may, mut near) = (true, None);
        for queue in snapshot.rotational(top) {
            match queue.roam(&self.core, (run_bytes, next.follows)) {
                Roam::Wait => may = false,
                Roam::Onward => may &= next.follows,
                Roam::Anywhere(offset) => near = offset.or(near),
            }
        }
        if !may {
            snapshot.rotational(top).for_each(|queue| queue.give_way(&self.core));
            return MayRoam::No;
        }
        MayRoam::Yes(near.map(|offset| in_proportion(offset.saturating_sub(LEAF_START), (top_bytes, leaf_bytes))))
    }
}

impl Core {
    /// A leaf may have something to do for whoever was turned away.
    pub(crate) fn call_roaming(&self) {
        let Some(roaming) = self.roaming.lock().as_ref().and_then(Weak::upgrade) else { return };
        self.exec.spawn(TaskClass::Background, Box::new(move || roaming.go_on()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a scan of RAID-Z goes on far from where the heads are.
    #[test]
    fn places_on_leaves_are_places_of_the_vdev_in_proportion() {
        assert_eq!(in_proportion(1 << 40, (3, 1)), 3 << 40);
        assert_eq!(in_proportion(u64::MAX, (u64::MAX, 1)), u64::MAX, "no overflow");
        assert_eq!(in_proportion(7, (1, 0)), 7, "a vdev without size");
    }
}
