//! Cache devices of a pool: they come and go, fail and lie, and cost nothing but speed.

use crate::common::{BLOCK_BYTES, BLOCKS, check, create, devices, filled, import, leaf};
use device::{BlockDevice, MemDevice};
use kstat::Value;
use ondisk::{Guid, L2arcHeader, L2arcLogPtr};
use pool::{AddSpec, CacheTunables, Pool, PoolError};
use std::sync::Arc;
use vdev::{LeafState, TopKind};
use zio::{Fault, FaultError, IoKind, LeafFault};

const AGES: [u64; BLOCKS as usize] = [1; BLOCKS as usize];

fn cache(device: &Arc<MemDevice>) -> AddSpec {
    AddSpec { caches: vec![leaf(device)], ..AddSpec::default() }
}

/// State of the only cache device of a pool.
fn state(pool: &Pool) -> LeafState {
    let caches = pool.caches();
    assert_eq!(caches.len(), 1);
    caches[0].state
}

fn open(pool: &Pool, device: &Arc<MemDevice>) -> LeafState {
    pool.open_caches(&|_, path| {
        assert_eq!(path, "d2");
        Some(device.clone() as Arc<dyn BlockDevice>)
    });
    state(pool)
}

fn value(pool: &Pool, name: &str) -> u64 {
    match pool.cache().kstat().values().into_iter().find(|(known, _)| *known == name) {
        Some((_, Value::U64(value))) => value,
        other => panic!("{name}: {other:?}"),
    }
}

/// If this fails, a pool forgets its cache device, takes another for it, or cannot be imported without it.
#[test]
fn a_cache_device_comes_and_goes() {
    let all = devices(4);
    let pool = create(&all[..2], TopKind::Mirror);
    pool.add(cache(&all[2])).expect("added");
    let guid = pool.caches()[0].guid;
    assert_eq!((state(&pool), pool.caches()[0].path.as_str(), pool.caches()[0].kind.as_str()), (LeafState::Online, "d2", "file"));
    assert_eq!(pool::label_guid(pool.exec(), &(all[2].clone() as Arc<dyn BlockDevice>)), Some(guid));
    pool.export().expect("exported");
    let pool = import(&all[..2], false).expect("it is not needed");
    assert_eq!(state(&pool), LeafState::Missing);
    assert_eq!(open(&pool, &all[3]), LeafState::Missing, "another device is at its place");
    assert_eq!(open(&pool, &all[2]), LeafState::Online);
    pool.offline(guid, true).expect("offline");
    assert_eq!((state(&pool), open(&pool, &all[2])), (LeafState::Offline, LeafState::Offline));
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    assert_eq!(open(&pool, &all[2]), LeafState::Online, "that was until the next import only");
    pool.offline(guid, false).expect("offline");
    pool.export().expect("exported");
    let pool = import(&all, false).expect("imported");
    assert_eq!(open(&pool, &all[2]), LeafState::Offline, "this is for good");
    assert_eq!(pool.online(guid, Some(all[2].clone())), Ok(LeafState::Online));
    pool.fault(guid, false).expect("faulted");
    assert_eq!(state(&pool), LeafState::Faulted);
    assert_eq!(pool.online(guid, None), Ok(LeafState::Missing));
    assert_eq!(pool.online(guid, Some(all[2].clone())), Ok(LeafState::Online));
    pool.remove_aux(guid, None).expect("removed");
    assert!(pool.caches().is_empty());
    assert_eq!(pool.remove_aux(guid, None), Err(PoolError::NoSuchDevice));
    pool.add(cache(&all[2])).expect("it is free again");
    assert!(pool.caches()[0].guid != guid);
    pool.export().expect("exported");
    let pool = import(&all, true).expect("imported to be read only");
    assert_eq!(open(&pool, &all[2]), LeafState::Online);
    pool.feed_caches();
    assert_eq!(value(&pool, "l2_feeds"), 0);
}

