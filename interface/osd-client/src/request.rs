//! Requests: one frame each, answered by one reply with its tag, in order.

use crate::fields::{Body, Fields, Malformed};
use crate::frame::frame;
use crate::operation::{Fid, Operation, Piece};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Number of operations of one transaction, at most.
pub const OPERATIONS_MAX: usize = 256;
/// Number of keys that are listed at a time, at most: as many of the longest fit into a frame.
pub const ENTRIES_MAX: u32 = 48;
/// Flag of shared memory: what is written is not copied first, so that it may change on its way.
const DIRECT: u32 = 1;
/// Flag of a transaction: say when it is on disk.
const TELLS: u32 = 1;
/// Flag of a transaction: spend what was granted.
const SPENDS: u32 = 2;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First of all: the version that the client speaks.
    Hello(u32),
    /// Opens the device on a dataset, by its name; one for each connection.
    Open(String),
    /// Shares memory, whose file comes with the frame.
    Share {
        /// Number of the memory, from now on.
        memory: u32,
        /// True when the devices may be given these pages themselves.
        is_direct: bool,
        /// Length in bytes.
        bytes: u64,
    },
    /// Ends the sharing of memory, by its number.
    Unshare(u32),
    /// Performs a transaction.
    Transact {
        /// True when the client wants to hear that it is on disk.
        tells: bool,
        /// True when it may use what the client was granted.
        spends: bool,
        /// Operations, each with its object.
        operations: Vec<(Fid, Operation)>,
    },
    /// Reads bytes into memory that is shared.
    Read {
        /// Object to read.
        object: Fid,
        /// True to read past the cache, however few bytes they are.
        is_direct: bool,
        /// Bytes to read, and where to.
        pieces: Vec<Piece>,
    },
    /// Asks for attributes.
    Attributes(Fid),
    /// Asks for the value of an extended attribute.
    Xattr(Fid, Vec<u8>),
    /// Asks for the names of all extended attributes.
    Xattrs(Fid),
    /// Asks for the record of a key.
    Lookup(Fid, Vec<u8>),
    /// Lists keys.
    Entries {
        /// Object with the keys.
        object: Fid,
        /// Cookie to go on from; 0 begins.
        from: u64,
        /// Number of keys, at most.
        count: u32,
    },
    /// Asks for the space of the device.
    Space,
    /// Reserves so many bytes more.
    Grant(u64),
    /// Gives so many bytes that were reserved back.
    GiveBack(u64),
    /// Waits until everything so far is on disk.
    Sync,
}

impl Request {
    /// Number that stands for what is asked.
    pub fn kind(&self) -> u16 {
        match self {
            Request::Hello(_) => 1,
            Request::Open(_) => 2,
            Request::Share { .. } => 3,
            Request::Unshare(_) => 4,
            Request::Transact { .. } => 5,
            Request::Read { .. } => 6,
            Request::Attributes(_) => 7,
            Request::Xattr(..) => 8,
            Request::Xattrs(_) => 9,
            Request::Lookup(..) => 10,
            Request::Entries { .. } => 11,
            Request::Space => 12,
            Request::Grant(_) => 13,
            Request::GiveBack(_) => 14,
            Request::Sync => 15,
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut to = Body::default();
        match self {
            Request::Hello(version) => {
                to.u32(*version);
            }
            Request::Open(name) => {
                to.bytes(name.as_bytes());
            }
            Request::Share { memory, is_direct, bytes } => {
                to.u32(*memory).u32(if *is_direct { DIRECT } else { 0 }).u64(*bytes);
            }
            Request::Unshare(memory) => {
                to.u32(*memory);
            }
            Request::Transact { tells, spends, operations } => {
                to.u32(if *tells { TELLS } else { 0 } | if *spends { SPENDS } else { 0 }).u32(operations.len() as u32);
                operations.iter().for_each(|(object, operation)| operation.encode(*object, &mut to));
            }
            Request::Read { object, is_direct, pieces } => {
                object.encode(&mut to);
                to.flag(*is_direct).u32(0);
                Piece::encode_all(pieces, &mut to);
            }
            Request::Attributes(object) | Request::Xattrs(object) => object.encode(&mut to),
            Request::Xattr(object, name) | Request::Lookup(object, name) => {
                object.encode(&mut to);
                to.bytes(name);
            }
            Request::Entries { object, from, count } => {
                object.encode(&mut to);
                to.u64(*from).u32(*count);
            }
            Request::Grant(bytes) | Request::GiveBack(bytes) => {
                to.u64(*bytes);
            }
            Request::Space | Request::Sync => {}
        }
        to.done()
    }

    /// Frame of the request, with the number that its reply will have.
    ///
    /// # Errors
    /// [`Malformed::Length`] for what fits into no frame.
    pub fn encode(&self, tag: u64) -> Result<Vec<u8>, Malformed> {
        frame(self.kind(), tag, &self.body())
    }

    /// Decodes the body of a request of this kind.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(kind: u16, body: &[u8]) -> Result<Request, Malformed> {
        let mut from = Fields::of(body);
        let request = match kind {
            1 => Request::Hello(from.u32()?),
            2 => Request::Open(std::str::from_utf8(from.rest()).map_err(|_| Malformed::Value)?.to_string()),
            3 => {
                let (memory, flags, bytes) = (from.u32()?, from.u32()?, from.u64()?);
                if flags & !DIRECT != 0 {
                    return Err(Malformed::Value);
                }
                Request::Share { memory, is_direct: flags == DIRECT, bytes }
            }
            4 => Request::Unshare(from.u32()?),
            5 => Request::transaction(&mut from)?,
            6 => {
                let (object, is_direct) = (Fid::decode(&mut from)?, from.flag()?);
                from.zero()?;
                Request::Read { object, is_direct, pieces: Piece::decode_all(&mut from)? }
            }
            7 => Request::Attributes(Fid::decode(&mut from)?),
            8 => Request::Xattr(Fid::decode(&mut from)?, from.rest().to_vec()),
            9 => Request::Xattrs(Fid::decode(&mut from)?),
            10 => Request::Lookup(Fid::decode(&mut from)?, from.rest().to_vec()),
            11 => Request::Entries { object: Fid::decode(&mut from)?, from: from.u64()?, count: from.u32()? },
            12 => Request::Space,
            13 => Request::Grant(from.u64()?),
            14 => Request::GiveBack(from.u64()?),
            15 => Request::Sync,
            _ => return Err(Malformed::Kind),
        };
        from.end()?;
        Ok(request)
    }

