//! Leaves that go out of use and come back while the pool is open (OpenZFS: `vdev_offline`, `vdev_fault`, `vdev_online`,
//! `vdev_clear`), by command or judged by their errors.
//!
//! A change of a leaf's state replaces the tree at once and is written with the next txg. I/O under way goes on with the tree that
//! it began with; so whatever a leaf that leaves may not have flushed counts as missed.

use crate::PoolError;
use crate::label::{Device, any_names, read_configs};
use crate::spa::Spa;
use crate::spa::state::Config;
use device::DeviceOp;
use exec::Mutex;
use kstat::Event;
use ondisk::{Guid, Txg};
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::{LABEL_START_BYTES, Leaf, LeafId, LeafKind, LeafState, VdevTree};
use zio::{LeafRequest, Priority};

/// Bytes read of a device to see whether it answers.
const PROBE_BYTES: usize = 4096;
/// The leaves of a pool, as they are used.
pub(crate) struct Leaves {
    spa: Arc<Spa>,
    /// Guids of the leaves without a device whose last one could trim (OpenZFS: `vdev_has_trim`).
    could_trim: Mutex<BTreeSet<Guid>>,
    /// Leaves that are about to be another pool's: nobody brings them back.
    leaving: Mutex<BTreeSet<Guid>>,
}

/// Way in which a leaf leaves.
struct Out {
    state: LeafState,
    /// True when it is until the next import only.
    temporary: bool,
    /// True when it is because of the leaf's errors.
    by_errors: bool,
    /// State that the leaf gets when the pool cannot do without it; None to refuse.
    instead: Option<LeafState>,
}

/// A state as a number (OpenZFS: `vdev_state_t`).
fn number_of(state: LeafState) -> u64 {
    match state {
        LeafState::Offline => 2,
        LeafState::Removed => 3,
        LeafState::Missing => 4,
        LeafState::Faulted => 5,
        LeafState::Degraded => 6,
        LeafState::Online => 7,
    }
}

/// `resource.fs.zfs.statechange` (OpenZFS: `zfs_post_state_change`).
fn state_change(config: &Config, leaf: &Leaf, before: LeafState) -> Event {
    Event::new("resource.fs.zfs.statechange")
        .with("pool", config.facts.name.as_str())
        .with("pool_guid", config.facts.guid.0)
        .with("pool_state", config.facts.state.number())
        .with("pool_context", 0i64)
        .with("vdev_guid", leaf.guid.0)
        .with("vdev_state", number_of(leaf.state))
        .with("vdev_path", leaf.path.as_str())
        .with("vdev_laststate", number_of(before))
}

/// Notes the txgs that the leaf may not have on stable storage: all that are not synced, and the next to be opened.
pub(crate) fn note_unflushed(spa: &Spa, leaf: Guid) {
    let (synced, open) = (spa.txgs.synced_txg(), spa.txgs.open_txg());
    for txg in synced.0 + 1..=open.0 + 1 {
        spa.zio().note_missing(leaf, Txg(txg));
    }
}

impl Leaves {
    /// Makes the leaves of a pool.
    pub fn new(spa: Arc<Spa>) -> Leaves {
        Leaves { spa, could_trim: Mutex::default(), leaving: Mutex::default() }
    }

    /// Names the leaves that are about to be another pool's, instead of those named before.
    pub fn set_leaving(&self, leaves: &[Guid]) {
        *self.leaving.lock() = leaves.iter().copied().collect();
    }

    /// True for a leaf that was taken out of use while the pool was open, and whose device could trim.
    pub fn could_trim(&self, leaf: Guid) -> bool {
        self.could_trim.lock().contains(&leaf)
    }

