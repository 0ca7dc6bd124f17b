//! From request bytes to a [`Handler`] call to reply bytes.
//!
//! Invariants: a malformed request gets EINVAL (never a panic); FORGET, BATCH_FORGET and INTERRUPT get no reply; read data is
//! passed on as an `Abd`, never copied; the payload of WRITE is a slice of the receive buffer. READ, WRITE and LSEEK only become
//! values here ([`transfer`]): they are handed on with an [`crate::Answer`].

use crate::abi::{self, op};
use crate::encode::{self, Listing, attr_out, entry_out, open_out};
use crate::handler::{
    Caller, CopyRequest, FallocateRequest, FileHandle, Handler, NewNode, NodeId, ReadRequest, RenameRequest, SeekRequest, SetAttr,
};
use crate::handler::{SetTime, SetXattr, Timestamp, WriteRequest};
use crate::{Errno, Reply};
use abd::Abd;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a WRITE request before its payload: they are received apart, so that the payload starts a page of its own.
pub(crate) const HEAD_BYTES: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// Output of a request.
#[derive(Debug)]
pub(crate) enum Output {
    /// No reply at all.
    Nothing,
    /// Bytes in the reply vector.
    Small,
}

/// Request that moves data and may be answered later.
pub(crate) enum Transfer {
    Read(ReadRequest),
    Write(WriteRequest),
    Seek(SeekRequest),
}

/// Request that was received.
pub(crate) struct Request<'a> {
    /// Header of the request.
    pub header: abi::InHeader,
    /// Buffer of the payload: what lies behind [`HEAD_BYTES`].
    pub payload: &'a Abd,
    /// Number of bytes received into the payload buffer.
    pub payload_bytes: usize,
    /// Bytes that follow the head; of a WRITE without the payload.
    pub body: &'a [u8],
}

/// Splits a fixed record off the front of `bytes`.
pub(crate) fn take<T: FromBytes>(bytes: &mut &[u8]) -> Reply<T> {
    let input: &[u8] = bytes;
    let head = input.get(..size_of::<T>()).ok_or(Errno::EINVAL)?;
    *bytes = &input[size_of::<T>()..];
    T::read_from_bytes(head).map_err(|_| Errno::EINVAL)
}

/// Splits a zero-terminated string off the front of `bytes`.
pub(crate) fn take_name<'a>(bytes: &mut &'a [u8]) -> Reply<&'a [u8]> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
    let (name, rest) = bytes.split_at(end);
    *bytes = &rest[1..];
    Ok(name)
}

fn done(result: Reply<()>) -> Reply<Output> {
    result.map(|()| Output::Small)
}

/// Request on its way to the handler.
struct Call<'a> {
    handler: &'a dyn Handler,
    caller: Caller,
    node: NodeId,
    /// Bytes behind the head that were not looked at yet.
    body: &'a [u8],
    /// Bytes of the reply after the head.
    out: &'a mut Vec<u8>,
}

impl<'a> Call<'a> {
    fn take<T: FromBytes>(&mut self) -> Reply<T> {
        take(&mut self.body)
    }
    fn name(&mut self) -> Reply<&'a [u8]> {
        take_name(&mut self.body)
    }
    fn put<T: IntoBytes + zerocopy::Immutable>(&mut self, record: &T) -> Reply<Output> {
        self.bytes(record.as_bytes())
    }
    fn bytes(&mut self, bytes: &[u8]) -> Reply<Output> {
        self.out.extend_from_slice(bytes);
        Ok(Output::Small)
    }
}

