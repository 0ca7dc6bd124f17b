//! A part of the tree as a file system: `cat` reads what the counters say at the moment of opening, `echo` sets a parameter.
//!
//! Lists (`dbgmsg`, `txgs`) are read record by record instead: what is added while somebody reads is seen, and records that are gone before they
//! were read are an I/O error, as in OpenZFS. Files have size 0 and are read past the page cache, as in procfs. Node numbers are given to paths when they are first seen
//! and never change; a path whose file is gone answers ENOENT.

use crate::{Tree, WriteError};
use abd::Abd;
use exec::Mutex;
use fuse::{
    Caller, DirEntry, DirSink, Entry, Errno, FileAttr, FileHandle, Handler, NodeId, Opened, PathNodes, ReadRequest, Reply, SetAttr,
    WriteRequest,
};
use kstat::Cursor;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

const DIRECTORY: u32 = 0o040_555;
const READ_ONLY: u32 = 0o100_444;
const READ_WRITE: u32 = 0o100_644;
const PRIVATE: u32 = 0o100_600;
/// Time that the kernel may remember something: none, as pools come and go.
const TTL: Duration = Duration::ZERO;
/// Bytes of the longest text that a file takes.
const WRITE_BYTES_MAX: usize = 4096;

/// Contents of an open file.
#[derive(Clone)]
enum Open {
    /// Text of the file when it was opened.
    Text(Abd),
    /// Records of a list, from where its reader is.
    List(Arc<Mutex<Cursor>>),
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Open>,
    last_handle: u64,
}

/// File system of the part of a [`Tree`] below a path.
pub struct TreeFs {
    tree: Tree,
    root: String,
    owner: (u32, u32),
    paths: PathNodes,
    state: Mutex<State>,
}

impl TreeFs {
    /// Makes the file system of the part below `root` (`spl/kstat`, `module/zfs`); files belong to `owner` (user, group).
    pub fn new(tree: Tree, root: &str, owner: (u32, u32)) -> TreeFs {
        TreeFs { tree, root: root.to_string(), owner, paths: PathNodes::default(), state: Mutex::default() }
    }

    fn full(&self, path: &str) -> String {
        if path.is_empty() { self.root.clone() } else { format!("{}/{path}", self.root) }
    }

    /// Attributes of what is at a path now.
    fn attr(&self, path: &str) -> Reply<FileAttr> {
        let full = self.full(path);
        let below = format!("{full}/");
        let paths = self.tree.paths_below(&self.root);
        let mode = if paths.contains(&full) {
            match (self.tree.is_writable(&full), self.tree.is_private(&full)) {
                (true, true) => PRIVATE,
                (true, false) => READ_WRITE,
                (false, _) => READ_ONLY,
            }
        } else if path.is_empty() || paths.iter().any(|other| other.starts_with(&below)) {
            DIRECTORY
        } else {
            return Err(Errno::ENOENT);
        };
        let nlink = if mode == DIRECTORY { 2 } else { 1 };
        Ok(FileAttr { ino: self.paths.node(path), mode, nlink, uid: self.owner.0, gid: self.owner.1, blksize: 4096, ..FileAttr::default() })
    }

    /// Names in a directory and whether each is one itself.
    fn names(&self, path: &str) -> Vec<(String, bool)> {
        let below = format!("{}/", self.full(path));
        let paths = self.tree.paths_below(&self.root);
        let inside = paths.iter().filter_map(|other| other.strip_prefix(&below));
        let names: BTreeSet<(String, bool)> = inside
            .map(|rest| rest.split_once('/').map_or_else(|| (rest.to_string(), false), |(folder, _)| (folder.to_string(), true)))
            .collect();
        names.into_iter().collect()
    }
}

impl TreeFs {
    /// Hands the names from `offset` on to `take`, until it has had enough.
    fn list(&self, node: NodeId, offset: u64, take: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Reply<()> {
        self.paths.list(node, offset, |path| self.names(path), take)
    }
}

impl Handler for TreeFs {
    fn lookup(&self, _: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let path = self.paths.below(parent, name)?;
        let attr = self.attr(&path)?;
        Ok(Entry { node: NodeId(attr.ino), generation: 1, attr, attr_ttl: TTL, entry_ttl: TTL })
    }

    fn getattr(&self, _: &Caller, node: NodeId, _: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        Ok((self.attr(&self.paths.path(node)?)?, TTL))
    }

    /// Ignores truncation, which comes before a write and means nothing here.
    fn setattr(&self, _: &Caller, node: NodeId, set: &SetAttr) -> Reply<(FileAttr, Duration)> {
        let changes_more = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        if changes_more {
            return Err(Errno::EPERM);
        }
        Ok((self.attr(&self.paths.path(node)?)?, TTL))
    }

    fn open(&self, _: &Caller, node: NodeId, _: u32) -> Reply<Opened> {
        let path = self.full(&self.paths.path(node)?);
        let open = match self.tree.listing(&path) {
            Some(listing) => Open::List(Arc::new(Mutex::new(Cursor::new(listing)))),
            None => Open::Text(Abd::from_slice(self.tree.read(&path).ok_or(Errno::ENOENT)?.as_bytes())),
        };
        let mut state = self.state.lock();
        state.last_handle += 1;
        let handle = state.last_handle;
        state.open.insert(handle, open);
        Ok(Opened { handle: FileHandle(handle), direct_io: true, ..Opened::default() })
    }

    fn read(&self, _: &Caller, request: &ReadRequest) -> Reply<Abd> {
        let open = self.state.lock().open.get(&request.handle.0).cloned().ok_or(Errno::ESTALE)?;
        let text = match open {
            Open::Text(text) => text,
            Open::List(cursor) => {
                let read = cursor.lock().read(request.offset, request.size as usize);
                return read.map(|bytes| Abd::from_slice(&bytes)).map_err(|_| Errno::EIO);
            }
        };
        let start = usize::try_from(request.offset).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(request.size as usize).min(text.len());
        Ok(text.slice(start..end))
    }

    fn write(&self, _: &Caller, request: WriteRequest) -> Reply<u32> {
        let path = self.full(&self.paths.path(request.node)?);
        if request.offset != 0 || request.data.len() > WRITE_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let text = String::from_utf8(request.data.to_vec()).map_err(|_| Errno::EINVAL)?;
        match self.tree.write(&path, &text) {
            Ok(()) => Ok(request.data.len() as u32),
            Err(WriteError::NotFound) => Err(Errno::ENOENT),
            Err(WriteError::ReadOnly) => Err(Errno::EPERM),
            Err(WriteError::Invalid) => Err(Errno::EINVAL),
        }
    }

    fn release(&self, _: NodeId, handle: FileHandle, _: u32) {
        self.state.lock().open.remove(&handle.0);
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
