//! Blocks that objects share. What users lose when these fail: files, to others that were deleted; or the pool's space, which no deletion gives back.

use crate::common::{BLOCK_BYTES, Random, create, dataset, devices, exec, guids, host, import, leaf, pattern};
use device::MemDevice;
use dmu::{DmuError, Dnode, NewObject};
use dsl::TxSpace;
use ondisk::{BlockPtr, ObjectId, ObjectType};
use pool::{FEATURES, Pool, PoolSpec, Runtime, SharedSpace, TopSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use vdev::{Pairing, TopKind};

const FS: &str = "tank/fs";
const BRANCH: &str = "tank/branch";
const OBJECTS: usize = 3;
const BLOCKS: u64 = 12;
const FEATURE: &str = "block_cloning";
const SIZE: u64 = BLOCK_BYTES as u64;

/// Block of an object: what is in it, and which of the pointers to that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    contents: u64,
    pointer: u64,
}

/// Blocks of each object.
type Files = [BTreeMap<u64, Slot>; OBJECTS];

/// A pool and what should be in it.
struct History {
    devices: Vec<Arc<MemDevice>>,
    pool: Option<Pool>,
    objects: Vec<ObjectId>,
    head: Files,
    snapshots: BTreeMap<u64, Files>,
    next: u64,
    random: Random,
}

fn dnode(pool: &Pool, object: ObjectId) -> Arc<Dnode> {
    pool.dsl().hold(FS).expect("held").objset().expect("objset").hold(object).expect("object")
}

fn change<R>(pool: &Pool, object: ObjectId, change: impl FnOnce(&Dnode, &dmu::Tx) -> R) -> R {
    let handle = pool.dsl().hold(FS).expect("held");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    change(&handle.objset().expect("objset").hold(object).expect("object"), &tx)
}

fn made(pool: &Pool) -> Vec<ObjectId> {
    pool.dsl().create_dataset(FS, dataset()).expect("made");
    let handle = pool.dsl().hold(FS).expect("held");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let objset = handle.objset().expect("objset");
    let new = || NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
    (0..OBJECTS).map(|_| objset.allocate_object(new(), &tx).expect("allocated").object()).collect()
}

/// Pointers of blocks, after a sync where that takes one.
fn settled(pool: &Pool, object: ObjectId, blocks: &Range<u64>) -> Vec<BlockPtr> {
    loop {
        match dnode(pool, object).settled_blocks(blocks.clone()).expect("readable") {
            Some(pointers) => return pointers,
            None => pool.sync().expect("synced"),
        }
    }
}

