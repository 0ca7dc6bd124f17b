//! Records of attributes: what chmod(1), chown(1) and the like changed, extended attributes.

use super::Replay;
use crate::ZplError;
use crate::log::switches;
use crate::sa::Attr;
use crate::setattr::SetAttrs;
use crate::znode::{CRTIME, CTIME, Fields, flag};
use dmu::Tx;
use nvlist::{Bytes, Encoding};
use ondisk::ObjectId;
use std::sync::Arc;
use zil::{NewAttributes, SetAttributes};

/// Puts optional attributes in place (OpenZFS: `zfs_xvattr_set`).
pub(super) fn put_optional(fields: &mut Fields, given: &NewAttributes) {
    for (bit, stored) in switches(given.mask) {
        fields.flags = if given.set & bit != 0 { fields.flags | stored } else { fields.flags & !stored };
    }
    fields.times[CRTIME] = given.crtime.unwrap_or(fields.times[CRTIME]);
    if fields.flags & flag::PROJID != 0 {
        fields.project = given.project.unwrap_or(fields.project);
    }
}

impl Replay {
    /// Changes attributes (OpenZFS: `zfs_replay_setattr`).
    pub(super) fn set_attributes(&self, set: &SetAttributes, tx: &Tx) -> Result<(), ZplError> {
        let (store, node) = (&self.zfs.store, self.zfs.node(set.object)?);
        if let Some(size) = set.size {
            self.zfs.truncate(&node, size)?;
        }
        let attributes = SetAttrs { mode: set.mode, uid: set.uid, gid: set.gid, atime: set.atime, mtime: set.mtime, ..SetAttrs::default() };
        node.edit(&store.sa, tx, |state| {
            self.zfs.attributes.apply_attrs(&node, &attributes, state, tx)?;
            let Some(given) = &set.attributes else { return Ok(()) };
            if let Some(project) = given.project {
                state.give_project(&store.sa, &node.dnode, project, tx)?;
            }
            put_optional(&mut state.fields, given);
            Ok(())
        })
    }

    /// Sets an extended attribute in the system attributes, or removes it (OpenZFS: `zfs_replay_setsaxattr`).
    pub(super) fn set_xattr(&self, object: ObjectId, name: &[u8], value: &[u8], tx: &Tx) -> Result<(), ZplError> {
        let (store, node) = (&self.zfs.store, self.zfs.node(object)?);
        let mut list = (*self.zfs.xattrs.sa_list(&node)?).clone();
        list.remove(name);
        if !value.is_empty() {
            list.set(name, Bytes(value.to_vec()));
        }
        let (packed, now) = (list.encode(Encoding::Xdr), self.zfs.now());
        if packed.len() > crate::xattr::SA_LIST_BYTES_MAX {
            return Err(ZplError::NoSpace);
        }
        node.edit(&store.sa, tx, |state| {
            store.sa.set(&node.dnode, &mut state.attrs, Attr::Dxattr, &packed, tx)?;
            state.xattrs = Some(Arc::new(list));
            state.fields.times[CTIME] = now;
            Ok(())
        })
    }
}
