//! nvCOMP, NVIDIA's library of compressors for GPUs, loaded when there is one: batches of raw deflate and of zstd frames on a stream.
//!
//! It is NVIDIA's, under its licence, and whoever wants it installs it. The functions are those of `nvcomp.h`, `nvcomp/deflate.h` and
//! `nvcomp/zstd.h` of version 6; others have other names and arguments and are refused. It uses the context that is current on the
//! thread that calls. The library stays loaded.
#![expect(unsafe_code, reason = "the boundary to nvCOMP")]

use crate::codec::{Batch, Chunks, Codec};
use crate::gpu::GpuError;
use dpusm::Sizes;
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;

/// Names of the library.
const LIBRARIES: [&str; 2] = ["libnvcomp.so.6", "libnvcomp.so"];
/// The version whose functions these are.
const MAJOR: u32 = 6;
/// Alignment of memory that is allocated for it: that of device memory.
const OWN_ALIGN_BYTES: usize = 256;
/// `nvcompDeflateDecompressionMaxAllowedChunkSize` and that of zstd, the smaller of which is this; its compressors say theirs.
const UNPACKED_BYTES_MAX: usize = (1 << 31) - 1;
/// `NVCOMP_DECOMPRESS_BACKEND_CUDA`: the hardware decompressor of some GPUs wants memory that is allocated for it.
const BACKEND_CUDA: c_int = 2;

/// Properties of the library: `nvcompProperties_t`.
#[repr(C)]
#[derive(Default)]
struct Properties {
    version: u32,
    cuda_version: u32,
}

/// `nvcompBatched…Opts_t`, all four of which have 64 bytes: deflate's algorithm or the backend first, and zeros.
#[repr(C)]
#[derive(Clone, Copy)]
struct Options {
    choice: c_int,
    reserved: [u8; 60],
}

/// Alignments of buffers, in bytes: `nvcompAlignmentRequirements_t`.
#[repr(C)]
#[derive(Default)]
struct Alignments {
    input: usize,
    output: usize,
    temp: usize,
}

type Stream = *mut c_void;
type Align = unsafe extern "C" fn(Options, *mut Alignments) -> u32;
type PackedMax = unsafe extern "C" fn(usize, Options, *mut usize) -> u32;
type Temp = unsafe extern "C" fn(usize, usize, Options, *mut usize, usize, Stream) -> u32;
// Device pointers are numbers here, as they are for the driver.
type Pack = unsafe extern "C" fn(u64, u64, usize, usize, u64, usize, u64, u64, Options, u64, Stream) -> u32;
type Unpack = unsafe extern "C" fn(u64, u64, u64, u64, usize, u64, usize, u64, Options, u64, Stream) -> u32;

/// The functions for one format.
struct Format {
    pack_align: Align,
    packed_max: PackedMax,
    pack_temp: Temp,
    pack: Pack,
    unpack_align: Align,
    unpack_temp: Temp,
    unpack: Unpack,
}

/// Functions of the library.
pub struct Nvcomp {
    version: u32,
    deflate: Format,
    zstd: Format,
}

/// Reason why there is no library.
#[derive(Debug)]
pub enum NvcompMissing {
    /// The library is not there.
    NotFound(libloading::Error),
    /// The library is of a version whose functions are others, or it does not say which.
    Version {
        /// Thousands are the major version, hundreds the minor one.
        found: u32,
    },
    /// The library needs a newer driver.
    Driver {
        /// The CUDA that it was built with: thousands are the major version, tens the minor one.
        built: u32,
    },
    /// The library lacks a function.
    Lacks(libloading::Error),
}

impl fmt::Display for NvcompMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NvcompMissing::NotFound(error) => write!(f, "nvCOMP not found: {error}"),
            NvcompMissing::Version { found } => write!(f, "nvCOMP is of version {}, not {MAJOR}", dotted(*found)),
            NvcompMissing::Driver { built } => {
                write!(f, "nvCOMP is built for CUDA {}.{}, which the driver is too old for", built / 1000, built % 1000 / 10)
            }
            NvcompMissing::Lacks(error) => write!(f, "nvCOMP lacks a function: {error}"),
        }
    }
}
impl std::error::Error for NvcompMissing {}

fn dotted(version: u32) -> String {
    format!("{}.{}.{}", version / 1000, version % 1000 / 100, version % 100)
}

/// One function of a library that stays loaded.
fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, libloading::Error> {
    // SAFETY: `T` is the type that nvCOMP's headers give the function of this name, at the only places that call this.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|found| *found)
}

/// Result that a status stands for.
fn check(call: &'static str, code: u32) -> Result<(), GpuError> {
    if code == 0 { Ok(()) } else { Err(GpuError::Failed { call, code }) }
}

impl Format {
    fn of(library: &Library, name: &str) -> Result<Format, libloading::Error> {
        Ok(Format {
            pack_align: symbol(library, &format!("nvcompBatched{name}CompressGetRequiredAlignments"))?,
            packed_max: symbol(library, &format!("nvcompBatched{name}CompressGetMaxOutputChunkSize"))?,
            pack_temp: symbol(library, &format!("nvcompBatched{name}CompressGetTempSize"))?,
            pack: symbol(library, &format!("nvcompBatched{name}CompressAsync"))?,
            unpack_align: symbol(library, &format!("nvcompBatched{name}DecompressGetRequiredAlignments"))?,
            unpack_temp: symbol(library, &format!("nvcompBatched{name}DecompressGetTempSize"))?,
            unpack: symbol(library, &format!("nvcompBatched{name}DecompressAsync"))?,
        })
    }
}

impl fmt::Debug for Nvcomp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvCOMP {}", dotted(self.version))
    }
}

