//! The physical bytes of one block, or gang header, from the first copy that verifies; what is wrong is repaired.
//!
//! ```text
//! read_copies() ─► next_copy ◄──Lost──┐
//!                    ReadJob ─Issue─► devices ─► ReadJob::complete ─Done─► repair what was wrong ─► then
//! ```

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::core::Core;
use crate::events::Check;
use crate::leaf_ops::{covers, read_ops, target_ops};
use crate::snapshot::Snapshot;
use crate::stage::{Mend, Stage};
use crate::stages::may_leave;
use crate::together::Place;
use crate::verify::{GANG_HEADER_BYTES, block_is_right, header_order};
use crate::{ErrorKind, Landed, LandedThen, Priority, ReadFlags, ReadThen, ZioError, feeding, lost_copies};
use abd::{Abd, AbdPart};
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use kernels::checksum::Salt;
use leaf::{FailedIo, FaultError, WrongBytes};
use ondisk::{BlockPtr, Bookmark, Checksum, Dva};
use std::cell::Cell;
use std::sync::Arc;
use vdev::{LeafId, LeafIo, ReadFailure, ReadJob, ReadMode, ReadOutcome, ReadStep, SITS_OUT};
use vdev_queue::IoKind;

/// Physical bytes wanted, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySpec {
    pub(crate) bp: BlockPtr,
    pub(crate) bookmark: Bookmark,
    pub(crate) priority: Priority,
    pub(crate) flags: ReadFlags,
    /// True when the gang header at the pointer's addresses is wanted, not the block.
    pub(crate) header: bool,
}

impl CopySpec {
    fn length(&self) -> usize {
        if self.header { GANG_HEADER_BYTES } else { self.bp.psize() }
    }
    fn is_right(&self, salt: Option<&Salt>, data: &Abd) -> bool {
        if data.len() < self.length() {
            return false;
        }
        let data = if data.len() == self.length() { data.clone() } else { data.slice(0..self.length()) };
        if self.header { header_order(&self.bp, &data).is_some() } else { block_is_right(salt, &self.bp, &data) }
    }
    /// The checksum, when it is Fletcher-4 over the block's own bytes in this machine's order.
    fn fletcher4(&self) -> Option<[u64; 4]> {
        let bp = &self.bp;
        let plain = !self.header && bp.checksum_kind() == Checksum::FLETCHER_4 && bp.is_little_endian() && !bp.uses_crypt();
        plain.then(|| bp.checksum())
    }
    fn options(&self) -> BatchOptions {
        let class = if self.priority.is_background() { TaskClass::Background } else { TaskClass::Interrupt };
        BatchOptions { class, priority: self.priority, speculative: self.flags.speculative }
    }
}

/// Reads the physical bytes of one block (or gang header) from the first copy that verifies; a scrub looks at all of them.
pub(crate) fn read_copies(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, then: ReadThen) {
    let then: LandedThen = Box::new(move |result| then(result.map(Landed::into_abd)));
    read_copies_with(core, snapshot, spec, Extras::default(), then);
}

/// Options that only the read of a whole block has.
#[derive(Default)]
pub(crate) struct Extras {
    /// The caller's memory, used when the first I/Os bring the whole block and it is right.
    pub(crate) target: Vec<AbdPart>,
    /// Repairs go out with those of this group.
    pub(crate) group: Option<Place>,
    /// True when what leaves lack of the block may be written to them.
    pub(crate) feeds: bool,
}

pub(crate) fn read_copies_with(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, extras: Extras, then: LandedThen) {
    let Extras { target, group, feeds } = extras;
    let mut reader = CopyReader {
        core: core.clone(),
        snapshot: snapshot.clone(),
        spec,
        then,
        next: 0,
        job: None,
        device_error: false,
        good: None,
        lost: Vec::new(),
        worst: None,
        repairs: Vec::new(),
        target,
        group,
        fate: Fate::Nowhere,
        is_scattered: false,
        mark: None,
        lacked: Vec::new(),
        is_of_block: feeds,
    };
    if feeds && !reader.thorough() && !spec.flags.speculative && snapshot.view.facts.writeable {
        reader.mark = core.feed.get().and_then(|feed| feed.mark());
    }
    Box::new(reader).next_copy();
}

