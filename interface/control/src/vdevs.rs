//! `zpool offline`, `online` and `clear`: single devices of an open pool.

use crate::failure::because;
use crate::pools::{done, pool_failure};
use crate::{Control, OpenPool, devices};
use control_api::{ErrorKind, Failure, PoolClear, Response, VdevChange, VdevVerb};
use device::BlockDevice;
use ondisk::Guid;
use pool::PoolError;
use std::sync::Arc;
use vdev::{Leaf, LeafState, VdevTree};

/// How often a device is tried to be opened: who held it before may still be letting go.
const OPEN_TRIES: u32 = 20;
const OPEN_STEP_NS: u64 = 25_000_000;

/// The leaf that a command line names: by path, by the end of it, or by guid.
pub(crate) fn find_leaf<'a>(tree: &'a VdevTree, word: &str) -> Option<&'a Leaf> {
    let exact = |leaf: &&Leaf| leaf.path == word || leaf.guid.0.to_string() == word;
    let ends = |leaf: &&Leaf| leaf.path.strip_suffix(word).is_some_and(|rest| rest.ends_with('/'));
    let real = |leaf: &&Leaf| {
        let wanted = std::fs::canonicalize(word).ok();
        wanted.is_some_and(|wanted| std::fs::canonicalize(&leaf.path).is_ok_and(|own| own == wanted))
    };
    tree.leaves.iter().find(exact).or_else(|| tree.leaves.iter().find(ends)).or_else(|| tree.leaves.iter().find(real))
}

impl Control {
    pub(crate) fn vdev_change(&self, request: &VdevChange) -> Result<Response, Failure> {
        let open = self.open_pool(&request.pool)?;
        let what = match &request.change {
            VdevVerb::Offline { .. } | VdevVerb::Fault { .. } => format!("cannot offline {}", request.device),
            VdevVerb::Online { expand: true } => format!("cannot expand {}", request.device),
            VdevVerb::Online { .. } => format!("cannot online {}", request.device),
        };
        let tree = open.pool().tree();
        let leaf = find_leaf(&tree, &request.device).ok_or_else(|| because(ErrorKind::NotFound, &*what, "no such device in pool"))?;
        let result = match request.change {
            VdevVerb::Offline { temporary } => open.pool().offline(leaf.guid, temporary).map(|()| Vec::new()),
            VdevVerb::Fault { temporary } => open.pool().fault(leaf.guid, temporary).map(|()| Vec::new()),
            VdevVerb::Online { expand } => self.online(&open, leaf, &request.device, expand),
        };
        let remarks = result.map_err(|error| pool_failure(what, &error))?;
        if let VdevVerb::Online { .. } = request.change {
            self.remember();
        }
        Ok(Response::Done { remarks })
    }

    /// Opens the leaf's device and brings it back; says when that does not help.
    fn online(&self, open: &OpenPool, leaf: &Leaf, word: &str, expand: bool) -> Result<Vec<String>, PoolError> {
        let was_usable = leaf.state.is_usable();
        let device = if was_usable { None } else { self.reopen_leaf(&leaf.path) };
        let state = open.pool().online(leaf.guid, device)?;
        if state != LeafState::Online {
            let mut remarks = vec![
                format!("warning: device '{word}' onlined, but remains in faulted state"),
                "use 'zpool replace' to replace devices that are no longer present".to_string(),
            ];
            if expand {
                remarks.push(format!("warning: failed to expand usable space on unhealthy device '{word}'"));
            }
            return Ok(remarks);
        }
        if expand && self.has_grown(open, leaf.guid) {
            return Err(PoolError::Invalid("expanding a vdev is not available in this version"));
        }
        Ok(Vec::new())
    }

    /// True when the leaf's device has room for another metaslab that its vdev does not use.
    fn has_grown(&self, open: &OpenPool, leaf: Guid) -> bool {
        let tree = open.pool().tree();
        let Some(id) = tree.leaf_by_guid(leaf) else { return false };
        let top = &tree.tops[tree.leaf(id).top.0 as usize];
        let device = open.pool().devices().into_iter().nth(id.0 as usize).flatten();
        let room = device.and_then(|device| vdev::leaf_asize(device.size_bytes())).unwrap_or(0);
        top.ms_shift != 0 && room > top.min_leaf_asize() + (1 << top.ms_shift)
    }

    fn reopen_leaf(&self, path: &str) -> Option<Arc<dyn BlockDevice>> {
        for attempt in 0..OPEN_TRIES {
            match devices::open(path, false, "") {
                Ok(device) => return Some(device),
                Err(_) if attempt + 1 < OPEN_TRIES && std::path::Path::new(path).exists() => self.exec.sleep_ns(OPEN_STEP_NS),
                Err(_) => return None,
            }
        }
        None
    }

    /// Forgets errors, tries faulted and missing devices again, and lets a suspended pool go on.
    pub(crate) fn pool_clear(&self, request: &PoolClear) -> Result<Response, Failure> {
        let open = self.open_pool(&request.pool)?;
        let tree = open.pool().tree();
        let what = match &request.device {
            Some(word) => format!("cannot clear errors for {word}"),
            None => format!("cannot clear errors for {}", request.pool),
        };
        let only = match &request.device {
            None => None,
            Some(word) => {
                let leaf = find_leaf(&tree, word);
                Some(leaf.ok_or_else(|| because(ErrorKind::NotFound, &*what, "no such device in pool"))?.guid)
            }
        };
        let failure = |error| pool_failure(what.clone(), &error);
        if !open.is_read_only() {
            let gone = |leaf: &&Leaf| matches!(leaf.state, LeafState::Faulted | LeafState::Missing);
            for leaf in tree.leaves.iter().filter(gone).filter(|leaf| only.is_none_or(|only| only == leaf.guid)) {
                let device = self.reopen_leaf(&leaf.path);
                open.pool().online(leaf.guid, device).map_err(failure)?;
            }
        }
        open.pool().clear(only).map_err(failure)?;
        Ok(done())
    }
}
