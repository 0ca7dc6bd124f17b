//! Finding data and holes in one tree (OpenZFS: `dnode_next_offset_level`).

use super::indirect::TreeReader;
use super::kept::decode_pointer;
use super::tree::Tree;
use crate::DmuError;

/// Level-1 blocks whose reads are started together.
const PREFETCH_INDIRECTS: u64 = 64;

/// Kind of block to look for in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Data,
    Hole,
}

/// First block below block `id`, so many binary digits of numbers down; beyond all numbers where there is none. A tree may have more levels than numbers
/// have digits for: whoever sent or wrote it says how many.
fn first_below(id: u64, shift: u32) -> u64 {
    id.saturating_mul(1u64.checked_shl(shift).unwrap_or(u64::MAX))
}

impl TreeReader {
    /// The first block of `level` ≥ `first` that is `wanted`. A hole beyond the tree's reach is found, too.
    pub(crate) fn search(&self, tree: &Tree, level: u8, first: u64, wanted: Wanted) -> Result<Option<u64>, DmuError> {
        let top = tree.levels - 1;
        if level > top {
            return Ok((wanted == Wanted::Hole).then_some(first));
        }
        let shift = tree.pointer_shift() * u32::from(top - level);
        for id in first.checked_shr(shift).unwrap_or(0)..u64::from(tree.block_ptr_count) {
            let start = first.max(first_below(id, shift));
            if let Some(found) = self.search_below(tree, top, id, (level, start), wanted)? {
                return Ok(Some(found));
            }
        }
        let reach = u64::from(tree.block_ptr_count).checked_shl(shift).unwrap_or(u64::MAX);
        Ok((wanted == Wanted::Hole).then_some(first.max(reach)))
    }

    /// Has the level-1 blocks `first ..= last` in memory. What has one block in a range of 2^62 bytes costs one block.
    pub(super) fn warm_between(&self, tree: &Tree, first: u64, last: u64) -> Result<(), DmuError> {
        if first == last {
            return self.warm(tree, 1, first);
        }
        let (mut next, mut started) = (first, first);
        while let Some(id) = self.search(tree, 1, next, Wanted::Data)?.filter(|&id| id <= last) {
            if id >= started {
                started = id + PREFETCH_INDIRECTS;
                self.prefetch_level(tree, 1, id..started.min(last + 1));
            }
            self.warm(tree, 1, id)?;
            next = id + 1;
        }
        Ok(())
    }

    /// Searches below block `id` of level `at` for a block of the goal's level from the goal's start on.
    fn search_below(&self, tree: &Tree, at: u8, id: u64, goal: (u8, u64), wanted: Wanted) -> Result<Option<u64>, DmuError> {
        let (level, start) = goal;
        let bp = self.pointer(tree, at, id)?;
        if bp.is_hole() {
            return Ok((wanted == Wanted::Hole).then_some(start));
        }
        if at == level {
            return Ok((wanted == Wanted::Data).then_some(start));
        }
        let epbs = tree.pointer_shift();
        // The fill of the meta-dnode (object 0) counts dnodes, not blocks.
        if wanted == Wanted::Hole && level == 0 && self.object().0 != 0 && 1u64.checked_shl(epbs * u32::from(at)) == Some(bp.fill()) {
            return Ok(None);
        }
        let Some(block) = self.indirect(tree, at, id)? else { return Ok(None) };
        let shift = epbs * u32::from(at - 1 - level);
        let from = start.checked_shr(shift).unwrap_or(0);
        for child in from.max(id << epbs)..(id + 1) << epbs {
            let child_bp = decode_pointer(&block, (child & ((1 << epbs) - 1)) as usize);
            let child_start = start.max(first_below(child, shift));
            if child_bp.is_hole() {
                if wanted == Wanted::Hole {
                    return Ok(Some(child_start));
                }
            } else if let Some(found) = self.search_below(tree, at - 1, child, (level, child_start), wanted)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
