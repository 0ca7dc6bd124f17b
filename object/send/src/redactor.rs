//! Redaction of a stream: blocks that a redaction list has are left out, and those come again that the stream's base lacks since they were redacted
//! there (OpenZFS: `send_merge_thread`, `send_reader_thread`).
//!
//! What the walk finds and both lists are in order of object and block. They are merged: of a block that the list to redact by has, nothing but that
//! is said; what the walk finds comes before what was redacted at the base.

use crate::SendError;
use crate::item::{Block, Finds, Item};
use crate::walk::is_redacted;
use dmu::{DmuError, Objset};
use dsl::{RedactedRun, RedactionList};
use ondisk::{BlockId, BlockPtr, Bookmark, Level, ObjectId};
use std::collections::VecDeque;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// Runs of a list that are read at once.
const RUNS: u64 = 1 << 12;
/// Pointers that are looked up at once.
const POINTERS: u64 = 256;

/// Runs of a redaction list from some place on; none without a list.
pub(crate) struct Runs<'l> {
    list: Option<&'l RedactionList>,
    /// Number of runs that were read.
    read: u64,
    ready: VecDeque<RedactedRun>,
}

impl<'l> Runs<'l> {
    /// Runs of a list from this object and block on.
    pub(crate) fn new(list: Option<&'l RedactionList>, (object, block): (u64, u64)) -> Result<Runs<'l>, SendError> {
        let mut runs = Runs { list, read: 0, ready: VecDeque::new() };
        while let Some(first) = runs.first()? {
            let is_behind = first.object > object || first.object == object && first.block.saturating_add(first.count) > block;
            if is_behind {
                if first.object == object {
                    runs.consume(object, block);
                }
                break;
            }
            runs.ready.pop_front();
        }
        Ok(runs)
    }

    /// First of those that are left.
    fn first(&mut self) -> Result<Option<RedactedRun>, SendError> {
        while self.ready.is_empty() {
            let Some(list) = self.list.filter(|list| self.read < list.facts().runs) else { break };
            let some = list.runs(self.read, RUNS)?;
            self.read += (some.len() as u64).max(1);
            // Nothing is behind the largest number of a block.
            self.ready.extend(some.into_iter().filter(|run| run.block < u64::MAX));
        }
        Ok(self.ready.front().copied())
    }

    /// Takes away what the first has of an object before a block.
    fn consume(&mut self, object: u64, block: u64) {
        let Some(first) = self.ready.front_mut() else { return };
        if first.object != object || first.block >= block {
            return;
        }
        let end = first.block.saturating_add(first.count);
        if end <= block {
            self.ready.pop_front();
        } else {
            (first.block, first.count) = (block, end - block);
        }
    }
}

/// Blocks of an object that both lists say the same of.
struct Segment {
    object: u64,
    start: u64,
    end: u64,
    /// Bytes of a block where it is to be redacted.
    redacted: Option<u64>,
    was_redacted: bool,
}

/// Walk's finds on their way to a stream, redacted.
pub(crate) struct Redactor<'a, F> {
    out: F,
    objset: &'a Arc<Objset>,
    redacts: Runs<'a>,
    was: Runs<'a>,
    /// Bytes of a block of the object that the walk is at.
    block_bytes: u64,
}

