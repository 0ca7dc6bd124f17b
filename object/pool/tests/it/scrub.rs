//! Scrubs on memory devices: what they read, what they repair, what they report, and that they survive crashes. What the user
//! loses when these fail: the damage that a scrub should have found, or data that it should have left alone.
use crate::scan_pools::*;
use exec::{Exec, Inline};
use ondisk::ObjectId;
use pool::{Damaged, Pool, PoolError, ScanError, ScanState, ScanStatus};
use std::sync::Arc;
use vdev::TopKind;

#[test]
fn a_healthy_pool_is_read_once_per_copy_and_nothing_is_wrong() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2)] {
        let exec: Exec = Arc::new(Inline::new(7));
        let (devices, copies) = (devices(count), count as u64);
        let (pool, _) = filled(&exec, &devices, kind);
        assert_eq!(pool.scan_status(), None);
        pool.cache().clear();
        let before = leaf_bytes_read(&pool);
        let status = scrub(&pool);
        assert_eq!((status.errors, status.repaired, checksum_errors(&pool)), (0, 0, 0));
        assert_eq!(status.examined, status.issued);
        // Shared blocks once: no more than what is allocated. Everything: at least the data.
        let data = (BLOCKS + 3 * 2 + 3) * BLOCK_BYTES as u64;
        assert!(status.examined >= data && status.examined <= status.to_examine, "{status:?}");
        let read = leaf_bytes_read(&pool) - before;
        // Blocks of the MOS that the scrub's own txg gave up are left out; besides, the sync itself reads a little.
        let expected = status.examined * copies;
        // Small gaps between blocks are read along.
        assert!(read + (64 << 10) >= expected && read <= expected + expected / 4, "{read} of {status:?}");
        assert_eq!(pool.damaged().expect("log"), Vec::new());
        pool.export().expect("exported");
        let kept = |status: ScanStatus| ScanStatus { pass_start: 0, pass_examined: 0, pass_issued: 0, ..status };
        assert_eq!(import(&devices).scan_status().map(kept), Some(kept(status)));
    }
}

#[test]
fn damage_within_the_redundancy_is_repaired_and_stays_repaired() {
    for (kind, count, broken) in [(TopKind::Mirror, 2, 1), (TopKind::Raidz(1), 3, 1), (TopKind::Raidz(2), 5, 2), (TopKind::Raidz(3), 6, 3)]
    {
        let exec: Exec = Arc::new(Inline::new(7));
        let devices = devices(count);
        let (pool, object) = filled(&exec, &devices, kind);
        for device in &devices[1..1 + broken] {
            device.tamper(|bytes| {
                let end = bytes.len() - (1 << 20);
                bytes[4 << 20..end].fill(0x3C);
            });
        }
        pool.cache().clear();
        let status = scrub(&pool);
        assert_eq!(status.errors, 0, "{kind:?}");
        assert!(status.repaired > BLOCKS * BLOCK_BYTES as u64 / count as u64, "{status:?}");
        assert_eq!(pool.damaged().expect("log"), Vec::new());
        pool.clear_errors(None);
        let again = scrub(&pool);
        assert_eq!((again.errors, again.repaired, checksum_errors(&pool)), (0, 0, 0), "{kind:?}");
        // And the other devices are no longer needed.
        for device in &devices[..broken.min(1)] {
            device.tamper(|bytes| bytes[4 << 20..95 << 20].fill(0));
        }
        pool.cache().clear();
        let mut block = vec![0; BLOCK_BYTES];
        let objset = pool.dsl().hold("tank/fs").expect("held").objset().expect("objset");
        objset.hold(object).expect("object").read(20 * BLOCK_BYTES as u64, &mut block).expect("read");
        assert!(block == pattern(1, 20), "{kind:?}");
    }
}

/// A block of the file system that its snapshots and clone share.
fn everywhere(pool: &Pool, object: ObjectId, block: u64) -> Vec<Damaged> {
    damage_of(pool, &["tank/fs", "tank/fs@0", "tank/fs@1", "tank/fs@2", "tank/clone"], object, block)
}

#[test]
fn what_cannot_be_repaired_is_reported_by_name_until_a_scrub_no_longer_finds_it() {
    for features in [true, false] {
        let exec: Exec = Arc::new(Inline::new(7));
        let devices = devices(2);
        let (pool, object) = filled(&exec, &devices, TopKind::Mirror);
        if features && pool.features().iter().any(|(name, _, count)| name == "head_errlog" && count.is_none()) {
            // Either format of the log must do; pools without the feature use the old one.
            let _ = pool.enable_feature("head_errlog");
        }
        assert_eq!(damage(&devices, &pattern(1, 17)), 2);
        assert_eq!(damage(&devices[..1], &pattern(1, 18)), 1);
        pool.cache().clear();
        let status = scrub(&pool);
        assert_eq!((status.errors, status.repaired), (1, BLOCK_BYTES as u64));
        let damaged = pool.damaged().expect("log");
        assert_eq!(damaged, everywhere(&pool, object, 17));
        assert_eq!(pool.damaged_counted().expect("log").0, 1, "one block, however many have it");
        pool.export().expect("exported");

        let pool = import(&devices);
        assert_eq!(pool.damaged().expect("log"), damaged);
        pool.dsl().destroy_dataset("tank/clone").expect("destroyed");
        pool.dsl().destroy_snapshots(&["tank/fs@0".into(), "tank/fs@1".into(), "tank/fs@2".into()], false).expect("destroyed");
        assert_eq!(pool.damaged().expect("log").len(), 1, "the file system has it still");
        write(&pool, "tank/fs", Some(object), 17..18, 99);
        pool.sync().expect("synced");
        assert_eq!(pool.damaged().expect("log"), Vec::new(), "rewritten: nobody has it any more");
        assert_eq!(scrub(&pool).errors, 0);
        assert_eq!(pool.damaged().expect("log"), Vec::new());
    }
}

