//! gzip and zstd in a step: blocks for the library become a batch, between kernels of ours that do what it does not.
//!
//! ```text
//! compress:   library: source → body         adler32 of source   stream_wrap:    header, body, trailer → target, answer
//! decompress: stream_unwrap: source → body   library: body → target   adler32 of target   stream_confirm: answer
//! ```
//! The body and the notes (lengths, statuses, sums) are scratch memory of the step, as is what the library works in. All of it is put
//! on the stream at once; the answer comes with the step's others.

use crate::codec::{self, Batch, Chunks, Codec};
use crate::heap::DeviceMemory;
use crate::jobs::{Kernel, SumJob, UNWRAP_BYTES, UnwrapJob, WrapJob};
use crate::step::{Pending, Put, Step, Task, address};
use dpusm::{Compress, OpError, View};
use zerocopy::{Immutable, IntoBytes};

/// Most bytes that a block needs of what kernels and library are told: a job, one for its sum, and four entries of tables.
const TOLD_BYTES: usize = size_of::<UnwrapJob>() + size_of::<SumJob>() + 32;
/// Bytes of the notes of a block: the length that the library made, its status (with as much unused), the body's length, where the
/// source ends, and four words of sums.
const NOTE_BYTES: usize = 64;

/// One block: what is read, the library's form of it, and what is written.
struct Chunk {
    source: u64,
    source_bytes: usize,
    body: u64,
    target: u64,
    target_bytes: usize,
    /// Word that a compressed block begins with.
    word: u64,
    answer: u64,
}

/// The blocks for one codec.
#[derive(Default)]
pub(crate) struct BatchGroup {
    chunks: Vec<Chunk>,
    /// Numbers of the tasks, one for each block, whose last pending operation it is.
    tasks: Vec<usize>,
}

/// A batch whose tables are placed.
pub(crate) struct Placed {
    batch: Batch,
    notes: u64,
    /// Address of each [`WrapJob`] or [`UnwrapJob`].
    jobs: u64,
    /// Address of each [`SumJob`]; None for zstd.
    sums: Option<u64>,
    pub(crate) tasks: Vec<usize>,
}

/// Address of the notes of a batch of `count` blocks.
#[derive(Clone, Copy)]
struct Notes {
    base: u64,
    count: u64,
}

impl Notes {
    fn made(self, number: u64) -> u64 {
        self.base + 8 * number
    }
    fn status(self, number: u64) -> u64 {
        self.base + 8 * self.count + 4 * number
    }
    fn body_length(self, number: u64) -> u64 {
        self.base + 16 * self.count + 8 * number
    }
    fn end(self, number: u64) -> u64 {
        self.base + 24 * self.count + 8 * number
    }
    fn sums(self, number: u64) -> u64 {
        self.base + 32 * self.count + 32 * number
    }
}

/// The last operations of these tasks failed.
pub(crate) fn fail_last(tasks: &mut [Task], numbers: &[usize], error: OpError) {
    for number in numbers {
        if let Some(last) = tasks[*number].pending.last_mut() {
            *last = Pending::Failed(error);
        }
    }
}

impl Chunk {
    fn wrap(&self, codec: Codec, notes: Notes, number: u64) -> WrapJob {
        WrapJob {
            body: self.body,
            made: notes.made(number),
            status: notes.status(number),
            sums: if codec.is_deflate() { notes.sums(number) } else { 0 },
            length: self.source_bytes as u64,
            word: self.word,
            target: self.target,
            limit: self.target_bytes.min(self.source_bytes) as u64,
            answer: self.answer,
        }
    }

    fn unwrap(&self, codec: Codec, notes: Notes, number: u64) -> UnwrapJob {
        UnwrapJob {
            source: self.source,
            length: self.source_bytes as u64,
            target_length: self.target_bytes as u64,
            body: self.body,
            body_length: notes.body_length(number),
            end: notes.end(number),
            made: notes.made(number),
            status: notes.status(number),
            sums: if codec.is_deflate() { notes.sums(number) } else { 0 },
            answer: self.answer,
        }
    }
}

