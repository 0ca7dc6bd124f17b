//! A set of block writes in flight, bounded in bytes, with one wait for all of them.

use crate::{BlockError, BlockIo, BlockWrite};
use exec::{Mutex, WaitQueue};
use ondisk::BlockPtr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in flight above which the submitter waits.
const IN_FLIGHT_BYTES_MAX: u64 = 128 << 20;
/// Bytes in flight at which it goes on.
const IN_FLIGHT_BYTES_LOW: u64 = 96 << 20;
const NOBODY_WAITS: u64 = u64::MAX;

struct Shared {
    results: Mutex<Vec<Result<BlockPtr, BlockError>>>,
    in_flight_bytes: AtomicU64,
    /// The waiter goes on when no more bytes than this are in flight.
    goal: AtomicU64,
    fell: WaitQueue,
}

/// Writes of one level of a sync.
pub(super) struct WriteSet {
    io: Arc<dyn BlockIo>,
    shared: Arc<Shared>,
}

impl WriteSet {
    pub(super) fn new(io: Arc<dyn BlockIo>) -> WriteSet {
        let shared = Shared {
            results: Mutex::default(),
            in_flight_bytes: AtomicU64::new(0),
            goal: AtomicU64::new(NOBODY_WAITS),
            fell: WaitQueue::new(),
        };
        WriteSet { io, shared: Arc::new(shared) }
    }

    /// Starts a write; gives its index in the results of [`WriteSet::wait`].
    pub(super) fn submit(&mut self, write: BlockWrite) -> usize {
        let bytes = write.data.len() as u64;
        if self.shared.in_flight_bytes.load(Ordering::Relaxed) > IN_FLIGHT_BYTES_MAX {
            self.wait_until_below(IN_FLIGHT_BYTES_LOW);
        }
        let index = {
            let mut results = self.shared.results.lock();
            results.push(Err(BlockError::Io));
            results.len() - 1
        };
        self.shared.in_flight_bytes.fetch_add(bytes, Ordering::SeqCst);
        let shared = self.shared.clone();
        let done = move |result: Result<BlockPtr, BlockError>| {
            shared.results.lock()[index] = result;
            let left = shared.in_flight_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            let goal = shared.goal.load(Ordering::SeqCst);
            if goal != NOBODY_WAITS && left <= goal {
                shared.fell.notify_all();
            }
        };
        self.io.write(write, Box::new(done));
        index
    }

    /// Waits for all writes; gives their results and starts over.
    pub(super) fn wait(&mut self) -> Vec<Result<BlockPtr, BlockError>> {
        self.wait_until_below(0);
        std::mem::take(&mut *self.shared.results.lock())
    }

    fn wait_until_below(&self, goal: u64) {
        let shared = &self.shared;
        shared.goal.store(goal, Ordering::SeqCst);
        shared.fell.wait_until(self.io.exec(), &|| shared.in_flight_bytes.load(Ordering::SeqCst) <= goal);
        shared.goal.store(NOBODY_WAITS, Ordering::SeqCst);
    }
}
