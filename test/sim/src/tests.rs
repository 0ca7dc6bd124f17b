//! The simulator itself: a crash test that cannot show a lost write proves nothing.

use crate::{CrashChoice, Fault, FaultKind, Image, Latency, OpKind, Sim};
use abd::Abd;
use device::{BlockDevice, DeviceError};
use exec::{Exec, Inline};
use std::collections::BTreeSet;
use std::sync::Arc;

fn inline(seed: u64) -> Exec {
    Arc::new(Inline::new(seed))
}

fn bytes(value: u8, length: usize) -> Abd {
    Abd::from_slice(&vec![value; length])
}

fn first(image: &Image) -> u8 {
    let mut out = [0];
    image.read(0, &mut out);
    out[0]
}

/// If this fails, a crash test believes that a durable write makes others durable too, or that it is lost itself.
#[test]
fn a_durable_write_survives_alone() {
    let exec = inline(1);
    let sim = Sim::new(&exec, 2);
    let disk = sim.device("disk0", 1 << 20);
    assert!(!disk.can_write_durably());
    sim.set_writes_durably();
    assert!(disk.can_write_durably());
    sim.start_recording();
    disk.write_at(&exec, 0, &bytes(1, 8192)).unwrap();
    disk.write_at(&exec, 16_384, &bytes(2, 4096)).unwrap();
    disk.write_durably(4096, &bytes(3, 4096)).unwrap();
    disk.write_at(&exec, 32_768, &bytes(4, 4096)).unwrap();
    sim.arm(Fault::always(FaultKind::Error(DeviceError::Io)).only(OpKind::Write));
    assert_eq!(disk.write_durably(4096, &bytes(5, 4096)), Err(DeviceError::Io));
    let recording = sim.take_recording();
    let mut walker = recording.walk();
    walker.advance(recording.events().len());
    let image = walker.images(CrashChoice::Lost).remove(0).to_vec();
    assert_eq!([0, 4096, 16_384, 32_768].map(|at| image[at]), [1, 3, 0, 0]);
}

/// What was flushed is on every image after it; what was not is on some and missing on others, torn on yet others.
#[test]
fn only_flushed_bytes_survive_every_cut() {
    let exec = inline(1);
    let sim = Sim::new(&exec, 2);
    let disk = sim.device("disk0", 1 << 20);
    disk.write_at(&exec, 0, &bytes(1, 8192)).unwrap();
    sim.start_recording();
    disk.write_at(&exec, 0, &bytes(2, 8192)).unwrap();
    sim.mark(7);
    disk.flush(&exec).unwrap();
    disk.write_at(&exec, 8192, &bytes(3, 8192)).unwrap();
    let recording = sim.take_recording();
    assert_eq!(recording.cuts(), [0, 1, 4, 5]);
    assert_eq!((recording.mark_at(1), recording.mark_at(4)), (None, Some(7)));
    let mut walker = recording.walk();
    assert_eq!(first(&walker.images(CrashChoice::Applied)[0]), 1);
    walker.advance(1);
    assert_eq!(first(&walker.images(CrashChoice::Lost)[0]), 1);
    assert_eq!(first(&walker.images(CrashChoice::Applied)[0]), 2);
    let shapes: BTreeSet<Vec<u8>> = (0..64)
        .map(|seed| {
            let image = walker.images(CrashChoice::Random(seed)).remove(0).to_vec();
            image[..8192].chunks(512).map(|sector| sector[0]).inspect(|value| assert!([1, 2].contains(value))).collect()
        })
        .collect();
    assert!(shapes.len() > 10, "tears come in many shapes");
    walker.advance(4);
    assert_eq!(first(&walker.images(CrashChoice::Lost)[0]), 2);
    walker.advance(5);
    assert_eq!(walker.undecided(), 1);
    let (lost, applied) = (walker.images(CrashChoice::Lost).remove(0), walker.images(CrashChoice::Applied).remove(0));
    assert_ne!(lost, applied);
    assert_eq!(applied, disk.image());
    let revived = Sim::new(&exec, 3).device_from("again", lost);
    assert_eq!(revived.read_at(&exec, 0, 8192).unwrap(), bytes(2, 8192));
    assert!(revived.read_at(&exec, 8192, 8192).unwrap().is_zero());
}

/// A flush does not cover a write that was still in flight when the flush was submitted.
#[test]
fn a_flush_covers_only_what_had_completed() {
    let exec = inline(5);
    let sim = Sim::new(&exec, 6);
    let disk = sim.device("disk0", 1 << 16);
    sim.start_recording();
    sim.arm(Fault::at(0, FaultKind::Delay(1_000_000)));
    let (completer, done) = exec::completion();
    let write = device::DeviceOp::Write(bytes(9, 512));
    disk.submit(device::DeviceIo::new(write, 0, move |reply| completer.complete(reply.outcome)));
    disk.flush(&exec).unwrap();
    done.wait(&exec).unwrap();
    let recording = sim.take_recording();
    let mut walker = recording.walk();
    walker.advance(recording.events().len());
    assert_eq!(first(&walker.images(CrashChoice::Lost)[0]), 0);
    assert_eq!(first(&walker.images(CrashChoice::Applied)[0]), 9);
}

