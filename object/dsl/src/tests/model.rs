//! Random programs of writes, snapshots, clones, promotions, rollbacks, destroys and renames against a model of contents, with every
//! counter of space recomputed from the blocks.

use super::{TestPool, filesystem, write};
use crate::{DslError, PoolServices, TxSpace, features};
use dmu::testing::MemBlockIo;
use dmu::{BlockIo, NewObject};
use ondisk::names::spa_version;
use ondisk::{BlockPtr, ObjectId, ObjectType};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

type Content = BTreeMap<u64, Vec<u8>>;

/// Numbers that follow from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
    pub(super) fn pick<'a>(&mut self, names: &'a [String]) -> &'a str {
        &names[self.below(names.len() as u64) as usize]
    }
}

/// Expected heads and snapshots by full name.
#[derive(Default)]
struct Model {
    contents: BTreeMap<String, Content>,
    /// Clone → origin snapshot.
    origins: BTreeMap<String, String>,
    serial: u64,
}

impl Model {
    fn heads(&self) -> Vec<String> {
        self.contents.keys().filter(|name| !name.contains('@')).cloned().collect()
    }
    fn snapshots(&self) -> Vec<String> {
        self.contents.keys().filter(|name| name.contains('@')).cloned().collect()
    }
    fn fresh(&mut self, prefix: &str) -> String {
        self.serial += 1;
        format!("{prefix}{}", self.serial)
    }
    fn is_origin(&self, snapshot: &str) -> bool {
        self.origins.values().any(|origin| origin == snapshot)
    }
}

fn step(pool: &TestPool, model: &mut Model, random: &mut Random) {
    match random.below(29) {
        0..=8 => write_something(pool, model, random),
        9 => {
            let name = format!("{}/{}", random.pick(&model.heads()), model.fresh("f"));
            pool.dsl.create_dataset(&name, filesystem()).expect("creates");
            model.contents.insert(name, Content::new());
        }
        10..=12 => {
            let head = random.pick(&model.heads()).to_string();
            let name = format!("{head}@{}", model.fresh("s"));
            pool.dsl.snapshot(std::slice::from_ref(&name), Vec::new()).expect("takes a snapshot");
            let content = model.contents[&head].clone();
            model.contents.insert(name, content);
        }
        13..=14 => destroy_snapshot(pool, model, random),
        15 => clone(pool, model, random),
        16..=17 => destroy_head(pool, model, random),
        18 => rename(pool, model, random),
        19..=21 => reserve(pool, model, random),
        22..=24 => promote(pool, model, random),
        25..=27 => roll_back(pool, model, random),
        _ => pool.sync(),
    }
}

fn write_something(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let head = random.pick(&model.heads()).to_string();
    let content = &model.contents[&head];
    let known: Vec<u64> = content.keys().copied().collect();
    let object = if known.len() < 4 { 0 } else { known[random.below(known.len() as u64) as usize] };
    let offset = random.below(40) * 1024;
    let data = vec![1 + random.below(255) as u8; 1 + random.below(9000) as usize];
    let object = write(pool, &head, object, offset, &data).expect("writes");
    let file = model.contents.get_mut(&head).expect("known").entry(object).or_default();
    let end = offset as usize + data.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset as usize..end].copy_from_slice(&data);
}

fn destroy_snapshot(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let snapshots = model.snapshots();
    if snapshots.is_empty() {
        return;
    }
    let name = random.pick(&snapshots).to_string();
    let result = pool.dsl.destroy_snapshots(std::slice::from_ref(&name), false);
    if model.is_origin(&name) {
        assert_eq!(result, Err(DslError::HasClones));
    } else {
        assert_eq!(result, Ok(()));
        model.contents.remove(&name);
    }
}

fn clone(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let snapshots = model.snapshots();
    if snapshots.is_empty() {
        return;
    }
    let origin = random.pick(&snapshots).to_string();
    let name = format!("tank/{}", model.fresh("c"));
    pool.dsl.clone_snapshot(&name, &origin, Vec::new()).expect("clones");
    let content = model.contents[&origin].clone();
    model.contents.insert(name.clone(), content);
    model.origins.insert(name, origin);
}

