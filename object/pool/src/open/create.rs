//! Making a pool: what OpenZFS puts on disk before the first txg is synced (OpenZFS: `spa_create`, `dsl_pool_create`,
//! `vdev_create`).

use super::base::{Base, Runtime};
use crate::label::{Device, flush_all, init_writes, write_all};
use crate::spa::Spa;
use crate::spa::adapter::PoolIo;
use crate::spa::aux_devices::AuxDevices;
use crate::spa::checkpoint::Checkpoint;
use crate::spa::config::{Host, PoolFacts, PoolState, VERSION, is_version};
use crate::spa::features::{DIRECTORY, DRAID, Features};
use crate::spa::history::History;
use crate::spa::mos_objects::{create_deferred_frees, create_packed, create_vdev_zaps};
use crate::spa::multihost::Multihost;
use crate::spa::salt;
use crate::spa::services::Services;
use crate::spa::state::Config;
use crate::spa::version::{check_parity, count_parity};
use crate::sync::brt::SharedBlocks;
use crate::sync::dedup::DedupReader;
use crate::sync::kept::KeptMaps;
use crate::sync::log_spacemap::FEATURE as LOG_SPACEMAP;
use crate::sync::space_log::SpaceLog;
use crate::sync::spacemap::SpaceMaps;
use crate::vdev_ops::spec::{ClassSpec, LeafSpec, NO_CLASSES, NewTops, TopSpec, build_tops, check_device, new_guid};
use crate::{DeviceProblem, FEATURES, PoolError};
use arc::Cache;
use dmu::{ObjsetProps, Tx, TxgManager};
use dsl::{CreateDataset, DslPool, IntentLogs, Mos, PoolServices, Secret};
use exec::{Exec, Mutex, RwLock};
use kernels::checksum::Salt;
use metaslab::Allocator;
use ondisk::names::spa_version;
use ondisk::{Guid, ObjectId, Txg, Uberblock};
use std::sync::Arc;
use vdev::{LeafId, TopKind, VdevTree};
use zap::Zap;
use zio::{FailMode, PoolView, Zio};

/// A pool to make.
pub struct PoolSpec {
    /// Name; the caller checked its syntax.
    pub name: String,
    /// The name that it gets on its devices, if `name` is for this time only (`zpool create -t`).
    pub stored_name: Option<String>,
    /// Top-level vdevs.
    pub tops: Vec<TopSpec>,
    /// Top-level vdevs for some blocks only.
    pub classes: ClassSpec,
    /// log2 of the sector size; None takes what the devices report.
    pub ashift: Option<u32>,
    /// Short names of the features to enable; None for all that new pools get.
    pub features: Option<Vec<String>>,
    /// The comment property.
    pub comment: Option<String>,
    /// Host that makes the pool.
    pub host: Host,
    /// Overwrite devices that belong to another pool.
    pub force: bool,
    /// On-disk version of the pool: the newest, or one from before feature flags.
    pub version: u64,
    /// The root dataset.
    pub root: CreateDataset,
    /// Bytes that a user gives for the key of a root dataset that is encrypted.
    pub key: Option<Secret>,
}

impl PoolSpec {
    /// A pool with all features of new pools and sectors as the devices report, made by nobody in particular, on devices that no
    /// other pool has.
    pub fn new(name: &str, tops: Vec<TopSpec>, root: CreateDataset) -> PoolSpec {
        PoolSpec {
            name: name.to_string(),
            stored_name: None,
            tops,
            classes: ClassSpec::default(),
            ashift: None,
            features: None,
            comment: None,
            host: Host::default(),
            force: false,
            version: VERSION,
            root,
            key: None,
        }
    }
}

