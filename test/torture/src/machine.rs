//! A machine of simulated devices with one pool on it: making, importing, reading everything back.

use crate::model::{Owner, Seen, State, Tree};
use device::BlockDevice;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline};
use ondisk::{ObjectId, ObjsetType};
use pool::{AddSpec, Host, ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, Runtime, TopSpec};
use sim::{Image, Sim, SimDevice};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{FileReplay, Node, Settings, Zfs, ZplError};
use zvol::VolumeError;

/// Bytes of every device: the least that a pool takes.
pub const DEVICE_BYTES: usize = 64 << 20;
/// Bytes of zeros that are left out of files.
const HOLE_BYTES: usize = 4096;
/// Name of the file system that programs work in.
pub const FILE_SYSTEM: &str = "tank/fs";
/// Property `recordsize` of that file system: small, so that small files have indirect blocks.
const RECORD_SIZE: &str = "8192";

/// Layout of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Stripe of one device.
    Stripe1,
    /// Stripe of two devices.
    Stripe2,
    /// Mirror of two.
    Mirror2,
    /// RAID-Z1 of three.
    Raidz1x3,
    /// One device, with a log device.
    Logged,
    /// One device, with a mirror of two log devices.
    MirroredLog,
}

fn leaf(device: &Arc<SimDevice>) -> LeafSpec {
    LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() }
}

impl Layout {
    /// Number of devices that the layout takes.
    pub fn devices(self) -> usize {
        match self {
            Layout::Stripe1 => 1,
            Layout::Stripe2 | Layout::Mirror2 | Layout::Logged => 2,
            Layout::Raidz1x3 | Layout::MirroredLog => 3,
        }
    }

    /// True when the pool survives the loss of any one device.
    pub fn is_redundant(self) -> bool {
        matches!(self, Layout::Mirror2 | Layout::Raidz1x3)
    }

    fn tops(self, devices: &[Arc<SimDevice>]) -> Vec<TopSpec> {
        let together = |kind| vec![TopSpec { kind, leaves: devices.iter().map(leaf).collect() }];
        match self {
            Layout::Stripe1 | Layout::Stripe2 => {
                devices.iter().map(|device| TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(device)] }).collect()
            }
            Layout::Mirror2 => together(TopKind::Mirror),
            Layout::Raidz1x3 => together(TopKind::Raidz(1)),
            Layout::Logged | Layout::MirroredLog => vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf(&devices[0])] }],
        }
    }

    /// Log vdevs: what comes behind the first device.
    fn logs(self, devices: &[Arc<SimDevice>]) -> Vec<TopSpec> {
        let leaves = || devices.iter().skip(1).map(leaf).collect();
        match self {
            Layout::Logged => vec![TopSpec { kind: TopKind::Leaf, leaves: leaves() }],
            Layout::MirroredLog => vec![TopSpec { kind: TopKind::Mirror, leaves: leaves() }],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Layout::Stripe1 => "stripe1",
            Layout::Stripe2 => "stripe2",
            Layout::Mirror2 => "mirror2",
            Layout::Raidz1x3 => "raidz1x3",
            Layout::Logged => "log",
            Layout::MirroredLog => "log mirror",
        })
    }
}

/// Reason why a trial could not go on: a typed error of the engine, which says from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Error of the pool.
    Pool(PoolError),
    /// Error of a dataset.
    Dsl(DslError),
    /// Error of the file system.
    Zpl(ZplError),
    /// Error of a volume.
    Volume(VolumeError),
    /// Answer that no client of a volume should get, in words.
    Answer(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Pool(error) => write!(f, "pool: {error}"),
            Trouble::Dsl(error) => write!(f, "dataset: {error}"),
            Trouble::Zpl(error) => write!(f, "file system: {error}"),
            Trouble::Volume(error) => write!(f, "volume: {error}"),
            Trouble::Answer(answer) => write!(f, "answer to a client: {answer}"),
        }
    }
}
impl std::error::Error for Trouble {}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Trouble {
        Trouble::Pool(error)
    }
}
impl From<DslError> for Trouble {
    fn from(error: DslError) -> Trouble {
        Trouble::Dsl(error)
    }
}
impl From<ZplError> for Trouble {
    fn from(error: ZplError) -> Trouble {
        Trouble::Zpl(error)
    }
}
impl From<VolumeError> for Trouble {
    fn from(error: VolumeError) -> Trouble {
        Trouble::Volume(error)
    }
}

