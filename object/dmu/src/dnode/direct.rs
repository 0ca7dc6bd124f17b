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

use super::Dnode;
use crate::props::{BlockKind, WritePolicy, write_policy};
use crate::state::{Dropped, Record, Written};
use crate::{BlockError, BlockIo, BlockWrite, DmuError, Keep, Tx};
use abd::{Abd, with_lent};
use exec::{Computing, Mutex, TaskClass, completion};
use ondisk::{BlockPtr, Compression, ObjectType, Txg};
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

type Outcome = Vec<Result<BlockPtr, BlockError>>;
type OutcomeThen = Box<dyn FnOnce(Outcome) + Send>;

/// A request on its way.
struct Batch {
    io: Arc<dyn BlockIo>,
    dnode: Arc<Dnode>,
    data: Abd,
    txg: Txg,
    first: u64,
    block_size: usize,
    kind: ObjectType,
    policy: WritePolicy,
    results: Mutex<Outcome>,
    remaining: AtomicUsize,
    then: Mutex<Option<OutcomeThen>>,
}

impl Batch {
    fn blocks(&self) -> usize {
        self.data.len() / self.block_size
    }

    /// Starts some of the blocks, in groups that share device requests.
    fn run(self: &Arc<Self>, blocks: Range<usize>) {
        let group = (PLUGGED_BYTES / self.block_size).max(1);
        let end = blocks.end;
        for from in blocks.step_by(group) {
            self.io.plugged(&mut || self.run_group(from..end.min(from + group)));
        }
    }

