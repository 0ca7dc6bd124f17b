//! What of removed vdevs nobody needs any more: a map of the ranges to which no block leads, appended to with each txg (OpenZFS:
//! `vdev_indirect_sync_obsolete`).

use super::objects::OBSOLETE_COUNTS;
use super::run::Removals;
use crate::PoolError;
use crate::spa::Spa;
use crate::sync::spacemap::{AppendContext, Map};
use crate::sync::step::{SyncStep, Syncing};
use dmu::{Objset, Tx};
use ondisk::names::top_zap;
use ondisk::{ObjectId, VdevId};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vdev::TopVdev;
use zap::Zap;

/// Block size of new maps (OpenZFS: `zfs_vdev_standard_sm_blksz`).
const BLOCK_BYTES: usize = 1 << 17;

/// The step of every pass that writes down which ranges of removed vdevs nobody needs any more.
pub(crate) struct WriteObsolete {
    pub spa: Arc<Spa>,
    pub removals: Arc<Removals>,
}

impl SyncStep for WriteObsolete {
    fn name(&self) -> &'static str {
        "contents of removed vdevs that nobody needs"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let services = &self.spa.services;
        self.spa.zio().wait_frees();
        let mut ranges: BTreeMap<VdevId, RangeTree> = BTreeMap::new();
        for (vdev, range) in self.spa.zio().take_obsolete() {
            ranges.entry(vdev).or_default().cover(range);
        }
        if !services.features.is_enabled(OBSOLETE_COUNTS) {
            return Ok(());
        }
        let tree = self.spa.tree();
        let context = AppendContext { allocator: &services.allocator, features: &services.features, pass: at.pass, tx: at.tx };
        for (vdev, ranges) in ranges {
            // A removal may have been cancelled since.
            let known = tree.addressed(vdev).filter(|top| top.objects.mapping.0 != 0 && top.zap.0 != 0);
            if let Some(top) = known {
                self.removals.touch(vdev);
                append(&self.spa.mos, top, &ranges.iter().collect::<Vec<_>>(), &context)?;
            }
        }
        Ok(())
    }
}

/// The map of what nobody needs of a vdev; None where it has none.
pub(super) fn object_of(mos: &Arc<Objset>, top: &TopVdev) -> Result<Option<ObjectId>, PoolError> {
    if top.zap.0 == 0 {
        return Ok(None);
    }
    Ok(Zap::hold(mos, top.zap)?.try_lookup_u64(top_zap::INDIRECT_OBSOLETE_SM)?.map(ObjectId))
}

fn append(mos: &Arc<Objset>, top: &TopVdev, ranges: &[Range<u64>], context: &AppendContext<'_>) -> Result<(), PoolError> {
    let mut map = match object_of(mos, top)? {
        Some(object) => Map::open(mos, object)?,
        None => {
            let map = Map::create(mos, BLOCK_BYTES, context)?;
            Zap::hold(mos, top.zap)?.add_u64(top_zap::INDIRECT_OBSOLETE_SM, map.id().0, context.tx)?;
            context.features.add(OBSOLETE_COUNTS, 1, context.tx)?;
            map
        }
    };
    map.append_bytes(ranges, context)
}

/// Frees the map of what nobody needs of a vdev, if it has one.
pub(super) fn destroy(mos: &Arc<Objset>, top: &TopVdev, context: &AppendContext<'_>) -> Result<(), PoolError> {
    let Some(object) = object_of(mos, top)? else { return Ok(()) };
    destroy_map(mos, object, context)?;
    Ok(Zap::hold(mos, top.zap)?.remove(top_zap::INDIRECT_OBSOLETE_SM, context.tx)?)
}

/// Frees a map that no vdev has any more.
pub(super) fn destroy_map(mos: &Arc<Objset>, object: ObjectId, context: &AppendContext<'_>) -> Result<(), PoolError> {
    Map::open(mos, object)?.destroy(mos, context.features, context.tx)?;
    context.features.add(OBSOLETE_COUNTS, -1, context.tx)
}

/// Has the mapping of a vdev that is being removed tell exactly how much of it nobody needs, or no longer (OpenZFS:
/// `vdev_obsolete_counts_are_precise`).
pub(super) fn set_precise(mos: &Arc<Objset>, top: &TopVdev, is_precise: bool, tx: &Tx) -> Result<(), PoolError> {
    let zap = Zap::hold(mos, top.zap)?;
    if is_precise {
        zap.add_u64(top_zap::OBSOLETE_COUNTS_ARE_PRECISE, 1, tx)?;
    } else {
        zap.remove(top_zap::OBSOLETE_COUNTS_ARE_PRECISE, tx)?;
    }
    Ok(())
}
