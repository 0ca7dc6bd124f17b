//! The host's side on a model of a GPU: results equal to software's, whatever is batched with what, and every call that can fail failing.

use crate::common::{Fake, Harm, Lie};
use abd::{Abd, AbdPart};
use dpusm::{
    BreakerPolicy, Claim, Compress, Device, Graph, OpError, Program, Provider, RaidContext, RegisterOptions, Registry, Report, Shapes,
    random_shapes, verify,
};
use exec::{Exec, Inline, Pool};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_cuda::{Batching, Cuda, CudaOptions, Kernel};
use std::sync::Arc;

const MEMORY_BYTES: u64 = 64 << 20;
const DEADLINE_NS: u64 = 10_000_000_000;

fn small(lanes: usize) -> Batching {
    Batching { lanes, staging_bytes: 192 << 10, programs_max: 8, bytes_max: 128 << 10, ..Batching::default() }
}

struct World {
    exec: Exec,
    fake: Arc<Fake>,
    cuda: Arc<Cuda>,
    registry: Registry,
    device: Device,
}

fn world_on(exec: Exec, batching: Batching) -> World {
    let fake = Arc::new(Fake::new(7, MEMORY_BYTES));
    let options = CudaOptions { batching, ..CudaOptions::default() };
    let cuda = Cuda::on(&exec, fake.clone(), &options).unwrap();
    let registry = Registry::new(&exec);
    let breaker = BreakerPolicy { failures_max: u32::MAX, slow_max: u32::MAX, ..BreakerPolicy::default() };
    let options = RegisterOptions { breaker, test_bytes_max: 4096, ..RegisterOptions::default() };
    let device = registry.register(cuda.clone(), &options).unwrap();
    assert_eq!(device.disabled(), []);
    World { exec, fake, cuda, registry, device }
}

fn world(batching: Batching) -> World {
    world_on(Arc::new(Inline::new(3)), batching)
}

/// A pool's blocks must be the same with and without a GPU, however its work is cut into waves and steps.
#[test]
fn random_shapes_equal_software() {
    for (seed, lanes) in [(1, 1), (2, 2), (3, 4)] {
        let world = world(small(lanes));
        let shapes = Shapes { seed, count: 800, bytes_max: 150 << 10, batch: 12, deadline_ns: DEADLINE_NS };
        let tried = random_shapes(&world.device, &shapes).unwrap_or_else(|fault| panic!("{lanes} lanes: {fault}"));
        assert!(tried.len() == world.device.capabilities().list.len() && tried.values().all(|count| *count > 3), "{tried:?}");
        assert_eq!((world.device.live_handles(), world.fake.work_left()), (0, 0));
    }
    let world = world_on(Arc::new(Pool::new(3)), small(3));
    random_shapes(&world.device, &Shapes { count: 400, bytes_max: 150 << 10, ..Shapes::default() }).unwrap();
    assert_eq!(world.device.live_handles(), 0);
}

/// The blocks of the tests: one that compresses, one that does not, one of zeros.
fn blocks() -> Vec<Abd> {
    let words = |at: usize| b"compress me, or else "[at % 21];
    let mut random = exec::SplitMix::new(9);
    let noise = random.bytes(12_288);
    vec![Abd::from_slice(&(0..16_384).map(words).collect::<Vec<u8>>()), Abd::from_slice(&noise), Abd::zeroed(8192)]
}

fn how(block: &Abd) -> Compress {
    how_by(Compression::LZ4, block)
}

fn how_by(kind: Compression, block: &Abd) -> Compress {
    Compress { kind, level: 3, limit_bytes: block.len() - block.len() / 8, round_to_bytes: 512 }
}

/// Writes a block as a pool does: {copy in, compress, pad, checksum}, then parity of a row of it; everything that comes back is right,
/// or an error says that it did not come.
fn record(device: &Device, block: &Abd) -> Result<(), OpError> {
    record_by(Compression::LZ4, device, block)
}

