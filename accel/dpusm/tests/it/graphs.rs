//! Submission: completions, deadlines, cancellation, limits, refusals, and what a provider may answer.

use crate::common::{blocks, features, how, software};
use abd::{Abd, AbdPart};
use dpusm::{
    Capabilities, Claim, Compress, Device, DeviceHandle, Graph, MemoryCount, Onward, OpError, OpKind, Program, Provider, QueueLimits,
    RaidContext, Registry, Sampler, StoreKind, StoreTarget, Tally, Verdict, verify,
};
use exec::{Exec, Inline, Mutex, Pool, completion};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_faulty::{Fault, Faulty, Harm, When};
use provider_software::{Software, SoftwareOptions};
use std::sync::Arc;

struct World {
    inline: Arc<Inline>,
    exec: Exec,
    faulty: Arc<Faulty>,
    device: Device,
}

fn world(queue: QueueLimits, seed: u64) -> World {
    let inline = Arc::new(Inline::new(seed));
    let exec: Exec = inline.clone();
    let software =
        Software::new(&exec, SoftwareOptions { features: features(), queue, memory_bytes_max: 64 << 20, ..SoftwareOptions::default() });
    let faulty = Faulty::new(&exec, "faulty", software);
    let options = crate::common::options();
    let device = Registry::new(&exec).register(faulty.clone(), &options).unwrap();
    World { inline, exec, faulty, device }
}

fn usual() -> World {
    world(SoftwareOptions::default().queue, 3)
}

fn zero_test(device: &Device, bytes: usize) -> Graph {
    let buffer = device.alloc(bytes).unwrap();
    let mut graph = Graph::new();
    graph.copy_in(&Abd::zeroed(bytes), &buffer.whole());
    graph.zero_test(buffer.whole());
    graph
}

/// A callback inside of `submit` would run with its caller's locks held.
#[test]
fn completions_are_jobs_of_their_own() {
    let world = usual();
    let called = Arc::new(Mutex::new(0));
    for _ in 0..3 {
        let own = called.clone();
        world
            .device
            .submit(zero_test(&world.device, 512), u64::MAX, move |report| {
                assert_eq!(report.all(), Ok(()));
                *own.lock() += 1;
            })
            .unwrap();
    }
    assert_eq!(*called.lock(), 0);
    world.inline.run_ready();
    assert_eq!(*called.lock(), 3);
    assert_eq!((world.device.graphs_in_flight(), world.device.live_handles()), (0, 0));
}

/// The whole first round of a write, of blocks that shrink and of one that does not, in real threads too.
#[test]
fn a_record_goes_through_in_one_submission() {
    let real: Exec = Arc::new(Pool::new(2));
    for exec in [Arc::new(Inline::new(9)) as Exec, real] {
        let software_too = Software::new(&exec, SoftwareOptions { features: features(), ..SoftwareOptions::default() });
        let options = crate::common::options();
        let device = Registry::new(&exec).register(software_too, &options).unwrap();
        for (number, block) in blocks(6, 40_960).iter().enumerate() {
            let (source, target) = (device.alloc(block.len()).unwrap(), device.alloc(block.len()).unwrap());
            let mut graph = Graph::new();
            let pieces = Abd::gang(&[block.slice(0..512), Abd::from_slice(&block.slice(512..block.len()).to_vec())]);
            graph.copy_in(&pieces, &source.whole());
            let packed = graph.compress(&source.whole(), &target.whole(), how(block.len()));
            graph.zero_fill(packed.padding());
            let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
            let out = graph.copy_out(packed.result(), vec![AbdPart::scratch(1000), AbdPart::scratch(40_960)]);
            let mut report = device.run(graph, u64::MAX).unwrap();
            let wanted = software(block);
            assert_eq!(report.compressed(packed).unwrap().is_some(), wanted.is_compressed, "{number}");
            assert_eq!(report.checksum(sum), Ok(wanted.checksum), "{number}");
            assert!(report.take_bytes(out).unwrap().to_vec() == wanted.stored, "{number}");
            assert_eq!(report.take_bytes(out).map(|_| ()), Err(OpError::Invalid));
        }
        let stats = device.stats();
        assert_eq!(stats.get(OpKind::Compress, Tally::BytesIn), 6 * 40_960);
        assert!(stats.get(OpKind::Compress, Tally::BytesOut) < 5 * 40_960);
        assert_eq!(stats.get(OpKind::CopyIn, Tally::Blocks), 6);
        assert_eq!(device.live_handles(), 0);
    }
}

