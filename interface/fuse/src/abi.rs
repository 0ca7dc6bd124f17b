//! The kernel's wire records of FUSE 7.45, byte for byte, native endian (linux `include/uapi/linux/fuse.h` is the source of the layouts).
//!
//! Invariants: every struct has the size the kernel uses (checked at compile time at the end); nothing here allocates or decides.
#![expect(missing_docs, reason = "field names are the kernel's; its header documents them")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol that we speak.
pub const KERNEL_MAJOR: u32 = 7;
/// Minor version, the highest whose records we know.
pub const KERNEL_MINOR: u32 = 45;

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident : $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

wire!(/// Head of every request.
InHeader, 40 { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 });
wire!(/// Head of every reply.
OutHeader, 16 { len: u32, error: i32, unique: u64 });
wire!(/// Attributes of a node.
Attr, 88 { ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
    mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32 });
wire!(/// Reply to everything that names a node.
EntryOut, 128 { nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr });
wire!(/// Reply to GETATTR and SETATTR.
AttrOut, 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr });
wire!(/// FORGET.
ForgetIn, 8 { nlookup: u64 });
wire!(/// BATCH_FORGET head.
BatchForgetIn, 8 { count: u32, dummy: u32 });
wire!(/// One of BATCH_FORGET.
ForgetOne, 16 { nodeid: u64, nlookup: u64 });
wire!(/// GETATTR.
GetattrIn, 16 { getattr_flags: u32, dummy: u32, fh: u64 });
wire!(/// MKNOD.
MknodIn, 16 { mode: u32, rdev: u32, umask: u32, padding: u32 });
wire!(/// MKDIR.
MkdirIn, 8 { mode: u32, umask: u32 });
wire!(/// RENAME.
RenameIn, 8 { newdir: u64 });
wire!(/// RENAME2.
Rename2In, 16 { newdir: u64, flags: u32, padding: u32 });
wire!(/// LINK.
LinkIn, 8 { oldnodeid: u64 });
wire!(/// SETATTR.
SetattrIn, 88 { valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
    mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32 });
wire!(/// OPEN and OPENDIR.
OpenIn, 8 { flags: u32, open_flags: u32 });
wire!(/// CREATE and TMPFILE.
CreateIn, 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 });
wire!(/// Reply to OPEN, OPENDIR, and tail of the reply to CREATE.
OpenOut, 16 { fh: u64, open_flags: u32, backing_id: i32 });
wire!(/// RELEASE and RELEASEDIR.
ReleaseIn, 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 });
wire!(/// FLUSH.
FlushIn, 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 });
wire!(/// READ, READDIR, READDIRPLUS.
ReadIn, 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 });
wire!(/// WRITE, followed by the payload.
WriteIn, 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 });
wire!(/// Reply to WRITE and COPY_FILE_RANGE.
WriteOut, 8 { size: u32, padding: u32 });
wire!(/// Reply to STATFS.
StatfsOut, 80 { blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6] });
wire!(/// FSYNC and FSYNCDIR.
FsyncIn, 16 { fh: u64, fsync_flags: u32, padding: u32 });
wire!(/// SETXATTR without the SETXATTR_EXT tail.
SetxattrIn, 8 { size: u32, flags: u32 });
wire!(/// Tail of SETXATTR when SETXATTR_EXT was negotiated.
SetxattrExt, 8 { setxattr_flags: u32, padding: u32 });
wire!(/// GETXATTR and LISTXATTR.
GetxattrIn, 8 { size: u32, padding: u32 });
wire!(/// Size-only reply to GETXATTR and LISTXATTR.
GetxattrOut, 8 { size: u32, padding: u32 });
wire!(/// ACCESS.
AccessIn, 8 { mask: u32, padding: u32 });
wire!(/// INIT.
InitIn, 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] });
wire!(/// Reply to INIT.
InitOut, 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16, max_write: u32,
    time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11] });
