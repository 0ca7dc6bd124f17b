//! Walks every block of an object set that was born after a txg, children before parents (OpenZFS: `dmu_traverse.c`).
//!
//! A walk may pause in front of a level-0 block and go on there later, even if what it visited is gone by then: it reads
//! no block that it visited before. Positions are (object, block) in ascending order.

use crate::DslError;
use crate::meta::damaged;
use dmu::BlockIo;
use ondisk::{BlockId, BlockPtr, Bookmark, DNODE_SLOT_BYTES, DnodePhys, Level, ObjectId, ObjectType, ObjsetId, ObjsetPhys, Txg};

/// Blocks read ahead of the walk.
const PREFETCH_BLOCKS: usize = 16;

/// The pointers of an indirect block with their places.
fn pointers(block: &[u8]) -> impl Iterator<Item = (usize, BlockPtr)> + '_ {
    block.chunks_exact(BlockPtr::BYTES).enumerate().map(|(index, raw)| {
        let mut pointer = [0; BlockPtr::BYTES];
        pointer.copy_from_slice(raw);
        (index, BlockPtr::decode(&pointer, true))
    })
}

/// Place at which a walk paused: the first level-0 block that was not visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the object.
    pub object: u64,
    /// Number of the level-0 block within the object.
    pub block: u64,
}

/// A walk over the object set at `root`, leaving out what was born in `after` or before.
pub struct Walk<'a> {
    pub(crate) io: &'a dyn BlockIo,
    pub(crate) objset: u64,
    pub(crate) root: &'a BlockPtr,
    pub(crate) after: u64,
    /// Place to go on at; `None` for the beginning.
    pub(crate) resume: Option<Position>,
    /// Number of blocks to visit before the walk pauses.
    pub(crate) most: u64,
    /// Go on when a block cannot be read: what is below it is left out.
    pub(crate) skip_unreadable: bool,
    /// True when the object set was destroyed: its blocks are read when nobody else wants the devices.
    pub(crate) destroyed: bool,
    /// Time in nanoseconds at which the walk pauses, though not before one block was visited.
    pub(crate) until_ns: u64,
}

/// A walk under way.
struct Traverse<'a> {
    walk: &'a Walk<'a>,
    left: u64,
    paused: Option<Position>,
    /// log2 of pointers per indirect block of the object being walked, and dnodes per block of the meta-dnode.
    shift: u32,
    dnodes_per_block: u64,
    visit: &'a mut dyn FnMut(&BlockPtr, &Bookmark) -> Result<(), DslError>,
}

impl<'a> Walk<'a> {
    /// A walk that ends at the first error, over the object set with this number.
    pub fn all(io: &'a dyn BlockIo, objset: u64, root: &'a BlockPtr, after: u64) -> Walk<'a> {
        Walk { io, objset, root, after, resume: None, most: u64::MAX, skip_unreadable: false, destroyed: false, until_ns: u64::MAX }
    }

    /// Walks and calls `visit` on every block that is not a hole (embedded ones too), after the blocks below it. Gives the
    /// position when it paused. Ends at the first error of `visit`.
    pub fn run(&self, visit: &mut dyn FnMut(&BlockPtr) -> Result<(), DslError>) -> Result<Option<Position>, DslError> {
        self.run_at(&mut |bp, _| visit(bp))
    }

    /// As [`Walk::run`], with the address of each block; that of the root block is the object set's alone.
    pub fn run_at(&self, visit: &mut dyn FnMut(&BlockPtr, &Bookmark) -> Result<(), DslError>) -> Result<Option<Position>, DslError> {
        if self.root.is_hole() || self.root.birth() <= Txg(self.after) {
            return Ok(None);
        }
        let mut traverse = Traverse { walk: self, left: self.most, paused: None, shift: 10, dnodes_per_block: 32, visit };
        let at = Bookmark { objset: ObjsetId(self.objset), ..Bookmark::default() };
        match traverse.read(self.root, &at) {
            Ok(block) => traverse.objset(&block)?,
            Err(_) if self.skip_unreadable => {}
            Err(error) => return Err(error),
        }
        if traverse.paused.is_none() {
            (traverse.visit)(self.root, &at)?;
        }
        Ok(traverse.paused)
    }
}

