//! Files that the kernel uses for something else: as swap, or behind loop devices. Nothing in them tells, and nobody holds them open.

use crate::device::beneath::unescaped;
use crate::device::identity::same_file;
use std::path::Path;

/// Path of the table of swap areas.
const SWAPS: &str = "/proc/swaps";
/// Folder where block devices are described.
const BLOCKS: &str = "/sys/block";

/// Holder of a file other than a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Swap of the kernel.
    Swap,
    /// Loop device, by its path.
    Loop(String),
}

/// Holder of the file at a path, if anybody has it.
pub(crate) fn taker(path: &str) -> Option<Taker> {
    let swaps = std::fs::read_to_string(SWAPS).unwrap_or_default();
    if swap_files(&swaps).any(|file| same_file(&file, path)) {
        return Some(Taker::Swap);
    }
    loop_files(Path::new(BLOCKS)).find(|(_, file)| same_file(file, path)).map(|(device, _)| Taker::Loop(device))
}

/// Paths of the swap areas that the table names, which has spaces and the like in octal.
fn swap_files(table: &str) -> impl Iterator<Item = String> {
    table.lines().skip(1).filter_map(|line| Some(unescaped(line.split_whitespace().next()?)))
}

/// Loop devices and the files behind them.
fn loop_files(blocks: &Path) -> impl Iterator<Item = (String, String)> {
    let devices = std::fs::read_dir(blocks).into_iter().flatten().flatten();
    devices.filter(|device| device.file_name().to_string_lossy().starts_with("loop")).filter_map(|device| {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        Some((format!("/dev/{}", device.file_name().to_string_lossy()), file.trim_end_matches('\n').to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a pool is made on the machine's swap, which it takes down with it.
    #[test]
    fn swap_files_are_read_from_the_table() {
        let table = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/swap\\040file                          file\t\t1024\t\t0\t\t-2\n\
                     /dev/sda2                               partition\t2048\t\t0\t\t-3\n";
        assert_eq!(swap_files(table).collect::<Vec<_>>(), ["/swap file", "/dev/sda2"]);
    }

    /// If this fails, one disk is written to by two ways at once: by a pool, and through the loop device on it.
    #[test]
    fn files_behind_loop_devices_are_found() {
        let folder = std::env::temp_dir().join(format!("zirconia-taken-{}", std::process::id()));
        for (device, file) in [("loop3", Some("/images/a b.img\n")), ("loop4", None), ("sda", Some("/wrong\n"))] {
            let of_loop = folder.join(device).join("loop");
            std::fs::create_dir_all(&of_loop).expect("made");
            file.into_iter().for_each(|file| std::fs::write(of_loop.join("backing_file"), file).expect("written"));
        }
        let found: Vec<_> = loop_files(&folder).collect();
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(found, [("/dev/loop3".to_string(), "/images/a b.img".to_string())]);
    }
}
