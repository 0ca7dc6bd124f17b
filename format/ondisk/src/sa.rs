//! File attributes (OpenZFS: `sa_impl.h`, `zfs_sa.c`, `zfs_acl.h`): system attributes, the old znode bonus, ACL entries, directory words.
//!
//! A bonus or spill of system attributes is a header and values in the order of a layout; which attributes a layout has is in the object
//! set's `LAYOUTS` ZAP, and what an attribute's number means in its `REGISTRY` ZAP.

use crate::ObjectId;
use crate::record::{ByteOrder, Field, ShortRecord, record};

record! {
    /// Start of a bonus or spill of system attributes; lengths of variable attributes follow (OpenZFS: `sa_hdr_phys_t`).
    SaHeader = "sa_hdr_phys_t", 6 {
        /// [`SaHeader::MAGIC`] in the writer's byte order.
        0 => sa_magic: u32,
        /// Bits 0–9 the layout, 10–15 the header's size in units of 8 bytes.
        4 => sa_layout_info: u16,
    }
    /// A file's metadata before ZPL version 5 (OpenZFS: `znode_phys_t`); a short symlink target follows.
    ZnodePhys = "znode_phys_t", 264 {
        0 => zp_atime: [u64; 2],
        16 => zp_mtime: [u64; 2],
        32 => zp_ctime: [u64; 2],
        48 => zp_crtime: [u64; 2],
        64 => zp_gen: u64,
        72 => zp_mode: u64,
        80 => zp_size: u64,
        88 => zp_parent: u64,
        96 => zp_links: u64,
        104 => zp_xattr: u64,
        112 => zp_rdev: u64,
        120 => zp_flags: u64,
        128 => zp_uid: u64,
        136 => zp_gid: u64,
        144 => zp_zap: u64,
        152 => zp_pad: [u64; 3],
        176 => zp_acl: ZfsAclPhys,
    }
    /// The ACL of an old znode (OpenZFS: `zfs_acl_phys_t`).
    ZfsAclPhys = "zfs_acl_phys_t", 88 {
        /// Object with the ACEs when they do not fit here.
        0 => z_acl_extern_obj: u64,
        /// Bytes of the ACEs; in version 0 their number.
        8 => z_acl_size: u32,
        12 => z_acl_version: u16,
        14 => z_acl_count: u16,
        16 => z_ace_data: [u8; 72],
    }
    /// Start of an ACE; all of it for owner@, group@ and everyone@ (OpenZFS: `zfs_ace_hdr_t`).
    AceHeader = "zfs_ace_hdr_t", 8 {
        0 => z_type: u16,
        2 => z_flags: u16,
        4 => z_access_mask: u32,
    }
    /// An ACE for a user or a group (OpenZFS: `zfs_ace_t`).
    AcePhys = "zfs_ace_t", 16 {
        0 => z_hdr: AceHeader,
        8 => z_fuid: u64,
    }
    /// An ACE of version 0 (OpenZFS: `zfs_oldace_t`).
    OldAce = "zfs_oldace_t", 12 {
        0 => z_fuid: u32,
        4 => z_access_mask: u32,
        8 => z_flags: u16,
        10 => z_type: u16,
    }
}

/// Bytes of an object ACE: an ACE and two identifiers (OpenZFS: `zfs_object_ace_t`).
pub const OBJECT_ACE_BYTES: usize = 48;
/// Flags of an ACE that say for whom it is (OpenZFS: `ACE_TYPE_FLAGS`).
pub const ACE_WHO_FLAGS: u16 = 0x7040;
/// Flag of an ACE: for the owner.
pub const ACE_OWNER: u16 = 0x1000;
/// Flag of an ACE: for the owning group (with [`ACE_IDENTIFIER_GROUP`]).
pub const ACE_GROUP: u16 = 0x2000;
/// Flag of an ACE: for everyone.
pub const ACE_EVERYONE: u16 = 0x4000;
/// Flag of an ACE: the identifier is a group.
pub const ACE_IDENTIFIER_GROUP: u16 = 0x0040;

