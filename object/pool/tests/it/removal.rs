//! Top-level vdevs that are removed: everything that was on them is elsewhere, at any cut of power, and what is freed is free. What the user loses when
//! these fail: his files, with a device that he took out because the pool said that nothing is on it.
use crate::common::{
    BLOCK_BYTES, Random, check, checksum_errors, copies, dataset, devices, exec, host, import, leaf, new_object, opened, tops, write,
};
use device::{BlockDevice, DeviceError, MemDevice};
use ondisk::{Guid, ObjectId, Txg};
use pool::{
    AddSpec, ClassSpec, ImportOptions, Pool, PoolError, PoolSpec, RemovalState, Rewind, Runtime, SweepAction, SweepKind, SweepState,
    TopSpec,
};
use sim::{Image, Sim, SimDevice, cuts_every};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::TopKind;

/// Blocks of the file: more than one vdev's turn.
const FILE_BLOCKS: usize = 240;
/// Blocks written in one transaction.
const AT_ONCE: usize = 24;
/// Bytes that a txg copies where removals are to take several.
const PART_BYTES: u64 = 256 << 10;
/// Txgs after which what was overwritten is free.
const RESTING_TXGS: usize = 4;

fn spec<D: BlockDevice + 'static>(kind: TopKind, width: usize, all: &[Arc<D>]) -> PoolSpec {
    let layout = vec![(kind, width); all.len() / width];
    PoolSpec { host: host(), ..PoolSpec::new("tank", tops(&layout, all), dataset()) }
}

/// Writes all blocks of the file with this age.
fn fill(pool: &Pool, object: ObjectId, age: u64) -> Vec<u64> {
    for first in (0..FILE_BLOCKS).step_by(AT_ONCE) {
        write(pool, object, first as u64..(first + AT_ONCE) as u64, age);
    }
    pool.sync().expect("synced");
    vec![age; FILE_BLOCKS]
}

/// A pool of vdevs of this kind over the devices, with the file.
fn filled(kind: TopKind, width: usize, all: &[Arc<MemDevice>]) -> (Pool, ObjectId, Vec<u64>) {
    let pool = Pool::create(&exec(7), spec(kind, width, all), &Runtime::new()).expect("created");
    let object = new_object(&pool);
    let ages = fill(&pool, object, 1);
    (pool, object, ages)
}

fn guid(pool: &Pool, top: usize) -> Guid {
    pool.tree().tops[top].guid
}

fn references(pool: &Pool, feature: &str) -> u64 {
    pool.features().into_iter().find_map(|(name, _, count)| (name == feature).then_some(count)).flatten().unwrap_or(0)
}

fn is_clean(pool: &Pool, what: &str) {
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

fn ranges(pool: &Pool, top: usize) -> usize {
    pool.tree().tops[top].mapping.as_ref().map_or(0, |mapping| mapping.ranges().len())
}

fn settle(pool: &Pool) {
    (0..RESTING_TXGS).for_each(|_| pool.sync().expect("synced"));
}

/// If this fails, files are lost with a device that was removed, its space is never free, or the pool cannot be imported without it.
#[test]
fn what_was_on_a_removed_vdev_is_elsewhere() {
    for (kind, width) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2)] {
        let all = devices(5 * width);
        let (pool, object, mut ages) = filled(kind, width, &all);
        assert!(pool.status().vdev_space[1].allocated > 512 << 10, "there is something on it");
        pool.remove_top(guid(&pool, 1)).expect("begun");
        assert!(pool.is_removing() && pool.tree().tops[1].is_leaving);
        pool.removal_wait().expect("done");
        assert_eq!(pool.tree().tops[1].kind, TopKind::Indirect);
        let status = pool.removal_status().expect("there was one");
        assert_eq!((status.state, status.vdev.0, status.copied), (RemovalState::Finished, 1, status.to_copy));
        check(&pool, object, &ages, "after the removal");
        is_clean(&pool, "after the removal");
        pool.export().expect("exported");
        let rest: Vec<_> = all.iter().enumerate().filter(|(index, _)| index / width != 1).map(|(_, device)| device.clone()).collect();
        let pool = import(&rest, false).expect("imported without it");
        check(&pool, object, &ages, "after an import");
        let free = pool.status().space.deflated_capacity - pool.status().space.deflated_allocated;
        // Half of it is given up, and lies on the others then.
        write(&pool, object, 0..AT_ONCE as u64, 2);
        ages[..AT_ONCE].fill(2);
        settle(&pool);
        check(&pool, object, &ages, "after parts were overwritten");
        is_clean(&pool, "after parts were overwritten");
        let now = pool.status().space.deflated_capacity - pool.status().space.deflated_allocated;
        assert!(now + (AT_ONCE * BLOCK_BYTES) as u64 / 2 > free, "what was overwritten is free: {free}, {now}");
        assert_eq!(pool.scrub_start().and_then(|()| pool.scrub_wait()), Ok(()), "all of it can be scrubbed");
        assert_eq!(checksum_errors(&pool), 0);
        pool.export().expect("exported");
    }
}

