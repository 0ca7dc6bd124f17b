//! What the operating system tells about a device, and the requests that have no safe wrapper: discard, a new look at partitions, what a
//! loop device shows, and locks of some bytes.
#![expect(unsafe_code, reason = "BLKDISCARD, BLKRRPART, LOOP_GET_STATUS64 and locks of open files have no safe wrapper")]

use crate::DeviceError;
use rustix::fs::{AtFlags, FlockOperation, StatxFlags, Timespec, flock, fstatfs, statx};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// Request of an ioctl: `BLKDISCARD` of `linux/fs.h`.
const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;
/// Request of an ioctl: `BLKRRPART` of `linux/fs.h`.
const BLKRRPART: rustix::ioctl::Opcode = 0x125F;
/// `LOOP_GET_STATUS64` of `linux/loop.h`, and the 64-bit words of the `struct loop_info64` that it fills.
const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;
const LOOP_STATUS_WORDS: usize = 29;
/// `TMPFS_MAGIC`, `RAMFS_MAGIC`: file systems whose files are memory.
const MEMORY_FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x8584_58F6];

/// Alignment that O_DIRECT asks for on an open file, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectAlignment {
    pub(crate) memory: u32,
    pub(crate) offset: u32,
}

/// Size of a block device.
pub(crate) fn disk_size_bytes(file: &File) -> Result<u64, DeviceError> {
    Ok((&mut &*file).seek(SeekFrom::End(0))?)
}

/// Logical and physical sector of a block device.
pub(crate) fn disk_sectors(file: &File) -> (u32, u32) {
    let logical = rustix::fs::ioctl_blksszget(file).unwrap_or(512);
    let physical = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical);
    (logical, physical.max(logical))
}

/// A number from the queue attributes of a block device (of the whole disk, for a partition).
pub(crate) fn queue_attribute(file: &File, name: &str) -> Option<u64> {
    let number = file.metadata().ok()?.rdev();
    let node = PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let texts = ["queue", "../queue"].map(|folder| std::fs::read_to_string(node.join(folder).join(name)));
    texts.into_iter().flatten().find_map(|text| text.trim().parse().ok())
}

/// True when the file lives in memory.
pub(crate) fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stats| MEMORY_FILE_SYSTEMS.contains(&(stats.f_type & 0xFFFF_FFFF)))
}

/// Alignment that O_DIRECT asks for; none when the file system does not say or does not support it.
pub(crate) fn direct_alignment(file: &File) -> Option<DirectAlignment> {
    let facts = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && facts.stx_dio_offset_align > 0;
    known.then_some(DirectAlignment { memory: facts.stx_dio_mem_align.max(1), offset: facts.stx_dio_offset_align })
}

/// Locks the file for this process, or says that somebody else holds it.
pub(crate) fn lock(file: &File, shared: bool) -> Result<(), DeviceError> {
    let operation = if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    flock(file, operation).map_err(|errno| match errno {
        rustix::io::Errno::WOULDBLOCK => DeviceError::Busy,
        other => other.into(),
    })
}

/// Discards bytes of a block device; waits for the device.
pub(crate) fn discard(file: &File, offset: u64, length_bytes: u64) -> Result<(), DeviceError> {
    // SAFETY: BLKDISCARD reads two u64s from the pointer it is given and writes nothing to memory.
    let request = unsafe { rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, length_bytes]) };
    // SAFETY: as above; the file descriptor is open for the duration of the call.
    Ok(unsafe { rustix::ioctl::ioctl(file.as_fd(), request) }?)
}

/// Has the kernel read the partition table of a disk again; that it can't is no harm.
pub(crate) fn reread_partitions(file: &File) {
    // SAFETY: BLKRRPART takes no argument.
    let request = unsafe { rustix::ioctl::NoArg::<BLKRRPART>::new() };
    // SAFETY: as above; the file descriptor is open for the duration of the call.
    let _ = unsafe { rustix::ioctl::ioctl(file.as_fd(), request) };
}

/// The file or disk that a loop device shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopBacking {
    /// Number of the file system's device.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Number of the disk; 0 for a file.
    pub(crate) disk: u64,
}

/// Backing that an open loop device shows; none when it shows nothing.
pub(crate) fn loop_backing(file: &File) -> Option<LoopBacking> {
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, which is that many words, and for which any bits are right.
    let request = unsafe { rustix::ioctl::Getter::<LOOP_GET_STATUS64, [u64; LOOP_STATUS_WORDS]>::new() };
    // SAFETY: as above; the file descriptor is open for the duration of the call.
    let [device, inode, disk, ..] = unsafe { rustix::ioctl::ioctl(file.as_fd(), request) }.ok()?;
    Some(LoopBacking { device, inode, disk })
}

/// Byte that no device has, which is locked through the open file that a ring writes to. Requests under way hold that open file, so the lock outlives
/// a process that was killed until the last of its writes is done.
const UNDER_WAY: u64 = libc::off_t::MAX as u64 - 1;
/// Longest time that writes of a process that is gone are waited for, and the time between two looks.
const UNDER_WAY_WAIT: Duration = Duration::from_secs(10);
const UNDER_WAY_STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Notes that writes through this open file may be under way until nobody has it any more.
pub(crate) fn writes_through(file: &File) -> Result<(), DeviceError> {
    set_lock(file, libc::F_WRLCK, UNDER_WAY, u64::MAX).map_err(|_| DeviceError::Busy)
}

/// Waits until no write is under way of a process that had this device and is gone: a label that is read before would be changed afterwards.
/// `Busy` when that takes too long.
pub(crate) fn await_writes(file: &File, read_only: bool) -> Result<(), DeviceError> {
    let mut left = UNDER_WAY_WAIT;
    while set_lock(file, if read_only { libc::F_RDLCK } else { libc::F_WRLCK }, UNDER_WAY, u64::MAX).is_err() {
        left = left.checked_sub(Duration::from_nanos(UNDER_WAY_STEP.tv_nsec.unsigned_abs())).ok_or(DeviceError::Busy)?;
        let _ = rustix::thread::nanosleep(&UNDER_WAY_STEP);
    }
    Ok(set_lock(file, libc::F_UNLCK, UNDER_WAY, u64::MAX)?)
}

/// Locks bytes of a file for whoever has this open file, until it is closed: for reading beside others, or alone. Not the byte of writes under way:
/// who asks for that one waits, though nothing is being written.
pub(crate) fn lock_bytes(file: &File, start: u64, end: u64, shared: bool) -> rustix::io::Result<()> {
    set_lock(file, if shared { libc::F_RDLCK } else { libc::F_WRLCK }, start, end.min(UNDER_WAY))
}

fn set_lock(file: &File, kind: libc::c_int, start: u64, end: u64) -> rustix::io::Result<()> {
    let offset = |bytes: u64| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    let (start, end) = (offset(start), offset(end));
    // No length is all that follows.
    let length = if end == libc::off_t::MAX { 0 } else { (end - start).max(1) };
    let lock =
        libc::flock { l_type: kind as libc::c_short, l_whence: libc::SEEK_SET as libc::c_short, l_start: start, l_len: length, l_pid: 0 };
    // SAFETY: F_OFD_SETLK reads a `struct flock` from the pointer; the file descriptor is open for the duration of the call.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    let failed = || rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO);
    if outcome == 0 { Ok(()) } else { Err(failed()) }
}
