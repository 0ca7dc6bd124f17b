//! Attaching to and detaching from the directory tree: mount(2) as root, fusermount3 otherwise.
//!
//! Invariant: a descriptor returned by [`attach`] belongs to a mount that [`detach`] with the same `through_helper` removes.

use crate::{Errno, Reply, Uring, blockmount};
use exec::Exec;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Source shown by mount(8) and df(1), e.g. the dataset.
    pub source: String,
    /// Subtype, shown as `fuse.SUBTYPE`.
    pub subtype: String,
    /// True to refuse writes.
    pub read_only: bool,
    /// True to let other users in (always for root's mounts of a shared system).
    pub allow_other: bool,
    /// True to let the kernel check mode bits (with the caller's supplementary groups).
    pub default_permissions: bool,
    /// True to let the kernel keep to POSIX access control lists, too: it asks for them as extended attributes, and leaves it to the server to apply
    /// umasks, for new nodes that inherit none.
    pub posix_acl: bool,
    /// True to honour setuid bits.
    pub suid: bool,
    /// True to honour device nodes.
    pub devices: bool,
    /// True to allow execution.
    pub exec: bool,
    /// True to update access times as asked by the VFS (relatime is the kernel's default).
    pub atime: bool,
    /// Bytes of the largest request payload; the kernel's `fs.fuse.max_pages_limit` bounds it.
    pub max_write: u32,
    /// True to let the kernel cache symbolic links.
    pub cache_symlinks: bool,
    /// True to have syncfs(2) and sync(1) forwarded, and umount(2) wait for the server: a mount on a block device, for root only.
    pub forwards_sync: bool,
    /// True to let the kernel keep what programs write and tell it later (a write-back cache).
    pub writes_back: bool,
    /// Way on which requests come.
    pub uring: Uring,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            source: "zirconia".into(),
            subtype: "zfs".into(),
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            posix_acl: false,
            suid: true,
            devices: true,
            exec: true,
            atime: true,
            max_write: 1 << 20,
            cache_symlinks: true,
            forwards_sync: false,
            writes_back: false,
            uring: Uring::Off,
        }
    }
}

/// Reason why a mount failed.
#[derive(Debug)]
pub enum MountError {
    /// Device `/dev/fuse` cannot be opened.
    Device(Errno),
    /// Mount point is not a directory that can be examined.
    Mountpoint(Errno),
    /// Name contains a zero byte or a comma.
    BadName,
    /// System call mount(2) refused.
    Mount(Errno),
    /// Helper fusermount3 cannot be started (is the package fuse3 installed?).
    HelperMissing(Errno),
    /// Helper fusermount3 refused; it told why on stderr.
    HelperRefused(Vec<u8>),
    /// Exchange of INIT failed.
    Handshake(Errno),
    /// Block device could not be had for a mount that is to forward syncs.
    BlockDevice(Errno),
    /// Kernel does not forward syncs.
    NotForwarded,
    /// Threads that serve the mount cannot watch it.
    Readers(Errno),
    /// Kernel does not send again what a server that died had read.
    NotSentAgain(Errno),
    /// Kernel offered FUSE over io_uring, and then refused it.
    Seats(Errno),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::Device(errno) => write!(f, "cannot open /dev/fuse: {errno}"),
            MountError::Mountpoint(errno) => write!(f, "cannot use the mount point: {errno}"),
            MountError::BadName => f.write_str("the source or mount point contains a character that mount options cannot carry"),
            MountError::Mount(errno) => write!(f, "mount(2) failed: {errno}"),
            MountError::HelperMissing(errno) => write!(f, "cannot start fusermount3 ({errno}); install the package fuse3 or mount as root"),
            MountError::HelperRefused(message) => write!(f, "{}", String::from_utf8_lossy(message).trim_end()),
            MountError::Handshake(errno) => write!(f, "the kernel's FUSE handshake failed: {errno}"),
            MountError::BlockDevice(errno) => {
                write!(f, "no loop device for a mount that forwards syncfs(2) ({errno}); it takes root and losetup of util-linux")
            }
            MountError::NotForwarded => f.write_str("this kernel does not forward syncfs(2) of FUSE mounts on block devices"),
            MountError::NotSentAgain(errno) => write!(f, "the kernel does not send again what a daemon that died had read: {errno}"),
            MountError::Readers(errno) | MountError::Seats(errno) => write!(f, "the mount cannot be served: {errno}"),
        }
    }
}

