//! Names in directories: looking up, making, linking, removing.

use crate::ZplError;
use crate::make::{NewNode, TARGET_BYTES_MAX};
use crate::nodes::{Node, Nodes};
use crate::room::TX_NAMES;
use crate::sa::Attr;
use crate::store::{LONG_NAME_BYTES_MAX, Store};
use crate::undo::Undo;
use crate::znode::{CTIME, Znode, flag};
use exec::{Mutex, RwLockWriteGuard};
use ondisk::ObjectId;
use std::sync::Arc;

/// Number of links that a node may have (OpenZFS: `ZFS_LINK_MAX`).
const LINKS_MAX: u64 = u64::MAX >> 1;

/// Locks the names of directories in the order that everybody keeps to: by object number, each once.
pub(crate) fn lock_names<'a>(nodes: &[&'a Znode]) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut sorted = nodes.to_vec();
    sorted.sort_by_key(|node| node.object);
    sorted.dedup_by_key(|node| node.object);
    sorted.into_iter().map(|node| node.names.write()).collect()
}

/// Name space of a file system.
pub(crate) struct Directories {
    pub(crate) nodes: Arc<Nodes>,
    /// Object of the directory that no other holds.
    pub(crate) root: ObjectId,
    /// Lock held by moves across directories.
    pub(crate) rename_lock: Mutex<()>,
}

impl Directories {
    pub(crate) fn new(nodes: Arc<Nodes>, root: ObjectId) -> Directories {
        Directories { nodes, root, rename_lock: Mutex::new(()) }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.nodes.store
    }

