//! Log space maps: changes of many metaslabs in one object per txg (OpenZFS: `spa_log_spacemap.c`). Here they are read, and folded back.
//!
//! A pool that is not to write logs ([`Runtime::log_space_maps`](crate::Runtime::log_space_maps)) folds them back: at the first writable import every
//! change goes to its metaslab's own map and the logs go away, which is the state of a pool whose feature is enabled but not yet active. Others go on
//! with them: [`super::space_log`].

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

/// Entry of the MOS directory with the list of logs (OpenZFS: `DMU_POOL_LOG_SPACEMAP_ZAP`).
pub(crate) const LOG_ZAP: &str = "com.delphix:log_spacemap_zap";
/// Entry of a top-level vdev's ZAP with the txgs since which its metaslabs were not flushed (OpenZFS: `VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS`).
pub(crate) const UNFLUSHED: &str = "com.delphix:ms_unflushed_phys_txgs";
/// Feature that is active while there are logs.
pub(crate) const FEATURE: &str = "com.delphix:log_spacemap";
const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// log2 of the unit of the entries: 512-byte sectors.
pub(crate) const SHIFT: u32 = 9;

/// Bytes of memory that a segment takes, about.
const SEGMENT_BYTES: u64 = 24;

/// A metaslab: its vdev, and its number there.
pub(crate) type Place = (VdevId, u32);

/// The log of one txg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogObject {
    pub object: ObjectId,
    /// Number of its blocks that have entries.
    pub blocks: u64,
}

/// Changes that are not in the metaslabs' own maps.
#[derive(Debug, Default)]
pub(crate) struct LoggedChanges {
    /// Segments to add to and take from the allocated ones, by metaslab.
    pub changes: BTreeMap<Place, Change>,
    /// The list of logs; None of a pool without.
    pub list: Option<ObjectId>,
    /// The logs by txg.
    pub logs: BTreeMap<u64, LogObject>,
    /// First txg whose changes of a metaslab are in the logs only, of those that ever had one.
    pub since: BTreeMap<Place, u64>,
}

/// Changes of one metaslab.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub allocs: RangeTree,
    pub frees: RangeTree,
}