/// If this fails, whoever writes everything anew to be rid of what a removal left finds as much of it as before.
#[test]
fn what_is_written_anew_does_not_stay_on_a_removed_vdev() {
    let all = devices(5);
    let (pool, object, _) = filled(TopKind::Leaf, 1, &all);
    let strong = [("checksum", "sha256"), ("compression", "lz4")].map(|(name, value)| (name.to_string(), value.to_string()));
    pool.dsl().hold("tank").expect("held").set_props(&strong).expect("set");
    fill(&pool, object, 2);
    settle(&pool);
    let ages = fill(&pool, object, 2);
    assert_eq!(pool.zio().stats().nop_writes.get(), FILE_BLOCKS as u64, "blocks that are the same stay where they are");
    pool.remove_top(guid(&pool, 1)).expect("begun");
    pool.removal_wait().expect("done");
    let moved = pool.zio().stats().nop_writes.get();
    fill(&pool, object, 2);
    assert!(pool.zio().stats().nop_writes.get() < moved + FILE_BLOCKS as u64, "but for those that are nowhere");
    settle(&pool);
    check(&pool, object, &ages, "after everything was written anew");
    is_clean(&pool, "after everything was written anew");
}

/// If this fails, blocks that were moved twice are lost, or an import cannot find out where anything is.
#[test]
fn one_removal_follows_another() {
    let all = devices(7);
    let (pool, object, ages) = filled(TopKind::Leaf, 1, &all);
    for top in [2, 0] {
        pool.remove_top(guid(&pool, top)).expect("begun");
        pool.removal_wait().expect("done");
        check(&pool, object, &ages, "after a removal");
        is_clean(&pool, "after a removal");
    }
    pool.export().expect("exported");
    let rest: Vec<_> = [1, 3, 4, 5, 6].map(|index| all[index].clone()).to_vec();
    let pool = import(&rest, false).expect("imported");
    // What was on the first one lies in part on the second one's places.
    pool.remove_top(guid(&pool, 3)).expect("begun");
    pool.removal_wait().expect("done");
    pool.export().expect("exported");
    let pool = import(&[&rest[..1], &rest[2..]].concat(), false).expect("imported");
    check(&pool, object, &ages, "after three of them");
    is_clean(&pool, "after three of them");
    let ages = fill(&pool, object, 2);
    settle(&pool);
    check(&pool, object, &ages, "after all was written anew");
    is_clean(&pool, "after all was written anew");
    assert_eq!(references(&pool, "device_removal"), 3);
}

