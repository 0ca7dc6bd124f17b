//! `zpool offline`, `online`, `attach`, `replace`, `detach` and `clear`: single devices of an open pool.

use crate::device::contents::line_of_active;
use crate::device::devices::Devices;
use crate::device::identity::same_file;
use crate::device::inuse::{check_contents, partitioned, unforceable, wipe_contents, with_contents_of};
use crate::device::names::{find_aux, find_cache, find_leaf, find_top};
use crate::events::Events;
use crate::failure::{because, pool_failure, suspended};
use crate::pool::cache_file::PoolsFile;
use crate::pool::{OpenPool, Pools};
use crate::requests::done;
use control_api::{ErrorKind, Failure, NewDevice, PoolClear, PoolReopen, Remark, Response, VdevChange, VdevVerb};
use exec::Exec;
use pool::{CacheStatus, LeafSpec, PoolError};
use std::sync::Arc;
use vdev::{Leaf, LeafKind, LeafState, Pairing, TopKind};

/// Changes of single devices of open pools.
pub(crate) struct Vdevs {
    pub exec: Exec,
    pub pools: Arc<Pools>,
    pub devices: Arc<Devices>,
    pub file: Arc<PoolsFile>,
    pub events: Arc<Events>,
}

/// Failure of a change to what is no device of the pool's vdevs.
fn no_leaf(open: &OpenPool, request: &VdevChange, what: &str) -> Failure {
    let tree = open.pool().tree();
    match (find_aux(open, &request.device), find_top(&tree, &request.device)) {
        (Some(aux), _) if aux.kind == "cache" => because(ErrorKind::Busy, what, "device is in use as a cache"),
        (Some(_), _) => because(ErrorKind::Busy, what, "device is reserved as a hot spare"),
        (None, Some(_)) => because(ErrorKind::Unsupported, what, "it is a vdev of several devices").advise("name one of its devices"),
        (None, None) => because(ErrorKind::NotFound, what, "no such device in pool"),
    }
}

/// Remarks on a device that was brought back and does not work.
fn remains_faulted(word: &str) -> Vec<Remark> {
    vec![
        Remark::Output(format!("warning: device '{word}' onlined, but remains in faulted state")),
        Remark::Output("use 'zpool replace' to replace devices that are no longer present".to_string()),
    ]
}

impl Vdevs {
    /// Does `zpool offline`, `online`, `attach`, `replace`, `detach`.
    pub(crate) fn change(&self, request: &VdevChange) -> Result<Response, Failure> {
        let open = self.pools.open_pool(&request.pool)?;
        let what = request.what();
        let tree = open.pool().tree();
        let result = match find_leaf(&tree, &request.device) {
            Some(leaf) => self.change_leaf(&open, leaf, request, &what)?,
            None => match self.expand(&open, request, &what)? {
                Some(result) => result,
                None => self.change_cache(&open, request).ok_or_else(|| no_leaf(&open, request, &what))?,
            },
        };
        let remarks = result.map_err(|error| pool_failure(what, &error))?;
        self.file.remember();
        Ok(Response::Done { remarks })
    }

    /// Changes a leaf; the outer error says what is wrong with a new device.
    fn change_leaf(
        &self,
        open: &OpenPool,
        leaf: &Leaf,
        request: &VdevChange,
        what: &str,
    ) -> Result<Result<Vec<Remark>, PoolError>, Failure> {
        Ok(match &request.change {
            VdevVerb::Offline { temporary } => open.pool().offline(leaf.guid, *temporary).map(|()| Vec::new()),
            VdevVerb::Fault { temporary } => {
                open.hold_spares(leaf.guid);
                open.pool().fault(leaf.guid, *temporary).map(|()| Vec::new())
            }
            VdevVerb::Online { expand } => self.online(open, leaf, &request.device, *expand),
            VdevVerb::Attach(new) => self.attach(open, leaf, new, Pairing::Mirror, what)?.map(|()| Vec::new()),
            VdevVerb::Replace(new) => self.attach(open, leaf, new, Pairing::Replacing, what)?.map(|()| Vec::new()),
            VdevVerb::Detach => open.pool().detach(leaf.guid).map(|()| Vec::new()),
        })
    }

