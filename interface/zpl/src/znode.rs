//! A node in memory: its attributes and its locks.

use crate::ZplError;
use crate::direct::{DirectSnapshot, DirectStats, Edges};
use crate::kernel::KernelView;
use crate::sa::{Attr, Attrs, Sa};
use crate::userspace::Owner;
use dmu::{Dnode, Tx};
use exec::{Exec, Mutex, RwLock};
use nvlist::NvList;
use ondisk::{ObjectId, Txg};
use range_lock::{RangeGuard, RangeLock};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Time in seconds and nanoseconds since the epoch.
pub type Time = (i64, u32);

pub(crate) const S_IFMT: u64 = 0o170_000;
pub(crate) const S_IFDIR: u64 = 0o040_000;
pub(crate) const S_IFREG: u64 = 0o100_000;
pub(crate) const S_IFLNK: u64 = 0o120_000;
pub(crate) const S_IFCHR: u64 = 0o020_000;
pub(crate) const S_IFBLK: u64 = 0o060_000;
pub(crate) const S_ISUID: u64 = 0o4000;
pub(crate) const S_ISGID: u64 = 0o2000;

/// Bits of ZPL_FLAGS (OpenZFS: `zfs_znode.h`).
pub(crate) mod flag {
    pub const XATTR: u64 = 0x1;
    pub const ACL_TRIVIAL: u64 = 0x4;
    pub const ACL_AUTO_INHERIT: u64 = 0x40;
    pub const NO_EXECS_DENIED: u64 = 0x100;
    pub const READONLY: u64 = 0x1_0000_0000;
    pub const HIDDEN: u64 = 0x2_0000_0000;
    pub const SYSTEM: u64 = 0x4_0000_0000;
    pub const ARCHIVE: u64 = 0x8_0000_0000;
    pub const IMMUTABLE: u64 = 0x10_0000_0000;
    pub const NOUNLINK: u64 = 0x20_0000_0000;
    pub const APPENDONLY: u64 = 0x40_0000_0000;
    pub const NODUMP: u64 = 0x80_0000_0000;
    pub const AV_MODIFIED: u64 = 0x400_0000_0000;
    pub const REPARSE: u64 = 0x800_0000_0000;
    pub const OFFLINE: u64 = 0x1000_0000_0000;
    pub const SPARSE: u64 = 0x2000_0000_0000;
    pub const PROJINHERIT: u64 = 0x4000_0000_0000;
    pub const PROJID: u64 = 0x8000_0000_0000;
}

/// Attributes that operations look at, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Type and permissions of the node.
    pub mode: u64,
    /// Size in bytes; of a directory its number of entries with `.` and `..`.
    pub size: u64,
    /// Txg of creation: the generation.
    pub generation: u64,
    /// User id of the owner.
    pub uid: u64,
    /// Group id.
    pub gid: u64,
    /// Object of a directory that holds the node.
    pub parent: u64,
    /// Flags of the node: ZPL_FLAGS.
    pub flags: u64,
    /// Number of hard links.
    pub links: u64,
    /// Access, modification, change and birth times.
    pub times: [Time; 4],
    /// Object of the directory of extended attributes, 0 for none.
    pub xattr: u64,
    /// Device number as stored.
    pub rdev: u64,
    /// Number of the project.
    pub project: u64,
}

/// Index of the access time in [`Fields::times`].
pub(crate) const ATIME: usize = 0;
/// Index of the modification time in [`Fields::times`].
pub(crate) const MTIME: usize = 1;
/// Index of the change time in [`Fields::times`].
pub(crate) const CTIME: usize = 2;
/// Index of the birth time in [`Fields::times`].
pub(crate) const CRTIME: usize = 3;

pub(crate) struct State {
    pub(crate) attrs: Attrs,
    pub(crate) fields: Fields,
    pub(crate) unlinked: bool,
    /// True when `times[ATIME]` is newer than what the object says.
    pub(crate) atime_dirty: bool,
    /// Decoded ZPL_DXATTR.
    pub(crate) xattrs: Option<Arc<NvList>>,
}

/// Bytes from which on the kernel may hand over a request in parts (Linux: 256 pages, unless `max_pages_limit` allows more).
const LONG_BYTES: u64 = 1 << 20;

/// Number of records of a file that are noted at a time because short direct writes fill them, at most.
const EDGES_MAX: usize = 256;

