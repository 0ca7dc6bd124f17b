//! Log space maps that are written here. What the user loses when these fail: files that are written over, because a metaslab's map and the logs
//! together say less than what is in use; or an import that takes longer each time, because logs stay for ever.

use crate::common::{
    BLOCKS, Random, check, copies, create_as, dataset, devices, exec, guids, host, import_under, leaf, new_object, opened, write,
};
use device::MemDevice;
use metaslab::AllocRequest;
use ondisk::{ObjectId, SpaceMapPhys};
use pool::{AddSpec, ImportOptions, Pool, Rewind, Runtime, SpaceLogTunables, TopSpec};
use std::sync::Arc;
use vdev::TopKind;
use zap::Zap;

fn runtime(log_space_maps: bool) -> Runtime {
    Runtime { log_space_maps, ..Runtime::new() }
}

fn create(disks: &[Arc<MemDevice>], kind: TopKind) -> (Pool, ObjectId) {
    let pool = create_as(&exec(7), disks, kind, &runtime(true));
    let object = new_object(&pool);
    (pool, object)
}

/// Number of lists of logs that the feature counts.
fn references(pool: &Pool) -> Option<u64> {
    pool.features().into_iter().find(|(name, ..)| name == "log_spacemap").and_then(|(.., count)| count)
}

/// Txgs of the logs, and the txgs since which metaslabs of the first vdev were not flushed; 0 of those that were never logged.
fn logs(pool: &Pool) -> (Vec<u64>, Vec<u64>) {
    let mos = pool.mos();
    let object = |zap: ObjectId, name: &str| Zap::hold(mos, zap).expect("zap").try_lookup_u64(name).expect("readable").map(ObjectId);
    let mut txgs = Vec::new();
    if let Some(list) = object(ObjectId(1), "com.delphix:log_spacemap_zap") {
        let each = |entry: &zap::Attribute| {
            txgs.push(zap::parse_int_name(&entry.name).expect("a txg"));
            Ok(())
        };
        Zap::hold(mos, list).expect("list").for_each(each).expect("readable");
    }
    txgs.sort_unstable();
    let top = pool.tree().tops[0].clone();
    let mut raw = vec![0; top.metaslab_count() as usize * 8];
    if let Some(object) = object(top.zap, "com.delphix:ms_unflushed_phys_txgs") {
        mos.hold(object).expect("txgs").read(0, &mut raw).expect("read");
    }
    (txgs, raw.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().expect("eight"))).collect())
}

/// Looks whether the headers of the first vdev's maps say how much is free: OpenZFS allocates nothing from a metaslab whose header says that nothing is.
fn headers_are_right(pool: &Pool, what: &str) {
    let (mos, allocator, top) = (pool.mos(), pool.zio().view().allocator, pool.tree().tops[0].clone());
    let array = mos.hold(top.ms_array).expect("array");
    for metaslab in 0..top.metaslab_count() as u32 {
        let mut raw = [0; 8];
        array.read(u64::from(metaslab) * 8, &mut raw).expect("read");
        let object = ObjectId(u64::from_le_bytes(raw));
        if object.0 == 0 {
            continue;
        }
        let bonus = mos.hold(object).expect("map").bonus().expect("header");
        let header = SpaceMapPhys::decode_bonus(&bonus).expect("header");
        // Each segment has at least the length of its bucket, and less than twice that.
        let told: u64 = header.smp_histogram.iter().enumerate().map(|(bucket, count)| count << (bucket + top.ashift as usize)).sum();
        let length = |range: &std::ops::Range<u64>| range.end - range.start;
        let free = length(&top.metaslab_range(metaslab)) - allocator.synced_allocated(top.id, metaslab).iter().map(length).sum::<u64>();
        assert!(told <= free && (free == 0 || told > free / 2), "{what}: metaslab {metaslab} has {free} free bytes, and says {told}");
    }
}

fn clean(pool: &Pool, what: &str) {
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
    headers_are_right(pool, what);
    let (txgs, since) = logs(pool);
    assert!(
        since.iter().all(|txg| *txg == 0 || txgs.contains(txg)),
        "{what}: OpenZFS refuses a pool without one of these: {since:?} {txgs:?}"
    );
}

