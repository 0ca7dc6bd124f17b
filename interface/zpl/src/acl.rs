//! Trivial access control lists: the entries that say no more than the mode bits, as the kernel writes them.
//!
//! OpenZFS: `acl_trivial_access_masks`, `zfs_acl_chmod` (`zfs_acl.c`). Each entry is `zfs_ace_hdr_t`: type u16, flags u16, mask u32.

const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const APPEND_DATA: u32 = 0x4;
const READ_NAMED_ATTRS: u32 = 0x8;
const WRITE_NAMED_ATTRS: u32 = 0x10;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const READ_ACL: u32 = 0x2_0000;
const WRITE_ACL: u32 = 0x4_0000;
const WRITE_OWNER: u32 = 0x8_0000;
const SYNCHRONIZE: u32 = 0x10_0000;

const ALLOW: u16 = 0;
const DENY: u16 = 1;
const OWNER: u16 = 0x1000;
const OWNING_GROUP: u16 = 0x2040;
const EVERYONE: u16 = 0x4000;

/// Access control entries for `mode`.
pub(crate) fn trivial(mode: u64, directory: bool) -> Vec<u8> {
    let write = WRITE_DATA | APPEND_DATA | if directory { DELETE_CHILD } else { 0 };
    let rights = [(4, READ_DATA), (2, write), (1, EXECUTE)];
    let bits = |shift: u32, bit: u64| mode >> shift & bit != 0;
    let sum = |chosen: &dyn Fn(u64) -> bool| rights.iter().filter(|(bit, _)| chosen(*bit)).map(|(_, mask)| mask).sum::<u32>();
    let (owner, group, other) = (|bit| bits(6, bit), |bit| bits(3, bit), |bit| bits(0, bit));
    let read_all = READ_ACL | READ_ATTRIBUTES | READ_NAMED_ATTRS | SYNCHRONIZE;
    let owner_all = read_all | WRITE_ATTRIBUTES | WRITE_OWNER | WRITE_ACL | WRITE_NAMED_ATTRS;
    let mut list = Vec::with_capacity(48);
    let mut push = |kind: u16, who: u16, mask: u32| {
        list.extend_from_slice(&kind.to_le_bytes());
        list.extend_from_slice(&who.to_le_bytes());
        list.extend_from_slice(&mask.to_le_bytes());
    };
    for (kind, who, mask) in [
        (ALLOW, OWNER, sum(&|bit| owner(bit) && !group(bit) && other(bit))),
        (DENY, OWNER, sum(&|bit| !owner(bit) && (group(bit) || other(bit)))),
        (DENY, OWNING_GROUP, sum(&|bit| !group(bit) && other(bit))),
    ] {
        if mask != 0 {
            push(kind, who, mask);
        }
    }
    push(ALLOW, OWNER, owner_all | sum(&owner));
    push(ALLOW, OWNING_GROUP, read_all | sum(&group));
    push(ALLOW, EVERYONE, read_all | sum(&other));
    list
}

/// True when nobody is denied execution by `mode` (OpenZFS: `zfs_mode_compute`, `ZFS_NO_EXECS_DENIED`).
pub(crate) fn no_execs_denied(mode: u64) -> bool {
    mode & 0o111 == 0o111
}

/// Swaps the bytes of a list of entries of the other byte order (OpenZFS: `zfs_acl_byteswap`).
pub(crate) fn byteswap(list: &mut [u8]) {
    let mut rest = list;
    while rest.len() >= 8 {
        rest[0..2].reverse();
        rest[2..4].reverse();
        rest[4..8].reverse();
        let kind = u16::from_le_bytes([rest[0], rest[1]]);
        let flags = u16::from_le_bytes([rest[2], rest[3]]);
        let abstract_entry = matches!(flags & 0x7040, OWNER | OWNING_GROUP | EVERYONE) && kind <= 3;
        let size = match (abstract_entry, kind) {
            (true, _) => 8,
            (false, 5..=8) => 48,
            (false, _) => 16,
        };
        if size > 8
            && let Some(who) = rest.get_mut(8..16)
        {
            who.reverse();
        }
        rest = rest.get_mut(size..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::trivial;

    /// What the kernel module writes for 0644 files (`zdb -vvvv` on a pool it made): a file that a chmod later widens or
    /// narrows must not keep rights of the old mode.
    #[test]
    fn entries_follow_the_mode() {
        let count = |mode, directory| trivial(mode, directory).len() / 8;
        assert_eq!((count(0o644, false), count(0o755, true), count(0o000, false)), (3, 3, 3));
        // 0604: the owner must keep read and write while the group is denied what everyone may.
        assert_eq!(count(0o604, false), 5);
        assert_eq!(count(0o077, false), 4);
        let owner = u32::from_le_bytes(trivial(0o600, false)[4..8].try_into().expect("four bytes"));
        assert_eq!(owner & 0x27, 0x7, "read, write and append for the owner, no execution");
    }
}
