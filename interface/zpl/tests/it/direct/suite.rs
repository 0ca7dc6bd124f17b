//! Direct I/O of files in a whole pool: what OpenZFS's test suite (`functional/direct`) asserts, against the pool's counters
//! `direct_read_count`, `direct_write_count` and `arc_write_count` with the same minimum counts, and against our own exact
//! counts by reason. Where these fail, programs that align their I/O get the cache, or get EINVAL where OpenZFS serves them.

use crate::direct::bed::Bed;
use abd::{Abd, SharedPages};
use need::pattern;
use zpl::direct::{Access, Memory, Property, Reason};
use zpl::{Node, Settings, WriteData, ZplError};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const BLOCK: u64 = 128 * K;
const PLAIN: Access = Access { flagged: false, ..Access::DIRECT };

/// Counters of the pool's iostats: direct reads (with what came with those of neighbours), direct writes, buffered writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts(u64, u64, u64);

fn counts(bed: &Bed) -> Counts {
    let stats = bed.pool.iostats();
    Counts(stats.direct_read.get().0 + stats.direct_shared.get().0, stats.direct_write.get().0, stats.arc_write.get().0)
}

/// Counts that `run` added to the counters.
fn added(bed: &Bed, run: impl FnOnce()) -> Counts {
    let before = counts(bed);
    run();
    let after = counts(bed);
    Counts(after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn write(bed: &Bed, node: &Node, offset: u64, length: u64, access: Access) -> Result<u64, ZplError> {
    let data = Abd::from_slice(&pattern(length as usize, offset + length));
    bed.zfs.write_with(node, WriteData { offset, data, may_keep: true, kill_suid: false, synchronous: false }, access)
}

fn check(bed: &Bed, node: &Node, offset: u64, length: u64, access: Access) {
    let data = bed.zfs.read_with(node, offset, length, access).expect("read");
    assert_eq!(data.to_vec(), pattern(length as usize, offset + length));
}

fn set(bed: &Bed, direct: Property) {
    bed.zfs.set_settings(Settings { direct, ..bed.zfs.settings() });
}

/// Makes several requests of one size, one after the other.
fn writes(bed: &Bed, node: &Node, start: u64, each: u64, count: u64, access: Access) {
    (0..count).for_each(|index| {
        write(bed, node, start + index * each, each, access).expect("written");
    });
}

fn reads(bed: &Bed, node: &Node, start: u64, each: u64, count: u64, access: Access) {
    (0..count).for_each(|index| {
        bed.zfs.read_with(node, start + index * each, each, access).expect("read");
    });
}

fn reason(bed: &Bed, reason: Reason) -> (u64, u64) {
    let found = bed.zfs.direct().stats.snapshot().fallbacks.into_iter().find(|count| count.reason == reason);
    found.map_or((0, 0), |count| (count.requests, count.bytes))
}

#[test]
fn dio_aligned_block() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 8, PLAIN);
    bed.pool.sync().expect("synced");
    for blocks in [1, 2, 4, 8] {
        let Counts(_, direct, _) = added(&bed, || writes(&bed, &node, 0, blocks * BLOCK, 8 / blocks, Access::DIRECT));
        assert_eq!(direct, 8, "requests of {blocks} blocks");
        bed.cache_cleared();
        let Counts(direct, ..) = added(&bed, || reads(&bed, &node, 0, blocks * BLOCK, 8 / blocks, Access::DIRECT));
        assert_eq!(direct, 8, "requests of {blocks} blocks");
    }
    let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 0, BLOCK / 2, 1, Access::DIRECT));
    assert!(direct == 0 && buffered >= 1, "half a record: {direct} direct, {buffered} buffered");
    let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 64 * K, 256 * K, 1, Access::DIRECT));
    assert!(direct >= 1 && buffered >= 2, "256K at 64K: {direct} direct, {buffered} buffered");
    let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 32 * K, 512 * K, 2, Access::DIRECT));
    // With the head up to the next boundary three whole blocks of each request are direct: as many as OpenZFS asserts.
    assert!(direct >= 6 && buffered >= 4, "512K at 32K, twice: {direct} direct, {buffered} buffered");
    bed.pool.sync().expect("synced");
    for (offset, length, least) in [(0, BLOCK / 2, 1), (64 * K, 256 * K, 3), (32 * K, 512 * K, 5)] {
        bed.cache_cleared();
        let Counts(direct, ..) = added(&bed, || reads(&bed, &node, offset, length, 1, Access::DIRECT));
        assert!(direct >= least, "{length} at {offset}: {direct} direct reads");
    }
}

