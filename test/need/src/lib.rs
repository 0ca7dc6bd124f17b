//! What tests need of a machine, and what happens where it is not there. One function decides, [`missing`]: it says what is not run, or, where
//! `ZIRCONIA_STRICT` asks for it, refuses, so that nothing is green because something is missing.
//!
//! `ZIRCONIA_STRICT=1` asks for everything, `ZIRCONIA_STRICT=zdb,fuse` for what is named ([`Need::NAMES`]), unset or `0` for nothing. What was
//! not run is also added to the file `ZIRCONIA_NOT_RUN`, of which `cargo xtask ci` makes its last line ([`summary`]).

mod bytes;
mod judgement;

pub use bytes::pattern;
pub use judgement::{clean, clean_before_history, judged};

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Variable that asks for strictness.
pub const STRICT: &str = "ZIRCONIA_STRICT";
/// Variable that names the file of what was not run.
pub const NOT_RUN: &str = "ZIRCONIA_NOT_RUN";

macro_rules! needs {
    ($($(#[$doc:meta])* $need:ident = $name:literal, $what:literal, $how:literal;)*) => {
        /// A tool, a fixture, a device or a right that some tests need.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Need {
            $($(#[$doc])* $need,)*
        }
        impl Need {
            /// Needs, all of them.
            pub const ALL: &[Need] = &[$(Need::$need),*];
            /// Names as in `ZIRCONIA_STRICT`.
            pub const NAMES: &[&str] = &[$($name),*];
            /// Name as in `ZIRCONIA_STRICT`.
            pub fn name(self) -> &'static str {
                match self { $(Need::$need => $name,)* }
            }
            /// Description in words.
            pub fn what(self) -> &'static str {
                match self { $(Need::$need => $what,)* }
            }
            /// Way to get it.
            pub fn how(self) -> &'static str {
                match self { $(Need::$need => $how,)* }
            }
        }
    };
}
needs! {
    /// OpenZFS's own `zdb`.
    Zdb = "zdb", "OpenZFS's zdb", "tools/deps.sh installs it (Debian's zfsutils-linux)";
    /// `zpfix`: OpenZFS's engine in user space.
    Peer = "peer", "OpenZFS's engine (zpfix)", "ZIRCONIA_PEER=FOLDER, or ../shared/peer, with its sources; tools/deps.sh installs what it is built on";
    /// Pools that the kernel module wrote.
    Fixtures = "fixtures", "pools of OpenZFS's kernel module", "ZIRCONIA_KERNEL_FIXTURES=FOLDER, or ../shared/fixtures, with their archives";
    /// Images of pools before feature flags.
    Images = "images", "images of old pools", "tools/deps.sh installs them (Debian's zfs-test)";
    /// The right to mount.
    Fuse = "fuse", "/dev/fuse and the right to mount", "modprobe fuse; tools/deps.sh installs fuse3; a container needs --device /dev/fuse --cap-add SYS_ADMIN";
    /// The rights of root.
    Root = "root", "root", "run it as root";
    /// Loop devices, which only root makes.
    Loops = "loops", "loop devices", "modprobe loop, and run it as root; a container needs --privileged";
    /// Another user that can run what was built.
    Stranger = "stranger", "programs that another user can run", "put the tree, or ZIRCONIA_BIN, where everybody may read";
    /// Files in memory.
    Shm = "shm", "/dev/shm", "mount -t tmpfs shm /dev/shm";
    /// A control group with a limit of memory.
    Cgroup = "cgroup", "a control group of memory", "run it as root where the controller `memory` may be used; a container needs --privileged";
    /// io_uring with direct I/O.
    Uring = "uring", "io_uring with direct I/O", "sysctl kernel.io_uring_disabled=0, in a container a seccomp profile that allows it, and a TMPDIR whose file system has O_DIRECT";
    /// FUSE over io_uring.
    Rings = "rings", "FUSE over io_uring", "Linux 6.14, and as root: echo Y > /sys/module/fuse/parameters/enable_uring";
    /// NVIDIA's compiler and library.
    Wheels = "wheels", "NVIDIA's packages", "pip (tools/deps.sh), a package index that can be reached, and no ZIRCONIA_NO_NVRTC";
    /// Servers and shells of databases.
    Databases = "databases", "PostgreSQL and SQLite", "ZIRCONIA_DATABASES=1 tools/deps.sh (Debian's postgresql and sqlite3)";
    /// QEMU's tools for images.
    Qemu = "qemu", "qemu-img", "ZIRCONIA_QEMU=1 tools/deps.sh (Debian's qemu-utils and libnbd-bin)";
    /// The kernel's overlay file system.
    Overlay = "overlay", "overlay file systems", "modprobe overlay";
    /// The program that looks into units of systemd.
    Systemd = "systemd", "systemd-analyze", "tools/deps.sh installs it (Debian's systemd, which need not run)";
    /// Programs that set and show access control lists.
    Acl = "acl", "setfacl and getfacl", "tools/deps.sh installs them (Debian's acl)";
    /// Programs that ask web servers, and are one.
    Web = "web", "curl and openssl", "tools/deps.sh installs them (Debian's curl and openssl)";
    /// A C++ compiler whose programs ThreadSanitizer watches.
    Sanitizer = "sanitizer", "ThreadSanitizer", "tools/deps.sh installs g++, which brings it; sysctl vm.mmap_rnd_bits=28 where an old one does not start";
    /// Programs of ours, beside the test's.
    Programs = "programs", "our own programs", "cargo build --release --bins";
    /// `cargo fmt`.
    Rustfmt = "rustfmt", "cargo fmt", "rustup component add rustfmt (Debian's rustfmt-web)";
    /// `cargo clippy`.
    Clippy = "clippy", "cargo clippy", "rustup component add clippy";
}

