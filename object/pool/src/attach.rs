//! Leaves that join and leave a pool in use: attach, replace, detach, spares (OpenZFS: `spa_vdev_attach`, `spa_vdev_detach`,
//! `spa_vdev_resilver_done`).
//!
//! Invariant: which leaves there are changes only in the sync, before anything of the txg is written, so that labels,
//! configuration and the sum of guids in the uberblock always speak of the same tree. What was written without a new leaf is in
//! its dirty time log from the beginning: everything up to a txg that nobody can be writing for yet.

use crate::create::check_device;
use crate::labels::{Device, flush_all, init_writes, retired_ring_writes, write_all};
use crate::mos_objects::{create_vdev_zaps, destroy_vdev_zap};
use crate::pool::Arrival;
use crate::spares::{AuxDevices, label_guid, spare_label, write_label};
use crate::sync::{Config, Syncer, Work};
use crate::{DeviceProblem, LeafSpec, Pool, PoolError, dtl};
use dmu::Tx;
use exec::Mutex;
use kstat::Event;
use nvlist::NvList;
use ondisk::{Guid, Txg, Uberblock};
use scan::{ScanError, ScanFunction, ScanState, ScanStatus};
use std::sync::Arc;
use vdev::{Leaf, LeafId, LeafKind, LeafState, NodeKind, Pairing, TopVdev, VdevTree};

/// Counts rebuilds that run.
const DEVICE_REBUILD: &str = "org.openzfs:device_rebuild";
/// What the path of a device gets appended that is replaced by another one at the same place (OpenZFS: `spa_vdev_attach`).
const OLD: &str = "/old";

/// What a change makes of the pool.
#[derive(Default)]
pub(crate) struct Edited {
    pub tree: Arc<VdevTree>,
    /// Devices of leaves that are new.
    pub devices: Vec<(Guid, Device)>,
    /// The lists of spares and caches, when they change.
    pub aux: Option<AuxDevices>,
    /// Labels for devices that are on no list any more.
    pub labels: Vec<Detached>,
    /// A line for the pool's history.
    pub log: Option<(&'static str, String)>,
    /// Leaves may have become dispensable by it.
    pub hunt: bool,
}

/// What a change does to tree and devices; the txg is the one that is being synced.
type Edit = Box<dyn FnOnce(&Config, Txg) -> Result<Edited, PoolError> + Send>;

/// A change of the tree that waits for the next sync, and where its outcome goes.
pub(crate) struct Change {
    edit: Edit,
    outcome: Arc<Mutex<Option<Result<(), PoolError>>>>,
}

/// A device that left, the label that says so, and the pool's uberblock as of then, if it had a part in the pool's data.
pub(crate) type Detached = (Device, NvList, Option<Uberblock>);

/// A leaf that is to come, and how.
struct Incoming {
    leaf: Leaf,
    device: Option<Device>,
    pairing: Pairing,
    /// What it lacks is brought by a sequential rebuild.
    sequential: bool,
}

impl Pool {
    /// Attaches a device beside the leaf `target`, for good or in its place; what it lacks is resilvered by itself, and a
    /// replaced leaf goes when that is done. A spare of the pool stands in for the leaf until one of them is detached. With
    /// `force` also a device that belongs to another pool is taken.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Device`], [`PoolError::Target`] where nothing can be attached.
    pub fn attach(&self, target: Guid, new: &LeafSpec, pairing: Pairing, force: bool) -> Result<(), PoolError> {
        self.attach_how(target, new, pairing, (force, false))
    }

    /// As [`Pool::attach`], and what it lacks is brought by a sequential rebuild, followed by a scrub.
    ///
    /// Errors: as there, and [`PoolError::Scan`] while a resilver runs.
    pub fn attach_sequential(&self, target: Guid, new: &LeafSpec, pairing: Pairing, force: bool) -> Result<(), PoolError> {
        self.attach_how(target, new, pairing, (force, true))
    }

