//! Who may write, and who has to wait, when limits are near.

use super::{TestPool, filesystem, with_props, write};
use crate::{DslError, PoolServices, TxSpace, features};
use dmu::NewObject;
use ondisk::ObjectType;
use std::sync::atomic::Ordering;

fn set(pool: &TestPool, name: &str, property: &str, value: &str) -> Result<(), DslError> {
    pool.dsl.hold(name)?.set_props(&[(property.to_string(), value.to_string())])
}

fn assign(pool: &TestPool, name: &str, space: TxSpace) -> Result<(), DslError> {
    pool.dsl.hold(name)?.assign(space).map(drop)
}

/// Has the pool offer so many bytes more than it uses.
fn offer(pool: &TestPool, more: u64) {
    pool.drain();
    let mut space = pool.services.space.lock();
    space.usable_bytes = pool.dsl.used_bytes() + more + space.slop_bytes;
}

/// If this fails, a full pool cannot be tidied up, or is filled to the last byte by what may only write.
#[test]
fn half_of_the_reserve_is_for_what_frees() {
    let pool = TestPool::create(21);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    offer(&pool, 0);
    let slop = pool.services.space.lock().slop_bytes;
    assert_eq!(assign(&pool, "tank/a", TxSpace::Writes(1)), Err(DslError::NoSpace));
    assert_eq!(assign(&pool, "tank/a", TxSpace::Frees), Ok(()));
    pool.services.space.lock().usable_bytes -= slop / 2 - (1 << 20);
    assert_eq!(assign(&pool, "tank/a", TxSpace::Frees), Ok(()), "half of it is there for this");
    pool.drain();
    pool.services.space.lock().usable_bytes -= 2 << 20;
    assert_eq!(assign(&pool, "tank/a", TxSpace::Frees), Err(DslError::NoSpace), "the other half is the pool's own");
}

