//! RAID-Z vdevs that get devices: files stay what they are while sectors are moved, whatever is written, lost or cut off meanwhile. What the user loses when
//! these fail: everything on a vdev to which he added a disk.
use crate::common::{
    BLOCKS, Random, check, check_redundancy, checksum_errors, copies, dataset, devices, exec, filled, guids, host, import, leaf,
    new_object, opened, tops, write,
};
use device::{BlockDevice, MemDevice};
use ondisk::ObjectId;
use pool::{ImportOptions, Pool, PoolError, PoolSpec, Runtime, SweepAction, SweepKind};
use sim::{Image, Sim, SimDevice, cuts_every};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::TopKind;

/// More txgs than any of these expansions takes.
const TXGS_MAX: usize = 200;

fn attach(pool: &Pool, device: &Arc<MemDevice>) {
    pool.attach_raidz(pool.tree().tops[0].guid, &leaf(device), false).expect("attached");
    assert!(pool.is_expanding());
}

fn is_clean(pool: &Pool, what: &str) {
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

fn references(pool: &Pool) -> u64 {
    pool.features().into_iter().find_map(|(name, _, count)| (name == "raidz_expansion").then_some(count)).flatten().unwrap_or(0)
}

/// Overwrites some blocks and looks at all of them.
fn disturb(pool: &Pool, object: ObjectId, ages: &mut [u64], random: &mut Random, what: &str) {
    let first = random.below(BLOCKS - 4);
    let age = ages.iter().max().copied().unwrap_or(1) + 1;
    write(pool, object, first..first + 4, age);
    ages[first as usize..first as usize + 4].fill(age);
    check(pool, object, ages, what);
}

#[test]
fn files_stay_what_they_are_while_their_vdev_is_expanded() {
    for (kind, count) in [(TopKind::Raidz(1), 3), (TopKind::Raidz(2), 4), (TopKind::Raidz(3), 5), (TopKind::Raidz(1), 2)] {
        let all = devices(count + 2);
        let (mut pool, object) = filled(&all[..count], kind);
        let (mut ages, mut random) = (vec![1; BLOCKS as usize], Random(3));
        for had in [count, count + 1] {
            let what = format!("{kind:?}, from {had} devices");
            let room = pool.status().space.deflated_capacity;
            attach(&pool, &all[had]);
            assert_eq!(pool.attach_raidz(pool.tree().tops[0].guid, &leaf(&all[had]), true), Err(PoolError::Expanding), "{what}");
            assert_eq!(pool.make_checkpoint(), Err(PoolError::Expanding), "{what}");
            let start = SweepAction::Start { rate: 0, secure: false };
            let swept = pool.sweep(SweepKind::Initialize, &guids(&pool)[..1], start);
            assert_eq!(swept, Ok(vec![Err(PoolError::Expanding)]), "{what}: what is free may hold something in a moment");
            let mut txgs = 0;
            while pool.is_expanding() {
                pool.expand_drive(Some(1)).expect("driven");
                disturb(&pool, object, &mut ages, &mut random, &what);
                txgs += 1;
                assert!(txgs < TXGS_MAX, "{what}: it has no end");
                if txgs % 3 == 0 {
                    // What another system finds after an outage.
                    let seen = copies(&all[..=had]);
                    let old = import(&seen, true).unwrap_or_else(|error| panic!("{what}, {txgs} txgs: {error}"));
                    is_clean(&old, &what);
                    old.export().expect("closed");
                }
                if txgs % 4 == 0 {
                    pool.export().expect("exported");
                    pool = import(&all[..=had], false).unwrap_or_else(|error| panic!("{what}: {error}"));
                    check(&pool, object, &ages, &what);
                }
            }
            assert!(pool.status().space.deflated_capacity > room, "{what}: there is more room");
            is_clean(&pool, &what);
            disturb(&pool, object, &mut ages, &mut random, &what);
            pool.sync().expect("synced");
            // A scrub follows by itself.
            assert_eq!(pool.scrub_wait(), Ok(()), "{what}");
            assert_eq!(checksum_errors(&pool), 0, "{what}: everything was moved as it was");
        }
        assert_eq!(references(&pool), 2);
        let status = pool.expand_status().expect("there was one");
        assert!(!status.is_active && status.end_time >= status.start_time && status.reflowed > 0);
        pool.export().expect("exported");
        check_redundancy(&all, kind, object, &ages, &format!("{kind:?}, expanded twice"));
    }
}

/// If this fails, a device that is lost while a vdev is expanded takes files with it, or the expansion reads what it does not have.
#[test]
fn an_expansion_waits_for_a_device_and_goes_on() {
    let all = devices(5);
    let (pool, object) = filled(&all[..4], TopKind::Raidz(1));
    let (mut ages, mut random) = (vec![1; BLOCKS as usize], Random(9));
    attach(&pool, &all[4]);
    pool.expand_drive(Some(5)).expect("driven");
    let lost = guids(&pool)[1];
    pool.offline(lost, false).expect("offline");
    let before = pool.expand_status().expect("it runs");
    assert!(before.is_waiting && before.is_active);
    pool.expand_drive(Some(5)).expect("driven");
    disturb(&pool, object, &mut ages, &mut random, "without a device");
    assert_eq!(pool.expand_status().map(|status| status.reflowed), Some(before.reflowed));
    pool.export().expect("exported");
    let rest: Vec<_> = [0, 2, 3, 4].map(|index: usize| all[index].clone()).to_vec();
    let degraded = import(&rest, true).expect("imported without it");
    check(&degraded, object, &ages, "half-way, without it");
    degraded.export().expect("closed");
    let pool = import(&all, false).expect("imported");
    pool.online(lost, Some(all[1].clone() as Arc<dyn BlockDevice>)).expect("online");
    pool.scrub_wait().expect("resilvered");
    pool.expand_drive(Some(TXGS_MAX)).expect("driven");
    assert!(!pool.is_expanding());
    check(&pool, object, &ages, "after all");
    assert_eq!(pool.scrub_wait(), Ok(()));
    assert_eq!(checksum_errors(&pool), 0);
}

#[test]
fn a_test_can_have_it_stand_still() {
    let all = devices(4);
    let (pool, object) = filled(&all[..3], TopKind::Raidz(1));
    pool.expand_parameters().reflow_bytes_max.store(64 << 10, Ordering::Relaxed);
    attach(&pool, &all[3]);
    pool.expand_drive(Some(30)).expect("driven");
    assert!(pool.is_expanding(), "it stands still");
    check(&pool, object, &[1; BLOCKS as usize], "half-way");
    pool.expand_parameters().reflow_bytes_max.store(0, Ordering::Relaxed);
    pool.expand_drive(None).expect("driven");
    assert!(!pool.is_expanding());
    check(&pool, object, &[1; BLOCKS as usize], "afterwards");
}

/// An image after an outage: everything is there, and the expansion goes on.
fn check_cut(images: Vec<Image>, object: ObjectId, what: &str) {
    let under = exec(12);
    let sim = Sim::new(&under, 6);
    let all: Vec<Arc<SimDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image)).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let pool = Pool::import(&under, opened(&all), &options, &Runtime::new()).unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&pool, object, &[1; BLOCKS as usize], what);
    pool.expand_drive(None).expect("driven");
    check(&pool, object, &[1; BLOCKS as usize], &format!("{what}, expanded"));
    is_clean(&pool, what);
    assert_eq!(checksum_errors(&pool), 0, "{what}");
    pool.export().expect("exported");
}

/// If this fails, an outage while a vdev is expanded costs everything on it.
#[test]
fn an_expansion_survives_power_cuts() {
    let under = exec(11);
    let sim = Sim::new(&under, 5);
    let all: Vec<Arc<SimDevice>> = (0..4).map(|index| sim.device(&format!("d{index}"), 64 << 20)).collect();
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops(&[(TopKind::Raidz(1), 3)], &all[..3]), dataset()) };
    let pool = Pool::create(&under, spec, &Runtime::new()).expect("made");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    sim.start_recording();
    sim.mark(0);
    pool.attach_raidz(pool.tree().tops[0].guid, &leaf(&all[3]), false).expect("attached");
    pool.expand_drive(None).expect("driven");
    assert!(!pool.is_expanding());
    pool.export().expect("exported");
    sim.take_recording().each_cut((cuts_every(97), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| check_cut(images, object, &format!("cut {} {choice:?}", cut.events)));
    });
}
