//! ZAPs against a map: random programs with reopening, forced collisions, normalization, cursors, and damaged blocks.

use dmu::testing::{MemBlockIo, TestPool};
use dmu::{ObjsetProps, Tx};
use ondisk::{BlockId, ObjectId, ObjectType, ObjsetType};
use std::collections::BTreeMap;
use zap::{Attribute, CreateOptions, Match, NormFlags, Value, Zap, ZapError, ZapFlags};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn pool(seed: u64) -> TestPool {
    TestPool::create(MemBlockIo::inline(seed), ObjsetType::ZFS, ObjsetProps::default()).expect("an empty pool")
}

fn tx(pool: &TestPool) -> Tx {
    pool.txgs.assign(0).expect("a transaction")
}

fn list(zap: &Zap) -> Vec<Attribute> {
    let mut entries = Vec::new();
    zap.for_each(|entry| {
        entries.push(entry.clone());
        Ok(())
    })
    .expect("a listing");
    entries
}

fn random_value(random: &mut Random) -> Value {
    let count = 1 + random.below(40) as usize;
    match random.below(8) {
        0 => Value::U8((0..count).map(|_| random.next() as u8).collect()),
        1 => Value::U16((0..count).map(|_| random.next() as u16).collect()),
        2 => Value::U32((0..count).map(|_| random.next() as u32).collect()),
        3 => Value::U64((0..count).map(|_| random.next()).collect()),
        _ => Value::U64(vec![random.next()]),
    }
}

fn check(zap: &Zap, model: &BTreeMap<Vec<u8>, Value>) {
    assert_eq!(zap.count(), model.len() as u64);
    let entries = list(zap);
    let listed: BTreeMap<Vec<u8>, u64> = entries.iter().map(|entry| (entry.name.clone(), entry.first_integer)).collect();
    assert_eq!(entries.len(), model.len(), "every name is listed once");
    let wanted: BTreeMap<Vec<u8>, u64> = model.iter().map(|(name, value)| (name.clone(), value.to_u64s()[0])).collect();
    assert_eq!(listed, wanted);
    for (name, value) in model {
        assert_eq!(zap.lookup(name).as_ref(), Ok(value));
    }
}

fn one_step(zap: &Zap, model: &mut BTreeMap<Vec<u8>, Value>, random: &mut Random, wide: bool, tx: &Tx) {
    let length = if wide { 1 + random.below(200) } else { 1 + random.below(20) };
    let mut name = format!("{:x}", random.below(400)).into_bytes();
    name.resize(length as usize, b'n');
    let value = if wide { random_value(random) } else { Value::U64(vec![random.next()]) };
    let known = model.contains_key(&name);
    match random.below(10) {
        0..=3 => {
            let result = zap.add(&name, &value, tx);
            assert_eq!(result, if known { Err(ZapError::Exists) } else { Ok(()) });
            if !known {
                model.insert(name, value);
            }
        }
        4..=6 => {
            assert_eq!(zap.update(&name, &value, tx), Ok(()));
            model.insert(name, value);
        }
        _ => {
            let victim = model.keys().nth(random.below(model.len().max(1) as u64) as usize).cloned().unwrap_or(name);
            let result = zap.remove(&victim, tx);
            assert_eq!(result, if model.remove(&victim).is_some() { Ok(()) } else { Err(ZapError::NotFound) });
        }
    }
}

/// A directory or property that comes back different after a restart is data loss.
#[test]
fn random_programs_match_a_map() {
    for seed in 0..12 {
        let wide = seed % 2 == 1;
        let mut pool = pool(seed);
        let mut random = Random(seed);
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
        let mut model = BTreeMap::new();
        for _ in 0..8 {
            let zap = Zap::hold(&pool.objset, object).expect("opens");
            for _ in 0..120 {
                let tx = tx(&pool);
                one_step(&zap, &mut model, &mut random, wide, &tx);
            }
            check(&zap, &model);
            pool = pool.reopen().expect("reopens");
            check(&Zap::hold(&pool.objset, object).expect("opens"), &model);
        }
        assert_eq!(pool.io.violations(), Vec::<&str>::new(), "seed {seed}");
    }
}