fn record_by(kind: Compression, device: &Device, block: &Abd) -> Result<(), OpError> {
    let (source, target) = (device.alloc(block.len())?, device.alloc(block.len())?);
    let mut graph = Graph::new();
    graph.copy_in(block, &source.whole());
    let packed = graph.compress(&source.whole(), &target.whole(), how_by(kind, block));
    graph.zero_fill(packed.padding());
    let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
    let out = graph.copy_out(packed.result(), vec![AbdPart::scratch(4096), AbdPart::scratch(block.len() - 4096)]);
    let mut report = run(device, graph)?;
    let length = report.compressed(packed)?;
    let (stored, words) = (report.take_bytes(out)?, report.checksum(sum)?);
    let whole = if length.is_some() { target.whole() } else { source.whole() };
    let claim = match length {
        Some(length) => Claim::Compress { kind, source: block, output: &stored.slice(0..length) },
        None => Claim::Differ { left: block, right: &stored, differ: false },
    };
    assert!(verify(&claim), "compressed wrongly");
    assert!(verify(&Claim::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little, data: &stored, words }));
    row(device, &stored, &whole.slice(0..stored.len())?)
}

fn row(device: &Device, stored: &Abd, whole: &dpusm::View) -> Result<(), OpError> {
    let half = stored.len().div_ceil(1024) * 512;
    let parity = [device.alloc(half)?, device.alloc(half)?];
    let data = vec![whole.slice(0..half)?, whole.slice(half..stored.len())?];
    let columns = RaidContext::new(parity.iter().map(|buffer| buffer.whole()).collect(), data)?;
    let mut graph = Graph::new();
    graph.raid_generate(&columns);
    let outs: Vec<_> = parity.iter().map(|buffer| graph.copy_out(buffer.whole(), vec![AbdPart::scratch(half)])).collect();
    let mut report = run(device, graph)?;
    let made = outs.into_iter().map(|node| report.take_bytes(node)).collect::<Result<Vec<_>, _>>()?;
    let data = [stored.slice(0..half), stored.slice(half..stored.len())];
    assert!(verify(&Claim::Row { parity: &made, data: &data }), "parity is wrong");
    Ok(())
}

fn run(device: &Device, graph: Graph) -> Result<Report, OpError> {
    let report = device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?;
    report.all()?;
    Ok(report)
}

/// A call to the driver that fails anywhere costs the operation that it was for, and nothing else: no wrong byte, no leak, no hang.
#[test]
fn every_call_can_fail() {
    let world = world(small(1));
    let lanes_own = world.cuda.memory().unwrap().active.buffers;
    world.fake.inject(None);
    blocks().iter().for_each(|block| record(&world.device, block).unwrap());
    let (calls, _) = world.fake.calls();
    assert!(calls > 80, "{calls}");
    for harm in [Harm::Fail, Harm::NoMemory] {
        let mut failed = 0;
        for at in 0..calls {
            world.fake.inject(Some((at, harm)));
            for block in blocks() {
                match record(&world.device, &block) {
                    Ok(()) => {}
                    Err(OpError::Failed | OpError::NoMemory) => failed += 1,
                    Err(other) => panic!("{harm:?} at {at}: {other}"),
                }
            }
            assert_eq!(world.device.live_handles(), 0, "{harm:?} at {at} leaked");
            assert_eq!(world.cuda.memory().unwrap().active.buffers, lanes_own, "{harm:?} at {at} leaked device memory");
            assert_eq!(world.fake.work_left(), 0, "{harm:?} at {at}");
        }
        assert!(failed > calls / 4, "{harm:?}: {failed} of {calls}");
    }
    let World { fake, cuda, registry, device, .. } = world;
    drop((cuda, registry, device));
    assert_eq!(fake.memory_left(), 0, "device memory is left");
}

/// Decompresses on the device what software stored: the block, or an error.
fn read_by(kind: Compression, device: &Device, block: &Abd) -> Result<(), OpError> {
    let mut stored = vec![0; block.len() * 2];
    let length = kernels::compress(kind, 3, &block.to_vec(), &mut stored).unwrap().next_multiple_of(512);
    let (source, target) = (device.alloc(length)?, device.alloc(block.len())?);
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(&stored[..length]), &source.whole());
    graph.decompress(&source.whole(), &target.whole(), kind);
    let out = graph.copy_out(target.whole(), vec![AbdPart::scratch(block.len())]);
    assert!(run(device, graph)?.take_bytes(out)? == *block, "decompressed wrongly");
    Ok(())
}