/// Without back-pressure a slow device would be given all of memory; with a wait in it, a job would hang.
#[test]
fn a_full_queue_refuses_at_once_and_gives_the_graph_back() {
    let world = world(QueueLimits { graphs_max: 2, bytes_max: 1 << 20 }, 4);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let submit = |graph| {
        let own = ends.clone();
        world.device.submit(graph, u64::MAX, move |report| own.lock().push(report.all()))
    };
    submit(zero_test(&world.device, 512)).unwrap();
    submit(zero_test(&world.device, 512)).unwrap();
    let refused = submit(zero_test(&world.device, 512)).unwrap_err();
    assert_eq!((refused.error, refused.graph.len()), (OpError::Full, 2));
    assert_eq!(refused.error.verdict(), Verdict::Software);
    world.inline.run_ready();
    submit(refused.graph).unwrap();
    // Bytes count too; a graph that is too large goes alone.
    assert_eq!(submit(zero_test(&world.device, 2 << 20)).unwrap_err().error, OpError::Full);
    world.inline.run_ready();
    submit(zero_test(&world.device, 2 << 20)).unwrap();
    world.inline.run_ready();
    assert_eq!(*ends.lock(), vec![Ok(()); 4]);
    assert_eq!(world.device.alloc(65 << 20).map(|_| ()), Err(OpError::NoMemory));
}

/// A batch is one call: those that do not fit come back, the others go on.
#[test]
fn batches_have_one_outcome_per_graph() {
    let world = world(QueueLimits { graphs_max: 3, bytes_max: 1 << 20 }, 6);
    let ends = Arc::new(Mutex::new(0));
    let batch = (0..5)
        .map(|_| {
            let own = ends.clone();
            let done: dpusm::ReportFn = Box::new(move |report| *own.lock() += usize::from(report.all().is_ok()));
            (zero_test(&world.device, 512), done)
        })
        .collect();
    let outcomes = world.device.submit_all(batch, u64::MAX);
    let taken: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, true, true, false, false]);
    world.inline.run_ready();
    assert_eq!(*ends.lock(), 3);
}

/// If this fails, the space to which a device that hung may still write is given to somebody else, or to nobody ever.
#[test]
fn who_waits_for_a_straggler_goes_on_when_the_provider_lets_go() {
    let world = usual();
    world.faulty.inject(Some(Fault { harm: Harm::Stall, when: When::Kind { kind: OpKind::ZeroTest, skip: 0 } }));
    let report = world.device.run(zero_test(&world.device, 512), 50_000_000).unwrap();
    let straggler = report.straggler().expect("it is at work");
    let over = Arc::new(Mutex::new(0));
    let wait = || {
        let own = over.clone();
        straggler.then(Box::new(move || *own.lock() += 1));
    };
    wait();
    wait();
    world.inline.run_ready();
    assert_eq!(*over.lock(), 0, "the device may still be at it");
    world.faulty.release_stalled();
    world.inline.run_ready();
    assert_eq!(*over.lock(), 2);
    wait();
    assert_eq!(*over.lock(), 3, "it is over already");
    world.faulty.inject(None);
    let report = world.device.run(zero_test(&world.device, 512), 50_000_000).unwrap();
    assert!(report.straggler().is_none(), "what ended well is no straggler");
}

/// A provider whose work goes on for a second where it does not reach it any more.
struct Lingering {
    inner: Arc<Faulty>,
    /// Waiters for the end of its process; None without a process.
    waiting: Option<Mutex<Vec<Onward>>>,
}

impl Provider for Lingering {
    fn name(&self) -> &str {
        "lingering"
    }
    fn version(&self) -> &str {
        self.inner.version()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.inner.alloc(bytes)
    }
    fn free(&self, handle: DeviceHandle) {
        self.inner.free(handle);
    }
    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        self.inner.submit(programs)
    }
    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.inner.open(target)
    }
    fn close(&self, handle: DeviceHandle) {
        self.inner.close(handle);
    }
    fn lingers_ns(&self) -> u64 {
        1_000_000_000
    }
    fn when_gone(&self, onward: Onward) {
        match &self.waiting {
            Some(waiting) => waiting.lock().push(onward),
            None => onward(),
        }
    }
}

