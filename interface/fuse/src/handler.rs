//! The port: [`Handler`] has one method per request; requests and replies are typed, errors are [`Errno`].
//!
//! Methods run on the thread that read the request and may wait. Defaults answer ENOSYS, which makes the kernel stop asking.
//! Reads, writes and seeks come through [`Handler::read_then`], [`Handler::write_then`] and [`Handler::lseek_then`], which may
//! answer later from any thread.

use crate::lane::Lane;
use crate::lasting::Lasting;
pub use crate::node::NodeId;
use crate::{Answer, Errno, Notifier};
use abd::Abd;
use std::sync::Arc;
use std::time::Duration;

/// Caller who makes a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// Effective (file system) user id.
    pub uid: u32,
    /// Effective (file system) group id.
    pub gid: u32,
    /// Process id, 0 when the kernel asks for itself.
    pub pid: u32,
}

impl Caller {
    /// True when the caller may administer the machine (the kernel's `capable(CAP_SYS_ADMIN)`): being root is not enough in a container, nor is having
    /// the capability in a user namespace of its own. Of processes that cannot be looked at only the user counts. Reads files of `/proc`.
    pub fn is_administrator(&self) -> bool {
        let files = match self.pid {
            0 => None,
            pid => std::fs::read_to_string(format!("/proc/{pid}/status")).ok().zip(std::fs::read_link(format!("/proc/{pid}/ns/user")).ok()),
        };
        match files.zip(std::fs::read_link("/proc/self/ns/user").ok()) {
            Some(((status, namespace), own)) => namespace == own && has_sys_admin(&status),
            None => self.uid == 0,
        }
    }
}

/// True when a process's status file has CAP_SYS_ADMIN among its effective capabilities.
fn has_sys_admin(status: &str) -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    capabilities.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// File handle chosen by the handler at open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FileHandle(pub u64);

/// Time in seconds and nanoseconds since the epoch; seconds may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds: 0..1_000_000_000.
    pub nanoseconds: u32,
}

/// Attributes that stat(2) shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileAttr {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Number of allocated units of 512 bytes.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last data change.
    pub mtime: Timestamp,
    /// Time of the last attribute change.
    pub ctime: Timestamp,
    /// Time of birth (STATX only).
    pub btime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit encoding (`new_encode_dev`).
    pub rdev: u32,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
}

/// Named node: reply to lookup and to everything that creates.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Node number; 0 in a negative entry.
    pub node: NodeId,
    /// Generation, which distinguishes uses of the same number over time (NFS handles).
    pub generation: u64,
    /// Attributes of the node.
    pub attr: FileAttr,
    /// Time that the kernel may keep the attributes.
    pub attr_ttl: Duration,
    /// Time that the kernel may keep the name.
    pub entry_ttl: Duration,
}

/// New value of a time in setattr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Time by the server's clock.
    Now,
    /// Time that is given.
    At(Timestamp),
}

/// Changes that setattr makes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (the type bits are ignored).
    pub mode: Option<u32>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (write-back caches only).
    pub ctime: Option<Timestamp>,
    /// Handle through which the change was asked for.
    pub handle: Option<FileHandle>,
    /// True to clear setuid (and setgid of a group-executable file).
    pub kill_suid: bool,
}

/// Answer to open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened {
    /// Handle that later requests carry.
    pub handle: FileHandle,
    /// True to bypass the page cache.
    pub direct_io: bool,
    /// True to have writes that bypass it one after the other, as those that do not.
    pub in_turn: bool,
    /// True to keep cached pages of earlier opens.
    pub keep_cache: bool,
    /// True to cache directory entries.
    pub cache_dir: bool,
}

/// Read of a range of a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// Node to read.
    pub node: NodeId,
    /// Handle of the open file.
    pub handle: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes wanted.
    pub size: u32,
    /// Flags of the open file, as of open(2).
    pub open_flags: u32,
    /// True when the bytes go into a program's memory; otherwise what is read stays in the kernel's cache.
    pub past_cache: bool,
}

/// Write to a file.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Node to write.
    pub node: NodeId,
    /// Handle of the open file.
    pub handle: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes to write, page-aligned, owned: may be kept without a copy.
    pub data: Abd,
    /// Bytes of memory that keeping `data` pins (the whole receive buffer): copy instead when `data` is a small part of it.
    pub pinned_bytes: usize,
    /// Flags of the open file, as of open(2).
    pub open_flags: u32,
    /// True to clear setuid and setgid.
    pub kill_suid: bool,
    /// True when the bytes are from the page cache (mmap write-back): the caller is not the writer.
    pub from_cache: bool,
    /// True when the bytes are from a program's memory, and the kernel's cache is as it was. Otherwise the pages are locked until this is answered.
    pub past_cache: bool,
}

/// Names of a rename.
#[derive(Clone, Copy, Debug)]
pub struct RenameRequest<'a> {
    /// Node of the old directory.
    pub parent: NodeId,
    /// Old name.
    pub name: &'a [u8],
    /// Node of the new directory.
    pub new_parent: NodeId,
    /// New name.
    pub new_name: &'a [u8],
    /// Flags: RENAME_NOREPLACE (1), RENAME_EXCHANGE (2), RENAME_WHITEOUT (4).
    pub flags: u32,
}

