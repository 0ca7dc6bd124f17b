//! An open pool: the handle that commands, mounts and tests use. The only place that knows all rooms: it hands on what is asked for, and
//! tells one room what another one decided.

mod assemble;
pub(crate) mod status;
mod vdevs;
mod work;

use crate::caches::Caches;
use crate::expand::run::Expansions;
use crate::heartbeat::{Heartbeat, claim};
use crate::label::Device;
use crate::open::base::{Base, Runtime};
use crate::open::create::{self, PoolSpec};
use crate::open::find::FoundPool;
use crate::open::rewind::{self, Rewound};
use crate::open::{self, ImportOptions, Rewind, progress};
use crate::outliers::Outliers;
use crate::rebuild::Rebuilds;
use crate::removal::run::Removals;
use crate::scans::Resilvers;
use crate::spa::checkpoint;
use crate::spa::config::{Host, PoolState, VERSION};
use crate::spa::features::HEAD_ERRLOG;
use crate::spa::props::{PoolProp, is_provider_prop};
use crate::spa::replay::{replay_logs, replay_unlocked};
use crate::spa::services::dsl_error;
use crate::spa::takeover::{self, ArenaOutcome};
use crate::spa::{Follow, Spa};
use crate::sweep::Sweeps;
use crate::sync::Syncer;
use crate::sync::changes::Edit;
use crate::sync::checkpoint::CheckpointControl;
use crate::sync::flushing::{LogControl, SpaceLogTunables};
use crate::vdev_ops::VdevOps;
use crate::vdev_ops::leaves::Leaves;
use crate::verify::{CheckpointReport, Reading, SpaceReport, Verifier};
use crate::zia::{Awaited, Followed};
use crate::{FEATURES, PoolError, Support, feature_by_guid, feature_by_name};
use arc::Cache;
use dmu::{Objset, Tx, TxgManager};
use dsl::{DslError, DslPool, ReplayFiles, ReplayedLog};
use exec::Exec;
use kstat::IoStats;
use nvlist::{Encoding, NvList};
use offload::Accelerator;
use ondisk::Guid;
use ondisk::Txg;
use scan::Scan;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::VdevTree;
use zil::Arena;
use zio::{DirectParameters, Zio};

/// Longest input of a call that the history has, in bytes: OpenZFS's `zdb` reads no record of more than 128 KiB.
const CALL_BYTES_MAX: usize = 64 << 10;
/// Txgs that are written before a pool is frozen (OpenZFS: `TXG_SIZE`).
const FREEZE_TXGS: u32 = 4;

/// An open pool. Close it with [`Pool::export`] or [`Pool::destroy`]; a handle that is dropped without stops the txgs and leaves
/// the pool as after a crash, which loses nothing that was synced.
pub struct Pool {
    spa: Arc<Spa>,
    syncer: Arc<Syncer>,
    vdevs: VdevOps,
    leaves: Leaves,
    scan: Arc<Scan>,
    resilvers: Resilvers,
    rebuilds: Arc<Rebuilds>,
    removals: Arc<Removals>,
    expansions: Arc<Expansions>,
    sweeps: Arc<Sweeps>,
    heartbeat: Arc<Heartbeat>,
    zia: Followed,
    outliers: Outliers,
    caches: Arc<Caches>,
    /// Blocks of destroyed datasets freed in one txg; 0 until somebody says how many.
    frees_max: Arc<AtomicU64>,
    log_control: Arc<LogControl>,
    checkpoints: Arc<CheckpointControl>,
    damaged_labels: usize,
    damaged_uberblocks: usize,
    /// Replayer of intent logs of file systems.
    files: Option<Arc<dyn ReplayFiles>>,
    /// Intent logs that the import replayed.
    replayed: Vec<ReplayedLog>,
    /// Outcome of an import with an arena.
    arena_outcome: ArenaOutcome,
    /// State that the import went back to.
    rewound: Option<Rewound>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.zio().abandon();
        self.caches.halt();
        self.heartbeat.halt();
        self.sweeps.halt();
        self.rebuilds.halt();
        self.removals.halt();
        self.expansions.halt();
        self.scan.halt();
        self.spa.txgs.abandon();
    }
}

