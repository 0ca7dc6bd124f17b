//! Carrying out plans: reads and writes of files whose direct parts are under way while nobody waits for them.
//!
//! [`Zfs::read_then`] and [`Zfs::write_then`] are operations: they may wait for a byte range, for a transaction and for old
//! blocks, then start the direct part and return; `then` runs when the disks are done, from a job. [`Zfs::read_with`] and
//! [`Zfs::write_with`] wait for it. A write that found no room is repeated where waiting is possible (`again.rs`).
//!
//! Invariants: a direct transfer owns its byte range from the decision to its end, and a write also its transaction, because
//! the blocks are born in that txg; both go before `then` runs. What a request dirties through the cache is in memory before
//! its direct part starts, so that the end of a write never reads. Sizes and times change only after success.

use super::again::Again;
use super::{Access, Facts, How, Operation, Plan, Property, Reason, decide};
use crate::fs::TX_NAMES;
use crate::io::{FILE_BYTES_MAX, WriteData, clear_suid};
use crate::range_lock::RangeGuard;
use crate::znode::{CTIME, Kept, MTIME, Node, Znode, flag};
use crate::{Zfs, ZplError};
use abd::Abd;
use dmu::{BlockError, DmuError, Tx};
use exec::{Mutex, completion};
use ondisk::Txg;
use std::ops::Range;
use std::sync::Arc;

/// Receives what was read; must not wait.
pub type ReadThen = Box<dyn FnOnce(Result<Abd, ZplError>) + Send>;
/// Receives the bytes written; must not wait.
pub type WriteThen = Box<dyn FnOnce(Result<u64, ZplError>) + Send>;

/// A read whose plan is made.
pub(super) struct Reading {
    guard: RangeGuard,
    pub(super) plan: Plan,
}

/// The two parts of a read; the last to arrive answers.
struct Join {
    parts: [Option<Result<Abd, ZplError>>; 2],
    then: Option<ReadThen>,
    /// Held until both are there.
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

/// A write whose place is locked and whose plan is made.
pub(super) struct Writing {
    /// Only held.
    _guard: RangeGuard,
    write: WriteData,
    plan: Plan,
    range: Range<u64>,
    direct: Range<u64>,
    block_size: u64,
    /// The only block grows.
    grows: bool,
    /// How often it found no room.
    pub(super) tries: u32,
}

/// How the direct part of a write ended.
pub(super) enum Ended {
    /// With the bytes written and their txg, or an error; the transaction is still open.
    Done(Tx, Result<(u64, Txg), ZplError>),
    /// There was no room, nothing is left of it, and the range is still locked.
    NoRoom(Writing),
}

/// What a write came to before anything was started.
pub(super) enum Prepared {
    /// Nothing to write.
    Nothing,
    /// Through the cache only, and done.
    Done(Writing, Tx),
    /// The direct part is to be started with these bytes.
    Direct(Writing, Tx, Abd),
}

impl Zfs {
    /// True when a request with this flag may be direct, or has to be refused or counted.
    pub(super) fn is_asked(&self, access: Access) -> bool {
        access.flagged || (self.settings().direct == Property::Always && !self.is_snapshot())
    }

    fn facts(&self, node: &Node, operation: Operation, access: Access, range: &Range<u64>) -> Result<Facts, ZplError> {
        Ok(Facts {
            operation,
            flagged: access.flagged,
            offset: range.start,
            length: range.end - range.start,
            memory: access.memory,
            property: self.settings().direct,
            snapshot: self.is_snapshot(),
            mapped: access.mapped,
            file_size: node.fields().size,
            block_size: node.dnode.info()?.block_size as u64,
            record_size: self.objset.props().record_size as u64,
        })
    }

    /// Reads up to `length` bytes as `access` asks; short only at the end of the file.
    pub fn read_with(&self, node: &Node, offset: u64, length: u64, access: Access) -> Result<Abd, ZplError> {
        if !self.is_asked(access) {
            return self.read_cached(node, offset, length);
        }
        let (done, waiter) = completion();
        self.read_then(node, offset, length, access, Box::new(move |result| done.complete(result)));
        waiter.wait(&self.exec)
    }

    /// As [`Zfs::read_with`], without waiting for the disks of the direct part: `then` runs when the bytes are there.
    pub fn read_then(&self, node: &Node, offset: u64, length: u64, access: Access, then: ReadThen) {
        if !self.is_asked(access) {
            return then(self.read_cached(node, offset, length));
        }
        match self.plan_read(node, offset..offset.saturating_add(length), access) {
            Ok(reading) => self.start_read(node, reading, then),
            Err(error) => then(Err(error)),
        }
    }

