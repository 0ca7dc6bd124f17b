//! Finding one block of an object set by its place, and everybody who has a damaged one.
//!
//! An entry of the error log names a block of a head dataset by its place and birth. The dataset has it as long as its block there was
//! born then; so have snapshots and heads of whatever came from the same snapshot, whoever was promoted since (OpenZFS: `find_birth_txg`,
//! `find_top_affected_fs`, `check_filesystem`). Of scans nothing is known here.

use crate::ScanError;
use crate::datasets;
use crate::errlog::LoggedBlock;
use abd::Abd;
use arc::Cache;
use dmu::Objset;
use ondisk::{BlockId, BlockPtr, Bookmark, DNODE_SLOT_BYTES, DnodePhys, ErrorBlock, Level, ObjectId, ObjsetId, ObjsetPhys, Txg};
use std::collections::HashSet;
use std::sync::Arc;
use zio::{Priority, ReadFlags, ReadRequest};

/// Datasets looked at for one block; more are not named.
const DATASETS_MAX: usize = 1024;

/// Result of looking up a block by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Pointer of the block.
    Block(BlockPtr),
    /// No block is there any more.
    Nothing,
    /// An indirect block or dnode on the way to it can't be read.
    Unknown,
}

/// A block that leads to others is damaged.
struct Unreadable;

/// Metadata and cache in which blocks are looked up.
pub(crate) struct Lookup<'a> {
    pub(crate) mos: &'a Arc<Objset>,
    pub(crate) cache: &'a Cache,
}