    /// Attaches a device to the RAID-Z vdev that is named; None for what is none, or for another change. The outer error says what is wrong with the device.
    fn expand(&self, open: &OpenPool, request: &VdevChange, what: &str) -> Result<Option<Result<Vec<Remark>, PoolError>>, Failure> {
        let tree = open.pool().tree();
        let VdevVerb::Attach(new_device) = &request.change else { return Ok(None) };
        let Some(top) = find_top(&tree, &request.device).filter(|top| matches!(top.kind, TopKind::Raidz(_))) else { return Ok(None) };
        if new_device.sequential {
            return Ok(Some(Err(PoolError::Target("only mirror and dRAID vdevs support sequential reconstruction"))));
        }
        let path = new_device.path.clone().unwrap_or_default();
        let spec = self.new_leaf(open, path, what)?;
        let new = std::slice::from_ref(&spec);
        if let Err(error) = open.pool().check_attach_raidz(top.guid, &spec) {
            let failure = pool_failure(what.to_string(), &error);
            return Err(if new_device.force { failure } else { with_contents_of((&self.pools, &self.exec), new, None, failure) });
        }
        check_contents(&self.pools, &self.exec, new, None, new_device.force)?;
        let tables = partitioned(&self.exec, new);
        let attached = open.pool().attach_raidz(top.guid, &spec, new_device.force);
        if attached.is_ok() {
            wipe_contents(&self.exec, new, &tables);
        }
        Ok(Some(attached.map(|()| Vec::new())))
    }

    /// Changes a cache device; None for what is none, or cannot be done to one.
    fn change_cache(&self, open: &OpenPool, request: &VdevChange) -> Option<Result<Vec<Remark>, PoolError>> {
        let cache = find_cache(open, &request.device)?;
        match &request.change {
            VdevVerb::Offline { temporary } => Some(open.pool().offline(cache.guid, *temporary).map(|()| Vec::new())),
            VdevVerb::Fault { temporary } => Some(open.pool().fault(cache.guid, *temporary).map(|()| Vec::new())),
            VdevVerb::Online { .. } => Some(self.online_cache(open, &cache).map(|state| match state.is_usable() {
                true => Vec::new(),
                false => remains_faulted(&request.device),
            })),
            VdevVerb::Attach(_) | VdevVerb::Replace(_) | VdevVerb::Detach => None,
        }
    }

    /// Opens a cache device that is out of use, and brings it back.
    fn online_cache(&self, open: &OpenPool, cache: &CacheStatus) -> Result<LeafState, PoolError> {
        if cache.state.is_usable() {
            return Ok(cache.state);
        }
        // One that failed is still open.
        open.pool().offline(cache.guid, true)?;
        let device = if open.pool().zio().is_injected_gone(cache.guid) { None } else { self.devices.reopen_leaf(&cache.path) };
        open.pool().online(cache.guid, device)
    }

    /// Opens the leaf's device and brings it back; says when that does not help.
    fn online(&self, open: &OpenPool, leaf: &Leaf, word: &str, expand: bool) -> Result<Vec<Remark>, PoolError> {
        self.revive(open, &|other| other.guid == leaf.guid, &|_| !leaf.state.is_usable())?;
        let state = open.pool().online(leaf.guid, None)?;
        if state != LeafState::Online {
            let mut remarks = remains_faulted(word);
            if expand {
                remarks.push(Remark::Warning(format!("warning: failed to expand usable space on unhealthy device '{word}'")));
            }
            return Ok(remarks);
        }
        if expand {
            open.pool().expand(Some(leaf.guid))?;
        } else {
            open.pool().autoexpand()?;
        }
        Ok(Vec::new())
    }

    /// Opens the new device and attaches it; the outer error says what is wrong with it.
    fn attach(
        &self,
        open: &OpenPool,
        leaf: &Leaf,
        new_device: &NewDevice,
        pairing: Pairing,
        what: &str,
    ) -> Result<Result<(), PoolError>, Failure> {
        let path = new_device.path.clone().unwrap_or_else(|| leaf.path.clone());
        // Distributed spares have names, which the commands take for those of devices.
        let name = path.strip_prefix("/dev/").unwrap_or(&path);
        if let Some(spare) = open.pool().spares().into_iter().find(|spare| spare.is_distributed() && spare.path == name) {
            return Ok(open.pool().spare_in(leaf.guid, spare.guid, None, new_device.sequential));
        }
        let was_in_use = pairing == Pairing::Replacing && leaf.state.is_usable() && same_file(&leaf.path, &path);
        if was_in_use {
            self.make_way(open, leaf, &path, what)?;
        }
        let attached = self.attach_new(open, leaf, path, (new_device, pairing, what));
        if was_in_use && !matches!(attached, Ok(Ok(()))) {
            // As it was.
            let device = self.devices.reopen_leaf(&leaf.path);
            let _ = open.pool().online(leaf.guid, device);
        }
        attached
    }

