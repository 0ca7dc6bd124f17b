//! Records through a target: what crosses the link, over every kind of socket, also one that damages frames.

use crate::common::proxy::{Fate, Proxy};
use crate::common::{Host, Side, blocks, exec, features, is_on, secret, setup, software, until, write_on};
use abd::{Abd, AbdPart};
use dpusm::{Graph, OpError};
use exec::{Exec, Mutex, SplitMix};
use provider_target::{ConnectError, TargetOptions, TargetProvider};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use target_wire::{Refusal, Secret};

/// Everything that software can do, done by a target: a capability that differs over the link would write what cannot be read.
#[test]
fn every_capability_of_a_target_stands_its_test_over_a_unix_socket() {
    let side = Side::new("kats", provider_software::features(), setup(30_000));
    let listening = side.unix();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 8192);
    assert_eq!(host.device.capabilities().list.len(), provider_software::features().len());
    let executed = side.target.stats().executed;
    assert!(executed > 1000, "only {executed} programs: the target did not do it");
    let stats = host.provider.stats();
    assert!(stats.shared_out > 0 && stats.shared_in > 0, "not in shared memory: {stats:?}");
}

/// Large blocks too, over TCP.
#[test]
fn the_capabilities_of_a_record_stand_their_tests_over_tcp() {
    let side = Side::new("kats-tcp", features(), setup(30_000));
    let listening = side.tcp();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 1 << 20);
    assert_eq!(host.device.capabilities().list.len(), features().len());
    let stats = host.provider.stats();
    assert_eq!((stats.shared_out, stats.shared_in, stats.shared_full), (0, 0, 0));
}

/// The point of a target: the record crosses once, in two round trips; parity and what is stored never do.
#[test]
fn a_record_crosses_the_link_once_in_two_round_trips() {
    let side = Side::new("bytes", features(), setup(30_000));
    let listening = side.tcp();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    for bytes in [128 << 10, 1 << 20] {
        let blocks = blocks(8, bytes, false);
        let crossed = host.write_all(&disks, &stores, &blocks);
        let logical = (blocks.len() * bytes) as f64;
        let (ratio, trips) = (crossed.bytes() as f64 / logical, crossed.round_trips as f64 / blocks.len() as f64);
        println!("records of {bytes}: {ratio:.4} bytes per logical byte, {trips} round trips per record, {crossed:?}");
        assert!(ratio <= 1.02 && trips <= 2.0, "{ratio} bytes per byte, {trips} round trips per record");
        assert!(crossed.frames_out <= 2 * blocks.len() as u64 && crossed.resent == 0, "{crossed:?}");
    }
    drop(stores);
    assert_eq!(host.device.live_handles(), 0);
    // What was freed is told with the next program, whoever's it is.
    let buffer = host.device.alloc(512).unwrap();
    let mut graph = Graph::new();
    graph.zero_fill(buffer.whole());
    host.device.run(graph, crate::common::DEADLINE_NS).unwrap().all().unwrap();
    let stats = side.target.stats();
    assert_eq!((stats.buffers, stats.buffer_bytes), (1, 512), "{stats:?}");
    assert_eq!(host.device.memory().unwrap().active.buffers, 1);
}

/// One frame in a hundred with a flipped bit, anywhere in it: every record is right, nothing ran twice, nobody noticed.
#[test]
fn damaged_frames_are_noticed_and_sent_again() {
    damage(false);
}

/// The same where records lie in shared memory: a bit that flips there, between the one who wrote it and the one who reads it, is noticed too.
#[test]
fn damaged_bytes_in_shared_memory_are_noticed_and_sent_again() {
    damage(true);
}

