//! Memory that host and target share: records cross no socket, and whatever is wrong with that memory costs speed, nothing else.

use crate::common::proxy::{Fate, Proxy};
use crate::common::{DEADLINE_NS, Host, Side, blocks, exec, features, options, setup};
use abd::AbdPart;
use dpusm::Graph;
use provider_target::{LinkStats, TargetOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use target_server::TargetSetup;

const SLOT: usize = 64 << 10;

fn shared(stats: &LinkStats) -> u64 {
    stats.shared_out + stats.shared_in + stats.shared_full
}

/// The point of it: on one machine a record does not cross the socket at all, in either direction.
#[test]
fn a_record_does_not_cross_the_socket() {
    let side = Side::new("shared", features(), setup(30_000));
    let listening = side.unix();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    for bytes in [128 << 10, 1 << 20] {
        let blocks = blocks(8, bytes, false);
        let logical = (blocks.len() * bytes) as u64;
        let crossed = host.write_all(&disks, &stores, &blocks);
        println!("records of {bytes}: {} of {logical} bytes crossed the socket, {crossed:?}", crossed.bytes());
        assert!(crossed.bytes() < logical / 50, "{crossed:?}");
        assert_eq!((crossed.shared_out, crossed.shared_in, crossed.shared_full), (logical, 0, 0));
        assert_eq!(crossed.round_trips, 2 * blocks.len() as u64);
        let before = host.provider.stats();
        assert!(blocks.iter().all(|block| host.round_trip(block) == *block));
        let crossed = host.provider.stats().since(&before);
        assert!(crossed.bytes() < logical / 50, "{crossed:?}");
        assert_eq!((crossed.shared_out, crossed.shared_in, crossed.resent), (logical, logical, 0));
    }
}

/// Neither a host nor a target that does not want it, or knows nothing of it, shares memory; over TCP nobody can.
#[test]
fn without_shared_memory_everything_is_as_before() {
    for (is_local, host_shares, target_shares) in [(true, false, true), (true, true, false), (true, false, false), (false, true, true)] {
        let side = Side::new("unshared", features(), TargetSetup { shares_memory: target_shares, ..setup(30_000) });
        let listening = side.listen(is_local);
        let own = options(listening.address());
        let own = if host_shares { own } else { TargetOptions { shared_bytes: 0, ..own } };
        let host = Host::with(&exec(), &own, &side.folder.0, 512);
        let block = &blocks(1, 128 << 10, false)[0];
        assert!(host.round_trip(block) == *block);
        let stats = host.provider.stats();
        assert!(stats.bytes_out > block.len() as u64 && stats.bytes_in > block.len() as u64, "{stats:?}");
        assert_eq!((shared(&stats), stats.resent, stats.reconnects), (0, 0, 0), "{stats:?}");
    }
}

/// When all slots are taken, records are in frames: nobody waits for one, and none is lost for good.
#[test]
fn records_that_find_no_slot_are_in_frames() {
    let side = Side::new("full", features(), setup(30_000));
    let listening = side.unix();
    let exec = exec();
    let host = Host::with(&exec, &TargetOptions { shared_bytes: 2 * SLOT as u64, ..options(listening.address()) }, &side.folder.0, 512);
    // One after another: each finds its slots free again.
    let some = blocks(50, SLOT, false);
    let before = host.provider.stats();
    assert!(some.iter().all(|block| host.round_trip(block) == *block));
    let crossed = host.provider.stats().since(&before);
    assert_eq!((crossed.shared_out, crossed.shared_in, crossed.shared_full), (50 * SLOT as u64, 50 * SLOT as u64, 0));
    // All at once, and some that are longer than all slots together.
    let many = blocks(60, 3 * SLOT, false);
    let before = host.provider.stats();
    let started: Vec<_> = (0..many.len())
        .map(|number| {
            let block = if number % 3 == 0 { many[number].clone() } else { some[number % some.len()].clone() };
            let buffer = host.device.alloc(block.len()).unwrap();
            let mut graph = Graph::new();
            graph.copy_in(&block, &buffer.whole());
            let node = graph.copy_out(buffer.whole(), vec![AbdPart::scratch(block.len())]);
            let (completer, ended) = exec::completion();
            let submission = host.device.submit(graph, DEADLINE_NS, move |mut report| completer.complete(report.take_bytes(node))).unwrap();
            (block, ended, submission)
        })
        .collect();
    for (number, (block, ended, _submission)) in started.into_iter().enumerate() {
        assert!(ended.wait(&exec).unwrap() == block, "record {number}");
    }
    let crossed = host.provider.stats().since(&before);
    println!("{crossed:?}");
    assert!(crossed.shared_full >= 40 && crossed.bytes_out > 20 * 3 * SLOT as u64 && crossed.resent == 0, "{crossed:?}");
    // And free again afterwards.
    let before = host.provider.stats();
    assert!(host.round_trip(&some[0]) == some[0]);
    assert_eq!(host.provider.stats().since(&before).shared_out, SLOT as u64);
}

/// A target that claims to have written more than it was given room for would have its host hand out another operation's bytes.
#[test]
fn a_target_that_lies_about_its_room_is_not_believed() {
    let block = &blocks(1, 128 << 10, false)[0];
    for length in [block.len() as u64 + 1, 1 << 30, u64::MAX, 0, 1, block.len() as u64 - 1] {
        let side = Side::new("lies", features(), setup(30_000));
        let listening = side.unix();
        let lies = Arc::new(AtomicBool::new(false));
        let own = lies.clone();
        let judge = move || if own.load(Ordering::Acquire) { Fate::Claim(length) } else { Fate::Pass };
        let proxy = Proxy::new(listening.address(), Arc::new(judge));
        let host = Host::new(&exec(), &proxy.address, &side.folder.0, 512);
        lies.store(true, Ordering::Release);
        let executed = side.target.stats().executed;
        assert!(host.round_trip(block) == *block, "{length}");
        let stats = host.provider.stats();
        // Asked again, for an answer in a frame; it was not run again.
        assert_eq!((stats.resent, side.target.stats().executed), (1, executed + 1), "{length}: {stats:?}");
        let is_impossible = length == 0 || length > block.len() as u64;
        assert_eq!((stats.reconnects, stats.damaged), if is_impossible { (1, 0) } else { (0, 1) }, "{length}: {stats:?}");
        assert!(stats.bytes_in > block.len() as u64, "{length}: {stats:?}");
    }
}
