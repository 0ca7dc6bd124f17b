//! Copies of pools, whole or with devices taken away or overwritten with noise.

use crate::{Failure, driver};
use exec::SplitMix;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Bytes in front of the data of a device: two labels and the boot area.
const FRONT_BYTES: u64 = 4 << 20;
/// Bytes behind the data: two labels.
const BACK_BYTES: u64 = 512 << 10;
const CHUNK: usize = 1 << 20;

/// Damage to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Device is gone.
    Missing,
    /// Data of the device is noise, its labels are as they were.
    Noise,
}

/// Copies the vdev files of a pool, holes as holes.
pub fn copy_pool(from: &Path, to: &Path) -> Result<(), Failure> {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to)?;
    for file in driver::vdev_files(from)? {
        let status = Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(&file).arg(to).status()?;
        if !status.success() {
            return Err(format!("cp {} failed", file.display()).into());
        }
    }
    Ok(())
}

/// Damages devices of a pool, counted from the first (`from_end`: from the last).
pub fn damage(folder: &Path, count: usize, from_end: bool, how: Damage) -> Result<(), Failure> {
    let mut files = driver::vdev_files(folder)?;
    if from_end {
        files.reverse();
    }
    for file in files.iter().take(count) {
        match how {
            Damage::Missing => std::fs::remove_file(file)?,
            Damage::Noise => noise(file)?,
        }
    }
    Ok(())
}

/// Puts devices that [`damage`] took away back as they were.
pub fn bring_back(from: &Path, to: &Path, count: usize) -> Result<(), Failure> {
    for file in driver::vdev_files(from)?.iter().take(count) {
        std::fs::copy(file, to.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn noise(path: &Path) -> Result<(), Failure> {
    let file = File::options().write(true).open(path)?;
    let end = file.metadata()?.len().saturating_sub(BACK_BYTES);
    let bytes = SplitMix::new(end).bytes(CHUNK);
    let mut at = FRONT_BYTES;
    while at < end {
        let part = &bytes[..CHUNK.min((end - at) as usize)];
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}
