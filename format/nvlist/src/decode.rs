//! Unpacking of lists, both encodings and both byte orders (OpenZFS: `nvlist_xunpack` in `nvpair.c`).
//!
//! Every length is checked against what is left of the input before it is used, nesting is limited to [`DEPTH_MAX`], and a count of
//! elements never makes the decoder reserve more memory than a small multiple of the input.

use crate::encode::{LIST_BYTES, PAIR_BYTES};
use crate::value::{Byte, Bytes, DEPTH_MAX, HrTime, NvList, NvString, Value};
use std::fmt;

/// Reason why bytes are not a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The input ends inside a pair.
    Truncated,
    /// Neither XDR nor native, or an unknown byte order.
    Encoding,
    /// A list version other than 0.
    Version,
    /// A type number that nobody assigned.
    Type(i32),
    /// A count, size or terminator that contradicts the type.
    Malformed,
    /// Nested more than [`DEPTH_MAX`] deep.
    Depth,
    /// The bytes are zeros: erased space, not an empty list of a big-endian machine, which it would spell.
    Blank,
}
impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("the list ends inside a pair"),
            DecodeError::Encoding => f.write_str("unknown encoding or byte order of a list"),
            DecodeError::Version => f.write_str("unknown version of a list"),
            DecodeError::Type(number) => write!(f, "unknown type {number} of a pair"),
            DecodeError::Malformed => f.write_str("a pair contradicts itself"),
            DecodeError::Blank => f.write_str("there is no list, only zeros"),
            DecodeError::Depth => write!(f, "lists are nested more than {DEPTH_MAX} deep"),
        }
    }
}
impl std::error::Error for DecodeError {}

type Result<T> = std::result::Result<T, DecodeError>;

/// Rest of the input, and its byte order.
struct Input<'a> {
    rest: &'a [u8],
    little: bool,
}
impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        let mut bytes = *head;
        if !self.little {
            bytes.reverse();
        }
        Ok(bytes)
    }
    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A length of `count` elements of at least `bytes` bytes, refused when the input cannot hold them.
    fn count(&self, count: u32, bytes: usize) -> Result<usize> {
        let count = count as usize;
        if count.checked_mul(bytes).is_none_or(|need| need > self.rest.len()) { Err(DecodeError::Truncated) } else { Ok(count) }
    }
    fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Malformed),
        }
    }
}

fn many<'a, T>(input: &mut Input<'a>, count: usize, mut one: impl FnMut(&mut Input<'a>) -> Result<T>) -> Result<Vec<T>> {
    (0..count).map(|_| one(input)).collect()
}

/// Decodes a list; returns it and the bytes that it took.
pub(crate) fn decode(bytes: &[u8]) -> Result<(NvList, usize)> {
    let (header, rest) = bytes.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
    if bytes.iter().take(16).all(|&byte| byte == 0) {
        return Err(DecodeError::Blank);
    }
    let (list, left) = match header[0] {
        0 if header[1] <= 1 => {
            let mut input = Input { rest, little: header[1] == 1 };
            let flags = list_header(&mut input)?;
            (native_pairs(&mut input, flags, 0)?, input.rest.len())
        }
        1 => {
            let mut input = Input { rest, little: false };
            (xdr_list(&mut input, 0)?, input.rest.len())
        }
        _ => return Err(DecodeError::Encoding),
    };
    Ok((list, bytes.len() - left))
}

fn list_header(input: &mut Input<'_>) -> Result<u32> {
    if input.i32()? != 0 {
        return Err(DecodeError::Version);
    }
    input.u32()
}

/// Scalars have one element and names alone none; arrays have what they say.
fn check_count(kind: i32, count: u32) -> Result<()> {
    let fits = match kind {
        1 => count == 0,
        2..=9 | 18 | 19 | 21..=23 | 27 => count == 1,
        10..=17 | 20 | 24..=26 => true,
        _ => return Err(DecodeError::Type(kind)),
    };
    if fits { Ok(()) } else { Err(DecodeError::Malformed) }
}

