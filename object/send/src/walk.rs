//! The walk over an object set: what was born after a txg, in order of object and offset, holes among it (OpenZFS: `dmu_traverse.c`, `send_cb`).

use crate::SendError;
use crate::item::{Block, Finds, Item};
use crate::raw::bonus_of;
use dmu::{BlockIo, DmuError};
use dsl::DslError;
use ondisk::{
    BlockId, BlockPtr, Bookmark, DNODE_SLOT_BYTES, DNODE_SLOTS_PER_BLOCK, DnodePhys, EmbeddedKind, Level, ObjectId, ObjsetId, ObjsetPhys,
    Txg,
};

/// Indirect blocks, and blocks of dnodes, that are read ahead of the walk.
const PREFETCH_BLOCKS: usize = 16;
/// log2 of the bytes of a block pointer.
const POINTER_SHIFT: u32 = 7;

/// Holes without a birth that are left out, since they were there at the base, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unborn {
    /// None: they may be older or younger.
    Found,
    /// Holes of dnodes, which never become another object's.
    LeftOutOfDnodes,
}

/// A walk over one object set.
pub(crate) struct Walk<'a, F> {
    io: &'a dyn BlockIo,
    objset: ObjsetId,
    after: Txg,
    unborn: Unborn,
    /// Object and offset before which everything is left out.
    resume: (u64, u64),
    out: F,
}

/// Object whose tree is walked.
struct Tree<'d> {
    object: ObjectId,
    dnode: &'d DnodePhys,
}

impl Tree<'_> {
    /// Number of level-0 blocks below a pointer of a level; None when there are more than can be numbered.
    fn span(&self, level: u8) -> Option<u64> {
        let shift = u32::from(self.dnode.indirect_shift).saturating_sub(POINTER_SHIFT) * u32::from(level);
        1u64.checked_shl(shift)
    }
    /// First level-0 block below a pointer, and the first behind it; None where no block can be.
    fn range(&self, level: u8, block: u64) -> Option<(u64, u64)> {
        match self.span(level) {
            Some(span) => block.checked_mul(span).map(|start| (start, start.saturating_add(span))),
            None => (block == 0).then_some((0, u64::MAX)),
        }
    }
}

