//! The initiator against the target of this tree, in one process: what it says that it moved, it moved.

use super::*;
use iscsi::ram::{Anybody, RamStore, RamUnit};
use iscsi::{Disk, Geometry, Options, Targets, serve};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

const TARGET: &str = "iqn.2026-11.example:disk";
const DISK_BYTES: u64 = 4 << 20;
const REQUEST_BYTES: u32 = 64 << 10;

/// Server with a disk in memory; it ends with the value.
struct World {
    place: Place,
    _stop: watch::Sender<bool>,
    _runtime: Runtime,
}

fn world() -> World {
    let targets = Targets::new(Arc::new(Anybody(None)));
    let geometry = Geometry {
        blocks: DISK_BYTES / u64::from(BLOCK_BYTES),
        block_bytes: BLOCK_BYTES,
        physical_exponent: 3,
        is_thin: true,
        is_read_only: false,
    };
    let unit = Arc::new(RamUnit::new("serial", geometry));
    let target = targets.add(TARGET).expect("the name is free");
    assert!(target.attach(0, Arc::new(Disk::new(unit, Arc::new(RamStore::default()), None))));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let portal = listener.local_addr().expect("it is bound");
    let (stop, stopped) = watch::channel(false);
    drop(runtime.spawn(serve(listener, targets, Options::default(), stopped)));
    World { place: Place { portal, target: TARGET.to_string(), lun: 0 }, _stop: stop, _runtime: runtime }
}

/// Requests for the whole disk, from its end to its beginning.
fn all(is_write: bool) -> impl Iterator<Item = Request> {
    let requests = DISK_BYTES / u64::from(REQUEST_BYTES);
    (0..requests).rev().map(move |index| Request { is_write, offset: index * u64::from(REQUEST_BYTES), bytes: REQUEST_BYTES })
}

/// If this fails, rates are of requests that moved other bytes than they say, or a target is measured that takes data in other ways than it may.
#[test]
fn what_is_written_is_read_however_data_go_to_the_target() {
    let world = world();
    let every_way = [
        // All in the command; part of it there, part behind it, the rest when it is asked for; nothing but what is asked for.
        Agreed { initial_r2t: false, immediate_data: true, first_burst: 256 << 10, send_max: 256 << 10 },
        Agreed { initial_r2t: false, immediate_data: true, first_burst: 20 << 10, send_max: 8 << 10 },
        Agreed { initial_r2t: false, immediate_data: false, first_burst: 20 << 10, send_max: 8 << 10 },
        Agreed { initial_r2t: true, immediate_data: true, first_burst: 64 << 10, send_max: 8 << 10 },
        Agreed { initial_r2t: true, immediate_data: false, first_burst: 64 << 10, send_max: 64 << 10 },
    ];
    for (turn, agreed) in every_way.into_iter().enumerate() {
        let data: Vec<u8> = (0..300_000usize).map(|at| (at * 7 + at / 251 + turn * 13) as u8).collect();
        for depth in [1, 7, 200] {
            let mut initiator = Initiator::log_in(&world.place).expect("a session");
            assert!(!initiator.agreed.initial_r2t && initiator.agreed.immediate_data, "{:?}", initiator.agreed);
            initiator.agreed = agreed;
            let written = initiator.run(depth, &data, all(true), |_, _, _| panic!("a write reads")).expect("written");
            let mut disk = vec![0; DISK_BYTES as usize];
            let keep = |request: &Request, at: u64, bytes: &[u8]| {
                let start = (request.offset + at) as usize;
                disk[start..start + bytes.len()].copy_from_slice(bytes);
            };
            let read = initiator.run(depth, &[], all(false), keep).expect("read");
            for stream in [written, read] {
                assert_eq!((stream.bytes, stream.latencies_ns.len()), (DISK_BYTES, (DISK_BYTES / u64::from(REQUEST_BYTES)) as usize));
            }
            for request in all(true) {
                let start = request.offset as usize;
                assert!(disk[start..start + REQUEST_BYTES as usize] == *request.content(&data), "{agreed:?}, depth {depth}, {request:?}");
            }
        }
    }
}

/// If this fails, a target that refuses what it is asked for looks fast.
#[test]
fn a_request_that_fails_is_no_figure() {
    let world = world();
    let mut initiator = Initiator::log_in(&world.place).expect("a session");
    let behind = [Request { is_write: false, offset: DISK_BYTES, bytes: 4096 }];
    assert!(initiator.run(4, &[], behind.into_iter(), |_, _, _| ()).is_err());
    let elsewhere = Place { target: "iqn.2026-11.example:other".to_string(), ..world.place.clone() };
    assert!(Initiator::log_in(&elsewhere).is_err());
}
