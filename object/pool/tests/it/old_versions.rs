//! Pools of versions before feature flags: made, imported, written, and upgraded. What users lose when these fail: pools of old systems, or the space of
//! what they destroyed in them.

use crate::common::{devices, exec, host, import, leaf};
use device::MemDevice;
use dmu::NewObject;
use dsl::{CreateDataset, DslError, TxSpace};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{Pool, PoolError, PoolSpec, Runtime, TopSpec};
use std::sync::Arc;
use vdev::TopKind;

fn plain() -> CreateDataset {
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) }
}

fn spec(devices: &[Arc<MemDevice>], kind: TopKind, version: u64) -> PoolSpec {
    let tops = vec![TopSpec { kind, leaves: devices.iter().map(leaf).collect() }];
    PoolSpec { host: host(), version, ..PoolSpec::new("tank", tops, plain()) }
}

/// Writes blocks into the file of a dataset, which it gets if it has none.
fn write(pool: &Pool, name: &str, blocks: usize, seed: u8) {
    let handle = pool.dsl().hold(name).expect("held");
    let objset = handle.objset().expect("open");
    let tx = handle.assign(TxSpace::Writes(blocks as u64 * 4096)).expect("room");
    let dnode = match objset.next_object(ObjectId(0)).expect("readable") {
        Some(object) => objset.hold(object).expect("held"),
        None => {
            let new = NewObject { block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
            objset.allocate_object(new, &tx).expect("made")
        }
    };
    let bytes: Vec<u8> = (0..blocks * 4096).map(|at| ((at * at) >> 7) as u8 ^ seed).collect();
    dnode.write(0, &bytes, &tx).expect("written");
    drop((tx, dnode, objset, handle));
    pool.sync().expect("synced");
}

fn is_sound(pool: &Pool, what: &str) {
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// Snapshots, a clone, and their end, in an order in which each list of dead blocks is moved on.
fn live(pool: &Pool, what: &str) {
    let dsl = pool.dsl();
    dsl.create_dataset("tank/fs", plain()).expect("created");
    for (index, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        write(pool, "tank/fs", 40 - 7 * index, index as u8);
        dsl.snapshot(&[format!("tank/fs@{name}")], Vec::new()).expect("taken");
    }
    dsl.clone_snapshot("tank/clone", "tank/fs@b", Vec::new()).expect("cloned");
    write(pool, "tank/clone", 30, 77);
    dsl.destroy_snapshots(&["tank/fs@c".to_string()], false).expect("destroyed");
    is_sound(pool, &format!("{what}, one snapshot less"));
    dsl.promote("tank/clone").expect("promoted");
    dsl.rollback("tank/fs@d").expect("gone back");
    is_sound(pool, &format!("{what}, promoted"));
}

fn end(pool: &Pool, what: &str) {
    let dsl = pool.dsl();
    dsl.destroy_snapshots(&["tank/fs@d".to_string()], false).expect("destroyed");
    dsl.destroy_dataset("tank/fs").expect("destroyed");
    dsl.destroy_snapshots(&["tank/clone@a".to_string(), "tank/clone@b".to_string()], false).expect("destroyed");
    dsl.destroy_dataset("tank/clone").expect("destroyed");
    is_sound(pool, what);
}

#[test]
fn pools_of_all_versions_are_made_written_and_upgraded() {
    for version in 1..=28 {
        let devices = devices(1);
        let pool = Pool::create(&exec(7), spec(&devices, TopKind::Leaf, version), &Runtime::new()).expect("created");
        live(&pool, &format!("version {version}"));
        pool.export().expect("exported");
        let pool = import(&devices, false).expect("imported");
        assert_eq!(pool.status().version, version);
        is_sound(&pool, &format!("version {version}, imported"));
        if version % 2 == 0 {
            let next = if version < 26 { version + 1 } else { 5000 };
            pool.set_prop("version", &next.to_string()).expect("upgraded");
            is_sound(&pool, &format!("from version {version} to {next}"));
        }
        if version % 3 == 0 {
            pool.set_prop("version", "5000").expect("upgraded");
            pool.export().expect("exported");
            let pool = import(&devices, false).expect("imported");
            assert_eq!(pool.status().version, 5000);
            pool.enable_feature("async_destroy").expect("features are there to be enabled");
            end(&pool, &format!("from version {version}, all gone"));
            pool.export().expect("exported");
        } else {
            end(&pool, &format!("version {version}, all gone"));
            pool.export().expect("exported");
        }
    }
}

/// Parity counts as space of files in pools from before version 3, whatever they become: if this fails, what is freed is not what was charged.
#[test]
fn parity_counts_in_the_oldest_pools() {
    let devices = devices(3);
    let pool = Pool::create(&exec(7), spec(&devices, TopKind::Raidz(1), 2), &Runtime::new()).expect("created");
    live(&pool, "raidz1");
    pool.set_prop("version", "5000").expect("upgraded");
    pool.export().expect("exported");
    let pool = import(&devices, false).expect("imported");
    end(&pool, "raidz1, all gone");
    let too_much = Pool::create(&exec(7), spec(&devices, TopKind::Raidz(2), 2), &Runtime::new());
    assert!(matches!(too_much, Err(PoolError::Invalid(_))), "no second parity before version 3");
}

#[test]
fn versions_only_rise_and_old_ones_lack_what_came_later() {
    let devices = devices(1);
    let pool = Pool::create(&exec(7), spec(&devices, TopKind::Leaf, 8), &Runtime::new()).expect("created");
    for wrong in ["7", "0", "29", "4999", "x"] {
        assert!(matches!(pool.set_prop("version", wrong), Err(PoolError::BadValue)), "{wrong}");
    }
    let set = |name: &str, value: &str| pool.dsl().hold("tank").expect("held").set_props(&[(name.to_string(), value.to_string())]);
    assert_eq!(set("refquota", "1G"), Err(DslError::OldVersion(9)));
    assert_eq!(set("compression", "gzip"), Ok(()));
    assert_eq!((set("org:text", &"x".repeat(1023)), set("org:text", &"x".repeat(1024))), (Ok(()), Err(DslError::OldVersion(16))));
    assert!(pool.enable_feature("sha512").is_err(), "there are no features");
    pool.set_prop("version", "9").expect("upgraded");
    assert_eq!(set("refquota", "1G"), Ok(()));
    pool.export().expect("exported");
}
