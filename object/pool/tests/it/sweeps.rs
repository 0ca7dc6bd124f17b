//! Free space is initialized and trimmed while files come and go, across crashes and imports. What the user loses when these fail:
//! whatever lay where a sweep took used space for free.
use crate::common::{BLOCKS, Random, check, create, devices, devices_of, filled, guids, import, leaf, new_object, write};
use device::{BlockDevice, MemDevice};
use exec::{Exec, Inline};
use ondisk::{Guid, ObjectId};
use pool::{Pool, PoolError, ScanState, SweepAction, SweepKind, SweepState};
use std::sync::Arc;
use vdev::{DraidConfig, LABEL_START_BYTES, Pairing, TopKind};

const START: SweepAction = SweepAction::Start { rate: 0, secure: false };
const PATTERN: u64 = 0xdead_beef_dead_beee;

fn shapes() -> Vec<(TopKind, usize)> {
    let draid = TopKind::Draid(DraidConfig::new(1, 2, 1, 5).expect("a shape"));
    vec![(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5), (draid, 5)]
}

fn sweep(pool: &Pool, kind: SweepKind, leaves: &[Guid], action: SweepAction) -> Vec<Result<(), PoolError>> {
    pool.sweep(kind, leaves, action).expect("synced")
}

fn states(pool: &Pool, kind: SweepKind) -> Vec<SweepState> {
    pool.sweep_status().into_iter().filter(|status| status.kind == kind).map(|status| status.state).collect()
}

/// Sectors of a device that hold the pattern.
fn patterned(device: &Arc<MemDevice>) -> usize {
    let exec: Exec = Arc::new(Inline::new(1));
    let bytes = device.read_at(&exec, 0, device.size_bytes() as usize).expect("read").to_vec();
    let word = PATTERN.to_le_bytes();
    bytes.chunks_exact(4096).filter(|sector| sector.chunks_exact(8).all(|found| found == word)).count()
}

