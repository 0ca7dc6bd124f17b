//! The removals' part of a txg's sync: they begin, copy a part, and end, each with all that is to be on disk for it (OpenZFS: the `_sync` functions of
//! `vdev_removal.c`).
//!
//! What is copied is copied by the sync itself: nothing is allocated on the vdev meanwhile, and what was freed before is freed. So there is no part whose
//! place is known and whose bytes are not, and a crash finds the state of a txg, whole.

use super::chunks::{Chunk, Limits, chunks};
use super::objects::{CountedRange, DEVICE_REMOVAL, MappingObject, OBSOLETE_COUNTS, append_birth, create_births};
use super::run::Removals;
use super::transfer::{Move, carry_out};
use super::{NO_VDEV, obsolete, write_state};
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::features::DIRECTORY;
use crate::spa::vdev_props::ALLOCATING;
use crate::sync::changes::Edited;
use crate::sync::spacemap::AppendContext;
use crate::sync::step::{SyncStep, Syncing};
use crate::sync::tree::TreeWriter;
use dmu::Tx;
use metaslab::{AllocRequest, Preference};
use ondisk::names::top_zap;
use ondisk::{BlockId, Dva, Guid, ObjectId, RemovingPhys, Txg, VdevId, scan_state};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{Bias, Leaf, MappedRange, Mapping, RemovalObjects, TopKind, TopVdev, VdevTree};
use zap::{Value, Zap};

/// Allocated bytes that one txg copies at least, at first, and at most, about.
const BYTES_MIN: u64 = 4 << 20;
const BYTES_FIRST: u64 = 16 << 20;
const BYTES_MAX: u64 = 64 << 20;
/// Bytes of a segment at most, whatever the parameter says (OpenZFS: `SPA_MAXBLOCKSIZE`).
const SEGMENT_MAX: u64 = 16 << 20;
/// Nanoseconds that it may take: whoever waits for the txg waits as long.
const STEP_NS: u64 = 500_000_000;
/// Number of txgs after which what was written without a device that came back is over.
const SETTLED_TXGS: u32 = 3;

/// The removals' place in the sync, behind everything that frees.
pub(crate) struct RemovalStep {
    removals: Arc<Removals>,
    spa: Arc<Spa>,
    tree: Arc<TreeWriter>,
    /// Allocated bytes that the next txg copies, about.
    bytes: u64,
    /// Number of txgs since which each device in use is in use, as long as a vdev is being removed or about to be.
    in_use: BTreeMap<Guid, u32>,
    /// The last txg if it copied something, and the vdevs that it was copied to.
    last: Option<(Txg, BTreeSet<VdevId>)>,
}

impl SyncStep for RemovalStep {
    fn name(&self) -> &'static str {
        "removal of a vdev"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let tree = self.spa.tree();
        self.note_use(&tree);
        let Some(top) = tree.tops.iter().find(|top| top.is_leaving) else { return Ok(()) };
        // Frees of gangs may be on their way, to this place or to the next one.
        self.spa.zio().wait_frees();
        if self.removals.phys().sr_state != scan_state::SCANNING {
            return self.begin(top, at.tx);
        }
        if self.removals.take_cancel() {
            return self.cancel(top, at);
        }
        if self.has_failed(&tree, top, at.tx.txg()) && !self.goes_on_with_errors() {
            tracing::warn!("removal of vdev {}: a device failed to take what was written", top.id);
            return self.cancel(top, at);
        }
        if self.removals.is_suspended() {
            return Ok(());
        }
        let begun_ns = self.spa.exec().now_ns();
        self.go_on(&tree, top, at)?;
        self.bytes = match self.spa.exec().now_ns().saturating_sub(begun_ns) {
            took if took > STEP_NS => (self.bytes / 2).max(BYTES_MIN),
            took if took < STEP_NS / 4 => (self.bytes * 2).min(BYTES_MAX),
            _ => self.bytes,
        };
        Ok(())
    }
}