impl Pool {
    /// Makes a pool and opens it. On error the devices may carry labels of a pool that was never finished, which no import
    /// takes for one.
    pub fn create(exec: &Exec, spec: PoolSpec, runtime: &Runtime) -> Result<Pool, PoolError> {
        let pool = assemble::assemble(create::make(exec, spec, runtime)?, runtime)?;
        pool.spa.txgs.start(pool.syncer.clone());
        pool.spa.txgs.wait_synced(Txg::INITIAL)?;
        Ok(pool)
    }

    /// Imports the pool that `options` name from `devices` (any devices: those of other pools are ignored).
    pub fn import(exec: &Exec, devices: Vec<Device>, options: &ImportOptions, runtime: &Runtime) -> Result<Pool, PoolError> {
        if options.arena.is_some() && options.rewind != Rewind::Never {
            // What the process before did goes on from the newest state.
            return Pool::import(exec, devices, &ImportOptions { arena: None, ..options.clone() }, runtime);
        }
        let again = options.arena.is_some().then(|| devices.clone());
        match (Pool::open(exec, &open::choose(exec, devices, options)?, options, runtime), again) {
            (Err(PoolError::Takeover(error)), Some(devices)) => {
                // As after a crash then: nothing of it reached the disk.
                let options = ImportOptions { arena: None, ..options.clone() };
                let mut pool = Pool::open(exec, &open::choose(exec, devices, &options)?, &options, runtime)?;
                pool.arena_outcome = ArenaOutcome::Refused(error.to_string());
                Ok(pool)
            }
            (result, _) => result,
        }
    }

    /// Imports a pool that [`crate::find_pools`] found: its newest state, or the one that `options` let it go back to.
    pub fn open(exec: &Exec, found: &FoundPool, options: &ImportOptions, runtime: &Runtime) -> Result<Pool, PoolError> {
        found.describe();
        let _import = progress::begin(found, options);
        let found = &found.trusting(runtime.trusts_paths);
        let result = rewind::go_back(exec, found, options, runtime).and_then(|returned| {
            let found = returned.as_ref().map_or(found, |returned| &returned.found);
            // It was looked for before, and what was left behind is still the newest on devices that are only read.
            let skip_activity = options.skip_activity || (returned.is_some() && options.read_only);
            let options = &ImportOptions { skip_activity, ..options.clone() };
            let mut pool = open::read(exec, found, options, runtime).and_then(|base| Pool::begin(base, found, (options, None), runtime))?;
            pool.rewound = returned.as_ref().map(|returned| returned.state.clone());
            if let (Some(state), Rewind::Checkpoint, false) = (&pool.rewound, options.rewind, options.read_only) {
                let text = format!("rewound state to txg={}", state.txg);
                pool.spa.services.log_now("checkpoint rewind", &text, pool.spa.txgs.open_txg());
            }
            Ok(pool)
        });
        match &result {
            Ok(pool) => {
                tracing::info!("pool '{}' is open in txg {}{}", pool.name(), pool.txg(), if options.read_only { ", read-only" } else { "" })
            }
            Err(error) => tracing::warn!("pool '{}' (guid {}) was not opened: {error}", found.name(), found.guid()),
        }
        result
    }

