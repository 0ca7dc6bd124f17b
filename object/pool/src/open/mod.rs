//! Opening a pool that exists: labels, uberblock, MOS, the trusted configuration, space (OpenZFS: `spa_load_impl`).

pub(crate) mod activity;
pub(crate) mod base;
pub(crate) mod create;
pub(crate) mod examine;
pub(crate) mod find;
pub(crate) mod labelclear;
pub(crate) mod progress;
pub(crate) mod rewind;
mod space;

use crate::label::Device;
use crate::spa::adapter::PoolIo;
use crate::spa::aux_devices::AuxDevices;
use crate::spa::checkpoint::{self, Checkpoint, CheckpointStatus};
use crate::spa::config::{Host, PoolFacts, PoolState, is_version};
use crate::spa::features::{DIRECTORY, Features};
use crate::spa::history::History;
use crate::spa::mos_objects::{load_biases, read_packed};
use crate::spa::multihost::Multihost;
use crate::spa::salt::{self, StoredSalt};
use crate::spa::services::Services;
use crate::spa::state::Config;
use crate::spa::version::count_parity;
use crate::spa::{Spa, props};
use crate::sync::brt::SharedBlocks;
use crate::sync::dedup::{self, DedupReader};
use crate::sync::kept::KeptMaps;
use crate::sync::log_spacemap;
use crate::sync::space_log::SpaceLog;
use crate::sync::spacemap::SpaceMaps;
use crate::{PoolError, Support, feature_by_guid, removal};
use arc::Cache;
use base::{Base, Runtime};
use dmu::{Objset, ObjsetProps, TxgManager};
use dsl::{DslPool, IntentLogs, LostLogs, Mos, PoolServices};
use exec::{Exec, Mutex, RwLock};
use find::{FoundPool, find_pools};
use metaslab::Allocator;
use nvlist::NvList;
use ondisk::{Guid, ObjectId, Txg, Uberblock};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use vdev::{LeafState, TopKind, VdevTree};
use zap::Zap;
use zio::{FailMode, PoolView, Zio};

/// The MOS directory has this entry, 1, when space is counted without parity (OpenZFS: `DMU_POOL_DEFLATE`).
const DEFLATE: &str = "deflate";
/// A txg is synced early when direct writes took this part of the pool: what they overwrote becomes free only then.
const DIRECT_SHARE: u64 = 16;
/// No pool lives to see a txg beyond this one.
const TXG_MAX: u64 = 1 << 60;

/// Extent to which an import may go back to an older state of a pool (OpenZFS: `zpool_load_policy_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rewind {
    /// Not at all: the newest state is opened, or none.
    #[default]
    Never,
    /// By the transaction groups whose space nobody could use again yet, where the newest state cannot be opened (`zpool import -F`).
    Recent,
    /// To any state that the devices still have, where newer ones cannot be opened (`-FX`).
    Any,
    /// To the newest state of this transaction group or one before it, whatever newer ones there are (`-T`).
    To(Txg),
    /// To the state that a checkpoint keeps (`--rewind-to-checkpoint`).
    Checkpoint,
}

/// Pool to import, and options of the import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Name of the pool to import …
    pub name: Option<String>,
    /// … or its guid.
    pub guid: Option<Guid>,
    /// Name to give the pool.
    pub new_name: Option<String>,
    /// True when the new name is for this import only: the devices keep the old one (`zpool import -t`).
    pub temporary: bool,
    /// Change nothing on the devices.
    pub read_only: bool,
    /// Import even though another host may use it.
    pub force: bool,
    /// Import a destroyed pool.
    pub destroyed: bool,
    /// Import it without its log devices, where those are missing (`zpool import -m`).
    pub missing_log: bool,
    /// Import it without its log devices, where those are missing and no intent log ends on them: nothing that was made durable is lost.
    pub missing_idle_log: bool,
    /// Do not look whether another host has the pool open, and do not claim it: for those who only look at what is there (`zdb`), or know that none has.
    pub skip_activity: bool,
    /// Extent to which the import may go back.
    pub rewind: Rewind,
    /// Host that imports the pool.
    pub host: Host,
    /// Arena that the process before left of it: what is in it is done again, and the pool goes on with it. One that is not sound, or cannot be
    /// replayed, is as none ([`ArenaOutcome`]).
    pub arena: Option<Arc<OwnedFd>>,
}

