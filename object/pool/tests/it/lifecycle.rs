//! A pool's life on memory devices: made, synced, closed, opened again, with devices missing and labels damaged. What the user
//! loses when these fail: the pool.
use crate::common::{BLOCK_BYTES, BLOCKS, create_as, devices_of, leaf, new_object, opened, tops, until, write};
use device::MemDevice;
use dsl::CreateDataset;
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{ClassSpec, Host, ImportOptions, Pool, PoolError, PoolSpec, PoolState, Runtime, ScanFunction, ScanState, find_pools};
use std::sync::Arc;
use vdev::{DraidConfig, LeafState, TopKind};

const DEVICE_BYTES: usize = 128 << 20;

fn exec() -> Exec {
    Arc::new(Inline::new(7))
}

fn devices(count: usize) -> Vec<Arc<MemDevice>> {
    devices_of(count, DEVICE_BYTES)
}

fn host(id: u64) -> Host {
    Host { id, name: "testhost".to_string() }
}

fn spec(devices: &[Arc<MemDevice>], layout: &[(TopKind, usize)]) -> PoolSpec {
    PoolSpec {
        stored_name: None,
        name: "tank".to_string(),
        tops: tops(layout, devices),
        classes: ClassSpec::default(),
        ashift: None,
        features: None,
        comment: Some("a test".to_string()),
        host: host(1),
        force: false,
        version: 5000,
        root: CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) },
        key: None,
    }
}

fn import(devices: &[Arc<MemDevice>], options: ImportOptions) -> Result<Pool, PoolError> {
    Pool::import(&exec(), opened(devices), &ImportOptions { host: host(1), ..options }, &Runtime::new())
}

fn draid(parity: usize, data: usize, spares: usize, children: usize) -> (TopKind, usize) {
    (TopKind::Draid(DraidConfig::new(parity, data, spares, children).expect("a valid shape")), children)
}

fn layouts() -> Vec<Vec<(TopKind, usize)>> {
    vec![
        vec![(TopKind::Leaf, 1)],
        vec![(TopKind::Leaf, 1); 3],
        vec![(TopKind::Mirror, 2)],
        vec![(TopKind::Raidz(1), 3)],
        vec![(TopKind::Raidz(2), 6)],
        vec![(TopKind::Raidz(3), 8)],
        vec![(TopKind::Raidz(1), 3), (TopKind::Mirror, 2)],
        vec![draid(2, 3, 1, 7), (TopKind::Raidz(2), 4)],
    ]
}

#[test]
fn pools_of_every_layout_survive_export_and_import() {
    for layout in layouts() {
        let devices = devices(layout.iter().map(|(_, count)| count).sum());
        let pool = Pool::create(&exec(), spec(&devices, &layout), &Runtime::new()).expect("created");
        let guid = pool.guid();
        pool.log_command("zpool create tank", 0);
        for _ in 0..5 {
            pool.sync().expect("synced");
        }
        let allocated = pool.status().space.allocated;
        pool.export().expect("exported");

        let found = find_pools(&exec(), opened(&devices));
        assert_eq!((found.len(), found[0].state(), found[0].name()), (1, PoolState::Exported, "tank"));
        let pool = import(&devices, ImportOptions::default()).expect("imported");
        assert_eq!((pool.guid(), pool.name()), (guid, "tank".to_string()));
        let status = pool.status();
        assert_eq!(status.comment.as_deref(), Some("a test"));
        assert!(status.leaves.iter().all(|leaf| leaf.state == LeafState::Online && leaf.counts.checksum_errors == 0));
        assert!(status.space.allocated.abs_diff(allocated) < 4 << 20, "{} then {allocated}", status.space.allocated);
        let commands: Vec<String> =
            pool.history().expect("history").iter().filter_map(|record| record.get_str("history command").map(str::to_string)).collect();
        assert_eq!(commands, ["zpool create tank"]);
        pool.export().expect("exported again");
    }
}

