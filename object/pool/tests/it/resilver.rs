//! Leaves go offline and come back at any time, between writes, crashes and imports, and whatever they missed is brought to them.
//! What the user loses when these fail: everything, when the next device fails after a resilver that was not one.
use crate::common::{
    BLOCK_BYTES, BLOCKS, check, check_redundancy, checksum_errors, create, devices, exec, filled, guids, import, leaf, redundancy, write,
};
use device::{BlockDevice, MemDevice};
use nvlist::NvList;
use ondisk::label::{CONFIG_NVLIST_BYTES, CONFIG_OFFSET, LABELS, RING_BYTES, RING_OFFSET, label_offset};
use ondisk::{Guid, ObjectId, Uberblock};
use pool::{DeviceProblem, Pool, PoolError, ScanError, ScanFunction, ScanState};
use std::sync::Arc;
use vdev::{LeafState, Pairing, TopKind};
use zio::{Fault, FaultError, IoKind, LeafFault};

/// The label of a device that was detached from a mirror of two.
fn check_left_label(device: &Arc<MemDevice>) {
    for index in 0..LABELS {
        let start = label_offset(device.size_bytes(), index);
        let read = |at: usize, length| device.read_at(&exec(1), start + at as u64, length).expect("read").to_vec();
        let config = NvList::decode(&read(CONFIG_OFFSET, CONFIG_NVLIST_BYTES)).expect("a configuration");
        let children = config.get_nvlist("vdev_tree").and_then(|tree| tree.get_nvlist_array("children")).expect("what it was part of");
        assert_eq!((config.get_u64("txg"), config.get_u64("create_txg"), children.len()), (Some(0), Some(0), 2));
        let (last, _) = Uberblock::decode_slot(&read(RING_OFFSET, RING_BYTES)).expect("sound").expect("an uberblock");
        assert!(last.ub_txg == 0 && last.ub_rootbp.birth().0 > 0, "{last:?}");
    }
}

#[test]
fn a_device_that_was_offline_is_resilvered_when_it_comes_back() {
    for (kind, count) in
        [(TopKind::Mirror, 2), (TopKind::Mirror, 3), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5), (TopKind::Raidz(3), 5)]
    {
        let what = format!("{kind:?} of {count}");
        let devices = devices(count);
        let (pool, object) = filled(&devices, kind);
        let leaves = guids(&pool);
        let parity = redundancy(kind, count);
        for &leaf in &leaves[..parity] {
            pool.offline(leaf, false).expect("enough others");
        }
        assert_eq!(pool.offline(leaves[parity], false), Err(PoolError::NoReplicas), "{what}");
        assert_eq!(pool.offline(Guid(5), false), Err(PoolError::NoSuchDevice));
        assert_eq!(pool.tree().leaves[0].state, LeafState::Offline);
        write(&pool, object, 3..9, 2);
        pool.sync().expect("synced");
        assert!(!pool.tree().leaves[0].missing_txgs.is_empty(), "{what}: what it misses is known");

        // The state and the log outlive the pool.
        pool.export().expect("exported");
        let pool = import(&devices, false).expect("imported");
        assert_eq!(pool.tree().leaves[0].state, LeafState::Offline, "{what}");
        assert!(!pool.tree().leaves[0].missing_txgs.is_empty(), "{what}");
        let mut ages = vec![1; BLOCKS as usize];
        ages[3..9].fill(2);
        check(&pool, object, &ages, &what);

        let before = pool.status().leaves[0].counts.bytes[1];
        for (&leaf, device) in leaves[..parity].iter().zip(&devices) {
            assert_eq!(pool.online(leaf, Some(device.clone())), Ok(LeafState::Online));
            let status = pool.scan_status().expect("begun by itself");
            assert_eq!((status.function, status.state), (ScanFunction::Resilver, ScanState::Scanning), "{what}");
        }
        assert_eq!(pool.offline(leaves[parity], false), Err(PoolError::NoReplicas), "{what}: nobody else has it yet");
        assert_eq!(pool.scrub_start(), Err(PoolError::Scan(ScanError::Resilvering)));
        assert_eq!(pool.scrub_stop(), Err(PoolError::Scan(ScanError::Resilvering)));
        assert_eq!(pool.scrub_pause(), Err(PoolError::Scan(ScanError::NotRunning)));
        pool.scrub_wait().expect("resilvered");
        pool.sync().expect("synced");
        let status = pool.scan_status().expect("a scan");
        assert_eq!((status.state, status.errors), (ScanState::Finished, 0), "{what}");
        for leaf in &pool.tree().leaves {
            assert_eq!((leaf.missing_txgs.as_slice(), leaf.dtl.0, leaf.resilver_txg.0), (&[][..], 0, 0), "{what}");
        }
        // Only what it lacked was written: not the rest of the blocks.
        let written = pool.status().leaves[0].counts.bytes[1] - before;
        assert!(written < (BLOCKS * BLOCK_BYTES as u64) / 2 + (8 << 20), "{what}: {written} bytes");
        assert_eq!(checksum_errors(&pool), 0, "{what}");
        pool.export().expect("exported");
        check_redundancy(&devices, kind, object, &ages, &what);
    }
}

