//! From request bytes to a [`Handler`] call to reply bytes.
//!
//! Invariants: a malformed request gets EINVAL (never a panic); FORGET, BATCH_FORGET and INTERRUPT get no reply; read data is
//! passed on as an `Abd`, never copied; the payload of WRITE is a slice of the receive buffer. READ, WRITE and LSEEK only become
//! values here ([`transfer`]): they are handed on with an [`crate::Answer`].

use crate::abi::{self, op};
use crate::encode::{self, Listing, attr_out, entry_out, open_out};
use crate::handler::{Caller, FallocateRequest, FileHandle, Handler, NewNode, NodeId, ReadRequest, RenameRequest, SeekRequest, SetAttr};
use crate::handler::{SetTime, Timestamp, WriteRequest};
use crate::{Errno, Reply};
use abd::Abd;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a WRITE request before its payload: they are received apart, so that the payload starts a page of its own.
pub(crate) const HEAD_BYTES: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// What to send back.
#[derive(Debug)]
pub(crate) enum Output {
    /// No reply at all.
    Nothing,
    /// The bytes in the reply vector.
    Small,
}

/// A request that moves data and may be answered later.
pub(crate) enum Transfer {
    Read(ReadRequest),
    Write(WriteRequest),
    Seek(SeekRequest),
}

/// One received request.
pub(crate) struct Request<'a> {
    /// Its head.
    pub header: abi::InHeader,
    /// The payload buffer: what lies behind [`HEAD_BYTES`].
    pub payload: &'a Abd,
    /// Bytes received into it.
    pub payload_bytes: usize,
    /// What follows the head; of a WRITE without the payload.
    pub body: &'a [u8],
}

/// Splits a fixed record off the front of `bytes`.
fn take<T: FromBytes>(bytes: &mut &[u8]) -> Reply<T> {
    let input: &[u8] = bytes;
    let head = input.get(..size_of::<T>()).ok_or(Errno::EINVAL)?;
    *bytes = &input[size_of::<T>()..];
    T::read_from_bytes(head).map_err(|_| Errno::EINVAL)
}

/// Splits a zero-terminated string off the front of `bytes`.
fn take_name<'a>(bytes: &mut &'a [u8]) -> Reply<&'a [u8]> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
    let (name, rest) = bytes.split_at(end);
    *bytes = &rest[1..];
    Ok(name)
}

fn put<T: IntoBytes + zerocopy::Immutable>(out: &mut Vec<u8>, record: &T) -> Reply<Output> {
    out.extend_from_slice(record.as_bytes());
    Ok(Output::Small)
}

fn done(result: Reply<()>) -> Reply<Output> {
    result.map(|()| Output::Small)
}

/// Serves one request. The reply's bytes after the head are appended to `out` when [`Output::Small`] is returned.
pub(crate) fn dispatch(handler: &dyn Handler, request: &Request<'_>, out: &mut Vec<u8>) -> Reply<Output> {
    let header = &request.header;
    let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
    let node = NodeId(header.nodeid);
    match header.opcode {
        op::FLUSH | op::FSYNC | op::FALLOCATE | op::OPEN | op::RELEASE => file_io(handler, request, &caller, node, out),
        op::READDIR | op::READDIRPLUS | op::OPENDIR | op::RELEASEDIR | op::FSYNCDIR => directory_io(handler, request, &caller, node, out),
        op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR => xattr(handler, request, &caller, node, out),
        op::MKNOD | op::MKDIR | op::CREATE | op::TMPFILE | op::SYMLINK | op::LINK => make(handler, request, &caller, node, out),
        op::FORGET | op::BATCH_FORGET => forget(handler, request, node),
        _ => rest(handler, request, &caller, node, out),
    }
}

