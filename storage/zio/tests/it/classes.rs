//! Classes of the jobs in which the I/Os of blocks end: who is waited for goes before who is not.

use crate::common::{LEAF_BYTES, bookmark, noise, request};
use abd::Abd;
use device::{BlockDevice, DeviceFacts, DeviceIo, MemDevice};
use exec::{Exec, Executor, Inline, Job, Mutex, OperationHandle, TaskClass};
use kstat::NoEvents;
use metaslab::Allocator;
use ondisk::BlockPtr;
use std::sync::Arc;
use vdev::{TopKind, VdevTree};
use zio::{Facts, PoolView, Priority, ReadRequest, WriteRequest, Zio};

/// An executor under one thread that notes the classes of the jobs that it gets.
struct Noting {
    inline: Inline,
    classes: Mutex<Vec<TaskClass>>,
}

impl Executor for Noting {
    fn spawn(&self, class: TaskClass, job: Job) {
        self.classes.lock().push(class);
        self.inline.spawn(class, job);
    }
    fn spawn_after(&self, delay_ns: u64, class: TaskClass, job: Job) {
        self.inline.spawn_after(delay_ns, class, job);
    }
    fn wait(&self, ready: &dyn Fn() -> bool, park: &dyn Fn()) {
        self.inline.wait(ready, park);
    }
    fn spawn_operation(&self, name: &str, operation: Job) -> OperationHandle {
        self.inline.spawn_operation(name, operation)
    }
    fn is_inline(&self) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        self.inline.now_ns()
    }
    fn wall_clock(&self) -> (i64, u32) {
        self.inline.wall_clock()
    }
    fn sleep_ns(&self, duration_ns: u64) {
        self.inline.sleep_ns(duration_ns);
    }
    fn random_u64(&self) -> u64 {
        self.inline.random_u64()
    }
    fn parallelism(&self) -> usize {
        self.inline.parallelism()
    }
}

/// A device whose I/Os end when they are told to.
#[derive(Debug)]
struct Later {
    mem: MemDevice,
    held: Mutex<Vec<DeviceIo>>,
}

impl BlockDevice for Later {
    fn submit(&self, io: DeviceIo) {
        self.held.lock().push(io);
    }
    fn facts(&self) -> &DeviceFacts {
        self.mem.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

struct Bench {
    noting: Arc<Noting>,
    device: Arc<Later>,
    zio: Zio,
}

impl Bench {
    fn new() -> Bench {
        let noting = Arc::new(Noting { inline: Inline::new(3), classes: Mutex::default() });
        let exec: Exec = noting.clone();
        let tree = Arc::new(VdevTree::simple(&[(TopKind::Leaf, 1)], 12, LEAF_BYTES).expect("the layout is sound"));
        let allocator = Arc::new(Allocator::new(&tree, 1));
        for metaslab in 0..allocator.metaslab_count(tree.tops[0].id) {
            allocator.load(tree.tops[0].id, metaslab, &[]).expect("an empty metaslab loads");
        }
        let mem = MemDevice::new("later", (LEAF_BYTES + (5 << 20)) as usize);
        let device = Arc::new(Later { mem, held: Mutex::default() });
        let devices = vec![Some(device.clone() as Arc<dyn BlockDevice>)];
        let facts = Facts { name: "tank".into(), writeable: true, ..Facts::default() };
        let zio = Zio::new(exec, PoolView { tree, devices, allocator, facts }, Arc::new(NoEvents));
        Bench { noting, device, zio }
    }

    /// Lets what the device has end, and gives the classes of the jobs in which that goes on.
    fn ends(&self) -> Vec<TaskClass> {
        self.noting.inline.run_ready();
        self.noting.classes.lock().clear();
        let held = std::mem::take(&mut *self.device.held.lock());
        assert!(!held.is_empty(), "the device has something to do");
        held.into_iter().for_each(|io| self.device.mem.submit(io));
        let classes = std::mem::take(&mut *self.noting.classes.lock());
        self.noting.inline.run_ready();
        classes
    }
}

/// If this fails, a read waits until thousands of writes have ended that nobody waits for: beside the restore of another volume, for example.
#[test]
fn writes_of_a_transaction_group_end_behind_what_somebody_waits_for() {
    let bench = Bench::new();
    for (priority, class) in [(Priority::SyncWrite, TaskClass::Interrupt), (Priority::AsyncWrite, TaskClass::Write)] {
        let written: Arc<Mutex<Option<BlockPtr>>> = Arc::default();
        let slot = written.clone();
        let write = WriteRequest { priority, ..request(noise(1, 16384), 1) };
        bench.zio.write(write, Box::new(move |result| *slot.lock() = result.ok()));
        assert_eq!(bench.ends(), [class], "{priority:?}");
        let bp = written.lock().take().expect("it is written");
        let read: Arc<Mutex<Option<Abd>>> = Arc::default();
        let slot = read.clone();
        bench.zio.read(ReadRequest::new(bp, bookmark(1)), Box::new(move |result| *slot.lock() = result.ok()));
        assert_eq!(bench.ends(), [TaskClass::Interrupt], "a read");
        assert!(read.lock().take().is_some_and(|data| data == noise(1, 16384)));
    }
    assert!(TaskClass::Interrupt < TaskClass::Read && TaskClass::Read < TaskClass::Write);
}