/// The state of one [`read_copies`].
struct CopyReader {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    spec: CopySpec,
    then: LandedThen,
    /// The copy to try next.
    next: usize,
    job: Option<ReadJob>,
    /// True when a device reported an error (other than being gone) for the current copy.
    device_error: bool,
    good: Option<Abd>,
    lost: Vec<Dva>,
    worst: Option<ZioError>,
    repairs: Vec<LeafOp>,
    /// The caller's memory until something is read into it.
    target: Vec<AbdPart>,
    /// The reads that this one belongs to.
    group: Option<Place>,
    fate: Fate,
    /// True when parts of the block were read into the caller's memory, and not all were right.
    is_scattered: bool,
    /// Mark of the feed when the read began, if a resilver can be fed by it.
    mark: Option<u64>,
    /// Writes of the parts of the block that leaves lack.
    lacked: Vec<LeafOp>,
    /// True for the read of a whole block, not of a piece of one: a resilver does not look at its bytes.
    is_of_block: bool,
}

/// Fate of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing uses it.
    Nowhere,
    /// The I/Os that are out fill it with the whole block.
    Stable,
    /// The I/Os that are out fill it with the whole block, and others may write to it.
    Unstable,
    /// The block is in it, verified.
    Landed,
}

impl CopyReader {
    fn thorough(&self) -> bool {
        self.spec.flags.scrub || self.spec.flags.resilver
    }

    fn next_copy(mut self: Box<Self>) {
        loop {
            let Some(dva) = self.spec.bp.dvas().nth(self.next) else { return self.finish() };
            self.next += 1;
            self.device_error = false;
            let tree = &self.snapshot.view.tree;
            let length = self.spec.length();
            // A pointer to where the pool has no space is a lie that no device's return makes true: nobody is to wait for one.
            let birth = self.spec.bp.physical_birth();
            let Some(top) = tree.addressed(dva.vdev).filter(|top| top.accepts(dva.offset, length as u64, birth)) else {
                self.lose(dva, ErrorKind::Corrupt);
                continue;
            };
            let mode = match self.spec.flags {
                ReadFlags { scrub: true, .. } => ReadMode::Scrub,
                // What every leaf has is not looked at once there is something to repair the others from.
                ReadFlags { resilver: true, .. } if self.good.is_some() && !tree.is_stale(top, birth) => continue,
                ReadFlags { resilver: true, .. } => ReadMode::Resilver,
                _ if self.mark.is_some() && tree.lacks_data_at(&dva, length, birth) => ReadMode::Resilver,
                _ => ReadMode::Normal,
            };
            let sat_out = Cell::new(false);
            let load = |leaf| self.load(leaf, &sat_out);
            let (mut job, step) = ReadJob::start(tree, top, (dva.offset, length), birth, mode, &load);
            if sat_out.get() {
                self.core.stats.sat_out_reads.bump();
            }
            if let Some(sum) = self.spec.fletcher4().filter(|_| !self.core.has_faults()) {
                job.expect_fletcher4(sum);
            }
            self.job = Some(job);
            return self.begin(step);
        }
    }

    /// Load of a leaf, and whether one sits out: what must be looked at or repaired everywhere is read of all.
    fn load(&self, leaf: LeafId, sat_out: &Cell<bool>) -> u64 {
        if self.thorough() || !self.core.leaves.sits_out(self.snapshot.stats(leaf)) {
            return 0;
        }
        sat_out.set(true);
        SITS_OUT
    }

