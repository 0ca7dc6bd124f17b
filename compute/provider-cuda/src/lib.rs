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
mod step;
mod streams;

pub use codec::{Batch, Chunks, Codec};
pub use driver::Driver;
pub use engine::Batching;
pub use gpu::{Gpu, GpuError, Launch, Pinned, Stream};
pub use jobs::{
    ANSWER_BYTES, Column, CombineJob, DifferJob, Grid, Kernel, LZ4_SCRATCH, LZ4_SEGMENT, PackJob, RaidJob, SumJob, UNWRAP_BYTES, UnpackJob,
    UnwrapJob, WrapJob,
};
pub use nvcomp::{Nvcomp, NvcompMissing};
pub use nvrtc::{Compiled, Nvrtc};

use dpusm::{Capabilities, Capability, DeviceHandle, Feature, MemoryStats, OpError, Program, Provider, QueueLimits, Sizes};
use engine::Engine;
use exec::Exec;
use heap::DeviceMemory;
use ondisk::{ByteOrder, Checksum, Compression};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The kernels' source.
pub const KERNELS: &str = include_str!("kernels.cu");
/// The provider's name, which is also what `zirconia provider load` takes.
pub const NAME: &str = "cuda";
/// Largest block, as in the on-disk format.
const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Where the libraries are, and how the provider works.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The driver's library, by name or path.
    pub driver: PathBuf,
    /// The compiler's library; if none, the usual names are tried.
    pub nvrtc: Option<PathBuf>,
    /// nvCOMP's library; if none, the usual names are tried.
    pub nvcomp: Option<PathBuf>,
    /// Most device memory, in bytes; None: three quarters of what there is.
    pub memory_bytes_max: Option<u64>,
    /// How work is put together.
    pub batching: Batching,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        let driver = "libcuda.so.1".into();
        CudaOptions { driver, nvrtc: None, nvcomp: None, memory_bytes_max: None, batching: Batching::default() }
    }
}

impl CudaOptions {
    /// The defaults, with libraries at other places as the environment says: `ZIRCONIA_CUDA_DRIVER`, `ZIRCONIA_NVRTC`,
    /// `ZIRCONIA_NVCOMP`.
    pub fn from_environment() -> CudaOptions {
        let (named, usual) = (|name| std::env::var_os(name).map(PathBuf::from), CudaOptions::default());
        let driver = named("ZIRCONIA_CUDA_DRIVER").unwrap_or(usual.driver);
        CudaOptions { driver, nvrtc: named("ZIRCONIA_NVRTC"), nvcomp: named("ZIRCONIA_NVCOMP"), ..usual }
    }
}

/// Why there is no GPU to use.
#[derive(Debug)]
pub enum Unavailable {
    /// The driver's library is not there, or lacks a function.
    Driver(libloading::Error),
    /// There is no device.
    NoDevice,
    /// The compiler's library is not there, or lacks a function.
    Nvrtc(libloading::Error),
    /// The kernels could not be compiled for the device.
    Kernels {
        /// What NVRTC said.
        log: String,
    },
    /// A call failed.
    Gpu(GpuError),
    /// The device has not the memory that the provider needs.
    Memory(OpError),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Driver(error) => write!(f, "not available: the NVIDIA driver cannot be loaded: {error}"),
            Unavailable::NoDevice => f.write_str("not available: the NVIDIA driver finds no GPU"),
            Unavailable::Nvrtc(error) => write!(f, "not available: the CUDA compiler NVRTC cannot be loaded: {error}"),
            Unavailable::Kernels { log } => write!(f, "not available: the kernels cannot be compiled for this GPU: {}", log.trim()),
            Unavailable::Gpu(error) => write!(f, "not available: {error}"),
            Unavailable::Memory(error) => write!(f, "not available: no memory for the provider's own buffers: {error}"),
        }
    }
}
impl std::error::Error for Unavailable {}

