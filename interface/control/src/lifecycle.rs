//! `zpool add`, `remove` and `reopen`: vdevs and spares that join and leave a pool, and devices that are looked at again.

use crate::failure::because;
use crate::pools::{done, pool_failure};
use crate::vdevs::{find_leaf, same_file};
use crate::{Control, OpenPool};
use control_api::{ErrorKind, Failure, PoolAdd, PoolNames, PoolReopen, Response, VdevRemove, VdevSpec};
use ondisk::Guid;
use pool::{AddSpec, LeafSpec, Spare};
use std::sync::Arc;
use vdev::{LeafState, TopVdev, VdevTree};

impl Control {
    pub(crate) fn pool_add(&self, request: &PoolAdd) -> Result<Response, Failure> {
        let open = self.open_pool(&request.pool)?;
        let what = format!("cannot add to '{}'", request.pool);
        self.check_unreserved(&request.vdevs, &request.logs, request.allow_in_use)?;
        let spec = self.add_spec(request, &what)?;
        let new: Vec<LeafSpec> = spec.tops.iter().chain(&spec.logs).flat_map(|top| &top.leaves).chain(&spec.spares).cloned().collect();
        new.iter().map(|leaf| &leaf.path).chain(&request.spares).try_for_each(|path| self.check_circle(&open, path, &what))?;
        self.check_contents(&new, None, request.allow_in_use)?;
        if !request.dry_run {
            let (tables, spares) = (self.partitioned(&new), spec.spares.clone());
            open.pool().add(spec).map_err(|error| pool_failure(what, &error))?;
            self.wipe_contents(&new, &tables);
            self.reserve(&spares);
            self.remember();
        }
        Ok(done())
    }

    fn add_spec(&self, request: &PoolAdd, what: &str) -> Result<AddSpec, Failure> {
        let all: Vec<VdevSpec> = request.vdevs.iter().chain(&request.logs).cloned().collect();
        crate::pools::distinct_paths(&all, what)?;
        Ok(AddSpec {
            tops: self.new_tops(&request.vdevs, what)?,
            logs: self.new_tops(&request.logs, what)?,
            ashift: request.ashift.or(self.open_pool(&request.pool)?.pool().ashift_prop().unwrap_or(None)),
            force: request.allow_in_use,
            allow_ashift_mismatch: request.allow_ashift_mismatch,
            ..self.spare_specs(&request.spares, what)?
        })
    }

    /// The devices that are to be spares, opened; those that another pool lists are shared as they are.
    pub(crate) fn spare_specs(&self, paths: &[String], what: &str) -> Result<AddSpec, Failure> {
        let mut spec = AddSpec::default();
        for path in paths {
            match self.reserving_pool(path) {
                Some((_, spare)) => spec.shared.push(spare),
                None => spec.spares.push(self.new_leaf(path, what)?),
            }
        }
        Ok(spec)
    }

    /// The open pool of which the device is a spare.
    pub(crate) fn reserving_pool(&self, path: &str) -> Option<(Arc<OpenPool>, Spare)> {
        let pools: Vec<Arc<OpenPool>> = self.pools.read().values().cloned().collect();
        pools.into_iter().find_map(|open| {
            let spare = open.pool().spares().into_iter().find(|spare| !spare.is_distributed() && same_file(&spare.path, path))?;
            Some((open, spare))
        })
    }

    /// The name of the open pool in which a spare stands in for a device.
    pub(crate) fn pool_using(&self, spare: Guid) -> Option<String> {
        self.pools.read().values().find(|open| open.pool().tree().leaf_by_guid(spare).is_some()).map(|open| open.name())
    }

