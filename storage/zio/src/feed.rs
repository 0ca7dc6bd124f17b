//! Who is fed by degraded reads: what a degraded read computed is written to the device that lacks it, so that nobody computes it again.
//!
//! The pipeline asks the owner of the resilver, who knows which writes are safe: the block may have been freed while it was read, and its
//! place given to another. The reader does not wait for the write.

use ondisk::BlockPtr;

/// The owner of a resilver. Implemented above.
pub trait ResilverFeed: Send + Sync {
    /// A mark of this moment, for [`ResilverFeed::begin`]; None when nothing is being resilvered. Asked by every read.
    fn mark(&self) -> Option<u64>;
    /// True when what leaves lack of a block may be written now, whose read began at `mark`. Then [`ResilverFeed::end`] follows.
    fn begin(&self, bp: &BlockPtr, mark: u64) -> bool;
    /// The writes ended; `written` when all of them succeeded.
    fn end(&self, bp: &BlockPtr, written: bool);
}
