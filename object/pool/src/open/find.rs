//! Finding pools on devices: reads labels, groups them by pool, and assembles the vdev tree that the labels describe
//! (OpenZFS: `zutil_import.c`, `spa_tryimport`).

use crate::PoolError;
use crate::label::{Device, DeviceLabels, KnownRings, any_names, forget_labels, read_labels};
use crate::removal::objects::DEVICE_REMOVAL;
use crate::spa::config::{PoolFacts, PoolState};
use exec::Exec;
use nvlist::NvList;
use ondisk::{Guid, Txg, Uberblock, VdevId};
use std::collections::BTreeMap;
use std::path::Path;
use vdev::{Leaf, LeafId, TopKind, TopVdev, VdevTree};

/// A device with a valid label.
#[derive(Clone)]
pub(crate) struct Member {
    pub device: Device,
    pub labels: DeviceLabels,
    /// Guid of the leaf that it is, by its newest label.
    pub guid: Guid,
}

impl Member {
    /// Key by which, of two devices that say to be the same leaf, the larger one is it: the newest state, the newest label, the place that its
    /// label names, or at least its name, and the most labels. A copy beside it, older or not, is not (OpenZFS: `fix_paths`).
    fn preference(&self) -> ((u64, u64, u64), u64, usize, std::cmp::Reverse<usize>) {
        let newest = self.labels.uberblocks.first().map(Uberblock::preference).unwrap_or_default();
        let config = self.labels.configs.first();
        let written = config.and_then(|config| config.get_u64("txg")).unwrap_or_default();
        let place = match self.named().map(Path::new) {
            Some(named) if named == self.device.path() => 2,
            Some(named) => usize::from(named.file_name() == self.device.path().file_name()),
            None => 0,
        };
        (newest, written, place, std::cmp::Reverse(self.labels.damaged))
    }

    /// Path that its newest label has for it.
    fn named(&self) -> Option<&str> {
        path_of(self.labels.configs.first()?.get_nvlist("vdev_tree")?, self.guid)
    }

    /// True when it was found at this path, or its newest label says that it is there.
    fn lies_at(&self, path: &str) -> bool {
        self.device.path() == Path::new(path) || self.named() == Some(path)
    }

    /// Tells the log that of two devices that say to be the same leaf this one is it.
    fn prevail(&self, other: &Member) {
        let (own, other) = (self.device.path().display(), other.device.path().display());
        tracing::debug!("vdev {} is {own}, not {other}, which is as old, older or in another place", self.guid);
    }
}

/// The path that a label's tree has for a leaf.
fn path_of(tree: &NvList, leaf: Guid) -> Option<&str> {
    let children = tree.get_nvlist_array("children").unwrap_or_default();
    let own = || tree.get_str("path").filter(|_| tree.get_u64("guid") == Some(leaf.0));
    own().or_else(|| children.iter().find_map(|child| path_of(child, leaf)))
}

/// A pool whose labels were found.
#[derive(Clone)]
pub struct FoundPool {
    pub(crate) facts: PoolFacts,
    pub(crate) members: Vec<Member>,
    /// Devices that left the pool, by their labels: older states may have them.
    pub(crate) left: Vec<Member>,
    pub(crate) best: Option<Uberblock>,
    pub(crate) vdev_children: u64,
    /// Top-level vdevs that were removed, as of the newest label: only a device that was away meanwhile still has a label of them.
    pub(crate) holes: Vec<u64>,
    /// Txg of that label.
    pub(crate) holes_txg: Txg,
    /// A vdev that no label says to be is the device with its path, if that is none of the pool's others ([`Runtime::trusts_paths`](crate::Runtime)).
    pub(crate) trusts_paths: bool,
}

