//! Devices that lead to the same bytes: a file and the loop devices over it, loop devices over one file, over disks and partitions, mapped
//! devices over them. Who opens one exclusively keeps the others from everybody else.
//!
//! The kernel keeps apart who claims a disk, its partitions and what is mapped onto them, but knows nothing of what lies behind a loop
//! device. So above what was opened every loop device is claimed, and below it every file and disk is locked: shared, since parts of it may
//! belong to others, and by the bytes that are used. What can't be looked at (another mount namespace, another user's) is passed over.

use crate::{DeviceError, sys};
use rustix::fs::{FlockOperation, flock, major, makedev, minor};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Loop devices over loop devices are followed this far.
const DEPTH_MAX: u32 = 8;
/// The kernel tells where partitions begin and how long they are in units of this.
const SECTOR_BYTES: u64 = 512;

/// File or disk that bytes are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    File { device: u64, inode: u64 },
    Disk { number: u64 },
}

/// Bytes of a file or of a whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    base: Base,
    start: u64,
    end: u64,
}

impl Extent {
    fn of(metadata: &Metadata) -> Extent {
        if metadata.file_type().is_block_device() {
            return Extent::of_disk(metadata.rdev());
        }
        Extent { base: Base::File { device: metadata.dev(), inode: metadata.ino() }, start: 0, end: u64::MAX }
    }

    /// All of a block device; a partition is part of its disk.
    fn of_disk(number: u64) -> Extent {
        let node = node_of(number);
        let sectors =
            |name: &str| Some(std::fs::read_to_string(node.join(name)).ok()?.trim().parse::<u64>().ok()?.saturating_mul(SECTOR_BYTES));
        let part = || {
            std::fs::metadata(node.join("partition")).ok()?;
            let whole = number_in(&std::fs::canonicalize(&node).ok()?.parent()?.join("dev"))?;
            let (start, length) = (sectors("start")?, sectors("size")?);
            Some(Extent { base: Base::Disk { number: whole }, start, end: start.saturating_add(length) })
        };
        part().unwrap_or(Extent { base: Base::Disk { number }, start: 0, end: u64::MAX })
    }

    /// Bytes inside of these, counted from where they begin.
    fn part(&self, start: u64, end: u64) -> Extent {
        let at = |offset: u64| self.start.saturating_add(offset).min(self.end);
        Extent { base: self.base, start: at(start), end: at(end) }
    }

    fn overlaps(&self, other: &Extent) -> bool {
        self.base == other.base && self.start < other.end && other.start < self.end
    }
}

/// A loop device.
#[derive(Clone, Debug)]
struct Loop {
    path: PathBuf,
    number: u64,
    /// Bytes that it shows.
    below: Extent,
    /// Path of the file or disk that it shows, as of the last look.
    backing: PathBuf,
}

/// Path at which the kernel describes a block device.
fn node_of(number: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)))
}

fn number_in(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let (big, small) = text.trim().split_once(':')?;
    Some(makedev(big.parse().ok()?, small.parse().ok()?))
}

/// All loop devices that show something.
fn loops() -> Vec<Loop> {
    let folders = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    folders.filter(|folder| folder.file_name().to_string_lossy().starts_with("loop")).filter_map(|folder| loop_at(&folder.path())).collect()
}

fn loop_at(folder: &Path) -> Option<Loop> {
    let text = std::fs::read_to_string(folder.join("loop/backing_file")).ok()?;
    let backing = PathBuf::from(text.trim_end_matches('\n'));
    let path = Path::new("/dev").join(folder.file_name()?);
    let number = number_in(&folder.join("dev"))?;
    let bytes = |name: &str| std::fs::read_to_string(folder.join("loop").join(name)).ok()?.trim().parse().ok();
    let (offset, limit): (u64, u64) = (bytes("offset")?, bytes("sizelimit")?);
    // The device knows which file it has; its name leads there only as long as nobody removes or hides it.
    let told = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).ok().and_then(|file| sys::loop_backing(&file));
    let whole = match told {
        Some(told) if told.disk != 0 => Extent::of_disk(told.disk),
        Some(told) => Extent { base: Base::File { device: told.device, inode: told.inode }, start: 0, end: u64::MAX },
        None => Extent::of(&std::fs::metadata(&backing).ok()?),
    };
    let end = if limit == 0 { u64::MAX } else { offset.saturating_add(limit) };
    Some(Loop { path, number, below: whole.part(offset, end), backing })
}

