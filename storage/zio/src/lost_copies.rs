//! Whole copies of a block that could not be read, written again from the one that could; their parity by an accelerator where it is asked to
//! and able to.

use crate::batch::LeafOp;
use crate::core::Core;
use crate::leaf_ops::pad;
use abd::Abd;
use device::DeviceOp;
use ondisk::{Dva, Txg};
use vdev::{ComputedRow, LostRow, Piece, VdevTree, WritePlan};

/// A copy to be written.
pub(crate) struct LostCopy {
    plan: WritePlan,
    /// The block, padded as the plan wants it.
    data: Abd,
}

/// The copies at `lost`, of a block that was born in `birth`, that have a place on the devices there are now; one that was on a removed vdev may
/// lie in several pieces.
pub(crate) fn plan((core, tree): (&Core, &VdevTree), lost: &[Dva], birth: Txg, data: &Abd) -> Vec<LostCopy> {
    lost.iter().filter_map(|dva| copies_at((core, tree), dva, birth, data)).flatten().collect()
}

/// The copy at an address, in the pieces in which it lies; None when it has no place.
pub(crate) fn copies_at((core, tree): (&Core, &VdevTree), dva: &Dva, birth: Txg, data: &Abd) -> Option<Vec<LostCopy>> {
    let top = tree.addressed(dva.vdev).filter(|top| top.accepts(dva.offset, data.len() as u64, birth))?;
    if !top.is_removed() {
        let plan = WritePlan::new(tree, top, dva.offset, data.len(), birth);
        if plan.has_shadows() {
            core.shadowed.note(dva.vdev, dva.offset..dva.offset + top.asize_at(data.len() as u64, birth));
        }
        let data = pad(data, plan.length);
        return Some(vec![LostCopy { plan, data }]);
    }
    let padded = pad(data, top.padded_psize(data.len()));
    let pieces = tree.places(&Dva { asize: padded.len() as u64, gang: false, ..*dva }, &mut |_, _| ())?;
    let piece = |piece: &Piece| {
        let (first, length) = (piece.at as usize, piece.place.asize as usize);
        // Contents of removed vdevs are never copied to one with parity.
        let top = tree.top(piece.place.vdev).filter(|top| top.parity() == 0 && top.padded_psize(length) == length)?;
        let plan = WritePlan::new(tree, top, piece.place.offset, length, birth);
        Some(LostCopy { plan, data: padded.slice(first..first + length) })
    };
    pieces.iter().map(piece).collect()
}

/// Calls `then` with the writes of all columns of `copies`, of whose block an accelerator may see something or not.
pub(crate) fn rewrite<F>(core: &Core, copies: Vec<LostCopy>, may_leave: bool, then: F)
where
    F: FnOnce(Vec<LeafOp>) + Send + 'static,
{
    let mut rows: Vec<LostRow> = Vec::new();
    if may_leave && core.stages.reconstructs() {
        rows.extend(copies.iter().flat_map(LostCopy::rows));
        rows.iter_mut().enumerate().for_each(|(number, row)| row.row = number);
    }
    core.stages.solve(rows, move |computed| {
        let (mut ops, mut first) = (Vec::new(), 0);
        for copy in copies {
            let count = copy.plan.rows().count();
            let parity = copy.given(&computed, first).unwrap_or_else(|| copy.plan.parity(&copy.data));
            first += count;
            ops.extend(copy.plan.ios.iter().map(|io| {
                let op = DeviceOp::Write(copy.plan.payload(io, &copy.data, &parity));
                LeafOp { leaf: io.leaf, offset: io.offset, op }
            }));
        }
        then(ops);
    });
}

impl LostCopy {
    /// Rows of the copy, with all data and no parity, still without their numbers.
    fn rows(&self) -> impl Iterator<Item = LostRow> + '_ {
        self.plan.rows().map(|row| LostRow {
            row: 0,
            parities: row.parity,
            parity: Vec::new(),
            lengths: row.data.iter().map(ExactSizeIterator::len).collect(),
            data: row.data.into_iter().map(|range| Some(self.data.slice(range))).collect(),
            wanted_parity: (0..row.parity).collect(),
        })
    }

    /// The parity columns, row after row, if all rows from the number `first` on were computed.
    fn given(&self, computed: &[ComputedRow], first: usize) -> Option<Vec<Abd>> {
        let mut parity = Vec::new();
        for (index, row) in self.plan.rows().enumerate() {
            let computed = computed.iter().find(|computed| computed.row == first + index)?;
            parity.extend(computed.parity.iter().map(|(_, bytes)| bytes.clone()).filter(|bytes| bytes.len() == row.parity_bytes));
            (parity.len() == (index + 1) * row.parity).then_some(())?;
        }
        Some(parity)
    }
}
