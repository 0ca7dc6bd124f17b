//! Suspension: I/Os that cannot succeed now wait here for [`Zio::resume`] (OpenZFS: `zio_suspend`, `zio_resume`).

use crate::engine::{Core, Snapshot};
use crate::view::FailMode;
use crate::{ErrorKind, ReadRequest, ReadThen, WriteRequest, WriteThen, Zio, ZioError, events};
use exec::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An I/O that waits for the pool to be resumed.
pub(crate) enum Held {
    Read(ReadRequest, ReadThen),
    Write(Box<WriteRequest>, WriteThen),
}

impl Held {
    /// Delivers an error.
    pub(crate) fn fail(self, kind: ErrorKind) {
        match self {
            Held::Read(request, then) => then(Err(ZioError::new(kind, request.bookmark))),
            Held::Write(request, then) => then(Err(ZioError::new(kind, request.bookmark))),
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

impl Core {
    /// Keeps the I/O when the pool's `failmode` says so, else gives it back. A write is kept in any mode: were it given up, what
    /// it belongs to would be lost (OpenZFS: `zio_done`).
    pub(crate) fn hold(&self, snapshot: &Snapshot, held: Held) -> Option<Held> {
        let keeps = match snapshot.view.facts.fail_mode {
            FailMode::Wait => true,
            FailMode::Continue | FailMode::Panic => matches!(held, Held::Write(..)),
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
            self.events.event(events::suspended(snapshot));
        }
        None
    }
}

impl Zio {
    /// True while I/Os wait for [`Zio::resume`].
    pub fn is_suspended(&self) -> bool {
        self.core.suspension.suspended.load(Ordering::Acquire)
    }

    /// True while the pool's `failmode` wants new writes refused: it is suspended, and nobody is to wait for it.
    pub fn refuses_writes(&self) -> bool {
        self.is_suspended() && matches!(self.core.snapshot().view.facts.fail_mode, FailMode::Continue | FailMode::Panic)
    }

    /// Tries the held I/Os again (`zpool clear`).
    pub fn resume(&self) {
        for io in self.take_held() {
            match io {
                Held::Read(request, then) => self.read(request, then),
                Held::Write(request, then) => self.write(*request, then),
            }
        }
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
