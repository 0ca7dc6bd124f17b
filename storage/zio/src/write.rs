//! Writing: from logical bytes to a block pointer.
//!
//! ```text
//! write() ─job─► compress ─hole, embedded─► then
//!                  ├─the same as before──► then
//!                  ├─stored already (crate::dedup)─► then
//!                  └─► address (the block's own, a new one, or a gang) ─► parity ─► store: checksum ─► devices ─► judge ─► then
//!                                                                ▲                                        │ lost
//!                                                                └── once more, elsewhere ◄───────────────┤
//!                                                                     held until resume ◄─────────────────┘
//! ```
//! Every block takes this way, whoever computes its stages ([`crate::stage`]); what a stage gives back begins again in software.

use crate::copies::CopySpec;
use crate::core::Core;
use crate::dedup::{Asked, Dedup, Stored, Verdict};
use crate::direct;
use crate::events::Check;
use crate::gang::GangTree;
use crate::protect::protect;
use crate::snapshot::Snapshot;
use crate::software::Software;
use crate::stage::{Claims, FirstRound, Made, Over, Physical, Ready, SecondRound, Shape};
use crate::store::{COPIES_MAX, MadeParity, Placement, Store, hint, plan, write_all};
use crate::suspend::{Held, Hold, Resumes, may_recover};
use crate::transform::{may_repeat, rewrites};
use crate::verify::truncated;
use crate::{ErrorKind, ReadFlags, ReadRequest, WriteRequest, WriteThen, ZioError, gang, gang_write, read};
use abd::Abd;
use crypt::Guard;
use exec::TaskClass;
use metaslab::{AllocRequest, Aside};
use ondisk::ddt::DdtKey;
use ondisk::{BLOCK_BYTES_MAX, BlockPtr, Checksum, Compression, Dva, SECTOR_BYTES};
use std::sync::Arc;
use vdev::LeafId;

/// Writes the logical bytes of a block.
pub(crate) fn write(core: &Arc<Core>, request: WriteRequest, then: WriteThen) {
    let owner = core.clone();
    core.exec.spawn(TaskClass::Write, Box::new(move || run(&owner, request, then, false)));
}

/// Writes blocks in one job, whose neighbours on a device become one request.
pub(crate) fn write_together(core: &Arc<Core>, writes: Vec<(WriteRequest, WriteThen)>) {
    let owner = core.clone();
    let job = move || leaf::plugged(|| writes.into_iter().for_each(|(request, then)| run(&owner, request, then, false)));
    core.exec.spawn(TaskClass::Write, Box::new(job));
}

/// A logical write whose first steps happen here.
pub(crate) fn write_here(core: &Arc<Core>, request: WriteRequest, then: WriteThen) {
    run(core, request, then, false);
}

fn refuse(snapshot: &Snapshot, request: &WriteRequest) -> Result<(), ErrorKind> {
    let length = request.data.len();
    if !snapshot.view.facts.writeable {
        return Err(ErrorKind::ReadOnly);
    }
    if length == 0 || length > BLOCK_BYTES_MAX || !length.is_multiple_of(SECTOR_BYTES) || !(1..=COPIES_MAX).contains(&request.copies) {
        return Err(ErrorKind::Corrupt);
    }
    let embedded = matches!(request.checksum, Checksum::LABEL | Checksum::GANG_HEADER | Checksum::ZILOG | Checksum::ZILOG2);
    if embedded || !snapshot.view.facts.computes(request.checksum) {
        return Err(ErrorKind::Unsupported);
    }
    Ok(())
}

fn run(core: &Arc<Core>, request: WriteRequest, then: WriteThen, again: bool) {
    let since = core.suspension.resumes();
    let snapshot = core.snapshot();
    if let Err(kind) = refuse(&snapshot, &request) {
        return fail(core, &request, then, kind);
    }
    if core.keeps_writes_back() && !request.can_fail {
        let why = ZioError::new(ErrorKind::Suspended, request.bookmark);
        return hold(core, (&snapshot, since), (request, then), (None, why));
    }
    // A checksum by which blocks are found is the host's own.
    let round: Box<dyn FirstRound> =
        if request.dedup == Dedup::Off { core.stages.write(&snapshot.view, &request) } else { Box::new(Software) };
    Block { core: core.clone(), snapshot, since, request, then, again }.compress(round);
}