/// If this fails, a device that was taken offline for this boot only stays away, or one declared faulted comes back.
#[test]
fn temporary_states_end_with_the_pool_and_faults_do_not() {
    let devices = devices(4);
    let pool = create(&devices, TopKind::Raidz(2));
    let leaves = guids(&pool);
    pool.offline(leaves[0], true).expect("offline");
    pool.fault(leaves[1], false).expect("faulted");
    assert_eq!(pool.fault(leaves[2], false), Ok(()));
    let states = |pool: &Pool| pool.tree().leaves.iter().map(|leaf| leaf.state).collect::<Vec<_>>();
    assert_eq!(states(&pool), [LeafState::Offline, LeafState::Faulted, LeafState::Degraded, LeafState::Online]);
    pool.clear(None).expect("cleared");
    assert_eq!(states(&pool)[2], LeafState::Online, "a degraded leaf is as good as any once its errors are forgotten");
    pool.export().expect("exported");
    let pool = import(&devices, false).expect("imported");
    assert_eq!(states(&pool), [LeafState::Online, LeafState::Faulted, LeafState::Online, LeafState::Online]);
    // Another device in its place is not it.
    assert_eq!(pool.online(leaves[1], Some(devices[3].clone())), Ok(LeafState::Missing));
    assert_eq!(pool.online(leaves[1], None), Ok(LeafState::Missing));
    assert_eq!(pool.online(leaves[1], Some(devices[1].clone())), Ok(LeafState::Online));
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert!(pool.tree().leaves.iter().all(|leaf| leaf.missing_txgs.is_empty()));
}

/// If this fails, a device that came after an import goes by its guid when it goes away again, as if it had never been at its path.
#[test]
fn a_device_that_came_after_an_import_is_there() {
    let devices = devices(3);
    create(&devices, TopKind::Raidz(1)).export().expect("exported");
    let pool = import(&devices[..2], false).expect("imported");
    let leaf = guids(&pool)[2];
    let absent = || pool.tree().leaves.iter().filter(|leaf| leaf.is_not_present).map(|leaf| leaf.guid).collect::<Vec<_>>();
    assert_eq!((pool.online(leaf, None), absent()), (Ok(LeafState::Missing), vec![leaf]));
    assert_eq!((pool.online(leaf, Some(devices[2].clone())), absent()), (Ok(LeafState::Online), Vec::new()));
}

/// If this fails, a scrub that is under way keeps a device from being resilvered, or clears the log of one that was not.
#[test]
fn a_resilver_takes_the_place_of_a_scrub() {
    let devices = devices(3);
    let (pool, object) = filled(&devices, TopKind::Raidz(1));
    let leaves = guids(&pool);
    pool.offline(leaves[2], false).expect("offline");
    write(&pool, object, 0..BLOCKS, 2);
    pool.scrub_start().expect("started");
    pool.scrub_drive_part(3).expect("driven");
    pool.online(leaves[2], Some(devices[2].clone())).expect("back");
    assert_eq!(pool.scan_status().expect("a scan").function, ScanFunction::Resilver);
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert_eq!(pool.tree().leaves[2].missing_txgs, vec![]);
    pool.export().expect("exported");
    check_redundancy(&devices, TopKind::Raidz(1), object, &[2; BLOCKS as usize], "after a scrub");
}