impl Nvcomp {
    /// Loads the library at `path`, or the one that is installed, for a driver of CUDA's major version `driver_major`.
    ///
    /// # Errors
    /// Why it is not used.
    pub fn load(path: Option<&Path>, driver_major: u32) -> Result<Nvcomp, NvcompMissing> {
        let candidates: Vec<&Path> = path.map_or_else(|| LIBRARIES.iter().map(Path::new).collect(), |path| vec![path]);
        let mut failed = libloading::Error::DlOpenUnknown;
        for candidate in candidates {
            // SAFETY: loading runs the library's initializers, as whoever named it wants.
            match unsafe { Library::new(candidate) } {
                Ok(library) => return Nvcomp::of(&ManuallyDrop::new(library), driver_major),
                Err(error) => failed = error,
            }
        }
        Err(NvcompMissing::NotFound(failed))
    }

    fn of(library: &Library, driver_major: u32) -> Result<Nvcomp, NvcompMissing> {
        type GetProperties = unsafe extern "C" fn(*mut Properties) -> u32;
        let properties: GetProperties = symbol(library, "nvcompGetProperties").map_err(NvcompMissing::Lacks)?;
        let mut found = Properties::default();
        // SAFETY: `found` is where the numbers go.
        let told = unsafe { properties(&mut found) } == 0;
        if !told || found.version / 1000 != MAJOR {
            return Err(NvcompMissing::Version { found: found.version });
        }
        if found.cuda_version / 1000 > driver_major {
            return Err(NvcompMissing::Driver { built: found.cuda_version });
        }
        let format = |name| Format::of(library, name).map_err(NvcompMissing::Lacks);
        Ok(Nvcomp { version: found.version, deflate: format("Deflate")?, zstd: format("Zstd")? })
    }

    fn format(&self, codec: Codec) -> &Format {
        if codec.is_deflate() { &self.deflate } else { &self.zstd }
    }

    /// The blocks that it takes, which is asked of itself; None when it wants of our memory what that has not.
    pub fn offers(&self, codec: Codec) -> Option<Sizes> {
        let (format, options) = (self.format(codec), options(codec));
        let mut align = Alignments::default();
        let of = if codec.packs() { format.pack_align } else { format.unpack_align };
        // SAFETY: `align` is where the numbers go.
        if unsafe { of(options, &mut align) } != 0 {
            return None;
        }
        // What is compressed is its user's, what that becomes is ours; the other way round for what is decompressed.
        let (users, own) = if codec.packs() { (align.input, align.output) } else { (align.output, align.input) };
        if own > OWN_ALIGN_BYTES || align.temp > OWN_ALIGN_BYTES {
            return None;
        }
        let admits = |bytes: usize| self.packed_bytes_max(codec, bytes).is_ok();
        let max_bytes =
            if codec.packs() { (0..32).map(|bit| 1 << bit).take_while(|bytes| admits(*bytes)).last()? } else { UNPACKED_BYTES_MAX };
        Some(Sizes { min_bytes: 1, max_bytes, align_bytes: users.max(1) })
    }

    /// See [`crate::Gpu::packed_bytes_max`].
    ///
    /// # Errors
    /// What the library says.
    pub fn packed_bytes_max(&self, codec: Codec, bytes: usize) -> Result<usize, GpuError> {
        let mut most = 0;
        // SAFETY: `most` is where the number goes.
        check("nvcompBatchedCompressGetMaxOutputChunkSize", unsafe { (self.format(codec).packed_max)(bytes, options(codec), &mut most) })?;
        Ok(most)
    }

    /// See [`crate::Gpu::temp_bytes`].
    ///
    /// # Errors
    /// What the library says.
    pub(crate) fn temp_bytes(&self, stream: Stream, chunks: &Chunks) -> Result<usize, GpuError> {
        let format = self.format(chunks.codec);
        let (call, of) = match chunks.codec.packs() {
            true => ("nvcompBatchedCompressGetTempSize", format.pack_temp),
            false => ("nvcompBatchedDecompressGetTempSize", format.unpack_temp),
        };
        let mut bytes = 0;
        // SAFETY: `bytes` is where the number goes; the stream is alive.
        check(call, unsafe { of(chunks.count, chunks.bytes_max, options(chunks.codec), &mut bytes, chunks.bytes_total, stream) })?;
        Ok(bytes)
    }

    /// See [`crate::Gpu::run_batch`].
    ///
    /// # Errors
    /// What the library says.
    pub(crate) fn run_batch(&self, stream: Stream, batch: &Batch) -> Result<(), GpuError> {
        let Batch { chunks, sources, source_bytes, targets, target_rooms, made, statuses, temp, temp_bytes } = *batch;
        let Chunks { codec, count, bytes_max, .. } = chunks;
        let (format, options) = (self.format(codec), options(codec));
        if codec.packs() {
            // SAFETY: tables of as many entries as is said, and memory of the sizes that the library asked for, which stay until
            // the work is done, as `Gpu` demands; the stream is alive.
            let started = unsafe {
                (format.pack)(sources, source_bytes, bytes_max, count, temp, temp_bytes, targets, made, options, statuses, stream)
            };
            return check("nvcompBatchedCompressAsync", started);
        }
        // SAFETY: as above; and what is decompressed is well-formed, as `Gpu` demands.
        let started = unsafe {
            (format.unpack)(sources, source_bytes, target_rooms, made, count, temp, temp_bytes, targets, options, statuses, stream)
        };
        check("nvcompBatchedDecompressAsync", started)
    }
}

fn options(codec: Codec) -> Options {
    let choice = match codec {
        Codec::Deflate { algorithm } => c_int::from(algorithm),
        Codec::ZstdPack => 0,
        Codec::Inflate | Codec::ZstdUnpack => BACKEND_CUDA,
    };
    Options { choice, reserved: [0; 60] }
}
