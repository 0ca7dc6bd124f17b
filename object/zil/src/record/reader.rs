//! The parts that records are made of: fixed fields, names that end with a zero byte, numbers, times.

use ondisk::{ByteOrder, Field, OBJECT_NUMBER_SHIFT, ObjectId};

/// Time in seconds and nanoseconds since the epoch.
pub type Time = (i64, u32);

/// Largest offset of a byte in a file, plus one (OpenZFS: `MAXOFFSET_T`).
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Reason why a record cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Sound record that asks for what this release cannot do.
    Unsupported(&'static str),
    /// Damaged record.
    Damaged(&'static str),
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordError::Unsupported(what) => write!(f, "this release cannot replay {what}"),
            RecordError::Damaged(what) => f.write_str(what),
        }
    }
}

/// Rest of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

/// The fixed part of a record, and what follows it.
pub(super) fn fixed<R: Field>(bytes: &[u8], order: ByteOrder) -> Result<(R, Reader<'_>), RecordError> {
    let mut reader = Reader { rest: bytes, order };
    Ok((reader.take()?, reader))
}

impl<'a> Reader<'a> {
    /// The next field.
    pub(super) fn take<R: Field>(&mut self) -> Result<R, RecordError> {
        let (field, rest) = self.rest.split_at_checked(R::BYTES).ok_or(RecordError::Damaged("it is too short"))?;
        self.rest = rest;
        Ok(R::get(field, self.order))
    }

    /// The first bytes, as many as there should be; None when there are fewer.
    pub(super) fn first(&self, length: u64) -> Option<&'a [u8]> {
        self.rest.get(..usize::try_from(length).ok()?)
    }

    /// The text up to the next zero byte, which goes too.
    pub(super) fn text(&mut self) -> Result<&'a [u8], RecordError> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(RecordError::Damaged("its name has no end"))?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// The next text, which is to be the name of a directory's entry.
    pub(super) fn name(&mut self) -> Result<&'a [u8], RecordError> {
        let name = self.text()?;
        match name {
            b"" | b"." | b".." => Err(RecordError::Damaged("its name is none")),
            name if name.contains(&b'/') => Err(RecordError::Damaged("its name has a slash")),
            name => Ok(name),
        }
    }
}

/// The number of an object.
pub(super) fn object(raw: u64) -> Result<ObjectId, RecordError> {
    if raw == 0 || raw >> OBJECT_NUMBER_SHIFT != 0 {
        return Err(RecordError::Damaged("its object number is out of range"));
    }
    Ok(ObjectId(raw))
}

/// A user's or group's id; those of other systems stand in a table of the record (OpenZFS: `FUID_INDEX`).
pub(super) fn identity(raw: u64) -> Result<u32, RecordError> {
    u32::try_from(raw).map_err(|_| RecordError::Unsupported("identities of other systems"))
}

/// A time.
pub(super) fn time(raw: [u64; 2]) -> Result<Time, RecordError> {
    match u32::try_from(raw[1]) {
        Ok(nanoseconds) if nanoseconds < 1_000_000_000 => Ok((raw[0] as i64, nanoseconds)),
        _ => Err(RecordError::Damaged("its time has too many nanoseconds")),
    }
}
