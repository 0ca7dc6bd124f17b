//! Records of names: nodes that are made, removed, linked, renamed.

use super::Replay;
use crate::make::Recorded;
use crate::nodes::Node;
use crate::rename::{Place, RenameMode};
use crate::undo::Undo;
use crate::{NewNode, ZplError};
use dmu::Tx;
use ondisk::ObjectId;
use zap::{Match, Zap};
use zil::{Create, Link, Made, Remove, Rename, RenameKind};

/// The new node of a record.
pub(super) fn new_node<'a>(create: &Create<'a>) -> NewNode<'a> {
    NewNode {
        mode: create.mode,
        uid: create.uid,
        gid: create.gid,
        rdev: create.rdev,
        target: create.target,
        xattr: create.made == Made::XattrDirectory,
        nameless: false,
        umask: None,
        lists: &[],
        recorded: Some(Recorded { object: create.object, slots: create.slots, generation: create.generation, crtime: create.crtime }),
    }
}

impl Replay {
    /// Makes a node with a name, or the directory of a node's attributes (OpenZFS: `zfs_replay_create`).
    pub(super) fn create(&self, create: &Create<'_>, tx: &Tx) -> Result<(), ZplError> {
        let (store, nodes) = (&self.zfs.store, &self.zfs.nodes);
        let above = self.zfs.node(create.directory)?;
        let _names = above.names.write();
        let is_hidden = create.made == Made::XattrDirectory;
        if is_hidden {
            if above.fields().xattr != 0 {
                return Err(ZplError::Exists);
            }
        } else {
            above.check_live_directory()?;
            if store.find(&above, create.name)?.is_some() {
                return Err(ZplError::Exists);
            }
        }
        let new = new_node(create);
        let made = Undo::run(store, tx, |undo| {
            let node = nodes.make_node(Some(&above), &new, undo)?;
            match is_hidden {
                true => undo.change(&above.znode, |fields| fields.xattr = node.object().0)?,
                false => undo.add_name(&above.znode, &node.znode, create.name)?,
            }
            if let Some(attributes) = &create.attributes {
                undo.change(&node.znode, |fields| super::attributes::put_optional(fields, attributes))?;
            }
            Ok(node)
        })?;
        drop(made);
        Ok(())
    }

    /// Removes a name (OpenZFS: `zfs_replay_remove`).
    pub(super) fn remove(&self, remove: &Remove<'_>, is_caseless: bool) -> Result<(), ZplError> {
        let directory = self.zfs.node(remove.directory)?;
        let name = self.spelling(&directory, remove.name, is_caseless)?;
        if remove.is_directory { self.zfs.rmdir(&directory, &name) } else { self.zfs.unlink(&directory, &name) }
    }

    /// Gives a node a further name (OpenZFS: `zfs_replay_link`).
    pub(super) fn link(&self, link: &Link<'_>) -> Result<(), ZplError> {
        self.zfs.link(&self.zfs.node(link.object)?, &self.zfs.node(link.directory)?, link.name)
    }

    /// Changes a name (OpenZFS: `zfs_replay_rename`, `zfs_replay_rename_exchange`, `zfs_replay_rename_whiteout`).
    pub(super) fn rename(&self, rename: &Rename<'_>, is_caseless: bool) -> Result<(), ZplError> {
        let place = |(object, name): (ObjectId, &[u8])| {
            let directory = self.zfs.node(object)?;
            let name = self.spelling(&directory, name, is_caseless)?;
            Ok::<_, ZplError>((directory, name))
        };
        let (from, to) = (place(rename.from)?, place(rename.to)?);
        let left = match &rename.kind {
            RenameKind::Whiteout(create) => Some(new_node(create)),
            RenameKind::Replace | RenameKind::Exchange => None,
        };
        let mode = if rename.kind == RenameKind::Exchange { RenameMode::Exchange } else { RenameMode::Replace };
        let (from, to) = (Place { directory: &from.0, name: &from.1 }, Place { directory: &to.0, name: &to.1 });
        self.zfs.rename_leaving(from, to, mode, left.as_ref())
    }

    /// Name as it is spelled in the directory, where the operation did not look at case (OpenZFS: `FIGNORECASE`); else as it is given.
    fn spelling(&self, directory: &Node, name: &[u8], is_caseless: bool) -> Result<Vec<u8>, ZplError> {
        if is_caseless && self.zfs.store.rules.matching() == Match::NormalizeMatchCase {
            let _names = directory.names.read();
            match Zap::open(directory.dnode.clone())?.lookup_norm(name, Match::Normalize) {
                Ok(found) => return Ok(found.name),
                Err(zap::ZapError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(name.to_vec())
    }
}

/// Files without names: of those an arena tells, since somebody has them open.
impl Replay {
    /// Makes a file without a name.
    pub(super) fn make_nameless(&self, create: &Create<'_>, tx: &Tx) -> Result<(), ZplError> {
        let (store, nodes) = (&self.zfs.store, &self.zfs.nodes);
        let above = self.zfs.node(create.directory)?;
        let new = NewNode { nameless: true, ..new_node(create) };
        let made = Undo::run(store, tx, |undo| {
            let node = nodes.make_node(Some(&above), &new, undo)?;
            undo.mark_unlinked(&node.znode)?;
            Ok(node)
        })?;
        drop(made);
        Ok(())
    }

    /// Deletes a file without names, which nobody has open any more. One with names is a value of a file that is to be deleted: it goes with that.
    pub(super) fn let_go(&self, object: ObjectId) -> Result<(), ZplError> {
        match self.zfs.node(object) {
            Ok(node) if node.fields().links == 0 => {
                node.state.lock().unlinked = true;
                self.zfs.release(object, u64::MAX);
                Ok(())
            }
            Ok(_) | Err(ZplError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
