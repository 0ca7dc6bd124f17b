//! Tests on an in-memory block store: a small pool that syncs datasets, tasks and MOS, and checks of space and leaks.

mod branches;
mod concurrent;
mod delegations;
mod encrypted;
mod hostile;
mod lists;
mod livelists;
mod lost_lists;
mod marked;
mod model;
mod naming;
mod properties;
mod receive;
mod redaction;
mod references;
mod space;
mod volumes;
mod walks;

use crate::deadlist::Deadlist;
use crate::livelist;
use crate::meta::{Usage, usage};
use crate::pool::{CreateDataset, Mos};
use crate::traverse::Walk;
use crate::{DslError, DslPool, HistoryEvent, PoolServices, PoolSpace, features};
use dmu::testing::MemBlockIo;
use dmu::{NewObject, Objset, ObjsetProps, SyncError, Tx, TxgConfig, TxgManager, TxgSync};
use exec::Mutex;
use ondisk::names::spa_version;
use ondisk::{BlockPtr, Compression, DslDatasetPhys, DslDirPhys, ObjectId, ObjectType, ObjsetType, Txg};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The pool's services in memory.
pub(super) struct Services {
    refs: Mutex<BTreeMap<String, i64>>,
    pub(super) events: Mutex<Vec<HistoryEvent>>,
    pub(super) space: Mutex<PoolSpace>,
    read_only: AtomicBool,
    /// True when whatever rests has come by the next look.
    pub(super) settles: AtomicBool,
    /// Features that the pool does without.
    without: &'static [&'static str],
    /// Blocks of what was destroyed that a txg frees.
    pub(super) frees_max: AtomicU64,
    /// Version of the pool.
    pub(super) version: AtomicU64,
    /// The pool was made in an old one.
    was_old: AtomicBool,
}

impl Services {
    pub(super) fn new(without: &'static [&'static str]) -> Arc<Services> {
        Arc::new(Services {
            refs: Mutex::default(),
            events: Mutex::default(),
            space: Mutex::new(PoolSpace { usable_bytes: 1 << 40, slop_bytes: 1 << 30, deferred_bytes: 0 }),
            read_only: AtomicBool::new(false),
            settles: AtomicBool::new(false),
            without,
            frees_max: AtomicU64::new(7),
            version: AtomicU64::new(spa_version::FEATURES),
            was_old: AtomicBool::new(false),
        })
    }
}

impl PoolServices for Services {
    fn pool_name(&self) -> String {
        "tank".to_string()
    }
    fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
    fn feature_enabled(&self, guid: &str) -> bool {
        self.version() == spa_version::FEATURES && !self.without.contains(&guid)
    }
    fn feature_refs(&self, guid: &str) -> u64 {
        self.refs.lock().get(guid).copied().unwrap_or(0) as u64
    }
    fn feature_add(&self, guid: &'static str, delta: i64, tx: &Tx) -> Result<(), DslError> {
        assert!(tx.is_syncing(), "features change in syncing context only");
        let mut refs = self.refs.lock();
        let count = refs.entry(guid.to_string()).or_default();
        *count += delta;
        assert!(*count >= 0, "feature {guid} was given up more often than taken");
        Ok(())
    }
    fn space(&self) -> PoolSpace {
        let mut space = self.space.lock();
        let told = *space;
        if self.settles.load(Ordering::Relaxed) {
            space.deferred_bytes = 0;
        }
        told
    }
    fn history(&self, event: HistoryEvent, _tx: &Tx) {
        self.events.lock().push(event);
    }
    fn objset_props(&self) -> ObjsetProps {
        let props = ObjsetProps { large_micro_zaps: self.feature_enabled(features::LARGE_MICROZAP), ..ObjsetProps::default() };
        props.of_version(self.version())
    }
    fn is_writeable(&self) -> bool {
        !self.read_only.load(Ordering::Relaxed)
    }
}

