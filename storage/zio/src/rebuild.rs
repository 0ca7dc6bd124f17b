//! Sequential rebuild: parts of a vdev's address space, whatever blocks are in them, read from leaves that have them and written
//! to those that lack them (OpenZFS: `vdev_rebuild_range`).
//!
//! ```text
//! rebuild() ─nothing lacks it─► then
//!   └─► RebuildJob ─Issue─► devices ─► RebuildJob::take ─► perhaps an accelerator ─► go_on ─Done─► write ─► then
//!                     ▲───── others, when some failed ◄──────────────────────────────────┘
//! ```

use crate::Priority;
use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::core::Core;
use crate::leaf_ops::read_ops;
use crate::snapshot::Snapshot;
use device::DeviceOp;
use exec::TaskClass;
use ondisk::VdevId;
use std::sync::Arc;
use vdev::{LeafIo, RebuildJob, RebuildStep, Repair, Spared};

const OPTIONS: BatchOptions = BatchOptions { class: TaskClass::Background, priority: Priority::Rebuild, speculative: false };

/// A part to be rebuilt, as [`vdev::TopVdev::rebuild_part`] gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildRequest {
    /// Top-level vdev that the part is of.
    pub vdev: VdevId,
    /// First byte of the vdev's space.
    pub offset: u64,
    /// Allocated bytes.
    pub asize: u64,
    /// Leaves that are read only if others do not do.
    pub spared: Spared,
}

/// Outcome of rebuilding a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// True when a leaf in use lacked a part of it.
    pub needed: bool,
    /// Bytes written to leaves that lacked them.
    pub written_bytes: u64,
    /// True when the part could not be computed, or not be written everywhere.
    pub failed: bool,
}

/// Receives the outcome of a rebuild. Runs once, on any thread, and must not wait.
pub type RebuildThen = Box<dyn FnOnce(Rebuilt) + Send>;

/// Rebuilds one part with the view as of now.
pub(crate) fn rebuild(core: &Arc<Core>, request: RebuildRequest, then: RebuildThen) {
    let snapshot = core.snapshot();
    let view = &snapshot.view;
    let top = view.tree.top(request.vdev).filter(|top| top.can_rebuild());
    let fits = |top: &&vdev::TopVdev| request.offset.checked_add(request.asize).is_some_and(|end| end <= top.asize);
    let Some(top) = top.filter(fits) else {
        return then(Rebuilt { failed: true, ..Rebuilt::default() });
    };
    match RebuildJob::start(&view.tree, top, (request.offset, request.asize), request.spared) {
        None => then(Rebuilt::default()),
        Some((job, step)) => {
            let rebuild = Box::new(Rebuild { core: core.clone(), snapshot: snapshot.clone(), job, then });
            rebuild.step(step);
        }
    }
}

/// The state of one rebuild.
struct Rebuild {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    job: RebuildJob,
    then: RebuildThen,
}

impl Rebuild {
    fn step(self: Box<Self>, step: RebuildStep) {
        match step {
            RebuildStep::Issue(ios) => self.issue(&ios),
            RebuildStep::Done(repairs) => self.write(repairs),
            RebuildStep::Lost => (self.then)(Rebuilt { needed: true, failed: true, ..Rebuilt::default() }),
        }
    }

    fn issue(mut self: Box<Self>, ios: &[LeafIo]) {
        let (core, snapshot) = (self.core.clone(), self.snapshot.clone());
        batch::issue(&core, &snapshot, OPTIONS, read_ops(ios), move |results: Vec<LeafResult>| {
            self.job.take(results.into_iter().map(Result::ok).collect());
            let row = if self.core.stages.reconstructs() { self.job.lost_row() } else { None };
            let Some(row) = row else {
                let step = self.job.go_on(None);
                return self.step(step);
            };
            let core = self.core.clone();
            core.stages.solve(vec![row], move |mut computed| {
                let step = self.job.go_on(computed.pop());
                self.step(step);
            });
        });
    }

    fn write(self, repairs: Vec<Repair>) {
        let lengths: Vec<u64> = repairs.iter().map(|repair| repair.data.len() as u64).collect();
        let write = |repair: Repair| LeafOp { leaf: repair.leaf, offset: repair.offset, op: DeviceOp::Write(repair.data) };
        let ops = repairs.into_iter().map(write).collect();
        let Rebuild { core, snapshot, then, .. } = self;
        batch::issue(&core, &snapshot, OPTIONS, ops, move |results: Vec<LeafResult>| {
            let written = lengths.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(length, _)| length);
            let written_bytes = written.sum();
            then(Rebuilt { needed: true, written_bytes, failed: results.iter().any(Result::is_err) });
        });
    }
}
