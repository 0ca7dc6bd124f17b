//! The walk over one object set: what was born in a range of txgs, metadata read and verified on the way, data collected.
//!
//! Blocks are visited in the order of (object, block), parents before children, so that a walk can stop anywhere and go on
//! from its [`Position`] with another root: the path down to it is read again but not counted again. Metadata is read once,
//! with all its copies, by the scrub's own reads, a few blocks ahead; data goes to the queue.

use crate::cursor::Position;
use crate::queue::scan_read;
use crate::scan::Scan;
use crate::sort::Entry;
use abd::Abd;
use exec::{Completion, completion};
use ondisk::{BlockId, BlockPtr, Bookmark, DNODE_SLOT_BYTES, DnodePhys, Level, ObjectId, ObjsetId, ObjsetPhys, Txg};
use std::collections::VecDeque;
use std::sync::Arc;
use vdev::VdevTree;
use zio::{ErrorKind, ReadRequest, ZioError};

/// Metadata blocks read ahead, per level of the walk.
const AHEAD: usize = 8;
/// Number of children that are looked at to find the blocks to read ahead.
const AHEAD_SPAN: usize = 256;

/// The walk stopped before its end: the queue is full, the view is out of date, or the scan is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspended;

/// Object set to visit, with its root and the births to visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) objset: ObjsetId,
    pub(crate) root: BlockPtr,
    /// Blocks born in this txg or before are another dataset's to visit.
    pub(crate) after: Txg,
    /// Blocks born later are newer than the scan.
    pub(crate) until: Txg,
}

/// The tree that a block belongs to.
#[derive(Clone, Copy, Debug)]
struct Tree {
    object: u64,
    /// log2 of the pointers in an indirect block.
    shift: u32,
    /// Dnodes per level-0 block of the meta-dnode, 0 for any other object.
    slots: u64,
}

/// A block pointer and what it stands for.
#[derive(Clone, Copy, Debug)]
struct Kid {
    bp: BlockPtr,
    at: Bookmark,
    tree: Tree,
}

impl Kid {
    /// First position that the block covers, and the first one behind it.
    fn range(&self) -> (Position, Position) {
        let object = self.tree.object;
        if self.at.block.0 == u64::MAX {
            return (Position { object, block: u64::MAX }, Position { object: object.saturating_add(1), block: 0 });
        }
        let span = 1u64.checked_shl(self.tree.shift * u32::from(self.at.level.0)).unwrap_or(u64::MAX);
        let start = self.at.block.0.saturating_mul(span);
        let end = start.saturating_add(span);
        match self.tree.slots {
            0 => (Position { object, block: start }, Position { object, block: end }),
            slots => {
                let first = |block: u64| Position { object: block.saturating_mul(slots), block: 0 };
                (first(start), first(end))
            }
        }
    }
    fn is_metadata(&self) -> bool {
        self.at.level.0 > 0 || self.tree.slots > 0
    }
}

/// Pointers of a dnode, spill included.
fn kids_of(objset: ObjsetId, object: u64, dnode: &DnodePhys, slots: u64, out: &mut Vec<Kid>) {
    let tree = Tree { object, shift: u32::from(dnode.indirect_shift).saturating_sub(7), slots };
    let level = Level(dnode.levels.saturating_sub(1));
    let kid = |bp: &BlockPtr, level, block| Kid {
        bp: *bp,
        at: Bookmark { objset, object: ObjectId(object), level, block: BlockId(block) },
        tree,
    };
    out.extend(dnode.ptrs().iter().enumerate().filter(|(_, bp)| !bp.is_hole()).map(|(index, bp)| kid(bp, level, index as u64)));
    out.extend(dnode.spill.iter().filter(|bp| !bp.is_hole()).map(|bp| kid(bp, Level(0), u64::MAX)));
}

/// A read that was begun ahead of its visit.
type Begun = Completion<Result<Abd, ZioError>>;

/// One walk, or a part of it.
pub(crate) struct Walk<'a> {
    scan: &'a Arc<Scan>,
    generation: u64,
    scope: Scope,
    from: Position,
    position: Position,
    /// The vdevs, when only what they lack is wanted: the walk is a resilver's.
    lacking: Option<Arc<VdevTree>>,
}

impl<'a> Walk<'a> {
    /// Visits what lies at `position` and after; moves `position` along. Data is queued.
    pub(crate) fn run(scan: &'a Arc<Scan>, generation: u64, scope: Scope, position: &mut Position) -> Result<(), Suspended> {
        let lacking = scan.is_resilver().then(|| scan.zio().view().tree.without_deferred());
        let mut walk = Walk { scan, generation, scope, from: *position, position: *position, lacking };
        let result = walk.root();
        *position = walk.position;
        result
    }

