//! Going back to older states of a pool: where the newest cannot be opened, or nobody wants it. What the user loses when these fail: the pool,
//! although a state of it was whole a moment before; or what that state had, since a state that was left behind came back.

use crate::common::{
    BLOCK_BYTES, BLOCKS, check, check_redundancy, create, dataset, devices, exec, filled, guids, host, import, leaf, new_object, opened,
    pattern, write,
};
use device::{BlockDevice, MemDevice};
use dmu::NewObject;
use dsl::TxSpace;
use ondisk::label::LABEL_START_BYTES;
use ondisk::{BlockPtr, ObjectId, ObjectType, Uberblock};
use pool::{ImportOptions, LoadVerify, Pool, PoolError, PoolSpec, Rewind, RewindPoint, Runtime, TopSpec, find_pools};
use sim::{Image, Sim, SimDevice, cuts_every};
use std::sync::Arc;
use vdev::{Pairing, TopKind};

/// Number of states of a pool with an age of their own.
const AGES: u64 = 5;
const SIM_BYTES: usize = 64 << 20;

fn options(rewind: Rewind, read_only: bool) -> ImportOptions {
    ImportOptions { host: host(), rewind, read_only, ..ImportOptions::default() }
}

fn back(disks: &[Arc<MemDevice>], rewind: Rewind, read_only: bool) -> Result<Pool, PoolError> {
    Pool::import(&exec(9), opened(disks), &options(rewind, read_only), &Runtime::new())
}

fn points(disks: &[Arc<MemDevice>], rewind: Rewind) -> Vec<RewindPoint> {
    points_under(disks, rewind, LoadVerify::default())
}

fn points_under(disks: &[Arc<MemDevice>], rewind: Rewind, load_verify: LoadVerify) -> Vec<RewindPoint> {
    let found = find_pools(&exec(9), opened(disks));
    let runtime = Runtime { load_verify, ..Runtime::new() };
    found[0].rewind_points(&exec(9), &options(rewind, false), &runtime).expect("nobody else has it")
}

/// A pool as after a crash whose last txgs wrote its only object anew, each with another age, before the last made a file system; and the uberblock
/// and age of each state.
fn aged(disks: &[Arc<MemDevice>], kind: TopKind) -> (ObjectId, Vec<(Uberblock, u64)>) {
    let (pool, object) = filled(disks, kind);
    let mut states = vec![(pool.uberblock(), 1)];
    for age in 2..=AGES {
        write(&pool, object, 0..BLOCKS, age);
        pool.sync().expect("synced");
        states.push((pool.uberblock(), age));
    }
    pool.dsl().create_dataset("tank/late", dataset()).expect("created");
    states.push((pool.uberblock(), AGES));
    (object, states)
}

/// Damages every copy of the root of a state.
fn damage(disks: &[Arc<MemDevice>], state: &Uberblock) {
    damage_block(disks, &state.ub_rootbp);
}

fn damage_block(disks: &[Arc<MemDevice>], block: &BlockPtr) {
    for dva in block.dvas() {
        let at = (LABEL_START_BYTES + dva.offset) as usize + 8;
        disks.iter().for_each(|disk| disk.tamper(|bytes| bytes[at] ^= 0xff));
    }
}

