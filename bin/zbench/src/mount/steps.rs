//! A life of many small files, in the order in which it happens: unpacked, looked for, looked at, searched twice, asked for by git,
//! removed; and one file written in little pieces.

use super::places::Kind;
use crate::files::pattern;
use crate::measure::text;
use rustix::fs::AtFlags;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Number of files in a folder.
const FOLDER_FILES: usize = 16;
/// Number of folders in a folder.
const FOLDER_FOLDERS: usize = 24;
const SMALL_BYTES: usize = 100;

type Run = fn(&Work, &Path) -> Result<bool, String>;

/// One thing that is measured.
pub struct Step {
    pub name: &'static str,
    /// Multiple of ext4's time that is allowed.
    bound: f64,
    /// Multiple that is allowed with a write-back cache.
    bound_back: f64,
    /// Number of operations.
    pub operations: fn(&Work) -> usize,
    /// Makes what the step needs; not measured.
    pub prepare: fn(&Work, &Path) -> Result<(), String>,
    /// Does it; false where this machine cannot.
    pub run: Run,
    /// Tool that a machine lacks that cannot.
    pub needs: &'static str,
}

impl Step {
    /// Multiple of ext4's time that a subject is allowed; none for those that are only looked at.
    pub fn bound(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Ours => Some(self.bound),
            Kind::WriteBack => Some(self.bound_back),
            Kind::Ext4 | Kind::Memory => None,
        }
    }
}

fn nothing(_: &Work, _: &Path) -> Result<(), String> {
    Ok(())
}

/// Steps in their order.
pub const STEPS: [Step; 8] = [
    step("untar", 4.5, |work| work.paths.len() + work.folders, nothing, untar),
    step("find -size", 2.0, Work::files, nothing, find),
    step("stat", 2.0, Work::files, nothing, stat),
    step("grep -r", 4.0, Work::files, nothing, grep),
    step("grep -r again", 4.0, Work::files, nothing, grep),
    Step { needs: "git", ..step("git status", 2.5, Work::files, commit, status) },
    step("rm -rf", 3.0, |work| work.paths.len() + work.folders, forget_git, remove),
    Step { bound_back: 2.0, ..step("write 100 B", 12.0, |work| work.writes, nothing, write) },
];

const fn step(
    name: &'static str,
    bound: f64,
    operations: fn(&Work) -> usize,
    prepare: fn(&Work, &Path) -> Result<(), String>,
    run: Run,
) -> Step {
    Step { name, bound, bound_back: bound, operations, prepare, run, needs: "" }
}

/// Archive of the files, and what is in it.
pub struct Work {
    archive: PathBuf,
    paths: Vec<PathBuf>,
    folders: usize,
    bytes: u64,
    writes: usize,
}

/// Bytes of a file: as of sources, most of a few KiB, some of many.
fn size_of_file(number: usize) -> usize {
    match number % 16 {
        0..6 => 300 + number * 37 % 1700,
        6..12 => 2000 + number * 131 % 6000,
        12..15 => 8000 + number * 173 % 12_000,
        _ => 20_000 + number * 211 % 40_000,
    }
}

fn done(command: &mut Command, allowed: &[i32]) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).status();
    let status = status.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let is_right = status.code().is_some_and(|code| code == 0 || allowed.contains(&code));
    if is_right { Ok(()) } else { Err(format!("{:?}: {status}", command.get_program())) }
}

impl Work {
    /// Makes an archive of `files` files in `folder`.
    pub fn new(folder: &Path, files: usize, writes: usize) -> Result<Work, String> {
        let tree = folder.join("tree");
        let bytes = pattern(64 << 10);
        let mut work = Work { archive: folder.join("archive.tar"), paths: Vec::new(), folders: 0, bytes: 0, writes };
        let mut made = std::collections::BTreeSet::new();
        for number in 0..files {
            let leaf = number / FOLDER_FILES;
            let parent = PathBuf::from(format!("tree/part-{}/module-{leaf}", leaf / FOLDER_FOLDERS));
            if made.insert(parent.clone()) {
                made.extend(parent.ancestors().skip(1).filter(|path| path.starts_with("tree")).map(Path::to_path_buf));
                std::fs::create_dir_all(folder.join(&parent)).map_err(text)?;
            }
            let path = parent.join(format!("source-file-{number}.rs"));
            let length = size_of_file(number);
            let start = number * 97 % (bytes.len() - length);
            // Text, as far as grep is concerned.
            let lines: Vec<u8> =
                bytes[start..start + length].iter().map(|byte| if byte % 48 == 0 { b'\n' } else { b' ' + byte % 95 }).collect();
            std::fs::write(folder.join(&path), lines).map_err(text)?;
            work.bytes += length as u64;
            work.paths.push(path);
        }
        work.folders = made.len();
        done(Command::new("tar").arg("-cf").arg(&work.archive).arg("-C").arg(folder).arg("tree"), &[])?;
        std::fs::remove_dir_all(tree).map_err(text)?;
        Ok(work)
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.paths.len()
    }

