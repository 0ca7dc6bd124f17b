//! What a block costs in CPU: the pipeline and the cache beside the bare file I/O that they issue.
//!
//! `zio_cost [DIR] [SECONDS_PER_ROW]` makes files in DIR (default `/dev/shm`), writes and reads blocks through the pipeline over
//! them, and the same extents with the device alone, and prints CPU seconds per GiB of user data for each. The difference is
//! the pipeline: allocation, checksum, parity, planning, bookkeeping. Checksum and parity alone are shown for comparison.
#![allow(missing_docs, reason = "a program")]

use abd::Abd;
use arc::Cache;
use device::{BlockDevice, DeviceIo, DeviceOp, FileDevice};
use exec::{Exec, Pool, WaitQueue, completion};
use kstat::NoEvents;
use metaslab::Allocator;
use ondisk::{BlockId, BlockPtr, Bookmark, Compression, Level, ObjectId, ObjectType, ObjsetId, Txg};
use rustix::time::ClockId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{TopKind, VdevTree, WritePlan};
use zio::{Facts, PoolView, ReadRequest, WriteRequest, Zio};

const LEAF_BYTES: u64 = 160 << 20;
const IN_FLIGHT: u64 = 32;

fn cpu_seconds() -> f64 {
    seconds_of(ClockId::ProcessCPUTime)
}

fn seconds_of(clock: ClockId) -> f64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Bench {
    exec: Exec,
    zio: Zio,
    files: Vec<PathBuf>,
    devices: Vec<Arc<dyn BlockDevice>>,
    tree: Arc<VdevTree>,
}

