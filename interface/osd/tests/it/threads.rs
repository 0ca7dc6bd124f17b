//! Many threads at one object and at objects that come and go, as a server has them.

use crate::bed::{Bed, fid, make, pattern, write_lent};
use exec::{Mutex, OperationHandle, Pool};
use osd::{NewObject, OsdError};
use std::sync::Arc;

const THREADS: u64 = 4;
const PIECE: u64 = 32 << 10;
const PIECES: u64 = 128;

/// If this fails, requests of several clients to one object lose each other's bytes, or wait for each other for ever.
#[test]
fn threads_that_write_one_object_keep_all_bytes() {
    let bed = Bed::under(Arc::new(Pool::new(2)), &[("recordsize", "128K"), ("compression", "off")]);
    let device = bed.open();
    let object = make(&device, 1);
    let bytes = Arc::new(pattern((PIECE * PIECES) as usize, 4));
    let told: Arc<Mutex<u64>> = Arc::default();
    let workers: Vec<OperationHandle> = (0..THREADS)
        .map(|worker| {
            let (device, object, bytes, told) = (device.clone(), object.clone(), bytes.clone(), told.clone());
            let work = move || {
                for piece in (worker..PIECES).step_by(THREADS as usize) {
                    let at = (piece * PIECE) as usize;
                    write_lent(&object, &device, piece * PIECE, &bytes[at..at + PIECE as usize]);
                    assert!(object.read_direct(piece * PIECE, PIECE).expect("read").to_vec() == bytes[at..at + PIECE as usize], "{piece}");
                    let told = told.clone();
                    let marker =
                        device.begin().attributes(&object).on_commit(Box::new(move |is_committed| *told.lock() += u64::from(is_committed)));
                    marker.start().expect("started").stop();
                }
            };
            bed.exec.spawn_operation(&format!("writer-{worker}"), Box::new(work))
        })
        .collect();
    workers.into_iter().for_each(OperationHandle::join);
    device.sync().expect("synced");
    assert_eq!(*told.lock(), PIECES, "each was told once, before who waited for the disk went on");
    assert!(object.read(0, u64::MAX).expect("read").to_vec() == *bytes);
    let counts = device.counts();
    assert!(counts.asked == PIECE * PIECES && counts.copied <= 128 << 10, "{counts:?}");
    drop((object, device));
    let bed = bed.again();
    let device = bed.open();
    let object = device.object(fid(1)).expect("an object");
    let readers: Vec<OperationHandle> = (0..THREADS)
        .map(|worker| {
            let (object, bytes) = (object.clone(), bytes.clone());
            let work = move || {
                for piece in (worker..PIECES).step_by(THREADS as usize) {
                    let at = (piece * PIECE) as usize;
                    assert!(object.read_direct(piece * PIECE, PIECE).expect("read").to_vec() == bytes[at..at + PIECE as usize], "{piece}");
                }
            };
            bed.exec.spawn_operation(&format!("reader-{worker}"), Box::new(work))
        })
        .collect();
    readers.into_iter().for_each(OperationHandle::join);
    let counts = device.counts();
    assert!(counts.fetched_share() <= 1100, "who reads together reads each block once: {counts:?}");
    drop((object, device));
    bed.check_space("threads");
}

/// If this fails, an object is made twice, or its space is lost, when clients make and destroy it at the same time.
#[test]
fn objects_that_come_and_go_are_there_once() {
    let bed = Bed::under(Arc::new(Pool::new(2)), &[("recordsize", "16K"), ("compression", "off")]);
    let device = bed.open();
    let balance: Arc<Mutex<i64>> = Arc::default();
    let workers: Vec<OperationHandle> = (0..THREADS)
        .map(|worker| {
            let (device, balance) = (device.clone(), balance.clone());
            let work = move || {
                for round in 0..60 {
                    let object = device.object(fid(1)).expect("an object");
                    let running = device.begin().create(&object).destroy(&object).write(&object, 0..40_000).start().expect("started");
                    let (result, sum) = match (worker + round) % 3 {
                        0 => (running.destroy(&object), -1),
                        1 => (running.create(&object, NewObject::default()), 1),
                        _ => (running.write(&object, 0, &abd::Abd::from_slice(&[round as u8; 40_000])), 0),
                    };
                    match result {
                        Ok(()) => *balance.lock() += sum,
                        Err(error) => assert!(matches!(error, OsdError::NotFound | OsdError::Exists), "{error}"),
                    }
                    running.stop();
                }
            };
            bed.exec.spawn_operation(&format!("maker-{worker}"), Box::new(work))
        })
        .collect();
    workers.into_iter().for_each(OperationHandle::join);
    let is_there = device.object(fid(1)).expect("an object").exists().expect("looked");
    assert_eq!(*balance.lock(), i64::from(is_there), "each destroyed one was made before");
    device.sync().expect("synced");
    drop(device);
    let bed = bed.again();
    let device = bed.open();
    assert_eq!(device.object(fid(1)).expect("an object").exists(), Ok(is_there));
    drop(device);
    bed.check_space("makers");
}