impl std::error::Error for MountError {}

/// Mounts; returns the connection and whether the user helper did it.
pub(crate) fn attach(exec: &Exec, mountpoint: &Path, options: &MountOptions) -> Result<(OwnedFd, bool), MountError> {
    if options.source.contains([',', '\0']) || options.subtype.contains([',', '\0', '.']) {
        return Err(MountError::BadName);
    }
    if options.forwards_sync {
        Ok((blockmount::attach(exec, mountpoint, options)?, false))
    } else if rustix::process::geteuid().is_root() {
        Ok((attach_as_root(mountpoint, options)?, false))
    } else {
        Ok((attach_through_helper(mountpoint, options)?, true))
    }
}

pub(crate) fn open_device() -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| MountError::Device(error.into()))
}

fn attach_as_root(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    attach_device(&device, mountpoint, options)?;
    Ok(device)
}

/// Mounts a connection: a fresh one, or one that is in use already and gets one more mount of the same superblock (Linux 5.10).
/// Needs root.
pub(crate) fn attach_device(device: &OwnedFd, mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
    let data = CString::new(data_of(device, mountpoint, options)?).map_err(|_| MountError::BadName)?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.source.as_str(), mountpoint, kind.as_str(), flags_of(options), data.as_c_str())
        .map_err(|error| MountError::Mount(error.into()))
}

/// Shows at another place what is mounted at one (a bind mount), with flags of its own. Needs root.
pub(crate) fn show(from: &Path, to: &Path, options: &MountOptions) -> Reply<()> {
    rustix::mount::mount_bind(from, to)?;
    Ok(rustix::mount::mount_remount(to, flags_of(options) | MountFlags::BIND, c"")?)
}

/// Options of mount(2) that FUSE itself reads.
pub(crate) fn data_of(device: &OwnedFd, mountpoint: &Path, options: &MountOptions) -> Result<String, MountError> {
    let stat = rustix::fs::stat(mountpoint).map_err(|error| MountError::Mountpoint(error.into()))?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(MountError::Mountpoint(Errno::ENOTDIR));
    }
    let mut data = format!("fd={},rootmode={:o},user_id=0,group_id=0", device.as_raw_fd(), stat.st_mode & libc::S_IFMT);
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    Ok(data)
}

pub(crate) fn flags_of(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.devices);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOATIME, !options.atime);
    flags
}

fn attach_through_helper(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let pair =
        rustix::net::socketpair(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(|error| MountError::HelperMissing(error.into()))?;
    let mut list = format!("nosuid,nodev,fsname={},subtype={}", options.source, options.subtype);
    for (on, text) in [
        (options.read_only, ",ro"),
        (options.allow_other, ",allow_other"),
        (options.default_permissions, ",default_permissions"),
        (!options.exec, ",noexec"),
        (!options.atime, ",noatime"),
    ] {
        if on {
            list.push_str(text);
        }
    }
    // The helper sends the descriptor over the socket it is given as descriptor 0.
    let mut helper = Command::new("fusermount3");
    helper.arg("-o").arg(&list).arg("--").arg(mountpoint).env("_FUSE_COMMFD", "0");
    helper.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = helper.spawn().map_err(|error| MountError::HelperMissing(Errno(error.raw_os_error().unwrap_or(libc::ENOENT))))?;
    drop(helper);
    let device = receive_descriptor(&ours);
    let output =
        child.wait_with_output().map_err(|error| MountError::HelperMissing(Errno(error.raw_os_error().unwrap_or(libc::ECHILD))))?;
    device.ok_or(MountError::HelperRefused(output.stderr))
}

fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Unmounts.
pub(crate) fn detach(mountpoint: &Path, through_helper: bool, lazy: bool) -> Reply<()> {
    if !through_helper {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW).map_err(Errno::from);
    }
    let mut helper = Command::new("fusermount3");
    helper.arg("-u");
    if lazy {
        helper.arg("-z");
    }
    let status = helper.arg("--").arg(mountpoint).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Errno::EBUSY),
        Err(_) => Err(Errno::EIO),
    }
}

