//! Folders and files that a service believes: only those that nobody but its user and root could have put there, or can change.
//!
//! Every step of a path counts: who can rename a folder on the way can put another one in its place. A folder in which anybody may write is
//! passed through where it is sticky (`/tmp`), because what lies there belongs to its owner alone.

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// True for the owners who may have put something there: this process's user, and root.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// Links that are followed at most, as by the kernel.
const LINKS_MAX: usize = 40;
/// Largest file that is read whole.
const BYTES_MAX: u64 = 64 << 20;

/// Reason why something is not believed.
#[derive(Debug)]
pub enum Distrust {
    /// A place that belongs to somebody else.
    Foreign {
        /// Path of the place.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
    },
    /// A place that others than its owner can write.
    Writable {
        /// Path of the place.
        path: PathBuf,
        /// True when anybody can, false when its group can.
        anybody: bool,
    },
    /// A place that somebody named and that is something else than what it should be.
    Wrong {
        /// Path of the place.
        path: PathBuf,
        /// Description of what it should be.
        wanted: &'static str,
    },
    /// A folder that is a link.
    Link {
        /// Path of the link.
        path: PathBuf,
        /// Path that it leads to.
        target: PathBuf,
    },
    /// A place under a name of this program's own at which something else lies than it puts there.
    InTheWay {
        /// Path of the place.
        path: PathBuf,
        /// Description of what it should be.
        wanted: &'static str,
    },
    /// A place that cannot be looked at, or made.
    Io {
        /// Path of the place.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distrust::Foreign { path, owner } => write!(f, "{} belongs to user {owner}", path.display()),
            Distrust::Writable { path, anybody: true } => write!(f, "{} can be written by everybody", path.display()),
            Distrust::Writable { path, anybody: false } => write!(f, "{} can be written by its group", path.display()),
            Distrust::Wrong { path, wanted } | Distrust::InTheWay { path, wanted } => write!(f, "{} is not {wanted}", path.display()),
            Distrust::Link { path, .. } => write!(f, "{} is not a folder but a link", path.display()),
            Distrust::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}
impl std::error::Error for Distrust {}

impl Distrust {
    /// Advice on what a person can do about it; none where the reason says enough.
    pub fn advice(&self) -> Option<String> {
        let own = geteuid().as_raw();
        match self {
            Distrust::Foreign { path, .. } => Some(format!(
                "whoever can change it decides what this program does: use a place of your own, or 'chown {own} {}' when nobody else has to write there",
                path.display()
            )),
            Distrust::Writable { path, .. } => {
                Some(format!("whoever can change it decides what this program does: 'chmod go-w {}'", path.display()))
            }
            Distrust::Link { target, .. } => Some(format!("use what it leads to: {}", target.display())),
            Distrust::InTheWay { path, .. } => Some(format!("remove {} when it is not needed", path.display())),
            // Who named it by mistake must not be led to remove it.
            Distrust::Wrong { .. } | Distrust::Io { .. } => None,
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Distrust + '_ {
    move |error| Distrust::Io { path: path.to_path_buf(), error }
}

/// True in a user namespace of part of the users: others are shown as the same number there, and can't do anything to what is inside.
fn is_confined() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut words = map.split_whitespace();
    words.nth(2).is_some_and(|count| count != "4294967295")
}

/// The number by which owners outside of a user namespace are shown.
const NOBODY: u32 = 65534;

/// Judges a folder that is passed through.
fn passable(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if !(is_trusted(owner) || owner == NOBODY && is_confined()) {
        return Err(Distrust::Foreign { path: path.to_path_buf(), owner });
    }
    // A group with its owner's number is its owner's alone, by custom.
    let by_group = mode & GROUP_WRITES != 0 && metadata.gid() != owner;
    let by_others = mode & OTHERS_WRITE != 0;
    if (by_group || by_others) && mode & STICKY == 0 {
        return Err(Distrust::Writable { path: path.to_path_buf(), anybody: by_others });
    }
    Ok(())
}

/// Judges what a path leads to: folder or file, it is to be its owner's alone.
fn own(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if !is_trusted(owner) {
        return Err(Distrust::Foreign { path: path.to_path_buf(), owner });
    }
    if mode & (GROUP_WRITES | OTHERS_WRITE) != 0 {
        return Err(Distrust::Writable { path: path.to_path_buf(), anybody: mode & OTHERS_WRITE != 0 });
    }
    Ok(())
}

/// Follows an absolute path to what it leads to, judging every folder on the way but not the end. What is not there is an error.
fn walk(path: &Path) -> Result<(PathBuf, Metadata), Distrust> {
    let absolute = std::path::absolute(path).map_err(failed(path))?;
    let mut steps: VecDeque<OsString> = absolute.components().map(|step| step.as_os_str().to_os_string()).collect();
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    let mut metadata = std::fs::symlink_metadata(&at).map_err(failed(&at))?;
    while let Some(step) = steps.pop_front() {
        match Path::new(&step).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                at.pop();
            }
            Some(Component::Normal(name)) => {
                passable(&at, &std::fs::symlink_metadata(&at).map_err(failed(&at))?)?;
                let next = at.join(name);
                metadata = std::fs::symlink_metadata(&next).map_err(failed(&next))?;
                if metadata.is_symlink() {
                    links += 1;
                    if !is_trusted(metadata.uid()) {
                        return Err(Distrust::Foreign { path: next, owner: metadata.uid() });
                    }
                    if links > LINKS_MAX {
                        return Err(Distrust::Wrong { path: next, wanted: "a path that ends" });
                    }
                    let target = std::fs::read_link(&next).map_err(failed(&next))?;
                    target.components().rev().for_each(|step| steps.push_front(step.as_os_str().to_os_string()));
                    continue;
                }
                at = next;
            }
            _ => {}
        }
        metadata = std::fs::symlink_metadata(&at).map_err(failed(&at))?;
    }
    Ok((at, metadata))
}