/// Function that serves requests of one opcode.
type Serve = fn(&mut Call<'_>) -> Reply<Output>;

/// Functions that serve opcodes; what is not here gets ENOSYS. READ, WRITE and LSEEK are [`transfer`]'s.
const TABLE: &[(u32, Serve)] = &[
    (op::LOOKUP, lookup),
    (op::FORGET, forget),
    (op::GETATTR, getattr),
    (op::SETATTR, setattr),
    (op::READLINK, readlink),
    (op::SYMLINK, symlink),
    (op::MKNOD, mknod),
    (op::MKDIR, mkdir),
    (op::UNLINK, unlink),
    (op::RMDIR, rmdir),
    (op::RENAME, rename),
    (op::LINK, link),
    (op::OPEN, open),
    (op::STATFS, statfs),
    (op::RELEASE, release),
    (op::FSYNC, fsync),
    (op::SETXATTR, setxattr),
    (op::GETXATTR, getxattr),
    (op::LISTXATTR, listxattr),
    (op::REMOVEXATTR, removexattr),
    (op::FLUSH, flush),
    (op::OPENDIR, opendir),
    (op::READDIR, readdir),
    (op::RELEASEDIR, releasedir),
    (op::FSYNCDIR, fsyncdir),
    (op::ACCESS, access),
    (op::CREATE, create),
    (op::INTERRUPT, no_reply),
    (op::IOCTL, ioctl),
    (op::POLL, poll),
    (op::NOTIFY_REPLY, no_reply),
    (op::BATCH_FORGET, batch_forget),
    (op::FALLOCATE, fallocate),
    (op::READDIRPLUS, readdirplus),
    (op::RENAME2, rename2),
    (op::COPY_FILE_RANGE, copy_file_range),
    (op::TMPFILE, tmpfile),
    (op::STATX, statx),
    (op::COPY_FILE_RANGE_64, copy_file_range_64),
];

/// Number of opcodes up to the largest of [`TABLE`], 0 included.
const OPCODES: usize = op::COPY_FILE_RANGE_64 as usize + 1;

/// Functions of [`TABLE`], by opcode.
static BY_OPCODE: [Option<Serve>; OPCODES] = {
    let mut by_opcode: [Option<Serve>; OPCODES] = [None; OPCODES];
    let mut row = 0;
    while row < TABLE.len() {
        by_opcode[TABLE[row].0 as usize] = Some(TABLE[row].1);
        row += 1;
    }
    by_opcode
};

/// Serves one request. The reply's bytes after the head are appended to `out` when [`Output::Small`] is returned.
pub(crate) fn dispatch(handler: &dyn Handler, request: &Request<'_>, out: &mut Vec<u8>) -> Reply<Output> {
    let header = &request.header;
    let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
    let serve = BY_OPCODE.get(header.opcode as usize).copied().flatten().ok_or(Errno::ENOSYS)?;
    serve(&mut Call { handler, caller, node: NodeId(header.nodeid), body: request.body, out })
}

// ---- names ----

fn lookup(call: &mut Call<'_>) -> Reply<Output> {
    let name = call.name()?;
    let entry = call.handler.lookup(&call.caller, call.node, name)?;
    call.put(&entry_out(&entry))
}

fn forget(call: &mut Call<'_>) -> Reply<Output> {
    if let Ok(input) = call.take::<abi::ForgetIn>() {
        call.handler.forget(call.node, input.nlookup);
    }
    Ok(Output::Nothing)
}

fn batch_forget(call: &mut Call<'_>) -> Reply<Output> {
    if let Ok(input) = call.take::<abi::BatchForgetIn>() {
        for _ in 0..input.count {
            let Ok(one) = call.take::<abi::ForgetOne>() else { break };
            call.handler.forget(NodeId(one.nodeid), one.nlookup);
        }
    }
    Ok(Output::Nothing)
}

fn readlink(call: &mut Call<'_>) -> Reply<Output> {
    let target = call.handler.readlink(&call.caller, call.node)?;
    call.bytes(&target)
}

fn unlink(call: &mut Call<'_>) -> Reply<Output> {
    let name = call.name()?;
    done(call.handler.unlink(&call.caller, call.node, name))
}

fn rmdir(call: &mut Call<'_>) -> Reply<Output> {
    let name = call.name()?;
    done(call.handler.rmdir(&call.caller, call.node, name))
}

fn rename(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::RenameIn = call.take()?;
    rename_to(call, input.newdir, 0)
}

fn rename2(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::Rename2In = call.take()?;
    rename_to(call, input.newdir, input.flags)
}

fn rename_to(call: &mut Call<'_>, new_parent: u64, flags: u32) -> Reply<Output> {
    let (name, new_name) = (call.name()?, call.name()?);
    done(call.handler.rename(&call.caller, &RenameRequest { parent: call.node, name, new_parent: NodeId(new_parent), new_name, flags }))
}

// ---- making ----

fn mknod(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::MknodIn = call.take()?;
    let name = call.name()?;
    let entry = call.handler.mknod(&call.caller, call.node, name, &NewNode { mode: input.mode, umask: input.umask, rdev: input.rdev })?;
    call.put(&entry_out(&entry))
}

fn mkdir(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::MkdirIn = call.take()?;
    let name = call.name()?;
    let new = NewNode { mode: libc::S_IFDIR | input.mode, umask: input.umask, rdev: 0 };
    let entry = call.handler.mkdir(&call.caller, call.node, name, &new)?;
    call.put(&entry_out(&entry))
}

fn symlink(call: &mut Call<'_>) -> Reply<Output> {
    let (name, target) = (call.name()?, call.name()?);
    let entry = call.handler.symlink(&call.caller, call.node, name, target)?;
    call.put(&entry_out(&entry))
}

fn link(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::LinkIn = call.take()?;
    let name = call.name()?;
    let entry = call.handler.link(&call.caller, NodeId(input.oldnodeid), call.node, name)?;
    call.put(&entry_out(&entry))
}

fn create(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::CreateIn = call.take()?;
    let name = call.name()?;
    let (entry, opened) = call.handler.create(&call.caller, call.node, name, &new_file(&input), input.flags)?;
    call.put(&entry_out(&entry))?;
    call.put(&open_out(&opened))
}

fn tmpfile(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::CreateIn = call.take()?;
    let (entry, opened) = call.handler.tmpfile(&call.caller, call.node, &new_file(&input), input.flags)?;
    call.put(&entry_out(&entry))?;
    call.put(&open_out(&opened))
}

fn new_file(input: &abi::CreateIn) -> NewNode {
    NewNode { mode: libc::S_IFREG | (input.mode & !libc::S_IFMT), umask: input.umask, rdev: 0 }
}

// ---- attributes ----

/// Handle of the descriptor that attributes are asked for by, if one is named.
fn handle_of(flags: u32, fh: u64) -> Option<FileHandle> {
    (flags & abi::GETATTR_FH != 0).then_some(FileHandle(fh))
}

fn getattr(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::GetattrIn = call.take()?;
    let (attr, ttl) = call.handler.getattr(&call.caller, call.node, handle_of(input.getattr_flags, input.fh))?;
    call.put(&attr_out(&attr, ttl))
}

fn statx(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::StatxIn = call.take()?;
    let (attr, ttl) = call.handler.getattr(&call.caller, call.node, handle_of(input.getattr_flags, input.fh))?;
    call.put(&encode::statx_out(&attr, ttl))
}

fn setattr(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::SetattrIn = call.take()?;
    let (attr, ttl) = call.handler.setattr(&call.caller, call.node, &set_attr(&input))?;
    call.put(&attr_out(&attr, ttl))
}

fn statfs(call: &mut Call<'_>) -> Reply<Output> {
    let stats = call.handler.statfs(&call.caller, call.node)?;
    call.put(&encode::statfs_out(&stats))
}

fn access(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::AccessIn = call.take()?;
    done(call.handler.access(&call.caller, call.node, input.mask))
}

fn poll(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::PollIn = call.take()?;
    // Regular files are always ready for what was asked.
    let ready = (libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM) as u32;
    call.put(&abi::PollOut { revents: input.events & ready, padding: 0 })
}

fn ioctl(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::IoctlIn = call.take()?;
    let argument = call.body.get(..input.in_size as usize).ok_or(Errno::EINVAL)?;
    let result = call.handler.ioctl(&call.caller, call.node, input.cmd, argument)?;
    if result.len() > input.out_size as usize {
        return Err(Errno::EINVAL);
    }
    call.put(&abi::IoctlOut::default())?;
    call.bytes(&result)
}

/// Answers with no reply. An interrupted request still completes; the kernel accepts its reply. Notify replies answer nothing we sent.
fn no_reply(_: &mut Call<'_>) -> Reply<Output> {
    Ok(Output::Nothing)
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

// ---- files ----

fn open(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::OpenIn = call.take()?;
    let opened = call.handler.open(&call.caller, call.node, input.flags)?;
    call.put(&open_out(&opened))
}

fn release(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::ReleaseIn = call.take()?;
    call.handler.release(call.node, FileHandle(input.fh), input.flags);
    Ok(Output::Small)
}

fn flush(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::FlushIn = call.take()?;
    done(call.handler.flush(&call.caller, call.node, FileHandle(input.fh)))
}

fn fsync(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::FsyncIn = call.take()?;
    done(call.handler.fsync(&call.caller, call.node, FileHandle(input.fh), input.fsync_flags & abi::FSYNC_FDATASYNC != 0))
}

fn fallocate(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::FallocateIn = call.take()?;
    let handle = FileHandle(input.fh);
    let wanted = FallocateRequest { node: call.node, handle, offset: input.offset, length: input.length, mode: input.mode };
    done(call.handler.fallocate(&call.caller, &wanted))
}

fn copied(call: &mut Call<'_>, most: u64) -> Reply<u64> {
    let input: abi::CopyIn = call.take()?;
    let request = CopyRequest {
        from: call.node,
        from_offset: input.off_in,
        to: NodeId(input.nodeid_out),
        to_offset: input.off_out,
        length: input.length.min(most),
        flags: input.flags,
    };
    call.handler.copy(&call.caller, &request)
}

/// Older request, whose reply has no room for more.
fn copy_file_range(call: &mut Call<'_>) -> Reply<Output> {
    let size = copied(call, i32::MAX as u64)? as u32;
    call.put(&abi::WriteOut { size, padding: 0 })
}

fn copy_file_range_64(call: &mut Call<'_>) -> Reply<Output> {
    let bytes_copied = copied(call, u64::MAX)?;
    call.put(&abi::CopyOut { bytes_copied })
}

// ---- directories ----

fn opendir(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::OpenIn = call.take()?;
    let opened = call.handler.opendir(&call.caller, call.node, input.flags)?;
    call.put(&open_out(&opened))
}

fn releasedir(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::ReleaseIn = call.take()?;
    call.handler.releasedir(call.node, FileHandle(input.fh));
    Ok(Output::Small)
}

fn fsyncdir(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::FsyncIn = call.take()?;
    done(call.handler.fsyncdir(&call.caller, call.node, FileHandle(input.fh), input.fsync_flags & abi::FSYNC_FDATASYNC != 0))
}

fn readdir(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::ReadIn = call.take()?;
    let mut listing = Listing::new(call.out, input.size as usize, false);
    done(call.handler.readdir(&call.caller, call.node, FileHandle(input.fh), input.offset, &mut listing))
}

fn readdirplus(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::ReadIn = call.take()?;
    let mut listing = Listing::new(call.out, input.size as usize, true);
    done(call.handler.readdirplus(&call.caller, call.node, FileHandle(input.fh), input.offset, &mut listing))
}

// ---- extended attributes ----

fn setxattr(call: &mut Call<'_>) -> Reply<Output> {
    let set = set_xattr(&mut call.body)?;
    done(call.handler.setxattr(&call.caller, call.node, &set))
}

/// Parses SETXATTR.
pub(crate) fn set_xattr<'a>(body: &mut &'a [u8]) -> Reply<SetXattr<'a>> {
    let input: abi::SetxattrIn = take(body)?;
    let more: abi::SetxattrExt = take(body)?;
    let name = take_name(body)?;
    let value = body.get(..input.size as usize).ok_or(Errno::EINVAL)?;
    Ok(SetXattr { name, value, flags: input.flags, kill_sgid: more.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0 })
}