/// Kind of a new node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewNode {
    /// Type and permissions; the umask is applied unless the mount has [`crate::MountOptions::posix_acl`].
    pub mode: u32,
    /// Umask of the caller.
    pub umask: u32,
    /// Device number for device nodes.
    pub rdev: u32,
}

/// Extended attribute to be set.
#[derive(Clone, Copy, Debug)]
pub struct SetXattr<'a> {
    /// Name with its namespace.
    pub name: &'a [u8],
    /// Bytes of the value.
    pub value: &'a [u8],
    /// Flags: XATTR_CREATE (1), XATTR_REPLACE (2).
    pub flags: u32,
    /// True to clear setgid too: the attribute is an access control list, and whoever sets it is not of the file's group.
    pub kill_sgid: bool,
}

/// Request of fallocate(2).
#[derive(Clone, Copy, Debug)]
pub struct FallocateRequest {
    /// Node of the file.
    pub node: NodeId,
    /// Handle of the open file.
    pub handle: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Bits FALLOC_FL_*.
    pub mode: u32,
}

/// Request of copy_file_range(2), between files of one mount.
#[derive(Clone, Copy, Debug)]
pub struct CopyRequest {
    /// Node that is copied from.
    pub from: NodeId,
    /// Offset of the first byte there.
    pub from_offset: u64,
    /// Node that is copied to.
    pub to: NodeId,
    /// Offset of the first byte there.
    pub to_offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Flags of the call; none are known.
    pub flags: u64,
}

/// Request of SEEK_HOLE or SEEK_DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekRequest {
    /// Node of the file.
    pub node: NodeId,
    /// Handle of the open file.
    pub handle: FileHandle,
    /// Offset in bytes at which the search starts.
    pub offset: u64,
    /// True for SEEK_HOLE, false for SEEK_DATA.
    pub hole: bool,
}

/// Answer to statfs, in units of `frsize`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statfs {
    /// Number of units in total.
    pub blocks: u64,
    /// Number of free units.
    pub bfree: u64,
    /// Number of units free for users.
    pub bavail: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub ffree: u64,
    /// Preferred I/O size in bytes.
    pub bsize: u32,
    /// Unit in bytes.
    pub frsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
}

/// Name in a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: u64,
    /// Cookie from which the listing continues after this name.
    pub next: u64,
    /// Type of the node: DT_*.
    pub kind: u32,
    /// Bytes of the name.
    pub name: &'a [u8],
}

