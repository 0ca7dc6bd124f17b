//! `Errno`: the one error a handler returns; numbers are Linux's and leave the engine only through this type.

/// Error number of Linux (positive).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        impl Errno { $($(#[$doc])* pub const $name: Errno = Errno(libc::$name);)* }
    };
}

/// Shows the system's words for it, without the number.
impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

errnos! {
    /// Operation not permitted.
    EPERM,
    /// No such file or directory.
    ENOENT,
    /// Input or output error.
    EIO,
    /// Bad file handle.
    EBADF,
    /// Try again.
    EAGAIN,
    /// Out of memory.
    ENOMEM,
    /// Permission denied.
    EACCES,
    /// Busy.
    EBUSY,
    /// Exists already.
    EEXIST,
    /// Across file systems.
    EXDEV,
    /// Not a directory.
    ENOTDIR,
    /// Is a directory.
    EISDIR,
    /// Invalid argument.
    EINVAL,
    /// File too large.
    EFBIG,
    /// No space left.
    ENOSPC,
    /// Read-only file system.
    EROFS,
    /// Too many links.
    EMLINK,
    /// Result too large for the caller's buffer.
    ERANGE,
    /// Name too long.
    ENAMETOOLONG,
    /// Not implemented: the kernel stops asking.
    ENOSYS,
    /// Directory not empty.
    ENOTEMPTY,
    /// No such extended attribute.
    ENODATA,
    /// Value does not fit.
    EOVERFLOW,
    /// Illegal byte sequence (a name that is not UTF-8).
    EILSEQ,
    /// Not supported here.
    EOPNOTSUPP,
    /// Stale handle.
    ESTALE,
    /// Over quota.
    EDQUOT,
    /// Not a terminal: ioctl unknown.
    ENOTTY,
    /// No such device or address (SEEK_DATA past the end).
    ENXIO,
    /// Argument list or value too long.
    E2BIG,
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Errno(errno.raw_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    /// If this fails, people read `ENOENT` where every other command says what is missing.
    #[test]
    fn errors_are_said_in_words() {
        assert_eq!(Errno::ENOENT.to_string(), "No such file or directory");
        assert_eq!(Errno::ENOTDIR.to_string(), "Not a directory");
    }
}