#[test]
fn dio_grow_block() {
    for block in [8 * K, 16 * K, 32 * K, 64 * K, 128 * K] {
        let bed = Bed::with("off", 128 * K);
        let node = bed.file(b"f");
        let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 0, block, 1, Access::DIRECT));
        assert!(direct == 0 && buffered >= 1, "the first block of {block}");
        let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 0, 4 * K, 2, Access::DIRECT));
        assert!(direct == 0 && buffered >= 2, "parts of a block of {block}");
        let Counts(_, direct, _) = added(&bed, || writes(&bed, &node, 0, block, 1, Access::DIRECT));
        assert_eq!(direct, 1, "the whole block of {block}");
        for (offset, length) in [(0, block), (0, 4 * K), (4 * K, 4 * K)] {
            bed.cache_cleared();
            let Counts(direct, ..) = added(&bed, || reads(&bed, &node, offset, length, 1, Access::DIRECT));
            assert_eq!(direct, 1, "{length} at {offset} of a block of {block}");
        }
    }
}

#[test]
fn dio_property() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    set(&bed, Property::Always);
    let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 0, BLOCK, 8, PLAIN));
    assert!(direct >= 7 && buffered >= 1, "always, a new file: {direct} direct, {buffered} buffered");
    assert_eq!(added(&bed, || writes(&bed, &node, 0, BLOCK, 8, PLAIN)).1, 8, "always, overwritten");
    let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 0, BLOCK / 2, 16, PLAIN));
    assert!(direct == 0 && buffered >= 16, "always, half records");
    assert!(added(&bed, || writes(&bed, &node, 0, 512, 8, PLAIN)).2 >= 8, "always, sectors");
    bed.pool.sync().expect("synced");
    bed.cache_cleared();
    assert_eq!(added(&bed, || reads(&bed, &node, 0, BLOCK, 8, PLAIN)).0, 8, "always, read");
    assert_eq!(added(&bed, || reads(&bed, &node, 0, BLOCK / 2, 16, PLAIN)).0, 16, "always, half records read");
    assert_eq!(added(&bed, || reads(&bed, &node, 0, 512, 1, PLAIN)).0, 0, "always, a sector read");
    set(&bed, Property::Disabled);
    assert_eq!(added(&bed, || writes(&bed, &node, 0, BLOCK, 8, Access::DIRECT)).1, 0, "disabled, written");
    assert_eq!(added(&bed, || reads(&bed, &node, 0, BLOCK, 8, Access::DIRECT)).0, 0, "disabled, read");
    assert_eq!(reason(&bed, Reason::Disabled), (16, 16 * BLOCK));
    set(&bed, Property::Standard);
    assert_eq!(added(&bed, || writes(&bed, &node, 0, BLOCK, 8, PLAIN)).1, 0, "standard, not asked");
    assert_eq!(added(&bed, || writes(&bed, &node, 0, BLOCK, 8, Access::DIRECT)).1, 8, "standard, asked");
}

#[test]
fn dio_unaligned_block() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 2, PLAIN);
    for (property, strict, works) in [
        (Property::Standard, true, false),
        (Property::Always, true, true),
        (Property::Disabled, true, true),
        (Property::Standard, false, true),
        (Property::Always, false, true),
        (Property::Disabled, false, true),
    ] {
        set(&bed, property);
        bed.zfs.direct().tunables.set_strict(strict);
        let wanted = if works { Ok(512) } else { Err(ZplError::Invalid) };
        assert_eq!(write(&bed, &node, 512, 512, Access::DIRECT), wanted, "{property:?} strict {strict}");
        let read = bed.zfs.read_with(&node, 512, 512, Access::DIRECT).map(|data| data.len() as u64);
        assert_eq!(read, wanted, "{property:?} strict {strict}");
        if works {
            check(&bed, &node, 512, 512, Access::DIRECT);
        }
    }
    assert_eq!(bed.zfs.direct().stats.snapshot().rejected, (2, 1024), "refused requests are counted");
}