impl<'a, F: Finds> Redactor<'a, F> {
    /// Redacts by one list what goes to `out`; the base of the stream was redacted by the other.
    pub(crate) fn new(out: F, objset: &'a Arc<Objset>, (redacts, was): (Runs<'a>, Runs<'a>)) -> Redactor<'a, F> {
        Redactor { out, objset, redacts, was, block_bytes: 1 }
    }

    /// Takes off the lists the blocks from one on, before another one, that they say the same of.
    fn segment(&mut self, object: u64, start: u64, limit: u64) -> Result<Segment, SendError> {
        let mut end = limit;
        let mut found = [None, None];
        for (runs, found) in [&mut self.redacts, &mut self.was].into_iter().zip(&mut found) {
            let is_here = |run: &RedactedRun| run.object == object && run.block < end && run.block.saturating_add(run.count) > start;
            let Some(first) = runs.first()?.filter(is_here) else { continue };
            if first.block > start {
                end = first.block;
            } else {
                end = end.min(first.block.saturating_add(first.count));
                *found = Some(first.block_bytes);
            }
        }
        self.redacts.consume(object, end);
        self.was.consume(object, end);
        let [redacted, was] = found;
        Ok(Segment { object, start, end, redacted, was_redacted: was.is_some() })
    }

    /// Says what the lists have before a block of an object.
    fn catch_up(&mut self, object: u64, block: u64) -> Result<(), SendError> {
        loop {
            let firsts = [self.redacts.first()?, self.was.first()?];
            let Some(place) = firsts.iter().flatten().map(|run| (run.object, run.block)).min().filter(|place| *place < (object, block))
            else {
                return Ok(());
            };
            let limit = if place.0 == object { block } else { u64::MAX };
            let segment = self.segment(place.0, place.1, limit)?;
            match (segment.redacted, segment.was_redacted) {
                // Whoever receives it lacks it already.
                (Some(_), true) => {}
                (Some(bytes), false) => self.redact(&segment, bytes)?,
                (None, _) => self.restore(&segment)?,
            }
        }
    }

    fn redact(&mut self, segment: &Segment, bytes: u64) -> Result<(), SendError> {
        let (Some(offset), Some(length)) = (segment.start.checked_mul(bytes), (segment.end - segment.start).checked_mul(bytes)) else {
            return Ok(());
        };
        self.out.push(Item::Redact { object: segment.object, offset, length })
    }

    /// Sends what the base lacks, as far as it is there now.
    fn restore(&mut self, segment: &Segment) -> Result<(), SendError> {
        let object = ObjectId(segment.object);
        let dnode = match self.objset.hold(object) {
            Ok(dnode) => dnode,
            // The walk tells that it is gone.
            Err(DmuError::NoSuchObject) => return Ok(()),
            Err(error) => return Err(of_source(error)),
        };
        let info = dnode.info().map_err(of_source)?;
        let bytes = info.block_size as u64;
        let end = segment.end.min(info.max_block.0.saturating_add(1));
        let mut at = segment.start;
        while at < end {
            let data = dnode.next_data(at.saturating_mul(bytes)).map_err(of_source)?.map_or(u64::MAX, |offset| offset / bytes);
            if data > at {
                let hole = data.min(end) - at;
                self.out.push(Item::Free { object: object.0, offset: at.saturating_mul(bytes), length: hole.saturating_mul(bytes) })?;
                at += hole;
                continue;
            }
            let until = end.min(at + POINTERS);
            let pointers = dnode.settled_blocks(at..until).map_err(of_source)?.ok_or_else(|| of_source(DmuError::Invalid))?;
            for (block, bp) in (at..until).zip(pointers) {
                let place = Bookmark { objset: self.objset.id(), object, level: Level(0), block: BlockId(block) };
                self.out.push(item_of(bp, place, block.saturating_mul(bytes), &info))?;
            }
            at = until;
        }
        Ok(())
    }

    /// Passes on what the walk found of blocks, but for those that are redacted.
    fn blocks(
        &mut self,
        object: u64,
        (start, end): (u64, u64),
        pass: &mut dyn FnMut(&mut F, u64, u64) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        self.catch_up(object, start)?;
        let mut at = start;
        while at < end {
            let segment = self.segment(object, at, end)?;
            match (segment.redacted, segment.was_redacted) {
                (Some(_), true) => {}
                (Some(bytes), false) => self.redact(&segment, bytes)?,
                (None, _) => pass(&mut self.out, segment.start, segment.end)?,
            }
            at = segment.end;
        }
        Ok(())
    }
}

impl<F: Finds> Finds for Redactor<'_, F> {
    type Made = F::Made;

