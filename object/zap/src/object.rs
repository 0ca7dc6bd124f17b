//! [`Zap`]: the handle that users hold; one per object in memory, micro or fat behind it.
//!
//! The state (index of a micro ZAP, header of a fat one) lives in the dnode's user slot and is shared by all handles.
//! It is always the newest: every change updates it and the blocks under one write lock. That lock may be held across
//! the read of a block of the same object; nothing that a read waits for takes it.

use crate::cursor::{Attribute, Cursor};
use crate::error::ZapError;
use crate::fat::{self, Insert, Stored};
use crate::header::{FAT_BLOCK_SHIFT, Header, ZapFlags};
use crate::micro::{self, MICRO_BYTES_OLD, MICRO_NAME_BYTES, Micro};
use crate::name::{Key, KeyRules, Match, NormFlags};
use crate::value::Value;
use crate::{leaf, value};
use abd::Abd;
use dmu::{Dnode, Objset, Tx};
use exec::{RwLock, RwLockWriteGuard};
use ondisk::{BlockId, ObjectId, SECTOR_BYTES};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Format of the ZAP, micro or fat, with its header as kept in memory.
#[derive(Debug)]
pub(crate) enum Kind {
    Micro(Micro),
    Fat(Header),
}

impl Kind {
    pub(crate) fn rules(&self) -> KeyRules {
        match self {
            Kind::Micro(micro) => micro.rules(),
            Kind::Fat(header) => header.rules(),
        }
    }
}

/// The state that all handles of an object share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) kind: RwLock<Kind>,
    /// Counts changes, so that cursors know whether what they remember still holds.
    pub(crate) epoch: AtomicU64,
}

/// An open ZAP.
#[derive(Clone)]
pub struct Zap {
    pub(crate) dnode: Arc<Dnode>,
    pub(crate) state: Arc<State>,
}

impl std::fmt::Debug for Zap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zap {{ object: {}, entries: {} }}", self.dnode.object(), self.count())
    }
}

/// An entry found by a normalizing lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Value of the entry.
    pub value: Value,
    /// Name of the entry as stored.
    pub name: Vec<u8>,
    /// True when another entry has the same normalized name.
    pub conflict: bool,
}

impl Zap {
    /// Opens object `object` of `objset`.
    pub fn hold(objset: &Arc<Objset>, object: ObjectId) -> Result<Zap, ZapError> {
        Zap::open(objset.hold(object)?)
    }

    /// Opens the ZAP in `dnode`; cheap when it is open already.
    pub fn open(dnode: Arc<Dnode>) -> Result<Zap, ZapError> {
        let known = dnode.index().clone();
        if let Some(Ok(state)) = known.map(Arc::downcast::<State>) {
            return Ok(Zap { dnode, state });
        }
        let first = fat::block(&dnode, 0)?;
        let bytes = fat::bytes(&first);
        let kind = if bytes.len() >= 8 && bytes[..8] == micro::BLOCK_TYPE_MICRO.to_le_bytes() {
            Kind::Micro(Micro::open(dnode.object(), bytes)?)
        } else {
            Kind::Fat(Header::decode(dnode.object(), bytes)?)
        };
        let fresh = Arc::new(State { kind: RwLock::new(kind), epoch: AtomicU64::new(0) });
        let mut slot = dnode.index();
        let state = match slot.clone().map(Arc::downcast::<State>) {
            // Somebody else opened it meanwhile.
            Some(Ok(state)) => state,
            _ => {
                *slot = Some(fresh.clone());
                fresh
            }
        };
        drop(slot);
        Ok(Zap { dnode, state })
    }

    /// The object's number.
    pub fn object(&self) -> ObjectId {
        self.dnode.object()
    }

