//! New trees from old ones: a leaf is attached beside another, or detached (OpenZFS: `spa_vdev_attach`, `spa_vdev_detach`,
//! `vdev_add_parent`, `vdev_remove_parent`).
//!
//! Leaves are numbered anew; guids say which is which. Whether a change is wise (sizes, redundancy) is for the caller to know.

use crate::{Leaf, LeafId, Node, NodeKind, TopVdev, TreeError, VdevTree};
use ondisk::{Guid, Txg};

/// The kind of vdev that holds a leaf and what is attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Both stay.
    Mirror,
    /// The new one takes the place of the old one.
    Replacing,
}

/// Where a leaf hangs.
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
        let kind = if pairing == Pairing::Mirror { NodeKind::Mirror } else { NodeKind::Replacing };
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

    /// A leaf whose replacement has everything, so that it can go (OpenZFS: `spa_vdev_resilver_done_hunt`).
    pub fn replaced_leaf(&self) -> Option<LeafId> {
        fn hunt(tree: &VdevTree, node: &Node) -> Option<LeafId> {
            let first = node.children.first()?;
            if let (NodeKind::Replacing, NodeKind::Leaf(old), Some(NodeKind::Leaf(new))) =
                (node.kind, first.kind, node.children.last().map(|last| last.kind))
            {
                let new = tree.leaf(new);
                let is_whole = new.state.is_usable() && new.missing_txgs.is_empty();
                return (is_whole && !tree.is_required(old)).then_some(old);
            }
            node.children.iter().find_map(|child| hunt(tree, child))
        }
        self.tops.iter().filter_map(|top| top.node.as_ref()).find_map(|node| hunt(self, node))
    }

    /// True when a vdev of the tree has this guid.
    pub fn has_guid(&self, guid: Guid) -> bool {
        fn any(node: &Node, guid: Guid) -> bool {
            node.guid == guid || node.children.iter().any(|child| any(child, guid))
        }
        self.guid == guid || self.tops.iter().any(|top| top.guid == guid || top.node.as_ref().is_some_and(|node| any(node, guid)))
    }

    /// True while a device is being replaced.
    pub fn is_replacing(&self) -> bool {
        fn any(node: &Node) -> bool {
            node.kind == NodeKind::Replacing || node.children.iter().any(any)
        }
        self.tops.iter().filter_map(|top| top.node.as_ref()).any(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopKind;

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
                assert_eq!(pair.replaced_leaf(), (pairing == Pairing::Replacing).then_some(old));
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
        assert_eq!((pair.replaced_leaf(), pair.is_replacing()), (None, true));
        assert_eq!(pair.resilver_range(), Some((Txg(3), Txg(9))));
    }
}
