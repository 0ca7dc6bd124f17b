//! Log space maps: changes of many metaslabs in one object per txg (OpenZFS: `spa_log_spacemap.c`).
//!
//! This release reads them and folds them back: at the first writable import every change goes to its metaslab's own map and
//! the logs go away, which is the state of a pool whose feature is enabled but not yet active.

use crate::PoolError;
use crate::spa::features::{DIRECTORY, Features};
use crate::spa::mos_objects::check_length;
use dmu::{Objset, Tx};
use metaslab::Delta;
use ondisk::{BlockId, MapType, ObjectId, SpaceMapEntries, SpaceMapEntry, SpaceMapPhys, SpaceMapRun, VdevId};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{TopVdev, VdevTree};
use zap::Zap;

const LOG_ZAP: &str = "com.delphix:log_spacemap_zap";
const UNFLUSHED: &str = "com.delphix:ms_unflushed_phys_txgs";
const FEATURE: &str = "com.delphix:log_spacemap";
const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// Units of the entries: 512-byte sectors.
const SHIFT: u32 = 9;

/// Changes that are not in the metaslabs' own maps.
#[derive(Debug, Default)]
pub(crate) struct LoggedChanges {
    /// Segments to add to and take from the allocated ones, by metaslab.
    pub changes: BTreeMap<(VdevId, u32), Change>,
    /// The pool has log space maps, perhaps without changes.
    pub exist: bool,
}

/// Changes of one metaslab.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub allocs: RangeTree,
    pub frees: RangeTree,
}

impl Change {
    /// Applies one entry to the sum of changes: an allocation undoes a logged free and the other way round.
    fn apply(&mut self, kind: MapType, start: u64, length: u64) {
        let (into, undo) = match kind {
            MapType::Alloc => (&mut self.allocs, &mut self.frees),
            MapType::Free => (&mut self.frees, &mut self.allocs),
        };
        let mut at = start;
        let end = start + length;
        while at < end {
            let undone = undo.first_overlap(at..end);
            let stop = undone.as_ref().map_or(end, |range| range.start);
            into.cover(at..stop);
            at = undone.map_or(end, |range| range.end);
        }
        undo.clear_range(start..end);
    }
}

/// The list of logs, and the logs by txg.
type Logs = (ObjectId, BTreeMap<u64, ObjectId>);

/// The logs of a pool.
fn logs(mos: &Arc<Objset>) -> Result<Option<Logs>, PoolError> {
    let Some(object) = Zap::hold(mos, DIRECTORY)?.try_lookup_u64(LOG_ZAP)? else { return Ok(None) };
    let mut found = BTreeMap::new();
    let mut damaged = false;
    Zap::hold(mos, ObjectId(object))?.for_each(|entry| {
        let txg = std::str::from_utf8(&entry.name).ok().and_then(|name| u64::from_str_radix(name, 16).ok());
        match txg {
            Some(txg) => drop(found.insert(txg, ObjectId(entry.first_integer))),
            None => damaged = true,
        }
        Ok(())
    })?;
    if damaged { Err(PoolError::Object(ObjectId(object), "the list of log space maps")) } else { Ok(Some((ObjectId(object), found))) }
}

/// The object with the txgs up to which each metaslab of `top` was flushed.
fn unflushed_object(mos: &Arc<Objset>, top: &TopVdev) -> Result<Option<ObjectId>, PoolError> {
    if top.zap.0 == 0 {
        return Ok(None);
    }
    Ok(Zap::hold(mos, top.zap)?.try_lookup_u64(UNFLUSHED)?.map(ObjectId))
}