impl RemovalStep {
    /// Makes the step, which makes changes of the tree by `tree`.
    pub fn new(removals: Arc<Removals>, spa: Arc<Spa>, tree: Arc<TreeWriter>) -> RemovalStep {
        RemovalStep { removals, spa, tree, bytes: BYTES_FIRST, in_use: BTreeMap::new(), last: None }
    }

    fn goes_on_with_errors(&self) -> bool {
        self.removals.parameters.ignores_errors.load(Ordering::Relaxed) != 0
    }

    fn note_use(&mut self, tree: &VdevTree) {
        let is_on = tree.tops.iter().any(|top| top.is_leaving || top.is_emptying);
        let usable = tree.leaves.iter().filter(|leaf| is_on && leaf.state.is_usable());
        let txgs = |leaf: &Leaf| self.in_use.get(&leaf.guid).map_or(0, |known| known.saturating_add(1));
        self.in_use = usable.map(|leaf| (leaf.guid, txgs(leaf))).collect();
    }

    /// True when a device in use turned out to fail with the last txg, though no part of a copy did: one of the vdev, which would be left out with what is
    /// right on it alone; or one that was copied to and did not flush. That one is to get everything that was copied, which is older than the txg that it is
    /// known to lack.
    fn has_failed(&mut self, tree: &VdevTree, top: &TopVdev, txg: Txg) -> bool {
        let before = Txg(txg.0.saturating_sub(1));
        // One that just came back lacks txgs that it took no part in.
        let is_settled = |leaf: &Leaf| self.in_use.get(&leaf.guid).is_some_and(|txgs| *txgs >= SETTLED_TXGS);
        let mut has_failed = top.leaves().map(|id| tree.leaf(id)).any(|leaf| is_settled(leaf) && leaf.lacks(before));
        let Some((copied, places)) = self.last.take() else { return has_failed };
        let places = places.iter().filter_map(|id| tree.top(*id));
        for leaf in places.flat_map(TopVdev::leaves).map(|id| tree.leaf(id)).filter(|leaf| leaf.lacks(copied)) {
            self.spa.zio().note_missing(leaf.guid, Txg::INITIAL);
            has_failed |= is_settled(leaf);
        }
        has_failed
    }

    fn now(&self) -> u64 {
        self.spa.exec().wall_clock().0 as u64
    }

    fn log(&self, what: &'static str, top: &TopVdev, tx: &Tx) {
        let tree = self.spa.tree();
        let path =
            top.leaves().next().filter(|_| top.kind == TopKind::Leaf).map_or_else(|| "-".to_string(), |leaf| tree.leaf(leaf).path.clone());
        self.spa.services.log_internal(what, &format!("{} vdev {} {path}", self.spa.name(), top.id.0), tx);
    }

    /// Makes a change of a top-level vdev current that is no change of its devices.
    fn change(&self, id: VdevId, change: impl FnOnce(&mut TopVdev)) {
        let mut config = self.spa.config.lock();
        let mut tree = VdevTree::clone(&config.tree);
        if let Some(top) = tree.tops.get_mut(id.0 as usize) {
            change(top);
        }
        config.tree = tree.into();
        self.spa.publish(&config);
    }

    fn store(&self, phys: RemovingPhys, tx: &Tx) -> Result<(), PoolError> {
        write_state(&self.spa.mos, &phys, tx)?;
        self.removals.set_phys(phys);
        Ok(())
    }

    /// Segments of a metaslab that are allocated once the txg is synced, as far as it has come.
    fn allocated(&self, top: &TopVdev, metaslab: u32, txg: Txg) -> Vec<Range<u64>> {
        self.spa.services.allocator.allocated_after(top.id, metaslab, txg)
    }

