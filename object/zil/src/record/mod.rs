//! Records, decoded and checked: what each operation is about (OpenZFS: `zfs_log.c`, `zfs_replay.c`).
//!
//! A record comes from a disk: every length, name, number and time is checked here, so that who replays it need not.

mod clone;
mod create;
mod encode;
mod reader;
mod setattr;

pub use clone::CloneRecord;
pub(crate) use clone::shared_blocks;
pub use create::{Create, Made, NewAttributes};
pub use encode::write_header;
pub use reader::{RecordError, Time};
pub use setattr::SetAttributes;

use ondisk::zil::{LrCommon, LrLink, LrRemove, LrRename, LrRenameWhiteout, LrSetSaXattr, LrTruncate, LrWrite, TX_CI, TxType, foid};
use ondisk::{BLOCK_BYTES_MAX, BlockPtr, ByteOrder, ObjectId};
use reader::{FILE_BYTES_MAX, object};

/// Removal of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remove<'a> {
    /// Object of the directory.
    pub directory: ObjectId,
    /// Name in the directory.
    pub name: &'a [u8],
    /// True when the name is a directory's.
    pub is_directory: bool,
}

/// Further name of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// Object of the directory.
    pub directory: ObjectId,
    /// Object that gets the name.
    pub object: ObjectId,
    /// Name in the directory.
    pub name: &'a [u8],
}

/// Effect of a renaming on what stands in its way, or on the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameKind<'a> {
    /// Node of the new name goes.
    Replace,
    /// Node of the new name gets the old one.
    Exchange,
    /// The old name stands for this new node.
    Whiteout(Create<'a>),
}

/// Another name for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// Object of the directory with the old name, and that name.
    pub from: (ObjectId, &'a [u8]),
    /// Object of the directory with the new name, and that name.
    pub to: (ObjectId, &'a [u8]),
    /// Kind of the renaming.
    pub kind: RenameKind<'a>,
}

/// Place of the bytes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The record itself.
    Record(&'a [u8]),
    /// A block of data, which may be a hole.
    Block(BlockPtr),
}

/// Write to a file or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRecord<'a> {
    /// Object that is written.
    pub object: ObjectId,
    /// Offset of the bytes of `source`: of a block that is larger than what was written, its own.
    pub offset: u64,
    /// Offset behind what was written: the file is at least so long.
    pub end: u64,
    /// Place of the bytes.
    pub source: Source<'a>,
}

