//! Every line of `kernels.cu` on this machine: compiled as C++ behind the driver's functions (`emulator.cpp`), and called through the
//! provider's real way to a device. What it computes is compared with software, byte by byte.

use abd::{Abd, AbdPart};
use dpusm::{BreakerPolicy, Device, Fault, Feature, Graph, OpError, Provider, RegisterOptions, Registry, Shapes, random_shapes};
use exec::{Exec, Pool, SplitMix};
use ondisk::Compression;
use provider_cuda::{Batching, Cuda, CudaOptions, Driver, Gpu, Unavailable};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

const DEADLINE_NS: u64 = 120_000_000_000;

/// A library of the emulated machine, from `tests/{name}.cpp`.
fn built(name: &str, libraries: &[&str]) -> PathBuf {
    let flags =
        "-std=c++17 -O2 -Wall -Wextra -Werror -Wno-clobbered -fno-strict-aliasing -U_FORTIFY_SOURCE -fPIC -shared -fvisibility=hidden";
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("emulated-{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.cpp"));
    let status = Command::new("c++").args(flags.split(' ')).arg("-o").arg(&library).arg(source).args(libraries).status();
    assert!(status.expect("a C++ compiler is installed").success());
    library
}

/// The emulated driver and compiler, built once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("emulator", &[]))
}

/// The emulated nvCOMP, built once, over libraries that every Debian has.
fn nvcomp() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("nvcomp", &["-l:libz.so.1", "-l:libzstd.so.1", "-ldl"]))
}

/// The emulated nvCOMP under a name that tells it how to misbehave.
fn misbehaving(how: &str) -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvcomp-{}-{how}.so", std::process::id()));
    std::fs::copy(nvcomp(), &copy).unwrap();
    copy
}

pub(crate) struct Emulated {
    cuda: Arc<Cuda>,
    pub(crate) device: Device,
}

/// A device that large blocks are not tried on when it is registered: one test does that.
pub(crate) fn emulated() -> Emulated {
    emulated_with(nvcomp(), 4096)
}

fn emulated_with(nvcomp: &Path, test_bytes_max: usize) -> Emulated {
    let exec: Exec = Arc::new(Pool::new(2));
    let batching = Batching { lanes: 2, staging_bytes: 8 << 20, ..Batching::default() };
    let (driver, nvrtc, nvcomp) = (library().into(), Some(library().into()), Some(nvcomp.into()));
    let options = CudaOptions { driver, nvrtc, nvcomp, memory_bytes_max: Some(256 << 20), batching };
    let cuda = Cuda::open(&exec, &options).unwrap_or_else(|error| panic!("{error}"));
    let breaker = BreakerPolicy { failures_max: u32::MAX, slow_max: u32::MAX, ..BreakerPolicy::default() };
    let options = RegisterOptions { breaker, test_bytes_max, ..RegisterOptions::default() };
    let device = Registry::new(&exec).register(cuda.clone(), &options).unwrap();
    Emulated { cuda, device }
}

/// What the kernels give must be what every other machine computes: checksums in block pointers, parity on disks.
#[test]
fn the_kernels_equal_software() {
    let Emulated { cuda, device } = emulated_with(nvcomp(), 128 << 10);
    assert_eq!(device.disabled(), [], "known-answer tests");
    assert!(cuda.version().contains("Emulated GPU (sm_90)") && cuda.version().ends_with(", nvCOMP 6.0.0"), "{}", cuda.version());
    for seed in 0..3 {
        let shapes = Shapes { seed, count: 1200, bytes_max: 300 << 10, ..Shapes::default() };
        let tried = random_shapes(&device, &shapes).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert_eq!(tried.len(), device.capabilities().list.len());
    }
    assert_eq!(device.live_handles(), 0);
}

