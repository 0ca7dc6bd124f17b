//! Changing attributes (OpenZFS: `zfs_setattr`), and what stat(2) shows.
//!
//! Who may change what is decided by the kernel's checks of a mount with `default_permissions`; here are the consequences:
//! the access control list follows the mode, setuid goes with a change of owner, times follow.

use crate::nodes::{Node, Nodes};
use crate::room::TX_NAMES;
use crate::sa::Attr;
use crate::store::Store;
use crate::undo::Undo;
use crate::userspace::Owner;
use crate::xattr::{XattrChange, Xattrs};
use crate::znode::{ATIME, CTIME, MTIME, S_IFMT, State, Time, Znode, clear_suid, flag};
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
        let _files = list.as_ref().and_then(XattrChange::lock);
        let tx = self.store().room.assign(2 * TX_NAMES)?;
        Undo::run(self.store(), &tx, |undo| {
            let hidden = match &list {
                Some(list) => self.xattrs.enter_files(node, list, undo)?,
                None => None,
            };
            let before = Cell::new(0);
            let edit = |state: &mut State| {
                before.set(state.fields.mode);
                self.apply_attrs(node, set, state, &tx)?;
                list.as_ref().map_or(Ok(()), |list| self.xattrs.enter_list(node, list, state, &tx))
            };
            node.edit_then(&self.store().sa, &tx, edit, |state| self.note(node, set, (before.get(), state), &tx))?;
            if let Some(list) = &list {
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
        if state.fields.mode != old_mode && !state.fields.is_symlink() && !state.attrs.is_legacy() {
            let mode = state.fields.mode;
            let aces = acl::trivial(mode, directory);
            let count = aces.len() as u64 / 8;
            self.store().sa.set(&node.dnode, &mut state.attrs, Attr::DaclAces, &aces, tx)?;
            self.store().sa.set(&node.dnode, &mut state.attrs, Attr::DaclCount, &count.to_le_bytes(), tx)?;
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
