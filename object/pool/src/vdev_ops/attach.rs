//! Leaves that join and leave a pool in use: attach, replace, detach, spares (OpenZFS: `spa_vdev_attach`, `spa_vdev_detach`,
//! `spa_vdev_resilver_done`).
//!
//! Invariant: which leaves there are changes only in the sync, before anything of the txg is written, so that labels,
//! configuration and the sum of guids in the uberblock always speak of the same tree. What was written without a new leaf is in
//! its dirty time log from the beginning: everything up to a txg that nobody can be writing for yet.

use super::VdevOps;
use super::spec::{LeafSpec, check_device, label_guid, write_label};
use crate::label::Device;
use crate::spa::features::{DEVICE_REBUILD, RAIDZ_EXPANSION};
use crate::spa::state::Config;
use crate::sync::changes::{Edited, OLD, detached};
use crate::{DeviceProblem, PoolError};
use ondisk::names::spa_version;
use ondisk::{Guid, ObjectId, Txg, VdevId};
use scan::ScanError;
use std::sync::Arc;
use vdev::{Leaf, LeafId, LeafKind, NodeKind, Pairing, TopKind, TopVdev, VdevTree};

/// Most children of a vdev.
const CHILDREN_MAX: u64 = 255;

/// A leaf that is to come, and how.
struct Incoming {
    leaf: Leaf,
    device: Option<Device>,
    pairing: Pairing,
    /// Request for the sequential rebuild that brings what the leaf lacks; None for a resilver.
    rebuild: Option<WantRebuild>,
}

/// Asks for the rebuild of a top-level vdev, with the very txg in which a device comes: no import finds the device without it.
pub(crate) type WantRebuild = Box<dyn FnOnce(VdevId) + Send>;

/// Work that runs and is in the way of other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// True while a sequential rebuild runs.
    pub rebuild: bool,
    /// True while a resilver runs.
    pub resilver: bool,
}

/// Way in which a device is to come.
pub(crate) struct How {
    pub pairing: Pairing,
    /// True to take also a device that belongs to another pool.
    pub force: bool,
    /// Request for the sequential rebuild that brings what the device lacks; None for a resilver.
    pub rebuild: Option<WantRebuild>,
    pub running: Running,
}

impl VdevOps {
    /// Checks the conditions of the pool and the vdev for attaching a device, for a rebuild or for a resilver.
    fn check_way(&self, top: &TopVdev, pairing: Pairing, (sequential, running): (bool, Running)) -> Result<(), PoolError> {
        if !sequential {
            return if running.rebuild { Err(PoolError::Rebuilding) } else { Ok(()) };
        }
        let only = "only mirror and dRAID vdevs support sequential reconstruction";
        if !self.spa.services.features.is_enabled(DEVICE_REBUILD) {
            let feature = "device_rebuild feature must be enabled in order to use sequential reconstruction";
            return Err(PoolError::Target(if pairing == Pairing::Mirror { feature } else { only }));
        }
        if running.resilver {
            return Err(ScanError::Resilvering.into());
        }
        if !top.can_rebuild() {
            return Err(PoolError::Target(match pairing {
                Pairing::Mirror => "can only attach to mirrors and top-level disks",
                Pairing::Replacing | Pairing::Spare => only,
            }));
        }
        Ok(())
    }