#[test]
fn what_an_ordinary_read_could_not_have_is_reported_until_it_is_gone_and_scrubbed() {
    for head_errlog in [true, false] {
        let exec: Exec = Arc::new(Inline::new(7));
        let devices = devices(2);
        let (pool, object) = filled(&exec, &devices, TopKind::Mirror);
        if head_errlog {
            let _ = pool.enable_feature("head_errlog");
        }
        assert_eq!(damage(&devices, &pattern(1, 17)), 2);
        assert_eq!(damage(&devices[..1], &pattern(1, 18)), 1);
        pool.cache().clear();
        assert!(!read_block(&pool, "tank/fs", object, 17));
        assert!(read_block(&pool, "tank/fs", object, 18), "healed: nothing to report");
        let expected = everywhere(&pool, object, 17);
        assert_eq!(pool.damaged().expect("log"), expected, "known at once");
        pool.sync().expect("synced");
        assert_eq!(pool.damaged().expect("log"), expected);
        pool.export().expect("exported");
        let pool = import(&devices);
        assert_eq!(pool.damaged().expect("log"), expected, "and for good");
        assert!(!read_block(&pool, "tank/fs", object, 17));
        pool.sync().expect("synced");
        assert_eq!(pool.damaged().expect("log"), expected, "once");
        pool.dsl().destroy_dataset("tank/clone").expect("destroyed");
        pool.dsl().destroy_snapshots(&["tank/fs@0".into(), "tank/fs@1".into(), "tank/fs@2".into()], false).expect("destroyed");
        write(&pool, "tank/fs", Some(object), 17..18, 99);
        pool.sync().expect("synced");
        assert_eq!(scrub(&pool).errors, 0);
        assert_eq!(pool.damaged().expect("log"), Vec::new());
    }
}

#[test]
fn a_scrub_goes_on_after_a_crash_an_export_and_a_pause_and_its_counters_never_fall() {
    let exec: Exec = Arc::new(Inline::new(7));
    let devices = devices(3);
    let (mut pool, _) = filled(&exec, &devices, TopKind::Raidz(1));
    damage(&devices, &pattern(1, 35)[..512]);
    assert_eq!(pool.scrub_pause(), Err(PoolError::Scan(ScanError::NotRunning)));
    assert_eq!(pool.scrub_stop(), Err(PoolError::Scan(ScanError::NotRunning)));
    pool.scrub_start().expect("started");
    assert_eq!(pool.scrub_start(), Err(PoolError::Scan(ScanError::Running)));
    let mut last = pool.scan_status().expect("a scan");
    for step in 0..200 {
        pool.cache().clear();
        pool.scrub_drive_part(4).expect("driven");
        let status = pool.scan_status().expect("a scan");
        assert!(
            status.examined >= last.examined && status.issued >= last.issued && status.repaired >= last.repaired,
            "{last:?} {status:?}"
        );
        assert!(status.issued <= status.examined && status.start_time == last.start_time);
        last = status;
        if status.state == ScanState::Finished {
            break;
        }
        match step % 4 {
            0 => {
                pool.sync().expect("synced");
                drop(pool);
                pool = import(&devices);
            }
            1 => {
                pool.export().expect("exported");
                pool = import(&devices);
            }
            2 => {
                pool.scrub_pause().expect("paused");
                assert_eq!(pool.scrub_pause(), Err(PoolError::Scan(ScanError::Paused)));
                pool.scrub_drive().expect("nothing to do");
                assert!(pool.scan_status().expect("a scan").paused_since.is_some());
                pool.scrub_start().expect("resumed");
            }
            _ => {}
        }
    }
    assert_eq!((last.state, last.errors), (ScanState::Finished, 0));
    assert!(last.repaired > 0, "the damaged block was after the restarts' places");
    assert!(last.examined <= last.to_examine + (8 << 20), "restarts repeat little: {last:?}");
    let again = scrub(&pool);
    assert_eq!((again.errors, again.repaired), (0, 0));
}