/// If this fails, nobody can rename a dataset of a full pool.
#[test]
fn what_stays_under_its_parent_is_renamed_in_a_full_pool() {
    let pool = TestPool::create(24);
    for name in ["tank/a", "tank/b"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    write(&pool, "tank/a", 0, 0, &[1; 4096]).expect("writes");
    offer(&pool, 0);
    pool.services.space.lock().usable_bytes -= 1000;
    assert_eq!(pool.dsl.rename("tank/a", "tank/c"), Ok(()));
}

/// If this fails, snapshots change, or a pool that was opened for reading is written to.
#[test]
fn what_is_read_only_gets_no_transaction() {
    let pool = TestPool::create(22);
    write(&pool, "tank", 0, 0, &[1; 4096]).expect("writes");
    pool.dsl.snapshot(&["tank@s".to_string()], Vec::new()).expect("snapshots");
    assert_eq!(assign(&pool, "tank@s", TxSpace::Frees), Err(DslError::ReadOnly));
    let pool = pool.reopen_read_only();
    assert_eq!(assign(&pool, "tank", TxSpace::Frees), Err(DslError::ReadOnly));
}

/// If this fails, a writer is told that the pool is full while space that was freed is about to be there, or it waits for ever.
#[test]
fn freed_space_that_rests_is_waited_for_a_while() {
    let pool = TestPool::create(23);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let rest = |bytes: u64, settles: bool| {
        offer(&pool, 100_000);
        pool.services.space.lock().deferred_bytes = bytes;
        pool.services.settles.store(settles, Ordering::Relaxed);
    };
    let synced = |space: TxSpace| {
        let before = pool.txgs.open_txg().0;
        (assign(&pool, "tank/a", space), pool.txgs.open_txg().0 - before)
    };
    rest(0, false);
    assert_eq!(synced(TxSpace::Writes(1)), (Ok(()), 0));
    rest(1 << 20, true);
    assert_eq!(synced(TxSpace::Writes(1)), (Ok(()), 1), "it came with the first txg");
    rest(1 << 20, false);
    let (result, txgs) = synced(TxSpace::Writes(1));
    assert_eq!(result, Err(DslError::NoSpace));
    assert!((8..100).contains(&txgs), "it never comes, and after a while the writer hears so: {txgs} txgs");
    // More is in use than there will be with what rests.
    offer(&pool, 0);
    pool.services.space.lock().usable_bytes -= 1 << 20;
    pool.services.space.lock().deferred_bytes = 4096;
    assert_eq!(synced(TxSpace::Writes(1)), (Err(DslError::NoSpace), 0));
}

/// If this fails, a write that found no room is refused though space comes, or repeated for ever.
#[test]
fn who_waited_for_freed_space_is_told_whether_some_came() {
    let pool = TestPool::create(24);
    let waited = |bytes: u64, settles: bool| {
        pool.services.space.lock().deferred_bytes = bytes;
        pool.services.settles.store(settles, Ordering::Relaxed);
        let before = pool.txgs.open_txg();
        let came = pool.dsl.hold("tank").expect("holds").wait_for_freed().expect("waits");
        assert!(pool.txgs.open_txg() > before, "a txg was synced");
        came
    };
    assert!(!waited(0, false), "nothing rests");
    assert!(waited(1, false), "some still rests");
    assert!(waited(1, true), "all of it came");
}

/// A verb that makes something of the name it gets.
type Verb<'a> = &'a dyn Fn(&str) -> Result<(), DslError>;

/// If this fails, whoever removes files of a full pool is told for some seconds that there is no room for a snapshot, a file system or a clone.
#[test]
fn who_makes_something_waits_for_freed_space_as_writers_do() {
    let pool = TestPool::create(31);
    pool.dsl.snapshot(&["tank@origin".to_string()], Vec::new()).expect("snapshots");
    let snapshot = |name: &str| pool.dsl.snapshot(&[format!("tank@{name}")], Vec::new());
    let create = |name: &str| pool.dsl.create_dataset(&format!("tank/{name}"), filesystem());
    let clone = |name: &str| pool.dsl.clone_snapshot(&format!("tank/{name}-clone"), "tank@origin", Vec::new());
    for make in [&snapshot as Verb, &create, &clone] {
        for (settles, made) in [(true, Ok(())), (false, Err(DslError::NoSpace))] {
            offer(&pool, 1 << 20);
            pool.services.space.lock().deferred_bytes = 2 << 20;
            pool.services.settles.store(settles, Ordering::Relaxed);
            let before = pool.txgs.open_txg().0;
            assert_eq!(make(if settles { "a" } else { "b" }), made);
            assert!((2..100).contains(&(pool.txgs.open_txg().0 - before)), "it waits, and not for ever");
        }
        // Nothing rests: waiting cannot help.
        pool.services.space.lock().deferred_bytes = 0;
        offer(&pool, 0);
        let before = pool.txgs.open_txg().0;
        assert_eq!(make("c"), Err(DslError::NoSpace));
        assert_eq!(pool.txgs.open_txg().0 - before, 1, "the txg of the look itself");
    }
}

/// If this fails, a refusal for a quota takes the time of many syncs, or a writer below it waits for others without need.
#[test]
fn a_quota_refuses_at_once_and_holds_nobody_below_it() {
    let pool = TestPool::create(25);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    for (limit, size) in [("quota", "8M"), ("refquota", "24M")] {
        set(&pool, "tank/a", limit, size).expect("sets");
        let handle = pool.dsl.hold("tank/a").expect("holds");
        let first = handle.assign(TxSpace::Writes(1000)).expect("room");
        // With the first one open no txg can be synced.
        let second = handle.assign(TxSpace::Writes(1000)).expect("room beside the first");
        drop((first, second, handle));
        while write(&pool, "tank/a", 0, 0, &[3; 200_000]).is_ok() {}
        pool.drain();
        let before = pool.txgs.open_txg();
        assert_eq!(assign(&pool, "tank/a", TxSpace::Writes(1)), Err(DslError::Quota), "{limit}");
        assert_eq!(pool.txgs.open_txg(), before, "{limit}: all is settled, waiting cannot help");
        let below = if limit == "quota" { Err(DslError::Quota) } else { Ok(()) };
        assert_eq!(assign(&pool, "tank/a/b", TxSpace::Writes(1)), below, "{limit}");
        set(&pool, "tank/a", limit, "none").expect("sets");
    }
}

/// If this fails, who changes little things often waits for a sync each time that as much as a small pool has was announced, or is given room that others
/// need.
#[test]
fn what_was_announced_and_not_needed_is_room_again_and_the_rest_is_not() {
    let pool = TestPool::create(32);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let object = write(&pool, "tank/a", 0, 0, &[1; 4096]).expect("writes");
    offer(&pool, 4 << 20);
    let open = pool.txgs.open_txg();
    for number in 0..1000 {
        write(&pool, "tank/a", object, number % 4096, &[2]).expect("there is room");
    }
    assert_eq!(pool.txgs.open_txg(), open, "one block is dirty: nobody waits");
    let available = || pool.dsl.hold("tank/a").expect("holds").space().available;
    let before = available();
    write(&pool, "tank/a", 0, 0, &[3; 100_000]).expect("writes");
    assert!(available() <= before - 100_000, "what will be written is nobody else's");
    pool.drain();
    pool.check();
}

/// If this fails, a reservation lets its owner write past it although those above are full, or keeps nothing for it.
#[test]
fn a_reservation_is_room_until_it_is_used() {
    let pool = TestPool::create(26);
    for name in ["tank/a", "tank/a/kept", "tank/a/other"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    pool.drain();
    set(&pool, "tank/a", "quota", "16M").expect("sets");
    set(&pool, "tank/a/kept", "reservation", "4M").expect("sets");
    let fill = || {
        while write(&pool, "tank/a/other", 0, 0, &[3; 50_000]).is_ok() {}
        pool.drain();
        assert_eq!(assign(&pool, "tank/a/other", TxSpace::Writes(1)), Err(DslError::Quota));
    };
    fill();
    assert_eq!(assign(&pool, "tank/a/kept", TxSpace::Writes(1)), Ok(()), "it was kept");
    let mut written = 0;
    while written < 100 && write(&pool, "tank/a/kept", 0, 0, &[4; 200_000]).is_ok() {
        written += 1;
        pool.sync();
    }
    pool.drain();
    let used = pool.dsl.hold("tank/a/kept").expect("holds").space().used;
    assert!((3 << 20..(4 << 20) + 500_000).contains(&used), "{used} bytes of 4 MiB, and no more");
    set(&pool, "tank/a/kept", "reservation", "2M").expect("sets");
    fill();
    assert_eq!(assign(&pool, "tank/a/kept", TxSpace::Writes(1)), Err(DslError::Quota));
    pool.check();
}

/// If this fails, a snapshot takes the room that a refreservation promises, and writing to a volume fails later on.
#[test]
fn a_snapshot_needs_room_for_what_is_promised_once_more() {
    let pool = TestPool::create(27);
    pool.dsl.create_dataset("tank/c", with_props(&[("refreservation", "3M")])).expect("creates");
    for _ in 0..14 {
        write(&pool, "tank/c", 0, 0, &[7; 200_000]).expect("writes");
    }
    let snapshot = |name: &str| pool.dsl.snapshot(&[name.to_string()], Vec::new());
    offer(&pool, 1 << 20);
    assert_eq!(snapshot("tank/c@s"), Err(DslError::NoSpace));
    offer(&pool, 4 << 20);
    assert_eq!(snapshot("tank/c@s"), Ok(()));
    offer(&pool, 1 << 20);
    assert_eq!(snapshot("tank/c@t"), Ok(()), "nothing is its own since the first one");
    pool.drain();
    pool.check();
}

/// If this fails, software that cannot read a block opens the pool, because no feature says that there is one.
#[test]
fn blocks_that_need_a_feature_make_it_active() {
    let pool = TestPool::create(28);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let put = |block_size: usize| {
        let handle = pool.dsl.hold("tank/a").expect("holds");
        let tx = handle.assign(TxSpace::Writes(block_size as u64)).expect("room");
        let new = NewObject { block_size, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let dnode = handle.objset().and_then(|objset| Ok(objset.allocate_object(new, &tx)?)).expect("allocates");
        dnode.write(0, &vec![5; block_size], &tx).expect("writes");
        drop(tx);
        pool.sync();
        pool.services.feature_refs(features::LARGE_BLOCKS)
    };
    assert_eq!(put(128 << 10), 0);
    assert_eq!(put(256 << 10), 1);
    assert_eq!(put(512 << 10), 1, "a dataset counts once");
    pool.check_features();
    let pool = pool.reopen();
    pool.check_features();
    pool.drain();
    pool.check();
}

/// If this fails, `zfs list` and statvfs promise room that is not there, or hide some.
#[test]
fn available_is_what_all_above_leave_and_what_is_kept() {
    let pool = TestPool::create(29);
    for name in ["tank/a", "tank/a/kept", "tank/a/other"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    pool.drain();
    let space = |name: &str| pool.dsl.hold(name).expect("holds").space();
    let available = |name: &str| space(name).available;
    let free = {
        let space = pool.services.space.lock();
        space.usable_bytes - space.slop_bytes - pool.dsl.used_bytes()
    };
    assert_eq!([available("tank"), available("tank/a"), available("tank/a/other")], [free; 3]);
    set(&pool, "tank/a", "quota", "64M").expect("sets");
    set(&pool, "tank/a/kept", "reservation", "16M").expect("sets");
    pool.drain();
    let left = (64 << 20) - space("tank/a").used;
    let kept = (16 << 20) - space("tank/a/kept").used;
    assert_eq!((available("tank/a"), available("tank/a/other")), (left, left));
    assert_eq!(available("tank/a/kept"), left + kept, "what is kept is its own");
    set(&pool, "tank/a/other", "quota", "8M").expect("sets");
    pool.drain();
    assert_eq!(available("tank/a/other"), (8 << 20) - space("tank/a/other").used);
    let handle = pool.dsl.hold("tank/a/other").expect("holds");
    let before = (available("tank/a/other"), available("tank/a"), available("tank/a/kept"));
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("room");
    assert!(available("tank/a/other") <= before.0 - (1 << 20), "what is announced is not to be had by others");
    assert!(available("tank/a") <= before.1 - (1 << 20) && available("tank/a/kept") <= before.2 - (1 << 20));
    drop(tx);
    pool.drain();
    while write(&pool, "tank/a/other", 0, 0, &[1; 200_000]).is_ok() {}
    pool.drain();
    assert_eq!(available("tank/a/other"), 0, "no less than nothing");
}

/// If this fails, a full quota keeps one from putting a dataset elsewhere below it, or a dataset is moved to where there is no room.
#[test]
fn what_moves_below_a_quota_needs_no_more_room() {
    let pool = TestPool::create(30);
    for name in ["tank/q", "tank/q/a", "tank/q/b", "tank/q/a/x", "tank/y"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    for name in ["tank/q/a/x"; 30].into_iter().chain(["tank/y"; 30]) {
        write(&pool, name, 0, 0, &[1; 200_000]).expect("writes");
    }
    pool.drain();
    let used = pool.dsl.hold("tank/q").expect("holds").space().used;
    set(&pool, "tank/q", "quota", &(used + (2 << 20)).to_string()).expect("sets");
    assert_eq!(pool.dsl.rename("tank/y", "tank/q/b/y"), Err(DslError::NoSpace));
    assert_eq!(pool.dsl.rename("tank/q/a/x", "tank/q/b/x"), Ok(()));
    assert_eq!(pool.dsl.rename("tank/q/b/x", "tank/x"), Ok(()));
    pool.drain();
    pool.check();
    assert_eq!(pool.dsl.rename("tank/y", "tank/q/b/y"), Ok(()), "there is room now");
    pool.drain();
    pool.check();
}
