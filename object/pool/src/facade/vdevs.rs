//! Vdevs of an open pool, as commands see them: what changes one of them may have something read, rebuilt or swept.

use super::Pool;
use crate::caches::CacheStatus;
use crate::label::Device;
use crate::open::base::Runtime;
use crate::open::find::FoundPool;
use crate::open::{self, ImportOptions};
use crate::outliers::Outliers;
use crate::spa::config::{PoolFacts, PoolState};
use crate::spa::vdev_props::VdevProps;
use crate::vdev_ops::add::{AddSpec, EMPTYING_TXGS};
use crate::vdev_ops::allocating::{allocating, emptying, leaving};
use crate::vdev_ops::attach::{How, Running, WantRebuild};
use crate::vdev_ops::spares::Spare;
use crate::vdev_ops::spec::LeafSpec;
use crate::vdev_ops::split::{self, SplitOff};
use crate::{CacheTunables, PoolError};
use ondisk::Guid;
use vdev::{Leaf, LeafId, LeafState, Pairing};
use zio::Spell;

/// Txgs within which everything that was begun before them ends.
const DRAINING_TXGS: usize = 2;

impl Pool {
    /// Adds vdevs, spares and caches. New blocks lie on vdevs as soon as this returns.
    ///
    /// Errors: [`PoolError::Device`], [`PoolError::AshiftMismatch`], [`PoolError::Invalid`]; then nothing was added.
    pub fn add(&self, spec: AddSpec) -> Result<(), PoolError> {
        let caches = self.vdevs.add(spec)?;
        for (guid, device) in caches {
            self.caches.seat(guid, device);
        }
        Ok(())
    }

    /// Adds spares only: see [`Pool::add`].
    pub fn add_spares(&self, spares: Vec<LeafSpec>) -> Result<(), PoolError> {
        self.add(AddSpec { spares, ..AddSpec::default() })
    }

    /// Takes a spare that is not in use, or a cache, off its list; `device` gets a label that says so, if it can be written.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::SpareInUse`], [`PoolError::Target`] for distributed spares.
    pub fn remove_aux(&self, guid: Guid, device: Option<Device>) -> Result<(), PoolError> {
        self.vdevs.remove_aux(guid, device.or_else(|| self.caches.device(guid)))?;
        drop(self.caches.remove(guid));
        Ok(())
    }

