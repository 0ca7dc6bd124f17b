//! The traditional tables of deduplication: for each algorithm a ZAP of blocks that have one reference and a ZAP of those that have several, and a
//! histogram of each (OpenZFS: `ddt.c`, `ddt_zap.c`, `ddt_stats.c`, without `fast_dedup`).
//!
//! They are read while the sync waits for its writes ([`DedupReader`]), and changed by one step in every pass ([`SyncDedup`]): blocks that were given up lose
//! a reference, entries go where they belong, and what nobody refers to any more is freed. Nothing of an entry stays in memory from one txg to the next.

use super::step::{SyncStep, Syncing};
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::adapter::PoolIo;
use crate::spa::brt::Place;
use crate::spa::dedup::{Answers, BlockKey, Changed, Counted, Dedup, DedupTable, InTable, key_of};
use crate::spa::features::{DIRECTORY, create_linked_zap};
use crate::spa::props::stored_table_quota;
use dmu::{BlockIo, DmuError, Objset, Tx};
use exec::Mutex;
use ondisk::ddt::{DDT_CHECKSUMS, DDT_VALUE_LITTLE_ENDIAN, DdtKey, DdtStat, DdtTradEntry, ddt_class, ddt_object_name};
use ondisk::{BlockPtr, Checksum, Compression, ObjectId, ObjectType};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Weak};
use vdev::{Bias, VdevTree};
use zap::{CreateOptions, Value, Zap, ZapError, ZapFlags};

/// Histograms of all tables (OpenZFS: `DMU_POOL_DDT_STATS`).
const STATISTICS: &str = "DDT-statistics";
/// Sums in a histogram: by the highest bit of the number of references.
const BUCKETS: usize = 64;
/// log2 of the block size of tables (OpenZFS: `zfs_dedup_ddt_zap_default_bs`).
const TABLE_BLOCK_SHIFT: u32 = 15;
/// Bits of the first byte of a value that say how the entry is compressed.
const COMPRESSION_BITS: u8 = 0x7F;
/// Entries whose leaves are read ahead together.
const TOGETHER: usize = 256;
const DAMAGED: &str = "a table of deduplication";
/// Classes of tables that are written.
const CLASSES: [u8; 2] = [ddt_class::DUPLICATE, ddt_class::UNIQUE];

/// A table on disk.
#[derive(Clone, Debug)]
struct Table {
    object: ObjectId,
    histogram: Vec<DdtStat>,
    is_changed: bool,
}

impl Table {
    /// Makes an empty table, and the object of histograms where there is none.
    fn create(mos: &Arc<Objset>, at: (u8, u8), statistics: &mut Option<ObjectId>, tx: &Tx) -> Result<Table, PoolError> {
        let checksum = Checksum(at.0);
        let name = ddt_object_name(checksum, at.1).ok_or(PoolError::Corrupt("a block of an algorithm that has no tables"))?;
        let sums = match *statistics {
            Some(object) => object,
            None => create_linked_zap(mos, STATISTICS, ObjectType::DDT_STATS, tx)?,
        };
        *statistics = Some(sums);
        let long = ZapFlags::HASH64.with(ZapFlags::UINT64_KEY);
        let flags = if is_prehashed(checksum) { long.with(ZapFlags::PRE_HASHED_KEY) } else { long };
        let options = CreateOptions { flags, block_shift: TABLE_BLOCK_SHIFT, ..CreateOptions::new(ObjectType::DDT_ZAP) };
        let object = zap::create_with(mos, options, tx)?;
        Zap::hold(mos, DIRECTORY)?.add_u64(&name, object.0, tx)?;
        Zap::hold(mos, sums)?.add(&name, &Value::U64(vec![0; BUCKETS * 8]), tx)?;
        Ok(Table { object, histogram: vec![DdtStat::default(); BUCKETS], is_changed: true })
    }
}

/// Tables of a pool, by algorithm and class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    statistics: Option<ObjectId>,
    tables: BTreeMap<(u8, u8), Table>,
}

/// True for an algorithm whose checksum is as good as random: it is the hash of its entries (OpenZFS: `ZCHECKSUM_FLAG_DEDUP`).
fn is_prehashed(checksum: Checksum) -> bool {
    checksum != Checksum::EDONR
}

