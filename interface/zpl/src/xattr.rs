//! Extended attributes: in the system attributes (`xattr=sa`), or as files of a hidden directory (OpenZFS: `zpl_xattr.c`,
//! `zfs_sa_set_xattr`, `zfs_make_xattrdir`).
//!
//! A name is stored with its namespace (`user.` too, as Linux does by default); a name stored without one was written by
//! another system and shows up as `user.NAME`. A name lives in one of the two places only.

use crate::fs::TX_NAMES;
use crate::sa::Attr;
use crate::znode::{CTIME, Node, S_IFDIR, S_IFREG, Znode, flag};
use crate::{NewNode, WriteData, Zfs, ZplError, posix_acl};
use abd::Abd;
use nvlist::{Bytes, Encoding, NvList};
use ondisk::ObjectId;
use std::sync::Arc;

/// Largest value kept in the system attributes (OpenZFS: `DXATTR_MAX_ENTRY_SIZE`).
const SA_VALUE_BYTES_MAX: usize = 32768;
/// Largest packed list there (OpenZFS: `SA_ATTR_MAX_LEN`).
const SA_LIST_BYTES_MAX: usize = 65535;
/// Largest value at all: Linux's limit.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Namespaces that are stored as part of the name; anything else belongs to `user.` (OpenZFS: `KNOWN_NS`).
const NAMESPACES: [&[u8]; 4] = [b"user.", b"security.", b"system.", b"trusted."];

/// What setting does when the name exists or doesn't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetMode {
    /// Either way.
    #[default]
    Any,
    /// Only a new one (XATTR_CREATE).
    Create,
    /// Only an existing one (XATTR_REPLACE).
    Replace,
}

/// The other spelling of a `user.` name: without the namespace.
fn compatible_name(name: &[u8]) -> Option<&[u8]> {
    let bare = name.strip_prefix(b"user.")?;
    (!bare.is_empty() && !NAMESPACES.iter().any(|space| bare.starts_with(space))).then_some(bare)
}

fn shown_name(stored: &[u8]) -> Vec<u8> {
    let known = NAMESPACES.iter().any(|space| stored.starts_with(space));
    if known { stored.to_vec() } else { [b"user.", stored].concat() }
}

impl Zfs {
    /// The list in the system attributes.
    fn sa_list(&self, node: &Znode) -> Result<Arc<NvList>, ZplError> {
        let mut state = node.state.lock();
        if let Some(list) = &state.xattrs {
            return Ok(list.clone());
        }
        let list = match self.sa.get(&state.attrs, Attr::Dxattr) {
            Some(packed) if !packed.is_empty() => NvList::decode(packed).map_err(|_| ZplError::Corrupt)?,
            _ => NvList::new(),
        };
        let list = Arc::new(list);
        state.xattrs = Some(list.clone());
        Ok(list)
    }

    /// The extended attributes that lie in the system attributes, as stored, and their packed length in bytes; None without any.
    pub fn sa_xattrs(&self, node: &Znode) -> Result<Option<(usize, Arc<NvList>)>, ZplError> {
        let bytes = self.sa.get(&node.state.lock().attrs, Attr::Dxattr).map_or(0, <[u8]>::len);
        if bytes == 0 { Ok(None) } else { Ok(Some((bytes, self.sa_list(node)?))) }
    }

    fn xattr_directory(self: &Arc<Self>, node: &Znode) -> Result<Option<Node>, ZplError> {
        match node.fields().xattr {
            0 => Ok(None),
            object => self.node(ObjectId(object)).map(Some),
        }
    }

