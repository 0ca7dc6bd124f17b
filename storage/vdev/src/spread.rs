//! The map of a block that is narrower than its RAID-Z vdev: each of its sectors on the child on which expansions put it (OpenZFS:
//! `vdev_raidz_map_alloc_expanded`). Which expansions there were is another's matter: see [`crate::Widths`].

use crate::expansion::{Moved, Scratch};
use crate::raidz::{RaidzColumn, RaidzMap};
use std::ops::Range;

/// Other place of a column, which holds the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// Number of the column.
    pub index: usize,
    /// Number of the place among the column's others.
    pub copy: usize,
    /// The place.
    pub column: RaidzColumn,
}

/// Places of the sectors of a block that is narrower than its vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    /// First sector.
    first: u64,
    /// Sectors of a row.
    width: usize,
    /// True when the first two columns changed places.
    is_swapped: bool,
    /// Numbers of children that the vdev has and began with.
    columns: usize,
    original: usize,
    shadows: Vec<Shadow>,
}

/// Children that a vdev has, and had when it was narrower. Which of them held a sector follows from its number: what a device got wrong before an
/// expansion was copied to others (OpenZFS: `raidz_simulate_failure`).
pub(crate) struct Children {
    columns: usize,
    original: usize,
}

impl Children {
    /// Number of them: all of every width.
    pub(crate) fn count(&self) -> usize {
        (self.original..=self.columns).sum()
    }
    /// True when the child with this number, those of today first, holds or held the column. One of today holds what is read from it, at its old place too.
    pub(crate) fn has(&self, child: usize, map: &RaidzMap, index: usize) -> bool {
        let Some(mut number) = child.checked_sub(self.columns) else { return map.columns[index].slot == child };
        for width in (self.original..self.columns).rev() {
            if number < width {
                return map.sector(index) % width as u64 == number as u64;
            }
            number -= width;
        }
        false
    }
    /// The moments at which a part of the block had been moved to one child more, for who tries sets of at most `most` devices at each of them: at
    /// every sector, at every row where these are too many, or none.
    pub(crate) fn cuts(&self, map: &RaidzMap, most: usize) -> Vec<Cut> {
        let Some((first, row)) = map.spread.as_ref().map(|spread| (spread.first, spread.width)) else { return Vec::new() };
        let (rows, sectors) = (map.rows(), map.rows() * row);
        let of_width = |width: usize| {
            let sets = sets_of(width, most);
            let is_few = |cuts: usize| cuts.saturating_mul(sets) <= CUT_SETS_MAX;
            let step = match (is_few(sectors), is_few(rows)) {
                (true, _) => 1,
                (false, true) => row,
                (false, false) => sectors,
            };
            (step..sectors).step_by(step.max(1)).map(move |number| Cut { width, sector: first + number as u64 })
        };
        (self.original + 1..=self.columns).rev().flat_map(of_width).collect()
    }
}

/// Sets of devices that are tried at most at all cuts of a block by one expansion: each takes the time of a checksum, and most such blocks are lost.
const CUT_SETS_MAX: usize = 1 << 13;

/// Number of sets of one to `most` of `from`.
fn sets_of(from: usize, most: usize) -> usize {
    let of = |count: usize| (0..count).fold(1usize, |sets, chosen| sets.saturating_mul(from - chosen) / (chosen + 1));
    (1..=most.min(from)).map(of).fold(0, usize::saturating_add)
}

/// Moment in an expansion.
pub(crate) struct Cut {
    /// Children that there are with the new one.
    pub width: usize,
    /// Number of the first sector that was not moved yet.
    sector: u64,
}

impl Cut {
    /// True when the child held the column at that moment.
    pub(crate) fn has(&self, child: usize, map: &RaidzMap, index: usize) -> bool {
        let sector = map.sector(index);
        let width = if sector < self.sector { self.width } else { self.width - 1 };
        sector % width as u64 == child as u64
    }
}

/// Facts of a vdev, and of the txg in which a block was born that is narrower.
pub(crate) struct Shape {
    pub parity: usize,
    pub ashift: u32,
    /// Columns of the block.
    pub width: usize,
    /// Numbers of children that the vdev has and began with.
    pub columns: usize,
    pub original: usize,
    /// Expansion that is under way.
    pub moved: Option<Moved>,
}

