//! A pool on a simulated device with one volume.

use abd::Abd;
use device::BlockDevice;
use direct_io::Direct;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline, SplitMix};
use ondisk::ObjsetType;
use pool::{Host, ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use sim::{Image, Sim, SimDevice};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zvol::{Access, Settings, Volume, VolumeError};

pub const VOLUME: &str = "tank/vol";
pub const BLOCK: u64 = 8 << 10;
pub const VOLUME_BYTES: u64 = 512 << 10;
const DEVICE_BYTES: usize = 64 << 20;
/// Access through the cache.
pub const CACHED: Access = Access { flagged: false, memory: direct_io::Memory::Aligned, mapped: false, append: false };

/// Pool and the machine that it runs on.
pub struct Bed {
    pub exec: Exec,
    pub sim: Sim,
    pub device: Arc<SimDevice>,
    pub pool: Pool,
}

fn host() -> Host {
    Host { id: 1, name: "testhost".to_string() }
}

fn root() -> CreateDataset {
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) }
}

fn volume(properties: &[(&str, &str)]) -> CreateDataset {
    let sizes = [("volsize", VOLUME_BYTES), ("volblocksize", BLOCK)];
    let mut all: Vec<(String, String)> = sizes.into_iter().map(|(name, bytes)| (name.to_string(), bytes.to_string())).collect();
    all.extend(properties.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let init = Box::new(|objset: &Arc<dmu::Objset>, tx: &dmu::Tx| dsl::volume::create(objset, VOLUME_BYTES, BLOCK, tx));
    CreateDataset { kind: ObjsetType::ZVOL, properties: all, init }
}

impl Bed {
    /// Makes the pool and the volume under one thread.
    pub fn new(properties: &[(&str, &str)]) -> Bed {
        Bed::under(Arc::new(Inline::new(11)), properties)
    }

    /// Makes the pool and the volume under an executor.
    pub fn under(exec: Exec, properties: &[(&str, &str)]) -> Bed {
        let sim = Sim::new(&exec, 5);
        let device = sim.device("d0", DEVICE_BYTES);
        let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
        let spec = PoolSpec { ashift: Some(9), host: host(), ..PoolSpec::new("tank", tops, root()) };
        let pool = Pool::create(&exec, spec, &Runtime::new()).expect("a pool");
        pool.dsl().create_dataset(VOLUME, volume(properties)).expect("a volume");
        Bed { exec, sim, device, pool }
    }

    /// Opens the volume.
    pub fn open(&self) -> Arc<Volume> {
        open(&self.pool)
    }

    /// Exports the pool and imports it again.
    pub fn again(self) -> Bed {
        let Bed { exec, sim, device, pool } = self;
        pool.export().expect("exported");
        let pool = import(&exec, device.clone(), false).expect("imported");
        Bed { exec, sim, device, pool }
    }

    /// Checks that every block has an owner.
    pub fn check_space(&self, what: &str) {
        self.pool.sync().expect("synced");
        let report = self.pool.verify_space().expect("readable");
        assert!(report.is_clean(), "{what}: {report:?}");
    }
}

/// Imports the pool of a device.
pub fn import(exec: &Exec, device: Arc<SimDevice>, read_only: bool) -> Result<Pool, pool::PoolError> {
    let options = ImportOptions { host: host(), read_only, ..ImportOptions::default() };
    Pool::import(exec, vec![device as Arc<dyn BlockDevice>], &options, &Runtime::new())
}

/// Imports the pool that a crash left, on another machine.
pub fn after_crash(images: Vec<Image>) -> Pool {
    machine_after_crash(images).1
}

/// Does [`after_crash`], and gives the machine, too.
pub fn machine_after_crash(images: Vec<Image>) -> (Sim, Pool) {
    let exec: Exec = Arc::new(Inline::new(12));
    let sim = Sim::new(&exec, 6);
    sim.stop_tracing();
    let devices: Vec<Arc<dyn BlockDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let pool = Pool::import(&exec, devices, &options, &Runtime::new()).expect("imported");
    (sim, pool)
}

/// Opens the volume of a pool, as its properties are.
pub fn open(pool: &Pool) -> Arc<Volume> {
    open_as(pool, VOLUME).expect("a volume")
}

/// Opens a volume or snapshot.
pub fn open_as(pool: &Pool, name: &str) -> Result<Arc<Volume>, DslError> {
    let handle = pool.dsl().hold(name).expect("held");
    let settings = Settings::of(&handle).expect("properties");
    Volume::open(handle, settings, Direct::default())
}

/// Bytes that no two seeds share.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    (0..length).map(|_| random.next_u64() as u8).collect()
}

/// Writes through the cache, not durably.
pub fn write(volume: &Arc<Volume>, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
    volume.write(offset, Abd::from_slice(bytes), CACHED, false)
}

/// Everything that a volume holds.
pub fn contents(volume: &Arc<Volume>) -> Vec<u8> {
    volume.read(0, volume.size(), CACHED).expect("read").to_vec()
}
