//! Writing: from logical bytes to a block pointer.
//!
//! ```text
//! write() ─job─► prepare ─hole, embedded─► then
//!                  └─► place (rewrite in place, allocate, or gang) ─► checksum, parity ─► devices ─► judge ─► then
//!                                                                  ▲                              │ lost
//!                                                                  └── once more, elsewhere ◄─────┤
//!                                                                       held until resume ◄───────┘
//! ```

use crate::copies::CopySpec;
use crate::core::Core;
use crate::direct;
use crate::events::Check;
use crate::gang::GangTree;
use crate::snapshot::Snapshot;
use crate::store::{COPIES_MAX, Made, Placement, Store, hint, plan, write_all};
use crate::sum::sum_of;
use crate::suspend::{Held, may_recover};
use crate::transform::{Prepared, prepare, rewrites};
use crate::zia::{self, Claimed, Offloaded};
use crate::{ErrorKind, ReadFlags, WriteRequest, WriteThen, ZioError, gang, gang_write};
use abd::Abd;
use exec::TaskClass;
use metaslab::AllocRequest;
use ondisk::{BLOCK_BYTES_MAX, BlockPtr, Checksum, Compression, Dva, SECTOR_BYTES};
use std::sync::Arc;

/// A logical write.
pub(crate) fn write(core: &Arc<Core>, request: WriteRequest, then: WriteThen) {
    let owner = core.clone();
    core.exec.spawn(TaskClass::Write, Box::new(move || run(&owner, request, then, false)));
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
    if embedded || !kernels::checksum::is_supported(request.checksum) {
        return Err(ErrorKind::Unsupported);
    }
    Ok(())
}

fn run(core: &Arc<Core>, request: WriteRequest, then: WriteThen, again: bool) {
    let snapshot = core.snapshot();
    if let Err(kind) = refuse(&snapshot, &request) {
        return fail(core, &request, then, kind);
    }
    if let Some((request, then)) = zia::write(core, &snapshot, request, then, again) {
        run_in_software(core, &snapshot, request, then, again);
    }
}

/// A write whose stages are all the host's.
pub(crate) fn run_in_software(core: &Arc<Core>, snapshot: &Arc<Snapshot>, mut request: WriteRequest, then: WriteThen, again: bool) {
    if request.data.is_unstable() && !direct::can_stay_unstable(&request) {
        request.data = request.data.to_stable();
    }
    match prepare(snapshot, &request) {
        Err(kind) => fail(core, &request, then, kind),
        Ok(Prepared::Hole(bp)) => {
            core.stats.hole_writes.bump();
            then(Ok(bp));
        }
        Ok(Prepared::Embedded(bp)) => {
            core.stats.embedded_writes.bump();
            then(Ok(bp));
        }
        Ok(Prepared::Physical(data, compression)) => {
            let mut job = Job::new(core.clone(), snapshot.clone(), request, then, again, data.len(), compression);
            job.data = data;
            if !rewrites(&job.request, job.psize) {
                job.allocate();
            } else if job.request.previous.is_gang() {
                job.rewrite_gang();
            } else {
                job.rewrite();
            }
        }
    }
}

fn fail(core: &Core, request: &WriteRequest, then: WriteThen, kind: ErrorKind) {
    core.stats.write_failures.bump();
    then(Err(ZioError::new(kind, request.bookmark)));
}

/// A write whose physical bytes are known.
pub(crate) struct Job {
    pub(crate) core: Arc<Core>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) request: WriteRequest,
    then: WriteThen,
    again: bool,
    /// The physical bytes; none yet while an accelerator has them.
    pub(crate) data: Abd,
    /// How many there are.
    pub(crate) psize: usize,
    compression: Compression,
    /// What an accelerator says of them.
    claimed: Option<Claimed>,
    /// Parity columns that an accelerator computed, by address.
    made: Vec<(Dva, Vec<Abd>)>,
}

impl Job {
    /// A job that has its bytes still to come.
    pub(crate) fn new(
        core: Arc<Core>,
        snapshot: Arc<Snapshot>,
        request: WriteRequest,
        then: WriteThen,
        again: bool,
        psize: usize,
        compression: Compression,
    ) -> Job {
        Job { core, snapshot, request, then, again, data: Abd::default(), psize, compression, claimed: None, made: Vec::new() }
    }

