//! The name space: what is refused, and that holds protect datasets.

use super::{TestPool, filesystem};
use crate::DslError;

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Wrong names must be refused before anything changes.
#[test]
fn refuses_what_cannot_be() {
    let pool = TestPool::create(2);
    let create = |name: &str| pool.dsl.create_dataset(name, filesystem());
    assert_eq!(create("tank/a"), Ok(()));
    assert_eq!(create("tank/a"), Err(DslError::Exists));
    assert_eq!(create("tank/x/y"), Err(DslError::NotFound));
    assert_eq!(create("other/a"), Err(DslError::NotFound));
    assert_eq!(create("tank/a@s"), Err(DslError::BadName));
    assert_eq!(create("tank/b$"), Err(DslError::BadName));
    assert_eq!(pool.dsl.snapshot(&strings(&["tank/a@s", "tank/missing@s"]), Vec::new()), Err(DslError::NotFound));
    assert_eq!(pool.dsl.snapshots("tank/a"), Ok(Vec::new()), "all or none");
    assert_eq!(pool.dsl.snapshot(&strings(&["tank/a@s", "tank@s"]), Vec::new()), Ok(()));
    assert_eq!(pool.dsl.snapshot(&strings(&["tank/a@s"]), Vec::new()), Err(DslError::Exists));
    assert_eq!(pool.dsl.rename("tank/a@s", "tank/a@t"), Ok(()));
    assert_eq!(pool.dsl.rename("tank/a@s", "tank/a@u"), Err(DslError::NotFound));
    assert_eq!(pool.dsl.rename("tank", "tank/b"), Err(DslError::BadName));
    assert_eq!(pool.dsl.rename("tank/a", "other/a"), Err(DslError::CrossPool));
    assert_eq!(pool.dsl.destroy_dataset("tank"), Err(DslError::BadName));
    assert_eq!(pool.dsl.children("tank"), Ok(strings(&["a"])));
    pool.drain();
    pool.check();
}

/// If this fails, a rename of many snapshots stops in the middle, and backups find some under the old name and some under the new.
#[test]
fn snapshots_of_many_datasets_are_renamed_all_or_none() {
    let pool = TestPool::create(4);
    for name in ["tank/a", "tank/b", "tank/c"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    pool.dsl.snapshot(&strings(&["tank@old", "tank/a@old", "tank/b@old"]), Vec::new()).expect("snapshots");
    pool.dsl.snapshot(&strings(&["tank/b@new"]), Vec::new()).expect("snapshots");
    let all = strings(&["tank", "tank/a", "tank/b", "tank/c"]);
    let names =
        |dataset: &str| -> Vec<String> { pool.dsl.snapshots(dataset).expect("lists").into_iter().map(|snapshot| snapshot.name).collect() };
    assert_eq!(pool.dsl.rename_snapshots(&all, "old", "new"), Err(DslError::Exists));
    assert_eq!((names("tank"), names("tank/a")), (strings(&["old"]), strings(&["old"])));
    pool.dsl.destroy_snapshots(&strings(&["tank/b@new"]), false).expect("destroys");
    assert_eq!(pool.dsl.rename_snapshots(&all, "old", "new"), Ok(()), "who has none is passed over");
    assert_eq!((names("tank/b"), names("tank/c")), (strings(&["new"]), strings(&[])));
    assert_eq!(pool.dsl.rename_snapshots(&all, "old", "newer"), Err(DslError::NotFound));
}

/// If this fails, a rename makes datasets that lie too deep for OpenZFS to open.
#[test]
fn what_is_renamed_counts_with_all_that_is_below_it() {
    let pool = TestPool::create(5);
    let deep = |top: &str, levels: usize| {
        let mut name = "tank".to_string();
        for _ in 0..levels {
            name = format!("{name}/{top}");
            pool.dsl.create_dataset(&name, filesystem()).expect("creates");
        }
        name
    };
    let (_, b) = (deep("a", 26), deep("b", 25));
    assert_eq!(pool.dsl.rename("tank/a", &format!("{b}/a")), Err(DslError::NameTooLong));
    let shorter = b.rsplit_once('/').expect("a parent").0.rsplit_once('/').expect("a parent").0.to_string();
    assert_eq!(pool.dsl.rename("tank/a", &format!("{shorter}/a")), Ok(()));
}

/// A mounted file system must not vanish under its mount.
#[test]
fn holds_protect() {
    let pool = TestPool::create(3);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.snapshot(&strings(&["tank/a@s"]), Vec::new()).expect("snapshots");
    let handle = pool.dsl.hold("tank/a@s").expect("holds");
    assert_eq!((handle.is_snapshot(), handle.name()), (true, "tank/a@s".to_string()));
    assert_eq!(pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), false), Err(DslError::Busy));
    drop(handle);
    assert_eq!(pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), false), Ok(()));
    let handle = pool.dsl.hold("tank/a").expect("holds");
    assert_eq!(pool.dsl.destroy_dataset("tank/a"), Err(DslError::Busy));
    pool.dsl.rename("tank/a", "tank/renamed").expect("renames");
    assert_eq!(handle.name(), "tank/renamed");
    drop(handle);
    assert_eq!(pool.dsl.destroy_dataset("tank/renamed"), Ok(()));
    let names: Vec<&str> = pool.services.events.lock().iter().map(|event| event.name).collect();
    assert_eq!(names, ["create", "snapshot", "destroy", "rename", "destroy"]);
}

/// If this fails, snapshots of a file system that ignores case are found by their exact names only, once one was taken or destroyed.
#[test]
fn a_dataset_that_ignores_case_does_so_after_snapshots() {
    let pool = TestPool::create(32);
    pool.dsl.create_dataset("tank/a", super::with_props(&[("casesensitivity", "insensitive")])).expect("creates");
    for name in ["tank/a@one", "tank/a@two"] {
        pool.dsl.snapshot(&[name.to_string()], Vec::new()).expect("snapshots");
        assert!(pool.dsl.hold(&name.to_uppercase().replacen("TANK/A", "tank/a", 1)).is_ok(), "{name}");
    }
    pool.dsl.destroy_snapshots(&["tank/a@two".to_string()], false).expect("destroys");
    assert!(pool.dsl.hold("tank/a@OnE").is_ok());
    assert_eq!(pool.dsl.hold("tank/a@TWO").map(|_| ()), Err(crate::DslError::NotFound));
}
