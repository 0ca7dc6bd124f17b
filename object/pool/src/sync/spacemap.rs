//! Space maps of the metaslabs: loading them into the allocator, appending each txg's deltas, condensing (OpenZFS:
//! `space_map.c`, `metaslab_sync`, `vdev_metaslab_init`).
//!
//! Invariant: after [`SpaceMaps::append`] of everything that the allocator gave out, the objects say exactly what is
//! allocated on disk as of the syncing txg.

use crate::PoolError;
use crate::spa::features::Features;
use crate::spa::mos_objects::{check_length, space_map_objects};
use dmu::{Cause, Dnode, NewObject, Objset, Tx};
use metaslab::{Allocator, Delta};
use ondisk::{BlockId, MapType, ObjectId, ObjectType, SpaceMapEncoder, SpaceMapEntries, SpaceMapEntry, SpaceMapPhys, SpaceMapRun, VdevId};
use range_tree::RangeTree;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use vdev::TopVdev;

/// Block size of new space maps (OpenZFS: `zfs_metaslab_sm_blksz_no_log`).
const BLOCK_BYTES: usize = 1 << 14;
/// log2 of their indirect blocks (OpenZFS: `space_map_ibs`).
const INDIRECT_SHIFT: u8 = 14;
/// A map is rewritten when it is this many times as long as it must be (OpenZFS: `zfs_condense_pct`) …
const CONDENSE_FACTOR: u64 = 2;
/// … and longer than this many blocks (OpenZFS: `zfs_metaslab_condense_block_threshold`).
const CONDENSE_BLOCKS: u64 = 4;

/// Feature of headers that tell how long the free segments are.
pub(crate) const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// Feature of entries of two words, which name vdevs.
pub(crate) const SPACEMAP_V2: &str = "com.delphix:spacemap_v2";

/// Bytes of a word of a map.
const WORD_BYTES: u64 = 8;

/// Entry of a map: the bytes that it has, and the run that it is, if any.
type SizedEntry = (u64, Option<SpaceMapRun>);

/// Most allocations that a reader of a map keeps in mind.
const TRAIL_MAX: usize = 1 << 14;

/// Contents of a metaslab's map, in bytes of the vdev.
#[derive(Default)]
pub(crate) struct Contents {
    /// Allocated segments.
    pub allocated: RangeTree,
    /// The last allocations, oldest first, those that were freed since among them.
    pub trail: VecDeque<Range<u64>>,
}

/// Map of one metaslab, or of other ranges of a vdev: what a checkpoint keeps there, or what of it nobody needs.
pub(crate) struct Map {
    object: Arc<Dnode>,
    phys: SpaceMapPhys,
    block_bytes: usize,
    /// The bonus has a histogram.
    histogram: bool,
}

/// The maps of one top-level vdev.
struct VdevMaps {
    top: TopVdev,
    array: Option<Arc<Dnode>>,
    maps: Vec<Option<Map>>,
    /// Errors of maps that are on disk and could not be opened, by metaslab.
    lost: BTreeMap<u32, PoolError>,
}

/// The space maps of a pool.
pub(crate) struct SpaceMaps {
    mos: Arc<Objset>,
    vdevs: Vec<VdevMaps>,
}

impl SpaceMaps {
    /// The maps of new vdevs: none is on disk yet.
    pub fn new(mos: &Arc<Objset>, tops: &[TopVdev]) -> SpaceMaps {
        SpaceMaps { mos: mos.clone(), vdevs: tops.iter().map(VdevMaps::new).collect() }
    }

    /// Takes over what the tree says now: vdevs that are new or larger have metaslabs without maps.
    pub fn follow(&mut self, tops: &[TopVdev]) {
        for (vdev, top) in self.vdevs.iter_mut().zip(tops) {
            let array = vdev.top.ms_array;
            vdev.top = TopVdev { ms_array: array, ..top.clone() };
            let count = metaslabs(top) as usize;
            vdev.maps.resize_with(count.max(vdev.maps.len()), || None);
        }
        self.vdevs.extend(tops.iter().skip(self.vdevs.len()).map(VdevMaps::new));
    }

