//! Hostile bytes: whatever comes, nothing panics, nothing is allocated for a length that is not allowed, and no memory stays held.

use crate::frame::{FrameError, Framer};
use crate::pdu::{Outgoing, Pdu, opcode};
use crate::ram::{Anybody, RamStore, RamUnit};
use crate::testing::Bench;
use crate::{Body, Disk, Geometry, Targets};
use exec::SplitMix;
use std::sync::Arc;

const TARGET: &str = "iqn.2026-11.example:fuzz";

fn bench() -> Bench {
    let targets = Targets::new(Arc::new(Anybody(None)));
    let geometry = Geometry { blocks: 4096, block_bytes: 512, physical_exponent: 3, is_thin: true, is_read_only: false };
    let unit = Arc::new(RamUnit::new("fuzz", geometry));
    let target = targets.add(TARGET).expect("the name is free");
    target.attach(0, Arc::new(Disk::new(unit, Arc::new(RamStore::default()), None)));
    Bench::new(&targets)
}

fn logged_in() -> Bench {
    let mut bench = bench();
    let text = format!("InitiatorName=x\0TargetName={TARGET}\0InitialR2T=No\0FirstBurstLength=4096\0");
    let login = Outgoing::new(opcode::LOGIN | 0x40, 0x87, 1).word(24, 1).with(Body::Bytes(text.into_bytes()));
    bench.take(&login.encode(false, false));
    assert!(bench.is_full_feature());
    bench
}

/// A valid PDU of each kind, with the command number `number`.
fn sample(random: &mut SplitMix, number: u32) -> Outgoing {
    let command = |flags: u8, expected: u32, cdb: [u8; 16]| {
        let mut pdu = Outgoing::new(opcode::SCSI_COMMAND, 0x80 | flags, number).word(20, expected).word(24, number);
        pdu.header[32..48].copy_from_slice(&cdb);
        pdu
    };
    let mut cdb = [0; 16];
    match random.below(8) {
        0 => Outgoing::new(opcode::NOP_OUT, 0x80, number).word(20, u32::MAX).word(24, number).with(Body::Bytes(vec![1; 9])),
        1 => Outgoing::new(opcode::TEXT, 0x80, number).word(20, u32::MAX).word(24, number).with(Body::Bytes(b"SendTargets=\0".to_vec())),
        2 => Outgoing::new(opcode::TASK_MANAGEMENT | 0x40, 0x80 | (1 + random.below(8) as u8), number).word(24, number),
        3 => Outgoing::new(opcode::DATA_OUT, 0x80, number.wrapping_sub(1)).word(20, 1).with(Body::Bytes(vec![2; 512])),
        4 => {
            cdb[0] = 0x2A;
            cdb[8] = 1;
            command(0x20, 512, cdb).with(Body::Bytes(vec![3; 512]))
        }
        5 => {
            cdb[0] = 0x2A;
            cdb[8] = 2;
            command(0x20, 1024, cdb)
        }
        6 => {
            // Any operation code, of any length and direction.
            cdb.iter_mut().for_each(|byte| *byte = random.next_u64() as u8 & random.next_u64() as u8);
            command([0, 0x20, 0x40][random.below(3)], random.below(5000) as u32, cdb)
        }
        _ => {
            let known = &crate::scsi::table::TABLE[random.below(crate::scsi::table::TABLE.len())];
            cdb[..known.usage.len()].iter_mut().zip(known.usage).for_each(|(byte, mask)| *byte = random.next_u64() as u8 & mask);
            (cdb[0], cdb[1]) = (known.usage[0], if known.has_action { known.usage[1] } else { cdb[1] });
            command([0x20, 0x40][random.below(2)], random.below(5000) as u32, cdb).with(Body::Bytes(vec![0; 24]))
        }
    }
}