/// Node of a file system; use it through [`crate::Node`].
pub struct Znode {
    pub(crate) object: ObjectId,
    pub(crate) dnode: Arc<Dnode>,
    pub(crate) state: Mutex<State>,
    /// Lock of the names of a directory, and of the extended attributes of any node. Held across reads of directory blocks
    /// and while a transaction is waited for; never asked for while a transaction is open.
    pub(crate) names: RwLock<()>,
    pub(crate) ranges: Arc<RangeLock>,
    /// Counts of direct I/O, from the first request that asked for it.
    direct: OnceLock<Arc<DirectStats>>,
    /// Offsets in bytes at which the last long direct read and write ended that may be a part of one request (see [`Znode::goes_on`]).
    long_ends: [AtomicU64; 2],
    /// Records that short direct writes are filling.
    edges: Mutex<Option<Box<Edges>>>,
    /// Txg from which on these are noted.
    notes_parts_from: AtomicU64,
    last_txg: AtomicU64,
    /// View that a mount has of the kernel's pages.
    pub(crate) kernel: Arc<KernelView>,
}

impl std::fmt::Debug for Znode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Znode({})", self.object)
    }
}

pub(crate) fn encode_time(time: Time) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&time.0.to_le_bytes());
    bytes[8..].copy_from_slice(&u64::from(time.1).to_le_bytes());
    bytes
}

fn decode_time(bytes: &[u8]) -> Option<Time> {
    let seconds = i64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let nanoseconds = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some((seconds, (nanoseconds % 1_000_000_000) as u32))
}

pub(crate) fn decode_fields(sa: &Sa, attrs: &Attrs) -> Result<Fields, ZplError> {
    let must = |attr| sa.get_u64(attrs, attr).ok_or(ZplError::CORRUPT);
    let may = |attr| sa.get_u64(attrs, attr).unwrap_or(0);
    let mut times = [(0, 0); 4];
    for (time, attr) in times.iter_mut().zip([Attr::Atime, Attr::Mtime, Attr::Ctime, Attr::Crtime]) {
        *time = sa.get(attrs, attr).and_then(decode_time).ok_or(ZplError::CORRUPT)?;
    }
    Ok(Fields {
        mode: must(Attr::Mode)?,
        size: must(Attr::Size)?,
        generation: must(Attr::Gen)?,
        uid: must(Attr::Uid)?,
        gid: must(Attr::Gid)?,
        parent: must(Attr::Parent)?,
        flags: must(Attr::Flags)?,
        links: must(Attr::Links)?,
        times,
        xattr: may(Attr::Xattr),
        rdev: may(Attr::Rdev),
        project: may(Attr::Projid),
    })
}

impl Fields {
    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }
    /// True for a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }
    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }
    /// Owner who is charged for the node.
    pub(crate) fn owner(&self) -> Owner {
        let project = (self.flags & flag::PROJID != 0).then_some(self.project);
        Owner { uid: Some(self.uid), gid: Some(self.gid), project }
    }
    /// Checks that a directory which hands its project on takes only what has the same (OpenZFS: `zfs_link`, `zfs_rename`).
    pub(crate) fn check_takes(&self, other: &Fields) -> Result<(), ZplError> {
        if self.flags & flag::PROJINHERIT != 0 && self.project != other.project { Err(ZplError::CrossDevice) } else { Ok(()) }
    }
}

impl State {
    /// Gives an older node the project number that it lacks; one that has a number keeps it.
    pub(crate) fn give_project(&mut self, sa: &Sa, dnode: &Dnode, project: u64, tx: &Tx) -> Result<(), ZplError> {
        if self.fields.flags & flag::PROJID != 0 {
            return Ok(());
        }
        sa.insert(dnode, &mut self.attrs, (Attr::Projid, &project.to_le_bytes()), Attr::Links, tx)?;
        self.fields.flags |= flag::PROJID;
        self.fields.project = project;
        Ok(())
    }
}

impl Znode {
    pub(crate) fn new(object: ObjectId, dnode: Arc<Dnode>, attrs: Attrs, fields: Fields) -> Znode {
        let unlinked = fields.links == 0;
        let state = State { attrs, fields, unlinked, atime_dirty: false, xattrs: None };
        Znode {
            object,
            dnode,
            state: Mutex::new(state),
            names: RwLock::new(()),
            ranges: Arc::default(),
            direct: OnceLock::new(),
            long_ends: [const { AtomicU64::new(u64::MAX) }; 2],
            edges: Mutex::new(None),
            notes_parts_from: AtomicU64::new(0),
            last_txg: AtomicU64::new(0),
            kernel: Arc::default(),
        }
    }

