//! Frames of the handshake: a header of fixed size and a message, each under a CRC. Those behind it are sealed (`seal`).
//!
//! ```text
//! 0 "ZTGT" | 4 version | 5 kind | 6 zero (2) | 8 epoch (8) | 16 op id (8) | 24 floor (8) | 32 message bytes (4) | 36 payload bytes (4)
//! | 40 CRC of message and payload (4) | 44 CRC of bytes 0 to 43 (4) | 48 message | payload
//! ```
//! All numbers are little-endian, the CRC is that of gzip. A damaged header ends the connection: nobody knows where the next
//! frame begins. Behind a good header the length holds whatever the rest is, so only that frame is sent again.

use abd::{Abd, AbdPart};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;
const MAGIC: [u8; 4] = *b"ZTGT";
const VERSION: u8 = 1;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Host: its version, and its key for this connection.
    Hello = 1,
    /// Target: its own.
    Challenge = 2,
    /// Host: the session that it goes on with. The first frame that is sealed, so proof that it is there now.
    Proof = 3,
    /// Target: the session.
    Welcome = 4,
    /// Target: refusal, with the reason.
    Refused = 5,
    /// Host: a program.
    Execute = 6,
    /// Target: results of a program.
    Completion = 7,
    /// Target: what the program of this op id has in memory that both share is damaged.
    Damaged = 8,
    /// Host: the session is over.
    Goodbye = 9,
    /// Host: memory that both may use, its file with the frame. Target: whether it does.
    Region = 10,
    /// Host: a program, with places in that memory.
    ExecutePlaces = 11,
    /// Target: results of a program, its bytes in the room that the program gave.
    CompletionRoom = 12,
}

impl Kind {
    /// The kind of a number.
    pub(crate) fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    const ALL: [Kind; 12] = [
        Kind::Hello,
        Kind::Challenge,
        Kind::Proof,
        Kind::Welcome,
        Kind::Refused,
        Kind::Execute,
        Kind::Completion,
        Kind::Damaged,
        Kind::Goodbye,
        Kind::Region,
        Kind::ExecutePlaces,
        Kind::CompletionRoom,
    ];
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the frame.
    pub kind: Kind,
    /// Epoch of the session; 0 in the handshake.
    pub epoch: u64,
    /// Number of the operation: a program and its completion have the same. In *Proof* and *Welcome* features, a bit each: what the host can
    /// do besides, and what of it is done. Peers that know of none do not look there.
    pub op: u64,
    /// Every operation below was answered: the target may forget its answer.
    pub floor: u64,
}

impl Header {
    /// A header of a kind, for the handshake.
    pub fn of(kind: Kind) -> Header {
        Header { kind, epoch: 0, op: 0, floor: 0 }
    }

    /// Makes the same header with features.
    pub fn with_features(kind: Kind, features: u64) -> Header {
        Header { op: features, ..Header::of(kind) }
    }

    /// True when it has a feature; for *Proof* and *Welcome*.
    pub fn has_feature(&self, feature: u64) -> bool {
        self.op & feature != 0
    }
}

/// A frame as it came.
#[derive(Debug)]
pub struct Frame {
    /// Header of the frame.
    pub header: Header,
    /// Bytes of the message.
    pub message: Vec<u8>,
    /// The bytes that go with it.
    pub payload: Abd,
}

/// Limits of what may be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest message, in bytes.
    pub message_bytes_max: u32,
    /// Most payload, in bytes.
    pub payload_bytes_max: u32,
}

impl Limits {
    /// Limits for whoever has not proved anything.
    pub const HANDSHAKE: Limits = Limits { message_bytes_max: 16 << 10, payload_bytes_max: 0 };
    /// Limits for programs and completions.
    pub const SESSION: Limits = Limits { message_bytes_max: 1 << 20, payload_bytes_max: 256 << 20 };
}

/// Frame that came, or what is left of one.
#[derive(Debug)]
pub enum Received {
    /// A frame.
    Whole(Frame),
    /// A frame whose header is good, and whose rest is not.
    Damaged(Header),
}