fn xdr_list(input: &mut Input<'_>, depth: usize) -> Result<NvList> {
    if depth > DEPTH_MAX {
        return Err(DecodeError::Depth);
    }
    let mut list = NvList::with_flags(list_header(input)?);
    loop {
        // Of the two sizes (packed, and in the packer's memory) only the end mark matters: as OpenZFS, the fields say the rest.
        input.i32()?;
        if input.i32()? == 0 {
            return Ok(list);
        }
        let name = xdr_string(input)?;
        let kind = input.i32()?;
        let count = input.u32()?;
        check_count(kind, count)?;
        let value = xdr_value(input, kind, count, depth)?;
        list.push(name, value);
    }
}

fn xdr_opaque<'a>(input: &mut Input<'a>, count: usize) -> Result<&'a [u8]> {
    let padded = count.checked_next_multiple_of(4).ok_or(DecodeError::Truncated)?;
    Ok(&input.take(padded)?[..count])
}

fn xdr_string(input: &mut Input<'_>) -> Result<NvString> {
    let count = input.u32()? as usize;
    xdr_opaque(input, count).map(NvString::new)
}

fn xdr_array<'a, T>(
    input: &mut Input<'a>,
    count: u32,
    element_bytes: usize,
    one: impl FnMut(&mut Input<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if input.u32()? != count {
        return Err(DecodeError::Malformed);
    }
    let count = input.count(count, element_bytes)?;
    many(input, count, one)
}

fn xdr_value(input: &mut Input<'_>, kind: i32, count: u32, depth: usize) -> Result<Value> {
    Ok(match kind {
        1 => Value::Boolean,
        // Small integers occupy a whole unit; the high bits are zeros or a sign, depending on who packed them.
        2 => Value::Byte(Byte(input.u32()? as u8)),
        3 => Value::Int16(input.u32()? as i16),
        4 => Value::Uint16(input.u32()? as u16),
        5 => Value::Int32(input.i32()?),
        6 => Value::Uint32(input.u32()?),
        7 => Value::Int64(input.u64()? as i64),
        8 => Value::Uint64(input.u64()?),
        9 => Value::String(xdr_string(input)?),
        10 => Value::ByteArray(Bytes(xdr_opaque(input, count as usize)?.to_vec())),
        11 => Value::Int16Array(xdr_array(input, count, 4, |input| Ok(input.u32()? as i16))?),
        12 => Value::Uint16Array(xdr_array(input, count, 4, |input| Ok(input.u32()? as u16))?),
        13 => Value::Int32Array(xdr_array(input, count, 4, Input::i32)?),
        14 => Value::Uint32Array(xdr_array(input, count, 4, Input::u32)?),
        15 => Value::Int64Array(xdr_array(input, count, 8, |input| Ok(input.u64()? as i64))?),
        16 => Value::Uint64Array(xdr_array(input, count, 8, Input::u64)?),
        17 => {
            let count = input.count(count, 4)?;
            Value::StringArray(many(input, count, xdr_string)?)
        }
        18 => Value::HrTime(HrTime(input.u64()? as i64)),
        19 => Value::NvList(xdr_list(input, depth + 1)?),
        20 => {
            let count = input.count(count, 16)?;
            Value::NvListArray(many(input, count, |input| xdr_list(input, depth + 1))?)
        }
        21 => Value::BooleanValue(input.bool()?),
        22 => Value::Int8(input.u32()? as i8),
        23 => Value::Uint8(input.u32()? as u8),
        24 => Value::BooleanArray(xdr_array(input, count, 4, Input::bool)?),
        25 => Value::Int8Array(xdr_array(input, count, 4, |input| Ok(input.u32()? as i8))?),
        26 => Value::Uint8Array(xdr_array(input, count, 4, |input| Ok(input.u32()? as u8))?),
        27 => Value::Double(f64::from_bits(input.u64()?)),
        _ => return Err(DecodeError::Type(kind)),
    })
}