impl Change {
    /// Applies one entry to the sum of changes: an allocation undoes a logged free and the other way round.
    pub fn apply(&mut self, kind: MapType, start: u64, length: u64) {
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

    /// The change as what is to be appended to the metaslab's own map.
    pub fn delta(&self, (vdev, metaslab): Place) -> Delta {
        Delta { vdev, metaslab, allocs: self.allocs.iter().collect(), frees: self.frees.iter().collect() }
    }

    /// Bytes of memory that its segments take, about (OpenZFS: `metaslab_unflushed_changes_memused`).
    pub fn memory_bytes(&self) -> u64 {
        (self.allocs.count() + self.frees.count()) as u64 * SEGMENT_BYTES
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
        match zap::parse_int_name(&entry.name) {
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

/// The txgs since which the metaslabs of `top` were not flushed; 0 of those that were never logged.
fn unflushed_txgs(mos: &Arc<Objset>, top: &TopVdev) -> Result<Vec<u64>, PoolError> {
    let mut raw = vec![0; top.metaslab_count() as usize * 8];
    if let Some(object) = unflushed_object(mos, top)? {
        mos.hold(object)?.read(0, &mut raw)?;
    }
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok(raw.chunks_exact(8).map(word).collect())
}

/// Reads every log.
pub(crate) fn read(mos: &Arc<Objset>, tree: &VdevTree) -> Result<LoggedChanges, PoolError> {
    let mut logged = LoggedChanges::default();
    let Some((list, logs)) = logs(mos)? else { return Ok(logged) };
    logged.list = Some(list);
    for top in tree.tops.iter().filter(|top| top.is_concrete()) {
        let txgs = unflushed_txgs(mos, top)?.into_iter().enumerate();
        logged.since.extend(txgs.filter(|(_, txg)| *txg != 0).map(|(metaslab, txg)| ((top.id, metaslab as u32), txg)));
    }
    for (txg, object) in logs {
        let damaged = || PoolError::Object(object, "a log space map");
        let blocks = each_run(mos, object, |run| {
            let vdev = run.vdev.ok_or_else(damaged)?;
            // One that left has nothing that anybody could lose.
            let Some(top) = tree.top(vdev) else { return Ok(()) };
            let start = run.offset.checked_mul(1 << SHIFT).ok_or_else(damaged)?;
            let length = run.run << SHIFT;
            let metaslab = start >> top.ms_shift;
            if metaslab >= top.metaslab_count() {
                return Err(damaged());
            }
            let place = (vdev, metaslab as u32);
            if txg >= logged.since.get(&place).copied().unwrap_or(0) {
                logged.changes.entry(place).or_default().apply(run.kind, start, length);
            }
            Ok(())
        })?;
        logged.logs.insert(txg, LogObject { object, blocks });
    }
    Ok(logged)
}

/// Gives every entry of a log, and the number of its blocks.
fn each_run(mos: &Arc<Objset>, object: ObjectId, mut each: impl FnMut(SpaceMapRun) -> Result<(), PoolError>) -> Result<u64, PoolError> {
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
    Ok(phys.smp_length.div_ceil(block_bytes))
}

impl LoggedChanges {
    /// The changes as deltas to append to the metaslabs' own maps.
    pub fn deltas(&self) -> Vec<Delta> {
        let deltas = self.changes.iter().map(|(place, change)| change.delta(*place));
        deltas.filter(|delta| !delta.allocs.is_empty() || !delta.frees.is_empty()).collect()
    }

    /// True when the logs can be gone on with: of every metaslab with changes it is known since when, and there is the log of that txg (OpenZFS
    /// refuses others: `spa_ld_log_sm_metadata`).
    pub fn is_sound(&self) -> bool {
        self.since.values().all(|txg| self.logs.contains_key(txg)) && self.changes.keys().all(|place| self.since.contains_key(place))
    }

    /// The allocated segments with the changes of one metaslab; false when they contradict each other.
    pub fn apply(&self, vdev: VdevId, metaslab: u32, allocated: &mut RangeTree) -> bool {
        let Some(change) = self.changes.get(&(vdev, metaslab)) else { return true };
        let length = |range: &std::ops::Range<u64>| range.end - range.start;
        change.frees.iter().all(|range| allocated.remove(range.start, length(&range)).is_ok())
            && change.allocs.iter().all(|range| allocated.add(range.start, length(&range)).is_ok())
    }
}

/// Frees one log; the list still has it.
pub(crate) fn free_log(mos: &Arc<Objset>, features: &Features, object: ObjectId, tx: &Tx) -> Result<(), PoolError> {
    if mos.hold(object)?.info()?.bonus_len >= SpaceMapPhys::SIZE {
        features.add(HISTOGRAM, -1, tx)?;
    }
    Ok(mos.free_object(object, tx)?)
}

/// Removes the txgs since which the metaslabs of a vdev were not flushed: it leaves, or there are no logs any more (OpenZFS:
/// `vdev_destroy_ms_flush_data`).
pub(crate) fn forget_vdev(mos: &Arc<Objset>, top: &TopVdev, tx: &Tx) -> Result<(), PoolError> {
    let Some(object) = unflushed_object(mos, top)? else { return Ok(()) };
    mos.free_object(object, tx)?;
    Ok(Zap::hold(mos, top.zap)?.remove(UNFLUSHED, tx)?)
}

/// Removes the logs, after their changes went to the metaslabs' own maps in this txg.
pub(crate) fn destroy(mos: &Arc<Objset>, tree: &VdevTree, features: &Features, tx: &Tx) -> Result<(), PoolError> {
    let Some((list, logs)) = logs(mos)? else { return Ok(()) };
    for object in logs.into_values() {
        free_log(mos, features, object, tx)?;
    }
    zap::destroy(mos, list, tx)?;
    Zap::hold(mos, DIRECTORY)?.remove(LOG_ZAP, tx)?;
    for top in &tree.tops {
        forget_vdev(mos, top, tx)?;
    }
    let count = features.refs(FEATURE);
    if count != 0 {
        features.add(FEATURE, -(count as i64), tx)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: u64 = 64;
    const PLACE: Place = (VdevId(3), 7);

    fn next(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    /// If this fails, what is flushed or read after a crash is not what was allocated: files are written over.
    #[test]
    fn what_changed_since_a_flush_and_the_map_make_up_what_is_allocated() {
        for start in 0..40 {
            let mut seed = start;
            let (mut map, mut now, mut change) = (RangeTree::new(), RangeTree::new(), Change::default());
            for step in 0..400 {
                let at = next(&mut seed, UNITS);
                let length = (1 + next(&mut seed, 9)).min(UNITS - at);
                if !now.overlaps(at, length) {
                    now.add(at, length).expect("free");
                    change.apply(MapType::Alloc, at, length);
                } else if now.contains(at, length) {
                    now.remove(at, length).expect("allocated");
                    change.apply(MapType::Free, at, length);
                }
                assert!(change.allocs.iter().all(|range| !change.frees.overlaps(range.start, range.end - range.start)), "seed {start}");
                if next(&mut seed, 20) == 0 {
                    let logged =
                        LoggedChanges { changes: BTreeMap::from([(PLACE, std::mem::take(&mut change))]), ..LoggedChanges::default() };
                    assert!(logged.apply(PLACE.0, PLACE.1, &mut map), "seed {start}, step {step}: the map contradicts the changes");
                    assert_eq!(map.iter().collect::<Vec<_>>(), now.iter().collect::<Vec<_>>(), "seed {start}, step {step}");
                }
            }
        }
    }

    /// If this fails, a pool is written with logs that OpenZFS, or the next import, refuses.
    #[test]
    fn logs_are_gone_on_with_only_where_none_is_missing() {
        let log = LogObject { object: ObjectId(9), blocks: 1 };
        let whole = || LoggedChanges {
            changes: BTreeMap::from([(PLACE, Change::default())]),
            list: Some(ObjectId(8)),
            logs: BTreeMap::from([(20, log), (21, log)]),
            since: BTreeMap::from([(PLACE, 20)]),
        };
        assert!(whole().is_sound());
        let mut missing = whole();
        missing.logs.remove(&20);
        assert!(!missing.is_sound(), "of the txg since which a metaslab was not flushed");
        assert!(!LoggedChanges { since: BTreeMap::new(), ..whole() }.is_sound(), "nobody knows since when");
    }
}
