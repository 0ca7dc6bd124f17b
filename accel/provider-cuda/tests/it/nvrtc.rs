//! The kernels compiled by NVIDIA's own compiler, the declarations that we call by compared with NVIDIA's headers, and nvCOMP as far as
//! it goes without a GPU.
//!
//! All this is Python wheels, fetched by `tools/nvrtc.sh` and `tools/nvcomp.sh` (tens of MB, kept under `target/`). Where the package index cannot
//! be reached the tests say that they skip, as with `ZIRCONIA_NO_NVRTC=1`; with `ZIRCONIA_NO_NVRTC=0` they fail then, and with `ZIRCONIA_STRICT=1`
//! in both cases.

use need::Need;
use provider_cuda::{Codec, Kernel, Nvcomp, NvcompMissing, Nvrtc};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit status of the scripts when the package index cannot be reached.
const UNREACHABLE: i32 = 75;

/// Folder in which the wheels that `tools/{script}` fetches are unpacked; None when they are to be left out.
fn wheels(script: &str) -> Option<PathBuf> {
    let wish = std::env::var("ZIRCONIA_NO_NVRTC").unwrap_or_default();
    if !matches!(wish.as_str(), "" | "0") {
        need::missing(Need::Wheels, script, "ZIRCONIA_NO_NVRTC is set, so nothing of NVIDIA's is fetched").unwrap();
        return None;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools").join(script);
    let output = Command::new(path).output().expect("the scripts in tools can be started");
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if output.status.code() == Some(UNREACHABLE) && wish != "0" {
        need::missing(Need::Wheels, script, String::from_utf8_lossy(&output.stderr).trim()).unwrap();
        return None;
    }
    assert!(
        output.status.success(),
        "tools/{script} fails (set ZIRCONIA_NO_NVRTC=1 to leave this test out):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(PathBuf::from(folder))
}

/// Most registers of a thread, and most bytes of shared memory of a block of threads, of each kernel. A multiprocessor has 65,536 registers for 2,048
/// threads: with 32 all of them run, with 40 three quarters, with 48 five eighths, with 64 half; SHA-256 has fewer threads than that. It has 100 KiB or more of
/// shared memory, for eight blocks of 8 KiB, or three of 256 threads that decode LZ4 and have a part of the stream there.
const BUDGETS: [(Kernel, u32, u32); 14] = [
    (Kernel::Fletcher4, 40, 8192),
    (Kernel::Fletcher2, 40, 8192),
    (Kernel::Sha256, 96, 0),
    (Kernel::Differ, 32, 0),
    (Kernel::RaidGenerate, 40, 0),
    (Kernel::RaidCombine, 48, 0),
    (Kernel::Lz4Find, 48, 24_592),
    (Kernel::Lz4Layout, 32, 0),
    (Kernel::Lz4Emit, 40, 0),
    (Kernel::Lz4Decode, 64, 31_744),
    (Kernel::Adler32, 32, 8192),
    (Kernel::StreamWrap, 32, 0),
    (Kernel::StreamUnwrap, 32, 2048),
    (Kernel::StreamConfirm, 32, 0),
];

/// Number before a word in a line of the assembler's.
fn number_before(line: &str, word: &str) -> Option<u32> {
    line.split(word).next().filter(|before| before.len() < line.len())?.split_whitespace().next_back()?.parse().ok()
}

/// Complaints about what the assembler says (`-v`) that kernels use: more than their budget, local memory, or nothing at all.
fn over_budget(log: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (kernel, registers_max, shared_bytes_max) in BUDGETS {
        let heading = format!("Function properties for {}\n", kernel.name());
        let Some((_, about)) = log.split_once(&heading) else {
            complaints.push(format!("{}: nothing is said", kernel.name()));
            continue;
        };
        let mut lines = about.lines();
        let (memory, registers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let local = [" bytes stack frame", " bytes spill stores", " bytes spill loads"].map(|word| number_before(memory, word));
        if local != [Some(0); 3] {
            complaints.push(format!("{}: local memory: {memory}", kernel.name()));
        }
        let shared_bytes = number_before(registers, " bytes smem").unwrap_or(0);
        let is_within = number_before(registers, " registers").is_some_and(|used| used <= registers_max);
        if !is_within || shared_bytes > shared_bytes_max {
            complaints.push(format!("{}: of {registers_max} registers and {shared_bytes_max} bytes: {registers}", kernel.name()));
        }
    }
    complaints
}

/// A kernel whose variables are in memory, or of which few threads run at a time, is slow on every GPU, and nobody sees why.
#[test]
fn kernels_keep_their_budget_of_registers() {
    let Some(folder) = wheels("nvrtc.sh") else { return };
    let nvrtc = Nvrtc::load(Some(&folder.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))).unwrap();
    for architecture in [80, 90] {
        let compiled = nvrtc.compile_with(architecture, &["--ptxas-options=-v"]).unwrap_or_else(|error| panic!("{error}"));
        let complaints = over_budget(&compiled.log);
        assert!(complaints.is_empty(), "sm_{architecture}: {complaints:#?}");
        // What is planted is seen.
        let spoilt = compiled.log.replacen("     0 bytes stack frame", "    64 bytes stack frame", 1).replacen("Used 4", "Used 14", 1);
        assert_eq!(over_budget(&spoilt).len(), 2, "sm_{architecture}: {spoilt}");
    }
}

/// A complaint that is overlooked is no budget.
#[test]
fn kernels_over_their_budget_are_found() {
    let said = |stack: u32, spills: u32, uses: &str| {
        let one = |(kernel, ..): &(Kernel, u32, u32)| {
            let memory = format!("ptxas         .     {stack} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads");
            format!("ptxas info    : Function properties for {}\n{memory}\nptxas info    : Used {uses}\n", kernel.name())
        };
        BUDGETS.iter().map(one).collect::<String>()
    };
    let complaints = |stack, spills, uses: &str| over_budget(&said(stack, spills, uses)).len();
    assert_eq!(BUDGETS.map(|(kernel, ..)| kernel.name()), Kernel::ALL.map(Kernel::name));
    assert_eq!(complaints(0, 0, "32 registers, used 1 barriers"), 0);
    assert_eq!(complaints(0, 0, "32 registers, used 1 barriers, 2048 bytes smem"), 8);
    assert_eq!(complaints(0, 0, "41 registers"), 10);
    assert_eq!(complaints(64, 0, "32 registers, 364 bytes cmem[0]"), 14);
    assert_eq!(complaints(0, 8, "32 registers"), 14);
    assert_eq!(complaints(0, 0, "32 registers, 16384 bytes smem"), 12);
    assert_eq!(over_budget("").len(), 14);
}

/// Kernels that do not compile, or lack an entry, leave a machine with a GPU without its provider.
#[test]
fn nvrtc_compiles_every_kernel() {
    let Some(folder) = wheels("nvrtc.sh") else { return };
    let library = folder.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
    let nvrtc = Nvrtc::load(Some(&library)).unwrap();
    assert!(nvrtc.version() >= (12, 0), "{nvrtc:?}");
    let known = nvrtc.architectures();
    for architecture in [80, 90] {
        assert!(known.contains(&architecture), "{known:?}");
        let compiled = nvrtc.compile(architecture).unwrap_or_else(|error| panic!("sm_{architecture}: {error}"));
        assert_eq!(compiled.missing(), [], "sm_{architecture}");
        assert!(compiled.ptx.ends_with(b"\0") && compiled.cubin.starts_with(b"\x7fELF"));
        let ptx = String::from_utf8_lossy(&compiled.ptx).into_owned();
        assert!(ptx.contains(&format!(".target sm_{architecture}")));
        assert_eq!(ptx.matches(".entry ").count(), Kernel::ALL.len());
        assert!(!ptx.contains("call.uni"), "functions are inlined");
    }
    assert_eq!(nvrtc.image(90).unwrap(), nvrtc.compile(90).unwrap().cubin);
    // A device newer than the compiler gets what its driver can make code from.
    let newest = *known.last().unwrap();
    assert!(nvrtc.image(newest + 1000).unwrap().ends_with(b"\0"));
    assert!(nvrtc.image(1).is_err());
}

/// True when a file of `tests` agrees with the headers in these folders.
fn agrees(file: &str, includes: &[PathBuf]) -> bool {
    Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-clobbered", "-fsyntax-only", "-DWITH_HEADERS"])
        .args(includes.iter().map(|folder| format!("-I{}", folder.display())))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file))
        .status()
        .expect("a C++ compiler is installed")
        .success()
}

