//! The driver of prepared requests, through the cache and direct: starts what goes to the disks, joins the parts, repeats what found no
//! room, and answers.
//!
//! `then` runs when the disks are done, from a job; both the byte range and the transaction of a request go before that.
//!
//! The write that brings the last part of a record has it sent to the devices once it is done itself, in a transaction of its own, and is answered then:
//! who writes faster than they take is held up (docs/adr/0026).
//!
//! Writes that found no room while what was freed before rests are repeated once txgs have passed, as a transaction waits for
//! space before a buffered write (OpenZFS: `dmu_tx_wait`, `ERESTART` of `dsl_dir_tempreserve_space`; its direct writes fail).
//! Blocks of a direct write are allocated at once, those that it replaces are free two txgs after its own: a file system that
//! is almost full runs out of room for a moment although nothing grows. The write keeps its range locked and gives up its
//! transaction. Who waits for it waits for a txg; a write that nobody waits for goes on in an operation that the file system
//! starts for all of them, except under an executor without threads, where it fails.

use super::request::{Prepared, Reading, Writing, read_buffered};
use super::stable::{Stable, Unstable};
use crate::ZplError;
use crate::direct::{How, Plan};
use crate::nodes::{Kept, Node};
use crate::room::TX_NAMES;
use crate::store::Store;
use abd::Abd;
use dmu::{BlockError, DmuError, Tx};
use exec::{Mutex, completion};
use ondisk::{ObjectId, Txg};
use range_lock::RangeGuard;
use std::ops::Range;
use std::sync::Arc;

/// Number of times that a write is repeated: what is freed rests for two txgs, and others may take it.
const TRIES_MAX: u32 = 8;

/// Continuation that receives what was read; must not wait.
pub type ReadThen = Box<dyn FnOnce(Result<Abd, ZplError>) + Send>;
/// Continuation that receives the number of bytes written; must not wait.
pub type WriteThen = Box<dyn FnOnce(Result<u64, ZplError>) + Send>;

/// Read in two parts; the last to arrive answers.
struct Join {
    parts: [Option<Result<Abd, ZplError>>; 2],
    then: Option<ReadThen>,
    /// Lock and node, held until both parts are there.
    held: Option<(RangeGuard, Kept)>,
}

impl Join {
    fn arrive(join: &Mutex<Join>, part: usize, result: Result<Abd, ZplError>) {
        let ended = {
            let mut join = join.lock();
            join.parts[part] = Some(result);
            match std::mem::take(&mut join.parts) {
                [Some(direct), Some(rest)] => Some((direct, rest, join.then.take(), join.held.take())),
                parts => {
                    join.parts = parts;
                    None
                }
            }
        };
        let Some((direct, rest, Some(then), held)) = ended else { return };
        drop(held);
        then(match (direct, rest) {
            (Ok(direct), Ok(rest)) if rest.is_empty() => Ok(direct),
            (Ok(direct), Ok(rest)) if direct.is_empty() => Ok(rest),
            (Ok(direct), Ok(rest)) => Ok(Abd::gang(&[direct, rest])),
            (Err(error), _) | (_, Err(error)) => Err(error),
        });
    }
}

/// End of the direct part of a write.
pub(super) enum Ended {
    /// Direct part is done: the bytes written and their txg, or an error; the transaction is still open.
    Done(Tx, Result<(u64, Txg), ZplError>),
    /// Direct part found no room: nothing is left of it, and the range is still locked.
    NoRoom(Writing),
}

/// Write that found no room and that nobody waits for.
struct Again {
    writing: Writing,
    kept: Kept,
    synchronous: bool,
    then: WriteThen,
}

/// Driver of the prepared requests of a file system.
pub(crate) struct Driver {
    store: Arc<Store>,
    /// Direct writes that wait for room.
    again: Mutex<Vec<Again>>,
    stable: Arc<Stable>,
}

impl Driver {
    pub(super) fn new(store: Arc<Store>) -> Driver {
        Driver { stable: Arc::new(Stable::new(store.clone())), store, again: Mutex::default() }
    }

    /// Reads, and waits for the disks.
    pub(super) fn read(&self, node: &Node, reading: Reading) -> Result<Abd, ZplError> {
        match reading {
            Reading::Cached(guard, range) => read_cached(node, guard, range),
            Reading::Planned(guard, plan) => {
                let (done, waiter) = completion();
                start_read(node, guard, &plan, Box::new(move |result| done.complete(result)));
                waiter.wait(&self.store.exec)
            }
        }
    }

