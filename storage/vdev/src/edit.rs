//! New trees from old ones: a leaf is attached beside another, or detached; top-level vdevs are added, grow and leave (OpenZFS:
//! `spa_vdev_attach`, `spa_vdev_detach`, `vdev_add_parent`, `vdev_remove_parent`, `spa_vdev_add`, `vdev_expand`).
//!
//! Leaves are numbered anew; guids say which is which. Whether a change is wise (sizes, redundancy) is for the caller to know.

use crate::{Bias, Leaf, LeafId, LeafState, Node, NodeKind, RemovalObjects, TopKind, TopVdev, TreeError, VdevTree};
use ondisk::{Guid, ObjectId, Txg, VdevId};
use std::sync::Arc;

/// The kind of vdev that holds a leaf and what is attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Both leaves stay.
    Mirror,
    /// The new one takes the place of the old one.
    Replacing,
    /// The new one is a spare, which stands in for the old one.
    Spare,
}

impl Pairing {
    fn node_kind(self) -> NodeKind {
        match self {
            Pairing::Mirror => NodeKind::Mirror,
            Pairing::Replacing => NodeKind::Replacing,
            Pairing::Spare => NodeKind::Spare,
        }
    }
}

/// Node that a leaf hangs on.
fn parent_of(node: &Node, id: LeafId) -> Option<&Node> {
    if node.children.iter().any(|child| child.kind == NodeKind::Leaf(id)) {
        return Some(node);
    }
    node.children.iter().find_map(|child| parent_of(child, id))
}

/// Applies `change` to the node for which `wanted` holds; false when there is none.
fn alter(node: &mut Node, wanted: &dyn Fn(&Node) -> bool, change: &mut dyn FnMut(&mut Node)) -> bool {
    if wanted(node) {
        change(node);
        return true;
    }
    node.children.iter_mut().any(|child| alter(child, wanted, change))
}

fn number_children(node: &mut Node) {
    for (id, child) in node.children.iter_mut().enumerate() {
        child.id = id as u64;
        number_children(child);
    }
}

impl VdevTree {
    /// The kind of the vdev above a leaf; None for a leaf that is a top-level vdev.
    pub fn parent_kind(&self, id: LeafId) -> Option<NodeKind> {
        let node = self.tops.get(self.leaf(id).top.0 as usize)?.node.as_ref()?;
        parent_of(node, id).map(|parent| parent.kind)
    }

    /// The vdev above a leaf: its top-level vdev, what stands in for it there, or the root.
    pub fn parent_guid(&self, id: LeafId) -> Guid {
        let node = self.tops.get(self.leaf(id).top.0 as usize).and_then(|top| top.node.as_ref());
        node.and_then(|node| parent_of(node, id)).map_or(self.guid, |parent| parent.guid)
    }

    /// True when a leaf can be attached beside `id` for good: it is a top-level vdev or in a mirror.
    pub fn can_mirror(&self, id: LeafId) -> bool {
        matches!(self.parent_kind(id), None | Some(NodeKind::Mirror))
    }

    /// True when a leaf can be taken from beside others that have the same data.
    pub fn can_detach(&self, id: LeafId) -> bool {
        matches!(self.parent_kind(id), Some(NodeKind::Mirror | NodeKind::Replacing | NodeKind::Spare))
    }

