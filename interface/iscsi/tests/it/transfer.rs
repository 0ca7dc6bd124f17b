//! Data in both directions: bursts, residuals, and sequences that are wrong.

use crate::initiator::{Initiator, header, read10, set, write10};
use crate::world::World;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 509) as u8).collect()
}

/// If this fails, what a file system writes is not what it reads.
#[test]
fn data_come_back_whatever_way_they_were_sent() {
    let world = World::new();
    let keys = [
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("FirstBurstLength", "65536"),
        ("MaxBurstLength", "131072"),
        ("MaxRecvDataSegmentLength", "16384"),
    ];
    let mut initiator = Initiator::fresh(&world, "a", &keys);
    initiator.command(&[0; 6], &[], 0);
    for (number, (immediate, first_burst, blocks)) in
        [(0, 0, 1u16), (8192, 0, 16), (8192, 65536, 128), (0, 65536, 129), (4096, 65536, 3000), (512, 512, 3000), (8192, 65536, 1)]
            .into_iter()
            .enumerate()
    {
        (initiator.immediate_max, initiator.first_burst) = (immediate, first_burst);
        let first = number as u32 * 4000;
        let data = pattern(usize::from(blocks) * 512);
        let reply = initiator.command(&write10(first, blocks), &data, 0);
        assert!(reply.is_good() && reply.residual == 0, "{number}: {reply:?}");
        let reply = initiator.command(&read10(first, blocks), &[], data.len());
        assert!(reply.is_good() && reply.residual == 0 && reply.data == data, "{number}");
        assert_eq!(reply.pdus, data.len().div_ceil(16384), "{number}");
    }
}

/// With digests, what a network changed is noticed; without an error nobody would know.
#[test]
fn digests_are_made_and_looked_at() {
    let world = World::new();
    let mut initiator = Initiator::fresh(&world, "a", &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
    initiator.has_digests = true;
    initiator.command(&[0; 6], &[], 0);
    let data = pattern(512 * 20);
    assert!(initiator.command(&write10(0, 20), &data, 0).is_good());
    assert_eq!(initiator.command(&read10(0, 20), &[], data.len()).data, data);
    assert_eq!(initiator.ping(b"abc").data, b"abc");
    let mut request = initiator.request(0x00, 0x80);
    request[7] = 4;
    let bytes = [&request[..], &crc32c::crc32c(&request).to_le_bytes(), b"data", &[0; 4]].concat();
    initiator.send_raw(&bytes);
    assert!(initiator.is_closed(), "data whose digest is wrong end the session");
    let mut initiator = Initiator::fresh(&world, "b", &[("HeaderDigest", "CRC32C")]);
    let request = initiator.request(0x00, 0x80);
    initiator.send_raw(&[&request[..], &[0; 4]].concat());
    assert!(initiator.is_closed(), "so does a header");
}

/// Sends a write of two blocks whose data come as the closure says, in answer to an R2T.
fn solicited(initiator: &mut Initiator, first: u32, send: impl FnOnce(&mut Initiator, u32, u32)) -> crate::initiator::Reply {
    let mut request = initiator.request(0x01, 0xA0);
    set(&mut request, 20, 1024);
    request[32..42].copy_from_slice(&write10(first, 2));
    initiator.send(request, &[]);
    let ready = initiator.receive().expect("it asks for the data");
    assert_eq!((ready.opcode(), ready.word(40), ready.word(44)), (0x31, 0, 1024));
    let tag = initiator.tag;
    send(initiator, tag, ready.word(20));
    initiator.finish(tag, &[])
}

fn piece(tag: u32, transfer: u32, number: u32, offset: u32, flags: u8) -> [u8; 48] {
    let mut pdu = header(0x05, flags, tag);
    set(&mut pdu, 20, transfer);
    set(&mut pdu, 36, number);
    set(&mut pdu, 40, offset);
    pdu
}

/// If this fails, data that were lost on the way are written as if they were there.
#[test]
fn a_sequence_with_a_gap_is_not_stored() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let block = [0xAA; 512];
    let reply = solicited(&mut initiator, 0, |initiator, tag, transfer| {
        initiator.send(piece(tag, transfer, 0, 0, 0), &block);
        initiator.send(piece(tag, transfer, 1, 512, 0x80), &block);
    });
    assert!(reply.is_good(), "{reply:?}");
    for (numbers, offsets, lengths) in [
        ([0, 0], [0, 512], [512, 512]),
        ([0, 27], [0, 512], [512, 512]),
        ([0, u32::MAX], [0, 512], [512, 512]),
        ([1, 0], [0, 512], [512, 512]),
        ([0, 1], [512, 0], [512, 512]),
        ([0, 1], [0, 0], [512, 512]),
        ([0, 1], [0, 512], [512, 1024]),
        ([0, 1], [0, 512], [512, 256]),
    ] {
        let reply = solicited(&mut initiator, 8, |initiator, tag, transfer| {
            initiator.send(piece(tag, transfer, numbers[0], offsets[0], 0), &vec![0xBB; lengths[0]]);
            initiator.send(piece(tag, transfer, numbers[1], offsets[1], 0x80), &vec![0xBB; lengths[1]]);
        });
        assert_eq!((reply.status, reply.sense().0), (2, 0xB), "{numbers:?} {offsets:?} {lengths:?}");
    }
    let reply = solicited(&mut initiator, 8, |initiator, tag, transfer| {
        initiator.send(piece(tag, transfer + 1, 0, 0, 0x80), &[0xBB; 1024]);
    });
    assert_eq!((reply.status, reply.sense()), (2, (0xB, 0x0C, 0x0C)));
    assert_eq!(initiator.command(&read10(8, 2), &[], 1024).data, [0; 1024], "nothing of it was written");
    // Data for a task that there is not are dropped, and the session goes on.
    initiator.send(piece(0x7777, 1, 0, 0, 0x80), &block);
    assert_eq!(initiator.ping(b"x").data, b"x");
}

