//! One leaf of a fat ZAP: a hash table of chains over 24-byte chunks, in a block of the object.
//!
//! Layout (OpenZFS: `zap_leaf.h`): 48 bytes of header, then one 16-bit chain head per 32 bytes of block, then the chunks.
//! A chunk is free, an entry (name and value by chunk number) or a piece of an array (21 bytes and the next chunk). The
//! views here check every chunk number and bound every chain, so that no block from disk can loop or reach outside.
//! Invariants kept by the writers: `free + used chunks = chunks`; chains sorted by collision differentiator; all entries'
//! hashes start with the leaf's prefix.

use crate::hash;
use crate::name::Key;
use crate::value::be_u64;

/// `lh_block_type` of a leaf (OpenZFS: `ZBT_LEAF`).
pub(crate) const BLOCK_TYPE_LEAF: u64 = 1 << 63;
const LEAF_MAGIC: u32 = 0x02AB_1EAF;
const HEADER_BYTES: usize = 48;
const CHUNK_BYTES: usize = 24;
/// Bytes of an array that one chunk carries (OpenZFS: `ZAP_LEAF_ARRAY_BYTES`).
pub(crate) const ARRAY_BYTES: usize = 21;
pub(crate) const CHAIN_END: u16 = 0xFFFF;
const CHUNK_FREE: u8 = 253;
const CHUNK_ENTRY: u8 = 252;
const CHUNK_ARRAY: u8 = 251;
/// Number of free chunks below which the pointer table starts to grow (OpenZFS: `ZAP_LEAF_LOW_WATER`).
pub(crate) const LOW_WATER: u16 = 20;
const FLAG_CD_SORTED: u8 = 1;
/// Most bits that a leaf's prefix may have: the longest hash less the two bits that are never used to index.
const PREFIX_BITS_MAX: u16 = 46;

/// Byte offsets in the header.
mod at {
    pub(super) const BLOCK_TYPE: usize = 0;
    pub(super) const PREFIX: usize = 16;
    pub(super) const MAGIC: usize = 24;
    pub(super) const FREE_COUNT: usize = 28;
    pub(super) const ENTRY_COUNT: usize = 30;
    pub(super) const PREFIX_LEN: usize = 32;
    pub(super) const FREE_LIST: usize = 34;
    pub(super) const FLAGS: usize = 36;
}

/// Fault of a leaf, as text.
pub(crate) type Damage = &'static str;

/// Chunks for an array of `bytes` bytes.
pub(crate) fn array_chunks(bytes: usize) -> usize {
    bytes.div_ceil(ARRAY_BYTES)
}

/// Chunks in a leaf of `block_bytes` bytes (OpenZFS: `ZAP_LEAF_NUMCHUNKS_BS`).
pub(crate) fn chunks_in(block_bytes: usize) -> usize {
    (block_bytes - 2 * (block_bytes / 32)) / CHUNK_BYTES - 2
}

/// The fields of an entry chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) integer_size: u8,
    pub(crate) next: u16,
    pub(crate) name_chunk: u16,
    pub(crate) name_integers: u16,
    pub(crate) value_chunk: u16,
    pub(crate) value_integers: u16,
    pub(crate) cd: u32,
    pub(crate) hash: u64,
}

impl Entry {
    pub(crate) fn value_bytes(&self) -> usize {
        usize::from(self.value_integers) * usize::from(self.integer_size)
    }
}

/// Reason why an entry could not be put into a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Not enough free chunks: split the leaf.
    NoRoom,
    /// More chunks than an empty leaf has.
    TooBig,
    /// The leaf is damaged.
    Damaged(Damage),
}

impl From<Damage> for Refused {
    fn from(damage: Damage) -> Self {
        Refused::Damaged(damage)
    }
}

/// A view of a leaf: read-only over `&[u8]`, writable over `&mut [u8]`.
pub(crate) struct Leaf<B>(B);