/// Holds a write because of the first of these; tries it again when the pool was resumed since it began, and fails it with the second when nothing is
/// held.
fn hold(
    core: &Arc<Core>,
    (snapshot, since): (&Snapshot, Resumes),
    (request, then): (WriteRequest, WriteThen),
    (why, refusal): (Option<ZioError>, ZioError),
) {
    match core.hold(snapshot, Held::Write(Box::new(request), then), since, why) {
        Hold::Kept { .. } => {}
        Hold::Outdated(Held::Write(request, then)) => write(core, *request, then),
        Hold::Outdated(held) | Hold::Refused(held) => {
            core.stats.write_failures.bump();
            held.fail_with(refusal);
        }
    }
}

fn fail(core: &Core, request: &WriteRequest, then: WriteThen, kind: ErrorKind) {
    core.stats.write_failures.bump();
    then(Err(ZioError::new(kind, request.bookmark)));
}

/// Pointer of a block that the request's txg writes, without protection.
fn pointer(request: &WriteRequest, (psize, compression): (usize, Compression), dvas: &[Dva; 3], sum: [u64; 4]) -> BlockPtr {
    let mut bp = BlockPtr::HOLE;
    bp.set_lsize(request.lsize());
    bp.set_psize(psize);
    bp.set_compression(compression);
    bp.set_checksum_kind(request.checksum);
    bp.set_object_type(request.object_type);
    bp.set_level(request.level);
    bp.set_little_endian(true);
    bp.set_birth(request.txg, request.txg);
    bp.set_fill(request.fill);
    bp.set_checksum(sum);
    for (index, dva) in dvas.iter().enumerate() {
        bp.set_dva(index, *dva);
    }
    bp
}

/// A write with its original bytes.
struct Block {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    /// Resumes of the pool before it got its snapshot.
    since: Resumes,
    request: WriteRequest,
    then: WriteThen,
    again: bool,
}

impl Block {
    /// Has the stage make physical bytes.
    fn compress(mut self, round: Box<dyn FirstRound>) {
        if self.request.data.is_unstable() && !(round.looks_once() && direct::can_stay_unstable(&self.request)) {
            self.request.data = self.request.data.to_stable();
        }
        round.compress(&self.snapshot.view, &self.request).then(move |shape| self.shaped(shape));
    }

    fn shaped(self, shape: Shape) {
        match shape {
            Shape::Again => self.compress(Box::new(Software)),
            Shape::Failed(kind) => fail(&self.core, &self.request, self.then, kind),
            Shape::Hole(bp) => {
                self.core.stats.hole_writes.bump();
                (self.then)(Ok(bp));
            }
            Shape::Embedded(bp) => {
                self.core.stats.embedded_writes.bump();
                (self.then)(Ok(bp));
            }
            Shape::Physical(made) if self.is_looked_up(&made) => self.look_up(made),
            Shape::Physical(made) => {
                let sum = self.sum_to_compare(&made);
                if sum.is_some_and(|sum| sum == self.request.previous.checksum()) {
                    self.core.stats.nop_writes.bump();
                    return (self.then)(Ok(self.request.previous));
                }
                self.go_on(made, sum);
            }
        }
    }

    /// Goes on with a block that is to be written.
    fn go_on(self, made: Physical, sum: Option<[u64; 4]>) {
        let Physical { data, psize, compression, round } = made;
        let (data, guard) = match protect(&self.request, data.unwrap_or_default()) {
            Ok(protected) => protected,
            Err(kind) => return fail(&self.core, &self.request, self.then, kind),
        };
        let job = Job { block: self, data, psize, compression, sum, guard, parity: Vec::new(), claims: None };
        job.address(round);
    }

