//! Power cuts: a program of operations runs, and the power goes off at writes and flushes of the device. What users lose when these fail: what a
//! guest's file system was told is on its disk, or the order of what it wrote.

use crate::bed::{BLOCK, Bed, CACHED, VOLUME_BYTES, after_crash, contents, machine_after_crash, open, write};
use abd::Abd;
use sim::{CrashChoice, Image, Recording, cuts_every};
use std::sync::Arc;
use zvol::{Access, Volume};

/// Operation of the program.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Write through the cache: offset, length, and whether it is durable.
    Write(u64, u64, bool),
    /// Write past the cache likewise.
    Direct(u64, u64, bool),
    Discard(u64, u64),
    Zero(u64, u64),
    Flush,
    /// A txg goes to disk.
    Sync,
}

use Step::{Direct, Discard, Flush, Sync, Write, Zero};

/// Program: places lie over each other, and what is freed was written before.
const PROGRAM: [Step; 22] = [
    Write(0, 4096, true),
    Write(4096, 40_000, false),
    Direct(10 * BLOCK, 3 * BLOCK, true),
    Write(11 * BLOCK + 100, 300, false),
    Flush,
    Discard(100, 4 * BLOCK),
    Write(2 * BLOCK, 512, true),
    Direct(4096, 4 * BLOCK, false),
    Zero(3000, 9000),
    Flush,
    Sync,
    Write(20 * BLOCK, 100_000, false),
    Discard(22 * BLOCK, 5 * BLOCK),
    Write(23 * BLOCK + 7, 1000, true),
    Direct(24 * BLOCK, BLOCK, true),
    Zero(24 * BLOCK, BLOCK),
    Write(24 * BLOCK + 512, 512, false),
    Sync,
    Direct(0, 8 * BLOCK, false),
    Discard(0, 2 * BLOCK),
    Write(512, 512, true),
    Flush,
];

/// Number of operations that one commit takes along, at most.
const BATCH: usize = 3;

fn run(volume: &Arc<Volume>, bed: &Bed, number: usize) {
    let age = number as u8 + 10;
    let data = |length: u64| Abd::from_slice(&vec![age; length as usize]);
    match PROGRAM[number] {
        Write(offset, length, is_durable) => volume.write(offset, data(length), CACHED, is_durable).expect("written"),
        Direct(offset, length, is_durable) => volume.write(offset, data(length), Access::DIRECT, is_durable).expect("written"),
        Discard(offset, length) => volume.discard(offset, length).expect("discarded"),
        Zero(offset, length) => volume.write_zeroes(offset, length).expect("zeroed"),
        Flush => volume.flush().expect("flushed"),
        Sync => bed.pool.sync().expect("synced"),
    }
}

/// Bytes of the volume after so many operations.
fn state(done: usize) -> Vec<u8> {
    let mut bytes = vec![0; VOLUME_BYTES as usize];
    for (number, step) in PROGRAM[..done].iter().enumerate() {
        let age = number as u8 + 10;
        match *step {
            Write(offset, length, _) | Direct(offset, length, _) => bytes[offset as usize..(offset + length) as usize].fill(age),
            Zero(offset, length) => bytes[offset as usize..(offset + length) as usize].fill(0),
            Discard(offset, length) => {
                let (first, last) = (offset.next_multiple_of(BLOCK), (offset + length) / BLOCK * BLOCK);
                bytes[first as usize..last as usize].fill(0);
            }
            Flush | Sync => {}
        }
    }
    bytes
}

/// Runs the program; each mark is the number of operations that are safe.
fn record(properties: &[(&str, &str)]) -> Recording {
    let bed = Bed::new(properties);
    let is_always = properties.contains(&("sync", "always"));
    let volume = bed.open();
    // The log on disk begins: the first commits wait for txgs.
    for _ in 0..3 {
        write(&volume, VOLUME_BYTES - 512, &[0; 512]).expect("written");
        volume.flush().expect("flushed");
    }
    bed.sim.start_recording();
    bed.sim.mark(0);
    for (number, step) in PROGRAM.iter().enumerate() {
        run(&volume, &bed, number);
        if is_always || matches!(step, Flush | Sync | Write(.., true) | Direct(.., true)) {
            bed.sim.mark(number as u64 + 1);
        }
    }
    drop(volume);
    let recording = bed.sim.take_recording();
    bed.pool.export().expect("exported");
    recording
}

fn check(states: &[Vec<u8>], images: Vec<Image>, least: u64, what: &str) {
    let pool = after_crash(images);
    assert!(pool.replayed().iter().all(|log| log.failure.is_none()), "{what}: {:?}", pool.replayed());
    let volume = open(&pool);
    let bytes = contents(&volume);
    // What came after the last flush may be there in part: a record can be divided, and has the bytes of the moment in which it was written.
    let is_state = |done: usize| {
        let near = &states[done..states.len().min(done + BATCH + 1)];
        bytes.iter().enumerate().all(|(at, byte)| near.iter().any(|state| state[at] == *byte))
    };
    assert!((least as usize..states.len()).any(is_state), "{what}: what was durable ({least} operations) is not there");
    write(&volume, 0, &[99; 5000]).expect("written");
    volume.flush().expect("flushed");
    drop(volume);
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
    pool.export().expect("exported");
}

fn cut(properties: &[(&str, &str)], usual: usize) {
    let states: Vec<Vec<u8>> = (0..=PROGRAM.len()).map(state).collect();
    record(properties).each_cut((cuts_every(usual), 0), &mut |cut| {
        let least = cut.mark.unwrap_or(0);
        cut.each_image(0, &mut |choice, images| check(&states, images, least, &format!("{properties:?}, cut {} {choice:?}", cut.events)));
    });
}

#[test]
fn what_was_made_durable_survives_power_cuts() {
    cut(&[("compression", "off")], 5);
}

#[test]
fn what_was_written_with_sync_always_survives_power_cuts() {
    cut(&[("compression", "lz4"), ("sync", "always")], 7);
}

/// If this fails, a guest sees bytes again that it gave up when its disk became smaller: the power went off right after that, and again while the disk
/// became larger.
#[test]
fn what_lay_behind_the_end_is_never_seen_again() {
    const HALF: u64 = VOLUME_BYTES / 2;
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    write(&volume, 0, &vec![7; VOLUME_BYTES as usize]).expect("written");
    bed.pool.sync().expect("synced");
    bed.sim.start_recording();
    volume.resize(HALF).expect("smaller");
    let mut left = Vec::new();
    bed.sim.take_recording().each_cut((1, 0), &mut |cut| left = cut.images(CrashChoice::Applied));
    drop(volume);
    let (sim, pool) = machine_after_crash(left);
    let volume = open(&pool);
    assert_eq!(volume.size(), HALF);
    sim.start_recording();
    volume.resize(VOLUME_BYTES).expect("larger");
    let recording = sim.take_recording();
    drop((volume, pool));
    recording.each_cut((cuts_every(3), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| {
            let pool = after_crash(images);
            let bytes = contents(&open(&pool));
            assert!(bytes[..HALF as usize].iter().all(|byte| *byte == 7), "cut {} {choice:?}", cut.events);
            assert!(bytes[HALF as usize..].iter().all(|byte| *byte == 0), "cut {} {choice:?}: it is there again", cut.events);
        });
    });
}
