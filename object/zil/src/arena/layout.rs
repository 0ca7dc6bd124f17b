//! Layout of an arena: two places for its header, then a ring of entries. All numbers are little-endian.
//!
//! A position counts bytes from the arena's beginning and never comes again: what an earlier lap of the ring left is no entry of this one.

use super::facts::ArenaError;
use ondisk::Txg;

/// Bytes before the ring: the header's two places.
pub(super) const RING_START: u64 = 4096;
/// Places of the header, written in turns.
const PLACES: [u64; 2] = [0, 2048];
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 160;
/// Bytes before an entry's payload.
pub(super) const ENTRY_BYTES: usize = 104;
/// Bytes that entries are multiples of.
pub(super) const ALIGNMENT: u64 = 8;
/// Txgs with changes that no record tells of: more than can be alive.
pub(super) const GAPS: usize = 4;

const HEADER_MAGIC: u64 = 0x7a61_7265_6e61_6831;
const ENTRY_MAGIC: u32 = 0x7a61_656e;

/// Sum of bytes that come in parts.
pub(super) struct Sum {
    lanes: [u64; 4],
    rest: [u8; 32],
    held: usize,
    length: u64,
}

impl Sum {
    pub(super) fn new() -> Sum {
        Sum { lanes: [1, 2, 3, 4], rest: [0; 32], held: 0, length: 0 }
    }

