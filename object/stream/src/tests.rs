//! A stream that is read differently than it was written puts other bytes into a backup; one whose damage is not seen does so silently.

use super::*;
use nvlist::NvList;
use ondisk::ByteOrder;
use ondisk::record::Field;

/// One record of every kind, its fields all different, with a payload each where there is one.
fn every_record() -> Vec<(Record, Vec<u8>)> {
    let bytes = |length: u8| (1..=length).collect::<Vec<u8>>();
    vec![
        (
            Record::Object(Object {
                object: 7,
                kind: 19,
                bonustype: 44,
                blksz: 4096,
                bonuslen: 13,
                checksumtype: 7,
                compress: 15,
                dn_slots: 2,
                flags: object_flags::SPILL,
                raw_bonuslen: 0,
                toguid: 0x1122_3344_5566_7788,
                indblkshift: 17,
                nlevels: 2,
                nblkptr: 3,
                maxblkid: 99,
            }),
            bytes(16),
        ),
        (Record::FreeObjects(FreeObjects { firstobj: 8, numobjs: 24, toguid: 5 }), Vec::new()),
        (Record::Write(Write { object: 7, kind: 19, offset: 4096, logical_size: 48, toguid: 5, ..Write::default() }), bytes(48)),
        (
            Record::Write(Write {
                object: 7,
                offset: 8192,
                logical_size: 4096,
                compressiontype: 15,
                key_checksum: [1, 2, 3, 4],
                key_prop: 0x77,
                compressed_size: 40,
                salt: [1; 8],
                iv: [2; 12],
                mac: [3; 16],
                ..Write::default()
            }),
            bytes(40),
        ),
        (Record::Free(Free { object: 7, offset: 1 << 20, length: TO_END, toguid: 5 }), Vec::new()),
        (Record::Spill(Spill { object: 7, length: 24, toguid: 5, flags: spill_flags::UNMODIFIED, ..Spill::default() }), bytes(24)),
        (
            Record::WriteEmbedded(WriteEmbedded {
                object: 7,
                offset: 9,
                length: 512,
                toguid: 5,
                compression: 15,
                etype: 0,
                lsize: 512,
                psize: 21,
            }),
            bytes(24),
        ),
        (
            Record::ObjectRange(ObjectRange { firstobj: 32, numslots: 32, toguid: 5, salt: [4; 8], iv: [5; 12], mac: [6; 16], flags: 1 }),
            Vec::new(),
        ),
        (Record::Redact(Redact { object: 7, offset: 512, length: 1024, toguid: 5 }), Vec::new()),
        (
            Record::WriteByRef(WriteByRef {
                object: 7,
                offset: 12_288,
                length: 48,
                toguid: 5,
                refguid: 4,
                refobject: 6,
                refoffset: 4096,
                checksumtype: 8,
                flags: write_flags::CHECKSUM_DEDUP,
                key_checksum: [4, 3, 2, 1],
                key_prop: 0x78,
            }),
            Vec::new(),
        ),
    ]
}

fn head(kind: HeaderType) -> Begin {
    let versioninfo = Features::SA_SPILL.with(Features::LZ4).versioninfo(kind);
    let toname = StreamName::new("tank/home@monday").expect("a short name");
    Begin {
        versioninfo,
        creation_time: 1_700_000_000,
        kind: 2,
        flags: begin_flags::FREERECORDS,
        toguid: 5,
        fromguid: 3,
        toname,
        payload_bytes: 0,
    }
}

/// A package with one substream.
fn package() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    writer.begin(head(HeaderType::Compound), Some(&NvList::new().with("tosnap", "monday"))).expect("memory takes all");
    writer.end_list().expect("memory takes all");
    writer.begin(head(HeaderType::Substream), None).expect("memory takes all");
    for (record, payload) in every_record() {
        writer.record(&record, &payload).expect("the payload has its length");
    }
    writer.end(5).expect("memory takes all");
    writer.end_package().expect("memory takes all");
    assert_eq!(writer.written(), writer.sink().len() as u64);
    writer.into_sink()
}