    /// Stage that may resilver the block beside the devices.
    fn mender(&self, step: &ReadStep) -> Option<(Arc<dyn Stage>, Mend)> {
        let CopySpec { bp, bookmark, flags, header, .. } = &self.spec;
        let is_plain = self.is_of_block && flags.resilver && !flags.scrub && !flags.speculative && !header && bp.dvas().count() == 1;
        let is_offered = is_plain && self.snapshot.view.facts.writeable && may_leave(bookmark, bp.level(), bp.object_type());
        if !is_offered || self.core.has_faults() || !matches!(step, ReadStep::Issue(_)) {
            return None;
        }
        self.spec.fletcher4()?;
        // Rows of dRAID, and of vdevs that got devices, are left to the host: nothing shows yet that a stage lays them out as it does.
        let dva = bp.dvas().next()?;
        self.snapshot.view.tree.top(dva.vdev).filter(|top| top.draid.is_none() && !top.is_expanded())?;
        let stage = self.core.stages.get()?;
        Some((stage, Mend { bp: *bp, mending: self.job.as_ref()?.mending()? }))
    }

    /// Begins with a copy: has it resilvered beside the devices where that can be, else goes on here.
    fn begin(self: Box<Self>, step: ReadStep) {
        let Some((stage, block)) = self.mender(&step) else { return self.step(step) };
        let lacking: Vec<(LeafId, u64)> =
            block.mending.columns.iter().flat_map(|column| column.to.iter().map(|leaf| (*leaf, column.length as u64))).collect();
        let answer = stage.mend(&self.snapshot.view, block);
        answer.then(move |is_done| {
            if !is_done {
                return self.step(step);
            }
            lacking.into_iter().for_each(|(leaf, bytes)| self.snapshot.stats(leaf).repaired(bytes));
            (self.then)(Ok(Landed::Elsewhere(Abd::default())));
        });
    }

    fn step(self: Box<Self>, step: ReadStep) {
        match step {
            ReadStep::Issue(ios) => self.issue(&ios),
            ReadStep::Done(outcome) => self.copy_done(outcome),
            ReadStep::Lost(failure) => self.copy_lost(&failure),
        }
    }

    fn issue(mut self: Box<Self>, ios: &[LeafIo]) {
        let target = std::mem::take(&mut self.target);
        let is_whole = !target.is_empty() && covers(ios, target.iter().map(AbdPart::len).sum());
        self.fate = match is_whole {
            false => Fate::Nowhere,
            true if target.iter().any(AbdPart::is_unstable) => Fate::Unstable,
            true => Fate::Stable,
        };
        let ops = if is_whole { target_ops(ios, target) } else { read_ops(ios) };
        let (core, snapshot, options) = (self.core.clone(), self.snapshot.clone(), self.spec.options());
        let fault = self.fault();
        let places = if fault.is_some() { ios.iter().map(|io| (io.leaf, io.offset, io.length as u64)).collect() } else { Vec::new() };
        batch::issue(&core, &snapshot, options, ops, move |mut results| {
            if fault == Some(FaultError::Io) {
                self.fail_all(places, &mut results);
            }
            self.leaves_done(results, fault == Some(FaultError::Checksum));
        });
    }

    /// Error that a simulated fault gives the copy that is being read.
    fn fault(&self) -> Option<FaultError> {
        let spec = &self.spec;
        self.core.faults.strike(&self.core.exec, &spec.bookmark, spec.bp.object_type(), Some(self.next - 1))
    }

    /// Fails the I/Os as if every device had reported an error.
    fn fail_all(&self, places: Vec<(LeafId, u64, u64)>, results: &mut [LeafResult]) {
        let class = self.spec.priority.class(IoKind::Read);
        for ((leaf, offset, bytes), result) in places.into_iter().zip(results).filter(|(_, result)| result.is_ok()) {
            *result = Err(DeviceError::Io);
            if !self.spec.flags.speculative {
                self.core.leaf_failed(&self.snapshot, leaf, &FailedIo { kind: IoKind::Read, class, offset, bytes }, DeviceError::Io);
            }
        }
    }