    /// Frees the maps of a vdev that leaves, and their array.
    pub fn destroy(&mut self, vdev: VdevId, features: &Features, tx: &Tx) -> Result<(), PoolError> {
        let maps = &mut self.vdevs[vdev.0 as usize];
        for map in std::mem::take(&mut maps.maps).into_iter().flatten() {
            map.destroy(&self.mos, features, tx)?;
        }
        if let Some(array) = maps.array.take() {
            self.mos.free_object(array.object(), tx)?;
        }
        maps.top.ms_array = ObjectId(0);
        Ok(())
    }

    /// Opens the maps of a pool.
    pub fn open(mos: &Arc<Objset>, tops: &[TopVdev]) -> Result<SpaceMaps, PoolError> {
        let mut all = SpaceMaps::new(mos, tops);
        for vdev in all.vdevs.iter_mut().filter(|vdev| vdev.top.ms_array.0 != 0) {
            let array = mos.hold(vdev.top.ms_array)?;
            let objects = space_map_objects(&array, 0..vdev.maps.len() as u32)?;
            for (metaslab, (map, object)) in vdev.maps.iter_mut().zip(objects).enumerate() {
                if object.0 == 0 {
                    continue;
                }
                match Map::open(mos, object) {
                    Ok(opened) => *map = Some(opened),
                    Err(error) => drop(vdev.lost.insert(metaslab as u32, error)),
                }
            }
            vdev.array = Some(array);
        }
        Ok(all)
    }

    /// The allocated segments of a metaslab, and its last allocations.
    ///
    /// # Errors
    /// [`PoolError::SpaceMap`] of entries that contradict each other, else what became of reading them.
    pub fn load(&self, vdev: VdevId, metaslab: u32) -> Result<Contents, PoolError> {
        let maps = &self.vdevs[vdev.0 as usize];
        let range = maps.range(metaslab);
        if let Some(error) = maps.lost.get(&metaslab) {
            return Err(error.clone());
        }
        match &maps.maps[metaslab as usize] {
            None => Ok(Contents::default()),
            Some(map) => map.load(&range, maps.top.ashift)?.ok_or(PoolError::SpaceMap(vdev, metaslab, None)),
        }
    }

    /// Bytes that are allocated in a metaslab as the header of its map tells; 0 without a map, None of one that could not be opened or is wrong.
    pub fn allocated_bytes(&self, vdev: VdevId, metaslab: u32) -> Option<u64> {
        let maps = &self.vdevs[vdev.0 as usize];
        match &maps.maps[metaslab as usize] {
            Some(map) => u64::try_from(map.phys.smp_alloc).ok(),
            None => (!maps.lost.contains_key(&metaslab)).then_some(0),
        }
    }

    /// Number of free segments by log2 of their length in bytes as the header of a metaslab's map tells; None without a map, or where it does not.
    pub fn histogram(&self, vdev: VdevId, metaslab: u32) -> Option<[u64; 64]> {
        let maps = &self.vdevs[vdev.0 as usize];
        let map = maps.maps[metaslab as usize].as_ref().filter(|map| map.histogram)?;
        let mut free = [0; 64];
        for (count, told) in free.iter_mut().skip(maps.top.ashift as usize).zip(map.phys.smp_histogram) {
            *count = told;
        }
        Some(free)
    }

    /// True when a metaslab has a map.
    pub fn has_map(&self, vdev: VdevId, metaslab: u32) -> bool {
        self.vdevs[vdev.0 as usize].maps[metaslab as usize].is_some()
    }

    /// Number of metaslabs of `vdev`.
    pub fn metaslabs(&self, vdev: VdevId) -> u32 {
        self.vdevs[vdev.0 as usize].maps.len() as u32
    }

