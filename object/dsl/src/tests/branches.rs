//! Clones that are promoted, and datasets that go back to a snapshot: what is refused, who is whose clone afterwards, and what that costs.

use super::{TestPool, filesystem, with_props, write};
use crate::{DatasetSpace, DslError, DslPool, PoolServices, PropValue, TxSpace, features};
use dmu::{NewObject, Tx};
use ondisk::{ObjectId, ObjectType};
use std::sync::Arc;

fn snapshot(pool: &TestPool, name: &str) {
    pool.dsl.snapshot(&[name.to_string()], Vec::new()).expect("snapshots");
}

fn clone(pool: &TestPool, name: &str, origin: &str) {
    pool.dsl.clone_snapshot(name, origin, Vec::new()).expect("clones");
}

fn destroy(pool: &TestPool, snapshot: &str) -> Result<(), DslError> {
    pool.dsl.destroy_snapshots(&[snapshot.to_string()], false)
}

fn set(pool: &TestPool, name: &str, property: &str, value: &str) {
    pool.dsl.hold(name).and_then(|handle| handle.set_props(&[(property.to_string(), value.to_string())])).expect("sets");
}

fn prop(pool: &TestPool, name: &str, property: &str) -> PropValue {
    pool.dsl.hold(name).and_then(|handle| handle.prop(property)).expect("a property").value
}

fn text(value: &str) -> PropValue {
    PropValue::Text(value.to_string())
}

fn first_byte(pool: &TestPool, name: &str, object: u64) -> u8 {
    let objset = pool.dsl.hold(name).and_then(|handle| handle.objset()).expect("opens");
    let mut byte = [0];
    objset.hold(ObjectId(object)).expect("exists").read(0, &mut byte).expect("reads");
    byte[0]
}

/// A file system with snapshots `1`, `2`, `3`, each with other bytes; gives the object of its file.
fn with_snapshots(pool: &TestPool, name: &str) -> u64 {
    pool.dsl.create_dataset(name, filesystem()).expect("creates");
    let mut object = 0;
    for age in 1..=3u8 {
        object = write(pool, name, object, 0, &[age; 50_000]).expect("writes");
        snapshot(pool, &format!("{name}@{age}"));
    }
    object
}

/// Upgrades by old systems could leave a clone out of the table of its snapshot: if this fails, the pool stops when such a clone gets a snapshot, or goes.
#[test]
fn clones_that_their_snapshot_does_not_name_live_and_go() {
    let pool = TestPool::create(5);
    with_snapshots(&pool, "tank/fs");
    for name in ["tank/a", "tank/b"] {
        clone(&pool, name, "tank/fs@2");
    }
    let origin = pool.dsl.tree.find("tank/fs@2").expect("exists").phys().ds_next_clones_obj;
    let clones = ["tank/a", "tank/b"].map(|name| pool.dsl.tree.find(name).expect("exists").object);
    let forget = move |dsl: &Arc<DslPool>, (): (), tx: &Tx| -> Result<(), DslError> {
        let table = dsl.tree.meta.zap(origin)?;
        for clone in clones {
            table.remove_int(clone, tx)?;
        }
        Ok(())
    };
    pool.dsl.sync_task(|_, _| Ok(()), forget).expect("forgotten");
    snapshot(&pool, "tank/a@s");
    destroy(&pool, "tank/a@s").expect("destroyed");
    for name in ["tank/a", "tank/b"] {
        pool.dsl.destroy_dataset(name).expect("destroyed");
    }
    destroy(&pool, "tank/fs@2").expect("nothing is its clone any more");
    pool.drain();
    pool.check();
}

