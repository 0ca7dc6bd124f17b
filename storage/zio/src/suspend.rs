//! Suspension: I/Os that cannot succeed now wait here for [`crate::Zio::resume`] (OpenZFS: `zio_suspend`, `zio_resume`). With a fence nothing more
//! is written until it is lifted, and whoever resumes the pool without lifting it changes nothing: another host may have the devices by now.

use crate::view::FailMode;
use crate::{ErrorKind, ReadRequest, ReadThen, WriteRequest, WriteThen, ZioError};
use exec::{Completer, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An I/O that waits for the pool to be resumed.
pub(crate) enum Held {
    Read(ReadRequest, ReadThen),
    Write(Box<WriteRequest>, WriteThen),
    /// A waiter that cannot go on: told whether the pool was resumed.
    Waiter(Completer<bool>),
}

impl Held {
    /// Delivers the error that it failed with.
    pub(crate) fn fail_with(self, error: ZioError) {
        match self {
            Held::Read(_, then) => then(Err(error)),
            Held::Write(_, then) => then(Err(error)),
            Held::Waiter(done) => done.complete(false),
        }
    }

    /// Delivers an error.
    pub(crate) fn fail(self, kind: ErrorKind) {
        match self {
            Held::Read(request, then) => then(Err(ZioError::new(kind, request.bookmark))),
            Held::Write(request, then) => then(Err(ZioError::new(kind, request.bookmark))),
            Held::Waiter(done) => done.complete(false),
        }
    }
}

/// Outcome of holding an I/O.
pub(crate) enum Hold {
    /// The I/O is held: the first one, which suspended the pool, or another.
    Kept { is_first: bool },
    /// The I/O is not held.
    Refused(Held),
}

/// The I/Os that are held.
#[derive(Default)]
pub(crate) struct Suspension {
    held: Mutex<Vec<Held>>,
    /// True while something is held: to be looked at without the lock.
    suspended: AtomicBool,
    /// True when nothing is held any more: the pool is given up.
    abandoned: AtomicBool,
    /// True when nothing may be written: to be looked at without the lock.
    fenced: AtomicBool,
    /// Time in ns after which nothing may be written though nobody has said so yet; 0 for none.
    limit_ns: Arc<AtomicU64>,
    /// Error that suspended the pool, as far as that is of a block; kept when the pool is given up.
    cause: Mutex<Option<ZioError>>,
}

impl Suspension {
    /// True while something is held, or would be.
    pub(crate) fn is_on(&self) -> bool {
        self.suspended.load(Ordering::Acquire) || self.is_fenced() && !self.abandoned.load(Ordering::Acquire)
    }

    /// True while nothing may be written.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// Cell of the time in ns after which nothing may be written though nobody has said so yet; 0 for none.
    pub(crate) fn limit(&self) -> &Arc<AtomicU64> {
        &self.limit_ns
    }

    /// True after that time.
    pub(crate) fn is_late(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let limit = self.limit_ns.load(Ordering::Acquire);
        limit != 0 && now_ns() > limit
    }

    /// Lets nothing be written any more; false when that is so already.
    pub(crate) fn fence(&self) -> bool {
        let held = self.held.lock();
        let is_new = !self.fenced.swap(true, Ordering::AcqRel);
        if is_new && held.is_empty() {
            *self.cause.lock() = None;
        }
        is_new
    }

    /// Lets be written again.
    pub(crate) fn lift_fence(&self) {
        self.fenced.store(false, Ordering::Release);
    }

    /// Keeps the I/O when the pool's `failmode` says so, else gives it back. A write is kept in any mode: were it given up, what
    /// it belongs to would be lost (OpenZFS: `zio_done`). `why` is the error that it failed with.
    pub(crate) fn hold(&self, mode: FailMode, held: Held, why: Option<ZioError>) -> Hold {
        let keeps = match mode {
            FailMode::Wait => true,
            FailMode::Continue | FailMode::Panic => matches!(held, Held::Write(..) | Held::Waiter(_)),
            FailMode::Never => false,
        };
        if !keeps {
            return Hold::Refused(held);
        }
        let mut waiting = self.held.lock();
        if self.abandoned.load(Ordering::Acquire) {
            return Hold::Refused(held);
        }
        waiting.push(held);
        let is_first = waiting.len() == 1 && !self.is_fenced();
        if is_first {
            *self.cause.lock() = why;
        }
        self.suspended.store(true, Ordering::Release);
        Hold::Kept { is_first }
    }

    /// The block that suspended the pool last.
    pub(crate) fn cause(&self) -> Option<ZioError> {
        *self.cause.lock()
    }

    /// Ends the suspension; gives what was held.
    pub(crate) fn take(&self) -> Vec<Held> {
        let mut held = self.held.lock();
        self.suspended.store(false, Ordering::Release);
        std::mem::take(&mut *held)
    }

    /// Holds nothing from now on.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }
}

/// True for failures that end when a device comes back.
pub(crate) fn may_recover(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoDevice)
}
