//! Sessions: order of commands, pings, task management, logout, one session in another's place, an end of the server.

use crate::initiator::{Initiator, header, set, write10};
use crate::world::{TARGET, World};
use iscsi::ram::{RamStore, RamUnit};
use iscsi::{Disk, Geometry, Options};
use std::sync::Arc;
use std::time::Duration;

const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// A number outside of the window is as if it had never come; one that is missing ends the session, as its command was lost.
#[test]
fn commands_are_taken_in_their_order() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let next = initiator.command_number;
    for wrong in [next.wrapping_sub(1), next.wrapping_add(128), next.wrapping_add(0x8000_0000)] {
        initiator.command_number = wrong;
        let request = initiator.request(0x00, 0x80);
        initiator.send(request, b"late");
    }
    initiator.command_number = next;
    assert_eq!(initiator.ping(b"now").data, b"now", "those before were not answered");
    initiator.command_number = initiator.command_number.wrapping_add(1);
    let request = initiator.request(0x00, 0x80);
    initiator.send(request, b"gap");
    assert!(initiator.is_closed());
}

#[test]
fn pings_come_back_and_answers_to_none_are_ignored() {
    let world = World::new();
    let mut initiator = Initiator::fresh(&world, "a", &[("MaxRecvDataSegmentLength", "512")]);
    assert_eq!(initiator.ping(&[5; 600]).data, [5; 512]);
    let mut silent = header(0x40, 0x80, u32::MAX);
    set(&mut silent, 20, 3);
    initiator.send(silent, &[]);
    let mut immediate = header(0x40, 0x80, 99);
    set(&mut immediate, 20, u32::MAX);
    initiator.send(immediate, b"i");
    assert_eq!(initiator.receive().expect("it is answered").data, b"i");
    assert_eq!(initiator.ping(b"n").data, b"n");
    // A SNACK is refused without an end of the session; a tag that is in use, too, is somebody else's.
    let snack = header(0x10, 0x80, u32::MAX);
    initiator.send(snack, &[]);
    let answer = initiator.receive().expect("it is answered");
    assert_eq!((answer.opcode(), answer.header[2]), (0x3F, 3));
    assert_eq!(answer.data, snack);
}

/// If this fails, an initiator that lost its connection cannot come back, or its old commands write after the new ones.
#[test]
fn a_session_takes_the_place_of_the_one_before() {
    let world = World::new();
    let mut old = Initiator::session(&world, "a");
    let mut other = Initiator::session(&world, "b");
    let mut new = Initiator::fresh(&world, "a", &[]);
    assert!(old.is_closed());
    assert_eq!(new.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x29, 0x07), "it is told of the loss");
    assert!(new.command(&TEST_UNIT_READY, &[], 0).is_good());
    assert!(other.command(&TEST_UNIT_READY, &[], 0).is_good(), "others are left alone");
    let mut unknown = Initiator::connect(&world);
    let mut request = header(0x43, 0x87, 0);
    request[15] = 77;
    unknown.send(request, &crate::initiator::text(&[("InitiatorName", "a"), ("TargetName", TARGET)]));
    assert_eq!(unknown.receive().expect("it is answered").login_status(), 0x020A);
}

#[test]
fn a_logout_ends_the_session() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    for (reason, answer) in [(2, 2), (0, 0)] {
        let request = initiator.request(0x06, 0x80 | reason);
        initiator.send(request, &[]);
        let response = initiator.receive().expect("it is answered");
        assert_eq!((response.opcode(), response.header[2]), (0x26, answer));
    }
    assert!(initiator.is_closed());
    assert!(
        world.targets.get(TARGET).expect("it is there").sessions().is_empty() || Initiator::fresh(&world, "a", &[]).ping(b"x").data == b"x"
    );
}

#[test]
fn task_management_answers_what_it_can_do() {
    let world = World::new();
    let (mut initiator, mut other) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    assert_eq!((initiator.manage(1, 0x4242), initiator.manage(8, 1), initiator.manage(7, 1), initiator.manage(99, 1)), (1, 4, 5, 255));
    // A write that waits for its data is gone at once, without an answer of its own.
    let mut request = initiator.request(0x01, 0xA0);
    set(&mut request, 20, 512);
    request[32..42].copy_from_slice(&write10(0, 1));
    initiator.send(request, &[]);
    let waiting = initiator.tag;
    assert_eq!(initiator.receive().expect("it asks for the data").opcode(), 0x31);
    assert_eq!(initiator.manage(1, waiting), 0);
    assert_eq!(initiator.manage(1, waiting), 1);
    // A reset of the unit: everybody is told, and RESERVE(6) is over.
    assert!(other.command(&[0x16, 0, 0, 0, 0, 0], &[], 0).is_good());
    assert_eq!(initiator.command(&TEST_UNIT_READY, &[], 0).status, 0x18);
    assert_eq!(initiator.manage(5, u32::MAX), 0);
    assert_eq!(other.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x29, 0x03));
    assert_eq!(initiator.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x29, 0x03));
    assert!(initiator.command(&TEST_UNIT_READY, &[], 0).is_good());
    assert_eq!(initiator.manage(4, u32::MAX), 0);
    assert_eq!(other.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x2F, 0x00));
}

