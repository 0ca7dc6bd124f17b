//! The kernels compiled by NVIDIA's own compiler, and the declarations that we call by compared with NVIDIA's headers.
//!
//! Compiler and headers are Python wheels, fetched by `tools/nvrtc.sh` (tens of MB, kept under `target/`). Where they cannot be had the
//! tests fail and say so; `ZIRCONIA_NO_NVRTC=1` leaves them out.

use provider_cuda::{Kernel, Nvrtc};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the wheels are unpacked; None when they are to be left out.
fn wheels() -> Option<PathBuf> {
    if std::env::var_os("ZIRCONIA_NO_NVRTC").is_some_and(|value| !value.is_empty()) {
        eprintln!("skipped: ZIRCONIA_NO_NVRTC is set, so the CUDA kernels are not compiled by NVRTC");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/nvrtc.sh");
    let output = Command::new(script).output().expect("tools/nvrtc.sh can be started");
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_string();
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