    fn transaction(from: &mut Fields<'_>) -> Result<Request, Malformed> {
        let (flags, count) = (from.u32()?, from.u32()? as usize);
        if flags & !(TELLS | SPENDS) != 0 || count > OPERATIONS_MAX {
            return Err(Malformed::Value);
        }
        let operations = (0..count).map(|_| Operation::decode(from)).collect::<Result<Vec<_>, Malformed>>()?;
        Ok(Request::Transact { tells: flags & TELLS != 0, spends: flags & SPENDS != 0, operations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{HEADER_BYTES, Header};
    use crate::operation::{Change, Place};

    fn requests() -> Vec<Request> {
        let (object, pieces) =
            (Fid::new(0x2_0000_0401, 7), vec![Piece { offset: 4096, place: Place { memory: 3, offset: 8, bytes: 9 } }; 2]);
        let change = Change { uid: Some(5), times: [None, Some((-1, 2)), None], ..Change::default() };
        let operations = vec![
            (object, Operation::Create { mode: 0o644, uid: 1, gid: 2, is_index: true }),
            (object, Operation::Destroy),
            (object, Operation::Write(pieces.clone())),
            (object, Operation::Put { offset: 1 << 40, bytes: b"few".to_vec() }),
            (object, Operation::Punch { start: 5, end: u64::MAX }),
            (object, Operation::Change(change)),
            (object, Operation::SetXattr { name: b"trusted.x".to_vec(), value: vec![0, 1] }),
            (object, Operation::RemoveXattr { name: b"trusted.x".to_vec() }),
            (object, Operation::Insert { key: b"key".to_vec(), record: b"record".to_vec() }),
            (object, Operation::Delete { key: b"key".to_vec() }),
        ];
        vec![
            Request::Hello(VERSION),
            Request::Open("tank/ost".to_string()),
            Request::Share { memory: 3, is_direct: true, bytes: 1 << 20 },
            Request::Unshare(3),
            Request::Transact { tells: true, spends: false, operations },
            Request::Read { object, is_direct: true, pieces },
            Request::Attributes(object),
            Request::Xattr(object, b"trusted.x".to_vec()),
            Request::Xattrs(object),
            Request::Lookup(object, b"key".to_vec()),
            Request::Entries { object, from: 9, count: 10 },
            Request::Space,
            Request::Grant(5),
            Request::GiveBack(6),
            Request::Sync,
        ]
    }

    /// If this fails, a device does something else than its client asked for; or a frame that was cut off is taken for a whole one.
    #[test]
    fn requests_come_out_as_they_went_in_and_no_part_of_one_does() {
        for request in requests() {
            let bytes = request.encode(77).expect("it fits");
            let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().expect("a header");
            let header = Header::decode(head).expect("a header");
            assert_eq!((header.length as usize, header.kind, header.tag), (body.len(), request.kind(), 77));
            assert_eq!(Request::decode(header.kind, body), Ok(request.clone()));
            for length in 0..body.len() {
                let part = Request::decode(header.kind, &body[..length]);
                assert_ne!(part, Ok(request.clone()), "{length} bytes of {request:?}");
            }
            let longer = [body, &[0]].concat();
            assert_ne!(Request::decode(header.kind, &longer), Ok(request));
        }
    }

    /// If this fails, whoever sends one frame has the daemon reserve memory for what a frame only claims.
    #[test]
    fn what_cannot_be_is_refused() {
        let count = Body::default().u32(0).u32(u32::MAX).done();
        assert_eq!(Request::decode(5, &count), Err(Malformed::Value));
        assert_eq!(Request::decode(5, &Body::default().u32(4).u32(0).done()), Err(Malformed::Value));
        assert_eq!(Request::decode(99, &[]), Err(Malformed::Kind));
        let mut behind = Body::default();
        Fid::new(1, 1).encode(&mut behind);
        let behind = behind.flag(false).u32(0).u32(1).u32(0).u64(0).u64(2).u64(u64::MAX).done();
        assert_eq!(Request::decode(6, &behind), Err(Malformed::Value), "it ends behind all numbers");
        let header = Header { length: 70_000, kind: 1, tag: 0 };
        assert_eq!(Header::decode(&header.encode()), Err(Malformed::Length));
        let mut reserved = Header { length: 0, kind: 1, tag: 0 }.encode();
        reserved[6] = 1;
        assert_eq!(Header::decode(&reserved), Err(Malformed::Value));
    }
}