/// Blocks at the edges of the compressor's segments, and as large as blocks get.
#[test]
fn compression_holds_at_every_edge() {
    let Emulated { device, .. } = emulated();
    let mut random = SplitMix::new(5);
    let sizes = (1..40).chain((8180..8210).step_by(3)).chain([16_383, 16_384, 16_385, 24_577, 2 << 20, 4 << 20]);
    for bytes in sizes {
        let noise = |random: &mut SplitMix| random.bytes(bytes);
        let text = (0..bytes).map(|at| b"a block of a pool, and "[at % 23]).collect();
        let late: Vec<u8> = noise(&mut random).iter().enumerate().map(|(at, byte)| if at + 100 > bytes { 7 } else { *byte }).collect();
        for block in [vec![0; bytes], text, noise(&mut random), late] {
            let room = bytes + bytes / 128 + 64;
            let packed = compress(&device, Compression::LZ4, &block, room);
            let mut back = vec![0xEE; bytes];
            if let Some(packed) = packed {
                kernels::decompress(Compression::LZ4, &packed, &mut back).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
                assert!(back == block, "{bytes} bytes come back wrong");
                assert_eq!(decompress(&device, Compression::LZ4, &packed, bytes), Ok(block), "{bytes} bytes");
            } else {
                assert!(bytes < 512 || block.iter().any(|byte| *byte != block[0]), "{bytes} equal bytes did not shrink");
            }
        }
    }
}

fn compress(device: &Device, kind: Compression, block: &[u8], room: usize) -> Option<Vec<u8>> {
    let (source, target) = (device.alloc(block.len()).unwrap(), device.alloc(room).unwrap());
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(block), &source.whole());
    let how = dpusm::Compress { kind, level: 1, limit_bytes: block.len(), round_to_bytes: 1 };
    let packed = graph.compress(&source.whole(), &target.whole(), how);
    let out = graph.copy_out(target.whole(), vec![AbdPart::scratch(room)]);
    let mut report = device.run(graph, DEADLINE_NS).unwrap();
    let length = report.compressed(packed).unwrap()?;
    Some(report.take_bytes(out).unwrap().slice(0..length).to_vec())
}

pub(crate) fn decompress(device: &Device, kind: Compression, packed: &[u8], bytes: usize) -> Result<Vec<u8>, OpError> {
    let (source, target) = (device.alloc(packed.len())?, device.alloc(bytes + 512)?);
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(packed), &source.whole());
    graph.copy_in(&Abd::from_slice(&vec![0xC3; bytes + 512]), &target.whole());
    let node = graph.decompress(&source.whole(), &target.view(0..bytes)?, kind);
    let report = device.run(graph, DEADLINE_NS).unwrap();
    let mut graph = Graph::new();
    let out = graph.copy_out(target.whole(), vec![AbdPart::scratch(bytes + 512)]);
    let all = device.run(graph, DEADLINE_NS).unwrap().take_bytes(out)?.to_vec();
    assert!(all[bytes..].iter().all(|byte| *byte == 0xC3), "it wrote beside its target");
    report.status(node).map(|()| all[..bytes].to_vec())
}

/// A damaged block is an error of that block: the decoder neither writes beside its target nor calls garbage good of another size.
#[test]
fn damaged_streams_are_errors() {
    let Emulated { device, .. } = emulated();
    let mut random = SplitMix::new(77);
    let (mut refused, rounds) = (0, 400);
    for _ in 0..rounds {
        let bytes = 16 + random.below(5000);
        let block: Vec<u8> = (0..bytes).map(|at| if random.chance(3) { random.next_u64() as u8 } else { (at / 40) as u8 }).collect();
        let mut packed = vec![0; bytes * 2 + 64];
        let length = kernels::compress(Compression::LZ4, 0, &block, &mut packed).unwrap();
        packed.truncate(length);
        for _ in 0..1 + random.below(3) {
            let at = random.below(length);
            packed[at] = random.next_u64() as u8;
        }
        packed.truncate(1 + random.below(length));
        match decompress(&device, Compression::LZ4, &packed, bytes) {
            Err(OpError::Failed) => refused += 1,
            Err(other) => panic!("{other}"),
            Ok(_) => {}
        }
    }
    assert!(refused > rounds / 2, "{refused}");
    // The right stream for another size is wrong too.
    let mut packed = vec![0; 4096];
    let length = kernels::compress(Compression::LZ4, 0, &[9; 2048], &mut packed).unwrap();
    packed.truncate(length);
    assert_eq!(decompress(&device, Compression::LZ4, &packed, 2047), Err(OpError::Failed));
    assert_eq!(decompress(&device, Compression::LZ4, &packed, 2049), Err(OpError::Failed));
    assert_eq!(decompress(&device, Compression::LZ4, &packed, 2048), Ok(vec![9; 2048]));
}

