//! Space maps of a checkpoint, one for each top-level vdev that needs one: the blocks that it has and that were freed since, all as freed. In the
//! metaslabs' own maps they stay allocated until the checkpoint is discarded (OpenZFS: `vdev_checkpoint_sm`).

use super::spacemap::{AppendContext, Map, extent};
use crate::PoolError;
use crate::spa::features::Features;
use dmu::{Objset, Tx};
use metaslab::KeptSpace;
use ondisk::names::top_zap::POOL_CHECKPOINT_SM;
use ondisk::{Dva, MapType, ObjectId, VdevId};
use range_tree::RangeTree;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use vdev::{TopVdev, VdevTree};
use zap::Zap;

/// Block size of the maps (OpenZFS: `zfs_vdev_standard_sm_blksz`).
const BLOCK_BYTES: usize = 1 << 17;
const DAMAGED: &str = "the space map of a checkpoint";

/// The maps of a pool's checkpoint.
pub(crate) struct KeptMaps {
    mos: Arc<Objset>,
    maps: BTreeMap<VdevId, Map>,
    /// Vdevs whose maps cannot be read: what they say stays allocated.
    broken: BTreeSet<VdevId>,
}

/// The bytes of a vdev that its map may name.
fn range_of(top: &TopVdev) -> Range<u64> {
    0..top.metaslab_count() << top.ms_shift
}

/// The object of a vdev's map, if it has one.
fn object_of(mos: &Arc<Objset>, top: &TopVdev) -> Result<Option<ObjectId>, PoolError> {
    if top.zap.0 == 0 {
        return Ok(None);
    }
    Ok(Zap::hold(mos, top.zap)?.try_lookup_u64(POOL_CHECKPOINT_SM)?.map(ObjectId))
}

/// Segments that a checkpoint keeps, by vdev, for checks of space.
pub(crate) fn segments(mos: &Arc<Objset>, tree: &VdevTree) -> Result<BTreeMap<VdevId, RangeTree>, PoolError> {
    let mut all = BTreeMap::new();
    for (vdev, map) in KeptMaps::open(mos, tree)?.maps {
        let (mut kept, top) = (RangeTree::new(), tree.top(vdev).ok_or(PoolError::Object(map.id(), DAMAGED))?);
        let is_sound = map.each_run(&mut |run| {
            let Some(at) = extent(run, &range_of(top), top.ashift) else { return false };
            run.kind == MapType::Free && kept.add(at.start, at.end - at.start).is_ok()
        })?;
        if !is_sound {
            return Err(PoolError::Object(map.id(), DAMAGED));
        }
        all.insert(vdev, kept);
    }
    Ok(all)
}

impl KeptMaps {
    /// The maps of a pool without a checkpoint.
    pub fn new(mos: &Arc<Objset>) -> KeptMaps {
        KeptMaps { mos: mos.clone(), maps: BTreeMap::new(), broken: BTreeSet::new() }
    }

    /// Opens those that are on disk.
    pub fn open(mos: &Arc<Objset>, tree: &VdevTree) -> Result<KeptMaps, PoolError> {
        let mut all = KeptMaps::new(mos);
        for top in tree.tops.iter().filter(|top| top.is_concrete()) {
            if let Some(object) = object_of(mos, top)? {
                all.maps.insert(top.id, Map::open(mos, object)?);
            }
        }
        Ok(all)
    }

    /// True when there is none (any more).
    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// Bytes that are kept, by vdev.
    pub fn bytes(&self) -> BTreeMap<VdevId, u64> {
        self.maps.iter().map(|(vdev, map)| (*vdev, map.freed_bytes())).filter(|(_, bytes)| *bytes != 0).collect()
    }

    /// Writes down what is kept of what was freed.
    pub fn append(&mut self, kept: &[KeptSpace], tree: &VdevTree, context: &AppendContext<'_>) -> Result<(), PoolError> {
        for space in kept {
            let top = tree.top(space.vdev).ok_or(PoolError::Corrupt("blocks of a checkpoint on a vdev that left"))?;
            let map = match self.maps.entry(space.vdev) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(begin(&self.mos, top, context)?),
            };
            map.write(&[(MapType::Free, space.segments.as_slice())], 0, top.ashift, context)?;
            map.finish(&[0; 64], top.ashift, context.tx)?;
        }
        Ok(())
    }

    /// Takes segments off the ends of the maps, at most so many, to be freed in this txg; maps with nothing left go (OpenZFS:
    /// `spa_checkpoint_discard_thread_sync`). One that cannot be read stays, with all that it says.
    pub fn take_last(&mut self, most: usize, tree: &VdevTree, (features, tx): (&Features, &Tx)) -> Result<Vec<Dva>, PoolError> {
        let mut taken = Vec::new();
        let usable: Vec<VdevId> = self.maps.keys().filter(|vdev| !self.broken.contains(*vdev)).copied().collect();
        for vdev in usable {
            let (Some(map), Some(top)) = (self.maps.get_mut(&vdev), tree.top(vdev)) else { continue };
            let left = most.saturating_sub(taken.len());
            if left == 0 {
                break;
            }
            let Some(segments) = last_of(map, top, left) else {
                tracing::error!("vdev {vdev}: {DAMAGED} (object {}) cannot be read: what it keeps stays allocated", map.id());
                self.broken.insert(vdev);
                continue;
            };
            let dva = |at: Range<u64>| Dva { vdev, offset: at.start, asize: at.end - at.start, gang: false };
            taken.extend(segments.into_iter().map(dva));
            if !map.is_empty() {
                map.finish(&[0; 64], top.ashift, tx)?;
            } else if let Some(map) = self.maps.remove(&vdev) {
                map.destroy(&self.mos, features, tx)?;
                Zap::hold(&self.mos, top.zap)?.remove(POOL_CHECKPOINT_SM, tx)?;
            }
        }
        Ok(taken)
    }
}

/// The map of a vdev that has had nothing to write down. A checkpoint that was discarded while the vdev was away has left its own: what that keeps goes with
/// the next one.
fn begin(mos: &Arc<Objset>, top: &TopVdev, context: &AppendContext<'_>) -> Result<Map, PoolError> {
    if let Some(object) = object_of(mos, top)? {
        return Map::open(mos, object);
    }
    let map = Map::create(mos, BLOCK_BYTES, context)?;
    Zap::hold(mos, top.zap)?.add_u64(POOL_CHECKPOINT_SM, map.id().0, context.tx)?;
    Ok(map)
}

/// Takes segments off the end of one map; None when it is damaged, or cannot be read.
fn last_of(map: &mut Map, top: &TopVdev, most: usize) -> Option<Vec<Range<u64>>> {
    let runs = map.take_last(most, top.ashift).ok().flatten()?;
    let segment = |run: &ondisk::SpaceMapRun| extent(run, &range_of(top), top.ashift).filter(|_| run.kind == MapType::Free);
    runs.iter().map(segment).collect()
}
