//! The engine on devices in virtual time: how many steps of the devices an fsync takes one after the other, to the microsecond the same in each run.

use super::device::VirtualDevice;
use super::{FILE_BYTES, IO_BYTES, Work};
use crate::measure::text;
use crate::subject::file_system;
use abd::Abd;
use device::BlockDevice;
use exec::{Exec, Lockstep, Mutex};
use pool::{AddSpec, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::sync::{Arc, Weak};
use vdev::{LeafKind, TopKind};
use zpl::{NewNode, Node, Settings, WriteData, Zfs};

const DEVICE_BYTES: usize = 256 << 20;
const SEED: u64 = 16;
const DATASET: &str = "zbench/fs";

/// Run of threads on simulated devices.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Time of a flush in µs.
    pub flush_us: u64,
    /// True with a log device, as fast as the other one.
    pub has_log: bool,
    /// Number of threads, each with a file of its own.
    pub threads: usize,
    /// Number of operations of all threads together.
    pub operations: usize,
    /// Operation of each thread.
    pub work: Work,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Operations in a second.
    pub rate: f64,
    /// Time of each operation in ns.
    pub latencies_ns: Vec<u32>,
    /// Writes and flushes of the devices for each operation.
    pub per_operation: [f64; 2],
}

fn leaf(device: &Arc<VirtualDevice>) -> LeafSpec {
    LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() }
}

/// A pool with a file system that has its log.
struct Bed {
    pool: Pool,
    zfs: Arc<Zfs>,
    devices: Vec<Arc<VirtualDevice>>,
}

impl Bed {
    fn new(exec: &Exec, cell: Cell) -> Result<Bed, String> {
        let device = |name| Arc::new(VirtualDevice::new(exec, name, DEVICE_BYTES, cell.flush_us * 1000));
        let mut devices = vec![device("data")];
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: devices.iter().map(leaf).collect() }];
        let spec = PoolSpec { ashift: Some(12), ..PoolSpec::new("zbench", tops, file_system(&[])) };
        let pool = Pool::create(exec, spec, &Runtime { arc_max: 64 << 20, ..Runtime::new() }).map_err(text)?;
        if cell.has_log {
            devices.push(device("log"));
            let logs = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(&devices[1])] }];
            pool.add(AddSpec { logs, ..AddSpec::default() }).map_err(text)?;
        }
        pool.dsl().create_dataset(DATASET, file_system(&[])).map_err(text)?;
        let handle = Arc::new(pool.dsl().hold(DATASET).map_err(text)?);
        let zfs = Zfs::open(&handle.objset().map_err(text)?, Some(pool.txgs().clone()), Settings::default()).map_err(text)?;
        zfs.set_space_source(handle.clone());
        let source: Weak<Zfs> = Arc::downgrade(&zfs);
        zfs.set_log(handle.intent_log(source).map_err(text)?, false);
        Ok(Bed { pool, zfs, devices })
    }

    fn counts(&self) -> [u64; 2] {
        self.devices.iter().map(|device| device.counts()).fold([0; 2], |sum, each| [sum[0] + each[0], sum[1] + each[1]])
    }

    /// File of a thread, with a log that began.
    fn file(&self, thread: usize) -> Result<Node, String> {
        let root = self.zfs.node(self.zfs.root()).map_err(text)?;
        let new = NewNode { mode: 0o100_644, ..NewNode::default() };
        let node = self.zfs.create_node(&root, format!("f{thread}").as_bytes(), &new).map_err(text)?;
        for _ in 0..3 {
            self.zfs.write(&node, write_of(0, FILE_BYTES, false)).map_err(text)?;
            self.zfs.fsync(&node).map_err(text)?;
        }
        Ok(node)
    }
}

fn write_of(offset: u64, length: u64, synchronous: bool) -> WriteData {
    let data = Abd::from_slice(&vec![offset as u8; length as usize]);
    WriteData { offset, data, may_keep: false, kill_suid: false, synchronous }
}

/// Does one operation of the file, the one with this number.
fn operate(zfs: &Zfs, node: &Node, work: Work, number: u64) -> Result<(), String> {
    match work {
        Work::Append => {
            zfs.write(node, write_of(FILE_BYTES + number * IO_BYTES, IO_BYTES, false)).map_err(text)?;
            zfs.fsync(node).map_err(text)
        }
        Work::Overwrite => {
            let place = number * 7 % (FILE_BYTES / IO_BYTES);
            zfs.write(node, write_of(place * IO_BYTES, IO_BYTES, true)).map(drop).map_err(text)
        }
    }
}

/// Runs a cell.
pub fn run(cell: Cell) -> Result<Row, String> {
    Lockstep::run_calmly(SEED, |exec| run_in(exec, cell))
}

fn run_in(exec: &Exec, cell: Cell) -> Result<Row, String> {
    let bed = Bed::new(exec, cell)?;
    let nodes = (0..cell.threads).map(|thread| bed.file(thread)).collect::<Result<Vec<_>, _>>()?;
    bed.pool.sync().map_err(text)?;
    let (begun, counts) = (exec.now_ns(), bed.counts());
    let outcome: Arc<Mutex<Result<Vec<u32>, String>>> = Arc::new(Mutex::new(Ok(Vec::new())));
    let each = (cell.operations / cell.threads) as u64;
    let start = |node: Node| {
        let (zfs, clock, outcome) = (bed.zfs.clone(), exec.clone(), outcome.clone());
        let work = move || {
            let mut latencies = Vec::new();
            let result = (0..each).try_for_each(|number| {
                let begun = clock.now_ns();
                operate(&zfs, &node, cell.work, number)?;
                latencies.push((clock.now_ns() - begun) as u32);
                Ok(())
            });
            let mut outcome = outcome.lock();
            match (result, &mut *outcome) {
                (Ok(()), Ok(all)) => all.extend(latencies),
                (Err(error), Ok(_)) => *outcome = Err(error),
                (_, Err(_)) => {}
            }
        };
        exec.spawn_operation("zbench-fsync", Box::new(work))
    };
    let threads: Vec<_> = nodes.into_iter().map(start).collect();
    threads.into_iter().for_each(exec::OperationHandle::join);
    let (took, after) = (exec.now_ns() - begun, bed.counts());
    let latencies_ns = std::mem::replace(&mut *outcome.lock(), Ok(Vec::new()))?;
    let count = latencies_ns.len() as f64;
    let per_operation = [0, 1].map(|index| (after[index] - counts[index]) as f64 / count);
    let Bed { pool, zfs, .. } = bed;
    drop(zfs);
    pool.export().map_err(text)?;
    Ok(Row { rate: count / (took as f64 / 1e9), latencies_ns, per_operation })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a table of `zbench fsync` says something else each time, and no change of it means anything.
    #[test]
    fn virtual_time_is_the_same_in_each_run() {
        for threads in [1, 4] {
            let cell = Cell { flush_us: 1000, has_log: threads == 4, threads, operations: 40, work: Work::Append };
            let rows = [0, 1].map(|_| run(cell).expect("ran"));
            assert_eq!(rows[0].latencies_ns, rows[1].latencies_ns);
            assert_eq!(rows[0].latencies_ns.len(), 40);
        }
    }
}
