//! Streams whose checksums are right and whose numbers are not: whatever they say, they are received, or refused and leave nothing.

use super::{Records, check, full, increment, pool, receive, stream, target};
use crate::Target;
use exec::SplitMix;
use stream::Record;

const ATTEMPTS: usize = 150;
const NUMBERS: [u64; 13] = [0, 1, 5, 7, 511, 512, 4096, 1 << 17, 1 << 24, 1 << 32, (1 << 47) + 1, 1 << 63, u64::MAX];

/// Gives a field of a record another number, and the record a payload of the length that it then has.
fn mutate(records: &mut Records, random: &mut SplitMix) {
    let at = random.below(records.len());
    let (number, field) = (NUMBERS[random.below(NUMBERS.len())], random.below(6));
    let (record, payload) = &mut records[at];
    match record {
        Record::Object(object) => match field {
            0 => object.object = number,
            1 => object.blksz = number as u32,
            2 => object.bonuslen = (number % 17_000) as u32,
            3 => object.dn_slots = number as u8,
            4 => object.kind = (number % 256) as u32,
            _ => object.bonustype = (number % 256) as u32,
        },
        Record::Write(write) => match field {
            0 => write.object = number,
            1 | 2 => write.offset = number,
            3 => write.logical_size = number % (1 << 20),
            4 => (write.compressiontype, write.compressed_size) = ((number % 20) as u8, 64),
            _ => write.kind = (number % 256) as u32,
        },
        Record::WriteEmbedded(write) => match field {
            0 => write.object = number,
            1 => write.offset = number,
            2 => write.lsize = number as u32,
            3 => write.psize = (number % 200) as u32,
            4 => write.etype = number as u8,
            _ => write.compression = number as u8,
        },
        Record::Free(free) => match field {
            0 | 1 => free.object = number,
            2 | 3 => free.offset = number,
            _ => free.length = number,
        },
        Record::FreeObjects(objects) if field < 3 => objects.firstobj = number,
        Record::FreeObjects(objects) => objects.numobjs = number,
        _ => {}
    }
    payload.resize(record.payload_bytes() as usize, 0xEE);
}

/// If this fails, a stream that nobody thought of stops the pool or the daemon, or leaves half a file system.
#[test]
fn odd_numbers_are_received_or_leave_nothing() {
    let (pool, mut random) = (pool(), SplitMix::new(5));
    for attempt in 0..ATTEMPTS {
        let mut records = full();
        records.extend(increment());
        for _ in 0..=random.below(2) {
            mutate(&mut records, &mut random);
        }
        let name = format!("tank/f{attempt}");
        let result = receive(&pool, &stream(0, 0xA, &records), &Target { name: name.clone(), ..target("s") });
        let is_there = pool.dsl().hold(&name).is_ok();
        assert_eq!(result.is_ok(), is_there, "attempt {attempt}: {result:?}");
        if is_there {
            pool.dsl().destroy_snapshots(&[format!("{name}@s")], false).expect("destroyed");
            pool.dsl().destroy_dataset(&name).expect("destroyed");
        }
    }
    check(&pool);
}
