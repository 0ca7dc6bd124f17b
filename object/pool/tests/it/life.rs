//! Vdevs and spares join and leave a pool in use, devices grow, fail and come back. What the user loses when these fail: blocks on
//! a vdev that the next import does not know, or a spare that is not there when it is needed.
use crate::common::{
    BLOCK_BYTES, BLOCKS, DEVICE_BYTES, check, check_redundancy, checksum_errors, create, devices, filled, guids, import, import_under,
    leaf, new_object, write,
};
use device::{BlockDevice, MemDevice};
use exec::Mutex;
use kstat::{Event, EventSink};
use ondisk::{Guid, ObjectId};
use pool::{AddSpec, DeviceProblem, Pool, PoolError, Runtime, ScanFunction, TopSpec};
use std::sync::{Arc, OnceLock, Weak};
use vdev::{LeafState, NodeKind, Pairing, TopKind, VdevTree};

fn top(kind: TopKind, devices: &[Arc<MemDevice>]) -> TopSpec {
    TopSpec { kind, leaves: devices.iter().map(leaf).collect() }
}

fn spare(device: &Arc<MemDevice>) -> AddSpec {
    AddSpec { spares: vec![leaf(device)], ..AddSpec::default() }
}

/// A copy of a device with another size.
fn resized(device: &Arc<MemDevice>, bytes: usize) -> Arc<MemDevice> {
    let mut content = device.contents();
    content.resize(bytes, 0);
    Arc::new(MemDevice::with_bytes(&device.path().display().to_string(), content))
}

fn paths(tree: &VdevTree) -> Vec<String> {
    tree.leaves.iter().map(|leaf| leaf.path.clone()).collect()
}

fn used(pool: &Pool) -> Vec<u64> {
    pool.status().vdev_space.iter().map(|space| space.allocated).collect()
}

/// If this fails, a vdev that was added holds blocks that the next import does not find, or is not used before that.
#[test]
fn a_vdev_that_is_added_is_used_at_once_and_after_a_crash() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3)] {
        let what = format!("{kind:?}");
        let all = devices(3 + count);
        let (pool, object) = filled(&all[..3], TopKind::Raidz(1));
        let before = pool.status().space;
        pool.add(AddSpec { tops: vec![top(kind, &all[3..])], ..AddSpec::default() }).expect("added");
        let after = pool.status().space;
        assert!(after.capacity > before.capacity && after.allocated < before.allocated + (8 << 20), "{what}");
        for age in 2..6 {
            write(&pool, object, 0..BLOCKS, age);
            pool.sync().expect("synced");
        }
        assert!(used(&pool)[1] > BLOCK_BYTES as u64, "{what}: {:?}", used(&pool));
        assert!(pool.verify_space().expect("readable").is_clean(), "{what}");
        write(&pool, object, 0..4, 6);
        drop(pool);
        assert!(import(&all[..3], false).is_err(), "{what}: what was added is part of the pool");
        let pool = import(&all, false).expect("imported");
        check(&pool, object, &[5; BLOCKS as usize], &what);
        assert!(pool.verify_space().expect("readable").is_clean(), "{what}");
        write(&pool, object, 0..BLOCKS, 7);
        pool.export().expect("exported");
        let pool = import(&all, true).expect("imported");
        assert_eq!(pool.tree().tops.len(), 2);
        check(&pool, object, &[7; BLOCKS as usize], &what);
    }
}

/// If this fails, a user's slip is not refused, or leaves half of a vdev behind.
#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let all = devices(6);
    let pool = create(&all[..2], TopKind::Mirror);
    let before = pool.tree();
    let small = Arc::new(MemDevice::new("small", 32 << 20));
    let refused = |spec: AddSpec| pool.add(spec).expect_err("refused");
    assert!(matches!(refused(AddSpec::default()), PoolError::Invalid(_)));
    let spec = AddSpec { tops: vec![top(TopKind::Leaf, std::slice::from_ref(&small))], ..AddSpec::default() };
    assert!(matches!(refused(spec), PoolError::Device { problem: DeviceProblem::TooSmall, .. }));
    let spec = AddSpec { tops: vec![top(TopKind::Leaf, &all[2..3])], ashift: Some(12), ..AddSpec::default() };
    assert_eq!(refused(spec), PoolError::AshiftMismatch);
    let taken = AddSpec { tops: vec![top(TopKind::Leaf, &all[1..2])], ..AddSpec::default() };
    assert!(matches!(refused(taken), PoolError::Device { problem: DeviceProblem::InUse, .. }));
    assert_eq!(pool.tree().tops.len(), before.tops.len());
    let spec = AddSpec { tops: vec![top(TopKind::Leaf, &all[2..3])], ashift: Some(12), allow_ashift_mismatch: true, ..AddSpec::default() };
    pool.add(spec).expect("allowed");
    let tree = pool.tree();
    assert_eq!(tree.tops.iter().map(|top| top.ashift).collect::<Vec<_>>(), [9, 12]);
    assert!(matches!(pool.remove_top(tree.tops[1].guid), Err(PoolError::Unremovable(_))));
    assert_eq!(pool.remove_top(Guid(1)), Err(PoolError::NoSuchDevice));
    pool.export().expect("exported");
    let pool = import(&all[..3], false).expect("imported");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    assert!(pool.verify_space().expect("readable").is_clean());
}