/// Error that says that something is missing where it must not be.
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
/// As shown to people: tests end with it by `unwrap`.
impl fmt::Debug for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Missing {}

/// Needs that a value of `ZIRCONIA_STRICT` asks for; an error when it names what there is not.
pub fn asked(value: &str) -> Result<Vec<Need>, Missing> {
    match value.trim() {
        "" | "0" => Ok(Vec::new()),
        "1" => Ok(Need::ALL.to_vec()),
        names => names.split(',').map(|name| named(name.trim())).collect(),
    }
}

fn named(name: &str) -> Result<Need, Missing> {
    let found = Need::ALL.iter().copied().find(|need| need.name() == name);
    found.ok_or_else(|| Missing(format!("{STRICT} names `{name}`; it is 1, 0 or some of {}", Need::NAMES.join(","))))
}

/// `what` cannot be run, because a need is not met, for `why`. Says so; or fails, where `ZIRCONIA_STRICT` asks for it.
pub fn missing(need: Need, what: &str, why: impl fmt::Display) -> Result<(), Missing> {
    decide(&std::env::var(STRICT).unwrap_or_default(), need, what, why)?;
    let line = format!("not run: {what} ({})", need.what());
    eprintln!("{line}");
    let Some(path) = std::env::var_os(NOT_RUN) else { return Ok(()) };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    // One write: lines of processes that run at once stay whole.
    let written = file.and_then(|mut file| file.write_all(format!("{}\t{what}\n", need.name()).as_bytes()));
    written.map_err(|error| Missing(format!("{line}, and that cannot be noted in {}: {error}", path.display())))
}

fn decide(strict: &str, need: Need, what: &str, why: impl fmt::Display) -> Result<(), Missing> {
    if !asked(strict)?.contains(&need) {
        return Ok(());
    }
    Err(Missing(format!(
        "{what} needs {}: {why}. How to get it: {}. ({STRICT}={strict} lets nothing be left out.)",
        need.what(),
        need.how()
    )))
}

/// True when a need that can be looked for is not met; then [`missing`] has decided what that means for `what`.
pub fn lacks(need: Need, what: &str) -> Result<bool, Missing> {
    match absent(need) {
        Some(why) => missing(need, what, why).map(|()| true),
        None => Ok(false),
    }
}

/// Reason why a need is not met; for those that only using them shows: nothing.
fn absent(need: Need) -> Option<String> {
    match need {
        Need::Zdb if zdb().is_none() => Some("it is neither on PATH nor in /usr/sbin".into()),
        Need::Fuse => std::fs::File::options().read(true).write(true).open("/dev/fuse").err().map(|error| format!("/dev/fuse: {error}")),
        Need::Root if !is_root() => Some("somebody else runs this".into()),
        Need::Loops => loops().clone(),
        Need::Acl if on_path("setfacl").is_none() => Some("it is not on PATH".into()),
        Need::Web if ["curl", "openssl"].iter().any(|program| on_path(program).is_none()) => Some("one of them is not on PATH".into()),
        Need::Overlay if !std::fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\toverlay\n")) => {
            Some("/proc/filesystems lacks it".into())
        }
        Need::Systemd if on_path("systemd-analyze").is_none() => Some("it is not on PATH".into()),
        Need::Qemu if on_path("qemu-img").is_none() => Some("it is not on PATH".into()),
        Need::Shm if !Path::new("/dev/shm").is_dir() => Some("it is not there".into()),
        _ => None,
    }
}

