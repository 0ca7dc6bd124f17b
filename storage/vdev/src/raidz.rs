//! The RAID-Z map: which bytes of a block lie on which column of the vdev (OpenZFS: `vdev_raidz_map_alloc`).
//!
//! A block's sectors are dealt column by column: the first `parity` columns of the map hold parity, the others consecutive
//! slices of the data. The first `big` columns are one sector longer than the rest. The allocation is rounded up to a
//! multiple of `parity + 1` sectors; the rounding sectors are never read. Which vdev it is, and where its
//! leaves are, is not known here.

use crate::areas::{BOOT_BYTES, LABEL_START_BYTES};
use crate::spread::Spread;
use std::ops::Range;

/// One column of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidzColumn {
    /// Slot of the vdev that holds it.
    pub slot: usize,
    /// Offset in the leaf's allocatable space, in bytes.
    pub offset: u64,
    /// Length in bytes; shorter columns count as padded with zeros for parity.
    pub length: usize,
    /// Length with the zeros that are written behind the data (dRAID); `length` elsewhere.
    pub padded: usize,
    /// Range of the column in the data buffer, in bytes; empty for parity.
    pub data: Range<usize>,
    /// True when it lies in the boot area, as far before the allocatable space as that is large: see [`crate::Scratch`].
    pub in_scratch: bool,
}

impl RaidzColumn {
    /// Offset on the device, in bytes.
    pub fn device_offset(&self) -> u64 {
        self.offset + if self.in_scratch { LABEL_START_BYTES - BOOT_BYTES } else { LABEL_START_BYTES }
    }
}

/// The columns of one block: one row of RAID-Z, one or two of dRAID, as many as it has sectors in a column where RAID-Z got devices after the block was
/// born. Each row has parity of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidzMap {
    /// The first this many columns of a row are parity.
    pub parity: usize,
    /// Columns of a row.
    pub width: usize,
    /// Columns row after row: parity columns, then data columns.
    pub columns: Vec<RaidzColumn>,
    /// Allocated bytes, including the rounding sectors.
    pub asize: u64,
    /// Sectors of a block that is narrower than the vdev.
    pub(crate) spread: Option<Box<Spread>>,
}

impl RaidzMap {
    /// The map of `length` bytes (a whole number of sectors) at `offset` of a RAID-Z vdev of `width` columns.
    pub(crate) fn of_raidz((parity, width, ashift): (usize, usize, u32), offset: u64, length: usize) -> RaidzMap {
        let sector = offset >> ashift;
        let sectors = (length >> ashift).max(1);
        let first_slot = (sector % width as u64) as usize;
        let row_offset = (sector / width as u64) << ashift;
        let full_rows = sectors / (width - parity);
        let remainder = sectors % (width - parity);
        let big = if remainder == 0 { 0 } else { remainder + parity };
        let total = sectors + parity * (full_rows + usize::from(remainder != 0));
        let count = if full_rows == 0 { big } else { width };

        let mut position = 0;
        let mut columns = Vec::with_capacity(count);
        for column in 0..count {
            let wraps = first_slot + column >= width;
            let slot = if wraps { first_slot + column - width } else { first_slot + column };
            let column_offset = row_offset + if wraps { 1 << ashift } else { 0 };
            let column_length = (full_rows + usize::from(column < big)) << ashift;
            let data = if column < parity { 0..0 } else { position..position + column_length };
            position += data.len();
            columns.push(RaidzColumn {
                slot,
                offset: column_offset,
                length: column_length,
                padded: column_length,
                data,
                in_scratch: false,
            });
        }
        // Single parity would always land on the same device for power-of-two sized blocks, so OpenZFS swaps the first
        // two columns in every other mebibyte.
        if parity == 1 && offset & (1 << 20) != 0 {
            let (head, tail) = columns.split_at_mut(1);
            std::mem::swap(&mut head[0].slot, &mut tail[0].slot);
            std::mem::swap(&mut head[0].offset, &mut tail[0].offset);
        }
        RaidzMap { parity, width: columns.len(), columns, asize: (total.next_multiple_of(parity + 1) as u64) << ashift, spread: None }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.len() / self.width.max(1)
    }

    /// The columns of one row.
    pub fn row(&self, row: usize) -> &[RaidzColumn] {
        &self.columns[row * self.width..(row + 1) * self.width]
    }

    /// The data columns of one row.
    pub fn data_columns(&self, row: usize) -> &[RaidzColumn] {
        &self.row(row)[self.parity..]
    }

    /// Length of one row's parity columns: its longest column's.
    pub fn parity_length(&self, row: usize) -> usize {
        self.row(row)[0].length
    }

    /// The number of a parity column among those of all rows; None for a data column.
    pub(crate) fn parity_index(&self, column: usize) -> Option<usize> {
        let (row, position) = (column / self.width, column % self.width);
        (position < self.parity).then_some(row * self.parity + position)
    }
}
