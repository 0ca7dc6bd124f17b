//! Records of raw streams: what they bring goes into the pool as it comes, encrypted and signed by somebody else, and no key is asked for (OpenZFS:
//! `receive_object_range`, and `receive_object`, `receive_write`, `receive_spill` with `rwa->raw`).
//!
//! The MACs that came cover how objects lie, too: levels, largest blocks, numbers of pointers become what they are where the stream comes from.

use crate::ReceiveError;
use crate::apply::{AROUND_BYTES, Place, free_range, object_type};
use crate::object::{DNODE_BYTES, Wanted, own_checksum, own_compression};
use crate::payload::stored;
use crate::receiver::Receiver;
use dmu::{Dnode, Marks, SealedObject};
use dsl::TxSpace;
use ondisk::{BlockId, ByteOrder, DNODE_SLOTS_PER_BLOCK, INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN, ObjectId, bonus_bytes_max};
use std::sync::Arc;
use stream::{Free, Object, ObjectRange, Spill, TO_END, Write, spill_flags, write_flags};

/// Most levels of an object's tree (OpenZFS: `DN_MAX_LEVELS`).
const LEVELS_MAX: u8 = 12;
/// Block pointers that a dnode can have.
const POINTERS: std::ops::RangeInclusive<u8> = 1..=3;

/// Refuses what lies in the other byte order: nobody here could read it with its key.
fn check_order(order: ByteOrder, flags: u8) -> Result<(), ReceiveError> {
    let is_swapped = flags & write_flags::RAW_BYTESWAP != 0;
    let is_little = (order == ByteOrder::Little) != is_swapped;
    if is_little { Ok(()) } else { Err(ReceiveError::Unsupported("raw streams of the other byte order")) }
}

/// Facts of an object as a record has them, with the bonus in `payload`; of blocks of so many bytes.
pub(crate) fn sealed_of(record: &Object, payload: &[u8], block_size: usize) -> Result<SealedObject, ReceiveError> {
    let invalid = ReceiveError::Invalid;
    let length = record.maxblkid.checked_add(1).and_then(|blocks| blocks.checked_mul(block_size as u64));
    let is_shaped = (1..=LEVELS_MAX).contains(&record.nlevels)
        && POINTERS.contains(&record.nblkptr)
        && (INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX).contains(&record.indblkshift)
        && length.is_some_and(|bytes| i64::try_from(bytes).is_ok());
    if !is_shaped || record.maxblkid > 0 && !block_size.is_power_of_two() {
        return Err(invalid("an object lies as none can"));
    }
    let bonus = payload.get(..record.raw_bonuslen as usize).ok_or(invalid("a bonus is short"))?;
    // What is left of the slots beside one pointer, which every dnode has.
    let room =
        bonus_bytes_max(usize::from(record.dn_slots.max(1))).saturating_sub(usize::from(record.nblkptr - 1) * ondisk::BlockPtr::BYTES);
    if bonus.len() > room || record.bonuslen as usize > bonus.len() {
        return Err(invalid("a bonus is longer than its room"));
    }
    let (checksum, compression) = (own_checksum(record.checksumtype), own_compression(record.compress));
    if (checksum.0, compression.0) != (record.checksumtype, record.compress) {
        return Err(ReceiveError::Unsupported("objects with algorithms of their own in raw streams"));
    }
    let (levels, max_block) = (record.nlevels, BlockId(record.maxblkid));
    Ok(SealedObject { levels, max_block, checksum, compression, bonus: bonus.to_vec(), bonus_len: record.bonuslen as usize })
}

impl Receiver {
    /// Applies the marks of a block of dnodes.
    pub(crate) fn object_range(&mut self, range: &ObjectRange, order: ByteOrder) -> Result<(), ReceiveError> {
        check_order(order, range.flags)?;
        if range.numslots != DNODE_SLOTS_PER_BLOCK as u64 {
            return Err(ReceiveError::Invalid("a block of dnodes has an impossible size"));
        }
        let marks = Marks { salt: range.salt, iv: range.iv, mac: range.mac };
        let tx = self.handle.assign(TxSpace::Writes(DNODE_BYTES))?;
        Ok(self.objset.note_marks(ObjectId(range.firstobj), marks, &tx)?)
    }

