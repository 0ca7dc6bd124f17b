//! Every operation of a provider goes wrong, in every way, on every stage, while a hundred records are written and read (issue of accelerators,
//! docs/adr/0006 and 0007): whatever happens, each record reads as it was written, the devices scrub clean, and no handle leaks.
//!
//! One trial is the part of the program around the operation with one fault: a record before it, its own, and what follows. Records are written and
//! read one after the other, so what came before makes no difference. The pipeline runs on one thread with a virtual clock, so a trial can be repeated: its
//! name has all that it follows from.

use crate::common::Rig;
use crate::outcome::Verdict;
use crate::scene::{HARMS, PLAYED, World, drain, everything, faulty, give_back, options, part, record, run, run_part, starts, world};
use device::DeviceError;
use dpusm::{BreakerState, OpKind};
use offload::{ZiaMode, ZiaPolicy};
use ondisk::BlockPtr;
use provider_faulty::{Fault, Harm, When};
use std::fmt;
use std::ops::Range;
use vdev::TopKind;

/// Number of records of the program.
pub const RECORDS: u64 = 100;
/// Layout that they are written to.
const LAYOUT: [(TopKind, usize); 1] = [(TopKind::Raidz(2), 5)];
const LEAVES: usize = 5;
/// Number of records that are on their way when a provider is replaced.
const IN_FLIGHT: u64 = 24;
/// Number of records that a trial plays after everything failed.
const PLAYED_LONG: u64 = 30;
/// Number of rounds in which breakers have to close: each lets one probe of each kind go.
const BACKOFFS: u64 = 40;

/// Stages that are on the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Stages, all but the writes to devices.
    All,
    /// Stage of `zia_compress`.
    Compress,
    /// Stage of `zia_checksum`.
    Checksum,
    /// Stage of `zia_raidz2_gen`.
    Parity,
    /// Stage of `zia_decompress`.
    Decompress,
    /// Stage of `zia_raidz2_rec`, with two devices gone.
    Reconstruct,
    /// Stages, all of them, and the writes to devices.
    Store,
}

/// Row of the campaign: every trial of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// One operation goes wrong.
    Once(Stage, ZiaMode, Harm),
    /// All operations from one on fail, until breakers open; then it works again, and they close.
    Breaker,
    /// Provider is replaced, or declared dead and then replaced, with records on their way.
    Replaced,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Once(stage, mode, harm) => write!(f, "{stage:?} {mode:?} {harm:?}"),
            Row::Breaker => f.write_str("all operations from one on fail"),
            Row::Replaced => f.write_str("replaced, removed, with records on their way"),
        }
    }
}

/// Rows of the campaign, all of them.
pub fn rows() -> Vec<Row> {
    let both = [ZiaMode::Offload, ZiaMode::PerOp];
    let mut rows = Vec::new();
    for stage in [Stage::All, Stage::Compress, Stage::Checksum, Stage::Parity] {
        rows.extend(both.iter().flat_map(|mode| HARMS.map(|harm| Row::Once(stage, *mode, harm))));
    }
    for stage in [Stage::Decompress, Stage::Reconstruct, Stage::Store] {
        rows.extend(HARMS.map(|harm| Row::Once(stage, ZiaMode::Offload, harm)));
    }
    rows.extend([Row::Breaker, Row::Replaced]);
    rows
}

/// Share of a row: every `every`th trial, from the `rest`th on.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Number of parts that there are.
    pub every: u64,
    /// Number of this part.
    pub rest: u64,
}

/// Findings of a row's trials.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Number of operations of the program without a fault: trials of the whole row.
    pub operations: u64,
    /// Verdict on the trials of this share.
    pub verdict: Verdict,
}

fn policy(stage: Stage, mode: ZiaMode) -> ZiaPolicy {
    let all = ZiaPolicy { mode, ..everything() };
    let none =
        ZiaPolicy { compress: false, decompress: false, checksum: false, raidz_gen: [false; 3], raidz_rec: [false; 3], ..all.clone() };
    match stage {
        Stage::All => all,
        Stage::Compress => ZiaPolicy { compress: true, ..none },
        Stage::Checksum => ZiaPolicy { checksum: true, ..none },
        Stage::Parity => ZiaPolicy { raidz_gen: [true; 3], ..none },
        Stage::Decompress => ZiaPolicy { decompress: true, ..none },
        Stage::Reconstruct => ZiaPolicy { raidz_rec: [true; 3], ..none },
        Stage::Store => ZiaPolicy { mode, file_write: true, disk_write: true, ..everything() },
    }
}

/// Runs a share of a row's trials over a program of `records`.
pub fn torture(row: Row, records: u64, share: Share) -> Found {
    match row {
        Row::Once(stage, mode, harm) => once(stage, mode, harm, records, share),
        Row::Breaker => breaker(records, share),
        Row::Replaced => replaced(share),
    }
}

