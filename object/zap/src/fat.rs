//! The fat ZAP over its object: from hash through the pointer table to a leaf; splitting, growing and shrinking.
//!
//! Every lookup reads one block of the pointer table (none more while it is embedded in block 0) and one leaf. Changes
//! make dirty what they will touch first, so that a failure leaves the object as it was (OpenZFS: `fzap_*` in `zap.c`).

use crate::error::ZapError;
use crate::hash;
use crate::header::Header;
use crate::leaf::{Damage, LOW_WATER, Leaf, Refused};
use crate::name::{Key, LONGNAME_BYTES_MAX, NAME_BYTES_MAX};
use abd::Abd;
use dmu::{Dnode, Tx};
use ondisk::{BlockId, ObjectType};

/// Behaviour of an insertion when the name is there already, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    /// Fail when it is there; `cd` is given by the caller for entries that come from a micro ZAP.
    Add { cd: Option<u32> },
    /// Replace or create.
    Update,
}

/// The value to store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) integer_size: u8,
    pub(crate) bytes: &'a [u8],
}

enum Put {
    Created { leaf_low: bool },
    Replaced,
    NoRoom { prefix_len: u16 },
}

pub(crate) fn damaged(dnode: &Dnode, block: u64, what: Damage) -> ZapError {
    ZapError::Corrupt { object: dnode.object(), block, what }
}

/// Block `block` as one run of bytes.
pub(crate) fn block(dnode: &Dnode, block: u64) -> Result<Abd, ZapError> {
    Ok(dnode.read_block(BlockId(block))?.to_contiguous())
}

/// The bytes of a buffer that [`block`] made contiguous.
pub(crate) fn bytes(abd: &Abd) -> &[u8] {
    abd.as_contiguous().unwrap_or(&[])
}