    /// Looks a name up (OpenZFS: `zfs_lookup`).
    pub(crate) fn lookup(&self, directory: &Node, name: &[u8]) -> Result<Node, ZplError> {
        match name {
            b"." => return Ok(directory.clone()),
            b".." => return self.nodes.node(ObjectId(directory.fields().parent)),
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
        let missing = if name.len() > self.store().name_bytes_max() { ZplError::NameTooLong } else { ZplError::NotFound };
        let found = self.store().find(directory, name)?.ok_or(missing)?;
        self.nodes.node(found.object)
    }

    /// Gives a node another name (OpenZFS: `zfs_link`).
    pub(crate) fn link(&self, node: &Node, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.store().check_writable()?;
        self.store().check_name(name)?;
        // The node's too: else its last name could go meanwhile, and the new one would lead to what is being deleted.
        let _names = lock_names(&[directory, node]);
        directory.check_live_directory()?;
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
        if self.store().find(directory, name)?.is_some() {
            return Err(ZplError::Exists);
        }
        let tx = self.store().room.assign(TX_NAMES)?;
        let was_nameless = node.state.lock().unlinked;
        Undo::run(self.store(), &tx, |undo| {
            undo.add_name(&directory.znode, &node.znode, name)?;
            if was_nameless {
                undo.unmark_unlinked(&node.znode)?;
            }
            let now = undo.now();
            undo.change(&node.znode, |fields| {
                fields.links += 1;
                fields.times[CTIME] = now;
            })
        })?;
        self.store().journal.note_linked(directory, name, (node, was_nameless), &tx);
        Ok(())
    }

    /// Removes a name of anything but a directory (OpenZFS: `zfs_remove`).
    pub(crate) fn unlink(&self, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.remove(directory, name, false)
    }

    /// Removes an empty directory (OpenZFS: `zfs_rmdir`).
    pub(crate) fn rmdir(&self, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        match name {
            b"." => Err(ZplError::Invalid),
            b".." => Err(ZplError::NotEmpty),
            _ => self.remove(directory, name, true),
        }
    }

    fn remove(&self, directory: &Node, name: &[u8], want_directory: bool) -> Result<(), ZplError> {
        self.store().check_writable()?;
        // The node is let go of last, without locks or transaction: it may have to be deleted then.
        let node = self.lookup_child(directory, name)?;
        let _names = lock_names(&[directory, &node]);
        if self.store().find(directory, name)?.map(|found| found.object) != Some(node.object) {
            return Err(ZplError::NotFound);
        }
        let fields = node.fields();
        match (want_directory, fields.is_directory()) {
            (true, false) => return Err(ZplError::NotDirectory),
            (false, true) => return Err(ZplError::IsDirectory),
            (true, true) if !node.fields().is_empty_directory() => return Err(ZplError::NotEmpty),
            _ => {}
        }
        fields.check_removable(&directory.fields())?;
        let tx = self.store().room.assign_frees(TX_NAMES)?;
        Undo::run(self.store(), &tx, |undo| {
            undo.drop_name(&directory.znode, &node.znode, name)?;
            undo.drop_link(&node.znode)
        })?;
        self.store().journal.note_removed(directory, name, &node, &tx);
        Ok(())
    }

    /// Node that a name stands for; not `.` or `..`.
    pub(crate) fn lookup_child(&self, directory: &Node, name: &[u8]) -> Result<Node, ZplError> {
        match name {
            b"." | b".." => Err(ZplError::Invalid),
            _ => {
                let child = self.lookup(directory, name)?;
                // Only damage puts a hidden directory among names: it would be locked before the node whose attributes it holds.
                let is_astray = child.fields().flags & !directory.fields().flags & flag::XATTR != 0;
                if is_astray { Err(ZplError::CORRUPT) } else { Ok(child) }
            }
        }
    }

    /// Makes a node with a name (OpenZFS: `zfs_create`, `zfs_mkdir`, `zfs_symlink`).
    pub(crate) fn create_node(&self, directory: &Node, name: &[u8], new: &NewNode<'_>) -> Result<Node, ZplError> {
        self.store().check_writable()?;
        self.store().check_name(name)?;
        if new.target.len() > TARGET_BYTES_MAX {
            return Err(ZplError::NameTooLong);
        }
        let _names = directory.names.write();
        directory.check_live_directory()?;
        if self.store().find(directory, name)?.is_some() {
            return Err(ZplError::Exists);
        }
        self.store().limits.check(&new.owner_below(directory, self.store().settings().project_quota), true)?;
        let tx = self.store().room.assign(TX_NAMES)?;
        let made = Undo::run(self.store(), &tx, |undo| {
            let node = self.nodes.make_node(Some(directory), new, undo)?;
            undo.add_name(&directory.znode, &node.znode, name)?;
            Ok(node)
        });
        if let Ok(node) = &made {
            self.store().journal.note_made(directory, node, name, new.target, &tx);
            if !new.lists.is_empty() {
                let lists = new.lists.iter().map(|(name, value)| (*name, Some(&value[..])));
                self.store().journal.note_xattrs(node, true, lists, &tx);
            }
        }
        drop(tx);
        made
    }

    /// Makes a file without a name, as O_TMPFILE does; it goes with its last reference unless it gets one
    /// (OpenZFS: `zfs_tmpfile`).
    pub(crate) fn create_nameless(&self, directory: &Node, new: &NewNode<'_>) -> Result<Node, ZplError> {
        self.store().check_writable()?;
        directory.check_live_directory()?;
        self.make_nameless(directory, new)
    }

    /// Makes a file without a name that is meant for a place below `parent`.
    pub(crate) fn make_nameless(&self, parent: &Znode, new: &NewNode<'_>) -> Result<Node, ZplError> {
        let mut made = None;
        self.store().limits.check(&new.owner_below(parent, self.store().settings().project_quota), true)?;
        let tx = self.store().room.assign(TX_NAMES)?;
        let marked = Undo::run(self.store(), &tx, |undo| {
            let node = made.insert(self.nodes.make_node(Some(parent), &NewNode { nameless: true, ..*new }, undo)?);
            undo.mark_unlinked(&node.znode)
        });
        if let (Ok(()), Some(node), false) = (&marked, &made, new.xattr) {
            self.store().journal.note_nameless(parent, node, &tx);
            if !new.lists.is_empty() {
                self.store().journal.note_xattrs_nameless(&tx);
            }
        }
        drop(tx);
        if let (Err(_), Some(node)) = (marked, &made) {
            // Its object is gone already: there is nothing to delete.
            node.state.lock().unlinked = false;
        }
        marked.and_then(|()| made.ok_or(ZplError::CORRUPT))
    }

    /// Target of a symbolic link (OpenZFS: `zfs_readlink`).
    pub(crate) fn read_link(&self, node: &Znode) -> Result<Vec<u8>, ZplError> {
        let state = node.state.lock();
        if !state.fields.is_symlink() {
            return Err(ZplError::Invalid);
        }
        if let Some(target) = self.store().sa.get(&state.attrs, Attr::Symlink) {
            return Ok(target.to_vec());
        }
        // Old file systems: behind the record when it fits, else in the data.
        let size = usize::try_from(state.fields.size).map_err(|_| ZplError::CORRUPT)?;
        if let Some(target) = state.attrs.legacy_tail().get(..size).filter(|_| state.attrs.is_legacy()) {
            return Ok(target.to_vec());
        }
        drop(state);
        let mut target = vec![0; size.min(TARGET_BYTES_MAX + 1)];
        node.dnode.read(0, &mut target)?;
        Ok(target)
    }
}
