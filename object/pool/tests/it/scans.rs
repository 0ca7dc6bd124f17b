//! Scans against a model: whatever the order in which blocks are read, the memory for them, and the crashes on the way, every damaged
//! sector is found and repaired. What the user loses when these fail: the redundancy that a scrub said was there.
use crate::common::Random;
use crate::scan_pools::*;
use device::MemDevice;
use exec::{Exec, Inline};
use ondisk::ObjectId;
use pool::{Pool, PoolError, ScanError, ScanState};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use vdev::{DraidConfig, TopKind};

fn exec() -> Exec {
    Arc::new(Inline::new(7))
}

fn draid(parity: usize) -> TopKind {
    TopKind::Draid(DraidConfig::new(parity, 2, 0, parity + 3).expect("a valid shape"))
}

/// Sectors that hold something, by place.
type Image = Vec<(usize, Vec<u8>)>;

/// A pool that was exported, as images of its devices.
struct Master {
    kind: TopKind,
    images: Vec<Image>,
    object: ObjectId,
}

impl Master {
    fn new(kind: TopKind, count: usize) -> Master {
        let devices = devices(count);
        let (pool, object) = filled(&exec(), &devices, kind);
        pool.export().expect("exported");
        let image = |device: &Arc<MemDevice>| {
            let mut image = Image::new();
            device.tamper(|bytes| {
                let sectors = bytes.chunks_exact(4096).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
                image = sectors.map(|(index, sector)| (index * 4096, sector.to_vec())).collect();
            });
            image
        };
        Master { kind, images: devices.iter().map(image).collect(), object }
    }

    /// New devices with the pool on them.
    fn devices(&self) -> Vec<Arc<MemDevice>> {
        let devices = devices(self.images.len());
        for (device, image) in devices.iter().zip(&self.images) {
            device.tamper(|bytes| image.iter().for_each(|(at, sector)| bytes[*at..at + 4096].copy_from_slice(sector)));
        }
        devices
    }

    /// Number of devices that may be lost.
    fn redundancy(&self) -> usize {
        match self.kind {
            TopKind::Raidz(parity) => usize::from(parity),
            TopKind::Draid(config) => config.parity(),
            _ => self.images.len() - 1,
        }
    }

    /// Damages sectors of some devices, a tenth of all that hold anything: no more devices than may be lost.
    fn damage(&self, devices: &[Arc<MemDevice>], random: &mut Random) -> Vec<usize> {
        let first = random.below(devices.len() as u64) as usize;
        let broken: Vec<usize> = (0..self.redundancy()).map(|index| (first + index) % devices.len()).collect();
        for &index in &broken {
            devices[index].tamper(|bytes| {
                let allocatable = 4 << 20..bytes.len() - (1 << 20);
                for (at, _) in self.images[index].iter().filter(|(at, _)| allocatable.contains(at)) {
                    if random.below(10) == 0 {
                        bytes[at + random.below(4096) as usize] ^= 0x55;
                    }
                }
            });
        }
        broken
    }

    /// The others can go: everything is on the devices that were damaged and as many of the rest as it takes.
    fn check_without_others(&self, devices: &[Arc<MemDevice>], broken: &[usize], what: &str) {
        let lost: Vec<usize> = (0..devices.len()).filter(|index| !broken.contains(index)).take(self.redundancy()).collect();
        let rest: Vec<_> = (0..devices.len()).filter(|index| !lost.contains(index)).map(|index| devices[index].clone()).collect();
        let pool = import(&rest);
        assert!(pool.verify_space().expect("readable").is_clean(), "{what}");
        for block in 0..BLOCKS {
            assert!(read_block(&pool, "tank/fs@0", self.object, block), "{what}: block {block}");
            assert!(read_block(&pool, "tank/clone", self.object, block), "{what}: block {block} of the clone");
        }
        assert_eq!(checksum_errors(&pool), 0, "{what}: damage was left behind");
    }
}

