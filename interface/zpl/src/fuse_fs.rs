//! A file system and its snapshots behind the FUSE server.
//!
//! Node numbers of the protocol: the root is 1; a node of the live file system has its object number; a node of the
//! snapshot that was opened as number N has `N << 48 | object`; the control directories have numbers of their own above
//! those. The kernel's lookup counts are references to nodes: the node of an open file that lost its last name stays until
//! the kernel forgets it.

use crate::ctldir::{ControlNode, Ctldir, EnteredSnapshot, SnapshotSource};
use crate::device_number::encode_device;
use crate::direct::Property;
use crate::file_flags;
use crate::kernel::{self, PastCache};
use crate::lasting::Lasts;
use crate::lifetimes::{self, Lifetimes, name_ttl, no_entry};
use crate::moves;
use crate::nodes::Node;
use crate::posix_acl::is_list;
use crate::requests::{allocation, attributes, listed, new_node, set_mode};
use crate::seek::seek_then;
use crate::setattr::{SetAttrs, Stat};
use crate::znode::clear_suid;
use crate::{NewNode, Place, RenameMode, Settings, Snapdir, Time, Zfs, ZplError};
use abd::Abd;
use fuse::{
    Answer, Caller, CopyRequest, DirEntry, DirSink, Entry, Errno, FallocateRequest, FileAttr, FileHandle, Handler, Lasting, NodeId,
    Notifier, Opened, ReadRequest, RenameRequest, Reply, SeekRequest, SetAttr, SetXattr, Statfs, Timestamp, WriteRequest,
};
use ondisk::ObjectId;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use zil::Arena;

const OBJECT_BITS: u32 = 48;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;

/// Cookie of `.zfs` in the listing of the root: after `..`.
const CONTROL_COOKIE: u64 = 2;

/// Question whether a program works in the directory of a snapshot.
type WorksIn = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Handler of the requests of one mount.
pub struct ZplFuse {
    zfs: Arc<Zfs>,
    control: Ctldir,
    lifetimes: Lifetimes,
    is_suspended: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    works_in: Option<WorksIn>,
    /// True when the kernel keeps what programs write for a while before it tells.
    writes_back: bool,
    /// True when the kernel keeps to POSIX access control lists, and has asked for some.
    enforces_lists: bool,
    /// Requests in the arena of the pool, where the mount outlives the daemon.
    lasts: Option<Arc<Lasts>>,
    /// Listener to snapshots that are entered, before the kernel hears of them.
    when_entered: Option<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for ZplFuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ZplFuse({:?})", self.zfs)
    }
}

/// Node and the file system that it is of: the live one or a snapshot.
struct Held {
    node: Node,
    zfs: Arc<Zfs>,
}

impl std::ops::Deref for Held {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Meaning of a node number.
enum Target {
    Node(Held, u64),
    Control(ControlNode),
}

fn stamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.0, nanoseconds: time.1 }
}

impl ZplFuse {
    /// Serves `zfs`; `snapshots` gives `.zfs/snapshot` its contents.
    pub fn new(zfs: Arc<Zfs>, snapshots: Option<Arc<dyn SnapshotSource>>) -> ZplFuse {
        ZplFuse {
            control: Ctldir::new(snapshots),
            zfs,
            lifetimes: Lifetimes::default(),
            is_suspended: None,
            works_in: None,
            writes_back: false,
            enforces_lists: false,
            lasts: None,
            when_entered: None,
        }
    }

    /// Adds the question `is_suspended`, asked before it waits for the whole pool: the kernel holds every sync of the system up until it is answered.
    pub fn with_health(self, is_suspended: Box<dyn Fn() -> bool + Send + Sync>) -> ZplFuse {
        ZplFuse { is_suspended: Some(is_suspended), ..self }
    }

    /// Closes a snapshot that was entered under `.zfs/snapshot`, so that it can be destroyed; false when a file of it is open.
    pub fn close_snapshot(&self, name: &str) -> bool {
        self.control.close(name)
    }

