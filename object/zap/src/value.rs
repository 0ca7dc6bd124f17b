//! Values of entries: arrays of 1, 2, 4 or 8-byte integers, and how a leaf stores them (big-endian, back to back).

use crate::ZapError;

/// Most bytes that a value can have (OpenZFS: `ZAP_MAXVALUELEN`).
pub const VALUE_BYTES_MAX: usize = 1024 * 8;

/// The integers of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Bytes; strings of properties end with a zero byte.
    U8(Vec<u8>),
    /// 16-bit integers.
    U16(Vec<u16>),
    /// 32-bit integers.
    U32(Vec<u32>),
    /// 64-bit integers.
    U64(Vec<u64>),
}

impl Value {
    /// A string as properties store it: its bytes and a zero byte.
    pub fn from_str_with_nul(text: &str) -> Value {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        Value::U8(bytes)
    }
    /// Size of one integer, in bytes.
    pub fn integer_size(&self) -> u8 {
        match self {
            Value::U8(_) => 1,
            Value::U16(_) => 2,
            Value::U32(_) => 4,
            Value::U64(_) => 8,
        }
    }
    /// Number of integers.
    pub fn count(&self) -> usize {
        match self {
            Value::U8(v) => v.len(),
            Value::U16(v) => v.len(),
            Value::U32(v) => v.len(),
            Value::U64(v) => v.len(),
        }
    }
    /// The single 64-bit integer, when that is what the entry holds.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::U64(v) if v.len() == 1 => Some(v[0]),
            _ => None,
        }
    }
    /// The text up to the first zero byte, when the entry holds bytes of valid UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::U8(bytes) => {
                let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
                std::str::from_utf8(&bytes[..end]).ok()
            }
            _ => None,
        }
    }
    /// The integers widened to 64 bits.
    pub fn to_u64s(&self) -> Vec<u64> {
        match self {
            Value::U8(v) => v.iter().map(|&n| n.into()).collect(),
            Value::U16(v) => v.iter().map(|&n| n.into()).collect(),
            Value::U32(v) => v.iter().map(|&n| n.into()).collect(),
            Value::U64(v) => v.clone(),
        }
    }

    /// The stored form: each integer big-endian.
    pub(crate) fn to_stored(&self) -> Result<Vec<u8>, ZapError> {
        let stored: Vec<u8> = match self {
            Value::U8(v) => v.clone(),
            Value::U16(v) => v.iter().flat_map(|n| n.to_be_bytes()).collect(),
            Value::U32(v) => v.iter().flat_map(|n| n.to_be_bytes()).collect(),
            Value::U64(v) => v.iter().flat_map(|n| n.to_be_bytes()).collect(),
        };
        if stored.len() > VALUE_BYTES_MAX { Err(ZapError::ValueTooBig) } else { Ok(stored) }
    }

    /// Decodes the stored form; None for a size that the format does not have.
    pub(crate) fn from_stored(integer_size: u8, stored: Vec<u8>) -> Option<Value> {
        Some(match integer_size {
            1 => Value::U8(stored),
            2 => Value::U16(stored.chunks_exact(2).map(|raw| u16::from_be_bytes([raw[0], raw[1]])).collect()),
            4 => Value::U32(stored.chunks_exact(4).map(|raw| u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]])).collect()),
            8 => Value::U64(stored.chunks_exact(8).map(be_u64).collect()),
            _ => return None,
        })
    }
}

/// The big-endian integer of up to eight bytes.
pub(crate) fn be_u64(raw: &[u8]) -> u64 {
    raw.iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
}
