//! Targets that die, links that are cut for good, leases that run out: what was acknowledged is on the disks, the rest is software's.

use crate::common::proxy::{Armed, Fate, NEVER, Proxy};
use crate::common::{
    CutOff, DEADLINE_NS, Held, HeldStores, Host, Side, blocks, exec, features, is_on, options, setup, software, until, write_in_software,
    write_on,
};
use abd::Abd;
use dpusm::{Graph, OpError, Submission};
use exec::Mutex;
use provider_target::TargetProvider;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const RECORDS: usize = 3;
const BLOCK: usize = 32 << 10;
/// Long enough for a slow machine between two frames, short enough for many deaths.
const LEASE_MS: u64 = 1000;

/// Writes records, by software where the target does not; how many the target acknowledged. Those were on the disks already
/// when it said so.
fn program(host: &Host, side: &Side, what: &str) -> usize {
    let disks = side.disks(&what.replace(' ', "-"));
    let stores = host.open(&disks).unwrap_or_default();
    let mut acknowledged = 0;
    for (number, block) in blocks(RECORDS, BLOCK, true).iter().enumerate() {
        let (wanted, offset) = (software(block), (number * BLOCK) as u64);
        let outcome = if stores.is_empty() { Err(OpError::Down) } else { write_on(&host.device, &stores, block, offset) };
        match outcome {
            Ok(sum) => {
                acknowledged += 1;
                assert_eq!(sum, wanted.checksum, "{what}: record {number}");
                assert!(is_on(&disks, &wanted, offset), "{what}: record {number} was acknowledged and is not there");
            }
            Err(_) => write_in_software(&disks, &wanted, offset),
        }
    }
    for (number, block) in blocks(RECORDS, BLOCK, true).iter().enumerate() {
        assert!(is_on(&disks, &software(block), (number * BLOCK) as u64), "{what}: record {number} is lost");
    }
    acknowledged
}

/// Dies at a frame of a program (or [`NEVER`]); how many records were acknowledged, and how many frames went by.
fn die_at(frame: u64, fate: Fate, is_killed: bool, is_local: bool) -> (usize, u64) {
    let side = Side::new("deaths", features(), setup(LEASE_MS));
    let listening = side.listen(is_local);
    let (armed, judge) = Armed::new(&side.target, fate, is_killed);
    let proxy = Proxy::new(listening.address(), judge);
    let host = Host::new(&exec(), &proxy.address, &side.folder.0, 512);
    let before = armed.passed();
    armed.arm(frame);
    let what = format!("{fate:?} at {frame} killed {is_killed} local {is_local}");
    let acknowledged = program(&host, &side, &what);
    let frames = armed.passed() - before;
    let shared = host.provider.stats().shared_out;
    assert!(if is_local { shared > 0 || acknowledged == 0 } else { shared == 0 }, "{what}: {shared} bytes in shared memory");
    if frame != NEVER {
        until(|| host.provider.is_down());
        // A target that stops tells the host before it returns to the judge, who cuts the way only then.
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
        until(|| proxy.is_cut() || std::time::Instant::now() > patience);
        assert!(proxy.is_cut(), "{what}: the frame did not come by");
        assert_eq!(host.device.alloc(512).map(|_| ()), Err(OpError::Down), "{what}");
        assert_eq!(host.device.live_handles(), 0, "{what} leaked");
        // Nothing of the session stays on a target that lives on.
        until(|| side.target.stats().buffers == 0 && side.target.stats().sessions == 0);
    }
    (acknowledged, frames)
}

/// The target, or the way to it, dies at every frame of a program: before it, after it, and with all that it had queued.
#[test]
fn a_death_at_any_frame_loses_nothing_that_was_acknowledged() {
    deaths(false);
}

/// The same when the records lie in memory that both share, and the frames only say where.
#[test]
fn a_death_at_any_frame_loses_nothing_of_what_lies_in_shared_memory() {
    deaths(true);
}

