//! Devices are filled by sequential rebuild, between writes, crashes and imports. What the user loses when these fail: data, when
//! the next device fails after a rebuild that was not one.
use crate::common::{BLOCKS, check, check_redundancy, create, devices, filled, guids, import, leaf, new_object, write};
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Mutex};
use pool::{
    DeviceProblem, ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, RebuildState, Runtime, ScanError, ScanFunction, ScanState, TopSpec,
};
use std::sync::Arc;
use vdev::{DraidConfig, LeafKind, Pairing, TopKind};
use zio::{Fault, FaultError, LeafFault};

fn draid(parity: usize, data: usize, children: usize) -> TopKind {
    TopKind::Draid(DraidConfig::new(parity, data, 0, children).expect("a shape"))
}

fn rebuild_refs(pool: &Pool) -> u64 {
    pool.features().iter().find(|(name, ..)| name == "device_rebuild").and_then(|(.., count)| *count).expect("enabled")
}

#[test]
fn a_replaced_device_is_rebuilt_and_a_scrub_follows() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Mirror, 3), (draid(1, 2, 4), 4), (draid(2, 3, 7), 7)] {
        let what = format!("{kind:?} of {count}");
        let devices = devices(count + 1);
        let (pool, object) = filled(&devices[..count], kind);
        let old = guids(&pool)[0];
        pool.attach_sequential(old, &leaf(&devices[count]), Pairing::Replacing, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        let [status] = pool.rebuild_status()[..] else { panic!("{what}: one vdev is rebuilt") };
        assert_eq!((status.state, status.errors, rebuild_refs(&pool)), (RebuildState::Active, 0, 1), "{what}");
        assert!(pool.is_rebuilding() && pool.scan_status().is_none(), "{what}: no resilver beside it");
        assert_eq!(pool.scrub_start(), Err(PoolError::Scan(ScanError::Resilvering)), "{what}");
        let again = pool.attach(old, &leaf(&devices[count]), Pairing::Replacing, true);
        assert!(matches!(again, Err(PoolError::Rebuilding)), "{what}: {again:?}");
        // What is written meanwhile reaches the new device by itself.
        write(&pool, object, 0..4, 2);
        pool.rebuild_wait().expect("rebuilt");
        pool.sync().expect("synced");
        let [status] = pool.rebuild_status()[..] else { panic!("{what}: one vdev was rebuilt") };
        assert_eq!((status.state, status.errors, rebuild_refs(&pool)), (RebuildState::Complete, 0, 0), "{what}");
        assert!(
            status.rebuilt > 0 && status.end_time >= status.start_time && status.scanned <= status.estimated + (32 << 20),
            "{what}: {status:?}"
        );
        assert!(!pool.tree().is_replacing() && pool.tree().leaves.len() == count, "{what}: the old one is gone");
        for leaf in &pool.tree().leaves {
            assert_eq!((leaf.missing_txgs.as_slice(), leaf.dtl.0, leaf.rebuild_txg.0), (&[][..], 0, 0), "{what}");
        }
        assert_eq!(pool.scan_status().map(|scan| (scan.function, scan.state)), Some((ScanFunction::Scrub, ScanState::Scanning)), "{what}");
        pool.scrub_wait().expect("scrubbed");
        let scan = pool.scan_status().expect("a scrub");
        assert_eq!((scan.state, scan.errors, scan.repaired), (ScanState::Finished, 0, 0), "{what}: the rebuild left nothing to repair");
        pool.export().expect("exported");
        let ages: Vec<u64> = (0..BLOCKS).map(|block| if block < 4 { 2 } else { 1 }).collect();
        let mut rest = devices[1..].to_vec();
        rest.truncate(count);
        check_redundancy(&rest, kind, object, &ages, &what);
    }
}

