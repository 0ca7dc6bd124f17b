//! A mounted file system: INIT, its place among the [`Readers`] that serve it, the end.

use crate::abi::{self, cap, op};
use crate::apart::apart;
use crate::ending;
use crate::handler::Handler;
use crate::mount::{self, MountError, MountOptions};
use crate::readers::Readers;
use crate::sent_again::{SentAgain, has_waiting};
use crate::serve::HEAD;
use crate::served::Mount;
use crate::uring::Uring;
use crate::{Errno, Reply};
use exec::{Exec, Mutex};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Number of asynchronous requests (readahead, O_DIRECT through libaio or io_uring) that the kernel has under way at most.
const BACKGROUND_MAX: u16 = 512;
/// Bytes of room for requests of mounts whose files are small.
const PAYLOAD_MIN: usize = 64 << 10;

/// Limits and capabilities that INIT settled.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    /// Minor version of the kernel's protocol.
    pub minor: u32,
    /// Capability bits that both sides have.
    pub capabilities: u64,
    /// Bytes of the largest WRITE payload and READ reply.
    pub max_write: u32,
}

impl Negotiated {
    /// True when the kernel keeps to POSIX access control lists, which it asks for.
    pub fn has_posix_acl(&self) -> bool {
        self.capabilities & cap::POSIX_ACL != 0
    }
}

/// Nanoseconds that dropping a session waits for requests that are being served.
const DROP_NS: u64 = 5_000_000_000;

/// Facts about a mount, besides its connection.
#[derive(Clone, Debug)]
pub struct MountFacts {
    /// Path at which it is mounted.
    pub mountpoint: PathBuf,
    /// Major and minor number of its device.
    pub number: (u32, u32),
    /// Limits and capabilities that INIT settled.
    pub negotiated: Negotiated,
    /// True when the user helper mounted it.
    pub through_helper: bool,
}

/// Mount in use. Dropping it ends the mount, cutting off whoever has files open there.
pub struct Session {
    mount: Arc<Mount>,
    readers: Readers,
    exec: Exec,
    mountpoint: Mutex<PathBuf>,
    number: (u32, u32),
    negotiated: Negotiated,
    through_helper: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("mountpoint", &*self.mountpoint.lock())
            .field("negotiated", &self.negotiated)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Mounts `handler` at `mountpoint` and serves it on threads of its own.
    ///
    /// # Errors
    /// [`MountError`] says which step failed; nothing stays mounted then.
    pub fn mount(exec: &Exec, handler: Arc<dyn Handler>, mountpoint: &Path, options: &MountOptions) -> Result<Session, MountError> {
        let readers = Readers::new(exec).map_err(MountError::Readers)?;
        Session::mount_with(&readers, handler, mountpoint, options)
    }

    /// Mounts `handler` at `mountpoint` and serves it on `readers`, beside what they serve already.
    ///
    /// # Errors
    /// [`MountError`] says which step failed; nothing stays mounted then.
    pub fn mount_with(
        readers: &Readers,
        handler: Arc<dyn Handler>,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        let mountpoint = &*std::fs::canonicalize(mountpoint)
            .map_err(|error| MountError::Mountpoint(Errno(error.raw_os_error().unwrap_or(libc::ENOENT))))?;
        mount::raise_pages_limit(options.max_write);
        match Session::mount_at(readers, handler.clone(), mountpoint, options) {
            // The kernel took back what it offered.
            Err(MountError::Seats(_)) => {
                Session::mount_at(readers, handler, mountpoint, &MountOptions { uring: Uring::Off, ..options.clone() })
            }
            outcome => outcome,
        }
    }