    /// Dnode of the ZAP object.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    fn write(&self) -> RwLockWriteGuard<'_, Kind> {
        let guard = self.state.kind.write();
        self.state.epoch.fetch_add(1, Ordering::Relaxed);
        guard
    }

    /// Number of entries (OpenZFS: `zap_count`).
    pub fn count(&self) -> u64 {
        match &*self.state.kind.read() {
            Kind::Micro(micro) => micro.count() as u64,
            Kind::Fat(header) => header.entries,
        }
    }

    /// Flags of normalization that the ZAP was made with.
    pub fn norm_flags(&self) -> NormFlags {
        self.state.kind.read().rules().norm
    }

    // ---- lookups ----

    /// The value of `name`.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Value, ZapError> {
        let kind = self.state.kind.read();
        let key = Key::text(kind.rules(), name.as_ref(), Match::Exact)?;
        self.lookup_key(&kind, &key)
    }

    /// The value of `name`, None when there is no such entry.
    pub fn try_lookup(&self, name: impl AsRef<[u8]>) -> Result<Option<Value>, ZapError> {
        absent(self.lookup(name))
    }

    /// The single integer that `name` holds, widened to 64 bits.
    pub fn lookup_u64(&self, name: impl AsRef<[u8]>) -> Result<u64, ZapError> {
        let kind = self.state.kind.read();
        let key = Key::text(kind.rules(), name.as_ref(), Match::Exact)?;
        self.lookup_key_u64(&kind, &key)
    }

    /// The single integer that `name` holds, None when there is no such entry.
    pub fn try_lookup_u64(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>, ZapError> {
        absent(self.lookup_u64(name))
    }

    /// True when `name` is there.
    pub fn contains(&self, name: impl AsRef<[u8]>) -> Result<bool, ZapError> {
        Ok(absent(self.length(name))?.is_some())
    }

    /// Size of the integers and their number (OpenZFS: `zap_length`).
    pub fn length(&self, name: impl AsRef<[u8]>) -> Result<(u8, usize), ZapError> {
        let kind = self.state.kind.read();
        let key = Key::text(kind.rules(), name.as_ref(), Match::Exact)?;
        match &*kind {
            Kind::Micro(micro) => self.find_micro(micro, &key).map(|_| (8, 1)),
            Kind::Fat(header) => self.with_entry(header, &key, |_, _, entry| Ok((entry.integer_size, usize::from(entry.value_integers)))),
        }
    }

    /// The entry that `name` selects under `matching`, with its stored name (OpenZFS: `zap_lookup_norm`).
    pub fn lookup_norm(&self, name: impl AsRef<[u8]>, matching: Match) -> Result<Found, ZapError> {
        let kind = self.state.kind.read();
        let key = Key::text(kind.rules(), name.as_ref(), matching)?;
        match &*kind {
            Kind::Micro(micro) => {
                let block = fat::block(&self.dnode, 0)?;
                let bytes = fat::bytes(&block);
                let place = micro.find(bytes, &key).ok_or(ZapError::NotFound)?;
                let slot = micro::slot_of(bytes, place.slot()).ok_or(ZapError::NotFound)?;
                let conflict = micro.conflicts(bytes, &key, place);
                Ok(Found { value: Value::U64(vec![slot.value]), name: slot.name.to_vec(), conflict })
            }
            Kind::Fat(header) => {
                fat::check_name(&self.dnode, &key)?;
                self.with_entry(header, &key, |leaf, key, entry| {
                    let stored = leaf.array(entry.value_chunk, entry.value_bytes())?;
                    let value = Value::from_stored(entry.integer_size, stored).ok_or("an entry's integer size is not 1, 2, 4 or 8")?;
                    Ok(Found { value, name: leaf.text_name(entry)?, conflict: leaf.conflicts(key, entry.cd)? })
                })
            }
        }
    }

    /// The value of a key of words.
    pub fn lookup_words(&self, words: &[u64]) -> Result<Value, ZapError> {
        let kind = self.state.kind.read();
        let key = Key::words(kind.rules(), words)?;
        self.lookup_key(&kind, &key)
    }

    /// Starts to read what a look at a key of words takes, without waiting for the leaf that has it (OpenZFS: `zap_prefetch_uint64`).
    ///
    /// # Errors
    /// Those of reading the pointer table; [`ZapError::NotSupported`] for a ZAP with names.
    pub fn prefetch_words(&self, words: &[u64]) -> Result<(), ZapError> {
        let kind = self.state.kind.read();
        let key = Key::words(kind.rules(), words)?;
        if let Kind::Fat(header) = &*kind {
            let at = fat::leaf_of(&self.dnode, header, key.hash())?;
            if at < header.free_block {
                self.dnode.prefetch(at << header.block_shift, 1);
            }
        }
        Ok(())
    }

    fn find_micro(&self, micro: &Micro, key: &Key<'_>) -> Result<u64, ZapError> {
        let block = fat::block(&self.dnode, 0)?;
        let bytes = fat::bytes(&block);
        let place = micro.find(bytes, key).ok_or(ZapError::NotFound)?;
        Ok(micro::slot_of(bytes, place.slot()).ok_or(ZapError::NotFound)?.value)
    }

    fn with_entry<R>(
        &self,
        header: &Header,
        key: &Key<'_>,
        look: impl FnOnce(&leaf::Leaf<&[u8]>, &Key<'_>, &leaf::Entry) -> Result<R, leaf::Damage>,
    ) -> Result<R, ZapError> {
        let at = fat::leaf_of(&self.dnode, header, key.hash())?;
        let found = fat::with_leaf(&self.dnode, header, at, |leaf| match leaf.find(key)? {
            Some((_, entry)) => look(leaf, key, &entry).map(Some),
            None => Ok(None),
        })?;
        found.ok_or(ZapError::NotFound)
    }

    fn lookup_key(&self, kind: &Kind, key: &Key<'_>) -> Result<Value, ZapError> {
        match kind {
            Kind::Micro(micro) => Ok(Value::U64(vec![self.find_micro(micro, key)?])),
            Kind::Fat(header) => self.with_entry(header, key, |leaf, _, entry| {
                let stored = leaf.array(entry.value_chunk, entry.value_bytes())?;
                Value::from_stored(entry.integer_size, stored).ok_or("an entry's integer size is not 1, 2, 4 or 8")
            }),
        }
    }

    fn lookup_key_u64(&self, kind: &Kind, key: &Key<'_>) -> Result<u64, ZapError> {
        match kind {
            Kind::Micro(micro) => self.find_micro(micro, key),
            Kind::Fat(header) => {
                let single =
                    self.with_entry(
                        header,
                        key,
                        |leaf, _, entry| {
                            if entry.value_integers == 1 { leaf.first_integer(entry).map(Some) } else { Ok(None) }
                        },
                    )?;
                single.ok_or(ZapError::WrongType)
            }
        }
    }

    // ---- changes ----

    /// Adds an entry; fails when the name is there.
    pub fn add(&self, name: impl AsRef<[u8]>, value: &Value, tx: &Tx) -> Result<(), ZapError> {
        self.put_text(name.as_ref(), value, Insert::Add { cd: None }, tx)
    }

    /// Adds an entry with one integer of 64 bits.
    pub fn add_u64(&self, name: impl AsRef<[u8]>, value: u64, tx: &Tx) -> Result<(), ZapError> {
        self.put_text_u64(name.as_ref(), value, Insert::Add { cd: None }, tx)
    }

    /// Adds an entry or replaces its value.
    pub fn update(&self, name: impl AsRef<[u8]>, value: &Value, tx: &Tx) -> Result<(), ZapError> {
        self.put_text(name.as_ref(), value, Insert::Update, tx)
    }

    /// Adds an entry with one integer of 64 bits, or replaces its value.
    pub fn update_u64(&self, name: impl AsRef<[u8]>, value: u64, tx: &Tx) -> Result<(), ZapError> {
        self.put_text_u64(name.as_ref(), value, Insert::Update, tx)
    }

    /// Adds `delta` to the integer of `name` (0 when it is not there) and removes the entry when the sum is 0
    /// (OpenZFS: `zap_increment`). Returns the sum.
    pub fn increment(&self, name: impl AsRef<[u8]>, delta: i64, tx: &Tx) -> Result<u64, ZapError> {
        let name = name.as_ref();
        let old = self.try_lookup_u64(name)?;
        let sum = old.unwrap_or(0).wrapping_add_signed(delta);
        match (old, sum) {
            (None, 0) => {}
            (Some(_), 0) => self.remove(name, tx)?,
            _ => self.update_u64(name, sum, tx)?,
        }
        Ok(sum)
    }

    /// Adds an entry under a key of words.
    pub fn add_words(&self, words: &[u64], value: &Value, tx: &Tx) -> Result<(), ZapError> {
        self.put_words(words, value, Insert::Add { cd: None }, tx)
    }

    /// Adds or replaces an entry under a key of words.
    pub fn update_words(&self, words: &[u64], value: &Value, tx: &Tx) -> Result<(), ZapError> {
        self.put_words(words, value, Insert::Update, tx)
    }

    /// Removes the entry `name`.
    pub fn remove(&self, name: impl AsRef<[u8]>, tx: &Tx) -> Result<(), ZapError> {
        self.remove_norm(name, Match::Exact, tx)
    }

    /// Removes the entry that `name` selects under `matching`.
    pub fn remove_norm(&self, name: impl AsRef<[u8]>, matching: Match, tx: &Tx) -> Result<(), ZapError> {
        let mut kind = self.write();
        let key = Key::text(kind.rules(), name.as_ref(), matching)?;
        match &mut *kind {
            Kind::Micro(micro) => {
                let block = fat::block(&self.dnode, 0)?;
                let place = micro.find(fat::bytes(&block), &key).ok_or(ZapError::NotFound)?;
                // The reference would make the change below copy the block.
                drop(block);
                fat::modify(&self.dnode, 0, tx, |bytes| micro::clear_slot(bytes, place.slot()))?;
                micro.remove(place);
                Ok(())
            }
            Kind::Fat(header) => fat::remove(&self.dnode, header, &key, tx),
        }
    }

    /// Removes the entry under a key of words.
    pub fn remove_words(&self, words: &[u64], tx: &Tx) -> Result<(), ZapError> {
        let mut kind = self.write();
        let key = Key::words(kind.rules(), words)?;
        match &mut *kind {
            Kind::Micro(_) => Err(ZapError::NotSupported),
            Kind::Fat(header) => fat::remove(&self.dnode, header, &key, tx),
        }
    }

    fn put_words(&self, words: &[u64], value: &Value, how: Insert, tx: &Tx) -> Result<(), ZapError> {
        let stored = value.to_stored()?;
        let mut kind = self.write();
        let key = Key::words(kind.rules(), words)?;
        match &mut *kind {
            Kind::Micro(_) => Err(ZapError::NotSupported),
            Kind::Fat(header) => {
                fat::insert(&self.dnode, header, &key, Stored { integer_size: value.integer_size(), bytes: &stored }, how, tx)
            }
        }
    }

    fn put_text(&self, name: &[u8], value: &Value, how: Insert, tx: &Tx) -> Result<(), ZapError> {
        if let Some(single) = value.as_u64() {
            return self.put_text_u64(name, single, how, tx);
        }
        let stored = value.to_stored()?;
        let mut kind = self.write();
        let key = Key::text(kind.rules(), name, Match::Exact)?;
        fat::check_name(&self.dnode, &key)?;
        let header = self.fat_header(&mut kind, tx)?;
        fat::insert(&self.dnode, header, &key, Stored { integer_size: value.integer_size(), bytes: &stored }, how, tx)
    }

    fn put_text_u64(&self, name: &[u8], value: u64, how: Insert, tx: &Tx) -> Result<(), ZapError> {
        let mut kind = self.write();
        let key = Key::text(kind.rules(), name, Match::Exact)?;
        if let Kind::Micro(micro) = &mut *kind {
            let found = {
                let block = fat::block(&self.dnode, 0)?;
                micro.find(fat::bytes(&block), &key)
            };
            match (found, how) {
                (Some(_), Insert::Add { .. }) => return Err(ZapError::Exists),
                (Some(place), Insert::Update) => {
                    return fat::modify(&self.dnode, 0, tx, |bytes| micro::put_value(bytes, place.slot(), value));
                }
                (None, _) if name.len() < MICRO_NAME_BYTES && self.make_room(micro, key.hash(), tx)? => {
                    // Before the index changes: a block that cannot be changed leaves both as they were.
                    self.dnode.will_modify(BlockId(0), tx)?;
                    let place = micro.take(key.hash()).ok_or(ZapError::Full)?;
                    return fat::modify(&self.dnode, 0, tx, |bytes| micro::put_slot(bytes, place.slot(), name, value, place.cd()));
                }
                (None, _) => {}
            }
        }
        fat::check_name(&self.dnode, &key)?;
        let header = self.fat_header(&mut kind, tx)?;
        fat::insert(&self.dnode, header, &key, Stored { integer_size: 8, bytes: &value.to_be_bytes() }, how, tx)
    }

    /// Makes sure that a micro ZAP can take one more entry with this hash; false when it must become fat.
    fn make_room(&self, micro: &mut Micro, hash: u64, tx: &Tx) -> Result<bool, ZapError> {
        // The leaf of a fat ZAP must be able to hold all entries of one hash (OpenZFS: mze_canfit_fzap_leaf).
        let chunks_each = 1 + leaf::array_chunks(MICRO_NAME_BYTES) + 1;
        if leaf::chunks_in(1 << FAT_BLOCK_SHIFT) <= (micro.same_hash(hash) + 1) * chunks_each {
            return Ok(false);
        }
        if micro.is_full() {
            let larger = self.dnode.info()?.block_size + SECTOR_BYTES;
            if larger > micro::bytes_max(self.dnode.may_be_large_micro_zap()) {
                return Ok(false);
            }
            self.dnode.set_block_size(larger, tx)?;
            if larger > MICRO_BYTES_OLD {
                self.dnode.note_large_micro_zap();
            }
            micro.grew(larger);
        }
        Ok(true)
    }

    fn fat_header<'k>(&self, kind: &'k mut Kind, tx: &Tx) -> Result<&'k mut Header, ZapError> {
        if let Kind::Micro(micro) = kind {
            let header = upgrade(&self.dnode, micro, ZapFlags::NONE, FAT_BLOCK_SHIFT, tx)?;
            *kind = Kind::Fat(header);
        }
        match kind {
            Kind::Fat(header) => Ok(header),
            Kind::Micro(_) => Err(ZapError::NotSupported),
        }
    }

    // ---- walks ----

    /// A cursor at the first entry.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.clone())
    }

    /// A cursor at a position that [`Cursor::serialize`] gave.
    pub fn cursor_at(&self, serialized: u64) -> Cursor {
        Cursor::at(self.clone(), serialized)
    }

    /// Calls `each` on every entry in cursor order.
    pub fn for_each(&self, mut each: impl FnMut(&Attribute) -> Result<(), ZapError>) -> Result<(), ZapError> {
        let mut cursor = self.cursor();
        let mut entry = Attribute::default();
        while cursor.next_into(&mut entry)? {
            each(&entry)?;
        }
        Ok(())
    }

    /// The first name whose integer equals `value` under `mask` (OpenZFS: `zap_value_search`; mask 0 means all bits).
    pub fn value_search(&self, value: u64, mask: u64) -> Result<Vec<u8>, ZapError> {
        let mask = if mask == 0 { u64::MAX } else { mask };
        let mut cursor = self.cursor();
        let mut entry = Attribute::default();
        while cursor.next_into(&mut entry)? {
            if entry.first_integer & mask == value & mask {
                return Ok(entry.name);
            }
        }
        Err(ZapError::NotFound)
    }
}

