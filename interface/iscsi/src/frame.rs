//! PDUs out of a stream of bytes and into one: lengths are checked before memory is taken, large data segments are received where they stay.

use crate::bytes::field;
use crate::pdu::{Body, HEADER_BYTES, Outgoing, Pdu};
use abd::{Abd, AbdPart};
use std::io::{IoSlice, IoSliceMut};

/// Size in bytes of the buffer that small PDUs and headers are read into, many at a time.
const STAGE_BYTES: usize = 64 * 1024;
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

/// A data segment that is being received.
struct Segment {
    pdu: Pdu,
    part: AbdPart,
    filled: usize,
}

/// Cuts the bytes of a connection into PDUs.
///
/// [`Framer::spaces`] says where the next bytes go, [`Framer::filled`] how many came, [`Framer::next_pdu`] gives PDUs until there is no whole one.
pub struct Framer {
    stage: Vec<u8>,
    start: usize,
    end: usize,
    segment: Option<Segment>,
    has_header_digest: bool,
    has_data_digest: bool,
    data_bytes_max: usize,
}

impl std::fmt::Debug for Framer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Framer").field("staged", &(self.end - self.start)).field("limit", &self.data_bytes_max).finish_non_exhaustive()
    }
}

impl Framer {
    /// A framer without digests that accepts data segments of at most `data_bytes_max` bytes.
    pub fn new(data_bytes_max: usize) -> Framer {
        Framer {
            stage: vec![0; STAGE_BYTES],
            start: 0,
            end: 0,
            segment: None,
            has_header_digest: false,
            has_data_digest: false,
            data_bytes_max,
        }
    }

    /// Sets what holds from the next PDU on: digests of headers and data, and the longest data segment in bytes.
    pub fn negotiated(&mut self, header_digest: bool, data_digest: bool, data_bytes_max: usize) {
        self.has_header_digest = header_digest;
        self.has_data_digest = data_digest;
        self.data_bytes_max = data_bytes_max;
    }

    /// Places for the next bytes of the connection, in order; never without room.
    pub fn spaces(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start > 0 {
            abd::note_copied(self.end - self.start);
            self.stage.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let rest: &mut [u8] = match &mut self.segment {
            Some(segment) => &mut segment.part[segment.filled..],
            None => &mut [],
        };
        [IoSliceMut::new(rest), IoSliceMut::new(&mut self.stage[self.end..])]
    }

    /// Notes that `count` bytes were put into what [`Framer::spaces`] gave.
    pub fn filled(&mut self, count: usize) {
        let mut count = count;
        if let Some(segment) = &mut self.segment {
            let into = count.min(segment.part.len() - segment.filled);
            segment.filled += into;
            count -= into;
        }
        self.end = (self.end + count).min(self.stage.len());
    }

    /// Copies `bytes` in, as if they had been received; for tests and whatever has no vectored read.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for mut space in self.spaces() {
            let count = space.len().min(bytes.len() - done);
            space[..count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        self.filled(done);
        done
    }

    fn staged(&self) -> &[u8] {
        &self.stage[self.start..self.end]
    }

    /// The next whole PDU, if it is there. After an error nothing more can be had.
    pub fn next_pdu(&mut self) -> Result<Option<Pdu>, FrameError> {
        if self.segment.is_none() && !self.begin()? {
            return Ok(None);
        }
        let Some(segment) = &self.segment else { return Ok(None) };
        let length = segment.part.len();
        let digest = if self.has_data_digest && length > 0 { DIGEST_BYTES } else { 0 };
        let trailer = padding(length) + digest;
        if segment.filled < length || self.staged().len() < trailer {
            return Ok(None);
        }
        let tail = self.staged()[..trailer].to_vec();
        self.start += trailer;
        let Some(segment) = self.segment.take() else { return Ok(None) };
        let mut pdu = segment.pdu;
        if length > 0 {
            pdu.data = segment.part.freeze();
        }
        if digest > 0 {
            let (pad, sent) = tail.split_at(padding(length));
            let sum = crc32c::crc32c_append(digest_of(0, &pdu.data), pad);
            if sum.to_le_bytes() != sent {
                return Err(FrameError::DataDigest);
            }
        }
        Ok(Some(pdu))
    }

    /// Takes a header from what is staged, and makes room for its data. False when the header is not whole yet.
    fn begin(&mut self) -> Result<bool, FrameError> {
        let staged = self.staged();
        let Some(header) = staged.first_chunk::<HEADER_BYTES>().copied() else { return Ok(false) };
        let additional = usize::from(header[4]) * 4;
        let digest = if self.has_header_digest { DIGEST_BYTES } else { 0 };
        let Some(whole) = staged.get(..HEADER_BYTES + additional + digest) else { return Ok(false) };
        let (covered, sent) = whole.split_at(HEADER_BYTES + additional);
        if digest > 0 && crc32c::crc32c(covered).to_le_bytes() != sent {
            return Err(FrameError::HeaderDigest);
        }
        let length = field(&header, 5, 3) as usize;
        if length > self.data_bytes_max {
            return Err(FrameError::TooLong { bytes: length, limit: self.data_bytes_max });
        }
        let pdu = Pdu { header, additional: covered[HEADER_BYTES..].to_vec(), data: Abd::default() };
        let after = self.start + whole.len();
        let have = length.min(self.end - after);
        let mut part = AbdPart::scratch(length);
        // What came with the header, or with those before it, has no other way: of small PDUs all of it, of large ones a part.
        abd::note_copied(have);
        part[..have].copy_from_slice(&self.stage[after..after + have]);
        self.start = after + have;
        self.segment = Some(Segment { pdu, part, filled: have });
        Ok(true)
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
