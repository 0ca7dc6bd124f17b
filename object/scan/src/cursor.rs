//! How far a scan is: at which dataset of its list, and where in that. Plain values; who moves them, and what for, is not known here.

/// Everything of an object set before this (object, level-0 block) was visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) object: u64,
    pub(crate) block: u64,
}

/// Position of the walk: dataset, and place in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Index in the list of datasets to visit; None while the MOS is visited.
    pub(crate) dataset: Option<usize>,
    pub(crate) position: Position,
}