/// If this fails, a pool keeps a log device for ever, or its numbers of vdevs shift when it goes.
#[test]
fn a_log_device_comes_and_goes() {
    let all = devices(5);
    let pool = create(&all[..2], TopKind::Mirror);
    pool.add(AddSpec { logs: vec![top(TopKind::Leaf, &all[2..3])], ..AddSpec::default() }).expect("added");
    pool.add(AddSpec { tops: vec![top(TopKind::Mirror, &all[3..5])], ..AddSpec::default() }).expect("added");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    assert_eq!(used(&pool)[1], 0, "no data on the log");
    let log = pool.tree().tops[1].guid;
    assert!(pool.tree().tops[1].is_log);
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    pool.remove_top(log).expect("removed");
    write(&pool, object, 0..BLOCKS, 2);
    assert_eq!(pool.tree().tops.iter().map(|top| top.kind).collect::<Vec<_>>(), [TopKind::Mirror, TopKind::Hole, TopKind::Mirror]);
    pool.export().expect("exported");
    let without: Vec<_> = [0, 1, 3, 4].map(|index| all[index].clone()).to_vec();
    let pool = import(&without, false).expect("imported");
    check(&pool, object, &[2; BLOCKS as usize], "after the log went");
    assert!(pool.verify_space().expect("readable").is_clean());
    pool.add(AddSpec { logs: vec![top(TopKind::Leaf, &all[2..3])], ..AddSpec::default() }).expect("it is free again");
    assert_eq!(pool.tree().tops.len(), 4);
}

/// A mirror or RAID-Z with a spare beside it, and a file.
fn with_spare(kind: TopKind, count: usize) -> (Vec<Arc<MemDevice>>, Pool, ObjectId) {
    let all = devices(count + 2);
    let pool = create(&all[..count], kind);
    pool.add(spare(&all[count])).expect("added");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    (all, pool, object)
}

fn in_use(pool: &Pool) -> Vec<bool> {
    pool.spares().iter().map(|spare| spare.in_use).collect()
}

fn spare_of(pool: &Pool) -> Guid {
    pool.spares()[0].guid
}

fn bring(pool: &Pool, target: Guid, device: &Arc<MemDevice>) {
    pool.attach(target, &leaf(device), Pairing::Replacing, false).expect("the spare stands in");
    assert_eq!(pool.scan_status().map(|scan| scan.function), Some(ScanFunction::Resilver));
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
}

/// If this fails, a spare does not bring the redundancy back that a failed device cost, or is lost when that device is back.
#[test]
fn a_spare_stands_in_and_is_free_again() {
    for (kind, count) in [(TopKind::Mirror, 2), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5)] {
        let what = format!("{kind:?}");
        let (all, pool, object) = with_spare(kind, count);
        assert_eq!(in_use(&pool), [false]);
        let failed = guids(&pool)[0];
        pool.fault(failed, false).expect("faulted");
        write(&pool, object, 0..BLOCKS, 2);
        bring(&pool, failed, &all[count]);
        let tree = pool.tree();
        let id = tree.leaf_by_guid(failed).expect("still there");
        assert_eq!((tree.parent_kind(id), in_use(&pool)), (Some(NodeKind::Spare), vec![true]), "{what}");
        assert_eq!(pool.remove_aux(spare_of(&pool), None), Err(PoolError::SpareInUse));
        // The state outlives the pool; the spare makes up for the device.
        pool.export().expect("exported");
        check_redundancy(&all[1..=count], kind, object, &[2; BLOCKS as usize], &what);
        let pool = import(&all, false).expect("imported");
        assert_eq!(in_use(&pool), [true], "{what}");
        // The device is repaired: what it missed is brought to it, then the spare goes by itself.
        assert_eq!(pool.online(failed, Some(all[0].clone())), Ok(LeafState::Online));
        pool.scrub_wait().expect("resilvered");
        pool.sync().expect("synced");
        assert_eq!(in_use(&pool), [true], "{what}: it stays until the device is declared good");
        pool.clear(Some(failed)).expect("cleared");
        assert_eq!(in_use(&pool), [false], "{what}: then it goes by itself");
        assert_eq!(pool.tree().leaves.len(), count, "{what}");
        pool.export().expect("exported");
        check_redundancy(&all[..count], kind, object, &[2; BLOCKS as usize], &what);
        let pool = import(&all, false).expect("imported");
        assert_eq!(in_use(&pool), [false], "{what}: free after an import, too");
        bring(&pool, guids(&pool)[1], &all[count]);
        pool.detach(spare_of(&pool)).expect("detached by hand");
        assert_eq!((in_use(&pool), pool.tree().leaves.len()), (vec![false], count), "{what}");
    }
}

