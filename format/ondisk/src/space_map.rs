//! Space maps (OpenZFS: `space_map.h`): logs of allocations and frees, of one metaslab or (log space maps) of all of them.
//!
//! Entries are one word, or two words for large runs and for those that name a vdev; debug words carry the txg of what follows. Offsets
//! and runs are in units of the map's shift (a metaslab's ashift; 9 in log space maps), relative to the map's start.

use crate::record::{ByteOrder, Field, ShortRecord, record};
use crate::{Txg, VdevId};
use std::fmt;

record! {
    /// The bonus of a space map; old ones are only the first 24 bytes (OpenZFS: `space_map_phys_t`).
    SpaceMapPhys = "space_map_phys_t", 320 {
        /// Field that is not used.
        0 => smp_object: u64,
        /// Bytes of the object that hold entries.
        8 => smp_length: u64,
        /// Bytes allocated minus bytes freed.
        16 => smp_alloc: i64,
        24 => smp_pad: [u64; 5],
        /// Number of free runs of 2^(i+shift) to 2^(i+shift+1) bytes.
        64 => smp_histogram: [u64; 32],
    }
}
impl SpaceMapPhys {
    /// Bonus bytes without a histogram (OpenZFS: `SPACE_MAP_SIZE_V0`).
    pub const BYTES_V0: usize = 24;
    /// Decodes a bonus of either age.
    pub fn decode_bonus(bonus: &[u8]) -> Result<SpaceMapPhys, ShortRecord> {
        if bonus.len() < SpaceMapPhys::BYTES_V0 {
            return Err(ShortRecord { record: "space_map_phys_t", need: SpaceMapPhys::BYTES_V0, have: bonus.len() });
        }
        let mut full = [0; SpaceMapPhys::SIZE];
        let have = bonus.len().min(SpaceMapPhys::SIZE);
        full[..have].copy_from_slice(&bonus[..have]);
        Ok(Field::get(&full, ByteOrder::Little))
    }
}

/// Allocated or freed (OpenZFS: `maptype_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapType {
    /// The run was allocated.
    Alloc,
    /// The run was freed.
    Free,
}

/// One entry of a space map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceMapEntry {
    /// The entries that follow are of this txg and sync pass.
    Debug {
        /// Kind of the entries that follow.
        action: MapType,
        /// Sync pass in which they were written.
        sync_pass: u32,
        /// Txg in which they were written.
        txg: Txg,
    },
    /// Fills a block so that a two-word entry does not straddle it.
    Padding,
    /// An allocation or a free.
    Run(SpaceMapRun),
}
/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceMapRun {
    /// Kind of the run: allocation or free.
    pub kind: MapType,
    /// Start in units of the map's shift, relative to the map's start.
    pub offset: u64,
    /// Length in units of the map's shift, at least 1.
    pub run: u64,
    /// The top-level vdev, in log space maps.
    pub vdev: Option<VdevId>,
}

/// Reason why words are not entries, or a run is not representable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceMapError {
    /// The first word of a two-word entry is the last word.
    Truncated,
    /// The length is not a multiple of 8.
    Unaligned(usize),
    /// Longer or further away than an entry can say.
    Range,
}
impl fmt::Display for SpaceMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpaceMapError::Truncated => f.write_str("a space map ends inside an entry"),
            SpaceMapError::Unaligned(bytes) => write!(f, "a space map of {bytes} bytes"),
            SpaceMapError::Range => f.write_str("a run that no space map entry can represent"),
        }
    }
}
impl std::error::Error for SpaceMapError {}

const DEBUG_PREFIX: u64 = 2;
const TWO_WORDS_PREFIX: u64 = 3;
/// The vdev number that means none (OpenZFS: `SM_NO_VDEVID`).
const NO_VDEV: u32 = 1 << 24;
const VDEV_BITS: u32 = 24;
/// Longest run of a one-word entry (OpenZFS: `SM_RUN_MAX`).
pub const ONE_WORD_RUN_MAX: u64 = 1 << 15;
/// First offset that needs two words (OpenZFS: `SM_OFFSET_MAX` + 1).
pub const ONE_WORD_OFFSET_END: u64 = 1 << 47;
/// Longest run of a two-word entry (OpenZFS: `SM2_RUN_MAX`).
pub const TWO_WORDS_RUN_MAX: u64 = 1 << 36;
/// First offset that no entry can hold (OpenZFS: `SM2_OFFSET_MAX` + 1).
pub const TWO_WORDS_OFFSET_END: u64 = 1 << 63;

fn map_type(bit: u64) -> MapType {
    if bit & 1 == 0 { MapType::Alloc } else { MapType::Free }
}
fn map_bit(kind: MapType) -> u64 {
    match kind {
        MapType::Alloc => 0,
        MapType::Free => 1,
    }
}

