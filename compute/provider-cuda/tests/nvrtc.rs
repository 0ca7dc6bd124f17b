//! The kernels compiled by NVIDIA's own compiler, and the declarations that we call by compared with NVIDIA's headers.
//!
//! Compiler and headers are Python wheels, fetched by `tools/nvrtc.sh` (tens of MB, kept under `target/`). Where the package index cannot
//! be reached the tests say that they skip, as with `ZIRCONIA_NO_NVRTC=1`; with `ZIRCONIA_NO_NVRTC=0` they fail then.

use provider_cuda::{Kernel, Nvrtc};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How `tools/nvrtc.sh` ends when the package index cannot be reached.
const UNREACHABLE: i32 = 75;

/// Where the wheels are unpacked; None when they are to be left out.
fn wheels() -> Option<PathBuf> {
    let wish = std::env::var("ZIRCONIA_NO_NVRTC").unwrap_or_default();
    if !matches!(wish.as_str(), "" | "0") {
        eprintln!("skipped: ZIRCONIA_NO_NVRTC is set, so the CUDA kernels are not compiled by NVRTC");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/nvrtc.sh");
    let output = Command::new(script).output().expect("tools/nvrtc.sh can be started");
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if output.status.code() == Some(UNREACHABLE) && wish != "0" {
        eprintln!("skipped: NVRTC cannot be fetched, so the CUDA kernels are not compiled: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    assert!(
        output.status.success(),
        "NVRTC cannot be fetched (set ZIRCONIA_NO_NVRTC=1 to leave this test out):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(PathBuf::from(folder))
}

/// Kernels that do not compile, or lack an entry, leave a machine with a GPU without its provider.
#[test]
fn nvrtc_compiles_every_kernel() {
    let Some(folder) = wheels() else { return };
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
        // What spills to local memory is slow; the schedule of sha256 is the one array that may lie there.
        assert!(!ptx.contains("call.uni"), "functions are inlined");
    }
    assert_eq!(nvrtc.image(90).unwrap(), nvrtc.compile(90).unwrap().cubin);
    // A device newer than the compiler gets what its driver can make code from.
    let newest = *known.last().unwrap();
    assert!(nvrtc.image(newest + 1000).unwrap().ends_with(b"\0"));
    assert!(nvrtc.image(1).is_err());
}

/// A call with a wrong type would be noticed on a machine with a GPU only, as a crash.
#[test]
fn the_driver_has_the_functions_as_we_call_them() {
    let Some(folder) = wheels() else { return };
    let include = |package: &str| folder.join("nvidia").join(package).join("include");
    let status = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-clobbered", "-fsyntax-only", "-DWITH_HEADERS", "-I"])
        .arg(include("cuda_runtime"))
        .arg("-I")
        .arg(include("cuda_nvrtc"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator.cpp"))
        .status()
        .expect("a C++ compiler is installed");
    assert!(status.success());
}
