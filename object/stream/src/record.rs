//! Replay records: their fields, at the offsets at which they lie, in both byte orders (OpenZFS: `dmu_replay_record_t`).
//!
//! Nothing here judges values but the type of a record and the length of its payload: that is up to who applies them.

use crate::{LIST_BYTES_MAX, MAGIC, RECORD_BYTES};
use ondisk::record::Field;
use ondisk::{BLOCK_BYTES_MAX, ByteOrder, EMBEDDED_PAYLOAD_BYTES};
use std::fmt;

/// Bytes of a dataset's name in a record, the zero at its end among them.
pub const NAME_BYTES: usize = 256;
/// Bytes of the longest bonus: a dnode of the most slots has no more.
const BONUS_BYTES_MAX: u64 = 16 << 10;

/// Name of a snapshot in a header: bytes up to the first zero.
#[derive(Clone, PartialEq, Eq)]
pub struct StreamName(pub [u8; NAME_BYTES]);

impl StreamName {
    /// The name with this text; None when it is too long.
    pub fn new(text: &str) -> Option<StreamName> {
        let mut bytes = [0; NAME_BYTES];
        bytes[..NAME_BYTES - 1].get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(StreamName(bytes))
    }
    /// Bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or(&self.0)
    }
    /// The name as text; None when it is no UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        str::from_utf8(self.as_bytes()).ok()
    }
}
impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}
impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}
impl Field for StreamName {
    const BYTES: usize = NAME_BYTES;
    const ZERO: Self = StreamName([0; NAME_BYTES]);
    fn get(bytes: &[u8], order: ByteOrder) -> Self {
        StreamName(Field::get(bytes, order))
    }
    fn put(&self, out: &mut [u8], order: ByteOrder) {
        self.0.put(out, order);
    }
}

/// Declares records by the offsets of their fields; what lies between is zero.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $offset:literal => $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the standard's field names")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }
        impl $name {
            fn get(bytes: &[u8; RECORD_BYTES], order: ByteOrder) -> $name {
                $name { $($field: <$kind as Field>::get(&bytes[$offset..], order),)* }
            }
            fn put(&self, out: &mut [u8; RECORD_BYTES], order: ByteOrder) {
                $(Field::put(&self.$field, &mut out[$offset..$offset + <$kind as Field>::BYTES], order);)*
            }
        }
        impl Default for $name {
            fn default() -> $name {
                $name { $($field: <$kind as Field>::ZERO,)* }
            }
        }
    )*};
}

