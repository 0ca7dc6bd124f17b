//! Volumes as files, which losetup(8), QEMU, dd(1) and fio(1) can use: as large as the volume, read and written in place.
//!
//! The kernel keeps no bytes of them: every read and write comes here, so that all who use a volume see the same, whatever its size becomes.
//! O_DIRECT asks for direct I/O as with files of a file system, O_SYNC and O_DSYNC for durable writes, fsync(2) for a commit of the log. Node numbers
//! are given to paths when they are first seen and never change; a path whose volume is gone answers ENOENT. Each pool has a lane of its own: what
//! waits for one that is suspended holds up the volumes of no other.

use super::lanes::Lanes;
use super::shelf::Loan;
use super::there::{self, Found};
use crate::pool::{OpenPool, Pools};
use abd::Abd;
use dsl::DatasetHandle;
use exec::{Exec, Mutex};
use fuse::{
    Answer, Caller, DirEntry, DirSink, Entry, Errno, FallocateRequest, FileAttr, FileHandle, Handler, Lane, NewNode, NodeId, Opened,
    PathNodes, ReadRequest, Reply, SeekRequest, SetAttr, Timestamp, WriteRequest,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use zpl::direct::Tunables;
use zvol::{Access, Volume, VolumeError};

const DIRECTORY: u32 = 0o040_555;
const READ_ONLY: u32 = 0o100_400;
const READ_WRITE: u32 = 0o100_600;
/// Time that the kernel may remember something: none, as volumes come, go and change their size.
const TTL: Duration = Duration::ZERO;
/// Mask of the access mode in flags of open(2).
const O_ACCMODE: u32 = 3;
/// Flags of open(2) of whoever wants each write durable: O_SYNC and O_DSYNC.
const O_SYNC_BITS: u32 = 0o4_010_000;
/// Part of its receive buffer that a write must fill to keep it: one in so many.
const KEEP_PART: usize = 2;
/// Flags of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

#[derive(Default)]
struct State {
    open: HashMap<u64, Arc<Loan>>,
    last_handle: u64,
}

/// File system of the volumes of all pools.
pub(super) struct VolumeFs {
    pools: Arc<Pools>,
    tunables: Arc<Tunables>,
    owner: (u32, u32),
    paths: PathNodes,
    state: Mutex<State>,
    lanes: Mutex<Lanes>,
}

/// Errno for an error of a volume.
fn errno(error: VolumeError) -> Errno {
    match error {
        VolumeError::OutOfRange => Errno::EFBIG,
        VolumeError::ReadOnly => Errno::EROFS,
        VolumeError::NoSpace => Errno::ENOSPC,
        VolumeError::OverQuota => Errno::EDQUOT,
        VolumeError::Io | VolumeError::Corrupt | VolumeError::Stopped => Errno::EIO,
    }
}

/// Way in which a request with these flags of open(2) wants its data moved. The kernel copied the data: the alignment of the caller's memory cannot
/// be seen, and does not matter.
fn access(open_flags: u32) -> Access {
    Access { flagged: open_flags & fuse::O_DIRECT != 0, ..Access::default() }
}

/// Number of bytes of a request that lie within a volume.
fn within(size: u64, offset: u64, length: u64) -> u64 {
    size.saturating_sub(offset).min(length)
}

/// Range that fallocate(2) makes zeros; a hole that is punched reads as zeros to its last byte.
fn zeroed(request: &FallocateRequest, size: u64) -> Reply<Range<u64>> {
    let end = request.offset.checked_add(request.length).ok_or(Errno::EFBIG)?;
    let keeps_size = request.mode & KEEP_SIZE != 0;
    match request.mode & !KEEP_SIZE {
        PUNCH_HOLE if keeps_size => {}
        ZERO_RANGE if keeps_size || end <= size => {}
        ZERO_RANGE => return Err(Errno::EFBIG),
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(request.offset..request.offset + within(size, request.offset, request.length))
}

/// Bytes of a write as a volume may keep them: a copy where they are a small part of what would be kept with them.
fn kept(request: &WriteRequest, length: usize) -> Abd {
    let data = if length == request.data.len() { request.data.clone() } else { request.data.slice(0..length) };
    if length * KEEP_PART >= request.pinned_bytes {
        return data;
    }
    let mut copy = Abd::scratch(length);
    data.copy_to(0, copy.make_mut());
    copy
}

impl VolumeFs {
    /// Makes the file system; files belong to `owner` (user, group).
    pub(super) fn new(exec: &Exec, pools: &Arc<Pools>, tunables: &Arc<Tunables>, owner: (u32, u32)) -> VolumeFs {
        VolumeFs {
            pools: pools.clone(),
            tunables: tunables.clone(),
            owner,
            paths: PathNodes::default(),
            state: Mutex::default(),
            lanes: Mutex::new(Lanes::new(exec)),
        }
    }

    /// Attributes of what is at a path now.
    fn attr(&self, path: &str) -> Reply<FileAttr> {
        let found = there::find(&self.pools, path).ok_or(Errno::ENOENT)?;
        let attr = FileAttr { ino: self.paths.node(path), uid: self.owner.0, gid: self.owner.1, ..FileAttr::default() };
        match found {
            Found::Folder => Ok(FileAttr { mode: DIRECTORY, nlink: 2, blksize: 4096, ..attr }),
            Found::Volume(pool, handle) => {
                let objset = handle.objset().map_err(|_| Errno::EIO)?;
                // Pools of others may have larger ones: the kernel would refuse to show them.
                let size = dsl::volume::size(&objset).map_err(|_| Errno::EIO)?.min(dsl::volume::SIZE_MAX);
                let block = dsl::volume::block_size(&objset).map_err(|_| Errno::EIO)?;
                let time = Timestamp { seconds: handle.creation_time() as i64, nanoseconds: 0 };
                let mode = if is_read_only(&pool, &handle) { READ_ONLY } else { READ_WRITE };
                let blocks = handle.space().referenced / 512;
                let blksize = u32::try_from(block).unwrap_or(4096);
                Ok(FileAttr { mode, nlink: 1, size, blocks, blksize, atime: time, mtime: time, ctime: time, btime: time, ..attr })
            }
        }
    }

    /// Volume of an open file; EIO once it was taken away.
    fn volume(&self, handle: FileHandle) -> Reply<Arc<Volume>> {
        let loan = self.state.lock().open.get(&handle.0).cloned().ok_or(Errno::EBADF)?;
        loan.volume().ok_or(Errno::EIO)
    }

    /// Hands the names from `offset` on to `take`, until it has had enough.
    fn list(&self, node: NodeId, offset: u64, take: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Reply<()> {
        self.paths.list(node, offset, |path| there::names(&self.pools, path), take)
    }
}

/// True for what nobody can write to now.
fn is_read_only(pool: &OpenPool, handle: &DatasetHandle) -> bool {
    let is_fixed = handle.is_snapshot() || pool.is_read_only() || handle.is_encrypted_for_good().unwrap_or(true);
    is_fixed || handle.prop_u64("readonly").is_ok_and(|(value, _)| value != 0)
}

impl Handler for VolumeFs {
    fn lane(&self, node: NodeId, name: &[u8]) -> Option<Arc<Lane>> {
        let is_open = |pool: &str| self.pools.contains(pool);
        if !name.is_empty() {
            let path = self.paths.below(node, name).ok()?;
            return Some(self.lanes.lock().of_path(&path, is_open));
        }
        let known = self.lanes.lock().known(node);
        known.or_else(|| Some(self.lanes.lock().of_node(node, &self.paths.path(node).ok()?, is_open)))
    }

    fn lookup(&self, _: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let path = self.paths.below(parent, name)?;
        let attr = self.attr(&path)?;
        Ok(Entry { node: NodeId(attr.ino), generation: 1, attr, attr_ttl: TTL, entry_ttl: TTL })
    }

    fn getattr(&self, _: &Caller, node: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        Ok((self.attr(&self.paths.path(node)?)?, TTL))
    }

    /// Refuses another size. What open(2) does with O_TRUNC is ignored, as it is for disks: it asks for size 0, and through no handle.
    fn setattr(&self, _: &Caller, node: NodeId, set: &SetAttr) -> Reply<(FileAttr, Duration)> {
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Err(Errno::EPERM);
        }
        let attr = self.attr(&self.paths.path(node)?)?;
        let is_open = set.handle.is_some();
        match set.size {
            Some(size) if size != attr.size && (size != 0 || is_open) => Err(Errno::EINVAL),
            _ => Ok((attr, TTL)),
        }
    }

    fn mknod(&self, _: &Caller, _: NodeId, _: &[u8], _: &NewNode) -> Reply<Entry> {
        Err(Errno::EPERM)
    }

    fn create(&self, _: &Caller, _: NodeId, _: &[u8], _: &NewNode, _: u32) -> Reply<(Entry, Opened)> {
        Err(Errno::EPERM)
    }

    fn unlink(&self, _: &Caller, _: NodeId, _: &[u8]) -> Reply<()> {
        Err(Errno::EPERM)
    }

    fn open(&self, _: &Caller, node: NodeId, flags: u32) -> Reply<Opened> {
        let path = self.paths.path(node)?;
        let Some(Found::Volume(pool, handle)) = there::find(&self.pools, &path) else { return Err(Errno::ENOENT) };
        if flags & O_ACCMODE != 0 && is_read_only(&pool, &handle) {
            return Err(Errno::EROFS);
        }
        let lent = pool.volumes.lend(handle, &self.tunables, &pool.mounts);
        let loan = lent.map_err(|error| {
            tracing::warn!("the volume {path} cannot be opened: {error}");
            Errno::EIO
        })?;
        let mut state = self.state.lock();
        state.last_handle += 1;
        let handle = state.last_handle;
        state.open.insert(handle, Arc::new(loan));
        Ok(Opened { handle: FileHandle(handle), direct_io: true, ..Opened::default() })
    }

    fn read(&self, _: &Caller, request: &ReadRequest) -> Reply<Abd> {
        self.volume(request.handle)?.read(request.offset, u64::from(request.size), access(request.open_flags)).map_err(errno)
    }

    fn read_then(&self, _: &Caller, request: &ReadRequest, answer: Answer<Abd>) {
        match self.volume(request.handle) {
            Ok(volume) => {
                let then = Box::new(move |result: Result<Abd, VolumeError>| answer.send(result.map_err(errno)));
                volume.read_then(request.offset, u64::from(request.size), access(request.open_flags), then);
            }
            Err(errno) => answer.send(Err(errno)),
        }
    }

    /// Writes what lies within the volume.
    fn write_then(&self, _: &Caller, request: WriteRequest, answer: Answer<u32>) {
        let volume = match self.volume(request.handle) {
            Ok(volume) => volume,
            Err(errno) => return answer.send(Err(errno)),
        };
        let length = within(volume.size(), request.offset, request.data.len() as u64) as usize;
        if length == 0 {
            return answer.send(if request.data.is_empty() { Ok(0) } else { Err(Errno::EFBIG) });
        }
        let data = kept(&request, length);
        let (access, is_durable) = match request.from_cache {
            true => (Access::default(), false),
            false => (access(request.open_flags), request.open_flags & O_SYNC_BITS != 0),
        };
        let then = Box::new(move |result: Result<(), VolumeError>| answer.send(result.map(|()| length as u32).map_err(errno)));
        volume.write_then(request.offset, data, access, is_durable, then);
    }

    fn release(&self, _: NodeId, handle: FileHandle, _: u32) {
        let loan = self.state.lock().open.remove(&handle.0);
        drop(loan);
    }

    fn flush(&self, _: &Caller, _: NodeId, _: FileHandle) -> Reply<()> {
        Ok(())
    }

    fn fsync(&self, _: &Caller, _: NodeId, handle: FileHandle, _: bool) -> Reply<()> {
        self.volume(handle)?.flush().map_err(errno)
    }

    fn fallocate(&self, _: &Caller, request: &FallocateRequest) -> Reply<()> {
        let volume = self.volume(request.handle)?;
        let range = zeroed(request, volume.size())?;
        if range.is_empty() { Ok(()) } else { volume.write_zeroes(range.start, range.end - range.start).map_err(errno) }
    }

    fn lseek(&self, _: &Caller, request: &SeekRequest) -> Reply<u64> {
        let volume = self.volume(request.handle)?;
        let found = if request.hole { volume.seek_hole(request.offset) } else { volume.seek_data(request.offset) };
        found.map_err(errno)?.ok_or(Errno::ENXIO)
    }

    fn readdir(&self, _: &Caller, node: NodeId, _: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.list(node, offset, &mut |entry| sink.add(entry))
    }

    fn readdirplus(&self, _: &Caller, node: NodeId, _: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        let (attr, ttl) = (FileAttr::default(), TTL);
        // Node 0: the kernel looks a name up when it needs it.
        let unknown = Entry { node: NodeId(0), generation: 0, attr, attr_ttl: ttl, entry_ttl: ttl };
        self.list(node, offset, &mut |entry| sink.add_plus(entry, &unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mode: u32, offset: u64, length: u64) -> FallocateRequest {
        FallocateRequest { node: NodeId(2), handle: FileHandle(1), offset, length, mode }
    }

    /// If this fails, a loop device that discards or zeroes leaves old bytes, or a volume grows behind its size.
    #[test]
    fn fallocate_zeroes_what_lies_within_the_volume() {
        let range = |mode, offset, length| zeroed(&asked(mode, offset, length), 1000);
        assert_eq!(range(PUNCH_HOLE | KEEP_SIZE, 100, 300), Ok(100..400));
        assert_eq!(range(PUNCH_HOLE | KEEP_SIZE, 900, 300), Ok(900..1000));
        assert_eq!(range(ZERO_RANGE | KEEP_SIZE, 2000, 300), Ok(2000..2000));
        assert_eq!(range(ZERO_RANGE, 0, 1000), Ok(0..1000));
        assert_eq!(range(ZERO_RANGE, 0, 1001), Err(Errno::EFBIG));
        assert_eq!(range(ZERO_RANGE | KEEP_SIZE, u64::MAX, 2), Err(Errno::EFBIG));
        // Allocating, punching without keeping the size, collapsing.
        for mode in [0, KEEP_SIZE, PUNCH_HOLE, 8, 8 | KEEP_SIZE] {
            assert_eq!(range(mode, 0, 10), Err(Errno::EOPNOTSUPP), "{mode}");
        }
    }
}
