//! The devices and files that hosts may write: those that were allowed, whatever path leads to them.

use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp, OpenOptions};
use dpusm::{HostDone, HostRead, HostStore, StoreKind};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target_server::Stores;

/// Paths of the stores that hosts may open, or of folders of such.
#[derive(Debug)]
pub(crate) struct Allowed(Vec<PathBuf>);

impl Allowed {
    /// Allows what lies at, or below, these paths. Links are followed now.
    pub(crate) fn new(paths: &[PathBuf]) -> Result<Allowed, (PathBuf, io::Error)> {
        let one = |path: &PathBuf| path.canonicalize().map_err(|error| (path.clone(), error));
        paths.iter().map(one).collect::<Result<_, _>>().map(Allowed)
    }
}

impl Stores for Allowed {
    fn open(&self, _kind: StoreKind, path: &Path) -> Result<Arc<dyn HostStore>, i32> {
        // Links and dots lead somewhere: that is what has to be allowed.
        let real = path.canonicalize().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        if !self.0.iter().any(|allowed| real.starts_with(allowed)) {
            return Err(libc::EACCES);
        }
        match device::open(&real, &OpenOptions::default()) {
            Ok(device) => Ok(Arc::new(Disk(device))),
            Err(error) => Err(errno(error)),
        }
    }
}

struct Disk(Arc<dyn BlockDevice>);

impl HostStore for Disk {
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        self.0.submit(DeviceIo::new(DeviceOp::read(bytes), offset, move |reply| done(reply.into_abd().map_err(errno))));
    }

    fn write(&self, offset: u64, data: Abd, done: HostDone) {
        self.0.submit(DeviceIo::new(DeviceOp::Write(data), offset, move |reply| done(reply.outcome.map_err(errno))));
    }

    fn flush(&self, done: HostDone) {
        self.0.submit(DeviceIo::new(DeviceOp::Flush, 0, move |reply| done(reply.outcome.map_err(errno))));
    }
}

fn errno(error: DeviceError) -> i32 {
    match error {
        DeviceError::NoSpace => libc::ENOSPC,
        DeviceError::Gone => libc::ENXIO,
        DeviceError::Misaligned | DeviceError::OutOfRange => libc::EINVAL,
        DeviceError::ReadOnly => libc::EROFS,
        DeviceError::Busy => libc::EBUSY,
        DeviceError::NotFound => libc::ENOENT,
        DeviceError::Denied => libc::EACCES,
        DeviceError::NotADevice => libc::ENOTBLK,
        DeviceError::Unsupported => libc::EOPNOTSUPP,
        DeviceError::TimedOut => libc::ETIMEDOUT,
        DeviceError::Os(errno) => errno,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that may write one folder must not get out of it, by dots or by links.
    #[test]
    fn only_what_is_allowed_can_be_opened() {
        let folder = std::env::temp_dir().join(format!("target-stores-{}", std::process::id()));
        let (inside, outside) = (folder.join("inside"), folder.join("outside"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        for file in [inside.join("disk"), outside.join("disk"), folder.join("inside2")] {
            std::fs::write(file, [0; 4096]).unwrap();
        }
        std::os::unix::fs::symlink(outside.join("disk"), inside.join("link")).unwrap();
        let allowed = Allowed::new(&[inside.clone(), outside.join("disk")]).unwrap();
        let open = |path: PathBuf| allowed.open(StoreKind::File, &path).map(|_| ());
        assert_eq!(open(inside.join("disk")), Ok(()));
        assert_eq!(open(inside.join("link")), Ok(()), "it leads to what is allowed");
        assert_eq!(open(folder.join("inside2")), Err(libc::EACCES));
        assert_eq!(open(inside.join("../inside2")), Err(libc::EACCES));
        assert_eq!(open(inside.join("none")), Err(libc::ENOENT));
        let only = Allowed::new(std::slice::from_ref(&inside)).unwrap();
        assert_eq!(only.open(StoreKind::File, &inside.join("link")).map(|_| ()), Err(libc::EACCES));
        assert!(Allowed::new(&[folder.join("none")]).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