    /// Snapshots that were entered under `.zfs/snapshot`, for another server of the file system.
    pub fn entered(&self) -> Vec<EnteredSnapshot> {
        self.control.entered()
    }

    /// Enters a snapshot again as another server had.
    ///
    /// # Errors
    /// Those of opening it: it is stale to whoever uses it.
    pub fn enter_again(&self, entered: &EnteredSnapshot) -> Result<(), ZplError> {
        self.control.enter_again(entered, self.zfs.settings())
    }

    /// Adds the question `works_in` whether a program works in a snapshot, asked before one is destroyed or renamed by rmdir(2) or rename(2).
    pub fn with_workers(self, works_in: Box<dyn Fn(&str) -> bool + Send + Sync>) -> ZplFuse {
        ZplFuse { works_in: Some(works_in), ..self }
    }

    /// Notes that the kernel keeps what programs write for a while before it tells.
    pub fn with_write_back(self, writes_back: bool) -> ZplFuse {
        ZplFuse { writes_back, ..self }
    }

    /// Notes that the kernel keeps to POSIX access control lists ([`fuse::MountOptions::posix_acl`]): they can be set, and are inherited.
    pub fn with_lists(self, enforces_lists: bool) -> ZplFuse {
        ZplFuse { enforces_lists, ..self }
    }

    /// Adds the arena of the pool: the mount, of this number, outlives the daemon. `when_entered` notes which snapshots were entered.
    pub fn with_arena(self, arena: Arc<Arena>, mount: u32, when_entered: Box<dyn Fn() + Send + Sync>) -> ZplFuse {
        let lasts = Arc::new(Lasts { arena, objset: self.zfs.objset().id().0, mount });
        ZplFuse { lasts: Some(lasts), when_entered: Some(when_entered), ..self }
    }

    /// Replaces the properties; the kernel asks again for what it knows and they change. Lists count as long as the mount lasts where the kernel keeps
    /// to them, and nowhere else: who is shown one believes that it does.
    pub fn set_settings(&self, settings: Settings) {
        let before = self.zfs.settings();
        let settings = Settings { posix_acl: self.enforces_lists, ..settings };
        self.zfs.set_settings(settings);
        if let Some(notifier) = self.lifetimes.notifier().filter(|_| before.snapdir != settings.snapdir) {
            notifier.forget_attributes(NodeId::ROOT);
        }
    }

    /// Notes that bytes of a file were changed by somebody who did not ask the kernel to: runs `then` once it forgot what it has of the range,
    /// so that nobody who reads the file through the mount is shown what was there before.
    pub fn changed_beneath(&self, node: &Node, range: Range<u64>, then: impl FnOnce() + Send + 'static) {
        let Some(notifier) = self.lifetimes.notifier() else { return then() };
        PastCache { view: node.kernel.clone(), notifier: notifier.clone(), id: self.number(node, 0), range }.forget_all(then);
    }

    /// Has the kernel forget the attributes of a node of the live file system that were changed by somebody who did not ask the kernel to.
    pub fn attributes_changed(&self, node: &Node) {
        let id = self.number(node, 0);
        if let Some(notifier) = self.lifetimes.notifier() {
            notifier.later(move |kernel| kernel.forget_attributes(id));
        }
    }

