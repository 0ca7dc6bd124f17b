//! Simulated faults: each does what its name says to the I/O that it is about, to no other, and nothing after it was cleared.

use crate::common::{Rig, bookmark, inline, noise, request};
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceOp, MemDevice};
use exec::completion;
use ondisk::{Guid, ObjectId, ObjsetId};
use std::sync::Arc;
use vdev::{LeafId, TopKind};
use zio::{ErrorKind, Fault, FaultError, IoKind, LeafFault, LeafRequest, Priority, ReadRequest};

fn mirror() -> Rig {
    Rig::new(inline(), &[(TopKind::Mirror, 2)], 12)
}

fn device(rig: &Rig, leaf: u32, error: FaultError, kind: Option<IoKind>) -> Fault {
    Fault::Leaf(LeafFault::Device { leaf: rig.zio.view().tree.leaf(LeafId(leaf)).guid, error, kind })
}

fn blocks(range: std::ops::RangeInclusive<u64>, error: FaultError, copies: u32) -> Fault {
    Fault::Blocks { objset: ObjsetId(54), object: ObjectId(2), level: 0, blocks: range, copies, error }
}

/// Tests of mirrors inject these to see that a pool survives; a fault that does not strike proves nothing.
#[test]
fn device_faults_strike_the_device_until_they_are_cleared() {
    let rig = mirror();
    let bp = rig.write(request(noise(1, 65536), 1)).expect("written");
    let errors = |leaf: u32| rig.zio.leaf_stats(LeafId(leaf)).counts().errors;
    rig.zio.inject(1, device(&rig, 0, FaultError::Io, Some(IoKind::Read)), 0);
    rig.zio.inject(2, device(&rig, 1, FaultError::Gone, None), 0);
    let request_of = ReadRequest::new(bp, bookmark(1));
    assert_eq!(rig.zio.read_wait(request_of).map_err(|error| error.kind).err(), Some(ErrorKind::Io));
    assert!(errors(0)[IoKind::Read as usize] > 0 && rig.zio.leaf_stats(LeafId(1)).counts().gone > 0, "one fails, one is away");
    assert!(rig.zio.clear_injection(2) && !rig.zio.clear_injection(2));
    assert_eq!(rig.zio.read_wait(request_of).expect("the other half").to_vec(), noise(1, 65536).to_vec());
    rig.zio.inject(3, device(&rig, 1, FaultError::Io, Some(IoKind::Write)), 0);
    let before = errors(1)[IoKind::Write as usize];
    rig.write(request(noise(2, 65536), 2)).expect("the other half takes it");
    assert!(errors(1)[IoKind::Write as usize] > before);
    assert_eq!(rig.zio.take_missing().len(), 1, "the leaf lacks what it refused");
}

/// If this fails, a disk with one bad block that somebody reads over and over is judged as if it were bad everywhere, or a scrub that repairs
/// a pool degrades it.
#[test]
fn a_bad_block_is_told_once_and_a_scrub_s_finds_are_not_held_against_the_disk() {
    let rig = mirror();
    let written: Vec<_> = (0..3u64).map(|block| rig.write(request(noise(block + 1, 16384), block)).expect("written")).collect();
    let counts = |leaf: u32| rig.zio.leaf_stats(LeafId(leaf)).counts();
    let read = |block: u64| drop(rig.zio.read_wait(ReadRequest::new(written[block as usize], bookmark(block))));
    rig.zio.inject(1, device(&rig, 0, FaultError::Io, Some(IoKind::Read)), 0);
    rig.zio.inject(2, device(&rig, 1, FaultError::Io, Some(IoKind::Read)), 0);
    (0..20).for_each(|_| read(1));
    assert_eq!((counts(0).io_reports, counts(1).io_reports), (1, 1), "it is the same error");
    assert_eq!(counts(0).errors[IoKind::Read as usize], 1, "also where errors are counted: as many as there are events");
    (0..3).for_each(read);
    assert_eq!((counts(0).io_reports, counts(1).io_reports), (3, 3), "others are news");
    rig.zio.set_event_retention(0, 900);
    (0..3).for_each(read);
    assert_eq!(counts(0).io_reports, 6, "switched off");
    rig.zio.leaf_stats(LeafId(0)).clear_errors();
    assert_eq!(counts(0).io_reports, 0);
    let rig = mirror();
    let bp = rig.write(request(noise(1, 16384), 1)).expect("written");
    rig.zio.inject(1, device(&rig, 0, FaultError::Corrupt, Some(IoKind::Read)), 0);
    rig.scrub(&bp).expect("the other half is right");
    let counts = rig.zio.leaf_stats(LeafId(0)).counts();
    assert_eq!((counts.checksum_errors, counts.checksum_reports), (1, 0));
}