/// If this fails, a pool takes more memory with every removal, for good, though nothing is left of what was there; or OpenZFS finds the counts of the feature wrong.
#[test]
fn a_mapping_shrinks_with_what_is_freed() {
    let all = devices(5);
    let (pool, object, _) = filled(TopKind::Leaf, 1, &all);
    let parameters = pool.removal_parameters();
    parameters.segment_max.store(64 << 10, Ordering::Relaxed);
    parameters.condense_bytes_min.store(0, Ordering::Relaxed);
    parameters.condenses.store(0, Ordering::Relaxed);
    pool.remove_top(guid(&pool, 1)).expect("begun");
    pool.removal_wait().expect("done");
    let before = ranges(&pool, 1);
    assert!(before > 10, "{before} ranges");
    let mut ages = fill(&pool, object, 2);
    settle(&pool);
    assert_eq!(ranges(&pool, 1), before, "nobody condenses it");
    assert!(references(&pool, "obsolete_counts") >= 3, "the counts, their preciseness, and the map of what nobody needs");
    parameters.condenses.store(1, Ordering::Relaxed);
    write(&pool, object, 0..1, 3);
    ages[0] = 3;
    settle(&pool);
    write(&pool, object, 1..2, 3);
    ages[1] = 3;
    settle(&pool);
    assert!(ranges(&pool, 1) < before / 2, "{} of {before} ranges", ranges(&pool, 1));
    check(&pool, object, &ages, "after it was condensed");
    is_clean(&pool, "after it was condensed");
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    check(&pool, object, &ages, "after an import");
    is_clean(&pool, "after an import");
}

/// If this fails, a removal that somebody thought better of loses files or space, or the vdev is never used again.
#[test]
fn a_cancelled_removal_leaves_everything_as_it_was() {
    let all = devices(5);
    let (pool, object, mut ages) = filled(TopKind::Leaf, 1, &all);
    assert_eq!(pool.remove_cancel(), Err(PoolError::NotRemoving));
    for txgs in [0, 1, 2] {
        pool.removal_parameters().segment_max.store(128 << 10, Ordering::Relaxed);
        pool.removal_parameters().txg_bytes_max.store(PART_BYTES, Ordering::Relaxed);
        pool.remove_top(guid(&pool, 1)).expect("begun");
        pool.removal_drive_part(txgs).expect("driven");
        assert!(pool.is_removing(), "there is more to copy");
        write(&pool, object, 0..AT_ONCE as u64, 2 + txgs as u64);
        ages[..AT_ONCE].fill(2 + txgs as u64);
        assert!(matches!(pool.remove_top(guid(&pool, 1)), Err(PoolError::Unremovable(_))), "it is being removed");
        assert!(matches!(pool.remove_top(guid(&pool, 2)), Err(PoolError::Unremovable(_))), "one at a time");
        pool.remove_cancel().expect("cancelled");
        let top = &pool.tree().tops[1];
        assert!(!top.is_leaving && !top.nonallocating && top.objects.mapping == ObjectId(0));
        assert_eq!(pool.removal_status().map(|status| status.state), Some(RemovalState::Canceled));
        assert_eq!((references(&pool, "device_removal"), references(&pool, "obsolete_counts")), (0, 0));
        settle(&pool);
        check(&pool, object, &ages, "after it was cancelled");
        is_clean(&pool, "after it was cancelled");
    }
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    check(&pool, object, &ages, "after an import");
}

/// If this fails, a removal that would lose data, or that no other release could read, is begun.
#[test]
fn what_cannot_be_removed_stays() {
    let refused = |pool: &Pool, top: usize| match pool.remove_top(guid(pool, top)) {
        Err(PoolError::Unremovable(why)) => why,
        other => panic!("{other:?}"),
    };
    let all = devices(8);
    let pool = Pool::create(&exec(7), spec(TopKind::Leaf, 1, &all[..2]), &Runtime::new()).expect("created");
    assert_eq!(refused(&pool, 0), "out of space");
    pool.destroy().expect("destroyed");
    let spec_of = |features: Option<Vec<String>>| PoolSpec { features, ..spec(TopKind::Leaf, 1, &all[..5]) };
    let pool = Pool::create(&exec(7), spec_of(Some(vec!["async_destroy".to_string()])), &Runtime::new()).expect("created");
    assert_eq!(refused(&pool, 0), "operation not supported on this type of pool");
    pool.destroy().expect("destroyed");
    let layout = [(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Raidz(1), 3)];
    let mixed = PoolSpec { host: host(), ..PoolSpec::new("tank", tops(&layout, &all), dataset()) };
    let pool = Pool::create(&exec(7), mixed, &Runtime::new()).expect("created");
    assert!(refused(&pool, 0).starts_with("invalid config; "));
    pool.destroy().expect("destroyed");
    let pool = Pool::create(&exec(7), spec_of(None), &Runtime::new()).expect("created");
    pool.remove_top(guid(&pool, 0)).expect("begun");
    pool.removal_wait().expect("done");
    let raidz =
        AddSpec { tops: vec![TopSpec { kind: TopKind::Raidz(1), leaves: all[5..8].iter().map(leaf).collect() }], ..AddSpec::default() };
    assert!(matches!(pool.add(raidz), Err(PoolError::Invalid(_))), "nothing could be moved there");
}