    /// Mounts at a path that is absolute.
    fn mount_at(readers: &Readers, handler: Arc<dyn Handler>, mountpoint: &Path, options: &MountOptions) -> Result<Session, MountError> {
        // Whoever has syncs forwarded waits for his own mount, now and then: a process that is killed meanwhile would stay, its rings with it.
        let uring = if options.forwards_sync { Uring::Off } else { options.uring };
        let place = readers.place(uring, capacity_of(options.max_write));
        let (device, through_helper) = mount::attach(readers.exec(), mountpoint, options)?;
        let device = Arc::new(device);
        let started = handshake(&device, options, place.is_some()).map_err(MountError::Handshake).and_then(|negotiated| {
            handler.attached(readers.notifier(&device));
            let place = place.filter(|_| negotiated.capabilities & cap::OVER_IO_URING != 0);
            let refused = if place.is_some() { MountError::Seats } else { MountError::Readers };
            let mount = readers.add(device, handler, capacity_of(negotiated.max_write), place, SentAgain::none()).map_err(refused)?;
            Ok((negotiated, mount))
        });
        let (negotiated, mount) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = mount::detach(mountpoint, through_helper, true);
                return Err(error);
            }
        };
        if options.forwards_sync && !forwards_sync(readers.exec(), mountpoint, &mount) {
            let _ = detach(readers.exec(), mountpoint, through_helper, true);
            return Err(MountError::NotForwarded);
        }
        let number = mount::device_number(mountpoint).unwrap_or_default();
        mount::raise_readahead(number, negotiated.max_write);
        let mountpoint = Mutex::new(mountpoint.to_path_buf());
        let (readers, exec) = (readers.clone(), readers.exec().clone());
        Ok(Session { mount, readers, exec, mountpoint, number, negotiated, through_helper })
    }

    /// Serves a mount that another server served before, over its connection: no INIT comes again.
    ///
    /// # Errors
    /// [`MountError::Readers`]; the connection is closed then.
    pub fn adopt(readers: &Readers, handler: Arc<dyn Handler>, connection: OwnedFd, facts: MountFacts) -> Result<Session, MountError> {
        Session::go_on(readers, handler, connection, facts, SentAgain::none())
    }

    fn go_on(
        readers: &Readers,
        handler: Arc<dyn Handler>,
        connection: OwnedFd,
        facts: MountFacts,
        sent_again: SentAgain,
    ) -> Result<Session, MountError> {
        let MountFacts { mountpoint, number, negotiated, through_helper } = facts;
        let device = Arc::new(connection);
        handler.attached(readers.notifier(&device));
        let mount = readers.add(device, handler, capacity_of(negotiated.max_write), None, sent_again).map_err(MountError::Readers)?;
        let (readers, exec, mountpoint) = (readers.clone(), readers.exec().clone(), Mutex::new(mountpoint));
        Ok(Session { mount, readers, exec, mountpoint, number, negotiated, through_helper })
    }

    /// Serves a mount whose server died: what that one had read and not answered is sent again. When all of that has begun, or the mount has ended,
    /// `then` is done or dropped, perhaps by a thread that serves: it must not take long.
    ///
    /// # Errors
    /// [`MountError::NotSentAgain`] before Linux 6.9, and for a mount that has ended; [`MountError::Readers`]. The connection is closed then.
    pub fn adopt_from_dead(
        readers: &Readers,
        handler: Arc<dyn Handler>,
        connection: OwnedFd,
        facts: MountFacts,
        then: Box<dyn FnOnce() + Send>,
    ) -> Result<Session, MountError> {
        let notice = abi::OutHeader { len: HEAD as u32, error: abi::NOTIFY_RESEND, unique: 0 };
        rustix::io::write(&connection, notice.as_bytes()).map_err(|errno| MountError::NotSentAgain(errno.into()))?;
        let sent_again = match has_waiting(&connection) {
            true => SentAgain::comes(then),
            false => {
                then();
                SentAgain::none()
            }
        };
        Session::go_on(readers, handler, connection, facts, sent_again)
    }

    /// Stops to read requests: what programs ask from now on waits in the kernel.
    pub fn pause(&self) {
        self.readers.pause(&self.mount);
    }

    /// True when it is paused, what was read before is answered, and nothing more is told to the kernel; that of others with the same readers too.
    pub fn is_quiet(&self) -> bool {
        self.readers.is_quiet(&self.mount)
    }

    /// Number of answers that are owed to the kernel, or will be to what is being read: two for a request that another thread may answer.
    pub fn answers_owed(&self) -> usize {
        self.mount.owed.count()
    }

    /// Reads requests again.
    ///
    /// # Errors
    /// The errno of what threads need; nobody serves the mount then.
    pub fn resume(&self) -> Reply<()> {
        self.readers.resume(&self.mount)
    }

    /// Connection to the kernel and what is known of the mount, for another server of it. There must be one at a time: this one is paused.
    ///
    /// # Errors
    /// The errno of dup(2).
    pub fn connection(&self) -> Reply<(OwnedFd, MountFacts)> {
        let device = rustix::io::fcntl_dupfd_cloexec(&*self.mount.device, 0)?;
        let Session { number, negotiated, through_helper, .. } = *self;
        Ok((device, MountFacts { mountpoint: self.mountpoint(), number, negotiated, through_helper }))
    }

    /// Runs work that uses mounts of this process, see [`crate::apart`].
    pub fn apart<T: Send + 'static>(&self, otherwise: T, work: impl FnOnce() -> T + Send + 'static) -> T {
        apart(&self.exec, otherwise, work)
    }

    /// Limits and capabilities that INIT settled.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// True when requests come through io_uring.
    pub fn has_rings(&self) -> bool {
        self.mount.has_rings()
    }

    /// True when the kernel keeps what programs write for a while before it tells.
    pub fn writes_back(&self) -> bool {
        self.negotiated.capabilities & cap::WRITEBACK_CACHE != 0
    }

    /// Has the kernel tell what it kept, and everything be durable, of a mount that forwards syncs.
    ///
    /// # Errors
    /// The errno of open(2) or syncfs(2).
    pub fn flush(&self) -> Reply<()> {
        sync(&self.exec, &self.mountpoint())
    }

    /// Path at which it was mounted, or was moved to.
    pub fn mountpoint(&self) -> PathBuf {
        self.mountpoint.lock().clone()
    }

    /// Sets the path at which the mount is now.
    pub fn moved(&self, mountpoint: &Path) {
        *self.mountpoint.lock() = mountpoint.to_path_buf();
    }

    /// Major and minor number of the device that the kernel made for it, the same for all its mounts.
    pub fn number(&self) -> (u32, u32) {
        self.number
    }

    /// True while the kernel sends requests: false from an unmount or an abort on, also by somebody else.
    pub fn is_alive(&self) -> bool {
        self.mount.is_connected() && ending::is_connected(&*self.mount.device)
    }

    /// True when every request was answered and the handler was told of the end.
    pub fn has_ended(&self) -> bool {
        self.mount.ended.is_over()
    }

    /// Waits for the end as long as `patience_ns`; false when something still uses it then.
    pub fn wait_end(&self, patience_ns: u64) -> bool {
        self.mount.ended.wait(&self.exec, patience_ns)
    }

    /// Unmounts; `lazy` detaches at once and lets open files finish. EBUSY otherwise while files are open.
    ///
    /// # Errors
    /// The errno of umount2(2), or EIO when the user helper failed.
    pub fn unmount(&self, lazy: bool) -> Reply<()> {
        if !self.is_alive() {
            return Ok(());
        }
        self.take_from(&self.mountpoint(), lazy)
    }

    /// Unmounts what is at a place where this is mounted. EINVAL where something else is, which came there, or over it, meanwhile.
    fn take_from(&self, place: &Path, lazy: bool) -> Reply<()> {
        let (place, number, through_helper) = (place.to_path_buf(), self.number, self.through_helper);
        apart(&self.exec, Err(Errno::EIO), move || match mount::device_number(&place) {
            Some(other) if number != (0, 0) && other != number => Err(Errno::EINVAL),
            _ => mount::detach(&place, through_helper, lazy),
        })
    }

    /// Ends the connection, whatever has files open there: they get errors from now on. The mount stays, dead, until it is
    /// detached.
    ///
    /// # Errors
    /// This system has no way for this user.
    pub fn cut(&self) -> Reply<()> {
        if self.number == (0, 0) { Ok(()) } else { ending::abort(&*self.mount.device, self.number) }
    }

    /// Takes a mount away that was cut.
    ///
    /// # Errors
    /// The errno of umount2(2), or EIO when the user helper failed.
    pub fn detach(&self) -> Reply<()> {
        self.take_from(&self.mountpoint(), true)
    }

    /// Mounts the same file system once more: what was detached while files were open there comes back with its one state, what is mounted
    /// elsewhere gets another place. [`Session::moved`] makes it the place that is unmounted first. A mount on a block device can only be shown
    /// once more, from the place `shown` where it is.
    ///
    /// # Errors
    /// [`MountError`]; users' mounts can't be made again.
    pub fn mount_again(&self, mountpoint: &Path, shown: Option<&Path>, options: &MountOptions) -> Result<(), MountError> {
        if self.through_helper {
            return Err(MountError::Mount(Errno::EBUSY));
        }
        let Some(shown) = shown.filter(|_| self.number.0 != 0) else {
            return mount::attach_device(&self.mount.device, mountpoint, options);
        };
        let (shown, place, options) = (shown.to_path_buf(), mountpoint.to_path_buf(), options.clone());
        apart(&self.exec, Err(Errno::EIO), move || mount::show(&shown, &place, &options)).map_err(MountError::Mount)
    }

    /// Changes in place whether the mount is read-only, and what may be executed.
    ///
    /// # Errors
    /// The errno of mount(2); EPERM for users' mounts.
    pub fn remount(&self, options: &MountOptions) -> Reply<()> {
        if self.through_helper { Err(Errno(libc::EPERM)) } else { mount::remount(&self.mountpoint(), options) }
    }

    /// Waits until the file system is unmounted, every request answered, and the handler let go of.
    pub fn join(&self) {
        while !self.wait_end(u64::MAX) {}
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_alive() && self.unmount(false).is_err() {
            let _ = self.cut();
            let _ = self.detach();
        }
        // Requests that a device keeps longer hold what they need.
        self.wait_end(DROP_NS);
    }
}

