//! CPU seconds per GiB of the object layer alone: buffered writes, sync and reads over a store that does nothing.
//!
//! `cargo run --release -p dmu --features testing --example dmu_micro [MiB]`. The store keeps blocks in a sharded
//! map, as a cache would, and neither checksums nor copies; what remains is the one copy between user and buffer, and
//! this crate. The first line is that copy alone.

use abd::Abd;
use dmu::{BlockError, BlockIo, BlockLedger, BlockWrite, NewObject, Objset, ObjsetEnv, ObjsetProps, SyncError, TxgConfig};
use dmu::{TxgManager, TxgSync, WriteDone};
use exec::{Exec, Mutex, Pool};
use ondisk::{BlockPtr, Bookmark, Dva, ObjectType, ObjsetId, ObjsetType, Txg, VdevId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;

struct NullIo {
    exec: Exec,
    shards: Vec<Mutex<HashMap<u64, Abd>>>,
    next: AtomicU64,
}

impl NullIo {
    fn shard(&self, offset: u64) -> &Mutex<HashMap<u64, Abd>> {
        &self.shards[(offset >> 9) as usize % SHARDS]
    }
}

impl BlockIo for NullIo {
    fn exec(&self) -> &Exec {
        &self.exec
    }
    fn read(&self, bp: &BlockPtr, _bookmark: &Bookmark) -> Result<Abd, BlockError> {
        self.cached(bp).ok_or(BlockError::Io)
    }
    fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        let offset = bp.dva(0).offset;
        self.shard(offset).lock().get(&offset).cloned()
    }
    fn prefetch(&self, _bp: &BlockPtr, _bookmark: &Bookmark) {}
    fn write(&self, write: BlockWrite, done: WriteDone) {
        let offset = self.next.fetch_add(512, Ordering::Relaxed);
        let mut bp = BlockPtr::HOLE;
        let asize = write.data.len().next_multiple_of(512) as u64;
        bp.set_dva(0, Dva { vdev: VdevId(0), offset, asize, gang: false });
        bp.set_lsize(write.data.len());
        bp.set_psize(write.data.len());
        bp.set_object_type(write.object_type);
        bp.set_level(write.level);
        bp.set_birth(write.txg, write.txg);
        self.shard(offset).lock().insert(offset, write.data);
        done(Ok(bp));
    }
    fn free(&self, _txg: Txg, _bp: &BlockPtr) {}
    fn dsize(&self, bp: &BlockPtr) -> u64 {
        bp.asize()
    }
}

impl BlockLedger for NullIo {
    fn born(&self, _txg: Txg, _bp: &BlockPtr) {}
    fn kill(&self, _txg: Txg, bp: &BlockPtr) {
        let offset = bp.dva(0).offset;
        self.shard(offset).lock().remove(&offset);
    }
}

struct SyncOne(Arc<Objset>);
impl TxgSync for SyncOne {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        self.0.sync(txg)?;
        Ok(())
    }
}

/// CPU seconds of the process so far, by the scheduler's account of each thread.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat")).ok();
    let spent = tasks.filter_map(read).filter_map(|line| line.split(' ').next()?.parse::<f64>().ok());
    spent.sum::<f64>() / 1e9
}

fn measure(exec: &Exec, name: &str, bytes: u64, work: impl FnOnce()) {
    let (cpu, wall) = (cpu_seconds(), exec.now_ns());
    work();
    let gib = bytes as f64 / (1u64 << 30) as f64;
    let (cpu, wall) = (cpu_seconds() - cpu, (exec.now_ns() - wall) as f64 / 1e9);
    println!("{name:44} {:7.3} CPU s/GiB {:7.2} GiB/s", cpu / gib, gib / wall);
}

