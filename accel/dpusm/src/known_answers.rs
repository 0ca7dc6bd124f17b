//! Known-answer tests: before a capability is used, it has to agree with software on blocks of several kinds and sizes.
//!
//! Everything runs through [`Device::run`], so time-outs and the form of answers are judged too. Results go into the middle of a
//! buffer full of a known byte, and what lies beside them must stay, on the host's side too; so must what is only read. Sizes are the smallest, the largest and some that the
//! capability admits; blocks are words, runs, noise and zeros.

use crate::device::Device;
use crate::graph::{Compress, Graph};
use crate::handle::{HostDone, HostRead, HostStore, RaidContext, StoreTarget};
use crate::host_guard::{HostRoom, HostSource};
use crate::verify::{Claim, checksum, parity_of, verify};
use crate::{Buffer, Capability, Fault, Feature, OpError, Sizes, StoreKind, View};
use abd::{Abd, AbdPart};
use exec::SplitMix;
use ondisk::{ByteOrder, Checksum, Compression};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Sizes that are tried, as far as a capability admits them.
const SIZES: [usize; 6] = [512, 4096, 4608, 16 << 10, 128 << 10, 1 << 20];
/// Largest size of these that is compressed: the highest levels take long.
const COMPRESSED_BYTES_MAX: usize = 128 << 10;
/// From this on-disk level on, zstd gives up soon.
pub(crate) const FAST_LEVELS: u8 = 103;
/// Bytes before and after the part of a buffer that is worked on.
const MARGIN: usize = 4096;
/// Byte that the margins are full of.
const GUARD: u8 = 0xC3;
/// Errno of a failed write: EIO.
const EIO: i32 = 5;

/// Things that the tests need besides the device.
pub(crate) struct Bench<'a> {
    pub(crate) device: &'a Device,
    pub(crate) deadline_ns: u64,
    /// Bytes of the largest block.
    pub(crate) bytes_max: usize,
    /// Folder in which a scratch file may be made for tests of writing.
    pub(crate) scratch: Option<&'a Path>,
}

/// Blocks of `bytes` bytes: words, runs, noise, zeros.
fn samples(bytes: usize) -> [Vec<u8>; 4] {
    let mut random = SplitMix::new(bytes as u64);
    const WORDS: [&[u8]; 8] = [b"checksum ", b"parity ", b"compress ", b"the ", b"accelerator\n", b"of a ", b"provider ", b"column, "];
    let mut words = Vec::with_capacity(bytes + 16);
    while words.len() < bytes {
        words.extend_from_slice(WORDS[random.below(8)]);
    }
    words.truncate(bytes);
    let runs = (0..bytes).map(|at| (at / 61 % 251) as u8).collect();
    let noise = random.bytes(bytes);
    [words, runs, noise, vec![0; bytes]]
}

fn right(is_right: bool) -> Result<(), Fault> {
    if is_right { Ok(()) } else { Err(Fault::WrongAnswer) }
}

/// A part of a buffer, with guarded bytes around it.
struct Guarded {
    buffer: Buffer,
    view: View,
}

