//! One txg's sync: a list of steps. Datasets and sync tasks come first, then the MOS pass by pass until nothing changes any more, then
//! labels and uberblock (OpenZFS: `spa_sync`, `spa_sync_iterate_to_convergence`, `vdev_config_sync`).
//!
//! From pass 2 on, blocks born in the txg are rewritten in place, so that writing down the allocations of one pass makes ever
//! fewer allocations in the next. The lock `work` is held during the whole sync, across waits: only the sync takes it.

pub(crate) mod brt;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod datasets;
pub(crate) mod dedup;
mod dtl;
pub(crate) mod failure;
pub(crate) mod flushing;
pub(crate) mod kept;
pub(crate) mod log_spacemap;
pub(crate) mod mos;
pub(crate) mod space_log;
pub(crate) mod spacemap;
pub(crate) mod step;
pub(crate) mod tree;

pub(crate) use dtl::load as load_dtls;

use crate::PoolError;
use crate::heartbeat;
use crate::label::commit::LabelWriter;
use crate::spa::Spa;
use crate::spa::adapter::{Patience, WaitsFor};
use crate::spa::config::{VERSION, guid_sum};
use device::DeviceError;
use dmu::{Cause, DmuError, IoTotals, SyncError, Tx, TxgSync};
use exec::Mutex;
use failure::SyncFailure;
use ondisk::{BlockPtr, Guid, Txg, Uberblock};
use spacemap::SpaceMaps;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use step::{Steps, SyncStep, Syncing};
use tree::TreeWriter;
use vdev::LeafId;
use zio::{ErrorKind, IoKind, Zio, ZioError};

/// More passes than any pool needs: something keeps changing.
const PASSES_MAX: u32 = 64;

/// Number of txgs without changes after which the uberblock is written all the same: what is logged next is of the txg that is open, and whoever
/// imports the pool after a crash takes a log of very many txgs later for one that never was (`zil::claim`).
const IDLE_TXGS_MAX: u64 = 10_000;

/// State that only the sync touches.
struct Work {
    maps: SpaceMaps,
    steps: Steps,
}

/// The pool's side of a txg.
pub(crate) struct Syncer {
    spa: Arc<Spa>,
    tree: Arc<TreeWriter>,
    work: Mutex<Work>,
    /// Name of the part of the sync that runs.
    step: Mutex<&'static str>,
    /// Failure that ended the syncing for good.
    failure: Mutex<Option<SyncFailure>>,
}

impl TxgSync for Syncer {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        let before = self.errors_of_leaves();
        let mut silent = BTreeSet::new();
        self.sync(txg, &mut silent).map_err(|error| self.failed(txg, error, (before, silent)))
    }

    fn io_totals(&self) -> IoTotals {
        let leaves = 0..self.zio().view().tree.leaves.len() as u32;
        leaves.fold(IoTotals::default(), |sum, leaf| {
            let counts = self.zio().leaf_stats(LeafId(leaf)).counts();
            let of = |counts: &[u64; 4], kind: IoKind| counts[kind as usize];
            IoTotals {
                read_bytes: sum.read_bytes + of(&counts.bytes, IoKind::Read),
                written_bytes: sum.written_bytes + of(&counts.bytes, IoKind::Write),
                reads: sum.reads + of(&counts.ops, IoKind::Read),
                writes: sum.writes + of(&counts.ops, IoKind::Write),
            }
        })
    }
}

impl Syncer {
    /// Syncs with these steps, and writes the space maps that the pool was opened with.
    pub fn new(spa: Arc<Spa>, tree: Arc<TreeWriter>, maps: SpaceMaps, steps: Steps) -> Syncer {
        Syncer { spa, tree, work: Mutex::new(Work { maps, steps }), step: Mutex::default(), failure: Mutex::default() }
    }

    /// Failure that ended the syncing for good.
    pub fn failure(&self) -> Option<SyncFailure> {
        self.failure.lock().clone()
    }

    fn zio(&self) -> &Zio {
        self.spa.zio()
    }

