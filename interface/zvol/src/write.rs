//! Writing: bounds and range first, then a transaction; what goes through the cache is dirtied before what goes past it is started.
//!
//! A write whose direct part finds no room gives up its transaction and is repeated once txgs have passed, as a transaction waits for space before
//! a buffered write: blocks are allocated at once, and those that they replace are free two txgs later.
//!
//! Durable writes that nobody waits for are committed by those who may wait, a few at a time; an operation commits all others that came meanwhile at
//! once, and answers them.

use crate::{Access, Volume, VolumeError};
use abd::Abd;
use direct_io::{How, Operation, Plan};
use dmu::{BlockError, DmuError, Tx, Which};
use dsl::TxSpace;
use exec::Mutex;
use range_lock::RangeGuard;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zil::Wrote;

/// Bytes that a transaction dirties beside blocks of data, at most.
pub(crate) const OVERHEAD_BYTES: u64 = 64 << 10;
/// Number of times that a write is repeated: what is freed rests for two txgs, and others may take it.
const TRIES_MAX: u32 = 8;
/// Threads that commit their own writes at a time, at most: those that serve requests are few, and others want them too.
const OWN_MAX: usize = 4;
const NO_ROOM: Result<(), DmuError> = Err(DmuError::Block(BlockError::NoSpace, Which::UNKNOWN));

/// Continuation that learns how a write ended; must not wait.
pub type WriteThen = Box<dyn FnOnce(Result<(), VolumeError>) + Send>;

/// Write whose range is locked and whose plan is made.
struct Writing {
    /// Lock of the range, only held.
    _guard: RangeGuard,
    range: Range<u64>,
    data: Abd,
    plan: Plan,
    /// Part that goes past the cache; empty at the end of the range when none does.
    direct: Range<u64>,
    /// Number of times that the write found no room.
    tries: u32,
}

/// Write that has its transaction, whose parts through the cache are done.
enum Begun {
    /// All of it is done.
    Done(Tx),
    /// Direct part is to be started with these bytes.
    Direct(Tx, Abd),
}

/// Writes that wait to be durable.
#[derive(Default)]
pub(crate) struct Commits {
    waiting: Mutex<Vec<WriteThen>>,
    /// Threads that commit their own writes now.
    own: AtomicUsize,
}

