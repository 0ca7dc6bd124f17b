//! Data of files: reading, writing, truncating, punching, seeking (OpenZFS: `zfs_vnops.c`, `zfs_extend`, `zfs_trunc`,
//! `zfs_free_range`, `zfs_grow_blocksize`).
//!
//! A small file is one block as large as its data (in sectors); the block grows with the file up to the record size, then
//! further blocks of that size follow. Growth and truncation lock the whole file, other operations their range.

use crate::direct::Access;
use crate::fs::TX_NAMES;
use crate::znode::{ATIME, CTIME, MTIME, Node, S_ISGID, S_ISUID, Znode, flag};
use crate::{Zfs, ZplError};
use abd::Abd;
use dmu::{Tx, Zeros};
use ondisk::{Compression, Txg};
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest file in bytes (OpenZFS: `MAXOFFSET_T`).
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// With `relatime` an access time older than this is renewed, in seconds.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;
/// What fallocate(2) promises must fit with so much more for what comes with it (OpenZFS: `zfs_fallocate_reserve_percent`).
const PROMISE_PERCENT: u128 = 110;
/// More zeros than this are not written but freed.
const SECTOR: u64 = 512;

static REPORTS_HOLES: AtomicBool = AtomicBool::new(true);

/// Whether holes are reported of files that have changes that are not synced (OpenZFS: `zfs_dmu_offset_next_sync`). No sync is forced for it:
/// what is dirty is looked at.
pub fn set_reports_holes(reports: bool) {
    REPORTS_HOLES.store(reports, Ordering::Relaxed);
}

/// A write.
#[derive(Clone, Debug)]
pub struct WriteData {
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: Abd,
    /// The buffer may be kept: whole blocks are taken over without a copy.
    pub may_keep: bool,
    /// Clear setuid and setgid.
    pub kill_suid: bool,
    /// Return only when the data is on disk.
    pub synchronous: bool,
}

/// What fallocate(2) does to a range.
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

pub(crate) fn check_regular(node: &Znode) -> Result<(), ZplError> {
    let fields = node.fields();
    match (fields.is_regular(), fields.is_directory()) {
        (true, _) => Ok(()),
        (_, true) => Err(ZplError::IsDirectory),
        _ => Err(ZplError::Invalid),
    }
}

impl Zfs {
    /// Reads up to `length` bytes; short only at the end of the file. Direct where the property `direct=always` says so.
    pub fn read(&self, node: &Node, offset: u64, length: u64) -> Result<Abd, ZplError> {
        self.read_with(node, offset, length, Access::default())
    }

    /// Reads through the cache.
    pub(crate) fn read_cached(&self, node: &Node, offset: u64, length: u64) -> Result<Abd, ZplError> {
        check_regular(node)?;
        let guard = node.lock_range(&self.exec, offset..offset.saturating_add(length), false);
        let size = node.fields().size;
        let end = offset.saturating_add(length).min(size);
        if offset >= end {
            return Ok(Abd::default());
        }
        let data = self.read_buffered(node, offset, (end - offset) as usize, false)?;
        drop(guard);
        self.note_access(node);
        self.counts.read(end - offset);
        Ok(data)
    }

    /// Renews the access time in memory; it reaches the object with the next change or when the node leaves memory.
    pub(crate) fn note_access(&self, node: &Znode) {
        let settings = self.settings();
        if !settings.atime || self.is_read_only() {
            return;
        }
        let now = self.now();
        let mut state = node.state.lock();
        let times = state.fields.times;
        let stale = times[ATIME] <= times[MTIME] || times[ATIME] <= times[CTIME] || now.0 - times[ATIME].0 >= RELATIME_SECONDS;
        if stale || !settings.relatime {
            state.fields.times[ATIME] = now;
            state.atime_dirty = true;
        }
    }

    pub(crate) fn check_changeable(&self, node: &Znode) -> Result<(), ZplError> {
        self.check_writable()?;
        check_regular(node)?;
        if node.fields().flags & flag::IMMUTABLE != 0 {
            return Err(ZplError::NotPermitted);
        }
        Ok(())
    }

    /// Writes; the file grows as needed. Direct where the property `direct=always` says so.
    pub fn write(&self, node: &Node, write: WriteData) -> Result<u64, ZplError> {
        self.write_with(node, write, Access::default())
    }

