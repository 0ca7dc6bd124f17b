//! Renaming: within and across directories, replacing, exchanging (OpenZFS: `zfs_rename`, `zfs_rename_lock`).
//!
//! Moves across directories hold the rename lock, so that the tree stands still while it is checked that a directory does
//! not become its own descendant.

use crate::log::Moved;
use crate::names::{Directories, lock_names};
use crate::nodes::Node;
use crate::room::TX_NAMES;
use crate::undo::Undo;
use crate::znode::{Znode, flag};
use crate::{NewNode, ZplError};
use dmu::Tx;
use ondisk::ObjectId;

/// Number of directories of a path beyond which it has a loop: the file system is damaged.
const DEPTH_MAX: usize = 1 << 20;

/// Treatment of a target that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace the target.
    #[default]
    Replace,
    /// Fail (RENAME_NOREPLACE).
    NoReplace,
    /// Give the target the source's place (RENAME_EXCHANGE).
    Exchange,
}

/// Place of a node: a directory and a name in it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Directory of the place.
    pub directory: &'a Node,
    /// Name in the directory.
    pub name: &'a [u8],
}

impl Directories {
    /// Moves `from` to `to`.
    pub(crate) fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<(), ZplError> {
        self.rename_leaving(from, to, mode, None)
    }

    /// Moves `from` to `to` and leaves a new node under the old name, for an overlay a whiteout (RENAME_WHITEOUT): a character device
    /// of number 0. EINVAL together with an exchange.
    pub(crate) fn rename_leaving(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
        leaves: Option<&NewNode<'_>>,
    ) -> Result<(), ZplError> {
        self.store().check_writable()?;
        if leaves.is_some() && mode == RenameMode::Exchange {
            return Err(ZplError::Invalid);
        }
        if [from.name, to.name].iter().any(|name| *name == b"." || *name == b"..") {
            return Err(ZplError::Invalid);
        }
        self.store().check_name(to.name)?;
        let across = from.directory.object != to.directory.object;
        if from.directory.fields().flags & flag::XATTR != to.directory.fields().flags & flag::XATTR {
            return Err(ZplError::Invalid);
        }
        let source = self.lookup_child(from.directory, from.name)?;
        let target = match self.lookup_child(to.directory, to.name) {
            Ok(target) => Some(target),
            Err(ZplError::NotFound) => None,
            Err(error) => return Err(error),
        };
        // Declared after the nodes: released before they are let go of.
        let _tree = across.then(|| self.rename_lock.lock());
        let mut involved: Vec<&Znode> = vec![from.directory, to.directory];
        involved.extend(target.as_deref());
        let _names = lock_names(&involved);
        from.directory.check_live_directory()?;
        to.directory.check_live_directory()?;
        // What was found before the locks must still be there.
        let still = |directory: &Znode, name: &[u8]| self.store().find(directory, name).map(|found| found.map(|entry| entry.object));
        if still(from.directory, from.name)? != Some(source.object) {
            return Err(ZplError::NotFound);
        }
        if still(to.directory, to.name)? != target.as_ref().map(|target| target.object) {
            return Err(if target.is_some() { ZplError::NotFound } else { ZplError::Exists });
        }
        self.move_name(from, to, &source, target.as_ref(), mode, leaves)
    }

    /// Takes the old name off `source`, or lets it stand for a new node.
    fn vacate(&self, from: Place<'_>, source: &Node, leaves: Option<&NewNode<'_>>, undo: &mut Undo<'_>) -> Result<Option<Node>, ZplError> {
        let Some(new) = leaves else { return undo.drop_name(&from.directory.znode, &source.znode, from.name).map(|()| None) };
        let left = self.nodes.make_node(Some(from.directory), new, undo)?;
        undo.point_name(&from.directory.znode, from.name, &left.znode)?;
        undo.count_names(&from.directory.znode, 0, -i64::from(source.fields().is_directory()))?;
        Ok(Some(left))
    }