    pub(super) fn plan_read(&self, node: &Node, range: Range<u64>, access: Access) -> Result<Reading, ZplError> {
        crate::io::check_regular(node)?;
        let guard = node.lock_range(&self.exec, range.clone(), false);
        let mut plan = decide(&self.facts(node, Operation::Read, access, &range)?, self.direct().params());
        // The end of a request whose beginning was served: a part of it is worse than all of it through the cache.
        if node.goes_on(&range, false) && plan.rejected == Some(Reason::MisalignedLength) {
            plan = Plan::buffered(range.start..range.end.min(node.fields().size).max(range.start), Reason::MisalignedLength);
        }
        node.direct_stats(self).count(&plan, range.end - range.start, false);
        if plan.rejected.is_some() {
            return Err(ZplError::Invalid);
        }
        self.counts.read(range.end.min(node.fields().size).saturating_sub(range.start));
        Ok(Reading { guard, plan })
    }

    /// Starts the direct part, then reads the rest through the cache while that is under way. In this order: what the cache
    /// reads for the rest would otherwise answer for a block of the direct part.
    fn start_read(&self, node: &Node, reading: Reading, then: ReadThen) {
        self.note_access(node);
        let length = |range: &Range<u64>| (range.end - range.start) as usize;
        let direct = reading.plan.pieces().find(|piece| piece.how == How::Direct).map(|piece| piece.range.clone());
        let rest = reading.plan.pieces().find_map(|piece| match piece.how {
            How::Buffered { uncached, .. } => Some((piece.range.clone(), uncached)),
            How::Direct => None,
        });
        let join = Arc::new(Mutex::new(Join { parts: [None, None], then: Some(then), held: None }));
        match direct {
            None => Join::arrive(&join, 0, Ok(Abd::default())),
            Some(range) => {
                join.lock().held = Some((reading.guard, node.kept()));
                let own = join.clone();
                let ended = move |result: Result<Abd, DmuError>| Join::arrive(&own, 0, result.map_err(ZplError::from));
                node.dnode.read_direct_then(range.start, length(&range), ended);
            }
        }
        let rest = rest.map_or(Ok(Abd::default()), |(range, uncached)| self.read_buffered(node, range.start, length(&range), uncached));
        Join::arrive(&join, 1, rest);
    }

    /// Reads a part through the cache; `uncached` lets go of the blocks that are read to their end.
    pub(crate) fn read_buffered(&self, node: &Node, offset: u64, length: usize, uncached: bool) -> Result<Abd, ZplError> {
        let data = node.dnode.read_abd(offset, length)?;
        if uncached || !self.objset.props().primary_cache.keeps_data() {
            let at_end = offset + length as u64 >= node.fields().size;
            node.dnode.forget(offset, if at_end { usize::MAX } else { length });
        }
        Ok(data)
    }

    /// Writes as `access` asks; the file grows as needed.
    pub fn write_with(&self, node: &Node, write: WriteData, access: Access) -> Result<u64, ZplError> {
        let synchronous = write.synchronous;
        let mut prepared = self.prepare_write(node, write, access)?;
        let (length, txg) = loop {
            match prepared {
                Prepared::Nothing => return Ok(0),
                Prepared::Done(writing, tx) => break writing.finish(self, node, &tx, Ok(()))?,
                Prepared::Direct(writing, tx, data) => {
                    let (done, waiter) = completion();
                    let settle = move |ended| {
                        done.complete(match ended {
                            Ended::Done(_, result) => Ok(result),
                            Ended::NoRoom(writing) => Err(writing),
                        })
                    };
                    start_write(node, writing, tx, data, settle);
                    match waiter.wait(&self.exec) {
                        Ok(result) => break result?,
                        Err(writing) => prepared = self.write_again(node, writing)?,
                    }
                }
            }
        };
        if synchronous {
            self.wait_for_stable(txg)?;
        }
        Ok(length)
    }

    /// As [`Zfs::write_with`], without waiting for the disks: neither of the direct part nor, when the write is
    /// synchronous, of the txg.
    pub fn write_then(&self, node: &Node, write: WriteData, access: Access, then: WriteThen) {
        let synchronous = write.synchronous && self.objset.props().sync != dmu::SyncMode::Disabled;
        let prepared = self.prepare_write(node, write, access);
        self.carry_out(node, prepared, synchronous, then);
    }

