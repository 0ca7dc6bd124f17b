//! Checkpoints. What the user loses when these fail: the state that was to be kept, since its blocks were written over; the space of one that was given
//! up, for good; or the pool, since what is allocated is known wrongly.

use crate::common::{
    BLOCK_BYTES, BLOCKS, check, copies, create_as, dataset, devices, exec, guids, host, import_under, leaf, new_object, opened, tops, write,
};
use device::{BlockDevice, MemDevice};
use exec::Exec;
use ondisk::{ObjectId, SpaceMapPhys};
use pool::{AddSpec, ClassSpec, ImportOptions, Pool, PoolError, PoolSpec, Rewind, Runtime, TopSpec};
use sim::{Image, Sim, SimDevice, cuts_every};
use std::sync::Arc;
use vdev::{DraidConfig, LeafState, Pairing, TopKind};
use zap::Zap;

const SIM_BYTES: usize = 64 << 20;
const AGES: usize = BLOCKS as usize;

fn runtime(log_space_maps: bool) -> Runtime {
    Runtime { log_space_maps, ..Runtime::new() }
}

fn options(rewind: Rewind, read_only: bool) -> ImportOptions {
    ImportOptions { host: host(), rewind, read_only, ..ImportOptions::default() }
}

fn back(disks: &[Arc<MemDevice>], read_only: bool) -> Result<Pool, PoolError> {
    Pool::import(&exec(9), opened(disks), &options(Rewind::Checkpoint, read_only), &Runtime::new())
}

fn clean(pool: &Pool, what: &str) {
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// Number of references of the feature.
fn references(pool: &Pool) -> Option<u64> {
    pool.features().into_iter().find(|(name, ..)| name == "zpool_checkpoint").and_then(|(.., count)| count)
}

/// Writes all blocks anew, so many times.
fn age(pool: &Pool, object: ObjectId, ages: std::ops::Range<u64>) {
    for age in ages {
        write(pool, object, 0..BLOCKS, age);
        pool.sync().expect("synced");
    }
}

/// A pool with one object whose blocks have age 1, and a checkpoint of it.
fn kept(disks: &[Arc<MemDevice>], kind: TopKind, log_space_maps: bool) -> (Pool, ObjectId) {
    let pool = create_as(&exec(7), disks, kind, &runtime(log_space_maps));
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.make_checkpoint().expect("made");
    (pool, object)
}

/// Bytes that are allocated for the sake of the checkpoint, and whether it is being discarded.
fn told(pool: &Pool) -> Option<(u64, bool)> {
    pool.checkpoint().map(|known| (known.bytes(), known.is_discarding))
}

/// The checkpoint's state, as who only reads finds it on copies of the disks, is whole, and the pool keeps just what it has.
fn is_kept(pool: &Pool, disks: &[Arc<MemDevice>], object: ObjectId, what: &str) {
    let state = back(&copies(disks), true).unwrap_or_else(|error| panic!("{what}, the checkpoint: {error}"));
    check(&state, object, &[1; AGES], what);
    clean(&state, &format!("{what}, the checkpoint"));
    let report = pool.verify_checkpoint(&state).expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// If this fails, a checkpoint is written over by what comes after it, before or after a crash, or a pool cannot go back to it, or forgets that it did.
#[test]
fn a_checkpoint_is_gone_back_to_whatever_came_after() {
    let draid = TopKind::Draid(DraidConfig::new(1, 2, 0, 4).expect("a shape"));
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3), (draid, 4)] {
        for logs in [false, true] {
            let what = format!("{kind:?}, log space maps {logs}");
            let disks = devices(count);
            let (pool, object) = kept(&disks, kind, logs);
            assert_eq!((references(&pool), pool.checkpoint().map(|known| known.timestamp != 0)), (Some(1), Some(true)), "{what}");
            age(&pool, object, 2..6);
            pool.dsl().create_dataset("tank/late", dataset()).expect("created");
            let least = BLOCKS * BLOCK_BYTES as u64;
            assert!(told(&pool).is_some_and(|(bytes, is_discarding)| bytes >= least && !is_discarding), "{what}: {:?}", told(&pool));
            clean(&pool, &what);
            is_kept(&pool, &disks, object, &what);
            drop(pool);

            let pool = import_under(&disks, false, &runtime(logs)).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&pool, object, &[5; AGES], &what);
            assert!(told(&pool).is_some_and(|(bytes, is_discarding)| bytes >= least && !is_discarding), "{what}: {:?}", told(&pool));
            age(&pool, object, 6..9);
            clean(&pool, &what);
            is_kept(&pool, &disks, object, &what);
            drop(pool);

            let pool = back(&disks, false).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((told(&pool), references(&pool)), (None, Some(0)), "{what}: it is the pool now");
            assert!(pool.dsl().children("tank").expect("children").is_empty(), "{what}");
            check(&pool, object, &[1; AGES], &what);
            clean(&pool, &what);
            age(&pool, object, 20..22);
            pool.make_checkpoint().expect("another one");
            pool.discard_checkpoint().expect("discarded");
            drop(pool);
            assert_eq!(back(&disks, false).err(), Some(PoolError::NoCheckpoint), "{what}");
            let pool = import_under(&disks, false, &runtime(logs)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            check(&pool, object, &[21; AGES], &what);
            clean(&pool, &what);
            pool.export().expect("exported");
        }
    }
}