    /// Begins the removal of a vdev from which nothing is allocated any more (OpenZFS: `vdev_remove_initiate_sync`).
    fn begin(&mut self, top: &TopVdev, tx: &Tx) -> Result<(), PoolError> {
        self.last = None;
        let (mos, features) = (&self.spa.mos, &self.spa.services.features);
        features.add(DEVICE_REMOVAL, 1, tx)?;
        if features.is_enabled(OBSOLETE_COUNTS) {
            features.add(OBSOLETE_COUNTS, 1, tx)?;
            obsolete::set_precise(mos, top, true, tx)?;
        }
        if !top.is_emptying && top.zap.0 != 0 {
            // It was empty by somebody's wish, which outlasts the removal.
            Zap::hold(mos, top.zap)?.update(ALLOCATING, &Value::U64(vec![0]), tx)?;
        }
        let mapping = MappingObject::create(mos, features, tx)?.object();
        let births = create_births(mos, tx)?;
        let count = self.spa.services.allocator.metaslab_count(top.id);
        let bytes = |metaslab| self.allocated(top, metaslab, tx.txg()).iter().map(|segment| segment.end - segment.start).sum::<u64>();
        let phys = RemovingPhys {
            sr_state: scan_state::SCANNING,
            sr_removing_vdev: u64::from(top.id.0),
            sr_start_time: self.now(),
            sr_end_time: 0,
            sr_to_copy: (0..count).map(bytes).sum(),
            sr_copied: 0,
            ..self.removals.phys()
        };
        // That was another removal's.
        self.spa.zio().take_uncopied();
        self.store(phys, tx)?;
        // Whoever imports the pool reads this before it knows where anything is that was on the vdev.
        let directory = mos.hold(DIRECTORY)?;
        for block in 0..=directory.info()?.max_block.0 {
            directory.will_modify(BlockId(block), tx)?;
        }
        self.change(top.id, |top| {
            top.objects = RemovalObjects { mapping, births, ..top.objects };
            (top.mapping, top.is_emptying) = (Some(Arc::default()), false);
        });
        self.spa.config.lock().dirty = true;
        self.log("vdev remove started", top, tx);
        Ok(())
    }

    /// Copies the next part; when there is none, the vdev is removed.
    fn go_on(&mut self, tree: &Arc<VdevTree>, top: &TopVdev, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let mapping = top.mapping.clone().unwrap_or_default();
        let next = self.next_chunks(top, mapping.end(), at.tx.txg());
        if next.is_empty() {
            return self.complete(top, at);
        }
        let Some(placed) = self.place(top, next, at.tx.txg()) else {
            tracing::warn!("removal of vdev {}: there is no room for what is on it", top.id);
            return self.cancel(top, at);
        };
        let moves: Vec<Move> = placed.iter().map(|(chunk, target)| Move { source: chunk.range().start, target: *target }).collect();
        match carry_out(self.spa.zio(), tree, top, &moves, self.goes_on_with_errors()) {
            Ok(lacking) => {
                self.last = Some((at.tx.txg(), moves.iter().map(|part| part.target.vdev).collect()));
                for leaf in lacking {
                    self.spa.zio().note_missing(leaf, at.tx.txg());
                    // What was copied is older than that: a resilver is to look at everything.
                    self.spa.zio().note_missing(leaf, Txg::INITIAL);
                }
                self.record(top, &mapping, &placed, at.tx)
            }
            Err(error) => {
                tracing::warn!("removal of vdev {}: a device failed: {error}", top.id);
                placed.iter().for_each(|(_, target)| self.spa.services.allocator.unalloc(at.tx.txg(), target));
                self.cancel(top, at)
            }
        }
    }

