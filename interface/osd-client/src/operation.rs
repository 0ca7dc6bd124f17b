//! Operations of a transaction, the objects that they are about, and places of bytes in memory that is shared.

use crate::fields::{Body, Fields, Malformed};

/// Number of pieces of one vector, at most.
pub const PIECES_MAX: usize = 1024;
/// Number of times that can be changed: access, modification, change.
pub const TIMES: usize = 3;
/// Bytes of an encoded piece.
const PIECE_BYTES: usize = 32;

/// Identifier of an object (Lustre: `lu_fid`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// Sequence that the object is of; never 0.
    pub sequence: u64,
    /// Number in the sequence; never 0.
    pub object: u32,
    /// Version of the object; there are none but 0.
    pub version: u32,
}

impl Fid {
    /// Identifier of an object's only version.
    pub const fn new(sequence: u64, object: u32) -> Fid {
        Fid { sequence, object, version: 0 }
    }

    pub(crate) fn encode(self, to: &mut Body) {
        to.u64(self.sequence).u32(self.object).u32(self.version);
    }

    pub(crate) fn decode(from: &mut Fields<'_>) -> Result<Fid, Malformed> {
        Ok(Fid { sequence: from.u64()?, object: from.u32()?, version: from.u32()? })
    }
}

/// Place of bytes in memory that the client shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number that the client gave the memory.
    pub memory: u32,
    /// Offset in it, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Part of a vector: bytes of an object, and the memory that they come from or go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the object, in bytes.
    pub offset: u64,
    /// Memory of as many bytes.
    pub place: Place,
}

impl Piece {
    /// Offset behind the piece in the object; none when there is no such offset.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.place.bytes)
    }

    /// Writes a vector: its pieces alone, which the end of what they are in counts.
    pub(crate) fn encode_all(pieces: &[Piece], to: &mut Body) {
        for Piece { offset, place } in pieces {
            to.u32(place.memory).u32(0).u64(place.offset).u64(place.bytes).u64(*offset);
        }
    }

    /// Reads a vector, which is all that is left.
    pub(crate) fn decode_all(from: &mut Fields<'_>) -> Result<Vec<Piece>, Malformed> {
        let (records, rest) = from.rest().as_chunks::<PIECE_BYTES>();
        if !rest.is_empty() || records.len() > PIECES_MAX {
            return Err(Malformed::Length);
        }
        records.iter().map(|record| Piece::decode(&mut Fields::of(record))).collect()
    }

    fn decode(from: &mut Fields<'_>) -> Result<Piece, Malformed> {
        let memory = from.u32()?;
        from.zero()?;
        let place = Place { memory, offset: from.u64()?, bytes: from.u64()? };
        let piece = Piece { offset: from.u64()?, place };
        if piece.end().is_none() { Err(Malformed::Value) } else { Ok(piece) }
    }
}

/// Attributes to change; none leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions.
    pub mode: Option<u32>,
    /// User who is charged for the object.
    pub uid: Option<u32>,
    /// Group that is charged for it.
    pub gid: Option<u32>,
    /// Access, modification and change times, in seconds and nanoseconds.
    pub times: [Option<(i64, u32)>; TIMES],
}

impl Change {
    fn encode(&self, to: &mut Body) {
        let present =
            [self.mode.is_some(), self.uid.is_some(), self.gid.is_some()].into_iter().chain(self.times.map(|time| time.is_some()));
        let mask = present.enumerate().fold(0, |mask, (bit, is_there)| mask | u32::from(is_there) << bit);
        to.u32(mask).u32(self.mode.unwrap_or(0)).u32(self.uid.unwrap_or(0)).u32(self.gid.unwrap_or(0));
        for (seconds, nanoseconds) in self.times.map(|time| time.unwrap_or((0, 0))) {
            to.i64(seconds).u32(nanoseconds).u32(0);
        }
    }

    fn decode(from: &mut Fields<'_>) -> Result<Change, Malformed> {
        let mask = from.u32()?;
        if mask >> (3 + TIMES) != 0 {
            return Err(Malformed::Value);
        }
        let has = |bit: usize| mask >> bit & 1 != 0;
        let mut number = |bit: usize| from.u32().map(|value| has(bit).then_some(value));
        let (mode, uid, gid) = (number(0)?, number(1)?, number(2)?);
        let mut change = Change { mode, uid, gid, ..Change::default() };
        for (index, time) in change.times.iter_mut().enumerate() {
            let value = (from.i64()?, from.u32()?);
            from.zero()?;
            if value.1 >= 1_000_000_000 {
                return Err(Malformed::Value);
            }
            *time = has(3 + index).then_some(value);
        }
        Ok(change)
    }
}

