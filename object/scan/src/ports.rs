//! What the crate consumes from the pool. Implemented by the pool.

use crate::ScanFunction;
use dmu::Tx;
use ondisk::Txg;
use std::collections::BTreeSet;

/// Result of a scan that saw everything: the births that it made good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanOutcome {
    /// A scrub verified all leaves that can be used; a resilver wrote to those that can be used since it began.
    pub function: ScanFunction,
    /// Blocks born up to here are what they should be on those leaves …
    pub through: Txg,
    /// … except some that were born in these txgs and could not be read.
    pub except: BTreeSet<Txg>,
}

/// The pool, as far as a scan needs it.
pub trait ScanHost: Send + Sync {
    /// Allocated bytes of all data vdevs, parity included.
    fn allocated_bytes(&self) -> u64;
    /// True when the error log is kept by head dataset (feature `head_errlog` is enabled).
    fn has_head_errlog(&self) -> bool;
    /// A resilver of what was born up to `through` begins, with the leaves that can be used now: called in syncing context.
    fn resilver_begins(&self, _through: Txg) {}
    /// A scan ended and saw everything: called in syncing context.
    fn scanned(&self, _outcome: &ScanOutcome) {}
    /// Writes a line of history about the scan, in syncing context.
    fn log(&self, name: &str, text: &str, tx: &Tx);
}
