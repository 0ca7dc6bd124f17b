//! Transactions, their callbacks and grants, names of objects, and what others see of them.

use crate::bed::{Bed, OBJECTS, fid, make, open, write};
use exec::Mutex;
use osd::{Change, Device, Fid, NewObject, OsdError};
use std::sync::Arc;
use zpl::{Settings, WriteData, Zfs, ZplError};

const MIB: u64 = 1 << 20;

/// If this fails, a transaction finds no room for what it does in the middle of it, or its txg waits for a disk.
#[test]
fn what_was_not_declared_is_refused() {
    let bed = Bed::new(&[("recordsize", "16K")]);
    let device = bed.open();
    let (object, other) = (make(&device, 1), device.object(fid(2)).expect("an object"));
    let running = device.begin().write(&object, 4096..8192).create(&other).xattr(&object, 10).start().expect("started");
    let data = abd::Abd::zeroed(4096);
    assert_eq!(running.write(&object, 4096, &data), Ok(()));
    assert_eq!(running.write(&object, 4097, &data), Err(OsdError::Undeclared), "it ends behind");
    assert_eq!(running.write(&other, 4096, &data), Err(OsdError::Undeclared), "another object");
    assert_eq!(running.punch(&object, &(4096..8192)), Err(OsdError::Undeclared));
    assert_eq!(running.destroy(&object), Err(OsdError::Undeclared));
    assert_eq!(running.set_attributes(&object, &Change::default()), Err(OsdError::Undeclared));
    assert_eq!(running.set_xattr(&object, b"trusted.x", Some(&[1; 11])), Err(OsdError::Undeclared), "too long");
    assert_eq!(running.set_xattr(&object, b"trusted.x", Some(&[1; 10])), Ok(()));
    assert_eq!(running.set_xattr(&object, b"trusted.y", None), Err(OsdError::Store(ZplError::NoAttribute)));
    assert_eq!(running.insert(&object, b"key", b"record"), Err(OsdError::Undeclared));
    assert_eq!(running.create(&other, NewObject::default()), Ok(()));
    assert_eq!(running.create(&other, NewObject::default()), Err(OsdError::Exists));
    running.stop();
    assert_eq!((object.attributes().expect("attributes").size, object.xattr(b"trusted.x")), (8192, Ok(vec![1; 10])));
}

/// If this fails, a client is told that something is on disk which is not, is never told, or hears of an older change after a newer one.
#[test]
fn callbacks_come_with_the_txg_in_the_order_of_the_ends() {
    let bed = Bed::new(&[("recordsize", "16K")]);
    let device = bed.open();
    let object = make(&device, 1);
    let told: Arc<Mutex<Vec<(u32, bool)>>> = Arc::default();
    let note = |number: u32| -> osd::Commit {
        let told = told.clone();
        Box::new(move |is_committed| told.lock().push((number, is_committed)))
    };
    let first = device.begin().write(&object, 0..10).on_commit(note(1)).start().expect("started");
    let mut second = device.begin().write(&object, 0..10).on_commit(note(2)).start().expect("started");
    second.on_commit(note(3));
    second.stop();
    drop(first);
    assert!(told.lock().is_empty(), "nothing is on disk");
    device.sync().expect("synced");
    assert_eq!(*told.lock(), [(2, true), (3, true), (1, true)]);
    let huge = device.begin().write(&object, 0..1 << 40).on_commit(note(4)).start();
    assert_eq!(huge.err(), Some(OsdError::Store(ZplError::NoSpace)));
    assert_eq!(told.lock().last(), Some(&(4, false)), "it never will be");
}

/// If this fails, data of a client's cache that was granted space is lost because somebody else filled the device.
#[test]
fn granted_space_is_kept_for_who_has_it() {
    let bed = Bed::new(&[("recordsize", "128K"), ("compression", "off")]);
    let device = bed.open();
    let (mine, others) = (make(&device, 1), make(&device, 2));
    device.sync().expect("synced");
    let free = device.space().free;
    let granted = device.grant(7, free / 2);
    assert_eq!((granted, device.space().free, device.space().granted), (free / 2, free - granted, granted));
    assert!(device.grant(8, free) < free / 2, "not what somebody has");
    assert!(device.give_back(8, u64::MAX) == 0);
    let declared = device.begin().write(&others, 0..free * 3 / 4);
    assert_eq!(declared.start().err(), Some(OsdError::Store(ZplError::NoSpace)));
    write(&others, &device, 0, &vec![1; MIB as usize]);
    let running = device.begin().write(&mine, 0..MIB).spend(7).start().expect("started");
    running.write(&mine, 0, &abd::Abd::from_slice(&vec![2; MIB as usize])).expect("written");
    running.stop();
    assert_eq!(device.space().granted, granted, "spent, and not on disk");
    device.sync().expect("synced");
    let left = device.space().granted;
    assert!(left < granted - MIB && left > granted - 2 * MIB, "{left} of {granted}");
    assert_eq!((device.give_back(7, left), device.space().granted), (0, 0));
}