fn deaths(is_local: bool) {
    let (all, frames) = die_at(NEVER, Fate::Pass, false, is_local);
    assert_eq!(all, RECORDS);
    // Twelve stores are opened, each record is two programs; every one is a frame and its answer.
    assert!(frames >= 2 * (12 + 2 * RECORDS as u64), "{frames} frames");
    let frames = frames.min(2 * (12 + 2 * RECORDS as u64));
    let ways: Vec<(u64, Fate, bool)> =
        (0..frames).flat_map(|frame| [(frame, Fate::Cut, false), (frame, Fate::CutAfter, false), (frame, Fate::Cut, true)]).collect();
    // Most of the time they wait for a lease to end.
    let one = |(frame, fate, is_killed): &(u64, Fate, bool)| {
        let (acknowledged, _) = die_at(*frame, *fate, *is_killed, is_local);
        assert!(acknowledged < RECORDS || *fate == Fate::CutAfter, "frame {frame}: a dead target acknowledged all");
        acknowledged
    };
    let least = std::thread::scope(|scope| {
        let groups: Vec<_> =
            ways.chunks(ways.len().div_ceil(8)).map(|group| scope.spawn(move || group.iter().map(one).min().unwrap())).collect();
        groups.into_iter().map(|group| group.join().unwrap()).min()
    });
    println!("{} deaths at {frames} frames", ways.len());
    assert_eq!(least, Some(0));
}

/// A target that died would hold up everybody who reads, until a deadline or the end of its lease, although software could do it at once.
#[test]
fn what_waits_for_a_dead_target_ends_at_once() {
    for is_local in [false, true] {
        let side = Side::new("away", features(), setup(3_600_000));
        let listening = side.listen(is_local);
        let is_cut = Arc::new(AtomicU64::new(0));
        let own = is_cut.clone();
        let judge = move || if own.load(Ordering::Acquire) == 1 { Fate::Cut } else { Fate::Pass };
        let proxy = Proxy::new(listening.address(), Arc::new(judge));
        let host = Host::new(&exec(), &proxy.address, &side.folder.0, 512);
        let buffer = host.device.alloc(BLOCK).unwrap();
        is_cut.store(1, Ordering::Release);
        let mut graph = Graph::new();
        graph.zero_fill(buffer.whole());
        assert_eq!(host.device.run(graph, DEADLINE_NS).unwrap().all(), Err(OpError::Down), "in flight");
        let mut graph = Graph::new();
        graph.zero_fill(buffer.whole());
        assert_eq!(host.device.run(graph, DEADLINE_NS).unwrap().all(), Err(OpError::Down), "later");
        assert_eq!(host.device.alloc(512).map(|_| ()), Err(OpError::Down));
        assert!(!host.provider.is_down(), "its lease goes on: what it was writing may land");
    }
}

/// What a target that cannot be reached may be writing is waited for: were it given up, its user would write in software, and the target once more
/// after that, over what others wrote there since.
#[test]
fn what_a_dead_target_may_be_writing_is_waited_for() {
    /// Time for which that is seen.
    const WAIT_NS: u64 = 1_000_000_000;
    let side = Side::new("writing", features(), setup(3_600_000));
    let listening = side.tcp();
    let is_cut = Arc::new(AtomicU64::new(0));
    let own = is_cut.clone();
    let judge = move || if own.load(Ordering::Acquire) == 1 { Fate::Cut } else { Fate::Pass };
    let proxy = Proxy::new(listening.address(), Arc::new(judge));
    let host = Host::new(&exec(), &proxy.address, &side.folder.0, 512);
    let stores = host.open(&side.disks("written")).unwrap();
    let buffer = host.device.alloc(BLOCK).unwrap();
    is_cut.store(1, Ordering::Release);
    let mut graph = Graph::new();
    graph.store(buffer.whole(), &stores[0], 0);
    assert_eq!(host.device.run(graph, WAIT_NS).unwrap().all(), Err(OpError::Timeout));
}