const STREAMS: [Compression; 4] = [Compression::GZIP_1, Compression::GZIP_6, Compression::GZIP_9, Compression::ZSTD];

/// What nvCOMP makes, with what our kernels put around it, is what ZFS stores; and what software stores comes back from nvCOMP.
#[test]
fn gzip_and_zstd_go_both_ways() {
    let Emulated { device, .. } = emulated();
    let mut random = SplitMix::new(6);
    for bytes in [512, 516, 1024, 4096, 4100, 131_072, 131_584, 1 << 20, 4 << 20] {
        let noise: Vec<u8> = random.bytes(bytes);
        let text: Vec<u8> = (0..bytes).map(|at| b"a block of a pool, and "[at % 23] ^ (at / 4099) as u8).collect();
        let late: Vec<u8> = noise.iter().enumerate().map(|(at, byte)| if at > bytes / 2 { 7 } else { *byte }).collect();
        // Where a stream ends is found from its last bytes, however long it is.
        let paddings: &[usize] = if bytes < 1 << 20 { &[0, 1, 3, 4, 5, 511] } else { &[0, 511] };
        for block in [vec![0; bytes], text, noise, late] {
            for kind in STREAMS {
                let mut back = vec![0xEE; bytes];
                if let Some(packed) = compress(&device, kind, &block, bytes + 64) {
                    assert!(packed.len() < bytes);
                    kernels::decompress(kind, &packed, &mut back).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
                    assert!(back == block, "{kind}: {bytes} bytes come back wrong");
                } else {
                    assert!(block[0] != block[bytes - 1], "{kind}: {bytes} bytes did not shrink");
                }
                let mut stored = vec![0; bytes * 2 + 64];
                let length = kernels::compress(kind, 1, &block, &mut stored).unwrap();
                for padding in paddings {
                    stored.truncate(length);
                    stored.resize(length + padding, 0);
                    assert!(
                        decompress(&device, kind, &stored, bytes).as_ref() == Ok(&block),
                        "{kind}: {bytes} bytes, {padding} of padding"
                    );
                }
            }
        }
    }
}

/// Adler-32 may end with zeros, which look like padding.
#[test]
fn checksums_that_end_with_zeros_are_found() {
    let Emulated { device, .. } = emulated();
    // The low half is the sum of the bytes and one, modulo 65521.
    let low = |sum: usize| {
        let mut block = vec![0; 4096];
        block[0] = (sum % 255) as u8;
        block[1..=sum / 255].fill(255);
        block
    };
    let mut blocks: Vec<Vec<u8>> = [255, 32_767, 65_279, 65_520].map(low).to_vec();
    // The high half, too, is zero in this one: each byte counts as often as bytes are left, so units are moved towards the end.
    let mut block = low(65_520);
    let high: usize = block.iter().enumerate().map(|(at, byte)| (4096 - at) * usize::from(*byte)).sum();
    let mut rest = (high + 4096) % 65_521;
    while rest > 0 {
        let step = rest.min(3839);
        block[256] -= 1;
        block[256 + step] += 1;
        rest -= step;
    }
    blocks.push(block);
    let mut most = 0;
    for block in blocks {
        let mut stored = vec![0; 8192];
        let length = kernels::compress(Compression::GZIP_6, 0, &block, &mut stored).unwrap();
        let zeros = stored[..length].iter().rev().take_while(|byte| **byte == 0).count();
        assert!(zeros > 0, "this one does not end with zeros");
        most = most.max(zeros);
        stored.truncate(length + 3);
        assert!(decompress(&device, Compression::GZIP_6, &stored, 4096).as_ref() == Ok(&block));
        stored.truncate(length);
        assert!(decompress(&device, Compression::GZIP_6, &stored, 4096).as_ref() == Ok(&block));
        stored.truncate(length - 1);
        // Four zeros look like the end of what comes before, which may end with a zero too.
        assert!(zeros >= 4 || decompress(&device, Compression::GZIP_6, &stored, 4096) == Err(OpError::Failed), "its end is missing");
    }
    assert!(most >= 4, "{most}");
}

