//! What a file or device rests on: a pool whose devices lie in a file system of this same daemon would wait for itself, where not
//! even SIGKILL reaches. A file in one is used without the kernel, also behind bind mounts; loop devices, mapped devices and overlays
//! over one are refused, and so are the files of its volumes and what is over them.

use crate::pool::Pools;
use rustix::fs::{major, makedev, minor};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Number of devices, one below the other, that something may rest on.
const DEPTH_MAX: u32 = 16;

/// Stands for the name of a dataset where something rests on the files of this daemon's volumes.
pub(crate) const VOLUMES: &str = "(volumes of this daemon)";

/// Line of `/proc/self/mountinfo`, as far as it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MountLine {
    device: u64,
    place: String,
    kind: String,
    source: String,
    options: String,
}

/// Mounts of this process's name space, and which of them are this daemon's.
#[derive(Debug, Default)]
struct Mounts {
    lines: Vec<MountLine>,
    /// Names of this daemon's datasets by their device numbers.
    own: BTreeMap<u64, String>,
}

pub(crate) fn unescaped(field: &str) -> String {
    let mut text = field.to_string();
    for (code, letter) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(code, letter);
    }
    text
}

fn parse(line: &str) -> Option<MountLine> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (big, small) = left.next()?.split_once(':')?;
    let place = unescaped(left.nth(1)?);
    let mut right = right.splitn(3, ' ');
    let (kind, source) = (right.next()?.to_string(), unescaped(right.next()?));
    let device = makedev(big.parse().ok()?, small.parse().ok()?);
    Some(MountLine { device, place, kind, source, options: right.next().unwrap_or_default().to_string() })
}

impl Mounts {
    fn read(own: &[(String, String)]) -> Mounts {
        Mounts::of(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), own)
    }

    /// Parses `/proc/self/mountinfo`; `own` has datasets and their mountpoints.
    fn of(text: &str, own: &[(String, String)]) -> Mounts {
        let mut mounts = Mounts { lines: text.lines().filter_map(parse).collect(), own: BTreeMap::new() };
        for line in mounts.lines.iter().filter(|line| line.kind.starts_with("fuse")) {
            let is_it = |(dataset, place): &&(String, String)| line.source == *dataset || line.place == *place;
            if let Some((dataset, _)) = own.iter().find(is_it) {
                mounts.own.insert(line.device, dataset.clone());
            }
        }
        mounts
    }

    /// Name of this daemon's dataset that a path rests on.
    fn under_path(&self, path: &Path, depth: u32) -> Option<String> {
        let metadata = std::fs::metadata(path).ok()?;
        if metadata.file_type().is_block_device() {
            self.under(metadata.rdev(), None, depth)
        } else {
            self.under(metadata.dev(), Some(path), depth)
        }
    }

    /// Name of the dataset that a device number's file system or block device rests on; `path` is in it.
    fn under(&self, device: u64, path: Option<&Path>, depth: u32) -> Option<String> {
        if let Some(dataset) = self.own.get(&device) {
            return Some(dataset.clone());
        }
        let deeper = depth.checked_sub(1)?;
        let node = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
        if node.exists() {
            return self.under_block(&node, deeper);
        }
        // A file system without a device of its own number: btrfs, overlayfs.
        let line = self.lines.iter().rfind(|line| line.device == device).or_else(|| self.line_at(path?))?;
        let upper = line
            .options
            .split(',')
            .filter_map(|option| option.split_once('='))
            .filter(|(name, _)| *name == "upperdir" || *name == "lowerdir");
        let layers = upper.flat_map(|(_, folders)| folders.split(':')).map(PathBuf::from);
        let source = line.source.starts_with("/dev/").then(|| PathBuf::from(&line.source));
        layers.chain(source).find_map(|path| self.under_path(&path, deeper))
    }

    fn under_block(&self, node: &Path, depth: u32) -> Option<String> {
        for file in ["loop/backing_file", "../loop/backing_file"] {
            if let Ok(text) = std::fs::read_to_string(node.join(file)) {
                return self.under_path(Path::new(text.trim_end_matches('\n')), depth);
            }
        }
        // Partitions rest on their disks, mapped devices on theirs.
        let below = ["slaves", "../slaves"].iter().flat_map(|folder| std::fs::read_dir(node.join(folder)).into_iter().flatten().flatten());
        below.map(|entry| entry.path()).find_map(|slave| {
            let text = std::fs::read_to_string(slave.join("dev")).ok()?;
            let (big, small) = text.trim().split_once(':')?;
            self.under(makedev(big.parse().ok()?, small.parse().ok()?), None, depth)
        })
    }

    /// Mount that a path is in, by its name.
    fn line_at(&self, path: &Path) -> Option<&MountLine> {
        let real = std::fs::canonicalize(path).ok()?;
        self.lines.iter().filter(|line| real.starts_with(&line.place)).max_by_key(|line| line.place.len())
    }
}

/// Name of this daemon's dataset that a path rests on, or [`VOLUMES`].
pub(crate) fn own_dataset_under(pools: &Pools, path: &str) -> Option<String> {
    let mut own = pools.mounts();
    own.extend(pools.volumes_at.get().map(|place| (VOLUMES.to_string(), place.clone())));
    if own.is_empty() {
        return None;
    }
    Mounts::read(&own).under_path(Path::new(path), DEPTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        40 27 0:52 / /mnt/a\\040b rw,nosuid shared:3 - fuse.zfs tank/a\\040b rw,user_id=0\n\
        41 27 0:52 /sub /elsewhere rw - fuse.zfs tank/a\\040b rw\n\
        42 27 0:60 / /other rw - fuse.sshfs host: rw\n\
        43 27 7:3 / /mnt/c rw - fuseblk /dev/loop3 rw\n\
        44 27 0:61 / /merged rw - overlay overlay rw,lowerdir=/x,upperdir=/y\n\
        45 27 0:62 / /run/z/dev/zvol rw - fuse.zfs zirconia-zvol rw\n\
        46 27 0:63 / /run/other/dev/zvol rw - fuse.zfs zirconia-zvol rw\n";

    /// If this fails, a pool may wait for a file system that waits for the pool, beyond SIGKILL.
    #[test]
    fn own_mounts_are_known_by_their_device_wherever_they_are_mounted() {
        let own = [("tank/a b", "/mnt/a b"), ("tank/c", "/mnt/c"), (VOLUMES, "/run/z/dev/zvol")];
        let mounts = Mounts::of(TEXT, &own.map(|(name, place)| (name.to_string(), place.to_string())));
        assert_eq!(mounts.lines.len(), 8);
        let known: Vec<(u64, &str)> = mounts.own.iter().map(|(device, name)| (*device, name.as_str())).collect();
        let mut expected = vec![(makedev(0, 52), "tank/a b"), (makedev(7, 3), "tank/c"), (makedev(0, 62), VOLUMES)];
        expected.sort_unstable();
        assert_eq!(known, expected);
        assert_eq!(mounts.under(makedev(0, 52), None, 1).as_deref(), Some("tank/a b"));
        assert_eq!(mounts.under(makedev(0, 60), None, 1), None, "somebody else's");
        assert_eq!(mounts.under_path(Path::new("/proc"), DEPTH_MAX), None);
    }
}