    /// Makes the metaslab array of a vdev that has none; returns its object.
    pub fn create_array(&mut self, vdev: VdevId, tx: &Tx) -> Result<ObjectId, PoolError> {
        let maps = &mut self.vdevs[vdev.0 as usize];
        let array = self.mos.allocate_object(NewObject::new(ObjectType::OBJECT_ARRAY), tx)?;
        let object = array.object();
        (maps.array, maps.top.ms_array) = (Some(array), object);
        Ok(object)
    }

    /// The map of a metaslab, an empty one where it had none; with its vdev.
    fn ensure(&mut self, vdev: VdevId, metaslab: u32, context: &AppendContext<'_>) -> Result<(&mut Map, &TopVdev), PoolError> {
        let maps = &mut self.vdevs[vdev.0 as usize];
        if let Some(error) = maps.lost.get(&metaslab) {
            return Err(PoolError::SpaceMap(vdev, metaslab, Some(Cause::new(error.clone()))));
        }
        let place = &mut maps.maps[metaslab as usize];
        if place.is_none() {
            let map = Map::create(&self.mos, BLOCK_BYTES, context)?;
            let array = maps.array.as_ref().ok_or(PoolError::Corrupt("a vdev without metaslab array"))?;
            array.write(u64::from(metaslab) * 8, &map.object.object().0.to_le_bytes(), context.tx)?;
            *place = Some(map);
        }
        let map = place.as_mut().ok_or(PoolError::Corrupt("a metaslab without space map"))?;
        Ok((map, &maps.top))
    }

    /// Writes down in the header of a metaslab's map how much is free there, though the entries do not say so yet. OpenZFS chooses by that among
    /// metaslabs that are not loaded, and passes over one that has nothing (`metaslab_weight_from_spacemap`; written in `metaslab_sync`).
    pub fn note_free(&mut self, vdev: VdevId, metaslab: u32, context: &AppendContext<'_>) -> Result<(), PoolError> {
        let free_histogram = context.measure(vdev, metaslab);
        let (map, top) = self.ensure(vdev, metaslab, context)?;
        if map.histogram { map.finish(&free_histogram, top.ashift, context.tx) } else { Ok(()) }
    }

    /// Appends what happened to a metaslab, in sync pass `pass`.
    pub fn append(&mut self, delta: &Delta, context: &AppendContext<'_>) -> Result<(), PoolError> {
        let free_histogram = context.measure(delta.vdev, delta.metaslab);
        let (map, top) = self.ensure(delta.vdev, delta.metaslab, context)?;
        let (range, ashift) = (top.metaslab_range(delta.metaslab), top.ashift);
        if context.pass == 1 && map.phys.smp_length > CONDENSE_BLOCKS * map.block_bytes as u64 {
            let allocated = context.allocator.synced_allocated(delta.vdev, delta.metaslab);
            if map.phys.smp_length > CONDENSE_FACTOR * 16 * (allocated.len() as u64 + 1) {
                map.object.free_range(0, u64::MAX, context.tx)?;
                (map.phys.smp_length, map.phys.smp_alloc) = (0, 0);
                map.write(&[(MapType::Alloc, allocated.as_slice())], range.start, ashift, context)?;
                return map.finish(&free_histogram, ashift, context.tx);
            }
        }
        map.write(&[(MapType::Alloc, delta.allocs.as_slice()), (MapType::Free, delta.frees.as_slice())], range.start, ashift, context)?;
        map.finish(&free_histogram, ashift, context.tx)
    }
}

/// Facts that appending needs to know.
pub(crate) struct AppendContext<'a> {
    pub allocator: &'a Allocator,
    pub features: &'a Features,
    pub pass: u32,
    pub tx: &'a Tx,
}

impl AppendContext<'_> {
    /// Number of free segments of a metaslab by log2 of their length, for the header of its map; what it says is the metaslab's fragmentation.
    fn measure(&self, vdev: VdevId, metaslab: u32) -> [u64; 64] {
        let free = self.allocator.synced_histogram(vdev, metaslab);
        self.allocator.note_histogram(vdev, metaslab, &free);
        free
    }
}

