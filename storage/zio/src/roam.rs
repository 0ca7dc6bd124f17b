//! Background work that can go on anywhere on a top-level vdev, and on rotational leaves goes where their heads are
//! (docs/adr/0005-latency-promise.md).
//!
//! Who has such work asks [`crate::Zio::may_roam`] before each piece. All rotational leaves of the vdev must agree: while one serves somebody, the
//! others do so too where they have nothing else to do, so that the heads are elsewhere at the same time. Who was turned away is called
//! when a leaf may have changed its mind ([`leaf::Roaming::go_on`]); a call may be missed (a leaf that is gone), so that he must also ask again
//! by himself after a while. The leaves' offsets are translated into the vdev's: data lies on its leaves in proportion.

use crate::snapshot::Snapshot;
use leaf::LeafDevice;
use ondisk::VdevId;
use std::sync::Arc;
use vdev::{LeafId, TopVdev};
use vdev_queue::Roam;

/// Offset in bytes at which a leaf's data begins, behind the labels (OpenZFS: `VDEV_LABEL_START_SIZE`).
const LEAF_START: u64 = 4 << 20;

/// Run of bytes that would be queued next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Bytes of the vdev's space that lie in sequence.
    pub run_bytes: u64,
    /// True when the run goes on where what was queued last ended.
    pub follows: bool,
}

/// Answer whether the run may be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayRoam {
    /// Nothing.
    No,
    /// The run that comes next; if there is an offset in bytes into the vdev's space, rather what begins near it.
    Yes(Option<u64>),
}

/// The rotational leaves that are read: those that lack something are written, by others.
fn rotational<'a>(snapshot: &'a Snapshot, top: &'a TopVdev) -> impl Iterator<Item = &'a Arc<LeafDevice>> {
    let is_read = |leaf: &LeafId| snapshot.view.tree.leaf(*leaf).missing_txgs.is_empty();
    top.leaves().filter(is_read).filter_map(|leaf| snapshot.leaf(leaf)).filter(|leaf| leaf.is_rotational())
}

/// `amount × part / whole`.
fn in_proportion(amount: u64, (part, whole): (u64, u64)) -> u64 {
    let product = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// True when a leaf of the vdev is rotational.
pub(crate) fn has_heads(snapshot: &Snapshot, top: VdevId) -> bool {
    snapshot.view.tree.top(top).is_some_and(|top| rotational(snapshot, top).next().is_some())
}

/// Ends roaming: nobody has more background work than is queued on this vdev; on all, where there is none named.
pub(crate) fn end(snapshot: &Snapshot, vdev: Option<VdevId>) {
    let tops = snapshot.view.tree.tops.iter().filter(|top| vdev.is_none_or(|vdev| vdev == top.id));
    tops.flat_map(|top| rotational(snapshot, top)).for_each(LeafDevice::end_roaming);
}

/// Says whether such work may queue what comes next on this vdev.
pub(crate) fn may_roam(snapshot: &Snapshot, vdev: VdevId, next: Next) -> MayRoam {
    let Some(top) = snapshot.view.tree.top(vdev) else { return MayRoam::Yes(None) };
    let (leaf_bytes, top_bytes) = (top.min_leaf_asize(), top.asize);
    let run_bytes = in_proportion(next.run_bytes, (leaf_bytes, top_bytes));
    let (mut may, mut near) = (true, None);
    for leaf in rotational(snapshot, top) {
        match leaf.roam((run_bytes, next.follows)) {
            Roam::Wait => may = false,
            Roam::Onward => may &= next.follows,
            Roam::Anywhere(offset) => near = offset.or(near),
        }
    }
    if !may {
        rotational(snapshot, top).for_each(LeafDevice::give_way);
        return MayRoam::No;
    }
    MayRoam::Yes(near.map(|offset| in_proportion(offset.saturating_sub(LEAF_START), (top_bytes, leaf_bytes))))
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