impl Step<'_> {
    pub(crate) fn pack_by_library(
        &mut self,
        number: usize,
        source: &View,
        target: &View,
        how: Compress,
        codec: Codec,
    ) -> Result<Put, OpError> {
        let source_bytes = source.len();
        let target_bytes = how.limit_bytes.min(target.len());
        let body_bytes = self.gpu.packed_bytes_max(codec, source_bytes)?;
        let word = codec::word(how.kind, how.level);
        let chunk = Chunk { source: address(source)?, source_bytes, body: 0, target: address(target)?, target_bytes, word, answer: 0 };
        let put = self.chunk(number, codec, chunk, body_bytes)?;
        Ok(put.map_or(Put::Blocked, |answer| Put::Pending(Pending::Packed { answer, how, source_bytes })))
    }

    pub(crate) fn unpack_by_library(&mut self, number: usize, source: &View, target: &View, codec: Codec) -> Result<Put, OpError> {
        let (source_bytes, target_bytes) = (source.len(), target.len());
        let chunk = Chunk { source: address(source)?, source_bytes, body: 0, target: address(target)?, target_bytes, word: 0, answer: 0 };
        let put = self.chunk(number, codec, chunk, source_bytes + UNWRAP_BYTES)?;
        Ok(put.map_or(Put::Blocked, |answer| Put::Pending(Pending::Unpacked { answer })))
    }

    /// Adds a block to its batch, with a body and a place for the answer, whose number comes back; None when there is no room.
    fn chunk(&mut self, number: usize, codec: Codec, chunk: Chunk, body_bytes: usize) -> Result<Option<usize>, OpError> {
        if !self.reserve(TOLD_BYTES) {
            return Ok(None);
        }
        let Some((place, answer)) = self.answer()? else { return Ok(None) };
        let body = self.scratch(body_bytes)?;
        let group = self.batches.entry(codec).or_default();
        group.chunks.push(Chunk { body, answer, ..chunk });
        group.tasks.push(number);
        Ok(Some(place))
    }

    /// Memory until the step is done.
    fn scratch(&mut self, bytes: usize) -> Result<u64, OpError> {
        let memory: DeviceMemory = self.heap.alloc(bytes)?;
        let address = memory.address;
        self.scratch.push(memory);
        Ok(address)
    }

    /// Places the tables of this round's batches. Those for which there is no memory failed.
    pub(crate) fn place_batches(&mut self, tasks: &mut [Task]) -> Vec<Placed> {
        let mut placed = Vec::new();
        for (codec, group) in std::mem::take(&mut self.batches) {
            match self.place_batch(codec, &group) {
                Ok((batch, notes, jobs, sums)) => placed.push(Placed { batch, notes, jobs, sums, tasks: group.tasks }),
                Err(error) => fail_last(tasks, &group.tasks, error),
            }
        }
        placed
    }

    fn place_batch(&mut self, codec: Codec, group: &BatchGroup) -> Result<(Batch, u64, u64, Option<u64>), OpError> {
        let (list, count) = (&group.chunks, group.chunks.len());
        let bytes = |chunk: &Chunk| if codec.packs() { chunk.source_bytes } else { chunk.target_bytes };
        let bytes_max = list.iter().map(bytes).max().unwrap_or(0);
        let chunks = Chunks { codec, count, bytes_max, bytes_total: list.iter().map(bytes).sum() };
        let temp_bytes = self.gpu.temp_bytes(self.lane.stream, &chunks)?;
        let temp = self.scratch(temp_bytes)?;
        let notes = Notes { base: self.scratch(count * NOTE_BYTES)?, count: count as u64 };
        let (made, statuses) = (notes.made(0), notes.status(0));
        let words = |of: fn(&Chunk) -> u64| list.iter().map(of).collect::<Vec<u64>>();
        let batch = if codec.packs() {
            let sources = self.entries(&words(|chunk| chunk.source));
            let source_bytes = self.entries(&words(|chunk| chunk.source_bytes as u64));
            let targets = self.entries(&words(|chunk| chunk.body));
            Batch { chunks, sources, source_bytes, targets, target_rooms: 0, made, statuses, temp, temp_bytes }
        } else {
            let sources = self.entries(&words(|chunk| chunk.body));
            let targets = self.entries(&words(|chunk| chunk.target));
            let target_rooms = self.entries(&words(|chunk| chunk.target_bytes as u64));
            Batch { chunks, sources, source_bytes: notes.body_length(0), targets, target_rooms, made, statuses, temp, temp_bytes }
        };
        let jobs = if codec.packs() {
            self.entries(&list.iter().zip(0..).map(|(chunk, number)| chunk.wrap(codec, notes, number)).collect::<Vec<_>>())
        } else {
            self.entries(&list.iter().zip(0..).map(|(chunk, number)| chunk.unwrap(codec, notes, number)).collect::<Vec<_>>())
        };
        let sum = |(chunk, number): (&Chunk, u64)| {
            let data = if codec.packs() { chunk.source } else { chunk.target };
            SumJob { data, length: bytes(chunk) as u64, swap: 0, answer: notes.sums(number) }
        };
        let sums = codec.is_deflate().then(|| self.entries(&list.iter().zip(0..).map(sum).collect::<Vec<_>>()));
        Ok((batch, notes.base, jobs, sums))
    }

    fn entries<T: IntoBytes + Immutable>(&mut self, list: &[T]) -> u64 {
        self.table(list.as_bytes())
    }

    /// Puts a batch on the stream, with the kernels before and after it.
    pub(crate) fn launch_batch(&mut self, placed: &Placed) -> Result<(), OpError> {
        let Chunks { codec, count, bytes_max, .. } = placed.batch.chunks;
        // Sums are added up, and a length of zero is none.
        self.gpu.zero(self.lane.stream, placed.notes, count * NOTE_BYTES)?;
        self.is_issued = true;
        if !codec.packs() {
            self.launch(Kernel::StreamUnwrap, placed.jobs, count, bytes_max)?;
        }
        self.gpu.run_batch(self.lane.stream, &placed.batch)?;
        if let Some(sums) = placed.sums {
            self.launch(Kernel::Adler32, sums, count, bytes_max)?;
        }
        let last = if codec.packs() { Kernel::StreamWrap } else { Kernel::StreamConfirm };
        self.launch(last, placed.jobs, count, bytes_max)
    }
}
