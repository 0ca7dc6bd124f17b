//! Requests for the data of files before anything is started: what is checked, locked, decided, and dirtied through the cache.
//!
//! Invariants: a transfer owns its byte range from the decision to its end, and a write also its transaction, because
//! the blocks are born in that txg. What a request dirties through the cache is in memory before
//! its direct part starts, so that the end of a write never reads. Sizes and times change only after success.
//!
//! A direct write that is shorter than a record goes into memory like a buffered one, and is done with that. Whoever brings the last part of a record
//! is told so, and has all of it sent to the devices afterwards (`drive.rs`, docs/adr/0026).

use crate::ZplError;
use crate::direct::{Access, Facts, How, Operation, Plan, Property, Reason, decide};
use crate::nodes::Node;
use crate::room::TX_NAMES;
use crate::settings::Settings;
use crate::store::Store;
use crate::znode::{CTIME, Fields, MTIME, State, Znode, clear_suid, flag};
use abd::Abd;
use dmu::{DmuError, Tx};
use ondisk::Txg;
use range_lock::RangeGuard;
use std::ops::Range;
use zil::{RequestScope, Wrote, request_of_thread};

/// Largest file in bytes (OpenZFS: `MAXOFFSET_T`).
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Number of txgs for which records of a file are not sent to the devices early, once one that was sent is written to again in its txg.
const RESTING_TXGS: u64 = 8;

/// Bytes that block sizes are multiples of.
const SECTOR: u64 = 512;

/// Bytes to write, and how.
#[derive(Clone, Debug)]
pub struct WriteData {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Bytes to write.
    pub data: Abd,
    /// True when the buffer may be kept: whole blocks are taken over without a copy.
    pub may_keep: bool,
    /// True to clear setuid and setgid.
    pub kill_suid: bool,
    /// True to return only when the data is on disk.
    pub synchronous: bool,
}

/// Read whose range is locked.
pub(super) enum Reading {
    /// Read through the cache, of the bytes that there are.
    Cached(RangeGuard, Range<u64>),
    /// Read as the plan says.
    Planned(RangeGuard, Plan),
}

impl Reading {
    /// Decides how to read, and locks the range.
    pub(super) fn prepare(node: &Node, range: Range<u64>, access: Access) -> Result<Reading, ZplError> {
        let store = node.store();
        node.check_regular()?;
        let guard = node.lock_range(&store.exec, range.clone(), false);
        if !is_asked(access, &store.settings()) {
            return Ok(Reading::Cached(guard, range.start..range.end.min(node.fields().size).max(range.start)));
        }
        let mut plan = decide(&facts(node, Operation::Read, access, &range)?, store.direct().params());
        // The end of a request whose beginning was served: a part of it is worse than all of it through the cache.
        if node.goes_on(&range, false) && plan.rejected == Some(Reason::MisalignedLength) {
            plan = Plan::buffered(range.start..range.end.min(node.fields().size).max(range.start), Reason::MisalignedLength);
        }
        node.direct_stats(&store.direct().stats).count(&plan, range.end - range.start, false);
        if plan.rejected.is_some() {
            return Err(ZplError::Invalid);
        }
        store.counts.read(range.end.min(node.fields().size).saturating_sub(range.start));
        Ok(Reading::Planned(guard, plan))
    }
}

/// Write whose place is locked and whose plan is made.
pub(super) struct Writing {
    /// Lock of the range, only held.
    _guard: RangeGuard,
    write: WriteData,
    plan: Plan,
    range: Range<u64>,
    pub(super) direct: Range<u64>,
    /// Record of which it brought the last part, once that is in memory.
    pub(super) record: Option<Range<u64>>,
    /// Bytes of a block, once the transaction is open.
    block_size: u64,
    /// True when the only block grows.
    grows: bool,
    /// Number of times that the write found no room.
    pub(super) tries: u32,
    /// Request that it is for, wherever it ends.
    request: u64,
}

/// Result of a write before anything was started.
pub(super) enum Prepared {
    /// Nothing to write.
    Nothing,
    /// Written through the cache only, and done.
    Done(Writing, Tx),
    /// Direct part is to be started with these bytes.
    Direct(Writing, Tx, Abd),
}

impl Writing {
    /// Decides how to write, locks, opens the transaction and dirties the buffered parts.
    pub(super) fn prepare(node: &Node, mut write: WriteData, access: Access) -> Result<Prepared, ZplError> {
        let (fields, settings) = check_changeable(node)?;
        let length = write.data.len() as u64;
        if length == 0 {
            return Ok(Prepared::Nothing);
        }
        node.store().limits.check(&fields.owner(), false)?;
        if access.append {
            write.offset = fields.size;
        }
        let asked = is_asked(access, &settings);
        let mut range = checked_range(write.offset, length)?;
        if asked {
            refuse_misaligned(node, access, &range)?;
        }
        let (guard, grows) = lock_for_write(node, &fields, &mut range, access.append)?;
        let plan = if asked { plan_direct(node, access, &range, grows)? } else { Plan::unasked(range.clone()) };
        let direct = plan.pieces().find(|piece| piece.how == How::Direct).map_or(range.end..range.end, |piece| piece.range.clone());
        let request = request_of_thread();
        Writing { _guard: guard, write, plan, range, direct, record: None, block_size: 0, grows, tries: 0, request }.begin(node)
    }

