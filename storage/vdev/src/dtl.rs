//! What the dirty time logs of leaves mean for the vdevs above them: which txgs can't be read without a leaf, and which blocks a
//! resilver has to bring (OpenZFS: `vdev_dtl_reassess`, `vdev_dtl_required`, `vdev_resilver_needed`, `dsl_scan_need_resilver`).
//!
//! Pure functions of a snapshot: whoever asks holds the tree that he means.

use crate::{LeafId, Node, NodeKind, RaidzColumn, RaidzMap, TopVdev, VdevTree};
use ondisk::{BlockPtr, Dva, Guid, Txg};
use std::sync::Arc;

/// Range of every txg.
const ALL: (u64, u64) = (0, u64::MAX);

/// The txgs that are in at least `least` of the `maps`: sorted, disjoint, inclusive ranges.
fn common(maps: &[Vec<(u64, u64)>], least: usize) -> Vec<(u64, u64)> {
    // (txg, begins before ends): an inclusive range ends behind its last txg, and nothing is behind the last of all.
    let mut edges: Vec<(u64, bool)> = Vec::new();
    let mut endless = Vec::new();
    for &(first, last) in maps.iter().flatten() {
        edges.push((first, true));
        match last.checked_add(1) {
            Some(end) => edges.push((end, false)),
            None => endless.push(first),
        }
    }
    edges.sort_unstable();
    let (mut found, mut depth, mut since) = (Vec::new(), 0usize, None);
    let mut index = 0;
    while index < edges.len() {
        let at = edges[index].0;
        while index < edges.len() && edges[index].0 == at {
            depth = if edges[index].1 { depth + 1 } else { depth - 1 };
            index += 1;
        }
        match (since, depth >= least) {
            (None, true) => since = Some(at),
            (Some(first), false) => {
                found.push((first, at - 1));
                since = None;
            }
            _ => {}
        }
    }
    if let Some(first) = since {
        found.push((first, u64::MAX));
    }
    found
}

/// A leaf that may go.
#[derive(Clone, Copy)]
struct Without {
    leaf: LeafId,
    /// True when it is out because of its errors.
    is_faulted: bool,
}

impl VdevTree {
    /// The leaf with this guid.
    pub fn leaf_by_guid(&self, guid: Guid) -> Option<LeafId> {
        self.leaves.iter().position(|leaf| leaf.guid == guid).map(|index| LeafId(index as u32))
    }

    /// The txgs whose blocks can't be read from `node`, were `without` not there.
    fn outage(&self, node: &Node, without: Without) -> Vec<(u64, u64)> {
        if let NodeKind::Leaf(id) = node.kind {
            let leaf = self.leaf(id);
            if id == without.leaf || !leaf.state.is_usable() {
                return vec![ALL];
            }
            return leaf.missing_txgs.iter().map(|&(first, last)| (first.0, last.0)).collect();
        }
        if without.is_faulted && node.kind == NodeKind::Replacing {
            return vec![ALL];
        }
        let maps: Vec<_> = node.children.iter().map(|child| self.outage(child, without)).collect();
        let least = match node.kind {
            NodeKind::Raidz(parity) => usize::from(parity) + 1,
            NodeKind::Draid(config) => config.parity() + 1,
            _ => node.children.len(),
        };
        common(&maps, least)
    }

    /// True when the pool would lose data without this leaf: it can't be taken offline or away (OpenZFS:
    /// `vdev_dtl_required`). A leaf that is a top-level vdev is always required.
    pub fn is_required(&self, id: LeafId) -> bool {
        self.is_lost(Without { leaf: id, is_faulted: false })
    }

    /// As [`VdevTree::is_required`], for a leaf that is to be declared faulted: what is being replaced counts as not there, since it is
    /// likely to have errors of its own.
    pub fn is_required_beside_replacements(&self, id: LeafId) -> bool {
        self.is_lost(Without { leaf: id, is_faulted: true })
    }

    fn is_lost(&self, without: Without) -> bool {
        let Some(node) = self.tops.get(self.leaf(without.leaf).top.0 as usize).and_then(|top| top.node.as_ref()) else { return true };
        matches!(node.kind, NodeKind::Leaf(_)) || !self.outage(node, without).is_empty()
    }