    /// The tree with `new` beside `target`. A vdev that has to be made for the two gets the guid `parent`; everything new was
    /// made in `txg`.
    pub fn attach(&self, target: LeafId, new: Leaf, pairing: Pairing, parent: Guid, txg: Txg) -> Result<VdevTree, TreeError> {
        let kind = pairing.node_kind();
        let (mut tops, mut leaves) = (self.tops.clone(), self.leaves.clone());
        let number = LeafId(u32::try_from(leaves.len()).map_err(|_| TreeError::Geometry("number of leaves"))?);
        let child = Node { kind: NodeKind::Leaf(number), id: 0, guid: new.guid, create_txg: txg, children: Vec::new() };
        leaves.push(new);
        let top = tops.get_mut(self.leaf(target).top.0 as usize).ok_or(TreeError::Geometry("leaf number"))?;
        let node = top.node.as_mut().ok_or(TreeError::Geometry("a vdev without a type"))?;
        if self.parent_kind(target) == Some(kind) {
            let holds = |node: &Node| node.children.iter().any(|child| child.kind == NodeKind::Leaf(target));
            alter(node, &holds, &mut |parent| parent.children.push(child.clone()));
        } else {
            alter(node, &|node| node.kind == NodeKind::Leaf(target), &mut |place| {
                let children = vec![place.clone(), child.clone()];
                *place = Node { kind, id: place.id, guid: parent, create_txg: txg, children };
            });
        }
        self.renumbered(tops, &leaves)
    }

    /// The tree with another child of the RAID-Z vdev `id`, made in `txg`: its expansion begins (OpenZFS: `vdev_raidz_attach_sync`).
    pub fn expand_raidz(&self, id: VdevId, new: Leaf, txg: Txg) -> Result<VdevTree, TreeError> {
        let (mut tops, mut leaves) = (self.tops.clone(), self.leaves.clone());
        let number = LeafId(u32::try_from(leaves.len()).map_err(|_| TreeError::Geometry("number of leaves"))?);
        let top = tops.get_mut(id.0 as usize).filter(|top| matches!(top.kind, TopKind::Raidz(_)) && top.widths.reflow.is_none());
        let top = top.ok_or(TreeError::Geometry("a raidz that can be expanded"))?;
        let node = top.node.as_mut().ok_or(TreeError::Geometry("a vdev without a type"))?;
        node.children.push(Node { kind: NodeKind::Leaf(number), id: 0, guid: new.guid, create_txg: txg, children: Vec::new() });
        leaves.push(new);
        top.widths.reflow = Some(Arc::default());
        self.renumbered(tops, &leaves)
    }

    /// The tree with the expansion of a RAID-Z vdev at its end: blocks that are born from `txg` on are as wide as it is.
    #[must_use]
    pub fn with_expanded_raidz(&self, id: VdevId, txg: Txg) -> VdevTree {
        let mut tree = self.clone();
        if let Some(top) = tree.tops.get_mut(id.0 as usize)
            && top.widths.reflow.take().is_some()
        {
            top.widths.txgs.push(txg);
        }
        tree
    }

    /// The tree without a leaf. A vdev that keeps one child goes too; at the top the child takes over its guid, so that labels
    /// of an offline device don't look like another top-level vdev.
    pub fn detach(&self, id: LeafId) -> Result<VdevTree, TreeError> {
        let (mut tops, mut leaves) = (self.tops.clone(), self.leaves.clone());
        let top = tops.get_mut(self.leaf(id).top.0 as usize).ok_or(TreeError::Geometry("leaf number"))?;
        let node = top.node.as_mut().ok_or(TreeError::Geometry("a vdev without a type"))?;
        let guid = node.guid;
        let holds = |node: &Node| node.children.iter().any(|child| child.kind == NodeKind::Leaf(id));
        let found = alter(node, &holds, &mut |parent| {
            parent.children.retain(|child| child.kind != NodeKind::Leaf(id));
            if parent.children.len() == 1 {
                let last = parent.children.remove(0);
                *parent = Node { id: parent.id, ..last };
            }
        });
        if !found {
            return Err(TreeError::Geometry("a leaf that is not beside another"));
        }
        node.guid = guid;
        if let NodeKind::Leaf(last) = node.kind {
            leaves[last.0 as usize].guid = guid;
        }
        self.renumbered(tops, &leaves)
    }

