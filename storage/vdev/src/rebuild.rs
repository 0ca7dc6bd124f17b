//! Sequential rebuild as a state machine: a part of a mirror's or dRAID's address space, whatever blocks are in it, is read from
//! leaves that have it and written to those that lack it (OpenZFS: `vdev_rebuild.c`, `vdev_mirror_rebuild_asize`,
//! `vdev_draid_rebuild_asize`).
//!
//! There is no checksum to judge by. So only a leaf that lacks nothing, by its dirty time log, is believed. One that lacks some txgs
//! holds something else there, which would be written over what newer writes brought: where it would be needed, the part is left to a
//! resilver, which sees block pointers (OpenZFS believes it: `vdev_rebuild_blkptr_init`).

use crate::areas::LABEL_START_BYTES;
use crate::{ComputedRow, LeafId, LeafIo, LostRow, Part, RaidzColumn, RaidzMap, Repair, TopKind, TopVdev, VdevTree, math};
use abd::Abd;

/// Largest block, and so the largest part that is read at once (OpenZFS: `SPA_MAXBLOCKSIZE`).
const PART_BYTES_MAX: u64 = 16 << 20;

/// Most leaves that can be spared: one column of at most three more than are needed is lost.
const SPARED_MAX: usize = 2;

/// Leaves that are read only if others do not do.
pub type Spared = [Option<LeafId>; SPARED_MAX];

/// A leaf that holds a column.
#[derive(Clone, Copy, Debug)]
struct Holder {
    leaf: LeafId,
    /// True when the leaf lacks nothing, and is read from; all others are written to.
    is_whole: bool,
    failed: bool,
}

#[derive(Debug)]
struct Column {
    /// Holders of the column, whole ones first.
    holders: Vec<Holder>,
    offset: u64,
    length: usize,
    bytes: Option<Abd>,
}

/// Leaves that take part in rebuilding an address of a vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildNeed {
    /// Leaves to read from, one for each column that some whole leaf has: data before parity.
    pub sources: Vec<LeafId>,
    /// Number of sources that are read.
    pub wanted: usize,
    /// Leaves that are written.
    pub targets: Vec<LeafId>,
}

/// Step to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildStep {
    /// Issue these reads, then call [`RebuildJob::complete`] with their results in this order.
    Issue(Vec<LeafIo>),
    /// Write these repairs, and that is all.
    Done(Vec<Repair>),
    /// The part can't be computed from what whole leaves have.
    Lost,
}

/// The rebuild of one part of a top-level vdev.
#[derive(Debug)]
pub struct RebuildJob {
    map: RaidzMap,
    columns: Vec<Column>,
    pending: Vec<(usize, LeafId)>,
    /// Read only if others do not do.
    spared: Spared,
    /// Columns of the row that somebody else computed.
    computed: Option<ComputedRow>,
}

impl TopVdev {
    /// True when the vdev can be rebuilt by its space maps: where a block lies does not depend on its size.
    pub fn can_rebuild(&self) -> bool {
        self.is_concrete() && !matches!(self.kind, TopKind::Raidz(_))
    }

    /// Allocated bytes of the part to be rebuilt at once that begins at `start` of `size_bytes` allocated ones; `segment_bytes` are
    /// to be read of a leaf at most.
    pub fn rebuild_part(&self, start: u64, size_bytes: u64, segment_bytes: u64) -> u64 {
        let sector = 1u64 << self.ashift;
        let segment = segment_bytes.clamp(sector, PART_BYTES_MAX).next_multiple_of(sector);
        let TopKind::Draid(config) = self.kind else { return size_bytes.min(segment) };
        let data = config.data() as u64;
        let stripes = ((segment * data).min(PART_BYTES_MAX) / (data << self.ashift)).max(1);
        let left = self.draid.as_ref().map_or(size_bytes, |draid| draid.left_in_group(start));
        size_bytes.min(stripes * config.stripe_bytes(self.ashift)).min(left)
    }

    /// Allocated bytes after which other children take part, or the same ones in other roles: a group of a dRAID vdev. None where the
    /// address makes no difference.
    pub fn rebuild_stride(&self) -> Option<u64> {
        let TopKind::Draid(config) = self.kind else { return None };
        Some(config.group_bytes())
    }

    /// Allocated bytes that all children have an equal part of: a slice of a dRAID vdev. None elsewhere.
    pub fn rebuild_slice(&self) -> Option<u64> {
        let TopKind::Draid(config) = self.kind else { return None };
        Some(config.slice_bytes())
    }

