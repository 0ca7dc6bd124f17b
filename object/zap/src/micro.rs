//! The micro ZAP: one block of 64-byte slots, each a short name and one 64-bit integer, with an index in memory.
//!
//! Layout (OpenZFS: `mzap_phys_t`, `mzap_ent_phys_t`): 64 bytes of header (type, salt, normalization), then the slots:
//! value, collision differentiator, 50 bytes of name. A slot is free when its name is empty. The block says nothing
//! about order, so the index (sorted by hash and cd, as cursors walk) is built when the object is opened.

use crate::ZapError;
use crate::name::{Key, KeyRules, Match, NormFlags};
use ondisk::{ObjectId, SECTOR_BYTES};
use std::sync::atomic::{AtomicUsize, Ordering};

/// First word of a micro ZAP (OpenZFS: `ZBT_MICRO`).
pub(crate) const BLOCK_TYPE_MICRO: u64 = (1 << 63) + 3;
const SLOT_BYTES: usize = 64;
/// Room for the name in a slot, final zero byte included (OpenZFS: `MZAP_NAME_LEN`).
pub(crate) const MICRO_NAME_BYTES: usize = 50;
/// Largest micro ZAP without the feature `large_microzap` (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`), and size to which one grows unless somebody wants another.
pub(crate) const MICRO_BYTES_OLD: usize = 128 << 10;
/// Largest micro ZAP that there can be (OpenZFS: `MZAP_MAX_SIZE`).
pub(crate) const MICRO_BYTES_MAX: usize = 1 << 20;
static WANTED_BYTES: AtomicUsize = AtomicUsize::new(MICRO_BYTES_OLD);

/// Sets the size in bytes to which micro ZAPs grow before they become fat, in whole sectors (OpenZFS: `zap_micro_max_size`): up to 1 MiB where the feature
/// `large_microzap` allows it, else up to 128 KiB.
pub fn set_micro_bytes_max(bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(MICRO_BYTES_MAX).min(MICRO_BYTES_MAX);
    WANTED_BYTES.store(bytes.next_multiple_of(SECTOR_BYTES), Ordering::Relaxed);
}

/// Size in bytes to which a micro ZAP may grow, where `may_be_large` ones are allowed or not.
pub(crate) fn bytes_max(may_be_large: bool) -> usize {
    WANTED_BYTES.load(Ordering::Relaxed).min(if may_be_large { MICRO_BYTES_MAX } else { MICRO_BYTES_OLD })
}
const NAME_AT: usize = 14;
/// Hash bits of a micro ZAP.
pub(crate) const MICRO_HASH_BITS: u32 = 28;

/// A slot's place in the order of cursors: hash (top 32 bits), cd (16 bits), slot number (16 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

impl Place {
    fn new(hash: u64, cd: u16, slot: u16) -> Place {
        Place(hash & !0xFFFF_FFFF | u64::from(cd) << 16 | u64::from(slot))
    }
    pub(crate) fn hash(self) -> u64 {
        self.0 & !0xFFFF_FFFF
    }
    pub(crate) fn cd(self) -> u32 {
        (self.0 >> 16) as u32 & 0xFFFF
    }
    pub(crate) fn slot(self) -> u16 {
        self.0 as u16
    }
}

/// The decoded contents of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub(crate) value: u64,
    pub(crate) cd: u32,
    pub(crate) name: &'a [u8],
}

/// Micro ZAP as it is kept in memory.
#[derive(Debug)]
pub(crate) struct Micro {
    pub(crate) salt: u64,
    pub(crate) norm: NormFlags,
    places: Vec<Place>,
    free: Vec<u16>,
    slots: u16,
}

fn slot_at(slot: u16) -> usize {
    SLOT_BYTES * (usize::from(slot) + 1)
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(raw)
}

/// The contents of slot number `slot`; None when it is free.
pub(crate) fn slot_of(bytes: &[u8], slot: u16) -> Option<Slot<'_>> {
    let raw = &bytes[slot_at(slot)..slot_at(slot) + SLOT_BYTES];
    let name = &raw[NAME_AT..];
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(MICRO_NAME_BYTES);
    let cd = u32::from_le_bytes([raw[8], raw[9], raw[10], raw[11]]);
    if end == 0 { None } else { Some(Slot { value: word(raw, 0), cd, name: &name[..end] }) }
}

/// Number of slots in a block of `bytes` bytes.
pub(crate) fn slots_in(bytes: usize) -> u16 {
    (bytes / SLOT_BYTES - 1) as u16
}

/// Writes the header of an empty micro ZAP over the whole block.
pub(crate) fn init(bytes: &mut [u8], salt: u64, norm: NormFlags) {
    bytes.fill(0);
    bytes[0..8].copy_from_slice(&BLOCK_TYPE_MICRO.to_le_bytes());
    bytes[8..16].copy_from_slice(&salt.to_le_bytes());
    bytes[16..24].copy_from_slice(&norm.0.to_le_bytes());
}