    /// Assembles the tree with its leaves in the order in which they hang.
    fn renumbered(&self, mut tops: Vec<TopVdev>, leaves: &[Leaf]) -> Result<VdevTree, TreeError> {
        fn collect(node: &mut Node, leaves: &[Leaf], out: &mut Vec<Leaf>) {
            if let NodeKind::Leaf(id) = &mut node.kind {
                out.push(leaves[id.0 as usize].clone());
                *id = LeafId(out.len() as u32 - 1);
            }
            node.children.iter_mut().for_each(|child| collect(child, leaves, out));
        }
        let mut ordered = Vec::with_capacity(leaves.len());
        for top in &mut tops {
            if let Some(node) = &mut top.node {
                number_children(node);
                collect(node, leaves, &mut ordered);
                top.guid = node.guid;
            }
        }
        let tree = VdevTree::assemble(self.guid, tops, ordered)?;
        Ok(VdevTree { create_txg: self.create_txg, root_zap: self.root_zap, ..tree })
    }

    /// The tree with more top-level vdevs behind those that it has. The numbers of their leaves index `leaves`; everything was
    /// made in `txg`.
    pub fn add(&self, tops: &[TopVdev], leaves: &[Leaf], txg: Txg) -> Result<VdevTree, TreeError> {
        fn take_over(node: &mut Node, first: u32, txg: Txg) {
            node.create_txg = txg;
            if let NodeKind::Leaf(id) = &mut node.kind {
                id.0 += first;
            }
            node.children.iter_mut().for_each(|child| take_over(child, first, txg));
        }
        let first = u32::try_from(self.leaves.len()).map_err(|_| TreeError::Geometry("number of leaves"))?;
        let (mut all, mut together) = (self.tops.clone(), self.leaves.clone());
        together.extend(leaves.iter().cloned());
        for top in tops {
            let mut top = top.clone();
            top.node.iter_mut().for_each(|node| take_over(node, first, txg));
            all.push(top);
        }
        self.renumbered(all, &together)
    }

    /// The tree with a hole where a top-level vdev was (OpenZFS: `vdev_remove_make_hole_and_free`). It stays for good, at the end too, and no other
    /// vdev gets its number: pool-wide logs of space maps, which OpenZFS writes, name vdevs by number.
    pub fn without_top(&self, id: VdevId) -> Result<VdevTree, TreeError> {
        let mut tops = self.tops.clone();
        let place = tops.get_mut(id.0 as usize).ok_or(TreeError::Geometry("number of a top-level vdev"))?;
        *place = TopVdev { id, kind: TopKind::Hole, ..TopVdev::default() };
        self.renumbered(tops, &self.leaves)
    }

    /// The tree in which a top-level vdev was removed, whose contents lie elsewhere: what is left in its place has this guid, and no leaves (OpenZFS:
    /// `vdev_remove_replace_with_indirect`).
    pub fn without_contents(&self, id: VdevId, guid: Guid) -> Result<VdevTree, TreeError> {
        let mut tops = self.tops.clone();
        let top = tops.get_mut(id.0 as usize).ok_or(TreeError::Geometry("number of a top-level vdev"))?;
        let create_txg = top.node.as_ref().map_or(Txg::ZERO, |node| node.create_txg);
        *top = TopVdev {
            guid,
            kind: TopKind::Indirect,
            ms_array: ObjectId(0),
            bias: Bias::None,
            nonallocating: false,
            is_emptying: false,
            is_leaving: false,
            objects: RemovalObjects { create_txg, ..top.objects },
            node: None,
            slots: Vec::new(),
            ..top.clone()
        };
        self.renumbered(tops, &self.leaves)
    }

