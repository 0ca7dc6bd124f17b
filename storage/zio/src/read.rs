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
use crate::direct::{self, Check};
use crate::engine::{Core, FailedIo, Snapshot};
use crate::inject::FaultError;
use crate::reports::Trouble;
use crate::together::{self, Place};
use crate::verify::{GANG_HEADER_BYTES, block_is_right, check_pointer, decompress, header_order};
use crate::{
    ErrorKind, Landed, LandedThen, Priority, ReadFlags, ReadRequest, ReadThen, ZioError, events, feed, gang, lost_copies, plug, suspend,
    verify, zia,
};
use abd::{Abd, AbdPart};
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use kernels::ByteOrder;
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, Dva};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{LeafId, LeafIo, Part, ReadFailure, ReadJob, ReadMode, ReadOutcome, ReadStep};
use vdev_queue::IoKind;

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
    /// What is done beside: nobody waits for it.
    pub(crate) fn background(&self) -> BatchOptions {
        BatchOptions { class: TaskClass::Background, priority: Priority::Scrub, speculative: false }
    }
    fn options(&self) -> BatchOptions {
        let class = if self.priority.is_background() { TaskClass::Background } else { TaskClass::Interrupt };
        BatchOptions { class, priority: self.priority, speculative: self.flags.speculative }
    }
}

/// A logical read.
pub(crate) fn read(core: &Arc<Core>, request: ReadRequest, then: ReadThen) {
    read_into(core, request, Vec::new(), Box::new(move |result| then(result.map(Landed::into_abd))));
}

/// Logical reads whose leaf I/Os, and then whose repairs, go out in one go.
pub(crate) fn read_together(core: &Arc<Core>, reads: Vec<(ReadRequest, ReadThen)>) {
    let places = together::places(reads.len());
    plug::plugged(|| {
        for ((request, then), place) in reads.into_iter().zip(places) {
            read_as(core, request, Vec::new(), Some(place), Box::new(move |result| then(result.map(Landed::into_abd))));
        }
    });
}

/// A logical read into `target` where that is possible; nowhere in particular when it is empty.
pub(crate) fn read_into(core: &Arc<Core>, request: ReadRequest, target: Vec<AbdPart>, then: LandedThen) {
    read_as(core, request, target, None, then);
}

fn read_as(core: &Arc<Core>, request: ReadRequest, target: Vec<AbdPart>, place: Option<Place>, then: LandedThen) {
    let bp = &request.bp;
    let fail = |kind| Err(ZioError::new(kind, request.bookmark));
    if let Err(kind) = check_pointer(bp) {
        return then(fail(kind));
    }
    let raw = request.flags.raw || request.flags.scrub || request.flags.resilver;
    if bp.is_hole() {
        return then(Ok(Landed::Elsewhere(Abd::zeroed(bp.lsize()))));
    }
    if bp.is_embedded() {
        let payload = Abd::from_slice(&bp.embedded_payload());
        let result = if request.flags.raw { Ok(payload) } else { decompress_embedded(bp, &payload) };
        return then(result.map(Landed::Elsewhere).or_else(fail));
    }
    if bp.is_encrypted() && !raw {
        return then(fail(ErrorKind::Unsupported));
    }
    let snapshot = core.snapshot();
    let spec = CopySpec { bp: *bp, bookmark: request.bookmark, priority: request.priority, flags: request.flags, header: false };
    let (owner, view) = (core.clone(), snapshot.clone());
    let unpacks = !raw && bp.compression() != Compression::OFF;
    let (near, target) = if unpacks || bp.is_gang() { (target, Vec::new()) } else { (Vec::new(), target) };
    let finish = {
        let owner = owner.clone();
        move |result: Result<Landed, ZioError>| match result {
            Ok(landed) => then(Ok(landed)),
            Err(error) => {
                let then: ReadThen = Box::new(move |result| then(result.map(Landed::Elsewhere)));
                suspend::read_failed(&owner, &view, request, then, error);
            }
        }
    };
    let deliver: LandedThen = Box::new(move |result| match result {
        Ok(Landed::Elsewhere(physical)) if !raw => {
            let unpacked = move |result: Result<Landed, ErrorKind>| finish(result.map_err(|kind| ZioError::new(kind, request.bookmark)));
            if owner.injection.block_fault(&owner.exec, &request.bookmark, request.bp.object_type(), None).is_some() {
                return unpacked(Err(ErrorKind::Io));
            }
            zia::decompress(&owner, (&request.bp, &request.bookmark), physical, near, unpacked);
        }
        result => finish(result),
    });
    if bp.is_gang() {
        let deliver = move |result: Result<Abd, ZioError>| deliver(result.map(Landed::Elsewhere));
        gang::read(core, &snapshot, spec, Box::new(deliver));
    } else {
        read_copies_with(core, &snapshot, spec, Extras { target, group: place, feeds: true }, deliver);
    }
}

