//! Commands one by one, with what goes wrong in other targets.

use crate::initiator::{Initiator, cdb, long, read10, write10};
use crate::world::{BLOCKS, World};

const OUT_OF_RANGE: (u8, u8, u8) = (5, 0x21, 0);
const FIELD: (u8, u8, u8) = (5, 0x24, 0);

/// If this fails, a range that overflows 64 bits reads or writes somewhere else.
#[test]
fn ranges_beyond_the_end_are_refused() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    for opcode in [0x88u8, 0x8A, 0x8B, 0x8E, 0x8F, 0x90, 0x91, 0x93, 0x9E] {
        let flags = if opcode == 0x9E { 0x12 } else { 0 };
        for first in [BLOCKS, 1 << 31, 1 << 63, u64::MAX] {
            for blocks in [0, 1] {
                let out = if [0x8A, 0x8B, 0x8E, 0x93].contains(&opcode) { vec![1; 512] } else { Vec::new() };
                assert_eq!(
                    initiator.command(&long(opcode, flags, first, blocks), &out, 0).sense(),
                    OUT_OF_RANGE,
                    "{opcode:02x} {first:x} {blocks}"
                );
            }
        }
    }
    for (first, blocks) in [(BLOCKS - 1, 2), (BLOCKS - 255, 256), (0, u32::MAX)] {
        assert_eq!(initiator.command(&long(0x88, 0, first, blocks), &[], 512).sense(), OUT_OF_RANGE);
    }
    assert!(initiator.command(&long(0x88, 0, BLOCKS - 1, 1), &[], 512).is_good());
    assert!(initiator.command(&long(0x88, 0, 0, 0), &[], 0).is_good());
    assert_eq!(initiator.command(&long(0x88, 0, 0, 16_385), &[], 512).sense(), FIELD, "longer than the limit that is announced");
    assert_eq!(initiator.command(&[0x08, 0, 0, 0, 0, 0], &[], 131_072).data.len(), 131_072, "256 blocks are written as 0");
    assert_eq!(initiator.command(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512).sense(), FIELD, "protection that there is not");
    assert!(initiator.command(&[0x2A, 0x18, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512], 0).is_good(), "FUA and DPO");
}

#[test]
fn commands_that_there_are_not_are_refused_by_the_book() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    for opcode in [0x83u8, 0x84, 0x9C, 0x48, 0x37, 0xC0, 0xFF] {
        assert_eq!(initiator.command(&cdb(&[opcode]), &[], 0).sense(), (5, 0x20, 0), "{opcode:02x}");
    }
    assert_eq!(initiator.command(&cdb(&[0x9E, 0x1F]), &[], 0).sense(), FIELD);
    assert_eq!(initiator.command(&[0, 0, 0, 0, 0, 4], &[], 0).sense(), FIELD, "ACA is none of ours");
}

#[test]
fn verifying_compares_byte_by_byte() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let data = vec![0x5A; 1024];
    assert!(initiator.command(&long(0x8E, 2, 4, 2), &data, 0).is_good(), "WRITE AND VERIFY");
    assert!(initiator.command(&long(0x8F, 0, 4, 2), &[], 0).is_good());
    assert!(initiator.command(&long(0x8F, 2, 4, 2), &data, 0).is_good());
    assert!(initiator.command(&long(0x8F, 6, 4, 2), &data[..512], 0).is_good());
    let mut other = data.clone();
    other[700] = 0;
    assert_eq!(initiator.command(&long(0x8F, 2, 4, 2), &other, 0).sense(), (0xE, 0x1D, 0));
    assert_eq!(initiator.command(&long(0x8F, 4, 4, 2), &[], 0).sense(), FIELD);
}

/// COMPARE AND WRITE with `old` and `new`, of one block.
fn swap(initiator: &mut Initiator, first: u64, old: u8, new: u8) -> (u8, u8, u8) {
    let cdb = [&[0x89, 0][..], &first.to_be_bytes(), &[0, 0, 0, 1, 0, 0]].concat();
    initiator.command(&cdb, &[vec![old; 512], vec![new; 512]].concat(), 0).sense()
}

