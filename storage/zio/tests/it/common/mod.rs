//! A small pool of memory devices for tests of the pipeline: no labels, no space maps on disk, just blocks.
#![allow(dead_code, reason = "the tests of other crates take what they need of it")]

use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex, Pool, TaskClass};
use kstat::NoEvents;
use metaslab::Allocator;
use ondisk::{BlockId, BlockPtr, Bookmark, Level, ObjectId, ObjectType, ObjsetId, Txg};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{LeafId, TopKind, VdevTree};
use zio::{Facts, FailMode, PoolView, ReadRequest, WriteRequest, Zio, ZioError};

pub const TXG: Txg = Txg(10);
/// Allocatable bytes of a leaf .
pub const LEAF_BYTES: u64 = 24 << 20;
/// The part of a device that holds a test's first blocks.
pub const HEAD: std::ops::Range<usize> = 4 << 20..5 << 20;

/// I/Os of a pool's devices that fail: those with a number in the set, counted over all devices.
#[derive(Debug, Default)]
pub struct Faults {
    pub count: AtomicU64,
    pub fail: Mutex<BTreeSet<u64>>,
}

/// Pace of a device that does one I/O after the other.
pub struct Pace {
    pub exec: Exec,
    /// Nanoseconds that each takes.
    pub each_ns: u64,
    /// Time at which the last one is done.
    pub free_at_ns: u64,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("each_ns", &self.each_ns).finish_non_exhaustive()
    }
}

/// A memory device that can be told to fail, and to take its time.
#[derive(Debug)]
pub struct TestDevice {
    pub mem: MemDevice,
    pub faults: Arc<Faults>,
    pub dead: Mutex<Option<DeviceError>>,
    /// Offset and length of every read, when not None.
    pub reads: Mutex<Vec<(u64, u64)>>,
    /// None for a device that takes no time.
    pub pace: Mutex<Option<Pace>>,
}

impl TestDevice {
    /// Has the answer come when the device has done what it was given before, and this.
    fn paced(&self, io: DeviceIo) -> DeviceIo {
        let mut pace = self.pace.lock();
        let Some(pace) = pace.as_mut() else { return io };
        let now_ns = pace.exec.now_ns();
        pace.free_at_ns = pace.free_at_ns.max(now_ns) + pace.each_ns;
        let (exec, delay_ns) = (pace.exec.clone(), pace.free_at_ns - now_ns);
        let DeviceIo { op, offset, then, priority } = io;
        let later = move |reply| exec.spawn_after(delay_ns, TaskClass::Interrupt, Box::new(move || then(reply)));
        DeviceIo::new(op, offset, later).with_priority(priority)
    }

    /// The bytes of [`HEAD`].
    pub fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        self.mem.tamper(|bytes| head = bytes[HEAD].to_vec());
        head
    }

    /// True when the bytes of [`HEAD`] are these.
    pub fn holds(&self, head: &[u8]) -> bool {
        let mut is_same = false;
        self.mem.tamper(|bytes| is_same = bytes[HEAD] == *head);
        is_same
    }
}

