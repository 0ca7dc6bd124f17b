//! A trivial file system in memory: the peer of CPU comparisons and the subject of the protocol's tests.
//!
//! One lock, files as vectors of page-aligned chunks of 1 MiB; no permissions of its own (mount with `default_permissions`).

use abd::Abd;
use exec::Mutex;
use fuse::*;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CHUNK: u64 = 1 << 20;
const TTL: Duration = Duration::from_secs(60);
/// Bytes of the smallest chunk that is kept.
const CHUNK_MIN: usize = 4096;

/// Name of an attribute that every node has: the number of requests so far.
const REQUESTS: &[u8] = b"user.requests";

struct Node {
    attr: FileAttr,
    parent: u64,
    names: BTreeMap<Vec<u8>, u64>,
    chunks: BTreeMap<u64, Abd>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

/// File system in memory.
pub struct MemFs(Mutex<State>);

#[allow(clippy::disallowed_methods, reason = "a program of its own without an executor")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

impl State {
    fn node(&mut self, id: NodeId) -> Reply<&mut Node> {
        self.nodes.get_mut(&id.0).ok_or(Errno::ESTALE)
    }

    fn child(&mut self, parent: NodeId, name: &[u8]) -> Reply<u64> {
        self.node(parent)?.names.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn entry(&mut self, id: u64) -> Reply<Entry> {
        let attr = self.node(NodeId(id))?.attr;
        Ok(Entry { node: NodeId(id), generation: 1, attr, attr_ttl: TTL, entry_ttl: TTL })
    }

    fn add(&mut self, caller: &Caller, parent: NodeId, name: Option<&[u8]>, new: &NewNode) -> Reply<Entry> {
        let id = self.next;
        let directory = new.mode & 0o170_000 == 0o040_000;
        let at = now();
        let above = self.node(parent)?;
        if let Some(name) = name {
            if above.names.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            above.names.insert(name.to_vec(), id);
            above.attr.nlink += u32::from(directory);
            above.attr.mtime = at;
        }
        let attr = FileAttr {
            ino: id,
            mode: new.mode,
            nlink: if directory { 2 } else { u32::from(name.is_some()) },
            uid: caller.uid,
            gid: caller.gid,
            rdev: new.rdev,
            blksize: 4096,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            ..FileAttr::default()
        };
        self.next += 1;
        let node =
            Node { attr, parent: parent.0, names: BTreeMap::new(), chunks: BTreeMap::new(), target: Vec::new(), xattrs: BTreeMap::new() };
        self.nodes.insert(id, node);
        self.entry(id)
    }

    fn drop_link(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            // Nodes without links stay for open files; a test file system may keep them.
            node.attr.nlink = node.attr.nlink.saturating_sub(1);
            node.attr.ctime = now();
        }
    }

    fn remove(&mut self, parent: NodeId, name: &[u8], directory: bool) -> Reply<()> {
        let id = self.child(parent, name)?;
        let node = self.node(NodeId(id))?;
        let is_directory = node.attr.mode & 0o170_000 == 0o040_000;
        match (directory, is_directory) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !node.names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let above = self.node(parent)?;
        above.names.remove(name);
        above.attr.nlink -= u32::from(directory);
        self.drop_link(id);
        Ok(())
    }
}

fn resize(node: &mut Node, size: u64) {
    if size < node.attr.size {
        drop(node.chunks.split_off(&size.div_ceil(CHUNK)));
        if let Some(last) = node.chunks.get_mut(&(size / CHUNK)) {
            let from = last.len().min((size % CHUNK) as usize);
            last.make_mut()[from..].fill(0);
        }
    }
    node.attr.size = size;
}

/// Chunk with room for `bytes`: those of small files are small.
fn with_room(chunk: &mut Abd, bytes: usize) -> &mut [u8] {
    if chunk.len() < bytes {
        let mut larger = Abd::zeroed(bytes.next_power_of_two().max(CHUNK_MIN));
        chunk.copy_to(0, &mut larger.make_mut()[..chunk.len()]);
        *chunk = larger;
    }
    chunk.make_mut()
}

impl MemFs {
    /// Makes an empty file system owned by the user who runs it.
    pub fn new() -> Self {
        let mut state = State { nodes: HashMap::new(), next: 2 };
        let at = now();
        let attr = FileAttr { ino: 1, mode: 0o040_777, nlink: 2, blksize: 4096, atime: at, mtime: at, ctime: at, ..FileAttr::default() };
        let root = Node { attr, parent: 1, names: BTreeMap::new(), chunks: BTreeMap::new(), target: Vec::new(), xattrs: BTreeMap::new() };
        state.nodes.insert(1, root);
        MemFs(Mutex::new(state))
    }

