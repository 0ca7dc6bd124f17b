//! What comes raw into an object set that is encrypted: blocks as they are stored, and dnodes of which nobody here can read the bonus (OpenZFS:
//! `dmu_assign_arcbuf_by_dnode` with raw buffers, `dmu_convert_mdn_block_to_raw`).
//!
//! The MACs of a raw stream were made elsewhere. All that they cover has to lie here as it lies there: the levels of a tree, the largest block, the
//! number of pointers, a bonus to the end of its room.

use super::dirty::{DirtyBlock, Dropped, Record};
use super::form::{SealedObject, StoredBlock};
use super::state::SpillChange;
use super::{Dnode, SPILL_BYTES_MAX, bonus_room};
use crate::{DmuError, Tx};
use ondisk::{BLOCK_BYTES_MAX, BlockId};
use std::sync::Arc;

impl Dnode {
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