/// If this fails, a checkpoint loses blocks that a removal moved before it, since they are written over where they are now, or it is of vdevs that leave.
#[test]
fn a_checkpoint_keeps_what_was_moved() {
    let all = devices(5);
    let (pool, object, ages) = filled(TopKind::Leaf, 1, &all);
    let parameters = pool.removal_parameters();
    parameters.segment_max.store(64 << 10, Ordering::Relaxed);
    parameters.condense_bytes_min.store(0, Ordering::Relaxed);
    parameters.suspended.store(1, Ordering::Relaxed);
    pool.remove_top(guid(&pool, 1)).expect("begun");
    assert_eq!(pool.make_checkpoint(), Err(PoolError::Target("device removal in progress")));
    parameters.suspended.store(0, Ordering::Relaxed);
    pool.removal_wait().expect("done");
    pool.make_checkpoint().expect("made");
    for top in [0, 2] {
        assert_eq!(pool.remove_top(guid(&pool, top)), Err(PoolError::CheckpointExists));
    }
    let before = ranges(&pool, 1);
    let new = fill(&pool, object, 2);
    settle(&pool);
    write(&pool, object, 0..1, 2);
    settle(&pool);
    assert!(ranges(&pool, 1) < before, "the mapping is condensed, of {before} ranges");
    check(&pool, object, &new, "after all was written anew");
    is_clean(&pool, "after all was written anew");
    let options = ImportOptions { host: host(), rewind: Rewind::Checkpoint, ..ImportOptions::default() };
    let read_only = ImportOptions { read_only: true, ..options.clone() };
    let state = Pool::import(&exec(9), opened(&copies(&all)), &read_only, &Runtime::new()).expect("the checkpoint");
    check(&state, object, &ages, "the checkpoint");
    is_clean(&state, "the checkpoint");
    let report = pool.verify_checkpoint(&state).expect("readable");
    assert!(report.is_clean(), "{report:?}");
    drop((state, pool));
    let pool = Pool::import(&exec(9), opened(&all), &options, &Runtime::new()).expect("it goes back");
    check(&pool, object, &ages, "gone back");
    is_clean(&pool, "gone back");
    assert!(ranges(&pool, 1) >= before, "the mapping is that of its time");
    pool.remove_top(guid(&pool, 0)).expect("begun");
    pool.removal_wait().expect("done");
    check(&pool, object, &ages, "after another removal");
    is_clean(&pool, "after another removal");
    pool.export().expect("exported");
}

/// If this fails, metadata that lies on a fast device is lost with it.
#[test]
fn vdevs_for_metadata_are_removed_too() {
    let all = devices(6);
    let classes = ClassSpec { special: tops(&[(TopKind::Leaf, 1)], &all[5..]), ..ClassSpec::default() };
    let pool = Pool::create(&exec(7), PoolSpec { classes, ..spec(TopKind::Leaf, 1, &all[..5]) }, &Runtime::new()).expect("created");
    let object = new_object(&pool);
    let ages = fill(&pool, object, 1);
    assert!(pool.status().vdev_space[5].allocated > 0);
    pool.remove_top(guid(&pool, 5)).expect("begun");
    pool.removal_wait().expect("done");
    pool.export().expect("exported");
    let pool = import(&all[..5], false).expect("imported without it");
    check(&pool, object, &ages, "after the removal");
    is_clean(&pool, "after the removal");
}