/// The pool among `devices` that `options` name.
pub(crate) fn choose(exec: &Exec, devices: Vec<Device>, options: &ImportOptions) -> Result<FoundPool, PoolError> {
    let by_name = |pool: &FoundPool| options.name.as_deref().is_none_or(|name| pool.name() == name);
    let by_guid = |pool: &FoundPool| options.guid.is_none_or(|guid| pool.guid() == guid);
    let wanted_state = |pool: &FoundPool| options.destroyed == (pool.state() == PoolState::Destroyed);
    let mut matching: Vec<FoundPool> = find_pools(exec, devices).into_iter().filter(|pool| by_name(pool) && by_guid(pool)).collect();
    if matching.iter().any(wanted_state) {
        matching.retain(wanted_state);
    } else if matching.iter().any(|pool| pool.state() == PoolState::Destroyed) {
        return Err(PoolError::Destroyed);
    }
    if matching.len() > 1 {
        return Err(PoolError::Ambiguous(matching.iter().map(FoundPool::guid).collect()));
    }
    matching.pop().ok_or(PoolError::NotFound)
}

/// Reads a pool that was found.
pub(crate) fn read(exec: &Exec, found: &FoundPool, options: &ImportOptions, runtime: &Runtime) -> Result<Base, PoolError> {
    progress::note(found.guid(), "spa_load()");
    let ub = found.best.clone().ok_or(PoolError::NoUberblock)?;
    check_version(ub.ub_version)?;
    if ub.ub_txg > TXG_MAX {
        return Err(PoolError::Corrupt("the uberblock's txg"));
    }
    if !found.has_heartbeats() {
        // Nobody waits for an answer that is no.
        check_host(found, options)?;
    }
    if !options.skip_activity {
        found.look_for_activity(exec, options.host.id, &runtime.multihost)?;
    }
    check_host(found, options)?;
    check_label_features(found)?;
    let mut start = Start::new(exec, found, (runtime, tops_to_spare(options, runtime)), &ub)?;
    progress::note(found.guid(), "Checking feature flags");
    let features = Arc::new(Features::open(start.mos.objset())?);
    features.check(options.read_only)?;
    if !options.read_only {
        progress::note(found.guid(), "Loading dedup tables");
        check_dedup(start.objset())?;
    }
    let config_object = start.trust_config(found, options, runtime)?;
    if !options.read_only {
        start.salt.check(&features)?;
    }
    if !options.missing_log && !options.missing_idle_log {
        check_logs(&start.tree)?;
    }
    start.finish(found, options, runtime, Opened { ub, features, config_object })
}

pub(crate) fn check_version(version: u64) -> Result<(), PoolError> {
    if is_version(version) { Ok(()) } else { Err(PoolError::UnsupportedVersion(version)) }
}

/// Number of top-level vdevs that may be missing: what is to be written needs all of them.
fn tops_to_spare(options: &ImportOptions, runtime: &Runtime) -> usize {
    if options.read_only { runtime.max_missing_tops } else { 0 }
}

/// Refuses features that must be known to read the MOS; the labels name them (OpenZFS: `spa_ld_parse_config`).
pub(crate) fn check_label_features(found: &FoundPool) -> Result<(), PoolError> {
    let unknown = |guid: &&String| feature_by_guid(guid).is_none_or(|feature| feature.support == Support::None);
    let features: Vec<String> = found.facts.mos_features.iter().filter(unknown).cloned().collect();
    if features.is_empty() { Ok(()) } else { Err(PoolError::UnsupportedFeatures { features, read_only: false }) }
}