    /// Takes over what an accelerator made: the bytes, which are on the host by now, what it says of them, and their parity.
    pub(crate) fn take(&mut self, offloaded: &mut Offloaded, made: Vec<(Dva, Vec<Abd>)>) {
        let (data, claimed) = offloaded.take();
        self.data = data.unwrap_or_default();
        debug_assert_eq!(self.data.len(), self.psize, "the bytes are on the host");
        (self.claimed, self.made) = (Some(claimed), made);
    }

    /// Begins again from the original, without an accelerator.
    pub(crate) fn restart(self, allocated: &[Dva]) {
        for dva in allocated {
            self.snapshot.view.allocator.unalloc(self.request.txg, dva);
        }
        let (core, snapshot, request, then, again) = self.into_request();
        run_in_software(&core, &snapshot, request, then, again);
    }

    /// What it takes to begin again.
    pub(crate) fn into_request(self) -> (Arc<Core>, Arc<Snapshot>, WriteRequest, WriteThen, bool) {
        (self.core, self.snapshot, self.request, self.then, self.again)
    }

    /// New space.
    pub(crate) fn allocate(mut self) {
        match place(&mut self) {
            Ok(placement) => self.store(placement),
            Err(kind) => fail(&self.core, &self.request, self.then, kind),
        }
    }

    /// The space that the block has.
    fn rewrite(self) {
        let previous = &self.request.previous;
        let dvas = [previous.dva(0), previous.dva(1), previous.dva(2)];
        self.core.stats.rewrites.bump();
        let stores = vec![Store { data: self.data.clone(), dvas }];
        self.store(Placement { dvas, stores, allocated: Vec::new() });
    }

    /// The gang that the block is: its addresses are in its headers.
    pub(crate) fn rewrite_gang(self) {
        let WriteRequest { previous, bookmark, priority, .. } = self.request;
        let spec = CopySpec { bp: previous, bookmark, priority, flags: ReadFlags::default(), header: true };
        let (core, snapshot) = (self.core.clone(), self.snapshot.clone());
        let done = move |result: Result<GangTree, ZioError>| {
            let tree = result.map_err(|error| error.kind);
            match tree.and_then(|tree| gang_write::overlay(&self.request, &self.data, &tree)) {
                Ok(stores) => {
                    self.core.stats.rewrites.bump();
                    let dvas = [previous.dva(0), previous.dva(1), previous.dva(2)];
                    self.store(Placement { dvas, stores, allocated: Vec::new() });
                }
                Err(kind) => self.fail(kind),
            }
        };
        gang::assemble(&core, &snapshot, spec, Box::new(done));
    }

    /// Fails without having written.
    pub(crate) fn fail(self, kind: ErrorKind) {
        fail(&self.core, &self.request, self.then, kind);
    }

