//! Removed top-level vdevs: what was on them lies elsewhere, range by range (OpenZFS: `vdev_indirect.c`, `vdev_indirect_mapping.c`,
//! `vdev_indirect_births.c`).
//!
//! Block pointers keep their addresses for good: whoever reads, frees or checks a block asks here where its bytes are now. They may have been
//! copied in several pieces, and the vdev that they were copied to may have been removed since.

use crate::{TopKind, TopVdev, VdevTree};
use ondisk::{Dva, ObjectId, Txg, VdevId};
use std::ops::Range;

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

impl TopVdev {
    /// True for a vdev that was removed, and on which nothing lies any more.
    pub fn is_removed(&self) -> bool {
        self.kind == TopKind::Indirect
    }
}

impl VdevTree {
    /// The top-level vdev `id` if blocks have addresses there: one that is there, or one that was removed. None when a block pointer names one that does not
    /// exist or has no storage.
    pub fn addressed(&self, id: VdevId) -> Option<&TopVdev> {
        self.tops.get(id.0 as usize).filter(|top| top.is_concrete() || top.is_removed())
    }

    /// Parts of the bytes at an address, where they are now: one of those on a vdev that is there. `passed` is called for each range of a removed vdev on
    /// the way. None when an address leads nowhere.
    pub fn places(&self, dva: &Dva, passed: &mut dyn FnMut(VdevId, Range<u64>)) -> Option<Vec<Piece>> {
        let mut found = Vec::new();
        let mut open = vec![(Piece { at: 0, place: *dva, birth: Txg::ZERO }, 0)];
        while let Some((piece, depth)) = open.pop() {
            let place = piece.place;
            let top = self.addressed(place.vdev)?;
            let end = place.offset.checked_add(place.asize).filter(|end| *end <= top.asize)?;
            if !top.is_removed() {
                found.push(piece);
                continue;
            }
            // In a damaged mapping a range could lead to itself.
            if depth > self.tops.len() {
                return None;
            }
            passed(top.id, place.offset..end);
            let parts = top.mapping.as_ref()?.pieces(place.offset, place.asize)?;
            open.extend(parts.into_iter().rev().map(|part| (Piece { at: piece.at + part.at, ..part }, depth + 1)));
        }
        Some(found)
    }

    /// Parts of a block of `psize` bytes that has an address on the removed vdev `top`. Each is of whole sectors of a vdev without parity; None when an
    /// address leads nowhere.
    pub(crate) fn pieces_of(&self, top: &TopVdev, offset: u64, psize: usize) -> Option<Vec<Piece>> {
        let dva = Dva { vdev: top.id, offset, asize: top.padded_psize(psize) as u64, gang: false };
        let pieces = self.places(&dva, &mut |_, _| ())?;
        let is_whole = |piece: &Piece| {
            let sector = |top: &TopVdev| 1u64 << top.ashift;
            self.top(piece.place.vdev).is_some_and(|top| {
                top.parity() == 0 && piece.place.offset.is_multiple_of(sector(top)) && piece.place.asize.is_multiple_of(sector(top))
            })
        };
        pieces.iter().all(is_whole).then_some(pieces)
    }

    /// Takes over what `from`, the same pool, knows of where the contents of removed vdevs are.
    pub fn take_mappings(&mut self, from: &VdevTree) {
        for (top, known) in self.tops.iter_mut().zip(&from.tops) {
            if top.objects.mapping == known.objects.mapping {
                top.mapping = known.mapping.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SECTOR: u64 = 4096;

    fn range(source: u64, vdev: u32, offset: u64, sectors: u64) -> MappedRange {
        let target = Dva { vdev: VdevId(vdev), offset: offset * SECTOR, asize: sectors * SECTOR, gang: false };
        MappedRange { source: source * SECTOR, target }
    }

    /// Vdev 0 was copied to 1 and 2, then 1 to 2.
    fn sample() -> VdevTree {
        let layout = [(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Mirror, 2)];
        let mut tree = VdevTree::simple(&layout, 12, 1 << 30).expect("valid");
        let first = Mapping::new(
            vec![range(0, 1, 100, 8), range(8, 2, 50, 4), range(20, 1, 300, 2)],
            vec![(12 * SECTOR, Txg(9)), (22 * SECTOR, Txg(10))],
        );
        let second = Mapping::new(vec![range(100, 2, 500, 4), range(104, 2, 700, 4), range(300, 2, 800, 2)], vec![(302 * SECTOR, Txg(20))]);
        for (index, mapping) in [first, second].into_iter().enumerate() {
            let top = &mut tree.tops[index];
            (top.kind, top.node, top.mapping) = (TopKind::Indirect, None, mapping.map(Arc::new));
            assert!(top.mapping.is_some(), "the mapping is sound");
            top.slots.clear();
        }
        tree
    }

    fn at(sector: u64, sectors: u64) -> Dva {
        Dva { vdev: VdevId(0), offset: sector * SECTOR, asize: sectors * SECTOR, gang: false }
    }

    /// If this fails, a block that was copied in pieces, or whose copy was copied again, is put together from other bytes.
    #[test]
    fn bytes_are_found_over_every_removal() {
        let tree = sample();
        let mut passed = Vec::new();
        let pieces = tree.places(&at(2, 8), &mut |vdev, range| passed.push((vdev.0, range.start / SECTOR, range.end / SECTOR)));
        let shown: Vec<_> = pieces
            .expect("all of it is mapped")
            .iter()
            .map(|piece| (piece.at / SECTOR, piece.place.vdev.0, piece.place.offset / SECTOR, piece.place.asize / SECTOR, piece.birth.0))
            .collect();
        assert_eq!(shown, [(0, 2, 502, 2, 20), (2, 2, 700, 4, 20), (6, 2, 50, 2, 9)]);
        assert_eq!(passed, [(0, 2, 10), (1, 102, 108)]);
        let whole = tree.places(&at(21, 1), &mut |_, _| ()).expect("mapped");
        assert_eq!(whole.iter().map(|piece| piece.place.offset / SECTOR).collect::<Vec<_>>(), [801]);
    }

    /// If this fails, an address where nothing was leads to somebody else's bytes, or a hostile mapping keeps a reader for good.
    #[test]
    fn addresses_that_lead_nowhere_are_told() {
        let mut tree = sample();
        for (sector, sectors) in [(11, 2), (12, 4), (19, 2), (22, 1), (1 << 30, 1)] {
            assert!(tree.places(&at(sector, sectors), &mut |_, _| ()).is_none(), "{sectors} sectors at {sector}");
        }
        let circle = Mapping::new(vec![range(0, 0, 0, 8)], Vec::new()).map(Arc::new);
        tree.tops[0].mapping = circle;
        assert!(tree.places(&at(0, 4), &mut |_, _| ()).is_none(), "a circle ends");
        tree.tops[0].mapping = None;
        assert!(tree.places(&at(0, 4), &mut |_, _| ()).is_none(), "nobody knows the mapping");
        assert!(Mapping::new(vec![range(4, 1, 0, 8), range(8, 1, 100, 8)], Vec::new()).is_none(), "ranges overlap");
        assert!(Mapping::new(vec![range(4, 1, 0, 0)], Vec::new()).is_none(), "a range is empty");
    }
}