/// If this fails, two hypervisors both believe that they hold a lock on disk.
#[test]
fn compare_and_write_is_one_step_between_sessions() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    assert_eq!(swap(&mut initiator, 3, 1, 2), (0xE, 0x1D, 0));
    assert_eq!(initiator.command(&read10(3, 1), &[], 512).data, [0; 512]);
    let mut sized = cdb(&[0x89, 0]);
    sized[13] = 2;
    assert_eq!(initiator.command(&sized, &[0; 1024], 0).sense(), FIELD, "half of the data is missing");
    // Each of both sessions counts up 100 times; no step may be lost.
    let mut other = Initiator::session(&world, "b");
    let count = |initiator: &mut Initiator| {
        for _ in 0..100 {
            loop {
                let now = initiator.command(&read10(9, 1), &[], 512).data[0];
                if swap(initiator, 9, now, now + 1) == (0, 0, 0) {
                    break;
                }
            }
        }
    };
    let second = world.runtime.spawn_blocking(move || count(&mut other));
    count(&mut initiator);
    world.runtime.block_on(second).expect("it counts");
    assert_eq!(initiator.command(&read10(9, 1), &[], 512).data, [200; 512]);
}

#[test]
fn write_same_fills_and_unmap_frees() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    assert!(initiator.command(&long(0x93, 0, 0, 5000), &[0xA5; 512], 0).is_good());
    assert_eq!(initiator.command(&read10(4990, 20), &[], 20 * 512).data, [vec![0xA5; 10 * 512], vec![0; 10 * 512]].concat());
    assert!(initiator.command(&long(0x93, 0x08, 0, 8), &[0x11; 512], 0).is_good(), "a pattern is written though it may be unmapped");
    assert_eq!(initiator.command(&read10(0, 1), &[], 512).data, [0x11; 512]);
    assert!(initiator.command(&long(0x93, 0x09, 8, 3), &[], 0).is_good(), "NDOB: zeros without data");
    assert_eq!(initiator.command(&read10(7, 5), &[], 5 * 512).data, [vec![0x11; 512], vec![0; 3 * 512], vec![0xA5; 512]].concat());
    for (flags, blocks, out) in [(0, 1, 1024), (0, 1, 0), (0x10, 1, 512), (0, u32::MAX, 512)] {
        let reply = initiator.command(&long(0x93, flags, 100, blocks), &vec![0; out], 0);
        assert!([FIELD, OUT_OF_RANGE].contains(&reply.sense()), "{flags:x} {blocks} {out}: {reply:?}");
    }
    assert_eq!(initiator.command(&long(0x93, 0, 0, 0), &[0; 512], 0).sense(), FIELD, "to the end is longer than the limit");
    assert!(initiator.command(&long(0x93, 0, BLOCKS - 9, 0), &[0x77; 512], 0).is_good());
    assert_eq!(initiator.command(&read10(BLOCKS as u32 - 10, 10), &[], 5120).data, [vec![0; 512], vec![0x77; 9 * 512]].concat());
    // UNMAP of blocks 15 to 32: 16 to 31 are whole physical ones.
    let unmap = |initiator: &mut Initiator, ranges: &[(u64, u32)]| {
        let mut list = vec![0; 8];
        list[3] = (ranges.len() * 16) as u8;
        for (first, blocks) in ranges {
            list.extend(first.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        initiator.command(&[0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], &list, 0).sense()
    };
    assert_eq!(unmap(&mut initiator, &[(15, 18), (40, 0)]), (0, 0, 0));
    let data = initiator.command(&read10(14, 20), &[], 20 * 512).data;
    assert_eq!(data, [vec![0xA5; 512], vec![0; 18 * 512], vec![0xA5; 512]].concat(), "neighbours are left alone");
    assert_eq!(unmap(&mut initiator, &[(BLOCKS - 1, 2)]), OUT_OF_RANGE);
    assert_eq!(unmap(&mut initiator, &[(u64::MAX, 2)]), OUT_OF_RANGE);
    assert_eq!(unmap(&mut initiator, &[]), (0, 0, 0));
    assert!(initiator.command(&[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0).is_good());
    let status = initiator.command(&long(0x9E, 0x12, 16, 40), &[], 40).data;
    assert_eq!(status[..24], [&[0, 0, 0, 36][..], &[0; 4], &16u64.to_be_bytes(), &16u32.to_be_bytes(), &[1, 0, 0, 0]].concat());
    assert_eq!(status[24..36], [&32u64.to_be_bytes()[..], &4968u32.to_be_bytes()].concat());
}

#[test]
fn orwrite_sets_bits_and_caches_are_flushed() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    assert!(initiator.command(&write10(0, 1), &[0x0F; 512], 0).is_good());
    assert!(initiator.command(&long(0x8B, 0, 0, 1), &[0xA0; 512], 0).is_good());
    assert_eq!(initiator.command(&read10(0, 1), &[], 512).data, [0xAF; 512]);
    for command in [
        long(0x91, 0, 0, 0),
        long(0x90, 2, 0, 100),
        vec![0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0x1B, 0, 0, 0, 0, 0],
        vec![0x1D, 4, 0, 0, 0, 0],
    ] {
        assert!(initiator.command(&command, &[], 0).is_good(), "{command:02x?}");
    }
}

/// Initiators look at these pages to know a disk again and to choose how they write.
#[test]
fn the_pages_of_inquiry_are_all_there() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let mut inquiry = |evpd: u8, page: u8| initiator.command(&[0x12, evpd, page, 1, 0, 0], &[], 256);
    let standard = inquiry(0, 0).data;
    assert_eq!((standard.len(), standard[0], standard[2], &standard[8..16]), (96, 0, 6, &b"ZIRCONIA"[..]));
    assert_eq!(inquiry(0, 0x80).sense(), FIELD);
    assert_eq!(inquiry(1, 0xC0).sense(), FIELD);
    let pages = inquiry(1, 0).data;
    assert_eq!(pages[4..], [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2]);
    for page in &pages[4..] {
        let data = inquiry(1, *page).data;
        assert_eq!((data[1], usize::from(data[3])), (*page, data.len() - 4));
    }
    assert_eq!(inquiry(1, 0x80).data[4..], *b"serial-1");
    assert_eq!(inquiry(1, 0x83).data[4..8], [1, 3, 0, 16]);
    let limits = inquiry(1, 0xB0).data;
    assert_eq!((limits.len(), limits[5], &limits[28..36]), (64, 255, &[0, 0, 0, 8, 0x80, 0, 0, 0][..]));
    assert_eq!(inquiry(1, 0xB2).data[5] & 0xE4, 0xE4);
    let capacity = initiator.command(&[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], &[], 32).data;
    assert_eq!((&capacity[..8], &capacity[12..15]), (&(BLOCKS - 1).to_be_bytes()[..], &[0, 3, 0xC0][..]));
}

