//! Intent logs of an encrypted file system as they are written here: a crash, the claim without the key, the replay once it is there. What users lose when
//! these fail: what fsync(2) promised them, the pool's space, or what they encrypted, to whoever has the devices.

use crate::replay_bed::{DEVICE_BYTES, Devices, dataset, node, runtime, write};
use dsl::DslError;
use need::pattern;
use ondisk::{ObjsetType, ZilHeader};
use pool::Pool;
use sim::{Image, Recording, cuts_every};
use std::sync::{Arc, Weak};
use zpl::{NewNode, Settings, Zfs};

const FS: &str = "tank/secret";
const KEY: [u8; 32] = [9; 32];
const FILES: u64 = 12;
/// Words that are in every file, and in its name.
const MARK: &[u8] = b"for who has the key alone";

fn name(index: u64) -> String {
    format!("{} {index}", String::from_utf8_lossy(MARK))
}

/// Bytes of a file: of the larger ones a record is divided over several blocks.
fn contents(index: u64) -> Vec<u8> {
    [MARK, &pattern(900 * (index * index) as usize + 1, index)].concat()
}

/// The file system with its log, as mounts have it.
fn mounted(pool: &Pool) -> Arc<Zfs> {
    let handle = pool.dsl().hold(FS).expect("held");
    let zfs = Zfs::open(&handle.objset().expect("objset"), Some(pool.txgs().clone()), Settings::default()).expect("open");
    let (source, tells_xattrs): (Weak<Zfs>, bool) = (Arc::downgrade(&zfs), handle.logs_xattrs());
    zfs.set_log(handle.intent_log(source).expect("a log"), tells_xattrs);
    zfs.set_space_source(Arc::new(handle));
    zfs
}

/// A pool that crashes after the last of its files was made durable: what its device did, where each mark is the number of files that are safe; and what
/// it has.
fn crashed() -> (Recording, Vec<Image>) {
    let devices = Devices::of(vec![Image::new(DEVICE_BYTES)]);
    let pool = devices.create();
    let properties = [("encryption", "on"), ("keyformat", "raw"), ("recordsize", "16384")];
    pool.dsl().create_dataset_with(FS, dataset(ObjsetType::ZFS, &properties), Some(&KEY)).expect("made");
    let zfs = mounted(&pool);
    let root = node(&zfs, "");
    let file = NewNode { mode: 0o100_600, ..NewNode::default() };
    // The log on disk begins: the first commits wait for txgs.
    let first = zfs.create_node(&root, b"first", &file).expect("made");
    for round in 0..3 {
        write(&zfs, &first, round, b"x");
        zfs.fsync(&first).expect("durable");
    }
    devices.sim.start_recording();
    devices.sim.mark(0);
    for index in 0..FILES {
        let made = zfs.create_node(&root, name(index).as_bytes(), &file).expect("made");
        write(&zfs, &made, 0, &contents(index));
        zfs.fsync(&made).expect("durable");
        devices.sim.mark(index + 1);
        if index == 5 {
            pool.sync().expect("synced");
        }
    }
    let recording = devices.sim.take_recording();
    drop((first, root, zfs));
    drop(pool);
    (recording, devices.images())
}

/// Imports, with the log waiting for its key as long as that takes, and finds so many files at least; says whether there was something to be replayed.
fn check(images: Vec<Image>, least: u64, what: &str) -> bool {
    let devices = Devices::of(images);
    let pool = devices.import(false, &runtime()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let handle = pool.dsl().hold(FS).expect("held");
    assert_eq!(handle.objset().map(drop), Err(DslError::NoKey), "{what}");
    let waits = handle.stored().expect("as it is stored").zil_header() != ZilHeader::default();
    drop(handle);
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}, as long as the log waits: {report:?}");
    let replayed = pool.load_key(FS, &KEY, false).expect("the key is the right one");
    assert!(replayed.iter().all(|log| log.failure.is_none()) && replayed.len() == usize::from(waits), "{what}: {replayed:?}");
    let zfs = mounted(&pool);
    for index in 0..least {
        let found = zfs.read(&node(&zfs, &name(index)), 0, 1 << 20).expect("read").to_vec();
        assert!(found == contents(index), "{what}: file {index}");
    }
    let first = node(&zfs, "first");
    write(&zfs, &first, 0, b"on");
    zfs.fsync(&first).expect("durable");
    drop((first, zfs));
    assert_eq!(pool.dsl().unload_key(FS), Ok(()), "{what}: nobody has it any more");
    pool.export().expect("exported");
    devices.check_space(what);
    waits
}

