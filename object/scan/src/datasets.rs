//! Which object sets a scan visits, in which order, and where their roots are.
//!
//! Snapshots come first, oldest first, then heads. So the previous snapshot of everything visited was visited before, and each
//! dataset is responsible for what was born after its previous snapshot: every shared block is read once. When a snapshot is
//! destroyed before its turn, the next one inherits its blocks and, coming later, visits them. Snapshots taken after the scan
//! began take over from their head what it had not shown yet, so they are put in front of it.

use crate::ScanError;
use dmu::{DmuError, Objset};
use ondisk::{BlockPtr, DslDatasetPhys, ObjectId, ObjectType, Txg};
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

/// What to visit of a dataset, as of a txg.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) bp: BlockPtr,
    /// What was born later belongs to the dataset, not to its previous snapshot.
    pub(crate) after: Txg,
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
        if let Ok(Some(phys)) = record(mos, object.0) {
            let item = Item { is_head: is_head(&phys), creation: phys.ds_creation_txg, object: object.0 };
            if item.is_head || item.creation <= until.0 {
                items.push(item);
            }
        }
    }
    items.sort_unstable();
    Ok(items)
}

/// The dataset's root as of now; None when it is gone or has no object set. In syncing context.
pub(crate) fn root(mos: &Arc<Objset>, item: &Item) -> Result<Option<Root>, ScanError> {
    let Some(phys) = record(mos, item.object)? else { return Ok(None) };
    if phys.ds_creation_txg != item.creation || phys.ds_bp.is_hole() {
        return Ok(None);
    }
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
