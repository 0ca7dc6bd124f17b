//! A block device that can be pulled out and put back: a loop device whose file is emptied and restored, where that is possible (root, and
//! `losetup`). Programs that have it open get errors from the kernel, as from a disk that is gone.

use crate::world::{Failure, World};
use std::path::PathBuf;

/// Loop device in the place of a file vdev.
pub struct Pulled {
    device: String,
    file: PathBuf,
    aside: PathBuf,
    bytes: u64,
}

/// Runs a program; returns its output.
fn said(words: &[&str]) -> Result<String, Failure> {
    let output = std::process::Command::new(words[0]).args(&words[1..]).output()?;
    if !output.status.success() {
        return Err(format!("      {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

impl Pulled {
    /// Puts a loop device over the vdev `name` in its place.
    pub fn put_over(world: &World, name: &str) -> Result<Pulled, Failure> {
        let (place, file, aside) = (world.path(&format!("vdevs/{name}")), world.path("below"), world.path("aside"));
        std::fs::rename(&place, &file)?;
        let bytes = std::fs::metadata(&file)?.len();
        let device = said(&["losetup", "--find", "--show", &file.display().to_string()])?;
        let pulled = Pulled { device, file, aside, bytes };
        std::os::unix::fs::symlink(&pulled.device, &place)?;
        Ok(pulled)
    }

    /// Takes all room from the device: every I/O fails from now on.
    pub fn pull(&self) -> Result<(), Failure> {
        said(&["cp", "--sparse=always", &self.file.display().to_string(), &self.aside.display().to_string()])?;
        std::fs::OpenOptions::new().write(true).open(&self.file)?.set_len(0)?;
        said(&["losetup", "--set-capacity", &self.device]).map(drop)
    }

    /// Puts the device back, with what it had.
    pub fn put_back(&self) -> Result<(), Failure> {
        std::fs::OpenOptions::new().write(true).open(&self.file)?.set_len(self.bytes)?;
        said(&[
            "dd",
            "conv=notrunc,sparse",
            "bs=1M",
            "status=none",
            &format!("if={}", self.aside.display()),
            &format!("of={}", self.file.display()),
        ])?;
        said(&["losetup", "--set-capacity", &self.device]).map(drop)
    }
}

impl Drop for Pulled {
    fn drop(&mut self) {
        // A device that is in use goes when it is closed.
        let _ = said(&["losetup", "--detach", &self.device]);
    }
}