/// World with the program's records in it, if they are only to be read.
struct Scene {
    world: World,
    stage: Stage,
    records: u64,
    /// Pointers to the records, when devices are gone and they can only be read.
    written: Vec<BlockPtr>,
    /// Number of handles of open stores.
    stores: usize,
}

impl Scene {
    fn new(stage: Stage, mode: ZiaMode, records: u64, failures_max: u32) -> Scene {
        let world = world(&LAYOUT, policy(stage, mode), failures_max);
        let mut written = Vec::new();
        if stage == Stage::Store {
            world.rig.zio.open_stores();
        }
        if stage == Stage::Reconstruct {
            written = run(&world.rig, records, "whole");
            world.rig.kill(&[1, 2], DeviceError::Io);
        }
        let stores = world.device.live_handles();
        Scene { world, stage, records, written, stores }
    }

    /// Plays some records: written and read, or read through the devices that are left.
    fn play(&self, records: Range<u64>, what: &str) -> Result<Vec<BlockPtr>, String> {
        if self.stage != Stage::Reconstruct {
            return Ok(run_part(&self.world.rig, records, what));
        }
        for number in records {
            let bp = &self.written[number as usize];
            let back = if bp.is_hole() { continue } else { self.world.rig.read(bp) };
            if back.map_err(|error| format!("record {number}: {error}"))? != record(number).data {
                return Err(format!("record {number} reads as something else"));
            }
        }
        Ok(Vec::new())
    }

    /// Numbers of operations before each record when nothing goes wrong, and of all of them.
    fn starts(&self) -> Vec<u64> {
        starts(&self.world, self.records, |records| {
            let pointers = self.play(records, "no fault").unwrap_or_default();
            pointers.iter().for_each(|bp| give_back(&self.world, bp));
        })
    }

    fn trial(&self, records: Range<u64>, fault: Fault) -> Result<(), String> {
        self.world.faulty.inject(Some(fault));
        let pointers = self.play(records, "the program")?;
        let struck = self.world.faulty.struck();
        if struck != 1 {
            return Err(format!("{struck} operations were struck"));
        }
        drain(&self.world);
        self.scrub(&pointers)?;
        no_errors(&self.world.rig, if self.stage == Stage::Reconstruct { &[0, 3, 4] } else { &[0, 1, 2, 3, 4] })?;
        self.no_leak()
    }

    /// Checks that every block is whole on every device, and its space can be used again.
    fn scrub(&self, pointers: &[BlockPtr]) -> Result<(), String> {
        for bp in pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
            self.world.rig.scrub(bp).map_err(|error| format!("a scrub: {error}"))?;
            give_back(&self.world, bp);
        }
        Ok(())
    }

    fn is_tripped(&self) -> bool {
        let device = &self.world.device;
        device.is_distrusted() || OpKind::ALL.iter().any(|kind| device.breaker(*kind).0 != BreakerState::Closed)
    }

    fn no_leak(&self) -> Result<(), String> {
        match self.world.device.live_handles() {
            handles if handles == self.stores => Ok(()),
            handles => Err(format!("{handles} handles live, {} should", self.stores)),
        }
    }
}

fn no_errors(rig: &Rig, leaves: &[usize]) -> Result<(), String> {
    match leaves.iter().find(|leaf| rig.checksum_errors(**leaf) > 0) {
        Some(leaf) => Err(format!("device {leaf} has wrong bytes")),
        None => Ok(()),
    }
}

fn once(stage: Stage, mode: ZiaMode, harm: Harm, records: u64, share: Share) -> Found {
    let mut scene = Scene::new(stage, mode, records, u32::MAX);
    let starts = scene.starts();
    let operations = starts.last().copied().unwrap_or(0);
    let mut verdict = Verdict::default();
    for at in (share.rest..operations).step_by(share.every as usize) {
        let (part, number) = part(&starts, at, PLAYED);
        let fault = Fault { harm, when: When::At(number) };
        let failed = verdict.failed;
        verdict.trial(&format!("{stage:?} {mode:?} {harm:?} at {at}"), || scene.trial(part, fault));
        if verdict.failed > failed || scene.is_tripped() {
            // What a failed trial left must not be blamed on the next one, and after a lie nothing goes there any more.
            scene = Scene::new(stage, mode, records, u32::MAX);
        }
    }
    Found { operations, verdict }
}

/// Lets everything fail from one operation on; breakers open, so that most of the rest never goes there. When it works again they close.
fn breaker(records: u64, share: Share) -> Found {
    let starts = Scene::new(Stage::All, ZiaMode::Offload, records, u32::MAX).starts();
    let operations = starts.last().copied().unwrap_or(0);
    let mut verdict = Verdict::default();
    for at in (share.rest..operations).step_by(share.every as usize) {
        verdict.trial(&format!("all fail from {at} on"), || breaker_trial(records, &starts, at));
    }
    Found { operations, verdict }
}

