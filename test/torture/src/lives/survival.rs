//! What must survive: which devices hold everything, and whether every block can be had from those that do.

use pool::Spare;
use std::collections::BTreeSet;
use vdev::{Leaf, LeafId, Node, NodeKind, VdevTree};

/// Number from which on distributed spares are numbered, where devices are meant.
const DISTRIBUTED: usize = 1000;

/// Number of the device with this path.
pub fn number(path: &str) -> usize {
    path.trim_end_matches("/old").trim_start_matches('d').parse().unwrap_or(usize::MAX)
}

/// Number of a leaf's device, or of a distributed spare, which has none.
pub fn number_of(leaf: &Leaf) -> usize {
    leaf.draid_spare.map_or_else(|| number(&leaf.path), |spare| DISTRIBUTED + spare.id as usize)
}

/// Number of a spare.
pub fn spare_number(spare: &Spare) -> usize {
    let id = spare.path.rsplit('-').next().and_then(|id| id.parse().ok()).unwrap_or(0);
    if spare.is_distributed() { DISTRIBUTED + id } else { number(&spare.path) }
}

/// Health of a leaf, as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Whole,
    /// Lacks something perhaps, and the engine knows what.
    Lacking,
    /// Wrong perhaps, without anybody's knowledge.
    Tainted,
}

/// True when the leaf is part of what is being replaced, below the node.
pub fn is_replaced(node: &Node, leaf: LeafId) -> bool {
    fn holds(node: &Node, leaf: LeafId) -> bool {
        matches!(node.kind, NodeKind::Leaf(this) if this == leaf) || node.children.iter().any(|child| holds(child, leaf))
    }
    node.kind == NodeKind::Replacing && holds(node, leaf) || node.children.iter().any(|child| is_replaced(child, leaf))
}

/// True when a leaf below the node may be wrong without anybody's knowledge: a spare may stand in for what takes another's place.
fn is_tainted(node: &Node, health: &dyn Fn(LeafId) -> Health) -> bool {
    matches!(node.kind, NodeKind::Leaf(leaf) if health(leaf) == Health::Tainted)
        || node.children.iter().any(|child| is_tainted(child, health))
}

/// True when everything below the node can be had from its leaves, now and when a replaced one has left by itself: then what
/// nobody knows of the other one counts.
///
/// A distributed spare counts as a device of its own: where it lies on a child that is lost, that child has no other part of the
/// same row.
pub fn suffices(node: &Node, health: &dyn Fn(LeafId) -> Health) -> bool {
    let lacking = || node.children.iter().filter(|child| !suffices(child, health)).count();
    match node.kind {
        NodeKind::Leaf(leaf) => health(leaf) == Health::Whole,
        NodeKind::Replacing | NodeKind::Spare => lacking() < node.children.len() && !is_tainted(node, health),
        NodeKind::Mirror => lacking() < node.children.len(),
        NodeKind::Raidz(parity) => lacking() <= usize::from(parity),
        NodeKind::Draid(config) => lacking() <= config.parity(),
    }
}

/// Numbers of devices, and distributed spares, that are not whole.
#[derive(Debug, Default)]
pub struct Harm {
    /// Numbers of those on which something may be wrong or missing.
    pub hurt: BTreeSet<usize>,
    /// Numbers of those that hold something else than the engine believes.
    pub tainted: BTreeSet<usize>,
    /// Numbers of those whose labels are gone.
    pub dead: BTreeSet<usize>,
    /// Numbers of dead devices that healing left to their spares.
    pub left: BTreeSet<usize>,
}

impl Harm {
    /// True when every block can be had although `device` is `so`, besides what is hurt.
    pub fn leaves_enough(&self, tree: &VdevTree, device: usize, so: Health) -> bool {
        let health = |id| match number_of(tree.leaf(id)) {
            this if self.tainted.contains(&this) => Health::Tainted,
            this if this == device => so,
            this if self.hurt.contains(&this) => Health::Lacking,
            _ => Health::Whole,
        };
        tree.tops.iter().all(|top| top.node.as_ref().is_some_and(|node| suffices(node, &health)))
    }

    /// Notes that a device came into the pool: it has labels, and nothing else yet.
    pub fn came(&mut self, device: usize) {
        self.hurt.insert(device);
        self.tainted.remove(&device);
        self.dead.remove(&device);
    }

    /// Notes that resilver and scrub ran to their ends: only what was left to spares is not whole.
    pub fn count_as_whole(&mut self) {
        self.hurt.clone_from(&self.left);
        self.tainted.clone_from(&self.left);
        self.dead.clone_from(&self.left);
    }
}
