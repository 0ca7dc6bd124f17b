//! The geometry of dRAID: redundancy groups dealt over the children by permutation (OpenZFS: `vdev_draid.c`).
//!
//! A *row* is 16 MiB of every child at one offset. A *group* is parity + data columns of a row's height; groups follow each
//! other through the row and go on in the next one, so that any width of group fits any number of children. A *slice* is the
//! rows after which groups and children are aligned again; each slice has its own permutation of the children, and the last
//! `spares` positions of every permutation are the distributed spares. A block always takes whole stripes of one group, or the
//! end of one group and the start of the next.

mod map;
mod seeds;

use crate::error::TreeError;
use crate::raidz::{RaidzColumn, RaidzMap};
pub(crate) use map::PermutationMap;
use seeds::CHILDREN_MAX;

/// Height of a row, in bytes (OpenZFS: `VDEV_DRAID_ROWHEIGHT`).
const ROW_BYTES: u64 = 16 << 20;
/// Bytes kept free at the end of every child (OpenZFS: `VDEV_DRAID_REFLOW_RESERVE`).
const RESERVE_BYTES: u64 = 2 * ROW_BYTES;
/// Most distributed spares (OpenZFS: `VDEV_DRAID_MAX_SPARES`).
const SPARES_MAX: u64 = 100;

/// Parameters of a dRAID vdev in the configuration: consistent by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DraidConfig {
    parity: u8,
    data: u8,
    spares: u8,
    children: u8,
    groups: u8,
}

impl DraidConfig {
    /// A new vdev of `children` devices with `spares` distributed spares, in groups of `parity` + `data` columns.
    ///
    /// Errors: [`TreeError::Geometry`] when there are fewer children than a group and the spares need, or more than 255.
    pub fn new(parity: usize, data: usize, spares: usize, children: usize) -> Result<DraidConfig, TreeError> {
        let disks = children.saturating_sub(spares);
        let width = parity.saturating_add(data);
        // The fewest groups that fill whole rows.
        let most = if width <= disks { disks } else { 0 };
        let groups = (1..=most).find(|groups| (groups * width).is_multiple_of(disks));
        let groups = groups.ok_or(TreeError::Geometry("children of a draid"))?;
        DraidConfig::with_groups([parity, data, spares, children, groups].map(|number| number as u64))
    }

    /// The numbers of a configuration: parity, data, spares, children and groups a slice (OpenZFS: `vdev_draid_init`).
    pub(crate) fn with_groups([parity, data, spares, children, groups]: [u64; 5]) -> Result<DraidConfig, TreeError> {
        let most = CHILDREN_MAX as u64;
        let sound = (1..=3).contains(&parity)
            && data >= 1
            && children <= most
            && spares <= SPARES_MAX
            && data <= most
            && (1..=most).contains(&groups)
            && parity + data + spares <= children
            && (groups * (parity + data)).is_multiple_of(children - spares);
        if !sound {
            return Err(TreeError::Geometry("numbers of a draid"));
        }
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        Ok(DraidConfig {
            parity: small(parity),
            data: small(data),
            spares: small(spares),
            children: small(children),
            groups: small(groups),
        })
    }

    /// Parity columns of a group.
    pub fn parity(&self) -> usize {
        usize::from(self.parity)
    }
    /// Data columns of a group.
    pub fn data(&self) -> usize {
        usize::from(self.data)
    }
    /// Number of distributed spares.
    pub fn spares(&self) -> usize {
        usize::from(self.spares)
    }
    /// Number of children.
    pub fn children(&self) -> usize {
        usize::from(self.children)
    }
    /// Groups of a slice.
    pub fn groups(&self) -> usize {
        usize::from(self.groups)
    }
    /// Columns of a group.
    pub fn width(&self) -> usize {
        self.parity() + self.data()
    }
    /// Children less spares: the columns of a row.
    pub fn disks(&self) -> usize {
        self.children() - self.spares()
    }

    /// Allocatable bytes of the vdev when the smallest child has `child_asize` (OpenZFS: `vdev_draid_open`).
    pub fn asize(&self, child_asize: u64) -> u64 {
        let rows = child_asize.saturating_sub(RESERVE_BYTES) / ROW_BYTES;
        let group = self.width() as u64 * ROW_BYTES;
        rows * ROW_BYTES * self.disks() as u64 / group * group
    }
    /// Allocatable bytes that each child must have for `asize` of the vdev (OpenZFS: `vdev_draid_min_asize`).
    pub(crate) fn min_child_asize(&self, asize: u64) -> u64 {
        RESERVE_BYTES + asize.div_ceil(self.disks() as u64)
    }
    /// Bytes allocated for `sectors`: whole stripes (OpenZFS: `vdev_draid_asize`).
    pub(crate) fn asize_for_sectors(&self, sectors: u64, ashift: u32) -> u64 {
        (sectors.max(1).div_ceil(u64::from(self.data)) * self.width() as u64) << ashift
    }
    /// Bytes of a stripe over the whole group: what allocations are aligned to.
    pub(crate) fn stripe_bytes(&self, ashift: u32) -> u64 {
        (self.width() as u64) << ashift
    }
    /// Bytes of the vdev that lie one after the other on the children of one group, parity included.
    pub fn group_bytes(&self) -> u64 {
        self.width() as u64 * ROW_BYTES
    }
    /// Bytes of a slice: every child has as much of it as every other.
    pub fn slice_bytes(&self) -> u64 {
        self.group_bytes() * u64::from(self.groups)
    }
}

