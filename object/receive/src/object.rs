//! Records of objects: one is made at its number, or becomes what the record says (OpenZFS: `receive_object`, `receive_handle_existing_object`).

use crate::apply::{free_range, object_type, ordinary};
use crate::receiver::Receiver;
use crate::sealed::sealed_of;
use crate::{ReceiveError, payload};
use dmu::{DmuError, Dnode, DnodeInfo, NewObject, SealedObject, Tx};
use dsl::TxSpace;
use ondisk::{BLOCK_BYTES_MAX, ByteOrder, Checksum, Compression, DNODE_SLOTS_MAX, ObjectId, ObjectType, SECTOR_BYTES, bonus_bytes_max};
use std::sync::Arc;
use stream::{Features, Object, TO_END, object_flags};

/// Largest block without the feature `large_blocks`, in bytes (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const OLD_BLOCK_BYTES_MAX: usize = 128 << 10;
/// Bytes of a block that every dataset can have, however it is encrypted.
const SEALED_BLOCK_BYTES: usize = BLOCK_BYTES_MAX / 2;
/// Bytes that a transaction announces for a dnode and what leads to it.
pub(crate) const DNODE_BYTES: u64 = 32 << 10;

/// Magic number of system attributes (OpenZFS: `SA_MAGIC`).
const SA_MAGIC: u32 = 0x2F_505A;
/// Offset of a file's generation behind the header of its system attributes (OpenZFS: `SA_GEN_OFFSET`).
const SA_GENERATION: usize = 16;
/// Offset of a file's generation in an old bonus (OpenZFS: `znode_phys_t`).
const ZNODE_GENERATION: usize = 64;

/// Properties of an object as a record has them, each possible by itself.
pub(crate) struct Wanted {
    pub(crate) new: NewObject,
    bonus: Vec<u8>,
    checksum: Checksum,
    compression: Compression,
    pub(crate) has_spill: bool,
    /// Facts of an object that comes raw.
    sealed: Option<SealedObject>,
}

