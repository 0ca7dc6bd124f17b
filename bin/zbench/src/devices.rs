//! Devices for the matrix: files, or loop devices under a bandwidth cap that stands for an NVMe.
//!
//! The cap lies in the root blkio group (cgroup v1), so it holds for every process: client, daemon, kernel threads. Caps and loop
//! devices are removed on return, panic and ^C; what a killed run left is found by the name of its backing files and removed first.

use crate::cleanup::Guard;
use crate::files::VdevFiles;
use crate::measure::text;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::Command;

const BLKIO: &str = "/sys/fs/cgroup/blkio";
const LIMITS: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
/// Part of the path of every backing file; the process that made it follows.
const MARK: &str = "/zbench-loop-";

/// Kind of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// Files, as fast as the memory or disk below
    Files,
    /// Loop devices with a bandwidth cap each (needs root)
    Loops,
}

/// Devices of one run.
#[derive(Debug)]
pub struct DeviceSet {
    /// Paths of the files or block devices.
    pub paths: Vec<PathBuf>,
    /// Folder in which the files (or backing files) lie.
    pub folder: PathBuf,
    /// Bytes of each device.
    pub bytes: u64,
    /// Cap of each device in bytes per second, if there is one.
    pub cap: Option<u64>,
    // Loops go before their backing files: fields drop in order.
    _loops: Vec<Guard>,
    files: VdevFiles,
}

fn throttle(limit: &str, device: &str, bytes_per_second: u64) -> Result<(), String> {
    std::fs::write(format!("{BLKIO}/{limit}"), format!("{device} {bytes_per_second}")).map_err(|error| format!("{BLKIO}/{limit}: {error}"))
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(text)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Number `MAJOR:MINOR` of a block device.
fn numbers(path: &str) -> Result<String, String> {
    let stat = rustix::fs::stat(path).map_err(text)?;
    Ok(format!("{}:{}", rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)))
}

/// Takes the caps of a loop device away and detaches it.
fn detach(path: &str) {
    if let Ok(numbers) = numbers(path) {
        for limit in LIMITS {
            let _ = throttle(limit, &numbers, 0);
        }
    }
    if let Err(error) = said(Command::new("losetup").args(["--detach", path])) {
        eprintln!("{error}");
    }
}

/// True when the folder's maker is gone: its name ends with the number of a process that does not exist.
fn is_orphan(folder: &str) -> bool {
    let maker = folder.rsplit('-').next().unwrap_or_default();
    maker.bytes().all(|byte| byte.is_ascii_digit()) && !maker.is_empty() && !Path::new("/proc").join(maker).exists()
}

/// Detaches loop devices of runs whose process is gone, and removes their files below `parent`.
pub fn remove_stale(parent: &Path) {
    let list = said(Command::new("losetup").args(["--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"])).unwrap_or_default();
    for line in list.lines() {
        let Some((name, backing)) = line.split_once(' ') else { continue };
        let folder = Path::new(backing.trim_end_matches(" (deleted)")).parent().map(Path::display).map(|path| path.to_string());
        if folder.is_some_and(|folder| folder.contains(MARK) && is_orphan(&folder)) {
            eprintln!("removing {name}, left by a run that was killed");
            detach(name);
        }
    }
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("zbench-") && is_orphan(&name) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn attach(file: &Path, cap: Option<u64>) -> Result<(PathBuf, Guard), String> {
    let mut losetup = Command::new("losetup");
    let name = said(losetup.args(["--find", "--show", "--direct-io=on", "--sector-size=4096"]).arg(file))?;
    let undo = name.clone();
    let guard = Guard::new(move || detach(&undo));
    if let Some(cap) = cap {
        for limit in LIMITS {
            throttle(limit, &numbers(&name)?, cap)?;
        }
    }
    Ok((PathBuf::from(name), guard))
}

impl DeviceSet {
    /// Makes `count` devices of `bytes` each below `parent`; `cap` (bytes per second) is for loops only.
    pub fn create(kind: DeviceKind, parent: &Path, count: usize, bytes: u64, cap: Option<u64>) -> Result<DeviceSet, String> {
        if kind == DeviceKind::Files {
            let files = VdevFiles::create(&parent.join(format!("zbench-files-{}", std::process::id())), count, bytes)?;
            let folder = files.folder.clone();
            return Ok(DeviceSet { paths: files.paths.clone(), folder, bytes, cap: None, _loops: Vec::new(), files });
        }
        if cap.is_some() && !Path::new(BLKIO).join(LIMITS[0]).exists() {
            return Err(format!("a bandwidth cap needs the blkio controller of cgroup v1 at {BLKIO}; use --devices-are files"));
        }
        let folder = PathBuf::from(format!("{}{MARK}{}", parent.display(), std::process::id()));
        let files = VdevFiles::create(&folder, count, bytes)?;
        let mut set = DeviceSet { paths: Vec::new(), folder, bytes, cap, _loops: Vec::new(), files };
        for file in set.files.paths.clone() {
            let (path, guard) = attach(&file, cap)?;
            set.paths.push(path);
            set._loops.push(guard);
        }
        Ok(set)
    }

    /// Caps every device anew: bytes per second of reads and of writes; 0 takes the cap away.
    pub fn limit(&self, read: u64, write: u64) -> Result<(), String> {
        for path in &self.paths {
            let numbers = numbers(&path.display().to_string())?;
            for (limit, bytes_per_second) in LIMITS.into_iter().zip([read, write]) {
                throttle(limit, &numbers, bytes_per_second)?;
            }
        }
        Ok(())
    }

    /// Overwrites all of a device, past its cap.
    pub fn wipe(&self, index: usize) -> Result<(), String> {
        self.files.wipe(index)
    }

    /// Paths of the first `count` devices.
    pub fn first(&self, count: usize) -> &[PathBuf] {
        &self.paths[..count.min(self.paths.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cleaning up after others must never touch a run that is still going.
    #[test]
    fn only_folders_of_dead_processes_are_orphans() {
        assert!(!is_orphan(&format!("/dev/shm/zbench-loop-{}", std::process::id())));
        assert!(is_orphan("/dev/shm/zbench-loop-4194305"));
        assert!(!is_orphan("/dev/shm/zbench-loop-"));
        assert!(!is_orphan("/dev/shm/zbench-loop-mine"));
    }
}