/// `blockdev --setro`, write-through caches and descriptor sense data are changes of modes: others have to learn of them.
#[test]
fn modes_change_and_the_others_are_told() {
    let world = World::new();
    let (mut initiator, mut other) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    let page = |initiator: &mut Initiator, code: u8| initiator.command(&[0x1A, 8, code, 0, 255, 0], &[], 255).data;
    assert_eq!(page(&mut initiator, 0x08)[..7], [23, 0, 0x10, 0, 0x08, 18, 4]);
    assert_eq!(initiator.command(&[0x1A, 8, 0xC8, 0, 255, 0], &[], 255).sense(), (5, 0x39, 0));
    assert_eq!(initiator.command(&[0x1A, 8, 0x05, 0, 255, 0], &[], 255).sense(), FIELD);
    let mut control = page(&mut initiator, 0x0A)[4..].to_vec();
    let select = |initiator: &mut Initiator, page: &[u8]| {
        let list = [&[0; 4], page].concat();
        initiator.command(&[0x15, 0x10, 0, 0, list.len() as u8, 0], &list, 0)
    };
    control[4] |= 0x08;
    control[2] |= 0x04;
    assert!(select(&mut initiator, &control).is_good());
    let refused = initiator.command(&write10(0, 1), &[1; 512], 0);
    assert_eq!((refused.sense[0], refused.sense()), (0x72, (7, 0x27, 2)));
    assert_eq!(other.command(&[0; 6], &[], 0).sense(), (6, 0x2A, 1));
    assert!(other.command(&[0; 6], &[], 0).is_good());
    assert_eq!(page(&mut other, 0x0A)[2], 0x90);
    (control[4], control[2]) = (0, 0);
    assert!(select(&mut initiator, &control).is_good());
    control[5] = 1;
    assert_eq!(select(&mut initiator, &control).sense(), (5, 0x26, 0));
    assert_eq!(select(&mut initiator, &control[..5]).sense(), (5, 0x1A, 0));
    let mut caching = page(&mut initiator, 0x08)[4..].to_vec();
    caching[2] = 0;
    assert!(select(&mut initiator, &caching).is_good() && page(&mut initiator, 0x08)[6] == 0);
}