    /// True for a block of which somebody may have an equal one.
    fn is_looked_up(&self, made: &Physical) -> bool {
        let is_wanted = matches!(self.request.dedup, Dedup::On | Dedup::Verify) && self.request.seal.is_none();
        is_wanted && made.data.is_some() && made.round.is_hosts()
    }

    /// Asks whether an equal block is stored.
    fn look_up(self, made: Physical) {
        let Some(tables) = self.core.dedup.get().cloned() else { return self.go_on(made, None) };
        let sum = made.data.as_ref().and_then(|data| self.snapshot.view.facts.sum_of(self.request.checksum, data).ok());
        let Some(sum) = sum else { return fail(&self.core, &self.request, self.then, ErrorKind::Unsupported) };
        let WriteRequest { txg, checksum, copies, .. } = self.request;
        let key = DdtKey::new(sum, (self.request.lsize(), made.psize), made.compression);
        let exec = self.core.exec.clone();
        // Whoever answers has others to answer.
        let judged = move |verdict| exec.spawn(TaskClass::Write, Box::new(move || self.judged(made, sum, verdict)));
        tables.look_up(Asked { txg, checksum, key, copies }, Box::new(judged));
    }

    fn judged(mut self, made: Physical, sum: [u64; 4], verdict: Verdict) {
        match verdict {
            Verdict::Plain => {
                self.request.dedup = Dedup::Off;
                self.go_on(made, Some(sum));
            }
            Verdict::List(listed) => {
                self.request.dedup = Dedup::Listed;
                let then = self.then;
                self.then = Box::new(move |result: Result<BlockPtr, ZioError>| {
                    let is_listed = listed(result.as_ref().ok().copied());
                    then(result.map(|mut bp| {
                        bp.set_dedup(is_listed);
                        bp
                    }));
                });
                self.go_on(made, Some(sum));
            }
            Verdict::Share(stored) => self.share(made, sum, &stored),
        }
    }

    /// Has the block be one that is stored, if its bytes are the same.
    fn share(self, made: Physical, sum: [u64; 4], stored: &Stored) {
        let mut bp = pointer(&self.request, (made.psize, made.compression), &stored.dvas, sum);
        bp.set_birth(self.request.txg, stored.birth);
        bp.set_dedup(true);
        if self.request.dedup != Dedup::Verify {
            return self.shared(&bp);
        }
        let flags = ReadFlags { raw: true, ..ReadFlags::default() };
        let request = ReadRequest { flags, ..ReadRequest::new(bp, self.request.bookmark) };
        let core = self.core.clone();
        let compared = move |result: Result<Abd, ZioError>| {
            let is_same = matches!((&result, &made.data), (Ok(stored), Some(data)) if stored == data);
            if is_same { self.shared(&bp) } else { self.not_shared(made, sum, &bp) }
        };
        read::read(&core, request, Box::new(compared));
    }

    /// The block is one that is stored. The one that its parent refers to since this txg is referenced already.
    fn shared(self, bp: &BlockPtr) {
        let previous = &self.request.previous;
        let is_counted = previous.is_dedup() && previous.birth() == bp.birth() && previous.dva(0) == bp.dva(0);
        if let (true, Some(tables)) = (is_counted, self.core.dedup.get()) {
            tables.take_back(self.request.txg, bp);
        }
        self.core.stats.dedup_writes.bump();
        (self.then)(Ok(*bp));
    }

    /// Nobody can say that the block is the one that is stored (OpenZFS: `zio_ddt_collision`).
    fn not_shared(mut self, made: Physical, sum: [u64; 4], bp: &BlockPtr) {
        if let Some(tables) = self.core.dedup.get() {
            tables.take_back(self.request.txg, bp);
        }
        self.request.dedup = Dedup::Off;
        self.go_on(made, Some(sum));
    }