    fn list(&self, node: NodeId, offset: u64, plus: bool, sink: &mut dyn DirSink) -> Reply<()> {
        let mut state = self.0.lock();
        let directory = state.node(node)?;
        let mut all = vec![(b".".to_vec(), node.0), (b"..".to_vec(), directory.parent)];
        all.extend(directory.names.iter().map(|(name, id)| (name.clone(), *id)));
        for (index, (name, id)) in all.iter().enumerate().skip(offset as usize) {
            let found = state.entry(*id)?;
            let entry = DirEntry { ino: *id, next: index as u64 + 1, kind: found.attr.mode >> 12, name };
            let taken = if plus && index >= 2 { sink.add_plus(entry, &found) } else { sink.add(entry) };
            if !taken {
                break;
            }
        }
        Ok(())
    }
}

impl Handler for MemFs {
    fn lookup(&self, _: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let mut state = self.0.lock();
        let id = state.child(parent, name)?;
        state.entry(id)
    }

    fn getattr(&self, _: &Caller, node: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        Ok((self.0.lock().node(node)?.attr, TTL))
    }

    fn setattr(&self, _: &Caller, node: NodeId, set: &SetAttr) -> Reply<(FileAttr, Duration)> {
        let mut state = self.0.lock();
        let node = state.node(node)?;
        if let Some(mode) = set.mode {
            node.attr.mode = (node.attr.mode & 0o170_000) | (mode & 0o7777);
        }
        node.attr.uid = set.uid.unwrap_or(node.attr.uid);
        node.attr.gid = set.gid.unwrap_or(node.attr.gid);
        if let Some(size) = set.size {
            resize(node, size);
            node.attr.mtime = now();
        }
        for (time, slot) in [(set.atime, &mut node.attr.atime), (set.mtime, &mut node.attr.mtime)] {
            match time {
                Some(SetTime::Now) => *slot = now(),
                Some(SetTime::At(at)) => *slot = at,
                None => {}
            }
        }
        node.attr.ctime = now();
        Ok((node.attr, TTL))
    }

    fn readlink(&self, _: &Caller, node: NodeId) -> Reply<Vec<u8>> {
        Ok(self.0.lock().node(node)?.target.clone())
    }

