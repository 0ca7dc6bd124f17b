//! Damaged blocks that snapshots and clones share: who is told to have them, before and after clones are promoted, datasets destroyed, and
//! the error log changed to one by head dataset.
use crate::common::{exec, tops};
use crate::scan_pools::*;
use device::MemDevice;
use ondisk::ObjectId;
use pool::{Pool, PoolSpec, Runtime};
use std::sync::Arc;
use vdev::TopKind;
use zap::Zap;

/// Block that is damaged.
const DAMAGED: u64 = 2;

/// A pool with a file system `fs`, and clones of it one after the other, `c1` of `fs@1`, `c2` of `c1@2`, `c3` of `c2@3`, that all share one object.
fn branches(devices: &[Arc<MemDevice>]) -> (Pool, ObjectId) {
    let pool = create(&exec(7), devices, TopKind::Leaf);
    pool.dsl().create_dataset("tank/fs", dataset()).expect("created");
    let object = write(&pool, "tank/fs", None, 0..4, 1);
    pool.sync().expect("synced");
    let mut head = "tank/fs".to_string();
    for number in 1..=3 {
        let (snapshot, clone) = (format!("{head}@{number}"), format!("tank/c{number}"));
        pool.dsl().snapshot(std::slice::from_ref(&snapshot), Vec::new()).expect("snapshot");
        pool.dsl().clone_snapshot(&clone, &snapshot, Vec::new()).expect("cloned");
        head = clone;
    }
    (pool, object)
}

/// Damages the block, and has it found by a scrub, or by a read of the last clone.
fn find_damage(pool: &Pool, devices: &[Arc<MemDevice>], object: ObjectId, by_scrub: bool) {
    assert_eq!(damage(devices, &pattern(1, DAMAGED)), 1);
    pool.cache().clear();
    if by_scrub {
        assert_eq!(scrub(pool).errors, 1);
    } else {
        assert!(!read_block(pool, "tank/c3", object, DAMAGED));
        pool.sync().expect("synced");
    }
}

/// Checks that the block is damaged in these datasets and in no other.
fn is_in(pool: &Pool, object: ObjectId, names: &[&str]) {
    let (count, damaged) = pool.damaged_counted().expect("log");
    assert_eq!(damaged, damage_of(pool, names, object, DAMAGED), "{names:?}");
    assert_eq!(count, u64::from(!names.is_empty()), "one block, however many have it");
}

/// Names in the logs, with the sizes of the integers that they lead to.
fn logged(pool: &Pool) -> Vec<(String, u8)> {
    let directory = Zap::hold(pool.mos(), ObjectId(1)).expect("directory");
    let logs = ["errlog_scrub", "errlog_last"].map(|log| directory.try_lookup_u64(log).expect("directory").unwrap_or(0));
    let mut names = Vec::new();
    for log in logs.into_iter().filter(|log| *log != 0) {
        let log = Zap::hold(pool.mos(), ObjectId(log)).expect("log");
        log.for_each(|entry| {
            names.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.integer_size));
            Ok(())
        })
        .expect("log");
    }
    names
}

/// If this fails, `zpool status -v` keeps quiet about damaged files of clones, and their owners rely on them.
#[test]
fn damage_is_named_in_every_branch_that_has_it_and_in_no_other() {
    for by_scrub in [true, false] {
        let devices = devices(1);
        let (pool, object) = branches(&devices);
        find_damage(&pool, &devices, object, by_scrub);
        is_in(&pool, object, &["tank/fs", "tank/fs@1", "tank/c1", "tank/c1@2", "tank/c2", "tank/c2@3", "tank/c3"]);
        // What comes from a branch that is rid of it has it as little.
        for (name, seed) in [("tank/fs", 50), ("tank/c2", 51)] {
            write(&pool, name, Some(object), DAMAGED..DAMAGED + 1, seed);
        }
        pool.sync().expect("synced");
        pool.dsl().snapshot(&["tank/c2@x".to_string()], Vec::new()).expect("snapshot");
        pool.dsl().clone_snapshot("tank/cx", "tank/c2@x", Vec::new()).expect("cloned");
        is_in(&pool, object, &["tank/fs@1", "tank/c1", "tank/c1@2", "tank/c2@3", "tank/c3"]);
        pool.dsl().promote("tank/c1").expect("promoted");
        is_in(&pool, object, &["tank/c1@1", "tank/c1", "tank/c1@2", "tank/c2@3", "tank/c3"]);
        pool.export().expect("exported");
        is_in(&import(&devices), object, &["tank/c1@1", "tank/c1", "tank/c1@2", "tank/c2@3", "tank/c3"]);
    }
}