/// Simulated devices under a deterministic executor.
pub struct Machine {
    /// Executor of the machine.
    pub exec: Exec,
    /// Simulation that all devices share.
    pub sim: Sim,
    /// Devices of the machine.
    pub devices: Vec<Arc<SimDevice>>,
}

fn file_system(properties: &[(&str, &str)]) -> CreateDataset {
    let options = zpl::CreateOptions::default();
    CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        init: Box::new(move |objset, tx| Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported)),
    }
}

/// Host that makes and imports the pools.
pub fn host() -> Host {
    Host { id: 1, name: "testhost".to_string() }
}

impl Machine {
    /// Makes a machine with empty devices.
    pub fn new(layout: Layout, seed: u64) -> Machine {
        Machine::with(seed, vec![Image::new(DEVICE_BYTES); layout.devices()])
    }

    /// Makes a machine whose devices hold `images`.
    pub fn with(seed: u64, images: Vec<Image>) -> Machine {
        let exec: Exec = Arc::new(Inline::new(seed));
        let sim = Sim::new(&exec, seed);
        let device = |(index, image)| sim.device_from(&format!("d{index}"), image);
        let devices = images.into_iter().enumerate().map(device).collect();
        Machine { exec, sim, devices }
    }

    /// Images of what the devices hold now.
    pub fn images(&self) -> Vec<Image> {
        self.devices.iter().map(|device| device.image()).collect()
    }

    /// Makes the pool and its file system.
    pub fn create(&self, layout: Layout) -> Result<Pool, Trouble> {
        let pool = make(&self.exec, layout.tops(&self.devices), file_system(&[]))?;
        let logs = layout.logs(&self.devices);
        if !logs.is_empty() {
            pool.add(AddSpec { logs, ..AddSpec::default() })?;
        }
        with_file_system(pool)
    }

    /// Imports the pool.
    pub fn import(&self, read_only: bool) -> Result<Pool, Trouble> {
        let devices = self.devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { host: host(), read_only, ..ImportOptions::default() };
        let runtime = Runtime { replay: Some(Arc::new(FileReplay)), ..Runtime::new() };
        Ok(Pool::import(&self.exec, devices, &options, &runtime)?)
    }
}

/// Writes what a device holds into a sparse file.
pub fn write_image(image: &Image, path: &Path) -> std::io::Result<()> {
    let file = std::fs::File::create(path)?;
    file.set_len(image.size_bytes() as u64)?;
    for (offset, bytes) in image.written() {
        let pieces = bytes.chunks(HOLE_BYTES).enumerate().filter(|(_, piece)| !abd::slice_is_zero(piece));
        for (index, piece) in pieces {
            file.write_all_at(piece, (offset + index * HOLE_BYTES) as u64)?;
        }
    }
    Ok(())
}

/// Makes the pool and its file system on one device, under another executor than a machine's.
pub fn create_on(exec: &Exec, device: Arc<dyn BlockDevice>) -> Result<Pool, Trouble> {
    let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device };
    with_file_system(make(exec, vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }], file_system(&[]))?)
}

/// Makes the pool `tank`.
pub fn make(exec: &Exec, tops: Vec<TopSpec>, root: CreateDataset) -> Result<Pool, Trouble> {
    let spec = PoolSpec { ashift: Some(9), host: host(), ..PoolSpec::new("tank", tops, root) };
    Ok(Pool::create(exec, spec, &Runtime::new())?)
}

fn with_file_system(pool: Pool) -> Result<Pool, Trouble> {
    pool.dsl().create_dataset(FILE_SYSTEM, file_system(&[("recordsize", RECORD_SIZE), ("compression", "lz4"), ("xattr", "sa")]))?;
    Ok(pool)
}

