//! Operations of random shapes, compared with software: sizes, places, contents and row geometries that no list of cases would have.
//!
//! Every operand lies somewhere inside a buffer whose other bytes are known, and all of the buffer is looked at afterwards. Several
//! graphs are in flight at a time. A seed gives the same shapes again.

use crate::device::{Buffer, Device};
use crate::graph::{Compress, Graph, NodeId, Report};
use crate::handle::RaidContext;
use crate::host_guard::{HostRoom, HostSource};
use crate::submit::ReportFn;
use crate::verify::{Claim, checksum, parity_of, verify};
use crate::{Capability, Fault, Feature, OpError, Sizes, View};
use abd::{Abd, AbdPart};
use exec::SplitMix;
use ondisk::{ByteOrder, Checksum, Compression};
use std::collections::BTreeMap;
use std::fmt;

/// Range of what is tried.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    /// Seed of the random shapes.
    pub seed: u64,
    /// Number of shapes.
    pub count: u64,
    /// Largest operand, in bytes.
    pub bytes_max: usize,
    /// Graphs in flight at a time.
    pub batch: usize,
    /// Time that each may take, in nanoseconds.
    pub deadline_ns: u64,
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes { seed: 1, count: 1000, bytes_max: 1 << 20, batch: 16, deadline_ns: 60_000_000_000 }
    }
}

/// A shape for which a provider and software disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeFault {
    /// Number of the shape: the first is 0.
    pub number: u64,
    /// The operation, with its shape.
    pub shape: String,
    /// Fault that was found.
    pub fault: Fault,
}

impl fmt::Display for ShapeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shape {} ({}): {}", self.number, self.shape, self.fault)
    }
}
impl std::error::Error for ShapeFault {}

type Judge = Box<dyn FnOnce(&mut Report) -> Result<(), Fault>>;

/// One operation, ready to be submitted.
struct Case {
    graph: Graph,
    shape: String,
    judge: Judge,
}

/// An operand: a part of a buffer, all of whose bytes are known.
struct Slot {
    buffer: Buffer,
    view: View,
    /// All bytes of the buffer.
    image: Vec<u8>,
}

impl Slot {
    fn bytes(&self) -> &[u8] {
        &self.image[self.view.offset()..self.view.offset() + self.view.len()]
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = self.view.offset();
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// True when `all`, the buffer's bytes, are as they were outside of the operand.
    fn is_clean(&self, all: &Abd) -> bool {
        let (all, start) = (all.to_vec(), self.view.offset());
        let end = start + self.view.len();
        all[..start] == self.image[..start] && all[end..] == self.image[end..]
    }

    /// Adds a copy of all bytes of the buffer, to be looked at with [`Slot::check`].
    fn look(&self, graph: &mut Graph) -> NodeId {
        graph.copy_out(self.buffer.whole(), vec![AbdPart::scratch(self.image.len())])
    }

    /// Checks that the buffer is its image; `otherwise` is the fault when the operand is not.
    fn check(&self, report: &mut Report, look: NodeId, otherwise: Fault) -> Result<(), Fault> {
        let all = report.take_bytes(look)?;
        if !self.is_clean(&all) {
            return Err(Fault::WroteOutside);
        }
        if all.to_vec() == self.image { Ok(()) } else { Err(otherwise) }
    }
}

/// Makes cases.
struct Maker<'a> {
    device: &'a Device,
    random: SplitMix,
    bytes_max: usize,
    /// Bytes that copies of whole buffers must be multiples of, and their fewest bytes.
    copy_align: usize,
    copy_min: usize,
}

const WORDS: [&[u8]; 6] = [b"checksum ", b"parity ", b"compress ", b"the ", b"accelerator\n", b"column, "];