fn damage(is_local: bool) {
    const RECORDS: usize = 400;
    let side = Side::new("damage", features(), setup(30_000));
    let listening = side.listen(is_local);
    let random = Mutex::new(SplitMix::new(99));
    let (frames, flipped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (own_frames, own_flipped) = (frames.clone(), flipped.clone());
    let judge = move || {
        own_frames.fetch_add(1, Ordering::Relaxed);
        let mut random = random.lock();
        if random.below(100) > 0 {
            return Fate::Pass;
        }
        own_flipped.fetch_add(1, Ordering::Relaxed);
        // Headers are short: one flip in two hits one.
        let bit = if random.below(2) == 0 { random.below(48 * 8) as u64 } else { random.next_u64() >> 1 };
        Fate::Flip(bit)
    };
    let proxy = Proxy::new(listening.address(), Arc::new(judge));
    let exec = exec();
    let host = Host::new(&exec, &proxy.address, &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    let blocks = blocks(RECORDS, 32 << 10, true);
    for (number, block) in blocks.iter().enumerate() {
        let wanted = software(block);
        let sum = write_on(&host.device, &stores, block, (number * 4096) as u64);
        assert_eq!(sum, Ok(wanted.checksum), "record {number}");
        assert!(is_on(&disks, &wanted, (number * 4096) as u64), "record {number}");
        // What comes back is under a CRC as well.
        let back = host.round_trip_into(block, vec![AbdPart::scratch(1000), AbdPart::scratch(block.len() - 1000)]);
        assert!(back == *block, "record {number} came back changed");
    }
    let (stats, target) = (host.provider.stats(), side.target.stats());
    println!("{} of {} frames damaged: {stats:?} {target:?}", flipped.load(Ordering::Relaxed), frames.load(Ordering::Relaxed));
    assert!(flipped.load(Ordering::Relaxed) >= 10, "nothing was tested");
    assert!(stats.resent >= 5 && stats.reconnects > 0 && stats.damaged + target.damaged > 0, "{stats:?} {target:?}");
    assert!(!host.provider.is_down());
    assert_eq!((stats.shared_out > 0, stats.shared_in > 0, proxy.flipped_in_memory() > 0), (is_local, is_local, is_local), "{stats:?}");
}

/// Whoever does not have the secret is told so, and gets nothing; nor does a target that does not have it get a byte of data.
#[test]
fn a_wrong_secret_is_refused_by_name() {
    let side = Side::new("secret", features(), setup(30_000));
    let listening = side.unix();
    let wrong = Secret::new(b"incorrect horse battery staple").unwrap();
    let refused = TargetProvider::connect(&exec(), &TargetOptions::new("target", listening.address().clone(), wrong));
    match refused {
        Err(error @ ConnectError::Refused(Refusal::Secret)) => assert_eq!(error.to_string(), "the target refused the secret"),
        other => panic!("{other:?}"),
    }
    let stats = side.target.stats();
    assert_eq!((stats.sessions, stats.refused, stats.executed), (0, 1, 0));
    let nobody = crate::common::Folder::new("nobody");
    let address = target_wire::Address::Unix(nobody.0.join("socket"));
    let error = TargetProvider::connect(&exec(), &TargetOptions::new("target", address, secret())).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error}");
    // It takes connections, and that is all.
    let path = nobody.0.join("silent");
    let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let silent = TargetOptions {
        timeout: std::time::Duration::from_millis(50),
        ..TargetOptions::new("target", target_wire::Address::Unix(path), secret())
    };
    let error = TargetProvider::connect(&exec(), &silent).unwrap_err();
    assert_eq!(error.to_string(), "the target did not answer within 0.25 s");
    let inline: Exec = Arc::new(exec::Inline::new(1));
    let error = TargetProvider::connect(&inline, &crate::common::options(listening.address())).unwrap_err();
    assert!(matches!(error, ConnectError::NoThreads), "{error}");
}

/// A store that hosts may not write, or that is not there, is refused when it is opened, not with the first record.
#[test]
fn stores_are_opened_on_the_target_or_refused() {
    let side = Side::new("stores", features(), setup(30_000));
    let listening = side.unix();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let open = |path: &std::path::Path| host.device.open(&crate::common::file(path)).map(|_| ());
    assert_eq!(open(&side.folder.0.join("none")), Err(OpError::Io(2)));
    assert_eq!(open("/etc/hostname".as_ref()), Err(OpError::Io(13)));
    assert_eq!(open(&side.disks("disk")[0]), Ok(()));
}

/// More memory than a session may have is refused; what was freed can be had again, at once.
#[test]
fn memory_is_bounded_by_the_targets_quota() {
    let quota = 1 << 20;
    let side = Side::new("quota", features(), target_server::TargetSetup { memory_bytes_max: quota, ..setup(30_000) });
    let listening = side.tcp();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let half = || host.device.alloc(quota as usize / 2);
    for _ in 0..20 {
        let (one, two) = (half().unwrap(), half().unwrap());
        assert_eq!(half().map(|_| ()), Err(OpError::NoMemory));
        for buffer in [&one, &two] {
            let mut graph = Graph::new();
            graph.copy_in(&Abd::zeroed(buffer.len()), &buffer.whole());
            host.device.run(graph, crate::common::DEADLINE_NS).unwrap().all().unwrap();
        }
    }
    assert!(side.target.stats().buffer_bytes <= quota);
    drop(host);
    until(|| side.target.stats().sessions == 0);
}