impl RaidzMap {
    /// The map of a block that is narrower than the vdev (OpenZFS: `vdev_raidz_map_alloc_expanded`). Only the last row may be shorter than the others: it is
    /// as wide for its parity, with columns of no length.
    pub(crate) fn of_spread(shape: &Shape, offset: u64, length: usize) -> RaidzMap {
        let &Shape { parity, ashift, width, columns, original, moved } = shape;
        let sectors = (length >> ashift).max(1);
        let remainder = sectors % (width - parity);
        let big = if remainder == 0 { 0 } else { remainder + parity };
        let total = sectors + parity * sectors.div_ceil(width - parity);
        let (rows, count, first) = (total.div_ceil(width), total.min(width), offset >> ashift);
        let asize = (total.next_multiple_of(parity + 1) as u64) << ashift;
        let is_swapped = parity == 1 && offset & (1 << 20) != 0;
        let (mut all, mut shadows) = (Vec::with_capacity(rows * count), Vec::new());
        for row in 0..rows {
            let start = first + (row * width) as u64;
            let is_old = moved.is_some_and(|moved| start + count as u64 > moved.synced);
            for column in 0..count {
                let is_there = row + 1 < rows || big == 0 || column < big;
                let data = match column.checked_sub(parity).filter(|_| is_there) {
                    None => 0..0,
                    Some(column) => {
                        let before = if remainder == 0 { column * rows } else { column * (rows - 1) + column.min(remainder) };
                        (before + row) << ashift..(before + row + 1) << ashift
                    }
                };
                let length = if is_there { 1 << ashift } else { 0 };
                let sector = start + swapped(is_swapped, column) as u64;
                let place = |children: usize, in_scratch: bool| {
                    let (slot, offset) = ((sector % children as u64) as usize, (sector / children as u64) << ashift);
                    RaidzColumn { slot, offset, length, padded: length, data: data.clone(), in_scratch }
                };
                let (main, others) = places(moved, is_old, sector);
                let others = others.iter().filter(|_| is_there).enumerate();
                let shadow =
                    |(copy, other): (usize, &Place)| Shadow { index: all.len(), copy, column: place(columns, *other == Place::Scratch) };
                shadows.extend(others.map(shadow));
                all.push(if main == Place::Old { place(columns - 1, false) } else { place(columns, main == Place::Scratch) });
            }
        }
        let spread = Spread { first, width, is_swapped, columns, original, shadows };
        RaidzMap { parity, width: count, columns: all, asize, spread: Some(Box::new(spread)) }
    }

    /// True for a block that is narrower than its vdev.
    pub(crate) fn is_spread(&self) -> bool {
        self.spread.is_some()
    }

    /// Other places of columns, which are written as they are.
    pub(crate) fn shadows(&self) -> &[Shadow] {
        self.spread.as_ref().map_or(&[], |spread| &spread.shadows)
    }

    /// Number of other places that columns have at most.
    pub(crate) fn copies(&self) -> usize {
        self.shadows().iter().map(|shadow| shadow.copy + 1).max().unwrap_or(0)
    }

    /// The children that may have got this block wrong; None where all its columns always lay on children of their own.
    pub(crate) fn children(&self) -> Option<Children> {
        self.spread.as_ref().map(|spread| Children { columns: spread.columns, original: spread.original })
    }

    /// Number of a column's sector in the vdev's space.
    fn sector(&self, index: usize) -> u64 {
        let Some(spread) = &self.spread else { return 0 };
        let (row, position) = (index / self.width, index % self.width);
        spread.first + (row * spread.width + swapped(spread.is_swapped, position)) as u64
    }

    /// Ranges of the block's buffer that lie one above the other in the columns of all rows: parity of these, cut into sectors, is that of the rows. None
    /// for a block that is as wide as its vdev.
    pub(crate) fn stacks(&self) -> Option<Vec<Range<usize>>> {
        self.spread.as_ref()?;
        let stack = |position: usize| {
            let bytes: usize = (0..self.rows()).map(|row| self.row(row)[position].data.len()).sum();
            let start = self.row(0)[position].data.start;
            start..start + bytes
        };
        Some((self.parity..self.width).map(stack).collect())
    }
}

/// Place in its row of a column: single parity lies on the second one's in every other mebibyte.
fn swapped(is_swapped: bool, column: usize) -> usize {
    if is_swapped && column < 2 { 1 - column } else { column }
}

/// A place of a sector: by the old number of children, by the new one, or by the new one in the boot area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Old,
    New,
    Scratch,
}

/// The place of a sector from which it is read, and others to which it is written too; without an expansion that is under way the new one.
fn places(moved: Option<Moved>, is_old: bool, sector: u64) -> (Place, &'static [Place]) {
    let Some(moved) = moved else { return (Place::New, &[]) };
    let is_copied = sector < moved.next;
    match (is_old, moved.scratch) {
        (false, Scratch::Unused) => (Place::New, &[]),
        // All that was filled is valid from the moment on in which rows count as moved.
        (false, Scratch::Filling | Scratch::Valid) => (Place::Scratch, &[]),
        (false, Scratch::Leaving) => (Place::Scratch, &[Place::New]),
        (true, _) if !is_copied => (Place::Old, &[]),
        (true, Scratch::Unused) => (Place::Old, &[Place::New]),
        (true, Scratch::Filling | Scratch::Valid) => (Place::Old, &[Place::Scratch]),
        (true, Scratch::Leaving) => (Place::Old, &[Place::Scratch, Place::New]),
    }
}
