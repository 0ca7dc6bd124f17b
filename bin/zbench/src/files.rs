//! Vdev files that every side of a comparison uses: made once, every page touched, removed in the end.

use crate::cleanup::Guard;
use crate::measure::text;
use clap::ValueEnum;
use rustix::mount::{MountFlags, UnmountFlags};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes at the start of a vdev that no data lies in: labels and the boot block (OpenZFS: `VDEV_LABEL_START_SIZE`), rounded up.
pub const DATA_START: u64 = 8 << 20;

/// Folder of vdev files.
#[derive(Debug)]
pub struct VdevFiles {
    /// Paths of the files: `d00`, `d01`, …
    pub paths: Vec<PathBuf>,
    /// Folder in which they lie.
    pub folder: PathBuf,
    /// Bytes of each file.
    pub bytes: u64,
    _guard: Guard,
}

impl VdevFiles {
    /// Makes `count` files of `bytes` each in `folder` (which is made, and removed if it is empty in the end) and writes every page, so
    /// that no phase pays for fresh memory.
    pub fn create(folder: &Path, count: usize, bytes: u64) -> Result<VdevFiles, String> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let paths: Vec<PathBuf> = (0..count).map(|index| folder.join(format!("d{index:02}"))).collect();
        let folder = folder.to_path_buf();
        let (undo, place) = (paths.clone(), folder.clone());
        let guard = Guard::new(move || {
            for path in &undo {
                let _ = std::fs::remove_file(path);
            }
            let _ = std::fs::remove_file(place.join("zpool.cache"));
            let _ = std::fs::remove_dir(&place);
        });
        let block = vec![1u8; 1 << 20];
        for path in &paths {
            let file = std::fs::File::create(path).map_err(text)?;
            for offset in (0..bytes).step_by(block.len()) {
                let length = block.len().min((bytes - offset) as usize);
                file.write_all_at(&block[..length], offset).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(VdevFiles { paths, folder, bytes, _guard: guard })
    }

    /// Overwrites all of a file: nothing that was on the device is there any more.
    pub fn wipe(&self, index: usize) -> Result<(), String> {
        let file = std::fs::OpenOptions::new().write(true).open(&self.paths[index]).map_err(text)?;
        let junk = vec![0xA5; 1 << 20];
        for offset in (0..self.bytes).step_by(junk.len()) {
            let length = junk.len().min((self.bytes - offset) as usize);
            file.write_all_at(&junk[..length], offset).map_err(text)?;
        }
        file.sync_all().map_err(text)
    }

    /// Bytes of each file that data may lie in.
    pub fn room(&self) -> u64 {
        self.bytes - 2 * DATA_START
    }
}

/// Pages of the memory that the vdev files lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// Those of the file system where the files are: 4 KiB each on most tmpfs
    Small,
    /// 2 MiB each, on a tmpfs of their own (needs root): files then cost about what a device costs, which knows no pages
    Huge,
}

impl Pages {
    /// Mounts huge pages on `folder` where they were asked for; where nobody said anything, if they are wanted and the machine lets us. None for small
    /// ones.
    ///
    /// # Errors
    /// As [`mount_huge_pages`], where they were asked for.
    pub fn provide(asked: Option<Pages>, are_huge_wanted: bool, folder: &Path) -> Result<Option<Guard>, String> {
        match asked {
            Some(Pages::Huge) => mount_huge_pages(folder).map(Some),
            None if are_huge_wanted => Ok(mount_huge_pages(folder).inspect_err(|error| eprintln!("{error}")).ok()),
            _ => Ok(None),
        }
    }
}

/// Mounts a tmpfs of huge pages on `folder`, which is made; both go with the guard.
///
/// # Errors
/// Whatever the kernel says: only root mounts, and not every kernel has huge pages for tmpfs.
fn mount_huge_pages(folder: &Path) -> Result<Guard, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: no tmpfs of huge pages: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(|error| said(&error))?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount("zbench", folder, "tmpfs", flags, c"huge=always,size=100%").map_err(|error| said(&error))?;
    let place = folder.to_path_buf();
    Ok(Guard::new(move || {
        let _ = rustix::mount::unmount(&place, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&place);
    }))
}

/// Folder of its own that is removed with all it holds.
#[derive(Debug)]
pub struct Scratch {
    /// Path of the folder.
    pub path: PathBuf,
    _guard: Guard,
}

impl Scratch {
    /// Makes a folder in `parent` whose name starts with `zbench-`.
    pub fn new(parent: &Path) -> Result<Scratch, String> {
        let path = parent.join(format!("zbench-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let undo = path.clone();
        let guard = Guard::new(move || {
            let _ = std::fs::remove_dir_all(&undo);
        });
        Ok(Scratch { path, _guard: guard })
    }
}

/// Bytes that no compression makes smaller, the same every time; they begin on a page.
pub fn pattern(bytes: usize) -> AlignedBuffer {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut buffer = AlignedBuffer::new(bytes);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&next());
    }
    buffer
}

/// Zeroed bytes that begin on a page.
#[derive(Debug)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Makes a buffer of `length` bytes.
    pub fn new(length: usize) -> AlignedBuffer {
        let bytes = vec![0; length + abd::PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(abd::PAGE_BYTES);
        AlignedBuffer { bytes, start, length }
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
