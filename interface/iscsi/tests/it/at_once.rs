//! A unit that answers reads at once, as one does whose bytes are in memory: many of them, and the rules that hold for them as for all others.

use crate::initiator::{Initiator, cdb, read10, set, write10};
use crate::world::World;

/// Header of a READ(10) of one block of unit 0.
fn read(initiator: &mut Initiator, block: u32) -> [u8; 48] {
    let mut request = initiator.request(0x01, 0xC0);
    set(&mut request, 20, 512);
    request[32..].copy_from_slice(&cdb(&read10(block, 1)));
    request
}

/// If this fails, some of many small reads are never answered, those that get no place at the thread of their connection, or numbers of responses are lost.
#[test]
fn many_reads_at_a_time_are_all_answered() {
    const READS: u32 = 120;
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let data = [7; 512];
    assert!(initiator.command(&write10(9, 1), &data, 0).is_good());
    let bytes: Vec<u8> = (0..READS).flat_map(|_| read(&mut initiator, 9)).collect();
    let last = initiator.tag;
    initiator.send_raw(&bytes);
    let answers: Vec<_> = (0..READS).map(|_| initiator.receive().expect("it is answered")).collect();
    assert!(answers.iter().all(|answer| answer.opcode() == 0x25 && answer.header[3] == 0 && answer.data == data));
    let numbers: Vec<u32> = answers.iter().map(|answer| answer.word(24)).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{numbers:?}");
    let mut tags: Vec<u32> = answers.iter().map(|answer| answer.word(16)).collect();
    tags.sort_unstable();
    assert_eq!(tags, (last + 1 - READS..=last).collect::<Vec<u32>>(), "each once");
}

/// If this fails, an initiator reads what another one has for itself, since it is in memory.
#[test]
fn reservations_hold_for_what_is_answered_at_once() {
    let world = World::new();
    let (mut a, mut b) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    let list = |key: u64, second: u64| [&key.to_be_bytes()[..], &second.to_be_bytes(), &[0; 8]].concat();
    let out = |action: u8, kind: u8| [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
    assert!(a.command(&out(0, 0), &list(0, 1), 0).is_good());
    // Types of a reservation, and whether who is not registered may read.
    for (kind, may_read) in [(1, true), (3, false), (5, true), (6, false), (7, true), (8, false)] {
        assert!(a.command(&out(1, kind), &list(1, 0), 0).is_good(), "type {kind}");
        let status = if may_read { 0 } else { 0x18 };
        assert_eq!(b.command(&read10(0, 1), &[], 512).status, status, "type {kind}");
        assert!(a.command(&read10(0, 1), &[], 512).is_good(), "type {kind}: it is the holder's");
        assert!(a.command(&out(2, kind), &list(1, 0), 0).is_good(), "type {kind}");
        assert!(b.command(&read10(0, 1), &[], 512).is_good(), "it is released");
    }
}

/// If this fails, an initiator that gives up a read gets its answer after that of the abort, for what may be another command by then.
#[test]
fn what_was_answered_cannot_be_aborted_any_more() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let mut bytes = read(&mut initiator, 0).to_vec();
    let tag = initiator.tag;
    for function in [1, 2] {
        let mut abort = initiator.request(0x42, 0x80 | function);
        // It is immediate: its number is not used up.
        initiator.command_number -= 1;
        set(&mut abort, 20, tag);
        bytes.extend(abort);
    }
    initiator.send_raw(&bytes);
    let answers: Vec<(u8, u8)> =
        (0..3).map(|_| initiator.receive().expect("it is answered")).map(|answer| (answer.opcode(), answer.header[2])).collect();
    assert_eq!(answers, [(0x25, 0), (0x22, 1), (0x22, 0)], "the read; there is no such task; there is none left to abort");
}
