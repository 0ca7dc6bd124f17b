//! What the owner of the pool does with its pipeline besides blocks: leaves, their queues and counters, simulated faults, suspension.

use crate::Zio;
use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::beside;
use crate::core::ObjsetNames;
use crate::direct::{ChangedBuffers, DirectParameters};
use crate::faults::Fault;
use crate::placing::PlacingTunables;
use crate::roam::{self, MayRoam, Next};
use crate::suspend::{Held, Hold, Resumes};
use crate::view::FailMode;
use crate::{ErrorKind, Priority, UnitThen, ZioError, stats};
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp};
use exec::{TaskClass, completion};
use kstat::Kstat;
use leaf::{DeadmanFailMode, DirtySource, FaultError, LeafStats, QueueState, Roaming};
use ondisk::{BlockPtr, Bookmark, Guid, ObjectId, ObjsetId, Txg, VdevId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use vdev::{LABEL_START_BYTES, LeafId};
use vdev_queue::Tunables;

/// Bytes that tell whether a device works.
const PROBE_BYTES: usize = 4096;

/// An I/O to one leaf.
#[derive(Debug)]
pub struct LeafRequest {
    /// Guid of the leaf.
    pub leaf: Guid,
    /// First byte on the device, counted from its beginning, labels included.
    pub offset: u64,
    /// Operation to do.
    pub op: DeviceOp,
    /// Urgency: on whose behalf the I/O is.
    pub priority: Priority,
    /// True when a failure is expected: count no error, post no event.
    pub speculative: bool,
}

/// Receives the bytes of a read (nothing for other operations), or why not. Runs once, on any thread, and must not wait.
pub type LeafThen = Box<dyn FnOnce(Result<Abd, DeviceError>) + Send>;

impl Zio {
    /// Does one I/O on the device of a leaf, or on one beside them ([`Zio::set_beside`]).
    ///
    /// Errors: `Gone` for a leaf that the current view does not have, or whose device is not open, and those of the device.
    pub fn leaf_io(&self, request: LeafRequest, then: LeafThen) {
        let snapshot = self.core.snapshot();
        let Some(number) = snapshot.find(request.leaf) else { return beside::issue(&self.core, request, then) };
        // Free space of a vdev that is being expanded is not where it was when somebody looked for it.
        let tree = &snapshot.view.tree;
        let is_sweep = matches!(request.priority, Priority::Initializing | Priority::Trim);
        if is_sweep && tree.expanding().is_some_and(|top| top.id == tree.leaf(number).top) {
            return then(Ok(Abd::default()));
        }
        let LeafRequest { offset, op, priority, speculative, .. } = request;
        let class = if priority.is_background() { TaskClass::Background } else { TaskClass::Interrupt };
        let op = LeafOp { leaf: number, offset, op };
        batch::issue(&self.core, &snapshot, BatchOptions { class, priority, speculative }, vec![op], move |results| {
            then(results.into_iter().next().unwrap_or(Err(DeviceError::Gone)));
        });
    }

    /// Opens a device that belongs to the pool and is no leaf, such as a cache, or lets go of it: nothing of the pool lies on it. It has counters
    /// ([`Zio::leaf_stats_of`]), and faults of leaves may be meant for it ([`Zio::inject`]).
    pub fn set_beside(&self, guid: Guid, device: Option<&Arc<dyn BlockDevice>>) {
        self.core.leaves.set_beside(guid, device);
    }

    /// Counters of a leaf of the current view; empty ones for a number that it does not have.
    pub fn leaf_stats(&self, leaf: LeafId) -> Arc<LeafStats> {
        self.core.snapshot().stats_of(leaf).unwrap_or_default()
    }

    /// Counters of the leaf with this guid, whichever view it belongs to.
    pub fn leaf_stats_of(&self, guid: Guid) -> Arc<LeafStats> {
        self.core.leaves.stats_of(guid)
    }

    /// Bytes repaired on any leaf since the pool was opened, those that left it included.
    pub fn repaired_bytes(&self) -> u64 {
        self.core.leaves.repaired_bytes()
    }

    /// True when it turned out that a leaf lacks something, and nobody has written that down yet.
    pub fn is_noted_missing(&self, leaf: Guid) -> bool {
        self.core.lacking.is_noted(leaf)
    }

    /// Says that a leaf lacks what was born in `txg`: its dirty time log grows with the next sync.
    pub fn note_missing(&self, leaf: Guid, txg: Txg) {
        self.core.lacking.note(leaf, txg);
    }

    /// Leaves (by guid) that missed writes, with the txgs, since the last call: the growth of their dirty time logs.
    pub fn take_missing(&self) -> Vec<(Guid, Txg)> {
        self.core.lacking.take()
    }

    /// Ranges of removed vdevs, in bytes, to which nothing that is freed leads any more, since the last call (OpenZFS: `vdev_indirect_mark_obsolete`).
    pub fn take_obsolete(&self) -> Vec<(VdevId, Range<u64>)> {
        self.core.obsolete.take()
    }

    /// Bytes that were freed on the vdev that is being removed before they were copied, since the last call (OpenZFS: `free_from_removing_vdev`).
    pub fn take_uncopied(&self) -> u64 {
        self.core.obsolete.take_uncopied()
    }

    /// Makes everything written so far durable on every leaf; `then` gets an error when a top-level vdev has more leaves
    /// that did not flush than it can lose.
    pub fn flush_all(&self, then: UnitThen) {
        let snapshot = self.core.snapshot();
        let leaves = snapshot.open_leaves();
        let ops = leaves.iter().map(|&leaf| LeafOp { leaf, offset: 0, op: DeviceOp::Flush }).collect();
        let options = BatchOptions { class: TaskClass::Interrupt, priority: Priority::SyncWrite, speculative: false };
        let (owner, view) = (self.core.clone(), snapshot.clone());
        batch::issue(&self.core, &snapshot, options, ops, move |results| {
            let failed = |result: &LeafResult| matches!(result, Err(error) if *error != DeviceError::Unsupported);
            let bad: BTreeSet<LeafId> =
                leaves.into_iter().zip(results).filter(|(_, result)| failed(result)).map(|(leaf, _)| leaf).collect();
            owner.lacking.note_unflushed(bad.iter().map(|&leaf| view.guid(leaf)));
            then(if view.is_lost_without(&bad) { Err(ZioError::new(ErrorKind::Io, Bookmark::default())) } else { Ok(()) });
        });
    }

    /// Leaves that failed to flush since the last call: what was written to them meanwhile may be lost.
    pub fn take_unflushed(&self) -> Vec<Guid> {
        self.core.lacking.take_unflushed()
    }

    /// Makes everything written so far durable, and waits.
    pub fn flush_wait(&self) -> Result<(), ZioError> {
        let (done, wait) = completion();
        self.flush_all(Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }

    /// The totals, and the sums over the leaves, as a statistic to be registered as `zfs/POOL/zio`.
    pub fn kstat(&self) -> Kstat {
        let (totals, leaves) = (self.core.clone(), self.core.clone());
        stats::kstat(
            move |counter| counter(&totals.stats).get(),
            move |count| leaves.snapshot().all_stats().map(|(_, leaf)| count(&leaf.counts())).sum(),
        )
    }

    /// Writes blocks of `bytes` and more as gangs, in `percent` of the cases, to try out what is rare otherwise (OpenZFS:
    /// `metaslab_force_ganging`, `metaslab_force_ganging_pct`).
    pub fn set_forced_ganging(&self, bytes: u64, percent: u32) {
        self.core.ganging.set(bytes, percent);
    }

    /// Changes the parameters of where blocks are placed.
    pub fn set_placing(&self, tunables: PlacingTunables) {
        self.core.placing.set(tunables);
    }

    /// Changes the parameters of every leaf's I/O scheduler; they count from its next decision on.
    pub fn tune_queues(&self, change: impl FnOnce(&mut Tunables)) {
        self.core.leaves.tune(change);
    }

    /// The parameters of the leaves' I/O schedulers.
    pub fn queue_tunables(&self) -> Tunables {
        self.core.leaves.tunables()
    }

    /// Changes how many errors are remembered, and for how many seconds, so that they are not told again (OpenZFS:
    /// `zfs_zevent_retain_max`, `zfs_zevent_retain_expire_secs`).
    pub fn set_event_retention(&self, most: u32, seconds: u32) {
        self.core.leaves.set_retention(most, seconds);
    }

    /// Changes how many events of slow I/Os, of hung I/Os and of wrong checksums are posted in a second, of each leaf.
    pub fn set_event_rates(&self, delay: u32, deadman: u32, checksum: u32) {
        self.core.leaves.set_event_rates(delay, deadman, checksum);
    }

    /// Posts an event for every leaf whose device has had an I/O for longer than `zfs_deadman_ziotime_ms`, and says how many there are;
    /// to be called every `zfs_deadman_checktime_ms`. I/Os are given up where [`crate::DeadmanFailMode`] says so. Of a suspended pool
    /// nothing is told (OpenZFS: `vdev_deadman`, `zio_deadman`).
    pub fn check_deadman(&self) -> usize {
        self.check_deadman_of(self.queue_tunables().deadman_ziotime_ms)
    }

    /// Does the same for I/Os that take longer than `limit_ms` milliseconds.
    pub fn check_deadman_of(&self, limit_ms: u64) -> usize {
        let tunables = self.queue_tunables();
        let (now, limit) = (self.core.exec.now_ns(), limit_ms.saturating_mul(1_000_000));
        if !tunables.deadman_enabled {
            return 0;
        }
        self.core.leaves.look_for_hung();
        if self.is_suspended() {
            // Told enough; but what hangs would keep the pool from being resumed, or given up.
            return self.core.leaves.give_up_older(limit).len();
        }
        let mut hung = 0;
        for (leaf, stats) in self.core.snapshot().all_stats() {
            let Some(age_ns) = stats.oldest_io_ns(now).filter(|age| *age > limit) else { continue };
            hung += 1;
            self.core.tell_hung(leaf, age_ns);
        }
        hung.max(self.core.leaves.give_up_older(limit).len())
    }

    /// Sets the source that tells the schedulers how much data is dirty; the first source counts. It is asked often and must not wait.
    pub fn set_dirty_source(&self, source: DirtySource) {
        self.core.leaves.set_dirty_source(source);
    }

    /// State of the scheduler of the leaf with this guid; None for one without a device.
    pub fn queue_state(&self, leaf: Guid) -> Option<QueueState> {
        self.core.leaves.queue_state(leaf)
    }

    /// Sets what becomes of I/Os that hang; it counts for those that devices get from now on.
    pub fn set_deadman_fail_mode(&self, mode: DeadmanFailMode) {
        self.core.leaves.set_deadman_fail_mode(mode);
    }

    /// Hands an I/O to a device of the leaf past all scheduling, such that it is given up as others are: for labels.
    pub fn hand_to(&self, leaf: Guid, device: &Arc<dyn BlockDevice>, io: DeviceIo) {
        self.core.leaves.hand_to(leaf, device, io);
    }

    /// Adds a handler under a number of the caller's; `frequency` is how often it strikes, of 2^32, and 0 always.
    pub fn inject(&self, id: u64, fault: Fault, frequency: u32) {
        match fault {
            Fault::Leaf(fault) => self.core.leaves.injection().add(id, fault, frequency),
            fault => self.core.faults.add(id, fault, frequency),
        }
    }

    /// True when a handler makes the decryption of a block fail, which is done above.
    pub fn fails_to_decrypt(&self, bp: &BlockPtr, bookmark: &Bookmark) -> bool {
        self.core.faults.strikes_decryption(&self.core.exec, bookmark, bp.object_type())
    }

    /// Says that no key authenticates a block, whose checksum is right (OpenZFS: `FM_EREPORT_ZFS_AUTHENTICATION`).
    pub fn not_authentic(&self, bookmark: &Bookmark) {
        self.core.not_authentic(bookmark);
    }

    /// Removes a handler; false when there is none of that number.
    pub fn clear_injection(&self, id: u64) -> bool {
        let of_leaves = self.core.leaves.injection().remove(id);
        self.core.faults.remove(id) || of_leaves
    }

    /// True when a handler says that the leaf's device is gone, so that it must not be opened.
    pub fn is_injected_gone(&self, leaf: Guid) -> bool {
        self.core.leaves.injection().has_device_fault(leaf, FaultError::Gone)
    }

    /// True when a handler says that the pool cannot do without the leaf.
    pub fn is_injected_needed(&self, leaf: Guid) -> bool {
        self.core.leaves.injection().has_device_fault(leaf, FaultError::Needed)
    }

    /// True when a handler makes what tells whether the leaf's device works say that it does not.
    pub fn is_probe_injected(&self, leaf: Guid) -> bool {
        self.core.leaves.injection().hits_probe(&self.core.exec, leaf)
    }

    /// Fault of a handler that makes the write of these bytes of a label of the leaf fail, or get lost; the offset is within the label.
    pub fn label_fault(&self, leaf: Guid, offset: u64) -> Option<FaultError> {
        self.core.leaves.injection().label_fault(&self.core.exec, leaf, offset)
    }

    /// Nanoseconds for which a handler keeps back what is written to a label of the leaf now; 0 if none does.
    pub fn label_delay_ns(&self, leaf: Guid) -> u64 {
        self.core.leaves.injection().label_delay_ns(&self.core.exec, leaf)
    }

    /// True when a leaf of the vdev is rotational: whoever has background work that can go on anywhere is to ask [`Zio::may_roam`].
    pub fn has_heads(&self, top: VdevId) -> bool {
        roam::has_heads(&self.core.snapshot(), top)
    }

    /// Sets who is called when leaves may have something to do for him. One at a time.
    pub fn set_roaming(&self, roaming: Weak<dyn Roaming>) {
        self.core.leaves.set_roaming(Some(roaming));
    }

    /// Notes that nobody has more background work than is queued on this vdev; on all, where there is none named.
    pub fn end_roaming(&self, vdev: Option<VdevId>) {
        if vdev.is_none() {
            self.core.leaves.set_roaming(None);
        }
        roam::end(&self.core.snapshot(), vdev);
    }

    /// Says whether such work may queue what comes next on this vdev.
    pub fn may_roam(&self, vdev: VdevId, next: Next) -> MayRoam {
        roam::may_roam(&self.core.snapshot(), vdev, next)
    }

    /// True while I/Os wait for [`Zio::resume`], or would.
    pub fn is_suspended(&self) -> bool {
        self.core.suspension.is_on()
    }

    /// Suspends the pool such that nothing more is written to its devices, as far as that was not handed to them, until [`Zio::lift_fence`]; reads
    /// go on. False when that is so already (OpenZFS: `zio_suspend` with `ZIO_SUSPEND_MMP`). Labels are the caller's matter.
    pub fn fence(&self) -> bool {
        self.core.suspension.fence()
    }

    /// True when nothing may be written to the devices.
    pub fn is_fenced(&self) -> bool {
        self.core.suspension.is_fenced()
    }

    /// True when something may be written to the devices now: neither is there a fence, nor is it later than [`Zio::write_limit`].
    pub fn may_write(&self) -> bool {
        !self.core.keeps_writes_back()
    }

    /// Cell of the time in nanoseconds after which nothing is handed to devices any more, as behind a fence, though nobody has said [`Zio::fence`] yet:
    /// whoever does may have stood still as well. 0 for none.
    pub fn write_limit(&self) -> Arc<AtomicU64> {
        self.core.suspension.limit().clone()
    }

    /// Lets the pool be written again; what is held waits for [`Zio::resume`].
    pub fn lift_fence(&self) {
        self.core.suspension.lift_fence();
    }

    /// True while the pool's `failmode` wants new writes refused: it is suspended, and nobody is to wait for it.
    pub fn refuses_writes(&self) -> bool {
        self.is_suspended() && matches!(self.core.snapshot().view.facts.fail_mode, FailMode::Continue | FailMode::Panic)
    }

    /// Tries the held I/Os again (`zpool clear`); not while nothing may be written.
    pub fn resume(&self) {
        if !self.may_write() {
            return;
        }
        let held = self.core.suspension.take();
        if !held.is_empty() {
            tracing::info!("pool '{}' goes on with {} held I/Os", self.core.snapshot().view.facts.name, held.len());
        }
        for io in held {
            match io {
                Held::Read(request, then) => self.read(request, then),
                Held::Write(request, then) => self.write(*request, then),
                Held::Waiter(done) => done.complete(true),
            }
        }
    }

    /// Sets who knows the names of object sets; the first counts. It is asked by completions, and must neither read nor wait.
    pub fn set_names(&self, names: ObjsetNames) {
        let _ = self.core.names.set(names);
    }

    /// The block that the pool was suspended for last, if it was for one.
    pub fn suspended_for(&self) -> Option<ZioError> {
        self.core.suspension.cause()
    }

    /// Number of times that the pool was resumed so far: for [`Zio::suspend_and_wait`], to be asked before what may fail.
    pub fn resumes(&self) -> Resumes {
        self.core.suspension.resumes()
    }

    /// Suspends the pool for somebody who cannot go on because of `why`, and waits; true once it was resumed, and what failed is worth another try:
    /// at once when it was resumed `since` that began. False when the pool is given up, and where nobody could resume it: while it is being opened,
    /// and under an executor with one thread (OpenZFS: `zio_suspend`, `zio_resume_wait`). Only operations wait.
    pub fn suspend_and_wait(&self, since: Resumes, why: Option<ZioError>) -> bool {
        if self.exec().is_inline() {
            return false;
        }
        let (done, wait) = completion();
        match self.core.hold(&self.core.snapshot(), Held::Waiter(done), since, why) {
            Hold::Kept { .. } => {}
            Hold::Outdated(_) => return true,
            Hold::Refused(held) => held.fail(ErrorKind::Suspended),
        }
        wait.wait(self.exec())
    }

    /// As [`Zio::suspend_and_wait`] when so many devices fail to read anything that the pool cannot go on; false at once when they work,
    /// and what failed was the place.
    pub fn wait_if_down(&self, since: Resumes, why: ZioError) -> bool {
        // Devices that are back by now say nothing of how they were.
        !self.exec().is_inline() && (self.resumes() != since || self.is_down() && self.suspend_and_wait(since, Some(why)))
    }

    /// True when devices that the pool cannot do without fail to read their first block (OpenZFS: `vdev_probe`). Waits.
    fn is_down(&self) -> bool {
        let snapshot = self.core.snapshot();
        let leaves = snapshot.open_leaves();
        let probe = |&leaf: &LeafId| LeafOp { leaf, offset: LABEL_START_BYTES, op: DeviceOp::read(PROBE_BYTES) };
        let options = BatchOptions { class: TaskClass::Interrupt, priority: Priority::SyncRead, speculative: true };
        let (done, wait) = completion();
        let ops = leaves.iter().map(probe).collect();
        batch::issue(&self.core, &snapshot, options, ops, move |results| done.complete(results));
        let results = wait.wait(self.exec());
        let fails = |(leaf, result): &(LeafId, LeafResult)| result.is_err() || self.is_probe_injected(snapshot.guid(*leaf));
        let bad = leaves.into_iter().zip(results).filter(fails).map(|(leaf, _)| leaf).collect();
        snapshot.is_lost_without(&bad)
    }

    /// Fails the held I/Os with [`ErrorKind::Suspended`] and holds none from now on, so that a forced export can end. There is
    /// no way back.
    pub fn abandon(&self) {
        self.core.suspension.abandon();
        let held = self.core.suspension.take();
        if !held.is_empty() {
            tracing::error!("pool '{}' is given up with {} held I/Os", self.core.snapshot().view.facts.name, held.len());
        }
        held.into_iter().for_each(|io| io.fail(ErrorKind::Suspended));
    }

    /// Number of times that a user changed the buffer of a direct I/O to this top-level vdev underneath it (OpenZFS:
    /// `vs_dio_verify_errors`, the DIO column of `zpool status -d`).
    pub fn dio_verify_errors(&self, vdev: VdevId) -> u64 {
        self.core.verify_errors.of_vdev(vdev)
    }

    /// Forgets them (`zpool clear`): those of one vdev, or all.
    pub fn clear_dio_verify_errors(&self, vdev: Option<VdevId>) {
        self.core.verify_errors.clear(vdev);
    }

    /// Blocks and bytes of direct I/O of this object (or any of the object set, or any at all) whose buffer a user changed underneath it,
    /// since the pool was opened. `zpool clear` leaves it as it is.
    pub fn changed_buffers(&self, objset: Option<ObjsetId>, object: Option<ObjectId>) -> ChangedBuffers {
        self.core.verify_errors.changed(objset, object)
    }

    /// The parameters of direct I/O.
    pub fn direct_parameters(&self) -> &DirectParameters {
        &self.core.direct
    }
}