    pub(crate) fn vdev_remove(&self, request: &VdevRemove) -> Result<Response, Failure> {
        let open = self.open_pool(&request.pool)?;
        let what = format!("cannot remove {}", request.device);
        let refuse = |kind, why: &str| Err(because(kind, &*what, why));
        let word = request.device.as_str();
        let tree = open.pool().tree();
        let removed = match find_aux(&open, word) {
            Some(aux) if aux.is_distributed() => return refuse(ErrorKind::Unsupported, "dRAID spares cannot be removed"),
            Some(_) if request.dry_run => return refuse(ErrorKind::Invalid, UNREMOVABLE),
            Some(aux) => open.pool().remove_aux(aux.guid, self.free_device(&aux)),
            None => match find_top(&tree, word) {
                Some(top) if !top.is_log => return refuse(ErrorKind::Unsupported, UNREMOVABLE),
                Some(_) if request.dry_run => Ok(()),
                Some(top) => open.pool().remove_top(top.guid),
                None if find_leaf(&tree, word).is_some() => return refuse(ErrorKind::Unsupported, UNREMOVABLE),
                None => return refuse(ErrorKind::NotFound, "no such device in pool"),
            },
        };
        removed.map_err(|error| pool_failure(what, &error))?;
        if !request.dry_run {
            self.remember();
        }
        Ok(done())
    }

    /// The device of a spare that nobody uses, to write on it that it is free. One that another pool lists stays a spare.
    fn free_device(&self, aux: &Spare) -> Option<Arc<dyn device::BlockDevice>> {
        let lists = self.pools.read().values().filter(|open| open.pool().spares().iter().any(|spare| spare.guid == aux.guid)).count();
        if lists > 1 { None } else { self.open_device(&aux.path, false, "").ok() }
    }

    /// There is no removal that takes longer than its command.
    pub(crate) fn vdev_remove_stop(&self, request: &PoolNames) -> Result<Response, Failure> {
        self.selected(&request.pools)?;
        Err(because(ErrorKind::Invalid, "cannot cancel removal", "there is no active removal"))
    }

    /// Opens every device of the pools again that is not in use, and looks whether the others grew.
    pub(crate) fn pool_reopen(&self, request: &PoolReopen) -> Result<Response, Failure> {
        for open in self.selected(&request.pools)? {
            let what = format!("cannot reopen '{}'", open.name());
            if open.is_read_only() {
                continue;
            }
            let gone = |leaf: &vdev::Leaf| matches!(leaf.state, LeafState::Missing | LeafState::Removed);
            let failure = |error| pool_failure(what.clone(), &error);
            if !self.revive(&open, &|_| true, &gone).map_err(failure)? {
                return Err(crate::closing::suspended(what));
            }
            open.pool().autoexpand().map_err(failure)?;
        }
        Ok(done())
    }
}

const UNREMOVABLE: &str = "operation not supported on this type of pool";

/// The spare or cache that a command line names.
pub(crate) fn find_aux(open: &OpenPool, word: &str) -> Option<Spare> {
    let caches = open.pool().caches().into_iter().map(|(guid, path)| Spare { guid, path, kind: "cache".into(), in_use: false, ashift: 0 });
    let all: Vec<Spare> = open.pool().spares().into_iter().chain(caches).collect();
    let exact = |aux: &&Spare| aux.path == word || aux.guid.0.to_string() == word;
    let ends = |aux: &&Spare| aux.path.strip_suffix(word).is_some_and(|rest| rest.ends_with('/'));
    let found = all.iter().find(exact).or_else(|| all.iter().find(ends));
    found.or_else(|| all.iter().find(|aux| !aux.is_distributed() && same_file(&aux.path, word))).cloned()
}

/// The top-level vdev that a command line names: by its name (`mirror-1`), its guid, or the device that it is.
fn find_top<'a>(tree: &'a VdevTree, word: &str) -> Option<&'a TopVdev> {
    let leaf = find_leaf(tree, word).map(|leaf| leaf.guid);
    tree.tops.iter().filter(|top| top.is_concrete()).find(|top| {
        let name = top.node.as_ref().map(|node| crate::report::node_kind(node).1);
        name.as_deref() == Some(word) || top.guid.0.to_string() == word || Some(top.guid) == leaf
    })
}