/// If this fails, what a user does not want on a cache device is there, or the rest is not.
#[test]
fn what_goes_to_a_cache_device_is_what_the_property_says() {
    let all = devices(3);
    let (pool, object) = filled(&all[..2], TopKind::Mirror);
    let set = |words: &str| {
        pool.dsl().hold("tank").expect("held").set_props(&[("secondarycache".to_string(), words.to_string())]).expect("set");
        // What a property said is remembered for a while.
        pool.exec().sleep_ns(6_000_000_000);
        check(&pool, object, &AGES, words);
        pool.feed_caches();
        value(&pool, "l2_size")
    };
    pool.add(cache(&all[2])).expect("added");
    let (none, everything) = (set("none"), set("all"));
    assert!(everything >= none + BLOCKS * BLOCK_BYTES as u64, "{none} bytes, {everything} bytes");
    let before = value(&pool, "l2_hits");
    check(&pool, object, &AGES, "from the cache device");
    assert!(value(&pool, "l2_hits") >= before + BLOCKS && value(&pool, "l2_cksum_bad") == 0);
    let status = pool.caches().remove(0);
    assert!(status.allocated_bytes > 0 && status.size_bytes > status.allocated_bytes && status.device_bytes > status.size_bytes);
    assert!(status.counts.ops[IoKind::Read as usize] > 0 && status.counts.bytes[IoKind::Write as usize] >= status.allocated_bytes);
    pool.offline(status.guid, true).expect("offline");
    assert!(value(&pool, "l2_size") > 0 && value(&pool, "l2_hdr_size") > 0, "as in OpenZFS it is known what is on it");
    let before = value(&pool, "l2_hits");
    check(&pool, object, &AGES, "without it");
    assert_eq!(value(&pool, "l2_hits"), before);
    pool.remove_aux(status.guid, None).expect("removed");
    assert_eq!((value(&pool, "l2_size"), value(&pool, "l2_hdr_size")), (0, 0));
}

/// If this fails, each export, and each restart of a daemon, costs all that a cache device holds.
#[test]
fn what_a_cache_device_holds_outlives_an_import() {
    let listed = CacheTunables { rebuild_blocks_min_l2size: 0, ..CacheTunables::default() };
    let all = devices(3);
    let (pool, object) = filled(&all[..2], TopKind::Mirror);
    pool.tune_caches(listed);
    pool.add(cache(&all[2])).expect("added");
    check(&pool, object, &AGES, "before");
    pool.feed_caches();
    let logs = value(&pool, "l2_log_blk_count");
    assert!(logs >= BLOCKS / 4 && pool.caches()[0].allocated_bytes > value(&pool, "l2_asize"));
    let guid = pool.caches()[0].guid;
    let found_by = |pool: &Pool, what: &str| {
        pool.tune_caches(listed);
        assert_eq!(open(pool, &all[2]), LeafState::Online);
        pool.feed_caches();
        check(pool, object, &AGES, what);
        assert_eq!((value(pool, "l2_cksum_bad"), value(pool, "l2_rebuild_cksum_lb_errors")), (0, 0), "{what}");
        (value(pool, "l2_rebuild_log_blks"), value(pool, "l2_hits") + 4 >= BLOCKS)
    };
    pool.export().expect("exported");
    let pool = import(&all[..2], false).expect("imported");
    assert_eq!(found_by(&pool, "after an import"), (logs, true));
    pool.offline(guid, true).expect("offline");
    assert_eq!(pool.online(guid, Some(all[2].clone())), Ok(LeafState::Online));
    pool.feed_caches();
    assert_eq!(value(&pool, "l2_rebuild_success"), 2, "what came back was asked again");
    pool.reguid(None).expect("another guid");
    pool.feed_caches();
    pool.export().expect("exported");
    let pool = import(&all[..2], false).expect("imported");
    assert!(found_by(&pool, "under another guid").0 >= logs);
    assert_eq!(value(&pool, "l2_rebuild_unsupported"), 0);
}

