//! NVRTC, the compiler of CUDA as a library, loaded when it is needed: kernels become code for the device that is there.
//!
//! The library stays loaded. The tables of functions are those of `nvrtc.h`.
#![expect(unsafe_code, reason = "the boundary to NVRTC")]

use crate::jobs::Kernel;
use crate::unavailable::Unavailable;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

/// Source of the kernels.
pub const KERNELS: &str = include_str!("kernels.cu");
/// Names of the library, newest first.
const LIBRARIES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];

type Program = *mut c_void;
type Sized = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Filled = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// Functions of the compiler's library.
pub struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    arch_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    archs: unsafe extern "C" fn(*mut c_int) -> c_int,
    create: unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log_size: Sized,
    log: Filled,
    ptx_size: Sized,
    ptx: Filled,
    cubin_size: Sized,
    cubin: Filled,
}

/// Code that compiling gave.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// Code for any device from the architecture on, as text that ends with a zero.
    pub ptx: Vec<u8>,
    /// Code for exactly the architecture.
    pub cubin: Vec<u8>,
    /// Remarks of the compiler.
    pub log: String,
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version();
        write!(f, "NVRTC {major}.{minor}")
    }
}

/// One function of a library that stays loaded.
fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, libloading::Error> {
    // SAFETY: `T` is the type that nvrtc.h gives the function of this name, at the only places that call this.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|found| *found)
}

impl Nvrtc {
    /// Loads the library at `path`, or the newest one that is installed.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn load(path: Option<&Path>) -> Result<Nvrtc, libloading::Error> {
        let candidates: Vec<&Path> = match path {
            Some(path) => vec![path],
            None => LIBRARIES.iter().map(Path::new).collect(),
        };
        let mut failed = None;
        for candidate in candidates {
            // SAFETY: loading runs the library's initializers, as whoever named it wants.
            match unsafe { Library::new(candidate) } {
                Ok(library) => return Nvrtc::of(&ManuallyDrop::new(library)),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(libloading::Error::DlOpenUnknown))
    }

    fn of(library: &Library) -> Result<Nvrtc, libloading::Error> {
        Ok(Nvrtc {
            version: symbol(library, "nvrtcVersion")?,
            arch_count: symbol(library, "nvrtcGetNumSupportedArchs")?,
            archs: symbol(library, "nvrtcGetSupportedArchs")?,
            create: symbol(library, "nvrtcCreateProgram")?,
            compile: symbol(library, "nvrtcCompileProgram")?,
            destroy: symbol(library, "nvrtcDestroyProgram")?,
            log_size: symbol(library, "nvrtcGetProgramLogSize")?,
            log: symbol(library, "nvrtcGetProgramLog")?,
            ptx_size: symbol(library, "nvrtcGetPTXSize")?,
            ptx: symbol(library, "nvrtcGetPTX")?,
            cubin_size: symbol(library, "nvrtcGetCUBINSize")?,
            cubin: symbol(library, "nvrtcGetCUBIN")?,
        })
    }

    /// Version of the compiler, major and minor.
    pub fn version(&self) -> (i32, i32) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are where the numbers go.
        unsafe { (self.version)(&mut major, &mut minor) };
        (major, minor)
    }

    /// The architectures that it compiles for, ascending: 90 is `sm_90`.
    pub fn architectures(&self) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: `count` is where the number goes.
        if unsafe { (self.arch_count)(&mut count) } != 0 {
            return Vec::new();
        }
        let mut list: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the list has room for as many numbers as were announced.
        if list.is_empty() || unsafe { (self.archs)(list.as_mut_ptr()) } != 0 {
            return Vec::new();
        }
        let mut list: Vec<u32> = list.into_iter().filter_map(|arch| u32::try_from(arch).ok()).collect();
        list.sort_unstable();
        list
    }

    /// Compiles the kernels for an architecture.
    ///
    /// # Errors
    /// `Kernels` with the compiler's messages.
    pub fn compile(&self, architecture: u32) -> Result<Compiled, Unavailable> {
        self.compile_with(architecture, &[])
    }

    /// Compiles the kernels for an architecture with more options of the compiler, which an older one may not have.
    ///
    /// # Errors
    /// `Kernels` with the compiler's messages.
    pub fn compile_with(&self, architecture: u32, more: &[&str]) -> Result<Compiled, Unavailable> {
        let text = |text: String| CString::new(text).map_err(|_| Unavailable::Kernels { log: "a zero in the source".to_string() });
        let (source, name) = (text(KERNELS.to_string())?, text("kernels.cu".to_string())?);
        let own = [format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".to_string()];
        let options: Vec<CString> =
            own.into_iter().chain(more.iter().map(|option| (*option).to_string())).map(text).collect::<Result<_, _>>()?;
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the texts end with zeros and live over the call; there are no headers.
        let created = unsafe { (self.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, std::ptr::null(), std::ptr::null()) };
        if created != 0 {
            return Err(Unavailable::Kernels { log: format!("NVRTC error {created}") });
        }
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program was created above; there are as many options as is said.
        let compiled = unsafe { (self.compile)(program, pointers.len() as c_int, pointers.as_ptr()) };
        let log = String::from_utf8_lossy(&fill(program, self.log_size, self.log)).trim_end_matches('\0').to_string();
        let made = if compiled == 0 {
            Ok(Compiled { ptx: fill(program, self.ptx_size, self.ptx), cubin: fill(program, self.cubin_size, self.cubin), log })
        } else {
            Err(Unavailable::Kernels { log })
        };
        // SAFETY: its last use.
        unsafe { (self.destroy)(&mut program) };
        made
    }

    /// The kernels for a device: code for it, or, when this compiler does not know it, what its driver can make code from.
    ///
    /// # Errors
    /// `Kernels`.
    pub fn image(&self, architecture: u32) -> Result<Vec<u8>, Unavailable> {
        let known = self.architectures();
        match known.iter().rev().find(|known| **known <= architecture) {
            Some(exact) if *exact == architecture => Ok(self.compile(*exact)?.cubin),
            Some(older) => Ok(self.compile(*older)?.ptx),
            None => Err(Unavailable::Kernels { log: format!("{self:?} compiles for {known:?}, this GPU is {architecture}") }),
        }
    }
}

/// Asks for a size, then for as many bytes. Empty when there are none.
fn fill(program: Program, size: Sized, get: Filled) -> Vec<u8> {
    let mut bytes = 0;
    // SAFETY: the program is alive; `bytes` is where the size goes.
    if unsafe { size(program, &mut bytes) } != 0 {
        return Vec::new();
    }
    let mut out = vec![0u8; bytes];
    // SAFETY: the list has as many bytes as were announced.
    if unsafe { get(program, out.as_mut_ptr().cast()) } != 0 {
        return Vec::new();
    }
    out
}

impl Compiled {
    /// The kernels whose entry is not in the PTX and the code.
    pub fn missing(&self) -> Vec<Kernel> {
        let has = |bytes: &[u8], name: &str| bytes.windows(name.len()).any(|window| window == name.as_bytes());
        let is_missing = |kernel: &Kernel| !has(&self.ptx, &format!(".entry {}(", kernel.name())) || !has(&self.cubin, kernel.name());
        Kernel::ALL.into_iter().filter(is_missing).collect()
    }
}
