//! Cuts of a recording, each judged, and cut again while its log is replayed.

use super::ledger::Change;
use super::{Moment, Recorded, words};
use crate::cuts::{Share, check_space};
use crate::machine::Machine;
use crate::model::{Contents, Model, State};
use crate::outcome::Verdict;
use ondisk::Txg;
use pool::Pool;
use sim::{CrashChoice, Image};

/// Counts of the cuts of one recording.
#[derive(Clone, Debug, Default)]
pub struct LogReport {
    /// Number of moments at which the power went off.
    pub cuts: u64,
    /// Number of images that were tried.
    pub images: u64,
    /// Number of images whose log was replayed.
    pub replayed: u64,
    /// Number of records that were replayed, of all images.
    pub records: u64,
    /// Number of images that held more than was acknowledged.
    pub beyond: u64,
    /// Number of images of second cuts.
    pub again: u64,
    /// Verdict per image.
    pub verdict: Verdict,
}

impl LogReport {
    /// Adds what another part of the same recording counted.
    pub fn add(&mut self, other: LogReport) {
        self.cuts += other.cuts;
        self.images += other.images;
        self.replayed += other.replayed;
        self.records += other.records;
        self.beyond += other.beyond;
        self.again += other.again;
        self.verdict.add(other.verdict);
    }
}

/// Cuts the power at every write and flush of the share; three images each. While an image's log is replayed the power goes off at one write or flush
/// in `again`.
pub fn try_cuts(recorded: &Recorded, share: Share, again: usize) -> LogReport {
    let mut report = LogReport::default();
    recorded.recording.each_cut((share.every, share.rest), &mut |cut| {
        let Some(moment) = recorded.moments.get(cut.mark.unwrap_or(0) as usize).copied() else { return };
        report.cuts += 1;
        cut.each_image(recorded.seed, &mut |choice, images| {
            let what = format!("{} seed {} cut {} {choice:?}", recorded.layout, recorded.seed, cut.events);
            report.images += 1;
            let mut verdict = std::mem::take(&mut report.verdict);
            verdict.trial(&what, || {
                let trial = Trial { recorded, moment, again };
                trial.run(images, &mut report).map_err(|why| format!("{why} (in {})", recorded.words_at(moment)))
            });
            report.verdict = verdict;
        });
    });
    report
}

impl Recorded {
    fn words_at(&self, moment: Moment) -> String {
        let last = moment.started.checked_sub(1).and_then(|last| self.ops.get(last));
        format!("operation {}, {}", moment.started, last.map(words).unwrap_or_default())
    }

    /// First operation after the txg `base` that changed something and was on disk with `synced`. A txg without changes is not written.
    fn lost_by_txg(&self, base: Txg, synced: Txg) -> Option<usize> {
        self.changes.iter().zip(&self.txgs).position(|(changes, txg)| *changes && base < *txg && *txg <= synced)
    }

    /// Model of what was done in the txgs up to this one, if it began so far.
    fn at_txg(&self, txg: Txg) -> &Model {
        &self.models[self.txgs.iter().take_while(|one| **one <= txg).count()]
    }
}

/// One image that is judged.
struct Trial<'a> {
    recorded: &'a Recorded,
    moment: Moment,
    again: usize,
}

/// An error's words, behind those on what was done.
pub(crate) fn said<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

