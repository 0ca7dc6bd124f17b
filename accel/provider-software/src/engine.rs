//! One operation of a program at a time, computed by `kernels` on snapshots of device memory.

use crate::memory::{CopyMode, DeviceMemory, Heap};
use abd::{Abd, AbdPart};
use dpusm::{
    Compress, DeviceHandle, HostStore, MemoryStats, NodeResult, Op, OpError, Operand, Outcome, Program, RaidContext, StoreTarget, View,
};
use ondisk::Compression;
use std::sync::Arc;

type Answer = Result<Outcome, OpError>;
/// Called with the answer of an operation that the host carries out.
pub type Answered = Box<dyn FnOnce(Answer) + Send>;

/// Outcome of carrying out an operation.
pub enum Step {
    /// The operation is done.
    Done(Answer),
    /// The host does it: call this with where the answer goes, which may be called at once.
    Host(Box<dyn FnOnce(Answered) + Send>),
}

/// Device memory and the operations on it.
pub struct Engine {
    heap: Heap,
}

/// Store as it is here: the host's way to it.
struct HostPath(Arc<dyn HostStore>);

impl Engine {
    /// An engine with at most `memory_bytes_max` bytes of device memory.
    pub fn new(mode: CopyMode, memory_bytes_max: u64) -> Arc<Engine> {
        Arc::new(Engine { heap: Heap::new(memory_bytes_max, mode) })
    }