fn native_pairs(input: &mut Input<'_>, flags: u32, depth: usize) -> Result<NvList> {
    if depth > DEPTH_MAX {
        return Err(DecodeError::Depth);
    }
    let mut list = NvList::with_flags(flags);
    loop {
        let mut peek = Input { rest: input.rest, little: input.little };
        let size = peek.u32()? as usize;
        if size == 0 {
            input.take(4)?;
            return Ok(list);
        }
        let mut record = Input { rest: input.take(size)?, little: input.little };
        record.take(4)?;
        let name_bytes = usize::from(record.u16()?);
        record.take(2)?;
        let count = record.u32()?;
        let kind = record.i32()?;
        check_count(kind, count)?;
        let padded = (PAIR_BYTES + name_bytes).next_multiple_of(8) - PAIR_BYTES;
        let name = record.take(padded)?.get(..name_bytes).ok_or(DecodeError::Malformed)?;
        if name.last() != Some(&0) {
            return Err(DecodeError::Malformed);
        }
        let value = native_value(&mut record, input, (kind, count), depth)?;
        list.push(NvString::new(name), value);
    }
}

fn c_string(input: &mut Input<'_>) -> Result<NvString> {
    let end = input.rest.iter().position(|&byte| byte == 0).ok_or(DecodeError::Malformed)?;
    input.take(end + 1).map(NvString::new)
}

/// The flags of a nested list, from its header inside the record.
fn native_list_flags(record: &mut Input<'_>) -> Result<u32> {
    let flags = list_header(record)?;
    record.take(LIST_BYTES - 8)?;
    Ok(flags)
}

/// Decodes a value from its record; the pairs of nested lists follow the record in `stream`.
fn native_value(record: &mut Input<'_>, stream: &mut Input<'_>, (kind, count): (i32, u32), depth: usize) -> Result<Value> {
    let items = |record: &Input<'_>, bytes| record.count(count, bytes);
    Ok(match kind {
        1 => Value::Boolean,
        2 => Value::Byte(Byte(record.array::<1>()?[0])),
        3 => Value::Int16(record.u16()? as i16),
        4 => Value::Uint16(record.u16()?),
        5 => Value::Int32(record.i32()?),
        6 => Value::Uint32(record.u32()?),
        7 => Value::Int64(record.u64()? as i64),
        8 => Value::Uint64(record.u64()?),
        9 => Value::String(c_string(record)?),
        10 => Value::ByteArray(Bytes(record.take(count as usize)?.to_vec())),
        11 => Value::Int16Array(many(record, items(record, 2)?, |record| Ok(record.u16()? as i16))?),
        12 => Value::Uint16Array(many(record, items(record, 2)?, Input::u16)?),
        13 => Value::Int32Array(many(record, items(record, 4)?, Input::i32)?),
        14 => Value::Uint32Array(many(record, items(record, 4)?, Input::u32)?),
        15 => Value::Int64Array(many(record, items(record, 8)?, |record| Ok(record.u64()? as i64))?),
        16 => Value::Uint64Array(many(record, items(record, 8)?, Input::u64)?),
        17 => {
            let count = items(record, 9)?;
            record.take(8 * count)?;
            Value::StringArray(many(record, count, c_string)?)
        }
        18 => Value::HrTime(HrTime(record.u64()? as i64)),
        19 => {
            let flags = native_list_flags(record)?;
            Value::NvList(native_pairs(stream, flags, depth + 1)?)
        }
        20 => {
            let count = items(record, 8 + LIST_BYTES)?;
            record.take(8 * count)?;
            let flags = many(record, count, native_list_flags)?;
            let lists: Result<Vec<NvList>> = flags.into_iter().map(|flags| native_pairs(stream, flags, depth + 1)).collect();
            Value::NvListArray(lists?)
        }
        21 => Value::BooleanValue(record.bool()?),
        22 => Value::Int8(record.array::<1>()?[0] as i8),
        23 => Value::Uint8(record.array::<1>()?[0]),
        24 => Value::BooleanArray(many(record, items(record, 4)?, Input::bool)?),
        25 => Value::Int8Array(record.take(count as usize)?.iter().map(|&byte| byte as i8).collect()),
        26 => Value::Uint8Array(record.take(count as usize)?.to_vec()),
        27 => Value::Double(f64::from_bits(record.u64()?)),
        _ => return Err(DecodeError::Type(kind)),
    })
}

impl NvList {
    /// Decodes a packed list of either encoding and byte order; bytes after its end are ignored.
    pub fn decode(bytes: &[u8]) -> Result<NvList> {
        decode(bytes).map(|(list, _)| list)
    }
    /// As [`NvList::decode`], with the number of bytes that the list took.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(NvList, usize)> {
        decode(bytes)
    }
}