    /// Returns, by leaf, the number of its I/Os that failed or returned wrong bytes.
    fn errors_of_leaves(&self) -> BTreeMap<Guid, u64> {
        let errors = |guid: Guid| {
            let counts = self.zio().leaf_stats_of(guid).counts();
            counts.errors.iter().sum::<u64>() + counts.checksum_errors + counts.gone
        };
        self.spa.tree().leaves.iter().map(|leaf| (leaf.guid, errors(leaf.guid))).collect()
    }

    /// Says why a txg could not be written, where nobody wanted that, and keeps it; `before` are the leaves' errors as the sync began, and
    /// `silent` the leaves that took no labels or flushes.
    fn failed(&self, txg: Txg, error: PoolError, (before, silent): (BTreeMap<Guid, u64>, BTreeSet<Guid>)) -> SyncError {
        let why = dmu::with_causes(&error);
        let sync_error = error.into_sync();
        if sync_error == SyncError::Stopped {
            return sync_error;
        }
        // A pool that is given up fails what waited: what it waited for is the cause.
        let suspended_for = || self.zio().suspended_for();
        let block = match self.spa.io.take_failed() {
            Some(ZioError { kind: ErrorKind::Suspended, .. }) => suspended_for(),
            block => block,
        };
        let dataset = block.and_then(|error| self.spa.dsl.known_name(error.bookmark.objset.0));
        let now = self.errors_of_leaves();
        let has_failed = |guid: Guid| silent.contains(&guid) || now.get(&guid) > before.get(&guid);
        let tree = self.spa.tree();
        let path = |leaf: &vdev::Leaf| if leaf.path.is_empty() { leaf.guid.to_string() } else { leaf.path.clone() };
        let devices = tree.leaves.iter().filter(|leaf| has_failed(leaf.guid)).map(path).collect();
        let failure = SyncFailure { txg, step: *self.step.lock(), block, dataset, devices, why };
        failure.tell(&self.spa.services);
        *self.failure.lock() = Some(failure);
        match (sync_error, block) {
            (SyncError::Dmu(DmuError::Block(error, _)), Some(block)) => SyncError::Block(error, Cause::new(block)),
            (error, _) => error,
        }
    }

    /// Runs steps in their order, each as patient as it is.
    fn run(&self, steps: &mut [Box<dyn SyncStep>], at: &mut Syncing<'_>) -> Result<(), PoolError> {
        for step in steps {
            *self.step.lock() = step.name();
            // What the step before could do without is not what this one fails for.
            self.spa.io.take_failed();
            let _patience = Patience::begin(step.waits_for());
            step.run(at).inspect_err(|error| tracing::debug!("txg {}, {}: {error}", at.tx.txg(), step.name()))?;
        }
        Ok(())
    }

    fn sync(&self, txg: Txg, silent: &mut BTreeSet<Guid>) -> Result<(), PoolError> {
        let _patience = Patience::begin(WaitsFor::Block);
        let mut work = self.work.lock();
        let Work { maps, steps } = &mut *work;
        let tx = Tx::syncing(txg);
        self.spa.io.set_pass(1);
        let mut at = Syncing { tx: &tx, pass: 1, maps, root: None, config_dirty: false, unsettled: false };
        self.run(&mut steps.once, &mut at)?;
        self.converge(&mut steps.passes, &mut at, 1)?;
        let is_far = txg.0.saturating_sub(self.spa.config.lock().uberblock.ub_txg) >= IDLE_TXGS_MAX;
        // Heartbeats repeat the newest uberblock, and tell how often they come: so does each txg (OpenZFS: `vdev_config_sync`).
        if at.root.is_some() || at.config_dirty || is_far || self.spa.multihost.is_on() {
            while self.flush(txg, silent)? {
                self.converge(&mut steps.passes, &mut at, 2)?;
            }
            // Labels have no other place to go to (OpenZFS: `spa_sync_rewrite_vdev_config`).
            *self.step.lock() = "labels and uberblock";
            let mut since = self.zio().resumes();
            while let Err(error) = self.commit(txg, (at.root, at.config_dirty), silent) {
                if !matches!(error, PoolError::Io(_)) || !self.zio().suspend_and_wait(since, None) {
                    return Err(error);
                }
                since = self.zio().resumes();
            }
            self.tree.label_detached();
            if at.config_dirty {
                self.spa.services.tell("sysevent.fs.zfs.config_sync");
            }
        }
        self.spa.services.allocator.sync_done(txg);
        Ok(())
    }

