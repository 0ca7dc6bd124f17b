//! Records that change the contents of objects: writes, frees, spill blocks (OpenZFS: `receive_write`, `receive_free`, `receive_spill` …).

use crate::receiver::Receiver;
use crate::{ReceiveError, payload};
use abd::Abd;
use dmu::{DmuError, Dnode, Tx};
use dsl::TxSpace;
use ondisk::{BlockId, ByteOrder, Compression, EmbeddedKind, OBJECT_NUMBER_SHIFT, ObjectId, ObjectType, SECTOR_BYTES};
use std::sync::Arc;
use stream::{Features, Free, FreeObjects, Record, Redact, Spill, TO_END, Write, WriteEmbedded, spill_flags};

/// Bytes that a transaction announces besides the data of a block: its dnode and what leads to it.
pub(crate) const AROUND_BYTES: u64 = 4 << 10;

/// Number that senders of OpenZFS 2.3 give an embedded spill block, as if it were one of the object's data (OpenZFS: `DMU_SPILL_BLKID`; its issue 19091).
const SPILL_BLOCK: u64 = u64::MAX - 1;

/// Place of a record in its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Byte order of the stream.
    pub order: ByteOrder,
    /// Bytes of the stream up to the end of the record.
    pub bytes: u64,
}

impl Receiver {
    /// Applies a record, whose checksum was compared, with its payload; `order` is the stream's, and `bytes` of it were read so far.
    ///
    /// # Errors
    /// A record that contradicts the format or what is there; those of the pool. The receive can only be given up then.
    pub fn apply(&mut self, record: &Record, payload: &[u8], order: ByteOrder, bytes: u64) -> Result<(), ReceiveError> {
        let at = Place { order, bytes };
        match record {
            Record::Object(object) => self.object(object, payload, order),
            Record::FreeObjects(objects) => self.free_objects(objects),
            Record::ObjectRange(range) if self.is_raw() => self.object_range(range, order),
            Record::Write(write) if self.is_raw() => self.write_stored(write, payload, at),
            Record::Spill(spill) if self.is_raw() => self.spill_stored(spill, payload, order),
            Record::WriteEmbedded(_) if self.is_raw() => Err(ReceiveError::Invalid("contents of a pointer in a raw stream")),
            Record::Write(write) => self.write(write, payload, at),
            Record::WriteEmbedded(write) => self.write_embedded(write, payload, at),
            Record::Free(free) => self.free(free),
            Record::Spill(spill) => self.spill(spill, payload, order),
            Record::Begin(_) | Record::End(_) => Err(ReceiveError::Invalid("a head or an end among records")),
            Record::WriteByRef(_) => Err(ReceiveError::Invalid("a record of deduplicated streams")),
            Record::ObjectRange(_) => Err(ReceiveError::Invalid("a record of raw streams in another one")),
            Record::Redact(redact) if self.features.has(Features::REDACTED) => self.redact(redact),
            Record::Redact(_) => Err(ReceiveError::Invalid("a record of redacted streams in another one")),
        }
    }

    /// The object of a record.
    pub(crate) fn held(&self, object: u64) -> Result<Arc<Dnode>, ReceiveError> {
        Ok(self.objset.hold(ordinary(object)?)?)
    }

    fn write(&mut self, write: &Write, payload: &[u8], at: Place) -> Result<(), ReceiveError> {
        let dnode = self.held(write.object)?;
        let kind = object_type(write.kind)?;
        let info = dnode.info()?;
        if self.keeps(write, info.block_size as u64, at.order) {
            let block = payload::stored(payload, (write.logical_size, write.compressiontype), None, self.features)?;
            let id = BlockId(write.offset / info.block_size as u64);
            return self.put(&dnode, (write.offset, info.block_size), at, |tx| dnode.put_stored(id, block, tx));
        }
        let data = payload::block(payload, write.logical_size, write.compressiontype, (kind, at.order))?;
        self.put_data(&dnode, write.offset, &data, at)
    }