/// As above with the library of gzip and zstd: what fails there is done in software, and its memory comes back.
#[test]
fn every_call_for_the_library_can_fail() {
    let both = |kind, device: &Device| -> [Result<(), OpError>; 2] {
        let block = &blocks()[0];
        [record_by(kind, device, block), read_by(kind, device, block)]
    };
    for kind in [Compression::GZIP_6, Compression::ZSTD] {
        let world = world(small(2));
        world.fake.inject(None);
        assert_eq!(both(kind, &world.device), [Ok(()); 2]);
        let (calls, own) = (world.fake.calls().0, world.cuda.memory().unwrap().active.buffers);
        for harm in [Harm::Fail, Harm::NoMemory] {
            let mut failed = 0;
            for at in 0..calls {
                world.fake.inject(Some((at, harm)));
                for outcome in both(kind, &world.device) {
                    match outcome {
                        Ok(()) => {}
                        Err(OpError::Failed | OpError::NoMemory) => failed += 1,
                        Err(other) => panic!("{kind}: {harm:?} at {at}: {other}"),
                    }
                }
                assert_eq!(world.cuda.memory().unwrap().active.buffers, own, "{kind}: {harm:?} at {at} leaked device memory");
                assert_eq!((world.device.live_handles(), world.fake.work_left()), (0, 0), "{kind}: {harm:?} at {at}");
            }
            assert!(failed > calls / 4, "{kind}: {harm:?}: {failed} of {calls}");
        }
    }
}

/// The library's word is not taken for it: wrong lengths and bad statuses are errors, as is a block of gzip whose Adler-32 is another.
#[test]
fn a_library_that_lies_is_found_out() {
    let world = world(small(1));
    let block = &blocks()[0];
    for (lie, kind, is_read) in [
        (Lie::Status, Compression::GZIP_6, false),
        (Lie::Status, Compression::GZIP_6, true),
        (Lie::Status, Compression::ZSTD, false),
        (Lie::Status, Compression::ZSTD, true),
        (Lie::Nothing, Compression::GZIP_6, false),
        (Lie::Nothing, Compression::GZIP_6, true),
        (Lie::Nothing, Compression::ZSTD, false),
        (Lie::Nothing, Compression::ZSTD, true),
        (Lie::Length, Compression::GZIP_6, true),
        (Lie::Length, Compression::ZSTD, true),
        (Lie::Byte, Compression::GZIP_6, true),
        // Of a frame this is the magic number.
        (Lie::Byte, Compression::ZSTD, false),
    ] {
        world.fake.lie(Some(lie));
        let outcome = if is_read { read_by(kind, &world.device, block) } else { record_by(kind, &world.device, block) };
        assert_eq!(outcome, Err(OpError::Failed), "{lie:?} {kind} {is_read}");
        world.fake.lie(None);
        assert_eq!((record_by(kind, &world.device, block), read_by(kind, &world.device, block)), (Ok(()), Ok(())), "{lie:?} {kind}");
    }
}

/// The library is fast only with many blocks at once: those of a wave go to it together.
#[test]
fn a_wave_is_one_batch_of_the_library() {
    let world = world(Batching { lanes: 1, programs_max: 64, bytes_max: 1 << 20, staging_bytes: 1 << 20, ..small(1) });
    let before: u64 = world.fake.batches().values().sum();
    let mut waiting = Vec::new();
    let mut batch = Vec::new();
    for kind in [Compression::GZIP_4, Compression::GZIP_6, Compression::ZSTD].into_iter().cycle().take(42) {
        let block = &blocks()[0];
        let (source, target) = (world.device.alloc(block.len()).unwrap(), world.device.alloc(block.len()).unwrap());
        let mut graph = Graph::new();
        graph.copy_in(block, &source.whole());
        let packed = graph.compress(&source.whole(), &target.whole(), how_by(kind, block));
        let (completer, completion) = exec::completion::<Report>();
        batch.push((graph, Box::new(move |report| completer.complete(report)) as dpusm::ReportFn));
        waiting.push((packed, completion));
    }
    assert!(world.device.submit_all(batch, DEADLINE_NS).iter().all(Result::is_ok));
    for (packed, completion) in waiting {
        assert!(completion.wait(&world.exec).compressed(packed).unwrap().is_some());
    }
    let batches = world.fake.batches().values().sum::<u64>() - before;
    assert!(batches <= 4, "{batches} batches for 42 blocks of two codecs");
}

/// A device that goes away at any call ends all that is on it with `Down`, and is left alone from then on.
#[test]
fn the_device_can_be_lost_at_every_call() {
    let calls = {
        let world = world(small(2));
        world.fake.inject(None);
        blocks().iter().for_each(|block| record(&world.device, block).unwrap());
        world.fake.calls().0
    };
    for at in (0..calls).step_by(3) {
        let world = world(small(2));
        world.fake.inject(Some((at, Harm::Lose)));
        let outcomes: Vec<_> = blocks().iter().map(|block| record(&world.device, block)).collect();
        assert_eq!(world.fake.calls().1, 1, "at {at}");
        assert!(outcomes.contains(&Err(OpError::Down)), "at {at}: {outcomes:?}");
        assert_eq!(record(&world.device, &blocks()[0]), Err(OpError::Down), "at {at}");
        assert!(world.cuda.is_lost(), "at {at}");
        assert_eq!(world.device.live_handles(), 0, "at {at}");
    }
}