#[test]
fn a_pool_that_was_not_closed_opens_at_its_last_txg_and_reuses_no_block() {
    let devices = devices(2);
    let pool = Pool::create(&exec(), spec(&devices, &[(TopKind::Mirror, 2)]), &Runtime::new()).expect("created");
    pool.set_prop("failmode", "continue").expect("set");
    let txg = pool.txg();
    drop(pool);
    let pool = import(&devices, ImportOptions::default()).expect("imported without an export");
    assert!(pool.txg() > txg);
    let props = pool.props().expect("props");
    assert!(props.iter().any(|prop| prop.name == "failmode" && prop.value == "continue" && prop.is_local));
    assert_eq!(pool.set_prop("failmode", "never"), Err(PoolError::BadValue));
    assert_eq!(pool.set_prop("colour", "red"), Err(PoolError::BadProperty));
    pool.export().expect("exported");
}

/// If this fails, a pool that was imported under a name for now (a copy of the system's own, say) keeps it, and the system does not start.
#[test]
fn a_temporary_name_is_not_on_the_devices() {
    let devices = devices(1);
    let made = PoolSpec { name: "now".into(), stored_name: Some("tank".into()), ..spec(&devices, &[(TopKind::Leaf, 1)]) };
    let pool = Pool::create(&exec(), made, &Runtime::new()).expect("created");
    assert!(pool.name() == "now" && pool.has_temporary_name());
    pool.export().expect("exported");
    let other = ImportOptions { name: Some("tank".into()), new_name: Some("other".into()), temporary: true, ..ImportOptions::default() };
    let pool = import(&devices, other).expect("it is called tank");
    pool.set_prop("comment", "written").expect("set");
    assert_eq!(pool.name(), "other");
    pool.export().expect("exported");
    let pool = import(&devices, ImportOptions { name: Some("tank".into()), ..ImportOptions::default() }).expect("still called tank");
    assert!(pool.name() == "tank" && !pool.has_temporary_name());
    pool.export().expect("exported");
}

#[test]
fn missing_devices_are_survived_up_to_the_redundancy() {
    for (layout, tolerated) in [
        ((TopKind::Leaf, 1), 0),
        ((TopKind::Mirror, 3), 2),
        ((TopKind::Raidz(1), 4), 1),
        ((TopKind::Raidz(2), 6), 2),
        (draid(1, 2, 1, 5), 1),
    ] {
        let devices = devices(layout.1);
        Pool::create(&exec(), spec(&devices, &[layout]), &Runtime::new()).expect("created").export().expect("exported");
        for lost in 0..=layout.1 {
            let result = import(&devices[lost..], ImportOptions { read_only: true, ..ImportOptions::default() });
            match result {
                Ok(pool) => {
                    assert!(lost <= tolerated, "{layout:?} without {lost}");
                    let missing = pool.status().leaves.iter().filter(|leaf| leaf.state == LeafState::Missing).count();
                    assert_eq!(missing, lost);
                    assert_eq!(pool.tree().leaves.iter().filter(|leaf| leaf.is_not_present).count(), lost, "never there");
                }
                Err(error) => {
                    assert!(lost > tolerated, "{layout:?} without {lost}: {error}");
                    let expected = matches!(error, PoolError::NotFound | PoolError::MissingDevices(_) | PoolError::MissingVdev(_));
                    assert!(expected, "{error:?}");
                }
            }
        }
    }
}

/// A pool whose distributed spares are not listed has none to offer when a device fails, here and in OpenZFS.
#[test]
fn distributed_spares_are_listed_and_the_feature_counts_their_vdevs() {
    let devices = devices(11);
    let layout = [draid(1, 2, 2, 6), draid(1, 2, 1, 5)];
    let pool = Pool::create(&exec(), spec(&devices, &layout), &Runtime::new()).expect("created");
    pool.sync().expect("synced");
    pool.export().expect("exported");
    let pool = import(&devices, ImportOptions::default()).expect("imported");
    let spares = pool.spares();
    let names: Vec<(&str, &str, bool)> = spares.iter().map(|spare| (spare.path.as_str(), spare.kind.as_str(), spare.in_use)).collect();
    assert_eq!(names, [("draid1-0-0", "dspare", false), ("draid1-0-1", "dspare", false), ("draid1-1-0", "dspare", false)]);
    assert!(pool.features().iter().any(|(name, _, count)| name == "draid" && *count == Some(2)));
    // A whole device that was kept for this is used before room that all devices share.
    let more = ["s0", "s1"].map(|name| Arc::new(MemDevice::new(name, DEVICE_BYTES)));
    let spare = |device: &Arc<MemDevice>, spares_first| pool::AddSpec {
        spares: vec![leaf(device)],
        spares_first,
        force: true,
        ..pool::AddSpec::default()
    };
    pool.add(spare(&more[0], true)).expect("added");
    pool.add(spare(&more[1], false)).expect("added");
    let kinds: Vec<String> = pool.spares().into_iter().map(|spare| spare.kind).collect();
    assert_eq!(kinds, ["file", "dspare", "dspare", "dspare", "file"]);
    assert!(pool.verify_space().expect("walked").is_clean());

    let plain = PoolSpec { features: Some(vec!["async_destroy".to_string()]), force: true, ..spec(&devices, &layout) };
    assert!(matches!(Pool::create(&exec(), plain, &Runtime::new()), Err(PoolError::Invalid(_))), "a pool without the feature");
}

