//! PDUs out of a stream of bytes and into one: lengths are checked before memory is taken, large data segments are received where they stay.

use crate::bytes::field;
use crate::pdu::{Body, HEADER_BYTES, Outgoing, Pdu};
use abd::Abd;
use framing::Incoming;
use std::io::IoSlice;

/// Length in bytes of a digest.
const DIGEST_BYTES: usize = 4;

/// A stream that cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A data segment longer than was declared to be accepted.
    TooLong {
        /// Length in bytes that the header names.
        bytes: usize,
        /// Largest length in bytes that is accepted.
        limit: usize,
    },
    /// Header and header digest do not match.
    HeaderDigest,
    /// Data segment and data digest do not match.
    DataDigest,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::TooLong { bytes, limit } => write!(f, "a data segment of {bytes} bytes, of which {limit} are accepted"),
            FrameError::HeaderDigest => f.write_str("a header whose digest is wrong"),
            FrameError::DataDigest => f.write_str("data whose digest is wrong"),
        }
    }
}

impl std::error::Error for FrameError {}

/// CRC32C of an Abd, continued from `before`.
fn digest_of(before: u32, data: &Abd) -> u32 {
    data.fold(before, |sum, bytes| Some(crc32c::crc32c_append(sum, bytes))).unwrap_or(before)
}

fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

/// Cuts the bytes of a connection into PDUs: [`Framer::next_pdu`] gives them until there is no whole one.
pub struct Framer {
    /// Bytes that came; never without room when all PDUs that are whole were taken.
    pub incoming: Incoming,
    /// PDU whose header was taken.
    begun: Option<Pdu>,
    has_header_digest: bool,
    has_data_digest: bool,
    data_bytes_max: usize,
}

impl Framer {
    /// A framer without digests that accepts data segments of at most `data_bytes_max` bytes.
    pub fn new(data_bytes_max: usize) -> Framer {
        Framer { incoming: Incoming::default(), begun: None, has_header_digest: false, has_data_digest: false, data_bytes_max }
    }

    /// Sets what holds from the next PDU on: digests of headers and data, and the longest data segment in bytes.
    pub fn negotiated(&mut self, header_digest: bool, data_digest: bool, data_bytes_max: usize) {
        self.has_header_digest = header_digest;
        self.has_data_digest = data_digest;
        self.data_bytes_max = data_bytes_max;
    }

    /// The next whole PDU, if it is there. After an error nothing more can be had.
    pub fn next_pdu(&mut self) -> Result<Option<Pdu>, FrameError> {
        if self.begun.is_none() {
            self.begun = self.begin()?;
        }
        let Some(mut pdu) = self.begun.take() else { return Ok(None) };
        if let Some(data) = self.incoming.payload() {
            pdu.data = data;
        }
        let length = pdu.data.len();
        let digest = if self.has_data_digest && length > 0 { DIGEST_BYTES } else { 0 };
        let Some(tail) = self.incoming.take(padding(length) + digest) else {
            self.begun = Some(pdu);
            return Ok(None);
        };
        let (pad, sent) = tail.split_at(padding(length));
        let sum = || crc32c::crc32c_append(digest_of(0, &pdu.data), pad).to_le_bytes();
        if digest > 0 && sum() != sent {
            return Err(FrameError::DataDigest);
        }
        Ok(Some(pdu))
    }

    /// Takes a header from what is staged, and expects its data. None when the header is not whole yet.
    fn begin(&mut self) -> Result<Option<Pdu>, FrameError> {
        let staged = self.incoming.staged();
        let Some(header) = staged.first_chunk::<HEADER_BYTES>().copied() else { return Ok(None) };
        let additional = usize::from(header[4]) * 4;
        let digest = if self.has_header_digest { DIGEST_BYTES } else { 0 };
        let Some(whole) = staged.get(..HEADER_BYTES + additional + digest) else { return Ok(None) };
        let (covered, sent) = whole.split_at(HEADER_BYTES + additional);
        if digest > 0 && crc32c::crc32c(covered).to_le_bytes() != sent {
            return Err(FrameError::HeaderDigest);
        }
        let length = field(&header, 5, 3) as usize;
        if length > self.data_bytes_max {
            return Err(FrameError::TooLong { bytes: length, limit: self.data_bytes_max });
        }
        let pdu = Pdu { header, additional: covered[HEADER_BYTES..].to_vec(), data: Abd::default() };
        let taken = whole.len();
        self.incoming.take(taken);
        if length > 0 {
            self.incoming.expect(length);
        }
        Ok(Some(pdu))
    }
}

/// A PDU as it goes out: header, data and what closes them.
#[derive(Debug)]
pub(crate) struct Wire {
    head: Vec<u8>,
    body: Body,
    tail: Vec<u8>,
}

impl Wire {
    /// Encodes `pdu` with the digests that were agreed upon.
    pub(crate) fn new(pdu: Outgoing, header_digest: bool, data_digest: bool) -> Wire {
        let Outgoing { header, body } = pdu;
        let mut head = header.to_vec();
        if header_digest {
            head.extend(crc32c::crc32c(&header).to_le_bytes());
        }
        let mut tail = vec![0; padding(body.len())];
        let body = match body {
            // A digest is of bytes that nobody changes between it and the socket.
            Body::Pages(pages) if data_digest => Body::Pages(pages.to_stable()),
            other => other,
        };
        if data_digest && !body.is_empty() {
            let sum = match &body {
                Body::Bytes(bytes) => crc32c::crc32c(bytes),
                Body::Pages(pages) => digest_of(0, pages),
            };
            let sum = crc32c::crc32c_append(sum, &tail);
            tail.extend(sum.to_le_bytes());
        }
        Wire { head, body, tail }
    }

    /// Length in bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Length in bytes of the data segment.
    pub(crate) fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Appends the bytes from `skip` on to a gather list.
    pub(crate) fn slices<'a>(&'a self, skip: usize, list: &mut Vec<IoSlice<'a>>) {
        let mut skip = skip;
        let mut add = |slice: IoSlice<'a>| {
            let mut slice = slice;
            let over = skip.min(slice.len());
            skip -= over;
            if over < slice.len() {
                slice.advance(over);
                list.push(slice);
            }
        };
        add(IoSlice::new(&self.head));
        match &self.body {
            Body::Bytes(bytes) => add(IoSlice::new(bytes)),
            Body::Pages(pages) => pages.io_slices().into_iter().for_each(&mut add),
        }
        add(IoSlice::new(&self.tail));
    }
}

impl Outgoing {
    /// The bytes of the PDU on the wire, with the digests asked for; a copy.
    pub fn encode(self, header_digest: bool, data_digest: bool) -> Vec<u8> {
        let wire = Wire::new(self, header_digest, data_digest);
        let mut list = Vec::new();
        wire.slices(0, &mut list);
        list.iter().flat_map(|slice| slice.iter().copied()).collect()
    }
}