    /// True for a record whose block is stored as it came, without being compressed anew, whatever properties say: it is all of one of the object, of
    /// an algorithm that pools have for this stream, in our byte order, and nothing here encrypts it (OpenZFS: `ZIO_FLAG_RAW_COMPRESS` in
    /// `flush_write_batch_impl`).
    fn keeps(&self, write: &Write, block_size: u64, order: ByteOrder) -> bool {
        let is_had = match Compression(write.compressiontype) {
            Compression::LZ4 => self.features.has(Features::LZ4),
            Compression::ZSTD => self.features.has(Features::ZSTD),
            Compression::LZJB | Compression::ZLE => true,
            Compression(number) => (Compression::GZIP_1.0..=Compression::GZIP_9.0).contains(&number),
        };
        let is_block = write.logical_size == block_size && write.offset.is_multiple_of(block_size);
        let is_possible = write.offset == 0 || block_size.is_power_of_two();
        let is_shorter = write.compressed_size < block_size && write.compressed_size.is_multiple_of(SECTOR_BYTES as u64);
        is_had && is_block && is_possible && is_shorter && order == ByteOrder::Little && self.keeps_blocks
    }

    fn write_embedded(&mut self, write: &WriteEmbedded, payload: &[u8], at: Place) -> Result<(), ReceiveError> {
        let dnode = self.held(write.object)?;
        if EmbeddedKind(write.etype) != EmbeddedKind::DATA {
            return Err(ReceiveError::Invalid("an embedded block that is no data"));
        }
        let stored = payload.get(..write.psize as usize).ok_or(ReceiveError::Invalid("an embedded block is short"))?;
        let info = dnode.info()?;
        let compression = if Compression(write.compression) == Compression::OFF { 0 } else { write.compression };
        let block = |kind| payload::block(stored, u64::from(write.lsize), compression, (kind, at.order));
        // OpenZFS 2.3 sends a spill block that is embedded like this, and no file reaches so far.
        if info.bonus_type == ObjectType::SA && write.offset == SPILL_BLOCK.wrapping_mul(write.length) {
            return self.put_spill(&dnode, block(info.bonus_type)?);
        }
        self.put_data(&dnode, write.offset, &block(info.kind)?, at)
    }

    fn put_data(&mut self, dnode: &Dnode, offset: u64, data: &[u8], at: Place) -> Result<(), ReceiveError> {
        self.put(dnode, (offset, data.len()), at, |tx| dnode.write_abd(offset, Abd::from_slice(data), tx))
    }

    /// Has `store` write what a record brings, so many bytes at an offset; records of writes go forward only.
    fn put(
        &mut self,
        dnode: &Dnode,
        (offset, length): (u64, usize),
        at: Place,
        store: impl FnOnce(&Tx) -> Result<(), DmuError>,
    ) -> Result<(), ReceiveError> {
        let place = (dnode.object().0, offset);
        if place < self.last {
            return Err(ReceiveError::Invalid("writes go back"));
        }
        offset.checked_add(length as u64).ok_or(ReceiveError::Invalid("a write goes beyond the largest offset"))?;
        dnode.prepare_write(offset, length)?;
        let tx = self.handle.assign(TxSpace::Writes(length as u64 + AROUND_BYTES))?;
        store(&tx)?;
        self.reached(place, at.bytes, &tx);
        Ok(())
    }

    fn free(&mut self, free: &Free) -> Result<(), ReceiveError> {
        if free.length != TO_END && free.offset.checked_add(free.length).is_none() {
            return Err(ReceiveError::Invalid("what is freed goes beyond the largest offset"));
        }
        if self.is_raw() {
            return self.free_sealed(free);
        }
        let dnode = self.held(free.object)?;
        free_range(self, &dnode, free.offset, free.length)
    }

