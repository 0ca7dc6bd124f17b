//! [`Volume`]: an open volume, its facts, its size, and what makes it durable.

use crate::VolumeError;
use crate::journal::Journal;
use crate::write::Commits;
use direct_io::{Access, Direct, DirectSnapshot, Facts, Operation, Plan, Property, decide};
use dmu::{DmuError, Dnode, Objset, SyncMode};
use dsl::{DatasetHandle, DslError};
use exec::{Exec, RwLock};
use kstat::Sheet;
use ondisk::Txg;
use range_lock::{RangeGuard, RangeLock};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zil::{Filled, LogSource, Payload, blocks_around, fill_block, fill_bytes};

/// Bytes of the largest volume: offsets of files end there.
const VOLUME_BYTES_MAX: u64 = i64::MAX as u64;
/// Cells of the counters: writes, bytes of these, reads, bytes of these.
const CELLS: usize = 4;
const WRITES: usize = 0;
const READS: usize = 2;

/// Properties of a volume that may change while it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Property `readonly`.
    pub read_only: bool,
    /// Property `direct`.
    pub direct: Property,
}

impl Settings {
    /// Properties that a dataset has now.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn of(dataset: &DatasetHandle) -> Result<Settings, DslError> {
        let direct = match dataset.prop_u64("direct")?.0 {
            0 => Property::Disabled,
            2 => Property::Always,
            _ => Property::Standard,
        };
        Ok(Settings { read_only: dataset.prop_u64("readonly")?.0 != 0, direct })
    }
}

/// Open volume, or snapshot of one. Offsets and lengths are in bytes, of any alignment.
pub struct Volume {
    pub(crate) dataset: DatasetHandle,
    objset: Arc<Objset>,
    pub(crate) data: Arc<Dnode>,
    pub(crate) exec: Exec,
    block_size: u64,
    size: AtomicU64,
    /// True for a snapshot, and in a pool that is not written.
    is_fixed: bool,
    settings: RwLock<Settings>,
    pub(crate) direct: Direct,
    locks: Arc<RangeLock>,
    pub(crate) journal: Journal,
    pub(crate) commits: Commits,
    counts: Sheet,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume {{ objset: {}, size: {} }}", self.objset.id(), self.size())
    }
}

impl Volume {
    /// Opens the volume that is held: for writing when it is a head and its pool is written, else for reading alone. Its log becomes this volume's: of
    /// one dataset only one may be open at a time.
    ///
    /// # Errors
    /// [`DslError::BadProperty`] for what is no volume, [`DslError::Unsupported`] for one whose sizes nobody could make, those of reading it.
    pub fn open(dataset: DatasetHandle, settings: Settings, direct: Direct) -> Result<Arc<Volume>, DslError> {
        let objset = dataset.objset()?;
        let size = dsl::volume::size(&objset)?;
        let data = dsl::volume::data(&objset)?;
        let block_size = data.info()?.block_size as u64;
        if !block_size.is_power_of_two() || size > VOLUME_BYTES_MAX {
            return Err(DslError::Unsupported);
        }
        let volume = Arc::new(Volume {
            is_fixed: dataset.is_snapshot() || objset.is_read_only(),
            dataset,
            exec: objset.io().exec().clone(),
            objset,
            block_size,
            size: AtomicU64::new(size),
            settings: RwLock::new(settings),
            direct,
            locks: Arc::default(),
            journal: Journal::new(data.object()),
            data,
            commits: Commits::default(),
            counts: Sheet::new(CELLS),
        });
        if !volume.is_fixed {
            let source: Weak<Volume> = Arc::downgrade(&volume);
            let log = volume.dataset.intent_log(source)?;
            volume.journal.connect(log, volume.dataset.pool().txgs().open_txg());
        }
        Ok(volume)
    }

    /// Hold on the dataset of the volume.
    pub fn dataset(&self) -> &DatasetHandle {
        &self.dataset
    }

