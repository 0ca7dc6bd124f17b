//! Pools of mirrors that are divided. What the user loses when these fail: the pool, the other half that was to be a copy of it, or both, since each
//! writes to what the other has.

use crate::common::{BLOCKS, check, dataset, devices, exec, guids, host, leaf, new_object, opened, write};
use device::BlockDevice;
use ondisk::Guid;
use pool::{ImportOptions, Pool, PoolError, PoolSpec, Runtime, TopSpec, find_pools};
use sim::{Sim, SimDevice, cuts_every};
use std::sync::Arc;
use vdev::{LeafState, TopKind};

const SIM_BYTES: usize = 64 << 20;

/// A pool of mirrors with two leaves each.
fn mirrors<D: BlockDevice + 'static>(exec: &exec::Exec, disks: &[Arc<D>]) -> Pool {
    let tops = disks.chunks(2).map(|pair| TopSpec { kind: TopKind::Mirror, leaves: pair.iter().map(leaf).collect() }).collect();
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) };
    Pool::create(exec, spec, &Runtime::new()).expect("created")
}

/// The second leaf of each mirror.
fn seconds(pool: &Pool) -> Vec<Guid> {
    guids(pool).into_iter().skip(1).step_by(2).collect()
}

fn import_named(exec: &exec::Exec, disks: Vec<Arc<dyn BlockDevice>>, name: &str) -> Result<Pool, PoolError> {
    let options = ImportOptions { name: Some(name.to_string()), host: host(), ..ImportOptions::default() };
    Pool::import(exec, disks, &options, &Runtime::new())
}