/// If this fails, whoever puts a clone in the place of what it was made from loses the snapshots, or cannot destroy what they no longer want.
#[test]
fn what_was_promoted_has_the_snapshots_and_the_other_one_can_go() {
    let mut pool = TestPool::create(41);
    let object = with_snapshots(&pool, "tank/a");
    clone(&pool, "tank/b", "tank/a@2");
    clone(&pool, "tank/c", "tank/a@1");
    clone(&pool, "tank/d", "tank/a@3");
    write(&pool, "tank/b", object, 0, &[77; 30_000]).expect("writes");
    snapshot(&pool, "tank/b@own");
    assert_eq!(pool.dsl.promote("tank/b"), Ok(()));
    pool.drain();
    pool.check();
    pool = pool.reopen();
    assert_eq!((prop(&pool, "tank/a", "origin"), prop(&pool, "tank/b", "origin")), (text("tank/b@2"), PropValue::None));
    assert_eq!((prop(&pool, "tank/c", "origin"), prop(&pool, "tank/d", "origin")), (text("tank/b@1"), text("tank/a@3")));
    assert_eq!((prop(&pool, "tank/b@1", "clones"), prop(&pool, "tank/b@2", "clones")), (text("tank/c"), text("tank/a")));
    let names = |name: &str| pool.dsl.snapshots(name).expect("lists").into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    assert_eq!((names("tank/a"), names("tank/b")), (vec!["3".to_string()], ["1", "2", "own"].map(String::from).to_vec()));
    for (name, byte) in [("tank/a", 3), ("tank/a@3", 3), ("tank/b@1", 1), ("tank/b@2", 2), ("tank/b", 77), ("tank/c", 1), ("tank/d", 3)] {
        assert_eq!(first_byte(&pool, name, object), byte, "{name}");
    }
    assert_eq!(pool.dsl.promote("tank/b"), Err(DslError::NotClone), "it is none any more");
    // The whole chain turns round.
    assert_eq!(pool.dsl.promote("tank/d"), Ok(()));
    assert_eq!(prop(&pool, "tank/a", "origin"), text("tank/d@3"));
    assert_eq!(prop(&pool, "tank/d", "origin"), text("tank/b@2"));
    pool.drain();
    pool.check();
    assert_eq!(pool.dsl.destroy_dataset("tank/a"), Ok(()));
    assert_eq!(destroy(&pool, "tank/b@2"), Err(DslError::HasClones));
    assert_eq!(pool.dsl.promote("tank/d"), Ok(()));
    assert_eq!(destroy(&pool, "tank/d@1"), Err(DslError::HasClones), "what is a clone's clone is still one");
    assert_eq!(pool.dsl.destroy_dataset("tank/c"), Ok(()));
    assert_eq!((destroy(&pool, "tank/b@own"), pool.dsl.destroy_dataset("tank/b")), (Ok(()), Ok(())));
    for name in ["tank/d@2", "tank/d@1", "tank/d@3"] {
        assert_eq!(destroy(&pool, name), Ok(()), "{name}");
        pool.drain();
        pool.check();
    }
    assert_eq!(first_byte(&pool, "tank/d", object), 3);
}

/// If this fails, a snapshot is lost to another one of its name, or changes hands under somebody who reads it.
#[test]
fn a_promotion_that_cannot_be_changes_nothing() {
    let pool = TestPool::create(42);
    with_snapshots(&pool, "tank/a");
    clone(&pool, "tank/b", "tank/a@2");
    snapshot(&pool, "tank/b@1");
    assert_eq!(pool.dsl.promote("tank/a"), Err(DslError::NotClone));
    assert_eq!(pool.dsl.promote("tank/a@1"), Err(DslError::IsSnapshot));
    assert_eq!(pool.dsl.promote("tank/b"), Err(DslError::Conflict { name: "1".to_string() }));
    assert_eq!(destroy(&pool, "tank/b@1"), Ok(()));
    let handle = pool.dsl.hold("tank/a@1").expect("holds");
    assert_eq!(pool.dsl.promote("tank/b"), Err(DslError::Busy));
    drop(handle);
    pool.drain();
    // The snapshots come out of the clone's quota.
    let used = pool.dsl.hold("tank/b").expect("holds").space().used;
    set(&pool, "tank/b", "quota", &(used + 20_000).to_string());
    assert_eq!(pool.dsl.promote("tank/b"), Err(DslError::NoSpace));
    set(&pool, "tank/b", "quota", "none");
    assert_eq!(pool.dsl.promote("tank/b"), Ok(()));
    pool.drain();
    pool.check();
}

/// If this fails, a rollback leaves what came after the snapshot, takes what the snapshot has, or lets the pool fill up with either.
#[test]
fn what_goes_back_to_a_snapshot_is_as_it_was() {
    let mut pool = TestPool::create(43);
    pool.drain();
    let object = with_snapshots(&pool, "tank/a");
    pool.drain();
    // Of the pool's own more or less may be in use.
    let space = |pool: &TestPool| DatasetSpace { available: 0, ..pool.dsl.hold("tank/a").expect("holds").space() };
    let before = (pool.dsl.mos().object_count(), space(&pool));
    for round in 0..3u8 {
        // Some of it is not on disk yet, and half of it is new.
        write(&pool, "tank/a", object, 0, &[50 + round; 20_000]).expect("writes");
        pool.sync();
        let new = write(&pool, "tank/a", 0, 0, &[9; 90_000]).expect("writes");
        write(&pool, "tank/a", object, 30_000, &[60 + round; 9000]).expect("writes");
        assert_eq!(pool.dsl.rollback("tank/a@3"), Ok(()));
        assert_eq!(first_byte(&pool, "tank/a", object), 3);
        let objset = pool.dsl.hold("tank/a").and_then(|handle| handle.objset()).expect("opens");
        assert!(objset.hold(ObjectId(new)).and_then(|dnode| dnode.info()).is_err(), "the snapshot has no such file");
        drop(objset);
        pool.drain();
        pool.check();
        assert_eq!((pool.dsl.mos().object_count(), space(&pool)), before, "round {round}");
        pool = pool.reopen();
    }
    write(&pool, "tank/a", object, 0, &[99; 100]).expect("is written to as before");
    assert_eq!(destroy(&pool, "tank/a@3"), Ok(()));
    assert_eq!(pool.dsl.rollback("tank/a@2"), Ok(()));
    let last =
        pool.services.events.lock().iter().rev().take(2).map(|event| format!("{} {}", event.name, event.dataset)).collect::<Vec<_>>();
    assert_eq!(last, ["destroy tank/a/%rollback", "clone swap tank/a/%rollback"], "as in OpenZFS, whose scripts look for it");
    assert_eq!(first_byte(&pool, "tank/a", object), 2);
    pool.drain();
    pool.check();
}

