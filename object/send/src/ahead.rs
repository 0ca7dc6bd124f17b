//! Blocks that are being read while those before them become records: the devices work as far ahead as a few megabytes go.

use crate::SendError;
use crate::item::{Block, Finds, Item};
use crate::records::{Form, Records};
use abd::Abd;
use dmu::{BlockError, BlockIo, DmuError, Keep};
use exec::{Completion, completion};
use ondisk::DnodePhys;
use std::collections::VecDeque;
use std::io;

/// Bytes that are read ahead (OpenZFS: `zfs_send_queue_length`).
const BYTES_MAX: usize = 16 << 20;
/// Items that wait, however small.
const ITEMS_MAX: usize = 256;

/// Way in which the bytes of an item come.
enum Read {
    /// There are none, or they are there.
    Nothing,
    /// Through the cache, which reads them ahead.
    Cached,
    /// From devices, compressed.
    Physical(Completion<Result<Abd, BlockError>>),
}

/// Queue between the walk and the records.
pub(crate) struct Ahead<'a, 'w, W> {
    io: &'a dyn BlockIo,
    records: Records<'w, W>,
    queue: VecDeque<(Item, Read)>,
    bytes: usize,
}

impl<'a, 'w, W: io::Write> Ahead<'a, 'w, W> {
    pub(crate) fn new(io: &'a dyn BlockIo, records: Records<'w, W>) -> Ahead<'a, 'w, W> {
        Ahead { io, records, queue: VecDeque::new(), bytes: 0 }
    }

    fn begin(&self, item: &Item) -> Read {
        let Item::Block(block) = item else { return Read::Nothing };
        match self.records.form_of(block) {
            Form::Embedded => Read::Nothing,
            Form::Compressed | Form::Stored => {
                let (done, wait) = completion();
                self.io.read_stored(&block.bp, &block.at, Box::new(move |result| done.complete(result)));
                Read::Physical(wait)
            }
            Form::Plain => {
                if !block.bp.is_embedded() {
                    self.io.prefetch_kept(&block.bp, &block.at, Keep::Once);
                }
                Read::Cached
            }
        }
    }

    fn pop(&mut self) -> Result<(), SendError> {
        let Some((item, read)) = self.queue.pop_front() else { return Ok(()) };
        self.bytes -= bytes_of(&item);
        match item {
            Item::Dnodes { bp, first, count } => self.records.dnodes(&bp, first, count),
            Item::Object { object, dnode, stored } => self.records.object(object, &dnode, &stored),
            Item::FreeObjects { first, count } => self.records.free_objects(first, count),
            Item::Free { object, offset, length } => self.records.free(object, offset, length),
            Item::Redact { object, offset, length } => self.records.redact(object, offset, length),
            Item::Block(block) => self.block(&block, read),
        }
    }

    fn block(&mut self, block: &Block, read: Read) -> Result<(), SendError> {
        let found = match read {
            Read::Nothing => return self.records.embedded(block),
            Read::Cached => self.io.read_kept(&block.bp, &block.at, Keep::Once),
            Read::Physical(wait) => wait.wait(self.io.exec()).map(|data| data.slice(0..block.bp.psize().min(data.len()))),
        };
        let data = found.map_err(|error| {
            self.io.lost(&block.bp, &block.at, error);
            SendError::Source(DmuError::of_block(error, block.at).into())
        })?;
        self.records.block(block, &data)
    }
}

impl<'w, W: io::Write> Finds for Ahead<'_, 'w, W> {
    type Made = Records<'w, W>;

    /// Adds what comes next, begins to read it, and makes records of what is ahead of it too far.
    fn push(&mut self, item: Item) -> Result<(), SendError> {
        let read = self.begin(&item);
        self.bytes += bytes_of(&item);
        self.queue.push_back((item, read));
        while self.bytes > BYTES_MAX || self.queue.len() > ITEMS_MAX {
            self.pop()?;
        }
        Ok(())
    }

    fn is_raw(&self) -> bool {
        self.records.is_raw()
    }

    fn set_objects_max(&mut self, objects: u64) {
        self.records.set_objects_max(objects);
    }

    /// Makes records of all that is left.
    fn finish(mut self) -> Result<Records<'w, W>, SendError> {
        while !self.queue.is_empty() {
            self.pop()?;
        }
        Ok(self.records)
    }
}

/// Bytes that an item takes in memory, about.
fn bytes_of(item: &Item) -> usize {
    match item {
        Item::Block(block) => block.bp.lsize(),
        Item::Object { dnode, stored, .. } => size_of::<DnodePhys>() + dnode.bonus.len() + stored.len(),
        Item::Dnodes { .. } | Item::FreeObjects { .. } | Item::Free { .. } | Item::Redact { .. } => 0,
    }
}
