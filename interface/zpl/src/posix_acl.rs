//! POSIX access control lists of `acltype=posix`: extended attributes in Linux's own encoding, as OpenZFS stores them
//! (`zpl_xattr.c`: `zpl_set_acl`, `zpl_chmod_acl`).
//!
//! What is here: they are shown, and the list follows a chmod as it does in the kernel. They are neither evaluated nor set.

/// Beginning of the names of both lists.
const NAMES: &[u8] = b"system.posix_acl_";
/// Name of the list that decides about access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Bytes of the version; entries follow: tag, permissions, id (Linux: `posix_acl_xattr_header`, `posix_acl_xattr_entry`).
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// True for the name of an access control list.
pub(crate) fn is_list(name: &[u8]) -> bool {
    name.starts_with(NAMES)
}

fn tag_of(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

/// Makes a list say what the mode says (Linux: `posix_acl_chmod`): the group's bits go to the mask where there is one.
fn follow_mode(list: &mut [u8], mode: u64) {
    let Some((_, entries)) = list.split_at_mut_checked(HEADER_BYTES) else { return };
    let has_mask = entries.chunks_exact(ENTRY_BYTES).any(|entry| tag_of(entry) == MASK);
    for entry in entries.chunks_exact_mut(ENTRY_BYTES) {
        let shift = match tag_of(entry) {
            USER_OBJ => 6,
            MASK => 3,
            GROUP_OBJ if !has_mask => 3,
            OTHER => 0,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&((mode >> shift & 7) as u16).to_le_bytes());
    }
}

/// Stored list as it is to be to follow a new mode; None when it need not change.
pub(crate) fn followed(old: &[u8], mode: u64) -> Option<Vec<u8>> {
    let mut list = old.to_vec();
    follow_mode(&mut list, mode);
    (list != old).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, NewNode, SetAttrs, SetMode, Settings, Zfs, ZplError};
    use dmu::ObjsetProps;
    use dmu::testing::{MemBlockIo, TestPool};
    use ondisk::ObjsetType;
    use std::sync::Arc;

    /// Linux's encoding of u::rwx,u:1000:rw-,g::r-x,m::rwx,o::r-- or the like.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn file_system() -> (TestPool, Arc<Zfs>) {
        let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
        let tx = pool.txgs.assign(0).expect("assign");
        Zfs::create(&pool.objset, &CreateOptions::default(), &tx).expect("a file system");
        drop(tx);
        let settings = Settings { posix_acl: true, ..Settings::default() };
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings).expect("opens");
        (pool, zfs)
    }

    /// If this fails, whom the owner shut out with chmod here gets in again where lists are evaluated.
    #[test]
    fn lists_that_the_kernel_wrote_are_shown_and_follow_the_mode() {
        for xattr_sa in [true, false] {
            let (_pool, zfs) = file_system();
            let root = zfs.node(zfs.root()).expect("root");
            let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_674, ..NewNode::default() }).expect("create");
            let stored =
                list(&[(USER_OBJ, 6, u32::MAX), (2, 7, 1000), (GROUP_OBJ, 5, u32::MAX), (MASK, 7, u32::MAX), (OTHER, 4, u32::MAX)]);
            zfs.set_settings(Settings { posix_acl: true, xattr_sa, ..Settings::default() });
            let change = zfs.xattrs.stage_xattr(&node, ACCESS, Some(&stored)).expect("prepared");
            zfs.xattrs.carry_out_xattr(&node, &change).expect("as the kernel would");
            assert_eq!(zfs.get_xattr(&node, ACCESS), Ok(stored));
            assert_eq!(zfs.list_xattrs(&node), Ok(vec![ACCESS.to_vec()]));
            assert_eq!(zfs.set_xattr(&node, ACCESS, &[2, 0, 0, 0], SetMode::Any), Err(ZplError::NotSupported));
            zfs.set_attrs(&node, &SetAttrs { mode: Some(0o600), ..SetAttrs::default() }).expect("chmod");
            let followed =
                list(&[(USER_OBJ, 6, u32::MAX), (2, 7, 1000), (GROUP_OBJ, 5, u32::MAX), (MASK, 0, u32::MAX), (OTHER, 0, u32::MAX)]);
            assert_eq!(zfs.get_xattr(&node, ACCESS), Ok(followed));
            zfs.set_settings(Settings::default());
            assert_eq!(zfs.get_xattr(&node, ACCESS), Err(ZplError::NotSupported), "acltype=off");
            assert_eq!(zfs.list_xattrs(&node), Ok(Vec::new()));
        }
    }

    /// If this fails, a chmod of a file with a short or damaged list ends the daemon.
    #[test]
    fn damaged_lists_are_left_alone() {
        for length in 0..20 {
            let mut list = vec![1; length];
            follow_mode(&mut list, 0o777);
            assert_eq!(list.len(), length);
        }
        let mut small = list(&[(GROUP_OBJ, 5, u32::MAX)]);
        follow_mode(&mut small, 0o020);
        assert_eq!(small, list(&[(GROUP_OBJ, 2, u32::MAX)]), "without a mask the group's own");
    }
}