/// Writes a slot.
pub(crate) fn put_slot(bytes: &mut [u8], slot: u16, name: &[u8], value: u64, cd: u32) {
    let raw = &mut bytes[slot_at(slot)..slot_at(slot) + SLOT_BYTES];
    raw.fill(0);
    raw[0..8].copy_from_slice(&value.to_le_bytes());
    raw[8..12].copy_from_slice(&cd.to_le_bytes());
    raw[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
}

/// Replaces a slot's value.
pub(crate) fn put_value(bytes: &mut [u8], slot: u16, value: u64) {
    bytes[slot_at(slot)..slot_at(slot) + 8].copy_from_slice(&value.to_le_bytes());
}

/// Frees a slot.
pub(crate) fn clear_slot(bytes: &mut [u8], slot: u16) {
    bytes[slot_at(slot)..slot_at(slot) + SLOT_BYTES].fill(0);
}

impl Micro {
    /// Builds the index of a block.
    pub(crate) fn open(object: ObjectId, bytes: &[u8]) -> Result<Micro, ZapError> {
        let damaged = |what| ZapError::Corrupt { object, block: 0, what };
        if bytes.len() < 2 * SLOT_BYTES || bytes.len() > MICRO_BYTES_MAX {
            return Err(damaged("a micro ZAP has an impossible block size"));
        }
        let (salt, norm) = (word(bytes, 8), NormFlags(word(bytes, 16)));
        let mut micro = Micro { salt, norm, places: Vec::new(), free: Vec::new(), slots: slots_in(bytes.len()) };
        for slot in 0..micro.slots {
            match slot_of(bytes, slot) {
                None => micro.free.push(slot),
                Some(entry) if entry.cd > 0xFFFF || entry.name.len() >= MICRO_NAME_BYTES => {
                    return Err(damaged("a micro ZAP's slot is not valid"));
                }
                Some(entry) => {
                    let key = Key::text(micro.rules(), entry.name, Match::Exact)?;
                    micro.places.push(Place::new(key.hash(), entry.cd as u16, slot));
                }
            }
        }
        micro.places.sort_unstable();
        // Taken from the end: low slots first.
        micro.free.reverse();
        Ok(micro)
    }

    /// Rules by which keys hash in this ZAP.
    pub(crate) fn rules(&self) -> KeyRules {
        KeyRules { salt: self.salt, norm: self.norm, hash_bits: MICRO_HASH_BITS, words: false, prehashed: false }
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// True when every slot is used.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// The block grew to `bytes` bytes.
    pub(crate) fn grew(&mut self, bytes: usize) {
        let slots = slots_in(bytes);
        self.free.extend((self.slots..slots).rev());
        self.slots = slots;
    }

    fn with_hash(&self, hash: u64) -> &[Place] {
        let start = self.places.partition_point(|place| place.hash() < hash);
        let end = start + self.places[start..].partition_point(|place| place.hash() == hash);
        &self.places[start..end]
    }

    /// The first entry in cd order that matches.
    pub(crate) fn find(&self, bytes: &[u8], key: &Key<'_>) -> Option<Place> {
        self.with_hash(key.hash())
            .iter()
            .copied()
            .find(|place| slot_of(bytes, place.slot()).is_some_and(|slot| key.matches_text(slot.name)))
    }

    /// True when another entry than `place` matches too.
    pub(crate) fn conflicts(&self, bytes: &[u8], key: &Key<'_>, place: Place) -> bool {
        let others = self.with_hash(place.hash()).iter().filter(|other| **other != place);
        others.into_iter().any(|other| slot_of(bytes, other.slot()).is_some_and(|slot| key.matches_text(slot.name)))
    }

    /// Number of entries with this hash.
    pub(crate) fn same_hash(&self, hash: u64) -> usize {
        self.with_hash(hash).len()
    }

    /// Takes a free slot and the lowest unused cd for a new entry; None when full.
    pub(crate) fn take(&mut self, hash: u64) -> Option<Place> {
        let mut cd = 0u16;
        for place in self.with_hash(hash) {
            if place.cd() != u32::from(cd) {
                break;
            }
            cd += 1;
        }
        let place = Place::new(hash, cd, self.free.pop()?);
        let at = self.places.partition_point(|other| *other < place);
        self.places.insert(at, place);
        Some(place)
    }

    /// Forgets an entry.
    pub(crate) fn remove(&mut self, place: Place) {
        if let Ok(at) = self.places.binary_search(&place) {
            self.places.remove(at);
            self.free.push(place.slot());
        }
    }

    /// The first entry at or after this position.
    pub(crate) fn at_or_after(&self, hash: u64, cd: u32) -> Option<Place> {
        let at = self.places.partition_point(|place| (place.hash(), place.cd()) < (hash, cd));
        self.places.get(at).copied()
    }

    /// All entries in cursor order.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }
}
