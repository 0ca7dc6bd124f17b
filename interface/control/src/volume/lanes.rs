//! Lanes of pools: what is asked of the files of volumes may wait for the pool that they are of, and then holds up no other's.

use exec::Exec;
use fuse::{Lane, NodeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Lanes of the pools that are open.
pub(super) struct Lanes {
    exec: Exec,
    /// Lanes of pools, by their names; the one without a name is that of what belongs to no pool, or looks at all of them.
    named: HashMap<String, Arc<Lane>>,
    /// Lanes of nodes that were asked about: most requests are about these, and make no path.
    of_nodes: HashMap<u64, Arc<Lane>>,
}

/// Name of the pool that a path is of.
fn pool_of(path: &str) -> &str {
    path.split(['/', '@']).next().unwrap_or_default()
}

impl Lanes {
    /// Makes none yet; threads of theirs are of `exec`.
    pub(super) fn new(exec: &Exec) -> Lanes {
        Lanes { exec: exec.clone(), named: HashMap::new(), of_nodes: HashMap::new() }
    }

    /// Lane of a node that was asked about before.
    pub(super) fn known(&self, node: NodeId) -> Option<Arc<Lane>> {
        self.of_nodes.get(&node.0).cloned()
    }

    /// Lane of what is asked about a path: its pool's.
    pub(super) fn of_path(&mut self, path: &str, is_open: impl Fn(&str) -> bool) -> Arc<Lane> {
        let pool = pool_of(path);
        if let Some(lane) = self.named.get(pool) {
            return lane.clone();
        }
        // Anybody may ask for any name: only those of pools that are open get a lane.
        let before = self.named.len();
        self.named.retain(|name, _| name.is_empty() || is_open(name));
        if self.named.len() < before {
            self.of_nodes.clear();
        }
        let name = if is_open(pool) { pool } else { "" };
        self.named.entry(name.to_string()).or_insert_with(|| Lane::new(&self.exec)).clone()
    }

    /// Does [`Lanes::of_path`] for a node at this path, which is known from then on.
    pub(super) fn of_node(&mut self, node: NodeId, path: &str, is_open: impl Fn(&str) -> bool) -> Arc<Lane> {
        let lane = self.of_path(path, is_open);
        // A pool that is not open may be so later.
        if self.named.contains_key(pool_of(path)) {
            self.of_nodes.insert(node.0, lane.clone());
        }
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, requests for volumes of one pool wait for another's, or lanes of pools that are gone pile up.
    #[test]
    fn a_pool_has_one_lane_by_paths_and_by_nodes() {
        let exec: Exec = Arc::new(exec::Pool::new(1));
        let mut lanes = Lanes::new(&exec);
        let both = |name: &str| ["one", "two"].contains(&name);
        let one = lanes.of_node(NodeId(2), "one/vol", both);
        assert!(Arc::ptr_eq(&one, &lanes.of_path("one/vol@snapshot", both)));
        assert!(lanes.known(NodeId(2)).is_some_and(|lane| Arc::ptr_eq(&lane, &one)));
        assert!(!Arc::ptr_eq(&one, &lanes.of_path("two/vol", both)));
        let nobody = lanes.of_path("", both);
        assert!(Arc::ptr_eq(&nobody, &lanes.of_node(NodeId(3), "three/vol", both)), "it is of no pool");
        assert!(lanes.known(NodeId(3)).is_none(), "its pool may be there later");
        drop(lanes.of_path("three", |name| name == "two"));
        assert!(lanes.known(NodeId(2)).is_none() && lanes.named.len() == 2, "the pool is gone");
        let again = lanes.of_node(NodeId(2), "one/vol", both);
        assert!(Arc::ptr_eq(&again, &lanes.of_path("one", both)));
    }
}