fn rest(handler: &dyn Handler, request: &Request<'_>, caller: &Caller, node: NodeId, out: &mut Vec<u8>) -> Reply<Output> {
    let mut body = request.body;
    match request.header.opcode {
        op::LOOKUP => {
            let entry = handler.lookup(caller, node, take_name(&mut body)?)?;
            put(out, &entry_out(&entry))
        }
        op::GETATTR => {
            let input: abi::GetattrIn = take(&mut body)?;
            let handle = (input.getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(input.fh));
            let (attr, ttl) = handler.getattr(caller, node, handle)?;
            put(out, &attr_out(&attr, ttl))
        }
        op::STATX => {
            let input: abi::StatxIn = take(&mut body)?;
            let handle = (input.getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(input.fh));
            let (attr, ttl) = handler.getattr(caller, node, handle)?;
            put(out, &encode::statx_out(&attr, ttl))
        }
        op::SETATTR => {
            let input: abi::SetattrIn = take(&mut body)?;
            let (attr, ttl) = handler.setattr(caller, node, &set_attr(&input))?;
            put(out, &attr_out(&attr, ttl))
        }
        op::READLINK => {
            out.extend_from_slice(&handler.readlink(caller, node)?);
            Ok(Output::Small)
        }
        op::UNLINK => done(handler.unlink(caller, node, take_name(&mut body)?)),
        op::RMDIR => done(handler.rmdir(caller, node, take_name(&mut body)?)),
        op::RENAME => {
            let input: abi::RenameIn = take(&mut body)?;
            rename(handler, caller, node, input.newdir, 0, body)
        }
        op::RENAME2 => {
            let input: abi::Rename2In = take(&mut body)?;
            rename(handler, caller, node, input.newdir, input.flags, body)
        }
        op::STATFS => {
            let stats = handler.statfs(caller, node)?;
            put(out, &encode::statfs_out(&stats))
        }
        op::ACCESS => {
            let input: abi::AccessIn = take(&mut body)?;
            done(handler.access(caller, node, input.mask))
        }
        op::POLL => {
            let input: abi::PollIn = take(&mut body)?;
            // Regular files are always ready for what was asked.
            let ready = (libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM) as u32;
            put(out, &abi::PollOut { revents: input.events & ready, padding: 0 })
        }
        op::IOCTL => {
            let input: abi::IoctlIn = take(&mut body)?;
            let argument = body.get(..input.in_size as usize).ok_or(Errno::EINVAL)?;
            let result = handler.ioctl(caller, node, input.cmd, argument)?;
            if result.len() > input.out_size as usize {
                return Err(Errno::EINVAL);
            }
            out.extend_from_slice(abi::IoctlOut::default().as_bytes());
            out.extend_from_slice(&result);
            Ok(Output::Small)
        }
        // An interrupted request still completes; the kernel accepts its reply. Notify replies answer nothing we sent.
        op::INTERRUPT | op::NOTIFY_REPLY => Ok(Output::Nothing),
        _ => Err(Errno::ENOSYS),
    }
}

fn rename(handler: &dyn Handler, caller: &Caller, parent: NodeId, new_parent: u64, flags: u32, mut body: &[u8]) -> Reply<Output> {
    let name = take_name(&mut body)?;
    let new_name = take_name(&mut body)?;
    done(handler.rename(caller, &RenameRequest { parent, name, new_parent: NodeId(new_parent), new_name, flags }))
}

fn set_attr(input: &abi::SetattrIn) -> SetAttr {
    let valid = input.valid;
    let has = |bit: u32| valid & bit != 0;
    let time = |bit: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Timestamp { seconds: seconds as i64, nanoseconds })),
        (false, false) => None,
    };
    SetAttr {
        mode: has(abi::fattr::MODE).then_some(input.mode),
        uid: has(abi::fattr::UID).then_some(input.uid),
        gid: has(abi::fattr::GID).then_some(input.gid),
        size: has(abi::fattr::SIZE).then_some(input.size),
        atime: time(abi::fattr::ATIME, abi::fattr::ATIME_NOW, input.atime, input.atimensec),
        mtime: time(abi::fattr::MTIME, abi::fattr::MTIME_NOW, input.mtime, input.mtimensec),
        ctime: has(abi::fattr::CTIME).then_some(Timestamp { seconds: input.ctime as i64, nanoseconds: input.ctimensec }),
        handle: has(abi::fattr::FH).then_some(FileHandle(input.fh)),
        kill_suid: has(abi::fattr::KILL_SUIDGID),
    }
}

