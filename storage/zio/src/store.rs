//! Bytes that have addresses: planning their leaf writes, issuing them as one set, judging the results.

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::core::Core;
use crate::leaf_ops::pad;
use crate::snapshot::Snapshot;
use crate::{ErrorKind, Priority};
use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use ondisk::{BlockId, Bookmark, Dva, Level, Txg};
use std::sync::Arc;
use vdev::{WriteOutcome, WritePlan};

/// Copies that a pool can keep of one block (OpenZFS: `SPA_DVAS_PER_BP`).
pub(crate) const COPIES_MAX: u8 = 3;

/// Bytes to write at up to three addresses.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) data: Abd,
    pub(crate) dvas: [Dva; 3],
}

impl Store {
    fn copies(&self) -> impl Iterator<Item = &Dva> {
        self.dvas.iter().filter(|dva| !dva.is_empty())
    }
}

/// Place that a block goes to.
pub(crate) struct Placement {
    /// The addresses in the block's pointer.
    pub(crate) dvas: [Dva; 3],
    /// Stores to be written: the block itself, or the members and headers of a gang.
    pub(crate) stores: Vec<Store>,
    /// Addresses that were allocated for it, to be given back if the write fails.
    pub(crate) allocated: Vec<Dva>,
}

/// Objects whose first blocks go together, as a shift: small files that were made one after the other are written so.
const NEIGHBOURS_SHIFT: u32 = 6;

/// Hint for the allocator shard that a block goes to: neighbours of one object go together (OpenZFS: `spa_select_allocator`), and the first blocks of
/// neighbouring objects.
pub(crate) fn hint(bookmark: &Bookmark) -> u64 {
    let is_first = bookmark.level == Level(0) && bookmark.block == BlockId(0);
    let object = if is_first { bookmark.object.0 >> NEIGHBOURS_SHIFT } else { bookmark.object.0 };
    let mut z = bookmark.objset.0.rotate_left(40) ^ object ^ (bookmark.block.0 >> 20).rotate_left(20);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 31)
}

/// One copy's plan, which of the set's I/Os are its, and which store it belongs to.
struct Copy {
    store: usize,
    first: usize,
    plan: WritePlan,
}

/// Leaf writes that are ready to go.
pub(crate) struct Planned {
    stores: usize,
    copies: Vec<Copy>,
    ops: Vec<LeafOp>,
    /// True, for each copy of which parity was made elsewhere and is not trusted, when that agrees with what is written.
    pub(crate) compared: Vec<bool>,
}

/// Parity that was made elsewhere, by address.
pub(crate) struct MadeParity<'a> {
    pub(crate) columns: &'a [(Dva, Vec<Abd>)],
    /// True when it is written; otherwise it is only compared with what is.
    pub(crate) is_trusted: bool,
}

/// Plans every copy of `stores`, which are born in `birth`. With `sum` it also gives the Fletcher-4 of the first store's data, when that comes nearly
/// free because parity is computed over the same bytes. Parity that is `made` already, and trusted, is not computed again.
pub(crate) fn plan(
    (core, snapshot): (&Core, &Snapshot),
    (stores, birth): (&[Store], Txg),
    mut sum: bool,
    made: &MadeParity<'_>,
) -> (Planned, Option<[u64; 4]>) {
    let mut planned = Planned { stores: stores.len(), copies: Vec::with_capacity(stores.len()), ops: Vec::new(), compared: Vec::new() };
    let mut found = None;
    for (index, store) in stores.iter().enumerate() {
        let mut padded: Option<Abd> = None;
        for dva in store.copies() {
            let Some(top) = snapshot.view.tree.top(dva.vdev) else { continue };
            let plan = WritePlan::new(&snapshot.view.tree, top, dva.offset, store.data.len(), birth);
            if plan.has_shadows() {
                core.shadowed.note(dva.vdev, dva.offset..dva.offset + top.asize_at(store.data.len() as u64, birth));
            }
            let data = match padded.take() {
                Some(data) if data.len() == plan.length => data,
                _ => pad(&store.data, plan.length),
            };
            let given = made.columns.iter().find(|(address, _)| address == dva).map(|(_, parity)| parity);
            let trusted = given.filter(|_| made.is_trusted);
            let fused = if sum && trusted.is_none() && plan.length == store.data.len() { plan.parity_with_fletcher4(&data) } else { None };
            sum = false;
            let parity = match fused {
                Some((parity, words)) => {
                    found = Some(words);
                    parity
                }
                None => trusted.cloned().unwrap_or_else(|| plan.parity(&data)),
            };
            if let Some(given) = given.filter(|_| !made.is_trusted) {
                planned.compared.push(*given == parity);
            }
            let first = planned.ops.len();
            planned.ops.extend(plan.ios.iter().map(|io| {
                let op = DeviceOp::Write(plan.payload(io, &data, &parity));
                LeafOp { leaf: io.leaf, offset: io.offset, op }
            }));
            planned.copies.push(Copy { store: index, first, plan });
            padded = Some(data);
        }
    }
    (planned, found)
}

/// Writes what was planned; `then` gets an error when a store has no copy on disk.
pub(crate) fn write_all<F>(core: &Arc<Core>, snapshot: &Arc<Snapshot>, (txg, priority): (Txg, Priority), planned: Planned, then: F)
where
    F: FnOnce(Result<(), ErrorKind>) + Send + 'static,
{
    let Planned { stores, copies, ops, .. } = planned;
    // Thousands of a transaction group's writes end at a time: whoever waits for a read does not wait for all of them.
    let class = if priority == Priority::AsyncWrite { TaskClass::Write } else { TaskClass::Interrupt };
    let options = BatchOptions { class, priority, speculative: false };
    let (owner, view) = (core.clone(), snapshot.clone());
    batch::issue(core, snapshot, options, ops, move |results| then(judge(&owner, &view, txg, stores, &copies, &results)));
}

/// Success when every store has a copy that can be read back; leaves that lack something are noted.
fn judge(core: &Core, snapshot: &Snapshot, txg: Txg, stores: usize, copies: &[Copy], results: &[LeafResult]) -> Result<(), ErrorKind> {
    let mut alive = vec![false; stores];
    for copy in copies {
        let mine = &results[copy.first..copy.first + copy.plan.ios.len()];
        let written: Vec<bool> = mine.iter().map(Result::is_ok).collect();
        let outcome = copy.plan.assess(&written);
        if outcome != WriteOutcome::Lost {
            alive[copy.store] = true;
        }
        if outcome != WriteOutcome::Complete {
            let failed = copy.plan.ios.iter().zip(&written).filter(|(_, ok)| !**ok).map(|(io, _)| io.leaf);
            for leaf in failed.chain(copy.plan.skipped.iter().copied()) {
                core.note_missing(snapshot, leaf, txg);
            }
        }
    }
    if alive.iter().all(|&alive| alive) {
        return Ok(());
    }
    let device_error = results.iter().any(|result| matches!(result, Err(error) if *error != DeviceError::Gone));
    Err(if device_error { ErrorKind::Io } else { ErrorKind::NoDevice })
}