/// If this fails, a target that is cut off, or whose session is ended, writes over somebody's block in what is left of its lease.
#[test]
fn what_a_provider_that_lingers_has_lost_is_a_straggler() {
    let world = usual();
    let (faulty, lingering) = (&world.faulty, Arc::new(Lingering { inner: world.faulty.clone(), waiting: None }));
    let device = Registry::new(&world.exec).register(lingering, &crate::common::options()).unwrap();
    for skip in [0, 1] {
        faulty.inject(Some(Fault { harm: Harm::Die, when: When::At(skip + 1) }));
        let report = device.run(zero_test(&device, 512), 50_000_000).unwrap();
        assert_eq!((report.all(), report.settled), (Err(OpError::Down), true));
        let (over, straggler) = (Arc::new(Mutex::new(false)), report.straggler().expect("it may be at work"));
        let own = over.clone();
        straggler.then(Box::new(move || *own.lock() = true));
        world.inline.run_ready();
        assert!(!*over.lock(), "its time is not over");
        world.exec.sleep_ns(1_000_000_001);
        world.inline.run_ready();
        assert!(*over.lock(), "nobody goes on");
    }
}

/// If this fails, a process that was killed and waits for a disk that hangs writes over somebody's block when the disk answers: its time was over before it
/// was gone.
#[test]
fn what_a_process_had_begun_lingers_from_its_end_on() {
    let world = usual();
    let lingering = Arc::new(Lingering { inner: world.faulty.clone(), waiting: Some(Mutex::default()) });
    let device = Registry::new(&world.exec).register(lingering.clone(), &crate::common::options()).unwrap();
    world.faulty.inject(Some(Fault { harm: Harm::Die, when: When::At(1) }));
    let report = device.run(zero_test(&device, 512), 50_000_000).unwrap();
    assert_eq!(report.all(), Err(OpError::Down));
    let (over, straggler) = (Arc::new(Mutex::new(false)), report.straggler().expect("it may be at work"));
    let own = over.clone();
    straggler.then(Box::new(move || *own.lock() = true));
    let looks = [1_000_000_001, 60_000_000_000].map(|later| {
        world.exec.sleep_ns(later);
        world.inline.run_ready();
        *over.lock()
    });
    assert_eq!(looks, [false; 2], "its process is not gone");
    let waiting = std::mem::take(&mut *lingering.waiting.as_ref().expect("a process").lock());
    waiting.into_iter().for_each(|onward| onward());
    world.inline.run_ready();
    assert!(!*over.lock(), "its time begins now");
    world.exec.sleep_ns(1_000_000_001);
    world.inline.run_ready();
    assert!(*over.lock(), "nobody goes on");
}

/// A device that hangs must not hang the pool, keep its users' memory, or write later into buffers that are used again.
#[test]
fn a_stalled_graph_ends_at_its_deadline() {
    let world = usual();
    world.faulty.inject(Some(Fault { harm: Harm::Stall, when: When::Kind { kind: OpKind::ZeroTest, skip: 0 } }));
    let buffer = world.device.alloc(512).unwrap();
    let mut source = Abd::zeroed(512);
    let mut graph = Graph::new();
    graph.zero_test(buffer.whole());
    graph.copy_in(&source, &buffer.whole());
    let began = world.exec.now_ns();
    let report = world.device.run(graph, 50_000_000).unwrap();
    assert_eq!((report.all(), report.settled), (Err(OpError::Timeout), false));
    let took = world.exec.now_ns() - began;
    assert!((50_000_000..60_000_000).contains(&took), "{took}");
    assert!(source.get_mut().is_some(), "the host's memory is still held");
    let mut graph = Graph::new();
    graph.copy_out(buffer.whole(), vec![AbdPart::scratch(512)]);
    assert_eq!(world.device.run(graph, 1000).unwrap_err().error, OpError::Abandoned);
    drop(buffer);
    assert_eq!(world.device.live_handles(), 1, "the device may still use it");
    world.faulty.release_stalled();
    world.inline.run_ready();
    assert_eq!(world.device.live_handles(), 0);
    assert_eq!(world.device.stats().get(OpKind::ZeroTest, Tally::Late), 1);
    let kinds = [OpKind::ZeroTest, OpKind::CopyIn].map(|kind| world.device.stats().get(kind, Tally::Error(OpError::Timeout)));
    assert_eq!(kinds, [1, 1]);
}