/// If this fails, one initiator with a bug, or a port scanner, ends the daemon and with it everybody's disks.
#[test]
fn damaged_pdus_end_at_most_their_connection() {
    let mut ended = 0;
    for seed in 0..300 {
        let mut random = SplitMix::new(seed);
        let mut bench = logged_in();
        for number in 1..200 {
            let mut bytes = sample(&mut random, number).encode(false, false);
            if random.chance(3) {
                for _ in 0..1 + random.below(3) {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            bench.take(&bytes);
            if bench.is_closed() {
                ended += 1;
                break;
            }
        }
        assert!(bench.cut(), "nothing of it goes on");
    }
    assert!(ended > 0, "some of it was noticed");
}

#[test]
fn damaged_logins_end_at_most_their_connection() {
    let text = format!("InitiatorName=x\0TargetName={TARGET}\0AuthMethod=CHAP,None\0HeaderDigest=None,CRC32C\0MaxBurstLength=4096\0");
    let login = Outgoing::new(opcode::LOGIN | 0x40, 0x81, 1).word(24, 1).with(Body::Bytes(text.into_bytes())).encode(false, false);
    for seed in 0..3000 {
        let mut random = SplitMix::new(seed);
        let mut bench = bench();
        for _ in 0..3 {
            let mut bytes = login.clone();
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.next_u64() as u8;
            }
            bench.take(&bytes);
        }
    }
}

/// A length is looked at before memory is taken for it.
#[test]
fn a_segment_that_is_too_long_is_refused_at_its_header() {
    let mut framer = Framer::new(8192);
    let mut header = [0; 48];
    header[5..8].copy_from_slice(&[0xFF; 3]);
    framer.incoming.push(&header);
    assert_eq!(framer.next_pdu().err(), Some(FrameError::TooLong { bytes: 0xFF_FFFF, limit: 8192 }));
}

/// The examples of RFC 7143, appendix A.4, in the order of the wire. If they differ, no peer accepts a digest of ours.
#[test]
fn digests_are_those_of_the_standard() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    for (bytes, digest) in [
        (vec![0; 32], [0xAA, 0x36, 0x91, 0x8A]),
        (vec![0xFF; 32], [0x43, 0xAB, 0xA8, 0x62]),
        (up, [0x4E, 0x79, 0xDD, 0x46]),
        (down, [0x5C, 0xDB, 0x3F, 0x11]),
    ] {
        let wire = Outgoing::new(opcode::NOP_OUT, 0x80, 1).with(Body::Bytes(bytes)).encode(false, true);
        assert_eq!(wire[wire.len() - 4..], digest);
    }
}

/// PDUs survive the way over the wire in pieces of any size, with and without digests; a flipped bit does not.
#[test]
fn pdus_come_out_as_they_went_in() {
    let mut random = SplitMix::new(5);
    for round in 0..400 {
        let (header_digest, data_digest) = (random.chance(2), random.chance(2));
        let length = [0, 1, 3, 4, 511, 8192, 100_000][random.below(7)];
        let body: Vec<u8> = (0..length).map(|at| (at * 7 + round) as u8).collect();
        let sent = Outgoing::new(opcode::NOP_OUT, 0x80, round as u32).with(Body::Bytes(body.clone()));
        let header = sent.header;
        let bytes = [sent.clone().encode(header_digest, data_digest), sent.encode(header_digest, data_digest)].concat();
        let mut framer = Framer::new(262_144);
        framer.negotiated(header_digest, data_digest, 262_144);
        let mut rest = &bytes[..];
        let mut received: Vec<Pdu> = Vec::new();
        while !rest.is_empty() {
            let piece = (1 + random.below(9000)).min(rest.len());
            let count = framer.incoming.push(&rest[..piece]);
            rest = &rest[count..];
            while let Some(pdu) = framer.next_pdu().expect("it is whole") {
                received.push(pdu);
            }
        }
        assert_eq!(received.len(), 2);
        assert!(received.iter().all(|pdu| pdu.header == header && pdu.data.to_vec() == body), "{round}");
        if header_digest && data_digest {
            let mut damaged = bytes[..bytes.len() / 2].to_vec();
            let at = random.below(damaged.len());
            damaged[at] ^= 1 << random.below(8);
            let mut framer = Framer::new(262_144);
            framer.negotiated(true, true, 262_144);
            let mut rest = &damaged[..];
            let mut result = Ok(None);
            while !rest.is_empty() && matches!(result, Ok(None)) {
                rest = &rest[framer.incoming.push(rest)..];
                result = framer.next_pdu();
            }
            assert!(!matches!(result, Ok(Some(_))), "a flipped bit was not noticed at {at}");
        }
    }
}