wire!(/// FALLOCATE.
FallocateIn, 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 });
wire!(/// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
CopyIn, 56 { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, length: u64, flags: u64 });
wire!(/// Reply to COPY_FILE_RANGE_64.
CopyOut, 8 { bytes_copied: u64 });
wire!(/// LSEEK.
LseekIn, 24 { fh: u64, offset: u64, whence: u32, padding: u32 });
wire!(/// Reply to LSEEK.
LseekOut, 8 { offset: u64 });
wire!(/// One directory entry; the name follows, padded to 8 bytes.
Dirent, 24 { ino: u64, off: u64, namelen: u32, kind: u32 });
wire!(/// A time of STATX.
SxTime, 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 });
wire!(/// STATX.
StatxIn, 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 });
wire!(/// The attributes of STATX.
Statx, 256 { mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64, size: u64,
    blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
    dev_major: u32, dev_minor: u32, spare2: [u64; 14] });
wire!(/// Reply to STATX.
StatxOut, 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx });
wire!(/// IOCTL, followed by its input.
IoctlIn, 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 });
wire!(/// Reply to IOCTL, followed by its output.
IoctlOut, 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 });
wire!(/// POLL.
PollIn, 24 { fh: u64, kh: u64, flags: u32, events: u32 });
wire!(/// Reply to POLL.
PollOut, 8 { revents: u32, padding: u32 });

wire!(/// A notice that attributes and pages of a node are not what they were.
NotifyInvalInodeOut, 24 { ino: u64, off: i64, len: i64 });

/// Header of a request that comes through io_uring, and of its reply. The bytes of names and data lie apart.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UringHeader {
    /// Head of the request, or of the reply.
    pub in_out: [u8; 128],
    /// Records of the request's kind.
    pub op_in: [u8; 128],
    pub flags: u64,
    /// Number that the reply names.
    pub commit_id: u64,
    /// Bytes of the rest, of the request or of the reply.
    pub payload_bytes: u32,
    pub padding: u32,
    pub reserved: u64,
}
const _: () = assert!(size_of::<UringHeader>() == 288);
wire!(/// Command in the second half of a submission to io_uring.
UringCommand, 24 { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6] });

/// Command to io_uring: here is a seat; a request shall be put into it.
pub const URING_REGISTER: u32 = 1;
/// Command to io_uring: a seat has a reply; the next request shall be put into it.
pub const URING_COMMIT_AND_FETCH: u32 = 2;

/// Code in `OutHeader::error` of a notice: pages and attributes of a node.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// Code in `OutHeader::error` of a notice: requests that were read and not answered shall be sent again (Linux 6.9).
pub const NOTIFY_RESEND: i32 = 7;
/// Bit of `InHeader::unique` of a request that is sent again; its answer has it too.
pub const RESENT: u64 = 1 << 63;

/// Request numbers.
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Bits of INIT for capabilities (`flags` is the low half, `flags2` the high half).
pub mod cap {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of `SetattrIn::valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bit of `GetattrIn::getattr_flags`: `fh` is valid.
pub const GETATTR_FH: u32 = 1;
/// Bit of `ReadIn::read_flags`: `lock_owner` is valid. The kernel says so of reads into a program's memory, not of those for its cache.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// Bit of `WriteIn::write_flags`: from the page cache, not from a write(2) in progress.
pub const WRITE_CACHE: u32 = 1;
/// Bit of `WriteIn::write_flags`: `lock_owner` is valid. The kernel says so of writes from a program's memory, not of those from its
/// cache, whose pages are locked meanwhile.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// Bit of `WriteIn::write_flags`: clear setuid and setgid.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Bit of `SetxattrExt::setxattr_flags`: clear setgid, with an access control list that is set by somebody who is not of the file's group.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// Bit of `FsyncIn::fsync_flags`: data only.
pub const FSYNC_FDATASYNC: u32 = 1;