/// Headers, lengths and Adler-32 are looked at: wrong ones are errors of the block, and nvCOMP is given no header of another format.
#[test]
fn damaged_headers_and_sums_are_errors() {
    let Emulated { device, .. } = emulated();
    let block: Vec<u8> = (0..8192).map(|at| (at / 40) as u8).collect();
    for kind in STREAMS {
        let mut stored = vec![0; 8192];
        let length = kernels::compress(kind, 1, &block, &mut stored).unwrap();
        stored.truncate(length);
        let damaged = |at: usize, bits: u8| {
            let mut copy = stored.clone();
            copy[at] ^= bits;
            decompress(&device, kind, &copy, 8192)
        };
        // zlib's two bytes and its sum; the upper bytes of zstd's length, and the reserved bit and dictionary of its frame.
        let harms: Vec<(usize, u8)> = match kind {
            Compression::ZSTD => vec![(0, 1), (1, 1), (2, 0x80), (8, 8), (8, 1), (8, 3)],
            _ => (0..2).chain(length - 4..length).flat_map(|at| [(at, 1), (at, 0x20), (at, 0x80)]).collect(),
        };
        for (at, bits) in harms {
            assert_eq!(damaged(at, bits), Err(OpError::Failed), "{kind}: {bits:#x} at {at}");
        }
        for bytes in [8191, 8193] {
            let refused = decompress(&device, kind, &stored, bytes);
            assert!(matches!(refused, Err(OpError::Failed)), "{kind}: {bytes} bytes");
        }
        for bytes in [1, 2, 5, 8, 9] {
            assert_eq!(decompress(&device, kind, &stored[..bytes], 8192), Err(OpError::Failed), "{kind}: {bytes} bytes stored");
        }
        assert_eq!(decompress(&device, kind, &[0; 512], 8192), Err(OpError::Failed), "{kind}: zeros");
    }
}

/// Every function of nvCOMP that fails, or says that it failed with a block, switches off what needs it, and nothing else.
#[test]
fn every_function_of_nvcomp_can_fail() {
    let all = emulated().cuda.capabilities().list.len();
    let part = ["GetRequiredAlignments", "GetMaxOutputChunkSize", "GetTempSize", "Async"];
    let cases = ["Deflate", "Zstd"].into_iter().flat_map(|format| ["Compress", "Decompress"].map(|way| (format, way)));
    for (format, way) in cases {
        let hurt = |feature: &Feature| match feature {
            Feature::Compress { kind, .. } => {
                way == "Compress" && *kind != Compression::LZ4 && (*kind == Compression::ZSTD) == (format == "Zstd")
            }
            Feature::Decompress { kind } => {
                way == "Decompress" && *kind != Compression::LZ4 && (*kind == Compression::ZSTD) == (format == "Zstd")
            }
            _ => false,
        };
        let harms = part.map(|part| format!("fails-nvcompBatched{format}{way}{part}"));
        for how in harms.into_iter().chain([format!("spoils-nvcompBatched{format}{way}Async")]) {
            if how.ends_with("DecompressGetMaxOutputChunkSize") {
                continue;
            }
            let library = misbehaving(&how);
            let Emulated { cuda, device } = emulated_with(&library, 4096);
            let is_offered = !how.ends_with("Alignments") && !how.ends_with("ChunkSize");
            let list = cuda.capabilities().list;
            let of = list.iter().filter(|capability| hurt(&capability.feature)).count();
            let disabled = device.disabled();
            assert!(
                disabled.iter().all(|one| hurt(&one.capability.feature) && one.fault == Fault::Error(OpError::Failed)),
                "{how}: {disabled:?}"
            );
            assert_eq!((of > 0, disabled.len()), (is_offered, of), "{how}");
            assert!(list.len() - disabled.len() < all, "{how}");
            std::fs::remove_file(library).unwrap();
        }
    }
}

