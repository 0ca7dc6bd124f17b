//! Making nodes: files, directories, links, device nodes (OpenZFS: `zfs_mknode`).

use crate::nodes::{Node, Nodes};
use crate::posix_acl::Heritage;
use crate::sa::{Attr, RECORD_BYTES};
use crate::undo::Undo;
use crate::userspace::Owner;
use crate::znode::{Fields, S_IFBLK, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG, S_ISGID, Time, Znode, decode_fields, encode_time, flag};
use crate::{ZplError, acl};
use dmu::{NewObject, Tx};
use nvlist::{Bytes, Encoding, NvList};
use ondisk::{ObjectId, ObjectType};
use std::ops::Range;
use std::sync::Arc;

/// Attributes of a new node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewNode<'a> {
    /// Type and permissions of the node.
    pub mode: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Group id; a set-group-id directory overrides it.
    pub gid: u32,
    /// Device number as stored: major above 20 bits of minor.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// True for a directory of extended attributes, or something in one.
    pub xattr: bool,
    /// True for a node without a name: no links.
    pub nameless: bool,
    /// Identity that an intent log recorded; None for a node that is new indeed.
    pub recorded: Option<Recorded>,
    /// Umask of whoever makes it, which a default list of the directory overrules (`acltype=posix`); None where the mode is the whole truth: no
    /// list is inherited then.
    pub umask: Option<u64>,
    /// Access control lists that it begins with: names and values of extended attributes, which lie in the system attributes.
    pub lists: &'a [(&'static [u8], Vec<u8>)],
}

/// Identity that a node got when it was made first: it is made again, with nothing inherited, as its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Number of the object.
    pub object: ObjectId,
    /// Number of slots of its dnode.
    pub slots: u8,
    /// Txg of its creation.
    pub generation: u64,
    /// Time of its birth.
    pub crtime: Time,
}

/// Longest target of a symbolic link, in bytes (PATH_MAX with its zero byte).
pub(crate) const TARGET_BYTES_MAX: usize = 4095;
const SLOT_BYTES: usize = 512;
/// Number of attributes of a new node, and their bytes, of most.
const VALUES: usize = 16;
const VALUES_BYTES: usize = 256;

/// Values of attributes, one after the other.
struct Values {
    bytes: Vec<u8>,
    places: Vec<(Attr, Range<usize>)>,
}

impl Values {
    fn put(&mut self, attr: Attr, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places.push((attr, start..self.bytes.len()));
    }

    fn put_word(&mut self, attr: Attr, value: u64) {
        self.put(attr, &value.to_le_bytes());
    }

    fn list(&self) -> Vec<(Attr, &[u8])> {
        self.places.iter().map(|(attr, place)| (*attr, &self.bytes[place.clone()])).collect()
    }
}

/// Attributes of a new node in the order in which OpenZFS writes them (`zfs_mknode`): equal nodes share a layout.
fn first_values(fields: &Fields, new: &NewNode<'_>, now: Time) -> Values {
    let symlink = fields.is_symlink();
    let (size, links) = match (fields.is_directory(), new.nameless) {
        (true, _) => (2, 2),
        (false, true) => (0, 0),
        (false, false) => (if symlink { new.target.len() as u64 } else { 0 }, 1),
    };
    let aces = acl::trivial(fields.mode, fields.is_directory());
    let now = encode_time(now);
    let mut values = Values { bytes: Vec::with_capacity(VALUES_BYTES), places: Vec::with_capacity(VALUES) };
    values.put_word(Attr::Mode, fields.mode);
    values.put_word(Attr::Size, size);
    values.put_word(Attr::Gen, fields.generation);
    values.put_word(Attr::Uid, fields.uid);
    values.put_word(Attr::Gid, fields.gid);
    values.put_word(Attr::Parent, fields.parent);
    values.put_word(Attr::Flags, fields.flags);
    [Attr::Atime, Attr::Mtime, Attr::Ctime, Attr::Crtime].into_iter().for_each(|attr| values.put(attr, &now));
    values.put_word(Attr::Links, links);
    if fields.flags & flag::PROJID != 0 {
        values.put_word(Attr::Projid, fields.project);
    }
    if matches!(fields.mode & S_IFMT, S_IFBLK | S_IFCHR) {
        values.put_word(Attr::Rdev, new.rdev);
    }
    values.put_word(Attr::DaclCount, aces.len() as u64 / 8);
    values.put(Attr::DaclAces, &aces);
    if symlink {
        values.put(Attr::Symlink, new.target);
    }
    if !new.lists.is_empty() {
        let mut list = NvList::new();
        for (name, value) in new.lists {
            list.set(*name, Bytes(value.clone()));
        }
        values.put(Attr::Dxattr, &list.encode(Encoding::Xdr));
    }
    values
}