fn destroy_head(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let heads: Vec<String> = model.heads().into_iter().filter(|name| name != "tank").collect();
    if heads.is_empty() {
        return;
    }
    let name = random.pick(&heads).to_string();
    let result = pool.dsl.destroy_dataset(&name);
    if model.contents.keys().any(|other| other.starts_with(&format!("{name}@"))) {
        assert_eq!(result, Err(DslError::HasSnapshots));
    } else if model.contents.keys().any(|other| other.starts_with(&format!("{name}/"))) {
        assert_eq!(result, Err(DslError::HasChildren));
    } else {
        assert_eq!(result, Ok(()));
        model.contents.remove(&name);
        model.origins.remove(&name);
    }
}

/// Number by which a snapshot is older or younger than others.
fn age(snapshot: &str) -> u64 {
    let (_, name) = snapshot.split_once('@').expect("a snapshot");
    name[1..].parse().expect("a number")
}

/// Has a clone take the snapshots up to its origin, and what it was made from become its clone.
fn promote(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let heads = model.heads();
    let clone = random.pick(&heads).to_string();
    let Some(origin) = model.origins.get(&clone).cloned() else {
        assert_eq!(pool.dsl.promote(&clone), Err(DslError::NotClone));
        return;
    };
    assert_eq!(pool.dsl.promote(&clone), Ok(()), "{clone} of {origin}");
    let (other, _) = origin.split_once('@').expect("a snapshot");
    let moved = |name: &str| match name.split_once('@') {
        Some((of, snapshot)) if of == other && age(name) <= age(&origin) => format!("{clone}@{snapshot}"),
        _ => name.to_string(),
    };
    model.contents = std::mem::take(&mut model.contents).into_iter().map(|(name, content)| (moved(&name), content)).collect();
    model.origins = std::mem::take(&mut model.origins).into_iter().map(|(name, origin)| (name, moved(&origin))).collect();
    match model.origins.remove(other) {
        Some(above) => model.origins.insert(clone.clone(), above),
        None => model.origins.remove(&clone),
    };
    model.origins.insert(other.to_string(), moved(&origin));
}

/// Has a head go back to one of its snapshots, which has to be the newest.
fn roll_back(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let snapshots = model.snapshots();
    if snapshots.is_empty() {
        return;
    }
    let name = random.pick(&snapshots).to_string();
    let (head, _) = name.split_once('@').expect("a snapshot");
    let is_newest = !snapshots.iter().any(|other| other.starts_with(&format!("{head}@")) && age(other) > age(&name));
    if !is_newest {
        assert_eq!(pool.dsl.rollback(&name), Err(DslError::Exists), "{name} is not the newest");
        return;
    }
    assert_eq!(pool.dsl.rollback(&name), Ok(()), "{name}");
    let content = model.contents[&name].clone();
    model.contents.insert(head.to_string(), content);
}

/// Keeps some room for a dataset, more or less than it has, or none any longer.
fn reserve(pool: &TestPool, model: &Model, random: &mut Random) {
    let property = ["reservation", "refreservation"][random.below(2) as usize];
    let bytes = [0, 100_000, 2 << 20, 8 << 20][random.below(4) as usize];
    let handle = pool.dsl.hold(random.pick(&model.heads())).expect("exists");
    let result = handle.set_props(&[(property.to_string(), bytes.to_string())]);
    if property == "refreservation" && pool.services.version() < spa_version::REFRESERVATION {
        assert_eq!(result, Err(DslError::OldVersion(spa_version::REFRESERVATION)));
        return;
    }
    result.expect("there is room");
}

fn rename(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let heads: Vec<String> = model.heads().into_iter().filter(|name| name != "tank").collect();
    if heads.is_empty() {
        return;
    }
    let from = random.pick(&heads).to_string();
    let parent = random.pick(&model.heads()).to_string();
    let to = format!("{parent}/{}", model.fresh("r"));
    let result = pool.dsl.rename(&from, &to);
    if parent == from || parent.starts_with(&format!("{from}/")) {
        assert_eq!(result, Err(DslError::BadName));
        return;
    }
    assert_eq!(result, Ok(()));
    let moved = |name: &str| match name.strip_prefix(&from) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '@']) => format!("{to}{rest}"),
        _ => name.to_string(),
    };
    model.contents = std::mem::take(&mut model.contents).into_iter().map(|(name, content)| (moved(&name), content)).collect();
    model.origins = std::mem::take(&mut model.origins).into_iter().map(|(name, origin)| (moved(&name), moved(&origin))).collect();
}