#[test]
fn dio_unaligned_filesize() {
    let mut bed = Bed::raidz("off");
    let node = bed.file(b"f");
    write(&bed, &node, 0, 256 * K - 512, PLAIN).expect("written");
    drop(node);
    bed.reimport();
    let node = bed.find(b"f");
    let Counts(direct, ..) = added(&bed, || {
        let data = bed.zfs.read_with(&node, 0, 256 * K, Access::DIRECT).expect("read");
        assert_eq!(data.to_vec(), pattern(256 * 1024 - 512, 256 * K - 512));
    });
    assert!(direct >= 2, "{direct} direct reads");
    assert_eq!(reason(&bed, Reason::EofTail), (1, 3584));
}

#[test]
fn dio_max_recordsize() {
    for record in [2 * M, 8 * M, 16 * M] {
        let bed = Bed::with("off", record);
        let node = bed.file(b"f");
        let Counts(_, direct, _) = added(&bed, || writes(&bed, &node, 0, record, 2, Access::DIRECT));
        assert_eq!(direct, 1, "two records of {record}: the first grows, the second is direct");
        (0..2).for_each(|index| check(&bed, &node, index * record, record, Access::DIRECT));
    }
}

/// Input and output of every kind see the same bytes (`dio_mixed`).
#[test]
fn dio_mixed() {
    let bed = Bed::raidz("lz4");
    let sizes = [512, 4096, BLOCK];
    let ways = [(PLAIN, Access::DIRECT), (Access::DIRECT, PLAIN), (Access::DIRECT, Access::DIRECT)];
    bed.zfs.direct().tunables.set_strict(false);
    for (number, (output, input)) in ways.into_iter().enumerate() {
        for written in sizes {
            let node = bed.file(format!("f{number}-{written}").as_bytes());
            let bytes = pattern(M as usize, written + number as u64);
            for (index, part) in bytes.chunks(written as usize).enumerate() {
                let write = WriteData {
                    offset: index as u64 * written,
                    data: Abd::from_slice(part),
                    may_keep: true,
                    kill_suid: false,
                    synchronous: false,
                };
                bed.zfs.write_with(&node, write, output).expect("written");
            }
            for read in sizes {
                let mut seen = Vec::new();
                for at in (0..M).step_by(read as usize) {
                    seen.extend(bed.zfs.read_with(&node, at, read, input).expect("read").to_vec());
                }
                assert!(seen == bytes, "written by {written}, read by {read}");
            }
        }
    }
}

/// §1.6: what is beyond the end is 0 bytes, an append goes where the end is, and one whose place is misaligned is refused.
#[test]
fn the_end_of_the_file() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    let append = Access { append: true, ..Access::DIRECT };
    assert_eq!(write(&bed, &node, 7, BLOCK, append), Ok(BLOCK));
    assert_eq!(write(&bed, &node, 7, BLOCK, append), Ok(BLOCK));
    assert_eq!(node.fields().size, 2 * BLOCK);
    assert_eq!(reason(&bed, Reason::Growth), (1, BLOCK));
    assert_eq!(bed.zfs.read_with(&node, 2 * BLOCK + 5, 3, Access::DIRECT).map(|data| data.len()), Ok(0));
    write(&bed, &node, 2 * BLOCK, 100, PLAIN).expect("written");
    assert_eq!(write(&bed, &node, 0, BLOCK, append), Err(ZplError::Invalid));
    assert_eq!(node.fields().size, 2 * BLOCK + 100);
}

