//! Power cuts at the writes and flushes of a program of pool operations (a sample by default; `POWER_CUTS_EVERY=1` takes all):
//! each image must import, hold a state between the last
//! acknowledged operation and the end, and have space maps that agree with its blocks. What the user loses when these fail:
//! the pool, after an outage.
use crate::common::{host, leaf};
use device::BlockDevice;
use dmu::NewObject;
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{ImportOptions, Pool, PoolSpec, Runtime, TopSpec, VERSION_WITH_FEATURES};
use sim::{Image, Recording, Sim, SimDevice, cuts_every};
use std::sync::Arc;
use vdev::TopKind;

const DEVICE_BYTES: usize = 64 << 20;

/// A program of operations that are numbered from 1.
#[derive(Clone, Copy)]
struct Program {
    operations: u64,
    run: fn(&Pool, u64),
    /// Names of the root dataset's children after so many operations.
    names: fn(u64) -> Vec<String>,
    /// The pool writes log space maps.
    log_space_maps: bool,
    /// Version that it is made in.
    version: u64,
}

impl Program {
    fn runtime(self) -> Runtime {
        Runtime { log_space_maps: self.log_space_maps, ..Runtime::new() }
    }
}

/// File systems made, renamed and destroyed.
const FILESYSTEMS: Program = Program { operations: 6, run, names, log_space_maps: false, version: VERSION_WITH_FEATURES };
/// As [`FILESYSTEMS`], on a pool with log space maps.
const LOGGED: Program = Program { log_space_maps: true, ..FILESYSTEMS };
/// Clones made, written to, promoted and destroyed.
const CLONES: Program =
    Program { operations: 11, run: run_clones, names: names_of_clones, log_space_maps: false, version: VERSION_WITH_FEATURES };
/// An old pool gets newer versions, with snapshots and a clone from before.
const UPGRADES: Program = Program { operations: 11, run: run_upgrades, names: names_of_upgrades, log_space_maps: false, version: 1 };

/// Equal blocks written, overwritten, kept by a snapshot and given up.
const DEDUP: Program =
    Program { operations: 7, run: run_dedup, names: names_of_dedup, log_space_maps: false, version: VERSION_WITH_FEATURES };

fn exec() -> Exec {
    Arc::new(Inline::new(11))
}

fn dataset() -> CreateDataset {
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) }
}

fn spec(devices: &[Arc<SimDevice>], kind: TopKind, version: u64) -> PoolSpec {
    PoolSpec {
        ashift: Some(9),
        version,
        host: host(),
        ..PoolSpec::new("tank", vec![TopSpec { kind, leaves: devices.iter().map(leaf).collect() }], dataset())
    }
}

fn names(done: u64) -> Vec<String> {
    // Operation 3 is a rename, 4 a destroy; the others make a file system each.
    let mut names: Vec<String> = (1..=done.min(2)).map(|number| format!("fs{number}")).collect();
    if done >= 3 {
        names[0] = "renamed".to_string();
    }
    if done >= 4 {
        names.retain(|name| name != "fs2");
    }
    names.extend((5..=done).map(|number| format!("fs{number}")));
    names.sort();
    names
}

fn run(pool: &Pool, number: u64) {
    let name = format!("tank/fs{number}");
    match number {
        3 => pool.dsl().rename("tank/fs1", "tank/renamed").expect("renamed"),
        4 => pool.dsl().destroy_dataset("tank/fs2").expect("destroyed"),
        _ => pool.dsl().create_dataset(&name, dataset()).expect("created"),
    }
}

fn names_of_clones(done: u64) -> Vec<String> {
    let lives = [("base", 1..11), ("one", 4..9), ("two", 6..u64::MAX)];
    lives.into_iter().filter(|(_, life)| life.contains(&done)).map(|(name, _)| name.to_string()).collect()
}