/// Runs operations of random shapes through a provider: as many of each feature as were tried, or the first disagreement.
///
/// # Errors
/// What the first shape was for which the provider failed, wrote beside its operand, or gave another result than software.
pub fn random_shapes(device: &Device, shapes: &Shapes) -> Result<BTreeMap<String, u64>, ShapeFault> {
    let copies = device.capabilities().list.iter().filter(|one| matches!(one.feature, Feature::CopyIn { .. } | Feature::CopyOut { .. }));
    let (mut copy_align, mut copy_min) = (1, 1);
    copies.for_each(|one| {
        copy_align = copy_align.max(one.sizes.align_bytes);
        copy_min = copy_min.max(one.sizes.min_bytes);
    });
    let mut maker = Maker { device, random: SplitMix::new(shapes.seed), bytes_max: shapes.bytes_max, copy_align, copy_min };
    let offered: Vec<Capability> = device
        .capabilities()
        .list
        .iter()
        .filter(|one| !matches!(one.feature, Feature::Store { .. } | Feature::Load { .. }))
        .copied()
        .collect();
    let (mut tried, mut number) = (BTreeMap::new(), 0);
    while number < shapes.count && !offered.is_empty() {
        let mut cases = Vec::new();
        for _ in 0..(shapes.batch.max(1) as u64).min(shapes.count - number) {
            let capability = offered[maker.random.below(offered.len())];
            let (feature, place) = (capability.feature.to_string(), cases.len() as u64);
            let made = maker.case(&capability).map_err(|fault| ShapeFault { number: number + place, shape: feature.clone(), fault })?;
            cases.push(made);
            *tried.entry(feature).or_insert(0) += 1;
        }
        number += run(device, cases, number, shapes.deadline_ns)?;
    }
    Ok(tried)
}

/// Submits cases at once and judges each; how many there were.
fn run(device: &Device, cases: Vec<Case>, first: u64, deadline_ns: u64) -> Result<u64, ShapeFault> {
    let count = cases.len() as u64;
    let (mut graphs, mut waiting) = (Vec::new(), Vec::new());
    for case in cases {
        let (completer, completion) = exec::completion();
        let done: ReportFn = Box::new(move |report| completer.complete(report));
        graphs.push((case.graph, done));
        waiting.push((case.shape, case.judge, completion));
    }
    let outcomes = device.submit_all(graphs, deadline_ns);
    for (place, (outcome, (shape, judge, completion))) in outcomes.into_iter().zip(waiting).enumerate() {
        let report = match outcome {
            Ok(_) => Ok(completion.wait(&device.0.exec)),
            // There was no room for it beside the others.
            Err(refused) if refused.error == OpError::Full => device.run(refused.graph, deadline_ns).map_err(|refused| refused.error),
            Err(refused) => Err(refused.error),
        };
        let judged = report.map_err(Fault::from).and_then(|mut report| {
            report.all()?;
            judge(&mut report)
        });
        judged.map_err(|fault| ShapeFault { number: first + place as u64, shape, fault })?;
    }
    Ok(count)
}

/// Bytes of parts, one behind the other, up to a length.
fn joined<'a>(bytes: usize, mut next: impl FnMut() -> &'a [u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(bytes);
    while block.len() < bytes {
        block.extend_from_slice(next());
    }
    block.truncate(bytes);
    block
}

fn right(is_right: bool) -> Result<(), Fault> {
    if is_right { Ok(()) } else { Err(Fault::WrongAnswer) }
}