impl FoundPool {
    /// Name as of its newest label.
    pub fn name(&self) -> &str {
        &self.facts.name
    }
    /// Guid of the pool.
    pub fn guid(&self) -> Guid {
        self.facts.guid
    }
    /// Exported, destroyed or (perhaps) in use.
    pub fn state(&self) -> PoolState {
        self.facts.state
    }
    /// The host that used it last: id and name.
    pub fn host(&self) -> (u64, &str) {
        (self.facts.host.id, &self.facts.host.name)
    }
    /// Looks whether the host with this id may take the pool without being told to: not one that another host used last and did not export (OpenZFS:
    /// `spa_verify_host`). Hosts without an id cannot be told from each other.
    ///
    /// # Errors
    /// [`PoolError::InUse`] with the other host.
    pub fn check_host(&self, hostid: u64) -> Result<(), PoolError> {
        let last = &self.facts.host;
        if self.state() == PoolState::Active && last.id != 0 && last.id != hostid {
            return Err(PoolError::InUse { hostid: last.id, hostname: last.name.clone() });
        }
        Ok(())
    }
    /// On-disk version of the pool.
    pub fn version(&self) -> u64 {
        self.best.as_ref().map_or(self.facts.version, |ub| ub.ub_version)
    }
    /// The comment that it carries.
    pub fn comment(&self) -> Option<&str> {
        self.facts.comment.as_deref()
    }
    /// Txg and time (seconds since 1970) of the newest state.
    pub fn newest(&self) -> Option<(Txg, u64)> {
        self.best.as_ref().map(|ub| (ub.txg(), ub.ub_timestamp))
    }
    /// The devices that were found.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.members.iter().map(|member| &member.device)
    }
    /// The devices that were found and left the pool, by their labels: an import that goes back may need them.
    pub fn devices_that_left(&self) -> impl Iterator<Item = &Device> {
        self.left.iter().map(|member| &member.device)
    }
    /// Labels, of those devices, that do not verify.
    pub fn damaged_labels(&self) -> usize {
        self.members.iter().map(|member| member.labels.damaged).sum()
    }
    /// Uberblocks, of those devices, that do not verify: the newest of them may be lost.
    pub fn damaged_uberblocks(&self) -> usize {
        self.members.iter().map(|member| member.labels.damaged_uberblocks).sum()
    }
    /// Tells the log which labels and which uberblock were chosen.
    pub(crate) fn describe(&self) {
        let Some(best) = &self.best else {
            return tracing::warn!("pool '{}' (guid {}): no valid uberblock", self.name().escape_debug(), self.guid());
        };
        tracing::info!(
            "pool '{}' (guid {}): using uberblock with txg={}, timestamp={}; {} devices, {} labels and {} uberblocks damaged",
            self.name().escape_debug(),
            self.guid(),
            best.ub_txg,
            best.ub_timestamp,
            self.members.len(),
            self.damaged_labels(),
            self.damaged_uberblocks()
        );
        for member in &self.members {
            let label = member.labels.config(best.txg()).and_then(|config| config.get_u64("txg")).unwrap_or_default();
            let newest = member.labels.uberblocks.first().map_or(0, |ub| ub.ub_txg);
            let path = member.device.path().display().to_string();
            tracing::debug!("vdev {} at {path}: label of txg {label} is used, newest uberblock {newest}", member.guid);
        }
    }

    /// The pool that these leaves of `tree` hold, as of an uberblock that no label has any more (OpenZFS: `SPA_IMPORT_ASSEMBLE`).
    pub(crate) fn assembled(facts: PoolFacts, tree: &VdevTree, leaves: &[(LeafId, Device)], ub: Uberblock) -> FoundPool {
        let label = |id: LeafId| DeviceLabels { configs: vec![facts.label_config(tree, id, ub.txg())], ..DeviceLabels::default() };
        let member = |(id, device): &(LeafId, Device)| Member { device: device.clone(), guid: tree.leaf(*id).guid, labels: label(*id) };
        let members = leaves.iter().map(member).collect();
        let holes = tree.tops.iter().filter(|top| top.kind == TopKind::Hole).map(|top| u64::from(top.id.0)).collect();
        let (vdev_children, holes_txg) = (tree.tops.len() as u64, ub.txg());
        FoundPool { members, left: Vec::new(), vdev_children, holes, holes_txg, trusts_paths: false, best: Some(ub), facts }
    }

    /// The pool, whose devices are told by their paths, too, or not.
    pub(crate) fn trusting(&self, trusts_paths: bool) -> FoundPool {
        FoundPool { trusts_paths, ..self.clone() }
    }

    /// True when vdevs were removed from the pool, or one is being removed: labels tell nothing of those that are gone, which look as if they were missing.
    pub fn has_removed_vdevs(&self) -> bool {
        self.facts.mos_features.iter().any(|guid| guid == DEVICE_REMOVAL)
    }

    /// The tree that the labels describe, as far as they do; leaves without a device are missing.
    pub fn tree(&self) -> Result<VdevTree, PoolError> {
        bootstrap_tree(self)
    }
}