    /// Resets the error counters of one leaf, or of all.
    pub fn clear_errors(&self, leaf: Option<LeafId>) {
        let tree = self.spa.tree();
        let of_leaf = |leaf: LeafId| tree.tops.iter().find(|top| top.slots.iter().flatten().any(|known| *known == leaf));
        match leaf {
            None => self.spa.zio().clear_dio_verify_errors(None),
            Some(leaf) => of_leaf(leaf).into_iter().for_each(|top| self.spa.zio().clear_dio_verify_errors(Some(top.id))),
        }
        for (index, known) in tree.leaves.iter().enumerate() {
            if leaf.is_none_or(|leaf| leaf.0 as usize == index) {
                self.spa.zio().leaf_stats_of(known.guid).clear_errors();
            }
        }
    }

    /// Takes a leaf offline; with `temporary` until the next import only. Waits until that is written, unless the pool is
    /// suspended.
    ///
    /// Errors: [`PoolError::NoSuchDevice`], [`PoolError::NoReplicas`] when something could not be read without it.
    pub fn offline(&self, leaf: Guid, temporary: bool) -> Result<(), PoolError> {
        self.take_out(leaf, &Out { state: LeafState::Offline, temporary, by_errors: false, instead: None })?;
        self.spa.sync_unless_suspended()
    }

    /// Declares a leaf faulted, as [`Leaves::offline`]; one that the pool cannot do without becomes degraded instead.
    pub fn fault(&self, leaf: Guid, temporary: bool) -> Result<(), PoolError> {
        let instead = Some(LeafState::Degraded);
        self.take_out(leaf, &Out { state: LeafState::Faulted, temporary, by_errors: false, instead })?;
        self.spa.sync_unless_suspended()
    }

