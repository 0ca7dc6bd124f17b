//! A GPU as a [`Provider`]: what it offers, its memory, and programs for its engine. How programs become work on the device only the engine
//! knows.

use crate::codec::{self, BLOCK_BYTES_MAX};
use crate::driver::Driver;
use crate::engine::{Batching, Engine};
use crate::gpu::Gpu;
use crate::heap::{self, DeviceMemory};
use crate::options::CudaOptions;
use crate::unavailable::Unavailable;
use dpusm::{Capabilities, Capability, DeviceHandle, Feature, MemoryStats, OpError, Program, Provider, QueueLimits, Sizes};
use exec::Exec;
use ondisk::{ByteOrder, Checksum, Compression};
use std::fmt;
use std::sync::Arc;

/// The provider's name, which is also what `zirconia provider load` takes.
pub const NAME: &str = "cuda";
/// See the crate.
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

/// Features that the kernels have.
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
