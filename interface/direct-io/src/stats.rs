//! Counters of direct I/O: what was direct, and why the rest was not; requests and bytes, per open file, dataset and pool.
//!
//! One [`DirectStats`] counts for one owner and passes what it counts on to its parent (file → dataset → pool), so every
//! level is exact by itself. Counting is a few relaxed additions to lines of the thread's own.

use super::{How, Plan, Reason};
use kstat::Counter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sum: small for the many open files, spread over cache lines for datasets and pools.
#[derive(Debug)]
enum Sum {
    Small(AtomicU64),
    Spread(Counter),
}

impl Sum {
    fn add(&self, amount: u64) {
        match self {
            Sum::Small(sum) => {
                sum.fetch_add(amount, Ordering::Relaxed);
            }
            Sum::Spread(sum) => sum.add(amount),
        }
    }
    fn get(&self) -> u64 {
        match self {
            Sum::Small(sum) => sum.load(Ordering::Relaxed),
            Sum::Spread(sum) => sum.get(),
        }
    }
    fn reset(&self) {
        match self {
            Sum::Small(sum) => sum.store(0, Ordering::Relaxed),
            Sum::Spread(sum) => sum.reset(),
        }
    }
}

/// Number of requests and bytes under one heading.
#[derive(Debug)]
struct Pair {
    requests: Sum,
    bytes: Sum,
}

impl Pair {
    fn new(spread: bool) -> Pair {
        let sum = || if spread { Sum::Spread(Counter::new()) } else { Sum::Small(AtomicU64::new(0)) };
        Pair { requests: sum(), bytes: sum() }
    }
    fn add(&self, bytes: u64) {
        self.requests.add(1);
        self.bytes.add(bytes);
    }
    fn get(&self) -> (u64, u64) {
        (self.requests.get(), self.bytes.get())
    }
    fn reset(&self) {
        self.requests.reset();
        self.bytes.reset();
    }
}

/// Counters of one owner: a file, dataset or pool.
#[derive(Debug)]
pub struct DirectStats {
    parent: Option<Arc<DirectStats>>,
    asked: Pair,
    reads: Pair,
    writes: Pair,
    coalesced: Pair,
    rejected: Pair,
    fallbacks: Vec<Pair>,
}

/// Count of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonCount {
    /// Reason why requests were not direct.
    pub reason: Reason,
    /// Number of requests (or parts of requests).
    pub requests: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of requests that asked for direct, and their bytes.
    pub asked: (u64, u64),
    /// Direct parts of reads: number and bytes.
    pub direct_reads: (u64, u64),
    /// Direct parts of writes: number and bytes.
    pub direct_writes: (u64, u64),
    /// Records that short writes filled and that went to the devices directly: number and bytes. The writes are counted under their reasons, too.
    pub coalesced_writes: (u64, u64),
    /// Number of requests refused with EINVAL, and their bytes.
    pub rejected: (u64, u64),
    /// Counts of the reasons that occurred, in the order of [`Reason::ALL`].
    pub fallbacks: Vec<ReasonCount>,
}

impl DirectStats {
    /// Makes counters of a dataset or pool, that pass on to `parent`.
    pub fn new(parent: Option<Arc<DirectStats>>) -> Arc<DirectStats> {
        Arc::new(Self::build(parent, true))
    }

    /// Makes counters of an open file, that pass on to the dataset's.
    pub fn of_file(dataset: Arc<DirectStats>) -> Arc<DirectStats> {
        Arc::new(Self::build(Some(dataset), false))
    }

    fn build(parent: Option<Arc<DirectStats>>, spread: bool) -> DirectStats {
        let pair = || Pair::new(spread);
        let fallbacks = Reason::ALL.iter().map(|_| pair()).collect();
        DirectStats { parent, asked: pair(), reads: pair(), writes: pair(), coalesced: pair(), rejected: pair(), fallbacks }
    }

    fn each(&self, count: impl Fn(&DirectStats)) {
        let mut at = Some(self);
        while let Some(stats) = at {
            count(stats);
            at = stats.parent.as_deref();
        }
    }

    /// Counts a request by its plan; `length` is the request's, `write` its direction. Requests that did not ask are free.
    pub fn count(&self, plan: &Plan, length: u64, write: bool) {
        if !plan.asked {
            return;
        }
        self.each(|stats| {
            stats.asked.add(length);
            if let Some(reason) = plan.rejected {
                stats.rejected.add(length);
                stats.fallbacks[reason as usize].add(length);
            }
            for piece in plan.pieces() {
                let bytes = piece.range.end - piece.range.start;
                match piece.how {
                    How::Direct if write => stats.writes.add(bytes),
                    How::Direct => stats.reads.add(bytes),
                    How::Buffered { reason: Some(reason), .. } => stats.fallbacks[reason as usize].add(bytes),
                    How::Buffered { reason: None, .. } => {}
                }
            }
        });
    }

    /// Counts a record of so many bytes that short writes filled and that went to the devices directly.
    pub fn count_coalesced(&self, bytes: u64) {
        self.each(|stats| stats.coalesced.add(bytes));
    }

    /// Values of the counters now.
    pub fn snapshot(&self) -> Snapshot {
        let counts = Reason::ALL.iter().map(|reason| {
            let (requests, bytes) = self.fallbacks.get(*reason as usize).map_or((0, 0), Pair::get);
            ReasonCount { reason: *reason, requests, bytes }
        });
        Snapshot {
            asked: self.asked.get(),
            direct_reads: self.reads.get(),
            direct_writes: self.writes.get(),
            coalesced_writes: self.coalesced.get(),
            rejected: self.rejected.get(),
            fallbacks: counts.filter(|count| count.requests > 0).collect(),
        }
    }

    /// Sets everything of this owner to zero; its parents keep their counts.
    pub fn reset(&self) {
        [&self.asked, &self.reads, &self.writes, &self.coalesced, &self.rejected].into_iter().chain(&self.fallbacks).for_each(Pair::reset);
    }
}