    fn root(&mut self) -> Result<(), Suspended> {
        let bp = self.scope.root;
        if bp.is_hole() || bp.birth() <= self.scope.after {
            return Ok(());
        }
        self.check()?;
        let at = Bookmark { objset: self.scope.objset, ..Bookmark::default() };
        let seen = self.from > Position::default();
        let kid = Kid { bp, at, tree: Tree { object: 0, shift: 0, slots: 0 } };
        let Some(block) = self.content(&kid, seen, None)? else { return Ok(()) };
        let Ok(phys) = ObjsetPhys::decode(&block.to_vec()) else {
            self.malformed(&kid, seen);
            return Ok(());
        };
        let mut kids = Vec::new();
        let objset = self.scope.objset;
        kids_of(objset, 0, &phys.meta_dnode, (phys.meta_dnode.data_block_bytes() / DNODE_SLOT_BYTES) as u64, &mut kids);
        let special = [
            (ondisk::PROJECTUSED_OBJECT, &phys.projectused_dnode),
            (ondisk::GROUPUSED_OBJECT, &phys.groupused_dnode),
            (ondisk::USERUSED_OBJECT, &phys.userused_dnode),
        ];
        for (object, dnode) in special {
            if let Some(dnode) = dnode {
                kids_of(objset, object.0, dnode, 0, &mut kids);
            }
        }
        self.visit_all(kids.len(), &|index| kids[index])
    }

    /// Stops the walk when it has to.
    fn check(&self) -> Result<(), Suspended> {
        let go_on = self.scan.is_current(self.generation) && !self.scan.is_stopping() && !self.scan.is_full();
        if go_on { Ok(()) } else { Err(Suspended) }
    }

    fn is_in_scope(&self, bp: &BlockPtr) -> bool {
        !bp.is_hole() && !bp.is_embedded() && bp.birth() > self.scope.after
    }

    /// False for what a resilver need not touch.
    fn is_wanted(&self, bp: &BlockPtr) -> bool {
        self.lacking.as_ref().is_none_or(|tree| tree.lacks_part_of(bp))
    }

    fn read_request(&self, kid: &Kid) -> ReadRequest {
        scan_read(kid.bp, kid.at, self.lacking.is_some())
    }

    /// Metadata that will be visited for the first time.
    fn is_wanted_ahead(&self, kid: &Kid) -> bool {
        kid.is_metadata() && self.is_in_scope(&kid.bp) && kid.bp.birth() <= self.scope.until && kid.range().0 >= self.from
    }

    fn visit_all(&mut self, count: usize, kid_at: &dyn Fn(usize) -> Kid) -> Result<(), Suspended> {
        let mut ahead: VecDeque<(usize, Begun)> = VecDeque::new();
        let mut looked = 0;
        for index in 0..count {
            let kid = kid_at(index);
            if !self.is_in_scope(&kid.bp) {
                continue;
            }
            if !kid.is_metadata() {
                self.data(&kid)?;
                continue;
            }
            looked = looked.max(index);
            while looked < count && looked < index + AHEAD_SPAN && ahead.len() < AHEAD {
                let next = kid_at(looked);
                if self.is_wanted_ahead(&next) {
                    self.check()?;
                    ahead.push_back((looked, self.begin(&next)?));
                }
                looked += 1;
            }
            let mine = ahead.pop_front_if(|(begun, _)| *begun == index).map(|(_, begun)| begun);
            self.metadata(&kid, mine)?;
        }
        Ok(())
    }

    /// A block of data: one more for the queue.
    fn data(&mut self, kid: &Kid) -> Result<(), Suspended> {
        let (start, end) = kid.range();
        if start < self.from {
            return Ok(());
        }
        self.check()?;
        // A pointer may be younger than its block, which others share (OpenZFS: `dsl_scan_visitbp`).
        if kid.bp.physical_birth() <= self.scope.until {
            let wanted = self.is_wanted(&kid.bp);
            if wanted && !self.scan.enqueue(self.generation, Entry { bp: kid.bp, at: kid.at }) {
                return Err(Suspended);
            }
            self.scan.progress.examined(kid.bp.asize());
            if !wanted {
                self.scan.progress.skipped(kid.bp.asize());
            }
        }
        self.position = end;
        Ok(())
    }

    /// A block that leads to others.
    fn metadata(&mut self, kid: &Kid, begun: Option<Begun>) -> Result<(), Suspended> {
        let (start, end) = kid.range();
        if end <= self.from {
            return Ok(());
        }
        let seen = start < self.from;
        self.check()?;
        if let Some(block) = self.content(kid, seen, begun)? {
            if kid.at.level.0 > 0 { self.pointers(kid, &block)? } else { self.dnodes(kid, &block, seen)? }
        }
        self.position = self.position.max(end);
        Ok(())
    }

