//! Where the libraries of NVIDIA are, and how the provider works: what its users choose. Nothing is loaded here.

use crate::engine::Batching;
use std::path::PathBuf;

/// Paths of the libraries, and limits by which the provider works.
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
    /// Limits by which work is put together.
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
