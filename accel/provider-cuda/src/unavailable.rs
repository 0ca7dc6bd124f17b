//! Why there is no GPU to use, and what people can do about that. What goes wrong later, on a GPU that is there, is a [`GpuError`].

use crate::gpu::GpuError;
use dpusm::OpError;
use std::fmt;

/// Reason why there is no GPU to use.
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
        /// Words of NVRTC.
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
    /// Advice on what to do about it.
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
