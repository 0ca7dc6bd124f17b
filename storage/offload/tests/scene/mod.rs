//! Blocks on a provider that misbehaves on command: what the tests of Z.I.A. and the campaign of `torture zia` share.
#![allow(dead_code, reason = "each user has its part")]

use super::common::{Rig, TXG, inline, noise, request, text};
use abd::Abd;
use dpusm::{BreakerPolicy, Device, Feature, OpError, RegisterOptions, Registry};
use exec::Exec;
use offload::{Accelerator, ZiaPolicy};
use ondisk::{BlockPtr, Checksum, Compression};
use provider_faulty::{Faulty, Harm};
use provider_software::{Software, SoftwareOptions, features};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vdev::TopKind;
use zio::WriteRequest;

/// Time in ns that a graph may take; a provider that is slow takes longer.
pub const DEADLINE_NS: u64 = 1_000_000_000;
/// The compressions of the program.
pub const KINDS: [Compression; 4] = [Compression::LZ4, Compression::GZIP_6, Compression::ZSTD, Compression::OFF];
/// Data columns of the widest layout: a raidz3 of seven.
const DATA_COLUMNS_MAX: u16 = 4;
/// Level of zstd in the program.
const ZSTD_LEVEL: u8 = 3;
/// Checksums of the program.
pub const SUMS: [Checksum; 2] = [Checksum::FLETCHER_4, Checksum::SHA256];

/// Everything that a provider can do wrong.
pub const HARMS: [Harm; 7] =
    [Harm::Fail(OpError::Failed), Harm::Fail(OpError::Full), Harm::Lie, Harm::Short, Harm::Stall, Harm::Slow(3 * DEADLINE_NS), Harm::Die];

/// True for features that the tests use: fewer than all, so that registration is quick.
fn used(feature: &Feature) -> bool {
    match feature {
        Feature::Compress { kind, .. } | Feature::Decompress { kind } => KINDS.contains(kind),
        Feature::Checksum { kind, .. } => SUMS.contains(kind),
        _ => true,
    }
}

/// The feature at the level and for the widths that the tests use: the highest ones, and wide rows, take long to be tried, and a liar's successor is
/// tried anew.
fn quick(feature: Feature) -> Feature {
    let data_columns_max = DATA_COLUMNS_MAX;
    match feature {
        Feature::RaidGenerate { parity, .. } => Feature::RaidGenerate { parity, data_columns_max },
        Feature::RaidReconstruct { parity, .. } => Feature::RaidReconstruct { parity, data_columns_max },
        Feature::Compress { kind: Compression::ZSTD, .. } => {
            Feature::Compress { kind: Compression::ZSTD, level_min: ZSTD_LEVEL, level_max: ZSTD_LEVEL }
        }
        other => other,
    }
}

/// A pool whose stages run on a provider that can be told to misbehave.
pub struct World {
    pub rig: Rig,
    pub registry: Registry,
    pub faulty: Arc<Faulty>,
    pub device: Device,
    policy: ZiaPolicy,
    options: RegisterOptions,
}

pub fn faulty(exec: &Exec) -> Arc<Faulty> {
    let features = features().into_iter().filter(used).map(quick).collect();
    Faulty::new(exec, "faulty", Software::new(exec, SoftwareOptions { features, ..SoftwareOptions::default() }))
}

pub fn options(failures_max: u32) -> RegisterOptions {
    let breaker = BreakerPolicy { failures_max, slow_max: failures_max.max(3), ..BreakerPolicy::default() };
    RegisterOptions { breaker, test_bytes_max: 4096, scratch: Some(std::env::temp_dir()), ..RegisterOptions::default() }
}

pub fn world(layout: &[(TopKind, usize)], policy: ZiaPolicy, breaker: u32) -> World {
    let rig = Rig::new(inline(), layout, 9);
    let registry = Registry::new(&rig.exec);
    let faulty = faulty(&rig.exec);
    // Where nothing is to be verified, nothing has to be proven either.
    let proofs = if policy.verify_percent == 0.0 { 0 } else { dpusm::PROOFS };
    let options = RegisterOptions { proofs, ..options(breaker) };
    let device = registry.register(faulty.clone(), &options).expect("it behaves so far");
    assert!(device.disabled().is_empty(), "{:?}", device.disabled());
    faulty.inject(None);
    let world = World { rig, registry, faulty, device, policy, options };
    accelerate(&world);
    world
}

/// Gives the pool's stages to the provider.
pub fn accelerate(world: &World) {
    let session = world.registry.get("faulty").expect("it is there");
    world.rig.zio.set_stage(Some(Arc::new(Accelerator::new(session, world.policy.clone()))));
    world.rig.zio.open_stores();
}

/// Loads the provider again when it was caught lying, as somebody would who trusts it.
pub fn trust_again(world: &mut World) {
    if world.device.is_distrusted() {
        world.faulty = faulty(&world.rig.exec);
        world.device = world.registry.replace(world.faulty.clone(), &world.options).expect("it behaves again");
        world.rig.zio.open_stores();
    }
}

