//! A set of leaf I/Os that belong together: issued at once, continued when the last one is done.
//!
//! When every device completes before `submit` returns, the continuation runs on the submitting thread and costs no switch
//! of threads; otherwise it becomes a job, so that no device's completion thread ever hashes or decompresses.

use crate::Priority;
use crate::engine::{Core, FailedIo, Snapshot};
use crate::extended::LeafTiming;
use crate::plug;
use crate::queue::{LeafQueue, Route};
use abd::Abd;
use device::{DeviceError, DeviceIo, DeviceOp, DeviceReply};
use exec::{Mutex, TaskClass};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::LeafId;
use vdev_queue::{Class, IoKind};

/// One I/O to one leaf.
#[derive(Debug)]
pub(crate) struct LeafOp {
    pub(crate) leaf: LeafId,
    pub(crate) offset: u64,
    pub(crate) op: DeviceOp,
}

/// The bytes of a read (empty for other operations), or why not.
pub(crate) type LeafResult = Result<Abd, DeviceError>;

/// How the set is treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchOptions {
    pub(crate) class: TaskClass,
    /// Urgency, for the statistics.
    pub(crate) priority: Priority,
    /// Count no errors.
    pub(crate) speculative: bool,
}

/// A leaf I/O of the set.
#[derive(Clone, Copy, Debug)]
struct Member {
    index: usize,
    leaf: LeafId,
    kind: IoKind,
    offset: u64,
    bytes: u64,
}

struct State<F> {
    results: Vec<LeafResult>,
    then: Option<F>,
}

struct Batch<F> {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    options: BatchOptions,
    planned_ns: u64,
    /// I/Os not done, plus one while they are being submitted.
    remaining: AtomicUsize,
    state: Mutex<State<F>>,
}

/// Issues `ops`; `then` gets their results in the same order.
pub(crate) fn issue<F>(core: &Arc<Core>, snapshot: &Arc<Snapshot>, options: BatchOptions, ops: Vec<LeafOp>, then: F)
where
    F: FnOnce(Vec<LeafResult>) + Send + 'static,
{
    let results = vec![Err(DeviceError::Gone); ops.len()];
    let batch = Arc::new(Batch {
        core: core.clone(),
        snapshot: snapshot.clone(),
        options,
        planned_ns: core.exec.now_ns(),
        remaining: AtomicUsize::new(ops.len() + 1),
        state: Mutex::new(State { results, then: Some(then) }),
    });
    for (index, LeafOp { leaf, offset, op }) in ops.into_iter().enumerate() {
        let Some(queue) = snapshot.queue(leaf) else {
            batch.remaining.fetch_sub(1, Ordering::AcqRel);
            continue;
        };
        let kind = kind_of(&op);
        let class = options.priority.class(kind);
        let member = Member { index, leaf, kind, offset, bytes: op.length_bytes() };
        let batch = batch.clone();
        match queue.route(class, kind) {
            Route::Straight => batch.straight(core, queue, (member, class), (op, offset)),
            Route::Queued => {
                let io = DeviceIo::new(op, offset, move |reply| batch.leaf_done(member, reply));
                queue.enqueue(core, (class, kind), io);
            }
        }
    }
    if batch.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
        batch.finish();
    }
}

fn kind_of(op: &DeviceOp) -> IoKind {
    match op {
        DeviceOp::Read(_) => IoKind::Read,
        DeviceOp::Write(_) => IoKind::Write,
        DeviceOp::Flush => IoKind::Flush,
        DeviceOp::Trim { .. } => IoKind::Trim,
    }
}

impl<F: FnOnce(Vec<LeafResult>) + Send + 'static> Batch<F> {
    /// Hands an I/O to its device past the queue.
    fn straight(self: Arc<Self>, core: &Arc<Core>, queue: &LeafQueue, (member, class): (Member, Class), (op, offset): (DeviceOp, u64)) {
        let issued_ns = core.exec.now_ns();
        let timing = LeafTiming {
            kind: member.kind,
            class,
            offset,
            bytes: op.length_bytes(),
            merged: false,
            queued_ns: issued_ns.saturating_sub(self.planned_ns),
            issued_ns,
            disk_ns: 0,
        };
        self.snapshot.stats(member.leaf).issued(&timing);
        let done = move |reply: DeviceReply| {
            let guid = self.snapshot.guid(member.leaf);
            let took_ns = self.core.leaf_returned(guid, self.snapshot.stats(member.leaf), timing, &reply.outcome);
            if let Some(queue) = self.snapshot.queue(member.leaf) {
                queue.went_straight(&timing, took_ns);
            }
            self.leaf_done(member, reply);
        };
        core.hand_over(queue, DeviceIo::new(op, offset, done));
    }

    /// An I/O of the set came back.
    fn leaf_done(self: Arc<Self>, member: Member, reply: DeviceReply) {
        let result = reply.into_abd();
        if let Err(error) = &result
            && !self.options.speculative
        {
            let Member { leaf, kind, offset, bytes, .. } = member;
            let io = FailedIo { kind, class: self.options.priority.class(kind), offset, bytes };
            self.core.leaf_failed(&self.snapshot, leaf, &io, *error);
        }
        self.state.lock().results[member.index] = result;
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            if plug::is_releasing() {
                return self.finish();
            }
            let class = self.options.class;
            let exec = self.core.exec.clone();
            exec.spawn(class, Box::new(move || self.finish()));
        }
    }

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