/// If this fails, a pool whose last txg is damaged is lost, or goes back and is lost then: what was left behind wins once more after a crash.
#[test]
fn states_that_cannot_be_opened_are_gone_back_from_for_good() {
    for (kind, count, lost) in [(TopKind::Leaf, 1, 1), (TopKind::Leaf, 1, 2), (TopKind::Mirror, 2, 2)] {
        let what = format!("{kind:?} without {lost}");
        let disks = devices(count);
        let (object, states) = aged(&disks, kind);
        let (kept, gone) = states.split_at(states.len() - lost);
        gone.iter().for_each(|(state, _)| damage(&disks, state));
        assert!(import(&disks, false).is_err(), "{what}");
        let (state, age) = kept.last().expect("some are left");
        let ages = [*age; BLOCKS as usize];

        let newest = &states.last().expect("some").0;
        let is_recent = newest.ub_txg - state.ub_txg <= 2;
        let rewind = if is_recent { Rewind::Recent } else { Rewind::Any };
        let before: Vec<Vec<u8>> = disks.iter().map(|disk| disk.contents()).collect();
        let pool = back(&disks, rewind, true).unwrap_or_else(|error| panic!("{what}, read-only: {error}"));
        check(&pool, object, &ages, &what);
        drop(pool);
        assert!(before.iter().zip(&disks).all(|(before, disk)| *before == disk.contents()), "{what}: who only reads changes nothing");

        let pool = back(&disks, rewind, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(pool.rewound().map(|rewound| rewound.txg), Some(state.txg()), "{what}");
        assert!(pool.txg() > newest.txg(), "{what}: it goes on after all that was");
        check(&pool, object, &ages, &what);
        write(&pool, object, 0..BLOCKS, 99);
        pool.sync().expect("synced");
        drop(pool);

        let left = points(&disks, Rewind::Any);
        let comes_back = |point: &RewindPoint| gone.iter().any(|(state, _)| state.txg() == point.state.txg);
        assert!(!left.iter().any(comes_back), "{what}: {left:?}");
        let pool = import(&disks, false).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert_eq!(pool.rewound(), None, "{what}");
        check(&pool, object, &[99; BLOCKS as usize], &what);
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}: {report:?}");
        pool.export().expect("exported");
    }
}

/// If this fails, somebody is offered a state that then does not open, or has not what was said.
#[test]
fn what_is_offered_opens_and_has_what_was_said() {
    let disks = devices(1);
    let (object, states) = aged(&disks, TopKind::Leaf);
    damage(&disks, &states.last().expect("some").0);
    let all = points(&disks, Rewind::Any);
    assert!(all.len() >= states.len(), "{all:?}");
    assert!(all[0].problem.is_some() && all[0].datasets.is_empty(), "the newest is damaged: {:?}", all[0]);
    let offered: Vec<&RewindPoint> = all.iter().filter(|point| point.problem.is_none()).collect();
    assert!(offered.len() >= 2, "nobody used the space of the last two txgs again: {all:?}");
    for point in offered.into_iter().take(4) {
        let txg = point.state.txg;
        let copies = [Arc::new(MemDevice::with_bytes("copy", disks[0].contents()))];
        let pool = back(&copies, Rewind::To(txg), false).unwrap_or_else(|error| panic!("{txg:?}: {error}"));
        assert_eq!(pool.rewound(), Some(&point.state));
        let names: Vec<&str> = point.datasets.iter().map(|dataset| dataset.name.as_str()).collect();
        let children = pool.dsl().children("tank").expect("readable");
        assert_eq!(names.len(), 1 + children.len(), "{names:?} {children:?}");
        assert!(children.iter().all(|child| names.contains(&format!("tank/{child}").as_str())), "{names:?} {children:?}");
        if let Some((_, age)) = states.iter().find(|(state, _)| state.txg() == txg) {
            check(&pool, object, &[*age; BLOCKS as usize], &format!("{txg:?}"));
        }
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{txg:?}: {report:?}");
        pool.export().expect("exported");
    }
}

/// If this fails, whoever goes back to a state from before a few imports finds it written over, although nearly all of the pool is free: what an
/// import wrote first lay at the beginnings of metaslabs, where such states have their blocks.
#[test]
fn states_from_before_imports_open_while_there_is_room_elsewhere() {
    const IMPORTS: u64 = 8;
    const FEW: u64 = 4;
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Raidz(1), 3)] {
        let disks = devices(count);
        let pool = create(&disks, kind);
        let object = new_object(&pool);
        write(&pool, object, 0..FEW, 1);
        pool.sync().expect("synced");
        let txg = pool.uberblock().txg();
        pool.export().expect("exported");
        for age in 2..2 + IMPORTS {
            let pool = import(&disks, false).unwrap_or_else(|error| panic!("{kind:?}, age {age}: {error}"));
            write(&pool, object, 0..FEW, age);
            pool.export().expect("exported");
            let pool = back(&disks, Rewind::To(txg), true).unwrap_or_else(|error| panic!("{kind:?}, after age {age}: {error}"));
            assert_eq!(pool.rewound().map(|rewound| rewound.txg), Some(txg), "{kind:?}");
            check(&pool, object, &[1; FEW as usize], &format!("{kind:?}, after age {age}"));
        }
    }
}

