//! Power cuts through receives: the machine stops after any write or flush of a program that receives streams, whole, broken off and gone on with.
//!
//! The model says what every snapshot holds. Whatever the moment, snapshots that were received are whole, and what was on its way is absent, or has a
//! state that the stream goes on from; then everything arrives.

use crate::cuts::{Moment, Share, check_space};
use crate::durable::check::said;
use crate::machine::{FILE_SYSTEM, Layout, Machine, Trouble, read_dataset};
use crate::model::{Tree, tree_difference};
use crate::outcome::Verdict;
use crate::program::{Program, Runner};
use dsl::{DslError, ResumeState};
use ondisk::ObjectType;
use pool::Pool;
use receive::{ReceiveError, Receiver, Target};
use send::{Base, SendOptions, Sending};
use sim::{Fault, FaultKind, Image, OpKind, Recording};
use std::sync::Arc;
use stream::{Reader, Record, StreamError, Writer, begin_list};
use zpl::Accounting;

/// Names of the snapshots that are sent, in the order in which they were taken.
const SNAPSHOTS: [&str; 4] = ["a", "b", "c", "d"];
/// Dataset that is made by a stream that comes in one go.
const COPY: &str = "tank/copy";
/// Dataset that is made by a stream that breaks off.
const LATE: &str = "tank/late";

/// Share of a stream that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it; nothing would be kept of less.
    All,
    /// All of it; what comes of less is kept.
    Kept,
    /// Half of what is missing; it is kept.
    Half,
}

/// Step of the program: what is received into a dataset.
#[derive(Clone, Copy, Debug)]
struct Step {
    dataset: &'static str,
    /// Number of the snapshot that the stream goes on from; None of a full one.
    from: Option<usize>,
    /// Number of the snapshot that it brings.
    to: usize,
    part: Part,
}

const fn step(dataset: &'static str, from: Option<usize>, to: usize, part: Part) -> Step {
    Step { dataset, from, to, part }
}

/// Program: a full stream, one since a snapshot, one that breaks off twice, a full one that breaks off, and one that could.
const STEPS: [Step; 8] = [
    step(COPY, None, 0, Part::All),
    step(COPY, Some(0), 1, Part::All),
    step(COPY, Some(1), 2, Part::Half),
    step(COPY, Some(1), 2, Part::Half),
    step(COPY, Some(1), 2, Part::Kept),
    step(LATE, None, 2, Part::Half),
    step(LATE, None, 2, Part::Kept),
    step(LATE, Some(2), 3, Part::Kept),
];

/// Lie that has to be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// None: devices and streams are honest.
    Nothing,
    /// Devices acknowledge flushes and do none.
    Flushes,
    /// Each stream that comes in one go lacks a write of a file's contents, and its checksums are right.
    Contents,
}

/// Contents of a snapshot that is sent, as the model has them, and its guid.
type Sent = (Arc<Tree>, u64);

/// Recording of what a program of receives did to the devices, and what was promised when.
pub struct Recorded {
    /// Layout of the pool that receives.
    pub layout: Layout,
    /// Seed of programs and executors.
    pub seed: u64,
    /// Writes and flushes, every one; marks hold the step that began last (high half) and the last one that ended (low half).
    pub recording: Recording,
    /// Hash that depends on every operation on the devices and their order.
    pub trace_hash: u64,
    source: Vec<Image>,
    sent: Vec<Sent>,
    /// Place up to which a stream was received, after each step; None where nothing is missing.
    reached: Vec<Option<(u64, u64)>>,
}

/// Makes a pool with the snapshots that are sent, so many operations before each; gives its devices, and what the snapshots hold.
fn make_source(seed: u64, operations: usize) -> Result<(Vec<Image>, Vec<Sent>), Trouble> {
    let machine = Machine::new(Layout::Stripe1, seed);
    let pool = machine.create(Layout::Stripe1)?;
    let (mut program, mut sent) = (Program::new(seed), Vec::new());
    {
        let mut runner = Runner::new(&pool)?;
        for name in SNAPSHOTS {
            for _ in 0..operations {
                runner.step(&mut program, &mut |_, _| ())?;
            }
            let name = format!("{FILE_SYSTEM}@{name}");
            pool.dsl().snapshot(std::slice::from_ref(&name), Vec::new())?;
            sent.push((program.last_state().head.clone(), pool.dsl().hold(&name)?.guid()));
        }
    }
    pool.export()?;
    Ok((machine.images(), sent))
}

