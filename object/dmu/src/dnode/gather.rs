//! Direct reads: from the devices to the caller's memory, past the cache (OpenZFS: `dmu_read_abd`).
//!
//! Each block is looked up like any other read: the newest record wins. Bytes in memory (dirty, or in the cache) are copied
//! from there; a block that a direct write of an unsynced txg put on disk is read by its own pointer; holes cost nothing.
//! What is left comes from the devices, into the caller's memory without a copy where that is possible, and is not kept.
//!
//! A part of a block needs the whole of it, for the checksum: the rest goes to scratch memory. Several who want parts of one
//! block at the same time share one device read ([`Flights`]); of readers that go forward the block is kept for the parts that
//! follow ([`super::window`]).

use super::batch::PLUGGED_BYTES;
use super::segments::{Segment, segments};
use super::source::{Device, FoundBy, Source};
use crate::blocks::Blocks;
use crate::{BlockError, DmuError, Landed};
use abd::{Abd, AbdPart};
use exec::{Computing, Mutex, TaskClass};
use ondisk::{BlockPtr, ObjectId, Txg, VdevId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of times that a block is looked up again because it moved.
const TRIES_MAX: u32 = 8;
const SHARDS: usize = 16;

/// Source of the places of blocks, asked again when one could not be read.
pub(super) trait Sources: Send + Sync {
    /// Place of a block's newest bytes, from memory only.
    fn source_now(&self, block: u64) -> Result<Option<Source>, DmuError>;
    /// True when the block is not where it was found any more.
    fn moved(&self, block: u64, found: &FoundBy) -> bool;
    /// Bytes of a block that is kept for the neighbours of a part that was read; `length` of them are taken.
    fn kept(&self, bp: &BlockPtr, length: usize) -> Option<Abd>;
    /// Keeps the bytes of a block of which `given` were taken.
    fn keep(&self, block: u64, bp: &BlockPtr, whole: &Abd, given: usize);
    /// Others took `bytes` of a block that was kept while they waited for it.
    fn gave(&self, bp: &BlockPtr, bytes: usize);
    /// Counts a part of a block that came with the device read of a neighbour.
    fn count_shared(&self, length: usize);
}

/// A part of the request that is there.
#[derive(Debug)]
pub(super) enum Piece {
    /// In the caller's memory, or in a buffer made for it when he gave none.
    There(Abd),
    /// In a buffer of its own although the caller gave memory.
    Elsewhere(Abd),
    /// Number of bytes in the caller's memory, which is his again.
    Kept(usize),
}

pub(super) type Pieces = Vec<Result<Piece, DmuError>>;
pub(super) type PiecesThen = Box<dyn FnOnce(Pieces) + Send>;

/// A block's first address and its birth.
type Place = (VdevId, u64, Txg);

/// Request for a part of a block that is being read.
struct Waiter {
    gather: Arc<Gather>,
    want: Want,
    device: Device,
}

/// Place of a part of a block.
enum Joined {
    /// Part of a read under way, with which it comes.
    Waits,
    /// In a block that was kept.
    Kept(Waiter, Abd),
    /// On the device: the waiter has the duty to read it.
    Leads(Waiter),
}

/// Device reads under way of which several want a part.
#[derive(Default)]
pub(crate) struct Flights([Mutex<HashMap<Place, Vec<Waiter>>>; SHARDS]);

impl Flights {
    fn shard(&self, place: &Place) -> &Mutex<HashMap<Place, Vec<Waiter>>> {
        &self.0[(place.1 >> 12) as usize % SHARDS]
    }

    /// Adds the waiter to a read under way; when there is none, and the block is not kept, he gets the duty to do it, and to call
    /// [`Flights::land`].
    fn join(&self, place: Place, waiter: Waiter) -> Joined {
        let mut flights = self.shard(&place).lock();
        if let Some(waiters) = flights.get_mut(&place) {
            waiters.push(waiter);
            return Joined::Waits;
        }
        // Under the lock: a block is kept before its read is over, so that it is found here or there.
        if let Some(whole) = waiter.gather.request.sources.kept(&waiter.device.bp, waiter.want.segment.length) {
            return Joined::Kept(waiter, whole);
        }
        flights.insert(place, Vec::new());
        Joined::Leads(waiter)
    }

    /// The read is over: everybody copies his part now, since the memory is the reader's. Gives the bytes that they took.
    fn land(&self, place: &Place, result: Result<&Abd, BlockError>) -> usize {
        let waiters = self.shard(place).lock().remove(place);
        let mut taken = 0;
        for Waiter { gather, mut want, device } in waiters.into_iter().flatten() {
            match result {
                Ok(whole) => {
                    let mine = cut(whole, &want.segment);
                    taken += mine.len();
                    gather.request.sources.count_shared(mine.len());
                    let mut part = want.part.take().unwrap_or_else(|| AbdPart::scratch(mine.len()));
                    part.copy_from_abd(&mine);
                    gather.done(want.index, Ok(Piece::There(part.freeze())));
                }
                Err(error) => gather.failed(want, &device, error),
            }
        }
        taken
    }
}

/// Object and surroundings of a read request.
pub(super) struct Request {
    pub object: ObjectId,
    pub blocks: Arc<Blocks>,
    pub flights: Arc<Flights>,
    pub sources: Arc<dyn Sources>,
    /// Block size in bytes.
    pub block_size: usize,
    /// True when blocks that it takes parts of are kept for those that follow.
    pub keeps: bool,
}

/// A request on its way.
struct Gather {
    request: Request,
    pieces: Mutex<Pieces>,
    remaining: AtomicUsize,
    then: Mutex<Option<PiecesThen>>,
}

/// One block's share of a request.
struct Want {
    index: usize,
    segment: Segment,
    /// The caller's memory for it, until it is used.
    part: Option<AbdPart>,
    /// True when the caller gave memory.
    has_memory: bool,
    tries: u32,
}

impl Want {
    /// The bytes, where the caller wants them if his memory is still at hand.
    fn place(&mut self, data: Abd) -> Piece {
        match self.part.take() {
            Some(mut part) => {
                part.copy_from_abd(&data);
                Piece::There(part.freeze())
            }
            None if self.has_memory => Piece::Elsewhere(data),
            None => Piece::There(data),
        }
    }
}

/// Lets `copy` bring what is not in place there.
pub(super) fn finish(pieces: Pieces, mut copy: impl FnMut(Range<usize>, Abd)) -> Result<(), DmuError> {
    let mut position = 0;
    for piece in pieces {
        position += match piece? {
            Piece::There(data) => data.len(),
            Piece::Kept(length) => length,
            Piece::Elsewhere(data) => {
                let length = data.len();
                copy(position..position + length, data);
                length
            }
        };
    }
    Ok(())
}

/// The pieces as one buffer.
pub(super) fn joined(pieces: Pieces) -> Result<Abd, DmuError> {
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let Piece::There(data) | Piece::Elsewhere(data) = piece? {
            parts.push(data);
        }
    }
    Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Abd::gang(&parts) })
}

