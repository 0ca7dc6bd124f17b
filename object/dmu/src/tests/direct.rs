//! Direct I/O: what users lose when a write fails half-way, when several read one block, and when everybody does everything at
//! the same time.

use super::model::Random;
use crate::testing::{MemBlockIo, TestPool};
use crate::{BlockError, DmuError, Dnode, NewObject, ObjsetProps, TxgConfig};
use abd::Abd;
use exec::{Exec, Lockstep, Mutex, completion};
use ondisk::{BlockId, Compression, ObjectType, ObjsetType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: usize = 4096;

fn pool(io: Arc<MemBlockIo>) -> (TestPool, Arc<Dnode>) {
    pool_of(io, BLOCK)
}

/// A pool with a file of blocks of this size.
pub(super) fn pool_of(io: Arc<MemBlockIo>, block_size: usize) -> (TestPool, Arc<Dnode>) {
    let pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    let new = NewObject { block_size, indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    (pool, dnode)
}

fn bytes(blocks: usize, salt: u8) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at / 7) as u8 ^ salt ^ (at >> 12) as u8 | 1).collect()
}

fn read(dnode: &Dnode, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    dnode.read_direct_into(0, &mut out).expect("read");
    let mut buffered = vec![0; length];
    dnode.read(0, &mut buffered).expect("read");
    assert!(out == buffered, "direct and buffered reads agree");
    out
}

/// If this fails, a direct write that fails loses an acknowledged one, shows half of itself, or leaks space: for a failure of
/// every operation, over every kind of record that was there before.
#[test]
fn a_failure_at_every_operation_leaves_what_was_there() {
    for before in 0..5 {
        for count in 1.. {
            let (pool, dnode) = pool(MemBlockIo::inline(3));
            let tx = pool.txgs.assign(0).expect("assign");
            dnode.write(0, &bytes(6, 1), &tx).expect("write");
            drop(tx);
            pool.sync().expect("sync");
            let tx = pool.txgs.assign(0).expect("assign");
            let expected = match before {
                0 => bytes(6, 1),
                1 => {
                    dnode.write(0, &bytes(6, 2), &tx).expect("buffered");
                    bytes(6, 2)
                }
                2 => {
                    dnode.write_direct(0, &bytes(6, 3), &tx).expect("direct");
                    bytes(6, 3)
                }
                3 => {
                    dnode.write_direct(0, &bytes(6, 3), &tx).expect("direct");
                    dnode.modify_block(BlockId(2), &tx, |block| block[9] = 0).expect("buffered over direct");
                    let mut expected = bytes(6, 3);
                    expected[2 * BLOCK + 9] = 0;
                    expected
                }
                _ => {
                    dnode.write_direct(0, &bytes(6, 3), &tx).expect("direct");
                    dnode.free_range(BLOCK as u64 / 2, 3 * BLOCK as u64, &tx).expect("punched");
                    let mut expected = bytes(6, 3);
                    expected[BLOCK / 2..BLOCK / 2 + 3 * BLOCK].fill(0);
                    expected
                }
            };
            pool.io.fail_after(count, false);
            let result = dnode.write_direct(BLOCK as u64, &bytes(4, 7), &tx);
            pool.io.heal();
            drop(tx);
            let mut after = expected;
            match result {
                Ok(()) => after[BLOCK..5 * BLOCK].copy_from_slice(&bytes(4, 7)),
                Err(error) => assert_eq!(error, DmuError::from(BlockError::Io)),
            }
            assert!(read(&dnode, 6 * BLOCK) == after, "record {before}, operation {count}");
            pool.sync().expect("sync");
            assert_eq!(pool.check(), Ok(()), "record {before}, operation {count}");
            assert!(read(&dnode, 6 * BLOCK) == after);
            if result.is_ok() {
                assert!(count > 4, "the write has that many operations");
                break;
            }
        }
    }
}

