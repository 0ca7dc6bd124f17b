//! One step of a wave: as many operations of its programs as can be put on the stream without knowing an answer.
//!
//! Operations of one kind of all programs become one launch. A program stops where it needs an answer: the length of a compression,
//! or whether something that may fail was done. Its host memory is copied to the lane's staging memory here, once.

use crate::codec::{self, Codec};
use crate::gpu::{Gpu, Launch, Pinned, Stream};
use crate::heap::{DeviceMemory, Heap};
use crate::jobs::{ANSWER_BYTES, Column, CombineJob, DifferJob, Kernel, LZ4_SCRATCH, LZ4_SEGMENT, PackJob, RaidJob, SumJob, UnpackJob};
use crate::matrix;
use crate::streams::{BatchGroup, fail_last};
use dpusm::{Compress, NodeId, Op, OpError, Operand, RaidContext, Run, View, needs};
use ondisk::{ByteOrder, Checksum, Compression};
use std::collections::BTreeMap;
use zerocopy::{Immutable, IntoBytes};

/// Bytes for the jobs of a step and their tables.
pub(crate) const ARGUMENT_BYTES: usize = 512 << 10;
/// Answers of a step.
pub(crate) const ANSWERS_MAX: usize = 1024;
/// Alignment of copies in staging memory, in bytes.
const ALIGN: usize = 256;

/// A stream with memory of its own: one wave at a time is on it.
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    pub(crate) staging_bytes: usize,
    pub(crate) up: Pinned,
    pub(crate) down: Pinned,
    pub(crate) arguments: Pinned,
    pub(crate) answers: Pinned,
    pub(crate) device_arguments: DeviceMemory,
    pub(crate) device_answers: DeviceMemory,
}

/// Answer of an operation when the step is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    /// The operation was not put on the stream.
    Failed(OpError),
    /// Only that it is done.
    Done,
    /// The bytes at this place of the staging memory.
    Copied { at: usize, bytes: usize },
    /// Word that says whether two buffers differ.
    Differ { answer: usize },
    /// Word that says whether a buffer is all zeros.
    Zero { answer: usize },
    /// Four words of a checksum.
    Sum { answer: usize },
    /// The length of the compressed bytes.
    Packed { answer: usize, how: Compress, source_bytes: usize },
    /// Word that says whether the stream was well-formed.
    Unpacked { answer: usize },
}

impl Pending {
    /// True when nobody knows yet whether it is done.
    fn is_in_doubt(&self) -> bool {
        matches!(self, Pending::Failed(_) | Pending::Unpacked { .. })
    }
}

/// A program on its way, and what it waits for.
pub(crate) struct Task {
    pub(crate) run: Run,
    pub(crate) pending: Vec<Pending>,
}

/// Outcome of trying to put an operation on the stream.
pub(crate) enum Put {
    Pending(Pending),
    /// The operation has no room in this step.
    Blocked,
}

#[derive(Default)]
struct Group {
    jobs: Vec<u8>,
    count: usize,
    /// Bytes of the longest operand.
    bytes: usize,
    /// Numbers of the tasks, one for each job, whose last pending operation it is.
    tasks: Vec<usize>,
}

/// See the module.
pub(crate) struct Step<'a> {
    pub(crate) gpu: &'a dyn Gpu,
    pub(crate) heap: &'a Heap,
    pub(crate) lane: &'a Lane,
    up_used: usize,
    down_used: usize,
    answers_used: usize,
    are_answers_zero: bool,
    /// Jobs and tables for the kernels, from the start of the lane's memory on; the first bytes of it are on the device already.
    arguments: Vec<u8>,
    arguments_sent: usize,
    arguments_reserved: usize,
    groups: BTreeMap<Kernel, Group>,
    pub(crate) batches: BTreeMap<Codec, BatchGroup>,
    pub(crate) scratch: Vec<DeviceMemory>,
    pub(crate) is_issued: bool,
}

