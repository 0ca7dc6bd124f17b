//! Records of new nodes: files, directories, links, and the hidden directories of extended attributes.

use super::reader::{self, Reader, RecordError, Time, identity, object, time};
use ondisk::zil::{LrAclCreate, LrCreate, LrRenameWhiteout, TxType, foid};
use ondisk::{ByteOrder, DNODE_SLOTS_MAX, ObjectId};

const S_IFMT: u64 = 0o170_000;
const S_IFDIR: u64 = 0o040_000;
const S_IFLNK: u64 = 0o120_000;
const S_IFCHR: u64 = 0o020_000;
/// Types that a node without entries and target may have: regular, FIFO, devices, socket.
const S_PLAIN: [u64; 5] = [0o100_000, 0o010_000, S_IFCHR, 0o060_000, 0o140_000];

/// Words of requested attributes that OpenZFS writes (OpenZFS: `XVA_MAPSIZE`).
const MASK_WORDS: u32 = 3;
/// Bits of optional attributes (OpenZFS: `XAT0_*`).
const XAT_CREATETIME: u64 = 0x1;
const XAT_PROJID: u64 = 0x4_0000;

/// Kind of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Anything with a name that is neither directory nor link.
    Plain,
    /// A directory.
    Directory,
    /// The hidden directory of a node's extended attributes, which has no name.
    XattrDirectory,
    /// A symbolic link.
    Symlink,
}

/// Optional attributes of a node that is made or changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Attributes that are given: bits as OpenZFS has them (`XAT0_*`).
    pub mask: u64,
    /// Switches among them that are on.
    pub set: u64,
    /// Time of birth, if it is given.
    pub crtime: Option<Time>,
    /// Number of the project, if it is given.
    pub project: Option<u64>,
}

/// New node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Kind of the node.
    pub made: Made,
    /// Object of the directory that it is in; of a directory of attributes, their node.
    pub directory: ObjectId,
    /// Object that it had, and is to have again.
    pub object: ObjectId,
    /// Number of slots of its dnode.
    pub slots: u8,
    /// Type and permissions of the node.
    pub mode: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Txg of its creation: the generation.
    pub generation: u64,
    /// Time of birth.
    pub crtime: Time,
    /// Device number.
    pub rdev: u64,
    /// Name in the directory; empty for a directory of attributes.
    pub name: &'a [u8],
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// Optional attributes.
    pub attributes: Option<NewAttributes>,
}

impl NewAttributes {
    /// Bit of the mask that goes with a given time of birth.
    pub const CRTIME: u64 = XAT_CREATETIME;
    /// Bit of the mask that goes with a given project.
    pub const PROJECT: u64 = XAT_PROJID;

    /// Reads the optional attributes of a record (OpenZFS: `lr_attr_t`).
    pub(super) fn decode(rest: &mut Reader<'_>) -> Result<NewAttributes, RecordError> {
        if rest.take::<u32>()? != MASK_WORDS {
            return Err(RecordError::Unsupported("attributes in a form that OpenZFS does not write"));
        }
        let [mask, ..] = rest.take::<[u32; MASK_WORDS as usize]>()?;
        let (mask, set) = (u64::from(mask), rest.take::<u64>()?);
        let crtime = rest.take::<[u64; 2]>()?;
        // What is called the stamp of a virus scanner holds the project.
        let [project, ..] = rest.take::<[u64; 4]>()?;
        Ok(NewAttributes {
            mask,
            set,
            crtime: (mask & XAT_CREATETIME != 0).then(|| time(crtime)).transpose()?,
            project: (mask & XAT_PROJID != 0).then_some(project),
        })
    }
}

impl<'a> Create<'a> {
    pub(super) fn decode(kind: TxType, bytes: &'a [u8], order: ByteOrder) -> Result<Create<'a>, RecordError> {
        let (fixed, mut rest) = reader::fixed::<LrCreate>(bytes, order)?;
        if matches!(kind, TxType::CREATE_ACL | TxType::CREATE_ACL_ATTR | TxType::MKDIR_ACL | TxType::MKDIR_ACL_ATTR) {
            let (lists, after) = reader::fixed::<LrAclCreate>(bytes, order)?;
            if lists.lr_acl_bytes != 0 {
                return Err(RecordError::Unsupported("access control lists of new files"));
            }
            if lists.lr_fuidcnt != 0 || lists.lr_domcnt != 0 {
                return Err(RecordError::Unsupported("identities of other systems"));
            }
            rest = after;
        }
        let has_attributes = matches!(kind, TxType::CREATE_ATTR | TxType::CREATE_ACL_ATTR | TxType::MKDIR_ATTR | TxType::MKDIR_ACL_ATTR);
        let attributes = if has_attributes { Some(NewAttributes::decode(&mut rest)?) } else { None };
        let made = match kind {
            TxType::SYMLINK => Made::Symlink,
            TxType::MKXATTR => Made::XattrDirectory,
            TxType::MKDIR | TxType::MKDIR_ACL | TxType::MKDIR_ATTR | TxType::MKDIR_ACL_ATTR => Made::Directory,
            _ => Made::Plain,
        };
        let name = if made == Made::XattrDirectory { b"" } else { rest.name()? };
        let target = if made == Made::Symlink { rest.text()? } else { b"" };
        let slots = if made == Made::Symlink { 1 } else { slots(fixed.lr_foid)? };
        // That of a symbolic link is whatever the writer's memory held.
        let rdev = if made == Made::Symlink { 0 } else { fixed.lr_rdev };
        let create = Create {
            made,
            directory: object(foid::object(fixed.lr_doid).0)?,
            object: object(foid::object(fixed.lr_foid).0)?,
            slots,
            mode: fixed.lr_mode,
            uid: identity(fixed.lr_uid)?,
            gid: identity(fixed.lr_gid)?,
            generation: fixed.lr_gen,
            crtime: time(fixed.lr_crtime)?,
            rdev,
            name,
            target,
            attributes,
        };
        create.check_mode()?;
        Ok(create)
    }

    /// The node that a renaming leaves in `directory`, whose name is not known yet.
    pub(super) fn whiteout(directory: ObjectId, fixed: &LrRenameWhiteout) -> Result<Create<'a>, RecordError> {
        let create = Create {
            made: Made::Plain,
            directory,
            object: object(foid::object(fixed.lr_wfoid).0)?,
            slots: slots(fixed.lr_wfoid)?,
            mode: fixed.lr_wmode,
            uid: identity(fixed.lr_wuid)?,
            gid: identity(fixed.lr_wgid)?,
            generation: fixed.lr_wgen,
            crtime: time(fixed.lr_wcrtime)?,
            rdev: fixed.lr_wrdev,
            name: b"",
            target: b"",
            attributes: None,
        };
        create.check_mode()?;
        Ok(create)
    }

    /// Checks that the node's type is that of the operation.
    fn check_mode(&self) -> Result<(), RecordError> {
        let kind = self.mode & S_IFMT;
        let fits = match self.made {
            Made::Plain => S_PLAIN.contains(&kind),
            Made::Directory | Made::XattrDirectory => kind == S_IFDIR,
            Made::Symlink => kind == S_IFLNK,
        };
        if fits { Ok(()) } else { Err(RecordError::Damaged("its mode is of another type")) }
    }
}

fn slots(foid: u64) -> Result<u8, RecordError> {
    match foid::slots(foid) {
        slots if slots <= DNODE_SLOTS_MAX => Ok(slots as u8),
        _ => Err(RecordError::Damaged("its dnode is larger than any")),
    }
}
