//! Power cuts: the machine stops after any write or flush of a program, and what is left must be one of its states.
//!
//! The state found must not be older than the last one that the pool promised to keep, and the space maps must agree with
//! the block pointers, before and after the pool is used again.

use crate::machine::{Layout, Machine, Trouble, mount, read_state};
use crate::model::{Owner, Seen, State};
use crate::outcome::Verdict;
use crate::program::{Program, Runner};
use abd::Abd;
use pool::Pool;
use sim::{Image, Recording};
use std::sync::Arc;
use zpl::{NewNode, WriteData};

/// Recording of what a program did to the devices, and what was promised when.
pub struct Recorded {
    /// Layout of the pool.
    pub layout: Layout,
    /// Seed of program and executor.
    pub seed: u64,
    /// Writes and flushes, every one; marks hold the operation that began last (high half) and the promise (low half).
    pub recording: Recording,
    /// States that a user sees after each operation.
    pub states: Vec<State>,
    /// Hash that depends on every operation on the devices and their order.
    pub trace_hash: u64,
}

/// Moment of a program, as a mark of its recording says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Number of the operation that began last.
    pub started: usize,
    /// Number of the last one that was promised to be kept.
    pub acknowledged: usize,
}

impl Moment {
    /// Mark that says it.
    pub(crate) fn mark(self) -> u64 {
        (self.started as u64) << 32 | self.acknowledged as u64
    }

    /// Moment that a mark says; without one that before everything.
    pub(crate) fn of(mark: Option<u64>) -> Moment {
        let reached = mark.unwrap_or(0);
        Moment { started: (reached >> 32) as usize, acknowledged: (reached & 0xFFFF_FFFF) as usize }
    }
}

/// Runs a program of `operations` operations; ends with an export.
pub fn record(layout: Layout, seed: u64, operations: usize) -> Result<Recorded, Trouble> {
    let machine = Machine::new(layout, seed);
    let pool = machine.create(layout)?;
    pool.sync()?;
    let mut program = Program::new(seed);
    machine.sim.start_recording();
    {
        let mut runner = Runner::new(&pool)?;
        for _ in 0..operations {
            runner.step(&mut program, &mut |started, acknowledged| machine.sim.mark(Moment { started, acknowledged }.mark()))?;
        }
    }
    pool.export()?;
    let trace_hash = machine.sim.trace_hash();
    machine.sim.mark(Moment { started: operations, acknowledged: operations }.mark());
    Ok(Recorded { layout, seed, recording: machine.sim.take_recording(), states: program.states().to_vec(), trace_hash })
}

/// Counts of the cuts of one recording.
#[derive(Clone, Debug, Default)]
pub struct CutReport {
    /// Number of moments at which the power went off.
    pub cuts: u64,
    /// Number of images that were tried.
    pub images: u64,
    /// Number of images whose pool could be imported.
    pub imported: u64,
    /// Number of those with the contents of a state that was allowed.
    pub matched: u64,
    /// Number of those exactly at a promised state.
    pub at_promise: u64,
    /// Number of images with leaked, overlapping or unallocated space.
    pub leaks: u64,
    /// Number of images whose pool went on working.
    pub continued: u64,
    /// Verdict per image.
    pub verdict: Verdict,
}

impl CutReport {
    /// Adds what another part of the same recording counted.
    pub fn add(&mut self, other: CutReport) {
        self.cuts += other.cuts;
        self.images += other.images;
        self.imported += other.imported;
        self.matched += other.matched;
        self.at_promise += other.at_promise;
        self.leaks += other.leaks;
        self.continued += other.continued;
        self.verdict.add(other.verdict);
    }
}

/// Share of the cuts to visit: those whose number leaves `rest` when divided by `every`.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Divisor of the numbers.
    pub every: usize,
    /// Remainder of the numbers.
    pub rest: usize,
}

impl Share {
    /// Share that is all cuts.
    pub const ALL: Share = Share { every: 1, rest: 0 };
}