layouts! {
    /// Head of a stream or substream. The magic number is written by the codec.
    Begin {
        /// Bytes of the list that follows; [`crate::Writer::begin`] sets it.
        4 => payload_bytes: u32,
        /// Type and features; see [`crate::Features::versioninfo`].
        16 => versioninfo: u64,
        /// Creation of the snapshot, seconds since 1970.
        24 => creation_time: u64,
        /// Kind of the object set: number of an [`ondisk::ObjsetType`].
        32 => kind: u32,
        /// See [`crate::begin_flags`].
        36 => flags: u32,
        40 => toguid: u64,
        /// Guid of the snapshot or bookmark that the stream starts from; 0: none.
        48 => fromguid: u64,
        56 => toname: StreamName,
    }
    /// An object exists; what it has below may follow. Its payload is the bonus.
    Object {
        8 => object: u64,
        /// Number of an [`ondisk::ObjectType`].
        16 => kind: u32,
        20 => bonustype: u32,
        /// Block size, in bytes.
        24 => blksz: u32,
        28 => bonuslen: u32,
        32 => checksumtype: u8,
        33 => compress: u8,
        /// Slots of the dnode; 0: one.
        34 => dn_slots: u8,
        /// See [`crate::object_flags`].
        35 => flags: u8,
        /// Bytes of a raw bonus; 0: the payload is `bonuslen`, rounded up to 8.
        36 => raw_bonuslen: u32,
        40 => toguid: u64,
        48 => indblkshift: u8,
        49 => nlevels: u8,
        50 => nblkptr: u8,
        56 => maxblkid: u64,
    }
    /// Objects of these numbers are not there.
    FreeObjects {
        8 => firstobj: u64,
        16 => numobjs: u64,
        24 => toguid: u64,
    }
    /// Contents of a block, or of a part of it. Its payload is the data.
    Write {
        8 => object: u64,
        16 => kind: u32,
        24 => offset: u64,
        /// Bytes of data when they are decompressed.
        32 => logical_size: u64,
        40 => toguid: u64,
        48 => checksumtype: u8,
        /// See [`crate::write_flags`].
        49 => flags: u8,
        /// Number of an [`ondisk::Compression`]; 0: the payload is not compressed.
        50 => compressiontype: u8,
        56 => key_checksum: [u64; 4],
        /// Sizes and compression of the block that the checksum is of, as in a dedup key.
        88 => key_prop: u64,
        /// Bytes of a compressed payload.
        96 => compressed_size: u64,
        104 => salt: [u8; 8],
        112 => iv: [u8; 12],
        124 => mac: [u8; 16],
    }
    /// Bytes of an object are zeros. To its end: a length of [`crate::TO_END`].
    Free {
        8 => object: u64,
        16 => offset: u64,
        24 => length: u64,
        32 => toguid: u64,
    }
    /// End of a substream, or of a package's list.
    End {
        /// Sum of everything before this record.
        8 => checksum: [u64; 4],
        40 => toguid: u64,
    }
    /// Contents of a spill block. Its payload is the block.
    Spill {
        8 => object: u64,
        /// Bytes of the block.
        16 => length: u64,
        24 => toguid: u64,
        /// See [`crate::spill_flags`].
        32 => flags: u8,
        33 => compressiontype: u8,
        40 => compressed_size: u64,
        48 => salt: [u8; 8],
        56 => iv: [u8; 12],
        68 => mac: [u8; 16],
        84 => kind: u32,
    }
    /// A block whose compressed contents lie in its pointer. Its payload is these, rounded up to 8 bytes.
    WriteEmbedded {
        8 => object: u64,
        16 => offset: u64,
        24 => length: u64,
        32 => toguid: u64,
        40 => compression: u8,
        /// Kind of what is embedded; 0: data.
        41 => etype: u8,
        48 => lsize: u32,
        52 => psize: u32,
    }
    /// A block whose contents an earlier [`Write`] of the stream has: deduplicated streams, which nobody makes any more, have these.
    WriteByRef {
        8 => object: u64,
        16 => offset: u64,
        24 => length: u64,
        32 => toguid: u64,
        /// Snapshot, object and offset of the earlier one.
        40 => refguid: u64,
        48 => refobject: u64,
        56 => refoffset: u64,
        64 => checksumtype: u8,
        /// See [`crate::write_flags`].
        65 => flags: u8,
        72 => key_checksum: [u64; 4],
        /// As in [`Write`].
        104 => key_prop: u64,
    }
    /// Keys of a block of dnodes of a raw stream.
    ObjectRange {
        8 => firstobj: u64,
        16 => numslots: u64,
        24 => toguid: u64,
        32 => salt: [u8; 8],
        40 => iv: [u8; 12],
        52 => mac: [u8; 16],
        68 => flags: u8,
    }
    /// Bytes of an object were left out of a redacted stream.
    Redact {
        8 => object: u64,
        16 => offset: u64,
        24 => length: u64,
        32 => toguid: u64,
    }
}

/// One record of a stream, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the standard's types")]
pub enum Record {
    Begin(Begin),
    Object(Object),
    FreeObjects(FreeObjects),
    Write(Write),
    Free(Free),
    End(End),
    WriteByRef(WriteByRef),
    Spill(Spill),
    WriteEmbedded(WriteEmbedded),
    ObjectRange(ObjectRange),
    Redact(Redact),
}

/// Reason why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The magic number of a [`Begin`] is not there.
    Magic,
    /// A type that nobody sends.
    Type(u32),
}
impl DecodeError {
    /// Words for people.
    pub fn what(self) -> &'static str {
        match self {
            DecodeError::Magic => "the magic number is missing",
            DecodeError::Type(_) => "unknown type of a record",
        }
    }
}
impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}
impl std::error::Error for DecodeError {}

impl Record {
    /// Number of the type (OpenZFS: `drr_type`).
    pub fn number(&self) -> u32 {
        match self {
            Record::Begin(_) => 0,
            Record::Object(_) => 1,
            Record::FreeObjects(_) => 2,
            Record::Write(_) => 3,
            Record::Free(_) => 4,
            Record::End(_) => 5,
            Record::WriteByRef(_) => 6,
            Record::Spill(_) => 7,
            Record::WriteEmbedded(_) => 8,
            Record::ObjectRange(_) => 9,
            Record::Redact(_) => 10,
        }
    }