/// Makes the object of a space map; with it whether its header has room for a histogram (OpenZFS: `space_map_alloc`).
pub(crate) fn create_object(mos: &Arc<Objset>, block_size: usize, context: &AppendContext<'_>) -> Result<(Arc<Dnode>, bool), PoolError> {
    let histogram = context.features.is_enabled(HISTOGRAM);
    if histogram {
        context.features.add(HISTOGRAM, 1, context.tx)?;
    }
    let new = NewObject {
        block_size,
        indirect_shift: INDIRECT_SHIFT,
        bonus_type: ObjectType::SPACE_MAP_HEADER,
        bonus_len: if histogram { SpaceMapPhys::SIZE } else { SpaceMapPhys::BYTES_V0 },
        ..NewObject::new(ObjectType::SPACE_MAP)
    };
    Ok((mos.allocate_object(new, context.tx)?, histogram))
}

/// Units of the entries of a map.
pub(crate) struct Units {
    /// Offset in bytes from which they count.
    pub start: u64,
    /// log2 of the bytes of one.
    pub shift: u32,
    /// Vdev that they name.
    pub vdev: Option<VdevId>,
}

impl Units {
    /// Encodes segments in bytes of the vdev, and gives by how many bytes they change what is allocated (OpenZFS: `space_map_write`).
    pub fn encode(
        &self,
        encoder: &mut SpaceMapEncoder,
        (kind, segments): (MapType, &[Range<u64>]),
        context: &AppendContext<'_>,
    ) -> Result<i64, PoolError> {
        if segments.is_empty() {
            return Ok(0);
        }
        encoder.debug(kind, context.pass, context.tx.txg());
        let mut bytes = 0;
        for segment in segments {
            let length = segment.end - segment.start;
            let (offset, run) = ((segment.start - self.start) >> self.shift, length >> self.shift);
            let entry = SpaceMapRun { kind, offset, run, vdev: self.vdev };
            encoder.run(entry).map_err(|_| PoolError::Corrupt("a segment that no space map can hold"))?;
            bytes += length as i64;
        }
        Ok(if kind == MapType::Alloc { bytes } else { -bytes })
    }
}

/// Number of metaslabs that have maps.
fn metaslabs(top: &TopVdev) -> u64 {
    if top.is_concrete() { top.metaslab_count() } else { 0 }
}

impl VdevMaps {
    fn new(top: &TopVdev) -> VdevMaps {
        VdevMaps { top: top.clone(), array: None, maps: (0..metaslabs(top)).map(|_| None).collect(), lost: BTreeMap::new() }
    }
    fn range(&self, metaslab: u32) -> Range<u64> {
        self.top.metaslab_range(metaslab)
    }
}

impl Map {
    /// Makes an empty map.
    pub fn create(mos: &Arc<Objset>, block_bytes: usize, context: &AppendContext<'_>) -> Result<Map, PoolError> {
        let (object, histogram) = create_object(mos, block_bytes, context)?;
        let phys = SpaceMapPhys { smp_object: object.object().0, ..SpaceMapPhys::default() };
        Ok(Map { object, phys, block_bytes, histogram })
    }

    /// Bytes of the entries.
    pub fn length(&self) -> u64 {
        self.phys.smp_length
    }

    /// Bytes that are in the map.
    pub fn allocated(&self) -> u64 {
        self.phys.smp_alloc.unsigned_abs()
    }

    /// Adds ranges to a map whose entries count bytes, and which has no others.
    pub fn append_bytes(&mut self, ranges: &[Range<u64>], context: &AppendContext<'_>) -> Result<(), PoolError> {
        self.write(&[(MapType::Alloc, ranges)], 0, 0, context)?;
        self.finish(&[0; 64], 0, context.tx)
    }