fn breaker_trial(records: u64, starts: &[u64], at: u64) -> Result<(), String> {
    let scene = Scene::new(Stage::All, ZiaMode::Offload, records, 5);
    let (world, device) = (&scene.world, &scene.world.device);
    let (part, number) = part(starts, at, PLAYED_LONG);
    let left = starts[part.end as usize] - at;
    world.faulty.inject(Some(Fault { harm: Harm::Fail(dpusm::OpError::Failed), when: When::From(number) }));
    let pointers = scene.play(part.clone(), "the program")?;
    scene.scrub(&pointers)?;
    let trips = || OpKind::ALL.iter().map(|kind| device.breaker(*kind).1).sum::<u64>();
    let (struck, opened) = (world.faulty.struck(), trips());
    if left > 200 && (opened == 0 || struck > left / 2) {
        return Err(format!("{opened} breakers opened, {struck} of {left} operations went there to fail"));
    }
    world.faulty.inject(None);
    // Each round lets one probe of each kind go.
    for _ in 0..BACKOFFS {
        drain(world);
        let pointers = scene.play(part.clone(), "works again")?;
        scene.scrub(&pointers)?;
        if OpKind::ALL.iter().all(|kind| device.breaker(*kind).0 == BreakerState::Closed) {
            break;
        }
    }
    if let Some(kind) = OpKind::ALL.iter().find(|kind| device.breaker(**kind).0 != BreakerState::Closed) {
        return Err(format!("the breaker of {} stays {:?}", kind.name(), device.breaker(*kind).0));
    }
    no_errors(&world.rig, &[0, 1, 2, 3, 4])?;
    drain(world);
    scene.no_leak()
}

/// Puts another provider in the place of one that has records on their way, or after it was declared dead with them: after each of their
/// operations.
fn replaced(share: Share) -> Found {
    let operations = {
        let scene = Scene::new(Stage::All, ZiaMode::Offload, 0, u32::MAX);
        let ended = ends(&scene.world, begin(&scene.world));
        if ended.is_ok() { scene.world.faulty.operations() } else { 0 }
    };
    let mut verdict = Verdict::default();
    for at in (share.rest..operations).step_by(share.every as usize) {
        for is_dead in [false, true] {
            let what = format!("{} after {at} operations", if is_dead { "removed" } else { "replaced" });
            verdict.trial(&what, || replaced_trial(at, is_dead));
        }
    }
    Found { operations, verdict }
}

/// Record on its way.
type Waiting = (u64, exec::Completion<Result<BlockPtr, zio::ZioError>>);

fn begin(world: &World) -> Vec<Waiting> {
    let one = |number: u64| {
        let (completer, completion) = exec::completion();
        world.rig.zio.write(record(number), Box::new(move |result| completer.complete(result)));
        (number, completion)
    };
    (0..IN_FLIGHT).map(one).collect()
}

/// Waits for records.
fn ends(world: &World, waiting: Vec<Waiting>) -> Result<Vec<(u64, BlockPtr)>, String> {
    let end = |(number, completion): Waiting| match completion.wait(&world.rig.exec) {
        Ok(bp) => Ok((number, bp)),
        Err(error) => Err(format!("record {number}: {error}")),
    };
    waiting.into_iter().map(end).collect()
}

fn read_all(world: &World, written: &[(u64, BlockPtr)]) -> Result<(), String> {
    for (number, bp) in written {
        if !bp.is_hole() && world.rig.read(bp).map_err(|error| format!("reading {number}: {error}"))? != record(*number).data {
            return Err(format!("record {number} reads as something else"));
        }
    }
    Ok(())
}

fn replaced_trial(at: u64, is_dead: bool) -> Result<(), String> {
    let scene = Scene::new(Stage::All, ZiaMode::Offload, 0, u32::MAX);
    let world = &scene.world;
    let exec = &world.rig.exec;
    let waiting = begin(world);
    exec.wait(&|| world.faulty.operations() >= at, &|| {});
    if is_dead {
        world.registry.invalidate("faulty").map_err(|error| error.to_string())?;
    }
    let next = faulty(exec);
    // Its tests take turns with the records.
    world.registry.replace(next.clone(), &options(u32::MAX)).map_err(|error| error.to_string())?;
    next.inject(None);
    read_all(world, &ends(world, waiting)?)?;
    run(&world.rig, IN_FLIGHT, "the new one");
    if next.operations() == 0 {
        return Err("records do not go to the new one".into());
    }
    no_errors(&world.rig, &(0..LEAVES).collect::<Vec<_>>())?;
    drain(world);
    match world.device.live_handles() {
        0 => Ok(()),
        handles => Err(format!("{handles} handles of the old one live")),
    }
}