    /// Blocks that were left out are holes here, as with OpenZFS (`receive_redact`): that the dataset lacks some keeps others from using it.
    fn redact(&mut self, redact: &Redact) -> Result<(), ReceiveError> {
        let Redact { object, offset, length, toguid } = *redact;
        self.free(&Free { object, offset, length, toguid })
    }

    fn free_objects(&mut self, objects: &FreeObjects) -> Result<(), ReceiveError> {
        let end = objects.firstobj.checked_add(objects.numobjs).ok_or(ReceiveError::Invalid("freed objects go beyond the last number"))?;
        self.free_between(objects.firstobj.saturating_sub(1), end)
    }

    /// Frees all objects above a number.
    pub(crate) fn free_above(&self, number: u64) -> Result<(), ReceiveError> {
        self.free_between(number, u64::MAX)
    }

    /// Frees the objects above a number and below another one.
    fn free_between(&self, number: u64, end: u64) -> Result<(), ReceiveError> {
        let mut after = ObjectId(number);
        while let Some(object) = self.objset.next_object(after)?.filter(|object| object.0 < end) {
            self.free_object(object)?;
            after = object;
        }
        Ok(())
    }

    /// Frees an object that may be gone already.
    pub(crate) fn free_object(&self, object: ObjectId) -> Result<(), ReceiveError> {
        let tx = self.handle.assign(TxSpace::Frees)?;
        match self.objset.free_object(object, &tx) {
            Ok(()) | Err(DmuError::NoSuchObject) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn spill(&mut self, spill: &Spill, payload: &[u8], order: ByteOrder) -> Result<(), ReceiveError> {
        let dnode = self.held(spill.object)?;
        let is_known = self.tells_spill && spill.flags & spill_flags::UNMODIFIED != 0;
        if is_known && dnode.info()?.has_spill {
            return Ok(());
        }
        self.put_spill(&dnode, payload::block(payload, spill.length, spill.compressiontype, (dnode.info()?.bonus_type, order))?)
    }

    fn put_spill(&self, dnode: &Dnode, data: Vec<u8>) -> Result<(), ReceiveError> {
        if data.len() < SECTOR_BYTES {
            return Err(ReceiveError::Invalid("a spill block is shorter than a sector"));
        }
        let tx = self.handle.assign(TxSpace::Writes(data.len() as u64 + AROUND_BYTES))?;
        Ok(dnode.set_spill(Abd::from_slice(&data), &tx)?)
    }
}

/// Frees bytes of an object; [`TO_END`] goes to its end.
pub(crate) fn free_range(receiver: &Receiver, dnode: &Dnode, offset: u64, length: u64) -> Result<(), ReceiveError> {
    dnode.prepare_free(offset, length)?;
    let tx = receiver.handle.assign(TxSpace::Frees)?;
    Ok(dnode.free_range(offset, length, &tx)?)
}

/// Type that a record names. Those whose blocks hold pointers of the pool's own are no object's: whoever walks over them would follow what the
/// stream put there, and free it.
pub(crate) fn object_type(number: u32) -> Result<ObjectType, ReceiveError> {
    const OF_POOLS: [ObjectType; 3] = [ObjectType::INTENT_LOG, ObjectType::DNODE, ObjectType::OBJSET];
    let kind = u8::try_from(number).ok().map(ObjectType);
    let kind = kind.filter(|kind| kind.is_valid() && !OF_POOLS.contains(kind));
    kind.ok_or(ReceiveError::Invalid("an object of an impossible type"))
}

/// Number of an object that streams may have: neither the dnode of dnodes nor an object that counts what users have.
pub(crate) fn ordinary(object: u64) -> Result<ObjectId, ReceiveError> {
    let is_ordinary = object != 0 && object >> OBJECT_NUMBER_SHIFT == 0;
    if is_ordinary { Ok(ObjectId(object)) } else { Err(ReceiveError::Invalid("an object has an impossible number")) }
}