/// Reason why nothing more can be received.
#[derive(Debug)]
pub enum ReadError {
    /// The other side closed the connection between two frames.
    Closed,
    /// The connection failed, also in the middle of a frame.
    Io(io::Error),
    /// The bytes that came are no header: damaged, of another version, or of another protocol.
    NoHeader,
    /// The bytes that came are not the next frame of the other side: changed, said again, left out before them, or somebody else's.
    NotAuthentic,
    /// The frame is longer than is allowed here.
    TooLong,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Closed => f.write_str("the connection was closed"),
            ReadError::Io(error) => write!(f, "the connection failed: {error}"),
            ReadError::NoHeader => f.write_str("what came is no frame"),
            ReadError::NotAuthentic => f.write_str("what came is not what the other side sent"),
            ReadError::TooLong => f.write_str("a frame is too long"),
        }
    }
}
impl std::error::Error for ReadError {}

fn crc_of(message: &[u8], payload: &Abd) -> u32 {
    let mut crc = libdeflater::Crc::new();
    crc.update(message);
    payload.fold((), |(), run| {
        crc.update(run);
        Some(())
    });
    crc.sum()
}

fn encode(header: &Header, message_bytes: u32, payload_bytes: u32, crc: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&[VERSION, header.kind as u8]);
    for (at, word) in [(8, header.epoch), (16, header.op), (24, header.floor)] {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    for (at, word) in [(32, message_bytes), (36, payload_bytes), (40, crc)] {
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let own = libdeflater::crc32(&bytes[..44]);
    bytes[44..].copy_from_slice(&own.to_le_bytes());
    bytes
}

fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    (0..8).fold(0, |word, index| word | u64::from(bytes[at + index]) << (8 * index))
}

fn half(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    (0..4).fold(0, |half, index| half | u32::from(bytes[at + index]) << (8 * index))
}

/// Header, message bytes, payload bytes, CRC; None for what is no header.
fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<(Header, u32, u32, u32)> {
    let is_ours = bytes[..4] == MAGIC && bytes[4] == VERSION && bytes[6..8] == [0, 0];
    if !is_ours || half(bytes, 44) != libdeflater::crc32(&bytes[..44]) {
        return None;
    }
    let kind = Kind::of(bytes[5])?;
    let header = Header { kind, epoch: word(bytes, 8), op: word(bytes, 16), floor: word(bytes, 24) };
    Some((header, half(bytes, 32), half(bytes, 36), half(bytes, 40)))
}

/// Sends a frame; its length on the link, in bytes. The payload must be stable ([`Abd::is_unstable`]).
///
/// # Errors
/// Those of the connection; `InvalidInput` for what is too long for a frame.
pub fn write_frame(link: &mut impl Write, header: &Header, message: &[u8], payload: &Abd) -> io::Result<u64> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let message_bytes = u32::try_from(message.len()).map_err(too_long)?;
    let payload_bytes = u32::try_from(payload.len()).map_err(too_long)?;
    let head = encode(header, message_bytes, payload_bytes, crc_of(message, payload));
    let mut slices = vec![IoSlice::new(&head), IoSlice::new(message)];
    slices.extend(payload.chunks().map(IoSlice::new));
    let mut rest: &mut [IoSlice<'_>] = &mut slices;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match link.write_vectored(&rest[..rest.len().min(1024)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    link.flush()?;
    Ok((HEADER_BYTES + message.len() + payload.len()) as u64)
}

/// Reads the first bytes of a frame; a connection that ends before them was closed.
pub(crate) fn read_start(link: &mut impl Read, bytes: &mut [u8]) -> Result<(), ReadError> {
    let first = loop {
        match link.read(bytes) {
            Ok(0) => return Err(ReadError::Closed),
            Ok(count) => break count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
    };
    link.read_exact(&mut bytes[first..]).map_err(ReadError::Io)
}

/// Receives a frame.
///
/// # Errors
/// After each of them the connection is of no use any more.
pub fn read_frame(link: &mut impl Read, limits: &Limits) -> Result<Received, ReadError> {
    let mut head = [0; HEADER_BYTES];
    read_start(link, &mut head)?;
    let (header, message_bytes, payload_bytes, crc) = decode(&head).ok_or(ReadError::NoHeader)?;
    if message_bytes > limits.message_bytes_max || payload_bytes > limits.payload_bytes_max {
        return Err(ReadError::TooLong);
    }
    let mut message = vec![0; message_bytes as usize];
    link.read_exact(&mut message).map_err(ReadError::Io)?;
    let payload = if payload_bytes == 0 {
        Abd::default()
    } else {
        let mut part = AbdPart::scratch(payload_bytes as usize);
        link.read_exact(&mut part).map_err(ReadError::Io)?;
        part.freeze()
    };
    let is_whole = crc_of(&message, &payload) == crc;
    Ok(if is_whole { Received::Whole(Frame { header, message, payload }) } else { Received::Damaged(header) })
}