    /// Reads; `then` runs when the bytes are there.
    pub(super) fn read_then(&self, node: &Node, reading: Result<Reading, ZplError>, then: ReadThen) {
        match reading {
            Ok(Reading::Cached(guard, range)) => then(read_cached(node, guard, range)),
            Ok(Reading::Planned(guard, plan)) => start_read(node, guard, &plan, then),
            Err(error) => then(Err(error)),
        }
    }

    /// Writes, and waits for the disks of the direct part; gives the bytes written and their txg, None when there was nothing to write.
    pub(super) fn write(&self, node: &Node, mut prepared: Prepared) -> Result<Option<(u64, Txg)>, ZplError> {
        loop {
            match prepared {
                Prepared::Nothing => return Ok(None),
                Prepared::Done(writing, tx) => {
                    let record = writing.record.clone();
                    let written = writing.finish(&self.store, node, &tx, Ok(()))?;
                    drop(tx);
                    if let Some(record) = record {
                        let (done, waiter) = completion();
                        send_out(node, record, move || done.complete(()));
                        waiter.wait(&self.store.exec);
                    }
                    return Ok(Some(written));
                }
                Prepared::Direct(writing, tx, data) => {
                    let (done, waiter) = completion();
                    let settle = move |ended| {
                        done.complete(match ended {
                            Ended::Done(_, result) => Ok(result),
                            Ended::NoRoom(writing) => Err(writing),
                        })
                    };
                    start_write(node, writing, tx, data, settle);
                    match waiter.wait(&self.store.exec) {
                        Ok(result) => return result.map(Some),
                        Err(writing) if self.store.room.wait_for_freed()? => prepared = writing.begin(node)?,
                        Err(_) => return Err(ZplError::NoSpace),
                    }
                }
            }
        }
    }

    /// Goes on with a write that nobody waits for.
    pub(super) fn carry_out(self: &Arc<Self>, node: &Node, prepared: Result<Prepared, ZplError>, synchronous: bool, then: WriteThen) {
        match prepared {
            Ok(Prepared::Nothing) => then(Ok(0)),
            Ok(Prepared::Done(writing, tx)) => {
                // Without a log who waits for the txg has the record with it.
                let record = writing.record.clone().filter(|_| !synchronous || self.logs());
                let result = writing.finish(&self.store, node, &tx, Ok(()));
                match (result, record) {
                    (Ok((length, txg)), Some(record)) => {
                        drop(tx);
                        let (stable, object) = (self.stable.clone(), node.object);
                        send_out(node, record, move || match synchronous {
                            true => stable.answer(Unstable { object, txg, length, then }),
                            false => then(Ok(length)),
                        });
                    }
                    (Ok((length, txg)), None) if synchronous && self.logs() => {
                        drop(tx);
                        self.stable.commit_or_answer(Unstable { object: node.object, txg, length, then });
                    }
                    (result, _) => self.answer(node.object, tx, result, synchronous, then),
                }
            }
            Ok(Prepared::Direct(writing, tx, data)) => {
                let (driver, kept) = (self.clone(), node.kept());
                start_write(node, writing, tx, data, move |ended| match ended {
                    Ended::Done(tx, result) => {
                        let object = kept.object;
                        drop(kept);
                        driver.answer(object, tx, result, synchronous, then);
                    }
                    Ended::NoRoom(writing) => driver.repeat(Again { writing, kept, synchronous, then }),
                });
            }
            Err(error) => then(Err(error)),
        }
    }

    /// True when what is to be durable goes into a log.
    fn logs(&self) -> bool {
        self.store.journal.log().is_some() && !self.store.exec.is_inline()
    }

    /// Tells `then` how a write to an object ended: when `synchronous`, once it is durable.
    fn answer(&self, object: ObjectId, tx: Tx, result: Result<(u64, Txg), ZplError>, synchronous: bool, then: WriteThen) {
        match result {
            Ok((length, txg)) if synchronous && self.logs() => {
                drop(tx);
                self.stable.answer(Unstable { object, txg, length, then });
            }
            Ok((length, _)) if synchronous => {
                tx.on_commit(Box::new(move |stable| then(if stable { Ok(length) } else { Err(ZplError::STOPPED) })));
                drop(tx);
                self.store.room.kick();
            }
            other => {
                drop(tx);
                then(other.map(|(length, _)| length));
            }
        }
    }

    /// Repeats a write that nobody waits for, in an operation.
    fn repeat(self: &Arc<Self>, again: Again) {
        if self.store.exec.is_inline() {
            let Again { writing, kept, then, .. } = again;
            drop((writing, kept));
            return then(Err(ZplError::NoSpace));
        }
        let is_first = {
            let mut waiting = self.again.lock();
            waiting.push(again);
            waiting.len() == 1
        };
        if is_first {
            let driver = self.clone();
            // Detached: it ends when nobody waits for room.
            drop(self.store.exec.spawn_operation("z-write-again", Box::new(move || driver.drain_again())));
        }
    }