    /// The finished pointer.
    fn pointer(&self, dvas: &[Dva; 3], sum: [u64; 4]) -> BlockPtr {
        let request = &self.request;
        let mut bp = BlockPtr::HOLE;
        bp.set_lsize(request.data.len());
        bp.set_psize(self.psize);
        bp.set_compression(self.compression);
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

    /// An accelerator wrote the block: delivers the pointer.
    pub(crate) fn stored(self, dvas: &[Dva; 3], sum: [u64; 4]) {
        let bp = self.pointer(dvas, sum);
        (self.then)(Ok(bp));
    }

    /// Writes what `placement` lists and delivers the pointer.
    pub(crate) fn store(mut self, placement: Placement) {
        let Placement { dvas, mut stores, allocated } = placement;
        let unknown = |dva: &Dva| self.snapshot.view.tree.tops.len() <= dva.vdev.0 as usize;
        if allocated.iter().any(unknown) {
            // The vdev was added meanwhile; the tree that has it was there before it was allocated from.
            self.snapshot = self.core.snapshot();
        }
        if self.data.is_unstable() && self.needs_stable(&dvas) {
            self.make_stable();
            stores.iter_mut().for_each(|store| store.data = self.data.clone());
        }
        let fletcher = self.request.checksum == Checksum::FLETCHER_4 && stores.len() == 1;
        let claimed = self.claimed.take();
        let made = Made { columns: &self.made, is_trusted: !claimed.as_ref().is_some_and(Claimed::is_verified) };
        let (planned, sum) = plan(&self.snapshot, &stores, fletcher, &made);
        let Ok(sum) = sum.map_or_else(|| sum_of(self.request.checksum, &self.data), Ok) else {
            return self.fail(ErrorKind::Unsupported);
        };
        if let Some(claimed) = claimed {
            planned.compared.iter().for_each(|agrees| claimed.note_parity(*agrees));
            if !claimed.is_borne_out(self.request.checksum, sum, &self.data) {
                return self.restart(&allocated);
            }
        }
        let bp = self.pointer(&dvas, sum);
        let (core, snapshot, txg) = (self.core.clone(), self.snapshot.clone(), (self.request.txg, self.request.priority));
        let verify = self.data.is_unstable() && core.direct.verifies_writes();
        write_all(&core, &snapshot, txg, planned, move |result| match result {
            Ok(()) if verify && sum_of(self.request.checksum, &self.data) != Ok(sum) => self.changed(&allocated, &bp),
            Ok(()) => (self.then)(Ok(bp)),
            Err(kind) => self.lost(&allocated, kind),
        });
    }

    /// True when a block that others may change cannot be written from where it is: sectors have to be filled up, or parity
    /// takes more than one look at it.
    fn needs_stable(&self, dvas: &[Dva; 3]) -> bool {
        let tree = &self.snapshot.view.tree;
        let length = self.data.len();
        let in_place = |dva: &Dva| {
            tree.top(dva.vdev).is_some_and(|top| top.padded_psize(length) == length && top.is_one_row(dva.offset, length as u64))
        };
        !dvas.iter().filter(|dva| !dva.is_empty()).all(in_place)
    }

    /// Goes on with a copy that nobody else changes. Before anything of the placement was planned.
    fn make_stable(&mut self) {
        if self.data.is_unstable() {
            self.data = self.data.to_stable();
            self.request.data = self.data.clone();
        }
    }

    /// The user changed his buffer during the write: what is on the devices may be anything. Once more, from a copy.
    fn changed(self, allocated: &[Dva], bp: &BlockPtr) {
        self.core.buffer_changed(&self.snapshot, bp, &self.request.bookmark, Check::Write);
        for dva in allocated {
            self.snapshot.view.allocator.unalloc(self.request.txg, dva);
        }
        let Job { core, mut request, then, .. } = self;
        if core.direct.is_strict() {
            return fail(&core, &request, then, ErrorKind::Io);
        }
        request.data = request.data.to_stable();
        run(&core, request, then, false);
    }

    /// No copy of something reached a device: give the space back, try once more elsewhere, then wait for better times.
    fn lost(self, allocated: &[Dva], kind: ErrorKind) {
        for dva in allocated {
            self.snapshot.view.allocator.unalloc(self.request.txg, dva);
        }
        let Job { core, snapshot, request, then, again, .. } = self;
        if !again {
            return run(&core, request, then, true);
        }
        if !request.can_fail && (may_recover(kind) || kind == ErrorKind::Io) {
            if let Some(held) = core.hold(&snapshot, Held::Write(Box::new(request), then)) {
                core.stats.write_failures.bump();
                held.fail(kind);
            }
            return;
        }
        fail(&core, &request, then, kind);
    }
}

/// Finds room for the block: in one piece, or as a gang.
fn place(job: &mut Job) -> Result<Placement, ErrorKind> {
    let request = &job.request;
    let psize = job.psize as u64;
    let wanted = AllocRequest { psize, copies: request.copies, txg: request.txg, hint: hint(&request.bookmark) };
    let is_forced = job.core.ganging.strikes(psize, || job.core.exec.random_u64());
    let in_one_piece = if is_forced { None } else { job.snapshot.view.allocator.alloc(&wanted).ok() };
    match in_one_piece {
        Some(dvas) => {
            let allocated = dvas.iter().copied().filter(|dva| !dva.is_empty()).collect();
            Ok(Placement { dvas, stores: vec![Store { data: job.data.clone(), dvas }], allocated })
        }
        None => {
            // Members have sums of their own: all must be of the same bytes.
            job.make_stable();
            let placement = gang_write::place(&job.snapshot.view.allocator, &job.request, &job.data)?;
            job.core.stats.gang_writes.bump();
            Ok(placement)
        }
    }
}