fn removexattr(call: &mut Call<'_>) -> Reply<Output> {
    let name = call.name()?;
    done(call.handler.removexattr(&call.caller, call.node, name))
}

fn getxattr(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::GetxattrIn = call.take()?;
    let name = call.name()?;
    let value = call.handler.getxattr(&call.caller, call.node, name)?;
    value_out(call, input.size, &value)
}

fn listxattr(call: &mut Call<'_>) -> Reply<Output> {
    let input: abi::GetxattrIn = call.take()?;
    let names = call.handler.listxattr(&call.caller, call.node)?;
    value_out(call, input.size, &names)
}

/// Writes a value as far as there is room for it; without any its size.
fn value_out(call: &mut Call<'_>, room: u32, value: &[u8]) -> Reply<Output> {
    match room {
        0 => call.put(&abi::GetxattrOut { size: value.len() as u32, padding: 0 }),
        room if value.len() > room as usize => Err(Errno::ERANGE),
        _ => call.bytes(value),
    }
}

// ---- data ----

/// Parses READ, WRITE or LSEEK.
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

#[cfg(test)]
mod tests {
    use super::{Request, dispatch, transfer};
    use crate::handler::{Caller, DirSink, Entry, FileAttr, FileHandle, Handler, NewNode, NodeId, Opened, ReadRequest, SetXattr};
    use crate::{Errno, Reply, abi};
    use abd::Abd;
    use std::time::Duration;
    use zerocopy::IntoBytes;