/// Tries whether a syncfs(2) comes through: kernels differ.
fn forwards_sync(exec: &Exec, mountpoint: &Path, mount: &Mount) -> bool {
    // Its outcome is the pool's; what counts is that it was asked for.
    let _ = sync(exec, mountpoint);
    mount.was_synced()
}

fn sync(exec: &Exec, mountpoint: &Path) -> Reply<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = mountpoint.to_path_buf();
    apart(exec, Err(Errno::EIO), move || Ok(rustix::fs::open(&place, flags, Mode::empty()).and_then(rustix::fs::syncfs)?))
}

/// Unmounts; on a block device that waits for the last sync.
fn detach(exec: &Exec, mountpoint: &Path, through_helper: bool, lazy: bool) -> Reply<()> {
    let place = mountpoint.to_path_buf();
    apart(exec, Err(Errno::EIO), move || mount::detach(&place, through_helper, lazy))
}

/// Bytes of room for a request.
fn capacity_of(max_write: u32) -> usize {
    (max_write as usize).max(PAYLOAD_MIN)
}

/// Reads INIT and answers it; on return the kernel may send requests, with `has_rings` once seats are registered.
fn handshake(device: &OwnedFd, options: &MountOptions, has_rings: bool) -> Reply<Negotiated> {
    let mut buffer = vec![0u8; 1 << 20];
    let received = loop {
        match rustix::io::read(device, &mut buffer) {
            Ok(count) => break count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(error) => return Err(error.into()),
        }
    };
    let body = buffer.get(size_of::<abi::InHeader>()..received).ok_or(Errno::EINVAL)?;
    let (header, _) = abi::InHeader::read_from_prefix(&buffer).map_err(|_| Errno::EINVAL)?;
    // Old kernels send a shorter record; what is missing is zero.
    let mut padded = [0u8; size_of::<abi::InitIn>()];
    let count = body.len().min(padded.len());
    padded[..count].copy_from_slice(&body[..count]);
    let init = abi::InitIn::read_from_bytes(&padded).map_err(|_| Errno::EINVAL)?;
    if header.opcode != op::INIT || init.major != abi::KERNEL_MAJOR || init.minor < 31 {
        return Err(Errno(libc::EPROTO));
    }
    let (reply, negotiated) = answer_init(&init, options, has_rings);
    // Lists that nobody keeps to must not seem to count.
    if options.posix_acl && !negotiated.has_posix_acl() {
        return Err(Errno::EOPNOTSUPP);
    }
    let head = abi::OutHeader { len: (HEAD + size_of::<abi::InitOut>()) as u32, error: 0, unique: header.unique };
    rustix::io::writev(device, &[IoSlice::new(head.as_bytes()), IoSlice::new(reply.as_bytes())])?;
    Ok(negotiated)
}

