//! Extended attributes: in the system attributes (`xattr=sa`), or as files of a hidden directory (OpenZFS: `zpl_xattr.c`,
//! `zfs_sa_set_xattr`, `zfs_make_xattrdir`).
//!
//! A name is stored with its namespace (`user.` too, as Linux does by default); a name stored without one was written by
//! another system, or for one ([`set_xattr_compat`]), and shows up as `user.NAME`. A name lives in one of the two places only.

use crate::data::{Data, WriteData};
use crate::direct::Access;
use crate::names::Directories;
use crate::nodes::{Node, Nodes};
use crate::posix_acl::{self, Heritage, List};
use crate::room::TX_NAMES;
use crate::sa::Attr;
use crate::store::Store;
use crate::undo::Undo;
use crate::znode::{CTIME, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, State, Znode, flag};
use crate::{NewNode, ZplError};
use abd::Abd;
use dmu::Tx;
use exec::RwLockWriteGuard;
use nvlist::{Bytes, Encoding, NvList};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the largest value kept in the system attributes (OpenZFS: `DXATTR_MAX_ENTRY_SIZE`).
const SA_VALUE_BYTES_MAX: usize = 32768;
/// Bytes of the largest packed list in the system attributes (OpenZFS: `SA_ATTR_MAX_LEN`).
pub(crate) const SA_LIST_BYTES_MAX: usize = 65535;
/// Bytes of the largest value at all: Linux's limit.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;
/// Namespaces that are stored as part of the name; anything else belongs to `user.` (OpenZFS: `KNOWN_NS`).
const NAMESPACES: [&[u8]; 4] = [b"user.", b"security.", b"system.", b"trusted."];

/// Condition under which an attribute is set, by whether its name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetMode {
    /// Set in either case.
    #[default]
    Any,
    /// Only a new name (XATTR_CREATE).
    Create,
    /// Only an existing name (XATTR_REPLACE).
    Replace,
}

static COMPATIBLE: AtomicBool = AtomicBool::new(false);

/// Sets whether names of the space `user.` are stored without it from now on, for other systems to read (OpenZFS: `zfs_xattr_compat`).
pub fn set_xattr_compat(is_compatible: bool) {
    COMPATIBLE.store(is_compatible, Ordering::Relaxed);
}

/// Other spelling of a `user.` name: without the namespace.
fn compatible_name(name: &[u8]) -> Option<&[u8]> {
    let bare = name.strip_prefix(b"user.")?;
    (!bare.is_empty() && !NAMESPACES.iter().any(|space| bare.starts_with(space))).then_some(bare)
}

/// Refuses names of other spaces, which nobody handles (Linux: `xattr_resolve_name` over OpenZFS's `zpl_xattr_handlers`).
fn check_namespace(name: &[u8]) -> Result<(), ZplError> {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match spaces.iter().find_map(|space| name.strip_prefix(*space)) {
        Some(b"") => Err(ZplError::Invalid),
        Some(_) => Ok(()),
        None if posix_acl::is_list(name) => Ok(()),
        None => Err(ZplError::NotSupported),
    }
}

fn shown_name(stored: &[u8]) -> Vec<u8> {
    let known = NAMESPACES.iter().any(|space| stored.starts_with(space));
    if known { stored.to_vec() } else { [b"user.", stored].concat() }
}

/// Extended attributes of a file system's nodes.
pub(crate) struct Xattrs {
    directories: Arc<Directories>,
    data: Arc<Data>,
}

impl Xattrs {
    pub(crate) fn new(directories: Arc<Directories>, data: Arc<Data>) -> Xattrs {
        Xattrs { directories, data }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.directories.store()
    }

    fn nodes(&self) -> &Arc<Nodes> {
        &self.directories.nodes
    }

    /// Refuses names that nobody handles, or not now.
    fn check_served(&self, name: &[u8]) -> Result<(), ZplError> {
        check_namespace(name)?;
        let is_off = name.starts_with(b"user.") && !self.store().settings().user_xattrs;
        if is_off { Err(ZplError::NotSupported) } else { Ok(()) }
    }

    /// List in the system attributes.
    pub(crate) fn sa_list(&self, node: &Znode) -> Result<Arc<NvList>, ZplError> {
        let mut state = node.state.lock();
        if let Some(list) = &state.xattrs {
            return Ok(list.clone());
        }
        let list = match self.store().sa.get(&state.attrs, Attr::Dxattr) {
            Some(packed) if !packed.is_empty() => NvList::decode(packed).map_err(|_| ZplError::CORRUPT)?,
            _ => NvList::new(),
        };
        let list = Arc::new(list);
        state.xattrs = Some(list.clone());
        Ok(list)
    }

