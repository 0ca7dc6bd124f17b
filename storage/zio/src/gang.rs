//! Gang blocks: a block in up to three pieces, each perhaps a gang again, held together by 512-byte headers
//! (OpenZFS: the "Gang blocks" section of `zio.c`).
//!
//! A header is three block pointers and a checksum of itself that also covers where and when it was written. The pointer of a
//! gang has the checksum of the whole block; each member's pointer has the checksum of its piece.

use crate::engine::{Core, Snapshot};
use crate::read::{CopySpec, header_pointers, read_copies};
use crate::store::Store;
use crate::verify::{GANG_HEADER_BYTES, block_is_right, check_pointer, sectors};
use crate::write::{COPIES_MAX, Job, Placement, hint, sum_of};
use crate::{ErrorKind, ReadThen, ZioError};
use abd::{Abd, AbdPart};
use exec::Mutex;
use kernels::checksum::{Verifier, embed};
use metaslab::AllocRequest;
use ondisk::{BlockPtr, Checksum, Compression, Dva, ObjectType, SECTOR_BYTES};
use std::ops::Range;
use std::sync::Arc;
use vdev::VdevTree;

/// Pointers in a header (OpenZFS: `SPA_GBH_NBLKPTRS`).
const MEMBERS: usize = 3;

/// One pointer of a gang; members of a header follow each other in the tree's list.
#[derive(Clone, Debug)]
struct GangNode {
    bp: BlockPtr,
    members: Range<usize>,
}

/// All pointers of a gang: the first is the gang itself.
#[derive(Clone, Debug)]
pub(crate) struct GangTree {
    nodes: Vec<GangNode>,
}

impl GangTree {
    /// Pointers of the pieces, in the order of the data.
    fn pieces(&self) -> Vec<BlockPtr> {
        let mut pieces = Vec::new();
        let mut stack = vec![0];
        while let Some(index) = stack.pop() {
            let node = &self.nodes[index];
            if node.bp.is_gang() {
                stack.extend(node.members.clone().rev());
            } else {
                pieces.push(node.bp);
            }
        }
        pieces
    }

    /// Every address that the gang occupies, with the size of what lies there.
    pub(crate) fn spaces<'a>(&'a self, tree: &'a VdevTree) -> impl Iterator<Item = Dva> + 'a {
        self.nodes.iter().flat_map(move |node| node.bp.dvas().map(move |dva| if dva.gang { header_dva(tree, dva) } else { dva }))
    }
}

/// The space of a header alone: in a pointer, a gang's size includes its members'.
fn header_dva(tree: &VdevTree, dva: Dva) -> Dva {
    let asize = tree.top(dva.vdev).map_or(dva.asize, |top| top.asize_for_psize(GANG_HEADER_BYTES as u64));
    Dva { asize, gang: false, ..dva }
}

type TreeThen = Box<dyn FnOnce(Result<GangTree, ZioError>) + Send>;

/// Reads all headers of the gang `spec.bp`, level by level, so that a deep pile of headers is not a deep stack.
pub(crate) fn assemble(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, then: TreeThen) {
    let nodes = vec![GangNode { bp: spec.bp, members: 0..0 }];
    let assembly = Assembly { core: core.clone(), snapshot: snapshot.clone(), spec, tree: GangTree { nodes }, next: 0, then };
    Box::new(assembly).read_level();
}

struct Assembly {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    spec: CopySpec,
    tree: GangTree,
    /// First node of the level whose headers are read next.
    next: usize,
    then: TreeThen,
}

impl Assembly {
    /// Reads the headers of the next level, or delivers the tree.
    fn read_level(mut self: Box<Self>) {
        let gangs: Vec<usize> = (self.next..self.tree.nodes.len()).filter(|&index| self.tree.nodes[index].bp.is_gang()).collect();
        if gangs.is_empty() {
            return (self.then)(Ok(self.tree));
        }
        self.next = self.tree.nodes.len();
        let specs: Vec<CopySpec> =
            gangs.iter().map(|&index| CopySpec { bp: self.tree.nodes[index].bp, header: true, ..self.spec }).collect();
        let (core, snapshot) = (self.core.clone(), self.snapshot.clone());
        read_each(&core, &snapshot, specs, move |result| match result {
            Ok(headers) => self.expand(&gangs, &headers),
            Err(error) => (self.then)(Err(error)),
        });
    }

