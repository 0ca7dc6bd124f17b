//! Making a pool: what OpenZFS puts on disk before the first txg is synced (OpenZFS: `spa_create`, `dsl_pool_create`,
//! `vdev_create`).

use crate::adapter::PoolIo;
use crate::config::{Host, PoolFacts, PoolState};
use crate::features::{DIRECTORY, Features};
use crate::history::History;
use crate::labels::{Device, flush_all, init_writes, read_configs, write_all};
use crate::mos_objects::{create_deferred_frees, create_packed, create_vdev_zaps};
use crate::open::{Runtime, is_written};
use crate::services::Services;
use crate::spacemap::SpaceMaps;
use crate::spares::AuxDevices;
use crate::sync::{Config, Syncer, VERSION, Work};
use crate::zia::Followed;
use crate::{DeviceProblem, FEATURES, Pool, PoolError};
use arc::Cache;
use dmu::{ObjsetProps, Tx, TxgConfig, TxgManager};
use dsl::{CreateDataset, DslPool, EmptyLogs, Mos, PoolServices};
use exec::{Exec, Mutex, RwLock};
use metaslab::Allocator;
use ondisk::{Guid, ObjectId, Txg, Uberblock};
use std::sync::Arc;
use vdev::{Leaf, LeafId, LeafKind, Node, NodeKind, TopKind, TopVdev, VdevTree};
use zap::{Value, Zap};
use zio::{FailMode, Zio};

/// Counts dRAID vdevs.
pub(crate) const DRAID: &str = "org.openzfs:draid";

/// One device of a new pool.
#[derive(Clone, Debug)]
pub struct LeafSpec {
    /// Path to record.
    pub path: String,
    /// File or disk.
    pub kind: LeafKind,
    /// The device, open for writing.
    pub device: Device,
}

/// One top-level vdev of a new pool.
#[derive(Clone, Debug)]
pub struct TopSpec {
    /// One device, a mirror, RAID-Z or dRAID.
    pub kind: TopKind,
    /// Its devices.
    pub leaves: Vec<LeafSpec>,
}

/// A pool to make.
pub struct PoolSpec {
    /// Name; the caller checked its syntax.
    pub name: String,
    /// The name that it gets on its devices, if `name` is for this time only (`zpool create -t`).
    pub stored_name: Option<String>,
    /// Top-level vdevs.
    pub tops: Vec<TopSpec>,
    /// log2 of the sector size; None takes what the devices report.
    pub ashift: Option<u32>,
    /// Short names of the features to enable; None for all that new pools get.
    pub features: Option<Vec<String>>,
    /// The comment property.
    pub comment: Option<String>,
    /// Who makes it.
    pub host: Host,
    /// Overwrite devices that belong to another pool.
    pub force: bool,
    /// Its on-disk version: the newest, or one from before feature flags that can be written.
    pub version: u64,
    /// The root dataset.
    pub root: CreateDataset,
}

impl PoolSpec {
    /// A pool with all features of new pools and sectors as the devices report, made by nobody in particular, on devices that no
    /// other pool has.
    pub fn new(name: &str, tops: Vec<TopSpec>, root: CreateDataset) -> PoolSpec {
        PoolSpec {
            name: name.to_string(),
            stored_name: None,
            tops,
            ashift: None,
            features: None,
            comment: None,
            host: Host::default(),
            force: false,
            version: VERSION,
            root,
        }
    }
}

impl Pool {
    /// Makes a pool and opens it. On error the devices may carry labels of a pool that was never finished, which no import
    /// takes for one.
    pub fn create(exec: &Exec, spec: PoolSpec, runtime: &Runtime) -> Result<Pool, PoolError> {
        check_devices(exec, &spec)?;
        let (mut tree, devices) = build_tree(exec, &spec)?;
        let facts = first_facts(&spec, tree.guid);
        write_first_labels(exec, &facts, &tree, &devices)?;

        let allocator = Arc::new(Allocator::new(&tree, runtime.allocators));
        for top in &tree.tops {
            for metaslab in 0..allocator.metaslab_count(top.id) {
                allocator.load(top.id, metaslab, &[]).map_err(|_| PoolError::SpaceMap(top.id, metaslab))?;
            }
        }
        let view = zio::PoolView {
            tree: Arc::new(tree.clone()),
            devices: devices.clone(),
            allocator: allocator.clone(),
            facts: zio::Facts { guid: tree.guid, name: spec.name.clone(), writeable: true, hole_birth: true, ..zio::Facts::default() },
        };
        let zio = Zio::new(exec.clone(), view, runtime.events.clone());
        let io = Arc::new(PoolIo::new(Cache::new(zio, runtime.arc_max)));
        let tx = Tx::syncing(Txg::INITIAL);
        let mos = Mos::create(io.clone(), ObjsetProps::mos(), &tx)?;
        let services = create_services(exec, &spec, &mos, (&allocator, io.cache().zio(), runtime), &tx)?;
        let txgs = TxgManager::new(exec.clone(), Txg(Txg::INITIAL.0 - 1), runtime.txg);
        let dsl = DslPool::create(mos.clone(), services.clone() as Arc<dyn PoolServices>, txgs.clone(), &tx)?;
        dsl.create_root(spec.root, &tx)?;
        let objset = mos.objset().clone();
        let mut maps = SpaceMaps::new(&objset, &tree.tops);
        let config_object = create_objects(&objset, (&services.features, facts.version), &mut tree, exec, &tx)?;
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
            fail_mode: FailMode::Wait,
            aux,
        };
        io.set_view(config.view(&services));
        let syncer = Arc::new(Syncer {
            failure: Mutex::default(),
            services,
            io,
            mos: objset,
            dsl,
            config: Mutex::new(config),
            work: Mutex::new(Work { maps, config_object, deferred: None, logged: None, empty_logs: EmptyLogs::default() }),
            hooks: RwLock::default(),
            changes: Mutex::default(),
            detached: Mutex::default(),
            frees_max: 0.into(),
        });
        let (scan, rebuilds, sweeps) = crate::pool::background(&syncer, &txgs, runtime.arc_max)?;
        crate::queues::attach(&syncer, &txgs)?;
        txgs.start(syncer.clone());
        txgs.wait_synced(Txg::INITIAL)?;
        let zia = Followed::new(runtime.providers.clone());
        Ok(Pool { syncer, txgs, damaged_labels: 0, damaged_uberblocks: 0, scan, rebuilds, sweeps, zia, arrivals: 0.into() })
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
        ..PoolFacts::default()
    }
}