/// If this fails, a spare is given to somebody else after it took a device's place for good.
#[test]
fn a_spare_takes_the_place_of_a_device_that_is_detached() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3)] {
        let (all, pool, object) = with_spare(kind, count);
        let original = guids(&pool)[0];
        bring(&pool, original, &all[count]);
        pool.detach(original).expect("detached");
        assert!(pool.spares().is_empty(), "{kind:?}: it is a device now");
        let tree = pool.tree();
        assert_eq!(tree.leaves.len(), count);
        assert!(tree.leaves.iter().all(|leaf| !leaf.is_spare && !leaf.unspare));
        assert!(paths(&tree).contains(&format!("d{count}")));
        write(&pool, object, 0..BLOCKS, 3);
        pool.export().expect("exported");
        let pool = import(&all[1..=count], false).expect("the first one is not needed");
        check(&pool, object, &[3; BLOCKS as usize], "with the spare");
        assert!(pool.verify_space().expect("readable").is_clean());
        assert_eq!(pool.spares(), []);
    }
}

/// If this fails, replacing a device that a spare stands in for leaves the spare in use for ever.
#[test]
fn replacing_a_device_beside_its_spare_frees_the_spare() {
    let (all, pool, object) = with_spare(TopKind::Raidz(1), 3);
    let failed = guids(&pool)[1];
    pool.fault(failed, false).expect("faulted");
    bring(&pool, failed, &all[3]);
    write(&pool, object, 0..BLOCKS, 2);
    pool.attach(failed, &leaf(&all[4]), Pairing::Replacing, false).expect("replaced");
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert_eq!(paths(&pool.tree()), ["d0", "d4", "d2"]);
    assert_eq!(in_use(&pool), [false]);
    pool.export().expect("exported");
    let rest: Vec<_> = [0, 4, 2].map(|index| all[index].clone()).to_vec();
    check_redundancy(&rest, TopKind::Raidz(1), object, &[2; BLOCKS as usize], "after the replacement");
}

/// Asks the pool what `zpool wait` asks, whenever the pool says that a device was attached.
#[derive(Default)]
struct Onlooker {
    pool: OnceLock<Weak<Pool>>,
    busy: Mutex<Vec<bool>>,
}

impl EventSink for Onlooker {
    fn event(&self, event: Event) {
        if event.class == "sysevent.fs.zfs.vdev_attach"
            && let Some(pool) = self.pool.get().and_then(Weak::upgrade)
        {
            self.busy.lock().push(pool.is_resilver_wanted());
        }
    }
}

/// If this fails, who waits for a resilver is told that there is none just after the spare came, and takes the next device away
/// from a pool that has no redundancy yet.
#[test]
fn a_device_that_was_attached_is_waited_for_from_the_first_moment() {
    let (all, pool, _) = with_spare(TopKind::Raidz(1), 3);
    pool.export().expect("exported");
    let onlooker = Arc::new(Onlooker::default());
    let runtime = Runtime { events: onlooker.clone(), ..Runtime::new() };
    let pool = Arc::new(import_under(&all[..3], false, &runtime).expect("imported"));
    onlooker.pool.set(Arc::downgrade(&pool)).expect("once");
    let failed = guids(&pool)[1];
    pool.fault(failed, false).expect("faulted");
    bring(&pool, failed, &all[3]);
    assert_eq!(*onlooker.busy.lock(), [true]);
    assert!(!pool.is_resilver_wanted(), "in the end there is nothing to wait for");
}

