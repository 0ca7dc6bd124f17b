//! Byte order of whole blocks (OpenZFS: `dmu_ot_byteswap`, `zap_byteswap`, `dnode_buf_byteswap`, `zfs_byteswap.c`).
//!
//! [`byteswap_block`] turns a block of a big-endian pool into what a little-endian machine would have written, so that everything above
//! the cache sees one byte order. It changes bytes in place, is driven only by the bytes it has already swapped, and never runs past the
//! block whatever they say. Not swapped are contents with a byte order of their own: file data, packed nvlists, system attributes.

use crate::dnode::{DNODE_CORE_BYTES, DNODE_SLOT_BYTES, dnode_flags};
use crate::sa::{AceHeader, AcePhys, OBJECT_ACE_BYTES, OldAce, ZnodePhys, ace_bytes};
use crate::zap::{
    LEAF_CHUNK_ARRAY, LEAF_CHUNK_BYTES, LEAF_CHUNK_ENTRY, LEAF_CHUNK_FREE, LeafHeader, MZAP_ENTRY_BYTES, ZBT_LEAF, ZBT_MICRO,
    leaf_chunk_offset, leaf_chunks, leaf_hash_entries,
};
use crate::{BlockPtr, Byteswap, ObjectType};

/// Swaps the contents of a block of an object of type `kind` at `level`.
pub fn byteswap_block(kind: ObjectType, level: u8, block: &mut [u8]) {
    if level > 0 { swap64(block) } else { byteswap_contents(kind.byteswap(), block) }
}

/// Swaps contents of a class: a level-0 block, a bonus or a spill.
pub fn byteswap_contents(class: Byteswap, block: &mut [u8]) {
    match class {
        Byteswap::Uint8 => {}
        Byteswap::Uint16 => swap16(block),
        Byteswap::Uint32 => swap32(block),
        Byteswap::Uint64 => swap64(block),
        Byteswap::Zap => zap(block),
        Byteswap::Dnode => dnodes(block),
        Byteswap::Objset => objset(block),
        Byteswap::Znode => znode(block),
        Byteswap::OldAcl => old_acl(block),
        Byteswap::Acl => acl(block),
    }
}

fn swap16(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(2).for_each(<[u8]>::reverse);
}
fn swap32(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
}
fn swap64(bytes: &mut [u8]) {
    for word in bytes.as_chunks_mut::<8>().0 {
        word.reverse();
    }
}
/// Swaps one integer of `width` bytes at `at`, if it lies inside.
fn swap_at(bytes: &mut [u8], at: usize, width: usize) {
    if let Some(integer) = bytes.get_mut(at..at + width) {
        integer.reverse();
    }
}
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |raw| u16::from_le_bytes(*raw))
}

fn zap(block: &mut [u8]) {
    let Some(first) = block.first_chunk() else { return };
    let (little, big) = (u64::from_le_bytes(*first), u64::from_be_bytes(*first));
    if little == ZBT_MICRO || big == ZBT_MICRO {
        for at in [0, 8, 16] {
            swap_at(block, at, 8);
        }
        for entry in block.chunks_exact_mut(MZAP_ENTRY_BYTES).skip(1) {
            swap_at(entry, 0, 8);
            swap_at(entry, 8, 4);
        }
    } else if little == ZBT_LEAF || big == ZBT_LEAF {
        zap_leaf(block);
    } else {
        // The header block and the blocks of the pointer table are words all through.
        swap64(block);
    }
}

fn zap_leaf(block: &mut [u8]) {
    let shift = block.len().checked_ilog2().unwrap_or(0);
    if block.len() < 2 * LeafHeader::SIZE {
        return;
    }
    for (at, width) in [(0, 8), (16, 8), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2)] {
        swap_at(block, at, width);
    }
    swap16(&mut block[LeafHeader::SIZE..][..2 * leaf_hash_entries(shift)]);
    for index in 0..leaf_chunks(shift) {
        let start = leaf_chunk_offset(shift, index);
        let Some(chunk) = block.get_mut(start..start + LEAF_CHUNK_BYTES) else { return };
        match chunk[0] {
            LEAF_CHUNK_ENTRY => {
                swap16(&mut chunk[2..12]);
                swap_at(chunk, 12, 4);
                swap_at(chunk, 16, 8);
            }
            LEAF_CHUNK_FREE | LEAF_CHUNK_ARRAY => swap_at(chunk, 22, 2),
            _ => {}
        }
    }
}

