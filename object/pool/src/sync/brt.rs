//! The tables of shared blocks, one for each top-level vdev that has some: a ZAP with the number of references of each beyond the first, and
//! counters of entries by parts of the vdev, which tell at once where there are none (OpenZFS: `brt_vdev_phys_t`, `brt_sync`).
//!
//! Two steps of a sync change them: references that the txg adds come first, blocks that were given up are looked at before space maps are written.
//! A block is free when it is given up and no further reference is counted.

use super::dedup::DedupReader;
use super::step::{SyncStep, Syncing};
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::brt::{Added, Place, SharedSpace};
use crate::spa::features::{BLOCK_CLONING, DIRECTORY};
use crate::spa::services::Services;
use dmu::{BlockIo, NewObject, Objset, Tx};
use exec::Mutex;
use ondisk::ddt::{BRT_OBJECT_PREFIX, BRT_RANGE_BYTES, BrtVdevPhys};
use ondisk::{BlockPtr, ObjectId, ObjectType, VdevId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vdev::{TopVdev, VdevTree};
use zap::{CreateOptions, Value, Zap, ZapError, ZapFlags};

/// Block size of the counters (OpenZFS: `BRT_BLOCKSIZE`).
const COUNTERS_BLOCK_BYTES: usize = 32 << 10;
/// Counters of a block.
const COUNTERS_PER_BLOCK: usize = COUNTERS_BLOCK_BYTES / size_of::<u16>();
const DAMAGED: &str = "a table of shared blocks";

/// Table of one vdev.
#[derive(Debug)]
struct Table {
    object: ObjectId,
    phys: BrtVdevPhys,
    /// Blocks of counters that are to be written.
    stale: BTreeSet<usize>,
    is_changed: bool,
}

/// Name of a vdev's table in the object directory.
fn name(vdev: VdevId) -> String {
    format!("{BRT_OBJECT_PREFIX}{}", vdev.0)
}

/// Number of counters of a vdev (OpenZFS: `brt_vdev_realloc`).
fn counters_of(top: &TopVdev, range_bytes: u64) -> u64 {
    (top.metaslab_count() << top.ms_shift).div_ceil(range_bytes)
}

/// Number of further references in an entry: OpenZFS writes the integer as eight bytes.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::U8(bytes) => bytes.as_slice().try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}

/// Number of references of the block at this offset beyond the first.
fn references_at(entries: &Zap, offset: u64) -> Result<u64, PoolError> {
    match entries.lookup_words(&[offset]) {
        Ok(value) => number(&value).ok_or(PoolError::Object(entries.object(), DAMAGED)),
        Err(ZapError::NotFound) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn set_references(entries: &Zap, offset: u64, count: u64, tx: &Tx) -> Result<(), PoolError> {
    match count {
        0 => entries.remove_words(&[offset], tx)?,
        _ => entries.update_words(&[offset], &Value::U8(count.to_le_bytes().to_vec()), tx)?,
    }
    Ok(())
}

/// The vdev's table as it is on disk, and its object.
fn stored(mos: &Arc<Objset>, vdev: VdevId) -> Result<Option<(ObjectId, BrtVdevPhys)>, PoolError> {
    let Some(object) = Zap::hold(mos, DIRECTORY)?.try_lookup_u64(name(vdev))?.map(ObjectId) else { return Ok(None) };
    let damaged = |_| PoolError::Object(object, DAMAGED);
    Ok(Some((object, BrtVdevPhys::decode(&mos.hold(object)?.bonus()?).map_err(damaged)?)))
}

/// Number of references of every shared block beyond the first, for checks of space.
pub(crate) fn references(mos: &Arc<Objset>, tree: &VdevTree) -> Result<BTreeMap<Place, u64>, PoolError> {
    let mut all = BTreeMap::new();
    for vdev in tree.tops.iter().map(|top| top.id) {
        let Some((_, phys)) = stored(mos, vdev)? else { continue };
        let entries = Zap::hold(mos, ObjectId(phys.bvp_mos_entries))?;
        let mut offsets = Vec::new();
        entries.for_each(|entry| {
            offsets.extend(entry.words.first());
            Ok(())
        })?;
        for offset in offsets {
            all.insert(Place { vdev, offset }, references_at(&entries, offset)?);
        }
    }
    Ok(all)
}

/// Tables of a pool's shared blocks, as the sync changes them.
#[derive(Debug, Default)]
pub(crate) struct SharedBlocks {
    tables: BTreeMap<VdevId, Table>,
}

impl SharedBlocks {
    /// Reads the tables of a pool that is being opened, and has everybody know where shared blocks are (OpenZFS: `brt_load`). Tables in the other byte
    /// order are not read: OpenZFS does not say how entries lie in them.
    pub fn load(mos: &Arc<Objset>, tree: &VdevTree, services: &Services) -> Result<SharedBlocks, PoolError> {
        let mut shared = SharedBlocks::default();
        // Blocks on vdevs that were removed are shared as before.
        for top in tree.tops.iter().filter(|top| top.is_concrete() || top.is_removed()) {
            let Some((object, phys)) = stored(mos, top.id)? else { continue };
            let damaged = || PoolError::Object(object, DAMAGED);
            if phys.bvp_byteorder != 0 {
                if services.writeable {
                    return Err(PoolError::UnsupportedFeatures { features: vec![BLOCK_CLONING.to_string()], read_only: true });
                }
                continue;
            }
            if phys.bvp_rangesize == 0 || phys.bvp_size > counters_of(top, phys.bvp_rangesize) {
                return Err(damaged());
            }
            let mut raw = vec![0; phys.bvp_size as usize * size_of::<u16>()];
            mos.hold(object)?.read(0, &mut raw)?;
            let counters = raw.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            services.brt.with_ranges(top.id, phys.bvp_rangesize, |ranges| ranges.counters = counters);
            shared.tables.insert(top.id, Table { object, phys, stale: BTreeSet::new(), is_changed: false });
        }
        services.brt.set_space(shared.space());
        Ok(shared)
    }

    fn space(&self) -> SharedSpace {
        self.tables.values().fold(SharedSpace::default(), |sum, table| SharedSpace {
            used_bytes: sum.used_bytes.saturating_add(table.phys.bvp_usedspace),
            saved_bytes: sum.saved_bytes.saturating_add(table.phys.bvp_savedspace),
        })
    }

    /// Counts references that the txg adds to a block (OpenZFS: `brt_pending_apply`).
    fn add(&mut self, spa: &Spa, (place, added): (Place, Added), tx: &Tx) -> Result<(), PoolError> {
        let table = match self.tables.entry(place.vdev) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Table::create(spa, place.vdev, tx)?),
        };
        let entries = Zap::hold(&spa.mos, ObjectId(table.phys.bvp_mos_entries))?;
        let before = if spa.services.brt.in_range(place) == 0 { 0 } else { references_at(&entries, place.offset)? };
        let count = before.checked_add(added.count).ok_or(PoolError::Object(entries.object(), DAMAGED))?;
        set_references(&entries, place.offset, count, tx)?;
        let bytes = spa.io.dsize(&added.bp);
        // Sums of a damaged table must not stop a sync.
        table.phys.bvp_savedspace = table.phys.bvp_savedspace.saturating_add(bytes.saturating_mul(added.count));
        if before == 0 {
            table.phys.bvp_usedspace = table.phys.bvp_usedspace.saturating_add(bytes);
            table.phys.bvp_totalcount = table.phys.bvp_totalcount.saturating_add(1);
            table.count(spa, place, true)?;
        }
        table.is_changed = true;
        Ok(())
    }

    /// Takes a reference off a block that was given up; false when there was none but the one that is gone: the block is free (OpenZFS:
    /// `brt_entry_decref`).
    fn give_up(&mut self, spa: &Spa, bp: &BlockPtr, tx: &Tx) -> Result<bool, PoolError> {
        let place = Place::of(bp);
        let Some(table) = self.tables.get_mut(&place.vdev) else { return Ok(false) };
        let entries = Zap::hold(&spa.mos, ObjectId(table.phys.bvp_mos_entries))?;
        let before = references_at(&entries, place.offset)?;
        if before == 0 {
            return Ok(false);
        }
        set_references(&entries, place.offset, before - 1, tx)?;
        let bytes = spa.io.dsize(bp);
        table.phys.bvp_savedspace = table.phys.bvp_savedspace.saturating_sub(bytes);
        if before == 1 {
            table.phys.bvp_usedspace = table.phys.bvp_usedspace.saturating_sub(bytes);
            table.phys.bvp_totalcount = table.phys.bvp_totalcount.saturating_sub(1);
            table.count(spa, place, false)?;
        }
        table.is_changed = true;
        Ok(true)
    }

    /// Writes what changed; a table without entries goes (OpenZFS: `brt_sync_table`).
    fn settle(&mut self, spa: &Spa, tx: &Tx) -> Result<(), PoolError> {
        let changed: Vec<VdevId> = self.tables.iter().filter(|(_, table)| table.is_changed).map(|(&vdev, _)| vdev).collect();
        for &vdev in &changed {
            let Some(table) = self.tables.get_mut(&vdev) else { continue };
            if table.phys.bvp_totalcount > 0 {
                table.write(spa, vdev, tx)?;
                continue;
            }
            zap::destroy(&spa.mos, ObjectId(table.phys.bvp_mos_entries), tx)?;
            spa.mos.free_object(table.object, tx)?;
            Zap::hold(&spa.mos, DIRECTORY)?.remove(name(vdev), tx)?;
            spa.services.features.add(BLOCK_CLONING, -1, tx)?;
            spa.services.brt.forget(vdev);
            self.tables.remove(&vdev);
        }
        if !changed.is_empty() {
            spa.services.brt.set_space(self.space());
        }
        Ok(())
    }
}

impl Table {
    /// Makes an empty table (OpenZFS: `brt_vdev_create`).
    fn create(spa: &Spa, vdev: VdevId, tx: &Tx) -> Result<Table, PoolError> {
        let flags = ZapFlags::HASH64.with(ZapFlags::UINT64_KEY);
        let entries = zap::create_with(&spa.mos, CreateOptions { flags, ..CreateOptions::new(ObjectType::OTN_ZAP_METADATA) }, tx)?;
        let new = NewObject {
            block_size: COUNTERS_BLOCK_BYTES,
            bonus_type: ObjectType::OTN_UINT64_METADATA,
            bonus_len: BrtVdevPhys::SIZE,
            ..NewObject::new(ObjectType::OTN_UINT64_METADATA)
        };
        let object = spa.mos.allocate_object(new, tx)?.object();
        Zap::hold(&spa.mos, DIRECTORY)?.add_u64(name(vdev), object.0, tx)?;
        spa.services.features.add(BLOCK_CLONING, 1, tx)?;
        spa.services.brt.with_ranges(vdev, BRT_RANGE_BYTES, |_| ());
        let phys = BrtVdevPhys { bvp_mos_entries: entries.0, bvp_rangesize: BRT_RANGE_BYTES, ..BrtVdevPhys::default() };
        Ok(Table { object, phys, stale: BTreeSet::new(), is_changed: true })
    }

    /// Counts an entry that came, or went.
    fn count(&mut self, spa: &Spa, place: Place, is_new: bool) -> Result<(), PoolError> {
        let tree = spa.tree();
        let range_bytes = self.phys.bvp_rangesize;
        let most = tree.addressed(place.vdev).map_or(0, |top| counters_of(top, range_bytes));
        let index = spa.services.brt.with_ranges(place.vdev, range_bytes, |ranges| {
            if (ranges.counters.len() as u64) < most {
                // The vdev is new here, or grew.
                ranges.counters.resize(most as usize, 0);
            }
            let index = ranges.index(place.offset);
            let counter = ranges.counters.get_mut(index)?;
            *counter = if is_new { counter.checked_add(1)? } else { counter.checked_sub(1)? };
            Some(index)
        });
        let index = index.ok_or(PoolError::Object(self.object, DAMAGED))?;
        self.stale.insert(index / COUNTERS_PER_BLOCK);
        Ok(())
    }

    /// Writes the counters that changed, and the sums.
    fn write(&mut self, spa: &Spa, vdev: VdevId, tx: &Tx) -> Result<(), PoolError> {
        let dnode = spa.mos.hold(self.object)?;
        for block in std::mem::take(&mut self.stale) {
            let mut bytes = spa.services.brt.with_ranges(vdev, self.phys.bvp_rangesize, |ranges| {
                let counters = ranges.counters.iter().skip(block * COUNTERS_PER_BLOCK).take(COUNTERS_PER_BLOCK);
                counters.flat_map(|counter| counter.to_le_bytes()).collect::<Vec<u8>>()
            });
            bytes.resize(COUNTERS_BLOCK_BYTES, 0);
            dnode.write((block * COUNTERS_BLOCK_BYTES) as u64, &bytes, tx)?;
        }
        self.phys.bvp_size = spa.services.brt.with_ranges(vdev, self.phys.bvp_rangesize, |ranges| ranges.counters.len() as u64);
        dnode.set_bonus(&self.phys.encode(), tx)?;
        self.is_changed = false;
        Ok(())
    }
}

/// Counts the references that the txg adds, before it gives up anything.
pub(crate) struct AddReferences {
    pub spa: Arc<Spa>,
    pub shared: Arc<Mutex<SharedBlocks>>,
    /// Tables of deduplication: what is in them is counted there (OpenZFS: `brt_pending_apply`).
    pub reader: Option<Arc<DedupReader>>,
}

impl SyncStep for AddReferences {
    fn name(&self) -> &'static str {
        "new references of shared blocks"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let mut shared = self.shared.lock();
        let added = self.spa.services.brt.take_added(at.tx.txg());
        if let Some(reader) = &self.reader {
            reader.look_up_blocks(added.values().map(|added| &added.bp).filter(|bp| bp.is_dedup()));
        }
        for (place, added) in added {
            let is_counted = match &self.reader {
                Some(reader) if added.bp.is_dedup() => reader.reference(&added.bp, added.count)?,
                _ => false,
            };
            if !is_counted {
                shared.add(&self.spa, (place, added), at.tx)?;
            }
        }
        Ok(())
    }
}

/// Looks at blocks that were given up and that may be shared, frees those that are not, and writes the tables.
pub(crate) struct GiveUpReferences {
    pub spa: Arc<Spa>,
    pub shared: Arc<Mutex<SharedBlocks>>,
}

impl SyncStep for GiveUpReferences {
    fn name(&self) -> &'static str {
        "references of shared blocks"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let mut shared = self.shared.lock();
        for (txg, bp) in self.spa.services.brt.take_given_up() {
            if !shared.give_up(&self.spa, &bp, at.tx)? {
                self.spa.io.free_unshared(txg, &bp);
            }
        }
        shared.settle(&self.spa, at.tx)
    }
}