impl Unavailable {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Unavailable::Driver(_) => {
                "install the NVIDIA driver of this machine's GPU ('nvidia-smi' must find it), or name its library in ZIRCONIA_CUDA_DRIVER; \
                 without a GPU use provider 'software'"
            }
            Unavailable::NoDevice => {
                "'nvidia-smi' must list a GPU; in a container, it has to be passed in; without a GPU use provider 'software'"
            }
            Unavailable::Nvrtc(_) => {
                "install NVRTC ('pip install nvidia-cuda-nvrtc-cu12', or the CUDA toolkit) and name its library, libnvrtc.so.12, in ZIRCONIA_NVRTC"
            }
            Unavailable::Kernels { .. } => "use an NVRTC that knows this GPU (ZIRCONIA_NVRTC)",
            Unavailable::Gpu(_) | Unavailable::Memory(_) => "'nvidia-smi' shows the state of the GPU and who uses its memory",
        }
    }
}

/// See the module.
pub struct Cuda {
    about: String,
    engine: Arc<Engine>,
    batching: Batching,
    memory_bytes_max: u64,
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({})", self.about)
    }
}

impl Cuda {
    /// The provider on the first GPU of this machine. Loads the driver and the compiler, and compiles the kernels: takes seconds.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(exec: &Exec, options: &CudaOptions) -> Result<Arc<Cuda>, Unavailable> {
        let driver = Driver::open(&options.driver, options.nvrtc.as_deref(), options.nvcomp.as_deref())?;
        Cuda::on(exec, Arc::new(driver), options).map_err(Unavailable::Memory)
    }

    /// The provider on any GPU.
    ///
    /// # Errors
    /// `NoMemory`, or what else went wrong when its own memory was allocated.
    pub fn on(exec: &Exec, gpu: Arc<dyn Gpu>, options: &CudaOptions) -> Result<Arc<Cuda>, OpError> {
        let memory_bytes_max = options.memory_bytes_max.unwrap_or(gpu.memory_bytes() / 4 * 3);
        let about = gpu.about().to_string();
        let engine = Engine::new(exec, gpu, options.batching, memory_bytes_max)?;
        Ok(Arc::new(Cuda { about, engine, batching: options.batching, memory_bytes_max }))
    }

    /// True when the device is gone.
    pub fn is_lost(&self) -> bool {
        self.engine.is_lost()
    }
}

/// What the kernels can do.
fn features() -> Vec<Feature> {
    let mut list = vec![Feature::CopyIn { scatter: true }, Feature::CopyOut { scatter: true }];
    list.extend([Feature::ZeroFill, Feature::ZeroTest, Feature::Compare]);
    list.push(Feature::Compress { kind: Compression::LZ4, level_min: 0, level_max: 0 });
    list.push(Feature::Decompress { kind: Compression::LZ4 });
    for kind in [Checksum::FLETCHER_2, Checksum::FLETCHER_4, Checksum::SHA256] {
        list.extend([ByteOrder::Little, ByteOrder::Big].map(|order| Feature::Checksum { kind, order }));
    }
    for parity in 1..=dpusm::PARITY_MAX as u8 {
        let data_columns_max = dpusm::DATA_COLUMNS_MAX as u16;
        list.extend([Feature::RaidGenerate { parity, data_columns_max }, Feature::RaidReconstruct { parity, data_columns_max }]);
    }
    list
}

impl Provider for Cuda {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        &self.about
    }

    fn capabilities(&self) -> Capabilities {
        let sizes = |feature: &Feature| match feature {
            Feature::CopyIn { .. } | Feature::CopyOut { .. } => Sizes { max_bytes: self.batching.staging_bytes, ..Sizes::ANY },
            Feature::Compress { .. } | Feature::Decompress { .. } => Sizes { max_bytes: BLOCK_BYTES_MAX, ..Sizes::ANY },
            _ => Sizes::ANY,
        };
        let own = features().into_iter().map(|feature| Capability { feature, sizes: sizes(&feature) });
        let offered = |(feature, by)| Some(Capability { feature, sizes: codec::sizes(self.engine.gpu.offers(by)?) });
        let list = own.chain(codec::features().into_iter().filter_map(offered)).collect();
        let queue = QueueLimits { graphs_max: self.batching.queue_max, bytes_max: self.memory_bytes_max / 2 };
        Capabilities { list, queue }
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.engine.heap.alloc(bytes).map(heap::handle)
    }

    fn free(&self, handle: DeviceHandle) {
        if let Some(memory) = handle.into_own::<DeviceMemory>() {
            self.engine.heap.free(memory);
        }
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        self.engine.submit(programs)
    }

    fn memory(&self) -> Option<MemoryStats> {
        Some(self.engine.heap.stats())
    }

    fn shut_down(&self) {
        self.engine.shut_down();
    }
}