/// Opens the pool that streams come from.
fn open_source(seed: u64, images: &[Image]) -> Result<Pool, String> {
    Machine::with(seed, images.to_vec()).import(true).map_err(said("the source cannot be imported"))
}

/// Runs the program, with so many operations before each snapshot that is sent; ends with an export.
///
/// # Errors
/// What failed, in words.
pub fn record(layout: Layout, seed: u64, operations: usize, lie: Lie) -> Result<Recorded, String> {
    let (images, sent) = make_source(seed, operations).map_err(said("the source"))?;
    let source = open_source(seed, &images)?;
    let machine = Machine::new(layout, seed);
    let pool = machine.create(layout).map_err(said("the pool"))?;
    pool.sync().map_err(said("the pool"))?;
    machine.sim.start_recording();
    if lie == Lie::Flushes {
        machine.sim.arm(Fault::always(FaultKind::Lie).only(OpKind::Flush));
    }
    let mut reached = Vec::new();
    for (number, step) in STEPS.into_iter().enumerate() {
        machine.sim.mark(Moment { started: number + 1, acknowledged: number }.mark());
        take(&pool, &source, step, lie).map_err(said(&format!("{step:?}")))?;
        machine.sim.mark(Moment { started: number + 1, acknowledged: number + 1 }.mark());
        reached.push(state_of(&pool, step.dataset)?.map(|state| (state.point.object, state.point.offset)));
    }
    pool.export().map_err(said("the export"))?;
    let trace_hash = machine.sim.trace_hash();
    Ok(Recorded { layout, seed, recording: machine.sim.take_recording(), trace_hash, source: images, sent, reached })
}

/// State of a receive into a dataset that goes on later; None where there is none, or no dataset.
fn state_of(pool: &Pool, dataset: &str) -> Result<Option<ResumeState>, String> {
    match pool.dsl().resume_state(dataset) {
        Err(DslError::NotFound) => Ok(None),
        state => state.map_err(said("the state of a receive")),
    }
}

/// Names of the snapshots of a dataset; none where there is no dataset.
fn snapshots_of(pool: &Pool, dataset: &str) -> Result<Vec<String>, String> {
    match pool.dsl().snapshots(dataset) {
        Err(DslError::NotFound) => Ok(Vec::new()),
        found => Ok(found.map_err(said("snapshots"))?.into_iter().map(|snapshot| snapshot.name).collect()),
    }
}

/// Makes the stream of a step, whole or from a place on.
fn stream_of(source: &Pool, step: Step, resume: Option<(u64, u64)>) -> Result<Vec<u8>, String> {
    let held = |number: usize| source.dsl().hold(&format!("{FILE_SYSTEM}@{}", SNAPSHOTS[number])).map_err(said("a snapshot"));
    let to = held(step.to)?;
    let base = match step.from {
        Some(from) => Some(Base::snapshot(&to, held(from)?).map_err(said("its base"))?),
        None => None,
    };
    let options = SendOptions { compressed: true, embedded: true, resume, ..SendOptions::default() };
    let mut writer = Writer::new(Vec::new());
    Sending::new(to, base, options).and_then(|sending| sending.run(&mut writer)).map_err(said("the stream"))?;
    Ok(writer.into_sink())
}