#[test]
fn what_cannot_be_rebuilt_is_refused_by_name() {
    let devices = devices(6);
    let pool = create(&devices[..3], TopKind::Raidz(1));
    let first = guids(&pool)[0];
    let refused = pool.attach_sequential(first, &leaf(&devices[3]), Pairing::Replacing, false);
    assert_eq!(refused, Err(PoolError::Target("only mirror and dRAID vdevs support sequential reconstruction")));
    pool.attach(first, &leaf(&devices[3]), Pairing::Replacing, false).expect("healing");
    drop(pool);
    let pool = create(&devices[4..6], TopKind::Mirror);
    let first = guids(&pool)[0];
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.attach(first, &leaf(&devices[0]), Pairing::Mirror, true).expect("attached");
    let refused = pool.attach_sequential(first, &leaf(&devices[1]), Pairing::Mirror, true);
    assert_eq!(refused, Err(PoolError::Scan(ScanError::Resilvering)));
}

/// If this fails, a device that comes while another one is being rebuilt is taken for whole, or stays without anything.
#[test]
fn a_second_device_makes_the_rebuild_begin_again() {
    let devices = devices(4);
    let (pool, object) = filled(&devices[..2], TopKind::Mirror);
    let first = guids(&pool)[0];
    pool.attach_sequential(first, &leaf(&devices[2]), Pairing::Mirror, false).expect("attached");
    pool.rebuild_parameters().max_segment.store(64 << 10, std::sync::atomic::Ordering::Relaxed);
    pool.rebuild_drive_part(5).expect("driven");
    let scanned = pool.rebuild_status()[0].scanned;
    assert!(scanned > 0 && pool.is_rebuilding());
    pool.attach_sequential(first, &leaf(&devices[3]), Pairing::Mirror, false).expect("attached");
    assert_eq!(pool.rebuild_status()[0].scanned, 0, "from the beginning");
    assert_eq!(rebuild_refs(&pool), 1);
    pool.rebuild_wait().expect("rebuilt");
    pool.sync().expect("synced");
    assert!(pool.tree().leaves.iter().all(|leaf| leaf.missing_txgs.is_empty()));
    pool.export().expect("exported");
    check_redundancy(&devices, TopKind::Mirror, object, &[1; BLOCKS as usize], "four ways");
}

/// If this fails, a rebuild of a device that left goes on for ever, and keeps others from being attached.
#[test]
fn a_rebuild_that_nothing_needs_any_more_is_canceled() {
    let devices = devices(3);
    let (pool, object) = filled(&devices[..2], TopKind::Mirror);
    pool.attach_sequential(guids(&pool)[0], &leaf(&devices[2]), Pairing::Replacing, false).expect("attached");
    pool.rebuild_parameters().max_segment.store(64 << 10, std::sync::atomic::Ordering::Relaxed);
    pool.rebuild_drive_part(3).expect("driven");
    let tree = pool.tree();
    let new = tree.leaves.iter().find(|leaf| leaf.path == "d2").expect("there").guid;
    pool.detach(new).expect("detached");
    pool.rebuild_wait().expect("ended");
    pool.sync().expect("synced");
    assert_eq!((pool.rebuild_status()[0].state, rebuild_refs(&pool)), (RebuildState::Canceled, 0));
    pool.attach_sequential(guids(&pool)[0], &leaf(&devices[2]), Pairing::Replacing, true).expect("once more");
    pool.rebuild_wait().expect("rebuilt");
    pool.sync().expect("synced");
    assert_eq!(pool.rebuild_status()[0].state, RebuildState::Complete);
    check(&pool, object, &[1; BLOCKS as usize], "rebuilt");
}

/// Holds the rebuild's large writes until every device of the meeting has had one.
struct Meeting {
    inner: MemDevice,
    number: usize,
    guests: Arc<Mutex<Guests>>,
}

#[derive(Default)]
struct Guests {
    came: [bool; 2],
    waiting: Vec<(Arc<Meeting>, DeviceIo)>,
}

/// The device of a meeting that a pool uses.
struct Guest(Arc<Meeting>);

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.inner.fmt(f)
    }
}

