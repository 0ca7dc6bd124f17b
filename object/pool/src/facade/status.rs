//! A picture of an open pool, for `zpool status` and `zpool list`.

use super::Pool;
use crate::PoolError;
use crate::spa::brt::SharedSpace;
use crate::spa::dedup::{DedupSpace, DedupTable};
use crate::sync::failure::SyncFailure;
use crate::sync::spacemap::HISTOGRAM;
use dmu::{DmuError, Objset};
use dsl::FailedLog;
use metaslab::{BrokenMetaslab, ClassSpace, VdevSpace};
use ondisk::{BlockId, BlockPtr, Guid, ObjectId, Txg, VdevId};
use std::sync::Arc;
use vdev::{LeafId, LeafState, VdevTree};
use zio::LeafCounts;

/// A leaf's facts and counters.
#[derive(Clone, Debug)]
pub struct LeafStatus {
    /// Number of the leaf in [`PoolStatus::tree`].
    pub leaf: LeafId,
    /// State of the leaf.
    pub state: LeafState,
    /// Error and I/O counters since the pool was opened or cleared.
    pub counts: LeafCounts,
    /// Histograms and queue depths, in the order of [`zio::EXTENDED`].
    pub extended: Vec<Vec<u64>>,
}

/// A picture of the pool for `zpool status` and `zpool list`.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// Guid of the pool.
    pub guid: Guid,
    /// On-disk version of the pool.
    pub version: u64,
    /// The comment property.
    pub comment: Option<String>,
    /// Last txg on disk.
    pub txg: Txg,
    /// Imported read-only.
    pub read_only: bool,
    /// Pool I/O waits for devices to come back.
    pub suspended: bool,
    /// Pool is suspended because its heartbeats failed or were late: another host may have imported it.
    pub has_missed_heartbeats: bool,
    /// Block that the pool is suspended for, of which dataset and why, in words, where it is suspended for one.
    pub suspended_for: Option<String>,
    /// Reason why nothing is written any more, if that is so; whoever exports the pool by force and imports it again has what was on disk.
    pub sync_failure: Option<SyncFailure>,
    /// Metaslabs that nothing is allocated from any more, and why.
    pub broken_metaslabs: Vec<BrokenMetaslab>,
    /// Intent logs that cannot be written, and why.
    pub failed_logs: Vec<FailedLog>,
    /// Vdevs of the pool.
    pub tree: Arc<VdevTree>,
    /// Space by top-level vdev, in the tree's order.
    pub vdev_space: Vec<VdevSpace>,
    /// Fragmentation of free space in percent by top-level vdev, in the tree's order; None where it is not known.
    pub vdev_fragmentation: Vec<Option<u64>>,
    /// Fragmentation of the free space of vdevs that are for all blocks, in percent, where it is known.
    pub fragmentation: Option<u64>,
    /// Number of times that users changed buffers underneath direct I/O, by top-level vdev in the tree's order (the DIO column of
    /// `zpool status -d`).
    pub dio_verify_errors: Vec<u64>,
    /// Space of the data vdevs.
    pub space: ClassSpace,
    /// Leaves in the tree's order.
    pub leaves: Vec<LeafStatus>,
    /// Labels that did not verify when the pool was opened.
    pub damaged_labels: usize,
    /// Uberblocks that did not verify when the pool was opened: it may have fallen back to an older one.
    pub damaged_uberblocks: usize,
}

/// Blocks of a table that are read ahead together.
const AHEAD: u64 = 64;

/// Reads every block of an object.
fn read_whole(mos: &Arc<Objset>, object: ObjectId) -> Result<(), DmuError> {
    let dnode = mos.hold(object)?;
    let info = dnode.info()?;
    let block_bytes = info.block_size as u64;
    for block in 0..=info.max_block.0 {
        if block.is_multiple_of(AHEAD) {
            dnode.prefetch(block.saturating_mul(block_bytes), AHEAD * block_bytes);
        }
        dnode.read_block(BlockId(block))?;
    }
    Ok(())
}

impl Pool {
    /// Space of blocks that tables of deduplication have, as of the last sync.
    pub fn dedup_space(&self) -> DedupSpace {
        self.spa.services.dedup.space()
    }