#[test]
fn damaged_labels_and_uberblocks_fall_back_to_good_ones() {
    let devices = devices(1);
    let pool = Pool::create(&exec(), spec(&devices, &[(TopKind::Leaf, 1)]), &Runtime::new()).expect("created");
    pool.export().expect("exported");
    let best = find_pools(&exec(), opened(&devices))[0].newest().expect("an uberblock").0;
    // The newest uberblock, in all four labels.
    devices[0].tamper(|bytes| {
        for label in 0..4 {
            let start = vdev::label_offset(DEVICE_BYTES as u64, label) as usize + (128 << 10);
            bytes[start + (best.0 as usize % 128) * 1024 + 40] ^= 0xff;
        }
    });
    let found = find_pools(&exec(), opened(&devices));
    assert!(found[0].newest().expect("an older uberblock").0 < best);
    // Three of the four labels.
    devices[0].tamper(|bytes| {
        for label in 0..3 {
            let start = vdev::label_offset(DEVICE_BYTES as u64, label) as usize + (16 << 10);
            bytes[start + 100] ^= 0xff;
        }
    });
    let pool = import(&devices, ImportOptions { read_only: true, ..ImportOptions::default() }).expect("one label is enough");
    assert_eq!(pool.status().damaged_labels, 3);
    drop(pool);
    let pool = import(&devices, ImportOptions::default()).expect("imported");
    pool.export().expect("exported");
    assert_eq!(find_pools(&exec(), opened(&devices))[0].damaged_labels(), 0, "an import rewrites the labels");
}

#[test]
fn pools_in_use_are_protected() {
    let devices = devices(1);
    let pool = Pool::create(&exec(), spec(&devices, &[(TopKind::Leaf, 1)]), &Runtime::new()).expect("created");
    drop(pool);
    let elsewhere = ImportOptions { host: host(2), ..ImportOptions::default() };
    let refused = Pool::import(&exec(), opened(&devices), &elsewhere, &Runtime::new());
    assert!(matches!(refused, Err(PoolError::InUse { hostid: 1, .. })));
    let again = Pool::create(&exec(), spec(&devices, &[(TopKind::Leaf, 1)]), &Runtime::new());
    assert!(matches!(again, Err(PoolError::Device { .. })), "a pool must not be overwritten without force");
    let forced = ImportOptions { force: true, ..elsewhere };
    let pool = Pool::import(&exec(), opened(&devices), &forced, &Runtime::new()).expect("forced");
    pool.destroy().expect("destroyed");
    assert_eq!(import(&devices, ImportOptions::default()).err(), Some(PoolError::Destroyed));
    let pool = import(&devices, ImportOptions { destroyed: true, ..ImportOptions::default() }).expect("brought back");
    pool.export().expect("exported");
}

#[test]
fn a_read_only_import_writes_nothing() {
    let devices = devices(1);
    Pool::create(&exec(), spec(&devices, &[(TopKind::Leaf, 1)]), &Runtime::new()).expect("created").export().expect("exported");
    let before = devices[0].contents();
    let pool = import(&devices, ImportOptions { read_only: true, ..ImportOptions::default() }).expect("imported");
    assert_eq!(pool.set_prop("failmode", "panic"), Err(PoolError::ReadOnly));
    pool.export().expect("closed");
    assert!(devices[0].contents() == before, "a read-only import changed the device");
}