/// As above with the library of gzip and zstd.
#[test]
fn the_device_can_be_lost_in_the_library() {
    for (kind, is_read) in
        [(Compression::GZIP_6, false), (Compression::GZIP_6, true), (Compression::ZSTD, false), (Compression::ZSTD, true)]
    {
        let go = |world: &World| {
            let block = &blocks()[0];
            if is_read { read_by(kind, &world.device, block) } else { record_by(kind, &world.device, block) }
        };
        let first = world(small(1));
        first.fake.inject(None);
        go(&first).unwrap();
        for at in (0..first.fake.calls().0).step_by(8) {
            let world = world(small(1));
            world.fake.inject(Some((at, Harm::Lose)));
            assert_eq!((go(&world), go(&world)), (Err(OpError::Down), Err(OpError::Down)), "{kind} {is_read} at {at}");
            assert!(world.cuda.is_lost() && world.fake.calls().1 == 1, "{kind} {is_read} at {at}");
            assert_eq!(world.device.live_handles(), 0, "{kind} {is_read} at {at}");
        }
    }
}

/// Blocks that are written at the same time must share launches: one launch each costs more than the work.
#[test]
fn a_wave_shares_its_launches() {
    let world = world(Batching { lanes: 1, programs_max: 64, ..small(1) });
    let buffers: Vec<_> = (0..40).map(|_| world.device.alloc(2048).unwrap()).collect();
    let graphs = buffers.iter().enumerate().map(|(number, buffer)| {
        let mut graph = Graph::new();
        graph.copy_in(&Abd::from_slice(&[number as u8; 2048]), &buffer.whole());
        let node = graph.checksum(buffer.whole(), Checksum::FLETCHER_4, ByteOrder::Little);
        (graph, node)
    });
    let before = world.fake.launches().get(&Kernel::Fletcher4).copied().unwrap_or(0);
    let mut waiting = Vec::new();
    let batch = graphs.map(|(graph, node)| {
        let (completer, completion) = exec::completion::<Report>();
        waiting.push((node, completion));
        (graph, Box::new(move |report| completer.complete(report)) as dpusm::ReportFn)
    });
    let batch: Vec<_> = batch.collect();
    assert!(world.device.submit_all(batch, DEADLINE_NS).iter().all(Result::is_ok));
    for (number, (node, completion)) in waiting.into_iter().enumerate() {
        let words = completion.wait(&world.exec).checksum(node).unwrap();
        assert_eq!(words, kernels::checksum(Checksum::FLETCHER_4, &[&[number as u8; 2048]], ByteOrder::Little).unwrap());
    }
    let launches = world.fake.launches()[&Kernel::Fletcher4] - before;
    assert!(launches <= 2, "{launches} launches for 40 blocks");
}

/// A checksum takes microseconds, a block of gzip most of a second: reads and writes must not wait for those of another dataset that the library has.
#[test]
fn quick_programs_do_not_wait_for_the_library() {
    let world = world(Batching { programs_max: 1, ..small(4) });
    world.fake.hold(true);
    let block = &blocks()[0];
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let (source, target) = (world.device.alloc(block.len()).unwrap(), world.device.alloc(block.len()).unwrap());
        let mut graph = Graph::new();
        graph.copy_in(block, &source.whole());
        let packed = graph.compress(&source.whole(), &target.whole(), how_by(Compression::GZIP_6, block));
        let (completer, completion) = exec::completion::<Report>();
        world.device.submit(graph, DEADLINE_NS, move |report| completer.complete(report)).unwrap();
        waiting.push((packed, completion));
    }
    for number in 0..3 {
        let buffer = world.device.alloc(2048).unwrap();
        let mut graph = Graph::new();
        graph.copy_in(&Abd::from_slice(&[number; 2048]), &buffer.whole());
        let node = graph.checksum(buffer.whole(), Checksum::FLETCHER_4, ByteOrder::Little);
        let report = world.device.run(graph, DEADLINE_NS / 10).unwrap();
        assert!(report.checksum(node).is_ok(), "{:?}", report.checksum(node));
    }
    world.fake.hold(false);
    for (packed, completion) in waiting {
        assert!(completion.wait(&world.exec).compressed(packed).unwrap().is_some());
    }
}

