//! Volumes: how they lie on disk, and what a new size does to their data and space.

use super::{TestPool, filesystem};
use crate::{CreateDataset, DslError, PropSource, PropValue, TxSpace, volume};
use ondisk::{ObjectId, ObjectType, ObjsetType};

const KIB: u64 = 1024;

fn volume(size: u64, block_size: u64) -> CreateDataset {
    let properties = vec![("volsize".to_string(), size.to_string()), ("volblocksize".to_string(), block_size.to_string())];
    CreateDataset { kind: ObjsetType::ZVOL, properties, init: Box::new(move |objset, tx| volume::create(objset, size, block_size, tx)) }
}

fn write(pool: &TestPool, name: &str, offset: u64, bytes: &[u8]) {
    let handle = pool.dsl.hold(name).expect("holds");
    let tx = handle.assign(TxSpace::Writes(bytes.len() as u64)).expect("assigns");
    handle.objset().expect("opens").hold(ObjectId(1)).expect("holds").write(offset, bytes, &tx).expect("writes");
}

fn read(pool: &TestPool, name: &str, offset: u64) -> u8 {
    let objset = pool.dsl.hold(name).and_then(|handle| handle.objset()).expect("opens");
    let mut byte = [0];
    objset.hold(ObjectId(1)).expect("holds").read(offset, &mut byte).expect("reads");
    byte[0]
}

fn prop(pool: &TestPool, name: &str, property: &str) -> (PropValue, PropSource) {
    let entry = pool.dsl.hold(name).and_then(|handle| handle.prop(property)).expect("a property");
    (entry.value, entry.source)
}

/// If this fails, OpenZFS takes the volume for something else, or finds it without a size.
#[test]
fn a_volume_is_two_objects_whose_sizes_are_its_properties() {
    let pool = TestPool::create(1);
    pool.dsl.create_dataset("tank/vol", volume(64 * KIB, 4 * KIB)).expect("creates");
    pool.dsl.create_dataset("tank/usual", volume(64 * KIB, 16 * KIB)).expect("creates");
    let pool = pool.reopen();
    let objset = pool.dsl.hold("tank/vol").and_then(|handle| handle.objset()).expect("opens");
    assert_eq!(objset.kind(), ObjsetType::ZVOL);
    let kinds: Vec<ObjectType> =
        [1, 2].map(|object| objset.hold(ObjectId(object)).and_then(|dnode| dnode.info()).expect("info").kind).into();
    assert_eq!(kinds, [ObjectType::ZVOL, ObjectType::ZVOL_PROP]);
    assert_eq!(prop(&pool, "tank/vol", "volsize"), (PropValue::Bytes(64 * KIB), PropSource::Local));
    assert_eq!(prop(&pool, "tank/vol", "volblocksize"), (PropValue::Bytes(4 * KIB), PropSource::None));
    assert_eq!(prop(&pool, "tank/usual", "volblocksize").1, PropSource::Default);
    let shown = |name: &str| -> Vec<String> {
        pool.dsl.hold(name).and_then(|handle| handle.props()).expect("all").into_iter().map(|entry| entry.name).collect()
    };
    pool.dsl.snapshot(&["tank/vol@s".to_string(), "tank@s".to_string()], Vec::new()).expect("snapshots");
    let has = |name: &str, property: &str| shown(name).iter().any(|shown| shown == property);
    assert!(has("tank/vol", "volsize") && has("tank/vol@s", "volsize") && !has("tank@s", "volsize"));
    assert!(!has("tank/vol", "mountpoint") && !has("tank/vol", "recordsize") && !has("tank/vol@s", "devices") && has("tank@s", "devices"));
    assert!(!has("tank/vol@s", "volblocksize"));
}

