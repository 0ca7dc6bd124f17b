//! The expansions of a pool as commands see them: what is asked for, how far it is, and who keeps it going.

use crate::PoolError;
use crate::spa::Spa;
use crate::sweep::Sweeps;
use exec::{Crew, Exec, Mutex, WaitQueue};
use ondisk::names::top_zap;
use ondisk::{ObjectId, Txg, VdevId, scan_state};
use scan::Scan;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{LeafState, TopKind, TopVdev, VdevTree};
use zap::Zap;

/// Nanoseconds between two looks whether an expansion may go on.
const PAUSED_NS: u64 = 100_000_000;
/// Nanoseconds after which what failed is tried again, if all devices are whole then.
const RETRY_NS: u64 = 2_000_000_000;

/// Knobs, by OpenZFS's names.
#[derive(Debug)]
pub struct ExpandParameters {
    /// Bytes that are moved at once (`raidz_expand_max_copy_bytes`).
    pub copy_bytes_max: AtomicU64,
    /// Moved bytes after which expansions make no progress, for tests; 0 for no bound (`raidz_expand_max_reflow_bytes`).
    pub reflow_bytes_max: AtomicU64,
    /// A scrub follows (`zfs_scrub_after_expand`): 0 or 1.
    pub scrub_after: AtomicU64,
}

impl Default for ExpandParameters {
    fn default() -> ExpandParameters {
        ExpandParameters { copy_bytes_max: AtomicU64::new(160 << 20), reflow_bytes_max: AtomicU64::new(0), scrub_after: AtomicU64::new(1) }
    }
}

/// The last or current expansion of a RAID-Z vdev (OpenZFS: `pool_raidz_expand_stat_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandStatus {
    /// Number of the top-level vdev.
    pub vdev: VdevId,
    /// True while it runs, or waits.
    pub is_active: bool,
    /// Seconds since the epoch when it began.
    pub start_time: u64,
    /// Seconds since the epoch when it ended; 0 while it runs.
    pub end_time: u64,
    /// Allocated bytes of the vdev.
    pub to_reflow: u64,
    /// Bytes that were moved.
    pub reflowed: u64,
    /// True while it waits for a device to be whole again.
    pub is_waiting: bool,
}

/// An expansion as the vdev's ZAP tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Phys {
    pub state: u64,
    pub start_time: u64,
    pub end_time: u64,
    pub copied: u64,
}

#[derive(Debug, Default)]
struct Shared {
    known: BTreeMap<VdevId, Phys>,
    /// The pool is being closed.
    halted: bool,
    /// Somebody keeps the expansion going.
    is_driven: bool,
    /// Time before which what failed is not tried again; 0 when nothing did.
    retry_ns: u64,
    /// An expansion ended since nobody was at work.
    completed: bool,
}

/// See the module's header.
pub(crate) struct Expansions {
    pub parameters: ExpandParameters,
    spa: Arc<Spa>,
    scan: Arc<Scan>,
    sweeps: Arc<Sweeps>,
    shared: Mutex<Shared>,
    changed: WaitQueue,
    crew: Crew,
}

impl Expansions {
    /// Opens the expansions of a pool as its MOS tells. What cannot be read is shown as nothing; none of it decides where blocks are.
    pub fn open(spa: &Arc<Spa>, scan: &Arc<Scan>, sweeps: &Arc<Sweeps>) -> Arc<Expansions> {
        let mut shared = Shared::default();
        for top in spa.tree().tops.iter().filter(|top| matches!(top.kind, TopKind::Raidz(_)) && top.zap != ObjectId(0)) {
            if let Some(phys) = read(spa, top) {
                shared.known.insert(top.id, phys);
            }
        }
        Arc::new(Expansions {
            parameters: ExpandParameters::default(),
            spa: spa.clone(),
            scan: scan.clone(),
            sweeps: sweeps.clone(),
            shared: Mutex::new(shared),
            changed: WaitQueue::new(),
            crew: Crew::default(),
        })
    }

    fn exec(&self) -> &Exec {
        self.spa.exec()
    }

    /// State of a vdev's last expansion, as it is on disk or about to be.
    pub(super) fn phys(&self, vdev: VdevId) -> Phys {
        self.shared.lock().known.get(&vdev).copied().unwrap_or_default()
    }

    /// Takes over what the sync makes of it.
    pub(super) fn set_phys(&self, vdev: VdevId, phys: Phys) {
        {
            let mut shared = self.shared.lock();
            shared.completed |= phys.state == scan_state::FINISHED;
            shared.known.insert(vdev, phys);
        }
        self.changed.notify_all();
    }

    /// Something failed: it is tried again later.
    pub(super) fn put_off(&self) {
        self.shared.lock().retry_ns = self.exec().now_ns().saturating_add(RETRY_NS);
    }

    /// True while a vdev is being expanded.
    pub fn is_active(&self) -> bool {
        self.spa.tree().expanding().is_some()
    }

