//! Files that share blocks: a range of one becomes a range of another, and no data moves (OpenZFS: `zfs_clone_range`).
//!
//! What cannot be shared is refused with [`ZplError::NotSupported`]: whoever asked copies the bytes. That a source has changes that are not on disk is
//! such a reason, too (OpenZFS: `EAGAIN`, and its `zfs_bclone_wait_dirty`).

use super::Data;
use super::request::{FILE_BYTES_MAX, check_changeable};
use crate::ZplError;
use crate::nodes::Node;
use crate::room::TX_NAMES;
use crate::undo::Undo;
use crate::znode::{CTIME, MTIME, flag};
use ondisk::BlockPtr;
use range_lock::RangeGuard;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes that one request shares: the rest is asked for again.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Bytes that one transaction shares, unless one block is longer.
const TX_BYTES: u64 = 16 << 20;

static CLONES: AtomicBool = AtomicBool::new(true);
static WAITS: AtomicBool = AtomicBool::new(false);

/// Sets whether files may come to share blocks (OpenZFS: `zfs_bclone_enabled`), and whether a source that has changes which are not on disk is waited
/// for instead of copied (`zfs_bclone_wait_dirty`).
pub fn set_cloning(clones: bool, waits: bool) {
    CLONES.store(clones, Ordering::Relaxed);
    WAITS.store(waits, Ordering::Relaxed);
}

/// Place in the data of a file.
#[derive(Clone, Copy, Debug)]
pub struct DataAt<'a> {
    /// File of the data.
    pub node: &'a Node,
    /// Offset in bytes.
    pub offset: u64,
}

/// Blocks to be shared.
struct Plan {
    /// Bytes of a block of both files.
    block: u64,
    /// First block of the source.
    first: u64,
    /// First block of the target.
    target: u64,
    /// Bytes from the start of the first block on that become the target's: whole blocks, but for the end of both files.
    length: u64,
}

impl Plan {
    /// Decides what of a request can be shared; None where the source has nothing there.
    fn of(from: DataAt<'_>, to: DataAt<'_>, length: u64) -> Result<Option<Plan>, ZplError> {
        let (source, target) = (from.node.dnode.info()?, to.node.dnode.info()?);
        let (have, size) = (from.node.fields().size, to.node.fields().size);
        let length = length.min(have.saturating_sub(from.offset)).min(REQUEST_BYTES_MAX);
        if length == 0 {
            return Ok(None);
        }
        let end = to.offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(ZplError::TooBig)?;
        let block = source.block_size as u64;
        let is_empty = size == 0 && target.max_block.0 == 0;
        let is_aligned = from.offset.is_multiple_of(block) && to.offset.is_multiple_of(block);
        // A block that both files end in is shared, too: nothing of either lies behind it.
        let ends_both = from.offset + length == have && end >= size;
        let length = if ends_both { length } else { length - length % block };
        if !is_aligned || length == 0 || (target.block_size as u64 != block && !is_empty) {
            return Err(ZplError::NotSupported);
        }
        // The one block of a short file is no size for many: it would stay (OpenZFS 15321).
        let is_long = source.max_block.0 > 0 || (target.max_block.0 > 0 && !is_empty) || block >= to.node.store().record_size();
        let fits = to.offset + length <= block || (is_long && block.is_power_of_two());
        let plan = Plan { block, first: from.offset / block, target: to.offset / block, length };
        if fits { Ok(Some(plan)) } else { Err(ZplError::NotSupported) }
    }
}

/// Locks what is read and all of what is written to, in an order that no two requests can wait for each other.
fn lock_both(from: DataAt<'_>, to: DataAt<'_>, length: u64) -> [RangeGuard; 2] {
    let exec = &to.node.store().exec;
    let read = || from.node.lock_range(exec, from.offset..from.offset.saturating_add(length), false);
    let write = || to.node.lock_range(exec, 0..u64::MAX, true);
    if from.node.object() < to.node.object() {
        let first = read();
        [first, write()]
    } else {
        let first = write();
        [first, read()]
    }
}

