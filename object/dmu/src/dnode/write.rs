//! Modifying: dirty blocks of the open txg, freed ranges, and the block size.
//!
//! A whole block is replaced without a look at the old one. A part of a block needs the old bytes: those of an older dirty
//! txg are shared until written to, clean ones are read first, outside of all locks.
//!
//! What comes raw into an object set that is encrypted is there as well: blocks as they are stored, and dnodes of which nobody here can read the bonus
//! (OpenZFS: `dmu_assign_arcbuf_by_dnode` with raw buffers, `dmu_convert_mdn_block_to_raw`). The MACs of a raw stream were made elsewhere. All that they
//! cover has to lie here as it lies there: the levels of a tree, the largest block, the number of pointers, a bonus to the end of its room.

use super::contents::Fetched;
use super::dirty::{DirtyBlock, Dropped, Record};
use super::form::{SealedObject, StoredBlock};
use super::segments::segments;
use super::state::{Found, SpillChange, State};
use super::{Dnode, SPILL_BYTES_MAX, bonus_room};
use crate::{DmuError, Tx};
use abd::Abd;
use ondisk::{BLOCK_BYTES_MAX, BlockId, SECTOR_BYTES};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// True when the second look found what the first one saw, so that bytes read in between are still right.
fn is_same(before: &Found, now: &Found) -> bool {
    match (before, now) {
        (Found::Dirty(_, before), Found::Dirty(_, now)) => Arc::ptr_eq(before, now),
        (Found::Written(before), Found::Written(now)) => Arc::ptr_eq(before, now),
        (Found::Freed, Found::Freed) | (Found::Clean(_), Found::Clean(_)) => true,
        _ => false,
    }
}

/// Bytes of the blocks above a block that are written with it, about, where it is not the only one of its object.
const ABOVE_BYTES: u64 = 64 << 10;

/// A dirty block and the bytes of it that are to be zeroed: offset and length.
type PartToZero = (Arc<DirtyBlock>, usize, usize);

impl Dnode {
    /// Writes `data` at `offset`. [`DmuError::Invalid`] beyond the one block of an object whose block size is no power of two.
    pub fn write(&self, offset: u64, data: &[u8], tx: &Tx) -> Result<(), DmuError> {
        let block_size = self.check_write(offset, data.len())?;
        self.count_buffered(offset, data.len(), block_size);
        let mut rest = data;
        for segment in segments(offset, data.len(), block_size) {
            let (part, after) = rest.split_at(segment.length);
            rest = after;
            if part.len() == block_size {
                self.put_block(segment.block, Abd::from_slice(part), tx)?;
            } else {
                self.dirty_block(segment.block, tx)?.write(segment.within, part);
            }
        }
        Ok(())
    }

    /// Writes `data` at `offset`; whole blocks keep sharing the buffer and are not copied.
    pub fn write_abd(&self, offset: u64, data: Abd, tx: &Tx) -> Result<(), DmuError> {
        let block_size = self.check_write(offset, data.len())?;
        self.count_buffered(offset, data.len(), block_size);
        let mut done = 0;
        for segment in segments(offset, data.len(), block_size) {
            let part = data.slice(done..done + segment.length);
            done += segment.length;
            if part.len() == block_size {
                self.put_block(segment.block, part.to_stable(), tx)?;
                continue;
            }
            let block = self.dirty_block(segment.block, tx)?;
            part.fold(segment.within, |within, bytes| {
                block.write(within, bytes);
                Some(within + bytes.len())
            });
        }
        Ok(())
    }

    /// Reads what a write of this range will need, so that the transaction doesn't wait for disks: the old bytes of blocks
    /// that are overwritten in part, and the indirect blocks above. What can't be read is an error here, where the user
    /// hears of it, and not in the sync (OpenZFS: `dmu_tx_hold_write`). Cheap when all of it is in memory.
    pub fn prepare_write(&self, offset: u64, length: usize) -> Result<(), DmuError> {
        let end = offset.checked_add(length as u64).ok_or(DmuError::Invalid)?;
        let (size, max_block) = self.contents.extent()?;
        let (first, last) = (offset / size, end.saturating_sub(1) / size);
        if length == 0 || first > max_block {
            return Ok(());
        }
        if !offset.is_multiple_of(size) || (first == last && !end.is_multiple_of(size)) {
            self.contents.warm(first)?;
        }
        if first != last && !end.is_multiple_of(size) && last <= max_block {
            self.contents.warm(last)?;
        }
        self.contents.warm_indirects(first, last.min(max_block))
    }

