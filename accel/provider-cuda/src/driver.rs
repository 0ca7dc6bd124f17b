//! A real GPU: the driver's library (`libcuda.so.1`), loaded when the provider is made. The functions are those of `cuda.h`.
//!
//! The context is the device's primary one, made current on whatever thread calls. Streams and pinned memory live as long as this
//! does; only ranges of pinned memory that were handed out here are touched. The library stays loaded.
#![expect(unsafe_code, reason = "the boundary to the driver")]

use crate::codec::{Batch, Chunks, Codec};
use crate::gpu::{Gpu, GpuError, Launch, Pinned, Stream};
use crate::jobs::Kernel;
use crate::nvcomp::Nvcomp;
use crate::nvrtc::Nvrtc;
use crate::unavailable::Unavailable;
use dpusm::Sizes;
use exec::Mutex;
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::Path;

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NO_DEVICE: u32 = 100;
const NOT_READY: u32 = 600;
/// Results after which nothing works any more in this process: the device or the context is gone, or a kernel went astray.
const LOST: [u32; 17] = [3, 4, 46, 101, 201, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];
/// Attributes of a device: `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];
/// `CU_STREAM_NON_BLOCKING`: independent of the stream of the process.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: the event takes no time.
const WITHOUT_TIME: c_uint = 2;

type Pointer = *mut c_void;

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*);)*) => {
        /// The functions of the driver that are used.
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    // SAFETY: the types are those that cuda.h gives the functions of these names.
                    $($field: *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> u32>($name.as_bytes()) }?,)*
                })
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut Pointer, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_set = "cuCtxSetCurrent" (Pointer);
    module_load = "cuModuleLoadData" (*mut Pointer, *const c_void);
    module_unload = "cuModuleUnload" (Pointer);
    module_function = "cuModuleGetFunction" (*mut Pointer, Pointer, *const c_char);
    memory_alloc = "cuMemAlloc_v2" (*mut u64, usize);
    memory_free = "cuMemFree_v2" (u64);
    host_alloc = "cuMemHostAlloc" (*mut Pointer, usize, c_uint);
    host_free = "cuMemFreeHost" (Pointer);
    copy_in = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Pointer);
    copy_out = "cuMemcpyDtoHAsync_v2" (Pointer, u64, usize, Pointer);
    fill = "cuMemsetD8Async" (u64, u8, usize, Pointer);
    stream_create = "cuStreamCreate" (*mut Pointer, c_uint);
    stream_wait = "cuStreamSynchronize" (Pointer);
    stream_destroy = "cuStreamDestroy_v2" (Pointer);
    event_create = "cuEventCreate" (*mut Pointer, c_uint);
    event_record = "cuEventRecord" (Pointer, Pointer);
    event_query = "cuEventQuery" (Pointer);
    event_destroy = "cuEventDestroy_v2" (Pointer);
    launch = "cuLaunchKernel" (Pointer, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Pointer, *mut Pointer, *mut Pointer);
}

/// Result that a code stands for.
fn check(call: &'static str, code: u32) -> Result<(), GpuError> {
    match code {
        SUCCESS => Ok(()),
        OUT_OF_MEMORY => Err(GpuError::OutOfMemory),
        code if LOST.contains(&code) => Err(GpuError::Lost { call, code }),
        code => Err(GpuError::Failed { call, code }),
    }
}

/// The first GPU of the machine, with the kernels on it.
pub struct Driver {
    functions: Functions,
    nvcomp: Option<Nvcomp>,
    about: String,
    memory_bytes: u64,
    device: c_int,
    context: Pointer,
    module: Pointer,
    kernels: BTreeMap<Kernel, Pointer>,
    /// Pinned memory: bytes by address.
    pinned: Mutex<BTreeMap<u64, usize>>,
    /// Streams with their events, by number.
    streams: Mutex<Vec<(Pointer, Pointer)>>,
}

// SAFETY: the pointers are the driver's handles, which any thread may use; each call makes the context current on its thread.
unsafe impl Send for Driver {}
// SAFETY: as above; the driver's functions are thread-safe.
unsafe impl Sync for Driver {}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({})", self.about)
    }
}

