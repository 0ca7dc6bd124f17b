//! Walking a ZAP in the order of hashes, from positions that survive changes, reopening and restarts.
//!
//! A position is (hash, collision differentiator); its 64-bit form is what directory offsets are made of, exactly as
//! OpenZFS makes it (`zap_cursor_serialize`), so a listing may continue after an export to another implementation.
//! A cursor remembers the leaf it walks for as long as nobody changed the object.

use crate::error::ZapError;
use crate::fat;
use crate::hash;
use crate::header::Header;
use crate::leaf::{Entry, Leaf};
use crate::micro::{self, MICRO_HASH_BITS, Micro};
use crate::name::{Key, Match};
use crate::object::{Kind, Zap};
use abd::Abd;
use std::sync::atomic::Ordering;

/// The position behind the last entry.
pub const CURSOR_END: u64 = u64::MAX;

/// One entry as a walk sees it (OpenZFS: `zap_attribute_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// The name; empty when the key is words.
    pub name: Vec<u8>,
    /// The key when it is words.
    pub words: Vec<u64>,
    /// Size of the integers in bytes.
    pub integer_size: u8,
    /// Number of integers.
    pub integers: u64,
    /// The first integer, widened; 0 when there is none.
    pub first_integer: u64,
    /// True when another entry has the same normalized name.
    pub conflict: bool,
}

/// A leaf (or the whole micro ZAP) as remembered between steps.
#[derive(Debug)]
struct Remembered {
    epoch: u64,
    data: Abd,
    /// Number of the leaf's block, and its entries in cursor order.
    leaf_block: u64,
    entries: Vec<Entry>,
    position: usize,
    prefix: u64,
    prefix_len: u32,
}

/// A walk over a ZAP.
#[derive(Debug)]
pub struct Cursor {
    zap: Zap,
    hash: u64,
    cd: u32,
    remembered: Option<Remembered>,
}

fn hash_bits(kind: &Kind) -> u32 {
    match kind {
        Kind::Micro(_) => MICRO_HASH_BITS,
        Kind::Fat(header) => header.hash_bits(),
    }
}

fn cd_max(bits: u32) -> u32 {
    if bits == 48 { 0xFFFF } else { u32::MAX }
}

impl Cursor {
    pub(crate) fn new(zap: Zap) -> Cursor {
        Cursor { zap, hash: 0, cd: 0, remembered: None }
    }

    pub(crate) fn at(zap: Zap, serialized: u64) -> Cursor {
        if serialized == CURSOR_END {
            return Cursor { zap, hash: u64::MAX, cd: 0, remembered: None };
        }
        let bits = hash_bits(&zap.state.kind.read());
        let cd = (serialized >> bits) as u32;
        Cursor { hash: serialized << (64 - bits), cd: if cd >= cd_max(bits) { 0 } else { cd }, zap, remembered: None }
    }

    /// The position as 64 bits: the collision differentiator above the hash; [`CURSOR_END`] at the end.
    pub fn serialize(&self) -> u64 {
        if self.hash == u64::MAX {
            return CURSOR_END;
        }
        let bits = hash_bits(&self.zap.state.kind.read());
        self.hash >> (64 - bits) | u64::from(self.cd) << bits
    }

    /// Puts the entry at or after the position into `entry` and moves the position to it; false at the end.
    pub fn retrieve_into(&mut self, entry: &mut Attribute) -> Result<bool, ZapError> {
        if self.hash == u64::MAX {
            return Ok(false);
        }
        let zap = self.zap.clone();
        let kind = zap.state.kind.read();
        let epoch = zap.state.epoch.load(Ordering::Relaxed);
        if self.remembered.as_ref().is_some_and(|remembered| remembered.epoch != epoch) {
            self.remembered = None;
        }
        match &*kind {
            Kind::Micro(micro) => self.retrieve_micro(micro, epoch, entry),
            Kind::Fat(header) => self.retrieve_fat(header, epoch, entry),
        }
    }

    /// Moves behind the entry at the position.
    pub fn advance(&mut self) {
        if self.hash == u64::MAX {
            return;
        }
        let bits = hash_bits(&self.zap.state.kind.read());
        if self.cd < cd_max(bits) - 1 {
            self.cd += 1;
            return;
        }
        // Nothing has a larger one: what a damaged entry has must not lead back to the first.
        (self.hash, self.cd) = (self.hash.saturating_add(1 << (64 - bits)), 0);
    }

    /// The entry at or after the position, then moves behind it; false at the end.
    pub fn next_into(&mut self, entry: &mut Attribute) -> Result<bool, ZapError> {
        let found = self.retrieve_into(entry)?;
        if found {
            self.advance();
        }
        Ok(found)
    }

    fn retrieve_micro(&mut self, micro: &Micro, epoch: u64, entry: &mut Attribute) -> Result<bool, ZapError> {
        let Some(place) = micro.at_or_after(self.hash, self.cd) else {
            self.hash = u64::MAX;
            return Ok(false);
        };
        let data = match self.remembered.take() {
            Some(remembered) => remembered.data,
            None => fat::block(&self.zap.dnode, 0)?,
        };
        let slot = micro::slot_of(fat::bytes(&data), place.slot()).ok_or(ZapError::NotFound)?;
        entry.name.clear();
        entry.name.extend_from_slice(slot.name);
        entry.words.clear();
        (entry.integer_size, entry.integers, entry.first_integer) = (8, 1, slot.value);
        entry.conflict = false;
        if !micro.norm.is_none() && micro.same_hash(place.hash()) > 1 {
            let key = Key::text(micro.rules(), slot.name, Match::Normalize)?;
            entry.conflict = micro.conflicts(fat::bytes(&data), &key, place);
        }
        (self.hash, self.cd) = (place.hash(), place.cd());
        self.remembered = Some(Remembered { epoch, data, leaf_block: 0, entries: Vec::new(), position: 0, prefix: 0, prefix_len: 0 });
        Ok(true)
    }