/// Receiver of a listing; both `add` return false when the entry did not fit (and was not taken).
pub trait DirSink {
    /// Adds a plain entry.
    fn add(&mut self, entry: DirEntry<'_>) -> bool;
    /// True when this entry would fit; ask before a lookup is counted for `add_plus`.
    fn fits(&self, name: &[u8]) -> bool;
    /// Adds an entry with its attributes; counts as a lookup unless the node is 0.
    fn add_plus(&mut self, entry: DirEntry<'_>, found: &Entry) -> bool;
}

/// Result of a request.
pub type Reply<T> = Result<T, Errno>;

/// File system behind the protocol.
#[expect(unused_variables, reason = "the defaults answer ENOSYS and keep the parameter names as documentation")]
pub trait Handler: Send + Sync + 'static {
    /// Begins the mount: `notifier` tells the kernel what it must forget.
    fn attached(&self, notifier: Notifier) {}
    /// Ends the mount: no request follows.
    fn destroy(&self) {}
    /// Side of it that makes its mounts outlive this server; None when they go with it. The same from the first call on.
    fn lasting(&self) -> Option<Arc<dyn Lasting>> {
        None
    }
    /// Lane of a request about a node, or of a lookup of `name` in it (else empty), where what is below one mount waits for different things. Asked
    /// before every request, and may not wait; of no use to mounts that outlive this server.
    fn lane(&self, node: NodeId, name: &[u8]) -> Option<Arc<Lane>> {
        None
    }
    /// Gives the kernel one more reference to a node that it, or another server, made; ESTALE when there is none.
    fn refer(&self, caller: &Caller, node: NodeId) -> Reply<Entry> {
        Err(Errno(libc::ESTALE))
    }
    /// Finds `name`; ENOENT, or an entry with node 0 that the kernel may remember.
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry>;
    /// Drops `count` references that lookups gave the kernel.
    fn forget(&self, node: NodeId, count: u64) {}
    /// Attributes of a node, and the time that they hold.
    fn getattr(&self, caller: &Caller, node: NodeId, handle: Option<FileHandle>) -> Reply<(FileAttr, Duration)>;
    /// Changes attributes.
    fn setattr(&self, caller: &Caller, node: NodeId, set: &SetAttr) -> Reply<(FileAttr, Duration)> {
        Err(Errno::ENOSYS)
    }
    /// Target of a symbolic link.
    fn readlink(&self, caller: &Caller, node: NodeId) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }
    /// Makes a symbolic link.
    fn symlink(&self, caller: &Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Reply<Entry> {
        Err(Errno::EPERM)
    }
    /// Makes a file, fifo, socket or device node.
    fn mknod(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }
    /// Makes a directory.
    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }
    /// Removes a name that is not a directory.
    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Removes an empty directory.
    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Moves a name.
    fn rename(&self, caller: &Caller, request: &RenameRequest<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Gives `node` another name.
    fn link(&self, caller: &Caller, node: NodeId, new_parent: NodeId, new_name: &[u8]) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }
    /// Opens a file. O_TRUNC is not among the flags: the kernel truncates after it.
    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> Reply<Opened>;
    /// Makes and opens a file.
    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode, flags: u32) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }
    /// Makes and opens a file without a name.
    fn tmpfile(&self, caller: &Caller, parent: NodeId, new: &NewNode, flags: u32) -> Reply<(Entry, Opened)> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Reads; the reply may be short only at the end of the file.
    fn read(&self, caller: &Caller, request: &ReadRequest) -> Reply<Abd>;
    /// Writes; returns the bytes taken.
    fn write(&self, caller: &Caller, request: WriteRequest) -> Reply<u32> {
        Err(Errno::ENOSYS)
    }
    /// Does [`Handler::read`], answered now or later from any thread.
    fn read_then(&self, caller: &Caller, request: &ReadRequest, answer: Answer<Abd>) {
        answer.send(self.read(caller, request));
    }
    /// Does [`Handler::write`], answered now or later from any thread.
    fn write_then(&self, caller: &Caller, request: WriteRequest, answer: Answer<u32>) {
        answer.send(self.write(caller, request));
    }
    /// Does [`Handler::lseek`], answered now or later from any thread.
    fn lseek_then(&self, caller: &Caller, request: &SeekRequest, answer: Answer<u64>) {
        answer.send(self.lseek(caller, request));
    }
    /// Notes that a descriptor is closed (there may be others).
    fn flush(&self, caller: &Caller, node: NodeId, handle: FileHandle) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Notes that the last descriptor of the open file is gone.
    fn release(&self, node: NodeId, handle: FileHandle, flags: u32) {}
    /// Makes the file durable.
    fn fsync(&self, caller: &Caller, node: NodeId, handle: FileHandle, data_only: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Opens a directory.
    fn opendir(&self, caller: &Caller, node: NodeId, flags: u32) -> Reply<Opened> {
        Ok(Opened::default())
    }
    /// Lists names from cookie `offset` (0 = start).
    fn readdir(&self, caller: &Caller, node: NodeId, handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()>;
    /// Lists names with attributes.
    fn readdirplus(&self, caller: &Caller, node: NodeId, handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Notes that the directory is closed.
    fn releasedir(&self, node: NodeId, handle: FileHandle) {}
    /// Makes the directory durable.
    fn fsyncdir(&self, caller: &Caller, node: NodeId, handle: FileHandle, data_only: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Space of the file system.
    fn statfs(&self, caller: &Caller, node: NodeId) -> Reply<Statfs> {
        Ok(Statfs { bsize: 4096, frsize: 4096, namelen: 255, ..Statfs::default() })
    }
    /// Sets an extended attribute.
    fn setxattr(&self, caller: &Caller, node: NodeId, set: &SetXattr<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Value of an extended attribute; ENODATA when there is none.
    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }
    /// Names of the extended attributes, each ended by a zero byte.
    fn listxattr(&self, caller: &Caller, node: NodeId) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }
    /// Removes an extended attribute.
    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Answers access(2); not asked when the kernel checks permissions.
    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
    /// Answers ioctl(2) by its number, with the bytes that its number says come along; returns those that go back, which may be fewer
    /// than the number says.
    fn ioctl(&self, caller: &Caller, node: NodeId, command: u32, argument: &[u8]) -> Reply<Vec<u8>> {
        Err(Errno::ENOTTY)
    }
    /// Allocates, punches or zeroes a range.
    fn fallocate(&self, caller: &Caller, request: &FallocateRequest) -> Reply<()> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Copies a range between files, or a part of it from its start; returns the bytes copied, 0 at the end of the source. With EOPNOTSUPP the kernel
    /// copies by reading and writing, with ENOSYS from then on without asking; other errors are the program's.
    fn copy(&self, caller: &Caller, request: &CopyRequest) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }
    /// Answers SEEK_HOLE and SEEK_DATA: the offset in bytes.
    fn lseek(&self, caller: &Caller, request: &SeekRequest) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }
    /// Makes the whole file system durable; called on a thread that answers no requests.
    fn syncfs(&self, caller: &Caller) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, root without its rights passes for an administrator, or an administrator does not.
    #[test]
    fn who_administers_has_the_capability() {
        for (status, wanted) in [
            ("Name:\tx\nCapEff:\t000001ffffffffff\n", true),
            ("CapEff:\t0000000000200000\n", true),
            ("CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n", false),
            ("CapEff:\tx\n", false),
            ("", false),
        ] {
            assert_eq!(has_sys_admin(status), wanted, "{status}");
        }
        assert!(Caller { uid: 0, ..Caller::default() }.is_administrator());
        assert!(!Caller { uid: 7, ..Caller::default() }.is_administrator());
    }
}