    /// The ranges of a map whose entries count bytes, of a vdev of so many bytes.
    pub fn read_bytes(&self, asize: u64) -> Result<RangeTree, PoolError> {
        let contents = self.load(&(0..asize), 0)?;
        Ok(contents.ok_or(PoolError::Object(self.id(), "a space map that contradicts itself"))?.allocated)
    }

    /// Opens the map in an object.
    pub fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<Map, PoolError> {
        let dnode = mos.hold(object)?;
        let info = dnode.info()?;
        if info.kind != ObjectType::SPACE_MAP {
            return Err(PoolError::Object(object, "not a space map"));
        }
        let bonus = dnode.bonus()?;
        let phys = SpaceMapPhys::decode_bonus(&bonus).map_err(|_| PoolError::Object(object, "the header of a space map"))?;
        check_length(&dnode, phys.smp_length)?;
        Ok(Map { object: dnode, phys, block_bytes: info.block_size, histogram: bonus.len() >= SpaceMapPhys::SIZE })
    }

    /// Frees its object.
    pub fn destroy(self, mos: &Arc<Objset>, features: &Features, tx: &Tx) -> Result<(), PoolError> {
        if self.histogram {
            features.add(HISTOGRAM, -1, tx)?;
        }
        Ok(mos.free_object(self.object.object(), tx)?)
    }

    /// Number of the object.
    pub fn id(&self) -> ObjectId {
        self.object.object()
    }

    /// Bytes that were freed in it and not allocated.
    pub(super) fn freed_bytes(&self) -> u64 {
        u64::try_from(self.phys.smp_alloc.saturating_neg()).unwrap_or(0)
    }

    /// True of one without entries.
    pub(super) fn is_empty(&self) -> bool {
        self.phys.smp_length == 0
    }

    /// Gives the runs of the map, the oldest first, while `each` takes them; false when it refused one, or something else is there.
    pub(super) fn each_run(&self, each: &mut dyn FnMut(&SpaceMapRun) -> bool) -> Result<bool, PoolError> {
        let mut position = 0;
        self.object.prefetch(0, self.phys.smp_length);
        while position < self.phys.smp_length {
            let block = self.object.read_block(BlockId(position / self.block_bytes as u64))?.to_contiguous();
            let length = (self.phys.smp_length - position).min(self.block_bytes as u64);
            let Some(bytes) = block.as_contiguous().and_then(|bytes| bytes.get(..length as usize)) else { return Ok(false) };
            for entry in SpaceMapEntries::new(bytes) {
                let Ok(entry) = entry else { return Ok(false) };
                if let SpaceMapEntry::Run(run) = entry
                    && !each(&run)
                {
                    return Ok(false);
                }
            }
            position += length;
        }
        Ok(true)
    }

    /// The contents, None when entries contradict each other.
    fn load(&self, range: &Range<u64>, ashift: u32) -> Result<Option<Contents>, PoolError> {
        let mut contents = Contents::default();
        let is_sound = self.each_run(&mut |run| contents.replay(run, range, ashift))?;
        Ok((is_sound && contents.allocated.total() as i64 == self.phys.smp_alloc).then_some(contents))
    }

    /// Takes runs off its end, at most so many, and gives them, the last one first; None when something else is there. The header is for
    /// [`Map::finish`] to write (OpenZFS: `space_map_incremental_destroy`).
    pub(super) fn take_last(&mut self, most: usize, ashift: u32) -> Result<Option<Vec<SpaceMapRun>>, PoolError> {
        let mut taken = Vec::new();
        while self.phys.smp_length > 0 {
            let Some(entries) = self.last_block()? else { return Ok(None) };
            for (bytes, run) in entries.into_iter().rev() {
                if let Some(run) = run {
                    if taken.len() >= most {
                        return Ok(Some(taken));
                    }
                    let length = (run.run << ashift) as i64;
                    self.phys.smp_alloc += if run.kind == MapType::Free { length } else { -length };
                    taken.push(run);
                }
                self.phys.smp_length -= bytes;
            }
        }
        Ok(Some(taken))
    }