    /// As [`Dnode::prepare_write`] for [`Dnode::free_range`] (OpenZFS: `dmu_tx_hold_free`).
    pub fn prepare_free(&self, offset: u64, length: u64) -> Result<(), DmuError> {
        let (size, max_block) = self.contents.extent()?;
        let end = offset.saturating_add(length);
        let (first, last) = (offset / size, end.saturating_sub(1) / size);
        if length == 0 || first > max_block {
            return Ok(());
        }
        if !offset.is_multiple_of(size) {
            self.contents.warm(first)?;
        }
        if !end.is_multiple_of(size) && last <= max_block {
            self.contents.warm(last)?;
        }
        self.contents.warm_indirects(first, last.min(max_block))
    }

    /// Makes a block dirty without changing it: changing it in this transaction cannot fail any more.
    pub fn will_modify(&self, block: BlockId, tx: &Tx) -> Result<(), DmuError> {
        self.dirty_block(block.0, tx).map(drop)
    }

    /// Changes one block in place (reads it first when it isn't dirty).
    pub fn modify_block<R>(&self, block: BlockId, tx: &Tx, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, DmuError> {
        let block_size = self.contents.block_size()?;
        if !block_size.is_power_of_two() && block.0 > 0 {
            return Err(DmuError::Invalid);
        }
        Ok(self.dirty_block(block.0, tx)?.modify(change))
    }

    /// OpenZFS counts a buffered write when it takes hold of the blocks (`dmu_buf_hold_array_by_dnode`).
    fn count_buffered(&self, offset: u64, length: usize, block_size: usize) {
        if let Some(stats) = self.context.blocks.io().iostats()
            && length > 0
        {
            let blocks = (offset + length as u64 - 1) / block_size as u64 - offset / block_size as u64 + 1;
            stats.arc_write.add(blocks, length as u64);
        }
    }

    fn check_write(&self, offset: u64, length: usize) -> Result<usize, DmuError> {
        let block_size = self.contents.block_size()?;
        let end = offset.checked_add(length as u64).ok_or(DmuError::Invalid)?;
        if !block_size.is_power_of_two() && end > block_size as u64 {
            return Err(DmuError::Invalid);
        }
        Ok(block_size)
    }

    /// Replaces a whole block. What the sync will need of the blocks above is read now (from memory after
    /// [`Dnode::prepare_write`]): damage there is the writer's error, not the sync's.
    fn put_block(&self, block: u64, data: Abd, tx: &Tx) -> Result<(), DmuError> {
        if self.contents.state.read().newest_in(tx.txg()).is_none_or(|entry| !entry.blocks.contains_key(&block)) {
            self.contents.warm_indirects(block, block)?;
        }
        let mut dropped = Dropped::default();
        self.change(tx, |state| {
            if data.len() != state.core.block_size {
                return Err(DmuError::Invalid);
            }
            if let Some(Record::Data(known)) = state.newest()?.blocks.get(&block) {
                known.replace(data);
            } else {
                let charged = self.charge_block(state, block, data.len(), tx);
                dropped.push(state.insert(block, Record::Data(Arc::new(DirtyBlock::new(data, charged))))?);
            }
            Ok(())
        })?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }

    /// Counts a block that gets dirty; false where nothing is counted.
    pub(super) fn charge_block(&self, state: &State, block: u64, bytes: usize, tx: &Tx) -> bool {
        // What was cut off to its first block keeps the blocks above.
        let has_above = block.max(state.core.max_block) > 0 || state.tree.levels > 1;
        if has_above && !state.is_beside_dirty(block, tx.txg()) {
            tx.note_dirtied(ABOVE_BYTES);
        }
        if state.core.kind.is_metadata() {
            // Of metadata there is a copy more than of data.
            tx.note_dirtied(bytes as u64);
        }
        self.context.charge(tx, bytes as u64)
    }

    /// The block's record in the transaction's txg, made from the newest bytes when there is none.
    fn dirty_block(&self, block: u64, tx: &Tx) -> Result<Arc<DirtyBlock>, DmuError> {
        loop {
            let (found, block_size) = {
                let state = self.contents.state.read();
                if state.core.freed {
                    return Err(DmuError::NoSuchObject);
                }
                (state.find(block), state.core.block_size)
            };
            let base = match &found {
                Found::Dirty(txg, known) if *txg == tx.txg() => return Ok(known.clone()),
                Found::Dirty(_, older) => Some(older.data()),
                Found::Freed => {
                    self.contents.warm_indirects(block, block)?;
                    None
                }
                Found::Clean(_) | Found::Written(..) => match self.contents.fetch(block)? {
                    Fetched::Zeros => None,
                    Fetched::Clean(data) => Some(data),
                    Fetched::Dirty(_) => continue,
                },
            };
            if base.as_ref().is_some_and(|base| base.len() != block_size) {
                return Err(DmuError::Corrupt);
            }
            let mut dropped = Dropped::default();
            let made = self.change(tx, |state| {
                if state.core.block_size != block_size || !is_same(&found, &state.find(block)) {
                    return Ok(None);
                }
                let charged = self.charge_block(state, block, block_size, tx);
                let made = Arc::new(match base {
                    Some(base) => DirtyBlock::new(base, charged),
                    None => DirtyBlock::blank(block_size, charged),
                });
                dropped.push(state.insert(block, Record::Data(made.clone()))?);
                Ok(Some(made))
            })?;
            self.give_back(&dropped, tx.txg());
            if let Some(made) = made {
                return Ok(made);
            }
        }
    }

    /// Frees `length` bytes from `offset`: they read as zeros. `u64::MAX` goes to the end (truncates).
    pub fn free_range(&self, offset: u64, length: u64, tx: &Tx) -> Result<(), DmuError> {
        let (size, max_block) = self.contents.extent()?;
        let end = offset.saturating_add(length);
        let mut first = offset / size;
        if first > max_block || length == 0 {
            return Ok(());
        }
        let truncates = end / size > max_block;
        // All that can fail comes first: a range is freed as a whole or not at all.
        let mut zeroed = [const { None }; 2];
        let head = offset % size;
        if head > 0 {
            let length = (size - head).min(end - offset);
            zeroed[0] = self.part_to_zero(first, head as usize, length as usize, tx)?;
            first += 1;
        }
        let last = if truncates { u64::MAX } else { end / size };
        let tail = end % size;
        if first <= last && first <= max_block && !truncates && tail > 0 {
            zeroed[1] = self.part_to_zero(last, 0, tail as usize, tx)?;
        }
        if first < last && first <= max_block {
            self.free_blocks(first..last, tx)?;
        }
        for (block, within, length) in zeroed.into_iter().flatten() {
            block.zero(within, length);
        }
        Ok(())
    }

    /// The block of which a part is to be zeroed, and that part; nothing when it is a hole already.
    fn part_to_zero(&self, block: u64, within: usize, length: usize, tx: &Tx) -> Result<Option<PartToZero>, DmuError> {
        if matches!(self.contents.fetch(block)?, Fetched::Zeros) {
            return Ok(None);
        }
        Ok(Some((self.dirty_block(block, tx)?, within, length)))
    }

    /// Frees blocks; a range without an end lowers the largest block.
    fn free_blocks(&self, range: Range<u64>, tx: &Tx) -> Result<(), DmuError> {
        // Blocks above the hole are written, of which nobody knows here whether they were dirty.
        tx.keep_announced();
        let dropped = self.change(tx, |state| state.free_blocks(range))?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }

    /// True when a micro ZAP in the object may have more than 128 KiB.
    pub fn may_be_large_micro_zap(&self) -> bool {
        self.context.blocks.props().large_micro_zaps
    }

    /// Notes that the object is a micro ZAP of more than 128 KiB from now on: before the transaction that makes it one ends.
    pub fn note_large_micro_zap(&self) {
        self.context.has_large_micro_zaps.store(true, Ordering::Relaxed);
    }

    /// Changes the block size of an object that has at most one block, keeping its data (OpenZFS: `dnode_set_blksz`).
    pub fn set_block_size(&self, bytes: usize, tx: &Tx) -> Result<(), DmuError> {
        let bytes = bytes.max(1).next_multiple_of(SECTOR_BYTES);
        if bytes > BLOCK_BYTES_MAX {
            return Err(DmuError::Invalid);
        }
        loop {
            let (found, old_size) = {
                let state = self.contents.state.read();
                if state.core.freed {
                    return Err(DmuError::NoSuchObject);
                }
                if state.core.block_size == bytes {
                    return Ok(());
                }
                if state.core.max_block != 0 {
                    return Err(DmuError::NotSupported);
                }
                (state.find(0), state.core.block_size)
            };
            let old = match self.contents.fetch(0)? {
                Fetched::Zeros => None,
                Fetched::Dirty(block) => Some(block.data()),
                Fetched::Clean(data) => Some(data),
            };
            let resized = old.map(|old| {
                let keep = old.len().min(bytes);
                let mut new = Abd::scratch(bytes);
                let out = new.make_mut();
                old.copy_to(0, &mut out[..keep]);
                out[keep..].fill(0);
                new
            });
            let mut dropped = Dropped::default();
            let done = self.change(tx, |state| {
                if state.core.max_block != 0 || state.core.block_size != old_size || !is_same(&found, &state.find(0)) {
                    return Ok(false);
                }
                state.core.block_size = bytes;
                if let Some(resized) = resized {
                    let charged = self.charge_block(state, 0, bytes, tx);
                    dropped.push(state.insert(0, Record::Data(Arc::new(DirtyBlock::new(resized, charged))))?);
                }
                Ok(true)
            })?;
            self.give_back(&dropped, tx.txg());
            if done {
                return Ok(());
            }
        }
    }

    /// Replaces a block by one that comes as it is stored. Nobody reads one that is encrypted before its key is there; one that is only compressed
    /// stays as it came unless it is read or changed before its txg is synced.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] for a block that is not as long as the object's, or beyond the one block of an object whose block size is no power of two,
    /// and for compressed bytes that are none.
    pub fn put_stored(&self, block: BlockId, stored: StoredBlock, tx: &Tx) -> Result<(), DmuError> {
        let block_size = self.contents.block_size()?;
        let is_beyond = block.0 > 0 && !block_size.is_power_of_two();
        if is_beyond || stored.lsize != block_size || !stored.is_possible(BLOCK_BYTES_MAX) {
            return Err(DmuError::Invalid);
        }
        self.contents.warm_indirects(block.0, block.0)?;
        let mut dropped = Dropped::default();
        self.change(tx, |state| {
            if stored.lsize != state.core.block_size {
                return Err(DmuError::Invalid);
            }
            let charged = self.charge_block(state, block.0, stored.lsize, tx);
            let made = DirtyBlock::stored(stored.data.clone(), stored.form(), charged);
            dropped.push(state.insert(block.0, Record::Data(Arc::new(made)))?);
            Ok(())
        })?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }

    /// Replaces the spill block by one that comes as it is stored.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] for one that is too long, or when the bonus leaves no room for its pointer.
    pub fn set_stored_spill(&self, stored: StoredBlock, tx: &Tx) -> Result<(), DmuError> {
        if !stored.is_possible(SPILL_BYTES_MAX) {
            return Err(DmuError::Invalid);
        }
        tx.note_dirtied(2 * stored.lsize as u64);
        self.change(tx, |state| {
            let core = &mut state.core;
            let bonus = core.sealed_bonus.as_ref().map_or(core.bonus.len(), |bonus| bonus.len());
            if bonus_room(core.slots, core.block_ptr_count, true).is_none_or(|room| bonus > room) {
                return Err(DmuError::Invalid);
            }
            core.has_spill = true;
            let form = stored.form();
            state.newest()?.spill = SpillChange::Stored(stored.data, form);
            Ok(())
        })
    }

    /// Makes the object what a raw stream says of it.
    ///
    /// # Errors
    /// [`DmuError::Invalid`] for a bonus that does not fit beside the pointers, or a tree of fewer levels than it has.
    pub fn set_sealed(&self, sealed: &SealedObject, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            let levels = state.tree.levels;
            let core = &mut state.core;
            let room = bonus_room(core.slots, core.block_ptr_count, core.has_spill);
            let does_fit = room.is_some_and(|room| sealed.bonus.len() <= room) && sealed.bonus_len <= sealed.bonus.len();
            if !does_fit || sealed.levels < levels {
                return Err(DmuError::Invalid);
            }
            core.bonus = Arc::from(&sealed.bonus[..sealed.bonus_len]);
            core.sealed_bonus = Some(Arc::from(sealed.bonus.as_slice()));
            core.levels_min = sealed.levels;
            core.max_block = sealed.max_block.0;
            (core.checksum, core.compression) = (sealed.checksum, sealed.compression);
            Ok(())
        })
    }

    /// Sets the largest block that the object's record names, after what is behind it was freed.
    ///
    /// # Errors
    /// Those of a change.
    pub fn set_max_block(&self, block: BlockId, tx: &Tx) -> Result<(), DmuError> {
        self.change(tx, |state| {
            state.core.max_block = block.0;
            Ok(())
        })
    }
}
