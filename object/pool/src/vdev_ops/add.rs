//! Top-level vdevs, spares and caches that join and leave a pool in use (OpenZFS: `spa_vdev_add`, `spa_vdev_remove`, `vdev_expand`).
//!
//! Invariant: a new vdev is known to everybody who writes before anything is allocated from it, and the labels and the
//! configuration that name it are written with the first txg that may have blocks there.

use super::VdevOps;
use super::spares::{self, Spare};
use super::spec::{ClassSpec, LeafSpec, NO_CLASSES, NewTops, TopSpec, build_tops, check_device, labelled_spare};
use crate::label::{Device, flush_all, init_writes, write_all};
use crate::spa::features::{ALLOCATION_CLASSES, DRAID};
use crate::spa::state::Config;
use crate::spa::version::check_parity;
use crate::sync::changes::Edited;
use crate::{DeviceProblem, PoolError};
use nvlist::NvList;
use ondisk::names::spa_version;
use ondisk::{Guid, Txg, VdevId};
use std::sync::Arc;
use vdev::{LeafId, LeafState, TopKind, VdevTree};

/// Txgs that it takes at most until what intent logs had on a vdev is free.
pub(crate) const EMPTYING_TXGS: u32 = 5;

/// Vdevs, spares and caches that are to join a pool.
#[derive(Clone, Debug, Default)]
pub struct AddSpec {
    /// Top-level vdevs for data.
    pub tops: Vec<TopSpec>,
    /// Top-level vdevs for some blocks only.
    pub classes: ClassSpec,
    /// Top-level vdevs for the intent log.
    pub logs: Vec<TopSpec>,
    /// Devices to be spares.
    pub spares: Vec<LeafSpec>,
    /// Devices to be caches.
    pub caches: Vec<LeafSpec>,
    /// Spares that another pool lists too, and perhaps uses now.
    pub shared: Vec<Spare>,
    /// log2 of the sector size; None takes what the pool has, or what the devices need.
    pub ashift: Option<u32>,
    /// True to take devices, too, that belong to another pool.
    pub force: bool,
    /// True to take vdevs, too, with other sector sizes than the pool has.
    pub allow_ashift_mismatch: bool,
    /// True when the spares come before those that there are: a pool is made with them, and its distributed ones are to be used after them (OpenZFS:
    /// `vdev_draid_spare_create`).
    pub spares_first: bool,
}

/// Cache device that joins: its entry in the configuration, its guid and where its bytes are.
type NewCache = (NvList, (Guid, Device));

impl AddSpec {
    /// The devices that nobody has yet, in their order.
    pub fn leaves(&self) -> Vec<LeafSpec> {
        self.all_tops().flat_map(|top| &top.leaves).chain(&self.spares).chain(&self.caches).cloned().collect()
    }

    /// The top-level vdevs in the order in which they join.
    fn all_tops(&self) -> impl Iterator<Item = &TopSpec> {
        self.tops.iter().chain(self.classes.tops()).chain(&self.logs)
    }

    /// True where nothing is to join.
    fn is_empty(&self) -> bool {
        self.leaves().is_empty() && self.shared.is_empty()
    }
}