/// Rest of a step that is waited for.
pub(crate) struct Issued {
    /// Memory that its kernels use.
    pub(crate) scratch: Vec<DeviceMemory>,
    /// True when something is on the stream.
    pub(crate) is_issued: bool,
    /// Reason why there are no answers, if there are none.
    pub(crate) no_answers: Option<OpError>,
}

/// The address of a view.
pub(crate) fn address(view: &View) -> Result<u64, OpError> {
    let memory = view.handle().get::<DeviceMemory>().ok_or(OpError::Mismatch)?;
    Ok(memory.address + view.offset() as u64)
}

fn column(view: &View) -> Result<Column, OpError> {
    Ok(Column { address: address(view)?, length: view.len() as u64 })
}

impl<'a> Step<'a> {
    pub(crate) fn new(gpu: &'a dyn Gpu, heap: &'a Heap, lane: &'a Lane) -> Step<'a> {
        Step {
            gpu,
            heap,
            lane,
            up_used: 0,
            down_used: 0,
            answers_used: 0,
            are_answers_zero: false,
            arguments: Vec::new(),
            arguments_sent: 0,
            arguments_reserved: 0,
            groups: BTreeMap::new(),
            batches: BTreeMap::new(),
            scratch: Vec::new(),
            is_issued: false,
        }
    }

    /// Puts on the stream what can be put there of all tasks.
    pub(crate) fn issue(mut self, tasks: &mut [Task]) -> Issued {
        let mut going: Vec<usize> = (0..tasks.len()).collect();
        while !going.is_empty() {
            going.retain(|number| self.put_next(*number, &mut tasks[*number]));
            self.launch_all(tasks);
        }
        let mut no_answers = None;
        if self.answers_used > 0 {
            let range = 0..self.answers_used * ANSWER_BYTES;
            let fetched = self.gpu.download(self.lane.stream, self.lane.device_answers.address, self.lane.answers, range);
            no_answers = fetched.err().map(OpError::from);
        }
        Issued { scratch: self.scratch, is_issued: self.is_issued, no_answers }
    }

    /// Puts the next operation of a task on the stream; false when the task has to wait.
    fn put_next(&mut self, number: usize, task: &mut Task) -> bool {
        let node = task.run.results().len() + task.pending.len();
        let program = task.run.program();
        if node >= program.nodes().len() || program.is_given_up() {
            return false;
        }
        if task.pending.is_empty() {
            program.begin(node);
        }
        match self.put(number, task, node) {
            Ok(Put::Pending(pending)) => task.pending.push(pending),
            Ok(Put::Blocked) => return false,
            Err(error) => task.pending.push(Pending::Failed(error)),
        }
        true
    }

    fn put(&mut self, number: usize, task: &Task, node: usize) -> Result<Put, OpError> {
        let (program, results) = (task.run.program(), task.run.results());
        let first = results.len();
        let in_doubt = task.pending.iter().enumerate().filter(|(_, pending)| pending.is_in_doubt());
        if in_doubt.into_iter().any(|(place, _)| needs(program.nodes(), node, first + place)) {
            return Ok(Put::Blocked);
        }
        let resolve = |operand: &Operand| match operand {
            Operand::Result(NodeId(named)) | Operand::Padding(NodeId(named)) if *named as usize >= first => Ok(None),
            known => program.resolve(known, results).map(Some),
        };
        match &program.nodes()[node] {
            Op::CopyIn { target } => self.copy_in(task, node, target),
            Op::CopyOut { source } => match resolve(source)? {
                Some(view) => self.copy_out(&view),
                None => Ok(Put::Blocked),
            },
            Op::ZeroFill { target } => match resolve(target)? {
                Some(view) => self.zero_fill(&view),
                None => Ok(Put::Blocked),
            },
            Op::ZeroTest { source } => match resolve(source)? {
                Some(view) => self.differ(number, &view, None),
                None => Ok(Put::Blocked),
            },
            Op::Compare { left, right } => self.differ(number, left, Some(right)),
            Op::Checksum { source, kind, order } => match resolve(source)? {
                Some(view) => self.sum(number, &view, *kind, *order),
                None => Ok(Put::Blocked),
            },
            Op::Compress { source, target, how } => self.pack(number, source, target, *how),
            Op::Decompress { source, target, kind } => self.unpack(number, source, target, *kind),
            Op::RaidGenerate { row } => self.generate(number, row),
            Op::RaidReconstruct { row, targets } => self.reconstruct(number, row, targets),
            Op::Store { .. } | Op::Flush { .. } | Op::Load { .. } => Err(OpError::NotImplemented),
        }
    }

    /// Room in staging memory after `used` bytes; None when there is none in this step.
    fn room(&self, used: usize, bytes: usize) -> Result<Option<usize>, OpError> {
        if bytes > self.lane.staging_bytes {
            return Err(OpError::NotSupported);
        }
        let at = used.next_multiple_of(ALIGN);
        Ok((at + bytes <= self.lane.staging_bytes).then_some(at))
    }

    fn copy_in(&mut self, task: &Task, node: usize, target: &View) -> Result<Put, OpError> {
        let Some(at) = self.room(self.up_used, target.len())? else { return Ok(Put::Blocked) };
        let source = task.run.program().source(node)?;
        if source.len() != target.len() {
            return Err(OpError::Invalid);
        }
        let (gpu, up) = (self.gpu, self.lane.up);
        let staged = source.fold(Ok(at), |at, bytes| {
            let next = at.and_then(|at| gpu.stage(up, at, bytes).map(|()| at + bytes.len()));
            Some(next)
        });
        let end = staged.ok_or(OpError::Failed)??;
        if end > at {
            gpu.upload(self.lane.stream, up, at..end, address(target)?)?;
            self.is_issued = true;
        }
        self.up_used = end;
        Ok(Put::Pending(Pending::Done))
    }

    fn copy_out(&mut self, source: &View) -> Result<Put, OpError> {
        let Some(at) = self.room(self.down_used, source.len())? else { return Ok(Put::Blocked) };
        let bytes = source.len();
        if bytes > 0 {
            self.gpu.download(self.lane.stream, address(source)?, self.lane.down, at..at + bytes)?;
            self.is_issued = true;
        }
        self.down_used = at + bytes;
        Ok(Put::Pending(Pending::Copied { at, bytes }))
    }

    fn zero_fill(&mut self, target: &View) -> Result<Put, OpError> {
        if !target.is_empty() {
            self.gpu.zero(self.lane.stream, address(target)?, target.len())?;
            self.is_issued = true;
        }
        Ok(Put::Pending(Pending::Done))
    }

    /// A place for an answer: its number and its address. None when all are taken.
    pub(crate) fn answer(&mut self) -> Result<Option<(usize, u64)>, OpError> {
        let base = self.lane.device_answers.address;
        if !self.are_answers_zero {
            self.gpu.zero(self.lane.stream, base, ANSWERS_MAX * ANSWER_BYTES)?;
            (self.are_answers_zero, self.is_issued) = (true, true);
        }
        if self.answers_used == ANSWERS_MAX {
            return Ok(None);
        }
        let number = self.answers_used;
        self.answers_used += 1;
        Ok(Some((number, base + (number * ANSWER_BYTES) as u64)))
    }

    /// True when `bytes` more fit into what kernels are told, besides what is reserved.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        // Each group may need some bytes for its alignment.
        let fits = self.arguments.len() + self.arguments_reserved + bytes + 1024 <= ARGUMENT_BYTES;
        if fits {
            self.arguments_reserved += bytes;
        }
        fits
    }

