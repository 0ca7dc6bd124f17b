//! A GPU in safe Rust for tests of the host's side: it does what the kernels do by `kernels`, later, each stream in order.
//!
//! What it is strict about: work reads pinned memory when it runs, not when it is put on the stream; every address must lie in memory
//! that is there at that time; answers must be zero before. It fails on demand at the k-th call.
#![allow(dead_code, reason = "every test takes what it needs")]

use dpusm::Sizes;
use exec::{Mutex, SplitMix};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_cuda::{
    Batch, Chunks, Codec, Column, CombineJob, DifferJob, Gpu, GpuError, Kernel, LZ4_SCRATCH, LZ4_SEGMENT, Launch, PackJob, Pinned, RaidJob,
    Stream, SumJob, UNWRAP_BYTES, UnpackJob, UnwrapJob, WrapJob,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use zerocopy::FromBytes;

/// Lie of the library about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A status that says that it failed.
    Status,
    /// The length is one byte off.
    Length,
    /// A byte of what it wrote is another one.
    Byte,
    /// Nothing is written, no status and no length either.
    Nothing,
}

/// Reach of a call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Failure of this call only.
    Fail,
    /// Failure of this call only: no memory.
    NoMemory,
    /// Failure of this call and every later one.
    Lose,
}

enum Work {
    Upload { from: Pinned, range: Range<usize>, to: u64 },
    Download { from: u64, to: Pinned, range: Range<usize> },
    Zero { address: u64, bytes: usize },
    Launch(Launch),
    Batch(Batch),
    Mark(u64),
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    marks: u64,
    reached: u64,
}

struct State {
    memory: BTreeMap<u64, Vec<u8>>,
    next_address: u64,
    pinned: Vec<Vec<u8>>,
    streams: Vec<Queue>,
    random: SplitMix,
    calls: u64,
    harm: Option<(u64, Harm)>,
    struck: u64,
    is_lost: bool,
    launches: BTreeMap<Kernel, u64>,
    batches: BTreeMap<Codec, u64>,
    lie: Option<Lie>,
    is_held: bool,
}

/// See the module.
pub struct Fake {
    state: Mutex<State>,
    memory_bytes: u64,
}

impl Fake {
    /// A device with this much memory.
    pub fn new(seed: u64, memory_bytes: u64) -> Fake {
        let state = State {
            memory: BTreeMap::new(),
            next_address: 0x7000_0000_0000,
            pinned: Vec::new(),
            streams: Vec::new(),
            random: SplitMix::new(seed),
            calls: 0,
            harm: None,
            struck: 0,
            is_lost: false,
            launches: BTreeMap::new(),
            batches: BTreeMap::new(),
            lie: None,
            is_held: false,
        };
        Fake { state: Mutex::new(state), memory_bytes }
    }

    /// From now on, the call after `calls` others does harm.
    pub fn inject(&self, harm: Option<(u64, Harm)>) {
        let mut state = self.state.lock();
        (state.calls, state.struck) = (0, 0);
        state.harm = harm;
    }

    /// Calls since the last injection, and how many of them were struck.
    pub fn calls(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.calls, state.struck)
    }

    /// Launches of each kernel so far.
    pub fn launches(&self) -> BTreeMap<Kernel, u64> {
        self.state.lock().launches.clone()
    }

    /// From now on, no work of the library's ends, or again all of it.
    pub fn hold(&self, is_held: bool) {
        self.state.lock().is_held = is_held;
    }

    /// From now on, the library does this to every block.
    pub fn lie(&self, lie: Option<Lie>) {
        self.state.lock().lie = lie;
    }

    /// Batches of each codec so far.
    pub fn batches(&self) -> BTreeMap<Codec, u64> {
        self.state.lock().batches.clone()
    }

    /// Pieces of device memory that were not given back.
    pub fn memory_left(&self) -> usize {
        self.state.lock().memory.len()
    }

    /// Work that was not done.
    pub fn work_left(&self) -> usize {
        self.state.lock().streams.iter().map(|queue| queue.work.len()).sum()
    }

    fn enter(&self, call: &'static str) -> Result<exec::MutexGuard<'_, State>, GpuError> {
        let mut state = self.state.lock();
        if state.is_lost {
            return Err(GpuError::Lost { call, code: 719 });
        }
        let number = state.calls;
        state.calls += 1;
        match state.harm {
            Some((at, harm)) if at == number => {
                state.struck += 1;
                state.is_lost = harm == Harm::Lose;
                Err(match harm {
                    Harm::Fail => GpuError::Failed { call, code: 1 },
                    Harm::NoMemory => GpuError::OutOfMemory,
                    Harm::Lose => GpuError::Lost { call, code: 719 },
                })
            }
            _ => Ok(state),
        }
    }

    fn put(&self, call: &'static str, stream: Stream, work: Work) -> Result<(), GpuError> {
        self.enter(call)?.streams[stream.0 as usize].work.push_back(work);
        Ok(())
    }
}

