//! The removals of a pool as commands see them: what is asked for, how far it is, and who keeps it going.

use super::objects::DEVICE_REMOVAL;
use super::{INVALID, NO_VDEV, read_state};
use crate::PoolError;
use crate::spa::Spa;
use dsl::PoolServices;
use exec::{Crew, Exec, Mutex, WaitQueue};
use ondisk::{Guid, RemovingPhys, VdevId, scan_state};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{Bias, LeafId, Node, NodeKind, TopVdev, VdevTree};

/// Nanoseconds between two looks whether removals may go on.
const SUSPENDED_NS: u64 = 100_000_000;

/// Knobs, by OpenZFS's names.
#[derive(Debug)]
pub struct RemovalParameters {
    /// Bytes that are copied to one place at most (`zfs_remove_max_segment`).
    pub segment_max: AtomicU64,
    /// Free bytes that are copied along between two allocated segments (`vdev_removal_max_span`).
    pub span_max: AtomicU64,
    /// Allocated bytes that one txg copies at most, about; no parameter.
    pub txg_bytes_max: AtomicU64,
    /// Removals go on though a device fails (`zfs_removal_ignore_errors`): 0 or 1.
    pub ignores_errors: AtomicU64,
    /// No removal makes progress (`zfs_removal_suspend_progress`): 0 or 1.
    pub suspended: AtomicU64,
    /// Mappings are condensed (`zfs_condense_indirect_vdevs_enable`): 0 or 1.
    pub condenses: AtomicU64,
    /// Percent of a mapping that nobody needs any more when it is condensed (`zfs_condense_indirect_obsolete_pct`).
    pub condense_percent: AtomicU64,
    /// Bytes of memory up to which a mapping is left as it is (`zfs_condense_min_mapping_bytes`).
    pub condense_bytes_min: AtomicU64,
    /// Bytes of the map of what nobody needs from which on a mapping is condensed whatever it takes (`zfs_condense_max_obsolete_bytes`).
    pub obsolete_bytes_max: AtomicU64,
}

impl Default for RemovalParameters {
    fn default() -> RemovalParameters {
        RemovalParameters {
            segment_max: AtomicU64::new(16 << 20),
            span_max: AtomicU64::new(32 << 10),
            txg_bytes_max: AtomicU64::new(u64::MAX),
            ignores_errors: AtomicU64::new(0),
            suspended: AtomicU64::new(0),
            condenses: AtomicU64::new(1),
            condense_percent: AtomicU64::new(25),
            condense_bytes_min: AtomicU64::new(128 << 10),
            obsolete_bytes_max: AtomicU64::new(1 << 30),
        }
    }
}

/// State of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalState {
    /// The vdev is being emptied, or that goes on after the next import.
    Active,
    /// Nothing is on the vdev any more, and it left the pool.
    Finished,
    /// The vdev stays: somebody said so, or a device failed.
    Canceled,
}

/// The last or current removal of a top-level vdev (OpenZFS: `pool_removal_stat_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalStatus {
    /// State of the removal.
    pub state: RemovalState,
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// Seconds since the epoch when the removal began.
    pub start_time: u64,
    /// Seconds since the epoch when the removal ended; 0 while it runs.
    pub end_time: u64,
    /// Allocated bytes that are to be copied.
    pub to_copy: u64,
    /// Allocated bytes that were copied, or freed before.
    pub copied: u64,
    /// Bytes of memory that the mappings of all removed vdevs take.
    pub mapping_bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    phys: RemovingPhys,
    /// The removal ends with the next sync, and the vdev stays.
    cancel: bool,
    /// The pool is being closed.
    halted: bool,
    /// Somebody keeps the removal going.
    is_driven: bool,
    /// Removed vdevs of which something was freed.
    touched: BTreeSet<VdevId>,
}

/// See the module's header.
pub(crate) struct Removals {
    pub parameters: RemovalParameters,
    spa: Arc<Spa>,
    shared: Mutex<Shared>,
    changed: WaitQueue,
    crew: Crew,
}

impl Removals {
    /// Opens the removals of a pool as its MOS tells.
    pub fn open(spa: &Arc<Spa>) -> Result<Arc<Removals>, PoolError> {
        let none = RemovingPhys { sr_removing_vdev: NO_VDEV, sr_prev_indirect_vdev: NO_VDEV, ..RemovingPhys::default() };
        let phys = read_state(&spa.mos)?.unwrap_or(none);
        let touched = spa.tree().tops.iter().filter(|top| top.is_removed()).map(|top| top.id).collect();
        Ok(Arc::new(Removals {
            parameters: RemovalParameters::default(),
            spa: spa.clone(),
            shared: Mutex::new(Shared { phys, touched, ..Shared::default() }),
            changed: WaitQueue::new(),
            crew: Crew::default(),
        }))
    }