/// A call with a wrong type would be noticed on a machine with a GPU only, as a crash.
#[test]
fn the_driver_has_the_functions_as_we_call_them() {
    let Some(folder) = wheels("nvrtc.sh") else { return };
    assert!(agrees("emulator.cpp", &["cuda_runtime", "cuda_nvrtc"].map(|package| folder.join("nvidia").join(package).join("include"))));
}

/// nvCOMP itself has every function that we call, with the types that its stand-in has, and answers what needs no GPU.
#[test]
fn nvcomp_has_the_functions_as_we_call_them() {
    let Some(folder) = wheels("nvcomp.sh") else { return };
    let folder = folder.join("nvidia/libnvcomp");
    assert!(agrees("nvcomp.cpp", &[folder.join("include")]));
    let library = folder.join("lib64/libnvcomp.so.6");
    assert!(matches!(Nvcomp::load(Some(&library), 11), Err(NvcompMissing::Driver { built: 12_000.. })));
    let nvcomp = Nvcomp::load(Some(&library), 12).unwrap();
    assert!(format!("{nvcomp:?}").starts_with("nvCOMP 6."), "{nvcomp:?}");
    let codecs = [2, 4, 5].map(|algorithm| Codec::Deflate { algorithm }).into_iter().chain([Codec::ZstdPack]);
    for codec in codecs {
        let most = nvcomp.packed_bytes_max(codec, 131_072).unwrap();
        assert!((131_072..1 << 20).contains(&most), "{codec:?}: {most}");
        assert!(nvcomp.packed_bytes_max(codec, (1 << 31) + 1).is_err(), "{codec:?}");
    }
    for codec in [Codec::Deflate { algorithm: 4 }, Codec::Inflate, Codec::ZstdPack, Codec::ZstdUnpack] {
        let sizes = nvcomp.offers(codec).unwrap();
        assert!(sizes.min_bytes <= 512 && sizes.max_bytes >= 16 << 20 && sizes.align_bytes <= 8, "{codec:?}: {sizes:?}");
    }
    // Options arrive as they are given.
    assert_eq!(nvcomp.offers(Codec::Deflate { algorithm: 77 }), None);
}