    /// Starts the txgs, and what an earlier import left to be done, unless nothing may be written; `first` changes the tree before anything of the
    /// first txg is written.
    fn begin(
        base: Base,
        found: &FoundPool,
        (options, first): (&ImportOptions, Option<Edit>),
        runtime: &Runtime,
    ) -> Result<Pool, PoolError> {
        let note = |step: &str| progress::note(found.guid(), step);
        note("Starting import");
        let mut pending = base.logs.pending();
        let mut pool = assemble::assemble(base, runtime)?;
        pool.suspend_rebuilds(runtime.scans.suspended);
        pool.removals.parameters.suspended.store(u64::from(runtime.removals_suspended), Ordering::Relaxed);
        pool.expansions.parameters.reflow_bytes_max.store(runtime.reflow_bytes_max, Ordering::Relaxed);
        pool.scan.set_tunables(runtime.scans);
        pool.follow_providers()?;
        if options.read_only {
            return Ok(pool);
        }
        if found.has_heartbeats() && !options.skip_activity {
            claim::claim(&pool.spa, found.is_to_be_claimed(options.host.id))?;
        }
        // Before a txg is written: what the process before did in one of this number must not go with it.
        let inherited = takeover::adopt(&pool.spa, options.arena.as_deref());
        let changed = first.map(|edit| pool.vdevs.begin_with(edit));
        // What follows may take its time, and from now on another host has to see that the pool is taken.
        pool.heartbeat.spawn();
        pool.spa.txgs.start(pool.syncer.clone());
        note("Syncing ZIL claims");
        pool.spa.first_sync()?;
        changed.and_then(|outcome| outcome.lock().take()).unwrap_or(Ok(()))?;
        note("Replaying ZIL blocks");
        let told = takeover::take_logs(&pool.spa, &mut pending, &inherited)?;
        pool.replayed = replay_logs(&pool.spa, &pending, runtime.replay.as_deref())?;
        pool.arena_outcome = takeover::replay(&pool.spa, inherited, &told, runtime.replay.as_deref())?;
        note("Cleaning up inconsistent objsets");
        let lost = pool.dsl().destroy_lost_receives()?;
        if lost > 0 {
            tracing::info!("pool '{}': {lost} datasets that were not received to their end are destroyed", pool.name());
        }
        note("Starting resilvers");
        pool.resilver_stale()?;
        pool.scan.spawn();
        pool.rebuilds.spawn();
        note("Restarting device removals");
        pool.removals.spawn();
        pool.expansions.spawn();
        note("Restarting initialize");
        note("Restarting TRIM");
        pool.sweeps.spawn();
        note("Finished importing");
        Ok(pool)
    }

    /// Intent logs that the import replayed.
    pub fn replayed(&self) -> &[ReplayedLog] {
        &self.replayed
    }
    /// Loads the key of an encryption root ([`DslPool::load_key`]), or looks whether it is the right one, and replays the intent logs that waited for it:
    /// gives those. One that cannot be replayed waits on, and its dataset stays closed ([`DslError::LogWaits`]).
    ///
    /// # Errors
    /// Those of [`DslPool::load_key`].
    pub fn load_key(&self, name: &str, secret: &[u8], only_check: bool) -> Result<Vec<ReplayedLog>, DslError> {
        self.dsl().load_key(name, secret, only_check)?;
        Ok(if only_check { Vec::new() } else { replay_unlocked(&self.spa, self.files.as_deref()) })
    }
    /// Names the arena that has what mounts change from now on, so that they outlive this process; once, before anything of the pool is mounted. False
    /// when it has one already: the one that its import was given goes on being used.
    pub fn set_arena(&self, arena: Arc<Arena>) -> bool {
        self.dsl().set_arena(arena, self.guid().0)
    }
    /// Arena of the pool: where there is one, its mounts can outlive this process.
    pub fn arena(&self) -> Option<Arc<Arena>> {
        self.dsl().arena().cloned()
    }
    /// Outcome of an import with an arena.
    pub fn arena_outcome(&self) -> &ArenaOutcome {
        &self.arena_outcome
    }
    /// State that the import went back to; None when it took the newest one.
    pub fn rewound(&self) -> Option<&Rewound> {
        self.rewound.as_ref()
    }
    /// True when the import was given an arena, and everything in it is there again: mounts of the process before can go on.
    pub fn has_taken_over(&self) -> bool {
        matches!(self.arena_outcome, ArenaOutcome::TakenOver { .. })
    }
    /// The executor that everything of the pool runs on.
    pub fn exec(&self) -> &Exec {
        &self.spa.services.exec
    }
    /// Name of the pool.
    pub fn name(&self) -> String {
        self.spa.name()
    }
    /// True when its name is for this import only, and its devices have another one.
    pub fn has_temporary_name(&self) -> bool {
        self.spa.config.lock().facts.stored_name.is_some()
    }
    /// Guid of the pool.
    pub fn guid(&self) -> Guid {
        self.spa.guid()
    }
    /// False when it was imported read-only.
    pub fn is_writeable(&self) -> bool {
        self.spa.services.writeable
    }
    /// Datasets of the pool.
    pub fn dsl(&self) -> &Arc<DslPool> {
        &self.spa.dsl
    }
    /// The meta object set.
    pub fn mos(&self) -> &Arc<Objset> {
        &self.spa.mos
    }
    /// The transaction groups.
    pub fn txgs(&self) -> &Arc<TxgManager> {
        &self.spa.txgs
    }
    /// Counters of the pool's reads and writes: through the cache, or directly (OpenZFS: the pool's `iostats`).
    pub fn iostats(&self) -> &Arc<IoStats> {
        self.zio().iostats()
    }
    /// The parameters of direct I/O.
    pub fn direct_parameters(&self) -> &DirectParameters {
        self.zio().direct_parameters()
    }
    /// The cache of blocks.
    pub fn cache(&self) -> &Cache {
        self.spa.io.cache()
    }
    /// The I/O pipeline.
    pub fn zio(&self) -> &Zio {
        self.cache().zio()
    }
    /// The last txg on disk.
    pub fn txg(&self) -> Txg {
        self.spa.txgs.synced_txg()
    }
    /// The uberblock on disk.
    pub fn uberblock(&self) -> ondisk::Uberblock {
        self.spa.config.lock().uberblock.clone()
    }
    /// The vdevs as of now.
    pub fn tree(&self) -> Arc<VdevTree> {
        self.spa.tree()
    }
    /// The open devices by leaf number.
    pub fn devices(&self) -> Vec<Option<Device>> {
        self.spa.config.lock().devices.clone()
    }