/// A dRAID vdev's configuration with its permutation map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraidLayout {
    /// Parameters of the vdev.
    pub config: DraidConfig,
    map: PermutationMap,
}

impl DraidLayout {
    /// The layout that follows from `config`.
    pub(crate) fn new(config: DraidConfig) -> Result<DraidLayout, TreeError> {
        let map = PermutationMap::new(config.children()).ok_or(TreeError::Geometry("children of a draid"))?;
        Ok(DraidLayout { config, map })
    }

    /// True when `psize` bytes at `offset` lie in two groups.
    pub(crate) fn spans_groups(&self, offset: u64, asize: u64) -> bool {
        let group = self.config.group_bytes();
        asize > 0 && offset / group != offset.saturating_add(asize - 1) / group
    }

    /// Bytes from `offset` to the end of its group.
    pub(crate) fn left_in_group(&self, offset: u64) -> u64 {
        self.config.group_bytes() - offset % self.config.group_bytes()
    }

    /// The children that hold the columns of the group at `offset`: parity first.
    pub fn group_children(&self, offset: u64) -> impl Iterator<Item = usize> + '_ {
        let (width, disks, groups) = (self.config.width() as u64, self.config.disks() as u64, self.config.groups() as u64);
        let group = offset / self.config.group_bytes();
        let (first, permutation) = (group * width % disks, self.map.permutation(group / groups));
        (first..first + width).map(move |place| permutation.child((if place >= disks { place - disks } else { place }) as usize))
    }

    /// The child that stands in for distributed spare number `spare` at `offset` of a child's allocatable space (OpenZFS:
    /// `vdev_draid_spare_get_child`). None for a number that is no spare.
    pub(crate) fn spare_child(&self, spare: u64, offset: u64) -> Option<usize> {
        let config = &self.config;
        if spare >= u64::from(config.spares) {
            return None;
        }
        let slice_bytes = config.group_bytes() * config.groups() as u64 / config.disks() as u64;
        Some(self.map.permutation(offset / slice_bytes).child(config.children() - 1 - spare as usize))
    }

    /// The map of `length` bytes (whole sectors) at `offset` of the vdev (OpenZFS: `vdev_draid_map_alloc`).
    pub(crate) fn block_map(&self, ashift: u32, offset: u64, length: usize) -> RaidzMap {
        let config = &self.config;
        let group_bytes = config.group_bytes();
        let mut map = RaidzMap { parity: config.parity(), width: config.width(), columns: Vec::new(), asize: 0, spread: None };
        let (mut position, mut at) = (0, offset);
        let sectors = (length >> ashift).max(1);
        while position < sectors {
            let left = group_bytes - at % group_bytes;
            let stripes = (left / config.stripe_bytes(ashift)).max(1);
            let here = (sectors - position).min(stripes as usize * config.data());
            self.add_row(&mut map, ashift, at, position..position + here);
            let asize = config.asize_for_sectors(here as u64, ashift);
            map.asize += asize;
            at += asize;
            position += here;
        }
        map
    }

    /// Adds the columns of the group at `offset`, which hold these sectors of the block (OpenZFS: `vdev_draid_map_alloc_row`).
    fn add_row(&self, map: &mut RaidzMap, ashift: u32, offset: u64, sectors: std::ops::Range<usize>) {
        let config = &self.config;
        let (width, disks, groups) = (config.width() as u64, config.disks() as u64, config.groups() as u64);
        let group = offset / config.group_bytes();
        let first = (group * width % disks) as usize;
        let slice = group / groups;
        let row = slice * (width * groups / disks) + group % groups * width / disks;
        let stripe = offset % config.group_bytes() / config.stripe_bytes(ashift);
        let row_offset = row * ROW_BYTES + (stripe << ashift);

        let permutation = self.map.permutation(slice);
        let stripes = sectors.len().div_ceil(config.data());
        let (full, remainder) = (sectors.len() / config.data(), sectors.len() % config.data());
        let padded = stripes << ashift;
        let mut position = sectors.start << ashift;
        map.columns.reserve(config.width());
        for column in 0..config.width() {
            let wraps = first + column >= disks as usize;
            let place = if wraps { first + column - disks as usize } else { first + column };
            let slot = permutation.child(place);
            let column_offset = row_offset + if wraps { ROW_BYTES } else { 0 };
            let (data, length) = match column.checked_sub(config.parity()) {
                None => (0..0, padded),
                Some(index) => {
                    let length = (full + usize::from(index < remainder)) << ashift;
                    let data = position..position + length;
                    position += length;
                    (data, length)
                }
            };
            map.columns.push(RaidzColumn { slot, offset: column_offset, length, padded, data, in_scratch: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn layout(parity: usize, data: usize, spares: usize, children: usize) -> DraidLayout {
        DraidLayout::new(DraidConfig::new(parity, data, spares, children).expect("a valid shape")).expect("a valid shape")
    }

    /// Numbers that contradict each other come from damaged labels: a geometry made of them would divide by zero.
    #[test]
    fn impossible_shapes_are_refused() {
        for (parity, data, spares, children) in
            [(0, 4, 0, 8), (4, 4, 0, 9), (1, 0, 0, 2), (1, 4, 1, 5), (2, 4, 0, 5), (1, 1, 101, 255), (1, 4, 0, 256), (1, 4, 8, 8)]
        {
            assert!(DraidConfig::new(parity, data, spares, children).is_err(), "{parity} {data} {spares} {children}");
        }
        assert!(DraidConfig::with_groups([1, 4, 1, 6, 2]).is_ok());
        for numbers in [[1, 4, 1, 6, 0], [2, 4, 1, 9, 2], [u64::MAX, 1, 1, 6, 1], [1, u64::MAX, 0, 6, 1], [1, 4, 1, 6, 256]] {
            assert!(DraidConfig::with_groups(numbers).is_err(), "{numbers:?}");
        }
        let config = DraidConfig::new(2, 4, 2, 11).expect("valid");
        assert_eq!(config.groups(), 3);
    }

    /// Two groups on one place of one child overwrite each other; a child twice in a group makes one failure two.
    #[test]
    fn groups_share_no_place_and_no_child_twice() {
        for (parity, data, spares, children) in [(1, 4, 1, 6), (2, 4, 2, 11), (3, 5, 2, 14), (2, 3, 0, 7), (1, 8, 2, 14), (1, 1, 0, 2)] {
            let layout = layout(parity, data, spares, children);
            let config = layout.config;
            let slices = config.children() as u64 + 2;
            let mut taken = BTreeSet::new();
            for group in 0..slices * config.groups() as u64 {
                let map = layout.block_map(12, group * config.group_bytes(), 4096);
                let mut children = BTreeSet::new();
                let told: Vec<usize> = layout.group_children(group * config.group_bytes()).collect();
                assert_eq!(told, map.columns.iter().map(|column| column.slot).collect::<Vec<_>>(), "group {group}");
                for column in &map.columns {
                    assert!(children.insert(column.slot), "group {group}: child {} twice", column.slot);
                    assert_eq!(column.offset % ROW_BYTES, 0);
                    assert!(taken.insert((column.slot, column.offset)), "group {group} shares {column:?}");
                }
            }
            // What no group took is the spares' share: each row leaves exactly that many children out.
            let rows = slices * (config.width() * config.groups() / config.disks()) as u64;
            for row in 0..rows {
                let free: BTreeSet<usize> = (0..config.children()).filter(|&child| !taken.contains(&(child, row * ROW_BYTES))).collect();
                let spares: BTreeSet<usize> =
                    (0..config.spares() as u64).filter_map(|spare| layout.spare_child(spare, row * ROW_BYTES + 4096)).collect();
                assert_eq!(free, spares, "row {row}");
            }
            assert_eq!(layout.spare_child(config.spares() as u64, 0), None);
        }
    }

    /// A block's columns must hold all its bytes once, and the padding that parity counts in.
    #[test]
    fn blocks_take_whole_stripes_and_go_on_in_the_next_group() {
        let layout = layout(2, 4, 1, 11);
        let config = layout.config;
        let stripe = config.stripe_bytes(12);
        for sectors in [1usize, 3, 4, 5, 8, 9, 32, 4096] {
            for offset in [0, 7 * stripe, config.group_bytes() - 2 * stripe, 5 * config.group_bytes() - stripe] {
                let map = layout.block_map(12, offset, sectors << 12);
                assert_eq!(map.asize, config.asize_for_sectors(sectors as u64, 12));
                assert_eq!(map.asize % stripe, 0);
                let rows = if layout.spans_groups(offset, map.asize) { 2 } else { 1 };
                assert_eq!(map.columns.len(), rows * config.width());
                let mut position = 0;
                let mut padded = 0;
                for (index, column) in map.columns.iter().enumerate() {
                    padded += column.padded as u64;
                    if index % config.width() < 2 {
                        assert!(column.data.is_empty() && column.length == column.padded);
                        continue;
                    }
                    assert_eq!((column.data.start, column.data.len()), (position, column.length));
                    assert!(column.padded - column.length <= 4096);
                    position = column.data.end;
                }
                assert_eq!((position, padded), (sectors << 12, map.asize));
            }
        }
    }

    /// A vdev sized differently from OpenZFS's is "too small" there or loses its end.
    #[test]
    fn sizes_leave_the_reserve_and_whole_groups() {
        let config = DraidConfig::new(2, 4, 2, 11).expect("valid");
        let child = (192 << 20) - (4 << 20) - (512 << 10);
        assert_eq!(config.asize(child), 1_308_622_848);
        assert!(config.min_child_asize(config.asize(child)) <= child);
        assert_eq!(config.asize(1 << 20), 0);
    }
}