    fn run_group(self: &Arc<Self>, blocks: Range<usize>) {
        for index in blocks {
            let id = self.first + index as u64;
            let start = index * self.block_size;
            let write = BlockWrite {
                txg: self.txg,
                bookmark: self.dnode.context.bookmark(self.dnode.object(), 0, id),
                data: self.data.slice(start..start + self.block_size),
                object_type: self.kind,
                level: 0,
                fill: 1,
                checksum: self.policy.checksum,
                compression: self.policy.compression,
                zstd_level: self.policy.zstd_level,
                copies: self.policy.copies,
                previous: BlockPtr::HOLE,
                keep: Keep::Once,
            };
            if let Some(stats) = self.io.iostats() {
                stats.direct_write.add(1, self.block_size as u64);
            }
            let batch = self.clone();
            self.io.write_direct(write, Box::new(move |result| batch.done(index, result)));
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

impl Dnode {
    /// Writes whole blocks directly: from `data` to the devices without a copy, unless they are transformed on the way. Waits
    /// until the devices have them; they are not flushed, and the pool refers to them when the txg is synced.
    ///
    /// [`DmuError::Invalid`] unless `offset` and the length are multiples of the block size (as it is now: grow it before),
    /// [`DmuError::NotSupported`] for metadata; [`DmuError::Block`] when a block could not be written: then none was.
    pub fn write_direct(&self, offset: u64, data: &[u8], tx: &Tx) -> Result<(), DmuError> {
        with_lent(self.context.env.io.exec(), data, |data| self.write_direct_abd(offset, data, tx))
    }

    /// As [`Dnode::write_direct`], from a buffer.
    pub fn write_direct_abd(&self, offset: u64, data: Abd, tx: &Tx) -> Result<(), DmuError> {
        let (done, wait) = completion();
        let first = self.start_direct(offset, data, tx, Box::new(move |outcome| done.complete(outcome)))?;
        let outcome = wait.wait(self.context.env.io.exec());
        self.install(first, outcome, tx)
    }

    /// As [`Dnode::write_direct`], without waiting for devices: `then` runs once, on any thread, and must not wait. It gets the
    /// transaction back, to change in it what goes with the data (size, times).
    pub fn write_direct_then(&self, offset: u64, data: Abd, tx: Tx, then: impl FnOnce(Tx, Result<(), DmuError>) + Send + 'static) {
        let shared = Arc::new(Mutex::new(Some((tx, then))));
        let kept = shared.clone();
        let this = self.this.upgrade();
        let finish = move |first: u64, outcome: Outcome| {
            let (Some(this), Some((tx, then))) = (this, kept.lock().take()) else { return };
            let result = this.install(first, outcome, &tx);
            then(tx, result);
        };
        let first = self.first_block(offset);
        let started = {
            let held = shared.lock();
            match held.as_ref() {
                Some((tx, _)) => self.batch(offset, data, tx, Box::new(move |outcome| finish(first, outcome))),
                None => return,
            }
        };
        match started {
            Ok(batch) => start_apart(&batch),
            Err(error) => {
                if let Some((tx, then)) = shared.lock().take() {
                    then(tx, Err(error));
                }
            }
        }
    }

    fn first_block(&self, offset: u64) -> u64 {
        offset / self.state.read().core.block_size as u64
    }

    /// Starts the writes of all blocks; gives the first block's number.
    fn start_direct(&self, offset: u64, data: Abd, tx: &Tx, then: OutcomeThen) -> Result<u64, DmuError> {
        let batch = self.batch(offset, data, tx, then)?;
        start(&batch);
        Ok(batch.first)
    }

    /// Checks the request and makes it ready to go.
    fn batch(&self, offset: u64, data: Abd, tx: &Tx, then: OutcomeThen) -> Result<Arc<Batch>, DmuError> {
        self.context.check_writable()?;
        let dnode = self.this.upgrade().ok_or(DmuError::NoSuchObject)?;
        let core = {
            let state = self.state.read();
            if state.core.freed {
                return Err(DmuError::NoSuchObject);
            }
            state.core.clone()
        };
        let (size, length) = (core.block_size as u64, data.len() as u64);
        let end = offset.checked_add(length).ok_or(DmuError::Invalid)?;
        let whole = length > 0 && offset.is_multiple_of(size) && length.is_multiple_of(size);
        if !whole || (!size.is_power_of_two() && end > size) {
            return Err(DmuError::Invalid);
        }
        if core.kind.is_metadata() {
            return Err(DmuError::NotSupported);
        }
        let (first, blocks) = (offset / size, (length / size) as usize);
        // What the sync will need is read here, where the user hears of damage, and where waiting is allowed: who installs the
        // records may be a completion.
        self.warm_indirects(first, first + blocks as u64 - 1)?;
        self.pin_record(tx)?;
        tx.note_direct(length);
        let kind = BlockKind { object_type: core.kind, level: 0, spill: false, checksum: core.checksum, compression: core.compression };
        Ok(Arc::new(Batch {
            io: self.context.env.io.clone(),
            dnode,
            data,
            txg: tx.txg(),
            first,
            block_size: core.block_size,
            kind: core.kind,
            policy: write_policy(&self.context.props.read(), kind),
            results: Mutex::new(vec![Err(BlockError::Io); blocks]),
            remaining: AtomicUsize::new(blocks),
            then: Mutex::new(Some(then)),
        }))
    }

    /// Everything is on the devices, or something failed: new records, or none.
    fn install(&self, first: u64, outcome: Outcome, tx: &Tx) -> Result<(), DmuError> {
        let written: Vec<BlockPtr> = outcome.iter().filter_map(|result| result.as_ref().ok()).copied().collect();
        let failed = outcome.into_iter().find_map(Result::err);
        let result = match failed {
            Some(error) => Err(error.into()),
            None => self.replace_records(first, &written, tx),
        };
        if result.is_err() {
            for bp in written.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
                self.context.env.io.free(tx.txg(), bp);
            }
        }
        result
    }

    fn replace_records(&self, first: u64, written: &[BlockPtr], tx: &Tx) -> Result<(), DmuError> {
        let mut dropped = Dropped::default();
        self.change(tx, |state| {
            let fits = |bp: &BlockPtr| bp.is_hole() || bp.lsize() == state.core.block_size;
            if !written.iter().all(fits) {
                return Err(DmuError::Invalid);
            }
            for (block, bp) in (first..).zip(written) {
                dropped.push(state.insert(block, Record::Written(Arc::new(Written { bp: *bp })))?);
            }
            Ok(())
        })?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }
}

/// Starts all blocks for somebody who goes on to other things. Compression keeps a processor busy for longer than a job costs, so all of it is
/// left to jobs: else the requests of one thread would be compressed one after the other.
fn start_apart(batch: &Arc<Batch>) {
    let exec = batch.io.exec().clone();
    let (blocks, jobs) = (batch.blocks(), exec.parallelism());
    if jobs == 1 || batch.data.len() < apart_bytes(batch.policy.compression) {
        return start(batch);
    }
    let share = blocks.div_ceil(jobs);
    for from in (0..blocks).step_by(share) {
        let batch = batch.clone();
        exec.spawn(TaskClass::Write, Box::new(move || batch.run(from..blocks.min(from + share))));
    }
}

/// Starts all blocks: here, and as jobs where processors have nothing else to do.
fn start(batch: &Arc<Batch>) {
    let exec = batch.io.exec().clone();
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
