//! The locks of the engine: parking_lot's, with a hook for the executors that must see contention.
//!
//! While a [`crate::Lockstep`] program runs in the process, its threads pass the baton at locks instead of blocking. All
//! others pay one relaxed load of a flag that nobody writes.

use crate::lockstep::{self, Participant};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// Takes a lock by trying, letting other threads run in between.
fn take<G>(participant: &Participant, attempt: impl Fn() -> Option<G>, is_free: &dyn Fn() -> bool) -> G {
    participant.preempt();
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        participant.block(is_free);
    }
}

/// A lock for mutual exclusion.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting for it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match lockstep::participant() {
            None => self.0.lock(),
            Some(participant) => take(&participant, || self.0.try_lock(), &|| !self.0.is_locked()),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value, without locking: the borrow proves that nobody holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// True when somebody holds the lock now.
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One writer or many readers.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, waiting for it. A thread must not take it again while a writer may wait.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match lockstep::participant() {
            None => self.0.read(),
            Some(participant) => take(&participant, || self.0.try_read(), &|| !self.0.is_locked_exclusive()),
        }
    }

    /// Takes the lock for writing, waiting for it.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match lockstep::participant() {
            None => self.0.write(),
            Some(participant) => take(&participant, || self.0.try_write(), &|| !self.0.is_locked()),
        }
    }

    /// Takes the lock for reading if no writer has it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    /// The value, without locking: the borrow proves that nobody holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Outcome of a wait with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True when the time was up.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition to wait for while holding a [`Mutex`]. Wake-ups may be spurious: look at the condition in a loop.
///
/// Only background threads of their own use it; operations wait through [`crate::WaitQueue`], which every executor drives.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
    /// Number of notifications while a lockstep program runs.
    notified: AtomicU64,
}

impl Condvar {
    /// A condition nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { inner: parking_lot::Condvar::new(), notified: AtomicU64::new(0) }
    }

    /// Lets the lock go, waits for a notification, and takes the lock again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match lockstep::participant() {
            None => self.inner.wait(guard),
            Some(participant) => {
                let before = self.notified.load(Ordering::SeqCst);
                self.step(&participant, guard, &|| self.notified.load(Ordering::SeqCst) != before);
            }
        }
    }

    /// As [`Condvar::wait`], but not longer than `timeout`.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let Some(participant) = lockstep::participant() else {
            return WaitTimeoutResult(self.inner.wait_for(guard, timeout).timed_out());
        };
        let before = self.notified.load(Ordering::SeqCst);
        let due = participant.start_timer(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let notified = || self.notified.load(Ordering::SeqCst) != before;
        self.step(&participant, guard, &|| notified() || participant.now_ns() >= due);
        WaitTimeoutResult(!notified())
    }

    fn step<T: ?Sized>(&self, participant: &Participant, guard: &mut MutexGuard<'_, T>, ready: &dyn Fn() -> bool) {
        let mutex = MutexGuard::mutex(guard);
        MutexGuard::unlocked(guard, || participant.block(&|| ready() && !mutex.is_locked()));
    }

    /// Wakes one waiter (perhaps more).
    pub fn notify_one(&self) {
        self.note();
        self.inner.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.note();
        self.inner.notify_all();
    }

    fn note(&self) {
        if lockstep::is_active() {
            self.notified.fetch_add(1, Ordering::SeqCst);
        }
    }
}