/// The first deadline must not wait for a later one that was there before it, nor be forgotten after it.
#[test]
fn every_deadline_is_kept() {
    let world = usual();
    world.faulty.inject(Some(Fault { harm: Harm::Stall, when: When::From(0) }));
    let began = world.exec.now_ns();
    let ends = Arc::new(Mutex::new(Vec::new()));
    for deadline in [900_000_000u64, 300_000_000, 600_000_000, 300_000_000] {
        let buffer = world.device.alloc(512);
        assert_eq!(buffer.map(|_| ()), Err(OpError::NoMemory), "allocations are struck too");
        world.faulty.inject(None);
        let graph = zero_test(&world.device, 512);
        world.faulty.inject(Some(Fault { harm: Harm::Stall, when: When::From(0) }));
        let (own, exec) = (ends.clone(), world.exec.clone());
        world.device.submit(graph, deadline, move |_| own.lock().push((deadline, exec.now_ns() - began))).unwrap();
    }
    while ends.lock().len() < 4 {
        assert!(world.inline.step());
    }
    for (deadline, at) in ends.lock().iter() {
        assert!((*deadline..deadline + 10_000_000).contains(at), "{deadline} ended at {at}");
    }
    world.faulty.release_stalled();
}

/// A user that gives up must hear so, once, and soon.
#[test]
fn a_cancelled_graph_ends_once() {
    let world = usual();
    let (completer, waiting) = completion();
    let submission = world.device.submit(zero_test(&world.device, 512), u64::MAX, move |report| completer.complete(report.all())).unwrap();
    submission.cancel();
    submission.cancel();
    assert_eq!(waiting.wait(&world.exec), Err(OpError::Cancelled));
    world.inline.run_ready();
    assert_eq!((world.device.graphs_in_flight(), world.device.live_handles()), (0, 0));
}

/// Who keeps a submission must not keep the host's memory: a caller whose bytes were lent waits for every last hold on them.
#[test]
fn host_memory_is_let_go_of_with_the_end() {
    let world = usual();
    let buffer = world.device.alloc(512).unwrap();
    let mut source = Abd::from_slice(&[3; 512]);
    let mut graph = Graph::new();
    graph.copy_in(&source, &buffer.whole());
    let submission = world.device.submit(graph, u64::MAX, |report| assert_eq!(report.all(), Ok(()))).unwrap();
    assert!(source.get_mut().is_none(), "it is in use");
    world.inline.run_ready();
    assert!(source.get_mut().is_some(), "the end is not the end");
    submission.cancel();
}

/// A write that was cut short must not pass for one, nor be followed by its flush.
#[test]
fn short_writes_are_errors() {
    let world = usual();
    let disk = Arc::new(crate::common::Disk::default());
    let target = StoreTarget { kind: StoreKind::Disk, path: "disk".into(), host: disk.clone() };
    let store = world.device.open(&target).unwrap();
    let buffer = world.device.alloc(4096).unwrap();
    let graph = || {
        let mut graph = Graph::new();
        let copy = graph.copy_in(&Abd::from_slice(&[9; 4096]), &buffer.whole());
        (copy, graph.store(buffer.whole(), &store, 512), graph.flush(&store), graph)
    };
    let (copy, write, flush, whole) = graph();
    world.faulty.inject(Some(Fault { harm: Harm::Short, when: When::Kind { kind: OpKind::Store, skip: 0 } }));
    let report = world.device.run(whole, u64::MAX).unwrap();
    assert_eq!((report.status(copy), report.status(write)), (Ok(()), Err(OpError::Io(5))));
    world.faulty.inject(Some(Fault { harm: Harm::Fail(OpError::Io(28)), when: When::Kind { kind: OpKind::Store, skip: 0 } }));
    let (_, write, flush_too, whole) = graph();
    assert_eq!(flush, flush_too);
    let report = world.device.run(whole, u64::MAX).unwrap();
    assert_eq!((report.status(write), report.status(flush)), (Err(OpError::Io(28)), Err(OpError::Skipped)));
    world.faulty.inject(None);
    let (_, _, _, whole) = graph();
    world.device.run(whole, u64::MAX).unwrap().all().unwrap();
    assert_eq!(disk.get(512, 4096), vec![9; 4096]);
    drop((store, buffer));
    assert_eq!(world.device.live_handles(), 0);
}

