//! Tests of what is found again on a device: by the next process, after a crash at any write, and whatever became of the device meanwhile.

use super::{BLOCK, CACHE, POOL, Rig, bookmark, contents};
use crate::journal::Journal;
use crate::{Tunables, Unread, unpack_log};
use abd::Abd;
use exec::SplitMix;
use kernels::checksum::{Verifier, embed, fletcher4};
use ondisk::label::LABEL_START_BYTES;
use ondisk::{BlockPtr, ByteOrder, Checksum, Compression, L2arcBlock, L2arcHeader, L2arcLogBlock, L2arcLogEntry, L2arcLogPtr, L2arcSweep};

/// Bytes of the least device: three blocks are listed together.
const LEAST: usize = 64 << 20;
const HEADER: usize = LABEL_START_BYTES as usize;

/// Parameters with which small devices are listed on themselves, too.
fn listed() -> Tunables {
    Tunables { rebuild_blocks_min_l2size: 0, ..Tunables::default() }
}

fn header(bytes: &[u8]) -> L2arcHeader {
    L2arcHeader::detect(&bytes[HEADER..]).expect("there is a header")
}

/// Bytes of a device with another header, of which the checksum is right.
fn with_header(bytes: &[u8], header: &L2arcHeader) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let sector = &mut bytes[HEADER..HEADER + L2arcHeader::SIZE];
    sector.copy_from_slice(&header.encode());
    embed(Checksum::LABEL, sector, Verifier::label(LABEL_START_BYTES)).expect("a sector has room for it");
    bytes
}

/// If this fails, each restart of a daemon costs a warm cache device, or only its first.
#[test]
fn what_is_listed_is_found_by_the_next_process() {
    let rig = Rig::tuned((8 << 20, listed()), 100 << 20);
    let mut blocks = rig.write_all(30);
    blocks.extend((30..42).map(|seed| rig.write(seed, Compression::LZ4)));
    assert_eq!(rig.feed(), 42);
    let (asize, logs) = (rig.value("l2_log_blk_asize"), rig.value("l2_log_blk_count"));
    assert_eq!(
        (rig.value("l2_log_blk_writes"), logs, rig.value("l2_rebuild_dh_errors")),
        (8, 8, 1),
        "five blocks each, and none was there"
    );
    assert!((8 * 512..8 * 4096).contains(&asize), "they are compressed: {asize} bytes");
    assert!(rig.value("l2_log_blk_avg_asize") > 0 && rig.value("l2_data_to_meta_ratio") > 10);
    assert_eq!(rig.l2.report(CACHE).map(|report| report.allocated_bytes), Some(rig.value("l2_asize") + asize));
    let bytes = rig.device.mem.contents();
    let told = header(&bytes);
    assert_eq!((told.dh_lb_count, told.dh_lb_asize, told.dh_log_entries, told.dh_spa_guid), (8, asize, 5, POOL.0));

    let next = rig.again(bytes.clone());
    assert_eq!(next.feed(), 0);
    let found =
        ["success", "log_blks", "bufs", "bufs_precached", "dh_errors", "unsupported"].map(|name| next.value(&format!("l2_rebuild_{name}")));
    assert_eq!(found, [1, 8, 40, 0, 0, 0]);
    assert_eq!((next.value("l2_rebuild_size"), next.value("l2_rebuild_asize")), (next.value("l2_size"), next.value("l2_asize")));
    assert_eq!((next.value("l2_log_blk_asize"), next.value("l2_log_blk_count")), (asize, 8));
    next.read_all(&blocks);
    assert_eq!((next.value("l2_hits"), next.value("l2_misses"), next.value("l2_cksum_bad")), (40, 2, 0));
    blocks.extend((42..60).map(|seed| next.write(seed, Compression::OFF)));
    assert_eq!(next.feed(), 20, "those that were not listed are there once more");
    let third = next.again(next.device.mem.contents());
    third.feed();
    assert_eq!((third.value("l2_rebuild_log_blks"), third.value("l2_rebuild_bufs")), (12, 60));
    third.read_all(&blocks);
    assert_eq!((third.value("l2_hits"), third.value("l2_cksum_bad")), (60, 0));

    // Who does not want it goes on behind what is there.
    let off = rig.again(bytes);
    off.l2.tune(Tunables { rebuild_enabled: false, ..listed() });
    off.feed();
    assert_eq!((off.value("l2_rebuild_success"), off.value("l2_size")), (0, 0));
    for seed in 60..65 {
        off.write(seed, Compression::OFF);
    }
    assert_eq!(off.feed(), 5);
    let on = off.again(off.device.mem.contents());
    on.l2.tune(listed());
    on.feed();
    assert_eq!((on.value("l2_rebuild_log_blks"), on.value("l2_rebuild_bufs")), (9, 45));
}