fn make(handler: &dyn Handler, request: &Request<'_>, caller: &Caller, node: NodeId, out: &mut Vec<u8>) -> Reply<Output> {
    let mut body = request.body;
    let entry = match request.header.opcode {
        op::MKNOD => {
            let input: abi::MknodIn = take(&mut body)?;
            handler.mknod(caller, node, take_name(&mut body)?, &NewNode { mode: input.mode, rdev: input.rdev })?
        }
        op::MKDIR => {
            let input: abi::MkdirIn = take(&mut body)?;
            handler.mkdir(caller, node, take_name(&mut body)?, &NewNode { mode: libc::S_IFDIR | input.mode, rdev: 0 })?
        }
        op::SYMLINK => {
            let name = take_name(&mut body)?;
            handler.symlink(caller, node, name, take_name(&mut body)?)?
        }
        op::LINK => {
            let input: abi::LinkIn = take(&mut body)?;
            handler.link(caller, NodeId(input.oldnodeid), node, take_name(&mut body)?)?
        }
        opcode => {
            let input: abi::CreateIn = take(&mut body)?;
            let new = NewNode { mode: libc::S_IFREG | (input.mode & !libc::S_IFMT), rdev: 0 };
            let (entry, opened) = if opcode == op::TMPFILE {
                handler.tmpfile(caller, node, &new, input.flags)?
            } else {
                handler.create(caller, node, take_name(&mut body)?, &new, input.flags)?
            };
            out.extend_from_slice(entry_out(&entry).as_bytes());
            return put(out, &open_out(&opened));
        }
    };
    put(out, &entry_out(&entry))
}

fn forget(handler: &dyn Handler, request: &Request<'_>, node: NodeId) -> Reply<Output> {
    let mut body = request.body;
    if request.header.opcode == op::FORGET {
        if let Ok(input) = take::<abi::ForgetIn>(&mut body) {
            handler.forget(node, input.nlookup);
        }
    } else if let Ok(input) = take::<abi::BatchForgetIn>(&mut body) {
        for _ in 0..input.count {
            let Ok(one) = take::<abi::ForgetOne>(&mut body) else { break };
            handler.forget(NodeId(one.nodeid), one.nlookup);
        }
    }
    Ok(Output::Nothing)
}

fn file_io(handler: &dyn Handler, request: &Request<'_>, caller: &Caller, node: NodeId, out: &mut Vec<u8>) -> Reply<Output> {
    let mut body = request.body;
    match request.header.opcode {
        op::OPEN => {
            let input: abi::OpenIn = take(&mut body)?;
            put(out, &open_out(&handler.open(caller, node, input.flags)?))
        }
        op::RELEASE => {
            let input: abi::ReleaseIn = take(&mut body)?;
            handler.release(node, FileHandle(input.fh), input.flags);
            Ok(Output::Small)
        }
        op::FLUSH => {
            let input: abi::FlushIn = take(&mut body)?;
            done(handler.flush(caller, node, FileHandle(input.fh)))
        }
        op::FSYNC => {
            let input: abi::FsyncIn = take(&mut body)?;
            done(handler.fsync(caller, node, FileHandle(input.fh), input.fsync_flags & abi::FSYNC_FDATASYNC != 0))
        }
        _ => {
            let input: abi::FallocateIn = take(&mut body)?;
            let wanted =
                FallocateRequest { node, handle: FileHandle(input.fh), offset: input.offset, length: input.length, mode: input.mode };
            done(handler.fallocate(caller, &wanted))
        }
    }
}

/// READ, WRITE or LSEEK.
pub(crate) fn transfer(request: &Request<'_>) -> Reply<(Caller, Transfer)> {
    let header = &request.header;
    let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
    let node = NodeId(header.nodeid);
    let transfer = match header.opcode {
        op::WRITE => Transfer::Write(write(request, node)?),
        op::LSEEK => Transfer::Seek(seek(request, node)?),
        _ => Transfer::Read(read(request, node)?),
    };
    Ok((caller, transfer))
}

fn read(request: &Request<'_>, node: NodeId) -> Reply<ReadRequest> {
    let input: abi::ReadIn = take(&mut { request.body })?;
    Ok(ReadRequest {
        node,
        handle: FileHandle(input.fh),
        offset: input.offset,
        size: input.size,
        open_flags: input.flags,
        past_cache: input.read_flags & abi::READ_LOCKOWNER != 0,
    })
}