/// Makes a pool. On error the devices may carry labels of a pool that was never finished, which no import takes for one.
pub(crate) fn make(exec: &Exec, spec: PoolSpec, runtime: &Runtime) -> Result<Base, PoolError> {
    check_devices(exec, &spec)?;
    let (mut tree, devices) = build_tree(exec, &spec)?;
    let facts = first_facts(&spec, tree.guid);
    write_first_labels(exec, &facts, &tree, &devices)?;

    let allocator = Arc::new(Allocator::new(&tree, runtime.allocators));
    for top in &tree.tops {
        for metaslab in 0..allocator.metaslab_count(top.id) {
            allocator.load(top.id, metaslab, &[]).map_err(|_| PoolError::SpaceMap(top.id, metaslab, None))?;
        }
    }
    allocator.set_aside_for_logs();
    let view = first_view(&spec, (&tree, &devices), &allocator);
    let zio = Zio::new(exec.clone(), view, runtime.events.clone());
    let io = Arc::new(PoolIo::new(Cache::new(zio, runtime.arc_max)));
    let tx = Tx::syncing(Txg::INITIAL);
    let mos = Mos::create(io.clone(), ObjsetProps::mos().of_version(spec.version), &tx)?;
    let services = create_services(exec, &spec, &mos, (&allocator, &*io, runtime), &tx)?;
    io.brt().set_features(&services.features);
    let txgs = TxgManager::new(exec.clone(), Txg(Txg::INITIAL.0 - 1), runtime.txg);
    let dsl = DslPool::create(mos.clone(), services.clone() as Arc<dyn PoolServices>, txgs.clone(), &tx)?;
    io.set_datasets(&dsl);
    dsl.create_root(spec.root, spec.key.as_ref().map(Secret::bytes), &tx)?;
    let objset = mos.objset().clone();
    let mut maps = SpaceMaps::new(&objset, &tree.tops);
    let (config_object, salt) = create_objects(&objset, (&services.features, facts.version), &mut tree, exec, &tx)?;
    for index in 0..tree.tops.len() {
        tree.tops[index].ms_array = maps.create_array(tree.tops[index].id, &tx)?;
    }
    let aux = AuxDevices::create(&objset, exec, &tree.tops, &tx)?;
    services.log_internal("create", &format!("pool version {}; software version zirconia", facts.version), &tx);
    let config = Config {
        tree: Arc::new(tree),
        devices,
        facts: PoolFacts { mos_features: services.features.mos_features(), ..facts },
        dirty: true,
        grown: false,
        uberblock: Uberblock::default(),
        reflow: None,
        fail_mode: FailMode::Wait,
        aux,
        salt: Some(salt),
    };
    io.set_view(config.view(&services));
    let multihost = Multihost::new(runtime.multihost, false, exec.now_ns(), services.zio.write_limit());
    let space_log = runtime.log_space_maps.then(|| SpaceLog::new(&objset));
    let kept = KeptMaps::new(&objset);
    let dedup = Some(DedupReader::open(&objset, &io)?);
    Ok(Base {
        spa: Spa { services, io, mos: objset, dsl, txgs, config: Mutex::new(config), multihost },
        maps,
        config_object,
        deferred: None,
        logged: None,
        space_log,
        shared: SharedBlocks::default(),
        dedup,
        kept,
        new_salt: None,
        logs: IntentLogs::default(),
        damaged_labels: 0,
        damaged_uberblocks: 0,
    })
}

/// View of the new pool for the pipeline.
fn first_view(spec: &PoolSpec, (tree, devices): (&VdevTree, &[Option<Device>]), allocator: &Arc<Allocator>) -> PoolView {
    PoolView {
        tree: Arc::new(tree.clone()),
        devices: devices.to_vec(),
        allocator: allocator.clone(),
        facts: zio::Facts {
            guid: tree.guid,
            name: spec.name.clone(),
            writeable: true,
            hole_birth: spec.version == VERSION,
            version: spec.version,
            ..zio::Facts::default()
        },
    }
}

fn first_facts(spec: &PoolSpec, guid: Guid) -> PoolFacts {
    PoolFacts {
        version: spec.version,
        name: spec.name.clone(),
        stored_name: spec.stored_name.clone(),
        state: PoolState::Active,
        guid,
        comment: spec.comment.clone(),
        host: spec.host.clone(),
        counts_parity: spec.version < spa_version::RAIDZ_DEFLATE,
        ..PoolFacts::default()
    }
}

fn check_devices(exec: &Exec, spec: &PoolSpec) -> Result<(), PoolError> {
    if spec.tops.iter().all(|top| top.leaves.is_empty()) {
        return Err(PoolError::Invalid("a pool needs at least one device"));
    }
    let leaves: Vec<&LeafSpec> = spec.tops.iter().chain(spec.classes.tops()).flat_map(|top| &top.leaves).collect();
    let has_draid = spec.tops.iter().chain(spec.classes.tops()).any(|top| matches!(top.kind, TopKind::Draid(_)));
    if !is_version(spec.version) {
        return Err(PoolError::UnsupportedVersion(spec.version));
    }
    check_parity(spec.tops.iter().map(|top| top.kind), spec.version)?;
    if has_draid && spec.version != VERSION {
        return Err(PoolError::Invalid("dRAID vdevs need the feature 'draid', which pools of this version cannot have"));
    }
    if has_draid && spec.features.as_ref().is_some_and(|names| !names.iter().any(|name| name == "draid")) {
        return Err(PoolError::Invalid("dRAID vdevs need the feature 'draid', which is not enabled"));
    }
    let has_classes = spec.features.as_ref().is_none_or(|names| names.iter().any(|name| name == "allocation_classes"));
    if !spec.classes.is_empty() && (spec.version != VERSION || !has_classes) {
        return Err(PoolError::Invalid(NO_CLASSES));
    }
    for leaf in leaves {
        let refuse = |problem| Err(PoolError::Device { path: leaf.path.clone(), problem });
        if vdev::leaf_asize(leaf.device.size_bytes()).is_none() {
            return refuse(DeviceProblem::TooSmall);
        }
        if !spec.force {
            check_device(exec, leaf)?;
        }
    }
    Ok(())
}