/// Receives what a step brings; where something was kept of an earlier one it goes on from there.
fn take(pool: &Pool, source: &Pool, step: Step, lie: Lie) -> Result<(), String> {
    let resume = state_of(pool, step.dataset)?.map(|state| (state.point.object, state.point.offset));
    let mut bytes = stream_of(source, step, resume)?;
    if lie == Lie::Contents && step.part == Part::All {
        bytes = without_a_write(&bytes).map_err(said("the lie"))?;
    }
    if step.part == Part::Half {
        bytes.truncate(bytes.len() / 2);
    }
    let target = Target {
        name: step.dataset.to_string(),
        snapshot: SNAPSHOTS[step.to].to_string(),
        resumable: step.part != Part::All,
        ..Target::default()
    };
    let (mut reader, mut payload) = (Reader::new(&bytes[..]), Vec::new());
    let first = reader.read_record(&mut payload).map_err(said("its head"))?;
    let Some(Record::Begin(begin)) = first else { return Err("the stream has no head".to_string()) };
    let list = begin_list(&payload).map_err(said("its list"))?;
    let receiver = Receiver::begin(pool.dsl(), &begin, &list, &target, &|objset| Accounting::install(objset)).map_err(said("begun"))?;
    match (receiver.run(&mut reader), step.part) {
        (Err(ReceiveError::Stream(StreamError::Truncated { .. })), Part::Half) => Ok(()),
        (Ok(()), Part::Half) => Err("half a stream was received".to_string()),
        (result, _) => result.map_err(said("received")),
    }
}

/// The stream without its first WRITE of a file's contents.
fn without_a_write(stream: &[u8]) -> Result<Vec<u8>, StreamError> {
    let (mut reader, mut payload, mut is_short) = (Reader::new(stream), Vec::new(), false);
    let mut writer = Writer::new(Vec::new());
    while let Some(record) = reader.read_record(&mut payload)? {
        match record {
            Record::Begin(begin) => writer.begin_packed(begin, &payload)?,
            Record::End(end) => writer.end(end.toguid)?,
            Record::Write(write) if !is_short && write.kind == u32::from(ObjectType::PLAIN_FILE_CONTENTS.0) => is_short = true,
            record => writer.record(&record, &payload)?,
        }
    }
    Ok(writer.into_sink())
}

/// Counts of the cuts of one recording.
#[derive(Clone, Debug, Default)]
pub struct ReceiveReport {
    /// Number of moments at which the power went off.
    pub cuts: u64,
    /// Number of images that were tried.
    pub images: u64,
    /// Number of images in which a receive went on from what was kept.
    pub resumed: u64,
    /// Number of images in which a receive was under way and nothing is left of it.
    pub absent: u64,
    /// Verdict per image.
    pub verdict: Verdict,
}

impl ReceiveReport {
    /// Adds what another part of the same recording counted.
    pub fn add(&mut self, other: ReceiveReport) {
        self.cuts += other.cuts;
        self.images += other.images;
        self.resumed += other.resumed;
        self.absent += other.absent;
        self.verdict.add(other.verdict);
    }
}

/// Cuts the power at every write and flush of the share; three images each.
pub fn try_cuts(recorded: &Recorded, share: Share) -> ReceiveReport {
    let mut report = ReceiveReport::default();
    recorded.recording.each_cut((share.every, share.rest), &mut |cut| {
        report.cuts += 1;
        let trial = Trial { recorded, moment: Moment::of(cut.mark) };
        cut.each_image(recorded.seed, &mut |choice, images| {
            let what = format!("{} seed {} cut {} {choice:?}", recorded.layout, recorded.seed, cut.events);
            report.images += 1;
            let mut verdict = std::mem::take(&mut report.verdict);
            verdict.trial(&what, || trial.run(images, &mut report));
            report.verdict = verdict;
        });
    });
    report
}

/// Images of one moment that are judged.
struct Trial<'a> {
    recorded: &'a Recorded,
    moment: Moment,
}

