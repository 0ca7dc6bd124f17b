//! Damaged blocks that snapshots and clones share: who is told to have them, before and after clones are promoted.
use crate::common::exec;
use crate::scan_pools::*;
use device::MemDevice;
use ondisk::ObjectId;
use pool::Pool;
use std::sync::Arc;
use vdev::TopKind;

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