impl Lookup<'_> {
    /// Everybody who has the block of an entry.
    pub(crate) fn holders_of(&self, block: &LoggedBlock) -> Vec<(ObjsetId, Option<BlockPtr>)> {
        match block {
            LoggedBlock::OfHead(head, block) => self.holders(*head, block),
            LoggedBlock::At(at) => {
                let root = match at.objset.0 {
                    0 => self.mos.root_bp(),
                    objset => match datasets::phys(self.mos, objset) {
                        Ok(Some(phys)) => phys.ds_bp,
                        Ok(None) => return Vec::new(),
                        Err(_) => return vec![(at.objset, None)],
                    },
                };
                match self.find(&root, at) {
                    Found::Block(bp) => vec![(at.objset, Some(bp))],
                    Found::Nothing => Vec::new(),
                    Found::Unknown => vec![(at.objset, None)],
                }
            }
        }
    }

    /// Birth of the block that is at a place now; 0 where it can't be told, None where there is no block.
    pub(crate) fn birth_at(&self, at: &Bookmark) -> Option<Txg> {
        let (_, bp) = *self.holders_of(&LoggedBlock::At(*at)).first()?;
        Some(bp.map_or(Txg(0), |bp| bp.birth()))
    }

    fn metadata(&self, bp: &BlockPtr, at: &Bookmark) -> Result<Vec<u8>, Unreadable> {
        // Not a user's read, and the tree may change meanwhile: it is not held until devices are back, and says nothing of them.
        match self.cache.cached(bp) {
            Some(block) => Ok(block.to_vec()),
            None => {
                let flags = ReadFlags { raw: true, speculative: true, ..ReadFlags::default() };
                let request = ReadRequest { bp: *bp, bookmark: *at, priority: Priority::AsyncRead, flags };
                let physical = self.cache.zio().read_wait(request).map_err(|_| Unreadable)?;
                let mut block: Abd = zio::decompress(bp, &physical).map_err(|_| Unreadable)?;
                if !bp.is_little_endian() {
                    ondisk::byteswap_block(bp.object_type(), bp.level(), block.make_mut());
                }
                Ok(block.to_vec())
            }
        }
    }

    /// The block at a place of the object set with this root.
    fn find(&self, root: &BlockPtr, at: &Bookmark) -> Found {
        match self.descend_to(root, at) {
            Ok(Some(bp)) => Found::Block(bp),
            Ok(None) => Found::Nothing,
            Err(Unreadable) => Found::Unknown,
        }
    }

    fn descend_to(&self, root: &BlockPtr, at: &Bookmark) -> Result<Option<BlockPtr>, Unreadable> {
        if root.is_hole() {
            return Ok(None);
        }
        let top = Bookmark { objset: at.objset, ..Bookmark::default() };
        let objset = ObjsetPhys::decode(&self.metadata(root, &top)?).map_err(|_| Unreadable)?;
        let special = [
            (ondisk::USERUSED_OBJECT, objset.userused_dnode),
            (ondisk::GROUPUSED_OBJECT, objset.groupused_dnode),
            (ondisk::PROJECTUSED_OBJECT, objset.projectused_dnode),
        ];
        if at.object.0 == 0 {
            return self.pointer(&objset.meta_dnode, at);
        }
        if let Some((_, dnode)) = special.into_iter().find(|(object, _)| *object == at.object) {
            return dnode.map_or(Ok(None), |dnode| self.pointer(&dnode, at));
        }
        let slots = (objset.meta_dnode.data_block_bytes() / DNODE_SLOT_BYTES).max(1) as u64;
        let block = Bookmark { object: ObjectId(0), level: Level(0), block: BlockId(at.object.0 / slots), ..*at };
        let Some(bp) = self.pointer(&objset.meta_dnode, &block)? else { return Ok(None) };
        let dnodes = self.metadata(&bp, &block)?;
        let start = (at.object.0 % slots) as usize * DNODE_SLOT_BYTES;
        match DnodePhys::decode(dnodes.get(start..).unwrap_or_default()) {
            Ok(Some(dnode)) => self.pointer(&dnode, at),
            Ok(None) => Ok(None),
            Err(_) => Err(Unreadable),
        }
    }

    /// The pointer to a block of an object.
    fn pointer(&self, dnode: &DnodePhys, at: &Bookmark) -> Result<Option<BlockPtr>, Unreadable> {
        let there = |bp: BlockPtr| Some(bp).filter(|bp| !bp.is_hole());
        if at.block.0 == u64::MAX {
            return Ok(dnode.spill.and_then(there));
        }
        if at.level.0 >= dnode.levels {
            return Ok(None);
        }
        let shift = u32::from(dnode.indirect_shift).saturating_sub(7);
        let number = |level: u8| at.block.0.checked_shr(shift * u32::from(level - at.level.0)).unwrap_or(0);
        let mut level = dnode.levels - 1;
        let Some(mut bp) = usize::try_from(number(level)).ok().and_then(|index| dnode.ptrs().get(index).copied()) else { return Ok(None) };
        while level > at.level.0 && !bp.is_hole() {
            let block = self.metadata(&bp, &Bookmark { level: Level(level), block: BlockId(number(level)), ..*at })?;
            level -= 1;
            let (pointers, _) = block.as_chunks::<{ BlockPtr::BYTES }>();
            let index = number(level) % (pointers.len().max(1) as u64);
            let Some(raw) = pointers.get(index as usize) else { return Err(Unreadable) };
            bp = BlockPtr::decode(raw, true);
        }
        Ok(there(bp))
    }

    /// Head, and the snapshots that it came from as far back as they can have a block born at `birth`, the oldest last (OpenZFS:
    /// `dsl_dataset_oldest_snapshot`). Empty when there is no such head.
    fn line(&self, head: ObjsetId, birth: Txg) -> Result<Vec<u64>, ScanError> {
        let Some(mut phys) = datasets::phys(self.mos, head.0)? else { return Ok(Vec::new()) };
        let mut line = vec![head.0];
        while phys.ds_prev_snap_obj != 0 && phys.ds_prev_snap_txg >= birth.0 && line.len() < DATASETS_MAX {
            // A record that can't be read hides those before it.
            let Ok(Some(previous)) = datasets::phys(self.mos, phys.ds_prev_snap_obj) else { break };
            line.push(phys.ds_prev_snap_obj);
            phys = previous;
        }
        Ok(line)
    }

    /// Everybody who has a damaged block of a head dataset, the head first: object sets with the pointer, where that can be told. Nobody
    /// when the block was freed or rewritten everywhere.
    ///
    /// A block that a dataset lacks is in none that came from it: from the oldest on, only what came from one that has it is looked at.
    fn holders(&self, head: ObjsetId, block: &ErrorBlock) -> Vec<(ObjsetId, Option<BlockPtr>)> {
        let mut holders = Vec::new();
        let mut check = |objset: u64, root: &BlockPtr| {
            let at = Bookmark { objset: ObjsetId(objset), object: block.object, level: block.level, block: block.block };
            match self.find(root, &at) {
                // A birth of 0 stands for one that could not be told.
                Found::Block(bp) if block.birth == Txg(0) || bp.birth() == block.birth => holders.push((at.objset, Some(bp))),
                Found::Unknown => holders.push((at.objset, None)),
                _ => return false,
            }
            true
        };
        if head.0 == 0 {
            check(0, &self.mos.root_bp());
            return holders;
        }
        // Nor can be told then who shares it.
        let since = if block.birth == Txg(0) { Txg(u64::MAX) } else { block.birth };
        let Ok(line) = self.line(head, since) else { return vec![(head, None)] };
        let mut seen = HashSet::new();
        // A snapshot of the txg of the birth may be without it: then what came after that is asked.
        for oldest in line.into_iter().rev().take(2) {
            let mut todo = vec![oldest];
            while let Some(object) = todo.pop() {
                if !seen.insert(object) || seen.len() > DATASETS_MAX {
                    continue;
                }
                let Ok(Some(phys)) = datasets::phys(self.mos, object) else { continue };
                if check(object, &phys.ds_bp) {
                    // A list of clones that can't be read hides them: the next scrub finds what they have.
                    datasets::push_next(self.mos, &phys, &mut todo).unwrap_or_default();
                }
            }
        }
        // Who reads one for all that share an address reads it where it was found.
        holders.sort_by_key(|(objset, _)| *objset != head);
        holders
    }
}