/// Whoever has the wrong library must be told; the rest of the provider works.
#[test]
fn a_missing_or_wrong_nvcomp_is_named() {
    for (how, why) in [
        ("version-5300", "no gzip and zstd: nvCOMP is of version 5.3.0, not 6"),
        ("cuda-13000", "no gzip and zstd: nvCOMP is built for CUDA 13.0, which the driver is too old for"),
    ] {
        let library = misbehaving(how);
        let Emulated { cuda, device } = emulated_with(&library, 4096);
        assert!(cuda.version().ends_with(why), "{}", cuda.version());
        assert!(!device.capabilities().compresses(Compression::GZIP_6, 0) && device.capabilities().compresses(Compression::LZ4, 0));
        std::fs::remove_file(library).unwrap();
    }
    let Emulated { cuda, device } = emulated_with(Path::new("libnvcomp-that-is-not-there.so"), 4096);
    let version = cuda.version();
    assert!(version.contains("no gzip and zstd: nvCOMP not found: ") && version.contains("libnvcomp-that-is-not-there.so"), "{version}");
    assert!(!device.capabilities().compresses(Compression::ZSTD, 3) && device.disabled().is_empty());
    let Emulated { cuda, .. } = emulated_with(library(), 4096);
    assert!(cuda.version().contains("no gzip and zstd: nvCOMP lacks a function: "), "{}", cuda.version());
}

/// A handle that was never given out must not be followed.
#[test]
fn the_driver_refuses_what_it_did_not_hand_out() {
    let driver = Driver::open(library(), Some(library()), Some(nvcomp())).unwrap();
    let pinned = driver.pin(4096).unwrap();
    assert!(driver.stage(pinned, 4000, &[1; 97]).is_err() && driver.stage(pinned, usize::MAX, &[1]).is_err());
    assert!(driver.stage(provider_cuda::Pinned(pinned.0 + 1), 0, &[1]).is_err());
    assert!(driver.fetch(pinned, 4096..4097, &mut |_| ()).is_err());
    assert!(driver.is_done(provider_cuda::Stream(0)).is_err());
    let stream = driver.stream().unwrap();
    assert!(driver.upload(stream, pinned, 0..4096, 64).is_err(), "no device memory is there");
    driver.mark(stream).unwrap();
    assert!(driver.is_done(stream).unwrap());
}

/// Without a driver, whoever loads the provider must be told what is missing and what to do.
#[test]
fn what_is_missing_is_named() {
    let exec: Exec = Arc::new(Pool::new(1));
    let missing = CudaOptions { driver: "libcuda-that-is-not-there.so.1".into(), ..CudaOptions::default() };
    let error = Cuda::open(&exec, &missing).unwrap_err();
    assert!(matches!(error, Unavailable::Driver(_)), "{error}");
    assert!(error.to_string().starts_with("not available: ") && error.to_string().contains("libcuda-that-is-not-there.so.1"), "{error}");
    assert!(error.advice().contains("NVIDIA driver"));
    let missing = CudaOptions { driver: library().into(), nvrtc: Some("libnvrtc-that-is-not-there.so".into()), ..CudaOptions::default() };
    let error = Cuda::open(&exec, &missing).unwrap_err();
    assert!(matches!(error, Unavailable::Nvrtc(_)) && error.to_string().contains("libnvrtc-that-is-not-there.so"), "{error}");
    assert!(error.advice().contains("nvidia-cuda-nvrtc-cu12"));
    // A library that is something else.
    let missing = CudaOptions { driver: "libm.so.6".into(), ..CudaOptions::default() };
    assert!(matches!(Cuda::open(&exec, &missing), Err(Unavailable::Driver(_))));
}
