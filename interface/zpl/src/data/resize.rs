//! The size of files and what of it is holes: truncating, allocating, punching, seeking.

use super::Data;
use super::request::{FILE_BYTES_MAX, check_changeable, grow_block};
use crate::ZplError;
use crate::nodes::Node;
use crate::room::TX_NAMES;
use crate::undo::Undo;
use crate::znode::{CTIME, MTIME, flag};
use dmu::Zeros;
use std::sync::atomic::{AtomicBool, Ordering};

/// Percent of what fallocate(2) promises that must fit, with what comes with it (OpenZFS: `zfs_fallocate_reserve_percent`).
const PROMISE_PERCENT: u128 = 110;

static REPORTS_HOLES: AtomicBool = AtomicBool::new(true);

/// Sets whether holes are reported of files that have changes that are not synced (OpenZFS: `zfs_dmu_offset_next_sync`). No sync is forced:
/// what is dirty is looked at.
pub fn set_reports_holes(reports: bool) {
    REPORTS_HOLES.store(reports, Ordering::Relaxed);
}

/// Effect of fallocate(2) on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Makes the file at least so long; space is not reserved, as copy-on-write cannot.
    Extend,
    /// Promises space without changing the size: nothing to do.
    KeepSize,
    /// Frees the range: it reads as zeros.
    Punch,
    /// Zeroes the range and makes the file at least so long.
    Zero,
    /// Zeroes the range within the size.
    ZeroKeepSize,
}

impl Data {
    /// Changes the size (OpenZFS: `zfs_freesp`).
    pub(crate) fn truncate(&self, node: &Node, size: u64) -> Result<(), ZplError> {
        check_changeable(node)?;
        if size > FILE_BYTES_MAX {
            return Err(ZplError::TooBig);
        }
        if node.fields().flags & flag::APPENDONLY != 0 {
            return Err(ZplError::NotPermitted);
        }
        let _guard = node.lock_range(&self.store.exec, 0..u64::MAX, true);
        let (old, estimate) = (node.fields().size, self.store.record_size() + TX_NAMES);
        if size < old {
            node.dnode.prepare_free(size, u64::MAX)?;
        }
        let tx = if size < old { self.store.room.assign_frees(estimate)? } else { self.store.room.assign(estimate)? };
        let now = self.store.now();
        Undo::run(&self.store, &tx, |undo| {
            if size > old {
                grow_block(node, size, self.store.record_size(), &tx)?;
            }
            undo.change(&node.znode, |fields| {
                fields.size = size;
                fields.times[MTIME] = now;
                fields.times[CTIME] = now;
                fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
            })?;
            // Bytes are the only thing that nobody can put back: they go last.
            if size < old { Ok(node.dnode.free_range(size, u64::MAX, &tx)?) } else { Ok(()) }
        })?;
        self.store.journal.note_resized(node, size, now, &tx);
        Ok(())
    }

    /// Does fallocate(2) (OpenZFS: `zpl_fallocate_common`).
    pub(crate) fn allocate(&self, node: &Node, offset: u64, length: u64, how: Allocate) -> Result<(), ZplError> {
        check_changeable(node)?;
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(ZplError::TooBig)?;
        if length == 0 {
            return Err(ZplError::Invalid);
        }
        if matches!(how, Allocate::Extend | Allocate::KeepSize) {
            self.check_promise(length)?;
        }
        if how == Allocate::KeepSize {
            return Ok(());
        }
        let _guard = node.lock_range(&self.store.exec, 0..u64::MAX, true);
        let estimate = 2 * self.store.record_size() + TX_NAMES;
        if how != Allocate::Extend {
            node.dnode.prepare_free(offset, length)?;
        }
        let tx = if how == Allocate::Punch { self.store.room.assign_frees(estimate)? } else { self.store.room.assign(estimate)? };
        let old = node.fields().size;
        let extends = matches!(how, Allocate::Extend | Allocate::Zero) && end > old;
        let now = self.store.now();
        Undo::run(&self.store, &tx, |undo| {
            if extends {
                grow_block(node, end, self.store.record_size(), &tx)?;
            }
            undo.change(&node.znode, |fields| {
                if extends {
                    fields.size = end;
                }
                if extends || how != Allocate::Extend {
                    fields.times[MTIME] = now;
                }
                fields.times[CTIME] = now;
                fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
            })?;
            let frees = how != Allocate::Extend && offset < old;
            if frees { Ok(node.dnode.free_range(offset, end.min(old) - offset, &tx)?) } else { Ok(()) }
        })?;
        match how {
            // A record of zeros makes the file as long as its range.
            Allocate::Zero => self.store.journal.note_zeroed(node, offset..end, &tx),
            Allocate::Punch | Allocate::ZeroKeepSize => self.store.journal.note_zeroed(node, offset..end.min(old), &tx),
            Allocate::Extend if extends => self.store.journal.note_resized(node, end, now, &tx),
            Allocate::Extend => self.store.journal.note_touched(node, &tx),
            Allocate::KeepSize => {}
        }
        Ok(())
    }

    /// Refuses what there is no room for at all; space is not reserved.
    fn check_promise(&self, length: u64) -> Result<(), ZplError> {
        let Some(space) = self.store.room.space() else { return Ok(()) };
        let promised = u128::from(length) * PROMISE_PERCENT;
        if promised > u128::from(space.available) * 100 { Err(ZplError::NoSpace) } else { Ok(()) }
    }

    /// Offset of the next byte of data at or after `offset` (OpenZFS: `zfs_holey`).
    pub(crate) fn seek_data(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        let size = self.seek_bounds(node, offset)?;
        let Some(zeros) = self.zeros(node) else { return Ok(offset) };
        match node.dnode.next_data_as(offset, zeros)? {
            Some(found) if found < size => Ok(found.max(offset)),
            _ => Err(ZplError::PastEnd),
        }
    }

    /// Offset of the next byte of a hole at or after `offset`; the end of the file counts as one.
    pub(crate) fn seek_hole(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        let size = self.seek_bounds(node, offset)?;
        let Some(zeros) = self.zeros(node) else { return Ok(size) };
        Ok(node.dnode.next_hole_as(offset, zeros)?.clamp(offset, size))
    }

    /// Meaning of blocks of zeros that are not synced yet; None when nobody is to hear of holes before the sync.
    fn zeros(&self, node: &Node) -> Option<Zeros> {
        match (REPORTS_HOLES.load(Ordering::Relaxed), self.store.compresses()) {
            (false, _) if node.dnode.is_dirty() => None,
            (_, true) => Some(Zeros::Hole),
            (_, false) => Some(Zeros::Data),
        }
    }

    fn seek_bounds(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        let size = node.check_regular()?.size;
        if offset >= size { Err(ZplError::PastEnd) } else { Ok(size) }
    }
}