/// If this fails, a cache device of a pool is read without being counted, or what fails there is held against the pool's own devices.
#[test]
fn a_device_beside_the_leaves_is_counted_and_made_to_suffer_for_itself() {
    let (rig, cache) = (mirror(), Guid(77));
    let io = |op: DeviceOp| {
        let (done, wait) = completion();
        let request = LeafRequest { leaf: cache, offset: 5 << 20, op, priority: Priority::AsyncWrite, speculative: false };
        rig.zio.leaf_io(request, Box::new(move |result| done.complete(result)));
        wait.wait(&rig.exec)
    };
    let (read, write) = (|| io(DeviceOp::read(4096)), |data: &Abd| io(DeviceOp::Write(data.clone())));
    let data = noise(3, 4096);
    assert_eq!(write(&data).err(), Some(DeviceError::Gone), "nobody opened it");
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("cache", 64 << 20));
    rig.zio.set_beside(cache, Some(&device));
    write(&data).expect("written");
    assert_eq!(read().expect("read").to_vec(), data.to_vec());
    let counts = || rig.zio.leaf_stats_of(cache).counts();
    assert_eq!((counts().ops[IoKind::Read as usize], counts().bytes[IoKind::Write as usize]), (1, 4096));
    rig.zio.inject(1, Fault::Leaf(LeafFault::Device { leaf: cache, error: FaultError::Io, kind: Some(IoKind::Read) }), 0);
    assert_eq!(read().err(), Some(DeviceError::Io));
    assert_eq!(counts().errors[IoKind::Read as usize], 1);
    rig.zio.fence();
    assert_eq!(write(&data).err(), Some(DeviceError::Gone), "another host may have the pool, and its caches");
    rig.zio.set_beside(cache, None);
    assert_eq!(read().err(), Some(DeviceError::Gone));
    assert!((0..2).all(|leaf| rig.zio.leaf_stats(LeafId(leaf)).counts().errors == [0; 4]));
}

/// If this fails, a test of what a daemon does about a device that does not answer tests nothing.
#[test]
fn a_probe_fails_where_that_was_asked_for() {
    let rig = mirror();
    let guid = |leaf: u32| rig.zio.view().tree.leaf(LeafId(leaf)).guid;
    assert!(!rig.zio.is_probe_injected(guid(0)));
    rig.zio.inject(1, Fault::Leaf(LeafFault::Probe { leaf: guid(0) }), 0);
    assert!(rig.zio.is_probe_injected(guid(0)) && !rig.zio.is_probe_injected(guid(1)));
    rig.write(request(noise(1, 16384), 1)).expect("all else works");
    assert!(rig.zio.clear_injection(1) && !rig.zio.is_probe_injected(guid(0)));
}

/// A flipped bit must be found by the checksum and healed.
#[test]
fn flipped_bits_are_found() {
    let rig = mirror();
    let bp = rig.write(request(noise(1, 65536), 1)).expect("written");
    rig.zio.inject(1, device(&rig, 0, FaultError::Corrupt, Some(IoKind::Read)), 0);
    assert_eq!(rig.scrub(&bp).expect("the other half is right").to_vec(), noise(1, 65536).to_vec());
    assert_eq!(rig.checksum_errors(0), 1);
}