    /// Tables of deduplication, as of the last sync.
    pub fn dedup_tables(&self) -> Vec<DedupTable> {
        self.spa.services.dedup.tables()
    }

    /// Bytes of these tables that are in memory (the property `dedupcached`; OpenZFS: `ddt_get_pool_dedup_cached`).
    pub fn dedup_cached_bytes(&self) -> u64 {
        let holds = |bp: &BlockPtr| self.spa.io.cache().holds(bp);
        let cached = |table: DedupTable| {
            let dnode = self.spa.mos.hold(table.object).ok()?;
            let block_bytes = dnode.info().ok()?.block_size as u64;
            Some(dnode.blocks_in_memory(&holds).saturating_mul(block_bytes))
        };
        self.dedup_tables().into_iter().filter_map(cached).fold(0, u64::saturating_add)
    }

    /// Reads these tables into memory (OpenZFS: `ddt_prefetch_all`).
    ///
    /// # Errors
    /// Those of reading a table; one that goes meanwhile is no error.
    pub fn prefetch_dedup(&self) -> Result<(), PoolError> {
        for table in self.dedup_tables() {
            match read_whole(&self.spa.mos, table.object) {
                Err(DmuError::NoSuchObject) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Space of blocks that several pointers share, as of the last sync.
    pub fn shared_space(&self) -> SharedSpace {
        self.spa.services.brt.space()
    }

    fn suspended_for(&self) -> Option<String> {
        let error = self.zio().suspended_for().filter(|_| self.zio().is_suspended())?;
        Some(error.of(self.dsl().known_name(error.bookmark.objset.0).as_deref()))
    }

    /// True where space maps tell how long free segments are.
    fn is_fragmentation_known(&self) -> bool {
        self.spa.services.features.is_enabled(HISTOGRAM)
    }

    /// Fragmentation of every metaslab of a top-level vdev in percent, as of the last sync; None where it is not known.
    pub fn metaslab_fragmentation(&self, vdev: VdevId) -> Vec<Option<u64>> {
        let (allocator, is_known) = (&self.spa.services.allocator, self.is_fragmentation_known());
        let percent = |metaslab| allocator.metaslab_fragmentation(vdev, metaslab).filter(|_| is_known);
        (0..allocator.metaslab_count(vdev)).map(percent).collect()
    }

    /// A picture of the pool.
    pub fn status(&self) -> PoolStatus {
        let (tree, facts, txg) = {
            let config = self.spa.config.lock();
            (config.tree.clone(), config.facts.clone(), self.spa.txgs.synced_txg())
        };
        let allocator = &self.spa.services.allocator;
        let is_measured = self.is_fragmentation_known();
        let leaf = |index: usize| {
            let id = LeafId(index as u32);
            let stats = self.zio().leaf_stats_of(tree.leaf(id).guid);
            LeafStatus { leaf: id, state: tree.leaf(id).state, counts: stats.counts(), extended: stats.extended() }
        };
        PoolStatus {
            name: facts.name,
            guid: facts.guid,
            version: facts.version,
            comment: facts.comment,
            txg,
            read_only: !self.is_writeable(),
            suspended: self.zio().is_suspended() || self.spa.txgs.has_failed(),
            has_missed_heartbeats: self.zio().is_fenced() && self.spa.multihost.has_missed(),
            suspended_for: self.suspended_for(),
            sync_failure: self.syncer.failure(),
            broken_metaslabs: allocator.broken(),
            failed_logs: self.dsl().failed_logs(),
            vdev_space: tree.tops.iter().map(|top| allocator.vdev_space(top.id)).collect(),
            vdev_fragmentation: tree.tops.iter().map(|top| allocator.fragmentation(top.id).filter(|_| is_measured)).collect(),
            fragmentation: allocator.class_fragmentation().filter(|_| is_measured),
            dio_verify_errors: tree.tops.iter().map(|top| self.zio().dio_verify_errors(top.id)).collect(),
            space: allocator.class_space(),
            leaves: (0..tree.leaves.len()).map(leaf).collect(),
            tree,
            damaged_labels: self.damaged_labels,
            damaged_uberblocks: self.damaged_uberblocks,
        }
    }
}