    /// The tree of another pool, with this guid, that consists of these leaves, one of each mirror: they are its top-level vdevs, under their own guids
    /// and the numbers that block pointers have. Logs become holes.
    pub fn split_off(&self, guid: Guid, kept: &[LeafId]) -> Result<VdevTree, TreeError> {
        let mut tops = self.tops.clone();
        for top in tops.iter_mut().filter(|top| top.is_concrete()) {
            if top.is_log {
                *top = TopVdev { id: top.id, kind: TopKind::Hole, ..TopVdev::default() };
                continue;
            }
            let of_top = kept.iter().copied().find(|id| self.leaf(*id).top == top.id);
            let leaf = of_top.and_then(|id| {
                let children = &parent_of(top.node.as_ref()?, id)?.children;
                children.iter().find(|child| child.kind == NodeKind::Leaf(id)).cloned()
            });
            let leaf = leaf.ok_or(TreeError::Geometry("a mirror without a leaf to be kept"))?;
            top.node = Some(Node { id: u64::from(top.id.0), ..leaf });
        }
        let tree = self.renumbered(tops, &self.leaves)?;
        Ok(VdevTree { guid, ..tree })
    }

    /// The tree whose healthy top-level vdevs use what their devices have now, by the allocatable bytes of each leaf; None when
    /// none has room for another metaslab (OpenZFS: `vdev_open` while `vdev_expanding`, `vdev_expand`). With `only` that vdev.
    pub fn expanded(&self, only: Option<VdevId>, leaf_bytes: &dyn Fn(LeafId) -> Option<u64>) -> Option<VdevTree> {
        let (mut tree, mut grew) = (self.clone(), false);
        for top in tree.tops.iter_mut().filter(|top| top.is_concrete() && top.ms_shift != 0 && only.is_none_or(|only| only == top.id)) {
            let is_healthy = |&id: &LeafId| matches!(self.leaf(id).state, LeafState::Online | LeafState::Degraded);
            if !top.slots.iter().flatten().all(is_healthy) {
                continue;
            }
            let least = top.slots.iter().flatten().map(|&id| leaf_bytes(id)).collect::<Option<Vec<u64>>>();
            let Some(least) = least.and_then(|all| all.into_iter().min()) else { continue };
            let asize = match top.kind {
                TopKind::Raidz(_) => least * top.filled_width() as u64,
                TopKind::Draid(config) => config.asize(least),
                _ => least,
            };
            if asize > top.asize && asize >> top.ms_shift > top.metaslab_count() {
                (top.asize, grew) = (asize, true);
            }
        }
        grew.then_some(tree)
    }

    /// A leaf that can go because what was put beside it has everything: one that was replaced, the spare of a device that was
    /// replaced or repaired, a spare too many (OpenZFS: `spa_vdev_resilver_done_hunt`, `spa_vdev_resilver_done`).
    pub fn dispensable_leaf(&self) -> Option<LeafId> {
        self.tops.iter().filter_map(|top| top.node.as_ref()).find_map(|node| self.hunt(node))
    }

