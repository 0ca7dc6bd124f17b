//! The time for which a session lives without a word from its host, and stores that write only in that time.
//!
//! A host that hears nothing more gives the session up a little later than this ends. From then on it may put other data where
//! the session was told to write, so a program that is still queued then must not write.

use abd::Abd;
use dpusm::{HostDone, HostRead, HostStore};
use exec::Exec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Errno of an operation after the end of its session: ESTALE.
const ESTALE: i32 = 116;

/// Life of a session.
#[derive(Debug)]
pub(crate) struct Lease {
    lease_ns: u64,
    /// Time in ns at which it ends; 0 once it has.
    until_ns: AtomicU64,
}

impl Lease {
    pub(crate) fn new(lease_ns: u64, now_ns: u64) -> Arc<Lease> {
        Arc::new(Lease { lease_ns, until_ns: AtomicU64::new(now_ns.saturating_add(lease_ns)) })
    }

    /// Renews the lease with a frame that came; false when that was too late.
    pub(crate) fn renew(&self, now_ns: u64) -> bool {
        let later = |until: u64| (until > now_ns).then(|| now_ns.saturating_add(self.lease_ns));
        self.until_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).is_ok()
    }

    /// Nanoseconds that are left.
    pub(crate) fn left_ns(&self, now_ns: u64) -> u64 {
        self.until_ns.load(Ordering::Acquire).saturating_sub(now_ns)
    }

    pub(crate) fn end(&self) {
        self.until_ns.store(0, Ordering::Release);
    }
}

/// A store as a session has it.
pub(crate) struct LeasedStore {
    pub(crate) exec: Exec,
    pub(crate) lease: Arc<Lease>,
    pub(crate) inner: Arc<dyn HostStore>,
}

impl HostStore for LeasedStore {
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        if self.lease.left_ns(self.exec.now_ns()) == 0 { done(Err(ESTALE)) } else { self.inner.read(offset, bytes, done) }
    }

    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        if self.lease.left_ns(self.exec.now_ns()) == 0 { done(Err(ESTALE)) } else { self.inner.write(offset, data, done) }
    }

    fn flush(&self, done: HostDone) {
        if self.lease.left_ns(self.exec.now_ns()) == 0 { done(Err(ESTALE)) } else { self.inner.flush(done) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame that comes late must not revive a session whose host has given it up.
    #[test]
    fn a_lease_that_ended_is_not_renewed() {
        let lease = Lease::new(100, 0);
        assert!(lease.renew(99));
        assert_eq!((lease.left_ns(150), lease.left_ns(199)), (49, 0));
        assert!(!lease.renew(199));
        let lease = Lease::new(100, 0);
        lease.end();
        assert!(!lease.renew(1));
    }
}