/// If this fails, objects are not where Lustre and administrators look for them, or an object is taken for another one.
#[test]
fn objects_are_files_where_lustre_has_them() {
    let bed = Bed::new(&[("recordsize", "16K")]);
    let device = bed.open();
    assert_eq!(device.object(Fid::new(0, 1)).err(), Some(OsdError::BadFid));
    let object = make(&device, 77);
    assert!(Arc::ptr_eq(&object, &device.object(fid(77)).expect("an object")), "there is one for all");
    write(&object, &device, 0, &[7; 40_000]);
    drop((object, device));
    {
        let handle = bed.pool.dsl().hold(OBJECTS).expect("held");
        let objset = handle.objset().expect("an object set");
        let zfs = Zfs::open(&objset, Some(bed.pool.txgs().clone()), Settings::default()).expect("a file system");
        let mut directory = zfs.node(zfs.root()).expect("the root");
        for name in ["O", "200000401", "d13"] {
            directory = zfs.lookup(&directory, name.as_bytes()).expect("a folder");
        }
        assert_eq!(directory.fields().size, 3, "its one name is counted");
        let file = zfs.lookup(&directory, b"77").expect("a file");
        assert!(zfs.read(&file, 0, 50_000).expect("read").to_vec() == [7; 40_000]);
        let data = abd::Abd::from_slice(&[8; 4]);
        zfs.write(&file, WriteData { offset: 0, data, may_keep: true, kill_suid: false, synchronous: false }).expect("written");
        zfs.link(&file, &directory, b"45").expect("linked");
        zfs.sync().expect("synced");
    }
    let device = open(&bed.pool);
    let object = device.object(fid(77)).expect("an object");
    assert!(object.read(0, 5).expect("read").to_vec() == [8, 8, 8, 8, 7], "what a mount wrote");
    assert_eq!(device.object(fid(45)).expect("an object").exists(), Err(OsdError::Store(ZplError::CORRUPT)), "it is another one's");
}

/// If this fails, an owner's use is not known, or a limit lets everything through.
#[test]
fn owners_are_charged_and_limited() {
    let bed = Bed::new(&[("recordsize", "16K"), ("compression", "off")]);
    let device = bed.open();
    let object = device.object(fid(1)).expect("an object");
    let running = device.begin().create(&object).start().expect("started");
    running.create(&object, NewObject { uid: 5, gid: 6, mode: 0o640, is_index: false }).expect("made");
    running.stop();
    write(&object, &device, 0, &vec![1; MIB as usize]);
    device.sync().expect("synced");
    let used = device.owner_value("userused", 5).expect("a value");
    assert!((MIB..2 * MIB).contains(&used), "{used} bytes");
    assert_eq!(device.owner_value("groupused", 6), Ok(used));
    device.set_owner_limit("userquota", 5, MIB).expect("set");
    let refused = device.begin().write(&object, 0..10).start();
    assert_eq!(refused.err(), Some(OsdError::Store(ZplError::OverQuota)));
    let running = device.begin().attributes(&object).start().expect("started");
    running.set_attributes(&object, &Change { uid: Some(9), mode: Some(0o7), ..Change::default() }).expect("changed");
    running.stop();
    device.sync().expect("synced");
    assert_eq!((device.owner_value("userused", 5), object.attributes().expect("attributes").mode), (Ok(0), 0o100_007));
    write(&object, &device, 0, &[1; 10]);
}

/// If this fails, keys are written over data, or data over keys.
#[test]
fn kinds_of_objects_are_kept_apart() {
    let bed = Bed::new(&[]);
    let device = bed.open();
    let (data, index) = (make(&device, 1), device.object(fid(2)).expect("an object"));
    let declared =
        |device: &Arc<Device>| device.begin().create(&index).index(&index).index(&data).write(&index, 0..10).punch(&index, 0..10);
    let running = declared(&device).start().expect("started");
    running.create(&index, NewObject { is_index: true, ..NewObject::default() }).expect("made");
    assert_eq!(running.insert(&data, b"key", b"record"), Err(OsdError::WrongKind));
    assert_eq!(running.write(&index, 0, &abd::Abd::zeroed(10)), Err(OsdError::WrongKind));
    assert_eq!(running.punch(&index, &(0..10)), Err(OsdError::WrongKind));
    for number in 0..500u32 {
        running.insert(&index, format!("key {number}").as_bytes(), &number.to_be_bytes()).expect("inserted");
    }
    assert_eq!(running.insert(&index, b"a\0", b"1"), Err(OsdError::Store(ZplError::Invalid)));
    assert_eq!(running.insert(&index, b"key 3", b"1"), Err(OsdError::Exists));
    assert_eq!(running.delete(&index, b"key 3"), Ok(()));
    running.stop();
    assert_eq!(index.read(0, 10).map(|data| data.len()), Err(OsdError::WrongKind));
    assert_eq!((index.lookup(b"key 3"), index.lookup(b"key 4")), (Ok(None), Ok(Some(4u32.to_be_bytes().to_vec()))));
    assert_eq!(index.entries(0, 1000).expect("listed").entries.len(), 499);
    assert_eq!((index.is_index(), data.is_index()), (Ok(true), Ok(false)));
    drop((data, index, device));
    bed.check_space("indices");
}