impl Bench {
    fn new(dir: &Path, layout: &[(TopKind, usize)], ashift: u32) -> Bench {
        let exec: Exec = Arc::new(Pool::new(std::thread::available_parallelism().map_or(1, |n| n.get())));
        let tree = Arc::new(VdevTree::simple(layout, ashift, LEAF_BYTES).expect("the layout is sound"));
        let allocator = Arc::new(Allocator::new(&tree, 4));
        for top in &tree.tops {
            (0..allocator.metaslab_count(top.id)).for_each(|m| allocator.load(top.id, m, &[]).expect("an empty metaslab loads"));
        }
        let files: Vec<PathBuf> = (0..tree.leaves.len()).map(|n| dir.join(format!("zio_cost_{}_{n}", std::process::id()))).collect();
        let devices: Vec<Arc<dyn BlockDevice>> = files
            .iter()
            .map(|path| {
                let bytes = vec![0x5Au8; 8 << 20];
                let file = std::fs::File::create(path).expect("the directory takes files");
                for chunk in 0..(LEAF_BYTES + (8 << 20)) / bytes.len() as u64 {
                    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, chunk * bytes.len() as u64).expect("there is room");
                }
                Arc::new(FileDevice::open(path, false).expect("the file opens")) as Arc<dyn BlockDevice>
            })
            .collect();
        let facts = Facts { writeable: true, ..Facts::default() };
        let view = PoolView { tree: tree.clone(), devices: devices.iter().cloned().map(Some).collect(), allocator, facts };
        let zio = Zio::new(exec.clone(), view, Arc::new(NoEvents));
        Bench { exec, zio, files, devices, tree }
    }

    /// Writes `count` blocks, some in flight at a time.
    fn write(&self, data: &Abd, compression: Compression, count: u64, txg: Txg) -> Vec<BlockPtr> {
        let pointers = Arc::new(exec::Mutex::new(Vec::with_capacity(count as usize)));
        let (done, queue) = (Arc::new(AtomicU64::new(0)), Arc::new(WaitQueue::new()));
        for block in 0..count {
            queue.wait_until(&self.exec, &|| block - done.load(Ordering::Acquire) < IN_FLIGHT);
            let bookmark = Bookmark { objset: ObjsetId(1), object: ObjectId(2), level: Level(0), block: BlockId(block) };
            let mut request = WriteRequest::new(txg, data.clone(), bookmark, ObjectType::PLAIN_FILE_CONTENTS);
            request.compression = compression;
            let (pointers, done, queue) = (pointers.clone(), done.clone(), queue.clone());
            self.zio.write(
                request,
                Box::new(move |result| {
                    pointers.lock().push(result.expect("the write succeeds"));
                    done.fetch_add(1, Ordering::Release);
                    queue.notify_all();
                }),
            );
        }
        queue.wait_until(&self.exec, &|| done.load(Ordering::Acquire) == count);
        pointers.lock().split_off(0)
    }

    /// The writes of the same blocks by the devices alone.
    fn raw_write(&self, data: &Abd, pointers: &[BlockPtr]) {
        for bp in pointers {
            let top = self.tree.top(bp.dva(0).vdev).expect("the vdev exists");
            let plan = WritePlan::new(&self.tree, top, bp.dva(0).offset, bp.psize(), bp.birth());
            for io in &plan.ios {
                let (done, wait) = completion();
                let op = DeviceOp::Write(data.slice(0..io.length));
                self.devices[io.leaf.0 as usize].submit(DeviceIo::new(op, io.offset, move |reply| done.complete(reply.outcome)));
                wait.wait(&self.exec).expect("the write succeeds");
            }
        }
    }

    /// The reads of the same blocks by the devices alone: one leaf of a mirror, data columns of RAID-Z.
    fn raw_read(&self, pointers: &[BlockPtr]) {
        for bp in pointers {
            let top = self.tree.top(bp.dva(0).vdev).expect("the vdev exists");
            let plan = WritePlan::new(&self.tree, top, bp.dva(0).offset, bp.psize(), bp.birth());
            let mut ios: Vec<_> = plan.ios.iter().filter(|io| matches!(io.part, vdev::Part::Data(_))).collect();
            if top.parity() == 0 {
                ios.truncate(1);
            }
            for io in ios {
                let (done, wait) = completion();
                self.devices[io.leaf.0 as usize]
                    .submit(DeviceIo::new(DeviceOp::read(io.length), io.offset, move |reply| done.complete(reply)));
                wait.wait(&self.exec).outcome.expect("the read succeeds");
            }
        }
    }

    fn release(&self, pointers: &[BlockPtr], txg: Txg) {
        pointers.iter().for_each(|bp| self.zio.free(txg, bp));
        let view = self.zio.view();
        for t in 0..3 {
            view.allocator.take_deltas(Txg(txg.0 + t));
            view.allocator.sync_done(Txg(txg.0 + t));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.files.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// CPU seconds per GiB of the fastest of several rounds of `work` over `bytes`.
fn cost(bytes: f64, seconds: f64, mut work: impl FnMut()) -> f64 {
    let started = seconds_of(ClockId::Monotonic);
    let mut best = f64::MAX;
    while seconds_of(ClockId::Monotonic) - started < seconds {
        let before = cpu_seconds();
        work();
        best = best.min(cpu_seconds() - before);
    }
    best / bytes * (1u64 << 30) as f64
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = args.get(1).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let seconds: f64 = args.get(2).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    println!("CPU s/GiB      size   raw write  zio write  (sum)   raw read  zio read   arc miss  arc hit");
    let only = args.get(3).cloned();
    for (name, layout) in [
        ("stripe", vec![(TopKind::Leaf, 1)]),
        ("mirror", vec![(TopKind::Mirror, 2)]),
        ("raidz1", vec![(TopKind::Raidz(1), 4)]),
        ("raidz2", vec![(TopKind::Raidz(2), 6)]),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        for size in [16 << 10, 128 << 10, 1 << 20] {
            let bench = Bench::new(&dir, &layout, 12);
            let count = (48 << 20) / size as u64;
            let bytes = (count * size as u64) as f64;
            let mut z = 1u64;
            let noise: Vec<u8> = (0..size)
                .map(|_| {
                    z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (z >> 56) as u8
                })
                .collect();
            let data = Abd::from_slice(&noise);
            let mut txg = Txg(10);
            let pointers = bench.write(&data, Compression::OFF, count, txg);
            let zio_write = cost(bytes, seconds, || {
                txg = Txg(txg.0 + 4);
                let written = bench.write(&data, Compression::OFF, count, txg);
                bench.release(&written, txg);
            });
            let raw_write = cost(bytes, seconds, || bench.raw_write(&data, &pointers));
            let sum = cost(bytes, seconds / 4.0, || {
                for _ in 0..count {
                    std::hint::black_box(kernels::checksum(ondisk::Checksum::FLETCHER_4, &[&noise], kernels::ByteOrder::Little)).ok();
                }
            });
            let pointers = bench.write(&data, Compression::OFF, count, Txg(txg.0 + 1));
            let raw_read = cost(bytes, seconds, || bench.raw_read(&pointers));
            let bookmark = Bookmark::default();
            let zio_read = cost(bytes, seconds, || {
                pointers.iter().for_each(|bp| drop(bench.zio.read_wait(ReadRequest::new(*bp, bookmark)).expect("the block reads")));
            });
            let cache = Cache::new(bench.zio.clone(), 256 << 20);
            let miss = cost(bytes, seconds, || {
                cache.clear();
                pointers.iter().for_each(|bp| drop(cache.read(bp, &bookmark).expect("the block reads")));
            });
            let hit =
                cost(bytes, seconds / 4.0, || pointers.iter().for_each(|bp| drop(cache.read(bp, &bookmark).expect("the block reads"))));
            println!(
                "{name:<10} {size:>8}   {raw_write:9.4}  {zio_write:9.4}  {sum:6.4}  {raw_read:9.4} {zio_read:9.4}  {miss:9.4}  {hit:7.4}"
            );
        }
    }
}
