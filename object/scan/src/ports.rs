//! What the crate consumes from the pool. Implemented by the pool.

use dmu::Tx;

/// The pool, as far as a scan needs it.
pub trait ScanHost: Send + Sync {
    /// Allocated bytes of all data vdevs, parity included.
    fn allocated_bytes(&self) -> u64;
    /// True when the error log is kept by head dataset (feature `head_errlog` is enabled).
    fn has_head_errlog(&self) -> bool;
    /// Every block born up to `through` was verified on all leaves, and what was wrong or missing was rewritten: called in
    /// syncing context when a scan ended without unrecoverable errors.
    fn scrubbed(&self, _through: ondisk::Txg) {}
    /// Writes a line of history about the scan, in syncing context.
    fn log(&self, name: &str, text: &str, tx: &Tx);
}
