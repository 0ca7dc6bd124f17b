//! Pools on memory devices for the tests of scans: file systems, snapshots and a clone that share blocks, and damage to them.
pub use crate::common::{checksum_errors, create_under as create, dataset, host, opened};
use device::MemDevice;
use dmu::{NewObject, Objset};
use dsl::TxSpace;
use exec::{Exec, Inline};
use ondisk::{BlockId, Level, ObjectId, ObjectType, ObjsetId};
use pool::{Damaged, ImportOptions, Pool, Runtime, ScanState, ScanStatus};
use std::sync::Arc;
use vdev::TopKind;

pub const DEVICE_BYTES: usize = 96 << 20;
pub const BLOCK_BYTES: usize = 64 << 10;
pub const BLOCKS: u64 = 40;

pub fn devices(count: usize) -> Vec<Arc<MemDevice>> {
    crate::common::devices_of(count, DEVICE_BYTES)
}

pub fn import(devices: &[Arc<MemDevice>]) -> Pool {
    let exec: Exec = Arc::new(Inline::new(8));
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    Pool::import(&exec, opened(devices), &options, &Runtime::new()).expect("imported")
}

/// Bytes that tell object set, object, block and age.
pub fn pattern(seed: u64, block: u64) -> Vec<u8> {
    crate::common::pattern_of(BLOCK_BYTES, seed, block)
}

pub fn write(pool: &Pool, name: &str, object: Option<ObjectId>, blocks: std::ops::Range<u64>, seed: u64) -> ObjectId {
    let handle = pool.dsl().hold(name).expect("held");
    let objset: Arc<Objset> = handle.objset().expect("objset");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let dnode = match object {
        Some(object) => objset.hold(object).expect("object"),
        None => {
            let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
            objset.allocate_object(new, &tx).expect("allocated")
        }
    };
    for block in blocks {
        dnode.write(block * BLOCK_BYTES as u64, &pattern(seed, block), &tx).expect("written");
    }
    dnode.object()
}

/// A pool with file systems, snapshots and a clone that share blocks.
pub fn filled(exec: &Exec, devices: &[Arc<MemDevice>], kind: TopKind) -> (Pool, ObjectId) {
    let pool = create(exec, devices, kind);
    pool.dsl().create_dataset("tank/fs", dataset()).expect("created");
    let object = write(&pool, "tank/fs", None, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    for age in 0..3u64 {
        pool.dsl().snapshot(&[format!("tank/fs@{age}")], Vec::new()).expect("snapshot");
        write(&pool, "tank/fs", Some(object), age..age + 2, 10 + age);
        pool.sync().expect("synced");
    }
    pool.dsl().clone_snapshot("tank/clone", "tank/fs@1", Vec::new()).expect("cloned");
    write(&pool, "tank/clone", Some(object), 30..33, 20);
    pool.sync().expect("synced");
    (pool, object)
}

pub fn scrub(pool: &Pool) -> ScanStatus {
    pool.scrub_start().expect("started");
    pool.scrub_drive().expect("driven");
    let status = pool.scan_status().expect("a scan");
    assert_eq!(status.state, ScanState::Finished);
    status
}

pub fn leaf_bytes_read(pool: &Pool) -> u64 {
    pool.status().leaves.iter().map(|leaf| leaf.counts.bytes[0]).sum()
}

/// A block of an object as damage of each of these datasets tells it.
pub fn damage_of(pool: &Pool, names: &[&str], object: ObjectId, block: u64) -> Vec<Damaged> {
    let objset = |name: &&str| ObjsetId(pool.dsl().hold(name).expect("held").object());
    let of = |objset| Damaged { objset, object, level: Level(0), block: BlockId(block) };
    let mut found: Vec<_> = names.iter().map(objset).map(of).collect();
    found.sort_unstable();
    found
}

/// Overwrites what looks like `needle` on the devices; gives how often it was found.
pub fn damage(devices: &[Arc<MemDevice>], needle: &[u8]) -> usize {
    let mut found = 0;
    for device in devices {
        device.tamper(|bytes| {
            let at: Vec<usize> = (0..bytes.len() - needle.len()).step_by(512).filter(|&at| bytes[at..].starts_with(needle)).collect();
            for at in at {
                bytes[at..at + 64].fill(0xA5);
                found += 1;
            }
        });
    }
    found
}

pub fn read_block(pool: &Pool, name: &str, object: ObjectId, block: u64) -> bool {
    let objset = pool.dsl().hold(name).expect("held").objset().expect("objset");
    objset.hold(object).expect("object").read(block * BLOCK_BYTES as u64, &mut vec![0; BLOCK_BYTES]).is_ok()
}
