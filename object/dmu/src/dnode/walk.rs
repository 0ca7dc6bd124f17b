//! Finding data and holes, dirty changes included (OpenZFS: `dnode_next_offset`, but exact while dirty).

use super::contents::Contents;
use super::search::Wanted;
use super::state::Found;
use crate::DmuError;

/// Treatment of a dirty block of zeros by a search for data and holes: with compression the sync makes a hole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// Dirty zeros count as data.
    Data,
    /// Dirty zeros count as a hole.
    Hole,
}

fn is_hole_to_be(found: &Found, zeros: Zeros) -> bool {
    matches!(found, Found::Dirty(_, block) if zeros == Zeros::Hole && block.is_zero())
}

impl Contents {
    /// The first offset ≥ `offset` with data, dirty data included; `None` when there is none up to the last block. Dirty blocks of zeros count as told.
    pub(super) fn next_data_as(&self, offset: u64, zeros: Zeros) -> Result<Option<u64>, DmuError> {
        let (size, _) = self.extent()?;
        let first = offset / size;
        let mut from = first;
        loop {
            let Some(block) = self.next_data_block(from)? else { return Ok(None) };
            let found = self.find(block);
            if !is_hole_to_be(&found, zeros) {
                return Ok(Some(if block == first { offset } else { block * size }));
            }
            from = block + 1;
        }
    }

    /// The first offset ≥ `offset` in a hole; the end of the last block counts as one. Dirty blocks of zeros count as told.
    pub(super) fn next_hole_as(&self, offset: u64, zeros: Zeros) -> Result<u64, DmuError> {
        let (size, max_block) = self.extent()?;
        let first = offset / size;
        let mut block = first;
        while block <= max_block {
            let found = self.find(block);
            match found {
                Found::Freed => break,
                _ if is_hole_to_be(&found, zeros) => break,
                Found::Written(written) if written.bp.is_hole() => break,
                Found::Dirty(..) | Found::Written(..) => block += 1,
                Found::Clean(_) => {
                    let hole = self.search(block, Wanted::Hole)?.unwrap_or(u64::MAX);
                    if hole == block {
                        break;
                    }
                    // Data up to the tree's next hole, except for what was freed since.
                    block = hole.min(self.state.read().next_freed(block + 1)).min(max_block + 1);
                }
            }
        }
        Ok(if block == first { offset } else { block * size })
    }

    /// The first data block at or after `first`.
    pub(crate) fn next_data_block(&self, first: u64) -> Result<Option<u64>, DmuError> {
        let (_, max_block) = self.extent()?;
        let dirty = self.state.read().next_dirty(first);
        let mut block = first;
        while block <= max_block && dirty.is_none_or(|dirty| block < dirty) {
            let Some(candidate) = self.search(block, Wanted::Data)? else { break };
            if candidate > max_block || dirty.is_some_and(|dirty| dirty <= candidate) {
                break;
            }
            let state = self.state.read();
            match state.find(candidate) {
                Found::Freed => block = state.after_freed(candidate),
                _ => return Ok(Some(candidate)),
            }
        }
        Ok(dirty.filter(|&dirty| dirty <= max_block))
    }

    /// The first data block ≥ `first` that is `wanted` in the synced tree; looks again when the tree was replaced.
    fn search(&self, first: u64, wanted: Wanted) -> Result<Option<u64>, DmuError> {
        let mut tries = 0;
        loop {
            let tree = self.tree();
            match self.reader.search(&tree, 0, first, wanted) {
                Ok(found) => return Ok(found),
                Err(error) => self.reader.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }
}