/// Reads every log.
pub(crate) fn read(mos: &Arc<Objset>, tree: &VdevTree) -> Result<LoggedChanges, PoolError> {
    let mut logged = LoggedChanges::default();
    let Some((_, logs)) = logs(mos)? else { return Ok(logged) };
    logged.exist = true;
    let mut flushed: Vec<Vec<u64>> = Vec::new();
    for top in &tree.tops {
        let mut raw = vec![0; top.metaslab_count() as usize * 8];
        if let Some(object) = unflushed_object(mos, top)? {
            mos.hold(object)?.read(0, &mut raw)?;
        }
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        flushed.push(raw.chunks_exact(8).map(word).collect());
    }
    for (txg, object) in logs {
        let damaged = || PoolError::Object(object, "a log space map");
        each_run(mos, object, |run| {
            let vdev = run.vdev.ok_or_else(damaged)?;
            let Some(top) = tree.top(vdev) else { return Ok(()) };
            let start = run.offset.checked_mul(1 << SHIFT).ok_or_else(damaged)?;
            let length = run.run << SHIFT;
            let metaslab = u32::try_from(start >> top.ms_shift).map_err(|_| damaged())?;
            let since = *flushed[vdev.0 as usize].get(metaslab as usize).ok_or_else(damaged)?;
            if txg >= since {
                logged.changes.entry((vdev, metaslab)).or_default().apply(run.kind, start, length);
            }
            Ok(())
        })?;
    }
    Ok(logged)
}

fn each_run(mos: &Arc<Objset>, object: ObjectId, mut each: impl FnMut(SpaceMapRun) -> Result<(), PoolError>) -> Result<(), PoolError> {
    let damaged = || PoolError::Object(object, "a log space map");
    let dnode = mos.hold(object)?;
    let block_bytes = dnode.info()?.block_size as u64;
    let phys = SpaceMapPhys::decode_bonus(&dnode.bonus()?).map_err(|_| damaged())?;
    check_length(&dnode, phys.smp_length)?;
    let mut position = 0;
    while position < phys.smp_length {
        let block = dnode.read_block(BlockId(position / block_bytes))?.to_contiguous();
        let length = (phys.smp_length - position).min(block_bytes);
        let bytes = block.as_contiguous().and_then(|bytes| bytes.get(..length as usize)).ok_or_else(damaged)?;
        for entry in SpaceMapEntries::new(bytes) {
            if let SpaceMapEntry::Run(run) = entry.map_err(|_| damaged())? {
                each(run)?;
            }
        }
        position += length;
    }
    Ok(())
}

impl LoggedChanges {
    /// The changes as deltas to append to the metaslabs' own maps.
    pub fn deltas(&self) -> Vec<Delta> {
        let delta = |(&(vdev, metaslab), change): (&(VdevId, u32), &Change)| Delta {
            vdev,
            metaslab,
            allocs: change.allocs.iter().collect(),
            frees: change.frees.iter().collect(),
        };
        self.changes.iter().map(delta).filter(|delta| !delta.allocs.is_empty() || !delta.frees.is_empty()).collect()
    }

    /// The allocated segments with the changes of one metaslab; false when they contradict each other.
    pub fn apply(&self, vdev: VdevId, metaslab: u32, allocated: &mut RangeTree) -> bool {
        let Some(change) = self.changes.get(&(vdev, metaslab)) else { return true };
        let length = |range: &std::ops::Range<u64>| range.end - range.start;
        change.frees.iter().all(|range| allocated.remove(range.start, length(&range)).is_ok())
            && change.allocs.iter().all(|range| allocated.add(range.start, length(&range)).is_ok())
    }
}

/// Removes the logs, after their changes went to the metaslabs' own maps in this txg.
pub(crate) fn destroy(mos: &Arc<Objset>, tree: &VdevTree, features: &Features, tx: &Tx) -> Result<(), PoolError> {
    let Some((list, logs)) = logs(mos)? else { return Ok(()) };
    for object in logs.into_values() {
        if mos.hold(object)?.info()?.bonus_len >= SpaceMapPhys::SIZE {
            features.add(HISTOGRAM, -1, tx)?;
        }
        mos.free_object(object, tx)?;
    }
    zap::destroy(mos, list, tx)?;
    Zap::hold(mos, DIRECTORY)?.remove(LOG_ZAP, tx)?;
    for top in &tree.tops {
        if let Some(object) = unflushed_object(mos, top)? {
            mos.free_object(object, tx)?;
            Zap::hold(mos, top.zap)?.remove(UNFLUSHED, tx)?;
        }
    }
    let count = features.refs(FEATURE);
    if count != 0 {
        features.add(FEATURE, -(count as i64), tx)?;
    }
    Ok(())
}