    /// True while the expansion has to wait for a device, or for who stopped it for a test.
    pub(super) fn is_paused(&self, tree: &VdevTree, top: &TopVdev) -> bool {
        let most = self.parameters.reflow_bytes_max.load(Ordering::Relaxed);
        (most != 0 && self.phys(top.id).copied >= most) || self.waits_for_device(tree, top)
    }

    /// True while a device of the vdev is not whole, or failed just now.
    fn waits_for_device(&self, tree: &VdevTree, top: &TopVdev) -> bool {
        !is_whole(tree, top) || self.is_put_off()
    }

    fn is_put_off(&self) -> bool {
        self.shared.lock().retry_ns > self.exec().now_ns()
    }

    /// Keeps an expansion going on an operation of its own; under an inline executor [`Expansions::run`] must be called.
    pub fn spawn(self: &Arc<Self>) {
        let expansions = self.clone();
        self.crew.start_if(self.exec(), "z-expand", || self.claim(), Box::new(move || expansions.drive(None)));
    }

    /// Keeps an expansion going on this thread until it ends, or for so many txgs.
    pub fn run(&self, txgs: Option<usize>) {
        if self.claim() {
            self.drive(txgs);
        }
    }

    fn claim(&self) -> bool {
        let is_active = self.is_active();
        let mut shared = self.shared.lock();
        let is_free = !shared.is_driven && !shared.halted && is_active;
        shared.is_driven |= is_free;
        is_free
    }

    /// Has one txg synced after the other: each moves a part.
    fn drive(&self, txgs: Option<usize>) {
        let mut done = 0;
        while !self.shared.lock().halted && txgs.is_none_or(|most| done < most) {
            let tree = self.spa.tree();
            let Some(top) = tree.expanding() else { break };
            done += 1;
            let is_paused = self.is_paused(&tree, top);
            if is_paused {
                self.exec().sleep_ns(PAUSED_NS);
                // Without threads nobody else has something synced, and only what was put off goes on by itself.
                if !self.exec().is_inline() || self.is_put_off() {
                    continue;
                }
            }
            if self.spa.sync().is_err() || (is_paused && txgs.is_none()) {
                break;
            }
        }
        let has_ended = {
            let mut shared = self.shared.lock();
            shared.is_driven = false;
            std::mem::take(&mut shared.completed) && !shared.halted
        };
        if has_ended {
            // They waited.
            self.sweeps.spawn();
        }
        // Nobody verified a checksum of what was moved.
        if has_ended && self.parameters.scrub_after.load(Ordering::Relaxed) != 0 {
            let _ = self.scan.start(Txg::ZERO);
        }
        self.changed.notify_all();
    }

    /// Ends the work, which goes on after the next import.
    pub fn halt(&self) {
        self.shared.lock().halted = true;
        self.changed.notify_all();
        self.crew.join();
    }

    /// The last or current expansion; None of a pool that never had one.
    pub fn status(&self) -> Option<ExpandStatus> {
        let tree = self.spa.tree();
        let known = self.shared.lock().known.clone();
        let current = tree.expanding().map(|top| top.id);
        let last = || known.iter().filter(|(_, phys)| phys.end_time != 0).max_by_key(|(_, phys)| phys.end_time).map(|(vdev, _)| *vdev);
        let vdev = current.or_else(last)?;
        let phys = known.get(&vdev).copied().unwrap_or_default();
        let top = tree.tops.get(vdev.0 as usize)?;
        Some(ExpandStatus {
            vdev,
            is_active: current.is_some(),
            start_time: phys.start_time,
            end_time: phys.end_time,
            to_reflow: self.spa.services.allocator.vdev_space(vdev).allocated,
            reflowed: phys.copied,
            is_waiting: current.is_some() && self.waits_for_device(&tree, top),
        })
    }

    /// Refuses what changes the pool in a way that an expansion does not bear.
    ///
    /// # Errors
    /// [`PoolError::Expanding`].
    pub fn check_none(&self) -> Result<(), PoolError> {
        if self.is_active() { Err(PoolError::Expanding) } else { Ok(()) }
    }
}

/// True when every child of the vdev is one device that is in use and has everything.
pub(super) fn is_whole(tree: &VdevTree, top: &TopVdev) -> bool {
    top.slots.iter().all(|slot| match slot.as_slice() {
        [leaf] => tree.leaf(*leaf).state == LeafState::Online && tree.leaf(*leaf).missing_txgs.is_empty(),
        _ => false,
    })
}

/// State as the vdev's ZAP tells it; None when it tells nothing.
fn read(spa: &Spa, top: &TopVdev) -> Option<Phys> {
    let zap = Zap::hold(&spa.mos, top.zap).ok()?;
    let number = |name: &str| zap.try_lookup_u64(name).ok().flatten();
    Some(Phys {
        state: number(top_zap::RAIDZ_EXPAND_STATE)?,
        start_time: number(top_zap::RAIDZ_EXPAND_START_TIME).unwrap_or(0),
        end_time: number(top_zap::RAIDZ_EXPAND_END_TIME).unwrap_or(0),
        copied: number(top_zap::RAIDZ_EXPAND_BYTES_COPIED).unwrap_or(0),
    })
}