    /// Makes an object that is there what the record says.
    pub(crate) fn change_sealed(&self, dnode: &Arc<Dnode>, wanted: &Wanted, sealed: &SealedObject) -> Result<(), ReceiveError> {
        let (info, new) = (dnode.info()?, &wanted.new);
        let shape = (new.slots, new.block_ptr_count, new.indirect_shift);
        if shape != (info.slots, info.block_ptr_count, info.indirect_shift) || sealed.levels < info.levels {
            // It is another object, or all of it comes again.
            return self.replace(dnode, wanted, false);
        }
        if new.kind != info.kind || new.block_size != info.block_size {
            free_range(self, dnode, 0, TO_END)?;
        } else if info.max_block > sealed.max_block {
            free_range(self, dnode, (sealed.max_block.0 + 1) * info.block_size as u64, TO_END)?;
        }
        let tx = self.handle.assign(TxSpace::Writes(DNODE_BYTES))?;
        if info.has_spill && self.tells_spill && !wanted.has_spill {
            dnode.remove_spill(&tx)?;
        }
        if (info.kind, info.bonus_type) != (new.kind, new.bonus_type) {
            dnode.set_kind(new.kind, &tx)?;
            dnode.set_bonus_type(new.bonus_type, &tx)?;
        }
        if info.block_size != new.block_size {
            dnode.set_block_size(new.block_size, &tx)?;
        }
        Ok(dnode.set_sealed(sealed, &tx)?)
    }

    /// Stores a block as it comes; records of writes go forward only.
    pub(crate) fn write_stored(&mut self, write: &Write, payload: &[u8], at: Place) -> Result<(), ReceiveError> {
        check_order(at.order, write.flags)?;
        let dnode = self.held(write.object)?;
        let info = dnode.info()?;
        let size = info.block_size as u64;
        let id = write.offset / size;
        if object_type(write.kind)? != info.kind || !write.offset.is_multiple_of(size) || id > info.max_block.0 {
            return Err(ReceiveError::Invalid("a block is none of its object's"));
        }
        let place = (write.object, write.offset);
        if place < self.last {
            return Err(ReceiveError::Invalid("writes go back"));
        }
        let marks = Marks { salt: write.salt, iv: write.iv, mac: write.mac };
        let stored = stored(payload, (write.logical_size, write.compressiontype), Some(marks), self.features)?;
        let tx = self.handle.assign(TxSpace::Writes(size + AROUND_BYTES))?;
        dnode.put_stored(BlockId(id), stored, &tx)?;
        self.reached(place, at.bytes, &tx);
        Ok(())
    }

    /// Stores a spill block as it comes.
    pub(crate) fn spill_stored(&mut self, spill: &Spill, payload: &[u8], order: ByteOrder) -> Result<(), ReceiveError> {
        check_order(order, spill.flags)?;
        let dnode = self.held(spill.object)?;
        let info = dnode.info()?;
        // OpenZFS's senders leave the type out, and its receivers ask for a possible one only (`dump_spill`, `receive_spill`): it is the bonus's.
        object_type(spill.kind)?;
        if self.tells_spill && spill.flags & spill_flags::UNMODIFIED != 0 && info.has_spill {
            return Ok(());
        }
        let marks = Marks { salt: spill.salt, iv: spill.iv, mac: spill.mac };
        let stored = stored(payload, (spill.length, spill.compressiontype), Some(marks), self.features)?;
        let tx = self.handle.assign(TxSpace::Writes(spill.length + AROUND_BYTES))?;
        Ok(dnode.set_stored_spill(stored, &tx)?)
    }

    /// Frees whole blocks. The object ends where it ended: that is covered by its MAC, also where holes are at its end.
    pub(crate) fn free_sealed(&mut self, free: &Free) -> Result<(), ReceiveError> {
        let dnode = self.held(free.object)?;
        let info = dnode.info()?;
        let is_whole = |bytes: u64| bytes.is_multiple_of(info.block_size as u64);
        if !is_whole(free.offset) || free.length != TO_END && !is_whole(free.length) {
            return Err(ReceiveError::Invalid("a part of a block is freed that nobody can read"));
        }
        free_range(self, &dnode, free.offset, free.length)?;
        if dnode.info()?.max_block != info.max_block {
            let tx = self.handle.assign(TxSpace::Frees)?;
            dnode.set_max_block(info.max_block, &tx)?;
        }
        Ok(())
    }
}