/// The smallest pool that syncs.
pub(super) struct TestPool {
    pub(super) io: Arc<MemBlockIo>,
    pub(super) services: Arc<Services>,
    pub(super) txgs: Arc<TxgManager>,
    pub(super) dsl: Arc<DslPool>,
}

struct Syncer(Arc<DslPool>, Arc<Services>);

impl TxgSync for Syncer {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        let dsl = &self.0;
        dsl.sync_datasets(txg)?;
        dsl.run_sync_tasks(txg)?;
        dsl.sync_datasets(txg)?;
        dsl.sync_frees(txg, self.1.frees_max.load(Ordering::Relaxed))?;
        for _ in 0..12 {
            dsl.sync_mos_usage(txg)?;
            if !dsl.mos().is_dirty(txg) {
                return Ok(());
            }
            dsl.mos().sync(txg)?;
        }
        Err(SyncError::Pool(dmu::Cause::new(DslError::NoSpace)))
    }
}

fn start(io: &Arc<MemBlockIo>, synced: Txg) -> Arc<TxgManager> {
    TxgManager::new(dmu::BlockIo::exec(io).clone(), synced, TxgConfig::default())
}

pub(super) fn filesystem() -> CreateDataset {
    with_props(&[])
}

pub(super) fn with_props(properties: &[(&str, &str)]) -> CreateDataset {
    let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let init = |objset: &Arc<Objset>, tx: &Tx| {
        let master = zap::CreateOptions { claim: Some(ObjectId(1)), ..zap::CreateOptions::new(ObjectType::MASTER_NODE) };
        zap::create_with(objset, master, tx)?;
        Ok(())
    };
    CreateDataset { kind: ObjsetType::ZFS, properties, init: Box::new(init) }
}

/// True for a dataset whose deadlist is one list of all blocks.
fn meta_is_old(pool: &TestPool, phys: &DslDatasetPhys) -> bool {
    Deadlist::open(&pool.dsl.tree.meta, phys.ds_deadlist_obj).expect("opens").is_old()
}

/// Blocks by offset: births and sizes.
type Blocks = BTreeMap<u64, (u64, Usage)>;

fn sum<'a>(blocks: impl Iterator<Item = &'a (u64, Usage)>) -> Usage {
    blocks.fold(Usage::default(), |sum, (_, usage)| sum + *usage)
}

fn sums(dir: &DslDirPhys) -> Usage {
    Usage::new(dir.dd_used_bytes, dir.dd_compressed_bytes, dir.dd_uncompressed_bytes)
}

impl TestPool {
    pub(super) fn create(seed: u64) -> TestPool {
        TestPool::create_on(MemBlockIo::inline(seed))
    }

    pub(super) fn create_on(io: Arc<MemBlockIo>) -> TestPool {
        TestPool::create_without(io, &[])
    }