/// Reads of a file fail as a program's test wants them to.
#[test]
fn faults_of_blocks_strike_these_blocks_only() {
    let rig = mirror();
    let written: Vec<_> = (0..4u64).map(|block| rig.write(request(noise(block + 1, 16384), block)).expect("written")).collect();
    let read = |block: u64| {
        let result = rig.zio.read_wait(ReadRequest::new(written[block as usize], bookmark(block)));
        result.map(|_| ()).map_err(|error| error.kind)
    };
    for (error, kind) in
        [(FaultError::Io, ErrorKind::Io), (FaultError::Checksum, ErrorKind::Checksum), (FaultError::Decompress, ErrorKind::Io)]
    {
        rig.zio.inject(7, blocks(1..=2, error, 0), 0);
        assert_eq!([read(0), read(1), read(2), read(3)], [Ok(()), Err(kind), Err(kind), Ok(())], "{error:?}");
        rig.zio.clear_injection(7);
        assert_eq!(read(1), Ok(()));
    }
    let mut twice = request(noise(9, 16384), 9);
    twice.copies = 2;
    let rig = Rig::new(inline(), &[(TopKind::Leaf, 1), (TopKind::Leaf, 1)], 12);
    let bp = rig.write(twice).expect("two copies");
    for (copies, is_lost) in [(1, false), (2, false), (3, true)] {
        rig.zio.inject(8, blocks(9..=9, FaultError::Io, copies), 0);
        assert_eq!(rig.zio.read_wait(ReadRequest::new(bp, bookmark(9))).is_err(), is_lost, "copies {copies:b}");
        rig.zio.clear_injection(8);
    }
}

/// Delays serve as many at once as there are lanes.
#[test]
fn delayed_ios_take_their_time() {
    for (lanes, expected) in [(1usize, 40_000_000u64), (2, 20_000_000), (4, 10_000_000)] {
        let rig = Rig::new(inline(), &[(TopKind::Leaf, 1)], 12);
        let written: Vec<_> = (0..4u64).map(|block| rig.write(request(noise(block + 1, 16384), block)).expect("written")).collect();
        let leaf = rig.zio.view().tree.leaf(LeafId(0)).guid;
        rig.zio.inject(1, Fault::Leaf(LeafFault::Delay { leaf, delay_ns: 10_000_000, lanes, kind: Some(IoKind::Read) }), 0);
        let begun = rig.exec.now_ns();
        let left = std::sync::Arc::new(exec::Mutex::new(4));
        for (block, bp) in written.iter().enumerate() {
            let left = left.clone();
            rig.zio.read(
                ReadRequest::new(*bp, bookmark(block as u64)),
                Box::new(move |result| {
                    result.expect("read");
                    *left.lock() -= 1;
                }),
            );
        }
        rig.exec.wait(&|| *left.lock() == 0, &|| {});
        let took = rig.exec.now_ns() - begun;
        assert!((expected..expected + 5_000_000).contains(&took), "{lanes} lanes: {took} ns");
    }
}

/// One in ten is neither none nor all.
#[test]
fn a_frequency_strikes_now_and_then() {
    let rig = mirror();
    let bp = rig.write(request(noise(1, 16384), 1)).expect("written");
    rig.zio.inject(1, device(&rig, 0, FaultError::Io, Some(IoKind::Read)), u32::MAX / 10);
    rig.zio.inject(2, device(&rig, 1, FaultError::Io, Some(IoKind::Read)), u32::MAX / 10);
    rig.zio.set_event_retention(0, 900);
    (0..400).for_each(|_| drop(rig.scrub(&bp)));
    let struck: u64 = (0..2).map(|leaf| rig.zio.leaf_stats(LeafId(leaf)).counts().errors[0]).sum();
    assert!((30..200).contains(&struck), "{struck} of 800");
}
