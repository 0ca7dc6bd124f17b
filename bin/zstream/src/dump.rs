//! `zstream dump`: the records of a stream as lines, and their sums (OpenZFS: `zstream_dump.c`).

use cli::Stop;
use control_api::{ErrorKind, Failure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use stream::{Begin, Features, Object, RECORD_BYTES, Reader, Record, StreamError, Write, begin_list};

/// Bytes of data in a line.
const LINE_BYTES: usize = 16;
/// Bytes between two blanks.
const GROUP_BYTES: usize = 4;
/// Column at which the letters begin.
const LETTERS_AT: usize = 3 * LINE_BYTES + LINE_BYTES / GROUP_BYTES + 2;
/// Types of records in the order of the sums, with the names that these have.
const NAMES: [(&str, &str); 11] = [
    ("BEGIN", "DRR_BEGIN"),
    ("END", "DRR_END"),
    ("OBJECT", "DRR_OBJECT"),
    ("FREEOBJECTS", "DRR_FREEOBJECTS"),
    ("WRITE", "DRR_WRITE"),
    ("WRITE_BYREF", "DRR_WRITE_BYREF"),
    ("WRITE_EMBEDDED", "DRR_WRITE_EMBEDDED"),
    ("FREE", "DRR_FREE"),
    ("SPILL", "DRR_SPILL"),
    ("OBJECT_RANGE", "DRR_OBJECT_RANGE"),
    ("REDACT", "DRR_REDACT"),
];

/// Parts of a stream that are shown.
pub struct Shown {
    /// Every record.
    pub records: bool,
    /// Checksums of records.
    pub checksums: bool,
    /// Data in records.
    pub data: bool,
    /// True when checksums are not compared.
    pub is_trusting: bool,
}

/// Number of records of each type, and the bytes of their payloads.
type Sums = BTreeMap<&'static str, (u64, u64)>;

/// Shows a stream.
pub fn run(file: Option<&str>, shown: &Shown) -> Result<u8, Stop> {
    let what = "cannot read the stream";
    let source: Box<dyn Read> = match file {
        Some(path) => {
            let opened = File::open(path);
            Box::new(opened.map_err(|error| Failure::new(ErrorKind::NotFound, format!("cannot open '{path}'"), cli::os_error(&error)))?)
        }
        None => Box::new(std::io::stdin()),
    };
    let reader = Reader::new(BufReader::new(source));
    let mut reader = if shown.is_trusting { reader.ignoring_checksums() } else { reader };
    let mut sums = Sums::new();
    match show(&mut reader, shown, &mut sums) {
        Ok(()) => {}
        // What there is of a stream that broke off is what its sums are asked for (OpenZFS: `ssread`).
        Err(error @ StreamError::Truncated { .. }) if !sums.is_empty() => cli::errln!("warning: {error}"),
        Err(error) => return Err(Failure::new(ErrorKind::Damaged, what, error.to_string()).into()),
    }
    show_sums(&sums);
    Ok(0)
}

fn show(reader: &mut Reader<BufReader<Box<dyn Read>>>, shown: &Shown, sums: &mut Sums) -> Result<(), StreamError> {
    let mut payload = Vec::new();
    while let Some(record) = reader.read_record(&mut payload)? {
        let (count, bytes) = sums.entry(record.name()).or_default();
        (*count, *bytes) = (*count + 1, *bytes + payload.len() as u64);
        let is_edge = matches!(record, Record::Begin(_) | Record::End(_));
        if shown.records || is_edge {
            cli::outln!("{}", line(&record, payload.len()));
        }
        if let Record::Begin(begin) = &record {
            show_list(begin, &payload);
        } else if shown.data {
            show_data(&payload);
        }
        if shown.checksums && !matches!(record, Record::Begin(_)) {
            let [a, b, c, d] = reader.checksum();
            cli::outln!("    checksum = {a:x}/{b:x}/{c:x}/{d:x}");
        }
    }
    Ok(())
}

fn show_list(begin: &Begin, payload: &[u8]) {
    if begin.payload_bytes == 0 {
        return;
    }
    match payload {
        [1, ..] => cli::outln!("nvlist encoding = NV_ENCODE_XDR"),
        [_, 0, ..] => cli::outln!("nvlist encoding = NV_ENCODE_NATIVE (big-endian)"),
        _ => cli::outln!("nvlist encoding = NV_ENCODE_NATIVE (little-endian)"),
    }
    match begin_list(payload) {
        Ok(list) => cli::out!("{}", list.listing()),
        Err(error) => cli::outln!("failed to unpack DRR_BEGIN nvlist: {error}"),
    }
}

/// Line of a record; of a BEGIN several.
fn line(record: &Record, payload: usize) -> String {
    match record {
        Record::Begin(begin) => begin_lines(begin),
        Record::End(end) => {
            let [a, b, c, d] = end.checksum;
            format!("END checksum = {a:x}/{b:x}/{c:x}/{d:x}")
        }
        Record::Object(object) => object_line(object),
        Record::FreeObjects(objects) => format!("FREEOBJECTS firstobj = {} numobjs = {}", objects.firstobj, objects.numobjs),
        Record::Write(write) => write_line(write, payload),
        // OpenZFS shows the end of an object as a negative number.
        Record::Free(free) => format!("FREE object = {} offset = {} length = {}", free.object, free.offset, free.length.cast_signed()),
        Record::Spill(spill) => format!(
            "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} payload_size = {payload} {}",
            spill.object,
            spill.length,
            spill.flags,
            spill.compressiontype,
            spill.compressed_size,
            keys(&spill.salt, &spill.iv, &spill.mac)
        ),
        Record::WriteEmbedded(write) => format!(
            "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} lsize = {} psize = {}",
            write.object, write.offset, write.length, write.toguid, write.compression, write.etype, write.lsize, write.psize
        ),
        Record::WriteByRef(write) => format!(
            "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} refguid = {:x} refobject = {} \
             refoffset = {}",
            write.object,
            write.checksumtype,
            write.key_prop,
            write.offset,
            write.length,
            write.toguid,
            write.refguid,
            write.refobject,
            write.refoffset
        ),
        Record::ObjectRange(range) => format!(
            "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
            range.firstobj,
            range.numslots,
            range.flags,
            keys(&range.salt, &range.iv, &range.mac)
        ),
        Record::Redact(redact) => format!("REDACT object = {} offset = {} length = {}", redact.object, redact.offset, redact.length),
    }
}

fn begin_lines(begin: &Begin) -> String {
    format!(
        "BEGIN record\n\thdrtype = {}\n\tfeatures = {:x}\n\tmagic = {:x}\n\tcreation_time = {:x}\n\ttype = {}\n\tflags = {:#x}\n\
         \ttoguid = {:x}\n\tfromguid = {:x}\n\ttoname = {}\n\tpayloadlen = {}",
        begin.versioninfo & 3,
        Features::of_versioninfo(begin.versioninfo).0,
        stream::MAGIC,
        begin.creation_time,
        begin.kind,
        begin.flags,
        begin.toguid,
        begin.fromguid,
        begin.toname,
        begin.payload_bytes
    )
}

fn object_line(object: &Object) -> String {
    format!(
        "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} raw_bonuslen = {} flags = {} maxblkid = {} \
         indblkshift = {} nlevels = {} nblkptr = {}",
        object.object,
        object.kind,
        object.bonustype,
        object.blksz,
        object.bonuslen,
        object.dn_slots,
        object.raw_bonuslen,
        object.flags,
        object.maxblkid,
        object.indblkshift,
        object.nlevels,
        object.nblkptr
    )
}

fn write_line(write: &Write, payload: usize) -> String {
    format!(
        "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} logical_size = {} \
         compressed_size = {} payload_size = {payload} props = {:x} {}",
        write.object,
        write.kind,
        write.checksumtype,
        write.compressiontype,
        write.flags,
        write.offset,
        write.logical_size,
        write.compressed_size,
        write.key_prop,
        keys(&write.salt, &write.iv, &write.mac)
    )
}

fn keys(salt: &[u8], iv: &[u8], mac: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("salt = {} iv = {} mac = {}", hex(salt), hex(iv), hex(mac))
}

/// Shows bytes as numbers and as letters.
fn show_data(data: &[u8]) {
    for bytes in data.chunks(LINE_BYTES) {
        let group = |index: usize| if index.is_multiple_of(GROUP_BYTES) { " " } else { "" };
        let numbers: String = bytes.iter().enumerate().map(|(index, byte)| format!("{}{byte:02x} ", group(index))).collect();
        let letter = |byte: u8| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' };
        let letters: String = bytes.iter().enumerate().map(|(index, byte)| format!("{}{}", group(index), letter(*byte))).collect();
        cli::outln!("{numbers:LETTERS_AT$}{letters}");
    }
}

fn show_sums(sums: &Sums) {
    cli::outln!("SUMMARY:");
    for (name, shown) in NAMES {
        let (count, bytes) = sums.get(name).copied().unwrap_or_default();
        cli::outln!("\tTotal {shown} records = {count} ({bytes} bytes)");
    }
    let (count, bytes) = sums.values().fold((0, 0), |(count, bytes), (more, longer)| (count + more, bytes + longer));
    let heads = count * RECORD_BYTES as u64;
    cli::outln!("\tTotal records = {count}");
    cli::outln!("\tTotal payload size = {bytes} ({bytes:#x})");
    cli::outln!("\tTotal header overhead = {heads} ({heads:#x})");
    cli::outln!("\tTotal stream length = {} ({:#x})", heads + bytes, heads + bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream::{Free, TO_END};

    /// Scripts of OpenZFS's suite look for these words.
    #[test]
    fn lines_are_those_of_openzfs() {
        let free = Record::Free(Free { object: 7, offset: 512, length: TO_END, toguid: 1 });
        assert_eq!(line(&free, 0), "FREE object = 7 offset = 512 length = -1");
        let begin = Begin { versioninfo: Features::LZ4.versioninfo(stream::HeaderType::Substream), ..Begin::default() };
        assert!(line(&Record::Begin(begin), 0).contains("\thdrtype = 1\n\tfeatures = 20000\n\tmagic = 2f5bacbac\n"));
        let write = Write { object: 3, logical_size: 512, ..Write::default() };
        assert!(line(&Record::Write(write), 512).starts_with("WRITE object = 3 type = 0 checksum type = 0 compression type = 0 flags = 0"));
    }
}
