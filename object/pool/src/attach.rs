//! Leaves that join and leave a pool in use: attach, replace, detach (OpenZFS: `spa_vdev_attach`, `spa_vdev_detach`,
//! `spa_vdev_resilver_done`).
//!
//! Invariant: which leaves there are changes only in the sync, before anything of the txg is written, so that labels,
//! configuration and the sum of guids in the uberblock always speak of the same tree. What was written without a new leaf is in
//! its dirty time log from the beginning: everything up to a txg that nobody can be writing for yet.

use crate::create::check_device;
use crate::labels::{Device, flush_all, init_writes, write_all};
use crate::mos_objects::{create_vdev_zaps, destroy_vdev_zap};
use crate::sync::{Config, Syncer};
use crate::{DeviceProblem, LeafSpec, Pool, PoolError, dtl};
use dmu::Tx;
use exec::Mutex;
use nvlist::NvList;
use ondisk::{Guid, Txg};
use scan::{ScanError, ScanFunction, ScanState, ScanStatus};
use std::sync::Arc;
use vdev::{Leaf, LeafKind, LeafState, Pairing, TopVdev, VdevTree};

/// Counts rebuilds that run.
const DEVICE_REBUILD: &str = "org.openzfs:device_rebuild";
/// What the path of a device gets appended that is replaced by another one at the same place (OpenZFS: `spa_vdev_attach`).
const OLD: &str = "/old";

/// What a change does to tree and devices; the txg is the one that is being synced.
type Edit = Box<dyn FnOnce(&Config, Txg) -> Result<(VdevTree, Vec<(Guid, Device)>), PoolError> + Send>;

/// A change of the tree that waits for the next sync, and where its outcome goes.
pub(crate) struct Change {
    edit: Edit,
    outcome: Arc<Mutex<Option<Result<(), PoolError>>>>,
}

/// A device that left, and the label that says so.
pub(crate) type Detached = (Device, NvList);

impl Pool {
    /// As [`Pool::attach`], and what it lacks is brought by a sequential rebuild, followed by a scrub.
    ///
    /// Errors: as there, and [`PoolError::Scan`] while a resilver runs.
    pub fn attach_sequential(&self, target: Guid, new: &LeafSpec, pairing: Pairing, force: bool) -> Result<(), PoolError> {
        self.attach_how(target, new, pairing, (force, true))
    }

    /// Attaches a device beside the leaf `target`, for good or in its place; what it lacks is resilvered by itself, and a
    /// replaced leaf goes when that is done. With `force` also a device that belongs to another pool is taken.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Device`], [`PoolError::Target`] where nothing can be attached.
    pub fn attach(&self, target: Guid, new: &LeafSpec, pairing: Pairing, force: bool) -> Result<(), PoolError> {
        self.attach_how(target, new, pairing, (force, false))
    }

    /// What has to hold of the pool and the vdev before a device may be attached for a rebuild, or for a resilver.
    fn check_way(&self, top: &TopVdev, pairing: Pairing, sequential: bool) -> Result<(), PoolError> {
        if !sequential {
            return if self.rebuilds.is_active() { Err(PoolError::Rebuilding) } else { Ok(()) };
        }
        if !self.syncer.services.features.is_enabled(DEVICE_REBUILD) {
            let only = "only mirror and dRAID vdevs support sequential reconstruction";
            let feature = "device_rebuild feature must be enabled in order to use sequential reconstruction";
            return Err(PoolError::Target(if pairing == Pairing::Mirror { feature } else { only }));
        }
        let resilvers = |status: ScanStatus| status.function == ScanFunction::Resilver && status.state == ScanState::Scanning;
        if self.scan_status().is_some_and(resilvers) {
            return Err(ScanError::Resilvering.into());
        }
        if !top.can_rebuild() {
            return Err(PoolError::Target(match pairing {
                Pairing::Mirror => "can only attach to mirrors and top-level disks",
                Pairing::Replacing => "only mirror and dRAID vdevs support sequential reconstruction",
            }));
        }
        Ok(())
    }