impl<B: AsRef<[u8]>> Leaf<B> {
    /// Checks the header.
    pub(crate) fn open(bytes: B) -> Result<Leaf<B>, Damage> {
        let leaf = Leaf(bytes);
        let size = leaf.bytes().len();
        if !size.is_power_of_two() || size < 512 {
            return Err("a leaf's block size is not a power of two");
        }
        if leaf.u64(at::BLOCK_TYPE) != BLOCK_TYPE_LEAF || leaf.u32(at::MAGIC) != LEAF_MAGIC {
            return Err("not a leaf block");
        }
        if leaf.prefix_len() > PREFIX_BITS_MAX || usize::from(leaf.free_count()) > leaf.chunks() {
            return Err("the leaf's header is not possible");
        }
        Ok(leaf)
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
    fn u16(&self, offset: usize) -> u16 {
        let b = self.bytes();
        u16::from_le_bytes([b[offset], b[offset + 1]])
    }
    fn u32(&self, offset: usize) -> u32 {
        let b = &self.bytes()[offset..offset + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
    fn u64(&self, offset: usize) -> u64 {
        let mut raw = [0; 8];
        raw.copy_from_slice(&self.bytes()[offset..offset + 8]);
        u64::from_le_bytes(raw)
    }

    pub(crate) fn hash_entries(&self) -> usize {
        self.bytes().len() / 32
    }
    pub(crate) fn chunks(&self) -> usize {
        chunks_in(self.bytes().len())
    }
    fn chunk_at(&self, chunk: u16) -> usize {
        HEADER_BYTES + 2 * self.hash_entries() + CHUNK_BYTES * usize::from(chunk)
    }
    fn check(&self, chunk: u16) -> Result<usize, Damage> {
        if usize::from(chunk) < self.chunks() { Ok(self.chunk_at(chunk)) } else { Err("a chunk number is out of range") }
    }

    pub(crate) fn prefix(&self) -> u64 {
        self.u64(at::PREFIX)
    }
    pub(crate) fn prefix_len(&self) -> u16 {
        self.u16(at::PREFIX_LEN)
    }
    pub(crate) fn free_count(&self) -> u16 {
        self.u16(at::FREE_COUNT)
    }
    pub(crate) fn entry_count(&self) -> u16 {
        self.u16(at::ENTRY_COUNT)
    }

    /// Offset of the chain head for `hash`.
    fn bucket_at(&self, hash: u64) -> usize {
        let shift = self.bytes().len().trailing_zeros() - 5;
        let low = 64 - shift - u32::from(self.prefix_len());
        HEADER_BYTES + 2 * ((hash >> low) as usize & (self.hash_entries() - 1))
    }

    /// The entry in `chunk`.
    pub(crate) fn entry(&self, chunk: u16) -> Result<Entry, Damage> {
        let offset = self.check(chunk)?;
        let b = self.bytes();
        if b[offset] != CHUNK_ENTRY {
            return Err("a chain leads to a chunk that is not an entry");
        }
        let entry = Entry {
            integer_size: b[offset + 1],
            next: self.u16(offset + 2),
            name_chunk: self.u16(offset + 4),
            name_integers: self.u16(offset + 6),
            value_chunk: self.u16(offset + 8),
            value_integers: self.u16(offset + 10),
            cd: self.u32(offset + 12),
            hash: self.u64(offset + 16),
        };
        if matches!(entry.integer_size, 1 | 2 | 4 | 8) { Ok(entry) } else { Err("an entry's integer size is not 1, 2, 4 or 8") }
    }

    /// Calls `each` on the entries of the chain of `hash` until it returns true.
    fn find_in_chain(&self, hash: u64, mut each: impl FnMut(u16, &Entry) -> Result<bool, Damage>) -> Result<Option<(u16, Entry)>, Damage> {
        let mut chunk = self.u16(self.bucket_at(hash));
        for _ in 0..=self.chunks() {
            if chunk == CHAIN_END {
                return Ok(None);
            }
            let entry = self.entry(chunk)?;
            if each(chunk, &entry)? {
                return Ok(Some((chunk, entry)));
            }
            chunk = entry.next;
        }
        Err("a hash chain is a loop")
    }

    /// The entry that matches `key`.
    pub(crate) fn find(&self, key: &Key<'_>) -> Result<Option<(u16, Entry)>, Damage> {
        self.find_in_chain(key.hash(), |_, entry| if entry.hash == key.hash() { self.name_matches(entry, key) } else { Ok(false) })
    }

    /// True when another entry has the same hash and matches `key` too.
    pub(crate) fn conflicts(&self, key: &Key<'_>, cd: u32) -> Result<bool, Damage> {
        let other =
            self.find_in_chain(key.hash(), |_, entry| Ok(entry.hash == key.hash() && entry.cd != cd && self.name_matches(entry, key)?))?;
        Ok(other.is_some())
    }

    fn name_matches(&self, entry: &Entry, key: &Key<'_>) -> Result<bool, Damage> {
        match key {
            Key::Words { words, .. } => {
                if usize::from(entry.name_integers) != words.len() {
                    return Ok(false);
                }
                let stored = self.array(entry.name_chunk, words.len() * 8)?;
                Ok(stored.chunks_exact(8).map(be_u64).eq(words.iter().copied()))
            }
            Key::Text { name, .. } if key.is_exact() => {
                if usize::from(entry.name_integers) != name.len() + 1 {
                    return Ok(false);
                }
                let mut rest: &[u8] = name;
                let mut chunk = entry.name_chunk;
                while !rest.is_empty() {
                    let (piece, next) = self.array_piece(chunk)?;
                    let count = rest.len().min(ARRAY_BYTES);
                    if piece[..count] != rest[..count] {
                        return Ok(false);
                    }
                    rest = &rest[count..];
                    chunk = next;
                }
                Ok(true)
            }
            Key::Text { .. } => Ok(key.matches_text(&self.text_name(entry)?)),
        }
    }

    fn array_piece(&self, chunk: u16) -> Result<(&[u8], u16), Damage> {
        let offset = self.check(chunk)?;
        if self.bytes()[offset] != CHUNK_ARRAY {
            return Err("an array leads to a chunk that is not one");
        }
        Ok((&self.bytes()[offset + 1..offset + 1 + ARRAY_BYTES], self.u16(offset + 22)))
    }

    /// Appends the first `count` bytes of the array that starts at `chunk`.
    fn array_into(&self, mut chunk: u16, count: usize, out: &mut Vec<u8>) -> Result<(), Damage> {
        let mut left = count;
        while left > 0 {
            let (piece, next) = self.array_piece(chunk)?;
            let take = left.min(ARRAY_BYTES);
            out.extend_from_slice(&piece[..take]);
            left -= take;
            chunk = next;
        }
        Ok(())
    }

    /// The first `count` bytes of the array that starts at `chunk`.
    pub(crate) fn array(&self, chunk: u16, count: usize) -> Result<Vec<u8>, Damage> {
        if count > self.bytes().len() {
            return Err("an array is longer than its block");
        }
        let mut out = Vec::with_capacity(count);
        self.array_into(chunk, count, &mut out)?;
        Ok(out)
    }

    /// Appends a string entry's name without its zero byte.
    pub(crate) fn text_name_into(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), Damage> {
        let start = out.len();
        self.array_into(entry.name_chunk, usize::from(entry.name_integers), out)?;
        if let Some(end) = out[start..].iter().position(|&byte| byte == 0) {
            out.truncate(start + end);
        }
        Ok(())
    }

    /// A string entry's name without its zero byte.
    pub(crate) fn text_name(&self, entry: &Entry) -> Result<Vec<u8>, Damage> {
        let mut name = Vec::with_capacity(usize::from(entry.name_integers));
        self.text_name_into(entry, &mut name)?;
        Ok(name)
    }

    /// The first integer of the entry's value, widened; 0 when it has none.
    pub(crate) fn first_integer(&self, entry: &Entry) -> Result<u64, Damage> {
        if entry.value_integers == 0 {
            return Ok(0);
        }
        let (piece, _) = self.array_piece(entry.value_chunk)?;
        Ok(be_u64(&piece[..usize::from(entry.integer_size)]))
    }

    /// All entries with their chunk numbers, in the order of the hash table.
    pub(crate) fn entries(&self) -> Result<Vec<(u16, Entry)>, Damage> {
        let mut out = Vec::with_capacity(usize::from(self.entry_count()).min(self.chunks()));
        for bucket in 0..self.hash_entries() {
            let mut chunk = self.u16(HEADER_BYTES + 2 * bucket);
            while chunk != CHAIN_END {
                if out.len() > self.chunks() {
                    return Err("a hash chain is a loop");
                }
                let entry = self.entry(chunk)?;
                out.push((chunk, entry));
                chunk = entry.next;
            }
        }
        Ok(out)
    }
}

impl<'a> Leaf<&'a mut [u8]> {
    /// Makes an empty leaf of the block.
    pub(crate) fn init(bytes: &'a mut [u8], sorted: bool) -> Leaf<&'a mut [u8]> {
        bytes[..HEADER_BYTES].fill(0);
        let mut leaf = Leaf(bytes);
        leaf.put_u64(at::BLOCK_TYPE, BLOCK_TYPE_LEAF);
        leaf.put_u32(at::MAGIC, LEAF_MAGIC);
        leaf.clear_buckets();
        let chunks = leaf.chunks() as u16;
        for chunk in 0..chunks {
            let offset = leaf.chunk_at(chunk);
            leaf.0[offset..offset + CHUNK_BYTES].fill(0);
            leaf.0[offset] = CHUNK_FREE;
            leaf.put_u16(offset + 22, if chunk + 1 == chunks { CHAIN_END } else { chunk + 1 });
        }
        leaf.put_u16(at::FREE_COUNT, chunks);
        leaf.0[at::FLAGS] = if sorted { FLAG_CD_SORTED } else { 0 };
        leaf
    }

    fn put_u16(&mut self, offset: usize, value: u16) {
        self.0[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
    }
    fn put_u32(&mut self, offset: usize, value: u32) {
        self.0[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    fn put_u64(&mut self, offset: usize, value: u64) {
        self.0[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }
    fn clear_buckets(&mut self) {
        let end = HEADER_BYTES + 2 * self.hash_entries();
        self.0[HEADER_BYTES..end].fill(0xFF);
    }
    /// Sets which hashes belong here.
    pub(crate) fn set_prefix(&mut self, prefix: u64, bits: u16) {
        self.put_u64(at::PREFIX, prefix);
        self.put_u16(at::PREFIX_LEN, bits);
    }
    fn add_entries(&mut self, delta: i16) {
        let count = self.entry_count().wrapping_add_signed(delta);
        self.put_u16(at::ENTRY_COUNT, count);
    }

    fn alloc_chunk(&mut self) -> Result<u16, Damage> {
        let chunk = self.u16(at::FREE_LIST);
        let offset = self.check(chunk)?;
        if self.0[offset] != CHUNK_FREE || self.free_count() == 0 {
            return Err("the free list leads to a chunk in use");
        }
        self.put_u16(at::FREE_LIST, self.u16(offset + 22));
        self.put_u16(at::FREE_COUNT, self.free_count() - 1);
        Ok(chunk)
    }

    fn free_chunk(&mut self, chunk: u16) -> Result<(), Damage> {
        let offset = self.check(chunk)?;
        if self.0[offset] == CHUNK_FREE {
            return Err("a chunk is freed twice");
        }
        let head = self.u16(at::FREE_LIST);
        self.0[offset..offset + CHUNK_BYTES].fill(0);
        self.0[offset] = CHUNK_FREE;
        self.put_u16(offset + 22, head);
        self.put_u16(at::FREE_LIST, chunk);
        self.put_u16(at::FREE_COUNT, self.free_count() + 1);
        Ok(())
    }

    fn create_array(&mut self, stored: &[u8]) -> Result<u16, Damage> {
        let mut next = CHAIN_END;
        // From the last piece to the first, so that each knows its successor.
        for piece in stored.chunks(ARRAY_BYTES).rev() {
            let chunk = self.alloc_chunk()?;
            let offset = self.chunk_at(chunk);
            self.0[offset] = CHUNK_ARRAY;
            self.0[offset + 1..offset + 1 + piece.len()].copy_from_slice(piece);
            self.0[offset + 1 + piece.len()..offset + 22].fill(0);
            self.put_u16(offset + 22, next);
            next = chunk;
        }
        Ok(next)
    }

    fn free_array(&mut self, mut chunk: u16) -> Result<(), Damage> {
        while chunk != CHAIN_END {
            let (_, next) = self.array_piece(chunk)?;
            self.free_chunk(chunk)?;
            chunk = next;
        }
        Ok(())
    }

    fn put_entry(&mut self, chunk: u16, entry: &Entry) {
        let offset = self.chunk_at(chunk);
        self.0[offset] = CHUNK_ENTRY;
        self.0[offset + 1] = entry.integer_size;
        self.put_u16(offset + 2, entry.next);
        self.put_u16(offset + 4, entry.name_chunk);
        self.put_u16(offset + 6, entry.name_integers);
        self.put_u16(offset + 8, entry.value_chunk);
        self.put_u16(offset + 10, entry.value_integers);
        self.put_u32(offset + 12, entry.cd);
        self.put_u64(offset + 16, entry.hash);
    }

    /// Links `chunk` into its chain before the first entry with a larger cd.
    fn link(&mut self, chunk: u16, mut entry: Entry) -> Result<(), Damage> {
        let mut slot = self.bucket_at(entry.hash);
        for _ in 0..=self.chunks() {
            let next = self.u16(slot);
            if next == CHAIN_END || self.entry(next)?.cd > entry.cd {
                entry.next = next;
                self.put_entry(chunk, &entry);
                self.put_u16(slot, chunk);
                return Ok(());
            }
            slot = self.chunk_at(next) + 2;
        }
        Err("a hash chain is a loop")
    }

    fn unlink(&mut self, chunk: u16, entry: &Entry) -> Result<(), Damage> {
        let mut slot = self.bucket_at(entry.hash);
        for _ in 0..=self.chunks() {
            let next = self.u16(slot);
            if next == chunk {
                self.put_u16(slot, entry.next);
                return Ok(());
            }
            self.entry(next)?;
            slot = self.chunk_at(next) + 2;
        }
        Err("a hash chain is a loop")
    }

    /// The lowest collision differentiator that no entry with this hash has.
    fn unused_cd(&self, hash: u64) -> Result<u32, Damage> {
        let mut taken = Vec::new();
        self.find_in_chain(hash, |_, entry| {
            if entry.hash == hash {
                taken.push(entry.cd);
            }
            Ok(false)
        })?;
        taken.sort_unstable();
        let mut cd = 0;
        for used in taken {
            if used != cd {
                break;
            }
            cd += 1;
        }
        Ok(cd)
    }

    /// Adds an entry that is not there yet; `cd` None chooses the lowest unused one.
    pub(crate) fn create(&mut self, key: &Key<'_>, cd: Option<u32>, integer_size: u8, stored: &[u8]) -> Result<(), Refused> {
        let wanted = 1 + array_chunks(key.stored_bytes()) + array_chunks(stored.len());
        if wanted > self.chunks() {
            return Err(Refused::TooBig);
        }
        if usize::from(self.free_count()) < wanted {
            return Err(Refused::NoRoom);
        }
        let cd = match cd {
            Some(cd) => cd,
            None => self.unused_cd(key.hash())?,
        };
        let chunk = self.alloc_chunk()?;
        // Typed before the arrays are made: a damaged free list that loops is noticed instead of overwriting the entry.
        let offset = self.chunk_at(chunk);
        self.0[offset] = CHUNK_ENTRY;
        let name_chunk = self.create_array(&key.to_stored())?;
        let value_chunk = self.create_array(stored)?;
        let entry = Entry {
            integer_size,
            next: CHAIN_END,
            name_chunk,
            name_integers: key.integers(),
            value_chunk,
            value_integers: (stored.len() / usize::from(integer_size)) as u16,
            cd,
            hash: key.hash(),
        };
        self.link(chunk, entry)?;
        self.add_entries(1);
        Ok(())
    }

    /// Replaces the value of the entry in `chunk`.
    pub(crate) fn update(&mut self, chunk: u16, integer_size: u8, stored: &[u8]) -> Result<(), Refused> {
        let mut entry = self.entry(chunk)?;
        let available = usize::from(self.free_count()) + array_chunks(entry.value_bytes());
        if available < array_chunks(stored.len()) {
            return Err(Refused::NoRoom);
        }
        self.free_array(entry.value_chunk)?;
        entry.value_chunk = self.create_array(stored)?;
        entry.value_integers = (stored.len() / usize::from(integer_size)) as u16;
        entry.integer_size = integer_size;
        self.put_entry(chunk, &entry);
        Ok(())
    }

    /// Removes the entry in `chunk`.
    pub(crate) fn remove(&mut self, chunk: u16) -> Result<(), Damage> {
        let entry = self.entry(chunk)?;
        self.unlink(chunk, &entry)?;
        self.free_array(entry.name_chunk)?;
        self.free_array(entry.value_chunk)?;
        self.free_chunk(chunk)?;
        self.add_entries(-1);
        Ok(())
    }

    fn transfer_array(&mut self, chunk: u16, to: &mut Leaf<&mut [u8]>) -> Result<u16, Damage> {
        let mut bytes = Vec::new();
        let mut walk = chunk;
        for _ in 0..=self.chunks() {
            if walk == CHAIN_END {
                self.free_array(chunk)?;
                return to.create_array(&bytes);
            }
            let (piece, next) = self.array_piece(walk)?;
            bytes.extend_from_slice(piece);
            walk = next;
        }
        Err("an array is a loop")
    }

    /// Moves the entries whose next prefix bit is 1 to the empty leaf `to` and lengthens both prefixes
    /// (OpenZFS: `zap_leaf_split`).
    pub(crate) fn split(&mut self, to: &mut Leaf<&mut [u8]>, sorted: bool) -> Result<(), Damage> {
        let bit = 1u64 << (63 - self.prefix_len());
        let (prefix, bits) = (self.prefix() << 1, self.prefix_len() + 1);
        if bits > PREFIX_BITS_MAX {
            return Err("a leaf's prefix is as long as the hash");
        }
        self.set_prefix(prefix, bits);
        to.set_prefix(prefix | 1, bits);
        if sorted {
            self.0[at::FLAGS] |= FLAG_CD_SORTED;
        }
        self.clear_buckets();
        for chunk in 0..self.chunks() as u16 {
            if self.0[self.chunk_at(chunk)] != CHUNK_ENTRY {
                continue;
            }
            let mut entry = self.entry(chunk)?;
            if hash::index(entry.hash, u32::from(bits) - 1) != prefix >> 1 {
                return Err("an entry's hash does not belong to its leaf");
            }
            if entry.hash & bit == 0 {
                self.link(chunk, entry)?;
                continue;
            }
            let target = to.alloc_chunk()?;
            let offset = to.chunk_at(target);
            to.0[offset] = CHUNK_ENTRY;
            entry.name_chunk = self.transfer_array(entry.name_chunk, to)?;
            entry.value_chunk = self.transfer_array(entry.value_chunk, to)?;
            to.link(target, entry)?;
            self.free_chunk(chunk)?;
            self.add_entries(-1);
            to.add_entries(1);
        }
        Ok(())
    }
}
