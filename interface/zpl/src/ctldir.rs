//! `.zfs/snapshot`: the snapshots of a file system as directories (OpenZFS: `zfs_ctldir.c`).
//!
//! A snapshot is opened, and its dataset held, when it is entered. It is closed when it was not used for a while and none of its
//! files is open, when it is to be destroyed ([`Ctldir::close`]), and with the mount. Each gets a number that marks its nodes; the
//! kernel's references to nodes of one that was closed are stale, so that it looks their paths up again.

use crate::{Settings, Zfs, ZplError};
use dmu::Objset;
use exec::Mutex;
use fuse::{Caller, DirEntry, DirSink, FileAttr, Reply, Timestamp};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Source of the snapshots of a file system (the dataset).
pub trait SnapshotSource: Send + Sync {
    /// Names of the snapshots, oldest first.
    fn list(&self) -> Result<Vec<String>, ZplError>;
    /// Opens a snapshot.
    fn open(&self, name: &str) -> Result<OpenSnapshot, ZplError>;
    /// Time at which a snapshot was last taken, destroyed or renamed, in seconds and nanoseconds since 1970; zeros when nobody knows.
    fn changed(&self) -> (u64, u32);
    /// True when the user with this number, and that of a group, who does not own the daemon, may take snapshots.
    fn may_create(&self, uid: u32, gid: u32) -> bool;
    /// Takes a snapshot.
    fn create(&self, name: &str) -> Result<(), ZplError>;
    /// Destroys a snapshot.
    fn destroy(&self, name: &str) -> Result<(), ZplError>;
    /// Gives a snapshot another name.
    fn rename(&self, from: &str, to: &str) -> Result<(), ZplError>;
}

static MAY_CHANGE: AtomicBool = AtomicBool::new(false);

/// Sets whether snapshots are made, destroyed and renamed by `mkdir`, `rmdir` and `mv` in `.zfs/snapshot` (OpenZFS: `zfs_admin_snapshot`).
pub fn set_admin_snapshot(may_change: bool) {
    MAY_CHANGE.store(may_change, Ordering::Relaxed);
}

/// Snapshot that is held.
pub struct OpenSnapshot {
    /// Object set of the snapshot.
    pub objset: Arc<Objset>,
    /// Hold that keeps the snapshot from being destroyed.
    pub hold: Box<dyn Any + Send + Sync>,
}

/// Nanoseconds without use after which a snapshot is closed (OpenZFS: `zfs_expire_snapshot`).
const IDLE_NS: u64 = 300_000_000_000;

/// Directory that exists in no object set; numbers as OpenZFS's `ZFSCTL_INO_*`, marked so that no object has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlNode {
    /// Directory `.zfs`.
    Root,
    /// Directory `.zfs/snapshot`.
    Snapshots,
}

const ROOT: u64 = 0x0000_FFFF_FFFF_FFFF;
const SNAPSHOTS: u64 = 0x0000_FFFF_FFFF_FFFD;
const DT_DIR: u32 = 4;

impl ControlNode {
    pub(crate) fn of(number: u64) -> Option<ControlNode> {
        match number {
            ROOT => Some(ControlNode::Root),
            SNAPSHOTS => Some(ControlNode::Snapshots),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            ControlNode::Root => ROOT,
            ControlNode::Snapshots => SNAPSHOTS,
        }
    }
}

fn utf8(name: &[u8]) -> Result<&str, ZplError> {
    std::str::from_utf8(name).map_err(|_| ZplError::Invalid)
}

#[derive(Default)]
struct Opened {
    by_name: HashMap<String, u64>,
    by_number: HashMap<u64, Entered>,
    last: u64,
}

/// Snapshot that was entered.
struct Entered {
    zfs: Arc<Zfs>,
    _hold: Box<dyn Any + Send + Sync>,
    /// Number of files and directories that are open.
    open_files: u64,
    used_ns: u64,
}

impl Opened {
    fn close_idle(&mut self, now_ns: u64) {
        self.by_number.retain(|_, entered| entered.open_files > 0 || now_ns.saturating_sub(entered.used_ns) < IDLE_NS);
        self.by_name.retain(|_, number| self.by_number.contains_key(number));
    }
}

/// Snapshot that was entered under `.zfs/snapshot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnteredSnapshot {
    /// Name of the snapshot.
    pub name: String,
    /// Number that marks its nodes.
    pub number: u64,
    /// Number of its files and directories that are open.
    pub open_files: u64,
}