/// Pointer of a block of an object as it was synced last.
fn pointer(pool: &Pool, object: ObjectId, block: u64) -> BlockPtr {
    let dnode = pool.dsl().hold("tank").expect("held").objset().expect("objset").hold(object).expect("object");
    dnode.settled_blocks(block..block + 1).expect("read").expect("nothing changed")[0]
}

/// A new object of one block of metadata, which nobody reads who opens the pool.
fn new_metadata(pool: &Pool) -> ObjectId {
    let handle = pool.dsl().hold("tank").expect("held");
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::PACKED_NVLIST) };
    let dnode = handle.objset().expect("objset").allocate_object(new, &tx).expect("allocated");
    dnode.write(0, &pattern(1, 0), &tx).expect("written");
    dnode.object()
}

/// If this fails, nobody is told that files of a state are damaged; or the last seconds of a pool are given up for a damaged file, which OpenZFS does
/// not do; or `spa_load_verify_data=0` still has a large pool read as a whole.
#[test]
fn damaged_contents_are_counted_and_cost_no_state() {
    let disks = devices(1);
    let (pool, old) = filled(&disks, TopKind::Leaf);
    let young = new_object(&pool);
    for age in 2..=AGES {
        write(&pool, young, 0..BLOCKS, age);
        pool.sync().expect("synced");
    }
    let newest = pool.uberblock().txg();
    let damaged = [pointer(&pool, old, 7), pointer(&pool, young, 3)];
    drop(pool);
    damaged.iter().for_each(|block| damage_block(&disks, block));

    let all = LoadVerify::default();
    for (rewind, load_verify, errors) in [
        (Rewind::Recent, all, 1),
        (Rewind::Any, all, 1),
        (Rewind::To(newest), all, 2),
        (Rewind::To(newest), LoadVerify { shift: 63, ..all }, 2),
        (Rewind::To(newest), LoadVerify { data: false, ..all }, 0),
        (Rewind::To(newest), LoadVerify { metadata: false, ..all }, 0),
    ] {
        let points = points_under(&disks, rewind, load_verify);
        let (state, problem) = (&points[0].state, &points[0].problem);
        assert_eq!((state.txg, state.data_errors, problem), (newest, errors, &None), "{rewind:?} {load_verify:?}");
    }
    let pool = back(&disks, Rewind::Any, false).expect("it opens");
    assert_eq!(pool.rewound(), None, "a file is damaged, and nothing else");
    pool.export().expect("exported");
}

/// If this fails, a state with damaged metadata is taken unasked; or who has `spa_load_verify_metadata=0`, as nothing else helps, does not get it.
#[test]
fn damaged_metadata_refuses_a_state_unless_nothing_is_verified() {
    let disks = devices(1);
    let (pool, _) = filled(&disks, TopKind::Leaf);
    let before = pool.uberblock().txg();
    let object = new_metadata(&pool);
    pool.sync().expect("synced");
    let (newest, block) = (pool.uberblock().txg(), pointer(&pool, object, 0));
    drop(pool);
    damage_block(&disks, &block);

    let metadata_only = LoadVerify { data: false, ..LoadVerify::default() };
    for (load_verify, taken) in
        [(LoadVerify::default(), before), (metadata_only, before), (LoadVerify { metadata: false, ..LoadVerify::default() }, newest)]
    {
        let points = points_under(&disks, Rewind::Any, load_verify);
        let found = points.iter().find(|point| point.problem.is_none()).map(|point| point.state.txg);
        assert_eq!(found, Some(taken), "{load_verify:?}: {points:?}");
    }
}