/// If this fails, spares are taken twice, or for what they must not be.
#[test]
fn spares_are_used_as_spares_only() {
    let (all, pool, _) = with_spare(TopKind::Mirror, 2);
    let refused = |result: Result<(), PoolError>| result.expect_err("refused");
    let device = |problem| PoolError::Device { path: "d2".into(), problem };
    assert_eq!(refused(pool.add(spare(&all[2]))), device(DeviceProblem::SpareAlready));
    assert_eq!(refused(pool.attach(guids(&pool)[0], &leaf(&all[2]), Pairing::Mirror, true)), device(DeviceProblem::Busy));
    pool.add(spare(&all[3])).expect("another one");
    bring(&pool, guids(&pool)[0], &all[2]);
    assert_eq!(refused(pool.attach(guids(&pool)[2], &leaf(&all[2]), Pairing::Replacing, true)), device(DeviceProblem::Busy));
    let target = |why| PoolError::Target(why);
    let busy = target("already in replacing/spare config; wait for completion or use 'zpool detach'");
    assert_eq!(refused(pool.attach(guids(&pool)[0], &leaf(&all[3]), Pairing::Replacing, false)), busy, "a device has one spare");
    // A spare that fails is replaced by the next one.
    let first = spare_of(&pool);
    let plain = Arc::new(MemDevice::new("d9", DEVICE_BYTES));
    let other = target("can only be replaced by another hot spare");
    assert_eq!(refused(pool.attach(first, &leaf(&plain), Pairing::Replacing, false)), other);
    pool.fault(first, false).expect("faulted");
    bring(&pool, first, &all[3]);
    assert_eq!(in_use(&pool), [false, true], "the first one is let go once the second has everything");
    pool.remove_aux(first, Some(all[2].clone())).expect("removed");
    assert_eq!(pool.spares().len(), 1);
    assert_eq!(pool.remove_aux(first, None), Err(PoolError::NoSuchDevice));
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    assert_eq!(in_use(&pool), [true]);
}

/// If this fails, two pools can't share a spare, or one takes it from the other.
#[test]
fn pools_share_a_spare() {
    let all = devices(6);
    let one = create(&all[..2], TopKind::Mirror);
    let two = create(&all[2..4], TopKind::Mirror);
    one.add(spare(&all[4])).expect("added");
    two.add(spare(&all[4])).expect("shared");
    assert_eq!(spare_of(&one), spare_of(&two), "it is the same one");
    bring(&one, guids(&one)[0], &all[4]);
    one.detach(spare_of(&one)).expect("back");
    bring(&two, guids(&two)[0], &all[4]);
    assert_eq!((in_use(&one), in_use(&two)), (vec![false], vec![true]));
}

/// If this fails, larger disks bring no room, or blocks lie where no device is.
#[test]
fn a_pool_grows_with_its_devices() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3)] {
        let what = format!("{kind:?}");
        let mut all = devices(count);
        let (pool, object) = filled(&all, kind);
        let before = pool.status().space.capacity;
        assert_eq!(pool.expand(None), Ok(false), "{what}: there is no room yet");
        for (device, leaf) in all.iter_mut().zip(guids(&pool)) {
            assert_eq!(pool.expand(None), Ok(false), "{what}: not before all are larger");
            pool.sync().expect("synced");
            *device = resized(device, 2 * DEVICE_BYTES);
            assert_eq!(pool.online(leaf, Some(device.clone())), Ok(LeafState::Online));
        }
        assert_eq!(pool.expand(Some(guids(&pool)[0])), Ok(true), "{what}");
        assert!(pool.status().space.capacity >= before * 3 / 2, "{what}");
        for age in 2..20 {
            write(&pool, object, 0..BLOCKS, age);
            pool.sync().expect("synced");
        }
        assert!(pool.verify_space().expect("readable").is_clean(), "{what}");
        drop(pool);
        let pool = import(&all, false).expect("imported");
        check(&pool, object, &[19; BLOCKS as usize], &what);
        assert!(pool.status().space.capacity >= before * 3 / 2, "{what}: also after a crash");
        assert_eq!(checksum_errors(&pool), 0);
    }
}