/// A host that dies, or is cut off, leaves nothing behind: its memory is others' after a lease.
#[test]
fn a_lease_that_runs_out_frees_all_memory() {
    let side = Side::new("lease", features(), setup(LEASE_MS));
    let listening = side.tcp();
    let is_cut = Arc::new(AtomicU64::new(0));
    let own = is_cut.clone();
    let judge = move || if own.load(Ordering::Acquire) == 1 { Fate::Cut } else { Fate::Pass };
    let proxy = Proxy::new(listening.address(), Arc::new(judge));
    let exec = exec();
    let provider = TargetProvider::connect(&exec, &options(&proxy.address)).unwrap();
    let host = Host::new(&exec, listening.address(), &side.folder.0, 512);
    let registered = dpusm::Registry::new(&exec);
    let device = registered.register(provider.clone(), &dpusm::RegisterOptions { test_bytes_max: 512, ..Default::default() }).unwrap();
    let buffers: Vec<_> = [&device, &host.device]
        .into_iter()
        .map(|device| {
            let buffer = device.alloc(BLOCK).unwrap();
            let mut graph = Graph::new();
            graph.copy_in(&Abd::zeroed(BLOCK), &buffer.whole());
            device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
            buffer
        })
        .collect();
    assert_eq!(side.target.stats().sessions, 2);
    // Both sessions outlive many leases while their hosts say so.
    let trips = provider.stats().round_trips;
    until(|| provider.stats().round_trips >= trips + 10);
    assert_eq!((side.target.stats().sessions, side.target.stats().expired), (2, 0));
    is_cut.store(1, Ordering::Release);
    until(|| side.target.stats().expired == 1);
    until(|| provider.is_down());
    // The other host's is untouched.
    let stats = side.target.stats();
    assert!(stats.sessions == 1 && stats.buffer_bytes >= BLOCK as u64, "{stats:?}");
    let mut graph = Graph::new();
    graph.zero_fill(buffers[1].whole());
    host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
    // A program for a provider that is down ends at once.
    let mut graph = Graph::new();
    graph.zero_fill(buffers[0].whole());
    assert_eq!(device.run(graph, DEADLINE_NS).unwrap().all(), Err(OpError::Down));
}

/// A connection that is lost again and again costs round trips, nothing else: what was on the target still is.
#[test]
fn a_session_survives_its_connections() {
    survive(false);
}

/// The same over connections that share memory: each has a region of its own, and what was lost with the last one is sent again.
#[test]
fn a_session_survives_its_connections_and_their_memory() {
    survive(true);
}

fn survive(is_local: bool) {
    let side = Side::new("survives", features(), setup(30_000));
    let listening = side.listen(is_local);
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    for (number, block) in blocks(20, BLOCK, true).iter().enumerate() {
        let buffer = host.device.alloc(BLOCK).unwrap();
        let mut graph = Graph::new();
        graph.copy_in(block, &buffer.whole());
        host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
        side.target.disconnect();
        let offset = (number * 4096) as u64;
        let wanted = software(block);
        assert_eq!(write_on(&host.device, &stores, block, offset), Ok(wanted.checksum), "record {number}");
        assert!(is_on(&disks, &wanted, offset), "record {number}");
        let mut graph = Graph::new();
        let out = graph.copy_out(buffer.whole(), vec![abd::AbdPart::scratch(BLOCK)]);
        assert!(host.device.run(graph, DEADLINE_NS).unwrap().take_bytes(out).unwrap() == *block, "record {number}");
    }
    let stats = host.provider.stats();
    assert!(stats.reconnects >= 20, "{stats:?}");
    // What was sent again, because a connection was lost under it, was in frames.
    let written = 40 * BLOCK as u64;
    assert!(if is_local { stats.shared_out > written / 4 } else { stats.shared_out + stats.shared_in == 0 }, "{stats:?}");
}

/// A target that was started again has other memory under the same numbers: nothing of the old session may reach it.
#[test]
fn another_target_at_the_same_address_is_not_taken_for_the_first() {
    let first = Side::new("first", features(), setup(30_000));
    let socket = first.folder.0.join("socket");
    let listening = first.unix();
    let host = Host::new(&exec(), listening.address(), &first.folder.0, 512);
    drop(listening);
    let second = Side::new("second", features(), setup(30_000));
    let address = target_wire::Address::Unix(socket);
    let again = second.target.listen(target_wire::Listener::bind(&address).unwrap()).unwrap();
    first.target.disconnect();
    until(|| host.provider.is_down());
    assert_eq!(second.target.stats().executed, 0);
    assert_eq!(host.device.alloc(1).map(|_| ()), Err(OpError::Down));
    drop(again);
}

/// Users that do not wait any more: what they wanted is not done later, when the link comes back.
#[test]
fn what_was_given_up_is_not_sent_again() {
    give_up(false);
    give_up(true);
}