/// Opens the tables of deduplication. Of a pool that is only read they serve to show what is saved, and may be damaged.
fn open_dedup(mos: &Arc<Objset>, io: &PoolIo, read_only: bool) -> Result<Option<Arc<DedupReader>>, PoolError> {
    match DedupReader::open(mos, io) {
        Err(error) if read_only => {
            tracing::warn!("tables of deduplication cannot be read: {error}");
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Refuses to write a pool with dedup tables that are not written: blocks would be freed that other files share. Old ones have no feature flag.
pub(crate) fn check_dedup(mos: &Arc<Objset>) -> Result<(), PoolError> {
    let mut tables = Vec::new();
    Zap::hold(mos, DIRECTORY)?.for_each(|entry| {
        if entry.name.starts_with(b"DDT-") && entry.name != b"DDT-statistics" && !dedup::is_written(&entry.name) {
            tables.push(String::from_utf8_lossy(&entry.name).into_owned());
        }
        Ok(())
    })?;
    tables.sort();
    if tables.is_empty() { Ok(()) } else { Err(PoolError::UnsupportedFeatures { features: tables, read_only: true }) }
}

/// Refuses a pool without a log device that it should have: what was written to it last may be there only. One that somebody took out of
/// use is not missed.
fn check_logs(tree: &VdevTree) -> Result<(), PoolError> {
    let is_away = |id: &vdev::LeafId| matches!(tree.leaf(*id).state, LeafState::Missing | LeafState::Removed);
    let lacks = |top: &vdev::TopVdev| tree.lost_slots(top) > top.parity() && top.slots.iter().flatten().any(is_away);
    let is_lost = |top: &&vdev::TopVdev| top.is_log && (top.kind == TopKind::Missing || lacks(top));
    let lost: Vec<String> = tree.tops.iter().filter(is_lost).flat_map(vdev::TopVdev::leaves).map(|id| tree.leaf(id).path.clone()).collect();
    if tree.tops.iter().any(|top| is_lost(&top)) { Err(PoolError::MissingLogs(lost)) } else { Ok(()) }
}

/// Intent logs that are given up: the log vdevs that cannot be read, by the user's wish, or nobody would be here; and what was not claimed when the
/// pool goes on from a checkpoint.
fn lost_logs(tree: &VdevTree, ub: &Uberblock) -> LostLogs {
    let is_lost = |top: &&vdev::TopVdev| top.is_log && (top.kind == TopKind::Missing || tree.lost_slots(top) > top.parity());
    let lost: Vec<_> = tree.tops.iter().filter(is_lost).collect();
    let missing = lost.iter().filter(|top| !top.is_concrete()).map(|top| top.id).collect();
    LostLogs { unreadable: lost.iter().map(|top| top.id).collect(), missing, unclaimed: ub.ub_checkpoint_txg != 0 }
}

/// Refuses a pool that another host may have open.
fn check_host(found: &FoundPool, options: &ImportOptions) -> Result<(), PoolError> {
    if options.force { Ok(()) } else { found.check_host(options.host.id) }
}

/// State of a pool once the MOS is open.
struct Opened {
    ub: Uberblock,
    features: Arc<Features>,
    config_object: ObjectId,
}

/// A pool on its way to being open.
pub(crate) struct Start {
    exec: Exec,
    pub tree: VdevTree,
    devices: Vec<Option<Device>>,
    io: Arc<PoolIo>,
    mos: Mos,
    /// As the MOS config object has them.
    facts: PoolFacts,
    /// Salt of keyed checksums, which nothing of the MOS has.
    pub salt: StoredSalt,
    /// Uberblock that it is opened by: it tells how far an expansion is.
    ub: Uberblock,
}

impl Start {
    /// Opens the MOS by what the labels say.
    pub fn new(exec: &Exec, found: &FoundPool, (runtime, to_spare): (&Runtime, usize), ub: &Uberblock) -> Result<Start, PoolError> {
        let tree = found.tree()?;
        tree.resume_reflow(ub);
        // What no label was found of may be logs: the MOS tells, if it can be read without them.
        let has_lost = |top: &&vdev::TopVdev| top.is_concrete() && !top.is_log && tree.lost_slots(top) > top.parity();
        if tree.tops.iter().filter(has_lost).count() > to_spare {
            return Err(lost(&tree, dsl::DslError::NotFound));
        }
        let devices = found.devices_of(&tree);
        let view = PoolView {
            tree: Arc::new(tree.clone()),
            devices: devices.clone(),
            allocator: Arc::new(Allocator::new(&tree, 1)),
            facts: zio::Facts {
                guid: found.guid(),
                name: found.name().to_string(),
                fail_mode: FailMode::Never,
                version: ub.ub_version,
                ..zio::Facts::default()
            },
        };
        let zio = Zio::new(exec.clone(), view, runtime.events.clone());
        let io = Arc::new(PoolIo::new(Cache::new(zio, runtime.arc_max)));
        let mos = Mos::open(io.clone(), ub.ub_rootbp, ObjsetProps::mos().of_version(ub.ub_version)).map_err(|error| lost(&tree, error))?;
        let salt = StoredSalt::read(mos.objset())?;
        let mut start = Start { exec: exec.clone(), tree, devices, io, mos, facts: found.facts.clone(), salt, ub: ub.clone() };
        start.find_removed()?;
        Ok(start)
    }

    /// Finds out where the contents of removed vdevs are, of which no label tells: blocks of the MOS may lie there, too.
    fn find_removed(&mut self) -> Result<(), PoolError> {
        progress::note(self.facts.guid, "Loading indirect vdev metadata");
        let mos = self.objset().clone();
        let Some(state) = removal::read_state(&mos)? else { return Ok(()) };
        let (object, list) = self.stored_config()?;
        let root = list.get_nvlist("vdev_tree").ok_or(PoolError::Object(object, "the pool's configuration"))?;
        let mut tree = self.tree.clone();
        for (top, known) in tree.tops.iter_mut().zip(VdevTree::from_config(root)?.tops) {
            (top.is_leaving, top.objects) = (known.is_leaving, known.objects);
            if known.is_removed() {
                *top = known;
            }
        }
        removal::load(&mos, &state, &mut tree, &mut |tree| self.io.set_view(self.view(tree)))?;
        self.tree = tree;
        Ok(())
    }

    /// The configuration as the MOS has it, and its object.
    fn stored_config(&self) -> Result<(ObjectId, NvList), PoolError> {
        let object = ObjectId(Zap::hold(self.objset(), DIRECTORY)?.lookup_u64("config")?);
        Ok((object, read_packed(self.objset(), object)?))
    }

    pub fn objset(&self) -> &Arc<Objset> {
        self.mos.objset()
    }

    /// Replaces the labels' view of the vdevs by the MOS's (OpenZFS: `spa_ld_trusted_config`); gives the config object.
    pub fn trust_config(&mut self, found: &FoundPool, options: &ImportOptions, runtime: &Runtime) -> Result<ObjectId, PoolError> {
        let (object, list) = self.stored_config()?;
        let facts = PoolFacts::from_config(&list).ok_or(PoolError::Object(object, "the pool's configuration"))?;
        let root = list.get_nvlist("vdev_tree").ok_or(PoolError::Object(object, "the pool's configuration"))?;
        let mut tree = VdevTree::from_config(root)?;
        tree.take_mappings(&self.tree);
        tree.resume_reflow(&self.ub);
        if tree.tops.iter().any(|top| top.is_removed() && top.mapping.is_none()) {
            return Err(PoolError::Corrupt("a removed vdev whose contents are nowhere"));
        }
        found.mark_missing(&mut tree);
        let missing = tree.leaves.iter().filter(|leaf| leaf.state == LeafState::Missing);
        missing.for_each(|leaf| tracing::warn!("pool '{}': no device for vdev {} ({})", found.name(), leaf.guid, leaf.path));
        crate::sync::load_dtls(self.objset(), &mut tree)?;
        let all_told = load_biases(self.objset(), &mut tree);
        if !options.read_only {
            all_told?;
        }
        let counts_parity = Zap::hold(self.objset(), DIRECTORY)?.try_lookup_u64(DEFLATE)?.unwrap_or(0) == 0;
        if counts_parity {
            count_parity(&mut tree);
        }
        let to_spare = tops_to_spare(options, runtime);
        if let Some(top) = tree.tops.iter().find(|top| top.kind == TopKind::Missing && !top.is_log && to_spare == 0) {
            return Err(PoolError::MissingVdev(top.id));
        }
        if tree.lost_tops() > to_spare {
            return Err(lost(&tree, dsl::DslError::NotFound));
        }
        self.devices = found.devices_of(&tree);
        for (leaf, device) in tree.leaves.iter_mut().zip(&mut self.devices).filter(|(leaf, _)| !leaf.state.is_usable()) {
            // Whoever brings it back opens it anew; a resilver that goes on does so without it.
            (*device, leaf.resilver_txg, leaf.rebuild_txg) = (None, Txg(0), Txg(0));
        }
        // Paths may have changed since the configuration was written.
        for (leaf, device) in tree.leaves.iter_mut().zip(&self.devices) {
            if let Some(device) = device {
                leaf.path = device.path().to_string_lossy().into_owned();
            }
        }
        self.facts = PoolFacts {
            name: options.new_name.clone().unwrap_or_else(|| found.name().to_string()),
            stored_name: (options.temporary && options.new_name.is_some()).then(|| found.name().to_string()),
            state: PoolState::Active,
            version: found.version(),
            host: options.host.clone(),
            counts_parity,
            ..facts
        };
        let view = PoolView { allocator: Arc::new(Allocator::new(&tree, runtime.allocators)), ..self.view(&tree) };
        // Until here nobody knew what stale devices lack: that they did not have it is no error of theirs.
        let stale = tree.leaves.iter().filter(|leaf| !leaf.missing_txgs.is_empty());
        stale.for_each(|leaf| self.io.cache().zio().leaf_stats_of(leaf.guid).clear_errors());
        self.tree = tree;
        self.io.set_view(view);
        Ok(object)
    }

    fn view(&self, tree: &VdevTree) -> PoolView {
        let view = self.io.cache().zio().view();
        let facts = zio::Facts { salt: self.salt.known().cloned(), ..view.facts };
        PoolView { tree: Arc::new(tree.clone()), devices: self.devices.clone(), facts, ..view }
    }

    /// Services that datasets rely on.
    fn services(&self, features: &Arc<Features>, options: &ImportOptions, runtime: &Runtime) -> Result<Arc<Services>, PoolError> {
        let zio = self.io.cache().zio();
        Ok(Arc::new(Services {
            exec: self.exec.clone(),
            name: RwLock::new(self.facts.name.clone()),
            history: Arc::new(History::open(self.objset(), &options.host.name)?),
            features: features.clone(),
            allocator: zio.view().allocator,
            brt: self.io.brt().clone(),
            dedup: self.io.dedup().clone(),
            checkpoint: Checkpoint::default(),
            writeable: !options.read_only,
            events: runtime.events.clone(),
            scan_is_resilver: Default::default(),
            zio: zio.clone(),
            scan_news: Mutex::default(),
            rebuild_news: Mutex::default(),
            forget_rebuilds: Default::default(),
        }))
    }

    /// Refuses a pool with intent logs that would have to be replayed before it can be written, and cannot be.
    pub fn check_intent_logs(&self, ub: &Uberblock, features: &Arc<Features>, runtime: &Runtime) -> Result<(), PoolError> {
        let services = self.services(features, &ImportOptions { read_only: true, ..ImportOptions::default() }, runtime)?;
        let txgs = TxgManager::new(self.exec.clone(), ub.txg(), runtime.txg);
        let dsl = DslPool::open(self.mos.clone(), services as Arc<dyn PoolServices>, txgs)?;
        let root = ub.ub_rootbp.birth();
        dsl.look_at_logs(root, &|kind| runtime.replays(kind), &lost_logs(&self.tree, ub)).map(drop).map_err(PoolError::IntentLogs)
    }

    /// Looks at the intent logs, unless the pool is only read.
    fn find_logs(&self, dsl: &Arc<DslPool>, ub: &Uberblock, options: &ImportOptions, runtime: &Runtime) -> Result<IntentLogs, PoolError> {
        if options.read_only {
            return Ok(IntentLogs::default());
        }
        // A pool that was exported may have logs too: of file systems that nobody mounted since their system crashed.
        let (root, lost) = (ub.ub_rootbp.birth(), lost_logs(&self.tree, ub));
        let logs = dsl.look_at_logs(root, &|kind| runtime.replays(kind), &lost).map_err(PoolError::IntentLogs)?;
        if logs.have_losses() && !options.missing_log {
            check_logs(&self.tree)?;
        }
        Ok(logs)
    }

    /// Loads space and datasets.
    fn finish(self, found: &FoundPool, options: &ImportOptions, runtime: &Runtime, opened: Opened) -> Result<Base, PoolError> {
        let objset = self.objset().clone();
        let note = |step: &str| progress::note(found.guid(), step);
        note("Loading vdev metadata");
        let logged = log_spacemap::read(&objset, &self.tree)?;
        let maps = SpaceMaps::open(&objset, &self.tree.tops)?;
        let services = self.services(&opened.features, options, runtime)?;
        let writes_logs = runtime.log_space_maps && !options.read_only && (SpaceLog::is_on(&opened.features) || logged.list.is_none());
        let totals_only = options.read_only && !runtime.load_space_maps;
        space::load(&services, &maps, (&logged, writes_logs && logged.is_sound()), &self.tree, totals_only)?;
        let (space_log, logged) = SpaceLog::resumed(&objset, logged, writes_logs);
        note("Loading BRT");
        let shared = SharedBlocks::load(&objset, &self.tree, &services)?;
        let dedup = open_dedup(&objset, &self.io, options.read_only)?;
        note("Loading checkpoint txg");
        let kept = load_checkpoint(&objset, &self.tree, &services)?;
        services.brt.set_features(&opened.features);
        services.allocator.set_aside_for_logs();
        let txgs = TxgManager::new(self.exec.clone(), opened.ub.txg(), runtime.txg);
        note("Calculating deflated space");
        txgs.set_direct_max(services.allocator.class_space().deflated_capacity / DIRECT_SHARE);
        note("Loading special MOS directories");
        let dsl = DslPool::open(self.mos.clone(), services.clone() as Arc<dyn PoolServices>, txgs.clone())?;
        self.io.set_datasets(&dsl);
        note("Verifying Log Devices");
        let mut logs = self.find_logs(&dsl, &opened.ub, options, runtime)?;
        let mos_features = opened.features.mos_features();
        // One from before these checksums: it gets a salt before anybody can use it (OpenZFS: spa_sync_upgrades).
        let lacks_salt = !options.read_only && self.salt == StoredSalt::Missing;
        let new_salt = lacks_salt.then(|| salt::fresh(&self.exec));
        note("Loading properties");
        // What was on vdevs that are missing is not coming back: nobody is to wait for it.
        let fail_mode = if self.tree.is_readable() { props::fail_mode(&objset)? } else { FailMode::Continue };
        let is_multihost = props::is_multihost(&objset, &opened.ub);
        let multihost = Multihost::new(runtime.multihost, is_multihost, self.exec.now_ns(), services.zio.write_limit());
        note("Loading AUX vdevs");
        let config = Config {
            tree: Arc::new(self.tree),
            devices: self.devices,
            facts: PoolFacts { mos_features, ..self.facts },
            dirty: true,
            grown: false,
            uberblock: opened.ub,
            reflow: None,
            fail_mode,
            aux: AuxDevices::load(&objset)?,
            salt: self.salt.known().or(new_salt.as_ref()).cloned(),
        };
        self.io.set_view(config.view(&services));
        note("Claiming ZIL blocks");
        // Nothing was allocated yet: what logs need is still theirs.
        dsl.claim_logs(&mut logs).map_err(PoolError::IntentLogs)?;
        let deferred = Zap::hold(&objset, DIRECTORY)?.try_lookup_u64("sync_bplist")?.map(ObjectId);
        Ok(Base {
            spa: Spa { services, io: self.io, mos: objset, dsl, txgs, config: Mutex::new(config), multihost },
            maps,
            config_object: opened.config_object,
            deferred,
            logged,
            space_log,
            shared,
            dedup,
            kept,
            new_salt,
            logs,
            damaged_labels: found.damaged_labels(),
            damaged_uberblocks: found.damaged_uberblocks(),
        })
    }
}

/// Finds out whether the pool has a checkpoint, and what was freed of it since. Who only reads can do without.
fn load_checkpoint(mos: &Arc<Objset>, tree: &VdevTree, services: &Services) -> Result<KeptMaps, PoolError> {
    let found = checkpoint::load(mos, &services.features).and_then(|known| match known {
        Some(known) => Ok(Some((known, KeptMaps::open(mos, tree)?))),
        None => Ok(None),
    });
    match found {
        Ok(Some(((status, txg), kept))) => {
            services.checkpoint.set(Some(CheckpointStatus { vdev_bytes: kept.bytes(), ..status }));
            services.allocator.set_checkpoint(txg);
            Ok(kept)
        }
        Err(error) if services.writeable => Err(error),
        Ok(None) | Err(_) => Ok(KeptMaps::new(mos)),
    }
}

/// The error of a pool that cannot be opened: missing devices explain it best.
fn lost(tree: &VdevTree, error: dsl::DslError) -> PoolError {
    if let Some(top) = tree.tops.iter().find(|top| top.kind == TopKind::Missing) {
        return PoolError::MissingVdev(top.id);
    }
    let missing: Vec<Guid> = tree.leaves.iter().filter(|leaf| !leaf.state.is_usable()).map(|leaf| leaf.guid).collect();
    if tree.is_readable() || missing.is_empty() { PoolError::Dsl(error) } else { PoolError::MissingDevices(missing) }
}