impl State {
    fn place(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let (start, memory) = self.memory.range_mut(..=address).next_back().expect("the address is in memory that is there");
        let at = (address - start) as usize;
        assert!(at + bytes <= memory.len(), "{bytes} bytes at {address:#x} are not in the {} bytes at {start:#x}", memory.len());
        &mut memory[at..at + bytes]
    }

    fn get(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        self.place(address, bytes).to_vec()
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.place(address, bytes.len()).copy_from_slice(bytes);
    }

    fn table<T: FromBytes>(&mut self, address: u64, count: usize) -> Vec<T> {
        let bytes = self.get(address, count * size_of::<T>());
        bytes.chunks_exact(size_of::<T>()).map(|one| T::read_from_bytes(one).expect("of the right size")).collect()
    }

    fn answer(&mut self, address: u64, word: u64) {
        assert_eq!(self.get(address, 8), [0; 8], "answers are zero before");
        self.put(address, &word.to_le_bytes());
    }

    /// Does the next work of a stream.
    fn work(&mut self, stream: usize) {
        if self.is_held && matches!(self.streams[stream].work.front(), Some(Work::Batch(_))) {
            return;
        }
        match self.streams[stream].work.pop_front() {
            Some(Work::Upload { from, range, to }) => {
                let bytes = self.pinned[from.0 as usize][range].to_vec();
                self.put(to, &bytes);
            }
            Some(Work::Download { from, to, range }) => {
                let bytes = self.get(from, range.len());
                self.pinned[to.0 as usize][range].copy_from_slice(&bytes);
            }
            Some(Work::Zero { address, bytes }) => self.place(address, bytes).fill(0),
            Some(Work::Launch(launch)) => self.launch(&launch),
            Some(Work::Batch(batch)) => self.batch(&batch),
            Some(Work::Mark(mark)) => self.streams[stream].reached = mark,
            None => {}
        }
    }

    fn launch(&mut self, launch: &Launch) {
        let (jobs, count) = (launch.jobs, launch.count as usize);
        match launch.kernel {
            Kernel::Fletcher4 => self.sums(jobs, count, Checksum::FLETCHER_4),
            Kernel::Fletcher2 => self.sums(jobs, count, Checksum::FLETCHER_2),
            Kernel::Sha256 => self.sums(jobs, count, Checksum::SHA256),
            Kernel::Differ => {
                for job in self.table::<DifferJob>(jobs, count) {
                    let (bytes, left) = (job.length as usize, self.get(job.left, job.length as usize));
                    let right = if job.right == 0 { vec![0; bytes] } else { self.get(job.right, bytes) };
                    if left != right {
                        self.answer(job.answer, 1);
                    }
                }
            }
            Kernel::RaidGenerate => self.table(jobs, count).iter().for_each(|job| self.generate(job)),
            Kernel::RaidCombine => self.table(jobs, count).iter().for_each(|job| self.combine(job)),
            Kernel::Lz4Find => {
                for job in self.table::<PackJob>(jobs, count) {
                    let segments = (job.length as usize).div_ceil(LZ4_SEGMENT);
                    self.place(job.scratch, segments * LZ4_SCRATCH).fill(0x5A);
                }
            }
            Kernel::Lz4Layout => {
                for job in self.table::<PackJob>(jobs, count) {
                    let length = self.packed(&job).map_or(0, |packed| packed.len() as u64);
                    self.answer(job.answer, length);
                }
            }
            Kernel::Lz4Emit => {
                for job in self.table::<PackJob>(jobs, count) {
                    let packed = self.packed(&job);
                    packed.into_iter().for_each(|packed| self.put(job.target, &packed));
                }
            }
            Kernel::Lz4Decode => {
                for job in self.table::<UnpackJob>(jobs, count) {
                    let (source, mut target) = (self.get(job.source, job.length as usize), vec![0; job.target_length as usize]);
                    if kernels::decompress(Compression::LZ4, &source, &mut target).is_ok() {
                        self.put(job.target, &target);
                        self.answer(job.answer, 1);
                    }
                }
            }
            Kernel::Adler32 => {
                for job in self.table::<SumJob>(jobs, count) {
                    let data = self.get(job.data, job.length as usize);
                    let weighed = (0..job.length).map(|at| u64::from(data[at as usize]) * (job.length - at)).sum();
                    self.answer(job.answer, data.iter().map(|byte| u64::from(*byte)).sum());
                    self.answer(job.answer + 8, weighed);
                }
            }
            Kernel::StreamWrap => self.table(jobs, count).iter().for_each(|job| self.wrap(job)),
            Kernel::StreamUnwrap => self.table(jobs, count).iter().for_each(|job| self.unwrap(job)),
            Kernel::StreamConfirm => self.table(jobs, count).iter().for_each(|job| self.confirm(job)),
        }
    }