/// Writes so many blocks into the file of a dataset, which it gets if it has none.
fn write(pool: &Pool, name: &str, blocks: usize) {
    let handle = pool.dsl().hold(name).expect("held");
    let objset = handle.objset().expect("open");
    let tx = handle.assign(TxSpace::Writes(blocks as u64 * 4096)).expect("room");
    let dnode = match objset.next_object(ObjectId(0)).expect("readable") {
        Some(object) => objset.hold(object).expect("held"),
        None => {
            let new = NewObject { block_size: 4096, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
            objset.allocate_object(new, &tx).expect("made")
        }
    };
    let bytes: Vec<u8> = (0..blocks * 4096).map(|at| ((at * at) >> 7) as u8 ^ name.len() as u8).collect();
    dnode.write(0, &bytes, &tx).expect("written");
    drop((tx, dnode, objset, handle));
    pool.sync().expect("synced");
}

fn run_clones(pool: &Pool, number: u64) {
    let dsl = pool.dsl();
    match number {
        1 => dsl.create_dataset("tank/base", dataset()).expect("created"),
        2 => write(pool, "tank/base", 200),
        3 => dsl.snapshot(&["tank/base@s".to_string()], Vec::new()).expect("taken"),
        4 => dsl.clone_snapshot("tank/one", "tank/base@s", Vec::new()).expect("cloned"),
        5 => write(pool, "tank/one", 9),
        6 => dsl.clone_snapshot("tank/two", "tank/base@s", Vec::new()).expect("cloned"),
        7 => write(pool, "tank/two", 5),
        8 => write(pool, "tank/one", 7),
        9 => {
            let livelists = pool.features().into_iter().find(|(name, ..)| name == "livelist").and_then(|(.., count)| count);
            assert_eq!(livelists, Some(2), "each clone has one");
            dsl.destroy_dataset("tank/one").expect("destroyed");
        }
        10 => dsl.promote("tank/two").expect("promoted"),
        _ => dsl.destroy_dataset("tank/base").expect("destroyed"),
    }
}

fn names_of_upgrades(done: u64) -> Vec<String> {
    let lives = [("base", 1..u64::MAX), ("clone", 4..9)];
    lives.into_iter().filter(|(_, life)| life.contains(&done)).map(|(name, _)| name.to_string()).collect()
}

fn run_upgrades(pool: &Pool, number: u64) {
    let dsl = pool.dsl();
    let upgrade = |version: &str| pool.set_prop("version", version).expect("upgraded");
    match number {
        1 => dsl.create_dataset("tank/base", dataset()).expect("created"),
        2 => write(pool, "tank/base", 60),
        3 => dsl.snapshot(&["tank/base@s".to_string()], Vec::new()).expect("taken"),
        4 => dsl.clone_snapshot("tank/clone", "tank/base@s", Vec::new()).expect("cloned"),
        5 => write(pool, "tank/base", 20),
        6 => upgrade("11"),
        7 => dsl.snapshot(&["tank/base@t".to_string()], Vec::new()).expect("taken"),
        8 => upgrade("5000"),
        9 => dsl.destroy_dataset("tank/clone").expect("destroyed"),
        10 => dsl.snapshot(&["tank/base@u".to_string()], Vec::new()).expect("taken"),
        _ => dsl.destroy_snapshots(&["tank/base@s".to_string(), "tank/base@t".to_string()], false).expect("destroyed"),
    }
}

fn names_of_dedup(done: u64) -> Vec<String> {
    let lives = [("base", 1..u64::MAX), ("same", 3..7)];
    lives.into_iter().filter(|(_, life)| life.contains(&done)).map(|(name, _)| name.to_string()).collect()
}

fn run_dedup(pool: &Pool, number: u64) {
    let dsl = pool.dsl();
    let deduplicated = || CreateDataset { properties: vec![("dedup".to_string(), "on".to_string())], ..dataset() };
    match number {
        1 => dsl.create_dataset("tank/base", deduplicated()).expect("created"),
        2 => write(pool, "tank/base", 120),
        3 => dsl.create_dataset("tank/same", deduplicated()).expect("created"),
        // The names are equally long, and so the bytes are the same.
        4 => write(pool, "tank/same", 120),
        5 => dsl.snapshot(&["tank/base@s".to_string()], Vec::new()).expect("taken"),
        6 => write(pool, "tank/base", 40),
        _ => dsl.destroy_dataset("tank/same").expect("destroyed"),
    }
}

/// Runs the program; gives what happened on the devices.
fn record(program: Program, kind: TopKind, count: usize) -> (Recording, u64) {
    let exec = exec();
    let sim = Sim::new(&exec, 5);
    let devices: Vec<Arc<SimDevice>> = (0..count).map(|index| sim.device(&format!("d{index}"), DEVICE_BYTES)).collect();
    let pool = Pool::create(&exec, spec(&devices, kind, program.version), &program.runtime()).expect("made");
    sim.start_recording();
    sim.mark(0);
    for number in 1..=program.operations {
        (program.run)(&pool, number);
        sim.mark(number);
    }
    pool.export().expect("exported");
    (sim.take_recording(), sim.trace_hash())
}

fn check(program: Program, images: Vec<Image>, least: u64, what: &str) {
    let exec = exec();
    let sim = Sim::new(&exec, 6);
    let devices: Vec<Arc<dyn BlockDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let pool = Pool::import(&exec, devices.clone(), &ImportOptions { read_only: true, ..options.clone() }, &Runtime::new())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = pool.dsl().children("tank").expect("children");
    assert!((least..=program.operations).any(|done| (program.names)(done) == found), "{what}: {found:?} after operation {least}");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
    pool.export().expect("closed");
    let pool = Pool::import(&exec, devices, &options, &program.runtime()).unwrap_or_else(|error| panic!("{what}, writable: {error}"));
    pool.dsl().create_dataset("tank/after", dataset()).expect("created");
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}, after more work: {report:?}");
    pool.export().expect("exported");
}