    /// Takes a device out of use that is to be replaced by what is at its own place now: a disk that was erased, or that another one
    /// was put in for. As long as its labels say that it is what it was, it is in use.
    fn make_way(&self, open: &OpenPool, leaf: &Leaf, path: &str, what: &str) -> Result<(), Failure> {
        let tree = open.pool().tree();
        // A file that was removed lives on for who has it open: what counts is what is at its place now.
        let there = self.devices.open_device(path, true, what).ok();
        let held = || tree.leaf_by_guid(leaf.guid).and_then(|id| open.pool().devices().get(id.0 as usize).cloned().flatten());
        let device = there.or_else(held);
        let member = device.and_then(|device| pool::membership(&self.exec, &device));
        if member.is_some_and(|member| member.guid == open.pool().guid()) {
            return Err(unforceable(&[line_of_active(path, &open.name())]));
        }
        open.pool().offline(leaf.guid, true).map_err(|error| pool_failure(what.to_string(), &error))
    }

    /// Opens a device that no pool uses, for this one.
    fn new_leaf(&self, open: &OpenPool, path: String, what: &str) -> Result<LeafSpec, Failure> {
        self.check_free(open, &path, what)?;
        self.devices.served.check_circle(open, &path, what)?;
        // Another pool may have let go of it just now, and its last I/O be under way.
        let device = self.devices.reopen_leaf(&path).map_or_else(|| self.devices.open_device(&path, false, what), Ok)?;
        let kind = if device.facts().whole_disk { LeafKind::Disk } else { LeafKind::File };
        Ok(LeafSpec { path, kind, device })
    }

    fn attach_new(
        &self,
        open: &OpenPool,
        leaf: &Leaf,
        path: String,
        (new_device, pairing, what): (&NewDevice, Pairing, &str),
    ) -> Result<Result<(), PoolError>, Failure> {
        let spec = self.new_leaf(open, path, what)?;
        let new = std::slice::from_ref(&spec);
        let replaced = Some(leaf.guid).filter(|_| pairing == Pairing::Replacing);
        if let Err(error) = open.pool().check_attach(leaf.guid, &spec, pairing) {
            let failure = pool_failure(what.to_string(), &error);
            let is_lost = new_device.force;
            return Err(if is_lost { failure } else { with_contents_of((&self.pools, &self.exec), new, replaced, failure) });
        }
        check_contents(&self.pools, &self.exec, new, replaced, new_device.force)?;
        let tables = partitioned(&self.exec, new);
        // What is at the old place is taken whatever it was before, unless it is of another pool.
        let attached = match new_device.sequential {
            true => open.pool().attach_sequential(leaf.guid, &spec, pairing, new_device.force),
            false => open.pool().attach(leaf.guid, &spec, pairing, new_device.force),
        };
        if attached.is_ok() {
            wipe_contents(&self.exec, new, &tables);
        }
        Ok(attached)
    }

    /// Refuses a device that is in use, or reserved for another pool.
    fn check_free(&self, open: &OpenPool, path: &str, what: &str) -> Result<(), Failure> {
        let is_in_use =
            |pool: &Arc<OpenPool>| pool.pool().tree().leaves.iter().any(|leaf| leaf.state.is_usable() && same_file(&leaf.path, path));
        let user = self.pools.find(is_in_use);
        let is_ours = open.pool().spares().iter().any(|spare| same_file(&spare.path, path));
        let why = match (user.or_else(|| self.pools.caching_pool(path)), self.pools.reserving_pool(path)) {
            (Some(user), _) if user.name() == open.name() || is_ours => format!("{path} is busy"),
            (Some(user), _) => line_of_active(path, &user.name()),
            (None, Some((owner, _))) if !is_ours => format!("{path} is reserved as a hot spare for pool {}", owner.name()),
            _ => return Ok(()),
        };
        Err(because(ErrorKind::Busy, what, why))
    }

