//! GPUs of NVIDIA as a provider: fletcher2/4, sha256, RAID-Z, zero tests, comparisons and LZ4 by kernels of our own (`kernels.cu`),
//! gzip and zstd by NVIDIA's library nvCOMP where that is installed.
//!
//! Nothing of CUDA is needed to build this: the driver (`libcuda.so.1`) and the run-time compiler (NVRTC) are loaded when the provider
//! is made, which compiles the kernels for the device that is there. Without them it is [`Unavailable`], which says what is missing
//! and what to do. Without nvCOMP the provider lacks gzip and zstd, and its version says why.
//!
//! Work is batched ([`Batching`]): programs run in waves, each on a stream with pinned staging memory, and an operation of all programs
//! of a wave is one launch. An operation that needs an answer (a compressed length) waits for the wave's next step. Every failed call
//! is an error of the operations concerned; a lost device ends everything with `Down`.
//!
//! [`Gpu`] is the port to the device: [`Driver`] in production, a model of one in the tests.
//!
//! Invariants: no job waits for the device; no memory is given back while work may use it; the only code with `unsafe` is that which
//! calls the libraries (`driver.rs`, `nvrtc.rs`, `nvcomp.rs`).

mod codec;
mod driver;
mod engine;
mod gpu;
mod heap;
mod jobs;
mod matrix;
mod nvcomp;
mod nvrtc;
mod options;
mod provider;
mod step;
mod streams;
mod unavailable;

pub use codec::{Batch, Chunks, Codec};
pub use driver::Driver;
pub use engine::Batching;
pub use gpu::{Gpu, GpuError, Launch, Pinned, Stream};
pub use jobs::{
    ANSWER_BYTES, Column, CombineJob, DifferJob, Grid, Kernel, LZ4_SCRATCH, LZ4_SEGMENT, PackJob, RaidJob, SumJob, UNWRAP_BYTES, UnpackJob,
    UnwrapJob, WrapJob,
};
pub use nvcomp::{Nvcomp, NvcompMissing};
pub use nvrtc::{Compiled, KERNELS, Nvrtc};
pub use options::CudaOptions;
pub use provider::{Cuda, NAME};
pub use unavailable::Unavailable;