    /// Attaches a device beside the leaf `target`. A spare of the pool stands in for the leaf until one of them is detached: then its guid is
    /// given.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Device`], [`PoolError::Target`] where nothing can be attached.
    pub fn attach(&self, target: Guid, new: &LeafSpec, how: How) -> Result<Option<Guid>, PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        let tree = self.spa.tree();
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let How { pairing, force, rebuild, running } = how;
        self.check_way(&tree.tops[tree.leaf(id).top.0 as usize], pairing, (rebuild.is_some(), running))?;
        let spare = label_guid(self.spa.exec(), &new.device).filter(|guid| self.spares().iter().any(|spare| spare.guid == *guid));
        let refuse = |problem| Err(PoolError::Device { path: new.path.clone(), problem });
        if tree.tops.iter().any(|top| top.is_leaving) {
            return refuse(DeviceProblem::Removing);
        }
        if spare.is_some_and(|guid| pairing == Pairing::Mirror || tree.leaf_by_guid(guid).is_some()) {
            return refuse(DeviceProblem::Busy);
        }
        if let Some(guid) = spare {
            self.spare_in(target, guid, Some(new.device.clone()), (rebuild, running))?;
            return Ok(Some(guid));
        }
        let leaf = Leaf {
            kind: new.kind,
            guid: self.spa.new_guid(&tree),
            path: new.path.clone(),
            whole_disk: (new.kind == LeafKind::Disk).then_some(false),
            ..Leaf::default()
        };
        check_pairing(&tree, id, &leaf, (pairing, self.spa.version()))?;
        check_size(&tree, id, new)?;
        if !force {
            check_device(self.spa.exec(), new)?;
        }
        self.bring_in(target, Incoming { leaf, device: Some(new.device.clone()), pairing, rebuild })?;
        Ok(None)
    }

    /// Looks at all that [`VdevOps::attach`] refuses even with `force`: size, sectors, place in the tree.
    ///
    /// Errors: as there.
    pub fn check_attach(&self, target: Guid, new: &LeafSpec, pairing: Pairing) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        let tree = self.spa.tree();
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        // A spare of the pool stands in as it is.
        if label_guid(self.spa.exec(), &new.device).is_some_and(|guid| self.spares().iter().any(|spare| spare.guid == guid)) {
            return Ok(());
        }
        let leaf = Leaf { guid: self.spa.new_guid(&tree), path: new.path.clone(), ..Leaf::default() };
        check_pairing(&tree, id, &leaf, (pairing, self.spa.version()))?;
        check_size(&tree, id, new)
    }

    /// Attaches a device to a RAID-Z vdev: its expansion begins with the txg that has the device (OpenZFS: `spa_vdev_attach`, `vdev_raidz_attach_sync`).
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Expanding`], [`PoolError::Device`], [`PoolError::Target`] with the reason.
    pub fn attach_raidz(&self, target: Guid, new: &LeafSpec, (force, running): (bool, Running)) -> Result<(), PoolError> {
        self.check_attach_raidz(target, new, running)?;
        if !force {
            check_device(self.spa.exec(), new)?;
        }
        let tree = self.spa.tree();
        let first = raidz_of(&tree, target)?.leaves().next().ok_or(PoolError::NoSuchDevice)?;
        let leaf = Leaf {
            kind: new.kind,
            guid: self.spa.new_guid(&tree),
            path: new.path.clone(),
            whole_disk: (new.kind == LeafKind::Disk).then_some(false),
            ..Leaf::default()
        };
        self.write_first_label(tree.leaf(first).guid, leaf.guid, &new.device)?;
        let (guid, device) = (leaf.guid, new.device.clone());
        self.change_leaves(Box::new(move |config: &Config, _| {
            let top = raidz_of(&config.tree, target)?;
            check_raidz(&config.tree, top)?;
            // As old as the vdev: it lacks nothing of what was written since.
            let born = top.node.as_ref().map_or(Txg(0), |node| node.create_txg);
            let log = Some(("vdev attach", format!("attach vdev={} to vdev=raidz{}-{}", leaf.path, top.parity(), top.id.0)));
            let tree = Arc::new(config.tree.expand_raidz(top.id, leaf, born)?);
            Ok(Edited { tree, devices: vec![(guid, device)], log, ..Edited::default() })
        }))?;
        self.spa.notify("sysevent.fs.zfs.vdev_attach", Some(guid));
        Ok(())
    }

    /// Looks at all that [`VdevOps::attach_raidz`] refuses even with `force`.
    ///
    /// Errors: as there.
    pub fn check_attach_raidz(&self, target: Guid, new: &LeafSpec, running: Running) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        if running.rebuild {
            return Err(PoolError::Rebuilding);
        }
        let tree = self.spa.tree();
        let refuse = |problem| Err(PoolError::Device { path: new.path.clone(), problem });
        if tree.tops.iter().any(|top| top.is_leaving) {
            return refuse(DeviceProblem::Removing);
        }
        let top = raidz_of(&tree, target)?;
        if !self.spa.services.features.is_enabled(RAIDZ_EXPANSION) {
            return Err(PoolError::Target("raidz_expansion feature must be enabled in order to attach a device to raidz"));
        }
        check_raidz(&tree, top)?;
        if label_guid(self.spa.exec(), &new.device).is_some_and(|guid| self.spares().iter().any(|spare| spare.guid == guid)) {
            return refuse(DeviceProblem::Busy);
        }
        check_size(&tree, top.leaves().next().ok_or(PoolError::NoSuchDevice)?, new)
    }

    /// Lets a spare of the pool stand in for the leaf `target`; `rebuild` asks for a sequential rebuild of what it lacks.
    /// `device` is the spare's, and None for a distributed one.
    ///
    /// Errors: as [`VdevOps::attach`].
    pub fn spare_in(
        &self,
        target: Guid,
        spare: Guid,
        device: Option<Device>,
        (rebuild, running): (Option<WantRebuild>, Running),
    ) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        let tree = self.spa.tree();
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let leaf = self.spare_leaf(spare)?;
        let top = &tree.tops[tree.leaf(id).top.0 as usize];
        if top.is_log {
            return Err(PoolError::Target("cannot replace a log with a spare"));
        }
        self.check_way(top, Pairing::Spare, (rebuild.is_some(), running))?;
        check_pairing(&tree, id, &leaf, (Pairing::Spare, self.spa.version()))?;
        match &device {
            Some(device) => {
                check_size(&tree, id, &LeafSpec { path: leaf.path.clone(), kind: leaf.kind, device: device.clone() })?;
            }
            // A distributed spare has room on its own vdev's children, and just as much as one of them.
            None if leaf.draid_spare.is_some_and(|spare| spare.top == top.guid) => {}
            None => return Err(PoolError::Target("dRAID spares can only replace child devices in their parent's dRAID vdev")),
        }
        self.bring_in(target, Incoming { leaf, device, pairing: Pairing::Spare, rebuild })
    }

    fn bring_in(&self, target: Guid, new: Incoming) -> Result<(), PoolError> {
        let Incoming { leaf, device, pairing, rebuild } = new;
        if let Some(device) = &device {
            self.write_first_label(target, leaf.guid, device)?;
        }
        let (guid, parent) = (leaf.guid, self.spa.new_guid(&self.spa.tree()));
        let txgs = self.spa.txgs.clone();
        self.change_leaves(Box::new(move |config: &Config, txg: Txg| {
            let mut tree = VdevTree::clone(&config.tree);
            let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
            check_pairing(&tree, id, &leaf, (pairing, config.facts.version))?;
            let old = &mut tree.leaves[id.0 as usize];
            if old.path == leaf.path {
                old.path.push_str(OLD);
            }
            let (how, to) = match pairing {
                Pairing::Mirror => ("attach", "to"),
                Pairing::Replacing => ("replace", "for"),
                Pairing::Spare => ("spare in", "for"),
            };
            let log = Some(("vdev attach", format!("{how} vdev={} {to} vdev={}", leaf.path, old.path)));
            let leaf = Leaf { missing_txgs: vec![(Txg::INITIAL, Txg(txgs.open_txg().0 + 1))], ..leaf };
            let devices = device.map(|device| (guid, device)).into_iter().collect();
            let vdev = tree.leaf(id).top;
            let tree = Arc::new(tree.attach(id, leaf, pairing, parent, txg)?);
            rebuild.into_iter().for_each(|want| want(vdev));
            Ok(Edited { tree, devices, log, ..Edited::default() })
        }))?;
        self.spa.notify("sysevent.fs.zfs.vdev_attach", Some(guid));
        Ok(())
    }

    /// Detaches a leaf that is beside others with the same data. A spare is available again; the spare beside a device that is
    /// detached takes its place for good.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::NoReplicas`], [`PoolError::Target`].
    pub fn detach(&self, leaf: Guid) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        self.spa.notify("sysevent.fs.zfs.vdev_remove", Some(leaf));
        self.change_leaves(Box::new(move |config, _| {
            let tree = &config.tree;
            let id = tree.leaf_by_guid(leaf).ok_or(PoolError::NoSuchDevice)?;
            if !tree.can_detach(id) {
                return Err(PoolError::Target("only applicable to mirror and replacing vdevs"));
            }
            if tree.is_required(id) {
                return Err(PoolError::NoReplicas);
            }
            let log = Some(("detach", format!("vdev={}", tree.leaf(id).path)));
            let (tree, aux) = detached(tree, id, &config.aux)?;
            Ok(Edited { tree: Arc::new(tree), log, hunt: aux.is_some(), aux, ..Edited::default() })
        }))
    }

    /// Lets go of leaves that nobody needs any more, when no resilver is going to do that.
    pub fn end_spares(&self) -> Result<(), PoolError> {
        let tree = self.spa.tree();
        if tree.resilver_range().is_some() || tree.dispensable_leaf().is_none() || self.spa.check_no_checkpoint().is_err() {
            return Ok(());
        }
        self.change_tree(Box::new(|config, _| Ok(Edited { tree: config.tree.clone(), hunt: true, ..Edited::default() })))
    }

    /// Labels that say "being made", as for a new pool: what held the device before must not find it again.
    fn write_first_label(&self, target: Guid, guid: Guid, device: &Device) -> Result<(), PoolError> {
        let (tree, facts) = {
            let config = self.spa.config.lock();
            (config.tree.clone(), config.facts.clone())
        };
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let mut label = facts.label_config(&tree, id, Txg(0));
        label.set("guid", guid.0).add("create_txg", 0u64);
        write_label(self.spa.exec(), device, &label)
    }
}

