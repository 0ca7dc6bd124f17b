//! Verbs in a transaction of the caller: what several of them do is one change, for who keeps objects in a file system (crate `osd`).
//!
//! None of it is told to an intent log: the verbs are refused while one listens. Names and extended attributes are locked while the transaction is
//! open, the other way round than elsewhere, so nobody may serve the file system through a mount meanwhile.

use crate::names::lock_names;
use crate::nodes::Kept;
use crate::sa::Attr;
use crate::undo::Undo;
use crate::xattr::SA_LIST_BYTES_MAX;
use crate::znode::{CTIME, Fields, Znode};
use crate::{NewNode, Zfs, ZplError};
use dmu::{Dnode, Tx};
use nvlist::{Bytes, Encoding};
use ondisk::ObjectId;
use std::sync::Arc;

impl Znode {
    /// Object that holds the node's data.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }
}

/// Verbs for who opens transactions himself.
impl Zfs {
    fn check_within(&self) -> Result<(), ZplError> {
        if self.store.journal.log().is_some() { Err(ZplError::NotSupported) } else { self.store.check_writable().map(drop) }
    }

    /// Node of an object, to be kept by somebody who may let go of it anywhere, also while a transaction is open.
    ///
    /// # Errors
    /// [`ZplError::NotFound`], those of reading it.
    pub fn kept(&self, object: ObjectId) -> Result<Kept, ZplError> {
        self.nodes.kept_node(object)
    }

    /// Does what the end of nodes that were let go of left to do: deletes those without names. Waits for transactions: the caller has none.
    pub fn settle(&self) {
        self.nodes.release_parked();
    }

    /// Object that a name stands for; None when there is no such name.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn find_within(&self, directory: &Kept, name: &[u8]) -> Result<Option<ObjectId>, ZplError> {
        let _names = directory.names.read();
        Ok(self.store.find(directory, name)?.map(|found| found.object))
    }

    /// Checks that the owner of a node may use more space.
    ///
    /// # Errors
    /// [`ZplError::OverQuota`], those of reading the limits.
    pub fn check_quota(&self, node: &Znode) -> Result<(), ZplError> {
        self.store.limits.check(&node.owner(), false)
    }

    /// Makes a node with a name in the caller's transaction: all of it, or nothing.
    ///
    /// # Errors
    /// [`ZplError::Exists`], [`ZplError::OverQuota`], those of the objects.
    pub fn make_within(&self, directory: &Kept, name: &[u8], new: &NewNode<'_>, tx: &Tx) -> Result<Kept, ZplError> {
        self.check_within()?;
        self.store.check_name(name)?;
        let _names = directory.names.write();
        directory.check_live_directory()?;
        if self.store.find(directory, name)?.is_some() {
            return Err(ZplError::Exists);
        }
        self.store.limits.check(&new.owner_below(directory, self.store.settings().project_quota), true)?;
        Undo::run(&self.store, tx, |undo| {
            let node = self.nodes.make_node(Some(directory), new, undo)?;
            undo.add_name(directory.znode(), &node.znode, name)?;
            Ok(node.kept())
        })
    }

    /// Takes a name of a file away in the caller's transaction. The object of a file without names is freed once nobody keeps it: by
    /// [`Zfs::settle`], or by [`Zfs::drain_unlinked`] after a crash.
    ///
    /// # Errors
    /// [`ZplError::NotFound`] when the name stands for another node or for none, those of the objects.
    pub fn remove_within(&self, directory: &Kept, name: &[u8], node: &Kept, tx: &Tx) -> Result<(), ZplError> {
        self.check_within()?;
        let _names = lock_names(&[directory, node]);
        if self.store.find(directory, name)?.map(|found| found.object) != Some(node.object) {
            return Err(ZplError::NotFound);
        }
        Undo::run(&self.store, tx, |undo| {
            undo.drop_name(directory.znode(), node.znode(), name)?;
            undo.drop_link(node.znode())
        })
    }

    /// Changes attributes in the caller's transaction.
    ///
    /// # Errors
    /// Those of the object: nothing changed then.
    pub fn change_within(&self, node: &Kept, tx: &Tx, change: impl FnOnce(&mut Fields)) -> Result<(), ZplError> {
        self.check_within()?;
        node.update(&self.store.sa, tx, change)
    }

    /// Value of an extended attribute that lies in the system attributes; None when there is none of this name.
    ///
    /// # Errors
    /// Those of damaged attributes.
    pub fn listed_xattr(&self, node: &Znode, name: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        Ok(self.xattrs.sa_list(node)?.get_bytes(name).map(<[u8]>::to_vec))
    }

    /// Names of the extended attributes in the system attributes.
    ///
    /// # Errors
    /// Those of damaged attributes.
    pub fn listed_xattrs(&self, node: &Znode) -> Result<Vec<Vec<u8>>, ZplError> {
        Ok(self.xattrs.sa_list(node)?.iter().map(|(name, _)| name.as_bytes().to_vec()).collect())
    }

    /// Sets an extended attribute in the system attributes, or removes it (None), in the caller's transaction.
    ///
    /// # Errors
    /// [`ZplError::NoAttribute`], [`ZplError::ValueTooBig`] when all of them together find no room there, those of the object.
    pub fn set_xattr_within(&self, node: &Kept, name: &[u8], value: Option<&[u8]>, tx: &Tx) -> Result<(), ZplError> {
        self.check_within()?;
        let _names = node.names.write();
        let mut list = (*self.xattrs.sa_list(node)?).clone();
        match value {
            Some(value) => {
                list.set(name, Bytes(value.to_vec()));
            }
            None if !list.remove(name) => return Err(ZplError::NoAttribute),
            None => {}
        }
        let packed = list.encode(Encoding::Xdr);
        if packed.len() > SA_LIST_BYTES_MAX {
            return Err(ZplError::ValueTooBig);
        }
        let now = self.now();
        node.edit(&self.store.sa, tx, |state| {
            self.store.sa.set(node.dnode(), &mut state.attrs, Attr::Dxattr, &packed, tx)?;
            state.xattrs = Some(Arc::new(list));
            state.fields.times[CTIME] = now;
            Ok(())
        })
    }
}