    /// Name of the type, as `zstream dump` shows it.
    pub fn name(&self) -> &'static str {
        match self {
            Record::Begin(_) => "BEGIN",
            Record::Object(_) => "OBJECT",
            Record::FreeObjects(_) => "FREEOBJECTS",
            Record::Write(_) => "WRITE",
            Record::Free(_) => "FREE",
            Record::End(_) => "END",
            Record::WriteByRef(_) => "WRITE_BYREF",
            Record::Spill(_) => "SPILL",
            Record::WriteEmbedded(_) => "WRITE_EMBEDDED",
            Record::ObjectRange(_) => "OBJECT_RANGE",
            Record::Redact(_) => "REDACT",
        }
    }

    /// Bytes of the record, little-endian; the running checksum is left zero.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        self.encode_order(ByteOrder::Little)
    }

    /// As [`Record::encode`], in a byte order.
    pub fn encode_order(&self, order: ByteOrder) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        self.number().put(&mut out[..4], order);
        match self {
            Record::Begin(begin) => {
                MAGIC.put(&mut out[8..16], order);
                begin.put(&mut out, order);
            }
            Record::Object(object) => object.put(&mut out, order),
            Record::FreeObjects(objects) => objects.put(&mut out, order),
            Record::Write(write) => write.put(&mut out, order),
            Record::Free(free) => free.put(&mut out, order),
            Record::End(end) => end.put(&mut out, order),
            Record::WriteByRef(write) => write.put(&mut out, order),
            Record::Spill(spill) => spill.put(&mut out, order),
            Record::WriteEmbedded(write) => write.put(&mut out, order),
            Record::ObjectRange(range) => range.put(&mut out, order),
            Record::Redact(redact) => redact.put(&mut out, order),
        }
        out
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A type that is unknown or dead, a BEGIN without its magic number.
    pub fn decode(bytes: &[u8; RECORD_BYTES], order: ByteOrder) -> Result<Record, DecodeError> {
        Ok(match u32::get(bytes, order) {
            0 if u64::get(&bytes[8..], order) != MAGIC => return Err(DecodeError::Magic),
            0 => Record::Begin(Begin::get(bytes, order)),
            1 => Record::Object(Object::get(bytes, order)),
            2 => Record::FreeObjects(FreeObjects::get(bytes, order)),
            3 => Record::Write(Write::get(bytes, order)),
            4 => Record::Free(Free::get(bytes, order)),
            5 => Record::End(End::get(bytes, order)),
            6 => Record::WriteByRef(WriteByRef::get(bytes, order)),
            7 => Record::Spill(Spill::get(bytes, order)),
            8 => Record::WriteEmbedded(WriteEmbedded::get(bytes, order)),
            9 => Record::ObjectRange(ObjectRange::get(bytes, order)),
            10 => Record::Redact(Redact::get(bytes, order)),
            number => return Err(DecodeError::Type(number)),
        })
    }

    /// Length of the payload that follows, in bytes. It is what the record claims: compare with [`Record::payload_bytes_max`].
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Record::Begin(begin) => u64::from(begin.payload_bytes),
            Record::Object(object) if object.raw_bonuslen != 0 => u64::from(object.raw_bonuslen),
            Record::Object(object) => u64::from(object.bonuslen).next_multiple_of(8),
            Record::Write(write) if write.compressiontype != 0 => write.compressed_size,
            Record::Write(write) => write.logical_size,
            Record::Spill(spill) if spill.compressiontype != 0 => spill.compressed_size,
            Record::Spill(spill) => spill.length,
            Record::WriteEmbedded(write) => u64::from(write.psize).next_multiple_of(8),
            Record::FreeObjects(_)
            | Record::Free(_)
            | Record::End(_)
            | Record::WriteByRef(_)
            | Record::ObjectRange(_)
            | Record::Redact(_) => 0,
        }
    }

    /// Length of the longest payload that a record of this type may have, in bytes.
    pub fn payload_bytes_max(&self) -> u64 {
        match self {
            Record::Begin(_) => LIST_BYTES_MAX,
            Record::Object(_) => BONUS_BYTES_MAX,
            Record::Write(_) | Record::Spill(_) => BLOCK_BYTES_MAX as u64,
            Record::WriteEmbedded(_) => EMBEDDED_PAYLOAD_BYTES as u64,
            Record::FreeObjects(_)
            | Record::Free(_)
            | Record::End(_)
            | Record::WriteByRef(_)
            | Record::ObjectRange(_)
            | Record::Redact(_) => 0,
        }
    }
}