/// Policy of all stages, every result verified.
pub fn everything() -> ZiaPolicy {
    ZiaPolicy {
        compress: true,
        decompress: true,
        checksum: true,
        raidz_gen: [true; 3],
        raidz_rec: [true; 3],
        verify_percent: 100.0,
        bytes_min: 2048,
        deadline_ns: DEADLINE_NS,
        ..ZiaPolicy::default()
    }
}

/// Bytes of a record of the program: text, noise, runs, zeros, and some that end in the pointer or are small.
fn bytes_of(number: u64) -> Vec<u8> {
    let bytes = [16 << 10, 8 << 10, 512, 32 << 10][(number % 4) as usize];
    match number % 7 {
        0 | 1 | 5 => text(number, bytes).to_vec(),
        2 => noise(number, bytes).to_vec(),
        3 => (0..bytes).map(|at| (at / 1000) as u8).collect(),
        4 => vec![0; bytes],
        _ => vec![7; bytes],
    }
}

thread_local! {
    /// Bytes of the records that were used: they are written and compared for every fault again.
    static MADE: RefCell<BTreeMap<u64, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// A record of the program, in memory of its own.
pub fn record(number: u64) -> WriteRequest {
    let data = MADE.with_borrow_mut(|made| Abd::from_slice(made.entry(number).or_insert_with(|| bytes_of(number))));
    let compression = KINDS[(number / 2 % 4) as usize];
    let zstd_level = if compression == Compression::ZSTD { ZSTD_LEVEL } else { 0 };
    WriteRequest { compression, zstd_level, checksum: SUMS[(number / 3 % 2) as usize], ..request(data, number) }
}

/// Number of records that a trial of one fault plays: one before that of the operation, its own, and two more. They are played one after the other,
/// so that what came before makes no difference.
pub const PLAYED: u64 = 4;

/// Range of the records to be played for an operation, `length` of them if there are so many, and the operation's number among theirs. `starts` has
/// the number of operations before each record of the program, and of all.
pub fn part(starts: &[u64], at: u64, length: u64) -> (Range<u64>, u64) {
    let own = starts.partition_point(|start| *start <= at) as u64 - 1;
    let first = own.saturating_sub(1);
    (first..(first + length).min(starts.len() as u64 - 1), at - starts[first as usize])
}

/// Numbers of operations before each record of a program when nothing goes wrong, and of all of them.
pub fn starts(world: &World, records: u64, play: impl Fn(Range<u64>)) -> Vec<u64> {
    world.faulty.inject(None);
    let mut starts = vec![0];
    for number in 0..records {
        play(number..number + 1);
        starts.push(world.faulty.operations());
    }
    drain(world);
    starts
}

/// Writes the records, reads them back, and gives their pointers.
pub fn run(rig: &Rig, records: u64, what: &str) -> Vec<BlockPtr> {
    run_part(rig, 0..records, what)
}

/// As [`run`], some of the records.
pub fn run_part(rig: &Rig, records: Range<u64>, what: &str) -> Vec<BlockPtr> {
    records
        .map(|number| {
            let request = record(number);
            let data = request.data.clone();
            let bp = rig.write(request).unwrap_or_else(|error| panic!("{what}: record {number}: {error}"));
            // A hole that replaces nothing does not even know its length.
            let back = if bp.is_hole() { Ok(Abd::zeroed(data.len())) } else { rig.read(&bp) };
            let back = back.unwrap_or_else(|error| panic!("{what}: reading record {number}: {error}"));
            assert!(back == data, "{what}: record {number} reads as something else");
            bp
        })
        .collect()
}

/// Pointers and bytes of every device that software makes of the program.
pub fn reference(layout: &[(TopKind, usize)], records: u64) -> (Vec<BlockPtr>, Vec<Vec<u8>>) {
    let rig = Rig::new(inline(), layout, 9);
    let pointers = run(&rig, records, "software");
    (pointers, rig.contents())
}

/// The space of a block can be used again at once.
pub fn give_back(world: &World, bp: &BlockPtr) {
    bp.dvas().for_each(|dva| world.rig.allocator.unalloc(TXG, &dva));
}

/// Runs what late operations still have to do.
pub fn drain(world: &World) {
    world.faulty.release_stalled();
    let (completer, completion) = exec::completion();
    world.rig.exec.spawn_after(10 * DEADLINE_NS, exec::TaskClass::Background, Box::new(move || completer.complete(())));
    completion.wait(&world.rig.exec);
}

/// Policy of all stages and the writes themselves, and nothing verified but checksums and copies.
pub fn all_the_way() -> ZiaPolicy {
    ZiaPolicy { file_write: true, disk_write: true, verify_percent: 0.0, ..everything() }
}