/// Directory `.zfs`, with the snapshots that were entered.
pub(crate) struct Ctldir {
    source: Option<Arc<dyn SnapshotSource>>,
    opened: Mutex<Opened>,
}

impl Ctldir {
    pub(crate) fn new(source: Option<Arc<dyn SnapshotSource>>) -> Ctldir {
        Ctldir { source, opened: Mutex::default() }
    }

    /// Attributes of a control directory, of which nothing is stored.
    pub fn attr(&self, control: ControlNode, now: Timestamp) -> FileAttr {
        // Programs that look for new snapshots look here (OpenZFS: `zpl_snapdir_getattr_impl`).
        let changed = match control {
            ControlNode::Root => now,
            ControlNode::Snapshots => {
                let (seconds, nanoseconds) = self.changed();
                Timestamp { seconds: seconds as _, nanoseconds }
            }
        };
        FileAttr {
            ino: control.number(),
            size: 2,
            atime: now,
            mtime: changed,
            ctime: changed,
            btime: now,
            mode: match control {
                // Whoever may is looked at then (OpenZFS: `zfsctl_inode_alloc`).
                ControlNode::Snapshots if MAY_CHANGE.load(Ordering::Relaxed) => 0o040_777,
                _ => 0o040_555,
            },
            nlink: 2,
            blksize: 512,
            ..FileAttr::default()
        }
    }

    /// True when there is a `.zfs`.
    pub(crate) fn is_present(&self) -> bool {
        self.source.is_some()
    }

    /// File system of the snapshot with this number.
    pub(crate) fn opened(&self, number: u64) -> Option<Arc<Zfs>> {
        let mut opened = self.opened.lock();
        let entered = opened.by_number.get_mut(&number)?;
        entered.used_ns = entered.zfs.objset().io().exec().now_ns();
        Some(entered.zfs.clone())
    }

    /// Counts a file or directory of a snapshot that was opened, or closed.
    pub(crate) fn count_open(&self, number: u64, is_open: bool) {
        if let Some(entered) = self.opened.lock().by_number.get_mut(&number) {
            entered.open_files = if is_open { entered.open_files + 1 } else { entered.open_files.saturating_sub(1) };
        }
    }

    /// Time at which the snapshots last changed, in seconds and nanoseconds since 1970.
    pub(crate) fn changed(&self) -> (u64, u32) {
        self.source.as_ref().map_or((0, 0), |source| source.changed())
    }

    pub(crate) fn has_entered(&self, name: &str) -> bool {
        self.opened.lock().by_name.contains_key(name)
    }

    /// Closes a snapshot that is to be destroyed; false when a file of it is open.
    pub(crate) fn close(&self, name: &str) -> bool {
        let mut opened = self.opened.lock();
        let Some(&number) = opened.by_name.get(name) else { return true };
        if opened.by_number.get(&number).is_some_and(|entered| entered.open_files > 0) {
            return false;
        }
        opened.by_name.remove(name);
        let closed = opened.by_number.remove(&number);
        drop(opened);
        drop(closed);
        true
    }

    /// Source of the snapshots, for changes by root and by whoever the daemon belongs to (OpenZFS asks for the rights that the command needs).
    fn changeable(&self, caller: &Caller) -> Result<&dyn SnapshotSource, ZplError> {
        let source = self.source.as_deref().ok_or(ZplError::NotFound)?;
        if !MAY_CHANGE.load(Ordering::Relaxed) {
            return Err(ZplError::AccessDenied);
        }
        let is_ours = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
        if is_ours { Ok(source) } else { Err(ZplError::NotPermitted) }
    }

    /// Takes a snapshot for `mkdir` in `.zfs/snapshot` (OpenZFS: `zfsctl_snapdir_mkdir`), also for a user to whom that was delegated.
    pub(crate) fn make(&self, caller: &Caller, name: &[u8]) -> Result<(), ZplError> {
        let source = match self.changeable(caller) {
            Err(ZplError::NotPermitted) => {
                let source = self.source.as_deref().filter(|source| source.may_create(caller.uid, caller.gid));
                source.ok_or(ZplError::NotPermitted)?
            }
            result => result?,
        };
        source.create(utf8(name)?)
    }