/// Objects of the maps that vdevs have.
fn maps(pool: &Pool) -> Vec<ObjectId> {
    let object =
        |zap: ObjectId| Zap::hold(pool.mos(), zap).expect("zap").try_lookup_u64("com.delphix:pool_checkpoint_sm").expect("readable");
    pool.tree().tops.iter().filter_map(|top| object(top.zap).map(ObjectId)).collect()
}

/// If this fails, the space of a checkpoint that was given up is not free again, is free too early after a crash, or OpenZFS does not know how far it got.
#[test]
fn a_checkpoint_is_discarded_part_by_part() {
    for logs in [false, true] {
        let what = format!("log space maps {logs}");
        let disks = devices(1);
        let (pool, object) = kept(&disks, TopKind::Leaf, logs);
        // Every second block at a time: segments that do not touch.
        for txg in 0..2 {
            (0..BLOCKS).filter(|block| block % 2 == txg).for_each(|block| write(&pool, object, block..block + 1, 2));
            pool.sync().expect("synced");
        }
        let header = pool.mos().hold(maps(&pool)[0]).expect("map").bonus().expect("header");
        let header = SpaceMapPhys::decode_bonus(&header).expect("header");
        assert_eq!(told(&pool), Some((header.smp_alloc.unsigned_abs(), false)), "{what}: all of it is freed");
        assert!(header.smp_alloc < 0, "{what}");
        // Two segments in each txg.
        pool.limit_discard(64);
        pool.discard_checkpoint().expect("discarded");
        let mut parts = 0;
        while let Some((bytes, is_discarding)) = told(&pool) {
            assert!(is_discarding, "{what}");
            assert_eq!(pool.discard_checkpoint(), Err(PoolError::DiscardingCheckpoint), "{what}");
            clean(&pool, &format!("{what}, {bytes} bytes left"));
            let copy = copies(&disks);
            assert_eq!(back(&copy, true).err(), Some(PoolError::NoCheckpoint), "{what}");
            let again = import_under(&copy, false, &runtime(logs)).unwrap_or_else(|error| panic!("{what}: {error}"));
            clean(&again, &format!("{what}, after a crash"));
            assert!((0..4).any(|_| again.sync().is_ok() && told(&again).is_none()), "{what}: it goes on, and ends");
            assert_eq!((references(&again), maps(&again).len()), (Some(0), 0), "{what}");
            check(&again, object, &[2; AGES], &what);
            pool.sync().expect("synced");
            parts += 1;
            assert!(told(&pool).is_none_or(|(left, _)| left < bytes || bytes == 0), "{what}: it does not get ahead");
        }
        assert!(parts > 4, "{what}: {parts} parts");
        assert_eq!((references(&pool), pool.discard_checkpoint()), (Some(0), Err(PoolError::NoCheckpoint)), "{what}");
        clean(&pool, &what);
        pool.make_checkpoint().expect("another one");
        pool.export().expect("exported");
    }
}