    /// Txgs that a resilver has to look at: blocks born after the first and up to the second; None when no usable leaf lacks
    /// anything (OpenZFS: `vdev_resilver_needed`).
    pub fn resilver_range(&self) -> Option<(Txg, Txg)> {
        let usable = self.leaves.iter().filter(|leaf| leaf.state.is_usable());
        let ranges: Vec<_> = usable.flat_map(|leaf| leaf.missing_txgs.iter().copied()).collect();
        let first = ranges.iter().map(|(first, _)| first.0).min()?;
        let last = ranges.iter().map(|(_, last)| last.0).max()?;
        Some((Txg(first.saturating_sub(1)), Txg(last)))
    }

    /// The tree as a resilver that is under way sees it: leaves that wait for the next one lack nothing (OpenZFS:
    /// `dsl_scan_check_deferred`).
    pub fn without_deferred(self: &Arc<Self>) -> Arc<VdevTree> {
        if !self.leaves.iter().any(|leaf| leaf.resilver_deferred) {
            return self.clone();
        }
        let mut tree = VdevTree::clone(self);
        // What it lacks beyond the resilver that it takes part in is the next one's.
        let waiting = tree.leaves.iter_mut().filter(|leaf| leaf.resilver_deferred && leaf.resilver_txg.0 == 0);
        waiting.for_each(|leaf| leaf.missing_txgs.clear());
        Arc::new(tree)
    }

    /// As [`VdevTree::resilver_range`], for the leaves that a sequential rebuild of one top-level vdev brings everything to: those
    /// that have nothing of what was there before they came.
    pub fn rebuild_range(&self, top: &TopVdev) -> Option<(Txg, Txg)> {
        let empty = top.leaves().map(|id| self.leaf(id)).filter(|leaf| leaf.is_empty());
        let ranges: Vec<_> = empty.flat_map(|leaf| leaf.missing_txgs.iter().copied()).collect();
        let first = ranges.iter().map(|(first, _)| first.0).min()?;
        let last = ranges.iter().map(|(_, last)| last.0).max()?;
        Some((Txg(first.saturating_sub(1)), Txg(last)))
    }

    /// True when a usable leaf lacks a part of the block (OpenZFS: `dsl_scan_need_resilver`). Where the members of a gang are
    /// is not known from its pointer: it is taken to be lacking when any leaf of the pool lacks its txg.
    pub fn lacks_part_of(&self, bp: &BlockPtr) -> bool {
        let birth = bp.physical_birth();
        if bp.is_gang() {
            return self.leaves.iter().any(|leaf| leaf.state.is_usable() && leaf.lacks(birth));
        }
        bp.dvas().any(|dva| self.lacks_columns_at(&dva, bp.psize(), birth, &|_| true))
    }

    /// True when a usable leaf lacks data of the `psize` bytes at an address, not only parity: a read has to compute it, or has another
    /// leaf's at hand.
    pub fn lacks_data_at(&self, dva: &Dva, psize: usize, birth: Txg) -> bool {
        // What is read over several places is repaired at once, where that is needed.
        let is_there = self.top(dva.vdev).is_some();
        is_there && self.lacks_columns_at(dva, psize, birth, &|column| !column.data.is_empty())
    }

    fn lacks_columns_at(&self, dva: &Dva, psize: usize, birth: Txg, counts: &dyn Fn(&RaidzColumn) -> bool) -> bool {
        let Some(top) = self.addressed(dva.vdev) else { return false };
        if !self.is_stale(top, birth) {
            return false;
        }
        if top.is_removed() {
            return self.lacks_pieces_at(top, dva, psize);
        }
        if top.parity() == 0 {
            return true;
        }
        // What is being moved may be in two places.
        if top.widths.reflow.is_some() {
            return true;
        }
        let map = RaidzMap::new(top, dva.offset, top.padded_psize(psize), birth);
        map.columns.iter().filter(|column| counts(column)).any(|column| {
            let mut lacks = false;
            top.each_holder(self, column.slot, column.offset, &mut |_, chain| {
                let usable = chain.iter().all(|&link| self.leaf(link).state.is_usable());
                lacks |= usable && chain.iter().any(|&link| self.leaf(link).lacks(birth));
            });
            lacks
        })
    }