    /// Parts of the vdev from an offset on that are copied with this txg; none when nothing is left.
    fn next_chunks(&self, top: &TopVdev, from: u64, txg: Txg) -> Vec<Chunk> {
        let sector = 1u64 << top.ashift;
        let parameters = &self.removals.parameters;
        let most = self.bytes.min(parameters.txg_bytes_max.load(Ordering::Relaxed)).max(sector);
        let limits = Limits {
            segment_max: parameters.segment_max.load(Ordering::Relaxed).clamp(sector, most.min(SEGMENT_MAX)).next_multiple_of(sector),
            span_max: parameters.span_max.load(Ordering::Relaxed),
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        for metaslab in (from >> top.ms_shift) as u32..self.spa.services.allocator.metaslab_count(top.id) {
            if bytes >= most {
                break;
            }
            let rest = |segment: Range<u64>| segment.start.max(from)..segment.end;
            let segments = self.allocated(top, metaslab, txg).into_iter().map(rest).filter(|segment| !segment.is_empty());
            let more = chunks(segments, limits, most - bytes);
            bytes += more.iter().map(Chunk::live_bytes).sum::<u64>();
            found.extend(more);
        }
        found
    }

    /// Finds a place for each chunk, in more pieces where there is no room for a whole one; None when some find none. Blocks that were for some vdevs only
    /// go to others of these, if there is room.
    fn place(&self, top: &TopVdev, next: Vec<Chunk>, txg: Txg) -> Option<Vec<(Chunk, Dva)>> {
        let allocator = &self.spa.services.allocator;
        let preference = Preference { dedup: top.bias == Bias::Dedup, special_percent: if top.bias == Bias::Special { 100 } else { 0 } };
        let sector = 1u64 << top.ashift;
        let mut most = u64::MAX;
        let mut waiting: Vec<Chunk> = next.into_iter().rev().collect();
        let mut placed = Vec::new();
        while let Some(chunk) = waiting.pop() {
            let (chunk, rest) = if chunk.bytes() > most { chunk.divided(most) } else { (chunk, None) };
            waiting.extend(rest);
            let request = AllocRequest { psize: chunk.bytes(), copies: 1, txg, hint: u64::from(top.id.0) };
            let target = allocator.alloc_preferring(preference, &request).ok().map(|[target, ..]| target);
            match target {
                Some(target) if target.asize == chunk.bytes() => placed.push((chunk, target)),
                None if chunk.bytes() > sector => {
                    most = (chunk.bytes() / 2).next_multiple_of(sector);
                    waiting.push(chunk);
                }
                unfit => {
                    let taken = placed.iter().map(|(_, target)| target).chain(&unfit);
                    taken.for_each(|target| allocator.unalloc(txg, target));
                    return None;
                }
            }
        }
        Some(placed)
    }

    /// Writes down where what was copied is (OpenZFS: `vdev_mapping_sync`).
    fn record(&self, top: &TopVdev, mapping: &Mapping, placed: &[(Chunk, Dva)], tx: &Tx) -> Result<(), PoolError> {
        let (mos, allocator) = (&self.spa.mos, &self.spa.services.allocator);
        let mut ranges: Vec<CountedRange> = Vec::new();
        for (chunk, target) in placed {
            let source = chunk.range().start;
            for gap in chunk.gaps() {
                let unused = Dva { offset: target.offset + (gap.start - source), asize: gap.end - gap.start, ..*target };
                allocator.free(tx.txg(), &unused);
            }
            let unused = chunk.bytes() - chunk.live_bytes();
            ranges.push((MappedRange { source, target: *target }, u32::try_from(unused).unwrap_or(u32::MAX)));
        }
        let plain: Vec<MappedRange> = ranges.iter().map(|(range, _)| *range).collect();
        let grown = mapping.with(&plain, tx.txg()).ok_or(PoolError::Corrupt("the mapping of a vdev that is being removed"))?;
        MappingObject::open(mos, top.objects.mapping)?.append(&ranges, tx)?;
        append_birth(mos, top.objects.births, grown.end(), tx)?;
        let phys = self.removals.phys();
        let done = placed.iter().map(|(chunk, _)| chunk.live_bytes()).sum::<u64>() + self.spa.zio().take_uncopied();
        let copied = phys.sr_copied.saturating_add(done);
        self.store(RemovingPhys { sr_copied: copied.min(phys.sr_to_copy), ..phys }, tx)?;
        self.change(top.id, |top| top.mapping = Some(Arc::new(grown)));
        Ok(())
    }

    /// Takes the vdev out of the pool, of which everything was copied (OpenZFS: `vdev_remove_complete_sync`).
    fn complete(&self, top: &TopVdev, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let (phys, tree) = (self.removals.phys(), self.spa.tree());
        let previous = Some(phys.sr_prev_indirect_vdev).filter(|id| *id != NO_VDEV).map(|id| VdevId(id as u32));
        let mut next = tree.without_contents(top.id, self.spa.new_guid(&tree))?;
        if let Some(removed) = next.tops.get_mut(top.id.0 as usize) {
            removed.objects.previous = previous;
        }
        let log = Some(("vdev remove completed", format!("{} vdev {}", self.spa.name(), top.id.0)));
        self.tree.take_edit(Edited { tree: next.into(), log, ..Edited::default() }, at.maps, at.tx)?;
        let phys = RemovingPhys {
            sr_state: scan_state::FINISHED,
            sr_prev_indirect_vdev: u64::from(top.id.0),
            sr_end_time: self.now(),
            sr_copied: phys.sr_to_copy,
            ..phys
        };
        self.store(phys, at.tx)?;
        self.spa.notify("sysevent.fs.zfs.vdev_remove_dev", None);
        Ok(())
    }

    /// Ends a removal whose vdev stays: what was copied and not freed since is freed where it was copied to (OpenZFS: `spa_vdev_remove_cancel_sync`).
    fn cancel(&self, top: &TopVdev, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let (spa, tx) = (&self.spa, at.tx);
        let (mos, services) = (&spa.mos, &spa.services);
        let context = AppendContext { allocator: &services.allocator, features: &services.features, pass: at.pass, tx };
        self.give_back(top, tx.txg());
        MappingObject::open(mos, top.objects.mapping)?.destroy(&services.features, tx)?;
        mos.free_object(top.objects.births, tx)?;
        obsolete::destroy(mos, top, &context)?;
        let zap = Zap::hold(mos, top.zap)?;
        if zap.try_lookup_u64(top_zap::OBSOLETE_COUNTS_ARE_PRECISE)?.unwrap_or(0) != 0 {
            services.features.add(OBSOLETE_COUNTS, -1, tx)?;
            obsolete::set_precise(mos, top, false, tx)?;
        }
        services.features.add(DEVICE_REMOVAL, -1, tx)?;
        let stays_empty = matches!(zap.try_lookup(ALLOCATING)?, Some(Value::U64(words)) if words.first() == Some(&0));
        self.change(top.id, |top| {
            (top.is_leaving, top.nonallocating, top.mapping) = (false, stays_empty, None);
            top.objects = RemovalObjects { mapping: ObjectId(0), births: ObjectId(0), ..top.objects };
        });
        spa.config.lock().dirty = true;
        services.allocator.follow(&spa.tree());
        let phys = RemovingPhys { sr_state: scan_state::CANCELED, sr_end_time: self.now(), ..self.removals.phys() };
        self.store(phys, tx)?;
        self.log("vdev remove canceled", top, tx);
        Ok(())
    }

    /// Frees the copies of what is still on the vdev.
    fn give_back(&self, top: &TopVdev, txg: Txg) {
        let Some(mapping) = &top.mapping else { return };
        let end = mapping.end();
        for metaslab in 0..self.spa.services.allocator.metaslab_count(top.id) {
            if top.metaslab_range(metaslab).start >= end {
                break;
            }
            for segment in self.allocated(top, metaslab, txg).into_iter().filter(|segment| segment.start < end) {
                let length = segment.end.min(end) - segment.start;
                let Some(pieces) = mapping.pieces(segment.start, length) else {
                    tracing::warn!("removal of vdev {}: {length} bytes at {:#x} have no copy", top.id, segment.start);
                    continue;
                };
                for piece in pieces {
                    self.spa.services.allocator.free(txg, &piece.place);
                }
            }
        }
    }
}