    /// Puts a table where kernels find it; its address. There must be room.
    pub(crate) fn table(&mut self, bytes: &[u8]) -> u64 {
        self.arguments.resize(self.arguments.len().next_multiple_of(16), 0);
        let address = self.lane.device_arguments.address + self.arguments.len() as u64;
        self.arguments.extend_from_slice(bytes);
        address
    }

    /// Adds a job to the launch of its kernel.
    fn job(&mut self, kernel: Kernel, number: usize, bytes: usize, job: &(impl IntoBytes + Immutable)) {
        let group = self.groups.entry(kernel).or_default();
        group.jobs.extend_from_slice(job.as_bytes());
        group.count += 1;
        group.bytes = group.bytes.max(bytes);
        if group.tasks.last() != Some(&number) {
            group.tasks.push(number);
        }
    }

    fn differ(&mut self, number: usize, left: &View, right: Option<&View>) -> Result<Put, OpError> {
        if !self.reserve(size_of::<DifferJob>()) {
            return Ok(Put::Blocked);
        }
        let Some((answer, place)) = self.answer()? else { return Ok(Put::Blocked) };
        let other = right.map(address).transpose()?.unwrap_or(0);
        let job = DifferJob { left: address(left)?, right: other, length: left.len() as u64, answer: place };
        self.job(Kernel::Differ, number, left.len(), &job);
        Ok(Put::Pending(if right.is_some() { Pending::Differ { answer } } else { Pending::Zero { answer } }))
    }