    /// Fails when a program works in the snapshot: the kernel keeps a working directory without keeping it open.
    fn check_nobody_works_in(&self, snapshot: &[u8]) -> Reply<()> {
        let name = String::from_utf8_lossy(snapshot);
        let is_busy = self.works_in.as_ref().is_some_and(|works_in| self.control.has_entered(&name) && works_in(&name));
        if is_busy { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// True for a snapshot that was entered and not closed since.
    pub fn has_entered(&self, name: &str) -> bool {
        self.control.has_entered(name)
    }

    /// True when there is a `.zfs` in the root.
    fn has_control(&self) -> bool {
        self.control.is_present() && self.zfs.settings().snapdir != Snapdir::Disabled
    }

    /// True when the root lists its `.zfs`.
    fn shows_control(&self) -> bool {
        self.has_control() && self.zfs.settings().snapdir == Snapdir::Visible
    }

    fn count_open(&self, id: NodeId, is_open: bool) {
        if ControlNode::of(id.0).is_none() && id.0 >> OBJECT_BITS != 0 {
            self.control.count_open(id.0 >> OBJECT_BITS, is_open);
        }
    }

    /// Notes that a file was opened or closed: one of which the kernel may have what it does not tell, stored through a mapping or kept, is remembered.
    fn note_open(&self, id: NodeId, flags: u32, is_open: bool) {
        self.count_open(id, is_open);
        if (kernel::may_map(flags) || self.writes_back && kernel::may_change(flags))
            && let Ok(node) = self.node(id)
        {
            if is_open { node.kernel.opened(self.writes_back) } else { node.kernel.released() }
        }
    }

    fn target(&self, id: NodeId) -> Reply<Target> {
        if id == NodeId::ROOT {
            return Ok(Target::Node(Held { node: self.zfs.node(self.zfs.root()).map_err(stale)?, zfs: self.zfs.clone() }, 0));
        }
        if let Some(control) = ControlNode::of(id.0) {
            return Ok(Target::Control(control));
        }
        let space = id.0 >> OBJECT_BITS;
        let zfs = if space == 0 { self.zfs.clone() } else { self.control.opened(space).ok_or(Errno::ESTALE)? };
        Ok(Target::Node(Held { node: zfs.node(ObjectId(id.0 & OBJECT_MASK)).map_err(stale)?, zfs }, space))
    }

    /// Node of the live file system that is to be changed.
    fn node(&self, id: NodeId) -> Reply<Held> {
        match self.target(id)? {
            Target::Node(node, 0) => Ok(node),
            _ => Err(Errno::EROFS),
        }
    }

    /// Directory of an entry that is to go, or to be replaced. `.zfs` is none (OpenZFS: `zfs_dirent_lock`).
    fn place(&self, parent: NodeId, name: &[u8]) -> Reply<Held> {
        if parent == NodeId::ROOT && name == b".zfs" && self.has_control() { Err(Errno::EEXIST) } else { self.node(parent) }
    }

    fn any_node(&self, id: NodeId) -> Reply<Held> {
        match self.target(id)? {
            Target::Node(node, _) => Ok(node),
            Target::Control(_) => Err(Errno::EINVAL),
        }
    }

    fn number(&self, node: &Node, space: u64) -> NodeId {
        if space == 0 && node.object() == self.zfs.root() { NodeId::ROOT } else { NodeId(node.object().0 | space << OBJECT_BITS) }
    }

    /// Attributes of a node, and the time that they hold.
    fn attr(&self, node: &Node, space: u64) -> Reply<(FileAttr, Duration)> {
        let ttl = self.lifetimes.begin(node, self.number(node, space));
        let Stat { fields, blocks, block_size } = Stat::of(node.store(), node)?;
        // A directory has a link for each directory that it lists (OpenZFS: `zfs_getattr_fast`).
        let control = u64::from(self.number(node, space) == NodeId::ROOT && self.shows_control());
        let attr = FileAttr {
            ino: node.object().0 | space << OBJECT_BITS,
            size: fields.size,
            blocks,
            atime: stamp(fields.times[0]),
            mtime: stamp(fields.times[1]),
            ctime: stamp(fields.times[2]),
            btime: stamp(fields.times[3]),
            mode: fields.mode as u32,
            nlink: fields.links.saturating_add(control).min(u64::from(u32::MAX)) as u32,
            uid: fields.uid as u32,
            gid: fields.gid as u32,
            rdev: encode_device(fields.rdev),
            blksize: block_size as u32,
        };
        Ok((attr, lifetimes::of_attributes(&attr, ttl)))
    }

    /// Reply that gives the kernel a reference to the node.
    fn entry(&self, node: &Node, space: u64) -> Reply<Entry> {
        let (attr, attr_ttl) = self.attr(node, space)?;
        Zfs::keep(node);
        let entry_ttl = name_ttl(node);
        Ok(Entry { node: self.number(node, space), generation: node.fields().generation, attr, attr_ttl, entry_ttl })
    }

    fn control_entry(&self, control: ControlNode) -> Entry {
        Entry {
            node: NodeId(control.number()),
            generation: 0,
            attr: self.control.attr(control, stamp(self.zfs.now())),
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
        }
    }

    fn lookup_control(&self, parent: ControlNode, name: &[u8]) -> Reply<Entry> {
        match (parent, name) {
            (parent, b".") => Ok(self.control_entry(parent)),
            (ControlNode::Root, b"snapshot") => Ok(self.control_entry(ControlNode::Snapshots)),
            (ControlNode::Root, b"..") => self.entry(&self.zfs.node(self.zfs.root())?, 0),
            (ControlNode::Snapshots, b"..") => Ok(self.control_entry(ControlNode::Root)),
            (ControlNode::Snapshots, name) => {
                let is_new = self.when_entered.as_ref().filter(|_| !self.control.has_entered(&String::from_utf8_lossy(name)));
                let (space, zfs) = self.control.open(name, self.zfs.settings())?;
                is_new.iter().for_each(|tell| tell());
                let root = zfs.node(zfs.root())?;
                let mut entry = self.entry(&root, space)?;
                entry.entry_ttl = Duration::ZERO;
                Ok(entry)
            }
            _ => Err(Errno::ENOENT),
        }
    }

    fn list(&self, id: NodeId, offset: u64, plus: bool, sink: &mut dyn DirSink) -> Reply<()> {
        let (node, space) = match self.target(id)? {
            Target::Node(node, space) => (node, space),
            Target::Control(control) => return self.control.list(control, offset, sink),
        };
        let shown = id == NodeId::ROOT && self.shows_control();
        let control = || DirEntry { ino: ControlNode::Root.number(), next: CONTROL_COOKIE + 1, kind: 4, name: b".zfs" };
        if shown && offset == CONTROL_COOKIE && !sink.add(control()) {
            return Ok(());
        }
        let (mut failed, mut holds) = (None, true);
        node.zfs.list(&node, offset, &mut |listed| {
            let entry = DirEntry {
                ino: listed.dirent.object.0 | space << OBJECT_BITS,
                next: listed.next,
                kind: u32::from(listed.dirent.kind),
                name: listed.name,
            };
            if shown && listed.name == b".." {
                return sink.add(DirEntry { next: CONTROL_COOKIE, ..entry }) && sink.add(control());
            }
            if !plus || listed.name == b"." || listed.name == b".." {
                return sink.add(entry);
            }
            if !sink.fits(listed.name) {
                return false;
            }
            match node.zfs.node(listed.dirent.object).map_err(Errno::from).and_then(|found| self.entry(&found, space)) {
                Ok(found) => {
                    holds &= lifetimes::outlives_listing(&found);
                    sink.add_plus(entry, &found)
                }
                // Removed meanwhile, or damaged: the name is listed, whoever looks closer gets the error.
                Err(Errno::ENOENT | Errno::EIO) => sink.add(entry),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        })?;
        if plus && (offset == 0 || !holds) {
            node.kernel.note_listed(holds.then(|| node.store().exec.now_ns()));
        }
        node.zfs.note_access(&node);
        failed.map_or(Ok(()), Err)
    }

    /// Flags of a file that was opened. Direct I/O bypasses the kernel's cache, its writes run in parallel. Without a cache of ours for data the kernel
    /// keeps none for those who open the file later either, nor where each read leaves its time: of one that it answers by itself nobody hears. Who
    /// can only write, and durably, goes past the kernel's cache too: after each write into it the kernel asks for a sync, a request that has nothing to do.
    fn opened(&self, flags: u32) -> Opened {
        // What must be durable at the end of each write(2) cannot be kept.
        let is_kept_from = self.writes_back && self.zfs.objset().props().sync == dmu::SyncMode::Always;
        let direct_io = flags & fuse::O_DIRECT != 0 || self.zfs.settings().direct == Property::Always || is_kept_from;
        let keeps_data = self.zfs.objset().props().primary_cache.keeps_data();
        let keep_cache = !direct_io && keeps_data && !self.zfs.settings().leaves_each_time();
        let in_turn = !direct_io && !self.writes_back && moves::is_log(flags);
        Opened { keep_cache, direct_io: direct_io || in_turn, in_turn, ..Opened::default() }
    }

    fn make(&self, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Reply<Entry> {
        let directory = self.node(parent)?;
        let node = self.zfs.create_node(&directory, name, &self.masked(new))?;
        self.finish(&directory)?;
        self.entry(&node, 0)
    }

    /// New node without the umask where the kernel applied it.
    fn masked<'a>(&self, new: &NewNode<'a>) -> NewNode<'a> {
        NewNode { umask: new.umask.filter(|_| self.enforces_lists), ..*new }
    }

    /// Sets or removes a list of those that the kernel keeps to.
    fn set_list(&self, node: &Node, name: &[u8], value: Option<&[u8]>, kill_sgid: bool) -> Reply<()> {
        if self.enforces_lists { Ok(self.zfs.set_list(node, name, value, kill_sgid)?) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// Takes setuid away for all but root, for fallocate(2): of other changes of data the kernel says whether they do.
    fn drop_suid(&self, caller: &Caller, node: &Node) -> Reply<()> {
        let old = node.fields().mode;
        let mut mode = old;
        clear_suid(&mut mode);
        if caller.uid != 0 && mode != old {
            self.zfs.set_attrs(node, &SetAttrs { kill_suid: true, ..SetAttrs::default() })?;
        }
        Ok(())
    }

    fn is_always(&self) -> bool {
        self.zfs.objset().props().sync == dmu::SyncMode::Always
    }

    /// Waits for the disk with `sync=always`, as every change does.
    fn finish(&self, node: &Node) -> Reply<()> {
        if self.is_always() {
            self.zfs.fsync(node)?;
        }
        Ok(())
    }
}

/// Error of a node number that no longer means anything.
fn stale(error: ZplError) -> Errno {
    match error {
        ZplError::NotFound => Errno::ESTALE,
        other => other.into(),
    }
}

impl Handler for ZplFuse {
    fn attached(&self, notifier: Notifier) {
        self.lifetimes.attach(notifier);
    }

    fn lasting(&self) -> Option<Arc<dyn Lasting>> {
        self.lasts.clone().map(|lasts| lasts as Arc<dyn Lasting>)
    }

    fn refer(&self, _caller: &Caller, id: NodeId) -> Reply<Entry> {
        match self.target(id)? {
            Target::Node(node, space) => self.entry(&node, space),
            Target::Control(control) => Ok(self.control_entry(control)),
        }
    }

    fn destroy(&self) {
        self.control.close_all();
        self.zfs.forget_all();
    }

    fn lookup(&self, _caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let (directory, space) = match self.target(parent)? {
            Target::Node(directory, space) => (directory, space),
            Target::Control(control) => return self.lookup_control(control, name),
        };
        if parent == NodeId::ROOT && name == b".zfs" && self.has_control() {
            return Ok(self.control_entry(ControlNode::Root));
        }
        match directory.zfs.lookup(&directory, name) {
            Ok(node) => self.entry(&node, space),
            // The directory of snapshots comes and goes with a property.
            Err(ZplError::NotFound) if name != b".zfs" && !name_ttl(&directory).is_zero() => Ok(no_entry(name_ttl(&directory))),
            Err(error) => Err(error.into()),
        }
    }

    fn forget(&self, node: NodeId, count: u64) {
        if node == NodeId::ROOT {
            return self.zfs.release(self.zfs.root(), count);
        }
        if ControlNode::of(node.0).is_some() {
            return;
        }
        let space = node.0 >> OBJECT_BITS;
        let zfs = if space == 0 { Some(self.zfs.clone()) } else { self.control.opened(space) };
        if let Some(zfs) = zfs {
            zfs.release(ObjectId(node.0 & OBJECT_MASK), count);
        }
    }

    fn getattr(&self, _caller: &Caller, node: NodeId, _handle: Option<FileHandle>) -> Reply<(FileAttr, Duration)> {
        match self.target(node)? {
            Target::Node(node, space) => self.attr(&node, space),
            Target::Control(control) => Ok((self.control.attr(control, stamp(self.zfs.now())), Duration::ZERO)),
        }
    }

    fn setattr(&self, _caller: &Caller, id: NodeId, set: &SetAttr) -> Reply<(FileAttr, Duration)> {
        let node = self.node(id)?;
        if let Some(size) = set.size {
            self.zfs.truncate(&node, size)?;
        }
        if let Some(changed) = attributes(set, self.zfs.now()) {
            self.zfs.set_attrs(&node, &changed)?;
        }
        self.finish(&node)?;
        self.attr(&node, 0)
    }

    fn readlink(&self, _caller: &Caller, node: NodeId) -> Reply<Vec<u8>> {
        let node = self.any_node(node)?;
        let target = node.zfs.read_link(&node)?;
        node.zfs.note_access(&node);
        Ok(target)
    }

    fn symlink(&self, caller: &Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Reply<Entry> {
        self.make(parent, name, &new_node(caller, &fuse::NewNode { mode: 0o120_777, ..fuse::NewNode::default() }, target))
    }

    fn mknod(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &fuse::NewNode) -> Reply<Entry> {
        self.make(parent, name, &new_node(caller, new, &[]))
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &fuse::NewNode) -> Reply<Entry> {
        if ControlNode::of(parent.0) == Some(ControlNode::Snapshots) {
            self.control.make(caller, name)?;
            return self.lookup_control(ControlNode::Snapshots, name);
        }
        self.make(parent, name, &new_node(caller, new, &[]))
    }

    fn unlink(&self, _caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        let directory = self.node(parent)?;
        self.zfs.unlink(&directory, name)?;
        self.finish(&directory)
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Reply<()> {
        if ControlNode::of(parent.0) == Some(ControlNode::Snapshots) {
            self.check_nobody_works_in(name)?;
            return Ok(self.control.remove(caller, name)?);
        }
        let directory = self.place(parent, name)?;
        self.zfs.rmdir(&directory, name)?;
        self.finish(&directory)
    }

    fn rename(&self, caller: &Caller, request: &RenameRequest<'_>) -> Reply<()> {
        let inside = [request.parent, request.new_parent].map(|id| ControlNode::of(id.0) == Some(ControlNode::Snapshots));
        if inside == [true; 2] && request.flags <= 1 {
            self.check_nobody_works_in(request.name)?;
            return Ok(self.control.rename(caller, request.name, request.new_name)?);
        }
        const WHITEOUT: u32 = 4;
        let whiteout = new_node(caller, &fuse::NewNode { mode: 0o020_000, ..fuse::NewNode::default() }, &[]);
        let leaves = (request.flags & WHITEOUT != 0).then_some(&whiteout);
        let mode = match request.flags & !WHITEOUT {
            0 => RenameMode::Replace,
            1 => RenameMode::NoReplace,
            2 => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        let (from, to) = (self.place(request.parent, request.name)?, self.place(request.new_parent, request.new_name)?);
        let (old, new) = (Place { directory: &from, name: request.name }, Place { directory: &to, name: request.new_name });
        self.zfs.rename_leaving(old, new, mode, leaves)?;
        self.finish(&to)
    }

    fn link(&self, _caller: &Caller, node: NodeId, new_parent: NodeId, new_name: &[u8]) -> Reply<Entry> {
        let (node, directory) = (self.node(node)?, self.node(new_parent)?);
        self.zfs.link(&node, &directory, new_name)?;
        self.finish(&directory)?;
        self.entry(&node, 0)
    }

    fn open(&self, _caller: &Caller, id: NodeId, flags: u32) -> Reply<Opened> {
        let node = self.node(id);
        if let Some(node) = node.as_ref().ok().filter(|_| kernel::may_change(flags)) {
            node.check_opens(flags & fuse::O_APPEND != 0)?;
        }
        self.note_open(id, flags, true);
        let opened = self.opened(flags);
        Ok(Opened { direct_io: opened.direct_io || node.is_ok_and(|node| lifetimes::reads_nothing(&node, flags)), ..opened })
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &fuse::NewNode, flags: u32) -> Reply<(Entry, Opened)> {
        let entry = self.make(parent, name, &new_node(caller, new, &[]))?;
        self.note_open(entry.node, flags, true);
        Ok((entry, self.opened(flags)))
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, new: &fuse::NewNode, flags: u32) -> Reply<(Entry, Opened)> {
        let directory = self.node(parent)?;
        let node = self.zfs.create_nameless(&directory, &self.masked(&new_node(caller, new, &[])))?;
        let entry = self.entry(&node, 0)?;
        self.note_open(entry.node, flags, true);
        Ok((entry, self.opened(flags)))
    }

    fn read(&self, _caller: &Caller, request: &ReadRequest) -> Reply<Abd> {
        let node = self.any_node(request.node)?;
        Ok(node.zfs.read_with(&node, request.offset, u64::from(request.size), moves::access(request.open_flags))?)
    }

    fn read_then(&self, _caller: &Caller, request: &ReadRequest, answer: Answer<Abd>) {
        match self.any_node(request.node) {
            Ok(node) => {
                if !request.past_cache {
                    node.kernel.note_pages();
                }
                let then = move |result: Result<Abd, ZplError>| answer.send(result.map_err(Errno::from));
                node.zfs.read_then(&node, request.offset, u64::from(request.size), moves::access(request.open_flags), Box::new(then));
            }
            Err(errno) => answer.send(Err(errno)),
        }
    }

    fn write(&self, _caller: &Caller, request: WriteRequest) -> Reply<u32> {
        let node = self.node(request.node)?;
        let (write, access) = moves::write_data(&node, request, self.is_always());
        Ok(self.zfs.write_with(&node, write, access)? as u32)
    }

    fn write_then(&self, _caller: &Caller, request: WriteRequest, answer: Answer<u32>) {
        match self.node(request.node) {
            Ok(node) => {
                let past_cache = moves::past_cache(self.lifetimes.notifier(), &node, &request);
                let (write, access) = moves::write_data(&node, request, self.is_always());
                let then = move |result: Result<u64, ZplError>| {
                    let reply = result.map(|bytes| bytes as u32).map_err(Errno::from);
                    match past_cache {
                        Some(past) => past.answer(answer, reply),
                        None => answer.send(reply),
                    }
                };
                self.zfs.write_then(&node, write, access, Box::new(then));
            }
            Err(errno) => answer.send(Err(errno)),
        }
    }

    fn fsync(&self, _caller: &Caller, node: NodeId, _handle: FileHandle, _data_only: bool) -> Reply<()> {
        match self.target(node)? {
            Target::Node(held, 0) if held.zfs.objset().props().sync != dmu::SyncMode::Disabled => {
                self.zfs.fsync(&held)?;
                self.lifetimes.synced(&held.kernel, node);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn release(&self, node: NodeId, _handle: FileHandle, flags: u32) {
        self.note_open(node, flags, false);
    }

    fn opendir(&self, _caller: &Caller, node: NodeId, _flags: u32) -> Reply<Opened> {
        self.count_open(node, true);
        // Whether the root lists `.zfs` is a property.
        let directory = self.node(node).ok().filter(|_| node != NodeId::ROOT);
        Ok(directory.map_or_else(Opened::default, |directory| lifetimes::opened_directory(&directory)))
    }

    fn releasedir(&self, node: NodeId, _handle: FileHandle) {
        self.count_open(node, false);
    }

    fn readdir(&self, _caller: &Caller, node: NodeId, _handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.list(node, offset, false, sink)
    }

    fn readdirplus(&self, _caller: &Caller, node: NodeId, _handle: FileHandle, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        self.list(node, offset, true, sink)
    }

    fn fsyncdir(&self, caller: &Caller, node: NodeId, handle: FileHandle, data_only: bool) -> Reply<()> {
        self.fsync(caller, node, handle, data_only)
    }

    fn statfs(&self, _caller: &Caller, node: NodeId) -> Reply<Statfs> {
        Ok(self.zfs.statfs(self.node(node).ok().as_deref())?)
    }

    fn setxattr(&self, _caller: &Caller, node: NodeId, set: &SetXattr<'_>) -> Reply<()> {
        let node = self.node(node)?;
        match is_list(set.name) {
            true => self.set_list(&node, set.name, Some(set.value), set.kill_sgid)?,
            false => self.zfs.set_xattr(&node, set.name, set.value, set_mode(set.flags))?,
        }
        self.finish(&node)
    }

    fn getxattr(&self, _caller: &Caller, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        match self.target(node)? {
            Target::Node(node, _) => Ok(node.zfs.get_xattr(&node, name)?),
            Target::Control(_) => Err(Errno::ENODATA),
        }
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> Reply<Vec<u8>> {
        let Target::Node(node, _) = self.target(node)? else { return Ok(Vec::new()) };
        Ok(listed(node.zfs.list_xattrs(&node)?, caller))
    }

    fn removexattr(&self, _caller: &Caller, node: NodeId, name: &[u8]) -> Reply<()> {
        let node = self.node(node)?;
        match is_list(name) {
            true => self.set_list(&node, name, None, false)?,
            false => self.zfs.remove_xattr(&node, name)?,
        }
        self.finish(&node)
    }

    fn ioctl(&self, caller: &Caller, id: NodeId, command: u32, argument: &[u8]) -> Reply<Vec<u8>> {
        let node = self.any_node(id).map_err(|_| Errno::ENOTTY)?;
        let Some(change) = file_flags::asked(&node.fields(), command, argument)? else {
            return file_flags::shown(&node.fields(), command);
        };
        let node = self.node(id)?;
        file_flags::check_caller(caller, &node.fields(), change)?;
        self.zfs.change_flags(&node, change)?;
        self.lifetimes.changed(id);
        self.finish(&node)?;
        Ok(Vec::new())
    }

    fn fallocate(&self, caller: &Caller, request: &FallocateRequest) -> Reply<()> {
        let how = allocation(request.mode).ok_or(Errno::EOPNOTSUPP)?;
        let node = self.node(request.node)?;
        self.drop_suid(caller, &node)?;
        self.zfs.allocate(&node, request.offset, request.length, how)?;
        self.finish(&node)
    }

    fn copy(&self, caller: &Caller, request: &CopyRequest) -> Reply<u64> {
        // Bytes of a snapshot the kernel copies itself.
        let (Target::Node(from, 0), 0) = (self.target(request.from)?, request.flags) else { return Err(Errno::EOPNOTSUPP) };
        let to = self.node(request.to)?;
        let copied = moves::share(&self.zfs, (&from.node, &to.node), request)?;
        if copied > 0 {
            self.drop_suid(caller, &to)?;
            self.finish(&to)?;
        }
        Ok(copied)
    }

    fn lseek_then(&self, _caller: &Caller, request: &SeekRequest, answer: Answer<u64>) {
        match self.any_node(request.node) {
            Ok(node) => seek_then(node.zfs, node.node, request, self.lifetimes.notifier(), answer),
            Err(errno) => answer.send(Err(errno)),
        }
    }

    fn syncfs(&self, _caller: &Caller) -> Reply<()> {
        match &self.is_suspended {
            Some(is_suspended) if is_suspended() => Err(Errno::EIO),
            _ => Ok(self.zfs.sync()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::device_number::{decode_device, encode_device};

    /// A device node whose number changes on the way points to another device.
    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(0u64, 0u64), (8, 1), (259, 0xf_ffff), (0xfff, 256), (1, 300)] {
            let stored = major << 20 | minor;
            assert_eq!(decode_device(encode_device(stored)), stored);
        }
        assert_eq!(u64::from(encode_device(8 << 20 | 1)), 0x801);
    }
}