    /// Forgets errors, tries faulted and missing devices again, and lets a suspended pool go on.
    pub(crate) fn clear(&self, request: &PoolClear) -> Result<Response, Failure> {
        let open = self.pools.open_pool(&request.pool)?;
        let tree = open.pool().tree();
        let what = match &request.device {
            Some(word) => format!("cannot clear errors for {word}"),
            None => format!("cannot clear errors for {}", request.pool),
        };
        if open.is_read_only() {
            return Err(because(ErrorKind::Permission, what, "pool is read-only"));
        }
        self.clear_caches(&open, request.device.as_deref()).map_err(|error| pool_failure(what.clone(), &error))?;
        let only = match &request.device {
            None => None,
            Some(word) => match find_leaf(&tree, word) {
                Some(leaf) => Some(leaf.guid),
                None if find_cache(&open, word).is_some() => return Ok(done()),
                None => return Err(because(ErrorKind::NotFound, &*what, "no such device in pool")),
            },
        };
        let failure = |error| pool_failure(what.clone(), &error);
        let gone = |leaf: &Leaf| matches!(leaf.state, LeafState::Faulted | LeafState::Missing | LeafState::Removed);
        let unanswered = || suspended(what.clone()).advise("not all of the devices that the pool cannot do without answer");
        let works = self.revive(&open, &|leaf| only.is_none_or(|only| only == leaf.guid), &gone).map_err(failure)?;
        // Until it is sure that no other host has the pool, nothing brings it back.
        let is_fenced = open.pool().zio().is_fenced();
        if !works && !is_fenced {
            return Err(unanswered());
        }
        open.pool().make_sure_of_devices().map_err(failure)?;
        open.pool().clear(only).map_err(failure)?;
        if is_fenced && open.pool().zio().is_suspended() {
            return Err(unanswered());
        }
        // Whether or not there was something to clear, as in OpenZFS (`spa_vdev_state_exit`).
        self.events.tell("sysevent.fs.zfs.config_sync", &open.name(), open.pool().guid());
        Ok(done())
    }

    /// Forgets the errors of the cache device that a word names, or of all, and tries those again that are out of use because of errors.
    fn clear_caches(&self, open: &OpenPool, word: Option<&str>) -> Result<(), PoolError> {
        let named = word.map(|word| find_cache(open, word).map(|cache| cache.guid));
        for cache in open.pool().caches().iter().filter(|cache| named.is_none_or(|named| named == Some(cache.guid))) {
            open.pool().zio().leaf_stats_of(cache.guid).clear_errors();
            if matches!(cache.state, LeafState::Faulted | LeafState::Missing | LeafState::Removed) {
                self.online_cache(open, cache)?;
            }
        }
        Ok(())
    }

    /// Opens every device of the pools again that is not in use, and looks whether the others grew.
    pub(crate) fn reopen(&self, request: &PoolReopen) -> Result<Response, Failure> {
        for open in self.pools.selected(&request.pools)? {
            let what = format!("cannot reopen '{}'", open.name());
            if open.is_read_only() {
                continue;
            }
            let gone = |leaf: &vdev::Leaf| matches!(leaf.state, LeafState::Missing | LeafState::Removed);
            let failure = |error| pool_failure(what.clone(), &error);
            if !self.revive(&open, &|_| true, &gone).map_err(failure)? {
                return Err(suspended(what));
            }
            self.devices.open_caches(&open);
            open.pool().autoexpand().map_err(failure)?;
        }
        Ok(done())
    }

    /// Brings back leaves that are `gone`, and those in use whose devices do not answer any more, as far as `wanted`; then a suspended
    /// pool goes on. False when it can't.
    fn revive(&self, open: &OpenPool, wanted: &dyn Fn(&Leaf) -> bool, gone: &dyn Fn(&Leaf) -> bool) -> Result<bool, PoolError> {
        let pool = open.pool();
        let was_suspended = pool.zio().is_suspended();
        let tree = pool.tree();
        let is_wanted = |guid: &ondisk::Guid| tree.leaf_by_guid(*guid).is_some_and(|id| wanted(tree.leaf(id)));
        let mut silent = pool.silent_leaves();
        // A device that is said to be gone would not open, whether or not somebody has used it since.
        let unseen = |leaf: &&Leaf| leaf.state.is_usable() && pool.zio().is_injected_gone(leaf.guid) && !silent.contains(&leaf.guid);
        let unseen: Vec<_> = tree.leaves.iter().filter(unseen).map(|leaf| leaf.guid).collect();
        silent.extend(unseen);
        silent.retain(is_wanted);
        pool.let_go(&silent);
        let is_back = |leaf: &&Leaf| leaf.kind != LeafKind::DraidSpare && wanted(leaf) && (gone(leaf) || silent.contains(&leaf.guid));
        let back = |leaf: &Leaf| {
            let is_gone = pool.zio().is_injected_gone(leaf.guid);
            (leaf.guid, if is_gone { None } else { self.devices.reopen_leaf(&leaf.path) })
        };
        let leaves: Vec<_> = tree.leaves.iter().filter(is_back).map(back).collect();
        if leaves.is_empty() && !was_suspended { Ok(true) } else { pool.bring_back(leaves) }
    }
}