impl Volume {
    /// Writes `data` at `offset`, and returns when the bytes are in place on the devices or in memory; when they are to be durable, when they are that.
    /// The buffer may be kept: whole blocks are taken over without a copy.
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`], [`VolumeError::OutOfRange`], [`VolumeError::NoSpace`], [`VolumeError::OverQuota`], those of the devices. Of what
    /// failed any part may be there.
    pub fn write(&self, offset: u64, data: Abd, access: Access, is_durable: bool) -> Result<(), VolumeError> {
        let Some(writing) = self.prepare(offset, data, access)? else { return Ok(()) };
        self.drive(writing)?;
        if self.is_durable(is_durable) { self.flush() } else { Ok(()) }
    }

    /// Does [`Volume::write`] without waiting for the devices of the direct part: `then` runs when it is done, and durable where that is wanted. What
    /// goes through the cache may wait for old bytes of its blocks and for a transaction; where it is to be durable, for the log. Under an executor
    /// without threads it waits for everything.
    pub fn write_then(self: &Arc<Self>, offset: u64, data: Abd, access: Access, is_durable: bool, then: WriteThen) {
        if self.exec.is_inline() {
            return then(self.write(offset, data, access, is_durable));
        }
        let is_durable = self.is_durable(is_durable);
        let writing = match self.prepare(offset, data, access) {
            Ok(Some(writing)) => writing,
            Ok(None) => return then(Ok(())),
            Err(error) => return then(Err(error)),
        };
        match self.begin(&writing) {
            Ok(Begun::Done(tx)) => {
                self.finish(&writing, &tx);
                drop((writing, tx));
                if is_durable { self.commit_or_answer(then) } else { then(Ok(())) }
            }
            Ok(Begun::Direct(tx, part)) => self.start(writing, tx, part, is_durable, then),
            Err(error) => {
                drop(writing);
                then(Err(error));
            }
        }
    }

    /// Locks the range, checks it, and decides how to write. None when there is nothing to write.
    fn prepare(&self, offset: u64, data: Abd, access: Access) -> Result<Option<Writing>, VolumeError> {
        let end = offset.checked_add(data.len() as u64).ok_or(VolumeError::OutOfRange)?;
        let range = offset..end;
        if range.is_empty() {
            return Ok(None);
        }
        let guard = self.lock(range.clone(), true);
        self.check_change(end)?;
        let plan = self.plan(Operation::Write, &range, access);
        let direct = plan.pieces().find(|piece| piece.how == How::Direct).map_or(end..end, |piece| piece.range.clone());
        Ok(Some(Writing { _guard: guard, range, data, plan, direct, tries: 0 }))
    }

    /// Opens the transaction and dirties what goes through the cache.
    fn begin(&self, writing: &Writing) -> Result<Begun, VolumeError> {
        let (range, block) = (&writing.range, self.block_size());
        // Disks are waited for before the transaction, not in it: it would hold up everybody's next txg.
        self.data.prepare_write(range.start, writing.data.len())?;
        let dirties = range.end.next_multiple_of(block) - (range.start - range.start % block);
        let tx = self.dataset.assign(TxSpace::Writes(dirties + OVERHEAD_BYTES))?;
        let mut direct = None;
        for piece in writing.plan.pieces() {
            let bytes = (piece.range.start - range.start) as usize..(piece.range.end - range.start) as usize;
            let data = writing.data.slice(bytes);
            match piece.how {
                How::Direct => direct = Some(data),
                How::Buffered { uncached, .. } => {
                    let length = data.len();
                    // What is in memory of a write that failed is nobody's promise.
                    self.data.write_abd(piece.range.start, data.to_stable(), &tx).inspect_err(|_| self.journal.leave_out(&tx))?;
                    if uncached || !self.keeps_data() {
                        let (dnode, start) = (self.data.clone(), piece.range.start);
                        tx.on_commit(Box::new(move |_| dnode.forget(start, length)));
                    }
                }
            }
        }
        Ok(match direct {
            Some(data) => Begun::Direct(tx, data),
            None => Begun::Done(tx),
        })
    }

    /// Carries a write out, and waits for its devices.
    fn drive(&self, mut writing: Writing) -> Result<(), VolumeError> {
        loop {
            let (tx, part) = match self.begin(&writing)? {
                Begun::Direct(tx, part) => (tx, part),
                Begun::Done(tx) => {
                    self.finish(&writing, &tx);
                    return Ok(());
                }
            };
            match self.data.write_direct_abd(writing.direct.start, part, &tx) {
                Ok(()) => {
                    self.finish(&writing, &tx);
                    return Ok(());
                }
                result => {
                    self.journal.leave_out(&tx);
                    drop(tx);
                    if result != NO_ROOM || writing.tries == TRIES_MAX {
                        return result.map_err(VolumeError::from);
                    }
                }
            }
            writing.tries += 1;
            if !self.dataset.wait_for_freed()? {
                return Err(VolumeError::NoSpace);
            }
        }
    }

    /// Starts the direct part of a write.
    fn start(self: &Arc<Self>, writing: Writing, tx: Tx, part: Abd, is_durable: bool, then: WriteThen) {
        let (own, start) = (self.clone(), writing.direct.start);
        self.data.write_direct_then(start, part, tx, move |tx, result| {
            match result {
                Ok(()) => own.finish(&writing, &tx),
                Err(_) => own.journal.leave_out(&tx),
            }
            drop(tx);
            if result == NO_ROOM {
                return own.repeat(writing, is_durable, then);
            }
            drop(writing);
            match result {
                Ok(()) if is_durable => own.answer(then),
                result => then(result.map_err(VolumeError::from)),
            }
        });
    }

    /// Repeats a write that nobody waits for, in an operation: it waits for txgs.
    fn repeat(self: &Arc<Self>, writing: Writing, is_durable: bool, then: WriteThen) {
        let own = self.clone();
        let again = move || {
            let result = own.drive(writing).and_then(|()| if is_durable { own.flush() } else { Ok(()) });
            then(result);
        };
        // Detached: it ends when it has answered.
        drop(self.exec.spawn_operation("z-vol-again", Box::new(again)));
    }

    /// Ends a write that is done, in its transaction.
    fn finish(&self, writing: &Writing, tx: &Tx) {
        let wrote = Wrote { range: writing.range.clone(), direct: writing.direct.clone(), block_size: self.block_size() };
        self.journal.note_written(&wrote, tx);
        self.count_write(writing.range.end - writing.range.start);
    }

    /// Commits a write on this thread, which may wait, and answers it; without waiting where enough others do that.
    fn commit_or_answer(self: &Arc<Self>, then: WriteThen) {
        let is_own = self.commits.own.fetch_add(1, Ordering::AcqRel) < OWN_MAX;
        let result = is_own.then(|| self.flush());
        self.commits.own.fetch_sub(1, Ordering::AcqRel);
        match result {
            Some(result) => then(result),
            None => self.answer(then),
        }
    }

    /// Answers a write when it is durable, without waiting for that.
    fn answer(self: &Arc<Self>, then: WriteThen) {
        let is_first = {
            let mut waiting = self.commits.waiting.lock();
            waiting.push(then);
            waiting.len() == 1
        };
        if is_first {
            let own = self.clone();
            let commit = move || {
                // Who comes from now on starts an operation of his own, whose commit goes with others that are under way.
                let waiting = std::mem::take(&mut *own.commits.waiting.lock());
                let result = own.flush();
                waiting.into_iter().for_each(|then| then(result));
            };
            // Detached: it ends when it has answered.
            drop(self.exec.spawn_operation("z-vol-sync", Box::new(commit)));
        }
    }
}