impl Traverse<'_> {
    fn read(&self, bp: &BlockPtr, at: &Bookmark) -> Result<Vec<u8>, DslError> {
        if self.walk.destroyed {
            // The read that waits shares this one, and so its place among the I/Os of the device.
            self.walk.io.prefetch_destroyed(bp, at);
        }
        Ok(self.walk.io.read(bp, at).map_err(|error| dmu::DmuError::of_block(error, *at))?.to_vec())
    }

    fn is_to_pause(&self) -> bool {
        let is_late = || self.walk.until_ns < u64::MAX && self.walk.io.exec().now_ns() >= self.walk.until_ns;
        self.left == 0 || self.left < self.walk.most && is_late()
    }

    fn damaged(&self, what: &'static str) -> Result<(), DslError> {
        if self.walk.skip_unreadable { Ok(()) } else { Err(damaged(self.walk.objset, what)) }
    }

    fn objset(&mut self, block: &[u8]) -> Result<(), DslError> {
        let Ok(phys) = ObjsetPhys::decode(block) else {
            return self.damaged("the root block of an object set is not valid");
        };
        self.dnodes_per_block = (phys.meta_dnode.data_block_bytes() / DNODE_SLOT_BYTES).max(1) as u64;
        self.dnode(ObjectId(0), &phys.meta_dnode)?;
        let accounting = [
            (ondisk::PROJECTUSED_OBJECT, &phys.projectused_dnode),
            (ondisk::GROUPUSED_OBJECT, &phys.groupused_dnode),
            (ondisk::USERUSED_OBJECT, &phys.userused_dnode),
        ];
        for (object, dnode) in accounting {
            if let (Some(dnode), None) = (dnode, self.paused) {
                self.dnode(object, dnode)?;
            }
        }
        Ok(())
    }

    fn dnode(&mut self, object: ObjectId, dnode: &DnodePhys) -> Result<(), DslError> {
        let outer = self.shift;
        self.shift = u32::from(dnode.indirect_shift).saturating_sub(7).clamp(1, 20);
        let level = Level(dnode.levels.saturating_sub(1));
        let objset = ObjsetId(self.walk.objset);
        for (index, bp) in dnode.ptrs().iter().enumerate() {
            self.tree(bp, Bookmark { objset, object, level, block: BlockId(index as u64) })?;
        }
        if let Some(spill) = &dnode.spill {
            self.tree(spill, Bookmark { objset, object, level: Level(0), block: BlockId(u64::MAX) })?;
        }
        self.shift = outer;
        Ok(())
    }

    /// True when everything at and below `at` was visited before the walk paused last time.
    fn is_done(&self, at: &Bookmark) -> bool {
        let Some(resume) = self.walk.resume else { return false };
        let span = 1u64.checked_shl(self.shift * u32::from(at.level.0)).unwrap_or(u64::MAX);
        let last = at.block.0.saturating_add(1).saturating_mul(span).saturating_sub(1);
        match (at.object.0, resume.object) {
            (0, 0) => last < resume.block,
            (0, object) => last.saturating_add(1).saturating_mul(self.dnodes_per_block).saturating_sub(1) < object,
            (_, 0) => false,
            (object, _) => Position { object, block: last } < resume,
        }
    }

    /// True when only the block itself is left to be visited.
    fn is_last_visited_parent(&self, at: &Bookmark) -> bool {
        let here = Position { object: at.object.0, block: at.block.0 };
        at.object.0 == 0 && at.level.0 == 0 && self.walk.resume == Some(here)
    }

    fn tree(&mut self, bp: &BlockPtr, at: Bookmark) -> Result<(), DslError> {
        if self.paused.is_some() || bp.is_hole() || bp.birth() <= Txg(self.walk.after) || self.is_done(&at) {
            return Ok(());
        }
        if bp.level() != at.level.0 {
            return self.damaged("a block pointer has the wrong level");
        }
        if at.level.0 > 0 || bp.object_type() == ObjectType::DNODE && !self.is_last_visited_parent(&at) {
            match self.read(bp, &at) {
                Ok(block) if at.level.0 > 0 => self.indirect(&block, at)?,
                Ok(block) => self.dnodes(&block, at)?,
                Err(_) if self.walk.skip_unreadable => {}
                Err(error) => return Err(error),
            }
        } else if at.object.0 != 0 && self.is_to_pause() {
            self.paused = Some(Position { object: at.object.0, block: at.block.0 });
        }
        if self.paused.is_some() {
            return Ok(());
        }
        self.left = self.left.saturating_sub(1);
        (self.visit)(bp, &at)
    }

    fn indirect(&mut self, block: &[u8], at: Bookmark) -> Result<(), DslError> {
        let per_block = (block.len() / BlockPtr::BYTES) as u64;
        let place = |index: usize| Bookmark {
            level: Level(at.level.0 - 1),
            block: BlockId(at.block.0.wrapping_mul(per_block).wrapping_add(index as u64)),
            ..at
        };
        let after = Txg(self.walk.after);
        let below: Vec<(usize, BlockPtr)> = pointers(block).filter(|(_, bp)| !bp.is_hole() && bp.birth() > after).collect();
        for (position, (index, bp)) in below.iter().enumerate() {
            if position.is_multiple_of(PREFETCH_BLOCKS) {
                self.prefetch(&below[position..below.len().min(position + 2 * PREFETCH_BLOCKS)], &place);
            }
            self.tree(bp, place(*index))?;
        }
        Ok(())
    }

    /// Starts to read those of the blocks that the walk will look into.
    fn prefetch(&self, blocks: &[(usize, BlockPtr)], place: &dyn Fn(usize) -> Bookmark) {
        for (index, bp) in blocks {
            let at = place(*index);
            if !bp.is_embedded() && (bp.level() > 0 || bp.object_type() == ObjectType::DNODE) && !self.is_done(&at) {
                if self.walk.destroyed {
                    self.walk.io.prefetch_destroyed(bp, &at);
                } else {
                    self.walk.io.prefetch(bp, &at);
                }
            }
        }
    }

    /// The dnodes of a block of the meta-dnode.
    fn dnodes(&mut self, block: &[u8], at: Bookmark) -> Result<(), DslError> {
        let slots = block.len() / DNODE_SLOT_BYTES;
        let mut slot = 0;
        while slot < slots && self.paused.is_none() {
            let object = ObjectId(at.block.0 * slots as u64 + slot as u64);
            slot += match DnodePhys::decode(&block[slot * DNODE_SLOT_BYTES..]) {
                Ok(Some(dnode)) => {
                    self.dnode(object, &dnode)?;
                    dnode.slots()
                }
                Ok(None) => 1,
                Err(_) => {
                    self.damaged("a dnode is not valid")?;
                    1
                }
            };
        }
        Ok(())
    }
}
