//! What was made durable through the intent log: the power goes off at every write and flush of a program, and again while the log is replayed.
//!
//! A model alone says what has to be there: the state of the last txg on disk, which an import that only reads shows, and on top of it what the log
//! tells of, in its order ([`ledger`]): all that was acknowledged, and of the rest a beginning.

pub mod check;
pub mod engine;
mod files;
pub mod ledger;
pub mod program;
mod scribe;
mod served;
mod volume;

use crate::machine::{Layout, Machine, Trouble, read_state};
use crate::model::{Model, State};
use ledger::Logged;
use ondisk::Txg;
use pool::Pool;
use program::{Op, Program, imagine};
pub use scribe::Moment;
use scribe::{Hands, Scribe};
use sim::Recording;
use std::sync::Arc;

/// Kind of dataset that a program changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// File system.
    Files,
    /// Volume: in the model the only file of its file system, whose names never change.
    Volume,
    /// Volume that a client of NBD uses: what was answered counts.
    Served,
    /// Volume behind a door that answers for what it has not done, for those who judge.
    Deceived,
}

impl Subject {
    /// Everything that a user sees of the dataset and its snapshots.
    fn state(self, pool: &Pool) -> Result<State, Trouble> {
        match self {
            Subject::Files => read_state(pool),
            Subject::Volume | Subject::Served | Subject::Deceived => volume::state(pool),
        }
    }

    /// Makes the dataset, and who carries operations on it out; with `is_always` all that is done to a volume is durable at once.
    fn hands<'a>(self, pool: &'a Pool, scribe: &Arc<Scribe>, is_always: bool) -> Result<Box<dyn Hands + 'a>, Trouble> {
        let scribe = scribe.clone();
        let hands: Box<dyn Hands + 'a> = match self {
            Subject::Files => Box::new(files::FileHands::new(pool, scribe)?),
            Subject::Volume => Box::new(volume::VolumeHands::new(pool, scribe, is_always)?),
            Subject::Served => Box::new(served::ServedHands::new(pool, scribe, is_always, false)?),
            Subject::Deceived => Box::new(served::ServedHands::new(pool, scribe, is_always, true)?),
        };
        Ok(hands)
    }

    /// Makes something durable, and changes what is `wanted` of the dataset likewise.
    fn go_on(self, pool: &Pool, wanted: &mut State) -> Result<(), Trouble> {
        match self {
            Subject::Files => files::go_on(pool, wanted),
            Subject::Volume | Subject::Served | Subject::Deceived => volume::go_on(pool, wanted),
        }
    }
}

/// Recording of what a program did to the devices, and what was promised when.
pub struct Recorded {
    /// Layout of the pool.
    pub layout: Layout,
    /// Kind of dataset that was changed.
    pub subject: Subject,
    /// Seed of program and executor.
    pub seed: u64,
    /// Writes and flushes, every one; marks are numbers of moments.
    pub recording: Recording,
    moments: Vec<Moment>,
    /// Models after so many operations, and the txg of each operation.
    models: Vec<Model>,
    txgs: Vec<Txg>,
    logged: Vec<Logged>,
    /// Operations, for words.
    ops: Vec<Op>,
    /// True for each operation that changed what a user sees.
    changes: Vec<bool>,
}

/// Runs a program of `operations` operations; at its end the machine stops. On volumes every write is durable (`sync=always`) when `seed` is even.
///
/// # Errors
/// What failed, or what was acknowledged and is not in the log.
pub fn record(layout: Layout, subject: Subject, seed: u64, operations: usize) -> Result<Recorded, String> {
    let said = |error: Trouble| error.to_string();
    let machine = Machine::new(layout, seed);
    let pool = machine.create(layout).map_err(said)?;
    pool.sync().map_err(|error| error.to_string())?;
    let first = if subject == Subject::Files { Model::default() } else { volume::model() };
    let scribe = Arc::new(Scribe::new(&machine, &pool, first));
    let mut hands = subject.hands(&pool, &scribe, seed.is_multiple_of(2)).map_err(said)?;
    machine.sim.start_recording();
    let models = vec![scribe.book.lock().model.clone()];
    scribe.mark(|_, _| ());
    let mut runner = Runner { pool: &pool, hands: &mut *hands, scribe: scribe.clone(), models, txgs: Vec::new(), ops: Vec::new() };
    let mut program = Program::new(seed);
    for _ in 0..operations {
        runner.step(&mut program)?;
    }
    let Runner { models, txgs, ops, .. } = runner;
    let recording = machine.sim.take_recording();
    let mut book = scribe.book.lock();
    let (moments, ledger) = (std::mem::take(&mut book.moments), std::mem::take(&mut book.ledger));
    let changes = models.windows(2).map(|pair| pair[0].state() != pair[1].state()).collect();
    Ok(Recorded { layout, subject, seed, recording, moments, models, txgs, logged: ledger.into_logged(), ops, changes })
}

/// Program in progress, with what is remembered of it.
struct Runner<'a> {
    pool: &'a Pool,
    hands: &'a mut dyn Hands,
    scribe: Arc<Scribe>,
    models: Vec<Model>,
    txgs: Vec<Txg>,
    ops: Vec<Op>,
}

impl Runner<'_> {
    fn step(&mut self, program: &mut Program) -> Result<(), String> {
        let number = self.ops.len();
        let open = self.pool.txgs().open_txg();
        let mut op = None;
        self.scribe.mark(|book, moment| {
            let next = self.hands.plan(program, &book.model);
            imagine(&mut book.model, &next);
            book.ledger.note(number, &next, open, &book.model);
            moment.started = number + 1;
            op = Some(next);
        });
        let op = op.ok_or("no operation")?;
        let model = self.scribe.book.lock().model.clone();
        self.hands.perform(&op, &model).map_err(|error| format!("operation {number}, {op:?}: {error}"))?;
        self.models.push(model);
        self.txgs.push(open);
        let synced = self.pool.txgs().synced_txg();
        match self.hands.promise(&op) {
            Some(node) => {
                let promise = self.scribe.book.lock().ledger.check_promise(node, synced);
                promise.map_err(|why| format!("operation {number}, {}: {why}", words(&op)))?;
            }
            // Whatever is one operation here is one txg's.
            None if self.pool.txgs().open_txg() != open => return Err(format!("operation {number} went over a txg")),
            None => {}
        }
        self.ops.push(op);
        self.scribe.mark(|_, _| ());
        Ok(())
    }
}

/// Operation in words, without the bytes of writes.
fn words(op: &Op) -> String {
    match op {
        Op::Write(node, offset, bytes, how) => format!("Write({node}, {offset}, {} bytes, {how:?})", bytes.len()),
        Op::Attribute(node, name, value) => format!("Attribute({node}, {name}, {:?} bytes)", value.as_ref().map(Vec::len)),
        other => format!("{other:?}"),
    }
}