fn clean(pool: &Pool, what: &str) {
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// If this fails, halves of a pool have not what was in it, or are not two pools.
#[test]
fn each_half_has_everything_and_is_a_pool_of_its_own() {
    for pairs in [1, 2] {
        let (exec, disks) = (exec(3), devices(2 * pairs));
        let pool = mirrors(&exec, &disks);
        let object = new_object(&pool);
        write(&pool, object, 0..BLOCKS, 1);
        let half = pool.split(seconds(&pool), "half", &Runtime::new()).expect("divided");
        assert_eq!((half.name(), pool.name()), ("half".to_string(), "tank".to_string()));
        assert_ne!(half.guid(), pool.guid());
        for (pool, ages) in [(&pool, 2), (&half, 3)] {
            let tree = pool.tree();
            assert!(tree.tops.iter().all(|top| top.kind == TopKind::Leaf) && tree.leaves.len() == pairs, "{tree:?}");
            assert!(tree.leaves.iter().all(|leaf| leaf.state == LeafState::Online));
            write_named(pool, object, ages);
        }
        pool.sync().expect("synced");
        half.sync().expect("synced");
        clean(&pool, "the one that was left");
        clean(&half, "the one that left");
        pool.export().expect("exported");
        half.export().expect("exported");
        assert_eq!(find_pools(&exec, opened(&disks)).len(), 2);
        let pool = import_named(&exec, opened(&disks), "tank").expect("imported");
        check(&pool, object, &[2; BLOCKS as usize], "tank");
        let half = import_named(&exec, opened(&disks), "half").expect("imported");
        clean(&half, "half, again");
        check_named(&half, object, 3);
        pool.export().expect("exported");
        half.export().expect("exported");
    }
}

fn write_named(pool: &Pool, object: ondisk::ObjectId, age: u64) {
    let handle = pool.dsl().hold(&pool.name()).expect("held");
    let tx = handle.assign(dsl::TxSpace::Writes(4 << 20)).expect("assigned");
    let dnode = handle.objset().expect("objset").hold(object).expect("object");
    for block in 0..BLOCKS {
        dnode.write(block * crate::common::BLOCK_BYTES as u64, &crate::common::pattern(age, block), &tx).expect("written");
    }
}

fn check_named(pool: &Pool, object: ondisk::ObjectId, age: u64) {
    let dnode = pool.dsl().hold(&pool.name()).expect("held").objset().expect("objset").hold(object).expect("object");
    let mut read = vec![0; crate::common::BLOCK_BYTES];
    for block in 0..BLOCKS {
        dnode.read(block * crate::common::BLOCK_BYTES as u64, &mut read).expect("readable");
        assert!(read == crate::common::pattern(age, block), "{}: block {block}", pool.name());
    }
}

/// If this fails, a pool loses the only whole copy of something by being divided, or two pools share what is written to one of them.
#[test]
fn what_cannot_be_divided_stays_as_it_is() {
    let (exec, disks) = (exec(3), devices(4));
    let pool = mirrors(&exec, &disks);
    let all = guids(&pool);
    for wrong in [vec![all[1]], vec![all[0], all[1]], vec![all[0], all[1], all[3]], vec![all[1], Guid(5)]] {
        assert!(matches!(pool.split(wrong, "half", &Runtime::new()).err(), Some(PoolError::Target(_) | PoolError::NoSuchDevice)));
    }
    // The other one of the pair lacks something by now.
    pool.offline(all[0], true).expect("offline");
    assert!(matches!(pool.split(vec![all[1], all[3]], "half", &Runtime::new()).err(), Some(PoolError::NoReplicas)));
    assert!(matches!(pool.split(vec![all[0], all[3]], "half", &Runtime::new()).err(), Some(PoolError::Target(_))));
    assert_eq!(guids(&pool), all);
    clean(&pool, "not divided");
    pool.export().expect("exported");
    let disks = devices(1);
    let pool = crate::common::create(&disks, TopKind::Leaf);
    let error = pool.split(guids(&pool), "half", &Runtime::new()).err();
    assert!(matches!(error, Some(PoolError::Target(why)) if why.contains("only of mirrors")), "{error:?}");
    pool.export().expect("exported");
}

/// If this fails, a power cut while a pool is divided costs the pool, or leaves a half of it that cannot be read, or devices that are of neither pool,
/// or of both.
#[test]
fn a_power_cut_while_a_pool_is_divided_leaves_it_whole() {
    let exec = exec(11);
    let sim = Sim::new(&exec, 5);
    let disks: Vec<Arc<SimDevice>> = (0..2).map(|index| sim.device(&format!("d{index}"), SIM_BYTES)).collect();
    let pool = mirrors(&exec, &disks);
    pool.dsl().create_dataset("tank/fs", dataset()).expect("created");
    sim.start_recording();
    sim.mark(0);
    let half = pool.split(seconds(&pool), "half", &Runtime::new()).expect("divided");
    sim.mark(1);
    half.dsl().create_dataset("half/new", dataset()).expect("created");
    half.export().expect("exported");
    pool.export().expect("exported");
    let recording = sim.take_recording();
    let mut halves = 0;
    recording.each_cut((cuts_every(7), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| {
            let what = format!("cut {} {choice:?}", cut.events);
            let exec = crate::common::exec(6);
            let sim = Sim::new(&exec, 6);
            let disks: Vec<Arc<dyn BlockDevice>> = images
                .into_iter()
                .enumerate()
                .map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>)
                .collect();
            let pool = import_named(&exec, disks.clone(), "tank").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(pool.dsl().children("tank").expect("readable"), ["fs"], "{what}");
            clean(&pool, &what);
            let second = |pool: &Pool| (pool.tree().leaves.len() == 2).then(|| guids(pool)[1]);
            match import_named(&exec, disks.clone(), "half") {
                Ok(half) => {
                    assert!(half.dsl().children("half").expect("readable").contains(&"fs".to_string()), "{what}");
                    clean(&half, &format!("{what}, the half"));
                    if let Some(second) = second(&pool) {
                        let back = pool.online(second, Some(disks[1].clone()));
                        assert_eq!(back, Ok(LeafState::Missing), "{what}: both pools write to it");
                    }
                    halves += 1;
                }
                Err(error) => {
                    assert!(cut.mark.unwrap_or(0) == 0, "{what}: the half is gone: {error}");
                    let second = second(&pool).unwrap_or_else(|| panic!("{what}: the device is in no pool: {error}"));
                    assert_eq!(pool.online(second, Some(disks[1].clone())), Ok(LeafState::Online), "{what}: {error}");
                    pool.scrub_wait().expect("resilvered");
                    pool.sync().expect("synced");
                    let lacks = |leaf: &vdev::Leaf| leaf.state != LeafState::Online || !leaf.missing_txgs.is_empty();
                    assert!(!pool.tree().leaves.iter().any(lacks), "{what}: {:?}", pool.tree());
                    assert_eq!(crate::common::checksum_errors(&pool), 0, "{what}");
                    clean(&pool, &format!("{what}, with its device again"));
                }
            }
        });
    });
    assert!(halves > 0);
}

/// If this fails, whoever is about to take a vdev away goes on filling it.
#[test]
fn nothing_new_lies_on_a_vdev_that_takes_no_more() {
    let (exec, disks) = (exec(3), devices(4));
    let pool = mirrors(&exec, &disks);
    let tops: Vec<Guid> = pool.tree().tops.iter().map(|top| top.guid).collect();
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS / 2, 1);
    pool.set_allocating(tops[0], false).expect("set");
    assert!(matches!(pool.set_allocating(tops[1], false), Err(PoolError::Target(_))), "nothing would be left");
    assert_eq!(pool.set_allocating(guids(&pool)[0], false), Err(PoolError::NoSuchDevice), "a part of a mirror");
    pool.export().expect("exported");
    let pool = import_named(&exec, opened(&disks), "tank").expect("imported");
    let used = |pool: &Pool| -> Vec<u64> { pool.status().vdev_space.iter().map(|space| space.allocated).collect() };
    let before = used(&pool);
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    let after = used(&pool);
    assert!(after[0] <= before[0] && after[1] > before[1], "{before:?} {after:?}");
    check(&pool, object, &[2; BLOCKS as usize], "written elsewhere");
    pool.set_allocating(tops[0], true).expect("set");
    write(&pool, object, 0..BLOCKS, 3);
    pool.sync().expect("synced");
    clean(&pool, "in use again");
    pool.export().expect("exported");
}