/// A failed operation must take along what needs it, and only that.
#[test]
fn only_what_needs_a_failed_operation_is_skipped() {
    let world = usual();
    let buffers: Vec<_> = (0..3).map(|_| world.device.alloc(1024).unwrap()).collect();
    let mut graph = Graph::new();
    let nodes = [
        graph.copy_in(&Abd::zeroed(1024), &buffers[0].whole()),
        graph.copy_in(&Abd::zeroed(512), &buffers[1].view(0..512).unwrap()),
        graph.zero_test(buffers[1].view(0..512).unwrap()),
        graph.zero_test(buffers[1].view(512..1024).unwrap()),
        graph.zero_test(buffers[0].whole()),
        graph.compare(&buffers[0].whole(), &buffers[1].whole()),
    ];
    world.faulty.inject(Some(Fault { harm: Harm::Fail(OpError::Failed), when: When::At(1) }));
    let report = world.device.run(graph, u64::MAX).unwrap();
    let statuses = nodes.map(|node| report.status(node));
    let skipped = Err(OpError::Skipped);
    assert_eq!(statuses, [Ok(()), Err(OpError::Failed), skipped, Ok(()), Ok(()), skipped]);
    assert_eq!(report.all(), Err(OpError::Failed));
    // After a failed compression nobody knows what is stored.
    let (source, target) = (&buffers[0].whole(), &buffers[2].whole());
    let mut graph = Graph::new();
    let packed = graph.compress(source, target, how(1024));
    let (pad, sum) = (graph.zero_fill(packed.padding()), graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little));
    world.faulty.inject(Some(Fault { harm: Harm::Short, when: When::At(0) }));
    let report = world.device.run(graph, u64::MAX).unwrap();
    assert_eq!(report.compressed(packed), Err(OpError::BadResult));
    assert_eq!((report.status(pad), report.checksum(sum)), (skipped, Err(OpError::Skipped)));
}

/// What a provider does not offer must be refused before anything is copied, and say why.
#[test]
fn graphs_are_checked_before_they_are_taken() {
    let world = usual();
    let (one, other) = (world.device.alloc(4096).unwrap(), world.device.alloc(4096).unwrap());
    let before = world.faulty.operations();
    let refusal = |graph: Graph| world.device.run(graph, 1000).unwrap_err().error;
    let with = |build: &dyn Fn(&mut Graph)| {
        let mut graph = Graph::new();
        build(&mut graph);
        refusal(graph)
    };
    assert_eq!(refusal(Graph::new()), OpError::Invalid);
    assert_eq!(
        with(&|graph| {
            graph.checksum(one.whole(), Checksum::SHA256, ByteOrder::Little);
        }),
        OpError::NotImplemented
    );
    assert_eq!(
        with(&|graph| {
            graph.checksum(one.whole(), Checksum::FLETCHER_4, ByteOrder::Big);
        }),
        OpError::NotSupported
    );
    let gzip = Compress { kind: Compression::GZIP_1, ..how(4096) };
    assert_eq!(
        with(&|graph| {
            graph.compress(&one.whole(), &other.whole(), gzip);
        }),
        OpError::NotImplemented
    );
    assert_eq!(
        with(&|graph| {
            graph.compress(&one.whole(), &one.whole(), how(4096));
        }),
        OpError::Invalid
    );
    assert_eq!(
        with(&|graph| {
            graph.compress(&one.whole(), &other.view(0..512).unwrap(), how(4096));
        }),
        OpError::Invalid
    );
    assert_eq!(
        with(&|graph| {
            graph.copy_in(&Abd::zeroed(100), &one.whole());
        }),
        OpError::Invalid
    );
    assert_eq!(
        with(&|graph| {
            graph.copy_out(one.whole(), vec![AbdPart::scratch(100)]);
        }),
        OpError::Invalid
    );
    assert_eq!(
        with(&|graph| {
            graph.compare(&one.whole(), &other.view(0..100).unwrap());
        }),
        OpError::Invalid
    );
    assert_eq!(
        with(&|graph| {
            graph.zero_fill(dpusm::Compressed(dpusm::NodeId(7)).padding());
        }),
        OpError::Invalid
    );
    let three: Vec<_> = (0..3).map(|_| one.whole()).collect();
    let row = RaidContext::new(three, vec![other.whole()]).unwrap();
    assert_eq!(
        with(&|graph| {
            graph.raid_generate(&row);
        }),
        OpError::NotImplemented
    );
    assert_eq!(
        with(&|graph| {
            graph.raid_reconstruct(&row, &[0, 0]);
        }),
        OpError::Invalid
    );
    assert_eq!(one.view(4000..5000).map(|_| ()), Err(OpError::Invalid));
    assert_eq!(RaidContext::new(vec![one.view(0..512).unwrap()], vec![other.whole()]).map(|_| ()), Err(OpError::Invalid));
    assert_eq!(RaidContext::new(vec![], vec![other.whole()]).map(|_| ()), Err(OpError::Invalid));
    assert_eq!(world.faulty.operations(), before);
    assert_eq!(world.device.alloc(0).map(|_| ()), Err(OpError::Invalid));
}

