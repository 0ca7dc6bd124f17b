//! Send streams as others might have made them: records, payloads and lists behind checksums that are right, and resume tokens.

use nvlist::NvList;
use ondisk::ByteOrder;
use stream::{
    Begin, Features, Free, FreeObjects, HeaderType, Object, RECORD_BYTES, Reader, Record, SUM_AT, Spill, StreamError, TO_END, Write,
    WriteEmbedded, Writer, begin_list, token,
};

/// Seeds: a package of one substream with most records, that substream alone, a token, and what our own send made of datasets.
pub fn stream_seeds() -> Vec<Vec<u8>> {
    let list = NvList::new().with("tosnap", "monday").with("resume_object", 7u64).with("redact_snaps", vec![1u64, 2]);
    let whole = written(|writer| {
        writer.begin(head(HeaderType::Compound), Some(&list))?;
        writer.end_list()?;
        substream(writer, &list)?;
        writer.end_package()
    });
    let alone = written(|writer| substream(writer, &list));
    let mut seeds = vec![whole, alone, token::encode(&list).into_bytes()];
    seeds.extend_from_slice(crate::received::streams());
    seeds
}

fn written(write: impl FnOnce(&mut Writer<Vec<u8>>) -> std::io::Result<()>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    write(&mut writer).expect("memory takes all");
    writer.into_sink()
}

fn head(kind: HeaderType) -> Begin {
    Begin { versioninfo: Features::SA_SPILL.versioninfo(kind), kind: 2, toguid: 5, ..Begin::default() }
}

fn substream(writer: &mut Writer<Vec<u8>>, list: &NvList) -> std::io::Result<()> {
    writer.begin(head(HeaderType::Substream), Some(list))?;
    writer.record(&Record::FreeObjects(FreeObjects { firstobj: 0, numobjs: 1, toguid: 5 }), &[])?;
    writer.record(&Record::Object(Object { object: 1, kind: 19, blksz: 512, bonuslen: 20, toguid: 5, ..Object::default() }), &[1; 24])?;
    writer.record(&Record::Write(Write { object: 1, kind: 19, logical_size: 64, toguid: 5, ..Write::default() }), &[2; 64])?;
    writer.record(&Record::Spill(Spill { object: 1, length: 32, toguid: 5, ..Spill::default() }), &[3; 32])?;
    writer.record(
        &Record::WriteEmbedded(WriteEmbedded { object: 1, offset: 512, length: 512, psize: 17, lsize: 512, ..WriteEmbedded::default() }),
        &[4; 24],
    )?;
    writer.record(&Record::Free(Free { object: 1, offset: 1024, length: TO_END, toguid: 5 }), &[])?;
    writer.end(5)
}

/// Reads a stream as it came, and once more without the checksums of its records, which are then not compared; checks that what decodes
/// as a record encodes to what decodes to the same.
pub fn stream(data: &[u8]) {
    for chunk in data.chunks_exact(RECORD_BYTES) {
        let Some(bytes) = chunk.first_chunk::<RECORD_BYTES>() else { continue };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let Ok(record) = Record::decode(bytes, order) else { continue };
            assert_eq!(Record::decode(&record.encode_order(order), order), Ok(record));
        }
    }
    read(data);
    read(&unsummed(data));
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(list) = token::decode(text)
    {
        assert_eq!(token::decode(&token::encode(&list)), Ok(list));
    }
}

/// Reads to the first error, which must lie inside of what there was.
fn read(data: &[u8]) {
    let (mut reader, mut payload) = (Reader::new(data), Vec::new());
    loop {
        match reader.read_record(&mut payload) {
            Ok(Some(Record::Begin(begin))) => {
                let _ = (begin_list(&payload), begin.toname.to_string());
            }
            Ok(Some(record)) => assert!(payload.len() as u64 <= record.payload_bytes_max(), "{record:?}"),
            Ok(None) => return assert_eq!(reader.offset(), data.len() as u64),
            Err(StreamError::Truncated { offset }) => return assert_eq!(offset, data.len() as u64),
            Err(_) => return assert!(reader.offset() <= data.len() as u64),
        }
    }
}

/// The stream with the checksums of its records removed.
fn unsummed(data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut at) = (data.to_vec(), 0);
    while let Some(head) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<RECORD_BYTES>()) {
        let Ok(record) = Record::decode(head, ByteOrder::Little) else { break };
        if !matches!(record, Record::Begin(_)) {
            head[SUM_AT..].fill(0);
        }
        let payload = usize::try_from(record.payload_bytes().min(record.payload_bytes_max())).unwrap_or(0);
        at += RECORD_BYTES + payload;
    }
    bytes
}