    fn symlink(&self, caller: &Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Reply<Entry> {
        let mut state = self.0.lock();
        let entry = state.add(caller, parent, Some(name), &NewNode { mode: 0o120_777, ..NewNode::default() })?;
        let node = state.node(entry.node)?;
        node.target = target.to_vec();
        node.attr.size = target.len() as u64;
        state.entry(entry.node.0)
    }

    fn mknod(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode) -> Reply<Entry> {
        self.0.lock().add(caller, parent, Some(name), new)
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode) -> Reply<Entry> {
        self.0.lock().add(caller, parent, Some(name), new)
    }

    fn unlink(&self, _: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.0.lock().remove(parent, name, false)
    }

    fn rmdir(&self, _: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.0.lock().remove(parent, name, true)
    }

    fn rename(&self, _: &Caller, request: &RenameRequest<'_>) -> Reply<()> {
        let mut state = self.0.lock();
        if request.flags > 1 {
            return Err(Errno::EINVAL);
        }
        let id = state.child(request.parent, request.name)?;
        if let Ok(old) = state.child(request.new_parent, request.new_name) {
            if request.flags == 1 {
                return Err(Errno::EEXIST);
            }
            let directory = state.node(NodeId(old))?.attr.mode & 0o170_000 == 0o040_000;
            state.remove(request.new_parent, request.new_name, directory)?;
        }
        state.node(request.parent)?.names.remove(request.name);
        state.node(request.new_parent)?.names.insert(request.new_name.to_vec(), id);
        state.node(NodeId(id))?.parent = request.new_parent.0;
        Ok(())
    }

    fn link(&self, _: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let mut state = self.0.lock();
        if state.child(parent, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        state.node(parent)?.names.insert(name.to_vec(), node.0);
        state.node(node)?.attr.nlink += 1;
        state.entry(node.0)
    }

    fn open(&self, _: &Caller, _: NodeId, _: u32) -> Reply<Opened> {
        Ok(Opened { keep_cache: true, ..Opened::default() })
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode, _: u32) -> Reply<(Entry, Opened)> {
        let entry = self.0.lock().add(caller, parent, Some(name), new)?;
        Ok((entry, Opened { keep_cache: true, ..Opened::default() }))
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, new: &NewNode, _: u32) -> Reply<(Entry, Opened)> {
        Ok((self.0.lock().add(caller, parent, None, new)?, Opened::default()))
    }

    fn read(&self, _: &Caller, request: &ReadRequest) -> Reply<Abd> {
        let mut state = self.0.lock();
        let node = state.node(request.node)?;
        let end = (request.offset + u64::from(request.size)).min(node.attr.size);
        let mut parts = Vec::new();
        let mut at = request.offset;
        while at < end {
            let (from, to) = (at % CHUNK, (end - at).min(CHUNK - at % CHUNK) + at % CHUNK);
            let chunk = node.chunks.get(&(at / CHUNK));
            let held = chunk.map_or(0, Abd::len).clamp(from as usize, to as usize);
            if let Some(chunk) = chunk.filter(|_| held > from as usize) {
                parts.push(chunk.slice(from as usize..held));
            }
            if held < to as usize {
                parts.push(Abd::zeroed(to as usize - held));
            }
            at += to - from;
        }
        Ok(Abd::gang(&parts))
    }

    fn write(&self, _: &Caller, request: WriteRequest) -> Reply<u32> {
        let mut state = self.0.lock();
        let node = state.node(request.node)?;
        let length = request.data.len() as u64;
        let mut done = 0;
        while done < length {
            let at = request.offset + done;
            let count = (length - done).min(CHUNK - at % CHUNK);
            if count == CHUNK {
                node.chunks.insert(at / CHUNK, request.data.slice(done as usize..(done + count) as usize));
            } else {
                let chunk = node.chunks.entry(at / CHUNK).or_default();
                let from = (at % CHUNK) as usize;
                let to = from + count as usize;
                request.data.copy_to(done as usize, &mut with_room(chunk, to)[from..to]);
            }
            done += count;
        }
        node.attr.size = node.attr.size.max(request.offset + length);
        node.attr.blocks = node.chunks.len() as u64 * (CHUNK / 512);
        node.attr.mtime = now();
        if request.kill_suid {
            node.attr.mode &= !0o6000;
        }
        Ok(length as u32)
    }

    fn fsync(&self, _: &Caller, _: NodeId, _: FileHandle, _: bool) -> Reply<()> {
        Ok(())
    }

    fn readdir(&self, _: &Caller, node: NodeId, _: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.list(node, offset, false, sink)
    }

    fn readdirplus(&self, _: &Caller, node: NodeId, _: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.list(node, offset, true, sink)
    }

    fn setxattr(&self, _: &Caller, node: NodeId, set: &SetXattr<'_>) -> Reply<()> {
        let mut state = self.0.lock();
        let node = state.node(node)?;
        match (set.flags, node.xattrs.contains_key(set.name)) {
            (1, true) => return Err(Errno::EEXIST),
            (2, false) => return Err(Errno::ENODATA),
            _ => {}
        }
        node.xattrs.insert(set.name.to_vec(), set.value.to_vec());
        Ok(())
    }

    fn getxattr(&self, _: &Caller, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        if name == REQUESTS {
            let counts = request_counts();
            return Ok((counts.by_read + counts.by_ring).to_string().into_bytes());
        }
        self.0.lock().node(node)?.xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    fn listxattr(&self, _: &Caller, node: NodeId) -> Reply<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.0.lock().node(node)?.xattrs.keys() {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }

    fn removexattr(&self, _: &Caller, node: NodeId, name: &[u8]) -> Reply<()> {
        self.0.lock().node(node)?.xattrs.remove(name).map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn lseek(&self, _: &Caller, request: &SeekRequest) -> Reply<u64> {
        let mut state = self.0.lock();
        let node = state.node(request.node)?;
        if request.offset >= node.attr.size {
            return Err(Errno::ENXIO);
        }
        let mut chunk = request.offset / CHUNK;
        while chunk * CHUNK < node.attr.size && node.chunks.contains_key(&chunk) == request.hole {
            chunk += 1;
        }
        let found = request.offset.max(chunk * CHUNK);
        match (found < node.attr.size, request.hole) {
            (true, _) => Ok(found),
            (false, true) => Ok(node.attr.size),
            (false, false) => Err(Errno::ENXIO),
        }
    }
}
