//! A pool on a simulated device with a mounted file system and an arena, killed at any moment: what is on the device and in the arena is copied.

use crate::seen::inside;
use device::BlockDevice;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{ArenaOutcome, ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use rustix::fd::{AsFd, OwnedFd};
use sim::{Image, Sim, SimDevice};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zil::Arena;
use zpl::{CreateOptions, FileReplay, Node, Settings, Zfs};

pub const FS: &str = "tank/fs";
pub const RECORD_BYTES: u64 = 16 << 10;
const DEVICE_BYTES: usize = 64 << 20;
const COPY_BYTES: usize = 64 << 10;

pub fn runtime() -> Runtime {
    Runtime { replay: Some(Arc::new(FileReplay)), ..Runtime::new() }
}

fn settings() -> Settings {
    // Looking must not change anything.
    Settings { atime: false, project_quota: true, ..Settings::default() }
}

fn dataset(properties: &[(&str, &str)]) -> CreateDataset {
    let init =
        |objset: &Arc<dmu::Objset>, tx: &dmu::Tx| Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported);
    let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    CreateDataset { kind: ObjsetType::ZFS, properties, init: Box::new(init) }
}

/// Remains of a process that was killed.
#[derive(Debug)]
pub struct Killed {
    pub images: Vec<Image>,
    pub arena: OwnedFd,
}

impl Clone for Killed {
    fn clone(&self) -> Killed {
        Killed { images: self.images.clone(), arena: copied(&self.arena) }
    }
}

/// Copy of an arena: what another process finds that gets it now.
pub fn copied(arena: impl AsFd) -> OwnedFd {
    let copy = rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let size = rustix::fs::fstat(&arena).expect("a file").st_size as u64;
    rustix::fs::ftruncate(&copy, size).expect("room");
    let (mut at, mut bytes) = (0, vec![0; COPY_BYTES]);
    while at < size {
        let count = rustix::io::pread(&arena, &mut bytes[..], at).expect("bytes");
        if !abd::slice_is_zero(&bytes[..count]) {
            assert_eq!(rustix::io::pwrite(&copy, &bytes[..count], at).expect("room"), count);
        }
        at += count as u64;
    }
    copy
}

/// A process that serves the file system.
pub struct Served {
    pub exec: Exec,
    pub sim: Sim,
    devices: Vec<Arc<SimDevice>>,
    pub zfs: Arc<Zfs>,
    pub pool: Pool,
    pub objset: u64,
}

impl Served {
    /// A new pool, with an arena of so many bytes.
    pub fn new(arena_bytes: u64, properties: &[(&str, &str)]) -> Served {
        let exec: Exec = Arc::new(Inline::new(5));
        let sim = Sim::new(&exec, 5);
        let device = sim.device("d0", DEVICE_BYTES);
        let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
        let spec = PoolSpec { ashift: Some(9), ..PoolSpec::new("tank", tops, dataset(&[])) };
        let pool = Pool::create(&exec, spec, &runtime()).expect("made");
        let all = [&[("recordsize", "16384"), ("compression", "off")], properties].concat();
        pool.dsl().create_dataset(FS, dataset(&all)).expect("made");
        assert!(pool.set_arena(Arena::create(arena_bytes).expect("an arena")));
        Served::mount(exec, sim, vec![device], pool)
    }

    fn mount(exec: Exec, sim: Sim, devices: Vec<Arc<SimDevice>>, pool: Pool) -> Served {
        let handle = pool.dsl().hold(FS).expect("held");
        let zfs = Zfs::open(&handle.objset().expect("objset"), Some(pool.txgs().clone()), settings()).expect("open");
        let handle = Arc::new(handle);
        zfs.set_space_source(handle.clone());
        if pool.has_taken_over() {
            zfs.take_over_unknown();
        }
        zfs.begin(handle.intent_log(Arc::downgrade(&zfs) as _).expect("a log"), false, true).expect("drained");
        Served { exec, sim, devices, objset: handle.object(), zfs, pool }
    }

    /// Process that goes on, and serves the file system anew: as after a mount that ended without a word.
    pub fn mounted_again(self) -> Served {
        let Served { exec, sim, devices, zfs, pool, .. } = self;
        drop(zfs);
        Served::mount(exec, sim, devices, pool)
    }

    /// Remains that another process would find if this one were killed now.
    pub fn killed(&self) -> Killed {
        Killed { images: self.images(), arena: copied(&*self.arena()) }
    }

