//! Suspension: I/Os that cannot succeed now wait here for [`crate::Zio::resume`] (OpenZFS: `zio_suspend`, `zio_resume`). With a fence nothing more
//! is written until it is lifted, and whoever resumes the pool without lifting it changes nothing: another host may have the devices by now.
//!
//! An I/O that began before the pool was resumed says nothing of the devices as they are since: when it fails it is tried again as what was held
//! is, and suspends nothing. Who may fail notes before he looks at devices how often the pool was resumed ([`Resumes`]).

use crate::view::FailMode;
use crate::{ErrorKind, ReadRequest, ReadThen, WriteRequest, WriteThen, ZioError};
use exec::{Completer, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of times that a pool was resumed, as of when something began that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumes(u64);

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
    /// The pool was resumed since the I/O began: it is to be tried again.
    Outdated(Held),
    /// The I/O is not held.
    Refused(Held),
}

/// The I/Os that are held.
#[derive(Default)]
pub(crate) struct Suspension {
    held: Mutex<Vec<Held>>,
    /// Number of times that the pool was resumed: changed with the lock, to be looked at without it.
    resumes: AtomicU64,
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

    /// Number of times that the pool was resumed so far: to be asked before the view of its devices.
    pub(crate) fn resumes(&self) -> Resumes {
        Resumes(self.resumes.load(Ordering::Acquire))
    }

    /// Keeps the I/O when the pool's `failmode` says so, else gives it back; also when the pool was resumed `since` it began. A write is kept in any
    /// mode: were it given up, what it belongs to would be lost (OpenZFS: `zio_done`). `why` is the error that it failed with.
    pub(crate) fn hold(&self, mode: FailMode, held: Held, since: Resumes, why: Option<ZioError>) -> Hold {
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
        if self.resumes() != since {
            return Hold::Outdated(held);
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

    /// Ends the suspension; gives what was held. What began before suspends nothing any more.
    pub(crate) fn take(&self) -> Vec<Held> {
        let mut held = self.held.lock();
        self.resumes.fetch_add(1, Ordering::AcqRel);
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
