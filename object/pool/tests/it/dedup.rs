//! Equal blocks that are stored once. What users lose when these fail: files, to others that were deleted or overwritten; or the pool's space, which no
//! deletion gives back.

use crate::common::{BLOCK_BYTES, Random, create, dataset, devices, exec, host, import, leaf, opened, pattern};
use device::MemDevice;
use dmu::{NewObject, Tx};
use dsl::{DslError, DslPool, TxSpace};
use ondisk::{ObjectId, ObjectType};
use pool::{DedupSpace, ImportOptions, Pool, PoolError, PoolSpec, Runtime, TopSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::TopKind;
use zap::Zap;

const FS: &str = "tank/fs";
const OBJECTS: usize = 3;
const BLOCKS: u64 = 10;
/// Number of different contents: few, so that most are there already.
const CONTENTS: u64 = 5;
const SIZE: u64 = BLOCK_BYTES as u64;
/// Name of the directory object of a pool.
const DIRECTORY: ObjectId = ObjectId(1);

/// Contents of the blocks of each object; 0 for none.
type Files = [[u64; BLOCKS as usize]; OBJECTS];

/// A pool and what should be in it.
struct History {
    devices: Vec<Arc<MemDevice>>,
    pool: Option<Pool>,
    objects: Vec<ObjectId>,
    head: Files,
    snapshots: BTreeMap<u64, Files>,
    random: Random,
}

fn set(pool: &Pool, property: &str, value: &str) {
    pool.dsl().hold(FS).expect("held").set_props(&[(property.to_string(), value.to_string())]).expect("set");
}

fn made(pool: &Pool) -> Vec<ObjectId> {
    pool.dsl().create_dataset(FS, dataset()).expect("made");
    let handle = pool.dsl().hold(FS).expect("held");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let objset = handle.objset().expect("objset");
    let new = || NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    (0..OBJECTS).map(|_| objset.allocate_object(new(), &tx).expect("allocated").object()).collect()
}

fn put(pool: &Pool, object: ObjectId, block: u64, contents: u64) {
    let handle = pool.dsl().hold(FS).expect("held");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let dnode = handle.objset().expect("objset").hold(object).expect("object");
    match contents {
        0 => dnode.free_range(block * SIZE, SIZE, &tx).expect("freed"),
        _ => dnode.write(block * SIZE, &pattern(contents, 0), &tx).expect("written"),
    }
}

/// Number of tables of deduplication.
fn tables(pool: &Pool) -> usize {
    let mut count = 0;
    let directory = Zap::hold(pool.mos(), DIRECTORY).expect("a directory");
    directory
        .for_each(|entry| {
            count += usize::from(entry.name.starts_with(b"DDT-") && entry.name != b"DDT-statistics");
            Ok(())
        })
        .expect("readable");
    count
}

fn is_as(pool: &Pool, name: &str, objects: &[ObjectId], files: &Files, what: &str) {
    let objset = pool.dsl().hold(name).expect("held").objset().expect("objset");
    let mut bytes = vec![0; BLOCK_BYTES];
    for (object, file) in objects.iter().zip(files) {
        let dnode = objset.hold(*object).expect("object");
        for (block, contents) in file.iter().enumerate() {
            dnode.read(block as u64 * SIZE, &mut bytes).expect("readable");
            let wanted = if *contents == 0 { vec![0; BLOCK_BYTES] } else { pattern(*contents, 0) };
            assert!(bytes == wanted, "{what}: {name}, object {object}, block {block}: not contents {contents}");
        }
    }
}

impl History {
    fn new(seed: u64, dedup: &str) -> History {
        let devices = devices(2);
        let pool = create(&devices, TopKind::Mirror);
        let objects = made(&pool);
        set(&pool, "dedup", dedup);
        pool.sync().expect("synced");
        History { devices, pool: Some(pool), objects, head: Files::default(), snapshots: BTreeMap::new(), random: Random(seed) }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open")
    }

    fn step(&mut self, number: u64) {
        match self.random.below(12) {
            0 if self.snapshots.len() < 3 => {
                self.pool().dsl().snapshot(&[format!("{FS}@{number}")], Vec::new()).expect("taken");
                self.snapshots.insert(number, self.head);
            }
            1 => {
                if let Some((name, _)) = self.snapshots.pop_first() {
                    self.pool().dsl().destroy_snapshots(&[format!("{FS}@{name}")], false).expect("destroyed");
                }
            }
            2 => self.pool().sync().expect("synced"),
            3 => {
                let copies = (1 + self.random.below(3)).to_string();
                set(self.pool(), "copies", &copies);
            }
            4 => self.clone_blocks(),
            _ => {
                let (file, block) = (self.random.below(OBJECTS as u64) as usize, self.random.below(BLOCKS));
                let contents = self.random.below(CONTENTS + 1);
                put(self.pool(), self.objects[file], block, contents);
                self.head[file][block as usize] = contents;
            }
        }
    }

    /// Has the second half of an object be the first half of another, if that has not changed since the last sync.
    fn clone_blocks(&mut self) {
        let half = BLOCKS / 2;
        let from = self.random.below(OBJECTS as u64) as usize;
        let to = (from + 1 + self.random.below(2) as usize) % OBJECTS;
        self.pool().sync().expect("synced");
        let handle = self.pool().dsl().hold(FS).expect("held");
        let objset = handle.objset().expect("objset");
        let source = objset.hold(self.objects[from]).expect("object");
        let Some(pointers) = source.settled_blocks(0..half).expect("readable") else { return };
        let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
        objset.hold(self.objects[to]).expect("object").clone_blocks(half, &pointers, &tx).expect("cloned");
        let moved = self.head[from];
        self.head[to][half as usize..].copy_from_slice(&moved[..half as usize]);
    }

    /// Reads everything back, and counts how often each block is referred to.
    fn check(&mut self, what: &str) {
        self.pool.take().expect("open").export().expect("exported");
        let pool = import(&self.devices, true).expect("readable");
        is_as(&pool, FS, &self.objects, &self.head, what);
        for (name, files) in &self.snapshots {
            is_as(&pool, &format!("{FS}@{name}"), &self.objects, files, what);
        }
        let report = pool.verify_space().expect("walked");
        assert!(report.is_clean(), "{what}: {report:?}");
        pool.export().expect("closed");
        self.pool = Some(import(&self.devices, false).expect("writable"));
    }
}

/// If this fails, one of two equal files changes with the other, is lost with it, or keeps space for ever.
#[test]
fn equal_blocks_survive_random_changes() {
    for (seed, dedup) in [(1, "on"), (2, "verify"), (3, "skein"), (4, "edonr,verify"), (5, "blake3"), (6, "sha512,verify")] {
        let mut history = History::new(seed, dedup);
        for round in 0..8 {
            (0..40).for_each(|number| history.step(round * 100 + number));
            history.check(&format!("seed {seed}, {dedup}, round {round}"));
        }
        for name in std::mem::take(&mut history.snapshots).into_keys() {
            history.pool().dsl().destroy_snapshots(&[format!("{FS}@{name}")], false).expect("destroyed");
        }
        history.pool().dsl().destroy_dataset(FS).expect("destroyed");
        (0..6).for_each(|_| history.pool().sync().expect("synced"));
        let pool = history.pool();
        assert_eq!((tables(pool), pool.dedup_space()), (0, DedupSpace::default()), "seed {seed}: nobody refers to anything");
    }
}

/// If this fails, users who turned deduplication on buy disks for blocks that they have, or `zfs list` and `zpool list` tell something else.
#[test]
fn equal_blocks_are_stored_once_and_charged_to_each() {
    let devices = devices(1);
    let pool = create(&devices, TopKind::Leaf);
    let objects = made(&pool);
    set(&pool, "dedup", "on");
    // Equal blocks of one txg, then those of a later one.
    (0..BLOCKS).for_each(|block| put(&pool, objects[0], block, 1));
    pool.sync().expect("synced");
    let once = pool.dedup_space();
    assert_eq!((once.entries, once.stored_bytes, once.referenced_bytes), (1, SIZE, BLOCKS * SIZE));
    (0..BLOCKS).for_each(|block| put(&pool, objects[1], block, 1 + block % 2));
    pool.sync().expect("synced");
    let space = pool.dedup_space();
    assert_eq!((space.entries, space.stored_bytes, space.ratio_percent(), tables(&pool)), (2, 2 * SIZE, 1000, 1));
    assert!(space.table_bytes > 0);
    let referenced = pool.dsl().hold(FS).expect("held").space().referenced;
    assert!(referenced >= 2 * BLOCKS * SIZE, "each pays: {referenced}");
    assert_eq!(pool.zio().stats().dedup_writes.get(), 2 * BLOCKS - 2);
    // What is alone again is in the other table; the first one stays until both are empty.
    (1..BLOCKS).for_each(|block| put(&pool, objects[1], block, 0));
    (0..BLOCKS).for_each(|block| put(&pool, objects[0], block, 0));
    pool.sync().expect("synced");
    let last = pool.dedup_space();
    assert_eq!((last.entries, last.ratio_percent(), tables(&pool)), (1, 100, 2));
    pool.export().expect("exported");
    let pool = import(&devices, false).expect("imported");
    assert_eq!(pool.dedup_space().entries, 1, "after an import");
    pool.prefetch_dedup().expect("read");
    let all: u64 = pool.dedup_tables().iter().map(|table| table.memory_bytes).sum();
    assert_eq!(pool.dedup_cached_bytes(), all, "the tables are in memory");
    assert!(pool.verify_space().expect("walked").is_clean());
}

/// If this fails, a pool with tables that nobody here writes is written all the same: files are lost that others share.
#[test]
fn tables_of_another_kind_are_not_written() {
    let devices = devices(1);
    let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: devices.iter().map(leaf).collect() }];
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) };
    let pool = Pool::create(&exec(7), spec, &Runtime::new()).expect("created");
    let mos = pool.mos().clone();
    let plant = move |_: &Arc<DslPool>, (): (), tx: &Tx| -> Result<(), DslError> {
        Ok(Zap::hold(&mos, DIRECTORY)?.add_u64("DDT-fletcher4-zap-unique", 1, tx)?)
    };
    pool.dsl().sync_task(|_, _| Ok(()), plant).expect("planted");
    pool.export().expect("exported");
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let refused = Pool::import(&exec(8), opened(&devices), &options, &Runtime::new()).err();
    assert!(matches!(refused, Some(PoolError::UnsupportedFeatures { read_only: true, .. })), "{refused:?}");
}
