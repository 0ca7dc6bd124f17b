//! What the tests share: folders that go away, and the C compiler as vendors call it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that goes away again.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        // Two tests may take the same name.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("provider-c-{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The top of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds `source` as vendors do; extra arguments go to the compiler.
pub fn build(folder: &Folder, source: &Path, extra: &[&str]) -> PathBuf {
    // A path that was loaded once stands for that library for ever.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let library = folder.0.join(format!("provider-{}.so", NEXT.fetch_add(1, Ordering::Relaxed)));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let status = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared"])
        .args(extra)
        .arg("-I")
        .arg(include)
        .arg("-o")
        .args([&library, source])
        .status()
        .expect("cc is installed");
    assert!(status.success());
    library
}
