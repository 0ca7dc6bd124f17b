//! The fixed record that nodes have in place of system attributes in file systems before version 5 (OpenZFS: `znode_phys_t`, `zfs_mknode`,
//! `zfs_sa_symlink`), and the access control list in it (`zfs_acl_phys_t`).
//!
//! A node keeps the form that it was made with when its file system is raised to version 5.

use super::{Attr, Attrs, Buffer, LEGACY, Sa, Slot, TABLE};
use crate::ZplError;
use dmu::{Dnode, Tx};
use ondisk::ObjectId;

/// Bytes of the record (OpenZFS: `ZFS_OLD_ZNODE_PHYS_SIZE`).
pub(crate) const RECORD_BYTES: usize = 264;
/// Bytes of the longest target of a symbolic link that lies behind the record (OpenZFS: `dmu_bonus_max` without it).
const TARGET_BYTES_MAX: usize = 320 - RECORD_BYTES;
/// Bytes of the access control list within the record.
const ACL_BYTES: usize = 88;
/// First version whose entries have the form of today's (OpenZFS: `ZPL_VERSION_FUID`).
const VERSION_FUID: u64 = 3;

/// Places of the attributes in the record.
fn slots() -> Vec<Slot> {
    let mut offset = 0;
    let slot = |(attr, row): (usize, &(&str, u16, u8))| {
        let slot = Slot { attr: attr as u16, offset, length: row.1 };
        offset += u32::from(row.1);
        slot
    };
    TABLE[..LEGACY].iter().enumerate().map(slot).collect()
}

/// Attributes in a bonus that is such a record.
pub(super) fn attributes(bonus: Vec<u8>) -> Result<Attrs, ZplError> {
    if bonus.len() < RECORD_BYTES {
        return Err(ZplError::CORRUPT);
    }
    Ok(Attrs { legacy: true, bonus: Buffer { bytes: bonus, slots: slots(), dirty: false }, spill: None, drop_spill: false })
}

/// Record of a new node. The target of a link lies behind it, or is written where files have data.
///
/// # Errors
/// [`ZplError::NotSupported`] for attributes that the record has no place for.
pub(super) fn record(dnode: &Dnode, values: &[(Attr, &[u8])], has_old_acls: bool, tx: &Tx) -> Result<Attrs, ZplError> {
    let mut attrs = attributes(vec![0; RECORD_BYTES])?;
    attrs.bonus.dirty = true;
    for (attr, value) in values {
        match attr {
            Attr::DaclCount => {}
            Attr::DaclAces => {
                attrs.bonus.patch(Attr::ZnodeAcl as u16, &acl_record(value, has_old_acls));
            }
            Attr::Symlink if value.len() <= TARGET_BYTES_MAX => attrs.bonus.bytes.extend_from_slice(value),
            Attr::Symlink => {
                dnode.set_block_size(value.len(), tx)?;
                dnode.write(0, value, tx)?;
            }
            _ if attrs.bonus.patch(*attr as u16, value) => {}
            _ => return Err(ZplError::NotSupported),
        }
    }
    Ok(attrs)
}

/// Access control list within the record, of entries as [`crate::acl::trivial`] has them: six at most. Old ones are 12 bytes, with the id before the
/// mask, and are counted where new ones have their bytes (OpenZFS: `zfs_acl_phys_v0_t`, `zfs_oldace_t`).
pub(super) fn acl_record(aces: &[u8], is_old: bool) -> [u8; ACL_BYTES] {
    let mut bytes = [0_u8; ACL_BYTES];
    let count = (aces.len() / 8) as u16;
    if !is_old {
        bytes[8..12].copy_from_slice(&(aces.len() as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&1u16.to_le_bytes());
        bytes[14..16].copy_from_slice(&count.to_le_bytes());
        bytes[16..16 + aces.len()].copy_from_slice(aces);
        return bytes;
    }
    bytes[8..12].copy_from_slice(&u32::from(count).to_le_bytes());
    for (old, new) in bytes[16..].chunks_exact_mut(12).zip(aces.chunks_exact(8)) {
        old[4..8].copy_from_slice(&new[4..8]);
        old[8..10].copy_from_slice(&new[2..4]);
        old[10..12].copy_from_slice(&new[..2]);
    }
    bytes
}

impl Sa {
    /// True when entries of access control lists in records have the form of before version 3.
    pub(super) fn has_old_acls(&self) -> bool {
        self.version() < VERSION_FUID
    }
}

impl Attrs {
    /// Bytes behind the record (short symbolic links).
    pub(crate) fn legacy_tail(&self) -> &[u8] {
        self.bonus.bytes.get(RECORD_BYTES..).unwrap_or_default()
    }

    /// Object of its own that the access control list of an old node lies in, if it has one.
    pub(crate) fn acl_object(&self) -> Option<ObjectId> {
        let list = self.bonus.bytes.get(RECORD_BYTES - ACL_BYTES..).filter(|_| self.legacy)?;
        let object = u64::from_le_bytes(list.get(..8)?.try_into().ok()?);
        (object != 0).then_some(ObjectId(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::trivial;

    /// If this fails, older systems take the lists in our records for other rights than the mode gives, or for none.
    #[test]
    fn lists_in_records_have_the_form_of_their_version() {
        let places = slots();
        assert_eq!(places.iter().map(|slot| usize::from(slot.length)).sum::<usize>(), RECORD_BYTES);
        assert_eq!(places.last().map(|slot| (slot.offset as usize, usize::from(slot.length))), Some((RECORD_BYTES - ACL_BYTES, ACL_BYTES)));
        let aces = trivial(0o604, false);
        let new = acl_record(&aces, false);
        assert_eq!((new[8], new[12], new[14]), (40, 1, 5), "bytes, version and number of entries");
        assert_eq!(&new[16..56], &aces[..]);
        let old = acl_record(&aces, true);
        assert_eq!((old[8], old[12], old[14]), (5, 0, 0), "number of entries, version");
        for (old, new) in old[16..].chunks(12).zip(aces.chunks(8)) {
            assert_eq!([&old[10..12], &old[8..10], &old[4..8]].concat(), new, "kind, who and mask");
            assert_eq!(old[..4], [0; 4]);
        }
    }
}