impl Trial<'_> {
    fn run(&self, images: Vec<Image>, report: &mut ReceiveReport) -> Result<(), String> {
        let machine = Machine::with(self.recorded.seed + 1, images);
        let pool = machine.import(true).map_err(said("cannot be imported read-only"))?;
        self.check_snapshots(&pool, self.moment)?;
        check_space(&pool)?;
        pool.export().map_err(said("cannot be closed"))?;
        let pool = machine.import(false).map_err(said("cannot be imported"))?;
        self.check_snapshots(&pool, self.moment)?;
        for dataset in [COPY, LATE] {
            self.check_kept(&pool, dataset, report)?;
        }
        self.go_on(&pool)?;
        pool.export().map_err(said("cannot be exported"))?;
        let pool = machine.import(true).map_err(said("cannot be imported after the export"))?;
        self.check_snapshots(&pool, Moment { started: STEPS.len(), acknowledged: STEPS.len() })?;
        check_space(&pool)?;
        pool.export().map_err(said("cannot be closed after the export"))
    }

    /// Fails unless each dataset has the snapshots that were promised, perhaps with the one that was under way, and those hold what was sent.
    fn check_snapshots(&self, pool: &Pool, moment: Moment) -> Result<(), String> {
        for dataset in [COPY, LATE] {
            let through = |steps: &[Step]| -> Vec<usize> {
                steps.iter().filter(|step| step.dataset == dataset && step.part != Part::Half).map(|step| step.to).collect()
            };
            let found = snapshots_of(pool, dataset)?;
            let is_found = |list: &Vec<usize>| found.iter().map(String::as_str).eq(list.iter().map(|number| SNAPSHOTS[*number]));
            let allowed = [through(&STEPS[..moment.acknowledged]), through(&STEPS[..moment.started])];
            let Some(there) = allowed.iter().find(|list| is_found(list)) else {
                return Err(format!("{dataset} has the snapshots {found:?} at {moment:?}"));
            };
            for number in there {
                self.check_tree(pool, &format!("{dataset}@{}", SNAPSHOTS[*number]), *number)?;
            }
            if let Some(newest) = there.last() {
                self.check_tree(pool, dataset, *newest)?;
            }
        }
        Ok(())
    }

    fn check_tree(&self, pool: &Pool, name: &str, snapshot: usize) -> Result<(), String> {
        let tree = read_dataset(pool, name).map_err(said(&format!("{name} cannot be read")))?;
        let (wanted, _) = &self.recorded.sent[snapshot];
        tree_difference(&tree, wanted).map_or(Ok(()), |what| Err(format!("{name}: {what}")))
    }

    /// Fails unless what was promised of a receive that is not through is kept, and nothing is left of any other.
    fn check_kept(&self, pool: &Pool, dataset: &str, report: &mut ReceiveReport) -> Result<(), String> {
        let Moment { started, acknowledged } = self.moment;
        let state = state_of(pool, dataset)?;
        let last = (0..acknowledged).rev().find(|number| STEPS[*number].dataset == dataset);
        let promised = last.and_then(|number| Some((STEPS[number].to, self.recorded.reached[number]?)));
        let is_under_way = started > acknowledged && STEPS[acknowledged].dataset == dataset;
        if let Some(state) = &state {
            report.resumed += 1;
            let to = if is_under_way { STEPS[acknowledged].to } else { promised.map_or(usize::MAX, |(to, _)| to) };
            if self.recorded.sent.get(to).is_none_or(|(_, guid)| *guid != state.to_guid) {
                return Err(format!("{dataset} keeps a receive that nobody began: {state:?}"));
            }
            let reached = (state.point.object, state.point.offset);
            return match promised {
                Some((_, point)) if reached < point => {
                    Err(format!("{dataset} keeps what came before {reached:?}, and {point:?} was reached"))
                }
                _ => Ok(()),
            };
        }
        let there = snapshots_of(pool, dataset)?;
        let is_there = |to: usize| there.iter().any(|name| name == SNAPSHOTS[to]);
        if promised.is_some_and(|(to, _)| !is_there(to)) {
            return Err(format!("{dataset} kept a receive, and it is gone"));
        }
        report.absent += u64::from(is_under_way && !is_there(STEPS[acknowledged].to));
        match pool.dsl().partial_receive(dataset) {
            Ok(None) | Err(DslError::NotFound) => Ok(()),
            Ok(Some(_)) => Err(format!("{dataset} has the rest of a receive that cannot go on")),
            Err(error) => Err(format!("{dataset}: {error}")),
        }
    }

    /// Receives everything that is missing.
    fn go_on(&self, pool: &Pool) -> Result<(), String> {
        let source = open_source(self.recorded.seed + 2, &self.recorded.source)?;
        for step in STEPS.into_iter().filter(|step| step.part != Part::Half) {
            if !snapshots_of(pool, step.dataset)?.iter().any(|name| name == SNAPSHOTS[step.to]) {
                take(pool, &source, step, Lie::Nothing).map_err(said(&format!("goes on with {step:?}")))?;
            }
        }
        Ok(())
    }
}
