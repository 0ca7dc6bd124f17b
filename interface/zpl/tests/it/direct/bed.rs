//! A pool on memory devices with one file system, for tests that need the whole engine under one thread.

use device::{BlockDevice, MemDevice};
use dsl::{CreateDataset, DslError};
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{CreateOptions, NewNode, Node, Settings, Zfs};

const DEVICE_BYTES: usize = 96 << 20;
const NAME: &str = "zpltest/fs";

/// Bed of a test: a pool and its file system.
pub struct Bed {
    pub pool: Pool,
    pub zfs: Arc<Zfs>,
    exec: Exec,
    devices: Vec<Arc<MemDevice>>,
}

fn file_system(properties: &[(&str, String)]) -> CreateDataset {
    CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        init: Box::new(|objset, tx| Zfs::create(objset, &CreateOptions::default(), tx).map_err(|_| DslError::Unsupported)),
    }
}

fn open(pool: &Pool) -> Arc<Zfs> {
    let handle = pool.dsl().hold(NAME).expect("the dataset");
    let settings = Settings { atime: false, ..Settings::default() };
    let zfs = Zfs::open(&handle.objset().expect("its object set"), Some(pool.txgs().clone()), settings).expect("a file system");
    zfs.set_space_source(Arc::new(handle));
    zfs
}

impl Bed {
    /// Makes a bed on RAID-Z1 of three, with 128 KiB records.
    pub fn raidz(compression: &str) -> Bed {
        Bed::with(compression, 128 << 10)
    }

    /// Makes a bed on RAID-Z1 of three.
    pub fn with(compression: &str, record_size: u64) -> Bed {
        Bed::under(Arc::new(Inline::new(11)), compression, record_size)
    }

    /// Makes a bed on RAID-Z1 of three under threads, with 128 KiB records, without compression.
    pub fn threaded() -> Bed {
        Bed::under(Arc::new(exec::Pool::new(2)), "off", 128 << 10)
    }

    /// Executor that runs everything.
    pub fn exec(&self) -> &Exec {
        &self.exec
    }

    fn under(exec: Exec, compression: &str, record_size: u64) -> Bed {
        let devices: Vec<Arc<MemDevice>> = (0..3).map(|index| Arc::new(MemDevice::new(&format!("d{index}"), DEVICE_BYTES))).collect();
        let leaf =
            |device: &Arc<MemDevice>| LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
        let spec = PoolSpec {
            ashift: Some(9),
            ..PoolSpec::new(
                "zpltest",
                vec![TopSpec { kind: TopKind::Raidz(1), leaves: devices.iter().map(leaf).collect() }],
                file_system(&[]),
            )
        };
        let pool = Pool::create(&exec, spec, &Runtime::new()).expect("a pool");
        let properties = [("recordsize", record_size.to_string()), ("compression", compression.to_string())];
        pool.dsl().create_dataset(NAME, file_system(&properties)).expect("a file system");
        Bed { zfs: open(&pool), pool, exec, devices }
    }

    /// Sets a property of the file system.
    pub fn set(&self, property: &str, value: &str) {
        let handle = self.pool.dsl().hold(NAME).expect("the dataset");
        handle.set_props(&[(property.to_string(), value.to_string())]).expect("set");
    }

    /// Makes a file.
    pub fn file(&self, name: &[u8]) -> Node {
        let root = self.zfs.node(self.zfs.root()).expect("root");
        self.zfs.create_node(&root, name, &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("created")
    }

    /// Node of a file that is there.
    pub fn find(&self, name: &[u8]) -> Node {
        let root = self.zfs.node(self.zfs.root()).expect("root");
        self.zfs.lookup(&root, name).expect("found")
    }

    /// Syncs and empties the cache: what is read next comes from the devices.
    pub fn cache_cleared(&self) {
        self.pool.sync().expect("synced");
        self.pool.cache().clear();
    }

    /// Runs jobs until `done`.
    pub fn drive(&self, done: impl Fn() -> bool) {
        self.exec.wait(&done, &|| ());
    }

    /// Exports and imports the pool.
    pub fn reimport(&mut self) {
        let devices = self.devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        // The file system's handle is the dataset's: it goes first.
        let spare = Bed::raidz("off");
        let old = std::mem::replace(self, spare);
        let Bed { pool, zfs, exec, devices: kept } = old;
        drop(zfs);
        pool.export().expect("exported");
        let pool = Pool::import(&exec, devices, &ImportOptions::default(), &Runtime::new()).expect("imported");
        *self = Bed { zfs: open(&pool), pool, exec, devices: kept };
    }
}
