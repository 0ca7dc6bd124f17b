//! Counters of a pool's vdevs for `zpool iostat` and the metrics.

use crate::pool::OpenPool;
use crate::report::pictures::node_kind;
use control_api::IostatVdev;
use pool::{CacheStatus, LeafStatus};
use vdev::{LeafId, LeafKind, Node, NodeKind, VdevTree};
use zio::{EXTENDED, IoKind, LeafCounts};

/// Tree of a pool with its counters.
pub(crate) fn iostat(open: &OpenPool) -> IostatVdev {
    let (name, status) = (open.name(), open.pool().status());
    let mut children = Vec::new();
    for (index, top) in status.tree.tops.iter().enumerate() {
        let Some(node) = &top.node else { continue };
        let mut report = of_node(&status.tree, &status.leaves, node);
        report.is_log = top.is_log;
        report.bias = top.bias.word().map(str::to_string);
        if let Some(space) = status.vdev_space.get(index) {
            report.allocated_bytes = Some(space.allocated);
            report.free_bytes = Some(space.capacity.saturating_sub(space.allocated));
        }
        children.push(report);
    }
    let mut root = IostatVdev {
        name,
        age_ns: open.age_ns(),
        kind: "root".to_string(),
        guid: status.tree.guid.0,
        allocated_bytes: Some(status.space.allocated),
        free_bytes: Some(status.space.capacity.saturating_sub(status.space.allocated)),
        ..IostatVdev::default()
    };
    add_children(&mut root, children);
    root.children.extend(open.pool().caches().iter().map(of_cache));
    root
}

/// Counters of a cache device: they are none of the pool's vdevs'.
fn of_cache(cache: &CacheStatus) -> IostatVdev {
    let report = IostatVdev {
        name: cache.path.clone(),
        kind: cache.kind.clone(),
        guid: cache.guid.0,
        is_cache: true,
        allocated_bytes: Some(cache.allocated_bytes),
        free_bytes: Some(cache.size_bytes.saturating_sub(cache.allocated_bytes)),
        ..IostatVdev::default()
    };
    with_counts(report, &cache.counts, &cache.extended)
}

fn with_counts(report: IostatVdev, counts: &LeafCounts, extended: &[Vec<u64>]) -> IostatVdev {
    IostatVdev {
        read_operations: counts.ops[IoKind::Read as usize],
        write_operations: counts.ops[IoKind::Write as usize],
        read_bytes: counts.bytes[IoKind::Read as usize],
        written_bytes: counts.bytes[IoKind::Write as usize],
        extended: EXTENDED.iter().map(|stat| stat.name.to_string()).zip(extended.iter().cloned()).collect(),
        ..report
    }
}

fn of_node(tree: &VdevTree, leaves: &[LeafStatus], node: &Node) -> IostatVdev {
    if let NodeKind::Leaf(id) = node.kind {
        return of_leaf(tree, leaves, id);
    }
    let (kind, name) = node_kind(node);
    let mut report = IostatVdev { name, kind: kind.to_string(), guid: node.guid.0, ..IostatVdev::default() };
    add_children(&mut report, node.children.iter().map(|child| of_node(tree, leaves, child)).collect());
    report
}

fn of_leaf(tree: &VdevTree, leaves: &[LeafStatus], id: LeafId) -> IostatVdev {
    let leaf = tree.leaf(id);
    let report = IostatVdev {
        name: if leaf.path.is_empty() { leaf.guid.0.to_string() } else { leaf.path.clone() },
        kind: if leaf.kind == LeafKind::Disk { "disk" } else { "file" }.to_string(),
        guid: leaf.guid.0,
        ..IostatVdev::default()
    };
    match leaves.iter().find(|status| status.leaf == id) {
        Some(status) => with_counts(report, &status.counts, &status.extended),
        None => report,
    }
}

fn add_children(report: &mut IostatVdev, children: Vec<IostatVdev>) {
    for child in &children {
        report.read_operations += child.read_operations;
        report.write_operations += child.write_operations;
        report.read_bytes += child.read_bytes;
        report.written_bytes += child.written_bytes;
        for (name, values) in &child.extended {
            let sums = report.extended.entry(name.clone()).or_insert_with(|| vec![0; values.len()]);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    report.children = children;
}
