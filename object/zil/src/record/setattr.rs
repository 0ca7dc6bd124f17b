//! Records of changed attributes: what chmod(2), chown(2), truncate(2) and utimensat(2) do.
//!
//! Which attributes a record changes stands in a mask of the writer's kernel: Linux's bits are not FreeBSD's. Linux sets its bit of the
//! change time, or that of optional attributes, with every change but that of the size alone, and FreeBSD has other meanings for
//! those bits, which no change has.

use super::create::NewAttributes;
use super::reader::{self, FILE_BYTES_MAX, RecordError, Time, identity, object, time};
use ondisk::zil::{LrSetattr, foid};
use ondisk::{ByteOrder, ObjectId};

/// Bits of one kernel.
struct Bits {
    mode: u64,
    uid: u64,
    gid: u64,
    size: u64,
    atime: u64,
    mtime: u64,
    attributes: u64,
}

const LINUX: Bits = Bits { mode: 0x1, uid: 0x2, gid: 0x4, size: 0x8, atime: 0x10, mtime: 0x20, attributes: 1 << 31 };
const LINUX_CTIME: u64 = 0x40;
const FREEBSD: Bits = Bits { mode: 0x2, uid: 0x4, gid: 0x8, size: 0x80, atime: 0x100, mtime: 0x200, attributes: 0x1_0000 };

impl Bits {
    fn of(mask: u64) -> &'static Bits {
        let only_linux = LINUX.mode | LINUX.atime | LINUX.mtime | LINUX_CTIME | LINUX.attributes;
        if mask & only_linux != 0 || mask == LINUX.size { &LINUX } else { &FREEBSD }
    }
}

/// Attributes to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttributes {
    /// Object of the node.
    pub object: ObjectId,
    /// Type and permissions.
    pub mode: Option<u64>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<Time>,
    /// Modification time.
    pub mtime: Option<Time>,
    /// Optional attributes.
    pub attributes: Option<NewAttributes>,
}

/// Raw time of a record; zeros when it is not given.
fn raw(given: Option<Time>) -> [u64; 2] {
    given.map_or([0; 2], |(seconds, nanoseconds)| [seconds as u64, u64::from(nanoseconds)])
}

impl SetAttributes {
    /// Fixed part of the record, with the bits of Linux: the change time's always, so that they cannot be taken for FreeBSD's.
    pub(super) fn fixed(&self) -> LrSetattr {
        let given = [
            (self.mode.is_some(), LINUX.mode),
            (self.uid.is_some(), LINUX.uid),
            (self.gid.is_some(), LINUX.gid),
            (self.size.is_some(), LINUX.size),
            (self.atime.is_some(), LINUX.atime),
            (self.mtime.is_some(), LINUX.mtime),
            (self.attributes.is_some(), LINUX.attributes),
        ];
        LrSetattr {
            lr_foid: self.object.0,
            lr_mask: given.iter().filter(|(is_given, _)| *is_given).fold(LINUX_CTIME, |mask, (_, bit)| mask | bit),
            lr_mode: self.mode.unwrap_or(0),
            lr_uid: self.uid.map_or(0, u64::from),
            lr_gid: self.gid.map_or(0, u64::from),
            lr_size: self.size.unwrap_or(0),
            lr_atime: raw(self.atime),
            lr_mtime: raw(self.mtime),
            ..LrSetattr::default()
        }
    }

    pub(super) fn decode(bytes: &[u8], order: ByteOrder) -> Result<SetAttributes, RecordError> {
        let (fixed, mut rest) = reader::fixed::<LrSetattr>(bytes, order)?;
        let bits = Bits::of(fixed.lr_mask);
        let has = |bit: u64| fixed.lr_mask & bit != 0;
        let attributes = if has(bits.attributes) { Some(NewAttributes::decode(&mut rest)?) } else { None };
        if has(bits.size) && fixed.lr_size > FILE_BYTES_MAX {
            return Err(RecordError::Damaged("its size is larger than any file's"));
        }
        Ok(SetAttributes {
            object: object(foid::object(fixed.lr_foid).0)?,
            mode: has(bits.mode).then_some(fixed.lr_mode),
            uid: has(bits.uid).then(|| identity(fixed.lr_uid)).transpose()?,
            gid: has(bits.gid).then(|| identity(fixed.lr_gid)).transpose()?,
            size: has(bits.size).then_some(fixed.lr_size),
            atime: has(bits.atime).then(|| time(fixed.lr_atime)).transpose()?,
            mtime: has(bits.mtime).then(|| time(fixed.lr_mtime)).transpose()?,
            attributes,
        })
    }
}