/// Cuts the power at every write and flush of the share; three images each: everything that was not flushed is lost, written, or
/// torn and chosen at random.
pub fn try_cuts(recorded: &Recorded, share: Share) -> CutReport {
    let mut report = CutReport::default();
    recorded.recording.each_cut((share.every, share.rest), &mut |cut| {
        report.cuts += 1;
        let moment = Moment::of(cut.mark);
        cut.each_image(recorded.seed, &mut |choice, images| {
            let what = format!("{} seed {} cut {} {choice:?}", recorded.layout, recorded.seed, cut.events);
            report.images += 1;
            let mut verdict = std::mem::take(&mut report.verdict);
            verdict.trial(&what, || check_image(recorded, images, moment, &mut report));
            report.verdict = verdict;
        });
    });
    report
}

fn check_image(recorded: &Recorded, images: Vec<Image>, moment: Moment, report: &mut CutReport) -> Result<(), String> {
    let machine = Machine::with(recorded.seed + 1, images);
    let pool = machine.import(true).map_err(|error| format!("cannot be imported read-only: {error}"))?;
    report.imported += 1;
    let found = read_state(&pool).map_err(|error| format!("cannot be read: {error}"))?;
    let allowed = &recorded.states[moment.acknowledged..=moment.started];
    let Some(position) = allowed.iter().position(|state| *state == found) else {
        let differences: Vec<String> = allowed.iter().rev().take(3).map(|state| found.difference(state)).collect();
        return Err(format!("no state of operations {}..={}: {}", moment.acknowledged, moment.started, differences.join("; ")));
    };
    report.matched += 1;
    report.at_promise += u64::from(position == 0);
    check_space(&pool).inspect_err(|_| report.leaks += 1)?;
    pool.export().map_err(|error| format!("cannot be closed: {error}"))?;
    go_on(&machine, found).inspect_err(|why| report.leaks += u64::from(why.starts_with(SPACE)))?;
    report.continued += 1;
    Ok(())
}

const SPACE: &str = "space";

/// Fails unless the space maps agree with the block pointers.
pub fn check_space(pool: &Pool) -> Result<(), String> {
    let report = pool.verify_space().map_err(|error| format!("{SPACE} cannot be verified: {error}"))?;
    if report.is_clean() && report.gangs == 0 { Ok(()) } else { Err(format!("{SPACE} is wrong: {report:?}")) }
}

/// Imports the pool for writing, writes one file, exports, imports again: everything must be there.
pub fn go_on(machine: &Machine, found: State) -> Result<(), String> {
    const NAME: &str = "after";
    let said = |what: &'static str| move |error: Trouble| format!("{what}: {error}");
    let contents = b"written after the power came back ".repeat(700);
    let pool = machine.import(false).map_err(said("cannot be imported again"))?;
    let write = || -> Result<(), Trouble> {
        let zfs = mount(&pool)?;
        let root = zfs.node(zfs.root())?;
        let node = zfs.create_node(&root, NAME.as_bytes(), &NewNode { mode: 0o100_600, ..NewNode::default() })?;
        let data = Abd::from_slice(&contents);
        zfs.write(&node, WriteData { offset: 0, data, may_keep: false, kill_suid: true, synchronous: false })?;
        Ok(zfs.fsync(&node)?)
    };
    write().map_err(said("cannot be written"))?;
    pool.export().map_err(|error| format!("cannot be exported: {error}"))?;
    let pool = machine.import(true).map_err(said("cannot be imported after the export"))?;
    let mut wanted = found;
    let attributes = std::collections::BTreeMap::new();
    let after = Seen { kind: 'f', data: Arc::new(contents), links: 1, attributes, owner: Owner::root(0o600) };
    Arc::make_mut(&mut wanted.head).insert(NAME.to_string(), after);
    let now = read_state(&pool).map_err(said("cannot be read after the export"))?;
    if now != wanted {
        return Err(format!("after more work: {}", now.difference(&wanted)));
    }
    check_space(&pool)?;
    pool.export().map_err(|error| format!("cannot be closed: {error}"))
}
