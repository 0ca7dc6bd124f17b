//! Frames after the handshake: encrypted, and each in its place in its direction.
//!
//! ```text
//! 0 "ZTG2" | 4 bytes of the head (4) | 8 bytes of the payload (4) | 12 CRC of bytes 0 to 11 (4)
//! | 16 head, sealed with bytes 0 to 15 beside it, and its tag (16) | payload, sealed, and its tag (16)
//! head: 0 kind | 1 epoch (8) | 9 op id (8) | 17 floor (8) | 25 message
//! ```
//! Numbers are little-endian. The CRC is for damage: without it a length that grew would be waited for. Nobody makes room for a payload before
//! the head, which has its length beside it, has opened. What does not open ends the connection: bytes that were changed, said again, left out or
//! put in another order, and those of another connection.

use crate::cipher::{Cipher, NoiseError, TAG_BYTES};
use crate::frame::{Frame, Header, Kind, Limits, ReadError, read_start};
use abd::{Abd, AbdPart};
use std::fmt;
use std::io::{self, Read, Write};

const MAGIC: [u8; 4] = *b"ZTG2";
/// Bytes that are not sealed.
const START_BYTES: usize = 16;
/// End of what the CRC is of.
const LENGTHS_END: usize = 12;
/// Bytes of a head before the message.
const HEAD_BYTES: usize = 25;
/// Longest memory that is kept from one frame to the next.
const KEPT_BYTES: usize = 4 << 20;

/// Length of a frame on the link, in bytes.
pub fn sealed_bytes(message: usize, payload: usize) -> u64 {
    let payload = if payload == 0 { 0 } else { payload + TAG_BYTES };
    (START_BYTES + HEAD_BYTES + message + TAG_BYTES + payload) as u64
}

fn failed(error: NoiseError) -> io::Error {
    io::Error::other(error)
}

/// The way out of a connection.
pub struct Sealer {
    cipher: Cipher,
    /// The frame as it goes out.
    frame: Vec<u8>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    pub(crate) fn new(cipher: Cipher) -> Sealer {
        Sealer { cipher, frame: Vec::new() }
    }

    /// Sends a frame; its length on the link, in bytes. After an error the connection is of no use any more.
    ///
    /// # Errors
    /// Those of the connection; `InvalidInput` for what is too long for a frame.
    pub fn write(&mut self, link: &mut impl Write, header: &Header, message: &[u8], payload: &Abd) -> io::Result<u64> {
        self.pack(header, message, payload)?;
        link.write_all(&self.frame)?;
        link.flush()?;
        let bytes = self.frame.len() as u64;
        if self.frame.capacity() > KEPT_BYTES {
            self.frame = Vec::new();
        }
        Ok(bytes)
    }

    fn pack(&mut self, header: &Header, message: &[u8], payload: &Abd) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let head_bytes = u32::try_from(HEAD_BYTES + message.len()).map_err(too_long)?;
        let payload_bytes = u32::try_from(payload.len()).map_err(too_long)?;
        let frame = &mut self.frame;
        frame.clear();
        frame.reserve(usize::try_from(sealed_bytes(message.len(), payload.len())).unwrap_or(0));
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&head_bytes.to_le_bytes());
        frame.extend_from_slice(&payload_bytes.to_le_bytes());
        let crc = libdeflater::crc32(frame);
        frame.extend_from_slice(&crc.to_le_bytes());
        frame.push(header.kind as u8);
        for word in [header.epoch, header.op, header.floor] {
            frame.extend_from_slice(&word.to_le_bytes());
        }
        frame.extend_from_slice(message);
        let (start, head) = frame.split_at_mut(START_BYTES);
        let tag = self.cipher.seal(start, head).map_err(failed)?;
        frame.extend_from_slice(&tag);
        if payload.is_empty() {
            return Ok(());
        }
        let at = frame.len();
        // A copy, so it stays what it is while it is sealed.
        payload.fold((), |(), run| {
            frame.extend_from_slice(run);
            Some(())
        });
        let tag = self.cipher.seal(&[], &mut frame[at..]).map_err(failed)?;
        frame.extend_from_slice(&tag);
        Ok(())
    }
}

/// The way in.
pub struct Opener {
    cipher: Cipher,
    /// Bytes as they came.
    sealed: Vec<u8>,
    /// True once something did not open.
    is_lost: bool,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

impl Opener {
    pub(crate) fn new(cipher: Cipher) -> Opener {
        Opener { cipher, sealed: Vec::new(), is_lost: false }
    }

    /// Receives a frame.
    ///
    /// # Errors
    /// After each of them the connection is of no use any more. `NotAuthentic`: what came is not the next frame of the other side.
    pub fn read(&mut self, link: &mut impl Read, limits: &Limits) -> Result<Frame, ReadError> {
        if self.is_lost {
            return Err(ReadError::NotAuthentic);
        }
        let frame = self.take(link, limits);
        self.is_lost = frame.is_err();
        if self.sealed.capacity() > KEPT_BYTES {
            self.sealed = Vec::new();
        }
        frame
    }

    fn take(&mut self, link: &mut impl Read, limits: &Limits) -> Result<Frame, ReadError> {
        let mut start = [0; START_BYTES];
        read_start(link, &mut start)?;
        let number = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
        let (head_bytes, payload_bytes) = (number(4) as usize, number(8));
        let is_ours = start[..4] == MAGIC && number(LENGTHS_END) == libdeflater::crc32(&start[..LENGTHS_END]);
        if !is_ours || head_bytes < HEAD_BYTES {
            return Err(ReadError::NotAuthentic);
        }
        if head_bytes - HEAD_BYTES > limits.message_bytes_max as usize || payload_bytes > limits.payload_bytes_max {
            return Err(ReadError::TooLong);
        }
        let mut head = vec![0; head_bytes];
        self.open(link, &start, &mut head)?;
        let message = head.split_off(HEAD_BYTES);
        let word = |at: usize| (0..8).fold(0, |word, index| word | u64::from(head[at + index]) << (8 * index));
        let kind = Kind::of(head[0]).ok_or(ReadError::NoHeader)?;
        let header = Header { kind, epoch: word(1), op: word(9), floor: word(17) };
        let payload = if payload_bytes == 0 {
            Abd::default()
        } else {
            let mut part = AbdPart::scratch(payload_bytes as usize);
            self.open(link, &[], &mut part)?;
            part.freeze()
        };
        Ok(Frame { header, message, payload })
    }

    /// Reads what is sealed, and opens it into `plain`.
    fn open(&mut self, link: &mut impl Read, beside: &[u8], plain: &mut [u8]) -> Result<(), ReadError> {
        self.sealed.resize(plain.len() + TAG_BYTES, 0);
        link.read_exact(&mut self.sealed).map_err(ReadError::Io)?;
        let (data, tag) = self.sealed.split_at(plain.len());
        self.cipher.open(beside, tag, data, plain).map_err(|_| ReadError::NotAuthentic)
    }
}