/// Fills and empties a large directory: splits, growth of the pointer table, merging of empty leaves.
#[test]
fn grows_and_shrinks() {
    let count: u64 = std::env::var("ZAP_ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let pool = pool(7);
    let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
    let zap = Zap::hold(&pool.objset, object).expect("opens");
    for chunk in 0..count.div_ceil(1000) {
        let tx = tx(&pool);
        for index in chunk * 1000..((chunk + 1) * 1000).min(count) {
            zap.add_u64(format!("file-{index:08}"), index, &tx).expect("adds");
        }
        drop(tx);
        if chunk % 50 == 49 {
            pool.sync().expect("syncs");
        }
    }
    let entries = list(&zap);
    assert_eq!(entries.len() as u64, count);
    assert_eq!(zap.stats().expect("stats").entries, count);
    pool.sync().expect("syncs");
    let tx = tx(&pool);
    for entry in &entries {
        zap.remove(&entry.name, &tx).expect("removes");
    }
    drop(tx);
    assert_eq!((zap.count(), zap.stats().expect("stats").leaves), (0, 1), "empty leaves are merged");
    pool.sync().expect("syncs");
    assert_eq!(pool.io.violations(), Vec::<&str>::new());
}

/// Names whose hashes agree in every bit must still be told apart.
#[test]
fn equal_hashes_are_told_apart() {
    let pool = pool(3);
    let options = CreateOptions {
        flags: ZapFlags::HASH64.with(ZapFlags::UINT64_KEY).with(ZapFlags::PRE_HASHED_KEY),
        ..CreateOptions::new(ObjectType::DDT_ZAP)
    };
    let object = zap::create_with(&pool.objset, options, &tx(&pool)).expect("a new ZAP");
    let zap = Zap::hold(&pool.objset, object).expect("opens");
    // Two prefixes of 40 bits, so that the leaf must split as deep as it can.
    for index in 0..60u64 {
        let key = [0xABCD_EF01_2300_0000 | (index % 3) << 16, index];
        zap.add_words(&key, &Value::U64(vec![index; 3]), &tx(&pool)).expect("adds");
    }
    for index in 0..60u64 {
        let key = [0xABCD_EF01_2300_0000 | (index % 3) << 16, index];
        assert_eq!(zap.lookup_words(&key), Ok(Value::U64(vec![index; 3])));
        assert_eq!(zap.add_words(&key, &Value::U64(vec![0]), &tx(&pool)), Err(ZapError::Exists));
    }
    let listed = list(&zap);
    assert_eq!(listed.len(), 60);
    for entry in listed.iter().filter(|entry| entry.words[1] % 2 == 0) {
        zap.remove_words(&entry.words, &tx(&pool)).expect("removes");
    }
    let pool = pool.reopen().expect("reopens");
    let zap = Zap::hold(&pool.objset, object).expect("opens");
    let mut left: Vec<u64> = list(&zap).iter().map(|entry| entry.words[1]).collect();
    left.sort_unstable();
    assert_eq!(left, (0..60).filter(|index| index % 2 == 1).collect::<Vec<u64>>());
    assert_eq!(zap.lookup("text"), Err(ZapError::NotSupported));
}

/// All spellings of a name share a hash; exact and folding lookups must find the right one.
#[test]
fn case_insensitive_directories_find_every_spelling() {
    let pool = pool(5);
    let options = CreateOptions { norm: NormFlags::TOUPPER.with(NormFlags::FORM_D), ..CreateOptions::new(ObjectType::DIRECTORY_CONTENTS) };
    let object = zap::create_with(&pool.objset, options, &tx(&pool)).expect("a new ZAP");
    let zap = Zap::hold(&pool.objset, object).expect("opens");
    let spelling = |bits: u32| -> String { (0..7).map(|bit| if bits >> bit & 1 == 1 { 'A' } else { 'a' }).collect() };
    for bits in 0..128 {
        zap.add_u64(spelling(bits), bits.into(), &tx(&pool)).expect("adds");
        if bits == 50 {
            let found = zap.lookup_norm("AaAaAaA", Match::Normalize).expect("finds");
            assert_eq!((found.value.as_u64(), found.conflict), (Some(0), true), "the first spelling, with the lowest cd");
        }
    }
    for bits in 0..128 {
        assert_eq!(zap.lookup_u64(spelling(bits)), Ok(bits.into()));
        let found = zap.lookup_norm(spelling(bits), Match::NormalizeMatchCase).expect("finds");
        assert_eq!(found.value.as_u64(), Some(bits.into()));
    }
    zap.add_u64("caf\u{e9}", 1000, &tx(&pool)).expect("adds");
    let found = zap.lookup_norm("CAFE\u{301}", Match::Normalize).expect("finds the other form");
    assert_eq!((found.name, found.conflict), ("caf\u{e9}".as_bytes().to_vec(), false));
    assert!(list(&zap).iter().filter(|entry| entry.name.len() == 7).all(|entry| entry.conflict));
    zap.remove_norm("AAAAAAA", Match::Normalize, &tx(&pool)).expect("removes one spelling");
    assert_eq!(zap.count(), 128);
    let plain = zap::create(&pool.objset, ObjectType::ZAP_OTHER, &tx(&pool)).expect("a new ZAP");
    let plain = Zap::hold(&pool.objset, plain).expect("opens");
    assert_eq!(plain.lookup_norm("a", Match::Normalize), Err(ZapError::NotSupported));
}

/// A program that reads a directory in pieces, while names come and go, must see every name that stays exactly once.
#[test]
fn positions_survive_changes_and_reopening() {
    let mut pool = pool(9);
    for fat in [false, true] {
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
        let count = if fat { 3000 } else { 200 };
        let tx1 = tx(&pool);
        let zap = Zap::hold(&pool.objset, object).expect("opens");
        (0..count).for_each(|index| zap.add_u64(format!("stays-{index}"), index, &tx1).expect("adds"));
        drop((tx1, zap));
        let mut seen = BTreeMap::new();
        let (mut position, mut round) = (0u64, 0u64);
        loop {
            pool = pool.reopen().expect("reopens");
            let zap = Zap::hold(&pool.objset, object).expect("opens");
            let mut cursor = zap.cursor_at(position);
            let mut entry = Attribute::default();
            let mut more = true;
            for _ in 0..count / 10 {
                more = cursor.next_into(&mut entry).expect("walks");
                if !more {
                    break;
                }
                if entry.name.starts_with(b"stays") {
                    *seen.entry(entry.name.clone()).or_insert(0) += 1;
                }
            }
            position = cursor.serialize();
            if !more {
                assert_eq!(position, zap::CURSOR_END);
                break;
            }
            assert!(position < 1 << 34, "offsets stay small for 32-bit programs");
            let tx = tx(&pool);
            (0..50).for_each(|index| zap.add_u64(format!("comes-{round}-{index}"), 1, &tx).expect("adds"));
            if round > 0 {
                (0..50).for_each(|index| zap.remove(format!("comes-{}-{index}", round - 1), &tx).expect("removes"));
            }
            round += 1;
        }
        assert_eq!((seen.len() as u64, seen.values().all(|times| *times == 1)), (count, true));
    }
}

/// Limits of the format: what OpenZFS refuses is refused here, with the same reasons.
#[test]
fn limits_are_kept() {
    let pool = pool(11);
    let object = zap::create(&pool.objset, ObjectType::DSL_PROPS, &tx(&pool)).expect("a new ZAP");
    let zap = Zap::hold(&pool.objset, object).expect("opens");
    let tx = tx(&pool);
    assert_eq!(zap.add_u64("x".repeat(256), 1, &tx), Err(ZapError::NameTooLong));
    assert_eq!(zap.add_u64("x".repeat(255), 777, &tx), Ok(()));
    assert_eq!(zap.add_u64("", 1, &tx), Err(ZapError::BadName));
    assert_eq!(zap.add("big", &Value::U8(vec![1; 8193]), &tx), Err(ZapError::ValueTooBig));
    assert_eq!(zap.add("big", &Value::U8(vec![1; 8192]), &tx), Ok(()));
    assert_eq!(zap.lookup_u64("big"), Err(ZapError::WrongType));
    assert_eq!(zap.increment("n", 5, &tx), Ok(5));
    assert_eq!(zap.increment("n", -5, &tx), Ok(0));
    assert_eq!(zap.contains("n"), Ok(false));
    assert_eq!(zap.value_search(777, 0), Ok(vec![b'x'; 255]));
}

/// A hostile image must give an error, not a crash or an endless loop.
#[test]
fn damaged_blocks_are_refused() {
    for seed in 0..200u64 {
        let pool = pool(seed);
        let mut random = Random(seed);
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
        let count = if seed % 4 == 0 { 20 } else { 600 };
        {
            let zap = Zap::hold(&pool.objset, object).expect("opens");
            let tx = tx(&pool);
            (0..count).for_each(|index| zap.add(format!("n{index}"), &Value::U64(vec![index; 1 + seed as usize % 5]), &tx).expect("adds"));
            let info = zap.dnode().info().expect("info");
            for _ in 0..1 + random.below(8) {
                let block = BlockId(random.below(info.max_block.0 + 1));
                let range = if random.below(2) == 0 { 64 } else { info.block_size as u64 };
                let at = random.below(range) as usize;
                let value = random.next() as u8;
                zap.dnode().modify_block(block, &tx, |bytes| bytes[at] = value).expect("modifies");
            }
        }
        let pool = pool.reopen().expect("reopens");
        exercise(&pool, object, count, &mut random);
    }
}

/// Uses a possibly damaged ZAP in every way; results don't matter.
fn exercise(pool: &TestPool, object: ObjectId, count: u64, random: &mut Random) {
    let Ok(zap) = Zap::hold(&pool.objset, object) else { return };
    let mut cursor = zap.cursor();
    let mut entry = Attribute::default();
    for _ in 0..4 * count {
        if !matches!(cursor.next_into(&mut entry), Ok(true)) {
            break;
        }
    }
    let _ = zap.stats();
    let tx = tx(pool);
    for _ in 0..100 {
        let name = format!("n{}", random.below(2 * count));
        let _ = zap.lookup(&name);
        let _ = match random.below(3) {
            0 => zap.add_u64(&name, 1, &tx),
            1 => zap.update(&name, &Value::U8(vec![7; 300]), &tx),
            _ => zap.remove(&name, &tx),
        };
    }
}

/// If this fails, a directory loses names when a block of it cannot be read or written in the middle of a change.
#[test]
fn a_change_that_fails_changes_nothing() {
    for seed in 0..10 {
        let wide = seed % 2 == 1;
        let (mut pool, mut random, mut model) = (pool(seed), Random(seed), BTreeMap::new());
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
        let mut failures = 0;
        for _ in 0..5 {
            let zap = Zap::hold(&pool.objset, object).expect("opens");
            for step in 0..250 {
                let (mut name, value) = (format!("{:x}", random.below(900)).into_bytes(), random_value(&mut random));
                name.resize(if wide { 1 + random.below(200) as usize } else { 3 }, b'n');
                let value = if wide { value } else { Value::U64(vec![random.next()]) };
                let tx = tx(&pool);
                // What is dirty already cannot fail, so that most changes are of fresh blocks.
                pool.objset.fail_change_after(1 + random.below(4));
                let removes = random.below(3) == 0 && model.contains_key(&name);
                let result = if removes { zap.remove(&name, &tx) } else { zap.update(&name, &value, &tx) };
                pool.objset.fail_change_after(0);
                match result {
                    Ok(()) if removes => drop(model.remove(&name)),
                    Ok(()) => drop(model.insert(name, value)),
                    Err(error) => {
                        assert_eq!(error, ZapError::Dmu(dmu::BlockError::Io.into()));
                        failures += 1;
                    }
                }
                drop(tx);
                if step % 9 == 0 {
                    check(&zap, &model);
                    pool.sync().expect("syncs");
                }
            }
            check(&zap, &model);
            pool = pool.reopen().expect("reopens");
            check(&Zap::hold(&pool.objset, object).expect("opens"), &model);
        }
        assert!(failures > 50, "{failures} failures");
        assert_eq!((pool.check(), pool.io.violations()), (Ok(()), Vec::new()), "seed {seed}");
    }
}

/// If this fails, a directory is empty after the moment in which it became a large one, when a block failed in it.
#[test]
fn growing_out_of_one_block_can_fail_at_every_step() {
    for step in 1.. {
        let pool = pool(step);
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
        let zap = Zap::hold(&pool.objset, object).expect("opens");
        let mut model: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
        for index in 0..300u64 {
            let name = format!("name-{index}").into_bytes();
            zap.add(&name, &Value::U64(vec![index]), &tx(&pool)).expect("adds");
            model.insert(name, Value::U64(vec![index]));
        }
        let pool = pool.reopen().expect("reopens");
        let zap = Zap::hold(&pool.objset, object).expect("opens");
        let long = vec![b'l'; 100];
        pool.objset.fail_change_after(step);
        let added = zap.add_u64(&long, 7, &tx(&pool));
        let failed = pool.objset.fail_change_after(0);
        assert_eq!(added.is_err(), failed, "step {step}");
        if !failed {
            assert!(step > 4, "{step} steps");
            break;
        }
        check(&zap, &model);
        let pool = pool.reopen().expect("reopens");
        check(&Zap::hold(&pool.objset, object).expect("opens"), &model);
        assert_eq!((pool.check(), pool.io.violations()), (Ok(()), Vec::new()), "step {step}");
    }
}

/// If this fails, one name too many with the same hash makes a pointer table of half a gigabyte before it is refused.
#[test]
fn names_that_nothing_tells_apart_are_refused_at_once() {
    let pool = pool(3);
    let options = CreateOptions { norm: NormFlags::TOUPPER, ..CreateOptions::new(ObjectType::DIRECTORY_CONTENTS) };
    let object = zap::create_with(&pool.objset, options, &tx(&pool)).expect("a new ZAP");
    let zap = Zap::hold(&pool.objset, object).expect("opens");
    let name = |index: u64| -> Vec<u8> { (0..12).map(|bit| b'a' + bit - 32 * (index >> bit & 1) as u8).collect() };
    let refused = (0..1 << 12)
        .find(|&index| zap.add_u64(name(index), index, &tx(&pool)).inspect_err(|error| assert_eq!(*error, ZapError::Full)).is_err());
    let count = refused.expect("a leaf has an end");
    assert_eq!(zap.count(), count);
    assert!((0..count).all(|index| zap.lookup_u64(name(index)) == Ok(index)), "what was there is there");
    zap.add_u64("another", 1, &tx(&pool)).expect("other names have room");
    pool.sync().expect("syncs");
    assert!(zap.dnode().info().expect("facts").used_bytes < 1 << 20);
}

/// If this fails, OpenZFS takes a directory's only block for more than it can have; or one that the pool may have is made, and the dataset does not say so.
#[test]
fn micro_zaps_grow_beyond_the_old_limit_where_they_may() {
    zap::set_micro_bytes_max(1 << 20);
    for large_micro_zaps in [false, true] {
        let props = ObjsetProps { large_micro_zaps, ..ObjsetProps::default() };
        let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, props).expect("an empty pool");
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx(&pool)).expect("a new ZAP");
        let zap = Zap::hold(&pool.objset, object).expect("opens");
        let mut model = BTreeMap::new();
        let mut add = |index: u64, length: usize| {
            let name = format!("{index:0length$}").into_bytes();
            zap.add_u64(&name, index, &tx(&pool)).expect("it is added");
            model.insert(name, Value::U64(vec![index]));
        };
        (0..2047).for_each(|index| add(index, 8));
        let is_micro = || zap.dnode().info().expect("facts").max_block == BlockId(0);
        assert!(is_micro() && !pool.objset.has_large_micro_zaps(), "128 KiB are full");
        (2047..2100).for_each(|index| add(index, 8));
        assert_eq!((is_micro(), pool.objset.has_large_micro_zaps()), (large_micro_zaps, large_micro_zaps));
        pool.sync().expect("syncs");
        let pool = pool.reopen().expect("reopens");
        let zap = Zap::hold(&pool.objset, object).expect("opens");
        check(&zap, &model);
        // A name that no slot holds makes it fat.
        let long = vec![b'l'; 100];
        zap.add_u64(&long, 7, &tx(&pool)).expect("it is added");
        model.insert(long, Value::U64(vec![7]));
        pool.sync().expect("syncs");
        check(&Zap::hold(&pool.objset, object).expect("opens"), &model);
        assert_eq!((pool.check(), pool.io.violations()), (Ok(()), Vec::new()));
    }
}