/// A server that ends asks initiators to log out, and has ended when they did; what they wrote is answered before.
#[test]
fn a_server_that_stops_lets_initiators_log_out() {
    let mut world = World::with(Options { farewell: Duration::from_secs(60), ..Options::default() }, None);
    let mut initiator = Initiator::session(&world, "a");
    world.stop.send(true).expect("the server runs");
    let asked = initiator.receive().expect("it is asked");
    assert_eq!((asked.opcode(), asked.header[36], asked.word(16)), (0x32, 1, u32::MAX));
    initiator.status_number = asked.word(24);
    assert!(initiator.command(&write10(0, 1), &[3; 512], 0).is_good(), "it may still write");
    let request = initiator.request(0x06, 0x80);
    initiator.send(request, &[]);
    assert_eq!(initiator.receive().expect("it is answered").opcode(), 0x26);
    let served = world.served.take().expect("it was started");
    world.runtime.block_on(served).expect("the server ends");
}

/// If this fails, whoever stops the server waits for initiators that say nothing as long as others have for what is under way.
#[test]
fn a_server_that_stops_does_not_wait_for_silence() {
    let options = Options { drain: Duration::from_secs(3600), farewell: Duration::from_millis(1), ..Options::default() };
    let mut world = World::with(options, None);
    let mut silent = Initiator::session(&world, "a");
    let _unknown = Initiator::connect(&world);
    world.stop.send(true).expect("the server runs");
    assert_eq!(silent.receive().expect("it is asked").opcode(), 0x32);
    assert!(silent.is_closed());
    let served = world.served.take().expect("it was started");
    let end = async { tokio::time::timeout(Duration::from_secs(60), served).await };
    world.runtime.block_on(end).expect("the server ends").expect("it does not fail");
}

/// Units that come, go and grow are noticed; if they are not, a file system is mounted on the wrong one, or ends where it should not.
#[test]
fn changes_of_units_are_told() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let target = world.targets.get(TARGET).expect("it is there");
    let geometry = Geometry { blocks: 8, block_bytes: 4096, physical_exponent: 0, is_thin: false, is_read_only: true };
    let disk = || Arc::new(Disk::new(Arc::new(RamUnit::new("serial-2", geometry)), Arc::new(RamStore::default()), None));
    assert!(target.attach(300, disk()) && !target.attach(300, disk()) && !target.attach(1 << 14, disk()));
    assert_eq!(initiator.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x3F, 0x0E));
    let luns = initiator.command(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[], 256).data;
    assert_eq!(luns, [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0x2C, 0, 0, 0, 0, 0, 0]);
    assert!(target.detach(300).is_some());
    assert_eq!(initiator.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x3F, 0x0E));
    world.unit.reshape(|geometry| geometry.blocks = 16);
    assert_eq!(initiator.command(&TEST_UNIT_READY, &[], 0).sense(), (6, 0x2A, 0x09));
    assert_eq!(initiator.command(&write10(16, 1), &[1; 512], 0).sense(), (5, 0x21, 0x00));
    assert!(world.runtime.block_on(world.targets.remove(TARGET)).is_some());
    assert!(initiator.is_closed(), "sessions end with their target");
    assert_eq!(Initiator::connect(&world).log_in("a", &[]).login_status(), 0x0203);
}

/// Commands to a number without a unit are answered as such; INQUIRY says that there is none.
#[test]
fn numbers_without_a_unit_say_so() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    assert_eq!(initiator.command_on(7, &[0x12, 0, 0, 0, 36, 0], &[], 36, 0).data[0], 0x7F);
    assert_eq!(initiator.command_on(7, &TEST_UNIT_READY, &[], 0, 0).sense(), (5, 0x25, 0));
    assert_eq!(initiator.command_on(7, &write10(0, 1), &[1; 512], 0, 512).sense(), (5, 0x25, 0));
    assert_eq!(initiator.command_on(7, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[], 16, 0).data.len(), 16);
}

/// If this fails, an initiator whose right was taken away goes on writing, or others are thrown out with it.
#[test]
fn sessions_of_one_initiator_end_and_those_of_others_go_on() {
    let world = World::new();
    let (mut one, mut other) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    let target = world.targets.get(TARGET).expect("it is there");
    world.runtime.block_on(target.end_sessions_of("a"));
    assert!(one.is_closed());
    assert!(other.command(&TEST_UNIT_READY, &[], 0).is_good());
    let left: Vec<String> = target.sessions().iter().map(|session| session.initiator.clone()).collect();
    assert_eq!(left, ["b"]);
}
