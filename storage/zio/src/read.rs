//! Reading: from a block pointer to logical bytes.
//!
//! ```text
//! read() ─hole, embedded─► then
//!   └─ gang? ── gang::read() ──┐
//!   └─ read_copies() ──────────┴─► decompress ─► then
//!        next copy ◄──Lost──┐
//!        ReadJob ─Issue─► devices ─► ReadJob::complete ─Done─► repair what was wrong ─► then
//! ```

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::engine::{Core, Snapshot};
use crate::verify::{GANG_HEADER_BYTES, block_is_right, check_pointer, decompress, header_order};
use crate::{ErrorKind, Priority, ReadFlags, ReadRequest, ReadThen, ZioError, events, gang, suspend};
use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use kernels::ByteOrder;
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, Dva};
use std::sync::Arc;
use vdev::{LeafIo, Part, ReadFailure, ReadJob, ReadMode, ReadOutcome, ReadStep, WritePlan};

/// Physical bytes wanted, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySpec {
    pub(crate) bp: BlockPtr,
    pub(crate) bookmark: Bookmark,
    pub(crate) priority: Priority,
    pub(crate) flags: ReadFlags,
    /// The gang header at the pointer's addresses is wanted, not the block.
    pub(crate) header: bool,
}

impl CopySpec {
    fn length(&self) -> usize {
        if self.header { GANG_HEADER_BYTES } else { self.bp.psize() }
    }
    fn is_right(&self, data: &Abd) -> bool {
        if data.len() < self.length() {
            return false;
        }
        let data = if data.len() == self.length() { data.clone() } else { data.slice(0..self.length()) };
        if self.header { header_order(&self.bp, &data).is_some() } else { block_is_right(&self.bp, &data) }
    }
    /// The checksum, when it is Fletcher-4 over the block's own bytes in this machine's order.
    fn fletcher4(&self) -> Option<[u64; 4]> {
        let bp = &self.bp;
        let plain = !self.header && bp.checksum_kind() == Checksum::FLETCHER_4 && bp.is_little_endian() && !bp.uses_crypt();
        plain.then(|| bp.checksum())
    }
    fn options(&self) -> BatchOptions {
        let class = if self.priority == Priority::Scrub { TaskClass::Background } else { TaskClass::Interrupt };
        BatchOptions { class, speculative: self.flags.speculative }
    }
}

/// A logical read.
pub(crate) fn read(core: &Arc<Core>, request: ReadRequest, then: ReadThen) {
    let bp = &request.bp;
    if let Err(kind) = check_pointer(bp) {
        return then(Err(ZioError::new(kind, request.bookmark)));
    }
    let raw = request.flags.raw || request.flags.scrub || request.flags.resilver;
    if bp.is_hole() {
        return then(Ok(Abd::zeroed(bp.lsize())));
    }
    if bp.is_embedded() {
        let payload = Abd::from_slice(&bp.embedded_payload());
        let result = if request.flags.raw { Ok(payload) } else { decompress_embedded(bp, &payload) };
        return then(result.map_err(|kind| ZioError::new(kind, request.bookmark)));
    }
    if bp.is_encrypted() && !raw {
        return then(Err(ZioError::new(ErrorKind::Unsupported, request.bookmark)));
    }
    let snapshot = core.snapshot();
    let spec = CopySpec { bp: *bp, bookmark: request.bookmark, priority: request.priority, flags: request.flags, header: false };
    let (owner, view) = (core.clone(), snapshot.clone());
    let deliver: ReadThen = Box::new(move |result| {
        let result = result.and_then(|physical| {
            if raw { Ok(physical) } else { decompress(&request.bp, &physical).map_err(|kind| ZioError::new(kind, request.bookmark)) }
        });
        match result {
            Ok(data) => then(Ok(data)),
            Err(error) => suspend::read_failed(&owner, &view, request, then, error),
        }
    });
    if bp.is_gang() { gang::read(core, &snapshot, spec, deliver) } else { read_copies(core, &snapshot, spec, deliver) }
}