/// What the queue has no room for goes back to whoever sent it, who does it in software at once.
#[test]
fn a_full_queue_gives_back() {
    let exec: Exec = Arc::new(Inline::new(1));
    let options = CudaOptions { batching: Batching { queue_max: 3, ..small(1) }, ..CudaOptions::default() };
    let cuda = Cuda::on(&exec, Arc::new(Fake::new(1, MEMORY_BYTES)), &options).unwrap();
    let program = || Program::new(Graph::new(), Box::new(|_| ()));
    assert!(cuda.submit((0..3).map(|_| program()).collect()).is_ok());
    // One wave took what was there; three more fit while it is under way.
    let refused = cuda.submit((0..5).map(|_| program()).collect()).unwrap_err();
    assert_eq!(refused.len(), 2);
    cuda.shut_down();
}

/// Blocks that do not fit into the device's memory are refused, and those that are there go on.
#[test]
fn memory_runs_out_and_comes_back() {
    let world = world(small(1));
    let mut held = Vec::new();
    for bytes in [1 << 20, 1 << 16, 1 << 14] {
        let error = loop {
            match world.device.alloc(bytes) {
                Ok(buffer) => held.push(buffer),
                Err(error) => break error,
            }
        };
        assert!(error == OpError::NoMemory && held.len() > 40, "{error} after {}", held.len());
    }
    // There is no room for the compressor's scratch memory: that operation fails, the copies of the same graph do not.
    let (source, target) = (&held[0], &held[1]);
    let block = Abd::zeroed(1 << 17);
    let mut graph = Graph::new();
    graph.copy_in(&block, &source.view(0..1 << 17).unwrap());
    let packed = graph.compress(&source.view(0..1 << 17).unwrap(), &target.whole(), how(&block));
    let out = graph.copy_out(source.view(0..1 << 17).unwrap(), vec![AbdPart::scratch(1 << 17)]);
    let mut report = world.device.run(graph, DEADLINE_NS).unwrap();
    assert_eq!(report.compressed(packed), Err(OpError::NoMemory));
    assert!(report.take_bytes(out).unwrap().is_zero());
    held.clear();
    blocks().iter().for_each(|block| record(&world.device, block).unwrap());
    assert_eq!(world.device.live_handles(), 0);
}

/// Whoever gives up gets an answer at once; the device's memory stays until the device is done with it (the model looks at that).
#[test]
fn given_up_work_keeps_its_memory_to_the_end() {
    for how_it_ends in ["cancel", "deadline", "down", "unregister"] {
        let world = world(small(1));
        let mut ends = Vec::new();
        for block in blocks() {
            let (source, target) = (world.device.alloc(block.len()).unwrap(), world.device.alloc(block.len()).unwrap());
            let mut graph = Graph::new();
            graph.copy_in(&block, &source.whole());
            let packed = graph.compress(&source.whole(), &target.whole(), how(&block));
            graph.copy_out(packed.result(), vec![AbdPart::scratch(block.len())]);
            let (completer, completion) = exec::completion();
            let deadline_ns = if how_it_ends == "deadline" { 1 } else { DEADLINE_NS };
            let submission = world.device.submit(graph, deadline_ns, move |report| completer.complete(report.all())).unwrap();
            ends.push((submission, completion));
        }
        // The first wave begins.
        pass(&world.exec, if how_it_ends == "deadline" { 1 } else { 10_000 });
        match how_it_ends {
            "cancel" => ends.iter().for_each(|(submission, _)| submission.cancel()),
            "down" => world.registry.invalidate("cuda").unwrap(),
            "unregister" => world.registry.unregister("cuda", true).unwrap(),
            _ => {}
        }
        let expected = match how_it_ends {
            "cancel" => OpError::Cancelled,
            "deadline" => OpError::Timeout,
            _ => OpError::Down,
        };
        for (_, completion) in ends {
            assert_eq!(completion.wait(&world.exec), Err(expected), "{how_it_ends}");
        }
        // The device finishes what it has.
        pass(&world.exec, DEADLINE_NS);
        assert_eq!((world.fake.work_left(), world.device.live_handles()), (0, 0), "{how_it_ends}");
    }
}

/// Lets time go by, with what is to be done in it.
fn pass(exec: &Exec, duration_ns: u64) {
    let (completer, completion) = exec::completion();
    exec.spawn_after(duration_ns, exec::TaskClass::Background, Box::new(move || completer.complete(())));
    completion.wait(exec);
}