/// Facts about the first device, by the driver.
struct Found {
    device: c_int,
    name: String,
    memory_bytes: u64,
    architecture: u32,
    driver_version: c_int,
}

impl Functions {
    fn find(&self) -> Result<Found, Unavailable> {
        let failed = |call: &'static str| move |code: u32| check(call, code).map_err(Unavailable::Gpu);
        // SAFETY: the function takes no pointer.
        match unsafe { (self.init)(0) } {
            NO_DEVICE => return Err(Unavailable::NoDevice),
            code => failed("cuInit")(code)?,
        }
        let (mut count, mut device, mut driver_version, mut memory_bytes) = (0, 0, 0, 0usize);
        let mut name = [0; 128];
        let mut capability = [0; 2];
        // SAFETY: each pointer is where the answer goes.
        failed("cuDeviceGetCount")(unsafe { (self.device_count)(&mut count) })?;
        if count == 0 {
            return Err(Unavailable::NoDevice);
        }
        // SAFETY: as above; there is a device 0, and `name` has the length that is said.
        unsafe {
            failed("cuDeviceGet")((self.device_get)(&mut device, 0))?;
            failed("cuDriverGetVersion")((self.driver_version)(&mut driver_version))?;
            failed("cuDeviceTotalMem")((self.device_memory)(&mut memory_bytes, device))?;
            failed("cuDeviceGetName")((self.device_name)(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
            for (value, which) in capability.iter_mut().zip(CAPABILITY) {
                failed("cuDeviceGetAttribute")((self.device_attribute)(value, which, device))?;
            }
        }
        // SAFETY: the last byte is zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let architecture = u32::try_from(capability[0] * 10 + capability[1]).unwrap_or(0);
        Ok(Found { device, name, memory_bytes: memory_bytes as u64, architecture, driver_version })
    }
}

impl Driver {
    /// The first GPU of the machine: loads the driver and NVRTC, compiles the kernels and puts them on the device; loads nvCOMP, if
    /// there is one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(driver: &Path, nvrtc: Option<&Path>, nvcomp: Option<&Path>) -> Result<Driver, Unavailable> {
        // SAFETY: loading runs the library's initializers, as whoever named it wants.
        let library = unsafe { Library::new(driver) }.map_err(Unavailable::Driver)?;
        let functions = Functions::of(&ManuallyDrop::new(library)).map_err(Unavailable::Driver)?;
        let Found { device, name, memory_bytes, architecture, driver_version } = functions.find()?;
        let nvrtc = Nvrtc::load(nvrtc).map_err(Unavailable::Nvrtc)?;
        let image = nvrtc.image(architecture)?;
        let version = format!("{}.{}", driver_version / 1000, driver_version % 1000 / 10);
        let nvcomp = Nvcomp::load(nvcomp, u32::try_from(driver_version / 1000).unwrap_or(0));
        let codecs = nvcomp.as_ref().map_or_else(|why| format!("no gzip and zstd: {why}"), |nvcomp| format!("{nvcomp:?}"));
        let about = format!("{name} (sm_{architecture}), driver for CUDA {version}, {nvrtc:?}, {codecs}");
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is where the handle goes.
        check("cuDevicePrimaryCtxRetain", unsafe { (functions.context_retain)(&mut context, device) }).map_err(Unavailable::Gpu)?;
        let (pinned, streams) = (Mutex::default(), Mutex::default());
        let (module, kernels) = (std::ptr::null_mut(), BTreeMap::new());
        let nvcomp = nvcomp.ok();
        let mut own = Driver { functions, nvcomp, about, memory_bytes, device, context, module, kernels, pinned, streams };
        own.load(&image).map_err(Unavailable::Gpu)?;
        Ok(own)
    }

    fn load(&mut self, image: &[u8]) -> Result<(), GpuError> {
        let functions = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: `module` is where the handle goes; the image is a cubin, or PTX that ends with a zero, as NVRTC makes them.
        check("cuModuleLoadData", unsafe { (functions.module_load)(&mut module, image.as_ptr().cast()) })?;
        self.module = module;
        for kernel in Kernel::ALL {
            let name = format!("{}\0", kernel.name());
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, the name ends with a zero, `function` is where the handle goes.
            let found = unsafe { (self.functions.module_function)(&mut function, self.module, name.as_ptr().cast()) };
            check("cuModuleGetFunction", found)?;
            self.kernels.insert(kernel, function);
        }
        Ok(())
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<&Functions, GpuError> {
        // SAFETY: the context is retained as long as this lives.
        check("cuCtxSetCurrent", unsafe { (self.functions.context_set)(self.context) })?;
        Ok(&self.functions)
    }

    /// The address of a range of pinned memory, if there is such a range.
    fn pinned(&self, memory: Pinned, range: &Range<usize>) -> Result<*mut u8, GpuError> {
        let bytes = self.pinned.lock().get(&memory.0).copied();
        match bytes {
            Some(bytes) if range.start <= range.end && range.end <= bytes => Ok((memory.0 as usize + range.start) as *mut u8),
            _ => Err(GpuError::Failed { call: "pinned memory", code: INVALID_VALUE }),
        }
    }

    /// The library, with the context current on this thread.
    fn library(&self) -> Result<&Nvcomp, GpuError> {
        self.enter()?;
        self.nvcomp.as_ref().ok_or(GpuError::Failed { call: "nvCOMP", code: INVALID_VALUE })
    }

    /// A stream's handle and its event's.
    fn handles(&self, stream: Stream) -> Result<(Pointer, Pointer), GpuError> {
        let found = usize::try_from(stream.0).ok().and_then(|number| self.streams.lock().get(number).copied());
        found.ok_or(GpuError::Failed { call: "stream", code: INVALID_VALUE })
    }
}

impl Gpu for Driver {
    fn about(&self) -> &str {
        &self.about
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn alloc(&self, bytes: usize) -> Result<u64, GpuError> {
        let mut address = 0;
        // SAFETY: `address` is where the address goes.
        check("cuMemAlloc", unsafe { (self.enter()?.memory_alloc)(&mut address, bytes) })?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        if let Ok(functions) = self.enter() {
            // SAFETY: device memory that no work uses, as the trait demands. A failure can only lose it.
            unsafe { (functions.memory_free)(address) };
        }
    }

    fn pin(&self, bytes: usize) -> Result<Pinned, GpuError> {
        let mut address = std::ptr::null_mut();
        // SAFETY: `address` is where the address goes.
        check("cuMemHostAlloc", unsafe { (self.enter()?.host_alloc)(&mut address, bytes, 0) })?;
        // SAFETY: fresh memory of this length, which nobody else knows; after this its bytes are initialized.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        let address = address as usize as u64;
        self.pinned.lock().insert(address, bytes);
        Ok(Pinned(address))
    }

    fn stage(&self, to: Pinned, at: usize, bytes: &[u8]) -> Result<(), GpuError> {
        let target = self.pinned(to, &(at..at.saturating_add(bytes.len())))?;
        // SAFETY: the range is inside pinned memory, which is not the caller's and is given back only when this is dropped.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    fn fetch(&self, from: Pinned, range: Range<usize>, take: &mut dyn FnMut(&[u8])) -> Result<(), GpuError> {
        let source = self.pinned(from, &range)?;
        // SAFETY: the range is inside initialized pinned memory, and no work on it is under way, as the trait demands.
        take(unsafe { std::slice::from_raw_parts(source, range.len()) });
        Ok(())
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        let functions = self.enter()?;
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: `stream` is where the handle goes.
        check("cuStreamCreate", unsafe { (functions.stream_create)(&mut stream, NON_BLOCKING) })?;
        // SAFETY: `event` is where the handle goes.
        if let Err(error) = check("cuEventCreate", unsafe { (functions.event_create)(&mut event, WITHOUT_TIME) }) {
            // SAFETY: the stream was created above and is not used.
            unsafe { (functions.stream_destroy)(stream) };
            return Err(error);
        }
        let mut streams = self.streams.lock();
        streams.push((stream, event));
        Ok(Stream(streams.len() as u64 - 1))
    }

    fn upload(&self, stream: Stream, from: Pinned, range: Range<usize>, to: u64) -> Result<(), GpuError> {
        let (source, (stream, _)) = (self.pinned(from, &range)?, self.handles(stream)?);
        // SAFETY: pinned memory stays; the device checks its own addresses.
        check("cuMemcpyHtoDAsync", unsafe { (self.enter()?.copy_in)(to, source.cast(), range.len(), stream) })
    }

    fn download(&self, stream: Stream, from: u64, to: Pinned, range: Range<usize>) -> Result<(), GpuError> {
        let (target, (stream, _)) = (self.pinned(to, &range)?, self.handles(stream)?);
        // SAFETY: pinned memory stays, and nobody looks at the range until the work is done, as the trait demands.
        check("cuMemcpyDtoHAsync", unsafe { (self.enter()?.copy_out)(target.cast(), from, range.len(), stream) })
    }

    fn zero(&self, stream: Stream, address: u64, bytes: usize) -> Result<(), GpuError> {
        let (stream, _) = self.handles(stream)?;
        // SAFETY: the device checks its own addresses.
        check("cuMemsetD8Async", unsafe { (self.enter()?.fill)(address, 0, bytes, stream) })
    }

    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), GpuError> {
        let (stream, _) = self.handles(stream)?;
        let missing = GpuError::Failed { call: "cuModuleGetFunction", code: INVALID_VALUE };
        let function = *self.kernels.get(&launch.kernel).ok_or(missing)?;
        let (mut jobs, mut count) = (launch.jobs, launch.count);
        let mut arguments: [Pointer; 2] = [(&raw mut jobs).cast(), (&raw mut count).cast()];
        let ([x, y], threads) = (launch.grid.blocks, launch.grid.threads);
        // SAFETY: every kernel takes an address and a number, which the driver copies before it returns; what the jobs name is
        // device memory that stays until the work is done, as the trait demands.
        let started =
            unsafe { (self.enter()?.launch)(function, x, y, 1, threads, 1, 1, 0, stream, arguments.as_mut_ptr(), std::ptr::null_mut()) };
        check("cuLaunchKernel", started)
    }

    fn offers(&self, codec: Codec) -> Option<Sizes> {
        self.nvcomp.as_ref()?.offers(codec)
    }

    fn packed_bytes_max(&self, codec: Codec, bytes: usize) -> Result<usize, GpuError> {
        self.library()?.packed_bytes_max(codec, bytes)
    }

    fn temp_bytes(&self, stream: Stream, chunks: &Chunks) -> Result<usize, GpuError> {
        let (stream, _) = self.handles(stream)?;
        self.library()?.temp_bytes(stream, chunks)
    }

    fn run_batch(&self, stream: Stream, batch: &Batch) -> Result<(), GpuError> {
        let (stream, _) = self.handles(stream)?;
        self.library()?.run_batch(stream, batch)
    }

    fn mark(&self, stream: Stream) -> Result<(), GpuError> {
        let (stream, event) = self.handles(stream)?;
        // SAFETY: both handles live as long as this.
        check("cuEventRecord", unsafe { (self.enter()?.event_record)(event, stream) })
    }

    fn is_done(&self, stream: Stream) -> Result<bool, GpuError> {
        let (_, event) = self.handles(stream)?;
        // SAFETY: the handle lives as long as this.
        match unsafe { (self.enter()?.event_query)(event) } {
            NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    fn drain(&self, stream: Stream) -> Result<(), GpuError> {
        let (stream, _) = self.handles(stream)?;
        // SAFETY: the handle lives as long as this.
        check("cuStreamSynchronize", unsafe { (self.enter()?.stream_wait)(stream) })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let (streams, pinned) = (std::mem::take(&mut *self.streams.lock()), std::mem::take(&mut *self.pinned.lock()));
        let Ok(functions) = self.enter() else { return };
        // SAFETY: each handle is used for the last time, after its stream has nothing to do; failures can only lose them.
        unsafe {
            for (stream, event) in streams {
                (functions.stream_wait)(stream);
                (functions.event_destroy)(event);
                (functions.stream_destroy)(stream);
            }
            for address in pinned.into_keys() {
                (functions.host_free)(address as usize as Pointer);
            }
            if !self.module.is_null() {
                (functions.module_unload)(self.module);
            }
            (functions.context_release)(self.device);
        }
    }
}