/// The k-th operation fails and no other; that is how every error path is visited once.
#[test]
fn faults_strike_where_they_are_told() {
    let exec = inline(1);
    for k in 0..4 {
        let sim = Sim::new(&exec, 1);
        let disk = sim.device("disk0", 1 << 16);
        sim.arm(Fault::at(k, FaultKind::Error(DeviceError::Io)));
        let outcomes: Vec<bool> = (0..4).map(|_| disk.write_at(&exec, 0, &bytes(1, 512)).is_err()).collect();
        assert_eq!(outcomes, (0..4).map(|number| number == k).collect::<Vec<_>>());
    }
    let sim = Sim::new(&exec, 1);
    let (good, bad) = (sim.device("good", 1 << 16), sim.device("bad", 1 << 16));
    sim.arm(Fault::always(FaultKind::CorruptRead).on(bad.index()).only(OpKind::Read).within(4096, 8192));
    assert!(good.read_at(&exec, 4096, 512).unwrap().is_zero());
    assert!(bad.read_at(&exec, 0, 512).unwrap().is_zero());
    assert!(!bad.read_at(&exec, 4096, 512).unwrap().is_zero());
    sim.disarm();
    sim.arm(Fault::always(FaultKind::Lie).only(OpKind::Write));
    good.write_at(&exec, 0, &bytes(1, 512)).unwrap();
    assert!(good.read_at(&exec, 0, 512).unwrap().is_zero());
    assert_eq!(good.read_at(&exec, (1 << 16) - 512, 1024), Err(DeviceError::OutOfRange));
    sim.power_off();
    assert_eq!(good.flush(&exec), Err(DeviceError::Gone));
}

/// A hanging operation holds its destination and ends when released.
#[test]
fn a_hang_can_be_released() {
    let exec = inline(1);
    let sim = Sim::new(&exec, 1);
    let disk = sim.device("disk0", 1 << 16);
    sim.arm(Fault::at(0, FaultKind::Hang));
    let (completer, done) = exec::completion();
    disk.submit(device::DeviceIo::new(device::DeviceOp::read(512), 0, move |reply| completer.complete(reply)));
    disk.read_at(&exec, 0, 512).unwrap();
    assert!(!done.is_done());
    assert_eq!(sim.release_hung(), 1);
    let reply = done.wait(&exec);
    assert_eq!((reply.outcome, reply.parts.len()), (Err(DeviceError::TimedOut), 1));
}

/// Latency passes in virtual time and reorders operations; the same seeds give the same trace, others another.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed: u64| {
        let exec = inline(seed);
        let sim = Sim::new(&exec, seed);
        sim.set_latency(Latency { least_ns: 50_000, most_ns: 500_000 });
        let disk = sim.device("disk0", 1 << 20);
        let waits: Vec<_> = (0..50u64)
            .map(|number| {
                let (completer, done) = exec::completion();
                let op = device::DeviceOp::Write(bytes(number as u8, 4096));
                disk.submit(device::DeviceIo::new(op, number % 7 * 4096, move |reply| completer.complete(reply.outcome)));
                done
            })
            .collect();
        waits.into_iter().for_each(|done| done.wait(&exec).unwrap());
        assert!(exec.now_ns() >= 50_000);
        (sim.trace_hash(), sim.operations(), disk.image())
    };
    for seed in 0..5 {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
    let hashes: BTreeSet<u64> = (0..20).map(|seed| run(seed).0).collect();
    assert_eq!(hashes.len(), 20);
}

/// Every boundary of a long program on several devices stays affordable: an image shares what did not change.
#[test]
fn every_cut_of_a_long_program_is_visited() {
    let exec = inline(3);
    let sim = Sim::new(&exec, 4);
    let disks: Vec<_> = (0..3).map(|index| sim.device(&format!("disk{index}"), 64 << 20)).collect();
    sim.start_recording();
    for round in 0..400u64 {
        for disk in &disks {
            disk.write_at(&exec, round * 65_536, &bytes(round as u8 | 1, 16_384)).unwrap();
        }
        if round % 10 == 9 {
            disks.iter().for_each(|disk| disk.flush(&exec).unwrap());
            sim.mark(round);
        }
    }
    let recording = sim.take_recording();
    let cuts = recording.cuts();
    assert_eq!((cuts.len(), recording.writes(), recording.devices()), (1 + 1_200 + 120, 1_200, 3));
    let mut walker = recording.walk();
    for cut in cuts {
        walker.advance(cut);
        let images = walker.images(CrashChoice::Random(cut as u64));
        let Some(mark) = recording.mark_at(cut) else { continue };
        let mut out = vec![0; 16_384];
        for image in &images {
            image.read(mark as usize * 65_536, &mut out);
            assert!(out.iter().all(|byte| *byte == mark as u8 | 1), "cut {cut} lost what mark {mark} promised");
        }
    }
}

/// Images of a hundred devices are kept at once: pages of zeros must take no memory, and yet read as zeros.
#[test]
fn zeros_take_no_memory() {
    const PAGE: usize = 16 << 10;
    let mut image = Image::new(8 * PAGE);
    image.write(0, &vec![0; 8 * PAGE]);
    image.write(PAGE + 100, &[0; 50]);
    assert_eq!(image.written().count(), 0);
    image.write(2 * PAGE + 5, &[7; 10]);
    image.write(2 * PAGE + 7, &[0; 3]);
    assert_eq!(image.written().map(|(at, _)| at).collect::<Vec<_>>(), [2 * PAGE]);
    let mut bytes = [1; 12];
    image.read(2 * PAGE + 4, &mut bytes);
    assert_eq!(bytes, [0, 7, 7, 0, 0, 0, 7, 7, 7, 7, 7, 0]);
    image.write(2 * PAGE - 1, &vec![0; PAGE + 2]);
    assert_eq!(image, Image::new(8 * PAGE));
    assert_eq!(image.written().count(), 0);
}
