//! Suspension: I/Os that cannot succeed now wait here for [`Zio::resume`] (OpenZFS: `zio_suspend`, `zio_resume`).

use crate::engine::{Core, Snapshot};
use crate::view::FailMode;
use crate::{ErrorKind, ReadRequest, ReadThen, WriteRequest, WriteThen, Zio, ZioError, events};
use exec::Mutex;
use std::sync::Arc;

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
pub(crate) struct Suspension(Mutex<Vec<Held>>);

impl Core {
    /// Keeps the I/O when the pool's `failmode` says so, else gives it back.
    pub(crate) fn hold(&self, snapshot: &Snapshot, held: Held) -> Option<Held> {
        match snapshot.view.facts.fail_mode {
            FailMode::Wait => {
                let first = {
                    let mut waiting = self.suspension.0.lock();
                    waiting.push(held);
                    waiting.len() == 1
                };
                if first {
                    self.events.event(events::suspended(snapshot));
                }
                None
            }
            FailMode::Continue => Some(held),
            FailMode::Panic => {
                self.events.event(events::suspended(snapshot));
                Some(held)
            }
        }
    }
}

impl Zio {
    /// True while I/Os wait for [`Zio::resume`].
    pub fn is_suspended(&self) -> bool {
        !self.core.suspension.0.lock().is_empty()
    }

    /// Tries the held I/Os again (`zpool clear`).
    pub fn resume(&self) {
        let held = std::mem::take(&mut *self.core.suspension.0.lock());
        for io in held {
            match io {
                Held::Read(request, then) => self.read(request, then),
                Held::Write(request, then) => self.write(*request, then),
            }
        }
    }

    /// Fails the held I/Os with [`ErrorKind::Suspended`], so that a forced export can end.
    pub fn abandon(&self) {
        let held = std::mem::take(&mut *self.core.suspension.0.lock());
        held.into_iter().for_each(|io| io.fail(ErrorKind::Suspended));
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