    fn move_name(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        source: &Node,
        target: Option<&Node>,
        mode: RenameMode,
        leaves: Option<&NewNode<'_>>,
    ) -> Result<(), ZplError> {
        let across = from.directory.object != to.directory.object;
        source.fields().check_removable(&from.directory.fields())?;
        to.directory.fields().check_takes(&source.fields())?;
        if across && source.fields().is_directory() {
            self.check_no_cycle(source, to.directory)?;
        }
        let Some(target) = target else {
            if mode == RenameMode::Exchange {
                return Err(ZplError::NotFound);
            }
            let tx = self.store().room.assign(2 * TX_NAMES)?;
            let left = Undo::run(self.store(), &tx, |undo| {
                undo.add_name(&to.directory.znode, &source.znode, to.name)?;
                let left = self.vacate(from, source, leaves, undo)?;
                undo.stamp(&source.znode)?;
                Ok(left)
            })?;
            self.note(from, to, (source, None), left.as_ref(), &tx);
            return Ok(());
        };
        if mode == RenameMode::NoReplace {
            return Err(ZplError::Exists);
        }
        target.fields().check_removable(&to.directory.fields())?;
        if source.object == target.object {
            return self.rename_to_itself(from, to, source);
        }
        if mode == RenameMode::Exchange {
            from.directory.fields().check_takes(&target.fields())?;
            if across && target.fields().is_directory() {
                self.check_no_cycle(target, from.directory)?;
            }
            let tx = self.store().room.assign(2 * TX_NAMES)?;
            Undo::run(self.store(), &tx, |undo| self.exchange([(from, source), (to, target)], undo))?;
            let (from, to) = ((&**from.directory, from.name), (&**to.directory, to.name));
            let moved = Moved { from, to, source, target: Some(target), is_exchange: true, left: None };
            self.store().journal.note_moved(&moved, &tx);
            return Ok(());
        }
        match (source.fields().is_directory(), target.fields().is_directory()) {
            (true, false) => return Err(ZplError::NotDirectory),
            (false, true) => return Err(ZplError::IsDirectory),
            (true, true) if !target.fields().is_empty_directory() => return Err(ZplError::NotEmpty),
            _ => {}
        }
        let tx = self.store().room.assign(2 * TX_NAMES)?;
        let left = Undo::run(self.store(), &tx, |undo| {
            undo.drop_link(&target.znode)?;
            undo.point_name(&to.directory.znode, to.name, &source.znode)?;
            undo.change(&source.znode, |fields| fields.parent = to.directory.object.0)?;
            // One directory came for the other, if they are directories.
            undo.count_names(&to.directory.znode, 0, 0)?;
            let left = self.vacate(from, source, leaves, undo)?;
            undo.stamp(&source.znode)?;
            Ok(left)
        })?;
        self.note(from, to, (source, Some(target)), left.as_ref(), &tx);
        Ok(())
    }

    /// Notes a renaming that is no exchange.
    fn note(&self, from: Place<'_>, to: Place<'_>, (source, target): (&Node, Option<&Node>), left: Option<&Node>, tx: &Tx) {
        let (from, to) = ((&**from.directory, from.name), (&**to.directory, to.name));
        let (target, left) = (target.map(|node| &**node), left.map(|node| &**node));
        self.store().journal.note_moved(&Moved { from, to, source, target, is_exchange: false, left }, tx);
    }

    /// Gives each of two nodes the other's place.
    fn exchange(&self, places: [(Place<'_>, &Node); 2], undo: &mut Undo<'_>) -> Result<(), ZplError> {
        let across = places[0].0.directory.object != places[1].0.directory.object;
        for (index, (at, leaves)) in places.into_iter().enumerate() {
            let (_, comes) = places[1 - index];
            undo.point_name(&at.directory.znode, at.name, &comes.znode)?;
            undo.change(&comes.znode, |fields| fields.parent = at.directory.object.0)?;
            let directories = i64::from(comes.fields().is_directory()) - i64::from(leaves.fields().is_directory());
            undo.count_names(&at.directory.znode, 0, if across { directories } else { 0 })?;
            undo.stamp(&comes.znode)?;
        }
        Ok(())
    }

    /// Renames a node to itself: links of one file stay as they are, but another spelling of one name is taken on.
    fn rename_to_itself(&self, from: Place<'_>, to: Place<'_>, source: &Node) -> Result<(), ZplError> {
        let spelling =
            |place: Place<'_>| Ok::<_, ZplError>(self.store().find_entry(place.directory, place.name)?.map(|(stored, _)| stored));
        let stored = spelling(from)?;
        if from.directory.object != to.directory.object || stored != spelling(to)? || stored.as_deref() == Some(to.name) {
            return Ok(());
        }
        let tx = self.store().room.assign(TX_NAMES)?;
        Undo::run(self.store(), &tx, |undo| {
            undo.drop_name(&from.directory.znode, &source.znode, from.name)?;
            undo.add_name(&to.directory.znode, &source.znode, to.name)?;
            undo.stamp(&source.znode)
        })?;
        self.note(from, to, (source, None), None, &tx);
        Ok(())
    }

    /// Fails when `directory` lies in the tree under `moved`.
    fn check_no_cycle(&self, moved: &Node, directory: &Node) -> Result<(), ZplError> {
        let mut at = directory.object;
        let mut parent = ObjectId(directory.fields().parent);
        for _ in 0..DEPTH_MAX {
            if at == moved.object {
                return Err(ZplError::Invalid);
            }
            if at == self.root || parent == at {
                return Ok(());
            }
            at = parent;
            parent = if at == moved.object { parent } else { ObjectId(self.nodes.node(at)?.fields().parent) };
        }
        Err(ZplError::CORRUPT)
    }
}