    pub fn images(&self) -> Vec<Image> {
        self.devices.iter().map(|device| device.image()).collect()
    }

    pub fn arena(&self) -> Arc<Arena> {
        self.pool.arena().expect("an arena")
    }

    /// The next process, with the arena if one is given; what was written meanwhile is recorded.
    pub fn opened(images: Vec<Image>, arena: Option<OwnedFd>) -> Served {
        let exec: Exec = Arc::new(Inline::new(5));
        exec.sleep_ns(1_000_000_000_000);
        let sim = Sim::new(&exec, 5);
        let devices: Vec<_> = images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image)).collect();
        sim.start_recording();
        let all = devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { arena: arena.map(Arc::new), ..ImportOptions::default() };
        let pool = Pool::import(&exec, all, &options, &runtime()).expect("imported");
        Served::mount(exec, sim, devices, pool)
    }

    /// The next process, which takes everything over.
    pub fn taken_over(killed: Killed) -> Served {
        let next = Served::opened(killed.images, Some(killed.arena));
        assert!(matches!(next.pool.arena_outcome(), ArenaOutcome::TakenOver { .. }), "{:?}", next.pool.arena_outcome());
        next
    }

    /// Files that wait to be deleted.
    pub fn waiting(&self) -> u64 {
        let handle = self.pool.dsl().hold(FS).expect("held");
        let txgs = Some(self.pool.txgs().clone());
        let zfs = Zfs::open(&handle.objset().expect("objset"), txgs, settings()).expect("open");
        zfs.drain_unlinked().expect("drained")
    }

    /// Ends in good order, and finds the pool sound.
    pub fn end(self, what: &str) {
        let Served { exec, devices, zfs, pool, .. } = self;
        zfs.forget_all();
        drop(zfs);
        pool.export().expect("exported");
        let options = ImportOptions { read_only: true, ..ImportOptions::default() };
        let all = devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let pool = Pool::import(&exec, all, &options, &runtime()).expect("imported");
        let report = pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}: {report:?}");
    }
}

/// A node as programs see it: all but its times, and those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub whole: String,
    pub times: String,
}

pub type Tree = BTreeMap<String, Seen>;

pub fn look(zfs: &Arc<Zfs>, node: &Node) -> Seen {
    let fields = node.fields();
    let mut whole = format!(
        "object {} {:o} links {} generation {} {}:{} size {} flags {:x} rdev {}",
        node.object().0,
        fields.mode,
        fields.links,
        fields.generation,
        fields.uid,
        fields.gid,
        fields.size,
        fields.flags,
        fields.rdev
    );
    whole += &inside(zfs, node);
    Seen { whole, times: format!("{:?}", &fields.times[1..]) }
}

/// All that has names, and these nodes that have none.
pub fn seen(zfs: &Arc<Zfs>, nameless: impl IntoIterator<Item = u64>) -> Tree {
    let mut tree = Tree::new();
    descend(zfs, &zfs.node(zfs.root()).expect("the root"), "/", &mut tree);
    for object in nameless {
        let node = zfs.node(ondisk::ObjectId(object)).unwrap_or_else(|error| panic!("object {object}, which is open: {error:?}"));
        tree.insert(format!("object {object}"), look(zfs, &node));
    }
    tree
}

fn descend(zfs: &Arc<Zfs>, node: &Node, path: &str, tree: &mut Tree) {
    tree.insert(path.to_string(), look(zfs, node));
    if node.fields().is_directory() {
        let mut names = Vec::new();
        zfs.list(node, 3, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .expect("a listing");
        for name in names {
            let child = zfs.lookup(node, &name).expect("a listed name leads somewhere");
            descend(zfs, &child, &format!("{path}{}/", String::from_utf8_lossy(&name)), tree);
        }
    }
}

/// The first difference, in words; times count too if `with_times`.
pub fn difference(wanted: &Tree, found: &Tree, with_times: bool) -> Option<String> {
    let strip = |seen: Option<&Seen>| seen.map(|seen| (seen.whole.clone(), if with_times { seen.times.clone() } else { String::new() }));
    let paths: std::collections::BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let differing = paths.into_iter().find(|path| strip(wanted.get(*path)) != strip(found.get(*path)))?;
    Some(format!("{differing}:\n wanted {:?}\n  found {:?}", wanted.get(differing), found.get(differing)))
}