/// The library's own memory: aligned slices are direct, others are refused, and nothing is copied on the way.
#[test]
fn the_callers_memory() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 4, PLAIN);
    bed.pool.sync().expect("synced");
    let mut room = Abd::scratch(3 * BLOCK as usize);
    let out = room.get_mut().expect("nobody else has it");
    out.copy_from_slice(&pattern(out.len(), 9));
    let copied = abd::memory_stats().copied_bytes;
    assert_eq!(bed.zfs.write_from(&node, BLOCK, out, Access::DIRECT), Ok(3 * BLOCK));
    out.fill(0);
    bed.cache_cleared();
    assert_eq!(bed.zfs.read_into(&node, BLOCK, out, Access::DIRECT), Ok(3 * BLOCK as usize));
    let copied = abd::memory_stats().copied_bytes - copied;
    assert!(out == pattern(out.len(), 9), "other bytes came back");
    println!("{copied} of {} bytes were copied", 6 * BLOCK);
    assert_eq!(Memory::of(&out[..100]), Memory::Misaligned);
    assert_eq!(bed.zfs.read_into(&node, 0, &mut out[512..512 + 4096], Access::DIRECT), Err(ZplError::Invalid));
    assert_eq!(bed.zfs.write_from(&node, 0, &out[512..512 + 4096], Access::DIRECT), Err(ZplError::Invalid));
    assert_eq!(reason(&bed, Reason::MisalignedMemory).0, 2);
    let pages = SharedPages::new(2 * BLOCK as usize);
    assert_eq!(bed.zfs.read_pages(&node, BLOCK, &pages, 0..2 * BLOCK as usize, Access::DIRECT), Ok(2 * BLOCK as usize));
    let mut seen = vec![0; 2 * BLOCK as usize];
    pages.read(0, &mut seen);
    assert!(seen == pattern(3 * BLOCK as usize, 9)[..seen.len()], "other bytes came back");
}

/// A thread starts many requests without waiting for any; each is answered once, with its bytes.
#[test]
fn one_thread_has_many_requests_under_way() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 16, PLAIN);
    bed.pool.sync().expect("synced");
    bed.cache_cleared();
    let answers = std::sync::Arc::new(exec::Mutex::new(Vec::new()));
    for index in 0..16u64 {
        let answers = answers.clone();
        let then = move |result: Result<Abd, ZplError>| answers.lock().push((index, result.map(|data| data.to_vec())));
        bed.zfs.read_then(&node, index * BLOCK, BLOCK, Access::DIRECT, Box::new(then));
    }
    let written = std::sync::Arc::new(exec::Mutex::new(Vec::new()));
    for index in 16..32u64 {
        let data = Abd::from_slice(&pattern(BLOCK as usize, index * BLOCK + BLOCK));
        let write = WriteData { offset: index * BLOCK, data, may_keep: true, kill_suid: false, synchronous: false };
        let written = written.clone();
        bed.zfs.write_then(&node, write, Access::DIRECT, Box::new(move |result| written.lock().push(result)));
    }
    bed.drive(|| answers.lock().len() == 16 && written.lock().len() == 16);
    for (index, answer) in answers.lock().iter() {
        assert_eq!(answer.as_ref().expect("read"), &pattern(BLOCK as usize, index * BLOCK + BLOCK), "block {index}");
    }
    assert!(written.lock().iter().all(|result| *result == Ok(BLOCK)));
    assert_eq!(node.fields().size, 32 * BLOCK);
    (16..32).for_each(|index| check(&bed, &node, index * BLOCK, BLOCK, PLAIN));
}

/// Data that was read or written uncached does not push other data out of the cache (OpenZFS 2.4).
#[test]
fn uncached_reads_leave_nothing_in_the_cache() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 32, PLAIN);
    bed.pool.sync().expect("synced");
    bed.zfs.direct().tunables.set_strict(false);
    let grown = |run: &dyn Fn()| {
        bed.cache_cleared();
        let before = bed.pool.cache().size();
        run();
        bed.pool.cache().size().saturating_sub(before)
    };
    let kept = grown(&|| reads(&bed, &node, 512, BLOCK, 31, PLAIN));
    assert!(kept > 20 * BLOCK, "an ordinary read keeps {kept} bytes");
    let kept = grown(&|| reads(&bed, &node, 512, BLOCK, 31, Access::DIRECT));
    assert!(kept < 3 * BLOCK, "an uncached read keeps {kept} bytes");
    assert_eq!(reason(&bed, Reason::MisalignedOffset).0, 31);
}

