//! Many threads on shared and own objects while txgs sync in the background.

use super::model::Random;
use crate::testing::{MemBlockIo, TestPool};
use crate::{Dnode, NewObject, ObjsetProps, TxgConfig};
use exec::{Exec, Lockstep};
use ondisk::{ObjectType, ObjsetType};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const RECORD: usize = 512;
const RECORDS: u64 = 256;
const WRITERS: u64 = 3;

/// A record says where it belongs and how often it was written, all over.
fn record(place: u64, version: u64) -> Vec<u8> {
    [place.to_le_bytes(), version.to_le_bytes()].concat().repeat(RECORD / 16)
}

/// The version of a record, when it is whole.
fn version(place: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    let found = u64::from_le_bytes(*bytes[8..].first_chunk()?);
    (bytes == record(place, found)).then_some(found)
}

fn write_records(pool: &TestPool, dnode: &Arc<Dnode>, versions: &[AtomicU64], writer: u64) {
    let mut random = Random(writer);
    for step in 0..1500 {
        let place = random.below(RECORDS / WRITERS) * WRITERS + writer;
        let next = versions[place as usize].load(Ordering::SeqCst) + 1;
        let tx = pool.txgs.assign(RECORD as u64).expect("assign");
        dnode.write(place * RECORD as u64, &record(place, next), &tx).expect("write");
        drop(tx);
        versions[place as usize].store(next, Ordering::SeqCst);
        if step % 50 == writer {
            pool.txgs.kick();
        }
    }
}

fn read_records(dnode: &Arc<Dnode>, versions: &[AtomicU64], stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut reads = 0;
    // On a busy machine the writers may have ended before this thread begins: what they left is read then.
    while reads == 0 || !stop.load(Ordering::SeqCst) {
        let place = random.below(RECORDS / WRITERS * WRITERS);
        let least = versions[place as usize].load(Ordering::SeqCst);
        let mut out = vec![0; RECORD];
        dnode.read(place * RECORD as u64, &mut out).expect("read");
        let seen = version(place, &out);
        assert!(seen.is_some_and(|seen| seen >= least), "record {place}: {seen:?}, but {least} was written before");
        reads += 1;
    }
    reads
}

fn create_and_free(pool: &TestPool, seed: u64) {
    let mut random = Random(seed);
    let mut own: Vec<(Arc<Dnode>, Vec<u8>)> = Vec::new();
    for _ in 0..400 {
        let tx = pool.txgs.assign(1024).expect("assign");
        if own.len() > 20 {
            let (dnode, bytes) = own.swap_remove(random.below(20) as usize);
            let mut out = vec![0; bytes.len()];
            dnode.read(0, &mut out).expect("read");
            assert_eq!(out, bytes);
            pool.objset.free_object(dnode.object(), &tx).expect("free");
            continue;
        }
        let new = NewObject { slots: 1 + random.below(2) as u8, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let dnode = pool.objset.allocate_object(new, &tx).expect("allocate");
        let length = 100 + random.below(1000) as usize;
        let bytes = random.bytes(length);
        dnode.write(0, &bytes, &tx).expect("write");
        own.push((dnode, bytes));
    }
}

/// If this fails, concurrent readers see torn, old or foreign bytes, or concurrent syncs corrupt the tree.
#[test]
fn readers_and_writers_share_an_object_while_it_syncs() {
    for block_size in [512, 4096, 16384] {
        let io = MemBlockIo::threaded(3);
        let pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps::default()).expect("create");
        let new = NewObject { block_size, indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
        let versions: Vec<AtomicU64> = (0..RECORDS).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|seed| {
                    scope.spawn({
                        let (dnode, versions, stop) = (&dnode, &versions, &stop);
                        move || read_records(dnode, versions, stop, seed)
                    })
                })
                .collect();
            let mut writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn({
                        let (pool, dnode, versions) = (&pool, &dnode, &versions);
                        move || write_records(pool, dnode, versions, writer)
                    })
                })
                .collect();
            writers.extend((0..2).map(|seed| {
                scope.spawn({
                    let pool = &pool;
                    move || create_and_free(pool, 100 + seed)
                })
            }));
            writers.into_iter().for_each(|writer| writer.join().expect("a writer failed"));
            stop.store(true, Ordering::SeqCst);
            assert!(readers.into_iter().map(|reader| reader.join().expect("a reader failed")).sum::<u64>() > 0);
        });
        let pool = pool.reopen().expect("reopen");
        assert_eq!(pool.check(), Ok(()));
        let dnode = pool.objset.hold(dnode.object()).expect("hold");
        for (place, wanted) in versions.iter().enumerate().take((RECORDS / WRITERS * WRITERS) as usize) {
            let mut out = vec![0; RECORD];
            dnode.read((place * RECORD) as u64, &mut out).expect("read");
            assert_eq!(version(place as u64, &out), Some(wanted.load(Ordering::SeqCst)));
        }
        pool.txgs.stop().expect("stop");
    }
}