/// Writes some blocks anew in so many txgs.
fn work(pool: &Pool, object: ObjectId, ages: &mut [u64], (random, txgs): (&mut Random, u64)) {
    for _ in 0..txgs {
        let first = random.below(BLOCKS);
        let last = (first + 1 + random.below(6)).min(BLOCKS);
        let age = ages.iter().max().copied().unwrap_or(0) + 1;
        write(pool, object, first..last, age);
        ages[first as usize..last as usize].fill(age);
        pool.sync().expect("synced");
    }
}

/// If this fails, what is free is known wrongly after a crash in some txg, whether the next import goes on with the logs, folds them back, or only
/// reads: files are written over.
#[test]
fn what_is_free_is_known_after_a_crash_in_any_txg() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Raidz(1), 3)] {
        let disks = devices(count);
        let (pool, object) = create(&disks, kind);
        // So few logs that more than one metaslab is flushed in a txg.
        pool.tune_space_log(SpaceLogTunables { txgs_max: 3, ..SpaceLogTunables::default() });
        let (mut ages, mut random) = ([0; BLOCKS as usize], Random(5));
        for round in 0..7 {
            work(&pool, object, &mut ages, (&mut random, 1));
            clean(&pool, &format!("{kind:?}, round {round}"));
            assert_eq!(references(&pool), Some(1), "{kind:?}: it is active");
            for (read_only, goes_on) in [(true, true), (false, true), (false, false)] {
                let what =
                    format!("{kind:?}, round {round}, {}", if read_only { "read" } else { ["folded", "gone on"][usize::from(goes_on)] });
                let pool = import_under(&copies(&disks), read_only, &runtime(goes_on)).unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&pool, object, &ages, &what);
                clean(&pool, &what);
                if read_only {
                    continue;
                }
                assert_eq!(references(&pool), Some(u64::from(goes_on)), "{what}");
                assert_eq!(logs(&pool).0.is_empty(), !goes_on, "{what}");
                let mut later = ages;
                work(&pool, object, &mut later, (&mut Random(round), 3));
                check(&pool, object, &later, &what);
                clean(&pool, &format!("{what}, later"));
            }
        }
        pool.export().expect("exported");
        let pool = import_under(&disks, false, &runtime(true)).expect("imported");
        check(&pool, object, &ages, "exported");
        clean(&pool, "exported");
    }
}

/// If this fails, every import reads logs that an export could have done without, or logs grow for ever.
#[test]
fn few_logs_are_left_and_an_export_leaves_next_to_none() {
    for keep in [false, true] {
        let disks = devices(3);
        let (pool, object) = create(&disks[..1], TopKind::Leaf);
        // On three vdevs each block of the MOS has a copy on each: a txg changes three metaslabs, and flushes one.
        let tops = disks[1..].iter().map(|disk| TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(disk)] }).collect();
        pool.add(AddSpec { tops, ..AddSpec::default() }).expect("added");
        pool.tune_space_log(SpaceLogTunables { keep_at_export: keep, ..SpaceLogTunables::default() });
        let (mut ages, mut random) = ([0; BLOCKS as usize], Random(9));
        work(&pool, object, &mut ages, (&mut random, 40));
        let (txgs, _) = logs(&pool);
        let metaslabs: u64 = pool.tree().tops.iter().map(|top| top.metaslab_count()).sum();
        assert!(txgs.len() > 2 && txgs.len() as u64 <= metaslabs + 2, "{txgs:?} of {metaslabs} metaslabs");
        pool.export().expect("exported");
        let pool = import_under(&disks, true, &runtime(true)).expect("imported");
        let (left, _) = logs(&pool);
        assert_eq!(left.len() > 2, keep, "{left:?}");
        clean(&pool, "exported");
        check(&pool, object, &ages, "exported");
    }
}

