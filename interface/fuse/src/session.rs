//! A mounted file system: INIT, reader threads, the end.
//!
//! Every thread reads a request, serves it and writes the reply itself, so nothing is handed between threads; only the answer
//! of a READ or WRITE may be sent later by another ([`Answer`]), so that many direct requests are under way with few
//! threads. A receive buffer whose payload the handler kept is left to it and replaced; otherwise it is used again.

use crate::abi::{self, cap, op};
use crate::answer::Owed;
use crate::dispatch::{HEAD_BYTES, Output, Request, Transfer, dispatch, transfer};
use crate::handler::Handler;
use crate::mount::{self, MountError, MountOptions};
use crate::{Answer, Errno, Reply};
use abd::Abd;
use exec::{Exec, Mutex, OperationHandle};
use rustix::fd::OwnedFd;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zerocopy::{FromBytes, IntoBytes};

const HEAD: usize = size_of::<abi::OutHeader>();
/// Asynchronous requests (readahead, O_DIRECT through libaio or io_uring) that the kernel has under way at most.
const BACKGROUND_MAX: u16 = 512;
/// More slices than this in one writev(2) are refused by the kernel (UIO_MAXIOV is 1024).
const SLICES_MAX: usize = 1000;

/// What INIT settled.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    /// Minor version of the kernel's protocol.
    pub minor: u32,
    /// Capability bits that both sides have.
    pub capabilities: u64,
    /// Largest WRITE payload and READ reply, bytes.
    pub max_write: u32,
}

/// A mount in use. Dropping it detaches the mount and waits for the threads.
pub struct Session {
    device: Arc<OwnedFd>,
    mountpoint: PathBuf,
    negotiated: Negotiated,
    threads: Mutex<Vec<OperationHandle>>,
    alive: Arc<AtomicUsize>,
    through_helper: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mountpoint", &self.mountpoint).field("negotiated", &self.negotiated).finish_non_exhaustive()
    }
}

impl Session {
    /// Mounts `handler` at `mountpoint` and serves it on `options.threads` operations of `exec`.
    ///
    /// # Errors
    /// [`MountError`] says which step failed; nothing stays mounted then.
    pub fn mount(exec: &Exec, handler: Arc<dyn Handler>, mountpoint: &Path, options: &MountOptions) -> Result<Session, MountError> {
        let mountpoint = &*std::fs::canonicalize(mountpoint)
            .map_err(|error| MountError::Mountpoint(Errno(error.raw_os_error().unwrap_or(libc::ENOENT))))?;
        mount::raise_pages_limit(options.max_write);
        let (device, through_helper) = mount::attach(mountpoint, options)?;
        let device = Arc::new(device);
        let negotiated = match handshake(&device, options) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                let _ = mount::detach(mountpoint, through_helper, true);
                return Err(MountError::Handshake(error));
            }
        };
        let count = options.threads.max(1);
        let link = Link { device: device.clone(), owed: Arc::default() };
        let alive = Arc::new(AtomicUsize::new(count));
        let executor = exec;
        let threads = (0..count)
            .map(|index| {
                let (link, handler, alive, exec) = (link.clone(), handler.clone(), alive.clone(), executor.clone());
                let operation = move || {
                    serve(&link, &*handler, negotiated.max_write as usize);
                    if alive.fetch_sub(1, Ordering::AcqRel) == 1 {
                        link.owed.wait(&exec);
                        handler.destroy();
                    }
                };
                executor.spawn_operation(&format!("z-fuse-{index}"), Box::new(operation))
            })
            .collect();
        mount::raise_readahead(mountpoint, negotiated.max_write);
        let mountpoint = mountpoint.to_path_buf();
        Ok(Session { device, mountpoint, negotiated, threads: Mutex::new(threads), alive, through_helper })
    }

    /// What INIT settled.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// True while the kernel sends requests (false after an unmount, also one by somebody else).
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) > 0
    }

    /// Unmounts; `lazy` detaches at once and lets open files finish. EBUSY otherwise while files are open.
    ///
    /// # Errors
    /// The errno of umount2(2), or EIO when the user helper failed.
    pub fn unmount(&self, lazy: bool) -> Reply<()> {
        if !self.is_alive() {
            return Ok(());
        }
        mount::detach(&self.mountpoint, self.through_helper, lazy)
    }

    /// Waits until the file system is unmounted and every request answered.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(OperationHandle::join);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = self.unmount(true);
        }
        self.join();
        let _ = &self.device;
    }
}

/// Reads INIT and answers it; on return the kernel may send requests.
fn handshake(device: &OwnedFd, options: &MountOptions) -> Reply<Negotiated> {
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
    let (reply, negotiated) = answer_init(&init, options);
    let head = abi::OutHeader { len: (HEAD + size_of::<abi::InitOut>()) as u32, error: 0, unique: header.unique };
    rustix::io::writev(device, &[IoSlice::new(head.as_bytes()), IoSlice::new(reply.as_bytes())])?;
    Ok(negotiated)
}