/// If this fails, a block that was directly written is lost, leaked or freed twice when its object, its file's tail or its
/// sync goes away before it is synced.
#[test]
fn unsynced_blocks_are_given_back_or_kept_as_their_owner_goes() {
    let (pool, dnode) = pool(MemBlockIo::inline(4));
    let assign = || pool.txgs.assign(0).expect("assign");
    dnode.write_direct(0, &bytes(8, 1), &assign()).expect("direct");
    dnode.write_direct(0, &bytes(4, 2), &assign()).expect("over itself");
    dnode.free_range(6 * BLOCK as u64, u64::MAX, &assign()).expect("truncate");
    let mut expected = bytes(8, 1);
    expected.truncate(6 * BLOCK);
    expected[..4 * BLOCK].copy_from_slice(&bytes(4, 2));
    // The sync fails, and is done again: the blocks are on disk already and must be there for the second try.
    let txg = pool.txgs.open_txg();
    pool.io.fail_after(1, false);
    assert!(pool.sync().is_err());
    pool.io.heal();
    assert!(read(&dnode, 6 * BLOCK) == expected);
    pool.objset.sync(txg).expect("the second try works");
    assert_eq!(pool.check(), Ok(()));
    assert!(read(&dnode, 6 * BLOCK) == expected);

    let (pool, dnode) = self::pool(MemBlockIo::inline(5));
    let tx = pool.txgs.assign(0).expect("assign");
    dnode.write_direct(0, &bytes(3, 1), &tx).expect("direct");
    pool.objset.free_object(dnode.object(), &tx).expect("freed");
    assert_eq!(dnode.write_direct(0, &bytes(1, 1), &tx), Err(DmuError::NoSuchObject));
    drop(tx);
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, a block that was complete in memory is lost or leaked when a device does not take it, stays dirty although it is on the devices, or
/// counts as a direct write that somebody asked for.
#[test]
fn a_dirty_block_that_is_sent_out_is_on_the_devices_or_as_dirty_as_before() {
    for count in 1.. {
        let (pool, dnode) = pool(MemBlockIo::inline(8));
        let tx = pool.txgs.assign(0).expect("assign");
        dnode.write(0, &bytes(2, 1), &tx).expect("buffered");
        let asked = pool.io.iostats.direct_write.get();
        let send = |offset: u64, tx| {
            let (done, wait) = completion();
            dnode.write_out_then(offset, tx, move |tx, result| {
                drop(tx);
                done.complete(result);
            });
            wait.wait(pool.io.as_ref().exec_of())
        };
        pool.io.fail_after(count, false);
        let result = send(BLOCK as u64, tx);
        pool.io.heal();
        let is_out = |offset| dnode.unsynced_direct_block(offset).is_some();
        assert_eq!((is_out(0), is_out(BLOCK as u64)), (false, result.is_ok()), "operation {count}");
        assert_eq!(pool.io.iostats.direct_write.get(), asked);
        assert_eq!(pool.io.iostats.direct_coalesced.get(), (1, BLOCK as u64));
        assert!(read(&dnode, 2 * BLOCK) == bytes(2, 1), "operation {count}");
        pool.sync().expect("sync");
        assert_eq!(pool.check(), Ok(()), "operation {count}");
        assert!(read(&dnode, 2 * BLOCK) == bytes(2, 1));
        let clean = send(0, pool.txgs.assign(0).expect("assign"));
        assert_eq!(clean, Err(DmuError::NotSupported), "it is not in memory alone any more");
        if result.is_ok() {
            assert!(count > 1, "the write has an operation");
            break;
        }
        assert_eq!(result, Err(DmuError::from(BlockError::Io)));
    }
}

/// If this fails, misaligned requests write a part of a block where a whole one belongs.
#[test]
fn only_whole_blocks_of_data_are_written_directly() {
    let (pool, dnode) = pool(MemBlockIo::inline(6));
    let tx = pool.txgs.assign(0).expect("assign");
    for (offset, length) in [(0, 100), (512, BLOCK), (0, BLOCK + 512), (u64::MAX - 4095, 2 * BLOCK), (0, 0)] {
        assert_eq!(dnode.write_direct(offset, &vec![1; length], &tx), Err(DmuError::Invalid), "{offset} {length}");
    }
    let zap = pool.objset.allocate_object(NewObject::new(ObjectType::ZAP_OTHER), &tx).expect("allocate");
    assert_eq!(zap.write_direct(0, &[1; 512], &tx), Err(DmuError::NotSupported));
    let small = NewObject { block_size: 1536, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let small = pool.objset.allocate_object(small, &tx).expect("allocate");
    small.write_direct(0, &[5; 1536], &tx).expect("the only block of a small file");
    assert_eq!(small.write_direct(1536, &[5; 1536], &tx), Err(DmuError::Invalid));
    small.set_block_size(4096, &tx).expect("it grows");
    let mut out = vec![9; 4096];
    small.read(0, &mut out).expect("read");
    assert!(out[..1536] == [5; 1536] && out[1536..].iter().all(|&byte| byte == 0));
    drop(tx);
    pool.sync().expect("sync");
    assert_eq!(pool.check(), Ok(()));
}

/// If this fails, many small direct readers of one large record cost a device read each.
#[test]
fn readers_of_parts_of_one_block_share_a_device_read() {
    let (pool, dnode) = pool(MemBlockIo::inline(7));
    dnode.write_direct(0, &bytes(2, 3), &pool.txgs.assign(0).expect("assign")).expect("direct");
    pool.sync().expect("sync");
    let before = pool.io.operations();
    let direct_before = pool.io.iostats.direct_read.get();
    let mut waits = Vec::new();
    for part in 0..8 {
        let (done, wait) = completion();
        dnode.read_direct_then(part * 512, 512, move |result| done.complete(result));
        waits.push((part as usize * 512, wait));
    }
    let mut own = vec![0; 700];
    dnode.read_direct_into(100, &mut own).expect("one with memory of his own joins them");
    assert!(own == bytes(2, 3)[100..800]);
    for (at, wait) in waits {
        let data = wait.wait(pool.io.as_ref().exec_of()).expect("read");
        assert!(data.to_vec() == bytes(2, 3)[at..at + 512]);
    }
    assert_eq!(pool.io.operations() - before, 0, "what is in the store's memory needs none");
    assert_eq!(pool.io.iostats.direct_read.get(), direct_before);
    // The same from the device.
    pool.io.set_caching(false);
    let mut waits = Vec::new();
    for part in 0..8 {
        let (done, wait) = completion();
        dnode.read_direct_then(part * 512, 512, move |result| done.complete(result));
        waits.push((part as usize * 512, wait));
    }
    dnode.read_direct_into(100, &mut own).expect("one with memory of his own joins them");
    assert!(own == bytes(2, 3)[100..800]);
    for (at, wait) in waits {
        let data = wait.wait(pool.io.as_ref().exec_of()).expect("read");
        assert!(data.to_vec() == bytes(2, 3)[at..at + 512]);
    }
    assert_eq!(pool.io.operations() - before, 1);
    assert_eq!(pool.io.iostats.direct_read.get(), (direct_before.0 + 1, direct_before.1 + BLOCK as u64));
    // A failure reaches everybody.
    pool.io.fail_after(1, false);
    let (done, wait) = completion();
    dnode.read_direct_then(512, 512, move |result| done.complete(result));
    assert!(dnode.read_direct(0, 512).is_err());
    assert!(wait.wait(pool.io.as_ref().exec_of()).is_err());
}

/// If this fails, an asynchronous caller waits for devices, or never gets his transaction back.
#[test]
fn asynchronous_writes_bring_their_transaction_back() {
    let (pool, dnode) = pool(MemBlockIo::inline(8));
    let results = Arc::new(Mutex::new(Vec::new()));
    for block in 0..32u64 {
        let (results, own) = (results.clone(), dnode.clone());
        let tx = pool.txgs.assign(0).expect("assign");
        dnode.write_direct_then(block * BLOCK as u64, Abd::from_slice(&bytes(1, block as u8)), tx, move |tx, result| {
            own.set_bonus(&[], &tx).expect("what goes with the data");
            results.lock().push(result);
        });
    }
    assert!(results.lock().is_empty(), "32 writes are in flight from one thread");
    let tx = pool.txgs.assign(0).expect("assign");
    dnode.write_direct_then(1, Abd::from_slice(&[1]), tx, |_tx, result| assert_eq!(result, Err(DmuError::Invalid)));
    pool.sync().expect("a txg waits for them");
    assert_eq!(results.lock().iter().filter(|result| result.is_ok()).count(), 32);
    assert_eq!(pool.check(), Ok(()));
    for block in 0..32u64 {
        assert!(dnode.read_direct(block * BLOCK as u64, BLOCK).expect("read").to_vec() == bytes(1, block as u8));
    }
}

/// If this fails, the requests of one asynchronous writer are compressed one after the other, on one processor, however many there are; or every small
/// or uncompressed one pays for a switch of threads.
#[test]
fn what_takes_long_to_compress_is_left_to_jobs() {
    let large = 64 << 10;
    for (compression, length, is_left) in [
        (Compression::GZIP_6, large, true),
        (Compression::ZSTD, large, true),
        (Compression::GZIP_6, BLOCK, false),
        (Compression::LZ4, large, false),
        (Compression::OFF, large, false),
    ] {
        let props = ObjsetProps { compression, ..ObjsetProps::default() };
        let io = MemBlockIo::threaded(2);
        let pool = TestPool::create(io.clone(), ObjsetType::ZFS, props).expect("create");
        let new = NewObject { block_size: length, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
        let (done, wait) = completion();
        let tx = pool.txgs.assign(0).expect("assign");
        dnode.write_direct_then(0, Abd::from_slice(&bytes(length / BLOCK, 1)), tx, move |_tx, result| done.complete(result));
        wait.wait(io.exec_of()).expect("written");
        assert_eq!(!io.has_transformed_here(), is_left, "{compression:?}, {length} bytes");
        pool.sync().expect("sync");
        assert!(read(&dnode, length) == bytes(length / BLOCK, 1));
    }
}

const PLACES: u64 = 24;
const WRITERS: u64 = 3;

/// A block that says which place and version it is.
fn block_of(place: u64, version: u64) -> Vec<u8> {
    let mut block = vec![(version * 7 + place) as u8; BLOCK];
    block[..8].copy_from_slice(&version.to_le_bytes());
    block[8..16].copy_from_slice(&place.to_le_bytes());
    block
}

fn version_of(place: u64, block: &[u8]) -> Option<u64> {
    if block.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    let version = u64::from_le_bytes(*block.first_chunk()?);
    (block == block_of(place, version)).then_some(version)
}

/// Writers own places; readers see whole versions that never go back; the sync runs all the time.
fn storm(exec: &Exec, seed: u64, steps: usize, is_threaded: bool) {
    let config = TxgConfig { timeout_ns: 400_000, dirty_data_max: 100_000, delay_scale_ns: 100, ..TxgConfig::default() };
    let io = MemBlockIo::new(exec.clone());
    io.set_caching(false);
    // Three txgs take a millisecond here: threads of a busy machine stand still for longer.
    if is_threaded {
        io.allow_late_readers();
    }
    let pool = Arc::new(TestPool::create_with(io, ObjsetType::ZFS, ObjsetProps::default(), config).expect("create"));
    let new = NewObject { block_size: BLOCK, indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    let versions: Arc<Vec<AtomicU64>> = Arc::new((0..PLACES).map(|_| AtomicU64::new(0)).collect());
    let mut operations = Vec::new();
    for writer in 0..WRITERS {
        let (pool, dnode, versions) = (pool.clone(), dnode.clone(), versions.clone());
        let write = move || {
            let mut random = Random(seed * 10 + writer);
            for _ in 0..steps {
                let place = random.below(PLACES / WRITERS) * WRITERS + writer;
                let next = versions[place as usize].load(Ordering::SeqCst) + 1;
                let (offset, block) = (place * BLOCK as u64, block_of(place, next));
                let tx = pool.txgs.assign(BLOCK as u64).expect("assign");
                match random.below(3) {
                    0 => dnode.write(offset, &block, &tx).expect("buffered"),
                    _ => dnode.write_direct(offset, &block, &tx).expect("direct"),
                }
                drop(tx);
                versions[place as usize].store(next, Ordering::SeqCst);
            }
        };
        operations.push(exec.spawn_operation("writer", Box::new(write)));
    }
    for reader in 0..2 {
        let (dnode, versions) = (dnode.clone(), versions.clone());
        let read = move || {
            let mut random = Random(seed * 20 + reader);
            for _ in 0..steps * 2 {
                let place = random.below(PLACES);
                let least = versions[place as usize].load(Ordering::SeqCst);
                let mut out = vec![0; BLOCK];
                match random.below(3) {
                    0 => dnode.read(place * BLOCK as u64, &mut out).expect("read"),
                    1 => dnode.read_direct_into(place * BLOCK as u64, &mut out).expect("direct read"),
                    _ => {
                        // In two parts, which may be of two versions: only that they can be read is checked.
                        dnode.read_direct(place * BLOCK as u64 + 512, 512).expect("a part");
                        continue;
                    }
                }
                let seen = version_of(place, &out);
                assert!(seen.is_some_and(|seen| seen >= least), "place {place}: {seen:?}, but {least} was written before");
            }
        };
        operations.push(exec.spawn_operation("reader", Box::new(read)));
    }
    operations.into_iter().for_each(exec::OperationHandle::join);
    pool.txgs.stop().expect("stop");
    assert_eq!(pool.check(), Ok(()));
    for place in 0..PLACES {
        let mut out = vec![0; BLOCK];
        dnode.read_direct_into(place * BLOCK as u64, &mut out).expect("read");
        assert_eq!(version_of(place, &out), Some(versions[place as usize].load(Ordering::SeqCst)));
    }
}

/// If this fails, some interleaving of direct and buffered users and the sync corrupts data or deadlocks: the seed shows it.
#[test]
fn interleavings_of_direct_and_buffered_io_are_harmless() {
    for seed in 0..20 {
        Lockstep::run(seed, |exec| storm(exec, seed, 20, false));
    }
}

/// The same with real threads at full speed.
#[test]
fn threads_of_direct_and_buffered_io_are_harmless() {
    for seed in 0..4 {
        let exec: Exec = Arc::new(exec::Pool::new(3));
        storm(&exec, seed, 300, true);
    }
}