impl BlockDevice for Guest {
    fn submit(&self, io: DeviceIo) {
        if !matches!(&io.op, DeviceOp::Write(_)) || io.op.length_bytes() <= LARGE {
            return self.0.inner.submit(io);
        }
        let released = {
            let mut guests = self.0.guests.lock();
            guests.came[self.0.number] = true;
            guests.waiting.push((self.0.clone(), io));
            if guests.came == [true; 2] { std::mem::take(&mut guests.waiting) } else { Vec::new() }
        };
        released.into_iter().for_each(|(device, io)| device.inner.submit(io));
    }
    fn facts(&self) -> &DeviceFacts {
        self.0.inner.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.0.inner.size_bytes()
    }
}

/// More than the pool's own records have.
const LARGE: u64 = 256 << 10;

/// If this fails, the second of two vdevs that lost a device stays without redundancy until the first has it back.
#[test]
fn two_vdevs_are_rebuilt_at_the_same_time() {
    let devices = devices(4);
    let tops = devices.chunks(2).map(|pair| TopSpec { kind: TopKind::Mirror, leaves: pair.iter().map(leaf).collect() }).collect();
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let spec = PoolSpec { host: crate::common::host(), ..PoolSpec::new("tank", tops, crate::common::dataset()) };
    let pool = Pool::create(&exec, spec, &Runtime::new()).expect("created");
    let object = new_object(&pool);
    for round in 0..8 {
        write(&pool, object, round * 48..(round + 1) * 48, 1);
    }
    pool.sync().expect("synced");
    let guests = Arc::new(Mutex::new(Guests::default()));
    for (number, old) in [guids(&pool)[0], guids(&pool)[2]].into_iter().enumerate() {
        let path = format!("new{number}");
        let inner = MemDevice::new(&path, crate::common::DEVICE_BYTES);
        let device = Arc::new(Guest(Arc::new(Meeting { inner, number, guests: guests.clone() })));
        let new = LeafSpec { path, kind: LeafKind::File, device };
        pool.attach_sequential(old, &new, Pairing::Replacing, false).expect("attached");
    }
    for _ in 0..3000 {
        if guests.lock().came == [true; 2] {
            break;
        }
        exec.sleep_ns(10_000_000);
    }
    // Nobody waits any more, whatever comes of it.
    let (came, waiting) = {
        let mut guests = guests.lock();
        (std::mem::replace(&mut guests.came, [true; 2]), std::mem::take(&mut guests.waiting))
    };
    waiting.into_iter().for_each(|(device, io)| device.inner.submit(io));
    pool.rebuild_wait().expect("rebuilt");
    assert_eq!(came, [true; 2], "each vdev's rebuild writes while the other one is under way");
    pool.sync().expect("synced");
    assert!(pool.rebuild_status().iter().all(|status| (status.state, status.errors) == (RebuildState::Complete, 0)));
    assert_eq!((pool.rebuild_status().len(), rebuild_refs(&pool), pool.tree().leaves.len()), (2, 0, 4));
    pool.scrub_wait().expect("scrubbed");
    let scan = pool.scan_status().expect("a scrub follows");
    assert_eq!((scan.state, scan.errors, scan.repaired), (ScanState::Finished, 0, 0));
    check(&pool, object, &[1; 384], "rebuilt");
    pool.export().expect("exported");
}

/// If this fails, `zfs_scan_suspend_progress` does not hold a rebuild, or one that is held can't be got rid of.
#[test]
fn a_held_rebuild_waits_over_an_import_and_ends_with_its_device() {
    let devices = devices(3);
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let pool = crate::common::create_under(&exec, &devices[..2], TopKind::Mirror);
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    pool.suspend_rebuilds(true);
    pool.attach_sequential(guids(&pool)[0], &leaf(&devices[2]), Pairing::Replacing, false).expect("attached");
    pool.sync().expect("synced");
    let held = |pool: &Pool| {
        let [status] = pool.rebuild_status()[..] else { panic!("one vdev is rebuilt") };
        assert_eq!((status.state, status.scanned, rebuild_refs(pool)), (RebuildState::Active, 0, 1));
        assert!(pool.tree().is_replacing() && pool.is_rebuilding());
    };
    held(&pool);
    pool.export().expect("exported");
    let runtime = Runtime { scans: pool::ScanTunables { suspended: true, ..pool::ScanTunables::default() }, ..Runtime::new() };
    let all = devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
    let options = ImportOptions { host: crate::common::host(), ..ImportOptions::default() };
    let pool = Pool::import(&exec, all, &options, &runtime).expect("imported");
    pool.sync().expect("synced");
    held(&pool);
    let new = pool.tree().leaves.iter().find(|leaf| leaf.path == "d2").expect("there").guid;
    pool.detach(new).expect("detached");
    pool.rebuild_wait().expect("ended");
    pool.sync().expect("synced");
    assert_eq!((pool.rebuild_status()[0].state, rebuild_refs(&pool)), (RebuildState::Canceled, 0));
    pool.export().expect("exported");
}

