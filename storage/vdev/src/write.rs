//! Planning a block's write: which leaf gets which bytes, and what it means when some of them fail.

use crate::size::LABEL_START_BYTES;
use crate::{LeafId, RaidzMap, TopVdev, VdevTree, math};
use abd::Abd;
use std::ops::Range;

/// What one leaf I/O carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// These bytes of the block's (padded) buffer.
    Data(Range<usize>),
    /// The parity column with this number.
    Parity(usize),
}

/// One I/O to one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafIo {
    /// The leaf.
    pub leaf: LeafId,
    /// Device offset in bytes, the labels at the start included.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// What it carries.
    pub part: Part,
    /// The slot (column) that it belongs to.
    pub(crate) column: u32,
}

/// What the results of a write amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Every leaf of the vdev has its part.
    Complete,
    /// The block is readable, but these leaves lack it (their DTL grows by the txg).
    Degraded(Vec<LeafId>),
    /// Too many parts were not written.
    Lost,
}

/// The leaf writes of one block on one top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// What to write, usable leaves only.
    pub ios: Vec<LeafIo>,
    /// Length of the buffer that the plan is for: the block padded with zeros to whole sectors.
    pub length: usize,
    /// Leaves that can't be written now.
    pub skipped: Vec<LeafId>,
    map: Option<RaidzMap>,
    /// Columns with no I/O at all.
    dead_columns: usize,
}

impl WritePlan {
    /// Plans the write of `psize` bytes at `offset` of `top`. The buffer to write is [`WritePlan::length`] bytes long.
    pub fn new(tree: &VdevTree, top: &TopVdev, offset: u64, psize: usize) -> WritePlan {
        let length = top.padded_psize(psize);
        let mut plan = WritePlan { ios: Vec::new(), length, skipped: Vec::new(), map: None, dead_columns: 0 };
        if top.parity() == 0 {
            let Some(slot) = top.slots.first() else { return plan };
            plan.add_column(tree, slot, 0, offset, length, &Part::Data(0..length));
            return plan;
        }
        let map = RaidzMap::new(top, offset, length);
        plan.ios.reserve_exact(map.columns.len());
        for (index, column) in map.columns.iter().enumerate() {
            let part = if index < map.parity { Part::Parity(index) } else { Part::Data(column.data.clone()) };
            plan.add_column(tree, &top.slots[column.slot], index, column.offset, column.length, &part);
        }
        plan.map = Some(map);
        plan
    }

    fn add_column(&mut self, tree: &VdevTree, slot: &[LeafId], column: usize, offset: u64, length: usize, part: &Part) {
        let before = self.ios.len();
        for &leaf in slot {
            if tree.leaf(leaf).state.is_usable() {
                let offset = offset + LABEL_START_BYTES;
                self.ios.push(LeafIo { leaf, offset, length, part: part.clone(), column: column as u32 });
            } else {
                self.skipped.push(leaf);
            }
        }
        if self.ios.len() == before {
            self.dead_columns += 1;
        }
    }

    /// The parity columns of `data` ([`WritePlan::length`] bytes), empty unless the vdev is RAID-Z.
    pub fn parity(&self, data: &Abd) -> Vec<Abd> {
        let Some(map) = &self.map else { return Vec::new() };
        math::generate(&columns(map, data), map.parity, map.parity_length())
    }

    /// The parity columns and the Fletcher-4 of `data` in one pass over it; None unless the vdev is RAID-Z.
    pub fn parity_with_fletcher4(&self, data: &Abd) -> Option<(Vec<Abd>, [u64; 4])> {
        let map = self.map.as_ref()?;
        if data.is_unstable() {
            let columns: Vec<Abd> = map.data_columns().iter().map(|column| data.slice(column.data.clone())).collect();
            return Some(math::generate_unstable(&columns, map.parity, map.parity_length()));
        }
        Some(math::generate_with_fletcher4(&columns(map, data), map.parity, map.parity_length()))
    }

    /// What `io` writes, of `data` and its `parity`.
    pub fn payload(&self, io: &LeafIo, data: &Abd, parity: &[Abd]) -> Abd {
        match &io.part {
            Part::Data(range) if *range == (0..data.len()) => data.clone(),
            Part::Data(range) => data.slice(range.clone()),
            Part::Parity(index) => parity[*index].clone(),
        }
    }

    /// Judges the results, one for each of [`WritePlan::ios`] in order; true means written.
    pub fn assess(&self, written: &[bool]) -> WriteOutcome {
        let tolerance = self.map.as_ref().map_or(0, |map| map.parity);
        if self.dead_columns == 0 && self.skipped.is_empty() && written.iter().all(|&ok| ok) {
            return WriteOutcome::Complete;
        }
        let mut lost = self.dead_columns;
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
            lost += usize::from(!any);
        }
        if lost > tolerance { WriteOutcome::Lost } else { WriteOutcome::Degraded(failed) }
    }
}

/// The data columns of `data`, without a copy unless it is scattered.
fn columns(map: &RaidzMap, data: &Abd) -> Vec<Abd> {
    map.data_columns().iter().map(|column| data.slice(column.data.clone()).to_contiguous()).collect()
}