    /// Object set of the volume.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Bytes of the volume's blocks (property `volblocksize`).
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// True while nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.is_fixed || self.settings.read().read_only
    }

    /// Replaces the properties.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Counters since it was opened: `writes nwritten reads nread` (OpenZFS: `dataset_kstats.c`).
    pub fn counts(&self) -> [u64; CELLS] {
        std::array::from_fn(|cell| self.counts.get(cell))
    }

    /// Counters of the intent log, by OpenZFS's names; none without one.
    pub fn log_counts(&self) -> Vec<(&'static str, u64)> {
        self.journal.log().map_or_else(Vec::new, |log| log.counts())
    }

    /// Counts of direct I/O.
    pub fn direct_counts(&self) -> DirectSnapshot {
        self.direct.stats.snapshot()
    }

    /// Makes the volume larger or smaller, in bytes, while nobody reads or writes; it is on disk when this returns (OpenZFS: `zvol_set_volsize`).
    ///
    /// # Errors
    /// Those of [`DatasetHandle::resize_volume`].
    pub fn resize(&self, bytes: u64) -> Result<(), DslError> {
        let _guard = self.lock(0..u64::MAX, true);
        let result = if bytes > VOLUME_BYTES_MAX { Err(DslError::BadValue) } else { self.dataset.resize_volume(bytes) };
        // A size that was set before something failed counts.
        self.size.store(dsl::volume::size(&self.objset)?, Ordering::Release);
        result
    }

    /// Makes every change so far durable: by the log, else with its txg (OpenZFS: `zil_commit`). Nothing is promised with `sync=disabled`.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] when the pool takes no more changes.
    pub fn flush(&self) -> Result<(), VolumeError> {
        let Some(log) = self.journal.log() else { return Ok(()) };
        if self.objset.props().sync == SyncMode::Disabled {
            return Ok(());
        }
        // Before, so that the log need not hold what builds on it.
        self.wait_unlogged()?;
        log.commit(None)?;
        self.wait_unlogged()
    }

    /// True when a change is to be durable before its end is told.
    pub(crate) fn is_durable(&self, is_asked: bool) -> bool {
        let sync = self.objset.props().sync;
        sync == SyncMode::Always || (is_asked && sync != SyncMode::Disabled)
    }

    fn wait_unlogged(&self) -> Result<(), VolumeError> {
        let (txg, txgs) = (self.journal.unlogged(), self.dataset.pool().txgs());
        if txg > txgs.synced_txg() {
            txgs.wait_synced(txg)?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self, range: Range<u64>, is_writer: bool) -> RangeGuard {
        self.locks.lock(&self.exec, range, is_writer)
    }

    /// Locks a range for a reader, without waiting; None when somebody changes a part of it.
    pub(crate) fn try_lock(&self, range: Range<u64>) -> Option<RangeGuard> {
        self.locks.try_lock(range, false)
    }

    /// True when a request that does not ask to go past the cache does so all the same (property `direct`).
    pub(crate) fn is_always_direct(&self) -> bool {
        self.settings.read().direct == Property::Always
    }

    /// True when blocks of data may stay in the cache.
    pub(crate) fn keeps_data(&self) -> bool {
        self.objset.props().primary_cache.keeps_data()
    }

    /// Checks that something may be changed up to `end`, in a range that is locked.
    pub(crate) fn check_change(&self, end: u64) -> Result<(), VolumeError> {
        if self.is_read_only() {
            Err(VolumeError::ReadOnly)
        } else if end > self.size() {
            Err(VolumeError::OutOfRange)
        } else {
            Ok(())
        }
    }

    /// Decides how a request is carried out, and counts it. What a file refuses because it is not page-aligned goes through the cache: disks take
    /// what is aligned to sectors.
    pub(crate) fn plan(&self, operation: Operation, range: &Range<u64>, access: Access) -> Plan {
        let facts = Facts {
            operation,
            flagged: access.flagged,
            offset: range.start,
            length: range.end - range.start,
            memory: access.memory,
            property: self.settings.read().direct,
            snapshot: self.dataset.is_snapshot(),
            mapped: access.mapped,
            file_size: self.size(),
            block_size: self.block_size,
            record_size: self.block_size,
        };
        let mut plan = decide(&facts, self.direct.params());
        if let Some(reason) = plan.rejected {
            let end = if operation == Operation::Read { range.end.min(self.size()).max(range.start) } else { range.end };
            plan = Plan::buffered(range.start..end, reason);
        }
        self.direct.stats.count(&plan, range.end - range.start, operation == Operation::Write);
        plan
    }

    pub(crate) fn count_write(&self, bytes: u64) {
        let row = self.counts.row();
        row.add(WRITES, 1);
        row.add(WRITES + 1, bytes);
    }

    pub(crate) fn count_read(&self, bytes: u64) {
        let row = self.counts.row();
        row.add(READS, 1);
        row.add(READS + 1, bytes);
    }
}

impl LogSource for Volume {
    /// Reads under the lock of the range: whoever has it may wait for a transaction, so nothing that a sync waits for may be held.
    fn fill(&self, payload: &Payload, txg: Txg) -> Result<Filled, DmuError> {
        let (range, is_block) = match payload {
            Payload::None => return Ok(Filled::Bytes(Vec::new())),
            Payload::Copied(range) => (range, false),
            Payload::Block(range) => (range, true),
        };
        if txg <= self.dataset.pool().txgs().synced_txg() {
            return Ok(Filled::Nothing);
        }
        let _guard = match is_block {
            true => self.lock(blocks_around(&self.data, range)?, false),
            false => self.lock(range.offset..range.offset.saturating_add(range.length), false),
        };
        if is_block { fill_block(&self.data, range, self.size()) } else { fill_bytes(&self.data, range, self.size()) }
    }
}