#[test]
fn a_dropped_pool_stops_writing() {
    let threads: Exec = Arc::new(exec::Pool::new(2));
    let devices = devices(1);
    let pool = Pool::create(&threads, spec(&devices, &[(TopKind::Leaf, 1)]), &Runtime::new()).expect("created");
    pool.sync().expect("synced");
    let txgs = pool.txgs().clone();
    drop(pool);
    assert!(txgs.assign(0).is_err(), "a transaction after the end would be lost without a word");
    let pool = Pool::import(&threads, opened(&devices), &ImportOptions { host: host(1), ..ImportOptions::default() }, &Runtime::new());
    let pool = pool.expect("imported");
    assert!(pool.verify_space().expect("readable").is_clean());
    pool.export().expect("exported");
}

#[test]
fn an_import_with_a_stale_device_brings_it_up_to_date() {
    for layout in [(TopKind::Mirror, 2), (TopKind::Raidz(1), 4), (TopKind::Raidz(2), 5)] {
        let devices = devices(layout.1);
        Pool::create(&exec(), spec(&devices, &[layout]), &Runtime::new()).expect("created").export().expect("exported");
        let pool = import(&devices[1..], ImportOptions::default()).expect("imported without the first device");
        for number in 0..6 {
            let dataset = CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) };
            pool.dsl().create_dataset(&format!("tank/fs{number}"), dataset).expect("created");
        }
        assert!(!pool.tree().leaves[0].missing_txgs.is_empty(), "what the device missed must be known");
        pool.export().expect("exported");

        let pool = import(&devices, ImportOptions::default()).expect("imported with the stale device");
        assert!(!pool.tree().leaves[0].missing_txgs.is_empty());
        let status = pool.scan_status().expect("begun by itself");
        assert_eq!((status.function, status.state), (ScanFunction::Resilver, ScanState::Scanning));
        pool.scrub_wait().expect("resilvered");
        let status = pool.scan_status().expect("a scan");
        assert_eq!((status.state, status.errors), (ScanState::Finished, 0));
        assert!(status.repaired > 0 && status.skipped + status.issued == status.examined, "{status:?}");
        pool.sync().expect("synced");
        let leaf = pool.tree().leaves[0].clone();
        assert_eq!((leaf.missing_txgs, leaf.dtl.0), (vec![], 0), "{layout:?}");
        pool.export().expect("exported");

        let rest = if layout.0 == TopKind::Mirror { &devices[..1] } else { &devices[..layout.1 - 1] };
        let pool = import(rest, ImportOptions { read_only: true, ..ImportOptions::default() }).expect("imported without another one");
        assert_eq!(pool.dsl().children("tank").expect("children").len(), 6);
        assert!(pool.verify_space().expect("readable").is_clean());
        assert_eq!(pool.status().leaves[0].counts.checksum_errors, 0, "{layout:?}: the device still lacks blocks");
    }
}

/// If this fails, a property value that `zfs` lists makes a file system that cannot be written to, or not be read again.
#[test]
fn datasets_without_checksums_are_made_written_and_read() {
    for (checksum, number) in [("off", 2), ("noparity", 10), ("fletcher2", 6), ("sha512", 11), ("skein", 12), ("edonr", 13), ("blake3", 14)]
    {
        let devices = devices(3);
        let pool = Pool::create(&exec(), spec(&devices, &[(TopKind::Raidz(1), 3)]), &Runtime::new()).expect("created");
        let properties = vec![("checksum".to_string(), checksum.to_string()), ("compression".to_string(), "off".to_string())];
        let new = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
        pool.dsl().create_dataset("tank/fs", new).expect(checksum);
        let object = {
            let handle = pool.dsl().hold("tank/fs").expect("held");
            let tx = handle.assign(dsl::TxSpace::Writes(1 << 20)).expect("assigned");
            let new = dmu::NewObject { block_size: 32 << 10, ..dmu::NewObject::new(ondisk::ObjectType::UINT64_OTHER) };
            let dnode = handle.objset().expect("objset").allocate_object(new, &tx).expect("allocated");
            dnode.write(0, &[7; 200_000], &tx).expect("written");
            dnode.object()
        };
        pool.scrub_start().and_then(|()| pool.scrub_drive()).expect("scrubbed");
        assert_eq!(pool.scan_status().map(|status| status.errors), Some(0), "{checksum}");
        pool.export().expect("exported");
        let pool = import(&devices, ImportOptions::default()).expect("imported");
        let mut read = vec![0; 200_000];
        let handle = pool.dsl().hold("tank/fs").expect("held");
        assert_eq!(handle.prop_u64("checksum").map(|(number, _)| number), Ok(number));
        handle.objset().expect("objset").hold(object).expect("object").read(0, &mut read).expect("read");
        assert!(read == [7; 200_000], "{checksum}");
    }
}

