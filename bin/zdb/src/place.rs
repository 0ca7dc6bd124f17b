//! Vdevs by the names that people give them, and the bytes that lie there (OpenZFS: `zdb_vdev_lookup`).

use device::{DeviceError, DeviceOp};
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, Dva, ObjectType, Txg};
use pool::Pool;
use vdev::{LABEL_START_BYTES, LeafId, Node, NodeKind, TopKind, TopVdev, VdevTree};
use zio::{LeafRequest, Priority, ReadFlags, ReadRequest};

/// Vdev in which something lies.
#[derive(Clone, Copy, Debug)]
pub enum Place<'t> {
    /// Top-level vdev: offsets are those of block pointers.
    Top(&'t TopVdev),
    /// Vdev below one: offsets are those of its devices, without their labels.
    Below(&'t Node),
}

impl<'t> Place<'t> {
    /// Vdev of a name: numbers of children, from the pool down, with dots between them (`0.1`); or the path of a device, or the end of it.
    pub fn find(tree: &'t VdevTree, name: &str) -> Option<Place<'t>> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if name.split('.').all(is_number) {
            return Place::by_numbers(tree, name);
        }
        tree.tops.iter().find_map(|top| {
            let root = top.node.as_ref()?;
            let leaf = called(tree, root, name)?;
            Some(if std::ptr::eq(leaf, root) { Place::Top(top) } else { Place::Below(leaf) })
        })
    }

    fn by_numbers(tree: &'t VdevTree, name: &str) -> Option<Place<'t>> {
        let mut numbers = name.split('.').map(|number| number.parse::<usize>().ok());
        let top = tree.tops.get(numbers.next()??)?;
        let mut below: Option<&'t Node> = None;
        for number in numbers {
            let node = below.or(top.node.as_ref())?;
            below = Some(node.children.get(number?)?);
        }
        Some(below.map_or(Place::Top(top), Place::Below))
    }

    /// Words that say what was found: the path of a device, or the type of another vdev.
    pub fn found(self, tree: &VdevTree) -> String {
        let node = match self {
            Place::Top(TopVdev { node: None, kind, .. }) => {
                let kind = match kind {
                    TopKind::Hole => "hole",
                    TopKind::Indirect => "indirect",
                    _ => "missing",
                };
                return format!("Found vdev type: {kind}");
            }
            Place::Top(TopVdev { node: Some(node), .. }) => node,
            Place::Below(node) => node,
        };
        match node.kind {
            NodeKind::Leaf(leaf) => format!("Found vdev: {}", tree.leaf(leaf).path),
            kind => format!("Found vdev type: {}", kind.type_name(None)),
        }
    }

    /// Bytes at an offset, whatever they are: no checksum is asked for, but what redundancy a top-level vdev has counts.
    ///
    /// # Errors
    /// What to tell the user.
    pub fn read(self, pool: &Pool, offset: u64, bytes: usize) -> Result<Vec<u8>, String> {
        match self {
            Place::Top(top) => read_top(pool, top, offset, bytes),
            Place::Below(node) => read_below(pool, node, offset, bytes).map_err(|error| error.to_string()),
        }
    }
}

/// Leaf below a node, or itself, of this path, or whose path ends so.
fn called<'t>(tree: &VdevTree, node: &'t Node, name: &str) -> Option<&'t Node> {
    let NodeKind::Leaf(leaf) = node.kind else {
        return node.children.iter().find_map(|child| called(tree, child, name));
    };
    let path = tree.leaf(leaf).path.as_str();
    let last = path.rsplit('/').next().unwrap_or(path);
    // Solaris' names of disks end with the number of a slice.
    [path, last, last.strip_suffix("s0").unwrap_or(last)].contains(&name).then_some(node)
}

fn read_top(pool: &Pool, top: &TopVdev, offset: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let mut bp = BlockPtr::HOLE;
    bp.set_dva(0, Dva { vdev: top.id, offset, asize: top.asize_for_psize(bytes as u64), gang: false });
    bp.set_birth(Txg::INITIAL, Txg::INITIAL);
    bp.set_lsize(bytes);
    bp.set_psize(bytes);
    bp.set_compression(Compression::OFF);
    bp.set_checksum_kind(Checksum::OFF);
    bp.set_object_type(ObjectType::NONE);
    bp.set_little_endian(true);
    let flags = ReadFlags { raw: true, speculative: true, ..ReadFlags::default() };
    let request = ReadRequest { flags, ..ReadRequest::new(bp, Bookmark::default()) };
    let data = pool.zio().read_wait(request).map_err(|error| error.kind.to_string())?;
    Ok(data.to_vec())
}

/// Bytes of the first device below that gives them.
fn read_below(pool: &Pool, node: &Node, offset: u64, bytes: usize) -> Result<Vec<u8>, DeviceError> {
    if let NodeKind::Leaf(leaf) = node.kind {
        return read_leaf(pool, leaf, offset, bytes);
    }
    let mut outcome = Err(DeviceError::Gone);
    for child in &node.children {
        outcome = read_below(pool, child, offset, bytes);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn read_leaf(pool: &Pool, leaf: LeafId, offset: u64, bytes: usize) -> Result<Vec<u8>, DeviceError> {
    let (done, wait) = exec::completion();
    let request = LeafRequest {
        leaf: pool.tree().leaf(leaf).guid,
        offset: LABEL_START_BYTES.saturating_add(offset),
        op: DeviceOp::read(bytes),
        priority: Priority::SyncRead,
        speculative: true,
    };
    pool.zio().leaf_io(request, Box::new(move |result| done.complete(result)));
    wait.wait(pool.exec()).map(|data| data.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `zdb -R` shows what another device has.
    #[test]
    fn vdevs_are_found_by_numbers_and_by_paths() {
        let mut tree = VdevTree::simple(&[(TopKind::Leaf, 1), (TopKind::Mirror, 2)], 12, 1 << 30).expect("a tree");
        tree.leaves[2].path = "/dev/disks/c0t1d0s0".to_string();
        let found = |name: &str| {
            Place::find(&tree, name).map(|place| match place {
                Place::Top(top) => (top.id.0, None, place.found(&tree)),
                Place::Below(node) => (1, Some(node.id), place.found(&tree)),
            })
        };
        let leaf = |id: u64, path: &str| Some((1, Some(id), format!("Found vdev: {path}")));
        for name in ["0", "d00"] {
            assert_eq!(found(name), Some((0, None, "Found vdev: d00".to_string())), "{name}");
        }
        assert_eq!(found("1"), Some((1, None, "Found vdev type: mirror".to_string())));
        for name in ["1.0", "d01"] {
            assert_eq!(found(name), leaf(0, "d01"), "{name}");
        }
        for name in ["1.1", "/dev/disks/c0t1d0s0", "c0t1d0s0", "c0t1d0"] {
            assert_eq!(found(name), leaf(1, "/dev/disks/c0t1d0s0"), "{name}");
        }
        for name in ["2", "0.0", "1.2", "1.0.0", "", ".", "1.", "d02", "disks/c0t1d0s0", "99999999999999999999"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