/// If this fails, blocks on vdevs for metadata are lost to a checkpoint's state, or a vdev that came later stays in a pool that went back before that.
#[test]
fn a_checkpoint_has_the_vdevs_of_its_time() {
    let all = devices(4);
    let classes = ClassSpec { special: tops(&[(TopKind::Leaf, 1)], &all[1..2]), ..ClassSpec::default() };
    let spec = PoolSpec { host: host(), classes, ..PoolSpec::new("tank", tops(&[(TopKind::Leaf, 1)], &all[..1]), dataset()) };
    let pool = Pool::create(&exec(7), spec, &Runtime::new()).expect("created");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.make_checkpoint().expect("made");
    pool.add(AddSpec { tops: tops(&[(TopKind::Leaf, 1)], &all[2..3]), ..AddSpec::default() }).expect("added");
    age(&pool, object, 2..6);
    clean(&pool, "with another vdev");
    let known = pool.checkpoint().expect("it is there").vdev_bytes;
    assert_eq!(known.keys().map(|vdev| vdev.0).collect::<Vec<_>>(), [0, 1], "the new vdev has nothing of it");
    is_kept(&pool, &all[..3], object, "with another vdev");
    drop(pool);
    let pool = back(&all[..3], false).expect("it goes back");
    assert_eq!(pool.tree().tops.len(), 2);
    check(&pool, object, &[1; AGES], "without");
    clean(&pool, "without");
    drop(pool);
    let pool = import_under(&all[..3], false, &Runtime::new()).expect("the device that is none of it is no hindrance");
    assert_eq!(pool.tree().tops.len(), 2);
    pool.export().expect("exported");
}

/// If this fails, a checkpoint is of devices that are not there any more, or that have nothing of it.
#[test]
fn nothing_changes_the_vdevs_that_a_checkpoint_has() {
    let all = devices(4);
    let (pool, _) = kept(&all[..2], TopKind::Mirror, false);
    assert_eq!(pool.make_checkpoint(), Err(PoolError::CheckpointExists));
    let [first, second] = [guids(&pool)[0], guids(&pool)[1]];
    let refused = [
        pool.attach(first, &leaf(&all[2]), Pairing::Mirror, false),
        pool.attach(first, &leaf(&all[2]), Pairing::Replacing, false),
        pool.detach(second),
        pool.remove_top(pool.tree().tops[0].guid),
        pool.reguid(None),
        pool.split(vec![second], "half", &Runtime::new()).map(drop),
    ];
    assert!(refused.iter().all(|result| *result == Err(PoolError::CheckpointExists)), "{refused:?}");
    pool.discard_checkpoint().expect("discarded");
    (0..3).for_each(|_| pool.sync().expect("synced"));
    pool.attach(first, &leaf(&all[2]), Pairing::Mirror, false).expect("attached");
    assert_eq!(pool.discard_checkpoint(), Err(PoolError::NoCheckpoint));
    pool.export().expect("exported");
    let old =
        PoolSpec { host: host(), features: Some(Vec::new()), ..PoolSpec::new("old", tops(&[(TopKind::Leaf, 1)], &all[3..]), dataset()) };
    let pool = Pool::create(&exec(7), old, &Runtime::new()).expect("created");
    assert_eq!(pool.make_checkpoint(), Err(PoolError::NeedsFeature("zpool_checkpoint")));
}

/// If this fails, a device is taken for whole that lacks blocks of the checkpoint: what it lacks is missed when the pool goes back and the other one fails.
#[test]
fn a_resilver_does_not_bring_what_only_a_checkpoint_has() {
    let disks = devices(2);
    let pool = create_as(&exec(7), &disks, TopKind::Mirror, &Runtime::new());
    let (object, late) = (new_object(&pool), guids(&pool)[1]);
    pool.offline(late, false).expect("offline");
    write(&pool, object, 0..BLOCKS, 1);
    pool.make_checkpoint().expect("made");
    age(&pool, object, 2..3);
    assert_eq!(pool.online(late, Some(disks[1].clone())), Ok(LeafState::Online));
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    let lacks = |pool: &Pool| pool.tree().leaves.iter().any(|leaf| leaf.guid == late && !leaf.missing_txgs.is_empty());
    assert!(lacks(&pool), "nobody read what the checkpoint has");
    pool.discard_checkpoint().expect("discarded");
    (0..3).for_each(|_| pool.sync().expect("synced"));
    pool.clear(None).expect("cleared");
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert!(!lacks(&pool), "now all of it was read");
    check(&pool, object, &[2; AGES], "resilvered");
    pool.export().expect("exported");
}

