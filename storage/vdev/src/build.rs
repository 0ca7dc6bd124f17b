//! Builds a [`VdevTree`] from its parts: numbers the leaves, derives slots and the deflate ratio, checks the geometry.

use crate::size::{ASHIFT_MAX, ASHIFT_MIN};
use crate::{DraidLayout, Leaf, LeafId, Node, NodeKind, TopKind, TopVdev, TreeError, VdevTree};
use ondisk::{Guid, Txg, VdevId};
use std::sync::Arc;

/// Most metaslabs of a vdev: far above what OpenZFS makes (2¹⁷), far below what a hostile label could ask memory for.
const METASLABS_MAX: u64 = 1 << 22;
/// Most children that an interior node may have.
const CHILDREN_MAX: usize = 255;

impl VdevTree {
    /// A tree of `tops`, whose nodes' leaf numbers index `leaves`; everything derived is computed here.
    pub fn assemble(guid: Guid, tops: Vec<TopVdev>, leaves: Vec<Leaf>) -> Result<VdevTree, TreeError> {
        let mut tree = VdevTree { guid, tops, leaves, ..VdevTree::default() };
        for index in 0..tree.tops.len() {
            tree.tops[index].id = VdevId(index as u32);
            let top = tree.tops[index].finish()?;
            for leaf in top.leaves() {
                let leaf = tree.leaves.get_mut(leaf.0 as usize).ok_or(TreeError::Geometry("leaf number"))?;
                leaf.top = top.id;
            }
            tree.tops[index] = top;
        }
        Ok(tree)
    }

    /// A tree for tests and benchmarks: `layout` is a list of (kind, leaf count); every leaf is a file `d00`, `d01` … with
    /// `leaf_asize` allocatable bytes.
    pub fn simple(layout: &[(TopKind, usize)], ashift: u32, leaf_asize: u64) -> Result<VdevTree, TreeError> {
        let mut leaves = Vec::new();
        let mut tops = Vec::new();
        for (top_index, &(kind, count)) in layout.iter().enumerate() {
            let mut children = Vec::new();
            for id in 0..count as u64 {
                let number = leaves.len() as u32;
                let guid = Guid(0x1000 + u64::from(number));
                leaves.push(Leaf { guid, path: format!("d{number:02}"), ..Leaf::default() });
                children.push(Node { kind: NodeKind::Leaf(LeafId(number)), id, guid, create_txg: Txg(4), children: Vec::new() });
            }
            let guid = Guid(0x100 + top_index as u64);
            let (node, factor) = match kind {
                TopKind::Mirror => (Node { kind: NodeKind::Mirror, id: 0, guid, create_txg: Txg(4), children }, 1),
                TopKind::Raidz(parity) => (Node { kind: NodeKind::Raidz(parity), id: 0, guid, create_txg: Txg(4), children }, count),
                TopKind::Draid(config) => (Node { kind: NodeKind::Draid(config), id: 0, guid, create_txg: Txg(4), children }, 0),
                _ => (children.into_iter().next().ok_or(TreeError::Geometry("a leaf"))?, 1),
            };
            let asize = if let TopKind::Draid(config) = kind { config.asize(leaf_asize) } else { leaf_asize * factor as u64 };
            let ms_shift = crate::metaslab_shift(kind, asize);
            let guid = node.guid;
            tops.push(TopVdev { guid, kind, ashift, asize, ms_shift, node: Some(node), ..TopVdev::default() });
        }
        VdevTree::assemble(Guid(1), tops, leaves)
    }
}

impl TopVdev {
    fn finish(&self) -> Result<TopVdev, TreeError> {
        let mut top = self.clone();
        if !top.is_concrete() {
            top.slots.clear();
            return Ok(top);
        }
        if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&top.ashift) {
            return Err(TreeError::Geometry("ashift"));
        }
        if top.ms_shift != 0 && !(top.ashift..=63).contains(&top.ms_shift) {
            return Err(TreeError::Geometry("metaslab_shift"));
        }
        if top.asize == 0 || top.asize > 1 << 62 {
            return Err(TreeError::Geometry("asize"));
        }
        if top.metaslab_count() > METASLABS_MAX {
            return Err(TreeError::Geometry("number of metaslabs"));
        }
        let node = top.node.as_mut().ok_or(TreeError::Geometry("a vdev without a type"))?;
        node.id = u64::from(top.id.0);
        (top.kind, top.slots) = match node.kind {
            NodeKind::Raidz(parity) => {
                let columns = node.children.len();
                if !(1..=3).contains(&parity) || columns <= usize::from(parity) || columns > CHILDREN_MAX {
                    return Err(TreeError::Geometry("columns of a raidz"));
                }
                (TopKind::Raidz(parity), node.children.iter().map(leaves_of).collect::<Result<_, _>>()?)
            }
            NodeKind::Draid(config) => {
                if node.children.len() != config.children() {
                    return Err(TreeError::Geometry("children of a draid"));
                }
                top.draid = Some(Arc::new(DraidLayout::new(config)?));
                (TopKind::Draid(config), node.children.iter().map(leaves_of).collect::<Result<_, _>>()?)
            }
            NodeKind::Mirror => (TopKind::Mirror, vec![leaves_of(node)?]),
            NodeKind::Leaf(_) | NodeKind::Replacing | NodeKind::Spare => (TopKind::Leaf, vec![leaves_of(node)?]),
        };
        top.deflate_ratio = (1 << 17) / (top.asize_for_psize(1 << 17) >> 9);
        Ok(top)
    }
}

/// Every leaf below a mirror-like node.
fn leaves_of(node: &Node) -> Result<Vec<LeafId>, TreeError> {
    match node.kind {
        NodeKind::Leaf(leaf) => Ok(vec![leaf]),
        NodeKind::Raidz(_) | NodeKind::Draid(_) => Err(TreeError::Geometry("a raidz below another vdev")),
        NodeKind::Mirror | NodeKind::Replacing | NodeKind::Spare => {
            if node.children.is_empty() || node.children.len() > CHILDREN_MAX {
                return Err(TreeError::Geometry("children of a mirror"));
            }
            let parts = node.children.iter().map(leaves_of).collect::<Result<Vec<_>, _>>()?;
            Ok(parts.concat())
        }
    }
}