    /// The entries of the last block, each with its bytes; None when something else is there.
    fn last_block(&self) -> Result<Option<Vec<SizedEntry>>, PoolError> {
        let index = self.phys.smp_length.saturating_sub(1) / self.block_bytes as u64;
        let block = self.object.read_block(BlockId(index))?.to_contiguous();
        let length = self.phys.smp_length - index * self.block_bytes as u64;
        let Some(bytes) = block.as_contiguous().and_then(|bytes| bytes.get(..length as usize)) else { return Ok(None) };
        let sized = |entry: SpaceMapEntry| match entry {
            SpaceMapEntry::Run(run) if run.vdev.is_some() => (2 * WORD_BYTES, Some(run)),
            SpaceMapEntry::Run(run) => (WORD_BYTES, Some(run)),
            SpaceMapEntry::Debug { .. } | SpaceMapEntry::Padding => (WORD_BYTES, None),
        };
        Ok(SpaceMapEntries::new(bytes).map(|entry| entry.map(sized)).collect::<Result<Vec<_>, _>>().ok())
    }

    pub(super) fn write(
        &mut self,
        lists: &[(MapType, &[Range<u64>])],
        start: u64,
        ashift: u32,
        context: &AppendContext<'_>,
    ) -> Result<(), PoolError> {
        let two_words = context.features.refs(SPACEMAP_V2) != 0;
        let mut encoder = SpaceMapEncoder::new(self.phys.smp_length, self.block_bytes, two_words);
        let units = Units { start, shift: ashift, vdev: None };
        for (kind, list) in lists {
            self.phys.smp_alloc += units.encode(&mut encoder, (*kind, *list), context)?;
        }
        let (start, length) = (self.phys.smp_length, encoder.length());
        self.object.write(start, &encoder.finish(), context.tx)?;
        self.phys.smp_length = length;
        Ok(())
    }

    /// Writes the header.
    pub(super) fn finish(&mut self, free: &[u64; 64], ashift: u32, tx: &Tx) -> Result<(), PoolError> {
        let ashift = ashift as usize;
        self.phys.smp_histogram = [0; 32];
        let last = self.phys.smp_histogram.len() - 1;
        for (log2, count) in free.iter().enumerate().skip(ashift) {
            let bucket = (log2 - ashift).min(last);
            self.phys.smp_histogram[bucket] += count << (log2 - ashift - bucket);
        }
        let bytes = self.phys.encode();
        let length = if self.histogram { SpaceMapPhys::SIZE } else { SpaceMapPhys::BYTES_V0 };
        self.object.set_bonus(&bytes[..length], tx)?;
        Ok(())
    }
}

/// Part of the vdev that an entry is of, in bytes; None when it lies outside of the map's range.
pub(super) fn extent(run: &SpaceMapRun, range: &Range<u64>, ashift: u32) -> Option<Range<u64>> {
    let bytes = |units: u64| units.checked_mul(1 << ashift);
    let start = range.start.checked_add(bytes(run.offset)?)?;
    let end = start.checked_add(bytes(run.run)?).filter(|end| *end <= range.end)?;
    Some(start..end)
}

impl Contents {
    /// Applies one entry; false when it contradicts those before or lies outside.
    fn replay(&mut self, run: &SpaceMapRun, range: &Range<u64>, ashift: u32) -> bool {
        let Some(Range { start, end }) = extent(run, range, ashift) else { return false };
        let length = end - start;
        match run.kind {
            MapType::Alloc => {
                if self.trail.len() == TRAIL_MAX {
                    self.trail.pop_front();
                }
                self.trail.push_back(start..end);
                self.allocated.add(start, length).is_ok()
            }
            MapType::Free => self.allocated.remove(start, length).is_ok(),
        }
    }
}