impl Runtime {
    /// Defaults: 4 allocators, a cache of 256 MiB, OpenZFS's txg tunables, no events, no accelerators.
    pub fn new() -> Runtime {
        Runtime {
            allocators: 4,
            arc_max: 256 << 20,
            txg: TxgConfig::default(),
            events: Arc::new(kstat::NoEvents),
            providers: None,
            suspended_scans: false,
            max_missing_tops: 0,
        }
    }
}
impl Default for Runtime {
    fn default() -> Self {
        Runtime::new()
    }
}

fn check_devices(exec: &Exec, spec: &PoolSpec) -> Result<(), PoolError> {
    let leaves: Vec<&LeafSpec> = spec.tops.iter().flat_map(|top| &top.leaves).collect();
    if leaves.is_empty() {
        return Err(PoolError::Invalid("a pool needs at least one device"));
    }
    let has_draid = spec.tops.iter().any(|top| matches!(top.kind, TopKind::Draid(_)));
    if !is_written(spec.version) {
        return Err(PoolError::OldVersion(spec.version));
    }
    if has_draid && spec.version != VERSION {
        return Err(PoolError::Invalid("dRAID vdevs need the feature 'draid', which pools of this version cannot have"));
    }
    if has_draid && spec.features.as_ref().is_some_and(|names| !names.iter().any(|name| name == "draid")) {
        return Err(PoolError::Invalid("dRAID vdevs need the feature 'draid', which is not enabled"));
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

/// Which pool a device belongs to, as its newest label tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Name of the pool.
    pub pool: String,
    /// Guid of the pool.
    pub guid: Guid,
    /// Guid of the leaf that the device is.
    pub leaf: Guid,
    /// Active or exported.
    pub state: PoolState,
}

/// The pool that a device belongs to and that could be imported; None for a device without a label, of a pool that was
/// destroyed or never finished, and for one that left its pool, or waits as a spare.
pub fn membership(exec: &Exec, device: &Device) -> Option<Membership> {
    let configs = read_configs(exec, device);
    let newest = configs.first()?;
    // A label of txg 0 is what an unfinished creation leaves behind, and what a detached device has.
    let is_finished = newest.get_u64("txg").is_some_and(|txg| txg != 0);
    let state = newest.get_u64("state").and_then(PoolState::from_number);
    if !is_finished || state == Some(PoolState::Destroyed) {
        return None;
    }
    Some(Membership {
        pool: newest.get_str("name").unwrap_or_default().to_string(),
        guid: Guid(newest.get_u64("pool_guid").unwrap_or(0)),
        leaf: Guid(newest.get_u64("guid").unwrap_or(0)),
        state: state.unwrap_or_default(),
    })
}

/// Refuses a device that belongs to a pool.
pub(crate) fn check_device(exec: &Exec, leaf: &LeafSpec) -> Result<(), PoolError> {
    match membership(exec, &leaf.device) {
        Some(_) => Err(PoolError::Device { path: leaf.path.clone(), problem: DeviceProblem::InUse }),
        None => Ok(()),
    }
}

fn new_guid(exec: &Exec) -> Guid {
    loop {
        let guid = exec.random_u64();
        if guid != 0 {
            return Guid(guid);
        }
    }
}

/// Top-level vdevs that are to be; the numbers of their leaves begin with 0.
pub(crate) struct NewTops {
    pub tops: Vec<TopVdev>,
    pub leaves: Vec<Leaf>,
    pub devices: Vec<Device>,
}

/// Lays out top-level vdevs.
pub(crate) fn build_tops(exec: &Exec, specs: &[TopSpec], ashift: Option<u32>) -> Result<NewTops, PoolError> {
    let (mut tops, mut leaves, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    for top in specs {
        let create_txg = Txg::INITIAL;
        let mut children = Vec::new();
        for (id, leaf) in top.leaves.iter().enumerate() {
            let guid = new_guid(exec);
            let number = LeafId(leaves.len() as u32);
            let whole_disk = (leaf.kind == LeafKind::Disk).then_some(false);
            leaves.push(Leaf { kind: leaf.kind, guid, path: leaf.path.clone(), whole_disk, ..Leaf::default() });
            devices.push(leaf.device.clone());
            children.push(Node { kind: NodeKind::Leaf(number), id: id as u64, guid, create_txg, children: Vec::new() });
        }
        let smallest = top.leaves.iter().filter_map(|leaf| vdev::leaf_asize(leaf.device.size_bytes())).min().unwrap_or(0);
        let widest = top.leaves.iter().map(|leaf| leaf.device.ashift()).max().unwrap_or(vdev::ASHIFT_MIN);
        let ashift = ashift.unwrap_or_else(|| widest.clamp(vdev::ASHIFT_MIN, vdev::ASHIFT_MAX));
        let interior = |kind, children: Vec<Node>| Node { kind, id: 0, guid: new_guid(exec), create_txg, children };
        let (node, asize) = match top.kind {
            TopKind::Leaf if children.len() == 1 => (children.remove(0), smallest),
            TopKind::Mirror if children.len() > 1 => (interior(NodeKind::Mirror, children), smallest),
            TopKind::Raidz(parity) => {
                let count = children.len() as u64;
                (interior(NodeKind::Raidz(parity), children), smallest * count)
            }
            TopKind::Draid(config) if children.len() == config.children() => {
                (interior(NodeKind::Draid(config), children), config.asize(smallest))
            }
            _ => return Err(PoolError::Invalid("the number of devices does not fit the type of vdev")),
        };
        let ms_shift = vdev::metaslab_shift(top.kind, asize);
        tops.push(TopVdev { guid: node.guid, kind: top.kind, ashift, asize, ms_shift, node: Some(node), ..TopVdev::default() });
    }
    Ok(NewTops { tops, leaves, devices })
}

/// The tree of the new pool with its devices by leaf number.
fn build_tree(exec: &Exec, spec: &PoolSpec) -> Result<(VdevTree, Vec<Option<Device>>), PoolError> {
    let NewTops { tops, leaves, devices } = build_tops(exec, &spec.tops, spec.ashift)?;
    let mut tree = VdevTree::assemble(new_guid(exec), tops, leaves)?;
    tree.create_txg = Txg::INITIAL;
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
    (allocator, zio, runtime): (&Arc<Allocator>, &Zio, &Runtime),
    tx: &Tx,
) -> Result<Arc<Services>, PoolError> {
    let objset = mos.objset();
    // Older versions have no place for them.
    let features = if spec.version == VERSION { Features::create(objset, tx)? } else { Features::open(objset)? };
    for feature in FEATURES.iter().filter(|_| spec.version == VERSION) {
        let wanted = match &spec.features {
            Some(names) => names.iter().any(|name| name == feature.name),
            None => feature.on_new_pools,
        };
        if wanted {
            features.enable(feature.guid, tx)?;
        }
    }
    let history = History::create(objset, &spec.host.name, allocator.class_space().deflated_capacity, tx)?;
    Ok(Arc::new(Services {
        exec: exec.clone(),
        name: RwLock::new(spec.name.clone()),
        features: Arc::new(features),
        history: Arc::new(history),
        allocator: allocator.clone(),
        writeable: true,
        events: runtime.events.clone(),
        scan_is_resilver: Default::default(),
        zio: zio.clone(),
        scan_news: Mutex::default(),
        rebuild_news: Mutex::default(),
        forget_rebuilds: Default::default(),
    }))
}

/// The other objects of the directory; gives the config object.
fn create_objects(
    objset: &Arc<dmu::Objset>,
    (features, version): (&Features, u64),
    tree: &mut VdevTree,
    exec: &Exec,
    tx: &Tx,
) -> Result<ObjectId, PoolError> {
    let directory = Zap::hold(objset, DIRECTORY)?;
    let config = create_packed(objset, tx)?;
    directory.add_u64("config", config.0, tx)?;
    directory.add_u64("creation_version", version, tx)?;
    directory.add_u64("deflate", 1, tx)?;
    create_deferred_frees(objset, tx)?;
    let salt = (0..4).flat_map(|_| exec.random_u64().to_le_bytes()).collect();
    directory.add("org.illumos:checksum_salt", &Value::U8(salt), tx)?;
    create_vdev_zaps(objset, features, tree, tx)?;
    let draids = tree.tops.iter().filter(|top| matches!(top.kind, TopKind::Draid(_))).count();
    if draids > 0 {
        features.add(DRAID, draids as i64, tx)?;
    }
    Ok(config)
}