#[test]
fn data_that_nobody_agreed_to_are_refused() {
    let world = World::new();
    let mut initiator = Initiator::fresh(&world, "a", &[("ImmediateData", "No")]);
    initiator.command(&[0; 6], &[], 0);
    initiator.immediate_max = 512;
    let reply = initiator.command(&write10(0, 1), &[1; 512], 0);
    assert_eq!((reply.status, reply.sense()), (2, (0xB, 0x0C, 0x0C)));
    let mut request = initiator.request(0x01, 0x20);
    set(&mut request, 20, 512);
    request[32..42].copy_from_slice(&write10(0, 1));
    initiator.send(request, &[]);
    assert!(initiator.is_closed(), "unsolicited data were not agreed upon");
}

/// Initiators allocate what they expect: more than that would not fit, and less has to be said.
#[test]
fn residuals_say_what_was_left_over() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    assert!(initiator.command(&write10(0, 2), &[7; 1024], 0).is_good());
    for (expected, length, residual) in [(1024, 1024, 0), (0, 0, 1024), (512, 512, 512), (200, 200, 824), (10_000, 1024, 1024 - 10_000)] {
        let reply = initiator.command(&read10(0, 2), &[], expected);
        assert_eq!((reply.status, reply.data.len(), reply.residual), (0, length, residual), "{expected}");
    }
    let reply = initiator.command(&[0x12, 0, 0, 0, 10, 0], &[], 255);
    assert_eq!((reply.data.len(), reply.residual), (10, -245));
    for (announced, residual) in [(512, 512), (1024, 0), (4096, 1024 - 4096)] {
        let data = vec![9; announced];
        initiator.immediate_max = 8192;
        let reply = initiator.command_on(0, &write10(16, 2), &data, 0, announced);
        assert_eq!((reply.status, reply.residual), (0, residual), "{announced}");
        if announced == 512 {
            assert_eq!(initiator.command(&read10(16, 2), &[], 1024).data, [[9; 512], [0; 512]].concat(), "the second block was not sent");
        }
    }
    assert_eq!(initiator.command(&read10(18, 1), &[], 512).data, [0; 512], "what was sent too much is nowhere");
}
