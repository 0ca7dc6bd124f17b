//! The file systems that `zbench mount` compares: each made for one turn, and gone after it.

use crate::cleanup::Guard;
use crate::measure::text;
use crate::mounted::{Mounted, Server, wait_mounted};
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of the daemon's cache.
const CACHE_BYTES: u64 = 1 << 30;

/// Subject of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's ext4 on a loop device.
    Ext4,
    /// The in-memory file system behind our FUSE server.
    Memory,
    /// A pool in a file, mounted by the daemon.
    Ours,
    /// A pool in a file, mounted by the daemon with a write-back cache.
    WriteBack,
}

impl Kind {
    /// Name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Memory => "floor",
            Kind::Ours => "ours",
            Kind::WriteBack => "write-back",
        }
    }
}

/// Server behind a place.
#[derive(Debug)]
enum Behind {
    Kernel,
    Memory(Server),
    Daemon(Box<Mounted>),
}

/// A file system that is mounted and empty.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    behind: Behind,
    // The mount goes before its file: fields drop in order.
    _mount: Option<Guard>,
    _file: Option<Guard>,
}

fn said(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Makes a sparse file that goes with the guard.
fn image(folder: &Path, name: &str, bytes: u64) -> Result<(PathBuf, Guard), String> {
    let path = folder.join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).map_err(text)?;
    let undo = path.clone();
    let guard = Guard::new(move || {
        let _ = std::fs::remove_file(&undo);
    });
    Ok((path, guard))
}

fn ext4(folder: &Path, bytes: u64) -> Result<Place, String> {
    let (path, file) = image(folder, "ext4", bytes)?;
    let root = folder.join("mnt-ext4");
    std::fs::create_dir_all(&root).map_err(text)?;
    // Everything laid out at once: else a kernel thread goes on initialising tables beside the measurement.
    said(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&path))?;
    said(Command::new("mount").args(["-o", "loop"]).arg(&path).arg(&root))?;
    let undo = root.clone();
    let mount = Guard::new(move || {
        let _ = Command::new("umount").arg(&undo).status();
    });
    Ok(Place { root, behind: Behind::Kernel, _mount: Some(mount), _file: Some(file) })
}

fn memory(folder: &Path, uring: &str) -> Result<Place, String> {
    let root = folder.join("mnt-memory");
    std::fs::create_dir_all(&root).map_err(text)?;
    let program = std::env::current_exe().map_err(text)?;
    let server = Server::spawn(Command::new(program).arg("memfs").arg(&root).args(["--uring", uring]), &root)?;
    wait_mounted(&server, &root)?;
    Ok(Place { root, behind: Behind::Memory(server), _mount: None, _file: None })
}

fn ours(folder: &Path, bytes: u64, uring: &str, writes_back: bool) -> Result<Place, String> {
    let (path, file) = image(folder, "pool", bytes)?;
    let mounted = Mounted::start_with(CACHE_BYTES, &[("ZIRCONIA_FUSE_URING", uring)])?;
    mounted.create("stripe:1".parse()?, &[path], &[])?;
    if writes_back {
        mounted.command("zfs", &["unmount", "zbench/fs"])?;
        mounted.command("zfs", &["mount", "-o", "writeback", "zbench/fs"])?;
    }
    Ok(Place { root: mounted.file(""), behind: Behind::Daemon(Box::new(mounted)), _mount: None, _file: Some(file) })
}

impl Place {
    /// Makes a file system of `bytes` whose files lie in `folder`.
    pub fn make(kind: Kind, folder: &Path, bytes: u64, uring: &str) -> Result<Place, String> {
        match kind {
            Kind::Ext4 => ext4(folder, bytes),
            Kind::Memory => memory(folder, uring),
            Kind::Ours => ours(folder, bytes, uring, false),
            Kind::WriteBack => ours(folder, bytes, uring, true),
        }
    }

    /// Path of its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Has its server run on one processor, or on any.
    pub fn pin(&self, processor: Option<usize>) {
        match &self.behind {
            Behind::Kernel => {}
            Behind::Memory(server) => server.pin(processor),
            Behind::Daemon(mounted) => mounted.server.pin(processor),
        }
    }

    /// CPU seconds of its server so far.
    pub fn cpu_seconds(&self) -> f64 {
        match &self.behind {
            Behind::Kernel => 0.0,
            Behind::Memory(server) => server.cpu_seconds(),
            Behind::Daemon(mounted) => mounted.server.cpu_seconds(),
        }
    }

    /// Number of requests that its server had so far, where one counts them.
    pub fn requests(&self) -> Option<u64> {
        match &self.behind {
            Behind::Kernel => None,
            Behind::Daemon(mounted) => mounted.requests(),
            Behind::Memory(_) => {
                let mut room = [0; 32];
                let length = rustix::fs::getxattr(&self.root, "user.requests", &mut room).ok()?;
                std::str::from_utf8(&room[..length]).ok()?.parse().ok()
            }
        }
    }

    /// Waits until what was written is on disk: nobody writes it during the next measurement.
    pub fn settle(&self) -> Result<(), String> {
        match &self.behind {
            Behind::Daemon(mounted) => mounted.command("zpool", &["sync", "zbench"]).map(drop),
            _ => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::open(&self.root, flags, Mode::empty()).and_then(rustix::fs::syncfs).map_err(text)
            }
        }
    }
}
