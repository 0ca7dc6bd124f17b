//! Finding data and holes, dirty changes included (OpenZFS: `dnode_next_offset`, but exact while dirty).

use super::{Dnode, decode_pointer};
use crate::state::{Found, Tree};
use crate::{BlockError, DmuError};

/// What to look for in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Data,
    Hole,
}

/// What a dirty block of zeros is for who looks for data and holes: with compression the sync makes a hole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// Data.
    Data,
    /// A hole.
    Hole,
}

fn is_hole_to_be(found: &Found, zeros: Zeros) -> bool {
    matches!(found, Found::Dirty(_, block) if zeros == Zeros::Hole && block.is_zero())
}

impl Dnode {
    /// The first offset ≥ `offset` with data, dirty data included; `None` when there is none up to the last block.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        self.next_data_as(offset, Zeros::Data)
    }

    /// [`Dnode::next_data`], where dirty blocks of zeros count as told.
    pub fn next_data_as(&self, offset: u64, zeros: Zeros) -> Result<Option<u64>, DmuError> {
        let (size, _) = self.extent()?;
        let first = offset / size;
        let mut from = first;
        loop {
            let Some(block) = self.next_data_block(from)? else { return Ok(None) };
            let found = self.state.read().find(block);
            if !is_hole_to_be(&found, zeros) {
                return Ok(Some(if block == first { offset } else { block * size }));
            }
            from = block + 1;
        }
    }

    /// The first offset ≥ `offset` in a hole; the end of the last block counts as one.
    pub fn next_hole(&self, offset: u64) -> Result<u64, DmuError> {
        self.next_hole_as(offset, Zeros::Data)
    }

    /// True when a change waits for a sync.
    pub fn is_dirty(&self) -> bool {
        !self.state.read().dirty.is_empty()
    }

    /// True when the next sync changes which blocks it has.
    pub fn has_dirty_blocks(&self) -> bool {
        self.state.read().dirty.iter().any(|entry| !entry.blocks.is_empty() || entry.freed.is_some())
    }

    /// [`Dnode::next_hole`], where dirty blocks of zeros count as told.
    pub fn next_hole_as(&self, offset: u64, zeros: Zeros) -> Result<u64, DmuError> {
        let (size, max_block) = self.extent()?;
        let first = offset / size;
        let mut block = first;
        while block <= max_block {
            let found = self.state.read().find(block);
            match found {
                Found::Freed => break,
                _ if is_hole_to_be(&found, zeros) => break,
                Found::Written(written) if written.bp.is_hole() => break,
                Found::Dirty(..) | Found::Written(..) => block += 1,
                Found::Clean(_) => {
                    let hole = self.search(0, block, Wanted::Hole)?.unwrap_or(u64::MAX);
                    if hole == block {
                        break;
                    }
                    // Data up to the tree's next hole, except for what was freed since.
                    block = hole.min(self.next_freed(block + 1)).min(max_block + 1);
                }
            }
        }
        Ok(if block == first { offset } else { block * size })
    }

    pub(super) fn extent(&self) -> Result<(u64, u64), DmuError> {
        let state = self.state.read();
        if state.core.freed { Err(DmuError::NoSuchObject) } else { Ok((state.core.block_size as u64, state.core.max_block)) }
    }

    /// The first data block at or after `first`.
    pub(crate) fn next_data_block(&self, first: u64) -> Result<Option<u64>, DmuError> {
        let (_, max_block) = self.extent()?;
        let dirty = self.next_dirty(first);
        let mut block = first;
        while block <= max_block && dirty.is_none_or(|dirty| block < dirty) {
            let Some(candidate) = self.search(0, block, Wanted::Data)? else { break };
            if candidate > max_block || dirty.is_some_and(|dirty| dirty <= candidate) {
                break;
            }
            let state = self.state.read();
            match state.find(candidate) {
                Found::Freed => {
                    let freed = state.dirty.iter().rev().filter_map(|entry| entry.freed.as_ref());
                    let run = freed.filter_map(|freed| freed.first_overlap(candidate..u64::MAX));
                    block = run.filter(|run| run.start == candidate).map(|run| run.end).max().unwrap_or(candidate + 1);
                    if let Some(inside) = state.next_dirty(candidate).filter(|&inside| inside < block) {
                        block = inside;
                    }
                }
                _ => return Ok(Some(candidate)),
            }
        }
        Ok(dirty.filter(|&dirty| dirty <= max_block))
    }

    /// The first dirty block at or after `first` that wasn't freed later.
    fn next_dirty(&self, first: u64) -> Option<u64> {
        self.state.read().next_dirty(first)
    }

    /// The start of the first freed range at or after `first`.
    fn next_freed(&self, first: u64) -> u64 {
        let state = self.state.read();
        let freed = state.dirty.iter().filter_map(|entry| entry.freed.as_ref());
        freed.filter_map(|freed| freed.first_overlap(first..u64::MAX)).map(|range| range.start).min().unwrap_or(u64::MAX)
    }

    /// The first block of `level` ≥ `first` that is `wanted` in the synced tree; looks again when the tree was replaced.
    pub(crate) fn search(&self, level: u8, first: u64, wanted: Wanted) -> Result<Option<u64>, DmuError> {
        let mut tries = 0;
        loop {
            let tree = self.state.read().tree.clone();
            match self.search_tree(&tree, level, first, wanted) {
                Ok(found) => return Ok(found),
                Err(error) => self.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// As [`Dnode::search`] in one tree. A hole beyond the tree's reach is found, too.
    pub(crate) fn search_tree(&self, tree: &Tree, level: u8, first: u64, wanted: Wanted) -> Result<Option<u64>, BlockError> {
        let top = tree.levels - 1;
        if level > top {
            return Ok((wanted == Wanted::Hole).then_some(first));
        }
        let shift = tree.pointer_shift() * u32::from(top - level);
        for id in first.checked_shr(shift).unwrap_or(0)..u64::from(tree.block_ptr_count) {
            let start = first.max(id.checked_shl(shift).unwrap_or(0));
            if let Some(found) = self.search_below(tree, top, id, (level, start), wanted)? {
                return Ok(Some(found));
            }
        }
        let reach = u64::from(tree.block_ptr_count).checked_shl(shift).unwrap_or(u64::MAX);
        Ok((wanted == Wanted::Hole).then_some(first.max(reach)))
    }

    /// Searches below block `id` of level `at` for a block of the goal's level from the goal's start on.
    fn search_below(&self, tree: &Tree, at: u8, id: u64, goal: (u8, u64), wanted: Wanted) -> Result<Option<u64>, BlockError> {
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
        if wanted == Wanted::Hole && level == 0 && self.object.0 != 0 && bp.fill() == 1 << (epbs * u32::from(at)) {
            return Ok(None);
        }
        let Some(block) = self.indirect(tree, at, id)? else { return Ok(None) };
        let shift = epbs * u32::from(at - 1 - level);
        let from = start >> shift;
        for child in from.max(id << epbs)..(id + 1) << epbs {
            let child_bp = decode_pointer(&block, (child & ((1 << epbs) - 1)) as usize);
            let child_start = start.max(child << shift);
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

impl crate::state::State {
    /// The first dirty block at or after `first` that wasn't freed in a newer txg.
    fn next_dirty(&self, first: u64) -> Option<u64> {
        let mut best: Option<u64> = None;
        for (index, entry) in self.dirty.iter().enumerate() {
            let newer = &self.dirty[index + 1..];
            let visible = |block: &&u64| newer.iter().all(|entry| entry.blocks.contains_key(block) || !entry.is_freed(**block));
            let found = entry.blocks.range(first..).map(|(block, _)| block).find(visible).copied();
            best = [best, found].into_iter().flatten().min();
        }
        best
    }
}