    fn push(&mut self, item: Item) -> Result<(), SendError> {
        let bytes = self.block_bytes;
        let range = |offset: u64, length: u64| (offset / bytes, offset.saturating_add(length) / bytes);
        match item {
            Item::Object { object, ref dnode, .. } => {
                self.catch_up(object, 0)?;
                self.block_bytes = (dnode.data_block_bytes() as u64).max(1);
                self.out.push(item)
            }
            Item::FreeObjects { first, .. } => {
                self.catch_up(first, 0)?;
                self.out.push(item)
            }
            Item::Free { object, offset, length } => self.blocks(object, range(offset, length), &mut |out, start, end| {
                out.push(Item::Free { object, offset: start * bytes, length: (end - start).saturating_mul(bytes) })
            }),
            Item::Redact { object, offset, length } => self.blocks(object, range(offset, length), &mut |out, start, end| {
                out.push(Item::Redact { object, offset: start * bytes, length: (end - start).saturating_mul(bytes) })
            }),
            Item::Block(block) if !block.is_spill => {
                let (object, at) = (block.at.object.0, block.at.block.0);
                let mut block = Some(block);
                self.blocks(object, (at, at.saturating_add(1)), &mut |out, _, _| {
                    block.take().map_or(Ok(()), |block| out.push(Item::Block(block)))
                })
            }
            Item::Dnodes { .. } | Item::Block(_) => self.out.push(item),
        }
    }

    fn is_raw(&self) -> bool {
        self.out.is_raw()
    }

    fn set_objects_max(&mut self, objects: u64) {
        self.out.set_objects_max(objects);
    }

    fn finish(mut self) -> Result<F::Made, SendError> {
        self.catch_up(u64::MAX, u64::MAX)?;
        self.out.finish()
    }
}

/// Find of a block that has this pointer.
fn item_of(bp: BlockPtr, at: Bookmark, offset: u64, info: &dmu::DnodeInfo) -> Item {
    let (object, length) = (at.object.0, info.block_size as u64);
    if bp.is_hole() {
        return Item::Free { object, offset, length };
    }
    if is_redacted(&bp) {
        return Item::Redact { object, offset, length };
    }
    Item::Block(Box::new(Block { bp, at, kind: info.kind, offset, is_spill: false }))
}

fn of_source(error: DmuError) -> SendError {
    SendError::Source(error.into())
}

/// Bytes of the records that finds become, without a look at any block.
pub(crate) struct Count {
    /// Bytes of a record.
    pub(crate) record_bytes: u64,
    /// True for blocks that go as they are compressed.
    pub(crate) is_compressed: bool,
    pub(crate) bytes: u64,
    /// Place at which what comes next would go on with the last record, if it is of the same kind: neighbouring holes are one record.
    pub(crate) next: Option<Place>,
}

/// End of a record that can grow: its kind, its object (0 for freed objects), and the first byte or object behind it.
type Place = (Discriminant<Item>, u64, u64);

impl Count {
    /// True if `item` goes into the record before it.
    fn goes_on(&mut self, item: &Item) -> bool {
        let (object, first, length) = match *item {
            Item::FreeObjects { first, count } => (0, first, count),
            Item::Free { object, offset, length } | Item::Redact { object, offset, length } => (object, offset, length),
            _ => {
                self.next = None;
                return false;
            }
        };
        let kind = discriminant(item);
        let last = self.next.replace((kind, object, first.saturating_add(length)));
        last == Some((kind, object, first))
    }
}

impl Finds for Count {
    type Made = u64;

    fn push(&mut self, item: Item) -> Result<(), SendError> {
        if self.goes_on(&item) {
            return Ok(());
        }
        let payload = match item {
            Item::Block(block) if self.is_compressed => block.bp.psize(),
            Item::Block(block) => block.bp.lsize(),
            Item::Object { dnode, .. } => dnode.bonus.len(),
            _ => 0,
        };
        self.bytes += self.record_bytes + payload as u64;
        Ok(())
    }

    fn finish(self) -> Result<u64, SendError> {
        Ok(self.bytes)
    }
}