fn compare(pool: &TestPool, model: &Model) {
    let mut names: Vec<String> = pool.all_datasets().into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, model.contents.keys().cloned().collect::<Vec<String>>());
    for (name, content) in &model.contents {
        let objset = pool.dsl.hold(name).expect("exists").objset().expect("opens");
        for (object, bytes) in content {
            let mut read = vec![0; bytes.len()];
            objset.hold(ObjectId(*object)).expect("exists").read(0, &mut read).expect("reads");
            assert!(read == *bytes, "contents of object {object} in {name}");
        }
    }
}

/// Has livelists in many parts or in one, which clones keep for longer or shorter.
fn tune(pool: &TestPool, seed: u64) {
    pool.dsl.tune_livelists([500_000, 3, 20][seed as usize % 3], [75, 0][seed as usize % 2]);
}

/// What users lose when this fails: files, snapshots, or space that never comes back.
#[test]
fn random_programs_match_the_model() {
    let seeds = std::env::var("DSL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for seed in 0..seeds {
        run(TestPool::create(seed), seed, &[]);
    }
}

/// Before version 26 what died is on one list, and before version 11 nothing tells which clones a snapshot has: if this fails, old pools, or those that
/// were upgraded, lose blocks that snapshots have, or never get back what these had.
#[test]
fn random_programs_match_the_model_in_old_pools() {
    let ways = [&[1][..], &[2, 3, 11], &[3, 25, 26], &[10, 13, 28, 5000], &[1, 5000], &[14, 26, 5000], &[25, 5000], &[8, 12, 15, 5000]];
    for (seed, versions) in ways.into_iter().enumerate() {
        let Some((first, later)) = versions.split_first() else { continue };
        run(TestPool::create_old(seed as u64, *first), seed as u64, later);
    }
}

/// Runs a random program, in the course of which the pool goes to these versions.
fn run(mut pool: TestPool, seed: u64, versions: &[u64]) {
    let (mut random, mut versions) = (Random(seed), versions.iter());
    tune(&pool, seed);
    let mut model = Model::default();
    model.contents.insert("tank".to_string(), Content::new());
    for index in 0..150 {
        step(&pool, &mut model, &mut random);
        if index % 20 == 19 {
            // In the middle of whatever is being freed.
            pool = pool.reopen();
            tune(&pool, seed);
        }
        if index % 5 == 4 {
            pool.drain();
            pool.check();
        }
        if index % 20 == 19 {
            compare(&pool, &model);
        }
        if let (34, Some(version)) = (index % 35, versions.clone().next()) {
            versions.next();
            pool.upgrade(*version);
            pool.drain();
            pool.check();
        }
    }
    pool.check_features();
}

/// A pool that was emptied again must be as empty as before: nothing of destroyed datasets stays behind.
#[test]
fn everything_comes_back() {
    const NONE: &[&str] = &[features::ASYNC_DESTROY, features::EMPTY_BPOBJ, features::EXTENSIBLE_DATASET];
    for without in [&[][..], &NONE[..1], &NONE[1..2], &NONE[2..], NONE] {
        comes_back(&TestPool::create_without(MemBlockIo::inline(1), without));
    }
}