/// If this fails, there is a moment to crash at, or an amount of memory to have, with which a scrub passes over damage.
#[test]
fn every_damaged_sector_is_repaired_whatever_the_order_the_memory_and_the_crashes() {
    let layouts = [(TopKind::Mirror, 2), (TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5), (draid(1), 4)];
    for (seed, (kind, count)) in layouts.into_iter().enumerate() {
        let master = Master::new(kind, count);
        let mut random = Random(seed as u64);
        for (step, crash_at) in [0, 1, 2, 3, 5, 8, 13, 21, 34, 48].into_iter().enumerate() {
            let memory = [0, 1, 2, 7, 30][step % 5];
            let what = format!("{kind:?}, crash after {crash_at} blocks, memory for {memory}");
            let devices = master.devices();
            let broken = master.damage(&devices, &mut random);
            let mut pool = import(&devices);
            pool.scrub_queue_max(memory);
            pool.scrub_start().expect("started");
            if crash_at > 0 {
                pool.scrub_drive_reads(crash_at).expect("driven");
                if random.below(2) == 0 {
                    pool.sync().expect("synced");
                }
                let before = pool.scan_status().expect("a scan");
                drop(pool);
                pool = import(&devices);
                let after = pool.scan_status().expect("a scan");
                assert_eq!(after.state, ScanState::Scanning, "{what}");
                assert!(after.percent() <= before.percent(), "{what}: nothing is claimed that was not done");
                pool.scrub_queue_max(memory);
            }
            pool.scrub_drive().expect("driven");
            let status = pool.scan_status().expect("a scan");
            assert_eq!((status.state, status.errors), (ScanState::Finished, 0), "{what}");
            assert!(crash_at > 0 || status.repaired > 0, "{what}");
            pool.export().expect("exported");
            master.check_without_others(&devices, &broken, &what);
        }
    }
}

/// Damage that no read notices, because it is in what reads don't need (62d4287f27 of OpenZFS: parity was not healed).
#[test]
fn parity_alone_is_repaired() {
    let layouts = [(TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5), (TopKind::Raidz(3), 6), (draid(1), 4), (draid(2), 5), (draid(3), 6)];
    for (kind, count) in layouts {
        let master = Master::new(kind, count);
        let devices = master.devices();
        // Parity of such data is many sectors in a row that look as random as the data and are none of it.
        let seeds = [(1, 0..BLOCKS), (10, 0..2), (11, 1..3), (12, 2..4), (20, 30..33)];
        let data: HashSet<Vec<u8>> = seeds
            .into_iter()
            .flat_map(|(seed, blocks)| blocks.flat_map(move |block| pattern(seed, block)))
            .collect::<Vec<u8>>()
            .chunks_exact(512)
            .map(<[u8]>::to_vec)
            .collect();
        let mut damaged = 0;
        for device in &devices[..master.redundancy()] {
            device.tamper(|bytes| {
                let end = bytes.len() - (1 << 20);
                let is_parity = |sector: &[u8]| sector.iter().filter(|byte| **byte == 0).count() < 200 && !data.contains(sector);
                let found: Vec<bool> = bytes[4 << 20..end].chunks_exact(512).map(is_parity).collect();
                for (index, run) in found.windows(32).enumerate().step_by(7) {
                    if run.iter().all(|parity| *parity) {
                        bytes[(4 << 20) + index * 512 + 100] ^= 0xFF;
                        damaged += 1;
                    }
                }
            });
        }
        assert!(damaged > 10, "{kind:?}: {damaged}");
        let pool = import(&devices);
        for block in 0..BLOCKS {
            assert!(read_block(&pool, "tank/fs@0", master.object, block));
        }
        assert_eq!(checksum_errors(&pool), 0, "{kind:?}: data is right, so a reader notices nothing");
        let status = scrub(&pool);
        assert_eq!(status.errors, 0, "{kind:?}");
        assert!(status.repaired > 10 * 512, "{kind:?}: {status:?}");
        pool.clear_errors(None);
        let again = scrub(&pool);
        assert_eq!((again.repaired, checksum_errors(&pool)), (0, 0), "{kind:?}");
        pool.export().expect("exported");
        master.check_without_others(&devices, &(0..master.redundancy()).collect::<Vec<_>>(), &format!("{kind:?}"));
    }
}

