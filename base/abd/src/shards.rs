//! How state that all threads use is split, so that they seldom meet: a number of shards, and one for each thread. It holds no state of others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of parts into which shared state is split: the number of processors, as a power of two.
pub(crate) fn shards() -> usize {
    static SHARDS: OnceLock<usize> = OnceLock::new();
    *SHARDS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()).next_power_of_two().min(16))
}

/// The shard of this thread; threads take turns.
pub(crate) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that ends drops its buffers perhaps after its thread-locals.
    MINE.try_with(|mine| mine & (shards() - 1)).unwrap_or(0)
}