/// A command that is reported works, and its bitmap is that of the command.
#[test]
fn every_command_that_is_reported_is_known() {
    let world = World::new();
    let mut initiator = Initiator::session(&world, "a");
    let mut report =
        |options: u8, opcode: u8, action: u8| initiator.command(&[0xA3, 0x0C, options, opcode, 0, action, 0, 0, 0x10, 0, 0, 0], &[], 4096);
    let all = report(0, 0, 0).data;
    assert_eq!(all.len() - 4, u32::from_be_bytes(all[..4].try_into().expect("four bytes")) as usize);
    assert!(all.len() > 4 + 40 * 8);
    for entry in all[4..].chunks_exact(8) {
        let (opcode, action, has_action) = (entry[0], entry[3], entry[5] & 1 == 1);
        let (right, wrong) = if has_action { (2, 1) } else { (1, 2) };
        let one = report(0x80 | right, opcode, action).data;
        assert_eq!((one[1], one[4], one.len()), (0x83, opcode, 4 + usize::from(one[3]) + 12), "{opcode:02x}");
        assert_eq!(report(wrong, opcode, action).sense(), FIELD, "{opcode:02x}");
    }
    assert_eq!(report(3, 0x83, 0).data, [0, 1, 0, 0]);
}

/// What was to be told is kept for the command that can be told it.
#[test]
fn attentions_wait_for_a_command_that_takes_them() {
    let world = World::new();
    let mut initiator = Initiator::fresh(&world, "a", &[]);
    assert!(initiator.command(&[0x12, 0, 0, 0, 36, 0], &[], 36).is_good());
    assert!(initiator.command(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[], 16).is_good());
    let sense = initiator.command(&[0x03, 0, 0, 0, 18, 0], &[], 18).data;
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x29, 0));
    assert!(initiator.command(&[0; 6], &[], 0).is_good(), "it was told");
}

#[test]
fn who_may_only_read_cannot_write() {
    let world = World::new();
    world.access.allow("a", crate::world::TARGET, iscsi::Grant { chap: None, is_read_only: true });
    let mut initiator = Initiator::session(&world, "a");
    for (command, out) in [(write10(0, 1), 512), (long(0x93, 1, 0, 1), 0), (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 8, 0], 8)] {
        assert_eq!(initiator.command(&command, &vec![0; out], 0).sense(), (7, 0x27, 0), "{command:02x?}");
    }
    assert!(initiator.command(&read10(0, 1), &[], 512).is_good());
    assert_eq!(initiator.command(&[0x1A, 8, 0x3F, 0, 255, 0], &[], 255).data[2], 0x90);
}

/// If this fails, an initiator that may only read locks those out who may write, or ends what they do.
#[test]
fn who_may_only_read_decides_nothing_for_others() {
    let world = World::new();
    world.access.allow("a", crate::world::TARGET, iscsi::Grant { chap: None, is_read_only: true });
    let (mut reader, mut writer) = (Initiator::session(&world, "a"), Initiator::session(&world, "b"));
    // A registration that is kept, RESERVE(6), and the bit that has nobody write (SWP).
    let register = [&0u64.to_be_bytes()[..], &7u64.to_be_bytes(), &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    let protect = vec![0, 0, 0, 0, 0x0A, 0x0A, 0, 0x10, 0x08, 0, 0, 0, 0xFF, 0xFF, 0, 0];
    for (command, list) in [
        (vec![0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], register.clone()),
        (vec![0x5F, 6, 0, 0, 0, 0, 0, 0, 24, 0], register),
        (vec![0x16, 0, 0, 0, 0, 0], Vec::new()),
        (vec![0x15, 0x10, 0, 0, 16, 0], protect),
    ] {
        assert_eq!(reader.command(&command, &list, 0).sense(), (7, 0x27, 0), "{command:02x?}");
    }
    for function in [4, 5, 6] {
        assert_eq!(reader.manage(function, u32::MAX), 6, "function {function}");
    }
    assert!(writer.command(&write10(0, 1), &[1; 512], 0).is_good());
    assert!(reader.command(&[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256).is_good(), "it may look");
}
