//! One operation as two do it: a provider, with many blocks in flight, and the processors of this machine, all of them at once.
//!
//! A provider's time is that of a block for which it does only this: it gets the bytes, computes, and gives back what it made. So an operation is worth it by
//! itself, whatever a pool gives to the provider besides. The block has zeros, noise and text.

use crate::device::Device;
use crate::graph::{Compress, Graph};
use crate::handle::RaidContext;
use crate::known_answers::FAST_LEVELS;
use crate::submit::ReportFn;
use crate::verify::{checksum, parity_of};
use crate::{Buffer, Feature, OpError, View};
use abd::{Abd, AbdPart};
use exec::{Exec, SplitMix};
use ondisk::Compression;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Data columns of the row that parity is computed of, as far as the provider takes so many.
const DATA_COLUMNS: u16 = 8;
/// Bytes of which sizes of columns are multiples.
const SECTOR: usize = 512;
/// Number of graphs that are submitted at once, one number after the other.
const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];
/// Most bytes of blocks that are in flight.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;
/// Number of slices that no measurement takes if it is to be followed by a larger one.
const LONG_SLICES: u64 = 25;
const SECOND_NS: u128 = 1_000_000_000;

/// Limits of the time that is spent on measuring a provider.
pub(crate) struct Limits {
    /// Time of one measurement after which a larger one follows only where more blocks are faster, in nanoseconds.
    pub(crate) slice_ns: u64,
    /// Time at which nothing is waited for any more, in nanoseconds.
    pub(crate) until_ns: u64,
}

/// Bytes each second, when so many took so long.
fn rate(bytes: usize, took_ns: u64) -> u64 {
    let each_second = bytes as u128 * SECOND_NS / u128::from(took_ns.max(1));
    u64::try_from(each_second).unwrap_or(u64::MAX)
}

/// Keeps the compiler from leaving out what nobody looks at.
fn keep<T>(made: T) {
    std::hint::black_box(made);
}

/// The block that is computed on.
fn sample(bytes: usize) -> Abd {
    let mut random = SplitMix::new(bytes as u64);
    let byte = |at: usize, noise: u8| match at % 4096 {
        0..1024 => 0,
        _ if at % 8 < 2 => noise,
        _ => b'a' + (at % 8) as u8,
    };
    Abd::from_slice(&(0..bytes).map(|at| byte(at, random.next_u64() as u8)).collect::<Vec<u8>>()).to_contiguous()
}

/// An operation on a block of some size.
pub(crate) struct Contest {
    feature: Feature,
    how: Compress,
    block: Abd,
    /// The block as it is stored when it is compressed; as it is for operations that have nothing to do with that.
    packed: Abd,
    /// The columns of the row that the block is, parity first; none for other operations.
    columns: Vec<Abd>,
}

impl Contest {
    /// The operation on a block of `block_bytes` bytes; None for one whose speed says nothing (copies, and what serves others) or depends on disks.
    pub(crate) fn new(feature: &Feature, block_bytes: usize) -> Option<Contest> {
        let block = sample(block_bytes);
        let limit_bytes = block_bytes - block_bytes / 8;
        let how = |kind, level| Compress { kind, level, limit_bytes, round_to_bytes: SECTOR };
        let mut contest = Contest { feature: *feature, how: how(Compression::OFF, 0), packed: block.clone(), block, columns: Vec::new() };
        match *feature {
            Feature::Compress { kind, level_min, level_max } => {
                // The quickest of its levels.
                contest.how = how(kind, if level_min >= FAST_LEVELS { level_max } else { level_min });
            }
            Feature::Decompress { kind } => {
                contest.how = how(kind, 0);
                contest.packed = packed(kind, contest.block.as_contiguous()?)?;
            }
            Feature::Checksum { .. } => {}
            Feature::RaidGenerate { parity, data_columns_max } | Feature::RaidReconstruct { parity, data_columns_max } => {
                contest.columns = row(&contest.block, usize::from(parity), usize::from(data_columns_max.clamp(1, DATA_COLUMNS)))?;
            }
            _ => return None,
        }
        Some(contest)
    }

    /// Bytes of the block.
    fn bytes(&self) -> usize {
        self.block.len()
    }

    /// Bytes of the operand by which a provider says which sizes it takes: the block, or a column of it.
    pub(crate) fn operand_bytes(&self) -> usize {
        self.columns.last().unwrap_or(&self.block).len()
    }

    /// Number of columns of the row that are parity; 0 for other operations.
    fn parities(&self) -> usize {
        match self.feature {
            Feature::RaidGenerate { parity, .. } | Feature::RaidReconstruct { parity, .. } => usize::from(parity),
            _ => 0,
        }
    }

    /// The columns that are lost: as many of the data as there are of parity, and no more than there are.
    fn lost(&self) -> std::ops::Range<usize> {
        let parities = self.parities();
        parities..(2 * parities).min(self.columns.len())
    }