/// Reads all of it, and says where it stopped.
fn read_all(bytes: &[u8]) -> (Vec<(Record, Vec<u8>)>, Option<StreamError>) {
    let (mut reader, mut payload, mut found) = (Reader::new(bytes), Vec::new(), Vec::new());
    loop {
        match reader.read_record(&mut payload) {
            Ok(Some(record)) => found.push((record, payload.clone())),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

#[test]
fn what_was_written_is_read() {
    let (found, error) = read_all(&package());
    assert!(error.is_none(), "{error:?}");
    let names: Vec<&str> = found.iter().map(|(record, _)| record.name()).collect();
    assert_eq!((&names[..3], &names[names.len() - 2..]), (&["BEGIN", "END", "BEGIN"][..], &["END", "END"][..]));
    assert_eq!(found[3..found.len() - 2], every_record());
    let list = begin_list(&found[0].1).expect("a list");
    assert_eq!(list.get_str("tosnap"), Some("monday"));
    let Record::Begin(begin) = &found[2].0 else { panic!("no BEGIN: {:?}", found[2]) };
    assert_eq!(begin, &head(HeaderType::Substream));
    assert_eq!(Features::of_versioninfo(begin.versioninfo), Features::SA_SPILL.with(Features::LZ4));
}

/// The format's offsets, taken from OpenZFS's structures: a field that lies elsewhere is another field to everybody else.
#[test]
fn fields_lie_where_openzfs_has_them() {
    let of = |record: Record| record.encode();
    let begin = of(Record::Begin(head(HeaderType::Substream)));
    assert_eq!((begin[8..16].to_vec(), begin[40], begin[48]), (0x2_F5BA_CBACu64.to_le_bytes().to_vec(), 5, 3));
    assert!(begin[56..].starts_with(b"tank/home@monday\0"));
    let records = every_record();
    let object = of(records[0].0.clone());
    assert_eq!(
        (object[0], object[16], object[20], object[34], object[35], object[40], object[50], object[56]),
        (1, 19, 44, 2, 4, 0x88, 3, 99)
    );
    let write = of(records[3].0.clone());
    assert_eq!((write[0], write[50], write[56], write[88], write[96], write[104], write[112], write[124]), (3, 15, 1, 0x77, 40, 1, 2, 3));
    let embedded = of(records[6].0.clone());
    assert_eq!((embedded[0], embedded[16], embedded[40], embedded[52]), (8, 9, 15, 21));
    let reference = of(records[9].0.clone());
    assert_eq!((reference[0], reference[8], reference[40], reference[48], reference[64], reference[65]), (6, 7, 4, 6, 8, 1));
    assert_eq!((reference[72], reference[104]), (4, 0x78));
}

#[test]
fn a_machine_of_the_other_byte_order_is_understood() {
    // As such a machine sends it: its own words, and sums over them.
    let order = ByteOrder::Big;
    let mut sum = kernels::checksum::Fletcher4::new(order);
    let mut stream = Record::Begin(head(HeaderType::Substream)).encode_order(order).to_vec();
    sum.update(&stream);
    let end = (Record::End(End { checksum: [0; 4], toguid: 5 }), Vec::new());
    for (record, payload) in every_record().into_iter().chain([end]) {
        let record = if let Record::End(end) = record { Record::End(End { checksum: sum.finish(), ..end }) } else { record };
        let mut bytes = record.encode_order(order);
        sum.update(&bytes[..SUM_AT]);
        sum.finish().put(&mut bytes[SUM_AT..], order);
        sum.update(&bytes[SUM_AT..]);
        sum.update(&payload);
        stream.extend_from_slice(&bytes);
        stream.extend_from_slice(&payload);
    }
    let (found, error) = read_all(&stream);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found[1..found.len() - 1], every_record());
}

#[test]
fn every_changed_byte_is_noticed() {
    let good = package();
    let list_end = RECORD_BYTES + list_bytes(&good);
    // The END of a package is not summed: of it only the type counts.
    for at in 0..good.len() - RECORD_BYTES {
        for flip in [1, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let (_, error) = read_all(&bad);
            // Of the END of a list, its type and its sum are read, and nothing else means anything.
            let is_unread = at.checked_sub(list_end).is_some_and(|inside| (4..8).contains(&inside) || (40..RECORD_BYTES).contains(&inside));
            assert!(error.is_some() || is_unread, "byte {at} changed by {flip:#x}");
        }
    }
}

fn list_bytes(package: &[u8]) -> usize {
    u32::get(&package[4..], ByteOrder::Little) as usize
}

#[test]
fn who_does_not_compare_checksums_reads_what_is_damaged() {
    let mut bad = package();
    let payload = bad.len() - 3 * RECORD_BYTES - 8;
    bad[payload] ^= 1;
    assert!(read_all(&bad).1.is_some());
    let (mut reader, mut payload, mut records) = (Reader::new(&bad[..]).ignoring_checksums(), Vec::new(), 0);
    while reader.read_record(&mut payload).expect("lengths are right").is_some() {
        records += 1;
    }
    assert_eq!(records, every_record().len() + 5);
}

#[test]
fn every_early_end_is_told_from_damage() {
    let good = package();
    let outside: Vec<usize> = vec![0, 2 * RECORD_BYTES + list_bytes(&good), good.len() - RECORD_BYTES];
    for end in 0..good.len() {
        match read_all(&good[..end]).1 {
            Some(StreamError::Truncated { offset }) => assert_eq!(offset, end as u64),
            None => assert!(outside.contains(&end), "{end} bytes are no stream"),
            Some(error) => panic!("cut after {end} bytes: {error}"),
        }
    }
}

#[test]
fn lengths_that_lie_cost_no_memory() {
    let mut writer = Writer::new(Vec::new());
    writer.begin(head(HeaderType::Substream), None).expect("memory takes all");
    let head = writer.into_sink();
    let lies = [
        Record::Write(Write { logical_size: u64::MAX, ..Write::default() }),
        Record::Write(Write { compressiontype: 15, compressed_size: (16 << 20) + 1, ..Write::default() }),
        Record::Spill(Spill { length: 1 << 40, ..Spill::default() }),
        Record::Object(Object { bonuslen: u32::MAX, ..Object::default() }),
        Record::WriteEmbedded(WriteEmbedded { psize: 113, ..WriteEmbedded::default() }),
    ];
    for lie in lies {
        let stream = [&head[..], &lie.encode()].concat();
        let (_, error) = read_all(&stream);
        assert!(matches!(error, Some(StreamError::TooLong { .. })), "{lie:?}: {error:?}");
    }
}

#[test]
fn other_files_are_no_streams() {
    for bytes in [vec![0; 400], b"not a stream ".repeat(40)] {
        assert!(matches!(read_all(&bytes).1, Some(StreamError::NotAStream { offset: 0 })));
    }
    let twice = [&package()[..], &package()[..]].concat();
    assert!(read_all(&twice).1.is_none(), "streams may follow each other");
}

#[test]
fn tokens_name_what_they_were_made_of() {
    let mut list = NvList::new().with("object", 7u64).with("offset", 1u64 << 33).with("bytes", 12_345u64).with("toguid", u64::MAX);
    list.add("toname", "tank/home@monday").add_boolean("largeblockok");
    let text = token::encode(&list);
    assert!(text.starts_with("1-"), "{text}");
    assert_eq!(token::decode(&text), Ok(list));
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        let bad = String::from_utf8(bytes).expect("digits");
        assert!(token::decode(&bad).is_err(), "{bad}");
    }
    assert_eq!(token::decode("2-0-0-"), Err(token::TokenError::Version(2)));
    assert_eq!(token::decode("gibberish"), Err(token::TokenError::Syntax));
}