impl<'a, F: Finds> Walk<'a, F> {
    pub(crate) fn new(
        io: &'a dyn BlockIo,
        objset: ObjsetId,
        (after, unborn): (Txg, Unborn),
        resume: Option<(u64, u64)>,
        out: F,
    ) -> Walk<'a, F> {
        Walk { io, objset, after, unborn, resume: resume.unwrap_or((0, 0)), out }
    }

    /// Walks everything below `root`, and gives what all that was found came to.
    pub(crate) fn run(mut self, root: &BlockPtr) -> Result<F::Made, SendError> {
        if !root.is_hole() && root.birth() > self.after {
            let block = self.read(root, &Bookmark { objset: self.objset, ..Bookmark::default() })?;
            let Ok(phys) = ObjsetPhys::decode(&block) else {
                return Err(self.damaged(ObjectId(0), "the root block of an object set is not valid"));
            };
            // Numbers that no old receiver can have are not named as free: some never came to the end of those.
            let blocks = phys.meta_dnode.max_block.0.saturating_add(1);
            self.out.set_objects_max(blocks.saturating_mul(DNODE_SLOTS_PER_BLOCK as u64));
            let tree = Tree { object: ObjectId(0), dnode: &phys.meta_dnode };
            self.pointers(&tree)?;
        }
        self.out.finish()
    }

    fn damaged(&self, object: ObjectId, what: &'static str) -> SendError {
        SendError::Source(DslError::Corrupt { object, what })
    }

    fn read(&self, bp: &BlockPtr, at: &Bookmark) -> Result<Vec<u8>, SendError> {
        let found = self.io.read(bp, at).map_err(|error| {
            self.io.lost(bp, at, error);
            SendError::Source(DmuError::of_block(error, *at).into())
        })?;
        Ok(found.to_vec())
    }

    /// True for what the base has already.
    fn is_old(&self, tree: &Tree<'_>, bp: &BlockPtr) -> bool {
        if bp.is_hole() && bp.birth() == Txg::ZERO {
            return match self.unborn {
                Unborn::Found => false,
                Unborn::LeftOutOfDnodes => tree.object.0 == 0,
            };
        }
        bp.birth() <= self.after
    }

    /// Everything below a dnode, but its spill block.
    fn pointers(&mut self, tree: &Tree<'_>) -> Result<(), SendError> {
        let level = tree.dnode.levels.saturating_sub(1);
        for (index, bp) in tree.dnode.ptrs().iter().enumerate() {
            self.pointer(tree, bp, level, index as u64)?;
        }
        Ok(())
    }

    fn pointer(&mut self, tree: &Tree<'_>, bp: &BlockPtr, level: u8, block: u64) -> Result<(), SendError> {
        let Some((start, end)) = tree.range(level, block) else { return Ok(()) };
        if self.is_old(tree, bp) || self.is_before_resume(tree, end) {
            return Ok(());
        }
        let is_meta = tree.object.0 == 0;
        let is_beyond = !is_meta && !tree.dnode.object_type.is_metadata() && start > tree.dnode.max_block.0;
        if bp.is_hole() {
            return if is_beyond { Ok(()) } else { self.hole(tree, start, end) };
        }
        if is_beyond || bp.level() != level {
            return Err(self.damaged(tree.object, "a block lies where none can be"));
        }
        let at = Bookmark { objset: self.objset, object: tree.object, level: Level(level), block: BlockId(block) };
        match (level, is_meta) {
            (1.., _) => self.indirect(tree, bp, &at),
            (0, true) => self.dnodes(bp, &at),
            (0, false) => self.data(tree, bp, at),
        }
    }

    /// True when nothing before level-0 block `end` of an object is still to be sent.
    fn is_before_resume(&self, tree: &Tree<'_>, end: u64) -> bool {
        let (object, offset) = self.resume;
        let bytes = tree.dnode.data_block_bytes() as u64;
        match tree.object.0 {
            0 => end.saturating_mul(bytes / DNODE_SLOT_BYTES as u64) <= object,
            this => this == object && end.saturating_mul(bytes) <= offset,
        }
    }

    fn hole(&mut self, tree: &Tree<'_>, start: u64, end: u64) -> Result<(), SendError> {
        let bytes = tree.dnode.data_block_bytes() as u64;
        if tree.object.0 == 0 {
            let slots = bytes / DNODE_SLOT_BYTES as u64;
            let first = start.saturating_mul(slots);
            return self.out.push(Item::FreeObjects { first, count: end.saturating_mul(slots) - first });
        }
        let Some(offset) = start.checked_mul(bytes) else { return Ok(()) };
        let length = end.saturating_mul(bytes) - offset;
        self.out.push(Item::Free { object: tree.object.0, offset, length })
    }

    fn indirect(&mut self, tree: &Tree<'_>, bp: &BlockPtr, at: &Bookmark) -> Result<(), SendError> {
        let raw = self.read(bp, at)?;
        let below: Vec<BlockPtr> =
            raw.chunks_exact(BlockPtr::BYTES).filter_map(|raw| raw.first_chunk()).map(|raw| BlockPtr::decode(raw, true)).collect();
        let level = at.level.0.saturating_sub(1);
        let first = at.block.0.wrapping_mul(below.len() as u64);
        for (index, child) in below.iter().enumerate() {
            if (level > 0 || tree.object.0 == 0) && index.is_multiple_of(PREFETCH_BLOCKS) {
                self.prefetch(tree, &below[index..below.len().min(index + 2 * PREFETCH_BLOCKS)], level, first.wrapping_add(index as u64));
            }
            self.pointer(tree, child, level, first.wrapping_add(index as u64))?;
        }
        Ok(())
    }

    /// Starts to read those of the blocks that the walk will look into.
    fn prefetch(&self, tree: &Tree<'_>, blocks: &[BlockPtr], level: u8, first: u64) {
        for (index, bp) in blocks.iter().enumerate() {
            if !bp.is_hole() && !bp.is_embedded() && !self.is_old(tree, bp) {
                let block = BlockId(first.wrapping_add(index as u64));
                self.io.prefetch(bp, &Bookmark { objset: self.objset, object: tree.object, level: Level(level), block });
            }
        }
    }

    /// Dnodes of a block, and what is below them.
    fn dnodes(&mut self, bp: &BlockPtr, at: &Bookmark) -> Result<(), SendError> {
        let block = self.read(bp, at)?;
        let slots = block.len() / DNODE_SLOT_BYTES;
        let first = at.block.0.saturating_mul(slots as u64);
        self.out.push(Item::Dnodes { bp: Box::new(*bp), first, count: slots as u64 })?;
        let mut slot = 0;
        while slot < slots {
            let object = ObjectId(at.block.0.saturating_mul(slots as u64).saturating_add(slot as u64));
            let raw = &block[slot * DNODE_SLOT_BYTES..];
            let found = DnodePhys::decode(raw);
            let found = found.map_err(|_| self.damaged(object, "a dnode is not valid"))?;
            slot += found.as_ref().map_or(1, DnodePhys::slots);
            if object.0 < self.resume.0 {
                continue;
            }
            match found {
                Some(dnode) => self.object(object, dnode, raw)?,
                None => self.out.push(Item::FreeObjects { first: object.0, count: 1 })?,
            }
        }
        Ok(())
    }

    /// An object and what is below it; `slots` begin with its record as it is stored.
    fn object(&mut self, object: ObjectId, dnode: DnodePhys, slots: &[u8]) -> Result<(), SendError> {
        let stored = if self.out.is_raw() { bonus_of(&dnode, slots) } else { Vec::new() };
        self.out.push(Item::Object { object: object.0, dnode: Box::new(dnode.clone()), stored })?;
        let tree = Tree { object, dnode: &dnode };
        let spill = dnode.spill.filter(|spill| !spill.is_hole());
        // One that did not change comes before the rest: a change of the block size would lose it.
        if let Some(spill) = spill.filter(|spill| spill.birth() <= self.after) {
            self.spill(&tree, spill)?;
        }
        self.pointers(&tree)?;
        match spill.filter(|spill| spill.birth() > self.after) {
            Some(spill) => self.spill(&tree, spill),
            None => Ok(()),
        }
    }

    fn data(&mut self, tree: &Tree<'_>, bp: &BlockPtr, at: Bookmark) -> Result<(), SendError> {
        let bytes = tree.dnode.data_block_bytes();
        let Some(offset) = at.block.0.checked_mul(bytes as u64) else {
            return Err(self.damaged(tree.object, "a block lies where none can be"));
        };
        if is_redacted(bp) {
            return self.out.push(Item::Redact { object: tree.object.0, offset, length: bytes as u64 });
        }
        if bp.lsize() != bytes {
            return Err(self.damaged(tree.object, "a block is not as long as its object's are"));
        }
        self.out.push(Item::Block(Box::new(Block { bp: *bp, at, kind: tree.dnode.object_type, offset, is_spill: false })))
    }

    fn spill(&mut self, tree: &Tree<'_>, bp: BlockPtr) -> Result<(), SendError> {
        let at = Bookmark { objset: self.objset, object: tree.object, level: Level(0), block: BlockId(u64::MAX) };
        self.out.push(Item::Block(Box::new(Block { bp, at, kind: tree.dnode.object_type, offset: 0, is_spill: true })))
    }
}

/// True for the pointer of a block that was left out when its object set was received (OpenZFS: `BP_IS_REDACTED`).
pub(crate) fn is_redacted(bp: &BlockPtr) -> bool {
    bp.is_embedded() && bp.embedded_kind() == EmbeddedKind::REDACTED
}
