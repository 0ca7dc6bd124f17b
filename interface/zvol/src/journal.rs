//! The volume's side of its intent log: writes and frees are noted in it when they succeeded, in their transaction and under their range (OpenZFS:
//! `zvol_log_write`, `zvol_log_truncate`). Every commit takes all of it along.
//!
//! Of what the log does not want, or what failed in part, the txg is remembered: commits end after it is on disk, so that nobody is promised what
//! builds on it.

use dmu::Tx;
use exec::Mutex;
use ondisk::{ObjectId, Txg};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use zil::{Itx, Log, Payload, Record, Wrote};

/// Notes of the changes of a volume.
pub(crate) struct Journal {
    /// Object with the data.
    object: ObjectId,
    log: OnceLock<Arc<dyn Log>>,
    /// Txg of the last change that no record tells of.
    unlogged: Mutex<Txg>,
}

impl Journal {
    /// Makes the notes of changes of an object; nobody hears of them before [`Journal::connect`].
    pub(crate) fn new(object: ObjectId) -> Journal {
        Journal { object, log: OnceLock::new(), unlogged: Mutex::new(Txg(0)) }
    }

    /// Names the log; nothing up to the txg `open` is in it.
    pub(crate) fn connect(&self, log: Arc<dyn Log>, open: Txg) {
        if self.log.set(log).is_ok() {
            self.leave_out_txg(open);
        }
    }

    /// Log of the volume; None where nothing is changed.
    pub(crate) fn log(&self) -> Option<&Arc<dyn Log>> {
        self.log.get()
    }

    /// Log that wants to hear of a change of this transaction.
    fn listener(&self, tx: &Tx) -> Option<&dyn Log> {
        let log = self.log()?;
        if log.is_wanted() {
            return Some(&**log);
        }
        self.leave_out(tx);
        None
    }

    /// Notes a write.
    pub(crate) fn note_written(&self, wrote: &Wrote, tx: &Tx) {
        if let Some(log) = self.listener(tx) {
            wrote.each((self.object, 0), &mut |payload| log.note_write(payload, None, tx));
        }
    }

    /// Notes that a range became zeros.
    pub(crate) fn note_freed(&self, range: &Range<u64>, tx: &Tx) {
        if let Some(log) = self.listener(tx) {
            let record = Record::Truncate { object: self.object, offset: range.start, length: range.end - range.start }.encode();
            log.note(Itx { record, only_with: None, payload: Payload::None }, tx);
        }
    }

    /// Remembers a change that no record tells of.
    pub(crate) fn leave_out(&self, tx: &Tx) {
        self.leave_out_txg(tx.txg());
    }

    fn leave_out_txg(&self, txg: Txg) {
        let mut unlogged = self.unlogged.lock();
        *unlogged = txg.max(*unlogged);
    }

    /// Txg that has to be on disk before a commit is done.
    pub(crate) fn unlogged(&self) -> Txg {
        *self.unlogged.lock()
    }
}