fn main() {
    let mib: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1024);
    let bytes = mib << 20;
    let exec: Exec = Arc::new(Pool::new(2));
    // As the cache of a pool would: memory is recycled instead of given back.
    abd::set_cache_bytes_max(8 << 30);
    let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
    let io = Arc::new(NullIo { exec: exec.clone(), shards, next: AtomicU64::new(1 << 20) });
    let config = TxgConfig { dirty_data_max: 4 << 30, ..TxgConfig::default() };
    let txgs = TxgManager::new(exec.clone(), Txg(3), config);
    let env = ObjsetEnv { io: io.clone(), ledger: Some(io), id: ObjsetId(54) };
    let Ok(tx) = txgs.assign(0) else { return };
    let Ok(objset) = Objset::create(env, ObjsetType::ZFS, ObjsetProps::default(), &tx) else { return };
    txgs.start(Arc::new(SyncOne(objset.clone())));
    let new = |block_size| NewObject { block_size, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let objects: Vec<_> = [128 << 10, 16 << 10].into_iter().filter_map(|size| objset.allocate_object(new(size), &tx).ok()).collect();
    drop(tx);

    let source: Vec<u8> = (0..1 << 20).map(|at: u64| (at * 13 % 251) as u8).collect();
    let mut target = vec![0u8; 1 << 20];
    measure(&exec, "memcpy, 1 MiB", bytes, || {
        for _ in 0..mib {
            target.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut target);
        }
    });
    for (dnode, record) in objects.iter().zip(["128K", "16K"]) {
        for chunk in [1usize << 20, 16 << 10] {
            for round in ["new", "over"] {
                measure(&exec, &format!("write {round}, {record} records, {} KiB chunks, sync", chunk >> 10), bytes, || {
                    for offset in (0..bytes).step_by(chunk) {
                        let tx = txgs.assign(chunk as u64).expect("assign");
                        dnode.write(offset, &source[..chunk], &tx).expect("write");
                    }
                    txgs.wait_synced(txgs.open_txg()).expect("sync");
                });
            }
            measure(&exec, &format!("read sequentially, {record} records, {} KiB", chunk >> 10), bytes, || {
                for offset in (0..bytes).step_by(chunk) {
                    dnode.read(offset, &mut target[..chunk]).expect("read");
                }
            });
        }
        measure(&exec, &format!("read randomly, {record} records, 16 KiB"), bytes, || {
            let blocks = bytes >> 14;
            for step in 0..blocks {
                dnode.read((step * 2_654_435_761 % blocks) << 14, &mut target[..16 << 10]).expect("read");
            }
        });
        measure(&exec, &format!("read without a copy, {record} records, 1 MiB"), bytes, || {
            for offset in (0..bytes).step_by(1 << 20) {
                std::hint::black_box(dnode.read_abd(offset, 1 << 20).expect("read"));
            }
        });
        let page = Abd::from_slice(&source);
        measure(&exec, &format!("write without a copy, {record} records, sync"), bytes, || {
            for offset in (0..bytes).step_by(1 << 20) {
                let tx = txgs.assign(1 << 20).expect("assign");
                dnode.write_abd(offset, page.clone(), &tx).expect("write");
            }
            txgs.wait_synced(txgs.open_txg()).expect("sync");
        });
    }
    small_objects(&txgs, &objset);
    let _ = txgs.stop();
}

/// Objects that have a bonus and no data: create, change and look up.
fn small_objects(txgs: &Arc<TxgManager>, objset: &Arc<Objset>) {
    const OBJECTS: u64 = 200_000;
    let new = NewObject { bonus_type: ObjectType::SA, bonus_len: 168, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let mut numbers = Vec::new();
    let start = cpu_seconds();
    for _ in 0..OBJECTS {
        let tx = txgs.assign(0).expect("assign");
        let dnode = objset.allocate_object(new, &tx).expect("allocate");
        dnode.set_bonus(&[7; 168], &tx).expect("set_bonus");
        numbers.push(dnode.object());
    }
    let created = cpu_seconds();
    txgs.wait_synced(txgs.open_txg()).expect("sync");
    let synced = cpu_seconds();
    for _ in 0..2 {
        numbers.iter().for_each(|&object| drop(objset.hold(object).expect("hold").bonus()));
    }
    let per = |seconds: f64| seconds * 1e6 / OBJECTS as f64;
    let held = per(cpu_seconds() - synced) / 2.0;
    println!("small objects: create {:.2}, sync {:.2}, hold {held:.2} CPU µs each", per(created - start), per(synced - created));
}
