//! What is done to files and directories: each verb is handed to its owner.

use super::Zfs;
use crate::alignment::direct_alignment;
use crate::data::{Allocate, DataAt, ReadThen, WriteData, WriteThen};
use crate::direct::{Access, DirectAlignment, DirectSnapshot};
use crate::entries::Listed;
use crate::file_flags::FlagChange;
use crate::nodes::Node;
use crate::posix_acl::is_list;
use crate::rename::{Place, RenameMode};
use crate::setattr::{SetAttrs, Stat};
use crate::statfs;
use crate::xattr::SetMode;
use crate::znode::Znode;
use crate::{NewNode, ZplError};
use abd::{Abd, SharedPages};
use nvlist::NvList;
use std::ops::Range;
use std::sync::Arc;

/// Verbs for names.
impl Zfs {
    /// Looks a name up (OpenZFS: `zfs_lookup`).
    pub fn lookup(&self, directory: &Node, name: &[u8]) -> Result<Node, ZplError> {
        self.directories.lookup(directory, name)
    }

    /// Lists from a cookie until `each` says false (OpenZFS: `zfs_readdir`). Cookies stay valid while names come and go.
    pub fn list(&self, directory: &Znode, from: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), ZplError> {
        self.store.list(directory, from, each)
    }

    /// Makes a node with a name (OpenZFS: `zfs_create`, `zfs_mkdir`, `zfs_symlink`).
    pub fn create_node(&self, directory: &Node, name: &[u8], new: &NewNode<'_>) -> Result<Node, ZplError> {
        let heritage = self.xattrs.heritage(directory, new)?;
        self.directories.create_node(directory, name, &new.inheriting(&heritage))
    }

    /// Makes a file without a name, as O_TMPFILE does; it goes with its last reference unless it gets one
    /// (OpenZFS: `zfs_tmpfile`).
    pub fn create_nameless(&self, directory: &Node, new: &NewNode<'_>) -> Result<Node, ZplError> {
        let heritage = self.xattrs.heritage(directory, new)?;
        self.directories.create_nameless(directory, &new.inheriting(&heritage))
    }

    /// Gives a node another name (OpenZFS: `zfs_link`).
    pub fn link(&self, node: &Node, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.directories.link(node, directory, name)
    }

    /// Removes a name of anything but a directory (OpenZFS: `zfs_remove`).
    pub fn unlink(&self, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.directories.unlink(directory, name)
    }

    /// Removes an empty directory (OpenZFS: `zfs_rmdir`).
    pub fn rmdir(&self, directory: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.directories.rmdir(directory, name)
    }

    /// Moves `from` to `to`.
    pub fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<(), ZplError> {
        self.directories.rename(from, to, mode)
    }

    /// Moves `from` to `to` and leaves a new node under the old name, for an overlay a whiteout (RENAME_WHITEOUT): a character device
    /// of number 0. EINVAL together with an exchange.
    pub fn rename_leaving(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode, leaves: Option<&NewNode<'_>>) -> Result<(), ZplError> {
        self.directories.rename_leaving(from, to, mode, leaves)
    }

    /// Target of a symbolic link (OpenZFS: `zfs_readlink`).
    pub fn read_link(&self, node: &Znode) -> Result<Vec<u8>, ZplError> {
        self.directories.read_link(node)
    }
}

/// Verbs for data.
impl Zfs {
    /// Reads up to `length` bytes; short only at the end of the file. Direct where the property `direct=always` says so.
    pub fn read(&self, node: &Node, offset: u64, length: u64) -> Result<Abd, ZplError> {
        self.data.read(node, offset, length, Access::default())
    }

    /// Reads up to `length` bytes as `access` asks; short only at the end of the file.
    pub fn read_with(&self, node: &Node, offset: u64, length: u64, access: Access) -> Result<Abd, ZplError> {
        self.data.read(node, offset, length, access)
    }

    /// Does [`Zfs::read_with`] without waiting for the disks of the direct part: `then` runs when the bytes are there.
    pub fn read_then(&self, node: &Node, offset: u64, length: u64, access: Access, then: ReadThen) {
        self.data.read_then(node, offset, length, access, then);
    }

    /// Fills `out` from `offset`; returns the bytes read, fewer only at the end of the file. The alignment of `out` is looked
    /// at, whatever `access` says.
    pub fn read_into(&self, node: &Node, offset: u64, out: &mut [u8], access: Access) -> Result<usize, ZplError> {
        self.data.read_into(node, offset, out, access)
    }

    /// Does [`Zfs::read_into`] to pages that others may change meanwhile. What did not verify there is read again.
    pub fn read_pages(
        &self,
        node: &Node,
        offset: u64,
        pages: &SharedPages,
        range: Range<usize>,
        access: Access,
    ) -> Result<usize, ZplError> {
        self.data.read_pages(node, offset, pages, range, access)
    }

    /// Notes that a node was read: renews the access time in memory; it reaches the object with the next change or when the node leaves memory.
    pub(crate) fn note_access(&self, node: &Znode) {
        self.store.note_access(node);
    }

    /// Writes; the file grows as needed. Direct where the property `direct=always` says so.
    pub fn write(&self, node: &Node, write: WriteData) -> Result<u64, ZplError> {
        self.data.write(node, write, Access::default())
    }

    /// Writes as `access` asks; the file grows as needed.
    pub fn write_with(&self, node: &Node, write: WriteData, access: Access) -> Result<u64, ZplError> {
        self.data.write(node, write, access)
    }