fn answer_init(init: &abi::InitIn, options: &MountOptions, has_rings: bool) -> (abi::InitOut, Negotiated) {
    let mut offered = u64::from(init.flags);
    if offered & cap::INIT_EXT != 0 {
        offered |= u64::from(init.flags2) << 32;
    }
    // Not ATOMIC_O_TRUNC: the kernel would leave it to us whether a file may be truncated by open(2), and only the kernel knows
    // which files are being executed.
    let mut wanted = cap::ASYNC_READ
        | cap::EXPORT_SUPPORT
        | cap::BIG_WRITES
        | cap::DO_READDIRPLUS
        | cap::READDIRPLUS_AUTO
        | cap::ASYNC_DIO
        | cap::PARALLEL_DIROPS
        | cap::MAX_PAGES
        | cap::HANDLE_KILLPRIV_V2
        | cap::SETXATTR_EXT
        | cap::INIT_EXT
        | cap::DIRECT_IO_ALLOW_MMAP;
    if options.cache_symlinks {
        wanted |= cap::CACHE_SYMLINKS;
    }
    if options.writes_back {
        wanted |= cap::WRITEBACK_CACHE;
    }
    if options.posix_acl {
        wanted |= cap::POSIX_ACL | cap::DONT_MASK;
    }
    if has_rings {
        wanted |= cap::OVER_IO_URING;
    }
    let capabilities = offered & wanted;
    let page = abd::PAGE_BYTES as u32;
    let pages = if capabilities & cap::MAX_PAGES == 0 { 32 } else { (options.max_write / page).clamp(1, 65535) };
    let max_write = pages.min(mount::kernel_pages_limit()) * page;
    let reply = abi::InitOut {
        major: abi::KERNEL_MAJOR,
        minor: abi::KERNEL_MINOR.min(init.minor),
        max_readahead: init.max_readahead.max(max_write),
        flags: capabilities as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write,
        time_gran: 1,
        max_pages: (max_write / page) as u16,
        flags2: (capabilities >> 32) as u32,
        ..abi::InitOut::default()
    };
    (reply, Negotiated { minor: reply.minor, capabilities, max_write })
}
