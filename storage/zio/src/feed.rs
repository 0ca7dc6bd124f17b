//! Reads that feed a resilver: what a degraded read computed is written to the device that lacks it, so that nobody computes it again.
//!
//! The pipeline asks the owner of the resilver, who knows which writes are safe: the block may have been freed while it was read, and its
//! place given to another. The reader does not wait for the write.

use crate::batch::{self, LeafOp};
use crate::engine::{Core, Snapshot};
use crate::read::CopySpec;
use abd::{Abd, AbdPart};
use device::DeviceOp;
use ondisk::BlockPtr;
use std::sync::Arc;

/// The owner of a resilver. Implemented above.
pub trait ResilverFeed: Send + Sync {
    /// A mark of this moment, for [`ResilverFeed::begin`]; None when nothing is being resilvered. Asked by every read.
    fn mark(&self) -> Option<u64>;
    /// True when what leaves lack of a block may be written now, whose read began at `mark`. Then [`ResilverFeed::end`] follows.
    fn begin(&self, bp: &BlockPtr, mark: u64) -> bool;
    /// The writes ended; `written` when all of them succeeded.
    fn end(&self, bp: &BlockPtr, written: bool);
}

/// Writes to leaves what they lack of a block that was read. `is_lent` when the bytes lie in the reader's memory.
pub(crate) fn feed(core: &Arc<Core>, snapshot: &Arc<Snapshot>, spec: CopySpec, mark: u64, (ops, is_lent): (Vec<LeafOp>, bool)) {
    let Some(owner) = core.feed.get().cloned() else { return };
    if ops.is_empty() || !owner.begin(&spec.bp, mark) {
        return;
    }
    let ops: Vec<LeafOp> = if is_lent { ops.into_iter().map(owned).collect() } else { ops };
    let lengths: Vec<_> = ops.iter().map(|op| (op.leaf, op.op.length_bytes())).collect();
    let (counting, view) = (core.clone(), snapshot.clone());
    batch::issue(core, snapshot, spec.background(), ops, move |results| {
        let written = results.iter().all(Result::is_ok);
        for ((leaf, bytes), result) in lengths.into_iter().zip(results) {
            if result.is_ok() {
                view.stats(leaf).repaired(bytes);
                counting.stats.fed_bytes.add(bytes);
            }
        }
        owner.end(&spec.bp, written);
    });
}

/// The same write of bytes that the reader can't change.
fn owned(op: LeafOp) -> LeafOp {
    let write = match op.op {
        DeviceOp::Write(data) => DeviceOp::Write(copy(&data)),
        other => other,
    };
    LeafOp { op: write, ..op }
}

fn copy(data: &Abd) -> Abd {
    let mut part = AbdPart::scratch(data.len());
    part.copy_from_abd(data);
    part.freeze()
}