/// The bytes of a segment from its whole block, zeros beyond the block's end.
pub(super) fn cut(whole: &Abd, segment: &Segment) -> Abd {
    let end = segment.within + segment.length;
    if end <= whole.len() {
        return whole.slice(segment.within..end);
    }
    let start = segment.within.min(whole.len());
    Abd::gang(&[whole.slice(start..whole.len()), Abd::zeroed(end - whole.len().max(segment.within))])
}

/// Cuts a request of `length` bytes from `offset` into blocks and looks each up with `source`, then starts the reads of all. The bytes go
/// into `target` where there is one.
pub(super) fn start(
    request: Request,
    (offset, length): (u64, usize),
    target: Option<AbdPart>,
    source: impl Fn(u64) -> Result<Source, DmuError>,
    then: PiecesThen,
) -> Result<(), DmuError> {
    let block_size = request.block_size;
    let has_memory = target.is_some();
    let mut wants = Vec::with_capacity(length / block_size + 2);
    let mut rest = target;
    for (index, segment) in segments(offset, length, block_size).enumerate() {
        let part = rest.take().map(|part| {
            if part.len() == segment.length {
                return part;
            }
            let (head, tail) = part.split_at(segment.length);
            rest = Some(tail);
            head
        });
        wants.push(Want { index, segment, part, has_memory, tries: 0 });
    }
    let mut sources = Vec::with_capacity(wants.len());
    for want in &wants {
        sources.push(source(want.segment.block)?);
    }
    let pieces = (0..wants.len()).map(|_| Err(DmuError::Corrupt)).collect();
    let gather =
        Arc::new(Gather { request, pieces: Mutex::new(pieces), remaining: AtomicUsize::new(wants.len()), then: Mutex::new(Some(then)) });
    gather.start(wants.into_iter().zip(sources).collect());
    Ok(())
}