/// The tree of the new pool with its devices by leaf number.
fn build_tree(exec: &Exec, spec: &PoolSpec) -> Result<(VdevTree, Vec<Option<Device>>), PoolError> {
    let all: Vec<TopSpec> = spec.tops.iter().chain(spec.classes.tops()).cloned().collect();
    let NewTops { mut tops, leaves, devices } = build_tops(exec, &all, spec.ashift)?;
    spec.classes.mark(&mut tops[spec.tops.len()..]);
    let mut tree = VdevTree::assemble(new_guid(exec), tops, leaves)?;
    tree.create_txg = Txg::INITIAL;
    if spec.version < spa_version::RAIDZ_DEFLATE {
        count_parity(&mut tree);
    }
    Ok((tree, devices.into_iter().map(Some).collect()))
}

/// Labels that say "being made": a txg of 0 is never imported.
fn write_first_labels(exec: &Exec, facts: &PoolFacts, tree: &VdevTree, devices: &[Option<Device>]) -> Result<(), PoolError> {
    let mut writes = Vec::new();
    let devices: Vec<Device> = devices.iter().flatten().cloned().collect();
    for (index, device) in devices.iter().enumerate() {
        let mut config = facts.label_config(tree, LeafId(index as u32), Txg(0));
        config.add("create_txg", Txg::INITIAL.0);
        writes.extend(init_writes(device, &config)?);
    }
    write_all(exec, writes).into_iter().collect::<Result<(), _>>()?;
    flush_all(exec, &devices).into_iter().collect::<Result<(), _>>()?;
    Ok(())
}

/// The object directory, features and history: what datasets rely on.
fn create_services(
    exec: &Exec,
    spec: &PoolSpec,
    mos: &Mos,
    (allocator, io, runtime): (&Arc<Allocator>, &PoolIo, &Runtime),
    tx: &Tx,
) -> Result<Arc<Services>, PoolError> {
    let objset = mos.objset();
    // Older versions have no place for them.
    let features = if spec.version == VERSION { Features::create(objset, tx)? } else { Features::open(objset)? };
    for feature in FEATURES.iter().filter(|_| spec.version == VERSION) {
        let wanted = match &spec.features {
            Some(names) => names.iter().any(|name| name == feature.name),
            None => feature.on_new_pools || (runtime.log_space_maps && feature.guid == LOG_SPACEMAP),
        };
        if wanted {
            features.enable(feature.guid, tx)?;
        }
    }
    let history = match spec.version < spa_version::ZPOOL_HISTORY {
        true => History::open(objset, &spec.host.name)?,
        false => History::create(objset, &spec.host.name, allocator.class_space().deflated_capacity, tx)?,
    };
    Ok(Arc::new(Services {
        exec: exec.clone(),
        name: RwLock::new(spec.name.clone()),
        features: Arc::new(features),
        history: Arc::new(history),
        allocator: allocator.clone(),
        brt: io.brt().clone(),
        dedup: io.dedup().clone(),
        checkpoint: Checkpoint::default(),
        writeable: true,
        events: runtime.events.clone(),
        scan_is_resilver: Default::default(),
        zio: io.cache().zio().clone(),
        scan_news: Mutex::default(),
        rebuild_news: Mutex::default(),
        forget_rebuilds: Default::default(),
    }))
}

/// The other objects of the directory; gives the config object, and the salt of checksums.
fn create_objects(
    objset: &Arc<dmu::Objset>,
    (features, version): (&Features, u64),
    tree: &mut VdevTree,
    exec: &Exec,
    tx: &Tx,
) -> Result<(ObjectId, Arc<Salt>), PoolError> {
    let directory = Zap::hold(objset, DIRECTORY)?;
    let config = create_packed(objset, tx)?;
    directory.add_u64("config", config.0, tx)?;
    directory.add_u64("creation_version", version, tx)?;
    if version >= spa_version::RAIDZ_DEFLATE {
        directory.add_u64("deflate", 1, tx)?;
    }
    create_deferred_frees(objset, version, tx)?;
    let salt = salt::fresh(exec);
    salt::write(objset, &salt, tx)?;
    create_vdev_zaps(objset, features, tree, tx)?;
    let draids = tree.tops.iter().filter(|top| matches!(top.kind, TopKind::Draid(_))).count();
    if draids > 0 {
        features.add(DRAID, draids as i64, tx)?;
    }
    Ok((config, salt))
}