/// Iterates the entries of a map's (little-endian) bytes; after an error it ends.
#[derive(Clone, Debug)]
pub struct SpaceMapEntries<'a> {
    rest: &'a [u8],
}
impl<'a> SpaceMapEntries<'a> {
    /// Iterates over `bytes`: one block of the map, cut at `smp_length`. No entry crosses a block.
    pub fn new(bytes: &'a [u8]) -> SpaceMapEntries<'a> {
        SpaceMapEntries { rest: bytes }
    }
    fn word(&mut self) -> Option<u64> {
        let (raw, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*raw))
    }
}
impl Iterator for SpaceMapEntries<'_> {
    type Item = Result<SpaceMapEntry, SpaceMapError>;
    fn next(&mut self) -> Option<Self::Item> {
        let left = self.rest.len();
        let Some(word) = self.word() else {
            self.rest = &[];
            return (left != 0).then_some(Err(SpaceMapError::Unaligned(left)));
        };
        Some(Ok(match word >> 62 {
            DEBUG_PREFIX if word << 2 == 0 => SpaceMapEntry::Padding,
            DEBUG_PREFIX => SpaceMapEntry::Debug {
                action: map_type(word >> 60),
                sync_pass: (word >> 50 & 0x3FF) as u32,
                txg: Txg(word & ((1 << 50) - 1)),
            },
            TWO_WORDS_PREFIX => {
                let Some(second) = self.word() else {
                    self.rest = &[];
                    return Some(Err(SpaceMapError::Truncated));
                };
                SpaceMapEntry::Run(SpaceMapRun {
                    kind: map_type(second >> 63),
                    offset: second & (TWO_WORDS_OFFSET_END - 1),
                    run: (word >> VDEV_BITS & (TWO_WORDS_RUN_MAX - 1)) + 1,
                    // All vdev numbers fit into the field; OpenZFS stores none as the number 2^24, which reads as 0.
                    vdev: Some(VdevId(word as u32 & (NO_VDEV - 1))),
                })
            }
            _ => SpaceMapEntry::Run(SpaceMapRun {
                kind: map_type(word >> 15),
                offset: word >> 16 & (ONE_WORD_OFFSET_END - 1),
                run: (word & (ONE_WORD_RUN_MAX - 1)) + 1,
                vdev: None,
            }),
        }))
    }
}

/// Encodes entries to be appended to a map, with the padding that keeps two-word entries inside a block.
#[derive(Clone, Debug)]
pub struct SpaceMapEncoder {
    out: Vec<u8>,
    position: u64,
    block_bytes: u64,
    two_words: bool,
}
impl SpaceMapEncoder {
    /// Makes an encoder to append at byte `length` (`smp_length`) of a map with blocks of `block_bytes` (a multiple of 16). `two_words`
    /// says that the feature `spacemap_v2` is active.
    pub fn new(length: u64, block_bytes: usize, two_words: bool) -> SpaceMapEncoder {
        SpaceMapEncoder { out: Vec::new(), position: length, block_bytes: (block_bytes as u64).max(16), two_words }
    }
    fn push(&mut self, word: u64) {
        self.out.extend(word.to_le_bytes());
        self.position += 8;
    }
    /// Appends a debug entry: what follows was written in this txg and pass.
    pub fn debug(&mut self, action: MapType, sync_pass: u32, txg: Txg) {
        let pass = u64::from(sync_pass & 0x3FF);
        self.push(DEBUG_PREFIX << 62 | map_bit(action) << 60 | pass << 50 | txg.0 & ((1 << 50) - 1));
    }
    /// Appends a run, split when it is longer than an entry can say (OpenZFS: `space_map_write_seg`).
    pub fn run(&mut self, entry: SpaceMapRun) -> Result<(), SpaceMapError> {
        let SpaceMapRun { kind, offset: mut start, run: mut left, vdev } = entry;
        let end = start.checked_add(left).ok_or(SpaceMapError::Range)?;
        let two = self.two_words && (vdev.is_some() || left > ONE_WORD_RUN_MAX || start >= ONE_WORD_OFFSET_END);
        let (run_max, offset_end) = if two { (TWO_WORDS_RUN_MAX, TWO_WORDS_OFFSET_END) } else { (ONE_WORD_RUN_MAX, ONE_WORD_OFFSET_END) };
        if end > offset_end || (vdev.is_some() && !two) || vdev.is_some_and(|vdev| vdev.0 >= NO_VDEV) {
            return Err(SpaceMapError::Range);
        }
        while left != 0 {
            let run = left.min(run_max);
            if two {
                if self.position % self.block_bytes == self.block_bytes - 8 {
                    self.push(DEBUG_PREFIX << 62);
                }
                self.push(TWO_WORDS_PREFIX << 62 | (run - 1) << VDEV_BITS | vdev.map_or(0, |vdev| u64::from(vdev.0)));
                self.push(map_bit(kind) << 63 | start);
            } else {
                self.push(start << 16 | map_bit(kind) << 15 | (run - 1));
            }
            start += run;
            left -= run;
        }
        Ok(())
    }
    /// The map's length with what was encoded (the new `smp_length`).
    pub fn length(&self) -> u64 {
        self.position
    }
    /// The bytes to write at the length that the encoder started from.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
