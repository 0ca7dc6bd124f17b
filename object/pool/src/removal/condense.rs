//! Mappings written anew without what nobody needs any more (OpenZFS: the `spa_condense_indirect` functions of `vdev_indirect.c`). There it takes many
//! txgs; here a mapping is in memory whole, and is written with one.

use super::objects::{CountedRange, MappingObject};
use super::obsolete::{self, object_of};
use super::run::Removals;
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::features::DIRECTORY;
use crate::sync::spacemap::{AppendContext, Map};
use crate::sync::step::{SyncStep, Syncing};
use ondisk::names::mos as directory;
use ondisk::{CondensingPhys, ObjectId, VdevId, from_words};
use range_tree::RangeTree;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{Mapping, TopVdev, VdevTree};
use zap::{Value, Zap};

const LACKING: &str = "a mapping that lacks what was freed";

/// The step that condenses mappings that are worth it, one a txg.
pub(crate) struct CondenseStep {
    pub removals: Arc<Removals>,
    pub spa: Arc<Spa>,
    /// True once nobody else's condensing is under way.
    pub has_taken_over: bool,
}

impl SyncStep for CondenseStep {
    fn name(&self) -> &'static str {
        "mappings of removed vdevs"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let services = &self.spa.services;
        let context = AppendContext { allocator: &services.allocator, features: &services.features, pass: at.pass, tx: at.tx };
        if !self.has_taken_over {
            self.has_taken_over = true;
            self.take_over(&context)?;
        }
        if self.removals.parameters.condenses.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let tree = self.spa.tree();
        let mut touched = self.removals.take_touched().into_iter();
        for id in touched.by_ref() {
            let Some(top) = tree.tops.get(id.0 as usize).filter(|top| top.is_removed()) else { continue };
            if self.consider(top, &context)? {
                break;
            }
        }
        touched.for_each(|id| self.removals.touch(id));
        Ok(())
    }
}

impl CondenseStep {
    /// Ends what another writer began: what it had of the new mapping goes, and what it had of ranges that nobody needs counts.
    fn take_over(&self, context: &AppendContext<'_>) -> Result<(), PoolError> {
        let mos = &self.spa.mos;
        let zap = Zap::hold(mos, DIRECTORY)?;
        let Some(Value::U64(words)) = zap.try_lookup(directory::CONDENSING_INDIRECT)? else { return Ok(()) };
        let phys: CondensingPhys = from_words(&words);
        let tree = self.spa.tree();
        let top = u32::try_from(phys.scip_vdev).ok().and_then(|id| tree.addressed(VdevId(id))).filter(|top| top.is_removed());
        let top = top.ok_or(PoolError::Corrupt("the vdev whose mapping is being condensed"))?;
        let earlier = ObjectId(phys.scip_prev_obsolete_sm_object);
        let mut unneeded = Map::open(mos, earlier)?.read_bytes(top.asize)?;
        if let Some(object) = object_of(mos, top)? {
            for range in Map::open(mos, object)?.read_bytes(top.asize)?.iter() {
                unneeded.cover(range);
            }
        }
        if !self.condense(top, &unneeded, context)? {
            return Err(PoolError::Object(top.objects.mapping, LACKING));
        }
        MappingObject::open(mos, ObjectId(phys.scip_next_mapping_object))?.destroy(context.features, context.tx)?;
        obsolete::destroy_map(mos, earlier, context)?;
        Ok(zap.remove(directory::CONDENSING_INDIRECT, context.tx)?)
    }