fn answer_init(init: &abi::InitIn, options: &MountOptions) -> (abi::InitOut, Negotiated) {
    let mut offered = u64::from(init.flags);
    if offered & cap::INIT_EXT != 0 {
        offered |= u64::from(init.flags2) << 32;
    }
    let mut wanted = cap::ASYNC_READ
        | cap::ATOMIC_O_TRUNC
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

/// What a reader keeps between requests.
struct Reader {
    /// The first bytes of a request: a WRITE's records.
    head: [u8; HEAD_BYTES],
    /// The rest: a WRITE's payload, page-aligned.
    payload: Abd,
    /// A request other than WRITE whose bytes went to both.
    joined: Vec<u8>,
    out: Vec<u8>,
}

/// Where answers go.
#[derive(Clone)]
struct Link {
    device: Arc<OwnedFd>,
    owed: Arc<Owed>,
}

impl Link {
    fn answer_read(&self, unique: u64) -> Answer<Abd> {
        let (device, debt) = (self.device.clone(), self.owed.owe());
        Answer::new(move |reply| {
            let _debt = debt;
            let mut head = [0; HEAD];
            match reply {
                Ok(data) => send(&device, &mut head, Some(&data), unique, 0),
                Err(errno) => send(&device, &mut head, None, unique, -errno.0),
            };
        })
    }

    fn answer_write(&self, unique: u64) -> Answer<u32> {
        let (device, debt) = (self.device.clone(), self.owed.owe());
        Answer::new(move |reply| {
            let _debt = debt;
            let mut out = [0; HEAD + size_of::<abi::WriteOut>()];
            match reply {
                Ok(size) => {
                    out[HEAD..].copy_from_slice(abi::WriteOut { size, padding: 0 }.as_bytes());
                    send(&device, &mut out, None, unique, 0)
                }
                Err(errno) => send(&device, &mut out[..HEAD], None, unique, -errno.0),
            };
        })
    }
}

/// The loop of one reader.
fn serve(link: &Link, handler: &dyn Handler, max_write: usize) {
    let device = &*link.device;
    let capacity = max_write.max(64 << 10);
    let mut reader =
        Reader { head: [0; HEAD_BYTES], payload: Abd::scratch(capacity), joined: Vec::new(), out: Vec::with_capacity(64 << 10) };
    loop {
        if reader.payload.get_mut().is_none() {
            reader.payload = Abd::scratch(capacity);
        }
        let Some(room) = reader.payload.get_mut() else { return };
        let received = match rustix::io::readv(device, &mut [IoSliceMut::new(&mut reader.head), IoSliceMut::new(room)]) {
            Ok(count) => count,
            // ENOENT: the request was interrupted before we got it.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN | rustix::io::Errno::NOENT) => continue,
            Err(_) => return,
        };
        if !serve_one(link, handler, &mut reader, received) {
            return;
        }
    }
}

/// Serves the request that was received; false when the connection is gone.
fn serve_one(link: &Link, handler: &dyn Handler, reader: &mut Reader, received: usize) -> bool {
    let device = &*link.device;
    let Reader { head, payload, joined, out } = reader;
    let Ok((header, _)) = abi::InHeader::read_from_prefix(&head[..]) else { return true };
    let payload_bytes = received.saturating_sub(HEAD_BYTES);
    let mut body = head.get(size_of::<abi::InHeader>()..received.min(HEAD_BYTES)).unwrap_or_default();
    if payload_bytes > 0 && header.opcode != op::WRITE {
        joined.clear();
        joined.extend_from_slice(body);
        joined.extend_from_slice(payload.as_contiguous().and_then(|bytes| bytes.get(..payload_bytes)).unwrap_or_default());
        body = joined;
    }
    out.clear();
    out.resize(HEAD, 0);
    let request = Request { header, payload, payload_bytes, body };
    let result = if matches!(header.opcode, op::READ | op::WRITE) {
        transfer(&request).map(|(caller, transfer)| {
            match transfer {
                Transfer::Read(read) => handler.read_then(&caller, &read, link.answer_read(header.unique)),
                Transfer::Write(write) => handler.write_then(&caller, write, link.answer_write(header.unique)),
            }
            Output::Nothing
        })
    } else {
        dispatch(handler, &request, out)
    };
    match result {
        Ok(Output::Nothing) => true,
        Ok(Output::Small) => send(device, out, None, header.unique, 0),
        Err(errno) => {
            out.truncate(HEAD);
            send(device, out, None, header.unique, -errno.0)
        }
    }
}

fn send(device: &OwnedFd, out: &mut [u8], data: Option<&Abd>, unique: u64, error: i32) -> bool {
    let length = out.len() + data.map_or(0, Abd::len);
    let head = abi::OutHeader { len: length as u32, error, unique };
    out[..HEAD].copy_from_slice(head.as_bytes());
    let sent = match data {
        None => rustix::io::write(device, out),
        Some(data) => {
            let mut slices = Vec::with_capacity(4);
            slices.push(IoSlice::new(out));
            slices.extend(data.chunks().map(IoSlice::new));
            if slices.len() > SLICES_MAX {
                let flat = data.to_contiguous();
                rustix::io::writev(device, &[IoSlice::new(out), IoSlice::new(flat.as_contiguous().unwrap_or_default())])
            } else {
                rustix::io::writev(device, &slices)
            }
        }
    };
    // ENOENT: the caller was killed and no longer waits for this reply. ENODEV: unmounted.
    match sent {
        Ok(_) | Err(rustix::io::Errno::NOENT) => true,
        Err(rustix::io::Errno::NODEV) => false,
        Err(_) if error == 0 => {
            // The kernel refused the reply itself; an error reply frees the caller.
            let head = abi::OutHeader { len: HEAD as u32, error: -libc::EIO, unique };
            rustix::io::write(device, head.as_bytes()).is_ok()
        }
        Err(_) => true,
    }
}