    fn drain_again(self: &Arc<Self>) {
        let room = self.store.room.wait_for_freed();
        // Who comes from now on starts an operation of his own.
        let waiting = std::mem::take(&mut *self.again.lock());
        for Again { writing, kept, synchronous, then } in waiting {
            let node = kept.node();
            drop(kept);
            let prepared = match &room {
                Ok(true) => writing.begin(&node),
                Ok(false) => Err(ZplError::NoSpace),
                Err(error) => Err(*error),
            };
            self.carry_out(&node, prepared, synchronous, then);
        }
    }
}

/// Reads through the cache.
fn read_cached(node: &Node, guard: RangeGuard, range: Range<u64>) -> Result<Abd, ZplError> {
    if range.is_empty() {
        // Whoever reads at the end, and finds nothing, has read (OpenZFS: `zpl_file_accessed`).
        node.store().note_access(node);
        return Ok(Abd::default());
    }
    let data = read_buffered(node, range.start, (range.end - range.start) as usize, false)?;
    drop(guard);
    node.store().note_access(node);
    node.store().counts.read(range.end - range.start);
    Ok(data)
}

/// Starts the direct part, then reads the rest through the cache while that is under way. In this order: what the cache
/// reads for the rest would otherwise answer for a block of the direct part.
fn start_read(node: &Node, guard: RangeGuard, plan: &Plan, then: ReadThen) {
    node.store().note_access(node);
    let length = |range: &Range<u64>| (range.end - range.start) as usize;
    let direct = plan.pieces().find(|piece| piece.how == How::Direct).map(|piece| piece.range.clone());
    let rest = plan.pieces().find_map(|piece| match piece.how {
        How::Buffered { uncached, .. } => Some((piece.range.clone(), uncached)),
        How::Direct => None,
    });
    let join = Arc::new(Mutex::new(Join { parts: [None, None], then: Some(then), held: None }));
    match direct {
        None => Join::arrive(&join, 0, Ok(Abd::default())),
        Some(range) => {
            join.lock().held = Some((guard, node.kept()));
            let own = join.clone();
            let ended = move |result: Result<Abd, DmuError>| Join::arrive(&own, 0, result.map_err(ZplError::from));
            node.dnode.read_direct_then(range.start, length(&range), ended);
        }
    }
    let rest = rest.map_or(Ok(Abd::default()), |(range, uncached)| read_buffered(node, range.start, length(&range), uncached));
    Join::arrive(&join, 1, rest);
}

/// Starts the direct part of a write. `ended` learns how it ended, after the range is free unless there was no room; it must
/// not wait.
fn start_write(node: &Node, mut writing: Writing, tx: Tx, data: Abd, ended: impl FnOnce(Ended) + Send + 'static) {
    let (start, kept) = (writing.direct.start, node.kept());
    node.dnode.write_direct_then(start, data, tx, move |tx, result| {
        if result == Err(DmuError::from(BlockError::NoSpace)) && writing.tries < TRIES_MAX {
            let undone = writing.undo(kept.store(), &kept, &tx);
            writing.tries += 1;
            return ended(match undone {
                Ok(()) => {
                    drop((kept, tx));
                    Ended::NoRoom(writing)
                }
                Err(error) => Ended::Done(tx, Err(error)),
            });
        }
        let result = writing.finish(kept.store(), &kept, &tx, result);
        drop(kept);
        ended(Ended::Done(tx, result));
    });
}

/// Sends a record whose parts have come to the devices; `then` runs when they have it and it is free again, and must not wait. Others may have changed
/// any of it meanwhile: what goes is what is newest. A record that cannot go, since a device fails, there is no room at once, or its txg is closed, stays
/// in memory and goes with its txg, as if a part of it were missing: nobody's write failed by that.
fn send_out(node: &Node, record: Range<u64>, then: impl FnOnce() + Send + 'static) {
    let store = node.store();
    let guard = node.lock_range(&store.exec, record.clone(), true);
    let is_block = node.dnode.block_size().is_ok_and(|size| size as u64 == record.end - record.start);
    // Its space is what the transactions of its parts announced.
    let Some(tx) = is_block.then(|| store.room.assign(TX_NAMES).ok()).flatten() else {
        drop(guard);
        return then();
    };
    let kept = node.kept();
    node.dnode.write_out_then(record.start, tx, move |tx, result| {
        if result.is_ok() {
            kept.direct_stats(&kept.store().direct().stats).count_coalesced(record.end - record.start);
        }
        drop((tx, guard, kept));
        then();
    });
}