/// If this fails, a device that another pool, or OpenZFS in another form, wrote is taken for ours, and each read from it is in vain.
#[test]
fn what_is_of_something_else_is_not_looked_for() {
    let rig = Rig::tuned((8 << 20, listed()), LEAST);
    let blocks = rig.write_all(9);
    assert_eq!(rig.feed(), 9);
    let bytes = rig.device.mem.contents();
    let counts =
        |rig: &Rig| ["log_blks", "unsupported", "dh_errors", "cksum_lb_errors"].map(|name| rig.value(&format!("l2_rebuild_{name}")));
    let found = |bytes: Vec<u8>| {
        let next = rig.again(bytes);
        next.feed();
        next.read_all(&blocks);
        assert_eq!(next.value("l2_cksum_bad"), 0);
        let now = header(&next.device.mem.contents());
        assert_eq!((now.dh_spa_guid, now.dh_vdev_guid, now.dh_log_entries), (POOL.0, CACHE.0, 3), "it has a header of ours now");
        counts(&next)
    };
    let told = header(&bytes);
    assert_eq!(found(bytes.clone()), [3, 0, 0, 0]);
    let changed = [
        L2arcHeader { dh_magic: told.dh_magic + 1, ..told.clone() },
        L2arcHeader { dh_version: 2, ..told.clone() },
        L2arcHeader { dh_spa_guid: 1, ..told.clone() },
        L2arcHeader { dh_vdev_guid: 1, ..told.clone() },
        L2arcHeader { dh_log_entries: 4, ..told.clone() },
        L2arcHeader { dh_end: told.dh_end - 512, ..told.clone() },
        L2arcHeader { dh_evict: told.dh_end + 512, ..told.clone() },
    ];
    for header in &changed {
        assert_eq!(found(with_header(&bytes, header)), [0, 1, 0, 0], "{header:?}");
    }
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        bytes
    };
    assert_eq!(found(flipped(HEADER + 48)), [0, 0, 1, 0], "its checksum is wrong");
    assert_eq!(found(flipped(told.dh_start_lbps[0].lbp_daddr as usize + 100)), [0, 0, 0, 1], "that of the newest log block is");
    assert_eq!(found(flipped(told.dh_start_lbps[1].lbp_daddr as usize + 100)), [1, 0, 0, 1], "that of the one before is");
    // A trim of the whole device comes first where that is wanted.
    let trimmed = rig.again(bytes.clone());
    trimmed.l2.tune(Tunables { trim_ahead: 50, ..listed() });
    trimmed.feed();
    assert_eq!(counts(&trimmed), [0, 1, 0, 0]);
    let bytes = trimmed.device.mem.contents();
    assert_eq!(header(&bytes).dh_trim_state, L2arcHeader::TRIM_COMPLETE);
    assert!(bytes[HEADER + 512..].iter().all(|byte| *byte == 0));
}

/// If this fails, a daemon that takes over a device with more on it than fits into memory pushes everything else out.
#[test]
fn what_is_found_takes_no_more_memory_than_may_be() {
    let rig = Rig::tuned((8 << 20, listed()), LEAST);
    let blocks = rig.write_all(60);
    assert_eq!(rig.feed(), 60);
    let next = rig.again(rig.device.mem.contents());
    next.l2.tune(Tunables { meta_percent: 0, ..listed() });
    next.feed();
    assert_eq!((next.value("l2_rebuild_lowmem"), next.value("l2_hdr_size"), next.value("l2_rebuild_log_blks")), (1, 0, 0));
    next.read_all(&blocks);
}

/// If this fails, whoever can write to a cache device has the daemon drop all that it has in memory.
#[test]
fn what_makes_no_sense_takes_no_memory() {
    const LOGS: u64 = 3000;
    let rig = Rig::tuned((1 << 20, listed()), LEAST);
    rig.feed();
    let mut bytes = rig.device.mem.contents();
    let told = header(&bytes);
    let sweep = L2arcSweep::of(&told, told.dh_start);
    let (mut journal, mut hand) = (Journal::new(3), told.dh_start);
    for _ in 0..LOGS {
        let mut draft = journal.draft();
        let entry = L2arcLogEntry { le_daddr: hand, ..L2arcLogEntry::default() };
        for n in 0..3 {
            assert_eq!(draft.list(entry.clone(), 512), n == 2);
        }
        let stored = draft.end(hand + 512, 512, &sweep);
        stored.copy_to(0, &mut bytes[hand as usize + 512..][..stored.len()]);
        hand += 512 + stored.len() as u64;
        journal.accept(draft);
    }
    let next = rig.again(with_header(&bytes, &journal.header((POOL, CACHE), &sweep)));
    next.feed();
    let found = ["success", "lowmem", "log_blks", "bufs_precached"].map(|name| next.value(&format!("l2_rebuild_{name}")));
    assert_eq!((found, next.value("l2_hdr_size"), next.cache.size()), ([1, 0, LOGS, 3 * LOGS], 0, 0));
}