    /// Does the operation once, on this thread.
    fn compute(&self) {
        // What comes of it was compared before: here it only has to be made.
        match self.feature {
            Feature::Compress { .. } => {
                let mut out = AbdPart::scratch(self.how.limit_bytes);
                let made = self.block.as_contiguous().and_then(|block| kernels::compress(self.how.kind, self.how.level, block, &mut out));
                keep(made);
            }
            Feature::Decompress { kind } => {
                let mut out = AbdPart::scratch(self.bytes());
                let made = self.packed.as_contiguous().map(|packed| kernels::decompress(kind, packed, &mut out).is_ok());
                keep(made);
            }
            Feature::Checksum { kind, order } => keep(checksum(kind, order, &self.block)),
            Feature::RaidGenerate { .. } => keep(parity_of(&self.columns[self.parities()..], self.parities())),
            Feature::RaidReconstruct { .. } => keep(self.solve()),
            _ => {}
        }
    }

    /// Computes the lost columns from the others.
    fn solve(&self) -> Option<Vec<AbdPart>> {
        let (lost, parities) = (self.lost(), self.parities());
        let mut made: Vec<AbdPart> = self.columns[lost.clone()].iter().map(|column| AbdPart::scratch(column.len())).collect();
        let known = |index: usize| if lost.contains(&index) { None } else { self.columns[index].as_contiguous() };
        let parity: Vec<Option<&[u8]>> = (0..parities).map(known).collect();
        let data: Vec<Option<&[u8]>> = (parities..self.columns.len()).map(known).collect();
        let mut missing: Vec<&mut [u8]> = made.iter_mut().map(|column| &mut column[..]).collect();
        kernels::raidz::reconstruct(&data, &parity, &mut missing).ok()?;
        Some(made)
    }

    /// Speed of this machine's processors together, in bytes each second, measured for `time_ns` nanoseconds or one block on each. Where no time passes
    /// nothing is quicker.
    pub(crate) fn software_speed(self: &Arc<Self>, exec: &Exec, time_ns: u64) -> u64 {
        if exec.is_inline() {
            return u64::MAX;
        }
        let total = Arc::new(AtomicU64::new(0));
        let one = |_| {
            let (contest, exec_there, total) = (self.clone(), exec.clone(), total.clone());
            let work = move || {
                let begun = exec_there.now_ns();
                let mut blocks = 0;
                loop {
                    contest.compute();
                    blocks += 1;
                    let took = exec_there.now_ns().saturating_sub(begun);
                    if took >= time_ns {
                        total.fetch_add(rate(blocks * contest.bytes(), took), Ordering::Relaxed);
                        return;
                    }
                }
            };
            exec.spawn_operation("z-host-speed", Box::new(work))
        };
        // All of them are started before one is waited for.
        let running: Vec<exec::OperationHandle> = (0..exec.parallelism()).map(one).collect();
        running.into_iter().for_each(exec::OperationHandle::join);
        total.load(Ordering::Relaxed)
    }

    /// Speed of a provider, in bytes each second, with more and more blocks in flight: until it is as fast as `wanted`, or takes longer than a slice and is
    /// hardly faster than with fewer. What fails ends it too.
    pub(crate) fn provider_speed(&self, device: &Device, wanted: u64, limits: &Limits) -> u64 {
        let queue = device.capabilities().queue;
        let at_a_time = (queue.bytes_max / (4 * self.bytes()) as u64).min(queue.graphs_max as u64).max(1);
        let mut best = 0;
        for blocks in BATCHES.into_iter().filter(|blocks| *blocks as u64 <= at_a_time && blocks * self.bytes() <= IN_FLIGHT_BYTES_MAX) {
            let Ok(took_ns) = self.time_of(device, blocks, limits.until_ns) else { break };
            let speed = rate(blocks * self.bytes(), took_ns);
            // A GPU may take long for a block, and no longer for a hundred.
            let is_worth_more = took_ns <= limits.slice_ns || (speed / 3 * 2 > best && took_ns <= LONG_SLICES * limits.slice_ns);
            best = best.max(speed);
            if best >= wanted || !is_worth_more {
                break;
            }
        }
        best
    }

    /// Time that a provider takes for so many blocks at once, in nanoseconds; their memory is part of it.
    fn time_of(&self, device: &Device, blocks: usize, until_ns: u64) -> Result<u64, OpError> {
        let exec = &device.0.exec;
        let begun = exec.now_ns();
        let left_ns = until_ns.saturating_sub(begun);
        if left_ns == 0 {
            return Err(OpError::Timeout);
        }
        let (mut graphs, mut waiting) = (Vec::with_capacity(blocks), Vec::with_capacity(blocks));
        for _ in 0..blocks {
            let (completer, completion) = exec::completion();
            let done: ReportFn = Box::new(move |report| completer.complete(report));
            graphs.push((self.graph(device)?, done));
            waiting.push(completion);
        }
        let outcomes = device.submit_all(graphs, left_ns);
        // All that were taken are waited for, whatever became of the others.
        let mut failed = None;
        for (outcome, completion) in outcomes.into_iter().zip(waiting) {
            let ended = outcome.map_err(|refused| refused.error).and_then(|_| completion.wait(exec).all());
            failed = failed.or(ended.err());
        }
        failed.map_or(Ok(exec.now_ns().saturating_sub(begun)), Err)
    }