    /// Allocates device memory.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.heap.alloc(bytes)
    }

    /// Gives device memory back.
    pub fn free(&self, handle: DeviceHandle) {
        self.heap.free(handle);
    }

    /// Opens a file or disk.
    ///
    /// # Errors
    /// None.
    pub fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        Ok(DeviceHandle::new(HostPath(target.host.clone())))
    }

    /// Counts of device memory.
    pub fn memory(&self) -> MemoryStats {
        self.heap.stats()
    }

    /// The bytes of a view as they are now, without a copy.
    ///
    /// # Errors
    /// `Mismatch` for a view of another provider.
    pub fn snapshot(view: &View) -> Result<Abd, OpError> {
        memory(view)?.snapshot(view.offset()..view.offset() + view.len())
    }

    /// Puts `bytes` into device memory from the start of a view on.
    ///
    /// # Errors
    /// `Mismatch` for a view of another provider, `Invalid` when they do not fit.
    pub fn put(view: &View, bytes: Abd) -> Result<(), OpError> {
        memory(view)?.put(view.offset(), bytes)
    }

    /// Carries out a node, given the results of those before it.
    pub fn step(&self, program: &Program, node: usize, results: &[NodeResult]) -> Step {
        match self.try_step(program, node, results) {
            Ok(step) => step,
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn try_step(&self, program: &Program, node: usize, results: &[NodeResult]) -> Result<Step, OpError> {
        let bytes = |operand: &Operand| Self::snapshot(&program.resolve(operand, results)?);
        let outcome = match &program.nodes()[node] {
            Op::CopyIn { target } => {
                let source = program.source(node)?;
                memory(target)?.copy_in(target.offset(), &source)?;
                Outcome::Done
            }
            Op::CopyOut { source } => {
                let data = bytes(source)?;
                let mut parts = program.take_target(node)?;
                copy_out(&data, &mut parts);
                Outcome::Copied { parts, bytes: data.len() }
            }
            Op::ZeroFill { target } => {
                let view = program.resolve(target, results)?;
                Self::put(&view, Abd::zeroed(view.len()))?;
                Outcome::Done
            }
            Op::ZeroTest { source } => Outcome::Flag(bytes(source)?.is_zero()),
            Op::Compress { source, target, how } => Outcome::Compressed(compress(source, target, how)?),
            Op::Decompress { source, target, kind } => decompress(source, target, *kind)?,
            Op::Checksum { source, kind, order } => {
                let data = bytes(source)?;
                let runs: Vec<&[u8]> = data.chunks().collect();
                Outcome::Checksum(kernels::checksum(*kind, &runs, *order).map_err(|_| OpError::NotImplemented)?)
            }
            Op::RaidGenerate { row } => generate(row)?,
            Op::RaidReconstruct { row, targets } => reconstruct(row, targets)?,
            Op::Compare { left, right } => Outcome::Flag(Self::snapshot(left)? != Self::snapshot(right)?),
            Op::Store { source, store, offset } => {
                let data = bytes(source)?;
                let host = host(store.handle())?;
                let (written, offset) = (data.len() as u64, *offset);
                return Ok(Step::Host(Box::new(move |answered| {
                    let done =
                        Box::new(move |outcome: Result<(), i32>| answered(outcome.map(|()| Outcome::Stored(written)).map_err(OpError::Io)));
                    host.write(offset, data, done);
                })));
            }
            Op::Load { target, store, offset } => {
                let (host, target, offset) = (host(store.handle())?, target.clone(), *offset);
                return Ok(Step::Host(Box::new(move |answered| {
                    let bytes = target.len();
                    let put = move |data: Abd| if data.len() == bytes { Self::put(&target, data) } else { Err(OpError::BadResult) };
                    let done = move |read: Result<Abd, i32>| answered(read.map_err(OpError::Io).and_then(put).map(|()| Outcome::Done));
                    host.read(offset, bytes, Box::new(done));
                })));
            }
            Op::Flush { store } => {
                let host = host(store.handle())?;
                return Ok(Step::Host(Box::new(move |answered| {
                    host.flush(Box::new(move |outcome| answered(outcome.map(|()| Outcome::Done).map_err(OpError::Io))));
                })));
            }
        };
        Ok(Step::Done(Ok(outcome)))
    }
}

fn memory(view: &View) -> Result<&DeviceMemory, OpError> {
    view.handle().get().ok_or(OpError::Mismatch)
}

fn host(handle: &DeviceHandle) -> Result<Arc<dyn HostStore>, OpError> {
    handle.get::<HostPath>().map(|path| path.0.clone()).ok_or(OpError::Mismatch)
}

fn copy_out(data: &Abd, parts: &mut [AbdPart]) {
    let mut at = 0;
    for part in parts {
        let count = part.len().min(data.len() - at);
        if count == part.len() {
            part.copy_from_abd(&data.slice(at..at + count));
        } else {
            part.copy_at(0, &data.slice(at..at + count).to_vec());
        }
        at += count;
    }
}

/// Compressed bytes of a block within `room_bytes`, when that is worth it.
pub fn compressed(block: &Abd, room_bytes: usize, how: &Compress) -> Option<Abd> {
    let block = block.to_contiguous();
    let mut out = AbdPart::scratch(how.limit_bytes.min(room_bytes));
    let length = kernels::compress(how.kind, how.level, block.as_contiguous()?, &mut out)?;
    how.is_worth(length, block.len()).then(|| out.freeze().slice(0..length))
}

fn compress(source: &View, target: &View, how: &Compress) -> Result<Option<usize>, OpError> {
    let Some(packed) = compressed(&Engine::snapshot(source)?, target.len(), how) else { return Ok(None) };
    let length = packed.len();
    Engine::put(target, packed)?;
    Ok(Some(length))
}

fn decompress(source: &View, target: &View, kind: Compression) -> Result<Outcome, OpError> {
    let packed = Engine::snapshot(source)?.to_contiguous();
    let mut out = AbdPart::scratch(target.len());
    let bytes = packed.as_contiguous().ok_or(OpError::Failed)?;
    kernels::decompress(kind, bytes, &mut out).map_err(|_| OpError::Failed)?;
    Engine::put(target, out.freeze())?;
    Ok(Outcome::Done)
}

fn columns(views: &[View]) -> Result<Vec<Abd>, OpError> {
    views.iter().map(|view| Ok(Engine::snapshot(view)?.to_contiguous())).collect()
}

fn slices(columns: &[Abd]) -> Result<Vec<&[u8]>, OpError> {
    columns.iter().map(|column| column.as_contiguous().ok_or(OpError::Failed)).collect()
}

fn generate(row: &RaidContext) -> Result<Outcome, OpError> {
    let data = columns(row.data())?;
    let mut parity: Vec<AbdPart> = row.parity().iter().map(|column| AbdPart::scratch(column.len())).collect();
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
    kernels::raidz::generate(&slices(&data)?, &mut targets).map_err(|_| OpError::NotSupported)?;
    for (view, made) in row.parity().iter().zip(parity) {
        Engine::put(view, made.freeze())?;
    }
    Ok(Outcome::Done)
}

/// Missing data columns from the others, then missing parity columns from the data.
fn reconstruct(row: &RaidContext, targets: &[usize]) -> Result<Outcome, OpError> {
    let parities = row.parities();
    let all = columns(row.columns())?;
    let bytes = slices(&all)?;
    let known = |index: usize| (!targets.contains(&index)).then(|| bytes[index]);
    let parity: Vec<Option<&[u8]>> = (0..parities).map(known).collect();
    let data: Vec<Option<&[u8]>> = (parities..all.len()).map(known).collect();
    let lost: Vec<usize> = targets.iter().copied().filter(|index| *index >= parities).collect();
    let mut made: Vec<AbdPart> = lost.iter().map(|index| AbdPart::scratch(bytes[*index].len())).collect();
    if !lost.is_empty() {
        let mut missing: Vec<&mut [u8]> = made.iter_mut().map(|column| &mut column[..]).collect();
        kernels::raidz::reconstruct(&data, &parity, &mut missing).map_err(|_| OpError::NotSupported)?;
    }
    for (index, column) in lost.iter().zip(made) {
        Engine::put(&row.columns()[*index], column.freeze())?;
    }
    let lost_parity: Vec<usize> = targets.iter().copied().filter(|index| *index < parities).collect();
    if lost_parity.is_empty() {
        return Ok(Outcome::Done);
    }
    let data = columns(row.data())?;
    let mut again: Vec<AbdPart> = row.parity().iter().map(|column| AbdPart::scratch(column.len())).collect();
    let mut outputs: Vec<&mut [u8]> = again.iter_mut().map(|column| &mut column[..]).collect();
    kernels::raidz::generate(&slices(&data)?, &mut outputs).map_err(|_| OpError::NotSupported)?;
    for (index, column) in again.into_iter().enumerate().filter(|(index, _)| lost_parity.contains(index)) {
        Engine::put(&row.columns()[index], column.freeze())?;
    }
    Ok(Outcome::Done)
}