fn give_up(is_local: bool) {
    let side = Side::new("given-up", features(), setup(30_000));
    let listening = side.listen(is_local);
    let wanted: Arc<Mutex<Option<Submission>>> = Arc::default();
    let is_armed = Arc::new(AtomicU64::new(0));
    let (own, own_armed) = (wanted.clone(), is_armed.clone());
    let judge = move || {
        if own_armed.swap(0, Ordering::AcqRel) == 0 {
            return Fate::Pass;
        }
        until(|| own.lock().is_some());
        own.lock().take().iter().for_each(Submission::cancel);
        Fate::Break
    };
    let proxy = Proxy::new(listening.address(), Arc::new(judge));
    let exec = exec();
    let host = Host::new(&exec, &proxy.address, &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks[..1]).unwrap();
    let buffer = host.device.alloc(BLOCK).unwrap();
    let mut graph = Graph::new();
    graph.copy_in(&blocks(1, BLOCK, false)[0], &buffer.whole());
    host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
    is_armed.store(1, Ordering::Release);
    let mut graph = Graph::new();
    graph.store(buffer.whole(), &stores[0], 0);
    let (completer, ended) = exec::completion();
    let submission = host.device.submit(graph, DEADLINE_NS, move |report| completer.complete(report.all())).unwrap();
    *wanted.lock() = Some(submission);
    assert_eq!(ended.wait(&exec), Err(OpError::Cancelled));
    let other = host.device.alloc(512).unwrap();
    let mut graph = Graph::new();
    graph.zero_fill(other.whole());
    host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
    assert_eq!(host.provider.stats().reconnects, 1);
    assert!(std::fs::read(&disks[0]).unwrap().iter().all(|byte| *byte == 0), "it was written nevertheless");
}

/// If this fails, a target is taken to be done with a write that nobody waits for because its connection was lost and is there again; it writes over
/// whoever gets the place next.
#[test]
fn what_was_given_up_is_at_work_until_the_target_says_that_it_is_not() {
    let held = Arc::new(Held::default());
    let own = held.clone();
    let side = Side::with("astray", features(), setup(30_000), |software| software, |files| Arc::new(HeldStores(own, files)));
    let listening = side.tcp();
    let exec = exec();
    let host = Host::new(&exec, listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks[..1]).unwrap();
    let buffer = host.device.alloc(BLOCK).unwrap();
    let mut graph = Graph::new();
    graph.copy_in(&blocks(1, BLOCK, false)[0], &buffer.whole());
    host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
    held.hold();
    let mut graph = Graph::new();
    graph.store(buffer.whole(), &stores[0], 0);
    let (completer, ended) = exec::completion();
    let submission = host.device.submit(graph, DEADLINE_NS, move |report| completer.complete(report)).unwrap();
    until(|| held.begun() == 1);
    submission.cancel();
    let straggler = ended.wait(&exec).straggler().expect("it is at work");
    let is_over = Arc::new(AtomicBool::new(false));
    let own = is_over.clone();
    straggler.then(Box::new(move || own.store(true, Ordering::Release)));
    side.target.disconnect();
    until(|| host.provider.stats().reconnects == 1);
    // What was on its way is said again before anything else.
    let other = host.device.alloc(512).unwrap();
    let mut graph = Graph::new();
    graph.zero_fill(other.whole());
    host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
    assert!(!is_over.load(Ordering::Acquire), "the write is still to come");
    held.let_go();
    until(|| is_over.load(Ordering::Acquire));
}

/// If this fails, a target says that a write failed which its own provider may still do, and the host writes there first.
#[test]
fn what_a_targets_provider_has_lost_has_no_answer_while_it_may_be_written() {
    /// Time for which that is seen.
    const WAIT_NS: u64 = 1_000_000_000;
    let is_cut = Arc::new(AtomicBool::new(false));
    let own = is_cut.clone();
    let cut_off = |inner| -> Arc<dyn dpusm::Provider> { Arc::new(CutOff { inner, is_cut: own }) };
    let side = Side::with("cut-off", features(), setup(30_000), cut_off, |files| files);
    let listening = side.tcp();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let stores = host.open(&side.disks("disk")[..1]).unwrap();
    let buffer = host.device.alloc(BLOCK).unwrap();
    let mut graph = Graph::new();
    graph.zero_fill(buffer.whole());
    host.device.run(graph, DEADLINE_NS).unwrap().all().unwrap();
    is_cut.store(true, Ordering::Release);
    let mut graph = Graph::new();
    graph.zero_fill(buffer.whole());
    assert_eq!(host.device.run(graph, DEADLINE_NS).unwrap().all(), Err(OpError::Down), "nobody need wait for that");
    let mut graph = Graph::new();
    graph.store(buffer.whole(), &stores[0], 0);
    let report = host.device.run(graph, WAIT_NS).unwrap();
    assert_eq!(report.all(), Err(OpError::Timeout));
    assert!(report.straggler().is_some(), "it may be at work");
}