/// If this fails, `zpool scrub -e` forgets damage, or leaves in the log what was repaired.
#[test]
fn an_error_scrub_reads_what_the_log_has_and_nothing_else() {
    let exec = exec();
    let devices = devices(2);
    let (pool, _) = filled(&exec, &devices, TopKind::Mirror);
    assert_eq!(pool.scrub_errors(), Ok(()), "an empty log: nothing to do");
    assert_eq!(pool.error_scrub_status(), None);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for device in &devices {
        device.tamper(|bytes| kept.push(bytes.to_vec()));
    }
    for block in [17, 18, 19] {
        assert_eq!(damage(&devices, &pattern(1, block)), 2);
    }
    pool.cache().clear();
    assert_eq!(scrub(&pool).errors, 3);
    assert_eq!(pool.damaged_counted().expect("log").0, 3);

    // One is mended behind our back; the pool is exported in the middle.
    let place =
        |image: &[u8], block| image.chunks_exact(512).position(|sector| pattern(1, block).starts_with(sector)).expect("there") * 512;
    let mend = |device: usize, block: u64| {
        let at = place(&kept[device], block);
        devices[device].tamper(|bytes| bytes[at..at + 64].copy_from_slice(&kept[device][at..at + 64]));
    };
    mend(0, 18);
    pool.scrub_errors().expect("begun");
    assert_eq!(pool.scrub_start(), Err(PoolError::Scan(ScanError::ErrorScrubbing)));
    pool.scrub_pause().expect("paused");
    assert_eq!(pool.scrub_start(), Err(PoolError::Scan(ScanError::ErrorScrubPaused)));
    assert_eq!(pool.scrub_pause(), Err(PoolError::Scan(ScanError::ErrorScrubPaused)));
    pool.export().expect("exported");
    let pool = import(&devices);
    assert!(pool.error_scrub_status().is_some_and(|status| status.paused_since.is_some() && status.to_examine == 3));
    let before = reads(&pool);
    pool.tune_scans(pool::ScanTunables { suspended: true, ..pool::ScanTunables::default() });
    pool.scrub_errors().expect("goes on");
    pool.sync().expect("synced");
    assert!(pool.error_scrub_status().is_some_and(|status| status.to_examine == 3), "no scan is to make progress");
    pool.tune_scans(pool::ScanTunables::default());
    finish_error_scrub(&pool);
    assert!(reads(&pool) - before < 4 << 20, "no more than the log's blocks and what leads to them");
    assert_eq!(pool.damaged_counted().expect("log").0, 2, "the mended one is no longer listed");
    pool.export().expect("exported");
    let pool = import(&devices);
    assert_eq!(pool.damaged_counted().expect("log").0, 2);
    assert!(pool.error_scrub_status().is_some_and(|status| status.state == ScanState::Finished));

    // Stopped, it forgets nothing; and when all are right again, nothing is left.
    pool.scrub_errors().expect("begun");
    pool.scrub_stop().expect("stopped");
    assert!(pool.error_scrub_status().is_some_and(|status| status.state == ScanState::Canceled));
    assert_eq!(pool.damaged_counted().expect("log").0, 2);
    mend(1, 17);
    mend(0, 19);
    pool.scrub_errors().expect("begun");
    finish_error_scrub(&pool);
    assert_eq!(pool.damaged().expect("log"), Vec::new());
    assert_eq!(pool.scrub_start(), Ok(()));
    assert_eq!(pool.error_scrub_status(), None, "a scrub tells more");
    pool.scrub_drive().expect("driven");
    assert_eq!(pool.scan_status().map(|status| (status.state, status.errors)), Some((ScanState::Finished, 0)));
}

/// If this fails, `zpool scrub -e` of a long log holds up whoever waits for a txg until it has read all of it.
#[test]
fn an_error_scrub_takes_no_more_of_a_txg_than_it_may() {
    let devices = devices(2);
    let (pool, _) = filled(&exec(), &devices, TopKind::Mirror);
    for block in [17, 18, 19] {
        assert_eq!(damage(&devices, &pattern(1, block)), 2);
    }
    pool.cache().clear();
    assert_eq!(scrub(&pool).errors, 3);
    let all = pool::ScanTunables::default();
    let few = pool::ScanTunables { error_blocks_per_txg: 1, ..all };
    let short = pool::ScanTunables { scrub_min_time_ms: 0, ..all };
    for (tunables, needed) in [(all, 1), (few, 3), (short, 3)] {
        pool.tune_scans(tunables);
        pool.scrub_errors().expect("begun");
        let scrubs = || pool.error_scrub_status().is_some_and(|status| status.state == ScanState::Scanning);
        let mut syncs = 0;
        while syncs < 10 && scrubs() {
            pool.sync().expect("synced");
            syncs += 1;
        }
        assert_eq!(syncs, needed, "{tunables:?}");
        assert_eq!(pool.damaged_counted().expect("log").0, 3, "none was mended");
    }
}