    /// Opens the transaction and dirties the buffered parts.
    pub(super) fn begin(mut self, node: &Node) -> Result<Prepared, ZplError> {
        let store = node.store();
        let (range, length) = (self.range.clone(), self.write.data.len() as u64);
        // Disks are waited for before the transaction, not in it: it would hold up everybody's next txg.
        node.dnode.prepare_write(range.start, length as usize)?;
        let tx = store.room.assign(length + TX_NAMES)?;
        let is_part = self.is_part(node, tx.txg());
        if self.grows {
            grow_block(node, range.end, store.record_size(), &tx)?;
        }
        self.block_size = node.dnode.block_size()? as u64;
        let keeps = store.objset.props().primary_cache.keeps_data();
        let mut direct = None;
        for piece in self.plan.pieces() {
            let bytes = (piece.range.start - range.start) as usize..(piece.range.end - range.start) as usize;
            let data = self.write.data.slice(bytes);
            match piece.how {
                How::Direct => direct = Some(data),
                How::Buffered { uncached, .. } => {
                    let length = data.len();
                    let put = put(node, piece.range.start, data, self.write.may_keep, &tx);
                    // What is in memory of a write that failed is nobody's promise.
                    put.inspect_err(|_| store.journal.leave_out_alone(node.object, &tx))?;
                    if uncached || !keeps {
                        let (dnode, start) = (node.dnode.clone(), piece.range.start);
                        tx.on_commit(Box::new(move |_| dnode.forget(start, length)));
                    }
                }
            }
        }
        if is_part {
            self.record = self.note_part(node, tx.txg());
        }
        Ok(match direct {
            Some(data) => Prepared::Direct(self, tx, data),
            None => Prepared::Done(self, tx),
        })
    }

    /// True for a write that could be direct with its neighbours, and is to be.
    fn is_part(&self, node: &Node, txg: Txg) -> bool {
        if !self.plan.is_part() || !node.store().direct().tunables.coalesces() {
            return false;
        }
        if node.dnode.unsynced_direct_block(self.range.start).is_some() {
            // It has to be read back for this part. Who does that goes over the same records again and again: they had better wait for their txg.
            node.rest_parts(Txg(txg.0 + RESTING_TXGS));
        }
        true
    }

    /// Notes that a part of a record is in memory now; gives the record when that was its last.
    fn note_part(&self, node: &Node, txg: Txg) -> Option<Range<u64>> {
        let (block, record) = (self.block_size, node.store().record_size());
        // Of a file that is one block the block becomes a record.
        let is_single = node.fields().size.max(self.range.end) <= block;
        node.note_part(&self.range, if is_single { block.max(record) } else { block }, txg)
    }

    /// Ends a write: attributes, then the locks go. Returns the bytes written and their txg.
    pub(super) fn finish(self, store: &Store, node: &Znode, tx: &Tx, result: Result<(), DmuError>) -> Result<(u64, Txg), ZplError> {
        let _request = RequestScope::enter(self.request);
        match result {
            Ok(()) => self.update(store, node, tx, self.range.end)?,
            Err(error) => {
                // Part of it may be in memory; nobody was promised anything.
                store.journal.leave_out_alone(node.object, tx);
                self.undo(store, node, tx)?;
                return Err(error.into());
            }
        }
        let wrote = Wrote { range: self.range.clone(), direct: self.direct.clone(), block_size: self.block_size };
        store.journal.note_written(node, &wrote, Some(&self.write.data), tx);
        let length = self.range.end - self.range.start;
        store.counts.wrote(length);
        Ok((length, tx.txg()))
    }

    fn update(&self, store: &Store, node: &Znode, tx: &Tx, end: u64) -> Result<(), ZplError> {
        let now = store.now();
        let apply = |fields: &mut Fields| {
            let before = fields.mode;
            fields.size = fields.size.max(end);
            fields.times[MTIME] = now;
            fields.times[CTIME] = now;
            fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
            if self.write.kill_suid {
                clear_suid(&mut fields.mode);
            }
            fields.mode != before
        };
        let then = |state: &State, is_other_mode: &bool| {
            if *is_other_mode {
                store.journal.note_mode(node.object, state, tx);
            }
        };
        node.update_then(&store.sa, tx, apply, then).map(drop)
    }

    /// Undoes a request whose direct part failed, of which nothing was written: what the buffered parts left beyond the file's end must
    /// not show when the file grows. Whole blocks behind the end are freed; the block that holds the old end becomes the
    /// file's as far as the request wrote it.
    pub(super) fn undo(&self, store: &Store, node: &Znode, tx: &Tx) -> Result<(), ZplError> {
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
        if self.range.start < head_end && head_end > size { self.update(store, node, tx, head_end) } else { Ok(()) }
    }
}