impl Data {
    /// Has a range of a file share blocks with one of another file of the file system; the file grows as needed. Returns the bytes that were shared,
    /// which may be fewer than asked for: 0 only at or behind the end of the source.
    ///
    /// # Errors
    /// [`ZplError::NotSupported`] where nothing can be shared, and the bytes have to be copied; nothing was changed then.
    pub(crate) fn clone_range(&self, from: DataAt<'_>, to: DataAt<'_>, length: u64) -> Result<u64, ZplError> {
        check_changeable(to.node)?;
        from.node.check_regular()?;
        let is_one = from.node.object() == to.node.object() || !Arc::ptr_eq(from.node.store(), to.node.store());
        let may = CLONES.load(Ordering::Relaxed) && self.store.objset.io().clones().is_some_and(|clones| clones.is_enabled());
        if is_one || !may || to.node.fields().flags & flag::APPENDONLY != 0 {
            return Err(ZplError::NotSupported);
        }
        let _guards = lock_both(from, to, length);
        let Some(plan) = Plan::of(from, to, length)? else { return Ok(0) };
        let (mut done, mut has_waited) = (0, false);
        while done < plan.length {
            match self.clone_part((from.node, to.node), &plan, done) {
                Ok(bytes) => (done, has_waited) = (done + bytes, false),
                // Until it is synced, what was shared a moment ago counts as if it took space.
                Err(ZplError::NoSpace) if !has_waited => {
                    has_waited = true;
                    self.store.room.sync()?;
                }
                Err(error) if done == 0 => return Err(error),
                // Whoever asked goes on behind what was shared, and hears of it then.
                Err(_) => break,
            }
        }
        self.store.note_access(from.node);
        Ok(done)
    }

    /// Shares the blocks of one transaction, behind `done` bytes; returns their bytes.
    fn clone_part(&self, (from, to): (&Node, &Node), plan: &Plan, done: u64) -> Result<u64, ZplError> {
        let (block, at) = (plan.block, done / plan.block);
        let count = (TX_BYTES / block).max(1).min((plan.length - done).div_ceil(block));
        let bytes = (count * block).min(plan.length - done);
        let start = (plan.target + at) * block;
        let pointers = self.settled(from, plan.first + at..plan.first + at + count)?;
        self.store.limits.check(&to.owner(), false)?;
        to.dnode.prepare_write(start, (count * block) as usize)?;
        let tx = self.store.room.assign(bytes + TX_NAMES)?;
        if to.dnode.info()?.block_size as u64 != block {
            // Of an empty file: it has the blocks of the other one from now on.
            to.dnode.set_block_size(block as usize, &tx)?;
        }
        let now = self.store.now();
        Undo::run(&self.store, &tx, |undo| {
            undo.change(&to.znode, |fields| {
                fields.size = fields.size.max(start + bytes);
                fields.times[MTIME] = now;
                fields.times[CTIME] = now;
                fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
            })?;
            Ok(to.dnode.clone_blocks(plan.target + at, &pointers, &tx)?)
        })?;
        // No record tells of it: whoever wants the file durable waits for the txg.
        self.store.journal.leave_out_alone(to.object(), &tx);
        Ok(bytes)
    }

    /// Pointers of blocks that are on disk, and of which no change waits to get there.
    fn settled(&self, node: &Node, blocks: Range<u64>) -> Result<Vec<BlockPtr>, ZplError> {
        loop {
            let found = node.dnode.settled_blocks(blocks.clone())?;
            match found.filter(|pointers| pointers.iter().all(|bp| self.store.room.is_synced(bp.birth()))) {
                Some(pointers) => return Ok(pointers),
                None if WAITS.load(Ordering::Relaxed) => self.store.room.sync()?,
                None => return Err(ZplError::NotSupported),
            }
        }
    }
}
