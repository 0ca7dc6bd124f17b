//! Reading a block as a state machine: fast path, failed devices, stale leaves, silent corruption, scrub.
//!
//! ```text
//! start ──issue──► complete ──all data there, verified──► Done (with repairs)
//!                    │  ▲
//!                    │  └── Issue: other leaves of a slot, parity, remaining columns
//!                    └── nothing left to try ──► Lost
//! ```
//! A leaf or mirror is the case of one column without parity (`Copies`): its candidates are tried one by one, all at once for
//! a scrub. For RAID-Z (`Raidz`), failed columns are solved from parity; when the result does not verify, every column is
//! read and every set of at most `parity` columns is suspected in turn. What was on a removed vdev is read where it was copied to; in several pieces
//! (`Split`) where it was copied so.

use crate::read_copies::Copies;
use crate::read_raidz::Raidz;
use crate::read_split::Split;
use crate::read_step::{Common, ComputedRow, LostRow, Mending, ReadMode, ReadStep};
use crate::{LeafId, TopVdev, VdevTree};
use abd::Abd;
use ondisk::Txg;
use std::sync::Arc;

#[derive(Debug)]
enum Machine {
    Copies(Copies),
    Raidz(Raidz),
    Split(Split),
}

/// The read of one block from one top-level vdev.
#[derive(Debug)]
pub struct ReadJob {
    common: Common,
    machine: Machine,
}

impl ReadJob {
    /// Starts reading `extent` = (offset, psize) of `top` (one of `tree`'s), a block born in `birth`. `load` orders the
    /// leaves of a mirror: smaller is preferred; equal loads are spread by offset (OpenZFS:
    /// `vdev_mirror_preferred_child_randomize`). Columns of RAID-Z on leaves with the load [`crate::SITS_OUT`] are computed from parity, and read
    /// only when that does not do.
    pub fn start(
        tree: &Arc<VdevTree>,
        top: &TopVdev,
        extent: (u64, usize),
        birth: Txg,
        mode: ReadMode,
        load: &dyn Fn(LeafId) -> u64,
    ) -> (ReadJob, ReadStep) {
        let (offset, psize) = extent;
        let mut common = Common { tree: tree.clone(), psize, length: top.padded_psize(psize), mode, birth, fletcher4: None };
        let (machine, step) = if top.is_removed() {
            let pieces = tree.pieces_of(top, offset, psize).unwrap_or_default();
            match (&pieces[..], pieces.first().and_then(|piece| tree.top(piece.place.vdev))) {
                ([piece], Some(top)) => {
                    common.birth = piece.birth;
                    let (copies, step) = Copies::start(&common, top, piece.place.offset, load);
                    (Machine::Copies(copies), step)
                }
                _ => {
                    let (split, step) = Split::start(&common, &pieces, load);
                    (Machine::Split(split), step)
                }
            }
        } else if top.parity() == 0 {
            let (copies, step) = Copies::start(&common, top, offset, load);
            (Machine::Copies(copies), step)
        } else {
            let (raidz, step) = Raidz::start(&common, top, offset, load);
            (Machine::Raidz(raidz), step)
        };
        (ReadJob { common, machine }, step)
    }

    /// Says that the block's checksum is Fletcher-4 of its bytes as little-endian words: a scrub of RAID-Z then verifies data
    /// and parity in one pass.
    pub fn expect_fletcher4(&mut self, sum: [u64; 4]) {
        self.common.fletcher4 = Some(sum);
    }

    /// Takes the results of the I/Os issued last (None = the device failed). `verify` judges the block's bytes.
    pub fn complete(&mut self, results: Vec<Option<Abd>>, verify: &mut dyn FnMut(&Abd) -> bool) -> ReadStep {
        match &mut self.machine {
            Machine::Copies(copies) => copies.complete(&self.common, results, verify),
            Machine::Split(split) => split.complete(&self.common, results, verify),
            Machine::Raidz(raidz) => {
                raidz.take(results);
                raidz.proceed(&self.common, verify)
            }
        }
    }

    /// The first half of [`ReadJob::complete`]: takes the results, and says which rows have columns to be computed before the block is
    /// whole. Then comes [`ReadJob::go_on`]. Gives the results back when there is nothing to compute: then comes [`ReadJob::complete`].
    ///
    /// # Errors
    /// The results.
    pub fn to_compute(&mut self, results: Vec<Option<Abd>>) -> Result<Vec<LostRow>, Vec<Option<Abd>>> {
        let Machine::Raidz(raidz) = &mut self.machine else { return Err(results) };
        if results.iter().all(Option::is_some) && !raidz.lacks_columns() {
            return Err(results);
        }
        raidz.take(results);
        Ok(raidz.lost_rows(&self.common))
    }

    /// The columns of a block that is to be resilvered, before anything of it was read; None when it has more than one row, or zeros behind its
    /// columns, or is read from leaves that may lack it, or nothing is lacking.
    pub fn mending(&self) -> Option<Mending> {
        match &self.machine {
            Machine::Copies(_) | Machine::Split(_) => None,
            Machine::Raidz(raidz) => raidz.mending(&self.common),
        }
    }

    /// The second half. `computed` are rows that somebody else computed; they are believed when the block verifies with their data, and
    /// forgotten otherwise. Nothing judges their parity: with none of them, again, comes what software says.
    pub fn go_on(&mut self, computed: Vec<ComputedRow>, verify: &mut dyn FnMut(&Abd) -> bool) -> ReadStep {
        match &mut self.machine {
            Machine::Copies(copies) => copies.complete(&self.common, Vec::new(), verify),
            Machine::Split(split) => split.complete(&self.common, Vec::new(), verify),
            Machine::Raidz(raidz) => raidz.go_on(&self.common, computed, verify),
        }
    }
}