    fn exec(&self) -> &Exec {
        self.spa.exec()
    }

    /// The mapping of a removed vdev may be worth condensing.
    pub(super) fn touch(&self, vdev: VdevId) {
        self.shared.lock().touched.insert(vdev);
    }

    /// Vdevs of which that was said since the last call.
    pub(super) fn take_touched(&self) -> BTreeSet<VdevId> {
        std::mem::take(&mut self.shared.lock().touched)
    }

    /// State of the last removal, as it is on disk or about to be.
    pub(super) fn phys(&self) -> RemovingPhys {
        self.shared.lock().phys.clone()
    }

    /// Takes over what the sync makes of it.
    pub(super) fn set_phys(&self, phys: RemovingPhys) {
        self.shared.lock().phys = phys;
        self.changed.notify_all();
    }

    /// True once after the removal was to be cancelled.
    pub(super) fn take_cancel(&self) -> bool {
        std::mem::take(&mut self.shared.lock().cancel)
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.parameters.suspended.load(Ordering::Relaxed) != 0
    }

    /// True while a vdev is being removed.
    pub fn is_active(&self) -> bool {
        self.shared.lock().phys.sr_state == scan_state::SCANNING
    }

    /// Refuses what cannot be removed now (OpenZFS: `spa_vdev_remove_top_check`).
    ///
    /// # Errors
    /// [`PoolError::Unremovable`] with the reason.
    pub fn check(&self, guid: Guid) -> Result<(), PoolError> {
        let tree = self.spa.tree();
        let top = tree.tops.iter().find(|top| top.is_concrete() && top.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        if !self.spa.services.features.is_enabled(DEVICE_REMOVAL) {
            return Err(PoolError::Unremovable("operation not supported on this type of pool"));
        }
        if top.is_leaving {
            return Err(PoolError::Unremovable("removal for this vdev is already in progress."));
        }
        self.check_room(top)?;
        let whole = |id: LeafId| tree.leaf(id).state.is_usable() && tree.leaf(id).missing_txgs.is_empty();
        if self.is_active() || !top.leaves().any(whole) {
            return Err(PoolError::Unremovable("Pool busy; removal may already be in progress"));
        }
        if self.spa.services.allocator.broken().iter().any(|metaslab| metaslab.vdev == top.id) {
            return Err(PoolError::Unremovable("nobody knows what is on it: its space maps are broken"));
        }
        check_tree(&tree, top)
    }

    /// Refuses a vdev whose contents have no room elsewhere.
    fn check_room(&self, top: &TopVdev) -> Result<(), PoolError> {
        let allocator = &self.spa.services.allocator;
        let (class, space) = (allocator.class_space(), allocator.vdev_space(top.id));
        let free = class.deflated_capacity.saturating_sub(class.deflated_allocated);
        let (available, needed) = match top.bias {
            Bias::None if top.nonallocating => return Ok(()),
            Bias::None => (free.saturating_sub(self.spa.services.space().slop_bytes), top.dsize(space.capacity)),
            _ => (free, top.dsize(space.allocated)),
        };
        if available < needed { Err(PoolError::Unremovable("out of space")) } else { Ok(()) }
    }

    /// Ends the removal that runs: the vdev stays, and what was copied is given back. Waits until that is on disk.
    ///
    /// # Errors
    /// [`PoolError::NotRemoving`] when none runs.
    pub fn cancel(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        {
            let mut shared = self.shared.lock();
            if shared.phys.sr_state != scan_state::SCANNING {
                return Err(PoolError::NotRemoving);
            }
            shared.cancel = true;
        }
        loop {
            self.spa.sync()?;
            let mut shared = self.shared.lock();
            // It may have ended by itself before.
            if !shared.cancel || shared.phys.sr_state != scan_state::SCANNING {
                shared.cancel = false;
                return Ok(());
            }
        }
    }

    /// Keeps a removal going on an operation of its own; under an inline executor [`Removals::run`] must be called.
    pub fn spawn(self: &Arc<Self>) {
        let removals = self.clone();
        self.crew.start_if(self.exec(), "z-removal", || self.claim(), Box::new(move || removals.drive(None)));
    }

    /// Keeps a removal going on this thread until it ends, or for so many txgs.
    pub fn run(&self, txgs: Option<usize>) {
        if self.claim() {
            self.drive(txgs);
        }
    }

    fn claim(&self) -> bool {
        let mut shared = self.shared.lock();
        let is_free = !shared.is_driven && !shared.halted && shared.phys.sr_state == scan_state::SCANNING;
        shared.is_driven |= is_free;
        is_free
    }

    /// Has one txg synced after the other: each copies a part.
    fn drive(&self, txgs: Option<usize>) {
        let mut done = 0;
        while self.is_active() && !self.shared.lock().halted && txgs.is_none_or(|most| done < most) {
            if self.is_suspended() && !self.exec().is_inline() {
                self.exec().sleep_ns(SUSPENDED_NS);
            } else if self.spa.sync().is_err() {
                break;
            }
            done += 1;
        }
        self.shared.lock().is_driven = false;
        self.changed.notify_all();
    }

    /// Ends the work, which goes on after the next import.
    pub fn halt(&self) {
        self.shared.lock().halted = true;
        self.changed.notify_all();
        self.crew.join();
    }

    /// Waits until nothing is removed any more.
    pub fn wait(&self) {
        self.changed.wait_until(self.exec(), &|| {
            let shared = self.shared.lock();
            shared.halted || shared.phys.sr_state != scan_state::SCANNING
        });
    }

    /// The last or current removal; None of a pool that never had one.
    pub fn status(&self) -> Option<RemovalStatus> {
        let phys = self.phys();
        let state = match phys.sr_state {
            scan_state::SCANNING => RemovalState::Active,
            scan_state::FINISHED => RemovalState::Finished,
            scan_state::CANCELED => RemovalState::Canceled,
            _ => return None,
        };
        let tree = self.spa.tree();
        let mappings = tree.tops.iter().filter(|top| top.is_removed()).filter_map(|top| top.mapping.as_ref());
        Some(RemovalStatus {
            state,
            vdev: VdevId(phys.sr_removing_vdev as u32),
            start_time: phys.sr_start_time,
            end_time: phys.sr_end_time,
            to_copy: phys.sr_to_copy,
            copied: phys.sr_copied,
            mapping_bytes: mappings.map(|mapping| mapping.memory_bytes()).sum(),
        })
    }

    /// Bytes of memory that the mapping of a vdev would take, or takes, about (OpenZFS: `vdev_config_generate`).
    ///
    /// # Errors
    /// [`PoolError::NoSuchDevice`].
    pub fn memory_estimate(&self, guid: Guid) -> Result<u64, PoolError> {
        let tree = self.spa.tree();
        let top = tree.tops.iter().find(|top| top.is_concrete() && top.guid == guid).ok_or(PoolError::NoSuchDevice)?;
        let allocator = &self.spa.services.allocator;
        let (span, segment) = (&self.parameters.span_max, self.parameters.segment_max.load(Ordering::Relaxed).max(1));
        let joined = u64::BITS - span.load(Ordering::Relaxed).leading_zeros();
        let (mut ranges, mut bytes) = (0, allocator.vdev_space(top.id).allocated);
        // Free segments divide what is allocated; small ones are copied along.
        for (log2, count) in (0..).zip(allocator.free_histogram(top.id)) {
            if log2 + 2 < joined {
                bytes += count << (log2 + 1);
            } else {
                ranges += count;
            }
        }
        Ok((ranges + bytes / segment) * ondisk::IndirectMappingEntry::SIZE as u64)
    }
}

/// Refuses a pool in which copies of a part of a vdev may take other space than it has.
fn check_tree(tree: &VdevTree, top: &TopVdev) -> Result<(), PoolError> {
    let invalid = || Err(PoolError::Unremovable(INVALID));
    let sectors: Vec<u32> = tree.tops.iter().filter(|top| top.is_normal()).map(|top| top.ashift).collect();
    let is_other = |other: &TopVdev| other.is_concrete() && !other.is_log && other.bias == top.bias && other.ashift != top.ashift;
    if sectors.iter().any(|ashift| *ashift != top.ashift) || tree.tops.iter().any(is_other) {
        return invalid();
    }
    for other in tree.tops.iter().filter(|other| other.is_concrete()) {
        let is_leaf = |node: &Node| matches!(node.kind, NodeKind::Leaf(_));
        let is_plain = |node: &Node| is_leaf(node) || (node.kind == NodeKind::Mirror && node.children.iter().all(is_leaf));
        if !other.node.as_ref().is_some_and(is_plain) {
            return invalid();
        }
    }
    Ok(())
}
