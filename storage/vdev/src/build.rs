//! What follows from the node of a top-level vdev: its slots and its deflate ratio; and whether its geometry can be. Of the tree that it
//! becomes a part of nothing is known here.

use crate::expansion::Widths;
use crate::size::{ASHIFT_MAX, ASHIFT_MIN};
use crate::{DraidLayout, LeafId, Node, NodeKind, TopKind, TopVdev, TreeError};
use std::sync::Arc;

/// Most metaslabs of a vdev: far above what OpenZFS makes (2¹⁷), far below what a hostile label could ask memory for.
const METASLABS_MAX: u64 = 1 << 22;
/// Most children that an interior node may have.
const CHILDREN_MAX: usize = 255;

/// The vdev with its slots and whatever else follows from its node; refuses what cannot be.
pub(crate) fn finished(top: &TopVdev) -> Result<TopVdev, TreeError> {
    let mut top = top.clone();
    if !top.is_concrete() {
        top.slots.clear();
        if !top.is_removed() {
            return Ok(top);
        }
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
    if top.is_removed() {
        top.deflate_ratio = (1 << 17) / (top.asize_for_psize(1 << 17) >> 9);
        return Ok(top);
    }
    let node = top.node.as_mut().ok_or(TreeError::Geometry("a vdev without a type"))?;
    node.id = u64::from(top.id.0);
    (top.kind, top.slots) = match node.kind {
        NodeKind::Raidz(parity) => {
            let columns = node.children.len();
            if !(1..=3).contains(&parity) || columns <= usize::from(parity) || columns > CHILDREN_MAX {
                return Err(TreeError::Geometry("columns of a raidz"));
            }
            if !top.widths.fit(usize::from(parity), columns) {
                return Err(TreeError::Geometry("expansions of a raidz"));
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
    if !matches!(top.kind, TopKind::Raidz(_)) {
        top.widths = Widths::default();
    }
    top.deflate_ratio = (1 << 17) / (top.asize_for_psize(1 << 17) >> 9);
    Ok(top)
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