/// Looks for pools on `devices`. Devices without a valid label are ignored.
pub fn find_pools(exec: &Exec, devices: Vec<Device>) -> Vec<FoundPool> {
    let (mut pools, mut left): (BTreeMap<Guid, Vec<Member>>, BTreeMap<Guid, Vec<Member>>) = Default::default();
    let mut known = KnownRings::default();
    for device in devices {
        forget_labels(&device);
        let labels = read_labels(exec, &device, &mut known);
        let Some(config) = labels.configs.first() else { continue };
        // A device of a pool that was never finished, or one that left its pool (OpenZFS: `zpool_find_import`).
        let has_left = config.get_u64("txg") == Some(0);
        if has_left {
            tracing::debug!("{} is of a pool that was never finished, or left its pool", device.path().display());
        }
        let (Some(pool), Some(guid)) = (config.get_u64("pool_guid"), config.get_u64("guid")) else { continue };
        let members = if has_left { &mut left } else { &mut pools }.entry(Guid(pool)).or_default();
        let fresh = Member { device, guid: Guid(guid), labels };
        // The same device may be reachable by several paths, or somebody made a copy of it.
        match members.iter_mut().find(|member| member.guid == fresh.guid) {
            Some(member) if fresh.preference() > member.preference() => {
                fresh.prevail(member);
                *member = fresh;
            }
            Some(member) => member.prevail(&fresh),
            None => members.push(fresh),
        }
    }
    let found =
        |(guid, members): (Guid, Vec<Member>)| Some(FoundPool { left: left.remove(&guid).unwrap_or_default(), ..summarize(members)? });
    joined(pools.into_iter().filter_map(found).collect())
}

/// The pools, each once. Power may go off while labels get another pool's guid, as they do when a pool is divided: until that pool has an
/// uberblock, the devices are of the pool that their older labels name.
fn joined(found: Vec<FoundPool>) -> Vec<FoundPool> {
    let mut pools: Vec<FoundPool> = Vec::new();
    for pool in found {
        let same = pools.iter_mut().find(|known| known.guid() == pool.guid());
        let Some(known) = same else {
            pools.push(pool);
            continue;
        };
        if let Some(all) = together(known, pool) {
            *known = all;
        }
    }
    pools
}

/// The pool of two groups of devices that turned out to be of one.
fn together(known: &FoundPool, other: FoundPool) -> Option<FoundPool> {
    let (mut members, mut left) = (known.members.clone(), known.left.clone());
    let is_fresh = |member: &Member| known.members.iter().all(|own| own.guid != member.guid);
    members.extend(other.members.into_iter().filter(is_fresh));
    for member in &mut members {
        member.labels.configs.retain(|config| config.get_u64("pool_guid") == Some(known.guid().0));
    }
    members.retain(|member| !member.labels.configs.is_empty());
    left.extend(other.left);
    Some(FoundPool { left, ..summarize(members)? })
}

fn summarize(members: Vec<Member>) -> Option<FoundPool> {
    let uberblocks = members.iter().filter_map(|member| member.labels.uberblocks.first());
    // A ring that only has the uberblock that it began with was never written to (OpenZFS: `spa_ld_select_uberblock`).
    let best = uberblocks.max_by_key(|ub| ub.preference()).filter(|ub| ub.ub_txg != 0).cloned();
    let txg = best.as_ref().map_or(Txg(u64::MAX), |ub| ub.txg());
    let configs = members.iter().filter_map(|member| member.labels.config(txg));
    let newest = configs.max_by_key(|config| config.get_u64("txg").filter(|written| *written <= txg.0))?;
    let facts = PoolFacts::from_config(newest)?;
    let vdev_children = newest.get_u64("vdev_children").or_else(|| tops_seen(&members)).unwrap_or(1);
    let holes = newest.get_u64_array("hole_array").unwrap_or_default().to_vec();
    let holes_txg = Txg(newest.get_u64("txg").unwrap_or_default());
    Some(FoundPool { facts, vdev_children, holes, holes_txg, trusts_paths: false, best, members, left: Vec::new() })
}

/// Top-level vdevs of a pool whose labels do not say how many there are: as many as the labels that were found speak of. Labels of old
/// versions do not (OpenZFS: `get_configs`, which counts likewise).
fn tops_seen(members: &[Member]) -> Option<u64> {
    let configs = members.iter().filter_map(|member| member.labels.configs.first());
    let last = configs.filter_map(|config| config.get_nvlist("vdev_tree")?.get_u64("id")).max()?;
    Some(last.saturating_add(1))
}