/// If this fails, a cache device that fails takes the pool with it, or data.
#[test]
fn a_cache_device_that_fails_costs_nothing() {
    for error in [FaultError::Io, FaultError::Gone, FaultError::Corrupt, FaultError::Noop] {
        for kind in [Some(IoKind::Read), Some(IoKind::Write), None] {
            let all = devices(3);
            let (pool, object) = filled(&all[..2], TopKind::Mirror);
            pool.add(cache(&all[2])).expect("added");
            pool.tune_caches(CacheTunables { write_max: 1 << 20, ..CacheTunables::default() });
            let guid = pool.caches()[0].guid;
            check(&pool, object, &AGES, "before");
            if kind != Some(IoKind::Write) {
                pool.feed_caches();
            }
            pool.zio().inject(1, Fault::Leaf(LeafFault::Device { leaf: guid, error, kind }), 0);
            for _ in 0..3 {
                check(&pool, object, &AGES, &format!("{error:?} of {kind:?}"));
                pool.feed_caches();
            }
            assert!(!pool.zio().is_suspended());
            assert!(pool.status().leaves.iter().all(|leaf| leaf.counts.errors == [0; 4] && leaf.counts.checksum_errors == 0));
            assert!(pool.verify_space().expect("readable").is_clean());
            pool.remove_aux(guid, None).expect("removed");
            pool.export().expect("exported");
            let pool = import(&all[..2], false).expect("imported");
            check(&pool, object, &AGES, "afterwards");
            assert_eq!(pool.caches().len(), 0);
        }
    }
}

/// If this fails, a cache device in another folder, or on another bus, is lost to its pool.
#[test]
fn a_cache_device_that_moved_is_written_down_where_it_is() {
    let all = devices(3);
    let pool = create(&all[..2], TopKind::Mirror);
    pool.add(cache(&all[2])).expect("added");
    let guid = pool.caches()[0].guid;
    let moved = |pool: &Pool, is_there: bool, to: Option<&str>| {
        pool.move_caches(&|_, _| is_there, &|wanted| to.filter(|_| wanted == guid).map(str::to_string)).expect("written");
        pool.caches()[0].path.clone()
    };
    assert_eq!(moved(&pool, false, Some("d7")), "d2", "it is open");
    pool.export().expect("exported");
    let pool = import(&all[..2], false).expect("imported");
    assert_eq!(moved(&pool, true, Some("d7")), "d2", "it is at its place");
    assert_eq!(moved(&pool, false, None), "d2", "it is nowhere");
    assert_eq!(moved(&pool, false, Some("d7")), "d7");
    pool.export().expect("exported");
    let pool = import(&all[..2], false).expect("imported");
    assert_eq!((pool.caches()[0].path.as_str(), pool.caches()[0].guid), ("d7", guid));
}

/// If this fails, OpenZFS looks on a cache device of ours for blocks that it wrote itself before we wrote over them.
#[test]
fn nobody_finds_word_of_blocks_on_a_device_that_was_used() {
    let all = devices(3);
    all[2].tamper(|bytes| bytes[4 << 20..(4 << 20) + 4096].fill(0xA5));
    let pool = create(&all[..2], TopKind::Mirror);
    pool.add(cache(&all[2])).expect("added");
    pool.feed_caches();
    let header = L2arcHeader::detect(&all[2].contents()[4 << 20..]).expect("a header of ours");
    assert_eq!((header.dh_spa_guid, header.dh_vdev_guid), (pool.guid().0, pool.caches()[0].guid.0));
    assert!(header.dh_start_lbps.iter().all(L2arcLogPtr::is_empty) && header.dh_lb_count == 0);
    assert_eq!(pool.caches()[0].guid, Guid(pool::label_guid(pool.exec(), &(all[2].clone() as Arc<dyn BlockDevice>)).expect("a label").0));
}