    /// {copy in, the operation, copy out} of one block.
    fn graph(&self, device: &Device) -> Result<Graph, OpError> {
        let mut graph = Graph::new();
        let room = |bytes: usize| device.alloc(bytes).map(|buffer: Buffer| buffer.whole());
        let back = |bytes: usize| vec![AbdPart::scratch(bytes)];
        if !self.columns.is_empty() {
            self.add_row(&mut graph, device)?;
            return Ok(graph);
        }
        let source = room(self.packed.len())?;
        graph.copy_in(&self.packed, &source);
        match self.feature {
            Feature::Compress { .. } => {
                let target = room(self.bytes())?;
                let packed = graph.compress(&source, &target, self.how);
                graph.copy_out(packed.result(), back(self.bytes()));
            }
            Feature::Decompress { kind } => {
                let target = room(self.bytes())?;
                graph.decompress(&source, &target, kind);
                graph.copy_out(&target, back(self.bytes()));
            }
            Feature::Checksum { kind, order } => {
                graph.checksum(&source, kind, order);
            }
            _ => return Err(OpError::NotImplemented),
        }
        Ok(graph)
    }

    /// {copy in of the columns that are there, parity or what is lost, copy out of what was made}.
    fn add_row(&self, graph: &mut Graph, device: &Device) -> Result<(), OpError> {
        let mut views: Vec<View> = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            views.push(device.alloc(column.len())?.whole());
        }
        let is_rebuilt = matches!(self.feature, Feature::RaidReconstruct { .. });
        let made = if is_rebuilt { self.lost() } else { 0..self.parities() };
        for (index, (column, view)) in self.columns.iter().zip(&views).enumerate() {
            if !made.contains(&index) {
                graph.copy_in(column, view);
            }
        }
        let row = RaidContext::new(views[..self.parities()].to_vec(), views[self.parities()..].to_vec())?;
        if is_rebuilt {
            graph.raid_reconstruct(&row, &made.clone().collect::<Vec<usize>>());
        } else {
            graph.raid_generate(&row);
        }
        for view in &views[made] {
            graph.copy_out(view, vec![AbdPart::scratch(view.len())]);
        }
        Ok(())
    }
}

/// A block as it is stored compressed, with padding; None when it does not shrink.
fn packed(kind: Compression, block: &[u8]) -> Option<Abd> {
    let mut out = vec![0; block.len()];
    let length = kernels::compress(kind, 0, block, &mut out)?;
    out.truncate(length.next_multiple_of(SECTOR));
    out[length..].fill(0);
    Some(Abd::from_slice(&out).to_contiguous())
}

/// The columns of a row that a block is, parity first.
fn row(block: &Abd, parities: usize, data_columns: usize) -> Option<Vec<Abd>> {
    let column_bytes = block.len() / data_columns / SECTOR * SECTOR;
    let data: Vec<Abd> =
        (0..data_columns).map(|column| block.slice(column * column_bytes..(column + 1) * column_bytes).to_contiguous()).collect();
    Some(parity_of(&data, parities)?.into_iter().chain(data).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::{ByteOrder, Checksum};

    /// An operation of which the host only seems to do something is infinitely fast there, and no accelerator is ever used.
    #[test]
    fn the_host_computes_what_it_is_measured_at() {
        let rebuilt = Contest::new(&Feature::RaidReconstruct { parity: 2, data_columns_max: 5 }, 16 << 10).unwrap();
        assert_eq!((rebuilt.columns.len(), rebuilt.lost()), (7, 2..4));
        let made = rebuilt.solve().unwrap();
        for (column, wanted) in made.into_iter().zip(&rebuilt.columns[2..4]) {
            assert!(column.freeze() == *wanted);
        }
        for kind in kernels::COMPRESSIONS {
            let contest = Contest::new(&Feature::Decompress { kind }, 16 << 10).unwrap();
            let stored = contest.packed.len();
            assert!(stored < contest.bytes(), "{kind}: the sample shrinks");
            let mut out = vec![0; contest.bytes()];
            kernels::decompress(kind, contest.packed.as_contiguous().unwrap(), &mut out).unwrap();
            assert!(Abd::from_slice(&out) == contest.block, "{kind}");
        }
        assert!(Contest::new(&Feature::ZeroFill, 16 << 10).is_none());
        let sum = Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little };
        let exec: Exec = Arc::new(exec::Pool::new(2));
        let speed = Arc::new(Contest::new(&sum, 16 << 10).unwrap()).software_speed(&exec, 1_000_000);
        assert!(speed > 0 && speed < u64::MAX);
    }
}