    /// The pointers of an indirect block.
    fn pointers(&mut self, kid: &Kid, block: &Abd) -> Result<(), Suspended> {
        let block = block.to_contiguous();
        let (pointers, _) = block.as_contiguous().unwrap_or_default().as_chunks::<{ BlockPtr::BYTES }>();
        let first = kid.at.block.0.wrapping_mul(pointers.len() as u64);
        let level = Level(kid.at.level.0 - 1);
        self.visit_all(pointers.len(), &|index| {
            let at = Bookmark { level, block: BlockId(first.wrapping_add(index as u64)), ..kid.at };
            Kid { bp: BlockPtr::decode(&pointers[index], true), at, tree: kid.tree }
        })
    }

    /// The dnodes of a block of the meta-dnode.
    fn dnodes(&mut self, kid: &Kid, block: &Abd, seen: bool) -> Result<(), Suspended> {
        let bytes = block.to_vec();
        let slots = bytes.len() / DNODE_SLOT_BYTES;
        let first = kid.at.block.0.saturating_mul(slots as u64);
        let mut kids = Vec::new();
        let mut slot = 0;
        while slot < slots {
            let object = first.saturating_add(slot as u64);
            match DnodePhys::decode(&bytes[slot * DNODE_SLOT_BYTES..]) {
                Ok(Some(dnode)) => {
                    kids_of(self.scope.objset, object, &dnode, 0, &mut kids);
                    slot += dnode.slots();
                }
                Ok(None) => slot += 1,
                Err(_) => {
                    self.malformed(kid, seen);
                    slot += 1;
                }
            }
        }
        self.visit_all(kids.len(), &|index| kids[index])
    }

    /// A block that verified but does not decode: counted as damaged once.
    fn malformed(&self, kid: &Kid, seen: bool) {
        if !seen {
            self.scan.damaged(&kid.bp, &kid.at);
        }
    }

    /// Starts the scrub's read of a block.
    fn begin(&self, kid: &Kid) -> Result<Begun, Suspended> {
        let bytes = kid.bp.asize();
        self.scan.gate.enter(self.scan.exec(), bytes);
        // While the gate was closed the view may have become too old to read by.
        if !self.scan.is_current(self.generation) {
            self.scan.gate.leave(bytes);
            return Err(Suspended);
        }
        let (done, begun) = completion();
        let scan = self.scan.clone();
        let then = move |result| {
            scan.gate.leave(bytes);
            done.complete(result);
        };
        self.scan.zio().read(self.read_request(kid), Box::new(then));
        Ok(begun)
    }

    /// The bytes of a metadata block, in native order; None when they can't be had. Blocks in scope are verified and counted
    /// unless they were `seen` by an earlier part of the walk.
    fn content(&self, kid: &Kid, seen: bool, begun: Option<Begun>) -> Result<Option<Abd>, Suspended> {
        if seen || kid.bp.birth() > self.scope.until {
            return self.content_again(kid);
        }
        let begun = match begun {
            Some(begun) => begun,
            None => self.begin(kid)?,
        };
        let result = begun.wait(self.scan.exec());
        let asize = kid.bp.asize();
        self.scan.progress.sample(self.scan.exec().now_ns());
        self.scan.progress.examined(asize);
        if self.is_wanted(&kid.bp) {
            self.scan.progress.issued(asize)
        } else {
            self.scan.progress.skipped(asize)
        }
        match result.map_err(|error| error.kind).and_then(|physical| zio::decompress(&kid.bp, &physical)) {
            Ok(block) => Ok(Some(native(&kid.bp, block))),
            Err(ErrorKind::Unsupported) => Ok(None),
            Err(_) => {
                self.scan.damaged(&kid.bp, &kid.at);
                Ok(None)
            }
        }
    }

    /// The bytes of a metadata block on the way to what is still to be visited.
    fn content_again(&self, kid: &Kid) -> Result<Option<Abd>, Suspended> {
        let bytes = kid.bp.asize();
        self.scan.gate.enter(self.scan.exec(), bytes);
        let current = self.scan.is_current(self.generation);
        let result = if current { self.cached_or_read(kid) } else { None };
        self.scan.gate.leave(bytes);
        if current { Ok(result) } else { Err(Suspended) }
    }
}

impl Walk<'_> {
    /// Not a user's read: one that finds devices gone is not held until they are back, or the sync would wait for it.
    fn cached_or_read(&self, kid: &Kid) -> Option<Abd> {
        self.scan.cache().cached(&kid.bp).or_else(|| {
            let physical = self.scan.zio().read_wait(self.read_request(kid)).ok()?;
            Some(native(&kid.bp, zio::decompress(&kid.bp, &physical).ok()?))
        })
    }
}

/// Swaps the contents of a block that was written in the other byte order.
fn native(bp: &BlockPtr, mut block: Abd) -> Abd {
    if !bp.is_little_endian() {
        ondisk::byteswap_block(bp.object_type(), bp.level(), block.make_mut());
    }
    block
}
