//! Planning a block's write: which leaf gets which bytes, and what it means when some of them fail.

use crate::{LeafId, RaidzColumn, RaidzMap, TopVdev, VdevTree, math};
use abd::Abd;
use ondisk::Txg;
use std::ops::Range;

/// Content of one leaf I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Range of bytes of the block's (padded) buffer, and zeros up to the I/O's length.
    Data(Range<usize>),
    /// The parity column with this number.
    Parity(usize),
}

/// One I/O to one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafIo {
    /// Leaf to write to.
    pub leaf: LeafId,
    /// Device offset in bytes, the labels at the start included.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// Content of the I/O.
    pub part: Part,
    /// The slot (column) that it belongs to.
    pub(crate) column: u32,
}

/// Outcome of a write by the results of its I/Os.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Every leaf of the vdev has its part.
    Complete,
    /// The block is readable, but these leaves lack it (their DTL grows by the txg).
    Degraded(Vec<LeafId>),
    /// Too many parts were not written.
    Lost,
}

/// One row of a block, as what computes its parity needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityRow {
    /// Number of parity columns.
    pub parity: usize,
    /// Length of each of these, in bytes.
    pub parity_bytes: usize,
    /// Ranges of the data columns in the (padded) buffer, in bytes.
    pub data: Vec<Range<usize>>,
}

/// The leaf writes of one block on one top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// I/Os to write, usable leaves only.
    pub ios: Vec<LeafIo>,
    /// Length of the buffer that the plan is for: the block padded with zeros to whole sectors.
    pub length: usize,
    /// Leaves that can't be written now.
    pub skipped: Vec<LeafId>,
    map: Option<RaidzMap>,
    /// Columns with no I/O at all.
    dead_columns: Vec<u32>,
}

impl WritePlan {
    /// Plans the write of `psize` bytes at `offset` of `top`, of a block that is born in `birth`. The buffer to write is [`WritePlan::length`] bytes
    /// long.
    pub fn new(tree: &VdevTree, top: &TopVdev, offset: u64, psize: usize, birth: Txg) -> WritePlan {
        let length = top.padded_psize(psize);
        let mut plan = WritePlan { ios: Vec::new(), length, skipped: Vec::new(), map: None, dead_columns: Vec::new() };
        if top.parity() == 0 {
            if !top.slots.is_empty() {
                let column = RaidzColumn { slot: 0, offset, length, padded: length, data: 0..length, in_scratch: false };
                plan.add_column(tree, top, &column, 0, &Part::Data(0..length));
            }
            return plan;
        }
        let map = RaidzMap::new(top, offset, length, birth);
        plan.ios.reserve_exact(map.columns.len());
        let part = |index: usize| map.parity_index(index).map_or_else(|| Part::Data(map.columns[index].data.clone()), Part::Parity);
        for (index, column) in map.columns.iter().enumerate().filter(|(_, column)| column.padded > 0) {
            plan.add_column(tree, top, column, index, &part(index));
        }
        // What is being moved is written to all its places: each is a copy of the block for itself.
        for shadow in map.shadows() {
            let number = shadow.index + (shadow.copy + 1) * map.columns.len();
            plan.add_column(tree, top, &shadow.column, number, &part(shadow.index));
        }
        plan.map = Some(map);
        plan
    }

    fn add_column(&mut self, tree: &VdevTree, top: &TopVdev, column: &RaidzColumn, index: usize, part: &Part) {
        let before = self.ios.len();
        let (offset, length) = (column.device_offset(), column.padded);
        top.each_holder(tree, column.slot, column.offset, &mut |leaf, chain| match chain
            .iter()
            .find(|&&link| !tree.leaf(link).state.is_usable())
        {
            None => self.ios.push(LeafIo { leaf, offset, length, part: part.clone(), column: index as u32 }),
            Some(&unusable) => self.skipped.push(unusable),
        });
        if self.ios.len() == before {
            self.dead_columns.push(index as u32);
        }
    }