impl Receiver {
    /// Applies a record of an object.
    pub(crate) fn object(&mut self, record: &Object, payload: &[u8], order: ByteOrder) -> Result<(), ReceiveError> {
        let wanted = self.wanted(record, payload, order)?;
        let object = ordinary(record.object)?;
        self.highest = self.highest.max(object.0);
        match self.objset.hold(object) {
            Ok(dnode) => match &wanted.sealed {
                Some(sealed) => self.change_sealed(&dnode, &wanted, sealed),
                None => self.change(&dnode, &wanted),
            },
            Err(DmuError::NoSuchObject) => self.claim(object, &wanted),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at what a record says of an object (OpenZFS: `recv_check_drr_object`).
    fn wanted(&self, record: &Object, payload: &[u8], order: ByteOrder) -> Result<Wanted, ReceiveError> {
        let invalid = ReceiveError::Invalid;
        let slots = record.dn_slots.max(1);
        let block_size = record.blksz as usize;
        let is_block = (SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&block_size) && block_size.is_multiple_of(SECTOR_BYTES);
        if !is_block || block_size > OLD_BLOCK_BYTES_MAX && !self.features.has(Features::LARGE_BLOCKS) {
            return Err(invalid("an object has blocks of an impossible size"));
        }
        if block_size > SEALED_BLOCK_BYTES && block_size > self.handle.block_bytes_max()? {
            return Err(ReceiveError::Unsupported("blocks of more than 8 MiB in a dataset that is encrypted with CCM"));
        }
        if usize::from(slots) > DNODE_SLOTS_MAX || slots > 1 && !self.features.has(Features::LARGE_DNODE) {
            return Err(invalid("a dnode is larger than the stream may have"));
        }
        let (kind, bonus_type) = (object_type(record.kind)?, object_type(record.bonustype)?);
        let bonus = payload.get(..record.bonuslen as usize).ok_or(invalid("a bonus is short"))?;
        if kind == ObjectType::NONE || bonus.len() > bonus_bytes_max(usize::from(slots)) {
            return Err(invalid("an object without a type, or with too long a bonus"));
        }
        let mut bonus = bonus.to_vec();
        let new = NewObject { block_size, bonus_type, bonus_len: bonus.len(), slots, ..NewObject::new(kind) };
        let (new, sealed) = if self.is_raw() {
            let sealed = sealed_of(record, payload, block_size)?;
            (NewObject { indirect_shift: record.indblkshift, block_ptr_count: record.nblkptr, ..new }, Some(sealed))
        } else {
            payload::into_order(&mut bonus, bonus_type, order);
            (new, None)
        };
        Ok(Wanted {
            new,
            sealed,
            bonus,
            checksum: own_checksum(record.checksumtype),
            compression: own_compression(record.compress),
            has_spill: record.flags & object_flags::SPILL != 0,
        })
    }

    /// Makes an object that is not there. Others in the slots that it needs go first.
    fn claim(&self, object: ObjectId, wanted: &Wanted) -> Result<(), ReceiveError> {
        for slot in 1..u64::from(wanted.new.slots) {
            let slot = ObjectId(object.0.saturating_add(slot));
            if self.objset.hold(slot).is_ok() {
                self.free_object(slot)?;
            }
        }
        if self.try_claim(object, wanted)? {
            return Ok(());
        }
        // The slots of what was freed can be used once that is on disk.
        self.wait_synced()?;
        if self.try_claim(object, wanted)? { Ok(()) } else { Err(DmuError::ObjectExists.into()) }
    }

    /// Makes an object at its number; false while something is in its slots.
    fn try_claim(&self, object: ObjectId, wanted: &Wanted) -> Result<bool, ReceiveError> {
        let tx = self.handle.assign(TxSpace::Writes(DNODE_BYTES))?;
        match self.objset.claim_object(object, wanted.new, &tx) {
            Ok(dnode) => {
                wanted.store(&dnode, &tx)?;
                Ok(true)
            }
            Err(DmuError::ObjectExists) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an object that is there what the record says.
    fn change(&self, dnode: &Arc<Dnode>, wanted: &Wanted) -> Result<(), ReceiveError> {
        let info = dnode.info()?;
        let (block_size, clears) = self.resized(dnode, &info, wanted)?;
        let is_changed = wanted.differs(&info, block_size);
        let keeps_spill = if self.tells_spill { wanted.has_spill } else { !is_changed };
        let room = info.bonus_max + usize::from(info.has_spill && !keeps_spill) * ondisk::BlockPtr::BYTES;
        // What has its pointers elsewhere is another file at the same number.
        let is_other = wanted.new.slots != info.slots || wanted.new.bonus_type != info.bonus_type || wanted.bonus.len() > room;
        if is_other {
            return self.replace(dnode, wanted, keeps_spill);
        }
        if clears {
            free_range(self, dnode, 0, TO_END)?;
        }
        let tx = self.handle.assign(TxSpace::Writes(DNODE_BYTES + block_size as u64))?;
        if info.has_spill && !keeps_spill {
            dnode.remove_spill(&tx)?;
        }
        if info.kind != wanted.new.kind {
            dnode.set_kind(wanted.new.kind, &tx)?;
        }
        if info.block_size != block_size {
            dnode.set_block_size(block_size, &tx)?;
        }
        Ok(wanted.store(dnode, &tx)?)
    }

    /// Makes an object anew at its number; a spill block that the record means to be there comes along.
    pub(crate) fn replace(&self, dnode: &Arc<Dnode>, wanted: &Wanted, keeps_spill: bool) -> Result<(), ReceiveError> {
        let object = dnode.object();
        let spill = if keeps_spill { dnode.spill()? } else { None };
        self.free_object(object)?;
        self.claim(object, wanted)?;
        match spill {
            Some(spill) => {
                let tx = self.handle.assign(TxSpace::Writes(DNODE_BYTES + spill.len() as u64))?;
                Ok(self.objset.hold(object)?.set_spill(spill, &tx)?)
            }
            None => Ok(()),
        }
    }

    /// Size that the object's blocks get, and whether its contents go for that: they do not where a file that was sent in small blocks is now sent
    /// in large ones, since only what changed is sent again.
    fn resized(&self, dnode: &Dnode, info: &DnodeInfo, wanted: &Wanted) -> Result<(usize, bool), ReceiveError> {
        let new = wanted.new.block_size;
        if new == info.block_size {
            return Ok((new, false));
        }
        let is_file = |kind: ObjectType| kind == ObjectType::PLAIN_FILE_CONTENTS;
        let is_replaced = self.is_full || !is_file(wanted.new.kind) || !is_file(info.kind) || info.max_block.0 == 0;
        if is_replaced || generation(info.bonus_type, &dnode.bonus()?) != generation(wanted.new.bonus_type, &wanted.bonus) {
            return Ok((new, true));
        }
        if new < info.block_size {
            return Err(ReceiveError::Invalid("the blocks of a file shrink"));
        }
        Ok((info.block_size, false))
    }
}

impl Wanted {
    fn store(&self, dnode: &Dnode, tx: &Tx) -> Result<(), DmuError> {
        if let Some(sealed) = &self.sealed {
            return dnode.set_sealed(sealed, tx);
        }
        dnode.set_bonus(&self.bonus, tx)?;
        dnode.set_checksum(self.checksum, tx)?;
        dnode.set_compression(self.compression, tx)
    }

    /// True when OpenZFS would make the object anew in its place.
    fn differs(&self, info: &DnodeInfo, block_size: usize) -> bool {
        self.new.kind != info.kind
            || block_size != info.block_size
            || self.new.bonus_type != info.bonus_type
            || self.bonus.len() != info.bonus_len
    }
}

/// Generation of a file, by its bonus; None where that does not tell (OpenZFS: `zpl_get_file_info`).
fn generation(kind: ObjectType, bonus: &[u8]) -> Option<u64> {
    let (at, is_foreign) = match kind {
        ObjectType::ZNODE => (ZNODE_GENERATION, false),
        ObjectType::SA => {
            let magic: [u8; 4] = bonus.get(..4)?.try_into().ok()?;
            let layout: [u8; 2] = bonus.get(4..6)?.try_into().ok()?;
            let (layout, is_foreign) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
                (SA_MAGIC, _) => (u16::from_le_bytes(layout), false),
                (_, SA_MAGIC) => (u16::from_be_bytes(layout), true),
                _ => return None,
            };
            // Six bits of the header count its bytes by eight.
            (usize::from(layout >> 10) * 8 + SA_GENERATION, is_foreign)
        }
        _ => return None,
    };
    let bytes: [u8; 8] = bonus.get(at..at + 8)?.try_into().ok()?;
    Some(if is_foreign { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
}

/// An object's own checksum, where every pool has that; else the dataset's.
pub(crate) fn own_checksum(number: u8) -> Checksum {
    let checksum = Checksum(number);
    let known = [Checksum::ON, Checksum::FLETCHER_2, Checksum::FLETCHER_4, Checksum::SHA256];
    if known.contains(&checksum) { checksum } else { Checksum::INHERIT }
}

/// An object's own compression, where every pool has that; else the dataset's.
pub(crate) fn own_compression(number: u8) -> Compression {
    let compression = Compression(number);
    let known = [Compression::ON, Compression::OFF, Compression::LZJB, Compression::ZLE, Compression::LZ4];
    if known.contains(&compression) { compression } else { Compression::INHERIT }
}
