//! Dnodes as MACs see them, and which parts of a block of dnodes are encrypted (OpenZFS: `zio_crypt_init_uios_dnode`,
//! `zio_crypt_do_dnode_hmac_updates`).
//!
//! Only bonuses of types that are encrypted are; everything that a scrub, a free or a send must follow is plain, but authenticated.

use crate::CryptError;
use crate::pointers::append_all;
use ondisk::{BlockPtr, DNODE_BLOCK_PTRS_MAX, DNODE_CORE_BYTES, DNODE_SLOT_BYTES, ObjectType, dnode_flags};
use std::ops::Range;

const TYPE_AT: usize = 0;
const POINTERS_AT: usize = 3;
const BONUS_TYPE_AT: usize = 4;
const FLAGS_AT: usize = 7;
const SECTORS_AT: Range<usize> = 8..10;
const BONUS_BYTES_AT: Range<usize> = 10..12;
const EXTRA_SLOTS_AT: usize = 12;
const LAST_BLOCK_AT: Range<usize> = 16..24;
const USED_AT: Range<usize> = 24..32;

/// Parts of one dnode.
struct Parts {
    pointers: Range<usize>,
    bonus: Range<usize>,
    spill: Range<usize>,
}

/// Parts of the dnode at the start of `slots`, a free slot too. Error: `Form` when they do not fit.
fn parts(slots: &[u8]) -> Result<Parts, CryptError> {
    let core = slots.get(..DNODE_CORE_BYTES).ok_or(CryptError::Form)?;
    let count = usize::from(core[POINTERS_AT]);
    let end = (usize::from(core[EXTRA_SLOTS_AT]) + 1) * DNODE_SLOT_BYTES;
    let spill_bytes = if core[FLAGS_AT] & dnode_flags::SPILL_BLKPTR == 0 { 0 } else { BlockPtr::BYTES };
    let bonus = DNODE_CORE_BYTES + count * BlockPtr::BYTES..end - spill_bytes;
    if count > DNODE_BLOCK_PTRS_MAX || bonus.start > bonus.end || end > slots.len() {
        return Err(CryptError::Form);
    }
    Ok(Parts { pointers: DNODE_CORE_BYTES..bonus.start, spill: bonus.end..end, bonus })
}

/// The core without what may change where the dnode is received: of the flags only that there is a spill block, and no space.
fn portable_core(dnode: &[u8]) -> [u8; DNODE_CORE_BYTES] {
    let mut core = [0; DNODE_CORE_BYTES];
    core.copy_from_slice(&dnode[..DNODE_CORE_BYTES]);
    core[FLAGS_AT] &= dnode_flags::SPILL_BLKPTR;
    core[USED_AT].fill(0);
    core
}

fn append_pointers(dnode: &[u8], parts: &Parts, is_little: bool, version: u64, out: &mut Vec<u8>) {
    append_all(&dnode[parts.pointers.clone()], is_little, version, out);
    append_all(&dnode[parts.spill.clone()], is_little, version, out);
}

/// Block of dnodes, taken apart.
pub(crate) struct DnodeBlock {
    /// Bytes that are authenticated.
    pub(crate) aad: Vec<u8>,
    /// Places that are encrypted, in order.
    pub(crate) encrypted: Vec<Range<usize>>,
}

/// Takes a block of dnodes apart, as it lies on disk: whether its bonuses are encrypted by now changes nothing. Error: `Form`.
pub(crate) fn take_apart(block: &[u8], is_little: bool, version: u64) -> Result<DnodeBlock, CryptError> {
    let mut found = DnodeBlock { aad: Vec::with_capacity(block.len() / 2), encrypted: Vec::new() };
    let mut at = 0;
    while at < block.len() {
        let slots = &block[at..];
        let parts = parts(slots)?;
        found.aad.extend(portable_core(slots));
        append_pointers(slots, &parts, is_little, version, &mut found.aad);
        let has_bonus = slots[BONUS_BYTES_AT] != [0; 2];
        if slots[TYPE_AT] != ObjectType::NONE.0 && has_bonus && ObjectType(slots[BONUS_TYPE_AT]).is_encrypted() {
            found.encrypted.push(at + parts.bonus.start..at + parts.bonus.end);
        } else {
            found.aad.extend(&slots[parts.bonus.clone()]);
        }
        at += parts.spill.end;
    }
    Ok(found)
}

/// Appends the form of a dnode of an object set's root: its core in little-endian, its pointers, no bonus. Error: `Form`.
pub(crate) fn append_root(dnode: &[u8], is_little: bool, version: u64, out: &mut Vec<u8>) -> Result<(), CryptError> {
    let parts = parts(dnode)?;
    let mut core = portable_core(dnode);
    if !is_little {
        for field in [SECTORS_AT, BONUS_BYTES_AT, LAST_BLOCK_AT] {
            core[field].reverse();
        }
    }
    out.extend(core);
    append_pointers(dnode, &parts, is_little, version, out);
    Ok(())
}