    fn sum(&mut self, number: usize, data: &View, kind: Checksum, order: ByteOrder) -> Result<Put, OpError> {
        let kernel = match kind {
            Checksum::FLETCHER_4 => Kernel::Fletcher4,
            Checksum::FLETCHER_2 => Kernel::Fletcher2,
            Checksum::SHA256 => Kernel::Sha256,
            _ => return Err(OpError::NotImplemented),
        };
        if !self.reserve(size_of::<SumJob>()) {
            return Ok(Put::Blocked);
        }
        let Some((answer, place)) = self.answer()? else { return Ok(Put::Blocked) };
        let swap = u64::from(!order.is_little());
        let job = SumJob { data: address(data)?, length: data.len() as u64, swap, answer: place };
        self.job(kernel, number, data.len(), &job);
        Ok(Put::Pending(Pending::Sum { answer }))
    }

    fn pack(&mut self, number: usize, source: &View, target: &View, how: Compress) -> Result<Put, OpError> {
        if let Some(codec) = codec::packer(how.kind) {
            return self.pack_by_library(number, source, target, how, codec);
        }
        if how.kind != Compression::LZ4 {
            return Err(OpError::NotImplemented);
        }
        if !self.reserve(size_of::<PackJob>()) {
            return Ok(Put::Blocked);
        }
        let Some((answer, place)) = self.answer()? else { return Ok(Put::Blocked) };
        let scratch = self.heap.alloc(source.len().div_ceil(LZ4_SEGMENT) * LZ4_SCRATCH)?;
        let job = PackJob {
            source: address(source)?,
            length: source.len() as u64,
            target: address(target)?,
            limit: how.limit_bytes.min(target.len()) as u64,
            scratch: scratch.address,
            answer: place,
        };
        self.scratch.push(scratch);
        self.job(Kernel::Lz4Find, number, source.len(), &job);
        Ok(Put::Pending(Pending::Packed { answer, how, source_bytes: source.len() }))
    }

    fn unpack(&mut self, number: usize, source: &View, target: &View, kind: Compression) -> Result<Put, OpError> {
        if let Some(codec) = codec::unpacker(kind) {
            return self.unpack_by_library(number, source, target, codec);
        }
        if kind != Compression::LZ4 {
            return Err(OpError::NotImplemented);
        }
        if !self.reserve(size_of::<UnpackJob>()) {
            return Ok(Put::Blocked);
        }
        let Some((answer, place)) = self.answer()? else { return Ok(Put::Blocked) };
        let (length, target_length) = (source.len() as u64, target.len() as u64);
        let job = UnpackJob { source: address(source)?, length, target: address(target)?, target_length, answer: place };
        self.job(Kernel::Lz4Decode, number, target.len(), &job);
        Ok(Put::Pending(Pending::Unpacked { answer }))
    }

