//! Names in directories: looking up, listing, linking, removing.
//!
//! A directory is a ZAP from name to `type << 60 | object`; `..` is the node's parent attribute, and the size attribute counts
//! the entries with `.` and `..` (OpenZFS: `zfs_dir.c`, `zfs_dirent`).

use crate::fs::{CaseSensitivity, TX_NAMES};
use crate::undo::Undo;
use crate::znode::{CTIME, Fields, MTIME, Node, S_IFMT, Znode, flag};
use crate::{Zfs, ZplError};
use exec::RwLockWriteGuard;
use ondisk::ObjectId;
use std::sync::Arc;
use zap::{Attribute, Match, Zap};

/// Longest name in bytes (OpenZFS: `ZFS_MAX_DATASET_NAME_LEN` is another matter; `MAXNAMELEN` − 1).
pub const NAME_BYTES_MAX: usize = 255;
/// The same with the property `longname`.
pub const LONG_NAME_BYTES_MAX: usize = zap::LONGNAME_BYTES_MAX - 1;
/// OpenZFS: `ZFS_LINK_MAX`.
const LINKS_MAX: u64 = u64::MAX >> 1;
const OBJECT_MASK: u64 = (1 << 48) - 1;

/// A name found in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// The object.
    pub object: ObjectId,
    /// DT_* type; 0 when the file system is too old to say.
    pub kind: u8,
}

/// One step of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What it names.
    pub dirent: Dirent,
    /// Cookie behind it.
    pub next: u64,
}

/// Cookies below this one are `.`, `..` and `.zfs`; 0 starts the listing.
const COOKIE_FIRST: u64 = 3;

/// Locks the names of directories in the order that everybody keeps to: by object number, each once.
pub(crate) fn lock_names<'a>(nodes: &[&'a Znode]) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut sorted = nodes.to_vec();
    sorted.sort_by_key(|node| node.object);
    sorted.dedup_by_key(|node| node.object);
    sorted.into_iter().map(|node| node.names.write()).collect()
}

fn dirent(value: u64) -> Dirent {
    Dirent { object: ObjectId(value & OBJECT_MASK), kind: (value >> 60) as u8 }
}

impl Zfs {
    /// Longest name that a file can get, in bytes: the property `longname` decides.
    pub(crate) fn name_bytes_max(&self) -> usize {
        if self.settings().longname { LONG_NAME_BYTES_MAX } else { NAME_BYTES_MAX }
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<(), ZplError> {
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(ZplError::Invalid);
        }
        if name.len() > self.name_bytes_max() {
            return Err(ZplError::NameTooLong);
        }
        if name == b"." || name == b".." {
            return Err(ZplError::Exists);
        }
        if self.utf8_only && std::str::from_utf8(name).is_err() {
            return Err(ZplError::NotUtf8);
        }
        Ok(())
    }