    pub(crate) fn get_stored(self: &Arc<Self>, node: &Znode, name: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        if let Some(value) = self.sa_list(node)?.get_bytes(name) {
            return Ok(Some(value.to_vec()));
        }
        let Some(directory) = self.xattr_directory(node)? else { return Ok(None) };
        match self.lookup(&directory, name) {
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
    pub fn get_xattr(self: &Arc<Self>, node: &Node, name: &[u8]) -> Result<Vec<u8>, ZplError> {
        if posix_acl::is_list(name) && !self.settings().posix_acl {
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
    pub fn list_xattrs(self: &Arc<Self>, node: &Node) -> Result<Vec<Vec<u8>>, ZplError> {
        let _names = node.names.read();
        let mut names: Vec<Vec<u8>> = self.sa_list(node)?.iter().map(|(name, _)| shown_name(name.as_bytes())).collect();
        if let Some(directory) = self.xattr_directory(node)? {
            self.list(&directory, 0, &mut |listed| {
                if listed.name != b"." && listed.name != b".." {
                    names.push(shown_name(listed.name));
                }
                true
            })?;
        }
        if !self.settings().posix_acl {
            names.retain(|name| !posix_acl::is_list(name));
        }
        Ok(names)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(self: &Arc<Self>, node: &Node, name: &[u8], value: &[u8], mode: SetMode) -> Result<(), ZplError> {
        self.check_writable()?;
        if name.len() > crate::NAME_BYTES_MAX || name.is_empty() {
            return Err(ZplError::NameTooLong);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(ZplError::ValueTooBig);
        }
        // Lists are not evaluated here: programs that would copy them fall back to the mode.
        if posix_acl::is_list(name) {
            return Err(ZplError::NotSupported);
        }
        // Nodes found on the way are let go of after the lock.
        let directory = self.xattr_directory(node)?;
        let _names = node.names.write();
        let spellings = [Some(name), compatible_name(name)];
        let mut exists = false;
        for spelling in spellings.into_iter().flatten() {
            exists |= self.get_stored(node, spelling)?.is_some();
        }
        match (mode, exists) {
            (SetMode::Create, true) => return Err(ZplError::Exists),
            (SetMode::Replace, false) => return Err(ZplError::NoAttribute),
            _ => {}
        }
        self.store(node, directory.as_ref(), name, value)?;
        if let Some(bare) = compatible_name(name).filter(|_| exists) {
            self.change_sa_list(node, bare, None)?;
            self.remove_from_directory(directory.as_ref(), bare)?;
        }
        Ok(())
    }

    /// Puts a value where it belongs; the caller holds `names`.
    fn store(self: &Arc<Self>, node: &Znode, directory: Option<&Node>, name: &[u8], value: &[u8]) -> Result<(), ZplError> {
        let fits = value.len() <= SA_VALUE_BYTES_MAX && self.settings().xattr_sa && self.sa.is_modern();
        if fits && self.change_sa_list(node, name, Some(value))? {
            return self.remove_from_directory(directory, name);
        }
        self.set_in_directory(node, name, value)?;
        self.change_sa_list(node, name, None).map(|_| ())
    }

    /// Replaces a stored value, whatever its name; the caller holds `names`.
    pub(crate) fn replace_stored(self: &Arc<Self>, node: &Znode, name: &[u8], value: &[u8]) -> Result<(), ZplError> {
        let directory = self.xattr_directory(node)?;
        self.store(node, directory.as_ref(), name, value)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(self: &Arc<Self>, node: &Node, name: &[u8]) -> Result<(), ZplError> {
        self.check_writable()?;
        let directory = self.xattr_directory(node)?;
        let _names = node.names.write();
        let mut found = false;
        for spelling in [Some(name), compatible_name(name)].into_iter().flatten() {
            if self.get_stored(node, spelling)?.is_some() {
                found = true;
                self.change_sa_list(node, spelling, None)?;
                self.remove_from_directory(directory.as_ref(), spelling)?;
            }
        }
        if found { Ok(()) } else { Err(ZplError::NoAttribute) }
    }

    /// Sets or removes a name in the system attributes; false when the list would not fit there. Removing what is not
    /// there changes nothing.
    fn change_sa_list(&self, node: &Znode, name: &[u8], value: Option<&[u8]>) -> Result<bool, ZplError> {
        let mut list = (*self.sa_list(node)?).clone();
        match value {
            Some(value) => drop(list.set(name, Bytes(value.to_vec()))),
            None if !list.remove(name) => return Ok(true),
            None => {}
        }
        let packed = list.encode(Encoding::Xdr);
        if packed.len() > SA_LIST_BYTES_MAX {
            return Ok(false);
        }
        let tx = self.assign(TX_NAMES)?;
        let now = self.now();
        let mut state = node.state.lock();
        self.sa.set(&node.dnode, &mut state.attrs, Attr::Dxattr, &packed, &tx)?;
        state.fields.times[CTIME] = now;
        state.fields.flags |= flag::ARCHIVE;
        node.write_back(&self.sa, &mut state, &tx)?;
        state.xattrs = Some(Arc::new(list));
        drop(state);
        drop(tx);
        Ok(true)
    }

    fn remove_from_directory(self: &Arc<Self>, directory: Option<&Node>, name: &[u8]) -> Result<(), ZplError> {
        let Some(directory) = directory else { return Ok(()) };
        match self.unlink(directory, name) {
            Ok(()) | Err(ZplError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn set_in_directory(self: &Arc<Self>, node: &Znode, name: &[u8], value: &[u8]) -> Result<(), ZplError> {
        let directory = match self.xattr_directory(node)? {
            Some(directory) => directory,
            None => self.make_xattr_directory(node)?,
        };
        let fields = node.fields();
        let file = match self.lookup(&directory, name) {
            Ok(file) => {
                self.truncate(&file, 0)?;
                file
            }
            Err(ZplError::NotFound) => {
                let new =
                    NewNode { mode: S_IFREG | 0o644, uid: fields.uid as u32, gid: fields.gid as u32, xattr: true, ..NewNode::default() };
                self.create_node(&directory, name, &new)?
            }
            Err(error) => return Err(error),
        };
        let data = Abd::from_slice(value);
        self.write(&file, WriteData { offset: 0, data, may_keep: true, kill_suid: false, synchronous: false })?;
        let tx = self.assign(TX_NAMES)?;
        let now = self.now();
        let updated = node.update(&self.sa, &tx, |fields| fields.times[CTIME] = now);
        drop(tx);
        updated
    }

    fn make_xattr_directory(self: &Arc<Self>, node: &Znode) -> Result<Node, ZplError> {
        let fields = node.fields();
        let new = NewNode { mode: S_IFDIR | 0o1777, uid: fields.uid as u32, gid: fields.gid as u32, xattr: true, ..NewNode::default() };
        let tx = self.assign(TX_NAMES)?;
        let directory = self.make_node(Some(node), &new, &tx)?;
        let object = directory.object.0;
        let linked = node.update(&self.sa, &tx, |fields| fields.xattr = object);
        drop(tx);
        linked.map(|()| directory)
    }
}