/// Everything is what was written, and the pool contradicts itself nowhere.
fn check_all(pool: &Pool, object: ObjectId, ages: &[u64], what: &str) {
    check(pool, object, ages, what);
    match pool.scrub_start() {
        Ok(()) | Err(PoolError::Scan(_)) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    pool.scrub_wait().expect("scrubbed");
    let scan = pool.scan_status().expect("a scrub");
    assert_eq!((scan.state, scan.errors, scan.repaired), (ScanState::Finished, 0, 0), "{what}: a sweep took used space");
    assert!(pool.verify_space().expect("readable").is_clean(), "{what}");
}

/// If this fails, a device that was thrown out is written again over its whole length when it comes back, and nobody asked for that.
#[test]
fn a_sweep_ends_with_its_device() {
    let devices = devices(2);
    let pool = create(&devices, TopKind::Mirror);
    let first = guids(&pool)[0];
    assert_eq!(sweep(&pool, SweepKind::Initialize, &[first], START), [Ok(())]);
    pool.fault(first, true).expect("the other one has everything");
    pool.sync().expect("synced");
    assert_eq!(states(&pool, SweepKind::Initialize), [SweepState::Canceled]);
    pool.export().expect("exported");
    let pool = import(&devices, false).expect("imported");
    pool.sync().expect("synced");
    assert_eq!(states(&pool, SweepKind::Initialize), [SweepState::Canceled]);
}

#[test]
fn all_free_space_is_initialized_and_nothing_else() {
    for (kind, count) in shapes() {
        let what = format!("{kind:?}");
        let devices = devices(count);
        let (pool, object) = filled(&devices, kind);
        let leaves = guids(&pool);
        assert!(sweep(&pool, SweepKind::Initialize, &leaves, START).iter().all(Result::is_ok), "{what}");
        assert_eq!(sweep(&pool, SweepKind::Initialize, &leaves[..1], START), [Err(PoolError::Target("currently initializing"))]);
        pool.sweep_drive_part(3).expect("driven");
        let progress = pool.sweep_status()[0];
        assert!(progress.bytes_done > 0 && progress.bytes_done < progress.bytes_estimated, "{what}: {progress:?}");
        // It goes on after an export, and is shown as it was.
        pool.export().expect("exported");
        let pool = import(&devices, false).expect("imported");
        assert_eq!(states(&pool, SweepKind::Initialize), vec![SweepState::Active; count], "{what}");
        pool.sweep_wait().expect("done");
        pool.sync().expect("synced");
        assert_eq!(states(&pool, SweepKind::Initialize), vec![SweepState::Complete; count], "{what}");
        for status in pool.sweep_status() {
            assert_eq!((status.errors, status.bytes_done), (0, status.bytes_estimated), "{what}");
        }
        let space = pool.status().vdev_space[0];
        let copies = if kind == TopKind::Mirror { count as u64 } else { 1 };
        let free = (space.capacity - space.allocated) / 4096 * copies;
        let found: usize = devices.iter().map(patterned).sum();
        assert!(found as u64 >= free * 95 / 100, "{what}: {found} of {free} sectors");
        check_all(&pool, object, &[1; BLOCKS as usize], &what);
        // Done is done, until it is forgotten.
        assert_eq!(sweep(&pool, SweepKind::Initialize, &leaves, SweepAction::Forget), vec![Ok(()); count]);
        assert_eq!(states(&pool, SweepKind::Initialize), []);
        pool.export().expect("exported");
        let pool = import(&devices, false).expect("imported");
        assert_eq!(states(&pool, SweepKind::Initialize), []);
        check(&pool, object, &[1; BLOCKS as usize], &what);
    }
}

/// If this fails, a day's trimming or initializing begins anew because a mirror was made of a disk, or a disk of a mirror; and after an import
/// it goes on from a place that was never reached.
#[test]
fn a_sweep_goes_on_when_its_device_becomes_a_mirror_and_one_disk_again() {
    for kind in [SweepKind::Initialize, SweepKind::Trim] {
        let devices = devices(2);
        let pool = create(&devices[..1], TopKind::Leaf);
        assert_eq!(sweep(&pool, kind, &guids(&pool), START), [Ok(())]);
        pool.sweep_drive_part(3).expect("driven");
        let done =
            |pool: &Pool| pool.sweep_status().iter().find(|status| status.kind == kind).map(|status| (status.state, status.bytes_done));
        let Some((SweepState::Active, before)) = done(&pool) else { panic!("{kind:?} runs") };
        assert!(before > 0);
        pool.attach(guids(&pool)[0], &leaf(&devices[1]), Pairing::Mirror, false).expect("attached");
        let Some((SweepState::Active, in_mirror)) = done(&pool) else { panic!("{kind:?} runs in a mirror") };
        assert!(in_mirror >= before / 2, "{kind:?}: {before} {in_mirror}");
        pool.scrub_wait().expect("resilvered");
        pool.detach(guids(&pool)[1]).expect("detached");
        let after = done(&pool);
        assert!(after.is_some_and(|(state, bytes)| state == SweepState::Active && bytes >= before / 2), "{kind:?}: {before} {after:?}");
        pool.export().expect("exported");
        let pool = import(&devices[..1], false).expect("imported");
        assert_eq!(done(&pool).map(|(state, _)| state), Some(SweepState::Active), "{kind:?}");
        pool.sweep_wait().expect("driven");
        assert_eq!(states(&pool, kind), [SweepState::Complete]);
    }
}

#[test]
fn sweeps_are_suspended_canceled_and_begun_again() {
    let devices = devices(2);
    let pool = create(&devices, TopKind::Mirror);
    let leaves = guids(&pool);
    for (kind, idle) in [(SweepKind::Initialize, "there is no active initialization"), (SweepKind::Trim, "there is no active trim")] {
        assert_eq!(sweep(&pool, kind, &leaves[..1], SweepAction::Cancel), [Err(PoolError::Target(idle))]);
        assert_eq!(sweep(&pool, kind, &[Guid(5)], START), [Err(PoolError::NoSuchDevice)]);
        assert_eq!(sweep(&pool, kind, &leaves, START), [Ok(()), Ok(())]);
        pool.sweep_drive_part(2).expect("driven");
        assert_eq!(sweep(&pool, kind, &leaves[..1], SweepAction::Suspend), [Ok(())]);
        assert_eq!(sweep(&pool, kind, &leaves[..1], SweepAction::Suspend), [Err(PoolError::Target(idle))]);
        pool.sweep_wait().expect("the other one");
        let mut found = states(&pool, kind);
        found.sort_by_key(|state| *state == SweepState::Complete);
        assert_eq!(found, [SweepState::Suspended, SweepState::Complete]);
        assert_eq!(sweep(&pool, kind, &leaves[..1], START), [Ok(())]);
        assert_eq!(sweep(&pool, kind, &leaves[..1], SweepAction::Cancel), [Ok(())]);
        assert_eq!(sweep(&pool, kind, &leaves[..1], START), [Ok(())]);
        pool.sweep_wait().expect("both");
        assert_eq!(states(&pool, kind), [SweepState::Complete; 2]);
    }
    pool.offline(leaves[0], false).expect("offline");
    assert_eq!(sweep(&pool, SweepKind::Trim, &leaves[..1], START), [Err(PoolError::Target("invalid device"))]);
}

/// If this fails, there is an order of writes, frees, sweeps and crashes in which a sweep destroys what somebody wrote.
#[test]
fn no_order_of_events_lets_a_sweep_touch_used_space() {
    for (kind, count) in shapes() {
        for seed in 0..4 {
            let what = format!("{kind:?}, seed {seed}");
            let mut random = Random(seed * 6007 + count as u64);
            let devices = devices(count + 1);
            let mut pool = create(&devices[..count], kind);
            pool.sweep_parameters().trim_min.store(0, std::sync::atomic::Ordering::Relaxed);
            let object = new_object(&pool);
            pool.sync().expect("synced");
            let (mut ages, mut age) = (vec![0; BLOCKS as usize], 0);
            for _ in 0..60 {
                let leaves = guids(&pool);
                match random.below(12) {
                    // Writing over what is there frees it.
                    0..=3 => {
                        let first = random.below(BLOCKS);
                        let blocks = first..(first + 1 + random.below(8)).min(BLOCKS);
                        age += 1;
                        ages[blocks.start as usize..blocks.end as usize].fill(age);
                        write(&pool, object, blocks, age);
                    }
                    4 => pool.sync().expect("synced"),
                    5 => drop(sweep(&pool, SweepKind::Trim, &leaves, START)),
                    6 => drop(sweep(&pool, SweepKind::Initialize, &leaves, START)),
                    7 | 8 => pool.sweep_drive_part(1 + random.below(5) as usize).expect("driven"),
                    9 => {
                        let value = if random.below(3) == 0 { "off" } else { "on" };
                        pool.set_prop("autotrim", value).expect("set");
                        pool.sweep_parameters().trim_txg_batch.store(1 + random.below(4), std::sync::atomic::Ordering::Relaxed);
                    }
                    10 => pool.autotrim_drive().expect("trimmed"),
                    _ => {
                        pool.sync().expect("synced");
                        if random.below(2) == 0 {
                            drop(pool);
                        } else {
                            pool.export().expect("exported");
                        }
                        pool = import(&devices, false).unwrap_or_else(|error| panic!("{what}: {error}"));
                        pool.sweep_parameters().trim_min.store(0, std::sync::atomic::Ordering::Relaxed);
                        check(&pool, object, &ages, &what);
                    }
                }
            }
            pool.sweep_wait().expect("swept");
            pool.sync().expect("synced");
            check_all(&pool, object, &ages, &what);
            // A device that comes has been swept by nobody.
            let done = pool.attach(guids(&pool)[0], &leaf(&devices[count]), Pairing::Replacing, true);
            assert!(done.is_ok(), "{what}: {done:?}");
            pool.scrub_wait().expect("resilvered");
            pool.sync().expect("synced");
            assert!(pool.sweep_status().iter().filter(|status| status.kind == SweepKind::Trim).count() < guids(&pool).len(), "{what}");
            check_all(&pool, object, &ages, &what);
        }
    }
}

/// If this fails, `autotrim=on` trims nothing, and devices forget nothing.
#[test]
fn what_was_freed_is_trimmed_by_itself() {
    let devices = devices(2);
    let pool = create(&devices, TopKind::Mirror);
    pool.set_prop("autotrim", "on").expect("set");
    pool.sweep_parameters().trim_txg_batch.store(1, std::sync::atomic::Ordering::Relaxed);
    let object = new_object(&pool);
    for age in 1..8 {
        write(&pool, object, 0..BLOCKS, age);
        pool.sync().expect("synced");
        pool.autotrim_drive().expect("trimmed");
    }
    let trims = pool.status().leaves[0].counts.ops[zio_trims()];
    assert!(trims > 0, "something was freed, rested, and trimmed");
    // Monitoring looks there whether devices are told what is free.
    let (auto, by_hand) = (&pool.iostats().autotrim, &pool.iostats().trim);
    assert!(auto.written.get().0 > 0 && auto.written.get().1 >= 4096 * auto.written.get().0, "{auto:?}");
    assert_eq!((auto.failed.get(), by_hand.written.get()), ((0, 0), (0, 0)));
    pool.set_prop("autotrim", "off").expect("set");
    write(&pool, object, 0..BLOCKS, 9);
    for _ in 0..4 {
        pool.sync().expect("synced");
        pool.autotrim_drive().expect("nothing");
    }
    assert_eq!(pool.status().leaves[0].counts.ops[zio_trims()], trims);
    check_all(&pool, object, &[9; BLOCKS as usize], "autotrim");
}

/// If this fails, a trim of a large disk that is provisioned as it fills takes hours for space that nobody ever had.
#[test]
fn a_trim_leaves_out_what_was_never_used_where_it_is_to() {
    const MARK: u8 = 0x5A;
    let devices = devices_of(1, 256 << 20);
    let (pool, object) = filled(&devices, TopKind::Leaf);
    let top = pool.tree().tops[0].clone();
    let unused = || -> Vec<u32> {
        let mut raw = vec![0; top.metaslab_count() as usize * 8];
        pool.mos().hold(top.ms_array).expect("array").read(0, &mut raw).expect("read");
        let maps = raw.chunks_exact(8).enumerate();
        maps.filter(|(_, map)| map.iter().all(|byte| *byte == 0)).map(|(metaslab, _)| metaslab as u32).collect()
    };
    let middle = |metaslab: u32| {
        let range = top.metaslab_range(metaslab);
        (LABEL_START_BYTES + (range.start + range.end) / 2) as usize
    };
    let mark = unused();
    devices[0].tamper(|bytes| mark.iter().for_each(|metaslab| bytes[middle(*metaslab)] = MARK));
    // Unused metaslabs, and how many of them were not trimmed.
    let left = || {
        let (unused, mut marked) = (unused(), 0);
        devices[0].tamper(|bytes| marked = unused.iter().filter(|metaslab| bytes[middle(**metaslab)] == MARK).count());
        (unused.len(), marked)
    };
    let trim = |skip: u64| {
        let set = |skip| pool.sweep_parameters().trim_metaslab_skip.store(skip, std::sync::atomic::Ordering::Relaxed);
        set(skip);
        assert_eq!(sweep(&pool, SweepKind::Trim, &guids(&pool), START), [Ok(())]);
        // One that runs goes on as it began.
        set(1 - skip);
        pool.sweep_wait().expect("done");
        let status = pool.sweep_status()[0];
        assert_eq!((status.state, status.errors, status.bytes_done), (SweepState::Complete, 0, status.bytes_estimated));
        left()
    };
    let (count, marked) = trim(1);
    assert!(count > 1 && marked == count, "{marked} of {count}");
    assert!(pool.status().leaves[0].counts.ops[zio_trims()] > 0, "what was used is trimmed");
    let (count, marked) = trim(0);
    assert!(count > 1 && marked == 0, "{marked} of {count}");
    check_all(&pool, object, &[1; BLOCKS as usize], "both trims");
}

fn zio_trims() -> usize {
    zio::IoKind::Trim as usize
}