/// True for a mount whose server died: every request to it says ENOTCONN. It is asked, whatever attributes the kernel has cached of it: those are
/// valid for a while after the death too. What waits for a server that lives and does not answer waits here as well.
pub fn is_dead(mountpoint: &Path) -> bool {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    // CONNABORTED: the connection was cut off while the question was under way; CANCELED: with the rings of a server that is being killed.
    let asked = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::BASIC_STATS);
    matches!(asked, Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::CANCELED))
}

/// Takes away a mount whose server died, so that the directory can be used again; true when there was one. A mount that answers is
/// left alone. Programs that still use its paths write into the directory from now on: see [`crate::Stage`].
pub fn clear_dead_mount(mountpoint: &Path) -> bool {
    is_dead(mountpoint) && (detach(mountpoint, false, true).is_ok() || detach(mountpoint, true, true).is_ok())
}

/// Mounts what has no server, and so is dead from its beginning ([`is_dead`]): no path leads into it, and nothing is written beneath it. It goes as
/// any other dead mount does.
///
/// # Errors
/// [`MountError`]; nothing is mounted then.
pub fn bury(mountpoint: &Path, source: &str) -> Result<(), MountError> {
    let options = MountOptions { source: source.to_string(), ..MountOptions::default() };
    if options.source.contains([',', '\0']) {
        return Err(MountError::BadName);
    }
    let attach = if rustix::process::geteuid().is_root() { attach_as_root } else { attach_through_helper };
    // A connection that nobody has open has ended (Linux: `fuse_dev_release`).
    attach(mountpoint, &options).map(drop)
}

/// Major and minor number of the device that is mounted there, without asking its server.
pub(crate) fn device_number(mountpoint: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::TYPE).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Changes the flags of a mount in place. Needs root.
pub(crate) fn remount(mountpoint: &Path, options: &MountOptions) -> Reply<()> {
    rustix::mount::mount_remount(mountpoint, flags_of(options), c"").map_err(Errno::from)
}

/// Number of pages that one request may carry (`fs.fuse.max_pages_limit`; 256 before Linux 6.13 had it).
pub(crate) fn kernel_pages_limit() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    text.trim().parse().unwrap_or(256)
}

/// Makes room for requests of `bytes`: best effort, needs root; the limit is the system's, and only ever raised.
pub(crate) fn raise_pages_limit(bytes: u32) {
    let pages = bytes / abd::PAGE_BYTES as u32;
    if pages > kernel_pages_limit() {
        let _ = std::fs::write("/proc/sys/fs/fuse/max_pages_limit", pages.to_string());
    }
}

/// Lets buffered reads use whole requests: the kernel's readahead window starts at 128 KiB whatever INIT says.
/// Best effort; needs root.
pub(crate) fn raise_readahead((major, minor): (u32, u32), max_write: u32) {
    // A mount on a block device: the number alone is the device's.
    let names = [format!("{major}:{minor}-fuseblk"), format!("{major}:{minor}")];
    let place = names.iter().map(|name| format!("/sys/class/bdi/{name}/read_ahead_kb")).find(|place| Path::new(place).exists());
    if let Some(place) = place {
        let _ = std::fs::write(place, (max_write / 1024).to_string());
    }
}