impl Bench<'_> {
    /// Sizes to try, ascending.
    fn sizes(&self, admitted: &Sizes) -> Result<Vec<usize>, Fault> {
        let usual = SIZES.into_iter().filter(|bytes| *bytes <= self.bytes_max);
        let is_admitted = |bytes: &usize| *bytes > 0 && admitted.admit(MARGIN, *bytes);
        let mut found: Vec<usize> = usual.chain([admitted.min_bytes]).filter(is_admitted).collect();
        found.sort_unstable();
        found.dedup();
        if found.is_empty() { Err(Fault::Untestable) } else { Ok(found) }
    }

    fn run(&self, graph: Graph) -> Result<crate::Report, Fault> {
        let report = self.device.run(graph, self.deadline_ns).map_err(|refused| refused.error)?;
        report.all()?;
        Ok(report)
    }

    /// A guarded part full of the known byte.
    fn guarded(&self, bytes: usize) -> Result<Guarded, Fault> {
        self.around(&vec![GUARD; bytes])
    }

    /// A guarded part with these bytes.
    fn holding(&self, bytes: &Abd) -> Result<Guarded, Fault> {
        self.around(&bytes.to_vec())
    }

    fn around(&self, bytes: &[u8]) -> Result<Guarded, Fault> {
        let margin = &[GUARD; MARGIN][..];
        let buffer = self.device.alloc(bytes.len() + 2 * MARGIN)?;
        self.put(&[margin, bytes, margin].concat(), &buffer.whole())?;
        let view = buffer.view(MARGIN..MARGIN + bytes.len())?;
        Ok(Guarded { buffer, view })
    }

    fn put(&self, bytes: &[u8], view: &View) -> Result<(), Fault> {
        let mut graph = Graph::new();
        graph.copy_in(&Abd::from_slice(bytes), view);
        self.run(graph).map(drop)
    }

    fn bytes_of(&self, view: &View) -> Result<Abd, Fault> {
        let mut graph = Graph::new();
        let node = graph.copy_out(view, vec![AbdPart::scratch(view.len())]);
        Ok(self.run(graph)?.take_bytes(node)?)
    }

    /// The bytes of a guarded part, once what is beside it was looked at.
    fn bytes_within(&self, guarded: &Guarded) -> Result<Abd, Fault> {
        let all = self.bytes_of(&guarded.buffer.whole())?;
        let end = all.len() - MARGIN;
        let clean = |part: Abd| part.to_vec() == [GUARD; MARGIN];
        if !clean(all.slice(0..MARGIN)) || !clean(all.slice(end..end + MARGIN)) {
            return Err(Fault::WroteOutside);
        }
        Ok(all.slice(MARGIN..end))
    }

    /// Checks that an operation left alone what it was to read.
    fn unchanged(&self, source: &Guarded, bytes: &Abd) -> Result<(), Fault> {
        if self.bytes_within(source)? == *bytes { Ok(()) } else { Err(Fault::ChangedSource) }
    }

    /// Tests one capability.
    pub(crate) fn test(&self, capability: &Capability) -> Result<(), Fault> {
        let sizes_of = &capability.sizes;
        match capability.feature {
            Feature::CopyIn { scatter } => self.copies(sizes_of, scatter, false),
            Feature::CopyOut { scatter } => self.copies(sizes_of, false, scatter),
            Feature::ZeroFill => self.zero_fill(sizes_of),
            Feature::ZeroTest => self.zero_test(sizes_of),
            Feature::Compare => self.compare(sizes_of),
            Feature::Compress { kind, level_min, level_max } => self.compress(sizes_of, kind, &[level_min, level_max]),
            Feature::Decompress { kind } => self.decompress(sizes_of, kind),
            Feature::Checksum { kind, order } => self.checksum(sizes_of, kind, order),
            Feature::RaidGenerate { parity, data_columns_max } => self.raid(sizes_of, parity, data_columns_max, false),
            Feature::RaidReconstruct { parity, data_columns_max } => self.raid(sizes_of, parity, data_columns_max, true),
            Feature::Store { kind } => self.store(sizes_of, kind),
            Feature::Load { kind } => self.load(sizes_of, kind),
        }
    }

    fn copies(&self, admitted: &Sizes, scatter_in: bool, scatter_out: bool) -> Result<(), Fault> {
        for bytes in self.sizes(admitted)? {
            let whole = vec![bytes];
            let pieces = if bytes >= 1024 { vec![512, bytes - 512] } else { whole.clone() };
            for sample in samples(bytes) {
                self.copy(&sample, if scatter_in { &pieces } else { &whole }, if scatter_out { &pieces } else { &whole })?;
            }
        }
        Ok(())
    }

    /// Copies a block there and back, from and to pieces of these lengths, and looks at all memory of both sides.
    fn copy(&self, sample: &[u8], pieces_in: &[usize], pieces_out: &[usize]) -> Result<(), Fault> {
        let (block, guarded) = (Abd::from_slice(sample), self.guarded(sample.len())?);
        let (source, (parts, room)) = (HostSource::new(sample, pieces_in), HostRoom::new(pieces_out));
        let mut graph = Graph::new();
        graph.copy_in(&source.bytes(), &guarded.view);
        let node = graph.copy_out(&guarded.view, parts);
        let back = self.run(graph)?.take_bytes(node)?;
        room.check()?;
        source.check()?;
        right(back == block && self.bytes_within(&guarded)? == block)
    }

    fn zero_fill(&self, admitted: &Sizes) -> Result<(), Fault> {
        for bytes in self.sizes(admitted)? {
            let guarded = self.guarded(bytes)?;
            let mut graph = Graph::new();
            graph.zero_fill(&guarded.view);
            self.run(graph)?;
            right(self.bytes_within(&guarded)?.is_zero())?;
        }
        Ok(())
    }

    fn zero_test(&self, admitted: &Sizes) -> Result<(), Fault> {
        for bytes in self.sizes(admitted)? {
            for set in [None, Some(0), Some(bytes / 2), Some(bytes - 1)] {
                let mut block = vec![0; bytes];
                set.into_iter().for_each(|at| block[at] = 0x80);
                let block = Abd::from_slice(&block);
                let guarded = self.holding(&block)?;
                let mut graph = Graph::new();
                let node = graph.zero_test(&guarded.view);
                right(self.run(graph)?.flag(node)? == set.is_none())?;
                self.unchanged(&guarded, &block)?;
            }
        }
        Ok(())
    }

    fn compare(&self, admitted: &Sizes) -> Result<(), Fault> {
        for bytes in self.sizes(admitted)? {
            let [block, ..] = samples(bytes);
            let left_bytes = Abd::from_slice(&block);
            let left = self.holding(&left_bytes)?;
            for changed in [None, Some(0), Some(bytes / 2), Some(bytes - 1)] {
                let mut other = block.clone();
                changed.into_iter().for_each(|at| other[at] ^= 1);
                let other_bytes = Abd::from_slice(&other);
                let other = self.holding(&other_bytes)?;
                let mut graph = Graph::new();
                let node = graph.compare(&left.view, &other.view);
                right(self.run(graph)?.flag(node)? == changed.is_some())?;
                self.unchanged(&left, &left_bytes)?;
                self.unchanged(&other, &other_bytes)?;
            }
        }
        Ok(())
    }

    fn compress(&self, admitted: &Sizes, kind: Compression, levels: &[u8]) -> Result<(), Fault> {
        let all = self.sizes(admitted)?;
        let (first, rest) = (all[0], &all[1..]);
        for bytes in rest.iter().copied().filter(|bytes| *bytes <= COMPRESSED_BYTES_MAX).chain([first]) {
            for (number, sample) in samples(bytes).into_iter().enumerate() {
                for &level in levels {
                    let how = Compress { kind, level, limit_bytes: bytes - bytes / 8, round_to_bytes: 512 };
                    let is_small = self.compress_one(how, &Abd::from_slice(&sample))?;
                    // Zeros of this size are smaller in every format, words and runs in those that do their best.
                    let must_shrink = number == 3 || number != 2 && kind != Compression::ZLE && level < FAST_LEVELS;
                    right(is_small || bytes < 4096 || !must_shrink)?;
                }
            }
        }
        Ok(())
    }

    /// Compresses a block with all that belongs to a write; true when it became smaller.
    fn compress_one(&self, how: Compress, block: &Abd) -> Result<bool, Fault> {
        let (source, target) = (self.holding(block)?, self.guarded(block.len())?);
        let mut graph = Graph::new();
        let packed = graph.compress(&source.view, &target.view, how);
        let length = self.run(graph)?.compressed(packed)?;
        self.unchanged(&source, block)?;
        let written = self.bytes_within(&target)?;
        let Some(length) = length else { return Ok(false) };
        right(verify(&Claim::Compress { kind: how.kind, source: block, output: &written.slice(0..length) }))?;
        Ok(true)
    }

    fn decompress(&self, admitted: &Sizes, kind: Compression) -> Result<(), Fault> {
        for bytes in self.sizes(admitted)? {
            for sample in samples(bytes) {
                let mut packed = vec![0; bytes * 2 + 512];
                let Some(length) = kernels::compress(kind, 0, &sample, &mut packed) else { continue };
                // Stored with padding, as on disk.
                packed.truncate(length.next_multiple_of(512));
                packed[length..].fill(0);
                let packed = Abd::from_slice(&packed);
                let (source, target) = (self.holding(&packed)?, self.guarded(bytes)?);
                let mut graph = Graph::new();
                graph.decompress(&source.view, &target.view, kind);
                self.run(graph)?;
                right(self.bytes_within(&target)?.to_vec() == sample)?;
                self.unchanged(&source, &packed)?;
            }
        }
        Ok(())
    }

    fn checksum(&self, admitted: &Sizes, kind: Checksum, order: ByteOrder) -> Result<(), Fault> {
        for bytes in self.sizes(admitted)? {
            for sample in samples(bytes) {
                let block = Abd::from_slice(&sample);
                let wanted = checksum(kind, order, &block).ok_or(Fault::Untestable)?;
                let source = self.holding(&block)?;
                let mut graph = Graph::new();
                let node = graph.checksum(&source.view, kind, order);
                right(self.run(graph)?.checksum(node)? == wanted)?;
                self.unchanged(&source, &block)?;
            }
        }
        Ok(())
    }

    fn raid(&self, admitted: &Sizes, parity: u8, columns_max: u16, reconstruct: bool) -> Result<(), Fault> {
        let parities = usize::from(parity);
        let lengths = self.sizes(admitted)?;
        let (short, long) = (lengths[0], lengths[lengths.len() / 2]);
        for columns in [1usize, 2, 3, 5, 10, 17].into_iter().filter(|columns| *columns <= usize::from(columns_max)) {
            // The first columns are longer, as in a block that does not fill its last row.
            let data: Vec<Abd> = (0..columns)
                .map(|column| {
                    let bytes = if column <= columns / 2 { long } else { short };
                    Abd::from_slice(&samples(bytes)[if column == 1 { 3 } else { 2 }])
                })
                .collect();
            let parity = parity_of(&data, parities).ok_or(Fault::Untestable)?;
            let all: Vec<Abd> = parity.iter().chain(&data).cloned().collect();
            let columns: Vec<Guarded> = all.iter().map(|column| self.holding(column)).collect::<Result<_, _>>()?;
            let sets = if reconstruct { losses(all.len(), parities) } else { vec![(0..parities).collect()] };
            for lost in sets {
                self.row((&columns[..], &all[..]), parities, &lost, reconstruct)?;
            }
        }
        Ok(())
    }

    /// Puts guard bytes into the columns of a row that are lost, has them computed, and looks at all of it.
    fn row(&self, (columns, all): (&[Guarded], &[Abd]), parities: usize, lost: &[usize], reconstruct: bool) -> Result<(), Fault> {
        for index in lost {
            self.put(&vec![GUARD; all[*index].len()], &columns[*index].view)?;
        }
        let views = |range: &[Guarded]| range.iter().map(|column| column.view.clone()).collect();
        let row = RaidContext::new(views(&columns[..parities]), views(&columns[parities..]))?;
        let mut graph = Graph::new();
        if reconstruct {
            graph.raid_reconstruct(&row, lost);
        } else {
            graph.raid_generate(&row);
        }
        self.run(graph)?;
        for (index, (column, wanted)) in columns.iter().zip(all).enumerate() {
            if lost.contains(&index) {
                right(self.bytes_within(column)? == *wanted)?;
            } else {
                self.unchanged(column, wanted)?;
            }
        }
        Ok(())
    }

    fn store(&self, admitted: &Sizes, kind: StoreKind) -> Result<(), Fault> {
        let folder = self.scratch.ok_or(Fault::Untestable)?;
        let scratch = Scratch::new(folder).ok_or(Fault::Untestable)?;
        let target = StoreTarget { kind, path: scratch.path.clone(), host: scratch.file.clone() };
        let store = self.device.open(&target)?;
        let mut at = 0;
        for bytes in self.sizes(admitted)? {
            let [words, ..] = samples(bytes);
            let block = Abd::from_slice(&words);
            let source = self.holding(&block)?;
            let mut graph = Graph::new();
            graph.store(&source.view, &store, at);
            graph.flush(&store);
            self.run(graph)?;
            let mut back = vec![0; bytes];
            right(scratch.file.0.read_exact_at(&mut back, at).is_ok() && back == words)?;
            self.unchanged(&source, &block)?;
            at += bytes.next_multiple_of(MARGIN) as u64;
        }
        Ok(())
    }

    /// Reads what this side wrote, also what it wrote over what was read before: one that keeps what it read would repair with the old bytes.
    fn load(&self, admitted: &Sizes, kind: StoreKind) -> Result<(), Fault> {
        let folder = self.scratch.ok_or(Fault::Untestable)?;
        let scratch = Scratch::new(folder).ok_or(Fault::Untestable)?;
        let store = self.device.open(&StoreTarget { kind, path: scratch.path.clone(), host: scratch.file.clone() })?;
        for bytes in self.sizes(admitted)? {
            let [words, runs, ..] = samples(bytes);
            for (sample, at) in [(&words, 0), (&runs, 0), (&words, MARGIN as u64)] {
                scratch.file.0.write_all_at(sample, at).map_err(|_| Fault::Untestable)?;
                let target = self.guarded(bytes)?;
                let mut graph = Graph::new();
                graph.load(&target.view, &store, at);
                self.run(graph)?;
                right(self.bytes_within(&target)?.to_vec() == *sample)?;
            }
        }
        Ok(())
    }
}

