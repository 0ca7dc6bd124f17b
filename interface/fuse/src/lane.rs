//! Lanes: requests of one mount that may wait for the same thing, as for a pool that is suspended, and take no thread from those that wait for
//! something else.
//!
//! Requests of a lane are served by the threads that read them, as all requests are, up to a number for each lane and one for all lanes of a mount. What is
//! beyond that goes to threads of the lane's own. So there is always a thread that reads, and a request waits for others of its lane at most; but what
//! is read and waits takes memory, and where a lane has too much of that, those who read wait, too.

use exec::{Exec, Hands};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of requests of one lane that are served by those who read, at most.
const HERE_MAX: usize = 8;
/// Number of requests of all lanes of a mount that are, at most.
pub(crate) const HERE_MAX_OF_ALL: usize = 12;
/// Number of threads of a lane's own, at most.
const OWN_MAX: usize = 16;
/// Bytes of requests that wait for a lane's own threads, or are done by them, at most.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Requests that may wait for the same thing.
pub struct Lane {
    /// Number of those that are served by who read them.
    here: AtomicUsize,
    /// Bytes of those that its own threads have.
    kept_bytes: AtomicUsize,
    own: Arc<Hands>,
}

/// Place of a request among those that are served by who read them.
pub(crate) struct Here {
    lane: Arc<Lane>,
    all: Arc<AtomicUsize>,
}

/// Room for a request among those that the lane's own threads have.
pub(crate) struct Kept {
    lane: Arc<Lane>,
    bytes: usize,
}

/// Counts so many more, unless that would be more than `most`.
fn take(count: &AtomicUsize, more: usize, most: usize) -> bool {
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| Some(count + more).filter(|count| *count <= most)).is_ok()
}

impl Lane {
    /// Makes a lane, whose own threads are of `exec`: none yet.
    pub fn new(exec: &Exec) -> Arc<Lane> {
        let own = Hands::new(exec, "z-fuse-lane", OWN_MAX);
        Arc::new(Lane { here: AtomicUsize::new(0), kept_bytes: AtomicUsize::new(0), own })
    }

    /// Takes a place for a request, of the lane's and of `all` lanes'; None when there is none left.
    pub(crate) fn enter(self: &Arc<Self>, all: &Arc<AtomicUsize>) -> Option<Here> {
        if !take(&self.here, 1, HERE_MAX) {
            return None;
        }
        if !take(all, 1, HERE_MAX_OF_ALL) {
            self.here.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Here { lane: self.clone(), all: all.clone() })
    }

    /// Takes room for a request of so many bytes among those that the lane's own threads have; None when these have enough.
    pub(crate) fn keep(self: &Arc<Self>, bytes: usize) -> Option<Kept> {
        take(&self.kept_bytes, bytes, KEPT_BYTES_MAX).then(|| Kept { lane: self.clone(), bytes })
    }
}

impl Kept {
    /// Has a thread of the lane's own do `job`, as soon as one is free.
    pub(crate) fn hand_over(self, job: impl FnOnce() + Send + 'static) {
        let own = self.lane.own.clone();
        own.give(Box::new(move || {
            job();
            drop(self);
        }));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.lane.kept_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.lane.here.fetch_sub(1, Ordering::AcqRel);
        self.all.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all places that a lane can have.
    fn fill(lane: &Arc<Lane>, all: &Arc<AtomicUsize>) -> Vec<Here> {
        std::iter::from_fn(|| lane.enter(all)).collect()
    }

    /// If this fails, requests of a few suspended pools take every thread, and nobody reads those of the others.
    #[test]
    fn lanes_leave_readers_for_each_other() {
        let exec: Exec = Arc::new(exec::Pool::new(1));
        let (all, lanes) = (Arc::default(), [(); 3].map(|()| Lane::new(&exec)));
        let held: Vec<Vec<Here>> = lanes.iter().map(|lane| fill(lane, &all)).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [HERE_MAX, HERE_MAX_OF_ALL - HERE_MAX, 0]);
        drop(held);
        assert_eq!(fill(&lanes[2], &all).len(), HERE_MAX, "places come back");
        assert_eq!(all.load(Ordering::Acquire), 0);
    }

    /// If this fails, requests that wait for a suspended pool take all memory.
    #[test]
    fn what_a_lane_keeps_is_bounded() {
        let exec: Exec = Arc::new(exec::Pool::new(1));
        let lane = Lane::new(&exec);
        let kept = lane.keep(KEPT_BYTES_MAX).expect("there is room");
        assert!(lane.keep(1).is_none());
        drop(kept);
        assert!(lane.keep(1).is_some(), "room comes back");
    }
}