    /// The parity columns of `data` ([`WritePlan::length`] bytes), row after row; empty unless the vdev is RAID-Z or dRAID.
    pub fn parity(&self, data: &Abd) -> Vec<Abd> {
        let Some(map) = &self.map else { return Vec::new() };
        if let Some(stacks) = map.stacks() {
            let columns: Vec<Abd> = stacks.into_iter().map(|range| data.slice(range).to_contiguous()).collect();
            let sector = map.parity_length(0);
            let whole = math::generate(&columns, map.parity, sector * map.rows());
            let row = |row: usize| whole.iter().map(move |column| column.slice(row * sector..(row + 1) * sector));
            return (0..map.rows()).flat_map(row).collect();
        }
        let row = |row| math::generate(&columns(map, row, data), map.parity, map.parity_length(row));
        if map.rows() == 1 { row(0) } else { (0..map.rows()).flat_map(row).collect() }
    }

    /// The rows, in the order of [`WritePlan::parity`]'s columns; none unless the vdev is RAID-Z or dRAID.
    pub fn rows(&self) -> impl Iterator<Item = ParityRow> + '_ {
        self.map.iter().flat_map(|map| {
            (0..map.rows()).map(|row| {
                let data = map.data_columns(row).iter().map(|column| column.data.clone()).collect();
                ParityRow { parity: map.parity, parity_bytes: map.parity_length(row), data }
            })
        })
    }

    /// The parity columns and the Fletcher-4 of `data` in one pass over it; None unless the vdev is RAID-Z or dRAID and the
    /// block one row ([`TopVdev::is_one_row`]).
    pub fn parity_with_fletcher4(&self, data: &Abd) -> Option<(Vec<Abd>, [u64; 4])> {
        let map = self.map.as_ref().filter(|map| map.rows() == 1)?;
        if data.is_unstable() {
            let columns: Vec<Abd> = map.data_columns(0).iter().map(|column| data.slice(column.data.clone())).collect();
            return Some(math::generate_unstable(&columns, map.parity, map.parity_length(0)));
        }
        Some(math::generate_with_fletcher4(&columns(map, 0, data), map.parity, map.parity_length(0)))
    }

    /// True when a part of the block is written to more than one place, as its vdev is being expanded.
    pub fn has_shadows(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.copies() > 0)
    }

    /// Bytes that `io` writes, of `data` and its `parity`.
    pub fn payload(&self, io: &LeafIo, data: &Abd, parity: &[Abd]) -> Abd {
        match &io.part {
            Part::Parity(index) => parity[*index].clone(),
            Part::Data(range) if range.is_empty() => Abd::zeroed(io.length),
            Part::Data(range) if range.len() < io.length => Abd::gang(&[data.slice(range.clone()), Abd::zeroed(io.length - range.len())]),
            Part::Data(range) if *range == (0..data.len()) => data.clone(),
            Part::Data(range) => data.slice(range.clone()),
        }
    }

    /// Judges the results, one for each of [`WritePlan::ios`] in order; true means written.
    pub fn assess(&self, written: &[bool]) -> WriteOutcome {
        if self.dead_columns.is_empty() && self.skipped.is_empty() && written.iter().all(|&ok| ok) {
            return WriteOutcome::Complete;
        }
        let mut lost = self.dead_columns.clone();
        let mut failed = self.skipped.clone();
        let mut index = 0;
        while index < self.ios.len() {
            let column = self.ios[index].column;
            let mut any = false;
            while index < self.ios.len() && self.ios[index].column == column {
                if written.get(index) == Some(&true) {
                    any = true;
                } else {
                    failed.push(self.ios[index].leaf);
                }
                index += 1;
            }
            if !any {
                lost.push(column);
            }
        }
        let is_lost = match &self.map {
            None => !lost.is_empty(),
            Some(map) => (0..map.rows() * (1 + map.copies()))
                .any(|row| lost.iter().filter(|&&column| column as usize / map.width == row).count() > map.parity),
        };
        if is_lost { WriteOutcome::Lost } else { WriteOutcome::Degraded(failed) }
    }
}

/// The data columns of one row of `data`, without a copy unless it is scattered.
fn columns(map: &RaidzMap, row: usize, data: &Abd) -> Vec<Abd> {
    map.data_columns(row).iter().map(|column| data.slice(column.data.clone()).to_contiguous()).collect()
}