/// True when a request with this flag may be direct, or has to be refused or counted.
fn is_asked(access: Access, settings: &Settings) -> bool {
    access.flagged || (settings.direct == Property::Always && !settings.snapshot)
}

/// Plan of a write that asked for direct, whose range is locked; it is counted.
fn plan_direct(node: &Node, access: Access, range: &Range<u64>, grows: bool) -> Result<Plan, ZplError> {
    let mut facts = facts(node, Operation::Write, access, range)?;
    if !grows {
        facts.record_size = facts.block_size;
    }
    let mut plan = decide(&facts, node.store().direct().params());
    if let Some(reason) = plan.rejected {
        // An append whose place moved while it waited: it is served, not refused.
        plan = Plan::buffered(range.clone(), reason);
    }
    node.direct_stats(&node.store().direct().stats).count(&plan, range.end - range.start, true);
    Ok(plan)
}

fn facts(node: &Node, operation: Operation, access: Access, range: &Range<u64>) -> Result<Facts, ZplError> {
    let store = node.store();
    Ok(Facts {
        operation,
        flagged: access.flagged,
        offset: range.start,
        length: range.end - range.start,
        memory: access.memory,
        property: store.settings().direct,
        snapshot: store.is_snapshot(),
        mapped: access.mapped,
        file_size: node.fields().size,
        block_size: node.dnode.info()?.block_size as u64,
        record_size: store.record_size(),
    })
}

/// Checks that the data of a file can be changed; gives the attributes and properties that say so.
pub(super) fn check_changeable(node: &Node) -> Result<(Fields, Settings), ZplError> {
    let settings = node.store().check_writable()?;
    let fields = node.check_regular()?;
    if fields.flags & flag::IMMUTABLE != 0 {
        return Err(ZplError::NotPermitted);
    }
    Ok((fields, settings))
}

/// Makes the only block larger before the file outgrows it.
pub(crate) fn grow_block(node: &Znode, end: u64, record: u64, tx: &Tx) -> Result<(), ZplError> {
    let (info, size) = (node.dnode.info()?, node.fields().size);
    let block = info.block_size as u64;
    if size > block || end <= block {
        return Ok(());
    }
    // A block larger than the record size (which was lowered since) ends up as the next power of two.
    let wanted = if block > record { end.min(block.next_power_of_two()) } else { end.min(record) };
    let wanted = wanted.next_multiple_of(SECTOR);
    if wanted > block {
        node.dnode.set_block_size(wanted as usize, tx)?;
    }
    Ok(())
}

/// Refuses a misaligned request with EINVAL before any lock, with the place that the caller saw.
fn refuse_misaligned(node: &Node, access: Access, range: &Range<u64>) -> Result<(), ZplError> {
    let plan = decide(&facts(node, Operation::Write, access, range)?, node.store().direct().params());
    let is_end = node.goes_on(range, true) && plan.rejected == Some(Reason::MisalignedLength);
    if plan.rejected.is_none() || is_end {
        return Ok(());
    }
    node.direct_stats(&node.store().direct().stats).count(&plan, range.end - range.start, true);
    Err(ZplError::Invalid)
}

/// Locks the bytes of a write, of the whole file when its block grows or the place is its end. True when it grows.
fn lock_for_write(node: &Node, fields: &Fields, range: &mut Range<u64>, append: bool) -> Result<(RangeGuard, bool), ZplError> {
    let record = node.store().record_size();
    if fields.flags & flag::APPENDONLY != 0 && range.start < fields.size {
        return Err(ZplError::NotPermitted);
    }
    let block = node.dnode.block_size()? as u64;
    let grows = |end: u64, size: u64| end > block && (block < record || !block.is_power_of_two()) && size <= block;
    if !append {
        let grows = grows(range.end, fields.size);
        let wanted = if grows { 0..u64::MAX } else { range.clone() };
        return Ok((node.lock_range(&node.store().exec, wanted, true), grows));
    }
    let guard = node.lock_range(&node.store().exec, 0..u64::MAX, true);
    let (size, length) = (node.fields().size, range.end - range.start);
    *range = checked_range(size, length)?;
    Ok((guard, grows(range.end, size)))
}

fn checked_range(offset: u64, length: u64) -> Result<Range<u64>, ZplError> {
    let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(ZplError::TooBig)?;
    Ok(offset..end)
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

/// Reads a part through the cache; `uncached` lets go of the blocks that are read to their end.
pub(super) fn read_buffered(node: &Node, offset: u64, length: usize, uncached: bool) -> Result<Abd, ZplError> {
    let data = node.dnode.read_abd(offset, length)?;
    if uncached || !node.store().objset.props().primary_cache.keeps_data() {
        let at_end = offset + length as u64 >= node.fields().size;
        node.dnode.forget(offset, if at_end { usize::MAX } else { length });
    }
    Ok(data)
}
