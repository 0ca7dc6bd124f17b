//! Direct writes of whole blocks: from the caller's bytes to the devices, past the dirty data (OpenZFS: `dmu_direct.c`).
//!
//! ```text
//! write_direct ─► every block of the request: transform, allocate, write, in parallel ─► all done?
//!                                                    │ one failed                            │ all succeeded
//!                                                    ▼                                       ▼
//!                              all blocks of the request are given back            under the dnode's lock: all
//!                              records stay as they were                           records become Written
//! ```
//! Invariants:
//! 1. a record changes only when the whole request is on the devices: one that fails leaves what was there before, also a
//!    buffered write of the same txg (OpenZFS drops that first, and rolls back to the last txg);
//! 2. the blocks of one request appear together, or not at all;
//! 3. the transaction is held until then: a txg does not close while blocks of it are on their way;
//! 4. nothing goes into the cache, and nothing counts as dirty memory.
//!
//! The sync costs no data I/O: `NodeSync::adopt` puts the pointers into their parents.

use crate::blocks::Blocks;
use crate::props::WritePolicy;
use crate::{BlockError, BlockWrite, Dedup, Keep};
use abd::Abd;
use exec::{Computing, Mutex, TaskClass};
use ondisk::{BlockPtr, Compression, ObjectId, ObjectType, Txg};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks of so many bytes are prepared before their device requests go out: several neighbours become one request, and what was
/// read for the checksum is still in the processor's cache.
pub(super) const PLUGGED_BYTES: usize = 256 << 10;

/// Requests of fewer bytes begin on the thread of their user: about a quarter of a millisecond's compression.
fn apart_bytes(compression: Compression) -> usize {
    match compression {
        Compression::OFF | Compression::EMPTY => usize::MAX,
        Compression::ZSTD => 16 << 10,
        Compression(kind) if (Compression::GZIP_1.0..=Compression::GZIP_9.0).contains(&kind) => 16 << 10,
        _ => 512 << 10,
    }
}

pub(super) type Outcome = Vec<Result<BlockPtr, BlockError>>;
pub(super) type OutcomeThen = Box<dyn FnOnce(Outcome) + Send>;

/// Place of the blocks of a write request, and the policy to write them with.
pub(super) struct Request {
    pub blocks: Arc<Blocks>,
    pub object: ObjectId,
    pub txg: Txg,
    /// The number of the first block.
    pub first: u64,
    /// Block size in bytes.
    pub block_size: usize,
    pub kind: ObjectType,
    pub policy: WritePolicy,
    /// True for a block that was dirty, of whose bytes nobody asked for all.
    pub is_coalesced: bool,
}

/// A request on its way.
pub(super) struct Batch {
    request: Request,
    data: Abd,
    results: Mutex<Outcome>,
    remaining: AtomicUsize,
    then: Mutex<Option<OutcomeThen>>,
}

impl Batch {
    /// A request for `data`, whole blocks, ready to go: `then` gets the outcome of each.
    pub(super) fn new(request: Request, data: Abd, then: OutcomeThen) -> Arc<Batch> {
        let blocks = data.len() / request.block_size;
        Arc::new(Batch {
            request,
            data,
            results: Mutex::new(vec![Err(BlockError::Io); blocks]),
            remaining: AtomicUsize::new(blocks),
            then: Mutex::new(Some(then)),
        })
    }

    /// The number of the first block.
    pub(super) fn first(&self) -> u64 {
        self.request.first
    }

    fn blocks(&self) -> usize {
        self.data.len() / self.request.block_size
    }

    /// Starts some of the blocks, in groups that share device requests.
    fn run(self: &Arc<Self>, blocks: Range<usize>) {
        let group = (PLUGGED_BYTES / self.request.block_size).max(1);
        let end = blocks.end;
        for from in blocks.step_by(group) {
            self.request.blocks.io().plugged(&mut || self.run_group(from..end.min(from + group)));
        }
    }

    fn run_group(self: &Arc<Self>, blocks: Range<usize>) {
        for index in blocks {
            let id = self.request.first + index as u64;
            let start = index * self.request.block_size;
            let write = BlockWrite {
                txg: self.request.txg,
                bookmark: self.request.blocks.bookmark(self.request.object, 0, id),
                data: self.data.slice(start..start + self.request.block_size),
                object_type: self.request.kind,
                level: 0,
                fill: 1,
                checksum: self.request.policy.checksum,
                compression: self.request.policy.compression,
                zstd_level: self.request.policy.zstd_level,
                copies: self.request.policy.copies,
                small_bytes: self.request.policy.small_bytes,
                // Tables are the sync's: no direct write is looked up (OpenZFS: `WP_DIRECT_WR`).
                dedup: Dedup::Off,
                previous: BlockPtr::HOLE,
                keep: Keep::Once,
                seal: None,
            };
            if let Some(stats) = self.request.blocks.io().iostats() {
                let counters = if self.request.is_coalesced { &stats.direct_coalesced } else { &stats.direct_write };
                counters.add(1, self.request.block_size as u64);
            }
            let batch = self.clone();
            self.request.blocks.io().write_direct(write, Box::new(move |result| batch.done(index, result)));
        }
    }

    fn done(&self, index: usize, result: Result<BlockPtr, BlockError>) {
        self.results.lock()[index] = result;
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            let results = std::mem::take(&mut *self.results.lock());
            let then = self.then.lock().take();
            if let Some(then) = then {
                then(results);
            }
        }
    }
}

/// Starts all blocks for somebody who goes on to other things. Compression keeps a processor busy for longer than a job costs, so all of it is
/// left to jobs: else the requests of one thread would be compressed one after the other.
pub(super) fn start_apart(batch: &Arc<Batch>) {
    let exec = batch.request.blocks.io().exec().clone();
    let (blocks, jobs) = (batch.blocks(), exec.parallelism());
    if jobs == 1 || batch.data.len() < apart_bytes(batch.request.policy.compression) {
        return start(batch);
    }
    let share = blocks.div_ceil(jobs);
    for from in (0..blocks).step_by(share) {
        let batch = batch.clone();
        exec.spawn(TaskClass::Write, Box::new(move || batch.run(from..blocks.min(from + share))));
    }
}

/// Starts all blocks: here, and as jobs where processors have nothing else to do.
pub(super) fn start(batch: &Arc<Batch>) {
    let exec = batch.request.blocks.io().exec().clone();
    let computing = Computing::begin(&*exec);
    let blocks = batch.blocks();
    let share = blocks.div_ceil(exec.spare() + 1);
    for from in (share..blocks).step_by(share) {
        let batch = batch.clone();
        exec.spawn(TaskClass::Write, Box::new(move || batch.run(from..blocks.min(from + share))));
    }
    batch.run(0..share.min(blocks));
    drop(computing);
}