fn seek(request: &Request<'_>, node: NodeId) -> Reply<SeekRequest> {
    let input: abi::LseekIn = take(&mut { request.body })?;
    let hole = match input.whence as i32 {
        libc::SEEK_HOLE => true,
        libc::SEEK_DATA => false,
        _ => return Err(Errno::EINVAL),
    };
    Ok(SeekRequest { node, handle: FileHandle(input.fh), offset: input.offset, hole })
}

fn write(request: &Request<'_>, node: NodeId) -> Reply<WriteRequest> {
    let mut body = request.body;
    let input: abi::WriteIn = take(&mut body)?;
    let size = input.size as usize;
    if request.payload_bytes < size {
        return Err(Errno::EINVAL);
    }
    Ok(WriteRequest {
        node,
        handle: FileHandle(input.fh),
        offset: input.offset,
        data: request.payload.slice(0..size),
        pinned_bytes: request.payload.len(),
        open_flags: input.flags,
        kill_suid: input.write_flags & abi::WRITE_KILL_SUIDGID != 0,
        from_cache: input.write_flags & abi::WRITE_CACHE != 0,
        past_cache: input.write_flags & (abi::WRITE_CACHE | abi::WRITE_LOCKOWNER) == abi::WRITE_LOCKOWNER,
    })
}

fn directory_io(handler: &dyn Handler, request: &Request<'_>, caller: &Caller, node: NodeId, out: &mut Vec<u8>) -> Reply<Output> {
    let mut body = request.body;
    match request.header.opcode {
        op::OPENDIR => {
            let input: abi::OpenIn = take(&mut body)?;
            put(out, &open_out(&handler.opendir(caller, node, input.flags)?))
        }
        op::RELEASEDIR => {
            let input: abi::ReleaseIn = take(&mut body)?;
            handler.releasedir(node, FileHandle(input.fh));
            Ok(Output::Small)
        }
        op::FSYNCDIR => {
            let input: abi::FsyncIn = take(&mut body)?;
            done(handler.fsyncdir(caller, node, FileHandle(input.fh), input.fsync_flags & abi::FSYNC_FDATASYNC != 0))
        }
        opcode => {
            let input: abi::ReadIn = take(&mut body)?;
            let mut listing = Listing::new(out, input.size as usize, opcode == op::READDIRPLUS);
            let handle = FileHandle(input.fh);
            if opcode == op::READDIRPLUS {
                handler.readdirplus(caller, node, handle, input.offset, &mut listing)?;
            } else {
                handler.readdir(caller, node, handle, input.offset, &mut listing)?;
            }
            Ok(Output::Small)
        }
    }
}

