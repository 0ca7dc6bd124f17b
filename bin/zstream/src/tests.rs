//! The manual page, and streams for tests with what becomes of them.

use crate::Arguments;
use crate::rewrite::{Change, copy};
use clap::CommandFactory;
use stream::{Begin, Features, Free, HeaderType, Reader, Record, Write, Writer};

/// Guid of the snapshot in the streams of tests.
pub const GUID: u64 = 5;

/// A package with one substream of these features and records.
pub fn package(features: Features, records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let begin = |kind| Begin { versioninfo: features.versioninfo(kind), toguid: GUID, ..Begin::default() };
    let mut writer = Writer::new(Vec::new());
    writer.begin(begin(HeaderType::Compound), None).expect("memory takes all");
    writer.end_list().expect("memory takes all");
    writer.begin(begin(HeaderType::Substream), None).expect("memory takes all");
    records.iter().for_each(|(record, payload)| writer.record(record, payload).expect("memory takes all"));
    writer.end(GUID).expect("memory takes all");
    writer.end_package().expect("memory takes all");
    writer.into_sink()
}

/// Features of the substream, and the records in it, of a stream whose checksums are right.
pub fn read(stream: &[u8]) -> (Features, Vec<(Record, Vec<u8>)>) {
    let (mut reader, mut payload, mut found) = (Reader::new(stream), Vec::new(), Vec::new());
    let mut features = Features::default();
    while let Some(record) = reader.read_record(&mut payload).expect("a stream") {
        match record {
            Record::Begin(begin) => features = Features::of_versioninfo(begin.versioninfo),
            Record::End(_) => {}
            record => found.push((record, payload.clone())),
        }
    }
    (features, found)
}

/// Stream that a change makes of one.
pub fn changed(stream: &[u8], change: Change<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    copy(&mut Reader::new(stream), &mut out, change).expect("written anew");
    out
}

/// If this fails, a stream that nothing is changed in is received as another one, or not at all.
#[test]
fn what_is_not_changed_stays_byte_for_byte() {
    let free = Free { object: 7, offset: 512, length: 1024, toguid: GUID };
    let write = Write { object: 7, logical_size: 8, toguid: GUID, ..Write::default() };
    let good = package(Features::SA_SPILL, &[(Record::Free(free), Vec::new()), (Record::Write(write), vec![3; 8])]);
    assert_eq!(changed(&good, &mut |_, _, _| Ok(())), good);
}

/// Users would look for an option that is not described, or try one that is not there.
#[test]
fn the_manual_page_has_every_verb_and_option() {
    Arguments::command().debug_assert();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man8/zstream.8");
    assert_eq!(cli::manual::check(&Arguments::command(), page.as_ref()), Ok(()));
}