/// If this fails, a dRAID is rebuilt at the speed of one child, however many it has.
#[test]
fn children_share_the_writes_of_a_rebuild() {
    const CHILDREN: usize = 7;
    let devices = crate::common::devices_of(CHILDREN, 160 << 20);
    let pool = create(&devices, TopKind::Draid(DraidConfig::new(1, 2, 1, CHILDREN).expect("a shape")));
    let object = new_object(&pool);
    // More than two slices, of 64 MiB of data each.
    for round in 0..72 {
        write(&pool, object, round * 64..(round + 1) * 64, 1);
        if round % 8 == 7 {
            pool.sync().expect("synced");
        }
    }
    let (first, spare) = (guids(&pool)[0], pool.spares()[0].guid);
    pool.fault(first, false).expect("faulted");
    pool.spare_in(first, spare, None, true).expect("a spare");
    let written = |pool: &Pool| -> Vec<u64> { pool.status().leaves.iter().map(|leaf| leaf.counts.bytes[1]).collect() };
    let before = written(&pool);
    // Enough for what nobody lacks, which comes first, and a part of what the lost device had.
    pool.rebuild_drive_part(92).expect("driven");
    let busy = before.iter().zip(written(&pool)).filter(|(before, after)| after - *before >= 256 << 10).count();
    let now = written(&pool);
    let grown: Vec<u64> = before.iter().zip(now).map(|(before, after)| after - before).collect();
    assert!(busy >= 2, "{grown:?}: one child took all that was written");
    // A rebuild that is interrupted there goes on where nothing is left out.
    pool.sync().expect("synced");
    pool.export().expect("exported");
    let pool = import(&devices[1..], false).expect("imported");
    pool.rebuild_wait().expect("rebuilt");
    pool.sync().expect("synced");
    assert_eq!((pool.rebuild_status()[0].state, pool.rebuild_status()[0].errors), (RebuildState::Complete, 0));
    pool.scrub_wait().expect("scrubbed");
    let scan = pool.scan_status().expect("a scrub follows");
    assert_eq!((scan.state, scan.errors, scan.repaired), (ScanState::Finished, 0, 0));
    pool.export().expect("exported");
    // The spare's content is on the others: one more of them can go.
    for lost in 1..CHILDREN {
        let rest: Vec<_> = (1..CHILDREN).filter(|index| *index != lost).map(|index| devices[index].clone()).collect();
        let pool = import(&rest, true).expect("imported");
        check(&pool, object, &[1; 4608], "without one more");
    }
}