    /// Object number of the node, which is the inode number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Waits for a range of the node's bytes.
    pub(crate) fn lock_range(&self, exec: &Exec, range: Range<u64>, writer: bool) -> RangeGuard {
        self.ranges.lock(exec, range, writer)
    }

    /// Counts of the node's direct I/O, which count in those of its `dataset` too.
    pub(crate) fn direct_stats(&self, dataset: &Arc<DirectStats>) -> &DirectStats {
        self.direct.get_or_init(|| DirectStats::of_file(dataset.clone()))
    }

    /// Notes a direct transfer of these bytes; true when it may be the end of a request that began with the one before: the kernel
    /// hands over long requests in parts, and says of none that it is one.
    pub(crate) fn goes_on(&self, range: &Range<u64>, is_write: bool) -> bool {
        let is_long = range.end - range.start >= LONG_BYTES;
        let end = if is_long { range.end } else { u64::MAX };
        self.long_ends[usize::from(is_write)].swap(end, Ordering::Relaxed) == range.start
    }

    /// Has parts of records not noted before this txg.
    pub(crate) fn rest_parts(&self, txg: Txg) {
        self.notes_parts_from.fetch_max(txg.0, Ordering::Relaxed);
    }

    /// Notes that a direct write has put parts of records of `record` bytes into memory in this txg. Gives the range of the first of them that has all
    /// of its parts with it: a hint, since the bytes may have become others meanwhile.
    pub(crate) fn note_part(&self, range: &Range<u64>, record: u64, txg: Txg) -> Option<Range<u64>> {
        if txg.0 < self.notes_parts_from.load(Ordering::Relaxed) {
            return None;
        }
        let mut held = self.edges.lock();
        let edges = held.get_or_insert_with(|| Box::new(Edges::new(EDGES_MAX)));
        let (mut at, mut complete) = (range.start, None);
        while at < range.end {
            let start = at - at % record;
            let next = (start + record).min(range.end);
            let within = (at - start) as usize..(next - start) as usize;
            if edges.cover(start / record, within, record as usize).is_some() {
                complete = complete.or(Some(start..start + record));
            }
            at = next;
        }
        complete
    }

    /// Counts of the node's direct I/O, when there are any.
    pub(crate) fn direct_counts(&self) -> Option<DirectSnapshot> {
        self.direct.get().map(|stats| stats.snapshot())
    }

    /// Attributes of the node now.
    pub fn fields(&self) -> Fields {
        self.state.lock().fields
    }

    /// True for a node of before system attributes, which has a fixed record in their place.
    pub(crate) fn is_legacy(&self) -> bool {
        self.state.lock().attrs.is_legacy()
    }

    /// Checks that the node may be opened for writing: who only appends may write to a file that is append-only (Linux: `may_open`).
    pub(crate) fn check_opens(&self, appends: bool) -> Result<(), ZplError> {
        let forbids = if appends { flag::IMMUTABLE } else { flag::IMMUTABLE | flag::APPENDONLY };
        if self.fields().flags & forbids == 0 { Ok(()) } else { Err(ZplError::NotPermitted) }
    }

    /// Checks that the node's extended attributes may change (Linux: `xattr_permission`).
    pub(crate) fn check_attributes_change(&self) -> Result<(), ZplError> {
        self.check_opens(false)
    }

    /// Checks that the node has data; gives its attributes.
    pub(crate) fn check_regular(&self) -> Result<Fields, ZplError> {
        let fields = self.fields();
        match (fields.is_regular(), fields.is_directory()) {
            (true, _) => Ok(fields),
            (_, true) => Err(ZplError::IsDirectory),
            _ => Err(ZplError::Invalid),
        }
    }

    /// Checks that names can be entered in the directory.
    pub(crate) fn check_live_directory(&self) -> Result<(), ZplError> {
        let state = self.state.lock();
        if !state.fields.is_directory() {
            return Err(ZplError::NotDirectory);
        }
        if state.unlinked {
            return Err(ZplError::NotFound);
        }
        if state.fields.flags & flag::IMMUTABLE != 0 {
            return Err(ZplError::NotPermitted);
        }
        Ok(())
    }

    /// Owner who is charged for the node.
    pub(crate) fn owner(&self) -> Owner {
        self.fields().owner()
    }

    /// Txg that was the last to change the node.
    pub(crate) fn last_txg(&self) -> u64 {
        self.last_txg.load(Ordering::Acquire)
    }

    pub(crate) fn touch(&self, tx: &Tx) {
        self.changed_by(tx.txg().0);
    }

