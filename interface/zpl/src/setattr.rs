//! Changing attributes (OpenZFS: `zfs_setattr`), and what stat(2) shows.
//!
//! Who may change what is decided by the kernel's checks of a mount with `default_permissions`; here are the consequences:
//! access control lists and the mode follow each other, setuid goes with a change of owner, times follow.

use crate::nodes::{Node, Nodes};
use crate::posix_acl::{ACCESS, DEFAULT, List};
use crate::room::TX_NAMES;
use crate::store::Store;
use crate::undo::Undo;
use crate::userspace::Owner;
use crate::xattr::{VALUE_BYTES_MAX, XattrChange, Xattrs};
use crate::znode::{ATIME, CTIME, MTIME, S_IFMT, S_ISGID, State, Time, Znode, clear_suid, flag};
use crate::{ZplError, acl};
use dmu::Tx;
use std::cell::Cell;
use std::sync::Arc;
use zil::SetAttributes;

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttrs {
    /// Permission bits.
    pub mode: Option<u64>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<Time>,
    /// Modification time.
    pub mtime: Option<Time>,
    /// True to clear setuid and setgid.
    pub kill_suid: bool,
    /// True when the times are the present, as of touch(1): who may only append may do that.
    pub touches: bool,
}

/// Attributes and sizes that stat(2) shows.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Attributes of the node.
    pub fields: crate::Fields,
    /// Number of allocated units of 512 bytes, as of the last sync, with those of the node itself (OpenZFS: `dmu_object_size_from_db`). Never 0:
    /// archivers take that for a file without data, and a file that was just written has no blocks yet.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u64,
}

impl Stat {
    /// Attributes and allocation of a node.
    pub(crate) fn of(store: &Store, node: &Znode) -> Result<Stat, ZplError> {
        let info = node.dnode.info()?;
        let fields = node.fields();
        let record = store.record_size();
        let block = if fields.is_regular() { (info.block_size as u64).max(record.min(128 << 10)) } else { info.block_size as u64 };
        Ok(Stat { fields, blocks: info.used_bytes.div_ceil(512) + u64::from(info.slots), block_size: block })
    }
}

/// Changes of attributes of a file system's nodes.
pub(crate) struct Attributes {
    pub(crate) nodes: Arc<Nodes>,
    xattrs: Arc<Xattrs>,
}

impl Attributes {
    pub(crate) fn new(nodes: Arc<Nodes>, xattrs: Arc<Xattrs>) -> Attributes {
        Attributes { nodes, xattrs }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.nodes.store
    }

    /// Changes attributes; the size is [`crate::Zfs::truncate`]'s.
    pub(crate) fn set_attrs(&self, node: &Node, set: &SetAttrs) -> Result<(), ZplError> {
        self.store().check_writable()?;
        let appends =
            set.mode.is_none() && set.uid.is_none() && set.gid.is_none() && (set.touches || set.atime.is_none() && set.mtime.is_none());
        let forbids = if appends { flag::IMMUTABLE } else { flag::IMMUTABLE | flag::APPENDONLY };
        if node.fields().flags & forbids != 0 {
            return Err(ZplError::NotPermitted);
        }
        let now = node.fields();
        let new = |id: Option<u32>, old: u64| id.map(u64::from).filter(|id| *id != old);
        self.store().limits.check(&Owner { uid: new(set.uid, now.uid), gid: new(set.gid, now.gid), project: None }, true)?;
        // Lists are dropped after the locks: so are the nodes that they hold.
        let list;
        let _names = set.mode.and_then(|_| self.store().settings().posix_acl.then(|| node.names.write()));
        list = match set.mode {
            Some(mode) if _names.is_some() => self.xattrs.chmod_list(node, mode)?,
            _ => None,
        };
        self.carry_out(node, set, list.as_ref())
    }