/// If this fails, what a feature allows is not done in file systems that were mounted when it was enabled.
#[test]
fn open_object_sets_follow_the_pools_features() {
    let devices = devices(1);
    let spec = PoolSpec { features: Some(vec!["large_blocks".to_string()]), ..spec(&devices, &[(TopKind::Leaf, 1)]) };
    let pool = Pool::create(&exec(), spec, &Runtime::new()).expect("created");
    let objset = pool.dsl().hold("tank").and_then(|handle| handle.objset()).expect("it opens");
    assert!(!objset.props().large_micro_zaps);
    pool.enable_feature("large_microzap").expect("enabled");
    assert!(objset.props().large_micro_zaps);
}

/// If this fails, a part of what was destroyed is freed only when the time of a txg is over (`zfs_txg_timeout`): what is large takes hours.
#[test]
fn what_was_destroyed_is_freed_without_pauses() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let mut runtime = Runtime::new();
    runtime.txg.timeout_ns = HOUR_NS;
    let pool = create_as(&exec, &devices(1), TopKind::Leaf, &runtime);
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    let snapshot = ["tank@one".to_string()];
    pool.dsl().snapshot(&snapshot, Vec::new()).expect("taken");
    write(&pool, object, 0..BLOCKS, 2);
    pool.set_frees_max(1);
    let before = pool.txg();
    pool.dsl().destroy_snapshots(&snapshot, false).expect("destroyed");
    until(&exec, "the end of what was destroyed", || !pool.dsl().has_frees());
    pool.sync().expect("synced");
    assert!(pool.txg().0 >= before.0 + BLOCKS, "a block in each txg");
    assert_eq!(pool.dsl().freeing_bytes(), 0);
    assert!(pool.verify_space().expect("readable").is_clean());
    pool.export().expect("exported");
}

/// If this fails, a frozen pool has no room where it has: what was freed just before rests for good.
#[test]
fn a_frozen_pool_has_the_room_of_what_was_freed_before() {
    let pool = create_as(&exec(), &devices(1), TopKind::Leaf, &Runtime::new());
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    write(&pool, object, 0..BLOCKS, 2);
    pool.freeze().expect("frozen");
    let resting = pool.status().vdev_space[0].deferred;
    assert!(resting < BLOCKS * BLOCK_BYTES as u64, "{resting} bytes rest");
}

/// Whoever lost a disk of a stripe for good wants what is on the others; a pool that can be written must be whole.
#[test]
fn a_stripe_without_one_disk_is_read_when_asked_for() {
    let devices = devices(3);
    let pool = Pool::create(&exec(), spec(&devices, &[(TopKind::Leaf, 1); 3]), &Runtime::new()).expect("created");
    pool.export().expect("exported");
    let import = |devices: &[Arc<MemDevice>], read_only, max_missing_tops| {
        let options = ImportOptions { host: host(1), read_only, ..ImportOptions::default() };
        Pool::import(&exec(), opened(devices), &options, &Runtime { max_missing_tops, ..Runtime::new() })
    };
    assert!(import(&devices[..2], true, 0).is_err() && import(&devices[..1], true, 1).is_err(), "too few");
    assert!(import(&devices[..2], false, 1).is_err(), "to be written");
    let pool = import(&devices[..2], true, 1).expect("two of three");
    assert_eq!((pool.tree().lost_tops(), pool.name().as_str()), (1, "tank"));
    assert!(pool.dsl().hold("tank").is_ok(), "metadata have copies elsewhere");
    drop(pool);
    import(&devices, false, 1).expect("all are there").export().expect("exported");
}