    /// Makes the only block larger before the file outgrows it.
    pub(crate) fn grow_block(&self, node: &Znode, end: u64, record: u64, tx: &Tx) -> Result<(), ZplError> {
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

    pub(crate) fn wait_for_stable(&self, txg: Txg) -> Result<(), ZplError> {
        if self.objset.props().sync == dmu::SyncMode::Disabled {
            return Ok(());
        }
        self.wait_txg(txg)
    }

    /// Changes the size (OpenZFS: `zfs_freesp`).
    pub fn truncate(&self, node: &Node, size: u64) -> Result<(), ZplError> {
        self.check_changeable(node)?;
        if size > FILE_BYTES_MAX {
            return Err(ZplError::TooBig);
        }
        if node.fields().flags & flag::APPENDONLY != 0 {
            return Err(ZplError::NotPermitted);
        }
        let _guard = node.lock_range(&self.exec, 0..u64::MAX, true);
        let (old, estimate) = (node.fields().size, self.objset.props().record_size as u64 + TX_NAMES);
        if size < old {
            node.dnode.prepare_free(size, u64::MAX)?;
        }
        let tx = if size < old { self.assign_frees(estimate)? } else { self.assign(estimate)? };
        let now = self.now();
        self.atomically(&tx, |undo| {
            if size > old {
                self.grow_block(node, size, self.objset.props().record_size as u64, &tx)?;
            }
            undo.change(&node.znode, |fields| {
                fields.size = size;
                fields.times[MTIME] = now;
                fields.times[CTIME] = now;
                fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
            })?;
            // Bytes are the only thing that nobody can put back: they go last.
            if size < old { Ok(node.dnode.free_range(size, u64::MAX, &tx)?) } else { Ok(()) }
        })
    }

    /// fallocate(2) (OpenZFS: `zpl_fallocate_common`).
    pub fn allocate(&self, node: &Node, offset: u64, length: u64, how: Allocate) -> Result<(), ZplError> {
        self.check_changeable(node)?;
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
        let _guard = node.lock_range(&self.exec, 0..u64::MAX, true);
        let estimate = 2 * self.objset.props().record_size as u64 + TX_NAMES;
        if how != Allocate::Extend {
            node.dnode.prepare_free(offset, length)?;
        }
        let tx = if how == Allocate::Punch { self.assign_frees(estimate)? } else { self.assign(estimate)? };
        let old = node.fields().size;
        let extends = matches!(how, Allocate::Extend | Allocate::Zero) && end > old;
        let now = self.now();
        self.atomically(&tx, |undo| {
            if extends {
                self.grow_block(node, end, self.objset.props().record_size as u64, &tx)?;
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
        })
    }

    /// Space is not reserved, but what there is no room for at all is not promised.
    fn check_promise(&self, length: u64) -> Result<(), ZplError> {
        let source = self.space.read().clone();
        let Some(source) = source else { return Ok(()) };
        let promised = u128::from(length) * PROMISE_PERCENT;
        if promised > u128::from(source.space().available) * 100 { Err(ZplError::NoSpace) } else { Ok(()) }
    }

    /// The next byte of data at or after `offset` (OpenZFS: `zfs_holey`).
    pub fn seek_data(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        let size = self.seek_bounds(node, offset)?;
        let Some(zeros) = self.zeros(node) else { return Ok(offset) };
        match node.dnode.next_data_as(offset, zeros)? {
            Some(found) if found < size => Ok(found.max(offset)),
            _ => Err(ZplError::PastEnd),
        }
    }

    /// The next byte of a hole at or after `offset`; the end of the file counts as one.
    pub fn seek_hole(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        let size = self.seek_bounds(node, offset)?;
        let Some(zeros) = self.zeros(node) else { return Ok(size) };
        Ok(node.dnode.next_hole_as(offset, zeros)?.clamp(offset, size))
    }

    /// What blocks of zeros are that are not synced yet; none when nobody is to hear of holes before the sync.
    fn zeros(&self, node: &Node) -> Option<Zeros> {
        match (REPORTS_HOLES.load(Ordering::Relaxed), self.compresses()) {
            (false, _) if node.dnode.is_dirty() => None,
            (_, true) => Some(Zeros::Hole),
            (_, false) => Some(Zeros::Data),
        }
    }

    /// True when blocks of zeros become holes.
    pub(crate) fn compresses(&self) -> bool {
        self.objset.props().compression != Compression::OFF
    }

    fn seek_bounds(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        check_regular(node)?;
        let size = node.fields().size;
        if offset >= size { Err(ZplError::PastEnd) } else { Ok(size) }
    }
}

/// Clears setuid, and setgid where it means set-group-id on execution.
pub(crate) fn clear_suid(mode: &mut u64) {
    *mode &= !S_ISUID;
    if *mode & 0o010 != 0 {
        *mode &= !S_ISGID;
    }
}