/// Decompresses into the target when that is one stable part.
pub(crate) fn decompress_into(bp: &BlockPtr, physical: &Abd, mut near: Vec<AbdPart>) -> Result<Landed, ErrorKind> {
    let fits = |part: &AbdPart| part.len() == bp.lsize() && !part.is_unstable();
    if bp.compression() == Compression::OFF || near.len() != 1 || !fits(&near[0]) {
        return decompress(bp, physical).map(Landed::Elsewhere);
    }
    let mut target = near.swap_remove(0);
    verify::decompress_to(bp, physical, &mut target)?;
    Ok(Landed::InPlace(target.freeze()))
}

fn decompress_embedded(bp: &BlockPtr, payload: &Abd) -> Result<Abd, ErrorKind> {
    if bp.compression() == Compression::OFF && payload.len() != bp.lsize() {
        return Err(ErrorKind::Corrupt);
    }
    decompress(bp, payload)
}

/// Reads the physical bytes of one block (or gang header) from the first copy that verifies; a scrub looks at all of them.
pub(crate) fn read_copies(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, then: ReadThen) {
    let then: LandedThen = Box::new(move |result| then(result.map(Landed::into_abd)));
    read_copies_with(core, snapshot, spec, Extras::default(), then);
}

/// What only the read of a whole block has.
#[derive(Default)]
struct Extras {
    /// The caller's memory, used when the first I/Os bring the whole block and it is right.
    target: Vec<AbdPart>,
    /// Repairs go out with those of this group.
    group: Option<Place>,
    /// What leaves lack of it may be written to them.
    feeds: bool,
}

fn read_copies_with(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, extras: Extras, then: LandedThen) {
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
    /// A device reported an error (other than being gone) for the current copy.
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
    /// Parts of the block were read into the caller's memory, and not all were right.
    is_scattered: bool,
    /// When the read began, if a resilver can be fed by it.
    mark: Option<u64>,
    /// What leaves lack of it.
    lacked: Vec<LeafOp>,
}

