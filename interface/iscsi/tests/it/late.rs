//! A unit that answers late: what is under way when somebody aborts, resets, comes back, or asks for more than memory allows.

use crate::initiator::{Initiator, long, read10, set, text, write10};
use crate::world::{TARGET, World};
use abd::Abd;
use iscsi::ram::{Held, RamStore, RamUnit};
use iscsi::{Disk, Done, Extent, Geometry, Identity, LogicalUnit, Run};
use std::sync::Arc;

/// A unit in memory whose reads and writes wait until they are let go.
struct Late {
    ram: RamUnit,
    held: Held,
}

impl Late {
    /// Waits until `count` requests are kept back.
    fn wait_for(&self, count: usize) {
        while self.held.waiting() < count {
            std::thread::yield_now();
        }
    }

    /// Answers what waits, the last first.
    fn let_go(&self) {
        self.held.end().into_iter().rev().for_each(|answer| answer());
    }
}

impl LogicalUnit for Late {
    fn identity(&self) -> Identity {
        self.ram.identity()
    }

    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn read(&self, extent: Extent, done: Done<Abd>) {
        self.ram.read(extent, self.held.keep(done));
    }

    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>) {
        self.ram.write(at, data, is_durable, self.held.keep(done));
    }

    fn unmap(&self, extents: Vec<Extent>, done: Done<()>) {
        self.ram.unmap(extents, done);
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool, is_durable: bool, done: Done<()>) {
        self.ram.write_zeroes(extent, may_unmap, is_durable, done);
    }

    fn flush(&self, done: Done<()>) {
        self.ram.flush(done);
    }

    fn status(&self, extent: Extent, done: Done<Vec<Run>>) {
        self.ram.status(extent, done);
    }
}

/// A world whose target has a late unit, 1, of 64 MiB.
fn late_world() -> (World, Arc<Late>) {
    let world = World::new();
    let geometry = Geometry { blocks: 131_072, block_bytes: 512, physical_exponent: 3, is_thin: true, is_read_only: false };
    let late = Arc::new(Late { ram: RamUnit::new("late", geometry), held: Held::default() });
    let target = world.targets.get(TARGET).expect("it is there");
    assert!(target.attach(1, Arc::new(Disk::new(late.clone(), Arc::new(RamStore::default()), None))));
    (world, late)
}

/// A session whose attention of unit 1 was taken.
fn session(world: &World, name: &str) -> Initiator {
    let mut initiator = Initiator::session(world, name);
    assert_eq!(initiator.command_on(1, &[0; 6], &[], 0, 0).sense().0, 6);
    initiator
}

/// Sends a command to unit 1 and does not wait; its tag.
fn begin(initiator: &mut Initiator, command: &[u8], out: &[u8], expected: usize) -> u32 {
    let mut request = initiator.request(0x01, if out.is_empty() { 0xC0 } else { 0xA0 });
    request[9] = 1;
    set(&mut request, 20, out.len().max(expected) as u32);
    request[32..32 + command.len()].copy_from_slice(command);
    initiator.send(request, out);
    initiator.tag
}

/// Queues are deep because answers come in any order; one that waits must not hold up the others.
#[test]
fn answers_come_when_they_are_there() {
    let (world, late) = late_world();
    let mut initiator = session(&world, "a");
    late.held.begin();
    let first = begin(&mut initiator, &read10(0, 1), &[], 512);
    late.wait_for(1);
    let second = begin(&mut initiator, &write10(8, 1), &[8; 512], 0);
    late.wait_for(2);
    assert_eq!(initiator.ping(b"x").data, b"x", "pings do not wait");
    assert!(initiator.command_on(0, &[0x12, 0, 0, 0, 36, 0], &[], 36, 0).is_good(), "nor do other units");
    late.let_go();
    assert!(initiator.finish(second, &[]).is_good(), "the last was answered first");
    assert_eq!(initiator.finish(first, &[]).data.len(), 512);
}