impl<'a> NewNode<'a> {
    /// Returns the node as it is with what it inherits.
    pub(crate) fn inheriting(self, heritage: &'a Heritage) -> NewNode<'a> {
        NewNode { mode: heritage.mode, lists: &heritage.lists, umask: None, ..self }
    }

    /// Owner who is charged for a new node below `parent`.
    pub(crate) fn owner_below(&self, parent: &Znode, project_quota: bool) -> Owner {
        let above = parent.fields();
        let gid = if above.mode & S_ISGID != 0 && !self.xattr { above.gid } else { u64::from(self.gid) };
        let counts_projects = project_quota && matches!(self.mode & S_IFMT, S_IFREG | S_IFDIR);
        let project = if above.flags & flag::PROJINHERIT != 0 { above.project } else { 0 };
        Owner { uid: Some(u64::from(self.uid)), gid: Some(gid), project: counts_projects.then_some(project) }
    }
}

impl Nodes {
    /// Makes the object alone, at the number that is recorded if one is.
    fn make_object(&self, directory: bool, is_modern: bool, new: &NewNode<'_>, tx: &Tx) -> Result<ObjectId, ZplError> {
        let objset = &self.store.objset;
        let usual = || if is_modern { (objset.props().dnode_size / SLOT_BYTES).clamp(1, 32) as u8 } else { 1 };
        let slots = new.recorded.map_or_else(usual, |recorded| recorded.slots);
        let (bonus_type, bonus_len) = match is_modern {
            true => (ObjectType::SA, usize::from(slots) * SLOT_BYTES - 192),
            false => (ObjectType::ZNODE, RECORD_BYTES),
        };
        if directory {
            let options = zap::CreateOptions {
                norm: self.store.rules.norm,
                bonus_type,
                bonus_len,
                slots,
                claim: new.recorded.map(|recorded| recorded.object),
                ..zap::CreateOptions::new(ObjectType::DIRECTORY_CONTENTS)
            };
            return Ok(zap::create_with(objset, options, tx)?);
        }
        let kind = NewObject { bonus_type, bonus_len, slots, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let made = match new.recorded {
            Some(recorded) => objset.claim_object(recorded.object, kind, tx)?,
            None => objset.allocate_object(kind, tx)?,
        };
        Ok(made.object())
    }

    /// Makes the object of a node. `parent` is `None` for the root, which is its own parent.
    pub(crate) fn make_node(self: &Arc<Self>, parent: Option<&Znode>, new: &NewNode<'_>, undo: &mut Undo<'_>) -> Result<Node, ZplError> {
        let tx = undo.tx();
        let mut mode = new.mode;
        let mut gid = u64::from(new.gid);
        let directory = mode & S_IFMT == S_IFDIR;
        let above = parent.map(Znode::fields).unwrap_or_default();
        if above.mode & S_ISGID != 0 && !new.xattr && new.recorded.is_none() {
            gid = above.gid;
            mode |= if directory { S_ISGID } else { 0 };
        }
        // Somebody may raise the version meanwhile.
        let is_modern = self.store.sa.is_modern();
        let object = self.make_object(directory, is_modern, new, tx)?;
        undo.made(object);
        let dnode = self.store.objset.hold(object)?;
        let mut flags = flag::ARCHIVE | flag::AV_MODIFIED | flag::ACL_TRIVIAL;
        flags |= if directory { flag::ACL_AUTO_INHERIT } else { 0 };
        flags |= if acl::no_execs_denied(mode) { flag::NO_EXECS_DENIED } else { 0 };
        flags |= if new.xattr || above.flags & flag::XATTR != 0 { flag::XATTR } else { 0 };
        let regular = mode & S_IFMT == S_IFREG;
        let with_project = is_modern && self.store.settings().project_quota && (regular || directory);
        let mut project = 0;
        if with_project {
            flags |= flag::PROJID | (above.flags & flag::PROJINHERIT);
            project = if above.flags & flag::PROJINHERIT != 0 { above.project } else { 0 };
        }
        let first = Fields {
            mode,
            uid: u64::from(new.uid),
            gid,
            flags,
            project,
            parent: parent.map_or(object, |parent| parent.object).0,
            generation: new.recorded.map_or(tx.txg().0, |recorded| recorded.generation),
            ..Fields::default()
        };
        let values = first_values(&first, new, new.recorded.map_or_else(|| undo.now(), |recorded| recorded.crtime));
        let attrs = self.store.sa.build(&dnode, &values.list(), tx)?;
        let fields = decode_fields(&self.store.sa, &attrs)?;
        let znode = Znode::new(object, dnode, attrs, fields);
        znode.touch(tx);
        Ok(self.adopt(znode))
    }
}
