//! Which places of its devices a part of a vdev's address space lies on, whatever is in it: what initializing and trimming of free
//! space ask (OpenZFS: `vdev_xlate`, `vdev_raidz_xlate`, `vdev_draid_xlate`).

use crate::{TopKind, TopVdev};
use std::ops::Range;

impl TopVdev {
    /// Calls `each` with a slot and a range of the allocatable space of its leaves for every such range that `range` lies on; per
    /// slot in ascending order. `range` is of whole sectors, on dRAID of whole stripes.
    pub fn each_extent(&self, range: Range<u64>, each: &mut dyn FnMut(usize, Range<u64>)) {
        match self.kind {
            // What is being moved may be anywhere by the time that somebody acts on it.
            TopKind::Raidz(_) if self.widths.reflow.is_some() => {}
            TopKind::Raidz(_) => self.raidz_extents(&range, each),
            TopKind::Draid(_) => self.draid_extents(range, each),
            _ if self.slots.is_empty() || range.is_empty() => {}
            _ => each(0, range),
        }
    }

    /// Every sector of the vdev's space is the next child's.
    fn raidz_extents(&self, range: &Range<u64>, each: &mut dyn FnMut(usize, Range<u64>)) {
        let width = self.columns() as u64;
        let (first, end) = (range.start >> self.ashift, range.end >> self.ashift);
        for slot in 0..width {
            let row = |sector: u64| sector.saturating_sub(slot).div_ceil(width);
            if row(first) < row(end) {
                each(slot as usize, row(first) << self.ashift..row(end) << self.ashift);
            }
        }
    }

    fn draid_extents(&self, mut range: Range<u64>, each: &mut dyn FnMut(usize, Range<u64>)) {
        let Some(draid) = &self.draid else { return };
        while range.start < range.end {
            let length = draid.left_in_group(range.start).min(range.end - range.start);
            for column in self.part_map(range.start, length).columns {
                each(column.slot, column.offset..column.offset + column.padded as u64);
            }
            range.start += length;
        }
    }

    /// Children that share the vdev's space (OpenZFS: `vdev_get_ndisks`).
    pub fn disks(&self) -> usize {
        match self.kind {
            TopKind::Draid(config) => config.disks(),
            _ => self.columns(),
        }
    }

    /// Bytes that parts of the space that are treated on their own must be multiples of.
    pub fn extent_unit(&self) -> u64 {
        match self.kind {
            TopKind::Draid(config) => config.stripe_bytes(self.ashift),
            _ => 1 << self.ashift,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DraidConfig, RaidzMap, TopKind, VdevTree, WritePlan};
    use ondisk::Txg;
    use std::collections::BTreeSet;

    /// If this fails, a trim of free space takes away a sector of a block, or leaves one of the free ones.
    #[test]
    fn extents_are_exactly_the_places_of_the_blocks_there() {
        let draid = DraidConfig::new(2, 4, 1, 9).expect("a shape");
        for (kind, count) in [(TopKind::Raidz(1), 3), (TopKind::Raidz(2), 6), (TopKind::Raidz(3), 8), (TopKind::Draid(draid), 9)] {
            let tree = VdevTree::simple(&[(kind, count)], 12, 1 << 30).expect("valid");
            let top = &tree.tops[0];
            let unit = top.extent_unit();
            let sectors = |slot: usize, range: std::ops::Range<u64>| range.step_by(4096).map(move |offset| (slot, offset));
            // Blocks one after another fill a range: what they write is what the range lies on.
            for start in [0, 7 * unit, (16 << 20) / unit * unit, (96 << 20) / unit * unit - 3 * unit] {
                let (mut at, mut written) = (start, BTreeSet::new());
                for psize in [4096usize, 16384, 131_072, 4096, 57_344, 1 << 20, 12_288] {
                    let asize = top.asize_for_psize(psize as u64);
                    let map = RaidzMap::new(top, at, psize, Txg::ZERO);
                    for column in &map.columns {
                        written.extend(sectors(column.slot, column.offset..column.offset + column.padded as u64));
                    }
                    assert!(WritePlan::new(&tree, top, at, psize, Txg::ZERO).ios.len() <= map.columns.len());
                    at += asize;
                }
                let mut covered = BTreeSet::new();
                top.each_extent(start..at, &mut |slot, range| covered.extend(sectors(slot, range)));
                // RAID-Z rounds allocations up with sectors that nothing is written to.
                assert!(written.is_subset(&covered), "{kind:?} at {start}");
                assert_eq!(covered.len() as u64, (at - start) / 4096, "{kind:?} at {start}");
                if let TopKind::Draid(_) = kind {
                    assert_eq!(written, covered);
                }
            }
        }
    }
}