impl History {
    fn new(seed: u64) -> History {
        let devices = devices(2);
        let pool = create(&devices, TopKind::Mirror);
        let objects = made(&pool);
        pool.sync().expect("synced");
        History { devices, pool: Some(pool), objects, head: Files::default(), snapshots: BTreeMap::new(), next: 1, random: Random(seed) }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open")
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn run(&mut self) -> (usize, Range<u64>) {
        let (file, first) = (self.random.below(OBJECTS as u64) as usize, self.random.below(BLOCKS));
        (file, first..(first + 1 + self.random.below(4)).min(BLOCKS))
    }

    fn write(&mut self) {
        let (file, blocks) = self.run();
        for block in blocks {
            let slot = Slot { contents: self.fresh(), pointer: self.fresh() };
            change(self.pool(), self.objects[file], |dnode, tx| dnode.write(block * SIZE, &pattern(slot.contents, 0), tx))
                .expect("written");
            self.head[file].insert(block, slot);
        }
    }

    /// Writes a part of a block: whoever shared it keeps what it had.
    fn write_part(&mut self) {
        let (file, blocks) = self.run();
        let Some(old) = self.head[file].get(&blocks.start).copied() else { return };
        let slot = Slot { contents: self.fresh(), pointer: self.fresh() };
        let bytes = pattern(slot.contents, 0);
        let (start, object) = (blocks.start * SIZE, self.objects[file]);
        change(self.pool(), object, |dnode, tx| dnode.write(start, &bytes[..BLOCK_BYTES / 2], tx)).expect("written");
        let mut half = vec![0; BLOCK_BYTES / 2];
        dnode(self.pool(), object).read(start + SIZE / 2, &mut half).expect("read");
        assert_eq!(half, pattern(old.contents, 0)[BLOCK_BYTES / 2..], "the rest is what it was");
        change(self.pool(), object, |dnode, tx| dnode.write(start + SIZE / 2, &bytes[BLOCK_BYTES / 2..], tx)).expect("written");
        self.head[file].insert(blocks.start, slot);
    }

    fn clone_run(&mut self) {
        let ((from, blocks), (to, place)) = (self.run(), self.run());
        let length = (blocks.end - blocks.start).min(BLOCKS - place.start);
        let (blocks, first) = (blocks.start..blocks.start + length, place.start);
        if from == to && blocks.start < first + length && first < blocks.end {
            return;
        }
        let pointers = settled(self.pool(), self.objects[from], &blocks);
        change(self.pool(), self.objects[to], |dnode, tx| dnode.clone_blocks(first, &pointers, tx)).expect("cloned");
        for (block, at) in blocks.zip(first..) {
            match self.head[from].get(&block).copied() {
                Some(slot) => {
                    let pointer = self.fresh();
                    self.head[to].insert(at, Slot { pointer, ..slot });
                }
                None => drop(self.head[to].remove(&at)),
            }
        }
    }

    fn free(&mut self) {
        let (file, blocks) = self.run();
        let length = (blocks.end - blocks.start) * SIZE;
        change(self.pool(), self.objects[file], |dnode, tx| dnode.free_range(blocks.start * SIZE, length, tx)).expect("freed");
        self.head[file].retain(|block, _| !blocks.contains(block));
    }

    fn snapshot(&mut self) {
        let number = self.fresh();
        self.pool().dsl().snapshot(&[format!("{FS}@{number}")], Vec::new()).expect("taken");
        self.snapshots.insert(number, self.head.clone());
    }

    fn destroy_snapshot(&mut self) {
        let which = self.random.below(self.snapshots.len().max(1) as u64) as usize;
        let Some(number) = self.snapshots.keys().nth(which).copied() else { return };
        self.pool().dsl().destroy_snapshots(&[format!("{FS}@{number}")], false).expect("destroyed");
        self.snapshots.remove(&number);
    }

    fn roll_back(&mut self) {
        let Some((number, files)) = self.snapshots.last_key_value().map(|(number, files)| (*number, files.clone())) else { return };
        self.pool().sync().expect("synced");
        self.pool().dsl().rollback(&format!("{FS}@{number}")).expect("went back");
        self.head = files;
    }

    /// Has a clone of a snapshot come to share blocks of its own and of its origin, and go: nothing is left of it.
    fn branch(&mut self) {
        let Some(number) = self.snapshots.last_key_value().map(|(number, _)| *number) else { return };
        let pool = self.pool();
        pool.dsl().clone_snapshot(BRANCH, &format!("{FS}@{number}"), Vec::new()).expect("cloned");
        for pair in self.objects.windows(2) {
            let handle = pool.dsl().hold(BRANCH).expect("held");
            let objset = handle.objset().expect("objset");
            let [source, target] = [pair[0], pair[1]].map(|object| objset.hold(object).expect("object"));
            let pointers = loop {
                match source.settled_blocks(0..BLOCKS).expect("readable") {
                    Some(pointers) => break pointers,
                    None => pool.sync().expect("synced"),
                }
            };
            let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
            target.clone_blocks(0, &pointers, &tx).expect("shared");
        }
        pool.sync().expect("synced");
        assert!(pool.verify_space().expect("readable").is_clean(), "with a clone");
        pool.dsl().destroy_dataset(BRANCH).expect("destroyed");
    }

    fn reopen(&mut self) {
        self.pool.take().expect("open").export().expect("exported");
        self.pool = Some(import(&self.devices, false).expect("imported"));
    }

    fn step(&mut self) {
        match self.random.below(17) {
            0..4 => self.write(),
            4 => self.write_part(),
            5..10 => self.clone_run(),
            10 => self.free(),
            11 | 12 => self.snapshot(),
            13 => self.destroy_snapshot(),
            14 => self.roll_back(),
            15 => self.branch(),
            _ => self.reopen(),
        }
    }

    /// Space that should be shared: a pointer that the head has from a snapshot is one pointer.
    fn shared(&self) -> SharedSpace {
        let mut pointers: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for slot in self.snapshots.values().chain([&self.head]).flatten().flat_map(BTreeMap::values) {
            pointers.entry(slot.contents).or_default().insert(slot.pointer);
        }
        let further = pointers.values().map(|all| all.len() as u64 - 1).filter(|further| *further > 0);
        further.fold(SharedSpace::default(), |sum, further| SharedSpace {
            used_bytes: sum.used_bytes + SIZE,
            saved_bytes: sum.saved_bytes + further * SIZE,
        })
    }

    fn check(&self, what: &str) {
        let pool = self.pool();
        pool.sync().expect("synced");
        while pool.dsl().has_frees() {
            pool.sync().expect("synced");
        }
        pool.cache().clear();
        for (object, blocks) in self.objects.iter().zip(&self.head) {
            let dnode = dnode(pool, *object);
            for block in 0..BLOCKS {
                let mut bytes = vec![0; BLOCK_BYTES];
                dnode.read(block * SIZE, &mut bytes).expect("read");
                let expected = blocks.get(&block).map_or_else(|| vec![0; BLOCK_BYTES], |slot| pattern(slot.contents, 0));
                assert!(bytes == expected, "{what}: object {object}, block {block}");
            }
        }
        let space = self.shared();
        assert_eq!(pool.shared_space(), space, "{what}");
        let references = pool.features().into_iter().find(|(name, ..)| name == FEATURE).and_then(|(.., references)| references);
        assert_eq!(references, Some(u64::from(space.used_bytes > 0)), "{what}");
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}: {report:?}");
    }
}