    /// Makes durable what was written. What leaves that did not flush may lack is to be in their logs with this txg: true when it is not,
    /// and the MOS has to be synced once more.
    fn flush(&self, txg: Txg, silent: &mut BTreeSet<Guid>) -> Result<bool, PoolError> {
        let mut is_news = false;
        *self.step.lock() = "flush";
        loop {
            let since = self.zio().resumes();
            let flushed = self.zio().flush_wait();
            let tree = self.spa.tree();
            silent.clear();
            for leaf in self.zio().take_unflushed() {
                silent.insert(leaf);
                is_news |= tree.leaf_by_guid(leaf).is_some_and(|id| !tree.leaf(id).lacks(txg));
                self.zio().note_missing(leaf, txg);
            }
            if flushed.is_ok() {
                return Ok(is_news);
            }
            if !self.zio().suspend_and_wait(since, None) {
                return Err(PoolError::Io(DeviceError::Io));
            }
        }
    }

    /// Syncs the MOS, beginning with this pass, until nothing of the txg is dirty.
    fn converge(&self, steps: &mut [Box<dyn SyncStep>], at: &mut Syncing<'_>, first: u32) -> Result<(), PoolError> {
        for pass in first..=PASSES_MAX {
            self.spa.io.set_pass(pass);
            (at.pass, at.unsettled) = (pass, false);
            self.run(steps, at)?;
            if !at.unsettled {
                return Ok(());
            }
        }
        Err(PoolError::Corrupt("the sync does not converge"))
    }

    /// Moves the pool to the new root, in an order that is safe against a crash at any point.
    fn commit(&self, txg: Txg, (root, config_dirty): (Option<BlockPtr>, bool), silent: &mut BTreeSet<Guid>) -> Result<(), PoolError> {
        // The thread of the heartbeats may hang itself.
        if heartbeat::stop_if_overdue(&self.spa) || self.zio().is_fenced() {
            return Err(PoolError::Io(DeviceError::Gone));
        }
        let (tree, devices, facts, mut ub, grown, reflow) = {
            let mut config = self.spa.config.lock();
            let grown = std::mem::take(&mut config.grown);
            (config.tree.clone(), config.devices.clone(), config.facts.clone(), config.uberblock.clone(), grown, config.reflow)
        };
        ub.ub_magic = Uberblock::MAGIC;
        ub.ub_version = facts.version;
        ub.ub_txg = txg.0;
        ub.ub_guid_sum = guid_sum(&tree);
        ub.ub_timestamp = self.spa.exec().wall_clock().0 as u64;
        ub.ub_software_version = VERSION;
        ub.ub_checkpoint_txg = 0;
        // What a device did not flush was not moved there.
        let is_silent = |top: &vdev::TopVdev| top.leaves().any(|leaf| silent.contains(&tree.leaf(leaf).guid));
        if let Some((state, offset)) = reflow.filter(|(_, offset)| *offset == 0 || !tree.expanding().is_some_and(is_silent)) {
            ub.set_raidz_reflow(state, offset);
        }
        self.spa.multihost.stamp(&mut ub);
        if let Some(root) = root {
            ub.ub_rootbp = root;
        }
        let labels = LabelWriter::new(self.spa.exec(), self.zio(), &tree, &devices);
        if grown {
            labels.copy_uberblocks();
        }
        let config_of = |leaf: LeafId| facts.label_config(&tree, leaf, txg);
        let written = labels.commit(&ub, config_dirty.then_some(&config_of));
        silent.extend(labels.take_silent());
        written?;
        self.spa.multihost.note_synced(&ub, self.spa.exec().now_ns(), tree.leaves.len());
        let mut config = self.spa.config.lock();
        (config.uberblock, config.reflow) = (ub, None);
        Ok(())
    }
}