#[test]
fn a_stopped_scrub_stays_stopped() {
    let exec: Exec = Arc::new(Inline::new(7));
    let devices = devices(1);
    let (pool, _) = filled(&exec, &devices, TopKind::Leaf);
    pool.scrub_start().expect("started");
    pool.scrub_drive_part(3).expect("driven");
    pool.scrub_stop().expect("stopped");
    pool.scrub_drive().expect("nothing to do");
    assert_eq!(pool.scan_status().expect("a scan").state, ScanState::Canceled);
    pool.export().expect("exported");
    let pool = import(&devices);
    assert_eq!(pool.scan_status().expect("a scan").state, ScanState::Canceled);
    assert_eq!(scrub(&pool).errors, 0);
}

#[test]
fn snapshots_and_destroys_in_the_middle_lose_no_block_and_invent_no_error() {
    let exec: Exec = Arc::new(Inline::new(7));
    let devices = devices(2);
    let (pool, object) = filled(&exec, &devices, TopKind::Mirror);
    damage(&devices[..1], &pattern(1, 38));
    pool.cache().clear();
    pool.scrub_start().expect("started");
    for step in 0..400u64 {
        pool.scrub_drive_part(3).expect("driven");
        if pool.scan_status().expect("a scan").state == ScanState::Finished {
            break;
        }
        match step {
            1 => pool.dsl().destroy_snapshots(&["tank/fs@0".into()], false).expect("destroyed"),
            3 => pool.dsl().snapshot(&["tank/fs@new".into()], Vec::new()).expect("snapshot"),
            5 => pool.dsl().destroy_snapshots(&["tank/fs@2".into()], false).expect("destroyed"),
            _ => {}
        }
        // Everything is rewritten over and over, so that freed space is given away again.
        write(&pool, "tank/fs", Some(object), 0..20, 100 + step);
        pool.sync().expect("synced");
    }
    let status = pool.scan_status().expect("a scan");
    assert_eq!((status.state, status.errors), (ScanState::Finished, 0), "{status:?}");
    assert_eq!(status.repaired, BLOCK_BYTES as u64);
    assert_eq!(checksum_errors(&pool), 1);
    let again = scrub(&pool);
    assert_eq!((again.errors, again.repaired), (0, 0));
}

#[test]
fn a_scrub_on_its_own_thread_beside_writers_finds_nothing_and_ends_with_the_pool() {
    let exec: Exec = Arc::new(exec::Pool::new(3));
    let devices = devices(4);
    let (pool, object) = filled(&exec, &devices, TopKind::Raidz(1));
    for round in 0..4u64 {
        pool.scrub_start().expect("started");
        for step in 0..6 {
            write(&pool, "tank/fs", Some(object), 0..BLOCKS, 1000 * (round + 1) + step);
            pool.sync().expect("synced");
        }
        pool.scrub_wait().expect("waited");
        let status = pool.scan_status().expect("a scan");
        assert_eq!((status.state, status.errors, status.repaired), (ScanState::Finished, 0, 0), "{status:?}");
        assert_eq!(checksum_errors(&pool), 0);
    }
    pool.scrub_start().expect("started");
    pool.export().expect("exported in the middle or at the end");
    let pool = import(&devices);
    pool.scrub_wait().expect("waited");
    let status = pool.scan_status().expect("a scan");
    assert_eq!((status.state, status.errors), (ScanState::Finished, 0));
}

/// Whoever uses a pool must not feel that a large file system was destroyed there: what is read to free it gives way as a scrub does.
#[test]
fn what_was_destroyed_is_read_in_the_background() {
    let exec: Exec = Arc::new(Inline::new(7));
    let devices = devices(1);
    let (pool, _) = filled(&exec, &devices, TopKind::Leaf);
    // What went back has no livelist: its blocks have to be looked for.
    pool.dsl().snapshot(&["tank/clone@own".to_string()], Vec::new()).expect("taken");
    pool.dsl().rollback("tank/clone@own").expect("it goes back");
    pool.dsl().destroy_snapshots(&["tank/clone@own".to_string()], false).expect("destroyed");
    let background = |pool: &Pool| -> u64 {
        let is_scrub = |stat: &zio::ExtendedStat| ["vdev_ind_scrub_histo", "vdev_agg_scrub_histo"].contains(&stat.name);
        let of_leaf = |leaf: &vdev::Leaf| pool.zio().leaf_stats_of(leaf.guid).extended();
        let stats = pool.tree().leaves.iter().flat_map(|leaf| zio::EXTENDED.iter().zip(of_leaf(leaf))).collect::<Vec<_>>();
        stats.into_iter().filter(|(stat, _)| is_scrub(stat)).flat_map(|(_, counts)| counts).sum()
    };
    pool.export().expect("exported");
    let pool = import(&devices);
    assert_eq!(background(&pool), 0);
    pool.dsl().destroy_dataset("tank/clone").expect("destroyed");
    while pool.dsl().has_frees() {
        pool.sync().expect("synced");
    }
    assert!(background(&pool) > 0);
    assert!(pool.verify_space().expect("readable").is_clean());
}