/// If this fails, what shares blocks is not independent: a write, a deletion, a snapshot's end or an import changes what others see, or space is
/// lost or used twice.
#[test]
fn random_histories_share_blocks_and_nothing_else() {
    for seed in 0..8 {
        let mut history = History::new(seed * 977 + 5);
        for round in 0..60 {
            history.step();
            if round % 3 == 0 {
                history.check(&format!("seed {seed}, step {round}"));
            }
        }
        history.snapshots.clear();
        history.head = Files::default();
        let left = snapshots(history.pool());
        if !left.is_empty() {
            history.pool().dsl().destroy_snapshots(&left, false).expect("destroyed");
        }
        history.pool().dsl().destroy_dataset(FS).expect("destroyed");
        history.objects.clear();
        history.check(&format!("seed {seed}, at the end"));
    }
}

fn snapshots(pool: &Pool) -> Vec<String> {
    pool.dsl().snapshots(FS).expect("listed").iter().map(|entry| format!("{FS}@{}", entry.name)).collect()
}

/// If this fails, a file that was cloned while the other was truncated, or written, has what becomes free, or bytes of nobody (OpenZFS 18842).
#[test]
fn what_waits_for_a_sync_is_not_shared() {
    let devices = devices(2);
    let pool = create(&devices, TopKind::Mirror);
    let [first, second, _] = made(&pool)[..] else { panic!("three objects") };
    let all = 0..4;
    let write = |block: u64, age: u64| change(&pool, first, |dnode, tx| dnode.write(block * SIZE, &pattern(age, 0), tx)).expect("written");
    let is_settled = || dnode(&pool, first).settled_blocks(all.clone()).expect("readable").is_some();
    all.clone().for_each(|block| write(block, 1));
    assert!(!is_settled(), "dirty");
    pool.sync().expect("synced");
    assert!(is_settled());
    change(&pool, first, |dnode, tx| dnode.free_range(SIZE, SIZE, tx)).expect("freed");
    assert!(!is_settled(), "a block in it waits to be freed");
    pool.sync().expect("synced");
    let pointers = settled(&pool, first, &all);
    assert!(pointers[1].is_hole() && !pointers[0].is_hole());
    change(&pool, second, |dnode, tx| dnode.clone_blocks(0, &pointers, tx)).expect("cloned");
    assert!(dnode(&pool, second).settled_blocks(0..1).expect("readable").is_none(), "a clone waits for its sync, too");
    // In the txg of the clone the source goes: the clone keeps its blocks.
    change(&pool, first, |dnode, tx| dnode.free_range(0, u64::MAX, tx)).expect("freed");
    pool.sync().expect("synced");
    assert_eq!(pool.shared_space(), SharedSpace::default());
    assert!(pool.verify_space().expect("readable").is_clean());
    pool.cache().clear();
    let mut bytes = vec![0; BLOCK_BYTES];
    dnode(&pool, second).read(0, &mut bytes).expect("read");
    assert!(bytes == pattern(1, 0));
}