/// Judges a file that is about to be believed (a library, a program, a secret) and the way to it; links are followed. Its place without links.
///
/// # Errors
/// Why it is not believed.
pub fn file(path: &Path) -> Result<PathBuf, Distrust> {
    let (real, metadata) = walk(path)?;
    if !metadata.is_file() {
        return Err(Distrust::Wrong { path: real, wanted: "a file" });
    }
    own(&real, &metadata)?;
    Ok(real)
}

/// Judges a folder whose files are about to be believed, and the way to it; it may not be a link itself.
///
/// # Errors
/// Why it is not believed.
pub fn folder(path: &Path) -> Result<(), Distrust> {
    let metadata = std::fs::symlink_metadata(path).map_err(failed(path))?;
    if metadata.is_symlink() {
        let target = std::fs::canonicalize(path).map_err(failed(path))?;
        return Err(Distrust::Link { path: path.to_path_buf(), target });
    }
    if !metadata.is_dir() {
        return Err(Distrust::Wrong { path: path.to_path_buf(), wanted: "a folder" });
    }
    let (real, metadata) = walk(path)?;
    own(&real, &metadata)
}

/// Judges a folder likewise; it is made, with those on the way to it, when it is not there. Nothing is made below what is not believed.
///
/// # Errors
/// Why it is not believed, or cannot be made.
pub fn make_folder(path: &Path) -> Result<(), Distrust> {
    let mut missing = Vec::new();
    let mut there = path;
    while std::fs::symlink_metadata(there).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        missing.push(there);
        there = there.parent().unwrap_or(Path::new("/"));
    }
    if missing.is_empty() {
        return folder(path);
    }
    let (real, metadata) = walk(there)?;
    if !metadata.is_dir() {
        return Err(Distrust::Wrong { path: real, wanted: "a folder" });
    }
    passable(&real, &metadata)?;
    for one in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o755).create(one) {
            // Somebody else was as quick: it is judged below.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(one)(error)),
            _ => {}
        }
    }
    folder(path)
}

fn open(path: &Path, options: &mut OpenOptions) -> Result<File, Distrust> {
    // A link is refused, and what would wait for another end (a FIFO) is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.custom_flags(flags).mode(0o600).open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => Distrust::InTheWay { path: path.to_path_buf(), wanted: "a file but a link" },
        _ => failed(path)(error),
    })?;
    let metadata = file.metadata().map_err(failed(path))?;
    if !metadata.is_file() {
        return Err(Distrust::InTheWay { path: path.to_path_buf(), wanted: "a file" });
    }
    own(path, &metadata)?;
    Ok(file)
}