    fn attach_how(&self, target: Guid, new: &LeafSpec, pairing: Pairing, (force, sequential): (bool, bool)) -> Result<(), PoolError> {
        self.check_writeable()?;
        let tree = self.tree();
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let top = &tree.tops[tree.leaf(id).top.0 as usize];
        self.check_way(top, pairing, sequential)?;
        if pairing == Pairing::Mirror && !tree.can_mirror(id) {
            return Err(PoolError::Target("can only attach to mirrors and top-level disks"));
        }
        if matches!(tree.parent_kind(id), Some(vdev::NodeKind::Spare)) || tree.leaf(id).draid_spare.is_some() {
            return Err(PoolError::Target("already in replacing/spare config; wait for completion or use 'zpool detach'"));
        }
        let path = new.path.clone();
        let refuse = |problem| Err(PoolError::Device { path: path.clone(), problem });
        if vdev::leaf_asize(new.device.size_bytes()).is_none_or(|bytes| bytes < top.min_leaf_asize()) {
            return refuse(DeviceProblem::TooSmallForVdev);
        }
        if new.device.facts().logical_sector_bytes > 1 << top.ashift {
            return refuse(DeviceProblem::SectorsTooLarge);
        }
        if !force {
            check_device(self.exec(), new)?;
        }
        let guid = self.new_guid(&tree);
        self.write_first_label(target, guid, new)?;
        let (kind, device, parent) = (new.kind, new.device.clone(), self.new_guid(&tree));
        let (txgs, rebuilds) = (self.txgs.clone(), sequential.then(|| self.rebuilds.clone()));
        let edit = move |config: &Config, txg: Txg| {
            let mut tree = VdevTree::clone(&config.tree);
            let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
            let old = &mut tree.leaves[id.0 as usize];
            if old.path == path {
                old.path.push_str(OLD);
            }
            let leaf = Leaf {
                kind,
                guid,
                path,
                whole_disk: (kind == LeafKind::Disk).then_some(false),
                missing_txgs: vec![(Txg::INITIAL, Txg(txgs.open_txg().0 + 1))],
                ..Leaf::default()
            };
            let vdev = tree.leaf(id).top;
            let tree = tree.attach(id, leaf, pairing, parent, txg)?;
            // It begins with this very txg: no import finds the device without it.
            rebuilds.iter().for_each(|rebuilds| rebuilds.want(vdev));
            Ok((tree, vec![(guid, device)]))
        };
        self.change_tree(Box::new(edit))?;
        self.rebuilds.spawn();
        self.resilver_stale()
    }

    /// Detaches a leaf that is beside others with the same data.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::NoReplicas`], [`PoolError::Target`].
    pub fn detach(&self, leaf: Guid) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.change_tree(Box::new(move |config, _| {
            let tree = &config.tree;
            let id = tree.leaf_by_guid(leaf).ok_or(PoolError::NoSuchDevice)?;
            if !tree.can_detach(id) {
                return Err(PoolError::Target("only applicable to mirror and replacing vdevs"));
            }
            if tree.is_required(id) {
                return Err(PoolError::NoReplicas);
            }
            Ok((detached(tree, leaf)?, Vec::new()))
        }))
    }

    fn change_tree(&self, edit: Edit) -> Result<(), PoolError> {
        let outcome = Arc::new(Mutex::new(None));
        self.syncer.changes.lock().push(Change { edit, outcome: outcome.clone() });
        while outcome.lock().is_none() {
            self.txgs.wait_synced(self.txgs.open_txg())?;
        }
        let result = outcome.lock().take();
        result.unwrap_or(Ok(()))
    }

    /// A guid that no vdev of the pool has (OpenZFS: `spa_generate_guid`).
    fn new_guid(&self, tree: &VdevTree) -> Guid {
        loop {
            let guid = Guid(self.exec().random_u64());
            if guid.0 != 0 && !tree.has_guid(guid) {
                return guid;
            }
        }
    }

    /// Labels that say "being made", as for a new pool: what held the device before must not find it again.
    fn write_first_label(&self, target: Guid, guid: Guid, new: &LeafSpec) -> Result<(), PoolError> {
        let (tree, facts) = {
            let config = self.syncer.config.lock();
            (config.tree.clone(), config.facts.clone())
        };
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let mut label = facts.label_config(&tree, id, Txg(0));
        label.set("guid", guid.0).add("create_txg", 0u64);
        write_all(self.exec(), init_writes(&new.device, &label)?).into_iter().collect::<Result<(), _>>()?;
        Ok(flush_all(self.exec(), std::slice::from_ref(&new.device)).into_iter().collect::<Result<(), _>>()?)
    }
}

/// The tree without a leaf; a path that was marked as old because of it is as it was.
fn detached(tree: &VdevTree, leaf: Guid) -> Result<VdevTree, PoolError> {
    let id = tree.leaf_by_guid(leaf).ok_or(PoolError::NoSuchDevice)?;
    let marked = format!("{}{OLD}", tree.leaf(id).path);
    let mut next = tree.detach(id)?;
    if let Some(other) = next.leaves.iter_mut().find(|other| other.path == marked) {
        other.path.truncate(marked.len() - OLD.len());
    }
    Ok(next)
}

