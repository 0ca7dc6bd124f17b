//! What the crate consumes from the pool. Implemented by the pool.

use dmu::Tx;

/// The pool, as far as a scan needs it.
pub trait ScanHost: Send + Sync {
    /// Allocated bytes of all data vdevs, parity included.
    fn allocated_bytes(&self) -> u64;
    /// True when the error log is kept by head dataset (feature `head_errlog` is enabled).
    fn has_head_errlog(&self) -> bool;
    /// Writes a line of history about the scan, in syncing context.
    fn log(&self, name: &str, text: &str, tx: &Tx);
}