    /// True when a usable leaf lacks a part of what was on a removed vdev: those who were away while it was copied do.
    fn lacks_pieces_at(&self, top: &TopVdev, dva: &Dva, psize: usize) -> bool {
        let pieces = self.pieces_of(top, dva.offset, psize).unwrap_or_default();
        pieces.iter().any(|piece| self.top(piece.place.vdev).is_some_and(|top| self.is_stale(top, piece.birth)))
    }

    fn leaf_is_stale(&self, leaf: LeafId, birth: Txg) -> bool {
        let leaf = self.leaf(leaf);
        leaf.state.is_usable() && leaf.lacks(birth)
    }

    /// True when a usable leaf of `top` lacks blocks born in `birth`; of a removed vdev when any leaf lacks anything, as when its blocks were copied depends on
    /// where they were.
    pub fn is_stale(&self, top: &TopVdev, birth: Txg) -> bool {
        if top.is_removed() {
            return self.leaves.iter().any(|leaf| leaf.state.is_usable() && !leaf.missing_txgs.is_empty());
        }
        top.leaves().any(|leaf| self.leaf_is_stale(leaf, birth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeafState, TopKind};

    /// If this fails, a device is let go that had the only copy of something.
    #[test]
    fn a_txg_counts_as_lost_exactly_when_enough_lack_it() {
        let maps = [vec![(1, 5), (9, u64::MAX)], vec![(4, 9)], vec![(5, 5), (12, u64::MAX)]];
        for least in 1..=3 {
            let found = common(&maps, least);
            for txg in (0..20).chain([u64::MAX]) {
                let within = |map: &[(u64, u64)]| map.iter().any(|&(first, last)| first <= txg && txg <= last);
                let count = maps.iter().filter(|map| within(map)).count();
                assert_eq!(within(&found), count >= least, "txg {txg}, at least {least}");
            }
        }
    }

    #[test]
    fn a_leaf_is_required_when_the_others_lack_what_it_has() {
        let mut tree = VdevTree::simple(&[(TopKind::Mirror, 2), (TopKind::Raidz(2), 5), (TopKind::Leaf, 1)], 12, 1 << 30).expect("valid");
        let required = |tree: &VdevTree| (0..8).filter(|&leaf| tree.is_required(LeafId(leaf))).collect::<Vec<_>>();
        assert_eq!(required(&tree), [7]);
        tree.leaves[0].missing_txgs = vec![(Txg(5), Txg(6))];
        assert_eq!(required(&tree), [1, 7], "what leaf 0 lacks only leaf 1 has");
        tree.leaves[2].missing_txgs = vec![(Txg(7), Txg(9))];
        tree.leaves[3].state = LeafState::Offline;
        assert_eq!(required(&tree), [1, 4, 5, 6, 7]);
        tree.leaves[2].missing_txgs.clear();
        assert_eq!(required(&tree), [1, 7]);
        assert_eq!(tree.resilver_range(), Some((Txg(4), Txg(6))));
        tree.leaves[0].state = LeafState::Faulted;
        assert_eq!(tree.resilver_range(), None, "nothing can be brought to a device that is not in use");
    }
    /// If this fails, so many devices of a RAID-Z are given up while one is being replaced that an error of that one loses data.
    #[test]
    fn who_is_declared_faulted_cannot_count_on_a_replacement() {
        let tree = VdevTree::simple(&[(TopKind::Raidz(2), 5)], 12, 1 << 30).expect("valid");
        let new = crate::Leaf { guid: Guid(77), ..crate::Leaf::default() };
        let mut tree = tree.attach(LeafId(4), new, crate::Pairing::Replacing, Guid(78), Txg(9)).expect("attached");
        tree.leaves[0].state = LeafState::Faulted;
        assert!(!tree.is_required(LeafId(1)), "offline it may go: the old device has everything");
        assert!(tree.is_required_beside_replacements(LeafId(1)), "with errors it may not");
        tree.leaves[0].state = LeafState::Online;
        assert!(!tree.is_required_beside_replacements(LeafId(1)), "one of two parities is left");
    }
}
