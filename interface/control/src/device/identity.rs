//! Files and devices by what they are, whatever their names: links, hard or symbolic, and several nodes of one device are one.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// File or block device, as the kernel tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    /// Block device, by its number.
    Device(u64),
    /// Anything else, by its file system and inode.
    File { device: u64, inode: u64 },
}

/// Identity of what a path leads to; None where nothing is.
pub(crate) fn identity(path: &str) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    Some(if is_device { Identity::Device(metadata.rdev()) } else { Identity::File { device: metadata.dev(), inode: metadata.ino() } })
}

/// True when both paths are the same, or lead to the same file or device.
pub(crate) fn same_file(one: &str, other: &str) -> bool {
    one == other || identity(other).is_some_and(|wanted| identity(one) == Some(wanted))
}

/// First path that leads to what an earlier one leads to, behind that one.
pub(crate) fn twice<'a>(paths: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    let mut seen = BTreeMap::new();
    for path in paths {
        let found = identity(path);
        // What is not there has its name only.
        let name = if found.is_some() { "" } else { path };
        if let Some(first) = seen.insert((found, name), path) {
            return Some((first, path));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, both halves of a mirror are one file, or whoever names one twice is sent to look for a program that has it.
    #[test]
    fn one_file_is_one_device_by_whichever_name() {
        let folder = std::env::temp_dir().join(format!("zirconia-identity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let at = |name: &str| folder.join(name).display().to_string();
        let [file, other, hard, soft] = ["file", "other", "hard", "soft"].map(at);
        for path in [&file, &other] {
            std::fs::write(path, "").expect("written");
        }
        std::fs::hard_link(&file, &hard).expect("linked");
        std::os::unix::fs::symlink(&file, &soft).expect("linked");
        let same = [&file, &hard, &soft].map(|path| same_file(path, &file));
        let differ = [same_file(&file, &other), same_file(&file, &at("absent")), same_file(&at("absent"), &file)];
        let first_twice =
            |paths: &[&String]| twice(paths.iter().map(|path| path.as_str())).map(|(one, two)| (one.to_string(), two.to_string()));
        let found = [first_twice(&[&other, &file, &hard]), first_twice(&[&soft, &other, &file]), first_twice(&[&file, &other])];
        let absent = first_twice(&[&at("absent"), &at("nothing"), &at("absent")]);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!((same, differ), ([true; 3], [false; 3]));
        assert_eq!(found, [Some((file.clone(), hard)), Some((soft, file)), None]);
        assert_eq!(absent, Some((at("absent"), at("absent"))));
    }
}
