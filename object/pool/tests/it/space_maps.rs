//! Space maps that are broken on disk: nothing is allocated in their metaslabs, the rest of the pool goes on, and whoever owns it is told.

use crate::common::{BLOCKS, check, create, create_as, devices, exec, host, import_under, new_object, write};
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::Mutex;
use kstat::{Event, EventSink, FieldValue, Listing};
use ondisk::{BlockId, MapType, ObjectId, SpaceMapEncoder, SpaceMapRun, VdevId};
use pool::{BROKEN_ACTION, ImportOptions, Pool, PoolError, Runtime};
use std::ops::Range;
use std::sync::Arc;
use vdev::TopKind;

const VDEV: VdevId = VdevId(0);

/// A disk some of whose sectors read wrong.
#[derive(Debug)]
struct Rotten {
    disk: Arc<MemDevice>,
    /// Bytes that read wrong.
    bad: Mutex<Vec<Range<u64>>>,
    /// Ranges in bytes that were read since the list was emptied.
    reads: Mutex<Vec<Range<u64>>>,
}

impl Rotten {
    fn new(disk: &Arc<MemDevice>, bad: Vec<Range<u64>>) -> Arc<Rotten> {
        Arc::new(Rotten { disk: disk.clone(), bad: Mutex::new(bad), reads: Mutex::default() })
    }
}

impl BlockDevice for Rotten {
    fn submit(&self, io: DeviceIo) {
        if !matches!(io.op, DeviceOp::Read(_)) {
            return self.disk.submit(io);
        }
        let range = io.offset..io.offset + io.op.length_bytes();
        self.reads.lock().push(range.clone());
        let bad = self.bad.lock().clone();
        let DeviceIo { op, offset, then, .. } = io;
        self.disk.submit(DeviceIo::new(op, offset, move |mut reply| {
            let bytes = reply.parts.iter_mut().flat_map(|part| part.iter_mut());
            for (at, byte) in range.clone().zip(bytes) {
                *byte ^= if bad.iter().any(|bad| bad.contains(&at)) { 0x5A } else { 0 };
            }
            then(reply);
        }));
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

#[derive(Default)]
struct Ear(Mutex<Vec<Event>>);

impl EventSink for Ear {
    fn event(&self, event: Event) {
        self.0.lock().push(event);
    }
}

fn import(disk: Arc<dyn BlockDevice>, read_only: bool, ear: &Arc<Ear>) -> Result<Pool, PoolError> {
    let options = ImportOptions { host: host(), force: true, read_only, ..ImportOptions::default() };
    Pool::import(&exec(8), vec![disk], &options, &Runtime { events: ear.clone(), ..Runtime::new() })
}

/// The metaslabs with a space map, each with the object of that.
fn all_mapped(pool: &Pool) -> Vec<(u32, ObjectId)> {
    let top = pool.tree().tops[0].clone();
    let mut raw = vec![0; top.metaslab_count() as usize * 8];
    pool.mos().hold(top.ms_array).expect("array").read(0, &mut raw).expect("read");
    let objects = raw.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().expect("eight")));
    objects.enumerate().filter(|(_, object)| *object != 0).map(|(metaslab, object)| (metaslab as u32, ObjectId(object))).collect()
}

/// The first of them.
fn mapped(pool: &Pool) -> (u32, ObjectId) {
    *all_mapped(pool).first().expect("a map")
}

/// Writes this entry over the first one of a space map.
fn tamper(pool: &Pool, map: ObjectId, run: SpaceMapRun) {
    let block_bytes = pool.mos().hold(map).expect("map").info().expect("info").block_size;
    let mut encoder = SpaceMapEncoder::new(0, block_bytes, true);
    encoder.run(run).expect("possible");
    let entry = encoder.finish();
    let write = move |dsl: &Arc<dsl::DslPool>, (), tx: &dmu::Tx| Ok(dsl.mos().hold(map)?.write(0, &entry, tx)?);
    pool.dsl().sync_task(|_, _| Ok(()), write).expect("written");
}

/// Kinds of broken space maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Wrong bytes in every copy.
    Checksum,
    /// Entry by which something is allocated twice.
    Overlap,
    /// Entry by which something is allocated behind the metaslab's end.
    PastEnd,
}

/// Finds all copies of the first block of an object.
fn copies(disk: &Arc<MemDevice>, object: ObjectId) -> Vec<Range<u64>> {
    let rotten = Rotten::new(disk, Vec::new());
    let pool = import(rotten.clone(), true, &Arc::default()).expect("imported");
    let dnode = pool.mos().hold(object).expect("map");
    loop {
        pool.cache().clear();
        rotten.reads.lock().clear();
        if dnode.read_block(BlockId(0)).is_err() {
            break rotten.bad.lock().clone();
        }
        let last = rotten.reads.lock().last().expect("a read").clone();
        rotten.bad.lock().push(last);
    }
}

