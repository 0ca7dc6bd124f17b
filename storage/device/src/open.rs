//! Opening a device by path: picks the engine that fits what is found there.
//!
//! Block devices, and large files on file systems that do O_DIRECT in 512-byte steps, get the ring; files in memory,
//! small files and everything else get `psync`. Where the kernel refuses io_uring, `psync` serves them all.

use crate::claim;
use crate::sys::{self, DirectAlignment};
use crate::{BlockDevice, DeviceError, DeviceFacts, FileDevice, UringDevice};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Files below this size are read and written through the page cache.
const DIRECT_FILE_BYTES_MIN: u64 = 1 << 30;

/// Engine to use for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The engine that fits the device.
    #[default]
    Auto,
    /// System calls on the submitting thread, through the page cache.
    Psync,
    /// io_uring with O_DIRECT; an error where that is not possible.
    Uring,
}

/// Options for opening a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// True to refuse writes.
    pub read_only: bool,
    /// True to refuse a device that another holder has exclusively, and hold it exclusively (shared, when read-only); so also what leads to the
    /// same bytes: loop devices over it, files and disks behind it.
    pub exclusive: bool,
    /// Engine to use.
    pub engine: Engine,
}

/// Opens the file or block device at `path`.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
    let whole_disk = is_disk(&std::fs::metadata(path)?)?;
    let buffered = open_file(path, options, whole_disk, 0)?;
    let metadata = buffered.metadata()?;
    let mut held = Vec::new();
    if options.exclusive {
        sys::lock(&buffered, options.read_only)?;
        sys::await_writes(&buffered, options.read_only)?;
        held = claim::claim(&buffered, options.read_only)?;
    }
    let held = Arc::new(held);
    let size_bytes = if whole_disk { sys::disk_size_bytes(&buffered)? } else { metadata.len() };
    let facts = facts_of(path, options, &buffered, whole_disk);
    if let Some(alignment) = direct_alignment(options, &buffered, &metadata, &facts) {
        let direct = open_file(path, options, whole_disk, libc::O_DIRECT).and_then(|file| same(file, &metadata));
        if let (Ok(file), true) = (&direct, options.exclusive && !options.read_only) {
            sys::writes_through(file)?;
        }
        let facts = DeviceFacts { engine: "uring", ..facts.clone() };
        match direct.and_then(|file| UringDevice::new(file, &buffered, size_bytes, alignment, facts)) {
            Ok(device) => return Ok(Arc::new(device.holding(&held))),
            Err(error) if options.engine == Engine::Uring => return Err(error),
            // O_DIRECT or the ring is not to be had: the page cache is.
            Err(_) => {}
        }
    } else if options.engine == Engine::Uring {
        return Err(DeviceError::Unsupported);
    }
    Ok(Arc::new(FileDevice::from_file(buffered, size_bytes, facts).holding(&held)))
}

/// True when somebody has what is at `path`, or what leads to the same bytes, for themselves. Asks as who only reads would, for a moment; what cannot
/// be opened at all is held by nobody.
pub fn is_held(path: &Path) -> bool {
    let ask = || -> Result<(), DeviceError> {
        let options = OpenOptions { read_only: true, exclusive: true, ..OpenOptions::default() };
        let file = open_file(path, &options, is_disk(&std::fs::metadata(path)?)?, 0)?;
        sys::lock(&file, true)?;
        claim::claim(&file, true).map(drop)
    };
    ask() == Err(DeviceError::Busy)
}

/// Has the kernel look at a disk's partition table again, which was there when it looked last; a disk in use keeps what it has.
pub fn forget_partitions(path: &Path) {
    if let Ok(file) = File::open(path) {
        sys::reread_partitions(&file);
    }
}

/// True for a block device, false for a regular file; nothing else is a device.
fn is_disk(metadata: &Metadata) -> Result<bool, DeviceError> {
    let whole_disk = metadata.file_type().is_block_device();
    if whole_disk || metadata.is_file() { Ok(whole_disk) } else { Err(DeviceError::NotADevice) }
}

/// The file, if it is the one with this metadata: the path may lead elsewhere by now.
fn same(file: File, metadata: &Metadata) -> Result<File, DeviceError> {
    let found = file.metadata()?;
    if (found.dev(), found.ino()) == (metadata.dev(), metadata.ino()) { Ok(file) } else { Err(DeviceError::NotADevice) }
}

pub(crate) fn open_file(path: &Path, options: &OpenOptions, whole_disk: bool, flags: i32) -> Result<File, DeviceError> {
    // O_EXCL on a block device without O_CREAT: refuse when a file system or another pool holds it.
    let exclusive = if whole_disk && options.exclusive && !options.read_only && flags == 0 { libc::O_EXCL } else { 0 };
    let mut open = File::options();
    // Without waiting: a FIFO may have taken the place of what was looked at, and would hold up whoever opens it.
    open.read(true).write(!options.read_only).custom_flags(flags | exclusive | libc::O_NONBLOCK);
    let file = open.open(path)?;
    if is_disk(&file.metadata()?)? != whole_disk {
        return Err(DeviceError::NotADevice);
    }
    // I/O itself waits: the ring would give up with EAGAIN.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    Ok(file)
}

fn facts_of(path: &Path, options: &OpenOptions, file: &File, whole_disk: bool) -> DeviceFacts {
    let facts = DeviceFacts { read_only: options.read_only, whole_disk, ..DeviceFacts::solid(path, "psync") };
    if !whole_disk {
        let sectors = crate::sectors::ashift_tunables();
        return DeviceFacts { logical_sector_bytes: 1 << sectors.file_logical, physical_sector_bytes: 1 << sectors.file_physical, ..facts };
    }
    let (logical_sector_bytes, physical_sector_bytes) = sys::disk_sectors(file);
    DeviceFacts {
        logical_sector_bytes,
        physical_sector_bytes,
        rotational: sys::queue_attribute(file, "rotational") == Some(1),
        can_trim: sys::queue_attribute(file, "discard_max_bytes").is_some_and(|bytes| bytes > 0),
        ..facts
    }
}

/// Alignment that O_DIRECT needs here, in bytes; none when the device is to go through the page cache.
fn direct_alignment(options: &OpenOptions, file: &File, metadata: &Metadata, facts: &DeviceFacts) -> Option<DirectAlignment> {
    let sectors = DirectAlignment { memory: facts.logical_sector_bytes, offset: facts.logical_sector_bytes };
    match options.engine {
        Engine::Psync => None,
        _ if facts.whole_disk => Some(sectors),
        Engine::Uring => Some(sys::direct_alignment(file).unwrap_or(DirectAlignment { memory: 4096, offset: 4096 })),
        Engine::Auto if sys::is_in_memory(file) || metadata.len() < DIRECT_FILE_BYTES_MIN => None,
        // A pool on files may have 512-byte sectors whatever the disk below has.
        Engine::Auto => sys::direct_alignment(file).filter(|alignment| alignment.offset <= 512),
    }
}