    fn leaves_done(mut self: Box<Self>, results: Vec<LeafResult>, is_injected: bool) {
        self.device_error |= results.iter().any(|result| matches!(result, Err(error) if *error != DeviceError::Gone));
        let Some(mut job) = self.job.take() else { return self.finish() };
        let results: Vec<Option<Abd>> = results.into_iter().map(Result::ok).collect();
        if self.fate == Fate::Unstable || !self.core.stages.reconstructs() {
            return self.judge(job, is_injected, |job, verify| job.complete(results, verify));
        }
        match job.to_compute(results) {
            Err(results) => self.judge(job, is_injected, |job, verify| job.complete(results, verify)),
            Ok(rows) => {
                let core = self.core.clone();
                let CopySpec { bp, bookmark, .. } = self.spec;
                core.stages.solve_block(&bookmark, &bp, rows, move |computed| {
                    self.judge(job, is_injected, |job, verify| job.go_on(computed, verify));
                });
            }
        }
    }

    /// Goes on by what `next` says of the block's bytes.
    fn judge(
        mut self: Box<Self>,
        mut job: ReadJob,
        is_injected: bool,
        next: impl FnOnce(&mut ReadJob, &mut dyn FnMut(&Abd) -> bool) -> ReadStep,
    ) {
        let (spec, salt) = (self.spec, self.snapshot.view.facts.salt.as_deref());
        let mut wrong = false;
        let mut is_right = |data: &Abd| {
            let right = !is_injected && spec.is_right(salt, data);
            wrong |= !right;
            right
        };
        let step = next(&mut job, &mut is_right);
        let is_done = matches!(step, ReadStep::Done(_));
        if self.fate == Fate::Unstable && !is_done {
            // The device or the user: nobody knows, and nothing may be computed or healed from it. Again, where no user comes.
            if wrong {
                self.core.buffer_changed(&self.snapshot, &spec.bp, &spec.bookmark, Check::Read);
            }
            let CopyReader { core, snapshot, then, .. } = *self;
            return read_copies_with(&core, &snapshot, spec, Extras::default(), then);
        }
        match self.fate {
            Fate::Nowhere | Fate::Landed => {}
            _ if is_done => self.fate = Fate::Landed,
            _ => self.is_scattered = true,
        }
        self.job = Some(job);
        self.step(step);
    }

    fn copy_done(mut self: Box<Self>, outcome: ReadOutcome) {
        if !outcome.repairs.is_empty() {
            self.note_shadowed();
        }
        for repair in outcome.repairs {
            if repair.corrupt {
                self.count_corrupt(repair.leaf);
            }
            let lacked = self.mark.is_some() && !repair.corrupt && self.lacks(repair.leaf);
            let op = LeafOp { leaf: repair.leaf, offset: repair.offset, op: DeviceOp::Write(repair.data) };
            if lacked { self.lacked.push(op) } else { self.repairs.push(op) }
        }
        self.good.get_or_insert(outcome.data);
        if self.thorough() { self.next_copy() } else { self.finish() }
    }

    fn copy_lost(mut self: Box<Self>, failure: &ReadFailure) {
        for &leaf in &failure.suspects {
            self.count_corrupt(leaf);
        }
        let kind = match (failure.corrupt, self.device_error) {
            (true, _) => ErrorKind::Checksum,
            (false, true) => ErrorKind::Io,
            (false, false) => ErrorKind::NoDevice,
        };
        let dva = self.spec.bp.dvas().nth(self.next - 1);
        if let Some(dva) = dva {
            self.lose(dva, kind);
        }
        self.next_copy();
    }

    /// Notes that something may be written in two places, where its vdev is being expanded.
    fn note_shadowed(&self) {
        let Some(dva) = self.spec.bp.dvas().nth(self.next - 1) else { return };
        let Some(top) = self.snapshot.view.tree.top(dva.vdev).filter(|top| top.widths.reflow.is_some()) else { return };
        let asize = top.asize_at(self.spec.length() as u64, self.spec.bp.physical_birth());
        self.core.shadowed.note(dva.vdev, dva.offset..dva.offset + asize);
    }

    fn lacks(&self, leaf: LeafId) -> bool {
        self.snapshot.view.tree.leaf(leaf).lacks(self.spec.bp.physical_birth())
    }