impl VdevOps {
    /// Adds vdevs, spares and caches, and gives the caches, which nobody uses yet. New blocks lie on new vdevs as soon as this returns.
    ///
    /// Errors: [`PoolError::Device`], [`PoolError::AshiftMismatch`], [`PoolError::Invalid`]; then nothing was added.
    pub fn add(&self, spec: AddSpec) -> Result<Vec<(Guid, Device)>, PoolError> {
        self.spa.check_writeable()?;
        if spec.is_empty() {
            return Err(PoolError::Invalid("missing vdev specification"));
        }
        let tree = self.spa.tree();
        let added = self.new_tops(&spec, &tree)?;
        let mut entries = Vec::new();
        let known: Vec<Guid> = self.spares().iter().map(|spare| spare.guid).collect();
        for spare in &spec.spares {
            let listed = || PoolError::Device { path: spare.path.clone(), problem: DeviceProblem::SpareAlready };
            if !spec.force {
                check_device(self.spa.exec(), spare)?;
            }
            if labelled_spare(self.spa.exec(), &spare.device).is_some_and(|guid| known.contains(&guid)) {
                return Err(listed());
            }
            entries.push(spares::new_entry(self.spa.exec(), spare, self.spa.new_guid(&tree))?);
        }
        for spare in &spec.shared {
            if known.contains(&spare.guid) {
                return Err(PoolError::Device { path: spare.path.clone(), problem: DeviceProblem::SpareAlready });
            }
            entries.push(spares::entry_of(spare));
        }
        let (caches, new_caches): (Vec<NvList>, Vec<(Guid, Device)>) = self.new_caches(&spec, &tree)?.into_iter().unzip();
        self.write_new_labels(&added, &tree)?;
        let (exec, first) = (self.spa.exec().clone(), spec.spares_first);
        self.change_tree(Box::new(move |config: &Config, txg: Txg| {
            let tree = config.tree.add(&added.tops, &added.leaves, txg)?;
            let mut aux = config.aux.clone();
            let place = if first { 0 } else { aux.spares.len() };
            aux.spares.splice(place..place, entries);
            aux.caches.extend(caches);
            aux.add_distributed(&tree.tops[config.tree.tops.len()..], &exec);
            let devices = added.leaves.iter().map(|leaf| leaf.guid).zip(added.devices).collect();
            Ok(Edited { tree: tree.into(), devices, aux: Some(aux), ..Edited::default() })
        }))?;
        self.spa.notify("sysevent.fs.zfs.vdev_add", None);
        Ok(new_caches)
    }

    /// Entries for the cache devices that are to be, which have their labels then.
    fn new_caches(&self, spec: &AddSpec, tree: &VdevTree) -> Result<Vec<NewCache>, PoolError> {
        let entry = |cache: &LeafSpec| {
            if !spec.force {
                check_device(self.spa.exec(), cache)?;
            }
            let guid = self.spa.new_guid(tree);
            Ok((spares::new_cache_entry(self.spa.exec(), cache, guid)?, (guid, cache.device.clone())))
        };
        spec.caches.iter().map(entry).collect()
    }

    /// Refuses what the pool's version lacks.
    fn check_versions(&self, spec: &AddSpec) -> Result<(), PoolError> {
        let wanted = [
            (spec.logs.is_empty(), spa_version::SLOGS, "pool must be upgraded to add these vdevs"),
            (spec.spares.is_empty() && spec.shared.is_empty(), spa_version::SPARES, "pool must be upgraded to add hot spares"),
            (spec.caches.is_empty(), spa_version::L2CACHE, "pool must be upgraded to add cache devices"),
        ];
        wanted.iter().filter(|(is_empty, ..)| !is_empty).try_for_each(|(_, needed, why)| self.spa.check_version(*needed, why))
    }