fn sim_import(exec: &Exec, images: Vec<Image>, options: &ImportOptions) -> Result<Pool, PoolError> {
    let sim = Sim::new(exec, 6);
    let from = |(index, image): (usize, Image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>;
    Pool::import(exec, images.into_iter().enumerate().map(from).collect(), options, &Runtime::new())
}

fn names(pool: &Pool) -> Vec<String> {
    pool.dsl().children("tank").expect("children")
}

/// A pool on simulated devices with a file system, at the beginning of a recording.
fn recorded(exec: &Exec, sim: &Sim) -> (Pool, Vec<Arc<SimDevice>>) {
    let disks: Vec<Arc<SimDevice>> = (0..2).map(|index| sim.device(&format!("d{index}"), SIM_BYTES)).collect();
    let top = TopSpec { kind: TopKind::Mirror, leaves: disks.iter().map(leaf).collect() };
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", vec![top], dataset()) };
    let pool = Pool::create(exec, spec, &Runtime::new()).expect("made");
    pool.dsl().create_dataset("tank/base", dataset()).expect("created");
    (pool, disks)
}

/// If this fails, a power cut while a checkpoint is made, needed or discarded loses it, or the pool, or the space of either.
#[test]
fn a_power_cut_at_any_write_leaves_the_checkpoint_or_none() {
    let exec = exec(11);
    let sim = Sim::new(&exec, 5);
    let (pool, _disks) = recorded(&exec, &sim);
    sim.start_recording();
    sim.mark(0);
    pool.make_checkpoint().expect("made");
    sim.mark(1);
    pool.dsl().destroy_dataset("tank/base").expect("destroyed");
    pool.dsl().create_dataset("tank/late", dataset()).expect("created");
    sim.mark(2);
    pool.limit_discard(32);
    pool.discard_checkpoint().expect("discarded");
    sim.mark(3);
    (0..4).for_each(|_| pool.sync().expect("synced"));
    pool.export().expect("exported");
    let (mut with, mut without) = (0, 0);
    sim.take_recording().each_cut((cuts_every(11), 0), &mut |cut| {
        let mark = cut.mark.unwrap_or(0);
        cut.each_image(0, &mut |choice, images| {
            let what = format!("cut {} {choice:?}", cut.events);
            let import = |rewind, read_only| sim_import(&exec, images.clone(), &options(rewind, read_only));
            let pool = import(Rewind::Never, true).unwrap_or_else(|error| panic!("{what}: {error}"));
            clean(&pool, &what);
            match import(Rewind::Checkpoint, true) {
                Ok(state) => {
                    assert!(mark < 3 && names(&state) == ["base"], "{what}: {:?}", names(&state));
                    assert!(pool.verify_checkpoint(&state).expect("readable").is_clean(), "{what}");
                    let gone_back = import(Rewind::Checkpoint, false).unwrap_or_else(|error| panic!("{what}, gone back: {error}"));
                    assert_eq!(names(&gone_back), ["base"], "{what}");
                    clean(&gone_back, &format!("{what}, gone back"));
                    with += 1;
                }
                Err(error) => {
                    assert!(error == PoolError::NoCheckpoint && mark != 1, "{what}: {error}");
                    without += 1;
                }
            }
            let pool = import(Rewind::Never, false).unwrap_or_else(|error| panic!("{what}, gone on with: {error}"));
            clean(&pool, &format!("{what}, gone on with"));
            pool.export().expect("exported");
        });
    });
    assert!(with > 0 && without > 0, "{with} images with it, {without} without");
}

/// If this fails, a power cut while a pool goes back to its checkpoint leaves one that is neither as it was nor as it is to be.
#[test]
fn a_power_cut_while_a_pool_goes_back_to_its_checkpoint_loses_neither() {
    let exec = exec(12);
    let sim = Sim::new(&exec, 5);
    let (pool, disks) = recorded(&exec, &sim);
    pool.make_checkpoint().expect("made");
    pool.dsl().destroy_dataset("tank/base").expect("destroyed");
    pool.dsl().create_dataset("tank/late", dataset()).expect("created");
    drop(pool);
    sim.start_recording();
    let pool = Pool::import(&exec, opened(&disks), &options(Rewind::Checkpoint, false), &Runtime::new()).expect("it goes back");
    sim.mark(1);
    pool.export().expect("exported");
    let (mut before, mut after) = (0, 0);
    sim.take_recording().each_cut((cuts_every(7), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| {
            let what = format!("cut {} {choice:?}", cut.events);
            let pool = sim_import(&exec, images, &options(Rewind::Never, false)).unwrap_or_else(|error| panic!("{what}: {error}"));
            let names = names(&pool);
            assert!(names == ["late"] || names == ["base"], "{what}: {names:?}");
            assert!(names == ["base"] || cut.mark.is_none(), "{what}: what was left behind is back");
            assert_eq!(told(&pool).is_some(), names == ["late"], "{what}: the checkpoint is there until it is the pool");
            clean(&pool, &what);
            (before, after) = (before + usize::from(names == ["late"]), after + usize::from(names == ["base"]));
            pool.export().expect("exported");
        });
    });
    assert!(before > 0 && after > 0, "{before} images as it was, {after} as it is to be");
}