/// The same for writes, once they are on disk; and for everything where `primarycache` says so.
#[test]
fn uncached_writes_and_primarycache_leave_nothing_in_the_cache() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 2, PLAIN);
    let kept = |run: &dyn Fn()| {
        bed.cache_cleared();
        let before = bed.pool.cache().size();
        run();
        bed.pool.sync().expect("synced");
        bed.pool.cache().size().saturating_sub(before)
    };
    let ordinary = kept(&|| writes(&bed, &node, 0, BLOCK, 32, PLAIN));
    assert!(ordinary > 30 * BLOCK, "ordinary writes keep {ordinary} bytes");
    bed.zfs.direct().tunables.set_strict(false);
    let uncached = kept(&|| writes(&bed, &node, 512, BLOCK, 31, Access::DIRECT));
    assert!(uncached < ordinary / 2, "uncached writes keep {uncached} of {ordinary} bytes");
    bed.set("primarycache", "metadata");
    let written = kept(&|| writes(&bed, &node, 0, BLOCK, 32, PLAIN));
    let read = kept(&|| reads(&bed, &node, 0, BLOCK, 32, PLAIN));
    assert!(written < ordinary / 2 && read < ordinary / 2, "primarycache=metadata keeps {written} bytes of writes, {read} of reads");
    check(&bed, &node, 0, BLOCK, PLAIN);
    // Pieces of records, here and there: each is a piece of a record that stays no longer than memory for such things lasts.
    let pieces = kept(&|| (0..32).for_each(|n| reads(&bed, &node, n * BLOCK + 512, 512, 1, PLAIN)));
    assert!(pieces < bed.pool.cache().max() / 8, "primarycache=metadata keeps {pieces} bytes of records read in pieces");
    // Names, nodes and block pointers: kept with `metadata`, not with `none`; the bytes are right either way.
    let names: Vec<Node> = (0..64u64).map(|n| bed.file(format!("name {n}").as_bytes())).collect();
    let written = |bed: &Bed| {
        bed.cache_cleared();
        names.iter().for_each(|name| writes(bed, name, 0, 512, 1, PLAIN));
        bed.pool.sync().expect("synced");
        arcstat(bed, "metadata_size")
    };
    let with = written(&bed);
    bed.set("primarycache", "none");
    let without = written(&bed);
    assert!(without < with, "primarycache=none keeps {without} bytes of metadata, metadata keeps {with}");
    check(&bed, &node, 0, BLOCK, PLAIN);
    bed.set("primarycache", "all");
    assert!(kept(&|| reads(&bed, &node, 0, BLOCK, 32, PLAIN)) > 30 * BLOCK);
}

fn arcstat(bed: &Bed, name: &str) -> u64 {
    let kstat = bed.pool.cache().kstat();
    let found = kstat.values().into_iter().find(|(known, _)| *known == name);
    match found {
        Some((_, kstat::Value::U64(value))) => value,
        other => panic!("{name}: {other:?}"),
    }
}

/// What statx would say (`stat/statx_dioalign`).
#[test]
fn alignment_as_statx_tells_it() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    let told = |node: &Node| bed.zfs.direct_alignment(node).expect("known").map(|alignment| (alignment.memory, alignment.offset));
    assert_eq!(told(&node), Some((4096, BLOCK)));
    write(&bed, &node, 0, 8 * K, PLAIN).expect("written");
    assert_eq!(told(&node), Some((4096, BLOCK)), "a file that will grow");
    write(&bed, &node, 0, 2 * BLOCK, PLAIN).expect("written");
    assert_eq!(told(&node), Some((4096, BLOCK)));
    set(&bed, Property::Disabled);
    assert_eq!(told(&node), None);
}