    /// Reads the leaf that holds the position.
    fn remember_leaf(&self, header: &Header, epoch: u64) -> Result<Remembered, ZapError> {
        let dnode = &self.zap.dnode;
        let leaf_block = fat::leaf_of(dnode, header, self.hash)?;
        if leaf_block == 0 || leaf_block >= header.free_block {
            return Err(fat::damaged(dnode, leaf_block, "the pointer table leads outside the object"));
        }
        let data = fat::block(dnode, leaf_block)?;
        let open = || -> Result<_, &'static str> {
            let leaf = Leaf::open(fat::bytes(&data))?;
            let mut entries: Vec<Entry> = leaf.entries()?.into_iter().map(|(_, entry)| entry).collect();
            if entries.iter().any(|entry| entry.cd >= cd_max(header.hash_bits())) {
                return Err("an entry's number is larger than any may be");
            }
            entries.sort_unstable_by_key(|entry| (entry.hash, entry.cd));
            Ok((entries, leaf.prefix(), u32::from(leaf.prefix_len())))
        };
        let (entries, prefix, prefix_len) = open().map_err(|what| fat::damaged(dnode, leaf_block, what))?;
        if hash::index(self.hash, prefix_len) != prefix {
            return Err(fat::damaged(dnode, leaf_block, "the pointer table leads to the wrong leaf"));
        }
        Ok(Remembered { epoch, data, leaf_block, entries, position: 0, prefix, prefix_len })
    }

    fn retrieve_fat(&mut self, header: &Header, epoch: u64, entry: &mut Attribute) -> Result<bool, ZapError> {
        loop {
            let mut remembered = match self.remembered.take() {
                Some(remembered) if hash::index(self.hash, remembered.prefix_len) == remembered.prefix => remembered,
                _ => self.remember_leaf(header, epoch)?,
            };
            let here = (self.hash, self.cd);
            let behind = |entry: &Entry| (entry.hash, entry.cd) < here;
            let start = remembered.position;
            let ahead_is_right = start == 0 || behind(&remembered.entries[start - 1]);
            let from = if ahead_is_right { start } else { 0 };
            // Usually the next one; a binary search when the cursor jumped.
            let position = match remembered.entries.get(from) {
                Some(next) if !behind(next) => from,
                _ => from + remembered.entries[from..].partition_point(behind),
            };
            remembered.position = position;
            if let Some(found) = remembered.entries.get(position).copied() {
                (self.hash, self.cd) = (found.hash, found.cd);
                fill(header, fat::bytes(&remembered.data), &found, entry)
                    .map_err(|what| fat::damaged(&self.zap.dnode, remembered.leaf_block, what))?;
                self.remembered = Some(remembered);
                return Ok(true);
            }
            // The first hash behind this leaf.
            let after = if remembered.prefix_len == 0 { 0 } else { (remembered.prefix + 1).wrapping_shl(64 - remembered.prefix_len) };
            (self.hash, self.cd) = (after, 0);
            if after == 0 {
                self.hash = u64::MAX;
                return Ok(false);
            }
        }
    }
}

fn fill(header: &Header, bytes: &[u8], found: &Entry, entry: &mut Attribute) -> Result<(), &'static str> {
    let leaf = Leaf::open(bytes)?;
    entry.name.clear();
    entry.words.clear();
    if header.rules().words {
        let raw = leaf.array(found.name_chunk, usize::from(found.name_integers) * 8)?;
        entry.words.extend(raw.chunks_exact(8).map(crate::value::be_u64));
    } else {
        leaf.text_name_into(found, &mut entry.name)?;
    }
    entry.integer_size = found.integer_size;
    entry.integers = found.value_integers.into();
    entry.first_integer = leaf.first_integer(found)?;
    entry.conflict = false;
    if !header.norm.is_none() {
        let name = entry.name.clone();
        let key = Key::text(header.rules(), &name, Match::Normalize).map_err(|_| "a stored name is not valid")?;
        entry.conflict = leaf.conflicts(&key, found.cd)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create;
    use dmu::ObjsetProps;
    use dmu::testing::{MemBlockIo, TestPool};
    use ondisk::{ObjectType, ObjsetType};

    /// If this fails, a damaged entry has whoever lists a directory list it for ever.
    #[test]
    fn no_number_of_an_entry_leads_back() {
        let pool = TestPool::create(MemBlockIo::inline(7), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
        let made = create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &pool.txgs.assign(0).expect("assign")).expect("a ZAP");
        let zap = Zap::hold(&pool.objset, made).expect("it opens");
        let at = |hash, cd| Cursor { zap: zap.clone(), hash, cd, remembered: None };
        let first = 5 << 60;
        let steps = [((first, 7), (first, 8)), ((first, u32::MAX), (first + (1 << 36), 0)), ((u64::MAX - 5, u32::MAX - 1), (u64::MAX, 0))];
        for ((hash, cd), to) in steps {
            let mut cursor = at(hash, cd);
            cursor.advance();
            assert_eq!((cursor.hash, cursor.cd), to);
        }
    }
}
