//! Streams that are written anew, record by record, with their checksums made again (OpenZFS: `zstream_redup.c`, `zstream_recompress.c`).

use cli::Stop;
use control_api::{ErrorKind, Failure};
use ondisk::ByteOrder;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use stream::{HeaderType, Reader, Record, Writer};

/// Words for a stream that is not written anew.
const WHAT: &str = "cannot rewrite the stream";

/// Part of a stream that its next END closes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    List,
    Substream,
}

/// Change of a record, which lies at an offset of the stream, with its payload.
pub type Change<'a> = &'a mut dyn FnMut(u64, &mut Record, &mut Vec<u8>) -> Result<(), Failure>;

/// Failure of a program that was asked for something else than it can do, or met a stream that is none.
pub fn failed(kind: ErrorKind, why: impl ToString) -> Failure {
    Failure::new(kind, WHAT, why.to_string())
}

/// Writes the stream on the standard input to the standard output, changed.
pub fn filter(change: Change<'_>) -> Result<u8, Stop> {
    let Some(output) = output()? else { return Ok(cli::EXIT_FAILURE) };
    copy(&mut Reader::new(BufReader::new(io::stdin())), output, change)?;
    Ok(0)
}

/// Place that a stream is written to; None, after words about it, when that is a terminal.
pub fn output() -> Result<Option<File>, Failure> {
    if io::stdout().is_terminal() {
        cli::errln!("Error: Stream can not be written to a terminal.\nYou must redirect standard output.");
        return Ok(None);
    }
    cli::print::raw_output().map(Some).map_err(|error| failed(ErrorKind::Io, cli::os_error(&error)))
}

/// Writes a stream anew; gives the number of its records.
pub fn copy<R: Read, W: Write>(reader: &mut Reader<R>, output: W, change: Change<'_>) -> Result<u64, Failure> {
    let unwritten = |error: io::Error| failed(ErrorKind::Io, cli::os_error(&error));
    let mut writer = Writer::new(BufWriter::new(output));
    let (mut payload, mut open, mut records) = (Vec::new(), Open::Nothing, 0);
    loop {
        let at = reader.offset();
        let Some(mut record) = reader.read_record(&mut payload).map_err(|error| failed(ErrorKind::Damaged, error))? else { break };
        if reader.order() != ByteOrder::Little {
            return Err(failed(ErrorKind::Unsupported, "it comes from a machine of the other byte order"));
        }
        change(at, &mut record, &mut payload)?;
        open = put(&mut writer, open, &record, &payload).map_err(unwritten)?;
        records += 1;
    }
    writer.into_sink().flush().map_err(unwritten)?;
    Ok(records)
}

/// Writes a record; gives what is open behind it.
fn put<W: Write>(writer: &mut Writer<W>, open: Open, record: &Record, payload: &[u8]) -> io::Result<Open> {
    match (open, record) {
        (_, Record::Begin(begin)) => {
            writer.begin_packed(begin.clone(), payload)?;
            let is_package = HeaderType::of_versioninfo(begin.versioninfo) == Some(HeaderType::Compound);
            Ok(if is_package { Open::List } else { Open::Substream })
        }
        (Open::List, Record::End(_)) => writer.end_list().map(|()| Open::Nothing),
        (Open::Substream, Record::End(end)) => writer.end(end.toguid).map(|()| Open::Nothing),
        (Open::Nothing, Record::End(_)) => writer.end_package().map(|()| Open::Nothing),
        (open, record) => writer.record(record, payload).map(|()| open),
    }
}
