//! Fields of a body: little-endian numbers and bytes, in order, and back with every bound checked.

use std::fmt;

/// Reason why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The body is shorter or longer than its fields.
    Length,
    /// A kind of frame or operation that stands for nothing.
    Kind,
    /// A field that cannot have its value.
    Value,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Length => "a frame has another length than its fields",
            Malformed::Kind => "a frame is of an unknown kind",
            Malformed::Value => "a field of a frame cannot have its value",
        })
    }
}

impl std::error::Error for Malformed {}

/// Fields that are still to be read.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(body: &'a [u8]) -> Fields<'a> {
        Fields { rest: body }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Length)?;
        self.rest = rest;
        Ok(*field)
    }

    pub(crate) fn bytes(&mut self, count: u32) -> Result<&'a [u8], Malformed> {
        let (field, rest) = self.rest.split_at_checked(count as usize).ok_or(Malformed::Length)?;
        self.rest = rest;
        Ok(field)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.fixed().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.fixed().map(i64::from_le_bytes)
    }

    /// True for 1, false for 0.
    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value),
        }
    }

    /// A field that is kept for later versions: 0.
    pub(crate) fn zero(&mut self) -> Result<(), Malformed> {
        if self.u32()? == 0 { Ok(()) } else { Err(Malformed::Value) }
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Ends the body, which has no more fields.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Length) }
    }
}

/// Body that is being written.
#[derive(Debug, Default)]
pub(crate) struct Body(Vec<u8>);

impl Body {
    pub(crate) fn u16(&mut self, value: u16) -> &mut Body {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Body {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Body {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Body {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn flag(&mut self, value: bool) -> &mut Body {
        self.u32(u32::from(value))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Body {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The bytes; the body is empty then.
    pub(crate) fn done(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}