    fn generate(&mut self, number: usize, row: &RaidContext) -> Result<Put, OpError> {
        let columns = row.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        if !self.reserve(size_of::<RaidJob>() + 16 + columns.as_bytes().len()) {
            return Ok(Put::Blocked);
        }
        let length = row.parity()[0].len();
        if length > 0 {
            let table = self.table(columns.as_bytes());
            let (count, parities) = (columns.len() as u64, row.parities() as u64);
            self.job(Kernel::RaidGenerate, number, length, &RaidJob { columns: table, count, parities, length: length as u64 });
        }
        Ok(Put::Pending(Pending::Done))
    }

    fn reconstruct(&mut self, number: usize, row: &RaidContext, targets: &[usize]) -> Result<Put, OpError> {
        let columns = row.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let lengths: Vec<usize> = row.columns().iter().map(View::len).collect();
        let segments = matrix::segments(&lengths, row.parities(), targets)?;
        let sources: usize = segments.iter().map(|segment| segment.sources.len()).sum();
        if !self.reserve(segments.len() * (size_of::<CombineJob>() + 32) + sources * (size_of::<Column>() + 4)) {
            return Ok(Put::Blocked);
        }
        for segment in segments {
            let of_sources: Vec<Column> = segment.sources.iter().map(|source| columns[*source]).collect();
            let packed: Vec<u32> =
                segment.coefficients.iter().map(|[one, two, three]| u32::from_le_bytes([*one, *two, *three, 0])).collect();
            let mut addresses = [0; crate::jobs::TARGETS_MAX];
            addresses.iter_mut().zip(&segment.targets).for_each(|(address, target)| *address = columns[*target].address);
            let job = CombineJob {
                sources: self.table(of_sources.as_bytes()),
                source_count: of_sources.len() as u64,
                coefficients: self.table(packed.as_bytes()),
                targets: addresses,
                start: segment.range.start as u64,
                end: segment.range.end as u64,
            };
            self.job(Kernel::RaidCombine, number, segment.range.len(), &job);
        }
        Ok(Put::Pending(Pending::Done))
    }

    /// Launches the kernels of this round. Whose launch fails, failed.
    fn launch_all(&mut self, tasks: &mut [Task]) {
        self.arguments_reserved = 0;
        let groups = std::mem::take(&mut self.groups);
        let placed: Vec<(Kernel, u64, Group)> =
            groups.into_iter().map(|(kernel, group)| (kernel, self.table(&group.jobs), group)).collect();
        let batches = self.place_batches(tasks);
        let sent = if placed.is_empty() && batches.is_empty() { Ok(()) } else { self.send_arguments() };
        for (kernel, jobs, group) in placed {
            let kernels: &[Kernel] = match kernel {
                Kernel::Lz4Find => &[Kernel::Lz4Find, Kernel::Lz4Layout, Kernel::Lz4Emit],
                _ => &[kernel],
            };
            let launched = sent.and_then(|()| kernels.iter().try_for_each(|kernel| self.launch(*kernel, jobs, group.count, group.bytes)));
            if let Err(error) = launched {
                fail_last(tasks, &group.tasks, error);
            }
        }
        for placed in batches {
            if let Err(error) = sent.and_then(|()| self.launch_batch(&placed)) {
                fail_last(tasks, &placed.tasks, error);
            }
        }
    }

    /// Launches a kernel for `count` jobs, the longest of which has about `bytes` bytes.
    pub(crate) fn launch(&mut self, kernel: Kernel, jobs: u64, count: usize, bytes: usize) -> Result<(), OpError> {
        let grid = kernel.grid(count, bytes);
        self.gpu.launch(self.lane.stream, &Launch { kernel, grid, jobs, count: count as u32 })?;
        self.is_issued = true;
        Ok(())
    }

    fn send_arguments(&mut self) -> Result<(), OpError> {
        let range = self.arguments_sent..self.arguments.len();
        self.gpu.stage(self.lane.arguments, range.start, &self.arguments[range.clone()])?;
        let to = self.lane.device_arguments.address + range.start as u64;
        self.gpu.upload(self.lane.stream, self.lane.arguments, range, to)?;
        self.is_issued = true;
        self.arguments_sent = self.arguments.len();
        Ok(())
    }
}