    /// The configuration as cache files have it.
    pub fn cache_config(&self) -> NvList {
        let config = self.spa.config.lock();
        config.facts.mos_config(&config.tree, config.uberblock.txg())
    }

    /// Waits until everything done so far is on disk.
    pub fn sync(&self) -> Result<(), PoolError> {
        self.spa.sync()
    }

    /// Waits for a sync, or until the pool is suspended.
    pub fn sync_unless_suspended(&self) -> Result<(), PoolError> {
        self.spa.sync_unless_suspended()
    }

    /// Begins a sync and waits for it so long, in nanoseconds, or until the pool is suspended; whether either came.
    pub fn sync_within(&self, longest_ns: u64) -> bool {
        self.spa.sync_within(longest_ns)
    }

    /// Frees at most so many blocks of destroyed datasets in a txg from now on (OpenZFS: `zfs_async_block_max_blocks`).
    pub fn set_frees_max(&self, blocks: u64) {
        self.frees_max.store(blocks, Ordering::Relaxed);
    }

    /// Changes how a pool that writes log space maps ([`Runtime::log_space_maps`]) flushes them.
    pub fn tune_space_log(&self, tunables: SpaceLogTunables) {
        self.log_control.tune(tunables);
    }

    /// Writes a txg with a new configuration to every label, also when nothing else is to be written, and waits for it (OpenZFS:
    /// `zfs_ioc_pool_sync` with `force`).
    pub fn sync_forced(&self) -> Result<(), PoolError> {
        if self.is_writeable() {
            self.spa.config.lock().dirty = true;
        }
        self.sync()
    }

