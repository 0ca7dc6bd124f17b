//! Scrubs on memory devices: what they read, what they repair, what they report, and that they survive crashes. What the user
//! loses when these fail: the damage that a scrub should have found, or data that it should have left alone.
use device::{BlockDevice, MemDevice};
use dmu::{NewObject, Objset};
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline};
use ondisk::{BlockId, Level, ObjectId, ObjectType, ObjsetId, ObjsetType};
use pool::{Damaged, Host, ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, Runtime, ScanError, ScanState, ScanStatus, TopSpec};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

const DEVICE_BYTES: usize = 96 << 20;
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: u64 = 40;

fn devices(count: usize) -> Vec<Arc<MemDevice>> {
    (0..count).map(|index| Arc::new(MemDevice::new(&format!("d{index}"), DEVICE_BYTES))).collect()
}

fn opened(devices: &[Arc<MemDevice>]) -> Vec<Arc<dyn BlockDevice>> {
    devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect()
}

fn host() -> Host {
    Host { id: 1, name: "testhost".to_string() }
}

fn dataset() -> CreateDataset {
    let properties = vec![("compression".to_string(), "off".to_string())];
    CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) }
}

fn create(exec: &Exec, devices: &[Arc<MemDevice>], kind: TopKind) -> Pool {
    let leaf =
        |device: &Arc<MemDevice>| LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
    let tops = vec![TopSpec { kind, leaves: devices.iter().map(leaf).collect() }];
    let (name, root) = ("tank".to_string(), dataset());
    let spec = PoolSpec { host: host(), ..PoolSpec::new(&name, tops, root) };
    Pool::create(exec, spec, &Runtime::new()).expect("created")
}

fn import(devices: &[Arc<MemDevice>]) -> Pool {
    let exec: Exec = Arc::new(Inline::new(8));
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    Pool::import(&exec, opened(devices), &options, &Runtime::new()).expect("imported")
}

/// Bytes that tell object set, object, block and age.
fn pattern(seed: u64, block: u64) -> Vec<u8> {
    let mut state = seed << 32 | block;
    (0..BLOCK_BYTES / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()
        })
        .collect()
}

fn write(pool: &Pool, name: &str, object: Option<ObjectId>, blocks: std::ops::Range<u64>, seed: u64) -> ObjectId {
    let handle = pool.dsl().hold(name).expect("held");
    let objset: Arc<Objset> = handle.objset().expect("objset");
    let tx = handle.assign(TxSpace::Writes(4 << 20)).expect("assigned");
    let dnode = match object {
        Some(object) => objset.hold(object).expect("object"),
        None => {
            let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
            objset.allocate_object(new, &tx).expect("allocated")
        }
    };
    for block in blocks {
        dnode.write(block * BLOCK_BYTES as u64, &pattern(seed, block), &tx).expect("written");
    }
    dnode.object()
}

/// A pool with file systems, snapshots and a clone that share blocks.
fn filled(exec: &Exec, devices: &[Arc<MemDevice>], kind: TopKind) -> (Pool, ObjectId) {
    let pool = create(exec, devices, kind);
    pool.dsl().create_dataset("tank/fs", dataset()).expect("created");
    let object = write(&pool, "tank/fs", None, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    for age in 0..3u64 {
        pool.dsl().snapshot(&[format!("tank/fs@{age}")], Vec::new()).expect("snapshot");
        write(&pool, "tank/fs", Some(object), age..age + 2, 10 + age);
        pool.sync().expect("synced");
    }
    pool.dsl().clone_snapshot("tank/clone", "tank/fs@1", Vec::new()).expect("cloned");
    write(&pool, "tank/clone", Some(object), 30..33, 20);
    pool.sync().expect("synced");
    (pool, object)
}

fn scrub(pool: &Pool) -> ScanStatus {
    pool.scrub_start().expect("started");
    pool.scrub_drive().expect("driven");
    let status = pool.scan_status().expect("a scan");
    assert_eq!(status.state, ScanState::Finished);
    status
}

fn leaf_bytes_read(pool: &Pool) -> u64 {
    pool.status().leaves.iter().map(|leaf| leaf.counts.bytes[0]).sum()
}

fn checksum_errors(pool: &Pool) -> u64 {
    pool.status().leaves.iter().map(|leaf| leaf.counts.checksum_errors).sum()
}

/// Overwrites what looks like `needle` on the devices; gives how often it was found.
fn damage(devices: &[Arc<MemDevice>], needle: &[u8]) -> usize {
    let mut found = 0;
    for device in devices {
        device.tamper(|bytes| {
            let at: Vec<usize> = (0..bytes.len() - needle.len()).step_by(512).filter(|&at| bytes[at..].starts_with(needle)).collect();
            for at in at {
                bytes[at..at + 64].fill(0xA5);
                found += 1;
            }
        });
    }
    found
}

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
        assert!(read + (64 << 10) >= expected && read <= expected + (64 << 10), "{read} of {status:?}");
        assert_eq!(pool.damaged().expect("log"), Vec::new());
        pool.export().expect("exported");
        assert_eq!(import(&devices).scan_status().map(|again| ScanStatus { rate: 0, ..again }), Some(ScanStatus { rate: 0, ..status }));
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
        let fs = ObjsetId(pool.dsl().hold("tank/fs").expect("held").object());
        let damaged = pool.damaged().expect("log");
        assert_eq!(damaged.len(), 1);
        let Damaged { objset, object: found, level, block } = damaged[0];
        assert_eq!((found, level, block), (object, Level(0), BlockId(17)));
        let snapshot = ObjsetId(pool.dsl().hold("tank/fs@0").expect("held").object());
        assert!(objset == snapshot || objset == fs, "the oldest snapshot, or its head");
        pool.export().expect("exported");

        let pool = import(&devices);
        assert_eq!(pool.damaged().expect("log"), damaged);
        pool.dsl().destroy_dataset("tank/clone").expect("destroyed");
        pool.dsl().destroy_snapshots(&["tank/fs@0".into(), "tank/fs@1".into(), "tank/fs@2".into()], false).expect("destroyed");
        write(&pool, "tank/fs", Some(object), 17..18, 99);
        pool.sync().expect("synced");
        assert_eq!(scrub(&pool).errors, 0);
        assert_eq!(pool.damaged().expect("log"), Vec::new());
    }
}

fn read_block(pool: &Pool, name: &str, object: ObjectId, block: u64) -> bool {
    let objset = pool.dsl().hold(name).expect("held").objset().expect("objset");
    objset.hold(object).expect("object").read(block * BLOCK_BYTES as u64, &mut vec![0; BLOCK_BYTES]).is_ok()
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
        let fs = ObjsetId(pool.dsl().hold("tank/fs").expect("held").object());
        let expected = vec![Damaged { objset: fs, object, level: Level(0), block: BlockId(17) }];
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
