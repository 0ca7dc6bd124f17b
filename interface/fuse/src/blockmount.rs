//! Mounts on a block device (`fuseblk`): the kind of FUSE mount of which the kernel forwards syncfs(2) and sync(1) to the server,
//! and whose umount(2) waits for it.
//!
//! The device is a loop device on a file in memory that nobody reads or writes; it goes with the mount. The kernel finds it by the
//! mount's source, as a path, and shows that path in its tables: so the source is the dataset's name, looked up in a folder where
//! a link of that name points to the device. Needs root, loop devices and `losetup` (util-linux).

use crate::mount::{MountError, MountOptions, data_of, flags_of, open_device};
use crate::{Errno, Reply};
use exec::{Exec, Mutex};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode};
use std::ffi::CString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a device: as many as the kernel needs to have one at all.
const DEVICE_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u32 = 4096;

/// Mounts; returns the connection.
pub(crate) fn attach(exec: &Exec, mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !rustix::process::geteuid().is_root() {
        return Err(MountError::BlockDevice(Errno::EPERM));
    }
    let device = open_device()?;
    let mut data = data_of(&device, mountpoint, options)?;
    data.push_str(&format!(",blksize={BLOCK_BYTES}"));
    let data = CString::new(data).map_err(|_| MountError::BadName)?;
    let folder = Folder::make().map_err(MountError::BlockDevice)?;
    let place = folder.0.join(&options.source);
    let is_inside = Path::new(&options.source).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !is_inside {
        return Err(MountError::BadName);
    }
    let block = LoopDevice::make().map_err(MountError::BlockDevice)?;
    let linked = place.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::os::unix::fs::symlink(&block.0, &place));
    linked.map_err(|error| MountError::BlockDevice(errno_of(&error)))?;
    let kind = format!("fuseblk.{}", options.subtype);
    let (source, at, flags) = (options.source.clone(), mountpoint.to_path_buf(), flags_of(options));
    let work = move || rustix::mount::mount(source.as_str(), &at, kind.as_str(), flags, data.as_c_str()).map_err(Errno::from);
    in_folder(exec, &folder.0, work).map_err(MountError::Mount)?;
    // The mount holds the device now: it goes with it.
    Ok(device)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Runs `work` with `folder` as its working directory, which nobody else notices: on a thread that has one of its own.
fn in_folder(exec: &Exec, folder: &Path, work: impl FnOnce() -> Reply<()> + Send + 'static) -> Reply<()> {
    let result = Arc::new(Mutex::new(Err(Errno::EIO)));
    let (told, folder) = (result.clone(), folder.to_path_buf());
    let operation = move || {
        #[expect(deprecated, reason = "its other form is unsafe because of file descriptors, which this does not unshare")]
        let alone = rustix::thread::unshare(rustix::thread::UnshareFlags::FS);
        *told.lock() = alone.and_then(|()| rustix::process::chdir(&folder)).map_err(Errno::from).and_then(|()| work());
    };
    exec.spawn_alone("z-fuse-mount", Box::new(operation)).map_err(|_| Errno(libc::EAGAIN))?.join();
    *result.lock()
}

/// Folder that only root looks into, for as long as it lives.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Reply<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = [Path::new("/run"), &std::env::temp_dir()].into_iter().find(|base| base.is_dir()).map(Path::to_path_buf);
        let path = base.unwrap_or_default().join(format!("zirconia-mount-{}-{number}", std::process::id()));
        // One of that name is of a process that ended, or somebody else's: then it is not ours to use.
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| errno_of(&error))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loop device; dropped, it goes as soon as nothing uses it.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn make() -> Reply<LoopDevice> {
        let file = rustix::fs::memfd_create("zirconia-mount", MemfdFlags::CLOEXEC)?;
        rustix::fs::fchmod(&file, Mode::empty())?;
        rustix::fs::ftruncate(&file, DEVICE_BYTES)?;
        let backing = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let output = Command::new("losetup").args(["--find", "--show", "--"]).arg(backing).stdin(Stdio::null()).output();
        let output = output.map_err(|error| errno_of(&error))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        if output.status.success() && text.starts_with("/dev/") { Ok(LoopDevice(PathBuf::from(text))) } else { Err(Errno(libc::ENODEV)) }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).stdin(Stdio::null()).stderr(Stdio::null()).status();
    }
}