/// If this fails, a volume that was made smaller keeps its space, or one that was made larger shows what somebody had there before.
#[test]
fn what_is_beyond_a_new_size_is_freed_and_reads_as_zeros() {
    let pool = TestPool::create(2);
    pool.dsl.create_dataset("tank/vol", volume(64 * KIB, 4 * KIB)).expect("creates");
    write(&pool, "tank/vol", 0, &[1; 4096]);
    write(&pool, "tank/vol", 60 * KIB, &[2; 4096]);
    pool.sync();
    let used = |pool: &TestPool| pool.dsl.hold("tank/vol").expect("holds").space().referenced;
    let before = used(&pool);
    let resize = |pool: &TestPool, bytes| pool.dsl.hold("tank/vol").expect("holds").resize_volume(bytes);
    assert_eq!(resize(&pool, 10 * KIB), Err(DslError::BadValue));
    assert_eq!(resize(&pool, 0), Err(DslError::BadValue));
    assert_eq!(resize(&pool, 1 << 63), Err(DslError::BadValue), "no file can be as large");
    resize(&pool, 32 * KIB).expect("shrinks");
    pool.drain();
    assert!(used(&pool) < before, "the tail's space is free");
    resize(&pool, 128 * KIB).expect("grows");
    let pool = pool.reopen();
    assert_eq!(prop(&pool, "tank/vol", "volsize").0, PropValue::Bytes(128 * KIB));
    assert_eq!((read(&pool, "tank/vol", 0), read(&pool, "tank/vol", 60 * KIB)), (1, 0));
    pool.dsl.hold("tank/vol").expect("holds").set_props(&[("readonly".to_string(), "on".to_string())]).expect("sets");
    assert_eq!(resize(&pool, 32 * KIB), Err(DslError::ReadOnly));
    pool.drain();
    pool.check();
}

/// If this fails, small writes to a volume near a limit wait for a txg every few, as if each were a whole record of a file.
#[test]
fn a_small_write_announces_blocks_of_the_volume() {
    let pool = TestPool::create(4);
    pool.dsl.create_dataset("tank/vol", volume(1024 * KIB, 4 * KIB)).expect("creates");
    let _open = pool.dsl.hold("tank/vol").and_then(|handle| handle.objset()).expect("opens");
    let tank = pool.dsl.hold("tank").expect("holds");
    let quota = tank.space().used + 1024 * KIB;
    tank.set_props(&[("quota".to_string(), quota.to_string())]).expect("sets");
    let before = pool.txgs.open_txg();
    for block in 0..100 {
        write(&pool, "tank/vol", block * 4 * KIB, &[1; 4096]);
    }
    assert_eq!(pool.txgs.open_txg(), before, "400 KiB of 1 MiB");
    pool.sync();
    pool.check();
}

/// If this fails, file systems come to be inside volumes, which no system opens, or space is promised that is not there.
#[test]
fn a_volume_has_no_children_and_its_space_must_be_there() {
    let pool = TestPool::create(3);
    pool.dsl.create_dataset("tank/vol", volume(64 * KIB, 4 * KIB)).expect("creates");
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let pool = pool.reopen();
    assert_eq!(pool.dsl.create_dataset("tank/vol/a", filesystem()), Err(DslError::ParentNotFilesystem));
    assert_eq!(pool.dsl.rename("tank/a", "tank/vol/a"), Err(DslError::ParentNotFilesystem));
    let set = |name: &str, property: &str, value: &str| pool.dsl.hold(name)?.set_props(&[(property.to_string(), value.to_string())]);
    assert_eq!(set("tank/vol", "quota", "1M"), Err(DslError::BadProperty), "also when nobody has opened it yet");
    assert_eq!(set("tank/vol", "refreservation", "1M"), Ok(()));
    let mut large = volume(64 * KIB, 4 * KIB);
    large.properties.push(("refreservation".to_string(), "2T".to_string()));
    assert_eq!(pool.dsl.create_dataset("tank/large", large), Err(DslError::NoSpace));
    assert!(pool.dsl.hold("tank/large").is_err());
    pool.dsl.rename("tank/vol", "tank/a/vol").expect("renames");
    pool.dsl.destroy_dataset("tank/a/vol").expect("destroys");
    pool.drain();
    pool.check();
}

/// If this fails, the first block of an encrypted volume that cannot be compressed stops its pool.
#[test]
fn blocks_of_volumes_are_no_larger_than_their_suite_encrypts() {
    let pool = TestPool::create(86);
    let create = |name: &str, suite: &str, block_size: u64| {
        let mut options = volume(32 << 20, block_size);
        let encryption = [("encryption", suite), ("keyformat", "raw")];
        options.properties.extend(encryption.map(|(name, value)| (name.to_string(), value.to_string())));
        pool.dsl.create_dataset_with(name, options, Some(&[9; 32]))
    };
    assert_eq!(create("tank/ccm", "aes-256-ccm", 16 << 20), Err(DslError::BadValue));
    assert_eq!((create("tank/ccm", "aes-256-ccm", 8 << 20), create("tank/gcm", "aes-256-gcm", 16 << 20)), (Ok(()), Ok(())));
}