/// If this fails, a distributed spare that stands in for a device holds nothing of it, or never comes free again.
#[test]
fn a_distributed_spare_stands_in_until_the_device_is_replaced() {
    for (sequential, parity, data, children) in [(true, 1, 2, 5), (false, 1, 2, 5), (true, 2, 3, 8)] {
        let kind = TopKind::Draid(DraidConfig::new(parity, data, 1, children).expect("a shape"));
        let what = format!("{kind:?}, sequential {sequential}");
        let devices = devices(children + 1);
        let (pool, object) = filled(&devices[..children], kind);
        let spare = pool.spares()[0].clone();
        assert!(!spare.in_use && spare.is_distributed(), "{what}");
        let leaves = guids(&pool);
        pool.fault(leaves[0], false).expect("faulted");
        pool.spare_in(leaves[0], spare.guid, None, sequential).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(pool.spares()[0].in_use, "{what}");
        pool.rebuild_wait().expect("rebuilt");
        pool.scrub_wait().expect("scrubbed or resilvered");
        pool.sync().expect("synced");
        let tree = pool.tree();
        let stand_in = tree.leaf(tree.leaf_by_guid(spare.guid).expect("in the tree"));
        assert!(stand_in.missing_txgs.is_empty(), "{what}: the spare has everything");
        assert_eq!(pool.scan_status().map(|scan| scan.errors), Some(0), "{what}");
        let twice = pool.spare_in(leaves[1], spare.guid, None, sequential);
        assert!(matches!(twice, Err(PoolError::Device { problem: DeviceProblem::Busy, .. })), "{what}: one spare in two places: {twice:?}");
        write(&pool, object, 0..4, 2);
        pool.export().expect("exported");
        // The device is gone, and as many others as there is parity.
        let ages: Vec<u64> = (0..BLOCKS).map(|block| if block < 4 { 2 } else { 1 }).collect();
        for lost in 1..children {
            let rest: Vec<_> =
                (1..children).filter(|index| !(0..parity).any(|more| lost + more == *index)).map(|index| devices[index].clone()).collect();
            let pool = import(&rest, true).unwrap_or_else(|error| panic!("{what}, without {lost}: {error}"));
            check(&pool, object, &ages, &format!("{what}, without {lost}"));
        }
        // A new device gets it back; then the spare is free again.
        let pool = import(&devices[1..children], false).expect("imported");
        pool.attach(leaves[0], &leaf(&devices[children]), Pairing::Replacing, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        pool.scrub_wait().expect("resilvered");
        pool.sync().expect("synced");
        if pool.spares()[0].in_use {
            pool.detach(spare.guid).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert!(!pool.spares()[0].in_use && pool.tree().leaves.len() == children, "{what}");
        check(&pool, object, &ages, &what);
        pool.export().expect("exported");
        check_redundancy(&devices[1..], kind, object, &ages, &what);
    }
}

/// A device and another one fail while a spare is filled, so that the spare alone has what both missed. If this fails, such a pool
/// cannot be imported, or the rebuild that goes on writes old bytes over what only the spare has.
#[test]
fn what_only_the_spare_has_is_found_at_import_and_outlives_the_rebuild() {
    for other in 1..4 {
        let what = format!("devices 0 and {other} fail");
        let kind = TopKind::Draid(DraidConfig::new(1, 2, 1, 4).expect("a shape"));
        let devices = devices(4);
        let (pool, object) = filled(&devices, kind);
        let (leaves, spare) = (guids(&pool), pool.spares()[0].guid);
        pool.spare_in(leaves[0], spare, None, true).expect("a spare");
        pool.rebuild_parameters().max_segment.store(64 << 10, std::sync::atomic::Ordering::Relaxed);
        pool.rebuild_drive_part(2).expect("driven");
        // No block loses more than one column: the first device's are on the spare.
        for (age, failing) in [(2, leaves[0]), (3, leaves[other])] {
            pool.zio().inject(age, Fault::Leaf(LeafFault::Device { leaf: failing, error: FaultError::Io, kind: None }), 0);
            write(&pool, object, 0..8 * (4 - age), age);
            pool.sync().expect("synced");
        }
        assert!(pool.is_rebuilding(), "{what}");
        drop(pool);
        let pool = import(&devices, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        let ages: Vec<u64> = (0..BLOCKS).map(|block| 3 - (block / 8).min(2)).collect();
        check(&pool, object, &ages, &format!("{what}, imported"));
        pool.rebuild_wait().expect("rebuilt");
        pool.scrub_wait().expect("resilvered");
        pool.sync().expect("synced");
        check(&pool, object, &ages, &format!("{what}, rebuilt"));
        assert_eq!(pool.tree().resilver_range(), None, "{what}: nobody lacks anything");
        pool.detach(spare).expect("free again");
        pool.export().expect("exported");
        check_redundancy(&devices, kind, object, &ages, &what);
    }
}