impl Config {
    /// Puts `tree` in place of the current one, with the devices of the leaves that stay and `added`; gives what left.
    fn take_tree(&mut self, tree: VdevTree, added: &[(Guid, Device)]) -> Vec<(Leaf, Option<Device>)> {
        let old = std::mem::replace(&mut self.tree, Arc::new(tree));
        let mut devices = std::mem::take(&mut self.devices);
        let place_of = |leaf: &Leaf| {
            let find = |is_same: &dyn Fn(&Leaf) -> bool| old.leaves.iter().position(is_same);
            // One that became a top-level vdev has another guid, but its ZAP or else its path is its own.
            find(&|known| known.guid == leaf.guid)
                .or_else(|| find(&|known| known.zap.0 != 0 && known.zap == leaf.zap))
                .or_else(|| find(&|known| known.zap == leaf.zap && known.path == leaf.path))
        };
        let kept: Vec<Option<usize>> = self.tree.leaves.iter().map(place_of).collect();
        let device = |(leaf, place): (&Leaf, &Option<usize>)| {
            let fresh = added.iter().find(|(guid, _)| *guid == leaf.guid).map(|(_, device)| device.clone());
            fresh.or_else(|| devices.get((*place)?).cloned().flatten())
        };
        let next = self.tree.leaves.iter().zip(&kept).map(device).collect();
        let gone = (0..old.leaves.len()).filter(|index| !kept.contains(&Some(*index)));
        let left = gone.map(|index| (old.leaves[index].clone(), devices[index].take())).collect();
        self.devices = next;
        self.dirty = true;
        left
    }
}

impl Syncer {
    /// Does what was asked for since the last txg. Before anything of the txg is written.
    pub fn apply_changes(&self, tx: &Tx) -> Result<(), PoolError> {
        for change in std::mem::take(&mut *self.changes.lock()) {
            let edited = {
                let config = self.config.lock();
                (change.edit)(&config, tx.txg())
            };
            let done = match edited {
                Ok((tree, added)) => self.replace_tree(tree, &added, tx),
                Err(error) => {
                    *change.outcome.lock() = Some(Err(error));
                    continue;
                }
            };
            done?;
            *change.outcome.lock() = Some(Ok(()));
        }
        Ok(())
    }

    /// Lets go of leaves whose replacements have everything.
    pub fn end_replacements(&self, tx: &Tx) -> Result<(), PoolError> {
        loop {
            let tree = self.config.lock().tree.clone();
            let Some(old) = tree.replaced_leaf() else { return Ok(()) };
            let guid = tree.leaf(old).guid;
            self.services.log_internal("vdev attach", &format!("replace vdev={} completed", tree.leaf(old).path), tx);
            self.replace_tree(detached(&tree, guid)?, &[], tx)?;
        }
    }

    /// Makes `tree` the current one, with what hangs on its leaves in the MOS.
    fn replace_tree(&self, tree: VdevTree, added: &[(Guid, Device)], tx: &Tx) -> Result<(), PoolError> {
        let features = &self.services.features;
        let left = {
            let mut config = self.config.lock();
            let left = config.take_tree(tree, added);
            self.io.set_view(config.view(&self.services));
            left
        };
        for (leaf, device) in left {
            destroy_vdev_zap(&self.mos, leaf.zap, tx)?;
            dtl::destroy(&self.mos, features, leaf.dtl, tx)?;
            if let Some(device) = device.filter(|_| leaf.state != LeafState::Missing) {
                let mut label = self.config.lock().facts.detached_label(leaf.guid);
                label.add("path", leaf.path.as_str());
                self.detached.lock().push((device, label));
            }
        }
        // ZAPs and logs of new leaves are made on a copy, and taken over: making them waits.
        let mut tree = VdevTree::clone(&self.config.lock().tree);
        create_vdev_zaps(&self.mos, features, &mut tree, tx)?;
        dtl::record(&self.mos, features, &mut tree, &[], tx)?;
        let mut config = self.config.lock();
        config.take_zaps(&tree);
        config.take_dtls(&tree);
        self.io.set_view(config.view(&self.services));
        Ok(())
    }

    /// Writes to devices that left that they did: once the pool's labels no longer name them. A device that can't be written
    /// keeps a label that no import takes for one.
    pub fn label_detached(&self) {
        for (device, label) in std::mem::take(&mut *self.detached.lock()) {
            if let Ok(writes) = init_writes(&device, &label) {
                let _ = write_all(&self.services.exec, writes);
                let _ = flush_all(&self.services.exec, std::slice::from_ref(&device));
            }
        }
    }
}
