//! Records of a stream: what the walk found becomes OBJECT, WRITE, FREE and the others, and neighbours become one (OpenZFS: `do_dump`).

use crate::SendError;
use crate::item::Block;
use crate::raw::marks_of;
use abd::Abd;
use ondisk::{BlockPtr, Checksum, Compression, DnodePhys, EmbeddedKind, Txg};
use std::io;
use stream::{
    Features, Free, FreeObjects, Object, ObjectRange, Record, Redact, Spill, TO_END, Write, WriteEmbedded, Writer, object_flags,
    spill_flags, write_flags,
};

/// Bytes of the largest block that every receiver takes (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const OLD_BLOCK_BYTES_MAX: usize = 128 << 10;

/// Form in which a block is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it lies in its pointer.
    Embedded,
    /// As it lies on devices, compressed.
    Compressed,
    /// As it lies on devices, of a raw stream.
    Stored,
    /// As programs see it.
    Plain,
}

/// Record that waits for a neighbour.
enum Pending {
    Nothing,
    Free(Free),
    FreeObjects(FreeObjects),
    Redact(Redact),
}

/// Records on their way to a sink.
pub(crate) struct Records<'w, W> {
    writer: &'w mut Writer<W>,
    toguid: u64,
    features: Features,
    /// Txg of the base.
    after: Txg,
    /// Number that no object reaches.
    objects_max: u64,
    pending: Pending,
}