/// The kernel hands over a long request in parts of 1 MiB. If this fails, a program that writes 1 MiB and some bytes with O_DIRECT gets
/// neither all of it nor EINVAL, but a short count.
#[test]
fn the_end_of_a_long_request_shares_the_fate_of_its_beginning() {
    let bed = Bed::with("off", BLOCK);
    let node = bed.file(b"f");
    assert_eq!(write(&bed, &node, 0, 700, Access::DIRECT), Err(ZplError::Invalid), "short and misaligned");
    for start in [0, 5 * M] {
        assert_eq!(write(&bed, &node, start, M, Access::DIRECT), Ok(M));
        assert_eq!(write(&bed, &node, start + M, M, Access::DIRECT), Ok(M));
        assert_eq!(write(&bed, &node, start + 2 * M, 700, Access::DIRECT), Ok(700), "the end");
        assert_eq!(write(&bed, &node, start + 2 * M + 700, 700, Access::DIRECT), Err(ZplError::Invalid), "another request");
    }
    check(&bed, &node, 2 * M, 700, PLAIN);
    let read = |offset, length| bed.zfs.read_with(&node, offset, length, Access::DIRECT).map(|data| data.len());
    assert_eq!(read(3 * M, 700), Err(ZplError::Invalid));
    assert_eq!((read(2 * M, M), read(3 * M, 700), read(3 * M + 700, 700)), (Ok(M as usize), Ok(700), Err(ZplError::Invalid)));
}

/// If this fails, a program that reads 32 KiB at a time has the devices read each record of 1 MiB 32 times; or it reads what was there before a write
/// or a truncation.
#[test]
fn requests_below_a_record_in_sequence_share_its_device_read() {
    let bed = Bed::with("off", M);
    let node = bed.file(b"f");
    writes(&bed, &node, 0, M, 20, PLAIN);
    bed.cache_cleared();
    let part = 32 * K;
    let read = |offset: u64| bed.zfs.read_with(&node, offset, part, Access::DIRECT).expect("read").to_vec();
    let before = bed.pool.iostats().direct_read.get().1;
    for record in 0..20 {
        let expected = pattern(M as usize, (record + 1) * M);
        for (at, bytes) in (record * M..).step_by(part as usize).zip(expected.chunks(part as usize)) {
            assert!(read(at) == bytes, "other bytes at {at}");
        }
    }
    let device = bed.pool.iostats().direct_read.get().1 - before;
    assert!(device * 10 <= 20 * M * 11, "{device} bytes of the devices for {}", 20 * M);
    assert_eq!(bed.zfs.objset().shared_direct_reads(), (640 - 21, (640 - 21) * part));
    let devices = |run: &dyn Fn()| {
        let before = bed.pool.iostats().direct_read.get().0;
        run();
        bed.pool.iostats().direct_read.get().0 - before
    };
    assert_eq!(devices(&|| (0..2).for_each(|_| drop(read(3 * M)))), 2, "the same place again and again is read again");

    assert_eq!(devices(&|| drop((read(8 * M), read(8 * M + part), read(8 * M + 2 * part)))), 2, "kept from the second on");
    write(&bed, &node, 8 * M + 3 * part, part, PLAIN).expect("written");
    assert!(read(8 * M + 3 * part) == pattern(part as usize, 8 * M + 4 * part), "the bytes from before a write");
    bed.zfs.truncate(&node, 8 * M + 4 * part).expect("truncated");
    bed.zfs.truncate(&node, 9 * M).expect("longer again");
    assert!(read(8 * M + 4 * part).iter().all(|&byte| byte == 0), "the bytes from before a truncation");
}