/// If this fails, a block that was copied in pieces to mirrors is lost although a good copy of each piece is there.
#[test]
fn blocks_in_pieces_are_mended() {
    let all = devices(10);
    let (pool, object, ages) = filled(TopKind::Mirror, 2, &all);
    // Blocks of 32 KiB in pieces of 4 KiB.
    pool.removal_parameters().segment_max.store(4096, Ordering::Relaxed);
    pool.removal_parameters().span_max.store(0, Ordering::Relaxed);
    pool.remove_top(guid(&pool, 1)).expect("begun");
    pool.removal_wait().expect("done");
    check(&pool, object, &ages, "in pieces");
    // Of each piece one of the two copies is spoilt: no device has a whole block.
    let tree = pool.tree();
    let mapping = tree.tops[1].mapping.clone().expect("it was removed");
    let mut random = Random(3);
    for range in mapping.ranges() {
        let place = range.target;
        let side = random.below(2) as usize;
        let device = &all[place.vdev.0 as usize * 2 + side];
        let offset = (vdev::LABEL_START_BYTES + place.offset) as usize;
        device.tamper(|bytes| bytes[offset..offset + 512].fill(0xEE));
    }
    check(&pool, object, &ages, "with spoilt copies");
    pool.scrub_start().expect("begun");
    pool.scrub_wait().expect("done");
    pool.clear_errors(None);
    pool.scrub_start().expect("begun");
    pool.scrub_wait().expect("done");
    assert_eq!(checksum_errors(&pool), 0, "all is mended");
    check(&pool, object, &ages, "mended");
}

const CUT_DEVICE_BYTES: usize = 64 << 20;

/// Program of the power cuts: a file, a removal of a vdev while it is overwritten, in small parts, and another file's worth of frees.
fn removal_program(sim: &Sim, pool: &Pool, object: ObjectId) {
    pool.removal_parameters().segment_max.store(64 << 10, Ordering::Relaxed);
    pool.removal_parameters().txg_bytes_max.store(PART_BYTES, Ordering::Relaxed);
    pool.removal_parameters().condense_bytes_min.store(0, Ordering::Relaxed);
    pool.remove_top(guid(pool, 1)).expect("begun");
    sim.mark(1);
    pool.removal_drive_part(2).expect("driven");
    assert!(pool.is_removing(), "there is more to copy");
    // Some of what is freed was copied, some was not.
    fill(pool, object, 1);
    pool.removal_wait().expect("done");
    sim.mark(2);
    fill(pool, object, 1);
    settle(pool);
    sim.mark(3);
}

/// The pool of an image has the file and exact space maps; the removal goes on, and then too.
fn check_cut(images: Vec<Image>, object: ObjectId, what: &str) {
    let under = exec(6);
    let sim = Sim::new(&under, 6);
    let devices: Vec<Arc<SimDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image)).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let ages = vec![1; FILE_BLOCKS];
    let read_only = ImportOptions { read_only: true, ..options.clone() };
    let pool = Pool::import(&under, opened(&devices), &read_only, &Runtime::new()).unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&pool, object, &ages, what);
    is_clean(&pool, what);
    pool.export().expect("closed");
    let pool =
        Pool::import(&under, opened(&devices), &options, &Runtime::new()).unwrap_or_else(|error| panic!("{what}, writable: {error}"));
    pool.removal_wait().expect("it goes on");
    fill(&pool, object, 1);
    settle(&pool);
    check(&pool, object, &ages, what);
    is_clean(&pool, what);
    pool.export().expect("exported");
}

/// If this fails, an outage while a vdev is removed loses files, or leaves space that is nobody's.
#[test]
fn a_removal_survives_power_cuts() {
    let under = exec(11);
    let sim = Sim::new(&under, 5);
    let all: Vec<Arc<SimDevice>> = (0..5).map(|index| sim.device(&format!("d{index}"), CUT_DEVICE_BYTES)).collect();
    let pool = Pool::create(&under, spec(TopKind::Leaf, 1, &all), &Runtime::new()).expect("made");
    let object = new_object(&pool);
    fill(&pool, object, 1);
    sim.start_recording();
    sim.mark(0);
    removal_program(&sim, &pool, object);
    pool.export().expect("exported");
    sim.take_recording().each_cut((cuts_every(701), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| check_cut(images, object, &format!("cut {} {choice:?}", cut.events)));
    });
}