fn xattr(handler: &dyn Handler, request: &Request<'_>, caller: &Caller, node: NodeId, out: &mut Vec<u8>) -> Reply<Output> {
    let mut body = request.body;
    let value = match request.header.opcode {
        op::SETXATTR => {
            let input: abi::SetxattrIn = take(&mut body)?;
            take::<abi::SetxattrExt>(&mut body)?;
            let name = take_name(&mut body)?;
            let value = body.get(..input.size as usize).ok_or(Errno::EINVAL)?;
            return done(handler.setxattr(caller, node, name, value, input.flags));
        }
        op::REMOVEXATTR => return done(handler.removexattr(caller, node, take_name(&mut body)?)),
        op::GETXATTR => {
            let input: abi::GetxattrIn = take(&mut body)?;
            (input.size, handler.getxattr(caller, node, take_name(&mut body)?)?)
        }
        _ => {
            let input: abi::GetxattrIn = take(&mut body)?;
            (input.size, handler.listxattr(caller, node)?)
        }
    };
    match value {
        (0, bytes) => put(out, &abi::GetxattrOut { size: bytes.len() as u32, padding: 0 }),
        (room, bytes) if bytes.len() > room as usize => Err(Errno::ERANGE),
        (_, bytes) => {
            out.extend_from_slice(&bytes);
            Ok(Output::Small)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, dispatch, transfer};
    use crate::handler::{Caller, DirSink, Entry, FileAttr, FileHandle, Handler, NodeId, Opened, ReadRequest};
    use crate::{Errno, Reply, abi};
    use abd::Abd;
    use std::time::Duration;
    use zerocopy::IntoBytes;

    struct Nothing;

    /// Answers the ioctl 7 with what came along.
    struct Echo;

    impl Handler for Echo {
        fn lookup(&self, _: &Caller, _: NodeId, _: &[u8]) -> Reply<Entry> {
            Err(Errno::ENOENT)
        }
        fn getattr(&self, _: &Caller, _: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
            Err(Errno::ENOENT)
        }
        fn open(&self, _: &Caller, _: NodeId, _: u32) -> Reply<Opened> {
            Err(Errno::ENOENT)
        }
        fn read(&self, _: &Caller, _: &ReadRequest) -> Reply<Abd> {
            Err(Errno::ENOENT)
        }
        fn readdir(&self, _: &Caller, _: NodeId, _: FileHandle, _: u64, _: &mut dyn DirSink) -> Reply<()> {
            Err(Errno::ENOENT)
        }
        fn ioctl(&self, _: &Caller, _: NodeId, command: u32, argument: &[u8]) -> Reply<Vec<u8>> {
            if command == 7 { Ok(argument.to_vec()) } else { Err(Errno::ENOTTY) }
        }
    }

    impl Handler for Nothing {
        fn lookup(&self, _: &Caller, _: NodeId, _: &[u8]) -> Reply<Entry> {
            Err(Errno::ENOENT)
        }
        fn getattr(&self, _: &Caller, _: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
            Ok((FileAttr::default(), Duration::ZERO))
        }
        fn open(&self, _: &Caller, _: NodeId, _: u32) -> Reply<Opened> {
            Ok(Opened::default())
        }
        fn read(&self, _: &Caller, _: &ReadRequest) -> Reply<Abd> {
            Ok(Abd::default())
        }
        fn readdir(&self, _: &Caller, _: NodeId, _: FileHandle, _: u64, _: &mut dyn DirSink) -> Reply<()> {
            Ok(())
        }
    }

    /// An ioctl whose answer goes elsewhere than it asked, or is larger than what it has room for, would overwrite a program's memory.
    #[test]
    fn ioctls_get_their_answer_or_an_error() {
        let payload = Abd::zeroed(0);
        let ask = |cmd: u32, in_size: u32, out_size: u32, argument: &[u8]| {
            let input = abi::IoctlIn { cmd, in_size, out_size, ..abi::IoctlIn::default() };
            let body = [input.as_bytes(), argument].concat();
            let header = abi::InHeader { opcode: abi::op::IOCTL, nodeid: 1, ..abi::InHeader::default() };
            let mut out = Vec::new();
            dispatch(&Echo, &Request { header, payload: &payload, payload_bytes: 0, body: &body }, &mut out).map(|_| out)
        };
        assert_eq!(ask(7, 4, 4, b"abcd").unwrap()[size_of::<abi::IoctlOut>()..], *b"abcd");
        assert_eq!(ask(7, 4, 0, b"abcd").unwrap_err(), Errno::EINVAL);
        assert_eq!(ask(7, 5, 8, b"abcd").unwrap_err(), Errno::EINVAL);
        assert_eq!(ask(8, 0, 0, b"").unwrap_err(), Errno::ENOTTY);
    }

    /// A request that is cut short or garbled must be refused: a panic would take every mount of the process with it.
    #[test]
    fn garbled_requests_are_refused() {
        let payload = Abd::zeroed(4096);
        let mut seed = 1u64;
        for round in 0..20_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = (seed >> 40) as usize % 120;
            let body: Vec<u8> = (0..length).map(|index| (seed >> (index % 56)) as u8).collect();
            let header = abi::InHeader { opcode: round % 60, nodeid: seed, ..abi::InHeader::default() };
            let request = Request { header, payload: &payload, payload_bytes: length, body: &body };
            let mut out = Vec::new();
            let _ = dispatch(&Nothing, &request, &mut out);
            assert!(out.len() < 1 << 20);
            let _ = transfer(&request);
        }
        let short = Request {
            header: abi::InHeader { opcode: abi::op::WRITE, ..Default::default() },
            payload: &payload,
            payload_bytes: 0,
            body: &[0; 39],
        };
        assert_eq!(transfer(&short).map(|_| ()), Err(Errno::EINVAL));
    }
}
