//! Properties with their sources, and the limits on space that they set.

use super::{TestPool, filesystem, with_props, write};
use crate::{DslError, PropSource, PropValue};
use ondisk::Compression;

fn set(pool: &TestPool, name: &str, property: &str, value: &str) -> Result<(), DslError> {
    pool.dsl.hold(name)?.set_props(&[(property.to_string(), value.to_string())])
}

fn get(pool: &TestPool, name: &str, property: &str) -> (PropValue, PropSource) {
    let entry = pool.dsl.hold(name).and_then(|handle| handle.prop(property)).expect("a property");
    (entry.value, entry.source)
}

fn text(value: &str) -> PropValue {
    PropValue::Text(value.to_string())
}

/// A property must come from where `zfs get` says, also after a restart.
#[test]
fn values_are_inherited_with_their_source() {
    let pool = TestPool::create(4);
    pool.dsl.create_dataset("tank/a", with_props(&[("compression", "zstd-7"), ("com.x:y", "z")])).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    let from_a = PropSource::Inherited("tank/a".to_string());
    assert_eq!(get(&pool, "tank/a", "compression"), (text("zstd-7"), PropSource::Local));
    assert_eq!(get(&pool, "tank/a/b", "compression"), (text("zstd-7"), from_a.clone()));
    let objset = pool.dsl.hold("tank/a/b").and_then(|handle| handle.objset()).expect("opens");
    assert_eq!((objset.props().compression, objset.props().zstd_level), (Compression::ZSTD, 7));
    set(&pool, "tank/a", "compression", "off").expect("sets");
    assert_eq!(objset.props().compression, Compression::OFF, "open object sets follow at once");
    set(&pool, "tank/a", "mountpoint", "/mnt/x").expect("sets");
    assert_eq!(get(&pool, "tank/a/b", "mountpoint"), (text("/mnt/x/b"), from_a.clone()));
    assert_eq!(get(&pool, "tank", "mountpoint"), (text("/tank"), PropSource::Default));
    drop(objset);
    let pool = pool.reopen();
    assert_eq!(get(&pool, "tank/a/b", "com.x:y"), (text("z"), from_a));
    assert_eq!(get(&pool, "tank/a/b", "canmount"), (text("on"), PropSource::Default));
    pool.dsl.hold("tank/a").expect("holds").inherit_prop("compression").expect("inherits");
    assert_eq!(get(&pool, "tank/a", "compression"), (text("on"), PropSource::Default));
    set(&pool, "tank/a", "redundant_metadata", "some").expect("sets");
    assert_eq!(get(&pool, "tank/a", "redundant_metadata"), (text("some"), PropSource::Local));
    for (property, value, error) in [
        ("used", "1", DslError::ReadOnlyProperty),
        ("casesensitivity", "mixed", DslError::ReadOnlyProperty),
        ("nonsense", "1", DslError::BadProperty),
        ("recordsize", "3000", DslError::BadValue),
        ("checksum", "skein", DslError::Unsupported),
    ] {
        assert_eq!(set(&pool, "tank/a", property, value), Err(error), "{property}");
    }
    let names: Vec<String> =
        pool.dsl.hold("tank/a").and_then(|handle| handle.props()).expect("all").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names[..3], ["type", "creation", "used"]);
    assert_eq!(names.last().map(String::as_str), Some("com.x:y"));
}

/// Quotas that do not hold let one user fill the pool.
#[test]
fn quotas_and_reservations_hold() {
    let pool = TestPool::create(5);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    set(&pool, "tank/a", "quota", "16M").expect("sets");
    let fill = |name: &str| -> (u64, DslError) {
        for index in 0..1000u64 {
            if let Err(error) = write(&pool, name, 0, 0, &[1 + (index % 200) as u8; 100_000]) {
                return (index, error);
            }
        }
        (1000, DslError::NotFound)
    };
    assert_eq!(fill("tank/a/b").1, DslError::Quota);
    pool.drain();
    let used = pool.dsl.hold("tank/a").expect("holds").space().used;
    assert!((16 << 20..20 << 20).contains(&used), "{used} bytes under a quota of 16 MiB");
    assert_eq!(set(&pool, "tank/a", "quota", "1M"), Err(DslError::NoSpace), "less than is used");
    set(&pool, "tank/a", "quota", "none").expect("sets");
    set(&pool, "tank/a/b", "refquota", "24M").expect("sets");
    assert_eq!(fill("tank/a/b").1, DslError::Quota);
    let before = pool.dsl.used_bytes();
    set(&pool, "tank/a", "reservation", "1G").expect("sets");
    assert!(pool.dsl.used_bytes() - before > 1 << 29, "a reservation counts as used above");
    pool.dsl.create_dataset("tank/c", with_props(&[("refreservation", "1G")])).expect("creates");
    pool.drain();
    let space = pool.dsl.hold("tank/c").expect("holds").space();
    assert_eq!(space.used, 1 << 30);
    assert_eq!(space.used_by_refreservation + space.used_by_dataset, 1 << 30);
    write(&pool, "tank/c", 0, 0, &[5; 300_000]).expect("writes");
    pool.drain();
    assert_eq!(pool.dsl.hold("tank/c").expect("holds").space().used, 1 << 30, "writes use up the reservation first");
    pool.dsl.snapshot(&["tank/c@s".to_string()], Vec::new()).expect("snapshots");
    let space = pool.dsl.hold("tank/c").expect("holds").space();
    assert_eq!(space.used_by_refreservation, 1 << 30, "the reservation is for what comes after the snapshot");
    pool.dsl.destroy_snapshots(&["tank/c@s".to_string()], false).expect("destroys");
    pool.drain();
    assert_eq!(pool.dsl.hold("tank/c").expect("holds").space().used, 1 << 30);
    pool.dsl.destroy_dataset("tank/c").expect("destroys");
    set(&pool, "tank/a", "reservation", "none").expect("sets");
    pool.services.space.lock().usable_bytes = (1 << 30) + pool.dsl.used_bytes() + 2_000_000;
    set(&pool, "tank/a/b", "refquota", "none").expect("sets");
    assert_eq!(fill("tank").1, DslError::NoSpace);
    pool.drain();
    pool.check();
}

/// OpenZFS steps from slot to slot in a dataset that does not say it has large dnodes, and trips over their inner slots: it could neither
/// send nor list the dataset.
#[test]
fn large_dnodes_are_told_by_the_feature() {
    use crate::PoolServices;
    use dmu::NewObject;
    use ondisk::ObjectType;
    let pool = TestPool::create(12);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let refs = || pool.services.feature_refs(crate::features::LARGE_DNODE);
    write(&pool, "tank/a", 0, 0, &[1; 512]).expect("writes");
    pool.sync();
    assert_eq!(refs(), 0, "an object of one slot needs no feature");
    let handle = pool.dsl.hold("tank/a").expect("holds");
    let tx = handle.assign(crate::TxSpace::Writes(512)).expect("room");
    let new = NewObject { slots: 4, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    handle.objset().and_then(|objset| Ok(objset.allocate_object(new, &tx)?)).expect("allocates");
    drop(tx);
    pool.sync();
    assert_eq!(refs(), 1);
    pool.check_features();
}