fn finish_error_scrub(pool: &Pool) {
    pool.scrub_drive().expect("driven");
    let status = pool.error_scrub_status().expect("one ran");
    assert_eq!((status.state, status.to_examine), (ScanState::Finished, 0), "{status:?}");
}

fn reads(pool: &Pool) -> u64 {
    pool.status().leaves.iter().map(|leaf| leaf.counts.bytes[0]).sum()
}

/// If this fails, `zpool status` does not say which device a scrub repairs, or names one that it repaired long ago.
#[test]
fn a_scrub_tells_which_leaves_it_repairs() {
    let devices = devices(2);
    let (pool, _) = filled(&exec(), &devices, TopKind::Mirror);
    for block in 5..30 {
        assert_eq!(damage(&devices[1..], &pattern(1, block)), 1);
    }
    let second = crate::common::guids(&pool)[1];
    let begin = || {
        assert_eq!(pool.repaired_leaves(), BTreeSet::new());
        pool.scrub_start().expect("started");
        let runs = || pool.scan_status().is_some_and(|status| status.state == ScanState::Scanning);
        while runs() && pool.repaired_leaves().is_empty() {
            pool.scrub_drive_reads(3).expect("driven");
        }
        pool.repaired_leaves()
    };
    assert_eq!(begin(), BTreeSet::from([second]), "one that runs still");
    pool.scrub_drive().expect("driven");
    assert_eq!(begin(), BTreeSet::new(), "everything was repaired before");
}

/// If this fails, `zpool scrub -C` reads everything, or leaves out what is new.
#[test]
fn a_scrub_from_the_last_one_on_reads_what_is_new() {
    let exec = exec();
    let devices = devices(2);
    let (pool, object) = filled(&exec, &devices, TopKind::Mirror);
    let whole = scrub(&pool);
    write(&pool, "tank/fs", Some(object), 0..4, 77);
    pool.sync().expect("synced");
    assert_eq!(damage(&devices[..1], &pattern(77, 2)), 1);
    pool.cache().clear();
    pool.scrub_start_from_last().expect("started");
    pool.scrub_drive().expect("driven");
    let status = pool.scan_status().expect("a scan");
    assert_eq!((status.state, status.errors, status.repaired), (ScanState::Finished, 0, BLOCK_BYTES as u64));
    assert!(status.examined < whole.examined / 2, "{status:?}");
}

/// If this fails, a pool with damaged files is stopped by a second damage, of the list of the first.
#[test]
fn an_error_log_that_cannot_be_read_does_not_stop_the_pool() {
    let exec = exec();
    let devices = devices(2);
    let (pool, object) = filled(&exec, &devices, TopKind::Mirror);
    assert_eq!(damage(&devices, &pattern(20, 30)), 2);
    pool.cache().clear();
    assert_eq!(scrub(&pool).errors, 1);
    crate::scan_pools::write(&pool, "tank/clone", Some(object), 30..31, 99);
    pool.sync().expect("synced");
    assert_eq!(pool.damaged_counted().expect("log").0, 0, "it is another block now, and its entry is to leave the log");

    assert_eq!(damage(&devices, &pattern(1, 18)), 2);
    let error_log = Some(ondisk::ObjectType::ERROR_LOG);
    pool.zio().inject(1, zio::Fault::Meta { object_type: error_log, error: zio::FaultError::Checksum }, 0);
    pool.cache().clear();
    pool.sync().expect("synced");
    assert!(scrub(&pool).errors > 0);
    pool.sync().expect("synced");
    pool.cache().clear();
    pool.dsl().promote("tank/clone").expect("promoted");
    pool.dsl().promote("tank/fs").expect("promoted back");
    pool.dsl().destroy_dataset("tank/clone").expect("destroyed");
    assert!(!pool.status().suspended);
    assert!(pool.zio().clear_injection(1));
    pool.sync().expect("synced");
    assert!(pool.damaged_counted().expect("log").0 > 0, "what was found since is known");
}