    /// Does [`Zfs::write_with`] without waiting for the disks of the direct part, nor for a txg. A synchronous write through the cache may
    /// wait for the log.
    pub fn write_then(&self, node: &Node, write: WriteData, access: Access, then: WriteThen) {
        self.data.write_then(node, write, access, then);
    }

    /// Writes `data` at `offset`; the bytes are in place on the disks, or copied, when it returns. The alignment of `data` is
    /// looked at, whatever `access` says.
    pub fn write_from(&self, node: &Node, offset: u64, data: &[u8], access: Access) -> Result<u64, ZplError> {
        self.data.write_from(node, offset, data, access)
    }

    /// Changes the size (OpenZFS: `zfs_freesp`).
    pub fn truncate(&self, node: &Node, size: u64) -> Result<(), ZplError> {
        self.data.truncate(node, size)
    }

    /// Does fallocate(2) (OpenZFS: `zpl_fallocate_common`).
    pub fn allocate(&self, node: &Node, offset: u64, length: u64, how: Allocate) -> Result<(), ZplError> {
        self.data.allocate(node, offset, length, how)
    }

    /// Has `length` bytes of a file share blocks with another file of the file system, instead of being copied (OpenZFS: `zfs_clone_range`). Returns the
    /// bytes that were shared, perhaps fewer; 0 only at or behind the end of the source.
    ///
    /// # Errors
    /// [`ZplError::NotSupported`] where the bytes have to be copied.
    pub fn clone_range(&self, from: DataAt<'_>, to: DataAt<'_>, length: u64) -> Result<u64, ZplError> {
        self.data.clone_range(from, to, length)
    }

    /// Offset of the next byte of data at or after `offset` (OpenZFS: `zfs_holey`).
    pub fn seek_data(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        self.data.seek_data(node, offset)
    }

    /// Offset of the next byte of a hole at or after `offset`; the end of the file counts as one.
    pub fn seek_hole(&self, node: &Node, offset: u64) -> Result<u64, ZplError> {
        self.data.seek_hole(node, offset)
    }

    /// Alignment that makes direct I/O of the file efficient; None while it can't be direct (OpenZFS: `zfs_get_direct_alignment`).
    pub fn direct_alignment(&self, node: &Znode) -> Result<Option<DirectAlignment>, ZplError> {
        direct_alignment(&self.store, node)
    }

    /// Counts of direct I/O of one file since it came into memory; None when nothing of it asked for direct.
    pub fn direct_counts(&self, node: &Node) -> Option<DirectSnapshot> {
        node.direct_counts()
    }
}

/// Verbs for attributes.
impl Zfs {
    /// Attributes and allocation of a node.
    pub fn stat(&self, node: &Znode) -> Result<Stat, ZplError> {
        Stat::of(&self.store, node)
    }

    /// Space as it is seen at a node; none stands for what is in no object set.
    pub(crate) fn statfs(&self, node: Option<&Node>) -> Result<fuse::Statfs, ZplError> {
        statfs::statfs(&self.store, node)
    }

    /// Changes attributes; the size is [`Zfs::truncate`]'s.
    pub fn set_attrs(&self, node: &Node, set: &SetAttrs) -> Result<(), ZplError> {
        self.attributes.set_attrs(node, set)
    }

    /// Sets and clears flags and changes the project (OpenZFS: `zfs_setattr` with `xvattr_t`). EPERM for the mark of a reparse point; without
    /// project numbers, or for what is neither file nor directory, neither they nor the flag that inherits them are supported.
    pub fn change_flags(&self, node: &Node, change: FlagChange) -> Result<(), ZplError> {
        self.attributes.change_flags(node, change)
    }

    /// Value of an extended attribute.
    pub fn get_xattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>, ZplError> {
        self.xattrs.get_xattr(node, name)
    }

    /// Names of the extended attributes.
    pub fn list_xattrs(&self, node: &Node) -> Result<Vec<Vec<u8>>, ZplError> {
        self.xattrs.list_xattrs(node)
    }

    /// Sets an extended attribute; of an access control list it does not matter whether there was one.
    pub fn set_xattr(&self, node: &Node, name: &[u8], value: &[u8], mode: SetMode) -> Result<(), ZplError> {
        if is_list(name) { self.set_list(node, name, Some(value), false) } else { self.xattrs.set_xattr(node, name, value, mode) }
    }

    /// Removes an extended attribute; an access control list that is not there is removed already.
    pub fn remove_xattr(&self, node: &Node, name: &[u8]) -> Result<(), ZplError> {
        if is_list(name) { self.set_list(node, name, None, false) } else { self.xattrs.remove_xattr(node, name) }
    }

    /// Sets an access control list of `acltype=posix` by the name of its extended attribute, or removes it without a value (OpenZFS:
    /// `zpl_set_acl`). The permission bits follow; `kill_sgid` says that whoever sets it is not of the file's group, so setgid goes.
    ///
    /// # Errors
    /// [`ZplError::NotSupported`] with another `acltype`, and for links; [`ZplError::Invalid`] for what is no list; [`ZplError::AccessDenied`] for a
    /// default list of what is no directory.
    pub fn set_list(&self, node: &Node, name: &[u8], value: Option<&[u8]>, kill_sgid: bool) -> Result<(), ZplError> {
        self.attributes.set_list(node, name, value, kill_sgid)
    }

    /// Extended attributes that lie in the system attributes, as stored, and their packed length in bytes; None without any.
    pub fn sa_xattrs(&self, node: &Znode) -> Result<Option<(usize, Arc<NvList>)>, ZplError> {
        self.xattrs.sa_xattrs(node)
    }
}