/// Value by which a table has an entry (OpenZFS: `ddt_zap_compress`).
fn packed(entry: &DdtTradEntry) -> Value {
    let plain = entry.encode();
    let mut value = vec![0; DdtTradEntry::SIZE + 1];
    let compressed = kernels::compress(Compression::ZLE, 0, &plain, &mut value[1..]).filter(|length| *length < plain.len());
    let length = match compressed {
        Some(length) => {
            value[0] = Compression::ZLE.0;
            length
        }
        None => {
            value[0] = Compression::OFF.0;
            value[1..].copy_from_slice(&plain);
            plain.len()
        }
    };
    value[0] |= DDT_VALUE_LITTLE_ENDIAN;
    value.truncate(length + 1);
    Value::U8(value)
}

/// Entry that a value has; None for one that is damaged (OpenZFS: `ddt_zap_decompress`).
fn unpacked(value: &Value) -> Option<DdtTradEntry> {
    let Value::U8(bytes) = value else { return None };
    let (version, stored) = bytes.split_first()?;
    let mut plain = vec![0; DdtTradEntry::SIZE];
    let compression = Compression(version & COMPRESSION_BITS);
    kernels::decompress(compression, stored, &mut plain).ok()?;
    DdtTradEntry::decode_stored(&plain, *version).ok()
}

/// Sums that an entry adds to those of its table, and the bucket of the histogram; None for one without references (OpenZFS: `ddt_stat_generate`).
fn stat_of(tree: &VdevTree, key: &DdtKey, entry: &DdtTradEntry) -> Option<(usize, DdtStat)> {
    let (lsize, psize) = (key.lsize() as u64, key.psize() as u64);
    let mut sum = DdtStat::default();
    for phys in entry.ddp_trad.iter().filter(|phys| phys.ddp_phys_birth != 0) {
        let copies = if key.is_encrypted() { 2 } else { 3 };
        let dsize = |dva: &ondisk::Dva| tree.addressed(dva.vdev).map_or(0, |top| top.dsize(dva.asize));
        let dsize: u64 = phys.dvas().iter().take(copies).filter(|dva| !dva.is_empty()).map(dsize).sum();
        let times = |bytes: u64| bytes.saturating_mul(phys.ddp_refcnt);
        sum.add(&DdtStat::of_words(&[1, lsize, psize, dsize, phys.ddp_refcnt, times(lsize), times(psize), times(dsize)]));
    }
    let bucket = sum.dds_ref_blocks.checked_ilog2()?;
    Some((bucket as usize, sum))
}

/// Entries of one table, each handed to `each` with its key.
fn for_each_entry(entries: &Zap, each: &mut dyn FnMut(&DdtKey, &DdtTradEntry) -> Result<(), PoolError>) -> Result<(), PoolError> {
    let damaged = || PoolError::Object(entries.object(), DAMAGED);
    let mut keys = Vec::new();
    entries.for_each(|entry| {
        keys.push(entry.words.clone());
        Ok(())
    })?;
    for words in keys {
        let key = DdtKey::of_words(&words).ok_or_else(damaged)?;
        let entry = unpacked(&entries.lookup_words(&words)?).ok_or_else(damaged)?;
        each(&key, &entry)?;
    }
    Ok(())
}