/// If this fails, `zpool import -F` costs a healthy pool its last seconds, or gives way where only a device is missing.
#[test]
fn a_pool_whose_newest_state_opens_stays_there() {
    let disks = devices(2);
    let (object, states) = aged(&disks, TopKind::Mirror);
    let pool = back(&disks, Rewind::Any, false).expect("healthy");
    assert_eq!(pool.rewound(), None);
    assert!(pool.txg() > states.last().expect("some").0.txg());
    check(&pool, object, &[AGES; BLOCKS as usize], "healthy");
    pool.export().expect("exported");
    // One that spans two devices and lacks one.
    let disks = devices(2);
    let tops = disks.iter().map(|disk| TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(disk)] }).collect();
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) };
    Pool::create(&exec(7), spec, &Runtime::new()).expect("created").export().expect("exported");
    let error = back(&disks[..1], Rewind::Any, false).err();
    assert!(matches!(error, Some(PoolError::MissingDevices(_) | PoolError::MissingVdev(_))), "{error:?}");
}

/// If this fails, an older state is lost with a device that left the pool since, although both are there.
#[test]
fn devices_that_left_since_are_of_older_states_again() {
    let disks = devices(2);
    let (pool, object) = filled(&disks, TopKind::Mirror);
    let (txg, second) = (pool.txg(), guids(&pool)[1]);
    pool.detach(second).expect("detached");
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    drop(pool);
    for read_only in [true, false] {
        let pool = back(&disks, Rewind::To(txg), read_only).expect("it goes back");
        let tree = pool.tree();
        assert!(tree.leaves.len() == 2 && tree.leaves.iter().all(|leaf| leaf.state.is_usable()), "{tree:?}");
        check(&pool, object, &[1; BLOCKS as usize], "both");
    }
    // As after a crash: nobody says any more that it went back.
    check_redundancy(&disks, TopKind::Mirror, object, &[1; BLOCKS as usize], "each alone");
    let pool = import(&disks, false).expect("imported");
    assert_eq!((pool.rewound(), pool.tree().leaves.len()), (None, 2));
    pool.export().expect("exported");
}

/// If this fails, whoever looks long at older states of a pool writes them over what another host has in use by then.
#[test]
fn nobody_goes_back_past_what_another_host_wrote_meanwhile() {
    let disks = devices(1);
    let (pool, object) = filled(&disks, TopKind::Leaf);
    let txg = pool.txg();
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    let found = find_pools(&exec(9), opened(&disks));
    pool.sync_forced().expect("synced");
    drop(pool);
    let before = disks[0].contents();
    let error = Pool::open(&exec(9), &found[0], &options(Rewind::To(txg), false), &Runtime::new()).err();
    assert!(matches!(error, Some(PoolError::Active { .. })), "{error:?}");
    assert!(before == disks[0].contents(), "nothing was written");
    let pool = import(&disks, false).expect("as it was");
    check(&pool, object, &[2; BLOCKS as usize], "as it was");
    pool.export().expect("exported");
}

/// If this fails, a state from before a disk was in a mirror for a while is lost, though all of it is there (`vdev_validate_skip`); or a disk is taken
/// for another one without anybody having said so.
#[test]
fn a_disk_that_took_the_place_of_a_mirror_is_told_by_its_path_if_that_is_wanted() {
    let disks = devices(2);
    let (pool, object) = filled(&disks[..1], TopKind::Leaf);
    let (txg, first) = (pool.txg(), guids(&pool)[0]);
    pool.attach(first, &leaf(&disks[1]), Pairing::Mirror, false).expect("attached");
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    let second = guids(&pool)[1];
    pool.detach(second).expect("detached");
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    assert_ne!(guids(&pool), [first], "it has the mirror's");
    drop(pool);
    let error = back(&disks, Rewind::To(txg), false).err();
    assert!(matches!(error, Some(PoolError::MissingDevices(_) | PoolError::MissingVdev(_))), "{error:?}");
    let runtime = Runtime { trusts_paths: true, ..Runtime::new() };
    let points = find_pools(&exec(9), opened(&disks))[0].rewind_points(&exec(9), &options(Rewind::To(txg), false), &runtime);
    assert!(points.expect("nobody else has it").iter().all(|point| point.problem.is_none()), "what is offered is what is taken");
    for read_only in [true, false] {
        let pool = Pool::import(&exec(9), opened(&disks), &options(Rewind::To(txg), read_only), &runtime).expect("it goes back");
        assert_eq!(guids(&pool), [first]);
        check(&pool, object, &[1; BLOCKS as usize], "before the mirror");
    }
    let pool = import(&disks[..1], false).expect("its label says so again");
    assert_eq!((guids(&pool), pool.rewound()), (vec![first], None));
    check(&pool, object, &[1; BLOCKS as usize], "for good");
    pool.export().expect("exported");
}