    fn sums(&mut self, jobs: u64, count: usize, kind: Checksum) {
        for job in self.table::<SumJob>(jobs, count) {
            let data = self.get(job.data, job.length as usize);
            let words = kernels::checksum(kind, &[&data], ByteOrder::from_little(job.swap == 0)).unwrap();
            (0..4).zip(words).for_each(|(place, word)| self.answer(job.answer + 8 * place, word));
        }
    }

    fn generate(&mut self, job: &RaidJob) {
        let columns: Vec<Column> = self.table(job.columns, job.count as usize);
        let data: Vec<Vec<u8>> =
            columns[job.parities as usize..].iter().map(|column| self.get(column.address, column.length as usize)).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; job.length as usize]; job.parities as usize];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        kernels::raidz::generate(&data, &mut targets).unwrap();
        columns.iter().zip(&parity).for_each(|(column, made)| self.put(column.address, made));
    }

    fn combine(&mut self, job: &CombineJob) {
        let sources: Vec<Column> = self.table(job.sources, job.source_count as usize);
        let coefficients: Vec<[u8; 4]> = self.table(job.coefficients, sources.len());
        let (start, end) = (job.start as usize, job.end as usize);
        for (place, target) in job.targets.into_iter().enumerate().filter(|(_, target)| *target != 0) {
            let mut sum = vec![0u8; end - start];
            for (source, factors) in sources.iter().zip(&coefficients) {
                let bytes = self.get(source.address, source.length as usize);
                let known = bytes.get(start..).unwrap_or_default();
                sum.iter_mut().zip(known).for_each(|(sum, byte)| *sum ^= product(factors[place], *byte));
            }
            self.put(target + job.start, &sum);
        }
    }

    fn packed(&mut self, job: &PackJob) -> Option<Vec<u8>> {
        let (source, mut out) = (self.get(job.source, job.length as usize), vec![0; job.limit as usize]);
        let length = kernels::compress(Compression::LZ4, 0, &source, &mut out)?;
        out.truncate(length);
        Some(out)
    }
}

/// Adler-32, big-endian, from the sums that its kernel leaves.
fn adler32(sums: [u64; 2], length: u64) -> [u8; 4] {
    let (low, high) = ((1 + sums[0]) % 65521, (length + sums[1]) % 65521);
    (high as u32 * 65536 + low as u32).to_be_bytes()
}

/// The kernels around the library, and the library.
impl State {
    fn word(&mut self, address: u64) -> u64 {
        u64::from_le_bytes(self.get(address, 8).try_into().unwrap())
    }

    fn status(&mut self, address: u64) -> u32 {
        u32::from_le_bytes(self.get(address, 4).try_into().unwrap())
    }

    fn wrap(&mut self, job: &WrapJob) {
        let made = self.word(job.made) as usize;
        if self.status(job.status) != 0 || made <= 4 && job.sums == 0 || made == 0 {
            return self.answer(job.answer + 8, 1);
        }
        let body = self.get(job.body, made);
        let stored = if job.sums == 0 {
            if !body.starts_with(&MAGIC) {
                return self.answer(job.answer + 8, 1);
            }
            [&(made as u32 - 4).to_be_bytes()[..], &(job.word as u32).to_be_bytes(), &body[4..]].concat()
        } else {
            let sums = [self.word(job.sums), self.word(job.sums + 8)];
            [&(job.word as u16).to_be_bytes()[..], &body, &adler32(sums, job.length)].concat()
        };
        if stored.len() as u64 <= job.limit {
            self.put(job.target, &stored);
            self.answer(job.answer, stored.len() as u64);
        }
    }

    fn unwrap(&mut self, job: &UnwrapJob) {
        let source = self.get(job.source, job.length as usize);
        self.place(job.body, job.length as usize + UNWRAP_BYTES).fill(0x5A);
        let (body, end) = if job.sums == 0 { unwrapped_zstd(&source, job.target_length) } else { unwrapped_zlib(&source) };
        self.put(job.body, &body);
        self.put(job.body_length, &(body.len() as u64).to_le_bytes());
        self.put(job.end, &(end as u64).to_le_bytes());
    }