/// Operation that a record tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A new node with a name, or a new directory of extended attributes.
    Create(Create<'a>),
    /// A name goes.
    Remove(Remove<'a>),
    /// A node gets a further name.
    Link(Link<'a>),
    /// A name changes.
    Rename(Rename<'a>),
    /// Bytes are written.
    Write(WriteRecord<'a>),
    /// A range gets blocks that others have.
    Clone(CloneRecord<'a>),
    /// A file is at least so long: what lies before the end was in an earlier write's block.
    Extend {
        /// Object of the file.
        object: ObjectId,
        /// Least size in bytes.
        end: u64,
    },
    /// Bytes become a hole; a length of 0 reaches to the end, which is then the offset.
    Truncate {
        /// Object of the file or volume.
        object: ObjectId,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes, 0 for all.
        length: u64,
    },
    /// Attributes change.
    SetAttributes(SetAttributes),
    /// An extended attribute that lies in the system attributes is set, or removed when it has no value.
    SetXattr {
        /// Object of the node.
        object: ObjectId,
        /// Name as stored.
        name: &'a [u8],
        /// Value of the attribute; empty to remove it.
        value: &'a [u8],
    },
}

/// Name of an operation as OpenZFS has it.
pub fn kind_name(kind: TxType) -> &'static str {
    const NAMES: [&str; 25] = [
        "TX_COMMIT",
        "TX_CREATE",
        "TX_MKDIR",
        "TX_MKXATTR",
        "TX_SYMLINK",
        "TX_REMOVE",
        "TX_RMDIR",
        "TX_LINK",
        "TX_RENAME",
        "TX_WRITE",
        "TX_TRUNCATE",
        "TX_SETATTR",
        "TX_ACL_V0",
        "TX_ACL",
        "TX_CREATE_ACL",
        "TX_CREATE_ATTR",
        "TX_CREATE_ACL_ATTR",
        "TX_MKDIR_ACL",
        "TX_MKDIR_ATTR",
        "TX_MKDIR_ACL_ATTR",
        "TX_WRITE2",
        "TX_SETSAXATTR",
        "TX_RENAME_EXCHANGE",
        "TX_RENAME_WHITEOUT",
        "TX_CLONE_RANGE",
    ];
    usize::try_from(kind.0 & !TX_CI).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or("an unknown type")
}

impl<'a> Record<'a> {
    /// Decodes a record, whole with its common header, that was written in this byte order.
    ///
    /// # Errors
    /// [`RecordError::Damaged`] for whatever OpenZFS does not write; [`RecordError::Unsupported`] for what it does and is not known here.
    pub fn decode(common: &LrCommon, bytes: &'a [u8], order: ByteOrder) -> Result<Record<'a>, RecordError> {
        let kind = TxType(common.lrc_txtype & !TX_CI);
        match kind {
            TxType::CREATE | TxType::MKDIR | TxType::MKXATTR | TxType::SYMLINK => Create::decode(kind, bytes, order).map(Record::Create),
            TxType::CREATE_ATTR | TxType::MKDIR_ATTR => Create::decode(kind, bytes, order).map(Record::Create),
            TxType::CREATE_ACL | TxType::CREATE_ACL_ATTR | TxType::MKDIR_ACL | TxType::MKDIR_ACL_ATTR => {
                Create::decode(kind, bytes, order).map(Record::Create)
            }
            TxType::REMOVE | TxType::RMDIR => Remove::decode(kind, bytes, order).map(Record::Remove),
            TxType::LINK => Link::decode(bytes, order).map(Record::Link),
            TxType::RENAME | TxType::RENAME_EXCHANGE | TxType::RENAME_WHITEOUT => Rename::decode(kind, bytes, order).map(Record::Rename),
            TxType::WRITE => WriteRecord::decode(bytes, order).map(Record::Write),
            TxType::WRITE2 => decode_extend(bytes, order),
            TxType::TRUNCATE => decode_truncate(bytes, order),
            TxType::SETATTR => SetAttributes::decode(bytes, order).map(Record::SetAttributes),
            TxType::SETSAXATTR => decode_xattr(bytes, order),
            // Linux has none; those of POSIX are extended attributes.
            TxType::ACL_V0 | TxType::ACL => Err(RecordError::Unsupported("access control lists of NFSv4")),
            TxType::CLONE_RANGE => CloneRecord::decode(bytes, order).map(Record::Clone),
            _ => Err(RecordError::Damaged("its type is unknown")),
        }
    }

    /// Object that the record is about and that may be gone by now, which is nobody's error: such records are written in an order of
    /// their own (OpenZFS: `TX_OOO`).
    pub fn may_be_gone(&self) -> Option<ObjectId> {
        match self {
            Record::Write(write) => Some(write.object),
            Record::Clone(clone) => Some(clone.object),
            Record::SetAttributes(set) => Some(set.object),
            Record::Extend { object, .. } | Record::Truncate { object, .. } | Record::SetXattr { object, .. } => Some(*object),
            Record::Create(_) | Record::Remove(_) | Record::Link(_) | Record::Rename(_) => None,
        }
    }
}

impl<'a> Remove<'a> {
    fn decode(kind: TxType, bytes: &'a [u8], order: ByteOrder) -> Result<Remove<'a>, RecordError> {
        let (fixed, mut rest) = reader::fixed::<LrRemove>(bytes, order)?;
        let is_directory = kind == TxType::RMDIR;
        Ok(Remove { directory: object(fixed.lr_doid)?, name: rest.name()?, is_directory })
    }
}

impl<'a> Link<'a> {
    fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<Link<'a>, RecordError> {
        let (fixed, mut rest) = reader::fixed::<LrLink>(bytes, order)?;
        Ok(Link { directory: object(fixed.lr_doid)?, object: object(fixed.lr_link_obj)?, name: rest.name()? })
    }
}

impl<'a> Rename<'a> {
    fn decode(kind: TxType, bytes: &'a [u8], order: ByteOrder) -> Result<Rename<'a>, RecordError> {
        let (fixed, mut rest) = reader::fixed::<LrRename>(bytes, order)?;
        let (from, to) = (object(fixed.lr_sdoid)?, object(fixed.lr_tdoid)?);
        let mut whiteout = None;
        if kind == TxType::RENAME_WHITEOUT {
            let (fixed, after) = reader::fixed::<LrRenameWhiteout>(bytes, order)?;
            whiteout = Some(Create::whiteout(from, &fixed)?);
            rest = after;
        }
        let (old, new) = (rest.name()?, rest.name()?);
        let kind = match whiteout {
            Some(new) => RenameKind::Whiteout(Create { name: old, ..new }),
            None if kind == TxType::RENAME_EXCHANGE => RenameKind::Exchange,
            None => RenameKind::Replace,
        };
        Ok(Rename { from: (from, old), to: (to, new), kind })
    }
}

/// The end of a range, which lies in a file.
fn end_of(offset: u64, length: u64) -> Result<u64, RecordError> {
    offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(RecordError::Damaged("its range lies outside of every file"))
}

impl<'a> WriteRecord<'a> {
    fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<WriteRecord<'a>, RecordError> {
        let (fixed, rest) = reader::fixed::<LrWrite>(bytes, order)?;
        let (target, end) = (object(foid::object(fixed.lr_foid).0)?, end_of(fixed.lr_offset, fixed.lr_length)?);
        let write = |offset, source| Ok(WriteRecord { object: target, offset, end, source });
        if bytes.len() != LrWrite::SIZE {
            let data = rest.first(fixed.lr_length).ok_or(RecordError::Damaged("it holds fewer bytes than were written"))?;
            return write(fixed.lr_offset, Source::Record(data));
        }
        let bp = fixed.lr_blkptr;
        let block = bp.lsize() as u64;
        if bp.is_hole() {
            // What is a hole reads as zeros, however large its block was.
            if fixed.lr_length > BLOCK_BYTES_MAX as u64 {
                return Err(RecordError::Damaged("its range is larger than any block"));
            }
            return write(fixed.lr_offset, Source::Block(bp));
        }
        let within = fixed.lr_offset.checked_rem(block).ok_or(RecordError::Damaged("its block has no bytes"))?;
        if within + fixed.lr_length > block {
            return Err(RecordError::Damaged("its range is not that of its block"));
        }
        end_of(fixed.lr_offset - within, block)?;
        write(fixed.lr_offset - within, Source::Block(bp))
    }

    /// Number of the bytes at [`WriteRecord::offset`].
    pub fn length(&self) -> u64 {
        match self.source {
            Source::Record(data) => data.len() as u64,
            Source::Block(bp) if bp.is_hole() => self.end - self.offset,
            Source::Block(bp) => bp.lsize() as u64,
        }
    }
}

fn decode_extend<'a>(bytes: &[u8], order: ByteOrder) -> Result<Record<'a>, RecordError> {
    let (fixed, _) = reader::fixed::<LrWrite>(bytes, order)?;
    Ok(Record::Extend { object: object(foid::object(fixed.lr_foid).0)?, end: end_of(fixed.lr_offset, fixed.lr_length)? })
}

fn decode_truncate<'a>(bytes: &[u8], order: ByteOrder) -> Result<Record<'a>, RecordError> {
    let (fixed, _) = reader::fixed::<LrTruncate>(bytes, order)?;
    end_of(fixed.lr_offset, fixed.lr_length)?;
    Ok(Record::Truncate { object: object(foid::object(fixed.lr_foid).0)?, offset: fixed.lr_offset, length: fixed.lr_length })
}

fn decode_xattr(bytes: &[u8], order: ByteOrder) -> Result<Record<'_>, RecordError> {
    let (fixed, mut rest) = reader::fixed::<LrSetSaXattr>(bytes, order)?;
    let name = rest.text()?;
    if name.is_empty() {
        return Err(RecordError::Damaged("its attribute has no name"));
    }
    let value = rest.first(fixed.lr_size).ok_or(RecordError::Damaged("its value is longer than the record"))?;
    Ok(Record::SetXattr { object: object(foid::object(fixed.lr_foid).0)?, name, value })
}
