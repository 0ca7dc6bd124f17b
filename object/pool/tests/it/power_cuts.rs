//! Power cuts at the writes and flushes of a program of pool operations (a sample by default; `POWER_CUTS_EVERY=1` takes all):
//! each image must import, hold a state between the last
//! acknowledged operation and the end, and have space maps that agree with its blocks. What the user loses when these fail:
//! the pool, after an outage.
use crate::common::{host, leaf};
use device::BlockDevice;
use dsl::CreateDataset;
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{ImportOptions, Pool, PoolSpec, Runtime, TopSpec};
use sim::{Image, Recording, Sim, SimDevice, cuts_every};
use std::sync::Arc;
use vdev::TopKind;

const DEVICE_BYTES: usize = 64 << 20;
const OPERATIONS: u64 = 6;

fn exec() -> Exec {
    Arc::new(Inline::new(11))
}

fn dataset() -> CreateDataset {
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) }
}

fn spec(devices: &[Arc<SimDevice>], kind: TopKind) -> PoolSpec {
    PoolSpec {
        ashift: Some(9),
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

/// Runs the program; gives what happened on the devices.
fn record(kind: TopKind, count: usize) -> (Recording, u64) {
    let exec = exec();
    let sim = Sim::new(&exec, 5);
    let devices: Vec<Arc<SimDevice>> = (0..count).map(|index| sim.device(&format!("d{index}"), DEVICE_BYTES)).collect();
    let pool = Pool::create(&exec, spec(&devices, kind), &Runtime::new()).expect("made");
    sim.start_recording();
    sim.mark(0);
    for number in 1..=OPERATIONS {
        run(&pool, number);
        sim.mark(number);
    }
    pool.export().expect("exported");
    (sim.take_recording(), sim.trace_hash())
}

fn check(images: Vec<Image>, least: u64, what: &str) {
    let exec = exec();
    let sim = Sim::new(&exec, 6);
    let devices: Vec<Arc<dyn BlockDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let pool = Pool::import(&exec, devices.clone(), &ImportOptions { read_only: true, ..options.clone() }, &Runtime::new())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = pool.dsl().children("tank").expect("children");
    assert!((least..=OPERATIONS).any(|done| names(done) == found), "{what}: {found:?} after operation {least}");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
    pool.export().expect("closed");
    let pool = Pool::import(&exec, devices, &options, &Runtime::new()).unwrap_or_else(|error| panic!("{what}, writable: {error}"));
    pool.dsl().create_dataset("tank/after", dataset()).expect("created");
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}, after more work: {report:?}");
    pool.export().expect("exported");
}

fn cut(kind: TopKind, count: usize, every: usize) {
    let (recording, _) = record(kind, count);
    recording.each_cut((cuts_every(every), 0), &mut |cut| {
        let least = cut.mark.unwrap_or(0);
        cut.each_image(0, &mut |choice, images| check(images, least, &format!("{kind:?} cut {} {choice:?}", cut.events)));
    });
}

#[test]
fn a_stripe_survives_power_cuts() {
    cut(TopKind::Leaf, 1, 13);
}

#[test]
fn a_mirror_survives_power_cuts() {
    cut(TopKind::Mirror, 2, 37);
}

#[test]
fn raidz_survives_power_cuts() {
    cut(TopKind::Raidz(1), 3, 53);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(record(TopKind::Leaf, 1).1, record(TopKind::Leaf, 1).1, "a failure that cannot be repeated cannot be fixed");
}