    fn block(&mut self, block: &[u8; 32]) {
        for (lane, word) in self.lanes.iter_mut().zip(block.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            *lane = (lane.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    /// Sum of all these parts together.
    pub(super) fn of(parts: &[&[u8]]) -> u64 {
        let mut sum = Sum::new();
        parts.iter().for_each(|part| sum.add(part));
        sum.end()
    }

    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.held > 0 {
            let taken = bytes.len().min(32 - self.held);
            self.rest[self.held..self.held + taken].copy_from_slice(&bytes[..taken]);
            self.held += taken;
            bytes = &bytes[taken..];
            if self.held < 32 {
                return;
            }
            let block = self.rest;
            self.block(&block);
            self.held = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<32>();
        blocks.iter().for_each(|block| self.block(block));
        self.rest[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }

    pub(super) fn end(mut self) -> u64 {
        self.rest[self.held..].fill(0);
        let block = self.rest;
        self.block(&block);
        self.lanes.iter().fold(self.length, |sum, lane| (sum.rotate_left(31) ^ lane).wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes.get(index * 8..index * 8 + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Records of the process before: they are done again in one txg of this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inherited {
    /// Position of the first.
    pub start: u64,
    /// Position behind the last; 0 when there never were any.
    pub end: u64,
    /// Txg that has them; none while they are not done.
    pub txg: Option<Txg>,
}

/// First change of a txg that no record tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    pub txg: Txg,
    /// Entries from this position on count only when the txg is on disk.
    pub position: u64,
}

/// State of an arena that its entries do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the arena.
    pub size: u64,
    /// Number of headers that were written.
    pub generation: u64,
    /// Guid of the pool.
    pub guid: u64,
    /// Number of processes that had it before.
    pub epoch: u64,
    /// Position of the first entry.
    pub tail: u64,
    pub inherited: Inherited,
    pub gaps: [Gap; GAPS],
    /// Last txg that is known to be on disk.
    pub synced: Txg,
}

impl Header {
    /// Place of the header of this generation in the file.
    pub(super) fn place(&self) -> u64 {
        PLACES[(self.generation % 2) as usize]
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let Header { size, generation, guid, epoch, tail, inherited, gaps, synced } = self;
        let txg = inherited.txg.map_or(0, |txg| txg.0);
        let first = [HEADER_MAGIC, *size, *generation, *guid, *epoch, *tail, inherited.start, inherited.end, txg];
        let words = first.into_iter().chain(gaps.iter().flat_map(|gap| [gap.txg.0, gap.position])).chain([synced.0]);
        let mut bytes = [0; HEADER_BYTES];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        let mut sum = Sum::new();
        sum.add(&bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&sum.end().to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let mut sum = Sum::new();
        sum.add(&bytes[..HEADER_BYTES - 8]);
        let at = |index| word(bytes, index);
        if at(0) != HEADER_MAGIC || at(HEADER_BYTES / 8 - 1) != sum.end() {
            return None;
        }
        let txg = Some(Txg(at(8))).filter(|txg| txg.0 != 0);
        Some(Header {
            size: at(1),
            generation: at(2),
            guid: at(3),
            epoch: at(4),
            tail: at(5),
            inherited: Inherited { start: at(6), end: at(7), txg },
            gaps: std::array::from_fn(|index| Gap { txg: Txg(at(9 + 2 * index)), position: at(10 + 2 * index) }),
            synced: Txg(at(9 + 2 * GAPS)),
        })
    }

    /// Newest header in what stands before the ring.
    pub(super) fn newest(before_ring: &[u8]) -> Result<Header, ArenaError> {
        let found = PLACES.iter().filter_map(|place| Header::decode(before_ring.get(*place as usize..)?));
        found.max_by_key(|header| header.generation).ok_or(ArenaError::Unsound("it has no sound header"))
    }
}

/// Meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A record as intent logs have it, a write's with its bytes.
    Record,
    /// The record of a new node, which has no name yet: that in the record is nobody's.
    Nameless,
    /// A node without names is deleted.
    Gone,
    /// Something was changed that no record tells of.
    Gap,
    /// A request was done, and all of it is on disk.
    Mark,
}

const KINDS: [EntryKind; 5] = [EntryKind::Record, EntryKind::Nameless, EntryKind::Gone, EntryKind::Gap, EntryKind::Mark];

/// Entry without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Meaning of the entry.
    pub kind: EntryKind,
    /// Position in the arena, in bytes.
    pub(super) position: u64,
    /// Bytes of the payload.
    pub(super) length: u64,
    pub(super) epoch: u64,
    /// Txg of the change, of the process that noted it.
    pub(super) txg: Txg,
    /// Object set that was changed.
    pub objset: u64,
    /// Request that it was done for, 0 for none.
    pub unique: u64,
    /// Time that the change left behind: seconds and nanoseconds.
    pub time: (i64, u32),
    /// Object that was made, linked or deleted, 0 for none.
    pub object: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

impl Entry {
    /// Bytes in the ring of an entry with so many bytes of payload.
    pub(super) fn bytes_with(length: u64) -> u64 {
        (ENTRY_BYTES as u64 + length).next_multiple_of(ALIGNMENT)
    }

    /// Position behind the entry.
    pub(super) fn end(&self) -> u64 {
        self.position + Entry::bytes_with(self.length)
    }

    /// Bytes before the payload, of which this is the sum; they end with their own.
    pub(super) fn encode(&self, payload_sum: u64) -> [u8; ENTRY_BYTES] {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u64;
        let words = [
            u64::from(ENTRY_MAGIC) | kind << 32,
            self.position,
            self.length,
            self.epoch,
            self.txg.0,
            self.objset,
            self.unique,
            self.time.0 as u64,
            u64::from(self.time.1),
            self.object,
            self.bytes,
            payload_sum,
        ];
        let mut bytes = [0; ENTRY_BYTES];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        let sum = Sum::of(&[&bytes[..ENTRY_BYTES - 8]]);
        bytes[ENTRY_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Entry at a position, before its payload was looked at; None for what is none.
    pub(super) fn decode(bytes: &[u8; ENTRY_BYTES], position: u64) -> Option<Entry> {
        let at = |index| word(bytes, index);
        let kind = *KINDS.get(usize::try_from(at(0) >> 32).ok()?)?;
        let nanoseconds = u32::try_from(at(8)).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
        let is_entry = at(0) as u32 == ENTRY_MAGIC && at(1) == position;
        is_entry.then_some(Entry {
            kind,
            position,
            length: at(2),
            epoch: at(3),
            txg: Txg(at(4)),
            objset: at(5),
            unique: at(6),
            time: (at(7) as i64, nanoseconds),
            object: at(9),
            bytes: at(10),
        })
    }

    /// True when the sum of these bytes is theirs.
    pub(super) fn is_head_sound(bytes: &[u8; ENTRY_BYTES]) -> bool {
        word(bytes, ENTRY_BYTES / 8 - 1) == Sum::of(&[&bytes[..ENTRY_BYTES - 8]])
    }

    /// True when the sums of these bytes and of the payload are theirs.
    pub(super) fn is_sound(bytes: &[u8; ENTRY_BYTES], payload: &[u8]) -> bool {
        Entry::is_head_sound(bytes) && word(bytes, ENTRY_BYTES / 8 - 2) == Sum::of(&[payload])
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    /// If this fails, an entry that was written in parts is taken for a torn one, and everything after it is lost.
    #[test]
    fn sums_do_not_depend_on_parts() {
        let bytes: Vec<u8> = (0..200u8).map(|byte| byte.wrapping_mul(37)).collect();
        let whole = |length: usize| {
            let mut sum = Sum::new();
            sum.add(&bytes[..length]);
            sum.end()
        };
        for length in 0..bytes.len() {
            for cut in 0..=length {
                let mut sum = Sum::new();
                sum.add(&bytes[..cut]);
                sum.add(&bytes[cut..length]);
                assert_eq!(sum.end(), whole(length));
            }
            assert!(length == 0 || whole(length) != whole(length - 1), "zeros at the end count");
        }
    }
}