/// Opens a block device as nobody else may; none when it can't be looked at.
fn claimed(path: &Path) -> Result<Option<File>, DeviceError> {
    // Opened for reading: what is closed after it was open for writing is looked at anew by everybody who watches devices.
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(DeviceError::Busy),
        Err(_) => Ok(None),
    }
}

/// Files and loop devices that are kept from others for as long as a device is open.
struct Claims {
    loops: Vec<Loop>,
    read_only: bool,
    held: Vec<File>,
}

impl Claims {
    /// Claims the loop devices that show some of these bytes, and those over them; `own` are not asked for.
    fn above(&mut self, extent: &Extent, own: &mut Vec<u64>) -> Result<(), DeviceError> {
        let found: Vec<Loop> = self.loops.iter().filter(|one| one.below.overlaps(extent)).cloned().collect();
        for one in found {
            if own.contains(&one.number) {
                continue;
            }
            own.push(one.number);
            self.held.extend(claimed(&one.path)?);
            self.above(&Extent::of_disk(one.number), own)?;
        }
        Ok(())
    }

    /// Locks what these bytes of a disk lie in; `exact` when it is known which bytes below are theirs.
    fn below(&mut self, extent: &Extent, exact: bool, depth: u32) -> Result<(), DeviceError> {
        let (Base::Disk { number }, Some(deeper)) = (extent.base, depth.checked_sub(1)) else { return Ok(()) };
        if let Some(one) = self.loops.iter().find(|one| one.number == number).cloned() {
            let used = one.below.part(extent.start, extent.end);
            if exact && !self.read_only {
                // What overlaps it is asked for and not kept: it may overlap what others have, too.
                let kept = self.held.len();
                self.above(&used, &mut vec![number])?;
                self.held.truncate(kept);
            }
            self.lock(&one.backing, &used, exact)?;
            return self.below(&used, exact, deeper);
        }
        let slaves = std::fs::read_dir(node_of(number).join("slaves")).into_iter().flatten().flatten();
        let numbers: Vec<u64> = slaves.filter_map(|slave| number_in(&slave.path().join("dev"))).collect();
        numbers.into_iter().try_for_each(|slave| self.below(&Extent::of_disk(slave), false, deeper))
    }

    /// Locks a file or disk behind a loop device: who has all of it has it alone, others the bytes that they use.
    fn lock(&mut self, path: &Path, used: &Extent, exact: bool) -> Result<(), DeviceError> {
        let open = |write: bool| OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(path);
        let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
        let is_disk = metadata.file_type().is_block_device();
        // Another file may be there by now, or one that hides it.
        if !(is_disk || metadata.is_file()) || Extent::of(&metadata).base != used.base {
            return Ok(());
        }
        let writable = if self.read_only || is_disk { None } else { open(true).ok() };
        let writes = writable.is_some();
        let Some(file) = writable.or_else(|| open(false).ok()) else { return Ok(()) };
        busy_only(flock(&file, FlockOperation::NonBlockingLockShared))?;
        if is_disk && exact && !self.read_only {
            claimed(path)?;
        }
        if exact && !is_disk {
            busy_only(sys::lock_bytes(&file, used.start, used.end, !writes))?;
        }
        self.held.push(file);
        Ok(())
    }
}

/// Error when a lock is had by somebody else; where there are no locks at all, nobody has one.
fn busy_only(locked: rustix::io::Result<()>) -> Result<(), DeviceError> {
    match locked {
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::ACCESS) => Err(DeviceError::Busy),
        _ => Ok(()),
    }
}

/// Keeps from others what leads to the bytes of an open device, until what is returned is closed.
pub(crate) fn claim(file: &File, read_only: bool) -> Result<Vec<File>, DeviceError> {
    let extent = Extent::of(&file.metadata()?);
    let mut claims = Claims { loops: loops(), read_only, held: Vec::new() };
    if read_only && matches!(extent.base, Base::File { .. }) {
        busy_only(sys::lock_bytes(file, 0, u64::MAX, true))?;
    }
    if !read_only {
        claims.above(&extent, &mut Vec::new())?;
    }
    claims.below(&extent, true, DEPTH_MAX)?;
    Ok(claims.held)
}
