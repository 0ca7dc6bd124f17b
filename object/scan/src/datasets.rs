//! Which object sets a scan visits, in which order, and where their roots are.
//!
//! Snapshots come first, oldest first, then heads. So the previous snapshot of everything visited was visited before, and each
//! dataset is responsible for what was born after its previous snapshot: every shared block is read once. When a snapshot is
//! destroyed before its turn, the next one inherits its blocks and, coming later, visits them. Snapshots taken after the scan
//! began take over from their head what it had not shown yet, so they are put in front of it.

use crate::ScanError;
use dmu::{DmuError, Objset};
use ondisk::{BlockPtr, DslDatasetPhys, ObjectId, ObjectType, Txg};
use std::collections::HashSet;
use std::sync::Arc;

/// A dataset to visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    /// False sorts first.
    pub(crate) is_head: bool,
    /// Tells datasets apart that had the same object one after the other.
    pub(crate) creation: u64,
    pub(crate) object: u64,
}

/// Root block and birth limit of a dataset to visit, as of a txg.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) bp: BlockPtr,
    /// Txg after which blocks were born that belong to the dataset, not to its previous snapshot.
    pub(crate) after: Txg,
}

/// The record of a dataset; None when the object is none.
pub(crate) fn phys(mos: &Arc<Objset>, object: u64) -> Result<Option<DslDatasetPhys>, ScanError> {
    record(mos, object)
}