impl Gather {
    /// Copies the blocks in memory here; starts the devices' share here for one processor and as jobs for the others.
    fn start(self: &Arc<Self>, wants: Vec<(Want, Source)>) {
        let mut device = Vec::with_capacity(wants.len());
        for (want, source) in wants {
            match source {
                Source::Device(found) => device.push((want, found)),
                source => self.take_from_memory(want, source),
            }
        }
        if device.is_empty() {
            return;
        }
        let exec = self.request.blocks.io().exec().clone();
        let computing = Computing::begin(&*exec);
        let share = device.len().div_ceil(exec.spare() + 1);
        while device.len() > share {
            let gather = self.clone();
            let group = device.split_off(device.len() - share);
            exec.spawn(TaskClass::Read, Box::new(move || gather.take_all(group)));
        }
        self.take_all(device);
        drop(computing);
    }

    /// Reads blocks, in groups that share device requests.
    fn take_all(self: &Arc<Self>, wants: Vec<(Want, Device)>) {
        let group = (PLUGGED_BYTES / self.request.block_size).max(1);
        let mut wants = wants.into_iter().peekable();
        while wants.peek().is_some() {
            let mut now = wants.by_ref().take(group);
            self.request.blocks.io().plugged(&mut || now.by_ref().for_each(|(want, found)| self.take_from_device(want, found)));
        }
    }

