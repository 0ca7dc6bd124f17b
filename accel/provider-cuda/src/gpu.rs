//! Port: what the provider needs of a GPU. [`crate::Driver`] is a real one; the tests have one that computes in Rust.
//!
//! Work is put on streams and done later, each stream's in order; of two streams nothing is said. Memory is that of the device
//! (addresses) or the host's, *pinned*: the device reads and writes it while work is under way, so it may be touched by
//! [`Gpu::stage`] and [`Gpu::fetch`] only when no work on it is. Pinned memory and streams live as long as the GPU.
//!
//! The addresses in jobs are believed: whoever launches a kernel answers for them.

use crate::codec::{Batch, Chunks, Codec};
use crate::jobs::{Grid, Kernel};
use dpusm::{OpError, Sizes};
use std::fmt;
use std::ops::Range;

/// Reason why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuError {
    /// The device has no memory left.
    OutOfMemory,
    /// The call failed, and only it.
    Failed {
        /// The function, of the driver or of nvCOMP.
        call: &'static str,
        /// Result of the call (`CUresult`, `nvcompStatus_t`).
        code: u32,
    },
    /// The device, or what this process has on it, is gone: everything fails from now on.
    Lost {
        /// The driver's function that told.
        call: &'static str,
        /// Result of the call (`CUresult`).
        code: u32,
    },
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuError::OutOfMemory => f.write_str("the device has no memory left"),
            GpuError::Failed { call, code } => write!(f, "{call} failed (error {code})"),
            GpuError::Lost { call, code } => write!(f, "the device is lost: {call} failed (CUDA error {code})"),
        }
    }
}
impl std::error::Error for GpuError {}

impl From<GpuError> for OpError {
    fn from(error: GpuError) -> OpError {
        match error {
            GpuError::OutOfMemory => OpError::NoMemory,
            GpuError::Failed { .. } => OpError::Failed,
            GpuError::Lost { .. } => OpError::Down,
        }
    }
}

/// Pinned host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pinned(pub u64);

/// A stream, with the one mark that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u64);

/// A kernel on its way.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Kernel to run.
    pub kernel: Kernel,
    /// Threads that run it.
    pub grid: Grid,
    /// Address of the jobs.
    pub jobs: u64,
    /// Number of jobs.
    pub count: u32,
}

/// A GPU. Thread-safe; no call waits for work, but for [`Gpu::drain`].
pub trait Gpu: Send + Sync {
    /// The device and its software, for people.
    fn about(&self) -> &str;

    /// Bytes of its memory.
    fn memory_bytes(&self) -> u64;

    /// Device memory, aligned for anything.
    ///
    /// # Errors
    /// `OutOfMemory`, or what the driver says.
    fn alloc(&self, bytes: usize) -> Result<u64, GpuError>;

    /// Gives device memory back, which no work uses any more.
    fn free(&self, address: u64);

    /// Allocates pinned host memory.
    ///
    /// # Errors
    /// As [`Gpu::alloc`].
    fn pin(&self, bytes: usize) -> Result<Pinned, GpuError>;

    /// Copies to pinned memory, now.
    ///
    /// # Errors
    /// `Failed` when it does not fit.
    fn stage(&self, to: Pinned, at: usize, bytes: &[u8]) -> Result<(), GpuError>;

    /// Shows bytes of pinned memory to `take`, now.
    ///
    /// # Errors
    /// `Failed` when there are no such bytes.
    fn fetch(&self, from: Pinned, range: Range<usize>, take: &mut dyn FnMut(&[u8])) -> Result<(), GpuError>;

    /// Makes a stream.
    ///
    /// # Errors
    /// What the driver says.
    fn stream(&self) -> Result<Stream, GpuError>;

    /// Copies from pinned memory to the device.
    ///
    /// # Errors
    /// What the driver says; then nothing is done.
    fn upload(&self, stream: Stream, from: Pinned, range: Range<usize>, to: u64) -> Result<(), GpuError>;

    /// Copies from the device to pinned memory.
    ///
    /// # Errors
    /// What the driver says; then nothing is done.
    fn download(&self, stream: Stream, from: u64, to: Pinned, range: Range<usize>) -> Result<(), GpuError>;

    /// Writes zeros to device memory.
    ///
    /// # Errors
    /// What the driver says; then nothing is done.
    fn zero(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), GpuError>;

    /// Starts a kernel.
    ///
    /// # Errors
    /// What the driver says; then nothing is done.
    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), GpuError>;

    /// Sizes of the blocks that its library compresses or decompresses so; None: it does not, or there is no library.
    fn offers(&self, codec: Codec) -> Option<Sizes>;

    /// Room in bytes that compressing a block of `bytes` bytes needs, which may be more than it has.
    ///
    /// # Errors
    /// What the library says.
    fn packed_bytes_max(&self, codec: Codec, bytes: usize) -> Result<usize, GpuError>;

    /// Memory in bytes that the library wants for a batch.
    ///
    /// # Errors
    /// What the library says.
    fn temp_bytes(&self, stream: Stream, chunks: &Chunks) -> Result<usize, GpuError>;

    /// Starts a batch. What is decompressed must be well-formed.
    ///
    /// # Errors
    /// What the library says; then something may have been done, and what is written is void.
    fn run_batch(&self, stream: Stream, batch: &Batch) -> Result<(), GpuError>;

    /// Marks the work that the stream has.
    ///
    /// # Errors
    /// What the driver says; then the mark is where it was.
    fn mark(&self, stream: Stream) -> Result<(), GpuError>;

    /// True when everything before the mark is done.
    ///
    /// # Errors
    /// `Lost` when work failed; else what the driver says.
    fn is_done(&self, stream: Stream) -> Result<bool, GpuError>;

    /// Waits until the stream has nothing to do: only after something else failed.
    ///
    /// # Errors
    /// `Lost` when work failed; else what the driver says.
    fn drain(&self, stream: Stream) -> Result<(), GpuError>;
}