/// If this fails, a clone that is written over or deleted before it is on disk leaves a reference that nobody has: its space never comes back.
#[test]
fn a_clone_that_does_not_last_leaves_nothing() {
    let devices = devices(2);
    let pool = create(&devices, TopKind::Mirror);
    let [first, second, third] = made(&pool)[..] else { panic!("three objects") };
    let write = |object, block: u64| change(&pool, object, |dnode, tx| dnode.write(block * SIZE, &pattern(7, block), tx)).expect("written");
    (0..4).for_each(|block| write(first, block));
    let pointers = settled(&pool, first, &(0..4));
    for object in [second, third] {
        change(&pool, object, |dnode, tx| dnode.clone_blocks(0, &pointers, tx)).expect("cloned");
    }
    change(&pool, second, |dnode, tx| dnode.clone_blocks(0, &pointers[..2], tx)).expect("cloned again");
    write(second, 0);
    change(&pool, second, |dnode, tx| dnode.free_range(SIZE, SIZE, tx)).expect("freed");
    {
        let handle = pool.dsl().hold(FS).expect("held");
        let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
        handle.objset().expect("objset").free_object(third, &tx).expect("freed");
    }
    pool.sync().expect("synced");
    assert_eq!(pool.shared_space(), SharedSpace { used_bytes: 2 * SIZE, saved_bytes: 2 * SIZE });
    assert!(pool.verify_space().expect("readable").is_clean());
}

/// If this fails, a device that came back is taken for whole though it lacks blocks: they came to be shared where the resilver had been, and went where it
/// was yet to come.
#[test]
fn nothing_comes_to_be_shared_while_a_device_is_resilvered() {
    let devices = devices(2);
    let pool = create(&devices[..1], TopKind::Leaf);
    let [first, second, _] = made(&pool)[..] else { panic!("three objects") };
    change(&pool, first, |dnode, tx| dnode.write(0, &pattern(1, 0), tx)).expect("written");
    let pointers = settled(&pool, first, &(0..1));
    let cloned = || change(&pool, second, |dnode, tx| dnode.clone_blocks(0, &pointers, tx));
    pool.attach(guids(&pool)[0], &leaf(&devices[1]), Pairing::Mirror, false).expect("attached");
    assert_eq!(cloned(), Err(DmuError::NotSupported));
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert_eq!(cloned(), Ok(()));
    pool.sync().expect("synced");
    assert!(pool.verify_space().expect("readable").is_clean());
}

/// If this fails, a pool gets blocks that software without the feature frees twice.
#[test]
fn pools_without_the_feature_share_nothing() {
    let devices = devices(2);
    let names = FEATURES.iter().filter(|feature| feature.on_new_pools && feature.name != FEATURE).map(|feature| feature.name.to_string());
    let tops = vec![TopSpec { kind: TopKind::Mirror, leaves: devices.iter().map(leaf).collect() }];
    let spec = PoolSpec { host: host(), features: Some(names.collect()), ..PoolSpec::new("tank", tops, dataset()) };
    let pool = Pool::create(&exec(7), spec, &Runtime::new()).expect("created");
    let [first, second, _] = made(&pool)[..] else { panic!("three objects") };
    change(&pool, first, |dnode, tx| dnode.write(0, &pattern(1, 0), tx)).expect("written");
    let pointers = settled(&pool, first, &(0..1));
    let cloned = || change(&pool, second, |dnode, tx| dnode.clone_blocks(0, &pointers, tx));
    assert_eq!(cloned(), Err(DmuError::NotSupported));
    pool.enable_feature(FEATURE).expect("enabled");
    assert_eq!(cloned(), Ok(()));
    pool.sync().expect("synced");
    assert!(pool.verify_space().expect("readable").is_clean());
}