    fn confirm(&mut self, job: &UnwrapJob) {
        let end = self.word(job.end) as usize;
        if end == 0 || self.status(job.status) != 0 || self.word(job.made) != job.target_length {
            return;
        }
        let source = self.get(job.source, job.length as usize);
        let is_good = job.sums == 0 || {
            let sum = adler32([self.word(job.sums), self.word(job.sums + 8)], job.target_length);
            let end = end + sum.iter().rev().take_while(|byte| **byte == 0).count();
            end <= source.len() && source[..end].ends_with(&sum)
        };
        if is_good {
            self.answer(job.answer, 1);
        }
    }

    fn batch(&mut self, batch: &Batch) {
        let Chunks { codec, count, bytes_max, bytes_total } = batch.chunks;
        self.place(batch.temp, batch.temp_bytes).fill(0x5A);
        let (sources, lengths): (Vec<u64>, Vec<u64>) = (self.table(batch.sources, count), self.table(batch.source_bytes, count));
        let targets: Vec<u64> = self.table(batch.targets, count);
        let rooms: Vec<u64> = if codec.packs() { lengths.clone() } else { self.table(batch.target_rooms, count) };
        assert_eq!((rooms.iter().max(), rooms.iter().sum()), (Some(&(bytes_max as u64)), bytes_total as u64));
        for number in 0..count {
            let source = self.get(sources[number], lengths[number] as usize);
            let mut made = if codec.packs() { packed(codec, &source) } else { unpacked(codec, &source, rooms[number] as usize) };
            let mut status = 0_u32;
            match self.lie {
                Some(Lie::Nothing) => continue,
                Some(Lie::Status) => status = 12,
                Some(Lie::Length) => drop(made.as_mut().map(Vec::pop)),
                Some(Lie::Byte) => made.as_mut().into_iter().for_each(|made| made[0] ^= 0x10),
                None => {}
            }
            let made = made.unwrap_or_else(|| {
                status = 12;
                Vec::new()
            });
            self.put(targets[number], &made);
            self.put(batch.made + 8 * number as u64, &(made.len() as u64).to_le_bytes());
            self.put(batch.statuses + 4 * number as u64, &status.to_le_bytes());
        }
    }
}

const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

fn unwrapped_zlib(source: &[u8]) -> (Vec<u8>, usize) {
    let end = source.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let is_zlib =
        end > 2 && source[0] & 0x8F == 8 && source[1] & 0x20 == 0 && u16::from_be_bytes([source[0], source[1]]).is_multiple_of(31);
    if is_zlib { (source[2..source.len().min(end + 4)].to_vec(), end) } else { (vec![3, 0], 0) }
}

fn unwrapped_zstd(source: &[u8], bytes: u64) -> (Vec<u8>, usize) {
    let length = source.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
    let frame = source.get(8..).and_then(|frame| frame.get(..length)).filter(|frame| frame.len() > 2 && frame[0] & 0x0B == 0);
    match frame {
        None => ([&MAGIC[..], &[0x20, 0, 1, 0, 0]].concat(), 0),
        Some(frame) if frame[0] & 0xE0 != 0 => ([&MAGIC, frame].concat(), 8 + length),
        Some(frame) => ([&MAGIC[..], &[frame[0] | 0x80, frame[1]], &(bytes as u32).to_le_bytes(), &frame[2..]].concat(), 8 + length),
    }
}

/// Compresses as the library does: raw deflate, or a whole frame of zstd.
fn packed(codec: Codec, source: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; 2 * source.len() + 64];
    let (kind, front, back) = if codec.is_deflate() { (Compression::GZIP_6, 2, 4) } else { (Compression::ZSTD, 8, 0) };
    let length = kernels::compress(kind, 1, source, &mut out)?;
    let body = &out[front..length - back];
    Some(if codec.is_deflate() { body.to_vec() } else { [&MAGIC, body].concat() })
}

/// The bytes of a stream of the library's; None when it is malformed, or does not fit.
fn unpacked(codec: Codec, source: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; room];
    if codec.is_deflate() {
        let length = libdeflater::Decompressor::new().deflate_decompress(source, &mut out).ok()?;
        out.truncate(length);
        return Some(out);
    }
    let frame = source.strip_prefix(&MAGIC)?;
    assert!(frame[0] & 0xE0 != 0, "frames say how large they are");
    if frame == [0x20, 0, 1, 0, 0] {
        return Some(Vec::new());
    }
    let stored = [&(frame.len() as u32).to_be_bytes()[..], &[3, 0, 0x29, 0x0B], frame].concat();
    kernels::decompress(Compression::ZSTD, &stored, &mut out).ok().map(|()| out)
}

