//! Removed top-level vdevs: what was on them lies elsewhere, range by range (OpenZFS: `vdev_indirect.c`, `vdev_indirect_mapping.c`,
//! `vdev_indirect_births.c`).
//!
//! Block pointers keep their addresses for good: whoever reads, frees or checks a block asks [`crate::VdevTree::places`] where its bytes are now. They may have been
//! copied in several pieces, and the vdev that they were copied to may have been removed since.

use ondisk::{Dva, ObjectId, Txg, VdevId};

/// Objects of the MOS that a vdev has which was removed or is being removed (OpenZFS: `vdev_indirect_config_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalObjects {
    /// Object with the new places, 0 for none.
    pub mapping: ObjectId,
    /// Object with the txgs of the copying, 0 for none.
    pub births: ObjectId,
    /// Vdev that was removed before this one.
    pub previous: Option<VdevId>,
    /// Txg that added the vdev, 0 when unknown; of a removed one, which has no node that could tell.
    pub create_txg: Txg,
}

/// New place of a range of a removed vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// Offset on the removed vdev, in bytes.
    pub source: u64,
    /// Place that it was copied to; its size is the range's.
    pub target: Dva,
}

impl MappedRange {
    /// Offset behind the range on the removed vdev, in bytes.
    pub fn end(&self) -> u64 {
        self.source.saturating_add(self.target.asize)
    }
}

/// New places of everything that was on a vdev, or, while it is being removed, of what is before [`Mapping::end`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    ranges: Vec<MappedRange>,
    births: Vec<(u64, Txg)>,
}

/// Part of a range of a removed vdev, where it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the range before the part.
    pub at: u64,
    /// Place of the part, on a vdev that is there.
    pub place: Dva,
    /// Txg in which it was written there.
    pub birth: Txg,
}

impl Mapping {
    /// The mapping of `ranges`, of which those up to an offset were copied in the txg beside it, later ones in later txgs. None when ranges are empty, overlap
    /// or are not in order.
    pub fn new(ranges: Vec<MappedRange>, births: Vec<(u64, Txg)>) -> Option<Mapping> {
        let is_sound = |range: &MappedRange| range.target.asize > 0 && range.source.checked_add(range.target.asize).is_some();
        let in_order = ranges.windows(2).all(|pair| pair[0].end() <= pair[1].source);
        (in_order && ranges.iter().all(is_sound)).then_some(Mapping { ranges, births })
    }

    /// The mapping with more ranges behind it, which were copied in `birth`; None as of [`Mapping::new`].
    pub fn with(&self, more: &[MappedRange], birth: Txg) -> Option<Mapping> {
        let ranges: Vec<MappedRange> = self.ranges.iter().chain(more).copied().collect();
        let end = ranges.last().map_or(0, MappedRange::end);
        let births = self.births.iter().copied().chain([(end, birth)]).collect();
        Mapping::new(ranges, births)
    }

    /// The mapping without the ranges that nobody needs, by their numbers.
    pub fn condensed(&self, is_needed: impl Fn(usize) -> bool) -> Mapping {
        let ranges = self.ranges.iter().enumerate().filter(|(number, _)| is_needed(*number)).map(|(_, range)| *range);
        Mapping { ranges: ranges.collect(), births: self.births.clone() }
    }

    /// The ranges, in their order.
    pub fn ranges(&self) -> &[MappedRange] {
        &self.ranges
    }

    /// Offset behind the last range, in bytes.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, MappedRange::end)
    }

    /// Bytes that the ranges have in memory and on disk (OpenZFS: `vdev_indirect_mapping_size`).
    pub fn memory_bytes(&self) -> u64 {
        (self.ranges.len() * ondisk::IndirectMappingEntry::SIZE) as u64
    }

    /// Number of the range that holds `offset`, or of the one behind it.
    pub fn index_of(&self, offset: u64) -> usize {
        self.ranges.partition_point(|range| range.end() <= offset)
    }

    /// Txg in which `offset` was copied (OpenZFS: `vdev_indirect_births_physbirth`).
    fn birth_of(&self, offset: u64) -> Txg {
        let index = self.births.partition_point(|(end, _)| *end <= offset);
        self.births.get(index).map_or(Txg::ZERO, |(_, txg)| *txg)
    }

    /// The new places of `length` bytes at `offset`; None when one of them has none.
    pub fn pieces(&self, offset: u64, length: u64) -> Option<Vec<Piece>> {
        let end = offset.checked_add(length)?;
        let (mut pieces, mut at) = (Vec::new(), offset);
        for range in &self.ranges[self.index_of(offset)..] {
            if at >= end {
                break;
            }
            let within = at.checked_sub(range.source)?;
            let asize = (range.target.asize - within).min(end - at);
            let place = Dva { offset: range.target.offset.checked_add(within)?, asize, gang: false, ..range.target };
            pieces.push(Piece { at: at - offset, place, birth: self.birth_of(at) });
            at += asize;
        }
        (at >= end).then_some(pieces)
    }
}
