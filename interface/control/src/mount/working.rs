//! Programs whose working or root directory lies somewhere, and those in other mount namespaces that have a file system, too. The kernel keeps
//! such a directory, or mount, without an open file, so that only `/proc` tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Number and name of a program whose working directory or root is `place` or below it. Of programs that this process may not look at
/// nothing is known.
pub(crate) fn somebody_in(place: &Path) -> Option<String> {
    look(Path::new("/proc"), place)
}

/// Folders of all programs.
fn programs(proc: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)).map(|entry| entry.path())
}

/// Number and name of a program: `12 (bash)`.
fn number_and_name(program: &Path) -> String {
    let name = fs::read_to_string(program.join("comm")).unwrap_or_default();
    format!("{} ({})", program.file_name().unwrap_or_default().display(), name.trim_end())
}

fn look(proc: &Path, place: &Path) -> Option<String> {
    let works_there = |program: &PathBuf| {
        let directories = ["cwd", "root"].map(|link| fs::read_link(program.join(link)));
        directories.iter().flatten().any(|directory| directory.starts_with(place))
    };
    programs(proc).find(works_there).map(|program| number_and_name(&program))
}

/// File systems that are mounted in mount namespaces other than that of this process, by the devices that they have everywhere: with each, number
/// and name of a program there. Of programs that this process may not look at nothing is known.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(BTreeMap<(u32, u32), String>);

impl Elsewhere {
    /// Looks at all programs.
    pub(crate) fn look() -> Elsewhere {
        Elsewhere::look_in(Path::new("/proc"))
    }

    fn look_in(proc: &Path) -> Elsewhere {
        let namespace_of = |program: &Path| fs::read_link(program.join("ns/mnt")).ok();
        let own = namespace_of(&proc.join("self"));
        let (mut seen, mut found) = (BTreeSet::new(), BTreeMap::new());
        for program in programs(proc) {
            let Some(namespace) = namespace_of(&program).filter(|namespace| Some(namespace) != own.as_ref()) else { continue };
            // A program sees what is below its root.
            if !seen.insert((namespace, fs::read_link(program.join("root")).ok())) {
                continue;
            }
            let table = fs::read(program.join("mountinfo")).unwrap_or_default();
            let name = number_and_name(&program);
            for device in String::from_utf8_lossy(&table).lines().filter_map(device) {
                found.entry(device).or_insert_with(|| name.clone());
            }
        }
        Elsewhere(found)
    }

    /// Number and name of a program that has the file system with this device.
    pub(crate) fn program(&self, device: (u32, u32)) -> Option<&str> {
        self.0.get(&device).map(String::as_str)
    }
}

/// Device in a line of `mountinfo`: `id parent major:minor …`.
fn device(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a shell that stands in a snapshot finds itself nowhere.
    #[test]
    fn a_working_directory_is_found_and_no_other() {
        let folder = std::env::temp_dir().join(format!("working-{}", std::process::id()));
        for (pid, cwd) in [("12", "/mnt/.zfs/snapshot/ab"), ("13", "/mnt/.zfs/snapshot/a/deep"), ("self", "/mnt/.zfs/snapshot/c")] {
            fs::create_dir_all(folder.join(pid)).expect("a folder");
            std::os::unix::fs::symlink(cwd, folder.join(pid).join("cwd")).expect("a link");
            fs::write(folder.join(pid).join("comm"), "bash\n").expect("a file");
        }
        let found = |name: &str| look(&folder, &Path::new("/mnt/.zfs/snapshot").join(name));
        assert_eq!((found("a"), found("ab")), (Some("13 (bash)".to_string()), Some("12 (bash)".to_string())));
        assert_eq!((found("b"), found("c")), (None, None));
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// If this fails, who is told that a file system is busy does not hear which container has it, or looks for it in the wrong one.
    #[test]
    fn mounts_in_other_namespaces_are_found_and_own_ones_are_not() {
        let folder = std::env::temp_dir().join(format!("elsewhere-{}", std::process::id()));
        let row = |minor: u32| format!("139 81 0:{minor} / /tank rw shared:5 - fuse.zfs tank rw\n");
        let all = [("self", "mnt:[1]", 70), ("11", "mnt:[1]", 70), ("12", "mnt:[2]", 71), ("13", "mnt:[2]", 72)];
        for (pid, namespace, minor) in all {
            fs::create_dir_all(folder.join(pid).join("ns")).expect("a folder");
            std::os::unix::fs::symlink(namespace, folder.join(pid).join("ns/mnt")).expect("a link");
            std::os::unix::fs::symlink(format!("/{pid}"), folder.join(pid).join("root")).expect("a link");
            fs::write(folder.join(pid).join("mountinfo"), row(minor)).expect("a file");
            fs::write(folder.join(pid).join("comm"), "sleep\n").expect("a file");
        }
        let found = Elsewhere::look_in(&folder);
        assert_eq!((found.program((0, 71)), found.program((0, 72))), (Some("12 (sleep)"), Some("13 (sleep)")));
        assert_eq!((found.program((0, 70)), found.program((0, 7))), (None, None));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