/// If this fails, a removal reads a device that fails until the pool gives it up, calls what it could not read copied, or trusts a copy that a device of a
/// mirror did not keep: what is on it is lost with the other one, as no resilver looks at it.
#[test]
fn a_device_that_fails_ends_the_removal() {
    use sim::OpKind::{Flush, Read};
    // One device of each mirror that stays: some of them are copied to.
    let others: &[usize] = &[0, 4, 6, 8];
    let cases = [
        (TopKind::Leaf, 1, 0, (Read, &[1][..]), RemovalState::Canceled),
        (TopKind::Mirror, 2, 0, (Read, &[2][..]), RemovalState::Canceled),
        (TopKind::Mirror, 2, 1, (Read, &[2][..]), RemovalState::Finished),
        (TopKind::Mirror, 2, 0, (Flush, &[2][..]), RemovalState::Canceled),
        (TopKind::Mirror, 2, 0, (Flush, others), RemovalState::Canceled),
        (TopKind::Mirror, 2, 1, (Flush, others), RemovalState::Finished),
    ];
    for (kind, width, ignores, (op, bad), end) in cases {
        let what = format!("{kind:?}, {op:?} of devices {bad:?}, {ignores}");
        let under = exec(12);
        let sim = Sim::new(&under, 5);
        let all: Vec<Arc<SimDevice>> = (0..5 * width).map(|index| sim.device(&format!("d{index:02}"), CUT_DEVICE_BYTES)).collect();
        let pool = Pool::create(&under, spec(kind, width, &all), &Runtime::new()).expect("made");
        let object = new_object(&pool);
        let ages = fill(&pool, object, 1);
        pool.removal_parameters().ignores_errors.store(ignores, Ordering::Relaxed);
        pool.remove_top(guid(&pool, 1)).expect("begun");
        for &device in bad {
            sim.arm(sim::Fault::always(sim::FaultKind::Error(DeviceError::Io)).on(all[device].index()).only(op));
        }
        pool.removal_wait().expect("it ends");
        sim.disarm();
        assert_eq!(pool.removal_status().map(|status| status.state), Some(end), "{what}");
        if op == Flush && end == RemovalState::Finished {
            let is_to_get_all = pool.tree().leaves.iter().any(|leaf| leaf.lacks(Txg::INITIAL));
            assert!(is_to_get_all, "{what}: what was copied is older than the copying");
        }
        settle(&pool);
        check(&pool, object, &ages, &what);
        is_clean(&pool, &what);
    }
}

/// If this fails, a device that left a pool is written to by it while somebody else has it, or a vdev that stayed is swept though nobody asked again.
#[test]
fn sweeps_end_with_the_removal_of_their_vdev() {
    let start = SweepAction::Start { rate: 0, secure: false };
    let all = devices(5);
    let (pool, object, ages) = filled(TopKind::Leaf, 1, &all);
    let leaf = guid(&pool, 1);
    let states = |pool: &Pool| pool.sweep_status().into_iter().map(|status| status.state).collect::<Vec<_>>();
    for kind in [SweepKind::Initialize, SweepKind::Trim] {
        assert_eq!(pool.sweep(kind, &[leaf], start), Ok(vec![Ok(())]));
    }
    pool.sweep_drive_part(1).expect("driven");
    assert_eq!(pool.sweep(SweepKind::Trim, &[leaf], SweepAction::Suspend), Ok(vec![Ok(())]));
    assert_eq!(states(&pool), [SweepState::Active, SweepState::Suspended]);
    pool.remove_top(leaf).expect("begun");
    pool.sync().expect("synced");
    assert_eq!(states(&pool), [SweepState::Canceled; 2]);
    let refusal = PoolError::Target("device removal is in progress");
    for kind in [SweepKind::Initialize, SweepKind::Trim] {
        assert_eq!(pool.sweep(kind, &[leaf], start), Ok(vec![Err(refusal.clone())]));
    }
    pool.remove_cancel().expect("it stays");
    assert_eq!(states(&pool), [SweepState::Canceled; 2], "nobody asked for them again");
    assert_eq!(pool.sweep(SweepKind::Initialize, &[leaf], start), Ok(vec![Ok(())]));
    pool.sweep_wait().expect("done");
    check(&pool, object, &ages, "after a sweep of the vdev that stayed");
    is_clean(&pool, "after a sweep of the vdev that stayed");
}