    /// Appends the members of the headers just read.
    fn expand(mut self: Box<Self>, gangs: &[usize], headers: &[Abd]) {
        for (&index, header) in gangs.iter().zip(headers) {
            let bp = self.tree.nodes[index].bp;
            let members: Vec<BlockPtr> = header_pointers(&bp, header).into_iter().flatten().filter(|member| !member.is_hole()).collect();
            let whole = members.iter().map(BlockPtr::psize).sum::<usize>() == bp.psize();
            let sound = members
                .iter()
                .all(|member| check_pointer(member).is_ok() && !member.is_embedded() && (!member.is_gang() || member.psize() < bp.psize()));
            if !whole || !sound {
                let error = ZioError::new(ErrorKind::Corrupt, self.spec.bookmark).at(bp.dva(0));
                return (self.then)(Err(error));
            }
            let first = self.tree.nodes.len();
            self.tree.nodes.extend(members.into_iter().map(|bp| GangNode { bp, members: 0..0 }));
            self.tree.nodes[index].members = first..self.tree.nodes.len();
        }
        self.read_level();
    }
}

/// Blocks read together, and how many are missing.
struct Gather<F> {
    blocks: Vec<Option<Abd>>,
    missing: usize,
    error: Option<ZioError>,
    then: Option<F>,
}

/// Reads several blocks or headers; `then` gets all of them in order, or an error.
fn read_each<F>(core: &Arc<Core>, snapshot: &Arc<Snapshot>, specs: Vec<CopySpec>, then: F)
where
    F: FnOnce(Result<Vec<Abd>, ZioError>) + Send + 'static,
{
    let gather = Gather { blocks: vec![None; specs.len()], missing: specs.len(), error: None, then: Some(then) };
    let gather = Arc::new(Mutex::new(gather));
    for (index, spec) in specs.into_iter().enumerate() {
        let gather = gather.clone();
        let done: ReadThen = Box::new(move |result| {
            let mut state = gather.lock();
            match result {
                Ok(data) => state.blocks[index] = Some(data),
                Err(error) => state.error = Some(error),
            }
            state.missing -= 1;
            if state.missing > 0 {
                return;
            }
            let all = state.error.map_or_else(|| Ok(state.blocks.drain(..).flatten().collect()), Err);
            let then = state.then.take();
            drop(state);
            if let Some(then) = then {
                then(all);
            }
        });
        read_copies(core, snapshot, spec, done);
    }
}

/// Reads the physical bytes of a gang.
pub(crate) fn read(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, then: ReadThen) {
    let (owner, view) = (core.clone(), snapshot.clone());
    let done = move |result: Result<GangTree, ZioError>| match result {
        Ok(tree) => {
            let specs = tree.pieces().into_iter().map(|bp| CopySpec { bp, header: false, ..spec }).collect();
            read_each(&owner, &view, specs, move |pieces| then(pieces.and_then(|pieces| joined(&spec, &pieces))));
        }
        Err(error) => then(Err(error)),
    };
    assemble(core, snapshot, spec, Box::new(done));
}

/// The pieces as one block. Each piece matched its own pointer; the whole must match the gang's, which tells a gang
/// rewritten in place from the one that `spec` means.
fn joined(spec: &CopySpec, pieces: &[Abd]) -> Result<Abd, ZioError> {
    let whole = Abd::gang(pieces).to_contiguous();
    if block_is_right(&spec.bp, &whole) { Ok(whole) } else { Err(ZioError::new(ErrorKind::Checksum, spec.bookmark).at(spec.bp.dva(0))) }
}

/// Builds headers and pieces of a gang that is about to be written.
struct Builder<'a> {
    job: &'a Job,
    stores: Vec<Store>,
    allocated: Vec<Dva>,
}

impl Builder<'_> {
    fn alloc(&mut self, psize: usize, copies: u8) -> Result<[Dva; 3], ErrorKind> {
        let request = &self.job.request;
        let wanted = AllocRequest { psize: psize as u64, copies, txg: request.txg, hint: hint(&request.bookmark) };
        let dvas = self.job.snapshot.view.allocator.alloc(&wanted).map_err(|_| ErrorKind::NoSpace)?;
        self.allocated.extend(dvas.iter().filter(|dva| !dva.is_empty()));
        Ok(dvas)
    }

    /// Places `data` in one piece or as a gang; gives the addresses for its pointer.
    fn place(&mut self, data: &Abd, at_once: bool) -> Result<[Dva; 3], ErrorKind> {
        let copies = self.job.request.copies;
        if at_once && let Ok(dvas) = self.alloc(data.len(), copies) {
            self.stores.push(Store { data: data.clone(), dvas });
            return Ok(dvas);
        }
        if data.len() <= SECTOR_BYTES {
            return Err(ErrorKind::NoSpace);
        }
        // One more copy of a header than of data: losing it would lose track of the members.
        let mut dvas = self.alloc(GANG_HEADER_BYTES, if copies == 1 { 2 } else { copies.min(COPIES_MAX) })?;
        let place = dvas;
        let mut members = [BlockPtr::HOLE; MEMBERS];
        let mut position = 0;
        for (index, member) in members.iter_mut().enumerate() {
            if position == data.len() {
                break;
            }
            let length = sectors((data.len() - position) / (MEMBERS - index));
            let piece = data.slice(position..position + length);
            position += length;
            let at = self.place(&piece, true)?;
            *member = self.member(&piece, at)?;
            for (total, part) in dvas.iter_mut().zip(at) {
                total.asize += part.asize;
            }
        }
        self.stores.push(Store { data: header(&members, &place[0], self.job)?, dvas: place });
        for dva in dvas.iter_mut().filter(|dva| !dva.is_empty()) {
            dva.gang = true;
        }
        Ok(dvas)
    }

    /// The pointer of a piece (OpenZFS: the `zio_prop_t` in `zio_write_gang_block`).
    fn member(&self, piece: &Abd, dvas: [Dva; 3]) -> Result<BlockPtr, ErrorKind> {
        let request = &self.job.request;
        let mut bp = BlockPtr::HOLE;
        for (index, dva) in dvas.into_iter().enumerate() {
            bp.set_dva(index, dva);
        }
        bp.set_lsize(piece.len());
        bp.set_psize(piece.len());
        bp.set_compression(Compression::OFF);
        bp.set_checksum_kind(request.checksum);
        bp.set_object_type(ObjectType::NONE);
        bp.set_little_endian(true);
        bp.set_birth(request.txg, request.txg);
        bp.set_checksum(sum_of(request.checksum, piece)?);
        Ok(bp)
    }
}