/// A few operations of each kind, on one object whose blocks hold several records.
fn lockstep_program(exec: &Exec, seed: u64) {
    let config = TxgConfig { timeout_ns: 400_000, dirty_data_max: 40_000, delay_scale_ns: 100, ..TxgConfig::default() };
    let pool = TestPool::create_with(MemBlockIo::new(exec.clone()), ObjsetType::ZFS, ObjsetProps::default(), config).expect("create");
    let new = NewObject { block_size: 2048, indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = pool.objset.allocate_object(new, &pool.txgs.assign(0).expect("assign")).expect("allocate");
    let versions: Arc<Vec<AtomicU64>> = Arc::new((0..RECORDS).map(|_| AtomicU64::new(0)).collect());
    let pool = Arc::new(pool);
    let mut operations = Vec::new();
    for writer in 0..WRITERS {
        let (pool, dnode, versions) = (pool.clone(), dnode.clone(), versions.clone());
        let write = move || {
            let mut random = Random(seed * 10 + writer);
            for _ in 0..25 {
                let place = random.below(20) * WRITERS + writer;
                let next = versions[place as usize].load(Ordering::SeqCst) + 1;
                let tx = pool.txgs.assign(RECORD as u64).expect("assign");
                dnode.write(place * RECORD as u64, &record(place, next), &tx).expect("write");
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
            for _ in 0..40 {
                let place = random.below(20 * WRITERS);
                let least = versions[place as usize].load(Ordering::SeqCst);
                let mut out = vec![0; RECORD];
                dnode.read(place * RECORD as u64, &mut out).expect("read");
                let seen = version(place, &out);
                assert!(seen.is_some_and(|seen| seen >= least), "record {place}: {seen:?}, but {least} was written before");
            }
        };
        operations.push(exec.spawn_operation("reader", Box::new(read)));
    }
    for creator in 0..2 {
        let pool = pool.clone();
        let create = move || {
            for object in 0..10u8 {
                let tx = pool.txgs.assign(0).expect("assign");
                let dnode = pool.objset.allocate_object(NewObject::new(ObjectType::PLAIN_FILE_CONTENTS), &tx).expect("allocate");
                dnode.write(0, &[creator * 10 + object + 1; 600], &tx).expect("write");
                drop(tx);
                let held = pool.objset.hold(dnode.object()).expect("hold");
                assert!(Arc::ptr_eq(&held, &dnode), "an object is in memory once");
                assert_eq!(held.read_abd(0, 600).expect("read").to_vec(), [creator * 10 + object + 1; 600]);
                if object % 3 == 0 {
                    let tx = pool.txgs.assign(0).expect("assign");
                    pool.objset.free_object(dnode.object(), &tx).expect("free");
                }
            }
        };
        operations.push(exec.spawn_operation("creator", Box::new(create)));
    }
    operations.into_iter().for_each(exec::OperationHandle::join);
    pool.txgs.stop().expect("stop");
    assert_eq!(pool.check(), Ok(()));
    assert_eq!(pool.objset.object_count(), 1 + 2 * 6);
    for place in 0..20 * WRITERS {
        let mut out = vec![0; RECORD];
        dnode.read(place * RECORD as u64, &mut out).expect("read");
        assert_eq!(version(place, &out), Some(versions[place as usize].load(Ordering::SeqCst)));
    }
}

/// If this fails, some interleaving of readers, writers, creators and the sync corrupts data or deadlocks: the seed shows it.
#[test]
fn interleavings_of_operations_and_the_sync_are_harmless() {
    for seed in 0..25 {
        Lockstep::run(seed, |exec| lockstep_program(exec, seed));
    }
}
