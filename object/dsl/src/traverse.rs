//! Walks every block of an object set that was born after a txg, children before parents (OpenZFS: `dmu_traverse.c`).

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

/// A walk. `visit` gets every block that is not a hole (embedded ones too); it runs after the blocks below.
pub struct Traverse<'a> {
    io: &'a dyn BlockIo,
    objset: ObjsetId,
    after: Txg,
    visit: &'a mut dyn FnMut(&BlockPtr) -> Result<(), DslError>,
}

impl<'a> Traverse<'a> {
    /// Walks the object set at `root`, leaving out what was born in `after` or before. Ends at the first error of a read or of
    /// `visit`.
    pub fn run(
        io: &'a dyn BlockIo,
        objset: u64,
        root: &BlockPtr,
        after: u64,
        visit: &'a mut dyn FnMut(&BlockPtr) -> Result<(), DslError>,
    ) -> Result<(), DslError> {
        let mut walk = Traverse { io, objset: ObjsetId(objset), after: Txg(after), visit };
        if root.is_hole() || root.birth() <= walk.after {
            return Ok(());
        }
        let bookmark = Bookmark { objset: walk.objset, ..Bookmark::default() };
        let block = io.read(root, &bookmark).map_err(dmu::DmuError::from)?;
        let phys = ObjsetPhys::decode(&block.to_vec()).map_err(|_| damaged(objset, "the root block of an object set is not valid"))?;
        walk.dnode(ObjectId(0), &phys.meta_dnode)?;
        let accounting = [
            (ondisk::USERUSED_OBJECT, &phys.userused_dnode),
            (ondisk::GROUPUSED_OBJECT, &phys.groupused_dnode),
            (ondisk::PROJECTUSED_OBJECT, &phys.projectused_dnode),
        ];
        for (object, dnode) in accounting {
            if let Some(dnode) = dnode {
                walk.dnode(object, dnode)?;
            }
        }
        (walk.visit)(root)
    }

    fn dnode(&mut self, object: ObjectId, dnode: &DnodePhys) -> Result<(), DslError> {
        let top = Level(dnode.levels.saturating_sub(1));
        for (index, bp) in dnode.ptrs().iter().enumerate() {
            self.tree(bp, Bookmark { objset: self.objset, object, level: top, block: BlockId(index as u64) })?;
        }
        match &dnode.spill {
            Some(spill) => self.tree(spill, Bookmark { objset: self.objset, object, level: Level(0), block: BlockId(u64::MAX) }),
            None => Ok(()),
        }
    }

    fn tree(&mut self, bp: &BlockPtr, at: Bookmark) -> Result<(), DslError> {
        if bp.is_hole() || bp.birth() <= self.after {
            return Ok(());
        }
        let bad = |what| damaged(self.objset.0, what);
        if bp.level() != at.level.0 {
            return Err(bad("a block pointer has the wrong level"));
        }
        if at.level.0 > 0 {
            let block = self.io.read(bp, &at).map_err(dmu::DmuError::from)?.to_vec();
            let per_block = (block.len() / BlockPtr::BYTES) as u64;
            let place = |index: usize| Bookmark {
                level: Level(at.level.0 - 1),
                block: BlockId(at.block.0.wrapping_mul(per_block).wrapping_add(index as u64)),
                ..at
            };
            let below: Vec<(usize, BlockPtr)> = pointers(&block).filter(|(_, bp)| !bp.is_hole() && bp.birth() > self.after).collect();
            for (position, (index, bp)) in below.iter().enumerate() {
                if position.is_multiple_of(PREFETCH_BLOCKS) {
                    self.prefetch(&below[position..below.len().min(position + 2 * PREFETCH_BLOCKS)], &place);
                }
                self.tree(bp, place(*index))?;
            }
        } else if bp.object_type() == ObjectType::DNODE {
            self.dnodes(bp, at)?;
        }
        (self.visit)(bp)
    }

    /// Starts to read those of the blocks that the walk will look into.
    fn prefetch(&self, blocks: &[(usize, BlockPtr)], place: &dyn Fn(usize) -> Bookmark) {
        for (index, bp) in blocks {
            if !bp.is_embedded() && (bp.level() > 0 || bp.object_type() == ObjectType::DNODE) {
                self.io.prefetch(bp, &place(*index));
            }
        }
    }

    /// The dnodes of a block of the meta-dnode.
    fn dnodes(&mut self, bp: &BlockPtr, at: Bookmark) -> Result<(), DslError> {
        let block = self.io.read(bp, &at).map_err(dmu::DmuError::from)?.to_vec();
        let slots = block.len() / DNODE_SLOT_BYTES;
        let mut slot = 0;
        while slot < slots {
            let found = DnodePhys::decode(&block[slot * DNODE_SLOT_BYTES..]).map_err(|_| damaged(self.objset.0, "a dnode is not valid"))?;
            let object = ObjectId(at.block.0 * slots as u64 + slot as u64);
            slot += match found {
                Some(dnode) => {
                    self.dnode(object, &dnode)?;
                    dnode.slots()
                }
                None => 1,
            };
        }
        Ok(())
    }
}