fn comes_back(pool: &TestPool) {
    pool.drain();
    let objects = pool.dsl.mos().object_count();
    let zapified = || pool.services.feature_refs(features::EXTENSIBLE_DATASET);
    let before = zapified();
    for round in 0..3 {
        pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
        let mut object = 0;
        for index in 0..6u64 {
            object = write(pool, "tank/a", object, index * 4096, &[index as u8 + 1; 20000]).expect("writes");
            pool.dsl.snapshot(&[format!("tank/a@{index}")], Vec::new()).expect("snapshots");
        }
        pool.dsl.clone_snapshot("tank/b", "tank/a@3", Vec::new()).expect("clones");
        write(pool, "tank/b", object, 0, &[77; 50000]).expect("writes");
        for bookmark in ["tank/a#one", "tank/a#two", "tank/b#one"] {
            pool.dsl.create_bookmark(bookmark, "tank/a@1").expect("makes a bookmark");
        }
        pool.dsl.hold_snapshots(&["tank/a@3".to_string()], "tag").expect("holds");
        pool.dsl.release_snapshots(&["tank/a@3".to_string()], "tag").expect("releases");
        assert_eq!(pool.dsl.destroy_snapshots(&["tank/a@3".to_string()], false), Err(DslError::HasClones));
        pool.dsl.destroy_snapshots(&["tank/a@3".to_string()], true).expect("is marked");
        pool.dsl.destroy_dataset("tank/b").expect("destroys the clone and the marked snapshot");
        assert_eq!(pool.dsl.hold("tank/a@3").map(|_| ()), Err(DslError::NotFound));
        pool.dsl.destroy_snapshots(&["tank/a@0".to_string()], true).expect("destroys");
        assert_eq!(pool.dsl.hold("tank/a@0").map(|_| ()), Err(DslError::NotFound), "nobody needs it: it goes at once");
        let rest: Vec<String> = [1, 2, 4, 5].map(|index| format!("tank/a@{index}")).to_vec();
        pool.dsl.destroy_snapshots(&rest, false).expect("destroys");
        pool.dsl.destroy_dataset("tank/a").expect("destroys");
        pool.drain();
        pool.check();
        assert_eq!((pool.dsl.mos().object_count(), zapified()), (objects, before), "round {round}");
    }
}

/// If this fails, what a destroyed snapshot of a large file held never comes back, or is freed while others have it.
#[test]
fn long_lists_of_dead_blocks_are_moved_whole() {
    // A list of more than 1024 blocks is not copied: another one refers to it.
    const BLOCKS: usize = 1100;
    let pool = TestPool::create(31);
    pool.services.frees_max.store(700, Ordering::Relaxed);
    pool.drain();
    let before = pool.dsl.mos().object_count();
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let handle = pool.dsl.hold("tank/a").expect("holds");
    let objset = handle.objset().expect("opens");
    let new = NewObject { block_size: 512, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = objset.allocate_object(new, &handle.assign(TxSpace::Writes(512)).expect("room")).expect("allocates");
    for round in 0..9u8 {
        // Every block outlives some snapshots, and most of a list are of one age.
        let first = usize::from(round % 3) * BLOCKS;
        let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("room");
        dnode.write(first as u64 * 512, &vec![round + 1; BLOCKS * 512], &tx).expect("writes");
        drop(tx);
        pool.dsl.snapshot(&[format!("tank/a@{round}")], Vec::new()).expect("snapshots");
    }
    pool.dsl.clone_snapshot("tank/b", "tank/a@5", Vec::new()).expect("clones");
    drop((dnode, objset, handle));
    pool.drain();
    pool.check();
    let mut pool = pool;
    // Lists are merged into their neighbours' and those into others, and all at once.
    for names in [&["2"][..], &["3"], &["1", "6"], &["4", "0"], &["7", "8"]] {
        let names: Vec<String> = names.iter().map(|name| format!("tank/a@{name}")).collect();
        pool.dsl.destroy_snapshots(&names, false).expect("destroys");
        pool.sync();
        pool = pool.reopen();
        pool.drain();
        pool.check();
    }
    pool.dsl.destroy_dataset("tank/b").expect("destroys");
    pool.dsl.destroy_snapshots(&["tank/a@5".to_string()], false).expect("destroys");
    pool.drain();
    pool.dsl.destroy_dataset("tank/a").expect("destroys");
    let mut queued = 0;
    let count = |bp: &BlockPtr| {
        queued += pool.io.dsize(bp);
        Ok(())
    };
    pool.dsl.for_each_queued(&mut { count }).expect("reads");
    assert!(queued > 1 << 20, "a scrub reads what waits too: {queued} bytes");
    assert_eq!(pool.dsl.freeing_bytes(), queued, "as zpool get freeing says");
    pool.drain();
    pool.check();
    assert_eq!((pool.dsl.freeing_bytes(), pool.dsl.mos().object_count()), (0, before));
}