/// Bytes of an ACE with this type and these flags (OpenZFS: `zfs_ace_fuid_size`).
pub fn ace_bytes(ace_type: u16, ace_flags: u16) -> usize {
    match ace_flags & ACE_WHO_FLAGS {
        ACE_OWNER | ACE_EVERYONE => AceHeader::SIZE,
        who if who == ACE_GROUP | ACE_IDENTIFIER_GROUP => AceHeader::SIZE,
        _ if (5..=8).contains(&ace_type) => OBJECT_ACE_BYTES,
        _ => AcePhys::SIZE,
    }
}

impl SaHeader {
    /// "/PZ", marks system attributes.
    pub const MAGIC: u32 = 0x002F_505A;
    /// A header of `header_bytes` (a multiple of 8) for `layout`.
    pub fn new(layout: u16, header_bytes: usize) -> SaHeader {
        SaHeader { sa_magic: SaHeader::MAGIC, sa_layout_info: layout & 0x3FF | ((header_bytes >> 3) as u16) << 10 }
    }
    /// Decodes in the byte order that the magic shows; `Ok(None)` without a magic.
    pub fn detect(bytes: &[u8]) -> Result<Option<(SaHeader, ByteOrder)>, ShortRecord> {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let header = SaHeader::decode_order(bytes, order)?;
            if header.sa_magic == SaHeader::MAGIC {
                return Ok(Some((header, order)));
            }
        }
        Ok(None)
    }
    /// Number of the layout.
    pub fn layout(&self) -> u16 {
        self.sa_layout_info & 0x3FF
    }
    /// Bytes of the header with the lengths.
    pub fn header_bytes(&self) -> usize {
        usize::from(self.sa_layout_info >> 10) << 3
    }
    /// The lengths of the variable attributes that the header has room for, in the layout's order.
    pub fn lengths(&self, bytes: &[u8], order: ByteOrder) -> Vec<u16> {
        let end = self.header_bytes().min(bytes.len());
        bytes.get(SaHeader::SIZE..end).unwrap_or(&[]).chunks_exact(2).map(|raw| u16::get(raw, order)).collect()
    }
}

/// Way in which an attribute is swapped (OpenZFS: `sa_bswap_type_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaByteswap {
    /// An array of u64.
    Uint64 = 0,
    /// An array of u32.
    Uint32 = 1,
    /// An array of u16.
    Uint16 = 2,
    /// Bytes.
    Uint8 = 3,
    /// A list of ACEs.
    Acl = 4,
}
impl SaByteswap {
    /// Returns the way of the number in a registration.
    pub fn from_number(number: u8) -> Option<SaByteswap> {
        use SaByteswap::{Acl, Uint8, Uint16, Uint32, Uint64};
        [Uint64, Uint32, Uint16, Uint8, Acl].get(usize::from(number)).copied()
    }
}

/// A registration of an attribute: the value in the `REGISTRY` ZAP (OpenZFS: `ATTR_ENCODE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaRegistration {
    /// The attribute's number in layouts of this object set.
    pub attr: u16,
    /// Bytes of the value; 0 when they vary.
    pub bytes: u16,
    /// Number of the [`SaByteswap`].
    pub byteswap: u8,
}
impl SaRegistration {
    /// Decodes the ZAP value.
    pub fn from_word(word: u64) -> SaRegistration {
        SaRegistration { attr: word as u16, bytes: (word >> 24) as u16, byteswap: (word >> 16) as u8 }
    }
    /// The ZAP value.
    pub fn to_word(self) -> u64 {
        u64::from(self.attr) | u64::from(self.byteswap) << 16 | u64::from(self.bytes) << 24
    }
}

