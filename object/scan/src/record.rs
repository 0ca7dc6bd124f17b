//! The scan's state in the MOS: the entry `scan` of the pool's directory and the queue object that it names.
//!
//! The queue holds the datasets from which all that are still to be visited follow: OpenZFS visits a dataset's next snapshot and
//! clones after it (`dsl_scan_visitds`), so a scrub begun here can go on there, and one begun there goes on here.

use crate::ScanError;
use crate::datasets::Item;
use crate::scan::Cursor;
use crate::walk::Position;
use dmu::{Objset, Tx};
use ondisk::{BookmarkPhys, DslScanPhys, ObjectId};
use std::sync::Arc;
use zap::{Value, Zap};

/// The pool's directory (OpenZFS: `DMU_POOL_DIRECTORY_OBJECT`).
pub(crate) const DIRECTORY: ObjectId = ObjectId(1);
const SCAN: &str = "scan";
/// Larger than any object's number (OpenZFS: `DN_MAX_OBJECT`).
const OBJECT_END: u64 = 1 << 48;

/// Reads the state; all zeros when the pool never had a scan.
pub(crate) fn load(mos: &Arc<Objset>) -> Result<DslScanPhys, ScanError> {
    match Zap::hold(mos, DIRECTORY)?.try_lookup(SCAN)? {
        None => Ok(DslScanPhys::default()),
        Some(Value::U64(words)) => Ok(DslScanPhys::from_words(&words)),
        Some(_) => Err(ScanError::Corrupt),
    }
}

/// Writes the state.
pub(crate) fn store(mos: &Arc<Objset>, phys: &DslScanPhys, tx: &Tx) -> Result<(), ScanError> {
    Ok(Zap::hold(mos, DIRECTORY)?.update(SCAN, &Value::U64(phys.to_words().to_vec()), tx)?)
}

/// The place that a state names, in the list of all datasets. One that cannot be told is the first dataset.
pub(crate) fn cursor(phys: &DslScanPhys, list: &[Item]) -> Cursor {
    let at = &phys.scn_bookmark;
    let position = Position { object: at.zb_object, block: at.zb_blkid };
    if at.zb_objset == 0 {
        return Cursor { dataset: None, position };
    }
    match list.iter().position(|item| item.object == at.zb_objset) {
        Some(index) => Cursor { dataset: Some(index), position },
        None => Cursor { dataset: Some(0), position: Position::default() },
    }
}

/// Notes a place in the state.
pub(crate) fn set_cursor(phys: &mut DslScanPhys, cursor: &Cursor, list: &[Item]) {
    let objset = match cursor.dataset {
        None => 0,
        Some(index) => list.get(index).map_or(u64::MAX, |item| item.object),
    };
    phys.scn_bookmark = match cursor.position {
        // The root of the object set; for the MOS the state of a scan that has just begun.
        Position { object: 0, block: 0 } if objset != 0 => BookmarkPhys { zb_objset: objset, zb_object: 0, zb_level: -1, zb_blkid: 0 },
        Position { object, block } if object < OBJECT_END => {
            BookmarkPhys { zb_objset: objset, zb_object: object, zb_level: 0, zb_blkid: block }
        }
        // Accounting objects are few: they are visited again.
        _ => BookmarkPhys { zb_objset: objset, zb_object: OBJECT_END, zb_level: 0, zb_blkid: 0 },
    };
}