impl Trial<'_> {
    fn run(&self, images: Vec<Image>, report: &mut LogReport) -> Result<(), String> {
        let machine = Machine::with(self.recorded.seed + 1, images.clone());
        let pool = machine.import(true).map_err(said("cannot be imported read-only"))?;
        let base = pool.txg();
        if let Some(number) = self.recorded.lost_by_txg(base, self.moment.synced) {
            return Err(format!("{base:?} is the last txg, operation {number} was acknowledged with {:?}", self.moment.synced));
        }
        let (found, model) = (self.recorded.subject.state(&pool).map_err(said("cannot be read"))?, self.recorded.at_txg(base));
        if found != model.state() {
            return Err(format!("as of {base:?}: {}", found.difference(&model.state())));
        }
        check_space(&pool)?;
        pool.export().map_err(said("cannot be closed"))?;
        machine.sim.start_recording();
        let pool = machine.import(false).map_err(said("cannot be imported"))?;
        report.replayed += u64::from(!pool.replayed().is_empty());
        report.records += pool.replayed().iter().map(|log| log.records).sum::<u64>();
        let found = self.replayed(&pool)?;
        report.beyond += u64::from(self.judge(base, model.clone(), &found)?);
        drop(pool);
        let recording = machine.sim.take_recording();
        let mut result = Ok(());
        recording.each_cut((self.again, 0), &mut |cut| {
            let choice = if cut.number % 2 == 0 { CrashChoice::Lost } else { CrashChoice::Random(cut.events as u64) };
            if result.is_ok() {
                report.again += 1;
                result = self.once_more(cut.images(choice), &found).map_err(said(&format!("cut again at {} {choice:?}", cut.events)));
            }
        });
        result?;
        self.go_on(&machine, found)
    }

    /// Looks for the beginning of the log that makes the state: true when there is more than was acknowledged.
    fn judge(&self, base: Txg, mut model: Model, found: &State) -> Result<bool, String> {
        let Moment { acknowledged, offered, .. } = self.moment;
        let counts = |index: &usize| self.recorded.logged[*index].txg > base;
        let replay = |index: usize, model: &mut Model| self.recorded.logged[index].change.replay(model);
        (0..acknowledged).filter(counts).for_each(|index| replay(index, &mut model));
        let promised = model.clone();
        for index in (acknowledged..offered).filter(counts) {
            if model.state() == *found {
                return Ok(index > acknowledged);
            }
            if is_partly(&model, &self.recorded.logged[index].change, found) {
                return Ok(true);
            }
            replay(index, &mut model);
        }
        if model.state() == *found {
            return Ok(offered > acknowledged);
        }
        let (promised, all) = (promised.state(), model.state());
        Err(format!(
            "{base:?} with {acknowledged} to {offered} operations of the log: {}; and {}",
            found.difference(&promised),
            found.difference(&all)
        ))
    }

    /// The replay was cut off: the next one leaves what it would have left.
    fn once_more(&self, images: Vec<Image>, wanted: &State) -> Result<(), String> {
        let machine = Machine::with(self.recorded.seed + 2, images);
        let pool = machine.import(false).map_err(said("cannot be imported"))?;
        let found = self.replayed(&pool)?;
        if found == *wanted { Ok(()) } else { Err(found.difference(wanted)) }
    }

    /// Makes something durable, stops without an export, and finds it.
    fn go_on(&self, machine: &Machine, mut wanted: State) -> Result<(), String> {
        let pool = machine.import(false).map_err(said("cannot be imported again"))?;
        self.recorded.subject.go_on(&pool, &mut wanted).map_err(said("cannot be written"))?;
        drop(pool);
        let pool = machine.import(false).map_err(said("cannot be imported after more work"))?;
        let found = self.replayed(&pool)?;
        if found != wanted {
            return Err(format!("after more work: {}", found.difference(&wanted)));
        }
        pool.export().map_err(said("cannot be exported"))
    }

    /// State of a pool whose logs the import replayed, all of them whole; its space maps are right.
    fn replayed(&self, pool: &Pool) -> Result<State, String> {
        if let Some(why) = pool.replayed().iter().find_map(|log| log.failure.as_ref()) {
            return Err(format!("a log was not replayed: {why}"));
        }
        let found = self.recorded.subject.state(pool).map_err(said("cannot be read after the replay"))?;
        check_space(pool)?;
        Ok(found)
    }
}

/// True when the state is the model's with a beginning of the change's bytes.
fn is_partly(model: &Model, change: &Change, found: &State) -> bool {
    let Change::Bytes(node, offset, bytes) = change else { return false };
    let Contents::File(before) = model.contents(*node) else { return false };
    let Some((path, _)) = model.paths().into_iter().find(|(_, one)| one == node) else { return false };
    let Some(seen) = found.head.get(&path) else { return false };
    // A file that grew tells how far; else the bytes do.
    let there = seen.data.get(*offset..).unwrap_or_default();
    let length = if seen.data.len() > before.len() {
        there.len().min(bytes.len())
    } else {
        bytes.iter().zip(there).take_while(|(wanted, there)| wanted == there).count()
    };
    let mut partly = model.clone();
    super::program::put(&mut partly, *node, *offset, &bytes[..length]);
    partly.state() == *found
}