/// Sets of up to `most` columns of `columns`: all of them for narrow rows, those with the first and last columns for wide ones.
fn losses(columns: usize, most: usize) -> Vec<Vec<usize>> {
    let some: Vec<usize> = if columns <= 6 { (0..columns).collect() } else { vec![0, 1, most, columns / 2, columns - 1] };
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for mask in 1u32..1 << some.len() {
        let set: Vec<usize> = some.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, column)| *column).collect();
        let is_new = set.windows(2).all(|pair| pair[0] < pair[1]);
        if set.len() <= most && is_new {
            sets.push(set);
        }
    }
    sets
}

struct ScratchFile(File);

impl HostStore for ScratchFile {
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        let mut part = AbdPart::scratch(bytes);
        let read = self.0.read_exact_at(&mut part, offset);
        done(read.map(|()| part.freeze()).map_err(|error| error.raw_os_error().unwrap_or(EIO)));
    }

    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        done(self.0.write_all_at(&data.to_vec(), offset).map_err(|error| error.raw_os_error().unwrap_or(EIO)));
    }

    fn flush(&self, done: HostDone) {
        done(self.0.sync_all().map_err(|error| error.raw_os_error().unwrap_or(EIO)));
    }
}

/// A file that goes away again.
struct Scratch {
    path: std::path::PathBuf,
    file: Arc<ScratchFile>,
}

impl Scratch {
    fn new(folder: &Path) -> Option<Scratch> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.join(format!("provider-test-{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).ok()?;
        file.set_len(8 << 20).ok()?;
        Some(Scratch { path, file: Arc::new(ScratchFile(file)) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl From<crate::Refused> for OpError {
    fn from(refused: crate::Refused) -> OpError {
        refused.error
    }
}