/// A pool in the middle of a resilver of its first leaf, which its second needs too; and the ages of its blocks.
fn half_way(devices: &[Arc<MemDevice>]) -> (Pool, ObjectId, Vec<Guid>) {
    let (pool, object) = filled(devices, TopKind::Raidz(2));
    let leaves = guids(&pool);
    pool.offline(leaves[0], false).expect("offline");
    pool.offline(leaves[1], false).expect("offline");
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    pool.online(leaves[0], Some(devices[0].clone())).expect("back");
    pool.scrub_drive_part(BLOCKS as usize / 2).expect("driven");
    let percent = pool.scan_status().expect("a resilver").percent();
    assert!((10.0..100.0).contains(&percent), "{percent}");
    (pool, object, leaves)
}

fn references(pool: &Pool) -> Option<u64> {
    pool.features().into_iter().find(|(name, ..)| name == "resilver_defer").and_then(|(_, _, references)| references)
}

/// If this fails, every disk that is replaced while another is resilvered throws that one back to the beginning, or is never resilvered.
#[test]
fn a_device_that_comes_late_waits_for_the_next_resilver() {
    let devices = devices(5);
    let (pool, object, leaves) = half_way(&devices);
    let began = pool.scan_status().expect("a resilver");
    pool.online(leaves[1], Some(devices[1].clone())).expect("back");
    let now = pool.scan_status().expect("a resilver");
    assert_eq!((now.start_time, now.issued >= began.issued), (began.start_time, true), "it goes on");
    let deferred = |pool: &Pool| pool.tree().leaves.iter().map(|leaf| leaf.resilver_deferred).collect::<Vec<_>>();
    assert_eq!((deferred(&pool), references(&pool)), (vec![false, true, false, false, false], Some(1)));
    // It is known to the next one who imports the pool, and does not begin the resilver again then.
    pool.export().expect("exported");
    let pool = import(&devices, false).expect("imported");
    assert_eq!((deferred(&pool), references(&pool)), (vec![false, true, false, false, false], Some(1)));
    assert_eq!(pool.scan_status().expect("a resilver").start_time, began.start_time);
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert!(pool.tree().leaves.iter().all(|leaf| leaf.missing_txgs.is_empty()), "both resilvers are over");
    assert_eq!((deferred(&pool), references(&pool)), (vec![false; 5], Some(0)));
    let lines = pool.history().expect("readable");
    let said = |name: &str| lines.iter().filter(|line| line.get_str("internal_name") == Some(name)).count();
    assert_eq!((said("starting deferred resilver"), said("scan setup"), said("scan cancelled")), (1, 2, 0));
    pool.export().expect("exported");
    check_redundancy(&devices, TopKind::Raidz(2), object, &[2; BLOCKS as usize], "after two resilvers");
}

/// If this fails, `zpool resilver` leaves out who waits, or nobody can have it the old way.
#[test]
fn a_resilver_begins_again_with_everybody_when_it_is_told_to() {
    let devices = devices(5);
    for told in [false, true] {
        let (pool, object, leaves) = half_way(&devices);
        if !told {
            pool.tune_scans(pool::ScanTunables { defer_percent: None, ..pool::ScanTunables::default() });
        }
        pool.online(leaves[1], Some(devices[1].clone())).expect("back");
        if told {
            pool.resilver_restart().expect("begun");
        }
        assert_eq!(references(&pool), Some(0), "nobody waits");
        assert!(pool.tree().leaves[..2].iter().all(|leaf| leaf.resilver_txg.0 != 0 && !leaf.resilver_deferred));
        pool.scrub_wait().expect("resilvered");
        pool.sync().expect("synced");
        assert!(pool.tree().leaves.iter().all(|leaf| leaf.missing_txgs.is_empty()));
        pool.export().expect("exported");
        check_redundancy(&devices, TopKind::Raidz(2), object, &[2; BLOCKS as usize], "after one resilver");
        devices.iter().for_each(|device| device.tamper(|bytes| bytes.fill(0)));
    }
}