    /// Leaves that take part in rebuilding what lies at `offset`, up to the next multiple of the stride; None when no usable leaf lacks it.
    pub fn rebuild_need(&self, tree: &VdevTree, offset: u64) -> Option<RebuildNeed> {
        let map = self.part_map(offset, self.extent_unit());
        let columns: Vec<Column> = map.columns.iter().map(|column| Column::new(tree, self, column)).collect();
        let targets: Vec<LeafId> = columns.iter().flat_map(Column::targets).map(|holder| holder.leaf).collect();
        let data_first = (map.parity..map.width).chain(0..map.parity);
        let sources = data_first.filter_map(|index| columns.get(index)?.source()).collect();
        (!targets.is_empty()).then(|| RebuildNeed { sources, wanted: map.width - map.parity, targets })
    }

    /// Allocated bytes of a part, for each byte that is read of a device.
    pub fn rebuild_width(&self) -> usize {
        if let TopKind::Draid(config) = self.kind { config.width() } else { 1 }
    }

    /// The columns of `asize` allocated bytes at `offset`: of whole stripes of one group on dRAID, of the leaf's space elsewhere.
    pub(crate) fn part_map(&self, offset: u64, asize: u64) -> RaidzMap {
        match (&self.kind, &self.draid) {
            (TopKind::Draid(config), Some(draid)) => {
                let stripes = asize / config.stripe_bytes(self.ashift);
                draid.block_map(self.ashift, offset, (stripes as usize * config.data()) << self.ashift)
            }
            _ => {
                let length = asize as usize;
                let column = RaidzColumn { slot: 0, offset, length, padded: length, data: 0..length, in_scratch: false };
                RaidzMap { parity: 0, width: 1, columns: vec![column], asize, spread: None }
            }
        }
    }
}

impl RebuildJob {
    /// Starts rebuilding `asize` bytes at `offset` of `top` (one of `tree`'s): a part that [`TopVdev::rebuild_part`] gave. None when
    /// no usable leaf lacks anything of it. `spared` leaves are read only if others do not do.
    pub fn start(tree: &VdevTree, top: &TopVdev, (offset, asize): (u64, u64), spared: Spared) -> Option<(RebuildJob, RebuildStep)> {
        let map = top.part_map(offset, asize);
        let columns: Vec<Column> = map.columns.iter().map(|column| Column::new(tree, top, column)).collect();
        let needed = columns.iter().flat_map(|column| &column.holders).any(|holder| !holder.is_whole);
        if !needed || map.rows() != 1 {
            return None;
        }
        let mut job = RebuildJob { map, columns, pending: Vec::new(), spared, computed: None };
        let step = job.advance();
        Some((job, step))
    }

    /// Takes the results of the reads issued last (None = the device failed).
    pub fn complete(&mut self, results: Vec<Option<Abd>>) -> RebuildStep {
        self.take(results);
        self.go_on(None)
    }

    /// The first half of [`RebuildJob::complete`]: then comes [`RebuildJob::go_on`], perhaps with what somebody else computed of
    /// [`RebuildJob::lost_row`].
    pub fn take(&mut self, results: Vec<Option<Abd>>) {
        let pending = std::mem::take(&mut self.pending);
        let mut results = results.into_iter();
        for (index, leaf) in pending {
            let column = &mut self.columns[index];
            match results.next().flatten().filter(|bytes| bytes.len() == column.length) {
                Some(bytes) => column.bytes = Some(bytes),
                None => column.holders.iter_mut().filter(|holder| holder.leaf == leaf).for_each(|holder| holder.failed = true),
            }
        }
    }

    /// The row, when enough of it was read and columns of it are to be computed now.
    pub fn lost_row(&self) -> Option<LostRow> {
        let parity = self.map.parity;
        if self.have() < self.map.width - parity {
            return None;
        }
        let data: Vec<Option<Abd>> = self.columns[parity..].iter().map(|column| column.bytes.clone()).collect();
        let wants = |index: &usize| self.columns[*index].bytes.is_none() && self.columns[*index].targets().next().is_some();
        let wanted_parity: Vec<usize> = (0..parity).filter(wants).collect();
        let is_lacking = data.iter().any(Option::is_none) || !wanted_parity.is_empty();
        is_lacking.then(|| LostRow {
            row: 0,
            parities: parity,
            parity: (0..parity).filter_map(|index| Some((index, self.columns[index].bytes.clone()?))).collect(),
            data,
            lengths: self.columns[parity..].iter().map(|column| column.length).collect(),
            wanted_parity,
        })
    }

    /// The second half of [`RebuildJob::complete`]. There is no checksum to judge `computed` by: whoever gives it has to.
    pub fn go_on(&mut self, computed: Option<ComputedRow>) -> RebuildStep {
        self.computed = computed.filter(|row| self.has_form(row));
        self.advance()
    }

    /// True for columns of the lengths that this row has.
    fn has_form(&self, row: &ComputedRow) -> bool {
        let parity = self.map.parity;
        let lengths = self.columns[parity..].iter().map(|column| column.length);
        let is_parity = |(number, bytes): &(usize, Abd)| *number < parity && bytes.len() == self.columns[*number].length;
        row.data.iter().map(Abd::len).eq(lengths) && row.parity.iter().all(is_parity)
    }