impl BlockDevice for TestDevice {
    fn submit(&self, io: DeviceIo) {
        let number = self.faults.count.fetch_add(1, Ordering::Relaxed);
        if let DeviceOp::Read(_) = &io.op {
            self.reads.lock().push((io.offset, io.op.length_bytes()));
        }
        let dead = *self.dead.lock();
        if let Some(error) = dead {
            return io.fail(error);
        }
        if self.faults.fail.lock().contains(&number) {
            return io.fail(DeviceError::Io);
        }
        self.mem.submit(self.paced(io));
    }
    fn facts(&self) -> &DeviceFacts {
        self.mem.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

pub struct Rig {
    pub exec: Exec,
    pub zio: Zio,
    pub devices: Vec<Arc<TestDevice>>,
    pub faults: Arc<Faults>,
    pub allocator: Arc<Allocator>,
}

pub fn inline() -> Exec {
    Arc::new(Inline::new(7))
}

pub fn threads() -> Exec {
    Arc::new(Pool::new(3))
}

/// The layouts that every block property must hold on.
pub fn layouts() -> Vec<(&'static str, Vec<(TopKind, usize)>)> {
    vec![
        ("stripe", vec![(TopKind::Leaf, 1), (TopKind::Leaf, 1)]),
        ("mirror", vec![(TopKind::Mirror, 3)]),
        ("raidz1", vec![(TopKind::Raidz(1), 3)]),
        ("raidz2", vec![(TopKind::Raidz(2), 5)]),
        ("raidz3", vec![(TopKind::Raidz(3), 7)]),
    ]
}

impl Rig {
    pub fn new(exec: Exec, layout: &[(TopKind, usize)], ashift: u32) -> Rig {
        Rig::failing(exec, layout, ashift, FailMode::Never)
    }

    /// A pool with this failmode.
    pub fn failing(exec: Exec, layout: &[(TopKind, usize)], ashift: u32, fail_mode: FailMode) -> Rig {
        Rig::with(exec, layout, ashift, fail_mode, &|tree, allocator| {
            for top in &tree.tops {
                for metaslab in 0..allocator.metaslab_count(top.id) {
                    allocator.load(top.id, metaslab, &[]).expect("an empty metaslab loads");
                }
            }
        })
    }

    pub fn with(exec: Exec, layout: &[(TopKind, usize)], ashift: u32, fail_mode: FailMode, load: &dyn Fn(&VdevTree, &Allocator)) -> Rig {
        let tree = Arc::new(VdevTree::simple(layout, ashift, LEAF_BYTES).expect("the layout is sound"));
        let allocator = Arc::new(Allocator::new(&tree, 1));
        load(&tree, &allocator);
        let faults = Arc::new(Faults::default());
        let devices: Vec<Arc<TestDevice>> = (0..tree.leaves.len())
            .map(|index| {
                Arc::new(TestDevice {
                    mem: MemDevice::new(&format!("d{index}"), (LEAF_BYTES + (5 << 20)) as usize),
                    faults: faults.clone(),
                    dead: Mutex::default(),
                    reads: Mutex::default(),
                    pace: Mutex::default(),
                })
            })
            .collect();
        let facts = Facts { name: "tank".into(), writeable: true, embedded_data: true, hole_birth: true, fail_mode, ..Facts::default() };
        let view = PoolView {
            tree,
            devices: devices.iter().map(|device| Some(device.clone() as Arc<dyn BlockDevice>)).collect(),
            allocator: allocator.clone(),
            facts,
        };
        let zio = Zio::new(exec.clone(), view, Arc::new(NoEvents));
        Rig { exec, zio, devices, faults, allocator }
    }

    pub fn write(&self, request: WriteRequest) -> Result<BlockPtr, ZioError> {
        self.zio.write_wait(request)
    }
    pub fn read(&self, bp: &BlockPtr) -> Result<Abd, ZioError> {
        self.zio.read_wait(ReadRequest::new(*bp, bookmark(0)))
    }
    pub fn scrub(&self, bp: &BlockPtr) -> Result<Abd, ZioError> {
        let mut request = ReadRequest::new(*bp, bookmark(0));
        request.flags.scrub = true;
        self.zio.read_wait(request)
    }
    /// Flips the bytes in [`HEAD`] of every leaf in `leaves`; twice restores them.
    pub fn corrupt(&self, leaves: &[usize]) {
        for &leaf in leaves {
            self.devices[leaf].mem.tamper(|bytes| bytes[HEAD].iter_mut().for_each(|byte| *byte ^= 0x5A));
        }
    }
    pub fn contents(&self) -> Vec<Vec<u8>> {
        self.devices.iter().map(|device| device.head()).collect()
    }
    /// True when the bytes in [`HEAD`] of every leaf are these.
    pub fn holds(&self, contents: &[Vec<u8>]) -> bool {
        self.devices.len() == contents.len() && self.devices.iter().zip(contents).all(|(device, bytes)| device.holds(bytes))
    }
    pub fn kill(&self, leaves: &[usize], error: DeviceError) {
        for &leaf in leaves {
            *self.devices[leaf].dead.lock() = Some(error);
        }
    }
    /// Lets each I/O of a leaf take so many nanoseconds, one after the other.
    pub fn set_pace(&self, leaf: usize, each_ns: u64) {
        *self.devices[leaf].pace.lock() = Some(Pace { exec: self.exec.clone(), each_ns, free_at_ns: 0 });
    }
    pub fn revive(&self) {
        self.devices.iter().for_each(|device| *device.dead.lock() = None);
    }
    pub fn checksum_errors(&self, leaf: usize) -> u64 {
        self.zio.leaf_stats(LeafId(leaf as u32)).counts().checksum_errors
    }
}

pub fn bookmark(block: u64) -> Bookmark {
    Bookmark { objset: ObjsetId(54), object: ObjectId(2), level: Level(0), block: BlockId(block) }
}

/// Bytes that no algorithm compresses.
pub fn noise(seed: u64, length: usize) -> Abd {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = vec![0; length.next_multiple_of(8)];
    for word in bytes.chunks_exact_mut(8) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        word.copy_from_slice(&z.to_le_bytes());
    }
    Abd::from_slice(&bytes[..length])
}

/// Bytes that compress to about a third.
pub fn text(seed: u64, length: usize) -> Abd {
    let mut bytes = noise(seed, length).to_vec();
    for word in bytes.chunks_mut(8).filter(|word| word.len() > 2) {
        let letters = word.len() - 2;
        word[2..].copy_from_slice(&b"cdefgh"[..letters]);
    }
    Abd::from_slice(&bytes)
}

pub fn request(data: Abd, block: u64) -> WriteRequest {
    WriteRequest::new(TXG, data, bookmark(block), ObjectType::PLAIN_FILE_CONTENTS)
}

/// Subsets of `0..count` with `size` members, all of them.
pub fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    (0..1u32 << count)
        .filter(|mask| mask.count_ones() as usize == size)
        .map(|mask| (0..count).filter(|bit| mask >> bit & 1 != 0).collect())
        .collect()
}