    pub(crate) fn check_live_directory(&self, directory: &Znode) -> Result<(), ZplError> {
        let state = directory.state.lock();
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

    fn matching(&self) -> Match {
        match (self.norm.is_none(), self.case) {
            (true, _) => Match::Exact,
            (false, CaseSensitivity::Mixed) => Match::NormalizeMatchCase,
            (false, _) => Match::Normalize,
        }
    }

    /// The entry that `name` selects, as spelled in the directory, and its value; the caller holds `names`.
    pub(crate) fn find_entry(&self, directory: &Znode, name: &[u8]) -> Result<Option<(Vec<u8>, u64)>, ZplError> {
        let zap = Zap::open(directory.dnode.clone())?;
        match self.matching() {
            Match::Exact => Ok(zap.try_lookup_u64(name)?.map(|value| (name.to_vec(), value))),
            matching => match zap.lookup_norm(name, matching) {
                Ok(found) => Ok(Some((found.name, found.value.as_u64().ok_or(ZplError::Corrupt)?))),
                Err(zap::ZapError::NotFound) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// What `name` is in `directory`; the caller holds `names`.
    pub(crate) fn find(&self, directory: &Znode, name: &[u8]) -> Result<Option<Dirent>, ZplError> {
        Ok(self.find_entry(directory, name)?.map(|(_, value)| dirent(value)))
    }

    /// Looks a name up (OpenZFS: `zfs_lookup`).
    pub fn lookup(self: &Arc<Self>, directory: &Node, name: &[u8]) -> Result<Node, ZplError> {
        match name {
            b"." => return Ok(directory.clone()),
            b".." => return self.node(ObjectId(directory.fields().parent)),
            _ => {}
        }
        if name.len() > LONG_NAME_BYTES_MAX {
            return Err(ZplError::NameTooLong);
        }
        if !directory.fields().is_directory() {
            return Err(ZplError::NotDirectory);
        }
        let _names = directory.names.read();
        // What got a long name while that was allowed is found by it.
        let missing = if name.len() > self.name_bytes_max() { ZplError::NameTooLong } else { ZplError::NotFound };
        let found = self.find(directory, name)?.ok_or(missing)?;
        self.node(found.object)
    }

    /// Lists from a cookie until `each` says false (OpenZFS: `zfs_readdir`). Cookies stay valid while names come and go.
    pub fn list(&self, directory: &Znode, from: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), ZplError> {
        let fields = directory.fields();
        if !fields.is_directory() {
            return Err(ZplError::NotDirectory);
        }
        let dots: [(&[u8], u64, u64); 2] = [(b".", directory.object.0, 1), (b"..", fields.parent, COOKIE_FIRST)];
        for (name, object, next) in dots.into_iter().skip(from.min(2) as usize) {
            if from < COOKIE_FIRST && !each(Listed { name, dirent: Dirent { object: ObjectId(object), kind: 4 }, next }) {
                return Ok(());
            }
        }
        let _names = directory.names.read();
        let zap = Zap::open(directory.dnode.clone())?;
        let mut cursor = if from <= COOKIE_FIRST { zap.cursor() } else { zap.cursor_at(from) };
        let mut entry = Attribute::default();
        while cursor.next_into(&mut entry)? {
            let listed = Listed { name: &entry.name, dirent: dirent(entry.first_integer), next: cursor.serialize() };
            if !each(listed) {
                break;
            }
        }
        Ok(())
    }

    /// True when the directory has no names.
    pub(crate) fn is_empty(directory: &Znode) -> bool {
        directory.fields().size == 2
    }

    /// The value of an entry that names a node.
    pub(crate) fn entry_value(&self, node: &Znode) -> u64 {
        let kind = if self.has_dirent_types() { (node.fields().mode & S_IFMT) >> 12 } else { 0 };
        node.object.0 | kind << 60
    }

    /// Enters a node under a name; the caller holds `names` (OpenZFS: `zfs_link_create` without `ZRENAMING`).
    pub(crate) fn add_name(&self, directory: &Arc<Znode>, node: &Arc<Znode>, name: &[u8], undo: &mut Undo<'_>) -> Result<(), ZplError> {
        undo.add_entry(directory, name, self.entry_value(node))?;
        undo.change(node, |fields| fields.parent = directory.object.0)?;
        self.count_names(directory, 1, i64::from(node.fields().is_directory()), undo)
    }

    /// Removes a name; the caller holds `names` (OpenZFS: `zfs_dropname`).
    pub(crate) fn drop_name(&self, directory: &Arc<Znode>, node: &Arc<Znode>, name: &[u8], undo: &mut Undo<'_>) -> Result<(), ZplError> {
        let (stored, value) = self.find_entry(directory, name)?.ok_or(ZplError::NotFound)?;
        undo.remove_entry(directory, stored, value)?;
        self.count_names(directory, -1, -i64::from(node.fields().is_directory()), undo)
    }

    /// Notes a change of a directory's names.
    pub(crate) fn count_names(&self, directory: &Arc<Znode>, names: i64, subdirectories: i64, undo: &mut Undo<'_>) -> Result<(), ZplError> {
        let now = self.now();
        undo.change(directory, |fields| {
            fields.size = fields.size.saturating_add_signed(names);
            fields.links = fields.links.saturating_add_signed(subdirectories);
            fields.times[MTIME] = now;
            fields.times[CTIME] = now;
            fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        })
    }

    /// Gives a node another name (OpenZFS: `zfs_link`).
    pub fn link(&self, node: &Node, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.check_writable()?;
        self.check_name(name)?;
        // The node's too: else its last name could go meanwhile, and the new one would lead to what is being deleted.
        let _names = lock_names(&[directory, node]);
        self.check_live_directory(directory)?;
        let fields = node.fields();
        if fields.is_directory() {
            return Err(ZplError::NotPermitted);
        }
        if fields.flags & (flag::IMMUTABLE | flag::APPENDONLY) != 0 {
            return Err(ZplError::NotPermitted);
        }
        if fields.flags & flag::XATTR != directory.fields().flags & flag::XATTR {
            return Err(ZplError::Invalid);
        }
        directory.fields().check_takes(&fields)?;
        if fields.links >= LINKS_MAX {
            return Err(ZplError::TooManyLinks);
        }
        if self.find(directory, name)?.is_some() {
            return Err(ZplError::Exists);
        }
        let tx = self.assign(TX_NAMES)?;
        let now = self.now();
        self.atomically(&tx, |undo| {
            self.add_name(&directory.znode, &node.znode, name, undo)?;
            if node.state.lock().unlinked {
                self.unmark_unlinked(&node.znode, undo)?;
            }
            undo.change(&node.znode, |fields| {
                fields.links += 1;
                fields.times[CTIME] = now;
            })
        })
    }

    /// Takes one link of a node whose name was dropped; without links left it enters the unlinked set
    /// (OpenZFS: `zfs_link_destroy`).
    pub(crate) fn drop_link(&self, node: &Arc<Znode>, undo: &mut Undo<'_>) -> Result<(), ZplError> {
        let fields = node.fields();
        if fields.is_directory() || fields.links <= 1 {
            return self.mark_unlinked(node, undo);
        }
        let now = self.now();
        undo.change(node, |fields| {
            fields.links -= 1;
            fields.times[CTIME] = now;
        })
    }

    /// Removes a name of anything but a directory (OpenZFS: `zfs_remove`).
    pub fn unlink(self: &Arc<Self>, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.remove(directory, name, false)
    }

    /// Removes an empty directory (OpenZFS: `zfs_rmdir`).
    pub fn rmdir(self: &Arc<Self>, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        match name {
            b"." => Err(ZplError::Invalid),
            b".." => Err(ZplError::NotEmpty),
            _ => self.remove(directory, name, true),
        }
    }

    fn remove(self: &Arc<Self>, directory: &Node, name: &[u8], want_directory: bool) -> Result<(), ZplError> {
        self.check_writable()?;
        // The node is let go of last, without locks or transaction: it may have to be deleted then.
        let node = self.lookup_child(directory, name)?;
        let _names = lock_names(&[directory, &node]);
        if self.find(directory, name)?.map(|found| found.object) != Some(node.object) {
            return Err(ZplError::NotFound);
        }
        let fields = node.fields();
        match (want_directory, fields.is_directory()) {
            (true, false) => return Err(ZplError::NotDirectory),
            (false, true) => return Err(ZplError::IsDirectory),
            (true, true) if !Self::is_empty(&node) => return Err(ZplError::NotEmpty),
            _ => {}
        }
        Self::check_removable(&fields, &directory.fields())?;
        let tx = self.assign_frees(TX_NAMES)?;
        self.atomically(&tx, |undo| {
            self.drop_name(&directory.znode, &node.znode, name, undo)?;
            self.drop_link(&node.znode, undo)
        })
    }

    pub(crate) fn check_removable(node: &Fields, directory: &Fields) -> Result<(), ZplError> {
        if (node.flags | directory.flags) & (flag::IMMUTABLE | flag::NOUNLINK | flag::APPENDONLY) != 0 {
            return Err(ZplError::NotPermitted);
        }
        Ok(())
    }

    /// The node a name stands for; not `.` or `..`.
    pub(crate) fn lookup_child(self: &Arc<Self>, directory: &Node, name: &[u8]) -> Result<Node, ZplError> {
        match name {
            b"." | b".." => Err(ZplError::Invalid),
            _ => self.lookup(directory, name),
        }
    }

    /// Removes everything in a directory of extended attributes (OpenZFS: `zfs_purgedir`).
    pub(crate) fn purge_directory(self: &Arc<Self>, directory: &Arc<Znode>) -> Result<(), ZplError> {
        let mut names = Vec::new();
        self.list(directory, COOKIE_FIRST, &mut |listed| {
            names.push((listed.name.to_vec(), listed.dirent.object));
            true
        })?;
        for (name, object) in names {
            let node = self.node(object)?;
            let tx = self.assign_frees(TX_NAMES)?;
            self.atomically(&tx, |undo| {
                self.drop_name(directory, &node.znode, &name, undo)?;
                self.drop_link(&node.znode, undo)
            })?;
            drop(tx);
        }
        Ok(())
    }
}