    struct Nothing;

    /// Handler that answers the ioctl 7 with what came along, and other requests with errors that say what they came with.
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
        fn setxattr(&self, _: &Caller, _: NodeId, set: &SetXattr<'_>) -> Reply<()> {
            assert_eq!((set.name, set.value, set.flags), (&b"user.a"[..], &b"abc"[..], 2));
            Err(if set.kill_sgid { Errno::EACCES } else { Errno::EPERM })
        }
        fn mkdir(&self, _: &Caller, _: NodeId, _: &[u8], new: &NewNode) -> Reply<Entry> {
            Err(Errno(new.umask as i32))
        }
        fn mknod(&self, _: &Caller, _: NodeId, _: &[u8], new: &NewNode) -> Reply<Entry> {
            Err(Errno(new.umask as i32))
        }
        fn create(&self, _: &Caller, _: NodeId, _: &[u8], new: &NewNode, _: u32) -> Reply<(Entry, Opened)> {
            Err(Errno(new.umask as i32))
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

    /// If this fails, setgid stays where it must go with a list, and new files are open to whom the umask of their maker shuts out.
    #[test]
    fn lists_and_new_nodes_come_with_what_belongs_to_them() {
        let payload = Abd::zeroed(0);
        let ask = |opcode: u32, parts: &[&[u8]]| {
            let header = abi::InHeader { opcode, nodeid: 1, ..abi::InHeader::default() };
            let request = Request { header, payload: &payload, payload_bytes: 0, body: &parts.concat() };
            dispatch(&Echo, &request, &mut Vec::new()).map(drop)
        };
        for setxattr_flags in [0, abi::SETXATTR_ACL_KILL_SGID] {
            let (head, tail) = (abi::SetxattrIn { size: 3, flags: 2 }, abi::SetxattrExt { setxattr_flags, padding: 0 });
            let wanted = if setxattr_flags == 0 { Errno::EPERM } else { Errno::EACCES };
            assert_eq!(ask(abi::op::SETXATTR, &[head.as_bytes(), tail.as_bytes(), b"user.a\0abc"]), Err(wanted));
            assert_eq!(ask(abi::op::SETXATTR, &[head.as_bytes(), tail.as_bytes(), b"user.a\0ab"]), Err(Errno::EINVAL), "cut short");
        }
        let mkdir = abi::MkdirIn { mode: 0o777, umask: 0o27 };
        assert_eq!(ask(abi::op::MKDIR, &[mkdir.as_bytes(), b"a\0"]), Err(Errno(0o27)));
        let mknod = abi::MknodIn { mode: 0o100_666, rdev: 0, umask: 0o26, padding: 0 };
        assert_eq!(ask(abi::op::MKNOD, &[mknod.as_bytes(), b"a\0"]), Err(Errno(0o26)));
        let create = abi::CreateIn { flags: 0, mode: 0o666, umask: 0o25, open_flags: 0 };
        assert_eq!(ask(abi::op::CREATE, &[create.as_bytes(), b"a\0"]), Err(Errno(0o25)));
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