/// a·b from the definition.
fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x1D };
        b >>= 1;
    }
    sum
}

impl Gpu for Fake {
    fn about(&self) -> &str {
        "a model of a GPU"
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn alloc(&self, bytes: usize) -> Result<u64, GpuError> {
        let mut state = self.enter("alloc")?;
        let used: usize = state.memory.values().map(Vec::len).sum();
        if (used + bytes) as u64 > self.memory_bytes {
            return Err(GpuError::OutOfMemory);
        }
        let address = state.next_address;
        state.next_address += bytes.next_multiple_of(4096) as u64 + 4096;
        state.memory.insert(address, vec![0xEE; bytes]);
        Ok(address)
    }

    fn free(&self, address: u64) {
        let mut state = self.state.lock();
        assert!(!state.is_lost, "nothing is called on a device that is lost");
        assert!(state.memory.remove(&address).is_some(), "memory is given back once");
    }

    fn pin(&self, bytes: usize) -> Result<Pinned, GpuError> {
        let mut state = self.enter("pin")?;
        state.pinned.push(vec![0; bytes]);
        Ok(Pinned(state.pinned.len() as u64 - 1))
    }

    fn stage(&self, to: Pinned, at: usize, bytes: &[u8]) -> Result<(), GpuError> {
        self.enter("stage")?.pinned[to.0 as usize][at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn fetch(&self, from: Pinned, range: Range<usize>, take: &mut dyn FnMut(&[u8])) -> Result<(), GpuError> {
        take(&self.enter("fetch")?.pinned[from.0 as usize][range]);
        Ok(())
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        let mut state = self.enter("stream")?;
        state.streams.push(Queue::default());
        Ok(Stream(state.streams.len() as u64 - 1))
    }

    fn upload(&self, stream: Stream, from: Pinned, range: Range<usize>, to: u64) -> Result<(), GpuError> {
        self.put("upload", stream, Work::Upload { from, range, to })
    }

    fn download(&self, stream: Stream, from: u64, to: Pinned, range: Range<usize>) -> Result<(), GpuError> {
        self.put("download", stream, Work::Download { from, to, range })
    }

    fn zero(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), GpuError> {
        self.put("zero", stream, Work::Zero { address, bytes })
    }

    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), GpuError> {
        self.put("launch", stream, Work::Launch(*launch))?;
        *self.state.lock().launches.entry(launch.kernel).or_default() += 1;
        Ok(())
    }

    fn offers(&self, codec: Codec) -> Option<Sizes> {
        Some(Sizes { min_bytes: 1, max_bytes: 1 << 30, align_bytes: if codec == Codec::ZstdPack { 4 } else { 1 } })
    }

    fn packed_bytes_max(&self, codec: Codec, bytes: usize) -> Result<usize, GpuError> {
        assert!(codec.packs());
        self.enter("packed_bytes_max").map(|_| 2 * bytes + 64)
    }

    fn temp_bytes(&self, _: Stream, chunks: &Chunks) -> Result<usize, GpuError> {
        self.enter("temp_bytes").map(|_| if chunks.codec == Codec::Inflate { 0 } else { chunks.count * 100 })
    }

    fn run_batch(&self, stream: Stream, batch: &Batch) -> Result<(), GpuError> {
        self.put("run_batch", stream, Work::Batch(*batch))?;
        *self.state.lock().batches.entry(batch.chunks.codec).or_default() += 1;
        Ok(())
    }

    fn mark(&self, stream: Stream) -> Result<(), GpuError> {
        let mut state = self.enter("mark")?;
        let queue = &mut state.streams[stream.0 as usize];
        queue.marks += 1;
        queue.work.push_back(Work::Mark(queue.marks));
        Ok(())
    }

    fn is_done(&self, stream: Stream) -> Result<bool, GpuError> {
        let mut state = self.enter("is_done")?;
        for _ in 0..state.random.below(8) {
            let streams = state.streams.len();
            let lucky = state.random.below(streams);
            state.work(lucky);
        }
        let queue = &state.streams[stream.0 as usize];
        Ok(queue.reached == queue.marks)
    }

    fn drain(&self, stream: Stream) -> Result<(), GpuError> {
        let mut state = self.enter("drain")?;
        while !state.streams[stream.0 as usize].work.is_empty() {
            state.work(stream.0 as usize);
        }
        Ok(())
    }
}