    pub(super) fn create_without(io: Arc<MemBlockIo>, without: &'static [&'static str]) -> TestPool {
        TestPool::create_with(io, Services::new(without))
    }

    /// A pool of an old version.
    pub(super) fn create_old(seed: u64, version: u64) -> TestPool {
        let services = Services::new(&[]);
        services.version.store(version, Ordering::Relaxed);
        services.was_old.store(true, Ordering::Relaxed);
        TestPool::create_with(MemBlockIo::inline(seed), services)
    }

    /// Goes to a later version, as the pool does it.
    pub(super) fn upgrade(&self, to: u64) {
        let (services, from) = (self.services.clone(), self.services.version());
        let change = move |dsl: &Arc<DslPool>, found: crate::pool::Upgraded, tx: &Tx| {
            dsl.upgrade(from, to, &found, tx)?;
            services.version.store(to, Ordering::Relaxed);
            dsl.features_changed()
        };
        self.dsl.sync_task(move |dsl, _| dsl.check_upgrade(from, to), change).expect("upgrades");
        self.dsl.mos().set_props(ObjsetProps::mos().of_version(to));
    }

    fn create_with(io: Arc<MemBlockIo>, services: Arc<Services>) -> TestPool {
        let txgs = start(&io, Txg(3));
        let tx = Tx::syncing(Txg::INITIAL);
        let mos = Mos::create(Arc::new(io.clone()), ObjsetProps::mos().of_version(services.version()), &tx).expect("a MOS");
        let dsl = DslPool::create(mos, services.clone(), txgs.clone(), &tx).expect("a pool");
        dsl.create_root(filesystem(), None, &tx).expect("a root dataset");
        txgs.start(Arc::new(Syncer(dsl.clone(), services.clone())));
        let pool = TestPool { io, services, txgs, dsl };
        pool.sync();
        pool
    }

    pub(super) fn sync(&self) {
        self.txgs.wait_synced(self.txgs.open_txg()).expect("syncs");
    }

    /// Syncs until nothing waits to be freed.
    pub(super) fn drain(&self) {
        self.sync();
        while self.dsl.has_frees() {
            self.sync();
        }
    }

    /// As [`TestPool::reopen`], for reading only.
    pub(super) fn reopen_read_only(self) -> TestPool {
        self.services.read_only.store(true, Ordering::Relaxed);
        self.reopen()
    }

    /// Forgets all memory and opens from the root pointer.
    pub(super) fn reopen(self) -> TestPool {
        let synced = self.txgs.open_txg();
        self.txgs.stop().expect("stops");
        let root = self.dsl.mos().root_bp();
        let TestPool { io, services, .. } = self;
        let txgs = start(&io, synced);
        let props = ObjsetProps::mos().of_version(services.version());
        let mos = Mos::open(Arc::new(io.clone()), root, props).expect("the MOS opens");
        let dsl = DslPool::open(mos, services.clone(), txgs.clone()).expect("the pool opens");
        txgs.start(Arc::new(Syncer(dsl.clone(), services.clone())));
        TestPool { io, services, txgs, dsl }
    }

    /// Every dataset with its full name: heads and snapshots.
    fn all_datasets(&self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        let mut waiting = vec!["tank".to_string()];
        while let Some(name) = waiting.pop() {
            let head = self.dsl.tree.find(&name).expect("exists");
            found.push((name.clone(), head.object));
            for entry in self.dsl.snapshots(&name).expect("lists") {
                found.push((format!("{name}@{}", entry.name), entry.object));
            }
            waiting.extend(self.dsl.children(&name).expect("lists").into_iter().map(|child| format!("{name}/{child}")));
        }
        found
    }

    fn reachable(&self, object: u64, root: &BlockPtr) -> Blocks {
        let mut blocks = Blocks::new();
        let io: Arc<dyn dmu::BlockIo> = Arc::new(self.io.clone());
        let visit = &mut |bp: &BlockPtr| {
            if !bp.is_embedded() {
                blocks.insert(bp.dva(0).offset, (bp.birth().0, usage(&*io, bp)));
            }
            Ok(())
        };
        Walk::all(&*io, object, root, 0).run(visit).expect("walks");
        blocks
    }

    /// Nothing leaks, nothing is freed that is referenced, and every counter of space is right. Call it drained.
    pub(super) fn check(&self) {
        assert_eq!(self.io.violations(), Vec::<&str>::new());
        let datasets = self.all_datasets();
        let blocks: BTreeMap<u64, Blocks> = datasets
            .iter()
            .map(|(_, object)| (*object, self.reachable(*object, &self.dsl.tree.dataset(*object).expect("loads").phys().ds_bp)))
            .collect();
        let mos = self.reachable(0, &self.dsl.mos().root_bp());
        let mut all: BTreeSet<u64> = blocks.values().flat_map(|blocks| blocks.keys()).copied().collect();
        all.extend(mos.keys());
        assert_eq!(self.io.live_blocks(), all, "blocks in the store are those that can be reached");
        let mut kept = 0;
        for (name, object) in &datasets {
            self.check_dataset(name, *object, &blocks);
            if !name.contains('@') {
                kept += self.check_dir(name, &datasets, &blocks);
            }
        }
        self.check_livelists(&datasets, &blocks);
        let data = sum(blocks.values().flatten().collect::<BTreeMap<_, _>>().into_values());
        let root = self.dsl.tree.find_dir("tank").expect("exists").phys();
        assert_eq!(root.dd_used_bytes, (data.used + sum(mos.values()).used) as u64 + kept, "the root directory counts every block once");
        let special = |name: &str| sums(&self.dsl.tree.find_dir(name).expect("exists").phys());
        assert_eq!(special("tank/$MOS"), sum(mos.values()), "the pool's own");
        if self.services.version() >= spa_version::DEADLISTS {
            assert_eq!(special("tank/$FREE"), Usage::default(), "all is freed");
        }
    }

    /// Unique is what neither the previous snapshot nor the next one (or the head) has; clones don't count.
    fn check_dataset(&self, name: &str, object: u64, blocks: &BTreeMap<u64, Blocks>) {
        let own = &blocks[&object];
        let phys = self.dsl.tree.dataset(object).expect("loads").phys();
        let referenced = Usage::new(phys.ds_referenced_bytes, phys.ds_compressed_bytes, phys.ds_uncompressed_bytes);
        assert_eq!(referenced, sum(own.values()), "what {name} refers to");
        let shared = |offset: &u64| {
            let neighbours = [phys.ds_prev_snap_obj, phys.ds_next_snap_obj];
            neighbours.iter().any(|object| blocks.get(object).is_some_and(|blocks| blocks.contains_key(offset)))
        };
        let unique = sum(own.iter().filter(|(offset, _)| !shared(offset)).map(|(_, block)| block));
        assert_eq!(phys.ds_unique_bytes, unique.used as u64, "unique bytes of {name}");
        let is_accurate = phys.ds_flags & ondisk::ds_flags::UNIQUE_ACCURATE != 0;
        assert!(is_accurate || self.services.was_old.load(Ordering::Relaxed), "OpenZFS believes the unique bytes of {name}");
        if phys.ds_next_clones_obj != 0 {
            let clones = self.dsl.tree.meta.zap(phys.ds_next_clones_obj).expect("opens").count();
            assert_eq!(clones, phys.ds_num_children - 1, "clones of {name}");
        }
        assert!((1..1 << 56).contains(&phys.ds_fsid_guid), "56 bits of {:#x}", phys.ds_fsid_guid);
        self.check_deadlist(name, &phys);
    }

    /// A deadlist has a key for each earlier snapshot, that of a head for no other one: OpenZFS stops where it finds them otherwise.
    fn check_deadlist(&self, name: &str, phys: &DslDatasetPhys) {
        let meta = &self.dsl.tree.meta;
        let dnode = meta.hold(phys.ds_deadlist_obj).expect("a deadlist");
        if meta_is_old(self, phys) {
            // One list of all blocks: each was born before the snapshot that it died after.
            let list = Deadlist::open(meta, phys.ds_deadlist_obj).expect("opens");
            let (_, younger) = list.split(phys.ds_prev_snap_txg).expect("reads");
            assert_eq!(younger, Vec::new(), "blocks of the deadlist of {name} that no snapshot had");
            return;
        }
        assert_eq!(dnode.info().expect("known").bonus_type, ObjectType::DEADLIST_HDR, "{name}");
        let mut keys = BTreeSet::new();
        zap::Zap::open(dnode)
            .and_then(|zap| {
                zap.for_each(|entry| {
                    keys.insert(zap::parse_int_name(&entry.name).expect("a txg"));
                    Ok(())
                })
            })
            .expect("lists");
        let (mut expected, mut walk) = (BTreeSet::new(), phys.ds_prev_snap_obj);
        while walk != 0 {
            let before = self.dsl.tree.dataset(walk).expect("loads").phys();
            expected.insert(before.ds_prev_snap_txg);
            walk = before.ds_prev_snap_obj;
        }
        if !name.contains('@') {
            expected.extend(self.marked_before(phys));
        }
        // Those of snapshots keep keys of others that went after them.
        assert!(keys.is_superset(&expected), "keys {keys:?} of the deadlist of {name} lack some of {expected:?}");
        assert!(name.contains('@') || keys == expected, "keys {keys:?} of the deadlist of {name}, not {expected:?}");
    }

    /// Txgs before a head's last snapshot of bookmarks that count what is freed: its own, and those of what it is a clone of.
    fn marked_before(&self, head: &DslDatasetPhys) -> BTreeSet<u64> {
        let tree = &self.dsl.tree;
        let (mut dir, mut until) = (tree.dir(head.ds_dir_obj).expect("loads"), head.ds_prev_snap_txg);
        let mut found = BTreeSet::new();
        loop {
            let marked = crate::marks::counted_from(&tree.meta, dir.phys().dd_head_dataset_obj, 0).expect("reads");
            found.extend(marked.into_iter().filter(|txg| *txg < until));
            if !tree.is_clone(&dir) {
                return found;
            }
            let origin = tree.dataset(dir.phys().dd_origin_obj).expect("loads");
            until = until.min(origin.phys().ds_creation_txg);
            dir = origin.dir.clone();
        }
    }

    /// A livelist has the blocks that the clone got since its origin, once each, and every livelist is counted.
    fn check_livelists(&self, datasets: &[(String, u64)], blocks: &BTreeMap<u64, Blocks>) {
        let (tree, mut count) = (&self.dsl.tree, 0);
        for (name, object) in datasets.iter().filter(|(name, _)| !name.contains('@')) {
            let head = tree.dataset(*object).expect("loads");
            let list = livelist::of(&tree.meta, &head.dir).expect("looks").unwrap_or(0);
            assert_eq!(head.livelist(), list, "livelist of {name}");
            if list == 0 {
                continue;
            }
            count += 1;
            let origin = tree.origin_txg(&head.dir).expect("known");
            let own: Blocks = blocks[object].iter().filter(|(_, (birth, _))| *birth > origin).map(|(at, block)| (*at, *block)).collect();
            let mut listed = Blocks::new();
            for (_, sublist) in Deadlist::open(&tree.meta, list).expect("opens").entries() {
                for bp in livelist::live_blocks(&tree.meta, sublist).expect("reads") {
                    let before = listed.insert(bp.dva(0).offset, (bp.birth().0, tree.meta.usage(&bp)));
                    assert_eq!(before, None, "a block of {name} is listed twice");
                }
            }
            assert_eq!(listed, own, "blocks of {name}");
            assert_eq!(Deadlist::usage_of(&tree.meta, list), Ok(sum(own.values())), "sums of the livelist of {name}");
        }
        assert_eq!(self.services.feature_refs(features::LIVELIST), count, "livelists");
    }

    /// Kinds of space of a directory, from its blocks and from what is below it; gives the bytes that reservations keep.
    fn check_dir(&self, name: &str, datasets: &[(String, u64)], blocks: &BTreeMap<u64, Blocks>) -> u64 {
        let tree = &self.dsl.tree;
        let head = tree.find(name).expect("exists");
        let origin = tree.origin_txg(&head.dir).expect("known");
        let born_here = |object: &u64| blocks[object].iter().filter(|(_, (birth, _))| *birth > origin).collect::<BTreeMap<_, _>>();
        let snapshots = datasets.iter().filter(|(other, _)| other.split_once('@').is_some_and(|(of, _)| of == name));
        let mut only_snapshots: BTreeMap<_, _> = snapshots.flat_map(|(_, object)| born_here(object)).collect();
        let own = born_here(&head.object);
        only_snapshots.retain(|offset, _| !own.contains_key(offset));
        let (own, old) = (sum(own.into_values()), sum(only_snapshots.into_values()));
        let mut children = Vec::new();
        let table = tree.meta.zap(head.dir.phys().dd_child_dir_zapobj).expect("opens");
        table
            .for_each(|entry| {
                children.push(entry.first_integer);
                Ok(())
            })
            .expect("lists");
        let children: Vec<_> = children.into_iter().map(|child| tree.dir(child).expect("loads").phys()).collect();
        let mut below = Usage::default();
        children.iter().for_each(|child| below += sums(child));
        let kept_below: u64 = children.iter().map(|child| child.dd_reserved.saturating_sub(child.dd_used_bytes)).sum();
        let kept = head.reserved().saturating_sub(head.phys().ds_unique_bytes);
        let phys = head.dir.phys();
        let kinds = [own.used as u64, old.used as u64, below.used as u64, kept_below, kept];
        let has_kinds = phys.dd_flags & ondisk::DD_FLAG_USED_BREAKDOWN != 0;
        assert_eq!(
            phys.dd_used_breakdown,
            if has_kinds { kinds } else { [0; 5] },
            "kinds of space of {name}: head, snapshots, children, reservations of children, own"
        );
        let all = own + old + below;
        assert_eq!(sums(&phys), Usage { used: kinds.iter().sum::<u64>() as i64, ..all }, "space of {name}");
        assert_eq!((head.dir.used(), head.dir.reserved()), (phys.dd_used_bytes, phys.dd_reserved), "what transactions look at");
        kept + kept_below
    }

    /// Features count exactly the datasets that list them.
    pub(super) fn check_features(&self) {
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, object) in self.all_datasets() {
            let bits = self.dsl.tree.dataset(object).expect("loads").features();
            for guid in features::PER_DATASET.iter().filter(|guid| bits & features::bit(guid) != 0) {
                *wanted.entry(guid).or_default() += 1;
            }
        }
        for guid in features::PER_DATASET {
            assert_eq!(self.services.feature_refs(guid), wanted.get(guid).copied().unwrap_or(0), "{guid}");
        }
        let has_bookmarks = |name: &str| !name.contains('@') && !self.dsl.bookmarks(name).expect("lists").is_empty();
        let with_bookmarks = self.all_datasets().iter().filter(|(name, _)| has_bookmarks(name)).count() as u64;
        assert_eq!(self.services.feature_refs(features::BOOKMARKS), with_bookmarks, "datasets with bookmarks");
        let heads = self.all_datasets().into_iter().filter(|(name, _)| !name.contains('@'));
        let marks: Vec<_> = heads.flat_map(|(name, _)| self.dsl.bookmarks(&name).expect("lists")).collect();
        let counting = marks.iter().filter(|mark| mark.space.is_some()).count();
        assert_eq!(self.services.feature_refs(features::BOOKMARK_WRITTEN), counting as u64, "bookmarks that count what is freed");
        let redacting = marks.iter().filter(|mark| mark.redaction.is_some()).count();
        assert_eq!(self.services.feature_refs(features::REDACTION_BOOKMARKS), redacting as u64, "bookmarks that redact");
    }
}

/// Writes `data` into an object of a dataset, making the object when it is 0; gives its number.
pub(super) fn write(pool: &TestPool, name: &str, object: u64, offset: u64, data: &[u8]) -> Result<u64, DslError> {
    let handle = pool.dsl.hold(name)?;
    let objset = handle.objset()?;
    let tx = handle.assign(crate::TxSpace::Writes(data.len() as u64))?;
    let dnode = if object == 0 {
        let new = NewObject { block_size: 4096, indirect_shift: 12, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
        let dnode = objset.allocate_object(new, &tx)?;
        dnode.set_compression(Compression::OFF, &tx)?;
        dnode
    } else {
        objset.hold(ObjectId(object))?
    };
    dnode.write(offset, data, &tx)?;
    Ok(dnode.object().0)
}