/// What became of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Not used.
    Nowhere,
    /// The I/Os that are out fill it with the whole block.
    Stable,
    /// The same, and others may write to it.
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
            let Some(top) = tree.top(dva.vdev).filter(|top| top.accepts(dva.offset, length as u64)) else {
                self.lose(dva, ErrorKind::Corrupt);
                continue;
            };
            let birth = self.spec.bp.physical_birth();
            let mode = match self.spec.flags {
                ReadFlags { scrub: true, .. } => ReadMode::Scrub,
                // What every leaf has is not looked at once there is something to repair the others from.
                ReadFlags { resilver: true, .. } if self.good.is_some() && !tree.is_stale(top, birth) => continue,
                ReadFlags { resilver: true, .. } => ReadMode::Resilver,
                _ if self.mark.is_some() && tree.lacks_data_at(&dva, length, birth) => ReadMode::Resilver,
                _ => ReadMode::Normal,
            };
            let (mut job, step) = ReadJob::start(tree, top, (dva.offset, length), birth, mode, &|_| 0);
            if let Some(sum) = self.spec.fletcher4().filter(|_| !self.core.injection.is_set()) {
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

    /// What a simulated fault makes of the copy that is being read.
    fn fault(&self) -> Option<FaultError> {
        let spec = &self.spec;
        self.core.injection.block_fault(&self.core.exec, &spec.bookmark, spec.bp.object_type(), Some(self.next - 1))
    }

    /// As if every device had reported an error.
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
        if self.fate == Fate::Unstable || !zia::reconstructs(&self.core) {
            return self.judge(job, is_injected, |job, verify| job.complete(results, verify));
        }
        match job.to_compute(results) {
            Err(results) => self.judge(job, is_injected, |job, verify| job.complete(results, verify)),
            Ok(rows) => {
                let core = self.core.clone();
                let CopySpec { bp, bookmark, .. } = self.spec;
                zia::reconstruct(&core, &bookmark, &bp, rows, move |computed| {
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
        let spec = self.spec;
        let mut wrong = false;
        let mut is_right = |data: &Abd| {
            let right = !is_injected && spec.is_right(data);
            wrong |= !right;
            right
        };
        let step = next(&mut job, &mut is_right);
        let is_done = matches!(step, ReadStep::Done(_));
        if self.fate == Fate::Unstable && !is_done {
            // The device or the user: nobody knows, and nothing may be computed or healed from it. Again, where no user comes.
            if wrong {
                direct::note_changed(&self.core, &self.snapshot, &spec.bp, &spec.bookmark, Check::Read);
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

    fn lacks(&self, leaf: LeafId) -> bool {
        self.snapshot.view.tree.leaf(leaf).lacks(self.spec.bp.physical_birth())
    }

    fn count_corrupt(&self, leaf: LeafId) {
        if self.spec.flags.speculative {
            return;
        }
        let (stats, now_ns) = (self.snapshot.stats(leaf), self.core.exec.now_ns());
        stats.corrupt();
        let dva = self.spec.bp.dvas().nth(self.next.saturating_sub(1)).unwrap_or_default();
        let class = self.spec.priority.class(IoKind::Read);
        let place = Trouble::Checksum(class, dva.offset, self.spec.length() as u64, self.spec.bookmark);
        let rate = self.core.tuning.checksum_rate.load(Ordering::Relaxed);
        if stats.reports.is_news(place, now_ns, &self.core.retention) && stats.reports.corrupt.allows(now_ns, rate) {
            if !self.thorough() {
                stats.reports.checksum.fetch_add(1, Ordering::Relaxed);
            }
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

    /// Every copy that had to be looked at was: plans what those that could not be read need.
    fn finish(mut self: Box<Self>) {
        let Some(data) = self.good.take() else {
            let error = self.worst.unwrap_or(ZioError::new(ErrorKind::Corrupt, self.spec.bookmark));
            return (self.then)(Err(error));
        };
        if self.lost.is_empty() {
            return self.deliver(data);
        }
        let copies = lost_copies::plan(&self.snapshot.view.tree, &self.lost, &data.slice(0..self.spec.length()));
        let core = self.core.clone();
        let may_leave = zia::may_leave(&self.spec.bookmark, self.spec.bp.level(), self.spec.bp.object_type());
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
            feed::feed(&self.core, &self.snapshot, self.spec, mark, (lacked, is_lent));
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

/// The same bytes in a buffer of their own.
fn copy_of(data: &Abd) -> Abd {
    let mut part = AbdPart::scratch(data.len());
    part.copy_from_abd(data);
    part.freeze()
}

/// `data` followed by zeros up to `length` bytes.
pub(crate) fn pad(data: &Abd, length: usize) -> Abd {
    if data.len() >= length { data.clone() } else { Abd::gang(&[data.clone(), Abd::zeroed(length - data.len())]) }
}

/// Leaf reads whose data columns land in one buffer, so that joining them copies nothing.
pub(crate) fn read_ops(ios: &[LeafIo]) -> Vec<LeafOp> {
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

/// True when the I/Os bring exactly the first `length` bytes of the block, in order.
fn covers(ios: &[LeafIo], length: usize) -> bool {
    let range = |io: Option<&LeafIo>| io.and_then(|io| if let Part::Data(range) = &io.part { Some(range.clone()) } else { None });
    let (first, last) = (range(ios.first()), range(ios.last()));
    adjacent(ios) == ios.len() && first.is_some_and(|range| range.start == 0) && last.is_some_and(|range| range.end == length)
}

/// Leaf reads into consecutive pieces of `target`, which they cover.
fn target_ops(ios: &[LeafIo], target: Vec<AbdPart>) -> Vec<LeafOp> {
    let mut rest = target.into_iter();
    let mut current = rest.next();
    let mut ops = Vec::with_capacity(ios.len());
    for io in ios {
        let mut parts = Vec::with_capacity(1);
        let mut wanted = io.length;
        while let Some(part) = current.take() {
            if part.len() > wanted {
                let (head, tail) = part.split_at(wanted);
                parts.push(head);
                current = Some(tail);
                break;
            }
            wanted -= part.len();
            parts.push(part);
            current = rest.next();
            if wanted == 0 {
                break;
            }
        }
        ops.push(LeafOp { leaf: io.leaf, offset: io.offset, op: DeviceOp::Read(parts) });
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
