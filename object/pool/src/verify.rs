//! Checks that the space maps agree with the block pointers: every allocated segment belongs to exactly one block, and every
//! block lies in allocated space (OpenZFS: `zdb -b`).

use crate::PoolError;
use crate::spa::Spa;
use crate::spa::brt::{Place, is_shareable};
use crate::spa::features::DIRECTORY;
use crate::spa::mos_objects::check_length;
use crate::sync::brt::references;
use crate::sync::dedup::add_references;
use crate::sync::kept;
use dmu::{BlockError, BlockIo};
use dsl::{DslError, Walk};
use exec::WaitQueue;
use ondisk::{BlockPtr, Bookmark, BpobjPhys, DslDatasetPhys, Dva, ObjectId, ObjectType, ObjsetId, ObjsetPhys, Txg, VdevId};
use range_tree::RangeTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{Piece, TopKind, VdevTree};
use zap::Zap;

/// Most blocks that cannot be read of which a report has the addresses.
const NAMED_MAX: usize = 1000;

/// Block that was to be read and could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Address of the block; None for one that an intent log names, or that waits to be freed.
    pub at: Option<Bookmark>,
    /// Type of its object.
    pub kind: ObjectType,
    /// Cause.
    pub error: BlockError,
}

/// Result of the check of space maps against blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceReport {
    /// Number of block pointers that were counted.
    pub blocks: u64,
    /// Bytes of all copies.
    pub bytes: u64,
    /// Bytes that two blocks claim.
    pub overlapping: u64,
    /// Bytes of blocks in space that the space maps call free.
    pub unallocated: u64,
    /// Bytes that the space maps call allocated and no block claims, nor a checkpoint.
    pub leaked: u64,
    /// Number of blocks that were to be read and could not be, or whose checksum is wrong.
    pub unreadable: u64,
    /// Number of those that are contents of files and volumes, and no metadata.
    pub unreadable_data: u64,
    /// The first thousand of them.
    pub named: Vec<Unreadable>,
    /// Number of gang blocks, whose members were not counted: their bytes show as leaked.
    pub gangs: u64,
    /// Bytes that are allocated for the sake of a checkpoint only.
    pub kept: u64,
    /// Number of metaslabs of which nobody knows what is free: what lies there was held against nothing.
    pub unknown: u64,
}

impl SpaceReport {
    /// True when all space maps are known and agree with the blocks exactly, and all that was read could be.
    pub fn is_clean(&self) -> bool {
        self.is_sound() && (self.leaked == 0 || self.gangs != 0)
    }

    /// True when nothing that is in use can be written over, and all that was read could be: what is leaked costs space only.
    pub fn is_sound(&self) -> bool {
        self.unreadable == 0 && self.unknown == 0 && self.overlapping == 0 && self.unallocated == 0
    }
}

/// Result of the check of a checkpoint against the pool that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Bytes that are allocated in the checkpoint's state and free in the pool: they may be written over.
    pub lost: u64,
    /// Bytes that are kept for the sake of the checkpoint, and that are free in its state.
    pub foreign: u64,
}

impl CheckpointReport {
    /// True when the pool keeps just what the checkpoint has.
    pub fn is_clean(&self) -> bool {
        *self == CheckpointReport::default()
    }
}

/// Blocks that are read besides those that lead to others, whose checksums count always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// No further blocks.
    #[default]
    Nothing,
    /// Blocks of metadata (OpenZFS: `zdb -c`).
    Metadata,
    /// Blocks of metadata, and of contents of datasets those born after a txg, several at once, as long as nothing but contents was found damaged
    /// (OpenZFS: `spa_load_verify`).
    Since {
        /// Contents of this txg and those before it are left alone.
        after: Txg,
        /// Bytes of contents that are read at once; a block that is longer is read alone.
        bytes_max: u64,
    },
    /// All blocks (`zdb -cc`).
    Everything,
}

impl Reading {
    /// True for a block that is to be read; logs are not meant to be.
    fn wants(self, bp: &BlockPtr) -> bool {
        let wanted = match self {
            Reading::Nothing => false,
            Reading::Metadata => is_metadata(bp),
            Reading::Since { after, .. } => is_metadata(bp) || bp.birth() > after,
            Reading::Everything => bp.object_type() != ObjectType::INTENT_LOG,
        };
        wanted && !bp.is_hole() && !bp.is_embedded()
    }
}

/// True for all but contents of files and volumes (OpenZFS: `BP_IS_METADATA`).
fn is_metadata(bp: &BlockPtr) -> bool {
    bp.level() > 0 || bp.object_type().is_metadata()
}

