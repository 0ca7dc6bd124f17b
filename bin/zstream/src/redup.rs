//! `zstream redup`: a deduplicated stream becomes one that can be received (OpenZFS: `zstream_redup.c`).

use crate::rewrite::{copy, failed, output};
use cli::Stop;
use control_api::{ErrorKind, Failure};
use ondisk::ByteOrder;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use stream::{Features, RECORD_BYTES, Reader, Record, Write, WriteByRef};

/// Bytes of memory that an entry of the table takes, about.
const ENTRY_BYTES: usize = size_of::<((u64, u64, u64), u64)>();

/// Offsets in the stream of all that was written, by snapshot, object and offset.
#[derive(Default)]
struct Table(HashMap<(u64, u64, u64), u64>);

/// Bytes of a stream at an offset.
type ReadAt<'a> = &'a dyn Fn(&mut [u8], u64) -> std::io::Result<()>;

impl Table {
    /// Makes a WRITE with the contents that are meant out of one that refers to them. True when it was one.
    fn resolve(&mut self, at: u64, record: &mut Record, payload: &mut Vec<u8>, read: ReadAt<'_>) -> Result<bool, Failure> {
        match record {
            Record::Begin(begin) => {
                let features = Features::of_versioninfo(begin.versioninfo).without(Features::DEDUP.with(Features::DEDUP_PROPS));
                if let Some(kind) = stream::HeaderType::of_versioninfo(begin.versioninfo) {
                    begin.versioninfo = features.versioninfo(kind);
                }
            }
            Record::Write(write) => {
                self.0.insert((write.toguid, write.object, write.offset), at);
            }
            Record::WriteByRef(reference) => {
                let write = self.written(reference, payload, read)?;
                *record = Record::Write(write);
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// The WRITE that is referred to, at the place of what refers to it, with its payload.
    fn written(&self, reference: &WriteByRef, payload: &mut Vec<u8>, read: ReadAt<'_>) -> Result<Write, Failure> {
        let WriteByRef { refguid, refobject, refoffset, object, offset, toguid, .. } = *reference;
        let missing = || failed(ErrorKind::Damaged, format!("block {refobject},{refoffset} is referred to, and not there"));
        let at = *self.0.get(&(refguid, refobject, refoffset)).ok_or_else(missing)?;
        let unread = |error: std::io::Error| failed(ErrorKind::Io, cli::os_error(&error));
        let mut bytes = [0; RECORD_BYTES];
        read(&mut bytes, at).map_err(unread)?;
        let Ok(Record::Write(write)) = Record::decode(&bytes, ByteOrder::Little) else { return Err(missing()) };
        let length = Record::Write(write.clone()).payload_bytes();
        payload.resize(length as usize, 0);
        read(payload, at + RECORD_BYTES as u64).map_err(unread)?;
        Ok(Write { object, offset, toguid, ..write })
    }
}

/// Writes the stream in a file to the standard output, without references.
pub fn run(path: &str, is_verbose: bool) -> Result<u8, Stop> {
    let opened =
        File::open(path).map_err(|error| Failure::new(ErrorKind::NotFound, format!("cannot open '{path}'"), cli::os_error(&error)))?;
    let Some(output) = output()? else { return Ok(cli::EXIT_FAILURE) };
    let (mut table, mut references) = (Table::default(), 0);
    let mut reader = Reader::new(BufReader::new(&opened));
    let records = copy(&mut reader, output, &mut |at, record, payload| {
        let is_reference = table.resolve(at, record, payload, &|bytes, at| opened.read_exact_at(bytes, at))?;
        references += u64::from(is_reference);
        Ok(())
    })?;
    if is_verbose {
        let memory = cli::number::nice_bytes((table.0.len() * ENTRY_BYTES) as u64);
        cli::errln!("Converted stream with {records} total records, including {references} dedup records, using {memory} memory.");
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{GUID, changed, package, read};

    fn write(object: u64, offset: u64, byte: u8) -> (Record, Vec<u8>) {
        (Record::Write(Write { object, offset, logical_size: 16, toguid: GUID, ..Write::default() }), vec![byte; 16])
    }

    fn reference(object: u64, offset: u64, (refobject, refoffset): (u64, u64)) -> (Record, Vec<u8>) {
        let to = WriteByRef { object, offset, length: 16, toguid: GUID, refguid: GUID, refobject, refoffset, ..WriteByRef::default() };
        (Record::WriteByRef(to), Vec::new())
    }

    fn resolved(stream: &[u8]) -> Vec<u8> {
        let mut table = Table::default();
        let read = |bytes: &mut [u8], at: u64| {
            bytes.copy_from_slice(&stream[at as usize..][..bytes.len()]);
            Ok(())
        };
        changed(stream, &mut |at, record, payload| table.resolve(at, record, payload, &read).map(drop))
    }

    /// If this fails, an old backup of deduplicated streams comes back with other contents, or not at all.
    #[test]
    fn what_is_referred_to_takes_the_place_of_the_reference() {
        let records = [write(1, 0, 7), write(1, 16, 8), reference(2, 0, (1, 16)), reference(2, 16, (1, 0)), reference(3, 0, (1, 16))];
        let made = resolved(&package(Features::DEDUP.with(Features::SA_SPILL), &records));
        let wanted = vec![write(1, 0, 7), write(1, 16, 8), write(2, 0, 8), write(2, 16, 7), write(3, 0, 8)];
        assert_eq!(read(&made), (Features::SA_SPILL, wanted));
    }

    #[test]
    fn references_to_nothing_are_damage() {
        let stream = package(Features::DEDUP, &[write(1, 0, 7), reference(2, 0, (1, 16))]);
        let mut table = Table::default();
        let copied = copy(&mut Reader::new(&stream[..]), Vec::new(), &mut |at, record, payload| {
            table.resolve(at, record, payload, &|_, _| Ok(())).map(drop)
        });
        assert!(copied.is_err_and(|failure| failure.why.contains("1,16")));
    }
}