fn bootstrap_tree(found: &FoundPool) -> Result<VdevTree, PoolError> {
    let txg = found.best.as_ref().map_or(Txg(u64::MAX), |ub| ub.txg());
    let mut newest: BTreeMap<u64, (u64, &NvList)> = BTreeMap::new();
    for config in found.members.iter().filter_map(|member| member.labels.config(txg)) {
        let written = config.get_u64("txg").unwrap_or(0);
        let Some(top) = config.get_nvlist("vdev_tree") else { continue };
        let Some(id) = top.get_u64("id").filter(|id| *id < found.vdev_children) else { continue };
        let best = newest.entry(id).or_insert((written, top));
        if written > best.0 {
            *best = (written, top);
        }
    }
    if found.vdev_children > 1 << 16 {
        return Err(PoolError::Corrupt("the number of top-level vdevs"));
    }
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut tops = Vec::new();
    for id in 0..found.vdev_children {
        // A device that was away while its vdev was removed says otherwise (OpenZFS: `get_configs`), and so it was in states from before that.
        let is_hole = found.holes.contains(&id);
        let is_gone = |written: u64| is_hole && written < found.holes_txg.0 && found.holes_txg <= txg;
        tops.push(match newest.get(&id) {
            Some((written, list)) if !is_gone(*written) => TopVdev::from_config(list, &mut leaves)?,
            _ if is_hole => TopVdev { id: VdevId(id as u32), kind: TopKind::Hole, ..TopVdev::default() },
            _ => TopVdev { id: VdevId(id as u32), kind: TopKind::Missing, ..TopVdev::default() },
        });
    }
    let mut tree = VdevTree::assemble(found.facts.guid, tops, leaves)?;
    found.mark_missing(&mut tree);
    Ok(tree)
}

impl FoundPool {
    /// Marks the leaves that no device was found for, or only one that is too small.
    pub(crate) fn mark_missing(&self, tree: &mut VdevTree) {
        let least: Vec<u64> = tree.tops.iter().map(TopVdev::min_leaf_asize).collect();
        let devices = self.devices_of(tree);
        let has_device = |leaf: &Leaf| leaf.state.is_usable() && leaf.kind != vdev::LeafKind::DraidSpare;
        for (leaf, device) in tree.leaves.iter_mut().zip(devices).filter(|(leaf, _)| has_device(leaf)) {
            let bytes = device.and_then(|device| vdev::leaf_asize(device.size_bytes())).unwrap_or(0);
            if bytes == 0 || bytes < least[leaf.top.0 as usize] {
                (leaf.state, leaf.is_not_present) = (vdev::LeafState::Missing, true);
            }
        }
    }
    /// The devices of the leaves of `tree`: for each the one whose newest label says that it is this leaf, else one with an older label
    /// that does, else one that took its vdev's place: a leaf gets the guid of a mirror whose last one it is, which older states do not know.
    /// Which of several leaves that one was, its path tells, or that the others have their devices; else it is none of them, since another one
    /// may have lacked what it has. Last, and when that was asked for, comes one with the leaf's path that is no other leaf (OpenZFS: `vdev_validate` with
    /// `vdev_validate_skip`). No device is given to two leaves, whatever its labels say, and each leaf's own device is its own before all.
    pub(crate) fn devices_of(&self, tree: &VdevTree) -> Vec<Option<Device>> {
        let mut free: Vec<&Member> = self.members.iter().collect();
        let mut devices: Vec<Option<Device>> = vec![None; tree.leaves.len()];
        let by_newest = |member: &Member, leaf: &Leaf| member.guid == leaf.guid;
        let by_any = |member: &Member, leaf: &Leaf| any_names(&member.labels.configs, self.guid(), leaf.guid);
        let mirror_of = |leaf: &Leaf| tree.tops.get(leaf.top.0 as usize).filter(|top| top.kind == TopKind::Mirror);
        let by_place = |member: &Member, leaf: &Leaf| mirror_of(leaf).is_some_and(|top| top.guid == member.guid);
        let by_path = |member: &Member, leaf: &Leaf| by_place(member, leaf) && member.named() == Some(leaf.path.as_str());
        for is_it in [&by_newest as &dyn Fn(&Member, &Leaf) -> bool, &by_any, &by_path] {
            give(&mut free, tree, &mut devices, is_it);
        }
        let lacking: Vec<VdevId> =
            tree.leaves.iter().zip(&devices).filter(|(_, device)| device.is_none()).map(|(leaf, _)| leaf.top).collect();
        let is_last = |leaf: &Leaf| lacking.iter().filter(|top| **top == leaf.top).count() == 1;
        give(&mut free, tree, &mut devices, &|member, leaf| by_place(member, leaf) && is_last(leaf));
        if self.trusts_paths {
            let is_another = |member: &Member| tree.leaves.iter().any(|leaf| leaf.guid == member.guid);
            give(&mut free, tree, &mut devices, &|member, leaf| !is_another(member) && member.lies_at(&leaf.path));
        }
        devices
    }
}

/// Gives each leaf without a device the first of those that are free which is its own.
fn give(free: &mut Vec<&Member>, tree: &VdevTree, devices: &mut [Option<Device>], is_it: &dyn Fn(&Member, &Leaf) -> bool) {
    for (leaf, device) in tree.leaves.iter().zip(devices).filter(|(_, device)| device.is_none()) {
        let found = free.iter().position(|member| is_it(member, leaf));
        *device = found.map(|index| free.remove(index).device.clone());
    }
}