/// Turns "no such entry" into None.
fn absent<T>(result: Result<T, ZapError>) -> Result<Option<T>, ZapError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ZapError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Rewrites a micro ZAP as a fat one (OpenZFS: `mzap_upgrade`). When that fails it is a micro ZAP as before.
pub(crate) fn upgrade(dnode: &Dnode, micro: &Micro, flags: ZapFlags, block_shift: u32, tx: &Tx) -> Result<Header, ZapError> {
    let old = fat::block(dnode, 0)?;
    let header = rewrite(dnode, micro, fat::bytes(&old), Header::new(micro.salt, micro.norm, flags, block_shift), tx);
    if header.is_err() {
        restore(dnode, old, tx)?;
    }
    header
}

/// Puts the only block of a micro ZAP back.
fn restore(dnode: &Dnode, old: Abd, tx: &Tx) -> Result<(), ZapError> {
    dnode.free_range(dnode.info()?.block_size as u64, u64::MAX, tx)?;
    dnode.set_block_size(old.len(), tx)?;
    Ok(dnode.write_abd(0, old, tx)?)
}

fn rewrite(dnode: &Dnode, micro: &Micro, old: &[u8], mut header: Header, tx: &Tx) -> Result<Header, ZapError> {
    if dnode.info()?.block_size != header.block_bytes() {
        dnode.set_block_size(header.block_bytes(), tx)?;
    }
    fat::init(dnode, &header, tx)?;
    let rules = header.rules();
    for place in micro.places() {
        let Some(slot) = micro::slot_of(old, place.slot()) else { continue };
        let key = Key::text(rules, slot.name, Match::Exact)?;
        let stored = slot.value.to_be_bytes();
        let how = Insert::Add { cd: Some(slot.cd) };
        fat::insert(dnode, &mut header, &key, Stored { integer_size: 8, bytes: &stored }, how, tx)?;
    }
    Ok(header)
}

/// Largest value in bytes; see [`Value`].
pub const VALUE_BYTES_MAX: usize = value::VALUE_BYTES_MAX;