/// The bytes of a header at `dva`.
fn header(members: &[BlockPtr; MEMBERS], dva: &Dva, job: &Job) -> Result<Abd, ErrorKind> {
    let mut bytes = AbdPart::scratch(GANG_HEADER_BYTES);
    bytes.fill(0);
    for (raw, member) in bytes.chunks_exact_mut(BlockPtr::BYTES).zip(members) {
        raw.copy_from_slice(&member.encode());
    }
    embed(Checksum::GANG_HEADER, &mut bytes, Verifier::gang_header(*dva, job.request.txg)).map_err(|_| ErrorKind::Unsupported)?;
    Ok(bytes.freeze())
}

/// Places a block that no free segment can hold in one piece.
pub(crate) fn place(job: &Job) -> Result<Placement, ErrorKind> {
    let mut builder = Builder { job, stores: Vec::new(), allocated: Vec::new() };
    match builder.place(&job.data, false) {
        Ok(dvas) => Ok(Placement { dvas, stores: builder.stores, allocated: builder.allocated }),
        Err(kind) => {
            for dva in &builder.allocated {
                job.snapshot.view.allocator.unalloc(job.request.txg, dva);
            }
            Err(kind)
        }
    }
}

/// Rewrites a gang of the syncing txg where it is: same addresses, new pieces, new sums in the headers.
pub(crate) fn rewrite(job: Job) {
    let request = &job.request;
    let flags = crate::ReadFlags::default();
    let spec = CopySpec { bp: request.previous, bookmark: request.bookmark, priority: request.priority, flags, header: true };
    let (core, snapshot) = (job.core.clone(), job.snapshot.clone());
    let done = move |result: Result<GangTree, ZioError>| match result.map_err(|error| error.kind).and_then(|tree| overlay(&job, &tree)) {
        Ok(stores) => {
            job.core.stats.rewrites.bump();
            let bp = &job.request.previous;
            let dvas = [bp.dva(0), bp.dva(1), bp.dva(2)];
            job.store(Placement { dvas, stores, allocated: Vec::new() });
        }
        Err(kind) => job.fail(kind),
    };
    assemble(&core, &snapshot, spec, Box::new(done));
}

/// The stores that put the job's bytes into the existing gang `tree`.
fn overlay(job: &Job, tree: &GangTree) -> Result<Vec<Store>, ErrorKind> {
    let mut stores = Vec::with_capacity(tree.nodes.len());
    let mut pointers: Vec<BlockPtr> = tree.nodes.iter().map(|node| node.bp).collect();
    let mut places = vec![0..0; pointers.len()];
    places[0] = 0..job.data.len();
    for (index, node) in tree.nodes.iter().enumerate() {
        let mut position = places[index].start;
        for member in node.members.clone() {
            places[member] = position..position + tree.nodes[member].bp.psize();
            position = places[member].end;
        }
    }
    // Members come after their header in the list, so from the back every header sees its members' new sums.
    for (index, node) in tree.nodes.iter().enumerate().rev() {
        let piece = job.data.slice(places[index].clone());
        let dvas = [node.bp.dva(0), node.bp.dva(1), node.bp.dva(2)];
        pointers[index].set_checksum(sum_of(job.request.checksum, &piece)?);
        if node.bp.is_gang() {
            let mut members = [BlockPtr::HOLE; MEMBERS];
            members.iter_mut().zip(&pointers[node.members.clone()]).for_each(|(slot, bp)| *slot = *bp);
            stores.push(Store { data: header(&members, &dvas[0], job)?, dvas });
        } else {
            stores.push(Store { data: piece, dvas });
        }
    }
    Ok(stores)
}
