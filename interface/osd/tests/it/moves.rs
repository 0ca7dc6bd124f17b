//! How data moves: what goes past memory, what the devices see of it, and what is read once for all who read on.

use crate::bed::{Bed, make, pattern, write, write_lent};
use osd::{Device, Object};
use sim::{Event, Recording};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// Mebibytes of a bulk write: the metadata of its txgs are little beside it.
const STREAM: u64 = 48;
const PAGE: u64 = 4096;

fn written(recording: &Recording) -> u64 {
    let bytes = |event: &Event| if let Event::Write { data, .. } = event { data.len() as u64 } else { 0 };
    recording.events().iter().map(bytes).sum()
}

/// Writes an object in requests of one length from an offset on; gives it, the bytes, and those that the devices got.
fn stream(bed: &Bed, device: &Arc<Device>, (number, offset): (u32, u64), (length, count): (u64, u64)) -> (Arc<Object>, Vec<u8>, u64) {
    let object = make(device, number);
    device.sync().expect("synced");
    let bytes = pattern((length * count) as usize, u64::from(number));
    bed.sim.start_recording();
    for (index, part) in bytes.chunks(length as usize).enumerate() {
        write_lent(&object, device, offset + index as u64 * length, part);
    }
    device.sync().expect("synced");
    (object, bytes, written(&bed.sim.take_recording()))
}

/// If this fails, bulk writes go through memory, or the devices write more than clients, unless requests begin where blocks do.
#[test]
fn bulk_writes_are_direct_at_any_offset() {
    for (record, name) in [(MIB, "1M"), (128 << 10, "128K")] {
        let bed = Bed::new(&[("recordsize", name), ("compression", "off")]);
        for (number, offset) in [(1, 0), (2, PAGE), (3, 5 * PAGE), (4, MIB / 2), (5, 3 * MIB + 17 * PAGE)] {
            let device = bed.open();
            let (object, bytes, device_bytes) = stream(&bed, &device, (number, offset), (MIB, STREAM));
            let (asked, counts) = (bytes.len() as u64, device.counts());
            let what = format!("records of {name}, from {offset} on: {device_bytes} bytes, {counts:?}");
            assert_eq!((counts.asked, counts.copied), (asked, 0), "{what}");
            assert!(asked - counts.direct <= 2 * record, "all but its ends: {what}");
            assert!(record == MIB || counts.direct_share() >= 990, "{what}");
            assert!((device_bytes - 2 * record) * 100 <= asked * 102, "{what}");
            assert!(object.read(offset, asked).expect("read").to_vec() == bytes, "{what}");
            // What is there is replaced likewise; nothing has to be read for what is whole.
            for index in 0..STREAM {
                write_lent(&object, &device, offset + index * MIB, &bytes[(STREAM - 1 - index) as usize * MIB as usize..][..MIB as usize]);
            }
            let again = device.counts();
            assert!(again.asked - again.direct <= 4 * record && again.copied == 0, "{again:?}");
            assert!(
                object.read(offset + MIB, MIB).expect("read").to_vec()
                    == bytes[(STREAM - 2) as usize * MIB as usize..(STREAM - 1) as usize * MIB as usize],
                "{what}"
            );
        }
        bed.check_space(name);
        bed.pool.export().expect("exported");
    }
}

/// If this fails, requests of 32 KiB in sequence, which Lustre's clients send too, are rewritten in blocks of a MiB each.
#[test]
fn small_writes_in_sequence_go_out_as_whole_records() {
    let bed = Bed::new(&[("recordsize", "1M"), ("compression", "off")]);
    let device = bed.open();
    let (object, bytes, device_bytes) = stream(&bed, &device, (1, 0), (32 << 10, 24 * 32));
    let counts = device.counts();
    assert!(counts.direct_share() >= 900, "{counts:?}");
    assert!((device_bytes - MIB) * 100 <= counts.asked * 102, "{device_bytes} bytes, {counts:?}");
    assert!(object.read(0, counts.asked).expect("read").to_vec() == bytes);
    // In another order, too: threads of a server overtake each other.
    let second = make(&device, 2);
    write(&second, &device, 2 * MIB, &bytes[..MIB as usize]);
    let before = device.counts();
    for part in (0..8u64).flat_map(|four| [2, 1, 0, 3].map(|one| four * 4 + one)) {
        let at = (part * (32 << 10)) as usize;
        write_lent(&second, &device, 3 * MIB + at as u64, &bytes[at..at + (32 << 10)]);
    }
    let direct = device.counts().direct - before.direct;
    assert!(direct >= MIB - (64 << 10), "{direct} bytes");
    assert!(second.read(3 * MIB, MIB).expect("read").to_vec() == bytes[..MIB as usize]);
    bed.check_space("32K");
}