/// Path of OpenZFS's `zdb`: on `PATH`, or where Debian has it, which is not on everybody's. Ours, beside the daemon, is no judge of us.
pub fn zdb() -> Option<PathBuf> {
    folders().map(|folder| folder.join("zdb")).find(|path| path.is_file() && !path.with_file_name("zirconiad").exists())
}

/// A program on `PATH` or among those of administrators.
pub fn on_path(program: &str) -> Option<PathBuf> {
    folders().map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect::<Vec<_>>().into_iter()
}

/// True for root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Reason why no loop device can be made: one is made, once.
fn loops() -> &'static Option<String> {
    static PROBED: OnceLock<Option<String>> = OnceLock::new();
    PROBED.get_or_init(|| {
        let file = std::env::temp_dir().join(format!("zirconia-loop-{}", std::process::id()));
        let made = std::fs::File::create(&file).and_then(|made| made.set_len(1 << 20)).map_err(|error| error.to_string());
        let tried = made
            .and_then(|()| said(&["--find", "--show", &file.display().to_string()]))
            .and_then(|device| said(&["--detach", device.trim()]));
        let _ = std::fs::remove_file(&file);
        tried.err()
    })
}

fn said(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("losetup").args(arguments).output().map_err(|error| format!("losetup: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Summary in one line of what a file that [`NOT_RUN`] named says: `everything was run`, or what was not, and how to get what it needs.
pub fn summary(notes: &str) -> String {
    let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (need, what) in notes.lines().filter_map(|line| line.split_once('\t')) {
        let known = of.entry(need).or_default();
        if !known.contains(&what) {
            known.push(what);
        }
    }
    if of.is_empty() {
        return "everything was run".into();
    }
    let part = |(name, what): (&str, Vec<&str>)| {
        let (need, how) = named(name).map_or((name, ""), |need| (need.what(), need.how()));
        let first = what.first().copied().unwrap_or_default();
        let all = if what.len() == 1 { first.to_string() } else { format!("{} checks, of them {first}", what.len()) };
        format!("{all}, without {need} ({how})")
    };
    format!("not run: {}", of.into_iter().map(part).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a gate that was told to be strict is green though nothing was looked at.
    #[test]
    fn what_is_asked_for_must_be_there() {
        for (strict, need, passes) in [
            ("", Need::Zdb, true),
            ("0", Need::Zdb, true),
            ("1", Need::Zdb, false),
            ("1", Need::Clippy, false),
            ("zdb,fuse", Need::Fuse, false),
            ("zdb, fuse", Need::Fuse, false),
            ("zdb,fuse", Need::Peer, true),
        ] {
            assert_eq!(decide(strict, need, "a check", "it is not there").is_ok(), passes, "{strict}, {need:?}");
        }
        let said = decide("1", Need::Zdb, "a check", "it is not there").unwrap_err().to_string();
        for part in ["a check needs OpenZFS's zdb", "it is not there", "tools/deps.sh", "ZIRCONIA_STRICT=1"] {
            assert!(said.contains(part), "{said}");
        }
    }

    /// A word that is misspelt asks for nothing and would be green.
    #[test]
    fn a_wrong_word_is_refused() {
        for strict in ["zbd", "zdb,,fuse", "yes"] {
            assert!(
                decide(strict, Need::Wheels, "a check", "").unwrap_err().to_string().contains("it is 1, 0 or some of zdb,peer,"),
                "{strict}"
            );
        }
    }

    #[test]
    fn the_summary_is_one_line() {
        assert_eq!(summary(""), "everything was run");
        let said = summary("peer\tevery check by zpfix\nroot\tone\nroot\ttwo\nroot\ttwo\n");
        assert!(said.starts_with("not run: every check by zpfix, without OpenZFS's engine (zpfix) (ZIRCONIA_PEER="), "{said}");
        assert!(said.ends_with("; 2 checks, of them one, without root (run it as root)"), "{said}");
        assert!(!said.contains('\n'));
    }
}
