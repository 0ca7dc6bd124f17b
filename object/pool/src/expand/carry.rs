//! Moving sectors of a RAID-Z vdev from their places by one number of children to those by another. No checksum tells what is right: only devices that have
//! everything are read (OpenZFS: `raidz_reflow_impl`, `raidz_reflow_scratch_sync`).

use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::{Completion, completion};
use std::ops::Range;
use vdev::{BOOT_BYTES, LABEL_START_BYTES, LeafId, TopVdev, VdevTree};
use zio::{LeafRequest, Priority, Zio};

/// Places of sectors, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// On the children that there were before.
    Old,
    /// On all children.
    New,
    /// On all children, in their boot areas.
    Scratch,
}

/// Run of sectors on one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    child: usize,
    /// First row.
    row: u64,
    /// Number of rows.
    rows: u64,
}

impl Site {
    fn children(self, columns: usize) -> usize {
        if self == Site::Old { columns - 1 } else { columns }
    }

    /// Runs of the sectors, one for each child that has some: number `n` begins with the `n`th sector.
    fn runs(self, columns: usize, sectors: &Range<u64>) -> Vec<Run> {
        let children = self.children(columns) as u64;
        let count = sectors.end - sectors.start;
        let run = |number: u64| {
            let first = sectors.start + number;
            Run { child: (first % children) as usize, row: first / children, rows: (count - number).div_ceil(children) }
        };
        (0..children.min(count)).map(run).collect()
    }

    fn device_offset(self, row: u64, ashift: u32) -> u64 {
        (row << ashift) + LABEL_START_BYTES - if self == Site::Scratch { BOOT_BYTES } else { 0 }
    }
}

/// Moves sectors of `top`, and waits until all is written.
///
/// # Errors
/// That of a device that failed: then all of it counts as not moved.
pub(super) fn carry(
    zio: &Zio,
    (tree, top): (&VdevTree, &TopVdev),
    sectors: &Range<u64>,
    (from, to): (Site, Site),
) -> Result<(), DeviceError> {
    let (columns, ashift) = (top.columns(), top.ashift);
    let start = |site: Site, run: &Run, op: DeviceOp| -> Result<Completion<Result<Abd, DeviceError>>, DeviceError> {
        let leaf = leaf_of(tree, top, run.child)?;
        let (done, wait) = completion();
        let offset = site.device_offset(run.row, ashift);
        let request = LeafRequest { leaf: tree.leaf(leaf).guid, offset, op, priority: Priority::Removal, speculative: false };
        zio.leaf_io(request, Box::new(move |result| done.complete(result)));
        Ok(wait)
    };
    let sources = from.runs(columns, sectors);
    let begun: Vec<_> = sources.iter().map(|run| start(from, run, DeviceOp::read((run.rows << ashift) as usize))).collect();
    let results: Vec<_> = begun.into_iter().map(|read| read.and_then(|wait| wait.wait(zio.exec()))).collect();
    let read = results.into_iter().collect::<Result<Vec<Abd>, DeviceError>>()?;
    let sector = |number: u64| {
        let (source, row) = (number as usize % read.len(), number / read.len() as u64);
        read[source].slice((row << ashift) as usize..((row + 1) << ashift) as usize)
    };
    let targets = to.runs(columns, sectors);
    let stride = to.children(columns) as u64;
    let gathered = |(number, run): (usize, &Run)| {
        let parts: Vec<Abd> = (0..run.rows).map(|row| sector(number as u64 + row * stride)).collect();
        start(to, run, DeviceOp::Write(Abd::gang(&parts).to_contiguous()))
    };
    let begun: Vec<_> = targets.iter().enumerate().map(gathered).collect();
    // Also of those that failed: nobody may go on while somebody still writes.
    let results: Vec<_> = begun.into_iter().map(|write| write.and_then(|wait| wait.wait(zio.exec()))).collect();
    results.into_iter().try_for_each(|result| result.map(drop))
}

/// The one leaf of a child.
fn leaf_of(tree: &VdevTree, top: &TopVdev, child: usize) -> Result<LeafId, DeviceError> {
    match top.slots.get(child).map(Vec::as_slice) {
        Some(&[leaf]) if tree.leaf(leaf).state.is_usable() => Ok(leaf),
        _ => Err(DeviceError::Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, sectors are moved to where nobody looks for them, or not at all.
    #[test]
    fn runs_have_every_sector_once() {
        for columns in 3..9 {
            for site in [Site::Old, Site::New] {
                let children = site.children(columns) as u64;
                for (start, count) in [(0, 1), (5, 2), (7, 40), (100, children), (3, children - 1)] {
                    let mut found = Vec::new();
                    for (number, run) in site.runs(columns, &(start..start + count)).iter().enumerate() {
                        assert_eq!(run.row * children + run.child as u64, start + number as u64);
                        found.extend((0..run.rows).map(|row| (run.row + row) * children + run.child as u64));
                    }
                    found.sort_unstable();
                    assert_eq!(found, (start..start + count).collect::<Vec<_>>(), "{columns} columns, {site:?}, {count} from {start}");
                }
            }
        }
    }

    #[test]
    fn the_boot_area_is_before_the_allocatable_space() {
        assert_eq!(Site::Scratch.device_offset(0, 12), 512 << 10);
        assert_eq!(Site::New.device_offset(2, 12), (4 << 20) + 8192);
    }
}