    fn done(&self, index: usize, piece: Result<Piece, DmuError>) {
        self.pieces.lock()[index] = piece;
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            let pieces = std::mem::take(&mut *self.pieces.lock());
            let then = self.then.lock().take();
            if let Some(then) = then {
                then(pieces);
            }
        }
    }

    fn take_from_memory(&self, mut want: Want, source: Source) {
        let (index, segment) = (want.index, want.segment);
        let piece = match source {
            Source::Dirty(block) => match want.part.take() {
                // Without taking a share of the block, which would make the next write to it copy it.
                Some(mut part) if !part.is_unstable() => {
                    block.copy_to(segment.within, &mut part);
                    Piece::There(part.freeze())
                }
                part => {
                    want.part = part;
                    want.place(cut(&block.data(), &segment))
                }
            },
            Source::Cached(data) => want.place(cut(&data, &segment)),
            Source::Zeros | Source::Device(_) => match want.part.take() {
                Some(mut part) => {
                    part.zero();
                    Piece::There(part.freeze())
                }
                None => want.place(Abd::zeroed(segment.length)),
            },
        };
        self.done(index, Ok(piece));
    }

    fn take_from_device(self: &Arc<Self>, want: Want, device: Device) {
        let is_partial = want.segment.length < self.request.block_size;
        if !is_partial || device.bp.is_embedded() {
            return self.read(want, device, None);
        }
        let place = (device.bp.dva(0).vdev, device.bp.dva(0).offset, device.bp.physical_birth());
        let waiter = Waiter { gather: self.clone(), want, device };
        match self.request.flights.join(place, waiter) {
            Joined::Waits => {}
            Joined::Kept(Waiter { mut want, .. }, whole) => {
                self.request.sources.count_shared(want.segment.length);
                let piece = want.place(cut(&whole, &want.segment));
                self.done(want.index, Ok(piece));
            }
            Joined::Leads(Waiter { want, device, .. }) => self.read(want, device, Some(place)),
        }
    }

    /// Reads a block, for himself or (with `flight`) also for others.
    fn read(self: &Arc<Self>, mut want: Want, device: Device, flight: Option<Place>) {
        let io = self.request.blocks.io();
        let Segment { block, within, length } = want.segment;
        let mut target = Vec::new();
        // What is kept has memory of its own. What only its key's owner may read is not.
        let keeps = self.request.keeps && flight.is_some() && !device.bp.uses_crypt();
        // Others must not copy from memory that its owner may change.
        let usable = |part: &AbdPart| !keeps && device.bp.lsize() == self.request.block_size && (flight.is_none() || !part.is_unstable());
        if let Some(part) = want.part.take_if(|part| usable(part)) {
            let tail = self.request.block_size - within - length;
            target.extend((within > 0).then(|| AbdPart::scratch(within)));
            target.push(part);
            target.extend((tail > 0).then(|| AbdPart::scratch(tail)));
        }
        if let Some(stats) = io.iostats() {
            stats.direct_read.add(1, device.bp.lsize() as u64);
        }
        let gather = self.clone();
        let bookmark = self.request.blocks.bookmark(self.request.object, 0, block);
        let bp = device.bp;
        let done = move |result: Result<Landed, BlockError>| {
            if let Some(place) = &flight {
                gather.land(place, &bp, result.as_ref().map(Landed::abd).map_err(|error| *error), keeps.then_some(&want.segment));
            }
            match result {
                Ok(Landed::InPlace(whole)) if !keeps => gather.done(want.index, Ok(Piece::There(cut(&whole, &want.segment)))),
                Ok(Landed::InPlace(whole) | Landed::Elsewhere(whole)) => {
                    let piece = want.place(cut(&whole, &want.segment));
                    gather.done(want.index, Ok(piece));
                }
                Err(error) => gather.failed(want, &device, error),
            }
        };
        io.read_direct(&bp, &bookmark, target, Box::new(done));
    }

    /// A read of which several may want a part is over: keeps the block, of which this part was wanted first, and lets the others have theirs.
    fn land(&self, place: &Place, bp: &BlockPtr, result: Result<&Abd, BlockError>, kept_for: Option<&Segment>) {
        let sources = &self.request.sources;
        let kept = kept_for.zip(result.ok());
        if let Some((segment, whole)) = kept {
            sources.keep(segment.block, bp, whole, segment.length);
        }
        let taken = self.request.flights.land(place, result);
        if kept.is_some() && taken > 0 {
            sources.gave(bp, taken);
        }
    }

    /// A read failed: the block may have moved meanwhile.
    fn failed(self: &Arc<Self>, mut want: Want, device: &Device, error: BlockError) {
        want.tries += 1;
        let block = want.segment.block;
        let bookmark = self.request.blocks.bookmark(self.request.object, 0, block);
        let is_current = !self.request.sources.moved(block, &device.found);
        if is_current {
            self.request.blocks.io().lost(&device.bp, &bookmark, error);
        }
        if is_current || want.tries >= TRIES_MAX {
            return self.done(want.index, Err(DmuError::of_block(error, bookmark)));
        }
        match self.request.sources.source_now(block) {
            Ok(Some(Source::Device(device))) => self.take_from_device(want, device),
            Ok(Some(source)) => self.take_from_memory(want, source),
            Ok(None) => self.done(want.index, Err(DmuError::of_block(error, bookmark))),
            Err(error) => self.done(want.index, Err(error)),
        }
    }
}