    /// Sets an access control list of `acltype=posix`, or removes it without a value (OpenZFS: `zpl_set_acl`). The permission bits follow the one
    /// that decides about access; setgid goes then where `kill_sgid` says so. Whether there was one before does not matter.
    ///
    /// # Errors
    /// [`ZplError::NotSupported`] with another `acltype`, for links, and for a default list before version 5, where new nodes have no place for what
    /// they would inherit; [`ZplError::Invalid`] for what is no list; [`ZplError::AccessDenied`] for a default list of what is no directory.
    pub(crate) fn set_list(&self, node: &Node, name: &[u8], value: Option<&[u8]>, kill_sgid: bool) -> Result<(), ZplError> {
        self.store().check_writable()?;
        node.check_attributes_change()?;
        let (fields, value) = (node.fields(), value.unwrap_or_default());
        if !self.store().settings().posix_acl || fields.is_symlink() {
            return Err(ZplError::NotSupported);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(ZplError::ValueTooBig);
        }
        let list = List::decode(value)?;
        if name == DEFAULT && list.is_some() && !self.store().sa.is_modern() {
            return Err(ZplError::NotSupported);
        }
        if name == DEFAULT && !fields.is_directory() {
            return if list.is_some() { Err(ZplError::AccessDenied) } else { Ok(()) };
        }
        let stored = list.as_ref().filter(|list| name == DEFAULT || !list.is_trivial()).map(List::encode);
        // Nodes found on the way are let go of after the lock.
        let change;
        let _names = node.names.write();
        change = self.xattrs.stage_xattr(node, name, stored.as_deref())?;
        let now = node.fields().mode & 0o7777;
        let kept = now & if kill_sgid { !(S_ISGID | 0o777) } else { !0o777 };
        let mode = list.filter(|_| name == ACCESS).map(|list| kept | list.mode()).filter(|mode| *mode != now);
        self.carry_out(node, &SetAttrs { mode, ..SetAttrs::default() }, Some(&change))
    }

    /// Changes attributes, and a list with them. The caller holds `names` where there is one.
    fn carry_out(&self, node: &Node, set: &SetAttrs, list: Option<&XattrChange>) -> Result<(), ZplError> {
        let _files = list.and_then(XattrChange::lock);
        let room = &self.store().room;
        let frees = list.is_some_and(XattrChange::is_removal);
        let tx = if frees { room.assign_frees(2 * TX_NAMES)? } else { room.assign(2 * TX_NAMES)? };
        Undo::run(self.store(), &tx, |undo| {
            let hidden = match list {
                Some(list) => self.xattrs.enter_files(node, list, undo)?,
                None => None,
            };
            let before = Cell::new(0);
            let edit = |state: &mut State| {
                before.set(state.fields.mode);
                self.apply_attrs(node, set, state, &tx)?;
                list.map_or(Ok(()), |list| self.xattrs.enter_list(node, list, state, &tx))
            };
            node.edit_then(&self.store().sa, &tx, edit, |state| self.note(node, set, (before.get(), state), &tx))?;
            if let Some(list) = list {
                self.xattrs.note(node, list, hidden.as_ref(), &tx);
            }
            Ok(())
        })
    }

    /// Notes what was set, and the mode if that followed from it.
    fn note(&self, node: &Node, set: &SetAttrs, (before, state): (u64, &State), tx: &Tx) {
        let mode = (set.mode.is_some() || state.fields.mode != before).then_some(state.fields.mode);
        let SetAttrs { uid, gid, atime, mtime, .. } = *set;
        let noted = SetAttributes { object: node.object, mode, uid, gid, size: None, atime, mtime, attributes: None };
        self.store().journal.note_set(state, noted, tx);
    }

    /// Changes attributes of a node whose state is locked, with what follows from them.
    pub(crate) fn apply_attrs(&self, node: &Node, set: &SetAttrs, state: &mut State, tx: &Tx) -> Result<(), ZplError> {
        let now = self.store().now();
        let directory = state.fields.is_directory();
        let old_mode = state.fields.mode;
        if let Some(mode) = set.mode {
            state.fields.mode = (old_mode & S_IFMT) | (mode & 0o7777);
        }
        let owner_changes =
            set.uid.is_some_and(|uid| u64::from(uid) != state.fields.uid) || set.gid.is_some_and(|gid| u64::from(gid) != state.fields.gid);
        if (owner_changes && set.mode.is_none() && !directory) || set.kill_suid {
            clear_suid(&mut state.fields.mode);
        }
        state.fields.uid = set.uid.map_or(state.fields.uid, u64::from);
        state.fields.gid = set.gid.map_or(state.fields.gid, u64::from);
        state.fields.times[ATIME] = set.atime.unwrap_or(state.fields.times[ATIME]);
        state.fields.times[MTIME] = set.mtime.unwrap_or(state.fields.times[MTIME]);
        state.fields.times[CTIME] = now;
        state.fields.flags |= flag::ARCHIVE;
        if state.fields.mode != old_mode && !state.fields.is_symlink() {
            let mode = state.fields.mode;
            self.store().sa.set_trivial_acl(&node.dnode, &mut state.attrs, (mode, directory), tx)?;
            state.fields.flags |= flag::ACL_TRIVIAL;
            if acl::no_execs_denied(mode) {
                state.fields.flags |= flag::NO_EXECS_DENIED;
            } else {
                state.fields.flags &= !flag::NO_EXECS_DENIED;
            }
        }
        Ok(())
    }
}
