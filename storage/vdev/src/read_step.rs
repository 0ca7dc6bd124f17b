//! What the machines that read a block share: what they know, what they ask for, what they end with. The machines are chosen and driven in [`crate::ReadJob`].

use crate::{LeafId, LeafIo, VdevTree};
use abd::Abd;
use ondisk::Txg;
use std::sync::Arc;

/// Load of a leaf that sits out: it is read only where the others do not do (OpenZFS: `vdev_sit_out_reads`).
pub const SITS_OUT: u64 = u64::MAX;

/// Thoroughness of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// One good copy is enough.
    #[default]
    Normal,
    /// Read every copy and all parity, and report everything that is wrong.
    Scrub,
    /// Read what is needed from leaves that have the block, and report every usable leaf that lacks it.
    Resilver,
}

/// A leaf write that restores redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Leaf to write to.
    pub leaf: LeafId,
    /// Device offset in bytes.
    pub offset: u64,
    /// Bytes to write, the right ones.
    pub data: Abd,
    /// True when the leaf returned wrong bytes (a checksum error); false when the read failed or the leaf was known to lack the block.
    pub corrupt: bool,
}

/// A successful read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// The block's bytes, verified.
    pub data: Abd,
    /// Writes that make every column right again.
    pub repairs: Vec<Repair>,
}

/// Reason why a block is lost on this top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// True when at least one combination of columns was complete but did not verify: a checksum error, else an I/O error.
    pub corrupt: bool,
    /// Leaves that returned bytes although the block did not verify; each counts a checksum error.
    pub suspects: Vec<LeafId>,
}

/// Step to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// Issue these, then call [`crate::ReadJob::complete`] with their results in this order.
    Issue(Vec<LeafIo>),
    /// The block was read.
    Done(ReadOutcome),
    /// The block can't be read from this vdev.
    Lost(ReadFailure),
}

/// Facts that the machines share: the snapshot, the sizes and how thorough to be.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) psize: usize,
    pub(crate) length: usize,
    pub(crate) mode: ReadMode,
    pub(crate) birth: Txg,
    /// Fletcher-4 that the block must have, when that is its checksum.
    pub(crate) fletcher4: Option<[u64; 4]>,
}

/// Judges the block's bytes.
pub(crate) type Verify<'a> = &'a mut dyn FnMut(&Abd) -> bool;

/// A column of a row that is to be resilvered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MendingColumn {
    /// Device offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// Leaf to read the column from; None for one that is computed, or empty.
    pub from: Option<LeafId>,
    /// Leaves that lack it.
    pub to: Vec<LeafId>,
}

/// A row of which leaves lack columns, with enough others to compute them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mending {
    /// Number of parity columns.
    pub parities: usize,
    /// Columns, parity first.
    pub columns: Vec<MendingColumn>,
}

/// A row of a block of which columns are lost, with parity enough to compute them.
#[derive(Clone, Debug)]
pub struct LostRow {
    /// Number of the row.
    pub row: usize,
    /// Number of parity columns of the row.
    pub parities: usize,
    /// The parity columns that came back, by their numbers.
    pub parity: Vec<(usize, Abd)>,
    /// The data columns; None: lost.
    pub data: Vec<Option<Abd>>,
    /// Lengths of the data columns.
    pub lengths: Vec<usize>,
    /// Numbers of parity columns that did not come back and are to be computed too.
    pub wanted_parity: Vec<usize>,
}

/// A row of which somebody computed what was lost.
#[derive(Clone, Debug)]
pub struct ComputedRow {
    /// Number of the row.
    pub row: usize,
    /// Data columns of the row, all of them.
    pub data: Vec<Abd>,
    /// The parity columns that were wanted, by their numbers.
    pub parity: Vec<(usize, Abd)>,
}