/// Operation of a transaction, on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes an object.
    Create {
        /// Permissions.
        mode: u32,
        /// User who is charged for it.
        uid: u32,
        /// Group that is charged for it.
        gid: u32,
        /// True for one that has keys instead of data.
        is_index: bool,
    },
    /// Destroys the object.
    Destroy,
    /// Writes bytes that lie in memory that is shared.
    Write(Vec<Piece>),
    /// Writes a few bytes that are in the frame.
    Put {
        /// Offset in the object, in bytes.
        offset: u64,
        /// Bytes to write.
        bytes: Vec<u8>,
    },
    /// Frees bytes from `start` on; with the largest number as `end`, the object ends at `start`.
    Punch {
        /// First byte.
        start: u64,
        /// End of the bytes.
        end: u64,
    },
    /// Changes attributes.
    Change(Change),
    /// Sets an extended attribute.
    SetXattr {
        /// Name of the attribute.
        name: Vec<u8>,
        /// Value of the attribute.
        value: Vec<u8>,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Inserts a key into an index.
    Insert {
        /// Key.
        key: Vec<u8>,
        /// Record of the key.
        record: Vec<u8>,
    },
    /// Deletes a key of an index.
    Delete {
        /// Key.
        key: Vec<u8>,
    },
}

impl Operation {
    fn kind(&self) -> u16 {
        match self {
            Operation::Create { .. } => 1,
            Operation::Destroy => 2,
            Operation::Write(_) => 3,
            Operation::Put { .. } => 4,
            Operation::Punch { .. } => 5,
            Operation::Change(_) => 6,
            Operation::SetXattr { .. } => 7,
            Operation::RemoveXattr { .. } => 8,
            Operation::Insert { .. } => 9,
            Operation::Delete { .. } => 10,
        }
    }

    /// Writes what is the operation's own.
    fn encode_own(&self, to: &mut Body) {
        match self {
            Operation::Create { mode, uid, gid, is_index } => {
                to.u32(*mode).u32(*uid).u32(*gid).flag(*is_index);
            }
            Operation::Destroy => {}
            Operation::Write(pieces) => Piece::encode_all(pieces, to),
            Operation::Put { offset, bytes } => {
                to.u64(*offset).bytes(bytes);
            }
            Operation::Punch { start, end } => {
                to.u64(*start).u64(*end);
            }
            Operation::Change(change) => change.encode(to),
            Operation::SetXattr { name, value } => pair(to, name, value),
            Operation::RemoveXattr { name } => {
                to.bytes(name);
            }
            Operation::Insert { key, record } => pair(to, key, record),
            Operation::Delete { key } => {
                to.bytes(key);
            }
        }
    }

    /// Writes the operation: a head of 24 bytes, and what is its own behind it.
    pub(crate) fn encode(&self, object: Fid, to: &mut Body) {
        let mut own = Body::default();
        self.encode_own(&mut own);
        let own = own.done();
        // A body that is longer than this number says is not sent.
        to.u16(self.kind()).u16(0).u32(own.len() as u32);
        object.encode(to);
        to.bytes(&own);
    }

    /// Reads an operation, and the object that it is on.
    pub(crate) fn decode(from: &mut Fields<'_>) -> Result<(Fid, Operation), Malformed> {
        let (kind, reserved, length) = (from.u16()?, from.u16()?, from.u32()?);
        if reserved != 0 {
            return Err(Malformed::Value);
        }
        let object = Fid::decode(from)?;
        let mut own = Fields::of(from.bytes(length)?);
        let operation = Operation::decode_own(kind, &mut own)?;
        own.end()?;
        Ok((object, operation))
    }

    fn decode_own(kind: u16, from: &mut Fields<'_>) -> Result<Operation, Malformed> {
        Ok(match kind {
            1 => Operation::Create { mode: from.u32()?, uid: from.u32()?, gid: from.u32()?, is_index: from.flag()? },
            2 => Operation::Destroy,
            3 => Operation::Write(Piece::decode_all(from)?),
            4 => {
                let (offset, bytes) = (from.u64()?, from.rest().to_vec());
                if offset.checked_add(bytes.len() as u64).is_none() {
                    return Err(Malformed::Value);
                }
                Operation::Put { offset, bytes }
            }
            5 => Operation::Punch { start: from.u64()?, end: from.u64()? },
            6 => Operation::Change(Change::decode(from)?),
            7 => {
                let (name, value) = unpaired(from)?;
                Operation::SetXattr { name, value }
            }
            8 => Operation::RemoveXattr { name: from.rest().to_vec() },
            9 => {
                let (key, record) = unpaired(from)?;
                Operation::Insert { key, record }
            }
            10 => Operation::Delete { key: from.rest().to_vec() },
            _ => return Err(Malformed::Kind),
        })
    }
}

/// Writes a name, behind its length, and its value, which is all that is left.
fn pair(to: &mut Body, name: &[u8], value: &[u8]) {
    to.u32(name.len() as u32).u32(0).bytes(name).bytes(value);
}

fn unpaired(from: &mut Fields<'_>) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
    let length = from.u32()?;
    from.zero()?;
    let name = from.bytes(length)?.to_vec();
    Ok((name, from.rest().to_vec()))
}
