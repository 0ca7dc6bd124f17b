//! Writing log space maps: a txg's allocations and frees of all metaslabs go to one object, and a few metaslabs are flushed (OpenZFS:
//! `spa_log_spacemap.c`, `metaslab_sync`, `metaslab_flush`).
//!
//! # Invariants
//! 1. A metaslab's own map says what was allocated before the txg *since* which it was not flushed; from that txg on the logs say what changed.
//! 2. The log of each such txg is there: a log goes only when all metaslabs were flushed after it.
//! 3. A metaslab is flushed before anything of the txg is taken from the allocator: its map and the log of the txg have nothing in common.

use super::flushing::{LogControl, Row, metaslabs_to_flush};
use super::log_spacemap::{Change, FEATURE, LOG_ZAP, LogObject, LoggedChanges, Place, SHIFT, UNFLUSHED, free_log};
use super::spacemap::{AppendContext, SPACEMAP_V2, SpaceMaps, Units, create_object};
use crate::PoolError;
use crate::spa::features::{Features, create_linked_zap};
use dmu::{Dnode, NewObject, Objset, Tx};
use metaslab::Delta;
use ondisk::{MapType, ObjectId, ObjectType, SpaceMapEncoder, SpaceMapPhys, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vdev::VdevTree;
use zap::Zap;

/// Block size of logs (OpenZFS: `zfs_log_sm_blksz`).
const BLOCK_BYTES: usize = 1 << 17;

/// A metaslab that was logged once.
#[derive(Debug, Default)]
struct Unflushed {
    /// First txg whose changes are in the logs only.
    since: u64,
    /// Some of the logs since then have changes of it.
    is_dirty: bool,
    /// Sum of those.
    change: Change,
}

/// The log of the txg that is being synced.
struct OpenLog {
    txg: u64,
    object: Arc<Dnode>,
    phys: SpaceMapPhys,
    has_histogram: bool,
}

/// The logs of a pool that writes them.
pub(crate) struct SpaceLog {
    mos: Arc<Objset>,
    /// The list of the logs; None until there is one.
    list: Option<ObjectId>,
    /// The logs by txg.
    logs: BTreeMap<u64, LogObject>,
    current: Option<OpenLog>,
    metaslabs: BTreeMap<Place, Unflushed>,
    /// Metaslabs in the order in which they are flushed: the one that was so the longest ago first.
    queue: BTreeSet<(u64, Place)>,
    /// The vdevs that they are of, each with the object with the txgs since which its metaslabs were not flushed, once that was needed.
    vdevs: BTreeMap<VdevId, Option<Arc<Dnode>>>,
}

impl SpaceLog {
    /// The logs of a pool that has none.
    pub fn new(mos: &Arc<Objset>) -> SpaceLog {
        SpaceLog {
            mos: mos.clone(),
            list: None,
            logs: BTreeMap::new(),
            current: None,
            metaslabs: BTreeMap::new(),
            queue: BTreeSet::new(),
            vdevs: BTreeMap::new(),
        }
    }

    /// The logs of a pool that was found with these, where any are wanted; and those that have to be folded back instead: none are wanted, or they
    /// cannot be gone on with.
    pub fn resumed(mos: &Arc<Objset>, logged: LoggedChanges, is_wanted: bool) -> (Option<SpaceLog>, Option<LoggedChanges>) {
        let mut log = SpaceLog::new(mos);
        if logged.list.is_none() {
            return (is_wanted.then_some(log), None);
        }
        if !is_wanted || !logged.is_sound() {
            return (is_wanted.then_some(log), Some(logged));
        }
        let LoggedChanges { mut changes, list, logs, since } = logged;
        (log.list, log.logs) = (list, logs);
        for (place, since) in since {
            let change = changes.remove(&place);
            log.queue.insert((since, place));
            log.metaslabs.insert(place, Unflushed { since, is_dirty: change.is_some(), change: change.unwrap_or_default() });
            log.vdevs.insert(place.0, None);
        }
        (Some(log), None)
    }

    /// True when the pool may have logs.
    pub fn is_on(features: &Features) -> bool {
        features.is_enabled(FEATURE) && features.refs(SPACEMAP_V2) != 0
    }

    /// True when changes of a vdev can be logged: it has a place for the txgs since which its metaslabs were not flushed.
    pub fn covers(tree: &VdevTree, vdev: VdevId) -> bool {
        tree.top(vdev).is_some_and(|top| top.zap.0 != 0)
    }

    /// Flushes metaslabs and frees logs that are not needed any more: in pass 1, before anything of the txg is taken from the allocator. A txg that
    /// would change nothing stays so.
    pub fn flush(
        &mut self,
        maps: &mut SpaceMaps,
        tree: &VdevTree,
        control: &LogControl,
        context: &AppendContext<'_>,
    ) -> Result<(), PoolError> {
        let txg = context.tx.txg().0;
        let has_left = self.forget_left(tree);
        // What a log says of a vdev that left must not be taken for what is to come in its place.
        let all = control.take_flush_all() || has_left;
        if !all && (self.queue.is_empty() || !self.mos.is_dirty(context.tx.txg())) {
            return Ok(());
        }
        self.begin(context)?;
        let tunables = control.tunables();
        let mut wanted = if all { u64::MAX } else { metaslabs_to_flush(&self.rows(txg), &tunables) };
        let mut memory: u64 = self.metaslabs.values().map(|known| known.change.memory_bytes()).sum();
        while let Some(&(since, place)) = self.queue.first() {
            if since >= txg || (wanted == 0 && memory <= tunables.memory_max) {
                break;
            }
            if self.metaslabs.get(&place).is_some_and(|known| known.is_dirty) {
                wanted = wanted.saturating_sub(1);
            }
            memory = memory.saturating_sub(self.flush_one(place, maps, tree, context)?);
        }
        self.free_needless(context)
    }

    /// Brings a metaslab's own map up to date; gives the bytes of memory that its changes took. Where nobody knows what that map says, the log of the
    /// txg says once more what changed, so that older ones can go, and nothing is lost should the map be readable again one day.
    fn flush_one(&mut self, place: Place, maps: &mut SpaceMaps, tree: &VdevTree, context: &AppendContext<'_>) -> Result<u64, PoolError> {
        let known = self.metaslabs.entry(place).or_default();
        let delta = known.change.delta(place);
        let has_changes = !delta.allocs.is_empty() || !delta.frees.is_empty();
        if has_changes && context.allocator.is_unknown(delta.vdev, delta.metaslab) {
            self.flushed(place, true, (tree, context.tx))?;
            self.write(std::slice::from_ref(&delta), context)?;
            return Ok(0);
        }
        let taken = std::mem::take(&mut known.change).memory_bytes();
        if has_changes {
            maps.append(&delta, context)?;
        }
        self.flushed(place, false, (tree, context.tx))?;
        Ok(taken)
    }

    /// Writes down what was taken from the allocator in this pass.
    pub fn log(&mut self, deltas: &[Delta], maps: &mut SpaceMaps, tree: &VdevTree, context: &AppendContext<'_>) -> Result<(), PoolError> {
        if deltas.is_empty() {
            return Ok(());
        }
        self.begin(context)?;
        for delta in deltas {
            let place = (delta.vdev, delta.metaslab);
            maps.note_free(delta.vdev, delta.metaslab, context)?;
            if self.metaslabs.get(&place).is_none_or(|known| !known.is_dirty) {
                // Its own map has all that was before, whether it was flushed or never logged.
                self.flushed(place, true, (tree, context.tx))?;
            }
            let change = &mut self.metaslabs.entry(place).or_default().change;
            for (kind, segments) in [(MapType::Alloc, &delta.allocs), (MapType::Free, &delta.frees)] {
                segments.iter().for_each(|segment| change.apply(kind, segment.start, segment.end - segment.start));
            }
        }
        self.write(deltas, context)
    }

    /// Makes the log of the txg, where there is none yet (OpenZFS: `spa_generate_syncing_log_sm`).
    fn begin(&mut self, context: &AppendContext<'_>) -> Result<(), PoolError> {
        let txg = context.tx.txg().0;
        if self.current.as_ref().is_some_and(|log| log.txg == txg) {
            return Ok(());
        }
        let list = match self.list {
            Some(list) => list,
            None => {
                let list = create_linked_zap(&self.mos, LOG_ZAP, ObjectType::OTN_ZAP_METADATA, context.tx)?;
                if context.features.refs(FEATURE) == 0 {
                    context.features.add(FEATURE, 1, context.tx)?;
                }
                *self.list.insert(list)
            }
        };
        let (object, has_histogram) = create_object(&self.mos, BLOCK_BYTES, context)?;
        let id = object.object();
        Zap::hold(&self.mos, list)?.add_int_key(txg, id.0, context.tx)?;
        self.logs.insert(txg, LogObject { object: id, blocks: 0 });
        let phys = SpaceMapPhys { smp_object: id.0, ..SpaceMapPhys::default() };
        self.current = Some(OpenLog { txg, object, phys, has_histogram });
        Ok(())
    }

    /// Appends to the log of the txg.
    fn write(&mut self, deltas: &[Delta], context: &AppendContext<'_>) -> Result<(), PoolError> {
        let Some(log) = &mut self.current else { return Err(PoolError::Corrupt("a txg without log space map")) };
        let mut encoder = SpaceMapEncoder::new(log.phys.smp_length, BLOCK_BYTES, true);
        for delta in deltas {
            let units = Units { start: 0, shift: SHIFT, vdev: Some(delta.vdev) };
            log.phys.smp_alloc += units.encode(&mut encoder, (MapType::Alloc, delta.allocs.as_slice()), context)?;
            log.phys.smp_alloc += units.encode(&mut encoder, (MapType::Free, delta.frees.as_slice()), context)?;
        }
        let (start, length) = (log.phys.smp_length, encoder.length());
        log.object.write(start, &encoder.finish(), context.tx)?;
        log.phys.smp_length = length;
        let header = if log.has_histogram { SpaceMapPhys::SIZE } else { SpaceMapPhys::BYTES_V0 };
        log.object.set_bonus(&log.phys.encode()[..header], context.tx)?;
        if let Some(known) = self.logs.get_mut(&log.txg) {
            known.blocks = length.div_ceil(BLOCK_BYTES as u64);
        }
        Ok(())
    }

    /// Notes that a metaslab's own map has all that was before this txg; `is_dirty`: and that the log of the txg has changes of it (OpenZFS:
    /// `metaslab_unflushed_add`, `metaslab_unflushed_bump`).
    fn flushed(&mut self, place: Place, is_dirty: bool, (tree, tx): (&VdevTree, &Tx)) -> Result<(), PoolError> {
        let txg = tx.txg().0;
        let known = self.metaslabs.entry(place).or_default();
        known.is_dirty = is_dirty;
        let before = std::mem::replace(&mut known.since, txg);
        if before == txg {
            return Ok(());
        }
        self.queue.remove(&(before, place));
        self.queue.insert((txg, place));
        self.txgs_of(place.0, tree, tx)?.write(u64::from(place.1) * 8, &txg.to_le_bytes(), tx)?;
        Ok(())
    }

    /// The object with the txgs since which a vdev's metaslabs were not flushed (OpenZFS: `metaslab_update_ondisk_flush_data`).
    fn txgs_of(&mut self, vdev: VdevId, tree: &VdevTree, tx: &Tx) -> Result<Arc<Dnode>, PoolError> {
        let top = tree.top(vdev).ok_or(PoolError::Corrupt("changes of a vdev that left"))?;
        if let Some(Some(object)) = self.vdevs.get(&vdev) {
            return Ok(object.clone());
        }
        let zap = Zap::hold(&self.mos, top.zap)?;
        let object = match zap.try_lookup_u64(UNFLUSHED)? {
            Some(object) => self.mos.hold(ObjectId(object))?,
            None => {
                let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::OTN_UINT64_METADATA) };
                let object = self.mos.allocate_object(new, tx)?;
                zap.add_u64(UNFLUSHED, object.object().0, tx)?;
                object
            }
        };
        self.vdevs.insert(vdev, Some(object.clone()));
        Ok(object)
    }

    /// Forgets vdevs that left; true when one did. Their numbers are not given out again before the next import.
    fn forget_left(&mut self, tree: &VdevTree) -> bool {
        let left: Vec<VdevId> = self.vdevs.keys().copied().filter(|vdev| tree.top(*vdev).is_none()).collect();
        for vdev in &left {
            self.vdevs.remove(vdev);
            self.metaslabs.retain(|place, _| place.0 != *vdev);
            self.queue.retain(|(_, place)| place.0 != *vdev);
        }
        !left.is_empty()
    }

    /// The logs of the txgs before this one.
    fn rows(&self, txg: u64) -> Vec<Row> {
        let mut dirty: BTreeMap<u64, u64> = BTreeMap::new();
        for known in self.metaslabs.values().filter(|known| known.is_dirty) {
            *dirty.entry(known.since).or_default() += 1;
        }
        let row = |(at, log): (&u64, &LogObject)| Row { blocks: log.blocks, metaslabs: dirty.get(at).copied().unwrap_or(0) };
        self.logs.range(..txg).map(row).collect()
    }

    /// Frees the logs from before the txg since which any metaslab was not flushed (OpenZFS: `spa_cleanup_old_sm_logs`).
    fn free_needless(&mut self, context: &AppendContext<'_>) -> Result<(), PoolError> {
        let oldest = self.queue.first().map_or(context.tx.txg().0, |(since, _)| *since);
        let kept = self.logs.split_off(&oldest);
        let needless = std::mem::replace(&mut self.logs, kept);
        let Some(list) = self.list.filter(|_| !needless.is_empty()) else { return Ok(()) };
        let list = Zap::hold(&self.mos, list)?;
        for (txg, log) in needless {
            free_log(&self.mos, context.features, log.object, context.tx)?;
            list.remove_int(txg, context.tx)?;
        }
        Ok(())
    }
}
