//! Suspension: I/Os that cannot succeed now wait here for [`Zio::resume`] (OpenZFS: `zio_suspend`, `zio_resume`).

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::engine::{Core, Snapshot};
use crate::view::FailMode;
use crate::{ErrorKind, Priority, ReadRequest, ReadThen, WriteRequest, WriteThen, Zio, ZioError, events};
use device::DeviceOp;
use exec::{Completer, Mutex, TaskClass, completion};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::{LABEL_START_BYTES, LeafId};

/// Bytes that tell whether a device works.
const PROBE_BYTES: usize = 4096;

/// An I/O that waits for the pool to be resumed.
pub(crate) enum Held {
    Read(ReadRequest, ReadThen),
    Write(Box<WriteRequest>, WriteThen),
    /// Somebody who cannot go on: told whether the pool was resumed.
    Waiter(Completer<bool>),
}

impl Held {
    /// Delivers an error.
    pub(crate) fn fail(self, kind: ErrorKind) {
        match self {
            Held::Read(request, then) => then(Err(ZioError::new(kind, request.bookmark))),
            Held::Write(request, then) => then(Err(ZioError::new(kind, request.bookmark))),
            Held::Waiter(done) => done.complete(false),
        }
    }
}

#[derive(Default)]
pub(crate) struct Suspension {
    held: Mutex<Vec<Held>>,
    /// Something is held: to be looked at without the lock.
    suspended: AtomicBool,
    /// Nothing is held any more: the pool is given up.
    abandoned: AtomicBool,
}

impl Suspension {
    /// True while something is held.
    pub(crate) fn is_on(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }
}

impl Core {
    /// Keeps the I/O when the pool's `failmode` says so, else gives it back. A write is kept in any mode: were it given up, what
    /// it belongs to would be lost (OpenZFS: `zio_done`).
    pub(crate) fn hold(&self, snapshot: &Snapshot, held: Held) -> Option<Held> {
        let keeps = match snapshot.view.facts.fail_mode {
            FailMode::Wait => true,
            FailMode::Continue | FailMode::Panic => matches!(held, Held::Write(..) | Held::Waiter(_)),
            FailMode::Never => false,
        };
        if !keeps {
            return Some(held);
        }
        let first = {
            let mut waiting = self.suspension.held.lock();
            if self.suspension.abandoned.load(Ordering::Acquire) {
                return Some(held);
            }
            waiting.push(held);
            self.suspension.suspended.store(true, Ordering::Release);
            waiting.len() == 1
        };
        if first {
            kstat::debug!("pool '{}' is suspended: I/O that it cannot do without failed", snapshot.view.facts.name);
            self.events.event(events::suspended(snapshot));
        }
        None
    }
}

impl Zio {
    /// True while I/Os wait for [`Zio::resume`].
    pub fn is_suspended(&self) -> bool {
        self.core.suspension.is_on()
    }

    /// True while the pool's `failmode` wants new writes refused: it is suspended, and nobody is to wait for it.
    pub fn refuses_writes(&self) -> bool {
        self.is_suspended() && matches!(self.core.snapshot().view.facts.fail_mode, FailMode::Continue | FailMode::Panic)
    }

    /// Tries the held I/Os again (`zpool clear`).
    pub fn resume(&self) {
        let held = self.take_held();
        kstat::debug!("pool '{}' goes on with {} held I/Os", self.core.snapshot().view.facts.name, held.len());
        for io in held {
            match io {
                Held::Read(request, then) => self.read(request, then),
                Held::Write(request, then) => self.write(*request, then),
                Held::Waiter(done) => done.complete(true),
            }
        }
    }

    /// Suspends the pool for somebody who cannot go on, and waits; true once it was resumed, and what failed is worth another try.
    /// False when the pool is given up, and where nobody could resume it: while it is being opened, and under an executor with
    /// one thread (OpenZFS: `zio_suspend`, `zio_resume_wait`). Only operations wait.
    pub fn suspend_and_wait(&self) -> bool {
        if self.exec().is_inline() {
            return false;
        }
        let (done, wait) = completion();
        if let Some(held) = self.core.hold(&self.core.snapshot(), Held::Waiter(done)) {
            held.fail(ErrorKind::Suspended);
        }
        wait.wait(self.exec())
    }

    /// As [`Zio::suspend_and_wait`] when so many devices fail to read anything that the pool cannot go on; false at once when they work,
    /// and what failed was the place.
    pub fn wait_if_down(&self) -> bool {
        !self.exec().is_inline() && self.is_down() && self.suspend_and_wait()
    }

    /// Whether devices that the pool cannot do without fail to read their first block (OpenZFS: `vdev_probe`). Waits.
    fn is_down(&self) -> bool {
        let snapshot = self.core.snapshot();
        let leaves = snapshot.open_leaves();
        let probe = |&leaf: &LeafId| LeafOp { leaf, offset: LABEL_START_BYTES, op: DeviceOp::read(PROBE_BYTES) };
        let options = BatchOptions { class: TaskClass::Interrupt, priority: Priority::SyncRead, speculative: true };
        let (done, wait) = completion();
        let ops = leaves.iter().map(probe).collect();
        batch::issue(&self.core, &snapshot, options, ops, move |results| done.complete(results));
        let results = wait.wait(self.exec());
        let fails = |(leaf, result): &(LeafId, LeafResult)| result.is_err() || self.is_probe_injected(snapshot.guid(*leaf));
        let bad = leaves.into_iter().zip(results).filter(fails).map(|(leaf, _)| leaf).collect();
        snapshot.is_lost_without(&bad)
    }

    fn take_held(&self) -> Vec<Held> {
        let mut held = self.core.suspension.held.lock();
        self.core.suspension.suspended.store(false, Ordering::Release);
        std::mem::take(&mut *held)
    }

    /// Fails the held I/Os with [`ErrorKind::Suspended`] and holds none from now on, so that a forced export can end. There is
    /// no way back.
    pub fn abandon(&self) {
        self.core.suspension.abandoned.store(true, Ordering::Release);
        self.take_held().into_iter().for_each(|io| io.fail(ErrorKind::Suspended));
    }
}

/// True for failures that end when a device comes back.
pub(crate) fn may_recover(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoDevice)
}

/// Delivers a failed read, or holds it.
pub(crate) fn read_failed(core: &Arc<Core>, snapshot: &Snapshot, request: ReadRequest, then: ReadThen, error: ZioError) {
    let patient = !request.flags.speculative && !request.flags.scrub && !request.flags.resilver;
    let then = if patient && may_recover(error.kind) {
        match core.hold(snapshot, Held::Read(request, then)) {
            None => return,
            Some(Held::Read(_, then)) => then,
            Some(held) => return held.fail(error.kind),
        }
    } else {
        then
    };
    if !request.flags.speculative {
        core.stats.read_failures.bump();
        core.events.event(events::data(snapshot, &request.bookmark, error.dva));
    }
    then(Err(error));
}
