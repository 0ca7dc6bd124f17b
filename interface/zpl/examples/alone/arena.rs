//! Costs of noting in an arena: CPU time of operations of a file system on a simulated device, without one and with one.

use abd::Abd;
use device::BlockDevice;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use rustix::time::{ClockId, clock_gettime};
use sim::Sim;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{CreateOptions, NewNode, Node, Settings, WriteData, Zfs};

const DEVICE_BYTES: usize = 1 << 30;
const OPERATIONS: u64 = 40_000;
const FILE_BYTES: u64 = 8 << 20;
const ROUNDS: usize = 5;

fn dataset() -> CreateDataset {
    let init = Box::new(|objset: &Arc<dmu::Objset>, tx: &dmu::Tx| {
        Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported)
    });
    CreateDataset { kind: ObjsetType::ZFS, properties: vec![("compression".into(), "off".into())], init }
}

fn served(with_arena: bool) -> (Pool, Arc<Zfs>) {
    let exec: Exec = Arc::new(Inline::new(1));
    let sim = Sim::new(&exec, 1);
    sim.stop_tracing();
    let device = sim.device("d", DEVICE_BYTES);
    let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
    let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
    let pool = Pool::create(&exec, PoolSpec::new("bench", tops, dataset()), &Runtime::new()).expect("a pool");
    pool.dsl().create_dataset("bench/fs", dataset()).expect("a dataset");
    if with_arena {
        pool.set_arena(zil::Arena::create(zil::ARENA_BYTES).expect("memory"));
    }
    let handle = Arc::new(pool.dsl().hold("bench/fs").expect("held"));
    let zfs = Zfs::open(&handle.objset().expect("an object set"), Some(pool.txgs().clone()), Settings::default()).expect("it opens");
    zfs.set_space_source(handle.clone());
    zfs.set_log(handle.intent_log(Arc::downgrade(&zfs) as _).expect("a log"), false);
    (pool, zfs)
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU nanoseconds of an operation, without the txgs between.
fn measure(with_arena: bool, bytes: u64) -> u64 {
    let (pool, zfs) = served(with_arena);
    let root = zfs.node(zfs.root()).expect("the root");
    let new = NewNode { mode: 0o100_644, ..NewNode::default() };
    let file: Node = zfs.create_node(&root, b"file", &new).expect("made");
    let data = Abd::from_slice(&vec![5; bytes as usize]);
    let (mut spent, operations) = (0, OPERATIONS.min((4 << 30) / bytes.max(1)));
    for number in 0..operations {
        if number % (32 << 20 >> bytes.max(4096).ilog2()) == 0 {
            pool.sync().expect("synced");
        }
        let begun = cpu_ns();
        let request = pool.arena().map(|arena| arena.begin(number + 1));
        match bytes {
            0 => drop(zfs.create_node(&root, number.to_string().as_bytes(), &new).expect("made")),
            _ => {
                let offset = number * bytes % FILE_BYTES;
                let write = WriteData { offset, data: data.clone(), may_keep: false, kill_suid: false, synchronous: false };
                zfs.write(&file, write).expect("written");
            }
        }
        assert!(request.as_ref().is_none_or(|_| pool.arena().is_some_and(|arena| arena.is_settled())));
        drop(request);
        spent += cpu_ns() - begun;
    }
    spent / operations
}

/// Measures and prints.
pub fn run() {
    for (what, bytes) in
        [("create", 0), ("write of 512 B", 512), ("write of 4 KiB", 4096), ("write of 128 KiB", 128 << 10), ("write of 1 MiB", 1 << 20)]
    {
        let best = |with_arena| (0..ROUNDS).map(|_| measure(with_arena, bytes)).min().unwrap_or_default();
        println!("{what}: {} ns without an arena, {} ns with one", best(false), best(true));
    }
}
