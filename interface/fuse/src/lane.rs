//! Lanes: requests of one mount that may wait for the same thing, as for a pool that is suspended, and take no thread from those that wait for
//! something else.
//!
//! Requests of a lane are served by the threads that read them, as all requests are, up to a number for each lane and one for all lanes of a mount. What is
//! beyond that goes to threads of the lane's own. So there is always a thread that reads, and a request waits for others of its lane at most.

use crate::chores::Chores;
use exec::{Exec, Job};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of requests of one lane that are served by those who read, at most.
const HERE_MAX: usize = 8;
/// Number of requests of all lanes of a mount that are, at most.
pub(crate) const HERE_MAX_OF_ALL: usize = 12;
/// Number of threads of a lane's own, at most.
const OWN_MAX: usize = 16;

/// Requests that may wait for the same thing.
pub struct Lane {
    /// Number of those that are served by who read them.
    here: AtomicUsize,
    own: Arc<Chores>,
}

/// Place of a request among those that are served by who read them.
pub(crate) struct Here {
    lane: Arc<Lane>,
    all: Arc<AtomicUsize>,
}

/// Counts one more, unless there are `most`.
fn take(count: &AtomicUsize, most: usize) -> bool {
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1)).is_ok()
}

impl Lane {
    /// Makes a lane, whose own threads are of `exec`: none yet.
    pub fn new(exec: &Exec) -> Arc<Lane> {
        Arc::new(Lane { here: AtomicUsize::new(0), own: Chores::new(exec, "z-fuse-lane", OWN_MAX) })
    }

    /// Takes a place for a request, of the lane's and of `all` lanes'; None when there is none left.
    pub(crate) fn enter(self: &Arc<Self>, all: &Arc<AtomicUsize>) -> Option<Here> {
        if !take(&self.here, HERE_MAX) {
            return None;
        }
        if !take(all, HERE_MAX_OF_ALL) {
            self.here.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Here { lane: self.clone(), all: all.clone() })
    }

    /// Has a thread of the lane's own do `job`, as soon as one is free.
    pub(crate) fn hand_over(&self, job: Job) {
        self.own.add(job);
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
}