/// If this fails, whoever tells a pool not to have a new disk wait for another one's resilver is heard for the disk after that one only; or a resilver that
/// takes in who waited never ends.
#[test]
fn who_waits_for_the_next_resilver_is_taken_in_when_the_parameters_say_so() {
    let devices = devices(5);
    for defer_percent in [None, Some(100)] {
        let (pool, object, leaves) = half_way(&devices);
        let tune = |defer_percent| pool.tune_scans(pool::ScanTunables { defer_percent, ..pool::ScanTunables::default() });
        pool.online(leaves[1], Some(devices[1].clone())).expect("back");
        pool.sync().expect("synced");
        assert_eq!(references(&pool), Some(1), "it waits");
        tune(defer_percent);
        pool.sync().expect("synced");
        assert_eq!(references(&pool), Some(0), "nobody waits");
        assert!(pool.tree().leaves[..2].iter().all(|leaf| leaf.resilver_txg.0 != 0 && !leaf.resilver_deferred));
        pool.sync().expect("synced");
        pool.scrub_wait().expect("resilvered");
        pool.sync().expect("synced");
        assert!(pool.tree().leaves.iter().all(|leaf| leaf.missing_txgs.is_empty()));
        let lines = pool.history().expect("readable");
        let said = |name: &str| lines.iter().filter(|line| line.get_str("internal_name") == Some(name)).count();
        assert_eq!((said("scan setup"), said("scan aborted, restarting")), (2, 1), "once");
        pool.export().expect("exported");
        check_redundancy(&devices, TopKind::Raidz(2), object, &[2; BLOCKS as usize], "after one resilver");
        devices.iter().for_each(|device| device.tamper(|bytes| bytes.fill(0)));
    }
}

/// If this fails, a single disk can't become a mirror, or a disk can't be replaced, or the old one is let go too early.
#[test]
fn a_disk_becomes_a_mirror_and_is_replaced() {
    let devices = devices(5);
    let (pool, object) = filled(&devices[..1], TopKind::Leaf);
    let first = guids(&pool)[0];
    assert_eq!(pool.detach(first), Err(PoolError::Target("only applicable to mirror and replacing vdevs")));
    let small = Arc::new(MemDevice::new("small", 66 << 20));
    let refused = pool.attach(first, &leaf(&small), Pairing::Mirror, false);
    assert_eq!(refused, Err(PoolError::Device { path: "small".into(), problem: DeviceProblem::TooSmallForVdev }));
    pool.attach(first, &leaf(&devices[1]), Pairing::Mirror, false).expect("attached");
    assert_eq!(pool.tree().tops[0].kind, TopKind::Mirror);
    assert_eq!(pool.detach(first), Err(PoolError::NoReplicas), "the other one has nothing yet");
    pool.scrub_wait().expect("resilvered");
    pool.attach(first, &leaf(&devices[2]), Pairing::Replacing, false).expect("replaced");
    assert_eq!(pool.tree().leaves.len(), 3);
    // Crashes in the middle lose nothing, neither the old device nor the new one.
    pool.scrub_drive_part(4).expect("driven");
    drop(pool);
    let pool = import(&devices, false).expect("imported");
    assert_eq!(pool.tree().leaves.len(), 3);
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    let paths = |pool: &Pool| pool.tree().leaves.iter().map(|leaf| leaf.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&pool), ["d2", "d1"]);
    assert_eq!(pool.scan_status().map(|status| (status.state, status.errors)), Some((ScanState::Finished, 0)));
    let second = guids(&pool)[1];
    pool.detach(second).expect("detached");
    assert_eq!((pool.tree().tops[0].kind, paths(&pool)), (TopKind::Leaf, vec!["d2".to_string()]));
    write(&pool, object, 0..4, 2);
    pool.export().expect("exported");
    // What was detached belongs to no pool, but says what it was, so that `zhack label repair` can undo a detach; what is left is all of
    // the pool.
    check_left_label(&devices[1]);
    assert!(matches!(import(&devices[..2], false).err(), Some(PoolError::NotFound)));
    let pool = import(&devices[2..3], false).expect("imported");
    let ages: Vec<u64> = (0..BLOCKS).map(|block| if block < 4 { 2 } else { 1 }).collect();
    check(&pool, object, &ages, "the last one");
    assert!(pool.verify_space().expect("readable").is_clean());
    pool.attach(guids(&pool)[0], &leaf(&devices[0]), Pairing::Mirror, false).expect("a detached device is free");
}