/// An attribute of the ZPL as it is registered in a new file system (OpenZFS: `zfs_attr_table`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZplAttr {
    /// Name in the registry.
    pub name: &'static str,
    /// Bytes of the value; 0 when they vary.
    pub bytes: u16,
    /// Way in which the value is swapped.
    pub byteswap: SaByteswap,
}
macro_rules! zpl_attrs {
    ($($(#[$doc:meta])* $constant:ident = $index:literal, $name:literal, $bytes:literal, $swap:ident;)*) => {
        /// The ZPL's attributes; the index is the number under which a new file system registers each.
        pub const ZPL_ATTRS: &[ZplAttr] = &[$(ZplAttr { name: $name, bytes: $bytes, byteswap: SaByteswap::$swap },)*];
        /// Indices of [`ZPL_ATTRS`].
        #[allow(missing_docs, reason = "the standard's names")]
        pub mod zpl_attr {
            $(pub const $constant: usize = $index;)*
        }
        const _: () = {
            let mut next = 0;
            $(assert!($index == next); next += 1;)*
            assert!(next == ZPL_ATTRS.len());
        };
    };
}
zpl_attrs! {
    ATIME = 0, "ZPL_ATIME", 16, Uint64;
    MTIME = 1, "ZPL_MTIME", 16, Uint64;
    CTIME = 2, "ZPL_CTIME", 16, Uint64;
    CRTIME = 3, "ZPL_CRTIME", 16, Uint64;
    GEN = 4, "ZPL_GEN", 8, Uint64;
    MODE = 5, "ZPL_MODE", 8, Uint64;
    SIZE = 6, "ZPL_SIZE", 8, Uint64;
    PARENT = 7, "ZPL_PARENT", 8, Uint64;
    LINKS = 8, "ZPL_LINKS", 8, Uint64;
    XATTR = 9, "ZPL_XATTR", 8, Uint64;
    RDEV = 10, "ZPL_RDEV", 8, Uint64;
    FLAGS = 11, "ZPL_FLAGS", 8, Uint64;
    UID = 12, "ZPL_UID", 8, Uint64;
    GID = 13, "ZPL_GID", 8, Uint64;
    PAD = 14, "ZPL_PAD", 32, Uint64;
    ZNODE_ACL = 15, "ZPL_ZNODE_ACL", 88, Uint8;
    DACL_COUNT = 16, "ZPL_DACL_COUNT", 8, Uint64;
    SYMLINK = 17, "ZPL_SYMLINK", 0, Uint8;
    SCANSTAMP = 18, "ZPL_SCANSTAMP", 32, Uint8;
    DACL_ACES = 19, "ZPL_DACL_ACES", 0, Acl;
    DXATTR = 20, "ZPL_DXATTR", 0, Uint8;
    PROJID = 21, "ZPL_PROJID", 8, Uint64;
}

/// Name of the registry in the SA master node.
pub const SA_REGISTRY: &str = "REGISTRY";
/// Name of the layouts in the SA master node.
pub const SA_LAYOUTS: &str = "LAYOUTS";
/// Names in the master node of a file system (object 1).
pub mod master_node {
    /// The root directory.
    pub const ROOT: &str = "ROOT";
    /// The set of unlinked but open files.
    pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
    /// Version of the ZPL.
    pub const VERSION: &str = "VERSION";
    /// The SA master node.
    pub const SA_ATTRS: &str = "SA_ATTRS";
    /// Table of domains.
    pub const FUID: &str = "FUID";
    /// Directory of SMB shares.
    pub const SHARES: &str = "SHARES";
    /// Normalization of names.
    pub const NORMALIZATION: &str = "normalization";
    /// Mark that only UTF-8 names are allowed.
    pub const UTF8ONLY: &str = "utf8only";
    /// Comparison of names.
    pub const CASESENSITIVITY: &str = "casesensitivity";
    /// Mapping of ACLs to modes.
    pub const ACLTYPE: &str = "acltype";
}

/// A value of a directory ZAP: the file's type and its object (OpenZFS: `ZFS_DIRENT_MAKE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The `DT_*` number (`S_IFMT` bits >> 12); 0 in ZPL version 1.
    pub file_type: u8,
    /// Object of the file.
    pub object: ObjectId,
}
impl DirectoryEntry {
    /// Decodes the ZAP value.
    pub fn from_word(word: u64) -> DirectoryEntry {
        DirectoryEntry { file_type: (word >> 60) as u8, object: ObjectId(word & ((1 << 48) - 1)) }
    }
    /// The ZAP value.
    pub fn to_word(self) -> u64 {
        u64::from(self.file_type) << 60 | self.object.0 & ((1 << 48) - 1)
    }
}