/// If this fails, who reads in sequence, in pieces or at odd offsets, has each block read again and again.
#[test]
fn who_reads_on_reads_each_block_once() {
    let bed = Bed::new(&[("recordsize", "1M"), ("compression", "off")]);
    let device = bed.open();
    let (object, bytes, _) = stream(&bed, &device, (1, 0), (MIB, 16));
    drop((object, device));
    let bed = bed.again();
    let device = bed.open();
    let object = device.object(crate::bed::fid(1)).expect("an object");
    for (index, part) in bytes.chunks(32 << 10).enumerate() {
        assert!(object.read_direct(index as u64 * (32 << 10), 32 << 10).expect("read").to_vec() == part, "piece {index}");
    }
    let counts = device.counts();
    assert!(counts.read_direct == 16 * MIB && counts.fetched_share() <= 1010, "{counts:?}");
    for index in 0..15 {
        let read = object.read(PAGE + index * MIB, MIB).expect("read").to_vec();
        assert!(read == bytes[(PAGE + index * MIB) as usize..][..MIB as usize], "MiB {index}");
    }
    let fetched = device.counts().fetched - counts.fetched;
    assert!(fetched <= 16 * MIB, "{fetched} bytes for 15 MiB and two edges");
    // What is kept is never old.
    object.read_direct(0, PAGE).expect("read");
    write(&object, &device, PAGE, &[9; 100]);
    assert!(object.read_direct(PAGE, PAGE).expect("read").to_vec()[..101] == [vec![9; 100], vec![bytes[PAGE as usize + 100]]].concat());
    object.read_direct(MIB, PAGE).expect("read");
    write_lent(&object, &device, MIB, &bytes[..MIB as usize]);
    assert!(object.read_direct(MIB + PAGE, PAGE).expect("read").to_vec() == bytes[PAGE as usize..2 * PAGE as usize]);
}

/// If this fails, an administrator cannot see why data goes through memory.
#[test]
fn what_is_not_direct_is_counted_with_its_reason() {
    let bed = Bed::new(&[("recordsize", "16K"), ("compression", "off")]);
    let device = bed.open();
    let object = make(&device, 1);
    write(&object, &device, 0, &[1; 1000]);
    assert_eq!(device.counts().small, 1000);
    write(&object, &device, 0, &[2; 64 << 10]);
    assert_eq!(device.counts().direct, 64 << 10);
    write(&object, &device, 20_001, &[3; 500]);
    let counts = device.counts();
    assert_eq!((counts.misaligned, counts.copied, counts.asked), (500, 1500, 1500 + (64 << 10)));
    let read = object.read(0, 1 << 20).expect("read").to_vec();
    assert!(read.len() == 64 << 10 && read[20_000..20_502] == [vec![2], vec![3; 500], vec![2]].concat());
    drop((object, device));
    bed.pool.dsl().hold(crate::bed::OBJECTS).expect("held").set_props(&[("direct".to_string(), "disabled".to_string())]).expect("set");
    let device = bed.open();
    let object = device.object(crate::bed::fid(1)).expect("an object");
    write(&object, &device, 0, &[4; 32 << 10]);
    assert!(object.read(0, 32 << 10).expect("read").to_vec() == [4; 32 << 10]);
    let counts = device.counts();
    assert_eq!((counts.off, counts.direct, counts.read_direct, counts.copied), (32 << 10, 0, 0, 0));
}