fn record(mos: &Arc<Objset>, object: u64) -> Result<Option<DslDatasetPhys>, ScanError> {
    let dnode = match mos.hold(ObjectId(object)) {
        Ok(dnode) => dnode,
        Err(DmuError::NoSuchObject) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match dnode.info() {
        Ok(info) if info.bonus_type == ObjectType::DSL_DATASET => {}
        Ok(_) | Err(DmuError::NoSuchObject) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    match DslDatasetPhys::decode(&dnode.bonus()?) {
        Ok(phys) => Ok(Some(phys)),
        Err(_) => Err(ScanError::Corrupt),
    }
}

fn is_head(phys: &DslDatasetPhys) -> bool {
    phys.ds_num_children == 0
}

/// Every dataset that is older than the end of `until`, in the order of visits. A record that can't be read is left out: the
/// walk over the MOS reports it.
pub(crate) fn list(mos: &Arc<Objset>, until: Txg) -> Result<Vec<Item>, ScanError> {
    let mut items = Vec::new();
    let mut object = ObjectId(0);
    while let Some(next) = mos.next_object(object)? {
        object = next;
        if let Ok(Some((found, _))) = item(mos, object.0)
            && (found.is_head || found.creation <= until.0)
        {
            items.push(found);
        }
    }
    items.sort_unstable();
    Ok(items)
}

/// The dataset as it is now; None when there is none of this number.
fn item(mos: &Arc<Objset>, object: u64) -> Result<Option<(Item, DslDatasetPhys)>, ScanError> {
    let phys = record(mos, object)?;
    Ok(phys.map(|phys| (Item { is_head: is_head(&phys), creation: phys.ds_creation_txg, object }, phys)))
}

/// The record of a dataset on the list, unless it was destroyed.
fn still(mos: &Arc<Objset>, listed: &Item) -> Result<Option<DslDatasetPhys>, ScanError> {
    Ok(record(mos, listed.object)?.filter(|phys| phys.ds_creation_txg == listed.creation))
}

/// True when the dataset was not destroyed.
pub(crate) fn exists(mos: &Arc<Objset>, listed: &Item) -> Result<bool, ScanError> {
    Ok(still(mos, listed)?.is_some())
}

/// The txgs that the births of what is visited of a dataset lie between (OpenZFS: `scn_cur_min_txg`, `scn_cur_max_txg`).
pub(crate) fn births(mos: &Arc<Objset>, listed: &Item, until: Txg) -> Result<(u64, u64), ScanError> {
    let after = still(mos, listed)?.map_or(0, |phys| phys.ds_prev_snap_txg);
    Ok((after, if listed.is_head { until.0 } else { until.0.min(listed.creation) }))
}

/// The datasets of `rest` from which the others follow: those whose previous snapshot is not among `rest` and not `current`.
/// Each with the txg of that snapshot.
pub(crate) fn first_of(mos: &Arc<Objset>, rest: &[Item], current: Option<u64>) -> Result<Vec<(Item, u64)>, ScanError> {
    let mut found = Vec::with_capacity(rest.len());
    for listed in rest {
        if let Some(phys) = still(mos, listed)? {
            found.push((*listed, phys.ds_prev_snap_obj, phys.ds_prev_snap_txg));
        }
    }
    let there: HashSet<u64> = found.iter().map(|(listed, ..)| listed.object).chain(current).collect();
    let mut first = Vec::new();
    for (listed, previous, txg) in found {
        if !there.contains(&previous) || !leads_to(mos, previous, listed.object)? {
            first.push((listed, txg));
        }
    }
    Ok(first)
}

/// True when a snapshot names a dataset as what comes after it; in pools from before version 11 none names its clones, and upgrades by old systems could
/// leave some out (OpenZFS: `dsl_scan_visitds`).
fn leads_to(mos: &Arc<Objset>, snapshot: u64, dataset: u64) -> Result<bool, ScanError> {
    let Some(phys) = record(mos, snapshot)? else { return Ok(false) };
    match phys.ds_next_clones_obj {
        _ if phys.ds_next_snap_obj == dataset => Ok(true),
        0 => Ok(false),
        table => Ok(zap::Zap::hold(mos, ObjectId(table))?.contains_int(dataset)?),
    }
}

/// Adds what comes next after a dataset: the snapshot or head after it, and the first dataset of each clone of it.
pub(crate) fn push_next(mos: &Arc<Objset>, phys: &DslDatasetPhys, to: &mut Vec<u64>) -> Result<(), ScanError> {
    to.extend(Some(phys.ds_next_snap_obj).filter(|next| *next != 0));
    if phys.ds_next_clones_obj != 0 {
        zap::Zap::hold(mos, ObjectId(phys.ds_next_clones_obj))?.for_each(|clone| {
            to.push(clone.first_integer);
            Ok(())
        })?;
    }
    Ok(())
}

/// The datasets `seeds` and all that follow from them: next snapshots, heads and clones.
pub(crate) fn following(mos: &Arc<Objset>, seeds: &[u64]) -> Result<Vec<Item>, ScanError> {
    let (mut todo, mut seen, mut items) = (seeds.to_vec(), HashSet::new(), Vec::new());
    while let Some(object) = todo.pop() {
        if !seen.insert(object) {
            continue;
        }
        let Some((found, phys)) = item(mos, object)? else { continue };
        items.push(found);
        push_next(mos, &phys, &mut todo)?;
    }
    items.sort_unstable();
    Ok(items)
}

/// The dataset's root as of now; None when it is gone or has no object set. In syncing context.
pub(crate) fn root(mos: &Arc<Objset>, item: &Item) -> Result<Option<Root>, ScanError> {
    let Some(phys) = still(mos, item)?.filter(|phys| !phys.ds_bp.is_hole()) else { return Ok(None) };
    Ok(Some(Root { bp: phys.ds_bp, after: Txg(phys.ds_prev_snap_txg) }))
}

/// Snapshots of a head that are younger than the scan, oldest first. In syncing context.
pub(crate) fn newer_snapshots(mos: &Arc<Objset>, head: &Item, until: Txg) -> Result<Vec<Item>, ScanError> {
    let mut found = Vec::new();
    let mut next = record(mos, head.object)?;
    while let Some(phys) = next.filter(|phys| phys.ds_prev_snap_txg > until.0) {
        // Every link leads to an older txg, whatever a damaged record says.
        let older = record(mos, phys.ds_prev_snap_obj)?.filter(|older| older.ds_creation_txg == phys.ds_prev_snap_txg);
        let Some(older) = older.filter(|older| older.ds_prev_snap_txg < phys.ds_prev_snap_txg) else { break };
        found.push(Item { is_head: false, creation: older.ds_creation_txg, object: phys.ds_prev_snap_obj });
        next = Some(older);
    }
    found.reverse();
    Ok(found)
}