/// Opens the file system for writing and deletes what a crash left half deleted.
pub fn mount(pool: &Pool) -> Result<Arc<Zfs>, Trouble> {
    let objset = pool.dsl().hold(FILE_SYSTEM)?.objset()?;
    let zfs = Zfs::open(&objset, pool.is_writeable().then(|| pool.txgs().clone()), Settings { atime: false, ..Settings::default() })?;
    zfs.drain_unlinked()?;
    Ok(zfs)
}

/// Does [`mount`], and the file system is full when the dataset has no more space, as the daemon's mounts are.
pub fn mount_limited(pool: &Pool) -> Result<Arc<Zfs>, Trouble> {
    let zfs = mount(pool)?;
    zfs.set_space_source(Arc::new(pool.dsl().hold(FILE_SYSTEM)?));
    Ok(zfs)
}

/// Reads everything that a user sees.
pub fn read_state(pool: &Pool) -> Result<State, Trouble> {
    let mut state = State { head: Arc::new(read_dataset(pool, FILE_SYSTEM)?), snapshots: BTreeMap::new() };
    for snapshot in pool.dsl().snapshots(FILE_SYSTEM)? {
        let tree = read_dataset(pool, &format!("{FILE_SYSTEM}@{}", snapshot.name))?;
        state.snapshots.insert(snapshot.name, Arc::new(tree));
    }
    Ok(state)
}

/// Reads everything that a user sees of a dataset or a snapshot.
pub fn read_dataset(pool: &Pool, name: &str) -> Result<Tree, Trouble> {
    let objset = pool.dsl().hold(name)?.objset()?;
    let zfs = Zfs::open(&objset, None, Settings { atime: false, ..Settings::default() })?;
    let mut tree = Tree::new();
    let mut waiting = vec![(String::new(), zfs.root())];
    while let Some((path, object)) = waiting.pop() {
        let node = zfs.node(object)?;
        if node.fields().is_directory() {
            let join = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
            waiting.extend(names(&zfs, &node)?.into_iter().map(|(name, child)| (join(&name), child)));
        }
        // A hostile image may name a directory in itself.
        if tree.len() > TREE_ENTRIES_MAX || path.len() > PATH_BYTES_MAX {
            return Err(Trouble::Zpl(ZplError::CORRUPT));
        }
        let seen = see(&zfs, &node)?;
        tree.insert(path, seen);
    }
    Ok(tree)
}

/// Number of entries that no program reaches.
const TREE_ENTRIES_MAX: usize = 10_000;
/// Bytes of a path that no program reaches.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a file that no program reaches.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn names(zfs: &Zfs, node: &Node) -> Result<Vec<(String, ObjectId)>, Trouble> {
    let mut found = Vec::new();
    zfs.list(node, 0, &mut |listed| {
        if listed.name != b"." && listed.name != b".." {
            found.push((String::from_utf8_lossy(listed.name).into_owned(), listed.dirent.object));
        }
        found.len() < TREE_ENTRIES_MAX
    })?;
    Ok(found)
}

fn see(zfs: &Arc<Zfs>, node: &Node) -> Result<Seen, Trouble> {
    let fields = node.fields();
    let (kind, data) = if fields.is_directory() {
        ('d', Vec::new())
    } else if fields.is_symlink() {
        ('l', zfs.read_link(node)?)
    } else if fields.size > FILE_BYTES_MAX {
        return Err(Trouble::Zpl(ZplError::TooBig));
    } else {
        ('f', zfs.read(node, 0, fields.size)?.to_vec())
    };
    let mut attributes = BTreeMap::new();
    for name in zfs.list_xattrs(node)? {
        let value = zfs.get_xattr(node, &name)?;
        attributes.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    let owner = Owner { mode: fields.mode & 0o7777, uid: fields.uid, gid: fields.gid };
    Ok(Seen { kind, data: Arc::new(data), links: fields.links, attributes, owner })
}