    /// Condenses the mapping of a removed vdev if it is worth it (OpenZFS: `vdev_indirect_should_condense`); true when it was.
    fn consider(&self, top: &TopVdev, context: &AppendContext<'_>) -> Result<bool, PoolError> {
        let (mos, parameters) = (&self.spa.mos, &self.removals.parameters);
        let (Some(object), Some(mapping)) = (object_of(mos, top)?, &top.mapping) else { return Ok(false) };
        let map = Map::open(mos, object)?;
        let mapped = MappingObject::open(mos, top.objects.mapping)?.bytes_mapped();
        let percent = map.allocated().saturating_mul(100).checked_div(mapped).unwrap_or(0);
        let is_large = mapping.memory_bytes() > parameters.condense_bytes_min.load(Ordering::Relaxed);
        let saves_memory = is_large && percent >= parameters.condense_percent.load(Ordering::Relaxed);
        if !saves_memory && map.length() < parameters.obsolete_bytes_max.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match map.read_bytes(top.asize) {
            Ok(unneeded) => self.condense(top, &unneeded, context),
            // The mapping takes more memory than it has to, and is as right as before.
            Err(error @ PoolError::Object(..)) => {
                tracing::error!("vdev {}: its mapping is not condensed: {error}", top.id);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the mapping of a removed vdev anew, without the ranges of which nobody needs anything. False when it lacks some of what is not needed: then
    /// nothing was done.
    fn condense(&self, top: &TopVdev, unneeded: &RangeTree, context: &AppendContext<'_>) -> Result<bool, PoolError> {
        let (mos, features, tx) = (&self.spa.mos, context.features, context.tx);
        let mapping = top.mapping.as_ref().ok_or(PoolError::Corrupt("a removed vdev without a mapping"))?;
        let old = MappingObject::open(mos, top.objects.mapping)?;
        let mut counts = old.counts()?;
        if !add_counts(mapping, &mut counts, unneeded) {
            tracing::error!("vdev {}: {LACKING} (object {}) is not condensed", top.id, top.objects.mapping);
            return Ok(false);
        }
        let is_needed = |number: usize| counts.get(number).is_none_or(|count| u64::from(*count) < mapping.ranges()[number].target.asize);
        let numbered = mapping.ranges().iter().copied().zip(counts.iter().copied()).enumerate();
        let kept: Vec<CountedRange> = numbered.filter(|(number, _)| is_needed(*number)).map(|(_, counted)| counted).collect();
        let mut new = MappingObject::create(mos, features, tx)?;
        new.append(&kept, tx)?;
        old.destroy(features, tx)?;
        obsolete::destroy(mos, top, context)?;
        tracing::debug!("vdev {}: its mapping has {} of {} ranges left", top.id, kept.len(), mapping.ranges().len());
        let (object, condensed) = (new.object(), Arc::new(mapping.condensed(is_needed)));
        let mut config = self.spa.config.lock();
        let mut tree = VdevTree::clone(&config.tree);
        if let Some(top) = tree.tops.get_mut(top.id.0 as usize) {
            (top.objects.mapping, top.mapping) = (object, Some(condensed));
        }
        config.tree = Arc::new(tree);
        config.dirty = true;
        self.spa.publish(&config);
        Ok(true)
    }
}

/// Adds the bytes of each range that nobody needs; false when some of them are of none (OpenZFS:
/// `vdev_indirect_mapping_increment_obsolete_count`).
fn add_counts(mapping: &Mapping, counts: &mut [u32], unneeded: &RangeTree) -> bool {
    for segment in unneeded.iter() {
        let (mut at, mut number) = (segment.start, mapping.index_of(segment.start));
        while at < segment.end {
            let (Some(range), Some(count)) = (mapping.ranges().get(number), counts.get_mut(number)) else { return false };
            if range.source > at {
                return false;
            }
            let bytes = range.end().min(segment.end) - at;
            *count = count.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            (at, number) = (at + bytes, number + 1);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::Dva;
    use vdev::MappedRange;

    fn mapping() -> Mapping {
        let range = |source, asize| MappedRange { source, target: Dva { vdev: VdevId(1), offset: source, asize, gang: false } };
        Mapping::new(vec![range(0, 4096), range(4096, 8192), range(20480, 4096)], Vec::new()).expect("sound")
    }

    /// If this fails, a range is taken out of a mapping though a block still lies there, or memory is never given back.
    #[test]
    fn what_is_freed_is_counted_for_the_range_that_has_it() {
        let mut unneeded = RangeTree::new();
        unneeded.cover(2048..6144);
        unneeded.cover(20480..24576);
        let mut counts = vec![0, 100, 0];
        assert!(add_counts(&mapping(), &mut counts, &unneeded));
        assert_eq!(counts, [2048, 2148, 4096]);
        for beside in [12288..16384, 16384..21504, 24576..28672] {
            let mut unneeded = RangeTree::new();
            unneeded.cover(beside);
            assert!(!add_counts(&mapping(), &mut [0; 3], &unneeded), "nothing is mapped there");
        }
        let condensed = mapping().condensed(|number| number != 1);
        assert_eq!(condensed.ranges().iter().map(|range| range.source).collect::<Vec<_>>(), [0, 20480]);
    }
}