    /// Takes a top-level vdev out of the pool. A log leaves at once, with a hole in its place. What lies on others is copied elsewhere first, from now on and
    /// across imports, and the vdev leaves when that is done: see [`Pool::removal_status`].
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Unremovable`] with the reason, [`PoolError::LogsWait`], [`PoolError::CheckpointExists`], and
    /// [`PoolError::NoReplicas`] while something is in a log.
    pub fn remove_top(&self, guid: Guid) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        let tree = self.tree();
        let Some(top) = tree.tops.iter().find(|top| top.is_concrete() && !top.is_log && top.guid == guid) else {
            return self.vdevs.remove_top(guid);
        };
        self.removals.check(guid)?;
        let waiting = self.dsl().waiting_logs_on(top.id);
        if !waiting.is_empty() {
            return Err(PoolError::LogsWait(waiting));
        }
        let was_allocating = !top.nonallocating;
        if was_allocating {
            self.vdevs.change_leaves(emptying(guid, false))?;
        }
        // Logs begin anew elsewhere, and whatever is allocated there is on disk then.
        self.dsl().close_logs();
        let settled = (0..EMPTYING_TXGS).try_for_each(|_| self.sync());
        let begun = settled.and_then(|()| self.removals.check(guid)).and_then(|()| self.vdevs.change_leaves(leaving(guid)));
        self.dsl().reopen_logs();
        if begun.is_err() && was_allocating {
            self.vdevs.change_tree(emptying(guid, true))?;
        }
        begun?;
        self.removals.spawn();
        Ok(())
    }

    /// Ends the removal that runs: the vdev stays. Waits until that is on disk.
    ///
    /// # Errors
    /// [`PoolError::NotRemoving`] when none runs.
    pub fn remove_cancel(&self) -> Result<(), PoolError> {
        self.removals.cancel()
    }

    /// Gives the pool another guid, `guid` or a random one; labels and uberblock have it with the next txg (OpenZFS:
    /// `spa_change_guid`).
    ///
    /// Errors: [`PoolError::Target`] while a device is not in use: its label would be of a pool that there is no more.
    pub fn reguid(&self, guid: Option<Guid>) -> Result<(), PoolError> {
        self.vdevs.reguid(guid)
    }

    /// Lets vdevs use what their devices have now: of the leaf's top-level vdev, or of all. True when something grew.
    pub fn expand(&self, leaf: Option<Guid>) -> Result<bool, PoolError> {
        self.vdevs.expand(leaf)
    }

    /// Grows what can, when the pool's `autoexpand` says so.
    pub fn autoexpand(&self) -> Result<(), PoolError> {
        let wanted = self.is_writeable() && !self.zio().is_suspended() && self.has_switch("autoexpand")?;
        if wanted { self.expand(None).map(drop) } else { Ok(()) }
    }

    /// Attaches a device beside the leaf `target`, for good or in its place; what it lacks is resilvered by itself, and a
    /// replaced leaf goes when that is done. A spare of the pool stands in for the leaf until one of them is detached. With
    /// `force` also a device that belongs to another pool is taken.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::Device`], [`PoolError::Target`] where nothing can be attached.
    pub fn attach(&self, target: Guid, new: &LeafSpec, pairing: Pairing, force: bool) -> Result<(), PoolError> {
        self.attach_how(target, new, How { pairing, force, rebuild: None, running: self.running() })
    }

    /// As [`Pool::attach`], and what it lacks is brought by a sequential rebuild, followed by a scrub.
    ///
    /// Errors: as there, and [`PoolError::Scan`] while a resilver runs.
    pub fn attach_sequential(&self, target: Guid, new: &LeafSpec, pairing: Pairing, force: bool) -> Result<(), PoolError> {
        self.attach_how(target, new, How { pairing, force, rebuild: Some(self.rebuild_asker()), running: self.running() })
    }

    /// Looks whether a device can be attached beside the leaf `target`, whatever it holds: at all that [`Pool::attach`] refuses also with `force`.
    ///
    /// Errors: as there.
    pub fn check_attach(&self, target: Guid, new: &LeafSpec, pairing: Pairing) -> Result<(), PoolError> {
        self.vdevs.check_attach(target, new, pairing)
    }

    fn attach_how(&self, target: Guid, new: &LeafSpec, how: How) -> Result<(), PoolError> {
        let _arrival = self.vdevs.arrival();
        let spare = self.vdevs.attach(target, new, how)?;
        self.fill_arrived(spare)
    }

    /// Lets a spare of the pool stand in for the leaf `target`; what it lacks is resilvered by itself, or rebuilt sequentially.
    /// `device` is the spare's, and None for a distributed one.
    ///
    /// Errors: as [`Pool::attach`].
    pub fn spare_in(&self, target: Guid, spare: Guid, device: Option<Device>, sequential: bool) -> Result<(), PoolError> {
        let _arrival = self.vdevs.arrival();
        let rebuild = sequential.then(|| self.rebuild_asker());
        self.vdevs.spare_in(target, spare, device, (rebuild, self.running()))?;
        self.fill_arrived(Some(spare))
    }

    /// Attaches a device to a RAID-Z vdev, which is expanded by it from now on and across imports: see [`Pool::expand_status`]. With `force` also a device
    /// that belongs to another pool is taken.
    ///
    /// # Errors
    /// [`PoolError::Expanding`], [`PoolError::CheckpointExists`], [`PoolError::Device`], and [`PoolError::Target`] with the reason.
    pub fn attach_raidz(&self, top: Guid, new: &LeafSpec, force: bool) -> Result<(), PoolError> {
        self.vdevs.attach_raidz(top, new, (force, self.running()))?;
        self.expansions.spawn();
        Ok(())
    }

    /// Looks at all that [`Pool::attach_raidz`] refuses even with `force`.
    ///
    /// # Errors
    /// As there.
    pub fn check_attach_raidz(&self, top: Guid, new: &LeafSpec) -> Result<(), PoolError> {
        self.vdevs.check_attach_raidz(top, new, self.running())
    }

    fn running(&self) -> Running {
        Running { rebuild: self.rebuilds.is_active(), resilver: self.resilvers.is_running() }
    }

    fn rebuild_asker(&self) -> WantRebuild {
        let rebuilds = self.rebuilds.clone();
        Box::new(move |vdev| rebuilds.want(vdev))
    }

    /// Has a device that came filled; `spare` if it is one that stands in.
    fn fill_arrived(&self, spare: Option<Guid>) -> Result<(), PoolError> {
        self.rebuilds.spawn();
        self.resilver_stale()?;
        if spare.is_some() {
            self.spa.notify("sysevent.fs.zfs.vdev_spare", spare);
        }
        Ok(())
    }

    /// Detaches a leaf that is beside others with the same data. A spare is available again; the spare beside a device that is
    /// detached takes its place for good.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::NoReplicas`], [`PoolError::Target`].
    pub fn detach(&self, leaf: Guid) -> Result<(), PoolError> {
        self.vdevs.detach(leaf)
    }

    /// Divides a pool of mirrors: these leaves, one of each mirror, leave it and are a pool of the name `name` from then on, which is open when this
    /// returns. It has everything that was written before, and lacks log devices, spares and caches.
    ///
    /// Errors: [`PoolError::Target`], [`PoolError::NoReplicas`], [`PoolError::NoSuchDevice`] when they cannot leave: then nothing was changed. After
    /// any other the leaves are offline, and may be brought back ([`Pool::online`]), as after a crash before the new pool is there.
    pub fn split(&self, leaves: Vec<Guid>, name: &str, runtime: &Runtime) -> Result<Pool, PoolError> {
        self.spa.check_writeable()?;
        if self.is_removing() {
            return Err(PoolError::Target("device removal is in progress"));
        }
        self.spa.check_no_checkpoint()?;
        self.leaves.set_leaving(&leaves);
        let half = self.divide(leaves, name, runtime);
        self.leaves.set_leaving(&[]);
        half
    }

    fn divide(&self, leaves: Vec<Guid>, name: &str, runtime: &Runtime) -> Result<Pool, PoolError> {
        // What is initialized or trimmed here because it is free may be in use there.
        self.sweeps.halt();
        let off = self.let_leave(&leaves);
        self.sweeps.resume();
        let off = off?;
        let guid = self.spa.new_guid(&off.tree);
        let facts = PoolFacts { name: name.to_string(), stored_name: None, state: PoolState::Exported, guid, ..off.facts };
        let options = ImportOptions {
            new_name: Some(name.to_string()),
            force: true,
            missing_log: true,
            skip_activity: true,
            host: facts.host.clone(),
            ..ImportOptions::default()
        };
        let found = FoundPool::assembled(facts, &off.tree, &off.leaves, off.uberblock);
        let settle = split::settle(guid, leaves.clone(), self.name());
        let base = open::read(self.exec(), &found, &options, runtime)?;
        let half = Pool::begin(base, &found, (&options, Some(settle)), runtime)?;
        // They are the new pool's now, whether this one can say so or not.
        if let Err(error) = self.vdevs.change_tree(split::give_up(leaves)) {
            tracing::warn!("pool '{}': devices that are of pool '{name}' now could not be detached: {error}", self.name());
        }
        Ok(half)
    }

    /// Takes leaves offline with a txg, and waits until nothing is written to them any more.
    fn let_leave(&self, leaves: &[Guid]) -> Result<SplitOff, PoolError> {
        let taken = split::Taken::default();
        self.dsl().close_logs();
        let left =
            self.empty_logs().and_then(|()| self.vdevs.change_leaves(split::leave(self.spa.clone(), leaves.to_vec(), taken.clone())));
        self.dsl().reopen_logs();
        left?;
        // Writes that began while the leaves were in use end with their txgs.
        (0..DRAINING_TXGS).try_for_each(|_| self.sync())?;
        taken.lock().take().ok_or(PoolError::Closed)
    }

    /// Waits until nothing is left on log devices, while nobody writes to logs.
    fn empty_logs(&self) -> Result<(), PoolError> {
        let allocator = &self.spa.services.allocator;
        for _ in 0..EMPTYING_TXGS {
            self.sync()?;
            let tree = self.tree();
            if tree.tops.iter().filter(|top| top.is_concrete() && top.is_log).all(|top| allocator.vdev_space(top.id).allocated == 0) {
                return Ok(());
            }
        }
        Err(PoolError::NoReplicas)
    }

    /// The pool's spares.
    pub fn spares(&self) -> Vec<Spare> {
        self.vdevs.spares()
    }

    /// The pool's cache devices.
    pub fn caches(&self) -> Vec<CacheStatus> {
        let entries = self.vdevs.caches().into_iter();
        entries.map(|entry| self.caches.status((entry.guid, entry.path, entry.kind))).collect()
    }

    /// Opens the cache devices that are not open and that nobody took out of use: `open` gives the device at a path.
    pub fn open_caches(&self, open: &dyn Fn(Guid, &str) -> Option<Device>) {
        for entry in self.vdevs.caches() {
            if entry.is_offline {
                self.caches.set_aside(entry.guid, LeafState::Offline);
            } else if self.caches.state(entry.guid) == LeafState::Missing
                && let Some(device) = open(entry.guid, &entry.path)
            {
                self.caches.seat(entry.guid, device);
            }
        }
    }

    /// Looks for cache devices elsewhere that are not open and not at their places: `find` gives the path at which one is. Waits until it is written
    /// down.
    ///
    /// Errors: those of a pool that cannot be written.
    pub fn move_caches(&self, is_there: &dyn Fn(Guid, &str) -> bool, find: &dyn Fn(Guid) -> Option<String>) -> Result<(), PoolError> {
        for entry in self.vdevs.caches() {
            if !self.caches.state(entry.guid).is_usable()
                && !is_there(entry.guid, &entry.path)
                && let Some(path) = find(entry.guid)
            {
                self.vdevs.set_cache_path(entry.guid, &path)?;
            }
        }
        Ok(())
    }

    /// True when the pool has a cache device of this guid.
    fn has_cache(&self, guid: Guid) -> bool {
        self.vdevs.caches().iter().any(|entry| entry.guid == guid)
    }

    /// Changes the parameters of the second level of the cache.
    pub fn tune_caches(&self, tunables: CacheTunables) {
        self.caches.tune(tunables);
    }

    /// Looks once for blocks to write to a cache device; by itself where there are threads.
    pub fn feed_caches(&self) {
        let _ = self.caches.feed();
    }

    /// Takes a leaf or a cache device offline; with `temporary` until the next import only. Waits until that is written, unless the pool is
    /// suspended.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::NoReplicas`] when something could not be read without it, [`PoolError::CheckpointExists`] for a
    /// log device that a checkpoint has blocks on.
    pub fn offline(&self, leaf: Guid, temporary: bool) -> Result<(), PoolError> {
        if !self.has_cache(leaf) {
            self.check_log_of_checkpoint(leaf)?;
            return self.leaves.offline(leaf, temporary);
        }
        self.spa.check_writeable()?;
        self.caches.set_aside(leaf, LeafState::Offline);
        if temporary { Ok(()) } else { self.vdevs.set_cache_offline(leaf, true) }
    }

    /// Refuses to take a log device out of use that a checkpoint has blocks on (OpenZFS: `vdev_offline_locked`).
    fn check_log_of_checkpoint(&self, leaf: Guid) -> Result<(), PoolError> {
        let tree = self.tree();
        let top = tree.leaf_by_guid(leaf).and_then(|id| tree.top(tree.leaf(id).top));
        let is_needed = top.is_some_and(|top| top.is_log && self.spa.services.checkpoint.bytes_on(top.id) != 0);
        if is_needed { Err(PoolError::CheckpointExists) } else { Ok(()) }
    }

    /// Declares a leaf faulted, as [`Pool::offline`]; one that the pool cannot do without becomes degraded instead. A cache device is until it is
    /// brought back, or the next import.
    pub fn fault(&self, leaf: Guid, temporary: bool) -> Result<(), PoolError> {
        if !self.has_cache(leaf) {
            return self.leaves.fault(leaf, temporary);
        }
        self.caches.set_aside(leaf, LeafState::Faulted);
        Ok(())
    }

    /// Declares a leaf degraded: it is used as before, and shown as suspicious (OpenZFS: `vdev_degrade`).
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn degrade(&self, leaf: Guid) -> Result<(), PoolError> {
        self.leaves.degrade(leaf)
    }

    /// Judges a leaf by its errors, or by its absence: it becomes faulted, removed, missing or degraded until it is cleared,
    /// brought back or imported again (OpenZFS: `zpool_vdev_fault` and `zpool_vdev_degrade` as `zed` calls them,
    /// `vdev_remove_wanted`). One that the pool cannot do without becomes degraded at most. Does not wait for the sync: it must
    /// answer also when nothing can be written any more. The answer is the state that it has now.
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn judge(&self, leaf: Guid, state: LeafState) -> Result<LeafState, PoolError> {
        self.leaves.judge(leaf, state)
    }

    /// Takes leaves out of use at whose places `is_there` does not find them any more, before everything is read (OpenZFS: `dsl_scan`,
    /// which opens all vdevs again). What the pool cannot do without stays.
    pub fn look_for_leaves(&self, is_there: &dyn Fn(&Leaf) -> bool) {
        self.leaves.look_for_leaves(is_there);
    }

    /// True when a label of the device says that it is this leaf of this pool.
    pub fn is_labelled(&self, device: &Device, leaf: Guid) -> bool {
        self.leaves.is_labelled(device, leaf)
    }

    /// True for a leaf that was taken out of use while the pool was open, and whose device could trim.
    pub fn could_trim(&self, leaf: Guid) -> bool {
        self.leaves.could_trim(leaf)
    }

    /// Leaves in use that had errors, or are of a suspended pool, and whose devices do not answer (OpenZFS: `vdev_probe`): a disk
    /// that was pulled out and is back is another device to the kernel. Waits for the devices.
    pub fn silent_leaves(&self) -> Vec<Guid> {
        self.leaves.silent_leaves()
    }

    /// Closes the devices of leaves that do not answer, so that they can be opened anew; until [`Pool::bring_back`] they are missing,
    /// also when the pool can't do without them.
    pub fn let_go(&self, leaves: &[Guid]) {
        self.leaves.let_go(leaves);
    }

    /// Brings a leaf back, with `device` if it could be opened; what it missed is resilvered by itself. The answer is the state
    /// it has now: [`LeafState::Missing`] when there is no device, or one with another label. One that left the pool at once, since
    /// what took its place has everything, is answered with the state that it came back in.
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn online(&self, leaf: Guid, device: Option<Device>) -> Result<LeafState, PoolError> {
        if self.has_cache(leaf) {
            return self.online_cache(leaf, device);
        }
        let (_, came_back) = self.take_back(vec![(leaf, device)])?;
        let tree = self.tree();
        let now = tree.leaf_by_guid(leaf).map(|id| tree.leaf(id).state);
        now.or_else(|| came_back.first().copied()).ok_or(PoolError::NoSuchDevice)
    }

    /// Brings a cache device back; one that is in use stays so.
    fn online_cache(&self, guid: Guid, device: Option<Device>) -> Result<LeafState, PoolError> {
        self.vdevs.set_cache_offline(guid, false)?;
        self.spa.zio().leaf_stats_of(guid).clear_errors();
        let state = self.caches.state(guid);
        Ok(match device {
            _ if state.is_usable() => state,
            Some(device) => self.caches.seat(guid, device),
            None => {
                self.caches.set_aside(guid, LeafState::Missing);
                LeafState::Missing
            }
        })
    }

    /// Brings leaves back together, as [`Pool::online`] does one: a suspended pool that lacks several goes on when the last is there.
    /// False when it still can't.
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn bring_back(&self, leaves: Vec<(Guid, Option<Device>)>) -> Result<bool, PoolError> {
        self.take_back(leaves).map(|(works, _)| works)
    }

    /// Does [`Pool::bring_back`]; gives also the state that each came back in.
    fn take_back(&self, leaves: Vec<(Guid, Option<Device>)>) -> Result<(bool, Vec<LeafState>), PoolError> {
        self.spa.check_writeable()?;
        let _arrival = self.vdevs.arrival();
        let take_in = |(leaf, device)| self.leaves.take_in(leaf, device);
        let states = leaves.into_iter().map(take_in).collect::<Result<_, _>>()?;
        // What a provider had open of it may be another file by now.
        self.zio().open_stores();
        self.zio().resume();
        // Writes that began without the leaf belong to a txg that is over then: its log is complete.
        self.sync_unless_suspended()?;
        let works = !self.zio().is_suspended();
        if works {
            self.resilver_stale()?;
            self.vdevs.end_spares()?;
        }
        self.sweeps.spawn();
        self.expansions.spawn();
        Ok((works, states))
    }

    /// Forgets the errors of one leaf or of all, and those of intent logs, and begins the resilver that may have waited for that. Faulted and missing
    /// leaves are brought back with [`Pool::online`].
    pub fn clear(&self, leaf: Option<Guid>) -> Result<(), PoolError> {
        let tree = self.tree();
        let id = leaf.map(|guid| tree.leaf_by_guid(guid).ok_or(PoolError::NoSuchDevice)).transpose()?;
        self.clear_errors(id);
        if self.is_writeable() {
            self.leaves.restore_degraded(leaf);
            self.zio().resume();
            self.sync_unless_suspended()?;
            if !self.zio().is_suspended() {
                self.dsl().forget_failed_logs();
                self.resilver_stale()?;
                self.vdevs.end_spares()?;
            }
        }
        Ok(())
    }

    /// Resets the error counters of one leaf, or of all.
    pub fn clear_errors(&self, leaf: Option<LeafId>) {
        self.leaves.clear_errors(leaf);
        if leaf.is_none() {
            self.vdevs.caches().iter().for_each(|entry| self.zio().leaf_stats_of(entry.guid).clear_errors());
        }
    }

    /// Has new blocks lie on a top-level vdev, or none of them any more; waits until that is on disk.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDevice`] for what is no top-level vdev, [`PoolError::Target`] for logs and for the last vdev that takes blocks.
    pub fn set_allocating(&self, top: Guid, is_on: bool) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.vdevs.change_tree(allocating(top, is_on))?;
        self.spa.note_allocating(top, is_on)
    }

    /// Devices beside their siblings.
    pub fn outliers(&self) -> &Outliers {
        &self.outliers
    }

    /// Has reads pass over a leaf while redundancy makes up for it, until that is ended; or lets them come to it again (the property `sit_out`). Not
    /// kept: the next import forgets it.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDevice`]; [`PoolError::NoReplicas`] where too many sit out, or are gone, already.
    pub fn set_sit_out(&self, leaf: Guid, is_on: bool) -> Result<(), PoolError> {
        self.tree().leaf_by_guid(leaf).ok_or(PoolError::NoSuchDevice)?;
        if !is_on {
            self.zio().leaf_stats_of(leaf).end_sitting_out();
            return Ok(());
        }
        if self.zio().sit_out(leaf, Spell::Endless) { Ok(()) } else { Err(PoolError::NoReplicas) }
    }

    /// The properties of vdevs that are set.
    pub fn vdev_props(&self) -> Result<VdevProps, PoolError> {
        self.spa.vdev_props()
    }

    /// Sets a property of a vdev and waits until it is on disk; an empty text removes it.
    ///
    /// # Errors
    /// `BadProperty` and `BadValue`; `NoSuchDevice` for a vdev that cannot have properties (it is being replaced, or the pool lacks the
    /// feature `vdev_zaps_v2` for the root); `ReadOnly` for a pool that was imported so.
    pub fn set_vdev_prop(&self, guid: Guid, name: &str, value: &str) -> Result<(), PoolError> {
        self.spa.set_vdev_prop(guid, name, value)
    }
}