/// If this fails, copies of a pool can't be told apart by a new guid, or the pool with the new one is never found again.
#[test]
fn a_pool_gets_another_guid() {
    let devices = devices(2);
    let pool = create(&devices, TopKind::Mirror);
    let first = pool.guid();
    pool.reguid(Some(Guid(42))).expect("synced");
    assert_eq!((pool.guid(), pool.tree().guid), (Guid(42), Guid(42)));
    // Not closed: the labels have it already.
    drop(pool);
    let pool = import(&devices, false).expect("imported");
    assert_eq!(pool.guid(), Guid(42));
    pool.reguid(None).expect("synced");
    assert!(![first, Guid(42)].contains(&pool.guid()));
    let now = pool.guid();
    pool.offline(pool.tree().leaves[0].guid, true).expect("the other one is there");
    assert!(matches!(pool.reguid(None), Err(PoolError::Target(_))), "a label would be of another pool");
    pool.export().expect("exported");
    let pool = import(&devices, false).expect("imported");
    assert_eq!(pool.guid(), now);
    assert!(pool.verify_space().expect("readable").is_clean());
}

/// If this fails, what users read while a device is resilvered is computed again and again, or what was fed is wrong, or read a
/// second time by the resilver.
#[test]
fn a_degraded_read_feeds_the_resilver() {
    for (kind, count) in [(TopKind::Mirror, 2), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5)] {
        let what = format!("{kind:?} of {count}");
        let devices = devices(count + 1);
        let (pool, object) = filled(&devices[..count], kind);
        let fed = |pool: &Pool| pool.zio().stats().fed_bytes.get();
        check(&pool, object, &[1; BLOCKS as usize], &what);
        assert_eq!(fed(&pool), 0, "{what}: nothing is lacking");
        // The old device is gone for good, the new one has nothing.
        let old = guids(&pool)[0];
        pool.offline(old, false).expect("offline");
        pool.attach(old, &leaf(&devices[count]), Pairing::Replacing, false).expect("replaced");
        assert_eq!(pool.scan_status().map(|scan| (scan.function, scan.state)), Some((ScanFunction::Resilver, ScanState::Scanning)));
        check(&pool, object, &[1; BLOCKS as usize], &what);
        let written = fed(&pool);
        assert!(written >= BLOCKS * BLOCK_BYTES as u64 / count as u64 / 2, "{what}: {written} bytes were fed");
        check(&pool, object, &[1; BLOCKS as usize], &what);
        // Of the last device, which stays.
        let reads = |pool: &Pool| pool.status().leaves.last().map_or(0, |leaf| leaf.counts.bytes[0]);
        let before = reads(&pool);
        pool.scrub_drive().expect("resilvered");
        let status = pool.scan_status().expect("a scan");
        assert_eq!((status.state, status.errors), (ScanState::Finished, 0), "{what}");
        if kind == TopKind::Mirror {
            assert!(reads(&pool) - before < BLOCKS * BLOCK_BYTES as u64, "{what}: what was fed is not read again");
        }
        pool.sync().expect("synced");
        assert!(!pool.tree().is_replacing(), "{what}");
        pool.export().expect("exported");
        check_redundancy(&devices[1..], kind, object, &[1; BLOCKS as usize], &what);
    }
}

/// A device that fails to flush may lose what it took. If this fails, nobody knows after a crash, and the device is believed.
#[test]
fn what_a_device_that_did_not_flush_may_lack_is_on_disk_with_the_same_txg() {
    for (kind, count) in [(TopKind::Mirror, 2), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5)] {
        let what = format!("{kind:?} of {count}");
        let devices = devices(count);
        let (pool, object) = filled(&devices, kind);
        let leaves = guids(&pool);
        pool.zio().inject(1, Fault::Leaf(LeafFault::Device { leaf: leaves[0], error: FaultError::Io, kind: Some(IoKind::Flush) }), 0);
        write(&pool, object, 0..4, 2);
        pool.sync().expect("synced");
        let txg = pool.txg();
        drop(pool);
        let pool = import(&devices, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(pool.txg(), txg, "{what}: nothing was synced since");
        let tree = pool.tree();
        let lacks: Vec<bool> = leaves.iter().map(|guid| tree.leaf(tree.leaf_by_guid(*guid).expect("there")).lacks(txg)).collect();
        assert_eq!(lacks, (0..count).map(|index| index == 0).collect::<Vec<_>>(), "{what}");
    }
}