fn cut(program: Program, kind: TopKind, count: usize, every: usize) {
    let (recording, _) = record(program, kind, count);
    recording.each_cut((cuts_every(every), 0), &mut |cut| {
        let least = cut.mark.unwrap_or(0);
        cut.each_image(0, &mut |choice, images| check(program, images, least, &format!("{kind:?} cut {} {choice:?}", cut.events)));
    });
}

#[test]
fn a_stripe_survives_power_cuts() {
    cut(FILESYSTEMS, TopKind::Leaf, 1, 13);
}

/// If this fails, blocks of clones are lost, or freed twice, by an outage while livelists are written or freed by.
#[test]
fn clones_and_their_livelists_survive_power_cuts() {
    cut(CLONES, TopKind::Leaf, 1, 41);
}

/// If this fails, an outage during an upgrade leaves a pool of which one half is of the old version, and no system opens it.
#[test]
fn upgrades_survive_power_cuts() {
    cut(UPGRADES, TopKind::Leaf, 1, 29);
}

/// If this fails, an outage leaves tables of deduplication that count otherwise than files refer: a file is lost with another, or its space stays taken.
#[test]
fn tables_of_deduplication_survive_power_cuts() {
    cut(DEDUP, TopKind::Leaf, 1, 43);
}

/// If this fails, an outage leaves log space maps that say of space in use that it is free: what is written next goes over files.
#[test]
fn log_space_maps_survive_power_cuts() {
    cut(LOGGED, TopKind::Leaf, 1, 17);
}

#[test]
fn a_mirror_survives_power_cuts() {
    cut(FILESYSTEMS, TopKind::Mirror, 2, 37);
}

#[test]
fn raidz_survives_power_cuts() {
    cut(FILESYSTEMS, TopKind::Raidz(1), 3, 53);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(
        record(FILESYSTEMS, TopKind::Leaf, 1).1,
        record(FILESYSTEMS, TopKind::Leaf, 1).1,
        "a failure that cannot be repeated cannot be fixed"
    );
}