/// Reads under way that nobody waits for one by one.
#[derive(Default)]
struct Flight {
    bytes: AtomicU64,
    failed: AtomicU64,
    landed: WaitQueue,
}

impl Flight {
    /// Starts to read a block, once no more than `bytes_max` bytes are under way with it.
    fn start(self: &Arc<Flight>, io: &dyn BlockIo, bp: &BlockPtr, bytes_max: u64) {
        let bytes = bp.psize() as u64;
        self.wait(io, bytes_max.saturating_sub(bytes));
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let flight = self.clone();
        io.read_stored(
            bp,
            &Bookmark::default(),
            Box::new(move |result| {
                flight.failed.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
                flight.bytes.fetch_sub(bytes, Ordering::Release);
                flight.landed.notify_all();
            }),
        );
    }

    /// Waits until no more than so many bytes are under way.
    fn wait(&self, io: &dyn BlockIo, bytes_left: u64) {
        self.landed.wait_until(io.exec(), &|| self.bytes.load(Ordering::Acquire) <= bytes_left);
    }

    /// Waits for all; gives the number of blocks that could not be read.
    fn land(&self, io: &dyn BlockIo) -> u64 {
        self.wait(io, 0);
        self.failed.load(Ordering::Relaxed)
    }
}

struct Counter<'a> {
    io: &'a dyn BlockIo,
    tree: Arc<VdevTree>,
    reading: Reading,
    flight: Arc<Flight>,
    report: SpaceReport,
    claimed: Vec<RangeTree>,
    /// Number of pointers still to come to every shared block but the last one, which claims it.
    shared: BTreeMap<Place, u64>,
    /// Allocated bytes of a gang's header, by vdev: the address of a gang states the bytes of all its members.
    header_bytes: Vec<u64>,
}

impl Counter<'_> {
    /// Reads a block, if it is to be read, to see whether it is intact.
    fn read(&mut self, bp: &BlockPtr, at: Option<&Bookmark>) {
        let is_data = !is_metadata(bp);
        match self.reading {
            reading if !reading.wants(bp) => {}
            Reading::Since { bytes_max, .. } if is_data => {
                // Who finds the pool damaged has no use for what is in its files.
                if self.report.is_sound() {
                    self.flight.start(self.io, bp, bytes_max);
                }
            }
            _ => {
                if let Err(error) = self.check(bp, at) {
                    self.count_unreadable(1, is_data);
                    if self.report.named.len() < NAMED_MAX {
                        self.report.named.push(Unreadable { at: at.copied(), kind: bp.object_type(), error });
                    }
                }
            }
        }
    }

    /// Reads a block. What is encrypted is held against its checksum as it is stored: that takes no key.
    fn check(&self, bp: &BlockPtr, at: Option<&Bookmark>) -> Result<(), BlockError> {
        let at = at.copied().unwrap_or_default();
        let read = if zio::is_sealed(bp) { self.io.read_stored_now(bp, &at) } else { self.io.read(bp, &at) };
        read.map(drop)
    }

    fn count_unreadable(&mut self, blocks: u64, is_data: bool) {
        self.report.unreadable += blocks;
        self.report.unreadable_data += if is_data { blocks } else { 0 };
    }

    /// True for a pointer to a shared block that leaves claiming it to a later one.
    fn is_one_of_several(&mut self, bp: &BlockPtr) -> bool {
        let is_block = is_shareable(bp) && !bp.is_hole() && !bp.is_embedded();
        let Some(left) = self.shared.get_mut(&Place::of(bp)).filter(|left| is_block && **left > 0) else { return false };
        *left -= 1;
        true
    }

    fn count(&mut self, bp: &BlockPtr, at: Option<&Bookmark>) {
        self.read(bp, at);
        self.report.blocks += 1;
        self.report.gangs += u64::from(bp.is_gang());
        if self.is_one_of_several(bp) {
            return;
        }
        for dva in bp.dvas() {
            let Some(header_bytes) = self.header_bytes.get(dva.vdev.0 as usize) else {
                self.report.unallocated += dva.asize;
                continue;
            };
            let asize = if dva.gang { *header_bytes } else { dva.asize };
            self.report.bytes += asize;
            self.claim(&Dva { asize, gang: false, ..dva });
        }
    }

    /// Claims the space of an address: where its bytes are, and, on a vdev that is being removed, where they were copied to.
    fn claim(&mut self, dva: &Dva) {
        let tree = self.tree.clone();
        if tree.addressed(dva.vdev).is_none() {
            return;
        }
        for piece in tree.places(dva, &mut |_, _| ()).unwrap_or_else(|| vec![Piece { at: 0, place: *dva, birth: Txg::ZERO }]) {
            let place = piece.place;
            let claimed = &mut self.claimed[place.vdev.0 as usize];
            let added = claimed.cover(place.offset..place.offset.saturating_add(place.asize));
            self.report.overlapping += place.asize - added;
            let copied = tree.top(place.vdev).and_then(|top| top.mapping.as_ref()).filter(|mapping| place.offset < mapping.end());
            let Some(mapping) = copied else { continue };
            let length = place.asize.min(mapping.end() - place.offset);
            match mapping.pieces(place.offset, length) {
                Some(pieces) => pieces.iter().for_each(|piece| self.claim(&piece.place)),
                None => self.report.unallocated += length,
            }
        }
    }
}