/// Changes a block in place and hands back what `change` made.
pub(crate) fn modify<R>(dnode: &Dnode, block: u64, tx: &Tx, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, ZapError> {
    Ok(dnode.modify_block(BlockId(block), tx, change)?)
}

/// Reads the leaf in `leaf_block` and calls `look` on it.
pub(crate) fn with_leaf<R>(
    dnode: &Dnode,
    header: &Header,
    leaf_block: u64,
    look: impl FnOnce(&Leaf<&[u8]>) -> Result<R, Damage>,
) -> Result<R, ZapError> {
    if leaf_block == 0 || leaf_block >= header.free_block {
        return Err(damaged(dnode, leaf_block, "the pointer table leads outside the object"));
    }
    let data = block(dnode, leaf_block)?;
    let leaf = Leaf::open(bytes(&data)).map_err(|what| damaged(dnode, leaf_block, what))?;
    look(&leaf).map_err(|what| damaged(dnode, leaf_block, what))
}

/// The block and the byte offset in it of entry `index` of the pointer table.
fn table_place(header: &Header, index: u64) -> (u64, usize) {
    let per_block = header.block_shift - 3;
    if header.table.blocks == 0 {
        (0, header.embedded_at() + 8 * index as usize)
    } else {
        (header.table.block + (index >> per_block), 8 * (index as usize & ((1 << per_block) - 1)))
    }
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(raw)
}

fn pointer(dnode: &Dnode, header: &Header, index: u64) -> Result<u64, ZapError> {
    let (at, offset) = table_place(header, index);
    let data = block(dnode, at)?;
    if offset + 8 > data.len() {
        return Err(damaged(dnode, at, "a block of the pointer table is short"));
    }
    Ok(word(bytes(&data), offset))
}

/// The block of the leaf that holds `hash`.
pub(crate) fn leaf_of(dnode: &Dnode, header: &Header, hash: u64) -> Result<u64, ZapError> {
    pointer(dnode, header, hash::index(hash, header.table.shift))
}

/// Checks name and value against the object's limits (OpenZFS: `fzap_check`).
pub(crate) fn check_name(dnode: &Dnode, key: &Key<'_>) -> Result<(), ZapError> {
    let fits = match key.stored_bytes() {
        0..=NAME_BYTES_MAX => true,
        bytes => bytes <= LONGNAME_BYTES_MAX && dnode.info()?.kind == ObjectType::DIRECTORY_CONTENTS,
    };
    if fits { Ok(()) } else { Err(ZapError::NameTooLong) }
}

fn zero_filled(header: &Header, fill: impl FnOnce(&mut [u8])) -> Abd {
    let mut data = Abd::zeroed(header.block_bytes());
    fill(data.make_mut());
    data
}

fn store(dnode: &Dnode, header: &Header, at: u64, data: Abd, tx: &Tx) -> Result<(), ZapError> {
    Ok(dnode.write_abd(at << header.block_shift, data, tx)?)
}

/// Writes the header's fields to block 0.
pub(crate) fn store_header(dnode: &Dnode, header: &Header, tx: &Tx) -> Result<(), ZapError> {
    modify(dnode, 0, tx, |bytes| header.encode(bytes))
}

/// Writes a new fat ZAP with one empty leaf; the object's block size must be the header's already.
pub(crate) fn init(dnode: &Dnode, header: &Header, tx: &Tx) -> Result<(), ZapError> {
    let first = zero_filled(header, |bytes| {
        header.encode(bytes);
        bytes[header.embedded_at()..].chunks_exact_mut(8).for_each(|raw| raw.copy_from_slice(&1u64.to_le_bytes()));
    });
    let leaf = zero_filled(header, |bytes| {
        Leaf::init(bytes, !header.norm.is_none());
    });
    store(dnode, header, 0, first, tx)?;
    store(dnode, header, 1, leaf, tx)
}

/// Adds or replaces an entry.
pub(crate) fn insert(dnode: &Dnode, header: &mut Header, key: &Key<'_>, value: Stored<'_>, how: Insert, tx: &Tx) -> Result<(), ZapError> {
    check_name(dnode, key)?;
    // The header is written last: that it can be is made sure of first.
    dnode.will_modify(BlockId(0), tx)?;
    loop {
        let leaf_block = leaf_of(dnode, header, key.hash())?;
        match put(dnode, header, leaf_block, key, value, how, tx)? {
            Put::Replaced => return Ok(()),
            Put::Created { leaf_low } => {
                header.entries += 1;
                if leaf_low || header.table.next_block != 0 {
                    // Growth ahead of need: the entry is in, and that it cannot grow matters only when a leaf must split.
                    let _ = grow_table(dnode, header, tx);
                }
                return store_header(dnode, header, tx);
            }
            Put::NoRoom { prefix_len } => {
                let grown = expand(dnode, header, leaf_block, key.hash(), prefix_len, tx);
                store_header(dnode, header, tx)?;
                grown?;
            }
        }
    }
}

fn put(dnode: &Dnode, header: &Header, leaf_block: u64, key: &Key<'_>, value: Stored<'_>, how: Insert, tx: &Tx) -> Result<Put, ZapError> {
    if leaf_block == 0 || leaf_block >= header.free_block {
        return Err(damaged(dnode, leaf_block, "the pointer table leads outside the object"));
    }
    let outcome = modify(dnode, leaf_block, tx, |bytes| {
        let mut leaf = Leaf::open(bytes)?;
        if hash::index(key.hash(), leaf.prefix_len().into()) != leaf.prefix() {
            return Err(Refused::Damaged("the pointer table leads to the wrong leaf"));
        }
        let found = leaf.find(key)?;
        match (found, how) {
            (Some(_), Insert::Add { .. }) => return Ok(None),
            (Some((chunk, _)), Insert::Update) => {
                return leaf
                    .update(chunk, value.integer_size, value.bytes)
                    .map(|()| Some(Put::Replaced))
                    .or_else(|refused| no_room(&leaf, refused));
            }
            (None, _) => {}
        }
        let cd = match how {
            Insert::Add { cd } => cd,
            Insert::Update => None,
        };
        match leaf.create(key, cd, value.integer_size, value.bytes) {
            Ok(()) => {
                let leaf_low = u32::from(leaf.prefix_len()) == header.table.shift && leaf.free_count() < LOW_WATER;
                Ok(Some(Put::Created { leaf_low }))
            }
            Err(refused) => no_room(&leaf, refused),
        }
    })?;
    match outcome {
        Ok(Some(put)) => Ok(put),
        Ok(None) => Err(ZapError::Exists),
        Err(Refused::TooBig) => Err(ZapError::ValueTooBig),
        Err(Refused::Damaged(what)) => Err(damaged(dnode, leaf_block, what)),
        Err(Refused::NoRoom) => Err(damaged(dnode, leaf_block, "a leaf without room")),
    }
}

fn no_room(leaf: &Leaf<&mut [u8]>, refused: Refused) -> Result<Option<Put>, Refused> {
    match refused {
        Refused::NoRoom => Ok(Some(Put::NoRoom { prefix_len: leaf.prefix_len() })),
        other => Err(other),
    }
}

/// Splits the leaf that has no room, growing the pointer table first when the leaf has only one pointer
/// (OpenZFS: `zap_expand_leaf`).
fn expand(dnode: &Dnode, header: &mut Header, leaf_block: u64, key_hash: u64, prefix_len: u16, tx: &Tx) -> Result<(), ZapError> {
    let prefix_len = u32::from(prefix_len);
    // With no bits left that tell the entries apart growing would make a table of all there can be, for nothing.
    let bits = header.hash_bits() - 2;
    let alike = |leaf: &Leaf<&[u8]>| {
        let entries = leaf.entries()?;
        Ok(!entries.is_empty() && entries.iter().all(|(_, entry)| hash::index(entry.hash, bits) == hash::index(key_hash, bits)))
    };
    if with_leaf(dnode, header, leaf_block, alike)? {
        return Err(ZapError::Full);
    }
    while prefix_len >= header.table.shift {
        grow_table(dnode, header, tx)?;
    }
    let span = 1u64 << (header.table.shift - prefix_len - 1);
    let sibling = (hash::index(key_hash, prefix_len + 1) | 1) * span;
    for at in table_blocks(header, sibling, span).into_iter().chain([leaf_block]) {
        dnode.will_modify(BlockId(at), tx)?;
    }
    let old = block(dnode, leaf_block)?;
    let (mut old_bytes, mut new_bytes) = (old.to_vec(), Abd::zeroed(header.block_bytes()));
    let sorted = !header.norm.is_none();
    let mut new_leaf = Leaf::init(new_bytes.make_mut(), sorted);
    Leaf::open(old_bytes.as_mut_slice())
        .and_then(|mut leaf| leaf.split(&mut new_leaf, sorted))
        .map_err(|what| damaged(dnode, leaf_block, what))?;
    drop(old);
    let new_block = header.free_block;
    store(dnode, header, new_block, new_bytes, tx)?;
    header.free_block += 1;
    header.leaves += 1;
    modify(dnode, leaf_block, tx, |bytes| bytes.copy_from_slice(&old_bytes))?;
    set_pointers(dnode, header, sibling, span, new_block, tx)
}

/// The blocks of the pointer table (and of its next copy) that hold these entries.
fn table_blocks(header: &Header, first: u64, count: u64) -> Vec<u64> {
    let last = first + count - 1;
    let mut blocks: Vec<u64> = (table_place(header, first).0..=table_place(header, last).0).collect();
    if header.table.next_block != 0 {
        let per_block = header.block_shift - 3;
        blocks.extend(((2 * first) >> per_block..=(2 * last + 1) >> per_block).map(|at| header.table.next_block + at));
    }
    blocks
}

fn fill_words(dnode: &Dnode, header: &Header, start: u64, first: u64, count: u64, value: u64, tx: &Tx) -> Result<(), ZapError> {
    let per_block = 1u64 << (header.block_shift - 3);
    let mut index = first;
    while index < first + count {
        let in_block = index % per_block;
        let run = (per_block - in_block).min(first + count - index);
        let range = 8 * in_block as usize..8 * (in_block + run) as usize;
        modify(dnode, start + index / per_block, tx, |bytes| {
            bytes[range].chunks_exact_mut(8).for_each(|raw| raw.copy_from_slice(&value.to_le_bytes()));
        })?;
        index += run;
    }
    Ok(())
}

/// Points entries of the table at `leaf_block`, in the copy that is being made too (OpenZFS: `zap_table_store`).
fn set_pointers(dnode: &Dnode, header: &Header, first: u64, count: u64, leaf_block: u64, tx: &Tx) -> Result<(), ZapError> {
    if header.table.blocks == 0 {
        let start = header.embedded_at() + 8 * first as usize;
        return modify(dnode, 0, tx, |bytes| {
            let range = start..start + 8 * count as usize;
            bytes[range].chunks_exact_mut(8).for_each(|raw| raw.copy_from_slice(&leaf_block.to_le_bytes()));
        });
    }
    fill_words(dnode, header, header.table.block, first, count, leaf_block, tx)?;
    if header.table.next_block != 0 {
        fill_words(dnode, header, header.table.next_block, 2 * first, 2 * count, leaf_block, tx)?;
    }
    Ok(())
}

fn doubled(source: &[u8], header: &Header) -> Abd {
    zero_filled(header, |bytes| {
        for (pair, raw) in bytes.chunks_exact_mut(16).zip(source.chunks_exact(8)) {
            pair[..8].copy_from_slice(raw);
            pair[8..].copy_from_slice(raw);
        }
    })
}

/// One step of doubling the pointer table: out of block 0 at once, afterwards one source block a call
/// (OpenZFS: `zap_grow_ptrtbl`, `zap_table_grow`).
fn grow_table(dnode: &Dnode, header: &mut Header, tx: &Tx) -> Result<(), ZapError> {
    if header.table.shift >= header.hash_bits() - 2 {
        return Err(ZapError::Full);
    }
    let mut grown = header.clone();
    grow_table_step(dnode, &mut grown, tx)?;
    *header = grown;
    Ok(())
}

/// Step of [`grow_table`] on a copy of the header; after a failure `header` is not to be used.
fn grow_table_step(dnode: &Dnode, header: &mut Header, tx: &Tx) -> Result<(), ZapError> {
    let half = header.embedded_at();
    if header.table.blocks == 0 {
        let first = block(dnode, 0)?;
        let copy = doubled(&bytes(&first)[half..], header);
        let at = header.free_block;
        store(dnode, header, at, copy, tx)?;
        header.free_block += 1;
        header.table.block = at;
        header.table.blocks = 1;
        header.table.shift += 1;
        return Ok(());
    }
    let source = block(dnode, header.table.block + header.table.blocks_copied)?;
    if header.table.next_block == 0 {
        header.table.next_block = header.free_block;
        header.free_block += 2 * header.table.blocks;
        header.table.blocks_copied = 0;
    }
    let to = header.table.next_block + 2 * header.table.blocks_copied;
    store(dnode, header, to, doubled(&bytes(&source)[..half], header), tx)?;
    store(dnode, header, to + 1, doubled(&bytes(&source)[half..], header), tx)?;
    header.table.blocks_copied += 1;
    if header.table.blocks_copied == header.table.blocks {
        dnode.free_range(header.table.block << header.block_shift, header.table.blocks << header.block_shift, tx)?;
        header.table.block = header.table.next_block;
        header.table.blocks *= 2;
        header.table.shift += 1;
        header.table.next_block = 0;
        header.table.blocks_copied = 0;
    }
    Ok(())
}

/// Removes an entry.
pub(crate) fn remove(dnode: &Dnode, header: &mut Header, key: &Key<'_>, tx: &Tx) -> Result<(), ZapError> {
    let leaf_block = leaf_of(dnode, header, key.hash())?;
    let present = with_leaf(dnode, header, leaf_block, |leaf| Ok(leaf.find(key)?.is_some()))?;
    if !present {
        return Err(ZapError::NotFound);
    }
    dnode.will_modify(BlockId(0), tx)?;
    let outcome = modify(dnode, leaf_block, tx, |bytes| {
        let mut leaf = Leaf::open(bytes)?;
        let Some((chunk, _)) = leaf.find(key)? else { return Ok(false) };
        leaf.remove(chunk)?;
        Ok(leaf.entry_count() == 0)
    })?;
    let empty = outcome.map_err(|what| damaged(dnode, leaf_block, what))?;
    header.entries = header.entries.saturating_sub(1);
    if empty {
        // The entry is gone either way: an empty leaf more than there need be hurts nobody.
        let _ = shrink(dnode, header, leaf_block, key.hash(), tx);
    }
    store_header(dnode, header, tx)
}

/// Merges an empty leaf with its empty sibling, again and again (OpenZFS: `zap_shrink`).
fn shrink(dnode: &Dnode, header: &mut Header, leaf_block: u64, key_hash: u64, tx: &Tx) -> Result<(), ZapError> {
    let mut current = leaf_block;
    let mut freed_last = false;
    loop {
        let bits = with_leaf(dnode, header, current, |leaf| Ok(u32::from(leaf.prefix_len())))?;
        if bits == 0 || bits > header.table.shift {
            break;
        }
        let prefix = hash::index(key_hash, bits);
        let span = 1u64 << (header.table.shift - bits);
        let sibling = pointer(dnode, header, (prefix ^ 1) * span)?;
        if sibling == current || pointer(dnode, header, (prefix ^ 1) * span + span - 1)? != sibling {
            break;
        }
        let mergeable = with_leaf(dnode, header, sibling, |leaf| Ok(leaf.entry_count() == 0 && u32::from(leaf.prefix_len()) == bits))?;
        if !mergeable {
            break;
        }
        let (stays, goes) = if prefix & 1 == 0 { (current, sibling) } else { (sibling, current) };
        for at in table_blocks(header, (prefix | 1) * span, span).into_iter().chain([stays]) {
            dnode.will_modify(BlockId(at), tx)?;
        }
        let set = modify(dnode, stays, tx, |bytes| Leaf::open(bytes).map(|mut leaf| leaf.set_prefix(prefix >> 1, bits as u16 - 1)))?;
        set.map_err(|what| damaged(dnode, stays, what))?;
        set_pointers(dnode, header, (prefix | 1) * span, span, stays, tx)?;
        header.leaves = header.leaves.saturating_sub(1);
        dnode.free_range(goes << header.block_shift, header.block_bytes() as u64, tx)?;
        freed_last |= goes + 1 == header.free_block;
        current = stays;
    }
    if freed_last { truncate(dnode, header) } else { Ok(()) }
}

/// Finds the last block in use and takes back what lies behind it (OpenZFS: `zap_trunc`).
fn truncate(dnode: &Dnode, header: &mut Header) -> Result<(), ZapError> {
    let table = header.table;
    let mut last = if table.blocks == 0 { 0 } else { table.block + table.blocks - 1 };
    if table.next_block != 0 {
        last = last.max(table.next_block + 2 * table.blocks - 1);
    }
    for at in table_blocks_all(header) {
        let data = block(dnode, at)?;
        let words = if at == 0 { &bytes(&data)[header.embedded_at()..] } else { bytes(&data) };
        last = words.chunks_exact(8).map(|raw| word(raw, 0)).fold(last, u64::max);
    }
    if last < header.free_block {
        header.free_block = last + 1;
    }
    Ok(())
}

/// Every block of the current pointer table.
pub(crate) fn table_blocks_all(header: &Header) -> std::ops::Range<u64> {
    if header.table.blocks == 0 { 0..1 } else { header.table.block..header.table.block + header.table.blocks }
}
