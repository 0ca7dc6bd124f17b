//! Writing to leaves that are being resilvered what a degraded read computed and they lack; the reader does not wait for it.

use crate::Priority;
use crate::batch::{self, BatchOptions, LeafOp};
use crate::core::Core;
use crate::snapshot::Snapshot;
use abd::{Abd, AbdPart};
use device::DeviceOp;
use exec::TaskClass;
use ondisk::BlockPtr;
use std::sync::Arc;

/// Options of the writes: nobody waits for them.
const OPTIONS: BatchOptions = BatchOptions { class: TaskClass::Background, priority: Priority::Scrub, speculative: false };

/// Writes to leaves what they lack of a block that was read. `is_lent` when the bytes lie in the reader's memory.
pub(crate) fn feed(core: &Arc<Core>, snapshot: &Arc<Snapshot>, bp: &BlockPtr, mark: u64, (ops, is_lent): (Vec<LeafOp>, bool)) {
    let Some(owner) = core.feed.get().cloned() else { return };
    if ops.is_empty() || !owner.begin(bp, mark) {
        return;
    }
    let ops: Vec<LeafOp> = if is_lent { ops.into_iter().map(owned).collect() } else { ops };
    let lengths: Vec<_> = ops.iter().map(|op| (op.leaf, op.op.length_bytes())).collect();
    let (counting, view, bp) = (core.clone(), snapshot.clone(), *bp);
    batch::issue(core, snapshot, OPTIONS, ops, move |results| {
        let written = results.iter().all(Result::is_ok);
        for ((leaf, bytes), result) in lengths.into_iter().zip(results) {
            if result.is_ok() {
                view.stats(leaf).repaired(bytes);
                counting.stats.fed_bytes.add(bytes);
            }
        }
        owner.end(&bp, written);
    });
}

/// Makes the same write of bytes that the reader can't change.
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