    /// Goes on with a write that nobody waits for.
    pub(super) fn carry_out(&self, node: &Node, prepared: Result<Prepared, ZplError>, synchronous: bool, then: WriteThen) {
        match prepared {
            Ok(Prepared::Nothing) => then(Ok(0)),
            Ok(Prepared::Done(writing, tx)) => {
                let result = writing.finish(self, node, &tx, Ok(()));
                self.answer(tx, result, synchronous, then);
            }
            Ok(Prepared::Direct(writing, tx, data)) => {
                let (zfs, kept) = (node.zfs.clone(), node.kept());
                start_write(node, writing, tx, data, move |ended| match ended {
                    Ended::Done(tx, result) => {
                        drop(kept);
                        zfs.answer(tx, result, synchronous, then);
                    }
                    Ended::NoRoom(writing) => zfs.write_again_later(Again { writing, kept, synchronous, then }),
                });
            }
            Err(error) => then(Err(error)),
        }
    }

    /// Tells `then` how a write ended: when `synchronous`, once its txg is on disk.
    fn answer(&self, tx: Tx, result: Result<(u64, Txg), ZplError>, synchronous: bool, then: WriteThen) {
        match result {
            Ok((length, _)) if synchronous => {
                tx.on_commit(Box::new(move |stable| then(if stable { Ok(length) } else { Err(ZplError::Stopped) })));
                drop(tx);
                self.kick();
            }
            other => {
                drop(tx);
                then(other.map(|(length, _)| length));
            }
        }
    }

    /// Decides, locks, opens the transaction and dirties the buffered parts.
    fn prepare_write(&self, node: &Node, mut write: WriteData, access: Access) -> Result<Prepared, ZplError> {
        self.check_changeable(node)?;
        let length = write.data.len() as u64;
        if length == 0 {
            return Ok(Prepared::Nothing);
        }
        self.check_limits(&node.owner(), false)?;
        if access.append {
            write.offset = node.fields().size;
        }
        let asked = self.is_asked(access);
        let mut range = checked_range(write.offset, length)?;
        if asked {
            self.refuse_misaligned(node, access, &range)?;
        }
        let (guard, grows) = self.lock_for_write(node, &mut range, access.append)?;
        let mut facts = self.facts(node, Operation::Write, access, &range)?;
        if !grows {
            facts.record_size = facts.block_size;
        }
        let mut plan = decide(&facts, self.direct().params());
        if let Some(reason) = plan.rejected {
            // An append whose place moved while it waited: it is served, not refused.
            plan = Plan::buffered(range.clone(), reason);
        }
        node.direct_stats(self).count(&plan, length, true);
        let direct = plan.pieces().find(|piece| piece.how == How::Direct).map_or(range.end..range.end, |piece| piece.range.clone());
        self.begin_write(node, Writing { _guard: guard, write, plan, range, direct, block_size: facts.block_size, grows, tries: 0 })
    }

    /// Opens the transaction and dirties the buffered parts.
    pub(super) fn begin_write(&self, node: &Node, mut writing: Writing) -> Result<Prepared, ZplError> {
        let (range, length) = (writing.range.clone(), writing.write.data.len() as u64);
        // Disks are waited for before the transaction, not in it: it would hold up everybody's next txg.
        node.dnode.prepare_write(range.start, length as usize)?;
        let tx = self.assign(length + TX_NAMES)?;
        if writing.grows {
            self.grow_block(node, range.end, self.objset.props().record_size as u64, &tx)?;
        }
        writing.block_size = node.dnode.info()?.block_size as u64;
        let keeps = self.objset.props().primary_cache.keeps_data();
        let mut direct = None;
        for piece in writing.plan.pieces() {
            let bytes = (piece.range.start - range.start) as usize..(piece.range.end - range.start) as usize;
            let data = writing.write.data.slice(bytes);
            match piece.how {
                How::Direct => direct = Some(data),
                How::Buffered { uncached, .. } => {
                    let length = data.len();
                    put(node, piece.range.start, data, writing.write.may_keep, &tx)?;
                    if uncached || !keeps {
                        let (dnode, start) = (node.dnode.clone(), piece.range.start);
                        tx.on_commit(Box::new(move |_| dnode.forget(start, length)));
                    }
                }
            }
        }
        Ok(match direct {
            Some(data) => Prepared::Direct(writing, tx, data),
            None => Prepared::Done(writing, tx),
        })
    }

    /// EINVAL before any lock, with the place that the caller saw.
    fn refuse_misaligned(&self, node: &Node, access: Access, range: &Range<u64>) -> Result<(), ZplError> {
        let plan = decide(&self.facts(node, Operation::Write, access, range)?, self.direct().params());
        let is_end = node.goes_on(range, true) && plan.rejected == Some(Reason::MisalignedLength);
        if plan.rejected.is_none() || is_end {
            return Ok(());
        }
        node.direct_stats(self).count(&plan, range.end - range.start, true);
        Err(ZplError::Invalid)
    }

