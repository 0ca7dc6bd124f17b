//! Gang blocks: a block in up to three pieces, each perhaps a gang again, held together by 512-byte headers
//! (OpenZFS: the "Gang blocks" section of `zio.c`).
//!
//! A header is three block pointers and a checksum of itself that also covers where and when it was written. The pointer of a
//! gang has the checksum of the whole block; each member's pointer has the checksum of its piece.

use crate::copies::{CopySpec, read_copies};
use crate::core::Core;
use crate::snapshot::Snapshot;
use crate::verify::{GANG_HEADER_BYTES, block_is_right, check_pointer, header_order};
use crate::{ErrorKind, ReadThen, ZioError};
use abd::Abd;
use exec::Mutex;
use kernels::ByteOrder;
use ondisk::{BlockPtr, Dva};
use std::ops::Range;
use std::sync::Arc;
use vdev::VdevTree;

/// Pointers in a header (OpenZFS: `SPA_GBH_NBLKPTRS`).
pub(crate) const MEMBERS: usize = 3;

/// One pointer of a gang; members of a header follow each other in the tree's list.
#[derive(Clone, Debug)]
pub(crate) struct GangNode {
    pub(crate) bp: BlockPtr,
    pub(crate) members: Range<usize>,
}

/// All pointers of a gang: the first is the gang itself.
#[derive(Clone, Debug)]
pub(crate) struct GangTree {
    pub(crate) nodes: Vec<GangNode>,
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
    let asize = tree.addressed(dva.vdev).map_or(dva.asize, |top| top.asize_for_psize(GANG_HEADER_BYTES as u64));
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
            let known = view.clone();
            read_each(&owner, &view, specs, move |pieces| then(pieces.and_then(|pieces| joined(&known, &spec, &pieces))));
        }
        Err(error) => then(Err(error)),
    };
    assemble(core, snapshot, spec, Box::new(done));
}

/// The pieces as one block. Each piece matched its own pointer; the whole must match the gang's, which tells a gang
/// rewritten in place from the one that `spec` means.
fn joined(snapshot: &Snapshot, spec: &CopySpec, pieces: &[Abd]) -> Result<Abd, ZioError> {
    let whole = Abd::gang(pieces).to_contiguous();
    let is_right = block_is_right(snapshot.view.facts.salt.as_deref(), &spec.bp, &whole);
    if is_right { Ok(whole) } else { Err(ZioError::new(ErrorKind::Checksum, spec.bookmark).at(spec.bp.dva(0))) }
}

/// The block pointers in a verified gang header.
fn header_pointers(bp: &BlockPtr, header: &Abd) -> Option<[BlockPtr; 3]> {
    let order = header_order(bp, header)?;
    let header = header.to_contiguous();
    let bytes = header.as_contiguous()?;
    let mut pointers = [BlockPtr::HOLE; 3];
    for (pointer, raw) in pointers.iter_mut().zip(bytes.as_chunks::<{ BlockPtr::BYTES }>().0) {
        *pointer = BlockPtr::decode(raw, order == ByteOrder::Little);
    }
    Some(pointers)
}