    fn hunt(&self, node: &Node) -> Option<LeafId> {
        if let Some(found) = node.children.iter().find_map(|child| self.hunt(child)) {
            return Some(found);
        }
        let leaf_of = |node: &Node| if let NodeKind::Leaf(id) = node.kind { Some(id) } else { None };
        let ends_for = |old: &Node, new: &Node| {
            let old = leaf_of(old)?;
            (self.is_whole(new) && !self.is_required(old)).then_some(old)
        };
        let (first, last) = (node.children.first()?, node.children.last()?);
        match node.kind {
            NodeKind::Replacing => ends_for(first, last),
            NodeKind::Spare => {
                let unspared = |node: &Node| leaf_of(node).is_some_and(|id| self.leaf(id).unspare);
                let is_spare = |node: &Node| leaf_of(node).is_some_and(|id| self.leaf(id).is_spare);
                if unspared(last) {
                    ends_for(first, last)
                } else if unspared(first) {
                    ends_for(last, first)
                } else if node.children.len() > 2 && is_spare(&node.children[1]) && is_spare(last) {
                    ends_for(&node.children[1], last)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// True when everything can be read from below `node`.
    fn is_whole(&self, node: &Node) -> bool {
        match node.kind {
            NodeKind::Leaf(id) => self.leaf(id).state.is_usable() && self.leaf(id).missing_txgs.is_empty(),
            _ => node.children.iter().any(|child| self.is_whole(child)),
        }
    }

    /// The leaves beside `id` under the same vdev, in order, `id` included; empty for a top-level vdev.
    pub fn siblings(&self, id: LeafId) -> Vec<LeafId> {
        let node = self.tops.get(self.leaf(id).top.0 as usize).and_then(|top| top.node.as_ref());
        let parent = node.and_then(|node| parent_of(node, id));
        let leaf = |node: &Node| if let NodeKind::Leaf(id) = node.kind { Some(id) } else { None };
        parent.map_or_else(Vec::new, |parent| parent.children.iter().filter_map(leaf).collect())
    }

    /// The last leaf beside `id`, when `id` is the device that spares stand in for: who takes its place when it goes.
    pub fn successor(&self, id: LeafId) -> Option<LeafId> {
        let node = self.tops.get(self.leaf(id).top.0 as usize)?.node.as_ref()?;
        let parent = parent_of(node, id).filter(|parent| parent.kind == NodeKind::Spare)?;
        let is_original = parent.children.first().is_some_and(|first| first.kind == NodeKind::Leaf(id));
        match parent.children.last()?.kind {
            NodeKind::Leaf(last) if is_original => Some(last),
            _ => None,
        }
    }

    /// The spare that stands beside a replacement which `old` ends when it goes: it is needed no longer then.
    pub fn spare_of_replacement(&self, old: LeafId) -> Option<LeafId> {
        fn find(node: &Node, old: LeafId) -> Option<LeafId> {
            if let (NodeKind::Spare, [first, second]) = (node.kind, node.children.as_slice())
                && first.kind == NodeKind::Replacing
                && first.children.len() == 2
                && first.children.iter().any(|child| child.kind == NodeKind::Leaf(old))
                && let NodeKind::Leaf(spare) = second.kind
            {
                return Some(spare);
            }
            node.children.iter().find_map(|child| find(child, old))
        }
        find(self.tops.get(self.leaf(old).top.0 as usize)?.node.as_ref()?, old)
    }

    /// True when a vdev of the tree has this guid.
    pub fn has_guid(&self, guid: Guid) -> bool {
        fn any(node: &Node, guid: Guid) -> bool {
            node.guid == guid || node.children.iter().any(|child| any(child, guid))
        }
        self.guid == guid || self.tops.iter().any(|top| top.guid == guid || top.node.as_ref().is_some_and(|node| any(node, guid)))
    }

    /// True while a device is being replaced, or a spare that stands in for one lacks something (OpenZFS:
    /// `vdev_replace_in_progress`).
    pub fn is_replacing(&self) -> bool {
        fn any(tree: &VdevTree, node: &Node) -> bool {
            let here = match node.kind {
                NodeKind::Replacing => true,
                NodeKind::Spare => node.children.len() != 2 || !node.children.last().is_some_and(|last| tree.is_whole(last)),
                _ => false,
            };
            here || node.children.iter().any(|child| any(tree, child))
        }
        self.tops.iter().filter_map(|top| top.node.as_ref()).any(|node| any(self, node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(guid: u64) -> Leaf {
        Leaf { guid: Guid(guid), path: format!("new{guid}"), ..Leaf::default() }
    }

    fn guids(tree: &VdevTree) -> Vec<u64> {
        tree.leaves.iter().map(|leaf| leaf.guid.0).collect()
    }

    /// If this fails, a replaced disk leaves a configuration behind that no import understands.
    #[test]
    fn what_is_attached_and_detached_again_leaves_the_tree_as_it_was() {
        let tree = VdevTree::simple(&[(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3)], 12, 1 << 30).expect("valid");
        for target in 0..tree.leaves.len() {
            for pairing in [Pairing::Mirror, Pairing::Replacing] {
                let id = LeafId(target as u32);
                if pairing == Pairing::Mirror && !tree.can_mirror(id) {
                    continue;
                }
                let pair = tree.attach(id, leaf(7), pairing, Guid(8), Txg(9)).expect("attached");
                let new = pair.leaf_by_guid(Guid(7)).expect("there");
                assert!(pair.can_detach(new) && pair.leaf(new).top == tree.leaves[target].top);
                let again = VdevTree::from_config(&pair.to_config(crate::ConfigScope::Mos)).expect("valid");
                assert_eq!(guids(&again), guids(&pair), "leaves are numbered as they hang");
                let back = pair.detach(new).expect("detached");
                let mut expected = tree.clone();
                if target == 0 {
                    // A top-level leaf keeps the guid of the mirror that it was in.
                    expected.tops[0].guid = Guid(8);
                    expected.tops[0].node.as_mut().expect("a node").guid = Guid(8);
                    expected.leaves[0].guid = Guid(8);
                }
                assert_eq!(back, expected, "{target} {pairing:?}");
                // And the other way round: the new one stays.
                let old = pair.leaf_by_guid(tree.leaves[target].guid).expect("there");
                assert_eq!(pair.dispensable_leaf(), (pairing == Pairing::Replacing).then_some(old));
                let replaced = pair.detach(old).expect("detached");
                assert_eq!((replaced.leaves.len(), replaced.is_replacing()), (tree.leaves.len(), false));
                assert!(replaced.leaves.iter().any(|leaf| leaf.path == "new7"));
            }
        }
        assert!(tree.detach(LeafId(0)).is_err(), "the only one");
    }

    /// If this fails, the old disk is let go before the new one has everything.
    #[test]
    fn a_replacement_that_lacks_something_does_not_end() {
        let tree = VdevTree::simple(&[(TopKind::Raidz(1), 3)], 12, 1 << 30).expect("valid");
        let mut pair = tree.attach(LeafId(1), leaf(7), Pairing::Replacing, Guid(8), Txg(9)).expect("attached");
        let new = pair.leaf_by_guid(Guid(7)).expect("there");
        pair.leaves[new.0 as usize].missing_txgs = vec![(Txg(4), Txg(9))];
        assert_eq!((pair.dispensable_leaf(), pair.is_replacing()), (None, true));
        assert_eq!(pair.resilver_range(), Some((Txg(3), Txg(9))));
    }

    /// If this fails, a spare that is needed goes, or one that is not stays away from the other devices for ever.
    #[test]
    fn spares_go_when_they_are_needed_no_longer() {
        let tree = VdevTree::simple(&[(TopKind::Raidz(1), 3)], 12, 1 << 30).expect("valid");
        let original = tree.leaves[1].guid;
        let spare = |guid| Leaf { is_spare: true, ..leaf(guid) };
        let mut pair = tree.attach(LeafId(1), spare(7), Pairing::Spare, Guid(8), Txg(9)).expect("attached");
        assert_eq!(pair.dispensable_leaf(), None, "spare and device stay as they are");
        let id = |tree: &VdevTree, guid| tree.leaf_by_guid(Guid(guid)).expect("there");
        // Two spares, of which the second has everything: the first is free for others.
        let mut three = pair.attach(id(&pair, 7), spare(9), Pairing::Spare, Guid(0), Txg(10)).expect("attached");
        three.leaves[1].state = LeafState::Faulted;
        assert_eq!(three.dispensable_leaf(), Some(id(&three, 7)));
        let last = id(&three, 9);
        three.leaves[last.0 as usize].missing_txgs = vec![(Txg(4), Txg(9))];
        assert_eq!(three.dispensable_leaf(), None, "the second one lacks something");
        // The device was repaired; the spare was made a device for good.
        pair.leaves[1].unspare = true;
        assert_eq!(pair.dispensable_leaf(), Some(id(&pair, 7)));
        pair.leaves[1].missing_txgs = vec![(Txg(4), Txg(9))];
        assert_eq!(pair.dispensable_leaf(), None);
        // The device is replaced beside its spare: both it and the spare go.
        pair.leaves[1].unspare = false;
        pair.leaves[1].state = LeafState::Faulted;
        let old = pair.leaf_by_guid(original).expect("there");
        let replacing = pair.attach(old, leaf(11), Pairing::Replacing, Guid(12), Txg(11)).expect("attached");
        assert_eq!(replacing.siblings(id(&replacing, 7)), [id(&replacing, 7)]);
        let old = replacing.dispensable_leaf().expect("the new one has everything");
        assert_eq!(replacing.leaf(old).guid, original);
        let goes_too = replacing.spare_of_replacement(old).expect("needed no longer");
        assert_eq!(replacing.leaf(goes_too).guid, Guid(7));
        let list = replacing.to_config(crate::ConfigScope::Mos);
        assert_eq!(guids(&VdevTree::from_config(&list).expect("valid")), guids(&replacing), "spares nest in configurations too");
    }

    /// If this fails, a vdev that is added shifts the numbers of others, whose blocks are then looked for at wrong places.
    #[test]
    fn vdevs_are_added_behind_the_others_and_leave_holes() {
        let tree = VdevTree::simple(&[(TopKind::Mirror, 2)], 12, 1 << 30).expect("valid");
        let more = VdevTree::simple(&[(TopKind::Leaf, 1), (TopKind::Raidz(1), 3)], 12, 2 << 30).expect("valid");
        let added = tree.add(&more.tops, &more.leaves, Txg(77)).expect("added");
        assert_eq!((added.tops.len(), added.leaves.len()), (3, 6));
        assert_eq!(added.tops[0], tree.tops[0]);
        assert_eq!(added.tops[2].slots, [[LeafId(3)], [LeafId(4)], [LeafId(5)]]);
        assert_eq!(added.tops[1].node.as_ref().map(|node| node.create_txg), Some(Txg(77)));
        let left = added.without_top(VdevId(1)).expect("removed");
        assert_eq!(
            (left.tops[1].kind, left.tops[2].slots.clone()),
            (TopKind::Hole, vec![vec![LeafId(2)], vec![LeafId(3)], vec![LeafId(4)]])
        );
        let again = VdevTree::from_config(&left.to_config(crate::ConfigScope::Mos)).expect("valid");
        assert_eq!(again, left, "holes are written down");
    }

    /// If this fails, larger disks give no room, or a vdev grows over the end of its smallest device.
    #[test]
    fn vdevs_grow_to_their_smallest_device() {
        let tree = VdevTree::simple(&[(TopKind::Raidz(1), 3), (TopKind::Mirror, 2)], 12, 1 << 30).expect("valid");
        let sizes = |small: u64| move |id: LeafId| Some(if id.0 == 1 { small } else { 3 << 30 });
        assert_eq!(tree.expanded(Some(VdevId(0)), &sizes(1 << 30)), None, "one of three is as small as before");
        let grown = tree.expanded(Some(VdevId(0)), &sizes(2 << 30)).expect("all are larger");
        assert_eq!((grown.tops[0].asize, grown.tops[1].asize), (6 << 30, 1 << 30));
        assert_eq!(grown.tops[0].ms_shift, tree.tops[0].ms_shift, "metaslabs keep their size");
        assert_eq!(tree.expanded(None, &sizes(1 << 30)).map(|tree| tree.tops[1].asize), Some(3 << 30));
        let mut sick = tree.clone();
        sick.leaves[0].state = LeafState::Missing;
        assert_eq!(sick.expanded(Some(VdevId(0)), &sizes(2 << 30)), None, "what is not there may be small");
    }
}