/// A pool on this disk whose map of the metaslab is broken as `damage` says; gives the metaslab, and the bytes of the disk that are to read
/// wrong.
fn prepare(disk: &Arc<MemDevice>, damage: Damage) -> (u32, ObjectId, Vec<Range<u64>>) {
    let pool = create(std::slice::from_ref(disk), TopKind::Leaf);
    let file = new_object(&pool);
    write(&pool, file, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    let (metaslab, map) = mapped(&pool);
    let top = pool.tree().tops[0].clone();
    let units = 1 << (top.ms_shift - top.ashift);
    let run = match damage {
        Damage::Checksum => {
            drop(pool);
            return (metaslab, file, copies(disk, map));
        }
        Damage::Overlap => SpaceMapRun { kind: MapType::Alloc, offset: 0, run: units, vdev: None },
        Damage::PastEnd => SpaceMapRun { kind: MapType::Alloc, offset: units - 1, run: 2, vdev: None },
    };
    tamper(&pool, map, run);
    (metaslab, file, Vec::new())
}

/// If this fails, one broken space map costs the whole pool; or new files are written over old ones; or nobody is told that there is less
/// room than it seems, and what to do.
#[test]
fn a_broken_space_map_stops_allocation_there_and_says_so() {
    for damage in [Damage::Checksum, Damage::Overlap, Damage::PastEnd] {
        let disk = devices(1).remove(0);
        let (metaslab, file, bad) = prepare(&disk, damage);
        let log = logging::keep(Box::new(|| (0, 0))).messages();
        log.clear();
        let ear = Arc::<Ear>::default();
        let rotten = Rotten::new(&disk, bad);
        let pool = import(rotten.clone(), false, &ear).unwrap_or_else(|error| panic!("{damage:?}: {error}"));

        // It is told, with the block.
        let why = if damage == Damage::Checksum {
            let (_, map) = mapped(&pool);
            format!("cannot be read: checksum mismatch in every copy of a block: objset 0 object {map} level 0 block 0")
        } else {
            "contradicts itself".to_string()
        };
        let why = format!("the space map of metaslab {metaslab} of vdev 0 {why}");
        let broken = pool.status().broken_metaslabs;
        assert_eq!(
            broken.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [format!("vdev 0, metaslab {metaslab}: {why}")],
            "{damage:?}"
        );
        let text = log.lines(0, usize::MAX).expect("kept").0;
        assert!(text.contains(&why) && text.contains("nothing is allocated there any more") && text.contains(BROKEN_ACTION), "{text}");
        assert!(BROKEN_ACTION.contains("zpool scrub") && BROKEN_ACTION.contains("zdb -m"));
        let told = ear.0.lock().iter().find(|event| event.class == "ereport.fs.zfs.space_map").cloned().expect("an event");
        let field = |name: &str| told.field(name).cloned();
        assert_eq!(field("metaslab"), Some(FieldValue::U64(u64::from(metaslab))));
        assert_eq!((field("vdev"), field("why")), (Some(FieldValue::U64(0)), Some(FieldValue::Text(why))));
        assert_eq!(field("action"), Some(FieldValue::Text(BROKEN_ACTION.to_string())));

        // Nothing is allocated there, and nothing twice; the rest goes on.
        let allocator = pool.zio().view().allocator;
        let largest = |pool: &Pool| pool.status().space.allocated;
        let before = largest(&pool);
        assert!(before >= 1 << pool.tree().tops[0].ms_shift, "all of it counts as taken");
        check(&pool, file, &[1; BLOCKS as usize], "what was there");
        for age in 2..8 {
            write(&pool, file, 0..BLOCKS, age);
            pool.sync().unwrap_or_else(|error| panic!("{damage:?}: {error}"));
        }
        pool.dsl().snapshot(&["tank@1".to_string()], Vec::new()).expect("taken");
        check(&pool, file, &[7; BLOCKS as usize], "what was written since");
        assert_eq!(allocator.free_bytes(VDEV, metaslab), 0, "what was freed there is not used again");
        let report = pool.verify_blocks(pool::Reading::Everything).expect("walked");
        let found = (report.overlapping, report.unallocated, report.leaked, report.unknown);
        assert_eq!((found, report.unreadable), ((0, 0, 0, 1), u64::from(damage == Damage::Checksum)), "{damage:?}: {report:?}");
        drop(allocator);
        pool.export().expect("exported");
        let again = import(rotten, false, &Arc::default()).expect("imported again");
        assert_eq!(again.status().broken_metaslabs, broken, "{damage:?}: it stays so");
        check(&again, file, &[7; BLOCKS as usize], "after another import");
    }
}

/// A pool with log space maps, as after a crash, whose space map of this number, where there is one, is broken: how many maps there are, and the file.
fn logged(disk: &Arc<MemDevice>, number: usize, runtime: &Runtime) -> (usize, ObjectId) {
    let disks = std::slice::from_ref(disk);
    let pool = create_as(&exec(7), disks, TopKind::Leaf, runtime);
    let file = new_object(&pool);
    write(&pool, file, 0..BLOCKS, 1);
    pool.export().expect("exported");
    // From here on the maps have everything, and the logs what comes.
    let pool = import_under(disks, false, runtime).expect("imported");
    for age in 2..4 {
        write(&pool, file, 0..BLOCKS, age);
        pool.sync().expect("synced");
    }
    let (maps, top) = (all_mapped(&pool), pool.tree().tops[0].clone());
    if let Some((_, map)) = maps.get(number) {
        tamper(&pool, *map, SpaceMapRun { kind: MapType::Alloc, offset: 0, run: 1 << (top.ms_shift - top.ashift), vdev: None });
    }
    (maps.len(), file)
}

/// If this fails, one broken space map makes a pool read-only for ever, because a log of changes has news of it; or what the log had is lost.
#[test]
fn a_broken_space_map_of_which_a_log_has_news_costs_its_metaslab_only() {
    let runtime = Runtime { log_space_maps: true, ..Runtime::new() };
    let (mut number, mut with_news) = (0, 0);
    loop {
        let disk = devices(1).remove(0);
        let (maps, file) = logged(&disk, number, &runtime);
        if number == maps {
            break;
        }
        number += 1;
        let disks = [disk];
        let copy = [Arc::new(MemDevice::with_bytes("d0", disks[0].contents()))];
        // The map has to have the news before the log is given up.
        with_news += usize::from(import_under(&copy, false, &Runtime::new()).is_err());

        let pool = import_under(&disks, false, &runtime).unwrap_or_else(|error| panic!("map {number}: {error}"));
        let broken = pool.status().broken_metaslabs;
        assert!(broken.len() <= 1, "{broken:?}");
        check(&pool, file, &[3; BLOCKS as usize], "what was there");
        for age in 4..12 {
            write(&pool, file, 0..BLOCKS, age);
            pool.sync().unwrap_or_else(|error| panic!("map {number}: {error}"));
        }
        let report = pool.verify_space().expect("walked");
        let found = (report.overlapping, report.unallocated, report.leaked, report.unknown);
        assert_eq!(found, (0, 0, 0, broken.len() as u64), "map {number}: {report:?}");
        drop(pool);
        let again = import_under(&disks, false, &runtime).unwrap_or_else(|error| panic!("map {number}, again: {error}"));
        assert_eq!(again.status().broken_metaslabs, broken, "it stays so");
        check(&again, file, &[11; BLOCKS as usize], "after another crash");
    }
    assert!(number > 1 && with_news > 0, "{number} maps, {with_news} with news");
}

/// If this fails, an import that only looks takes as long as one for writing, or `zpool list` tells of such a pool what is not so.
#[test]
fn a_read_only_import_needs_no_space_map_to_tell_how_much_is_allocated() {
    for log_space_maps in [false, true] {
        let runtime = Runtime { log_space_maps, ..Runtime::new() };
        let disk = devices(1).remove(0);
        let (maps, _) = logged(&disk, usize::MAX, &runtime);
        assert!(maps > 0, "there is something to read");
        let look = |load_space_maps| {
            let runtime = Runtime { load_space_maps, ..runtime.clone() };
            let pool = import_under(std::slice::from_ref(&disk), true, &runtime).expect("imported");
            let status = pool.status();
            let unknown = pool.verify_space().expect("walked").unknown;
            ((status.space, status.vdev_space, status.fragmentation, status.vdev_fragmentation), status.broken_metaslabs, unknown)
        };
        let ((all, _, none), (told, broken, unknown)) = (look(true), look(false));
        assert_eq!(told, all, "what is shown, with log space maps: {log_space_maps}");
        assert!(none == 0 && unknown > 0, "{unknown} maps were not read");
        assert!(broken.is_empty(), "nothing is wrong with them");
    }
}
