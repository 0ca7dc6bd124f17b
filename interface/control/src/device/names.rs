//! Devices by the words of a command line: leaves, spares, caches and top-level vdevs of a pool.

use crate::device::identity::same_file;
use crate::pool::OpenPool;
use crate::report::pictures::node_kind;
use pool::{CacheStatus, Spare};
use vdev::{Leaf, TopVdev, VdevTree};

/// Leaf that a command line names: by path, by the end of it, or by guid.
pub(crate) fn find_leaf<'a>(tree: &'a VdevTree, word: &str) -> Option<&'a Leaf> {
    let exact = |leaf: &&Leaf| leaf.path == word || leaf.guid.0.to_string() == word;
    let ends = |leaf: &&Leaf| leaf.path.strip_suffix(word).is_some_and(|rest| rest.ends_with('/'));
    let real = |leaf: &&Leaf| same_file(&leaf.path, word);
    tree.leaves.iter().find(exact).or_else(|| tree.leaves.iter().find(ends)).or_else(|| tree.leaves.iter().find(real))
}

/// Cache device that a command line names.
pub(crate) fn find_cache(open: &OpenPool, word: &str) -> Option<CacheStatus> {
    let guid = find_aux(open, word).filter(|aux| aux.kind == "cache")?.guid;
    open.pool().caches().into_iter().find(|cache| cache.guid == guid)
}

/// Spare or cache that a command line names.
pub(crate) fn find_aux(open: &OpenPool, word: &str) -> Option<Spare> {
    let of_cache = |cache: CacheStatus| Spare { guid: cache.guid, path: cache.path, kind: "cache".into(), in_use: false, ashift: 0 };
    let caches = open.pool().caches().into_iter().map(of_cache);
    let all: Vec<Spare> = open.pool().spares().into_iter().chain(caches).collect();
    let exact = |aux: &&Spare| aux.path == word || aux.guid.0.to_string() == word;
    let ends = |aux: &&Spare| aux.path.strip_suffix(word).is_some_and(|rest| rest.ends_with('/'));
    let found = all.iter().find(exact).or_else(|| all.iter().find(ends));
    found.or_else(|| all.iter().find(|aux| !aux.is_distributed() && same_file(&aux.path, word))).cloned()
}

/// Top-level vdev that a command line names: by its name (`mirror-1`), its guid, or the device that it is.
pub(crate) fn find_top<'a>(tree: &'a VdevTree, word: &str) -> Option<&'a TopVdev> {
    let leaf = find_leaf(tree, word).map(|leaf| leaf.guid);
    tree.tops.iter().filter(|top| top.is_concrete()).find(|top| {
        let name = top.node.as_ref().map(|node| node_kind(node).1);
        name.as_deref() == Some(word) || top.guid.0.to_string() == word || Some(top.guid) == leaf
    })
}