/// A part of a buffer must keep the buffer's memory, whoever drops what first.
#[test]
fn views_pin_their_buffer() {
    let world = usual();
    let buffer = world.device.alloc(4096).unwrap();
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(&[7; 4096]), &buffer.whole());
    world.device.run(graph, u64::MAX).unwrap();
    let part = buffer.view(100..200).unwrap().slice(10..20).unwrap();
    drop(buffer);
    assert_eq!((world.device.live_handles(), part.offset(), part.len()), (1, 110, 10));
    let mut graph = Graph::new();
    let out = graph.copy_out(&part, vec![AbdPart::scratch(10)]);
    assert!(world.device.run(graph, u64::MAX).unwrap().take_bytes(out).unwrap().to_vec() == [7; 10]);
    drop(part);
    assert_eq!(world.device.live_handles(), 0);
    assert_eq!(world.device.memory().map(|memory| memory.active), Some(MemoryCount::default()));
}

/// Verification must find each kind of wrong result, and sampling must be of the share that was asked for.
#[test]
fn verification_finds_wrong_results() {
    let block = &blocks(1, 8192)[0];
    let written = software(block);
    let stored = Abd::from_slice(&written.stored);
    let mut wrong = written.stored.clone();
    wrong[100] ^= 1;
    let wrong = Abd::from_slice(&wrong);
    let kind = Compression::LZ4;
    let sum = |data, words| Claim::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little, data, words };
    assert!(verify(&Claim::Compress { kind, source: block, output: &stored }));
    assert!(!verify(&Claim::Compress { kind, source: block, output: &wrong }));
    assert!(verify(&Claim::Decompress { kind, source: &stored, output: block }));
    assert!(!verify(&Claim::Decompress { kind, source: &stored, output: &wrong }));
    assert!(verify(&sum(&stored, written.checksum)) && !verify(&sum(&wrong, written.checksum)));
    let zeros = Abd::zeroed(512);
    assert!(verify(&Claim::Zero { data: &zeros, is_zero: true }) && !verify(&Claim::Zero { data: block, is_zero: true }));
    assert!(
        verify(&Claim::Differ { left: &stored, right: &wrong, differ: true })
            && !verify(&Claim::Differ { left: &stored, right: &stored, differ: true })
    );
    let data = [block.slice(0..4096), block.slice(4096..8192)];
    let parity: Vec<u8> = data[0].to_vec().iter().zip(data[1].to_vec()).map(|(a, b)| a ^ b).collect();
    let parity = [Abd::from_slice(&parity)];
    assert!(verify(&Claim::Row { parity: &parity, data: &data }) && !verify(&Claim::Row { parity: &[data[0].clone()], data: &data }));
    for (percent, low, high) in [(0.0, 0, 0), (2.0, 100, 320), (50.0, 4700, 5300), (100.0, 10_000, 10_000)] {
        let sampler = Sampler::new(percent, 1);
        let picked = (0..10_000).filter(|_| sampler.pick()).count();
        assert!((low..=high).contains(&picked), "{percent} %: {picked}");
    }
}

/// Every error has to lead somewhere: nothing but a dead provider restarts a block.
#[test]
fn only_a_dead_provider_restarts_blocks() {
    assert_eq!(OpError::Down.verdict(), Verdict::Down);
    for error in [OpError::Timeout, OpError::Io(5), OpError::BadResult, OpError::Mismatch, OpError::Abandoned, OpError::NoMemory] {
        assert_eq!(error.verdict(), Verdict::Software);
    }
}
