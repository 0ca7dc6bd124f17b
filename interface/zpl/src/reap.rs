//! The end of nodes: deleting those without names, and what a crash left of them (OpenZFS: `zfs_rmnode`, `zfs_unlinked_drain`).

use crate::ZplError;
use crate::entries::COOKIE_FIRST;
use crate::nodes::Nodes;
use crate::room::TX_NAMES;
use crate::undo::Undo;
use crate::unlinked::keeps_unlinked;
use crate::znode::{Znode, flag};
use ondisk::{ObjectId, ObjectType};
use std::sync::Arc;

/// Bytes of the pieces in which a file is freed when it goes.
const FREE_CHUNK: u64 = 1 << 30;

impl Nodes {
    /// Does what the end of a node needs a transaction for.
    pub(crate) fn retire(self: &Arc<Self>, znode: &Arc<Znode>) -> Result<(), ZplError> {
        if znode.state.lock().unlinked {
            return self.delete_object(znode);
        }
        let tx = self.store.room.assign_frees(TX_NAMES)?;
        znode.update(&self.store.sa, &tx, |_| ())
    }

    /// Frees the object of a node without links (OpenZFS: `zfs_rmnode`).
    fn delete_object(self: &Arc<Self>, znode: &Arc<Znode>) -> Result<(), ZplError> {
        let fields = znode.fields();
        if fields.is_directory() && fields.flags & flag::XATTR != 0 {
            self.purge_directory(znode)?;
        }
        if fields.is_regular() {
            self.free_in_pieces(znode, fields.size)?;
        }
        // A damaged one is left where it is: leaked at worst.
        let xattr = self.hidden_directory(znode).ok().flatten();
        let acl = self.acl_object(znode);
        let tx = self.store.room.assign_frees(TX_NAMES)?;
        let freed = Undo::run(&self.store, &tx, |undo| {
            if let Some(directory) = &xattr {
                undo.mark_unlinked(&directory.znode)?;
            }
            match undo.dequeue(znode.object) {
                Ok(()) | Err(ZplError::NotFound) => {}
                Err(error) => return Err(error),
            }
            if let Some(acl) = acl {
                self.store.objset.free_object(acl, &tx)?;
            }
            Ok(self.store.objset.free_object(znode.object, &tx)?)
        });
        if freed.is_ok() {
            self.store.journal.note_gone(znode.object, &tx);
        }
        drop(tx);
        freed?;
        self.store.unlinked.count_deletion();
        self.store.counts.drained();
        Ok(())
    }

    /// Object that an old node's access control list lies in; a damaged record may name any object, and only lists go.
    fn acl_object(&self, znode: &Znode) -> Option<ObjectId> {
        let object = znode.state.lock().attrs.acl_object()?;
        let kind = self.store.objset.hold(object).and_then(|dnode| dnode.info()).ok()?.kind;
        matches!(kind, ObjectType::ACL | ObjectType::OLDACL).then_some(object)
    }

    /// Frees a large file from its end, a piece per transaction. The size decides the number of pieces only as far as there
    /// is space to free: a sparse or damaged file may claim any.
    fn free_in_pieces(&self, znode: &Znode, size: u64) -> Result<(), ZplError> {
        let pieces = znode.dnode.info()?.used_bytes / FREE_CHUNK + 1;
        let piece = size.div_ceil(pieces).max(FREE_CHUNK);
        let mut end = size;
        while end > piece {
            let start = (end - 1) / piece * piece;
            // A file that is partly unreadable goes all the same: what is lost can only be leaked.
            let _ = znode.dnode.prepare_free(start, u64::MAX);
            let tx = self.store.room.assign_frees(TX_NAMES)?;
            znode.dnode.free_range(start, u64::MAX, &tx)?;
            end = start;
        }
        Ok(())
    }

    /// Removes everything in a directory of extended attributes (OpenZFS: `zfs_purgedir`).
    fn purge_directory(self: &Arc<Self>, directory: &Arc<Znode>) -> Result<(), ZplError> {
        let mut names = Vec::new();
        self.store.list(directory, COOKIE_FIRST, &mut |listed| {
            names.push((listed.name.to_vec(), listed.dirent.object));
            true
        })?;
        for (name, object) in names {
            let node = self.node(object)?;
            let tx = self.store.room.assign_frees(TX_NAMES)?;
            Undo::run(&self.store, &tx, |undo| {
                undo.drop_name(directory, &node.znode, &name)?;
                undo.drop_link(&node.znode)
            })?;
            drop(tx);
        }
        Ok(())
    }

    /// Deletes what a crash left in the unlinked set; returns how many (OpenZFS: `zfs_unlinked_drain`).
    pub(crate) fn drain_unlinked(self: &Arc<Self>) -> Result<u64, ZplError> {
        let store = &self.store;
        if store.room.is_read_only() || keeps_unlinked() {
            return Ok(0);
        }
        let mut count = 0;
        for object in store.unlinked.objects()? {
            match self.node(object) {
                Ok(node) if node.fields().links == 0 => {
                    node.state.lock().unlinked = true;
                    count += 1;
                }
                // Freed already (or another file by now), its entry stayed: nothing to delete but the entry.
                Ok(_) | Err(ZplError::NotFound) => store.unlinked.zap()?.remove_int(object.0, &store.room.assign_frees(TX_NAMES)?)?,
                // One that cannot be read must not keep the others.
                Err(_) => {}
            }
        }
        Ok(count)
    }
}
