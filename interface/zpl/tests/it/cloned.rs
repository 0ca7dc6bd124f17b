//! Files that share blocks, in a whole pool on memory devices. What users lose when these fail: a copy that changes with what it was copied from, or
//! has bytes of neither; or the pool's space.

use crate::pool::{DEVICE_BYTES, exec, file, file_system, make_pool, open_fs, write};
use device::{BlockDevice, MemDevice};
use dsl::CreateDataset;
use exec::SplitMix;
use need::pattern;
use pool::{ImportOptions, Pool, Runtime, SharedSpace};
use std::sync::Arc;
use vdev::TopKind;
use zpl::{DataAt, Node, Zfs, ZplError};

const FS: &str = "zpltest/fs";
const FILES: usize = 4;
const RECORD: usize = 4096;

fn dataset() -> CreateDataset {
    let properties = [("recordsize", "4096"), ("compression", "off")].map(|(name, value)| (name.to_string(), value.to_string()));
    CreateDataset { properties: properties.to_vec(), ..file_system() }
}

/// A file system and what its files should hold.
struct Bed {
    devices: Vec<Arc<MemDevice>>,
    pool: Option<Pool>,
    zfs: Option<Arc<Zfs>>,
    files: Vec<Vec<u8>>,
    random: SplitMix,
    shared_bytes: u64,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let devices = vec![Arc::new(MemDevice::new("d0", DEVICE_BYTES))];
        let pool = make_pool(&devices, TopKind::Leaf);
        pool.dsl().create_dataset(FS, dataset()).expect("a file system");
        let zfs = open_fs(&pool, FS);
        let root = zfs.node(zfs.root()).expect("root");
        (0..FILES).for_each(|index| drop(zfs.create_node(&root, name(index).as_bytes(), &file()).expect("create")));
        drop(root);
        let files = vec![Vec::new(); FILES];
        Bed { devices, pool: Some(pool), zfs: Some(zfs), files, random: SplitMix::new(seed), shared_bytes: 0 }
    }

    fn zfs(&self) -> &Arc<Zfs> {
        self.zfs.as_ref().expect("open")
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open")
    }

    fn node(&self, index: usize) -> Node {
        let root = self.zfs().node(self.zfs().root()).expect("root");
        self.zfs().lookup(&root, name(index).as_bytes()).expect("a file")
    }

    fn put(&mut self, index: usize, offset: usize, bytes: &[u8]) {
        let data = &mut self.files[index];
        data.resize(data.len().max(offset + bytes.len()), 0);
        data[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn write(&mut self) {
        let (index, offset) = (self.random.below(FILES), self.random.below(10 * RECORD));
        let bytes = pattern(1 + self.random.below(5 * RECORD), self.random.next_u64());
        write(self.zfs(), &self.node(index), offset as u64, &bytes).expect("written");
        self.put(index, offset, &bytes);
    }

    fn truncate(&mut self) {
        let index = self.random.below(FILES);
        let size = self.random.below(self.files[index].len() + RECORD);
        self.zfs().truncate(&self.node(index), size as u64).expect("truncated");
        self.files[index].resize(size, 0);
    }

    /// Asks for a clone, mostly at the start of blocks, as programs that know of them do; nothing may come of it.
    fn clone_range(&mut self) {
        let (from, to) = (self.random.below(FILES), self.random.below(FILES));
        let aligned = !self.random.chance(8);
        let mut offset = || if aligned { self.random.below(8) * RECORD } else { self.random.below(8 * RECORD) };
        let (start, target) = (offset(), offset());
        let length = if self.random.chance(2) { u64::MAX >> 2 } else { 1 + self.random.below(6 * RECORD) as u64 };
        if self.random.chance(2) {
            self.pool().sync().expect("synced");
        }
        let (source, sink) = (self.node(from), self.node(to));
        let at = |node, offset: usize| DataAt { node, offset: offset as u64 };
        match self.zfs().clone_range(at(&source, start), at(&sink, target), length) {
            Ok(0) => assert!(from != to && start >= self.files[from].len(), "only behind the end there is nothing"),
            Ok(bytes) => {
                assert!(bytes <= length);
                self.shared_bytes += bytes;
                let copy = self.files[from][start..start + bytes as usize].to_vec();
                self.put(to, target, &copy);
            }
            Err(error) => assert_eq!(error, ZplError::NotSupported),
        }
    }

    fn reopen(&mut self) {
        self.zfs = None;
        self.pool.take().expect("open").export().expect("exported");
        let opened = self.devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let pool = Pool::import(&exec(), opened, &ImportOptions::default(), &Runtime::new()).expect("imported");
        self.zfs = Some(open_fs(&pool, FS));
        self.pool = Some(pool);
    }

    fn check(&self, what: &str) {
        for (index, expected) in self.files.iter().enumerate() {
            let node = self.node(index);
            assert_eq!(node.fields().size, expected.len() as u64, "{what}: {}", name(index));
            let found = self.zfs().read(&node, 0, 1 << 20).expect("read").to_vec();
            assert!(found == *expected, "{what}: {} is another", name(index));
        }
    }
}

fn name(index: usize) -> String {
    format!("f{index}")
}

/// If this fails, a copy that shares blocks is not a copy.
#[test]
fn random_copies_are_copies() {
    let mut shared_bytes = 0;
    for seed in 0..6 {
        let mut bed = Bed::new(seed);
        for step in 0..80 {
            match bed.random.below(10) {
                0..4 => bed.write(),
                4 => bed.truncate(),
                5..9 => bed.clone_range(),
                _ => bed.reopen(),
            }
            bed.check(&format!("seed {seed}, step {step}"));
        }
        bed.pool().sync().expect("synced");
        bed.pool().cache().clear();
        bed.check(&format!("seed {seed}, from the disks"));
        let report = bed.pool().verify_space().expect("readable");
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        let zfs = bed.zfs().clone();
        let root = zfs.node(zfs.root()).expect("root");
        (0..FILES).for_each(|index| zfs.unlink(&root, name(index).as_bytes()).expect("deleted"));
        drop((root, zfs));
        bed.reopen();
        assert_eq!(bed.pool().shared_space(), SharedSpace::default(), "seed {seed}: what was deleted is shared by nobody");
        shared_bytes += bed.shared_bytes;
    }
    assert!(shared_bytes > 1 << 17, "hardly anything was shared: {shared_bytes} bytes");
}

/// If this fails, `cp` fails where it should copy, copies what it could share, or a copy takes the odd block size of a short file for good.
#[test]
fn what_cannot_be_shared_is_left_to_be_copied() {
    let mut bed = Bed::new(1);
    let long = pattern(5 * RECORD + 100, 7);
    write(bed.zfs(), &bed.node(0), 0, &long).expect("written");
    write(bed.zfs(), &bed.node(1), 0, &pattern(1000, 8)).expect("written");
    let ask = |bed: &Bed, (from, start): (usize, usize), (to, target): (usize, usize), length: usize| {
        let (source, sink) = (bed.node(from), bed.node(to));
        let at = |node, offset: usize| DataAt { node, offset: offset as u64 };
        bed.zfs().clone_range(at(&source, start), at(&sink, target), length as u64)
    };
    let refused = Err(ZplError::NotSupported);
    assert_eq!(ask(&bed, (0, 0), (2, 0), long.len()), refused, "not on disk yet");
    bed.pool().sync().expect("synced");
    assert_eq!(ask(&bed, (0, 0), (0, 10 * RECORD), RECORD), refused, "one file");
    assert_eq!(ask(&bed, (0, 1), (2, 0), RECORD), refused, "not at the start of a block");
    assert_eq!(ask(&bed, (0, 0), (2, 512), RECORD), refused, "not to the start of a block");
    assert_eq!(ask(&bed, (0, 0), (2, 0), 100), refused, "a part of a block that goes on");
    assert_eq!(ask(&bed, (0, 0), (1, 0), 2 * RECORD), refused, "blocks of another size");
    assert_eq!(ask(&bed, (1, 0), (2, RECORD), 1000), refused, "the one block of a short file among others");
    assert_eq!(ask(&bed, (0, 6 * RECORD), (2, 0), RECORD), Ok(0), "behind the end");
    assert_eq!(ask(&bed, (0, 0), (2, RECORD), 2 * RECORD + 7), Ok(2 * RECORD as u64), "whole blocks of it");
    assert_eq!(ask(&bed, (0, 0), (2, 0), usize::MAX >> 1), Ok(long.len() as u64), "to its end");
    assert_eq!(ask(&bed, (1, 0), (3, 0), 4096), Ok(1000), "a short file");
    (bed.files[0], bed.files[1]) = (long.clone(), pattern(1000, 8));
    (bed.files[2], bed.files[3]) = (long, pattern(1000, 8));
    bed.check("shared");
    // It grows as any short file does.
    write(bed.zfs(), &bed.node(3), 1000, &pattern(3 * RECORD, 9)).expect("written");
    bed.put(3, 1000, &pattern(3 * RECORD, 9));
    bed.reopen();
    bed.check("grown");
    let shared = bed.pool().shared_space();
    assert_eq!((shared.used_bytes, shared.saved_bytes), (6 * RECORD as u64, 6 * RECORD as u64), "once each, what was shared first no more");
}

/// If this fails, what fsync promised of a copy is gone after a crash: no record of an intent log tells of blocks that are shared.
#[test]
fn a_copy_is_durable_once_it_was_made_so() {
    let mut bed = Bed::new(2);
    let bytes = pattern(3 * RECORD, 5);
    write(bed.zfs(), &bed.node(0), 0, &bytes).expect("written");
    bed.pool().sync().expect("synced");
    let (source, sink) = (bed.node(0), bed.node(1));
    let shared = bed.zfs().clone_range(DataAt { node: &source, offset: 0 }, DataAt { node: &sink, offset: 0 }, u64::MAX >> 1);
    assert_eq!(shared, Ok(bytes.len() as u64));
    bed.zfs().fsync(&sink).expect("durable");
    drop((source, sink));
    // What is on the devices now is what a crash would leave.
    let left: Vec<Arc<MemDevice>> = bed.devices.iter().map(|device| Arc::new(MemDevice::with_bytes("d0", device.contents()))).collect();
    bed.zfs = None;
    bed.pool = None;
    bed.devices = left;
    let opened = bed.devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
    let pool =
        Pool::import(&exec(), opened, &ImportOptions { force: true, ..ImportOptions::default() }, &Runtime::new()).expect("imported");
    bed.zfs = Some(open_fs(&pool, FS));
    bed.pool = Some(pool);
    (bed.files[0], bed.files[1]) = (bytes.clone(), bytes);
    bed.check("after the crash");
}
