//! What can go wrong at a device, as types a caller can act on.

use std::fmt;

/// An error of a device operation or of opening a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceError {
    /// The medium or the path to it failed (EIO).
    Io,
    /// The device or the file system below it has no space left (ENOSPC, EDQUOT).
    NoSpace,
    /// The device went away (ENXIO, ENODEV), or was closed.
    Gone,
    /// Offset, length or memory do not fit the sector size (EINVAL under O_DIRECT).
    Misaligned,
    /// The device transferred fewer bytes than asked for.
    Short,
    /// The range ends beyond the device.
    OutOfRange,
    /// A write to a device that was opened read-only (EROFS, EBADF).
    ReadOnly,
    /// The device is held by somebody else (EBUSY, lock held).
    Busy,
    /// No such path (ENOENT, ENOTDIR).
    NotFound,
    /// The caller may not open it (EACCES, EPERM).
    Denied,
    /// The path is neither a regular file nor a block device.
    NotADevice,
    /// The device has no such operation (trim, for one).
    Unsupported,
    /// The operation was given up because it took too long.
    TimedOut,
    /// Another error of the operating system, by its number.
    Os(i32),
}

impl DeviceError {
    /// The error behind an operating system's error number.
    pub fn from_errno(errno: i32) -> DeviceError {
        match errno {
            libc::EIO => DeviceError::Io,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DeviceError::NoSpace,
            libc::ENXIO | libc::ENODEV => DeviceError::Gone,
            libc::EINVAL => DeviceError::Misaligned,
            libc::EROFS | libc::EBADF => DeviceError::ReadOnly,
            libc::EBUSY | libc::EWOULDBLOCK => DeviceError::Busy,
            libc::ENOENT | libc::ENOTDIR => DeviceError::NotFound,
            libc::EACCES | libc::EPERM => DeviceError::Denied,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => DeviceError::Unsupported,
            libc::ETIMEDOUT => DeviceError::TimedOut,
            other => DeviceError::Os(other),
        }
    }
}

impl From<std::io::Error> for DeviceError {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(DeviceError::Io, DeviceError::from_errno)
    }
}

impl From<rustix::io::Errno> for DeviceError {
    fn from(errno: rustix::io::Errno) -> Self {
        DeviceError::from_errno(errno.raw_os_error())
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            DeviceError::Io => "I/O error",
            DeviceError::NoSpace => "no space left below the device",
            DeviceError::Gone => "the device is gone",
            DeviceError::Misaligned => "the request does not fit the device's sectors",
            DeviceError::Short => "the device transferred fewer bytes than asked for",
            DeviceError::OutOfRange => "the request ends beyond the device",
            DeviceError::ReadOnly => "the device is read-only",
            DeviceError::Busy => "the device is in use",
            DeviceError::NotFound => "no such device",
            DeviceError::Denied => "permission denied",
            DeviceError::NotADevice => "neither a regular file nor a block device",
            DeviceError::Unsupported => "the device has no such operation",
            DeviceError::TimedOut => "the operation took too long",
            DeviceError::Os(errno) => return write!(f, "operating system error {errno}"),
        };
        f.write_str(text)
    }
}

impl std::error::Error for DeviceError {}