    fn count_corrupt(&self, leaf: LeafId) {
        if self.spec.flags.speculative {
            return;
        }
        let bookmark = &self.spec.bookmark;
        let dva = self.spec.bp.dvas().nth(self.next.saturating_sub(1)).unwrap_or_default();
        let class = self.spec.priority.class(IoKind::Read);
        let what = [bookmark.objset.0, bookmark.object.0, u64::from(bookmark.level.0), bookmark.block.0];
        let place = WrongBytes { class, offset: dva.offset, bytes: self.spec.length() as u64, what };
        self.core.leaf_lied(&self.snapshot, leaf, (place, bookmark), !self.thorough());
    }

    fn lose(&mut self, dva: Dva, kind: ErrorKind) {
        self.lost.push(dva);
        // OpenZFS's order of severity (`zio_worst_error`): no device, then checksum, then I/O error.
        let rank = |kind| match kind {
            ErrorKind::Io => 3,
            ErrorKind::Checksum => 2,
            ErrorKind::NoDevice => 1,
            _ => 0,
        };
        if self.worst.is_none_or(|worst| rank(kind) > rank(worst.kind)) {
            self.worst = Some(ZioError::new(kind, self.spec.bookmark).at(dva));
        }
    }

    /// Every copy that had to be looked at was: plans what those that could not be read need.
    fn finish(mut self: Box<Self>) {
        let Some(data) = self.good.take() else {
            let error = self.worst.unwrap_or(ZioError::new(ErrorKind::Corrupt, self.spec.bookmark));
            return (self.then)(Err(error));
        };
        if self.lost.is_empty() {
            return self.deliver(data);
        }
        let (core, birth) = (self.core.clone(), self.spec.bp.physical_birth());
        let copies = lost_copies::plan((&core, &self.snapshot.view.tree), &self.lost, birth, &data.slice(0..self.spec.length()));
        let may_leave = may_leave(&self.spec.bookmark, self.spec.bp.level(), self.spec.bp.object_type());
        lost_copies::rewrite(&core, copies, may_leave, move |ops| {
            self.repairs.extend(ops);
            self.deliver(data);
        });
    }

    /// Repairs, then delivers.
    fn deliver(mut self: Box<Self>, data: Abd) {
        let length = self.spec.length();
        let data = if data.len() == length { data } else { data.slice(0..length) };
        // Memory that others write to may hold something else by now.
        if let Some(mark) = self.mark.filter(|_| !data.is_unstable()) {
            let lacked = std::mem::take(&mut self.lacked);
            let is_lent = self.is_scattered || self.fate == Fate::Landed;
            feeding::feed(&self.core, &self.snapshot, &self.spec.bp, mark, (lacked, is_lent));
        }
        let data = match self.fate {
            Fate::Landed => Landed::InPlace(data),
            // Columns that were right are still in the caller's memory, which he gets back.
            _ if self.is_scattered => Landed::Elsewhere(copy_of(&data)),
            _ => Landed::Elsewhere(data),
        };
        if self.repairs.is_empty() || !self.snapshot.view.facts.writeable {
            return (self.then)(Ok(data));
        }
        let CopyReader { core, snapshot, spec, then, repairs, group, .. } = *self;
        let view = snapshot.clone();
        let healed: Vec<_> = repairs.iter().map(|repair| (repair.leaf, repair.op.length_bytes())).collect();
        let thorough = spec.flags.scrub || spec.flags.resilver;
        let owner = core.clone();
        let written = move |results: Vec<LeafResult>| {
            for ((leaf, bytes), result) in healed.into_iter().zip(results) {
                if result.is_ok() {
                    view.stats(leaf).repaired(bytes);
                } else if thorough {
                    // The scan must not end in the belief that the leaf has it (OpenZFS: `DTL_SCRUB`).
                    owner.note_missing(&view, leaf, spec.bp.physical_birth());
                }
            }
            then(Ok(data));
        };
        match group {
            Some(group) => group.hold(Box::new(move || batch::issue(&core, &snapshot, spec.options(), repairs, written))),
            None => batch::issue(&core, &snapshot, spec.options(), repairs, written),
        }
    }
}

/// Copies the same bytes to a buffer of their own.
fn copy_of(data: &Abd) -> Abd {
    let mut part = AbdPart::scratch(data.len());
    part.copy_from_abd(data);
    part.freeze()
}