    /// Extended attributes that lie in the system attributes, as stored, and their packed length in bytes; None without any.
    pub(crate) fn sa_xattrs(&self, node: &Znode) -> Result<Option<(usize, Arc<NvList>)>, ZplError> {
        let bytes = self.store().sa.get(&node.state.lock().attrs, Attr::Dxattr).map_or(0, <[u8]>::len);
        if bytes == 0 { Ok(None) } else { Ok(Some((bytes, self.sa_list(node)?))) }
    }

    fn get_stored(&self, node: &Znode, name: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        if let Some(value) = self.sa_list(node)?.get_bytes(name) {
            return Ok(Some(value.to_vec()));
        }
        let Some(directory) = self.nodes().hidden_directory(node)? else { return Ok(None) };
        match self.directories.lookup(&directory, name) {
            Ok(file) => {
                let mut value = vec![0; file.fields().size.min(VALUE_BYTES_MAX as u64 + 1) as usize];
                file.dnode.read(0, &mut value)?;
                Ok(Some(value))
            }
            Err(ZplError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Value of an extended attribute.
    pub(crate) fn get_xattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>, ZplError> {
        self.check_served(name)?;
        if posix_acl::is_list(name) && !self.store().settings().posix_acl {
            return Err(ZplError::NotSupported);
        }
        let _names = node.names.read();
        if let Some(value) = self.get_stored(node, name)? {
            return Ok(value);
        }
        let other = match compatible_name(name) {
            Some(bare) => self.get_stored(node, bare)?,
            None => None,
        };
        other.ok_or(ZplError::NoAttribute)
    }

    /// Names of the extended attributes.
    pub(crate) fn list_xattrs(&self, node: &Node) -> Result<Vec<Vec<u8>>, ZplError> {
        let _names = node.names.read();
        let mut names: Vec<Vec<u8>> = self.sa_list(node)?.iter().map(|(name, _)| shown_name(name.as_bytes())).collect();
        if let Some(directory) = self.nodes().hidden_directory(node)? {
            self.store().list(&directory, 0, &mut |listed| {
                if listed.name != b"." && listed.name != b".." {
                    names.push(shown_name(listed.name));
                }
                true
            })?;
        }
        let settings = self.store().settings();
        names.retain(|name| (settings.posix_acl || !posix_acl::is_list(name)) && (settings.user_xattrs || !name.starts_with(b"user.")));
        Ok(names)
    }

    /// Sets an extended attribute that is no access control list.
    pub(crate) fn set_xattr(&self, node: &Node, name: &[u8], value: &[u8], mode: SetMode) -> Result<(), ZplError> {
        self.store().check_writable()?;
        node.check_attributes_change()?;
        self.check_served(name)?;
        if name.len() > crate::NAME_BYTES_MAX {
            return Err(ZplError::NameTooLong);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(ZplError::ValueTooBig);
        }
        // Nodes found on the way are let go of after the lock.
        let change;
        let _names = node.names.write();
        match (mode, self.has_xattr(node, name)?) {
            (SetMode::Create, true) => return Err(ZplError::Exists),
            (SetMode::Replace, false) => return Err(ZplError::NoAttribute),
            _ => {}
        }
        change = self.stage_xattr(node, name, Some(value))?;
        self.carry_out_xattr(node, &change)
    }

    /// Removes an extended attribute that is no access control list.
    pub(crate) fn remove_xattr(&self, node: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.store().check_writable()?;
        node.check_attributes_change()?;
        self.check_served(name)?;
        let change;
        let _names = node.names.write();
        if !self.has_xattr(node, name)? {
            return Err(ZplError::NoAttribute);
        }
        change = self.stage_xattr(node, name, None)?;
        self.carry_out_xattr(node, &change)
    }

    fn has_xattr(&self, node: &Znode, name: &[u8]) -> Result<bool, ZplError> {
        for spelling in [Some(name), compatible_name(name)].into_iter().flatten() {
            if self.get_stored(node, spelling)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prepares to set or remove an attribute, whatever its name: what takes long or much room is done here. The caller holds
    /// `names` until the change is carried out, and lets go of it after them.
    pub(crate) fn stage_xattr(&self, node: &Node, name: &[u8], value: Option<&[u8]>) -> Result<XattrChange, ZplError> {
        let spellings = || [Some(name), compatible_name(name)].into_iter().flatten();
        let old = self.sa_list(node)?;
        let mut list = (*old).clone();
        for spelling in spellings() {
            list.remove(spelling);
        }
        let without = list.clone();
        let is_small = |value: &&[u8]| value.len() <= SA_VALUE_BYTES_MAX && self.store().settings().xattr_sa && !node.is_legacy();
        let small = value.filter(is_small);
        let bare = compatible_name(name).filter(|_| COMPATIBLE.load(Ordering::Relaxed));
        let stored = bare.unwrap_or(name);
        if let Some(value) = small {
            list.set(stored, Bytes(value.to_vec()));
        }
        let mut packed = list.encode(Encoding::Xdr);
        let fits = packed.len() <= SA_LIST_BYTES_MAX;
        if !fits {
            list = without;
            packed = list.encode(Encoding::Xdr);
        }
        let directory = self.nodes().hidden_directory(node)?;
        let unlisted = spellings().filter(|spelling| old.get_bytes(spelling).is_some() && list.get_bytes(spelling).is_none());
        let unlisted = unlisted.map(<[u8]>::to_vec).collect();
        let mut change = XattrChange { name: stored.to_vec(), list: None, unlisted, directory, file: None, gone: Vec::new() };
        if let Some(value) = value.filter(|_| small.is_none() || !fits) {
            change.file = Some(self.make_value(node, value)?);
        }
        if list != *old {
            change.list = Some((Arc::new(list), packed));
        }
        if let Some(directory) = &change.directory {
            for spelling in spellings() {
                match self.directories.lookup(directory, spelling) {
                    Ok(file) => change.gone.push((spelling.to_vec(), file)),
                    Err(ZplError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(change)
    }

    /// Change of a stored list of `acltype=posix` that follows a new mode, if there is any; the caller holds `names`.
    pub(crate) fn chmod_list(&self, node: &Node, mode: u64) -> Result<Option<XattrChange>, ZplError> {
        let Some(old) = self.get_stored(node, posix_acl::ACCESS)? else { return Ok(None) };
        let list = posix_acl::followed(&old, mode);
        list.map(|list| self.stage_xattr(node, posix_acl::ACCESS, Some(&list))).transpose()
    }

    /// Returns what a new node inherits in a directory (OpenZFS: `zpl_init_acl`). Without a default list there the umask counts.
    pub(crate) fn heritage(&self, directory: &Node, new: &NewNode<'_>) -> Result<Heritage, ZplError> {
        let kind = new.mode & S_IFMT;
        let Some(umask) = new.umask.filter(|_| kind != S_IFLNK) else { return Ok(Heritage { mode: new.mode, ..Heritage::default() }) };
        let stored = if self.store().settings().posix_acl {
            let _names = directory.names.read();
            self.get_stored(directory, posix_acl::DEFAULT)?
        } else {
            None
        };
        let default = List::decode(&stored.unwrap_or_default()).map_err(|_| ZplError::CORRUPT)?;
        let masked = || Heritage { mode: new.mode & !umask, ..Heritage::default() };
        Ok(default.map_or_else(masked, |default| Heritage::of(&default, new.mode, kind == S_IFDIR)))
    }

    /// Makes a nameless file that holds a value.
    fn make_value(&self, node: &Znode, value: &[u8]) -> Result<Node, ZplError> {
        let fields = node.fields();
        let new = NewNode { mode: S_IFREG | 0o644, uid: fields.uid as u32, gid: fields.gid as u32, xattr: true, ..NewNode::default() };
        let file = self.directories.make_nameless(node, &new)?;
        let data = Abd::from_slice(value);
        self.data.write(&file, WriteData { offset: 0, data, may_keep: true, kill_suid: false, synchronous: false }, Access::default())?;
        Ok(file)
    }

    /// Carries out a change of nothing else.
    pub(crate) fn carry_out_xattr(&self, node: &Node, change: &XattrChange) -> Result<(), ZplError> {
        let _files = change.lock();
        let tx =
            if change.is_removal() { self.store().room.assign_frees(2 * TX_NAMES)? } else { self.store().room.assign(2 * TX_NAMES)? };
        let now = self.store().now();
        Undo::run(self.store(), &tx, |undo| {
            let hidden = self.enter_files(node, change, undo)?;
            node.edit(&self.store().sa, &tx, |state| {
                self.enter_list(node, change, state, &tx)?;
                state.fields.times[CTIME] = now;
                state.fields.flags |= flag::ARCHIVE;
                Ok(())
            })?;
            self.note(node, change, hidden.as_ref(), &tx);
            Ok(())
        })
    }

    /// Notes a change that was carried out; `made` is the hidden directory if it made one.
    pub(crate) fn note(&self, node: &Node, change: &XattrChange, made: Option<&Node>, tx: &Tx) {
        let journal = &self.store().journal;
        if node.state.lock().unlinked {
            return journal.note_xattrs_nameless(tx);
        }
        if let Some(file) = change.file.as_ref().filter(|file| file.fields().generation != tx.txg().0) {
            journal.leave_out_value(file, tx);
        }
        let in_files = change.file.is_some() || !change.gone.is_empty();
        journal.note_xattrs(node, in_files, change.listed(), tx);
        if let Some(directory) = &change.directory {
            change.gone.iter().for_each(|(name, old)| journal.note_removed(directory, name, old, tx));
        }
        if let Some(directory) = made {
            journal.note_made(node, directory, b"", b"", tx);
        }
        if let (Some(file), Some(directory)) = (&change.file, made.or(change.directory.as_ref())) {
            journal.note_value(directory, file, &change.name, tx);
        }
        if in_files {
            journal.note_touched(node, tx);
        }
    }

    /// Makes the part of a change that is in the hidden directory; gives that if it had to be made.
    pub(crate) fn enter_files(&self, node: &Node, change: &XattrChange, undo: &mut Undo<'_>) -> Result<Option<Node>, ZplError> {
        for (name, old) in &change.gone {
            let directory = change.directory.as_ref().ok_or(ZplError::CORRUPT)?;
            undo.drop_name(&directory.znode, &old.znode, name)?;
            undo.drop_link(&old.znode)?;
        }
        let Some(file) = &change.file else { return Ok(None) };
        let made = if change.directory.is_none() { Some(self.make_xattr_directory(node, undo)?) } else { None };
        if let Some(directory) = made.as_ref().or(change.directory.as_ref()) {
            undo.add_name(&directory.znode, &file.znode, &change.name)?;
        }
        undo.unmark_unlinked(&file.znode)?;
        undo.change(&file.znode, |fields| fields.links = 1)?;
        Ok(made)
    }

    /// Makes the part of a change that is in the system attributes.
    pub(crate) fn enter_list(&self, node: &Node, change: &XattrChange, state: &mut State, tx: &Tx) -> Result<(), ZplError> {
        let Some((list, packed)) = &change.list else { return Ok(()) };
        self.store().sa.set(&node.dnode, &mut state.attrs, Attr::Dxattr, packed, tx)?;
        state.xattrs = Some(list.clone());
        Ok(())
    }

    fn make_xattr_directory(&self, node: &Node, undo: &mut Undo<'_>) -> Result<Node, ZplError> {
        let fields = node.fields();
        let new = NewNode { mode: S_IFDIR | 0o1777, uid: fields.uid as u32, gid: fields.gid as u32, xattr: true, ..NewNode::default() };
        let directory = self.nodes().make_node(Some(node), &new, undo)?;
        undo.change(&node.znode, |fields| fields.xattr = directory.object.0)?;
        Ok(directory)
    }
}

/// Change of one extended attribute that is prepared: a new value that needs a file lies in one without a name.
#[derive(Debug)]
pub(crate) struct XattrChange {
    name: Vec<u8>,
    /// List in the system attributes afterwards, and packed; None when it stays.
    list: Option<(Arc<NvList>, Vec<u8>)>,
    /// Names that go from that list.
    unlisted: Vec<Vec<u8>>,
    directory: Option<Node>,
    /// File of the new value, when it does not go into the list.
    file: Option<Node>,
    /// Names and files of values that go from the directory.
    gone: Vec<(Vec<u8>, Node)>,
}

impl XattrChange {
    /// Locks the names of the hidden directory: before the transaction.
    pub(crate) fn lock(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.directory.as_ref().map(|directory| directory.names.write())
    }

    /// Names and values that are new in the system attributes, and names without a value that go from there.
    fn listed(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let set = self.list.as_ref().and_then(|(list, _)| list.get_bytes(&self.name));
        let gone = self.unlisted.iter().map(|name| (&name[..], None));
        gone.chain(set.map(|value| (&self.name[..], Some(value))))
    }

    /// True when nothing is stored that was not.
    pub(crate) fn is_removal(&self) -> bool {
        self.file.is_none() && self.list.as_ref().is_none_or(|(list, _)| list.get_bytes(&self.name).is_none())
    }
}