/// If this fails, a pool whose file system was replaced by a clone, or one of whose clones was destroyed, calls what is left free of errors.
#[test]
fn damage_is_known_until_the_last_who_has_it_is_rid_of_it() {
    for by_scrub in [true, false] {
        let devices = devices(1);
        let (pool, object) = branches(&devices);
        find_damage(&pool, &devices, object, by_scrub);
        pool.dsl().promote("tank/c1").expect("promoted");
        pool.dsl().destroy_dataset("tank/fs").expect("destroyed");
        is_in(&pool, object, &["tank/c1@1", "tank/c1", "tank/c1@2", "tank/c2", "tank/c2@3", "tank/c3"]);
        pool.export().expect("exported");
        let pool = import(&devices);
        is_in(&pool, object, &["tank/c1@1", "tank/c1", "tank/c1@2", "tank/c2", "tank/c2@3", "tank/c3"]);
        pool.dsl().destroy_dataset("tank/c3").expect("destroyed");
        is_in(&pool, object, &["tank/c1@1", "tank/c1", "tank/c1@2", "tank/c2", "tank/c2@3"]);
        pool.dsl().destroy_snapshots(&["tank/c2@3".to_string()], false).expect("destroyed");
        pool.dsl().destroy_dataset("tank/c2").expect("destroyed");
        is_in(&pool, object, &["tank/c1@1", "tank/c1", "tank/c1@2"]);
        let head = pool.dsl().hold("tank/c1").expect("held").object();
        assert_eq!(logged(&pool), vec![(format!("{head:x}"), 8)], "no other head's number is left");
        pool.dsl().destroy_snapshots(&["tank/c1@1".to_string(), "tank/c1@2".to_string()], false).expect("destroyed");
        write(&pool, "tank/c1", Some(object), DAMAGED..DAMAGED + 1, 52);
        pool.sync().expect("synced");
        is_in(&pool, object, &[]);
        pool.sync().expect("synced");
        assert_eq!(logged(&pool), Vec::new(), "it has left the log");
        assert_eq!(scrub(&pool).errors, 0);
    }
}

/// If this fails, whoever enables `head_errlog` is told of a damaged file in one place while others have it too; and OpenZFS takes a log of
/// blocks for one of head datasets, and panics.
#[test]
fn errors_logged_before_head_errlog_are_named_in_every_place_once_it_is_enabled() {
    let devices = devices(1);
    let kept = pool::FEATURES.iter().filter(|feature| feature.on_new_pools && feature.name != "head_errlog");
    let features = Some(kept.map(|feature| feature.name.to_string()).collect());
    let spec = PoolSpec::new("tank", tops(&[(TopKind::Leaf, 1)], &devices), dataset());
    let pool = Pool::create(&exec(7), PoolSpec { host: host(), features, ..spec }, &Runtime::new()).expect("created");
    pool.dsl().create_dataset("tank/fs", dataset()).expect("created");
    let object = write(&pool, "tank/fs", None, 0..4, 1);
    pool.sync().expect("synced");
    assert_eq!(damage(&devices, &pattern(1, DAMAGED)), 1);
    pool.cache().clear();
    assert!(!read_block(&pool, "tank/fs", object, DAMAGED));
    pool.sync().expect("synced");
    pool.dsl().snapshot(&["tank/fs@one".to_string()], Vec::new()).expect("snapshot");
    pool.dsl().clone_snapshot("tank/clone", "tank/fs@one", Vec::new()).expect("cloned");
    is_in(&pool, object, &["tank/fs"]);
    let fs = pool.dsl().hold("tank/fs").expect("held").object();
    assert_eq!(logged(&pool), vec![(format!("{fs:x}:{:x}:0:{DAMAGED:x}", object.0), 1)], "the form without the feature");

    pool.enable_feature("head_errlog").expect("enabled");
    assert_eq!(logged(&pool), vec![(format!("{fs:x}"), 8)], "the form with it, from the same txg on");
    is_in(&pool, object, &["tank/fs", "tank/fs@one", "tank/clone"]);
    pool.export().expect("exported");
    let pool = import(&devices);
    write(&pool, "tank/fs", Some(object), DAMAGED..DAMAGED + 1, 50);
    pool.sync().expect("synced");
    is_in(&pool, object, &["tank/fs@one", "tank/clone"]);
    assert_eq!(scrub(&pool).errors, 1);
    is_in(&pool, object, &["tank/fs@one", "tank/clone"]);
}