    /// The vdevs that are to be, with everything checked that can be.
    fn new_tops(&self, spec: &AddSpec, tree: &VdevTree) -> Result<NewTops, PoolError> {
        let all: Vec<TopSpec> = spec.all_tops().cloned().collect();
        self.check_versions(spec)?;
        check_parity(all.iter().map(|top| top.kind), self.spa.version())?;
        let has_draid = all.iter().any(|top| matches!(top.kind, TopKind::Draid(_)));
        if has_draid && !self.spa.services.features.is_enabled(DRAID) {
            return Err(PoolError::Invalid("dRAID vdevs need the feature 'draid', which is not enabled"));
        }
        if !spec.classes.is_empty() && !self.spa.services.features.is_enabled(ALLOCATION_CLASSES) {
            return Err(PoolError::Invalid(NO_CLASSES));
        }
        let has_parity = all.iter().any(|top| matches!(top.kind, TopKind::Raidz(_) | TopKind::Draid(_)));
        if has_parity && tree.tops.iter().any(|top| top.is_leaving || top.is_removed()) {
            return Err(PoolError::Invalid(NO_PARITY));
        }
        for leaf in all.iter().flat_map(|top| &top.leaves) {
            if vdev::leaf_asize(leaf.device.size_bytes()).is_none() {
                return Err(PoolError::Device { path: leaf.path.clone(), problem: DeviceProblem::TooSmall });
            }
            if !spec.force {
                check_device(self.spa.exec(), leaf)?;
            }
        }
        let needed = all.iter().flat_map(|top| &top.leaves).map(|leaf| leaf.device.ashift()).max().unwrap_or(0);
        let least = tree.min_ashift();
        let most = tree.tops.iter().filter(|top| top.is_normal()).map(|top| top.ashift).max().unwrap_or(least);
        // Without a wish a pool goes on with its sectors, where the devices can have them.
        let ashift = spec.ashift.or((least == most && needed <= most).then_some(most));
        let mut added = build_tops(self.spa.exec(), &all, ashift)?;
        let (data, logs) = added.tops.split_at_mut(all.len() - spec.logs.len());
        if tree.tops.iter().any(|top| top.is_leaving) && data.iter().any(|top| top.ashift != most) {
            return Err(PoolError::Invalid(NO_PARITY));
        }
        if !spec.allow_ashift_mismatch && least == most && data.iter().any(|top| top.ashift != most) {
            return Err(PoolError::AshiftMismatch);
        }
        spec.classes.mark(&mut data[spec.tops.len()..]);
        logs.iter_mut().for_each(|top| top.is_log = true);
        Ok(added)
    }

    /// Labels that say "being made": what held the devices before must not find them again.
    fn write_new_labels(&self, added: &NewTops, tree: &VdevTree) -> Result<(), PoolError> {
        let facts = self.spa.config.lock().facts.clone();
        let next = tree.add(&added.tops, &added.leaves, Txg(0))?;
        let mut writes = Vec::new();
        for (index, device) in added.devices.iter().enumerate() {
            let leaf = LeafId((tree.leaves.len() + index) as u32);
            let mut label = facts.label_config(&next, leaf, Txg(0));
            label.add("create_txg", 0u64);
            writes.extend(init_writes(device, &label)?);
        }
        write_all(self.spa.exec(), writes).into_iter().collect::<Result<(), _>>()?;
        Ok(flush_all(self.spa.exec(), &added.devices).into_iter().collect::<Result<(), _>>()?)
    }

