//! Who writes down, while a program runs, what was promised and when; and who carries its operations out.

use super::ledger::Ledger;
use super::program::{Op, Program};
use crate::machine::{Machine, Trouble};
use crate::model::{Model, NodeId};
use dmu::{DmuError, Tx};
use exec::Mutex;
use ondisk::{ObjectId, Txg};
use pool::Pool;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use zil::{Itx, Log, Payload};

/// Moment of a program, as the marks of its recording name it.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Number of operations that began.
    pub started: usize,
    /// Number of operations in the log that are acknowledged.
    pub acknowledged: usize,
    /// Number of operations that the log may hold.
    pub offered: usize,
    /// Txg that was said to be on disk.
    pub synced: Txg,
}

/// Knowledge while a program runs.
pub(super) struct Book {
    pub(super) model: Model,
    pub(super) ledger: Ledger,
    pub(super) moments: Vec<Moment>,
    pub(super) objects: HashMap<ObjectId, NodeId>,
}

/// Scribe of a recording: notes at each mark what was promised so far.
pub(super) struct Scribe {
    pub(super) sim: sim::Sim,
    pub(super) txgs: Arc<dmu::TxgManager>,
    pub(super) book: Mutex<Book>,
}

impl Scribe {
    pub(super) fn new(machine: &Machine, pool: &Pool, model: Model) -> Scribe {
        let book = Book { model, ledger: Ledger::default(), moments: Vec::new(), objects: HashMap::new() };
        Scribe { sim: machine.sim.clone(), txgs: pool.txgs().clone(), book: Mutex::new(book) }
    }

    pub(super) fn mark(&self, change: impl FnOnce(&mut Book, &mut Moment)) {
        let mut book = self.book.lock();
        let first = Moment { started: 0, acknowledged: 0, offered: 0, synced: Txg(0) };
        let mut moment = book.moments.last().copied().unwrap_or(first);
        moment.synced = self.txgs.synced_txg();
        change(&mut book, &mut moment);
        self.sim.mark(book.moments.len() as u64);
        book.moments.push(moment);
    }

    /// A commit begins: of a node, or of all.
    pub(super) fn offer(&self, object: Option<ObjectId>) {
        self.mark(|book, moment| {
            let node = object.and_then(|object| book.objects.get(&object).copied());
            (_, moment.offered) = book.ledger.offer(node, moment.synced, &book.model);
        });
    }

    /// Notes that what was offered last is durable.
    pub(super) fn acknowledge(&self) {
        self.mark(|_, moment| moment.acknowledged = moment.offered);
    }
}

/// Clerk between file system and log: writes down when commits begin and end.
pub(super) struct Clerk {
    pub(super) log: Arc<dyn Log>,
    pub(super) scribe: Arc<Scribe>,
}

impl fmt::Debug for Clerk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clerk")
    }
}

impl Log for Clerk {
    fn is_wanted(&self) -> bool {
        self.log.is_wanted()
    }
    fn note(&self, itx: Itx, tx: &Tx) {
        self.log.note(itx, tx);
    }
    fn note_write(&self, payload: Payload, only_with: Option<ObjectId>, tx: &Tx) {
        self.log.note_write(payload, only_with, tx);
    }
    fn promote(&self, object: ObjectId) {
        self.log.promote(object);
    }
    fn forget(&self, object: ObjectId) {
        self.log.forget(object);
    }
    fn commit(&self, object: Option<ObjectId>) -> Result<(), DmuError> {
        self.scribe.offer(object);
        self.log.commit(object)?;
        self.scribe.acknowledge();
        Ok(())
    }
}

/// Part of a program that knows the dataset: it carries operations out.
pub(super) trait Hands {
    /// Chooses the next operation.
    fn plan(&self, program: &mut Program, model: &Model) -> Op;
    /// Carries an operation out; `after` is the model with it. Commits are written down as they begin and end.
    fn perform(&mut self, op: &Op, after: &Model) -> Result<(), Trouble>;
    /// Extent of what is durable once the operation is done: a node, or with None inside everything; None when nothing is.
    fn promise(&self, op: &Op) -> Option<Option<NodeId>>;
}
