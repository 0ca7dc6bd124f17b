//! The host's side on a model of a GPU: results equal to software's, whatever is batched with what, and every call that can fail failing.

mod common;

use abd::{Abd, AbdPart};
use common::{Fake, Harm};
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
    let breaker = BreakerPolicy { failures_max: u32::MAX, ..BreakerPolicy::default() };
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
        let shapes = Shapes { seed, count: 400, bytes_max: 150 << 10, batch: 12, deadline_ns: DEADLINE_NS };
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
    let noise = (0..12_288).map(|_| random.next_u64() as u8).collect::<Vec<u8>>();
    vec![Abd::from_slice(&(0..16_384).map(words).collect::<Vec<u8>>()), Abd::from_slice(&noise), Abd::zeroed(8192)]
}

fn how(block: &Abd) -> Compress {
    Compress { kind: Compression::LZ4, level: 0, limit_bytes: block.len() - block.len() / 8, round_to_bytes: 512 }
}

/// Writes a block as a pool does: {copy in, compress, pad, checksum}, then parity of a row of it; everything that comes back is right,
/// or an error says that it did not come.
fn record(device: &Device, block: &Abd) -> Result<(), OpError> {
    let (source, target) = (device.alloc(block.len())?, device.alloc(block.len())?);
    let mut graph = Graph::new();
    graph.copy_in(block, &source.whole());
    let packed = graph.compress(&source.whole(), &target.whole(), how(block));
    graph.zero_fill(packed.padding());
    let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
    let out = graph.copy_out(packed.result(), vec![AbdPart::scratch(4096), AbdPart::scratch(block.len() - 4096)]);
    let mut report = run(device, graph)?;
    let length = report.compressed(packed)?;
    let (stored, words) = (report.take_bytes(out)?, report.checksum(sum)?);
    let whole = if length.is_some() { target.whole() } else { source.whole() };
    let claim = match length {
        Some(length) => Claim::Compress { kind: Compression::LZ4, source: block, output: &stored.slice(0..length) },
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