/// If this fails, a device is taken for the one that left, and for lacking what only that one lacked.
#[test]
fn what_is_left_of_a_mirror_is_not_taken_for_what_left_it() {
    let disks = devices(2);
    let (pool, object) = filled(&disks, TopKind::Mirror);
    let (txg, first) = (pool.txg(), guids(&pool)[0]);
    pool.detach(first).expect("detached");
    pool.sync().expect("synced");
    drop(pool);
    for read_only in [true, false] {
        let pool = back(&disks[1..], Rewind::To(txg), read_only).expect("it goes back");
        let states: Vec<bool> = pool.tree().leaves.iter().map(|leaf| leaf.state.is_usable()).collect();
        assert_eq!(states, [false, true], "read-only {read_only}");
        check(&pool, object, &[1; BLOCKS as usize], "the second");
    }
}

fn names(images: Vec<Image>, what: &str) -> Vec<String> {
    let exec = exec(6);
    let sim = Sim::new(&exec, 6);
    let disks: Vec<Arc<dyn BlockDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>).collect();
    let import = |read_only| {
        let pool = Pool::import(&exec, disks.clone(), &options(Rewind::Never, read_only), &Runtime::new());
        let pool = pool.unwrap_or_else(|error| panic!("{what}, read-only {read_only}: {error}"));
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}, read-only {read_only}: {report:?}");
        pool
    };
    let names = import(true).dsl().children("tank").expect("children");
    assert_eq!(import(false).dsl().children("tank").expect("children"), names, "{what}");
    names
}

/// If this fails, a power cut while a pool goes back leaves one that is neither as it was nor as it was to be.
#[test]
fn a_power_cut_while_a_pool_goes_back_leaves_it_as_it_was_or_as_it_is_to_be() {
    let exec = exec(11);
    let sim = Sim::new(&exec, 5);
    let disks: Vec<Arc<SimDevice>> = (0..2).map(|index| sim.device(&format!("d{index}"), SIM_BYTES)).collect();
    let tops = vec![TopSpec { kind: TopKind::Mirror, leaves: disks.iter().map(leaf).collect() }];
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) };
    let pool = Pool::create(&exec, spec, &Runtime::new()).expect("made");
    pool.dsl().create_dataset("tank/kept", dataset()).expect("created");
    let txg = pool.txg();
    pool.dsl().create_dataset("tank/late", dataset()).expect("created");
    drop(pool);
    sim.start_recording();
    sim.mark(0);
    let pool = Pool::import(&exec, opened(&disks), &options(Rewind::To(txg), false), &Runtime::new()).expect("it goes back");
    assert_eq!(pool.rewound().map(|rewound| rewound.txg), Some(txg));
    sim.mark(1);
    pool.dsl().create_dataset("tank/new", dataset()).expect("created");
    pool.export().expect("exported");
    let recording = sim.take_recording();
    let (mut before, mut after) = (0, 0);
    recording.each_cut((cuts_every(7), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| {
            let what = format!("cut {} {choice:?}", cut.events);
            let names = names(images, &what);
            let has = |name: &str| names.iter().any(|found| found == name);
            assert!(has("kept") && !(has("late") && has("new")), "{what}: {names:?}");
            assert!(!has("late") || cut.mark.unwrap_or(0) == 0, "{what}: what was left behind is back");
            (before, after) = (before + usize::from(has("late")), after + usize::from(!has("late")));
        });
    });
    assert!(before > 0 && after > 0, "{before} images as it was, {after} as it is to be");
}