/// If this fails, the judgement of a device's errors is not undone by what an administrator does about them.
#[test]
fn a_device_that_is_judged_is_out_of_use_until_it_is_cleared() {
    let (all, pool, object) = with_spare(TopKind::Mirror, 2);
    let leaves = guids(&pool);
    assert_eq!(pool.judge(leaves[0], LeafState::Faulted), Ok(LeafState::Faulted));
    assert_eq!(pool.judge(leaves[1], LeafState::Removed), Ok(LeafState::Degraded), "the last one is not thrown away");
    assert!(pool.tree().leaves.iter().all(|leaf| leaf.too_many_errors || leaf.state == LeafState::Degraded));
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    assert!(!pool.tree().leaves[0].missing_txgs.is_empty(), "what it misses is known");
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    let states: Vec<_> = pool.tree().leaves.iter().map(|leaf| leaf.state).collect();
    assert_eq!(states, [LeafState::Online, LeafState::Online], "an import tries again");
    pool.scrub_wait().expect("resilvered");
    pool.export().expect("exported");
    check_redundancy(&all[..2], TopKind::Mirror, object, &[2; BLOCKS as usize], "after the resilver");
}

/// If this fails, a device that was away wins over those that went on without it: what was written meanwhile is gone.
#[test]
fn a_stale_device_never_wins_at_import() {
    /// Ways in which a device becomes stale.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Away {
        Offline,
        Faulted,
        Detached,
        Replaced,
        /// Device left, and nobody could write to it that it did.
        Pulled,
    }
    for (kind, count) in [(TopKind::Mirror, 2), (TopKind::Raidz(1), 3)] {
        for away in [Away::Offline, Away::Faulted, Away::Detached, Away::Replaced, Away::Pulled] {
            if away == Away::Detached && kind != TopKind::Mirror {
                continue;
            }
            for crash in [false, true] {
                let what = format!("{kind:?} {away:?} crash {crash}");
                let mut all = devices(count + 1);
                let (pool, object) = filled(&all[..count], kind);
                // As it is now it comes back in the end.
                let stale = resized(&all[0], DEVICE_BYTES);
                let first = guids(&pool)[0];
                match away {
                    Away::Offline => pool.offline(first, false).expect("offline"),
                    Away::Faulted | Away::Pulled => drop(pool.judge(first, LeafState::Removed).expect("removed")),
                    Away::Detached => pool.detach(first).expect("detached"),
                    Away::Replaced => {
                        pool.attach(first, &leaf(&all[count]), Pairing::Replacing, false).expect("replaced");
                        pool.scrub_wait().expect("resilvered");
                        pool.sync().expect("synced");
                    }
                }
                if away == Away::Pulled {
                    pool.attach(first, &leaf(&all[count]), Pairing::Replacing, false).expect("replaced");
                    pool.scrub_wait().expect("resilvered");
                }
                for age in 2..5 {
                    write(&pool, object, 0..BLOCKS, age);
                    pool.sync().expect("synced");
                }
                if crash {
                    drop(pool)
                } else {
                    pool.export().expect("exported")
                }
                all[0] = stale;
                for turn in 0..2 {
                    if turn == 1 {
                        all.reverse();
                    }
                    let pool = import(&all, false).unwrap_or_else(|error| panic!("{what}: {error}"));
                    check(&pool, object, &[4; BLOCKS as usize], &what);
                    pool.scrub_wait().expect("resilvered");
                    pool.sync().expect("synced");
                    assert!(pool.verify_space().expect("readable").is_clean(), "{what}");
                    pool.export().expect("exported");
                }
            }
        }
    }
}

/// If this fails, two halves of a mirror that were used apart are mixed: neither is what anybody wrote.
#[test]
fn of_two_halves_that_went_on_apart_one_wins_as_a_whole() {
    for first_longer in [false, true] {
        let all = devices(2);
        let pool = create(&all, TopKind::Mirror);
        let object = new_object(&pool);
        write(&pool, object, 0..BLOCKS, 1);
        pool.export().expect("exported");
        let live = |half: &Arc<MemDevice>, age: u64, txgs: u64| {
            let pool = import(std::slice::from_ref(half), false).expect("half a mirror");
            for _ in 0..txgs {
                write(&pool, object, 0..BLOCKS, age);
                pool.sync().expect("synced");
            }
            pool.export().expect("exported");
        };
        let (longer, shorter) = if first_longer { (2, 3) } else { (3, 2) };
        live(&all[0], 2, if first_longer { 9 } else { 2 });
        live(&all[1], 3, if first_longer { 2 } else { 9 });
        let pool = import(&all, false).expect("imported");
        check(&pool, object, &[longer; BLOCKS as usize], &format!("not {shorter}"));
        pool.scrub_wait().expect("resilvered");
        pool.scrub_start().expect("started");
        pool.scrub_wait().expect("scrubbed");
        pool.export().expect("exported");
        for half in &all {
            let pool = import(std::slice::from_ref(half), true).expect("half a mirror");
            check(&pool, object, &[longer; BLOCKS as usize], "each half");
        }
    }
}
