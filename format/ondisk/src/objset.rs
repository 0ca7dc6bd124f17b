//! The object set block (OpenZFS: `objset_phys_t`, `dmu_objset.h`): the root of a file system, a volume, a snapshot or the MOS.
//!
//! The block's size is its version: 1 KiB, 2 KiB (user and group accounting) or 4 KiB (project accounting).

use crate::dnode::{DnodeError, DnodePhys};
use crate::record::{ByteOrder, Field, record};
use crate::zil::ZilHeader;
use crate::{ObjectId, ObjsetType};
use std::fmt;

record! {
    /// The parts of an object set that all versions have.
    ObjsetCore = "objset_phys_t", 1024 {
        0 => os_meta_dnode: [u8; 512],
        512 => os_zil_header: ZilHeader,
        704 => os_type: u64,
        712 => os_flags: u64,
        720 => os_portable_mac: [u8; 32],
        752 => os_local_mac: [u8; 32],
        784 => os_pad0: [u8; 240],
    }
}

/// Bytes of the version with project accounting, which is what we create.
pub const OBJSET_BYTES: usize = 4096;
/// Bytes of the first version.
pub const OBJSET_BYTES_V1: usize = 1024;
/// Bytes of the version with user and group accounting.
pub const OBJSET_BYTES_V2: usize = 2048;

/// The dnode of dnodes, as object number 0 (OpenZFS: `DMU_META_DNODE_OBJECT`).
pub const META_DNODE_OBJECT: ObjectId = ObjectId(0);
/// The pseudo-object of user accounting (OpenZFS: `DMU_USERUSED_OBJECT`).
pub const USERUSED_OBJECT: ObjectId = ObjectId(u64::MAX);
/// The pseudo-object of group accounting (OpenZFS: `DMU_GROUPUSED_OBJECT`).
pub const GROUPUSED_OBJECT: ObjectId = ObjectId(u64::MAX - 1);
/// The pseudo-object of project accounting (OpenZFS: `DMU_PROJECTUSED_OBJECT`).
pub const PROJECTUSED_OBJECT: ObjectId = ObjectId(u64::MAX - 2);

/// Flags of an object set (`os_flags`).
pub mod objset_flags {
    /// Every object's space is accounted to its user and group.
    pub const USERACCOUNTING_COMPLETE: u64 = 1 << 0;
    /// Every object is counted for its user and group.
    pub const USEROBJACCOUNTING_COMPLETE: u64 = 1 << 1;
    /// Every object is accounted to its project.
    pub const PROJECTQUOTA_COMPLETE: u64 = 1 << 2;
}

/// Reason why a block is not an object set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjsetError {
    /// Smaller than the first version.
    Short(usize),
    /// No dnode of dnodes.
    NoMetaDnode,
    /// One of the dnodes in the block.
    Dnode(DnodeError),
}
impl fmt::Display for ObjsetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjsetError::Short(bytes) => write!(f, "an object set of {bytes} bytes"),
            ObjsetError::NoMetaDnode => f.write_str("an object set without a meta dnode"),
            ObjsetError::Dnode(error) => write!(f, "an object set's own dnode: {error}"),
        }
    }
}
impl std::error::Error for ObjsetError {}
impl From<DnodeError> for ObjsetError {
    fn from(error: DnodeError) -> ObjsetError {
        ObjsetError::Dnode(error)
    }
}

/// An object set's root block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjsetPhys {
    /// The object whose contents are all dnodes (`os_meta_dnode`).
    pub meta_dnode: DnodePhys,
    /// Head of the intent log (`os_zil_header`).
    pub zil_header: ZilHeader,
    /// Purpose of the objects (`os_type`).
    pub objset_type: ObjsetType,
    /// See [`objset_flags`] (`os_flags`).
    pub flags: u64,
    /// MAC over what survives raw send (`os_portable_mac`).
    pub portable_mac: [u8; 32],
    /// MAC over everything else (`os_local_mac`).
    pub local_mac: [u8; 32],
    /// Space by user (`os_userused_dnode`).
    pub userused_dnode: Option<DnodePhys>,
    /// Space by group (`os_groupused_dnode`).
    pub groupused_dnode: Option<DnodePhys>,
    /// Space by project (`os_projectused_dnode`).
    pub projectused_dnode: Option<DnodePhys>,
    /// Bytes of the block that this was decoded from or is to be encoded into: 1024, 2048 or 4096.
    pub block_bytes: usize,
}

const USERUSED_AT: usize = 1024;
const GROUPUSED_AT: usize = 1536;
const PROJECTUSED_AT: usize = 2048;

impl ObjsetPhys {
    /// Decodes a little-endian block.
    pub fn decode(block: &[u8]) -> Result<ObjsetPhys, ObjsetError> {
        let core = ObjsetCore::decode(block).map_err(|short| ObjsetError::Short(short.have))?;
        let dnode_at = |at: usize| match block.get(at..at + 512) {
            Some(slot) => DnodePhys::decode(slot),
            None => Ok(None),
        };
        let meta_dnode = DnodePhys::decode(&core.os_meta_dnode)?.ok_or(ObjsetError::NoMetaDnode)?;
        Ok(ObjsetPhys {
            meta_dnode,
            zil_header: core.os_zil_header,
            objset_type: ObjsetType(core.os_type),
            flags: core.os_flags,
            portable_mac: core.os_portable_mac,
            local_mac: core.os_local_mac,
            userused_dnode: if block.len() >= OBJSET_BYTES_V2 { dnode_at(USERUSED_AT)? } else { None },
            groupused_dnode: if block.len() >= OBJSET_BYTES_V2 { dnode_at(GROUPUSED_AT)? } else { None },
            projectused_dnode: if block.len() >= OBJSET_BYTES { dnode_at(PROJECTUSED_AT)? } else { None },
            block_bytes: block.len(),
        })
    }

    /// Encodes into a block of [`ObjsetPhys::block_bytes`]; accounting dnodes that the size has no room for are left out.
    pub fn encode(&self) -> Result<Vec<u8>, ObjsetError> {
        if self.block_bytes < OBJSET_BYTES_V1 {
            return Err(ObjsetError::Short(self.block_bytes));
        }
        let mut core = ObjsetCore {
            os_zil_header: self.zil_header.clone(),
            os_type: self.objset_type.0,
            os_flags: self.flags,
            os_portable_mac: self.portable_mac,
            os_local_mac: self.local_mac,
            ..ObjsetCore::ZERO
        };
        self.meta_dnode.encode_into(&mut core.os_meta_dnode)?;
        let mut out = vec![0; self.block_bytes];
        core.put(&mut out, ByteOrder::Little);
        let accounting = [
            (&self.userused_dnode, USERUSED_AT, OBJSET_BYTES_V2),
            (&self.groupused_dnode, GROUPUSED_AT, OBJSET_BYTES_V2),
            (&self.projectused_dnode, PROJECTUSED_AT, OBJSET_BYTES),
        ];
        for (dnode, at, block_bytes_min) in accounting {
            if let Some(dnode) = dnode
                && self.block_bytes >= block_bytes_min
            {
                dnode.encode_into(&mut out[at..at + 512])?;
            }
        }
        Ok(out)
    }
}
