//! Every line of `kernels.cu` on this machine: compiled as C++ behind the driver's functions (`emulator.cpp`), and called through the
//! provider's real way to a device. What it computes is compared with software, byte by byte.

use abd::{Abd, AbdPart};
use dpusm::{BreakerPolicy, Device, Graph, OpError, Provider, RegisterOptions, Registry, Shapes, random_shapes};
use exec::{Exec, Pool, SplitMix};
use ondisk::Compression;
use provider_cuda::{Batching, Cuda, CudaOptions, Driver, Gpu, Unavailable};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

const DEADLINE_NS: u64 = 120_000_000_000;

/// The emulated machine's libraries, built once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join(format!("emulated-cuda-{}.so", std::process::id()));
        let status = Command::new("c++")
            .args([
                "-std=c++17",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-clobbered",
                "-fno-strict-aliasing",
                "-U_FORTIFY_SOURCE",
                "-fPIC",
                "-shared",
                "-fvisibility=hidden",
                "-o",
            ])
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator.cpp"))
            .status()
            .expect("a C++ compiler is installed");
        assert!(status.success());
        library
    })
}

struct Emulated {
    cuda: Arc<Cuda>,
    device: Device,
}

fn emulated() -> Emulated {
    let exec: Exec = Arc::new(Pool::new(2));
    let batching = Batching { lanes: 2, staging_bytes: 8 << 20, ..Batching::default() };
    let options = CudaOptions { driver: library().into(), nvrtc: Some(library().into()), memory_bytes_max: Some(256 << 20), batching };
    let cuda = Cuda::open(&exec, &options).unwrap_or_else(|error| panic!("{error}"));
    let breaker = BreakerPolicy { failures_max: u32::MAX, ..BreakerPolicy::default() };
    let options = RegisterOptions { breaker, test_bytes_max: 128 << 10, ..RegisterOptions::default() };
    let device = Registry::new(&exec).register(cuda.clone(), &options).unwrap();
    Emulated { cuda, device }
}

/// What the kernels give must be what every other machine computes: checksums in block pointers, parity on disks.
#[test]
fn the_kernels_equal_software() {
    let Emulated { cuda, device } = emulated();
    assert_eq!(device.disabled(), [], "known-answer tests");
    assert!(cuda.version().contains("Emulated GPU (sm_90)"), "{}", cuda.version());
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
        let noise = |random: &mut SplitMix| (0..bytes).map(|_| random.next_u64() as u8).collect::<Vec<u8>>();
        let text = (0..bytes).map(|at| b"a block of a pool, and "[at % 23]).collect();
        let late: Vec<u8> = noise(&mut random).iter().enumerate().map(|(at, byte)| if at + 100 > bytes { 7 } else { *byte }).collect();
        for block in [vec![0; bytes], text, noise(&mut random), late] {
            let room = bytes + bytes / 128 + 64;
            let packed = compress(&device, &block, room);
            let mut back = vec![0xEE; bytes];
            if let Some(packed) = packed {
                kernels::decompress(Compression::LZ4, &packed, &mut back).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
                assert!(back == block, "{bytes} bytes come back wrong");
                assert_eq!(decompress(&device, &packed, bytes), Ok(block), "{bytes} bytes");
            } else {
                assert!(bytes < 512 || block.iter().any(|byte| *byte != block[0]), "{bytes} equal bytes did not shrink");
            }
        }
    }
}

fn compress(device: &Device, block: &[u8], room: usize) -> Option<Vec<u8>> {
    let (source, target) = (device.alloc(block.len()).unwrap(), device.alloc(room).unwrap());
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(block), &source.whole());
    let how = dpusm::Compress { kind: Compression::LZ4, level: 0, limit_bytes: block.len(), round_to_bytes: 1 };
    let packed = graph.compress(&source.whole(), &target.whole(), how);
    let out = graph.copy_out(target.whole(), vec![AbdPart::scratch(room)]);
    let mut report = device.run(graph, DEADLINE_NS).unwrap();
    let length = report.compressed(packed).unwrap()?;
    Some(report.take_bytes(out).unwrap().slice(0..length).to_vec())
}

fn decompress(device: &Device, packed: &[u8], bytes: usize) -> Result<Vec<u8>, OpError> {
    let (source, target) = (device.alloc(packed.len())?, device.alloc(bytes + 512)?);
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(packed), &source.whole());
    graph.copy_in(&Abd::from_slice(&vec![0xC3; bytes + 512]), &target.whole());
    let node = graph.decompress(&source.whole(), &target.view(0..bytes)?, Compression::LZ4);
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
        match decompress(&device, &packed, bytes) {
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
    assert_eq!(decompress(&device, &packed, 2047), Err(OpError::Failed));
    assert_eq!(decompress(&device, &packed, 2049), Err(OpError::Failed));
    assert_eq!(decompress(&device, &packed, 2048), Ok(vec![9; 2048]));
}

/// A handle that was never given out must not be followed.
#[test]
fn the_driver_refuses_what_it_did_not_hand_out() {
    let driver = Driver::open(library(), Some(library())).unwrap();
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
