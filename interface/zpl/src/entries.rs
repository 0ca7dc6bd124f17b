//! Entries of directories, and the links that they are: what is found, listed, entered and taken out while the names are locked.
//!
//! A directory is a ZAP from name to `type << 60 | object`; `..` is the node's parent attribute, and the size attribute counts
//! the entries with `.` and `..` (OpenZFS: `zfs_dir.c`, `zfs_dirent`).

use crate::ZplError;
use crate::store::Store;
use crate::undo::Undo;
use crate::znode::{CTIME, Fields, MTIME, S_IFMT, Znode, flag};
use ondisk::ObjectId;
use std::sync::Arc;
use zap::{Attribute, Match, Zap};

const OBJECT_MASK: u64 = (1 << 48) - 1;

/// Name found in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// Number of the object.
    pub object: ObjectId,
    /// Type of the node: DT_*; 0 when the file system is too old to say.
    pub kind: u8,
}

/// Step of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Name of the entry.
    pub name: &'a [u8],
    /// Object and type that the name stands for.
    pub dirent: Dirent,
    /// Cookie of the place behind the entry.
    pub next: u64,
}

/// First cookie of an entry; those below are `.`, `..` and `.zfs`, and 0 starts the listing.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// Object and type that an entry's value stands for.
pub(crate) fn dirent(value: u64) -> Dirent {
    Dirent { object: ObjectId(value & OBJECT_MASK), kind: (value >> 60) as u8 }
}

impl Store {
    /// Entry that `name` selects, as spelled in the directory, and its value; the caller holds `names`.
    pub(crate) fn find_entry(&self, directory: &Znode, name: &[u8]) -> Result<Option<(Vec<u8>, u64)>, ZplError> {
        let zap = Zap::open(directory.dnode.clone())?;
        match self.rules.matching() {
            Match::Exact => Ok(zap.try_lookup_u64(name)?.map(|value| (name.to_vec(), value))),
            matching => match zap.lookup_norm(name, matching) {
                Ok(found) => Ok(Some((found.name, found.value.as_u64().ok_or(ZplError::CORRUPT)?))),
                Err(zap::ZapError::NotFound) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Object and type that `name` stands for in `directory`; the caller holds `names`.
    pub(crate) fn find(&self, directory: &Znode, name: &[u8]) -> Result<Option<Dirent>, ZplError> {
        match self.rules.matching() {
            Match::Exact => Ok(Zap::open(directory.dnode.clone())?.try_lookup_u64(name)?.map(dirent)),
            _ => Ok(self.find_entry(directory, name)?.map(|(_, value)| dirent(value))),
        }
    }

    /// Lists from a cookie until `each` says false (OpenZFS: `zfs_readdir`). Cookies stay valid while names come and go.
    pub(crate) fn list(&self, directory: &Znode, from: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), ZplError> {
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
}

impl Fields {
    /// True when a directory has no names.
    pub(crate) fn is_empty_directory(&self) -> bool {
        self.size == 2
    }

    /// Checks that a node can be taken out of a directory.
    pub(crate) fn check_removable(&self, directory: &Fields) -> Result<(), ZplError> {
        if (self.flags | directory.flags) & (flag::IMMUTABLE | flag::NOUNLINK | flag::APPENDONLY) != 0 {
            return Err(ZplError::NotPermitted);
        }
        Ok(())
    }
}

impl Undo<'_> {
    /// Value of an entry that names a node.
    pub(crate) fn entry_value(&self, node: &Znode) -> u64 {
        let kind = if self.store.has_types() { (node.fields().mode & S_IFMT) >> 12 } else { 0 };
        node.object.0 | kind << 60
    }

    /// Enters a node under a name; the caller holds `names` (OpenZFS: `zfs_link_create` without `ZRENAMING`).
    pub(crate) fn add_name(&mut self, directory: &Arc<Znode>, node: &Arc<Znode>, name: &[u8]) -> Result<(), ZplError> {
        let value = self.entry_value(node);
        self.add_entry(directory, name, value)?;
        self.change(node, |fields| fields.parent = directory.object.0)?;
        self.count_names(directory, 1, i64::from(node.fields().is_directory()))
    }

    /// Removes a name; the caller holds `names` (OpenZFS: `zfs_dropname`).
    pub(crate) fn drop_name(&mut self, directory: &Arc<Znode>, node: &Arc<Znode>, name: &[u8]) -> Result<(), ZplError> {
        let (stored, value) = self.store.find_entry(directory, name)?.ok_or(ZplError::NotFound)?;
        self.remove_entry(directory, stored, value)?;
        self.count_names(directory, -1, -i64::from(node.fields().is_directory()))
    }

    /// Notes a change of a directory's names.
    pub(crate) fn count_names(&mut self, directory: &Arc<Znode>, names: i64, subdirectories: i64) -> Result<(), ZplError> {
        let now = self.now();
        self.change(directory, |fields| {
            fields.size = fields.size.saturating_add_signed(names);
            fields.links = fields.links.saturating_add_signed(subdirectories);
            fields.times[MTIME] = now;
            fields.times[CTIME] = now;
            fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        })
    }

    /// Takes one link of a node whose name was dropped; without links left it enters the unlinked set
    /// (OpenZFS: `zfs_link_destroy`).
    pub(crate) fn drop_link(&mut self, node: &Arc<Znode>) -> Result<(), ZplError> {
        let fields = node.fields();
        if fields.is_directory() || fields.links <= 1 {
            return self.mark_unlinked(node);
        }
        let now = self.now();
        self.change(node, |fields| {
            fields.links -= 1;
            fields.times[CTIME] = now;
        })
    }

    /// Lets a name that is there stand for another node, spelled as `name` says.
    pub(crate) fn point_name(&mut self, directory: &Arc<Znode>, name: &[u8], node: &Arc<Znode>) -> Result<(), ZplError> {
        let (stored, old) = self.store.find_entry(directory, name)?.ok_or(ZplError::NotFound)?;
        let new = self.entry_value(node);
        if stored == name {
            return self.replace_entry(directory, stored, old, new);
        }
        self.remove_entry(directory, stored, old)?;
        self.add_entry(directory, name, new)
    }

    /// Notes that a node got another place.
    pub(crate) fn stamp(&mut self, node: &Arc<Znode>) -> Result<(), ZplError> {
        let now = self.now();
        self.change(node, |fields| {
            fields.times[CTIME] = now;
            fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        })
    }
}
