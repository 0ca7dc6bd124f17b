//! The scan's state in the MOS: the entry `scan` of the pool's directory and the queue object that it names.
//!
//! The queue holds the datasets from which all that are still to be visited follow: OpenZFS visits a dataset's next snapshot and
//! clones after it (`dsl_scan_visitds`), so a scrub begun here can go on there, and one begun there goes on here.

use crate::ScanError;
use crate::cursor::{Cursor, Position};
use crate::datasets::{self, Item};
use crate::progress::Counters;
use dmu::{Objset, Tx};
use ondisk::{BookmarkPhys, DslScanPhys, ObjectId, ObjectType, Txg};
use std::sync::Arc;
use zap::{Value, Zap};

/// The pool's directory (OpenZFS: `DMU_POOL_DIRECTORY_OBJECT`).
pub(crate) const DIRECTORY: ObjectId = ObjectId(1);
const SCAN: &str = "scan";
/// The txg up to which everything was scrubbed (OpenZFS: `DMU_POOL_LAST_SCRUBBED_TXG`).
pub(crate) const LAST_SCRUBBED: &str = "last_scrubbed_txg";
/// Figures reported of a scan beyond its state (ours; OpenZFS leaves alone what it does not know): start time, examined,
/// issued, skipped, errors, repaired.
const SHOWN: &str = "org.zirconia:scan_shown";
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

/// Counters reported of the scan of this state, with the bytes repaired: at least those of the state.
pub(crate) fn load_shown(mos: &Arc<Objset>, phys: &DslScanPhys) -> (Counters, u64) {
    let stored = Zap::hold(mos, DIRECTORY).and_then(|directory| directory.try_lookup(SHOWN));
    // Of another scan, when somebody else ran one in between.
    match stored {
        Ok(Some(Value::U64(words))) if words.len() == 6 && words[0] == phys.scn_start_time => {
            (Counters { examined: words[1], issued: words[2], skipped: words[3], errors: words[4] }, words[5])
        }
        _ => (Counters::default(), 0),
    }
}

/// Writes what is shown of the scan, as far as the state does not say it.
pub(crate) fn store_shown(mos: &Arc<Objset>, phys: &DslScanPhys, shown: (Counters, u64), tx: &Tx) -> Result<(), ScanError> {
    let (Counters { examined, issued, skipped, errors }, repaired) = shown;
    let known = (phys.scn_examined, phys.scn_examined.saturating_sub(phys.scn_skipped), phys.scn_skipped, phys.scn_errors);
    if (examined, issued, skipped, errors) == known && repaired == phys.scn_processed {
        return forget_shown(mos, tx);
    }
    let words = vec![phys.scn_start_time, examined, issued, skipped, errors, repaired];
    Ok(Zap::hold(mos, DIRECTORY)?.update(SHOWN, &Value::U64(words), tx)?)
}

/// Removes what was shown: the scan ended, or its state says it all.
pub(crate) fn forget_shown(mos: &Arc<Objset>, tx: &Tx) -> Result<(), ScanError> {
    let directory = Zap::hold(mos, DIRECTORY)?;
    if directory.try_lookup(SHOWN)?.is_some() {
        directory.remove(SHOWN, tx)?;
    }
    Ok(())
}

/// Datasets that a state leaves to be visited, with the place in them. The list is empty while the MOS is visited: it is made after that.
pub(crate) fn restore(mos: &Arc<Objset>, phys: &DslScanPhys) -> Result<(Vec<Item>, Cursor), ScanError> {
    let at = &phys.scn_bookmark;
    let position = match at.zb_level {
        0 if at.zb_object <= OBJECT_END => Position { object: at.zb_object, block: at.zb_blkid },
        _ => Position::default(),
    };
    if at.zb_objset == 0 {
        return Ok((Vec::new(), Cursor { dataset: None, position }));
    }
    let mut seeds = vec![at.zb_objset];
    if phys.scn_queue_obj != 0 {
        Zap::hold(mos, ObjectId(phys.scn_queue_obj))?.for_each(|entry| {
            let name = std::str::from_utf8(&entry.name).unwrap_or_default();
            seeds.extend(u64::from_str_radix(name, 16));
            Ok(())
        })?;
    }
    let mut list = datasets::following(mos, &seeds)?;
    let current = list.iter().position(|item| item.object == at.zb_objset);
    let position = current.map_or(Position::default(), |_| position);
    if let Some(index) = current {
        list[..=index].rotate_right(1);
    }
    Ok((list, Cursor { dataset: Some(0), position }))
}

/// The queue as it is on disk, and the dataset that it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queued {
    current: Option<Item>,
    datasets: Vec<Item>,
    list_length: usize,
}

impl Queued {
    /// True when it still is what a restart needs.
    fn is_right(&self, mos: &Arc<Objset>, current: Option<Item>, list_length: usize) -> Result<bool, ScanError> {
        if self.current != current || self.list_length != list_length {
            return Ok(false);
        }
        for item in self.datasets.iter().chain(&self.current) {
            if !datasets::exists(mos, item)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Notes a place in the state, and brings the queue on disk up to date with it.
pub(crate) fn set_place(
    mos: &Arc<Objset>,
    phys: &mut DslScanPhys,
    cursor: &Cursor,
    list: &[Item],
    queued: &mut Queued,
    tx: &Tx,
) -> Result<(), ScanError> {
    set_cursor(phys, cursor, list);
    (phys.scn_cur_min_txg, phys.scn_cur_max_txg) = (phys.scn_min_txg, phys.scn_max_txg);
    let Some(index) = cursor.dataset else { return Ok(()) };
    let mut current = list.get(index).copied();
    if let Some(item) = current {
        if datasets::exists(mos, &item)? {
            (phys.scn_cur_min_txg, phys.scn_cur_max_txg) = datasets::births(mos, &item, Txg(phys.scn_max_txg))?;
        } else {
            // Its blocks are the next snapshot's, which is among the rest.
            current = None;
            set_cursor(phys, &Cursor { dataset: Some(0), position: Position::default() }, &[]);
        }
    }
    if queued.is_right(mos, current, list.len())? {
        return Ok(());
    }
    let rest = &list[(index + 1).min(list.len())..];
    let first = datasets::first_of(mos, rest, current.map(|item| item.object))?;
    if phys.scn_queue_obj != 0 {
        zap::destroy(mos, ObjectId(phys.scn_queue_obj), tx)?;
    }
    let queue = zap::create(mos, ObjectType::SCAN_QUEUE, tx)?;
    phys.scn_queue_obj = queue.0;
    let queue = Zap::hold(mos, queue)?;
    for (item, txg) in &first {
        queue.add_u64(format!("{:x}", item.object), *txg, tx)?;
    }
    *queued = Queued { current, datasets: first.into_iter().map(|(item, _)| item).collect(), list_length: list.len() };
    Ok(())
}

/// Notes a place in the state.
pub(crate) fn set_cursor(phys: &mut DslScanPhys, cursor: &Cursor, list: &[Item]) {
    let objset = match cursor.dataset {
        None => 0,
        Some(index) => list.get(index).map_or(u64::MAX, |item| item.object),
    };
    // OpenZFS resumes at level 0 only; object 0 stands for the beginning, accounting objects for what is behind all others.
    let (object, block) = match cursor.position {
        Position { object, block } if object < OBJECT_END => (object, block),
        _ => (OBJECT_END, 0),
    };
    phys.scn_bookmark = BookmarkPhys { zb_objset: objset, zb_object: object, zb_level: 0, zb_blkid: block };
}