    /// Locks the bytes of a write, of the whole file when its block grows or the place is its end. True when it grows.
    fn lock_for_write(&self, node: &Node, range: &mut Range<u64>, append: bool) -> Result<(RangeGuard, bool), ZplError> {
        let (fields, record) = (node.fields(), self.objset.props().record_size as u64);
        if fields.flags & flag::APPENDONLY != 0 && range.start < fields.size {
            return Err(ZplError::NotPermitted);
        }
        let block = node.dnode.info()?.block_size as u64;
        let grows = |end: u64, size: u64| end > block && (block < record || !block.is_power_of_two()) && size <= block;
        if !append {
            let grows = grows(range.end, fields.size);
            let wanted = if grows { 0..u64::MAX } else { range.clone() };
            return Ok((node.lock_range(&self.exec, wanted, true), grows));
        }
        let guard = node.lock_range(&self.exec, 0..u64::MAX, true);
        let (size, length) = (node.fields().size, range.end - range.start);
        *range = checked_range(size, length)?;
        Ok((guard, grows(range.end, size)))
    }
}

fn checked_range(offset: u64, length: u64) -> Result<Range<u64>, ZplError> {
    let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(ZplError::TooBig)?;
    Ok(offset..end)
}

/// Starts the direct part of a write. `ended` learns how it ended, after the range is free unless there was no room; it must
/// not wait.
fn start_write(node: &Node, mut writing: Writing, tx: Tx, data: Abd, ended: impl FnOnce(Ended) + Send + 'static) {
    let (start, kept) = (writing.direct.start, node.kept());
    node.dnode.write_direct_then(start, data, tx, move |tx, result| {
        if result == Err(DmuError::Block(BlockError::NoSpace)) && kept.zfs().can_write_again(&writing) {
            let undone = writing.undo(kept.zfs(), &kept, &tx);
            writing.tries += 1;
            return ended(match undone {
                Ok(()) => {
                    drop((kept, tx));
                    Ended::NoRoom(writing)
                }
                Err(error) => Ended::Done(tx, Err(error)),
            });
        }
        let result = writing.finish(kept.zfs(), &kept, &tx, result);
        drop(kept);
        ended(Ended::Done(tx, result));
    });
}

/// Dirties bytes in the cache; `may_keep` lets whole blocks share the buffer.
fn put(node: &Node, offset: u64, data: Abd, may_keep: bool, tx: &Tx) -> Result<(), ZplError> {
    // What others may change is copied once, so that a block does not change under its checksum.
    let may_keep = may_keep || data.is_unstable();
    let data = data.to_stable();
    if may_keep {
        return Ok(node.dnode.write_abd(offset, data, tx)?);
    }
    let mut at = offset;
    for chunk in data.chunks() {
        node.dnode.write(at, chunk, tx)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

impl Writing {
    /// The end of a write: attributes, then the locks go. Gives the bytes written and their txg.
    fn finish(self, zfs: &Zfs, node: &Znode, tx: &Tx, result: Result<(), DmuError>) -> Result<(u64, Txg), ZplError> {
        match result {
            Ok(()) => self.update(zfs, node, tx, self.range.end)?,
            Err(error) => {
                self.undo(zfs, node, tx)?;
                return Err(error.into());
            }
        }
        let length = self.range.end - self.range.start;
        zfs.counts.wrote(length);
        Ok((length, tx.txg()))
    }

    fn update(&self, zfs: &Zfs, node: &Znode, tx: &Tx, end: u64) -> Result<(), ZplError> {
        let now = zfs.now();
        node.update(&zfs.sa, tx, |fields| {
            fields.size = fields.size.max(end);
            fields.times[MTIME] = now;
            fields.times[CTIME] = now;
            fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
            if self.write.kill_suid {
                clear_suid(&mut fields.mode);
            }
        })
    }

    /// After a failed direct part, of which nothing was written: what the buffered parts left beyond the end of the file must
    /// not show when the file grows. Whole blocks behind the end are freed; the block that holds the old end becomes the
    /// file's as far as the request wrote it.
    fn undo(&self, zfs: &Zfs, node: &Znode, tx: &Tx) -> Result<(), ZplError> {
        let size = node.fields().size;
        if self.range.end <= size {
            return Ok(());
        }
        let whole = size.next_multiple_of(self.block_size);
        let from = whole.max(self.range.start);
        if from < self.range.end {
            node.dnode.free_range(from, self.range.end - from, tx)?;
        }
        // The head, where the old end lies in it; the direct part starts a block of its own.
        let head_end = self.direct.start.min(whole);
        if self.range.start < head_end && head_end > size { self.update(zfs, node, tx, head_end) } else { Ok(()) }
    }
}