    /// What has to hold of the pool and the vdev before a device may be attached for a rebuild, or for a resilver.
    fn check_way(&self, top: &TopVdev, pairing: Pairing, sequential: bool) -> Result<(), PoolError> {
        if !sequential {
            return if self.rebuilds.is_active() { Err(PoolError::Rebuilding) } else { Ok(()) };
        }
        let only = "only mirror and dRAID vdevs support sequential reconstruction";
        if !self.syncer.services.features.is_enabled(DEVICE_REBUILD) {
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
                Pairing::Replacing | Pairing::Spare => only,
            }));
        }
        Ok(())
    }

    fn attach_how(&self, target: Guid, new: &LeafSpec, pairing: Pairing, (force, sequential): (bool, bool)) -> Result<(), PoolError> {
        self.check_writeable()?;
        let tree = self.tree();
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        self.check_way(&tree.tops[tree.leaf(id).top.0 as usize], pairing, sequential)?;
        let spare = label_guid(self.exec(), &new.device).filter(|guid| self.spares().iter().any(|spare| spare.guid == *guid));
        let refuse = |problem| Err(PoolError::Device { path: new.path.clone(), problem });
        if spare.is_some_and(|guid| pairing == Pairing::Mirror || tree.leaf_by_guid(guid).is_some()) {
            return refuse(DeviceProblem::Busy);
        }
        if let Some(guid) = spare {
            return self.spare_in(target, guid, Some(new.device.clone()), sequential);
        }
        let leaf = Leaf {
            kind: new.kind,
            guid: self.new_guid(&tree),
            path: new.path.clone(),
            whole_disk: (new.kind == LeafKind::Disk).then_some(false),
            ..Leaf::default()
        };
        check_pairing(&tree, id, &leaf, pairing)?;
        check_size(&tree, id, new)?;
        if !force {
            check_device(self.exec(), new)?;
        }
        self.bring_in(target, Incoming { leaf, device: Some(new.device.clone()), pairing, sequential })
    }

    /// Lets a spare of the pool stand in for the leaf `target`; what it lacks is resilvered by itself, or rebuilt sequentially.
    /// `device` is the spare's, and None for a distributed one.
    ///
    /// Errors: as [`Pool::attach`].
    pub fn spare_in(&self, target: Guid, spare: Guid, device: Option<Device>, sequential: bool) -> Result<(), PoolError> {
        self.check_writeable()?;
        let tree = self.tree();
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let leaf = self.spare_leaf(spare)?;
        let top = &tree.tops[tree.leaf(id).top.0 as usize];
        if top.is_log {
            return Err(PoolError::Target("cannot replace a log with a spare"));
        }
        self.check_way(top, Pairing::Spare, sequential)?;
        check_pairing(&tree, id, &leaf, Pairing::Spare)?;
        match &device {
            Some(device) => {
                check_size(&tree, id, &LeafSpec { path: leaf.path.clone(), kind: leaf.kind, device: device.clone() })?;
            }
            // A distributed spare has room on its own vdev's children, and just as much as one of them.
            None if leaf.draid_spare.is_some_and(|spare| spare.top == top.guid) => {}
            None => return Err(PoolError::Target("dRAID spares can only replace child devices in their parent's dRAID vdev")),
        }
        self.bring_in(target, Incoming { leaf, device, pairing: Pairing::Spare, sequential })?;
        self.notify("sysevent.fs.zfs.vdev_spare", Some(spare));
        Ok(())
    }

    fn bring_in(&self, target: Guid, new: Incoming) -> Result<(), PoolError> {
        let Incoming { leaf, device, pairing, sequential } = new;
        if let Some(device) = &device {
            self.write_first_label(target, leaf.guid, device)?;
        }
        let (guid, parent) = (leaf.guid, self.new_guid(&self.tree()));
        let _arrival = Arrival::new(self);
        let (txgs, rebuilds) = (self.txgs.clone(), sequential.then(|| self.rebuilds.clone()));
        self.change_tree(Box::new(move |config: &Config, txg: Txg| {
            let mut tree = VdevTree::clone(&config.tree);
            let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
            check_pairing(&tree, id, &leaf, pairing)?;
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
            // It begins with this very txg: no import finds the device without it.
            rebuilds.iter().for_each(|rebuilds| rebuilds.want(vdev));
            Ok(Edited { tree, devices, log, ..Edited::default() })
        }))?;
        self.notify("sysevent.fs.zfs.vdev_attach", Some(guid));
        self.rebuilds.spawn();
        self.resilver_stale()
    }

    /// Detaches a leaf that is beside others with the same data. A spare is available again; the spare beside a device that is
    /// detached takes its place for good.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::NoReplicas`], [`PoolError::Target`].
    pub fn detach(&self, leaf: Guid) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.notify("sysevent.fs.zfs.vdev_remove", Some(leaf));
        self.change_tree(Box::new(move |config, _| {
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
    pub(crate) fn end_spares(&self) -> Result<(), PoolError> {
        let tree = self.tree();
        if tree.resilver_range().is_some() || tree.dispensable_leaf().is_none() {
            return Ok(());
        }
        self.change_tree(Box::new(|config, _| Ok(Edited { tree: config.tree.clone(), hunt: true, ..Edited::default() })))
    }

    /// Posts an event about the pool or one of its leaves (OpenZFS: `spa_event_notify`).
    pub(crate) fn notify(&self, class: &'static str, leaf: Option<Guid>) {
        let (tree, name) = (self.tree(), self.name());
        let event = Event::new(class).with("pool", name.as_str()).with("pool_guid", self.guid().0);
        let event = match leaf.and_then(|guid| tree.leaf_by_guid(guid)).map(|id| tree.leaf(id)) {
            Some(leaf) => event.with("vdev_guid", leaf.guid.0).with("vdev_path", leaf.path.as_str()),
            None => leaf.into_iter().fold(event, |event, guid| event.with("vdev_guid", guid.0)),
        };
        self.syncer.services.events.event(event);
    }

    /// Does `edit` with the next txg and waits for it.
    pub(crate) fn change_tree(&self, edit: Edit) -> Result<(), PoolError> {
        let outcome = Arc::new(Mutex::new(None));
        self.syncer.changes.lock().push(Change { edit, outcome: outcome.clone() });
        while outcome.lock().is_none() {
            self.txgs.wait_synced(self.txgs.open_txg())?;
        }
        let result = outcome.lock().take();
        result.unwrap_or(Ok(()))?;
        // A provider that writes devices by itself gets to know those that came.
        self.zio().open_stores();
        Ok(())
    }

    /// A guid that no vdev of the pool has (OpenZFS: `spa_generate_guid`).
    pub(crate) fn new_guid(&self, tree: &VdevTree) -> Guid {
        loop {
            let guid = Guid(self.exec().random_u64());
            if guid.0 != 0 && !tree.has_guid(guid) {
                return guid;
            }
        }
    }

    /// Labels that say "being made", as for a new pool: what held the device before must not find it again.
    fn write_first_label(&self, target: Guid, guid: Guid, device: &Device) -> Result<(), PoolError> {
        let (tree, facts) = {
            let config = self.syncer.config.lock();
            (config.tree.clone(), config.facts.clone())
        };
        let id = tree.leaf_by_guid(target).ok_or(PoolError::NoSuchDevice)?;
        let mut label = facts.label_config(&tree, id, Txg(0));
        label.set("guid", guid.0).add("create_txg", 0u64);
        write_label(self.exec(), device, &label)
    }
}

/// True when `new` may come beside the leaf (OpenZFS: `spa_vdev_attach`).
fn check_pairing(tree: &VdevTree, id: LeafId, new: &Leaf, pairing: Pairing) -> Result<(), PoolError> {
    // A spare that has come already, perhaps with this very txg, cannot stand in for another one too.
    if tree.has_guid(new.guid) {
        return Err(PoolError::Device { path: new.path.clone(), problem: DeviceProblem::Busy });
    }
    let old = tree.leaf(id);
    if pairing == Pairing::Mirror {
        return if tree.can_mirror(id) { Ok(()) } else { Err(PoolError::Target("can only attach to mirrors and top-level disks")) };
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

/// The tree without a leaf; a path that was marked as old because of it is as it was. The last spare beside a device that
/// leaves is a device itself from then on: then it is on the list of spares no longer.
fn detached(tree: &VdevTree, id: LeafId, aux: &AuxDevices) -> Result<(VdevTree, Option<AuxDevices>), PoolError> {
    let marked = format!("{}{OLD}", tree.leaf(id).path);
    let successor = tree.successor(id).filter(|&last| tree.leaf(last).is_spare && tree.leaf(last).draid_spare.is_none());
    let mut next = VdevTree::clone(tree);
    let lists = successor.map(|last| {
        let spare = &mut next.leaves[last.0 as usize];
        // While others are beside it, it still has to outlast them.
        (spare.is_spare, spare.unspare) = (false, tree.siblings(id).len() > 2);
        aux.without(spare.guid)
    });
    let mut next = next.detach(id)?;
    if let Some(other) = next.leaves.iter_mut().find(|other| other.path == marked) {
        other.path.truncate(marked.len() - OLD.len());
    }
    // Nothing is beside a leaf that hangs elsewhere now.
    for index in 0..next.leaves.len() {
        let alone = !matches!(next.parent_kind(LeafId(index as u32)), Some(NodeKind::Spare));
        next.leaves[index].unspare &= !alone;
    }
    Ok((next, lists))
}

impl Config {
    /// Puts `tree` in place of the current one, with the devices of the leaves that stay and `added`; gives what left.
    fn take_tree(&mut self, tree: Arc<VdevTree>, added: &[(Guid, Device)]) -> Vec<(Leaf, Option<Device>)> {
        let old = std::mem::replace(&mut self.tree, tree);
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
    pub fn apply_changes(&self, work: &mut Work, tx: &Tx) -> Result<(), PoolError> {
        for change in std::mem::take(&mut *self.changes.lock()) {
            let edited = {
                let config = self.config.lock();
                (change.edit)(&config, tx.txg())
            };
            match edited {
                Ok(edited) => self.take_edit(edited, work, tx)?,
                Err(error) => {
                    *change.outcome.lock() = Some(Err(error));
                    continue;
                }
            }
            *change.outcome.lock() = Some(Ok(()));
        }
        Ok(())
    }

    /// Lets go of leaves that nobody needs any more: their replacements have everything, or they stood in for others that do.
    pub fn end_replacements(&self, work: &mut Work, tx: &Tx) -> Result<(), PoolError> {
        loop {
            let (tree, aux) = {
                let config = self.config.lock();
                (config.tree.clone(), config.aux.clone())
            };
            let Some(old) = tree.dispensable_leaf() else { return Ok(()) };
            let spare = tree.spare_of_replacement(old).map(|spare| tree.leaf(spare).guid);
            self.services.tell_leaf("sysevent.fs.zfs.vdev_remove", tree.leaf(old));
            let log = Some(("detach", format!("vdev={}", tree.leaf(old).path)));
            let (next, aux) = detached(&tree, old, &aux)?;
            self.take_edit(Edited { tree: Arc::new(next), aux, log, ..Edited::default() }, work, tx)?;
            // The spare that stood in for what was replaced.
            let config = self.config.lock();
            let id = spare.and_then(|guid| config.tree.leaf_by_guid(guid)).filter(|&id| !config.tree.is_required(id));
            let (tree, aux) = (config.tree.clone(), config.aux.clone());
            drop(config);
            if let Some(id) = id {
                let (next, aux) = detached(&tree, id, &aux)?;
                self.take_edit(Edited { tree: Arc::new(next), aux, ..Edited::default() }, work, tx)?;
            }
        }
    }

    /// Makes a change the current configuration, with what hangs on vdevs in the MOS.
    fn take_edit(&self, edited: Edited, work: &mut Work, tx: &Tx) -> Result<(), PoolError> {
        let Edited { tree, devices, aux, labels, log, hunt } = edited;
        let features = &self.services.features;
        let (before, aux_before, left) = {
            let mut config = self.config.lock();
            let before = (config.tree.clone(), config.aux.clone());
            let left = config.take_tree(tree, &devices);
            config.aux = aux.unwrap_or_else(|| config.aux.clone());
            config.facts.guid = config.tree.guid;
            self.io.set_view(config.view(&self.services));
            (before.0, before.1, left)
        };
        if let Some((name, text)) = log {
            self.services.log_internal(name, &text, tx);
        }
        let aux = self.config.lock().aux.clone();
        aux.write(&aux_before, &self.mos, tx)?;
        self.detached.lock().extend(labels);
        for (leaf, device) in left {
            destroy_vdev_zap(&self.mos, leaf.zap, tx)?;
            dtl::destroy(&self.mos, features, leaf.dtl, tx)?;
            if let Some(device) = device.filter(|_| leaf.state != LeafState::Missing) {
                let (label, last) = self.label_of_left(&before, &leaf, &aux);
                self.detached.lock().push((device, label, last));
            }
        }
        self.follow_tops(&before, work, tx)?;
        // ZAPs and logs of new leaves are made on a copy, and taken over: making them waits.
        let mut tree = VdevTree::clone(&self.config.lock().tree);
        create_vdev_zaps(&self.mos, features, &mut tree, tx)?;
        dtl::record(&self.mos, features, &mut tree, &[], tx)?;
        {
            let mut config = self.config.lock();
            config.take_zaps(&tree);
            config.take_dtls(&tree);
            self.io.set_view(config.view(&self.services));
        }
        self.count_deferred(tx)?;
        if hunt { self.end_replacements(work, tx) } else { Ok(()) }
    }

    /// What the device of a leaf of the tree `before` is from now on: a spare again, or nobody's, with what it was until now.
    fn label_of_left(&self, before: &VdevTree, leaf: &Leaf, aux: &AuxDevices) -> (NvList, Option<Uberblock>) {
        if aux.find(leaf.guid).is_some() {
            return (spare_label(leaf.guid, &leaf.path), None);
        }
        let config = self.config.lock();
        let Some(id) = before.leaf_by_guid(leaf.guid) else { return (config.facts.detached_label(leaf.guid), None) };
        // The uberblock of the last txg: the one that is being synced knows the device no longer.
        (config.facts.left_label(before, id), Some(config.uberblock.clone()))
    }

    /// Writes to devices that left that they did: once the pool's labels no longer name them. A device that can't be written
    /// keeps a label that no import takes for one.
    pub fn label_detached(&self) {
        for (device, label, last) in std::mem::take(&mut *self.detached.lock()) {
            if let Ok(writes) = init_writes(&device, &label) {
                let _ = write_all(&self.services.exec, writes);
                let rings = last.map(|last| retired_ring_writes(&device, &last));
                let _ = write_all(&self.services.exec, rings.unwrap_or_default());
                let _ = flush_all(&self.services.exec, std::slice::from_ref(&device));
            }
        }
    }
}