    /// Checksum of a block that may be the one that it replaces, which was made on the host: to be compared with that one's. What is on a vdev that was
    /// removed is written anew, and its place there forgotten one day.
    fn sum_to_compare(&self, made: &Physical) -> Option<[u64; 4]> {
        if !made.round.is_hosts() || !may_repeat(&self.request, (made.psize, made.compression)) {
            return None;
        }
        let tree = &self.snapshot.view.tree;
        if self.request.previous.dvas().any(|dva| tree.top(dva.vdev).is_none()) {
            return None;
        }
        self.snapshot.view.facts.sum_of(self.request.checksum, made.data.as_ref()?).ok()
    }

    /// Gives space back that nothing was written to, or nothing of use.
    fn unalloc(&self, allocated: &[Dva]) {
        for dva in allocated {
            self.snapshot.view.allocator.unalloc(self.request.txg, dva);
        }
    }
}

/// A block whose physical size is known.
struct Job {
    block: Block,
    /// The physical bytes; none yet while only a stage has them.
    data: Abd,
    /// Length of the physical bytes.
    psize: usize,
    compression: Compression,
    /// Checksum of the physical bytes, where it was computed already.
    sum: Option<[u64; 4]>,
    /// Marks of a block of an encrypted dataset.
    guard: Option<Guard>,
    /// Parity columns that a stage made, by address.
    parity: Vec<(Dva, Vec<Abd>)>,
    /// Claims of a stage about the block.
    claims: Option<Box<dyn Claims>>,
}

impl Job {
    /// Gives the block an address, its own or a new one, and goes on with what needs it.
    fn address(self, round: Box<dyn SecondRound>) {
        let previous = self.block.request.previous;
        if !rewrites(&self.block.request, self.psize) {
            return match self.allocate() {
                Some(dvas) => {
                    let allocated = dvas.iter().copied().filter(|dva| !dva.is_empty()).collect();
                    self.parity(round, dvas, allocated);
                }
                None => round.retrieve().then(move |made| self.gang(made)),
            };
        }
        // A stage that writes there by itself, and does not end in time, could not be got out of the way.
        round.retrieve().then(move |made| if previous.is_gang() { self.rewrite_gang(made) } else { self.rewrite(made) });
    }

    /// Room for the block in one piece.
    fn allocate(&self) -> Option<[Dva; 3]> {
        let Block { core, snapshot, request, .. } = &self.block;
        let psize = self.psize as u64;
        if core.ganging.strikes(psize, || core.exec.random_u64()) {
            return None;
        }
        let wanted = AllocRequest { psize, copies: request.copies, txg: request.txg, hint: hint(&request.bookmark) };
        let preference = core.placing.preference(request, self.psize);
        snapshot.view.allocator.alloc_preferring(preference, &wanted).ok()
    }

    /// Has the stage make what needs the address.
    fn parity(self, round: Box<dyn SecondRound>, dvas: [Dva; 3], allocated: Vec<Dva>) {
        round.parity(&self.block.snapshot.view, &dvas).then(move |made| match made {
            Made::Written { sum, skipped } => self.written(&dvas, sum, &skipped),
            Made::Astray(over) => self.elsewhere(&allocated, over),
            made => {
                if let Some((job, allocated)) = self.take(made, allocated) {
                    let stores = vec![Store { data: job.data.clone(), dvas }];
                    job.store(Placement { dvas, stores, allocated });
                }
            }
        });
    }

    /// Takes over what a stage made; None when the block begins again.
    fn take(mut self, made: Made, allocated: Vec<Dva>) -> Option<(Job, Vec<Dva>)> {
        let Made::Ready(Ready { data, parity, claims }) = made else {
            self.restart(&allocated);
            return None;
        };
        if let Some(data) = data {
            self.data = data;
        }
        debug_assert_eq!(self.data.len(), self.psize, "the bytes are on the host");
        (self.parity, self.claims) = (parity, claims);
        Some((self, allocated))
    }