impl<'w, W: io::Write> Records<'w, W> {
    pub(crate) fn new(writer: &'w mut Writer<W>, toguid: u64, features: Features, after: Txg) -> Records<'w, W> {
        Records { writer, toguid, features, after, objects_max: u64::MAX, pending: Pending::Nothing }
    }

    pub(crate) fn set_objects_max(&mut self, objects: u64) {
        self.objects_max = objects;
    }

    /// Ends the stream.
    pub(crate) fn finish(mut self) -> Result<(), SendError> {
        self.flush()?;
        Ok(self.writer.end(self.toguid)?)
    }

    /// Writes what waits, and no END.
    pub(crate) fn leave_open(mut self) -> Result<(), SendError> {
        self.flush()
    }

    /// True for blocks that go out in pieces: the receiver did not say that it takes larger ones.
    fn is_split(&self, block: &Block) -> bool {
        block.bp.lsize() > OLD_BLOCK_BYTES_MAX && !self.features.has(Features::LARGE_BLOCKS) && !block.is_spill && !self.is_raw()
    }

    /// Form in which a block is sent.
    pub(crate) fn form_of(&self, block: &Block) -> Form {
        let bp = &block.bp;
        if self.is_raw() && !bp.is_embedded() {
            return Form::Stored;
        }
        if block.is_spill || self.is_split(block) {
            return Form::Plain;
        }
        if bp.is_embedded() {
            return if self.can_embed(bp) { Form::Embedded } else { Form::Plain };
        }
        // What the receiver may have to swap goes uncompressed: it is metadata, or of the other byte order.
        let is_packed = bp.compression() != Compression::OFF && bp.is_little_endian() && !bp.object_type().is_metadata();
        if is_packed && self.features.has(Features::COMPRESSED) { Form::Compressed } else { Form::Plain }
    }

    /// True when a receiver of this stream knows the algorithm, and takes contents of pointers (OpenZFS: `send_do_embed`).
    fn can_embed(&self, bp: &BlockPtr) -> bool {
        let is_known = match bp.compression() {
            Compression::ZSTD => self.features.has(Features::ZSTD.with(Features::LZ4)),
            kind => kind.0 < Compression::LZ4.0 || self.features.has(Features::LZ4),
        };
        is_known && bp.embedded_kind() == EmbeddedKind::DATA && self.features.has(Features::EMBED_DATA)
    }

    /// True for a stream of what is encrypted, as it is stored.
    pub(crate) fn is_raw(&self) -> bool {
        self.features.has(Features::RAW)
    }

    /// Marks of a block of dnodes, where a receiver without a key needs them.
    pub(crate) fn dnodes(&mut self, bp: &BlockPtr, first: u64, count: u64) -> Result<(), SendError> {
        if !self.is_raw() {
            return Ok(());
        }
        let ((salt, iv, mac), flags) = marks_of(bp);
        let range = ObjectRange { firstobj: first, numslots: count, toguid: self.toguid, salt, iv, mac, flags };
        self.put(&Record::ObjectRange(range), &[])
    }

    /// An object, and that nothing is behind its end; `stored` is its bonus as it lies in the dnode.
    pub(crate) fn object(&mut self, object: u64, dnode: &DnodePhys, stored: &[u8]) -> Result<(), SendError> {
        let bytes = dnode.data_block_bytes();
        let is_large = bytes > OLD_BLOCK_BYTES_MAX && !self.features.has(Features::LARGE_BLOCKS);
        let mut bonus = dnode.bonus.clone();
        bonus.resize(bonus.len().next_multiple_of(8), 0);
        let record = Object {
            object,
            kind: u32::from(dnode.object_type.0),
            bonustype: u32::from(dnode.bonus_type.0),
            blksz: if is_large { OLD_BLOCK_BYTES_MAX } else { bytes } as u32,
            bonuslen: dnode.bonus.len() as u32,
            checksumtype: dnode.checksum.0,
            compress: dnode.compression.0,
            dn_slots: dnode.slots() as u8,
            flags: if dnode.spill.is_some() { object_flags::SPILL } else { 0 },
            toguid: self.toguid,
            ..Object::default()
        };
        if self.is_raw() {
            // What the receiver must make the same again, or MACs are others.
            let record = Object {
                raw_bonuslen: stored.len() as u32,
                indblkshift: dnode.indirect_shift,
                nlevels: dnode.levels,
                nblkptr: dnode.block_ptr_count,
                maxblkid: dnode.max_block.0,
                ..record
            };
            self.put(&Record::Object(record), stored)?;
        } else {
            self.put(&Record::Object(record), &bonus)?;
        }
        let end = dnode.max_block.0.checked_add(1).and_then(|blocks| blocks.checked_mul(bytes as u64));
        end.map_or(Ok(()), |end| self.free(object, end, TO_END))
    }

    /// Zeros: joined with those that end where they begin.
    pub(crate) fn free(&mut self, object: u64, offset: u64, length: u64) -> Result<(), SendError> {
        let length = if offset.checked_add(length).is_none() { TO_END } else { length };
        if let Pending::Free(free) = &mut self.pending
            && free.object == object
            && free.offset.checked_add(free.length) == Some(offset)
        {
            free.length = if length == TO_END { TO_END } else { free.length.saturating_add(length) };
            return Ok(());
        }
        self.flush()?;
        let free = Free { object, offset, length, toguid: self.toguid };
        if length == TO_END {
            return self.put(&Record::Free(free), &[]);
        }
        self.pending = Pending::Free(free);
        Ok(())
    }

    /// Bytes that are left out: joined with those that end where they begin.
    pub(crate) fn redact(&mut self, object: u64, offset: u64, length: u64) -> Result<(), SendError> {
        if let Pending::Redact(redact) = &mut self.pending
            && redact.object == object
            && redact.offset.checked_add(redact.length) == Some(offset)
        {
            redact.length = redact.length.saturating_add(length);
            return Ok(());
        }
        self.flush()?;
        self.pending = Pending::Redact(Redact { object, offset, length, toguid: self.toguid });
        Ok(())
    }

    /// Numbers without objects, as far as an old receiver can have them.
    pub(crate) fn free_objects(&mut self, first: u64, count: u64) -> Result<(), SendError> {
        let count = count.min(self.objects_max.saturating_sub(first));
        if count == 0 {
            return Ok(());
        }
        if let Pending::FreeObjects(objects) = &mut self.pending
            && objects.firstobj + objects.numobjs == first
        {
            objects.numobjs += count;
            return Ok(());
        }
        self.flush()?;
        self.pending = Pending::FreeObjects(FreeObjects { firstobj: first, numobjs: count, toguid: self.toguid });
        Ok(())
    }

    /// Contents of a block in a pointer.
    pub(crate) fn embedded(&mut self, block: &Block) -> Result<(), SendError> {
        let bp = &block.bp;
        let mut payload = bp.embedded_payload();
        let psize = payload.len();
        payload.resize(psize.next_multiple_of(8), 0);
        let record = WriteEmbedded {
            object: block.at.object.0,
            offset: block.offset,
            length: bp.lsize() as u64,
            toguid: self.toguid,
            compression: bp.compression().0,
            etype: bp.embedded_kind().0,
            lsize: bp.lsize() as u32,
            psize: psize as u32,
        };
        self.put(&Record::WriteEmbedded(record), &payload)
    }

    /// Contents of a block that was read in the form that it has here.
    pub(crate) fn block(&mut self, block: &Block, data: &Abd) -> Result<(), SendError> {
        match data.as_contiguous() {
            Some(bytes) => self.contents(block, bytes),
            None => self.contents(block, &data.to_vec()),
        }
    }

    fn contents(&mut self, block: &Block, data: &[u8]) -> Result<(), SendError> {
        if block.is_spill {
            return self.spill(block, data);
        }
        if self.is_split(block) {
            for (index, piece) in data.chunks(OLD_BLOCK_BYTES_MAX).enumerate() {
                let offset = block.offset.wrapping_add((index * OLD_BLOCK_BYTES_MAX) as u64);
                let write = Write { offset, logical_size: piece.len() as u64, checksumtype: Checksum::OFF.0, ..self.write(block) };
                self.put(&Record::Write(write), piece)?;
            }
            return Ok(());
        }
        let bp = &block.bp;
        let mut write = Write { logical_size: bp.lsize() as u64, ..self.write(block) };
        let form = self.form_of(block);
        if matches!(form, Form::Compressed | Form::Stored) {
            write.compressiontype = bp.compression().0;
            write.compressed_size = data.len() as u64;
        }
        // Half of the checksum of what is encrypted is a MAC.
        if bp.is_embedded() || bp.uses_crypt() && form != Form::Stored {
            write.checksumtype = Checksum::OFF.0;
        } else {
            write.checksumtype = bp.checksum_kind().0;
            write.flags = if tells_apart(bp.checksum_kind()) { write_flags::CHECKSUM_DEDUP } else { 0 };
            write.key_checksum = bp.checksum();
            write.key_prop = key_of(bp);
        }
        if form == Form::Stored {
            let (marks, flag) = marks_of(bp);
            (write.salt, write.iv, write.mac) = marks;
            write.flags |= flag;
        }
        self.put(&Record::Write(write), data)
    }

    /// Fields that every WRITE of a block has.
    fn write(&self, block: &Block) -> Write {
        Write { object: block.at.object.0, kind: u32::from(block.kind.0), offset: block.offset, toguid: self.toguid, ..Write::default() }
    }

    fn spill(&mut self, block: &Block, data: &[u8]) -> Result<(), SendError> {
        let flags = if block.bp.birth() <= self.after { spill_flags::UNMODIFIED } else { 0 };
        let mut record =
            Spill { object: block.at.object.0, length: block.bp.lsize() as u64, toguid: self.toguid, flags, ..Spill::default() };
        if self.form_of(block) == Form::Stored {
            let ((salt, iv, mac), flag) = marks_of(&block.bp);
            let (compressiontype, compressed_size) = (block.bp.compression().0, data.len() as u64);
            record = Spill { compressiontype, compressed_size, salt, iv, mac, flags: flags | flag, kind: block_kind(block), ..record };
        }
        self.put(&Record::Spill(record), data)
    }

    /// Writes a record behind the one that waited.
    fn put(&mut self, record: &Record, payload: &[u8]) -> Result<(), SendError> {
        self.flush()?;
        Ok(self.writer.record(record, payload)?)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        let waiting = match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => return Ok(()),
            Pending::Free(free) => Record::Free(free),
            Pending::FreeObjects(objects) => Record::FreeObjects(objects),
            Pending::Redact(redact) => Record::Redact(redact),
        };
        Ok(self.writer.record(&waiting, &[])?)
    }
}

/// Type of a spill block's contents, as a raw stream has it.
fn block_kind(block: &Block) -> u32 {
    u32::from(block.bp.object_type().0)
}

/// True for checksums that no two different blocks share (OpenZFS: `ZCHECKSUM_FLAG_DEDUP`).
fn tells_apart(checksum: Checksum) -> bool {
    matches!(checksum, Checksum::SHA256 | Checksum::SHA512 | Checksum::SKEIN | Checksum::BLAKE3)
}

/// Sizes and compression of a block as a dedup key has them (OpenZFS: `ddk_prop`).
fn key_of(bp: &BlockPtr) -> u64 {
    let sectors = |bytes: usize| (bytes as u64 >> 9).wrapping_sub(1) & 0xFFFF;
    sectors(bp.lsize()) | sectors(bp.psize()) << 16 | u64::from(bp.compression().0) << 32
}