/// If this fails, a crash of the machine makes the next daemon look for blocks that were written over, and count its device's lies.
#[test]
fn a_crash_at_any_write_leaves_nothing_that_is_wrong() {
    let rig = Rig::tuned((24 << 20, Tunables { write_max: 8 << 20, write_boost: 0, ..listed() }), LEAST);
    let (mut blocks, mut image) = (Vec::new(), Vec::new());
    for round in 0..14 {
        if round == 9 {
            image = rig.device.mem.contents();
            *rig.device.written.lock() = Some(Vec::new());
        }
        blocks.extend((0..150).map(|n| rig.write(round * 150 + n, Compression::OFF)));
        rig.feed();
    }
    assert_eq!(header(&rig.device.mem.contents()).dh_flags & L2arcHeader::EVICT_FIRST, 0, "the device was written to its end and on");
    assert!(crashed(&rig, image, &blocks, 500) > 12);
    // Who did not look for what is there writes over it as carefully.
    let off = rig.again(rig.device.mem.contents());
    off.l2.tune(Tunables { rebuild_enabled: false, ..off.l2.tunables() });
    off.feed();
    let image = off.device.mem.contents();
    *off.device.written.lock() = Some(Vec::new());
    for round in 14..17 {
        blocks.extend((0..150).map(|n| off.write(round * 150 + n, Compression::OFF)));
        off.feed();
    }
    off.l2.tune(Tunables { rebuild_enabled: true, ..off.l2.tunables() });
    assert!(crashed(&off, image, &blocks, 100) > 4);
}

/// Has another process find the device as it was after each of the writes that it noted, and read what it finds there; the number of them.
fn crashed(rig: &Rig, mut image: Vec<u8>, blocks: &[BlockPtr], found_min: u64) -> usize {
    let written = rig.device.written.lock().take().expect("what was written");
    assert!(written.iter().filter(|(offset, _)| *offset == LABEL_START_BYTES).count() > written.len() / 6);
    for (number, (offset, data)) in written.iter().enumerate() {
        data.copy_to(0, &mut image[*offset as usize..][..data.len()]);
        let next = rig.again(image.clone());
        next.feed();
        let found = next.value("l2_rebuild_bufs");
        assert!(found > found_min, "after write {number} of {}: {found}", written.len());
        for (seed, bp) in blocks.iter().enumerate().skip(number % 5).step_by(5) {
            assert!(next.cache.read(bp, &bookmark(0)).expect("read") == contents(seed as u64), "block {seed} after write {number}");
        }
        let wrong = ["l2_cksum_bad", "l2_io_error", "l2_rebuild_cksum_lb_errors", "l2_rebuild_io_errors"].map(|name| next.value(name));
        assert_eq!(wrong, [0; 4], "after write {number} of {}", written.len());
        assert!(next.value("l2_hits") > found_min / 5);
    }
    written.len()
}

/// A log block that lists real blocks at places and of sizes that are made up; some of them right.
fn made_up(random: &mut SplitMix, blocks: &[BlockPtr], header: &L2arcHeader) -> (u64, L2arcLogPtr, Vec<u8>) {
    let (start, end) = (header.dh_start, header.dh_end);
    let mut offset = || start + random.below(((end - start) >> 9) as usize) as u64 * 512;
    let (daddr, first) = (offset().min(end - (64 << 10)), offset());
    let entries = (0..3).map(|n| {
        let told = L2arcBlock {
            logical_bytes: BLOCK as u64,
            physical_bytes: if n == 0 { 16 << 20 } else { BLOCK as u64 },
            compression: Compression::OFF,
            is_metadata: n == 1,
            is_protected: false,
            is_prefetched: false,
            list: n,
        };
        let bp = &blocks[usize::from(n)];
        let le_daddr = if n == 2 { offset() + 1 } else { offset() };
        L2arcLogEntry {
            le_dva: bp.dva(0).to_words(),
            le_birth: bp.physical_birth().0,
            le_prop: told.to_word(),
            le_daddr,
            ..L2arcLogEntry::default()
        }
    });
    let block = L2arcLogBlock { previous: header.dh_start_lbps[0].clone(), entries: entries.collect() };
    let bytes = block.encode();
    let sum = fletcher4(&[bytes.as_slice()], ByteOrder::Little);
    (daddr, L2arcLogPtr::new((daddr, bytes.len() as u64), Compression::OFF, (first, 1 << 20), sum), bytes)
}

