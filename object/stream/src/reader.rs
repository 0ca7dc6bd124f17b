//! A stream that is read: records in the order in which they come, verified by their running checksum (OpenZFS: `receive_read_record`).

use crate::{HeaderType, MAGIC, RECORD_BYTES, Record, SUM_AT, StreamError};
use kernels::checksum::Fletcher4;
use nvlist::NvList;
use ondisk::ByteOrder;
use ondisk::record::Field;
use std::io;
use std::io::Read;

/// Bytes that are asked of memory before any of a payload was read: its length is not believed until the bytes are there.
const RESERVE_BYTES: u64 = 256 << 10;

/// Place in a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a BEGIN, between substreams, or behind the last.
    Outside,
    /// Behind the list of a package.
    List,
    /// Inside a substream.
    Substream,
}

/// Reader of a stream from any source, in the byte order in which it was sent. It reads no byte behind what it was asked for.
pub struct Reader<R> {
    source: R,
    order: ByteOrder,
    sum: Fletcher4,
    offset: u64,
    place: Place,
    in_package: bool,
    is_trusting: bool,
    stored: [u64; 4],
}

impl<R: io::Read> Reader<R> {
    /// Makes a reader at the start of a stream.
    pub fn new(source: R) -> Reader<R> {
        let order = ByteOrder::Little;
        let sum = Fletcher4::new(order);
        Reader { source, order, sum, offset: 0, place: Place::Outside, in_package: false, is_trusting: false, stored: [0; 4] }
    }

    /// The reader with checksums left uncompared.
    #[must_use]
    pub fn ignoring_checksums(self) -> Reader<R> {
        Reader { is_trusting: true, ..self }
    }

    /// Reads the next record, and its payload into `payload`, which keeps its memory. None at the end of the source between substreams.
    ///
    /// A package reads as a BEGIN with a list and an END, then its substreams, then one more END, whose fields are zero. Fields of records
    /// are in this machine's order; payloads are as they were sent ([`Reader::order`] tells how).
    ///
    /// # Errors
    /// See [`StreamError`]; after one, no record is to be had.
    pub fn read_record(&mut self, payload: &mut Vec<u8>) -> Result<Option<Record>, StreamError> {
        payload.clear();
        let at = self.offset;
        let mut bytes = [0; RECORD_BYTES];
        match self.fill(&mut bytes)? {
            RECORD_BYTES => {}
            0 if self.place == Place::Outside => return Ok(None),
            _ => return Err(StreamError::Truncated { offset: self.offset }),
        }
        if self.place == Place::Outside && !self.is_package_end(&bytes) {
            self.order = order_of(&bytes).ok_or(StreamError::NotAStream { offset: at })?;
            self.sum = Fletcher4::new(self.order);
        }
        let record = Record::decode(&bytes, self.order).map_err(|error| StreamError::Malformed { offset: at, what: error.what() })?;
        self.advance(&record, &bytes, at)?;
        self.read_payload(&record, payload, at)?;
        Ok(Some(record))
    }

    /// Byte order of the stream: that of payloads, unless they are compressed or raw.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Checksum in the last record that was read; zeros where there is none.
    pub fn checksum(&self) -> [u64; 4] {
        self.stored
    }

    /// The source.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// True behind the last substream of a package, whose closing END may follow.
    fn is_package_end(&self, bytes: &[u8; RECORD_BYTES]) -> bool {
        self.in_package && matches!(Record::decode(bytes, self.order), Ok(Record::End(_)))
    }

    /// Checks a record against its place and the sum so far, and moves on.
    fn advance(&mut self, record: &Record, bytes: &[u8; RECORD_BYTES], at: u64) -> Result<(), StreamError> {
        let damaged = StreamError::Checksum { offset: at, record: record.name() };
        self.stored = if matches!(record, Record::Begin(_)) { [0; 4] } else { <[u64; 4] as Field>::get(&bytes[SUM_AT..], self.order) };
        match (self.place, record) {
            (Place::Outside, Record::Begin(begin)) => {
                self.place = match HeaderType::of_versioninfo(begin.versioninfo) {
                    Some(HeaderType::Substream) => Place::Substream,
                    Some(HeaderType::Compound) if !self.in_package => Place::List,
                    Some(HeaderType::Compound) => return Err(StreamError::Malformed { offset: at, what: "a package inside a package" }),
                    None => return Err(StreamError::Malformed { offset: at, what: "a header of an unknown type" }),
                };
                self.in_package |= self.place == Place::List;
                self.sum.update(bytes);
                Ok(())
            }
            (Place::Outside, _) => {
                self.in_package = false;
                Ok(())
            }
            (Place::List, Record::End(end)) => {
                self.place = Place::Outside;
                if self.is_trusting || end.checksum == self.sum.finish() { Ok(()) } else { Err(damaged) }
            }
            (Place::List, _) => Err(StreamError::Malformed { offset: at, what: "the list of a package has no end" }),
            (Place::Substream, Record::Begin(_)) => Err(StreamError::Malformed { offset: at, what: "a stream inside a stream" }),
            (Place::Substream, _) => self.verify(record, bytes, damaged),
        }
    }

    /// Compares the checksums of a record inside a substream. One of zeros is no checksum: early senders had none.
    fn verify(&mut self, record: &Record, bytes: &[u8; RECORD_BYTES], damaged: StreamError) -> Result<(), StreamError> {
        let before = self.sum.finish();
        self.sum.update(&bytes[..SUM_AT]);
        if !self.is_trusting && self.stored != [0; 4] && self.stored != self.sum.finish() {
            return Err(damaged);
        }
        self.sum.update(&bytes[SUM_AT..]);
        if let Record::End(end) = record {
            self.place = Place::Outside;
            if !self.is_trusting && end.checksum != before {
                return Err(damaged);
            }
        }
        Ok(())
    }

    fn read_payload(&mut self, record: &Record, payload: &mut Vec<u8>, at: u64) -> Result<(), StreamError> {
        let bytes = record.payload_bytes();
        if bytes > record.payload_bytes_max() {
            return Err(StreamError::TooLong { offset: at, record: record.name(), bytes });
        }
        payload.reserve(bytes.min(RESERVE_BYTES) as usize);
        let read = (&mut self.source).take(bytes).read_to_end(payload)? as u64;
        self.offset += read;
        if read < bytes {
            return Err(StreamError::Truncated { offset: self.offset });
        }
        self.sum.update(payload);
        Ok(())
    }

    /// Reads until `bytes` is full or the source ends; returns the number of bytes read.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }
}

/// Byte order of a BEGIN, by its magic number; None if it is none.
fn order_of(bytes: &[u8; RECORD_BYTES]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| u64::get(&bytes[8..], *order) == MAGIC && u32::get(bytes, *order) == 0)
}

/// List in a BEGIN's payload, in either encoding; an empty one if there is no payload.
///
/// # Errors
/// Bytes that are no list.
pub fn begin_list(payload: &[u8]) -> Result<NvList, nvlist::DecodeError> {
    if payload.is_empty() { Ok(NvList::new()) } else { NvList::decode(payload) }
}
