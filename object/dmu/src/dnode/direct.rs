//! Direct I/O of whole blocks and parts of them: what a request asks for, and what becomes of an object when a write is done. [`super::batch`]
//! writes, [`super::gather`] reads, [`super::clone`] takes blocks that are on the devices already.

use super::Dnode;
use super::batch::{self, Batch, Outcome, OutcomeThen};
use super::clone;
use super::dirty::{Dropped, Record, Written};
use super::gather::{self, Piece, Pieces, PiecesThen, Sources, finish, joined};
use super::source::{FoundBy, Source};
use super::state::Found;
use super::window;
use crate::props::{BlockKind, write_policy};
use crate::{DmuError, Tx};
use abd::{Abd, AbdPart, SharedPages, with_lent, with_lent_mut};
use exec::{Mutex, TaskClass, completion};
use ondisk::BlockPtr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Dnode {
    /// Writes whole blocks directly: from `data` to the devices without a copy, unless they are transformed on the way. Waits
    /// until the devices have them; they are not flushed, and the pool refers to them when the txg is synced.
    ///
    /// [`DmuError::Invalid`] unless `offset` and the length are multiples of the block size (as it is now: grow it before),
    /// [`DmuError::NotSupported`] for metadata; [`DmuError::Block`] when a block could not be written: then none was.
    pub fn write_direct(&self, offset: u64, data: &[u8], tx: &Tx) -> Result<(), DmuError> {
        with_lent(self.context.blocks.io().exec(), data, |data| self.write_direct_abd(offset, data, tx))
    }

    /// As [`Dnode::write_direct`], from a buffer.
    pub fn write_direct_abd(&self, offset: u64, data: Abd, tx: &Tx) -> Result<(), DmuError> {
        let (done, wait) = completion();
        let first = self.start_direct(offset, data, tx, Box::new(move |outcome| done.complete(outcome)))?;
        let outcome = wait.wait(self.context.blocks.io().exec());
        self.install(first, outcome, tx)
    }

    /// As [`Dnode::write_direct`], without waiting for devices: `then` runs once, on any thread, and must not wait. It gets the
    /// transaction back, to change in it what goes with the data (size, times).
    pub fn write_direct_then(&self, offset: u64, data: Abd, tx: Tx, then: impl FnOnce(Tx, Result<(), DmuError>) + Send + 'static) {
        self.start_then(offset, (data, false), tx, then);
    }

    /// Writes the block at `offset`, whose newest bytes this txg has in memory, to the devices as a direct write does, without waiting for them: `then` as
    /// in [`Dnode::write_direct_then`]. The block is not dirty any more then; when it fails it is as dirty as before. Nobody may change it meanwhile.
    ///
    /// [`DmuError::NotSupported`] for a block of which this txg has nothing in memory.
    pub fn write_out_then(&self, offset: u64, tx: Tx, then: impl FnOnce(Tx, Result<(), DmuError>) + Send + 'static) {
        let found = self.contents.find(self.first_block(offset));
        match found {
            Found::Dirty(txg, block) if txg == tx.txg() => self.start_then(offset, (block.data(), true), tx, then),
            _ => then(tx, Err(DmuError::NotSupported)),
        }
    }

    /// Starts a direct write; the bytes come with the answer to whether they were dirty.
    fn start_then(&self, offset: u64, data: (Abd, bool), tx: Tx, then: impl FnOnce(Tx, Result<(), DmuError>) + Send + 'static) {
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
            Ok(batch) => batch::start_apart(&batch),
            Err(error) => {
                if let Some((tx, then)) = shared.lock().take() {
                    then(tx, Err(error));
                }
            }
        }
    }

    /// Pointer of the block at this offset, when its newest bytes were written directly in a txg that is not synced; a hole when they were
    /// all zeros. None for any other block. It stays there until its txg is synced, whoever replaces it meanwhile.
    pub fn unsynced_direct_block(&self, offset: u64) -> Option<BlockPtr> {
        let state = self.contents.state.read();
        match state.find(offset / state.core.block_size as u64) {
            Found::Written(written) if !written.is_shared => Some(written.bp),
            _ => None,
        }
    }

    fn first_block(&self, offset: u64) -> u64 {
        offset / self.contents.state.read().core.block_size as u64
    }

    /// Starts the writes of all blocks; gives the first block's number.
    fn start_direct(&self, offset: u64, data: Abd, tx: &Tx, then: OutcomeThen) -> Result<u64, DmuError> {
        let batch = self.batch(offset, (data, false), tx, then)?;
        batch::start(&batch);
        Ok(batch.first())
    }

    /// Checks the request and makes it ready to go.
    fn batch(&self, offset: u64, (data, is_coalesced): (Abd, bool), tx: &Tx, then: OutcomeThen) -> Result<Arc<Batch>, DmuError> {
        self.context.blocks.check_writable()?;
        let core = {
            let state = self.contents.state.read();
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
        self.contents.warm_indirects(first, first + blocks as u64 - 1)?;
        self.pin_record(tx)?;
        tx.note_direct(length);
        let kind = BlockKind { object_type: core.kind, level: 0, spill: false, checksum: core.checksum, compression: core.compression };
        let request = batch::Request {
            blocks: self.context.blocks.clone(),
            object: self.object(),
            txg: tx.txg(),
            first,
            block_size: core.block_size,
            kind: core.kind,
            policy: write_policy(&self.context.blocks.props(), kind),
            is_coalesced,
        };
        Ok(Batch::new(request, data, then))
    }

    /// Everything is on the devices, or something failed: new records, or none.
    fn install(&self, first: u64, outcome: Outcome, tx: &Tx) -> Result<(), DmuError> {
        let written: Vec<BlockPtr> = outcome.iter().filter_map(|result| result.as_ref().ok()).copied().collect();
        let failed = (first..).zip(outcome).find_map(|(block, result)| Some((block, result.err()?)));
        let result = match failed {
            Some((block, error)) => Err(DmuError::of_block(error, self.context.blocks.bookmark(self.object(), 0, block))),
            None => self.replace_records(first, &written, tx),
        };
        if result.is_err() {
            for bp in written.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
                self.context.blocks.io().free(tx.txg(), bp);
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
                dropped.push(state.insert(block, Record::Written(Arc::new(Written { bp: *bp, is_shared: false })))?);
            }
            Ok(())
        })?;
        self.give_back(&dropped, tx.txg());
        Ok(())
    }

    /// Pointer of a block whose newest bytes were written directly, in a txg that is not on disk; None for any other. For records of intent logs.
    pub fn written_block(&self, block: u64) -> Option<BlockPtr> {
        match self.contents.state.read().find(block) {
            Found::Written(written) if !written.is_shared => Some(written.bp),
            _ => None,
        }
    }

    /// Pointers of blocks as the last sync of the object left them; None when one of them has changed since. Holes and what lies behind the last
    /// block are holes. Whoever goes on with them keeps others from changing these blocks.
    ///
    /// # Errors
    /// [`DmuError::NoSuchObject`], those of reading the blocks above.
    pub fn settled_blocks(&self, blocks: Range<u64>) -> Result<Option<Vec<BlockPtr>>, DmuError> {
        clone::settled_blocks(&self.contents, &blocks)
    }

    /// Puts pointers of another object into the blocks from `first` on, instead of what is there: both share the blocks from the transaction's txg on.
    /// The pointers are of [`Dnode::settled_blocks`], and what they are of does not change before the transaction ends.
    ///
    /// # Errors
    /// [`DmuError::NotSupported`] where the store does not let blocks be shared, for metadata, and for pointers of blocks that this object cannot have:
    /// of another size or type, or encrypted. [`DmuError::Invalid`] beyond the one block of an object whose block size is no power of two.
    /// Nothing is changed then.
    pub fn clone_blocks(&self, first: u64, pointers: &[BlockPtr], tx: &Tx) -> Result<(), DmuError> {
        self.context.blocks.check_writable()?;
        tx.keep_announced();
        let io = self.context.blocks.io();
        let clones = io.clones().filter(|clones| clones.is_enabled()).ok_or(DmuError::NotSupported)?;
        let last = first.checked_add(pointers.len() as u64).and_then(|end| end.checked_sub(1)).ok_or(DmuError::Invalid)?;
        // As for direct writes: what the sync will need is read here, where the user hears of damage.
        self.contents.warm_indirects(first, last)?;
        clone::with_blocks(pointers).for_each(|bp| clones.add(tx.txg(), bp));
        match self.change(tx, |state| clone::put(state, (first, last), pointers, tx.txg())) {
            Ok(dropped) => {
                self.give_back(&dropped, tx.txg());
                Ok(())
            }
            Err(error) => {
                clone::with_blocks(pointers).for_each(|bp| clones.take_back(tx.txg(), bp));
                Err(error)
            }
        }
    }

    /// Fills `out` from `offset` directly. Holes and what lies beyond the last block read as zeros. Waits.
    pub fn read_direct_into(&self, offset: u64, out: &mut [u8]) -> Result<(), DmuError> {
        let exec = self.context.blocks.io().exec();
        let length = out.len();
        let pieces = with_lent_mut(exec, out, |target| {
            let mut pieces = self.gather(offset, length, Some(target))?;
            // The loan ends when nothing refers to the caller's memory any more.
            for piece in &mut pieces {
                if let Ok(Piece::There(data)) = piece {
                    *piece = Ok(Piece::Kept(data.len()));
                }
            }
            Ok::<Pieces, DmuError>(pieces)
        })?;
        finish(pieces, |range, data| data.copy_to(0, &mut out[range]))
    }

    /// Fills pages that others may write to, from `start` of them, with `length` bytes from `offset`. Waits.
    pub fn read_direct_pages(&self, offset: u64, pages: &SharedPages, range: Range<usize>) -> Result<(), DmuError> {
        let (start, length) = (range.start, range.len());
        let pieces = self.gather(offset, length, Some(pages.part(range)))?;
        finish(pieces, |range, data| {
            pages.part(start + range.start..start + range.end).copy_from_abd(&data);
        })
    }

    /// `length` bytes from `offset` directly: as many buffers as it takes, none of them copied. Waits.
    pub fn read_direct(&self, offset: u64, length: usize) -> Result<Abd, DmuError> {
        joined(self.gather(offset, length, None)?)
    }

    /// As [`Dnode::read_direct`], without waiting for the devices (for the object's metadata, perhaps): `then` runs once, on
    /// any thread, and must not wait.
    pub fn read_direct_then(&self, offset: u64, length: usize, then: impl FnOnce(Result<Abd, DmuError>) + Send + 'static) {
        let shared = Arc::new(Mutex::new(Some(then)));
        let kept = shared.clone();
        let finish = move |pieces: Pieces| {
            if let Some(then) = kept.lock().take() {
                then(joined(pieces));
            }
        };
        if let Err(error) = self.start_gather(offset, length, None, Box::new(finish))
            && let Some(then) = shared.lock().take()
        {
            then(Err(error));
        }
    }

    fn gather(&self, offset: u64, length: usize, target: Option<AbdPart>) -> Result<Pieces, DmuError> {
        let (done, wait) = completion();
        self.start_gather(offset, length, target, Box::new(move |pieces| done.complete(pieces)))?;
        Ok(wait.wait(self.context.blocks.io().exec()))
    }

    /// Starts the reads of all blocks.
    fn start_gather(&self, offset: u64, length: usize, target: Option<AbdPart>, then: PiecesThen) -> Result<(), DmuError> {
        let sources = self.this.upgrade().ok_or(DmuError::NoSuchObject)?;
        let block_size = self.contents.block_size()?;
        offset.checked_add(length as u64).ok_or(DmuError::Invalid)?;
        if length == 0 {
            then(Vec::new());
            return Ok(());
        }
        let (blocks, flights) = (self.context.blocks.clone(), self.context.flights.clone());
        let keeps = self.keeps_neighbours(offset..offset + length as u64, block_size as u64);
        let request = gather::Request { object: self.object(), blocks, flights, sources, block_size, keeps };
        gather::start(request, (offset, length), target, |block| self.contents.source(block), then)
    }

    /// True when the blocks that a read takes parts of are to be kept for those that follow.
    fn keeps_neighbours(&self, range: Range<u64>, block_size: u64) -> bool {
        let is_partial = !range.start.is_multiple_of(block_size) || !range.end.is_multiple_of(block_size);
        let may_keep = is_partial && block_size <= window::limits().object;
        may_keep && self.window.note(&range, self.context.blocks.io().exec().now_ns())
    }

    /// Lets go of what was kept, once its time is over.
    fn watch_window(&self, delay_ns: u64) {
        let this = self.this.clone();
        let look = move || {
            let Some(this) = this.upgrade() else { return };
            if let Some(delay_ns) = this.window.expire(this.context.blocks.io().exec().now_ns()) {
                this.watch_window(delay_ns);
            }
        };
        self.context.blocks.io().exec().spawn_after(delay_ns, TaskClass::Free, Box::new(look));
    }

    /// Bytes kept for the neighbours of direct reads.
    #[cfg(test)]
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }
}

impl Sources for Dnode {
    fn source_now(&self, block: u64) -> Result<Option<Source>, DmuError> {
        self.contents.source_now(block)
    }
    fn moved(&self, block: u64, found: &FoundBy) -> bool {
        self.contents.moved(block, found)
    }
    fn kept(&self, bp: &BlockPtr, length: usize) -> Option<Abd> {
        self.window.take(bp, length as u64, || self.context.blocks.io().exec().now_ns())
    }
    fn keep(&self, block: u64, bp: &BlockPtr, whole: &Abd, given: usize) {
        let now_ns = self.context.blocks.io().exec().now_ns();
        if let Some(delay_ns) = self.window.keep((block, bp), (whole, given as u64), window::limits(), now_ns) {
            self.watch_window(delay_ns);
        }
    }
    fn gave(&self, bp: &BlockPtr, bytes: usize) {
        self.window.gave(bp, bytes as u64);
    }
    fn count_shared(&self, length: usize) {
        let [count, bytes] = &self.context.shared_reads;
        count.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(length as u64, Ordering::Relaxed);
        if let Some(stats) = self.context.blocks.io().iostats() {
            stats.direct_shared.add(1, length as u64);
        }
    }
}