    /// Begins again from the original, in software.
    fn restart(self, allocated: &[Dva]) {
        self.block.unalloc(allocated);
        self.block.compress(Box::new(Software));
    }

    /// Begins again elsewhere. What it was given stays with the stage, which may still write there.
    fn elsewhere(self, allocated: &[Dva], over: Over) {
        let Block { snapshot, request, .. } = &self.block;
        let allocator = &snapshot.view.allocator;
        let aside: Vec<Aside> = allocated.iter().filter_map(|dva| allocator.unalloc_aside(request.txg, dva)).collect();
        over(Box::new(move || drop(aside)));
        self.block.compress(Box::new(Software));
    }

    /// There is no room in one piece.
    fn gang(self, made: Made) {
        let Some((mut job, _)) = self.take(made, Vec::new()) else { return };
        // Members have sums of their own: all must be of the same bytes.
        job.make_stable();
        let Block { core, snapshot, request, .. } = &job.block;
        match gang_write::place(&snapshot.view, request, core.placing.preference(request, job.psize), &job.data) {
            Ok(placement) => {
                core.stats.gang_writes.bump();
                job.store(placement);
            }
            Err(kind) => job.fail(kind),
        }
    }

    /// Writes the block where it is already.
    fn rewrite(self, made: Made) {
        let Some((job, allocated)) = self.take(made, Vec::new()) else { return };
        job.block.core.stats.rewrites.bump();
        let dvas = job.block.request.previous.addresses();
        let stores = vec![Store { data: job.data.clone(), dvas }];
        job.store(Placement { dvas, stores, allocated });
    }

    /// The gang that the block is: its addresses are in its headers.
    fn rewrite_gang(self, made: Made) {
        let Some((job, _)) = self.take(made, Vec::new()) else { return };
        let WriteRequest { previous, bookmark, priority, .. } = job.block.request;
        let spec = CopySpec { bp: previous, bookmark, priority, flags: ReadFlags::default(), header: true };
        let (core, snapshot) = (job.block.core.clone(), job.block.snapshot.clone());
        let done = move |result: Result<GangTree, ZioError>| {
            let tree = result.map_err(|error| error.kind);
            match tree.and_then(|tree| gang_write::overlay(&job.block.snapshot.view.facts, &job.block.request, &job.data, &tree)) {
                Ok(stores) => {
                    job.block.core.stats.rewrites.bump();
                    job.store(Placement { dvas: previous.addresses(), stores, allocated: Vec::new() });
                }
                Err(kind) => job.fail(kind),
            }
        };
        gang::assemble(&core, &snapshot, spec, Box::new(done));
    }

    /// Fails without having written.
    fn fail(self, kind: ErrorKind) {
        fail(&self.block.core, &self.block.request, self.block.then, kind);
    }

    /// Pointer of the finished block.
    fn pointer(&self, dvas: &[Dva; 3], sum: [u64; 4]) -> BlockPtr {
        let request = &self.block.request;
        let mut bp = pointer(request, (self.psize, self.compression), dvas, sum);
        if let Some(guard) = &self.guard {
            guard.put(&mut bp, truncated(request.checksum, sum));
        }
        bp
    }

    /// The stage wrote the block: delivers the pointer.
    fn written(self, dvas: &[Dva; 3], sum: [u64; 4], skipped: &[LeafId]) {
        let Block { core, snapshot, request, .. } = &self.block;
        skipped.iter().for_each(|leaf| core.note_missing(snapshot, *leaf, request.txg));
        let bp = self.pointer(dvas, sum);
        (self.block.then)(Ok(bp));
    }

