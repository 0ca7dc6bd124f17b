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