/// If this fails, logs say something of a vdev that left; OpenZFS, which gives its number to the next one, takes that for what is on it.
#[test]
fn nothing_of_a_vdev_that_left_stays_in_logs() {
    let all = devices(3);
    let (pool, object) = create(&all[..2], TopKind::Mirror);
    let log = TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(&all[2])] };
    pool.add(AddSpec { logs: vec![log], ..AddSpec::default() }).expect("added");
    let (mut ages, mut random) = ([0; BLOCKS as usize], Random(3));
    let allocator = pool.zio().view().allocator;
    let request = AllocRequest { psize: 4096, copies: 1, txg: pool.txgs().open_txg(), hint: 0 };
    let copies = allocator.alloc_log(&request).expect("room");
    work(&pool, object, &mut ages, (&mut random, 2));
    assert!(allocator.free(pool.txgs().open_txg(), &copies[0]), "it was allocated");
    drop(allocator);
    work(&pool, object, &mut ages, (&mut random, 4));
    let before = pool.txg();
    pool.remove_top(pool.tree().tops[1].guid).expect("removed");
    work(&pool, object, &mut ages, (&mut random, 1));
    let (txgs, _) = logs(&pool);
    assert!(txgs.iter().all(|txg| *txg > before.0), "{txgs:?}, removed after txg {before}");
    clean(&pool, "removed");
    drop(pool);
    let pool = import_under(&all[..2], false, &runtime(true)).expect("imported");
    check(&pool, object, &ages, "after a crash");
    work(&pool, object, &mut ages, (&mut random, 3));
    clean(&pool, "after a crash");
    pool.export().expect("exported");
}

/// If this fails, a pool that gets the feature, or whose owner wants no logs any more, loses what it knows of its space.
#[test]
fn a_pool_gets_logs_later_and_is_rid_of_them_again() {
    let disks = devices(1);
    let pool = create_as(&exec(7), &disks, TopKind::Leaf, &Runtime::new());
    let object = new_object(&pool);
    let (mut ages, mut random) = ([0; BLOCKS as usize], Random(4));
    work(&pool, object, &mut ages, (&mut random, 5));
    assert_eq!(references(&pool), None, "new pools do not have it");
    pool.export().expect("exported");
    let pool = import_under(&disks, false, &runtime(true)).expect("imported");
    work(&pool, object, &mut ages, (&mut random, 2));
    assert!(logs(&pool).0.is_empty(), "no feature, no logs");
    pool.enable_feature("log_spacemap").expect("enabled");
    work(&pool, object, &mut ages, (&mut random, 5));
    assert_eq!((references(&pool), logs(&pool).0.is_empty()), (Some(1), false));
    clean(&pool, "with logs");
    drop(pool);
    for wants in [true, false, true] {
        let pool = import_under(&disks, false, &runtime(wants)).expect("imported");
        check(&pool, object, &ages, "again");
        work(&pool, object, &mut ages, (&mut random, 4));
        assert_eq!((references(&pool), logs(&pool).0.is_empty()), (Some(u64::from(wants)), !wants));
        clean(&pool, "again");
    }
}

/// If this fails, a pool that is divided, or the half that it gave away, does not know what of its space is in use.
#[test]
fn both_halves_of_a_pool_know_their_space() {
    for goes_on in [true, false] {
        let disks = devices(2);
        let (pool, object) = create(&disks, TopKind::Mirror);
        let (mut ages, mut random) = ([0; BLOCKS as usize], Random(8));
        work(&pool, object, &mut ages, (&mut random, 5));
        let half = pool.split(vec![guids(&pool)[1]], "half", &runtime(goes_on)).expect("divided");
        work(&pool, object, &mut ages, (&mut random, 3));
        half.dsl().create_dataset("half/new", dataset()).expect("created");
        half.sync().expect("synced");
        assert_eq!(references(&half), Some(u64::from(goes_on)));
        clean(&pool, "the one that was left");
        clean(&half, "the one that left");
        check(&pool, object, &ages, "the one that was left");
        half.export().expect("exported");
        pool.export().expect("exported");
    }
}

/// If this fails, going back to an older state of a pool with logs loses that one, too.
#[test]
fn an_older_state_is_gone_back_to() {
    let disks = devices(1);
    let (pool, object) = create(&disks, TopKind::Leaf);
    let (mut ages, mut random) = ([0; BLOCKS as usize], Random(6));
    work(&pool, object, &mut ages, (&mut random, 6));
    let (state, kept) = (pool.uberblock().txg(), ages);
    work(&pool, object, &mut ages, (&mut random, 1));
    drop(pool);
    let options = ImportOptions { host: host(), rewind: Rewind::To(state), ..ImportOptions::default() };
    let pool = Pool::import(&exec(8), opened(&disks), &options, &runtime(true)).expect("imported");
    check(&pool, object, &kept, "gone back");
    let mut ages = kept;
    work(&pool, object, &mut ages, (&mut random, 4));
    clean(&pool, "gone back");
    drop(pool);
    let pool = import_under(&disks, false, &runtime(true)).expect("imported again");
    check(&pool, object, &ages, "again");
    clean(&pool, "again");
}