fn decompress_embedded(bp: &BlockPtr, payload: &Abd) -> Result<Abd, ErrorKind> {
    if bp.compression() == Compression::OFF && payload.len() != bp.lsize() {
        return Err(ErrorKind::Corrupt);
    }
    decompress(bp, payload)
}

/// Reads the physical bytes of one block (or gang header) from the first copy that verifies; a scrub looks at all of them.
pub(crate) fn read_copies(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, then: ReadThen) {
    let reader = CopyReader {
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
    };
    Box::new(reader).next_copy();
}

/// The state of one [`read_copies`].
struct CopyReader {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    spec: CopySpec,
    then: ReadThen,
    /// The copy to try next.
    next: usize,
    job: Option<ReadJob>,
    /// A device reported an error (other than being gone) for the current copy.
    device_error: bool,
    good: Option<Abd>,
    lost: Vec<Dva>,
    worst: Option<ZioError>,
    repairs: Vec<LeafOp>,
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
            let Some(top) = tree.top(dva.vdev) else {
                self.lose(dva, ErrorKind::NoDevice);
                continue;
            };
            let fits = dva.offset.checked_add(top.asize_for_psize(length as u64)).is_some_and(|end| end <= top.asize);
            if !fits || dva.offset & ((1 << top.ashift) - 1) != 0 {
                self.lose(dva, ErrorKind::Corrupt);
                continue;
            }
            let mode = if self.thorough() { ReadMode::Scrub } else { ReadMode::Normal };
            let birth = self.spec.bp.physical_birth();
            let (mut job, step) = ReadJob::start(tree, top, (dva.offset, length), birth, mode, &|_| 0);
            if let Some(sum) = self.spec.fletcher4() {
                job.expect_fletcher4(sum);
            }
            self.job = Some(job);
            return self.step(step);
        }
    }

    fn step(self: Box<Self>, step: ReadStep) {
        match step {
            ReadStep::Issue(ios) => self.issue(&ios),
            ReadStep::Done(outcome) => self.copy_done(outcome),
            ReadStep::Lost(failure) => self.copy_lost(&failure),
        }
    }

    fn issue(self: Box<Self>, ios: &[LeafIo]) {
        let ops = read_ops(ios);
        let (core, snapshot, options) = (self.core.clone(), self.snapshot.clone(), self.spec.options());
        batch::issue(&core, &snapshot, options, ops, move |results| self.leaves_done(results));
    }

    fn leaves_done(mut self: Box<Self>, results: Vec<LeafResult>) {
        self.device_error |= results.iter().any(|result| matches!(result, Err(error) if *error != DeviceError::Gone));
        let Some(mut job) = self.job.take() else { return self.finish() };
        let spec = self.spec;
        let step = job.complete(results.into_iter().map(Result::ok).collect(), &mut |data| spec.is_right(data));
        self.job = Some(job);
        self.step(step);
    }

    fn copy_done(mut self: Box<Self>, outcome: ReadOutcome) {
        for repair in outcome.repairs {
            if repair.corrupt {
                self.count_corrupt(repair.leaf);
            }
            self.repairs.push(LeafOp { leaf: repair.leaf, offset: repair.offset, op: DeviceOp::Write(repair.data) });
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

    fn count_corrupt(&self, leaf: vdev::LeafId) {
        if !self.spec.flags.speculative {
            self.snapshot.stats(leaf).corrupt();
            self.core.events.event(events::checksum(&self.snapshot, leaf, &self.spec.bookmark));
        }
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

    /// Every copy that had to be looked at was: repair, then deliver.
    fn finish(mut self: Box<Self>) {
        let Some(data) = self.good.take() else {
            let error = self.worst.unwrap_or(ZioError::new(ErrorKind::Corrupt, self.spec.bookmark));
            return (self.then)(Err(error));
        };
        self.plan_lost_copies(&data);
        let length = self.spec.length();
        let data = if data.len() == length { data } else { data.slice(0..length) };
        if self.repairs.is_empty() || !self.snapshot.view.facts.writeable {
            return (self.then)(Ok(data));
        }
        let CopyReader { core, snapshot, spec, then, repairs, .. } = *self;
        let view = snapshot.clone();
        let healed: Vec<_> = repairs.iter().map(|repair| (repair.leaf, repair.op.length_bytes())).collect();
        batch::issue(&core, &snapshot, spec.options(), repairs, move |results| {
            for ((leaf, bytes), result) in healed.into_iter().zip(results) {
                if result.is_ok() {
                    view.stats(leaf).repaired(bytes);
                }
            }
            then(Ok(data));
        });
    }

    /// Rewrites whole copies that could not be read, from the one that could.
    fn plan_lost_copies(&mut self, data: &Abd) {
        let tree = &self.snapshot.view.tree;
        for dva in &self.lost {
            let Some(top) = tree.top(dva.vdev) else { continue };
            let length = self.spec.length();
            let fits = dva.offset.checked_add(top.asize_for_psize(length as u64)).is_some_and(|end| end <= top.asize);
            if !fits || dva.offset & ((1 << top.ashift) - 1) != 0 {
                continue;
            }
            let plan = WritePlan::new(tree, top, dva.offset, length);
            let padded = pad(&data.slice(0..length), plan.length);
            let parity = plan.parity(&padded);
            self.repairs.extend(plan.ios.iter().map(|io| {
                let op = DeviceOp::Write(plan.payload(io, &padded, &parity));
                LeafOp { leaf: io.leaf, offset: io.offset, op }
            }));
        }
    }
}

/// `data` followed by zeros up to `length` bytes.
pub(crate) fn pad(data: &Abd, length: usize) -> Abd {
    if data.len() >= length { data.clone() } else { Abd::gang(&[data.clone(), Abd::zeroed(length - data.len())]) }
}

/// Leaf reads whose data columns land in one buffer, so that joining them copies nothing.
fn read_ops(ios: &[LeafIo]) -> Vec<LeafOp> {
    let mut ops = Vec::with_capacity(ios.len());
    let mut rest = ios;
    while let Some(first) = rest.first() {
        let run = adjacent(rest);
        if run == 1 {
            ops.push(LeafOp { leaf: first.leaf, offset: first.offset, op: DeviceOp::read(first.length) });
        } else {
            let lengths: Vec<usize> = rest[..run].iter().map(|io| io.length).collect();
            for (io, part) in rest[..run].iter().zip(Abd::scratch_parts(&lengths)) {
                ops.push(LeafOp { leaf: io.leaf, offset: io.offset, op: DeviceOp::Read(vec![part]) });
            }
        }
        rest = &rest[run..];
    }
    ops
}

/// How many of the first I/Os carry consecutive parts of the block.
fn adjacent(ios: &[LeafIo]) -> usize {
    let ends = |io: &LeafIo| if let Part::Data(range) = &io.part { Some(range.clone()) } else { None };
    let mut count = 1;
    let mut end = ends(&ios[0]).map(|range| range.end);
    while let (Some(position), Some(range)) = (end, ios.get(count).and_then(ends)) {
        if range.start != position {
            break;
        }
        end = Some(range.end);
        count += 1;
    }
    count
}

/// The block pointers in a verified gang header.
pub(crate) fn header_pointers(bp: &BlockPtr, header: &Abd) -> Option<[BlockPtr; 3]> {
    let order = header_order(bp, header)?;
    let header = header.to_contiguous();
    let bytes = header.as_contiguous()?;
    let mut pointers = [BlockPtr::HOLE; 3];
    for (pointer, raw) in pointers.iter_mut().zip(bytes.as_chunks::<{ BlockPtr::BYTES }>().0) {
        *pointer = BlockPtr::decode(raw, order == ByteOrder::Little);
    }
    Some(pointers)
}