impl Maker<'_> {
    /// A size that is admitted.
    fn size(&mut self, sizes: &Sizes) -> usize {
        let most = self.bytes_max.min(sizes.max_bytes).max(1);
        let usual = match self.random.below(10) {
            0..2 => 1 + self.random.below(600),
            2..6 => 512 * (1 + self.random.below(16)),
            6..8 => 1 + self.random.below(64 << 10),
            8 => 512 * (1 + self.random.below(256)),
            _ => 1 + self.random.below(most),
        };
        let align = sizes.align_bytes.max(1);
        let least = sizes.min_bytes.max(1);
        (usual.clamp(least, most.max(least)) / align * align).max(least.next_multiple_of(align))
    }

    /// Bytes of some character.
    fn content(&mut self, bytes: usize) -> Vec<u8> {
        let random = &mut self.random;
        match random.below(6) {
            0 => vec![0; bytes],
            1 => random.bytes(bytes),
            2 => joined(bytes, || WORDS[random.below(WORDS.len())]),
            3 => {
                let mut block = vec![0; bytes];
                block.chunks_mut(1 + random.below(300)).enumerate().for_each(|(run, part)| part.fill((run % 251) as u8));
                block
            }
            4 => (0..bytes).map(|at| if at / 100 % 3 == 0 { random.next_u64() as u8 } else { 0xFF }).collect(),
            _ => {
                let period = 1 + random.below(40_000);
                let period = random.bytes(period);
                joined(bytes, || &period[..])
            }
        }
    }

    /// A buffer with an operand of these bytes somewhere in it, copied to the device by `graph`.
    fn slot(&mut self, graph: &mut Graph, align: usize, bytes: &[u8]) -> Result<Slot, Fault> {
        let align = align.max(self.copy_align);
        let offset = if self.random.chance(3) { 0 } else { self.random.below(700) / align * align };
        let total = (offset + bytes.len() + self.random.below(300)).max(self.copy_min).next_multiple_of(self.copy_align);
        let buffer = self.device.alloc(total)?;
        let view = buffer.view(offset..offset + bytes.len())?;
        let mut slot = Slot { buffer, view, image: self.random.bytes(total) };
        slot.put(bytes);
        graph.copy_in(&Abd::from_slice(&slot.image), &slot.buffer.whole());
        Ok(slot)
    }

    fn case(&mut self, capability: &Capability) -> Result<Case, Fault> {
        let sizes = &capability.sizes;
        let bytes = self.size(sizes);
        let mut case = match capability.feature {
            Feature::CopyIn { scatter } => self.copy_in(sizes, bytes, scatter)?,
            Feature::CopyOut { scatter } => self.copy_out(sizes, bytes, scatter)?,
            Feature::ZeroFill => self.zero_fill(sizes, bytes)?,
            Feature::ZeroTest => self.zero_test(sizes, bytes)?,
            Feature::Compare => self.compare(sizes, bytes)?,
            Feature::Compress { kind, level_min, level_max } => {
                let level = level_min + self.random.below(usize::from(level_max - level_min) + 1) as u8;
                self.compress(sizes, bytes, kind, level)?
            }
            Feature::Decompress { kind } => self.decompress(sizes, bytes, kind)?,
            Feature::Checksum { kind, order } => self.checksum(sizes, bytes, kind, order)?,
            Feature::RaidGenerate { parity, data_columns_max } => self.row(sizes, bytes, parity, data_columns_max, false)?,
            Feature::RaidReconstruct { parity, data_columns_max } => self.row(sizes, bytes, parity, data_columns_max, true)?,
            Feature::Store { .. } | Feature::Load { .. } => return Err(Fault::Untestable),
        };
        case.shape = format!("{} of {}", capability.feature, case.shape);
        Ok(case)
    }

    fn pieces(&mut self, bytes: usize, is_many: bool) -> Vec<usize> {
        let (mut pieces, mut left) = (Vec::new(), bytes);
        while is_many && left > 1 && pieces.len() < 5 {
            let piece = 1 + self.random.below(left);
            pieces.push(piece);
            left -= piece;
        }
        pieces.push(left);
        pieces.retain(|piece| *piece > 0);
        pieces
    }

    fn copy_in(&mut self, sizes: &Sizes, bytes: usize, scatter: bool) -> Result<Case, Fault> {
        let (mut graph, before, data) = (Graph::new(), self.content(bytes), self.content(bytes));
        let mut slot = self.slot(&mut graph, sizes.align_bytes, &before)?;
        let pieces = self.pieces(bytes, scatter);
        let source = HostSource::new(&data, &pieces);
        graph.copy_in(&source.bytes(), &slot.view);
        slot.put(&data);
        let look = slot.look(&mut graph);
        let shape = format!("{bytes} bytes at {} in {} pieces", slot.view.offset(), pieces.len());
        let judge = move |report: &mut Report| {
            slot.check(report, look, Fault::WrongAnswer)?;
            source.check()
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }

    fn copy_out(&mut self, sizes: &Sizes, bytes: usize, scatter: bool) -> Result<Case, Fault> {
        let (mut graph, data) = (Graph::new(), self.content(bytes));
        let slot = self.slot(&mut graph, sizes.align_bytes, &data)?;
        let mut pieces = self.pieces(bytes, scatter);
        if scatter && self.random.chance(2) {
            pieces.push(100);
        }
        let shape = format!("{bytes} bytes at {} to {} pieces", slot.view.offset(), pieces.len());
        let (parts, room) = HostRoom::new(&pieces);
        let node = graph.copy_out(&slot.view, parts);
        let look = slot.look(&mut graph);
        let judge = move |report: &mut Report| {
            right(report.take_bytes(node)?.to_vec() == slot.bytes())?;
            room.check()?;
            slot.check(report, look, Fault::ChangedSource)
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }

    fn zero_fill(&mut self, sizes: &Sizes, bytes: usize) -> Result<Case, Fault> {
        let (mut graph, data) = (Graph::new(), self.content(bytes));
        let mut slot = self.slot(&mut graph, sizes.align_bytes, &data)?;
        graph.zero_fill(&slot.view);
        slot.put(&vec![0; bytes]);
        Ok(whole(graph, format!("{bytes} bytes at {}", slot.view.offset()), slot, None))
    }

    fn zero_test(&mut self, sizes: &Sizes, bytes: usize) -> Result<Case, Fault> {
        let (mut graph, mut data) = (Graph::new(), vec![0; bytes]);
        let is_zero = self.random.chance(2);
        if !is_zero {
            data[self.random.below(bytes)] = 1 << self.random.below(8);
        }
        let slot = self.slot(&mut graph, sizes.align_bytes, &data)?;
        let node = graph.zero_test(&slot.view);
        let look = slot.look(&mut graph);
        let shape = format!("{bytes} bytes at {}", slot.view.offset());
        let judge = move |report: &mut Report| {
            right(report.flag(node)? == is_zero)?;
            slot.check(report, look, Fault::ChangedSource)
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }

    fn compare(&mut self, sizes: &Sizes, bytes: usize) -> Result<Case, Fault> {
        let (mut graph, data) = (Graph::new(), self.content(bytes));
        let left = self.slot(&mut graph, sizes.align_bytes, &data)?;
        let (differ, mut other) = (self.random.chance(2), data);
        if differ {
            other[self.random.below(bytes)] ^= 1 << self.random.below(8);
        }
        let right_slot = self.slot(&mut graph, sizes.align_bytes, &other)?;
        let node = graph.compare(&left.view, &right_slot.view);
        let looks = [left.look(&mut graph), right_slot.look(&mut graph)];
        let shape = format!("{bytes} bytes at {} and {}", left.view.offset(), right_slot.view.offset());
        let judge = move |report: &mut Report| {
            right(report.flag(node)? == differ)?;
            left.check(report, looks[0], Fault::ChangedSource)?;
            right_slot.check(report, looks[1], Fault::ChangedSource)
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }

    fn checksum(&mut self, sizes: &Sizes, bytes: usize, kind: Checksum, order: ByteOrder) -> Result<Case, Fault> {
        let (mut graph, data) = (Graph::new(), self.content(bytes));
        let slot = self.slot(&mut graph, sizes.align_bytes, &data)?;
        let node = graph.checksum(&slot.view, kind, order);
        let look = slot.look(&mut graph);
        let wanted = checksum(kind, order, &Abd::from_slice(&data)).ok_or(Fault::Untestable)?;
        let shape = format!("{bytes} bytes at {}", slot.view.offset());
        let judge = move |report: &mut Report| {
            right(report.checksum(node)? == wanted)?;
            slot.check(report, look, Fault::ChangedSource)
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }

    /// A compression with all that belongs to a write: padding, and the checksum and the bytes of what is stored.
    fn compress(&mut self, sizes: &Sizes, bytes: usize, kind: Compression, level: u8) -> Result<Case, Fault> {
        let (mut graph, data, before) = (Graph::new(), self.content(bytes), self.content(bytes));
        let source = self.slot(&mut graph, sizes.align_bytes, &data)?;
        let target = self.slot(&mut graph, sizes.align_bytes, &before)?;
        let limit_bytes = match self.random.below(4) {
            0 => bytes,
            1 => 1 + self.random.below(bytes),
            _ => bytes - bytes / 8,
        };
        let round_to_bytes = [1, 512, 4096][self.random.below(3)].max(self.copy_align);
        let how = Compress { kind, level, limit_bytes, round_to_bytes };
        let packed = graph.compress(&source.view, &target.view, how);
        let pads = self.device.has(&Feature::ZeroFill);
        if pads {
            graph.zero_fill(packed.padding());
        }
        let (fletcher, order) = (Checksum::FLETCHER_4, ByteOrder::Little);
        let sums = self.device.has(&Feature::Checksum { kind: fletcher, order });
        let sum = sums.then(|| graph.checksum(packed.result(), fletcher, order));
        let stored = graph.copy_out(packed.result(), vec![AbdPart::scratch(bytes)]);
        let (all, read) = (target.look(&mut graph), source.look(&mut graph));
        let shape = format!("{bytes} bytes to at most {limit_bytes}, rounded to {round_to_bytes}");
        let judge = move |report: &mut Report| {
            let stored = report.take_bytes(stored)?;
            let block = Abd::from_slice(source.bytes());
            if let Some(sum) = sum {
                right(checksum(fletcher, order, &stored) == Some(report.checksum(sum)?))?;
            }
            match report.compressed(packed)? {
                None => right(stored == block)?,
                Some(length) => {
                    right(verify(&Claim::Compress { kind, source: &block, output: &stored.slice(0..length) }))?;
                    right(!pads || stored.slice(length..stored.len()).is_zero())?;
                }
            }
            if !target.is_clean(&report.take_bytes(all)?) {
                return Err(Fault::WroteOutside);
            }
            source.check(report, read, Fault::ChangedSource)
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }

    fn decompress(&mut self, sizes: &Sizes, bytes: usize, kind: Compression) -> Result<Case, Fault> {
        let (mut graph, before) = (Graph::new(), self.content(bytes));
        let mut data = self.content(bytes);
        let mut packed = vec![0; bytes * 2 + 512];
        let mut length = kernels::compress(kind, 0, &data, &mut packed);
        if length.is_none() {
            data.fill(0);
            length = kernels::compress(kind, 0, &data, &mut packed);
        }
        let length = length.ok_or(Fault::Untestable)?;
        let padding = [0, 1, 511][self.random.below(3)];
        packed.truncate((length + padding).next_multiple_of(self.copy_align));
        packed[length..].fill(0);
        let source = self.slot(&mut graph, sizes.align_bytes, &packed)?;
        let mut target = self.slot(&mut graph, sizes.align_bytes, &before)?;
        graph.decompress(&source.view, &target.view, kind);
        target.put(&data);
        Ok(whole(graph, format!("{} bytes to {bytes}", packed.len()), target, Some(source)))
    }

    fn row(&mut self, sizes: &Sizes, bytes: usize, parity: u8, columns_max: u16, reconstruct: bool) -> Result<Case, Fault> {
        let parities = usize::from(parity);
        let most = if self.random.chance(20) { usize::from(columns_max) } else { 14.min(usize::from(columns_max)) };
        let count = 1 + self.random.below(most);
        let bytes = bytes.min(self.bytes_max / count.min(16)).max(sizes.min_bytes).max(1);
        let align = sizes.align_bytes.max(1);
        let bytes = bytes.next_multiple_of(align);
        let is_even = self.random.chance(2);
        let mut data = Vec::with_capacity(count);
        for column in 0..count {
            let short = || bytes.saturating_sub(512.max(align)).max(sizes.min_bytes.next_multiple_of(align)).max(1);
            let length = match self.random.below(4) {
                _ if is_even || column == 0 => bytes,
                0 => (1 + self.random.below(bytes)).next_multiple_of(align).clamp(sizes.min_bytes.next_multiple_of(align), bytes),
                1 => short(),
                _ => bytes,
            };
            data.push(Abd::from_slice(&self.content(length)));
        }
        let parity = parity_of(&data, parities).ok_or(Fault::Untestable)?;
        let right_columns: Vec<Abd> = parity.into_iter().chain(data).collect();
        let mut lost: Vec<usize> = (0..parities).collect();
        if reconstruct {
            let missing = 1 + self.random.below(parities.min(right_columns.len()));
            lost = (0..missing).map(|_| self.random.below(right_columns.len())).collect();
            lost.sort_unstable();
            lost.dedup();
        }
        self.row_of(sizes, &right_columns, parities, &lost, reconstruct)
    }

    /// A row in which the lost columns hold something else, to be computed.
    fn row_of(&mut self, sizes: &Sizes, columns: &[Abd], parities: usize, lost: &[usize], reconstruct: bool) -> Result<Case, Fault> {
        let mut graph = Graph::new();
        let mut slots = Vec::with_capacity(columns.len());
        for (index, column) in columns.iter().enumerate() {
            let bytes = if lost.contains(&index) { self.content(column.len()) } else { column.to_vec() };
            let mut slot = self.slot(&mut graph, sizes.align_bytes, &bytes)?;
            slot.put(&column.to_vec());
            slots.push(slot);
        }
        let views = |slots: &[Slot]| slots.iter().map(|slot| slot.view.clone()).collect();
        let row = RaidContext::new(views(&slots[..parities]), views(&slots[parities..]))?;
        if reconstruct {
            graph.raid_reconstruct(&row, lost);
        } else {
            graph.raid_generate(&row);
        }
        let lengths: Vec<usize> = columns.iter().map(Abd::len).take(8).collect();
        let shape = format!("{} columns ({lengths:?}…), missing {lost:?}", columns.len());
        let looks: Vec<NodeId> = slots.iter().map(|slot| slot.look(&mut graph)).collect();
        let lost = lost.to_vec();
        let judge = move |report: &mut Report| {
            for (index, (slot, look)) in slots.iter().zip(looks).enumerate() {
                let otherwise = if lost.contains(&index) { Fault::WrongAnswer } else { Fault::ChangedSource };
                slot.check(report, look, otherwise)?;
            }
            Ok(())
        };
        Ok(Case { graph, shape, judge: Box::new(judge) })
    }
}

/// A case after which all of the slot's buffer must be its image, and that of what is only read.
fn whole(mut graph: Graph, shape: String, slot: Slot, source: Option<Slot>) -> Case {
    let look = slot.look(&mut graph);
    let source = source.map(|source| (source.look(&mut graph), source));
    let judge = move |report: &mut Report| {
        slot.check(report, look, Fault::WrongAnswer)?;
        source.iter().try_for_each(|(look, source)| source.check(report, *look, Fault::ChangedSource))
    };
    Case { graph, shape, judge: Box::new(judge) }
}