#[test]
fn what_was_made_durable_is_there_once_the_key_is() {
    let (recording, _) = crashed();
    let (mut all, mut waited) = (0u64, 0u64);
    recording.each_cut((cuts_every(7), 0), &mut |cut| {
        let least = cut.mark.unwrap_or(0);
        cut.each_image(0, &mut |choice, images| {
            all += 1;
            waited += u64::from(check(images, least, &format!("cut {} {choice:?}", cut.events)));
        });
    });
    assert!(4 * waited > all, "{waited} of {all} logs waited");
}

#[test]
fn a_power_cut_in_claim_or_replay_loses_nothing() {
    let (_, images) = crashed();
    let devices = Devices::of(images);
    devices.sim.start_recording();
    let pool = devices.import(false, &runtime()).expect("imported");
    pool.sync().expect("synced");
    let replayed = pool.load_key(FS, &KEY, false).expect("the key is the right one");
    assert!(replayed.iter().all(|log| log.failure.is_none() && log.records > FILES - 6) && replayed.len() == 1, "{replayed:?}");
    pool.export().expect("exported");
    let recording = devices.sim.take_recording();
    recording.each_cut((cuts_every(11), 0), &mut |cut| {
        cut.each_image(0, &mut |choice, images| {
            check(images, FILES, &format!("cut {} {choice:?}", cut.events));
        });
    });
}

/// If this fails, what was made durable is lost when the pool is exported before anybody has the key, or shown without it to who has.
#[test]
fn a_log_waits_as_long_as_its_key_does() {
    let (_, images) = crashed();
    let devices = Devices::of(images);
    for round in 0..3 {
        let pool = devices.import(false, &runtime()).expect("imported");
        assert_eq!(pool.load_key(FS, &[8; 32], false), Err(DslError::WrongKey));
        assert_eq!(pool.load_key(FS, &KEY, true), Ok(Vec::new()), "it is only looked whether it is the right one");
        pool.dsl().snapshot(&[format!("{FS}@{round}")], Vec::new()).expect("a snapshot");
        if round == 2 {
            // Who has the key without a replay has nothing.
            pool.dsl().load_key(FS, &KEY, false).expect("the key is the right one");
            let handle = pool.dsl().hold(FS).expect("held");
            assert_eq!(handle.objset().map(drop), Err(DslError::LogWaits));
        }
        pool.export().expect("exported");
    }
    assert!(check(devices.images(), FILES, "three imports later"));
}

/// If this fails, a log that waits for a key takes space for good when its dataset goes, or goes back to what a snapshot has.
#[test]
fn a_log_that_waits_goes_with_what_its_dataset_has() {
    let (_, images) = crashed();
    for what in ["destroyed", "rolled back"] {
        let devices = Devices::of(images.clone());
        let pool = devices.import(false, &runtime()).expect("imported");
        if what == "destroyed" {
            pool.dsl().destroy_dataset(FS).expect(what);
        } else {
            let snapshot = format!("{FS}@s");
            pool.dsl().snapshot(std::slice::from_ref(&snapshot), Vec::new()).expect("a snapshot");
            pool.dsl().rollback(&snapshot).expect(what);
            assert_eq!(pool.load_key(FS, &KEY, false), Ok(Vec::new()), "nothing is left to be replayed");
            drop(mounted(&pool));
        }
        pool.export().expect("exported");
        devices.check_space(what);
    }
}

/// If this fails, whoever reads the devices reads what was encrypted.
#[test]
fn nothing_of_it_is_on_the_device_in_the_clear() {
    let (_, images) = crashed();
    let mut bytes = vec![0; DEVICE_BYTES];
    images[0].read(0, &mut bytes);
    assert!(!bytes.windows(MARK.len()).any(|part| part == MARK));
    assert!(bytes.windows(4).any(|part| part == b"tank"), "it would be found");
}