    /// Writes what `placement` lists and delivers the pointer.
    fn store(mut self, placement: Placement) {
        let Placement { dvas, mut stores, allocated } = placement;
        let unknown = |dva: &Dva| self.block.snapshot.view.tree.tops.len() <= dva.vdev.0 as usize;
        if allocated.iter().any(unknown) {
            // The vdev was added meanwhile; the tree that has it was there before it was allocated from.
            self.block.snapshot = self.block.core.snapshot();
        }
        if self.data.is_unstable() && self.needs_stable(&dvas) {
            self.make_stable();
            stores.iter_mut().for_each(|store| store.data = self.data.clone());
        }
        let kind = self.block.request.checksum;
        let fletcher = kind == Checksum::FLETCHER_4 && stores.len() == 1;
        let claims = self.claims.take();
        let made = MadeParity { columns: &self.parity, is_trusted: claims.as_ref().is_none_or(|claims| claims.trusts_parity()) };
        let (planned, sum) = plan((&self.block.core, &self.block.snapshot), (&stores, self.block.request.txg), fletcher, &made);
        let Ok(sum) = sum.or(self.sum).map_or_else(|| self.block.snapshot.view.facts.sum_of(kind, &self.data), Ok) else {
            return self.fail(ErrorKind::Unsupported);
        };
        if let Some(claims) = claims {
            planned.compared.iter().for_each(|agrees| claims.note_parity(*agrees));
            if !claims.are_borne_out(kind, sum, &self.data) {
                return self.restart(&allocated);
            }
        }
        let bp = self.pointer(&dvas, sum);
        let Block { core, snapshot, request, .. } = &self.block;
        let (core, snapshot, txg) = (core.clone(), snapshot.clone(), (request.txg, request.priority));
        let verify = self.data.is_unstable() && core.direct.verifies_writes();
        write_all(&core, &snapshot, txg, planned, move |result| match result {
            Ok(()) if verify && self.block.snapshot.view.facts.sum_of(kind, &self.data) != Ok(sum) => self.changed(&allocated, &bp),
            Ok(()) => (self.block.then)(Ok(bp)),
            Err(kind) => self.lost(&allocated, kind),
        });
    }

    /// True when a block that others may change cannot be written from where it is: sectors have to be filled up, or parity
    /// takes more than one look at it.
    fn needs_stable(&self, dvas: &[Dva; 3]) -> bool {
        let tree = &self.block.snapshot.view.tree;
        let (length, birth) = (self.data.len(), self.block.request.txg);
        let in_place = |dva: &Dva| {
            tree.top(dva.vdev).is_some_and(|top| top.padded_psize(length) == length && top.is_one_row(dva.offset, length as u64, birth))
        };
        !dvas.iter().filter(|dva| !dva.is_empty()).all(in_place)
    }

    /// Goes on with a copy that nobody else changes. Before anything of the placement was planned.
    fn make_stable(&mut self) {
        if self.data.is_unstable() {
            self.data = self.data.to_stable();
            self.block.request.data = self.data.clone();
        }
    }

    /// The user changed his buffer during the write: what is on the devices may be anything. Once more, from a copy.
    fn changed(self, allocated: &[Dva], bp: &BlockPtr) {
        let Block { core, snapshot, request, .. } = &self.block;
        core.buffer_changed(snapshot, bp, &request.bookmark, Check::Write);
        self.block.unalloc(allocated);
        let Block { core, mut request, then, .. } = self.block;
        if core.direct.is_strict() {
            return fail(&core, &request, then, ErrorKind::Io);
        }
        request.data = request.data.to_stable();
        run(&core, request, then, false);
    }

    /// Gives the space back, as no copy of something reached a device, tries once more elsewhere, then waits for better times.
    fn lost(self, allocated: &[Dva], kind: ErrorKind) {
        self.block.unalloc(allocated);
        let Block { core, snapshot, since, request, then, again } = self.block;
        if !again {
            return run(&core, request, then, true);
        }
        if !request.can_fail && (may_recover(kind) || kind == ErrorKind::Io) {
            let why = ZioError::new(kind, request.bookmark).at(allocated.first().copied().unwrap_or_default());
            return hold(&core, (&snapshot, since), (request, then), (Some(why), why));
        }
        fail(&core, &request, then, kind);
    }
}