/// If this fails, a program that writes 32 KiB at a time with O_DIRECT fills memory and waits for syncs although its records are complete, or reads other
/// bytes than it wrote.
#[test]
fn requests_below_a_record_in_sequence_go_to_the_devices_as_records() {
    let bed = Bed::with("off", M);
    let node = bed.file(b"f");
    let part = 32 * K;
    let coalesced = || bed.pool.iostats().direct_coalesced.get();
    let Counts(_, direct, buffered) = added(&bed, || writes(&bed, &node, 0, part, 640, Access::DIRECT));
    assert_eq!((direct, buffered, coalesced()), (0, 640, (20, 20 * M)), "OpenZFS's counters are of what was asked for");
    let stats = bed.zfs.direct().stats.snapshot();
    assert_eq!((stats.asked, stats.coalesced_writes), ((640, 20 * M), (20, 20 * M)));
    assert_eq!(reason(&bed, Reason::Growth).1 + reason(&bed, Reason::Short).1, 20 * M, "none is silent");
    let whole = |records: std::ops::Range<u64>| {
        for at in (records.start * M..records.end * M).step_by(part as usize) {
            check(&bed, &node, at, part, Access::DIRECT);
        }
    };
    whole(0..20);
    bed.cache_cleared();
    whole(0..20);

    // Written again, and in any order; a part that is missing, or was written by others meanwhile, is what it is.
    writes(&bed, &node, 3 * M, part, 32, Access::DIRECT);
    for index in (0..31).rev() {
        write(&bed, &node, 20 * M + index * part, part, Access::DIRECT).expect("written");
    }
    assert_eq!(coalesced().0, 21);
    let other = Abd::from_slice(&pattern(part as usize, 99));
    let plain = WriteData { offset: 20 * M + 5 * part, data: other, may_keep: true, kill_suid: false, synchronous: false };
    bed.zfs.write_with(&node, plain, PLAIN).expect("written");
    write(&bed, &node, 21 * M - part, part, Access::DIRECT).expect("written");
    assert_eq!(coalesced().0, 22);
    bed.cache_cleared();
    whole(3..4);
    let seen = bed.zfs.read_with(&node, 20 * M + 5 * part, part, Access::DIRECT).expect("read");
    assert_eq!(seen.to_vec(), pattern(part as usize, 99), "what was newest went");
    write(&bed, &node, 20 * M + 5 * part, part, PLAIN).expect("written");
    whole(20..21);

    // Over the ends of records, at the end of the file wherever that is, and not at all.
    writes(&bed, &node, 30 * M, 48 * K, 64, Access::DIRECT);
    assert_eq!(coalesced().0, 25, "three records");
    (0..64).for_each(|index| check(&bed, &node, 30 * M + index * 48 * K, 48 * K, PLAIN));
    let grown = bed.file(b"g");
    writes(&bed, &grown, 0, part, 64, Access { append: true, ..Access::DIRECT });
    assert_eq!((coalesced().0, grown.fields().size), (27, 2 * M));
    bed.zfs.direct().tunables.set_coalesces(false);
    writes(&bed, &node, 40 * M, part, 32, Access::DIRECT);
    assert_eq!(coalesced().0, 27);
}

/// If this fails, a program that goes over the same records again and again, in parts, has each of them sent to the devices and read back every time.
#[test]
fn records_that_are_written_to_again_at_once_stay_in_memory() {
    let bed = Bed::raidz("off");
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 2, PLAIN);
    bed.pool.sync().expect("synced");
    let round = || writes(&bed, &node, BLOCK, 16 * K, 8, Access::DIRECT);
    (0..10).for_each(|_| round());
    assert_eq!(bed.pool.iostats().direct_coalesced.get().0, 1);
    (0..10).for_each(|_| bed.pool.sync().expect("synced"));
    round();
    assert_eq!(bed.pool.iostats().direct_coalesced.get().0, 2, "not for ever");
    (0..8).for_each(|index| check(&bed, &node, BLOCK + index * 16 * K, 16 * K, PLAIN));
}

/// If this fails, one thread with many short writes under way waits for each record, or an answer comes before the bytes are seen.
#[test]
fn short_writes_under_way_at_once_go_as_records() {
    let bed = Bed::threaded();
    let node = bed.file(b"f");
    writes(&bed, &node, 0, BLOCK, 2, PLAIN);
    bed.pool.sync().expect("synced");
    let answers = std::sync::Arc::new(exec::Mutex::new(0));
    let part = 16 * K;
    let count = 32 * BLOCK / part;
    for index in 0..count {
        let data = Abd::from_slice(&pattern(part as usize, 2 * BLOCK + index * part + part));
        let write = WriteData { offset: 2 * BLOCK + index * part, data, may_keep: true, kill_suid: false, synchronous: false };
        let answers = answers.clone();
        let then = move |result: Result<u64, ZplError>| {
            assert_eq!(result, Ok(16 * K));
            *answers.lock() += 1;
        };
        bed.zfs.write_then(&node, write, Access::DIRECT, Box::new(then));
    }
    bed.drive(|| *answers.lock() == count);
    (0..count).for_each(|index| check(&bed, &node, 2 * BLOCK + index * part, part, PLAIN));
    assert_eq!(bed.pool.iostats().direct_coalesced.get(), (32, 32 * BLOCK));
}
