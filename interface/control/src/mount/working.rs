//! Programs whose working or root directory lies somewhere. The kernel keeps such a directory without keeping it open, so that only `/proc` tells.

use std::fs;
use std::path::{Path, PathBuf};

/// Number and name of a program whose working directory or root is `place` or below it. Of programs that this process may not look at
/// nothing is known.
pub(crate) fn somebody_in(place: &Path) -> Option<String> {
    look(Path::new("/proc"), place)
}

fn look(proc: &Path, place: &Path) -> Option<String> {
    let entries = fs::read_dir(proc).ok()?.flatten();
    let programs =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)).map(|entry| entry.path());
    let works_there = |program: &PathBuf| {
        let directories = ["cwd", "root"].map(|link| fs::read_link(program.join(link)));
        directories.iter().flatten().any(|directory| directory.starts_with(place))
    };
    programs.into_iter().find(works_there).map(|program| {
        let name = fs::read_to_string(program.join("comm")).unwrap_or_default();
        format!("{} ({})", program.file_name().unwrap_or_default().display(), name.trim_end())
    })
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
}