impl Counter<'_> {
    /// Claims what is allocated for the sake of a checkpoint only: it is no block's of the pool as it is.
    fn keep(&mut self, vdev: VdevId, segments: &RangeTree) {
        let Some(claimed) = self.claimed.get_mut(vdev.0 as usize) else { return };
        for segment in segments.iter() {
            let length = segment.end - segment.start;
            self.report.kept += length;
            self.report.overlapping += length - claimed.cover(segment);
        }
    }
}

/// Segments that the space maps of a vdev call allocated.
fn allocated(spa: &Spa, vdev: VdevId) -> RangeTree {
    let (allocator, mut all) = (&spa.services.allocator, RangeTree::new());
    for segment in (0..allocator.metaslab_count(vdev)).flat_map(|metaslab| allocator.synced_allocated(vdev, metaslab)) {
        all.cover(segment);
    }
    all
}

/// Takes a segment out of a set, as far as it is there.
fn drop_range(set: &mut RangeTree, segment: Range<u64>) {
    set.clear_range(segment);
}

/// Checks the space of one pool.
pub(crate) struct Verifier<'a>(pub &'a Spa);

impl Verifier<'_> {
    /// Walks every block of the pool, which must not change meanwhile, and reads blocks to see whether they are intact.
    pub fn verify_blocks(&self, reading: Reading) -> Result<SpaceReport, PoolError> {
        let tree = self.0.tree();
        let header =
            |top: &vdev::TopVdev| if top.is_concrete() || top.is_removed() { top.asize_for_psize(ondisk::SECTOR_BYTES as u64) } else { 0 };
        let io = self.0.io.as_ref();
        let mut shared = references(&self.0.mos, &tree)?;
        add_references(&self.0.mos, &mut shared)?;
        let mut counter = Counter {
            io,
            tree: tree.clone(),
            reading,
            flight: Arc::default(),
            report: SpaceReport::default(),
            claimed: vec![RangeTree::new(); tree.tops.len()],
            shared,
            header_bytes: tree.tops.iter().map(header).collect(),
        };
        let root = self.0.config.lock().uberblock.ub_rootbp;
        Walk::all(io, 0, &root, 0).run_at(&mut |bp, at| {
            counter.count(bp, Some(at));
            Ok(())
        })?;
        self.count_datasets(io, &mut counter)?;
        if matches!(reading, Reading::Since { .. }) {
            // Contents that wait to be freed are nobody's any more.
            counter.reading = Reading::Metadata;
        }
        self.0.dsl.for_each_queued(&mut |bp| {
            counter.count(bp, None);
            Ok(())
        })?;
        for name in ["free_bpobj", "sync_bplist"] {
            if let Some(list) = Zap::hold(&self.0.mos, DIRECTORY)?.try_lookup_u64(name)? {
                self.count_list(ObjectId(list), true, &mut counter)?;
            }
        }
        for (vdev, segments) in kept::segments(&self.0.mos, &tree)? {
            counter.keep(vdev, &segments);
        }
        for top in tree.tops.iter().filter(|top| top.is_concrete() && top.kind != TopKind::Hole) {
            let allocator = &self.0.services.allocator;
            let (claimed, report) = (&mut counter.claimed[top.id.0 as usize], &mut counter.report);
            for metaslab in 0..allocator.metaslab_count(top.id) {
                if allocator.is_unknown(top.id, metaslab) {
                    claimed.clear_range(top.metaslab_range(metaslab));
                    report.unknown += 1;
                    continue;
                }
                for segment in allocator.synced_allocated(top.id, metaslab) {
                    let length = segment.end - segment.start;
                    report.leaked += length - claimed.clear_range(segment);
                }
            }
            report.unallocated += claimed.total();
        }
        // Addresses that lead nowhere.
        let removed = tree.tops.iter().filter(|top| top.is_removed()).map(|top| counter.claimed[top.id.0 as usize].total());
        let nowhere: u64 = removed.sum();
        counter.report.unallocated += nowhere;
        let damaged = counter.flight.land(io);
        counter.count_unreadable(damaged, true);
        Ok(counter.report)
    }

    /// Holds the state that a checkpoint keeps, opened by itself, against the pool (OpenZFS: `verify_checkpoint_blocks` of `zdb`).
    pub fn verify_checkpoint(&self, state: &Spa) -> Result<CheckpointReport, PoolError> {
        let (mut report, mut kept) = (CheckpointReport::default(), kept::segments(&self.0.mos, &self.0.tree())?);
        for top in state.tree().tops.iter().filter(|top| top.is_concrete()) {
            let (mut lost, mut foreign) = (allocated(state, top.id), kept.remove(&top.id).unwrap_or_default());
            lost.iter().for_each(|segment| drop_range(&mut foreign, segment));
            allocated(self.0, top.id).iter().for_each(|segment| drop_range(&mut lost, segment));
            report.lost += lost.total();
            report.foreign += foreign.total();
        }
        // Vdevs that came later have nothing of it.
        report.foreign += kept.values().map(RangeTree::total).sum::<u64>();
        Ok(report)
    }

    /// Every dataset's and snapshot's own blocks: those born after the snapshot before it.
    fn count_datasets(&self, io: &dyn BlockIo, counter: &mut Counter<'_>) -> Result<(), PoolError> {
        // A pool that went back to this root has a later txg, in which nothing of it was allocated.
        let born = self.0.config.lock().uberblock.ub_rootbp.birth();
        let mut object = ObjectId(0);
        while let Some(next) = self.0.mos.next_object(object)? {
            object = next;
            let dnode = self.0.mos.hold(object)?;
            if dnode.info()?.bonus_type != ObjectType::DSL_DATASET {
                continue;
            }
            let phys = DslDatasetPhys::decode(&dnode.bonus()?).map_err(|_| PoolError::Object(object, "a dataset"))?;
            if !phys.ds_bp.is_hole() {
                let at = Bookmark { objset: ObjsetId(object.0), ..Bookmark::default() };
                let root = io.read(&phys.ds_bp, &at).map_err(|error| dmu::DmuError::of_block(error, at))?.to_vec();
                let root = ObjsetPhys::decode(&root).map_err(|_| PoolError::Object(object, "an object set"))?;
                // A snapshot has the header as it was when it was taken; the log is its head's.
                if phys.ds_num_children == 0 {
                    let log = zil::IntentLog::read(io, &root.zil_header, object.0, born);
                    log.blocks.iter().for_each(|bp| counter.count(bp, None));
                }
            }
            let count = &mut |bp: &BlockPtr, at: &Bookmark| -> Result<(), DslError> {
                counter.count(bp, Some(at));
                Ok(())
            };
            Walk::all(io, object.0, &phys.ds_bp, phys.ds_prev_snap_txg).run_at(count)?;
        }
        Ok(())
    }

    /// The blocks that wait to be freed.
    fn count_list(&self, list: ObjectId, may_nest: bool, counter: &mut Counter<'_>) -> Result<(), PoolError> {
        let damaged = || PoolError::Object(list, "a list of block pointers");
        let dnode = self.0.mos.hold(list)?;
        let phys = BpobjPhys::decode_bonus(&dnode.bonus()?).map_err(|_| damaged())?;
        check_length(&dnode, phys.bpo_num_blkptrs.saturating_mul(BlockPtr::BYTES as u64))?;
        for index in 0..phys.bpo_num_blkptrs {
            let mut raw = [0; BlockPtr::BYTES];
            dnode.read(index * BlockPtr::BYTES as u64, &mut raw)?;
            counter.count(&BlockPtr::decode(&raw, true), None);
        }
        let sublists: Range<u64> = 0..phys.bpo_num_subobjs;
        if sublists.is_empty() {
            return Ok(());
        }
        // A list within a list has no lists of its own.
        let subobjs = self.0.mos.hold(ObjectId(phys.bpo_subobjs))?;
        check_length(&subobjs, sublists.end.saturating_mul(8))?;
        if !may_nest {
            return Err(damaged());
        }
        for index in sublists {
            let mut raw = [0; 8];
            subobjs.read(index * 8, &mut raw)?;
            self.count_list(ObjectId(u64::from_le_bytes(raw)), false, counter)?;
        }
        Ok(())
    }
}