    /// Number of folders.
    pub fn folders(&self) -> usize {
        self.folders
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Mean size of a file in KiB.
    pub fn kib(&self) -> u64 {
        (self.bytes / self.paths.len().max(1) as u64) >> 10
    }
}

fn untar(work: &Work, root: &Path) -> Result<bool, String> {
    done(Command::new("tar").arg("-xf").arg(&work.archive).arg("-C").arg(root), &[]).map(|()| true)
}

fn find(_: &Work, root: &Path) -> Result<bool, String> {
    done(Command::new("find").arg(root.join("tree")).args(["-size", "+1000000k"]), &[]).map(|()| true)
}

fn stat(work: &Work, root: &Path) -> Result<bool, String> {
    for path in &work.paths {
        // As programs in C ask: who wants the time of birth too, as Rust's library does, is a request each time, whatever the kernel keeps.
        rustix::fs::statat(rustix::fs::CWD, root.join(path), AtFlags::SYMLINK_NOFOLLOW).map_err(text)?;
    }
    Ok(true)
}

fn grep(_: &Work, root: &Path) -> Result<bool, String> {
    done(Command::new("grep").args(["-rlF", "words that no file has"]).arg(root.join("tree")), &[1]).map(|()| true)
}

fn git(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(root.join("tree")).args(["-c", "user.name=zbench", "-c", "user.email=zbench@localhost", "-c", "gc.auto=0"]);
    command.args(["-c", "safe.directory=*"]).args(arguments).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command
}

fn has_git() -> bool {
    Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn commit(_: &Work, root: &Path) -> Result<(), String> {
    if has_git() {
        done(&mut git(root, &["init", "-q"]), &[])?;
        done(&mut git(root, &["add", "-A"]), &[])?;
        done(&mut git(root, &["commit", "-q", "-m", "all"]), &[])?;
        done(&mut git(root, &["status", "--porcelain"]), &[])?;
    }
    Ok(())
}

fn status(_: &Work, root: &Path) -> Result<bool, String> {
    match has_git() {
        true => done(&mut git(root, &["status", "--porcelain"]), &[]).map(|()| true),
        false => Ok(false),
    }
}

fn forget_git(_: &Work, root: &Path) -> Result<(), String> {
    let place = root.join("tree/.git");
    // As rm(1) does it: the in-memory file system loses its place where names go while it lists them.
    done(Command::new("rm").arg("-rf").arg(place), &[])
}

fn remove(_: &Work, root: &Path) -> Result<bool, String> {
    done(Command::new("rm").arg("-rf").arg(root.join("tree")), &[]).map(|()| true)
}

fn write(work: &Work, root: &Path) -> Result<bool, String> {
    let path = root.join("small-writes");
    let mut file = std::fs::File::create(&path).map_err(text)?;
    let piece = [b'w'; SMALL_BYTES];
    for _ in 0..work.writes {
        file.write_all(&piece).map_err(text)?;
    }
    let mut last = [0; SMALL_BYTES];
    drop(file);
    let file = std::fs::File::open(&path).map_err(text)?;
    file.read_exact_at(&mut last, (work.writes.max(1) - 1) as u64 * SMALL_BYTES as u64).map_err(text)?;
    if last == piece { Ok(true) } else { Err("a small write was lost".to_string()) }
}

#[cfg(test)]
mod tests {
    use super::size_of_file;

    /// Sizes that no source tree has make a measurement of copying, not of files.
    #[test]
    fn files_are_small() {
        let sizes: Vec<usize> = (0..9000).map(size_of_file).collect();
        assert!(sizes.iter().all(|size| (300..62_000).contains(size)));
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((4000..12_000).contains(&mean), "{mean}");
    }
}
