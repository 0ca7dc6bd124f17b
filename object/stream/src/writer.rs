//! A stream that is written: records with their running checksum, one after another, into any sink (OpenZFS: `dump_record`).

use crate::{Begin, End, RECORD_BYTES, Record, SUM_AT};
use kernels::checksum::Fletcher4;
use nvlist::{Encoding, NvList};
use ondisk::ByteOrder;
use ondisk::record::Field;
use std::io;

/// Maker of a stream, in little-endian byte order. Nothing is kept back: each record is one write, and its payload another.
pub struct Writer<W> {
    sink: W,
    sum: Fletcher4,
    written: u64,
}

impl<W: io::Write> Writer<W> {
    /// Makes a writer into `sink`.
    pub fn new(sink: W) -> Writer<W> {
        Writer { sink, sum: Fletcher4::new(ByteOrder::Little), written: 0 }
    }

    /// Begins a substream, or a package: the checksum starts again. `list` follows the record, as XDR, with zeros up to a multiple of 8 bytes.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn begin(&mut self, begin: Begin, list: Option<&NvList>) -> io::Result<()> {
        let mut packed = list.map(|list| list.encode(Encoding::Xdr)).unwrap_or_default();
        // Receivers with assertions want payloads of whole words.
        packed.resize(packed.len().next_multiple_of(8), 0);
        self.begin_packed(begin, &packed)
    }

    /// Begins a substream, or a package, with a list that is packed already: the checksum starts again.
    ///
    /// # Errors
    /// Those of the sink; `InvalidInput` for a list that is too long.
    pub fn begin_packed(&mut self, begin: Begin, packed: &[u8]) -> io::Result<()> {
        self.sum = Fletcher4::new(ByteOrder::Little);
        let payload_bytes = u32::try_from(packed.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.record(&Record::Begin(Begin { payload_bytes, ..begin }), packed)
    }

    /// Adds a record and its payload, whose length must be what the record says.
    ///
    /// # Errors
    /// Those of the sink; `InvalidInput` for a payload of another length.
    pub fn record(&mut self, record: &Record, payload: &[u8]) -> io::Result<()> {
        if record.payload_bytes() != payload.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a {} record with another payload", record.name())));
        }
        let mut bytes = record.encode();
        self.sum.update(&bytes[..SUM_AT]);
        if !matches!(record, Record::Begin(_)) {
            self.sum.finish().put(&mut bytes[SUM_AT..], ByteOrder::Little);
        }
        self.sum.update(&bytes[SUM_AT..]);
        self.put(&bytes)?;
        self.sum.update(payload);
        self.put(payload)
    }

    /// Ends a substream.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end(&mut self, toguid: u64) -> io::Result<()> {
        let checksum = self.sum.finish();
        self.record(&Record::End(End { checksum, toguid }), &[])
    }

    /// Ends the list in front of a package; substreams follow (OpenZFS: `send_prelim_records`).
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end_list(&mut self) -> io::Result<()> {
        let checksum = self.sum.finish();
        self.put(&Record::End(End { checksum, toguid: 0 }).encode())
    }

    /// Ends a package, behind its last substream.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end_package(&mut self) -> io::Result<()> {
        self.put(&Record::End(End::default()).encode())
    }

    /// Bytes that were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The sink.
    pub fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Gives the sink back.
    pub fn into_sink(self) -> W {
        self.sink
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

const _: () = assert!(SUM_AT + <[u64; 4] as Field>::BYTES == RECORD_BYTES, "the checksum ends a record");