    /// Declares a leaf degraded: it is used as before, and shown as suspicious (OpenZFS: `vdev_degrade`).
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn degrade(&self, leaf: Guid) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        {
            let mut config = self.spa.config.lock();
            let id = config.tree.leaf_by_guid(leaf).ok_or(PoolError::NoSuchDevice)?;
            if !config.tree.leaf(id).state.is_usable() {
                return Ok(());
            }
            self.change(&mut config, id, |leaf| {
                (leaf.state, leaf.is_state_temporary, leaf.too_many_errors) = (LeafState::Degraded, false, false)
            });
        }
        self.spa.sync_unless_suspended()
    }

    /// Judges a leaf by its errors, or by its absence: it becomes faulted, removed, missing or degraded until it is cleared,
    /// brought back or imported again (OpenZFS: `zpool_vdev_fault` and `zpool_vdev_degrade` as `zed` calls them,
    /// `vdev_remove_wanted`). One that the pool cannot do without becomes degraded at most. Does not wait for the sync: it must
    /// answer also when nothing can be written any more. The answer is the state that it has now.
    ///
    /// Errors: [`PoolError::NoSuchDevice`].
    pub fn judge(&self, leaf: Guid, state: LeafState) -> Result<LeafState, PoolError> {
        let instead = Some(LeafState::Degraded);
        let by_errors = matches!(state, LeafState::Faulted | LeafState::Degraded);
        let state = self.take_out(leaf, &Out { state, temporary: true, by_errors, instead })?;
        self.spa.txgs.kick();
        Ok(state)
    }

    /// Takes leaves out of use at whose places `is_there` does not find them any more, before everything is read (OpenZFS: `dsl_scan`,
    /// which opens all vdevs again). What the pool cannot do without stays.
    pub fn look_for_leaves(&self, is_there: &dyn Fn(&Leaf) -> bool) {
        let tree = self.spa.tree();
        let out = Out { state: LeafState::Missing, temporary: true, by_errors: false, instead: None };
        let is_looked_for = |leaf: &&Leaf| leaf.state.is_usable() && leaf.kind != LeafKind::DraidSpare;
        for leaf in tree.leaves.iter().filter(is_looked_for).filter(|leaf| !is_there(leaf)) {
            // Another one that is lost too may have made it one that is needed.
            let _ = self.take_out(leaf.guid, &out);
        }
    }

    /// True when a label of the device says that it is this leaf of this pool.
    pub fn is_labelled(&self, device: &Device, leaf: Guid) -> bool {
        any_names(&read_configs(self.spa.exec(), device), self.spa.guid(), leaf)
    }

    /// Gives the state that the leaf has now.
    fn take_out(&self, guid: Guid, out: &Out) -> Result<LeafState, PoolError> {
        self.spa.check_writeable()?;
        let mut config = self.spa.config.lock();
        let id = config.tree.leaf_by_guid(guid).ok_or(PoolError::NoSuchDevice)?;
        let leaf = config.tree.leaf(id);
        let was_usable = leaf.state.is_usable();
        let is_log = config.tree.tops[leaf.top.0 as usize].is_log;
        let is_required = match out.state {
            LeafState::Faulted => config.tree.is_required_beside_replacements(id),
            _ => config.tree.is_required(id),
        };
        let needed = is_required || self.spa.zio().is_injected_needed(guid);
        let required = was_usable && !out.state.is_usable() && !is_log && needed;
        let state = if required { out.instead.ok_or(PoolError::NoReplicas)? } else { out.state };
        self.change(&mut config, id, |leaf| {
            (leaf.state, leaf.is_state_temporary, leaf.too_many_errors) = (state, out.temporary, out.by_errors);
            if !state.is_usable() {
                (leaf.resilver_txg, leaf.rebuild_txg) = (Txg(0), Txg(0));
            }
        });
        if !state.is_usable() {
            let device = config.devices[id.0 as usize].take();
            if device.is_some_and(|device| device.facts().can_trim) {
                self.could_trim.lock().insert(guid);
            }
            self.spa.publish(&config);
            if was_usable {
                note_unflushed(&self.spa, guid);
            }
            let top = &config.tree.tops[config.tree.leaf(id).top.0 as usize];
            if is_log && config.tree.lost_slots(top) > top.parity() {
                drop(config);
                self.spa.dsl.restart_logs();
            }
        }
        Ok(state)
    }

    /// Brings a leaf back, with `device` if it could be opened and is that leaf's; else it is missing. Gives the state that it has then.
    pub fn take_in(&self, leaf: Guid, device: Option<Device>) -> Result<LeafState, PoolError> {
        let least = self.least_bytes(leaf)?;
        let is_leaving = self.leaving.lock().contains(&leaf);
        let device = device.filter(|device| !is_leaving && self.is_device_of(device, leaf, least));
        let mut config = self.spa.config.lock();
        let id = config.tree.leaf_by_guid(leaf).ok_or(PoolError::NoSuchDevice)?;
        let index = id.0 as usize;
        if device.is_some() || config.devices[index].is_none() {
            config.devices[index] = device;
        }
        let there = config.devices[index].as_ref();
        let state = if there.is_some() { LeafState::Online } else { LeafState::Missing };
        let is_back = there.is_some() && !config.tree.leaf(id).state.is_usable();
        let path = there.map(|device| device.path().to_string_lossy().into_owned());
        if is_back {
            // What it did before it went is no reason to judge it again.
            self.spa.zio().leaf_stats_of(leaf).forget_reports();
        }
        self.change(&mut config, id, |leaf| {
            (leaf.state, leaf.is_state_temporary, leaf.too_many_errors) = (state, false, false);
            leaf.is_not_present &= !state.is_usable();
            leaf.path = path.unwrap_or_else(|| leaf.path.clone());
        });
        drop(config);
        if is_back {
            self.spa.notify("sysevent.fs.zfs.vdev_online", Some(leaf));
        }
        Ok(state)
    }

    /// Leaves in use that had errors, or are of a suspended pool, and whose devices do not answer (OpenZFS: `vdev_probe`): a disk
    /// that was pulled out and is back is another device to the kernel. Waits for the devices.
    pub fn silent_leaves(&self) -> Vec<Guid> {
        let (tree, is_suspended) = (self.spa.tree(), self.spa.zio().is_suspended());
        let is_suspect = |leaf: &&Leaf| {
            let counts = self.spa.zio().leaf_stats_of(leaf.guid).counts();
            let has_failed = counts.gone > 0 || counts.errors.iter().any(|count| *count > 0);
            leaf.state.is_usable() && leaf.kind != LeafKind::DraidSpare && (is_suspended || has_failed)
        };
        tree.leaves.iter().filter(is_suspect).map(|leaf| leaf.guid).filter(|leaf| !self.answers(*leaf)).collect()
    }

    fn answers(&self, leaf: Guid) -> bool {
        if self.spa.zio().is_probe_injected(leaf) {
            return false;
        }
        let (done, wait) = exec::completion();
        let op = DeviceOp::read(PROBE_BYTES);
        let request = LeafRequest { leaf, offset: LABEL_START_BYTES, op, priority: Priority::SyncRead, speculative: true };
        self.spa.zio().leaf_io(request, Box::new(move |result| done.complete(result.is_ok())));
        wait.wait(self.spa.exec())
    }

    /// Closes the devices of leaves that do not answer, so that they can be opened anew; until [`Leaves::take_in`] they are missing,
    /// also when the pool can't do without them.
    pub fn let_go(&self, leaves: &[Guid]) {
        let mut config = self.spa.config.lock();
        for leaf in leaves {
            let Some(id) = config.tree.leaf_by_guid(*leaf) else { continue };
            config.devices[id.0 as usize] = None;
            self.change(&mut config, id, |leaf| (leaf.state, leaf.is_state_temporary) = (LeafState::Missing, true));
        }
    }

    /// Leaves that were declared degraded are as good as any again, and spares no longer stand in for what was cleared (OpenZFS:
    /// `vdev_clear`).
    pub fn restore_degraded(&self, only: Option<Guid>) {
        let mut config = self.spa.config.lock();
        let tree = config.tree.clone();
        let wanted = |leaf: &Leaf| leaf.state.is_usable() && only.is_none_or(|only| only == leaf.guid);
        for (index, leaf) in tree.leaves.iter().enumerate().filter(|(_, leaf)| wanted(leaf)) {
            let id = LeafId(index as u32);
            let has_spare = tree.successor(id).is_some();
            if leaf.state == LeafState::Degraded || (has_spare && !leaf.unspare) {
                self.change(&mut config, id, |leaf| {
                    (leaf.state, leaf.too_many_errors, leaf.unspare) = (LeafState::Online, false, has_spare);
                });
            }
        }
    }

    /// Replaces the tree by one in which a leaf is changed, and says so when its state is another one.
    fn change(&self, config: &mut Config, id: LeafId, change: impl FnOnce(&mut Leaf)) {
        let mut tree = VdevTree::clone(&config.tree);
        let leaf = &mut tree.leaves[id.0 as usize];
        let before = leaf.state;
        change(leaf);
        if leaf.state != before {
            self.spa.services.events.event(state_change(config, leaf, before));
        }
        config.tree = Arc::new(tree);
        config.dirty = true;
        self.spa.publish(config);
    }

    /// Allocatable bytes that the leaf's device must have.
    fn least_bytes(&self, guid: Guid) -> Result<u64, PoolError> {
        let tree = self.spa.tree();
        let id = tree.leaf_by_guid(guid).ok_or(PoolError::NoSuchDevice)?;
        Ok(tree.tops[tree.leaf(id).top.0 as usize].min_leaf_asize())
    }

    /// True when a label of the device says that it is this leaf of this pool, the newest does not say that it is another one, and it is
    /// large enough.
    fn is_device_of(&self, device: &Device, leaf: Guid, least_bytes: u64) -> bool {
        let configs = read_configs(self.spa.exec(), device);
        let newest = configs.first().and_then(|config| config.get_u64("guid")).map(Guid);
        let is_others = newest.is_some_and(|newest| newest != leaf && self.spa.tree().leaf_by_guid(newest).is_some());
        !is_others
            && any_names(&configs, self.spa.guid(), leaf)
            && vdev::leaf_asize(device.size_bytes()).is_some_and(|bytes| bytes >= least_bytes)
    }
}
