//! A pool on a simulated device with one dataset for objects.

use abd::Abd;
use device::BlockDevice;
use direct_io::Direct;
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline, SplitMix};
use ondisk::ObjsetType;
use osd::{Device, Fid, NewObject, Object};
use pool::{Host, ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use sim::{Image, Sim, SimDevice};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{CreateOptions, Zfs};

pub const OBJECTS: &str = "tank/ost";
pub const SEQUENCE: u64 = 0x2_0000_0401;
const DEVICE_BYTES: usize = 1 << 30;

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

fn files(properties: &[(&str, &str)]) -> CreateDataset {
    CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        init: Box::new(|objset, tx| Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported)),
    }
}

impl Bed {
    /// Makes the pool and the dataset under one thread.
    pub fn new(properties: &[(&str, &str)]) -> Bed {
        Bed::under(Arc::new(Inline::new(11)), properties)
    }

    /// Makes the pool and the dataset under an executor.
    pub fn under(exec: Exec, properties: &[(&str, &str)]) -> Bed {
        Bed::over(exec, properties, &Runtime::new(), |device| device as Arc<dyn BlockDevice>)
    }

    /// Makes them over a device that stands before the simulated one.
    pub fn over(
        exec: Exec,
        properties: &[(&str, &str)],
        runtime: &Runtime,
        before: impl FnOnce(Arc<SimDevice>) -> Arc<dyn BlockDevice>,
    ) -> Bed {
        let sim = Sim::new(&exec, 5);
        let device = sim.device("d0", DEVICE_BYTES);
        let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: before(device.clone()) };
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
        let spec = PoolSpec { ashift: Some(12), host: host(), ..PoolSpec::new("tank", tops, files(&[])) };
        let pool = Pool::create(&exec, spec, runtime).expect("a pool");
        pool.dsl().create_dataset(OBJECTS, files(properties)).expect("a dataset");
        Bed { exec, sim, device, pool }
    }

    pub fn open(&self) -> Arc<Device> {
        open(&self.pool)
    }

    /// Exports the pool and imports it again.
    pub fn again(self) -> Bed {
        let Bed { exec, sim, device, pool } = self;
        pool.export().expect("exported");
        let options = ImportOptions { host: host(), ..ImportOptions::default() };
        let pool = Pool::import(&exec, vec![device.clone() as Arc<dyn BlockDevice>], &options, &Runtime::new()).expect("imported");
        Bed { exec, sim, device, pool }
    }

    /// Checks that every block has an owner.
    pub fn check_space(&self, what: &str) {
        check_space(&self.pool, what);
    }
}

pub fn check_space(pool: &Pool, what: &str) {
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// Imports the pool that a crash left, on another machine.
pub fn after_crash(images: Vec<Image>) -> Pool {
    let exec: Exec = Arc::new(Inline::new(12));
    let sim = Sim::new(&exec, 6);
    sim.stop_tracing();
    let devices: Vec<Arc<dyn BlockDevice>> =
        images.into_iter().enumerate().map(|(index, image)| sim.device_from(&format!("d{index}"), image) as Arc<dyn BlockDevice>).collect();
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    Pool::import(&exec, devices, &options, &Runtime::new()).expect("imported")
}

pub fn open(pool: &Pool) -> Arc<Device> {
    Device::open(pool.dsl().hold(OBJECTS).expect("held"), Direct::default()).expect("a device")
}

pub fn fid(object: u32) -> Fid {
    Fid::new(SEQUENCE, object)
}

/// Bytes that no two seeds share.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Makes an object with data.
pub fn make(device: &Arc<Device>, number: u32) -> Arc<Object> {
    let object = device.object(fid(number)).expect("an object");
    let running = device.begin().create(&object).start().expect("started");
    running.create(&object, NewObject::default()).expect("made");
    running.stop();
    object
}

/// Writes bytes that are lent in pieces of these lengths, as one transaction.
pub fn write_lent(object: &Arc<Object>, device: &Arc<Device>, offset: u64, bytes: &[u8]) {
    let end = offset + bytes.len() as u64;
    let middle = offset + (bytes.len() as u64 / 2).next_multiple_of(4096).min(bytes.len() as u64);
    let mut loans = object.lend(&[offset..middle, middle..end]).expect("lent");
    let mut rest = bytes;
    for loan in &mut loans {
        let (part, after) = rest.split_at(loan.len());
        loan.copy_from_slice(part);
        rest = after;
    }
    let running = device.begin().write(object, offset..end).start().expect("started");
    running.commit(object, loans).expect("written");
    running.stop();
}

/// Writes bytes of the caller's, as one transaction.
pub fn write(object: &Arc<Object>, device: &Arc<Device>, offset: u64, bytes: &[u8]) {
    let running = device.begin().write(object, offset..offset + bytes.len() as u64).start().expect("started");
    running.write(object, offset, &Abd::from_slice(bytes)).expect("written");
    running.stop();
}