/// If this fails, whoever can write to a cache device stops the daemon, or gives its users other bytes than theirs.
#[test]
fn whatever_a_device_says_readers_get_what_was_written() {
    let rig = Rig::tuned((8 << 20, listed()), LEAST);
    let blocks = rig.write_all(9);
    assert_eq!(rig.feed(), 9);
    let bytes = rig.device.mem.contents();
    let told = header(&bytes);
    let mut random = SplitMix::new(7);
    for round in 0..40 {
        let mut header = told.clone();
        let mut bytes = bytes.clone();
        if round % 2 == 0 {
            let (daddr, pointer, log) = made_up(&mut random, &blocks, &told);
            bytes[daddr as usize..][..log.len()].copy_from_slice(&log);
            header.dh_start_lbps = [pointer, told.dh_start_lbps[round / 2 % 2].clone()];
        } else {
            let values = [0, 1, u64::MAX, u64::MAX - 511, told.dh_end, random.next_u64()];
            let value = values[random.below(values.len())];
            let pointer = &mut header.dh_start_lbps[round / 2 % 2];
            let fields =
                [&mut pointer.lbp_daddr, &mut pointer.lbp_payload_start, &mut pointer.lbp_prop, &mut header.dh_evict, &mut header.dh_flags];
            if let Some(field) = fields.into_iter().nth(random.below(5)) {
                *field = value;
            }
        }
        let next = rig.again(with_header(&bytes, &header));
        next.feed();
        next.read_all(&blocks);
        let more: Vec<Abd> = (100..110).map(contents).collect();
        let written: Vec<BlockPtr> = (100..110).map(|seed| next.write(seed, Compression::OFF)).collect();
        next.feed();
        next.cache.clear();
        for (bp, data) in written.iter().zip(&more) {
            assert!(next.cache.read(bp, &bookmark(0)).expect("read") == *data, "round {round}");
        }
        next.read_all(&blocks);
    }
}

/// If this fails, OpenZFS takes what we write for something else: its `zdb -lll` shows of exactly these bytes the values that they were made of.
#[test]
fn bytes_are_those_of_which_openzfs_shows_the_values() {
    const START: u64 = LABEL_START_BYTES + 4096;
    let sweep = L2arcSweep { start: START, end: 66_584_576, hand: START, evict: START, is_first: true };
    let (mut journal, mut hand, mut stored) = (Journal::new(3), START, Abd::zeroed(512));
    for log in 0..3 {
        let mut draft = journal.draft();
        for n in 0..3 {
            let told = L2arcBlock {
                logical_bytes: 128 << 10,
                physical_bytes: 4608,
                compression: Compression::LZ4,
                is_metadata: n == 1,
                is_protected: n == 2,
                is_prefetched: n == 0,
                list: if n == 0 { L2arcBlock::RECENT } else { L2arcBlock::FREQUENT },
            };
            let (le_dva, le_prop) = ([256, 1000 * log + n], told.to_word());
            let entry = L2arcLogEntry { le_dva, le_birth: 7, le_prop, le_daddr: hand, le_complevel: 3, ..L2arcLogEntry::default() };
            assert_eq!((draft.fills_after(0), draft.list(entry, 8192)), (n == 2, n == 2));
            hand += 8192;
        }
        // No compression saves a sector of 64 KiB.
        stored = draft.end(hand, 64 << 10, &sweep);
        hand += 64 << 10;
        journal.accept(draft);
    }
    let header = journal.header((POOL, CACHE), &sweep);
    let newest = &header.dh_start_lbps[0];
    assert_eq!(newest.lbp_cksum, [0x0003_2f39_da96, 0xcba9_9f17_4a60, 0x1971_0016_d53a_7a34, 0x6eef_a63e_33b2_66a2]);
    let mut sector = vec![0; 4096];
    sector[..L2arcHeader::SIZE].copy_from_slice(&header.encode());
    embed(Checksum::LABEL, &mut sector, Verifier::label(LABEL_START_BYTES)).expect("a sector has room for it");
    let sum = [0x5dbe_a7c2_5c21_15c2_u64, 0xcf9b_1707_60c4_dc37, 0xf8b8_f01d_de8a_3665, 0x1659_fced_c643_48dd];
    assert_eq!(sector[4096 - 32..], sum.map(u64::to_le_bytes).concat());
    let read = unpack_log(newest, &stored.to_vec(), 3).expect("it is right");
    assert_eq!((read.entries.len(), read.entries[2].le_daddr, read.previous.lbp_payload_start), (3, hand - (72 << 10), START));
    let mut wrong = stored.to_vec();
    wrong[100] ^= 1;
    assert_eq!(unpack_log(newest, &wrong, 3), Err(Unread::Checksum));
}
