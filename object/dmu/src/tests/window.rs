//! Direct reads below a record: what users lose when each part costs a device read of the whole, or when parts come from bytes that were replaced.

use super::direct::pool_of;
use super::model::Random;
use crate::testing::{MemBlockIo, TestPool};
use crate::{DmuError, Dnode, Tx};
use abd::Abd;
use exec::{Completion, Exec, Executor, Inline, completion};
use std::collections::VecDeque;
use std::sync::Arc;

const BLOCK: usize = 16 << 10;
const PART: usize = 512;
const PARTS: usize = BLOCK / PART;

/// A file of so many blocks on a device that has nothing in memory, and its bytes.
fn file(exec: Exec, seed: u64, blocks: usize) -> (TestPool, Arc<Dnode>, Vec<u8>) {
    let (pool, dnode) = pool_of(MemBlockIo::new(exec), BLOCK);
    let mut random = Random(seed);
    let bytes: Vec<u8> = (0..blocks * BLOCK).map(|_| random.next() as u8 | 1).collect();
    dnode.write_direct(0, &bytes, &pool.txgs.assign(0).expect("assign")).expect("direct");
    pool.sync().expect("sync");
    pool.io.set_caching(false);
    (pool, dnode, bytes)
}

fn inline(seed: u64) -> Exec {
    Arc::new(Inline::new(seed))
}

/// Device reads that direct reads cost meanwhile.
fn device_reads(pool: &TestPool, meanwhile: impl FnOnce()) -> usize {
    let before = pool.io.iostats.direct_read.get().0;
    meanwhile();
    (pool.io.iostats.direct_read.get().0 - before) as usize
}

fn check_part(dnode: &Dnode, expected: &[u8], at: usize) {
    let mut out = vec![0; PART];
    dnode.read_direct_into(at as u64, &mut out).expect("read");
    assert!(out == expected[at..at + PART], "other bytes at {at}");
}

fn start(dnode: &Dnode, at: usize) -> Completion<Result<Abd, DmuError>> {
    let (done, wait) = completion();
    dnode.read_direct_then(at as u64, PART, move |result| done.complete(result));
    wait
}

/// If this fails, 32K reads of 1M records read 32 times what they ask for, or leave in memory what nobody wants any more.
#[test]
fn a_sequential_reader_of_parts_reads_each_record_once() {
    let blocks = 32;
    let (pool, dnode, expected) = file(inline(21), 21, blocks);
    let reads = device_reads(&pool, || (0..expected.len()).step_by(PART).for_each(|at| check_part(&dnode, &expected, at)));
    assert_eq!(reads, blocks + 1, "the first record twice: its first part says nothing of those that follow");
    let shared = (blocks * PARTS - reads) as u64;
    assert_eq!(pool.objset.shared_direct_reads(), (shared, shared * PART as u64));
    assert_eq!(pool.io.iostats.direct_shared.get(), (shared, shared * PART as u64));
    assert!(dnode.window_bytes() <= BLOCK as u64, "a record that was taken whole is not kept");
}

/// If this fails, readers with many requests under way, which come a little out of order, read records several times.
#[test]
fn many_requests_at_a_time_share_each_record() {
    let blocks = 64;
    for depth in [1, 4, 32, 128] {
        for shuffle in [0, 3, 7] {
            let (pool, dnode, expected) = file(inline(depth as u64), shuffle as u64, blocks);
            let reads = device_reads(&pool, || {
                let mut under_way = VecDeque::new();
                for part in (0..blocks * PARTS).map(|part| part ^ shuffle).map(Some).chain((1..depth).map(|_| None)) {
                    under_way.extend(part.map(|part| (part * PART, start(&dnode, part * PART))));
                    if part.is_some() && under_way.len() < depth {
                        continue;
                    }
                    let (at, wait): (usize, Completion<Result<Abd, DmuError>>) = under_way.pop_front().expect("one under way");
                    assert!(wait.wait(pool.io.exec_of()).expect("read").to_vec() == expected[at..at + PART], "other bytes at {at}");
                }
            });
            assert!(reads * 10 <= blocks * 11, "{depth} at a time, shuffled by {shuffle}: {reads} reads of {blocks} records");
        }
    }
}

/// If this fails, readers at random fill memory with records of which they want one part.
#[test]
fn readers_at_random_keep_nothing() {
    let (pool, dnode, expected) = file(inline(23), 23, 128);
    let parts = 128 * PARTS;
    let reads = device_reads(&pool, || (0..1000).for_each(|at| check_part(&dnode, &expected, at * 1009 % parts * PART)));
    assert_eq!((reads, dnode.window_bytes()), (1000, 0));
}

/// A file of eight blocks whose third is kept.
fn kept(exec: Exec) -> (TestPool, Arc<Dnode>, Vec<u8>) {
    let (pool, dnode, expected) = file(exec, 24, 8);
    check_part(&dnode, &expected, 2 * BLOCK);
    check_part(&dnode, &expected, 2 * BLOCK + PART);
    assert_eq!(dnode.window_bytes(), BLOCK as u64);
    (pool, dnode, expected)
}

type Change = fn(&TestPool, &Dnode, &Tx) -> Result<(), DmuError>;