    fn have(&self) -> usize {
        self.columns.iter().filter(|column| column.bytes.is_some()).count()
    }

    /// Reads as many columns as there are data columns, data before parity and spared leaves last; then computes.
    fn advance(&mut self) -> RebuildStep {
        let wanted = self.map.width - self.map.parity;
        let data_first = (self.map.parity..self.map.width).chain(0..self.map.parity);
        let have = self.have();
        let readable = |index: &usize| self.columns[*index].bytes.is_none() && self.columns[*index].source().is_some();
        let mut next: Vec<usize> = data_first.filter(readable).collect();
        next.sort_by_key(|index| self.spared.contains(&self.columns[*index].source()));
        next.truncate(wanted.saturating_sub(have));
        match have + next.len() {
            _ if have >= wanted => self.solve(),
            reachable if reachable >= wanted => self.issue(&next),
            _ => RebuildStep::Lost,
        }
    }

    fn issue(&mut self, wanted: &[usize]) -> RebuildStep {
        let mut ios = Vec::with_capacity(wanted.len());
        for &index in wanted {
            let column = &self.columns[index];
            let Some(leaf) = column.source() else { continue };
            self.pending.push((index, leaf));
            let part = self.map.parity_index(index).map_or_else(|| Part::Data(self.map.columns[index].data.clone()), Part::Parity);
            ios.push(LeafIo { leaf, offset: column.offset, length: column.length, part, column: index as u32 });
        }
        RebuildStep::Issue(ios)
    }

    /// Computes the columns that were not read, and says who gets which.
    fn solve(&self) -> RebuildStep {
        let parity = self.map.parity;
        let whole = |column: &Column| column.bytes.as_ref().map(Abd::to_contiguous);
        let known: Vec<Option<Abd>> = self.columns[parity..].iter().map(whole).collect();
        let lengths: Vec<usize> = self.columns[parity..].iter().map(|column| column.length).collect();
        let given: Vec<(usize, Abd)> = (0..parity).filter_map(|index| Some((index, whole(&self.columns[index])?))).collect();
        let data = match &self.computed {
            _ if known.iter().all(Option::is_some) => Some(known.into_iter().flatten().collect()),
            Some(row) => Some(row.data.iter().map(Abd::to_contiguous).collect()),
            None => math::solve(&known, &lengths, &given),
        };
        let Some(data) = data else { return RebuildStep::Lost };
        let given_parity = |index: usize| {
            let mut computed = self.computed.iter().flat_map(|row| &row.parity);
            computed.find(|(number, _)| *number == index).map(|(_, bytes)| bytes)
        };
        let wants = |index: usize| self.columns[index].bytes.is_none() && self.columns[index].targets().next().is_some();
        let is_missing = (0..parity).any(|index| wants(index) && given_parity(index).is_none());
        let generated = if is_missing { math::generate(&data, parity, self.map.parity_length(0)) } else { Vec::new() };
        let mut repairs = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let read = column.bytes.as_ref();
            let parity_bytes = || given_parity(index).or_else(|| generated.get(index));
            let bytes = read.or_else(|| if index < parity { parity_bytes() } else { data.get(index - parity) });
            let Some(bytes) = bytes else { continue };
            repairs.extend(column.targets().map(|holder| Repair {
                leaf: holder.leaf,
                offset: column.offset,
                data: bytes.clone(),
                corrupt: false,
            }));
        }
        RebuildStep::Done(repairs)
    }
}

impl Column {
    fn new(tree: &VdevTree, top: &TopVdev, column: &RaidzColumn) -> Column {
        let mut holders = Vec::with_capacity(2);
        top.each_holder(tree, column.slot, column.offset, &mut |leaf, chain| {
            if chain.iter().all(|&link| tree.leaf(link).state.is_usable()) {
                let is_whole = chain.iter().all(|&link| tree.leaf(link).missing_txgs.is_empty());
                holders.push(Holder { leaf, is_whole, failed: false });
            }
        });
        holders.sort_by_key(|holder| !holder.is_whole);
        // Whole leaves of a mirror take turns.
        let whole = holders.iter().filter(|holder| holder.is_whole).count();
        if whole > 1 {
            let turn = (column.offset / PART_BYTES_MAX) as usize % whole;
            holders[..whole].rotate_left(turn);
        }
        Column { holders, offset: column.offset + LABEL_START_BYTES, length: column.padded, bytes: None }
    }

    /// The leaves that lack it.
    fn targets(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| !holder.is_whole)
    }

    /// The leaf to read from next.
    fn source(&self) -> Option<LeafId> {
        self.holders.iter().find(|holder| !holder.failed && holder.is_whole).map(|holder| holder.leaf)
    }
}