/// The bytes of a file in a folder that is believed; None when there is none.
///
/// # Errors
/// Why it is not believed, or cannot be read.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, Distrust> {
    let file = match open(path, OpenOptions::new().read(true)) {
        Err(Distrust::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(failed(path))?;
    Ok(Some(bytes))
}

/// Puts bytes in the place of a file, as a whole: whoever reads it, also after a crash, finds what was there or what is there now. Several may
/// do so at the same time: the last one stays.
///
/// # Errors
/// Those of the system.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.{}.new", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let fresh = path.with_file_name(name);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let outcome = written.and_then(|()| std::fs::rename(&fresh, path));
    if outcome.is_err() {
        let _ = std::fs::remove_file(&fresh);
        return outcome;
    }
    // The name, too, is there after a crash.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Opens a log to write at its end.
///
/// # Errors
/// Why it is not believed, or cannot be made.
pub fn log(path: &Path) -> Result<File, Distrust> {
    open(path, OpenOptions::new().append(true).create(true))
}

/// Keeps a log short: the newest `bytes_max` bytes of one that is longer become `NAME.1`, in place of those before, and it begins anew, for
/// everybody who has it open to write at its end. It does so, too, where there is no room for the others. True when it was too long.
///
/// # Errors
/// Why it is not believed, or cannot be read or cut.
pub fn shorten_log(path: &Path, bytes_max: u64) -> Result<bool, Distrust> {
    let mut log = open(path, OpenOptions::new().read(true).append(true))?;
    let length = log.metadata().map_err(failed(path))?.len();
    if length <= bytes_max {
        return Ok(false);
    }
    let mut newest = Vec::new();
    log.seek(SeekFrom::Start(length - bytes_max)).map_err(failed(path))?;
    (&log).take(bytes_max.saturating_mul(2)).read_to_end(&mut newest).map_err(failed(path))?;
    let mut old = path.as_os_str().to_os_string();
    old.push(".1");
    let kept = replace(Path::new(&old), &newest);
    log.set_len(0).map_err(failed(path))?;
    kept.map(|()| true).map_err(failed(path))
}

/// Opens a lock and takes it; None when somebody else has it. Nobody but its owner can open it.
///
/// # Errors
/// Why it is not believed, or cannot be made.
pub fn lock(path: &Path) -> Result<(File, bool), Distrust> {
    let file = open(path, OpenOptions::new().read(true).write(true).create(true))?;
    // Older versions made it readable for everybody, and who can read it can hold it.
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed(path))?;
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok((file, is_ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    /// A folder that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("zirconia-trust-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            DirBuilder::new().mode(0o755).create(&path).unwrap();
            Scratch(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn folder(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.at(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Somebody who can write the folder, or one above it, makes root load a library.
    #[test]
    fn a_folder_that_others_can_write_is_refused_and_so_is_everything_below_it() {
        let scratch = Scratch::new("folders");
        assert!(folder(&scratch.folder("own", 0o755)).is_ok());
        assert!(matches!(folder(&scratch.folder("group", 0o775)), Err(Distrust::Writable { anybody: false, .. })));
        let open = scratch.folder("open", 0o777);
        assert!(matches!(folder(&open), Err(Distrust::Writable { anybody: true, .. })));
        let below = scratch.folder("open/below", 0o755);
        assert!(matches!(folder(&below), Err(Distrust::Writable { path, .. }) if path == open));
        assert!(matches!(make_folder(&below.join("new")), Err(Distrust::Writable { path, .. }) if path == open));
        assert!(!below.join("new").exists());
        // In a sticky folder, everybody's things are their own; such a folder is nobody's own.
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(folder(&below).is_ok() && folder(&open).is_err());
        assert!(make_folder(&scratch.at("a/b/c")).is_ok());
        symlink(scratch.at("own"), scratch.at("link")).unwrap();
        assert!(matches!(folder(&scratch.at("link")), Err(Distrust::Link { .. })));
        assert!(make_folder(&scratch.at("link/inside")).is_ok(), "a link of our own on the way is as good as what it names");
    }

    /// Who names a device, a folder or their own data by mistake follows the advice, and has lost it.
    #[test]
    fn nobody_is_advised_to_remove_what_they_named() {
        let scratch = Scratch::new("named");
        let own = scratch.folder("own", 0o755);
        symlink(&own, scratch.at("link")).unwrap();
        std::fs::write(scratch.at("file"), "").unwrap();
        let advice = |outcome: Result<(), Distrust>| outcome.unwrap_err().advice();
        assert_eq!(advice(file(Path::new("/dev/zero")).map(drop)), None);
        assert_eq!(advice(file(&own).map(drop)), None);
        assert_eq!(advice(folder(&scratch.at("file"))), None);
        assert_eq!(advice(make_folder(&scratch.at("file/below"))), None);
        let real = std::fs::canonicalize(&own).unwrap();
        assert_eq!(advice(make_folder(&scratch.at("link"))), Some(format!("use what it leads to: {}", real.display())));
        // A lock, a log or a list of ours is named by nobody.
        let in_the_way = advice(read(&own).map(drop)).unwrap_or_default();
        assert!(in_the_way.starts_with("remove "), "{in_the_way}");
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let scratch = Scratch::new("foreign");
        let theirs = scratch.folder("theirs", 0o755);
        chown(&theirs, Some(12345), None).unwrap();
        for refused in [folder(&theirs), make_folder(&theirs.join("below"))] {
            let Err(why @ Distrust::Foreign { owner: 12345, .. }) = refused else { panic!("{refused:?}") };
            assert!(why.to_string().ends_with("theirs belongs to user 12345"), "{why}");
        }
        std::fs::write(scratch.at("file"), "x").unwrap();
        chown(scratch.at("file"), Some(12345), None).unwrap();
        assert!(matches!(read(&scratch.at("file")), Err(Distrust::Foreign { .. })));
        assert!(matches!(file(&scratch.at("file")), Err(Distrust::Foreign { .. })));
        // A link of theirs, to something of ours.
        std::fs::write(scratch.at("ours"), "x").unwrap();
        symlink(scratch.at("ours"), scratch.at("link")).unwrap();
        assert!(file(&scratch.at("link")).is_ok());
        std::os::unix::fs::lchown(scratch.at("link"), Some(12345), None).unwrap();
        assert!(matches!(file(&scratch.at("link")), Err(Distrust::Foreign { .. })));
    }

    /// A link in the place of the lock or the log makes root truncate, or write at the end of, whatever it names.
    #[test]
    fn files_are_opened_without_following_links_and_are_their_owners_alone() {
        let scratch = Scratch::new("files");
        std::fs::write(scratch.at("victim"), "precious").unwrap();
        symlink(scratch.at("victim"), scratch.at("link")).unwrap();
        assert!(matches!(lock(&scratch.at("link")), Err(Distrust::InTheWay { .. })));
        assert!(matches!(log(&scratch.at("link")), Err(Distrust::InTheWay { .. })));
        assert!(matches!(read(&scratch.at("link")), Err(Distrust::InTheWay { .. })));
        assert_eq!(std::fs::read(scratch.at("victim")).unwrap(), b"precious");
        let mode = |name: &str| std::fs::metadata(scratch.at(name)).unwrap().mode() & 0o777;
        assert!(lock(&scratch.at("lock")).unwrap().1);
        drop(log(&scratch.at("log")).unwrap());
        assert_eq!((mode("lock"), mode("log")), (0o600, 0o600));
        // One of an older version.
        std::fs::write(scratch.at("old"), "").unwrap();
        std::fs::set_permissions(scratch.at("old"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let held = lock(&scratch.at("old")).unwrap();
        assert_eq!(mode("old"), 0o600);
        assert!(!lock(&scratch.at("old")).unwrap().1, "one holder");
        drop(held);
        assert_eq!(read(&scratch.at("none")).unwrap(), None);
    }

    /// A log that grows without end fills the memory where the state directory of root's daemon lies by default, and with it the list of pools.
    #[test]
    fn a_log_stays_short_for_all_who_write_it() {
        let scratch = Scratch::new("short");
        let (path, old) = (scratch.at("log"), scratch.at("log.1"));
        let (mut daemon, mut keeper) = (log(&path).unwrap(), log(&path).unwrap());
        daemon.write_all(b"first line\nsecond line\n").unwrap();
        assert!(!shorten_log(&path, 23).unwrap());
        assert!(!old.exists(), "it is short enough");
        assert!(shorten_log(&path, 12).unwrap());
        keeper.write_all(b"third line\n").unwrap();
        daemon.write_all(b"fourth line\n").unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"second line\n", "the newest of it");
        assert_eq!(std::fs::read(&path).unwrap(), b"third line\nfourth line\n");
        assert_eq!(std::fs::metadata(&old).unwrap().mode() & 0o777, 0o600);
        // There is no room for what is to be kept, or something is in its place.
        std::fs::remove_file(&old).unwrap();
        std::fs::create_dir(&old).unwrap();
        assert!(shorten_log(&path, 12).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    /// The list of pools was lost when two requests wrote it at a time: one renamed what the other was writing.
    #[test]
    fn a_file_replaced_by_many_at_a_time_is_always_a_whole_one() {
        let scratch = Scratch::new("replace");
        let path = scratch.at("list.json");
        let contents: Vec<Vec<u8>> = (0..4u8).map(|writer| vec![b'a' + writer; 10_000 + usize::from(writer)]).collect();
        std::thread::scope(|scope| {
            for bytes in &contents {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| replace(path, bytes).unwrap()));
            }
            for _ in 0..200 {
                let Some(found) = read(&path).unwrap() else { continue };
                assert!(contents.contains(&found), "{} bytes", found.len());
            }
        });
        let left: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["list.json"]);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
