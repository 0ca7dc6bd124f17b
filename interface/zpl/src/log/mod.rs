//! The file system's side of its intent log: what operations note in it, and what no record tells of (OpenZFS: `zfs_log.c`).
//!
//! An operation is noted when all of it succeeded, in its transaction, and under the locks that order it among others: names under
//! `names` of the directories, bytes under their range, attributes under the node's state. Nothing is noted of what has no links.
//!
//! What no record can tell of is remembered with its txg instead: commits end after that txg is on disk. Such a change is remembered
//! before anything that builds on it can be noted, and commits look for one after they wrote the log. So nobody is promised what lies
//! behind a record that cannot be replayed.

mod notes;

pub(crate) use notes::{Moved, Wrote, switches};

use dmu::Tx;
use exec::Mutex;
use ondisk::{ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use zil::Log;

/// Number of txgs that are alive at a time, at most: what is older is on disk.
const TXGS_ALIVE: u64 = 4;

/// Log that the pool keeps for the file system.
struct Port {
    log: Arc<dyn Log>,
    /// True when the log can tell of extended attributes in system attributes (feature `zilsaxattr`).
    tells_xattrs: bool,
}

/// Notes of the changes of a file system.
#[derive(Default)]
pub(crate) struct Journal {
    port: OnceLock<Port>,
    /// Txg of the last change that no record tells of and that records of others may build on.
    unlogged: AtomicU64,
    /// Txgs of the last changes that no record tells of and nobody builds on, by their objects.
    unlogged_alone: Mutex<BTreeMap<ObjectId, Txg>>,
}

impl Journal {
    /// Names the log; nothing up to the txg `open` is in it.
    pub(crate) fn connect(&self, log: Arc<dyn Log>, tells_xattrs: bool, open: Txg) {
        if self.port.set(Port { log, tells_xattrs }).is_ok() {
            self.unlogged.fetch_max(open.0, Ordering::AcqRel);
        }
    }

    /// Log of the file system, None while changes become durable only with their txg.
    pub(crate) fn log(&self) -> Option<&Arc<dyn Log>> {
        self.port.get().map(|port| &port.log)
    }

    /// Log in which changes of this transaction are to be noted. One that does not want them now may want later ones that build on them.
    fn wanted(&self, tx: &Tx) -> Option<&dyn Log> {
        let log = self.log()?;
        if log.is_wanted() {
            return Some(&**log);
        }
        self.leave_out(tx);
        None
    }

    /// Remembers a change that no record tells of: every commit waits for its txg.
    pub(crate) fn leave_out(&self, tx: &Tx) {
        if self.port.get().is_some() {
            self.unlogged.fetch_max(tx.txg().0, Ordering::AcqRel);
        }
    }

    /// Remembers a change of one object that no record tells of and nobody builds on: commits of the object wait for its txg.
    pub(crate) fn leave_out_alone(&self, object: ObjectId, tx: &Tx) {
        if self.port.get().is_some() {
            let mut alone = self.unlogged_alone.lock();
            alone.retain(|_, txg| txg.0 + TXGS_ALIVE > tx.txg().0);
            let txg = alone.entry(object).or_insert(tx.txg());
            *txg = tx.txg().max(*txg);
        }
    }

    /// Txg that has to be on disk before a commit of this object is done, of all objects without one.
    pub(crate) fn unlogged(&self, object: Option<ObjectId>) -> Txg {
        let alone = self.unlogged_alone.lock();
        let alone = match object {
            Some(object) => alone.get(&object).copied(),
            None => alone.values().max().copied(),
        };
        Txg(self.unlogged.load(Ordering::Acquire)).max(alone.unwrap_or(Txg(0)))
    }
}
