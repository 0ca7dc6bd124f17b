//! The `record!` table: one declaration of a fixed-layout record gives its struct, codec for both byte orders and field list.
//!
//! Rows are `offset => name: type`. A gap, an overlap or a wrong total is a compile error, so a record that compiles has the layout that
//! it shows. Records keep the standard's field names; nothing here judges values.

use crate::{BlockPtr, Checksum, Compression, ObjectType};
use std::fmt;

/// The byte order of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first: what we write, and what nearly every pool holds.
    Little,
    /// Most significant byte first: written by SPARC, s390x and POWER machines.
    Big,
}
impl ByteOrder {
    /// Makes the order from the byte-order bit of a block pointer.
    pub fn from_little(little: bool) -> ByteOrder {
        if little { ByteOrder::Little } else { ByteOrder::Big }
    }
    /// True for little-endian.
    pub fn is_little(self) -> bool {
        self == ByteOrder::Little
    }
}

/// A record was given fewer bytes than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortRecord {
    /// Name of the record.
    pub record: &'static str,
    /// Bytes that it has.
    pub need: usize,
    /// Bytes that there were.
    pub have: usize,
}
impl fmt::Display for ShortRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {} bytes, not {}", self.record, self.need, self.have)
    }
}
impl std::error::Error for ShortRecord {}

/// One row of a record's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Bytes from the record's start.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// The standard's name.
    pub name: &'static str,
    /// The Rust type, as written in the table.
    pub kind: &'static str,
}

/// A type that can be a field: its size and how it lies in bytes. Callers hand in exactly [`Field::BYTES`] bytes.
pub trait Field: Sized {
    /// Size on disk.
    const BYTES: usize;
    /// Value with all bits zero.
    const ZERO: Self;
    /// Decodes `BYTES` bytes.
    fn get(bytes: &[u8], order: ByteOrder) -> Self;
    /// Encodes into `BYTES` bytes.
    fn put(&self, out: &mut [u8], order: ByteOrder);
}

macro_rules! integer_field {
    ($($kind:ty),*) => {$(
        impl Field for $kind {
            const BYTES: usize = size_of::<$kind>();
            const ZERO: Self = 0;
            fn get(bytes: &[u8], order: ByteOrder) -> Self {
                let mut raw = [0; size_of::<$kind>()];
                raw.copy_from_slice(&bytes[..size_of::<$kind>()]);
                match order { ByteOrder::Little => <$kind>::from_le_bytes(raw), ByteOrder::Big => <$kind>::from_be_bytes(raw) }
            }
            fn put(&self, out: &mut [u8], order: ByteOrder) {
                let raw = match order { ByteOrder::Little => self.to_le_bytes(), ByteOrder::Big => self.to_be_bytes() };
                out[..raw.len()].copy_from_slice(&raw);
            }
        }
    )*};
}
integer_field!(u8, u16, u32, u64, i64);

macro_rules! byte_kind_field {
    ($($kind:ident),*) => {$(
        impl Field for $kind {
            const BYTES: usize = 1;
            const ZERO: Self = $kind(0);
            fn get(bytes: &[u8], _: ByteOrder) -> Self {
                $kind(bytes[0])
            }
            fn put(&self, out: &mut [u8], _: ByteOrder) {
                out[0] = self.0;
            }
        }
    )*};
}
byte_kind_field!(ObjectType, Checksum, Compression);

impl<T: Field, const N: usize> Field for [T; N] {
    const BYTES: usize = N * T::BYTES;
    const ZERO: Self = [T::ZERO; N];
    fn get(bytes: &[u8], order: ByteOrder) -> Self {
        std::array::from_fn(|index| T::get(&bytes[index * T::BYTES..], order))
    }
    fn put(&self, out: &mut [u8], order: ByteOrder) {
        for (item, raw) in self.iter().zip(out.chunks_exact_mut(T::BYTES)) {
            item.put(raw, order);
        }
    }
}

impl Field for BlockPtr {
    const BYTES: usize = 128;
    const ZERO: Self = BlockPtr::HOLE;
    fn get(bytes: &[u8], order: ByteOrder) -> Self {
        BlockPtr(Field::get(bytes, order))
    }
    fn put(&self, out: &mut [u8], order: ByteOrder) {
        self.0.put(out, order);
    }
}

/// A record's identity and table, for tools that show or corrupt records by field.
pub trait Record: Field + fmt::Debug {
    /// The standard's name of the structure.
    const NAME: &'static str;
    /// The table's rows in order of offset.
    const FIELDS: &'static [FieldInfo];
}

/// Declares records; see the module's text.
macro_rules! record {
    ($($(#[$doc:meta])* $name:ident = $standard:literal, $size:literal {
        $($(#[$field_doc:meta])* $offset:literal => $field:ident: $kind:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the standard's field names")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }
        const _: () = {
            let mut at = 0;
            $(
                assert!(at == $offset, "a gap or an overlap before this field");
                at += <$kind as $crate::record::Field>::BYTES;
            )*
            assert!(at == $size, "the fields do not fill the record");
        };
        impl $crate::record::Field for $name {
            const BYTES: usize = $size;
            const ZERO: Self = $name { $($field: <$kind as $crate::record::Field>::ZERO,)* };
            fn get(bytes: &[u8], order: $crate::record::ByteOrder) -> Self {
                $name { $($field: <$kind as $crate::record::Field>::get(&bytes[$offset..], order),)* }
            }
            fn put(&self, out: &mut [u8], order: $crate::record::ByteOrder) {
                $($crate::record::Field::put(&self.$field, &mut out[$offset..$offset + <$kind as $crate::record::Field>::BYTES], order);)*
            }
        }
        impl $crate::record::Record for $name {
            const NAME: &'static str = $standard;
            const FIELDS: &'static [$crate::record::FieldInfo] = &[$($crate::record::FieldInfo {
                offset: $offset,
                bytes: <$kind as $crate::record::Field>::BYTES,
                name: stringify!($field),
                kind: stringify!($kind),
            },)*];
        }
        impl Default for $name {
            fn default() -> $name {
                <$name as $crate::record::Field>::ZERO
            }
        }
        impl $name {
            /// Size on disk, in bytes.
            pub const SIZE: usize = $size;
            /// Decodes little-endian bytes (what the cache hands out); more bytes than [`Self::SIZE`] are ignored.
            pub fn decode(bytes: &[u8]) -> Result<$name, $crate::record::ShortRecord> {
                $name::decode_order(bytes, $crate::record::ByteOrder::Little)
            }
            /// As [`Self::decode`], from a block of either byte order.
            pub fn decode_order(bytes: &[u8], order: $crate::record::ByteOrder) -> Result<$name, $crate::record::ShortRecord> {
                if bytes.len() < $size {
                    return Err($crate::record::ShortRecord { record: $standard, need: $size, have: bytes.len() });
                }
                Ok($crate::record::Field::get(bytes, order))
            }
            /// The record's bytes, little-endian.
            pub fn encode(&self) -> [u8; $size] {
                let mut out = [0; $size];
                $crate::record::Field::put(self, &mut out, $crate::record::ByteOrder::Little);
                out
            }
        }
    )*};
}
pub(crate) use record;