    /// Takes a log vdev out of the pool; a hole stays in its place for good, as with OpenZFS 2.0 and later. Other top-level vdevs can't be removed.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Unremovable`] with the reason, [`PoolError::LogsWait`] and
    /// [`PoolError::NoReplicas`] while something is in it.
    pub fn remove_top(&self, guid: Guid) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        let is_log = self.spa.tree().tops.iter().find(|top| top.is_concrete() && top.guid == guid && top.is_log).map(|top| top.id);
        let Some(log) = is_log else { return self.take_top(guid) };
        self.spa.check_version(spa_version::HOLES, "pool must be upgraded to support log removal")?;
        let waiting = self.spa.dsl.waiting_logs_on(log);
        if !waiting.is_empty() {
            return Err(PoolError::LogsWait(waiting));
        }
        // Intent logs lie there: they begin anew elsewhere.
        self.spa.dsl.close_logs();
        let emptied = (0..EMPTYING_TXGS).try_for_each(|_| match self.spa.services.allocator.vdev_space(log).allocated {
            0 => Ok(()),
            _ => self.spa.sync(),
        });
        let removed = emptied.and_then(|()| self.take_top(guid));
        self.spa.dsl.reopen_logs();
        removed
    }

    /// Takes an empty log vdev out of the pool.
    fn take_top(&self, guid: Guid) -> Result<(), PoolError> {
        let allocator = self.spa.services.allocator.clone();
        let name = self.spa.name();
        self.change_leaves(Box::new(move |config: &Config, _| {
            let top = config.tree.tops.iter().find(|top| top.is_concrete() && top.guid == guid);
            let top = top.ok_or(PoolError::NoSuchDevice)?;
            if !top.is_log {
                return Err(PoolError::Unremovable(UNREMOVABLE));
            }
            if allocator.vdev_space(top.id).allocated != 0 {
                return Err(PoolError::NoReplicas);
            }
            let path = top.leaves().next().map(|leaf| config.tree.leaf(leaf).path.clone()).unwrap_or_default();
            let log = Some(("vdev remove", format!("{name} vdev (log) {path}")));
            Ok(Edited { tree: config.tree.without_top(top.id)?.into(), log, ..Edited::default() })
        }))?;
        self.spa.notify("sysevent.fs.zfs.vdev_remove_dev", None);
        Ok(())
    }

    /// Gives the pool another guid, `guid` or a random one; labels and uberblock have it with the next txg (OpenZFS:
    /// `spa_change_guid`).
    ///
    /// Errors: [`PoolError::Target`] while a device is not in use: its label would be of a pool that there is no more.
    pub fn reguid(&self, guid: Option<Guid>) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        let new = guid.unwrap_or_else(|| self.spa.new_guid(&self.spa.tree()));
        self.change_leaves(Box::new(move |config: &Config, _| {
            if config.tree.leaves.iter().any(|leaf| leaf.state != LeafState::Online) {
                return Err(PoolError::Target("one or more devices is currently unavailable"));
            }
            let mut tree = VdevTree::clone(&config.tree);
            let log = Some(("guid change", format!("old={} new={}", tree.guid.0, new.0)));
            tree.guid = new;
            Ok(Edited { tree: Arc::new(tree), log, ..Edited::default() })
        }))
    }

    /// Lets vdevs use what their devices have now: of the leaf's top-level vdev, or of all. True when something grew.
    pub fn expand(&self, leaf: Option<Guid>) -> Result<bool, PoolError> {
        self.spa.check_writeable()?;
        let grown = move |config: &Config| -> Result<Option<VdevTree>, PoolError> {
            let find = |guid| config.tree.leaf_by_guid(guid).ok_or(PoolError::NoSuchDevice);
            let only: Option<VdevId> = leaf.map(|guid| find(guid).map(|id| config.tree.leaf(id).top)).transpose()?;
            let bytes = |id: LeafId| vdev::leaf_asize(config.devices.get(id.0 as usize)?.as_ref()?.size_bytes());
            Ok(config.tree.expanded(only, &bytes))
        };
        self.look_at_sizes();
        if grown(&self.spa.config.lock())?.is_none() {
            return Ok(false);
        }
        let services = &self.spa.services;
        let before = services.allocator.class_space().capacity;
        self.change_tree(Box::new(move |config: &Config, _| {
            let tree = grown(config)?.map_or_else(|| config.tree.clone(), Into::into);
            Ok(Edited { tree, ..Edited::default() })
        }))?;
        let after = services.allocator.class_space().capacity;
        if after > before {
            let text = format!("pool '{}' size: {after}(+{})", self.spa.name(), after - before);
            services.log_now("vdev online", &text, self.spa.txgs.open_txg());
        }
        self.spa.notify("sysevent.fs.zfs.vdev_autoexpand", leaf);
        Ok(true)
    }
}

impl VdevOps {
    /// Looks how large the devices are now. Where one grew, its labels move to the new end with the next txg.
    fn look_at_sizes(&self) {
        let grew = |device: &Device| {
            let before = device.size_bytes();
            device.refresh_size() > before
        };
        if self.spa.config.lock().devices.clone().iter().flatten().filter(|device| grew(device)).count() > 0 {
            let mut config = self.spa.config.lock();
            (config.dirty, config.grown) = (true, true);
        }
    }
}

/// Reason why a vdev stays that is no log.
const UNREMOVABLE: &str = "operation not supported on this type of pool";
/// Reason why vdevs do not join whose sectors are not those that are copied (OpenZFS: `zpool_add`).
const NO_PARITY: &str = "invalid config; a pool with removing/removed vdevs does not support adding raidz or dRAID vdevs";