/// The RAID-Z vdev with this guid.
fn raidz_of(tree: &VdevTree, guid: Guid) -> Result<&TopVdev, PoolError> {
    tree.tops.iter().find(|top| top.guid == guid && matches!(top.kind, TopKind::Raidz(_))).ok_or(PoolError::NoSuchDevice)
}

/// Refuses to expand a vdev that is not whole, or cannot be larger, or beside another expansion.
fn check_raidz(tree: &VdevTree, top: &TopVdev) -> Result<(), PoolError> {
    if tree.expanding().is_some() {
        return Err(PoolError::Expanding);
    }
    // What is moved first must find room in the boot area, and the state of it all in the vdev's ZAP.
    let columns = top.columns() as u64 + 1;
    if columns > CHILDREN_MAX || columns << top.ashift > vdev::BOOT_BYTES || top.zap == ObjectId(0) {
        return Err(PoolError::Target("this raidz vdev cannot have more devices"));
    }
    let is_single = |slot: &Vec<LeafId>| matches!(slot.as_slice(), [leaf] if tree.leaf(*leaf).state.is_usable());
    if top.slots.iter().all(is_single) {
        return Ok(());
    }
    Err(PoolError::Target("raidz vdev has devices that are offline or being replaced"))
}

/// A look that `new` may come beside the leaf in a pool of a version (OpenZFS: `spa_vdev_attach`).
fn check_pairing(tree: &VdevTree, id: LeafId, new: &Leaf, (pairing, version): (Pairing, u64)) -> Result<(), PoolError> {
    // A spare that has come already, perhaps with this very txg, cannot stand in for another one too.
    if tree.has_guid(new.guid) {
        return Err(PoolError::Device { path: new.path.clone(), problem: DeviceProblem::Busy });
    }
    let old = tree.leaf(id);
    if pairing == Pairing::Mirror {
        return if tree.can_mirror(id) { Ok(()) } else { Err(PoolError::Target("can only attach to mirrors and top-level disks")) };
    }
    if version < spa_version::MULTI_REPLACE && tree.parent_kind(id) == Some(NodeKind::Replacing) {
        return Err(PoolError::Target("cannot replace a replacing device"));
    }
    // Spares replace spares, and devices devices.
    let in_spare = matches!(tree.parent_kind(id), Some(NodeKind::Spare));
    if in_spare && old.is_spare && !new.is_spare {
        return Err(PoolError::Target("can only be replaced by another hot spare"));
    }
    if in_spare && old.is_spare != new.is_spare {
        return Err(PoolError::Target("already in replacing/spare config; wait for completion or use 'zpool detach'"));
    }
    Ok(())
}

/// True when a device is large enough, and its sectors small enough, for what is to come beside the leaf.
fn check_size(tree: &VdevTree, id: LeafId, new: &LeafSpec) -> Result<(), PoolError> {
    let top = &tree.tops[tree.leaf(id).top.0 as usize];
    let refuse = |problem| Err(PoolError::Device { path: new.path.clone(), problem });
    if vdev::leaf_asize(new.device.size_bytes()).is_none_or(|bytes| bytes < top.min_leaf_asize()) {
        return refuse(DeviceProblem::TooSmallForVdev);
    }
    if new.device.facts().logical_sector_bytes > 1 << top.ashift {
        return refuse(DeviceProblem::SectorsTooLarge);
    }
    Ok(())
}