    /// Notes that a txg up to this one changed the node.
    pub(crate) fn changed_by(&self, txg: u64) {
        self.last_txg.fetch_max(txg, Ordering::AcqRel);
    }

    /// Changes attributes in the transaction: `change` edits the decoded fields and what differs is written.
    pub(crate) fn update<R>(&self, sa: &Sa, tx: &Tx, change: impl FnOnce(&mut Fields) -> R) -> Result<R, ZplError> {
        self.update_then(sa, tx, change, |_, _| ())
    }

    /// Does [`Znode::update`]; `then` sees the node before anybody changes it again. It must not wait.
    pub(crate) fn update_then<R>(
        &self,
        sa: &Sa,
        tx: &Tx,
        change: impl FnOnce(&mut Fields) -> R,
        then: impl FnOnce(&State, &R),
    ) -> Result<R, ZplError> {
        let mut state = self.state.lock();
        let (before, atime_dirty) = (state.fields, state.atime_dirty);
        let result = change(&mut state.fields);
        if let Err(error) = self.write_back(sa, &mut state, tx) {
            // What of it reached the attributes is put back; if that fails too, the next change does it.
            state.fields = before;
            let _ = self.write_back(sa, &mut state, tx);
            state.atime_dirty = atime_dirty;
            return Err(error);
        }
        then(&state, &result);
        Ok(result)
    }

    /// Changes attributes beyond the decoded fields: all that `edit` does, or nothing of it.
    pub(crate) fn edit(&self, sa: &Sa, tx: &Tx, edit: impl FnOnce(&mut State) -> Result<(), ZplError>) -> Result<(), ZplError> {
        self.edit_then(sa, tx, edit, |_| ())
    }

    /// Does [`Znode::edit`]; `then` sees the node before anybody changes it again. It must not wait.
    pub(crate) fn edit_then(
        &self,
        sa: &Sa,
        tx: &Tx,
        edit: impl FnOnce(&mut State) -> Result<(), ZplError>,
        then: impl FnOnce(&State),
    ) -> Result<(), ZplError> {
        let mut state = self.state.lock();
        let (attrs, fields, xattrs, atime_dirty) = (state.attrs.clone(), state.fields, state.xattrs.clone(), state.atime_dirty);
        let result = edit(&mut state).and_then(|()| self.write_back(sa, &mut state, tx));
        if result.is_err() {
            state.attrs = attrs.rewritten_over(&state.attrs);
            (state.fields, state.xattrs, state.atime_dirty) = (fields, xattrs, atime_dirty);
            let _ = sa.store(&self.dnode, &mut state.attrs, tx);
        }
        result.inspect(|()| then(&state))
    }

    /// Writes the decoded fields into the attributes and those to the object.
    pub(crate) fn write_back(&self, sa: &Sa, state: &mut State, tx: &Tx) -> Result<(), ZplError> {
        let fields = state.fields;
        let attrs = &mut state.attrs;
        let mut put = |attr, value: u64| sa.set(&self.dnode, attrs, attr, &value.to_le_bytes(), tx);
        put(Attr::Mode, fields.mode)?;
        put(Attr::Size, fields.size)?;
        put(Attr::Uid, fields.uid)?;
        put(Attr::Gid, fields.gid)?;
        put(Attr::Parent, fields.parent)?;
        put(Attr::Flags, fields.flags)?;
        put(Attr::Links, fields.links)?;
        for (attr, time) in [(Attr::Atime, ATIME), (Attr::Mtime, MTIME), (Attr::Ctime, CTIME), (Attr::Crtime, CRTIME)] {
            sa.set(&self.dnode, &mut state.attrs, attr, &encode_time(fields.times[time]), tx)?;
        }
        if fields.flags & flag::PROJID != 0 && sa.get(&state.attrs, Attr::Projid).is_some() {
            sa.set(&self.dnode, &mut state.attrs, Attr::Projid, &fields.project.to_le_bytes(), tx)?;
        }
        if fields.xattr != 0 || sa.get(&state.attrs, Attr::Xattr).is_some() {
            sa.set(&self.dnode, &mut state.attrs, Attr::Xattr, &fields.xattr.to_le_bytes(), tx)?;
        }
        state.atime_dirty = false;
        sa.store(&self.dnode, &mut state.attrs, tx)?;
        self.touch(tx);
        Ok(())
    }
}

/// Clears setuid, and setgid where it means set-group-id on execution.
pub(crate) fn clear_suid(mode: &mut u64) {
    *mode &= !S_ISUID;
    if *mode & 0o010 != 0 {
        *mode &= !S_ISGID;
    }
}