/// If this fails, what was replaced takes memory until its time is over; or every write anywhere in a file makes its readers read again.
#[test]
fn what_is_kept_goes_with_each_change_of_its_block() {
    const AT: u64 = 2 * BLOCK as u64;
    let changes: [(Change, bool); 9] = [
        (|_, dnode, tx| dnode.write(AT + 100, &[1; 10], tx), true),
        (|_, dnode, tx| dnode.write_direct(AT, &[1; BLOCK], tx), true),
        (|_, dnode, tx| dnode.free_range(AT, BLOCK as u64, tx), true),
        (|_, dnode, tx| dnode.free_range(AT + 5000, 10, tx), true),
        (|_, dnode, tx| dnode.free_range(100, u64::MAX, tx), true),
        (|pool, dnode, tx| pool.objset.free_object(dnode.object(), tx), true),
        (|_, dnode, tx| dnode.write(AT - 10, &[1; 10], tx), false),
        (|_, dnode, tx| dnode.write_direct(AT + BLOCK as u64, &[1; BLOCK], tx), false),
        (|_, dnode, tx| dnode.free_range(AT + BLOCK as u64, u64::MAX, tx), false),
    ];
    for (number, (change, goes)) in changes.into_iter().enumerate() {
        let (pool, dnode, _) = kept(inline(25));
        change(&pool, &dnode, &pool.txgs.assign(0).expect("assign")).expect("changed");
        assert_eq!(dnode.window_bytes(), if goes { 0 } else { BLOCK as u64 }, "change {number}");
    }
}

/// If this fails, the last record that a reader wanted a part of stays in memory for good.
#[test]
fn what_is_kept_goes_with_time() {
    let inline = Arc::new(Inline::new(26));
    let (pool, dnode, expected) = kept(inline.clone());
    inline.run_ready();
    assert_eq!(device_reads(&pool, || check_part(&dnode, &expected, 2 * BLOCK + 2 * PART)), 0);
    inline.sleep_ns(2_000_000_000);
    inline.run_ready();
    assert_eq!(dnode.window_bytes(), 0);
    assert_eq!(device_reads(&pool, || check_part(&dnode, &expected, 2 * BLOCK + 3 * PART)), 1);
    assert_eq!(dnode.window_bytes(), BLOCK as u64, "the reader still goes forward");
    inline.sleep_ns(2_000_000_000);
    inline.run_ready();
    assert_eq!(dnode.window_bytes(), 0, "it is looked after again");
}

/// If this fails, a record whose read failed is given to its readers, or they are not told.
#[test]
fn what_could_not_be_read_is_not_kept() {
    let (pool, dnode, expected) = file(inline(27), 27, 4);
    check_part(&dnode, &expected, 0);
    let damaged = pool.io.live_blocks().into_iter().filter_map(|offset| pool.io.block(offset));
    let damaged = damaged.filter(|block| block.data.len() == BLOCK).find(|block| block.data.to_vec() == expected[..BLOCK]);
    pool.io.corrupt(&damaged.expect("the first block").bp);
    let waits = [start(&dnode, PART), start(&dnode, 2 * PART)];
    assert!(waits.into_iter().all(|wait| wait.wait(pool.io.exec_of()).is_err()));
    assert_eq!(dnode.window_bytes(), 0);
}

/// Changes something near a place, in one of the ways that there are.
fn change(pool: &TestPool, dnode: &Dnode, random: &mut Random, expected: &mut [u8], near: usize) {
    let tx = pool.txgs.assign(0).expect("assign");
    let length = expected.len();
    let start = (near + length - BLOCK / 2 + random.below(BLOCK as u64) as usize) % length;
    let end = (start + 1 + random.below(2000) as usize).min(length);
    match random.below(16) {
        0..6 => {
            let bytes = random.bytes(end - start);
            dnode.write(start as u64, &bytes, &tx).expect("buffered");
            expected[start..end].copy_from_slice(&bytes);
        }
        6..12 => {
            let (start, bytes) = (start / BLOCK * BLOCK, random.bytes(BLOCK));
            dnode.write_direct(start as u64, &bytes, &tx).expect("direct");
            expected[start..start + BLOCK].copy_from_slice(&bytes);
        }
        12..15 => {
            dnode.free_range(start as u64, (end - start) as u64, &tx).expect("punched");
            expected[start..end].fill(0);
        }
        _ => {
            dnode.free_range(start as u64, u64::MAX, &tx).expect("truncated");
            expected[start..].fill(0);
        }
    }
}

/// If this fails, a reader sees bytes that somebody replaced before: for random programs of sequential readers, writers of both kinds, punches,
/// truncations and syncs, also with reads under way.
#[test]
fn readers_of_parts_see_every_change_at_once() {
    let mut shared = 0;
    for seed in 0..50 {
        let (pool, dnode, mut expected) = file(inline(seed), seed, 8);
        let mut random = Random(seed + 1000);
        let mut at = 0;
        for _ in 0..600 {
            match random.below(24) {
                0 => change(&pool, &dnode, &mut random, &mut expected, at),
                1 => {
                    let (old, wait) = (expected[at..at + PART].to_vec(), start(&dnode, at));
                    change(&pool, &dnode, &mut random, &mut expected, at);
                    let seen = wait.wait(pool.io.exec_of()).expect("read").to_vec();
                    assert!(seen == old || seen == expected[at..at + PART], "seed {seed}: neither old nor new bytes at {at}");
                }
                2 if random.below(4) == 0 => pool.sync().expect("sync"),
                _ => {
                    check_part(&dnode, &expected, at);
                    at = (at + PART) % expected.len();
                }
            }
        }
        shared += pool.objset.shared_direct_reads().0;
        pool.sync().expect("sync");
        assert_eq!(pool.check(), Ok(()), "seed {seed}");
    }
    assert!(shared > 1000, "the programs share device reads: {shared}");
}
