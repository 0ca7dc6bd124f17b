//! What users did to a file system since it was mounted (OpenZFS: `dataset_kstats.c`).

use kstat::Sheet;

/// Counters of a mounted file system, bumped on every read and write without sharing cache lines between threads.
#[derive(Debug)]
pub(crate) struct DatasetCounts(Sheet);

const WRITES: usize = 0;
const READS: usize = 2;
const UNLINKS: usize = 4;
const UNLINKED: usize = 5;
pub(crate) const CELLS: usize = 6;

impl Default for DatasetCounts {
    fn default() -> Self {
        DatasetCounts(Sheet::new(CELLS))
    }
}

impl DatasetCounts {
    /// Counts a write of so many bytes.
    pub(crate) fn wrote(&self, bytes: u64) {
        let row = self.0.row();
        row.add(WRITES, 1);
        row.add(WRITES + 1, bytes);
    }
    /// Counts a read that gave so many bytes.
    pub(crate) fn read(&self, bytes: u64) {
        let row = self.0.row();
        row.add(READS, 1);
        row.add(READS + 1, bytes);
    }
    /// Counts nodes that went into the unlinked set, or were there when the file system was opened.
    pub(crate) fn unlinked(&self, nodes: u64) {
        self.0.row().add(UNLINKS, nodes);
    }
    /// Counts a node of the unlinked set that was deleted.
    pub(crate) fn drained(&self) {
        self.0.row().add(UNLINKED, 1);
    }
    /// Returns the counters: `writes nwritten reads nread nunlinks nunlinked`.
    pub(crate) fn all(&self) -> [u64; CELLS] {
        std::array::from_fn(|cell| self.0.get(cell))
    }
}