fn dnodes(block: &mut [u8]) {
    let mut rest = block;
    while rest.len() >= DNODE_SLOT_BYTES {
        let slots = if rest[0] == 0 { 1 } else { usize::from(rest[12]) + 1 };
        let bytes = (slots * DNODE_SLOT_BYTES).min(rest.len());
        let (one, more) = rest.split_at_mut(bytes);
        dnode(one);
        rest = more;
    }
}

/// Swaps one dnode that has all of `slots`.
fn dnode(slots: &mut [u8]) {
    if slots[0] == ObjectType::NONE.0 {
        slots.fill(0);
        return;
    }
    swap16(&mut slots[8..12]);
    swap64(&mut slots[16..32]);
    let pointers = usize::from(slots[3]).min(3);
    let bonus_type = ObjectType(slots[4]);
    let has_spill = slots[7] & dnode_flags::SPILL_BLKPTR != 0;
    let has_bonus = u16_at(slots, 10) != 0;
    let tail = &mut slots[DNODE_CORE_BYTES..];
    let (ptrs, after) = tail.split_at_mut(pointers * BlockPtr::BYTES);
    swap64(ptrs);
    let spill_bytes = if has_spill { BlockPtr::BYTES.min(after.len()) } else { 0 };
    let (bonus, spill) = after.split_at_mut(after.len() - spill_bytes);
    swap64(spill);
    if has_bonus && !matches!(bonus_type.byteswap(), Byteswap::Dnode | Byteswap::Objset) {
        byteswap_contents(bonus_type.byteswap(), bonus);
    }
}

fn objset(block: &mut [u8]) {
    const ZIL_HEADER_TO_FLAGS: std::ops::Range<usize> = 512..720;
    for (index, slot) in block.chunks_exact_mut(DNODE_SLOT_BYTES).enumerate() {
        match index {
            0 | 2 | 3 | 4 => dnode(slot),
            1 => swap64(&mut slot[..ZIL_HEADER_TO_FLAGS.end - ZIL_HEADER_TO_FLAGS.start]),
            _ => {}
        }
    }
}

fn znode(bonus: &mut [u8]) {
    const ACL: usize = 176;
    let Some(znode) = bonus.get_mut(..ZnodePhys::SIZE) else { return };
    swap64(&mut znode[..ACL]);
    swap_at(znode, ACL, 8);
    swap_at(znode, ACL + 8, 4);
    swap16(&mut znode[ACL + 12..ACL + 16]);
    let is_fuid_version = u16_at(znode, ACL + 12) == 1;
    let aces = &mut znode[ACL + 16..];
    if is_fuid_version { acl(aces) } else { old_acl(aces) }
}

fn old_acl(aces: &mut [u8]) {
    for ace in aces.chunks_exact_mut(OldAce::SIZE) {
        swap32(&mut ace[..8]);
        swap16(&mut ace[8..]);
    }
}

/// Swaps a list of ACEs: what follows them is zeros, which swapping does not change.
fn acl(aces: &mut [u8]) {
    let mut rest = aces;
    while rest.len() >= AceHeader::SIZE {
        swap16(&mut rest[..4]);
        swap_at(rest, 4, 4);
        let bytes = ace_bytes(u16_at(rest, 0), u16_at(rest, 2));
        if matches!(bytes, AcePhys::SIZE | OBJECT_ACE_BYTES) {
            swap_at(rest, AceHeader::SIZE, 8);
        }
        rest = rest.split_at_mut(bytes.min(rest.len())).1;
    }
}