/// If this fails, a file system changes under whoever has it open, or has more than was promised to others.
#[test]
fn a_rollback_that_cannot_be_changes_nothing() {
    let pool = TestPool::create(44);
    let object = with_snapshots(&pool, "tank/a");
    assert_eq!(pool.dsl.rollback("tank/a"), Err(DslError::NotSnapshot));
    assert_eq!(pool.dsl.rollback("tank/a@no"), Err(DslError::NotFound));
    assert_eq!(pool.dsl.rollback("tank/a@2"), Err(DslError::Exists), "there is a newer one");
    let handle = pool.dsl.hold("tank/a").expect("holds");
    assert_eq!(pool.dsl.rollback("tank/a@3"), Err(DslError::Busy));
    drop(handle);
    // It became smaller, and may have no more than that.
    let handle = pool.dsl.hold("tank/a").expect("holds");
    let objset = handle.objset().expect("opens");
    let tx = handle.assign(TxSpace::Frees).expect("room");
    objset.hold(ObjectId(object)).expect("exists").free_range(4096, u64::MAX, &tx).expect("frees");
    drop((tx, objset, handle));
    pool.drain();
    let referenced = pool.dsl.hold("tank/a").expect("holds").space().referenced;
    set(&pool, "tank/a", "refquota", &(referenced + 10_000).to_string());
    assert_eq!(pool.dsl.rollback("tank/a@3"), Err(DslError::Quota));
    set(&pool, "tank/a", "refquota", "none");
    set(&pool, "tank/a", "refreservation", "300K");
    write(&pool, "tank/a", object, 0, &[5; 200_000]).expect("writes");
    pool.drain();
    {
        let mut space = pool.services.space.lock();
        space.usable_bytes = pool.dsl.used_bytes() + 50_000 + space.slop_bytes;
    }
    assert_eq!(pool.dsl.rollback("tank/a@3"), Err(DslError::NoSpace), "what is reserved has to be there once more at first");
    pool.services.space.lock().usable_bytes += 1 << 20;
    assert_eq!(pool.dsl.rollback("tank/a@3"), Ok(()));
    pool.drain();
    pool.check();
}

/// If this fails, a pool goes on to need a feature that nothing in it uses, or does not say that it needs one.
#[test]
fn what_goes_back_needs_the_features_of_the_snapshot() {
    let pool = TestPool::create(45);
    pool.dsl.create_dataset("tank/a", with_props(&[("refreservation", "2M")])).expect("creates");
    snapshot(&pool, "tank/a@small");
    let handle = pool.dsl.hold("tank/a").expect("holds");
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("room");
    let new = NewObject { block_size: 256 << 10, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = handle.objset().and_then(|objset| Ok(objset.allocate_object(new, &tx)?)).expect("allocates");
    dnode.write(0, &vec![5; 256 << 10], &tx).expect("writes");
    drop((tx, dnode, handle));
    pool.sync();
    assert_eq!(pool.services.feature_refs(features::LARGE_BLOCKS), 1);
    snapshot(&pool, "tank/a@large");
    clone(&pool, "tank/b", "tank/a@large");
    assert_eq!(pool.services.feature_refs(features::LARGE_BLOCKS), 3);
    assert_eq!(pool.dsl.promote("tank/b"), Ok(()));
    pool.check_features();
    assert_eq!(pool.dsl.rollback("tank/b@large"), Ok(()));
    pool.check_features();
    assert_eq!(pool.dsl.promote("tank/a"), Ok(()));
    assert_eq!((pool.dsl.destroy_dataset("tank/b"), destroy(&pool, "tank/a@large")), (Ok(()), Ok(())));
    assert_eq!(pool.dsl.rollback("tank/a@small"), Ok(()));
    assert_eq!(pool.services.feature_refs(features::LARGE_BLOCKS), 0);
    pool.drain();
    pool.check_features();
    pool.check();
}

/// If this fails, pools without the features of today lose space with every rollback.
#[test]
fn pools_with_older_features_go_back_too() {
    const NONE: &[&str] = &[features::ASYNC_DESTROY, features::EMPTY_BPOBJ, features::EXTENSIBLE_DATASET];
    let pool = TestPool::create_without(dmu::testing::MemBlockIo::inline(46), NONE);
    let object = with_snapshots(&pool, "tank/a");
    write(&pool, "tank/a", object, 0, &[9; 70_000]).expect("writes");
    assert_eq!(pool.dsl.rollback("tank/a@3"), Ok(()));
    clone(&pool, "tank/b", "tank/a@2");
    assert_eq!(pool.dsl.promote("tank/b"), Ok(()));
    pool.drain();
    pool.check();
}
