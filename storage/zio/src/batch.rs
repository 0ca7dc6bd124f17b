//! A set of leaf I/Os that belong together: issued at once, continued when the last one is done.
//!
//! When every device completes before `submit` returns, the continuation runs on the submitting thread and costs no switch
//! of threads; otherwise it becomes a job, so that no device's completion thread ever hashes or decompresses.

use crate::Priority;
use crate::core::Core;
use crate::snapshot::Snapshot;
use abd::Abd;
use device::{DeviceError, DeviceOp, DeviceReply};
use exec::{Mutex, TaskClass};
use leaf::{FailedIo, LeafDevice, Submission, Waiter};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::LeafId;
use vdev_queue::IoKind;

/// One I/O to one leaf.
#[derive(Debug)]
pub(crate) struct LeafOp {
    pub(crate) leaf: LeafId,
    pub(crate) offset: u64,
    pub(crate) op: DeviceOp,
}

/// The bytes of a read (empty for other operations), or why not.
pub(crate) type LeafResult = Result<Abd, DeviceError>;

/// Options of the set: for whom it is, and whether its errors count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchOptions {
    pub(crate) class: TaskClass,
    /// Urgency, for the statistics.
    pub(crate) priority: Priority,
    /// True to count no errors.
    pub(crate) speculative: bool,
}

/// A leaf I/O of the set, and the set.
struct Member<F> {
    batch: Arc<Batch<F>>,
    index: usize,
    leaf: LeafId,
    /// Description of the I/O, for the report if it fails.
    io: FailedIo,
}

struct State<F> {
    results: Vec<LeafResult>,
    then: Option<F>,
}

struct Batch<F> {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    options: BatchOptions,
    /// I/Os not done, plus one while they are being submitted.
    remaining: AtomicUsize,
    state: Mutex<State<F>>,
}

/// Issues `ops`; `then` gets their results in the same order. What would change devices to which nothing may be written is as if they were gone.
pub(crate) fn issue<F>(core: &Arc<Core>, snapshot: &Arc<Snapshot>, options: BatchOptions, ops: Vec<LeafOp>, then: F)
where
    F: FnOnce(Vec<LeafResult>) + Send + 'static,
{
    let results = vec![Err(DeviceError::Gone); ops.len()];
    let planned_ns = core.exec.now_ns();
    let batch = Arc::new(Batch {
        core: core.clone(),
        snapshot: snapshot.clone(),
        options,
        remaining: AtomicUsize::new(ops.len() + 1),
        state: Mutex::new(State { results, then: Some(then) }),
    });
    let is_fenced = core.keeps_writes_back();
    for (index, LeafOp { leaf, offset, op }) in ops.into_iter().enumerate() {
        let is_kept_back = is_fenced && matches!(op, DeviceOp::Write(_) | DeviceOp::Trim { .. });
        let Some(device) = snapshot.leaf(leaf).filter(|_| !is_kept_back) else {
            batch.remaining.fetch_sub(1, Ordering::AcqRel);
            continue;
        };
        let kind = kind_of(&op);
        let class = options.priority.class(kind);
        let io = FailedIo { kind, class, offset, bytes: op.length_bytes() };
        device.submit(Submission { op, offset, class, planned_ns }, Member { batch: batch.clone(), index, leaf, io });
    }
    if batch.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
        batch.finish();
    }
}

/// Kind of an operation.
pub(crate) fn kind_of(op: &DeviceOp) -> IoKind {
    match op {
        DeviceOp::Read(_) => IoKind::Read,
        DeviceOp::Write(_) => IoKind::Write,
        DeviceOp::Flush => IoKind::Flush,
        DeviceOp::Trim { .. } => IoKind::Trim,
    }
}

impl<F: FnOnce(Vec<LeafResult>) + Send + 'static> Waiter for Member<F> {
    fn leaf(&self) -> Option<&LeafDevice> {
        self.batch.snapshot.leaf(self.leaf).map(Arc::as_ref)
    }

    fn done(self, reply: DeviceReply) {
        let Member { batch, index, leaf: number, io } = self;
        let result = reply.into_abd();
        if let Err(error) = &result
            && !batch.options.speculative
        {
            batch.core.leaf_failed(&batch.snapshot, number, &io, *error);
        }
        batch.state.lock().results[index] = result;
        if batch.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            if leaf::is_releasing() {
                return batch.finish();
            }
            let class = batch.options.class;
            let exec = batch.core.exec.clone();
            exec.spawn(class, Box::new(move || batch.finish()));
        }
    }
}

impl<F: FnOnce(Vec<LeafResult>) + Send + 'static> Batch<F> {
    /// Delivers the results: all are back.
    fn finish(&self) {
        let (results, then) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.results), state.then.take())
        };
        if let Some(then) = then {
            then(results);
        }
    }
}