/// Adds, to the number of references beyond the first of every shared block, those that traditional tables count, for checks of space.
pub(crate) fn add_references(mos: &Arc<Objset>, shared: &mut BTreeMap<Place, u64>) -> Result<(), PoolError> {
    let directory = Zap::hold(mos, DIRECTORY)?;
    for (checksum, _) in DDT_CHECKSUMS {
        let Some(name) = ddt_object_name(checksum, ddt_class::DUPLICATE) else { continue };
        let Some(object) = directory.try_lookup_u64(name)? else { continue };
        for_each_entry(&Zap::hold(mos, ObjectId(object))?, &mut |key, entry| {
            for phys in entry.ddp_trad.iter().filter(|phys| phys.ddp_refcnt > 1) {
                *shared.entry(Place::of(&key.pointer(checksum, phys))).or_default() += phys.ddp_refcnt - 1;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// True for the name of a traditional table that can be written.
pub(crate) fn is_written(name: &[u8]) -> bool {
    let is_name = |checksum, class| ddt_object_name(checksum, class).is_some_and(|known| known.as_bytes() == name);
    DDT_CHECKSUMS.iter().any(|(checksum, _)| CLASSES.iter().any(|class| is_name(*checksum, *class)))
}

impl Tables {
    /// Reads what there is of tables (OpenZFS: `ddt_load`).
    pub fn load(mos: &Arc<Objset>) -> Result<Tables, PoolError> {
        let directory = Zap::hold(mos, DIRECTORY)?;
        let mut all = Tables { statistics: directory.try_lookup_u64(STATISTICS)?.map(ObjectId), tables: BTreeMap::new() };
        for (checksum, _) in DDT_CHECKSUMS {
            for class in CLASSES {
                let Some(name) = ddt_object_name(checksum, class) else { continue };
                let Some(object) = directory.try_lookup_u64(&name)?.map(ObjectId) else { continue };
                let statistics = all.statistics.ok_or(PoolError::Object(object, DAMAGED))?;
                let words = Zap::hold(mos, statistics)?.lookup(&name)?.to_u64s();
                let (sums, rest) = words.as_chunks::<8>();
                if sums.len() != BUCKETS || !rest.is_empty() {
                    return Err(PoolError::Object(statistics, DAMAGED));
                }
                let histogram = sums.iter().map(DdtStat::of_words).collect();
                all.tables.insert((checksum.0, class), Table { object, histogram, is_changed: false });
            }
        }
        Ok(all)
    }

    /// Tables for those who want to see them.
    fn described(&self, mos: &Arc<Objset>) -> Result<Vec<DedupTable>, PoolError> {
        let mut all = Vec::new();
        for ((checksum, class), table) in &self.tables {
            let info = mos.hold(table.object)?.info()?;
            all.push(DedupTable {
                name: ddt_object_name(Checksum(*checksum), *class).unwrap_or_default(),
                object: table.object,
                entries: Zap::hold(mos, table.object)?.count(),
                disk_bytes: info.used_bytes,
                memory_bytes: info.max_block.0.saturating_add(1).saturating_mul(info.block_size as u64),
                histogram: table.histogram.iter().map(DdtStat::words).collect(),
            });
        }
        Ok(all)
    }

    /// Tables of an algorithm, with their classes.
    fn of(&self, checksum: u8) -> impl Iterator<Item = (u8, &Table)> {
        self.tables.range((checksum, 0)..=(checksum, u8::MAX)).map(|((_, class), table)| (*class, table))
    }

    /// Starts to read what a look at these entries takes.
    fn read_ahead(&self, mos: &Arc<Objset>, keys: &[BlockKey]) -> Result<(), ZapError> {
        for (checksum, words) in keys {
            for (_, table) in self.of(*checksum) {
                Zap::hold(mos, table.object)?.prefetch_words(words)?;
            }
        }
        Ok(())
    }

    /// An entry as its table has it (OpenZFS: `ddt_object_lookup`).
    fn find(&self, mos: &Arc<Objset>, (checksum, words): &BlockKey) -> Result<InTable, PoolError> {
        for (class, table) in self.of(*checksum) {
            match Zap::hold(mos, table.object)?.lookup_words(words) {
                Ok(value) => {
                    let entry = unpacked(&value).ok_or(PoolError::Object(table.object, DAMAGED))?;
                    return Ok(Some((class, entry)));
                }
                Err(ZapError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The table of a class, made where there is none (OpenZFS: `ddt_object_create`).
    fn table(&mut self, mos: &Arc<Objset>, at: (u8, u8), tx: &Tx) -> Result<&mut Table, PoolError> {
        match self.tables.entry(at) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(free) => Ok(free.insert(Table::create(mos, at, &mut self.statistics, tx)?)),
        }
    }

    /// Writes an entry back, and frees the variants that nobody refers to (OpenZFS: `ddt_sync_flush_entry`).
    fn write(&mut self, spa: &Spa, changed: Changed, tx: &Tx) -> Result<(), PoolError> {
        let Changed { key, before, mut now } = changed;
        if before.as_ref().map_or_else(DdtTradEntry::default, |(_, entry)| entry.clone()) == now {
            return Ok(());
        }
        let ((checksum, words), tree) = (key, spa.tree());
        let block = DdtKey::of_words(&words).ok_or(PoolError::Corrupt(DAMAGED))?;
        for (variant, phys) in now.ddp_trad.iter_mut().enumerate().filter(|(_, phys)| phys.ddp_phys_birth != 0) {
            // The first one is of pools of long ago: copies beyond those that were asked for, which nobody refers to.
            if variant == 0 || phys.ddp_refcnt == 0 {
                spa.io.free(tx.txg(), &block.pointer(Checksum(checksum), phys));
                *phys = Default::default();
            }
        }
        let references = now.references();
        let class = if references > 1 { ddt_class::DUPLICATE } else { ddt_class::UNIQUE };
        if let Some((old_class, old)) = &before {
            let table = self.table(&spa.mos, (checksum, *old_class), tx)?;
            table.is_changed = true;
            if let Some((bucket, sum)) = stat_of(&tree, &block, old) {
                table.histogram[bucket].sub(&sum);
            }
            if references == 0 || *old_class != class {
                Zap::hold(&spa.mos, table.object)?.remove_words(&words, tx)?;
            }
        }
        if references > 0 {
            let table = self.table(&spa.mos, (checksum, class), tx)?;
            table.is_changed = true;
            if let Some((bucket, sum)) = stat_of(&tree, &block, &now) {
                table.histogram[bucket].add(&sum);
            }
            Zap::hold(&spa.mos, table.object)?.update_words(&words, &packed(&now), tx)?;
        }
        Ok(())
    }

    /// Writes the histograms of tables that changed. Those of an algorithm go once none of them has an entry (OpenZFS: `ddt_sync_update_stats`).
    fn settle(&mut self, mos: &Arc<Objset>, tx: &Tx) -> Result<(), PoolError> {
        let Some(statistics) = self.statistics else { return Ok(()) };
        let statistics = Zap::hold(mos, statistics)?;
        let mut changed = BTreeMap::<u8, u64>::new();
        for (at, table) in self.tables.iter_mut().filter(|(_, table)| table.is_changed) {
            let name = ddt_object_name(Checksum(at.0), at.1).ok_or(PoolError::Corrupt(DAMAGED))?;
            let words = table.histogram.iter().flat_map(DdtStat::words).collect();
            statistics.update(&name, &Value::U64(words), tx)?;
            table.is_changed = false;
            changed.insert(at.0, 0);
        }
        for (at, table) in &self.tables {
            if let Some(entries) = changed.get_mut(&at.0) {
                *entries += Zap::hold(mos, table.object)?.count();
            }
        }
        for checksum in changed.into_iter().filter_map(|(checksum, entries)| (entries == 0).then_some(checksum)) {
            for class in CLASSES {
                let Some(table) = self.tables.remove(&(checksum, class)) else { continue };
                let name = ddt_object_name(Checksum(checksum), class).ok_or(PoolError::Corrupt(DAMAGED))?;
                Zap::hold(mos, DIRECTORY)?.remove(&name, tx)?;
                statistics.remove(&name, tx)?;
                zap::destroy(mos, table.object, tx)?;
            }
        }
        Ok(())
    }
}

/// True when vdevs that are for tables are there and have little room left (OpenZFS: `ddt_special_over_quota`).
fn is_full(spa: &Spa, bias: Bias) -> bool {
    const ROOM: u64 = 8 << 30;
    let (mut allocated, mut capacity) = (0u64, 0u64);
    for top in spa.tree().tops.iter().filter(|top| top.is_concrete() && top.bias == bias) {
        let space = spa.services.allocator.vdev_space(top.id);
        allocated = allocated.saturating_add(space.allocated);
        capacity = capacity.saturating_add(space.capacity);
    }
    capacity > 0 && allocated >= (capacity / 100 * 85).max(capacity.saturating_sub(ROOM))
}

/// Reads the tables for writes that ask. Only the sync asks it, and waits with it: while it does, it holds the tables' lock.
pub(crate) struct DedupReader {
    mos: Arc<Objset>,
    dedup: Arc<Dedup>,
    tables: Mutex<Tables>,
}

impl DedupReader {
    /// Opens the tables of a pool, and has writes ask for what is in them.
    pub fn open(mos: &Arc<Objset>, io: &PoolIo) -> Result<Arc<DedupReader>, PoolError> {
        let (tables, dedup) = (Tables::load(mos)?, io.dedup().clone());
        dedup.set_tables(tables.described(mos)?);
        dedup.set_quota(stored_table_quota(mos)?);
        let reader = Arc::new(DedupReader { mos: mos.clone(), dedup: dedup.clone(), tables: Mutex::new(tables) });
        let answers: Weak<DedupReader> = Arc::downgrade(&reader);
        dedup.set_answers(answers);
        io.cache().zio().set_dedup(dedup);
        Ok(reader)
    }

    /// Looks entries up, those of which nobody did yet.
    fn look_up(&self, keys: &[BlockKey]) {
        let tables = self.tables.lock();
        for together in keys.chunks(TOGETHER) {
            if let Err(error) = tables.read_ahead(&self.mos, together) {
                tracing::debug!("tables of deduplication cannot be read ahead: {error}");
            }
            for key in together {
                let found = tables.find(&self.mos, key);
                if let Err(error) = &found {
                    tracing::error!("a table of deduplication cannot be read: {error}; what it would say of a block stays unknown");
                }
                self.dedup.looked_up(*key, found.ok());
            }
        }
    }

    /// Looks up the entries of these blocks.
    pub fn look_up_blocks<'a>(&self, blocks: impl Iterator<Item = &'a BlockPtr>) {
        let unknown = self.dedup.unknown_of(blocks.map(key_of));
        self.look_up(&unknown);
    }

    /// Adds references to a block that is being cloned; false when no table has it, and another is to count them.
    ///
    /// # Errors
    /// [`PoolError`] when the tables cannot be read: nobody would know when the block is free.
    pub fn reference(&self, bp: &BlockPtr, count: u64) -> Result<bool, PoolError> {
        match self.dedup.reference(bp, count) {
            Counted::Yes => Ok(true),
            Counted::NoEntry => Ok(false),
            Counted::Unknown => Err(PoolError::Dmu(DmuError::Corrupt)),
        }
    }

    /// Sums up what the tables have, and what they take.
    fn measure(&self) -> Result<(), PoolError> {
        let tables = self.tables.lock().described(&self.mos)?;
        self.dedup.set_tables(tables);
        Ok(())
    }

    /// Counts what was given up, and brings the tables up to date; false when there was nothing to do.
    fn sync(&self, spa: &Spa, tx: &Tx) -> Result<bool, PoolError> {
        if !self.dedup.is_touched(tx.txg()) {
            return Ok(false);
        }
        let given_up = self.dedup.take_given_up(tx.txg());
        self.look_up_blocks(given_up.iter().map(|(_, bp)| bp));
        for (txg, bp) in &given_up {
            match self.dedup.release(bp) {
                Counted::Yes => {}
                Counted::NoEntry => {
                    let mut plain = *bp;
                    plain.set_dedup(false);
                    spa.io.free(*txg, &plain);
                }
                // Others may have it: its space is kept, never given away.
                Counted::Unknown => tracing::warn!("txg {txg}: a block that may have other references is not freed: {bp:?}"),
            }
        }
        let mut tables = self.tables.lock();
        for changed in self.dedup.take_changed() {
            tables.write(spa, changed, tx)?;
        }
        tables.settle(&self.mos, tx)?;
        self.dedup.set_tables(tables.described(&self.mos)?);
        self.dedup.set_class_full(is_full(spa, Bias::Dedup) || is_full(spa, Bias::Special));
        Ok(true)
    }
}

impl Answers for DedupReader {
    fn answer(&self) {
        let mut asked = self.dedup.take_asked();
        // Neighbours in the tables come one after the other.
        asked.sort_unstable();
        self.look_up(&asked);
    }
}

/// Counts references of blocks that were given up, and writes the tables.
pub(crate) struct SyncDedup {
    pub spa: Arc<Spa>,
    pub reader: Option<Arc<DedupReader>>,
    /// The pass before changed tables: how much they take is known now that they are written.
    pub is_stale: bool,
}

impl SyncStep for SyncDedup {
    fn name(&self) -> &'static str {
        "tables of deduplication"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let Some(reader) = &self.reader else { return Ok(()) };
        if std::mem::take(&mut self.is_stale) {
            reader.measure()?;
        }
        self.is_stale = reader.sync(&self.spa, at.tx)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