    /// Writes what the pool was given, and nothing more until it is opened anew, but what intent logs bring to the disk; nobody waits for the rest
    /// (`zpool freeze`, for tests; OpenZFS: `spa_freeze`).
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`]; those of the sync.
    pub fn freeze(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        // What was freed has rested by then: afterwards no txg makes it usable.
        (1..FREEZE_TXGS).try_for_each(|_| self.sync())?;
        self.spa.dsl.begin_logs();
        Ok(self.spa.txgs.freeze()?)
    }

    /// True since [`Pool::freeze`].
    pub fn is_frozen(&self) -> bool {
        self.spa.txgs.is_frozen()
    }

    /// Short name, guid, and reference count of every feature flag; None for a feature that is not enabled. Unknown features
    /// of the pool have their guid as name.
    pub fn features(&self) -> Vec<(String, String, Option<u64>)> {
        let enabled = self.spa.services.features.list();
        let count = |guid: &str| enabled.iter().find(|(known, _)| known == guid).map(|(_, count)| *count);
        let mut all: Vec<_> =
            FEATURES.iter().map(|feature| (feature.name.to_string(), feature.guid.to_string(), count(feature.guid))).collect();
        let unknown = enabled.iter().filter(|(guid, _)| feature_by_guid(guid).is_none());
        all.extend(unknown.map(|(guid, count)| (guid.clone(), guid.clone(), Some(*count))));
        all
    }

    /// Enables a feature flag and what it depends on, by short name (OpenZFS: `zpool set feature@…=enabled`).
    pub fn enable_feature(&self, name: &str) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        let feature = feature_by_name(name).ok_or(PoolError::BadProperty)?;
        if feature.support != Support::Full {
            return Err(PoolError::BadValue);
        }
        let (services, scan) = (self.spa.services.clone(), self.scan.clone());
        let enable = move |dsl: &Arc<DslPool>, (), tx: &Tx| {
            services.features.enable(feature.guid, tx).map_err(dsl_error)?;
            if feature.guid == HEAD_ERRLOG {
                scan.log_by_head();
            }
            services.log_internal("set", &format!("feature@{}=enabled", feature.name), tx);
            dsl.features_changed()
        };
        let look = self.spa.services.clone();
        let check = move |_: &Arc<DslPool>, _: &Tx| if look.features.exist() { Ok(()) } else { Err(DslError::OldVersion(VERSION)) };
        Ok(self.dsl().sync_task(check, enable)?)
    }

    /// Logs a command to the pool's history; it goes out with the next txg.
    pub fn log_command(&self, command: &str, uid: u32) {
        let mut record = NvList::new();
        record.add("history command", command).add("history who", u64::from(uid));
        self.log_record(record);
    }

    /// Logs to the pool's history, for who looks for it there, the call by which OpenZFS's commands would have had its kernel do what was done, with
    /// what it takes (OpenZFS: `spa_history_log_nvl`); it goes out with the next txg. One that would fill the history is left out.
    pub fn log_call(&self, call: &str, input: NvList) {
        if input.encode(Encoding::NativeLittle).len() > CALL_BYTES_MAX {
            return;
        }
        let mut record = NvList::new();
        record.add("ioctl", call).add("in_nvl", input);
        self.log_record(record);
    }

    fn log_record(&self, mut record: NvList) {
        record.add("history time", self.exec().wall_clock().0 as u64);
        self.spa.services.history.log(record);
    }

    /// The pool's history, oldest record first.
    pub fn history(&self) -> Result<Vec<NvList>, PoolError> {
        self.spa.services.history.read()
    }

    /// Allocated bytes of every metaslab of a top-level vdev, as of the last sync.
    pub fn metaslab_bytes(&self, vdev: ondisk::VdevId) -> Vec<u64> {
        let allocator = &self.spa.services.allocator;
        let bytes = |metaslab| allocator.synced_allocated(vdev, metaslab).iter().map(|segment| segment.end - segment.start).sum();
        (0..allocator.metaslab_count(vdev)).map(bytes).collect()
    }

    /// Notes in the pool's history that it was imported, and by whom (OpenZFS: `spa_history_log_version`). Written with the next txg.
    pub fn log_import(&self) {
        if self.is_writeable() {
            let text = format!("pool version {}; software version zirconia", self.spa.config.lock().facts.version);
            self.spa.services.log_now("import", &text, self.spa.txgs.open_txg());
        }
    }

    /// The stored properties, those that users made up last.
    pub fn props(&self) -> Result<Vec<PoolProp>, PoolError> {
        self.spa.props()
    }

    /// log2 of the sectors that vdevs get which are added without a wish; None when nobody chose one.
    pub fn ashift_prop(&self) -> Result<Option<u32>, PoolError> {
        self.spa.ashift_prop()
    }

    /// True when a stored property that can be on or off is on.
    pub fn has_switch(&self, name: &'static str) -> Result<bool, PoolError> {
        self.spa.has_switch(name)
    }

    /// Names the host that has the pool: its labels say so from the next configuration on.
    pub fn set_host(&self, host: Host) {
        let mut config = self.spa.config.lock();
        config.dirty |= config.facts.host != host;
        config.facts.host = host;
    }

    /// Sets a stored property and waits until it is on disk.
    ///
    /// # Errors
    /// `BadProperty` and `BadValue`; `ReadOnly` for a pool that was imported so.
    pub fn set_prop(&self, name: &str, value: &str) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        if name == "version" {
            return self.spa.upgrade(value.parse().map_err(|_| PoolError::BadValue)?);
        }
        if is_provider_prop(name) {
            self.zia.check(value)?;
        }
        match self.spa.set_prop(name, value)? {
            Follow::Nobody => {}
            Follow::Autotrim(on) => {
                self.sweeps.set_autotrim(on);
                self.sweeps.spawn();
            }
            Follow::Providers => self.follow_providers()?,
            Follow::Multihost(on) => {
                self.spa.multihost.set_on(on, self.exec().now_ns());
                self.heartbeat.spawn();
                // Other hosts go by the newest uberblock.
                self.sync_forced()?;
            }
        }
        Ok(())
    }

    /// Gives the pool's stages to the provider that its properties name. One that is not there, or not any more, leaves them in software; to be
    /// called again when providers came or went.
    ///
    /// # Errors
    /// Those of reading the properties.
    pub fn follow_providers(&self) -> Result<(), PoolError> {
        self.zia.follow(&self.spa.mos, self.zio())
    }

    /// Accelerator that the pool's stages go to, if its provider is there.
    pub fn accelerator(&self) -> Option<Accelerator> {
        self.zia.accelerator()
    }

    /// The provider that the properties name, whether it is there or not.
    pub fn provider(&self) -> Option<String> {
        self.zia.provider()
    }

    /// State of the provider that the properties name, when it is known and does no work now.
    pub fn awaited_provider(&self) -> Option<Awaited> {
        self.zia.awaited()
    }

    /// Walks every block of the pool, which must not change meanwhile: a read-only import is best.
    pub fn verify_space(&self) -> Result<SpaceReport, PoolError> {
        self.verify_blocks(Reading::Nothing)
    }

    /// Walks every block likewise, and reads blocks to see whether they are intact.
    pub fn verify_blocks(&self, reading: Reading) -> Result<SpaceReport, PoolError> {
        Verifier(&self.spa).verify_blocks(reading)
    }

    /// Holds the state that the pool's checkpoint keeps, opened by itself, against the pool. Neither must change meanwhile.
    pub fn verify_checkpoint(&self, state: &Pool) -> Result<CheckpointReport, PoolError> {
        Verifier(&self.spa).verify_checkpoint(&state.spa)
    }

    /// The uberblock that the checkpoint keeps, as it is in the MOS; None without a checkpoint that can be gone back to.
    pub fn checkpoint_uberblock(&self) -> Result<Option<ondisk::Uberblock>, PoolError> {
        checkpoint::read(&self.spa.mos)
    }

    /// Writes everything, marks the pool as exported and closes it. Nobody may use its datasets any more.
    pub fn export(self) -> Result<(), PoolError> {
        self.close(PoolState::Exported)
    }

    /// Writes everything and closes the pool, whose labels go on saying that it is in use (OpenZFS: `spa_export_common`, `hardforce`).
    pub fn leave(self) -> Result<(), PoolError> {
        self.close(PoolState::Active)
    }

    /// Marks the pool as destroyed and closes it.
    pub fn destroy(self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.close(PoolState::Destroyed)
    }

    fn close(self, state: PoolState) -> Result<(), PoolError> {
        self.caches.halt();
        self.sweeps.halt();
        self.rebuilds.halt();
        self.removals.halt();
        self.expansions.halt();
        self.scan.halt();
        if !self.is_writeable() {
            // Its txgs never ran, so there is nothing to end.
            let _ = self.spa.txgs.stop();
            return Ok(());
        }
        self.spa.dsl.close_logs();
        self.sync()?;
        if state == PoolState::Exported {
            self.log_control.flush_for_export();
        }
        {
            let mut config = self.spa.config.lock();
            config.facts.state = state;
            config.dirty = true;
        }
        self.sync()?;
        self.heartbeat.halt();
        Ok(self.spa.txgs.stop()?)
    }
}