    /// Destroys a snapshot for `rmdir` in `.zfs/snapshot` (OpenZFS: `zfsctl_snapdir_remove`).
    pub(crate) fn remove(&self, caller: &Caller, name: &[u8]) -> Result<(), ZplError> {
        let (source, name) = (self.changeable(caller)?, utf8(name)?);
        if !self.close(name) {
            return Err(ZplError::Busy);
        }
        source.destroy(name)
    }

    /// Renames a snapshot for `rename` within `.zfs/snapshot` (OpenZFS: `zfsctl_snapdir_rename`).
    pub(crate) fn rename(&self, caller: &Caller, from: &[u8], to: &[u8]) -> Result<(), ZplError> {
        let (source, from, to) = (self.changeable(caller)?, utf8(from)?, utf8(to)?);
        if from == to {
            return Ok(());
        }
        if !self.close(from) {
            return Err(ZplError::Busy);
        }
        source.rename(from, to)
    }

    /// Snapshots that were entered.
    pub(crate) fn entered(&self) -> Vec<EnteredSnapshot> {
        let opened = self.opened.lock();
        let entered = |(name, number): (&String, &u64)| {
            let open_files = opened.by_number.get(number)?.open_files;
            Some(EnteredSnapshot { name: name.clone(), number: *number, open_files })
        };
        opened.by_name.iter().filter_map(entered).collect()
    }

    /// Enters a snapshot as another server had entered it.
    pub(crate) fn enter_again(&self, entered: &EnteredSnapshot, settings: Settings) -> Result<(), ZplError> {
        let source = self.source.as_ref().ok_or(ZplError::NotFound)?;
        let OpenSnapshot { objset, hold } = source.open(&entered.name)?;
        let zfs = Zfs::open(&objset, None, Settings { atime: false, snapshot: true, ..settings })?;
        let used_ns = objset.io().exec().now_ns();
        let mut opened = self.opened.lock();
        opened.last = opened.last.max(entered.number);
        opened.by_name.insert(entered.name.clone(), entered.number);
        opened.by_number.insert(entered.number, Entered { zfs, _hold: hold, open_files: entered.open_files, used_ns });
        Ok(())
    }

    /// Closes all snapshots: the end of a mount.
    pub(crate) fn close_all(&self) {
        let closed = std::mem::take(&mut self.opened.lock().by_number);
        drop(closed);
    }

    /// Opens a snapshot by name. One that was destroyed and made again is another one.
    pub(crate) fn open(&self, name: &[u8], settings: Settings) -> Result<(u64, Arc<Zfs>), ZplError> {
        let source = self.source.as_ref().ok_or(ZplError::NotFound)?;
        let name = utf8(name).map_err(|_| ZplError::NotFound)?;
        let OpenSnapshot { objset, hold } = source.open(name)?;
        let now_ns = objset.io().exec().now_ns();
        let mut opened = self.opened.lock();
        if let Some(number) = opened.by_name.get(name).copied()
            && let Some(entered) = opened.by_number.get_mut(&number)
            && entered.zfs.objset().id() == objset.id()
        {
            entered.used_ns = now_ns;
            return Ok((number, entered.zfs.clone()));
        }
        opened.close_idle(now_ns);
        let zfs = Zfs::open(&objset, None, Settings { atime: false, snapshot: true, ..settings })?;
        opened.last += 1;
        let number = opened.last;
        opened.by_name.insert(name.to_string(), number);
        opened.by_number.insert(number, Entered { zfs: zfs.clone(), _hold: hold, open_files: 0, used_ns: now_ns });
        Ok((number, zfs))
    }

    /// Lists `.zfs` or `.zfs/snapshot`.
    pub(crate) fn list(&self, node: ControlNode, offset: u64, sink: &mut dyn DirSink) -> Reply<()> {
        let mut names: Vec<(String, u64)> = vec![(".".into(), node.number()), ("..".into(), ROOT)];
        match node {
            ControlNode::Root => names.push(("snapshot".into(), SNAPSHOTS)),
            ControlNode::Snapshots => {
                let list = self.source.as_ref().map_or(Ok(Vec::new()), |source| source.list())?;
                // The numbers of their roots are known when they are entered; any number but 0 is good for a listing.
                names.extend(list.into_iter().zip(1..).map(|(name, index)| (name, SNAPSHOTS - index)));
            }
        }
        for (index, (name, ino)) in names.iter().enumerate().skip(offset as usize) {
            let entry = DirEntry { ino: *ino, next: index as u64 + 1, kind: DT_DIR, name: name.as_bytes() };
            if !sink.add(entry) {
                break;
            }
        }
        Ok(())
    }
}