/// If an abort is answered too early, the old write lands on what the initiator writes next.
#[test]
fn an_abort_is_answered_when_nothing_touches_data_any_more() {
    let (world, late) = late_world();
    let mut initiator = session(&world, "a");
    late.held.begin();
    let tag = begin(&mut initiator, &write10(0, 1), &[1; 512], 0);
    late.wait_for(1);
    for (function, referenced) in [(1u8, tag), (5, u32::MAX)] {
        let mut request = initiator.request(0x42, 0x80 | function);
        initiator.command_number -= 1;
        request[9] = 1;
        set(&mut request, 20, referenced);
        initiator.send(request, &[]);
    }
    assert_eq!(initiator.ping(b"x").data, b"x", "the abort waits");
    late.let_go();
    let answers: Vec<(u8, u8)> =
        (0..2).map(|_| initiator.receive().expect("it is answered")).map(|answer| (answer.opcode(), answer.header[2])).collect();
    assert_eq!(answers, [(0x22, 0), (0x22, 0)], "and the command has no answer of its own");
    initiator.status_number = 0;
    assert_eq!(initiator.command_on(1, &[0; 6], &[], 0, 0).sense(), (6, 0x29, 0x03));
}

/// If a new session begins before the writes of the old one have ended, they land on what it writes.
#[test]
fn a_new_session_waits_for_the_writes_of_the_old_one() {
    let (world, late) = late_world();
    let mut old = session(&world, "a");
    late.held.begin();
    begin(&mut old, &write10(0, 1), &[1; 512], 0);
    late.wait_for(1);
    let mut new = Initiator::connect(&world);
    let mut request = crate::initiator::header(0x43, 0x87, 0);
    set(&mut request, 8, 0x8000_0000 | u32::from(b'a'));
    new.send(request, &text(&[("InitiatorName", "a"), ("TargetName", TARGET)]));
    assert!(old.is_closed());
    assert_eq!(world.targets.get(TARGET).expect("it is there").sessions().len(), 1, "the old one is still there");
    late.let_go();
    assert_eq!(new.receive().expect("it is answered").login_status(), 0);
}

/// Preempting waits for what it aborts, also when that waits to change reservations itself.
#[test]
fn preempting_aborts_what_the_other_one_has_under_way() {
    let (world, late) = late_world();
    let (mut a, mut b) = (session(&world, "a"), session(&world, "b"));
    let list = |key: u64, second: u64| [&key.to_be_bytes()[..], &second.to_be_bytes(), &[0; 8]].concat();
    let register = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert!(a.command_on(1, &register, &list(0, 1), 0, 24).is_good() && b.command_on(1, &register, &list(0, 2), 0, 24).is_good());
    late.held.begin();
    let write = begin(&mut b, &write10(0, 1), &[2; 512], 0);
    late.wait_for(1);
    let preempt = begin(&mut a, &[0x5F, 5, 1, 0, 0, 0, 0, 0, 24, 0], &list(1, 2), 0);
    assert_eq!(a.ping(b"x").data, b"x", "it waits for the write");
    let other = begin(&mut b, &[0x5F, 6, 0, 0, 0, 0, 0, 0, 24, 0], &list(0, 3), 0);
    late.let_go();
    assert!(a.finish(preempt, &[]).is_good());
    // The write may have been done just before it was to be aborted. What came after the preemption is carried out, or told of it first.
    b.passed = Some(write);
    let told = b.finish(other, &[]);
    assert!(told.is_good() || told.sense() == (6, 0x2A, 0x05), "{told:?}");
    assert!(a.command_on(1, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[3; 512], 0, 512).is_good());
}

/// More is asked for than the connection may hold in memory: all of it comes, one after the other.
#[test]
fn more_than_fits_into_memory_comes_all_the_same() {
    let (world, late) = late_world();
    let mut initiator = Initiator::fresh(&world, "a", &[("MaxRecvDataSegmentLength", "262144")]);
    initiator.command_on(1, &[0; 6], &[], 0, 0);
    let length = 8 * 1024 * 1024;
    let tags: Vec<u32> = (0..8).map(|at| begin(&mut initiator, &long(0x88, 0, at * 16_384, 16_384), &[], length)).collect();
    for tag in tags {
        assert_eq!(initiator.finish(tag, &[]).data.len(), length);
    }
    let data: Vec<u8> = (0..length).map(|at| (at / 777) as u8).collect();
    initiator.immediate_max = 0;
    for at in 0..6 {
        assert!(initiator.command_on(1, &long(0x8A, 0, at * 16_384, 16_384), &data, 0, length).is_good());
    }
    assert_eq!(initiator.command_on(1, &long(0x88, 0, 5 * 16_384, 16_384), &[], length, 0).data, data);
    assert_eq!(late.held.waiting(), 0);
}
